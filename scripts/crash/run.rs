//! What happens in a run? Start, audit, load, kill, so many times.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Options;
use crate::audit::audit;
use crate::broker::{Broker, Place};
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::nodes::{Node, configuration, nodes};
use crate::random::Random;
use crate::worker::{Role, Shared, work};

/// How long a load goes on, by turns: a moment, and long enough for segments to be cleaned.
const LOAD_MS_MAX: &[usize] = &[100, 400, 400, 1200, 1200, 3000];
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Faults that are told.
const TOLD_MAX: usize = 20;

pub struct Run {
    options: Options,
    place: Place,
    nodes: Vec<Node>,
    ledger: Ledger,
    random: Random,
    shards: usize,
    /// How long the last start took.
    start_time: Duration,
    streams: u64,
    kills: u32,
    kills_at_start: u32,
    kills_at_change: u32,
    started: Instant,
}

impl Run {
    pub fn new(options: &Options, folder: PathBuf) -> Self {
        let nodes = nodes();
        Run {
            options: options.clone(),
            place: Place { program: options.broker.clone(), folder },
            ledger: Ledger::new(nodes.clone()),
            nodes,
            random: Random::new(options.seed),
            shards: 0,
            start_time: Duration::from_millis(100),
            streams: 0,
            kills: 0,
            kills_at_start: 0,
            kills_at_change: 0,
            started: Instant::now(),
        }
    }

    /// What is wrong; with the first that is, it ends.
    pub fn go(&mut self) -> Vec<Fault> {
        if let Err(error) = self.place.configure(&configuration(&self.nodes)) {
            return vec![Fault::Other(format!(
                "nothing can be written in {}: {error}",
                self.place.folder.display()
            ))];
        }
        let faults = self.rounds().err().unwrap_or_default();
        for fault in faults.iter().take(TOLD_MAX) {
            println!("kill {}, {} shards: {fault}", self.kills, self.shards);
        }
        faults
    }

    fn rounds(&mut self) -> Result<(), Vec<Fault>> {
        while self.kills < self.options.kills {
            if let Some(broker) = self.start().map_err(one)? {
                let broker = self.audit(broker)?;
                self.load(broker)?;
            }
            if self.kills.is_multiple_of(10) {
                println!("{}", self.summary(&[]));
            }
        }
        let mut broker = self.spawn().map_err(one)?;
        broker.wait_until_it_listens().map_err(one)?;
        let broker = self.audit(broker)?;
        broker.stop().map_err(one)
    }

    /// Starts the broker. `None`: it was killed before it was up.
    fn start(&mut self) -> Result<Option<Broker>, Fault> {
        let before = self.shards;
        let mut broker = self.spawn()?;
        let changes = before != self.shards && before != 0;
        if before != 0 && self.random.one_in(if changes { 2 } else { 5 }) {
            let longest = self.start_time.as_micros() as usize * 5 / 4;
            thread::sleep(Duration::from_micros(self.random.below(longest + 1) as u64));
            broker.kill()?;
            self.kills += 1;
            self.kills_at_start += 1;
            self.kills_at_change += u32::from(changes);
            return Ok(None);
        }
        self.start_time = broker.wait_until_it_listens()?;
        Ok(Some(broker))
    }

    fn spawn(&mut self) -> Result<Broker, Fault> {
        self.shards = usize::from(self.random.of(&self.options.shards));
        self.place.spawn(self.shards)
    }

    fn audit(&mut self, mut broker: Broker) -> Result<Broker, Vec<Fault>> {
        let faults = audit(broker.address, &self.nodes, &mut self.ledger);
        if faults.is_empty() {
            return Ok(broker);
        }
        // That the broker has ended is why nothing could be seen.
        Err(broker.check().err().map_or(faults, one))
    }

    fn load(&mut self, mut broker: Broker) -> Result<(), Vec<Fault>> {
        let ledger = std::mem::replace(&mut self.ledger, Ledger::new(self.nodes.clone()));
        let shared = Shared {
            address: broker.address,
            nodes: self.nodes.clone(),
            ledger: Mutex::new(ledger),
            is_over: AtomicBool::new(false),
            fault: Mutex::new(None),
        };
        let longest = self.random.of(LOAD_MS_MAX);
        let time = Duration::from_millis(self.random.below(longest) as u64);
        let roles = self.roles();
        let seeds: Vec<(Role, u64, u64)> = roles
            .into_iter()
            .map(|role| {
                self.streams += 1;
                (role, self.streams, self.random.number())
            })
            .collect();
        let killed = thread::scope(|scope| {
            for (role, stream, seed) in seeds {
                let shared = &shared;
                scope.spawn(move || work(shared, role, stream, seed));
            }
            let until = Instant::now() + time;
            while Instant::now() < until && !shared.has_fault() && broker.check().is_ok() {
                thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
            }
            shared.is_over.store(true, Ordering::SeqCst);
            broker.kill()
        });
        self.kills += 1;
        let Shared { ledger, fault, .. } = shared;
        self.ledger = ledger.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.ledger.lose_all();
        killed.map_err(one)?;
        match fault.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(fault) => Err(one(fault)),
            None => Ok(()),
        }
    }

    fn roles(&mut self) -> Vec<Role> {
        let mut roles: Vec<Role> =
            (0..3).map(|_| Role::Produce { window: self.random.of(&[1, 10, 100, 1000]) }).collect();
        roles.extend([Role::Consume, Role::Consume, Role::Consume, Role::Transact, Role::Transact]);
        let subscriptions = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_subscription);
        roles.extend(subscriptions.map(|node| Role::Subscribe { node }));
        roles
    }

    /// The counts so far.
    pub fn summary(&self, faults: &[Fault]) -> String {
        let counts = &self.ledger.counts;
        let lost = faults.iter().filter(|fault| matches!(fault, Fault::Lost(_))).count();
        let doubled = faults.iter().filter(|fault| matches!(fault, Fault::Doubled(_))).count();
        format!(
            "{} kills ({} at a start, {} of these with other shards), {} s: {} sent, {} confirmed, {} refused, {} delivered, \
             {} redelivered, {} transactions committed, {} rolled back, {} found again, {} lost, {} doubled, {} other faults",
            self.kills,
            self.kills_at_start,
            self.kills_at_change,
            self.started.elapsed().as_secs(),
            counts.sent,
            counts.confirmed,
            counts.refused,
            counts.delivered,
            counts.redelivered,
            counts.committed,
            counts.rolled_back,
            counts.kept,
            lost,
            doubled,
            faults.len() - lost - doubled,
        )
    }
}

fn one(fault: Fault) -> Vec<Fault> {
    vec![fault]
}
