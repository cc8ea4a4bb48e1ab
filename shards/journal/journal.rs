//! When is what was said durable?
//!
//! Group commit without a timer: one write is on its way at a time; what is said meanwhile gathers, and goes when that is
//! synced. Every promise waits for a [`Ticket`], and tickets complete in order.
//!
//! Invariants:
//! - `completed ≤ said`; `completed` rises only when a write was synced, or when there was nothing to write;
//! - a block with synced records is not written again; what recovery has read is not written at all;
//! - batch numbers and segment numbers have no gaps and are used once;
//! - a failed write or sync is final.

use crate::batch::{Batch, Write};
use crate::buffer::Buffer;
use crate::format::{self, BATCH_HEADER, SEGMENT_START, SegmentHeader, in_blocks};
use crate::limits::{BLOCK, BUFFER_KEPT, Config, Identity, SPARES_MAX};
use crate::record::{Position, Record};
use crate::scan::SegmentReader;
use crate::segments::{Account, Segment, Segments};
use std::collections::{BTreeMap, VecDeque};

/// What is said gets the next one. Whoever promises that it is durable waits until it is completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The file of a segment that nothing was written in: it is there, or to be made, or to be made longer if it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    pub number: u32,
    /// What it has room for.
    pub bytes: u32,
}

/// One shard's journal, as it goes on being written.
#[derive(Debug)]
pub struct Journal {
    pub(crate) config: Config,
    state: State,
    said: Ticket,
    completed: Ticket,
    pub(crate) next_batch: u64,
    next_segment: u32,
    /// Prepared, in order, with their epochs.
    pub(crate) spares: VecDeque<(Spare, u64)>,
    /// What the first of them is to have room for, for the batch that waits for it; 0: none does.
    pub(crate) room_wanted: u32,
    pub(crate) current: Option<Current>,
    pub(crate) segments: Segments,
    /// Their files may be used for other segments.
    freed: Vec<u32>,
    pub(crate) sequence_end: u64,
    pub(crate) uid_end: u64,
    pub(crate) certain_from: u32,
    pub(crate) buffer: Buffer,
    pub(crate) account: Account,
}

#[derive(Debug)]
enum State {
    Idle,
    /// When that is synced, `through` is completed and `freed` are free.
    Writing {
        through: Ticket,
        freed: Vec<u32>,
    },
    Failed,
}

/// The segment that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) number: u32,
    pub(crate) epoch: u64,
    pub(crate) size: u32,
    /// Where the next batch begins.
    pub(crate) offset: u32,
}

/// What recovery hands on.
#[derive(Debug)]
pub(crate) struct Continuation {
    pub(crate) segments: Segments,
    pub(crate) next_segment: u32,
    pub(crate) next_batch: u64,
    pub(crate) sequence_end: u64,
    pub(crate) uid_end: u64,
    pub(crate) certain_from: u32,
}

impl Journal {
    /// A journal of which there is nothing yet.
    pub fn new(config: Config) -> Self {
        let segments = Segments::default();
        Self::continued(
            config,
            Continuation {
                segments,
                next_segment: 1,
                next_batch: 1,
                sequence_end: 0,
                uid_end: 0,
                certain_from: 0,
            },
        )
    }

    pub(crate) fn continued(config: Config, continuation: Continuation) -> Self {
        let Continuation { segments, next_segment, next_batch, sequence_end, uid_end, certain_from } =
            continuation;
        let whole_blocks = (config.segment_bytes as usize).is_multiple_of(BLOCK);
        assert!(whole_blocks && config.segment_bytes as usize >= 4 * BLOCK, "segments have whole blocks");
        Journal {
            config,
            state: State::Idle,
            said: Ticket(0),
            completed: Ticket(0),
            next_batch,
            next_segment,
            spares: VecDeque::new(),
            room_wanted: 0,
            current: None,
            segments,
            freed: Vec::new(),
            sequence_end,
            uid_end,
            certain_from,
            buffer: Buffer::default(),
            account: Account::default(),
        }
    }

    /// This file is there, with its blocks allocated. `epoch` is random.
    ///
    /// # Panics
    /// If it is not the [`Self::spare_wanted`].
    pub fn handle_spare(&mut self, spare: Spare, epoch: u64) {
        if let Some((first, _)) = self.spares.front_mut().filter(|(first, _)| first.number == spare.number) {
            first.bytes = spare.bytes;
            return;
        }
        assert_eq!(spare.number, self.next_segment, "segments are prepared in order");
        self.next_segment = spare.number.checked_add(1).expect("2^32 segments are not used up");
        self.spares.push_back((spare, epoch));
    }

