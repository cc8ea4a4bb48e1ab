//! How does one shard remember what it promised, and what is left of it after a crash?
//!
//! The format and the state machine of its journal: what can be said ([`Record`]), how it lies on the disk (`format`), when it is
//! durable ([`Journal`], [`Batch`]), which files are still needed (`segments`), and how a start reads them ([`Scan`], [`Recovery`]).
//! It is given bytes and gives bytes; files, the time and chance are the driver's, and queues and messages are the shard's.
//!
//! ```text
//!   say → Ticket        begin_batch → Batch → finish → Write ──→ the driver writes and syncs
//!                                                                     │
//!   completed ≥ Ticket  ←───────────────────────────── handle_synced ─┘
//! ```
//!
//! Invariants:
//! - what was completed is found again, once; what was removed and completed is not;
//! - a batch that was not completed is found as a whole or not at all;
//! - what was completed and cannot be read is reported, and costs no more than itself;
//! - the live part of a segment can always be written again elsewhere, so no segment stays because of a few old messages.

mod batch;
mod buffer;
mod format;
mod journal;
mod limits;
mod record;
mod recovery;
mod scan;
mod segments;

#[cfg(test)]
mod format_tests;

pub use batch::{Batch, Placed, Removal, Write};
pub use journal::{Journal, Spare, Ticket};
pub use limits::{BLOCK, Config, Identity, SPARES_MAX, VERSION};
pub use record::{
    Decided, Details, Done, LEVEL_BITS, Manifest, Message, Origin, Places, Position, Prepared, Queue,
    QueueDeleted, Record, Removed, Returned, SegmentEnd, Started, Stopped, TRANSIENT, TransactionName,
};
pub use recovery::{LastReturn, LiveMessage, Recovered, Recovery, Transaction};
pub use scan::{Damage, End, Feed, Lost, Refusal, Scan, Scanned, SegmentReader};
