//! Who is told that there is work? The consumer manager.
//!
//! Every consumer is in exactly one list, and only [`Engine::transition`] moves it. The rule: *an entry is available and some
//! ready consumer can take it ⇒ a consumer that can take it is Notified.* It is kept by what happens at six moments:
//!
//! 1. An entry becomes takeable: one more consumer of the classes that match is notified, if one is in line that can take it
//!    and nobody of higher priority is notified who can. A matching class that is left with a line and nobody notified is
//!    remembered as *promised*.
//! 2. A consumer becomes ready: it is notified if its class has more work than notified consumers.
//! 3. A notified consumer stops otherwise than by finding nothing: the next in line of its class is notified; if its class
//!    has nobody notified then, each promised class notifies one of its own.
//! 4. A notified consumer gives way to one of higher priority in another class: that class gets one notified, and when the entry
//!    in question is taken, the class that gave way is served again.
//! 5. A scan finds an entry for a class: one more consumer of that class is notified.
//! 6. A class that is full forgets an entry: somebody of another class is told of it, and one of its own goes on taking, so that
//!    it scans on.
//!
//! Entries that some consumer refused do not follow from counts per class, so each of them is looked at by itself when a notified
//! consumer stops or gives way. None of this walks over consumers, but for those who refused the very entry.

use std::ops::RangeInclusive;

use crate::consumer::Role;
use crate::counters::{Cause, ConsumerList};
use crate::dispatch::Rank;
use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::ids::{ConsumerId, Place};
use crate::properties::{AcquireMode, Desire, PauseReason, Prefetch};
use crate::slots::NONE;

/// Who could be notified for an entry, as the matching classes are looked at one after the other.
#[derive(Default)]
struct Choice {
    /// Not this one.
    besides: Option<u32>,
    /// The first in line.
    first: Option<(Rank, u32)>,
    /// The first of those notified who can take it.
    notified: Option<Rank>,
}

impl Choice {
    fn note_notified(&mut self, rank: Option<Rank>) {
        if let Some(rank) = rank {
            self.notified = Some(self.notified.map_or(rank, |first| first.min(rank)));
        }
    }
}

impl<M: Message> Engine<M> {
    /// Tells whether a consumer can take messages. A notified consumer that pauses hands its notification on.
    pub fn set_notify_work_desired(&mut self, now: u64, consumer: ConsumerId, desire: Desire) {
        self.now = now;
        if let Some(consumer) = self.resolve_consumer(consumer) {
            self.consumers[consumer].desire = match desire {
                // The engine's own reasons are not for others to set: they would never end.
                Desire::Paused(reason) if reason.is_of_engine() => Desire::Paused(PauseReason::Suspended),
                Desire::Ready | Desire::Paused(_) => desire,
            };
            self.review(consumer);
        }
    }

    /// Tells that a flow or get arrived: arms a consumer of a queue with [`Prefetch::None`](crate::Prefetch::None) if nothing
    /// of it is unsettled.
    pub fn flow_received(&mut self, consumer: ConsumerId) {
        if let Some(consumer) = self.resolve_consumer(consumer) {
            let state = &mut self.consumers[consumer];
            state.armed = state.unsettled_count() == 0;
            self.review(consumer);
        }
    }

    /// Notifies a ready consumer even if there seems to be nothing for it, so that a pull tells (AMQP 1.0 §2.6.7, drain).
    /// While its class is scanning it stays notified and its pulls, which do some of the scanning, answer
    /// [`Pull::Scanning`](crate::Pull::Scanning).
    ///
    /// False: no pull will follow, since the consumer is paused, on standby or at its prefetch; nothing can be delivered to it
    /// now. The same may come to be before the pull: then [`poll_unpulled`](Self::poll_unpulled) names the consumer.
    pub fn request_pull(&mut self, now: u64, consumer: ConsumerId) -> bool {
        let Some(consumer) = self.resolve_consumer(consumer) else {
            return false;
        };
        self.now = now;
        match self.consumers[consumer].list {
            ConsumerList::Interested => self.transition(consumer, ConsumerList::Notified, Cause::Requested),
            ConsumerList::NonAcquiring { .. } => {
                self.transition(consumer, ConsumerList::NonAcquiring { caught_up: false }, Cause::Requested);
            }
            ConsumerList::Notified => {}
            // A pull follows when its next message has been read.
            ConsumerList::NotInterested(PauseReason::Body) => {}
            ConsumerList::NotInterested(_) => return false,
        }
        self.consumers[consumer].pull_requested = true;
        true
    }

