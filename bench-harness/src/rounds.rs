//! What do several rounds say together?
//!
//! Each round holds everything that is compared. Ratios are taken within a round; told are their median and range. A round
//! whose echo is more than 15 % off the median echo was disturbed and is dropped, and how many were is told.

use crate::journal::JournalUse;
use crate::sample::{Counts, Latencies, Sample};

/// How far from the median a round's echo may be.
const ECHO_OFF_MAX: f64 = 0.15;

/// Everything that was measured in one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    pub ours: Sample,
    pub echo: Option<Sample>,
    pub relay: Option<Sample>,
    /// One message at a time through the relay.
    pub relay_latency: Option<Sample>,
    /// Writes as large as the broker's, each for as many messages, and nothing else.
    pub disk: Option<Sample>,
    /// What the broker has written.
    pub journal: Option<JournalUse>,
    /// The broker in the situation that ours is compared with.
    pub base: Option<Sample>,
    /// Other brokers, in the order in which they were named.
    pub peers: Vec<Sample>,
}

/// The middle of some figures and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// What the rounds say.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub rounds: usize,
    pub dropped: usize,
    /// Of all kept rounds.
    pub latencies: Latencies,
    pub echo_latencies: Latencies,
    pub rate_per_s: Option<Spread>,
    pub relay_rate_per_s: Option<Spread>,
    /// Our median latency in echoes.
    pub ratio_echo: Option<Spread>,
    /// The same of the 99th percentiles.
    pub ratio_echo_p99: Option<Spread>,
    /// Our rate in relays.
    pub ratio_relay: Option<Spread>,
    pub relay_latencies: Latencies,
    /// Our median latency in those of the relay.
    pub ratio_relay_latency: Option<Spread>,
    pub disk_rate_per_s: Option<Spread>,
    pub disk_latencies: Latencies,
    /// Our rate in those of the disk.
    pub ratio_disk: Option<Spread>,
    /// What our median latency is more than an echo and a write together.
    pub beyond_disk_us: Option<Spread>,
    pub syncs_per_message: Option<Spread>,
    pub bytes_per_byte: Option<Spread>,
    /// Of a peer: our rate in its rate.
    pub ratio_peer: Option<Spread>,
    /// The same of median latencies.
    pub ratio_peer_latency: Option<Spread>,
    /// Processor time of the broker a message.
    pub cpu_us: Option<Spread>,
    /// The same in that of the relay. It holds on a machine that others use, too.
    pub ratio_relay_cpu: Option<Spread>,
    /// Share of the measured time that the broker was on its core.
    pub busy: Option<Spread>,
    /// Our rate, and processor time a message, in those of the situation that it is compared with.
    pub ratio_base: Option<Spread>,
    pub ratio_base_cpu: Option<Spread>,
    /// How late the generator was.
    pub lag: Latencies,
    /// Of things that are held: memory for each.
    pub bytes_each: Option<Spread>,
    /// Of all rounds, dropped or not: a fault counts wherever it is.
    pub counts: Counts,
}

impl Round {
    fn echo_us(&self, percentile: f64) -> Option<f64> {
        self.echo.as_ref()?.latencies.percentile_us(percentile)
    }

    fn ratio_echo(&self, percentile: f64) -> Option<f64> {
        Some(self.ours.latencies.percentile_us(percentile)? / self.echo_us(percentile)?)
    }

    fn relay_rate_per_s(&self) -> Option<f64> {
        self.relay.as_ref()?.rate_per_s()
    }

    fn ratio_relay(&self) -> Option<f64> {
        Some(self.ours.rate_per_s()? / self.relay_rate_per_s()?)
    }

    fn ratio_relay_latency(&self) -> Option<f64> {
        let relay = self.relay_latency.as_ref()?.latencies.percentile_us(50.0)?;
        Some(self.ours.latencies.percentile_us(50.0)? / relay)
    }

    fn disk_rate_per_s(&self) -> Option<f64> {
        self.disk.as_ref()?.rate_per_s()
    }

