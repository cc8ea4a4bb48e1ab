//! How does what was said become the journal's next batch?
//!
//! Entries are looked up when the batch is encoded: what is not there any more is not written. A batch that is full ends where no
//! group is open; when something has left its queue for another place of this shard since it was said, the batch goes on to
//! where that stands.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelane_engine::{DeadLetterReason, Engine, EntryView, Outcome, Place, QueueId, Stored};
use corelane_journal::{
    self as journal, Batch, Decided, Details, Done, Placed, Position, Prepared, Removal, Returned, Started,
    Stopped, TransactionName, Write,
};
use hashbrown::HashMap;

use super::exchanges::Definitions;
use super::leaving::{Leaving, death_of};
use super::overflow::{Overflow, away_of, position_of, transient_uid};
use super::{Durability, Kept, Said, Source, definition};
use crate::Shard;
use crate::dead_letters::DeadLetters;
use crate::effect::Effect;
use crate::limits::BATCH_BYTES_MAX;
use crate::mail::TransactionKey;
use crate::message::Message;
use crate::participant::{Participations, Posted, PreparedPart, Retired};
use crate::queues::Queues;

/// What a batch puts where.
#[derive(Default)]
pub(super) struct Placing {
    messages: Vec<(QueueId, Place, Placed)>,
    departures: Vec<(Source, Placed)>,
    died: Vec<(Source, u8)>,
    queues: Vec<(QueueId, Placed)>,
    definitions: Vec<(u64, Placed)>,
    prepared: Vec<(TransactionKey, Placed)>,
    decided: Vec<(TransactionName, Placed)>,
    /// Dead letters, by their indices, with the uids of their queues.
    letters: Vec<(usize, u64, Placed)>,
    /// Not there any more.
    forgotten: Vec<Position>,
}

/// What entries, queues and transactions are like while a batch is encoded.
struct Sources<'a> {
    engine: &'a Engine<Message>,
    queues: &'a mut Queues,
    definitions: &'a mut Definitions,
    participations: &'a Participations,
    leaving: &'a Leaving,
    overflow: &'a Overflow,
    dead_letters: &'a DeadLetters,
    decided: &'a HashMap<TransactionName, Position>,
}

impl Placing {
    fn clear(&mut self) {
        self.messages.clear();
        self.departures.clear();
        self.died.clear();
        self.queues.clear();
        self.definitions.clear();
        self.prepared.clear();
        self.decided.clear();
        self.letters.clear();
        self.forgotten.clear();
    }
}

impl Shard {
    /// Writes what was said, if nothing is on its way, and keeps the promises that need not wait for more. True if there is more to
    /// do at once.
    #[inline]
    pub(crate) fn run_journal(&mut self, now: u64) -> bool {
        self.durability.is_some() && self.run_kept_journal(now)
    }

    fn run_kept_journal(&mut self, now: u64) -> bool {
        self.say_what_left();
        let mut kept = self.keep_promises(now);
        self.send_synced_away();
        self.note_overflow();
        while self.begin_write() {
            kept |= self.keep_promises(now);
        }
        self.ask_for_segment(now);
        self.clean_journal();
        self.read_bodies(now);
        kept
    }

    /// Begins a batch. True: there was nothing to write in it.
    fn begin_write(&mut self) -> bool {
        let Shard { engine, queues, participations, dead_letters, .. } = self;
        let Some(durability) = &mut self.durability else { return false };
        if durability.waits || (durability.stopped.is_some() && durability.line.is_empty()) {
            return false;
        }
        let Durability {
            journal,
            line,
            begun,
            placing,
            removals,
            leaving,
            overflow,
            definitions,
            decided,
            whole,
            taken,
            waits,
            backup,
            ..
        } = &mut **durability;
        let completed = journal.completed();
        if backup.holds() {
            return false;
        }
        let Some(mut batch) = journal.begin_batch() else { return false };
        let mut sources =
            Sources { engine, queues, definitions, participations, leaving, overflow, dead_letters, decided };
        let mut open = false;
        let mut last = None;
        let mut count = 0;
        while let Some(said) = line.pop_front() {
            count += 1;
            match &said {
                Said::Begin => open = true,
                Said::End => open = false,
                Said::Removed(removal) => removals.push(*removal),
                Said::Stopped { time } => last = Some(Stopped { time: *time }),
                said => sources.encode(said, open, &mut batch, placing),
            }
            taken.push(said);
            let is_whole = begun.0 + count >= whole.0 || batch.bytes() >= BATCH_BYTES_MAX;
            if !open && is_whole && batch.is_full_with(removals.len()) {
                break;
            }
        }
        sources.letters(&mut batch, placing);
        batch.remove(removals);
        removals.clear();
        last.iter().for_each(|stopped| batch.stopped(stopped));
        if !batch.has_room() {
            batch.wait_for_room();
            // As if nothing had been begun: there may be less to say when there is room again, or when it is tried again.
            taken.drain(..).rev().for_each(|said| line.push_front(said));
            placing.clear();
            *waits = true;
            self.free_segments();
            return false;
        }
        taken.clear();
        begun.0 += count;
        let through = if *begun >= *whole { *begun } else { completed };
        let Some(write) = batch.finish(through) else { return true };
        durability.place(&write, engine, queues, participations, dead_letters);
        self.counters.count_write(write.bytes().len());
        self.effects.push(Effect::Write { write });
        false
    }
}

