//! What of a message that leaves its queue for another one, and when is it gone where it was?
//!
//! When it is kept where it goes. On this shard both are said in one group. On other shards it is when all of them have answered, which
//! they do when they have synced it: until then its record stays, so that after a crash it is never nowhere. Nor is it twice: what is
//! written of it in its new queue says where it was, and a start takes away what is there. That record cannot be gone before the one
//! here is, as nobody has the message there until that is synced, after a start neither (`restore`); so nobody has to remember what came
//! from where. Only of what went to a topic, which several shards have, each may have it once more.
//!
//! Invariants:
//! - a dead letter that is kept has a departure here as soon as it has a position, and until that is said to be gone;
//! - a queue that is deleted is there for the journal, as one that is closed, until no dead letter of it is left: what consumers held is
//!   never nowhere either;
//! - what has died and is synced is dead after a crash, too; of what a transaction lets die that is said in the group that commits.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use corelane_engine::{DeadLetter, DeadLetterReason, Place, QueueId, Stored};
use corelane_journal::{self as journal, Origin, Position, Removal, Ticket};
use hashbrown::HashMap;

use super::overflow::position_of;
use super::{Durability, Kept, Said};
use crate::Shard;
use crate::mail::Arrived;
use crate::message::Message;
use crate::queues::QueueNode;

/// Where a message was that has left its queue, and whose record is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    pub(crate) queue: QueueId,
    pub(crate) place: Place,
}

/// Messages that have left their queues and whose records are still needed.
#[derive(Default)]
pub(super) struct Leaving {
    departures: HashMap<Source, Departure>,
    by_position: HashMap<Position, Source>,
    /// The one that is being sent.
    in_hand: Option<Source>,
}

pub(super) struct Departure {
    pub(super) uid: u64,
    pub(super) position: Position,
    /// What is written of its death.
    pub(super) death: u8,
    /// A start has found it, and nobody knows how far it had come before.
    was_found: bool,
    /// When this is synced its death is, with all that belongs together with it.
    ticket: Ticket,
    pub(super) delivery_count: u32,
    pub(super) acquired_count: u32,
    /// What outcomes have added to it, if that does not stand in its record.
    pub(super) annotations: Bytes,
    /// Shards that have yet to answer.
    unanswered: u32,
    /// Where it is hidden until it is gone here.
    hidden: Vec<(usize, Arrived)>,
}

/// A queue that is deleted, while dead letters of it are on their way.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) name: Box<str>,
    /// Where its dead letters go.
    pub(crate) to: Arc<str>,
    pub(crate) kept: Kept,
    /// The places of its dead letters.
    pub(crate) letters: BTreeSet<Place>,
    /// Those that are still needed.
    pub(super) left: BTreeSet<Place>,
}

/// How the journal counts reasons; 0: not dead.
pub(super) fn death_of(reason: DeadLetterReason) -> u8 {
    match reason {
        DeadLetterReason::Rejected => 1,
        DeadLetterReason::Expired => 2,
        DeadLetterReason::DeliveriesMax => 3,
        DeadLetterReason::Overflow => 4,
        DeadLetterReason::Deleted => 5,
    }
}

pub(super) fn reason_of(death: u8) -> Option<DeadLetterReason> {
    Some(match death {
        0 => return None,
        1 => DeadLetterReason::Rejected,
        2 => DeadLetterReason::Expired,
        3 => DeadLetterReason::DeliveriesMax,
        4 => DeadLetterReason::Overflow,
        _ => DeadLetterReason::Deleted,
    })
}

impl Leaving {
    /// The one whose record lies there.
    pub(super) fn at(&self, position: Position) -> Option<Source> {
        self.by_position.get(&position).copied()
    }

    pub(super) fn get(&self, source: Source) -> Option<&Departure> {
        self.departures.get(&source)
    }

    /// A dead letter is written there; with the ticket it is synced that it has died.
    pub(super) fn insert(
        &mut self,
        letter: &DeadLetter<Message>,
        uid: u64,
        (position, ticket): (Position, Ticket),
        death: u8,
    ) {
        let source = Source { queue: letter.queue, place: letter.place };
        let departure = Departure {
            uid,
            position,
            death,
            was_found: false,
            ticket,
            delivery_count: letter.delivery_count,
            acquired_count: letter.acquired_count,
            annotations: Bytes::new(),
            unanswered: 0,
            hidden: Vec::new(),
        };
        self.departures.insert(source, departure);
        self.by_position.insert(position, source);
    }

