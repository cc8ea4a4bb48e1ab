//! Who sends, and who receives? One link each on a connection of its own, with everything that is counted.
//!
//! `sent - delivered ≤ window`: the workloads hold producers back, so that a queue stays as short as the asked window.
//! Nothing here allocates per message.

use corelane_protocol::amqp10::{
    Connection, Event, LinkId, Message, Outgoing, Payload, Progress, SendReadiness, Token,
};
use corelane_wire::amqp10::DeliveryState;

use crate::client::{Client, End, pass};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::ledger::Ledger;
use crate::message::{Arrival, Reader, Stamp, Template};
use crate::sample::Counts;
use crate::url::Url;

/// Deliveries that are settled together.
const SETTLE_BATCH: u32 = 64;
/// Looks at a socket without anything there, after which fewer are settled: the broker may wait for it.
const SETTLE_LOOKS: u32 = 1024;

/// How messages are settled, on both sides of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Settle {
    /// Sent settled: no outcomes at all.
    Pre,
    /// Accepted in ranges by the broker and by the consumer.
    Batch,
}

impl Settle {
    pub fn name(self) -> &'static str {
        match self {
            Settle::Pre => "pre",
            Settle::Batch => "batch",
        }
    }
}

/// What flows.
#[derive(Clone, Debug)]
pub struct Flow {
    pub queue: String,
    /// Bytes of a body.
    pub size: usize,
    pub settle: Settle,
    /// A consumer's credit, and messages on their way for each consumer.
    pub window: u32,
    /// Tells this run's messages from all others.
    pub run: u16,
}

/// A connection with a link that sends.
pub struct Producer {
    client: Client,
    link: LinkId,
    template: Template,
    size: usize,
    sent: u64,
    /// Bytes of the current message that are written, while it is written in part.
    written: Option<usize>,
    outcomes: Outcomes,
    settle: Settle,
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    confirmed: u64,
    refused: u64,
}

/// A connection with a link that receives.
pub struct Consumer {
    client: Client,
    link: LinkId,
    window: u32,
    /// Deliveries whose settlement was not sent yet.
    unsettled: u32,
    /// Looks since anything came.
    looks: u32,
}

/// What all consumers received.
pub struct Receipts {
    reader: Reader,
    ledgers: Vec<Ledger>,
    changed: u64,
    foreign: u64,
    /// Different messages.
    pub delivered: u64,
}

impl Producer {
    pub fn attach(url: &Url, clock: Clock, flow: &Flow, producer: u8) -> Result<Producer, BenchError> {
        let mut client = Client::connect(url, clock)?;
        let link = client.attach(&flow.queue, End::Sender, flow.settle == Settle::Pre)?;
        let template = Template::new(flow.size, flow.run, producer);
        if let Some(size_max) = client.connection.message_size_max(link)
            && template.bytes().len() as u64 > size_max
        {
            return Err(BenchError::MessageTooLarge { size: flow.size, size_max: Some(size_max) });
        }
        let (outcomes, settle) = (Outcomes::default(), flow.settle);
        Ok(Producer { client, link, template, size: flow.size, sent: 0, written: None, outcomes, settle })
    }

    /// Writes one message, or as much of it as goes now. Whether it is written to its end.
    #[inline]
    pub fn write(&mut self, sent_ns: impl FnOnce(u64) -> u64) -> Result<bool, BenchError> {
        let connection = &mut self.client.connection;
        let (progress, before) = match self.written {
            Some(written) => (connection.send_more(self.link, &self.template.bytes()[written..]), written),
            None => {
                if connection.can_send(self.link) != SendReadiness::Ready {
                    return Ok(false);
                }
                self.template.stamp(self.sent, sent_ns(self.sent));
                let settled = self.settle == Settle::Pre;
                let (token, rest) = (Token::default(), self.template.bytes());
                let outgoing = Outgoing { token, settled, message_format: 0, head: &[], rest };
                (connection.send(self.link, &outgoing), 0)
            }
        };
        match progress {
            Progress::Complete { .. } => {
                self.sent += 1;
                self.written = None;
                Ok(true)
            }
            Progress::Partial { written, .. } => {
                self.written = Some(before + written);
                Ok(false)
            }
            Progress::NotReady(_) => Ok(false),
            Progress::TooLarge => Err(BenchError::MessageTooLarge { size: self.size, size_max: None }),
        }
    }

    /// Takes what the broker says. Whether it said anything.
    #[inline]
    pub fn receive(&mut self) -> Result<bool, BenchError> {
        let outcomes = &mut self.outcomes;
        let received = self.client.receive(|connection, event| match event {
            Event::Disposition { state, .. } => {
                outcomes.take(connection, state);
                Ok(())
            }
            Event::LinkFlow { .. } | Event::SessionFlow { .. } => Ok(()),
            event => pass("the broker", &event),
        })?;
        Ok(received > 0)
    }

