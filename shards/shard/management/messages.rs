//! How does an operator look at the messages of a queue, and move, copy or delete them? What is seen of each one is `show`'s.
//!
//! A slice at a time: each question looks at [`SWEEP_STEPS_MAX`] messages. To a queue of the same shard a message moves in one step.
//! To one elsewhere it is copied first, leaves when it has arrived, and is shown there when it has left; if a consumer takes it in
//! between, it stays where it is. Until such a move has ended, others that would move, copy or delete messages of the queue are refused. A message goes as it
//! stands: with what is left of its time to live and of the delay that its sender asked for, and with its deaths. Its place and the
//! counts of its deliveries are new, and an `expiration` of its new queue counts from then on. What consumers hold stays with them.

use corelane_engine::selector::{self, Field, Fields, Filter, HeaderField};
use corelane_engine::{self as engine, Ends, EntryState, EntryView, Origin, Place, QueueId, Stored};

use super::Asker;
use super::data::{Data, Pairs, pairs};
use super::question::{Answer, Moved, PeekQuestion, SweepAction, SweepQuestion, Swept};
use super::reply::{Fault, Status};
use super::request::place_text;
use crate::Shard;
use crate::limits::{ANSWER_BYTES_MAX, QUESTION_READS_MAX, SWEEP_BYTES_MAX, SWEEP_IDS_MAX, SWEEP_STEPS_MAX};
use crate::mail::{Arrived, PublishOutcome, Refusal};
use crate::message::Message;
use crate::publish::{Arrival, Timing};

/// Bits of a place below its level.
const LEVEL_SHIFT: u32 = 60;

impl Shard {
    /// Shows messages from a place on.
    pub(crate) fn peek(&self, now: u64, question: &PeekQuestion) -> Answer {
        let Some(queue) = self.queues.find(&question.queue) else { return self.no_queue(&question.queue) };
        let (mut shown, mut bytes, mut next) = (Vec::new(), 0, None);
        for (place, stored, view) in self.engine.entries(queue, question.from) {
            if shown.len() >= question.count as usize || bytes >= ANSWER_BYTES_MAX {
                next = Some(place);
                break;
            }
            let Stored::Here(message) = stored else {
                next = Some(place);
                break;
            };
            let message =
                Data::Map(self.show_message(now, place, message, &view, question.body_max as usize));
            bytes += message.size();
            shown.push(message);
        }
        Answer::ok(pairs!["messages" => Data::List(shown), "next" => next.map(place_text)])
    }

    /// Moves, copies or deletes what is in one slice.
    pub(crate) fn sweep(&mut self, now: u64, asker: Asker, question: &SweepQuestion) -> Answer {
        let Some(queue) = self.queues.find(&question.queue) else { return self.no_queue(&question.queue) };
        if self.management.moving.get(&question.queue).is_some_and(|mover| *mover != asker) {
            let why = format!(
                "messages of {:?} are being moved to a queue on another shard, by another request; ask again when that has ended",
                question.queue
            );
            return Answer::Refused(Fault { status: Status::Conflict, why });
        }
        let filter = match question.selector.as_deref().map(Filter::parse).transpose() {
            Ok(filter) => filter,
            Err(error) => return Answer::Refused(Fault::bad(format!("selector: {error}"))),
        };
        let ends = question.ends.clone().unwrap_or_else(|| self.engine.ends(queue));
        let (places, next) = self.select(queue, question, &ends, filter.as_ref());
        let mut swept = Swept { count: 0, gathered: Vec::new(), outcome: PublishOutcome::Stored, next, ends };
        let (to, removes) = match &question.action {
            SweepAction::Delete => (None, true),
            SweepAction::Move { to } => (Some(to), true),
            SweepAction::Copy { to } => (Some(to), false),
        };
        let is_elsewhere = to.is_some_and(|to| self.home_of(to) != self.index);
        if is_elsewhere && removes {
            self.management.moving.insert(question.queue.clone(), asker);
        }
        let mut bytes = 0;
        for place in places {
            if swept.count + swept.gathered.len() as u64 >= question.count || bytes >= SWEEP_BYTES_MAX {
                swept.next = Some(place);
                break;
            }
            if let Some(to) = to {
                let Some(moved) = self.copy_of(now, queue, place) else { continue };
                bytes += moved.message.bytes().len();
                if is_elsewhere {
                    swept.gathered.push(moved);
                    continue;
                }
                swept.outcome = self.store_moved(now, to, moved);
                if swept.outcome != PublishOutcome::Stored {
                    break;
                }
            }
            match removes.then(|| self.engine.remove(now, queue, place)) {
                Some(Some(message)) => {
                    self.discard(queue, place, message);
                    self.note_replaced();
                    swept.count += 1;
                }
                Some(None) => {}
                None => swept.count += 1,
            }
        }
        Answer::Swept(swept)
    }

