//! How does a start get from a directory to what every shard goes on with?
//!
//! The directory is locked and looked at, everything in it is read, another number of shards, or a queue that belongs elsewhere now, is given a new layout; only then is
//! anything deleted.

use super::damage::{OnDamage, describe};
use super::directory::DataDirectory;
use super::error::StorageError;
use super::journals::{Journals, ShardStorage, read_journals, used_bytes};
use super::layout::Layout;
use super::progress::{Bytes, Progress};
use super::relayout::{Target, relayout};
use super::segments::SegmentFiles;
use super::sync::{Measure, Measured, SyncChoice, SyncError, SyncMode};
use corelane_journal::{Queue, Spare};
use corelane_shard::Decisions;
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{info, warn};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSettings {
    pub directory: PathBuf,
    /// Bytes of a segment; none: what suits the number of shards.
    pub segment_bytes: Option<u32>,
    /// Bytes of the file system that are left free: with less, no new file is made.
    pub disk_free_min: u64,
    pub sync: SyncChoice,
    pub on_damage: OnDamage,
}

/// A directory that is open, with everything that was in it.
#[derive(Debug)]
pub struct Opened {
    /// Locked for as long as this is there.
    pub directory: DataDirectory,
    pub sync: SyncMode,
    /// The number of this start.
    pub boot: u32,
    /// What the shards know together of transactions.
    pub decisions: Arc<Decisions>,
    /// By number.
    pub shards: Vec<ShardStorage>,
    /// Bytes of all segments that are in use.
    pub used_bytes: u64,
}

/// Bytes of the usual segment, and of the smallest that is chosen.
const SEGMENT_BYTES: u32 = 64 << 20;
const SEGMENT_BYTES_MIN: u32 = 16 << 20;

/// Shards for which segments are of the usual size.
const SHARDS_USUAL: u32 = 4;

/// Each shard has three segments at least, one that is written and two that are prepared: with many shards they are smaller, so that an
/// empty directory does not take many gigabytes.
fn segment_bytes(shards: u16) -> u32 {
    let times = u32::from(shards).div_ceil(SHARDS_USUAL).next_power_of_two();
    (SEGMENT_BYTES / times).max(SEGMENT_BYTES_MIN)
}

/// Opens a directory for so many shards. `home` says which of them a queue belongs to; `now` is the time in microseconds; `measure` tries
/// ways of syncing.
pub fn open(
    settings: &StorageSettings,
    shards: u16,
    now: u64,
    home: &dyn Fn(&Queue) -> usize,
    measure: Measure<'_>,
) -> Result<Opened, StorageError> {
    // What is said of it is said with its whole name.
    let path = std::path::absolute(&settings.directory)
        .map_err(|error| StorageError::of("find", &settings.directory, error))?;
    let mut directory = DataDirectory::open(&path, shards)?;
    warn_about_memory(directory.path());
    let (direct, sync) = choose_sync(directory.path(), settings.sync, measure)?;
    let segment_bytes = settings.segment_bytes.unwrap_or_else(|| segment_bytes(shards));
    let mut journals = read_journals(&directory, segment_bytes, direct)?;
    if let Some(summary) = journals.summary() {
        info!("{summary}");
    }
    report(directory.path(), &journals.shards, settings.on_damage)?;
    let Layout { number, shards: before } = directory.layout();
    if before != shards || has_moved(&journals.shards, home) {
        let why = match before == shards {
            true => "queues are to be on other shards than they were".to_owned(),
            false => format!("there were {before} shards and are to be {shards}"),
        };
        info!("{why}: everything is written anew; until that is done, the old stays in force");
        let layout = Layout { number: number + 1, shards };
        let target = Target { layout, segment_bytes, boot: journals.boot, now };
        let used_bytes = used_bytes(&journals.shards);
        let progress = Progress::new("writing everything anew", used_bytes);
        let written = relayout(
            &mut directory,
            journals.shards,
            &journals.decisions,
            target,
            home,
            &progress,
            &mut |_| Ok(()),
        );
        if written.is_err() && directory.layout() != layout {
            // The next start would do that, and the room may be wanted before. What went wrong first is what is told.
            let _ = fs::remove_dir_all(layout.folder(directory.path()));
        }
        written?;
        info!("written anew: {} in {} ms", Bytes(used_bytes), progress.elapsed().as_millis());
        journals = read_journals(&directory, segment_bytes, direct)?;
    }
    for shard in &mut journals.shards {
        settle(shard)?;
        shard.files.leave_free(settings.disk_free_min);
    }
    let Journals { boot, decisions, shards, .. } = journals;
    let used_bytes = used_bytes(&shards);
    Ok(Opened { directory, sync, boot, decisions: Arc::new(decisions), shards, used_bytes })
}

/// Whether a queue belongs to another shard than the one that has it.
fn has_moved(shards: &[ShardStorage], home: &dyn Fn(&Queue) -> usize) -> bool {
    let is_elsewhere =
        |index, shard: &ShardStorage| shard.recovered.queues.iter().any(|(_, queue)| home(queue) != index);
    shards.iter().enumerate().any(|(index, shard)| is_elsewhere(index, shard))
}

