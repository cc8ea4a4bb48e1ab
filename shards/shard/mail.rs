//! What shards tell each other. Everything here is owned and `Send`; nothing refers to a shard's memory.
//!
//! Two lanes: `Handoff` carries messages ([`Mail::Handoff`], [`Mail::Forward`], [`Mail::Deliver`]), `Control` everything else and never waits
//! behind messages. A mail that wants an answer names the connection by its [`ConnectionId`], which outlives a move.

use std::sync::Arc;

use corelane_engine::{Acquisition, ConsumerId, Origin, Outcome, Place, QueueId};
use corelane_journal::{self as journal, TransactionName};
use corelane_protocol::amqp10::LinkId;

use crate::amqp091::ChannelMail;
use crate::backup::BackupMail;
use crate::connection::Connection;
use crate::dead_letters::LostDeadLetter;
use crate::destinations::Destinations;
use crate::durability::Source;
use crate::event::{Peer, Socket};
use crate::fan_out::Routed;
use crate::management::{self, Question};
use crate::message::Message;
use crate::rights::Rights;
use crate::subscription::Terms;
use crate::topology::TopologyMail;

/// A connection's identity: unique in the process, unchanged when it moves to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// A link of a connection, as other shards name it. The attachment tells one use of a link's place from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkRef {
    pub connection: ConnectionId,
    pub link: LinkId,
    pub attachment: u32,
}

/// One mail.
#[derive(Debug)]
pub enum Mail {
    /// A connection arrives at the shard that owns its first consumer's queue.
    Adopt(Box<Adopted>),

    /// To the control thread: a step of a SASL exchange.
    SaslStep { connection: ConnectionId, step: SaslStep },
    /// From the control thread: its answer.
    SaslReply { connection: ConnectionId, reply: SaslReply },

    /// To a queue's home: which queue is this, for a producer? Made on first use unless that is turned off.
    /// `makes`: it is made if it is not there.
    Resolve { link: LinkRef, queue: Box<str>, makes: bool },
    /// The home's answer.
    Resolved { link: LinkRef, result: Result<QueueId, Refusal>, window: u32 },
    /// To the home: published messages, in order.
    Handoff(Handoff),
    /// From the home: what became of the messages of one handoff.
    Stored(Handoff),

    /// To a queue's home: a consumer for a connection that lives elsewhere.
    Consume { link: LinkRef, request: Box<ConsumeRequest> },
    /// The home's answer.
    Consuming { link: LinkRef, result: Result<ConsumerId, Refusal> },
    /// To the home: how many deliveries the consumer may be sent.
    Lend { consumer: ConsumerId, loan: Loan },
    /// To the connection's shard: deliveries, in order.
    Deliver(Vec<RemoteDelivery>),
    /// From the home, behind the deliveries that it is about: the queue has nothing more for the consumer.
    CaughtUp { link: LinkRef },
    /// From the home: what the loan asked for is done, after `posted` deliveries since the consumer attached (they may
    /// still be on their way in the other lane).
    Lent { link: LinkRef, epoch: u32, posted: u32 },
    /// To the home: outcomes, and deliveries that come back unwritten.
    Settle(Vec<Settlement>),
    /// To the home: the consumer is gone. Everything it holds goes back; `was_seen` if the peer may have seen the oldest.
    /// `closed`: so is its terminus.
    CloseConsumer { consumer: ConsumerId, was_seen: bool, closed: bool },
    /// To the home: its peer wants nothing more of this consumer, and still holds what it got.
    ConsumerCancelled { consumer: ConsumerId },
    /// From the home: the consumer is gone, so its link has to end.
    ConsumerGone { link: LinkRef, ending: Ending },

    /// Between a channel's shard and a queue's home.
    Channel(ChannelMail),

    /// Between shards and the one that puts their changes in order: bindings, and what comes with them.
    Topology(TopologyMail),
    /// To a durable subscription's home: on which terms does it live? Asked for by who wants to end it.
    LookUpSubscription { link: LinkRef, name: Box<str> },
    /// The home's answer.
    SubscriptionLookedUp { link: LinkRef, result: Result<Box<Terms>, Refusal> },
    /// To a durable subscription's home: it has ended, as far as this link has to do with it.
    EndSubscription { name: Box<str>, link: LinkRef },

    /// To the home: consumers are still at work on deliveries.
    Renew(Vec<Renewal>),

    /// From a queue's home: the queue is full, the link gets no more credit.
    Wait { link: LinkRef, queue: QueueId, name: Box<str> },
    /// From the home: there is room again. So many messages of the link may be on their way.
    GoOn { link: LinkRef, queue: QueueId, window: u32 },
    /// From the home: the queue that the link sends to was deleted.
    TargetDeleted { link: LinkRef },
    /// To the home: the link has ended.
    ProducerGone { queue: QueueId, link: LinkRef },
    /// To the home: the link's connection lives on the sender's shard now. `attached`: the queue is the link's own.
    ProducerMoved { queue: QueueId, attached: bool, link: LinkRef },

