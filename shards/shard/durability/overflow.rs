//! Which messages are in the journal only, and when are they in memory again?
//!
//! Once messages take more than a part of the memory that there is for them, what is written to the journal leaves memory when it is
//! synced; its entry stays, and says where the record lies. A message that is not kept is written for that, as one that a start takes no
//! notice of, and its producer is answered when it is written, so that nobody sends more than the disk takes. What came before stays: it
//! is next for consumers.
//!
//! What somebody needs is read with what is next in its queue, and so is the next piece when consumers have come to the middle of one. What
//! was read stands in line; when it takes more than its part of the memory, what was read first leaves again, be it delivered or
//! not. An outcome's annotations for a message that is not there are added when it has been read; those that one had which leaves stay,
//! as they do not stand in its record.
//!
//! Invariants:
//! - what leaves memory has a record that is synced and says all of it but those annotations;
//! - one piece is on its way at a time; who waits for something in it looks again when it has come, or failed;
//! - a record that cannot be read costs its own message: that is taken out and told of.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use corelane_engine::{Away, DeadLetter, Place, QueueId, Stored};
use corelane_journal::{self as journal, Position, Record, TRANSIENT, Write};
use corelane_wire::amqp10::Map;
use hashbrown::{HashMap, HashSet};

use super::{Durability, Said, Source};
use crate::Shard;
use crate::effect::Effect;
use crate::limits::{
    AHEAD_MAX, ANNOTATIONS_BYTES_MAX, OVERFLOW_SHARE, READ_BYTES_MAX, READ_GAP_MAX, READ_MESSAGES_MAX,
    READ_SHARE, READ_STEPS_MAX,
};
use crate::memory::AWAY_BYTES;
use crate::message::Message;

#[derive(Default)]
pub(super) struct Overflow {
    /// There is too much in memory, as the next batch begins.
    pub(super) is_full: bool,
    /// Messages of the batch that is being written, and of those that are synced.
    written: Vec<(QueueId, Place)>,
    synced: Vec<(QueueId, Place)>,
    /// Where the write begins that is on its way, or has failed.
    unsynced: Option<(u32, u64)>,
    /// In the order in which they are read, and the same to be asked.
    wanted: VecDeque<Wanted>,
    known: HashSet<Wanted>,
    reading: Option<Reading>,
    ahead: VecDeque<Ahead>,
    /// What was read and is in memory, or was, the first one first, and what it takes.
    line: VecDeque<(QueueId, Place, u64)>,
    line_bytes: u64,
    annotations: HashMap<(QueueId, Place), Vec<Annotations>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    /// The message at a place, and what comes behind it.
    Piece { queue: QueueId, place: Place },
    /// That one alone: the piece could not be read.
    Alone { queue: QueueId, place: Place },
    /// The first dead letters.
    Letters { alone: bool },
}

/// Bytes that are being read.
struct Reading {
    offset: u32,
    wanted: Wanted,
    parts: Vec<(Part, Away)>,
    /// When it is to be gone on behind it.
    ahead: Option<Ahead>,
}

#[derive(Clone, Copy)]
enum Part {
    Entry(QueueId, Place),
    Letter,
}

/// When consumers have come to `middle`, what is at `end` and behind it is read.
#[derive(Clone, Copy)]
struct Ahead {
    queue: QueueId,
    middle: Place,
    end: Place,
}

/// Encoded maps.
pub(super) enum Annotations {
    /// They are all that the message has.
    Instead(Box<[u8]>),
    Added(Box<[u8]>),
}

const TRANSIENT_LENGTH: u32 = 1 << 31;

/// Where a message lies that is not in memory.
pub(super) fn away_of(position: Position, is_kept: bool) -> Away {
    let Position { segment, offset, length } = position;
    Away([segment, offset, if is_kept { length } else { length | TRANSIENT_LENGTH }])
}

/// Where that is, and whether the message is kept.
pub(super) fn position_of(away: Away) -> (Position, bool) {
    let Away([segment, offset, length]) = away;
    let position = Position { segment, offset, length: length & !TRANSIENT_LENGTH };
    (position, length & TRANSIENT_LENGTH == 0)
}

