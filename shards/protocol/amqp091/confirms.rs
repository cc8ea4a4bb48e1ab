//! Which published messages of a channel wait for their confirm, and how is it written?
//!
//! What was settled in a turn is written when that is finished. Tags from the oldest unconfirmed one onwards that have the same
//! answer share one frame, with `multiple`; those behind one that still waits are answered one by one.

use std::collections::VecDeque;

use corelane_wire::amqp091::{basic, write_method};

use super::connection::Connection;
use super::event::Outcome;
use super::limits::{CONFIRMS_KEPT_MAX, UNSETTLED_SPAN_MAX};
use crate::ids::LinkId;

/// The messages from the oldest one that waits.
#[derive(Debug, Default)]
pub(super) struct Confirms {
    /// Number of the first of `states` among all messages of the channel.
    first: u64,
    /// Messages before the channel's confirms began: tags count from there.
    offset: u64,
    states: VecDeque<State>,
    /// Numbers that were settled and not written.
    settled: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Settled { ack: bool },
    Written,
}

impl Confirms {
    /// For what comes behind so many messages.
    pub(super) fn behind(published: u64) -> Self {
        Self { first: published + 1, offset: published, ..Self::default() }
    }

    #[inline]
    pub(super) fn await_one(&mut self) {
        self.states.push_back(State::Waits);
    }

    #[inline]
    pub(super) fn has_room(&self, unconfirmed_max: usize) -> bool {
        self.states.len() < unconfirmed_max && (self.states.len() as u64) < UNSETTLED_SPAN_MAX
    }

    /// Whether it waited.
    #[inline]
    fn settle(&mut self, delivery_id: u32, ack: bool) -> bool {
        let index = delivery_id.wrapping_sub(self.first as u32);
        let Some(state) = self.states.get_mut(index as usize).filter(|state| **state == State::Waits) else {
            return false;
        };
        *state = State::Settled { ack };
        self.settled.push(self.first + u64::from(index));
        true
    }

    /// Takes the messages at the front that have the same answer: the last one's tag, their count, and the answer.
    fn take_run(&mut self) -> Option<(u64, u64, bool)> {
        let mut run = None;
        while let Some(&state) = self.states.front() {
            let ack = match state {
                State::Waits => break,
                State::Written => {
                    self.pass();
                    continue;
                }
                State::Settled { ack } => ack,
            };
            let (count, known) = run.map_or((0, ack), |(_, count, known)| (count, known));
            if known != ack {
                break;
            }
            run = Some((self.first - self.offset, count + 1, ack));
            self.pass();
        }
        run
    }

    /// One message behind the front that was settled: its tag and answer.
    fn take_single(&mut self) -> Option<(u64, bool)> {
        while let Some(number) = self.settled.pop() {
            let Some(index) = number.checked_sub(self.first) else { continue };
            let Some(state) = self.states.get_mut(index as usize) else { continue };
            if let State::Settled { ack } = *state {
                *state = State::Written;
                return Some((number - self.offset, ack));
            }
        }
        None
    }

    fn pass(&mut self) {
        self.states.pop_front();
        self.first += 1;
    }

    /// Gives back what a burst needed.
    fn trim(&mut self) {
        if self.states.capacity() > CONFIRMS_KEPT_MAX && self.states.capacity() / 4 > self.states.len() {
            self.states.shrink_to(CONFIRMS_KEPT_MAX.max(2 * self.states.len()));
        }
        if self.settled.capacity() > CONFIRMS_KEPT_MAX {
            self.settled.shrink_to(CONFIRMS_KEPT_MAX);
        }
    }

    /// For tests.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.states.capacity()
    }

    /// For tests: the next message has this number.
    #[cfg(test)]
    pub(super) fn skip_to(&mut self, number: u64) {
        self.first = number;
    }

    pub(super) fn verify(&self, published: u64) {
        if !self.states.is_empty() {
            assert_eq!(self.first + self.states.len() as u64, published + 1, "one state for each message");
        }
        assert!(self.states.front() != Some(&State::Written), "what is written at the front is gone");
        let settled = self.states.iter().filter(|state| matches!(state, State::Settled { .. })).count();
        assert_eq!(settled, self.settled.len(), "what is settled will be written");
    }
}

impl Connection {
    /// Says what became of a published message that was not `settled`. Nothing happens if that was said before, or its
    /// channel is closed. What [`return_message`](Self::return_message) is given before this is read before this.
    #[inline]
    pub fn settle(&mut self, link: LinkId, delivery_id: u32, outcome: Outcome) {
        let Some(number) = self.live_link(link).map(|link| link.channel) else { return };
        let unconfirmed_max = self.config.unconfirmed_max;
        let Some(channel) = self.channel_mut(number).filter(|channel| channel.publisher == link.0) else {
            return;
        };
        if !channel.confirms.settle(delivery_id, outcome == Outcome::Accepted) {
            return;
        }
        let is_full = !channel.confirms.has_room(unconfirmed_max);
        if !std::mem::replace(&mut channel.dirty, true) {
            self.dirty.push(number);
        }
        // What is written makes room for further messages.
        if is_full {
            self.write_confirms_of(number);
        }
    }

    /// Writes confirms now, instead of when the turn is finished: what is said next stays behind them.
    pub fn write_outcomes(&mut self) {
        self.write_confirms();
    }

    pub(super) fn write_confirms(&mut self) {
        while let Some(number) = self.dirty.pop() {
            self.write_confirms_of(number);
            if let Some(channel) = self.channel_mut(number) {
                channel.dirty = false;
            }
        }
    }

    pub(super) fn write_confirms_of(&mut self, number: u16) {
        let Some(channel) = self.channels.get_mut(number) else {
            return;
        };
        let (confirms, out) = (&mut channel.confirms, &mut self.output);
        let mut write = |delivery_tag, multiple, ack| {
            if ack {
                write_method(out, number, &basic::Ack { delivery_tag, multiple });
            } else {
                write_method(out, number, &basic::Nack { delivery_tag, multiple, requeue: false });
            }
        };
        while let Some((tag, count, ack)) = confirms.take_run() {
            write(tag, count > 1, ack);
        }
        // In the order of the messages, as clients expect them when nothing is in the way.
        confirms.settled.sort_unstable_by(|one, other| other.cmp(one));
        while let Some((tag, ack)) = confirms.take_single() {
            write(tag, false, ack);
        }
        confirms.trim();
    }
}
