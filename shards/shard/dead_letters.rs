//! What becomes of a message that left its queue without being consumed, where the queue has a `dead-letter` destination?
//!
//! It goes there as any message does, with its bare message untouched, and says in its annotations what it has been through:
//!
//! | annotation | value |
//! |---|---|
//! | `x-opt-death-reason` | `rejected`, `expired`, `deliveries`, `overflow`, or `deleted`: its queue was, while a consumer held it |
//! | `x-opt-death-queue` | the queue it died in last |
//! | `x-opt-death-count` | how often it has died |
//! | `x-opt-death-path` | a list of the queues it has died in, the first one first, each once |
//!
//! and, as RabbitMQ says it, those of `death_records`.
//!
//! Its time to live does not count any more: it would be expired where it arrives. An `expiration` of its new queue does.
//!
//! Invariants:
//! - a message that goes round in a circle of queues is dropped, unless a consumer has rejected it in this round, or an operator moved it: queues whose dead
//!   letters lead to each other never send one round without end. Whatever way does not come back is gone to its end;
//! - a dead letter stays in the memory of its shard until there is room on its way, in the order in which they died;
//! - one that cannot be stored where it goes, or goes to a topic or an exchange that leads nowhere, is gone: its queue counts it, and the log says why.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use corelane_engine::{DeadLetter, DeadLetterReason, QueueId, Stored};
use corelane_wire::amqp10::{ListWriter, MapWriter, Raw, Reader, Value};

use crate::Shard;
use crate::address::Address;
use crate::dead_letter_paths::Stop;
use crate::durability::Source;
use crate::limits::{DEAD_LETTER_STOPS_KEPT, DEATH_PATH_MAX, TURN_DEAD_LETTERS_MAX};
use crate::mail::PublishOutcome;
use crate::message::Message;
use crate::vhost;

/// A dead letter that knows where it goes.
#[derive(Debug)]
pub(crate) struct DeadLetterOnItsWay {
    /// Where it has died.
    source: Source,
    to: Arc<str>,
    message: Message,
}

/// Dead letters that do not know that yet, in the order in which they died.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    line: VecDeque<DeadLetter<Message>>,
    /// So many of them were looked at by the journal.
    noted: usize,
}

impl DeadLetters {
    pub(crate) fn push_back(&mut self, letter: DeadLetter<Message>) {
        self.line.push_back(letter);
    }

    pub(crate) fn pop_front(&mut self) -> Option<DeadLetter<Message>> {
        self.noted = self.noted.saturating_sub(1);
        self.line.pop_front()
    }