/// What a queue is to the journal for this boot.
pub(super) fn transient_uid(queue: QueueId) -> u64 {
    TRANSIENT | u64::from(queue.generation) << 32 | u64::from(queue.index)
}

/// The queue of a message that is not kept.
pub(super) fn transient_queue(uid: u64) -> Option<QueueId> {
    let generation = (uid & !TRANSIENT) >> 32;
    (uid & TRANSIENT != 0).then_some(QueueId { index: uid as u32, generation: generation as u32 })
}

impl Overflow {
    /// A write is on its way.
    pub(super) fn begin(&mut self, write: &Write) {
        self.unsynced = Some((write.segment, write.offset));
    }

    /// The message of this place stands in the batch that is being written.
    pub(super) fn note_written(&mut self, queue: QueueId, place: Place) {
        self.written.push((queue, place));
    }

    pub(super) fn note_synced(&mut self) {
        self.unsynced = None;
        self.synced.append(&mut self.written);
    }

    fn is_synced(&self, position: Position) -> bool {
        self.unsynced.is_none_or(|(segment, offset)| {
            position.segment != segment || u64::from(position.offset) < offset
        })
    }

    fn annotate(&mut self, queue: QueueId, place: Place, annotations: Annotations) {
        self.annotations.entry((queue, place)).or_default().push(annotations);
    }

    /// What outcomes have added to the annotations of a message, with what it had.
    pub(super) fn annotations_in(&self, source: Source, stored: Stored<&Message>) -> Bytes {
        match stored {
            Stored::Here(message) => super::batch::annotations_of(message),
            Stored::Away(_) => {
                let all = self.annotations_of(source.queue, source.place);
                Bytes::copy_from_slice(all.unwrap_or_default())
            }
        }
    }

    /// The same, of one that is not in memory, as far as all of it is known.
    fn annotations_of(&self, queue: QueueId, place: Place) -> Option<&[u8]> {
        let all = self.annotations.get(&(queue, place))?;
        all.iter().rev().find_map(|annotations| match annotations {
            Annotations::Instead(map) => Some(&**map),
            Annotations::Added(_) => None,
        })
    }

    fn want(&mut self, wanted: Wanted) {
        let is_read = self.reading.as_ref().is_some_and(|reading| reading.wanted == wanted);
        if !is_read && self.known.insert(wanted) {
            self.wanted.push_back(wanted);
        }
    }

    fn want_first(&mut self, wanted: Wanted) {
        if self.known.insert(wanted) {
            self.wanted.push_front(wanted);
        }
    }

    /// The first one is being read, or need not be.
    fn take_first(&mut self) {
        if let Some(wanted) = self.wanted.pop_front() {
            self.known.remove(&wanted);
        }
    }
}

impl Annotations {
    fn bytes(&self) -> u64 {
        match self {
            Annotations::Instead(map) | Annotations::Added(map) => map.len() as u64,
        }
    }

    fn memory(&self) -> u64 {
        self.bytes() + ANNOTATIONS_BYTES
    }
}

/// Memory of annotations of a message that is not in memory, beside their bytes.
const ANNOTATIONS_BYTES: u64 = 96;

impl Message {
    /// Where it can be found when it is not in memory; none: it has to stay.
    fn place_on_disk(&self, overflow: &Overflow) -> Option<Away> {
        let position = self.position.filter(|position| overflow.is_synced(*position))?;
        Some(away_of(position, self.is_kept))
    }
}

/// Going.
impl Shard {
    /// Whether messages take more memory than what is not on the disk may.
    pub(super) fn overflows(&self) -> bool {
        self.memory_used > self.memory_max / OVERFLOW_SHARE
    }

    /// A batch is about to begin: what is written in it may leave memory, or not.
    pub(super) fn note_overflow(&mut self) {
        let is_full = self.overflows();
        if let Some(durability) = &mut self.durability {
            // Who stops needs no room.
            durability.overflow.is_full = is_full && durability.stopped.is_none();
        }
    }

    /// A message that is not kept was stored.
    #[inline]
    pub(crate) fn overflow_stored(&mut self, queue: QueueId, place: Place) {
        if self.durability.is_some() && self.overflows() {
            self.write_to_free(queue, place);
        }
    }

