//! What does a disk keep when the machine stops, and what does it do until then?
//!
//! One for each shard, with the files of its journal. It answers late, as the seed draws it. A write that is on its way when the
//! world stops is there whole, not at all, or some of its sectors are, in any order; so is one whose sync has failed. What was
//! synced stays. Files that were freed are used again with what is in them, or are left lying about.
//!
//! Invariants, asserted: one write, one file being made, one read at a time; nothing is written over what was synced, nor behind the end of
//! its file, where a disk may have no room; nothing is written after a write has failed.

use std::collections::BTreeMap;

use corelane_journal::{Spare, Write};
use corelane_shard::{Effect, Event, ImageSegment};

use crate::random::Random;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// What a read gives at most.
const READ_MAX: usize = 16 << 10;

/// What the disks of a world are like.
#[derive(Clone, Debug)]
pub struct DiskSetup {
    pub segment_bytes: u32,
    pub batch_bytes_max: u32,
    pub segments_idle_max: u32,
    /// Files of the usual size that there is room for, freed ones included.
    pub files_max: usize,
    /// How long anything takes at most.
    pub latency_us_max: u64,
}

impl Default for DiskSetup {
    /// Small segments, so that much happens, and no delays.
    fn default() -> Self {
        DiskSetup {
            segment_bytes: 16 * 4096,
            batch_bytes_max: 2 * 4096,
            segments_idle_max: 2,
            files_max: usize::MAX,
            latency_us_max: 0,
        }
    }
}

/// The disk of one shard.
#[derive(Debug)]
pub struct Disk {
    setup: DiskSetup,
    random: Random,
    files: BTreeMap<u32, File>,
    /// Freed, and kept for what comes.
    spare: Vec<Vec<u8>>,
    writing: Option<(u64, Write)>,
    preparing: Option<(u64, Spare)>,
    reading: Option<(u64, u32, u64)>,
    /// What was read; the file may be freed meanwhile.
    bodies: Option<(u64, Result<Vec<u8>, String>)>,
    failed: bool,
    refused: bool,
    /// It answers nothing until it is let go.
    pub held: bool,
    /// The next write fails.
    pub fails_next: bool,
    /// Reads fail.
    pub unreadable: bool,
    /// There is no room for any more files.
    pub full: bool,
    /// Writes that were synced, and their bytes.
    pub writes: u64,
    pub bytes_written: u64,
    /// Files that were freed.
    pub freed: u64,
}

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// Where what was synced ends.
    synced: usize,
    /// Where each write that was synced begins and ends, in order.
    writes: Vec<(usize, usize)>,
}

/// What a disk answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Written(Write, Result<(), String>),
    Prepared(u32, u64),
    Refused(u32),
    Read(u32, u64, Result<Vec<u8>, String>),
    Bodies(Result<Vec<u8>, String>),
}

impl Answer {
    pub(crate) fn event(self, bytes: &mut Vec<u8>) -> Event<'_> {
        match self {
            Answer::Written(write, result) => Event::Written { write, result },
            Answer::Prepared(number, epoch) => Event::SegmentPrepared { number, epoch },
            Answer::Refused(number) => {
                Event::SegmentRefused { number, reason: "no space left on device".to_owned() }
            }
            Answer::Bodies(Ok(read)) => {
                *bytes = read;
                Event::BodiesRead { result: Ok(bytes) }
            }
            Answer::Bodies(Err(reason)) => Event::BodiesRead { result: Err(reason) },
            Answer::Read(number, offset, Ok(read)) => {
                *bytes = read;
                Event::SegmentRead { number, offset, result: Ok(bytes) }
            }
            Answer::Read(number, offset, Err(reason)) => {
                Event::SegmentRead { number, offset, result: Err(reason) }
            }
        }
    }
}

impl Disk {
    pub(crate) fn new(setup: DiskSetup, seed: u64) -> Self {
        Disk {
            setup,
            random: Random::new(seed),
            files: BTreeMap::new(),
            spare: Vec::new(),
            writing: None,
            preparing: None,
            reading: None,
            bodies: None,
            failed: false,
            refused: false,
            held: false,
            fails_next: false,
            unreadable: false,
            full: false,
            writes: 0,
            bytes_written: 0,
            freed: 0,
        }
    }