/// Where the disk has no room.
impl Shard {
    /// What waits for room may stand before what makes some. So where that is all that is left in a segment, it is free at once, and need not
    /// be said any more. Nobody is told for that.
    fn free_segments(&mut self) {
        let Shard { durability: Some(durability), counters, effects, .. } = self else { return };
        let Durability { journal, line, begun, whole, refused, .. } = &mut **durability;
        if refused.is_none() {
            return;
        }
        let mut gone: BTreeMap<u32, u64> = BTreeMap::new();
        let mut open = false;
        for (ticket, said) in (begun.0 + 1..).zip(line.iter()) {
            let position = match said {
                Said::Begin => {
                    open = true;
                    continue;
                }
                Said::End => {
                    open = false;
                    continue;
                }
                // It holds with the others of its group, or has changed its place, and that is yet to be written.
                _ if open || ticket <= whole.0 => continue,
                Said::Removed(Removal { position, .. })
                | Said::Forgotten(position)
                | Said::QueueDeleted { definition: position, .. } => position,
                Said::Message { .. }
                | Said::Overflowed { .. }
                | Said::AwayAgain { .. }
                | Said::Returned { .. }
                | Said::Queue { .. }
                | Said::Definition { .. }
                | Said::Closed { .. }
                | Said::Died { .. }
                | Said::Prepared { .. }
                | Said::Decided { .. }
                | Said::Done { .. }
                | Said::Started { .. }
                | Said::Stopped { .. }
                | Said::MessageAgain { .. }
                | Said::ReturnedAgain { .. }
                | Said::DepartureAgain { .. }
                | Said::PreparedAgain { .. }
                | Said::DecidedAgain { .. }
                | Said::Carried(_)
                | Said::Cleaned { .. } => continue,
            };
            *gone.entry(position.segment).or_default() += u64::from(position.length);
        }
        if let Some(write) = journal.begin_freeing(&gone).and_then(|batch| batch.finish(*begun)) {
            counters.count_write(write.bytes().len());
            effects.push(Effect::Write { write });
        }
    }
}

