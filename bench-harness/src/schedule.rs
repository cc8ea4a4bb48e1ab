//! When is each message due? The schedule stands whatever the broker does, so that a stall delays all that were due in it.
//!
//! Invariant: times never go back; a stretch of the profile has its rate from its begin to its end. Nothing is allocated after `new`.

/// How times are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// All equally far apart.
    #[default]
    Fixed,
    /// As those of many independent senders: gaps are exponentially distributed.
    Poisson,
}

/// Rates one after the other, each as long as the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Messages a second, above zero.
    pub rates: Vec<f64>,
    pub arrivals: Arrivals,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    profile: Profile,
    /// When the measured time begins, and how long each rate holds.
    begin_ns: u64,
    stretch_ns: u64,
    /// The next message's time.
    due_ns: f64,
    random: u64,
}

impl Schedule {
    /// From `now_ns` on with the first rate until `begin_ns`, then all of them within `duration_ns`.
    pub fn new(profile: Profile, now_ns: u64, begin_ns: u64, duration_ns: u64, seed: u64) -> Schedule {
        let stretch_ns = (duration_ns / profile.rates.len().max(1) as u64).max(1);
        Schedule { profile, begin_ns, stretch_ns, due_ns: now_ns as f64, random: seed | 1 }
    }

    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }

    /// Goes on to the message behind.
    #[inline]
    pub fn advance(&mut self) {
        let gap_ns = 1e9 / self.rate();
        self.due_ns += match self.profile.arrivals {
            Arrivals::Fixed => gap_ns,
            Arrivals::Poisson => gap_ns * -self.unit().ln(),
        };
    }

    fn rate(&self) -> f64 {
        let stretch =
            (self.due_ns() as usize).saturating_sub(self.begin_ns as usize) / self.stretch_ns as usize;
        let last = self.profile.rates.len().saturating_sub(1);
        self.profile.rates.get(stretch.min(last)).copied().unwrap_or(1.0)
    }

    /// Above 0 and at most 1; xorshift.
    fn unit(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rates: &[f64], arrivals: Arrivals, until_ns: u64) -> Vec<u64> {
        let profile = Profile { rates: rates.to_vec(), arrivals };
        let mut schedule = Schedule::new(profile, 0, 1_000_000_000, 2_000_000_000, 7);
        let mut times = Vec::new();
        while schedule.due_ns() < until_ns {
            times.push(schedule.due_ns());
            schedule.advance();
        }
        times
    }

    #[test]
    fn fixed_times_are_equally_far_apart() {
        assert_eq!(times(&[4.0], Arrivals::Fixed, 1_000_000_000), [0, 250_000_000, 500_000_000, 750_000_000]);
    }

    #[test]
    fn poisson_keeps_the_rate_and_varies_the_gaps() {
        let times = times(&[10_000.0], Arrivals::Poisson, 2_000_000_000);
        assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Of an exponential distribution 1/e is longer than the mean.
        let long = gaps.iter().filter(|gap| **gap > 100_000).count() as f64 / gaps.len() as f64;
        assert!((0.34..0.40).contains(&long), "{long}");
    }

    #[test]
    fn steps_begin_with_the_measured_time() {
        let times = times(&[10.0, 30.0], Arrivals::Fixed, 3_000_000_000);
        let within =
            |from: u64| times.iter().filter(|time| (from..from + 1_000_000_000).contains(*time)).count();
        assert_eq!((within(0), within(1_000_000_000)), (10, 10));
        assert!((29..=31).contains(&within(2_000_000_000)));
    }
}
