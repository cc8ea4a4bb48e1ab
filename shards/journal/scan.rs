//! What is in the segments that a start finds, and what of it cannot be trusted?
//!
//! A batch is written when the one before it is synced. So of the batches in a segment only the last one of the newest segment may
//! be *torn*: written in part, when the machine stopped; nobody was promised anything of it, and it counts for nothing. Whatever
//! else cannot be read was synced once, and is *damage*.
//!
//! Segments are read from the newest to the oldest. A newer one tells where an older one ended: by the number of its first
//! batch, and by its [`Manifest`], which also tells which older ones are still valid. So only in the newest it may be
//! open whether a batch was synced, and a later one behind it tells; also where the header of the newest is lost and there are two.
//!
//! Before anything is promised on top of what was read, the driver syncs the file of the newest segment: its last batch may have
//! been read from a cache.

use crate::format::{
    self, BATCH_HEADER, BatchHeader, FirstBlocks, SEGMENT_START, SegmentHeader, in_blocks, short,
};
use crate::limits::{BLOCK, Identity};
use crate::record::{Manifest, Position, Record};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Records of a segment that were synced and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub segment: u32,
    /// In bytes of the segment's file; what cannot be read lies in there.
    pub bytes: Range<u32>,
    /// The numbers of the batches that it concerns.
    pub batches: Range<u64>,
    pub what: Lost,
}

impl Damage {
    /// Gives `each` what the damaged bytes seem to have been: records that make sense, whatever their checksums say. `bytes` are those
    /// of the range. For a report to somebody; nothing can be built on it.
    pub fn claims(&self, bytes: &[u8], each: &mut impl FnMut(Record<'_>)) {
        match self.what {
            Lost::Records => _ = format::claims(bytes, each),
            Lost::Batches => {
                let mut rest = bytes;
                while rest.len() > BATCH_HEADER {
                    let used = BATCH_HEADER + format::claims(&rest[BATCH_HEADER..], each);
                    rest = &rest[in_blocks(used).min(rest.len())..];
                }
            }
            Lost::Segment | Lost::Unreadable => {}
        }
    }
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Some records of one batch; the others of it were read.
    Records,
    /// All of these batches.
    Batches,
    /// The segment's header, and with it everything in it; or the file is not there.
    Segment,
    /// The driver could not read these bytes. There may have been nothing in them.
    Unreadable,
}

/// A segment is not read, and no journal can be made of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has a version that this broker does not know.
    Version { segment: u32, found: u32 },
    /// It belongs to another shard or another layout.
    Foreign { segment: u32, found: Identity },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Version { segment, found } => {
                write!(f, "segment {segment} has format version {found}, not {}", crate::VERSION)
            }
            Refusal::Foreign { segment, found } => write!(
                f,
                "segment {segment} belongs to shard {} of {} (layout {})",
                found.shard, found.shards, found.layout
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// What a slice of a segment's bytes led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    More,
    /// Nothing behind it matters.
    Done,
}

/// How the journal ended, as far as it can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Where the last batch lies, if it was written in part: segment, and offset in bytes.
    pub torn: Option<(u32, u32)>,
    /// Empty: everything that was ever promised has been read.
    pub damage: Vec<Damage>,
}

/// Reads one segment, from its first byte on, in slices of any length. Keeps the bytes of one batch at most, and of one more if it
/// is open whether that was synced.
#[derive(Debug)]
pub struct SegmentReader {
    identity: Identity,
    segment: u32,
    /// The number after that of its last batch, if that is known.
    batch_end: Option<u64>,
    header: Option<SegmentHeader>,
    /// The number that the next batch should have.
    expected: u64,
    /// The bytes from `at` on, as far as they were fed: less than `wanted`.
    buffer: Vec<u8>,
    /// As many there must be to go on.
    wanted: usize,
    at: u32,
    /// Since when there was no batch where one should be.
    hole: Option<u32>,
    suspect: Option<Suspect>,
    /// The numbers of the first batches in a segment whose header cannot be read: two, if they are there.
    claimed: Range<u64>,
    damage: Vec<Damage>,
    done: bool,
}

/// A batch whose header is right, but not all of its records: damage if it was synced, else the torn end.
#[derive(Debug)]
struct Suspect {
    header: BatchHeader,
    at: u32,
    bytes: Vec<u8>,
}

impl SegmentReader {
    pub(crate) fn new(identity: Identity, segment: u32, batch_end: Option<u64>) -> Self {
        SegmentReader {
            identity,
            segment,
            batch_end,
            header: None,
            expected: 0,
            buffer: Vec::new(),
            wanted: SEGMENT_START,
            at: 0,
            hole: None,
            suspect: None,
            claimed: 0..0,
            damage: Vec::new(),
            done: false,
        }
    }

