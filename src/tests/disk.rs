//! A pump that writes a journal: everything it was told to be durable is found again, whichever way it is synced.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use corelane::driver::{Clock, Disk, Driver, Idle, Participants, Placement, Service, measure, participants};
use corelane::storage::{Opened, StorageSettings, SyncChoice, SyncMode, open};
use corelane_journal::{Journal, Message, Position, Removal, Spare, Ticket, Write};
use corelane_shard::{ConnectionSlot, Effect, Event, Socket, Turn};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

const MESSAGES: u64 = 600;
/// Each message is removed when so many more are there.
const KEPT: u64 = 50;

/// Says message after message, and removes the older ones.
struct Keeper {
    journal: Journal,
    wanted: Option<Spare>,
    effects: Vec<Effect>,
    positions: BTreeMap<u64, Position>,
    next: u64,
    tell: Sender<Told>,
    in_flight: bool,
    reading: bool,
    stopping: bool,
    stopped: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// The first message is durable.
    Begun,
    /// The shard is over, with a write that was not answered or without.
    Over {
        in_flight: bool,
    },
    AllDurable,
    /// What the batch of the first message that is left begins with.
    Read(Vec<u8>),
    Failed(String),
}

impl Keeper {
    fn say(&mut self) {
        if self.next == MESSAGES || self.journal.is_failed() {
            return;
        }
        let through = self.journal.say();
        let Some(mut batch) = self.journal.begin_batch() else { return };
        let place = self.next;
        // The fifth is larger than a segment.
        let payload = if place == 5 { vec![5; 300_000] } else { vec![place as u8; 3000] };
        let placed = batch.message(&Message { uid: 1, place, ..Message::default() }, &payload, None);
        let old = place.checked_sub(KEPT).and_then(|old| self.positions.get_key_value(&old));
        if let Some((&place, &position)) = old {
            batch.remove(&mut [Removal { uid: 1, place, position }]);
        }
        if !batch.has_room() {
            // The next segment is not there yet, or is too small, and it is said again when it is.
            batch.wait_for_room();
            return;
        }
        let write = batch.finish(through).unwrap();
        self.positions.insert(place, write.position(placed));
        self.positions = self.positions.split_off(&(place + 1).saturating_sub(KEPT));
        self.next += 1;
        self.in_flight = true;
        self.effects.push(Effect::Write { write });
    }

    fn on_written(&mut self, write: Write, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.in_flight = false;
                assert!(self.journal.handle_synced(write) > Ticket(0));
                if self.next == 2 {
                    self.tell.send(Told::Begun).unwrap();
                }
                let numbers = self.journal.take_freed();
                if !numbers.is_empty() {
                    self.effects.push(Effect::FreeSegments { numbers });
                }
                if self.next == MESSAGES && !std::mem::replace(&mut self.reading, true) {
                    let first = self.positions.values().next().unwrap();
                    // Its batch has nothing else in it, and begins with a block.
                    let offset = u64::from(first.offset) / 4096 * 4096;
                    self.effects.push(Effect::ReadSegment { number: first.segment, offset });
                }
            }
            Err(error) => {
                self.journal.handle_failed();
                self.tell.send(Told::Failed(error)).unwrap();
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.tell.send(Told::Over { in_flight: self.in_flight });
    }
}

impl Service for Keeper {
    fn apply(&mut self, _now: u64, event: Event<'_>) {
        match event {
            Event::Written { write, result } => self.on_written(write, result),
            Event::SegmentPrepared { epoch, .. } => {
                let spare = self.wanted.take().unwrap();
                self.journal.handle_spare(spare, epoch);
            }
            Event::SegmentRead { result, .. } => {
                self.tell.send(Told::Read(result.unwrap()[..8].to_vec())).unwrap();
                self.tell.send(Told::AllDurable).unwrap();
            }
            Event::SegmentRefused { reason, .. } => self.tell.send(Told::Failed(reason)).unwrap(),
            Event::Stop => self.stopping = true,
            // All shards are ready.
            Event::Mail { .. } => {}
            event => panic!("nobody connects, and there is {event:?}"),
        }
    }

    fn finish_turn(&mut self, _now: u64) -> Turn {
        let wanted = self.journal.spare_wanted();
        if wanted.is_some() && self.wanted.is_none() {
            self.wanted = wanted;
            self.effects.extend(wanted.map(|spare| Effect::PrepareSegment { spare }));
        }
        self.say();
        if self.stopping && !std::mem::replace(&mut self.stopped, true) {
            self.effects.push(Effect::Stopped);
        }
        Turn { more_work: false, next_deadline: None }
    }

