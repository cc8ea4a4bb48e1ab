//! What happens to an entry inside a transaction?
//!
//! The engine knows no transactions, only entries that belong to one, which whoever runs it names by queue and place:
//!
//! - *Pending*: enqueued inside it. The entry has its place and no timer, but nobody sees it: no consumer, no browser, no purge, no
//!   dropping of the oldest. For the queue's limits see `room`. Whoever runs the engine hides an entry so for other reasons, too, until
//!   it shows it (what waits for a disk, or has not left where it was). Committed, it is available at its place, before what came later; what
//!   was to be held until a time that has not come is held; what has expired meanwhile is gone.
//! - *Retired*: settled by its consumer inside it. The entry is no delivery any more: it does not count for the prefetch, has no
//!   ack deadline, and stays when the consumer closes. Committed, its outcome happens to it; rolled back, it returns to its place, or
//!   to its consumer, whichever is asked for.
//!
//! A queue that is deleted takes both with it; whoever names them afterwards is answered `false`. The expiry of a message counts
//! from when it was enqueued, as if there were no transaction.
//!
//! In a group, a pending entry holds nobody back, as a delayed one does not: what was enqueued later may be delivered before it.
//! A retired entry keeps the group with its consumer, who may go on with the next of it; if the consumer closes, the rest of
//! the group waits until the transaction ends, so that nobody overtakes what may come back. Likewise a consumer that is to stop
//! being the active one does not step down before what it retired is decided; one that closes does.

use crate::counters::Cause;
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{Acquisition, ConsumerId, Place, QueueId};
use crate::properties::{DeadLetterReason, Outcome, Overflow, Settled};
use crate::slots::NONE;
use crate::stored::Stored;

impl<M: Message> Engine<M> {
    /// Makes a pending entry visible. False: it is not there (any more).
    pub fn commit_pending(&mut self, now: u64, queue: QueueId, place: Place) -> bool {
        self.now = now;
        let Some(entry) = self.find_in(queue, place, State::Pending) else {
            return false;
        };
        let is_expired = self.store.entry(entry).is_expired(now);
        let held_until = self.store.entry(entry).held_until().filter(|until| *until > now);
        if !is_expired {
            let replaced = self.find_replaced_by_pending(entry).filter(|_| held_until.is_none());
            self.admit_pending(entry, replaced);
        }
        self.end_pending(entry);
        let index = self.store.queue(entry);
        self.queues[index].counters.enqueued += 1;
        self.forget_drop_mark(entry);
        if is_expired {
            self.bury(entry, DeadLetterReason::Expired);
        } else {
            self.introduce(now, entry, held_until, true, Cause::Committed);
            if held_until.is_none() {
                self.end_waiting(entry);
            }
        }
        true
    }

    /// Takes a pending entry back: it was never in the queue. False: it is not there (any more).
    pub fn drop_pending(&mut self, queue: QueueId, place: Place) -> bool {
        let Some(entry) = self.find_in(queue, place, State::Pending) else {
            return false;
        };
        self.end_pending(entry);
        self.spend(entry);
        true
    }

    /// Ends a delivery inside a transaction. What becomes of the entry is decided by [`commit_retired`](Self::commit_retired) or
    /// [`roll_back_retired`](Self::roll_back_retired).
    pub fn retire(
        &mut self,
        now: u64,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
    ) -> Settled {
        self.now = now;
        let Some((index, entry)) = self.find_held(consumer, place, acquisition) else {
            return self.settled_late(consumer);
        };
        self.release_hold(index, entry);
        let stored = self.store.entry_mut(entry);
        stored.set_state(State::Retired);
        stored.set_retired_by(consumer);
        let group = stored.group;
        let queue = &mut self.queues[self.consumers[index].queue];
        queue.entries.retired += 1;
        if group != NONE {
            queue.groups.groups[group].retired += 1;
        }
        self.consumers[index].retired_count += 1;
        self.after_settled(index);
        Settled::Done
    }

    /// The message of a retired entry, to be changed by the outcome that its transaction commits. Its size may change, its group
    /// may not.
    pub fn retired_message_mut(&mut self, queue: QueueId, place: Place) -> Option<Stored<&mut M>> {
        let entry = self.find_in(queue, place, State::Retired)?;
        self.lend(entry)
    }

