//! Did every message arrive, once, and in order?
//!
//! `sent = delivered + missing` when nothing is on its way; each number is marked when it comes. Marks are kept for the
//! `WINDOW` numbers behind the first that is missing; what is still missing when the window must move on is lost, and an
//! arrival after that is counted as late.

const WORDS: usize = 1 << 10;
const WINDOW: u64 = WORDS as u64 * 64;

/// What arrived of one producer's messages.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// All below have come or are given up.
    base: u64,
    /// One above the highest that came.
    next: u64,
    marks: Box<[u64; WORDS]>,
    pub delivered: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub late: u64,
    given_up: u64,
}

impl Default for Ledger {
    fn default() -> Ledger {
        let marks = Box::new([0; WORDS]);
        Ledger { base: 0, next: 0, marks, delivered: 0, duplicated: 0, reordered: 0, late: 0, given_up: 0 }
    }
}

impl Ledger {
    /// Notes an arrival. Whether it is the first of this number.
    #[inline]
    pub fn note(&mut self, sequence: u64) -> bool {
        if sequence == self.base && sequence == self.next {
            self.base += 1;
            self.next += 1;
            self.delivered += 1;
            return true;
        }
        self.note_out_of_line(sequence)
    }

    /// Of the numbers below `sent`, those that have not come.
    pub fn missing(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.delivered)
    }

    fn note_out_of_line(&mut self, sequence: u64) -> bool {
        if sequence < self.base {
            // Whether it came already is known unless numbers were given up.
            if self.given_up > self.late {
                self.late += 1;
            } else {
                self.duplicated += 1;
            }
            return false;
        }
        while sequence >= self.base + WINDOW {
            self.given_up += u64::from(!self.take_mark(self.base));
            self.base += 1;
        }
        let (word, bit) = place(sequence);
        if self.marks[word] & bit != 0 {
            self.duplicated += 1;
            return false;
        }
        self.marks[word] |= bit;
        self.delivered += 1;
        if sequence < self.next {
            self.reordered += 1;
        }
        self.next = self.next.max(sequence + 1);
        while self.base < self.next && self.take_mark(self.base) {
            self.base += 1;
        }
        true
    }

    fn take_mark(&mut self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        let marked = self.marks[word] & bit != 0;
        self.marks[word] &= !bit;
        marked
    }
}

fn place(sequence: u64) -> (usize, u64) {
    let index = sequence % WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes `arrivals` of `sent` messages: delivered, missing, duplicated, reordered.
    fn check(sent: u64, arrivals: impl IntoIterator<Item = u64>, expect: (u64, u64, u64, u64)) {
        let mut ledger = Ledger::default();
        for sequence in arrivals {
            ledger.note(sequence);
        }
        let got = (ledger.delivered, ledger.missing(sent), ledger.duplicated, ledger.reordered);
        assert_eq!(got, expect);
    }

    #[test]
    fn all_in_order() {
        check(0, [], (0, 0, 0, 0));
        check(3, [0, 1, 2], (3, 0, 0, 0));
        check(1_000_000, 0..1_000_000, (1_000_000, 0, 0, 0));
    }

    #[test]
    fn losses() {
        check(3, [], (0, 3, 0, 0));
        check(3, [0, 2], (2, 1, 0, 0));
        check(3, [1, 2], (2, 1, 0, 0));
        check(1000, (0..1000).filter(|n| n % 10 != 0), (900, 100, 0, 0));
        check(200_000, (0..200_000).filter(|n| n % 1000 != 7), (199_800, 200, 0, 0));
    }

    #[test]
    fn duplicates() {
        check(3, [0, 1, 1, 2, 0], (3, 0, 2, 0));
        check(4, [0, 2, 2, 3, 3, 1, 1], (4, 0, 3, 1));
    }

    #[test]
    fn another_order() {
        check(4, [1, 0, 3, 2], (4, 0, 0, 2));
        check(4, [3, 2, 1, 0], (4, 0, 0, 3));
        let swapped = (0..200_000).map(|n: u64| n ^ 1);
        check(200_000, swapped, (200_000, 0, 0, 100_000));
    }

    #[test]
    fn an_arrival_long_after_its_place_is_late_and_not_delivered() {
        let mut ledger = Ledger::default();
        for sequence in (1..2 * WINDOW).chain([0]) {
            ledger.note(sequence);
        }
        assert_eq!((ledger.delivered, ledger.late, ledger.duplicated), (2 * WINDOW - 1, 1, 0));
        assert_eq!(ledger.missing(2 * WINDOW), 1);
    }
}
