//! What time is it for the generator? Nanoseconds since the clock was started; messages carry it.

use std::time::{Duration, Instant};

/// A monotonic clock with its own zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// As the protocol counts.
    #[inline]
    pub fn now_us(&self) -> u64 {
        self.now_ns() / 1000
    }
}

/// When a measurement starts and ends.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub warmup: Duration,
    pub duration: Duration,
    /// How long without any progress until what is missing counts as lost.
    pub patience: Duration,
}

/// Where a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The warm-up is over; nothing is allocated from here on.
    Measuring,
    /// The last counted message is in; what follows is not measured.
    Measured,
}

/// The walk of one measurement through its phases.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    measure_from_ns: u64,
    duration_ns: u64,
    started_ns: Option<u64>,
}

impl Stopwatch {
    pub fn new(timing: &Timing, now_ns: u64) -> Stopwatch {
        Stopwatch {
            measure_from_ns: now_ns + timing.warmup.as_nanos() as u64,
            duration_ns: timing.duration.as_nanos() as u64,
            started_ns: None,
        }
    }

    /// Whether the warm-up ends now. True once.
    #[inline]
    pub fn starts(&mut self, now_ns: u64) -> bool {
        let starts = self.started_ns.is_none() && now_ns >= self.measure_from_ns;
        if starts {
            self.started_ns = Some(now_ns);
        }
        starts
    }

    #[inline]
    pub fn is_measuring(&self) -> bool {
        self.started_ns.is_some()
    }

    #[inline]
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.started_ns.is_some_and(|started| now_ns >= started + self.duration_ns)
    }

    /// Time measured so far.
    pub fn elapsed(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.started_ns.map_or(0, |started| now_ns - started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_starts_once_and_lasts_from_its_start() {
        let timing = Timing {
            warmup: Duration::from_nanos(10),
            duration: Duration::from_nanos(100),
            patience: Duration::from_secs(1),
        };
        let mut watch = Stopwatch::new(&timing, 5);
        assert!(!watch.starts(14) && !watch.is_measuring() && !watch.is_over(1000));
        assert_eq!(watch.elapsed(14), Duration::ZERO);
        assert!(watch.starts(17), "late, since a message took so long");
        assert!(!watch.starts(18) && watch.is_measuring());
        assert!(!watch.is_over(116) && watch.is_over(117));
        assert_eq!(watch.elapsed(120), Duration::from_nanos(103));
    }
}
