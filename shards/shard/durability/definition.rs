//! What does the journal know of a queue?
//!
//! A queue that is made on first use is written with the first message that is kept in it; one that was declared, given properties,
//! or subscribed durably, at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use corelane_engine::{Place, QueueId};
use corelane_journal as journal;
use corelane_wire::amqp10::{Encode, ListWriter, Map, Value};

use super::leaving::Closing;
use super::{Kept, Said};
use crate::Shard;
use crate::amqp091::Declared;
use crate::destinations::DestinationRule;
use crate::management::{Data, decode_overrides, overrides};
use crate::queues::{QueueKind, QueueNode};
use crate::subscription::{NoLocal, Terms};

/// The kinds of queues, as they are written.
const QUEUE: u8 = 1;
const SUBSCRIPTION: u8 = 2;
/// One that is deleted and has dead letters.
const CLOSED: u8 = 3;

/// How a queue was declared on a channel, among its properties.
const DECLARED: &str = "declared";

/// A queue that was there.
pub(super) enum Defined {
    Queue {
        kind: QueueKind,
        overrides: Box<DestinationRule>,
        declared: Option<Box<Declared>>,
        terms: Option<Terms>,
    },
    /// It was deleted; where its dead letters go, and the places of these.
    Closed { to: Arc<str>, letters: BTreeSet<Place> },
}

impl Shard {
    /// Lets the journal know the queue, if it is a durable one.
    pub(crate) fn define(&mut self, queue: QueueId) {
        let (Some(durability), Some(node)) = (&mut self.durability, self.queues.get_mut(queue)) else {
            return;
        };
        if node.kept.is_some() || !node.is_durable() {
            return;
        }
        let uid = durability.next_uid;
        durability.next_uid += 1;
        let since = durability.journal.segment();
        node.kept = Some(Box::new(Kept { uid, since, version: 0, definition: None }));
        durability.by_uid.insert(uid, queue);
        durability.say(Said::Queue { queue });
    }

    /// The queue was given properties.
    pub(crate) fn redefine(&mut self, queue: QueueId) {
        match self.queues.get(queue) {
            Some(node) if node.kept.is_some() => self.note(Said::Queue { queue }),
            Some(_) => self.define(queue),
            None => {}
        }
    }
}

/// What is written of a queue.
pub(super) fn record_of(node: &QueueNode, kept: &Kept) -> journal::Queue {
    let subscription = node.subscription.as_ref().map(|subscription| encode_terms(&subscription.terms));
    journal::Queue {
        uid: kept.uid,
        version: kept.version,
        since: kept.since,
        kind: if subscription.is_some() { SUBSCRIPTION } else { QUEUE },
        name: node.name.as_ref().into(),
        properties: encode_properties(node),
        subscription: subscription.unwrap_or_default(),
    }
}

/// What is written of a queue that is closed.
pub(super) fn record_of_closed(closing: &Closing) -> journal::Queue {
    let mut bytes = Vec::new();
    let mut list = ListWriter::new(&mut bytes);
    list.field(&&*closing.to);
    closing.letters.iter().for_each(|place| list.field(&place.0));
    list.finish();
    journal::Queue {
        uid: closing.kept.uid,
        version: closing.kept.version,
        since: closing.kept.since,
        kind: CLOSED,
        name: closing.name.as_ref().into(),
        properties: bytes.into(),
        subscription: Bytes::new(),
    }
}

/// What a queue was; the reason if that cannot be told.
pub(super) fn read(queue: &journal::Queue) -> Result<Defined, String> {
    match queue.kind {
        QUEUE => {
            let overrides = Box::new(decode_overrides(&queue.properties, &[DECLARED])?);
            let declared = decode_declared(&queue.properties)?;
            Ok(Defined::Queue { kind: QueueKind::Queue, overrides, declared, terms: None })
        }
        SUBSCRIPTION => {
            let overrides = Box::new(decode_overrides(&queue.properties, &[])?);
            let terms = Some(decode_terms(&queue.subscription)?);
            Ok(Defined::Queue { kind: QueueKind::Subscription, overrides, declared: None, terms })
        }
        CLOSED => {
            let Ok(Value::List(list)) = Value::decode(&queue.properties) else {
                return Err("what is left of it is no list".to_owned());
            };
            let mut fields = list.iter().flatten();
            let Some(Value::String(to)) = fields.next() else {
                return Err("it does not say where its dead letters go".to_owned());
            };
            let place = |field| if let Value::Ulong(place) = field { Some(Place(place)) } else { None };
            Ok(Defined::Closed { to: to.into(), letters: fields.filter_map(place).collect() })
        }
        other => Err(format!("kind {other} is not known")),
    }
}

fn encode_properties(node: &QueueNode) -> Bytes {
    let mut pairs = overrides(node);
    if let Some(declared) = &node.declared {
        pairs.push((DECLARED.into(), Data::encoded(&Value::Binary(&declared.saved()))));
    }
    if pairs.is_empty() {
        return Bytes::new();
    }
    let mut bytes = Vec::new();
    Data::Map(pairs).encode(&mut bytes);
    bytes.into()
}

fn decode_declared(properties: &[u8]) -> Result<Option<Box<Declared>>, String> {
    let map = if properties.is_empty() { Ok(Map::default()) } else { Map::decode(properties) };
    let found = map.and_then(|map| map.find(DECLARED)).map_err(|error| error.to_string())?;
    let Some(saved) = found else { return Ok(None) };
    let declared = if let Value::Binary(saved) = saved { Declared::restored(saved) } else { None };
    declared
        .map(|declared| Some(Box::new(declared)))
        .ok_or_else(|| "how it was declared makes no sense".to_owned())
}

fn encode_terms(terms: &Terms) -> Bytes {
    let Terms { topic, selector, no_local, durable: _, shared } = terms;
    let not_from = match no_local {
        Some(NoLocal::Container(container)) => Some(*container),
        // One that lives for its connection is not written.
        Some(NoLocal::Connection(_)) | None => None,
    };
    let mut bytes = Vec::new();
    let mut list = ListWriter::new(&mut bytes);
    list.field(&&**topic);
    list.optional(&selector.as_deref());
    list.optional(&not_from);
    list.field(shared);
    list.finish();
    bytes.into()
}

fn decode_terms(bytes: &[u8]) -> Result<Terms, String> {
    let Ok(Value::List(list)) = Value::decode(bytes) else { return Err("its terms are no list".to_owned()) };
    let fields: Vec<Value<'_>> = list.iter().flatten().collect();
    let [Value::String(topic), selector, not_from, Value::Boolean(shared)] = *fields else {
        return Err("its terms make no sense".to_owned());
    };
    let container = match not_from {
        Value::Ulong(container) => Some(NoLocal::Container(container)),
        _ => None,
    };
    let selector = selector.as_str().map(Into::into);
    Ok(Terms { topic: topic.into(), selector, no_local: container, durable: true, shared })
}
