//! Does everything add up? For tests and simulation, after every step.
//!
//! Everything that is kept is recounted from the entries and the lists, and the rule is checked for every entry and every
//! consumer in line, by what the filters say and not by what the classes have noted.

use std::collections::{BTreeMap, BTreeSet};

use crate::class::{Class, ScanState};
use crate::consumer::{Consumer, Role};
use crate::counters::ConsumerList;
use crate::dispatch::ByLoad;
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::group::Group;
use crate::ids::{ConsumerId, Place};
use crate::properties::{AcquireMode, Overflow, PauseReason};
use crate::queue::{Extras, Queue};
use crate::room::Room;
use crate::slots::NONE;

impl<M: Message> Engine<M> {
    /// Recounts everything and checks the rule literally; panics with what is wrong. For tests and simulation.
    pub fn verify(&self) {
        let mut timers = 0;
        let mut entries = 0;
        for (index, queue) in self.queues.iter() {
            let live = self.verify_entries(index, queue);
            entries += live.len();
            timers += live.iter().filter(|entry| self.store.entry(**entry).timer.is_some()).count();
            if queue.deleted {
                assert!(queue.consumers.is_empty());
                continue;
            }
            queue.matching.index.verify();
            queue.browse_matching.index.verify();
            self.verify_limits(queue, &live);
            self.verify_last_values(index, queue, &live);
            self.verify_groups(queue, &live);
            self.verify_refusals(queue, &live);
            self.verify_bands(index, queue);
            self.verify_browsers(queue, &live);
            self.verify_rule(queue, &live);
        }
        assert_eq!(entries as u64, self.store.count());
        assert_eq!(timers, self.wheel.count());
        self.wheel.verify();
        self.verify_lists();
        self.verify_classes();
    }

    fn verify_entries(&self, index: u32, queue: &Queue) -> Vec<EntryRef> {
        let mut live = Vec::new();
        for (level, tree) in queue.entries.trees.iter().enumerate() {
            live.extend(self.store.verify(tree, index, level));
            assert!(
                queue.deleted || (queue.entries.takeable_levels() >> level & 1 == 1) == (tree.takeable > 0)
            );
        }
        if queue.deleted {
            return live;
        }
        let count =
            |state| live.iter().filter(|entry| self.store.entry(**entry).state() == state).count() as u64;
        let entries = &queue.entries;
        assert_eq!(entries.messages, live.len() as u64);
        assert_eq!((entries.acquired, entries.held), (count(State::Acquired), count(State::Held)));
        assert_eq!((entries.pending, entries.retired), (count(State::Pending), count(State::Retired)));
        let pending = live.iter().filter(|entry| self.store.entry(**entry).state() == State::Pending);
        assert_eq!(entries.pending_bytes, pending.map(|entry| self.size_of(*entry)).sum::<u64>());
        let bytes = live.iter().map(|entry| self.size_of(*entry));
        let lent = self.lent.filter(|entry| self.store.queue(*entry) == index);
        let bytes: u64 = bytes.sum();
        assert_eq!(entries.bytes + lent.map_or(0, |entry| self.size_of(entry)), bytes);
        let takeable = live.iter().filter(|entry| self.store.is_takeable(**entry)).count();
        assert_eq!(entries.takeable, takeable as u64);
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        for entry in &live {
            let stored = self.store.entry(*entry);
            let takeable = match stored.state() {
                State::Vacant => unreachable!("a live entry is not vacant"),
                State::Held => false,
                State::Pending | State::Retired => {
                    assert!(stored.timer.is_none());
                    false
                }
                State::Acquired => {
                    assert_ne!(stored.acquisition, 0);
                    *held.entry(stored.holder).or_default() += 1;
                    false
                }
                State::Available if stored.group == NONE => true,
                State::Available => queue.groups.groups[stored.group].shown == Some(*entry),
            };
            assert_eq!(self.store.is_takeable(*entry), takeable, "{:?}", self.store.place(*entry));
            assert_eq!(self.find(index, self.store.place(*entry)), Some(*entry));
            if let (State::Available, Some(time)) = (stored.state(), stored.expires_at()) {
                assert_eq!(stored.timer.map(|timer| self.wheel.deadline(timer)), Some(time));
            }
            assert!(stored.state() != State::Held || stored.timer.is_some());
        }
        for consumer in queue.consumers.iter(&self.consumers) {
            let retired = live.iter().map(|entry| self.store.entry(*entry)).filter(|stored| {
                stored.state() == State::Retired && stored.retired_by() == self.consumer_id(consumer)
            });
            assert_eq!(self.consumers[consumer].retired_count as usize, retired.count());
            let holding = &self.consumers[consumer].holding;
            assert_eq!(holding.count(), held.remove(&consumer).unwrap_or(0));
            assert_eq!(holding.iter(&self.store).count(), holding.count() as usize);
            assert!(
                holding.iter(&self.store).all(|entry| self.store.entry(EntryRef(entry)).holder == consumer)
            );
        }
        assert!(held.is_empty(), "what is acquired has a holder");
        live
    }

