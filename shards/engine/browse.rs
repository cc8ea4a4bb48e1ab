//! What does a browser see?
//!
//! Each entry at most once. Its cursor, one a level, moves over the entries by place and stops at those that are available and
//! match. An entry that becomes available for the first time behind cursors (a delay that ended) is put into the queue's list
//! of late ones, which every browser reads before it moves on; so it meets each entry by one of the two ways and never by both.
//! An entry that comes back after it was acquired is not shown again.
//!
//! A browser that has seen everything stands apart, and is told when something becomes available for the first time.

use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::pull::Next;
use crate::queue::LATE_MIN;
use crate::slots::NONE;

impl<M: Message> Engine<M> {
    /// Tells browsers of an entry that is available for the first time.
    pub(crate) fn show_browsers(&mut self, queue: u32, entry: EntryRef, late: bool) {
        let place = self.store.place(entry);
        if late {
            let state = &mut self.queues[queue].late;
            state.entries.push_back((state.next, place));
            state.next += 1;
            if state.entries.len() >= state.compact_at {
                self.compact_late(queue);
            }
        }
        let mut matched = std::mem::take(&mut self.matched);
        self.work += self.match_classes(&self.queues[queue].browse_matching, entry, &mut matched);
        if self.store.entry(entry).is_away() {
            // Whether it is for them they see when it has been read.
            let browsers = self.queues[queue].consumers.iter(&self.consumers);
            let browsers = browsers.filter(|index| self.consumers[*index].browser.is_some());
            matched.extend(browsers.map(|index| self.consumers[index].class));
        }
        let plain = self.queues[queue].browse_plain;
        if plain != NONE {
            matched.push(plain);
        }
        for class in &matched {
            while let Some(index) = self.classes[*class].caught_up.first() {
                // What lies between its cursor and a new entry is not for it: it would have been told.
                if let (Some(browser), false) = (&mut self.consumers[index].browser, late) {
                    let cursor = &mut browser.cursors[place.level()];
                    *cursor = (*cursor).max(place.sequence());
                }
                self.transition(index, ConsumerList::NonAcquiring { caught_up: false }, Cause::Published);
            }
        }
        matched.clear();
        self.matched = matched;
    }

    /// Moves a browser's cursor past the next entry for it.
    pub(crate) fn next_to_browse(&mut self, now: u64, index: u32) -> Next {
        let Some(mut browser) = self.consumers[index].browser.take() else {
            unreachable!("a consumer of a browsing class is a browser");
        };
        let mut steps = self.limits.pull_steps_max;
        let mut next = self.next_late(now, index, &mut browser, &mut steps);
        let levels = self.queues[self.consumers[index].queue].entries.trees.len();
        for level in 0..levels {
            if next == Next::Nothing {
                next = self.next_on_level(now, index, &mut browser.cursors[level], level, &mut steps);
            }
        }
        let looked_at = self.limits.pull_steps_max - steps;
        self.work += (looked_at * self.classes[self.consumers[index].class].node_count()) as u64;
        self.consumers[index].browser = Some(browser);
        next
    }

    fn next_late(
        &self,
        now: u64,
        index: u32,
        browser: &mut crate::consumer::Browser,
        steps: &mut usize,
    ) -> Next {
        let queue = self.consumers[index].queue;
        let late = &self.queues[queue].late;
        let first = browser.unread_late(&late.entries);
        for (ordinal, place) in late.entries.range(first..) {
            if *steps == 0 {
                return Next::Busy;
            }
            *steps -= 1;
            let passed = place.sequence() < browser.cursors[place.level()];
            let entry = self.find(queue, *place).filter(|_| passed);
            if let Some(entry) = entry.filter(|entry| self.is_to_be_read(now, *entry)) {
                return Next::Away(entry);
            }
            browser.late = ordinal + 1;
            if let Some(entry) = entry.filter(|entry| self.is_visible(now, index, *entry)) {
                return Next::Entry { entry, owned: false };
            }
        }
        browser.late = late.next;
        Next::Nothing
    }

    fn next_on_level(&self, now: u64, index: u32, cursor: &mut u64, level: usize, steps: &mut usize) -> Next {
        let tree = &self.queues[self.consumers[index].queue].entries.trees[level];
        while let Some(entry) = self.store.first_live(tree, *cursor) {
            if *steps == 0 {
                return Next::Busy;
            }
            *steps -= 1;
            if self.is_to_be_read(now, entry) {
                return Next::Away(entry);
            }
            *cursor = self.store.place(entry).sequence() + 1;
            if self.is_visible(now, index, entry) {
                return Next::Entry { entry, owned: false };
            }
        }
        Next::Nothing
    }

    /// Whether only its message tells if an entry is for a browser.
    fn is_to_be_read(&self, now: u64, entry: EntryRef) -> bool {
        let stored = self.store.entry(entry);
        stored.is_away() && stored.state() == State::Available && !stored.is_expired(now)
    }

    fn is_visible(&self, now: u64, index: u32, entry: EntryRef) -> bool {
        let stored = self.store.entry(entry);
        stored.state() == State::Available
            && !stored.is_expired(now)
            && self.matches(self.consumers[index].class, entry)
    }

    /// Drops late entries that are gone, or that every browser has read.
    fn compact_late(&mut self, queue: u32) {
        let state = &self.queues[queue];
        let browsers = state.consumers.iter(&self.consumers);
        let read = browsers.filter_map(|index| Some(self.consumers[index].browser.as_ref()?.late)).min();
        let mut late = std::mem::take(&mut self.queues[queue].late.entries);
        late.retain(|(ordinal, place)| {
            read.is_some_and(|read| *ordinal >= read) && self.find(queue, *place).is_some()
        });
        let state = &mut self.queues[queue].late;
        state.compact_at = (late.len() * 2).max(LATE_MIN);
        state.entries = late;
    }
}