    pub(crate) fn front(&self) -> Option<&DeadLetter<Message>> {
        self.line.front()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut DeadLetter<Message>> {
        self.line.get_mut(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeadLetter<Message>> {
        self.line.iter()
    }

    /// Those that have come since [`Self::note_all`], with their indices.
    pub(crate) fn new_ones(&self) -> impl Iterator<Item = (usize, &DeadLetter<Message>)> {
        self.line.iter().enumerate().skip(self.noted)
    }

    pub(crate) fn note_all(&mut self) {
        self.noted = self.line.len();
    }
}

/// A dead letter that could not be stored. Of one for a topic there is one for each shard on which a subscription did not take it.
#[derive(Debug)]
pub struct LostDeadLetter {
    pub(crate) died_in: QueueId,
    /// None: to a topic's subscription.
    pub(crate) to: Option<Box<str>>,
    pub(crate) outcome: PublishOutcome,
}

/// What a message has been through.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deaths {
    count: u32,
    path: Vec<Box<str>>,
    /// Where it has died or was sent to since a consumer last rejected it.
    unattended: Way,
}

/// Stops, as many of them as it takes to know a circle.
#[derive(Clone, Debug, Default, PartialEq)]
struct Way {
    kept: Vec<Stop>,
    length: u32,
}

impl Way {
    fn has(&self, stop: &Stop) -> bool {
        self.kept.contains(stop)
    }

    /// What is kept are the first stops, and whenever the way has become twice as long the next ones instead: at last they are on the
    /// circle, if there is one, and are kept for longer than it takes to go round.
    fn note(&mut self, stop: Stop) {
        if self.has(&stop) {
            return;
        }
        self.length = self.length.saturating_add(1);
        if self.length as usize > DEAD_LETTER_STOPS_KEPT && self.length.is_power_of_two() {
            self.kept.clear();
        }
        if self.kept.len() < DEAD_LETTER_STOPS_KEPT {
            self.kept.push(stop);
        }
    }
}

impl Deaths {
    /// One more. False: it has been where it goes next since it was last rejected.
    pub(crate) fn add(&mut self, queue: &str, reason: DeadLetterReason, to: Stop) -> bool {
        self.count = self.count.saturating_add(1);
        let plain = vhost::plain(queue);
        let is_known = self.path.iter().any(|known| **known == *plain);
        if !is_known && self.path.len() < DEATH_PATH_MAX {
            self.path.push(plain.into());
        }
        if reason == DeadLetterReason::Rejected {
            self.unattended = Way::default();
            return true;
        }
        self.unattended.note(Stop::Queue(queue.into()));
        let goes_on = !self.unattended.has(&to);
        // A topic is not where it will die next, so that it went there is noted now.
        self.unattended.note(to);
        goes_on
    }

    /// The same, from where somebody begins with it anew.
    pub(crate) fn attended(&self) -> Self {
        Deaths { unattended: Way::default(), ..self.clone() }
    }

    /// The queues, in the order in which it first died in them.
    pub(crate) fn path(&self) -> String {
        self.path.join(", ")
    }

    /// All of it, to be written.
    pub(crate) fn saved(&self) -> Bytes {
        let mut bytes = Vec::new();
        let mut list = ListWriter::new(&mut bytes);
        list.field(&self.count);
        list.field(&(self.path.len() as u32));
        for queue in &self.path {
            list.field(&&**queue);
        }
        list.field(&self.unattended.length);
        for stop in &self.unattended.kept {
            list.field(&!matches!(stop, Stop::Queue(_)));
            list.field(&stop.name());
        }
        list.finish();
        bytes.into()
    }

    /// None: it says nothing, or makes no sense.
    pub(crate) fn read(saved: &[u8]) -> Option<Self> {
        let Ok(Value::List(list)) = Value::decode(saved) else { return None };
        let mut fields = list.iter().flatten();
        let number =
            |fields: &mut dyn Iterator<Item = Value<'_>>| u32::try_from(fields.next()?.as_i64()?).ok();
        let count = number(&mut fields)?;
        let length = number(&mut fields)?;
        let path =
            fields.by_ref().take(length as usize).filter_map(|queue| Some(queue.as_str()?.into())).collect();
        let mut unattended = Way { kept: Vec::new(), length: number(&mut fields)? };
        while let (Some(Value::Boolean(is_topic)), Some(name)) = (fields.next(), fields.next()) {
            unattended.kept.push(Stop::kept(name.as_str()?, !is_topic));
        }
        Some(Deaths { count, path, unattended })
    }

    /// Writes the annotations that tell of it.
    pub(crate) fn encode(&self, queue: &str, reason: DeadLetterReason, map: &mut MapWriter<'_>) {
        let mut path = Vec::new();
        let mut list = ListWriter::new(&mut path);
        for known in &self.path {
            list.field(&&**known);
        }
        list.finish();
        map.symbol("x-opt-death-reason", &reason_name(reason));
        map.symbol("x-opt-death-queue", &vhost::plain(queue));
        map.symbol("x-opt-death-count", &self.count);
        if let Ok(path) = Raw::read(&mut Reader::new(&path)) {
            map.symbol("x-opt-death-path", &path);
        }
    }
}

fn reason_name(reason: DeadLetterReason) -> &'static str {
    match reason {
        DeadLetterReason::Rejected => "rejected",
        DeadLetterReason::Expired => "expired",
        DeadLetterReason::DeliveriesMax => "deliveries",
        DeadLetterReason::Overflow => "overflow",
        DeadLetterReason::Deleted => "deleted",
    }
}

impl Shard {
    /// Sends dead letters on their way, so many in a turn, and no more than there is work left for: one may go to very many
    /// subscriptions. True if there is more to do that waits for nobody.
    pub(crate) fn run_dead_letters(&mut self, now: u64) -> bool {
        self.say_what_left();
        // Not all subscriptions may be known before.
        if !self.knows_all() {
            return false;
        }
        for sent in 0..TURN_DEAD_LETTERS_MAX {
            // Whatever others leave of a turn, one goes.
            if sent > 0 && self.is_turn_over() {
                return true;
            }
            let next = self.dead_letter_waits.take().or_else(|| self.next_dead_letter(now));
            let Some(letter) = next else { return false };
            let leaves = !self.stays_here(&letter.to);
            if !self.may_route(&letter.to) || leaves && !self.may_leave(letter.source) {
                self.dead_letter_waits = Some(letter);
                return false;
            }
            let DeadLetterOnItsWay { source, to, message } = letter;
            let died_in = source.queue;
            let message = self.taken_out(message);
            self.begin_departure(source);
            let outcome = self.route_internal(now, &to, Some(died_in), message);
            self.end_departure();
            if outcome != PublishOutcome::Stored {
                self.note_lost(now, &LostDeadLetter { died_in, to: Some((*to).into()), outcome });
            }
        }
        true
    }

