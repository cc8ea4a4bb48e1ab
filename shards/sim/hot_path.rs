//! What does a message cost? One shard, a producer and a consumer, nothing left to chance, so that instructions and
//! allocations can be counted exactly.
//!
//! A round is: the producer's bytes of a batch of messages, a turn, the consumer's settlements, a turn. What the clients do
//! stands outside of [`HotPath::shard_part`], which is what is to be counted.

use std::sync::Arc;

use corelane_protocol::amqp10::{self, LinkId};
use corelane_shard::{ConnectionSlot, Destinations, Effect, Event, Peer, Shard, ShardConfig, Socket};

use crate::client::{Client, ReceiverOptions, SenderOptions};
use crate::world::client_config;

/// A shard between a producer and a consumer.
#[derive(Debug)]
pub struct HotPath {
    now: u64,
    shard: Shard,
    effects: Vec<Effect>,
    producer: Side,
    consumer: Side,
    sender: LinkId,
    receiver: LinkId,
    body: String,
}

#[derive(Debug)]
struct Side {
    client: Client,
    slot: Option<ConnectionSlot>,
    to_broker: Vec<u8>,
}

impl HotPath {
    pub fn new(size: usize) -> Self {
        let config = Arc::new(amqp10::Config::default());
        let shard = Shard::new(ShardConfig {
            index: 0,
            shards: 1,
            boot: 1,
            loopback: config.clone(),
            elsewhere: config,
            destinations: Destinations::new(Vec::new(), true),
            memory: 1 << 40,
        });
        let now = 1_000_000_000_000_000;
        let side = || Side { client: Client::new(client_config(), now), slot: None, to_broker: Vec::new() };
        let mut path = HotPath {
            now,
            shard,
            effects: Vec::new(),
            producer: side(),
            consumer: side(),
            sender: LinkId(0),
            receiver: LinkId(0),
            body: "x".repeat(size),
        };
        for socket in 0..2 {
            let peer = Peer { loopback: true };
            path.shard.apply(now, Event::Accepted { socket: Socket(socket), peer });
        }
        path.producer.client.begin();
        path.consumer.client.begin();
        path.settle_down();
        path.sender = path.producer.client.attach_sender("s", "hot", &SenderOptions::default());
        path.receiver = path.consumer.client.attach_receiver("r", "hot", &ReceiverOptions::default());
        path.consumer.client.accepts = true;
        path.settle_down();
        path
    }

    /// Messages through, `count` of them in one round; true when all have arrived and are settled.
    pub fn round(&mut self, count: usize, mut counted: impl FnMut(&mut dyn FnMut())) -> bool {
        self.consumer.client.received.clear();
        self.producer.client.outcomes.clear();
        self.consumer.client.credit(self.receiver, count as u32);
        for _ in 0..count {
            let body = std::mem::take(&mut self.body);
            self.producer.client.send(self.sender, &body);
            self.body = body;
        }
        for _ in 0..4 {
            self.clients_part();
            counted(&mut || self.shard_part());
            self.hand_back();
        }
        self.consumer.client.received.len() == count && self.producer.client.outcomes.len() == count
    }

    fn settle_down(&mut self) {
        for _ in 0..8 {
            self.clients_part();
            self.shard_part();
            self.hand_back();
        }
    }

    fn clients_part(&mut self) {
        for side in [&mut self.producer, &mut self.consumer] {
            side.client.act(self.now);
            side.to_broker.append(side.client.protocol.output());
        }
    }

    /// What the broker does in one turn.
    fn shard_part(&mut self) {
        self.now += 10;
        for side in [&mut self.consumer, &mut self.producer] {
            if let Some(connection) = side.slot
                && !side.to_broker.is_empty()
            {
                self.shard.apply(self.now, Event::Received { connection, bytes: &side.to_broker });
                side.to_broker.clear();
            }
        }
        while self.shard.finish_turn(self.now).more_work {}
        self.shard.take_effects(&mut self.effects);
    }

    /// Carries out the effects: the clients' inputs are not the broker's cost.
    fn hand_back(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Register { connection, socket } => {
                    let side = if socket.0 == 0 { &mut self.producer } else { &mut self.consumer };
                    side.slot = Some(connection);
                }
                Effect::Flush { connection } => {
                    let is_producer = self.producer.slot == Some(connection);
                    let side = if is_producer { &mut self.producer } else { &mut self.consumer };
                    let buffer = self.shard.take_output(connection);
                    side.client.input.extend_from_slice(&buffer);
                    self.shard.apply(self.now, Event::Flushed { connection, buffer });
                }
                Effect::Close { .. }
                | Effect::Reading { .. }
                | Effect::HandOver { .. }
                | Effect::Post { .. }
                | Effect::Stopped => {}
            }
        }
        self.effects = effects;
    }
}
