//! How does a shard get back what it had? It is given every record that may still hold, in a second reading of the segments in use.

use super::error::StorageError;
use super::journals::ShardStorage;
use super::progress::Progress;
use super::scan::{part, read_segment};
use corelane_journal::{Position, Record, Recovered};
use corelane_shard::{Decisions, RestoreSummary, Shard};

/// What takes in what was there.
pub trait Restore {
    /// What it made of it.
    type Summary;

    fn begin_restore(&mut self, now: u64, recovered: Recovered, decisions: &Decisions);
    fn restore_record(&mut self, now: u64, position: Position, record: Record<'_>);
    fn end_restore(&mut self, now: u64) -> Self::Summary;
}

impl Restore for Shard {
    type Summary = RestoreSummary;

    fn begin_restore(&mut self, now: u64, recovered: Recovered, decisions: &Decisions) {
        Shard::begin_restore(self, now, recovered, decisions);
    }

    fn restore_record(&mut self, now: u64, position: Position, record: Record<'_>) {
        Shard::restore_record(self, now, position, record);
    }

    fn end_restore(&mut self, now: u64) -> RestoreSummary {
        Shard::end_restore(self, now)
    }
}

/// Gives everything in a shard's storage to the shard. `now` tells the time.
pub fn restore<S: Restore>(
    shard: &mut S,
    storage: ShardStorage,
    decisions: &Decisions,
    progress: &Progress,
    now: impl Fn() -> u64,
) -> Result<S::Summary, StorageError> {
    let ShardStorage { files, recovered, used, .. } = storage;
    let readers: Vec<_> =
        used.iter().filter_map(|number| Some((*number, recovered.journal.reader(*number)?))).collect();
    shard.begin_restore(now(), recovered, decisions);
    let mut buffer = part();
    for (number, reader) in readers {
        // What is damaged was told when it was read first.
        let time = now();
        read_segment(&files, number, &mut buffer, reader, progress, &mut |position, record| {
            shard.restore_record(time, position, record);
        })?;
    }
    Ok(shard.end_restore(now()))
}
