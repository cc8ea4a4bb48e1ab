//! Which deliveries of a session are unsettled, in the order of their numbers?
//!
//! Numbers ascend (as serial numbers), with gaps. Removing leaves holes, which go when they reach an end or outnumber
//! the rest: `length ≤ 2 · count + HOLES_MAX`, so memory follows what is unsettled, not how far apart it lies. Adding and
//! removing cost O(1) amortised; a look-up O(1) when there are no gaps, else a binary search.

use std::collections::VecDeque;

use crate::limits::UNSETTLED_KEPT_MAX;
use crate::serial::distance;

/// Holes that are left in place whatever the count is.
const HOLES_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Unsettled<T> {
    entries: VecDeque<Entry<T>>,
    count: usize,
}

#[derive(Debug)]
struct Entry<T> {
    id: u32,
    /// `None`: a hole.
    value: Option<T>,
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position(usize);

impl<T> Unsettled<T> {
    pub(crate) fn new() -> Self {
        Self { entries: VecDeque::new(), count: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The oldest number, if any is unsettled.
    #[inline]
    pub(crate) fn first_id(&self) -> Option<u32> {
        self.entries.front().map(|entry| entry.id)
    }

    /// Adds a number behind all others. The caller keeps `id` within 2^31 of the first.
    #[inline]
    pub(crate) fn push(&mut self, id: u32, value: T) {
        debug_assert!(self.entries.back().is_none_or(|last| distance(last.id, id) > 0), "numbers ascend");
        debug_assert!(self.first_id().is_none_or(|first| distance(first, id) > 0), "numbers can be compared");
        self.entries.push_back(Entry { id, value: Some(value) });
        self.count += 1;
    }

    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<&T> {
        let entry = &self.entries[self.index_of(id)?];
        entry.value.as_ref()
    }

    /// The same with its position, which holds until something is added or removed.
    #[inline]
    pub(crate) fn find_mut(&mut self, id: u32) -> Option<(Position, &mut T)> {
        let index = self.index_of(id)?;
        Some((Position(index), self.entries[index].value.as_mut()?))
    }

    #[cfg(test)]
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        self.remove_at(Position(self.index_of(id)?))
    }

    #[inline]
    pub(crate) fn remove_at(&mut self, position: Position) -> Option<T> {
        let value = self.entries.get_mut(position.0)?.value.take()?;
        self.count -= 1;
        if position.0 == 0 {
            self.entries.pop_front();
        }
        self.trim();
        Some(value)
    }

    /// The first number in `from..=last` that is unsettled.
    #[inline]
    pub(crate) fn next_in(&self, from: u32, last: u32) -> Option<(Position, u32, &T)> {
        let start = self.lower_bound(from);
        for (index, entry) in self.entries.range(start..).enumerate() {
            if distance(entry.id, last) < 0 {
                return None;
            }
            if let Some(value) = &entry.value {
                return Some((Position(start + index), entry.id, value));
            }
        }
        None
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().filter_map(|entry| Some((entry.id, entry.value.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    /// Removes all that do not satisfy `keep`, and all holes.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.entries.retain(|entry| entry.value.as_ref().is_some_and(&mut keep));
        self.count = self.entries.len();
    }

    /// Where `id` stands, hole or not.
    #[inline]
    fn index_of(&self, id: u32) -> Option<usize> {
        let index = self.lower_bound(id);
        (self.entries.get(index)?.id == id).then_some(index)
    }

    /// The index of the first entry whose number is not before `id`.
    #[inline]
    fn lower_bound(&self, id: u32) -> usize {
        let Some(front) = self.entries.front() else { return 0 };
        let ahead = distance(front.id, id);
        // Most are settled in the order in which they were sent.
        if ahead <= 0 {
            return 0;
        }
        let Some(back) = self.entries.back() else { return 0 };
        let left = distance(id, back.id);
        if left < 0 {
            return self.entries.len();
        }
        // Numbers are distinct, so neither end can be further from `id` in entries than in numbers.
        let mut high = (ahead as usize).min(self.entries.len() - 1);
        let mut low = (self.entries.len() - 1).saturating_sub(left as usize);
        if self.entries[low].id == id {
            return low;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if distance(self.entries[middle].id, id) > 0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    #[inline]
    fn trim(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.value.is_none()) {
            self.entries.pop_front();
        }
        while self.entries.back().is_some_and(|entry| entry.value.is_none()) {
            self.entries.pop_back();
        }
        if self.entries.len() > 2 * self.count + HOLES_MAX {
            self.entries.retain(|entry| entry.value.is_some());
        }
        let (places, used) = (self.entries.capacity(), self.entries.len());
        if places > UNSETTLED_KEPT_MAX && places / 4 > used {
            self.entries.shrink_to(UNSETTLED_KEPT_MAX.max(2 * used));
        }
    }

    /// For tests.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Recounts.
    pub(crate) fn verify(&self) {
        assert_eq!(self.entries.iter().filter(|entry| entry.value.is_some()).count(), self.count);
        assert!(self.entries.len() <= 2 * self.count + HOLES_MAX);
        let (front, back) = (self.entries.front(), self.entries.back());
        assert!(front.is_none_or(|entry| entry.value.is_some()), "a hole at the front");
        assert!(back.is_none_or(|entry| entry.value.is_some()), "a hole at the back");
    }
}
