//! What can be said in the journal?
//!
//! A message is named by its queue's uid and its place; a uid is one life of a queue, and neither is ever used again. So what
//! exists follows from the set of all records, whatever their order and however often one is repeated:
//!
//! `messages = Message − Removed − QueueDeleted − those of transactions without a commit`
//!
//! of a message's counts the largest are right, and of equal ones the last, of a queue's definitions the one of the highest version.
//!
//! There are *things* (queues, messages, prepared and decided transactions), which are there until the journal is told otherwise,
//! and *amendments*, which say something about things in the segments that they name, and are needed while those segments are there.
//!
//! Times are microseconds since 1970, as the owner counts them. Each struct is the layout of its archived form too: adding a
//! field is a new [`VERSION`](crate::VERSION).

use crate::buffer::Buffer;
use bytes::Bytes;
use rkyv::rancor::Failure;
use rkyv::{Archive, Deserialize, Serialize};

/// A record as it is read. What it holds is its own, save a message's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Queue(Queue),
    QueueDeleted(QueueDeleted),
    Message(Message, &'a [u8]),
    Removed(Removed),
    Returned(Returned),
    Prepared(Prepared),
    Decided(Decided),
    Done(Done),
    Started(Started),
    Stopped(Stopped),
    Manifest(Manifest),
}

/// A queue's definition. A thing: of several the one of the highest version holds.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub uid: u64,
    pub version: u64,
    /// The segment that was written when the queue was made ([`Journal::segment`](crate::Journal::segment)): no older one says
    /// anything of it.
    pub since: u32,
    /// What kind of queue, as the owner counts them.
    pub kind: u8,
    pub name: String,
    /// Opaque here.
    pub properties: Bytes,
    /// Opaque here.
    pub subscription: Bytes,
}

/// A queue and all its messages are gone. Amends every segment from `since` to `until`, both included.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct QueueDeleted {
    pub uid: u64,
    pub since: u32,
    pub until: u32,
}

/// A message, followed by its payload. A thing.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub uid: u64,
    /// Rises within a queue, apart from the [`LEVEL_BITS`] on top.
    pub place: u64,
    pub enqueued_at: u64,
    /// 0: never.
    pub expires_at: u64,
    /// 0: not held.
    pub held_until: u64,
    /// The message format, as the owner counts them.
    pub format: u32,
    pub delivery_count: u32,
    pub acquired_count: u32,
    pub priority: u8,
    /// What few messages have.
    #[rkyv(with = rkyv::with::Niche)]
    pub details: Option<Box<Details>>,
}

/// A message whose uid has this bit is there for the boot that wrote it only: it has left memory, and a start takes no notice of it. What
/// the rest of the uid says is the owner's affair.
pub const TRANSIENT: u64 = 1 << 63;

/// The bits on top of a place that are no part of its sequence.
pub const LEVEL_BITS: u32 = 4;

/// What few messages have.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Why it has left its queue, as the owner counts reasons: it is on its way to where dead letters go. 0: it has not.
    pub death: u8,
    /// Why and where it died before. Opaque here.
    pub deaths: Bytes,
    /// What outcomes added to it. Opaque here.
    pub annotations: Bytes,
    /// Where it was before it came here from another shard: it is not there any more, as long as it is here.
    pub origin: Option<Origin>,
    /// It exists if this transaction is committed.
    pub transaction: Option<TransactionName>,
}

/// Where a message was before.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    pub uid: u64,
    pub place: u64,
}

/// Messages are gone, for ever. Amends the one segment in which their records lie.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    pub uid: u64,
    pub segment: u32,
    pub places: Vec<Places>,
}

/// Places from `first` to `last`, both included.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    pub first: u64,
    pub last: u64,
}

/// A message came back to its queue. Amends the segment in which its record lies; holds if its `acquired_count` is the largest, and of
/// several with the same one if it is the last.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    pub uid: u64,
    pub place: u64,
    pub segment: u32,
    pub delivery_count: u32,
    pub acquired_count: u32,
    /// 0: not held.
    pub held_until: u64,
    /// What outcomes added to it. Opaque here.
    pub annotations: Bytes,
    /// As in [`Details`]: it did not come back, but died.
    pub death: u8,
}

/// A transaction's name: never used twice. `shard` is where it is decided.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionName {
    pub boot: u32,
    pub shard: u16,
    pub number: u64,
}

/// This shard will commit if the deciding one says so. A thing: open until [`Done`]. Its messages stand before it.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub transaction: TransactionName,
    /// Queue and place of what a commit removes. It does so with [`Removed`] of its own, beside [`Done`].
    pub removed: Vec<(u64, u64)>,
    /// What returns when it is done.
    pub returned: Vec<Returned>,
}

/// A transaction is committed. A thing, until the owner knows that all of `participants` are done.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub transaction: TransactionName,
    pub participants: Vec<u16>,
}

/// This shard has done what was decided. Amends the segments in which [`Prepared`] and the transaction's messages lie.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub transaction: TransactionName,
    pub committed: bool,
    pub segments: Vec<u32>,
}

/// The first record of a start of the broker.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub boot: u32,
    pub shards: u16,
    pub time: u64,
}

/// The last record of a stop in order: if nothing stands behind it, all counts are exact.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    pub time: u64,
}

/// Which segments there are beside the one that it stands in and newer ones. The last one holds; what it does not name is free.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub boot: u32,
    /// Higher than the sequence of every place that was ever used.
    pub sequence_end: u64,
    /// Higher than every uid that was ever used.
    pub uid_end: u64,
    /// The first segment that was written after the last stop that was not in order.
    pub certain_from: u32,
    pub segments: Vec<SegmentEnd>,
}

/// A segment, and the number after that of its last batch.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    pub segment: u32,
    pub batch_end: u64,
}

/// Where a record lies. `offset` and `length` are in bytes, the record's header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub segment: u32,
    pub offset: u32,
    pub length: u32,
}

/// The byte that says what a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Queue = 1,
    QueueDeleted = 2,
    Message = 3,
    Removed = 4,
    Returned = 5,
    Prepared = 6,
    Decided = 7,
    Done = 8,
    Started = 9,
    Stopped = 10,
    Manifest = 11,
}

/// The metadata of a record: what is archived.
pub(crate) trait Metadata {
    const KIND: Kind;
    fn archive(&self, into: &mut Buffer);
}

macro_rules! metadata {
    ($($name:ident),*) => {
        $(impl Metadata for $name {
            const KIND: Kind = Kind::$name;
            fn archive(&self, into: &mut Buffer) {
                rkyv::api::high::to_bytes_in::<_, Failure>(self, into).expect("memory takes what is written to it");
            }
        })*

        /// Reads the metadata of a record whose checksum is right. `None`: it makes no sense all the same.
        pub(crate) fn decode<'a>(kind: u8, metadata: &[u8], payload: &'a [u8]) -> Option<Record<'a>> {
            if kind == Kind::Message as u8 {
                return Some(Record::Message(rkyv::from_bytes::<_, Failure>(metadata).ok()?, payload));
            }
            if !payload.is_empty() {
                return None;
            }
            $(if kind == Kind::$name as u8 {
                return Some(Record::$name(rkyv::from_bytes::<_, Failure>(metadata).ok()?));
            })*
            None
        }
    };
}

metadata!(Queue, QueueDeleted, Removed, Returned, Prepared, Decided, Done, Started, Stopped, Manifest);

impl Metadata for Message {
    const KIND: Kind = Kind::Message;
    fn archive(&self, into: &mut Buffer) {
        rkyv::api::high::to_bytes_in::<_, Failure>(self, into).expect("memory takes what is written to it");
    }
}
