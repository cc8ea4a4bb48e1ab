//! What does an operator do while the clients are at work, and what may then be missing?
//!
//! One request at a time, whatever shards do meanwhile. What a request takes out of a queue was in it before the answer came; of a
//! request that was answered with a time-out nobody knows when it is done. Nothing else changes for the messages: those that are not
//! taken out keep their order, and what consumers hold stays with them.

use corelane_wire::amqp10::Value;

use crate::changing::Change;
use crate::moving::{Known, OfKey, PEEKED_MAX, Peeked};
use crate::operator::{Answer, Operator};
use crate::oracle::Oracle;
use crate::plan::{Plan, QueuePlan};
use crate::random::Random;
use crate::world::World;

/// What any request may come to be: its queue is not there, or a shard does not answer.
const STATUSES: [i64; 2] = [404, 504];

/// An operator, and what it waits for.
#[derive(Debug)]
pub(crate) struct Operating {
    operator: Operator,
    waiting: Option<Request>,
    peeked: Option<Peeked>,
}

/// What was asked for.
#[derive(Debug)]
struct Request {
    number: u64,
    queue: usize,
    kind: Kind,
    /// How often the queue had gone by then.
    gone: usize,
}

#[derive(Debug)]
enum Kind {
    Peek,
    Change(Change),
    /// Takes out messages that are not known.
    Remove,
    /// The same, and puts them elsewhere.
    Move,
    /// Copies some that are not known.
    Copy,
    /// Concerns messages that are known, unless it has gone astray.
    Sweep(Known, bool),
    Create,
    Delete,
}

impl Kind {
    /// What it may come to besides.
    fn statuses(&self) -> &'static [i64] {
        match self {
            Kind::Change(change) if change.may_conflict() => &[200, 409],
            Kind::Peek | Kind::Change(_) => &[200],
            // Its target is full, or others move messages from there.
            Kind::Remove | Kind::Move | Kind::Copy | Kind::Sweep(..) => &[200, 409],
            // It is there.
            Kind::Create => &[201, 409],
            Kind::Delete => &[204],
        }
    }
}

impl Operating {
    /// Connects to a shard of a world where nothing else has happened.
    pub(crate) fn new(world: &mut World, shard: usize) -> Self {
        Operating { operator: Operator::new(world, shard), waiting: None, peeked: None }
    }

