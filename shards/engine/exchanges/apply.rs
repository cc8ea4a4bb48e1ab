//! What does a change do?
//!
//! What ends a binding is one function, and what ends an exchange another: an exchange that loses the last binding from it, and is to
//! be deleted then, is doomed, and the doomed are deleted one after the other until none is left.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::kind::{ALTERNATE_EXCHANGE, DELAYED_TYPE, HASH_HEADER, HASH_PROPERTY, Kind, Traits};
use super::router::{Router, take_at};
use super::{
    Applied, Arguments, Binding, Bound, Change, Declaration, Destination, End, Exchange, Exchanges,
    OwnedValue, PREDECLARED, Queue, RESERVED_PREFIX, Refusal, VhostId,
};
use crate::slots::take_out;

impl<Q: Copy + Eq + Hash> Exchanges<Q> {
    /// Makes a change. What is refused has changed nothing.
    pub fn apply(&mut self, change: &Change<Q>) -> Result<Applied<Q>, Refusal> {
        match change {
            Change::AddVhost(name) => Ok(self.add_vhost(name)),
            Change::RemoveVhost(vhost) => Ok(self.remove_vhost(*vhost)),
            Change::Declare(declaration) => self.declare(declaration),
            Change::Delete { vhost, exchange, if_unused } => self.delete(*vhost, exchange, *if_unused),
            Change::Bind(binding) => self.bind(binding),
            Change::Unbind(binding) => self.unbind(binding),
            Change::RemoveQueue(queue) => Ok(self.remove_queue(*queue)),
        }
    }

    fn add_vhost(&mut self, name: &Arc<str>) -> Applied<Q> {
        if self.vhost(name).is_some() {
            return Applied::unchanged();
        }
        let vhost = VhostId(self.vhosts.len() as u32);
        self.vhosts.push(Some(name.clone()));
        for (name, kind) in PREDECLARED {
            let declaration = Declaration {
                vhost,
                name: name.into(),
                kind: kind.into(),
                is_durable: true,
                is_auto_delete: false,
                is_internal: false,
                arguments: Arguments::default(),
            };
            let traits = Traits::of(&declaration).expect("kinds that are known, without arguments");
            self.insert(declaration, traits);
        }
        Applied::changed()
    }

    fn remove_vhost(&mut self, vhost: VhostId) -> Applied<Q> {
        if self.vhost_name(vhost).is_none() {
            return Applied::unchanged();
        }
        let is_in_it = |exchange: &&Exchange| exchange.declaration.vhost == vhost;
        let all = self.exchanges.iter().filter(|(_, exchange)| is_in_it(exchange)).map(|(index, _)| index);
        for index in all.collect::<Vec<_>>() {
            self.doom(index);
        }
        let mut applied = Applied::changed();
        self.sweep(&mut applied);
        self.vhosts[vhost.0 as usize] = None;
        applied
    }

    fn declare(&mut self, declaration: &Declaration) -> Result<Applied<Q>, Refusal> {
        let Declaration { vhost, name, .. } = declaration;
        let named = self.named(*vhost, name)?;
        let traits = Traits::of(declaration)?;
        if name.is_empty() {
            return Err(Refusal::DefaultExchange);
        }
        if let Some(known) = self.find(*vhost, name) {
            self.check_equivalent(known, declaration)?;
            return Ok(Applied::unchanged());
        }
        if name.starts_with(RESERVED_PREFIX) {
            return Err(Refusal::ReservedName(named));
        }
        self.insert(declaration.clone(), traits);
        Ok(Applied::changed())
    }

    /// Whether an exchange is as it is asked for. Arguments that nothing is done with do not count.
    fn check_equivalent(&self, known: u32, asked: &Declaration) -> Result<(), Refusal> {
        let Exchange { declaration: known, traits, .. } = &self.exchanges[known];
        let differs = |field, received: Box<str>, current: Box<str>| {
            let exchange = self.named(known.vhost, &known.name)?;
            Err(Refusal::Inequivalent { field, exchange, received, current })
        };
        if known.kind != asked.kind {
            return differs("type", quoted(&asked.kind), quoted(&known.kind));
        }
        let flags = [
            ("durable", asked.is_durable, known.is_durable),
            ("auto_delete", asked.is_auto_delete, known.is_auto_delete),
            ("internal", asked.is_internal, known.is_internal),
        ];
        if let Some((field, received, current)) = flags.iter().find(|(_, one, other)| one != other) {
            return differs(field, quoted(received), quoted(current));
        }
        let is_hashing = traits.kind == Kind::ConsistentHash;
        let fields = [
            (ALTERNATE_EXCHANGE, true),
            (HASH_HEADER, is_hashing),
            (HASH_PROPERTY, is_hashing),
            (DELAYED_TYPE, traits.is_delayed),
        ];
        for (field, _) in fields.into_iter().filter(|(_, counts)| *counts) {
            let (received, current) = (asked.arguments.find(field), known.arguments.find(field));
            if received != current {
                return differs(field, shown(received), shown(current));
            }
        }
        Ok(())
    }

