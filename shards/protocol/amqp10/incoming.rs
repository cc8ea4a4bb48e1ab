//! How do transfer frames become messages?
//!
//! A delivery is recorded as unsettled with its first frame, so that the records ascend, and handed out with its last.
//! `assembly.size` is the sum of the payloads of all deliveries that have arrived in part.

use corelane_wire::amqp10::{ReceiverSettleMode, SenderSettleMode, Transfer};

use crate::delivery::Payload;
use crate::ids::LinkId;
use crate::serial;

use super::connection::{Connection, Step};
use super::event::{Event, Message};
use super::fault::{self, Failure};
use super::ids::{DeliveryTag, TransactionId};
use super::limits::{ASSEMBLY_RESERVE_MAX, SPARE_BUFFER_SIZE_MAX, SPARE_BUFFERS_MAX, UNSETTLED_SPAN_MAX};
use super::link::{Arriving, DetachSent, LinkEnd, LinkState};
use super::settlement::{Arrived, ArrivedPhase, transaction_of};

/// Deliveries of several frames.
#[derive(Debug)]
pub(super) struct Assembly {
    size: usize,
    /// The caller's own bound.
    size_max: usize,
    spare: Vec<Vec<u8>>,
    /// Of the last delivery of several frames: the next one is likely to be as large.
    size_last: usize,
}

impl Default for Assembly {
    fn default() -> Self {
        Self { size: 0, size_max: usize::MAX, spare: Vec::new(), size_last: 0 }
    }
}

impl Connection {
    /// Bytes of deliveries of which frames are still to come.
    #[inline]
    pub fn assembled_size(&self) -> usize {
        self.assembly.size
    }

    /// How large [`assembled_size`](Self::assembled_size) may become from now on, if that is less than what is configured: the
    /// link that goes above is detached.
    #[inline]
    pub fn bound_assembly(&mut self, size_max: usize) {
        self.assembly.size_max = size_max;
    }

