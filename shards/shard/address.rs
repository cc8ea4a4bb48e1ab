//! What does an address name? Plain names, `queue://name` and `/queues/name` (percent-encoded) are queues.
//!
//! Topics and exchanges have addresses too (`topic://…`, `/topics/…`, `/exchanges/…`); they are recognised so that they can
//! be refused clearly rather than taken for queue names.

use std::borrow::Cow;

use crate::limits::QUEUE_NAME_BYTES_MAX;

/// What an address names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address<'a> {
    Queue(Cow<'a, str>),
    /// A kind of node that this broker does not have.
    Unsupported,
    /// Not an address: empty, too long, or wrongly encoded.
    Invalid,
}

impl<'a> Address<'a> {
    pub(crate) fn parse(text: &'a str) -> Address<'a> {
        let unsupported = ["topic://", "/topics/", "/topic/", "/exchanges/", "/exchange/"];
        if unsupported.iter().any(|prefix| text.starts_with(prefix)) {
            return Address::Unsupported;
        }
        let name = if let Some(name) = text.strip_prefix("queue://") {
            Cow::Borrowed(name)
        } else if let Some(name) = text.strip_prefix("/queues/") {
            match percent_decoded(name) {
                Some(name) => name,
                None => return Address::Invalid,
            }
        } else {
            Cow::Borrowed(text)
        };
        if name.is_empty() || name.len() > QUEUE_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Address::Invalid;
        }
        Address::Queue(name)
    }
}

fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
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
            Address::Queue(name) => format!("queue {name}"),
            Address::Unsupported => "unsupported".to_owned(),
            Address::Invalid => "invalid".to_owned(),
        };
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn addresses_name_nodes() {
        check("orders", "queue orders");
        check("orders.eu/1", "queue orders.eu/1");
        check("queue://orders", "queue orders");
        check("/queues/or%20ders%2F1", "queue or ders/1");
        check("/queues/%C3%A4", "queue ä");
        check("100%", "queue 100%");
    }

    #[test]
    fn other_kinds_are_told_apart() {
        check("topic://news", "unsupported");
        check("/exchanges/amq.direct/key", "unsupported");
    }

    #[test]
    fn malformed_addresses_are_invalid() {
        check("", "invalid");
        check("queue://", "invalid");
        check("/queues/%G0", "invalid");
        check("/queues/%4", "invalid");
        check("/queues/%FF", "invalid");
        check("a\nb", "invalid");
        check(&"x".repeat(QUEUE_NAME_BYTES_MAX + 1), "invalid");
    }
}