    /// A consumer that a pull was requested for and that cannot be pulled for any more, though its owner did not pause it: another
    /// took its part, or it has refused too much. Nothing can be delivered to it now.
    pub fn poll_unpulled(&mut self) -> Option<ConsumerId> {
        self.unpulled.pop_front()
    }

    /// The consumer at the front of the delivery ring; none: there is no work. It is to be pulled for
    /// ([`deliver_single_message`](Self::deliver_single_message)) or paused.
    pub fn poll_notified(&mut self) -> Option<ConsumerId> {
        self.ring.first().map(|consumer| self.consumer_id(consumer))
    }

    /// Moves a consumer between lists. Nothing else does.
    pub(crate) fn transition(&mut self, index: u32, to: ConsumerList, cause: Cause) {
        let from = self.consumers[index].list;
        if from == to {
            return;
        }
        self.leave(index);
        let consumer = &mut self.consumers[index];
        (consumer.list, consumer.last_cause, consumer.since) = (to, cause, self.now);
        let (queue, priority) = (consumer.queue, consumer.priority);
        self.enter(index);
        let was_ready = matches!(from, ConsumerList::Interested | ConsumerList::Notified);
        let is_ready = matches!(to, ConsumerList::Interested | ConsumerList::Notified);
        if was_ready != is_ready {
            let band = self.queues[queue].band_mut(priority);
            band.ready = if is_ready { band.ready + 1 } else { band.ready - 1 };
        }
    }

    /// Takes a consumer out of its list. Apart from `transition` only at a change of its part, or at its end.
    pub(crate) fn leave(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        let (queue, class, priority) = (consumer.queue, consumer.class, consumer.priority);
        match consumer.list {
            ConsumerList::Notified => {
                self.ring.remove(&mut self.consumers, index);
                if self.counts_load(queue) {
                    self.leave_order(index);
                }
                let class = &mut self.classes[class];
                class.notified -= 1;
                class.band_mut(priority).notified -= 1;
            }
            ConsumerList::Interested => {
                if self.counts_load(queue) {
                    self.leave_order(index);
                }
                let class = &mut self.classes[class];
                class.interested -= 1;
                class.band_mut(priority).interested.remove(&mut self.consumers, index);
            }
            ConsumerList::NonAcquiring { caught_up: false } => self.ring.remove(&mut self.consumers, index),
            ConsumerList::NonAcquiring { caught_up: true } => {
                self.classes[class].caught_up.remove(&mut self.consumers, index);
            }
            ConsumerList::NotInterested(PauseReason::Standby) if consumer.role == Role::Standby => {
                self.queues[queue].band_mut(priority).standby.remove(&mut self.consumers, index);
            }
            ConsumerList::NotInterested(reason) => {
                self.queues[queue].not_interested[reason as usize].remove(&mut self.consumers, index);
            }
        }
    }

    /// Puts a consumer at the end of its list. Apart from `transition` only at a change of its part, or for a new one.
    pub(crate) fn enter(&mut self, index: u32) {
        let consumer = &mut self.consumers[index];
        let (queue, class, priority) = (consumer.queue, consumer.class, consumer.priority);
        match consumer.list {
            ConsumerList::Notified => {
                consumer.wake_count += 1;
                self.counters.notified += 1;
                self.queues[queue].counters.notified += 1;
                self.ring.push_back(&mut self.consumers, index);
                let class = &mut self.classes[class];
                class.notified += 1;
                class.band_mut(priority).notified += 1;
                if self.counts_load(queue) {
                    self.join_order(index);
                }
            }
            ConsumerList::Interested => {
                consumer.ticket = self.next_ticket;
                self.next_ticket += 1;
                let class = &mut self.classes[class];
                class.interested += 1;
                class.band_mut(priority).interested.push_back(&mut self.consumers, index);
                if self.counts_load(queue) {
                    self.join_order(index);
                }
            }
            ConsumerList::NonAcquiring { caught_up: false } => {
                consumer.wake_count += 1;
                self.ring.push_back(&mut self.consumers, index);
            }
            ConsumerList::NonAcquiring { caught_up: true } => {
                self.classes[class].caught_up.push_back(&mut self.consumers, index);
            }
            ConsumerList::NotInterested(PauseReason::Standby) if consumer.role == Role::Standby => {
                self.queues[queue].band_mut(priority).standby.push_back(&mut self.consumers, index);
            }
            ConsumerList::NotInterested(reason) => {
                self.queues[queue].not_interested[reason as usize].push_back(&mut self.consumers, index);
            }
        }
    }

