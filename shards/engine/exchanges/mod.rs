//! Which queues get what is published to an exchange?
//!
//! All exchanges and bindings, as every shard holds them. They change by [`Change`]s alone, and what a change does follows from it
//! and from what was there: replicas that are told the same changes in the same order are the same, what is refused and
//! what is auto-deleted included. A queue is whatever handle the caller has for it, known here from its first binding to its last.
//!
//! Invariants:
//! - a binding is known ⟺ its source has it in `from` and in its router, and its destination in `to`; both are in one virtual host;
//! - a queue is known ⟺ a binding leads to it;
//! - an exchange that is auto-deleted has a binding from it, or never had one;
//! - a binding is durable ⟺ both its ends are.
//!
//! Left out: the default exchange, whose bindings are the queues' names and nowhere stored (it can be neither declared, bound nor
//! deleted, and nothing is routed by it); whether queues exist; who may do what; how long a delayed message waits.

mod apply;
mod arguments;
mod change;
mod consistent_hash;
mod headers;
mod kind;
mod listing;
mod refusal;
mod router;
mod routing;
mod verify;

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

pub use arguments::{Arguments, HeaderValue, OwnedValue};
pub use change::{Applied, Binding, Change, Declaration, End, VhostId};
pub use kind::{Kind, Property};
pub use refusal::{InvalidArgument, Named, Refusal};
pub use routing::{Found, HeaderReader, RoutedBy};

use crate::slots::Slots;
use kind::Traits;
use router::Router;

/// Exchanges and bindings of all virtual hosts.
pub struct Exchanges<Q> {
    seed: u64,
    hasher: FixedState,
    vhosts: Vec<Option<Arc<str>>>,
    exchanges: Slots<Exchange>,
    exchange_table: HashTable<u32>,
    queues: Slots<Queue<Q>>,
    queue_table: HashTable<u32>,
    bindings: Slots<Bound>,
    binding_table: HashTable<u32>,
    /// The sizes of all exchanges, queues and bindings.
    size: usize,
    /// Exchanges that are to be deleted by the change in hand.
    doomed: Vec<u32>,
    /// Exchanges that the message in hand has come to and that have yet to route it, and where the one in hand routes it; kept for
    /// their memory.
    pending: Vec<u32>,
    reached: Vec<Destination>,
    /// Rises with every message.
    round: u64,
    work: u64,
}

struct Exchange {
    declaration: Declaration,
    traits: Traits,
    hash: u64,
    router: Router,
    from: Vec<u32>,
    to: Vec<u32>,
    is_doomed: bool,
    /// The round in which it was reached last.
    round: u64,
}

/// A queue that a binding leads to.
struct Queue<Q> {
    queue: Q,
    name: Arc<str>,
    is_durable: bool,
    hash: u64,
    to: Vec<u32>,
    /// The round in which it was reached last.
    round: u64,
}

/// A binding, and where it stands.
struct Bound {
    source: u32,
    destination: Destination,
    key: Arc<[u8]>,
    arguments: Arguments,
    hash: u64,
    /// In `from` of its source, in `to` of its destination, and in its source's router.
    from_at: u32,
    to_at: u32,
    router_at: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Destination {
    Queue(u32),
    Exchange(u32),
}

/// What an exchange, a queue or a binding takes besides its names, keys and arguments, about.
const PART_SIZE: usize = 400;

/// What a word of a pattern takes besides its bytes.
const WORD_SIZE: usize = 250;

/// Exchanges that each virtual host has from the start.
const PREDECLARED: [(&str, &str); 5] = [
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
];

/// Names that begin with it are ours.
pub const RESERVED_PREFIX: &str = "amq.";

impl Exchange {
    fn size(&self) -> usize {
        PART_SIZE + self.declaration.name.len() + self.declaration.arguments.size()
    }
}

impl<Q> Queue<Q> {
    fn size(&self) -> usize {
        PART_SIZE + self.name.len()
    }
}

impl Bound {
    fn size(&self) -> usize {
        // In a tree of patterns each word has a node.
        let words = 1 + self.key.iter().filter(|byte| **byte == b'.').count();
        PART_SIZE + WORD_SIZE * words + 2 * self.key.len() + self.arguments.size()
    }
}

impl<Q: Copy + Eq + Hash> Exchanges<Q> {
    /// Without a virtual host. `seed` decides where names lie, so that a peer who chooses them cannot choose collisions.
    pub fn new(seed: u64) -> Self {
        Exchanges {
            seed,
            hasher: FixedState::with_seed(seed),
            vhosts: Vec::new(),
            exchanges: Slots::new(),
            exchange_table: HashTable::new(),
            queues: Slots::new(),
            queue_table: HashTable::new(),
            bindings: Slots::new(),
            binding_table: HashTable::new(),
            size: 0,
            doomed: Vec::new(),
            pending: Vec::new(),
            reached: Vec::new(),
            round: 0,
            work: 0,
        }
    }

    /// The virtual host of this name.
    pub fn vhost(&self, name: &str) -> Option<VhostId> {
        let at = self.vhosts.iter().position(|known| known.as_deref() == Some(name))?;
        Some(VhostId(at as u32))
    }

    pub fn vhost_name(&self, vhost: VhostId) -> Option<&Arc<str>> {
        self.vhosts.get(vhost.0 as usize)?.as_ref()
    }

    /// The exchange, as a passive declaration asks for it.
    pub fn check_exists(&self, vhost: VhostId, exchange: &str) -> Result<&Declaration, Refusal> {
        if exchange.is_empty() {
            return Err(Refusal::DefaultExchange);
        }
        match self.find(vhost, exchange) {
            Some(found) => Ok(&self.exchanges[found].declaration),
            None => Err(Refusal::NoExchange(self.named(vhost, exchange)?)),
        }
    }

    /// The exchange, if clients may publish to it.
    pub fn check_publish(&self, vhost: VhostId, exchange: &str) -> Result<&Declaration, Refusal> {
        let declaration = self.check_exists(vhost, exchange)?;
        if declaration.is_internal {
            return Err(Refusal::InternalExchange(self.named(vhost, exchange)?));
        }
        Ok(declaration)
    }

    /// Nodes, bindings and headers visited since this was asked last: what messages and changes have cost.
    pub fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    fn find(&self, vhost: VhostId, name: &str) -> Option<u32> {
        let is_it = |exchange: &u32| {
            let declaration = &self.exchanges[*exchange].declaration;
            declaration.vhost == vhost && *declaration.name == *name
        };
        self.exchange_table.find(self.hasher.hash_one((vhost, name)), is_it).copied()
    }

    fn find_queue(&self, queue: Q) -> Option<u32> {
        let hash = self.hasher.hash_one(queue);
        self.queue_table.find(hash, |index| self.queues[*index].queue == queue).copied()
    }

    fn named(&self, vhost: VhostId, exchange: &str) -> Result<Named, Refusal> {
        let vhost = self.vhost_name(vhost).ok_or(Refusal::NoVhost)?.clone();
        Ok(Named { exchange: exchange.into(), vhost })
    }
}

#[cfg(test)]
mod tests;
