//! What do received bytes lead to? Parsing, frame by frame, and the dispatch of the protocol's events.
//!
//! Bytes are parsed where they were received. What is left (part of a frame, or all that comes while the connection is held)
//! is copied to the connection's waiting input and parsed from there. A held connection's socket is read no further than
//! `INPUT_WAITING_BYTES_MAX`.

use corelane_mailbox::Lane;
use corelane_protocol::amqp10::{self, DetachCause, ErrorSpec};
use corelane_protocol::{LinkId, SessionId, amqp091};
use corelane_wire::amqp10::{DeliveryState, Open};

use crate::Shard;
use crate::attach_topic::container_hash;
use crate::connection::Hold;
use crate::effect::Effect;
use crate::event::{ConnectionSlot, Peer};
use crate::limits::{CONTAINER_ID_BYTES_MAX, INPUT_WAITING_BYTES_MAX, OUTPUT_HOLD_BYTES};
use crate::mail::{ConnectionId, Mail, SaslReply, SaslStep};
use crate::protocol::Protocol;
use crate::vhost;

/// What a peer is told whose container-id is too long; the bound is [`CONTAINER_ID_BYTES_MAX`].
const CONTAINER_ID_TOO_LONG: &str = "the open's container-id is too long; allowed: at most 1024 bytes";

impl Shard {
    pub(crate) fn on_received(&mut self, now: u64, slot: ConnectionSlot, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.closing {
            return;
        }
        self.touch(slot);
        self.bound_assembly(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.hold.is_none() && connection.waiting_input.is_empty() {
            let rest = self.parse(now, slot, bytes);
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.waiting_input.extend_from_slice(rest);
            }
        } else {
            connection.waiting_input.extend_from_slice(bytes);
            connection.protocol.heard(now);
            self.parse_waiting(now, slot);
        }
        self.count_assembly(slot);
        self.bound_input(now, slot);
    }

