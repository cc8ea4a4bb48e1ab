//! How fast is a large backlog built, read again by a start, and drained?
//!
//! Producers send so many messages to one queue while nobody receives, each confirmed. The broker is stopped in order and started
//! again on what it has kept; a restart ends when it opens a connection, as it does not before it has everything. Then one consumer
//! receives all, in order. Messages that are not durable outlive no stop, so there is none.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::client::{Client, Protocol};
use crate::clock::{Clock, Timing};
use crate::error::BenchError;
use crate::journal::{JournalUse, Journals};
use crate::message::Template;
use crate::rounds::Spread;
use crate::sample::{Counts, Sample};
use crate::saturate::{Patience, WRITE_BYTES};
use crate::subject::Running;
use crate::traffic::{Consumer, Flow, Producer, Receipts};
use crate::url::Url;

/// How long a start may take that reads everything.
const RESTART_TIME_MAX: Duration = Duration::from_secs(3600);
/// How long a stop may take: what is on its way is written before.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(60);
/// How long it is looked for messages that come twice, after the last one.
const LINGER: Duration = Duration::from_millis(200);
/// Bytes of a message in the journal beside it, at most, and of files that are made ahead.
const RECORD_BYTES: u64 = 160;
const FILES_BYTES: u64 = 512 << 20;

/// What one round brought.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// What goes through the same broker when nothing stays in it.
    pub saturate: Option<Sample>,
    pub built: Sample,
    pub drained: Sample,
    pub journal: Option<JournalUse>,
    /// From the start of the process until it opens a connection.
    pub restart: Option<Duration>,
    /// The most memory of the broker that has built it, and of the one that was started on it.
    pub memory_built: Option<u64>,
    pub memory_drained: Option<u64>,
}

impl Backlog {
    /// What became of every message.
    pub fn counts(&self) -> Counts {
        let Counts { confirmed, refused, unconfirmed, .. } = self.built.counts;
        let mut counts = Counts { confirmed, refused, unconfirmed, ..self.drained.counts };
        if let Some(saturate) = &self.saturate {
            counts.add(&saturate.counts);
        }
        counts
    }

    /// Bytes of the journal that a start reads in a second.
    fn recovery_bytes_per_s(&self) -> Option<f64> {
        Some(self.journal?.bytes as f64 / self.restart?.as_secs_f64())
    }

    fn in_saturates(&self, sample: &Sample) -> Option<f64> {
        Some(sample.rate_per_s()? / self.saturate.as_ref()?.rate_per_s()?)
    }
}

/// What all rounds say together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub saturate_per_s: Option<Spread>,
    pub build_per_s: Option<Spread>,
    pub drain_per_s: Option<Spread>,
    /// Our rates in those of `saturate` of the same round.
    pub ratio_build: Option<Spread>,
    pub ratio_drain: Option<Spread>,
    pub restart_s: Option<Spread>,
    pub recovery_bytes_per_s: Option<Spread>,
    pub journal_bytes_per_message: Option<Spread>,
    pub syncs_per_message: Option<Spread>,
    pub memory_built: Option<Spread>,
    pub memory_drained: Option<Spread>,
    pub counts: Counts,
}

impl Summary {
    pub fn of(rounds: &[Backlog]) -> Summary {
        let spread = |figure: &dyn Fn(&Backlog) -> Option<f64>| Spread::of(rounds.iter().filter_map(figure));
        let mut counts = Counts::default();
        rounds.iter().for_each(|round| counts.add(&round.counts()));
        Summary {
            saturate_per_s: spread(&|round| round.saturate.as_ref()?.rate_per_s()),
            build_per_s: spread(&|round| round.built.rate_per_s()),
            drain_per_s: spread(&|round| round.drained.rate_per_s()),
            ratio_build: spread(&|round| round.in_saturates(&round.built)),
            ratio_drain: spread(&|round| round.in_saturates(&round.drained)),
            restart_s: spread(&|round| Some(round.restart?.as_secs_f64())),
            recovery_bytes_per_s: spread(&Backlog::recovery_bytes_per_s),
            journal_bytes_per_message: spread(&|round| round.journal?.bytes_per_message()),
            syncs_per_message: spread(&|round| round.journal?.syncs_per_message()),
            memory_built: spread(&|round| Some(round.memory_built? as f64)),
            memory_drained: spread(&|round| Some(round.memory_drained? as f64)),
            counts,
        }
    }
}

/// Whether the disk has room for so many messages of this size.
pub fn check_room(within: &Path, messages: u64, size: usize) -> Result<(), BenchError> {
    let failed = |error: rustix::io::Errno| BenchError::Disk { path: within.to_owned(), error: error.into() };
    let disk = statvfs(within).map_err(failed)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let wanted = messages.saturating_mul(size as u64 + RECORD_BYTES).saturating_add(FILES_BYTES);
    // One of no size is bound by something else.
    if free >= wanted || disk.f_blocks == 0 {
        return Ok(());
    }
    Err(BenchError::NoRoom { path: within.to_owned(), free, wanted })
}

