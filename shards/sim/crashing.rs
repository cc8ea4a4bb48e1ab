//! Does the broker keep its promises whenever it crashes?
//!
//! A run of its own kind, as the seed draws it: clients send, consume, settle and transact on durable queues and subscriptions, disks are
//! slow, full, or fail, and the whole machine stops at moments that the seed chooses, or at the one that is asked for; in starting
//! again, too. [`Promises`] knows what must be there then. In the end everything is taken, and after one more crash nothing is there.

use std::cell::Cell;

use corelane_protocol::amqp10::LinkId;
use corelane_shard::DestinationRule;
use corelane_wire::amqp10::{DeliveryState, Encode, Header, Modified, Outcome, Sections, Value, write_data};

use crate::backing_up::BackingUp;
use crate::client::{ReceiverOptions, SenderOptions};
use crate::crash_report::CrashReport;
use crate::disk::{Disk, DiskSetup};
use crate::managing::Managing;
use crate::promises::{Contents, Copy, Fate, Node, Promises, Sent, Settled, Transaction};
use crate::random::Random;
use crate::restart::Restart;
use crate::world::{Setup, World, names_homed_at};

/// Clients at a time.
const PEERS_MAX: usize = 5;

/// Steps after which something must have gone wrong.
const REST_STEPS_MAX: usize = 1_000_000;

/// What a run is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashOptions {
    pub seed: u64,
    pub events: u64,
    pub shards: Option<usize>,
    /// Crashes once, at this event, instead of as the seed says.
    pub crash_at: Option<u64>,
    /// Backups are made meanwhile, and each is to hold what a crash would have left.
    pub backups: bool,
    /// An operator is at work, some queues deliver what is synced, and in the end a bit turns.
    pub operates: bool,
}

