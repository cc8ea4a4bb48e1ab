//! What does the journal know of a queue?
//!
//! A queue that is made on first use is written with the first message that is kept in it; one that was declared, given properties,
//! or subscribed durably, at once.

use bytes::Bytes;
use corelane_engine::QueueId;
use corelane_journal as journal;
use corelane_wire::amqp10::{Encode, ListWriter, Value};

use super::{Kept, Said};
use crate::Shard;
use crate::destinations::DestinationRule;
use crate::management::{Data, decode_overrides, overrides};
use crate::queues::{QueueKind, QueueNode};
use crate::subscription::{NoLocal, Terms};

/// The kinds of queues, as they are written.
const QUEUE: u8 = 1;
const SUBSCRIPTION: u8 = 2;

/// A queue that was there.
pub(super) struct Defined {
    pub(super) kind: QueueKind,
    pub(super) overrides: DestinationRule,
    pub(super) terms: Option<Terms>,
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

    /// The queue is deleted: what was written of it is void.
    pub(crate) fn undefine(&mut self, node: &QueueNode) {
        let (Some(durability), Some(kept)) = (&mut self.durability, &node.kept) else { return };
        durability.by_uid.remove(&kept.uid);
        // Else it has yet to be written, and is not any more.
        if let Kept { uid, since, definition: Some(definition), .. } = **kept {
            durability.say(Said::QueueDeleted { uid, since, definition });
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
        properties: encode_overrides(node),
        subscription: subscription.unwrap_or_default(),
    }
}

/// What a queue was; the reason if that cannot be told.
pub(super) fn read(queue: &journal::Queue) -> Result<Defined, String> {
    let overrides = decode_overrides(&queue.properties)?;
    match queue.kind {
        QUEUE => Ok(Defined { kind: QueueKind::Queue, overrides, terms: None }),
        SUBSCRIPTION => {
            let terms = Some(decode_terms(&queue.subscription)?);
            Ok(Defined { kind: QueueKind::Subscription, overrides, terms })
        }
        other => Err(format!("kind {other} is not known")),
    }
}

fn encode_overrides(node: &QueueNode) -> Bytes {
    let pairs = overrides(node);
    if pairs.is_empty() {
        return Bytes::new();
    }
    let mut bytes = Vec::new();
    Data::Map(pairs).encode(&mut bytes);
    bytes.into()
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
