//! What is there after a crash, or in a backup (`backups`)? Messages and queues (`messages`, `queues`), dead letters and what moves (`moves`, `dying`), transactions
//! (`transactions`), what is larger than memory (`overflow`, `sweeping`), the disk itself (`disk`).

mod backups;
mod disk;
mod dying;
mod messages;
mod moves;
mod overflow;
mod queues;
mod sweeping;
mod transactions;

use corelane_protocol::amqp10::LinkId;
use corelane_shard::DestinationRule;
use corelane_sim::{Received, ReceiverOptions, Restart, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Header, Properties};

/// A world with disks, and one client at a time, which connects to shard 0.
pub struct Stage {
    pub world: World,
    pub client: usize,
    links: usize,
}

impl Stage {
    pub fn new(shards: usize, seed: u64) -> Stage {
        Stage::with(&Setup::durable(shards, seed))
    }

    pub fn with(setup: &Setup) -> Stage {
        let mut world = World::new(setup);
        let client = world.connect(0);
        Stage { world, client, links: 0 }
    }

    pub fn with_rules(shards: usize, seed: u64, rules: Vec<DestinationRule>) -> Stage {
        Stage::with(&Setup { rules, ..Setup::durable(shards, seed) })
    }

    pub fn sender(&mut self, address: &str) -> LinkId {
        self.links += 1;
        let name = format!("s{}", self.links);
        let options = SenderOptions::default();
        let link = self.world.clients[self.client].attach_sender(&name, address, &options);
        self.world.run();
        link
    }

    /// A receiver without credit.
    pub fn receiver(&mut self, address: &str) -> LinkId {
        self.receiver_with(address, &ReceiverOptions::default())
    }

    pub fn receiver_with(&mut self, address: &str, options: &ReceiverOptions) -> LinkId {
        self.links += 1;
        let name = format!("r{}", self.links);
        let link = self.world.clients[self.client].attach_receiver(&name, address, options);
        self.world.run();
        link
    }

    /// Sends a durable message; nothing happens yet.
    pub fn post(&mut self, link: LinkId, body: &str) -> u64 {
        self.post_with(link, body, &durable())
    }

    pub fn post_with(&mut self, link: LinkId, body: &str, header: &Header) -> u64 {
        self.world.clients[self.client].send_with(link, body, &Properties::default(), &[], header)
    }

    /// Sends durable messages, and they are accepted.
    pub fn send(&mut self, address: &str, bodies: &[&str]) {
        let link = self.sender(address);
        let tokens: Vec<u64> = bodies.iter().map(|body| self.post(link, body)).collect();
        self.world.run();
        tokens.into_iter().for_each(|token| assert_eq!(self.outcome(token), "accepted"));
    }

    /// Sends a durable message, and nobody waits for the disk.
    pub fn send_without_answer(&mut self, address: &str, body: &str) -> u64 {
        let link = self.sender(address);
        let token = self.post(link, body);
        self.world.run();
        token
    }

    pub fn outcome(&self, token: u64) -> &str {
        self.world.clients[self.client].outcome(token).unwrap_or("nothing")
    }

    /// Receives so much, unsettled.
    pub fn receive(&mut self, link: LinkId, credit: u32) -> Vec<Received> {
        let before = self.world.clients[self.client].received.len();
        self.world.clients[self.client].credit(link, credit);
        self.world.run();
        let received = self.world.clients[self.client].received[before..].iter();
        received.filter(|received| received.link == link).cloned().collect()
    }

    pub fn settle(&mut self, received: &Received, state: &DeliveryState<'_>) {
        self.world.clients[self.client].settle(received.link, received.delivery_id, state);
        self.world.run();
    }

    /// All that is in a queue, and it is accepted.
    pub fn take(&mut self, address: &str) -> Vec<Received> {
        let link = self.receiver(address);
        let received = self.receive(link, 10_000);
        for received in &received {
            self.world.clients[self.client].settle(link, received.delivery_id, &DeliveryState::Accepted);
        }
        self.world.run();
        self.world.clients[self.client].detach(link);
        self.world.run();
        received
    }

    pub fn take_bodies(&mut self, address: &str) -> Vec<String> {
        bodies(&self.take(address))
    }

    /// The broker crashes and starts again; another client comes.
    pub fn crash(&mut self) -> Restart {
        let restart = self.world.crash_and_restart();
        self.client = self.world.connect(0);
        restart
    }

    /// The broker stops in order and starts again; another client comes.
    pub fn stop(&mut self) -> Restart {
        self.world.stop();
        self.crash()
    }

    /// Messages in a queue.
    pub fn depth(&self, queue: &str) -> u64 {
        let depths = self.world.shards.iter().filter_map(|shard| shard.engine().depth(shard.queue(queue)?));
        depths.map(|depth| depth.messages).sum()
    }

    pub fn hold_disks(&mut self, held: bool) {
        self.world.disks.iter_mut().for_each(|disk| disk.held = held);
    }
}

pub fn durable() -> Header {
    Header { durable: true, ..Header::default() }
}

pub fn bodies(received: &[Received]) -> Vec<String> {
    received.iter().map(|received| received.body.clone()).collect()
}

pub fn name_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).next().expect("there is one for each shard")
}

pub fn other_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).nth(1).expect("there are many for each shard")
}

pub fn rule(pattern: &str, change: impl FnOnce(&mut DestinationRule)) -> DestinationRule {
    let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
    change(&mut rule);
    rule
}
