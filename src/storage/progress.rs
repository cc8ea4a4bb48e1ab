//! How far is it, and how long will it take? Told at most once a second to somebody who looks on, less often to a file, and not at all
//! where it takes less.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is told on a terminal.
const PERIOD_SEEN: Duration = Duration::from_secs(1);

/// How often it is told where the log is kept.
const PERIOD_KEPT: Duration = Duration::from_secs(15);

/// Work on so many bytes, which several threads may do.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: u64,
    period: Duration,
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
        let period = if io::stderr().is_terminal() { PERIOD_SEEN } else { PERIOD_KEPT };
        Self::begun(what, total, period, Instant::now())
    }

    fn begun(what: &'static str, total: u64, period: Duration, started: Instant) -> Self {
        Progress { what, total, period, started, state: Mutex::new(State { done: 0, told: started }) }
    }

    /// So many more bytes are done.
    pub fn advance(&self, bytes: u64) {
        if let Some(line) = self.advance_at(Instant::now(), bytes) {
            tracing::info!("{line}");
        }
    }

    /// What is to be told, if something is.
    fn advance_at(&self, now: Instant, bytes: u64) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += bytes;
        // Another thread may have been later and quicker.
        if now.saturating_duration_since(state.told) < self.period {
            return None;
        }
        state.told = now;
        let (what, done, total) = (self.what, state.done, self.total);
        let rate = done as f64 / (now - self.started).as_secs_f64();
        let left = (total.saturating_sub(done)) as f64 / rate.max(1.0);
        let (done, total, rate) = (Bytes(done), Bytes(total), Bytes(rate as u64));
        Some(format!("{what}: {done} of {total}, {rate}/s, {left:.0} s left"))
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
pub struct Bytes(pub u64);

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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn how_far_it_is_is_told_once_a_period() {
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let progress = Progress::begun("reading the journals", 100 * MIB, PERIOD_SEEN, start);
        assert_eq!(progress.advance_at(after(999), 15 * MIB), None, "what takes less is not told");
        let told = progress.advance_at(after(1000), 5 * MIB).unwrap();
        assert_eq!(told, "reading the journals: 20 MiB of 100 MiB, 20 MiB/s, 4 s left");
        assert_eq!(progress.advance_at(after(1999), 30 * MIB), None);
        let told = progress.advance_at(after(2000), 30 * MIB).unwrap();
        assert_eq!(told, "reading the journals: 80 MiB of 100 MiB, 40 MiB/s, 0 s left");
        // One that looked at the clock before and comes later.
        assert_eq!(progress.advance_at(after(1500), 0), None);
        let told = progress.advance_at(after(4000), 40 * MIB).unwrap();
        assert_eq!(told, "reading the journals: 120 MiB of 100 MiB, 30 MiB/s, 0 s left", "it has grown");
        assert!(PERIOD_KEPT > PERIOD_SEEN);
    }
}
