//! What is a message of AMQP 0-9-1 in AMQP 1.0, and the other way round?
//!
//! All messages are stored as sections of AMQP 1.0. One that was published in 0-9-1 keeps its own properties beside them (`stored`):
//! consumers of 0-9-1 get these byte for byte, consumers of 1.0 get the sections (`published`). A message of 1.0 is translated when a
//! consumer of 0-9-1 gets it (`translate`). The mapping is RabbitMQ's:
//!
//! | 0-9-1 | | 1.0 |
//! |---|---|---|
//! | exchange | ⇄ | annotation `x-exchange`; without it the default exchange |
//! | routing key | ⇄ | annotation `x-routing-key`; without it the queue's name |
//! | delivery-mode 2 | ⇄ | header: durable |
//! | priority | ⇄ | header: priority; without it 0 in this direction → |
//! | expiration | ⇄ | header: ttl, at least 1 in this direction → |
//! | message-id, correlation-id | ⇄ | the same: string, uuid if it is a URN, binary if it is no text |
//! | the same, digits | ← | the same, ulong |
//! | header `x-message-id`, `x-correlation-id` | ← | the same, binary, or longer than a short string |
//! | user-id, reply-to | ⇄ | the same |
//! | content-type, content-encoding | ⇄ | the same, if they are ASCII |
//! | timestamp, seconds | ⇄ | creation-time, milliseconds |
//! | app-id | ⇄ | group-id; it groups no messages here in this direction → |
//! | type | ⇄ | annotation `x-basic-type` |
//! | headers `x-…`, `CC` | ⇄ | message annotations (`headers`) |
//! | other headers with simple values (`values`) | ⇄ | application properties |
//! | other headers with arrays and tables | → | nothing |
//! | body | ⇄ | data; several pieces are put together |
//! | body of type `amqp-1.0`: sections as they are encoded | ⇄ | amqp-value or amqp-sequence, and footer |
//! | cluster-id, `BCC` | | nothing |
//! | | | to, subject, absolute-expiry-time, group-sequence, reply-to-group-id, footer behind data: nothing |
//!
//! It differs from RabbitMQ's where values do not fit: long strings of any length are strings if they are UTF-8, text that is none is
//! binary or left out, decimals and uuids are translated, and an address of a queue in `reply-to` becomes the queue's name. The headers
//! `x-amqp-1.0-…` that RabbitMQ's plugin once wrote mean nothing here.

mod alarms;
mod arguments;
mod bindings;
mod channel;
pub(crate) mod consume;
mod exchanges;
mod headers;
mod owners;
mod publish;
mod published;
mod queues;
mod reply_to;
mod stored;
mod translate;
mod tx;
mod values;

#[cfg(test)]
mod tests;

use corelane_wire::amqp10::{Map, Value};
use corelane_wire::amqp091::{PropertyFields, ShortStr};

pub(crate) use self::alarms::Alarms;
pub(crate) use self::arguments::Declared;
pub(crate) use self::channel::{ChannelFault, ChannelMail, ChannelRef, Channels};
pub(crate) use self::exchanges::{BySections, HeldBack, arguments_of, delay_of};
pub(crate) use self::owners::Redeclaration;
pub(crate) use self::published::{Published, Refusal};
pub(crate) use self::queues::{Purge, QueueReply};
pub(crate) use self::reply_to::REPLY_QUEUES;
use self::stored::Original;
pub(crate) use self::translate::{Addition, Translator};
use crate::message::Content;

/// Message annotations that have their own place in 0-9-1.
pub(crate) const EXCHANGE: &str = "x-exchange";
pub(crate) const ROUTING_KEY: &str = "x-routing-key";
const TYPE: &str = "x-basic-type";
pub(crate) const CC: &str = "x-cc";
const DEATHS: &str = "x-opt-deaths";

/// Headers that a publisher routes by.
const CC_HEADER: &str = "CC";
const BCC: &str = "BCC";

/// The type of a message whose body is sections of AMQP 1.0.
const AMQP10_TYPE: &str = "amqp-1.0";

/// A message as `deliver`, `get-ok` and `return` carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BasicMessage<'a> {
    pub(crate) exchange: ShortStr<'a>,
    pub(crate) routing_key: ShortStr<'a>,
    pub(crate) properties: PropertyFields<'a>,
    pub(crate) body: &'a [u8],
}

/// Whether a message was published in 0-9-1, by its sections that are not passed on.
pub(crate) fn is_basic(head: &[u8]) -> bool {
    Original::read(head).is_some()
}

/// As much as the annotations of a message change.
pub(crate) struct Change<'a, F> {
    /// Whether an annotation stays, by its name.
    pub(crate) is_kept: F,
    pub(crate) added: Map<'a>,
    /// It is no longer routed by the keys of its headers.
    pub(crate) is_readdressed: bool,
}

impl Content {
    /// The message as it was published, if it was in 0-9-1.
    #[inline]
    pub(crate) fn as_0_9_1(&self) -> Option<BasicMessage<'_>> {
        let Original { exchange, routing_key, properties, .. } = self.original()?;
        Some(BasicMessage { exchange, routing_key, properties, body: stored::body(self.rest()) })
    }

    #[inline]
    fn original(&self) -> Option<Original<'_>> {
        if self.is_basic { Original::read(self.head()) } else { None }
    }

    /// Appends the sections that are not passed on, as they are when the annotations change.
    pub(crate) fn changed_head(&self, change: &Change<'_, impl Fn(&Value<'_>) -> bool>, out: &mut Vec<u8>) {
        let Some(original) = self.original() else { return out.extend_from_slice(self.head()) };
        out.extend_from_slice(stored::header_of(self.head()));
        stored::rewrite(&original, change, out);
    }

    /// The exchange that it was published to, and the keys by which it is routed: its own, in a queue of this name, and those of the
    /// headers `CC` and `BCC`.
    pub(crate) fn route<'a>(&'a self, queue: &'a str) -> (&'a [u8], Vec<&'a [u8]>) {
        let blind = self.original().into_iter().flat_map(|original| original.blind_keys());
        let (exchange, mut keys) = address(self.annotations(), queue);
        keys.extend(blind);
        (exchange, keys)
    }
}

/// Exchange and keys (those of `BCC` left out) by the annotations of a message, encoded, in a queue of this name.
pub(crate) fn address<'a>(annotations: &'a [u8], queue: &'a str) -> (&'a [u8], Vec<&'a [u8]>) {
    let map = Map::decode(annotations).unwrap_or_default();
    let annotation = |name| map.find(name).ok().flatten();
    let text = |name| annotation(name).and_then(|value| text_of(&value));
    let mut keys = vec![text(ROUTING_KEY).unwrap_or(queue.as_bytes())];
    if let Some(Value::List(copies)) = annotation(CC) {
        keys.extend(copies.iter().flatten().filter_map(|key| match key {
            Value::String(key) => Some(key.as_bytes()),
            _ => None,
        }));
    }
    (text(EXCHANGE).unwrap_or_default(), keys)
}

/// Text, whether it is UTF-8 or not.
fn text_of<'a>(value: &Value<'a>) -> Option<&'a [u8]> {
    match *value {
        Value::String(text) | Value::Symbol(text) => Some(text.as_bytes()),
        Value::Binary(text) => Some(text),
        _ => None,
    }
}