    /// Puts a consumer where its desire, its part and its prefetch say it belongs.
    pub(crate) fn review(&mut self, index: u32) {
        let Some(reason) = self.pause_reason(index) else {
            match self.consumers[index].list {
                // It is told when its next message has been read.
                ConsumerList::NotInterested(PauseReason::Body) => {}
                ConsumerList::NotInterested(_) => self.become_ready(index),
                ConsumerList::NonAcquiring { .. } | ConsumerList::Interested | ConsumerList::Notified => {}
            }
            return;
        };
        self.pause(index, reason);
    }

    /// Moves a consumer to NotInterested. If it was notified, what it was told of is handed on.
    pub(crate) fn pause(&mut self, index: u32, reason: PauseReason) {
        let was_notified = self.consumers[index].list == ConsumerList::Notified;
        // What waits for a body is pulled for when that is there.
        if reason != PauseReason::Body {
            let was_requested = std::mem::take(&mut self.consumers[index].pull_requested);
            if was_requested && reason.is_of_engine() {
                self.unpulled.push_back(self.consumer_id(index));
            }
        }
        self.transition(index, ConsumerList::NotInterested(reason), Cause::Paused);
        if was_notified {
            self.hand_on(index);
        }
    }

    /// One more consumer of these classes is told of an entry that has become takeable for them.
    pub(crate) fn notify_work(&mut self, entry: EntryRef, classes: &[u32], cause: Cause) {
        let mut choice = Choice::default();
        for class in classes {
            self.weigh(*class, entry, &mut choice);
        }
        if let Some((rank, consumer)) = choice.first
            && choice.notified.is_none_or(|notified| rank < notified)
        {
            self.transition(consumer, ConsumerList::Notified, cause);
        }
        if let [_] = classes {
            return;
        }
        for class in classes {
            let state = &self.classes[*class];
            if state.interested > 0 && state.notified == 0 {
                self.promise(*class);
            }
        }
    }

    /// Sees to it that an entry has a notified consumer that can take it, if one is in line (an entry with refusals: one other than
    /// `besides`).
    pub(crate) fn cover(&mut self, entry: EntryRef, besides: Option<u32>) {
        let mut matched = std::mem::take(&mut self.matched);
        self.match_acquiring(entry, &mut matched);
        let (place, front) = (self.store.place(entry), self.queues[self.store.queue(entry)].scans.front);
        matched.retain(|class| self.classes[*class].knows(place, front));
        let mut choice = Choice { besides, ..Choice::default() };
        for class in &matched {
            self.weigh(*class, entry, &mut choice);
        }
        if let (Some((_, consumer)), None) = (choice.first, choice.notified) {
            self.transition(consumer, ConsumerList::Notified, Cause::HandedOn);
        }
        self.matched = matched;
    }

    /// Gives way: notifies somebody of higher priority than `below` in a class that has this entry next, and remembers that the
    /// class of the one who gave way is to be served when the entry is taken.
    pub(crate) fn give_way(&mut self, index: u32, entry: EntryRef, higher: u32) {
        let (queue, class) = (self.consumers[index].queue, self.consumers[index].class);
        self.rouse(self.rank(index), entry, higher);
        self.transition(index, ConsumerList::Interested, Cause::GaveWay);
        if self.classes[class].notified == 0 {
            self.wake_promised(queue);
        }
        if !self.queues[queue].refusals.is_empty() {
            self.pass_refused(queue, class, self.store.place(entry));
            self.cover_refused(queue, Some(index), Some(index));
        }
        // In its own class the other one covers all, save what it has refused.
        if class != higher || !self.queues[queue].refusals.is_empty() {
            let place = self.store.place(entry);
            self.queues[queue].yields.insert((place, class));
            self.promise(class);
        }
    }

