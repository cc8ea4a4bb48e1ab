//! How do messages become transfer frames?
//!
//! The first frame carries what names the delivery, the others only the handle (§2.7.5). A delivery is counted and
//! recorded with its first frame; while it is written in part its link is busy, other links of the session are not.

use corelane_wire::amqp10::{
    DeliveryHead, DeliveryState, Encode, FrameKind, SenderSettleMode, Transfer, begin_frame, finish_frame,
};

use crate::delivery::{Progress, SendReadiness};
use crate::ids::LinkId;

use super::connection::Connection;
use super::event::Outgoing;
use super::limits::UNSETTLED_SPAN_MAX;
use super::link::{Departing, Link, LinkEnd, LinkState};
use super::session::Session;
use super::settlement::Sent;

/// Most bytes of a transfer frame before its payload: header 8, descriptor and list 6, handle, delivery-id and format 5
/// each, tag 6, four booleans and nulls.
const OVERHEAD_MAX: usize = 40;

/// Most bytes of the state that names a delivery's transaction: descriptor and list 6, the id 34, the outcome 1.
const TRANSACTION_OVERHEAD_MAX: usize = 41;

impl Connection {
    /// May a message be sent on this link now?
    #[inline]
    pub fn can_send(&self, link: LinkId) -> SendReadiness {
        let Some(link) = self.links.get(link.slot()) else { return SendReadiness::Detached };
        let Some(session) = self.sessions.get(link.session) else { return SendReadiness::Detached };
        link.readiness(session)
    }

    /// The peer's max-message-size, if we send and it has one (§2.7.3).
    pub fn message_size_max(&self, link: LinkId) -> Option<u64> {
        match &self.links.get(link.slot())?.end {
            LinkEnd::Sender(sender) => Some(sender.max_message_size).filter(|&max| max > 0),
            LinkEnd::Receiver(_) => None,
        }
    }

    /// Starts a delivery, and writes as much of it as window and burst size allow.
    #[inline]
    pub fn send(&mut self, link: LinkId, message: &Outgoing<'_>) -> Progress {
        let slot = link.slot();
        let readiness = self.can_send(link);
        if readiness != SendReadiness::Ready {
            return Progress::NotReady(readiness);
        }
        // What is sent may discharge the transaction that outcomes said before belong to.
        if self.sessions[self.links[slot].session].has_transactional_run() {
            self.write_runs(self.links[slot].session);
        }
        let link = &mut self.links[slot];
        let session = &mut self.sessions[link.session];
        let LinkEnd::Sender(sender) = &mut link.end else {
            return Progress::NotReady(SendReadiness::Detached);
        };
        let size = message.head.len() + message.rest.len();
        if sender.max_message_size > 0 && size as u64 > sender.max_message_size {
            return Progress::TooLarge;
        }
        let settled = match link.sender_settle_mode {
            SenderSettleMode::Settled => true,
            SenderSettleMode::Unsettled => false,
            SenderSettleMode::Mixed => message.settled,
        };
        let delivery_id = session.next_delivery_id;
        session.next_delivery_id = delivery_id.wrapping_add(1);
        sender.delivery_started();
        if !settled {
            let sent = Sent { token: message.token, link: slot as u32, epoch: link.epoch };
            session.sent.push(delivery_id, sent);
            sender.unsettled += 1;
        }
        let handle = link.local_handle;
        // Nearly all deliveries are one frame; for that one there is window, as the link is ready.
        if sender.transaction.is_none() && size + OVERHEAD_MAX <= self.peer.max_frame_size as usize {
            let message_format = message.message_format;
            let channel = link.session as u16;
            let head = DeliveryHead { channel, handle, delivery_id, message_format, settled };
            let start = head.append(&mut self.output, size);
            self.output.extend_from_slice(message.head);
            self.output.extend_from_slice(message.rest);
            finish_frame(&mut self.output, start);
            session.transfer_sent();
            return Progress::Complete { delivery_id, settled };
        }
        let tag = delivery_id.to_be_bytes();
        let first = Transfer {
            handle,
            delivery_id: Some(delivery_id),
            delivery_tag: Some(&tag),
            message_format: Some(message.message_format),
            settled: settled.then_some(true),
            ..Transfer::default()
        };
        let departing = Departing { delivery_id, settled, aborted: false, transaction: sender.transaction };
        let written = self.write_transfers(slot, Some(first), &departing, message.head, message.rest);
        self.note_progress(slot, departing, written, size)
    }

    /// Goes on with the delivery that is written in part; `remaining` are its bytes that were not written yet.
    pub fn send_more(&mut self, link: LinkId, remaining: &[u8]) -> Progress {
        let slot = link.slot();
        let Some(entry) = self.links.get(slot).filter(|link| link.is_attached()) else {
            return Progress::NotReady(SendReadiness::Detached);
        };
        let LinkEnd::Sender(sender) = &entry.end else { return Progress::NotReady(SendReadiness::Detached) };
        let Some(departing) = sender.partial.filter(|departing| !departing.aborted) else {
            return Progress::NotReady(self.can_send(link));
        };
        let written = self.write_transfers(slot, None, &departing, remaining, &[]);
        self.note_progress(slot, departing, written, remaining.len())
    }