thread_local! {
    static CRASHES: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// Seed, event and crashes of the run that this thread is in.
pub fn crash_progress() -> (u64, u64, u64) {
    CRASHES.get()
}

#[derive(Debug)]
pub struct Crashing {
    options: CrashOptions,
    pub(crate) world: World,
    random: Random,
    pub(crate) promises: Promises,
    /// The last nodes are subscriptions, and one to which an operator moves messages.
    pub(crate) queue_count: usize,
    pub(crate) moves_to: Option<usize>,
    peers: Vec<Peer>,
    /// Actions in a hundred steps.
    actions_percent: usize,
    crash_in: usize,
    pub(crate) backup: BackingUp,
    pub(crate) managing: Managing,
    pub(crate) report: CrashReport,
}

#[derive(Debug)]
struct Peer {
    client: usize,
    senders: Vec<(LinkId, Target)>,
    receivers: Vec<(LinkId, usize)>,
    coordinator: Option<LinkId>,
    held: Vec<Held>,
    /// Tokens of what was sent, and what it was.
    waiting: Vec<(u64, Asked)>,
    /// The broker's number, and ours.
    transaction: Option<(u32, usize)>,
    received: usize,
    outcomes: usize,
    links: usize,
    is_slow: bool,
    settled: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Node(usize),
    Topic,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    link: LinkId,
    delivery: u32,
    message: usize,
    node: usize,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Message(usize),
    Declare,
    Discharge { transaction: usize, fail: bool },
}

impl Crashing {
    pub fn new(options: CrashOptions) -> Self {
        CRASHES.set((options.seed, 0, 0));
        let mut random = Random::new(options.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0xd15c);
        let shards = options.shards.unwrap_or(1 + random.below(3));
        let latency_us_max = [0, 50, 3_000, 800_000][random.below(4)];
        // Each record goes by itself, unless it belongs together with others; so much padding is not worth cleaning.
        let is_split = random.one_in(4);
        let disk = DiskSetup {
            // In smaller ones what is alive takes less than half, so that cleaning never comes to an end.
            segment_bytes: 4096 * (16 + random.below(13) as u32),
            batch_bytes_max: if is_split { 1 } else { 4096 * (1 + random.below(3) as u32) },
            segments_idle_max: if is_split { 1000 } else { 2 + random.below(2) as u32 },
            files_max: if random.one_in(4) { 5 + random.below(4) } else { usize::MAX },
            latency_us_max,
        };
        let goes_far = random.one_in(2);
        let (mut nodes, mut rules) = queues(shards, goes_far);
        let queue_count = nodes.len();
        nodes.extend((0..2).map(|n| Node::new(format!("sub{n}"))));
        let mut managing = Managing::new(options.seed);
        let moves_to = options.operates.then_some(nodes.len());
        if options.operates {
            nodes.push(Node::new("moved".to_owned()));
            for rule in rules.iter_mut().filter(|_| managing.random.one_in(4)) {
                rule.deliver_after_sync = Some(true);
                nodes.iter_mut().filter(|node| node.name == rule.pattern).for_each(|node| node.waits = true);
            }
        }
        let setup = Setup {
            rules,
            disk: Some(disk),
            // Of every second run some messages leave memory.
            memory: if options.seed.is_multiple_of(2) { 96 << 10 } else { u64::MAX / 2 },
            verify: false,
            idle_timeout_us: None,
            ..Setup::durable(shards, options.seed)
        };
        let mut crashing = Crashing {
            world: World::new(&setup),
            actions_percent: 3 + random.below(25),
            crash_in: 0,
            random,
            promises: Promises { nodes, ..Promises::default() },
            queue_count,
            moves_to,
            peers: Vec::new(),
            backup: BackingUp::new(options.seed),
            managing,
            report: CrashReport::default(),
            options,
        };
        crashing.rest();
        crashing.subscribe();
        crashing.draw_crash();
        crashing
    }

    /// Runs to the end; panics with what is wrong.
    pub fn run(mut self) -> CrashReport {
        let begin = self.world.events;
        while self.world.events - begin < self.options.events {
            let crashes = match self.options.crash_at {
                Some(at) => self.report.crashes + self.report.stops == 0 && self.world.events - begin >= at,
                None => self.crash_in == 0,
            };
            if crashes {
                self.stop_somehow();
            }
            if self.options.backups {
                self.back_up();
            }
            if self.options.operates {
                self.manage();
            }
            let was_idle = self.random.below(100) >= self.actions_percent && !self.tick();
            if was_idle {
                self.pass();
            }
            if was_idle || self.random.below(100) < self.actions_percent {
                self.act();
            }
            self.crash_in = self.crash_in.saturating_sub(1);
        }
        self.finish();
        let Crashing { mut report, promises, world, .. } = self;
        report.events = world.events;
        report.messages = promises.messages.len() as u64;
        report.transactions = promises.transactions.len() as u64;
        report.deliveries = promises.deliveries;
        report.kept = promises.kept;
        report.trace = world.trace;
        report
    }

    /// Durable subscriptions, which are there from the beginning.
    fn subscribe(&mut self) {
        let peer = self.connect();
        for node in self.queue_count..self.queue_count + 2 {
            self.attach_receiver(peer, node);
        }
        self.rest();
        assert_eq!(self.world.clients[self.peers[peer].client].attached.len(), 2, "both are attached");
        self.kill(peer);
        self.rest();
    }

    fn draw_crash(&mut self) {
        let longest = [60, 600, 4000][self.random.below(3)];
        self.crash_in = 1 + self.random.below(longest);
    }

    fn tick(&mut self) -> bool {
        let acted = self.world.tick().is_some();
        CRASHES.set((self.options.seed, self.world.events, self.report.crashes));
        for peer in 0..self.peers.len() {
            self.observe(peer);
        }
        self.note_image();
        if let Some(client) = self.world.closed_by_broker.pop() {
            let closed = self.world.clients[client].closed.clone();
            panic!("the broker has closed the connection of {client}: {closed:?}");
        }
        acted
    }

    fn pass(&mut self) {
        let longest = if self.random.one_in(10) { 2_000_000 } else { 3_000 };
        self.world.pass(1 + self.random.below(longest) as u64);
    }

    /// Until nobody has anything to do, and nothing is on its way.
    fn rest(&mut self) {
        let mut steps = 0;
        // What takes time on a disk, and what is tried again, comes one after the other.
        for _ in 0..16 {
            while self.tick() {
                steps += 1;
                assert!(steps < REST_STEPS_MAX, "the world does not come to rest");
            }
            self.world.pass(400_000);
        }
        while self.tick() {}
        while self.world.disks.iter().any(Disk::is_writing) {
            steps += 1;
            assert!(steps < REST_STEPS_MAX, "the world does not come to rest");
            self.world.pass(100_000);
            while self.tick() {}
        }
        self.peers.iter_mut().for_each(|peer| peer.settled.clear());
        if self.is_sound() && self.world.disks.iter().all(|disk| !disk.is_writing()) {
            self.promises.all_synced();
        }
    }

    /// Whether everything that is said will be synced.
    pub(crate) fn is_sound(&self) -> bool {
        self.world.disks.iter().all(|disk| !disk.is_failed() && !disk.is_full())
    }
}

/// What clients see.
impl Crashing {
    fn observe(&mut self, peer: usize) {
        let client = &self.world.clients[self.peers[peer].client];
        let outcomes: Vec<(u64, String)> = client.outcomes[self.peers[peer].outcomes..].to_vec();
        let received: Vec<(LinkId, u32, usize, bool, u32)> = client.received[self.peers[peer].received..]
            .iter()
            .map(|received| {
                let number = received.body.split(' ').next().and_then(|body| body.parse().ok());
                let number = number.expect("a message's body begins with its number");
                (
                    received.link,
                    received.delivery_id,
                    number,
                    received.first_acquirer,
                    received.delivery_count,
                )
            })
            .collect();
        self.peers[peer].outcomes += outcomes.len();
        self.peers[peer].received += received.len();
        // In the order in which they may have become true: what is committed may be delivered at once.
        for (token, outcome) in outcomes {
            self.hear(peer, token, &outcome);
        }
        for (link, delivery, message, first, failed) in received {
            let of_link = self.peers[peer].receivers.iter().find(|(receiver, _)| *receiver == link);
            let node = of_link.expect("it was attached").1;
            let is_sound = !self.world.disks.iter().any(Disk::is_failed);
            self.promises.deliver((self.world.now, is_sound), (message, node), first, failed);
            self.peers[peer].held.push(Held { link, delivery, message, node });
        }
    }

    fn hear(&mut self, peer: usize, token: u64, outcome: &str) {
        let at = self.peers[peer].waiting.iter().position(|(of, _)| *of == token);
        let (_, asked) = self.peers[peer].waiting.swap_remove(at.expect("it was asked for"));
        match asked {
            Asked::Message(message) => match outcome {
                "accepted" => self.promises.messages[message].answer = Some(true),
                refused if refused.starts_with("rejected") => {
                    // Of what was in a write that failed nobody knows whether it is on the disk.
                    let has_failed = self.world.disks.iter().any(Disk::is_failed);
                    self.promises.messages[message].answer = (!has_failed).then_some(false);
                }
                // In a transaction.
                other => assert!(other.contains(" in "), "{other}"),
            },
            Asked::Declare => {
                if let Some(number) = outcome.strip_prefix("declared ") {
                    let number = number.parse().expect("a number");
                    self.promises.transactions.push(Transaction {
                        fate: Fate::Open,
                        posts: Vec::new(),
                        accepts: Vec::new(),
                    });
                    self.peers[peer].transaction = Some((number, self.promises.transactions.len() - 1));
                }
            }
            Asked::Discharge { transaction, fail } => {
                let committed = !fail && outcome == "accepted";
                self.promises.ended(transaction, committed);
            }
        }
    }
}

/// What clients do.
impl Crashing {
    fn act(&mut self) {
        if self.peers.is_empty() || (self.peers.len() < PEERS_MAX && self.random.one_in(20)) {
            self.connect();
            return;
        }
        let peer = self.random.below(self.peers.len());
        match self.random.below(100) {
            0..35 => self.send(peer),
            35..50 => self.receive(peer),
            50..75 => self.settle(peer),
            75..84 => self.transact(peer),
            84..87 => self.kill(peer),
            87 => {
                let is_slow = !self.peers[peer].is_slow;
                self.peers[peer].is_slow = is_slow;
                self.world.client_reads(self.peers[peer].client, !is_slow);
            }
            88 if self.random.one_in(6) => {
                let shard = self.random.below(self.world.disks.len());
                self.world.disks[shard].fails_next = true;
            }
            89 if self.random.one_in(3) => {
                let shard = self.random.below(self.world.disks.len());
                self.world.disks[shard].full ^= true;
            }
            90 if self.random.one_in(4) => self.rest(),
            _ => self.pass(),
        }
    }

    fn connect(&mut self) -> usize {
        let shard = self.random.below(self.world.shards.len());
        let client = self.world.open(shard);
        self.peers.push(Peer {
            client,
            senders: Vec::new(),
            receivers: Vec::new(),
            coordinator: None,
            held: Vec::new(),
            waiting: Vec::new(),
            transaction: None,
            received: 0,
            outcomes: 0,
            links: 0,
            is_slow: false,
            settled: Vec::new(),
        });
        self.peers.len() - 1
    }

    fn link_name(&mut self, peer: usize) -> String {
        self.peers[peer].links += 1;
        format!("link{}", self.peers[peer].links)
    }

    fn sender(&mut self, peer: usize, target: Target) -> LinkId {
        if let Some((link, _)) = self.peers[peer].senders.iter().find(|(_, other)| *other == target) {
            return *link;
        }
        let name = self.link_name(peer);
        let address = match target {
            Target::Node(node) => self.promises.nodes[node].name.clone(),
            Target::Topic => "topic://t".to_owned(),
        };
        let client = &mut self.world.clients[self.peers[peer].client];
        let link = client.attach_sender(&name, &address, &SenderOptions::default());
        self.peers[peer].senders.push((link, target));
        link
    }

    fn attach_receiver(&mut self, peer: usize, node: usize) -> LinkId {
        if let Some((link, _)) = self.peers[peer].receivers.iter().find(|(_, other)| *other == node) {
            return *link;
        }
        let name = self.link_name(peer);
        let client = &mut self.world.clients[self.peers[peer].client];
        let node_name = &self.promises.nodes[node].name;
        self.managing.touch(node);
        let link = if node < self.queue_count || Some(node) == self.moves_to {
            client.attach_receiver(&name, node_name, &ReceiverOptions::default())
        } else {
            let capabilities = vec!["topic", "shared", "global"];
            let options = ReceiverOptions { durable: true, capabilities, ..ReceiverOptions::default() };
            let number = self.peers[peer].client;
            client.attach_receiver(&format!("{node_name}|{number}"), "topic://t", &options)
        };
        self.peers[peer].receivers.push((link, node));
        link
    }

    fn send(&mut self, peer: usize) {
        let target = match self.random.below(self.queue_count + 2) {
            node if node < self.queue_count => Target::Node(node),
            _ => Target::Topic,
        };
        let transaction = self.peers[peer].transaction.filter(|_| self.random.one_in(2));
        for _ in 0..1 + self.random.below(4) {
            self.send_one(peer, target, transaction);
        }
    }

    fn send_one(&mut self, peer: usize, target: Target, transaction: Option<(u32, usize)>) {
        let link = self.sender(peer, target);
        let number = self.promises.messages.len();
        let is_queue = matches!(target, Target::Node(_));
        let ttl = (is_queue && transaction.is_none() && self.random.one_in(12))
            .then(|| 1 + self.random.below(3000) as u32);
        let header = Header {
            durable: transaction.is_some() || !self.random.one_in(8),
            priority: if self.random.one_in(3) { self.random.below(10) as u8 } else { 4 },
            ttl,
            ..Header::default()
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        let length = if self.random.one_in(50) { self.random.below(30_000) } else { self.random.below(600) };
        write_data(&mut bytes, format!("{number} {}", "x".repeat(length)).as_bytes());
        let client = &mut self.world.clients[self.peers[peer].client];
        let token = match transaction {
            Some((of_broker, _)) => client.send_bytes_in(link, of_broker, &bytes),
            None => client.send_bytes(link, &bytes),
        };
        let to = match target {
            Target::Node(node) => vec![node],
            Target::Topic => (self.queue_count..self.queue_count + 2).collect(),
        };
        self.promises.messages.push(Sent {
            to,
            stream: (self.peers[peer].client, header.priority),
            durable: header.durable,
            answer: None,
            expires_at: ttl.map(|ttl| self.world.now + u64::from(ttl) * 1000),
            transaction: transaction.map(|(_, ours)| ours),
            is_past: false,
        });
        if let Target::Node(node) = target
            && self.promises.nodes[node].purges > 0
        {
            self.promises.copies.entry((number, node)).or_default().may_be_deleted = true;
        }
        if let Some((_, ours)) = transaction {
            self.promises.transactions[ours].posts.push(number);
        }
        self.peers[peer].waiting.push((token, Asked::Message(number)));
    }

    fn receive(&mut self, peer: usize) {
        let node = self.random.below(self.promises.nodes.len());
        let link = self.attach_receiver(peer, node);
        let credit = 1 + self.random.below(10) as u32;
        self.world.clients[self.peers[peer].client].credit(link, credit);
    }

    fn settle(&mut self, peer: usize) {
        for _ in 0..1 + self.random.below(4) {
            if self.peers[peer].held.is_empty() {
                return;
            }
            let at = self.random.below(self.peers[peer].held.len());
            let held = self.peers[peer].held.remove(at);
            let key = (held.message, held.node);
            let copy: &mut Copy = self.promises.copies.entry(key).or_default();
            let client = &mut self.world.clients[self.peers[peer].client];
            if let Some((number, ours)) = self.peers[peer].transaction.filter(|_| self.random.one_in(2)) {
                copy.settled = Settled::In(ours);
                self.promises.transactions[ours].accepts.push(key);
                client.settle_in(held.link, held.delivery, number, Outcome::Accepted);
                continue;
            }
            copy.is_held = false;
            self.peers[peer].settled.push(key);
            let state = match self.random.below(10) {
                0..6 => {
                    copy.settled = Settled::Accepted;
                    DeliveryState::Accepted
                }
                6 => {
                    copy.settled = Settled::Rejected;
                    DeliveryState::Rejected { error: None }
                }
                7 => DeliveryState::Released,
                _ => {
                    copy.failed += 1;
                    DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() })
                }
            };
            client.settle(held.link, held.delivery, &state);
        }
    }

    fn transact(&mut self, peer: usize) {
        let coordinator = match self.peers[peer].coordinator {
            Some(coordinator) => coordinator,
            None => {
                let name = self.link_name(peer);
                let client = &mut self.world.clients[self.peers[peer].client];
                let coordinator = client.attach_coordinator(&name, &[]);
                self.peers[peer].coordinator = Some(coordinator);
                coordinator
            }
        };
        // A discharge may overtake what waits for credit.
        let client = &self.world.clients[self.peers[peer].client];
        if self.peers[peer].waiting.iter().any(|(token, _)| client.is_waiting(*token)) {
            return;
        }
        let asks = self.peers[peer].waiting.iter().any(|(_, asked)| matches!(asked, Asked::Declare));
        let client = &mut self.world.clients[self.peers[peer].client];
        match self.peers[peer].transaction.take() {
            Some((number, transaction)) => {
                let fail = self.random.one_in(5);
                let token = client.discharge(coordinator, number, fail);
                self.promises.transactions[transaction].fate = Fate::Commit;
                if fail {
                    self.promises.ended(transaction, false);
                }
                self.peers[peer].waiting.push((token, Asked::Discharge { transaction, fail }));
            }
            None if !asks => {
                let token = client.declare(coordinator);
                self.peers[peer].waiting.push((token, Asked::Declare));
            }
            None => {}
        }
    }

    fn kill(&mut self, peer: usize) {
        let mut peer = self.peers.swap_remove(peer);
        for key in std::mem::take(&mut peer.settled) {
            let copy = self.promises.copies.entry(key).or_default();
            copy.is_unheard |= copy.settled != Settled::No || copy.failed > 0;
        }
        self.world.kill(peer.client);
        self.lose(peer);
    }

    /// What a peer held goes back, and its transaction ends as the broker finds it.
    fn lose(&mut self, peer: Peer) {
        for Held { message, node, .. } in peer.held {
            self.promises.copies.entry((message, node)).or_default().is_held = false;
        }
        if let Some((_, transaction)) = peer.transaction {
            self.promises.ended(transaction, false);
        }
    }
}

