//! Which way of syncing is the quickest here?
//!
//! Writes small batches of a journal of its own, in each way, on the very path that shards write theirs: what is measured is what will
//! be used.

use super::disk::{Disk, Done};
use super::limits::{MEASURE_MAX, MEASURE_SEGMENT_BYTES, MEASURED_WRITES_MAX, MEASURED_WRITES_MIN};
use super::ring::{Completion, Ring};
use crate::doorbell::Doorbell;
use crate::storage::{Measured, SegmentFiles, SyncError, SyncMode, Synced};
use corelane_journal::{Config, Identity, Journal, Spare, Started, Write};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Measures each of `modes`, in a folder that has nothing else in it.
pub fn measure(folder: &Path, direct: bool, modes: &[SyncMode]) -> Vec<Result<Measured, SyncError>> {
    let measured = modes.iter().map(|mode| {
        let result = measure_one(folder, direct, *mode);
        result
            .map(|quartile| Measured { mode: *mode, quartile })
            .map_err(|error| SyncError { mode: *mode, error })
    });
    measured.collect()
}

fn measure_one(folder: &Path, direct: bool, mode: SyncMode) -> io::Result<Duration> {
    let mut bench = Bench::new(folder, direct, mode)?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < MEASURED_WRITES_MIN
        || (begun.elapsed() < MEASURE_MAX && times.len() < MEASURED_WRITES_MAX)
    {
        let write = bench.next_write();
        let start = Instant::now();
        bench.write(write)?;
        times.push(start.elapsed());
    }
    // The first writes find nothing where it will be.
    let times = &mut times[MEASURED_WRITES_MIN / 2..];
    times.sort_unstable();
    Ok(times[times.len() / 4])
}

struct Bench {
    ring: Ring,
    bell: Doorbell,
    disk: Disk,
    journal: Journal,
}

impl Bench {
    fn new(folder: &Path, direct: bool, mode: SyncMode) -> io::Result<Self> {
        let bell = Doorbell::new()?;
        let files = SegmentFiles::new(folder.to_owned(), MEASURE_SEGMENT_BYTES, direct);
        let disk = Disk::start(0, files, mode, bell.clone())?;
        let mut ring = Ring::new()?;
        ring.listen_to(&bell);
        let config = Config { segment_bytes: MEASURE_SEGMENT_BYTES, ..Config::new(Identity::default(), 1) };
        let mut bench = Bench { ring, bell, disk, journal: Journal::new(config) };
        // One that is written, and one without which no batch begins.
        for number in 1..=2 {
            let spare = Spare { number, bytes: MEASURE_SEGMENT_BYTES };
            bench.disk.prepare(spare);
            match bench.next_done()? {
                Done::Prepared { result, .. } => bench.journal.handle_spare(spare, result?),
                done => unreachable!("a file was asked for, not {done:?}"),
            }
        }
        Ok(bench)
    }

    fn next_write(&mut self) -> Write {
        let ticket = self.journal.say();
        let mut batch = self.journal.begin_batch().expect("there is a segment, and nothing on its way");
        batch.started(&Started { boot: 1, shards: 1, time: 0 });
        batch.finish(ticket).expect("something was said")
    }

    fn write(&mut self, write: Write) -> io::Result<()> {
        self.disk.write(&mut self.ring, write);
        match self.next_done()? {
            Done::Synced(Synced { write, result }) => {
                result?;
                self.journal.handle_synced(write);
                Ok(())
            }
            done => unreachable!("something was written, not {done:?}"),
        }
    }

    fn next_done(&mut self) -> io::Result<Done> {
        loop {
            if let Some(done) = self.disk.poll() {
                return Ok(done);
            }
            self.ring.wait(Duration::from_secs(1))?;
            while let Some(completion) = self.ring.complete() {
                let synced = match completion {
                    Completion::Written { write, result } => {
                        self.disk.handle_written(&mut self.ring, write, result)
                    }
                    Completion::Synced { result } => self.disk.handle_synced(&mut self.ring, result),
                    Completion::Rung { armed: false } => {
                        self.ring.listen_to(&self.bell);
                        None
                    }
                    _ => None,
                };
                if let Some(synced) = synced {
                    return Ok(Done::Synced(synced));
                }
            }
        }
    }
}