    #[cold]
    fn write_to_free(&mut self, queue: QueueId, place: Place) {
        let message = self.engine.message_at(queue, place).and_then(Stored::here);
        if message.is_some_and(|message| !message.is_answer) && !self.takes_nothing() {
            self.note(Said::Overflowed { queue, place });
        }
    }

    /// What was synced leaves memory, as long as that is too full.
    pub(super) fn send_synced_away(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        if durability.overflow.synced.is_empty() {
            return;
        }
        let mut synced = std::mem::take(&mut durability.overflow.synced);
        for (queue, place) in synced.drain(..) {
            if !self.overflows() {
                break;
            }
            // What somebody has is settled soon.
            if self.engine.is_free_at(queue, place) {
                self.send_away(queue, place);
            }
        }
        synced.clear();
        if let Some(durability) = &mut self.durability {
            durability.overflow.synced = synced;
        }
    }

    /// A message leaves memory, if it may. False: it is there, and has to stay for now.
    fn send_away(&mut self, queue: QueueId, place: Place) -> bool {
        let Some(durability) = &self.durability else { return true };
        let mut stays = false;
        let away = |message: &Message| {
            let away = message.place_on_disk(&durability.overflow);
            stays = away.is_none();
            away
        };
        if let Some(message) = self.engine.send_away(queue, place, away) {
            self.memory_used += AWAY_BYTES;
            if message.is_annotated {
                let map = message.annotations().into();
                self.keep_annotations(queue, place, Annotations::Instead(map));
            }
            self.forget(message);
        }
        !stays
    }

    /// What was read first leaves again, of so many: not what has come just now, so that whoever has asked for it gets it.
    fn bound_line(&mut self, mut count: usize) {
        let max = self.memory_max / READ_SHARE;
        while let Some(durability) = &mut self.durability
            && durability.overflow.line_bytes > max
            && count > 0
            && let Some((queue, place, bytes)) = durability.overflow.line.pop_front()
        {
            count -= 1;
            durability.overflow.line_bytes -= bytes;
            if !self.send_away(queue, place) {
                self.put_in_line(queue, place, bytes);
            }
        }
    }

    fn put_in_line(&mut self, queue: QueueId, place: Place, bytes: u64) {
        if let Some(durability) = &mut self.durability {
            durability.overflow.line.push_back((queue, place, bytes));
            durability.overflow.line_bytes += bytes;
        }
    }

    /// Where the record of the message at this place lies.
    pub(crate) fn position_at(&self, queue: QueueId, place: Place) -> Option<Position> {
        match self.engine.message_at(queue, place)? {
            Stored::Here(message) => message.position,
            Stored::Away(away) => Some(position_of(away).0),
        }
    }

    /// A message that is not kept goes its own way: what was written of it is of no use.
    pub(crate) fn forget_transient(&mut self, message: &Message) {
        if let Some(position) = message.position.filter(|_| !message.is_kept) {
            self.note(Said::Forgotten(position));
        }
    }
}

/// Coming back.
impl Shard {
    /// A message that is not in memory is to be there.
    pub(crate) fn want_body(&mut self, queue: QueueId, place: Place) {
        if let Some(durability) = &mut self.durability {
            durability.overflow.want(Wanted::Piece { queue, place });
        }
    }

    /// These annotations are added to a message that is not in memory, when it has been read. As in memory, what would be too many for a
    /// message is left out, and so is what there is no memory for.
    pub(crate) fn annotate_when_read(&mut self, queue: QueueId, place: Place, map: Box<[u8]>) {
        let Some(durability) = &self.durability else { return };
        let waiting = durability.overflow.annotations.get(&(queue, place)).into_iter().flatten();
        let bytes = waiting.map(Annotations::bytes).sum::<u64>() + map.len() as u64;
        let added = Annotations::Added(map);
        if bytes <= ANNOTATIONS_BYTES_MAX as u64 && added.memory() <= self.memory_left() {
            self.keep_annotations(queue, place, added);
            self.want_body(queue, place);
        }
    }

