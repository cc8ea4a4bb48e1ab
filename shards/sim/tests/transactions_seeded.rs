//! Transactions at random, from a seed: controllers that post, retire and acquire inside them on several shards, commit, roll back, lose
//! their coordinator's link or die at any moment, while shards stall and others produce and consume beside them. In some runs
//! transactions are given so little time that many are rolled back behind their controllers' backs.
//!
//! The oracle knows of each message which transaction it came in and which one took it. A transaction whose answer was lost may have
//! gone either way, but only as a whole. In the end every message that was committed, or sent without a transaction, was consumed by
//! one commit or is in its queue, once, at its place; nothing of what was rolled back was ever seen. On links that send settled credit is
//! given inside transactions only, and taken back before these end: nothing may come there outside of one.

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
    /// What it took from its queue, with the link that this came on.
    retired: Vec<(LinkId, String)>,
    /// What it took unless that crossed the end of the link.
    uncertain: Vec<String>,
    /// Its link sends settled, so it may have taken more than its controller has seen.
    blind: bool,
}

/// A controller's link from a queue.
#[derive(Clone, Copy)]
struct Receiver {
    link: LinkId,
    settles_second: bool,
    presettled: bool,
    /// The transaction that its credit was last given in, by its index.
    inside: Option<usize>,
}

