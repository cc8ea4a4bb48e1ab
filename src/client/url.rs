//! Where is the broker, and as whom do we speak? `amqp://USER:PASSWORD@HOST:PORT`.
//!
//! Invariants: user and password are percent-decoded; the port has its default; a URL that is shown shows no password.
//! Left out: TLS (`amqps`), which is refused with a sentence, and virtual hosts.

use std::fmt;
use std::str::FromStr;

use crate::config::AMQP_PORT;

/// A broker's address.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub host: String,
    pub port: u16,
    pub credentials: Option<Credentials>,
}

/// As whom to speak.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

/// Why a text is not a URL of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlError {
    Scheme,
    Tls,
    Host,
    Port,
    Path,
    Escape,
}

impl fmt::Display for UrlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            UrlError::Scheme => "expected amqp://HOST:PORT or amqp://USER:PASSWORD@HOST:PORT",
            UrlError::Tls => "amqps is not spoken yet; use amqp://",
            UrlError::Host => "the host is missing or has characters that no host has",
            UrlError::Port => "the port must be a number from 1 to 65535",
            UrlError::Path => "nothing may follow the port; the queue is an argument of its own",
            UrlError::Escape => {
                "user and password are percent-encoded; write @ as %40, : as %3A, / as %2F and % as %25"
            }
        })
    }
}

impl std::error::Error for UrlError {}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = match text.split_once("://") {
            Some(("amqp", rest)) => rest,
            Some(("amqps", _)) => return Err(UrlError::Tls),
            Some(_) => return Err(UrlError::Scheme),
            None => text,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            return Err(UrlError::Path);
        }
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials.parse()?), place),
            None => (None, authority),
        };
        let (host, port) = split_port(place)?;
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '[') {
            return Err(UrlError::Host);
        }
        Ok(Url { host: host.to_owned(), port, credentials })
    }
}

impl FromStr for Credentials {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Ok(Credentials { user: unescape(user)?, password: unescape(password)? })
    }
}

/// Without the password.
impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// Without the password.
impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Url({self})")
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_port(place: &str) -> Result<(&str, u16), UrlError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(UrlError::Host)?;
            let port =
                if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or(UrlError::Port)?) };
            (host, port)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port {
        Some(text) => text.parse().ok().filter(|port| *port != 0).ok_or(UrlError::Port)?,
        None => AMQP_PORT,
    };
    Ok((host, port))
}

/// RFC 3986 §2.1.
fn unescape(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits =
            after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(UrlError::Escape)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(UrlError::Escape);
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| UrlError::Escape)?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let shown = |text: &str| {
            let url: Url = text.parse()?;
            let credentials = url.credentials.as_ref().map(|own| format!(" {} {}", own.user, own.password));
            Ok(format!("{} {}{}", url.host, url.port, credentials.unwrap_or_default()))
        };
        let check = |text: &str, expected: Result<&str, UrlError>| {
            assert_eq!(shown(text), expected.map(str::to_owned), "{text:?}");
        };
        check("amqp://localhost:5672", Ok("localhost 5672"));
        check("amqp://localhost", Ok("localhost 5672"));
        check("amqp://localhost/", Ok("localhost 5672"));
        check("localhost:1234", Ok("localhost 1234"));
        check("amqp://[::1]:5673", Ok("::1 5673"));
        check("amqp://[::1]", Ok("::1 5672"));
        check("amqp://guest:guest@10.0.0.1", Ok("10.0.0.1 5672 guest guest"));
        check("amqp://a%40b:p%3Aq%2F%25@h:1", Ok("h 1 a@b p:q/%"));
        check("amqp://bob@h", Ok("h 5672 bob "));
        check("amqps://h", Err(UrlError::Tls));
        check("http://h", Err(UrlError::Scheme));
        check("amqp://", Err(UrlError::Host));
        check("amqp://h:0", Err(UrlError::Port));
        check("amqp://h:99999", Err(UrlError::Port));
        check("amqp://h:x", Err(UrlError::Port));
        check("amqp://[::1", Err(UrlError::Host));
        check("amqp://[::1]x", Err(UrlError::Port));
        check("amqp://h/vhost", Err(UrlError::Path));
        check("amqp://a:%zz@h", Err(UrlError::Escape));
        check("amqp://a:%2@h", Err(UrlError::Escape));
        check("amqp://a:%+1@h", Err(UrlError::Escape));
        check("amqp://a:%ff@h", Err(UrlError::Escape));
    }

    #[test]
    fn a_password_is_not_shown() {
        let url: Url = "amqp://bob:secret@[::1]:5672".parse().unwrap();
        assert_eq!(url.to_string(), "[::1]:5672");
        assert!(!format!("{url:?}").contains("secret"));
    }
}
