//! Everything at once, from a seed: several shards, producers, workers, holders that die, slow readers, stalls, drains, large
//! messages and small ones. Whatever happened, each message that was accepted is accepted by exactly one worker in the end, and
//! first deliveries of one producer reach each link in order.

use std::collections::BTreeMap;

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{Random, ReceiverOptions, SenderOptions, Setup, World};
use corelane_wire::amqp10::DeliveryState;

const QUEUES: usize = 5;
const STEPS: usize = 400;

/// A client that consumes, with its links and the deliveries it has not settled.
struct Consumer {
    client: usize,
    links: Vec<LinkId>,
    seen: usize,
    /// It settles what it gets; the others only hold it.
    works: bool,
    /// It never settled anything, so that it may die at any moment.
    mortal: bool,
}

struct Mixed {
    world: World,
    random: Random,
    producers: Vec<(usize, Vec<LinkId>)>,
    consumers: Vec<Consumer>,
    sent: usize,
    /// How often each message was accepted by a worker.
    consumed: BTreeMap<String, usize>,
    links: usize,
    slow: Option<usize>,
    stalled: Option<usize>,
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

impl Mixed {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let shards = 1 + random.below(4);
        let window = [3, 50, 2048][random.below(3)];
        let setup =
            Setup { seed, verify: seed.is_multiple_of(8), client_window: window, ..Setup::new(shards) };
        let mut world = World::new(&setup);
        let mut producers = Vec::new();
        for n in 0..2 {
            let client = world.connect(random.below(shards));
            let attach = |q| {
                world.clients[client].attach_sender(
                    &format!("p{n}-{q}"),
                    &queue(q),
                    &SenderOptions::default(),
                )
            };
            let links = (0..QUEUES).map(attach).collect();
            producers.push((client, links));
        }
        world.run();
        let consumed = BTreeMap::new();
        Mixed {
            world,
            random,
            producers,
            consumers: Vec::new(),
            sent: 0,
            consumed,
            links: 0,
            slow: None,
            stalled: None,
        }
    }

    fn act(&mut self) {
        match self.random.below(20) {
            0..6 => self.send(),
            6..8 => self.attach(),
            8..11 => self.grant(),
            11..15 => self.settle(),
            15 => self.detach(),
            16 => self.kill_a_holder(),
            17 => self.toggle_reading(),
            18 => self.toggle_stall(),
            _ => self.world.advance(1000 * self.random.below(20) as u64),
        }
        for _ in 0..self.random.below(4) {
            self.world.step();
        }
    }

    fn send(&mut self) {
        let which = self.random.below(2);
        let (client, links) = &self.producers[which];
        for _ in 0..1 + self.random.below(8) {
            let link = links[self.random.below(QUEUES)];
            let padding =
                if self.random.one_in(25) { 20_000 * self.random.below(30) } else { self.random.below(50) };
            let body = format!("{:09}{which}{}", self.sent, "x".repeat(padding));
            self.sent += 1;
            self.world.clients[*client].send(link, &body);
        }
    }

    fn attach(&mut self) {
        if self.consumers.len() < 4 {
            let shards = self.world.shards.len();
            let shard = self.random.below(shards);
            // A shard that stands still does not get to greet anyone in time.
            let shard = if Some(shard) == self.stalled { (shard + 1) % shards } else { shard };
            let client = self.world.connect(shard);
            let works = self.random.below(3) > 0;
            self.consumers.push(Consumer { client, links: Vec::new(), seen: 0, works, mortal: !works });
        }
        let which = self.random.below(self.consumers.len());
        self.links += 1;
        let options =
            ReceiverOptions { priority: self.random.one_in(3).then_some(5), ..ReceiverOptions::default() };
        let name = queue(self.random.below(QUEUES));
        let client = self.consumers[which].client;
        let link = self.world.clients[client].attach_receiver(&format!("c{}", self.links), &name, &options);
        self.consumers[which].links.push(link);
    }

    fn any_link(&mut self) -> Option<(usize, LinkId)> {
        if self.consumers.is_empty() {
            return None;
        }
        let consumer = &self.consumers[self.random.below(self.consumers.len())];
        if consumer.links.is_empty() {
            return None;
        }
        Some((consumer.client, consumer.links[self.random.below(consumer.links.len())]))
    }

    fn grant(&mut self) {
        let Some((client, link)) = self.any_link() else { return };
        let credit = self.random.below(300) as u32;
        if self.random.one_in(5) {
            self.world.clients[client].drain(link, credit);
        } else {
            self.world.clients[client].credit(link, credit);
        }
    }