    /// Sends what is written. Whether the socket took all.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, BenchError> {
        self.client.flush()
    }

    /// Bytes that are written and not given to the socket.
    #[inline]
    pub fn backlog(&mut self) -> usize {
        self.client.connection.output().len()
    }

    /// The socket took all that it was given.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.client.is_flushed()
    }

    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// A message is written in part.
    #[inline]
    pub fn is_writing(&self) -> bool {
        self.written.is_some()
    }

    /// Every message has its outcome, or needs none.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.settle == Settle::Pre || self.outcomes.confirmed + self.outcomes.refused >= self.sent
    }

    pub fn close(self) {
        self.client.close();
    }

    fn count(&self, counts: &mut Counts) {
        counts.sent += self.sent;
        counts.confirmed += self.outcomes.confirmed;
        counts.refused += self.outcomes.refused;
        if self.settle == Settle::Batch {
            counts.unconfirmed += self.sent.saturating_sub(self.outcomes.confirmed + self.outcomes.refused);
        }
    }
}

impl Outcomes {
    #[inline]
    fn take(&mut self, connection: &mut Connection, state: Option<DeliveryState<'_>>) {
        let mut count = 0;
        while let Some(disposed) = connection.poll_outcome() {
            count += 1;
            if !disposed.settled {
                connection.settle_sent(disposed.link, disposed.delivery_id, None);
            }
        }
        match state {
            Some(DeliveryState::Accepted) => self.confirmed += count,
            Some(_) | None => self.refused += count,
        }
    }
}

impl Consumer {
    /// Attaches and gives credit.
    pub fn attach(url: &Url, clock: Clock, flow: &Flow) -> Result<Consumer, BenchError> {
        let mut client = Client::connect(url, clock)?;
        let link = client.attach(&flow.queue, End::Receiver, flow.settle == Settle::Pre)?;
        client.connection.grant_credit(link, flow.window, false);
        client.flush()?;
        Ok(Consumer { client, link, window: flow.window, unsettled: 0, looks: 0 })
    }

    /// Reads once, notes each message, and gives those that came for the first time to `take`. Whether bytes came.
    #[inline]
    pub fn receive(
        &mut self,
        receipts: &mut Receipts,
        mut take: impl FnMut(Stamp),
    ) -> Result<bool, BenchError> {
        let (link, unsettled) = (self.link, &mut self.unsettled);
        let received = self.client.receive(|connection, event| match event {
            Event::Message(message) => {
                if let Some(stamp) = receipts.note(message.payload.bytes()) {
                    take(stamp);
                }
                *unsettled += u32::from(!message.settled);
                dispose(connection, link, message);
                Ok(())
            }
            Event::LinkFlow { .. } | Event::SessionFlow { .. } | Event::Disposition { .. } => Ok(()),
            event => pass("the broker", &event),
        })?;
        if received > 0 {
            self.looks = 0;
            return Ok(true);
        }
        self.looks += 1;
        if self.looks >= SETTLE_LOOKS {
            self.looks = 0;
            self.settle()?;
        }
        Ok(false)
    }

    /// Settles and renews credit when enough of either has come together.
    #[inline]
    pub fn answer(&mut self) -> Result<(), BenchError> {
        let low = self.client.connection.credit(self.link) <= self.window / 2;
        if low {
            self.client.connection.grant_credit(self.link, self.window, false);
        }
        if low || self.unsettled >= SETTLE_BATCH {
            self.settle()?;
        } else if !self.client.is_flushed() {
            self.client.send()?;
        }
        Ok(())
    }

    /// Settles everything that came.
    #[inline]
    pub fn settle(&mut self) -> Result<(), BenchError> {
        self.unsettled = 0;
        self.client.flush()?;
        Ok(())
    }

    pub fn close(self) {
        self.client.close();
    }
}

#[inline]
fn dispose(connection: &mut Connection, link: LinkId, message: Message<'_>) {
    if !message.settled {
        connection.settle(link, message.delivery_id, &DeliveryState::Accepted);
    }
    if let Payload::Assembled(buffer) = message.payload {
        connection.recycle(buffer);
    }
}

impl Receipts {
    pub fn new(flow: &Flow, producers: usize) -> Receipts {
        Receipts {
            reader: Reader::new(flow.size, flow.run),
            ledgers: vec![Ledger::default(); producers],
            changed: 0,
            foreign: 0,
            delivered: 0,
        }
    }

    /// What others left in the queue is out.
    pub fn forget_foreign(&mut self) {
        self.foreign = 0;
    }

    /// What became of all messages of `producers`. `in_order`: one consumer saw them all.
    pub fn counts(&self, producers: &[Producer], in_order: bool) -> Counts {
        let mut counts = Counts {
            changed: self.changed,
            foreign: self.foreign,
            delivered: self.delivered,
            ..Counts::default()
        };
        for (producer, ledger) in producers.iter().zip(&self.ledgers) {
            producer.count(&mut counts);
            // What changed on its way is not lost.
            counts.lost += ledger.missing(producer.sent);
            counts.duplicated += ledger.duplicated + ledger.late;
            counts.reordered += if in_order { ledger.reordered } else { 0 };
        }
        counts.lost = counts.lost.saturating_sub(counts.changed);
        counts
    }

    #[inline]
    fn note(&mut self, message: &[u8]) -> Option<Stamp> {
        match self.reader.read(message) {
            Arrival::Own(stamp) => {
                let Some(ledger) = self.ledgers.get_mut(usize::from(stamp.producer)) else {
                    self.foreign += 1;
                    return None;
                };
                let is_first = ledger.note(stamp.sequence);
                self.delivered += u64::from(is_first);
                is_first.then_some(stamp)
            }
            Arrival::Changed => {
                self.changed += 1;
                None
            }
            Arrival::Foreign => {
                self.foreign += 1;
                None
            }
        }
    }
}