    /// What came in is there or has gone by one of the ways there are, limits are known to be reached, and nothing that could be dropped is
    /// overlooked.
    fn verify_limits(&self, queue: &Queue, live: &[EntryRef]) {
        let counters = &queue.counters;
        let gone = [
            counters.accepted,
            counters.rejected,
            counters.expired,
            counters.exhausted,
            counters.dropped,
            counters.replaced,
            counters.removed,
        ];
        let entries = &queue.entries;
        assert_eq!(counters.enqueued, entries.messages - entries.pending + gone.iter().sum::<u64>());
        let properties = &queue.properties;
        let reached = properties.messages_max.is_some_and(|max| queue.entries.messages >= max)
            || properties.bytes_max.is_some_and(|max| queue.entries.bytes >= max);
        if self.lent.is_none() {
            let full = matches!(queue.room, Room::Full { .. });
            assert_eq!(full, reached && properties.overflow == Overflow::Block);
        }
        if properties.overflow == Overflow::DropOldest {
            let passed = live.iter().filter(|entry| {
                let place = self.store.place(**entry);
                place.sequence() < queue.drop_marks[place.level()]
            });
            assert!(
                passed.copied().all(|entry| !self.store.entry(entry).is_free()),
                "what can be dropped is found"
            );
        }
        assert_eq!(queue.extras, Extras::of(properties));
    }

    fn verify_last_values(&self, index: u32, queue: &Queue, live: &[EntryRef]) {
        let last: BTreeSet<Place> =
            queue.last_values.iter().flat_map(|values| values.verify(&self.hasher)).collect();
        let keyed = live.iter().filter(|entry| self.store.entry(**entry).keyed());
        let keyed: BTreeSet<Place> = keyed.map(|entry| self.store.place(*entry)).collect();
        assert!(last.is_subset(&keyed), "what the table names is there");
        for place in keyed.difference(&last) {
            let state = self.find(index, *place).map(|entry| self.store.entry(entry).state());
            let waits = queue.last_values.as_ref().is_some_and(|values| values.waits(*place));
            assert_eq!(waits, matches!(state, Some(State::Held | State::Pending)), "what waits is known");
            assert_ne!(state, Some(State::Available), "an older value is gone unless it is held");
        }
    }

    /// Whether a group's owner takes this entry.
    fn is_for_owner(&self, group: &Group, owner: &Consumer, place: Place) -> bool {
        let takes = |entry| match self.store.entry(entry).is_away() {
            // What was known of it before, or that it is to be read.
            true => group.promised == Some(place),
            false => self.matches(owner.class, entry),
        };
        self.find(owner.queue, place).is_some_and(takes) && !owner.refused.contains(&place)
    }