    /// Takes back the buffer of [`Payload::Assembled`].
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.assembly.spare.len() < SPARE_BUFFERS_MAX && buffer.capacity() <= SPARE_BUFFER_SIZE_MAX {
            buffer.clear();
            self.assembly.spare.push(buffer);
        }
    }

    /// The tag of a received delivery that is unsettled.
    pub fn delivery_tag(&self, link: LinkId, delivery_id: u32) -> Option<&[u8]> {
        let slot = link.slot();
        let session = self.sessions.get(self.links.get(slot)?.session)?;
        let arrived = session.arrived.find(delivery_id)?;
        (arrived.link as usize == slot).then_some(&*arrived.tag)
    }

    /// Whether a delivery has arrived in part that belongs to this transaction (§4.4.2: it must not be discharged then).
    pub fn is_posting(&self, transaction: &TransactionId) -> bool {
        self.assembly.size > 0
            && self.links.iter().any(|(_, link)| match &link.end {
                LinkEnd::Receiver(receiver) => {
                    receiver.partial.as_ref().is_some_and(|partial| partial.transaction == Some(*transaction))
                }
                LinkEnd::Sender(_) => false,
            })
    }

    #[inline]
    pub(super) fn handle_transfer<'a>(
        &mut self,
        session: usize,
        transfer: &Transfer<'a>,
        payload: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        let entry = &mut self.sessions[session];
        // AMQP 1.0 §2.8.17: more transfers than the window allowed.
        if entry.incoming_window == 0 {
            return Err(fault::WINDOW.on_session(session));
        }
        entry.incoming_window -= 1;
        entry.next_incoming_id = entry.next_incoming_id.wrapping_add(1);
        let slot = entry.link_of(transfer.handle).ok_or(fault::HANDLE_UNATTACHED.on_session(session))?;
        if entry.incoming_window <= self.config.incoming_window / 2 && !entry.flow_due {
            entry.flow_due = true;
            self.mark_dirty(session);
        }
        let link = &mut self.links[slot];
        let LinkEnd::Receiver(receiver) = &mut link.end else {
            return Err(fault::WRONG_DIRECTION.on_link(slot));
        };
        match link.state {
            LinkState::Attached => {}
            LinkState::DetachSent(reason) => return self.pass_over(slot, reason, transfer),
            LinkState::AttachReceived { .. } | LinkState::AttachSent | LinkState::Detached(_) => {
                return Err(fault::CREDIT.on_link(slot));
            }
        }
        if receiver.partial.is_some() {
            self.continue_delivery(slot, transfer, payload)
        } else {
            self.start_delivery(slot, transfer, payload)
        }
    }

    #[inline]
    fn start_delivery<'a>(
        &mut self,
        slot: usize,
        transfer: &Transfer<'a>,
        payload: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        let (delivery_id, tag) = self.admit(slot, transfer)?;
        if transfer.aborted {
            self.refund(slot);
            return Ok(Step::Again);
        }
        let link = &mut self.links[slot];
        let LinkEnd::Receiver(receiver) = &mut link.end else {
            return Err(fault::WRONG_DIRECTION.on_link(slot));
        };
        if receiver.max_message_size > 0 && payload.len() as u64 > receiver.max_message_size {
            return Err(fault::MESSAGE_SIZE.on_link(slot));
        }
        let settled = transfer.settled == Some(true) || link.sender_settle_mode == SenderSettleMode::Settled;
        let ignored = transfer.resume;
        let recorded = !settled && !ignored;
        if recorded {
            self.record(slot, delivery_id, tag, transfer.rcv_settle_mode)?;
        }
        let transaction = transaction_of(transfer.state.as_ref());
        let message_format = transfer.message_format.unwrap_or(0);
        if !transfer.more && !ignored {
            return Ok(Step::Event(Event::Message(Message {
                link: LinkId(slot as u32),
                delivery_id,
                settled,
                message_format,
                payload: Payload::Slice(payload),
                transaction,
            })));
        }
        let payload_start = self
            .assembly
            .spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(self.assembly.size_last.min(ASSEMBLY_RESERVE_MAX)));
        if let LinkEnd::Receiver(receiver) = &mut self.links[slot].end {
            receiver.partial = Some(Arriving {
                delivery_id,
                message_format,
                settled,
                recorded,
                transaction,
                payload: payload_start,
                ignored,
            });
        }
        self.join(slot, transfer, payload)
    }

    /// Checks what names a new delivery, and counts it against the link's credit.
    #[inline]
    fn admit<'a>(&mut self, slot: usize, transfer: &Transfer<'a>) -> Result<(u32, &'a [u8]), Failure> {
        let link = &mut self.links[slot];
        let session = &mut self.sessions[link.session];
        let LinkEnd::Receiver(receiver) = &mut link.end else {
            return Err(fault::WRONG_DIRECTION.on_link(slot));
        };
        let delivery_id = transfer.delivery_id.ok_or(fault::DELIVERY_ID_MISSING.on_link(slot))?;
        let tag = transfer.delivery_tag.ok_or(fault::DELIVERY_TAG_MISSING.on_link(slot))?;
        // AMQP 1.0 §2.8.4: delivery numbers are a sequence of the session.
        if session.last_delivery_id.is_some_and(|last| serial::distance(last, delivery_id) <= 0) {
            return Err(fault::DELIVERY_ID_ORDER.on_session(link.session));
        }
        session.last_delivery_id = Some(delivery_id);
        // AMQP 1.0 §2.8.18: transfer-limit-exceeded.
        if !receiver.delivery_started() {
            return Err(fault::CREDIT.on_link(slot));
        }
        Ok((delivery_id, tag))
    }

    /// Notes a delivery that will want an outcome.
    #[inline]
    fn record(
        &mut self,
        slot: usize,
        delivery_id: u32,
        tag: &[u8],
        mode: Option<ReceiverSettleMode>,
    ) -> Result<(), Failure> {
        let link = &mut self.links[slot];
        let session = &mut self.sessions[link.session];
        let LinkEnd::Receiver(receiver) = &mut link.end else {
            return Err(fault::WRONG_DIRECTION.on_link(slot));
        };
        let phase = match (link.receiver_settle_mode, mode) {
            // AMQP 1.0 §2.7.5: a link of mode first has no transfer of mode second.
            (ReceiverSettleMode::First, Some(ReceiverSettleMode::Second)) => {
                return Err(fault::SETTLE_MODE.on_link(slot));
            }
            (ReceiverSettleMode::Second, None | Some(ReceiverSettleMode::Second)) => ArrivedPhase::Second,
            (_, _) => ArrivedPhase::First,
        };
        let span = session.arrived.first_id().map_or(0, |first| delivery_id.wrapping_sub(first));
        if span > UNSETTLED_SPAN_MAX {
            return Err(fault::UNSETTLED_SPAN.on_session(link.session));
        }
        if session.arrived.count() >= self.config.unsettled_max {
            return Err(fault::UNSETTLED.on_session(link.session));
        }
        // AMQP 1.0 §2.6.12: a tag is unique among the link's unsettled deliveries.
        if !receiver.tags.insert(tag, delivery_id, slot as u32, receiver.unsettled, &session.arrived) {
            return Err(fault::TAG_IN_USE.on_link(slot));
        }
        let Some(tag) = DeliveryTag::new(tag) else { return Err(fault::DELIVERY_TAG_MISSING.on_link(slot)) };
        session.arrived.push(delivery_id, Arrived { link: slot as u32, tag, phase });
        receiver.unsettled += 1;
        Ok(())
    }

    fn continue_delivery<'a>(
        &mut self,
        slot: usize,
        transfer: &Transfer<'a>,
        payload: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        let LinkEnd::Receiver(receiver) = &mut self.links[slot].end else {
            return Err(fault::WRONG_DIRECTION.on_link(slot));
        };
        let Some(partial) = &mut receiver.partial else { return Ok(Step::Again) };
        // AMQP 1.0 §2.7.5: a continuation names the same delivery or none.
        if transfer.delivery_id.is_some_and(|id| id != partial.delivery_id) {
            return Err(fault::DELIVERY_ID_CHANGED.on_link(slot));
        }
        // AMQP 1.0 §2.7.5: settled holds once it was said on any of the transfers.
        partial.settled |= transfer.settled == Some(true);
        if partial.transaction.is_none() {
            partial.transaction = transaction_of(transfer.state.as_ref());
        }
        if transfer.aborted {
            self.discard_partial(slot);
            self.refund(slot);
            return Ok(Step::Again);
        }
        self.join(slot, transfer, payload)
    }

    /// Adds a frame to the link's partial delivery, and hands the delivery out if that was the last.
    fn join<'a>(
        &mut self,
        slot: usize,
        transfer: &Transfer<'a>,
        payload: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        let LinkEnd::Receiver(receiver) = &mut self.links[slot].end else {
            return Err(fault::WRONG_DIRECTION.on_link(slot));
        };
        let Some(partial) = &mut receiver.partial else { return Ok(Step::Again) };
        if partial.ignored {
            if !transfer.more {
                self.discard_partial(slot);
                self.refund(slot);
            }
            return Ok(Step::Again);
        }
        let size = partial.payload.len() + payload.len();
        if receiver.max_message_size > 0 && size as u64 > receiver.max_message_size {
            return Err(fault::MESSAGE_SIZE.on_link(slot));
        }
        if self.assembly.size + payload.len() > self.config.assembly_size_max.min(self.assembly.size_max) {
            return Err(fault::ASSEMBLY_SIZE.on_link(slot));
        }
        self.assembly.size += payload.len();
        partial.payload.extend_from_slice(payload);
        if transfer.more {
            return Ok(Step::Again);
        }
        let Some(partial) = receiver.partial.take() else { return Ok(Step::Again) };
        self.assembly.size -= partial.payload.len();
        self.assembly.size_last = partial.payload.len();
        if partial.settled && partial.recorded {
            self.forget_arrived(slot, partial.delivery_id);
        }
        Ok(Step::Event(Event::Message(Message {
            link: LinkId(slot as u32),
            delivery_id: partial.delivery_id,
            settled: partial.settled,
            message_format: partial.message_format,
            payload: Payload::Assembled(partial.payload),
            transaction: partial.transaction,
        })))
    }

    /// Drops what has arrived of a delivery, or was written of one, that will not be completed.
    pub(super) fn discard_partial(&mut self, slot: usize) {
        match &mut self.links[slot].end {
            LinkEnd::Sender(sender) => sender.partial = None,
            LinkEnd::Receiver(receiver) => {
                let Some(partial) = receiver.partial.take() else { return };
                self.assembly.size -= partial.payload.len();
                if partial.recorded {
                    self.forget_arrived(slot, partial.delivery_id);
                }
                self.recycle(partial.payload);
            }
        }
    }

    /// Gives back the credit of a delivery that the caller never sees, since it cannot renew it.
    fn refund(&mut self, slot: usize) {
        if let LinkEnd::Receiver(receiver) = &mut self.links[slot].end {
            receiver.refund();
            self.ask_echo(slot);
        }
    }

    /// A transfer that the peer sent before it saw our detach. Behind a detach with error the specification wants the
    /// session ended at once (§2.6.5), which no sender that does not wait for answers could avoid; so that is left for
    /// what not even the granted credit explains.
    fn pass_over<'a>(
        &mut self,
        slot: usize,
        reason: DetachSent,
        transfer: &Transfer<'_>,
    ) -> Result<Step<'a>, Failure> {
        let link = &mut self.links[slot];
        let session = &mut self.sessions[link.session];
        let LinkEnd::Receiver(receiver) = &mut link.end else { return Ok(Step::Again) };
        let Some(id) = transfer.delivery_id else { return Ok(Step::Again) };
        if session.last_delivery_id.is_none_or(|last| serial::distance(last, id) > 0) {
            session.last_delivery_id = Some(id);
            if !receiver.delivery_started() && reason == DetachSent::Fault {
                return Err(fault::ERRANT_LINK.on_session(link.session));
            }
        }
        Ok(Step::Again)
    }

    pub(super) fn assembly_size(&self) -> usize {
        self.assembly.size
    }
}