    /// Takes the delivery that is written in part back: it has no outcome, and its credit is used (§2.7.5).
    pub fn abort(&mut self, link: LinkId) {
        let slot = link.slot();
        let Some(entry) = self.links.get_mut(slot).filter(|link| link.is_attached()) else { return };
        let session = entry.session;
        let LinkEnd::Sender(sender) = &mut entry.end else { return };
        let Some(departing) = &mut sender.partial else { return };
        if !departing.aborted {
            departing.aborted = true;
            let delivery_id = departing.delivery_id;
            self.forget_sent(slot, delivery_id);
            self.sessions[session].aborts_due.push(slot as u32);
            self.write_due_aborts(session);
        }
    }

    /// Writes aborts that waited for the session's window, which they use as any transfer does.
    pub(super) fn write_due_aborts(&mut self, session: usize) {
        while self.sessions[session].remote_incoming_window > 0 {
            let Some(slot) = self.sessions[session].aborts_due.pop() else { return };
            let Some(link) = self.links.get_mut(slot as usize).filter(|link| link.is_attached()) else {
                continue;
            };
            let handle = link.local_handle;
            let LinkEnd::Sender(sender) = &mut link.end else { continue };
            let Some(departing) = sender.partial.take_if(|departing| departing.aborted) else { continue };
            let transfer = Transfer {
                handle,
                delivery_id: Some(departing.delivery_id),
                aborted: true,
                ..Transfer::default()
            };
            self.write(session, &transfer);
            self.sessions[session].transfer_sent();
        }
    }

    fn note_progress(
        &mut self,
        slot: usize,
        departing: Departing,
        written: Option<usize>,
        size: usize,
    ) -> Progress {
        let Departing { delivery_id, settled, .. } = departing;
        let (partial, progress) = match written {
            None => (None, Progress::Complete { delivery_id, settled }),
            Some(written) => {
                debug_assert!(written <= size, "only what is there is written");
                (Some(departing), Progress::Partial { delivery_id, written })
            }
        };
        if let LinkEnd::Sender(sender) = &mut self.links[slot].end {
            sender.partial = partial;
        }
        progress
    }

    /// Writes frames with `head` and `rest` as payload. `None`: the delivery is complete; else the bytes written.
    fn write_transfers(
        &mut self,
        slot: usize,
        first: Option<Transfer<'_>>,
        departing: &Departing,
        head: &[u8],
        rest: &[u8],
    ) -> Option<usize> {
        let link = &self.links[slot];
        let channel = link.session as u16;
        let session = &mut self.sessions[link.session];
        // AMQP 1.0 §4.4.2: each frame of a delivery names its transaction.
        let state = departing
            .transaction
            .as_ref()
            .map(|id| DeliveryState::Transactional { transaction: id, outcome: None });
        let next = Transfer { handle: link.local_handle, state, ..Transfer::default() };
        let mut transfer = first.map_or(next, |first| Transfer { state, ..first });
        let overhead_max =
            if state.is_some() { OVERHEAD_MAX + TRANSACTION_OVERHEAD_MAX } else { OVERHEAD_MAX };
        let frame_max = self.peer.max_frame_size as usize - overhead_max;
        let size = head.len() + rest.len();
        let mut written = 0;
        loop {
            let left = size - written;
            if session.remote_incoming_window == 0 || (written > 0 && written >= self.config.burst_size_max) {
                return Some(written);
            }
            let chunk = left.min(frame_max);
            transfer.more = chunk < left;
            let start = begin_frame(&mut self.output, FrameKind::Amqp, channel);
            transfer.encode(&mut self.output);
            copy_range(&mut self.output, head, rest, written, chunk);
            finish_frame(&mut self.output, start);
            debug_assert!(
                self.output.len() - start <= self.peer.max_frame_size as usize,
                "the overhead is bounded"
            );
            session.transfer_sent();
            written += chunk;
            if !transfer.more {
                return None;
            }
            transfer = next;
        }
    }
}

impl Link {
    #[inline]
    fn readiness(&self, session: &Session) -> SendReadiness {
        let LinkEnd::Sender(sender) = &self.end else { return SendReadiness::Detached };
        if self.state != LinkState::Attached {
            return SendReadiness::Detached;
        }
        if sender.partial.is_some() {
            return SendReadiness::Busy;
        }
        if sender.credit == 0 {
            return SendReadiness::NoCredit;
        }
        // Numbers further apart than this could not be told from each other (RFC 1982 §3.2).
        let span = session.sent.first_id().map_or(0, |first| session.next_delivery_id.wrapping_sub(first));
        if session.remote_incoming_window == 0 || span > UNSETTLED_SPAN_MAX {
            return SendReadiness::NoWindow;
        }
        SendReadiness::Ready
    }
}

/// Appends `size` bytes from `from` on of `head` and `rest` taken together.
#[inline]
fn copy_range(out: &mut Vec<u8>, head: &[u8], rest: &[u8], from: usize, size: usize) {
    let to = from + size;
    if from < head.len() {
        out.extend_from_slice(&head[from..to.min(head.len())]);
    }
    if to > head.len() {
        out.extend_from_slice(&rest[from.saturating_sub(head.len())..to - head.len()]);
    }
}
