//! Who sends, and who receives? One link or channel each on a connection of its own, with everything that is counted.
//!
//! `sent - delivered ≤ window`: the workloads hold producers back, so that a queue stays as short as the asked window.
//! Nothing here allocates per message.

use corelane_protocol::{LinkId, Progress, Token};

use crate::client::{Client, Heard, Protocol, Receiver};
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
    pub protocol: Protocol,
    pub queue: String,
    /// Bytes of a body.
    pub size: usize,
    pub settle: Settle,
    /// A consumer's credit, and messages on their way for each consumer.
    pub window: u32,
    /// Tells this run's messages from all others.
    pub run: u16,
    /// Messages are to be kept.
    pub durable: bool,
}

/// A link that sends, with all that is counted of it.
pub struct Sending {
    link: LinkId,
    template: Template,
    size: usize,
    sent: u64,
    /// Bytes of the current message that are written, while it is written in part.
    written: Option<usize>,
    confirmed: u64,
    refused: u64,
    settle: Settle,
}

/// A link that receives.
pub struct Receiving {
    link: LinkId,
    window: u32,
    /// Deliveries whose settlement was not sent yet.
    unsettled: u32,
    /// Looks since anything came.
    looks: u32,
}

/// A connection with a link that sends.
pub struct Producer {
    client: Client,
    sending: Sending,
}

/// A connection with a link that receives.
pub struct Consumer {
    client: Client,
    receiving: Receiving,
}

/// A connection with both, to the same queue.
pub struct Both {
    client: Client,
    sending: Sending,
    receiving: Receiving,
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

impl Sending {
    fn attach(client: &mut Client, flow: &Flow, producer: u8) -> Result<Sending, BenchError> {
        let link = client.open_sender(&flow.queue, flow.settle == Settle::Pre)?;
        let template = match flow.durable {
            true => Template::durable(flow.size, flow.run, producer),
            false => Template::new(flow.size, flow.run, producer),
        };
        if let Some(size_max) = client.message_size_max(link)
            && template.bytes().len() as u64 > size_max
        {
            return Err(BenchError::MessageTooLarge { size: flow.size, size_max: Some(size_max) });
        }
        let (size, settle) = (flow.size, flow.settle);
        Ok(Sending { link, template, size, sent: 0, written: None, confirmed: 0, refused: 0, settle })
    }