    /// From the control thread: everything that the shards had is there again.
    AllReady,
    /// From the control thread: what destinations are like from now on.
    Destinations(Arc<Destinations>),

    /// Between the control thread and shards: a backup.
    Backup(BackupMail),

    /// To queues' home: messages of the broker's own making, in order.
    Forward(Vec<ForwardedMessage>),
    /// From the home: so many of them, of so many bytes, were taken in, but for those that could not be stored. `kept` are those that were
    /// somewhere else, with where they are hidden now.
    Forwarded { count: usize, bytes: u64, lost: Vec<LostDeadLetter>, kept: Vec<(Source, Vec<Arrived>)> },
    /// To the home: they are gone where they were, so consumers may have them.
    Reveal(Vec<Arrived>),
    /// To all homes: what was found at the start to have gone to another shard is gone where it was, so consumers may have it.
    GoneSinceStart,

    /// To a dynamic node's home: its link or connection ended.
    DeleteQueue { queue: QueueId },

    /// From a queue's home: outcomes inside a transaction were taken, `late` of them in vain.
    Retired { transaction: TransactionKey, count: u32, late: u32 },
    /// To a home with a part in a transaction, behind all work: can it commit? `settlements` are outcomes that the peer has not
    /// settled. `name`: what its part is written by; none: no other shard has one, so it is done at once.
    Prepare { transaction: TransactionKey, settlements: Vec<Settlement>, name: Option<TransactionName> },
    /// The home's answer. It stands until the decision.
    Voted { transaction: TransactionKey, vote: Vote },
    /// To a home with a part.
    Decide(Decision),
    /// The home's answer: it is done.
    Decided { transaction: TransactionKey },

    /// Management: a question of another shard, for a request that it serves.
    Query(Box<Query>),
    /// The answer to one.
    Answered(Box<Answered>),
    /// To a queue's home, behind the last question: the request that moved its messages elsewhere has ended.
    MoveEnded { request: u64, queue: Box<str> },
}

/// A connection on its way, with its socket.
#[derive(Debug)]
pub struct Adopted {
    pub(crate) connection: Connection,
    pub(crate) socket: Socket,
}

/// What a client sent in its SASL exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaslStep {
    Start {
        mechanism: String,
        initial_response: Option<Vec<u8>>,
        peer: Peer,
    },
    Response(Vec<u8>),
    /// The connection ended in the middle of the exchange.
    Abandon,
}

/// What the control thread makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaslReply {
    Challenge(Vec<u8>),
    /// `additional` goes into the outcome frame (SCRAM's server signature).
    Accepted {
        /// None for who does not say who it is.
        user: Option<String>,
        /// What it may do; none: everything.
        rights: Option<Arc<Rights>>,
        additional: Vec<u8>,
    },
    Refused,
}

/// Why a destination cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    ResourceLimit,
    /// The filters of the queue's consumers are as many, or as costly, as they may be.
    Filters,
    /// Its consumers have as many different priorities as they may.
    Priorities,
    InvalidFilter,
    /// It is in use, on other terms.
    Locked,
    /// A link of the same name was attached elsewhere.
    Stolen,
    /// The queue belongs to another connection.
    Exclusive,
    /// One consumer wants to be the only one, or would have to be.
    InUse,
}

/// Why a consumer's link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its queue was deleted.
    Deleted,
    /// AMQP 1.0 §2.6.1: its subscription's link was attached elsewhere.
    Stolen,
}

/// There with messages and room for the answers, back with the answers and room for messages: so a handoff costs its sender no
/// allocation.
#[derive(Debug, Default)]
pub struct Handoff {
    pub messages: Vec<HandoffMessage>,
    /// Runs of messages, in their order.
    pub answers: Vec<Stored>,
    /// Back: those that have to be returned to their publishers.
    pub returned: Vec<HandoffMessage>,
}

/// One published message on its way to its queue's home.
#[derive(Debug)]
pub struct HandoffMessage {
    pub link: LinkRef,
    pub delivery_id: u32,
    pub settled: bool,
    pub target: HandoffTarget,
    /// Who has sent it.
    pub user: Option<Arc<str>>,
    pub transaction: Option<TransactionKey>,
    pub message: Message,
}

