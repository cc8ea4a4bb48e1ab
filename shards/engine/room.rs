//! Is there room in a queue, and what if not?
//!
//! A limit counts what is in the queue, whatever its state. At the limit, `overflow` says what happens: the publication is refused;
//! the oldest entries that nobody holds are dropped; or it is taken all the same and the queue is *full* ([`Engine::is_full`]) until
//! it is back below its limits: then [`Engine::poll_room`] names it, once, unless it is full again by then.

use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::ids::QueueId;
use crate::properties::{DeadLetterReason, EnqueueRefusal, Overflow};
use crate::queue::Extras;

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

    /// Whether a publication can be taken. `replaced`: an entry that will be gone for it.
    pub(crate) fn make_room(
        &mut self,
        queue: u32,
        size: u64,
        replaced: Option<EntryRef>,
    ) -> Result<(), EnqueueRefusal> {
        if self.store.count() >= u64::from(self.limits.entries_max) {
            return Err(EnqueueRefusal::ShardFull);
        }
        if !self.queues[queue].extras.has(Extras::LIMITS) {
            return Ok(());
        }
        self.measure_lent();
        let properties = self.queues[queue].properties;
        let message = replaced.and_then(|entry| self.store.entry(entry).message.as_ref());
        let (gone, gone_bytes) = message.map_or((0, 0), |message| (1, message.size() as u64));
        let mut steps = DROP_STEPS_MAX;
        loop {
            let entries = &self.queues[queue].entries;
            let (messages, bytes) = (entries.messages - gone, entries.bytes - gone_bytes);
            let refusal = if properties.messages_max.is_some_and(|max| messages >= max) {
                EnqueueRefusal::MessagesFull
            } else if properties.bytes_max.is_some_and(|max| bytes.saturating_add(size) > max) {
                EnqueueRefusal::BytesFull
            } else {
                return Ok(());
            };
            match properties.overflow {
                Overflow::Reject => return Err(refusal),
                Overflow::Block => return Ok(()),
                Overflow::DropOldest if !self.drop_oldest(queue, replaced, &mut steps) => return Ok(()),
                Overflow::DropOldest => {}
            }
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