    /// Counts a dead letter that is gone, at the queue it has died in, and says why.
    pub(crate) fn note_lost(&mut self, now: u64, letter: &LostDeadLetter) {
        let LostDeadLetter { died_in, to, outcome } = letter;
        if let Some(node) = self.queues.get_mut(*died_in) {
            node.dead_letters_lost += 1;
        }
        let name = self.queues.get(*died_in).map(|node| &*node.name);
        let queue = name.or_else(|| Some(self.queues.last_will(*died_in)?.0));
        self.lost_warnings.warn(now, &mut self.effects, |more| {
            let queue = queue.map_or("a queue that is gone by now", vhost::plain);
            let to = to.as_deref().map_or("the subscriptions of a topic", vhost::plain);
            let why = match outcome {
                PublishOutcome::Full => "no room there (it is full)",
                PublishOutcome::NoRoom => "no room there (its shard is full)",
                PublishOutcome::NoSubscription => "no queue is bound, and nothing is subscribed",
                PublishOutcome::NoDisk => "its disk is full, or has failed",
                PublishOutcome::Stored
                | PublishOutcome::NoQueue
                | PublishOutcome::NoAddress
                | PublishOutcome::Malformed
                | PublishOutcome::NoTransaction
                | PublishOutcome::TransactionTimedOut
                | PublishOutcome::TransactionFull
                | PublishOutcome::NotTransactional
            | PublishOutcome::Denied => {
                    "it is not there, and not made on first use (auto-create = false, or a name that only the broker gives)"
                }
            };
            format!(
                "a dead letter of {queue} could not be stored in {to} and is lost: {why}; {more} others were lost since this was last \
                 said, and dead-letters-lost of each queue counts its own"
            )
        });
    }

