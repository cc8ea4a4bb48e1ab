//! How long does a message take from its producer to its consumer when it is alone? One in flight.
//!
//! A closed loop: the next message is sent when the one before has arrived. The time starts before the message is encoded
//! and ends when the consumer has it decoded; settlements and credit are sent between messages, not within that time.

use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::sample::Sample;
use crate::traffic::{Consumer, Flow, Producer, Receipts};
use crate::url::Url;

/// How often the producer's socket is looked at while a message is awaited, in looks at the consumer's.
const PRODUCER_LOOK_EVERY: u32 = 64;

/// Measures the broker at `url`. `watch` is told each phase when it is reached.
pub fn run(
    url: &Url,
    flow: &Flow,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut consumer = Consumer::attach(url, clock, flow)?;
    let mut producer = Producer::attach(url, clock, flow, 0)?;
    let mut receipts = Receipts::new(flow, 1);
    let mut sample = Sample::default();
    let patience_ns = timing.patience.as_nanos() as u64;
    let mut stopwatch = Stopwatch::new(timing, clock.now_ns());
    loop {
        let sent_ns = clock.now_ns();
        if stopwatch.starts(sent_ns) {
            watch(Phase::Measuring);
            receipts.forget_foreign();
        }
        if stopwatch.is_over(sent_ns) {
            sample.elapsed = stopwatch.elapsed(sent_ns);
            watch(Phase::Measured);
            break;
        }
        let sent_ns = clock.now_ns();
        let Some(received_ns) =
            send_one(&mut producer, &mut consumer, &mut receipts, clock, sent_ns, patience_ns)?
        else {
            break;
        };
        if stopwatch.is_measuring() {
            sample.latencies.record(received_ns - sent_ns);
            sample.count += 1;
        }
        consumer.answer()?;
        producer.receive()?;
        producer.flush()?;
    }
    consumer.settle()?;
    let deadline = clock.now_ns() + patience_ns;
    while !producer.is_settled() && clock.now_ns() < deadline {
        producer.receive()?;
        producer.flush()?;
    }
    sample.counts = receipts.counts(std::slice::from_ref(&producer), true);
    consumer.close();
    producer.close();
    Ok(sample)
}

/// Sends a message and waits for it. When it was there; `None`: it did not come in time.
#[inline]
fn send_one(
    producer: &mut Producer,
    consumer: &mut Consumer,
    receipts: &mut Receipts,
    clock: Clock,
    sent_ns: u64,
    patience_ns: u64,
) -> Result<Option<u64>, BenchError> {
    let mut looks = 0_u32;
    let mut is_sent = producer.write(|_| sent_ns)?;
    producer.flush()?;
    let awaited = receipts.delivered + 1;
    loop {
        consumer.receive(receipts, |_| {})?;
        if receipts.delivered >= awaited {
            return Ok(Some(clock.now_ns()));
        }
        looks = looks.wrapping_add(1);
        if !is_sent || looks.is_multiple_of(PRODUCER_LOOK_EVERY) {
            if !is_sent && producer.is_flushed() {
                is_sent = producer.write(|_| sent_ns)?;
            }
            producer.receive()?;
            producer.flush()?;
            if clock.now_ns() - sent_ns > patience_ns {
                return Ok(None);
            }
        }
    }
}
