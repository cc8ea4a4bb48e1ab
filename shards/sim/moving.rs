//! Which messages does an operator copy, move or delete, and where may they come from then?
//!
//! Those that a PEEK has shown, by their places, or those of a key. What is copied or moved is a message of its own in its new queue:
//! it has the number that it says, and a fate of its own, as copies in subscriptions have. So that one number is one message in each
//! queue, messages go from one queue to later ones only, of each to the same queue once, and to none whose messages become dead
//! letters elsewhere.
//!
//! What is known of a request by its answer:
//! - all of it was done: nobody gets what was deleted or moved any more, and all else is in its new queue;
//! - nothing was done: nobody gets anything of it;
//! - something was done, or nobody knows: each message may be here, there, or both.

use corelane_wire::amqp10::Value;

use crate::operator::{Answer, Item, Operator};
use crate::oracle::{self, Oracle, Sent};
use crate::plan::{KEYS, Plan};
use crate::random::Random;
use crate::world::World;

/// Messages that a PEEK shows.
pub(crate) const PEEKED_MAX: u32 = 6;

/// Streams of what keeps its order on the way.
const MOVED_STREAMS: usize = 1 << 40;
const LONE_STREAMS: usize = 1 << 60;

/// What a PEEK has shown: places and messages.
#[derive(Debug)]
pub(crate) struct Peeked {
    pub(crate) queue: usize,
    /// How often the queue had gone by then.
    pub(crate) gone: usize,
    messages: Vec<(String, usize)>,
}

/// What happens to messages, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    Delete,
    Copy(usize),
    Move(usize),
}

/// A request about messages that are known.
#[derive(Debug)]
pub(crate) struct Known {
    sweep: Sweep,
    messages: Vec<Part>,
    /// The target is on the same shard, and all of a message happens at once.
    is_near: bool,
}

/// A message of a request: in its queue, whether it might have been gone before, and in the new queue.
#[derive(Debug)]
struct Part {
    number: usize,
    was_gone: bool,
    copy: Option<usize>,
}

/// All messages of a key that are in a queue move or are copied to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfKey {
    from: usize,
    to: usize,
    key: i64,
}

impl Sweep {
    fn target(self) -> Option<usize> {
        match self {
            Sweep::Delete => None,
            Sweep::Copy(to) | Sweep::Move(to) => Some(to),
        }
    }

    fn operation(self) -> &'static str {
        match self {
            Sweep::Delete => "DELETE-MESSAGES",
            Sweep::Copy(_) => "COPY",
            Sweep::Move(_) => "MOVE",
        }
    }
}

/// A later queue to move to, if there is one.
fn draw_target(random: &mut Random, plan: &Plan, queue: usize) -> Option<usize> {
    let fits = |to: &usize| {
        let target = &plan.queues[*to];
        target.dead_letter.is_none() && !target.is_grave()
    };
    let targets: Vec<usize> = (queue + 1..plan.queue_count()).filter(fits).collect();
    (!targets.is_empty()).then(|| targets[random.below(targets.len())])
}

impl Peeked {
    /// What the answer shows, and of that what a queue has by the numbers of its own.
    pub(crate) fn read(oracle: &Oracle, (queue, gone): (usize, usize), answer: &Answer) -> Peeked {
        let mut messages = Vec::new();
        for index in 0..PEEKED_MAX {
            let body = answer.at(&format!("messages.{index}.body"));
            let Some(number) = body.get(..8).and_then(|number| number.parse().ok()) else { break };
            let own = oracle.sent_of(number).queue == queue;
            if let Some(number) = own.then_some(number).or_else(|| oracle.copy_in(queue, number)) {
                messages.push((answer.at(&format!("messages.{index}.place")), number));
            }
        }
        Peeked { queue, gone, messages }
    }

    /// Asks for something to be done to some of it.
    pub(crate) fn sweep(
        &self,
        (world, operator): (&mut World, &mut Operator),
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
    ) -> Option<(u64, Known)> {
        let sweep = match (random.below(3), draw_target(random, plan, self.queue)) {
            (0, _) => Sweep::Delete,
            (1, Some(to)) => Sweep::Copy(to),
            (_, Some(to)) => Sweep::Move(to),
            (_, None) => return None,
        };
        let (mut places, mut messages) = (Vec::new(), Vec::new());
        for (place, number) in &self.messages {
            if random.one_in(4) || sweep.target().is_some_and(|to| oracle.may_be_in(*number, to)) {
                continue;
            }
            places.push(place.as_str());
            messages.push(*number);
        }
        if places.is_empty() {
            return None;
        }
        let name = |queue: usize| plan.queues[queue].name.as_str();
        let home = |queue: usize| world.home_of(name(queue));
        let is_near = sweep.target().is_none_or(|to| home(to) == home(self.queue));
        let to = sweep.target().map(|to| ("to", Value::String(name(to))));
        let to: Vec<_> = to.into_iter().collect();
        let entity = ("queue", name(self.queue));
        let number = operator.send(world, sweep.operation(), entity, &to, &[("ids", Item::Texts(&places))]);
        let messages = messages.into_iter().map(|it| oracle.swept(it, sweep, number)).collect();
        Some((number, Known { sweep, messages, is_near }))
    }
}

