//! Transactions at random, from a seed: controllers that post, retire and acquire inside them on several shards, commit, roll back, lose
//! their coordinator's link or die at any moment, while shards stall and others produce and consume beside them.
//!
//! The oracle knows of each message which transaction it came in and which one took it. A transaction whose answer was lost may have
//! gone either way, but only as a whole. In the end every message that was committed, or sent without a transaction, was consumed by
//! one commit or is in its queue, once, at its place; nothing of what was rolled back was ever seen.

use std::collections::{BTreeMap, BTreeSet};

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{Random, ReceiverOptions, SenderOptions, Setup, World};
use corelane_wire::amqp10::{DeliveryState, Outcome};

const QUEUES: usize = 4;
const STEPS: usize = 300;

/// What is known of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// The answer to this token says what happened.
    Discharged {
        token: u64,
        fail: bool,
    },
    Committed,
    RolledBack,
    /// Nobody heard the answer.
    Unknown,
}

/// A transaction, by its index among all of the run.
#[derive(Debug)]
struct Transaction {
    controller: usize,
    number: u32,
    fate: Fate,
    posted: Vec<String>,
    tokens: Vec<u64>,
    retired: Vec<String>,
}

struct Controller {
    client: usize,
    coordinator: LinkId,
    senders: Vec<LinkId>,
    receivers: Vec<LinkId>,
    declares: Vec<u64>,
    /// Deliveries looked at so far, and those that have no outcome yet.
    seen: usize,
    held: Vec<usize>,
    alive: bool,
    has_coordinator: bool,
}