    /// Writes one message, or as much of it as goes now. Whether it is written to its end.
    #[inline]
    fn write(&mut self, client: &mut Client, sent_ns: impl FnOnce(u64) -> u64) -> Result<bool, BenchError> {
        let (progress, before) = match self.written {
            Some(written) => (client.write_more(self.link, &self.template, written), written),
            None => {
                if !client.can_send(self.link) {
                    return Ok(false);
                }
                self.template.stamp(self.sent, sent_ns(self.sent));
                let settled = self.settle == Settle::Pre;
                (client.write(self.link, &self.template, settled, Token::default()), 0)
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

    #[inline]
    fn take_outcome(&mut self, accepted: bool) {
        *(if accepted { &mut self.confirmed } else { &mut self.refused }) += 1;
    }

    /// Every message has its outcome, or needs none.
    #[inline]
    fn is_settled(&self) -> bool {
        self.settle == Settle::Pre || self.confirmed + self.refused >= self.sent
    }

    fn count(&self, counts: &mut Counts) {
        counts.sent += self.sent;
        counts.confirmed += self.confirmed;
        counts.refused += self.refused;
        if self.settle == Settle::Batch {
            counts.unconfirmed += self.sent.saturating_sub(self.confirmed + self.refused);
        }
    }
}

impl Receiving {
    /// Attaches and gives credit.
    fn attach(client: &mut Client, flow: &Flow) -> Result<Receiving, BenchError> {
        let (settled, window) = (flow.settle == Settle::Pre, flow.window);
        let link = client.open_receiver(&flow.queue, &Receiver { settled, window, ..Receiver::default() })?;
        Ok(Receiving { link, window: flow.window, unsettled: 0, looks: 0 })
    }

    /// Notes a message. Its stamp, if it came for the first time.
    #[inline]
    fn take(&mut self, bytes: &[u8], settled: bool, receipts: &mut Receipts) -> Option<Stamp> {
        self.unsettled += u32::from(!settled);
        receipts.note(bytes)
    }

    /// Settles and renews credit when enough of either has come together.
    #[inline]
    fn answer(&mut self, client: &mut Client) -> Result<(), BenchError> {
        let low = client.renew(self.link, self.window);
        if low || self.unsettled >= SETTLE_BATCH {
            self.settle(client)?;
        } else if !client.is_flushed() {
            client.send()?;
        }
        Ok(())
    }

    /// Settles everything that came.
    #[inline]
    fn settle(&mut self, client: &mut Client) -> Result<(), BenchError> {
        self.unsettled = 0;
        client.flush()?;
        Ok(())
    }

    /// Counts a look that brought something or not.
    #[inline]
    fn note_look(&mut self, client: &mut Client, came: bool) -> Result<(), BenchError> {
        self.looks = if came { 0 } else { self.looks + 1 };
        if self.looks >= SETTLE_LOOKS {
            self.looks = 0;
            self.settle(client)?;
        }
        Ok(())
    }
}

impl Producer {
    pub fn attach(url: &Url, clock: Clock, flow: &Flow, producer: u8) -> Result<Producer, BenchError> {
        let mut client = Client::connect(url, flow.protocol, clock)?;
        let sending = Sending::attach(&mut client, flow, producer)?;
        Ok(Producer { client, sending })
    }

    /// Writes one message, or as much of it as goes now. Whether it is written to its end.
    #[inline]
    pub fn write(&mut self, sent_ns: impl FnOnce(u64) -> u64) -> Result<bool, BenchError> {
        self.sending.write(&mut self.client, sent_ns)
    }

    /// Takes what the broker says.
    #[inline]
    pub fn receive(&mut self) -> Result<(), BenchError> {
        let sending = &mut self.sending;
        self.client.receive(|heard| {
            if let Heard::Outcome { accepted, .. } = heard {
                sending.take_outcome(accepted);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Sends what is written. Whether the socket took all.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, BenchError> {
        self.client.flush()
    }

    /// Bytes that are written and not given to the socket.
    #[inline]
    pub fn backlog(&mut self) -> usize {
        self.client.backlog()
    }

    /// The socket took all that it was given.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.client.is_flushed()
    }

    /// A message is written in part.
    #[inline]
    pub fn is_writing(&self) -> bool {
        self.sending.written.is_some()
    }

    /// Every message has its outcome, or needs none.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.sending.is_settled()
    }

    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// Messages that have their outcome.
    #[inline]
    pub fn answered(&self) -> u64 {
        self.sending.confirmed + self.sending.refused
    }

    /// Says goodbye. What was sent, and what became of it.
    pub fn close(self) -> Counts {
        let mut counts = Counts::default();
        self.sending.count(&mut counts);
        self.client.close();
        counts
    }
}

impl Consumer {
    pub fn attach(url: &Url, clock: Clock, flow: &Flow) -> Result<Consumer, BenchError> {
        let mut client = Client::connect(url, flow.protocol, clock)?;
        let receiving = Receiving::attach(&mut client, flow)?;
        Ok(Consumer { client, receiving })
    }

    /// Reads once, notes each message, and gives those that came for the first time to `take`. Whether bytes came.
    #[inline]
    pub fn receive(
        &mut self,
        receipts: &mut Receipts,
        mut take: impl FnMut(Stamp),
    ) -> Result<bool, BenchError> {
        let receiving = &mut self.receiving;
        let count = self.client.receive(|heard| {
            if let Heard::Message { bytes, settled, .. } = heard
                && let Some(stamp) = receiving.take(bytes, settled, receipts)
            {
                take(stamp);
            }
            Ok(())
        })?;
        self.receiving.note_look(&mut self.client, count > 0)?;
        Ok(count > 0)
    }

    /// Settles and renews credit when enough of either has come together.
    #[inline]
    pub fn answer(&mut self) -> Result<(), BenchError> {
        self.receiving.answer(&mut self.client)
    }

    /// Settles everything that came.
    #[inline]
    pub fn settle(&mut self) -> Result<(), BenchError> {
        self.receiving.settle(&mut self.client)
    }

    pub fn close(self) {
        self.client.close();
    }
}

impl Both {
    pub fn attach(url: &Url, clock: Clock, flow: &Flow) -> Result<Both, BenchError> {
        let mut client = Client::connect(url, flow.protocol, clock)?;
        let receiving = Receiving::attach(&mut client, flow)?;
        let sending = Sending::attach(&mut client, flow, 0)?;
        Ok(Both { client, sending, receiving })
    }

    /// Writes one message, or as much of it as goes now. Whether it is written to its end.
    #[inline]
    pub fn write(&mut self, sent_ns: impl FnOnce(u64) -> u64) -> Result<bool, BenchError> {
        self.sending.write(&mut self.client, sent_ns)
    }

    /// Reads once, and notes messages and outcomes.
    #[inline]
    pub fn receive(&mut self, receipts: &mut Receipts) -> Result<(), BenchError> {
        let (sending, receiving) = (&mut self.sending, &mut self.receiving);
        let count = self.client.receive(|heard| {
            match heard {
                Heard::Message { bytes, settled, .. } => drop(receiving.take(bytes, settled, receipts)),
                Heard::Outcome { accepted, .. } => sending.take_outcome(accepted),
            }
            Ok(())
        })?;
        self.receiving.note_look(&mut self.client, count > 0)
    }

    /// Sends what is written, without the settlements that gather.
    #[inline]
    pub fn send(&mut self) -> Result<bool, BenchError> {
        self.client.send()
    }

    /// Settles and renews credit when enough of either has come together.
    #[inline]
    pub fn answer(&mut self) -> Result<(), BenchError> {
        self.receiving.answer(&mut self.client)
    }

    /// Settles everything that came.
    pub fn settle(&mut self) -> Result<(), BenchError> {
        self.receiving.settle(&mut self.client)
    }

    /// The socket took all that it was given.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.client.is_flushed()
    }

    /// Every message has its outcome, or needs none.
    pub fn is_settled(&self) -> bool {
        self.sending.is_settled()
    }

    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    pub fn close(self) {
        self.client.close();
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

    /// Messages of others so far.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// What has come of them since there were so many is out.
    pub fn forget_foreign_since(&mut self, foreign: u64) {
        self.foreign = self.foreign.min(foreign);
    }

    /// What became of all messages of `senders`. `in_order`: one consumer saw them all.
    pub fn counts<'a>(&self, senders: impl IntoIterator<Item = &'a Sending>, in_order: bool) -> Counts {
        let mut counts = Counts {
            changed: self.changed,
            foreign: self.foreign,
            delivered: self.delivered,
            ..Counts::default()
        };
        for (sending, ledger) in senders.into_iter().zip(&self.ledgers) {
            sending.count(&mut counts);
            // What changed on its way is not lost.
            counts.lost += ledger.missing(sending.sent);
            counts.duplicated += ledger.duplicated + ledger.late;
            counts.reordered += if in_order { ledger.reordered } else { 0 };
        }
        counts.lost = counts.lost.saturating_sub(counts.changed);
        counts
    }

    /// The same of senders that have sent so many each, to a queue of its own each.
    pub fn counts_of(&self, sent: impl IntoIterator<Item = u64>) -> Counts {
        let mut counts = Counts {
            changed: self.changed,
            foreign: self.foreign,
            delivered: self.delivered,
            ..Counts::default()
        };
        for (sent, ledger) in sent.into_iter().zip(&self.ledgers) {
            counts.sent += sent;
            counts.lost += ledger.missing(sent);
            counts.duplicated += ledger.duplicated + ledger.late;
            counts.reordered += ledger.reordered;
        }
        counts.lost = counts.lost.saturating_sub(counts.changed);
        counts
    }

    /// Notes a message. Its stamp, if it came for the first time.
    #[inline]
    pub fn note(&mut self, message: &[u8]) -> Option<Stamp> {
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