    fn verify_groups(&self, queue: &Queue, live: &[EntryRef]) {
        let mut promised = BTreeSet::new();
        for (index, group) in queue.groups.groups.iter() {
            let members = || live.iter().filter(|entry| self.store.entry(**entry).group == index);
            let waiting: BTreeSet<Place> = members()
                .filter(|entry| self.store.entry(**entry).state() == State::Available)
                .map(|entry| self.store.place(*entry))
                .collect();
            let places = group.places(&self.store);
            assert_eq!(places.len(), waiting.len());
            assert_eq!(places.into_iter().collect::<BTreeSet<_>>(), waiting);
            assert_eq!(group.first(&self.store), waiting.first().copied());
            let is_delayed = |entry: &&EntryRef| {
                let stored = self.store.entry(**entry);
                stored.state() == State::Held && stored.delivery_count() > 0
            };
            let delayed: BTreeSet<Place> =
                members().filter(is_delayed).map(|entry| self.store.place(*entry)).collect();
            assert_eq!(*group.delayed(), delayed);
            let is_held_back = |place: &&Place| delayed.first().is_some_and(|delayed| delayed < *place);
            let next = waiting.first().filter(|place| !is_held_back(place));
            assert_eq!(group.entries, members().count() as u64);
            let taken = members().filter(|entry| self.store.entry(**entry).state() == State::Acquired);
            let holders: Vec<u32> = taken.map(|entry| self.store.entry(*entry).holder).collect();
            assert_eq!(group.unsettled as usize, holders.len());
            let retired: Vec<ConsumerId> = members()
                .filter(|entry| self.store.entry(**entry).state() == State::Retired)
                .map(|entry| self.store.entry(*entry).retired_by())
                .collect();
            assert_eq!(group.retired as usize, retired.len());
            let by_owner = |retirer: &ConsumerId| *retirer == self.consumer_id(group.owner);
            assert!(group.owner == NONE || retired.iter().all(by_owner));
            assert!(holders.iter().all(|holder| *holder == group.owner), "a group has one owner");
            if group.owner == NONE {
                let shown = next.filter(|_| retired.is_empty());
                assert_eq!(group.shown.map(|entry| self.store.place(entry)), shown.copied());
                assert!(group.promised.is_none() && group.entries > 0 && !group.rests);
                continue;
            }
            assert!(group.shown.is_none());
            assert_eq!(group.rests, group.entries == 0);
            let owner = &self.consumers[group.owner];
            let first = next.filter(|place| self.is_for_owner(group, owner, **place));
            assert_eq!(group.promised, first.copied());
            assert!(queue.properties.sticky_groups || group.unsettled + group.retired > 0, "freed at zero");
            let is_wanted = first.is_some() || next.is_none() || group.unsettled + group.retired > 0;
            assert!(is_wanted, "nobody keeps a group who does not take its next");
            if let Some(place) = first {
                assert_ne!(owner.list, ConsumerList::Interested, "the owner is told");
                promised.insert((group.owner, *place, index));
            }
        }
        let mut owned = 0;
        let groups = &queue.groups.groups;
        for consumer in queue.consumers.iter(&self.consumers) {
            let state = &self.consumers[consumer];
            let heads = state.owned_heads.iter().map(|(place, group)| (consumer, *place, *group));
            assert!(heads.clone().all(|head| promised.contains(&head)));
            owned += heads.count();
            assert!(state.owned.iter(groups).all(|group| groups[group].owner == consumer));
            let waiting = state.owned.iter(groups).map(|group| groups[group].waiting()).sum::<u64>();
            assert_eq!(state.owned_waiting, waiting, "entries in line in groups that a consumer owns");
        }
        assert_eq!(owned, promised.len());
    }