/// Crashes.
impl Crashing {
    fn stop_somehow(&mut self) {
        let stops = self.options.crash_at.is_none() && self.random.one_in(5) && self.is_sound();
        if stops && self.stop() && self.is_sound() {
            self.report.stops += 1;
            self.start_again(true);
            return;
        }
        self.report.crashes += 1;
        self.start_again(false);
    }

    /// Stops in order, if there is room on the disks for that.
    fn stop(&mut self) -> bool {
        let peers = std::mem::take(&mut self.peers);
        peers.iter().for_each(|peer| self.world.client_reads(peer.client, true));
        self.end_backup();
        self.world.begin_stop();
        // A slow disk that takes one thing at a time needs long for all that is in line.
        for round in 0..2_000 {
            while self.world.tick().is_some() {}
            self.world.pass(100_000);
            // What other shards have to say when one has stopped is written, too.
            let is_over = self.world.has_stopped() && !self.world.disks.iter().any(Disk::is_writing);
            if round >= 200 && (is_over || !self.is_sound()) {
                break;
            }
        }
        // What is said after that comes from other shards, and is written too.
        while self.is_sound() && self.world.disks.iter().any(Disk::is_writing) {
            self.world.pass(100_000);
            while self.world.tick().is_some() {}
        }
        self.world.closed_by_broker.clear();
        self.peers = peers;
        (0..self.peers.len()).for_each(|peer| self.observe(peer));
        let stopped = self.world.has_stopped();
        assert!(stopped || !self.is_sound(), "every shard stops");
        stopped
    }

