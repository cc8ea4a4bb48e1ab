//! Which of a channel's messages wait for their confirm? Tags count from 1; one confirm may be for all up to its tag.
//!
//! Invariant: `waiting[0]` is the message with the tag `first`, and it waits.

use std::collections::VecDeque;

use corelane_protocol::Token;

/// Room from the start, so that nothing is allocated later unless more wait.
const ROOM: usize = 1 << 14;

pub(super) struct Confirms {
    first: u64,
    /// `None`: it had its confirm before one in front of it.
    waiting: VecDeque<Option<Token>>,
}

impl Confirms {
    pub(super) fn new() -> Confirms {
        Confirms { first: 1, waiting: VecDeque::with_capacity(ROOM) }
    }

    /// Messages from the oldest that waits.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    #[inline]
    pub(super) fn push(&mut self, token: Token) {
        self.waiting.push_back(Some(token));
    }

    /// Takes what a confirm is for, each once. With `multiple`, tag 0 is all.
    #[inline]
    pub(super) fn take(&mut self, tag: u64, multiple: bool, mut each: impl FnMut(Token)) {
        if multiple {
            while !self.waiting.is_empty() && (tag == 0 || self.first <= tag) {
                if let Some(token) = self.pop() {
                    each(token);
                }
            }
        } else if let Some(index) = tag.checked_sub(self.first)
            && let Some(token) = self.waiting.get_mut(index as usize).and_then(Option::take)
        {
            each(token);
        }
        while let Some(None) = self.waiting.front() {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<Token> {
        self.first += 1;
        self.waiting.pop_front().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_confirmed_once() {
        let mut confirms = Confirms::new();
        (1..=6).for_each(|number| confirms.push(Token(number, 0)));
        let mut check = |tag: u64, multiple: bool, expect: &[u64], left: usize| {
            let mut got = Vec::new();
            confirms.take(tag, multiple, |token| got.push(token.0));
            assert_eq!((got.as_slice(), confirms.len()), (expect, left), "{tag} {multiple}");
        };
        check(2, false, &[2], 6);
        check(2, false, &[], 6);
        check(1, false, &[1], 4);
        check(1, true, &[], 4);
        check(5, false, &[5], 4);
        check(5, true, &[3, 4], 1);
        check(9, false, &[], 1);
        check(0, true, &[6], 0);
        check(7, false, &[], 0);
    }
}
