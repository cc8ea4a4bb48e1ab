//! When must something happen although nothing was received?
//!
//! The peer must be heard within two heartbeats and hears us twice in each (§4.2.7), it must open in time, and answer our close in
//! time. Everything counts from `now` as it was passed in.

use corelane_wire::amqp091::{HEARTBEAT, ReplyCode};

use super::connection::{Connection, Phase};
use super::fault::Fault;

impl Connection {
    /// The caller stops to read from the socket, or reads again: a peer that is not listened to is not silent.
    pub fn set_reading(&mut self, now: u64, reading: bool) {
        self.now = self.now.max(now);
        if reading && !self.timers.reading {
            self.timers.received_last = self.now;
        }
        self.timers.reading = reading;
    }

    /// Bytes have arrived that the caller cannot pass on yet: the peer is not silent.
    pub fn heard(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.timers.received_last = self.now;
    }

    /// The peer has missed a heartbeat: it may be gone.
    pub fn is_silent(&self, now: u64) -> bool {
        self.phase == Phase::Open && self.timers.is_silent(now)
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called at the latest.
    pub fn next_deadline(&self) -> Option<u64> {
        let timers = &self.timers;
        match self.phase {
            Phase::Header
            | Phase::Start
            | Phase::Login { .. }
            | Phase::Secure { .. }
            | Phase::Tune
            | Phase::Opening
            | Phase::OpenReceived => timers.handshake_deadline,
            Phase::Open => {
                let deadlines = [timers.idle_deadline(), timers.keep_alive_deadline()];
                deadlines.into_iter().flatten().min()
            }
            Phase::Closing => timers.close_deadline,
            Phase::Closed => None,
        }
    }

    /// Does what is due. Call [`receive`](Self::receive) afterwards, with no bytes if there are none, for the events.
    pub fn handle_timeout(&mut self, now: u64) {
        self.now = self.now.max(now);
        let due = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= self.now);
        match self.phase {
            Phase::Header
            | Phase::Start
            | Phase::Login { .. }
            | Phase::Secure { .. }
            | Phase::Tune
            | Phase::Opening
            | Phase::OpenReceived => {
                if due(self.timers.handshake_deadline) {
                    self.fail_connection(Fault::new(
                        ReplyCode::ConnectionForced,
                        "the handshake took too long",
                    ));
                }
            }
            Phase::Open => {
                if due(self.timers.idle_deadline()) {
                    let text = "nothing was received within two heartbeats";
                    self.fail_connection(Fault::new(ReplyCode::ConnectionForced, text));
                } else {
                    self.write_keep_alive();
                }
            }
            Phase::Closing => {
                if due(self.timers.close_deadline) {
                    self.finish();
                }
            }
            Phase::Closed => {}
        }
    }

    /// The heartbeat in seconds was negotiated. The handshake goes on.
    pub(super) fn start_heartbeats(&mut self, seconds: u16) {
        let interval_us = Some(u64::from(seconds) * 1_000_000).filter(|&interval| interval > 0);
        let idle_timeout_us = interval_us.map(|interval| 2 * interval);
        let handshake_deadline = self.timers.handshake_deadline;
        self.timers.opened(self.now, idle_timeout_us, interval_us.map(|interval| interval / 2));
        self.timers.handshake_deadline = handshake_deadline;
    }

    /// Writes a heartbeat if the peer has heard nothing for half of one. Bytes that wait in the output are heard sooner than any
    /// further ones.
    pub(super) fn write_keep_alive(&mut self) {
        if !self.output.is_empty() {
            self.timers.sent_last = self.now;
            return;
        }
        let due = self.timers.keep_alive_deadline().is_some_and(|deadline| deadline <= self.now);
        if due && self.phase == Phase::Open {
            self.output.extend_from_slice(&HEARTBEAT);
            self.timers.sent_last = self.now;
        }
    }
}
