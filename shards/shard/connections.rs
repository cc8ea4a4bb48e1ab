//! Which connections live on this shard? A slab with generations, and a map from their identities.
//!
//! A slot is the driver's name for a connection and dies with it; an identity is what other shards use and survives a move.

use hashbrown::HashMap;
use slab::Slab;

use crate::connection::Connection;
use crate::event::{ConnectionSlot, Peer};
use crate::mail::ConnectionId;
use crate::protocol::Protocol;

/// The connections of a shard.
#[derive(Debug)]
pub(crate) struct Connections {
    slab: Slab<(u32, Connection)>,
    by_id: HashMap<ConnectionId, ConnectionSlot>,
    next_generation: u32,
    next_id: u64,
}

impl Connections {
    pub(crate) fn new(shard: usize) -> Self {
        // Identities are unique in the process: the shard that accepted the connection, then a count.
        Connections {
            slab: Slab::new(),
            by_id: HashMap::new(),
            next_generation: 0,
            next_id: (shard as u64) << 48,
        }
    }

    pub(crate) fn insert_new(&mut self, peer: Peer, protocol: Protocol) -> ConnectionSlot {
        self.next_id += 1;
        self.insert(Connection::new(ConnectionId(self.next_id), peer, protocol))
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionSlot {
        self.next_generation = self.next_generation.wrapping_add(1);
        let id = connection.id;
        let index = self.slab.insert((self.next_generation, connection));
        let slot = ConnectionSlot { index: index as u32, generation: self.next_generation };
        self.by_id.insert(id, slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: ConnectionSlot) -> Option<Connection> {
        self.get_mut(slot)?;
        let (_, connection) = self.slab.remove(slot.index as usize);
        self.by_id.remove(&connection.id);
        Some(connection)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: ConnectionSlot) -> Option<&mut Connection> {
        match self.slab.get_mut(slot.index as usize) {
            Some((generation, connection)) if *generation == slot.generation => Some(connection),
            Some(_) | None => None,
        }
    }

    /// The connection at an index that a live consumer refers to.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> Option<(ConnectionSlot, &mut Connection)> {
        let (generation, connection) = self.slab.get_mut(index as usize)?;
        Some((ConnectionSlot { index, generation: *generation }, connection))
    }

    /// The same, to look at.
    pub(crate) fn peek(&self, index: u32) -> Option<&Connection> {
        self.slab.get(index as usize).map(|(_, connection)| connection)
    }

    /// Above the indices of all connections.
    pub(crate) fn index_end(&self) -> u32 {
        self.slab.capacity() as u32
    }

    pub(crate) fn slot_of(&self, id: ConnectionId) -> Option<ConnectionSlot> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn slots(&self) -> Vec<ConnectionSlot> {
        let slots = self.slab.iter();
        slots
            .map(|(index, (generation, _))| ConnectionSlot { index: index as u32, generation: *generation })
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }
}