    fn take_effects(&mut self, into: &mut Vec<Effect>) {
        into.append(&mut self.effects);
    }

    fn take_output(&mut self, _connection: ConnectionSlot) -> Vec<u8> {
        Vec::new()
    }

    fn release(&mut self, _connection: ConnectionSlot, _socket: Socket) -> bool {
        false
    }
}

fn start(directory: &Path, sync: SyncChoice) -> Opened {
    let settings = StorageSettings {
        directory: directory.to_owned(),
        segment_bytes: Some(64 << 10),
        disk_free_min: 0,
        sync,
        on_damage: corelane::storage::OnDamage::Stop,
    };
    open(&settings, 1, 0, &|_| 0, &measure).unwrap()
}

/// Runs a keeper until `until` has been told, and stops it in order.
fn run(opened: Opened, idle: Idle, until: impl Fn(&Told) -> bool) -> Vec<Told> {
    let Opened { directory, sync, mut shards, .. } = opened;
    let storage = shards.remove(0);
    let Participants { mut ports, bells, mut control } = participants(1).unwrap();
    let disk = Disk::start(0, storage.files, sync, bells[0].clone()).unwrap();
    let driver = Driver {
        index: 0,
        placement: Placement::Unpinned,
        idle,
        clock: Clock::start(),
        port: ports.remove(0),
        bells,
        listeners: Vec::new(),
        disk: Some(disk),
    };
    let (tell, told) = channel();
    let starting = driver.start(move || {
        Ok(Keeper {
            journal: storage.recovered.journal,
            wanted: None,
            effects: vec![Effect::Ready],
            positions: BTreeMap::new(),
            next: 1,
            tell,
            in_flight: false,
            reading: false,
            stopping: false,
            stopped: false,
        })
    });
    let thread = starting.unwrap().wait().unwrap();
    control.wait_until_ready();
    let mut all = Vec::new();
    while !all.last().is_some_and(&until) {
        all.push(told.recv_timeout(PATIENCE).unwrap());
    }
    control.stop_shards();
    while control.stopped_count() == 0 {
        control.wait(Some(PATIENCE));
        control.take(|_, _| {});
    }
    control.end_shards();
    control.flush();
    thread.join_within(PATIENCE).unwrap();
    drop(directory);
    all.extend(told);
    all
}

#[test]
fn what_was_synced_is_found_again() {
    for (sync, idle) in [
        (SyncChoice::WriteThrough, Idle::Park),
        (SyncChoice::Fdatasync, Idle::Adaptive { spin: Duration::from_micros(20) }),
        (SyncChoice::Thread, Idle::Spin),
        (SyncChoice::Thread, Idle::Park),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let told = run(start(folder.path(), sync), idle, |told| *told == Told::AllDurable);
        let read = told.iter().find_map(|told| if let Told::Read(bytes) = told { Some(bytes) } else { None });
        assert_eq!(read.unwrap()[4..], *b"CLbt", "a batch begins there");
        let files = std::fs::read_dir(folder.path().join("layout-1/shard-0")).unwrap().count();
        assert!(files < 20, "freed files are used again or deleted, and there are {files}");
        let found = start(folder.path(), sync);
        let places: Vec<u64> = found.shards[0].recovered.messages.iter().map(|found| found.place).collect();
        let first = MESSAGES - KEPT;
        assert_eq!(places, (first..MESSAGES).collect::<Vec<_>>(), "{sync:?}");
    }
}

#[test]
fn a_shard_that_stops_has_its_last_write_answered() {
    let all = [SyncChoice::WriteThrough, SyncChoice::Fdatasync, SyncChoice::Thread];
    // Whether one is on its way just then is a matter of luck.
    for sync in all.into_iter().cycle().take(5 * all.len()) {
        let folder = tempfile::tempdir().unwrap();
        let told = run(start(folder.path(), sync), Idle::Park, |told| *told == Told::Begun);
        assert_eq!(told.last(), Some(&Told::Over { in_flight: false }), "{sync:?}: {told:?}");
    }
}

#[test]
fn every_way_of_syncing_is_measured() {
    for path in [std::env::temp_dir(), "/dev/shm".into()] {
        let folder = tempfile::tempdir_in(path).unwrap();
        let measured = measure(folder.path(), false, &SyncMode::ALL);
        let modes: Vec<_> = measured.into_iter().map(|measured| measured.unwrap().mode).collect();
        assert_eq!(modes, SyncMode::ALL);
    }
}
