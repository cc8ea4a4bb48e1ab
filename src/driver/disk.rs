//! How does a shard's pump write its journal?
//!
//! Through the ring, one write and its sync at a time; or on a thread, if that was found to be quicker. What takes long is asked of the
//! shard's helper. A segment's file is opened where it is made, and closed when the next one is written.
//!
//! Invariants:
//! - a write is answered once, when it is synced as a whole or has failed; a failure is final: nothing is tried again;
//! - nothing here waits.

use super::ring::{Ring, Through};
use crate::doorbell::Doorbell;
use crate::storage::{Answer, Helper, SegmentFiles, SyncMode, SyncThread, Synced};
use corelane_journal::{Spare, Write};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A shard's files, and how they are synced.
#[derive(Debug)]
pub struct Disk {
    helper: Helper,
    mode: Mode,
    /// Of segments that are prepared, and of the one that is written.
    files: BTreeMap<u32, Arc<File>>,
    writing: Writing,
}

#[derive(Debug)]
enum Mode {
    Ring(Through),
    Thread(SyncThread),
}

#[derive(Debug)]
enum Writing {
    Nothing,
    /// In the ring, from this byte of the buffer on.
    InRing {
        file: Arc<File>,
        from: usize,
    },
    /// The write is over, its sync is not.
    Syncing {
        file: Arc<File>,
        from: usize,
        write: Write,
        written: Result<usize, Errno>,
    },
    OnThread,
}

impl Disk {
    /// Starts the threads beside the shard; they run where the calling one may.
    pub fn start(index: usize, files: SegmentFiles, mode: SyncMode, bell: Doorbell) -> io::Result<Self> {
        let mode = match mode {
            SyncMode::WriteThrough => Mode::Ring(Through::Write),
            SyncMode::Fdatasync => Mode::Ring(Through::Fdatasync),
            SyncMode::Thread => Mode::Thread(SyncThread::start(&format!("sync-{index}"), bell.clone())?),
        };
        let helper = Helper::start(&format!("files-{index}"), files, bell)?;
        Ok(Disk { helper, mode, files: BTreeMap::new(), writing: Writing::Nothing })
    }

    pub(super) fn write(&mut self, ring: &mut Ring, write: Write) {
        assert!(self.is_quiet(), "one write at a time");
        // What is written goes to a newer segment sooner or later; older ones are never written again.
        self.files = self.files.split_off(&write.segment);
        let file = self.files.get(&write.segment).expect("what is written has been prepared").clone();
        match &self.mode {
            Mode::Ring(through) => {
                ring.write(file.as_fd(), write, 0, *through);
                self.writing = Writing::InRing { file, from: 0 };
            }
            Mode::Thread(thread) => {
                thread.write(file, write);
                self.writing = Writing::OnThread;
            }
        }
    }

    pub(super) fn prepare(&mut self, spare: Spare) {
        self.helper.prepare(spare);
    }

    pub(super) fn read(&mut self, number: u32, offset: u64) {
        self.helper.read(number, offset);
    }

    pub(super) fn read_bodies(&mut self, number: u32, offset: u32, length: u32) {
        self.helper.read_bodies(number, offset.into(), length as usize);
    }

    pub(super) fn free(&mut self, numbers: Vec<u32>) {
        self.helper.free(numbers);
    }

    /// The ring has written some of it.
    pub(super) fn handle_written(
        &mut self,
        ring: &mut Ring,
        write: Write,
        written: Result<usize, Errno>,
    ) -> Option<Synced> {
        let Writing::InRing { file, from } = std::mem::replace(&mut self.writing, Writing::Nothing) else {
            unreachable!("what the ring has written is in the ring")
        };
        match self.mode {
            Mode::Ring(Through::Fdatasync) => {
                self.writing = Writing::Syncing { file, from, write, written };
                None
            }
            Mode::Ring(Through::Write) | Mode::Thread(_) => {
                self.go_on(ring, file, from, write, written, Ok(()))
            }
        }
    }

    /// The sync behind the write is over.
    pub(super) fn handle_synced(&mut self, ring: &mut Ring, result: Result<(), Errno>) -> Option<Synced> {
        match std::mem::replace(&mut self.writing, Writing::Nothing) {
            Writing::Syncing { file, from, write, written } => {
                self.go_on(ring, file, from, write, written, result)
            }
            Writing::Nothing | Writing::InRing { .. } | Writing::OnThread => {
                unreachable!("a sync is behind its write")
            }
        }
    }

    /// What the helper, or the thread that syncs, has done.
    pub(super) fn poll(&mut self) -> Option<Done> {
        if let Mode::Thread(thread) = &self.mode
            && let Some(synced) = thread.poll()
        {
            self.writing = Writing::Nothing;
            return Some(Done::Synced(synced));
        }
        Some(match self.helper.poll()? {
            Answer::Prepared { number, result } => Done::Prepared {
                number,
                result: result.map(|(file, epoch)| {
                    self.files.insert(number, Arc::new(file));
                    epoch
                }),
            },
            Answer::Read { number, offset, buffer, result } => Done::Read { number, offset, buffer, result },
            Answer::BodiesRead { buffer, result } => Done::BodiesRead { buffer, result },
            Answer::NotFreed { error } => Done::NotFreed { error },
        })
    }

