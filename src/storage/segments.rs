//! How are the segments of one shard files?
//!
//! A segment's file is made under another name, its blocks allocated and written once, and synced, before it gets its own: so that a
//! write to it later moves bytes and nothing else. For a batch that is larger than the usual segment it is made longer first: what is written
//! has its room on the disk, or is not begun. A freed file keeps its name until another segment needs it.
//!
//! Invariants: a file that bears a segment's name is whole; a directory is synced before anybody relies on a name in it.

use super::error::StorageError;
use super::layout::sync_directory;
use super::progress::Bytes;
use corelane_journal::{BLOCK, SPARES_MAX, Spare};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, statvfs};
use rustix::io::Errno;
use std::fmt::Write;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes that are written or read at once where nobody waits for them.
pub(super) const PART_BYTES: usize = 1 << 20;

/// Freed files that are kept for other segments. More are deleted.
const RECYCLED_MAX: usize = SPARES_MAX;

const ENDING: &str = ".segment";
const ENDING_NEW: &str = ".new";
const ENDING_DAMAGED: &str = ".damaged";

/// The folder of a shard's segments.
#[derive(Clone, Debug)]
pub struct SegmentFiles {
    folder: PathBuf,
    segment_bytes: u32,
    free_min: u64,
    /// Past the kernel's cache.
    direct: bool,
    /// Freed, of the usual size.
    recycled: Vec<u32>,
    /// Not everything in them could be read: they are put aside when they are freed.
    damaged: Vec<u32>,
}

impl SegmentFiles {
    pub fn new(folder: PathBuf, segment_bytes: u32, direct: bool) -> Self {
        SegmentFiles { folder, segment_bytes, free_min: 0, direct, recycled: Vec::new(), damaged: Vec::new() }
    }

    /// From now on no new file is made that would leave less room than this on the disk.
    pub(super) fn leave_free(&mut self, bytes: u64) {
        self.free_min = bytes;
    }

