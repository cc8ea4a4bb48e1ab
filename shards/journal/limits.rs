//! How large is everything at most, and what happens when it is full?

/// What the disk is written in: batches begin at multiples of it and are padded to it.
pub const BLOCK: usize = 4096;

/// The format that is written, and the newest that is read. A segment of another one is refused.
pub const VERSION: u32 = 2;

/// What one journal is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub identity: Identity,
    /// This start of the broker; higher than that of every start before it.
    pub boot: u32,
    /// Bytes of a segment's file, a multiple of [`BLOCK`]. A batch for which that is not enough waits until the next one is larger.
    pub segment_bytes: u32,
    /// Bytes of a batch from which on it counts as full ([`Batch::is_full`](crate::Batch::is_full)); what is left goes into the next
    /// one. What is added then is still taken, so that what belongs together stays together.
    pub batch_bytes_max: u32,
    /// Segments of dead space that are left alone before any is cleaned.
    pub segments_idle_max: u32,
}

/// Whose journal it is. A segment that says something else is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Counts the ways in which queues were spread over shards.
    pub layout: u32,
    pub shard: u16,
    pub shards: u16,
}

impl Config {
    /// 64 MiB segments, 8 MiB batches.
    pub fn new(identity: Identity, boot: u32) -> Self {
        Config { identity, boot, segment_bytes: 64 << 20, batch_bytes_max: 8 << 20, segments_idle_max: 4 }
    }
}

/// Segments that are kept prepared beside the one that is written. Fewer: the driver is asked for more; none: no batch begins.
pub const SPARES_MAX: usize = 2;

/// Bytes of the buffer that is kept from one batch to the next, in parts of `batch_bytes_max`. Larger ones are given back.
pub(crate) const BUFFER_KEPT: usize = 2;