struct Run {
    world: World,
    random: Random,
    controllers: Vec<Controller>,
    transactions: Vec<Transaction>,
    producer: (usize, Vec<LinkId>),
    worker: (usize, usize),
    sent: usize,
    plain: Vec<String>,
    consumed: BTreeMap<String, usize>,
    stalled: Option<usize>,
    seed: u64,
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

fn queue(n: usize) -> String {
    format!("random.{n}")
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed ^ 0x7a75);
        let shards = 1 + random.below(4);
        let window = [5, 50, 2048][random.below(3)];
        let verify = seed.is_multiple_of(8);
        let mut world = World::new(&Setup { seed, verify, client_window: window, ..Setup::new(shards) });
        let client = world.connect(random.below(shards));
        let attach = |n| world.clients[client].attach_sender(&queue(n), &queue(n), &SenderOptions::default());
        let producer = (client, (0..QUEUES).map(attach).collect());
        let worker = world.connect(random.below(shards));
        for n in 0..QUEUES {
            let link =
                world.clients[worker].attach_receiver(&queue(n), &queue(n), &ReceiverOptions::default());
            world.run();
            world.clients[worker].credit(link, 3);
        }
        world.run();
        Run {
            world,
            random,
            controllers: Vec::new(),
            transactions: Vec::new(),
            producer,
            worker: (worker, 0),
            sent: 0,
            plain: Vec::new(),
            consumed: BTreeMap::new(),
            stalled: None,
            seed,
        }
    }

    fn act(&mut self) {
        match self.random.below(24) {
            0..3 => self.send_plainly(),
            3..6 => self.declare(),
            6..11 => self.post(),
            11..16 => self.retire(),
            16..20 => self.discharge(),
            20 => self.grant(),
            21 => self.consume_plainly(),
            22 => self.disturb(),
            _ => self.world.advance(1000 * self.random.below(20) as u64),
        }
        for _ in 0..self.random.below(4) {
            self.world.step();
        }
        self.read_answers();
    }

    fn body(&mut self, by: usize) -> String {
        self.sent += 1;
        format!("{:06} {by}", self.sent)
    }

    fn send_plainly(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            let body = self.body(99);
            let link = self.producer.1[self.random.below(QUEUES)];
            self.world.clients[self.producer.0].send(link, &body);
            self.plain.push(body);
        }
    }

    fn connect(&mut self) {
        let shards = self.world.shards.len();
        let shard = self.random.below(shards);
        // A shard that stands still does not get to greet anyone in time.
        let shard = if Some(shard) == self.stalled { (shard + 1) % shards } else { shard };
        let client = self.world.connect(shard);
        let mut receivers = Vec::new();
        // With a consumer first the connection moves, with the coordinator first it stays.
        let first = self.random.one_in(2);
        let mut coordinator = first.then(|| self.world.clients[client].attach_coordinator("txn", &[]));
        for n in 0..QUEUES {
            let settles_second = self.random.one_in(2);
            let options = ReceiverOptions { settles_second, ..ReceiverOptions::default() };
            let name = format!("r{n}");
            receivers.push(self.world.clients[client].attach_receiver(&name, &queue(n), &options));
        }
        let coordinator =
            *coordinator.get_or_insert_with(|| self.world.clients[client].attach_coordinator("txn", &[]));
        let attach =
            |n| self.world.clients[client].attach_sender(&queue(n), &queue(n), &SenderOptions::default());
        let senders = (0..QUEUES).map(attach).collect();
        for link in &receivers {
            self.world.clients[client].credit(*link, 4);
        }
        self.controllers.push(Controller {
            client,
            coordinator,
            senders,
            receivers,
            declares: Vec::new(),
            seen: 0,
            held: Vec::new(),
            alive: true,
            has_coordinator: true,
        });
    }

    fn any_controller(&mut self) -> Option<usize> {
        let alive: Vec<usize> = (0..self.controllers.len()).filter(|n| self.controllers[*n].alive).collect();
        if alive.len() < 2 && self.controllers.len() < 6 {
            self.connect();
            return Some(self.controllers.len() - 1);
        }
        if alive.is_empty() { None } else { Some(alive[self.random.below(alive.len())]) }
    }

    fn any_open(&mut self) -> Option<usize> {
        let open: Vec<usize> =
            (0..self.transactions.len()).filter(|n| self.transactions[*n].fate == Fate::Open).collect();
        if open.is_empty() { None } else { Some(open[self.random.below(open.len())]) }
    }

    fn declare(&mut self) {
        let Some(which) = self.any_controller() else { return };
        let controller = &mut self.controllers[which];
        if controller.has_coordinator && controller.declares.len() < 2 {
            controller.declares.push(self.world.clients[controller.client].declare(controller.coordinator));
        }
    }

    fn post(&mut self) {
        let Some(open) = self.any_open() else { return };
        let (which, number) = (self.transactions[open].controller, self.transactions[open].number);
        for _ in 0..1 + self.random.below(4) {
            let body = self.body(which);
            let link = self.controllers[which].senders[self.random.below(QUEUES)];
            let token = self.world.clients[self.controllers[which].client].send_in(link, number, &body);
            self.transactions[open].posted.push(body);
            self.transactions[open].tokens.push(token);
        }
    }

    /// Gives some of the deliveries that have none an outcome inside the transaction.
    fn retire(&mut self) {
        let Some(open) = self.any_open() else { return };
        let (which, number) = (self.transactions[open].controller, self.transactions[open].number);
        let controller = &mut self.controllers[which];
        let client = &mut self.world.clients[controller.client];
        let arrived = client.received.len();
        controller.held.extend(controller.seen..arrived);
        controller.seen = arrived;
        let mut kept = Vec::new();
        for index in std::mem::take(&mut controller.held) {
            let received = client.received[index].clone();
            if !client.is_unsettled(received.link, received.delivery_id) {
                continue;
            }
            // Inside another transaction it can only be that one's.
            let other = received.transaction.filter(|other| *other != number).and_then(|other| {
                self.transactions.iter().find(|t| t.controller == which && t.number == other)
            });
            let foreign = other.is_some_and(|t| matches!(t.fate, Fate::Open | Fate::Discharged { .. }));
            let noted = self.transactions.iter().any(|t| {
                t.controller == which
                    && matches!(t.fate, Fate::Open | Fate::Discharged { .. })
                    && t.retired.contains(&received.body)
            });
            if foreign || noted || self.random.one_in(3) {
                kept.push(index);
                continue;
            }
            client.settle_in(received.link, received.delivery_id, number, Outcome::Accepted);
            self.transactions[open].retired.push(received.body);
            kept.push(index);
        }
        controller.held = kept;
    }

    fn discharge(&mut self) {
        let Some(open) = self.any_open() else { return };
        let (which, number) = (self.transactions[open].controller, self.transactions[open].number);
        let controller = &self.controllers[which];
        let client = &self.world.clients[controller.client];
        if self.transactions[open].tokens.iter().any(|token| client.is_waiting(*token)) {
            // Another link's message would overtake it.
            return;
        }
        let fail = self.random.one_in(3);
        let token = self.world.clients[controller.client].discharge(controller.coordinator, number, fail);
        self.transactions[open].fate = Fate::Discharged { token, fail };
    }

    fn grant(&mut self) {
        let Some(which) = self.any_controller() else { return };
        let link = self.controllers[which].receivers[self.random.below(QUEUES)];
        let client = self.controllers[which].client;
        let credit = self.random.below(8) as u32;
        let open = self.transactions.iter().find(|t| t.controller == which && t.fate == Fate::Open);
        match open {
            Some(open) if self.random.one_in(2) => {
                self.world.clients[client].credit_in(link, open.number, credit);
            }
            Some(_) | None => self.world.clients[client].credit(link, credit),
        }
    }

    /// The worker is never disturbed, so that what it accepts is consumed.
    fn consume_plainly(&mut self) {
        let (worker, seen) = self.worker;
        let client = &mut self.world.clients[worker];
        let arrived = client.received[seen..].to_vec();
        self.worker.1 += arrived.len();
        for received in arrived {
            *self.consumed.entry(received.body).or_default() += 1;
            client.settle(received.link, received.delivery_id, &DeliveryState::Accepted);
            client.credit(received.link, 3);
        }
    }

    fn disturb(&mut self) {
        match self.random.below(3) {
            0 => {
                if let Some(shard) = self.stalled.take() {
                    for _ in 0..self.random.below(15) {
                        self.world.advance(100_000);
                    }
                    self.world.stall(shard, false);
                } else if self.world.shards.len() > 1 {
                    let shard = self.random.below(self.world.shards.len());
                    self.world.stall(shard, true);
                    self.stalled = Some(shard);
                }
            }
            1 => {
                let Some(which) = self.any_controller() else { return };
                let controller = &mut self.controllers[which];
                controller.alive = false;
                if self.random.one_in(3) {
                    self.world.clients[controller.client].close();
                } else {
                    self.world.kill(controller.client);
                }
                self.lose(which);
            }
            _ => {
                let Some(which) = self.any_controller() else { return };
                let controller = &mut self.controllers[which];
                if std::mem::take(&mut controller.has_coordinator) {
                    self.world.clients[controller.client].detach(controller.coordinator);
                    self.lose(which);
                }
            }
        }
    }

    /// Nobody hears of a controller's transactions any more.
    fn lose(&mut self, which: usize) {
        self.read_answers();
        self.controllers[which].declares.clear();
        for transaction in self.transactions.iter_mut().filter(|t| t.controller == which) {
            match transaction.fate {
                Fate::Open => transaction.fate = Fate::RolledBack,
                Fate::Discharged { fail: true, .. } => transaction.fate = Fate::RolledBack,
                Fate::Discharged { .. } => transaction.fate = Fate::Unknown,
                Fate::Committed | Fate::RolledBack | Fate::Unknown => {}
            }
        }
    }

    fn read_answers(&mut self) {
        for (which, controller) in self.controllers.iter_mut().enumerate() {
            let client = &self.world.clients[controller.client];
            controller.declares.retain(|token| {
                let Some(outcome) = client.outcome(*token) else { return true };
                let number = outcome.strip_prefix("declared ").expect("there is room for two");
                let number = number.parse().expect("a number");
                self.transactions.push(Transaction {
                    controller: which,
                    number,
                    fate: Fate::Open,
                    posted: Vec::new(),
                    tokens: Vec::new(),
                    retired: Vec::new(),
                });
                false
            });
        }
        for transaction in &mut self.transactions {
            let Fate::Discharged { token, fail } = transaction.fate else { continue };
            let client = &self.world.clients[self.controllers[transaction.controller].client];
            let Some(outcome) = client.outcome(token) else { continue };
            transaction.fate = match (outcome, fail) {
                ("accepted", false) => Fate::Committed,
                ("accepted", true) => Fate::RolledBack,
                ("rejected amqp:transaction:rollback", false) => Fate::RolledBack,
                _ => panic!("seed {}: {transaction:?} was answered {outcome}", self.seed),
            };
        }
    }

    /// Faults end, everyone goes, and a last consumer takes what is left.
    fn finish(mut self) {
        let seed = self.seed;
        if let Some(shard) = self.stalled.take() {
            self.world.stall(shard, false);
        }
        self.world.run();
        self.world.advance(3_000_000);
        self.read_answers();
        for transaction in &self.transactions {
            let answered = !matches!(transaction.fate, Fate::Discharged { .. });
            assert!(answered, "seed {seed}: {transaction:?} is not answered");
        }
        for which in 0..self.controllers.len() {
            if self.controllers[which].alive {
                self.world.clients[self.controllers[which].client].close();
                self.world.run();
                self.lose(which);
            }
        }
        self.consume_plainly();
        self.world.run();
        self.consume_plainly();
        self.world.run();
        self.world.clients[self.worker.0].close();
        self.world.run();
        let waiting: usize = self.world.shards.iter().map(|shard| shard.participation_count()).sum();
        assert_eq!(waiting, 0, "seed {seed}");
        for received in &self.world.clients[self.worker.0].received[self.worker.1..] {
            assert!(!self.consumed.contains_key(&received.body), "seed {seed}: {} came twice", received.body);
        }
        let left = self.drain();
        self.check(&left);
    }

    /// What is left, in the order of each queue.
    fn drain(&mut self) -> BTreeSet<String> {
        let mut left = BTreeSet::new();
        for n in 0..QUEUES {
            let client = self.world.connect(0);
            let link =
                self.world.clients[client].attach_receiver("last", &queue(n), &ReceiverOptions::default());
            self.world.clients[client].credit(link, 1 << 20);
            self.world.run();
            self.world.advance(1_000);
            let mut last: BTreeMap<String, String> = BTreeMap::new();
            for body in self.world.clients[client].bodies(link) {
                let before = last.insert(body[7..].to_owned(), body.to_owned());
                let seed = self.seed;
                assert!(before.as_deref() < Some(body), "seed {seed}: {body} behind {before:?}");
                assert!(left.insert(body.to_owned()), "seed {seed}: {body} is there twice");
            }
        }
        left
    }

    fn check(&self, left: &BTreeSet<String>) {
        let seed = self.seed;
        let seen: BTreeSet<&str> = self
            .world
            .clients
            .iter()
            .flat_map(|client| client.received.iter().map(|r| r.body.as_str()))
            .collect();
        let mut takers: BTreeMap<&str, Vec<&Transaction>> = BTreeMap::new();
        for transaction in &self.transactions {
            for body in &transaction.retired {
                takers.entry(body).or_default().push(transaction);
            }
        }
        // What became of those whose answer was lost is read off what they posted. Of those that posted nothing, any may have gone.
        let went = |transaction: &Transaction| match transaction.fate {
            Fate::Committed => true,
            Fate::Unknown => transaction.posted.iter().any(|body| seen.contains(body.as_str())),
            Fate::Open | Fate::RolledBack | Fate::Discharged { .. } => false,
        };
        let may_have_gone =
            |transaction: &Transaction| transaction.fate == Fate::Unknown && transaction.posted.is_empty();
        let mut wanted: Vec<&String> = self.plain.iter().collect();
        for transaction in &self.transactions {
            if went(transaction) {
                wanted.extend(&transaction.posted);
            } else {
                for body in &transaction.posted {
                    assert!(!seen.contains(body.as_str()), "seed {seed}: {body} was seen: {transaction:?}");
                }
            }
        }
        for body in wanted {
            let taken = takers.get(body.as_str()).map_or(0, |by| by.iter().filter(|t| went(t)).count());
            let plainly = self.consumed.get(body).copied().unwrap_or(0);
            let mut count = taken + plainly + usize::from(left.contains(body));
            let by = takers.get(body.as_str());
            if count == 0 && by.is_some_and(|by| by.iter().any(|t| may_have_gone(t))) {
                count = 1;
            }
            assert_eq!(count, 1, "seed {seed}: {body}, taken {taken}, plainly {plainly}, by {by:?}");
        }
    }
}

#[test]
fn whatever_happens_transactions_are_whole() {
    let (mut committed, mut rolled_back, mut unknown) = (0, 0, 0);
    for seed in 0..seeds() {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.act();
        }
        for shard in &run.world.shards {
            committed += shard.counters().transactions_committed;
            rolled_back += shard.counters().transactions_rolled_back;
        }
        unknown += run.transactions.iter().filter(|t| t.fate == Fate::Unknown).count();
        run.finish();
    }
    println!("{committed} committed, {rolled_back} rolled back, {unknown} without an answer");
    assert!(committed > 2 * seeds() && rolled_back > 2 * seeds(), "{committed} {rolled_back}");
}
