//! What of a message that leaves its queue for another one, and when is it gone where it was?
//!
//! When it is kept where it goes. On this shard both are said in one group. On other shards it is when all of them have answered, which
//! they do when they have synced it: until then its record stays, so that after a crash it is never nowhere. Nor is it twice: what is
//! written of it in its new queue says where it was, and a start takes away what is there. That record cannot be gone before the one
//! here is, as nobody has the message there until that is synced; so nobody has to remember what came from where. Only of what went to
//! a topic, which several shards have, each may have it once more.

use std::collections::VecDeque;

use corelane_engine::{DeadLetter, Place, QueueId};
use corelane_journal::{Origin, Position};
use slab::Slab;

use super::Durability;
use crate::Shard;
use crate::mail::Arrived;
use crate::message::Message;

/// Where a message was, and where what was written of it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(super) queue: QueueId,
    pub(super) place: Place,
    pub(super) position: Position,
}

impl Source {
    /// None: nothing was written of it.
    pub(crate) fn of(queue: QueueId, place: Place, message: &Message) -> Option<Source> {
        message.position.map(|position| Source { queue, place, position })
    }
}

/// Messages on their way to other shards.
#[derive(Default)]
pub(super) struct Leaving {
    departures: Slab<Departure>,
    /// For each shard what it has yet to answer, in order; none: nothing was written of it here.
    awaited: Vec<VecDeque<Option<usize>>>,
    /// The one that is being sent.
    in_hand: Option<usize>,
}

pub(super) struct Departure {
    pub(super) source: Source,
    /// Shards that have yet to answer.
    unanswered: u32,
    /// Where it is hidden until it is gone here.
    hidden: Vec<(usize, Arrived)>,
}

impl Leaving {
    pub(super) fn new(shards: usize) -> Self {
        Leaving { awaited: (0..shards).map(|_| VecDeque::new()).collect(), ..Leaving::default() }
    }

    /// The departure whose record lies there.
    pub(super) fn at(&self, position: Position) -> Option<usize> {
        self.departures
            .iter()
            .find(|(_, departure)| departure.source.position == position)
            .map(|(key, _)| key)
    }

    pub(super) fn get(&self, key: usize) -> Option<&Departure> {
        self.departures.get(key)
    }

    /// What is written of it lies elsewhere now.
    pub(super) fn moved(&mut self, key: usize, position: Position) {
        if let Some(departure) = self.departures.get_mut(key) {
            departure.source.position = position;
        }
    }
}

impl Durability {
    /// A message goes to another shard.
    pub(crate) fn note_forwarded(&mut self, to: usize) {
        let Leaving { departures, awaited, in_hand } = &mut self.leaving;
        if let Some(departure) = in_hand.and_then(|key| departures.get_mut(key)) {
            departure.unanswered += 1;
        }
        awaited[to].push_back(*in_hand);
    }
}

impl Shard {
    /// What is forwarded and stored until [`Self::end_departure`] is the message that was there.
    pub(crate) fn begin_departure(&mut self, source: Option<Source>) {
        let Some(source) = source else { return };
        self.begin_group();
        if let Some(durability) = &mut self.durability {
            let departure = Departure { source, unanswered: 0, hidden: Vec::new() };
            durability.leaving.in_hand = Some(durability.leaving.departures.insert(departure));
        }
    }

    /// Where the message is that is leaving.
    pub(crate) fn origin_in_hand(&self) -> Option<Origin> {
        let leaving = &self.durability.as_ref()?.leaving;
        let Source { queue, place, .. } = leaving.get(leaving.in_hand?)?.source;
        self.origin_of(queue, place)
    }

    /// What the journal calls a place.
    pub(crate) fn origin_of(&self, queue: QueueId, place: Place) -> Option<Origin> {
        let uid = self.queues.get(queue)?.kept.as_ref()?.uid;
        Some(Origin { uid, place: place.0 })
    }

    pub(crate) fn end_departure(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let Some(key) = durability.leaving.in_hand.take() else { return };
        self.end_if_gone(key);
        self.end_group();
    }

    /// Another shard has stored so many of the messages that went there, some of them hidden.
    pub(crate) fn forwards_kept(&mut self, from: usize, count: usize, hidden: Vec<(usize, Arrived)>) {
        let mut hidden = hidden.into_iter().peekable();
        for index in 0..count {
            let Some(durability) = &mut self.durability else { return };
            let Leaving { departures, awaited, .. } = &mut durability.leaving;
            let Some(Some(key)) = awaited[from].pop_front() else { continue };
            if let Some(departure) = departures.get_mut(key) {
                departure.unanswered -= 1;
                while let Some((_, arrived)) = hidden.next_if(|(of, _)| *of == index) {
                    departure.hidden.push((from, arrived));
                }
            }
            self.end_if_gone(key);
        }
    }

    fn end_if_gone(&mut self, key: usize) {
        let Some(durability) = &mut self.durability else { return };
        let departures = &mut durability.leaving.departures;
        if departures.get(key).is_some_and(|departure| departure.unanswered == 0) {
            let Departure { source: Source { queue, place, position }, hidden, .. } = departures.remove(key);
            self.say_removed(queue, place, position);
            hidden.into_iter().for_each(|(shard, arrived)| self.reveal_there(shard, arrived));
        }
    }

    /// Whether the next dead letter is one that has yet to be written where it was.
    pub(crate) fn is_letter_unwritten(&self) -> bool {
        let Some(DeadLetter { queue, message, .. }) = self.engine.next_dead_letter() else { return false };
        // Of a queue that is deleted nothing is written any more.
        message.is_kept && message.position.is_none() && self.queues.get(*queue).is_some()
    }
}