    /// Takes the next bytes and gives `each` the records of the batches that are complete with them.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Position, Record<'_>),
    ) -> Result<Feed, Refusal> {
        let mut rest = bytes;
        let mut kept = std::mem::take(&mut self.buffer);
        // What began in a slice before is completed; what is complete in this one is read where it is.
        while !self.done && (!kept.is_empty() || !rest.is_empty()) {
            if kept.is_empty() {
                match self.step(rest, false, each)? {
                    Some(used) => rest = &rest[used..],
                    None => kept.extend_from_slice(std::mem::take(&mut rest)),
                }
                continue;
            }
            let missing = self.wanted.saturating_sub(kept.len());
            let Some((more, later)) = rest.split_at_checked(missing) else {
                kept.extend_from_slice(rest);
                break;
            };
            kept.extend_from_slice(more);
            rest = later;
            if let Some(used) = self.step(&kept, false, each)? {
                kept.drain(..used);
            }
        }
        self.buffer = kept;
        Ok(if self.done { Feed::Done } else { Feed::More })
    }

    /// There are no more bytes.
    pub fn finish(&mut self, each: &mut impl FnMut(Position, Record<'_>)) -> Result<End, Refusal> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = buffer.as_slice();
        while !rest.is_empty() && !self.done {
            let Some(used) = self.step(rest, true, each)? else { break };
            rest = &rest[used..];
        }
        self.done = true;
        let lost = self.batch_end.filter(|end| self.expected < *end);
        if let Some(end) = lost {
            let (bytes, what) = match self.header {
                Some(header) => (self.hole.unwrap_or(self.at)..header.size, Lost::Batches),
                None => (HEADER_BYTES, Lost::Segment),
            };
            self.damage.push(Damage { segment: self.segment, bytes, batches: self.expected..end, what });
        }
        let torn = self.suspect.as_ref().map(|suspect| (self.segment, suspect.at));
        Ok(End { torn, damage: std::mem::take(&mut self.damage) })
    }

    /// Its header, and the number after that of its last batch.
    pub(crate) fn found(&self) -> Option<(SegmentHeader, u64)> {
        let end = self.suspect.as_ref().map_or(self.expected, |suspect| suspect.header.number);
        self.header.map(|header| (header, self.batch_end.unwrap_or(end)))
    }

    /// Batches that seem to be in it, of which all but the last one were synced, if its header cannot be read.
    fn claimed(&self) -> Option<Range<u64>> {
        let is_synced = self.header.is_none() && self.claimed.clone().count() > 1;
        is_synced.then(|| self.claimed.clone())
    }

    /// Takes something off the front of `bytes`; answers how much, or that `wanted` bytes are needed first.
    fn step(
        &mut self,
        bytes: &[u8],
        last: bool,
        each: &mut impl FnMut(Position, Record<'_>),
    ) -> Result<Option<usize>, Refusal> {
        let used = self.take_off(bytes, last, each)?;
        self.at = self.at.saturating_add(short(used.unwrap_or(0)));
        Ok(used)
    }

    fn take_off(
        &mut self,
        bytes: &[u8],
        last: bool,
        each: &mut impl FnMut(Position, Record<'_>),
    ) -> Result<Option<usize>, Refusal> {
        if self.done {
            return Ok(None);
        }
        let Some(header) = self.header else {
            return if self.at == 0 { self.first_blocks(bytes, last) } else { Ok(self.claim(bytes, last)) };
        };
        if self.at >= header.size || self.batch_end.is_some_and(|end| self.expected >= end) {
            self.done = true;
            return Ok(None);
        }
        if bytes.len() < BLOCK && !last {
            return Ok(self.want(BLOCK));
        }
        let batch = BatchHeader::read(bytes, header.epoch, self.at).filter(|batch| {
            batch.number >= self.expected
                && self.batch_end.is_none_or(|end| batch.number < end)
                && batch.length <= header.size - self.at
        });
        let Some(batch) = batch else {
            self.hole.get_or_insert(self.at);
            return Ok(Some(BLOCK.min(bytes.len())));
        };
        let length = in_blocks(batch.length as usize);
        if bytes.len() < length && !last {
            return Ok(self.want(length));
        }
        self.prove(batch.number, header.epoch, each);
        self.batch(&bytes[..length.min(bytes.len())], batch, header.epoch, each);
        Ok(Some(length.min(bytes.len())))
    }

    fn want(&mut self, bytes: usize) -> Option<usize> {
        self.wanted = bytes;
        None
    }

    fn first_blocks(&mut self, bytes: &[u8], last: bool) -> Result<Option<usize>, Refusal> {
        if bytes.len() < SEGMENT_START {
            self.done |= last;
            return Ok(self.want(SEGMENT_START));
        }
        match SegmentHeader::read(bytes, self.segment) {
            // What is missing is known.
            FirstBlocks::Nothing if self.batch_end.is_some() => {
                self.done = true;
                Ok(None)
            }
            FirstBlocks::Nothing => Ok(Some(SEGMENT_START)),
            FirstBlocks::Version(found) => Err(Refusal::Version { segment: self.segment, found }),
            FirstBlocks::Header(header) if header.identity != self.identity => {
                Err(Refusal::Foreign { segment: self.segment, found: header.identity })
            }
            FirstBlocks::Header(header) => {
                self.expected = header.first_batch;
                self.header = Some(header);
                Ok(Some(SEGMENT_START))
            }
        }
    }

    /// Without a header nothing can be read, but it may have been lost: two batches, one behind the other, say that the first was synced.
    /// If it was not lost, they are what the file was before.
    fn claim(&mut self, bytes: &[u8], last: bool) -> Option<usize> {
        if bytes.len() < BLOCK && !last {
            return self.want(BLOCK);
        }
        let is_next = |number: u64| self.claimed.is_empty() || number == self.claimed.end;
        let batch = BatchHeader::claimed(bytes).filter(|batch| is_next(batch.number));
        let claimed = batch.and_then(|batch| Some((batch, batch.number.checked_add(1)?)));
        let Some((batch, end)) = claimed else {
            self.done = true;
            return None;
        };
        let length = in_blocks(batch.length as usize);
        if bytes.len() < length && !last {
            return self.want(length);
        }
        self.done = !self.claimed.is_empty();
        self.claimed = if self.done { self.claimed.start } else { batch.number }..end;
        Some(length.min(bytes.len()))
    }

    /// Batch `number` was begun, so all before it were synced.
    fn prove(&mut self, number: u64, epoch: u64, each: &mut impl FnMut(Position, Record<'_>)) {
        if let Some(suspect) = self.suspect.take() {
            let Suspect { header, at, bytes } = suspect;
            self.synced(&bytes, header, at, epoch, each);
        }
        if let Some(hole) = self.hole.take() {
            self.damage.push(Damage {
                segment: self.segment,
                bytes: hole..self.at,
                batches: self.expected..number,
                what: Lost::Batches,
            });
        }
    }

    fn batch(
        &mut self,
        bytes: &[u8],
        header: BatchHeader,
        epoch: u64,
        each: &mut impl FnMut(Position, Record<'_>),
    ) {
        self.expected = header.number + 1;
        if self.batch_end.is_some() {
            self.synced(bytes, header, self.at, epoch, each);
            return;
        }
        let mut records = Vec::new();
        let bad = format::read_batch(bytes, header, self.segment, epoch, self.at, &mut |position, record| {
            records.push((position, record));
        });
        if bad.is_none() {
            records.into_iter().for_each(|(position, record)| each(position, record));
        } else {
            self.suspect = Some(Suspect { header, at: self.at, bytes: bytes.to_vec() });
        }
    }

    /// A batch that was synced: what can be read of it counts.
    fn synced(
        &mut self,
        bytes: &[u8],
        header: BatchHeader,
        at: u32,
        epoch: u64,
        each: &mut impl FnMut(Position, Record<'_>),
    ) {
        if let Some(bytes) = format::read_batch(bytes, header, self.segment, epoch, at, each) {
            let batches = header.number..header.number + 1;
            self.damage.push(Damage { segment: self.segment, bytes, batches, what: Lost::Records });
        }
    }
}

/// Reads all segments of one journal, from the newest to the oldest.
#[derive(Debug)]
pub struct Scan {
    identity: Identity,
    reader: Option<SegmentReader>,
    /// Of the last manifest: which older segments are valid, and where they end.
    ends: Option<BTreeMap<u32, u64>>,
    manifest: Option<(Position, Manifest)>,
    /// What was read, the newest first.
    found: Vec<(SegmentHeader, u64)>,
    /// Segments without a header, and the batches that seem to be in them.
    headless: Vec<(u32, Range<u64>)>,
    newest_file: u32,
    end: End,
}

/// What [`Scan`] hands on to [`Recovery::finish`](crate::Recovery::finish).
#[derive(Debug)]
pub struct Scanned {
    pub(crate) found: Vec<(SegmentHeader, u64)>,
    pub(crate) newest_file: u32,
    pub(crate) end: End,
}

impl Scan {
    pub fn new(identity: Identity) -> Self {
        Scan {
            identity,
            reader: None,
            ends: None,
            manifest: None,
            found: Vec::new(),
            headless: Vec::new(),
            newest_file: 0,
            end: End::default(),
        }
    }

    /// Begins with the file of segment `segment`, the newest that was not begun yet. `false`: it is free, and need not be read.
    pub fn begin(&mut self, segment: u32) -> bool {
        debug_assert!(self.reader.is_none(), "segments are read one by one");
        self.newest_file = self.newest_file.max(segment);
        // Without a manifest: nothing was freed between a segment and the one before, nor before the first batch of a new one was
        // synced. But there may be files between that were prepared and never begun.
        let newer = self.found.last().filter(|(header, batch_end)| {
            header.segment.checked_sub(1) == Some(segment) || header.first_batch == *batch_end
        });
        let mut batch_end = newer.map(|(newer, _)| newer.first_batch);
        if let Some(ends) = &mut self.ends {
            let Some(end) = ends.remove(&segment) else { return false };
            batch_end = Some(end);
        }
        self.reader = Some(SegmentReader::new(self.identity, segment, batch_end));
        true
    }

    /// The next bytes of the segment, see [`SegmentReader::feed`].
    pub fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Position, Record<'_>),
    ) -> Result<Feed, Refusal> {
        let Some(reader) = &mut self.reader else { return Ok(Feed::Done) };
        let manifest = &mut self.manifest;
        reader.feed(bytes, &mut |position, record| {
            note(manifest, position, &record);
            each(position, record);
        })
    }

    /// The next `length` bytes of the segment cannot be read.
    pub fn feed_unreadable(
        &mut self,
        length: u32,
        each: &mut impl FnMut(Position, Record<'_>),
    ) -> Result<Feed, Refusal> {
        let Some(reader) = &self.reader else { return Ok(Feed::Done) };
        let from = reader.at.saturating_add(short(reader.buffer.len()));
        let bytes = from..from.saturating_add(length);
        let segment = reader.segment;
        self.end.damage.push(Damage { segment, bytes, batches: 0..0, what: Lost::Unreadable });
        self.feed(&vec![0; length as usize], each)
    }

    /// There are no more bytes in this segment.
    pub fn end(&mut self, each: &mut impl FnMut(Position, Record<'_>)) -> Result<(), Refusal> {
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        let manifest = &mut self.manifest;
        let ended = reader.finish(&mut |position, record| {
            note(manifest, position, &record);
            each(position, record);
        })?;
        self.end.torn = self.end.torn.or(ended.torn);
        if reader.header.is_some() || self.ends.is_some() {
            self.end.damage.extend(ended.damage);
        }
        self.found.extend(reader.found());
        self.headless.extend(reader.claimed().map(|batches| (reader.segment, batches)));
        if let (None, Some((_, manifest))) = (&self.ends, self.manifest.take()) {
            let ends = manifest.segments.iter().map(|end| (end.segment, end.batch_end));
            self.ends = Some(ends.collect());
        }
        Ok(())
    }

    /// All files were read. Those that should be there and are not are damage.
    pub fn finish(mut self) -> Scanned {
        // What a freed file held has lower numbers than what was written since.
        let next_batch = self.found.first().map_or(1, |(_, batch_end)| *batch_end);
        for (segment, batches) in self.headless.into_iter().filter(|(_, batches)| batches.start >= next_batch)
        {
            self.end.damage.push(Damage { segment, bytes: HEADER_BYTES, batches, what: Lost::Segment });
        }
        for segment in self.ends.into_iter().flatten().map(|(segment, _)| segment) {
            self.end.damage.push(Damage { segment, bytes: 0..0, batches: 0..0, what: Lost::Segment });
        }
        self.end.damage.sort_by_key(|damage| (damage.segment, damage.bytes.start));
        Scanned { found: self.found, newest_file: self.newest_file, end: self.end }
    }
}

/// Remembers the last manifest of a segment. Damaged batches may be given out of order.
fn note(manifest: &mut Option<(Position, Manifest)>, position: Position, record: &Record<'_>) {
    if let Record::Manifest(found) = record
        && manifest.as_ref().is_none_or(|(before, _)| *before < position)
    {
        *manifest = Some((position, found.clone()));
    }
}

/// What is damaged where a header cannot be read.
const HEADER_BYTES: Range<u32> = 0..SEGMENT_START as u32;

/// Nothing shorter than a header is a batch.
const _: () = assert!(BATCH_HEADER < BLOCK);