/// Where to: a queue resolved at attach, or a name from the message's `to` on an anonymous terminus.
#[derive(Debug)]
pub enum HandoffTarget {
    Queue(QueueId),
    Name(Box<str>),
    /// The queue of this name, if it is there.
    Existing {
        name: Arc<str>,
        /// If not, the message comes back.
        is_mandatory: bool,
    },
    /// Those of a topic's subscriptions; the hash of the publisher's container.
    Queues {
        routed: Arc<Routed>,
        container: u64,
    },
}

/// A message that no producer waits for.
#[derive(Debug)]
pub struct ForwardedMessage {
    pub target: HandoffTarget,
    /// It is a dead letter of this queue of the sender's.
    pub died_in: Option<QueueId>,
    /// Where it was, if that was written: that is not needed any more when this is answered.
    pub(crate) source: Option<Source>,
    /// The same for the journal: once it is kept elsewhere, it is not there any more.
    pub(crate) origin: Option<journal::Origin>,
    pub message: Message,
}

/// A message that nobody sees before the one that it is a copy of is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    pub queue: QueueId,
    pub place: Place,
}

/// What became of messages that were handed off one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub link: LinkRef,
    pub first: u32,
    pub last: u32,
    /// Of all of them, as they were counted when they were handed off.
    pub bytes: u64,
    /// Their producer wants no outcome.
    pub settled: bool,
    pub transaction: Option<TransactionKey>,
    pub outcome: PublishOutcome,
}

/// A transaction, as shards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionKey {
    pub connection: ConnectionId,
    pub number: u32,
}

/// Whether a home can do its part of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// `kept`: its part is written, so the decision has to be.
    Yes {
        kept: bool,
    },
    /// A delivery was not its consumer's any more.
    Late,
    QueueGone,
    /// It would write too much here.
    TooLarge,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub transaction: TransactionKey,
    /// Otherwise it rolls back.
    pub commit: bool,
    /// The pieces of work that were sent: a roll-back waits for those that are on their way.
    pub work: u32,
    /// Say when it is done. Otherwise the connection is gone.
    pub answer: bool,
}

/// AMQP 1.0 §4.5.8: what is said of a transaction that is not open.
pub(crate) const UNKNOWN_TRANSACTION: (&str, &str) = (
    "amqp:transaction:unknown-id",
    "no such transaction is open: it was not declared on this connection, or is discharged",
);

/// The same of one that has taken too long.
pub(crate) const TIMED_OUT: (&str, &str) =
    ("amqp:transaction:timeout", "the transaction took too long, and was rolled back");

/// What became of a published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    Stored,
    /// There is no such queue, or there is none any more.
    NoQueue,
    /// An exchange leads to no queue; of the broker's own messages, a topic to no subscription either.
    NoSubscription,
    /// On an anonymous terminus: the message has no usable `to`.
    NoAddress,
    /// The queue is full.
    Full,
    /// The shard is: of messages, or of queues.
    NoRoom,
    /// It is durable, and the disk has no room for it or has failed.
    NoDisk,
    /// Its sections could not be read.
    Malformed,
    /// It belongs to a transaction that is not open.
    NoTransaction,
    /// It belongs to one that has taken too long.
    TransactionTimedOut,
    /// Its transaction has too much work already.
    TransactionFull,
    /// A request to the management node that belongs to a transaction.
    NotTransactional,
    /// Its sender may not write there.
    Denied,
}

impl PublishOutcome {
    /// There was no room for it, be it in memory or on a disk.
    pub(crate) fn is_for_want_of_room(self) -> bool {
        matches!(self, PublishOutcome::Full | PublishOutcome::NoRoom | PublishOutcome::NoDisk)
    }

    /// Nobody gets it.
    pub(crate) fn is_unrouted(self) -> bool {
        matches!(self, PublishOutcome::NoQueue | PublishOutcome::NoSubscription)
    }

    /// What became of a message for several queues.
    pub(crate) fn and(self, other: PublishOutcome) -> PublishOutcome {
        if self == PublishOutcome::Stored { other } else { self }
    }