    /// Keeps annotations of a message that is not in memory until it is read, or gone.
    pub(super) fn keep_annotations(&mut self, queue: QueueId, place: Place, annotations: Annotations) {
        if let Some(durability) = &mut self.durability {
            self.memory_used += annotations.memory();
            durability.overflow.annotate(queue, place, annotations);
        }
    }

    /// Bytes of annotations that outcomes have added to the message at this place, with what it had.
    pub(crate) fn annotations_size(&self, queue: QueueId, place: Place) -> usize {
        let Some(durability) = &self.durability else { return 0 };
        let stored = self.engine.message_at(queue, place);
        stored.map_or(0, |stored| durability.overflow.annotations_in(Source { queue, place }, stored).len())
    }

    /// The annotations of a message that was not in memory, in the order in which they came.
    pub(super) fn take_annotations(&mut self, queue: QueueId, place: Place) -> Vec<Annotations> {
        let Some(durability) = &mut self.durability else { return Vec::new() };
        let all = durability.overflow.annotations.remove(&(queue, place)).unwrap_or_default();
        self.memory_used -= all.iter().map(Annotations::memory).sum::<u64>();
        all
    }

    /// Whether the next dead letter is one that has to be read first. One that goes nowhere need not be.
    pub(crate) fn is_letter_unread(&mut self) -> bool {
        let next = self.dead_letters.front();
        let is_unread = next.is_some_and(|letter| {
            letter.message.away().is_some() && self.queues.last_will(letter.queue).is_some()
        });
        if let (true, Some(durability)) = (is_unread, &mut self.durability) {
            durability.overflow.want(Wanted::Letters { alone: false });
        }
        is_unread
    }

    /// Reads the next piece, if something is wanted and nothing is on its way.
    pub(super) fn read_bodies(&mut self, now: u64) {
        while let Some((queue, place)) = self.engine.take_wanted() {
            self.want_body(queue, place);
        }
        let mut later = 0;
        loop {
            let Some(durability) = &mut self.durability else { return };
            let overflow = &mut durability.overflow;
            if overflow.reading.is_some() || later > 0 && later >= overflow.wanted.len() {
                return;
            }
            let Some(wanted) = overflow.wanted.front().copied() else {
                return self.read_ahead();
            };
            match self.plan(wanted) {
                Plan::Read(reading, segment, length) => return self.begin_reading(reading, segment, length),
                Plan::Wait => return,
                Plan::Later => {
                    if let Some(durability) = &mut self.durability {
                        durability.overflow.wanted.rotate_left(1);
                    }
                    later += 1;
                    continue;
                }
                Plan::Needless => {}
            }
            if let Some(durability) = &mut self.durability {
                durability.overflow.take_first();
            }
            if let Wanted::Piece { queue, .. } | Wanted::Alone { queue, .. } = wanted {
                self.engine.resume_reading(now, queue);
                self.resume_questions(now);
            }
        }
    }

    /// Whether what is read to be written elsewhere has to wait.
    pub(crate) fn has_to_write_first(&self) -> bool {
        let writes = |durability: &Durability| {
            durability.journal.said() > durability.journal.completed() && !durability.journal.is_failed()
        };
        self.is_short_of_memory() && self.durability.as_deref().is_some_and(writes)
    }

    fn begin_reading(&mut self, reading: Reading, segment: u32, length: u32) {
        let Some(durability) = &mut self.durability else { return };
        let overflow = &mut durability.overflow;
        // What is read ahead nobody has asked for yet.
        if overflow.wanted.front() == Some(&reading.wanted) {
            overflow.take_first();
        }
        let offset = reading.offset;
        overflow.reading = Some(reading);
        self.counters.reads += 1;
        self.counters.read_bytes += u64::from(length);
        self.effects.push(Effect::ReadBodies { number: segment, offset, length });
    }