    fn ratio_disk(&self) -> Option<f64> {
        Some(self.ours.rate_per_s()? / self.disk_rate_per_s()?)
    }

    fn beyond_disk_us(&self) -> Option<f64> {
        let disk = self.disk.as_ref()?.latencies.percentile_us(50.0)?;
        Some(self.ours.latencies.percentile_us(50.0)? - self.echo_us(50.0)? - disk)
    }

    fn ratio_relay_cpu(&self) -> Option<f64> {
        Some(self.ours.cpu_us()? / self.relay.as_ref()?.cpu_us()?)
    }

    fn ratio_base(&self) -> Option<f64> {
        Some(self.ours.rate_per_s()? / self.base.as_ref()?.rate_per_s()?)
    }

    fn ratio_base_cpu(&self) -> Option<f64> {
        Some(self.ours.cpu_us()? / self.base.as_ref()?.cpu_us()?)
    }

    fn busy(&self) -> Option<f64> {
        let seconds = self.ours.idle_for.unwrap_or(self.ours.elapsed).as_secs_f64();
        Some(self.ours.cpu.filter(|_| seconds > 0.0)?.as_secs_f64() / seconds)
    }
}

impl Spread {
    /// `None` of nothing.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Some(Spread { median, min, max })
    }
}

impl Verdict {
    /// What the rounds say of one of the other brokers.
    pub fn of_peer(rounds: &[Round], peer: usize) -> Verdict {
        let ratio = |round: &&Round| Some(round.ours.rate_per_s()? / round.peers.get(peer)?.rate_per_s()?);
        let of_it = |round: &Round| Round {
            ours: round.peers.get(peer).cloned().unwrap_or_default(),
            echo: round.echo.clone(),
            ..Round::default()
        };
        let ratio_latency = |round: &&Round| {
            let theirs = round.peers.get(peer)?.latencies.percentile_us(50.0)?;
            Some(round.ours.latencies.percentile_us(50.0)? / theirs)
        };
        // Rounds that are dropped for ours are no comparison.
        let kept = kept(rounds);
        let ratio_peer = Spread::of(kept.iter().filter_map(ratio));
        let ratio_peer_latency = Spread::of(kept.iter().filter_map(ratio_latency));
        let verdict = Verdict::of(&rounds.iter().map(of_it).collect::<Vec<_>>());
        Verdict { ratio_peer, ratio_peer_latency, ..verdict }
    }

    pub fn of(rounds: &[Round]) -> Verdict {
        let kept = kept(rounds);
        let spread =
            |figure: fn(&Round) -> Option<f64>| Spread::of(kept.iter().filter_map(|round| figure(round)));
        let mut verdict = Verdict {
            rounds: rounds.len(),
            dropped: rounds.len() - kept.len(),
            rate_per_s: spread(|round| round.ours.rate_per_s()),
            relay_rate_per_s: spread(Round::relay_rate_per_s),
            ratio_echo: spread(|round| round.ratio_echo(50.0)),
            ratio_echo_p99: spread(|round| round.ratio_echo(99.0)),
            ratio_relay: spread(Round::ratio_relay),
            ratio_relay_latency: spread(Round::ratio_relay_latency),
            ratio_relay_cpu: spread(Round::ratio_relay_cpu),
            disk_rate_per_s: spread(Round::disk_rate_per_s),
            ratio_disk: spread(Round::ratio_disk),
            beyond_disk_us: spread(Round::beyond_disk_us),
            syncs_per_message: spread(|round| round.journal.as_ref()?.syncs_per_message()),
            bytes_per_byte: spread(|round| round.journal.as_ref()?.bytes_per_byte()),
            cpu_us: spread(|round| round.ours.cpu_us()),
            busy: spread(Round::busy),
            ratio_base: spread(Round::ratio_base),
            ratio_base_cpu: spread(Round::ratio_base_cpu),
            bytes_each: spread(|round| round.ours.bytes_each),
            ..Verdict::default()
        };
        for round in &kept {
            verdict.latencies.merge(&round.ours.latencies);
            if let Some(lag) = &round.ours.lag {
                verdict.lag.merge(lag);
            }
            if let Some(echo) = &round.echo {
                verdict.echo_latencies.merge(&echo.latencies);
            }
            if let Some(relay) = &round.relay_latency {
                verdict.relay_latencies.merge(&relay.latencies);
            }
            if let Some(disk) = &round.disk {
                verdict.disk_latencies.merge(&disk.latencies);
            }
        }
        for round in rounds {
            verdict.counts.add(&round.ours.counts);
            if let Some(base) = &round.base {
                verdict.counts.add(&base.counts);
            }
        }
        verdict
    }
}