    fn verify_refusals(&self, queue: &Queue, live: &[EntryRef]) {
        for entry in live {
            let place = self.store.place(*entry);
            assert_eq!(self.store.entry(*entry).refused(), queue.refusals.contains_key(&place));
        }
        let mut pairs = 0;
        for (place, refusal) in &queue.refusals {
            assert!(!refusal.consumers.is_empty());
            assert!(
                refusal.consumers.iter().all(|consumer| self.consumers[*consumer].refused.contains(place))
            );
            assert!(refusal.classes.iter().all(|class| self.classes[*class].parked.contains(place)));
            pairs += refusal.consumers.len();
        }
        let refused =
            queue.consumers.iter(&self.consumers).map(|consumer| self.consumers[consumer].refused.len());
        assert_eq!(pairs, refused.sum());
    }

    fn verify_bands(&self, index: u32, queue: &Queue) {
        let consumers: Vec<u32> = queue.consumers.iter(&self.consumers).collect();
        assert!(queue.bands.is_sorted_by(|a, b| a.priority > b.priority));
        for band in &queue.bands {
            let of_band = || {
                consumers
                    .iter()
                    .map(|consumer| &self.consumers[*consumer])
                    .filter(|consumer| consumer.queue == index && consumer.priority == band.priority)
            };
            assert_eq!(band.consumers as usize, of_band().count());
            assert_eq!(band.ready as usize, of_band().filter(|consumer| consumer.is_ready()).count());
            let acquiring = || of_band().filter(|consumer| consumer.browser.is_none());
            let active = acquiring().filter(|consumer| consumer.role == Role::Active);
            assert_eq!(band.active as usize, active.count());
            let standby = acquiring().filter(|consumer| consumer.role == Role::Standby);
            assert_eq!(band.standby.count() as usize, standby.count());
        }
        for consumer in consumers.iter().map(|consumer| &self.consumers[*consumer]) {
            let stays_on = matches!(consumer.role, Role::Outranked | Role::Leaving);
            assert!(
                !stays_on || consumer.is_occupied(),
                "who is to stop being active has something to settle"
            );
        }
        let active: u32 = queue.bands.iter().map(|band| band.active).sum();
        assert_eq!(active + queue.retiring, queue.active);
        let standbys: u32 = queue.bands.iter().map(|band| band.standby.count()).sum();
        assert!(standbys == 0 || queue.active >= queue.active_max(), "no place stays empty");
        let lowest = queue.bands.iter().rev().find(|band| band.active > 0).map(|band| band.priority);
        let above =
            queue.bands.iter().filter(|band| Some(band.priority) > lowest).map(|band| band.standby.count());
        assert!(lowest.is_none() || above.sum::<u32>() <= queue.retiring, "the highest are active");
    }

    fn verify_browsers(&self, queue: &Queue, live: &[EntryRef]) {
        let browsers = queue.consumers.iter(&self.consumers).filter_map(|index| {
            let consumer = &self.consumers[index];
            Some((consumer, consumer.browser.as_ref()?))
        });
        let mut count = 0;
        for (consumer, browser) in browsers {
            count += 1;
            if consumer.list != (ConsumerList::NonAcquiring { caught_up: true }) {
                continue;
            }
            for entry in live {
                let place = self.store.place(*entry);
                // What has been away may have changed, and is not shown again.
                let stored = self.store.entry(*entry);
                let available = stored.state() == State::Available && stored.acquired_count() == 0;
                let late = queue.late.entries.iter().find(|(_, late)| *late == place);
                let ahead = place.sequence() >= browser.cursors[place.level()]
                    || late.is_some_and(|(ordinal, _)| *ordinal >= browser.late);
                assert!(
                    !(available && ahead && self.matches(consumer.class, *entry)),
                    "it has seen everything"
                );
            }
        }
        assert_eq!(queue.late.browsers, count);
    }