impl Known {
    /// The request was answered, for certain: so many messages are done with. `is_whole`: its places meant these messages all the time.
    pub(crate) fn answered(&self, oracle: &mut Oracle, answer: &Answer, is_whole: bool) {
        let count = match answer.status {
            200 => answer.at("count").parse().ok(),
            // There was nothing to take from.
            404 => Some(0),
            _ => None,
        };
        if !is_whole {
            return;
        }
        for part in &self.messages {
            if count == Some(self.messages.len()) {
                if let Some(copy) = part.copy {
                    oracle.messages[copy].answer = oracle::Answer::Stored;
                }
                oracle.messages[part.number].was_removed |= self.takes_out();
            } else if count == Some(0) && self.is_near {
                oracle.messages[part.number].may_be_gone = part.was_gone;
                if let Some(copy) = part.copy {
                    oracle.messages[copy].answer = oracle::Answer::Refused;
                }
            }
        }
    }

    pub(crate) fn takes_out(&self) -> bool {
        !matches!(self.sweep, Sweep::Copy(_))
    }

    /// Its places mean other messages by now, or may when it is done.
    pub(crate) fn strays(&self, oracle: &mut Oracle, queue: usize) {
        oracle.queues[queue].removing += u32::from(self.takes_out());
        if let Some(to) = self.sweep.target() {
            oracle.queues[to].gets_strays = true;
        }
    }
}

impl OfKey {
    /// Asks for it. Whether messages leave their queue.
    pub(crate) fn send(
        (world, operator): (&mut World, &mut Operator),
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        from: usize,
    ) -> Option<(u64, bool)> {
        let to = draw_target(random, plan, from)?;
        if oracle.transfers.iter().any(|it| it.to == to) || oracle.has_copies_in(to) {
            return None;
        }
        let key = random.below(KEYS) as i64;
        let moves = random.one_in(2);
        oracle.transfers.push(OfKey { from, to, key });
        let selector = format!("k = {key}");
        let which = [("to", Value::String(&plan.queues[to].name)), ("selector", Value::String(&selector))];
        let entity = ("queue", plan.queues[from].name.as_str());
        Some((operator.send(world, if moves { "MOVE" } else { "COPY" }, entity, &which, &[]), moves))
    }
}

impl Oracle {
    /// The message that a number means in a queue that it was moved or copied to.
    pub(crate) fn copy_in(&self, queue: usize, number: usize) -> Option<usize> {
        self.copies.get(&(queue, number)).copied()
    }

    /// The same for what has come there now.
    pub(crate) fn moved_to(&mut self, queue: usize, number: usize) -> usize {
        let known = self.copy_in(queue, number);
        known.unwrap_or_else(|| {
            if self.queues[queue].gets_strays {
                let copy = self.copy_to(queue, number, 0);
                self.messages[copy].is_loose = true;
                copy
            } else if self.is_transferred(number, queue) {
                self.copy_to(queue, number, 0)
            } else {
                number
            }
        })
    }

    fn copy_to(&mut self, queue: usize, number: usize, request: u64) -> usize {
        let Sent { stream, queue: from, .. } = self.messages[number].sent;
        let keeps_order = request > 0 && !self.queues[from].priorities;
        let may_end = self.queues[from].may_expire(number, &self.messages[number].sent);
        let original = self.messages[number].original;
        let copy = self.copy(queue, original);
        let message = &mut self.messages[copy];
        // It comes from the broker.
        message.sent.peer = usize::MAX;
        message.sent.life = None;
        // What is left of its time goes with it.
        message.sent.ends = if may_end { None } else { message.sent.ends.filter(|ends| !ends) };
        message.sent.stream = if keeps_order && stream < MOVED_STREAMS {
            MOVED_STREAMS + (request as usize) * MOVED_STREAMS / (1 << 20) + stream
        } else {
            LONE_STREAMS + copy
        };
        message.posted_in = None;
        if request > 0 {
            message.sent_at = self.now;
        } else {
            // It was there before anybody knew.
            message.is_loose |= message.sent_at <= self.queues[queue].missed;
        }
        copy
    }

    /// One message of a request.
    fn swept(&mut self, number: usize, sweep: Sweep, request: u64) -> Part {
        let copy = sweep.target().map(|to| self.copy_to(to, number, request));
        let message = &mut self.messages[number];
        let was_gone = message.may_be_gone;
        message.may_be_gone |= !matches!(sweep, Sweep::Copy(_));
        Part { number, was_gone, copy }
    }

    fn has_copies_in(&self, queue: usize) -> bool {
        self.copies.range((queue, 0)..(queue + 1, 0)).next().is_some()
    }

    /// Whether a message may have been moved or copied there.
    fn may_be_in(&self, number: usize, queue: usize) -> bool {
        let original = self.messages[number].original;
        let is_target = self.queues[queue].gets_strays || self.transfers.iter().any(|it| it.to == queue);
        is_target || self.copies.contains_key(&(queue, original))
    }

    /// Whether it was one of a key that was moved or copied there, from where it was sent or has been moved to itself.
    fn is_transferred(&self, number: usize, queue: usize) -> bool {
        let key = self.messages[number].sent.key;
        self.transfers.iter().filter(|it| it.to == queue && it.key == key).any(|it| {
            self.messages[number].sent.queue == it.from
                || self.copies.contains_key(&(it.from, number))
                || self.is_transferred(number, it.from)
        })
    }
}
