//! Is there room in a queue, and what if not?
//!
//! A limit counts what is in the queue, whatever its state; that of messages leaves out what consumers hold where `held_besides` says so. At the limit, `overflow` says what happens: the publication is refused;
//! the oldest entries that nobody holds are dropped, and a message that is larger than all of them may be with them; or it is taken all the same and the queue is *full* ([`Engine::is_full`]) until
//! it is back below its limits: then [`Engine::poll_room`] names it, once, unless it is full again by then.
//!
//! A pending entry counts where publications are refused or producers wait. Where the oldest are dropped it counts for nothing and
//! drops nothing before it is committed, as if it were published then: a transaction that is rolled back has changed nothing.
//!
//! What comes back where it did not count is one more: the oldest are dropped for it, and a queue that refuses is above its limit.

use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::ids::{Place, QueueId};
use crate::properties::{DeadLetterReason, EnqueueRefusal, Overflow};
use crate::queue::{Entries, Extras, Queue};
use crate::slots::NONE;

/// Entries `DropOldest` looks at for one publication. When none of them can be dropped the queue overshoots, and the
/// next publication goes on from there.
const DROP_STEPS_MAX: usize = 256;

/// What the producers of a queue with `Overflow::Block` have been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// They wait. `listed`: the queue still stands among those that have room again, from an earlier time.
    Full {
        listed: bool,
    },
    /// They are to be told that there is room again.
    Again,
}

impl<M: Message> Engine<M> {
    /// Whether a queue that makes its producers wait is full.
    pub fn is_full(&self, queue: QueueId) -> bool {
        self.resolve_queue(queue).is_some_and(|queue| matches!(self.queues[queue].room, Room::Full { .. }))
    }

    /// What the limits of a queue count: messages and bytes.
    pub fn counted(&self, queue: QueueId) -> Option<(u64, u64)> {
        let index = self.resolve_queue(queue)?;
        let lent = self.lent.filter(|entry| self.store.queue(*entry) == index);
        let (messages, bytes) = self.queues[index].counted();
        Some((messages, bytes + lent.map_or(0, |entry| self.size_of(entry))))
    }

    /// A queue whose producers were to wait and may go on.
    pub fn poll_room(&mut self) -> Option<QueueId> {
        while let Some(id) = self.roomy.pop_front() {
            let Some(queue) = self.resolve_queue(id) else {
                continue;
            };
            let room = &mut self.queues[queue].room;
            match *room {
                Room::Again => {
                    *room = Room::Enough;
                    return Some(id);
                }
                Room::Full { .. } => *room = Room::Full { listed: false },
                Room::Enough => unreachable!("a queue is taken from the list before it has enough"),
            }
        }
        None
    }

    /// Sees whether a queue has become full, or has room again.
    pub(crate) fn note_room(&mut self, queue: u32) {
        let state = &mut self.queues[queue];
        let properties = &state.properties;
        let full = properties.overflow == Overflow::Block
            && (properties.messages_max.is_some_and(|max| state.entries.messages >= max)
                || properties.bytes_max.is_some_and(|max| state.entries.bytes >= max));
        match (state.room, full) {
            (Room::Enough, true) => state.room = Room::Full { listed: false },
            (Room::Again, true) => state.room = Room::Full { listed: true },
            (Room::Full { listed }, false) => {
                state.room = Room::Again;
                if !listed {
                    self.roomy.push_back(self.queue_id(queue));
                }
            }
            (Room::Enough | Room::Again, false) | (Room::Full { .. }, true) => {}
        }
    }

    /// Whether a publication can be taken, and room for it where that is made. `replaced`: an entry that will be gone for it.
    pub(crate) fn admit(
        &mut self,
        queue: u32,
        size: u64,
        replaced: Option<EntryRef>,
        pending: bool,
    ) -> Result<(), EnqueueRefusal> {
        if self.store.count() >= u64::from(self.limits.entries_max) {
            return Err(EnqueueRefusal::ShardFull);
        }
        if !self.queues[queue].extras.has(Extras::LIMITS) {
            return Ok(());
        }
        self.measure_lent();
        match self.queues[queue].properties.overflow {
            Overflow::Block => Ok(()),
            Overflow::Reject => self.lacking(queue, size, replaced).map_or(Ok(()), Err),
            Overflow::DropOldest => {
                if !pending {
                    self.make_room(queue, size, replaced);
                }
                Ok(())
            }
        }
    }