/// What is read from here on is durable, and what nobody needs is gone.
fn settle(shard: &mut ShardStorage) -> Result<(), StorageError> {
    let ShardStorage { files, used, recovered } = shard;
    files.make_folder().map_err(|error| StorageError::of("make", files.folder(), error))?;
    // The last batch may have been read from the kernel's cache.
    if let Some(newest) = used.last() {
        let path = files.path(*newest);
        let synced = File::open(&path).and_then(|file| file.sync_data());
        synced.map_err(|error| StorageError::of("sync", &path, error))?;
    }
    let damaged: Vec<u32> = recovered.end.damage.iter().map(|damage| damage.segment).collect();
    files.keep(|number| recovered.journal.uses(number), damaged)?;
    Ok(())
}

/// What is not as it was written.
fn report(path: &Path, shards: &[ShardStorage], on_damage: OnDamage) -> Result<(), StorageError> {
    let mut count = 0;
    for (index, shard) in shards.iter().enumerate() {
        if let Some((segment, offset)) = shard.recovered.end.torn {
            info!(
                shard = index,
                "the last write was not complete when the broker stopped, and nobody was told that it was: segment {segment}, byte {offset}"
            );
        }
        for damage in &shard.recovered.end.damage {
            count += 1;
            warn!("{}", describe(damage, index as u16, &shard.files, &shard.recovered));
        }
    }
    if count > 0 && on_damage == OnDamage::Stop {
        return Err(StorageError::Damaged { path: path.to_owned(), count });
    }
    Ok(())
}

/// What a file system in memory is told by (`statfs`).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

fn warn_about_memory(path: &Path) {
    let kind = rustix::fs::statfs(path).map_or(0, |found| found.f_type);
    if IN_MEMORY.contains(&kind) {
        warn!(
            "{} is on a file system in memory (tmpfs): everything in it is lost when the machine stops. Name a directory on \
             a disk with --data-dir",
            path.display()
        );
    }
}

/// Where a few writes are tried. Deleted afterwards; a start that was killed leaves it to the next.
const TRIAL: &str = "layout-0";

/// Whether files are written past the kernel's cache, and how they are synced.
fn choose_sync(
    path: &Path,
    choice: SyncChoice,
    measure: Measure<'_>,
) -> Result<(bool, SyncMode), StorageError> {
    let trial = path.join(TRIAL);
    let failed = |error| StorageError::of("write to", &trial, error);
    let clear = || match fs::remove_dir_all(&trial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    };
    clear()?;
    DirBuilder::new().mode(0o700).create(&trial).map_err(failed)?;
    let chosen = try_direct(&trial).map_err(failed).and_then(|direct| {
        if !direct {
            warn!(
                "the file system of {} has no direct I/O: what is written goes through the kernel's cache, which costs \
                 memory and time",
                path.display()
            );
        }
        choose_mode(path, &trial, direct, choice, measure).map(|mode| (direct, mode))
    });
    clear()?;
    chosen
}

fn choose_mode(
    path: &Path,
    trial: &Path,
    direct: bool,
    choice: SyncChoice,
    measure: Measure<'_>,
) -> Result<SyncMode, StorageError> {
    let asked = choice.mode();
    let measured = match asked {
        Some(mode) => measure(trial, direct, &[mode]),
        None => measure(trial, direct, &SyncMode::ALL),
    };
    let mut figures = Vec::new();
    let mut best: Option<Measured> = None;
    let mut first_error = None;
    for result in measured {
        match result {
            Ok(measured) => {
                figures.push(format!("{} {} µs", measured.mode, measured.quartile.as_micros()));
                if best.is_none_or(|best| measured.quartile < best.quartile) {
                    best = Some(measured);
                }
            }
            Err(SyncError { mode, error }) => {
                figures.push(format!("{mode}: {error}"));
                first_error.get_or_insert((mode, error));
            }
        }
    }
    match (best, first_error) {
        (Some(best), _) => {
            let path = path.display();
            info!(
                "keeps durable messages in {path}, synced by {} ({} a small write)",
                best.mode,
                figures.join(", ")
            );
            Ok(best.mode)
        }
        (None, Some((mode, error))) => Err(match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP | Errno::INVAL) if asked.is_some() => {
                StorageError::Sync { path: path.to_owned(), mode, error }
            }
            _ => StorageError::of("write to", path, error),
        }),
        (None, None) => unreachable!("there is a way to sync, or an error"),
    }
}

/// Whether a file can be written past the kernel's cache.
fn try_direct(folder: &Path) -> io::Result<bool> {
    let mut files = SegmentFiles::new(folder.to_owned(), corelane_journal::BLOCK as u32, true);
    match files.prepare(Spare { number: 0, bytes: corelane_journal::BLOCK as u32 }) {
        Ok(_) => files.discard(0).map(|()| true),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_shards_have_smaller_segments() {
        let check = |shards: u16, mib: u32| assert_eq!(segment_bytes(shards), mib << 20, "{shards} shards");
        check(1, 64);
        check(4, 64);
        check(5, 32);
        check(8, 32);
        check(9, 16);
        check(64, 16);
        check(1024, 16);
    }
}
