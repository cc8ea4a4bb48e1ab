//! What does the journal know of exchanges and their bindings?
//!
//! The coordinator's journal has them, each as a definition of its own: durable exchanges, and bindings both of whose ends are durable. They
//! are written when they are made, and are there again before anyone is served. A binding names its queue by name and uid: one
//! that is gone, or has come again since, is not bound.
//!
//! Invariant: a definition is known here ⟺ the exchange or binding is there, or is on its way back.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelane_engine::QueueId;
use corelane_engine::exchanges::{Applied, Binding, Change, Declaration, End};
use corelane_journal::{self as journal, Position};
use corelane_wire::amqp10::{ListWriter, Value};
use corelane_wire::amqp091::Table;
use hashbrown::HashMap;

use super::{Kept, Said};
use crate::Shard;
use crate::amqp091::arguments_of;
use crate::connection::QueueAt;
use crate::effect::Effect;
use crate::topology::{self, Then, Topology};
use crate::vhost;

/// The kinds of definitions, as they are written, beside those of queues.
const EXCHANGE: u8 = 4;
const BINDING: u8 = 5;

/// Whether a definition is one of the coordinator's.
pub(crate) fn is_of_topology(kind: u8) -> bool {
    matches!(kind, EXCHANGE | BINDING)
}

/// What is written.
#[derive(Default)]
pub(super) struct Definitions {
    by_uid: HashMap<u64, Definition>,
    /// By what they say.
    uids: HashMap<Bytes, u64>,
    /// Bindings, by their queues' uids, whose homes have been asked for these.
    asked: HashMap<u64, Vec<u64>>,
}

struct Definition {
    kept: Kept,
    kind: u8,
    /// The exchange's, or that of a binding's source.
    name: Box<str>,
    said: Bytes,
    /// The uid of the queue that a binding leads to; 0: none.
    queue: u64,
}

impl Definitions {
    /// What is to be written next of a definition that is still there, and where it was.
    pub(super) fn next_record(&mut self, uid: u64) -> Option<(journal::Queue, Option<Position>)> {
        let Definition { kept, kind, name, said, queue } = self.by_uid.get_mut(&uid)?;
        kept.version += 1;
        let record = journal::Queue {
            uid,
            version: kept.version,
            since: kept.since,
            kind: *kind,
            name: name.to_string(),
            properties: said.clone(),
            subscription: Bytes::copy_from_slice(&queue.to_be_bytes()),
        };
        Some((record, kept.definition))
    }

    pub(super) fn note_written(&mut self, uid: u64, position: Position) {
        if let Some(definition) = self.by_uid.get_mut(&uid) {
            definition.kept.definition = Some(position);
        }
    }

    pub(super) fn is_at(&self, uid: u64, position: Position) -> bool {
        self.by_uid.get(&uid).is_some_and(|definition| definition.kept.definition == Some(position))
    }

    fn insert(&mut self, definition: Definition) {
        self.uids.insert(definition.said.clone(), definition.kept.uid);
        self.by_uid.insert(definition.kept.uid, definition);
    }

    fn remove(&mut self, uid: u64) -> Option<Definition> {
        let definition = self.by_uid.remove(&uid)?;
        self.uids.remove(&definition.said);
        Some(definition)
    }
}

/// What is written of an exchange.
fn exchange_record(topology: &Topology, declaration: &Declaration) -> Bytes {
    let mut bytes = Vec::new();
    let mut list = ListWriter::new(&mut bytes);
    list.field(&&*vhost::within(topology.vhost_name(declaration.vhost), &*declaration.name));
    list.field(&&*declaration.kind);
    list.field(&declaration.is_auto_delete);
    list.field(&declaration.is_internal);
    list.field(&Value::Binary(declaration.arguments.encoded()));
    list.finish();
    bytes.into()
}

fn read_exchange(topology: &Topology, bytes: &[u8]) -> Option<Declaration> {
    let Ok(Value::List(list)) = Value::decode(bytes) else { return None };
    let fields: Vec<Value<'_>> = list.iter().flatten().collect();
    let [
        Value::String(name),
        Value::String(kind),
        Value::Boolean(is_auto_delete),
        Value::Boolean(is_internal),
        Value::Binary(arguments),
    ] = *fields
    else {
        return None;
    };
    let (vhost, name) = topology.place(name);
    Some(Declaration {
        vhost,
        name: name.into(),
        kind: kind.into(),
        is_durable: true,
        is_auto_delete,
        is_internal,
        arguments: arguments_of(Table::new(arguments)).ok()?,
    })
}

/// What is written of a binding, but for its queue's uid.
fn binding_record(topology: &Topology, binding: &Binding<QueueAt>) -> Bytes {
    let (is_queue, destination) = match &binding.destination {
        End::Queue { name, .. } => (true, name),
        End::Exchange(name) => (false, name),
    };
    let mut bytes = Vec::new();
    let mut list = ListWriter::new(&mut bytes);
    list.field(&&*vhost::within(topology.vhost_name(binding.vhost), &*binding.source));
    list.field(&is_queue);
    list.field(&&**destination);
    list.field(&Value::Binary(&binding.key));
    list.field(&Value::Binary(binding.arguments.encoded()));
    list.finish();
    bytes.into()
}

