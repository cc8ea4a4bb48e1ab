//! How do entries come back that were in a queue before the broker was started?
//!
//! At the places they had, in the order of these, before the queue is used: so places go on naming the same messages, and what
//! comes later stands behind. Limits are not asked: what was in the queue is in it.

use crate::engine::{Engine, Message};
use crate::ids::{Origin, Place, QueueId};
use crate::limits::LEVELS;
use crate::publish::Occupant;
use crate::stored::Stored;

/// An entry as it was.
#[derive(Debug)]
pub struct Restored<M> {
    pub place: Place,
    pub stored: Stored<M>,
    pub outline: Outline,
    /// Microseconds since the epoch.
    pub expires_at: Option<u64>,
    pub held_until: Option<u64>,
    pub last_value: Option<Box<[u8]>>,
    pub delivery_count: u32,
    pub acquired_count: u32,
    /// Nobody sees it before [`Engine::commit_pending`].
    pub pending: bool,
}

/// What the engine knows of a message that it does not have.
#[derive(Clone, Debug)]
pub struct Outline {
    /// As [`Message::size`] tells it.
    pub size: usize,
    /// As [`Message::group`] tells it.
    pub group: Option<Box<str>>,
    /// As [`Message::is_kept`] tells it.
    pub is_kept: bool,
    /// As [`Message::enqueued_at`] tells it.
    pub enqueued_at: u64,
}

impl Outline {
    pub fn of(message: &impl Message) -> Self {
        Outline {
            size: message.size(),
            group: message.group().map(Into::into),
            is_kept: message.is_kept(),
            enqueued_at: message.enqueued_at(),
        }
    }
}

impl<M: Message> Engine<M> {
    /// Puts an entry back to its place, behind all others of its level. What has expired meanwhile leaves the queue as it does
    /// otherwise. The message again, if the queue is not there, or the place is not behind the others.
    pub fn restore(&mut self, now: u64, queue: QueueId, restored: Restored<M>) -> Result<(), Stored<M>> {
        let Restored { place, stored, outline, expires_at, held_until, last_value, pending, .. } = restored;
        let Some(index) = self.resolve_queue(queue).filter(|_| place.level() < LEVELS) else {
            return Err(stored);
        };
        self.now = now;
        let entries = &mut self.queues[index].entries;
        if place.level() >= entries.trees.len() {
            entries.have_levels();
        }
        let tree = entries.tree_mut(place);
        if place.sequence() < tree.next {
            return Err(stored);
        }
        tree.next = place.sequence();
        let Some(entry) = self.store.append(tree, index, place.level()) else {
            return Err(stored);
        };
        self.store.note_away(entry, outline.enqueued_at);
        self.store.entry_mut(entry).set_counts(restored.delivery_count, restored.acquired_count);
        // What is pending counts when it is shown.
        self.queues[index].counters.enqueued += u64::from(!pending);
        let occupant = Occupant {
            stored,
            size: outline.size,
            is_kept: outline.is_kept,
            group: self.intern(index, outline.group.as_deref()),
            origin: Origin(0),
            expires_at,
            held_until: held_until.filter(|until| *until > now),
            pending,
            last_value,
        };
        self.occupy(now, index, entry, occupant);
        Ok(())
    }

    /// An entry that nobody has had here may have been had before.
    pub fn count_acquired(&mut self, queue: QueueId, place: Place) {
        let entry = self.resolve_queue(queue).and_then(|queue| self.find(queue, place));
        if let Some(entry) = entry {
            self.store.entry_mut(entry).count_acquisition();
        }
    }

    /// New entries of a queue get this sequence or higher ones.
    pub fn begin_at(&mut self, queue: QueueId, sequence: u64) {
        if let Some(index) = self.resolve_queue(queue) {
            self.queues[index].entries.begin_at(sequence);
        }
    }

    /// The message at a place, if it is still there, whatever its state.
    pub fn message_at(&self, queue: QueueId, place: Place) -> Option<Stored<&M>> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        Some(self.store.entry(entry).stored()?.as_ref())
    }

    /// The same, to be changed in what the engine does not ask about: the message, or where it is.
    pub fn message_at_mut(&mut self, queue: QueueId, place: Place) -> Option<&mut Stored<M>> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        self.store.entry_mut(entry).stored_mut()
    }

    /// Whether the message at a place is there and kept ([`Message::is_kept`]).
    pub fn is_kept_at(&self, queue: QueueId, place: Place) -> bool {
        let entry = self.resolve_queue(queue).and_then(|queue| self.find(queue, place));
        entry.is_some_and(|entry| self.store.entry(entry).kept())
    }
}
