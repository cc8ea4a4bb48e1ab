//! What may a user do? Lines of the users file beside the one with its verifier.
//!
//! `NAME permit VHOST CONFIGURE WRITE READ` and `NAME tags TAG,TAG`. The words of a line are percent-encoded where they have white space,
//! `%` or `"`; an empty one is `""`.
//!
//! Invariants: a pattern that is here is a regular expression; as long as nobody was granted anything, everybody may do everything, and from
//! the first grant on each may do what is granted alone, whatever is taken back (`@restricted`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use clap::ValueEnum;
use corelane_shard::{Permission, Rights, is_vhost_name};

/// What a user is besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Tag {
    /// Manages the broker: all operations of `$management`
    Administrator,
    /// May send messages in the name of others (`user-id`)
    Impersonator,
}

/// The grants of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    pub tags: BTreeSet<Tag>,
    permissions: BTreeMap<String, Grant>,
}

/// Patterns of one virtual host, and the same compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    patterns: [String; 3],
    permission: Arc<Permission>,
}

impl Tag {
    pub fn word(self) -> &'static str {
        match self {
            Tag::Administrator => "administrator",
            Tag::Impersonator => "impersonator",
        }
    }
}

impl Grants {
    /// Permits to configure, write and read what these patterns match. What is wrong is said.
    pub fn permit(&mut self, vhost: &str, patterns: [String; 3]) -> Result<(), String> {
        if !is_vhost_name(vhost) {
            return Err(format!("{vhost:?} cannot be a virtual host"));
        }
        let permission = Arc::new(Permission::new([&patterns[0], &patterns[1], &patterns[2]])?);
        self.permissions.insert(vhost.to_owned(), Grant { patterns, permission });
        Ok(())
    }

    /// Takes back what was permitted; tells whether anything was.
    pub fn forbid(&mut self, vhost: &str) -> bool {
        self.permissions.remove(vhost).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.permissions.is_empty()
    }

    /// By virtual host: patterns to configure, to write and to read.
    pub fn permissions(&self) -> impl Iterator<Item = (&str, &[String; 3])> {
        self.permissions.iter().map(|(vhost, grant)| (vhost.as_str(), &grant.patterns))
    }

    /// The same for shards.
    pub fn rights(&self) -> Rights {
        let permissions = self.permissions.iter();
        Rights {
            permissions: permissions
                .map(|(vhost, grant)| (vhost.as_str().into(), grant.permission.clone()))
                .collect(),
            is_administrator: self.tags.contains(&Tag::Administrator),
            is_impersonator: self.tags.contains(&Tag::Impersonator),
        }
    }

    /// Takes what stands behind a user's name. None: it is no line of grants; an error says what is wrong with it.
    pub(super) fn take_line(&mut self, rest: &str) -> Option<Result<(), String>> {
        let mut words = rest.split_whitespace();
        match words.next()? {
            "tags" => Some(self.take_tags(words)),
            "permit" => Some(self.take_permission(words)),
            _ => None,
        }
    }

    fn take_tags<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let (Some(tags), None) = (words.next(), words.next()) else {
            return Err("expected `NAME tags TAG,TAG`".to_owned());
        };
        for tag in tags.split(',') {
            self.tags.insert(
                Tag::from_str(tag, false)
                    .map_err(|_| format!("{tag:?} is not a tag; allowed: administrator, impersonator"))?,
            );
        }
        Ok(())
    }

    fn take_permission<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let words: Option<Vec<String>> = words.map(decoded).collect();
        let words = words.and_then(|words| <[String; 4]>::try_from(words).ok());
        let Some([vhost, configure, write, read]) = words else {
            return Err("expected `NAME permit VHOST CONFIGURE WRITE READ`, percent-encoded".to_owned());
        };
        if self.permissions.contains_key(&vhost) {
            return Err(format!("what it may do in {vhost:?} stands in an earlier line too"));
        }
        self.permit(&vhost, [configure, write, read])
    }

    /// The lines of a user.
    pub(super) fn lines(&self, name: &str) -> String {
        let mut text = String::new();
        if !self.tags.is_empty() {
            let words: Vec<&str> = self.tags.iter().map(|tag| tag.word()).collect();
            let _ = writeln!(text, "{name} tags {}", words.join(","));
        }
        for (vhost, patterns) in self.permissions() {
            let _ = write!(text, "{name} permit {}", encoded(vhost));
            for pattern in patterns {
                let _ = write!(text, " {}", encoded(pattern));
            }
            text.push('\n');
        }
        text
    }
}

fn encoded(word: &str) -> String {
    if word.is_empty() {
        return "\"\"".to_owned();
    }
    let mut text = String::new();
    for c in word.chars() {
        if c.is_whitespace() || c.is_control() || matches!(c, '%' | '"') {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(text, "%{byte:02X}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

fn decoded(word: &str) -> Option<String> {
    if word == "\"\"" {
        return Some(String::new());
    }
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut grants = Grants::default();
        grants.tags.insert(Tag::Administrator);
        let patterns = ["", "a b%", "^(x|\"y\")\\s.*$"].map(str::to_owned);
        grants.permit("a b/ü", patterns).unwrap();
        grants.permit("/", [".*", ".*", ".*"].map(str::to_owned)).unwrap();
        let mut read = Grants::default();
        for line in grants.lines("alice").lines() {
            let rest = line.strip_prefix("alice ").unwrap();
            assert_eq!(read.take_line(rest), Some(Ok(())), "{line}");
        }
        assert_eq!(read, grants);
    }

    #[test]
    fn what_is_no_grant_is_told() {
        let check = |line: &str, part: &str| {
            let error = Grants::default().take_line(line).unwrap().unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        };
        check("tags", "expected");
        check("tags king", "is not a tag");
        check("permit / a b", "expected");
        check("permit / a b c d", "expected");
        check("permit / ( b c", "not a regular expression");
        check("permit / %zz b c", "expected");
        check("permit \"\" a b c", "cannot be a virtual host");
        assert_eq!(Grants::default().take_line("SCRAM-SHA-256$x"), None);
    }
}