/// A binding to the queue, or without one between exchanges.
fn read_binding(topology: &Topology, bytes: &[u8], queue: Option<QueueAt>) -> Option<Binding<QueueAt>> {
    let Ok(Value::List(list)) = Value::decode(bytes) else { return None };
    let fields: Vec<Value<'_>> = list.iter().flatten().collect();
    let [
        Value::String(source),
        Value::Boolean(_),
        Value::String(destination),
        Value::Binary(key),
        Value::Binary(arguments),
    ] = *fields
    else {
        return None;
    };
    let destination = match queue {
        Some(queue) => End::Queue { queue, name: destination.into(), is_durable: true },
        None => End::Exchange(destination.into()),
    };
    let (vhost, source) = topology.place(source);
    Some(Binding {
        vhost,
        source: source.into(),
        destination,
        key: key.into(),
        arguments: arguments_of(Table::new(arguments)).ok()?,
    })
}

/// The name of the queue that a binding leads to.
fn queue_of(bytes: &[u8]) -> Option<Box<str>> {
    let Ok(Value::List(list)) = Value::decode(bytes) else { return None };
    let fields: Vec<Value<'_>> = list.iter().flatten().collect();
    match *fields {
        [_, Value::Boolean(true), Value::String(name), ..] => Some(name.into()),
        _ => None,
    }
}

impl Shard {
    /// The coordinator has made a change: what of it outlives a restart is written.
    pub(crate) fn keep_change(
        &mut self,
        change: &Change<QueueAt>,
        uid: Option<u64>,
        applied: &Applied<QueueAt>,
    ) {
        if self.durability.is_none() {
            return;
        }
        match change {
            Change::Declare(declaration) if declaration.is_durable => {
                self.define_part(
                    EXCHANGE,
                    &declaration.name,
                    exchange_record(&self.topology, declaration),
                    0,
                );
            }
            Change::Bind(binding) if self.topology.is_binding_durable(binding) => {
                let queue = if let End::Queue { .. } = binding.destination { uid } else { Some(0) };
                if let Some(queue) = queue {
                    self.define_part(
                        BINDING,
                        &binding.source,
                        binding_record(&self.topology, binding),
                        queue,
                    );
                }
            }
            Change::AddVhost(_)
            | Change::RemoveVhost(_)
            | Change::Declare(_)
            | Change::Delete { .. }
            | Change::Bind(_)
            | Change::Unbind(_)
            | Change::RemoveQueue(_) => {}
        }
        for (binding, _) in applied.bindings.iter().filter(|(_, is_durable)| *is_durable) {
            self.undefine_part(&binding_record(&self.topology, binding));
        }
        for exchange in applied.exchanges.iter().filter(|exchange| exchange.is_durable) {
            self.undefine_part(&exchange_record(&self.topology, exchange));
        }
    }

    fn define_part(&mut self, kind: u8, name: &str, said: Bytes, queue: u64) {
        let Some(durability) = &mut self.durability else { return };
        // It may have been there before.
        if durability.definitions.uids.contains_key(&said) {
            return;
        }
        let uid = durability.next_uid;
        durability.next_uid += 1;
        let kept = Kept { uid, since: durability.journal.segment(), version: 0, definition: None };
        durability.definitions.insert(Definition { kept, kind, name: name.into(), said, queue });
        durability.say(Said::Definition { uid });
    }

    fn undefine_part(&mut self, said: &Bytes) {
        let Some(durability) = &self.durability else { return };
        if let Some(uid) = durability.definitions.uids.get(said).copied() {
            self.forget_part(uid);
        }
    }

    fn forget_part(&mut self, uid: u64) {
        let Some(durability) = &mut self.durability else { return };
        let Some(Definition { kept, .. }) = durability.definitions.remove(uid) else { return };
        // Else it has yet to be written, and is not any more.
        if let Kept { since, definition: Some(definition), .. } = kept {
            durability.say(Said::QueueDeleted { uid, since, definition });
        }
    }

    /// Takes a definition that was found. False: it is none of these.
    pub(super) fn restore_definition(&mut self, position: Position, record: &journal::Queue) -> bool {
        if !is_of_topology(record.kind) {
            return false;
        }
        let Some(durability) = &mut self.durability else { return false };
        let (uid, definition) = (record.uid, Some(position));
        let kept = Kept { uid, since: record.since, version: record.version, definition };
        let queue = record.subscription.first_chunk().copied().map_or(0, u64::from_be_bytes);
        let (name, said) = (record.name.as_str().into(), record.properties.clone());
        durability.definitions.insert(Definition { kept, kind: record.kind, name, said, queue });
        true
    }

