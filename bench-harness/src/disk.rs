//! What does the same disk do without a broker? Writes of the same size, each synced in the same way, to the same kind of file.
//!
//! The file is written once before, and past the kernel's cache where the file system allows that, as a journal's are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};

use crate::clock::{Clock, Stopwatch, Timing};
use crate::error::BenchError;
use crate::sample::Sample;

/// What is written begins and ends at multiples of this.
const BLOCK: usize = 4096;
/// Bytes of the file, unless one write is larger.
const FILE_BYTES: usize = 64 << 20;
/// Writes by which the ways of syncing are compared, and those before them, which do not count.
const TRIED: usize = 100;
const TRIED_BEFORE: usize = 20;

/// How a write becomes durable; the broker has the same names for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Syncing {
    /// A write that is complete when it is durable.
    WriteThrough,
    /// A write and an fdatasync.
    Fdatasync,
}

impl Syncing {
    pub fn name(self) -> &'static str {
        match self {
            Syncing::WriteThrough => "write-through",
            Syncing::Fdatasync => "fdatasync",
        }
    }
}

/// A folder that goes with this.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one inside `within`.
    pub fn new(within: &Path) -> Result<Folder, BenchError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = within.join(format!("corelane-bench-{}-{count}", std::process::id()));
        fs::create_dir(&path).map_err(|error| BenchError::Disk { path: within.to_owned(), error })?;
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The quicker way of syncing in a folder.
pub fn quicker(within: &Path) -> Result<Syncing, BenchError> {
    let tried = |sync| -> Result<u64, BenchError> {
        let mut disk = Disk::new(within, BLOCK, sync)?;
        let clock = Clock::start();
        let mut times = Vec::with_capacity(TRIED);
        for _ in 0..TRIED_BEFORE + TRIED {
            let begun = clock.now_ns();
            disk.write()?;
            times.push(clock.now_ns() - begun);
        }
        let times = &mut times[TRIED_BEFORE..];
        times.sort_unstable();
        Ok(times[TRIED / 2])
    };
    let through = tried(Syncing::WriteThrough)?;
    Ok(if tried(Syncing::Fdatasync)? < through { Syncing::Fdatasync } else { Syncing::WriteThrough })
}

/// Writes of `bytes`, rounded up to whole blocks, one after the other. Each counts as `messages`.
pub fn run(
    within: &Path,
    bytes: usize,
    messages: f64,
    sync: Syncing,
    timing: &Timing,
) -> Result<Sample, BenchError> {
    let mut disk = Disk::new(within, bytes, sync)?;
    let clock = Clock::start();
    let mut stopwatch = Stopwatch::new(timing, clock.now_ns());
    let mut sample = Sample::default();
    let mut writes = 0_u64;
    loop {
        let begun = clock.now_ns();
        stopwatch.starts(begun);
        if stopwatch.is_over(begun) {
            sample.elapsed = stopwatch.elapsed(begun);
            sample.count = (writes as f64 * messages) as u64;
            return Ok(sample);
        }
        disk.write()?;
        if stopwatch.is_measuring() {
            sample.latencies.record(clock.now_ns() - begun);
            writes += 1;
        }
    }
}

struct Disk {
    folder: Folder,
    file: File,
    buffer: Vec<u8>,
    bytes: usize,
    at: usize,
    end: usize,
    sync: Syncing,
}

impl Disk {
    fn new(within: &Path, bytes: usize, sync: Syncing) -> Result<Disk, BenchError> {
        let folder = Folder::new(within)?;
        let bytes = bytes.max(1).next_multiple_of(BLOCK);
        let end = (FILE_BYTES / bytes).max(1) * bytes;
        let failed = |error| BenchError::Disk { path: within.to_owned(), error };
        let file = prewritten(&folder.path().join("file"), end).map_err(failed)?;
        Ok(Disk { folder, file, buffer: vec![7; bytes + BLOCK], bytes, at: 0, end, sync })
    }

    fn write(&mut self) -> Result<(), BenchError> {
        self.try_write().map_err(|error| BenchError::Disk { path: self.folder.path().to_owned(), error })
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.at + self.bytes > self.end {
            self.at = 0;
        }
        let start = self.buffer.as_ptr().align_offset(BLOCK).min(BLOCK);
        let bytes = &self.buffer[start..start + self.bytes];
        match self.sync {
            Syncing::WriteThrough => {
                let mut written = 0;
                while written < bytes.len() {
                    let (rest, at) = ([IoSlice::new(&bytes[written..])], (self.at + written) as u64);
                    written += pwritev2(&self.file, &rest, at, ReadWriteFlags::DSYNC)?;
                }
            }
            Syncing::Fdatasync => {
                self.file.write_all_at(bytes, self.at as u64)?;
                self.file.sync_data()?;
            }
        }
        self.at += self.bytes;
        Ok(())
    }
}

/// A file of which every byte was written once, past the cache if that goes.
fn prewritten(path: &Path, size: usize) -> io::Result<File> {
    let mut file = File::create_new(path)?;
    let zeros = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let count = left.min(zeros.len());
        file.write_all(&zeros[..count])?;
        left -= count;
    }
    file.sync_all()?;
    let direct = OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
    Ok(direct.unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn writes_are_timed_and_counted_as_the_messages_they_stand_for() {
        let within = std::env::temp_dir();
        let timing = Timing {
            warmup: Duration::from_millis(1),
            duration: Duration::from_millis(50),
            patience: Duration::from_secs(1),
        };
        for sync in [Syncing::WriteThrough, Syncing::Fdatasync] {
            let sample = run(&within, 5000, 10.0, sync, &timing).unwrap();
            assert_eq!(sample.count, sample.latencies.count() * 10);
            assert!(sample.count > 0);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let error = quicker(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere") && error.contains("--within"), "{error}");
    }
}
