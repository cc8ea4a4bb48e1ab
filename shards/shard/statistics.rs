//! How much goes through each queue, how long do messages wait in it, and how long do consumers take with them?
//!
//! Counts are kept for every queue. Times are kept in histograms, two a queue: from the enqueueing to the first delivery, and from a
//! delivery to its settlement. They are made at a queue's first delivery, for [`HISTOGRAMS_MAX`] queues at most; beyond that a
//! queue takes over those of one in which nothing has happened for a while, or does without.
//!
//! Invariants: nothing is allocated but at a queue's first message and first delivery, and so not by reading; no time is read: all of
//! it is the turn's.

use corelane_engine::QueueId;
use hdrhistogram::Histogram;
use slab::Slab;

use crate::limits::{HISTOGRAM_IDLE_US, HISTOGRAM_SEARCH_MAX, HISTOGRAMS_MAX};

/// The longest time that is told apart from longer ones.
const LONGEST_US: u64 = 3_600_000_000;
/// Decimal digits to which times are kept.
const DIGITS: u8 = 2;
/// No histograms.
const NONE: u32 = u32::MAX;

/// When a delivery was written, in a 32-bit count of this many bits of microseconds: 16 µs, round again after 19 hours.
const STAMP_SHIFT: u32 = 4;

/// What is known of the queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// By the queue's index.
    queues: Vec<QueueStatistics>,
    kept: Slab<Times>,
    /// Where the search for idle histograms goes on.
    hand: usize,
    deliveries: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueueStatistics {
    generation: u32,
    times: u32,
    bytes_in: u64,
    deliveries: u64,
    bytes_out: u64,
}

const _: () = assert!(size_of::<QueueStatistics>() <= 32, "there may be a million queues");

#[derive(Debug)]
struct Times {
    queue: QueueId,
    used_at: u64,
    time_in_queue: Recorder,
    settle_latency: Recorder,
}

/// A histogram, and how often its last value has come since it was last another one: messages that come together leave together, so
/// that most of them take as long as the one before.
#[derive(Clone, Debug)]
struct Recorder {
    histogram: Histogram<u32>,
    last_us: u64,
    count: u32,
}

/// What has gone through a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) bytes_in: u64,
    pub(crate) deliveries: u64,
    pub(crate) bytes_out: u64,
}

/// A histogram in a few numbers, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

/// When a delivery was written, small enough to travel with it.
pub(crate) fn stamp(now: u64) -> u32 {
    (now >> STAMP_SHIFT) as u32
}

/// How long ago a delivery was written, in microseconds.
pub(crate) fn since_stamp(now: u64, stamped: u32) -> u64 {
    u64::from(stamp(now).wrapping_sub(stamped)) << STAMP_SHIFT
}

impl Default for QueueStatistics {
    fn default() -> Self {
        QueueStatistics { generation: 0, times: NONE, bytes_in: 0, deliveries: 0, bytes_out: 0 }
    }
}

impl Statistics {
    /// A message of so many bytes was enqueued.
    #[inline]
    pub(crate) fn note_in(&mut self, queue: QueueId, bytes: usize) {
        self.of(queue).bytes_in += bytes as u64;
    }

    /// A message was delivered; for the first time after so long, if it was the first time.
    #[inline]
    pub(crate) fn note_out(&mut self, now: u64, queue: QueueId, bytes: usize, waited_us: Option<u64>) {
        self.deliveries += 1;
        let of = self.of(queue);
        of.deliveries += 1;
        of.bytes_out += bytes as u64;
        let times = of.times;
        if let Some(waited_us) = waited_us
            && let Some(times) = self.times(now, queue, times)
        {
            times.time_in_queue.record(waited_us);
        }
    }

    /// A delivery was settled, so long after it was made.
    #[inline]
    pub(crate) fn note_settled(&mut self, now: u64, queue: QueueId, took_us: u64) {
        let times = self.of(queue).times;
        if let Some(times) = self.times(now, queue, times) {
            times.settle_latency.record(took_us);
        }
    }