    /// Reads what consumers will come to next.
    fn read_ahead(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let overflow = &mut durability.overflow;
        if overflow.ahead.is_empty() || overflow.line_bytes > self.memory_max / READ_SHARE / 2 {
            return;
        }
        let engine = &self.engine;
        let is_due = |ahead: &Ahead| engine.first_in_reach(ahead.queue).is_some_and(|at| at >= ahead.middle);
        let Some(at) = overflow.ahead.iter().position(is_due) else { return };
        let Some(Ahead { queue, end, .. }) = overflow.ahead.remove(at) else { return };
        let next = self.engine.away_from(queue, end, READ_STEPS_MAX).next();
        if let Some((place, _)) = next
            && let Plan::Read(reading, segment, length) = self.plan(Wanted::Piece { queue, place })
        {
            self.begin_reading(reading, segment, length);
        }
    }

    fn plan(&self, wanted: Wanted) -> Plan {
        let Some(durability) = &self.durability else { return Plan::Needless };
        let overflow = &durability.overflow;
        let bytes_max =
            READ_BYTES_MAX.min(u32::try_from(self.memory_max / READ_SHARE / 4).unwrap_or(u32::MAX));
        let (first, rest): (_, Box<dyn Iterator<Item = (Part, Away)> + '_>) = match wanted {
            Wanted::Piece { queue, place } | Wanted::Alone { queue, place } => {
                let away = self.engine.message_at(queue, place).and_then(|stored| stored.away());
                let rest = self.engine.away_from(queue, place.next(), READ_STEPS_MAX);
                let rest = rest.map(move |(place, away)| (Part::Entry(queue, place), away));
                (away.map(|away| (Part::Entry(queue, place), away)), Box::new(rest))
            }
            Wanted::Letters { .. } if self.has_to_write_first() => return Plan::Later,
            Wanted::Letters { .. } => {
                let mut letters = self.dead_letters.iter().take(READ_STEPS_MAX);
                let first = letters.next().and_then(|letter| self.letter_away(letter));
                let rest = letters.filter_map(|letter| self.letter_away(letter));
                let rest = rest.map(|away| (Part::Letter, away));
                (first.map(|away| (Part::Letter, away)), Box::new(rest))
            }
        };
        let Some(first) = first else { return Plan::Needless };
        let begin = position_of(first.1).0;
        if !overflow.is_synced(begin) && !durability.journal.is_failed() {
            return Plan::Wait;
        }
        let mut parts = vec![first];
        let mut end = begin.offset + begin.length;
        let alone = matches!(wanted, Wanted::Alone { .. } | Wanted::Letters { alone: true });
        for (part, away) in rest.take(if alone { 0 } else { READ_MESSAGES_MAX - 1 }) {
            let Position { segment, offset, length } = position_of(away).0;
            let is_near = segment == begin.segment && offset >= end && offset - end <= READ_GAP_MAX;
            let is_small = is_near && offset + length - begin.offset <= bytes_max;
            if !is_small || !overflow.is_synced(position_of(away).0) {
                break;
            }
            parts.push((part, away));
            end = offset + length;
        }
        let ahead = match (parts[parts.len() / 2].0, parts[parts.len() - 1].0) {
            (Part::Entry(queue, middle), Part::Entry(_, last)) => {
                Some(Ahead { queue, middle, end: last.next() })
            }
            (Part::Letter, _) | (_, Part::Letter) => None,
        };
        let reading = Reading { offset: begin.offset, wanted, parts, ahead };
        Plan::Read(reading, begin.segment, end - begin.offset)
    }