    fn start_again(&mut self, was_stopped: bool) {
        for peer in std::mem::take(&mut self.peers) {
            self.lose(peer);
        }
        self.report.faults +=
            self.world.disks.iter().filter(|disk| disk.is_failed() || disk.is_full()).count() as u64;
        self.report.reads += self.world.shards.iter().map(|shard| shard.counters().reads).sum::<u64>();
        let is_sound = self.is_sound();
        self.end_backup();
        self.world.crash();
        self.managing.lose();
        self.promises.all_lost(is_sound);
        if self.random.one_in(3) {
            self.pass();
        }
        let mut restart = self.world.begin_restart();
        assert!(!was_stopped || restart.clean, "it has stopped in order: {restart:?}");
        while self.random.one_in(3) {
            // It crashes again before it is ready, or a little later.
            for _ in 0..self.random.below(60) {
                self.world.tick();
                self.world.pass(self.random.below(2_000) as u64);
            }
            self.report.crashes += 1;
            self.world.crash();
            restart = self.world.begin_restart();
        }
        self.check(&restart);
        for _ in 0..100 {
            while self.world.tick().is_some() {}
            if self.world.is_ready() {
                break;
            }
            self.world.pass(100_000);
        }
        assert!(self.world.is_ready() || !self.is_sound(), "every shard becomes ready");
        self.draw_crash();
    }

