//! Stub of the public API; the state machine follows.
#![allow(unused_variables, clippy::needless_pass_by_value)]

use std::sync::Arc;

use corelane_wire::amqp10::{Attach, DeliveryState, SaslCode};

use super::config::Config;
use super::event::*;
use super::ids::{LinkId, SessionId};

#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    output: Vec<u8>,
}

impl Connection {
    pub fn server(config: impl Into<Arc<Config>>, now: u64) -> Self {
        Self { config: config.into(), output: Vec::new() }
    }

    /// Writes its header, and without SASL its open, at once.
    pub fn client(config: impl Into<Arc<Config>>, now: u64) -> Self {
        Self { config: config.into(), output: Vec::new() }
    }

    /// Takes frames from the front of `input` until one has something to tell. `None`: more bytes are needed, or an
    /// answer of the caller; what is left of `input` must be passed again.
    pub fn receive<'a>(&mut self, now: u64, input: &mut &'a [u8]) -> Option<Event<'a>> {
        None
    }

    /// The bytes to be sent. The caller may swap the buffer for an empty one.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Writes what was gathered: dispositions, windows, echoes, the keep-alive frame when due.
    pub fn finish_turn(&mut self, now: u64) {}

    pub fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// Call `receive` afterwards, with no bytes if there are none, for the events that it caused.
    pub fn handle_timeout(&mut self, now: u64) {}

    /// The socket is gone: every link and session is ended, with events from `receive`, and nothing is written.
    pub fn handle_lost(&mut self) {}

    pub fn sasl_challenge(&mut self, challenge: &[u8]) {}
    pub fn sasl_outcome(&mut self, code: SaslCode, additional_data: Option<&[u8]>) {}
    pub fn sasl_init(&mut self, mechanism: &str, initial_response: Option<&[u8]>) {}
    pub fn sasl_respond(&mut self, response: &[u8]) {}
    pub fn accept_open(&mut self) {}
    pub fn close(&mut self, error: Option<ErrorSpec<'_>>) {}
    /// `None`: not open, or no channel left.
    pub fn begin(&mut self) -> Option<SessionId> {
        None
    }
    pub fn end(&mut self, session: SessionId, error: Option<ErrorSpec<'_>>) {}

    /// `None`: the session is not begun, or no handle is left.
    pub fn attach_sender(&mut self, session: SessionId, request: &AttachRequest<'_>) -> Option<LinkId> {
        None
    }
    pub fn attach_receiver(&mut self, session: SessionId, request: &AttachRequest<'_>) -> Option<LinkId> {
        None
    }
    /// The attach that waits for an answer.
    pub fn pending_attach(&self, link: LinkId) -> Option<Attach<'_>> {
        None
    }
    pub fn accept_attach(&mut self, link: LinkId, answer: &AttachAnswer<'_>) {}
    /// Answers with an attach without terminus, then a closing detach (§2.6.3).
    pub fn refuse_attach(&mut self, link: LinkId, error: ErrorSpec<'_>) {}
    pub fn detach(&mut self, link: LinkId, closed: bool, error: Option<ErrorSpec<'_>>) {}
    pub fn grant_credit(&mut self, link: LinkId, credit: u32, drain: bool) {}
    /// Left: of what we granted, if we receive; of what we may send, if we send.
    pub fn credit(&self, link: LinkId) -> u32 {
        0
    }
    /// The peer's max-message-size, if it has one and we send.
    pub fn message_size_max(&self, link: LinkId) -> Option<u64> {
        None
    }

    pub fn can_send(&self, link: LinkId) -> SendReadiness {
        SendReadiness::Detached
    }
    pub fn send(&mut self, link: LinkId, message: &Outgoing<'_>) -> Progress {
        Progress::NotReady(SendReadiness::Detached)
    }
    pub fn send_more(&mut self, link: LinkId, remaining: &[u8]) -> Progress {
        Progress::NotReady(SendReadiness::Detached)
    }
    pub fn abort(&mut self, link: LinkId) {}
    pub fn drained(&mut self, link: LinkId) {}
    pub fn available(&mut self, link: LinkId, count: u32) {}

    /// Says what became of a received delivery. If the peer has settled it, or it is settled already, nothing happens.
    /// Every message that arrives unsettled must be settled once, also when its link is detached meanwhile.
    pub fn settle(&mut self, link: LinkId, delivery_id: u32, outcome: &DeliveryState<'_>) {}
    /// Ends a sent delivery whose outcome was provisional (`Disposed::settled` false).
    pub fn settle_sent(&mut self, link: LinkId, delivery_id: u32, outcome: Option<&DeliveryState<'_>>) {}
    pub fn poll_outcome(&mut self) -> Option<Disposed> {
        None
    }
    /// Takes back the buffer of [`Payload::Assembled`].
    pub fn recycle(&mut self, buffer: Vec<u8>) {}
}
