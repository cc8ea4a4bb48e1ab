//! How long do things take that are no messages, and what does the broker hold for them?
//!
//! Churn opens and closes one thing at a time; `queues` makes many and holds them; `idle` holds connections on which nothing
//! happens; `browse` reads a queue again and again without taking anything out. All are closed loops.

use std::time::Duration;

use crate::client::{Client, Heard, Receiver};
use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::sample::{Counts, Sample};
use crate::saturate::Patience;
use crate::subject::Running;
use crate::traffic::{Flow, Producer, Receipts};
use crate::url::Url;

/// How often it is told that an idle broker is looked at.
const IDLE_POLL: Duration = Duration::from_millis(10);

/// What is opened and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Churn {
    /// With TCP, login and open.
    Connections,
    /// Sessions, or channels.
    Sessions,
    /// Links that receive, or channels with a consumer.
    Links,
    /// Queues for one connection: dynamic nodes, or exclusive queues.
    Queues,
}

impl Churn {
    pub fn name(self) -> &'static str {
        match self {
            Churn::Connections => "connections",
            Churn::Sessions => "sessions",
            Churn::Links => "links",
            Churn::Queues => "queues",
        }
    }
}

/// Repeats `operation` for the time that is to be measured.
fn repeat(
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
    mut operation: impl FnMut(u64) -> Result<u64, BenchError>,
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut sample = Sample::default();
    let mut stopwatch = Stopwatch::new(timing, clock.now_ns());
    let mut number = 0;
    loop {
        let begun = clock.now_ns();
        if stopwatch.starts(begun) {
            watch(Phase::Measuring);
        }
        if stopwatch.is_over(begun) {
            sample.elapsed = stopwatch.elapsed(begun);
            watch(Phase::Measured);
            return Ok(sample);
        }
        let count = operation(number)?;
        number += 1;
        if stopwatch.is_measuring() {
            sample.latencies.record(clock.now_ns() - begun);
            sample.count += count;
        }
    }
}

/// Opens and closes one thing at a time.
pub fn churn(
    url: &Url,
    flow: &Flow,
    what: Churn,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let connect = || Client::connect(url, flow.protocol, clock);
    let mut client = connect()?;
    // The queue is there before, and stays.
    let receiver = Receiver { window: 1, ..Receiver::default() };
    let link = client.open_receiver(&flow.queue, &receiver)?;
    client.close_link(link)?;
    let sample = repeat(timing, watch, |number| {
        match what {
            Churn::Connections => connect()?.close(),
            Churn::Sessions => client.churn_session()?,
            Churn::Links => {
                let link = client.open_existing(&flow.queue, &receiver)?;
                client.close_link(link)?;
            }
            Churn::Queues => client.churn_queue(&format!("{}-{}-{number}", flow.queue, flow.run))?,
        }
        Ok(1)
    });
    client.close();
    sample
}

/// Makes so many queues and holds them: how long each took, and bytes of the broker's memory for each.
pub fn queues(
    url: &Url,
    flow: &Flow,
    count: u32,
    running: Option<&Running>,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut client = Client::connect(url, flow.protocol, clock)?;
    let mut sample = Sample::default();
    let channel = client.open_plain()?;
    watch(Phase::Measuring);
    let before = running.and_then(Running::memory);
    let begun = clock.now_ns();
    for number in 0..count {
        let start = clock.now_ns();
        client.make_queue(channel, &format!("{}-{}-{number}", flow.queue, flow.run))?;
        sample.latencies.record(clock.now_ns() - start);
    }
    sample.elapsed = Duration::from_nanos(clock.now_ns() - begun);
    sample.count = count.into();
    watch(Phase::Measured);
    let after = running.and_then(Running::memory);
    sample.bytes_each = each(before, after, count);
    if let Client::Amqp091(client) = &mut client
        && let Some(channel) = channel
    {
        for number in 0..count {
            client.delete(channel, &format!("{}-{}-{number}", flow.queue, flow.run))?;
        }
    }
    client.close();
    Ok(sample)
}