    /// What a producer is told: condition and description.
    pub(crate) fn error(self) -> (&'static str, &'static str) {
        match self {
            PublishOutcome::Stored => ("", ""),
            PublishOutcome::NoQueue => ("amqp:not-found", "there is no such queue"),
            PublishOutcome::NoSubscription => {
                ("amqp:not-found", "no queue is bound, and nothing is subscribed")
            }
            PublishOutcome::NoAddress => ("amqp:precondition-failed", "the message's `to` names no queue"),
            PublishOutcome::Full => ("amqp:resource-limit-exceeded", "the queue is full"),
            PublishOutcome::NoRoom => (
                "amqp:resource-limit-exceeded",
                "the broker has no room for the message: its memory for messages is full, or it has as many queues as it may",
            ),
            PublishOutcome::NoDisk => (
                "amqp:resource-limit-exceeded",
                "the broker cannot keep durable messages now: its disk is full, or has failed",
            ),
            PublishOutcome::Malformed => ("amqp:decode-error", "the message's sections could not be read"),
            PublishOutcome::NoTransaction => UNKNOWN_TRANSACTION,
            PublishOutcome::TransactionTimedOut => TIMED_OUT,
            PublishOutcome::TransactionFull => (
                "amqp:resource-limit-exceeded",
                "the transaction has too many messages and outcomes, or too many bytes of durable messages on one shard",
            ),
            PublishOutcome::Denied => (
                "amqp:unauthorized-access",
                "the user has no permission to write where the message's `to` leads",
            ),
            PublishOutcome::NotTransactional => (
                "amqp:not-implemented",
                "requests to the management node take effect at once: send them outside of transactions",
            ),
        }
    }
}

/// What a consumer on another shard wants.
#[derive(Debug, Clone)]
pub struct ConsumeRequest {
    pub queue: Box<str>,
    pub filter: Option<Box<str>>,
    pub no_local: Option<Origin>,
    pub browse: bool,
    pub priority: i32,
    /// The queue is a topic's subscription, to be found or made on these terms.
    pub subscription: Option<Box<Terms>>,
    /// The queue is made if it is not there.
    pub makes: bool,
    /// It is for a channel.
    pub channel: Option<ChannelTerms>,
}

/// What a channel's consumer wants beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelTerms {
    /// To be the only one.
    pub exclusive: bool,
    /// Single messages: who counts consumers does not count it.
    pub gets: bool,
}

impl ConsumeRequest {
    /// Of a subscription, which keeps out by itself what its consumers do not want.
    pub(crate) fn for_subscription(priority: i32) -> Self {
        let queue = Box::default();
        ConsumeRequest {
            queue,
            filter: None,
            no_local: None,
            browse: false,
            priority,
            subscription: None,
            makes: true,
            channel: None,
        }
    }
}

/// How much a consumer's home may send. Counts are deliveries since the consumer attached, as serial numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loan {
    /// Send up to this one. None: as far as before; while a recall or a drain is not answered the home knows better how far that is.
    pub limit: Option<u32>,
    /// Up to here they were written to the session, or returned: what is not is taken back if this shard stalls.
    pub acknowledged: u32,
    pub answer: Answer,
    /// A flow arrived (it arms consumers of a queue with prefetch `none`).
    pub flow: bool,
}

/// When the home shall answer a loan with [`Mail::Lent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Never,
    /// At once: nothing is sent beyond the limit from here on.
    Recall {
        epoch: u32,
    },
    /// When the limit is reached or nothing is left.
    Drain {
        epoch: u32,
    },
}

/// A delivery for a consumer whose connection lives elsewhere.
#[derive(Debug)]
pub struct RemoteDelivery {
    pub link: LinkRef,
    pub place: Place,
    pub acquisition: Acquisition,
    pub counts: DeliveryCounts,
    pub posted_at: u64,
    pub message: Message,
}

/// What the header of a delivery says that the message itself does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryCounts {
    pub delivery_count: u32,
    pub first_acquirer: bool,
    pub expires_at: Option<u64>,
    /// Messages left in the queue, if who asks for single ones is told.
    pub left: u32,
}

/// A delivery that its consumer is still at work on.
#[derive(Debug, Clone, Copy)]
pub struct Renewal {
    pub consumer: ConsumerId,
    pub place: Place,
    pub acquisition: Acquisition,
}

/// An outcome on its way to the queue.
#[derive(Debug)]
pub struct Settlement {
    pub consumer: ConsumerId,
    pub place: Place,
    pub acquisition: Acquisition,
    pub outcome: Outcome,
    /// To be added to the message's annotations first: an encoded map.
    pub annotations: Option<Box<[u8]>>,
    /// When the delivery was written, as statistics stamp it; none: it was not.
    pub stamp: Option<u32>,
    /// It takes effect when a transaction commits.
    pub transaction: Option<Retirement>,
}

/// What there is to know of an outcome inside a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retirement {
    pub transaction: TransactionKey,
    /// Rolled back, the delivery counts as failed.
    pub failed_if_rolled_back: bool,
}

/// A question about what a shard has, for a request to manage it.
#[derive(Debug)]
pub struct Query {
    pub(crate) request: u64,
    /// Tells a request's questions apart.
    pub(crate) number: u32,
    pub(crate) question: Question,
}

/// The answer, for whoever has asked.
#[derive(Debug)]
pub struct Answered {
    pub(crate) request: u64,
    /// The question's.
    pub(crate) number: u32,
    pub(crate) answer: management::Answer,
}
