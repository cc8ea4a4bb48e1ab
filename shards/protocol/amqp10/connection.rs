//! What is known of one connection, and what does the next frame do to it?
//!
//! `phase` says which bytes may come next. Every frame goes through [`Connection::receive`]; what it breaks is ended by
//! [`Connection::fail`] at the scope of the fault. Events that a frame causes beside its own wait in `queue`, which is
//! empty whenever a frame is looked at.

use std::collections::VecDeque;
use std::sync::Arc;

use corelane_wire::amqp10::{
    Close, DecodeError, Encode, Frame, FrameError, FrameKind, Performative, Transfer, write_frame,
};
use hashbrown::HashTable;
use slab::Slab;

use crate::ids::{LinkId, SessionId};
use crate::timers::Timers;

use super::config::Config;
use super::event::{DetachCause, ErrorSpec, Event};
use super::fault::{self, Failure, Fault, Scope};
use super::incoming::Assembly;
use super::limits::FRAME_BEFORE_OPEN_MAX;
use super::link::{Detached, Link, LinkState};
use super::sasl::SaslState;
use super::session::{Session, SessionState};
use super::settlement::Disposing;

/// One connection, server or client.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) side: Side,
    pub(super) phase: Phase,
    pub(super) open_sent: bool,
    /// The latest time that was passed in.
    pub(super) now: u64,
    pub(super) timers: Timers,
    pub(super) peer: Peer,
    pub(super) output: Vec<u8>,
    pub(super) queue: VecDeque<Queued>,
    /// Why we close, for the caller.
    fault: Option<Fault>,

    /// By our channel.
    pub(super) sessions: Slab<Session>,
    /// Slots of sessions by the peer's channel.
    pub(super) channels: Vec<u16>,
    /// By [`LinkId`].
    pub(super) links: Slab<Link>,
    /// Slots of links that may be stolen, by name.
    pub(super) names: HashTable<u32>,
    /// The last epoch given to a link.
    pub(super) epoch: u32,

    /// Sessions with something for `finish_turn` to write.
    pub(super) dirty: Vec<u32>,
    /// Links with a flow for `finish_turn` to write.
    pub(super) echoes: Vec<u32>,
    /// The peer's disposition that is being told.
    pub(super) disposing: Option<Disposing>,
    /// Deliveries that it means and that were not told of.
    pub(super) disposed_left: u32,
    pub(super) assembly: Assembly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A protocol header.
    Header {
        sasl_done: bool,
    },
    Sasl(SaslState),
    /// The peer's open.
    Opening,
    /// Nothing, until the caller has answered the peer's open.
    OpenReceived,
    /// Any frame but an open.
    Open,
    /// The peer's close; all else is passed over.
    Closing,
    /// Nothing.
    Closed,
}

/// What the peer's open says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Largest frame we write.
    pub(super) max_frame_size: u32,
    pub(super) channel_max: u16,
}

/// An event that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queued {
    LinkFlow { link: usize },
    SessionFlow { session: usize },
    Detached { link: usize, closed: bool, cause: DetachCause, fault: Option<Fault> },
    Ended { session: usize, fault: Option<Fault> },
    Closed,
}

/// What looking at the input has brought.
pub(super) enum Step<'a> {
    Event(Event<'a>),
    /// Look again.
    Again,
    /// Events are queued that come before this frame's own: look at it again.
    Later,
    /// More bytes, or an answer of the caller, are needed.
    Wait,
}

impl Connection {
    pub fn server(config: impl Into<Arc<Config>>, now: u64) -> Self {
        Self::new(config.into(), Side::Server, now)
    }

    /// Writes its header at once, and without SASL its open too.
    pub fn client(config: impl Into<Arc<Config>>, now: u64) -> Self {
        let mut connection = Self::new(config.into(), Side::Client, now);
        connection.start_client();
        connection
    }

    fn new(config: Arc<Config>, side: Side, now: u64) -> Self {
        Self {
            side,
            phase: Phase::Header { sasl_done: false },
            open_sent: false,
            now,
            timers: Timers::new(now, config.idle_timeout_us, config.handshake_timeout_us),
            // AMQP 1.0 §2.4.1: until the peer says more, its frames have the smallest maximum.
            peer: Peer { max_frame_size: corelane_wire::amqp10::FRAME_SIZE_MIN_MAX, channel_max: u16::MAX },
            output: Vec::new(),
            queue: VecDeque::new(),
            fault: None,
            sessions: Slab::new(),
            channels: Vec::new(),
            links: Slab::new(),
            names: HashTable::new(),
            epoch: 0,
            dirty: Vec::new(),
            echoes: Vec::new(),
            disposing: None,
            disposed_left: 0,
            assembly: Assembly::default(),
            config,
        }
    }