    /// Parses what waits on the connection.
    pub(crate) fn parse_waiting(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.hold.is_some() {
            return;
        }
        self.touch(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let mut waiting = std::mem::take(&mut connection.waiting_input);
        let rest = self.parse(now, slot, &waiting).len();
        if let Some(connection) = self.connections.get_mut(slot) {
            waiting.drain(..waiting.len() - rest);
            if waiting.is_empty() && waiting.capacity() > INPUT_WAITING_BYTES_MAX {
                waiting = Vec::new();
            }
            connection.waiting_input = waiting;
        }
    }

    /// Acts on what a time-out has brought about, whatever the connection waits for.
    pub(crate) fn give_events(&mut self, now: u64, slot: ConnectionSlot) {
        while let Some(connection) = self.connections.get_mut(slot)
            && !connection.closing
        {
            match &mut connection.protocol {
                Protocol::Amqp10(protocol) => {
                    let Some(event) = protocol.receive(now, &mut &[][..]) else { return };
                    self.on_amqp10_event(now, slot, event);
                }
                Protocol::Amqp091(protocol) => {
                    let Some(event) = protocol.receive(now, &mut &[][..]) else { return };
                    self.on_amqp091_event(now, slot, event);
                }
            }
        }
    }

    /// Parses until more bytes are needed or the connection is held or closed; returns what is left.
    fn parse<'a>(&mut self, now: u64, slot: ConnectionSlot, bytes: &'a [u8]) -> &'a [u8] {
        let mut input = bytes;
        self.decide_protocol(now, slot, bytes);
        loop {
            let Some(connection) = self.connections.get_mut(slot) else { return &[] };
            if connection.closing {
                return &[];
            }
            if connection.hold.is_none() && connection.unsent_bytes() > OUTPUT_HOLD_BYTES {
                connection.hold = Some(Hold::Output);
            }
            if connection.hold.is_none() && self.turn.is_over(&self.engine) {
                connection.hold = Some(Hold::Turn);
                self.turn.join(slot);
            }
            if connection.hold.is_some() {
                return input;
            }
            match &mut connection.protocol {
                Protocol::Amqp10(protocol) => {
                    let Some(event) = protocol.receive(now, &mut input) else { return input };
                    self.on_amqp10_event(now, slot, event);
                }
                Protocol::Amqp091(protocol) if protocol.has_parked() => {
                    let mut frame = std::mem::take(&mut self.scratch.frame);
                    if let Some(event) = protocol.receive_parked(now, &mut frame) {
                        self.on_amqp091_event(now, slot, event);
                    }
                    self.scratch.frame = frame;
                }
                Protocol::Amqp091(protocol) => {
                    let Some(event) = protocol.receive(now, &mut input) else { return input };
                    self.on_amqp091_event(now, slot, event);
                }
            }
        }
    }

    /// The peer's first bytes may say that it speaks 0-9-1.
    #[inline]
    fn decide_protocol(&mut self, now: u64, slot: ConnectionSlot, input: &[u8]) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.protocol.wants_amqp091(input) {
            let offers = if connection.peer.loopback { &self.loopback } else { &self.elsewhere };
            let protocol = amqp091::Connection::server(offers.amqp091.clone(), now);
            connection.protocol = Protocol::Amqp091(protocol);
        }
    }

    fn bound_input(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if (connection.hold.is_some() || connection.protocol.is_full())
            && !connection.reading_stopped
            && connection.waiting_input.len() > INPUT_WAITING_BYTES_MAX
        {
            connection.reading_stopped = true;
            connection.protocol.set_reading(now, false);
            self.effects.push(Effect::Reading { connection: slot, on: false });
        }
    }

    fn on_amqp10_event(&mut self, now: u64, slot: ConnectionSlot, event: amqp10::Event<'_>) {
        use amqp10::Event;
        match event {
            Event::Message(message) => self.on_message(now, slot, message),
            Event::Disposition { state: Some(DeliveryState::Received(_)), settled: false } => {
                self.renew_deliveries(now, slot);
            }
            Event::Disposition { state, .. } => self.on_disposition(now, slot, state),
            Event::LinkFlow { link, drain, .. } => self.on_link_flow(now, slot, link, drain),
            Event::SessionFlow { session } => self.on_session_flow(now, slot, session),
            Event::Attached { link, session, attach } => self.on_attached(now, slot, link, session, &attach),
            Event::Detached { link, closed, cause, .. } => {
                self.on_detached(now, slot, link, closed && cause == DetachCause::Peer)
            }
            Event::SaslInit { mechanism, initial_response, .. } => {
                let step = |peer| SaslStep::Start {
                    mechanism: mechanism.to_owned(),
                    initial_response: initial_response.map(<[u8]>::to_vec),
                    peer,
                };
                self.ask_for_credentials(slot, step);
            }
            Event::SaslResponse(response) => {
                self.ask_for_credentials(slot, |_| SaslStep::Response(response.to_vec()));
            }
            Event::Opened(open) => self.on_opened(slot, &open),
            Event::Closed { .. } => self.close(now, slot),
            Event::SessionBegun { .. } | Event::Ended { .. } => {}
            // Events of the client role.
            Event::AttachConfirmed { .. }
            | Event::SaslMechanisms(_)
            | Event::SaslChallenge(_)
            | Event::SaslOutcome { .. } => {}
        }
    }

    pub(crate) fn ask_for_credentials(&mut self, slot: ConnectionSlot, step: impl FnOnce(Peer) -> SaslStep) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.hold = Some(Hold::Credentials);
        let mail = Mail::SaslStep { connection: connection.id, step: step(connection.peer) };
        self.post(self.shards, Lane::Control, mail);
    }

    pub(crate) fn on_sasl_reply(&mut self, now: u64, id: ConnectionId, reply: SaslReply) {
        let Some(slot) = self.slot_of(id) else {
            self.counters.mail_dropped += 1;
            return;
        };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.hold != Some(Hold::Credentials) {
            return;
        }
        match reply {
            SaslReply::Challenge(challenge) => connection.protocol.sasl_challenge(&challenge),
            SaslReply::Accepted { user, rights, additional } => {
                connection.user = user.map(Into::into);
                connection.rights = rights;
                let additional = Some(&additional).filter(|data| !data.is_empty());
                connection.protocol.accept_credentials(additional.map(Vec::as_slice));
            }
            SaslReply::Refused => connection.protocol.refuse_credentials(),
        }
        self.touch(slot);
        self.release_hold(now, slot);
    }

    /// The peer's open names a virtual host as `vhost:NAME`; any other host name, or none, means the default one.
    fn on_opened(&mut self, slot: ConnectionSlot, open: &Open<'_>) {
        let asked = open.hostname.and_then(|hostname| hostname.strip_prefix("vhost:"));
        let vhost = self.topology.vhost(asked.unwrap_or(vhost::DEFAULT)).cloned();
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(vhost) = vhost else {
            let description = &format!(
                "vhost {:?} not found: leave out the vhost: prefix for the default one",
                asked.unwrap_or_default()
            );
            connection.protocol.close(Some(ErrorSpec { condition: "amqp:not-found", description }));
            return;
        };
        if let Err(description) = &connection.enter(vhost) {
            let condition = "amqp:unauthorized-access";
            connection.protocol.close(Some(ErrorSpec { condition, description }));
        } else if open.container_id.len() > CONTAINER_ID_BYTES_MAX {
            // A part of it, or none, would be other containers' name, too, and their subscriptions this one's.
            let description = CONTAINER_ID_TOO_LONG;
            connection.protocol.close(Some(ErrorSpec { condition: "amqp:invalid-field", description }));
        } else {
            connection.container = open.container_id.into();
            connection.container_hash = container_hash(open.container_id);
            connection.protocol.accept_open();
        }
    }

    /// What a connection means by a name.
    pub(crate) fn within(&mut self, slot: ConnectionSlot, name: &str) -> Box<str> {
        let vhost = self.connections.get_mut(slot).map_or(vhost::DEFAULT, |connection| connection.vhost());
        vhost::within(vhost, name).into()
    }

    pub(crate) fn on_session_flow(&mut self, now: u64, slot: ConnectionSlot, session: SessionId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let links = 0..connection.links.len() as u32;
        for link in links.map(LinkId) {
            let Some(connection) = self.connections.get_mut(slot) else { return };
            if connection.consumer_mut(link).is_some_and(|consumer| consumer.session == session) {
                self.refresh_consumer(now, slot, link);
            }
        }
    }

    /// The connection has ended, or shall: its links are unbound, its output is sent, its socket closed.
    pub(crate) fn close(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.closing {
            return;
        }
        connection.closing = true;
        self.count_assembly(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.protocol.finish_turn(now);
        let id = connection.id;
        let asked_for_credentials = connection.hold == Some(Hold::Credentials);
        let links = 0..connection.links.len() as u32;
        // What they retired comes back before what their consumers hold.
        self.abandon_transactions(now, slot);
        for link in links.map(LinkId) {
            self.unbind(now, slot, link);
        }
        self.delete_exclusive(now, slot);
        if asked_for_credentials {
            self.post(self.shards, Lane::Control, Mail::SaslStep { connection: id, step: SaslStep::Abandon });
        }
        self.effects.push(Effect::Close { connection: slot });
    }
}
