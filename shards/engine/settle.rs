//! How does a delivery end?
//!
//! A settlement names place and acquisition. If the entry is not held by that consumer under that acquisition any more, it is late:
//! counted, and without effect. An entry that comes back goes to its place; an expiry that came meanwhile is judged then.

use crate::consumer::Role;
use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{Acquisition, ConsumerId, Place, QueueId};
use crate::properties::{AcquireMode, DeadLetterReason, Outcome, PauseReason, Settled};
use crate::publish::short;
use crate::queue::Extras;
use crate::slots::NONE;
use crate::stored::Stored;

impl<M: Message> Engine<M> {
    /// Ends a delivery.
    pub fn settle(
        &mut self,
        now: u64,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
        outcome: Outcome,
    ) -> Settled {
        self.now = now;
        let Some((index, entry)) = self.find_held(consumer, place, acquisition) else {
            return self.settled_late(consumer);
        };
        self.release_hold(index, entry);
        self.apply_outcome(now, Some(index), entry, outcome);
        self.after_settled(index);
        Settled::Done
    }

    /// Lets an outcome happen to an entry that nobody holds any more. `consumer`: whose outcome it is, if it is still there.
    pub(crate) fn apply_outcome(
        &mut self,
        now: u64,
        consumer: Option<u32>,
        entry: EntryRef,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Accepted => {
                let queue = self.store.queue(entry);
                self.queues[queue].counters.accepted += 1;
                self.spend(entry);
            }
            Outcome::Rejected => self.bury(entry, DeadLetterReason::Rejected),
            Outcome::Released => self.give_back(now, entry),
            Outcome::Modified { delivery_failed, undeliverable_here } => {
                if undeliverable_here && let Some(consumer) = consumer {
                    self.refuse(consumer, entry);
                }
                if delivery_failed {
                    self.store.entry_mut(entry).count_failure();
                    self.give_back_failed(now, entry);
                } else {
                    self.give_back(now, entry);
                }
            }
        }
    }

    /// The holder of a delivery is still at it: its ack deadline starts anew.
    pub fn renew(
        &mut self,
        now: u64,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
    ) -> Settled {
        let Some((_, entry)) = self.find_held(consumer, place, acquisition) else {
            return if self.browses(consumer) { Settled::Done } else { Settled::Late };
        };
        match self.queues[self.store.queue(entry)].properties.ack_deadline_us {
            Some(deadline) => self.set_timer(now, entry, now.saturating_add(deadline)),
            None => self.clear_timer(entry),
        }
        Settled::Done
    }

    /// The message of a delivery that has not ended.
    pub fn message(
        &self,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
    ) -> Option<Stored<&M>> {
        let (_, entry) = self.find_held(consumer, place, acquisition)?;
        Some(self.store.entry(entry).stored()?.as_ref())
    }

    /// The message of a delivery that has not ended, to be changed (AMQP 1.0 §3.4.5, message-annotations). Its size may
    /// change, its group may not.
    pub fn message_mut(
        &mut self,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
    ) -> Option<Stored<&mut M>> {
        let (_, entry) = self.find_held(consumer, place, acquisition)?;
        self.lend(entry)
    }

    /// The message at a place, whatever its state, to be changed. Its size may change, its group may not.
    pub fn lend_at(&mut self, queue: QueueId, place: Place) -> Option<Stored<&mut M>> {
        let entry = self.find(self.resolve_queue(queue)?, place)?;
        self.lend(entry)
    }

    /// Lends a message out to be changed.
    pub(crate) fn lend(&mut self, entry: EntryRef) -> Option<Stored<&mut M>> {
        self.measure_lent();
        let queue = self.store.queue(entry);
        if !self.store.entry(entry).is_away() {
            self.queues[queue].entries.bytes -= self.store.entry(entry).size();
            self.lent = Some(entry);
        }
        Some(self.store.entry_mut(entry).stored_mut()?.as_mut())
    }

    /// Counts the message that was lent out last again, as large as it is now.
    pub(crate) fn measure_lent(&mut self) {
        if let Some(entry) = self.lent.take() {
            let queue = self.store.queue(entry);
            let size = self.size_of(entry);
            self.store.entry_mut(entry).set_size(short(size as usize));
            self.queues[queue].entries.bytes += size;
            if self.queues[queue].extras.has(Extras::BLOCKS) {
                self.note_room(queue);
            }
        }
    }

    pub(crate) fn size_of(&self, entry: EntryRef) -> u64 {
        let stored = self.store.entry(entry);
        stored.message().map_or(stored.size(), |message| message.size() as u64)
    }

    /// Ends a consumer's hold on an entry. What becomes of the entry comes next.
    pub(crate) fn release_hold(&mut self, index: u32, entry: EntryRef) {
        self.consumers[index].holding.remove(&mut self.store, entry.0);
        self.clear_timer(entry);
        let stored = self.store.entry_mut(entry);
        (stored.holder, stored.acquisition) = (NONE, 0);
        let group = stored.group;
        let queue = &mut self.queues[self.store.queue(entry)];
        queue.entries.acquired -= 1;
        if group != NONE {
            queue.groups.groups[group].unsettled -= 1;
        }
        if queue.extras.has(Extras::AT_RELEASE) {
            self.note_released(index, entry);
        }
    }

    /// What some queues keep of what is held.
    fn note_released(&mut self, index: u32, entry: EntryRef) {
        self.forget_drop_mark(entry);
        let queue = self.store.queue(entry);
        if self.counts_load(queue) {
            self.note_load(index);
            self.review_yields(queue);
        }
    }

    /// Puts an entry back into its place, unless its time is over.
    pub(crate) fn give_back(&mut self, now: u64, entry: EntryRef) {
        if self.is_replaced(entry) {
            return self.drop_replaced(entry);
        }
        let index = self.store.queue(entry);
        self.queues[index].counters.returned += 1;
        self.note_returned(entry);
        let stored = self.store.entry_mut(entry);
        stored.set_state(State::Available);
        if stored.is_expired(now) {
            self.bury(entry, DeadLetterReason::Expired);
            return;
        }
        if let Some(time) = stored.expires_at() {
            self.set_timer(now, entry, time);
        }
        self.become_available(entry, true, Cause::Returned);
        self.drop_beyond(index);
    }

    /// The same for one whose delivery failed: it may have failed too often, or has to wait.
    pub(crate) fn give_back_failed(&mut self, now: u64, entry: EntryRef) {
        if self.is_replaced(entry) {
            return self.drop_replaced(entry);
        }
        let index = self.store.queue(entry);
        let properties = self.queues[index].properties;
        let count = self.store.entry(entry).delivery_count();
        if properties.deliveries_max.is_some_and(|max| count >= max) {
            self.bury(entry, DeadLetterReason::DeliveriesMax);
            return;
        }
        let delay = properties.redelivery.map_or(0, |delay| delay.after(count));
        if delay == 0 {
            return self.give_back(now, entry);
        }
        self.queues[index].counters.returned += 1;
        let group = self.store.entry(entry).group;
        self.hold(now, entry, now.saturating_add(delay));
        self.note_returned(entry);
        if group != NONE {
            self.refresh_group(index, group, Cause::GroupFreed);
        }
        self.drop_beyond(index);
    }

    /// An entry is back in its place, or will be.
    fn note_returned(&mut self, entry: EntryRef) {
        if self.store.entry(entry).kept() {
            let queue = self.queue_id(self.store.queue(entry));
            self.returned.push((queue, self.store.place(entry)));
        }
    }

    /// What a settled delivery lets its consumer do: go on, or make place for another.
    pub(crate) fn after_settled(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        match consumer.list {
            ConsumerList::NotInterested(PauseReason::Prefetch) => self.review(index),
            ConsumerList::NotInterested(PauseReason::Standby)
                if matches!(consumer.role, Role::Outranked | Role::Leaving) && !consumer.is_occupied() =>
            {
                self.step_down(index);
            }
            ConsumerList::NotInterested(_) | ConsumerList::NonAcquiring { .. } => {}
            ConsumerList::Interested | ConsumerList::Notified => {
                if consumer.refused.len() >= self.limits.refused_max {
                    self.review(index);
                }
            }
        }
    }

    /// Never to this consumer again.
    fn refuse(&mut self, index: u32, entry: EntryRef) {
        let place = self.store.place(entry);
        self.store.entry_mut(entry).set_refused(true);
        self.consumers[index].refused.insert(place);
        let queue = self.store.queue(entry);
        self.queues[queue].refusals.entry(place).or_default().consumers.push(index);
    }

    /// An entry that was refused leaves the queue.
    pub(crate) fn forget_refusals(&mut self, queue: u32, place: Place) {
        let Some(refusal) = self.queues[queue].refusals.remove(&place) else {
            return;
        };
        assert!(refusal.classes.is_empty(), "only what is takeable is parked");
        for index in refusal.consumers {
            let consumer = &mut self.consumers[index];
            consumer.refused.remove(&place);
            if consumer.list == ConsumerList::NotInterested(PauseReason::Refusals) {
                self.review(index);
            }
        }
    }

    /// The entry, if it is held under this acquisition.
    pub(crate) fn find_held(
        &self,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
    ) -> Option<(u32, EntryRef)> {
        let index = self.resolve_consumer(consumer)?;
        let entry = self.find(self.consumers[index].queue, place)?;
        let stored = self.store.entry(entry);
        let held = stored.state() == State::Acquired
            && stored.holder == index
            && stored.acquisition == acquisition.0;
        held.then_some((index, entry))
    }

    pub(crate) fn settled_late(&mut self, consumer: ConsumerId) -> Settled {
        if self.browses(consumer) {
            return Settled::Done;
        }
        self.counters.late_settlements += 1;
        Settled::Late
    }

    /// Whether a consumer acquires nothing: it asked to browse, or its queue is non-destructive.
    pub fn browses(&self, consumer: ConsumerId) -> bool {
        self.resolve_consumer(consumer)
            .is_some_and(|index| self.classes[self.consumers[index].class].mode == AcquireMode::Browse)
    }
}