impl Sources<'_> {
    /// `is_open`: more of its group is to come.
    fn encode(&mut self, said: &Said, is_open: bool, batch: &mut Batch<'_>, placing: &mut Placing) {
        match *said {
            Said::Message { queue, place } => self.message((queue, place), None, None, batch, placing),
            Said::MessageAgain { queue, place } => self.message_again(queue, place, batch, placing),
            Said::Overflowed { queue, place } => {
                let message = self.engine.message_at(queue, place).and_then(Stored::here);
                if self.overflow.is_full && message.is_some_and(|message| message.position.is_none()) {
                    self.message((queue, place), None, None, batch, placing);
                }
            }
            Said::AwayAgain { queue, place, ref message, ref payload } => {
                self.away_again((queue, place), message, payload, batch, placing);
            }
            Said::Returned { queue, place } => self.returned(queue, place, batch, Batch::returned),
            Said::ReturnedAgain { queue, place } => {
                self.returned(queue, place, batch, Batch::returned_again);
            }
            Said::Queue { queue } => {
                let Some(node) = self.queues.get_mut(queue) else { return };
                let Some(kept) = &mut node.kept else { return };
                kept.version += 1;
                let kept = **kept;
                let placed = batch.queue(&definition::record_of(node, &kept), kept.definition);
                placing.queues.push((queue, placed));
            }
            Said::Definition { uid } => self.definition(uid, batch, placing),
            Said::Closed { queue } => {
                let Some(closing) = self.queues.closing_mut(queue) else { return };
                closing.kept.version += 1;
                let placed = batch.queue(&definition::record_of_closed(closing), closing.kept.definition);
                placing.queues.push((queue, placed));
            }
            Said::Died { source, ref returned } => {
                let position = self.leaving.get(source).map(|departure| departure.position);
                if position.is_none() && !is_open {
                    return;
                }
                let segment = position.map_or(returned.segment, |position| position.segment);
                batch.returned(&Returned { segment, ..(**returned).clone() });
                placing.died.push((source, returned.death));
            }
            Said::QueueDeleted { uid, since, definition } => batch.queue_deleted(uid, since, definition),
            Said::Prepared { transaction } => self.prepared(transaction, false, batch, placing),
            Said::PreparedAgain { transaction } => self.prepared(transaction, true, batch, placing),
            Said::Decided { name, ref participants } => {
                let decided = Decided { transaction: name, participants: participants.clone() };
                placing.decided.push((name, batch.decided(&decided, None)));
            }
            Said::DecidedAgain { name, ref participants } => {
                if let Some(position) = self.decided.get(&name) {
                    let again = Decided { transaction: name, participants: participants.clone() };
                    placing.decided.push((name, batch.decided(&again, Some(*position))));
                }
            }
            Said::Done { name, committed, prepared, ref segments } => {
                let segments = segments.clone();
                batch.done(&Done { transaction: name, committed, segments }, prepared);
            }
            Said::DepartureAgain { source, ref message, ref payload } => {
                self.departure_again(source, message, payload, batch, placing);
            }
            Said::Forgotten(position) => placing.forgotten.push(position),
            Said::Started { time, shards, boot } => batch.started(&Started { boot, shards, time }),
            Said::Carried(ref record) => batch.carry(record),
            Said::Cleaned { segment } => batch.cleaned(segment),
            Said::Begin | Said::End | Said::Removed(_) | Said::Stopped { .. } => {
                unreachable!("they need no source")
            }
        }
    }

    /// An exchange or a binding.
    fn definition(&mut self, uid: u64, batch: &mut Batch<'_>, placing: &mut Placing) {
        if let Some((record, before)) = self.definitions.next_record(uid) {
            placing.definitions.push((uid, batch.queue(&record, before)));
        }
    }

    /// The message at a place. `transaction`: it is there if that commits. `copied`: it lies there already.
    fn message(
        &self,
        (queue, place): (QueueId, Place),
        transaction: Option<TransactionName>,
        copied: Option<Position>,
        batch: &mut Batch<'_>,
        placing: &mut Placing,
    ) {
        let Some((Stored::Here(message), view)) = self.entry(queue, place) else { return };
        let uid = if message.is_kept { self.uid(queue) } else { Some(transient_uid(queue)) };
        let Some(uid) = uid else { return };
        let record = record_of(uid, place, message, &view, transaction);
        placing.messages.push((queue, place, batch.message(&record, message.bytes(), copied)));
    }

    /// A message that lies somewhere already.
    fn message_again(&self, queue: QueueId, place: Place, batch: &mut Batch<'_>, placing: &mut Placing) {
        let message = self.engine.message_at(queue, place).and_then(Stored::here);
        let position = message.and_then(|message| message.position);
        if position.is_some() {
            let name = self.participations.name_of(queue, place);
            self.message((queue, place), name, position, batch, placing);
        }
    }

    /// A message that has left its queue, with its record as it was read.
    fn departure_again(
        &self,
        source: Source,
        record: &journal::Message,
        payload: &[u8],
        batch: &mut Batch<'_>,
        placing: &mut Placing,
    ) {
        let Some(departure) = self.leaving.get(source) else { return };
        let mut message = record.clone();
        message.delivery_count = departure.delivery_count;
        message.acquired_count = departure.acquired_count;
        if departure.death != 0 {
            message.details.get_or_insert_default().death = departure.death;
        }
        if !departure.annotations.is_empty() {
            message.details.get_or_insert_default().annotations = departure.annotations.clone();
        }
        let placed = batch.message(&message, payload, Some(departure.position));
        placing.departures.push((source, placed));
    }

    /// A message that is not in memory, with its record as it was read. If it is in memory again, that is written.
    fn away_again(
        &self,
        (queue, place): (QueueId, Place),
        record: &journal::Message,
        payload: &[u8],
        batch: &mut Batch<'_>,
        placing: &mut Placing,
    ) {
        let Some((stored, view)) = self.entry(queue, place) else {
            // It may have died meanwhile.
            return self.departure_again(Source { queue, place }, record, payload, batch, placing);
        };
        let Stored::Away(away) = stored else {
            return self.message_again(queue, place, batch, placing);
        };
        // Its transaction is committed, or it would be in memory.
        let mut details = record.details.as_deref().cloned().unwrap_or_default();
        details.transaction = None;
        let annotations = self.annotations((queue, place), stored);
        if !annotations.is_empty() {
            details.annotations = annotations;
        }
        let record = journal::Message {
            details: (details != Details::default()).then(|| Box::new(details)),
            expires_at: view.expires_at.unwrap_or(0),
            held_until: view.held_until.unwrap_or(0),
            delivery_count: view.delivery_count,
            acquired_count: view.acquired_count,
            ..record.clone()
        };
        let copied = Some(position_of(away).0);
        placing.messages.push((queue, place, batch.message(&record, payload, copied)));
    }

    fn returned<'b>(
        &self,
        queue: QueueId,
        place: Place,
        batch: &mut Batch<'b>,
        say: fn(&mut Batch<'b>, &Returned),
    ) {
        let Some((stored, view)) = self.entry(queue, place) else { return };
        // What is written in this batch is written with its counts.
        let (Some(uid), Some(position)) = (self.uid(queue), position_in(stored)) else { return };
        let returned = Returned {
            uid,
            place: place.0,
            segment: position.segment,
            delivery_count: view.delivery_count,
            acquired_count: view.acquired_count,
            held_until: view.held_until.unwrap_or(0),
            annotations: self.annotations((queue, place), stored),
            death: 0,
        };
        say(batch, &returned);
    }

    /// What a transaction posted here, and what it takes.
    fn prepared(
        &self,
        transaction: TransactionKey,
        again: bool,
        batch: &mut Batch<'_>,
        placing: &mut Placing,
    ) {
        let Some(PreparedPart { name, position, posted, retired }) =
            self.participations.prepared(transaction)
        else {
            return;
        };
        if again != position.is_some() {
            return;
        }
        for &Posted { queue, place, .. } in posted.iter().filter(|_| !again) {
            let is_kept = self.engine.is_kept_at(queue, place);
            if is_kept {
                self.message((queue, place), Some(name), None, batch, placing);
            }
        }
        let mut prepared = Prepared { transaction: name, removed: Vec::new(), returned: Vec::new() };
        for &Retired { queue, place, outcome, .. } in retired {
            let Some((stored, view)) = self.entry(queue, place) else { continue };
            let is_kept = self.engine.is_kept_at(queue, place);
            let Some(node) = self.queues.get(queue).filter(|_| is_kept) else { continue };
            let Some(uid) = self.uid(queue) else { continue };
            let properties = &node.destination.properties;
            let failed = matches!(outcome, Outcome::Modified { delivery_failed: true, .. });
            let delivery_count = view.delivery_count + u32::from(failed);
            let is_last = failed && properties.deliveries_max.is_some_and(|max| delivery_count >= max);
            let dies = match outcome {
                Outcome::Accepted => Some(None),
                Outcome::Rejected => Some(Some(DeadLetterReason::Rejected)),
                Outcome::Released | Outcome::Modified { .. } => {
                    is_last.then_some(Some(DeadLetterReason::DeliveriesMax))
                }
            };
            // As a dead letter it is removed when it is where it goes.
            let death = match dies {
                Some(Some(reason)) if properties.dead_letter => death_of(reason),
                Some(_) => {
                    prepared.removed.push((uid, place.0));
                    continue;
                }
                None => 0,
            };
            prepared.returned.push(Returned {
                uid,
                place: place.0,
                // Whoever says it for good knows better.
                segment: position_in(stored).map_or(0, |position| position.segment),
                delivery_count,
                acquired_count: view.acquired_count,
                held_until: 0,
                annotations: self.annotations((queue, place), stored),
                death,
            });
        }
        placing.prepared.push((transaction, batch.prepared(&prepared, position)));
    }

    /// Dead letters that have not been written where they died.
    fn letters(&mut self, batch: &mut Batch<'_>, placing: &mut Placing) {
        let letters = self.dead_letters;
        for (index, letter) in letters.new_ones() {
            let Stored::Here(message) = &letter.message else { continue };
            if !message.is_kept || message.position.is_some() {
                continue;
            }
            let queue = letter.queue;
            let Some(Kept { uid, definition, .. }) = self.queues.kept(queue) else { continue };
            // Its queue may be further down the line.
            if definition.is_none() && placing.queues.iter().all(|(placed, _)| *placed != queue) {
                let is_closed = self.queues.closing(queue).is_some();
                let said = if is_closed { Said::Closed { queue } } else { Said::Queue { queue } };
                self.encode(&said, false, batch, placing);
            }
            let mut details = details_of(message, None);
            details.get_or_insert_default().death = death_of(letter.reason);
            let record = journal::Message {
                uid,
                place: letter.place.0,
                enqueued_at: message.enqueued_at,
                format: message.format(),
                delivery_count: letter.delivery_count,
                acquired_count: letter.acquired_count,
                priority: message.priority(),
                details,
                ..journal::Message::default()
            };
            placing.letters.push((index, uid, batch.message(&record, message.bytes(), None)));
        }
    }

    fn entry(&self, queue: QueueId, place: Place) -> Option<(Stored<&Message>, EntryView)> {
        Some((self.engine.message_at(queue, place)?, self.engine.explain_entry(queue, place)?))
    }

    /// The annotations of a message that outcomes have added to.
    fn annotations(&self, (queue, place): (QueueId, Place), stored: Stored<&Message>) -> Bytes {
        self.overflow.annotations_in(Source { queue, place }, stored)
    }

    fn uid(&self, queue: QueueId) -> Option<u64> {
        Some(self.queues.get(queue)?.kept.as_ref()?.uid)
    }
}

