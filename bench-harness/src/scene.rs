//! What happens when one sends and several receive, by a schedule or as fast as a window lets it?
//!
//! A scene is what a workload has set up: a connection that sends over one or several links, sinks that receive, and perhaps a
//! server in between. `sent · copies = delivered` once all has arrived. With a schedule, latency counts from when a message was due,
//! and how late the generator itself came to it is recorded beside; what the broker made it wait for is none of that.

use std::collections::VecDeque;

use corelane_protocol::{LinkId, Progress, Token};

use crate::client::{Client, Heard};
use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::message::{Arrival, Reader, Stamp, Template};
use crate::sample::{Counts, Latencies, Sample};
use crate::saturate::{Patience, WRITE_BYTES};
use crate::schedule::Schedule;
use crate::traffic::{Receipts, Settle};

/// Every so many messages one is timed where there is no schedule: reading a clock costs as much as encoding a message.
const TIMED_EVERY: u64 = 16;
/// Requests that wait for the server's turn to answer.
const ANSWERS_ROOM: usize = 1 << 16;

/// When messages are sent.
pub enum Pace {
    /// So many are on their way, at most.
    Window(u64),
    Timed(Schedule),
}

/// A connection that receives.
pub struct Sink {
    pub client: Client,
    pub links: Vec<LinkId>,
    pub window: u32,
    /// Which of the receipts each link counts for, by its number.
    pub groups: Vec<u16>,
    /// What a message takes of its time: it is not read meanwhile.
    pub work_ns: u64,
    pub busy_until_ns: u64,
    /// Links that have had a message since credit was looked at.
    pub touched: Vec<LinkId>,
}

/// Answers each request by a message with the same stamp.
pub struct Server {
    pub client: Client,
    pub requests: LinkId,
    pub answers: LinkId,
    pub template: Template,
    pub reader: Reader,
    pub window: u32,
    pub waiting: VecDeque<Stamp>,
}

pub struct Scene {
    pub clock: Clock,
    pub settle: Settle,
    pub producer: Client,
    /// Messages go to these by turns.
    pub outlets: Vec<LinkId>,
    pub templates: Vec<Template>,
    pub sinks: Vec<Sink>,
    pub server: Option<Server>,
    /// How often each message is received, and by whom.
    pub receipts: Vec<Receipts>,
    pub in_order: bool,
    /// Connections that are just there.
    pub company: Vec<Client>,
    pub progress: State,
}

/// What has happened so far.
#[derive(Default)]
pub struct State {
    sent: u64,
    delivered: u64,
    confirmed: u64,
    refused: u64,
    /// The message at the turn is written in part.
    written: Option<usize>,
    /// Since when the producer can go on, after the broker made it wait.
    free_since_ns: u64,
    is_blocked: bool,
    measuring: bool,
    latencies: Latencies,
    lag: Latencies,
}

impl Sink {
    pub fn new(client: Client, window: u32) -> Sink {
        let touched = Vec::with_capacity(window.max(1024) as usize * 2);
        Sink { client, links: Vec::new(), window, groups: Vec::new(), work_ns: 0, busy_until_ns: 0, touched }
    }

    pub fn add(&mut self, link: LinkId, group: u16) {
        let number = link.0 as usize;
        if self.groups.len() <= number {
            self.groups.resize(number + 1, 0);
        }
        self.groups[number] = group;
        self.links.push(link);
    }

    /// Lets messages come.
    pub fn begin(&mut self) -> Result<(), BenchError> {
        for link in &self.links {
            self.client.renew(*link, self.window);
        }
        self.client.flush().map(drop)
    }
}

impl Server {
    pub fn room() -> VecDeque<Stamp> {
        VecDeque::with_capacity(ANSWERS_ROOM)
    }

    #[inline]
    fn turn(&mut self) -> Result<(), BenchError> {
        let (reader, waiting) = (&self.reader, &mut self.waiting);
        self.client.receive(|heard| {
            if let Heard::Message { bytes, .. } = heard
                && let Arrival::Own(stamp) = reader.read(bytes)
            {
                waiting.push_back(stamp);
            }
            Ok(())
        })?;
        while let Some(stamp) = self.waiting.front()
            && self.client.is_flushed()
            && self.client.can_send(self.answers)
        {
            self.template.stamp(stamp.sequence, stamp.sent_ns);
            let progress = self.client.write(self.answers, &self.template, true, Token::default());
            finish(&mut self.client, self.answers, &self.template, progress)?;
            self.waiting.pop_front();
        }
        self.client.renew(self.requests, self.window);
        self.client.flush().map(drop)
    }
}