    fn remove(&mut self, source: Source) -> Option<Departure> {
        let departure = self.departures.remove(&source)?;
        self.by_position.remove(&departure.position);
        Some(departure)
    }

    /// What is written of it lies elsewhere now.
    pub(super) fn moved(&mut self, source: Source, position: Position) {
        if let Some(departure) = self.departures.get_mut(&source) {
            self.by_position.remove(&departure.position);
            departure.position = position;
            self.by_position.insert(position, source);
        }
    }

    /// It is written that it has died.
    pub(super) fn died(&mut self, source: Source, death: u8) {
        if let Some(departure) = self.departures.get_mut(&source) {
            departure.death = death;
        }
    }

    fn note(&mut self, source: Source, was_found: bool, annotations: Bytes) {
        if let Some(departure) = self.departures.get_mut(&source) {
            (departure.was_found, departure.annotations) = (was_found, annotations);
        }
    }

    fn of_queue(&self, queue: QueueId) -> impl Iterator<Item = Place> {
        self.departures.keys().filter(move |source| source.queue == queue).map(|source| source.place)
    }
}

impl Durability {
    /// A message goes to another shard.
    pub(crate) fn note_forwarded(&mut self) {
        let Leaving { departures, in_hand, .. } = &mut self.leaving;
        if let Some(departure) = in_hand.and_then(|source| departures.get_mut(&source)) {
            departure.unanswered += 1;
        }
    }
}

impl Shard {
    /// Takes dead letters from the engine, and says that they have died. `found`: a start has found that.
    pub(super) fn take_in_letters(&mut self, found: bool) {
        while let Some(letter) = self.engine.take_dead_letter() {
            let source = Source { queue: letter.queue, place: letter.place };
            if let Some(position) = kept_position(&letter.message)
                && let Some(uid) = self.queues.uid(letter.queue)
                && let Some(durability) = &mut self.durability
            {
                let death = death_of(letter.reason);
                let annotations = durability.overflow.annotations_in(source, letter.message.as_ref());
                self.memory_used += annotations.len() as u64;
                if found {
                    durability.leaving.insert(&letter, uid, (position, Ticket(0)), death);
                } else {
                    let returned = journal::Returned {
                        uid,
                        place: letter.place.0,
                        segment: position.segment,
                        delivery_count: letter.delivery_count,
                        acquired_count: letter.acquired_count,
                        held_until: 0,
                        annotations: annotations.clone(),
                        death,
                    };
                    durability.say(Said::Died { source, returned: Box::new(returned) });
                    let ticket = durability.journal.said();
                    durability.leaving.insert(&letter, uid, (position, ticket), 0);
                }
                durability.leaving.note(source, found, annotations);
            }
            self.dead_letters.push_back(letter);
        }
    }

    /// Whether a dead letter may have been where it goes, and been had there, before the broker was started.
    pub(crate) fn was_found_dead(&self, source: Source) -> bool {
        let departure = self.durability.as_ref().and_then(|durability| durability.leaving.get(source));
        departure.is_some_and(|departure| departure.was_found)
    }

    /// Whether a dead letter may go to another shard. Synced there before it has died here, it would have died after a crash, and what was
    /// said together with that, as by a transaction, would not have happened.
    pub(crate) fn may_leave(&self, source: Source) -> bool {
        let Some(durability) = self.durability.as_deref() else { return true };
        let departure = durability.leaving.get(source);
        durability.journal.is_failed()
            || departure.is_none_or(|departure| departure.ticket <= durability.journal.completed())
    }

    /// What is forwarded and stored until [`Self::end_departure`] is the message that was there.
    pub(crate) fn begin_departure(&mut self, source: Source) {
        let Some(durability) = &mut self.durability else { return };
        if durability.leaving.departures.contains_key(&source) {
            durability.leaving.in_hand = Some(source);
            self.begin_group();
        }
    }

    /// The message that is leaving.
    pub(crate) fn source_in_hand(&self) -> Option<Source> {
        self.durability.as_ref()?.leaving.in_hand
    }

    /// What the journal calls its place.
    pub(crate) fn origin_in_hand(&self) -> Option<Origin> {
        let leaving = &self.durability.as_ref()?.leaving;
        let source = leaving.in_hand?;
        Some(Origin { uid: leaving.get(source)?.uid, place: source.place.0 })
    }

    /// What the journal calls a place.
    pub(crate) fn origin_of(&self, queue: QueueId, place: Place) -> Option<Origin> {
        Some(Origin { uid: self.queues.uid(queue)?, place: place.0 })
    }

    pub(crate) fn end_departure(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let Some(source) = durability.leaving.in_hand.take() else { return };
        self.end_if_gone(source);
        self.end_group();
    }