    /// The write that is on its way has been written and synced.
    pub fn handle_synced(&mut self, write: Write) -> Ticket {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Writing { through, freed } => {
                self.completed = through;
                self.freed.extend(freed);
            }
            failed @ (State::Idle | State::Failed) => self.state = failed,
        }
        if write.buffer.capacity() <= BUFFER_KEPT * self.config.batch_bytes_max as usize {
            self.buffer = write.buffer;
        }
        self.completed
    }

    /// A write or a sync failed. Nothing completes from now on, as nobody knows what is on the disk.
    pub fn handle_failed(&mut self) {
        self.state = State::Failed;
    }

    /// Something is to be said in the next batch.
    pub fn say(&mut self) -> Ticket {
        self.said.0 += 1;
        self.said
    }

    /// A thing is no longer valid, by what was said in a batch that has been begun: a message of a deleted queue, a decision that all
    /// know of.
    pub fn forget(&mut self, position: Position) {
        self.segments.forget(position.segment, position.length.into());
    }

    /// A batch, if there is something to say, and nothing is on its way. It may have no room ([`Batch::has_room`]).
    pub fn begin_batch(&mut self) -> Option<Batch<'_>> {
        let waits = self.said > self.completed || self.frees();
        (waits && self.is_idle()).then(|| Batch::new(self, false))
    }

    /// A batch that says nothing but which segments are free, if some are when `gone` is, by segment the bytes of things of which that
    /// is still to be said. What goes with a segment need not be said of it. For this there is room in the segment that is
    /// written, though no other is prepared.
    pub fn begin_freeing(&mut self, gone: &BTreeMap<u32, u64>) -> Option<Batch<'_>> {
        let current = self.segment();
        let free = if self.is_idle() { self.segments.free_without(current, gone) } else { Vec::new() };
        if free.is_empty() {
            return None;
        }
        let batch = Batch::new(self, true);
        Some(batch.without(free)).filter(Batch::has_room)
    }

    /// No segment is prepared: a batch goes into the one that is written, or not at all.
    pub fn is_short(&self) -> bool {
        self.spares.is_empty()
    }

    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Bytes that a batch may have in the segment that is written, or in the next one.
    pub(crate) fn room(&self) -> usize {
        let most = self.left().max(self.left_in_spare());
        most.saturating_sub(in_blocks(self.manifest_max()) + self.kept_free())
    }

    /// What there is for batches in the segment that is prepared.
    pub(crate) fn left_in_spare(&self) -> usize {
        let bytes = self.spares.front().map_or(0, |(first, _)| first.bytes as usize);
        bytes.saturating_sub(SEGMENT_START)
    }

    /// What is left in the segment that is written.
    pub(crate) fn left(&self) -> usize {
        self.current.as_ref().map_or(0, |current| (current.size - current.offset) as usize)
    }

    /// What is kept of every segment, so that it can be said which others are free.
    pub(crate) fn kept_free(&self) -> usize {
        in_blocks(BATCH_HEADER + self.manifest_max())
    }

    /// The file that is to be prepared next, if one is: another one, or the first of those that are there, with more room.
    pub fn spare_wanted(&self) -> Option<Spare> {
        if let Some((first, _)) = self.spares.front()
            && first.bytes < self.room_wanted
        {
            return Some(Spare { bytes: self.room_wanted, ..*first });
        }
        let next = Spare { number: self.next_segment, bytes: self.config.segment_bytes };
        (self.spares.len() < SPARES_MAX).then_some(next)
    }

    /// Segments whose files may be deleted or be prepared for other numbers.
    pub fn take_freed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.freed)
    }

    /// A segment to clean, once dead space outweighs. The owner reads it and says again what still holds: each thing whose position
    /// it is, by [`Batch::carry`] the rest; then [`Batch::cleaned`]. One at a time.
    pub fn next_to_clean(&mut self) -> Option<u32> {
        let idle = u64::from(self.config.segments_idle_max) * u64::from(self.config.segment_bytes);
        let current = self.segment();
        self.segments.next_to_clean(current, idle)
    }

    /// The segment to clean cannot be read, or not all of it: it stays, and others are cleaned.
    pub fn leave_uncleaned(&mut self, segment: u32) {
        self.segments.leave_uncleaned(segment);
    }

    /// Reads a closed segment, for cleaning. `None`: it is not one.
    pub fn reader(&self, number: u32) -> Option<SegmentReader> {
        let closed = number < self.segment();
        let segment = self.segments.get(number).filter(|_| closed)?;
        Some(SegmentReader::new(self.config.identity, number, Some(segment.batch_end)))
    }

    /// Reads one record. `None`: these are not the bytes that were written there.
    pub fn read<'a>(&self, position: Position, bytes: &'a [u8]) -> Option<Record<'a>> {
        let segment = self.segments.get(position.segment)?;
        let (record, length) = format::read_record(bytes, segment.epoch, position.offset);
        record.filter(|_| length == position.length as usize)
    }

    /// Whose journal it is.
    pub fn identity(&self) -> Identity {
        self.config.identity
    }

    /// This start of the broker.
    pub fn boot(&self) -> u32 {
        self.config.boot
    }

    /// For a journal that takes over what stands in others: places and uids below these were used there.
    pub fn reserve(&mut self, sequence_end: u64, uid_end: u64) {
        self.sequence_end = self.sequence_end.max(sequence_end);
        self.uid_end = self.uid_end.max(uid_end);
    }

    /// What was said last.
    pub fn said(&self) -> Ticket {
        self.said
    }

    pub fn completed(&self) -> Ticket {
        self.completed
    }

    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// The segment that is written now, or will be: what is said from now on lies in no older one.
    pub fn segment(&self) -> u32 {
        let spare = self.spares.front().map_or(self.next_segment, |(first, _)| first.number);
        self.current.as_ref().map_or(spare, |current| current.number)
    }

    /// Whether the file of this segment holds anything that is needed. After recovery all others may be deleted.
    pub fn uses(&self, segment: u32) -> bool {
        self.segments.contains(segment)
    }

    /// A write is on its way.
    pub fn is_writing(&self) -> bool {
        matches!(self.state, State::Writing { .. })
    }

    /// The segments in use, with so many bytes of each from the front: while nothing is on its way, what a crash would leave. No byte
    /// of that is written again.
    pub fn image(&self) -> Vec<(u32, u32)> {
        assert!(!self.is_writing(), "of a segment that is being written nobody knows how much is there");
        let length = |number: u32, size: u32| match &self.current {
            Some(current) if current.number == number => current.offset,
            Some(_) | None => size,
        };
        self.segments.iter().map(|(number, segment)| (number, length(number, segment.size))).collect()
    }

    /// Bytes of files that are in use.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, segment)| u64::from(segment.size)).sum()
    }

    pub(crate) fn frees(&mut self) -> bool {
        self.segments.any_free(self.segment())
    }

    /// The next spare becomes the segment that is written.
    pub(crate) fn begin_segment(&mut self) {
        let spare = self.spares.pop_front();
        let (Spare { number, bytes: size }, epoch) =
            spare.expect("a batch that needs a segment waits for one");
        self.segments.insert(number, Segment { size, epoch, ..Segment::default() });
        self.current = Some(Current { number, epoch, size, offset: format::short(SEGMENT_START) });
    }

    pub(crate) fn handle_nothing_to_write(&mut self, through: Ticket) {
        debug_assert!(through <= self.said, "nobody says what was not gathered");
        self.completed = self.completed.max(through);
    }

    /// A write begins: the buffer goes with it.
    pub(crate) fn handle_write_begun(&mut self, through: Ticket, length: usize, freed: Vec<u32>) -> Buffer {
        debug_assert!(through <= self.said, "nobody says what was not gathered");
        self.state = State::Writing { through: through.max(self.completed), freed };
        self.next_batch += 1;
        let current = self.current.as_mut().expect("what is written has a segment");
        current.offset += format::short(length);
        std::mem::take(&mut self.buffer)
    }
}

impl Segments {
    /// The segments that recovery found.
    pub(crate) fn found(headers: impl IntoIterator<Item = (SegmentHeader, u64)>) -> Self {
        let mut segments = Segments::default();
        for (header, batch_end) in headers {
            let SegmentHeader { size, epoch, segment, .. } = header;
            segments.insert(segment, Segment { size, epoch, batch_end, ..Segment::default() });
        }
        segments
    }
}