    /// Takes frames from the front of `input` until one has something to tell, which is returned. `None`: more bytes
    /// are needed, or the caller's answer to an earlier event; what is left of `input` must be passed again, with more
    /// behind it. With no input it returns events that [`handle_timeout`](Self::handle_timeout) and commands caused.
    pub fn receive<'a>(&mut self, now: u64, input: &mut &'a [u8]) -> Option<Event<'a>> {
        assert!(self.disposing.is_none(), "poll_outcome is drained before the next receive");
        self.now = self.now.max(now);
        self.timers.bytes_passed(self.now, input.len());
        let event = loop {
            if let Some(queued) = self.queue.pop_front() {
                break Some(self.release(queued));
            }
            match self.step(input) {
                Step::Event(event) => break Some(event),
                Step::Again | Step::Later => {}
                Step::Wait => break None,
            }
        };
        self.timers.bytes_left(input.len());
        event
    }

    /// Closes the connection with everything on it. [`Closed`](Event::Closed) follows with the peer's answer, or after
    /// the close timeout.
    pub fn close(&mut self, error: Option<ErrorSpec<'_>>) {
        match self.phase {
            Phase::Header { .. } | Phase::Sasl(_) => {
                // A client may have pipelined its open and more.
                if self.open_sent {
                    self.write_close(error.map(ErrorSpec::into_error));
                }
                self.finish();
            }
            Phase::Opening | Phase::OpenReceived | Phase::Open => {
                let slots: Vec<usize> = self.sessions.iter().map(|(slot, _)| slot).collect();
                for &slot in &slots {
                    self.write_runs(slot);
                }
                self.write_close(error.map(ErrorSpec::into_error));
                for slot in slots {
                    self.suspend_links(slot);
                    let session = &mut self.sessions[slot];
                    if !matches!(session.state, SessionState::EndSent { .. }) {
                        session.state = SessionState::EndSent { told: false };
                    }
                }
                self.enter(Phase::Closing);
            }
            Phase::Closing | Phase::Closed => {}
        }
    }

    /// The socket is gone: `receive` tells of the end of everything, and nothing more is written.
    pub fn handle_lost(&mut self) {
        if self.phase != Phase::Closed {
            self.finish();
        }
    }

    /// Nothing was read yet: the peer's first protocol header is still to come.
    #[inline]
    pub fn awaits_header(&self) -> bool {
        self.phase == (Phase::Header { sasl_done: false })
    }

    /// The bytes to be sent. The caller may swap the buffer for an empty one.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Writes what was gathered: dispositions, windows, flows that were asked for, a keep-alive frame when it is due.
    pub fn finish_turn(&mut self, now: u64) {
        self.now = self.now.max(now);
        while let Some(slot) = self.dirty.pop() {
            self.write_gathered(slot as usize);
        }
        while let Some(slot) = self.echoes.pop() {
            self.write_echo(slot as usize);
        }
        self.write_keep_alive();
    }

    /// May sessions and links be worked with?
    pub(super) fn may_send(&self) -> bool {
        match self.phase {
            Phase::Header { .. } | Phase::Opening | Phase::Open => self.open_sent,
            Phase::Sasl(_) | Phase::OpenReceived | Phase::Closing | Phase::Closed => false,
        }
    }

    /// Appends a frame on a session's channel, if the session may still write.
    #[inline]
    pub(super) fn write(&mut self, slot: usize, performative: &impl Encode) {
        debug_assert!(
            !matches!(self.sessions[slot].state, SessionState::EndSent { .. }),
            "nothing is written behind an end"
        );
        write_frame(&mut self.output, FrameKind::Amqp, slot as u16, performative, &[]);
    }

    /// Ends what the fault names.
    #[cold]
    pub(super) fn fail(&mut self, failure: Failure) {
        match failure.scope {
            Scope::Link(slot) => self.fail_link(slot, failure.fault, DetachCause::Fault),
            Scope::Session(slot) => self.fail_session(slot, failure.fault),
            Scope::Connection => self.fail_connection(failure.fault, failure.fault.description),
        }
    }

    /// Closes the connection for a fault of the peer. `detail` is what the peer reads.
    #[cold]
    pub(super) fn fail_connection(&mut self, fault: Fault, detail: &str) {
        self.fault = Some(fault);
        match self.phase {
            Phase::Header { .. } | Phase::Sasl(_) => {
                // There is no close before an open. Whoever owns the socket sees to it that our last word is read.
                self.finish();
            }
            Phase::Opening | Phase::OpenReceived | Phase::Open => {
                self.write_close(Some(
                    ErrorSpec { condition: fault.condition, description: detail }.into_error(),
                ));
                self.retire_all();
                self.enter(Phase::Closing);
            }
            Phase::Closing => self.finish(),
            Phase::Closed => {}
        }
    }

    /// Waits for the end of the connection, but not for ever.
    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.timers.close_started(self.now, self.config.close_timeout_us);
    }

    /// Ends the connection here and now, telling of everything that was on it.
    pub(super) fn finish(&mut self) {
        self.retire_all();
        self.phase = Phase::Closed;
        self.queue.push_back(Queued::Closed);
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        match self.phase {
            Phase::Open => self.step_frame(input, self.config.max_frame_size),
            Phase::Opening => self.step_frame(input, self.frame_before_open_max()),
            Phase::Header { sasl_done } => self.step_header(input, sasl_done),
            Phase::Sasl(state) => self.step_sasl(input, state),
            Phase::OpenReceived => Step::Wait,
            Phase::Closing => self.step_closing(input),
            Phase::Closed => {
                *input = &[];
                Step::Wait
            }
        }
    }

    pub(super) fn frame_before_open_max(&self) -> u32 {
        self.config.max_frame_size.min(FRAME_BEFORE_OPEN_MAX)
    }

    #[inline]
    fn step_frame<'a>(&mut self, input: &mut &'a [u8], size_max: u32) -> Step<'a> {
        let before = *input;
        let frame = match Frame::take(input, size_max.max(corelane_wire::amqp10::FRAME_SIZE_MIN_MAX)) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Wait,
            Err(error) => return self.fail_frame(&error),
        };
        if frame.kind != FrameKind::Amqp {
            self.fail_connection(fault::SASL_FRAME, fault::SASL_FRAME.description);
            return Step::Again;
        }
        // AMQP 1.0 §2.4.5: an empty frame only shows that the peer is there.
        if frame.body.is_empty() {
            return Step::Again;
        }
        let mut transfer = Transfer::default();
        let done = match transfer.decode(frame.body) {
            Ok(Some(payload)) => self.dispatch_transfer(frame.channel, &transfer, payload),
            // Performatives are large, so this one stays where it was decoded.
            Ok(None) => match &Performative::decode(frame.body) {
                Ok((performative, payload)) => self.dispatch(&frame, performative, payload),
                Err(error) => return self.fail_decode(error),
            },
            Err(error) => return self.fail_decode(&error),
        };
        match done {
            Ok(Step::Later) => {
                *input = before;
                Step::Again
            }
            Ok(step) => step,
            Err(failure) => {
                self.fail(failure);
                Step::Again
            }
        }
    }

    #[inline]
    fn dispatch<'a>(
        &mut self,
        frame: &Frame<'a>,
        performative: &Performative<'a>,
        payload: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        if self.phase == Phase::Opening {
            let Performative::Open(open) = performative else {
                return Err(fault::BEFORE_OPEN.on_connection());
            };
            return self.handle_open(*open).map(Step::Event);
        }
        match performative {
            Performative::Open(_) => Err(fault::OPENED_TWICE.on_connection()),
            Performative::Begin(begin) => self.handle_begin(frame.channel, begin).map(Step::from),
            Performative::Close(close) => Ok(self.handle_close(close)),
            Performative::Transfer(transfer) => self.dispatch_transfer(frame.channel, transfer, payload),
            Performative::Attach(_)
            | Performative::Flow(_)
            | Performative::Disposition(_)
            | Performative::Detach(_)
            | Performative::End(_) => {
                let slot = self.session_of(frame.channel).ok_or(fault::CHANNEL_UNUSED.on_connection())?;
                self.dispatch_to_session(slot, frame, performative)
            }
        }
    }

    #[inline]
    fn dispatch_transfer<'a>(
        &mut self,
        channel: u16,
        transfer: &Transfer<'a>,
        payload: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        if self.phase == Phase::Opening {
            return Err(fault::BEFORE_OPEN.on_connection());
        }
        let slot = self.session_of(channel).ok_or(fault::CHANNEL_UNUSED.on_connection())?;
        if self.sessions[slot].state == SessionState::Mapped {
            self.handle_transfer(slot, transfer, payload)
        } else {
            // AMQP 1.0 §2.5.5: what was on its way when we ended the session is passed over.
            Ok(Step::Again)
        }
    }

    #[inline]
    fn dispatch_to_session<'a>(
        &mut self,
        slot: usize,
        frame: &Frame<'a>,
        performative: &Performative<'a>,
    ) -> Result<Step<'a>, Failure> {
        // AMQP 1.0 §2.5.5: what was on its way when we ended the session is passed over.
        let mapped = self.sessions[slot].state == SessionState::Mapped;
        match performative {
            Performative::Disposition(disposition) if mapped => {
                Ok(self.handle_disposition(slot, disposition).into())
            }
            Performative::Flow(flow) if mapped => self.handle_flow(slot, flow).map(Step::from),
            Performative::Attach(attach) if mapped => self.handle_attach(slot, attach, frame.body),
            Performative::Detach(detach) if mapped => self.handle_detach(slot, detach).map(Step::from),
            Performative::End(_) if self.has_links(slot) => {
                self.retire_links(slot, DetachCause::SessionEnded);
                Ok(Step::Later)
            }
            Performative::End(end) => Ok(self.handle_end(slot, end).into()),
            Performative::Transfer(_)
            | Performative::Disposition(_)
            | Performative::Flow(_)
            | Performative::Attach(_)
            | Performative::Detach(_)
            | Performative::Open(_)
            | Performative::Begin(_)
            | Performative::Close(_) => Ok(Step::Again),
        }
    }

    fn handle_close<'a>(&mut self, close: &Close<'a>) -> Step<'a> {
        if !self.sessions.is_empty() {
            self.retire_all();
            return Step::Later;
        }
        if self.phase == Phase::Open {
            self.write_close(None);
        }
        self.phase = Phase::Closed;
        let error = self.fault.map(Fault::to_error).or(close.error);
        Step::Event(Event::Closed { error })
    }

    /// Looks for the peer's close among what it sent before it saw ours.
    fn step_closing<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        let before = *input;
        let size_max = self.config.max_frame_size.max(self.frame_before_open_max());
        let frame = match Frame::take(input, size_max.max(corelane_wire::amqp10::FRAME_SIZE_MIN_MAX)) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Wait,
            Err(_) => {
                self.finish();
                return Step::Again;
            }
        };
        let Ok((Performative::Close(close), _)) = Performative::decode(frame.body) else {
            return Step::Again;
        };
        let step = self.handle_close(&close);
        if let Step::Later = step {
            *input = before;
            return Step::Again;
        }
        step
    }

    #[cold]
    fn fail_frame<'a>(&mut self, error: &FrameError) -> Step<'a> {
        let detail = error.to_string();
        self.fail_connection(fault::FRAME, &detail);
        // Where the next frame starts is not known any more, so the peer's close would not be found.
        if self.phase != Phase::Closed {
            self.finish();
        }
        Step::Again
    }

    #[cold]
    fn fail_decode<'a>(&mut self, error: &DecodeError) -> Step<'a> {
        let detail = error.to_string();
        let fault = Fault { condition: error.condition(), ..fault::DECODE };
        self.fail_connection(fault, &detail);
        Step::Again
    }

    /// Tells of every link and session, and frees them.
    fn retire_all(&mut self) {
        let slots: Vec<usize> = self.sessions.iter().map(|(slot, _)| slot).collect();
        for &slot in &slots {
            self.retire_links(slot, DetachCause::ConnectionClosed);
        }
        for slot in slots {
            if self.sessions[slot].state != (SessionState::EndSent { told: true }) {
                self.queue.push_back(Queued::Ended { session: slot, fault: None });
            }
        }
        self.sessions.clear();
        self.channels.clear();
    }

    fn release<'a>(&mut self, queued: Queued) -> Event<'a> {
        match queued {
            Queued::LinkFlow { link } => self.link_flow_event(link),
            Queued::SessionFlow { session } => Event::SessionFlow { session: SessionId(session as u32) },
            Queued::Detached { link, closed, cause, fault } => {
                if let Some(entry) = self.links.get_mut(link)
                    && entry.state == LinkState::Detached(Detached::Queued)
                {
                    entry.state = LinkState::Detached(Detached::Told);
                    self.reap_link(link);
                }
                let error = fault.map(Fault::to_error);
                Event::Detached { link: LinkId(link as u32), closed, cause, error }
            }
            Queued::Ended { session, fault } => {
                Event::Ended { session: SessionId(session as u32), error: fault.map(Fault::to_error) }
            }
            Queued::Closed => Event::Closed { error: self.fault.map(Fault::to_error) },
        }
    }
}

impl<'a> From<Option<Event<'a>>> for Step<'a> {
    #[inline]
    fn from(event: Option<Event<'a>>) -> Self {
        match event {
            Some(event) => Self::Event(event),
            None => Self::Again,
        }
    }
}