struct Controller {
    client: usize,
    coordinator: LinkId,
    senders: Vec<LinkId>,
    receivers: Vec<Receiver>,
    declares: Vec<u64>,
    /// Deliveries looked at so far, and those that have no outcome yet.
    seen: usize,
    held: Vec<usize>,
    /// Of those and of links that have ended, how many were taken note of.
    noted: usize,
    ended: usize,
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
    times_out: bool,
    /// Because a transaction took too long that they acquired in.
    links_ended: u64,
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
        let setup = Setup { seed, verify, client_window: window, ..Setup::new(shards) };
        let transaction_timeout_us = [setup.transaction_timeout_us, 10_000, 2_000][random.below(3)];
        let times_out = transaction_timeout_us != setup.transaction_timeout_us;
        let mut world = World::new(&Setup { transaction_timeout_us, ..setup });
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
            times_out,
            links_ended: 0,
            seed,
        }
    }

    fn act(&mut self) {
        match self.random.below(27) {
            0..3 => self.send_plainly(),
            3..6 => self.declare(),
            6..11 => self.post(),
            11..16 => self.retire(),
            16..20 => self.discharge(),
            20..23 => self.grant(),
            23 => self.consume_plainly(),
            24 => self.disturb(),
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
            let (settles_second, presettled) =
                [(false, false), (true, false), (false, true)][self.random.below(3)];
            let options = ReceiverOptions { settles_second, presettled, ..ReceiverOptions::default() };
            let link = self.world.clients[client].attach_receiver(&format!("r{n}"), &queue(n), &options);
            receivers.push(Receiver { link, settles_second, presettled, inside: None });
        }
        let coordinator =
            *coordinator.get_or_insert_with(|| self.world.clients[client].attach_coordinator("txn", &[]));
        let attach =
            |n| self.world.clients[client].attach_sender(&queue(n), &queue(n), &SenderOptions::default());
        let senders = (0..QUEUES).map(attach).collect();
        for receiver in receivers.iter().filter(|receiver| !receiver.presettled) {
            self.world.clients[client].credit(receiver.link, 4);
        }
        self.controllers.push(Controller {
            client,
            coordinator,
            senders,
            receivers,
            declares: Vec::new(),
            seen: 0,
            held: Vec::new(),
            noted: 0,
            ended: 0,
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
            // What came on a link that has ended is its queue's again.
            let bound = controller.receivers.iter().any(|receiver| receiver.link == received.link);
            if !bound || !client.is_unsettled(received.link, received.delivery_id) {
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
                    && t.retired.iter().any(|(_, body)| *body == received.body)
            });
            if foreign || noted || self.random.one_in(3) {
                let again = self.transactions[open].retired.iter().any(|(_, body)| *body == received.body);
                if again && self.random.one_in(3) {
                    client.settle_in(received.link, received.delivery_id, number, Outcome::Accepted);
                }
                kept.push(index);
                continue;
            }
            client.settle_in(received.link, received.delivery_id, number, Outcome::Accepted);
            self.transactions[open].retired.push((received.link, received.body));
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
        self.take_credit_back(which, Some(open));
        let controller = &self.controllers[which];
        let token = self.world.clients[controller.client].discharge(controller.coordinator, number, fail);
        self.transactions[open].fate = Fate::Discharged { token, fail };
    }

    fn grant(&mut self) {
        let Some(which) = self.any_controller() else { return };
        let index = self.random.below(QUEUES);
        let Controller { client, receivers, .. } = &mut self.controllers[which];
        let receiver = &mut receivers[index];
        let (link, presettled) = (receiver.link, receiver.presettled);
        // On a link that sends settled much is left over when the transaction ends.
        let credit = self.random.below(if presettled { 40 } else { 8 }) as u32;
        let open = self.transactions.iter().position(|t| t.controller == which && t.fate == Fate::Open);
        let inside = open.filter(|_| presettled || self.random.one_in(2));
        let client = &mut self.world.clients[*client];
        let times = |links: &mut dyn Iterator<Item = &LinkId>| links.filter(|of| **of == link).count();
        if times(&mut client.attached.iter()) == times(&mut client.detached.iter().map(|(of, _)| of)) {
            // It waits for its attach, which the transaction may not live to see.
            return;
        }
        if let Some(open) = inside {
            receiver.inside = inside;
            self.transactions[open].blind |= presettled;
            client.credit_in(link, self.transactions[open].number, credit);
        } else if !presettled {
            client.credit(link, credit);
        }
    }

    /// Credit that was given inside a transaction, or in any, on links that send settled.
    fn take_credit_back(&mut self, which: usize, from: Option<usize>) {
        let controller = &mut self.controllers[which];
        for receiver in controller.receivers.iter_mut().filter(|receiver| receiver.presettled) {
            if let Some(inside) = receiver.inside
                && from.is_none_or(|from| from == inside)
            {
                receiver.inside = None;
                let number = self.transactions[inside].number;
                self.world.clients[controller.client].credit_in(receiver.link, number, 0);
            }
        }
    }

    /// What has come on links that send settled, and links that have ended.
    fn look_at_links(&mut self) {
        for which in 0..self.controllers.len() {
            let controller = &mut self.controllers[which];
            let client = &mut self.world.clients[controller.client];
            for received in &client.received[controller.noted..] {
                if !received.settled {
                    continue;
                }
                let inside = self
                    .transactions
                    .iter_mut()
                    .find(|t| t.controller == which && Some(t.number) == received.transaction);
                let seed = self.seed;
                let inside =
                    inside.unwrap_or_else(|| panic!("seed {seed}: {received:?} is in no transaction"));
                inside.retired.push((received.link, received.body.clone()));
            }
            controller.noted = client.received.len();
            // New links take the places of those that have ended.
            let mut ended = Vec::new();
            for (link, error) in &client.detached[controller.ended..] {
                let Some(n) = controller.receivers.iter().position(|r| r.link == *link) else { continue };
                if error.as_deref() == Some("amqp:transaction:timeout") {
                    ended.push((n, *link));
                } else {
                    assert!(!controller.alive, "seed {}: {error:?}", self.seed);
                }
            }
            controller.ended = client.detached.len();
            for (n, link) in ended {
                let pending = self.transactions.iter_mut().filter(|t| {
                    t.controller == which && matches!(t.fate, Fate::Open | Fate::Discharged { .. })
                });
                for transaction in pending {
                    let crossed = transaction.retired.extract_if(.., |(of, _)| *of == link);
                    transaction.uncertain.extend(crossed.map(|(_, body)| body));
                }
                let receiver = &mut controller.receivers[n];
                let Receiver { settles_second, presettled, .. } = *receiver;
                let options = ReceiverOptions { settles_second, presettled, ..ReceiverOptions::default() };
                receiver.inside = None;
                self.links_ended += 1;
                if !controller.alive {
                    continue;
                }
                receiver.link = client.attach_receiver(&format!("r{n}"), &queue(n), &options);
                if !presettled {
                    client.credit(receiver.link, 4);
                }
            }
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
                self.take_credit_back(which, None);
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
        self.look_at_links();
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
                    uncertain: Vec::new(),
                    blind: false,
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
                ("rejected amqp:transaction:timeout", false) if self.times_out => Fate::RolledBack,
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
        self.compare_held();
        for which in 0..self.controllers.len() {
            if std::mem::take(&mut self.controllers[which].alive) {
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

    /// At rest queues and consumers are of one mind about who has what.
    fn compare_held(&self) {
        let held = |client: &corelane_sim::Client| {
            let unsettled = client.received.iter().filter(|r| client.is_unsettled(r.link, r.delivery_id));
            let ended = |link| {
                let times = |of: LinkId| of == link;
                let attached = client.attached.iter().filter(|of| times(**of)).count();
                attached == client.detached.iter().filter(|(of, _)| times(*of)).count()
            };
            unsettled.filter(|received| !ended(received.link)).count() as u64
        };
        let alive = self.controllers.iter().filter(|controller| controller.alive);
        let clients = alive.map(|controller| controller.client).chain([self.worker.0]);
        let held: u64 = clients.map(|client| held(&self.world.clients[client])).sum();
        let acquired = (0..QUEUES).filter_map(|n| {
            let shard = &self.world.shards[self.world.home_of(&queue(n))];
            Some(shard.engine().depth(shard.queue(&queue(n))?)?.acquired)
        });
        assert_eq!(held, acquired.sum::<u64>(), "seed {}", self.seed);
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
            for (_, body) in &transaction.retired {
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
            let may_have_taken =
                |t: &Transaction| t.fate == Fate::Unknown && t.blind || went(t) && t.uncertain.contains(body);
            if count == 0
                && (by.is_some_and(|by| by.iter().any(|t| may_have_gone(t)))
                    || self.transactions.iter().any(may_have_taken))
            {
                count = 1;
            }
            assert_eq!(count, 1, "seed {seed}: {body}, taken {taken}, plainly {plainly}, by {by:?}");
        }
    }
}

#[test]
fn whatever_happens_transactions_are_whole() {
    let (mut committed, mut rolled_back, mut unknown, mut timed_out, mut ended) = (0, 0, 0, 0, 0);
    for seed in 0..seeds() {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.act();
        }
        for shard in &run.world.shards {
            committed += shard.counters().transactions_committed;
            rolled_back += shard.counters().transactions_rolled_back;
            timed_out += shard.counters().transactions_timed_out;
        }
        ended += run.links_ended;
        unknown += run.transactions.iter().filter(|t| t.fate == Fate::Unknown).count();
        run.finish();
    }
    println!(
        "{committed} committed, {rolled_back} rolled back, {timed_out} of these took too long, with {ended} links; \
         {unknown} without an answer"
    );
    assert!(committed > 2 * seeds() && rolled_back > 2 * seeds(), "{committed} {rolled_back}");
    assert!(timed_out > seeds() && ended > seeds() / 2, "{timed_out} {ended}");
}