    fn check(&mut self, restart: &Restart) {
        assert!(!restart.is_damaged(), "nothing was damaged: {restart:?}");
        check(&self.world, &mut self.promises);
    }

    /// One last crash, then everything is taken, and after another crash nothing is there.
    fn finish(&mut self) {
        self.end_backup();
        for disk in &mut self.world.disks {
            (disk.full, disk.fails_next) = (false, false);
        }
        let is_sound = self.is_sound();
        if is_sound {
            self.rest();
        }
        self.report.crashes += 1;
        self.start_again(false);
        self.rest();
        let peer = self.connect();
        for node in 0..self.promises.nodes.len() {
            let link = self.attach_receiver(peer, node);
            self.world.clients[self.peers[peer].client].credit(link, 1_000_000);
        }
        let mut before = u64::MAX;
        while before != self.promises.deliveries {
            before = self.promises.deliveries;
            self.rest();
            for held in std::mem::take(&mut self.peers[peer].held) {
                let copy = self.promises.copies.entry((held.message, held.node)).or_default();
                (copy.settled, copy.is_held) = (Settled::Accepted, false);
                let client = &mut self.world.clients[self.peers[peer].client];
                client.settle(held.link, held.delivery, &DeliveryState::Accepted);
            }
            self.rest();
        }
        if !self.is_sound() {
            return;
        }
        if self.options.operates {
            self.rot();
        }
        self.report.crashes += 1;
        self.start_again(false);
        let left = contents(&self.world, &self.promises.nodes);
        assert!(left.iter().all(Vec::is_empty), "everything was taken, and is there: {left:?}");
    }
}

