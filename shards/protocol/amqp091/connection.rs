//! What is known of one connection, and what does the next frame do to it?
//!
//! `phase` says which bytes may come next. Every frame goes through [`Connection::receive`], or through
//! [`Connection::receive_parked`] if it had to wait; what it breaks is ended by [`Connection::fail_at`]. Events that a frame
//! causes beside its own wait in `queue`, which is empty whenever a frame is looked at.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use corelane_wire::amqp091::{
    Encode, FRAME_SIZE_MIN_MAX, Frame, FrameKind, Method, ShortStr, connection, write_method,
};
use hashbrown::HashTable;
use slab::Slab;

use super::channel::Channel;
use super::channels::Channels;
use super::config::Config;
use super::content::Assembly;
use super::event::{Error, ErrorSpec, Event, Outcome};
use super::fault::{self, Fault};
use super::limits::FRAME_BEFORE_OPEN_MAX;
use super::link::Link;
use super::settlement::{Disposing, Mark};
use crate::ids::{LinkId, SessionId};
use crate::timers::Timers;

/// One connection, server or client.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) side: Side,
    pub(super) phase: Phase,
    /// The latest time that was passed in.
    pub(super) now: u64,
    pub(super) timers: Timers,
    pub(super) peer: Peer,
    pub(super) output: Vec<u8>,
    pub(super) queue: VecDeque<Queued>,
    /// Why we close, for the caller.
    fault: Option<Fault>,

    pub(super) channels: Channels,
    /// By [`LinkId`].
    pub(super) links: Slab<Link>,
    /// Slots of consumers by channel and tag, and of links that get by channel and queue.
    pub(super) names: HashTable<u32>,
    /// The last number given to a consumer tag of ours.
    pub(super) tag_last: u64,

    /// Channels with confirms for `finish_turn` to write.
    pub(super) dirty: Vec<u16>,
    /// Channels with parked frames that need not wait any more.
    pub(super) resumable: VecDeque<u16>,
    /// Bytes of parked frames.
    pub(super) parked_size: usize,
    /// Whole frames are left in the input, and wait for the caller.
    pub(super) full: bool,
    /// The outcomes that are being told.
    pub(super) disposing: Option<Disposing>,
    pub(super) assembly: Assembly,
    /// The peer knows that we do not read what it publishes.
    pub(super) blocked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Server: a protocol header.
    Header,
    /// Server: start-ok. Client: start.
    Start,
    /// Server: nothing, until the caller has answered. The rounds so far.
    Login {
        round: u32,
    },
    /// Server: secure-ok.
    Secure {
        round: u32,
    },
    /// Server: tune-ok. Client: tune, or secure.
    Tune,
    /// Server: open. Client: open-ok.
    Opening,
    /// Server: nothing, until the caller has answered.
    OpenReceived,
    Open,
    /// close-ok; all else is passed over.
    Closing,
    /// Nothing.
    Closed,
}

/// What is known of the peer.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Largest frame that goes either way.
    pub(super) frame_max: u32,
    pub(super) channel_max: u16,
    /// It understands a cancel from the server.
    pub(super) takes_cancels: bool,
    /// It understands blocked and unblocked.
    pub(super) takes_blocked: bool,
    /// It understands a close before the open.
    pub(super) takes_login_failures: bool,
    pub(super) connection_name: Box<str>,
    /// As it calls its mechanism.
    pub(super) mechanism: Box<str>,
}

/// An event that waits for its turn.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    LinkFlow {
        link: u32,
    },
    SessionFlow {
        session: u16,
    },
    /// Outcomes of a transaction that commits.
    Committing {
        session: u16,
        outcome: Outcome,
    },
    Detached {
        link: u32,
    },
    Ended {
        session: u16,
        error: Option<Fault>,
    },
    Closed,
}

/// What looking at the input has brought.
#[derive(Debug)]
pub(super) enum Step<'a> {
    Event(Event<'a>),
    /// Look again.
    Again,
    /// Events are queued that come before this frame's own: look at it again.
    Later,
    /// This frame has to wait for the caller: look at it again then.
    Stalled,
    /// More bytes, or an answer of the caller, are needed.
    Wait,
}

impl Connection {
    pub fn server(config: impl Into<Arc<Config>>, now: u64) -> Self {
        Self::new(config.into(), Side::Server, now)
    }

