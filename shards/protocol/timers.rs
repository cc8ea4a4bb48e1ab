//! When was the peer heard, when did it hear us, and when is that too long ago?
//!
//! Everything counts from `now` as it was passed in.

#[derive(Debug)]
pub(crate) struct Timers {
    pub(crate) received_last: u64,
    /// Bytes that the last `receive` left: only more than these are news.
    unread: usize,
    pub(crate) sent_last: u64,
    /// How long the peer may be silent.
    idle_timeout_us: Option<u64>,
    /// How long we may be silent.
    keep_alive_us: Option<u64>,
    pub(crate) handshake_deadline: Option<u64>,
    pub(crate) close_deadline: Option<u64>,
    /// The caller reads from the socket.
    pub(crate) reading: bool,
}

impl Timers {
    pub(crate) fn new(now: u64, idle_timeout_us: Option<u64>, handshake_timeout_us: Option<u64>) -> Self {
        Self {
            received_last: now,
            unread: 0,
            sent_last: now,
            idle_timeout_us,
            keep_alive_us: None,
            handshake_deadline: handshake_timeout_us.map(|timeout| now.saturating_add(timeout)),
            close_deadline: None,
            reading: true,
        }
    }

    #[inline]
    pub(crate) fn bytes_passed(&mut self, now: u64, size: usize) {
        if size > self.unread {
            self.received_last = now;
        }
    }

    #[inline]
    pub(crate) fn bytes_left(&mut self, size: usize) {
        self.unread = size;
    }

    /// The handshake is done.
    pub(crate) fn opened(&mut self, now: u64, idle_timeout_us: Option<u64>, keep_alive_us: Option<u64>) {
        self.handshake_deadline = None;
        self.sent_last = now;
        self.idle_timeout_us = idle_timeout_us;
        self.keep_alive_us = keep_alive_us;
    }

    pub(crate) fn close_started(&mut self, now: u64, timeout_us: u64) {
        self.handshake_deadline = None;
        if self.close_deadline.is_none() {
            self.close_deadline = Some(now.saturating_add(timeout_us));
        }
    }

    /// The peer has let pass at least one of two times at which it is to be heard.
    pub(crate) fn is_silent(&self, now: u64) -> bool {
        let half = self.idle_timeout_us.filter(|_| self.reading).map(|timeout| timeout / 2);
        half.is_some_and(|half| now > self.received_last.saturating_add(half))
    }

    pub(crate) fn idle_deadline(&self) -> Option<u64> {
        if !self.reading {
            return None;
        }
        Some(self.received_last.saturating_add(self.idle_timeout_us?))
    }

    pub(crate) fn keep_alive_deadline(&self) -> Option<u64> {
        Some(self.sent_last.saturating_add(self.keep_alive_us?))
    }
}