    /// Lets an outcome happen to a retired entry. False: it is not there (any more).
    pub fn commit_retired(&mut self, now: u64, queue: QueueId, place: Place, outcome: Outcome) -> bool {
        self.now = now;
        let Some(entry) = self.find_in(queue, place, State::Retired) else {
            return false;
        };
        let consumer = self.end_retired(entry);
        self.apply_outcome(now, consumer, entry, outcome);
        if let Some(consumer) = consumer {
            self.after_settled(consumer);
        }
        true
    }

    /// Puts a retired entry back to its place; `delivery_failed`: its delivery-count rises. False: it is not there (any more).
    pub fn roll_back_retired(
        &mut self,
        now: u64,
        queue: QueueId,
        place: Place,
        delivery_failed: bool,
    ) -> bool {
        let outcome = Outcome::Modified { delivery_failed, undeliverable_here: false };
        self.commit_retired(now, queue, place, outcome)
    }

    /// Gives a retired entry back to the consumer that has retired it, under the same acquisition; its ack deadline starts anew. If
    /// the consumer is gone, the entry returns to its place. False: the entry is not there (any more).
    pub fn restore_retired(
        &mut self,
        now: u64,
        queue: QueueId,
        place: Place,
        acquisition: Acquisition,
    ) -> bool {
        let Some(entry) = self.find_in(queue, place, State::Retired) else {
            return false;
        };
        let Some(index) = self.resolve_consumer(self.store.entry(entry).retired_by()) else {
            return self.commit_retired(now, queue, place, Outcome::Released);
        };
        self.end_retired(entry);
        let stored = self.store.entry_mut(entry);
        stored.set_state(State::Acquired);
        (stored.holder, stored.acquisition) = (index, acquisition.0);
        let group = stored.group;
        self.consumers[index].holding.push_back(&mut self.store, entry.0);
        let of = self.consumers[index].queue;
        let queue = &mut self.queues[of];
        queue.entries.acquired += 1;
        let deadline = queue.properties.ack_deadline_us;
        if group != NONE {
            queue.groups.groups[group].unsettled += 1;
        }
        if let Some(deadline) = deadline {
            self.set_timer(now, entry, now.saturating_add(deadline));
        }
        if self.counts_load(of) {
            self.note_load(index);
            self.review_yields(of);
        }
        self.review(index);
        true
    }

    /// A new entry that waits for its transaction.
    pub(crate) fn suspend(&mut self, entry: EntryRef, held_until: Option<u64>) {
        let queue = self.store.queue(entry);
        let stored = self.store.entry_mut(entry);
        stored.set_state(State::Pending);
        stored.set_held_until(held_until);
        let group = stored.group;
        let size = self.size_of(entry);
        self.queues[queue].entries.pending += 1;
        self.queues[queue].entries.pending_bytes += size;
        if group != NONE {
            // It has an entry now, although nothing to show.
            self.refresh_group(queue, group, Cause::Published);
        }
    }

    /// An entry leaves its state of pending.
    fn end_pending(&mut self, entry: EntryRef) {
        let queue = self.store.queue(entry);
        let size = self.size_of(entry);
        self.queues[queue].entries.pending -= 1;
        self.queues[queue].entries.pending_bytes -= size;
        let stored = self.store.entry_mut(entry);
        (stored.holder, stored.acquisition) = (NONE, 0);
    }

    /// An entry leaves its state of retired; answers the consumer, if it is still there.
    pub(crate) fn end_retired(&mut self, entry: EntryRef) -> Option<u32> {
        let consumer = self.resolve_consumer(self.store.entry(entry).retired_by());
        let stored = self.store.entry_mut(entry);
        (stored.holder, stored.acquisition) = (NONE, 0);
        let group = stored.group;
        let queue = &mut self.queues[self.store.queue(entry)];
        queue.entries.retired -= 1;
        if group != NONE {
            queue.groups.groups[group].retired -= 1;
        }
        self.forget_drop_mark(entry);
        if let Some(consumer) = consumer {
            self.consumers[consumer].retired_count -= 1;
        }
        consumer
    }

    /// Somebody else than a consumer or a transaction may have an entry from now on, so dropping the oldest looks at it again.
    pub(crate) fn forget_drop_mark(&mut self, entry: EntryRef) {
        let queue = &mut self.queues[self.store.queue(entry)];
        if queue.properties.overflow == Overflow::DropOldest {
            let place = self.store.place(entry);
            let mark = &mut queue.drop_marks[place.level()];
            *mark = (*mark).min(place.sequence());
        }
    }

    fn find_in(&self, queue: QueueId, place: Place, state: State) -> Option<EntryRef> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        (self.store.entry(entry).state() == state).then_some(entry)
    }
}
