//! What time is it for the shards?
//!
//! Microseconds since the Unix epoch as of the start of the process, carried on by the monotonic clock: it never goes back,
//! and all shards see the same time, so that times may travel in mail.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The one clock of the process. Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_at_us: u64,
}

impl Clock {
    /// Starts at the system's time.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { started: Instant::now(), started_at_us: since_epoch.as_micros() as u64 }
    }

    /// Microseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        self.started_at_us + self.started.elapsed().as_micros() as u64
    }
}
