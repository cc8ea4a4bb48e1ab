//! How does a message get into a queue, and an entry into and out of the reach of consumers?
//!
//! Entry states: enqueued as Available or Held; Held → Available when the hold ends; Available → Acquired by a pull;
//! Acquired → Available when it comes back (those of transactions: see `transaction`). An available entry is *exposed* (takeable) unless it waits in its group's FIFO.

use std::hash::BuildHasher;

use crate::class::{Offer, ScanState};
use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message, Reader};
use crate::entry::{EntryRef, State};
use crate::ids::{Origin, Place, QueueId};
use crate::properties::{DeadLetter, DeadLetterReason, EnqueueRefusal, Publication, Spent};
use crate::queue::{Extras, Matching};
use crate::slots::NONE;
use crate::stored::Stored;

/// What comes to be at a new entry.
pub(crate) struct Occupant<M> {
    pub(crate) stored: Stored<M>,
    pub(crate) size: usize,
    pub(crate) is_kept: bool,
    pub(crate) group: u32,
    pub(crate) origin: Origin,
    pub(crate) expires_at: Option<u64>,
    pub(crate) held_until: Option<u64>,
    pub(crate) pending: bool,
    pub(crate) last_value: Option<Box<[u8]>>,
}

impl<M: Message> Engine<M> {
    /// Puts a message into a queue. If it is available at once, one ready consumer that can take it is notified.
    pub fn enqueue(
        &mut self,
        now: u64,
        queue: QueueId,
        publication: Publication<M>,
    ) -> Result<Place, (M, EnqueueRefusal)> {
        let Some(index) = self.resolve_queue(queue) else {
            return Err((publication.message, EnqueueRefusal::QueueGone));
        };
        self.now = now;
        let size = publication.message.size() as u64;
        let held_until = publication.held_until.filter(|until| *until > now);
        let waits = publication.pending || held_until.is_some();
        let key = publication.last_value.as_ref().filter(|_| !waits);
        let replaced = key.and_then(|key| self.find_replaced(index, key));
        if let Err(refusal) = self.admit(index, size, replaced, publication.pending) {
            self.queues[index].counters.refused_publications += 1;
            return Err((publication.message, refusal));
        }
        let queue = &mut self.queues[index];
        let level = queue.entries.level(queue.properties.priorities, publication.priority);
        let Some(entry) = self.store.append(&mut queue.entries.trees[level], index, level) else {
            queue.counters.refused_publications += 1;
            return Err((publication.message, EnqueueRefusal::ShardFull));
        };
        let expires_at = match queue.properties.expiration_us {
            Some(0) => None,
            Some(after) => Some(now.saturating_add(after)),
            None => publication.expires_at,
        };
        if !publication.pending {
            queue.counters.enqueued += 1;
        }
        let Publication { message, origin, pending, last_value, .. } = publication;
        let group = self.intern(index, message.group());
        let occupant = Occupant {
            size: size as usize,
            is_kept: message.is_kept(),
            stored: Stored::Here(message),
            group,
            origin,
            expires_at,
            held_until,
            pending,
            last_value,
        };
        let place = self.occupy(now, index, entry, occupant);
        if !waits {
            self.note_too_large(index, place, size);
        }
        Ok(place)
    }

    /// The group of this name, with one entry more.
    #[inline(always)]
    pub(crate) fn intern(&mut self, queue: u32, name: Option<&str>) -> u32 {
        name.map_or(NONE, |name| {
            let hash = self.hasher.hash_one(name);
            let groups = &mut self.queues[queue].groups;
            let group = groups.intern(name, hash);
            groups.groups[group].entries += 1;
            group
        })
    }