    /// Something is asked of it.
    pub(crate) fn handle(&mut self, now: u64, effect: Effect) {
        let at = now + self.random.below(self.setup.latency_us_max as usize + 1) as u64;
        match effect {
            Effect::Write { write } => {
                assert!(self.writing.is_none(), "one write is on its way at a time");
                assert!(!self.failed, "nothing is written after a write has failed");
                let file = &self.files[&write.segment];
                assert!(write.offset as usize >= file.synced, "nothing is written over what was synced");
                let end = write.offset as usize + write.bytes().len();
                assert!(end <= file.bytes.len(), "nothing is written that there may be no room for");
                self.writing = Some((at, write));
            }
            Effect::PrepareSegment { spare } => {
                assert!(self.preparing.is_none(), "one file is made at a time");
                self.preparing = Some((at, spare));
            }
            Effect::ReadSegment { number, offset } => {
                assert!(self.reading.is_none(), "one read is on its way at a time");
                self.reading = Some((at, number, offset));
            }
            Effect::ReadBodies { number, offset, length } => {
                assert!(self.bodies.is_none(), "one read is on its way at a time");
                self.bodies = Some((at, self.read_exactly(number, offset as usize, length as usize)));
            }
            Effect::FreeSegments { numbers } => numbers.into_iter().for_each(|number| self.free(number)),
            other => unreachable!("not for a disk: {other:?}"),
        }
    }

    /// Something that it was asked for is done.
    pub(crate) fn act(&mut self, now: u64) -> Option<Answer> {
        if self.held {
            return None;
        }
        let kinds = if self.bodies.is_some() { 4 } else { 3 };
        let first = self.random.below(kinds);
        (first..first + kinds).find_map(|which| match which % kinds {
            0 => {
                let (_, write) = self.writing.take_if(|(at, _)| *at <= now)?;
                Some(self.write(write))
            }
            1 => {
                let (_, spare) = self.preparing.take_if(|(at, _)| *at <= now)?;
                Some(self.prepare(spare))
            }
            3 => {
                let (_, result) = self.bodies.take_if(|(at, _)| *at <= now)?;
                Some(Answer::Bodies(result))
            }
            _ => {
                let (_, number, offset) = self.reading.take_if(|(at, ..)| *at <= now)?;
                let result = self.read(number, offset);
                Some(Answer::Read(number, offset, result))
            }
        })
    }

    /// A write has failed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// The last file that was asked for could not be made.
    pub fn is_full(&self) -> bool {
        self.refused
    }

    /// Whether a write is on its way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The machine stops: what was not synced is there in part.
    pub(crate) fn crash(&mut self) {
        if let Some((_, write)) = self.writing.take() {
            self.tear(&write);
        }
        if let Some((_, spare)) = self.preparing.take()
            && self.random.one_in(2)
        {
            self.prepare(spare);
        }
        self.reading = None;
        self.bodies = None;
        self.failed = false;
        self.refused = false;
        self.held = false;
        self.fails_next = false;
        // What is on the disk now is all that there will be of it.
        for file in self.files.values_mut() {
            file.synced = file.bytes.len();
        }
    }

    /// The numbers of the files, in order.
    pub fn segments(&self) -> Vec<u32> {
        self.files.keys().copied().collect()
    }

    /// What is in a file.
    pub fn bytes(&self, segment: u32) -> &[u8] {
        &self.files[&segment].bytes
    }

    /// What a backup copies of a segment: all that belongs to it has been synced.
    pub(crate) fn copy(&self, segment: ImageSegment) -> Vec<u8> {
        let file = self.files.get(&segment.number).expect("what is copied is not freed");
        file.bytes[..file.bytes.len().min(segment.bytes as usize)].to_vec()
    }

    /// A file that was copied here.
    pub(crate) fn put_file(&mut self, number: u32, bytes: Vec<u8>) {
        self.files.insert(number, File { synced: bytes.len(), bytes, writes: Vec::new() });
    }

    /// Whether these bytes stand anywhere on the disk.
    pub fn contains(&self, text: &str) -> bool {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.files.values().any(|file| has(&file.bytes)) || self.spare.iter().any(|bytes| has(bytes))
    }

    pub(crate) fn free(&mut self, number: u32) {
        self.freed += 1;
        match self.random.below(3) {
            // It is gone with the next start.
            0 if self.setup.files_max == usize::MAX => {}
            0 | 1 => drop(self.files.remove(&number)),
            _ => self.spare.extend(self.files.remove(&number).map(|file| file.bytes)),
        }
    }

    pub(crate) fn delete(&mut self, number: u32) {
        self.files.remove(&number);
    }