    /// An entry is available and some ready consumer can take it ⇒ a consumer that can take it is Notified.
    fn verify_rule(&self, queue: &Queue, live: &[EntryRef]) {
        let ready: Vec<u32> = queue
            .consumers
            .iter(&self.consumers)
            .filter(|consumer| self.consumers[*consumer].is_ready())
            .collect();
        for entry in live.iter().filter(|entry| self.store.is_takeable(**entry)) {
            let can_take = |consumer: u32| self.can_take(queue, consumer, *entry);
            // Filters may know of it when it has been read.
            let away = self.store.entry(*entry).is_away();
            let is_notified = |consumer: u32| self.consumers[consumer].list == ConsumerList::Notified;
            if ready.iter().any(|consumer| is_notified(*consumer) && can_take(*consumer)) {
                continue;
            }
            let missed = ready
                .iter()
                .filter(|consumer| !away || self.classes[self.consumers[**consumer].class].is_plain())
                .find(|consumer| can_take(**consumer) && !self.gives_way(queue, **consumer, *entry, live));
            assert_eq!(missed, None, "a consumer that can take {:?} is notified", self.store.place(*entry));
        }
    }

    /// By filters, refusals and how far its class has come.
    fn can_take(&self, queue: &Queue, consumer: u32, entry: EntryRef) -> bool {
        let consumer = &self.consumers[consumer];
        let place = self.store.place(entry);
        let class = &self.classes[consumer.class];
        let is_for_it = match self.store.entry(entry).is_away() && !class.is_plain() {
            true => class.candidates.contains(&place) || class.parked.contains(&place),
            false => self.matches(consumer.class, entry),
        };
        is_for_it && class.knows(place, queue.scans.front) && !consumer.refused.contains(&place)
    }

    /// Whether a consumer has to give way to one that comes before it at this entry or on its way there.
    fn gives_way(&self, queue: &Queue, consumer: u32, entry: EntryRef, live: &[EntryRef]) -> bool {
        let way = live.iter().filter(|other| {
            self.store.is_takeable(**other)
                && self.store.place(**other) <= self.store.place(entry)
                && self.can_take(queue, consumer, **other)
        });
        let mut higher = queue.consumers.iter(&self.consumers).filter(|index| {
            let other = &self.consumers[*index];
            let counts = queue.extras.has(Extras::LOADS) && self.rank(*index) < self.rank(consumer);
            other.is_ready() && (other.priority > self.consumers[consumer].priority || counts)
        });
        higher.any(|higher| way.clone().any(|entry| self.can_take(queue, higher, *entry)))
    }

    fn verify_lists(&self) {
        for (index, consumer) in self.consumers.iter() {
            let is_paused = matches!(consumer.list, ConsumerList::NotInterested(_));
            let reads = consumer.list == ConsumerList::NotInterested(PauseReason::Body);
            assert_eq!(
                is_paused,
                reads || self.pause_reason(index).is_some(),
                "consumer {index} is in {:?}",
                consumer.list
            );
        }
        let mut standing: BTreeMap<u32, ConsumerList> = BTreeMap::new();
        let mut note = |consumer: u32, list: ConsumerList| {
            assert_eq!(self.consumers[consumer].list, list, "a consumer is in the list it says");
            assert!(standing.insert(consumer, list).is_none(), "a consumer is in one list");
        };
        for consumer in self.ring.iter(&self.consumers) {
            let reading = ConsumerList::NonAcquiring { caught_up: false };
            let list =
                if self.consumers[consumer].browser.is_some() { reading } else { ConsumerList::Notified };
            note(consumer, list);
        }
        for (_, class) in self.classes.iter() {
            class.line(&self.consumers).for_each(|consumer| note(consumer, ConsumerList::Interested));
            let caught_up = ConsumerList::NonAcquiring { caught_up: true };
            class.caught_up.iter(&self.consumers).for_each(|consumer| note(consumer, caught_up));
        }
        for (_, queue) in self.queues.iter() {
            for list in &queue.not_interested {
                list.iter(&self.consumers).for_each(|consumer| note(consumer, self.consumers[consumer].list));
            }
            for band in &queue.bands {
                band.standby
                    .iter(&self.consumers)
                    .for_each(|consumer| note(consumer, self.consumers[consumer].list));
            }
        }
        assert_eq!(standing.len(), self.consumers.count(), "every consumer is in a list");
        let all: usize =
            self.queues.iter().map(|(_, queue)| queue.consumers.iter(&self.consumers).count()).sum();
        assert_eq!(all, self.consumers.count());
    }

