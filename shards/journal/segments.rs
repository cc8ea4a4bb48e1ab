//! Which segments are still needed, and which are worth cleaning?
//!
//! Of every closed segment:
//! - `things`: bytes of its messages, definitions, prepared and decided transactions that are still valid;
//! - `pins`: older segments, about whose records something is said here, which is therefore needed as long as those are there; with
//!   the bytes that say so and have to be said again;
//! - `shared`: bytes of what is said about several segments at once, needed while there is any pin.
//!
//! Invariants: a pin points to an older segment that is there; so the oldest has none, and there is always a way on.
//! `free ⇔ things = 0 ∧ no pins`; but what is being cleaned stays until that is done, as it is being read.
//!
//! Cleaning comes to an end: what it frees is twice what it writes, or so much else has to be written before the next time as it has
//! written. So it never writes more than three times what is said, whatever it cannot know: how much of what is said about messages
//! still holds, and what is lost to padding.
//!
//! A pin is a *copy* if a message of the older segment was written again here. What later removes that message names this segment
//! only, so this one stays until the older one has gone, even if nothing else in it is needed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) bytes: u64,
    pub(crate) copy: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) size: u32,
    pub(crate) epoch: u64,
    /// The number after that of its last batch.
    pub(crate) batch_end: u64,
    pub(crate) things: u64,
    pub(crate) shared: u64,
    pub(crate) pins: BTreeMap<u32, Pin>,
    /// Bytes of all pins.
    pub(crate) pinned: u64,
    /// It cannot be cleaned: it cannot be read, or has things of which nobody knows.
    pub(crate) is_bad: bool,
}

/// What a batch says, until it is known in which segment it lies.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) things: u64,
    pub(crate) shared: u64,
    pub(crate) pins: BTreeMap<u32, Pin>,
    /// Segment and length of what is no longer valid.
    pub(crate) gone: Vec<(u32, u64)>,
    /// What was still needed of it has been said again.
    pub(crate) cleaned: Option<u32>,
    /// Bytes of what is said again.
    pub(crate) again: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    table: BTreeMap<u32, Segment>,
    cleaning: Option<u32>,
    /// Bytes that were written for the segment that is being cleaned.
    spent: u64,
    /// Bytes of anything else that are to be written before another one is cleaned.
    unpaid: u64,
    /// There may be a free one.
    may_free: bool,
    /// There may be one to clean.
    may_clean: bool,
}

impl Segment {
    /// What cleaning would have to write again.
    fn live(&self) -> u64 {
        self.things + self.pinned + if self.pins.is_empty() { 0 } else { self.shared }
    }

    fn is_free(&self) -> bool {
        self.things == 0 && self.pins.is_empty()
    }

    pub(crate) fn pin(&mut self, older: u32, bytes: u64, copy: bool) {
        self.pinned += bytes;
        pin(&mut self.pins, older, bytes, copy);
    }

    fn unpin(&mut self, older: u32) {
        self.pinned -= self.pins.remove(&older).map_or(0, |pin| pin.bytes);
    }
}

fn pin(pins: &mut BTreeMap<u32, Pin>, older: u32, bytes: u64, copy: bool) {
    let pin = pins.entry(older).or_default();
    pin.bytes += bytes;
    pin.copy |= copy;
}

impl Account {
    pub(crate) fn pin(&mut self, older: u32, bytes: u32, copy: bool) {
        pin(&mut self.pins, older, bytes.into(), copy);
    }

    pub(crate) fn clear(&mut self) {
        self.things = 0;
        self.shared = 0;
        self.pins.clear();
        self.gone.clear();
        self.cleaned = None;
        self.again = 0;
    }
}

