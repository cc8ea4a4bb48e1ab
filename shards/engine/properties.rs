//! What goes into the engine, and what comes out? The plain types of its interface.

use crate::ids::{Acquisition, Origin, Place, QueueId};
use crate::redelivery::RedeliveryDelay;
use crate::selector::Filter;
use crate::stored::Stored;

/// What a queue is like. All of it can be changed while the queue runs, but for `non_destructive` while consumers are attached: they
/// go on as they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueProperties {
    /// One consumer is active and the others stand by. The same as `consumers_max: Some(1)`.
    pub exclusive: bool,
    /// So many consumers are active and the others stand by; none: all are active. Browsers do not count.
    pub consumers_max: Option<u32>,
    pub prefetch: Prefetch,
    /// Who gets a message that several could take.
    pub dispatch: Dispatch,
    /// Replaces the producer's expiry: microseconds after enqueueing; `Some(0)`: never; none: the producer's stands.
    pub expiration_us: Option<u64>,
    /// Whether messages have a level by their priority; else all share one. Holds for messages enqueued from now on: those before come
    /// first when it is set, and those after come last when it is taken back.
    pub priorities: bool,
    /// A group stays with its consumer for the consumer's life, not only while the consumer holds a message of it.
    pub sticky_groups: bool,
    /// Consumers acquire nothing: each reads every message once, and messages leave by expiry or limits only.
    pub non_destructive: bool,
    /// A delivery that is not settled within this time goes back to its place, as one that failed.
    pub ack_deadline_us: Option<u64>,
    /// Messages that are rejected, expired or delivered too often go to [`take_dead_letter`](crate::Engine::take_dead_letter)
    /// instead of being dropped.
    pub dead_letter: bool,
    /// A message whose delivery-count reaches this is treated as rejected. None: no limit.
    pub deliveries_max: Option<u32>,
    /// How long a message that comes back as failed waits before it is available again. None: not at all.
    pub redelivery: Option<RedeliveryDelay>,
    /// Messages in the queue, whatever their state. Full: see `overflow`.
    pub messages_max: Option<u64>,
    /// What consumers hold does not count for `messages_max`, unless producers are made to wait.
    pub held_besides: bool,
    /// Bytes of the messages in the queue, as [`Message::size`](crate::Message::size) tells them. Full: see `overflow`.
    pub bytes_max: Option<u64>,
    pub overflow: Overflow,
}

/// How many unsettled messages a consumer may have at a time, whatever credit it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefetch {
    /// Its own credit stands.
    #[default]
    Absent,
    /// One, and only after a flow or get that arrives when the previous one was settled
    /// ([`Engine::flow_received`](crate::Engine::flow_received)).
    None,
    /// At most so many; 0 counts as 1.
    Limit(u32),
}

/// Which of several ready consumers of the highest priority gets a message that each of them could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dispatch {
    /// They take turns, one message each.
    #[default]
    RoundRobin,
    /// The one with the fewest unsettled messages; of several, the one that has waited longest.
    LeastOutstanding,
}

/// What happens to a publication when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overflow {
    /// It is refused.
    #[default]
    Reject,
    /// The oldest entries that nobody holds are dropped to make room. If all are held the queue overshoots. What is published inside
    /// a transaction makes room when it is committed.
    DropOldest,
    /// It is taken all the same, and its producers are to wait: [`Engine::is_full`](crate::Engine::is_full) says so, and
    /// [`Engine::poll_room`](crate::Engine::poll_room) when they may go on. The queue overshoots by what is on its way.
    Block,
}

/// A message on its way into a queue.
#[derive(Clone, Debug)]
pub struct Publication<M> {
    pub message: M,
    /// 0 to 9; higher counts as 9. Ignored when the queue has no priorities.
    pub priority: u8,
    /// Microseconds since the epoch.
    pub expires_at: Option<u64>,
    /// Delayed delivery: available from then on, at its place. Microseconds since the epoch.
    pub held_until: Option<u64>,
    /// The connection it came by, for consumers with `no_local`.
    pub origin: Origin,
    /// Published inside a transaction that is open: the entry has its place, but nobody sees it before
    /// [`commit_pending`](crate::Engine::commit_pending).
    pub pending: bool,
    /// Of all messages with this key the queue keeps the last: an older one is deleted, or, if a consumer holds it, dropped instead
    /// of going back. One that is delayed, or pending, is the last from when that ends.
    pub last_value: Option<Box<[u8]>>,
}

impl<M> Publication<M> {
    /// A message of ordinary priority, without expiry or delay, and outside transactions.
    pub fn new(message: M) -> Self {
        Publication {
            message,
            priority: 4,
            expires_at: None,
            held_until: None,
            origin: Origin(0),
            pending: false,
            last_value: None,
        }
    }
}

/// Why a message was not enqueued. It is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueRefusal {
    /// There is no such queue (any more).
    QueueGone,
    /// `messages_max` of the queue.
    MessagesFull,
    /// `bytes_max` of the queue.
    BytesFull,
    /// `entries_max` of the engine.
    ShardFull,
}