    /// Another shard keeps messages that went there, or could not store them.
    pub(crate) fn forwards_kept(&mut self, from: usize, kept: Vec<(Source, Vec<Arrived>)>) {
        for (source, hidden) in kept {
            let Some(durability) = &mut self.durability else { return };
            if let Some(departure) = durability.leaving.departures.get_mut(&source) {
                departure.unanswered -= 1;
                departure.hidden.extend(hidden.into_iter().map(|arrived| (from, arrived)));
            }
            self.end_if_gone(source);
        }
    }

    fn end_if_gone(&mut self, source: Source) {
        let Some(durability) = &self.durability else { return };
        if durability.leaving.get(source).is_some_and(|departure| departure.unanswered == 0) {
            self.say_letter_gone(source);
        }
    }

    /// What was written of a dead letter is not needed any more.
    pub(crate) fn say_letter_gone(&mut self, source: Source) {
        let Some(durability) = &mut self.durability else { return };
        let Some(departure) = durability.leaving.remove(source) else { return };
        let Departure { uid, position, hidden, annotations, .. } = departure;
        self.memory_used -= annotations.len() as u64;
        durability.say(Said::Removed(Removal { uid, place: source.place.0, position }));
        hidden.into_iter().for_each(|(shard, arrived)| self.reveal_there(shard, arrived));
        if let Some(closing) = self.queues.closing_mut(source.queue) {
            closing.left.remove(&source.place);
            self.end_closing(source.queue);
        }
    }

    /// Whether the next dead letter is one that has yet to be written where it was.
    pub(crate) fn is_letter_unwritten(&self) -> bool {
        let front = self.dead_letters.front();
        let waits =
            front.is_some_and(|letter| is_unwritten(letter) && self.queues.uid(letter.queue).is_some());
        waits && !self.has_failed()
    }

    /// A queue is deleted: what was written of it is void, but for its dead letters.
    pub(crate) fn undefine(&mut self, queue: QueueId, node: &QueueNode) {
        let Some(kept) = node.kept.as_deref().copied() else { return };
        if let Some(to) = &node.destination.dead_letter {
            let (name, to) = (node.name.clone(), Arc::clone(to));
            let (letters, left) = (BTreeSet::new(), BTreeSet::new());
            self.queues.close(queue, Closing { name, to, kept, letters, left });
            self.settle_closing(queue);
            if let Some(closing) = self.queues.closing_mut(queue) {
                closing.letters.clone_from(&closing.left);
                self.note(Said::Closed { queue });
            }
            return;
        }
        self.say_deleted(kept);
    }

    /// Finds the dead letters of a queue that is closed. If there are none, it is gone.
    pub(super) fn settle_closing(&mut self, queue: QueueId) {
        self.say_what_left();
        let Some(durability) = &self.durability else { return };
        let of_queue = self.dead_letters.iter().filter(|letter| letter.queue == queue);
        let unwritten = of_queue.filter(|letter| is_unwritten(letter)).map(|letter| letter.place);
        let left = unwritten.chain(durability.leaving.of_queue(queue)).collect();
        if let Some(closing) = self.queues.closing_mut(queue) {
            closing.left = left;
        }
        self.end_closing(queue);
    }

    /// With its last dead letter a queue that is closed is gone.
    pub(super) fn end_closing(&mut self, queue: QueueId) {
        if self.queues.closing(queue).is_some_and(|closing| closing.left.is_empty())
            && let Some(closing) = self.queues.end_closing(queue)
        {
            self.say_deleted(closing.kept);
        }
    }

    fn say_deleted(&mut self, Kept { uid, since, definition, .. }: Kept) {
        let Some(durability) = &mut self.durability else { return };
        durability.by_uid.remove(&uid);
        // Else it has yet to be written, and is not any more.
        if let Some(definition) = definition {
            durability.say(Said::QueueDeleted { uid, since, definition });
        }
    }
}

/// Whether a dead letter is kept and has yet to be written.
fn is_unwritten(letter: &DeadLetter<Message>) -> bool {
    match &letter.message {
        Stored::Here(message) => message.is_kept && message.position.is_none(),
        Stored::Away(_) => false,
    }
}

/// Where the record of a message that is kept lies.
fn kept_position(stored: &Stored<Message>) -> Option<Position> {
    match stored {
        Stored::Here(message) => message.position.filter(|_| message.is_kept),
        Stored::Away(away) => Some(position_of(*away)).filter(|(_, is_kept)| *is_kept).map(|(at, _)| at),
    }
}