    /// Sees to it that somebody of a class who comes before this rank is notified of an entry.
    pub(crate) fn rouse(&mut self, below: Rank, entry: EntryRef, higher: u32) {
        let mut choice = Choice::default();
        self.weigh(higher, entry, &mut choice);
        if choice.notified.is_none_or(|notified| notified >= below)
            && let Some((_, consumer)) = choice.first
        {
            self.transition(consumer, ConsumerList::Notified, Cause::HandedOn);
        }
    }

    /// Serves the classes that gave way for the entries at these places: taken now, or forgotten by a class that was too full.
    pub(crate) fn resume_yielded(&mut self, queue: u32, places: RangeInclusive<Place>) {
        let (first, last) = places.into_inner();
        while let Some((place, class)) = self.queues[queue].yields.range((first, 0)..).next().copied()
            && place <= last
        {
            self.queues[queue].yields.remove(&(place, class));
            self.serve(class);
            self.cover_refused(queue, None, None);
        }
    }

    /// Remembers a class that has consumers in line and nobody notified, although there may be work for it.
    pub(crate) fn promise(&mut self, class: u32) {
        let state = &mut self.classes[class];
        if !std::mem::replace(&mut state.promised, true) {
            let queue = state.queue;
            self.queues[queue].promised.push_back(&mut self.classes, class);
        }
    }

    /// Why a consumer cannot take messages; none: it can.
    pub(crate) fn pause_reason(&self, index: u32) -> Option<PauseReason> {
        let consumer = &self.consumers[index];
        if consumer.role != Role::Active {
            return Some(PauseReason::Standby);
        }
        if let Desire::Paused(reason) = consumer.desire {
            return Some(reason);
        }
        if self.classes[consumer.class].mode == AcquireMode::Browse {
            return None;
        }
        let open = match self.queues[consumer.queue].properties.prefetch {
            Prefetch::Absent => true,
            Prefetch::None => consumer.armed && consumer.unsettled_count() == 0,
            Prefetch::Limit(limit) => consumer.unsettled_count() < limit.max(1),
        };
        if !open {
            return Some(PauseReason::Prefetch);
        }
        (consumer.refused.len() >= self.limits.refused_max).then_some(PauseReason::Refusals)
    }

    pub(crate) fn become_ready(&mut self, index: u32) {
        let class = self.consumers[index].class;
        if self.classes[class].mode == AcquireMode::Browse {
            self.transition(index, ConsumerList::NonAcquiring { caught_up: false }, Cause::BecameReady);
            return;
        }
        if self.counts_load(self.consumers[index].queue) {
            self.consumers[index].ticket = self.next_ticket;
            self.next_ticket += 1;
        }
        let list = if self.has_prospects(index) { ConsumerList::Notified } else { ConsumerList::Interested };
        self.transition(index, list, Cause::BecameReady);
        self.resume_scan(class);
    }

    /// Whether there may be work for a consumer that nobody else was told of.
    fn has_prospects(&self, index: u32) -> bool {
        let consumer = &self.consumers[index];
        if !consumer.owned_heads.is_empty() {
            return true;
        }
        let (queue, class) = (&self.queues[consumer.queue], &self.classes[consumer.class]);
        if queue.entries.takeable == 0 {
            return false;
        }
        let work = class.work(queue.entries.takeable);
        !queue.refusals.is_empty()
            || work > u64::from(class.notified)
            || work > 0
                && class.notified_rank().is_none_or(|notified| notified.priority() < consumer.priority)
    }

    /// A consumer has stopped being notified: others are told in its stead.
    pub(crate) fn hand_on(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        let (queue, class) = (consumer.queue, consumer.class);
        if self.queues[queue].entries.takeable == 0 {
            return;
        }
        self.resume_scan(class);
        self.wake_more(class, Cause::HandedOn);
        if self.classes[class].notified == 0 {
            self.wake_promised(queue);
        }
        if !self.queues[queue].yields.is_empty() {
            // Perhaps it was the one for whom others gave way.
            self.resume_yielded(queue, Place::FIRST..=Place::END);
        }
        // What it had refused, others cover already.
        if self.consumers[index].refused.len() < self.queues[queue].refusals.len() {
            self.cover_refused(queue, Some(index), None);
        }
    }

