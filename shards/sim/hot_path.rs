//! What does a message cost? One shard, a producer and consumers, nothing left to chance, so that instructions and
//! allocations can be counted exactly.
//!
//! A round is: the producer's bytes of a batch of messages, a turn, the consumers' settlements, a turn. What the clients do
//! stands outside of [`HotPath::shard_part`], which is what is to be counted. Beside the consumer there may be a [`Crowd`] on the
//! same queue, to show that a message does not pay for it.

use std::sync::Arc;

use corelane_protocol::amqp10::{self, LinkId};
use corelane_protocol::amqp091;
use corelane_shard::limits::TRANSACTION_KEPT_BYTES_MAX;
use corelane_shard::{ConnectionSlot, Destinations, Effect, Event, Offers, Peer, Shard, ShardConfig, Socket};
use corelane_wire::amqp10::{Header, Properties, Value};

use crate::client::{Client, ReceiverOptions, SenderOptions};
use crate::world::client_config;

/// Links that one connection of a crowd has.
const LINKS_MAX: usize = 1000;

/// Credit of a link that never runs out of it.
const MUCH_CREDIT: u32 = 1 << 24;

/// Who else is on the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// Consumers without credit.
    Idle,
    /// Consumers with credit, of lower priority than the one that is served.
    Interested,
    /// Browsers without credit.
    Browsers,
    /// Consumers like the one that is served: they all take turns.
    Equals,
    /// Consumers with a selector each, `id = n`. They take the place of the one that is served.
    Selectors,
}

/// A shard between a producer and consumers.
#[derive(Debug)]
pub struct HotPath {
    now: u64,
    shard: Shard,
    effects: Vec<Effect>,
    /// The producer, the consumer, and the connections of the crowd.
    sides: Vec<Side>,
    /// By the index of their connections.
    side_of: Vec<usize>,
    sender: LinkId,
    /// The one that is served beside a crowd that is not.
    receiver: Option<LinkId>,
    body: String,
    /// Messages are for selectors in turn: how many there are, and whose turn it is.
    selectors: usize,
    sent: usize,
}

const PRODUCER: usize = 0;
const CONSUMER: usize = 1;

#[derive(Debug)]
struct Side {
    client: Client,
    slot: Option<ConnectionSlot>,
    to_broker: Vec<u8>,
    /// Taken from the shard, and to be given back to it as sent.
    sent: Option<Vec<u8>>,
}

impl HotPath {
    pub fn new(size: usize) -> Self {
        Self::with_crowd(size, None)
    }

    /// With so many others on the queue.
    pub fn with_crowd(size: usize, crowd: Option<(Crowd, usize)>) -> Self {
        let (amqp10, amqp091) = (amqp10::Config::default(), amqp091::Config::default());
        let offers = Offers { amqp10: Arc::new(amqp10), amqp091: Arc::new(amqp091) };
        let shard = Shard::new(ShardConfig {
            index: 0,
            shards: 1,
            boot: 1,
            loopback: offers.clone(),
            elsewhere: offers,
            destinations: Destinations::new(Vec::new(), true),
            vhosts: Vec::new(),
            definitions: None,
            memory: 1 << 40,
            transaction_timeout_us: 0,
            transaction_kept_bytes_max: TRANSACTION_KEPT_BYTES_MAX,
        });
        let now = 1_000_000_000_000_000;
        let count = crowd.map_or(0, |(_, count)| count);
        let side = || Side {
            client: Client::new(client_config(), now),
            slot: None,
            to_broker: Vec::new(),
            sent: None,
        };
        let mut path = HotPath {
            now,
            shard,
            effects: Vec::new(),
            sides: (0..2 + count.div_ceil(LINKS_MAX)).map(|_| side()).collect(),
            side_of: Vec::new(),
            sender: LinkId(0),
            receiver: None,
            body: "x".repeat(size),
            selectors: 0,
            sent: 0,
        };
        for socket in 0..path.sides.len() {
            let peer = Peer { loopback: true, address: None };
            path.shard.apply(now, Event::Accepted { socket: Socket(socket as u64), peer });
            path.sides[socket].client.begin();
            path.sides[socket].client.accepts = true;
        }
        path.settle_down();
        path.sender = path.sides[PRODUCER].client.attach_sender("s", "hot", &SenderOptions::default());
        if !matches!(crowd, Some((Crowd::Selectors, _))) {
            let priority = matches!(crowd, Some((Crowd::Interested, _))).then_some(5);
            let options = ReceiverOptions { priority, ..ReceiverOptions::default() };
            path.receiver = Some(path.sides[CONSUMER].client.attach_receiver("r", "hot", &options));
        }
        path.settle_down();
        if let Some((crowd, count)) = crowd {
            path.gather(crowd, count);
        }
        path
    }

