//! How does what is to be said become one write?
//!
//! The owner says everything that gathered while the last write was on its way, straight from its entries, and then
//! [`Batch::finish`]es it. Only then is it decided in which segment the batch lies, so checksums and accounts are made there.

use crate::format::{self, BATCH_HEADER, BatchHeader, SEGMENT_START, SegmentHeader, in_blocks};
use crate::journal::{Journal, Ticket};
use crate::record::{
    Decided, Done, LEVEL_BITS, Manifest, Message, Metadata, Places, Position, Prepared, Queue, QueueDeleted,
    Record, Removed, Returned, SegmentEnd, Started, Stopped,
};
use crate::segments::Segment;

/// A batch that is being put together. Dropping it unfinished says nothing of what was in it.
#[derive(Debug)]
#[must_use = "a batch is written when it is finished"]
pub struct Batch<'a> {
    journal: &'a mut Journal,
    count: u32,
    /// It only says which segments are free.
    frees: bool,
}

/// Where in its batch a record stands; [`Write::position`] tells where on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// In bytes, from the beginning of the batch.
    offset: u32,
    length: u32,
}

/// A message that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    pub uid: u64,
    pub place: u64,
    /// Where its record lies.
    pub position: Position,
}

/// Bytes to be written to a segment's file and synced, in one go.
#[derive(Debug)]
#[must_use = "nothing is durable before this is written and synced"]
pub struct Write {
    pub segment: u32,
    /// Where in the file, in bytes. With the length a multiple of [`BLOCK`](crate::BLOCK).
    pub offset: u64,
    pub(crate) buffer: crate::buffer::Buffer,
    /// The bytes before this one are not part of it.
    from: usize,
    batch_offset: u32,
}