    fn next_dead_letter(&mut self, now: u64) -> Option<DeadLetterOnItsWay> {
        while !self.is_letter_unwritten()
            && !self.is_letter_unread()
            && let Some(DeadLetter { queue, place, message, reason, .. }) = self.dead_letters.pop_front()
        {
            let source = Source { queue, place };
            let message = match message {
                Stored::Here(message) => message,
                // It goes nowhere.
                Stored::Away(away) => {
                    self.counters.dead_letters_orphaned += 1;
                    self.say_letter_gone(source);
                    self.forget_letter(source, away);
                    continue;
                }
            };
            self.forget_transient(&message);
            // Its story is its own, whoever shares its bytes.
            let mut message = self.alone(message);
            message.may_be_known = self.was_found_dead(source);
            let Some((name, to)) = self.queues.last_will(queue) else {
                self.counters.dead_letters_orphaned += 1;
                self.say_letter_gone(source);
                self.forget(message);
                continue;
            };
            let to = Arc::clone(to);
            let counted = message.memory();
            let goes_on = message.die(now, name, reason, Stop::at(&self.destinations, &to));
            if let Address::Exchange { exchange, key } = Address::resolve(&to) {
                message.readdress(vhost::plain(&exchange), key.as_deref());
            }
            self.memory_used = self.memory_used - counted + message.memory();
            if goes_on {
                self.counters.dead_letters.count(reason);
                return Some(DeadLetterOnItsWay { source, to, message });
            }
            self.counters.dead_letters_circling += 1;
            self.drop_warnings.warn(now, &mut self.effects, |more| {
                let path = message.death_path();
                format!(
                    "a message that has died in {} would go on to {}, where it was before: dropped, and {more} others since this \
                     was last said; its dead letters go round in a circle (it has died in {path}): change dead-letter of one of these \
                     queues",
                    vhost::plain(name),
                    vhost::plain(&to)
                )
            });
            if let Some(node) = self.queues.get_mut(queue) {
                node.dead_letters_lost += 1;
            }
            self.say_letter_gone(source);
            self.forget(message);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deaths as `queue reason next`; expects for the last one whether the message goes on, and its path.
    fn check(deaths: &[(&str, DeadLetterReason, &str)], expect: (bool, &str)) {
        let mut state = Deaths::default();
        let mut goes_on = true;
        for (queue, reason, to) in deaths {
            assert!(goes_on, "it had been dropped before");
            goes_on = state.add(queue, *reason, Stop::Queue((*to).into()));
        }
        assert_eq!((goes_on, state.path.join(" ").as_str()), expect, "{deaths:?}");
        assert_eq!(state.count as usize, deaths.len());
    }

    #[test]
    fn s51_a_circle_is_cut_unless_a_consumer_drives_it() {
        use DeadLetterReason::{DeliveriesMax, Expired, Overflow, Rejected};
        check(&[("a", Expired, "b")], (true, "a"));
        check(&[("a", Expired, "b"), ("b", Expired, "a")], (false, "a b"));
        check(&[("a", Expired, "b"), ("b", Overflow, "c"), ("c", DeliveriesMax, "b")], (false, "a b c"));
        check(&[("a", Rejected, "b"), ("b", Rejected, "a")], (true, "a b"));
        check(&[("a", Expired, "b"), ("b", Rejected, "a")], (true, "a b"));
        check(&[("a", Rejected, "b"), ("b", Expired, "a")], (true, "a b"));
        let twice = [("a", Rejected, "b"), ("b", Rejected, "a"), ("a", Expired, "c"), ("c", Expired, "a")];
        check(&twice, (false, "a b c"));
        check(&[("a", Rejected, "b"), ("b", Expired, "a"), ("a", Expired, "b")], (false, "a b"));
    }

    #[test]
    fn what_is_written_of_deaths_is_read_again() {
        let mut deaths = Deaths::default();
        assert_eq!(Deaths::read(&Deaths::default().saved()), Some(Deaths::default()));
        assert_eq!(Deaths::read(b""), None);
        deaths.add("a", DeadLetterReason::Rejected, Stop::Queue("b".into()));
        deaths.add("b", DeadLetterReason::Expired, Stop::Topic("c".into()));
        deaths.add("b", DeadLetterReason::Overflow, Stop::Queue("d".into()));
        assert_eq!(Deaths::read(&deaths.saved()), Some(deaths));
    }

    /// How often a message dies that goes over so many queues to a circle of so many; none: it is not taken for a circle.
    fn deaths_until_cut(tail: usize, circle: usize) -> Option<usize> {
        let mut state = Deaths::default();
        let queue = |n: usize| if n < tail { n } else { tail + (n - tail) % circle };
        let is_cut = |n: &usize| {
            let to = Stop::Queue(queue(n + 1).to_string().into());
            let goes_on = state.add(&queue(*n).to_string(), DeadLetterReason::Expired, to);
            assert!(
                state.path.len() <= DEATH_PATH_MAX && state.unattended.kept.len() <= DEAD_LETTER_STOPS_KEPT
            );
            !goes_on
        };
        (0..10_000).find(is_cut).map(|n| n + 1)
    }

    #[test]
    fn a_way_of_any_length_is_gone_to_its_end_and_a_circle_of_any_length_is_cut() {
        assert_eq!(deaths_until_cut(0, usize::MAX), None);
        for circle in 1..=DEAD_LETTER_STOPS_KEPT {
            for tail in 0..=DEAD_LETTER_STOPS_KEPT - circle {
                assert_eq!(deaths_until_cut(tail, circle), Some(tail + circle));
            }
        }
        for circle in (1..200).step_by(17) {
            for tail in (0..200).step_by(13) {
                let count = deaths_until_cut(tail, circle).expect("it is cut");
                let longest = tail.max(circle).max(DEAD_LETTER_STOPS_KEPT);
                assert!((tail + circle..=4 * longest + circle).contains(&count), "{tail} {circle}: {count}");
            }
        }
    }
}