    /// Turns a bit of what was synced, if there is anything. Answers where.
    pub fn rot(&mut self, random: &mut Random) -> Option<(u32, usize)> {
        let written: Vec<u32> = self
            .files
            .iter()
            .filter(|(_, file)| !file.writes.is_empty())
            .map(|(number, _)| *number)
            .collect();
        if written.is_empty() {
            return None;
        }
        let number = written[random.below(written.len())];
        let file = self.files.get_mut(&number)?;
        let (begin, end) = file.writes[random.below(file.writes.len())];
        let at = begin + random.below(end - begin);
        file.bytes[at] ^= 1 << random.below(8);
        Some((number, at))
    }

    /// Turns a bit of this text, where it stands first. False: nowhere.
    pub fn damage(&mut self, text: &str) -> bool {
        let find = |file: &File| file.bytes.windows(text.len()).position(|window| window == text.as_bytes());
        let found = self.files.values_mut().find_map(|file| Some((find(file)?, file)));
        if let Some((at, file)) = found {
            file.bytes[at] ^= 1;
            return true;
        }
        false
    }

    fn write(&mut self, write: Write) -> Answer {
        if std::mem::take(&mut self.fails_next) {
            self.failed = true;
            self.tear(&write);
            return Answer::Written(write, Err("input/output error".to_owned()));
        }
        let (begin, length) = (write.offset as usize, write.bytes().len());
        self.put(&write, |_| true);
        let file = self.files.get_mut(&write.segment).expect("a segment's file was made");
        file.synced = begin + length;
        file.writes.push((begin, begin + length));
        self.writes += 1;
        self.bytes_written += length as u64;
        Answer::Written(write, Ok(()))
    }

    /// Some of it is there: nothing, all, the first sectors, the last ones, or any.
    fn tear(&mut self, write: &Write) {
        let sectors = write.bytes().len() / SECTOR;
        let border = self.random.below(sectors + 1);
        match self.random.below(6) {
            0 => {}
            1 => self.put(write, |_| true),
            2 => self.put(write, |sector| sector < border),
            3 => self.put(write, |sector| sector >= border),
            4 => self.put(write, |sector| sector / 8 != border / 8),
            _ => {
                let of = 2 + self.random.below(6);
                let written: Vec<bool> = (0..sectors).map(|_| self.random.below(of) > 0).collect();
                self.put(write, |sector| written[sector]);
            }
        }
    }

    fn put(&mut self, write: &Write, is_written: impl Fn(usize) -> bool) {
        let file = self.files.get_mut(&write.segment).expect("a segment's file was made");
        for (sector, bytes) in
            write.bytes().chunks(SECTOR).enumerate().filter(|(sector, _)| is_written(*sector))
        {
            let at = write.offset as usize + sector * SECTOR;
            if file.bytes.len() < at + bytes.len() {
                file.bytes.resize(at + bytes.len(), 0);
            }
            file.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn prepare(&mut self, Spare { number, bytes }: Spare) -> Answer {
        let there = self.files.get(&number).map(|file| file.bytes.len());
        let recycled = if there.is_none() { self.spare.pop() } else { None };
        let had = there.or(recycled.as_ref().map(Vec::len)).unwrap_or(0);
        let more = (bytes as usize).saturating_sub(had);
        let taken: usize = self.files.values().map(|file| file.bytes.len()).sum();
        let room = self.setup.files_max.saturating_mul(self.setup.segment_bytes as usize);
        if self.full || (more > 0 && taken + more > room) {
            self.spare.extend(recycled);
            self.refused = true;
            return Answer::Refused(number);
        }
        self.refused = false;
        let file = self.files.entry(number).or_default();
        assert!(file.writes.is_empty(), "what was written in is not made longer");
        file.bytes.extend(recycled.unwrap_or_default());
        file.bytes.resize(file.bytes.len().max(bytes as usize), 0);
        Answer::Prepared(number, self.random.number())
    }

    fn read_exactly(&self, number: u32, offset: usize, length: usize) -> Result<Vec<u8>, String> {
        let file = &self.files[&number];
        // What was written again in a write that failed is nowhere else for who reads it.
        assert!(self.failed || offset + length <= file.synced, "what is read was synced");
        let bytes = file.bytes.get(offset..offset + length).filter(|_| !self.unreadable);
        bytes.map(<[u8]>::to_vec).ok_or_else(|| "input/output error".to_owned())
    }

    fn read(&mut self, number: u32, offset: u64) -> Result<Vec<u8>, String> {
        if self.unreadable {
            return Err("input/output error".to_owned());
        }
        let bytes = &self.files[&number].bytes;
        let begin = bytes.len().min(offset as usize);
        let length = 1 + self.random.below(READ_MAX);
        Ok(bytes[begin..bytes.len().min(begin + length)].to_vec())
    }
}