    /// The queue is gone.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        if let Some(of) = self.queues.get_mut(queue.index as usize)
            && of.generation == queue.generation
        {
            let QueueStatistics { times, .. } = std::mem::take(of);
            if times != NONE {
                self.kept.remove(times as usize);
            }
        }
    }

    /// Deliveries from all queues, those that were deleted included.
    pub(crate) fn deliveries(&self) -> u64 {
        self.deliveries
    }

    pub(crate) fn flow(&self, queue: QueueId) -> Flow {
        match self.queues.get(queue.index as usize) {
            Some(&QueueStatistics { generation, bytes_in, deliveries, bytes_out, .. })
                if generation == queue.generation =>
            {
                Flow { bytes_in, deliveries, bytes_out }
            }
            Some(_) | None => Flow::default(),
        }
    }

    /// Puts all times of a queue into its histograms, before they are read.
    pub(crate) fn complete(&mut self, queue: QueueId) {
        let Some(of) = self.queues.get(queue.index as usize) else { return };
        if of.generation == queue.generation
            && let Some(times) = self.kept.get_mut(of.times as usize)
        {
            times.time_in_queue.note_last();
            times.settle_latency.note_last();
        }
    }

    /// From the enqueueing to the first delivery; none: nothing was delivered, or there was no room for the queue's histograms. Both
    /// this and the next are as they were when they were last completed.
    pub(crate) fn time_in_queue(&self, queue: QueueId) -> Option<Summary> {
        Some(Summary::of(&self.kept_of(queue)?.time_in_queue))
    }

    /// From a delivery to its settlement.
    pub(crate) fn settle_latency(&self, queue: QueueId) -> Option<Summary> {
        Some(Summary::of(&self.kept_of(queue)?.settle_latency))
    }

    fn kept_of(&self, queue: QueueId) -> Option<&Times> {
        let of = self.queues.get(queue.index as usize).filter(|of| of.generation == queue.generation)?;
        self.kept.get(of.times as usize)
    }

    #[inline]
    fn of(&mut self, queue: QueueId) -> &mut QueueStatistics {
        let index = queue.index as usize;
        if self.queues.get(index).is_none_or(|of| of.generation != queue.generation) {
            self.begin(queue);
        }
        &mut self.queues[index]
    }

    #[cold]
    fn begin(&mut self, queue: QueueId) {
        let index = queue.index as usize;
        if self.queues.len() <= index {
            self.queues.resize(index + 1, QueueStatistics::default());
        }
        let before = QueueId { index: queue.index, generation: self.queues[index].generation };
        self.forget(before);
        self.queues[index].generation = queue.generation;
    }

    #[inline]
    fn times(&mut self, now: u64, queue: QueueId, mut index: u32) -> Option<&mut Times> {
        if index == NONE {
            index = self.find_times(now, queue)?;
        }
        let times = self.kept.get_mut(index as usize)?;
        times.used_at = now;
        Some(times)
    }

    /// Makes histograms for a queue, or takes over those of another one.
    #[cold]
    fn find_times(&mut self, now: u64, queue: QueueId) -> Option<u32> {
        let index = if self.kept.len() < HISTOGRAMS_MAX {
            let time_in_queue = Recorder::new()?;
            let settle_latency = time_in_queue.clone();
            self.kept.insert(Times { queue, used_at: now, time_in_queue, settle_latency })
        } else {
            let index = self.find_idle(now)?;
            let times = self.kept.get_mut(index)?;
            times.time_in_queue.reset();
            times.settle_latency.reset();
            let before = std::mem::replace(&mut times.queue, queue);
            self.queues[before.index as usize].times = NONE;
            index
        };
        self.of(queue).times = index as u32;
        Some(index as u32)
    }

    /// Histograms of a queue in which nothing has happened for a while, if one is found soon.
    fn find_idle(&mut self, now: u64) -> Option<usize> {
        for _ in 0..HISTOGRAM_SEARCH_MAX {
            self.hand = (self.hand + 1) % HISTOGRAMS_MAX;
            if let Some(times) = self.kept.get(self.hand)
                && times.used_at + HISTOGRAM_IDLE_US <= now
            {
                return Some(self.hand);
            }
        }
        None
    }
}

impl Recorder {
    fn new() -> Option<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, DIGITS).ok()?;
        Some(Recorder { histogram, last_us: 0, count: 0 })
    }

    #[inline]
    fn record(&mut self, time_us: u64) {
        if time_us != self.last_us || self.count == u32::MAX {
            self.note_last();
            self.last_us = time_us;
        }
        self.count += 1;
    }

    #[inline(never)]
    fn note_last(&mut self) {
        if self.count > 0 {
            self.histogram.saturating_record_n(self.last_us, std::mem::take(&mut self.count));
        }
    }

    fn reset(&mut self) {
        self.histogram.reset();
        self.count = 0;
    }
}

