//! What is in the journals of the layout in force?

use super::directory::DataDirectory;
use super::error::StorageError;
use super::layout::Layout;
use super::progress::{Bytes, Progress};
use super::scan::{Found, part, read_segment};
use super::segments::SegmentFiles;
use corelane_journal::{Config, Identity, Position, Record, Recovered};
use corelane_shard::Decisions;
use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

/// What one shard goes on with.
#[derive(Debug)]
pub struct ShardStorage {
    pub files: SegmentFiles,
    /// The segments in use, the oldest first.
    pub used: Vec<u32>,
    pub recovered: Recovered,
}

/// All journals of one layout.
pub(super) struct Journals {
    pub(super) boot: u32,
    pub(super) decisions: Decisions,
    pub(super) shards: Vec<ShardStorage>,
    /// Bytes of their files, those included in which nothing is needed.
    bytes: u64,
    /// How long it took to read them.
    time: Duration,
}

/// The journals of a directory that no broker uses, to look at.
#[derive(Debug)]
pub struct Inspected {
    pub shards: Vec<ShardStorage>,
    directory: DataDirectory,
}

impl Inspected {
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let directory = DataDirectory::open_to_read(path)?;
        let Journals { shards, .. } = read_journals(&directory, SEGMENT_BYTES, false)?;
        Ok(Inspected { shards, directory })
    }

    /// Of all segments in use.
    pub fn used_bytes(&self) -> u64 {
        used_bytes(&self.shards)
    }

    pub(super) fn layout(&self) -> Layout {
        self.directory.layout()
    }

    /// Gives `each` every record in the segments in use, with its shard, from the oldest segment of each to the newest.
    pub fn records(&self, each: &mut impl FnMut(usize, Position, Record<'_>)) -> Result<(), StorageError> {
        let progress = Progress::new("reading the journals", used_bytes(&self.shards));
        let mut buffer = part();
        for (index, ShardStorage { files, used, recovered }) in self.shards.iter().enumerate() {
            for number in used {
                let Some(reader) = recovered.journal.reader(*number) else { continue };
                read_segment(files, *number, &mut buffer, reader, &progress, &mut |position, record| {
                    each(index, position, record);
                })?;
            }
        }
        Ok(())
    }
}

/// What a journal that is only looked at is made with.
const SEGMENT_BYTES: u32 = 64 << 20;

/// Reads all journals of the layout in force, one thread for each.
pub(super) fn read_journals(
    directory: &DataDirectory,
    segment_bytes: u32,
    direct: bool,
) -> Result<Journals, StorageError> {
    let layout = directory.layout();
    let files: Vec<SegmentFiles> = (0..layout.shards)
        .map(|shard| SegmentFiles::new(layout.shard_folder(directory.path(), shard), segment_bytes, direct))
        .collect();
    for (shard, files) in files.iter().enumerate() {
        if fs::metadata(files.folder()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(StorageError::MissingFolder { path: files.folder().to_owned(), shard });
        }
    }
    let progress = Progress::new("reading the journals", files.iter().map(bytes_of_all).sum());
    let found = thread::scope(|scope| {
        let threads: Vec<_> = (0..layout.shards)
            .zip(&files)
            .map(|(shard, files)| {
                let identity = Identity { layout: layout.number, shard, shards: layout.shards };
                let progress = &progress;
                scope.spawn(move || Found::read(files, identity, progress))
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<Result<Vec<Found>, StorageError>>()
    })?;
    let boot = found.iter().map(|found| found.recovery.boot()).max().unwrap_or(0) + 1;
    let mut shards = Vec::new();
    for ((shard, files), found) in (0..layout.shards).zip(files).zip(found) {
        let identity = Identity { layout: layout.number, shard, shards: layout.shards };
        let config = Config { segment_bytes, ..Config::new(identity, boot) };
        let recovered = found.finish(config);
        let mut used =
            files.numbers().map_err(|error| StorageError::of("look through", files.folder(), error))?;
        used.retain(|number| recovered.journal.uses(*number));
        shards.push(ShardStorage { files, used, recovered });
    }
    let decisions = Decisions::of(shards.iter().map(|shard| &shard.recovered));
    Ok(Journals { boot, decisions, shards, bytes: progress.total(), time: progress.elapsed() })
}

impl Journals {
    /// One sentence about what was found. `None`: there was nothing to read.
    pub(super) fn summary(&self) -> Option<String> {
        if self.bytes == 0 {
            return None;
        }
        let Journals { shards, bytes, time, .. } = self;
        let queues: usize = shards.iter().map(|shard| shard.recovered.queues.len()).sum();
        let messages: usize = shards.iter().map(|shard| shard.recovered.messages.len()).sum();
        let damaged: usize = shards.iter().map(|shard| shard.recovered.end.damage.len()).sum();
        let torn = shards.iter().filter(|shard| shard.recovered.end.torn.is_some()).count();
        let stop = match (shards.iter().all(|shard| shard.recovered.clean), torn) {
            (true, 0) => "the broker had stopped in order".to_owned(),
            (_, 0) => "the broker had not stopped in order".to_owned(),
            (_, torn) => format!(
                "the broker had not stopped in order, and the last write of {torn} of {} shards was not complete",
                shards.len()
            ),
        };
        let damage = match damaged {
            0 => "everything can be read".to_owned(),
            1 => "1 place is damaged".to_owned(),
            more => format!("{more} places are damaged"),
        };
        Some(format!(
            "found {queues} queues and {messages} messages in {} of journals, read in {} ms; {stop}; {damage}",
            Bytes(*bytes),
            time.as_millis()
        ))
    }
}

fn bytes_of_all(files: &SegmentFiles) -> u64 {
    let numbers = files.numbers().unwrap_or_default();
    numbers.iter().map(|number| fs::metadata(files.path(*number)).map_or(0, |file| file.len())).sum()
}

pub(super) fn used_bytes(shards: &[ShardStorage]) -> u64 {
    let of = |shard: &ShardStorage| -> u64 {
        let length = |number: &u32| fs::metadata(shard.files.path(*number)).map_or(0, |file| file.len());
        shard.used.iter().map(length).sum()
    };
    shards.iter().map(of).sum()
}