/// Those whose echo was not disturbed.
fn kept(rounds: &[Round]) -> Vec<&Round> {
    let echo = median_echo_us(rounds);
    let is_kept = |round: &&Round| match (echo, round.echo_us(50.0)) {
        (Some(echo), Some(us)) => (us - echo).abs() <= ECHO_OFF_MAX * echo,
        (_, _) => true,
    };
    rounds.iter().filter(is_kept).collect()
}

/// An echo that one of the rounds had, so that never all are dropped: of two in the middle the faster, less disturbed one.
fn median_echo_us(rounds: &[Round]) -> Option<f64> {
    let mut echoes: Vec<f64> = rounds.iter().filter_map(|round| round.echo_us(50.0)).collect();
    echoes.sort_by(f64::total_cmp);
    echoes.get(echoes.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(latency_us: u64, count: u64) -> Sample {
        let mut sample = Sample { count, elapsed: Duration::from_secs(1), ..Sample::default() };
        sample.latencies.record(latency_us * 1000);
        sample.counts = Counts { sent: count, delivered: count, ..Counts::default() };
        sample
    }

    /// A round of (our latency, echo's latency, our rate, relay's rate).
    fn round(ours_us: u64, echo_us: u64, rate: u64, relay_rate: u64) -> Round {
        let (echo, relay) = (Some(sample(echo_us, 1)), Some(sample(1, relay_rate)));
        let relay_latency = Some(sample(2 * echo_us, 1));
        Round { ours: sample(ours_us, rate), echo, relay, relay_latency, ..Round::default() }
    }

    fn assert_near(spread: Option<Spread>, median: f64, min: f64, max: f64) {
        let spread = spread.unwrap();
        for (got, expect) in [(spread.median, median), (spread.min, min), (spread.max, max)] {
            assert!((got - expect).abs() <= expect * 2e-3, "{spread:?}, expected {median} {min} {max}");
        }
    }

    #[test]
    fn medians() {
        let check = |figures: &[f64], expect: Option<(f64, f64, f64)>| {
            let expect = expect.map(|(median, min, max)| Spread { median, min, max });
            assert_eq!(Spread::of(figures.iter().copied()), expect);
        };
        check(&[], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[3.0, 1.0], Some((2.0, 1.0, 3.0)));
        check(&[9.0, 1.0, 2.0], Some((2.0, 1.0, 9.0)));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine gets slower from round to round; the ratio stays.
        let rounds = [round(110, 100, 400, 500), round(121, 110, 320, 400), round(99, 90, 480, 600)];
        let verdict = Verdict::of(&rounds);
        assert_eq!((verdict.rounds, verdict.dropped), (3, 0));
        assert_near(verdict.ratio_echo, 1.1, 1.1, 1.1);
        assert_near(verdict.ratio_relay, 0.8, 0.8, 0.8);
        assert_near(verdict.ratio_relay_latency, 0.55, 0.55, 0.55);
        assert_near(verdict.rate_per_s, 400.0, 320.0, 480.0);
        assert_eq!(verdict.latencies.count(), 3);
        assert_eq!(verdict.counts.sent, 1200);
    }

    #[test]
    fn a_disk_is_compared_within_a_round_too() {
        let journal =
            |writes| JournalUse { writes, bytes: 4096 * writes, messages: 100, message_bytes: 4096 };
        let durable = |ours_us, disk_us, writes| Round {
            disk: Some(sample(disk_us, 2000)),
            journal: Some(journal(writes)),
            ..round(ours_us, 20, 1000, 1)
        };
        let verdict = Verdict::of(&[durable(130, 100, 10), durable(250, 200, 20), durable(80, 50, 10)]);
        assert_near(verdict.ratio_disk, 0.5, 0.5, 0.5);
        assert_near(verdict.disk_rate_per_s, 2000.0, 2000.0, 2000.0);
        let beyond = verdict.beyond_disk_us.unwrap();
        assert!((beyond.median - 10.0).abs() < 0.5 && (beyond.max - 30.0).abs() < 0.5, "{beyond:?}");
        assert_near(verdict.syncs_per_message, 0.1, 0.1, 0.2);
        assert_near(verdict.bytes_per_byte, 10.0, 10.0, 20.0);
        assert_eq!(verdict.disk_latencies.count(), 3);
    }

    #[test]
    fn a_peer_is_compared_within_a_round_too() {
        let beside = |rate, peers: &[u64]| {
            let peers = peers.iter().map(|rate| sample(1000, *rate)).collect();
            Round { peers, ..round(100, 100, rate, 1) }
        };
        let rounds = [beside(100, &[50, 10]), beside(200, &[100, 40]), beside(300, &[150, 100])];
        let (first, second) = (Verdict::of_peer(&rounds, 0), Verdict::of_peer(&rounds, 1));
        assert_near(first.ratio_peer, 2.0, 2.0, 2.0);
        assert_near(second.ratio_peer, 5.0, 3.0, 10.0);
        assert_near(second.rate_per_s, 40.0, 10.0, 100.0);
        assert_near(second.ratio_echo, 10.0, 10.0, 10.0);
        assert_eq!(first.counts.sent, 300);
        assert_eq!(Verdict::of(&rounds).ratio_peer, None);
    }

    #[test]
    fn a_disturbed_round_is_dropped_and_its_faults_are_not() {
        let mut disturbed = round(500, 116, 10, 10);
        disturbed.ours.counts.lost = 1;
        let rounds =
            [round(100, 100, 100, 200), round(102, 101, 110, 200), disturbed, round(98, 99, 90, 200)];
        let verdict = Verdict::of(&rounds);
        assert_eq!((verdict.rounds, verdict.dropped), (4, 1));
        assert_near(verdict.ratio_echo, 1.0, 0.99, 1.01);
        assert_near(verdict.rate_per_s, 100.0, 90.0, 110.0);
        assert_eq!((verdict.latencies.count(), verdict.echo_latencies.count()), (3, 3));
        assert_eq!(verdict.counts.lost, 1);
    }

    #[test]
    fn of_two_rounds_that_differ_the_less_disturbed_one_is_kept() {
        let verdict = Verdict::of(&[round(160, 150, 10, 10), round(110, 100, 10, 10)]);
        assert_eq!((verdict.rounds, verdict.dropped), (2, 1));
        assert_near(verdict.ratio_echo, 1.1, 1.1, 1.1);
    }

    #[test]
    fn without_yardsticks_there_are_no_ratios_and_nothing_is_dropped() {
        let alone = |us| Round { ours: sample(us, 1), ..Round::default() };
        let verdict = Verdict::of(&[alone(1), alone(1000)]);
        assert_eq!((verdict.rounds, verdict.dropped), (2, 0));
        assert_eq!((verdict.ratio_echo, verdict.ratio_relay), (None, None));
    }

    #[test]
    fn a_busy_broker_has_no_time_left() {
        let mut busy = round(1, 1, 1000, 1000);
        busy.ours.cpu = Some(Duration::from_millis(900));
        busy.relay.as_mut().unwrap().cpu = Some(Duration::from_millis(100));
        let verdict = Verdict::of(&[busy]);
        assert_near(verdict.busy, 0.9, 0.9, 0.9);
        assert_near(verdict.cpu_us, 900.0, 900.0, 900.0);
        assert_near(verdict.ratio_relay_cpu, 9.0, 9.0, 9.0);
    }
}
