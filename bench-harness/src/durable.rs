//! How long until a durable message is confirmed, and how many are in a second? So many in flight, over one queue or over many.
//!
//! A closed loop: a message is sent whenever fewer than the depth are unconfirmed. Nobody receives meanwhile, so that every message is
//! written; afterwards all of them are received and counted. What the broker writes for that is asked of the broker itself.

use std::collections::HashSet;

use corelane_protocol::{LinkId, Progress, Token};

use crate::client::{Client, Heard, Receiver};
use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::journal::{JournalUse, Journals};
use crate::message::Template;
use crate::sample::Sample;
use crate::saturate::{Patience, WRITE_BYTES};
use crate::traffic::{Flow, Receipts};
use crate::url::Url;

/// Credit of each queue when everything is received.
const CREDIT: u32 = 500;

struct Queue {
    name: String,
    link: LinkId,
    template: Template,
    sent: u64,
}

struct Load {
    client: Client,
    clock: Clock,
    queues: Vec<Queue>,
    /// Whose turn it is.
    next: usize,
    depth: u64,
    sent: u64,
    confirmed: u64,
    refused: u64,
    sample: Sample,
    measuring: bool,
}

/// Measures the broker at `url` with `flow.window` in flight. `watch` is told each phase when it is reached.
pub fn run(
    url: &Url,
    flow: &Flow,
    queues: usize,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<(Sample, Option<JournalUse>), BenchError> {
    let clock = Clock::start();
    let journals = Journals::connect(url, clock)?;
    run_with(url, flow, queues, timing, watch, (clock, journals))
}

/// The same of a broker that is not asked what it has written.
pub fn run_unasked(url: &Url, flow: &Flow, queues: usize, timing: &Timing) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    Ok(run_with(url, flow, queues, timing, &mut |_| {}, (clock, Journals::none(clock)))?.0)
}

fn run_with(
    url: &Url,
    flow: &Flow,
    queues: usize,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
    (clock, mut journals): (Clock, Journals),
) -> Result<(Sample, Option<JournalUse>), BenchError> {
    let mut load = Load::attach(url, flow, queues, clock)?;
    let before = journals.read()?;
    load.measure(timing, watch)?;
    load.wait_for_confirms(timing)?;
    let after = journals.read()?;
    journals.close();
    let bytes = load.queues.first().map_or(0, |queue| queue.template.bytes().len() as u64);
    let used = before.zip(after).map(|(before, after)| JournalUse {
        writes: after.writes - before.writes,
        bytes: after.bytes - before.bytes,
        messages: load.sent,
        message_bytes: load.sent * bytes,
    });
    let Load { client, queues, confirmed, refused, sent, mut sample, .. } = load;
    client.close();
    let receipts = receive_all(url, flow, &queues, clock, timing)?;
    sample.counts = receipts.counts_of(queues.iter().map(|queue| queue.sent));
    (sample.counts.confirmed, sample.counts.refused) = (confirmed, refused);
    sample.counts.unconfirmed = sent - confirmed - refused;
    Ok((sample, used))
}

impl Load {
    fn attach(url: &Url, flow: &Flow, count: usize, clock: Clock) -> Result<Load, BenchError> {
        let mut client = Client::connect(url, flow.protocol, clock)?;
        let mut queues = Vec::with_capacity(count);
        for index in 0..count {
            let name = if count == 1 { flow.queue.clone() } else { format!("{}-{index}", flow.queue) };
            let link = client.open_sender(&name, false)?;
            let template = Template::durable(flow.size, flow.run, index as u8);
            if let Some(size_max) = client.message_size_max(link)
                && template.bytes().len() as u64 > size_max
            {
                return Err(BenchError::MessageTooLarge { size: flow.size, size_max: Some(size_max) });
            }
            queues.push(Queue { name, link, template, sent: 0 });
        }
        let depth = u64::from(flow.window);
        let sample = Sample::default();
        let load = Load {
            client,
            clock,
            queues,
            next: 0,
            depth,
            sent: 0,
            confirmed: 0,
            refused: 0,
            sample,
            measuring: false,
        };
        Ok(load)
    }

