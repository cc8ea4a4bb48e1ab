//! Channels at random, from a seed: some with confirms, some with transactions, that publish to queues of all shards and to all of them
//! at once, consume with little prefetch, get, acknowledge one or many, requeue, refuse, cancel, close and die at any moment, while
//! shards stall and a consumer of AMQP 1.0 takes its share.
//!
//! The oracle knows of each message in each queue whether it must be there, may be there or was never published, and likewise whether it
//! was taken. What a client has said is certain once the world has come to rest; what dies with its connection before is not; and a
//! transaction whose answer was lost has gone one way or the other as a whole. In the end all that must be there is, once and in the
//! order of its publisher, and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use corelane_protocol::SessionId;
use corelane_protocol::amqp10::LinkId;
use corelane_sim::{Random, ReceiverOptions, Setup, World};
use corelane_wire::amqp10::DeliveryState;
use corelane_wire::amqp091::Properties;

const QUEUES: usize = 4;
const TAGS: [&str; QUEUES] = ["t0", "t1", "t2", "t3"];
const STEPS: usize = 200;
const TELLERS: usize = 4;

/// A message in a queue: the queue, who has published it, and which of its messages it is.
type Item = (usize, usize, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Plain,
    Confirms,
    Transactions,
}

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The client of this number has said so, and may have died before the broker has heard it.
    Perhaps(usize),
    Surely,
    /// By a transaction, of which nobody may have heard the end.
    Within(usize),
}

/// A channel and its connection.
struct Teller {
    /// Of all that there were.
    serial: usize,
    number: usize,
    channel: SessionId,
    mode: Mode,
    sent: usize,
    confirmed: usize,
    held: Vec<(u64, Item)>,
    /// How many of the client's deliveries were looked at.
    delivered: usize,
    consumes: [bool; QUEUES],
    gets: VecDeque<usize>,
    transaction: usize,
    /// Deliveries with an outcome in the open transaction.
    marked: BTreeSet<u64>,
    /// The transaction was asked to end: by a commit, or not.
    ends: Option<bool>,
}