    /// Fills a new entry, and shows it to those that may see it.
    #[inline(always)]
    pub(crate) fn occupy(&mut self, now: u64, index: u32, entry: EntryRef, occupant: Occupant<M>) -> Place {
        let Occupant { stored, size, is_kept, group, origin, expires_at, held_until, pending, last_value } =
            occupant;
        let queue = &mut self.queues[index];
        let blocks = queue.extras.has(Extras::BLOCKS);
        queue.entries.messages += 1;
        queue.entries.bytes += size as u64;
        let new = self.store.entry_mut(entry);
        new.fill(stored, short(size), origin, expires_at);
        new.group = group;
        if is_kept {
            new.set_kept();
        }
        let place = self.store.place(entry);
        if pending {
            self.suspend(entry, held_until);
        } else {
            self.introduce(now, entry, held_until, false, Cause::Published);
        }
        // Now that its group knows it: the older one may be of the same.
        if let Some(key) = last_value {
            self.note_key(index, entry, key, pending || held_until.is_some());
        }
        if blocks {
            self.note_room(index);
        }
        place
    }

    /// An entry that is new to everybody: it is available, or held until a time. `late`: see `become_available`.
    pub(crate) fn introduce(
        &mut self,
        now: u64,
        entry: EntryRef,
        held_until: Option<u64>,
        late: bool,
        cause: Cause,
    ) {
        let stored = self.store.entry_mut(entry);
        let (group, expires_at) = (stored.group, stored.expires_at());
        let Some(until) = held_until else {
            stored.set_state(State::Available);
            if let Some(time) = expires_at {
                self.set_timer(now, entry, time);
            }
            return self.become_available(entry, late, cause);
        };
        self.hold(now, entry, until);
        if group != NONE {
            // It has an entry now, although nothing to show.
            self.refresh_group(self.store.queue(entry), group, cause);
        }
    }

    /// An entry waits until a time. One that has failed before holds its group back; the caller refreshes that.
    pub(crate) fn hold(&mut self, now: u64, entry: EntryRef, until: u64) {
        let stored = self.store.entry_mut(entry);
        stored.set_state(State::Held);
        let (group, has_failed) = (stored.group, stored.delivery_count() > 0);
        self.set_hold_timer(now, entry, until);
        let place = self.store.place(entry);
        let queue = &mut self.queues[self.store.queue(entry)];
        queue.entries.held += 1;
        if group != NONE && has_failed {
            queue.groups.groups[group].delay(place, true);
        }
    }

    /// An entry is held no longer; the caller says what it is now.
    pub(crate) fn end_hold(&mut self, entry: EntryRef) {
        let (group, place) = (self.store.entry(entry).group, self.store.place(entry));
        let queue = &mut self.queues[self.store.queue(entry)];
        queue.entries.held -= 1;
        if group != NONE {
            queue.groups.groups[group].delay(place, false);
        }
    }

    /// An entry whose state is Available from now on. `late`: others behind it may have been available before.
    pub(crate) fn become_available(&mut self, entry: EntryRef, late: bool, cause: Cause) {
        let (queue, group, seen) = {
            let stored = self.store.entry_mut(entry);
            let seen = stored.seen();
            stored.set_seen();
            (self.store.queue(entry), self.store.entry(entry).group, seen)
        };
        if !seen && self.queues[queue].late.browsers > 0 {
            self.show_browsers(queue, entry, late);
        }
        if group == NONE {
            self.expose(queue, entry, cause);
        } else {
            self.join_group(queue, group, entry, cause);
        }
    }

    /// Puts an available entry in reach of consumers, and tells one.
    pub(crate) fn expose(&mut self, queue: u32, entry: EntryRef, cause: Cause) {
        let place = self.store.place(entry);
        let state = &mut self.queues[queue];
        state.entries.set_takeable(&mut self.store, entry, place);
        let plain = state.plain;
        if plain != NONE {
            let class = &mut self.classes[plain];
            class.mark = class.mark.min(place);
            if state.matching.count == 0 {
                if class.interested > 0 {
                    self.notify_work(entry, &[plain], cause);
                }
                return;
            }
        } else if state.matching.count == 0 {
            return;
        }
        if self.store.entry(entry).is_away() {
            // What has a filter knows it when it is read.
            self.want(entry);
        }
        let mut matched = std::mem::take(&mut self.matched);
        self.match_acquiring(entry, &mut matched);
        matched.retain(|class| *class == plain || self.offer(*class, place));
        self.notify_work(entry, &matched, cause);
        matched.clear();
        self.matched = matched;
    }