/// Sends so many messages, divided among producers, and waits until all are confirmed. `tell` is told how many are.
pub fn build(
    url: &Url,
    flow: &Flow,
    messages: u64,
    producers: u16,
    timing: &Timing,
    tell: &mut dyn FnMut(u64),
) -> Result<(Sample, Option<JournalUse>), BenchError> {
    let clock = Clock::start();
    let mut journals = Journals::connect(url, clock)?;
    let mut producers: Vec<(Producer, u64)> = (0..producers)
        .map(|index| {
            Ok((Producer::attach(url, clock, flow, index as u8)?, share(messages, producers, index)))
        })
        .collect::<Result<_, BenchError>>()?;
    let before = journals.read()?;
    let begun = clock.now_ns();
    let mut patience = Patience::new(timing, begun);
    let mut now = begun;
    while producers.iter().any(|(producer, left)| *left > 0 || !producer.is_settled()) {
        for (producer, left) in &mut producers {
            fill(producer, left)?;
        }
        now = clock.now_ns();
        let answered = producers.iter().map(|(producer, _)| producer.answered()).sum();
        if patience.is_over(now, answered) {
            break;
        }
        tell(answered);
    }
    let mut counts = Counts::default();
    producers.into_iter().for_each(|(producer, _)| counts.add(&producer.close()));
    let after = journals.read()?;
    journals.close();
    let message_bytes = counts.sent * Template::durable(flow.size, flow.run, 0).bytes().len() as u64;
    let journal = before.zip(after).map(|(before, after)| JournalUse {
        writes: after.writes - before.writes,
        bytes: after.bytes - before.bytes,
        messages: counts.sent,
        message_bytes,
    });
    let elapsed = Duration::from_nanos(now - begun);
    Ok((Sample { count: counts.confirmed, elapsed, counts, ..Sample::default() }, journal))
}

/// What one of the producers sends of all messages.
fn share(messages: u64, producers: u16, index: u16) -> u64 {
    let (producers, index) = (u64::from(producers), u64::from(index));
    messages / producers + u64::from(index < messages % producers)
}

/// Writes as many of the messages that are left as go now, and takes what the broker says.
#[inline]
fn fill(producer: &mut Producer, left: &mut u64) -> Result<(), BenchError> {
    while producer.is_flushed() && producer.backlog() < WRITE_BYTES && (*left > 0 || producer.is_writing()) {
        if producer.write(|_| 0)? {
            *left -= 1;
        } else if producer.backlog() < WRITE_BYTES {
            break;
        }
    }
    producer.flush()?;
    producer.receive()
}

/// Receives everything: so many, and what there is beyond that.
pub fn drain(
    url: &Url,
    flow: &Flow,
    messages: u64,
    producers: u16,
    timing: &Timing,
    tell: &mut dyn FnMut(u64),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut receipts = Receipts::new(flow, producers.into());
    let begun = clock.now_ns();
    let mut consumer = Consumer::attach(url, clock, flow)?;
    let mut patience = Patience::new(timing, begun);
    let (mut came, mut elapsed) = (begun, Duration::ZERO);
    loop {
        let received = consumer.receive(&mut receipts, |_| {})?;
        let now = clock.now_ns();
        if received {
            consumer.answer()?;
            came = now;
        }
        if receipts.delivered < messages {
            elapsed = Duration::from_nanos(now - begun);
        } else if now - came >= LINGER.as_nanos() as u64 {
            break;
        }
        if patience.is_over(now, receipts.delivered) {
            break;
        }
        tell(receipts.delivered);
    }
    consumer.settle()?;
    consumer.close();
    let counts = receipts.counts_of((0..producers).map(|index| share(messages, producers, index)));
    Ok(Sample { count: receipts.delivered, elapsed, counts, ..Sample::default() })
}

/// Waits until a broker that was started lets clients in.
pub fn await_open(url: &Url, protocol: Protocol, running: &mut Running) -> Result<(), BenchError> {
    let deadline = Instant::now() + RESTART_TIME_MAX;
    loop {
        match Client::connect(url, protocol, Clock::start()) {
            Ok(client) => {
                client.close();
                return Ok(());
            }
            Err(error) => {
                let waits = matches!(error, BenchError::NoAnswer { .. });
                if !waits || !running.goes_on() || Instant::now() >= deadline {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64, seconds: u64) -> Sample {
        let counts = Counts { sent: count, delivered: count, ..Counts::default() };
        Sample { count, elapsed: Duration::from_secs(seconds), counts, ..Sample::default() }
    }

    #[test]
    fn rates_are_told_beside_saturate_of_the_same_round() {
        let round = |factor: u64| {
            let mut built = sample(1000 * factor, 2);
            built.counts.confirmed = 1000 * factor;
            let journal =
                JournalUse { writes: 10, bytes: 3000 * factor, messages: 1000 * factor, message_bytes: 1 };
            Backlog {
                saturate: Some(sample(1000 * factor, 1)),
                built,
                drained: sample(1000 * factor, 4),
                journal: Some(journal),
                restart: Some(Duration::from_millis(500)),
                memory_built: Some(1 << 20),
                memory_drained: None,
            }
        };
        let summary = Summary::of(&[round(1), round(2), round(4)]);
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        assert_eq!((median(summary.ratio_build), median(summary.ratio_drain)), (Some(0.5), Some(0.25)));
        assert_eq!(median(summary.recovery_bytes_per_s), Some(12_000.0));
        assert_eq!(median(summary.journal_bytes_per_message), Some(3.0));
        assert_eq!((median(summary.memory_built), summary.memory_drained), (Some(1048576.0), None));
        assert_eq!((summary.counts.sent, summary.counts.confirmed), (14_000, 7000));
    }

    #[test]
    fn what_the_disk_has_no_room_for_is_refused() {
        let within = std::env::temp_dir();
        assert!(check_room(&within, 1, 100).is_ok());
        let error = check_room(&within, 1 << 40, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("MB free") && error.contains("--scale"), "{error}");
    }
}
