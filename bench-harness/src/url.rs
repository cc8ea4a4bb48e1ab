//! Which broker, and as whom? `amqp://USER:PASSWORD@HOST:PORT/VHOST`.
//!
//! Invariants: user and password are percent-decoded; a URL that is shown shows neither. Left out: TLS.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// The port registered for AMQP.
const PORT: u16 = 5672;

/// A broker's address.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub host: String,
    pub port: u16,
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// `None`: the broker's own.
    pub virtual_host: Option<String>,
}

impl Url {
    /// Of a socket that listens on this machine.
    pub fn local(address: SocketAddr) -> Url {
        Url { host: address.ip().to_string(), port: address.port(), credentials: None, virtual_host: None }
    }

    /// All addresses of the host.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }

    /// Whether the broker is on this machine, as far as the name tells.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let rest = match text.split_once("://") {
            Some(("amqp", rest)) => rest,
            Some(("amqps", _)) => return Err("amqps is not measured yet; use amqp://".to_owned()),
            Some(_) => return Err("expected amqp://HOST:PORT or amqp://USER:PASSWORD@HOST:PORT".to_owned()),
            None => text,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('/') {
            return Err(
                "a virtual host may follow the port, with / as %2F; name the queue with --queue".to_owned()
            );
        }
        let virtual_host = if path.is_empty() { None } else { Some(unescape(path)?) };
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => {
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                (Some((unescape(user)?, unescape(password)?)), place)
            }
            None => (None, authority),
        };
        let (host, port) =
            split_port(place).ok_or("expected HOST or HOST:PORT with a port from 1 to 65535")?;
        Ok(Url { host: host.to_owned(), port, credentials, virtual_host })
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_port(place: &str) -> Option<(&str, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port {
        Some(text) => text.parse().ok().filter(|port| *port != 0)?,
        None => PORT,
    };
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
    is_host.then_some((host, port))
}

/// RFC 3986 §2.1.
fn unescape(text: &str) -> Result<String, String> {
    let error = || {
        "user, password and virtual host are percent-encoded: write @ as %40, : as %3A, / as %2F, % as %25"
            .to_owned()
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let digits =
            after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit)).ok_or_else(error)?;
        let digits = str::from_utf8(digits).map_err(|_| error())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| error())?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| error())
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "amqp://[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "amqp://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts<'a> = (&'a str, u16, Option<(&'a str, &'a str)>);

    #[test]
    fn urls() {
        let check = |text: &str, expect: Option<Parts<'_>>| {
            let got = text.parse::<Url>().ok();
            let expect = expect.map(|(host, port, credentials)| Url {
                host: host.to_owned(),
                port,
                credentials: credentials.map(|(user, password)| (user.to_owned(), password.to_owned())),
                virtual_host: None,
            });
            assert_eq!(got, expect, "{text:?}");
        };
        check("amqp://localhost:5672", Some(("localhost", 5672, None)));
        check("localhost", Some(("localhost", 5672, None)));
        check("amqp://[::1]:1234/", Some(("::1", 1234, None)));
        check("amqp://[::1]", Some(("::1", 5672, None)));
        check("amqp://guest:guest@10.0.0.1", Some(("10.0.0.1", 5672, Some(("guest", "guest")))));
        check("amqp://a%40b:p%3Aq@h:1", Some(("h", 1, Some(("a@b", "p:q")))));
        check("amqps://h", None);
        check("http://h", None);
        check("amqp://", None);
        check("amqp://h:0", None);
        check("amqp://h:70000", None);
        check("amqp://h/a/b", None);
        check("amqp://a:%zz@h", None);
        check("amqp://a:%2@h", None);
    }

    #[test]
    fn a_virtual_host_may_follow() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(text.parse::<Url>().unwrap().virtual_host.as_deref(), expect, "{text}");
        };
        check("amqp://h:1/", None);
        check("amqp://h:1/%2F", Some("/"));
        check("amqp://h:1/tests", Some("tests"));
    }

    #[test]
    fn a_password_is_not_shown() {
        let url: Url = "amqp://bob:secret@[::1]".parse().unwrap();
        assert_eq!(format!("{url} {url:?}"), "amqp://[::1]:5672 Url(amqp://[::1]:5672)");
    }

    #[test]
    fn loopback_is_seen() {
        let check = |host: &str, expect: bool| {
            let url = Url { host: host.to_owned(), port: 1, credentials: None, virtual_host: None };
            assert_eq!(url.is_loopback(), expect, "{host}");
        };
        check("localhost", true);
        check("127.0.0.1", true);
        check("::1", true);
        check("10.0.0.1", false);
        check("broker.example", false);
    }
}
