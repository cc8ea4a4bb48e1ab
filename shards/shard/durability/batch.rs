//! How does what was said become the journal's next batch?
//!
//! Entries are looked up when the batch is encoded: what is not there any more is not written. A batch that is full ends where no
//! group is open; when something has left its queue for another place of this shard since it was said, the batch goes on to the end
//! of the line, where that stands.

use bytes::Bytes;
use corelane_engine::{DeadLetterReason, Engine, EntryView, Outcome, Place, QueueId};
use corelane_journal::{
    self as journal, Batch, Decided, Details, Done, Placed, Position, Prepared, Returned, Started, Stopped,
    TransactionName, Write,
};
use hashbrown::HashMap;

use super::leaving::Leaving;
use super::{Durability, Said, definition};
use crate::Shard;
use crate::effect::Effect;
use crate::mail::TransactionKey;
use crate::message::Message;
use crate::participant::{Participations, Posted, PreparedPart, Retired};
use crate::queues::Queues;

/// What a batch puts where.
#[derive(Default)]
pub(super) struct Placing {
    messages: Vec<(QueueId, Place, Placed)>,
    departures: Vec<(usize, Placed)>,
    queues: Vec<(QueueId, Placed)>,
    prepared: Vec<(TransactionKey, Placed)>,
    decided: Vec<(TransactionName, Placed)>,
    /// Dead letters, from the last one backwards.
    letters: Vec<(usize, Placed)>,
    /// Not there any more.
    forgotten: Vec<Position>,
}

/// What entries, queues and transactions are like while a batch is encoded.
struct Sources<'a> {
    engine: &'a Engine<Message>,
    queues: &'a mut Queues,
    participations: &'a Participations,
    leaving: &'a Leaving,
    decided: &'a HashMap<TransactionName, Position>,
}

impl Placing {
    fn clear(&mut self) {
        self.messages.clear();
        self.departures.clear();
        self.queues.clear();
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
        while self.begin_write() {
            kept |= self.keep_promises(now);
        }
        self.ask_for_segment(now);
        self.clean_journal();
        kept
    }

    /// Begins a batch. True: there was nothing to write in it.
    fn begin_write(&mut self) -> bool {
        let Shard { durability: Some(durability), engine, queues, participations, counters, effects, .. } =
            self
        else {
            return false;
        };
        let Durability {
            journal,
            line,
            begun,
            placing,
            removals,
            leaving,
            decided,
            whole,
            taken,
            waits,
            stopped,
            ..
        } = &mut **durability;
        let is_short = journal.is_short();
        if *waits || (stopped.is_some() && line.is_empty()) {
            return false;
        }
        let Some(mut batch) = journal.begin_batch() else { return false };
        let mut sources = Sources { engine, queues, participations, leaving, decided };
        let mut open = false;
        let mut cleaned = None;
        let mut last = None;
        let mut count = 0;
        while let Some(said) = line.pop_front() {
            count += 1;
            match &said {
                Said::Begin => open = true,
                Said::End => open = false,
                Said::Removed(removal) => removals.push(*removal),
                Said::Cleaned { segment } => cleaned = Some(*segment),
                Said::Stopped { time } => last = Some(Stopped { time: *time }),
                said => sources.encode(said, &mut batch, placing),
            }
            if is_short {
                taken.push(said);
            }
            if !open && !*whole && batch.is_full_with(removals.len()) {
                break;
            }
        }
        sources.letters(&mut batch, placing);
        batch.remove(removals);
        removals.clear();
        last.iter().for_each(|stopped| batch.stopped(stopped));
        if !batch.has_room() {
            // As if nothing had been begun: there may be less to say when there is room again, or when it is tried again.
            taken.drain(..).rev().for_each(|said| line.push_front(said));
            placing.clear();
            *waits = true;
            return false;
        }
        taken.clear();
        *whole &= !line.is_empty();
        if let Some(segment) = cleaned {
            batch.cleaned(segment);
        }
        begun.0 += count;
        let Some(write) = batch.finish(*begun) else { return true };
        durability.place(&write, engine, queues, &mut self.participations);
        counters.count_write(write.bytes().len());
        effects.push(Effect::Write { write });
        false
    }
}

