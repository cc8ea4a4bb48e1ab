//! What is known of one link, and what does a flow do to its credit?
//!
//! We receive: `delivery_count ≤ delivery_limit_max`, the furthest that any credit we granted has allowed; so credit
//! that was taken back does not turn transfers already on their way into a fault. We send: `credit` falls as
//! `delivery_count` rises, which keeps the limit the receiver named (§2.6.7).

use corelane_wire::amqp10::{Flow, ReceiverSettleMode, Role, SenderSettleMode};

use crate::serial;

use super::ids::TransactionId;
use super::settlement::transaction_of_flow;
use super::tags::Tags;

#[derive(Debug)]
pub(super) struct Link {
    /// Tells this link from others that had its slot.
    pub(super) epoch: Epoch,
    /// Slot of its session.
    pub(super) session: usize,
    /// We attached it, and the peer's attach has not come.
    pub(super) initiated: bool,
    pub(super) state: LinkState,
    pub(super) name: Box<str>,
    pub(super) sender_settle_mode: SenderSettleMode,
    pub(super) receiver_settle_mode: ReceiverSettleMode,
    /// The handle in the frames we write.
    pub(super) local_handle: u32,
    /// The handle in the frames we read, from the peer's attach to its detach.
    pub(super) remote_handle: Option<u32>,
    /// The peer wants a flow, which `finish_turn` writes unless another was written before.
    pub(super) echo_due: bool,
    pub(super) end: LinkEnd,
}

/// A number that is never zero and differs between links that use one slot after the other.
pub(super) type Epoch = std::num::NonZeroU32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Our attach is written, the peer's has not come.
    AttachSent,
    /// The peer's attach has come; its frame's body waits for the caller's answer.
    AttachReceived {
        body: Box<[u8]>,
        flow: bool,
    },
    Attached,
    /// Our detach is written, the peer's has not come.
    DetachSent(DetachSent),
    /// Both detaches have passed, or its session ended. The slot lives on while received deliveries are unsettled.
    Detached(Detached),
}

/// Does the caller know that the link is detached?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detached {
    /// It will be told with the peer's answer to an end or close.
    Untold,
    /// The event is in the queue.
    Queued,
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetachSent {
    /// The caller wants to hear of the answer.
    Asked,
    /// The caller has been told.
    Fault,
}

/// Our end of the link.
#[derive(Debug)]
pub(super) enum LinkEnd {
    Sender(Sender),
    Receiver(Receiver),
}

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) delivery_count: u32,
    pub(super) delivery_count_first: u32,
    pub(super) credit: u32,
    pub(super) available: u32,
    pub(super) drain: bool,
    /// The peer's max-message-size; 0: any.
    pub(super) max_message_size: u64,
    /// The delivery that is written in part.
    pub(super) partial: Option<Departing>,
    /// Deliveries that start are part of this transaction (§4.4.3).
    pub(super) transaction: Option<TransactionId>,
    /// Its deliveries in the session's unsettled ones.
    pub(super) unsettled: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Departing {
    pub(super) delivery_id: u32,
    pub(super) settled: bool,
    /// The caller took it back; the frame that says so waits for the session's window.
    pub(super) aborted: bool,
    pub(super) transaction: Option<TransactionId>,
}

#[derive(Debug)]
pub(super) struct Receiver {
    /// The next delivery's number; the peer's count as we know it.
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    pub(super) delivery_limit_max: u32,
    pub(super) drain: bool,
    pub(super) available: u32,
    pub(super) max_message_size: u64,
    /// What the peer sends shall be part of this transaction (§4.4.3).
    pub(super) transaction: Option<TransactionId>,
    /// The delivery that has arrived in part.
    pub(super) partial: Option<Arriving>,
    /// Its deliveries in the session's unsettled ones.
    pub(super) unsettled: usize,
    pub(super) tags: Tags,
}

/// A delivery of which more transfers must come.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) delivery_id: u32,
    pub(super) message_format: u32,
    pub(super) settled: bool,
    /// It stands among the session's unsettled deliveries.
    pub(super) recorded: bool,
    pub(super) transaction: Option<TransactionId>,
    pub(super) payload: Vec<u8>,
    /// Resumed by the peer, which we have no part of: to be ignored (§2.7.5).
    pub(super) ignored: bool,
}