    fn insert(&mut self, declaration: Declaration, traits: Traits) {
        let hash = self.hasher.hash_one((declaration.vhost, &*declaration.name));
        let router = Router::new(traits.kind, self.seed);
        let (from, to) = (Vec::new(), Vec::new());
        let exchange = Exchange { declaration, traits, hash, router, from, to, is_doomed: false, round: 0 };
        self.size += exchange.size();
        let index = self.exchanges.insert(exchange);
        let exchanges = &self.exchanges;
        self.exchange_table.insert_unique(hash, index, |index| exchanges[*index].hash);
    }

    fn delete(&mut self, vhost: VhostId, name: &str, if_unused: bool) -> Result<Applied<Q>, Refusal> {
        let named = self.named(vhost, name)?;
        if name.is_empty() {
            return Err(Refusal::DefaultExchange);
        }
        if name.starts_with(RESERVED_PREFIX) {
            return Err(Refusal::SystemExchange(named));
        }
        let Some(index) = self.find(vhost, name) else { return Ok(Applied::unchanged()) };
        if if_unused && !self.exchanges[index].from.is_empty() {
            return Err(Refusal::InUse(named));
        }
        self.doom(index);
        let mut applied = Applied::changed();
        self.sweep(&mut applied);
        Ok(applied)
    }

    fn bind(&mut self, binding: &Binding<Q>) -> Result<Applied<Q>, Refusal> {
        let Binding { vhost, source, destination, key, arguments } = binding;
        let source = self.bindable(*vhost, source)?;
        let known = match destination {
            End::Exchange(name) => Some(Destination::Exchange(self.bindable(*vhost, name)?)),
            End::Queue { queue, .. } => self.find_queue(*queue).map(Destination::Queue),
        };
        self.exchanges[source].router.check(key, arguments)?;
        let is_there = known.is_some_and(|known| self.find_binding(source, known, binding).is_some());
        if is_there {
            return Ok(Applied::unchanged());
        }
        let destination = match (known, destination) {
            (Some(known), _) => known,
            (None, End::Queue { queue, name, is_durable }) => {
                Destination::Queue(self.insert_queue(*queue, name, *is_durable))
            }
            (None, End::Exchange(_)) => unreachable!("an exchange that is not known was refused"),
        };
        self.link(source, destination, key, arguments);
        Ok(Applied::changed())
    }

    /// An exchange that may be an end of a binding.
    fn bindable(&self, vhost: VhostId, name: &str) -> Result<u32, Refusal> {
        self.check_exists(vhost, name)?;
        Ok(self.find(vhost, name).expect("it was found just now"))
    }

    fn unbind(&mut self, binding: &Binding<Q>) -> Result<Applied<Q>, Refusal> {
        let Binding { vhost, source, destination, .. } = binding;
        let ends_at_default = matches!(destination, End::Exchange(name) if name.is_empty());
        if source.is_empty() || ends_at_default {
            return Err(Refusal::DefaultExchange);
        }
        let destination = match destination {
            End::Exchange(name) => self.find(*vhost, name).map(Destination::Exchange),
            End::Queue { queue, .. } => self.find_queue(*queue).map(Destination::Queue),
        };
        if let (Some(source), Some(destination)) = (self.find(*vhost, source), destination)
            && let Some(index) = self.find_binding(source, destination, binding)
        {
            let mut applied = Applied::changed();
            self.unlink(index, &mut applied);
            self.sweep(&mut applied);
            return Ok(applied);
        }
        Ok(Applied::unchanged())
    }

    fn remove_queue(&mut self, queue: Q) -> Applied<Q> {
        let Some(index) = self.find_queue(queue) else { return Applied::unchanged() };
        let mut applied = Applied::changed();
        for _ in 0..self.queues[index].to.len() {
            let binding = self.queues[index].to.last().expect("it is known as long as there is one");
            self.unlink(*binding, &mut applied);
        }
        self.sweep(&mut applied);
        applied
    }

    fn insert_queue(&mut self, queue: Q, name: &Arc<str>, is_durable: bool) -> u32 {
        let hash = self.hasher.hash_one(queue);
        let name = name.clone();
        let queue = Queue { queue, name, is_durable, hash, to: Vec::new(), round: 0 };
        self.size += queue.size();
        let index = self.queues.insert(queue);
        let queues = &self.queues;
        self.queue_table.insert_unique(hash, index, |index| queues[*index].hash);
        index
    }

