//! Who may send how much, on a session and on a link?
//!
//! Windows count transfer frames of a session, credit counts deliveries of a link (§2.5.6, §2.6.7). A flow is written
//! when the caller changes credit, when a session's window is half used up, and when the peer asks for one; never
//! before it is needed.

use corelane_wire::amqp10::{Flow, Map, MapWriter};

use crate::ids::LinkId;

use super::connection::{Connection, Queued};
use super::event::Event;
use super::fault::{self, Failure};
use super::ids::TransactionId;
use super::link::{LinkEnd, LinkState, Receiver, Sender};
use super::session::SessionState;
use super::settlement::TXN_ID;

impl Connection {
    /// We receive: from now on the peer may send so many more deliveries, whatever was granted before. With `drain` it
    /// sends what it has and gives up the rest.
    pub fn grant_credit(&mut self, link: LinkId, credit: u32, drain: bool) {
        let slot = link.slot();
        let Some(link) = self.links.get_mut(slot) else { return };
        if link.state != LinkState::Attached && link.state != LinkState::AttachSent {
            return;
        }
        let LinkEnd::Receiver(receiver) = &mut link.end else { return };
        receiver.grant(credit, drain);
        self.write_link_flow(slot);
    }

    /// Left: of what we granted, if we receive; of what we may send, if we send.
    pub fn credit(&self, link: LinkId) -> u32 {
        match self.links.get(link.slot()).map(|link| &link.end) {
            Some(LinkEnd::Sender(sender)) => sender.credit,
            Some(LinkEnd::Receiver(receiver)) => receiver.credit,
            None => 0,
        }
    }

    /// What the peer, or the caller, called the link.
    pub fn link_name(&self, link: LinkId) -> Option<&str> {
        Some(&self.links.get(link.slot())?.name)
    }

    /// We send, and the peer wants what it granted used or given up: there is nothing more to send.
    pub fn drained(&mut self, link: LinkId) {
        let slot = link.slot();
        let Some(link) = self.links.get_mut(slot).filter(|link| link.is_attached()) else { return };
        let LinkEnd::Sender(sender) = &mut link.end else { return };
        if sender.drain {
            sender.drained();
            self.write_link_flow(slot);
        }
    }

    /// We send: how many messages wait for credit. Told in the link's next flow.
    pub fn available(&mut self, link: LinkId, count: u32) {
        if let Some(LinkEnd::Sender(sender)) = self.links.get_mut(link.slot()).map(|link| &mut link.end) {
            sender.available = count;
        }
    }

    /// We send: deliveries that start from now on are part of this transaction, or of none. A peer that receives may say so
    /// too, in a flow (§4.4.3); then a `LinkFlow` follows. We receive: what the peer starts to send after our next flow shall be;
    /// none leaves it as it was said last.
    pub fn set_transaction(&mut self, link: LinkId, transaction: Option<TransactionId>) {
        match self.links.get_mut(link.slot()).map(|link| &mut link.end) {
            Some(LinkEnd::Sender(sender)) => sender.transaction = transaction,
            Some(LinkEnd::Receiver(receiver)) => receiver.transaction = transaction,
            None => {}
        }
    }

    /// The transaction that deliveries of this link are part of when they start.
    #[inline]
    pub fn transaction(&self, link: LinkId) -> Option<TransactionId> {
        match &self.links.get(link.slot())?.end {
            LinkEnd::Sender(sender) => sender.transaction,
            LinkEnd::Receiver(receiver) => receiver.transaction,
        }
    }