/// What a consumer wants. Consumers with equal filter, `no_local` and mode share a class and so a cursor.
#[derive(Clone, Debug)]
pub struct ConsumerSpec {
    pub filter: Option<Filter>,
    /// Messages of this origin are not for it.
    pub no_local: Option<Origin>,
    pub mode: AcquireMode,
    /// 0 unless the client says otherwise; higher goes first.
    pub priority: i32,
    /// Opaque to the engine; given back with each delivery.
    pub owner: u64,
}

impl ConsumerSpec {
    /// An acquiring consumer of priority 0 that takes every message.
    pub fn new(owner: u64) -> Self {
        ConsumerSpec { filter: None, no_local: None, mode: AcquireMode::Acquire, priority: 0, owner }
    }
}

/// Whether a consumer takes messages away or only reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquireMode {
    Acquire,
    /// Sees each entry at most once, in the order of places as far as they are available when its turn comes.
    /// What is held by a consumer when the browser comes by is not seen.
    Browse,
}

/// Why a consumer was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachRefusal {
    /// There is no such queue (any more).
    QueueGone,
    ConsumersFull,
    ClassesFull,
    FiltersFull,
    PrioritiesFull,
}

/// Whether a consumer can take messages now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desire {
    /// It has credit, nothing blocks it, and its socket takes bytes.
    Ready,
    Paused(PauseReason),
}

/// Why a consumer is not interested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PauseReason {
    NoCredit,
    /// Its socket does not take bytes.
    Socket,
    SessionWindow,
    /// 0-9-1 `channel.flow`.
    FlowStopped,
    /// Another shard comes first: a lane to it is full, or what it acknowledges is waited for.
    Lane,
    /// Other consumers of its connection have their turn first.
    Turn,
    /// The rest of a message that was sent to it in part comes first.
    Partial,
    /// Its next message is not in memory, and is being read. Set by the engine only.
    Body,
    /// By an operator.
    Suspended,
    /// Others are active on this queue. Set by the engine only.
    Standby,
    /// It holds as many unsettled messages as the queue's `prefetch` allows; one that holds none, where that is none, waits for a flow.
    /// Set by the engine only.
    Prefetch,
    /// It refused too many messages that nobody else took. Set by the engine only.
    Refusals,
}

impl PauseReason {
    pub(crate) const COUNT: usize = 12;

    /// Set by the engine only: its owner neither sets nor ends it.
    pub fn is_of_engine(self) -> bool {
        use PauseReason::{Body, Prefetch, Refusals, Standby};
        matches!(self, Standby | Prefetch | Refusals | Body)
    }
}

/// What a pull brought.
#[derive(Debug)]
pub enum Pull<'a, M> {
    /// One message. The consumer stays Notified, at the ring's back, unless it has reached its prefetch.
    Delivered(Delivery<'a, M>),
    /// There is nothing for this consumer now; it is told when there is.
    Nothing,
    /// There may be something further on; scanning for it goes on, and the consumer is told. Or there is something, which has to be read
    /// first: the consumer is paused ([`PauseReason::Body`]) until then.
    Scanning,
}

/// One entry, handed to one consumer.
#[derive(Debug)]
pub struct Delivery<'a, M> {
    pub queue: QueueId,
    /// As given at attach.
    pub owner: u64,
    pub place: Place,
    /// 0 when browsed: nothing is to be settled.
    pub acquisition: Acquisition,
    pub message: &'a M,
    /// Earlier deliveries that failed (AMQP 1.0 §3.2.1).
    pub delivery_count: u32,
    /// Acquisitions before this one. Not 0: redelivered.
    pub acquired_count: u32,
    /// AMQP 1.0 §3.2.1: nobody has acquired it before.
    pub first_acquirer: bool,
    pub expires_at: Option<u64>,
}

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// AMQP 1.0 §3.4.2: it leaves the queue.
    Accepted,
    /// AMQP 1.0 §3.4.3: it leaves the queue, as a dead letter.
    Rejected,
    /// AMQP 1.0 §3.4.4: back to its place, counts unchanged.
    Released,
    /// AMQP 1.0 §3.4.5: back to its place.
    Modified {
        /// The delivery-count rises.
        delivery_failed: bool,
        /// Never to this consumer again.
        undeliverable_here: bool,
    },
}

/// What a settlement met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// This acquisition had ended already (ack deadline, consumer closed, queue deleted). Counted, otherwise without effect.
    Late,
}

/// A message that left its queue for good.
#[derive(Debug)]
pub struct Spent<M> {
    pub message: Stored<M>,
    /// Where it was. Of one that is in memory and not kept ([`Message::is_kept`](crate::Message::is_kept)) nobody asks, and it may be left out.
    pub at: Option<(QueueId, Place)>,
}

/// A message that left its queue without being consumed, from a queue with `dead_letter`.
#[derive(Debug)]
pub struct DeadLetter<M> {
    pub queue: QueueId,
    /// Where it was.
    pub place: Place,
    pub message: Stored<M>,
    pub reason: DeadLetterReason,
    pub delivery_count: u32,
    pub acquired_count: u32,
}

/// Why it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterReason {
    Rejected,
    Expired,
    /// `deliveries_max` of the queue.
    DeliveriesMax,
    /// Dropped by `overflow`.
    Overflow,
    /// Its queue was deleted while a consumer held it: whether it was processed nobody knows.
    Deleted,
}
