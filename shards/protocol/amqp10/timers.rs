//! When must something happen although nothing was received?
//!
//! The peer must be heard within our idle timeout and hear us within its own (§2.4.5), it must open in time, and answer
//! our close in time. Everything counts from `now` as it was passed in.

use corelane_wire::amqp10::{FrameKind, begin_frame, finish_frame};

use super::config::Config;
use super::connection::{Connection, Phase};
use super::fault;

#[derive(Debug)]
pub(super) struct Timers {
    received_last: u64,
    /// Bytes that the last `receive` left: only more than these are news.
    unread: usize,
    sent_last: u64,
    idle_timeout_us: Option<u64>,
    /// Half of the peer's idle timeout.
    keep_alive_us: Option<u64>,
    handshake_deadline: Option<u64>,
    close_deadline: Option<u64>,
    /// The caller reads from the socket.
    reading: bool,
}

impl Timers {
    pub(super) fn new(config: &Config, now: u64) -> Self {
        Self {
            received_last: now,
            unread: 0,
            sent_last: now,
            idle_timeout_us: config.idle_timeout_us,
            keep_alive_us: None,
            handshake_deadline: config.handshake_timeout_us.map(|timeout| now.saturating_add(timeout)),
            close_deadline: None,
            reading: true,
        }
    }

    #[inline]
    pub(super) fn bytes_passed(&mut self, now: u64, size: usize) {
        if size > self.unread {
            self.received_last = now;
        }
    }

    #[inline]
    pub(super) fn bytes_left(&mut self, size: usize) {
        self.unread = size;
    }

    pub(super) fn opened(&mut self, now: u64, idle_time_out: Option<u32>) {
        self.handshake_deadline = None;
        self.sent_last = now;
        // AMQP 1.0 §2.4.5: the peer closes when it has heard nothing for this long; 0 and absent are never.
        let peer_us = idle_time_out.filter(|&milliseconds| milliseconds > 0).map(|ms| u64::from(ms) * 1000);
        self.keep_alive_us = peer_us.map(|timeout| timeout / 2);
    }

    pub(super) fn close_started(&mut self, now: u64, timeout_us: u64) {
        self.handshake_deadline = None;
        if self.close_deadline.is_none() {
            self.close_deadline = Some(now.saturating_add(timeout_us));
        }
    }

    fn idle_deadline(&self) -> Option<u64> {
        if !self.reading {
            return None;
        }
        Some(self.received_last.saturating_add(self.idle_timeout_us?))
    }

    fn keep_alive_deadline(&self) -> Option<u64> {
        Some(self.sent_last.saturating_add(self.keep_alive_us?))
    }
}

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

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called at the latest.
    pub fn next_deadline(&self) -> Option<u64> {
        let timers = &self.timers;
        match self.phase {
            Phase::Header { .. } | Phase::Sasl(_) | Phase::Opening | Phase::OpenReceived => {
                timers.handshake_deadline
            }
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
            Phase::Header { .. } | Phase::Sasl(_) | Phase::Opening | Phase::OpenReceived
                if due(self.timers.handshake_deadline) =>
            {
                self.fail_connection(fault::HANDSHAKE, fault::HANDSHAKE.description);
            }
            Phase::Open if due(self.timers.idle_deadline()) => {
                self.fail_connection(fault::IDLE, fault::IDLE.description);
            }
            Phase::Closing if due(self.timers.close_deadline) => self.finish(),
            Phase::Open => self.write_keep_alive(),
            Phase::Header { .. }
            | Phase::Sasl(_)
            | Phase::Opening
            | Phase::OpenReceived
            | Phase::Closing
            | Phase::Closed => {}
        }
    }

    /// Writes an empty frame if the peer has heard nothing for half of its patience. Bytes that wait in the output are
    /// heard sooner than any further ones.
    pub(super) fn write_keep_alive(&mut self) {
        if !self.output.is_empty() {
            self.timers.sent_last = self.now;
            return;
        }
        let due = self.timers.keep_alive_deadline().is_some_and(|deadline| deadline <= self.now);
        if due && self.phase == Phase::Open {
            let start = begin_frame(&mut self.output, FrameKind::Amqp, 0);
            finish_frame(&mut self.output, start);
            self.timers.sent_last = self.now;
        }
    }
}