impl Segments {
    pub(crate) fn insert(&mut self, number: u32, segment: Segment) {
        self.note_changed();
        let before = self.table.insert(number, segment);
        debug_assert!(before.is_none(), "segment numbers are not used twice");
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Segment> {
        self.table.get(&number)
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.table.contains_key(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.table.iter().map(|(number, segment)| (*number, segment))
    }

    pub(crate) fn numbers_in(&self, range: RangeInclusive<u32>) -> impl Iterator<Item = u32> {
        let (start, end) = range.into_inner();
        self.table.range(start..).map(|(number, _)| *number).take_while(move |number| *number <= end)
    }

    pub(crate) fn leave_uncleaned(&mut self, number: u32) {
        if self.is_cleaning(number) {
            self.end_cleaning(0);
            self.change(number, |segment| segment.is_bad = true);
        }
    }

    /// A batch of so many bytes is written, of which so many say something again.
    pub(crate) fn count_written(&mut self, bytes: u64, again: u64) {
        self.spent += again;
        self.unpaid = self.unpaid.saturating_sub(bytes - again);
    }

    /// What was being cleaned is done with; so many bytes are free then.
    fn end_cleaning(&mut self, freed: u32) {
        self.cleaning = None;
        let spent = std::mem::take(&mut self.spent);
        if 2 * spent > u64::from(freed) {
            self.unpaid += spent;
        }
    }

    pub(crate) fn is_cleaning(&self, number: u32) -> bool {
        self.cleaning == Some(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    fn note_changed(&mut self) {
        (self.may_free, self.may_clean) = (true, true);
    }

    pub(crate) fn change(&mut self, number: u32, how: impl FnOnce(&mut Segment)) {
        self.note_changed();
        if let Some(segment) = self.table.get_mut(&number) {
            how(segment);
        }
    }

    /// A thing is no longer valid. Of a segment that has gone meanwhile there is nothing to say.
    pub(crate) fn forget(&mut self, segment: u32, length: u64) {
        if let Some(segment) = self.table.get_mut(&segment) {
            debug_assert!(segment.things >= length, "a thing goes once");
            segment.things = segment.things.saturating_sub(length);
            self.may_free |= segment.things == 0;
            self.may_clean = true;
        }
    }

    /// A batch of `current` says this; it ends the numbers of batches there.
    pub(crate) fn settle(&mut self, current: u32, batch_end: u64, account: &Account) {
        let mut pins: Vec<(u32, Pin)> = account.pins.iter().map(|(older, pin)| (*older, *pin)).collect();
        pins.retain(|(older, _)| *older < current && self.contains(*older));
        let segment = self.table.get_mut(&current).expect("the segment that is written is there");
        segment.batch_end = batch_end;
        segment.things += account.things;
        segment.shared += account.shared;
        for (older, pin) in pins {
            segment.pin(older, pin.bytes, pin.copy);
        }
        for (number, length) in &account.gone {
            self.forget(*number, *length);
        }
        self.may_clean = true;
        if let Some(number) = account.cleaned {
            self.end_cleaning(self.table.get(&number).map_or(0, |segment| segment.size));
            self.may_free = true;
            if let Some(segment) = self.table.get_mut(&number) {
                segment.shared = 0;
                segment.pins.retain(|_, pin| pin.copy);
                segment.pins.values_mut().for_each(|pin| pin.bytes = 0);
                segment.pinned = 0;
                // Nobody has said again what is left, and it would be the same the next time.
                segment.is_bad |= segment.things > 0;
            }
        }
    }

    pub(crate) fn any_free(&mut self, current: u32) -> bool {
        let is_free = |(number, segment): (&u32, &Segment)| segment.is_free() && !self.is_cleaning(*number);
        self.may_free = self.may_free && self.table.range(..current).any(is_free);
        self.may_free
    }

    /// The segments older than `current` that nothing needs without so many bytes of things, by segment; with all that there are of them.
    pub(crate) fn free_without(&self, current: u32, gone: &BTreeMap<u32, u64>) -> Vec<(u32, u64)> {
        let mut free: Vec<(u32, u64)> = Vec::new();
        for (number, segment) in self.table.range(..current) {
            let is_free = |older: &u32| free.binary_search_by_key(older, |(number, _)| *number).is_ok();
            let is_pinned = !segment.pins.keys().all(is_free);
            let things = segment.things - gone.get(number).map_or(0, |gone| segment.things.min(*gone));
            if things == 0 && !is_pinned && !self.is_cleaning(*number) {
                free.push((*number, segment.things));
            }
        }
        free
    }

    /// Takes out what nothing needs, older than `current`. Pins point to older ones, so one pass in order finds all.
    pub(crate) fn take_free(&mut self, current: u32) -> Vec<u32> {
        let mut freed = Vec::new();
        let numbers: Vec<u32> = self.table.range(..current).map(|(number, _)| *number).collect();
        for number in numbers {
            if self.table.get(&number).is_some_and(Segment::is_free) && !self.is_cleaning(number) {
                self.table.remove(&number);
                self.may_clean = true;
                for (_, segment) in self.table.range_mut(number..) {
                    segment.unpin(number);
                }
                freed.push(number);
            }
        }
        freed
    }

    /// The segment to clean, if dead space outweighs: more than half of all, and more than `idle` bytes.
    pub(crate) fn next_to_clean(&mut self, current: u32, idle: u64) -> Option<u32> {
        if self.cleaning.is_some() || self.unpaid > 0 || !std::mem::take(&mut self.may_clean) {
            return None;
        }
        let closed = || self.table.range(..current);
        let total: u64 = closed().map(|(_, segment)| u64::from(segment.size)).sum();
        let live: u64 = closed().map(|(_, segment)| segment.live()).sum();
        if total <= 2 * live + idle {
            return None;
        }
        let first = |(number, segment)| self.first_to_clean(number, segment).map(|first| (first, segment));
        let parts = |segment: &Segment| segment.live() * 1024 / u64::from(segment.size.max(1));
        let sparsest = closed().map(|(number, segment)| (*number, segment)).filter_map(first);
        self.cleaning = sparsest.min_by_key(|(_, segment)| parts(segment)).map(|(first, _)| first);
        self.spent = 0;
        self.cleaning
    }

    /// What is to be cleaned so that a segment becomes free; none if that cannot be. One with copies of an older one's messages would not
    /// be free before that one is.
    fn first_to_clean<'a>(&'a self, mut number: u32, mut segment: &'a Segment) -> Option<u32> {
        while let Some(older) = oldest_copied(segment) {
            (number, segment) = (older, self.table.get(&older)?);
        }
        (!segment.is_free() && !segment.is_bad).then_some(number)
    }
}

fn oldest_copied(segment: &Segment) -> Option<u32> {
    segment.pins.iter().find(|(_, pin)| pin.copy).map(|(older, _)| *older)
}
