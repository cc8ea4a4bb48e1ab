//! Receiving messages, and looking at them without taking them.
//!
//! Invariants: never more credit than messages still wanted, so what is not wanted stays in its queue; a message is
//! accepted when the caller says so, and what it never did goes back with the link; a browser gets each message once
//! and ends at the queue's end.

use corelane_protocol::amqp10::{AttachRequest, LinkId};
use corelane_wire::amqp10::{
    DeliveryState, DistributionMode, Encode, Map, MapWriter, Raw, Reader, ReceiverSettleMode,
    SenderSettleMode, Source, Symbols, Target, TargetArchetype,
};

use super::{ANSWER_US_MAX, Client, ClientError, Notice};

/// Messages that may be on their way.
const CREDIT_MAX: u64 = 100;

/// Which messages of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// So many; `None`: all that come.
    pub count: Option<u64>,
    /// A JMS selector.
    pub selector: Option<String>,
}

/// Why there are no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All that were wanted have come.
    Complete,
    /// None came in time.
    TimedOut,
    /// A browser has seen the whole queue.
    QueueEnd,
}

/// A link that receives.
pub struct Receiver<'a> {
    client: &'a mut Client,
    link: LinkId,
    address: String,
    browse: bool,
    /// Still wanted.
    wanted: u64,
    /// Given and not used.
    credit: u64,
}

impl Client {
    /// Takes messages from an address.
    pub fn receive(&mut self, address: &str, selection: &Selection) -> Result<Receiver<'_>, ClientError> {
        self.receiver(address, selection, false)
    }

    /// Looks at the messages of an address, which stay where they are.
    pub fn browse(&mut self, address: &str, selection: &Selection) -> Result<Receiver<'_>, ClientError> {
        self.receiver(address, selection, true)
    }

    fn receiver(
        &mut self,
        address: &str,
        selection: &Selection,
        browse: bool,
    ) -> Result<Receiver<'_>, ClientError> {
        let session = self.session()?;
        let name = format!("{}-{address}", if browse { "browse" } else { "receive" });
        let filter = selection.selector.as_deref().map(selector_filter);
        let filter = filter.as_deref().map(|bytes| Map::decode(bytes).map_err(|_| ClientError::Unreadable));
        let source = Source {
            address: Some(address),
            distribution_mode: browse.then_some(DistributionMode::Copy),
            filter: filter.transpose()?,
            ..Source::default()
        };
        let request = AttachRequest {
            name: &name,
            source: Some(source),
            target: Some(TargetArchetype::Target(Target::default())),
            sender_settle_mode: if browse { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled },
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let link = self.connection.attach_receiver(session, &request);
        let link = link.ok_or(ClientError::NoAnswer { url: self.url.clone(), awaited: "a free link" })?;
        self.wait_attached(address, link)?;
        let wanted = selection.count.unwrap_or(u64::MAX);
        Ok(Receiver { client: self, link, address: address.to_owned(), browse, wanted, credit: 0 })
    }
}

impl Receiver<'_> {
    /// Gives each message to `take` and accepts it when that returns, until there are no more. With `wait_us`, no
    /// longer than that for any one message. An error of `take` ends it; that message goes back to its queue.
    pub fn run<E>(
        &mut self,
        wait_us: Option<u64>,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Ended, E>
    where
        E: From<ClientError>,
    {
        loop {
            if self.wanted == 0 {
                return Ok(Ended::Complete);
            }
            self.grant();
            let wait_us = if self.browse { Some(ANSWER_US_MAX) } else { wait_us };
            let deadline = wait_us.map(|us| self.client.now().saturating_add(us));
            let Some(message) = self.next_message(deadline)? else {
                return Ok(if self.browse { Ended::QueueEnd } else { Ended::TimedOut });
            };
            take(&message.bytes)?;
            if !message.settled {
                self.client.connection.settle(self.link, message.delivery_id, &DeliveryState::Accepted);
            }
        }
    }

    /// Ends the link: what is on its way goes back.
    pub fn close(self) -> Result<(), ClientError> {
        self.client.connection.detach(self.link, true, None);
        self.client.flush()
    }

    /// Renews the credit when half of it is used. A browser asks for what there is and an answer when that is all.
    fn grant(&mut self) {
        let credit = self.wanted.min(CREDIT_MAX);
        let low =
            if self.browse { self.credit == 0 } else { self.credit <= credit / 2 && self.credit < credit };
        if low {
            self.credit = credit;
            // `credit ≤ CREDIT_MAX`, so nothing is cut.
            self.client.connection.grant_credit(self.link, credit as u32, self.browse);
        }
    }

    /// `None`: the time is over, or the broker has nothing more for a browser.
    fn next_message(&mut self, deadline: Option<u64>) -> Result<Option<Arrived>, ClientError> {
        loop {
            let Some(notice) = self.client.next_notice(deadline)? else {
                if self.browse {
                    let url = self.client.url.clone();
                    return Err(ClientError::NoAnswer { url, awaited: "the end of the queue" });
                }
                return Ok(None);
            };
            match notice {
                Notice::Message { link, delivery_id, settled, bytes } if link == self.link => {
                    self.credit = self.credit.saturating_sub(1);
                    self.wanted = self.wanted.saturating_sub(1);
                    return Ok(Some(Arrived { delivery_id, settled, bytes }));
                }
                // AMQP 1.0 §2.6.7: a drained sender gives up its credit when it has nothing more.
                // One that was on its way when more was granted is about the credit before.
                Notice::Credit { link, credit: 0 }
                    if link == self.link
                        && self.browse
                        && self.credit > 0
                        && self.client.connection.credit(link) == 0 =>
                {
                    return Ok(None);
                }
                Notice::Detached { link, reason } if link == self.link => {
                    return Err(ClientError::LinkEnded { address: self.address.clone(), reason });
                }
                Notice::Ended(reason) => return Err(ClientError::SessionEnded { reason }),
                Notice::Closed(reason) => return Err(self.client.closed(reason)),
                Notice::Opened
                | Notice::SessionBegun
                | Notice::Attached(_)
                | Notice::Credit { .. }
                | Notice::WindowOpened
                | Notice::Message { .. }
                | Notice::Disposed(_)
                | Notice::Detached { .. } => {}
            }
        }
    }
}

struct Arrived {
    delivery_id: u32,
    settled: bool,
    bytes: Vec<u8>,
}

/// The filter set of a JMS selector: `apache.org:selector-filter:string`, a described string.
fn selector_filter(selector: &str) -> Vec<u8> {
    const DESCRIPTOR: u64 = 0x0000_468C_0000_0004;
    let mut described = vec![0x00, 0x80];
    described.extend_from_slice(&DESCRIPTOR.to_be_bytes());
    selector.encode(&mut described);
    let mut filter = Vec::new();
    let mut map = MapWriter::new(&mut filter);
    if let Ok(value) = Raw::read(&mut Reader::new(&described)) {
        map.symbol("apache.org:selector-filter:string", &value);
    }
    map.finish();
    filter
}
