//! Does a backup hold what a crash would have left?
//!
//! While the broker works and crashes, somebody asks for a backup now and then, copies one segment after the other while everything goes
//! on, and sometimes goes away in the middle. A copy that is complete is restored in a world of its own, and must be what the broker
//! had promised at the instant when all shards held.

use corelane_shard::{BackupRefusal, Image, ImageSegment, Lane};

use crate::crashing::{Crashing, check};
use crate::promises::Promises;
use crate::random::Random;
use crate::world::World;

/// Whoever asks for backups.
#[derive(Debug)]
pub(crate) struct BackingUp {
    /// Of its own, so that a run is the same without it up to where one begins.
    random: Random,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Asked,
    Copying(Box<Copying>),
}

#[derive(Debug)]
struct Copying {
    /// The time, what had been promised, and whether all that was said would be synced, at that instant.
    now: u64,
    promises: Promises,
    is_sound: bool,
    /// What is not copied yet, with what it was at that instant.
    left: Vec<(usize, ImageSegment, Vec<u8>)>,
    copied: Vec<(usize, u32, Vec<u8>)>,
}

impl BackingUp {
    pub(crate) fn new(seed: u64) -> Self {
        BackingUp { random: Random::new(seed ^ 0xbac0), state: State::Idle }
    }
}

impl World {
    /// Somebody asks for a backup.
    pub fn begin_backup(&mut self) -> Result<(), BackupRefusal> {
        self.barrier.begin()?;
        self.post_of_barrier();
        Ok(())
    }

    /// The instant has come, or there is none.
    pub fn take_image(&mut self) -> Option<Result<Image, BackupRefusal>> {
        self.image.take()
    }

    /// What belongs to the image of a segment, as it is now.
    pub fn copy(&self, shard: usize, segment: ImageSegment) -> Vec<u8> {
        self.disks[shard].copy(segment)
    }

    /// Whoever asked for the backup is done, or has gone.
    pub fn end_backup(&mut self) {
        self.barrier.end();
        self.post_of_barrier();
    }

    /// The broker has crashed.
    pub(crate) fn forget_backup(&mut self) {
        self.barrier.end();
        while self.barrier.poll_mail().is_some() {}
        self.image = None;
    }

    pub(crate) fn post_of_barrier(&mut self) {
        let control = self.shards.len();
        while let Some((shard, mail)) = self.barrier.poll_mail() {
            self.lanes[shard][control][Lane::Control as usize].push_back(mail);
        }
    }

    /// A world with a like broker that has just started with what was copied: shard, segment, bytes.
    pub fn restored(&self, now: u64, copied: Vec<(usize, u32, Vec<u8>)>) -> World {
        let mut world = World::without_shards(&self.setup);
        world.now = now;
        for (shard, number, bytes) in copied {
            world.disks[shard].put_file(number, bytes);
        }
        let restart = world.begin_restart();
        assert!(!restart.is_damaged(), "a backup has no damage: {restart:?}");
        world
    }
}

impl Crashing {
    /// Whoever makes backups does something, or not.
    pub(crate) fn back_up(&mut self) {
        let random = &mut self.backup.random;
        match &mut self.backup.state {
            State::Idle if random.one_in(30) => {
                // After a crash there may be nobody yet who would answer.
                if self.world.is_ready() && self.world.begin_backup().is_ok() {
                    self.backup.state = State::Asked;
                }
            }
            State::Copying(copying) if random.one_in(6) => {
                if random.one_in(100) {
                    return self.end_backup();
                }
                let Some((shard, segment, before)) = copying.left.pop() else { return self.judge() };
                let bytes = self.world.copy(shard, segment);
                assert!(bytes == before, "what is copied is not written again: {segment:?}");
                copying.copied.push((shard, segment.number, bytes));
            }
            State::Asked if random.one_in(2_000) => self.end_backup(),
            State::Idle | State::Asked | State::Copying(_) => {}
        }
    }

    /// If the instant has come: what was promised by then.
    pub(crate) fn note_image(&mut self) {
        let Some(image) = self.world.take_image() else { return };
        let Ok(image) = image else {
            self.backup.state = State::Idle;
            return;
        };
        let mut left = Vec::new();
        for (shard, segments) in image.into_iter().enumerate() {
            let with_bytes = |segment| (shard, segment, self.world.copy(shard, segment));
            left.extend(segments.into_iter().map(with_bytes));
        }
        let random = &mut self.backup.random;
        (1..left.len()).rev().for_each(|last| left.swap(last, random.below(last + 1)));
        self.backup.state = State::Copying(Box::new(Copying {
            now: self.world.now,
            promises: self.promises.clone(),
            is_sound: self.is_sound(),
            left,
            copied: Vec::new(),
        }));
    }

    /// Whoever asked for it goes away, or the broker has: there is no backup.
    pub(crate) fn end_backup(&mut self) {
        self.world.end_backup();
        self.backup.state = State::Idle;
    }

    /// Everything is copied.
    fn judge(&mut self) {
        let State::Copying(copying) = std::mem::replace(&mut self.backup.state, State::Idle) else { return };
        let Copying { now, mut promises, is_sound, copied, .. } = *copying;
        self.world.end_backup();
        let world = self.world.restored(now, copied);
        promises.all_lost(is_sound);
        check(&world, &mut promises);
        self.report.backups += 1;
    }
}
