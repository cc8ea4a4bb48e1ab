//! How far is it, and how long will it take? Told at most once a second, and not at all where it takes less.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);

/// Work on so many bytes, which several threads may do.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: u64,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: u64,
    told: Instant,
}

impl Progress {
    /// `what` is done, as in "reading the journals".
    pub fn new(what: &'static str, total: u64) -> Self {
        let started = Instant::now();
        Progress { what, total, started, state: Mutex::new(State { done: 0, told: started }) }
    }

    /// So many more bytes are done.
    pub fn advance(&self, bytes: u64) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += bytes;
        if now - state.told >= PERIOD {
            state.told = now;
            let (what, done, total) = (self.what, state.done, self.total);
            let rate = done as f64 / (now - self.started).as_secs_f64();
            let left = (total.saturating_sub(done)) as f64 / rate.max(1.0);
            let (done, total, rate) = (Bytes(done), Bytes(total), Bytes(rate as u64));
            tracing::info!("{what}: {done} of {total}, {rate}/s, {left:.0} s left");
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn total(&self) -> u64 {
        self.total
    }
}

/// A number of bytes as somebody reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        match bytes {
            0..10_240 => write!(formatter, "{bytes} B"),
            10_240..10_485_760 => write!(formatter, "{} KiB", bytes >> 10),
            10_485_760..10_737_418_240 => write!(formatter, "{} MiB", bytes >> 20),
            _ => write!(formatter, "{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64),
        }
    }
}