    pub(crate) fn client(&self) -> usize {
        self.operator.client
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Asks for something, if nothing is asked for.
    pub(crate) fn act(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
    ) {
        if self.waiting.is_some() || world.clients[self.client()].closed.is_some() {
            return;
        }
        if let Some(peeked) = self.peeked.take()
            && plan.moves
            && (oracle.queues[peeked.queue].gone, oracle.queues[peeked.queue].deleting) == (peeked.gone, 0)
        {
            let (queue, gone) = (peeked.queue, peeked.gone);
            let asked = peeked.sweep((world, &mut self.operator), oracle, (random, plan));
            self.waiting = asked.map(|(number, known)| {
                let kind = Kind::Sweep(known, false);
                Request { number, queue, kind, gone }
            });
            return;
        }
        let queue = random.below(plan.queue_count());
        let Some((number, kind)) = self.ask(world, oracle, (random, plan), queue) else { return };
        let own = &mut oracle.queues[queue];
        match kind {
            Kind::Remove | Kind::Move => own.removing += 1,
            Kind::Delete => own.deleting += 1,
            Kind::Change(change) => own.may_change(change),
            Kind::Peek | Kind::Copy | Kind::Sweep(..) | Kind::Create => {}
        }
        self.waiting = Some(Request { number, queue, kind, gone: own.gone });
    }

    fn ask(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        queue: usize,
    ) -> Option<(u64, Kind)> {
        let name = plan.queues[queue].name.as_str();
        let entity = ("queue", name);
        let operator = &mut self.operator;
        let peek = [("count", Value::Uint(PEEKED_MAX))];
        Some(match random.below(10) {
            0 => {
                let change = Change::Prefetch(1 + random.below(20) as u32);
                (change.send(operator, world, name), Kind::Change(change))
            }
            1 => {
                let selector = format!("k = {}", random.below(crate::plan::KEYS));
                let selector = [("selector", Value::String(&selector))];
                (operator.send(world, "DELETE-MESSAGES", entity, &selector, &[]), Kind::Remove)
            }
            2 => {
                let to = &plan.queues[plan.queues[queue].dead_letter?].name;
                let count = Value::Uint(1 + random.below(20) as u32);
                let which = [("to", Value::String(to)), ("count", count)];
                (operator.send(world, "MOVE", entity, &which, &[]), Kind::Move)
            }
            3 => (operator.send(world, "PURGE", entity, &[], &[]), Kind::Remove),
            4 if plan.deletes => (operator.send(world, "DELETE", entity, &[], &[]), Kind::Delete),
            5 if plan.deletes => (operator.send(world, "CREATE", entity, &[], &[]), Kind::Create),
            6 | 7 if plan.changes => {
                let change = Change::draw(random, &oracle.queues[queue])?;
                (change.send(operator, world, name), Kind::Change(change))
            }
            8 if plan.moves => {
                let (number, moves) = OfKey::send((world, operator), oracle, (random, plan), queue)?;
                (number, if moves { Kind::Move } else { Kind::Copy })
            }
            _ => (operator.send(world, "PEEK", entity, &peek, &[]), Kind::Peek),
        })
    }

    /// A queue has gone: places of its messages mean others from now on.
    pub(crate) fn vanished(&mut self, oracle: &mut Oracle, queue: usize) {
        if let Some(Request { kind: Kind::Sweep(known, strays), .. }) =
            self.waiting.as_mut().filter(|it| it.queue == queue)
            && !std::mem::replace(strays, true)
        {
            known.strays(oracle, queue);
        }
    }

    /// Reads what has come.
    pub(crate) fn observe(&mut self, world: &World, oracle: &mut Oracle) {
        for answer in self.operator.answers(world) {
            let request = self.waiting.take().unwrap_or_else(|| panic!("an answer to nothing: {answer:?}"));
            if let (Kind::Peek, 200) = (&request.kind, answer.status) {
                self.peeked = Some(Peeked::read(oracle, (request.queue, request.gone), &answer));
            }
            request.answered(oracle, &answer);
        }
        if world.clients[self.client()].closed.is_some() {
            // It said nothing for too long, and hears no more.
            self.waiting = None;
        }
    }
}

impl Request {
    fn answered(&self, oracle: &mut Oracle, answer: &Answer) {
        let Answer { number, status, .. } = answer;
        assert_eq!(*number, self.number, "each request is answered once, in its turn");
        let is_known = STATUSES.contains(status) || self.kind.statuses().contains(status);
        assert!(is_known, "a request was answered {answer:?}: {self:?}");
        let count = oracle.message_count();
        let own = &mut oracle.queues[self.queue];
        if *status == 504 {
            // Nobody knows when it is done.
            if let Kind::Sweep(known, false) = &self.kind
                && own.goes
            {
                known.strays(oracle, self.queue);
            }
            return;
        }
        match &self.kind {
            Kind::Remove | Kind::Move => own.has_removed(count),
            Kind::Sweep(known, strays) => {
                if *strays && known.takes_out() {
                    own.has_removed(count);
                }
                known.answered(oracle, answer, !strays);
            }
            Kind::Delete => {
                own.deleting -= 1;
                if *status == 204 && own.gone == self.gone {
                    // It was made and gone within one event.
                    oracle.vanished(self.queue, false);
                }
            }
            Kind::Change(change) => own.has_changed(*change, *status == 200, count),
            Kind::Peek | Kind::Copy | Kind::Create => {}
        }
    }
}

impl QueuePlan {
    fn has_removed(&mut self, count: usize) {
        self.removed = count;
        self.removing -= 1;
    }
}

impl Oracle {
    /// Whether an operator may have taken a message out of its queue, or out of that of its dead letters.
    pub(crate) fn may_be_removed(&self, number: usize) -> bool {
        let queue = &self.queues[self.messages[number].sent.queue];
        let grave = queue.dead_letter.map(|dead_letter| &self.queues[dead_letter]);
        let message = &self.messages[number];
        message.may_be_gone
            || message.was_removed
            || queue.may_remove(number)
            || grave.is_some_and(|grave| grave.may_remove(number))
    }
}