    /// Takes an entry out of reach.
    pub(crate) fn unexpose(&mut self, queue: u32, entry: EntryRef) {
        let place = self.store.place(entry);
        let state = &mut self.queues[queue];
        state.entries.clear_takeable(&mut self.store, entry, place);
        if self.store.entry(entry).refused()
            && let Some(refusal) = state.refusals.get_mut(&place)
        {
            for class in refusal.classes.drain(..) {
                self.classes[class].parked.remove(&place);
            }
        }
        if !state.yields.is_empty() {
            self.resume_yielded(queue, place..=place);
        }
    }

    /// Takes an available or held entry out of everything that would give it to somebody.
    pub(crate) fn withdraw(&mut self, entry: EntryRef) {
        let queue = self.store.queue(entry);
        let (state, group) = (self.store.entry(entry).state(), self.store.entry(entry).group);
        match state {
            State::Held => self.end_hold(entry),
            State::Available if group == NONE => self.unexpose(queue, entry),
            State::Available => self.leave_group(queue, group, entry),
            State::Acquired | State::Pending | State::Retired | State::Vacant => {
                unreachable!("only what nobody holds is withdrawn")
            }
        }
    }

    /// Removes an entry that is in no list any more.
    pub(crate) fn remove_entry(&mut self, entry: EntryRef) -> Stored<M> {
        let place = self.store.place(entry);
        let index = self.store.queue(entry);
        self.measure_lent();
        self.clear_timer(entry);
        if self.store.entry(entry).is_noted() {
            self.forget_refusals(index, place);
            self.forget_last(index, place);
        }
        let (group, size) = (self.store.entry(entry).group, self.store.entry(entry).size());
        let queue = &mut self.queues[index];
        let message = self.store.remove(queue.entries.tree_mut(place), entry);
        queue.entries.messages -= 1;
        queue.entries.bytes -= size;
        let blocks = queue.extras.has(Extras::BLOCKS);
        if group != NONE {
            queue.groups.groups[group].entries -= 1;
            self.refresh_group(index, group, Cause::GroupFreed);
        }
        if blocks {
            self.note_room(index);
        }
        message
    }

    /// Removes an entry that is in no list any more, for good.
    #[inline]
    pub(crate) fn spend(&mut self, entry: EntryRef) {
        let spent = self.store.entry(entry);
        let at = (spent.kept() || spent.is_away())
            .then(|| (self.queue_id(self.store.queue(entry)), self.store.place(entry)));
        let message = self.remove_entry(entry);
        self.spent.push(Spent { message, at });
    }

    /// Removes an entry that is in no list any more and was not consumed: as a dead letter where the queue wants that.
    pub(crate) fn bury(&mut self, entry: EntryRef, reason: DeadLetterReason) {
        let queue = self.store.queue(entry);
        let counters = &mut self.queues[queue].counters;
        match reason {
            DeadLetterReason::Rejected => counters.rejected += 1,
            DeadLetterReason::Expired => counters.expired += 1,
            DeadLetterReason::DeliveriesMax => counters.exhausted += 1,
            DeadLetterReason::Overflow => counters.dropped += 1,
            DeadLetterReason::Deleted => {}
        }
        let stored = self.store.entry(entry);
        let (delivery_count, acquired_count) = (stored.delivery_count(), stored.acquired_count());
        let place = self.store.place(entry);
        let message = self.remove_entry(entry);
        let id = self.queue_id(queue);
        if self.queues[queue].properties.dead_letter {
            self.dead_letters.push_back(DeadLetter {
                queue: id,
                place,
                message,
                reason,
                delivery_count,
                acquired_count,
            });
        } else {
            self.spent.push(Spent { message, at: Some((id, place)) });
        }
    }