/// Writes the rest of a message that went in part: the window of a session holds more than one.
fn finish(
    client: &mut Client,
    link: LinkId,
    template: &Template,
    mut progress: Progress,
) -> Result<(), BenchError> {
    let mut written = 0;
    while let Progress::Partial { written: more, .. } = progress {
        written += more;
        progress = client.write_more(link, template, written);
    }
    match progress {
        Progress::TooLarge => {
            Err(BenchError::MessageTooLarge { size: template.body().len(), size_max: None })
        }
        Progress::Complete { .. } | Progress::Partial { .. } | Progress::NotReady(_) => Ok(()),
    }
}

impl Scene {
    /// Plays it. `watch` is told each phase when it is reached.
    pub fn run(
        mut self,
        mut pace: Pace,
        timing: &Timing,
        watch: &mut dyn FnMut(Phase),
    ) -> Result<Sample, BenchError> {
        let mut sample = Sample::default();
        let mut now = self.clock.now_ns();
        let mut stopwatch = Stopwatch::new(timing, now);
        let mut patience = Patience::new(timing, now);
        let mut before = 0;
        loop {
            self.produce(&mut pace)?;
            self.consume()?;
            now = self.clock.now_ns();
            if stopwatch.starts(now) {
                watch(Phase::Measuring);
                self.receipts.iter_mut().for_each(Receipts::forget_foreign);
                (self.progress.measuring, before) = (true, self.progress.delivered);
            }
            // A schedule that has nothing due is no lack of progress.
            if matches!(&pace, Pace::Timed(_)) && !self.is_awaiting() {
                patience = Patience::new(timing, now);
            }
            let gave_up = patience.is_over(now, self.progress.delivered);
            if stopwatch.is_over(now) || gave_up {
                sample.elapsed = stopwatch.elapsed(now);
                sample.count = self.progress.delivered - before;
                watch(Phase::Measured);
                break;
            }
        }
        self.drain(&pace, timing)?;
        sample.counts = self.counts();
        sample.latencies = std::mem::take(&mut self.progress.latencies);
        sample.lag = matches!(pace, Pace::Timed(_)).then(|| std::mem::take(&mut self.progress.lag));
        self.close();
        Ok(sample)
    }

    fn is_awaiting(&self) -> bool {
        self.progress.delivered < self.progress.sent * self.copies()
    }

    fn copies(&self) -> u64 {
        self.receipts.len() as u64
    }

    #[inline]
    fn produce(&mut self, pace: &mut Pace) -> Result<(), BenchError> {
        let copies = self.copies();
        while self.producer.is_flushed() && self.producer.backlog() < WRITE_BYTES {
            let now = self.clock.now_ns();
            let sent_ns = match &*pace {
                Pace::Window(window) => {
                    if self.progress.sent - self.progress.delivered / copies >= *window {
                        break;
                    }
                    let is_timed = self.progress.measuring && self.progress.sent.is_multiple_of(TIMED_EVERY);
                    if is_timed { now } else { 0 }
                }
                Pace::Timed(schedule) if schedule.due_ns() > now => break,
                Pace::Timed(schedule) => schedule.due_ns(),
            };
            if !self.send(sent_ns)? {
                break;
            }
            if let Pace::Timed(schedule) = pace {
                if self.progress.measuring {
                    let since = schedule.due_ns().max(self.progress.free_since_ns);
                    self.progress.lag.record(now.saturating_sub(since).max(1));
                }
                schedule.advance();
            }
        }
        // What comes due while the socket is full waits for the broker, and not for us.
        let blocked = !self.producer.flush()? || self.progress.is_blocked;
        let (confirmed, refused) = (&mut self.progress.confirmed, &mut self.progress.refused);
        self.producer.receive(|heard| {
            if let Heard::Outcome { accepted, .. } = heard {
                *(if accepted { &mut *confirmed } else { &mut *refused }) += 1;
            }
            Ok(())
        })?;
        if blocked {
            self.progress.free_since_ns = self.clock.now_ns();
            self.progress.is_blocked = false;
        }
        Ok(())
    }