/// Three queues a shard, with their rules: one with dead letters, which go to a third one on this shard or on the next one, and one with
/// priorities.
fn queues(shards: usize, goes_far: bool) -> (Vec<Node>, Vec<DestinationRule>) {
    let mut nodes: Vec<Node> = Vec::new();
    let mut rules = Vec::new();
    for shard in 0..shards {
        let names: Vec<String> = names_homed_at(shard, shards).take(3).collect();
        // On this shard or on the next one.
        let dead_at = if goes_far { (shard + 1) % shards } else { shard };
        let dead = 3 * dead_at + 2;
        let dead_name = names_homed_at(dead_at, shards).nth(2).expect("there are many");
        rules.push(DestinationRule {
            pattern: names[0].clone(),
            dead_letter: Some(dead_name.as_str().into()),
            ..DestinationRule::default()
        });
        rules.push(DestinationRule {
            pattern: names[1].clone(),
            priorities: Some(true),
            ..DestinationRule::default()
        });
        for (n, name) in names.into_iter().enumerate() {
            nodes.push(Node { dead_letter: (n == 0).then_some(dead), ..Node::new(name) });
        }
    }
    (nodes, rules)
}

/// What is there after a start is what may and must be there.
pub(crate) fn check(world: &World, promises: &mut Promises) {
    let (mut contents, dying) = (contents(world, &promises.nodes), dying(world, &promises.nodes));
    dying.iter().for_each(|(message, node)| contents[*node].push((*message, u32::MAX)));
    promises.check(world.now, &contents, 0);
    // They come anew, and who has had one is told so.
    for key in dying {
        if let Some(copy) = promises.copies.get_mut(&key) {
            *copy = Copy { delivered: copy.delivered, ..Copy::default() };
        }
    }
}