impl Durability {
    /// Notes where everything lies that a batch has put somewhere.
    fn place(
        &mut self,
        write: &Write,
        engine: &mut Engine<Message>,
        queues: &mut Queues,
        participations: &mut Participations,
        dead_letters: &mut DeadLetters,
    ) {
        let Durability { placing, leaving, overflow, definitions, decided, journal, begun, .. } = self;
        overflow.begin(write);
        for (queue, place, placed) in placing.messages.drain(..) {
            let position = write.position(placed);
            match engine.message_at_mut(queue, place) {
                Some(Stored::Here(message)) => message.position = Some(position),
                Some(Stored::Away(away)) => *away = away_of(position, position_of(*away).1),
                None => {}
            }
            if overflow.is_full {
                overflow.note_written(queue, place);
            }
        }
        for (source, placed) in placing.departures.drain(..) {
            leaving.moved(source, write.position(placed));
        }
        for (source, death) in placing.died.drain(..) {
            leaving.died(source, death);
        }
        for (queue, placed) in placing.queues.drain(..) {
            if let Some(kept) = queues.kept_mut(queue) {
                kept.definition = Some(write.position(placed));
            }
        }
        for (uid, placed) in placing.definitions.drain(..) {
            definitions.note_written(uid, write.position(placed));
        }
        for (transaction, placed) in placing.prepared.drain(..) {
            participations.note_prepared(transaction, write.position(placed));
        }
        for (name, placed) in placing.decided.drain(..) {
            decided.insert(name, write.position(placed));
        }
        for (index, uid, placed) in placing.letters.drain(..) {
            if let Some(letter) = dead_letters.get_mut(index) {
                let position = write.position(placed);
                if let Stored::Here(message) = &mut letter.message {
                    message.position = Some(position);
                }
                leaving.insert(letter, uid, (position, *begun), death_of(letter.reason));
            }
        }
        dead_letters.note_all();
        for position in placing.forgotten.drain(..) {
            journal.forget(position);
        }
    }
}

