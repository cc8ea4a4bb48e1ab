//! When does a shard's thread give memory back to the machine?
//!
//! The allocator keeps what was freed until it allocates again, which an idle shard does not. So a shard that has nothing to do asks it,
//! before it sleeps, to look after what was freed: at first whole pages are put together, later they are given back, so that takes
//! several rounds.
//!
//! Invariants: nothing is done while there is work; at most once in a [`TIDY_PERIOD_US`], and no more than [`TIDY_ROUNDS`] times when
//! nothing happens any more.
#![expect(unsafe_code, reason = "the allocator is written in C")]

use super::limits::{TIDY_PERIOD_US, TIDY_ROUNDS};

/// When this thread's memory is to be looked after.
#[derive(Debug, Default)]
pub(super) struct Tidy {
    due: Option<u64>,
    /// So many times since something has happened.
    rounds: u32,
    /// When the shard's next timer is due.
    timer: Option<u64>,
}

impl Tidy {
    /// Memory may have been freed.
    pub(super) fn note_work(&mut self, now: u64) {
        self.rounds = 0;
        self.due.get_or_insert(now + TIDY_PERIOD_US);
    }

    /// A turn is over. Timers free memory, too, and nobody else hears of them.
    pub(super) fn end_turn(&mut self, now: u64, busy: bool, next_timer: Option<u64>) {
        let ran = std::mem::replace(&mut self.timer, next_timer).is_some_and(|timer| timer <= now);
        if busy || ran {
            self.note_work(now);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.due
    }

    /// There is nothing to do: true if it is time to look after memory.
    pub(super) fn take_due(&mut self, now: u64) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.rounds += 1;
            self.due = (self.rounds < TIDY_ROUNDS).then_some(now + TIDY_PERIOD_US);
        }
        is_due
    }
}

/// Gives back what this thread has freed a while ago, and puts together what it has freed since.
pub(super) fn give_back() {
    // SAFETY: it may be called at any time on any thread.
    unsafe { libmimalloc_sys::mi_collect(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_times_after_work_and_never_without() {
        let mut tidy = Tidy::default();
        assert!(!tidy.take_due(u64::MAX));
        for start in [1_000, 1_000_000_000] {
            tidy.note_work(start);
            tidy.note_work(start + 1_000);
            let mut now = start;
            for _ in 0..TIDY_ROUNDS {
                assert_eq!(tidy.next_deadline(), Some(now + TIDY_PERIOD_US));
                assert!(!tidy.take_due(now + TIDY_PERIOD_US - 1));
                now += TIDY_PERIOD_US;
                assert!(tidy.take_due(now));
            }
            assert_eq!(tidy.next_deadline(), None);
            assert!(!tidy.take_due(u64::MAX));
        }
    }

    #[test]
    fn timers_that_run_are_work() {
        let mut tidy = Tidy::default();
        tidy.end_turn(0, false, Some(1_000));
        tidy.end_turn(999, false, Some(1_000));
        assert_eq!(tidy.next_deadline(), None);
        tidy.end_turn(1_000, false, Some(5_000));
        assert_eq!(tidy.next_deadline(), Some(1_000 + TIDY_PERIOD_US));
        let mut tidy = Tidy::default();
        tidy.end_turn(1_000, true, None);
        assert_eq!(tidy.next_deadline(), Some(1_000 + TIDY_PERIOD_US));
    }

    #[test]
    fn work_that_goes_on_brings_no_more_of_it() {
        let mut tidy = Tidy::default();
        let rounds = (0..100).filter(|step| {
            let now = step * TIDY_PERIOD_US / 10;
            tidy.note_work(now);
            tidy.take_due(now)
        });
        assert_eq!(rounds.count(), 9);
    }
}