    /// Whether there is room for so much more.
    fn check_room(&self, bytes: u64) -> io::Result<()> {
        let disk = statvfs(&self.folder)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let wanted = self.free_min.saturating_add(bytes);
        // One of no size is bound by something else, and does not say by what.
        if free >= wanted || disk.f_blocks == 0 {
            return Ok(());
        }
        let mut text = format!("{} are free, and a file takes {}", Bytes(free), Bytes(bytes));
        if self.free_min > 0 {
            // Writing to a string does not fail.
            let _ = write!(text, "; {} are to be left to others (--disk-free-min)", Bytes(self.free_min));
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, text))
    }

    /// Makes the folder if there is none, and deletes what a process that died did not finish.
    pub(super) fn make_folder(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == &ENDING_NEW[1..]) {
                fs::remove_file(path)?;
            }
        }
        sync_directory(&self.folder)?;
        self.folder.ancestors().skip(1).take(2).try_for_each(sync_directory)
    }

    /// Whether something was put aside here.
    pub(super) fn has_damaged(&self) -> bool {
        let ending = |path: PathBuf| path.extension().is_some_and(|ending| ending == &ENDING_DAMAGED[1..]);
        fs::read_dir(&self.folder)
            .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| ending(entry.path()))))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:010}{ENDING}"))
    }

    /// The segments whose files are there, the oldest first.
    pub fn numbers(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(ENDING)).map(str::parse::<u32>);
            numbers.extend(number.and_then(Result::ok));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes the file of a segment, and answers it open for writing. Takes as long as writing all of it takes. One that is longer than usual is
    /// there already.
    pub fn prepare(&mut self, spare: Spare) -> io::Result<File> {
        let path = self.path(spare.number);
        if spare.bytes > self.segment_bytes {
            return self.lengthen(&path, spare.bytes.into());
        }
        match self.recycled.pop() {
            Some(old) => fs::rename(self.path(old), &path)?,
            None => {
                self.check_room(self.segment_bytes.into())?;
                let new = path.with_extension(&ENDING_NEW[1..]);
                let made = self.make(&new).and_then(|()| fs::rename(&new, &path));
                if made.is_err() {
                    let _ = fs::remove_file(&new);
                }
                made?;
            }
        }
        sync_directory(&self.folder)?;
        self.open_to_write(&path)
    }

    /// Segments that hold nothing any more. What cannot be deleted, or put aside, stays, and is looked at again by the next start.
    pub fn free(&mut self, numbers: &[u32]) -> io::Result<()> {
        let mut result = Ok(());
        for number in numbers {
            let path = self.path(*number);
            if self.damaged.contains(number) {
                if let Err(error) = put_aside(&path) {
                    result = Err(error);
                }
                continue;
            }
            let usual = fs::metadata(&path).is_ok_and(|file| file.len() == u64::from(self.segment_bytes));
            if usual && self.recycled.len() < RECYCLED_MAX {
                self.recycled.push(*number);
            } else if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                result = Err(error);
            }
        }
        result
    }

    /// Deletes a file.
    pub(super) fn discard(&mut self, number: u32) -> io::Result<()> {
        fs::remove_file(self.path(number))
    }

    /// After recovery: frees the files of all segments but those that are used. The damaged ones are put aside, now or when they are
    /// freed.
    pub(super) fn keep(
        &mut self,
        is_used: impl Fn(u32) -> bool,
        damaged: Vec<u32>,
    ) -> Result<(), StorageError> {
        self.damaged = damaged;
        let failed = |error| StorageError::of("look through", &self.folder, error);
        let mut numbers = self.numbers().map_err(failed)?;
        numbers.retain(|number| !is_used(*number));
        self.free(&numbers).map_err(|error| StorageError::of("delete segments in", &self.folder, error))
    }

    /// For reading from one end to the other.
    pub(super) fn open_to_read(&self, number: u32) -> io::Result<File> {
        let file = File::open(self.path(number))?;
        // Advice that is not taken changes nothing.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        let _ = fadvise(&file, 0, None, Advice::WillNeed);
        Ok(file)
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        let file = self.options().create(true).truncate(true).open(path)?;
        let length = u64::from(self.segment_bytes);
        allocate(&file, 0, length)?;
        write_zeros(&file, 0, length)?;
        file.sync_all()
    }

    /// Nothing was written in it. Its new blocks are not written before the one batch that they are for is, if they can be had without.
    fn lengthen(&mut self, path: &Path, length: u64) -> io::Result<File> {
        let file = self.open_to_write(path)?;
        let before = file.metadata()?.len();
        let more = length.saturating_sub(before);
        if self.check_room(more).is_err() {
            // Those that are kept for others are too short for this one.
            let kept = std::mem::take(&mut self.recycled);
            kept.into_iter().try_for_each(|number| self.discard(number))?;
            self.check_room(more)?;
        }
        let made = match allocate(&file, before, more) {
            Ok(true) => file.sync_all(),
            Ok(false) => write_zeros(&file, before, length).and_then(|()| file.sync_all()),
            Err(error) => Err(error),
        };
        if made.is_err() {
            // What there was room for is others'.
            let _ = file.set_len(before);
        }
        made.map(|()| file)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<File> {
        self.options().open(path)
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        let flags = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        options.read(true).write(true).mode(0o600).custom_flags(flags.bits().cast_signed());
        options
    }
}

/// Takes room on the disk for so many bytes more. False: the file system has no such thing.
fn allocate(file: &File, from: u64, length: u64) -> io::Result<bool> {
    match fallocate(file, FallocateFlags::empty(), from, length) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; PART_BYTES + BLOCK];
    let zeros = aligned(&zeros);
    let mut at = from;
    while at < to {
        let part = zeros.len().min((to - at) as usize);
        file.write_all_at(&zeros[..part], at)?;
        at += part as u64;
    }
    Ok(())
}

/// Keeps what cannot be read where somebody can look at it.
fn put_aside(path: &Path) -> io::Result<()> {
    let aside = path.with_extension(&ENDING_DAMAGED[1..]);
    fs::rename(path, &aside)?;
    tracing::warn!("not everything in this segment could be read; it was put aside as {}", aside.display());
    Ok(())
}

/// The part of `bytes`, one [`BLOCK`] shorter, that begins at a multiple of it.
pub fn aligned(bytes: &[u8]) -> &[u8] {
    let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
    &bytes[start..bytes.len() - BLOCK + start]
}

/// Reads from `offset` on until `into` is full or the file ends. Answers how much that is.
pub(super) fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