    /// Workers settle what has arrived since, most of it for good.
    fn settle(&mut self) {
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.works) {
            let arrived = self.world.clients[consumer.client].received[consumer.seen..].to_vec();
            consumer.seen += arrived.len();
            for received in arrived {
                let state =
                    if self.random.one_in(6) { DeliveryState::Released } else { DeliveryState::Accepted };
                let client = &mut self.world.clients[consumer.client];
                if client.detached.iter().any(|(link, _)| *link == received.link) {
                    continue;
                }
                if state == DeliveryState::Accepted {
                    *self.consumed.entry(received.body[..9].to_owned()).or_default() += 1;
                }
                client.settle(received.link, received.delivery_id, &state);
            }
        }
    }

    /// A worker's link ends only when all it got is settled: what crosses with the detach goes back by itself.
    fn detach(&mut self) {
        self.settle();
        if self.consumers.is_empty() {
            return;
        }
        let which = self.random.below(self.consumers.len());
        if let Some(link) = self.consumers[which].links.pop() {
            let client = self.consumers[which].client;
            self.world.clients[client].detach(link);
            self.world.clients[client].detached.push((link, None));
            // Link numbers are used again, and this test tells links by their numbers: from here on it only holds.
            self.consumers[which].works = false;
        }
    }

    fn kill_a_holder(&mut self) {
        if let Some(which) = self.consumers.iter().position(|consumer| consumer.mortal) {
            let client = self.consumers.remove(which).client;
            self.world.kill(client);
        }
    }

    fn toggle_reading(&mut self) {
        if let Some(client) = self.slow.take() {
            self.world.client_reads(client, true);
        } else if let Some((client, _)) = self.any_link() {
            self.world.client_reads(client, false);
            self.slow = Some(client);
        }
    }

    fn toggle_stall(&mut self) {
        if let Some(shard) = self.stalled.take() {
            // As long as it takes to be given up, or not.
            for _ in 0..self.random.below(20) {
                self.world.advance(100_000);
            }
            self.world.stall(shard, false);
        } else if self.world.shards.len() > 1 {
            let shard = self.random.below(self.world.shards.len());
            self.world.stall(shard, true);
            self.stalled = Some(shard);
        }
    }

    /// Faults end, everyone goes, and one last worker for each queue takes what is left.
    fn finish(mut self, seed: u64) {
        if let Some(client) = self.slow.take() {
            self.world.client_reads(client, true);
        }
        if let Some(shard) = self.stalled.take() {
            self.world.stall(shard, false);
        }
        self.world.run();
        self.world.advance(3_000_000);
        self.settle();
        self.world.run();
        for consumer in std::mem::take(&mut self.consumers) {
            check_order(&self.world, consumer.client, seed);
            self.world.clients[consumer.client].close();
            self.world.run();
        }
        for q in 0..QUEUES {
            let client = self.world.connect(0);
            let link =
                self.world.clients[client].attach_receiver("last", &queue(q), &ReceiverOptions::default());
            self.world.clients[client].credit(link, 1 << 20);
            self.world.run();
            self.world.advance(1_000);
            for body in self.world.clients[client].bodies(link) {
                *self.consumed.entry(body[..9].to_owned()).or_default() += 1;
            }
        }
        let accepted: usize =
            self.producers.iter().map(|(client, _)| self.world.clients[*client].outcomes.len()).sum();
        assert_eq!(accepted, self.sent, "seed {seed}: every message is answered once");
        let expect: BTreeMap<String, usize> = (0..self.sent).map(|n| (format!("{n:09}"), 1)).collect();
        let count = |key: &String| self.consumed.get(key).copied().unwrap_or(0);
        let wrong: Vec<_> =
            expect.keys().map(|key| (key, count(key))).filter(|(_, n)| *n != 1).take(5).collect();
        assert!(
            self.consumed == expect,
            "seed {seed}: of {} these are lost or came twice: {wrong:?}",
            self.sent
        );
    }
}

fn queue(n: usize) -> String {
    format!("mixed.{n}")
}

/// What a link got first of all consumers came in the order in which its producer sent it.
fn check_order(world: &World, client: usize, seed: u64) {
    let client = &world.clients[client];
    let mut last: BTreeMap<(LinkId, String), u64> = BTreeMap::new();
    // A link's number is given again when the link has ended: such a client says nothing about order.
    for received in client.received.iter().filter(|received| received.first_acquirer) {
        let number: u64 = received.body[..9].parse().expect("bodies begin with a number");
        let producer = received.body[9..10].to_owned();
        let before = last.insert((received.link, producer), number);
        assert!(
            before < Some(number) || !client.detached.is_empty(),
            "seed {seed}: {number} after {before:?}"
        );
    }
}

#[test]
fn nothing_is_lost_or_doubled_whatever_happens() {
    for seed in 0..seeds() {
        let mut mixed = Mixed::new(seed);
        for _ in 0..STEPS {
            mixed.act();
        }
        mixed.finish(seed);
    }
}