/// Holds so many connections with two sessions or channels each: how long each took, bytes of the broker's memory for each, and what
/// processor time it takes that nothing happens.
pub fn idle(
    url: &Url,
    flow: &Flow,
    count: u32,
    timing: &Timing,
    running: Option<&Running>,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut sample = Sample::default();
    let before = running.and_then(Running::memory);
    let mut clients = Vec::with_capacity(count as usize);
    let begun = clock.now_ns();
    for _ in 0..count {
        let start = clock.now_ns();
        let mut client = Client::connect(url, flow.protocol, clock)?;
        client.open_two_sessions()?;
        clients.push(client);
        sample.latencies.record(clock.now_ns() - start);
    }
    sample.elapsed = Duration::from_nanos(clock.now_ns() - begun);
    sample.count = count.into();
    sample.bytes_each = each(before, running.and_then(Running::memory), count);
    watch(Phase::Measuring);
    let mut stopwatch = Stopwatch::new(&Timing { warmup: Duration::ZERO, ..*timing }, clock.now_ns());
    stopwatch.starts(clock.now_ns());
    while !stopwatch.is_over(clock.now_ns()) {
        std::thread::sleep(IDLE_POLL);
    }
    watch(Phase::Measured);
    sample.idle_for = Some(stopwatch.elapsed(clock.now_ns()));
    // Who was dropped meanwhile was not held.
    for mut client in clients {
        client.receive(|_| Ok(()))?;
        client.close();
    }
    Ok(sample)
}

fn each(before: Option<u64>, after: Option<u64>, count: u32) -> Option<f64> {
    Some(after?.saturating_sub(before?) as f64 / f64::from(count.max(1)))
}

/// Reads a queue of so many messages again and again; with 0-9-1, by a consumer that gives everything back.
pub fn browse(
    url: &Url,
    flow: &Flow,
    count: u32,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut producer = Producer::attach(url, clock, flow, 0)?;
    let mut left = u64::from(count);
    let mut patience = Patience::new(timing, clock.now_ns());
    while left > 0 || !producer.is_settled() {
        if left > 0 && producer.is_flushed() && producer.write(|_| 0)? {
            left -= 1;
        }
        producer.flush()?;
        producer.receive()?;
        if patience.is_over(clock.now_ns(), left + producer.answered()) {
            break;
        }
    }
    let mut total = producer.close();
    let mut client = Client::connect(url, flow.protocol, clock)?;
    let receiver = Receiver { window: count.max(1), browses: true, ..Receiver::default() };
    let sample = repeat(timing, watch, |_| {
        let mut receipts = Receipts::new(flow, 1);
        let link = client.open_existing(&flow.queue, &receiver)?;
        let mut patience = Patience::new(timing, clock.now_ns());
        while receipts.delivered < count.into() && !patience.is_over(clock.now_ns(), receipts.delivered) {
            client.receive(|heard| {
                if let Heard::Message { bytes, .. } = heard {
                    receipts.note(bytes);
                }
                Ok(())
            })?;
            client.flush()?;
        }
        client.close_link(link)?;
        let counts = receipts.counts_of([u64::from(count)]);
        total.add(&Counts { sent: 0, ..counts });
        Ok(receipts.delivered)
    });
    client.close();
    take_out(url, flow, count, clock, timing)?;
    Ok(Sample { counts: total, ..sample? })
}

/// Leaves the queue empty.
fn take_out(url: &Url, flow: &Flow, count: u32, clock: Clock, timing: &Timing) -> Result<(), BenchError> {
    let mut client = Client::connect(url, flow.protocol, clock)?;
    let window = flow.window;
    let link = client.open_receiver(&flow.queue, &Receiver { window, ..Receiver::default() })?;
    let mut taken = 0;
    let mut patience = Patience::new(timing, clock.now_ns());
    while taken < count && !patience.is_over(clock.now_ns(), taken.into()) {
        client.receive(|heard| {
            taken += u32::from(matches!(heard, Heard::Message { .. }));
            Ok(())
        })?;
        client.renew(link, window);
        client.flush()?;
    }
    client.close();
    Ok(())
}