    /// The buffer of a read is no longer needed.
    pub(super) fn reuse(&mut self, buffer: Vec<u8>) {
        self.helper.reuse(buffer);
    }

    pub(super) fn reuse_bodies(&mut self, buffer: Vec<u8>) {
        self.helper.reuse_bodies(buffer);
    }

    /// No write is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.writing, Writing::Nothing)
    }

    fn go_on(
        &mut self,
        ring: &mut Ring,
        file: Arc<File>,
        from: usize,
        write: Write,
        written: Result<usize, Errno>,
        synced: Result<(), Errno>,
    ) -> Option<Synced> {
        let result = match (written, synced) {
            (Err(error), _) => Err(error.into()),
            (Ok(0), _) => Err(io::ErrorKind::WriteZero.into()),
            // A write in part cancels the sync behind it.
            (Ok(count), _) if from + count < write.bytes().len() => {
                let from = from + count;
                if let Mode::Ring(through) = self.mode {
                    ring.write(file.as_fd(), write, from, through);
                    self.writing = Writing::InRing { file, from };
                }
                return None;
            }
            (Ok(_), Err(error)) => Err(error.into()),
            (Ok(_), Ok(())) => Ok(()),
        };
        Some(Synced { write, result })
    }
}

/// Something that the pump tells its shard.
#[derive(Debug)]
pub(super) enum Done {
    Synced(Synced),
    Prepared { number: u32, result: io::Result<u64> },
    Read { number: u32, offset: u64, buffer: Vec<u8>, result: io::Result<usize> },
    BodiesRead { buffer: Vec<u8>, result: io::Result<()> },
    NotFreed { error: io::Error },
}

#[cfg(test)]
mod tests {
    use super::super::ring::Completion;
    use super::*;
    use corelane_journal::{Config, Identity, Journal, Message};
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    const SEGMENT_BYTES: u32 = 64 << 10;

    fn write(payload: &[u8]) -> Write {
        let config = Config { segment_bytes: SEGMENT_BYTES, ..Config::new(Identity::default(), 1) };
        let mut journal = Journal::new(config);
        let spare = journal.spare_wanted().unwrap();
        journal.handle_spare(Spare { bytes: 2 << 20, ..spare }, 7);
        let through = journal.say();
        let mut batch = journal.begin_batch().unwrap();
        batch.message(&Message { uid: 1, place: 1, ..Message::default() }, payload, None);
        batch.finish(through).unwrap()
    }

    /// Writes that to this file, in each way, and hands what became of it to `check`.
    fn in_each_way(path: &std::path::Path, payload: &[u8], check: impl Fn(SyncMode, Synced)) {
        for mode in SyncMode::ALL {
            let bell = Doorbell::new().unwrap();
            let files = SegmentFiles::new(path.to_owned(), SEGMENT_BYTES, false);
            let mut disk = Disk::start(0, files, mode, bell.clone()).unwrap();
            let mut ring = Ring::new().unwrap();
            ring.listen_to(&bell);
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            disk.files.insert(1, Arc::new(file));
            disk.write(&mut ring, write(payload));
            assert!(!disk.is_quiet());
            let mut answers = Vec::new();
            while answers.is_empty() || !disk.is_quiet() {
                ring.wait(Duration::from_secs(30)).unwrap();
                answers.extend(disk.poll().map(|done| match done {
                    Done::Synced(synced) => synced,
                    done => panic!("{done:?} was not asked for"),
                }));
                while let Some(completion) = ring.complete() {
                    answers.extend(match completion {
                        Completion::Written { write, result } => {
                            disk.handle_written(&mut ring, write, result)
                        }
                        Completion::Synced { result } => disk.handle_synced(&mut ring, result),
                        _ => None,
                    });
                }
            }
            assert_eq!(answers.len(), 1, "{mode}");
            answers.into_iter().for_each(|synced| check(mode, synced));
        }
    }

    #[test]
    fn what_does_not_go_in_one_piece_goes_in_several() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let payload: Vec<u8> = (0..1_000_000).map(|byte| (byte * 7) as u8).collect();
        in_each_way(file.path(), &payload, |_, Synced { write, result }| {
            result.unwrap();
            let mut bytes = vec![0; write.bytes().len()];
            file.as_file().read_exact_at(&mut bytes, write.offset).unwrap();
            assert!(bytes == write.bytes());
        });
    }

    #[test]
    fn what_fails_is_told_once() {
        in_each_way("/dev/full".as_ref(), b"x", |_, Synced { result, .. }| assert!(result.is_err()));
    }

    #[test]
    fn a_write_whose_sync_fails_has_failed() {
        // It takes what is written, and knows no sync of its own.
        in_each_way("/dev/null".as_ref(), b"x", |mode, Synced { result, .. }| {
            assert_eq!(result.is_err(), mode != SyncMode::WriteThrough, "{mode}");
        });
    }
}