struct Run {
    world: World,
    random: Random,
    tellers: Vec<Teller>,
    worker: (usize, Vec<LinkId>, usize),
    published: BTreeMap<Item, Known>,
    taken: BTreeMap<Item, Known>,
    /// Whether each transaction has committed, if that is known.
    committed: Vec<Option<bool>>,
    stalled: Option<usize>,
    serials: usize,
    seed: u64,
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

fn queue(n: usize) -> String {
    format!("channels.{n}")
}

fn item(queue: usize, body: &str) -> Item {
    let mut parts =
        body.split(' ').next().expect("a body").split('.').map(|part| part.parse().expect("a number"));
    (queue, parts.next().expect("a serial"), parts.next().expect("a number"))
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed ^ 0xc4a7);
        let shards = 1 + random.below(3);
        let verify = seed.is_multiple_of(8);
        let mut world = World::new(&Setup { seed, verify, ..Setup::new(shards) });
        let maker = world.connect_channels(0);
        let channel = world.channel_client(maker).open_channel();
        world.run();
        for n in 0..QUEUES {
            world.channel_client(maker).declare_durable(channel, &queue(n), &[]);
            world.channel_client(maker).bind(channel, &queue(n), ("amq.fanout", ""), &[]);
        }
        world.run();
        let worker = world.connect(random.below(shards));
        let links = (0..2).map(|n| {
            let link =
                world.clients[worker].attach_receiver(&queue(n), &queue(n), &ReceiverOptions::default());
            world.run();
            world.clients[worker].credit(link, 2);
            link
        });
        let worker = (worker, links.collect(), 0);
        let (published, taken) = (BTreeMap::new(), BTreeMap::new());
        let committed = Vec::new();
        let tellers = Vec::new();
        let serials = TELLERS;
        let mut run =
            Run { world, random, tellers, worker, published, taken, committed, stalled: None, serials, seed };
        for serial in 0..TELLERS {
            run.connect(serial);
        }
        run
    }

    fn connect(&mut self, serial: usize) {
        if let Some(shard) = self.stalled.take() {
            self.world.stall(shard, false);
        }
        let shard = self.random.below(self.world.shards.len());
        let number = self.world.connect_channels(shard);
        let mode = [Mode::Plain, Mode::Confirms, Mode::Transactions][self.random.below(3)];
        let channel = SessionId(0);
        let mut teller = Teller {
            serial,
            number,
            channel,
            mode,
            sent: 0,
            confirmed: 0,
            held: Vec::new(),
            delivered: 0,
            consumes: [false; QUEUES],
            gets: VecDeque::new(),
            transaction: self.committed.len(),
            marked: BTreeSet::new(),
            ends: None,
        };
        self.committed.push(None);
        self.open(&mut teller);
        self.tellers.push(teller);
    }

    fn open(&mut self, teller: &mut Teller) {
        let client = self.world.channel_client(teller.number);
        teller.channel = client.open_channel();
        self.world.run();
        let client = self.world.channel_client(teller.number);
        match teller.mode {
            Mode::Plain => {}
            Mode::Confirms => client.confirm(teller.channel),
            Mode::Transactions => client.select(teller.channel),
        }
        client.prefetch(teller.channel, 3);
    }

    /// What was said inside the teller's transaction, or outside of any.
    fn known(teller: &Teller) -> Known {
        if teller.mode == Mode::Transactions {
            Known::Within(teller.transaction)
        } else {
            Known::Perhaps(teller.serial)
        }
    }

    fn act(&mut self, which: usize) {
        let choice = self.random.below(20);
        let n = self.random.below(QUEUES);
        let Run { world, tellers, published, .. } = self;
        let teller = &mut tellers[which];
        if teller.ends.is_some() {
            return;
        }
        let (client, channel) = (world.channel_client(teller.number), teller.channel);
        match choice {
            0..7 => {
                let is_for_all = choice == 0;
                let body = format!("{}.{}", teller.serial, teller.sent);
                for queue in (0..QUEUES).filter(|queue| is_for_all || *queue == n) {
                    published.insert((queue, teller.serial, teller.sent), Self::known(teller));
                }
                teller.sent += 1;
                let name = queue(n);
                let to = if is_for_all { ("amq.fanout", "") } else { ("", name.as_str()) };
                client.publish_to(channel, to, &Properties::default(), &body, false);
            }
            7..9 => {
                teller.gets.push_back(n);
                client.get(channel, &queue(n));
            }
            9..11 if !teller.consumes[n] => {
                teller.consumes[n] = true;
                client.consume(channel, &queue(n), TAGS[n], false);
            }
            11 if teller.consumes[n] => {
                teller.consumes[n] = false;
                client.cancel(channel, TAGS[n]);
            }
            12..17 => self.settle(which),
            17..19 if teller.mode == Mode::Transactions => {
                let commits = choice == 17 || n > 0;
                teller.ends = Some(commits);
                if commits { client.commit(channel) } else { client.roll_back(channel) }
            }
            _ => {}
        }
    }

    /// Says what became of one delivery, or of all up to it.
    fn settle(&mut self, which: usize) {
        let (choice, multiple) = (self.random.below(4), self.random.one_in(3));
        let Run { world, tellers, taken, random, .. } = self;
        let teller = &mut tellers[which];
        let open: Vec<u64> =
            teller.held.iter().map(|(tag, _)| *tag).filter(|tag| !teller.marked.contains(tag)).collect();
        if open.is_empty() {
            return;
        }
        let tag = open[random.below(open.len())];
        let requeues = choice == 0;
        let known = Self::known(teller);
        let meant = |other: u64| if multiple { other <= tag } else { other == tag };
        for (_, item) in teller.held.iter().filter(|(other, _)| meant(*other) && open.contains(other)) {
            if !requeues {
                taken.insert(*item, known);
            }
        }
        match teller.mode {
            Mode::Transactions => teller.marked.extend(open.iter().filter(|other| meant(**other))),
            Mode::Plain | Mode::Confirms => teller.held.retain(|(other, _)| !meant(*other)),
        }
        let (client, channel) = (world.channel_client(teller.number), teller.channel);
        match choice {
            0 => client.nack(channel, tag, multiple, true),
            1 => client.nack(channel, tag, multiple, false),
            _ => client.ack(channel, tag, multiple),
        }
    }

    /// A message was seen: what was not certain of it may be now.
    fn see(&mut self, item: Item) {
        match self.published.get(&item) {
            Some(Known::Within(transaction)) => self.decide(*transaction, true),
            Some(Known::Perhaps(_) | Known::Surely) => {}
            None => panic!("seed {}: {item:?} was never published", self.seed),
        }
        match self.taken.remove(&item) {
            Some(Known::Surely) => panic!("seed {}: {item:?} comes again", self.seed),
            Some(Known::Within(transaction)) => self.decide(transaction, false),
            Some(Known::Perhaps(_)) | None => {}
        }
    }

    fn decide(&mut self, transaction: usize, committed: bool) {
        let known = self.committed[transaction].get_or_insert(committed);
        assert_eq!(*known, committed, "seed {}: transaction {transaction} has gone both ways", self.seed);
    }

    fn look(&mut self, which: usize) {
        let number = self.tellers[which].number;
        for line in self.world.channel_client(number).take_seen() {
            let teller = &mut self.tellers[which];
            if line == "nothing" {
                teller.gets.pop_front();
            } else if line == "committed" || line == "rolled back" {
                assert_eq!(teller.ends.take(), Some(line == "committed"));
                let marked = std::mem::take(&mut teller.marked);
                if line == "committed" {
                    teller.held.retain(|(tag, _)| !marked.contains(tag));
                }
                let transaction = std::mem::replace(&mut teller.transaction, self.committed.len());
                self.committed.push(None);
                self.decide(transaction, line == "committed");
            } else if let Some(tags) = line.strip_prefix("confirmed ") {
                let tag = tags.split(' ').next().and_then(|tag| tag.parse().ok());
                teller.confirmed = teller.confirmed.max(tag.expect("a tag"));
            } else if let Some(body) = line.strip_prefix("got ") {
                let queue = teller.gets.pop_front().expect("it was asked for");
                self.note_delivery(which, queue, body.split([',', ' ']).next().expect("a body"));
            } else if let Some((tag, body)) = line.split_once(": ") {
                let queue = TAGS.iter().position(|known| *known == tag);
                let queue = queue.unwrap_or_else(|| panic!("seed {}: {line}", self.seed));
                self.note_delivery(which, queue, body);
            }
        }
    }

    fn note_delivery(&mut self, which: usize, queue: usize, body: &str) {
        let item = item(queue, body);
        self.see(item);
        let teller = &mut self.tellers[which];
        let tag = self.world.channel_client(teller.number).tags[teller.delivered];
        teller.delivered += 1;
        teller.held.push((tag, item));
    }

    fn look_at_all(&mut self) {
        for which in 0..self.tellers.len() {
            self.look(which);
        }
        let (worker, links, seen) = &mut self.worker;
        let arrived = self.world.clients[*worker].received[*seen..].to_vec();
        *seen += arrived.len();
        let (worker, links) = (*worker, links.clone());
        for received in arrived {
            let queue = links.iter().position(|link| *link == received.link).expect("one of them");
            let item = item(queue, &received.body);
            self.see(item);
            self.taken.insert(item, Known::Surely);
            let client = &mut self.world.clients[worker];
            client.settle(received.link, received.delivery_id, &DeliveryState::Accepted);
            client.credit(received.link, 2);
        }
    }

    /// Lets everything come to rest: what those have said that live is so.
    fn rest(&mut self) {
        if let Some(shard) = self.stalled.take() {
            self.world.stall(shard, false);
        }
        // What is seen may be answered, and so on.
        for _ in 0..3 {
            self.world.run();
            self.look_at_all();
        }
        let lives = |serial: usize| self.tellers.iter().any(|teller| teller.serial == serial);
        for known in self.published.values_mut().chain(self.taken.values_mut()) {
            if matches!(*known, Known::Perhaps(serial) if lives(serial)) {
                *known = Known::Surely;
            }
        }
        for teller in self.tellers.iter().filter(|teller| teller.mode == Mode::Confirms) {
            assert_eq!(teller.confirmed, teller.sent, "seed {}: all is confirmed", self.seed);
        }
    }

    /// A connection dies. What its client has said since the last rest is not certain, and never will be.
    fn kill(&mut self, which: usize) {
        let teller = self.tellers.swap_remove(which);
        self.world.kill(teller.number);
        if teller.ends != Some(true) {
            self.decide(teller.transaction, false);
        }
    }

    fn step(&mut self) {
        match self.random.below(60) {
            0 => {
                let which = self.random.below(self.tellers.len());
                self.kill(which);
                self.serials += 1;
                self.connect(self.serials);
            }
            1 => self.rest(),
            2 if self.stalled.is_none() && self.world.shards.len() > 1 => {
                let shard = self.random.below(self.world.shards.len());
                self.world.stall(shard, true);
                self.stalled = Some(shard);
            }
            3 => {
                if let Some(shard) = self.stalled.take() {
                    self.world.stall(shard, false);
                }
            }
            _ => {
                let which = self.random.below(self.tellers.len());
                self.act(which);
            }
        }
        for _ in 0..self.random.below(40) {
            self.world.tick();
        }
        self.look_at_all();
    }

    /// What each queue has in the end, in order.
    fn drain(&mut self) -> Vec<Vec<Item>> {
        let number = self.world.connect_channels(0);
        let channel = self.world.channel_client(number).open_channel();
        self.world.run();
        let take = |n: usize| {
            let mut items = Vec::new();
            loop {
                self.world.channel_client(number).take_seen();
                self.world.channel_client(number).get(channel, &queue(n));
                self.world.run();
                let seen = self.world.channel_client(number).take_seen();
                match seen.iter().find_map(|line| line.strip_prefix("got ")) {
                    Some(body) => items.push(item(n, body.split([',', ' ']).next().expect("a body"))),
                    None => return items,
                }
            }
        };
        (0..QUEUES).map(take).collect()
    }

    fn finish(mut self) {
        self.rest();
        self.world.clients[self.worker.0].close();
        self.world.run();
        self.look_at_all();
        while !self.tellers.is_empty() {
            self.kill(0);
        }
        self.world.run();
        let left = self.drain();
        for items in &left {
            for (n, one) in items.iter().enumerate() {
                let later = &items[n + 1..];
                assert!(!later.contains(one), "seed {}: {one:?} is there twice", self.seed);
                let is_behind = |other: &&Item| other.1 == one.1 && other.2 < one.2;
                assert_eq!(later.iter().find(is_behind), None, "seed {}: before {one:?}", self.seed);
                self.see(*one);
            }
        }
        let left: BTreeSet<Item> = left.into_iter().flatten().collect();
        for (item, known) in self.published.clone() {
            let is_published = match known {
                Known::Surely => Some(true),
                Known::Within(transaction) => self.committed[transaction],
                Known::Perhaps(_) => None,
            };
            let taken = self.taken.get(&item).copied();
            match (left.contains(&item), is_published, taken, known) {
                (true, ..) | (false, None, _, Known::Perhaps(_)) | (false, Some(false), None, _) => {}
                (false, Some(true), Some(Known::Surely | Known::Perhaps(_)), _) => {}
                (false, Some(true), Some(Known::Within(by)), _) => self.decide(by, true),
                (false, None, None, Known::Within(transaction)) => self.decide(transaction, false),
                what => panic!("seed {}: {item:?}: {what:?}", self.seed),
            }
        }
        for shard in &self.world.shards {
            assert_eq!(shard.participation_count(), 0, "seed {}", self.seed);
        }
    }
}

#[test]
fn channels_at_random_lose_nothing_and_take_nothing_twice() {
    for seed in 1..=seeds() {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
        run.finish();
    }
}
