//! What does a connection tell its caller, and what does the caller tell it?

use corelane_wire::amqp10::{
    Attach, DeliveryState, DistributionMode, Error, Map, Open, ReceiverSettleMode, SaslCode,
    SenderSettleMode, Source, Symbols, TargetArchetype,
};

use super::ids::TransactionId;
use super::limits::DESCRIPTION_SIZE_MAX;
use crate::delivery::Payload;
use crate::ids::{LinkId, SessionId, Token};

/// What [`receive`](super::Connection::receive) found. Borrows from the bytes that were passed in. What is large and
/// rare is boxed, so that messages are small to pass on.
///
/// `Detached` is returned once for every link, `Ended` once for every session, `Closed` once at the end: at once when
/// the peer or a fault ended it, and on the peer's answer when the caller did. A link's `Detached` comes before its
/// session's `Ended`, and all of them before `Closed`. Answers to the peer's detach, end and close are already written.
#[derive(Debug)]
pub enum Event<'a> {
    /// Server: answer by [`sasl_challenge`](super::Connection::sasl_challenge) or
    /// [`sasl_outcome`](super::Connection::sasl_outcome); until then nothing further is read.
    SaslInit { mechanism: &'a str, initial_response: Option<&'a [u8]>, hostname: Option<&'a str> },
    /// Server: the answer to a challenge; to be answered as `SaslInit` is.
    SaslResponse(&'a [u8]),
    /// Client with [`Sasl::Caller`](super::Sasl::Caller): what the server offers.
    SaslMechanisms(Symbols<'a>),
    /// Client with [`Sasl::Caller`](super::Sasl::Caller).
    SaslChallenge(&'a [u8]),
    /// Client: the server has decided. If it is not `Ok`, `Closed` follows.
    SaslOutcome { code: SaslCode, additional_data: Option<&'a [u8]> },
    /// The peer's open. A server answers by [`accept_open`](super::Connection::accept_open) or
    /// [`close`](super::Connection::close); until then nothing further is read.
    Opened(Box<Open<'a>>),
    /// The peer has begun a session (and has our begin), or has answered our begin.
    SessionBegun { session: SessionId, ours: bool },
    /// The peer attaches a link: answer by [`accept_attach`](super::Connection::accept_attach) or
    /// [`refuse_attach`](super::Connection::refuse_attach), now or later. `attach.role` is the peer's.
    Attached { link: LinkId, session: SessionId, attach: Box<Attach<'a>> },
    /// The peer's answer to our attach. If it has no terminus, a `Detached` with the reason follows (§2.6.3).
    AttachConfirmed { link: LinkId, attach: Box<Attach<'a>> },
    /// The peer's flow for a link. If we send, `credit` is what we may send now (§2.6.7) and `drain` asks for
    /// [`drained`](super::Connection::drained) when nothing is left to send. If we receive, `credit` is what the peer
    /// may still send, `available` what it has.
    LinkFlow { link: LinkId, credit: u32, available: u32, drain: bool },
    /// Our window on this session was used up, now there is room again.
    SessionFlow { session: SessionId },
    /// A whole message.
    Message(Message<'a>),
    /// The peer has said what became of deliveries that we sent: drain
    /// [`poll_outcome`](super::Connection::poll_outcome) before the next call of `receive`.
    Disposition { state: Option<DeliveryState<'a>>, settled: bool },
    /// `closed`: the peer, or a fault, ended the link and its terminus. Otherwise only this attachment is over, and what
    /// becomes of the terminus is for its expiry policy to say (§3.5.6).
    Detached { link: LinkId, closed: bool, cause: DetachCause, error: Option<Error<'a>> },
    /// The session is over, whoever ended it.
    Ended { session: SessionId, error: Option<Error<'a>> },
    /// Nothing more will be read or written: flush the output, then close the socket.
    Closed { error: Option<Error<'a>> },
}

/// Who ended a link?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachCause {
    /// The peer's detach, or its answer to ours.
    Peer,
    /// A fault of the peer on this link; the error says which.
    Fault,
    /// The peer attached a link of this name and role again (§2.6.1).
    Stolen,
    /// Its session ended, whoever ended it.
    SessionEnded,
    /// The connection closed, whoever closed it.
    ConnectionClosed,
}

/// A message as it arrived.
#[derive(Debug)]
pub struct Message<'a> {
    pub link: LinkId,
    /// Names the delivery for [`settle`](super::Connection::settle).
    pub delivery_id: u32,
    /// The peer wants no outcome.
    pub settled: bool,
    pub message_format: u32,
    pub payload: Payload<'a>,
    /// The transaction that the message is part of (§4.4.2).
    pub transaction: Option<TransactionId>,
}

/// Why we end something. The description is cut to [`DESCRIPTION_SIZE_MAX`](super::limits::DESCRIPTION_SIZE_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSpec<'a> {
    pub condition: &'a str,
    pub description: &'a str,
}

impl<'a> ErrorSpec<'a> {
    pub(super) fn into_error(self) -> Error<'a> {
        let size = self.description.floor_char_boundary(DESCRIPTION_SIZE_MAX);
        Error::new(self.condition, &self.description[..size])
    }
}

/// A link that we attach.
#[derive(Clone, Copy, Debug)]
pub struct AttachRequest<'a> {
    /// Unique among our links of the same direction.
    pub name: &'a str,
    pub source: Option<Source<'a>>,
    pub target: Option<TargetArchetype<'a>>,
    pub sender_settle_mode: SenderSettleMode,
    pub receiver_settle_mode: ReceiverSettleMode,
    /// When we receive: the largest message we take; `None`: the configured one.
    pub max_message_size: Option<u64>,
    pub desired_capabilities: Symbols<'a>,
    pub properties: Option<Map<'a>>,
}

/// A field of the peer's attach in our answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer<T> {
    /// As the peer has it.
    #[default]
    Same,
    /// This instead; `None`: null.
    Other(T),
}

impl<T> Answer<T> {
    pub(super) fn or(self, asked: T) -> T {
        match self {
            Self::Same => asked,
            Self::Other(other) => other,
        }
    }
}

/// How we answer a peer's attach: its termini, with these changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachAnswer<'a> {
    /// The whole source, for a peer that has left it out to learn of it (§2.6.3). Otherwise the peer's, with what follows.
    pub source: Option<Source<'a>>,
    /// `Other` for the name of a dynamic node.
    pub source_address: Answer<Option<&'a str>>,
    pub target_address: Answer<Option<&'a str>>,
    /// The filters in force (§3.5.3).
    pub filter: Answer<Option<Map<'a>>>,
    pub distribution_mode: Answer<Option<DistributionMode<'a>>>,
    /// The outcomes that we act on (§3.5.3).
    pub outcomes: Answer<Symbols<'a>>,
    pub source_capabilities: Answer<Symbols<'a>>,
    pub target_capabilities: Answer<Symbols<'a>>,
    /// When we receive: the largest message we take; `None`: the configured one.
    pub max_message_size: Option<u64>,
    pub sender_settle_mode: Option<SenderSettleMode>,
    pub receiver_settle_mode: Option<ReceiverSettleMode>,
    pub offered_capabilities: Symbols<'a>,
    pub properties: Option<Map<'a>>,
}

/// A message to send: `head` and `rest` are one encoding in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Comes back with the delivery's outcome.
    pub token: Token,
    /// Wants no outcome. The link's settle mode prevails if it is not mixed.
    pub settled: bool,
    pub message_format: u32,
    pub head: &'a [u8],
    pub rest: &'a [u8],
}