    /// Writes one message. False: the broker does not take it now.
    #[inline]
    fn send(&mut self, sent_ns: u64) -> Result<bool, BenchError> {
        let sent = self.progress.sent;
        let link = self.outlets[(sent % self.outlets.len() as u64) as usize];
        let template = (sent % self.templates.len() as u64) as usize;
        let template = &mut self.templates[template];
        let progress = match self.progress.written {
            Some(written) => self.producer.write_more(link, template, written),
            None => {
                if !self.producer.can_send(link) {
                    self.progress.is_blocked = true;
                    return Ok(false);
                }
                template.stamp(sent, sent_ns);
                self.producer.write(link, template, self.settle == Settle::Pre, Token::default())
            }
        };
        match progress {
            Progress::Complete { .. } => {
                self.progress.sent += 1;
                self.progress.written = None;
                Ok(true)
            }
            Progress::Partial { written, .. } => {
                self.progress.written = Some(self.progress.written.unwrap_or(0) + written);
                self.progress.is_blocked = true;
                Ok(false)
            }
            Progress::NotReady(_) => {
                self.progress.is_blocked = true;
                Ok(false)
            }
            Progress::TooLarge => {
                Err(BenchError::MessageTooLarge { size: template.body().len(), size_max: None })
            }
        }
    }

    #[inline]
    fn consume(&mut self) -> Result<(), BenchError> {
        if let Some(server) = &mut self.server {
            server.turn()?;
        }
        let Scene { clock, sinks, receipts, progress, .. } = self;
        for sink in sinks {
            if sink.work_ns > 0 && clock.now_ns() < sink.busy_until_ns {
                continue;
            }
            let Sink { client, groups, touched, .. } = sink;
            let mut count = 0;
            let bytes = client.receive(|heard| {
                let Heard::Message { link, bytes, .. } = heard else { return Ok(()) };
                let group = groups.get(link.0 as usize).copied().unwrap_or(0);
                if let Some(receipts) = receipts.get_mut(usize::from(group))
                    && let Some(stamp) = receipts.note(bytes)
                {
                    progress.delivered += 1;
                    if progress.measuring && stamp.sent_ns > 0 {
                        progress.latencies.record(clock.now_ns().saturating_sub(stamp.sent_ns));
                    }
                }
                count += 1;
                if touched.last() != Some(&link) && touched.len() < touched.capacity() {
                    touched.push(link);
                }
                Ok(())
            })?;
            if bytes == 0 && sink.touched.is_empty() {
                if !sink.client.is_flushed() {
                    sink.client.send()?;
                }
                continue;
            }
            sink.busy_until_ns = clock.now_ns() + count * sink.work_ns;
            while let Some(link) = sink.touched.pop() {
                sink.client.renew(link, sink.window);
            }
            sink.client.flush()?;
        }
        Ok(())
    }

    /// Lets everything arrive and be settled that was sent.
    fn drain(&mut self, pace: &Pace, timing: &Timing) -> Result<(), BenchError> {
        let mut patience = Patience::new(timing, self.clock.now_ns());
        self.progress.measuring = matches!(pace, Pace::Timed(_));
        loop {
            if self.progress.written.is_some() && self.producer.is_flushed() {
                self.send(0)?;
            }
            // Nothing new is sent.
            self.produce(&mut Pace::Window(0))?;
            self.consume()?;
            let settled = self.progress.confirmed + self.progress.refused;
            let is_settled = self.settle == Settle::Pre || settled >= self.progress.sent;
            let done = !self.is_awaiting() && is_settled && self.progress.written.is_none();
            if done || patience.is_over(self.clock.now_ns(), self.progress.delivered + settled) {
                return Ok(());
            }
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for receipts in &self.receipts {
            counts.add(&receipts.counts_of([self.progress.sent]));
        }
        if !self.in_order {
            counts.reordered = 0;
        }
        counts.sent = self.progress.sent;
        (counts.confirmed, counts.refused) = (self.progress.confirmed, self.progress.refused);
        if self.settle == Settle::Batch {
            counts.unconfirmed = counts.sent.saturating_sub(counts.confirmed + counts.refused);
        }
        counts
    }

    fn close(self) {
        self.sinks.into_iter().for_each(|sink| sink.client.close());
        self.server.into_iter().for_each(|server| server.client.close());
        self.company.into_iter().for_each(Client::close);
        self.producer.close();
    }
}