    pub(super) fn handle_flow<'a>(
        &mut self,
        session: usize,
        flow: &Flow<'a>,
    ) -> Result<Option<Event<'a>>, Failure> {
        let first = self.config.serial_first;
        let entry = &mut self.sessions[session];
        let opened = entry.window_received(flow.next_incoming_id, flow.incoming_window, first);
        // AMQP 1.0 §2.5.6: the peer's count of its transfers is the one that holds.
        entry.next_incoming_id = flow.next_outgoing_id;
        let slot = match flow.handle {
            None => None,
            // AMQP 1.0 §2.7.4: a flow for a handle that is not attached ends the session.
            Some(handle) => Some(entry.link_of(handle).ok_or(fault::HANDLE_UNATTACHED.on_session(session))?),
        };
        if opened {
            self.write_due_aborts(session);
            if self.sessions[session].remote_incoming_window > 0 {
                self.queue.push_back(Queued::SessionFlow { session });
            }
        }
        let Some(slot) = slot else {
            if flow.echo {
                self.sessions[session].flow_due = true;
                self.mark_dirty(session);
            }
            return Ok(None);
        };
        Ok(self.handle_link_flow(slot, flow).then(|| self.link_flow_event(slot)))
    }

    /// Whether the caller is to be told.
    fn handle_link_flow(&mut self, slot: usize, flow: &Flow<'_>) -> bool {
        let link = &mut self.links[slot];
        match &mut link.state {
            LinkState::Attached => {}
            LinkState::AttachReceived { flow: came, .. } => *came = true,
            LinkState::AttachSent | LinkState::DetachSent(_) | LinkState::Detached(_) => return false,
        }
        match &mut link.end {
            LinkEnd::Sender(sender) => sender.flow_received(flow),
            LinkEnd::Receiver(receiver) => receiver.flow_received(flow),
        }
        let attached = link.is_attached();
        if flow.echo {
            self.ask_echo(slot);
        }
        attached
    }

    pub(super) fn link_flow_event<'a>(&self, slot: usize) -> Event<'a> {
        let link = LinkId(slot as u32);
        match self.links.get(slot).map(|link| &link.end) {
            Some(LinkEnd::Sender(sender)) => {
                let (credit, available, drain) = (sender.credit, sender.available, sender.drain);
                Event::LinkFlow { link, credit, available, drain }
            }
            Some(LinkEnd::Receiver(receiver)) => {
                let (credit, available, drain) = (receiver.credit, receiver.available, receiver.drain);
                Event::LinkFlow { link, credit, available, drain }
            }
            None => Event::LinkFlow { link, credit: 0, available: 0, drain: false },
        }
    }

    /// Lets `finish_turn` write a flow for a link, unless another is written before.
    pub(super) fn ask_echo(&mut self, slot: usize) {
        let link = &mut self.links[slot];
        if !link.echo_due {
            link.echo_due = true;
            self.echoes.push(slot as u32);
        }
    }

    pub(super) fn write_echo(&mut self, slot: usize) {
        if self.links.get(slot).is_some_and(|link| link.echo_due && link.is_attached()) {
            self.write_link_flow(slot);
        }
    }

    /// Writes what was gathered for a session.
    pub(super) fn write_gathered(&mut self, slot: usize) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        session.dirty = false;
        let flow_due = session.flow_due;
        self.write_runs(slot);
        if flow_due && self.is_writable(slot) {
            let flow = self.renew_window(slot);
            self.write(slot, &flow);
        }
    }

    pub(super) fn write_link_flow(&mut self, slot: usize) {
        let link = &mut self.links[slot];
        link.echo_due = false;
        let session = link.session;
        if !self.is_writable(session) {
            return;
        }
        let flow = self.renew_window(session);
        let link = &self.links[slot];
        let mut named = Vec::new();
        let properties = match &link.end {
            LinkEnd::Sender(Sender { transaction: Some(id), .. })
            | LinkEnd::Receiver(Receiver { transaction: Some(id), .. }) => {
                let mut map = MapWriter::new(&mut named);
                map.symbol(TXN_ID, &&**id);
                map.finish();
                Map::decode(&named).ok()
            }
            LinkEnd::Sender(_) | LinkEnd::Receiver(_) => None,
        };
        let flow = Flow { properties, ..flow };
        let flow = match &link.end {
            LinkEnd::Sender(sender) => Flow {
                handle: Some(link.local_handle),
                delivery_count: Some(sender.delivery_count),
                link_credit: Some(sender.credit),
                available: Some(sender.available),
                drain: sender.drain,
                ..flow
            },
            LinkEnd::Receiver(receiver) => Flow {
                handle: Some(link.local_handle),
                // AMQP 1.0 §2.7.4: not set before the sender's attach has come.
                delivery_count: (link.state != LinkState::AttachSent).then_some(receiver.delivery_count),
                link_credit: Some(receiver.credit),
                drain: receiver.drain,
                ..flow
            },
        };
        self.write(session, &flow);
    }

    pub(super) fn is_writable(&self, session: usize) -> bool {
        self.sessions.get(session).is_some_and(|session| match session.state {
            SessionState::BeginSent | SessionState::Mapped => true,
            SessionState::EndSent { .. } => false,
        })
    }

    /// The session's part of a flow, with the whole window open again.
    fn renew_window(&mut self, slot: usize) -> Flow<'static> {
        let window = self.config.incoming_window;
        let session = &mut self.sessions[slot];
        session.incoming_window = window;
        session.flow_due = false;
        Flow {
            // AMQP 1.0 §2.7.4: not set before the peer's begin has come.
            next_incoming_id: session.remote_channel.map(|_| session.next_incoming_id),
            incoming_window: window,
            next_outgoing_id: session.next_outgoing_id,
            outgoing_window: session.outgoing_window(),
            ..Flow::default()
        }
    }
}
