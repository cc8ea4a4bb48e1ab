//! What does a connection tell its caller, and what does the caller tell it?

use std::borrow::Cow;

use corelane_wire::amqp091::{Method, PropertyFields, ReplyCode, ShortStr, basic, exchange, queue};

use crate::delivery::Payload;
use crate::ids::{LinkId, SessionId, Token};

/// What [`receive`](super::Connection::receive) found. Borrows from the bytes that were passed in.
///
/// A channel is a session. A channel's publishing is one link, each consumer is one, and so is each queue that is got from.
/// `Detached` is returned once for every link, `Ended` once for every channel, `Closed` once at the end. A link's
/// `Detached` comes before its channel's `Ended`, and all of them before `Closed`.
#[derive(Debug)]
pub enum Event<'a> {
    /// Server: answer by [`sasl_challenge`](super::Connection::sasl_challenge) or
    /// [`sasl_outcome`](super::Connection::sasl_outcome); until then nothing further is read. An `AMQPLAIN` login is told as
    /// the `PLAIN` one that it means.
    SaslInit { mechanism: &'a str, initial_response: Option<Cow<'a, [u8]>> },
    /// Server: the answer to a challenge; to be answered as `SaslInit` is.
    SaslResponse(Cow<'a, [u8]>),
    /// The peer's open. A server answers by [`accept_open`](super::Connection::accept_open) or
    /// [`close`](super::Connection::close); until then nothing further is read. Client: the server has accepted ours.
    Opened { virtual_host: ShortStr<'a> },
    /// Server: the peer has opened a channel (and has our open-ok). Its messages come on the link `publisher`.
    ChannelOpened { session: SessionId, publisher: LinkId },
    /// Server: answer by [`reply`](super::Connection::reply) or [`fail`](super::Connection::fail), now or later. Until then
    /// what the peer sends on this channel waits inside.
    Request { session: SessionId, request: Request<'a> },
    /// Server: answer by [`accept_consume`](super::Connection::accept_consume) or [`fail`](super::Connection::fail), now or
    /// later, as for `Request`; an empty queue name means the same. The consumer's prefetch limit holds already.
    Consume { link: LinkId, session: SessionId, consume: basic::Consume<'a> },
    /// Server: answer by [`send`](super::Connection::send) on the link, [`get_empty`](super::Connection::get_empty) or
    /// [`fail`](super::Connection::fail), now or later, as for `Request`; an empty queue name means the same. The link is the
    /// same for the same queue while it lasts.
    Get { link: LinkId, session: SessionId, queue: ShortStr<'a>, no_ack: bool },
    /// Server: the consumer gets nothing more (and the peer has our cancel-ok). `Detached` follows when all it got is
    /// acknowledged.
    Cancel { link: LinkId },
    /// Server: a published message.
    Message(Message<'a>),
    /// Server: the peer has said what became of deliveries: drain [`poll_outcome`](super::Connection::poll_outcome)
    /// before the next call of `receive`. In a transaction they are told when it commits, right before
    /// [`Request::TxCommit`].
    Disposition { session: SessionId, outcome: Outcome, transaction: bool },
    /// Server: a consumer that was at its prefetch limit may have more.
    LinkFlow { link: LinkId },
    /// Server: all consumers of a channel may have more, or nothing for now.
    SessionFlow { session: SessionId },
    /// Server: the link is over.
    Detached { link: LinkId },
    /// The channel is over, whoever closed it.
    Ended { session: SessionId, error: Option<Error<'a>> },
    /// Client: the answer to a [`call`](super::Connection::call), or what the server says of its own accord: confirms,
    /// cancels.
    Answered { session: SessionId, method: Method<'a> },
    /// Client: a message, by delivery, get or return.
    Delivery(Delivery<'a>),
    /// Client: the server does not read what is published, and why.
    Blocked { reason: ShortStr<'a> },
    /// Client: it reads again.
    Unblocked,
    /// Nothing more will be read or written: flush the output, then close the socket.
    Closed { error: Option<Error<'a>> },
}

/// What a peer wants done with exchanges, queues and transactions. A queue's name may be empty:
/// [`last_queue`](super::Connection::last_queue) is meant then, but for `QueueDeclare`, which wants a new name. `no_wait` is not the
/// caller's matter: it replies all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    ExchangeDeclare(exchange::Declare<'a>),
    ExchangeDelete(exchange::Delete<'a>),
    ExchangeBind(exchange::Bind<'a>),
    ExchangeUnbind(exchange::Unbind<'a>),
    /// [`Reply::Declared`]
    QueueDeclare(queue::Declare<'a>),
    QueueBind(queue::Bind<'a>),
    QueueUnbind(queue::Unbind<'a>),
    /// [`Reply::Removed`]
    QueuePurge(queue::Purge<'a>),
    /// [`Reply::Removed`]
    QueueDelete(queue::Delete<'a>),
    /// Of the channel's messages and outcomes since its `tx.select`, or the last commit or rollback.
    TxCommit,
    /// Of the channel's messages. Its outcomes were not told, and their deliveries are unsettled again.
    TxRollback,
}

/// The answer to a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    Done,
    Declared {
        queue: ShortStr<'a>,
        message_count: u32,
        consumer_count: u32,
    },
    /// So many messages were.
    Removed {
        message_count: u32,
    },
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Acknowledged. Of a published one: a positive confirm.
    Accepted,
    /// Not to be delivered again. Of a published one: a negative confirm.
    Rejected,
    /// To be delivered again. Of a published one: a negative confirm.
    Released,
}

/// A published message.
#[derive(Debug)]
pub struct Message<'a> {
    pub link: LinkId,
    /// Names the message for [`settle`](super::Connection::settle).
    pub delivery_id: u32,
    /// The peer wants no confirm.
    pub settled: bool,
    /// To be given to [`return_message`](super::Connection::return_message) if it goes nowhere.
    pub mandatory: bool,
    /// It is part of the channel's transaction.
    pub transaction: bool,
    pub head: Head<'a>,
    pub payload: Payload<'a>,
}

/// A message that a client receives.
#[derive(Debug)]
pub struct Delivery<'a> {
    pub session: SessionId,
    pub kind: DeliveryKind,
    pub head: Head<'a>,
    pub payload: Payload<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryKind {
    /// To the consumer of [`Head::consumer_tag`].
    Delivered {
        delivery_tag: u64,
        redelivered: bool,
    },
    /// `message_count`: left in the queue.
    Got {
        delivery_tag: u64,
        redelivered: bool,
        message_count: u32,
    },
    Returned {
        reply_code: u16,
    },
}

/// What stands before a message's body. [`recycle_head`](super::Connection::recycle_head) takes it back.
#[derive(Debug)]
pub struct Head<'a>(pub(super) HeadBytes<'a>);

#[derive(Debug)]
pub(super) enum HeadBytes<'a> {
    /// As it came.
    Slice { exchange: ShortStr<'a>, routing_key: ShortStr<'a>, tag: ShortStr<'a>, properties: &'a [u8] },
    /// Of frames that came apart: the four one behind the other.
    Copied { bytes: Vec<u8>, sizes: [u8; 3] },
}

impl Head<'_> {
    pub fn exchange(&self) -> ShortStr<'_> {
        match &self.0 {
            HeadBytes::Slice { exchange, .. } => *exchange,
            HeadBytes::Copied { .. } => self.part(0),
        }
    }

    pub fn routing_key(&self) -> ShortStr<'_> {
        match &self.0 {
            HeadBytes::Slice { routing_key, .. } => *routing_key,
            HeadBytes::Copied { .. } => self.part(1),
        }
    }

    /// Of a message that is delivered to a client.
    pub fn consumer_tag(&self) -> ShortStr<'_> {
        match &self.0 {
            HeadBytes::Slice { tag, .. } => *tag,
            HeadBytes::Copied { .. } => self.part(2),
        }
    }

    /// As they are encoded, and not looked at: they may be malformed.
    pub fn properties(&self) -> PropertyFields<'_> {
        PropertyFields::new(match &self.0 {
            HeadBytes::Slice { properties, .. } => properties,
            HeadBytes::Copied { bytes, sizes } => {
                let start = sizes.iter().map(|&size| usize::from(size)).sum();
                bytes.get(start..).unwrap_or_default()
            }
        })
    }

    fn part(&self, index: usize) -> ShortStr<'_> {
        let HeadBytes::Copied { bytes, sizes } = &self.0 else { return ShortStr::EMPTY };
        let start: usize = sizes[..index].iter().map(|&size| usize::from(size)).sum();
        let part = bytes.get(start..start + usize::from(sizes[index])).unwrap_or_default();
        ShortStr::new(part).unwrap_or_default()
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Comes back with the delivery's outcome.
    pub token: Token,
    pub redelivered: bool,
    pub exchange: ShortStr<'a>,
    pub routing_key: ShortStr<'a>,
    pub properties: PropertyFields<'a>,
    /// The body is these one behind the other.
    pub body: &'a [&'a [u8]],
    /// For an answer to `Get`: messages left in the queue.
    pub message_count: u32,
}

/// A message that goes back to who published it, or that a client publishes.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    pub exchange: ShortStr<'a>,
    pub routing_key: ShortStr<'a>,
    pub properties: PropertyFields<'a>,
    /// The body is these one behind the other.
    pub body: &'a [&'a [u8]],
}

/// Why a peer has closed a channel or the connection, or what we have told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error<'a> {
    /// [`ReplyCode::from_code`] knows the specification's.
    pub reply_code: u16,
    pub text: Cow<'a, [u8]>,
}

/// Why we close something. What the peer reads begins with the code's name, and is cut to 255 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSpec<'a> {
    pub reply_code: ReplyCode,
    pub text: &'a str,
}
