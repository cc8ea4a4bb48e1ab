//! What happens to an entry whose message is not in memory?
//!
//! It keeps its place, its state and its time; only who needs the message itself has to wait. A consumer whose next entry is such a one
//! acquires nothing and is paused, a scan stops in front of it, a browser does not move past it; each of them says what it wants
//! ([`Engine::take_wanted`]), and goes on when it is told to ([`Engine::resume_reading`]): the message is back then, or gone for good.
//! Others, whose next entry is in memory, go on meanwhile.
//!
//! Filters know of such an entry what they knew when its message was in memory; what has become takeable since they learn when it is back.
//!
//! - a consumer is paused for a body, or a scan waits for one ⟹ what it wants was said, and its owner resumes the queue sooner or later.

use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{Place, QueueId};
use crate::properties::PauseReason;
use crate::slots::NONE;
use crate::stored::{Away, Stored};

impl<M: Message> Engine<M> {
    /// Puts where a message is from now on in the place of the message, which is given back. `away` says where, or that it has to stay.
    /// What is pending stays, too.
    pub fn send_away(
        &mut self,
        queue: QueueId,
        place: Place,
        away: impl FnOnce(&M) -> Option<Away>,
    ) -> Option<M> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        if self.lent == Some(entry) {
            self.measure_lent();
        }
        if self.store.entry(entry).state() == State::Pending {
            return None;
        }
        let message = self.store.entry(entry).message()?;
        let (away, enqueued_at) = (away(message)?, message.enqueued_at());
        self.store.note_away(entry, enqueued_at);
        std::mem::replace(self.store.entry_mut(entry).stored_mut()?, Stored::Away(away)).here()
    }

    /// The message at a place is in memory again, as large as it is now. It is given back if it is not missed there.
    pub fn bring_back(&mut self, now: u64, queue: QueueId, place: Place, message: M) -> Result<(), M> {
        let Some((index, entry)) = self.find_away(queue, place) else { return Err(message) };
        self.now = now;
        let stored = self.store.entry_mut(entry);
        let group = stored.group;
        if let Some(stored) = stored.stored_mut() {
            *stored = Stored::Here(message);
        }
        // What its owner adds to it again comes after this.
        self.lend(entry);
        self.measure_lent();
        if self.queues[index].matching.count > 0 && self.store.is_takeable(entry) {
            let mut matched = std::mem::take(&mut self.matched);
            self.match_acquiring(entry, &mut matched);
            let plain = self.queues[index].plain;
            matched.retain(|class| *class != plain && self.offer(*class, place));
            if !matched.is_empty() {
                self.notify_work(entry, &matched, Cause::FoundByScan);
            }
            matched.clear();
            self.matched = matched;
        }
        if group != NONE {
            self.refresh_group(index, group, Cause::Returned);
        }
        Ok(())
    }

    /// The message at a place cannot be had any more: its entry is taken out, if nobody has it.
    pub fn lose(&mut self, now: u64, queue: QueueId, place: Place) -> bool {
        let Some((index, entry)) = self.find_away(queue, place) else { return false };
        if !self.store.entry(entry).is_free() {
            return false;
        }
        self.now = now;
        self.queues[index].counters.removed += 1;
        self.withdraw(entry);
        self.remove_entry(entry);
        true
    }

    /// Where the messages of a queue are that are available from a place on and not in memory, of so many entries.
    pub fn away_from(
        &self,
        queue: QueueId,
        from: Place,
        entries_max: usize,
    ) -> impl Iterator<Item = (Place, Away)> {
        let queue = self.resolve_queue(queue);
        let live = queue.into_iter().flat_map(move |queue| self.live(queue, from).take(entries_max));
        live.filter_map(|entry| {
            let stored = self.store.entry(entry);
            let away = stored.stored()?.away().filter(|_| stored.state() == State::Available)?;
            Some((self.store.place(entry), away))
        })
    }

    /// The first entry that consumers can take.
    pub fn first_in_reach(&self, queue: QueueId) -> Option<Place> {
        let queue = &self.queues[self.resolve_queue(queue)?];
        queue.entries.first_takeable(&self.store, Place::FIRST).map(|entry| self.store.place(entry))
    }

    /// Whether an entry is there, and neither a consumer nor a transaction has it.
    pub fn is_free_at(&self, queue: QueueId, place: Place) -> bool {
        let entry = self.resolve_queue(queue).and_then(|queue| self.find(queue, place));
        entry.is_some_and(|entry| self.store.entry(entry).is_free())
    }

    /// An entry whose message somebody needs and that is not in memory. Its queue is to be resumed when it is, or is gone.
    pub fn take_wanted(&mut self) -> Option<(QueueId, Place)> {
        self.wanted.pop()
    }

    /// Those who wait for messages of a queue look again.
    pub fn resume_reading(&mut self, now: u64, queue: QueueId) {
        let Some(index) = self.resolve_queue(queue) else { return };
        self.now = now;
        self.queues[index].scans.waits = false;
        self.list_scans(index);
        while let Some(consumer) = self.queues[index].not_interested[PauseReason::Body as usize].first() {
            match self.pause_reason(consumer) {
                Some(reason) => self.pause(consumer, reason),
                None => self.become_ready(consumer),
            }
            // Somebody waits to be told that there is nothing.
            if self.consumers[consumer].pull_requested
                && self.consumers[consumer].list == ConsumerList::Interested
            {
                self.transition(consumer, ConsumerList::Notified, Cause::Requested);
            }
        }
    }

    /// Notes that somebody needs a message that is not in memory.
    pub(crate) fn want(&mut self, entry: EntryRef) {
        let wanted = (self.queue_id(self.store.queue(entry)), self.store.place(entry));
        if self.wanted.last() != Some(&wanted) {
            self.wanted.push(wanted);
        }
    }

    /// A scan waits for a message.
    pub(crate) fn await_scan(&mut self, queue: u32, entry: EntryRef) {
        self.want(entry);
        self.queues[queue].scans.waits = true;
        self.list_scans(queue);
    }

    /// An entry whose message is not in memory.
    fn find_away(&self, queue: QueueId, place: Place) -> Option<(u32, EntryRef)> {
        let index = self.resolve_queue(queue)?;
        let entry = self.find(index, place).filter(|entry| self.store.entry(*entry).is_away())?;
        Some((index, entry))
    }
}
