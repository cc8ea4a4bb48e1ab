//! How do the engine's parts name each other, and how does the outside name them?
//!
//! Outside, an id is an index and the generation of its slot, so that a stale id is recognised and ignored. Inside, parts
//! use the bare index, because whatever can go away takes its references with it.

/// A queue of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId {
    pub index: u32,
    pub generation: u32,
}

/// A consumer of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId {
    pub index: u32,
    pub generation: u32,
}

/// Where an entry stands in its queue, for life: the level in the four bits on top, the sequence below.
///
/// Level 0 is the highest priority, so the order of places is the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub u64);

/// One acquisition of an entry. A settlement names it, so that a late one never settles the next holder's.
///
/// 0 is never drawn: browsed entries carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acquisition(pub u32);

/// Where a message came from (a connection), for consumers that do not want their own messages. 0 is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(pub u64);

const SEQUENCE_BITS: u32 = 60;

impl Place {
    pub(crate) const FIRST: Place = Place(0);
    /// Behind every entry there can be.
    pub(crate) const END: Place = Place(u64::MAX);

    pub(crate) fn new(level: usize, sequence: u64) -> Self {
        debug_assert!(level < 16 && sequence < 1 << SEQUENCE_BITS);
        Place((level as u64) << SEQUENCE_BITS | sequence)
    }

    pub fn next(self) -> Self {
        Place(self.0 + 1)
    }

    /// 0 for the highest priority.
    pub fn level(self) -> usize {
        (self.0 >> SEQUENCE_BITS) as usize
    }

    /// Counts the messages enqueued on this level of the queue.
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }
}