    /// Exchanges are made again, and bindings, as soon as their queues are found.
    pub(super) fn restore_topology(&mut self, now: u64) {
        let Some(durability) = &self.durability else { return };
        let all = &durability.definitions.by_uid;
        let mut exchanges: Vec<u64> = Vec::new();
        let mut between: Vec<u64> = Vec::new();
        let mut queues: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (uid, Definition { kind, queue, .. }) in all {
            match (*kind, *queue) {
                (EXCHANGE, _) => exchanges.push(*uid),
                (_, 0) => between.push(*uid),
                (_, queue) => queues.entry(queue).or_default().push(*uid),
            }
        }
        exchanges.sort_unstable();
        between.sort_unstable();
        for uid in exchanges {
            let declaration = self.said_of_part(uid).and_then(|said| read_exchange(&self.topology, &said));
            self.restore_part(now, uid, declaration.map(Change::Declare));
        }
        for uid in between {
            let binding = self.said_of_part(uid).and_then(|said| read_binding(&self.topology, &said, None));
            self.restore_part(now, uid, binding.map(Change::Bind));
        }
        for (queue, mut bindings) in queues {
            bindings.sort_unstable();
            let name = self.said_of_part(bindings[0]).and_then(|said| queue_of(&said));
            if let Some(durability) = &mut self.durability {
                durability.definitions.asked.insert(queue, bindings);
            }
            self.topology.restoring += 1;
            match name {
                Some(name) => self.find_bound(now, &name, queue),
                None => self.on_bound_found(now, queue, None),
            }
        }
    }

    fn said_of_part(&self, uid: u64) -> Option<Bytes> {
        Some(self.durability.as_ref()?.definitions.by_uid.get(&uid)?.said.clone())
    }

    fn restore_part(&mut self, now: u64, uid: u64, change: Option<Change<QueueAt>>) {
        match change {
            Some(change) => {
                self.topology.restoring += 1;
                let change = topology::Change::Exchanges { change: Box::new(change), uid: None };
                self.propose(now, change, Some(Then::Restored));
            }
            None => {
                let name = self.durability.as_ref().and_then(|it| it.definitions.by_uid.get(&uid));
                let text = format!(
                    "exchange {:?} of the journal, or a binding of it, is left out: what is written of it makes no sense",
                    name.map_or("", |definition| &*definition.name)
                );
                self.effects.push(Effect::Warn { text });
            }
        }
    }

    /// The queue of this name here, if it is the one that was bound. It may get messages from now on.
    pub(crate) fn find_kept(&mut self, name: &str, uid: u64) -> Option<QueueId> {
        let queue = self.queues.find(name)?;
        let node = self.queues.get_mut(queue)?;
        if node.kept.as_ref().is_none_or(|kept| kept.uid != uid) {
            return None;
        }
        node.is_bound = true;
        Some(queue)
    }

    /// The home of a queue that was bound has looked for it.
    pub(crate) fn on_bound_found(&mut self, now: u64, uid: u64, queue: Option<QueueAt>) {
        let Some(durability) = &mut self.durability else { return };
        for binding in durability.definitions.asked.remove(&uid).unwrap_or_default() {
            if queue.is_none() {
                self.forget_part(binding);
                continue;
            }
            let change =
                self.said_of_part(binding).and_then(|said| read_binding(&self.topology, &said, queue));
            self.restore_part(now, binding, change.map(Change::Bind));
        }
        self.topology.restoring -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use corelane_engine::exchanges::VhostId;
    use corelane_wire::amqp091::{FieldValue, ShortStr, TableWriter};

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut table = Vec::new();
        TableWriter::new(&mut table).pair(ShortStr::cut("x-match"), FieldValue::LongString(b"any"));
        let arguments = arguments_of(Table::new(&table)).unwrap();
        let topology = &Topology::new(0, 1, 0, &["v".into()]);
        for vhost in [VhostId(0), VhostId(1)] {
            let declaration = Declaration {
                vhost,
                name: "e".into(),
                kind: "headers".into(),
                is_durable: true,
                is_auto_delete: true,
                is_internal: false,
                arguments: arguments.clone(),
            };
            let record = exchange_record(topology, &declaration);
            let read = read_exchange(topology, &record).unwrap();
            assert_eq!(exchange_record(topology, &read), record);
            assert_eq!((read.vhost, read.arguments, read.is_auto_delete), (vhost, arguments.clone(), true));
            let at = QueueAt { shard: 2, queue: QueueId { index: 1, generation: 1 } };
            for (destination, queue) in [
                (End::Exchange(Arc::from("f")), None),
                (End::Queue { queue: at, name: "q".into(), is_durable: true }, Some(at)),
            ] {
                let (source, key) = ("e".into(), Arc::from(*b"k\xff"));
                let binding = Binding { vhost, source, destination, key, arguments: arguments.clone() };
                let record = binding_record(topology, &binding);
                let read = read_binding(topology, &record, queue).unwrap();
                assert_eq!((binding_record(topology, &read), read.vhost), (record.clone(), vhost));
                assert_eq!(queue_of(&record).as_deref(), queue.map(|_| "q"));
            }
        }
        assert!(read_binding(topology, b"\x41", None).is_none());
    }
}
