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

/// What a request may come to be that was understood.
const STATUSES: [i64; 4] = [200, 404, 503, 504];

/// An operator, and what it waits for.
#[derive(Debug)]
pub(crate) struct Operating {
    operator: Operator,
    /// The number of the request, its queue, and whether it takes messages out.
    waiting: Option<(u64, usize, bool)>,
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
        let removing = own.removing;
        let number = match random.below(5) {
            0 => {
                let prefetch = Item::Value(Value::Uint(1 + random.below(20) as u32));
                // Who has more keeps it.
                own.prefetch_max = None;
                self.operator.send(world, "UPDATE", entity, &[], &[("prefetch", prefetch)])
            }
            1 => {
                own.removing += 1;
                let selector = format!("k = {}", random.below(crate::plan::KEYS));
                let selector = [("selector", Value::String(&selector))];
                self.operator.send(world, "DELETE-MESSAGES", entity, &selector, &[])
            }
            2 if own.dead_letter.is_some() => {
                let Some(to) = own.dead_letter.map(|to| &plan.queues[to].name) else { return };
                if world.home_of(to) != world.home_of(name) {
                    // What is taken in that moment is in both.
                    return;
                }
                own.removing += 1;
                let count = Value::Uint(1 + random.below(20) as u32);
                let which = [("to", Value::String(to)), ("count", count)];
                self.operator.send(world, "MOVE", entity, &which, &[])
            }
            3 => {
                own.removing += 1;
                self.operator.send(world, "PURGE", entity, &[], &[])
            }
            _ => self.operator.send(world, "PEEK", entity, &[], &[]),
        };
        self.waiting = Some((number, queue, own.removing > removing));
    }

    /// Reads what has come.
    pub(crate) fn observe(&mut self, world: &World, oracle: &mut Oracle) {
        for Answer { number, status, description, .. } in self.operator.answers(world) {
            let (asked, queue, removes) =
                self.waiting.take().unwrap_or_else(|| panic!("answer {number} to nothing"));
            assert_eq!(number, asked, "each request is answered once, in its turn");
            assert!(STATUSES.contains(&status), "a request was answered {status} {description}");
            if removes && status != 504 {
                oracle.queues[queue].removed = oracle.message_count();
                oracle.queues[queue].removing -= 1;
            }
        }
        if world.clients[self.client()].closed.is_some() {
            // It said nothing for too long, and hears no more.
            self.waiting = None;
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
