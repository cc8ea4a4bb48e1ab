//! How are the segments of a shard read from one end to the other?
//!
//! Invariant: what the disk does not give is told to the reader block by block, and the rest is read all the same.

use super::error::StorageError;
use super::progress::Progress;
use super::segments::{PART_BYTES, SegmentFiles, read_at};
use corelane_journal::{
    BLOCK, Config, End, Feed, Identity, Position, Record, Recovered, Recovery, Refusal, Scan, Scanned,
    SegmentReader,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;

/// What the scan of a shard found.
#[derive(Debug)]
pub struct Found {
    pub recovery: Recovery,
    pub scanned: Scanned,
}

impl Found {
    /// Reads everything that a shard has.
    pub fn read(files: &SegmentFiles, identity: Identity, progress: &Progress) -> Result<Self, StorageError> {
        let mut recovery = Recovery::new();
        let numbers = files.numbers().unwrap_or_default();
        let mut begun = BTreeSet::new();
        let scanned = scan_segments(files, identity, progress, &mut |position, record| {
            if begun.last() != Some(&position.segment) && begun.insert(position.segment) && begun.len() > 1 {
                // As many as there were in those that were read, with some more.
                let in_one = recovery.message_count() / (begun.len() - 1);
                recovery.expect((in_one + in_one / 8) * numbers.len());
            }
            recovery.handle(position, record);
        })?;
        Ok(Found { recovery, scanned })
    }

    pub fn finish(self, config: Config) -> Recovered {
        self.recovery.finish(self.scanned, config)
    }
}

/// Gives `each` the records of all segments, from the newest segment to the oldest.
pub fn scan_segments(
    files: &SegmentFiles,
    identity: Identity,
    progress: &Progress,
    each: &mut impl FnMut(Position, Record<'_>),
) -> Result<Scanned, StorageError> {
    let mut scan = Scan::new(identity);
    let mut buffer = part();
    let numbers = files.numbers().map_err(|error| StorageError::of("look through", files.folder(), error))?;
    for number in numbers.into_iter().rev() {
        let path = files.path(number);
        let refused = |refusal| StorageError::Segment { path: path.clone(), refusal };
        if !scan.begin(number) {
            progress.advance(path.metadata().map_or(0, |file| file.len()));
            continue;
        }
        let opened = files.open_to_read(number).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| StorageError::of("open", &path, error))?;
        let read = read_parts(&path, (&file, length), &mut buffer, |part| {
            progress.advance(part.length());
            match part {
                Part::Bytes(bytes) => scan.feed(bytes, each),
                Part::Unreadable(length) => scan.feed_unreadable(length, each),
            }
        });
        let left = length - read.map_err(refused)?;
        progress.advance(left);
        scan.end(each).map_err(refused)?;
    }
    Ok(scan.finish())
}

/// Memory for what is read at once. One is used for many segments: to get it from the system may cost more than to read into it.
pub(super) fn part() -> Vec<u8> {
    vec![0; PART_BYTES]
}

/// Gives `each` the records of one segment, which is read through `buffer`, and answers how it ended.
pub(super) fn read_segment(
    files: &SegmentFiles,
    number: u32,
    buffer: &mut [u8],
    mut reader: SegmentReader,
    progress: &Progress,
    each: &mut impl FnMut(Position, Record<'_>),
) -> Result<End, StorageError> {
    let path = files.path(number);
    let refused = |refusal| StorageError::Segment { path: path.clone(), refusal };
    let opened = files.open_to_read(number).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|error| StorageError::of("open", &path, error))?;
    let read = read_parts(&path, (&file, length), buffer, |part| {
        progress.advance(part.length());
        match part {
            Part::Bytes(bytes) => reader.feed(bytes, each),
            Part::Unreadable(length) => reader.feed(&vec![0; length as usize], each),
        }
    });
    progress.advance(length - read.map_err(refused)?);
    reader.finish(each).map_err(refused)
}

enum Part<'a> {
    Bytes(&'a [u8]),
    /// So many bytes that the disk does not give.
    Unreadable(u32),
}

impl Part<'_> {
    fn length(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Unreadable(length) => u64::from(*length),
        }
    }
}

/// Feeds a file until it ends or enough was read. Answers how much that was.
fn read_parts(
    path: &Path,
    (file, length): (&File, u64),
    buffer: &mut [u8],
    mut feed: impl FnMut(Part<'_>) -> Result<Feed, Refusal>,
) -> Result<u64, Refusal> {
    let mut at = 0;
    let mut step = PART_BYTES;
    while at < length {
        // After an error block by block to the end of the part, so that no more is lost than must be.
        let end = step.min(PART_BYTES - (at % PART_BYTES as u64) as usize);
        let want = end.min((length - at) as usize);
        let part = match read_at(file, &mut buffer[..want], at) {
            // Somebody has cut it off meanwhile.
            Ok(0) => break,
            Ok(count) => Part::Bytes(&buffer[..count]),
            Err(error) if want > BLOCK => {
                tell(path, at, &error);
                step = BLOCK;
                continue;
            }
            Err(_) => Part::Unreadable(want as u32),
        };
        at += part.length();
        if at.is_multiple_of(PART_BYTES as u64) {
            step = PART_BYTES;
        }
        if feed(part)? == Feed::Done {
            break;
        }
    }
    Ok(at)
}

fn tell(path: &Path, at: u64, error: &io::Error) {
    tracing::warn!("{} cannot be read at byte {at}: {error}", path.display());
}