fn contents(world: &World, nodes: &[Node]) -> Contents {
    let mut contents: Contents = vec![Vec::new(); nodes.len()];
    for (shard, disk) in world.shards.iter().zip(&world.disks) {
        shard.engine().verify();
        for (name, queue) in shard.queues() {
            let is_it = |node: &Node| {
                name == node.name || (node.name.starts_with("sub") && name.contains(&node.name))
            };
            let Some(node) = nodes.iter().position(is_it) else { continue };
            let on_disk = |segment, range| &disk.bytes(segment)[range];
            for (bytes, view) in shard.messages(queue, on_disk) {
                contents[node].push((number_of(bytes), view.delivery_count));
            }
        }
    }
    contents
}

/// What was found dead at a start and is on its way: number, and where it goes.
fn dying(world: &World, nodes: &[Node]) -> Vec<(usize, usize)> {
    let shards = world.shards.iter().zip(&world.disks);
    let letters =
        shards.flat_map(|(shard, disk)| shard.dead_letters(|segment, range| &disk.bytes(segment)[range]));
    let dying = letters.filter_map(|(name, message)| {
        let died_in = nodes.iter().find(|node| node.name == name)?;
        Some((number_of(message), died_in.dead_letter?))
    });
    dying.collect()
}

/// The number that a message's body begins with.
fn number_of(bytes: Option<&[u8]>) -> usize {
    let bytes = bytes.expect("what is not in memory is on the disk");
    let sections = Sections::scan(bytes).expect("the broker keeps whole messages");
    let body = match sections.body_values(bytes).next() {
        Some(Ok(Value::Binary(body))) => String::from_utf8_lossy(body).into_owned(),
        Some(_) | None => String::new(),
    };
    let number = body.split(' ').next().and_then(|number| number.parse().ok());
    number.expect("a body begins with its number")
}