    /// The places of the slice that nobody holds and the selector fits, and where the next slice begins.
    fn select(
        &self,
        queue: QueueId,
        question: &SweepQuestion,
        ends: &Ends,
        filter: Option<&Filter>,
    ) -> (Vec<Place>, Option<Place>) {
        let needs_messages = question.needs_messages();
        let is_meant = |stored: Stored<&Message>, view: &EntryView| {
            let is_free =
                matches!(view.state, EntryState::Available | EntryState::BehindInGroup | EntryState::Held);
            let fits = match stored {
                Stored::Here(message) => filter.is_none_or(|filter| filter.matches(&Shown { message, view })),
                Stored::Away(_) => !needs_messages,
            };
            is_free && fits
        };
        if let Some(places) = &question.places {
            let meant = |place: &&Place| {
                let found = self.engine.entries(queue, **place).next().filter(|(found, ..)| found == *place);
                found.is_some_and(|(_, stored, view)| is_meant(stored, &view))
            };
            return (places.iter().filter(meant).copied().collect(), None);
        }
        let mut places = Vec::new();
        let mut from = question.from;
        let mut steps = 0;
        'levels: loop {
            for (place, stored, view) in self.engine.entries(queue, from) {
                if steps >= SWEEP_STEPS_MAX || needs_messages && stored.away().is_some() {
                    return (places, Some(place));
                }
                steps += 1;
                // What came later stands behind, on each level.
                if !ends.include(queue, place) {
                    let Some(next) = next_level(place) else { return (places, None) };
                    from = next;
                    continue 'levels;
                }
                if is_meant(stored, &view) {
                    places.push(place);
                }
            }
            return (places, None);
        }
    }

    /// The first message that is not in memory, of so many; none after many tries, if there are others before it.
    pub(crate) fn first_away(
        &self,
        queue: QueueId,
        from: Place,
        count: usize,
        reads: &mut u32,
    ) -> Option<(QueueId, Place)> {
        let mut entries = self.engine.entries(queue, from).take(count).enumerate();
        let (index, (place, ..)) = entries.find(|(_, (_, stored, _))| stored.away().is_some())?;
        *reads += 1;
        (index == 0 || *reads <= QUESTION_READS_MAX).then_some((queue, place))
    }

    /// The same, of those that a slice is about.
    pub(crate) fn missing_of(&self, question: &mut SweepQuestion) -> Option<(QueueId, Place)> {
        let queue = self.queues.find(&question.queue).filter(|_| question.needs_messages())?;
        let Some(places) = &question.places else {
            return self.first_away(queue, question.from, SWEEP_STEPS_MAX, &mut question.reads);
        };
        let is_away = |place: &&Place| {
            self.engine.message_at(queue, **place).is_some_and(|stored| stored.away().is_some())
        };
        question.reads += 1;
        let place = places.iter().find(is_away).filter(|_| question.reads as usize <= 2 * SWEEP_IDS_MAX)?;
        Some((queue, *place))
    }

    fn copy_of(&mut self, now: u64, queue: QueueId, place: Place) -> Option<Moved> {
        let (_, stored, view) = self.engine.entries(queue, place).next().filter(|(it, ..)| *it == place)?;
        let message = stored.here()?;
        let held_until = message.delayed_until(view.held_until, now);
        // A dead letter has had its time; what it has is its queue's.
        let expires_at = view.expires_at.filter(|_| !message.is_dead_letter());
        let timing = Timing::Standing { held_until, expires_at };
        let origin = self.origin_of(queue, place).filter(|_| message.is_kept);
        Some(Moved { place, message: message.moved(&mut self.buffers), timing, origin })
    }

    /// Whether messages can be moved to a queue of this shard. One that is not there is made with the first of them.
    pub(crate) fn check_target(&self, name: &str) -> Answer {
        if self.queues.find(name).is_some() {
            return Answer::ok(Pairs::new());
        }
        match self.may_create(name) {
            Ok(()) => Answer::ok(Pairs::new()),
            Err(
                Refusal::NotFound
                | Refusal::Filters
                | Refusal::Priorities
                | Refusal::InvalidFilter
                | Refusal::Locked
                | Refusal::Stolen
                | Refusal::Exclusive
                | Refusal::InUse,
            ) => self.no_queue(name),
            Err(Refusal::ResourceLimit) => Answer::Refused(Fault {
                status: Status::Unavailable,
                why: "the target's shard has no room for another queue".to_owned(),
            }),
        }
    }

    /// Takes in messages from another shard, in order, until one finds no room.
    pub(crate) fn put(&mut self, now: u64, name: &str, messages: Vec<Moved>, hides: bool) -> Answer {
        let (mut count, mut outcome) = (0, PublishOutcome::Stored);
        self.hiding = hides.then(Vec::new);
        for mut moved in messages {
            if outcome != PublishOutcome::Stored {
                self.dissolve(moved.message);
                continue;
            }
            moved.message.origin = moved.origin.filter(|_| hides).map(Box::new);
            outcome = self.store_moved(now, name, moved);
            count += usize::from(outcome == PublishOutcome::Stored);
        }
        let hidden = self.hiding.take().unwrap_or_default();
        Answer::Stored { count, outcome, hidden }
    }

    /// What of the messages that were put here has left its queue, and what has not.
    pub(crate) fn end_put(&mut self, now: u64, shown: &[Arrived], dropped: &[Arrived]) -> Answer {
        self.reveal(now, shown);
        for Arrived { queue, place } in dropped {
            self.engine.drop_pending(*queue, *place);
        }
        Answer::ok(Pairs::new())
    }

    /// Removes messages that have arrived elsewhere.
    pub(crate) fn remove_messages(&mut self, now: u64, name: &str, places: &[Place]) -> Answer {
        let queue = self.queues.find(name);
        let mut removed = Vec::new();
        for place in places {
            let message = queue.and_then(|queue| Some((queue, self.engine.remove(now, queue, *place)?)));
            removed.push(message.is_some());
            if let Some((queue, message)) = message {
                self.discard(queue, *place, message);
            }
        }
        Answer::Removed(removed)
    }

    fn store_moved(&mut self, now: u64, name: &str, moved: Moved) -> PublishOutcome {
        let Moved { message, timing, .. } = moved;
        match self.find_or_create(now, name) {
            Ok(queue) if self.engine.is_full(queue) => {
                self.dissolve(message);
                PublishOutcome::Full
            }
            Ok(queue) => {
                let arrival = Arrival {
                    message,
                    origin: Origin(0),
                    user: None,
                    producer: None,
                    transaction: None,
                    timing,
                };
                self.store(now, queue, arrival)
            }
            Err(_) => {
                self.dissolve(message);
                PublishOutcome::NoQueue
            }
        }
    }
}

/// The first place of the next lower level; none: this is the lowest there can be.
fn next_level(place: Place) -> Option<Place> {
    let level = place.level() as u64 + 1;
    (level < 16).then_some(Place(level << LEVEL_SHIFT))
}

/// A message in its queue, as selectors read it.
struct Shown<'a> {
    message: &'a Message,
    view: &'a EntryView,
}

impl Fields for Shown<'_> {
    fn field(&self, field: &Field) -> selector::Value<'_> {
        match field {
            Field::Header(HeaderField::Redelivered) => selector::Value::Bool(self.view.delivery_count > 0),
            Field::Header(HeaderField::DeliveryCount) => {
                selector::Value::Int(i64::from(self.view.delivery_count) + 1)
            }
            Field::Header(_) | Field::Property(_) => engine::Message::field(self.message, field),
        }
    }
}