/// What is written of a message.
fn record_of(
    uid: u64,
    place: Place,
    message: &Message,
    view: &EntryView,
    transaction: Option<TransactionName>,
) -> journal::Message {
    journal::Message {
        uid,
        place: place.0,
        enqueued_at: message.enqueued_at,
        expires_at: view.expires_at.unwrap_or(0),
        held_until: view.held_until.unwrap_or(0),
        format: message.format(),
        delivery_count: view.delivery_count,
        acquired_count: view.acquired_count,
        priority: message.priority(),
        details: details_of(message, transaction),
    }
}

fn details_of(message: &Message, transaction: Option<TransactionName>) -> Option<Box<Details>> {
    let deaths = message.encoded_deaths();
    let origin = message.origin.as_deref().copied();
    let any = transaction.is_some() || origin.is_some() || !deaths.is_empty();
    any.then(|| Box::new(Details { deaths, origin, transaction, ..Details::default() }))
}

/// The annotations of a message that outcomes have added to.
pub(super) fn annotations_of(message: &Message) -> Bytes {
    if message.is_annotated { Bytes::copy_from_slice(message.annotations()) } else { Bytes::new() }
}

/// Where the record of a message lies.
fn position_in(stored: Stored<&Message>) -> Option<Position> {
    match stored {
        Stored::Here(message) => message.position,
        Stored::Away(away) => Some(position_of(away).0),
    }
}
