//! One run of everything at once: a plan drawn from the seed, so many events, then the end of all faults and of everything that
//! was sent.
//!
//! An event is something that is applied to a shard (bytes, mail, a flushed buffer, a connection that begins or ends) or the end of
//! a shard's turn. Equal options give equal runs, down to the last byte: the report's trace is a hash of all events.

use std::cell::Cell;

use corelane_wire::amqp10::DeliveryState;

use crate::checkers;
use crate::deadlines::Deadlines;
use crate::faults::{Fault, Faults};
use crate::operating::Operating;
use crate::oracle::{Oracle, Settling};
use crate::plan::{Action, Plan, TTL_MS_MAX};
use crate::random::Random;
use crate::rest;
use crate::vanishing::{self, IDLE_EXPIRY_US_MAX, Lives};
use crate::workload::Workload;
use crate::world::{Actor, Setup, World};

/// How long the broker waits for a silent peer.
const IDLE_TIMEOUT_US: u64 = 10_000_000;

/// How often every queue is emptied until somebody else who waited has been answered.
const ROUNDS_MAX: usize = 30;

/// Steps of the end after which something must have gone wrong.
const FINAL_STEPS_MAX: usize = 2_000_000;

/// So many messages are checked at every chance.
const MESSAGES_FEW: u64 = 32;

/// What a run is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub seed: u64,
    pub events: u64,
    /// As the seed says, if not given.
    pub shards: Option<usize>,
    /// Events between two checks of everything, while there are few messages; the more there are the rarer are checks, which take
    /// the time of all of them.
    pub check_every: u64,
}

/// What a run was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub events: u64,
    pub messages: u64,
    pub deliveries: u64,
    /// A hash of all events.
    pub trace: u64,
}