impl Write {
    /// What is to be written. Its first byte is aligned to [`BLOCK`](crate::BLOCK).
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.as_slice()[self.from..]
    }

    /// Where a record of this batch lies.
    pub fn position(&self, placed: Placed) -> Position {
        Position { segment: self.segment, offset: self.batch_offset + placed.offset, length: placed.length }
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn new(journal: &'a mut Journal, frees: bool) -> Self {
        journal.account.clear();
        journal.buffer.clear();
        // Room for the segment's header, in case a new one begins with this batch.
        journal.buffer.grow_to(SEGMENT_START + BATCH_HEADER);
        Batch { journal, count: 0, frees }
    }

    /// All things in these segments are gone.
    pub(crate) fn without(self, segments: Vec<(u32, u64)>) -> Self {
        self.journal.account.gone.extend(segments);
        self
    }

    /// A queue's definition; `replaces` is where the one of the version before lies, or this one if it is said again.
    pub fn queue(&mut self, queue: &Queue, replaces: Option<Position>) -> Placed {
        self.journal.uid_end = self.journal.uid_end.max(queue.uid.saturating_add(1));
        self.replaced(replaces);
        self.thing(queue, &[])
    }

    /// A queue is deleted, with all its messages. Where those lie is told by [`Journal::forget`], in as many goes as the owner likes.
    pub fn queue_deleted(&mut self, uid: u64, since: u32, definition: Position) {
        self.replaced(Some(definition));
        self.amend_range(&QueueDeleted { uid, since, until: self.journal.segment() });
    }

    /// A message. `copied` is where it lies already, if it is said again: then counts and details are those it has now.
    pub fn message(&mut self, message: &Message, payload: &[u8], copied: Option<Position>) -> Placed {
        let sequence = message.place & (u64::MAX >> LEVEL_BITS);
        self.journal.sequence_end = self.journal.sequence_end.max(sequence + 1);
        let placed = self.thing(message, payload);
        self.copied(copied, placed);
        placed
    }

    /// Messages are gone for ever. Sorts them, so that what stands side by side takes no room.
    pub fn remove(&mut self, removals: &mut [Removal]) {
        removals.sort_unstable_by_key(|removal| (removal.uid, removal.position.segment, removal.place));
        for same in removals.chunk_by(|a, b| (a.uid, a.position.segment) == (b.uid, b.position.segment)) {
            let mut places: Vec<Places> = Vec::new();
            for removal in same {
                self.replaced(Some(removal.position));
                match places.last_mut() {
                    Some(run) if run.last.checked_add(1) == Some(removal.place) => run.last = removal.place,
                    _ => places.push(Places { first: removal.place, last: removal.place }),
                }
            }
            let removed = Removed { uid: same[0].uid, segment: same[0].position.segment, places };
            self.amend(&removed, removed.segment);
        }
    }

    /// A message came back to its queue. The next time it does that is needed instead, so it does not count as what has to be kept.
    pub fn returned(&mut self, returned: &Returned) {
        self.say(returned, &[]);
        self.journal.account.pin(returned.segment, 0, false);
    }

    /// For cleaning: the same, of one that has come back before.
    pub fn returned_again(&mut self, returned: &Returned) {
        self.count_again(|batch| batch.returned(returned));
    }

    /// A transaction is prepared; `copied` is where that lies already, if it is said again.
    pub fn prepared(&mut self, prepared: &Prepared, copied: Option<Position>) -> Placed {
        let placed = self.thing(prepared, &[]);
        self.copied(copied, placed);
        placed
    }

    /// A transaction is committed; `copied` as in [`Self::prepared`]. [`Journal::forget`] ends it.
    pub fn decided(&mut self, decided: &Decided, copied: Option<Position>) -> Placed {
        let placed = self.thing(decided, &[]);
        self.replaced(copied);
        self.journal.account.again += copied.map_or(0, |_| u64::from(placed.length));
        placed
    }

    /// A transaction that was prepared is done. What a commit removes and returns is said in the same batch.
    pub fn done(&mut self, done: &Done, prepared: Position) {
        self.replaced(Some(prepared));
        self.amend_several(done);
    }

    pub fn started(&mut self, started: &Started) {
        self.say(started, &[]);
    }

    pub fn stopped(&mut self, stopped: &Stopped) {
        self.say(stopped, &[]);
    }

    /// For cleaning: says an amendment again, if what it amends is still there. Does nothing with other records, of which only the
    /// owner knows whether they still hold.
    pub fn carry(&mut self, record: &Record<'_>) {
        self.count_again(|batch| batch.carry_if_needed(record));
    }

    fn carry_if_needed(&mut self, record: &Record<'_>) {
        match record {
            Record::Removed(removed) if self.amends(removed.segment) => self.amend(removed, removed.segment),
            Record::Returned(returned) if self.amends(returned.segment) => self.returned(returned),
            Record::QueueDeleted(deleted) if self.range(deleted).any(|number| self.amends(number)) => {
                self.amend_range(deleted);
            }
            Record::Done(done) if done.segments.iter().any(|number| self.amends(*number)) => {
                self.amend_several(done);
            }
            Record::Removed(_)
            | Record::Returned(_)
            | Record::QueueDeleted(_)
            | Record::Done(_)
            | Record::Queue(_)
            | Record::Message(..)
            | Record::Prepared(_)
            | Record::Decided(_)
            | Record::Started(_)
            | Record::Stopped(_)
            | Record::Manifest(_) => {}
        }
    }

    /// All that is still needed of `segment` has been said again, with what is in this batch.
    pub fn cleaned(&mut self, segment: u32) {
        self.journal.account.cleaned = Some(segment);
    }

    /// Its bytes so far.
    pub fn bytes(&self) -> usize {
        self.journal.buffer.len() - SEGMENT_START
    }

    /// Whether the rest had better go into the next one.
    pub fn is_full(&self) -> bool {
        self.is_full_with(0)
    }

    /// The same, when so many removals are still to be said.
    pub fn is_full_with(&self, removals: usize) -> bool {
        // What is added when it is nearly full is to have room, too.
        let max = (self.journal.config.batch_bytes_max as usize).min(self.journal.room() / 2);
        let bytes = self.journal.buffer.len() - SEGMENT_START + removals * REMOVAL_BYTES_MAX;
        (self.count > 0 || removals > 0) && bytes >= max
    }

    /// Whether it can be finished: it fits into the segment that is written, or into the one that is prepared.
    pub fn has_room(&self) -> bool {
        self.space() <= self.journal.left().max(self.journal.left_in_spare())
    }

    /// It has no room, and is dropped. The next segment that is prepared is to be as large as it is.
    pub fn wait_for_room(self) {
        self.journal.room_wanted = format::short(SEGMENT_START + self.space());
    }

    /// What it takes of a segment, with what is to be left there.
    fn space(&self) -> usize {
        let journal = &self.journal;
        let bytes = in_blocks(journal.buffer.len() - SEGMENT_START + journal.manifest_max());
        if self.frees { bytes } else { bytes + journal.kept_free() }
    }

    /// Everything up to `through` has been said, or need not be. `None`: there is nothing to write, and that much is completed.
    ///
    /// # Panics
    /// If it has no room ([`Self::has_room`]).
    pub fn finish(self, through: Ticket) -> Option<Write> {
        let space = self.space();
        let Batch { journal, mut count, frees } = self;
        if !frees {
            // Nothing waits for more room.
            journal.room_wanted = 0;
        }
        let frees = frees || journal.frees();
        if count == 0 && !frees && journal.account.cleaned.is_none() {
            journal.handle_nothing_to_write(through);
            return None;
        }
        // What nobody would have written otherwise is written for cleaning, with its padding.
        let (bytes, again) = (journal.buffer.len() - SEGMENT_START, journal.account.again);
        let written = in_blocks(bytes) as u64;
        let is_again = again == (bytes - BATCH_HEADER) as u64;
        journal.segments.count_written(written, if is_again { written } else { again });
        let number = journal.next_batch;
        let begins = space > journal.left();
        if begins {
            assert!(space <= journal.left_in_spare(), "a batch is finished if it has room");
            journal.begin_segment();
        }
        let current = journal.current.as_ref().expect("a segment was begun").clone();
        journal.segments.settle(current.number, number + 1, &journal.account);
        let mut freed = Vec::new();
        if begins || journal.segments.any_free(current.number) {
            freed = journal.segments.take_free(current.number);
            let manifest = journal.manifest();
            format::append(&mut journal.buffer, &manifest, &[]);
            count += 1;
        }
        let length = journal.buffer.len() - SEGMENT_START;
        debug_assert!(in_blocks(length) <= space, "a manifest takes no more than was reckoned with");
        journal.buffer.grow_to(SEGMENT_START + in_blocks(length));
        let bytes = journal.buffer.as_mut_slice();
        let header = BatchHeader { number, length: format::short(length), count };
        format::seal(&mut bytes[SEGMENT_START..], header, current.epoch, current.offset);
        if begins {
            let (identity, epoch) = (journal.config.identity, current.epoch);
            let (segment, size) = (current.number, current.size);
            SegmentHeader { identity, segment, size, epoch, first_batch: number }
                .write(&mut bytes[..SEGMENT_START]);
        }
        let from = if begins { 0 } else { SEGMENT_START };
        let offset = u64::from(current.offset) - (SEGMENT_START - from) as u64;
        let buffer = journal.handle_write_begun(through, in_blocks(length), freed);
        Some(Write { segment: current.number, offset, buffer, from, batch_offset: current.offset })
    }

    fn say<M: Metadata>(&mut self, metadata: &M, payload: &[u8]) -> Placed {
        self.count += 1;
        let offset = format::short(self.journal.buffer.len() - SEGMENT_START);
        Placed { offset, length: format::append(&mut self.journal.buffer, metadata, payload) }
    }

    fn thing<M: Metadata>(&mut self, metadata: &M, payload: &[u8]) -> Placed {
        let placed = self.say(metadata, payload);
        self.journal.account.things += u64::from(placed.length);
        placed
    }

    fn amend<M: Metadata>(&mut self, metadata: &M, segment: u32) {
        let placed = self.say(metadata, &[]);
        self.journal.account.pin(segment, placed.length, false);
    }

    /// Whether what is said about a segment is needed beside it. What the segment to be cleaned says about itself is not.
    fn amends(&self, segment: u32) -> bool {
        self.journal.segments.contains(segment) && !self.journal.segments.is_cleaning(segment)
    }

    fn range(&self, deleted: &QueueDeleted) -> impl Iterator<Item = u32> {
        self.journal.segments.numbers_in(deleted.since..=deleted.until)
    }

    fn amend_range(&mut self, deleted: &QueueDeleted) {
        let numbers: Vec<u32> = self.range(deleted).collect();
        self.amend_all(deleted, &numbers);
    }

    fn amend_several(&mut self, done: &Done) {
        self.amend_all(done, &done.segments);
    }

    fn amend_all<M: Metadata>(&mut self, metadata: &M, segments: &[u32]) {
        let placed = self.say(metadata, &[]);
        self.journal.account.shared += u64::from(placed.length);
        for segment in segments {
            self.journal.account.pin(*segment, 0, false);
        }
    }

    /// What ends it later names the new place, so that one stays while the old one is there.
    fn copied(&mut self, position: Option<Position>, placed: Placed) {
        self.replaced(position);
        if let Some(position) = position {
            self.journal.account.pin(position.segment, 0, true);
            self.journal.account.again += u64::from(placed.length);
        }
    }

    fn count_again(&mut self, say: impl FnOnce(&mut Self)) {
        let before = self.bytes();
        say(self);
        self.journal.account.again += (self.bytes() - before) as u64;
    }

    fn replaced(&mut self, position: Option<Position>) {
        if let Some(position) = position {
            self.journal.account.gone.push((position.segment, position.length.into()));
        }
    }
}

/// What a removal takes that has a record of its own.
const REMOVAL_BYTES_MAX: usize = 64;

/// What a manifest takes without and with a segment more.
const MANIFEST_BYTES_MAX: usize = 64;
const SEGMENT_END_BYTES: usize = 12;

impl Journal {
    pub(crate) fn manifest_max(&self) -> usize {
        MANIFEST_BYTES_MAX + self.segments.len() * SEGMENT_END_BYTES
    }

    fn manifest(&self) -> Manifest {
        let current = self.segment();
        let end = |(segment, state): (u32, &Segment)| SegmentEnd { segment, batch_end: state.batch_end };
        Manifest {
            boot: self.config.boot,
            sequence_end: self.sequence_end,
            uid_end: self.uid_end,
            certain_from: self.certain_from,
            segments: self.segments.iter().filter(|(number, _)| *number != current).map(end).collect(),
        }
    }
}
