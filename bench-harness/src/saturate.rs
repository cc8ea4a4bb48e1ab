//! How many messages a second go through one queue?
//!
//! Producers send as long as fewer messages than the window are on their way; consumers count what arrives. A closed loop:
//! its latencies tell how long a message waits in a full window, not how long a message takes.

use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::sample::Sample;
use crate::traffic::{Consumer, Flow, Producer, Receipts};
use crate::url::Url;

/// Bytes that a producer writes before it gives them to its socket.
pub const WRITE_BYTES: usize = 64 << 10;
/// Every so many messages one is timed: reading a clock costs as much as encoding a message.
const TIMED_EVERY: u64 = 16;

struct Load {
    clock: Clock,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    receipts: Receipts,
    /// Messages that may be on their way.
    window: u64,
    sent: u64,
    sample: Sample,
    measuring: bool,
}

/// Measures the broker at `url`. `watch` is told each phase when it is reached.
pub fn run(
    url: &Url,
    flow: &Flow,
    producers: usize,
    consumers: usize,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let consumers: Vec<Consumer> =
        (0..consumers).map(|_| Consumer::attach(url, clock, flow)).collect::<Result<_, _>>()?;
    let producers: Vec<Producer> = (0..producers)
        .map(|index| Producer::attach(url, clock, flow, index as u8))
        .collect::<Result<_, _>>()?;
    let mut load = Load {
        clock,
        receipts: Receipts::new(flow, producers.len()),
        window: u64::from(flow.window) * consumers.len() as u64,
        producers,
        consumers,
        sent: 0,
        sample: Sample::default(),
        measuring: false,
    };
    load.measure(timing, watch)?;
    load.drain(timing)?;
    load.sample.counts =
        load.receipts.counts(load.producers.iter().map(Producer::sending), load.consumers.len() == 1);
    load.consumers.into_iter().for_each(Consumer::close);
    load.producers.into_iter().for_each(|producer| _ = producer.close());
    Ok(load.sample)
}

impl Load {
    fn measure(&mut self, timing: &Timing, watch: &mut dyn FnMut(Phase)) -> Result<(), BenchError> {
        let mut now = self.clock.now_ns();
        let mut stopwatch = Stopwatch::new(timing, now);
        let mut patience = Patience::new(timing, now);
        let mut delivered_before = 0;
        loop {
            self.produce()?;
            self.consume()?;
            now = self.clock.now_ns();
            if stopwatch.starts(now) {
                watch(Phase::Measuring);
                now = self.clock.now_ns();
                self.measuring = true;
                self.receipts.forget_foreign();
                delivered_before = self.receipts.delivered;
            }
            let gave_up = patience.is_over(now, self.receipts.delivered);
            if stopwatch.is_over(now) || gave_up {
                self.sample.elapsed = stopwatch.elapsed(now);
                self.sample.count = self.receipts.delivered - delivered_before;
                self.measuring = false;
                watch(Phase::Measured);
                return Ok(());
            }
        }
    }

    /// Lets everything arrive and be settled that was sent.
    fn drain(&mut self, timing: &Timing) -> Result<(), BenchError> {
        let mut patience = Patience::new(timing, self.clock.now_ns());
        loop {
            let mut done = true;
            for producer in &mut self.producers {
                if producer.is_writing() && producer.is_flushed() {
                    self.sent += u64::from(producer.write(|_| 0)?);
                }
                done &= producer.flush()? && !producer.is_writing();
                producer.receive()?;
                done &= producer.is_settled();
            }
            self.consume()?;
            for consumer in &mut self.consumers {
                consumer.settle()?;
            }
            done &= self.receipts.delivered >= self.sent;
            let settled = self.producers.iter().filter(|producer| producer.is_settled()).count();
            if done || patience.is_over(self.clock.now_ns(), self.receipts.delivered + settled as u64) {
                return Ok(());
            }
        }
    }

    #[inline]
    fn produce(&mut self) -> Result<(), BenchError> {
        let (clock, measuring) = (self.clock, self.measuring);
        let stamp = |sequence: u64| {
            if measuring && sequence.is_multiple_of(TIMED_EVERY) { clock.now_ns() } else { 0 }
        };
        for producer in &mut self.producers {
            while producer.is_flushed()
                && producer.backlog() < WRITE_BYTES
                && (producer.is_writing() || self.sent.saturating_sub(self.receipts.delivered) < self.window)
            {
                if producer.write(stamp)? {
                    self.sent += 1;
                } else if producer.backlog() < WRITE_BYTES {
                    break;
                }
            }
            producer.flush()?;
            producer.receive()?;
        }
        Ok(())
    }

    #[inline]
    fn consume(&mut self) -> Result<(), BenchError> {
        let (clock, measuring) = (self.clock, self.measuring);
        let latencies = &mut self.sample.latencies;
        for consumer in &mut self.consumers {
            let received = consumer.receive(&mut self.receipts, |stamp| {
                if measuring && stamp.sent_ns > 0 {
                    latencies.record(clock.now_ns() - stamp.sent_ns);
                }
            })?;
            if received {
                consumer.answer()?;
            }
        }
        Ok(())
    }
}

/// How long to go on without progress.
pub(crate) struct Patience {
    patience_ns: u64,
    since_ns: u64,
    progress: u64,
}

impl Patience {
    pub(crate) fn new(timing: &Timing, now_ns: u64) -> Patience {
        Patience { patience_ns: timing.patience.as_nanos() as u64, since_ns: now_ns, progress: 0 }
    }

    /// `progress` grows as long as there is hope.
    #[inline]
    pub(crate) fn is_over(&mut self, now_ns: u64, progress: u64) -> bool {
        if progress != self.progress {
            self.progress = progress;
            self.since_ns = now_ns;
        }
        now_ns - self.since_ns >= self.patience_ns
    }
}
