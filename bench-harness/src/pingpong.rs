//! How long does a message take from its producer to its consumer when it is alone? One in flight.
//!
//! A closed loop: the next message is sent when the one before has arrived. The time starts before the message is encoded
//! and ends when the consumer has it decoded; settlements and credit are sent between messages, not within that time.
//!
//! On two connections, TCP acknowledges each message by a segment of its own in either direction, which costs loopback
//! half an echo; on one connection the next message carries the acknowledgement, as it does in the echo.

use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::sample::Sample;
use crate::traffic::{Both, Consumer, Flow, Producer, Receipts, Sending};
use crate::url::Url;

/// How often the producer's socket is looked at while a message is awaited, in looks at the consumer's.
const PRODUCER_LOOK_EVERY: u32 = 64;

/// How producer and consumer are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Both links on one connection, as an echo has it.
    One,
    /// Each on its own.
    Two,
}

/// Measures the broker at `url`. `watch` is told each phase when it is reached.
pub fn run(
    url: &Url,
    flow: &Flow,
    connections: Connections,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    match connections {
        Connections::One => measure(Both::attach(url, clock, flow)?, flow, clock, timing, watch),
        Connections::Two => {
            let consumer = Consumer::attach(url, clock, flow)?;
            let producer = Producer::attach(url, clock, flow, 0)?;
            measure(Two { producer, consumer }, flow, clock, timing, watch)
        }
    }
}

/// Both ends of a queue.
trait Ends {
    /// Writes a message, or more of it, and sends it. Whether it is written to its end.
    fn send(&mut self, sent_ns: u64) -> Result<bool, BenchError>;
    /// Looks for the message.
    fn look(&mut self, receipts: &mut Receipts) -> Result<(), BenchError>;
    /// Lets the producer hear what the broker says.
    fn hear(&mut self) -> Result<(), BenchError>;
    /// Sends settlements and credit that are due.
    fn answer(&mut self) -> Result<(), BenchError>;
    /// Sends all settlements.
    fn settle(&mut self) -> Result<(), BenchError>;
    fn is_settled(&self) -> bool;
    fn sending(&self) -> &Sending;
    fn close(self);
}

struct Two {
    producer: Producer,
    consumer: Consumer,
}

fn measure(
    mut ends: impl Ends,
    flow: &Flow,
    clock: Clock,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let mut receipts = Receipts::new(flow, 1);
    let mut sample = Sample::default();
    let patience_ns = timing.patience.as_nanos() as u64;
    let mut stopwatch = Stopwatch::new(timing, clock.now_ns());
    loop {
        let now = clock.now_ns();
        if stopwatch.starts(now) {
            watch(Phase::Measuring);
            receipts.forget_foreign();
        }
        if stopwatch.is_over(now) {
            sample.elapsed = stopwatch.elapsed(now);
            watch(Phase::Measured);
            break;
        }
        let sent_ns = clock.now_ns();
        let Some(received_ns) = exchange(&mut ends, &mut receipts, clock, sent_ns, patience_ns)? else {
            break;
        };
        if stopwatch.is_measuring() {
            sample.latencies.record(received_ns - sent_ns);
            sample.count += 1;
        }
        ends.answer()?;
        ends.hear()?;
    }
    ends.settle()?;
    let deadline = clock.now_ns() + patience_ns;
    while !ends.is_settled() && clock.now_ns() < deadline {
        ends.look(&mut receipts)?;
        ends.hear()?;
    }
    sample.counts = receipts.counts([ends.sending()], true);
    ends.close();
    Ok(sample)
}

/// Sends a message and waits for it. When it was there; `None`: it did not come in time.
#[inline]
fn exchange(
    ends: &mut impl Ends,
    receipts: &mut Receipts,
    clock: Clock,
    sent_ns: u64,
    patience_ns: u64,
) -> Result<Option<u64>, BenchError> {
    let mut looks = 0_u32;
    let awaited = receipts.delivered + 1;
    let mut is_sent = ends.send(sent_ns)?;
    loop {
        ends.look(receipts)?;
        if receipts.delivered >= awaited {
            return Ok(Some(clock.now_ns()));
        }
        looks = looks.wrapping_add(1);
        if !is_sent || looks.is_multiple_of(PRODUCER_LOOK_EVERY) {
            ends.hear()?;
            if !is_sent {
                is_sent = ends.send(sent_ns)?;
            }
            if clock.now_ns() - sent_ns > patience_ns {
                return Ok(None);
            }
        }
    }
}

impl Ends for Two {
    #[inline]
    fn send(&mut self, sent_ns: u64) -> Result<bool, BenchError> {
        let is_sent = self.producer.is_flushed() && self.producer.write(|_| sent_ns)?;
        self.producer.flush()?;
        Ok(is_sent)
    }

    #[inline]
    fn look(&mut self, receipts: &mut Receipts) -> Result<(), BenchError> {
        self.consumer.receive(receipts, |_| {})?;
        Ok(())
    }

    #[inline]
    fn hear(&mut self) -> Result<(), BenchError> {
        self.producer.receive()?;
        self.producer.flush()?;
        Ok(())
    }

    #[inline]
    fn answer(&mut self) -> Result<(), BenchError> {
        self.consumer.answer()
    }

    fn settle(&mut self) -> Result<(), BenchError> {
        self.consumer.settle()
    }

    fn is_settled(&self) -> bool {
        self.producer.is_settled()
    }

    fn sending(&self) -> &Sending {
        self.producer.sending()
    }

    fn close(self) {
        self.consumer.close();
        self.producer.close();
    }
}

impl Ends for Both {
    #[inline]
    fn send(&mut self, sent_ns: u64) -> Result<bool, BenchError> {
        let is_sent = self.is_flushed() && self.write(|_| sent_ns)?;
        Both::send(self)?;
        Ok(is_sent)
    }

    #[inline]
    fn look(&mut self, receipts: &mut Receipts) -> Result<(), BenchError> {
        self.receive(receipts)
    }

    /// The connection was read already.
    #[inline]
    fn hear(&mut self) -> Result<(), BenchError> {
        Both::send(self)?;
        Ok(())
    }

    #[inline]
    fn answer(&mut self) -> Result<(), BenchError> {
        Both::answer(self)
    }

    fn settle(&mut self) -> Result<(), BenchError> {
        Both::settle(self)
    }

    fn is_settled(&self) -> bool {
        Both::is_settled(self)
    }

    fn sending(&self) -> &Sending {
        Both::sending(self)
    }

    fn close(self) {
        Both::close(self);
    }
}
