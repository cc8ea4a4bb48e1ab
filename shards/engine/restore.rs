//! How do entries come back that were in a queue before the broker was started?
//!
//! At the places they had, in the order of these, before the queue is used: so places go on naming the same messages, and what
//! comes later stands behind. Limits are not asked: what was in the queue is in it.

use crate::engine::{Engine, Message};
use crate::ids::{Place, QueueId};
use crate::limits::LEVELS;
use crate::properties::Publication;

/// An entry as it was.
#[derive(Debug)]
pub struct Restored<M> {
    pub place: Place,
    pub publication: Publication<M>,
    pub delivery_count: u32,
    pub acquired_count: u32,
}

impl<M: Message> Engine<M> {
    /// Puts an entry back to its place, behind all others of its level. What has expired meanwhile leaves the queue as it does
    /// otherwise. The message again, if the queue is not there, or the place is not behind the others.
    pub fn restore(&mut self, now: u64, queue: QueueId, restored: Restored<M>) -> Result<(), M> {
        let Restored { place, publication, delivery_count, acquired_count } = restored;
        let Some(index) = self.resolve_queue(queue).filter(|_| place.level() < LEVELS) else {
            return Err(publication.message);
        };
        self.now = now;
        let entries = &mut self.queues[index].entries;
        if place.level() >= entries.trees.len() {
            entries.have_levels();
        }
        let tree = entries.tree_mut(place);
        if place.sequence() < tree.next {
            return Err(publication.message);
        }
        tree.next = place.sequence();
        let Some(entry) = self.store.append(tree, index, place.level()) else {
            return Err(publication.message);
        };
        self.store.entry_mut(entry).set_counts(delivery_count, acquired_count);
        let held_until = publication.held_until.filter(|until| *until > now);
        let expires_at = publication.expires_at;
        self.queues[index].counters.enqueued += 1;
        self.occupy(now, index, entry, publication, held_until, expires_at);
        Ok(())
    }

    /// New entries of a queue get this sequence or higher ones.
    pub fn begin_at(&mut self, queue: QueueId, sequence: u64) {
        if let Some(index) = self.resolve_queue(queue) {
            self.queues[index].entries.begin_at(sequence);
        }
    }

    /// The message at a place, if it is still there, whatever its state.
    pub fn message_at(&self, queue: QueueId, place: Place) -> Option<&M> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        self.store.entry(entry).message.as_ref()
    }

    /// The same, to be changed in what the engine does not ask about.
    pub fn message_at_mut(&mut self, queue: QueueId, place: Place) -> Option<&mut M> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        self.store.entry_mut(entry).message.as_mut()
    }
}