    /// Writes its header at once.
    pub fn client(config: impl Into<Arc<Config>>, now: u64) -> Self {
        let mut connection = Self::new(config.into(), Side::Client, now);
        connection.start_client();
        connection
    }

    fn new(config: Arc<Config>, side: Side, now: u64) -> Self {
        let frame_max = config.frame_max.clamp(FRAME_SIZE_MIN_MAX, FRAME_BEFORE_OPEN_MAX);
        Self {
            side,
            phase: Phase::Header,
            now,
            timers: Timers::new(now, None, config.handshake_timeout_us),
            peer: Peer {
                frame_max,
                channel_max: config.channel_max,
                takes_cancels: false,
                takes_blocked: false,
                takes_login_failures: false,
                connection_name: Box::default(),
                mechanism: Box::default(),
            },
            output: Vec::new(),
            queue: VecDeque::new(),
            fault: None,
            channels: Channels::default(),
            links: Slab::new(),
            names: HashTable::new(),
            tag_last: 0,
            dirty: Vec::new(),
            resumable: VecDeque::new(),
            parked_size: 0,
            full: false,
            disposing: None,
            assembly: Assembly::default(),
            blocked: false,
            config,
        }
    }

    /// Takes frames from the front of `input` until one has something to tell, which is returned. `None`: more bytes
    /// are needed, or the caller's answer to an earlier event ([`is_full`](Self::is_full)); what is left of `input` must
    /// be passed again, with more behind it. With no input it returns events that
    /// [`handle_timeout`](Self::handle_timeout) and commands caused.
    pub fn receive<'a>(&mut self, now: u64, input: &mut &'a [u8]) -> Option<Event<'a>> {
        assert!(self.disposing.is_none(), "poll_outcome is drained before the next receive");
        self.now = self.now.max(now);
        self.timers.bytes_passed(self.now, input.len());
        self.full = false;
        let event = loop {
            if let Some(queued) = self.queue.pop_front() {
                break Some(self.release(queued));
            }
            match self.step(input) {
                Step::Event(event) => break Some(event),
                Step::Again | Step::Later => {}
                Step::Wait => break None,
                Step::Stalled => {
                    self.full = true;
                    break None;
                }
            }
        };
        self.timers.bytes_left(input.len());
        event
    }

    /// Closes the connection with everything on it. [`Closed`](Event::Closed) follows with the peer's answer, or after
    /// the close timeout. `None` is a normal end.
    pub fn close(&mut self, error: Option<ErrorSpec<'_>>) {
        match self.phase {
            Phase::Header => self.finish(),
            Phase::Start
            | Phase::Login { .. }
            | Phase::Secure { .. }
            | Phase::Tune
            | Phase::Opening
            | Phase::OpenReceived
            | Phase::Open => {
                // A client that has not got so far has nothing to close.
                if self.side == Side::Client && matches!(self.phase, Phase::Start | Phase::Tune) {
                    self.finish();
                    return;
                }
                self.write_confirms();
                self.write_close(error.map(Fault::of).as_ref());
                self.retire_all();
                self.enter_closing();
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

    /// The bytes to be sent. The caller may swap the buffer for an empty one.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Writes what was gathered: confirms, and a heartbeat when it is due.
    pub fn finish_turn(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.write_confirms();
        self.write_keep_alive();
    }

    /// What the peer calls its connection (client property `connection_name`); empty if it does not.
    pub fn connection_name(&self) -> &str {
        &self.peer.connection_name
    }

    /// May channels be worked with?
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.phase == Phase::Open
    }

    #[inline]
    pub(super) fn write(&mut self, channel: u16, method: &impl Encode) {
        write_method(&mut self.output, channel, method);
    }

    /// Ends what the fault on this channel ends.
    #[cold]
    pub(super) fn fail_at(&mut self, channel: u16, fault: Fault) {
        let is_open = self.channel(channel).is_some_and(|channel| !channel.is_closing());
        if fault.code.is_hard() || !is_open {
            self.fail_connection(fault);
        } else {
            self.fail_channel(channel, fault);
        }
    }

    /// Closes the connection for a fault of the peer.
    #[cold]
    pub(super) fn fail_connection(&mut self, fault: Fault) {
        match self.phase {
            Phase::Header => {
                // There is no close before a start. Whoever owns the socket sees to it that our last word is read.
                self.fault = Some(fault);
                self.finish();
            }
            Phase::Start
            | Phase::Login { .. }
            | Phase::Secure { .. }
            | Phase::Tune
            | Phase::Opening
            | Phase::OpenReceived
            | Phase::Open => {
                self.write_confirms();
                self.write_close(Some(&fault));
                self.fault = Some(fault);
                self.retire_all();
                self.enter_closing();
            }
            Phase::Closing => self.finish(),
            Phase::Closed => {}
        }
    }

    /// Notes why the connection ends, and ends it without a close.
    #[cold]
    pub(super) fn refuse(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.finish();
    }

    /// Waits for the end of the connection, but not for ever.
    fn enter_closing(&mut self) {
        self.phase = Phase::Closing;
        self.timers.close_started(self.now, self.config.close_timeout_us);
    }

    /// Ends the connection here and now, telling of everything that was on it.
    pub(super) fn finish(&mut self) {
        self.retire_all();
        self.phase = Phase::Closed;
        self.queue.push_back(Queued::Closed);
    }

    #[inline]
    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        match self.phase {
            Phase::Open => self.step_frame(input),
            Phase::Header => self.step_header(input),
            Phase::Start | Phase::Secure { .. } | Phase::Tune | Phase::Opening => self.step_handshake(input),
            Phase::Login { .. } | Phase::OpenReceived => Step::Wait,
            Phase::Closing => self.step_closing(input),
            Phase::Closed => {
                *input = &[];
                Step::Wait
            }
        }
    }

    #[inline]
    fn step_frame<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        if self.parked_size >= self.config.parked_size_max {
            return Step::Stalled;
        }
        let before = *input;
        let frame = match Frame::take(input, self.peer.frame_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Wait,
            Err(error) => return self.fail_frame(error.into()),
        };
        if self.has_to_wait(frame.channel) {
            self.park(&frame);
            return Step::Again;
        }
        let step = self.take_frame(&frame, input);
        if let Step::Later | Step::Stalled = step {
            *input = before;
        }
        step
    }

    /// Acts on a frame. `rest` is what has come behind it, of which frames may be taken.
    #[inline]
    pub(super) fn take_frame<'a>(&mut self, frame: &Frame<'a>, rest: &mut &'a [u8]) -> Step<'a> {
        let done = if frame.channel == 0 {
            self.handle_connection_frame(frame)
        } else {
            self.handle_channel_frame(frame, rest)
        };
        match done {
            Ok(step) => step,
            Err(fault) => {
                self.fail_at(frame.channel, fault);
                Step::Again
            }
        }
    }

    /// A frame on channel 0, once the connection is open.
    fn handle_connection_frame<'a>(&mut self, frame: &Frame<'a>) -> Result<Step<'a>, Fault> {
        match frame.kind {
            FrameKind::Heartbeat => return Ok(Step::Again),
            FrameKind::Method => {}
            FrameKind::Header | FrameKind::Body => {
                return Err(fault::unexpected_frame("content on channel 0"));
            }
        }
        let method = Method::decode(frame.payload)?;
        let Method::Connection(method) = method else {
            return Err(unexpected_method().by(method.id()));
        };
        let server = self.side == Side::Server;
        match method {
            connection::Method::Close(close) => Ok(self.handle_close(&close)),
            connection::Method::UpdateSecret(_) if server => {
                // Whoever is logged in stays so: credentials are looked at when a connection begins.
                self.write(0, &connection::UpdateSecretOk {});
                Ok(Step::Again)
            }
            connection::Method::Blocked(blocked) if !server => {
                Ok(Step::Event(Event::Blocked { reason: blocked.reason }))
            }
            connection::Method::Unblocked(_) if !server => Ok(Step::Event(Event::Unblocked)),
            connection::Method::UpdateSecretOk(_) if !server => Ok(Step::Again),
            other => Err(unexpected_method().by(other.id())),
        }
    }

    /// The peer's close. What it has sent before is done first, also where that has to wait for the caller.
    fn handle_close<'a>(&mut self, close: &connection::Close<'a>) -> Step<'a> {
        if self.phase == Phase::Open && self.has_unfinished() {
            return Step::Stalled;
        }
        if self.channels.count() > 0 {
            self.write_confirms();
            self.retire_all();
            return Step::Later;
        }
        self.write(0, &connection::CloseOk {});
        self.phase = Phase::Closed;
        let error = match &self.fault {
            Some(fault) => Some(fault.to_error()),
            None => error_of(close.reply_code, close.reply_text),
        };
        Step::Event(Event::Closed { error })
    }

    /// The peer's close while the handshake is going on.
    pub(super) fn handle_early_close<'a>(&mut self, close: &connection::Close<'a>) -> Step<'a> {
        self.handle_close(close)
    }

    /// Looks for the peer's close-ok among what it sent before it saw our close.
    fn step_closing<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        let frame = match Frame::take(input, self.peer.frame_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Wait,
            Err(_) => {
                self.finish();
                return Step::Again;
            }
        };
        if frame.channel != 0 || frame.kind != FrameKind::Method {
            return Step::Again;
        }
        match Method::decode(frame.payload) {
            Ok(Method::Connection(connection::Method::CloseOk(_))) => {
                self.finish();
                Step::Again
            }
            Ok(Method::Connection(connection::Method::Close(close))) => self.handle_close(&close),
            Ok(_) | Err(_) => Step::Again,
        }
    }

    /// Where the next frame starts is not known any more, so the peer's close-ok would not be found.
    #[cold]
    pub(super) fn fail_frame<'a>(&mut self, fault: Fault) -> Step<'a> {
        self.fail_connection(fault);
        if self.phase != Phase::Closed {
            self.finish();
        }
        Step::Again
    }

    /// Whether something that the peer has sent waits for the caller.
    fn has_unfinished(&self) -> bool {
        self.channels.iter().any(|(_, channel)| channel.pending.is_some() || channel.parked.has_frames())
    }

    /// Tells of every link and channel, and frees them.
    fn retire_all(&mut self) {
        let is_told = |channel: &Channel| !channel.is_closing() || self.side == Side::Client;
        let told = self.channels.iter().filter(|(_, channel)| is_told(channel));
        let told: Vec<u16> = told.map(|(number, _)| number).collect();
        for number in told {
            self.retire_channel(number);
            self.queue.push_back(Queued::Ended { session: number, error: None });
        }
        self.channels.clear();
        self.resumable.clear();
        self.dirty.clear();
    }

    pub(super) fn release<'a>(&mut self, queued: Queued) -> Event<'a> {
        match queued {
            Queued::LinkFlow { link } => Event::LinkFlow { link: LinkId(link) },
            Queued::SessionFlow { session } => Event::SessionFlow { session: SessionId(session.into()) },
            Queued::Committing { session, outcome } => {
                self.dispose_all(session, Mark::Within(outcome));
                Event::Disposition { session: SessionId(session.into()), outcome, transaction: true }
            }
            Queued::Detached { link } => {
                self.links.try_remove(link as usize);
                Event::Detached { link: LinkId(link) }
            }
            Queued::Ended { session, error } => {
                let error = error.as_ref().map(Fault::to_error);
                Event::Ended { session: SessionId(session.into()), error }
            }
            Queued::Closed => Event::Closed { error: self.fault.as_ref().map(Fault::to_error) },
        }
    }

    fn write_close(&mut self, fault: Option<&Fault>) {
        match fault {
            Some(fault) => self.write(
                0,
                &connection::Close {
                    reply_code: fault.code.code(),
                    reply_text: ShortStr::cut(&fault.reply_text()),
                    class_id: fault.method.class_id,
                    method_id: fault.method.method_id,
                },
            ),
            None => {
                let reply_text = ShortStr::literal("Normal shutdown");
                self.write(0, &connection::Close { reply_code: 200, reply_text, ..Default::default() });
            }
        }
    }
}

#[cold]
pub(super) fn unexpected_method() -> Fault {
    Fault::new(
        corelane_wire::amqp091::ReplyCode::ChannelError,
        "a method that does not belong here on channel 0",
    )
}

/// What a close says, unless that is nothing.
pub(super) fn error_of(reply_code: u16, reply_text: ShortStr<'_>) -> Option<Error<'_>> {
    let is_normal = [0, 200].contains(&reply_code);
    (!is_normal).then(|| Error { reply_code, text: Cow::Borrowed(reply_text.as_bytes()) })
}