    /// Buries what consumers of a queue hold, and what they have retired, in the order of places.
    pub(crate) fn bury_held(&mut self, queue: u32) {
        let state = &self.queues[queue];
        let holding = state.consumers.iter(&self.consumers).map(|index| &self.consumers[index].holding);
        let mut held: Vec<EntryRef> = holding.flat_map(|held| held.iter(&self.store)).map(EntryRef).collect();
        let retired = state.entries.retired as usize;
        let is_retired = |entry: &EntryRef| self.store.entry(*entry).state() == State::Retired;
        held.extend(self.live(queue, Place::FIRST).filter(is_retired).take(retired));
        held.sort_unstable_by_key(|entry| self.store.place(*entry));
        for entry in held {
            let stored = self.store.entry(entry);
            if stored.state() == State::Retired {
                self.end_retired(entry);
            } else {
                self.release_hold(stored.holder, entry);
            }
            self.bury(entry, DeadLetterReason::Deleted);
        }
    }

    /// An entry that nobody holds dies. False: it is not there (any more).
    pub fn kill(&mut self, now: u64, queue: QueueId, place: Place, reason: DeadLetterReason) -> bool {
        self.now = now;
        let entry = self.resolve_queue(queue).and_then(|queue| self.find(queue, place));
        let Some(entry) = entry.filter(|entry| self.store.entry(*entry).is_free()) else { return false };
        self.withdraw(entry);
        self.bury(entry, reason);
        true
    }

    /// The classes among these that an entry is for. Answers how many nodes of filters were evaluated for it.
    pub(crate) fn match_classes(&self, matching: &Matching, entry: EntryRef, matched: &mut Vec<u32>) -> u64 {
        matched.clear();
        if matching.count == 0 {
            return 0;
        }
        matched.extend_from_slice(&matching.unfiltered);
        if let Some(reader) = Reader::new(&self.store, entry) {
            matching.index.candidates(&reader, |class| matched.push(class));
        }
        let mut work = 0;
        matched.retain(|class| {
            work += self.classes[*class].node_count() as u64;
            self.matches(*class, entry)
        });
        work
    }

    /// Whether an entry is for a class.
    pub(crate) fn matches(&self, class: u32, entry: EntryRef) -> bool {
        let class = &self.classes[class];
        if class.no_local.is_some_and(|origin| origin == self.store.entry(entry).origin()) {
            return false;
        }
        match (&class.filter, Reader::new(&self.store, entry)) {
            (None, _) => true,
            (Some(filter), Some(reader)) => filter.matches(&reader),
            (Some(_), None) => false,
        }
    }

    /// Notes an entry that matches and is takeable with a filtered class. False: the class will find it by scanning.
    pub(crate) fn offer(&mut self, class: u32, place: Place) -> bool {
        let state = &mut self.classes[class];
        let queue = &self.queues[state.queue];
        let (front, store) = (queue.scans.front, &self.store);
        let is_gone = |place| queue.entries.find(store, place).is_none_or(|entry| !store.is_takeable(entry));
        match state.offer(place, front, self.limits.candidates_max, is_gone) {
            Offer::Kept => true,
            Offer::Beyond => {
                self.keep_going(class);
                false
            }
            Offer::Full { kept, scanned_to } => {
                self.set_scan(class, ScanState::Resting(scanned_to));
                self.keep_going(class);
                let queue = self.classes[class].queue;
                if !self.queues[queue].yields.is_empty() {
                    self.resume_yielded(queue, scanned_to..=Place::END);
                }
                // What the class has forgotten for it may have been promised to its consumers.
                if kept && let Some(forgotten) = self.find_takeable(queue, scanned_to) {
                    self.cover(forgotten, None);
                }
                kept
            }
        }
    }

    /// A full class finds what it does not know when its candidates run low, so somebody must be taking them, or parking them if
    /// they are refused.
    pub(crate) fn keep_going(&mut self, class: u32) {
        let state = &self.classes[class];
        if matches!(state.scan, ScanState::Resting(_))
            && state.notified == 0
            && let Some(first) = state.first_in_line()
        {
            self.transition(first, ConsumerList::Notified, Cause::MoreWork);
        }
    }
}

/// Bytes of a message as its entry notes them: none is larger.
pub(crate) fn short(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