impl Summary {
    fn of(recorder: &Recorder) -> Summary {
        let histogram = &recorder.histogram;
        if histogram.is_empty() {
            return Summary::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Summary {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: histogram.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(index: u32) -> QueueId {
        QueueId { index, generation: 0 }
    }

    fn summaries(statistics: &mut Statistics, queue: QueueId) -> Option<(Summary, Summary)> {
        statistics.complete(queue);
        Some((statistics.time_in_queue(queue)?, statistics.settle_latency(queue)?))
    }

    #[test]
    fn times_are_told_apart_to_two_digits() {
        let mut statistics = Statistics::default();
        for waited in 1..=1000 {
            statistics.note_out(0, queue(3), 10, Some(waited * 1000));
        }
        statistics.note_settled(0, queue(3), 70);
        let (waited, settled) = summaries(&mut statistics, queue(3)).unwrap();
        assert_eq!((waited.count, settled.count), (1000, 1));
        assert!((495_000..=505_000).contains(&waited.p50), "{waited:?}");
        assert!((980_000..=1_000_000).contains(&waited.p99), "{waited:?}");
        assert_eq!(settled.p50, 70);
        assert_eq!(statistics.flow(queue(3)), Flow { bytes_in: 0, deliveries: 1000, bytes_out: 10_000 });
        assert_eq!(summaries(&mut statistics, queue(2)), None);
    }

    /// What is read is the histogram that is kept, not a copy, and the times that come next go into it as before.
    #[test]
    fn a_reader_completes_what_is_kept() {
        let mut statistics = Statistics::default();
        for count in 1..=3 {
            statistics.note_out(0, queue(0), 1, Some(40));
            statistics.note_settled(0, queue(0), 70);
            let (waited, settled) = summaries(&mut statistics, queue(0)).unwrap();
            assert_eq!((waited.count, waited.max, settled.count, settled.max), (count, 40, count, 70));
            let kept = statistics.kept_of(queue(0)).unwrap();
            assert_eq!([kept.time_in_queue.histogram.len(), kept.settle_latency.histogram.len()], [count; 2]);
        }
    }

    #[test]
    fn a_stamp_goes_round() {
        let now = 20 * LONGEST_US + 12_345;
        assert_eq!(since_stamp(now + 160, stamp(now)), 160);
        let last = (u64::from(u32::MAX) << STAMP_SHIFT) + 15;
        assert_eq!(since_stamp(last + 33, stamp(last)), 48);
    }

    #[test]
    fn another_queue_of_the_same_index_begins_anew() {
        let mut statistics = Statistics::default();
        statistics.note_in(queue(0), 100);
        statistics.note_out(0, queue(0), 100, Some(1));
        let next = QueueId { index: 0, generation: 1 };
        statistics.note_in(next, 7);
        assert_eq!(statistics.flow(next), Flow { bytes_in: 7, deliveries: 0, bytes_out: 0 });
        assert_eq!(statistics.flow(queue(0)), Flow::default());
        assert_eq!(statistics.kept.len(), 0);
    }

    #[test]
    fn histograms_are_bounded_and_go_from_the_idle_to_the_busy() {
        let mut statistics = Statistics::default();
        for index in 0..HISTOGRAMS_MAX as u32 + 10 {
            statistics.note_out(1000, queue(index), 1, Some(1));
        }
        assert_eq!(statistics.kept.len(), HISTOGRAMS_MAX);
        assert_eq!(summaries(&mut statistics, queue(HISTOGRAMS_MAX as u32)), None);
        let later = 1000 + HISTOGRAM_IDLE_US;
        let late = queue(HISTOGRAMS_MAX as u32);
        statistics.note_out(later, late, 1, Some(5));
        assert_eq!(summaries(&mut statistics, late).unwrap().0.count, 1);
        assert_eq!(statistics.kept.len(), HISTOGRAMS_MAX);
        let without =
            (0..HISTOGRAMS_MAX as u32).filter(|index| summaries(&mut statistics, queue(*index)).is_none());
        assert_eq!(without.count(), 1);
    }
}
