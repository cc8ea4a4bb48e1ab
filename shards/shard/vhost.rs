//! In which virtual host is a thing, and how are those of the same name in different ones told apart?
//!
//! Everything that has a name (a queue, a topic, an exchange, an address) is known by its name *within its virtual host*: what is in
//! the default one by the name alone, whatever is in another one behind a mark with that host's name. No client can say the mark, since
//! no name that a client gives may have control characters. So homes, the journal, dead letters and routing go by one text, and queues of
//! one name in two virtual hosts have nothing to do with each other.
//!
//! Invariants:
//! - `parts(&within(vhost, name)) == (vhost, name)`;
//! - what a client names is put `within` its connection's virtual host; what a client is told is `plain`.

use std::borrow::Cow;
use std::fmt;

/// The virtual host that is always there.
pub(crate) const DEFAULT: &str = "/";

/// Stands before and behind the name of a virtual host that is not the default one.
const MARK: char = '\u{1f}';

/// Whether a virtual host may be called so; the bound is that of a short string of AMQP 0-9-1.
pub fn is_vhost_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The name of a thing in a virtual host.
#[inline]
pub(crate) fn within<'a>(vhost: &str, name: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let name = name.into();
    if vhost == DEFAULT { name } else { Cow::Owned(format!("{MARK}{vhost}{MARK}{name}")) }
}

/// Its virtual host, and what it is called there.
#[inline]
pub(crate) fn parts(name: &str) -> (&str, &str) {
    name.strip_prefix(MARK).and_then(|rest| rest.split_once(MARK)).unwrap_or((DEFAULT, name))
}

/// What it is called in its virtual host.
#[inline]
pub(crate) fn plain(name: &str) -> &str {
    parts(name).1
}

/// Whether it is in another virtual host than the default one.
#[inline]
pub(crate) fn is_elsewhere(name: &str) -> bool {
    name.starts_with(MARK)
}

/// As errors of AMQP 0-9-1 name a thing.
pub(crate) struct InVhost<'a>(pub(crate) &'a str);

impl fmt::Display for InVhost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vhost, name) = parts(self.0);
        write!(f, "'{name}' in vhost '{vhost}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_they_were_put_together() {
        for vhost in ["/", "v", "a/b.c", "ä b"] {
            for name in ["q", "", "amq.direct", "a.*.#", "/queues/q"] {
                let known = within(vhost, name);
                assert_eq!(parts(&known), (vhost, name));
                assert_eq!(plain(&known), name);
                assert_eq!(is_elsewhere(&known), vhost != "/");
            }
        }
        assert_eq!(within("/", "q"), "q");
        assert_eq!(InVhost(&within("v", "q")).to_string(), "'q' in vhost 'v'");
    }

    #[test]
    fn a_virtual_host_has_a_name_without_control_characters() {
        let long = "x".repeat(256);
        for (name, expect) in [("/", true), ("a b", true), ("", false), ("a\u{1f}b", false), (&*long, false)]
        {
            assert_eq!(is_vhost_name(name), expect, "{name:?}");
        }
    }
}
