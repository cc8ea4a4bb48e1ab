//! Whose time has come, and what happens then?
//!
//! An entry has one timer at a time: while it is held, the end of the delay (or its expiry, whichever is first); while it is
//! available, its expiry; while it is acquired, the ack deadline. What is due is handled in bounded slices. A pull
//! looks at the expiry itself, so nothing is delivered late while slices are behind.

use crate::counters::Cause;
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::properties::DeadLetterReason;

impl<M: Message> Engine<M> {
    /// When [`handle_timeout`](Self::handle_timeout) has something to do. May be early.
    pub fn next_deadline(&self) -> Option<u64> {
        match (self.wheel.next_deadline(), self.idle_deadline()) {
            (Some(timer), Some(idle)) => Some(timer.min(idle)),
            (timer, idle) => timer.or(idle),
        }
    }

    /// Handles what is due, in a bounded slice. True: call again soon, there is more.
    pub fn handle_timeout(&mut self, now: u64) -> bool {
        self.now = now;
        let mut budget = self.limits.timeout_slice_max as u32;
        let work_max = self.work + self.limits.scan_nodes_max as u64;
        while let Some(handle) = self.wheel.poll(now, &mut budget) {
            let entry = EntryRef(handle);
            self.store.entry_mut(entry).timer = None;
            if !self.queues[self.store.queue(entry)].deleted {
                self.handle_due(now, entry);
            }
            if self.work >= work_max {
                break;
            }
        }
        while let Some(class) = self.idle_classes.first()
            && self.idle_deadline().is_some_and(|deadline| deadline <= now)
        {
            if budget == 0 {
                return true;
            }
            budget -= 1;
            self.forget_class(class);
        }
        self.wheel.is_due(now)
    }

    /// Starts an entry's timer, or changes its deadline.
    pub(crate) fn set_timer(&mut self, now: u64, entry: EntryRef, deadline: u64) {
        if self.wheel.count() == 0 {
            // An empty wheel may have stood still for long: brought to the present it spares the timer the way there.
            self.wheel.poll(now, &mut 1);
        }
        let stored = self.store.entry_mut(entry);
        match stored.timer {
            Some(timer) => self.wheel.reschedule(timer, deadline),
            None => stored.timer = Some(self.wheel.schedule(deadline, entry.0)),
        }
    }

    /// Starts the timer of an entry that is held: it ends with the delay, or before it if the entry expires.
    pub(crate) fn set_hold_timer(&mut self, now: u64, entry: EntryRef, until: u64) {
        let expires_at = self.store.entry(entry).expires_at();
        self.set_timer(now, entry, until.min(expires_at.unwrap_or(until)));
    }

    pub(crate) fn clear_timer(&mut self, entry: EntryRef) {
        if let Some(timer) = self.store.entry_mut(entry).timer.take() {
            self.wheel.cancel(timer);
        }
    }

    /// When the class that has been without a consumer for longest is forgotten.
    fn idle_deadline(&self) -> Option<u64> {
        let since = self.classes[self.idle_classes.first()?].idle_since?;
        Some(since.saturating_add(self.limits.class_idle_us))
    }

    fn handle_due(&mut self, now: u64, entry: EntryRef) {
        let queue = self.store.queue(entry);
        let stored = self.store.entry_mut(entry);
        match stored.state() {
            State::Vacant => unreachable!("an entry's timer ends with it"),
            State::Pending | State::Retired => unreachable!("what a transaction has, has no timer"),
            State::Available => {
                self.withdraw(entry);
                self.bury(entry, DeadLetterReason::Expired);
            }
            State::Held if stored.is_expired(now) => {
                self.withdraw(entry);
                self.bury(entry, DeadLetterReason::Expired);
            }
            State::Held => {
                stored.set_state(State::Available);
                if let Some(time) = stored.expires_at() {
                    self.set_timer(now, entry, time);
                }
                self.end_hold(entry);
                self.become_available(entry, true, Cause::HoldEnded);
                self.end_waiting(entry);
            }
            State::Acquired => {
                let holder = stored.holder;
                self.queues[queue].counters.ack_deadlines_missed += 1;
                self.release_hold(holder, entry);
                self.store.entry_mut(entry).count_failure();
                self.give_back_failed(now, entry);
                self.after_settled(holder);
            }
        }
    }
}