    fn measure(&mut self, timing: &Timing, watch: &mut dyn FnMut(Phase)) -> Result<(), BenchError> {
        let mut now = self.clock.now_ns();
        let mut stopwatch = Stopwatch::new(timing, now);
        let mut patience = Patience::new(timing, now);
        let mut confirmed_before = 0;
        loop {
            self.produce()?;
            self.receive()?;
            now = self.clock.now_ns();
            if stopwatch.starts(now) {
                watch(Phase::Measuring);
                self.measuring = true;
                confirmed_before = self.confirmed;
            }
            let gave_up = patience.is_over(now, self.confirmed + self.refused);
            if stopwatch.is_over(now) || gave_up {
                self.sample.elapsed = stopwatch.elapsed(now);
                self.sample.count = self.confirmed - confirmed_before;
                self.measuring = false;
                watch(Phase::Measured);
                return Ok(());
            }
        }
    }

    fn wait_for_confirms(&mut self, timing: &Timing) -> Result<(), BenchError> {
        let mut patience = Patience::new(timing, self.clock.now_ns());
        while self.confirmed + self.refused < self.sent {
            self.client.flush()?;
            self.receive()?;
            if patience.is_over(self.clock.now_ns(), self.confirmed + self.refused) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends to one queue after the other what may be in flight.
    #[inline]
    fn produce(&mut self) -> Result<(), BenchError> {
        let mut idle = 0;
        while self.client.is_flushed()
            && self.client.backlog() < WRITE_BYTES
            && self.sent - self.confirmed - self.refused < self.depth
            && idle < self.queues.len()
        {
            let (index, now) = (self.next, self.clock.now_ns());
            self.next = if index + 1 == self.queues.len() { 0 } else { index + 1 };
            if self.queues[index].send(&mut self.client, now)? {
                self.sent += 1;
                idle = 0;
            } else {
                idle += 1;
            }
        }
        self.client.flush()?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<(), BenchError> {
        let Load { client, clock, confirmed, refused, sample, measuring, .. } = self;
        client.receive(|heard| {
            if let Heard::Outcome { token, accepted, .. } = heard {
                if accepted && *measuring {
                    sample.latencies.record(clock.now_ns().saturating_sub(token.0));
                }
                *(if accepted { &mut *confirmed } else { &mut *refused }) += 1;
            }
            Ok(())
        })?;
        Ok(())
    }
}

impl Queue {
    /// Writes a message as a whole. False: it cannot be sent now.
    #[inline]
    fn send(&mut self, client: &mut Client, now_ns: u64) -> Result<bool, BenchError> {
        if !client.can_send(self.link) {
            return Ok(false);
        }
        self.template.stamp(self.sent, now_ns);
        let mut progress = client.write(self.link, &self.template, false, Token(now_ns, 0));
        let mut written = 0;
        // The window of a session holds more than one message.
        while let Progress::Partial { written: more, .. } = progress {
            written += more;
            progress = client.write_more(self.link, &self.template, written);
        }
        match progress {
            Progress::Complete { .. } => {
                self.sent += 1;
                Ok(true)
            }
            Progress::TooLarge => {
                let size = self.template.body().len();
                Err(BenchError::MessageTooLarge { size, size_max: None })
            }
            Progress::NotReady(_) | Progress::Partial { .. } => Ok(false),
        }
    }
}

/// Takes everything out of the queues.
fn receive_all(
    url: &Url,
    flow: &Flow,
    queues: &[Queue],
    clock: Clock,
    timing: &Timing,
) -> Result<Receipts, BenchError> {
    let mut client = Client::connect(url, flow.protocol, clock)?;
    let mut receipts = Receipts::new(flow, queues.len());
    let mut begun = HashSet::new();
    let mut links = Vec::with_capacity(queues.len());
    // Without credit before all are there: who waits for an answer passes over messages.
    for queue in queues {
        links.push(client.open_receiver(&queue.name, &Receiver::default())?);
    }
    let sent: u64 = queues.iter().map(|queue| queue.sent).sum();
    let mut patience = Patience::new(timing, clock.now_ns());
    while receipts.delivered < sent && !patience.is_over(clock.now_ns(), receipts.delivered) {
        for link in &links {
            client.renew(*link, CREDIT);
        }
        client.flush()?;
        client.receive(|heard| {
            let Heard::Message { link, bytes, .. } = heard else { return Ok(()) };
            let foreign = receipts.foreign();
            if receipts.note(bytes).is_some() {
                begun.insert(link);
            } else if !begun.contains(&link) {
                // Left by an earlier round: a broker may lose what was settled as its session ended.
                receipts.forget_foreign_since(foreign);
            }
            Ok(())
        })?;
    }
    client.flush()?;
    client.close();
    Ok(receipts)
}