thread_local! {
    static PROGRESS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Seed and event of the run that this thread is in, for those who report its failure.
pub fn progress() -> (u64, u64) {
    PROGRESS.get()
}

#[derive(Debug)]
pub struct Simulation {
    options: Options,
    world: World,
    random: Random,
    plan: Plan,
    names: Vec<String>,
    workload: Workload,
    oracle: Oracle,
    faults: Faults,
    operating: Option<Operating>,
    lives: Lives,
    deadlines: Deadlines,
    /// When everything is checked next.
    check_at: u64,
    /// Messages in all queues, at the last check.
    messages: u64,
    stalled_targets: u64,
}

impl Simulation {
    pub fn new(options: Options) -> Self {
        let mut random = Random::new(options.seed.wrapping_mul(0x9e37_79b9) ^ 0x51_5eed);
        let plan = Plan::draw(&mut random, options.shards);
        let setup = Setup {
            seed: options.seed,
            rules: plan.queues[..plan.queue_count()].iter().map(|queue| queue.rule.clone()).collect(),
            serial_first: plan.serial_first,
            client_window: plan.client_window,
            idle_timeout_us: Some(IDLE_TIMEOUT_US),
            verify: false,
            ..Setup::new(plan.shards)
        };
        let mut world = World::new(&setup);
        let mut workload = Workload::new();
        let operating = plan.operates.then(|| {
            let operating = Operating::new(&mut world, random.below(plan.shards));
            workload.stand_aside(operating.client());
            operating
        });
        Simulation {
            options,
            random,
            names: plan.queues[..plan.queue_count()].iter().map(|queue| queue.name.clone()).collect(),
            oracle: Oracle::new(plan.queues.clone()),
            lives: Lives::new(&plan, &world),
            deadlines: Deadlines::new(&plan, &world),
            operating,
            world,
            plan,
            workload,
            faults: Faults::default(),
            check_at: 0,
            messages: 0,
            stalled_targets: 0,
        }
    }

    /// Runs to the end; panics with what is wrong.
    pub fn run(mut self) -> Report {
        PROGRESS.set((self.options.seed, 0));
        let mut idle = false;
        while self.world.events < self.options.events {
            if idle || self.random.below(100) < self.plan.actions_percent {
                self.act(idle);
                idle = false;
            } else {
                idle = !self.step();
            }
        }
        self.finish();
        Report {
            events: self.world.events,
            messages: self.oracle.message_count() as u64,
            deliveries: self.oracle.deliveries,
            trace: self.world.trace,
        }
    }

    /// One participant acts. False: nobody could.
    fn step(&mut self) -> bool {
        let actor = self.world.tick();
        self.oracle.now = self.world.now;
        match (actor, &mut self.operating) {
            (Some(Actor::Client(client)), Some(operating)) if operating.client() == client => {
                operating.observe(&self.world, &mut self.oracle);
            }
            (Some(Actor::Client(client)), _) => {
                self.workload.observe(&mut self.world, &mut self.oracle, client);
            }
            (Some(Actor::Shard(_) | Actor::Control | Actor::Disk(_)) | None, _) => {}
        }
        self.look();
        actor.is_some()
    }

    /// After every step: what the world has done on its own, and the checks.
    fn look(&mut self) {
        PROGRESS.set((self.options.seed, self.world.events));
        while let Some(client) = self.world.closed_by_broker.pop() {
            self.workload.lost(&mut self.oracle, client);
        }
        let stalled = self.world.shards.iter().map(|shard| shard.counters().targets_stalled).sum();
        if stalled != self.stalled_targets {
            self.stalled_targets = stalled;
            self.loosen();
        }
        for queue in self.lives.gone(&self.world, &self.names) {
            self.workload.vanished(&mut self.oracle, queue);
            if let Some(operating) = &mut self.operating {
                operating.vanished(&mut self.oracle, queue);
            }
        }
        self.deadlines.look(&self.world, &mut self.oracle);
        self.workload.confirm(&mut self.world, &mut self.oracle);
        if self.world.events >= self.check_at {
            self.messages = checkers::check(&self.world, &self.names);
            checkers::check_limits(&self.world, &self.oracle.queues);
            self.check_at = self.world.events + self.options.check_every * (1 + self.messages / MESSAGES_FEW);
        }
    }

    /// Deliveries over shards may have been given up.
    fn loosen(&mut self) {
        let (workload, world, names) = (&self.workload, &self.world, &self.names);
        self.oracle.loosen(|consumer| {
            let at = world.shard_of(workload.peers[consumer.peer].client);
            // Subscriptions may live anywhere.
            names.get(consumer.queue).is_none_or(|name| at != world.home_of(name))
        });
    }

    /// Something that clients do, or that happens to them.
    fn act(&mut self, idle: bool) {
        self.end_faults();
        self.oracle.now = self.world.now;
        let action = self.plan.action(&mut self.random);
        match action {
            Action::Connect => self.connect(),
            Action::Operate => {
                if let Some(operating) = &mut self.operating {
                    operating.act(&mut self.world, &mut self.oracle, (&mut self.random, &self.plan));
                }
            }
            Action::Pass => self.world.pass(1000 * self.random.below(20) as u64),
            Action::PassLong => self.world.pass(1000 * self.random.below(1500) as u64),
            Action::Stall => self.stall(),
            Action::AttachSender
            | Action::AttachReceiver
            | Action::Send
            | Action::Grant
            | Action::Settle
            | Action::Declare
            | Action::Discharge
            | Action::Detach
            | Action::Close
            | Action::Reset
            | Action::Freeze
            | Action::Slow
            | Action::Delay => match self.workload.draw(&mut self.random) {
                Some(peer) => self.act_on(peer, action),
                None => self.connect(),
            },
        }
        if idle && self.random.one_in(2) {
            self.world.pass(1 + self.random.below(5000) as u64);
        }
        self.look();
    }

    fn act_on(&mut self, peer: usize, action: Action) {
        let Simulation { world, random, plan, workload, oracle, faults, messages, .. } = self;
        let client = workload.peers[peer].client;
        match action {
            Action::AttachSender => workload.attach_sender(world, oracle, (random, plan), peer),
            Action::AttachReceiver => workload.attach_receiver(world, oracle, (random, plan), peer),
            Action::Send if *messages < plan.messages_max => {
                workload.send(world, oracle, (random, plan), peer);
            }
            Action::Grant => workload.grant(world, oracle, (random, plan), peer),
            Action::Settle => workload.settle(world, oracle, (random, plan), peer),
            Action::Declare => workload.declare(world, peer),
            Action::Discharge => workload.discharge(world, oracle, random, peer),
            Action::Detach => workload.detach(world, oracle, random, peer),
            Action::Close => workload.close(world, oracle, peer),
            Action::Reset => {
                world.kill(client);
                workload.lost(oracle, peer);
            }
            Action::Freeze => {
                workload.peers[peer].is_frozen = true;
                workload.peers[peer].was_silent = true;
                world.freeze(client);
                faults.begin(world.now, random, Fault::Frozen { peer });
            }
            Action::Slow if !workload.peers[peer].is_slow => {
                workload.peers[peer].is_slow = true;
                world.client_reads(client, false);
                faults.begin(world.now, random, Fault::Slow { peer });
            }
            Action::Delay => world.delay(client, world.now + random.below(30_000) as u64),
            Action::Send
            | Action::Slow
            | Action::Connect
            | Action::Operate
            | Action::Stall
            | Action::Pass
            | Action::PassLong => {}
        }
    }

    fn connect(&mut self) {
        let shard = self.random.below(self.plan.shards);
        // A shard that stands still greets nobody.
        if self.workload.alive() < self.plan.peers_max && !self.faults.is_stalled(shard) {
            let peer = self.workload.connect(&mut self.world, shard);
            debug_assert_eq!(self.workload.peers[peer].client, peer);
        }
    }

    fn stall(&mut self) {
        let shard = self.random.below(self.plan.shards);
        if self.faults.stalled_count() + 1 < self.plan.shards && !self.faults.is_stalled(shard) {
            self.world.stall(shard, true);
            self.workload.peers.iter_mut().for_each(|peer| peer.was_silent = true);
            self.faults.begin(self.world.now, &mut self.random, Fault::Stalled { shard });
        }
    }

    /// Faults whose time is over end; at the end of the world all do.
    fn end_faults(&mut self) {
        self.end_faults_at(self.world.now);
    }

    fn end_faults_at(&mut self, now: u64) {
        while let Some(fault) = self.faults.next_over(now) {
            match fault {
                Fault::Stalled { shard } => self.world.stall(shard, false),
                Fault::Slow { peer } => {
                    self.workload.peers[peer].is_slow = false;
                    self.world.client_reads(self.workload.peers[peer].client, true);
                }
                Fault::Frozen { peer } => {
                    self.workload.peers[peer].is_frozen = false;
                    self.world.thaw(self.workload.peers[peer].client);
                }
            }
        }
    }

    /// Faults end, everyone goes, the time of all that is not for ever passes, and one last consumer for each queue takes what is left.
    fn finish(&mut self) {
        self.end_faults_at(u64::MAX);
        // Until shards that are waited for are given up, and longer.
        for _ in 0..12 {
            self.rest();
            self.end_dealings();
            self.world.pass(100_000);
        }
        self.rest();
        let is_waiting = self.operating.as_ref().is_some_and(Operating::is_waiting);
        assert!(!is_waiting, "the operator waits for ever");
        self.settle_everything();
        for peer in 0..self.workload.peers.len() {
            let state = &self.workload.peers[peer];
            if state.is_alive && !state.is_closing {
                self.workload.close(&mut self.world, &mut self.oracle, peer);
            }
        }
        self.rest();
        for _ in 0..8 {
            self.world.pass(u64::from(TTL_MS_MAX) * 1000 / 4);
            self.rest();
        }
        self.oracle.all_expired = true;
        // The queue of dead letters is the last one.
        for queue in 0..self.names.len() {
            self.take_all(queue);
        }
        // Who said that a subscription is to end may not have been heard.
        for queue in self.plan.queues.len()..self.oracle.queues.len() {
            if self.oracle.queues[queue].subscription().is_some_and(|it| it.is_durable) {
                self.take_all(queue);
            }
        }
        self.oracle.check_owed(false);
        self.world.pass(IDLE_EXPIRY_US_MAX);
        self.rest();
        vanishing::check_gone(&self.world, &self.oracle.queues);
        checkers::check_empty(&self.world, &self.names);
        let dropped: Vec<u64> = self.names.iter().map(|name| checkers::dropped(&self.world, name)).collect();
        self.oracle.finish(&dropped);
    }

    /// All consumers go, and while others take what there is, every producer gets its answers.
    fn settle_everything(&mut self) {
        let alive = |peer: &crate::workload::Peer| peer.is_alive && !peer.is_closing;
        let peers: Vec<usize> = (0..self.workload.peers.len()).collect();
        for &peer in peers.iter().filter(|peer| alive(&self.workload.peers[**peer])) {
            self.workload.check_drained(&self.world, &self.oracle, peer);
        }
        rest::check(&self.world, &self.workload, &self.oracle);
        self.serve_subscribers();
        self.oracle.check_owed(true);
        for &peer in &peers {
            if alive(&self.workload.peers[peer]) {
                self.workload.let_go(&mut self.world, &mut self.oracle, peer);
            }
        }
        self.rest();
        // Who was stopped at a full queue goes on when it was emptied, and fills it again.
        let (mut fewest, mut patience) = (usize::MAX, ROUNDS_MAX);
        while patience > 0 {
            (0..self.names.len()).for_each(|queue| self.take_all(queue));
            let waiting: usize = peers.iter().map(|peer| self.workload.unanswered(*peer)).sum();
            if waiting == 0 {
                rest::check_senders(&self.world, &self.workload, &self.oracle);
                return;
            }
            patience = if waiting < fewest { ROUNDS_MAX } else { patience - 1 };
            fewest = waiting.min(fewest);
        }
        panic!("producers wait for ever for {fewest} answers");
    }

    fn end_dealings(&mut self) {
        let Simulation { world, random, workload, oracle, .. } = self;
        for peer in 0..workload.peers.len() {
            if workload.peers[peer].is_alive && !workload.peers[peer].is_closing {
                workload.end_dealings(world, oracle, random, peer);
            }
        }
    }

    /// All that waits for subscribers comes to them, and is accepted.
    fn serve_subscribers(&mut self) {
        let mut before = None;
        while before != Some(self.oracle.deliveries) {
            before = Some(self.oracle.deliveries);
            for peer in 0..self.workload.peers.len() {
                self.workload.serve(&mut self.world, &mut self.oracle, peer);
            }
            self.rest();
        }
    }

    fn take_all(&mut self, queue: usize) {
        let shard = self.random.below(self.plan.shards);
        let peer = self.workload.connect(&mut self.world, shard);
        let shows_all = self.oracle.queues[queue].shows_all;
        let consumer = self.oracle.attached(peer, queue, None, [false, shows_all, false]);
        let options = self.oracle.queues[queue].subscription().map(|it| it.terms().1).unwrap_or_default();
        let link = self.workload.attach(&mut self.world, &self.oracle, peer, consumer, &options);
        let mut patience = 3;
        while patience > 0 {
            let client = self.workload.peers[peer].client;
            self.world.clients[client].credit(link, 100);
            while self.step() {}
            let held: Vec<u32> = self.oracle.consumers[consumer].held.iter().map(|(_, id)| *id).collect();
            if held.is_empty() {
                patience -= 1;
                self.world.pass(20_000);
            }
            for delivery_id in held {
                self.oracle.settled(consumer, 0, Settling::Accepted);
                self.world.clients[client].settle(link, delivery_id, &DeliveryState::Accepted);
            }
            while self.step() {}
        }
        self.oracle.all_heard();
        self.workload.close(&mut self.world, &mut self.oracle, peer);
        self.rest();
    }

    /// Until nobody has anything to do, and nothing is on its way.
    fn rest(&mut self) {
        let mut steps = 0;
        for _ in 0..3 {
            while self.step() {
                steps += 1;
                assert!(steps < FINAL_STEPS_MAX, "the world does not come to rest");
            }
            // What was delayed comes now.
            self.world.pass(20_000);
        }
    }
}
