//! What does an operator do while the clients are at work, and what may then be missing?
//!
//! One request at a time, whatever shards do meanwhile. What a request takes out of a queue was in it before the answer came; of a
//! request that was answered with a time-out nobody knows when it is done. Nothing else changes for the messages: those that are not
//! taken out keep their order, and what consumers hold stays with them.

use corelane_wire::amqp10::Value;

use crate::operator::{Answer, Item, Operator};
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::random::Random;
use crate::world::World;

/// What any request may come to be: its queue is not there, or a shard does not answer.
const STATUSES: [i64; 2] = [404, 504];

/// An operator, and what it waits for.
#[derive(Debug)]
pub(crate) struct Operating {
    operator: Operator,
    waiting: Option<Request>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Peek,
    Update,
    /// Takes messages out.
    Remove,
    /// The same, and puts them elsewhere.
    Move,
    Create,
    Delete,
}

impl Kind {
    /// What it may come to besides.
    fn statuses(self) -> &'static [i64] {
        match self {
            Kind::Peek | Kind::Update | Kind::Remove => &[200],
            // Its target is full.
            Kind::Move => &[200, 409],
            // It is there.
            Kind::Create => &[201, 409],
            Kind::Delete => &[204],
        }
    }
}

impl Operating {
    /// Connects to a shard of a world where nothing else has happened.
    pub(crate) fn new(world: &mut World, shard: usize) -> Self {
        Operating { operator: Operator::new(world, shard), waiting: None }
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
        let queue = random.below(plan.queue_count());
        let name = &plan.queues[queue].name;
        let entity = ("queue", name.as_str());
        let own = &mut oracle.queues[queue];
        let gone = own.gone;
        let operator = &mut self.operator;
        let (kind, number) = match random.below(8) {
            0 => {
                let prefetch = Item::Value(Value::Uint(1 + random.below(20) as u32));
                // Who has more keeps it.
                own.prefetch_max = None;
                (Kind::Update, operator.send(world, "UPDATE", entity, &[], &[("prefetch", prefetch)]))
            }
            1 => {
                let selector = format!("k = {}", random.below(crate::plan::KEYS));
                let selector = [("selector", Value::String(&selector))];
                (Kind::Remove, operator.send(world, "DELETE-MESSAGES", entity, &selector, &[]))
            }
            2 if own.dead_letter.is_some() => {
                let Some(to) = own.dead_letter.map(|to| &plan.queues[to].name) else { return };
                if world.home_of(to) != world.home_of(name) {
                    // What is taken in that moment is in both.
                    return;
                }
                let count = Value::Uint(1 + random.below(20) as u32);
                let which = [("to", Value::String(to)), ("count", count)];
                (Kind::Move, operator.send(world, "MOVE", entity, &which, &[]))
            }
            3 => (Kind::Remove, operator.send(world, "PURGE", entity, &[], &[])),
            4 if plan.deletes => (Kind::Delete, operator.send(world, "DELETE", entity, &[], &[])),
            5 if plan.deletes => (Kind::Create, operator.send(world, "CREATE", entity, &[], &[])),
            _ => (Kind::Peek, operator.send(world, "PEEK", entity, &[], &[])),
        };
        match kind {
            Kind::Remove | Kind::Move => own.removing += 1,
            Kind::Delete => own.deleting += 1,
            Kind::Peek | Kind::Update | Kind::Create => {}
        }
        self.waiting = Some(Request { number, queue, kind, gone });
    }

    /// Reads what has come.
    pub(crate) fn observe(&mut self, world: &World, oracle: &mut Oracle) {
        for answer in self.operator.answers(world) {
            let request = self.waiting.take().unwrap_or_else(|| panic!("an answer to nothing: {answer:?}"));
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
        if *status == 504 {
            // Nobody knows when it is done.
            return;
        }
        let count = oracle.message_count();
        let own = &mut oracle.queues[self.queue];
        match self.kind {
            Kind::Remove | Kind::Move => {
                own.removed = count;
                own.removing -= 1;
            }
            Kind::Delete => {
                own.deleting -= 1;
                if *status == 204 && own.gone == self.gone {
                    // It was made and gone within one event.
                    oracle.vanished(self.queue, false);
                }
            }
            Kind::Peek | Kind::Update | Kind::Create => {}
        }
    }
}

impl Oracle {
    /// Whether an operator may have taken a message out of its queue, or out of that of its dead letters.
    pub(crate) fn may_be_removed(&self, number: usize) -> bool {
        let queue = &self.queues[self.messages[number].sent.queue];
        let grave = queue.dead_letter.map(|dead_letter| &self.queues[dead_letter]);
        queue.may_remove(number) || grave.is_some_and(|grave| grave.may_remove(number))
    }
}
