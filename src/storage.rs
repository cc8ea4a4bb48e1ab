//! How does what a broker promised lie in a directory, and how does it come back?
//!
//! ```text
//! DIR/lock                  held by the process that uses the directory
//! DIR/backup.socket         through it that process is asked for a backup
//! DIR/layout                what is in force: format, number of the layout, shards
//! DIR/layout-1/shard-0/0000000001.segment
//! ```
//!
//! Each shard has a journal of its own in a folder of its own, whose segments are files. A start reads all of them, on a thread for each
//! shard; another number of shards, or another home of a queue, makes a new layout of them first.
//!
//! Invariants:
//! - one process at a time, for as long as it lives;
//! - what is in force changes in one step, by a rename: a process that dies at any point leaves the old or the new;
//! - what cannot be read is told, and left where somebody can look at it;
//! - a file that is not ours is not touched.
//!
//! Left out: what stands in the files (`corelane_journal`), what a shard makes of it, and the writes of a running shard, which its
//! pump makes through its ring (`driver`).

mod backup;
mod damage;
mod directory;
mod error;
mod helper;
mod journals;
mod layout;
mod open;
mod progress;
mod relayout;
mod restore;
mod scan;
mod segments;
mod sync;

#[cfg(test)]
mod directory_tests;
#[cfg(test)]
mod relayout_tests;
#[cfg(test)]
mod scan_tests;
#[cfg(test)]
mod support;

pub use backup::{BackupError, BackupSource, BackupTarget};
pub use damage::{OnDamage, describe};
pub use directory::{DataDirectory, SOCKET};
pub use error::StorageError;
pub use helper::{Answer, Helper};
pub use journals::{Inspected, ShardStorage};
pub use layout::{FORMAT, Layout};
pub use open::{Opened, StorageSettings, open};
pub use progress::{Bytes, Progress};
pub use restore::{Restore, restore};
pub use scan::{Found, scan_segments};
pub use segments::{SegmentFiles, aligned};
pub use sync::{Measure, Measured, SyncChoice, SyncError, SyncMode, SyncThread, Synced};