impl Sources<'_> {
    fn encode(&mut self, said: &Said, batch: &mut Batch<'_>, placing: &mut Placing) {
        match *said {
            Said::Message { queue, place } => self.message((queue, place), None, None, batch, placing),
            Said::MessageAgain { queue, place } => {
                let position = self.engine.message_at(queue, place).and_then(|message| message.position);
                if position.is_some() {
                    let name = self.participations.name_of(queue, place);
                    self.message((queue, place), name, position, batch, placing);
                }
            }
            Said::Returned { queue, place } => self.returned(queue, place, batch),
            Said::Queue { queue } => {
                let Some(node) = self.queues.get_mut(queue) else { return };
                let Some(kept) = &mut node.kept else { return };
                kept.version += 1;
                let kept = **kept;
                let placed = batch.queue(&definition::record_of(node, &kept), kept.definition);
                placing.queues.push((queue, placed));
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
            Said::DepartureAgain { key, ref message, ref payload } => {
                if let Some(departure) = self.leaving.get(key) {
                    let placed = batch.message(message, payload, Some(departure.source.position));
                    placing.departures.push((key, placed));
                }
            }
            Said::Forgotten(position) => placing.forgotten.push(position),
            Said::Started { time, shards, boot } => batch.started(&Started { boot, shards, time }),
            Said::Carried(ref record) => batch.carry(record),
            Said::Begin | Said::End | Said::Removed(_) | Said::Stopped { .. } | Said::Cleaned { .. } => {
                unreachable!("they need no source")
            }
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
        let Some((message, view)) = self.entry(queue, place) else { return };
        let Some(uid) = self.uid(queue) else { return };
        let record = record_of(uid, place, message, &view, transaction);
        placing.messages.push((queue, place, batch.message(&record, message.bytes(), copied)));
    }

    fn returned(&self, queue: QueueId, place: Place, batch: &mut Batch<'_>) {
        let Some((message, view)) = self.entry(queue, place) else { return };
        // What is written in this batch is written with its counts.
        let (Some(uid), Some(position)) = (self.uid(queue), message.position) else { return };
        batch.returned(&Returned {
            uid,
            place: place.0,
            segment: position.segment,
            delivery_count: view.delivery_count,
            acquired_count: view.acquired_count,
            held_until: view.held_until.unwrap_or(0),
            annotations: annotations_of(message),
        });
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
            let is_kept = self.engine.message_at(queue, place).is_some_and(|message| message.is_kept);
            if is_kept {
                self.message((queue, place), Some(name), None, batch, placing);
            }
        }
        let mut prepared = Prepared { transaction: name, removed: Vec::new(), returned: Vec::new() };
        for &Retired { queue, place, outcome, .. } in retired {
            let Some((message, view)) = self.entry(queue, place) else { continue };
            let Some(node) = self.queues.get(queue).filter(|_| message.is_kept) else { continue };
            let Some(uid) = self.uid(queue) else { continue };
            match outcome {
                Outcome::Accepted => prepared.removed.push((uid, place.0)),
                // As a dead letter it is removed when it is where it goes.
                Outcome::Rejected if node.destination.properties.dead_letter => {}
                Outcome::Rejected => prepared.removed.push((uid, place.0)),
                Outcome::Released | Outcome::Modified { .. } => {
                    let Some(Position { segment, .. }) = message.position else { continue };
                    let failed = matches!(outcome, Outcome::Modified { delivery_failed: true, .. });
                    prepared.returned.push(Returned {
                        uid,
                        place: place.0,
                        segment,
                        delivery_count: view.delivery_count + u32::from(failed),
                        acquired_count: view.acquired_count,
                        held_until: 0,
                        annotations: annotations_of(message),
                    });
                }
            }
        }
        placing.prepared.push((transaction, batch.prepared(&prepared, position)));
    }

    /// Dead letters that have not been written where they died.
    fn letters(&mut self, batch: &mut Batch<'_>, placing: &mut Placing) {
        let engine = self.engine;
        for (index, letter) in engine.new_dead_letters() {
            let message = &letter.message;
            if !message.is_kept || message.position.is_some() {
                continue;
            }
            let queue = letter.queue;
            let Some(kept) = self.queues.get(queue).and_then(|node| node.kept.as_ref()) else { continue };
            let uid = kept.uid;
            // Its queue may be further down the line.
            if kept.definition.is_none() && placing.queues.iter().all(|(placed, _)| *placed != queue) {
                self.encode(&Said::Queue { queue }, batch, placing);
            }
            let record = journal::Message {
                uid,
                place: letter.place.0,
                enqueued_at: message.enqueued_at,
                // It is to die again.
                expires_at: u64::from(letter.reason == DeadLetterReason::Expired),
                format: message.format(),
                delivery_count: letter.delivery_count,
                acquired_count: letter.acquired_count,
                priority: message.priority(),
                details: details_of(message, None),
                ..journal::Message::default()
            };
            placing.letters.push((index, batch.message(&record, message.bytes(), None)));
        }
    }

    fn entry(&self, queue: QueueId, place: Place) -> Option<(&Message, EntryView)> {
        Some((self.engine.message_at(queue, place)?, self.engine.explain_entry(queue, place)?))
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
    ) {
        let Durability { placing, leaving, decided, journal, .. } = self;
        for (queue, place, placed) in placing.messages.drain(..) {
            if let Some(message) = engine.message_at_mut(queue, place) {
                message.position = Some(write.position(placed));
            }
        }
        for (key, placed) in placing.departures.drain(..) {
            leaving.moved(key, write.position(placed));
        }
        for (queue, placed) in placing.queues.drain(..) {
            if let Some(kept) = queues.get_mut(queue).and_then(|node| node.kept.as_mut()) {
                kept.definition = Some(write.position(placed));
            }
        }
        for (transaction, placed) in placing.prepared.drain(..) {
            participations.note_prepared(transaction, write.position(placed));
        }
        for (name, placed) in placing.decided.drain(..) {
            decided.insert(name, write.position(placed));
        }
        for (index, placed) in placing.letters.drain(..) {
            if let Some(letter) = engine.dead_letter_mut(index) {
                letter.message.position = Some(write.position(placed));
            }
        }
        engine.note_dead_letters();
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
fn annotations_of(message: &Message) -> Bytes {
    if message.is_annotated { Bytes::copy_from_slice(message.annotations()) } else { Bytes::new() }
}