    /// Notifies the first in line of a class that has more work than notified consumers, or nobody notified of that priority.
    pub(crate) fn wake_more(&mut self, class: u32, cause: Cause) {
        let state = &self.classes[class];
        let Some(first) = state.first_in_line() else {
            return;
        };
        let rank = self.rank(first);
        let work = state.work(self.queues[state.queue].entries.takeable);
        let wanted = match state.notified_rank() {
            Some(notified) if notified < rank => false,
            Some(notified) if notified.priority() == rank.priority() => work > u64::from(state.notified),
            Some(_) | None => work > 0,
        };
        if wanted {
            self.transition(first, ConsumerList::Notified, cause);
        }
    }

    fn wake_promised(&mut self, queue: u32) {
        for _ in 0..self.queues[queue].promised.count() {
            if let Some(class) = self.queues[queue].promised.pop_front(&mut self.classes) {
                self.classes[class].promised = false;
                self.serve(class);
            }
        }
    }

    /// Notifies the first in line of a class that has nobody notified, if there is something for it.
    fn serve(&mut self, class: u32) {
        if self.classes[class].notified == 0
            && let Some(first) = self.classes[class].first_in_line()
            && self.has_work(class)
        {
            self.transition(first, ConsumerList::Notified, Cause::HandedOn);
        }
    }

    /// Those of a class who refused the entry for which others of it give way are not held up by it: one of them is told.
    fn pass_refused(&mut self, queue: u32, class: u32, place: Place) {
        let refusers =
            self.queues[queue].refusals.get(&place).into_iter().flat_map(|refusal| &refusal.consumers);
        let passing = refusers.copied().find(|index| {
            let consumer = &self.consumers[*index];
            consumer.class == class && consumer.list == ConsumerList::Interested
        });
        if let Some(index) = passing {
            self.transition(index, ConsumerList::Notified, Cause::HandedOn);
        }
    }

    /// Sees to each entry with refusals, save those of one consumer, and tells others than `besides`.
    fn cover_refused(&mut self, queue: u32, save: Option<u32>, besides: Option<u32>) {
        let mut from = Place::FIRST;
        while let Some((place, refusal)) = self.queues[queue].refusals.range(from..).next() {
            let place = *place;
            from = place.next();
            let saved = save.is_some_and(|index| refusal.consumers.contains(&index));
            if !saved && let Some(entry) = self.find_takeable(queue, place) {
                self.cover(entry, besides);
            }
        }
    }

    /// Adds a class that matches an entry to the choice. Costs nothing per consumer, but for those who refused the entry.
    fn weigh(&self, class: u32, entry: EntryRef, choice: &mut Choice) {
        let state = &self.classes[class];
        let first = if self.store.entry(entry).refused() {
            let place = self.store.place(entry);
            let refusal = &self.queues[state.queue].refusals[&place];
            let refused = |priority| {
                let notified = refusal.consumers.iter().filter(|index| {
                    let consumer = &self.consumers[**index];
                    consumer.class == class
                        && consumer.priority == priority
                        && consumer.list == ConsumerList::Notified
                });
                notified.count()
            };
            choice.note_notified(state.notified_rank_without(&refusal.consumers, refused));
            state.line(&self.consumers).find(|index| {
                choice.besides != Some(*index) && !self.consumers[*index].refused.contains(&place)
            })
        } else {
            choice.note_notified(state.notified_rank());
            state.first_in_line()
        };
        if let Some(index) = first {
            let rank = self.rank(index);
            if choice.first.is_none_or(|(first, _)| rank < first) {
                choice.first = Some((rank, index));
            }
        }
    }

    /// The classes that an entry is for.
    pub(crate) fn match_acquiring(&mut self, entry: EntryRef, matched: &mut Vec<u32>) {
        let queue = &self.queues[self.store.queue(entry)];
        self.work += self.match_classes(&queue.matching, entry, matched);
        if queue.plain != NONE {
            matched.push(queue.plain);
        }
    }
}
