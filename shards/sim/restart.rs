//! What becomes of the world when the broker stops, and how does it go on?
//!
//! What a driver does at a start: it scans the files of each shard from the newest to the oldest, puts together what was there, asks
//! all shards which transactions were decided, and reads the segments once more, from the oldest to the newest.

use corelane_journal::{Config, End, Identity, Recovery, Scan, SegmentReader};
use corelane_shard::{Decisions, Event, RestoreSummary};

use crate::world::World;

/// What was found at a start.
#[derive(Debug, Default)]
pub struct Restart {
    /// By shard.
    pub summaries: Vec<RestoreSummary>,
    /// By shard: how its journal ended.
    pub ends: Vec<End>,
    /// Every shard had stopped in order.
    pub clean: bool,
}

impl Restart {
    pub fn messages(&self) -> u64 {
        self.summaries.iter().map(|summary| summary.messages).sum()
    }

    pub fn is_damaged(&self) -> bool {
        self.ends.iter().any(|end| !end.damage.is_empty())
    }
}

impl World {
    /// The machine stops at once, with everything that is on its way.
    pub fn crash(&mut self) {
        self.shards.clear();
        self.break_connections();
        let lanes = self.lanes.iter_mut().flatten().flatten();
        lanes.for_each(std::collections::VecDeque::clear);
        self.disks.iter_mut().for_each(crate::disk::Disk::crash);
        self.closed_by_broker.clear();
        self.forget_backup();
    }

    /// The broker starts after a crash, and is ready.
    pub fn restart(&mut self) -> Restart {
        let restart = self.begin_restart();
        self.run();
        assert!(self.is_ready(), "every shard becomes ready");
        restart
    }

    /// The broker starts after a crash, and goes on from there.
    pub fn begin_restart(&mut self) -> Restart {
        self.begin_shards();
        self.recover()
    }

    /// A crash, and a start after it.
    pub fn crash_and_restart(&mut self) -> Restart {
        self.crash();
        self.restart()
    }

    /// The broker stops in order.
    pub fn stop(&mut self) {
        self.begin_stop();
        self.run();
        assert!(self.has_stopped(), "every shard stops");
    }

    /// The broker is told to stop.
    pub fn begin_stop(&mut self) {
        (0..self.shards.len()).for_each(|shard| self.apply(shard, Event::Stop));
    }

    pub fn has_stopped(&self) -> bool {
        self.stopped.iter().all(|stopped| *stopped)
    }

    pub fn is_ready(&self) -> bool {
        self.ready.iter().all(|ready| *ready)
    }

    /// Gives new shards what the disks hold.
    pub(crate) fn recover(&mut self) -> Restart {
        let shards = self.setup.shards;
        self.ready = vec![false; shards];
        self.stopped = vec![false; shards];
        self.stalled = vec![false; shards];
        self.more_work = vec![true; shards];
        let mut found = Vec::new();
        for shard in 0..shards {
            found.push(self.scan(shard));
        }
        let boots = found.iter().map(|(recovery, _)| recovery.boot());
        let boot = 1 + boots.max().unwrap_or(0).max(self.boot);
        self.boot = boot;
        let mut recovered = Vec::new();
        for (shard, (recovery, scan)) in found.into_iter().enumerate() {
            recovered.push(recovery.finish(scan.finish(), self.journal_config(shard, boot)));
        }
        let decisions = Decisions::of(recovered.iter());
        let clean = recovered.iter().all(|recovered| recovered.clean);
        let mut restart = Restart { clean, ..Restart::default() };
        for (shard, recovered) in recovered.into_iter().enumerate() {
            restart.ends.push(recovered.end.clone());
            let mut readers = Vec::new();
            for number in self.disks[shard].segments() {
                if recovered.journal.uses(number) {
                    readers.extend(recovered.journal.reader(number).map(|reader| (number, reader)));
                } else {
                    self.disks[shard].delete(number);
                }
            }
            self.shards[shard].begin_restore(self.now, recovered, &decisions);
            readers.into_iter().for_each(|(number, reader)| self.restore_segment(shard, number, reader));
            restart.summaries.push(self.shards[shard].end_restore(self.now));
            self.effects(shard);
        }
        restart
    }

    fn journal_config(&self, shard: usize, boot: u32) -> Config {
        let disk = self.setup.disk.clone().unwrap_or_default();
        Config {
            segment_bytes: disk.segment_bytes,
            batch_bytes_max: disk.batch_bytes_max,
            segments_idle_max: disk.segments_idle_max,
            ..Config::new(self.identity(shard), boot)
        }
    }

    fn identity(&self, shard: usize) -> Identity {
        Identity { layout: 1, shard: shard as u16, shards: self.setup.shards as u16 }
    }

    fn scan(&mut self, shard: usize) -> (Recovery, Scan) {
        let mut recovery = Recovery::new();
        let mut scan = Scan::new(self.identity(shard));
        let disk = &self.disks[shard];
        for number in disk.segments().into_iter().rev() {
            if !scan.begin(number) {
                continue;
            }
            let mut each = |position, record: corelane_journal::Record<'_>| recovery.handle(position, record);
            let mut rest = disk.bytes(number);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + self.random.below(rest.len()));
                rest = after;
                scan.feed(piece, &mut each).expect("it is this shard's");
            }
            scan.end(&mut each).expect("it is this shard's");
        }
        (recovery, scan)
    }

    fn restore_segment(&mut self, shard: usize, number: u32, mut reader: SegmentReader) {
        let now = self.now;
        let target = &mut self.shards[shard];
        let mut each =
            |position, record: corelane_journal::Record<'_>| target.restore_record(now, position, record);
        let mut rest = self.disks[shard].bytes(number);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + self.random.below(rest.len()));
            rest = after;
            reader.feed(piece, &mut each).expect("it was read before");
        }
        reader.finish(&mut each).expect("it was read before");
    }
}
