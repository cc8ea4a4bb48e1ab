//! What does a consumer get when it asks?
//!
//! The lowest place among: the first entries of the groups it owns, what its class has parked and it has not refused, and its class's
//! next. An entry whose time is over is removed on the way. If a ready consumer that comes before this one has the entry next
//! (`dispatch`), this one gives way. All in bounded steps.

use crate::class::ScanState;
use crate::counters::{Cause, ConsumerList};
use crate::dispatch::Rank;
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{Acquisition, ConsumerId, Place};
use crate::properties::{DeadLetterReason, Delivery, PauseReason, Pull};
use crate::queue::Extras;
use crate::slots::NONE;

/// What a consumer can take next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Entry {
        entry: EntryRef,
        /// First in a group that the consumer owns: nobody else can take it.
        owned: bool,
    },
    Nothing,
    /// Nothing that is known yet.
    Scanning,
    /// An entry for a browser that has to be read first.
    Away(EntryRef),
    /// The steps are used up.
    Busy,
}

enum Pulled {
    Taken(EntryRef),
    Nothing,
    Scanning,
}

impl<M: Message> Engine<M> {
    /// Takes one message for a consumer.
    pub fn deliver_single_message(&mut self, now: u64, consumer: ConsumerId) -> Pull<'_, M> {
        let Some(index) = self.resolve_consumer(consumer) else {
            return Pull::Nothing;
        };
        self.now = now;
        let (pulled, browsed) = match self.consumers[index].list {
            ConsumerList::NotInterested(_) => return Pull::Nothing,
            ConsumerList::NonAcquiring { .. } => (self.browse(now, index), true),
            ConsumerList::Interested => {
                self.transition(index, ConsumerList::Notified, Cause::Requested);
                (self.pull(now, index), false)
            }
            ConsumerList::Notified => (self.pull(now, index), false),
        };
        match pulled {
            Pulled::Taken(entry) => self.delivery(index, entry, browsed),
            Pulled::Nothing => Pull::Nothing,
            Pulled::Scanning => Pull::Scanning,
        }
    }

    fn delivery(&self, index: u32, entry: EntryRef, browsed: bool) -> Pull<'_, M> {
        let stored = self.store.entry(entry);
        let Some(message) = stored.message() else {
            unreachable!("what is delivered is in memory");
        };
        let acquired_count = stored.acquired_count() - u32::from(!browsed);
        Pull::Delivered(Delivery {
            queue: self.queue_id(self.consumers[index].queue),
            owner: self.consumers[index].owner,
            place: self.store.place(entry),
            acquisition: Acquisition(if browsed { 0 } else { stored.acquisition }),
            message,
            delivery_count: stored.delivery_count(),
            acquired_count,
            first_acquirer: acquired_count == 0,
            expires_at: stored.expires_at(),
        })
    }

    fn pull(&mut self, now: u64, index: u32) -> Pulled {
        let mut steps = self.limits.pull_steps_max;
        loop {
            match self.next_for(index, &mut steps) {
                Next::Entry { entry, .. } if self.store.entry(entry).is_expired(now) && steps > 0 => {
                    self.withdraw(entry);
                    self.bury(entry, DeadLetterReason::Expired);
                    steps -= 1;
                }
                Next::Entry { entry, .. } if self.store.entry(entry).is_expired(now) => {
                    self.ring.move_to_back(&mut self.consumers, index);
                    return Pulled::Scanning;
                }
                Next::Entry { entry, .. } if self.store.entry(entry).is_away() => {
                    self.want(entry);
                    self.pause(index, PauseReason::Body);
                    return Pulled::Scanning;
                }
                Next::Entry { entry, owned } => {
                    let higher = if owned { None } else { self.outranked(index, entry) };
                    if let Some(higher) = higher {
                        self.consumers[index].pull_requested = false;
                        self.give_way(index, entry, higher);
                        return Pulled::Nothing;
                    }
                    let counts_load = self.acquire(now, index, entry);
                    self.after_delivered(index, counts_load);
                    return Pulled::Taken(entry);
                }
                Next::Nothing => {
                    self.counters.empty_pulls += 1;
                    self.consumers[index].pull_requested = false;
                    self.transition(index, ConsumerList::Interested, Cause::FoundNothing);
                    return Pulled::Nothing;
                }
                Next::Scanning => {
                    let queue = self.consumers[index].queue;
                    if self.consumers[index].pull_requested && self.queues[queue].scans.waits {
                        self.pause(index, PauseReason::Body);
                    } else if self.consumers[index].pull_requested {
                        self.scan_slice(queue);
                        self.ring.move_to_back(&mut self.consumers, index);
                    } else {
                        self.transition(index, ConsumerList::Interested, Cause::FoundNothing);
                    }
                    return Pulled::Scanning;
                }
                Next::Busy | Next::Away(_) => {
                    self.ring.move_to_back(&mut self.consumers, index);
                    return Pulled::Scanning;
                }
            }
        }
    }

    /// What a consumer can take next; on the way, entries that it has refused are parked.
    fn next_for(&mut self, index: u32, steps: &mut usize) -> Next {
        let class = self.consumers[index].class;
        let cursor = match self.classes[class].is_plain() {
            true => self.next_plain(index, class, steps),
            false => self.next_candidate(index, class, steps),
        };
        let consumer = &self.consumers[index];
        if consumer.owned_heads.is_empty() && self.classes[class].parked.is_empty() || cursor == Next::Busy {
            return cursor;
        }
        let queue = consumer.queue;
        let owned = consumer.owned_heads.first().map(|(place, _)| *place);
        let parked = self.first_parked(index, class);
        let place = match cursor {
            Next::Entry { entry, .. } => Some(self.store.place(entry)),
            Next::Nothing | Next::Scanning | Next::Busy | Next::Away(_) => None,
        };
        let shared = [parked, place].into_iter().flatten().min();
        if let Some(shared) = shared.and_then(|place| self.find(queue, place))
            && owned.is_none_or(|owned| self.store.place(shared) < owned && self.goes_first(index, shared))
        {
            return Next::Entry { entry: shared, owned: false };
        }
        match owned.and_then(|place| self.find(queue, place)) {
            Some(entry) => Next::Entry { entry, owned: true },
            None => cursor,
        }
    }

    /// Whether nobody comes before a consumer at an entry that others can take too. If somebody does, he is told: the one who asks goes on
    /// with what only he can take.
    fn goes_first(&mut self, index: u32, entry: EntryRef) -> bool {
        let higher = self.outranked(index, entry);
        if let Some(higher) = higher {
            self.rouse(self.rank(index), entry, higher);
        }
        higher.is_none()
    }

    fn next_plain(&mut self, index: u32, class: u32, steps: &mut usize) -> Next {
        let state = &mut self.classes[class];
        let queue = &mut self.queues[state.queue];
        loop {
            let Some(entry) = queue.entries.first_takeable(&self.store, state.mark) else {
                return Next::Nothing;
            };
            if !self.store.entry(entry).refused() {
                return Next::Entry { entry, owned: false };
            }
            let place = self.store.place(entry);
            if !state.parked.contains(&place) {
                if !self.consumers[index].refused.contains(&place) {
                    return Next::Entry { entry, owned: false };
                }
                park(state, class, queue, place);
            }
            if *steps == 0 {
                return Next::Busy;
            }
            *steps -= 1;
            state.mark = place.next();
        }
    }

    fn next_candidate(&mut self, index: u32, class: u32, steps: &mut usize) -> Next {
        let queue = self.classes[class].queue;
        while let Some((place, entry)) = self.first_candidate(class) {
            if !self.consumers[index].refused.contains(&place) {
                return Next::Entry { entry, owned: false };
            }
            let state = &mut self.classes[class];
            state.candidates.pop_front();
            park(state, class, &mut self.queues[queue], place);
            if *steps == 0 {
                return Next::Busy;
            }
            *steps -= 1;
        }
        if self.classes[class].is_scanning() { Next::Scanning } else { Next::Nothing }
    }

    /// A filtered class's first candidate that is still there; the others are dropped. Scans on when candidates run low.
    pub(crate) fn first_candidate(&mut self, class: u32) -> Option<(Place, EntryRef)> {
        let first = loop {
            let Some(place) = self.classes[class].candidates.front().copied() else {
                break None;
            };
            self.work += self.classes[class].node_count() as u64;
            if let Some(entry) = self.candidate(class, place) {
                break Some((place, entry));
            }
            self.classes[class].candidates.pop_front();
        };
        if matches!(self.classes[class].scan, ScanState::Resting(_)) {
            self.resume_scan(class);
        }
        first
    }

    /// The entry at a candidate's place, if it is still there for the class.
    fn candidate(&self, class: u32, place: Place) -> Option<EntryRef> {
        let entry = self.find_takeable(self.classes[class].queue, place)?;
        // What has been away may have come back changed, or with other counts, and filters can ask for these.
        let stored = self.store.entry(entry);
        (stored.acquired_count() == 0 || stored.is_away() || self.matches(class, entry)).then_some(entry)
    }

    /// Whether there is an entry for some consumer of a class, as far as it is known.
    pub(crate) fn has_work(&mut self, class: u32) -> bool {
        let state = &self.classes[class];
        if state.is_plain() {
            return state.work(self.queues[state.queue].entries.takeable) > 0;
        }
        self.first_candidate(class).is_some()
    }

    /// The first entry that the class has parked and the consumer may take.
    fn first_parked(&mut self, index: u32, class: u32) -> Option<Place> {
        let (state, consumer) = (&self.classes[class], &mut self.consumers[index]);
        let (count, from) = consumer.parked_seen;
        let from = if count == state.parked_count { from } else { Place::FIRST };
        let first = state.parked.range(from..).find(|place| !consumer.refused.contains(place)).copied();
        consumer.parked_seen = (state.parked_count, first.unwrap_or(Place::END));
        first
    }

    /// A class with a ready consumer that comes before this one and has this entry next.
    #[inline]
    fn outranked(&mut self, index: u32, entry: EntryRef) -> Option<u32> {
        let consumer = &self.consumers[index];
        let queue = &self.queues[consumer.queue];
        if queue.ready_priority() <= Some(consumer.priority) && !queue.extras.has(Extras::LOADS) {
            return None;
        }
        self.find_higher(index, entry)
    }

    #[cold]
    fn find_higher(&mut self, index: u32, entry: EntryRef) -> Option<u32> {
        let own = self.consumers[index].class;
        let rank = self.rank(index);
        let mut matched = std::mem::take(&mut self.matched);
        self.match_acquiring(entry, &mut matched);
        let place = self.store.place(entry);
        let higher = matched.iter().copied().find(|class| {
            let next = *class == own || self.comes_next(*class, place, rank);
            next && self.ready_before(*class, rank, entry)
        });
        matched.clear();
        self.matched = matched;
        higher
    }

    /// Whether a class has nothing before this entry, which is for it, that a ready consumer before this rank could take.
    fn comes_next(&self, class: u32, place: Place, rank: Rank) -> bool {
        let state = &self.classes[class];
        let queue = &self.queues[state.queue];
        let before = |other: Place, entry| {
            other < place && !state.parked.contains(&other) && self.ready_before(class, rank, entry)
        };
        if !state.is_plain() {
            let known = state.knows(place, queue.scans.front);
            return known
                && !state
                    .candidates
                    .iter()
                    .take_while(|other| **other < place)
                    .any(|other| self.candidate(class, *other).is_some_and(|entry| before(*other, entry)));
        }
        let mut from = state.mark;
        while let Some(entry) = queue.entries.first_takeable(&self.store, from) {
            let other = self.store.place(entry);
            if before(other, entry) {
                return false;
            }
            if other >= place {
                return true;
            }
            from = other.next();
        }
        true
    }

    /// Whether a class has a ready consumer before this rank that has not refused the entry.
    fn ready_before(&self, class: u32, rank: Rank, entry: EntryRef) -> bool {
        let (state, priority) = (&self.classes[class], rank.priority());
        let equal = state.bands.iter().find(|band| band.priority == priority);
        let mut equal = equal.into_iter().flat_map(|band| band.by_load.before(rank));
        let above = state.bands.iter().filter(|band| band.priority > priority);
        let ready: u32 = above.map(|band| band.interested.count() + band.notified).sum();
        if !self.store.entry(entry).refused() {
            return ready > 0 || equal.next().is_some();
        }
        let refusal = &self.queues[state.queue].refusals[&self.store.place(entry)];
        let refusing = refusal.consumers.iter().filter(|index| {
            let consumer = &self.consumers[**index];
            consumer.class == class && consumer.priority > priority && consumer.is_ready()
        });
        ready as usize > refusing.count() || equal.any(|index| !refusal.consumers.contains(&index))
    }

    /// Answers whether it counts how much a consumer holds (`dispatch`).
    fn acquire(&mut self, now: u64, index: u32, entry: EntryRef) -> bool {
        let (queue, class) = (self.consumers[index].queue, self.consumers[index].class);
        let group = self.store.entry(entry).group;
        if group == NONE {
            self.unexpose(queue, entry);
        } else {
            self.claim(index, group, entry);
        }
        self.clear_timer(entry);
        let stored = self.store.entry_mut(entry);
        stored.set_state(State::Acquired);
        stored.count_acquisition();
        stored.holder = index;
        stored.acquisition = self.next_acquisition;
        self.next_acquisition = self.next_acquisition.wrapping_add(1).max(1);
        self.consumers[index].holding.push_back(&mut self.store, entry.0);
        let state = &mut self.queues[queue];
        state.entries.acquired += 1;
        let extras = state.extras;
        if !self.classes[class].candidates.is_empty() {
            let place = self.store.place(entry);
            self.classes[class].candidates.pop_front_if(|first| *first == place);
        }
        if !extras.has(Extras::AT_ACQUISITION) {
            return false;
        }
        if let Some(deadline) = self.queues[queue].properties.ack_deadline_us {
            self.set_timer(now, entry, now.saturating_add(deadline));
        }
        let counts_load = extras.has(Extras::LOADS);
        if counts_load {
            self.note_load(index);
        }
        counts_load
    }

    fn after_delivered(&mut self, index: u32, counts_load: bool) {
        let consumer = &mut self.consumers[index];
        consumer.delivered_count += 1;
        consumer.armed = false;
        // A pull that was requested goes on until there is nothing more, or others come first.
        let was_requested = consumer.pull_requested;
        let (queue, class) = (consumer.queue, consumer.class);
        self.review(index);
        if counts_load {
            match self.consumers[index].list {
                ConsumerList::Notified if was_requested => self.ring.move_to_back(&mut self.consumers, index),
                ConsumerList::Notified => self.pass_turn(index),
                ConsumerList::NonAcquiring { .. }
                | ConsumerList::NotInterested(_)
                | ConsumerList::Interested => {}
            }
            self.review_yields(queue);
        } else if self.consumers[index].list == ConsumerList::Notified {
            // The one that joins in comes before this one's next turn.
            if self.classes[class].interested > 0 {
                self.wake_more(class, Cause::MoreWork);
            }
            self.ring.move_to_back(&mut self.consumers, index);
        }
    }

    /// Finds the next entry for a browser and moves it past.
    fn browse(&mut self, now: u64, index: u32) -> Pulled {
        match self.next_to_browse(now, index) {
            Next::Entry { entry, .. } => {
                self.consumers[index].delivered_count += 1;
                if self.consumers[index].list == (ConsumerList::NonAcquiring { caught_up: true }) {
                    let reading = ConsumerList::NonAcquiring { caught_up: false };
                    self.transition(index, reading, Cause::Requested);
                }
                self.ring.move_to_back(&mut self.consumers, index);
                Pulled::Taken(entry)
            }
            Next::Nothing => {
                self.counters.empty_pulls += 1;
                self.consumers[index].pull_requested = false;
                let caught_up = ConsumerList::NonAcquiring { caught_up: true };
                self.transition(index, caught_up, Cause::FoundNothing);
                Pulled::Nothing
            }
            Next::Away(entry) => {
                self.want(entry);
                self.pause(index, PauseReason::Body);
                Pulled::Scanning
            }
            Next::Scanning | Next::Busy => {
                let reading = ConsumerList::NonAcquiring { caught_up: false };
                self.transition(index, reading, Cause::Requested);
                self.ring.move_to_back(&mut self.consumers, index);
                Pulled::Scanning
            }
        }
    }
}

/// Puts an entry that a consumer refused aside for the class's other consumers.
fn park(state: &mut crate::class::Class, class: u32, queue: &mut crate::queue::Queue, place: Place) {
    state.parked.insert(place);
    state.parked_count += 1;
    if let Some(refusal) = queue.refusals.get_mut(&place) {
        refusal.classes.push(class);
    }
}