impl Link {
    pub(super) fn role(&self) -> Role {
        match self.end {
            LinkEnd::Sender(_) => Role::Sender,
            LinkEnd::Receiver(_) => Role::Receiver,
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        self.state == LinkState::Attached
    }

    pub(super) fn is_detached(&self) -> bool {
        matches!(self.state, LinkState::Detached(_))
    }

    /// Its session is over: what was unsettled is nobody's any more.
    pub(super) fn forget_deliveries(&mut self) {
        match &mut self.end {
            LinkEnd::Sender(sender) => {
                sender.unsettled = 0;
                sender.partial = None;
            }
            LinkEnd::Receiver(receiver) => receiver.unsettled = 0,
        }
    }

    /// Received deliveries that wait for the caller.
    pub(super) fn received_unsettled(&self) -> usize {
        match &self.end {
            LinkEnd::Receiver(receiver) => receiver.unsettled,
            LinkEnd::Sender(_) => 0,
        }
    }
}

impl Sender {
    pub(super) fn new(delivery_count: u32) -> Self {
        Self {
            delivery_count,
            delivery_count_first: delivery_count,
            credit: 0,
            available: 0,
            drain: false,
            max_message_size: 0,
            partial: None,
            transaction: None,
            unsettled: 0,
        }
    }

    pub(super) fn flow_received(&mut self, flow: &Flow<'_>) {
        // AMQP 1.0 §2.6.7: a receiver that has not seen our attach means the first delivery-count.
        let seen = flow.delivery_count.unwrap_or(self.delivery_count_first);
        if let Some(credit) = flow.link_credit {
            // The receiver said this last, so it replaces what was left.
            self.credit = serial::remaining(seen, credit, self.delivery_count);
        }
        self.drain = flow.drain;
        if let Some(transaction) = flow.properties.as_ref().and_then(transaction_of_flow) {
            self.transaction = transaction;
        }
    }

    pub(super) fn delivery_started(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit -= 1;
        self.available = self.available.saturating_sub(1);
    }

    /// AMQP 1.0 §2.6.7: what could not be used is given up by advancing the delivery-count.
    pub(super) fn drained(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(self.credit);
        self.credit = 0;
    }
}

impl Receiver {
    pub(super) fn new(delivery_count: u32, max_message_size: u64) -> Self {
        Self {
            delivery_count,
            credit: 0,
            delivery_limit_max: delivery_count,
            drain: false,
            available: 0,
            max_message_size,
            transaction: None,
            partial: None,
            unsettled: 0,
            tags: Tags::default(),
        }
    }

    pub(super) fn grant(&mut self, credit: u32, drain: bool) {
        // Limits further away could not be compared (RFC 1982 §3.2).
        let credit = credit.min(i32::MAX as u32);
        self.credit = credit;
        self.drain = drain;
        let limit = self.delivery_count.wrapping_add(credit);
        if serial::distance(self.delivery_limit_max, limit) > 0 {
            self.delivery_limit_max = limit;
        }
    }

    /// Counts a delivery that starts to arrive; `false` if no credit we ever granted allows it.
    pub(super) fn delivery_started(&mut self) -> bool {
        if self.delivery_count == self.delivery_limit_max {
            return false;
        }
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
        self.available = self.available.saturating_sub(1);
        true
    }

    /// One delivery of those that were counted is not to be seen.
    pub(super) fn refund(&mut self) {
        self.grant(self.credit.saturating_add(1), self.drain);
    }

    /// The sender has named its first delivery's number; credit we granted before counts from there (§2.6.7).
    pub(super) fn confirmed(&mut self, delivery_count: u32) {
        // The most that was granted, which may be more than what is granted now.
        let granted_max = self.delivery_limit_max.wrapping_sub(self.delivery_count);
        self.delivery_count = delivery_count;
        self.delivery_limit_max = delivery_count.wrapping_add(granted_max);
    }

    /// The sender's view of itself: it may have given credit up (§2.6.7), never taken more.
    pub(super) fn flow_received(&mut self, flow: &Flow<'_>) {
        if let Some(count) = flow.delivery_count {
            let advanced = serial::distance(self.delivery_count, count);
            let left = serial::distance(count, self.delivery_limit_max);
            if advanced > 0 && left >= 0 {
                self.delivery_count = count;
                self.credit = self.credit.saturating_sub(advanced as u32);
            }
        }
        if let Some(available) = flow.available {
            self.available = available;
        }
        if self.drain && self.credit == 0 {
            self.drain = false;
        }
    }
}