    fn verify_classes(&self) {
        for (index, class) in self.classes.iter() {
            let queue = &self.queues[class.queue];
            let consumers = || self.consumers.iter().filter(|(_, consumer)| consumer.class == index);
            let count = |list| consumers().filter(|(_, consumer)| consumer.list == list).count();
            assert_eq!(class.consumers as usize, consumers().count());
            assert_eq!(class.notified as usize, count(ConsumerList::Notified));
            assert_eq!(class.interested as usize, count(ConsumerList::Interested));
            self.verify_order(index, queue, class);
            assert_eq!(class.bands.iter().map(|band| band.notified).sum::<u32>(), class.notified);
            assert_eq!(class.bands.iter().map(|band| band.interested.count()).sum::<u32>(), class.interested);
            assert_eq!(class.bands.iter().map(|band| band.consumers).sum::<u32>(), class.consumers);
            assert!(
                class.candidates.iter().is_sorted() && class.candidates.len() <= self.limits.candidates_max
            );
            assert_eq!(class.idle_since.is_some(), class.consumers == 0 && !class.is_plain());
            assert!(
                class.mode == AcquireMode::Acquire || class.parked.is_empty() && class.candidates.is_empty()
            );
            for place in &class.parked {
                assert!(self.find_takeable(class.queue, *place).is_some());
                assert!(queue.refusals[place].classes.contains(&index));
            }
            let listed = queue.promised.iter(&self.classes).any(|class| class == index);
            assert_eq!(class.promised, listed);
            if class.mode == AcquireMode::Acquire {
                self.verify_cursor(index, queue);
            }
        }
        for (index, queue) in self.queues.iter() {
            assert_eq!(queue.scans.listed, self.scanning.iter(&self.queues).any(|queue| queue == index));
            assert_eq!(queue.scans.listed, !queue.scans.is_idle() && !queue.scans.waits);
        }
    }

    /// The ready consumers stand in order where loads count, and only there.
    fn verify_order(&self, index: u32, queue: &Queue, class: &Class) {
        for band in &class.bands {
            let ready = self.consumers.iter().filter(|(_, consumer)| {
                consumer.class == index && consumer.priority == band.priority && consumer.is_ready()
            });
            let counts = queue.extras.has(Extras::LOADS);
            assert!(
                counts
                    || self
                        .consumers
                        .iter()
                        .all(|(_, consumer)| consumer.class != index || consumer.load == 0)
            );
            let mut expected = ByLoad::new();
            for (ready, consumer) in ready.filter(|_| counts) {
                let notified = consumer.list == ConsumerList::Notified;
                expected.insert(notified, consumer.holding.count(), consumer.ticket, ready);
            }
            assert_eq!(band.by_load, expected);
        }
    }

    /// What a class knows is what there is.
    fn verify_cursor(&self, index: u32, queue: &Queue) {
        let class = &self.classes[index];
        let mut from = Place::FIRST;
        while let Some(entry) = queue.entries.first_takeable(&self.store, from) {
            let place = self.store.place(entry);
            from = place.next();
            if class.parked.contains(&place) {
                continue;
            }
            if class.is_plain() {
                assert!(place >= class.mark, "what lies before the mark is parked");
            } else if place < class.scanned_to(queue.scans.front) && self.matches(index, entry) {
                assert!(class.candidates.contains(&place), "what matches is known: {place:?}");
            }
        }
        let scans = &queue.scans;
        let listed = |list: &crate::list::List<_>| list.iter(&self.classes).any(|class| class == index);
        assert_eq!(listed(&scans.alone), matches!(class.scan, ScanState::Alone(_)));
        assert_eq!(listed(&scans.waiting), class.scan == ScanState::Waiting);
        assert_eq!(listed(&scans.sweeping), class.scan == ScanState::Sweeping);
    }
}