    /// Messages through, `count` of them in one round; true when all have arrived and are settled.
    pub fn round(&mut self, count: usize, mut counted: impl FnMut(&mut dyn FnMut())) -> bool {
        self.sides.iter_mut().for_each(|side| side.client.received.clear());
        self.sides[PRODUCER].client.outcomes.clear();
        if let Some(receiver) = self.receiver {
            self.sides[CONSUMER].client.credit(receiver, count as u32);
        }
        for _ in 0..count {
            let body = std::mem::take(&mut self.body);
            self.send(&body);
            self.body = body;
        }
        for _ in 0..4 {
            self.clients_part();
            counted(&mut || self.shard_part());
            self.hand_back();
        }
        let received: usize = self.sides.iter().map(|side| side.client.received.len()).sum();
        received == count && self.sides[PRODUCER].client.outcomes.len() == count
    }

    fn send(&mut self, body: &str) {
        let producer = &mut self.sides[PRODUCER].client;
        if self.selectors == 0 {
            producer.send(self.sender, body);
            return;
        }
        let id = Value::Long((self.sent % self.selectors) as i64);
        self.sent += 1;
        producer.send_with(self.sender, body, &Properties::default(), &[("id", id)], &Header::default());
    }

    fn gather(&mut self, crowd: Crowd, count: usize) {
        for n in 0..count {
            let client = &mut self.sides[2 + n / LINKS_MAX].client;
            let options = ReceiverOptions {
                browse: crowd == Crowd::Browsers,
                selector: (crowd == Crowd::Selectors).then(|| format!("id = {n}")),
                ..ReceiverOptions::default()
            };
            let link = client.attach_receiver(&n.to_string(), "hot", &options);
            if matches!(crowd, Crowd::Interested | Crowd::Equals | Crowd::Selectors) {
                client.credit(link, MUCH_CREDIT);
            }
        }
        if crowd == Crowd::Selectors {
            self.selectors = count;
        }
        self.settle_down();
        assert!(self.sides.iter().all(|side| side.client.detached.is_empty()), "the crowd is attached");
    }

    fn settle_down(&mut self) {
        for _ in 0..8 {
            self.clients_part();
            self.shard_part();
            self.hand_back();
        }
    }

    fn clients_part(&mut self) {
        for side in &mut self.sides {
            side.client.act(self.now);
            side.to_broker.append(side.client.protocol.output());
        }
    }

    /// What the broker does in one turn. On its own, so that a profiler can tell it from the clients.
    #[inline(never)]
    fn shard_part(&mut self) {
        self.now += 10;
        // The consumers first: they have credit when messages come.
        for side in self.sides.iter_mut().rev() {
            let Some(connection) = side.slot else { continue };
            if let Some(buffer) = side.sent.take() {
                self.shard.apply(self.now, Event::Flushed { connection, buffer });
            }
            if !side.to_broker.is_empty() {
                self.shard.apply(self.now, Event::Received { connection, bytes: &side.to_broker });
                side.to_broker.clear();
            }
        }
        while self.shard.finish_turn(self.now).more_work {}
        self.shard.take_effects(&mut self.effects);
        for effect in &self.effects {
            if let Effect::Flush { connection } = effect {
                let side = &mut self.sides[self.side_of[connection.index as usize]];
                side.sent = Some(self.shard.take_output(*connection));
            }
        }
    }

    /// Carries out the other effects: the clients' inputs are not the broker's cost.
    fn hand_back(&mut self) {
        for side in &mut self.sides {
            if let Some(bytes) = &side.sent {
                side.client.input.extend_from_slice(bytes);
            }
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Register { connection, socket } => {
                    let (side, index) = (socket.0 as usize, connection.index as usize);
                    self.sides[side].slot = Some(connection);
                    self.side_of.resize(self.side_of.len().max(index + 1), 0);
                    self.side_of[index] = side;
                }
                Effect::Flush { .. }
                | Effect::Close { .. }
                | Effect::Reading { .. }
                | Effect::Probe { .. }
                | Effect::HandOver { .. }
                | Effect::Post { .. }
                | Effect::Warn { .. }
                | Effect::Ready
                | Effect::Stopped => {}
                Effect::Write { .. }
                | Effect::PrepareSegment { .. }
                | Effect::ReadSegment { .. }
                | Effect::ReadBodies { .. }
                | Effect::FreeSegments { .. } => unreachable!("nothing is kept here"),
            }
        }
        self.effects = effects;
    }
}
