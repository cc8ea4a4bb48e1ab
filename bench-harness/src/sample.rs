//! What did one measurement of one subject bring?

use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies above this are recorded as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Latencies in nanoseconds, with three significant digits. Its size is fixed.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        Latencies(
            histogram.expect("1 is a lower bound, 3 a number of digits, and the upper bound is far above"),
        )
    }
}

impl Latencies {
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns);
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds all of another's, so that percentiles of both are true ones.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// For a file.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// In microseconds. `None`: nothing was recorded.
    pub fn percentile_us(&self, percentile: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(percentile / 100.0) as f64 / 1000.0)
    }
}

/// One measurement of a broker or a yardstick.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub latencies: Latencies,
    /// Messages that arrived in the measured time.
    pub count: u64,
    pub elapsed: Duration,
    /// Of the whole run, warm-up and rest included. A yardstick counts bytes instead and has none.
    pub counts: Counts,
    /// Processor time of the measured program in the measured time, where it is known.
    pub cpu: Option<Duration>,
    /// With a schedule: how late the generator itself was.
    pub lag: Option<Latencies>,
    /// Of things that are held: the broker's memory for each.
    pub bytes_each: Option<f64>,
    /// `cpu` is of a time in which nothing happened, this long.
    pub idle_for: Option<Duration>,
}

impl Sample {
    /// Messages a second. `None`: nothing was measured.
    pub fn rate_per_s(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (self.count > 0 && seconds > 0.0).then(|| self.count as f64 / seconds)
    }

    /// Processor time a message in microseconds.
    pub fn cpu_us(&self) -> Option<f64> {
        let cpu = self.cpu.filter(|_| self.count > 0)?;
        Some(cpu.as_secs_f64() * 1e6 / self.count as f64)
    }
}

/// What became of every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    /// Told by the broker to be accepted.
    pub confirmed: u64,
    /// Different messages that arrived.
    pub delivered: u64,
    pub duplicated: u64,
    /// Sent and never arrived.
    pub lost: u64,
    /// Came after a later one of the same producer, at the only consumer.
    pub reordered: u64,
    /// Came with another body.
    pub changed: u64,
    /// Came without having been sent by us.
    pub foreign: u64,
    /// Told by the broker not to be accepted.
    pub refused: u64,
    /// Sent, and the broker never said whether it is accepted.
    pub unconfirmed: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.confirmed += other.confirmed;
        self.delivered += other.delivered;
        self.duplicated += other.duplicated;
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.changed += other.changed;
        self.foreign += other.foreign;
        self.refused += other.refused;
        self.unconfirmed += other.unconfirmed;
    }

    /// Why the figures are worth nothing. `None`: each message arrived once, as it was sent.
    pub fn fault(&self) -> Option<String> {
        let faults = [
            (self.lost, "lost"),
            (self.duplicated, "delivered twice"),
            (self.reordered, "out of order"),
            (self.changed, "changed on their way"),
            (self.refused, "refused by the broker"),
            (self.unconfirmed, "never settled by the broker"),
            (self.foreign, "of someone else in the queue"),
        ];
        let told: Vec<String> = faults
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!told.is_empty()).then(|| format!("of {} messages sent: {}", self.sent, told.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_percentiles_are_those_of_all() {
        let (mut fast, mut slow) = (Latencies::default(), Latencies::default());
        (0..99).for_each(|_| fast.record(10_000));
        slow.record(1_000_000);
        assert_eq!(fast.percentile_us(50.0).map(f64::round), Some(10.0));
        fast.merge(&slow);
        assert_eq!(fast.count(), 100);
        assert_eq!(fast.percentile_us(99.0).map(f64::round), Some(10.0));
        assert!(fast.percentile_us(99.5).is_some_and(|us| (us - 1000.0).abs() < 2.0));
        fast.clear();
        assert_eq!(fast.percentile_us(50.0), None);
    }

    #[test]
    fn a_latency_without_end_is_recorded_as_the_longest() {
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        assert!(latencies.percentile_us(50.0).is_some_and(|us| us >= 5.9e7));
    }

    #[test]
    fn rates_are_messages_over_measured_time() {
        let sample = Sample { count: 1000, elapsed: Duration::from_millis(500), ..Sample::default() };
        assert_eq!(sample.rate_per_s(), Some(2000.0));
        assert_eq!(Sample::default().rate_per_s(), None);
        let cpu = Some(Duration::from_millis(2));
        assert_eq!(Sample { cpu, ..sample }.cpu_us(), Some(2.0));
    }

    #[test]
    fn every_fault_is_told() {
        let good = Counts { sent: 10, confirmed: 10, delivered: 10, ..Counts::default() };
        assert_eq!(good.fault(), None);
        let check = |counts: Counts, expect: &str| {
            let fault = counts.fault().unwrap();
            assert!(fault.contains("of 10 messages") && fault.contains(expect), "{fault}");
        };
        check(Counts { lost: 3, ..good }, "3 lost");
        check(Counts { duplicated: 1, ..good }, "1 delivered twice");
        check(Counts { reordered: 2, lost: 1, ..good }, "1 lost, 2 out of order");
        check(Counts { changed: 1, ..good }, "1 changed");
        check(Counts { refused: 4, ..good }, "4 refused");
        check(Counts { unconfirmed: 4, ..good }, "4 never settled");
        check(Counts { foreign: 1, ..good }, "1 of someone else");
    }
}