    /// What was asked for was read, or cannot be.
    pub(crate) fn on_bodies_read(&mut self, now: u64, result: Result<&[u8], String>) {
        let Some(durability) = &mut self.durability else { return };
        let Some(reading) = durability.overflow.reading.take() else { return };
        let read_before = durability.overflow.line.len();
        let Reading { offset, wanted, parts, ahead } = reading;
        let is_alone = parts.len() == 1;
        let mut why = "its record is damaged".to_owned();
        if let Err(reason) = &result {
            if !is_alone {
                let again = match wanted {
                    Wanted::Piece { queue, place } | Wanted::Alone { queue, place } => {
                        Wanted::Alone { queue, place }
                    }
                    Wanted::Letters { .. } => Wanted::Letters { alone: true },
                };
                durability.overflow.want_first(again);
                return;
            }
            why.clone_from(reason);
        }
        for (n, (part, away)) in parts.iter().enumerate() {
            let (position, is_kept) = position_of(*away);
            let begin = (position.offset - offset) as usize;
            let bytes =
                result.as_ref().ok().and_then(|bytes| bytes.get(begin..begin + position.length as usize));
            let message = bytes.and_then(|bytes| self.read_record(position, is_kept, bytes));
            match (*part, message) {
                (Part::Entry(queue, place), Some(message)) => {
                    self.bring_back(now, (queue, place), *away, message)
                }
                (Part::Letter, Some(message)) => self.bring_letter_back(*away, message),
                // Others are read again when it is their turn.
                (Part::Entry(queue, place), None) if n == 0 => {
                    self.lose_entry(now, (queue, place), *away, &why);
                }
                (Part::Letter, None) if n == 0 => self.lose_letter(now, *away, &why),
                (_, None) => {}
            }
        }
        self.bound_line(read_before);
        if let Some(ahead) = ahead
            && let Some(durability) = &mut self.durability
        {
            let known = &mut durability.overflow.ahead;
            known.retain(|known| known.queue != ahead.queue);
            known.truncate(AHEAD_MAX - 1);
            known.push_front(ahead);
        }
        if let Wanted::Piece { queue, .. } | Wanted::Alone { queue, .. } = wanted {
            self.engine.resume_reading(now, queue);
        }
        self.resume_questions(now);
    }