    fn binding_hash(&self, source: u32, destination: Destination, key: &[u8], arguments: &Arguments) -> u64 {
        self.hasher.hash_one((source, destination, key, arguments))
    }

    fn find_binding(&self, source: u32, destination: Destination, binding: &Binding<Q>) -> Option<u32> {
        let Binding { key, arguments, .. } = binding;
        let is_it = |index: &u32| {
            let bound = &self.bindings[*index];
            (bound.source, bound.destination) == (source, destination)
                && bound.key == *key
                && bound.arguments == *arguments
        };
        self.binding_table.find(self.binding_hash(source, destination, key, arguments), is_it).copied()
    }

    /// Makes a binding that is not there and was checked.
    fn link(&mut self, source: u32, destination: Destination, key: &Arc<[u8]>, arguments: &Arguments) {
        let hash = self.binding_hash(source, destination, key, arguments);
        let from_at = self.exchanges[source].from.len() as u32;
        let to_at = self.to(destination).len() as u32;
        let (key, arguments) = (key.clone(), arguments.clone());
        let bound = Bound { source, destination, key, arguments, hash, from_at, to_at, router_at: 0 };
        self.size += bound.size();
        let index = self.bindings.insert(bound);
        let bindings = &self.bindings;
        self.binding_table.insert_unique(hash, index, |index| bindings[*index].hash);
        self.to(destination).push(index);
        let name = match destination {
            Destination::Queue(queue) => self.queues[queue].name.clone(),
            Destination::Exchange(exchange) => self.exchanges[exchange].declaration.name.clone(),
        };
        let source = &mut self.exchanges[source];
        source.from.push(index);
        source.router.insert(index, &mut self.bindings, &name);
    }

    /// Ends a binding, and dooms its source if that is to end with it.
    fn unlink(&mut self, index: u32, applied: &mut Applied<Q>) {
        self.work += 1;
        applied.bindings.extend(self.binding_at(index as usize));
        let bound = self.bindings.remove(index);
        self.size -= bound.size();
        let bindings = &self.bindings;
        take_out(&mut self.binding_table, bound.hash, index, |index| bindings[*index].hash);
        let source = &mut self.exchanges[bound.source];
        source.router.remove(&bound, &mut self.bindings, &mut self.work);
        if let Some(moved) = take_at(&mut source.from, bound.from_at) {
            self.bindings[moved].from_at = bound.from_at;
        }
        if source.from.is_empty() && source.declaration.is_auto_delete {
            self.doom(bound.source);
        }
        if let Some(moved) = take_at(self.to(bound.destination), bound.to_at) {
            self.bindings[moved].to_at = bound.to_at;
        }
        if let Destination::Queue(queue) = bound.destination
            && self.queues[queue].to.is_empty()
        {
            let removed = self.queues.remove(queue);
            self.size -= removed.size();
            let queues = &self.queues;
            take_out(&mut self.queue_table, removed.hash, queue, |queue| queues[*queue].hash);
        }
    }

    /// The bindings that lead to a destination.
    fn to(&mut self, destination: Destination) -> &mut Vec<u32> {
        match destination {
            Destination::Queue(queue) => &mut self.queues[queue].to,
            Destination::Exchange(exchange) => &mut self.exchanges[exchange].to,
        }
    }

    fn doom(&mut self, index: u32) {
        if !std::mem::replace(&mut self.exchanges[index].is_doomed, true) {
            self.doomed.push(index);
        }
    }

    /// Deletes what is doomed, and what is doomed by that.
    fn sweep(&mut self, applied: &mut Applied<Q>) {
        while let Some(index) = self.doomed.pop() {
            // What finds its bindings goes as a whole: to search it for each of them takes their square.
            self.exchanges[index].router = Router::Fanout;
            while let Some(binding) = self.exchanges[index].from.last() {
                self.unlink(*binding, applied);
            }
            while let Some(binding) = self.exchanges[index].to.last() {
                self.unlink(*binding, applied);
            }
            let exchange = self.exchanges.remove(index);
            self.size -= exchange.size();
            let exchanges = &self.exchanges;
            take_out(&mut self.exchange_table, exchange.hash, index, |index| exchanges[*index].hash);
            applied.exchanges.push(exchange.declaration);
        }
    }
}

/// A plain value as texts show it.
fn quoted(value: impl std::fmt::Display) -> Box<str> {
    format!("'{value}'").into()
}

/// An argument as texts show it.
fn shown(value: Option<&OwnedValue>) -> Box<str> {
    let Some(value) = value else { return "none".into() };
    let text = value.as_str().unwrap_or_default();
    format!("the value '{text}' of type '{}'", value.type_name()).into()
}
