//! What does an operator do in runs with crashes, and what may then be missing?
//!
//! One request at a time: a queue is emptied, or its messages are moved to a queue of which nobody else sends anything. What was in a
//! queue before a request to empty it may be gone from then on, and so may what comes before the answer; what nobody can have held is
//! gone for good with the answer. What is moved is in one of both queues. In the end a bit turns, and whatever that costs, the broker
//! starts.

use std::collections::BTreeSet;

use corelane_wire::amqp10::Value;

use crate::crashing::Crashing;
use crate::operator::Operator;
use crate::promises::Settled;
use crate::random::Random;
use crate::world::World;

/// Events after a start from a disk on which a bit has turned.
const EVENTS_AFTER_ROT: usize = 2_000;

#[derive(Debug)]
pub(crate) struct Managing {
    /// Of its own, so that a run is the same without it.
    pub(crate) random: Random,
    operator: Option<Operator>,
    asked: Option<Asked>,
    /// Queues of which somebody may have had messages since the start.
    touched: BTreeSet<usize>,
}

#[derive(Debug)]
enum Asked {
    /// With what is gone then for certain.
    Purge {
        node: usize,
        sure: Vec<usize>,
    },
    Move,
}

impl Managing {
    pub(crate) fn new(seed: u64) -> Self {
        Managing {
            random: Random::new(seed ^ 0x09e7_a70f),
            operator: None,
            asked: None,
            touched: BTreeSet::new(),
        }
    }

    /// Somebody may have messages of a queue from now on.
    pub(crate) fn touch(&mut self, node: usize) {
        self.touched.insert(node);
    }

    /// The broker has gone, and everybody with it.
    pub(crate) fn lose(&mut self) {
        (self.operator, self.asked) = (None, None);
        self.touched.clear();
    }
}

impl Crashing {
    /// The operator does something, or not.
    pub(crate) fn manage(&mut self) {
        self.hear_operator();
        let Managing { random, operator, asked, touched } = &mut self.managing;
        if asked.is_some() || !random.one_in(60) {
            return;
        }
        let world = &mut self.world;
        let shard = random.below(world.shards.len());
        let operator = operator.get_or_insert_with(|| Operator::open(world, shard));
        let nodes = &self.promises.nodes;
        // Neither a queue of dead letters nor one to which messages are moved.
        let sources: Vec<usize> = (0..self.queue_count).filter(|node| node % 3 != 2).collect();
        let node = sources[random.below(sources.len())];
        let entity = ("queue", &*nodes[node].name.clone());
        if let Some(to) = self.moves_to.filter(|_| nodes[node].dead_letter.is_none() && random.one_in(2)) {
            let count = Value::Uint(1 + random.below(20) as u32);
            let which = [("to", Value::String(&nodes[to].name)), ("count", count)];
            operator.send(world, "MOVE", entity, &which, &[]);
            self.promises.nodes[node].moved_to = Some(to);
            touched.insert(node);
            *asked = Some(Asked::Move);
        } else if random.one_in(3) {
            operator.send(world, "PURGE", entity, &[], &[]);
            let is_sure = !touched.contains(&node) && nodes[node].moved_to.is_none();
            let sure = if is_sure { self.promises.surely_at(node) } else { Vec::new() };
            self.promises.purging(node);
            *asked = Some(Asked::Purge { node, sure });
        }
    }

    fn hear_operator(&mut self) {
        let Some(operator) = &mut self.managing.operator else { return };
        for answer in operator.answers(&self.world) {
            let asked = self.managing.asked.take().expect("an answer to something");
            assert!([200, 404, 409, 503, 504].contains(&answer.status), "{asked:?} was answered {answer:?}");
            let Asked::Purge { node, sure } = asked else { continue };
            // Nobody knows when one that was given up is done.
            if answer.status == 504 {
                continue;
            }
            self.promises.nodes[node].purges -= 1;
            if answer.status != 200 || self.managing.touched.contains(&node) {
                continue;
            }
            let count: usize = answer.at("count").parse().expect("a count");
            let known = || sure.iter().map(|message| &self.promises.messages[*message]).collect::<Vec<_>>();
            assert!(
                count >= sure.len(),
                "{count} were deleted, and these were there: {sure:?}: {:?}",
                known()
            );
            for message in sure {
                self.promises.copies.entry((message, node)).or_default().settled = Settled::ForGood;
                self.report.deleted += 1;
            }
        }
    }

    /// A bit of a copy of the disks turns: a broker starts from that all the same, and works.
    pub(crate) fn rot(&mut self) {
        let random = &mut self.managing.random;
        let disks = self.world.disks.iter().enumerate();
        let mut files: Vec<(usize, u32, Vec<u8>)> = disks
            .flat_map(|(shard, disk)| {
                disk.segments().into_iter().map(move |number| (shard, number, disk.bytes(number).to_vec()))
            })
            .filter(|(.., bytes)| !bytes.is_empty())
            .collect();
        if files.is_empty() {
            return;
        }
        let rotten = random.below(files.len());
        let bytes = &mut files[rotten].2;
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        let mut world = World::without_shards(&self.world.setup);
        world.now = self.world.now;
        for (shard, number, bytes) in files {
            world.disks[shard].put_file(number, bytes);
        }
        world.begin_restart();
        for _ in 0..EVENTS_AFTER_ROT {
            if world.tick().is_none() {
                world.pass(20_000);
            }
        }
        world.shards.iter().for_each(|shard| shard.engine().verify());
        assert!(world.is_ready(), "every shard becomes ready although a bit has turned");
        self.report.rotten += 1;
    }
}