    /// The message whose record lies elsewhere, as `on_disk` has it: bytes of a segment.
    pub(crate) fn bytes_of_away<'a>(
        &self,
        away: Away,
        on_disk: &impl Fn(u32, Range<usize>) -> &'a [u8],
    ) -> Option<&'a [u8]> {
        let position = position_of(away).0;
        let begin = position.offset as usize;
        let bytes = on_disk(position.segment, begin..begin + position.length as usize);
        match self.durability.as_ref()?.journal.read(position, bytes)? {
            Record::Message(_, payload) => Some(payload),
            _ => None,
        }
    }

    fn read_record(&mut self, position: Position, is_kept: bool, bytes: &[u8]) -> Option<Message> {
        let durability = self.durability.as_ref()?;
        let Some(Record::Message(record, payload)) = durability.journal.read(position, bytes) else {
            return None;
        };
        let mut message = self.revive(&record, payload)?;
        message.position = Some(position);
        message.is_kept = is_kept;
        message.was_read = true;
        Some(message)
    }

    /// A message as it was written.
    pub(super) fn revive(&mut self, record: &journal::Message, payload: &[u8]) -> Option<Message> {
        let bytes = self.buffers.copy(payload);
        let mut message = match Message::new_in(&mut self.buffers, bytes, record.format) {
            Ok(message) => message,
            Err(bytes) => {
                self.buffers.give(bytes);
                return None;
            }
        };
        message.enqueued_at = record.enqueued_at;
        message.schedule(record.enqueued_at);
        if let Some(details) = &record.details {
            message.restore_deaths(&details.deaths);
            message.origin = details.origin.map(Box::new);
            if let Ok(map) = Map::decode(&details.annotations) {
                message.restore_annotations(map);
                // They stand in its record.
                message.is_annotated = false;
            }
        }
        Some(message)
    }

    fn bring_back(&mut self, now: u64, (queue, place): (QueueId, Place), away: Away, message: Message) {
        // It may lie elsewhere by now, or be gone.
        let there = self.engine.message_at(queue, place).and_then(|stored| stored.away());
        if there != Some(away) {
            return self.dissolve(message);
        }
        let memory = message.memory();
        if let Err(message) = self.engine.bring_back(now, queue, place, message) {
            return self.dissolve(message);
        }
        self.memory_used = self.memory_used - AWAY_BYTES + memory;
        self.put_in_line(queue, place, memory);
        self.add_annotations(queue, place);
    }

    /// What outcomes have added while the message was not there.
    fn add_annotations(&mut self, queue: QueueId, place: Place) {
        let all = self.take_annotations(queue, place);
        let memory_left = self.memory_left();
        let mut added = false;
        if let Some(Stored::Here(message)) = self.engine.lend_at(queue, place).filter(|_| !all.is_empty()) {
            let before = message.memory();
            added = add_all(message, &all, memory_left);
            self.memory_used = self.memory_used - before + message.memory();
        }
        if added && self.engine.is_kept_at(queue, place) {
            self.note(Said::Returned { queue, place });
        }
    }

    fn bring_letter_back(&mut self, away: Away, mut message: Message) {
        let index = self.dead_letters.iter().position(|letter| self.letter_away(letter) == Some(away));
        let place = index
            .and_then(|index| self.dead_letters.get_mut(index))
            .map(|letter| (letter.queue, letter.place));
        if let Some((queue, place)) = place {
            let all = self.take_annotations(queue, place);
            add_all(&mut message, &all, self.memory_left());
        }
        let letter = index.and_then(|index| self.dead_letters.get_mut(index));
        match letter {
            Some(letter) => {
                self.memory_used = self.memory_used - AWAY_BYTES + message.memory();
                letter.message = Stored::Here(message);
            }
            None => self.dissolve(message),
        }
    }

    /// A message that cannot be read any more is taken out. Its record stays: perhaps a start can read it.
    fn lose_entry(&mut self, now: u64, (queue, place): (QueueId, Place), away: Away, why: &str) {
        let there = self.engine.message_at(queue, place).and_then(|stored| stored.away());
        if there == Some(away) && self.engine.lose(now, queue, place) {
            self.memory_used -= AWAY_BYTES;
            drop(self.take_annotations(queue, place));
            self.warn_unreadable(now, queue, away, why);
        }
    }

    /// Where a dead letter lies that is not in memory.
    pub(crate) fn letter_away(&self, letter: &DeadLetter<Message>) -> Option<Away> {
        let away = letter.message.away()?;
        // It may have been written again.
        let source = Source { queue: letter.queue, place: letter.place };
        let departure = self.durability.as_ref().and_then(|durability| durability.leaving.get(source));
        Some(departure.map_or(away, |departure| away_of(departure.position, true)))
    }

    /// A dead letter that is not in memory goes nowhere.
    pub(crate) fn forget_letter(&mut self, Source { queue, place }: Source, away: Away) {
        self.memory_used -= AWAY_BYTES;
        drop(self.take_annotations(queue, place));
        if let (position, false) = position_of(away) {
            self.note(Said::Forgotten(position));
        }
    }

    fn lose_letter(&mut self, now: u64, away: Away, why: &str) {
        let next = self.dead_letters.front().filter(|letter| self.letter_away(letter) == Some(away));
        if let Some((queue, place)) = next.map(|letter| (letter.queue, letter.place)) {
            drop(self.dead_letters.pop_front());
            self.say_letter_gone(Source { queue, place });
            self.forget_letter(Source { queue, place }, away);
            self.warn_unreadable(now, queue, away, why);
        }
    }

    fn warn_unreadable(&mut self, now: u64, queue: QueueId, away: Away, why: &str) {
        self.counters.messages_unreadable += 1;
        let Position { segment, offset, length } = position_of(away).0;
        let name = self.queues.get(queue).map_or("a queue that is gone by now", |node| &node.name);
        self.unreadable_warnings.warn(now, &mut self.effects, |more| {
            format!(
                "a message of {name} cannot be read from the journal (segment {segment}, bytes {offset} to {}) and is taken out: {why}; \
                 {more} others since this was last said",
                offset + length
            )
        });
    }
}

/// Adds annotations to a message that was read. Whether it has some then of which nothing is written.
fn add_all(message: &mut Message, all: &[Annotations], memory_left: u64) -> bool {
    let mut added = false;
    for annotations in all {
        match annotations {
            Annotations::Instead(map) => {
                if let Ok(map) = Map::decode(map) {
                    message.restore_annotations(map);
                }
            }
            Annotations::Added(map) => {
                if let Ok(map) = Map::decode(map) {
                    added |= message.annotate(map, memory_left).is_some();
                }
            }
        }
    }
    added
}

/// What becomes of something that is wanted.
enum Plan {
    /// With the segment and the bytes to be read of it.
    Read(Reading, u32, u32),
    /// It is being written.
    Wait,
    /// What was read before is to be written first.
    Later,
    /// It is there already, or not any more.
    Needless,
}