    /// A pending entry is about to be committed.
    pub(crate) fn admit_pending(&mut self, entry: EntryRef, replaced: Option<EntryRef>) {
        let queue = self.store.queue(entry);
        let extras = self.queues[queue].extras;
        if extras.has(Extras::DROPS) && extras.has(Extras::LIMITS) {
            self.measure_lent();
            self.make_room(queue, self.size_of(entry), replaced);
        }
    }

    /// Drops the oldest until one more message of this size fits, or there is nothing to be dropped.
    fn make_room(&mut self, queue: u32, size: u64, replaced: Option<EntryRef>) {
        let mut steps = DROP_STEPS_MAX;
        while self.lacking(queue, size, replaced).is_some() && self.drop_oldest(queue, replaced, &mut steps) {
        }
    }

    /// An entry counts again that did not while it was held: others may have taken its room.
    pub(crate) fn drop_beyond(&mut self, queue: u32) {
        let state = &self.queues[queue];
        if !(state.properties.held_besides && state.extras.has(Extras::DROPS)) {
            return;
        }
        let Some(max) = state.properties.messages_max else { return };
        let mut steps = DROP_STEPS_MAX;
        while self.queues[queue].counted().0 > max && self.drop_oldest(queue, None, &mut steps) {}
    }

    /// Notes a new entry that is larger than all that its queue may hold, where the oldest are dropped.
    pub(crate) fn note_too_large(&mut self, queue: u32, place: Place, size: u64) {
        let state = &self.queues[queue];
        if state.extras.has(Extras::DROPS) && state.properties.bytes_max.is_some_and(|max| size > max) {
            self.too_large.push((self.queue_id(queue), place));
        }
    }

    /// To be called when consumers that were told have pulled: drops entries that are larger than all that their queue may hold, and that
    /// nobody has taken. True if there was something to do.
    pub fn drop_too_large(&mut self, now: u64) -> bool {
        if self.too_large.is_empty() {
            return false;
        }
        self.now = now;
        for (queue, place) in std::mem::take(&mut self.too_large) {
            let entry = self.resolve_queue(queue).and_then(|queue| self.find(queue, place));
            let Some(entry) = entry.filter(|entry| self.store.entry(*entry).is_free()) else { continue };
            let plain = self.queues[self.store.queue(entry)].plain;
            if plain != NONE && self.classes[plain].notified > 0 {
                // They have yet to pull.
                self.too_large.push((queue, place));
            } else {
                self.withdraw(entry);
                self.bury(entry, DeadLetterReason::Overflow);
            }
        }
        true
    }

    /// The limit that one more message of this size would break.
    fn lacking(&self, queue: u32, size: u64, replaced: Option<EntryRef>) -> Option<EnqueueRefusal> {
        let properties = &self.queues[queue].properties;
        let (mut messages, mut bytes) = self.queues[queue].counted();
        if let Some(replaced) = replaced {
            messages -= u64::from(self.store.entry(replaced).is_free() || !properties.held_besides);
            bytes -= self.size_of(replaced);
        }
        if properties.messages_max.is_some_and(|max| messages >= max) {
            Some(EnqueueRefusal::MessagesFull)
        } else if properties.bytes_max.is_some_and(|max| bytes.saturating_add(size) > max) {
            Some(EnqueueRefusal::BytesFull)
        } else {
            None
        }
    }

    /// Drops the oldest entry that nobody holds, of the lowest priority that has one.
    fn drop_oldest(&mut self, queue: u32, besides: Option<EntryRef>, steps: &mut usize) -> bool {
        for level in (0..self.queues[queue].entries.trees.len()).rev() {
            while *steps > 0 {
                let state = &mut self.queues[queue];
                let from = state.drop_marks[level];
                let Some(entry) = self.store.first_live(&state.entries.trees[level], from) else {
                    break;
                };
                *steps -= 1;
                state.drop_marks[level] = self.store.place(entry).sequence() + 1;
                if self.store.entry(entry).is_free() && besides != Some(entry) {
                    self.withdraw(entry);
                    self.bury(entry, DeadLetterReason::Overflow);
                    return true;
                }
            }
        }
        false
    }
}

impl Queue {
    /// What its limits count: messages and bytes.
    fn counted(&self) -> (u64, u64) {
        let Entries { messages, bytes, pending, pending_bytes, acquired, retired, .. } = self.entries;
        let held = if self.properties.held_besides { acquired + retired } else { 0 };
        match self.properties.overflow {
            Overflow::Block => (messages, bytes),
            Overflow::Reject => (messages - held, bytes),
            Overflow::DropOldest => (messages - held - pending, bytes - pending_bytes),
        }
    }
}
