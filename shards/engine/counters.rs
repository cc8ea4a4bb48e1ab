//! What does the engine tell about itself?

use crate::ids::{ConsumerId, Place, QueueId};
use crate::properties::PauseReason;

/// The list of the consumer manager a consumer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerList {
    /// A browser that takes bytes; `caught_up`: it has seen everything and waits to be told.
    NonAcquiring {
        caught_up: bool,
    },
    NotInterested(PauseReason),
    /// Ready, and in line.
    Interested,
    /// Told that there is work, until a pull finds nothing.
    Notified,
}

impl ConsumerList {
    pub fn is_notified(self) -> bool {
        self == ConsumerList::Notified
    }

    /// Its owner keeps it from messages.
    pub fn is_kept_by_owner(self) -> bool {
        matches!(self, ConsumerList::NotInterested(reason) if !reason.is_of_engine())
    }
}

/// Why a consumer was last moved between lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    Attached,
    /// A message was enqueued.
    Published,
    /// The transaction of a message was committed.
    Committed,
    /// An entry came back to its place.
    Returned,
    /// A delayed entry has become available.
    HoldEnded,
    /// A group has lost its owner.
    GroupFreed,
    /// The consumer can take messages again.
    BecameReady,
    /// Its pause, and the reason is with the list.
    Paused,
    /// It was active already, or has become so.
    Promoted,
    /// Another notified consumer paused, closed or gave way.
    HandedOn,
    /// There is more to do than consumers notified.
    MoreWork,
    /// A scan has found an entry for its class.
    FoundByScan,
    /// A pull was asked for.
    Requested,
    /// A pull found nothing.
    FoundNothing,
    /// A ready consumer that comes before it has the same entry next: one of higher priority, or with fewer unsettled messages where
    /// that counts.
    GaveWay,
    /// It got a message, and another of its class comes before it now (`Dispatch::LeastOutstanding`).
    Served,
}

/// One consumer, as `explain` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerView {
    pub queue: QueueId,
    pub owner: u64,
    pub priority: i32,
    pub list: ConsumerList,
    /// Why it is in that list.
    pub cause: Cause,
    /// Since when, as far as the engine was told the time. Microseconds since the epoch.
    pub since: u64,
    /// Consumers with the same number share a class, and so a cursor.
    pub class: u32,
    /// Where it looks next: a browser's own cursor, else its class's. Nothing it could take lies before it, except what came back in
    /// groups it owns or was refused by others of its class.
    pub cursor: Place,
    /// Entries at its cursor or behind that it may come to take, as far as they are in reach: exact for a consumer without a filter. With a
    /// filter, those that are known to match, or while its class scans, all that are in reach: at most so many. For a browser, those it
    /// has not passed, whether they match or not. What waits in groups that it owns counts, too.
    pub lag: u64,
    /// Times it was moved to Notified (or, a browser, out of caught up).
    pub wake_count: u64,
    pub delivered_count: u64,
    pub unsettled_count: u32,
    /// Entries in the queue that it refused.
    pub refused_count: usize,
    /// Consumers that share its class, itself included.
    pub class_consumers: u32,
    /// Its class is still looking through what was in the queue before it.
    pub scanning: bool,
}

/// One entry, as `explain_entry` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryView {
    pub state: EntryState,
    /// The consumer its group belongs to now.
    pub group_owner: Option<ConsumerId>,
    pub delivery_count: u32,
    pub acquired_count: u32,
    pub expires_at: Option<u64>,
    /// Delayed until then, or until it expires.
    pub held_until: Option<u64>,
    /// Consumers that said it is undeliverable there.
    pub refused_count: usize,
}

/// What an entry is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    Available,
    /// Available, but another entry of its group comes first, or may come back from a transaction.
    BehindInGroup,
    /// Delayed.
    Held,
    Acquired(ConsumerId),
    /// Published inside a transaction that is open.
    Pending,
    /// Settled inside a transaction that is open, by this consumer; perhaps it is gone.
    Retired(ConsumerId),
}

/// Why a consumer does not get an entry, as far as the two are concerned; whether the consumer is ready is in its own view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It gets it when its turn comes.
    Takes,
    /// The entry is held or acquired, or a transaction has it.
    NotAvailable,
    /// `no_local`.
    OwnMessage,
    /// Its filter says no, or does not know.
    FilteredOut,
    /// It said "undeliverable here".
    Refused,
    /// The entry's group belongs to this other consumer.
    GroupOf(ConsumerId),
    /// Another entry of the group comes first, or may come back from a transaction.
    BehindInGroup,
    /// It browses, and has passed it.
    Seen,
    /// Its class has not come so far yet.
    Scanning,
}

/// How full a queue is. `available + acquired + held + pending + retired == messages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Depth {
    pub messages: u64,
    pub bytes: u64,
    pub available: u64,
    pub acquired: u64,
    /// Delayed: not available yet.
    pub held: u64,
    /// Published inside transactions that are open.
    pub pending: u64,
    /// Settled inside transactions that are open.
    pub retired: u64,
}

/// What happened in a queue since it was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueCounters {
    /// Those published inside transactions when these are committed.
    pub enqueued: u64,
    pub accepted: u64,
    pub rejected: u64,
    pub expired: u64,
    /// Back to its place by any outcome, a closed consumer or an ack deadline.
    pub returned: u64,
    /// `deliveries_max`.
    pub exhausted: u64,
    /// `overflow`.
    pub dropped: u64,
    /// A later message of the same last-value key has come.
    pub replaced: u64,
    /// Taken out by an operator, purged or removed, or since they could not be read any more.
    pub removed: u64,
    pub refused_publications: u64,
    pub ack_deadlines_missed: u64,
    /// Times that a consumer was moved to Notified.
    pub notified: u64,
}

/// What happened in the engine since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EngineCounters {
    /// Settlements whose acquisition had ended already.
    pub late_settlements: u64,
    /// Entries looked at by scans of filtered classes.
    pub scanned: u64,
    /// Consumers moved to Notified.
    pub notified: u64,
    /// Pulls that found nothing.
    pub empty_pulls: u64,
}
