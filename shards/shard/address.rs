//! What does an address name? `queue://name` and `/queues/name` (percent-encoded) are queues, `topic://name` and `/topics/name`
//! topics. `/exchanges/exchange/key` and `/exchanges/exchange` (percent-encoded) are exchanges of 0-9-1, with the key by which they route.
//! A plain name is what its terminus' capabilities or the rules for destinations make of it, else a queue.
//!
//! A topic's name is words between dots. A subscriber's may be a pattern: `*` stands for one word, `#` for any number of them, a last
//! `>` for one or more. What other brokers have beside these is recognised so that it can be refused clearly rather than taken for names.

use std::borrow::Cow;

use corelane_engine::is_pattern_valid;

use crate::limits::QUEUE_NAME_BYTES_MAX;
use crate::vhost;

const EXCHANGES: &str = "/exchanges/";

/// What an address names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address<'a> {
    /// A queue, or what has this name otherwise.
    Name(Cow<'a, str>),
    Queue(Cow<'a, str>),
    Topic(Cow<'a, str>),
    /// The exchange's name is empty: the default one.
    Exchange {
        exchange: Cow<'a, str>,
        key: Option<Cow<'a, str>>,
    },
    /// A kind of node that this broker does not have.
    Unsupported,
    /// Not an address: empty, too long, or wrongly encoded.
    Invalid,
}

impl<'a> Address<'a> {
    pub(crate) fn parse(text: &'a str) -> Address<'a> {
        type Kind = for<'a> fn(Cow<'a, str>) -> Address<'a>;
        let forms: [(&str, bool, Kind); 4] = [
            ("queue://", false, |name| Address::Queue(name)),
            ("/queues/", true, |name| Address::Queue(name)),
            ("topic://", false, |name| Address::Topic(name)),
            ("/topics/", true, |name| Address::Topic(name)),
        ];
        if let Some(path) = text.strip_prefix(EXCHANGES) {
            return exchange(path).unwrap_or(Address::Invalid);
        }
        if ["/topic/", "/exchange/"].iter().any(|prefix| text.starts_with(prefix)) {
            return Address::Unsupported;
        }
        let form = forms
            .into_iter()
            .find_map(|(prefix, encoded, kind)| text.strip_prefix(prefix).map(|name| (name, encoded, kind)));
        let (name, kind) = match form {
            Some((name, false, kind)) => (Cow::Borrowed(name), kind),
            Some((name, true, kind)) => match percent_decoded(name) {
                Some(name) => (name, kind),
                None => return Address::Invalid,
            },
            None => (Cow::Borrowed(text), (|name| Address::Name(name)) as Kind),
        };
        if name.is_empty() || !is_name(&name) { Address::Invalid } else { kind(name) }
    }
}

impl<'a> Address<'a> {
    /// What an address in a virtual host names, by the name that it has there.
    pub(crate) fn within(self, vhost: &str) -> Address<'a> {
        let within = |name| vhost::within(vhost, name);
        match self {
            Address::Name(name) => Address::Name(within(name)),
            Address::Queue(name) => Address::Queue(within(name)),
            Address::Topic(name) => Address::Topic(within(name)),
            Address::Exchange { exchange, key } => Address::Exchange { exchange: within(exchange), key },
            Address::Unsupported | Address::Invalid => self,
        }
    }

    /// What an address names that is known by its virtual host: never one that a client has said.
    pub(crate) fn resolve(address: &'a str) -> Address<'a> {
        let (vhost, address) = vhost::parts(address);
        Address::parse(address).within(vhost)
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= QUEUE_NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

fn exchange(path: &str) -> Option<Address<'_>> {
    let (exchange, key) = match path.split_once('/') {
        Some((exchange, key)) => (exchange, Some(key)),
        None => (path, None),
    };
    let exchange = percent_decoded(exchange).filter(|exchange| is_name(exchange))?;
    let key = match key {
        Some(key) => {
            let key = percent_decoded(key).filter(|_| !key.contains('/'))?;
            Some(key).filter(|key| key.len() <= QUEUE_NAME_BYTES_MAX).map(Some)?
        }
        None => None,
    };
    Some(Address::Exchange { exchange, key })
}

/// The address of an exchange, with a key.
pub(crate) fn exchange_address(exchange: &str, key: Option<&str>) -> String {
    let mut address = String::new();
    let parts = match (exchange, key) {
        (_, Some(key)) => [EXCHANGES, exchange, "/", key],
        (_, None) => [EXCHANGES, exchange, "", ""],
    };
    let [prefix, name, slash, key] = parts;
    address.push_str(prefix);
    percent_encode(name, &mut address);
    address.push_str(slash);
    percent_encode(key, &mut address);
    address
}

/// What is neither a letter, a digit nor one of `-._~` (RFC 3986 §2.3) is encoded.
fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// Whether an address is that of a queue, if it is not a topic's by the rules.
pub(crate) fn names_queue(address: &str, queue: &str) -> bool {
    match Address::parse(address) {
        Address::Name(name) | Address::Queue(name) => name == queue,
        Address::Topic(_) | Address::Exchange { .. } | Address::Unsupported | Address::Invalid => false,
    }
}

/// Whether a text is a plain name, of a queue or a topic: an address that says no kind.
pub fn is_plain_name(text: &str) -> bool {
    matches!(Address::parse(text), Address::Name(_))
}

/// Whether a topic's name is one that can be subscribed to.
pub(crate) fn is_topic_pattern(name: &str) -> bool {
    is_pattern_valid(vhost::plain(name))
}

/// Whether a topic's name is one that can be published to.
pub(crate) fn is_topic_name(name: &str) -> bool {
    is_pattern_valid(vhost::plain(name)) && !has_wildcards(name)
}

/// Whether a name looks like a pattern of names.
pub(crate) fn has_wildcards(name: &str) -> bool {
    vhost::plain(name).split('.').any(|word| matches!(word, "*" | "#" | ">"))
}

pub(crate) fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        decoded.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let got = match Address::parse(text) {
            Address::Name(name) => format!("name {name}"),
            Address::Queue(name) => format!("queue {name}"),
            Address::Topic(name) => format!("topic {name}"),
            Address::Exchange { exchange, key: Some(key) } => format!("exchange {exchange} key {key}"),
            Address::Exchange { exchange, key: None } => format!("exchange {exchange}"),
            Address::Unsupported => "unsupported".to_owned(),
            Address::Invalid => "invalid".to_owned(),
        };
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn addresses_name_nodes() {
        check("orders", "name orders");
        check("orders.eu/1", "name orders.eu/1");
        check("queue://orders", "queue orders");
        check("/queues/or%20ders%2F1", "queue or ders/1");
        check("/queues/%C3%A4", "queue ä");
        check("100%", "name 100%");
        check("topic://news.eu", "topic news.eu");
        check("topic://100%", "topic 100%");
        check("/topics/news.%2A", "topic news.*");
    }

    #[test]
    fn other_kinds_are_told_apart() {
        check("/exchange/amq.direct/key", "unsupported");
    }

    #[test]
    fn exchanges_have_keys() {
        check("/exchanges/amq.direct/key", "exchange amq.direct key key");
        check("/exchanges/amq.fanout", "exchange amq.fanout");
        check("/exchanges/amq.fanout/", "exchange amq.fanout key ");
        check("/exchanges/a%2Fb/%C3%A4", "exchange a/b key ä");
        check("/exchanges//key", "exchange  key key");
        check("/exchanges/a/b/c", "invalid");
        check("/exchanges/a/%4", "invalid");
        let name = "a/b ä~%";
        for key in [None, Some(""), Some("x.#"), Some("a/ü")] {
            let address = exchange_address(name, key);
            let expect = Address::Exchange { exchange: name.into(), key: key.map(Cow::Borrowed) };
            assert_eq!(Address::parse(&address), expect, "{address}");
        }
        assert_eq!(exchange_address("", Some("a b")), "/exchanges//a%20b");
    }

    #[test]
    fn malformed_addresses_are_invalid() {
        check("", "invalid");
        check("queue://", "invalid");
        check("topic://", "invalid");
        check("/topics/%4", "invalid");
        check("/queues/%G0", "invalid");
        check("/queues/%4", "invalid");
        check("/queues/%FF", "invalid");
        check("a\nb", "invalid");
        check(&"x".repeat(QUEUE_NAME_BYTES_MAX + 1), "invalid");
    }

    #[test]
    fn a_topic_to_publish_to_has_no_wildcards() {
        for (name, pattern, topic) in [
            ("news", true, true),
            ("news.eu.de", true, true),
            ("news.*", true, false),
            ("#", true, false),
            ("news.>", true, false),
            ("news.>.de", false, false),
            ("news*", false, false),
            ("news..de", false, false),
        ] {
            assert_eq!((is_topic_pattern(name), is_topic_name(name)), (pattern, topic), "{name}");
        }
    }
}
