//! What do the clients do? Chance decides, within what a well-behaved client may do, and the oracle hears of it.
//!
//! A [`Peer`] is a client of the world with its links, by their numbers. A number is used again only after the link of that number has
//! ended, and what has arrived is told to the oracle after every act of a client, so a number always means one link.

use std::collections::{BTreeMap, BTreeSet};

use corelane_protocol::amqp10::LinkId;
use corelane_wire::amqp10::{DeliveryState, Header, Modified, Outcome, Properties, Value};

use crate::client::{Client, ReceiverOptions, SenderOptions};
use crate::dealing::Dealings;
use crate::oracle::{Oracle, Sent, Settling};
use crate::plan::{COLORS, DELAY_MS_MAX, KEYS, Plan, TTL_MS_MAX};
use crate::random::Random;
use crate::subscribing::Subscription;
use crate::world::World;

/// Links that a client has at most.
const LINKS_MAX: usize = 8;

/// Messages of one sender that wait for an answer at most: what more is sent waits at the client.
const WAITING_MAX: usize = 200;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Sender {
        /// Where to, unless each message says so.
        queue: Option<usize>,
        stream: usize,
        /// How often that queue had gone by then.
        life: usize,
    },
    /// The oracle's number of the consumer.
    Receiver { consumer: usize },
    /// For transactions.
    Coordinator,
    /// The end was said, and the answer is waited for.
    Ending,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) client: usize,
    pub(crate) is_alive: bool,
    pub(crate) is_frozen: bool,
    pub(crate) is_slow: bool,
    /// It was frozen, or its shard stood still.
    pub(crate) was_silent: bool,
    /// It said close.
    pub(crate) is_closing: bool,
    pub(crate) links: BTreeMap<u32, Use>,
    /// Links that it knows to be attached.
    pub(crate) confirmed: BTreeSet<u32>,
    pub(crate) dealings: Dealings,
    /// Messages and their streams, by token.
    pub(crate) waiting: BTreeMap<u64, (usize, usize)>,
    /// Messages with an outcome of ours that the broker may not have heard; those at the end are not even written.
    said: Vec<usize>,
    written: usize,
}

#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) peers: Vec<Peer>,
    streams: usize,
    links: usize,
}

impl Workload {
    pub(crate) fn new() -> Self {
        Workload { peers: Vec::new(), streams: 0, links: 0 }
    }

    /// This client of the world is not one of ours.
    pub(crate) fn stand_aside(&mut self, client: usize) {
        self.add(client);
        self.peers[client].is_alive = false;
    }

    pub(crate) fn alive(&self) -> usize {
        self.peers.iter().filter(|peer| peer.is_alive).count()
    }

    /// A client that can do something.
    pub(crate) fn draw(&self, random: &mut Random) -> Option<usize> {
        let usable = |peer: &&Peer| peer.is_alive && !peer.is_frozen && !peer.is_closing;
        let count = self.peers.iter().filter(usable).count();
        if count == 0 {
            return None;
        }
        let chosen = random.below(count);
        self.peers.iter().enumerate().filter(|(_, peer)| usable(peer)).nth(chosen).map(|(index, _)| index)
    }

    pub(crate) fn connect(&mut self, world: &mut World, shard: usize) -> usize {
        let client = world.open(shard);
        self.add(client)
    }

    fn add(&mut self, client: usize) -> usize {
        self.peers.push(Peer {
            client,
            is_alive: true,
            is_frozen: false,
            is_slow: false,
            was_silent: false,
            is_closing: false,
            links: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            dealings: Dealings::default(),
            waiting: BTreeMap::new(),
            said: Vec::new(),
            written: 0,
        });
        self.peers.len() - 1
    }

    pub(crate) fn attach_sender(
        &mut self,
        world: &mut World,
        oracle: &Oracle,
        (random, plan): (&mut Random, &Plan),
        peer: usize,
    ) {
        if !self.has_link_left(peer) {
            return;
        }
        let anonymous = plan.anonymous && random.one_in(3);
        let queue = (!anonymous).then(|| random.below(plan.queues.len()));
        let address = queue.map(|queue| plan.queues[queue].address()).unwrap_or_default();
        let life = queue.map_or(0, |queue| oracle.queues[queue].gone);
        let link_name = self.link_name();
        let peer = &mut self.peers[peer];
        let options = SenderOptions { anonymous, ..SenderOptions::default() };
        let link = world.clients[peer.client].attach_sender(&link_name, &address, &options);
        self.streams += 1;
        peer.links.insert(link.0, Use::Sender { queue, stream: self.streams, life });
    }

    pub(crate) fn attach_receiver(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        peer: usize,
    ) {
        if !self.has_link_left(peer) {
            return;
        }
        if plan.topics > 0 && random.one_in(2) {
            self.subscribe(world, oracle, (random, plan), peer);
            return;
        }
        let queue = random.below(plan.queue_count());
        let browse = plan.browsers && random.one_in(4);
        let selector = plan.selector(random);
        let options = ReceiverOptions {
            selector: selector.map(|selector| selector.text()),
            no_local: plan.no_local && random.one_in(3),
            browse,
            priority: (plan.priorities > 1).then(|| random.below(plan.priorities) as i32),
            presettled: plan.presettled && !browse && !plan.queues[queue].shows_all && random.one_in(3),
            settles_second: plan.seconds && !browse && !plan.queues[queue].shows_all && random.one_in(2),
            ..ReceiverOptions::default()
        };
        let (no_local, presettled) = (options.no_local, options.presettled);
        // Nobody acquires what all are to see.
        let browse = browse || plan.queues[queue].shows_all;
        let consumer = oracle.attached(peer, queue, selector, [no_local, browse, presettled]);
        oracle.consumers[consumer].settles_second = options.settles_second && !presettled;
        self.attach(world, oracle, peer, consumer, &options);
        if random.one_in(2) {
            self.grant(world, oracle, (random, plan), peer);
        }
    }

    /// A consumer of a subscription.
    fn subscribe(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        peer: usize,
    ) {
        let Some(queue) = oracle.draw_subscription(random, plan) else { return };
        let Some(subscription) = oracle.queues[queue].subscription() else { return };
        if world.clients[self.peers[peer].client].has_receiver(&subscription.link_name()) {
            return;
        }
        let (_, mut options) = subscription.terms();
        options.priority = (plan.priorities > 1).then(|| random.below(plan.priorities) as i32);
        options.presettled = subscription.is_own() && plan.presettled && random.one_in(3);
        // It matches what comes to the subscription.
        let consumer = oracle.attached(peer, queue, None, [false, false, options.presettled]);
        self.attach(world, oracle, peer, consumer, &options);
        if !random.one_in(3) {
            self.grant(world, oracle, (random, plan), peer);
        }
    }

    /// A link for a consumer that the oracle knows.
    pub(crate) fn attach(
        &mut self,
        world: &mut World,
        oracle: &Oracle,
        peer: usize,
        consumer: usize,
        options: &ReceiverOptions,
    ) -> LinkId {
        let queue = &oracle.queues[oracle.consumers[consumer].queue];
        let name = queue.address();
        let link_name = queue.subscription().map_or_else(|| self.link_name(), Subscription::link_name);
        let peer = &mut self.peers[peer];
        let link = world.clients[peer.client].attach_receiver(&link_name, &name, options);
        peer.links.insert(link.0, Use::Receiver { consumer });
        link
    }

    pub(crate) fn has_link_left(&self, peer: usize) -> bool {
        self.peers[peer].links.len() < LINKS_MAX
    }

    pub(crate) fn link_name(&mut self) -> String {
        self.links += 1;
        format!("l{}", self.links)
    }

    pub(crate) fn send(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        index: usize,
    ) {
        let peer = &mut self.peers[index];
        let senders: Vec<(u32, Option<usize>, usize, usize)> = peer
            .links
            .iter()
            .filter_map(|(link, used)| match used {
                Use::Sender { queue, stream, life } => Some((*link, *queue, *stream, *life)),
                Use::Receiver { .. } | Use::Coordinator | Use::Ending => None,
            })
            .collect();
        if senders.is_empty() {
            return;
        }
        for _ in 0..1 + random.below(6) {
            if peer.waiting.len() >= WAITING_MAX {
                return;
            }
            let (link, queue, stream, life) = senders[random.below(senders.len())];
            let to = queue.unwrap_or_else(|| random.below(plan.queues.len()));
            let life = queue.map(|_| life);
            let sent = Sent { life, ..draw_message(random, plan, (to, stream, index)) };
            let number = oracle.sent(sent.clone());
            // Only without an address of the link does the message's count.
            let address = queue.is_none().then(|| plan.queues[to].address());
            let client = &mut world.clients[peer.client];
            let transaction = peer.dealings.draw(random);
            if let Some(transaction) = transaction {
                oracle.posted(transaction, number);
            }
            let transaction = transaction.map(|it| oracle.transaction_number(it));
            let to = (LinkId(link), transaction, address.as_deref());
            let token = write_message(client, random, to, number, &sent);
            peer.waiting.insert(token, (number, stream));
        }
    }

    pub(crate) fn receivers(&self, peer: usize) -> Vec<(u32, usize)> {
        let used = self.peers[peer].links.iter();
        used.filter_map(|(link, used)| match used {
            Use::Receiver { consumer } => Some((*link, *consumer)),
            Use::Sender { .. } | Use::Coordinator | Use::Ending => None,
        })
        .collect()
    }

    /// Links that send to one node.
    pub(crate) fn senders(&self, peer: usize) -> Vec<(u32, usize)> {
        let used = self.peers[peer].links.iter();
        used.filter_map(|(link, used)| match used {
            Use::Sender { queue, .. } => queue.map(|queue| (*link, queue)),
            Use::Receiver { .. } | Use::Coordinator | Use::Ending => None,
        })
        .collect()
    }

    pub(crate) fn grant(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        peer: usize,
    ) {
        let receivers = self.receivers(peer);
        if receivers.is_empty() {
            return;
        }
        let (link, consumer) = receivers[random.below(receivers.len())];
        let credit = random.below(plan.credit_max + 1) as u32;
        let client = &mut world.clients[self.peers[peer].client];
        if client.is_draining(LinkId(link)) {
            // Another flow would call that off.
            return;
        }
        let transaction =
            self.peers[peer].dealings.draw(random).filter(|_| !oracle.consumers[consumer].browse);
        if random.one_in(5) {
            client.drain(LinkId(link), credit);
        } else if let Some(transaction) = transaction {
            client.credit_in(LinkId(link), oracle.transaction_number(transaction), credit);
            let consumer = &oracle.consumers[consumer];
            oracle.queues[consumer.queue].takes_settled_in |= consumer.presettled;
        } else {
            client.credit(LinkId(link), credit);
        }
    }

    /// Some of what a client holds ends, in any order.
    pub(crate) fn settle(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        (random, plan): (&mut Random, &Plan),
        index: usize,
    ) {
        let receivers = self.receivers(index);
        if receivers.is_empty() {
            return;
        }
        let (link, consumer) = receivers[random.below(receivers.len())];
        let held = oracle.consumers[consumer].held.len();
        let count = if random.one_in(3) { held } else { random.below(held + 1) };
        for _ in 0..count {
            let held = oracle.consumers[consumer].held.len();
            let position = if random.one_in(3) { random.below(held) } else { 0 };
            let (_, delivery_id) = oracle.consumers[consumer].held[position];
            let outcome = draw_outcome(random, plan);
            let peer = &mut self.peers[index];
            let client = &mut world.clients[peer.client];
            if oracle.consumers[consumer].noted.contains_key(&delivery_id) {
                continue;
            }
            let transaction = match oracle.consumers[consumer].acquired.get(&delivery_id).copied() {
                Some(transaction) if !oracle.is_open(transaction) => continue,
                Some(transaction) => Some(transaction),
                None => peer.dealings.draw(random),
            };
            if let Some(transaction) = transaction {
                if oracle.consumers[consumer].settles_second {
                    oracle.noted_in((consumer, position), outcome, transaction);
                } else {
                    oracle.settled_in((consumer, position), outcome, transaction);
                }
                let name = oracle.transaction_number(transaction);
                client.settle_in(LinkId(link), delivery_id, name, outcome_of(outcome));
            } else {
                peer.said.push(oracle.settled(consumer, position, outcome));
                client.settle(LinkId(link), delivery_id, &outcome_of(outcome).into());
            }
        }
    }

    pub(crate) fn detach(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        random: &mut Random,
        index: usize,
    ) {
        let usable = |used: &Use| *used != Use::Ending;
        let links = &self.peers[index].links;
        let count = links.values().filter(|used| usable(used)).count();
        if count == 0 {
            return;
        }
        let chosen = random.below(count);
        let Some((&link, &used)) = links.iter().filter(|(_, used)| usable(used)).nth(chosen) else {
            return;
        };
        let stays = match used {
            Use::Receiver { consumer } => {
                let subscription = oracle.queues[oracle.consumers[consumer].queue].subscription();
                subscription.is_some_and(|it| it.is_durable) && !random.one_in(4)
            }
            Use::Sender { stream, .. } if self.has_unwritten_posts(world, oracle, index, stream) => return,
            Use::Sender { .. } | Use::Coordinator | Use::Ending => false,
        };
        let peer = &mut self.peers[index];
        if used == Use::Coordinator {
            peer.dealings.abandon(oracle);
        }
        if stays {
            world.clients[peer.client].suspend(LinkId(link));
        } else {
            world.clients[peer.client].detach(LinkId(link));
        }
        peer.links.insert(link, Use::Ending);
        end_of_use(used, oracle, !stays);
    }

    pub(crate) fn close(&mut self, world: &mut World, oracle: &mut Oracle, index: usize) {
        let peer = &mut self.peers[index];
        world.clients[peer.client].close();
        peer.is_closing = true;
        peer.dealings.abandon(oracle);
        for used in std::mem::take(&mut peer.links).into_values() {
            end_of_use(used, oracle, false);
        }
        // What crosses with the close is not read any more.
        for number in std::mem::take(&mut peer.said) {
            oracle.unheard(number);
        }
        peer.written = 0;
    }

    /// The connection is gone: what was on its way may or may not have arrived.
    pub(crate) fn lost(&mut self, oracle: &mut Oracle, index: usize) {
        let peer = &mut self.peers[index];
        if !peer.is_alive {
            return;
        }
        peer.is_alive = false;
        peer.dealings.abandon(oracle);
        for number in std::mem::take(&mut peer.said) {
            oracle.unheard(number);
        }
        for used in std::mem::take(&mut peer.links).into_values() {
            end_of_use(used, oracle, false);
        }
    }

    /// Tells the oracle what a client has seen in its last act.
    pub(crate) fn observe(&mut self, world: &mut World, oracle: &mut Oracle, index: usize) {
        let peer = &mut self.peers[index];
        let client = &mut world.clients[peer.client];
        if peer.is_alive {
            for received in std::mem::take(&mut client.received) {
                if let Some(Use::Receiver { consumer }) = peer.links.get(&received.link.0) {
                    oracle.delivered(*consumer, &received);
                }
            }
        }
        for (token, outcome) in std::mem::take(&mut client.outcomes) {
            if peer.dealings.answered(oracle, index, (token, &outcome)) {
                continue;
            }
            let number = peer.waiting.remove(&token);
            let (number, _) = number.unwrap_or_else(|| panic!("token {token} is answered twice"));
            if peer.is_alive && !peer.is_closing {
                oracle.answered(number, &outcome);
            }
        }
        for (link, error) in client.detached.iter() {
            peer.confirmed.remove(&link.0);
            match peer.links.remove(&link.0) {
                Some(Use::Ending) | None => {}
                // Its attach was late, and somebody else has the subscription by now.
                Some(used @ Use::Receiver { .. }) if error.as_deref() == Some("amqp:link:stolen") => {
                    end_of_use(used, oracle, false);
                }
                Some(used) if oracle.may_have_ended(used, error.as_deref()) => {
                    oracle.cut(used);
                    end_of_use(used, oracle, false);
                }
                Some(used) => {
                    assert!(peer.is_closing, "link {link:?} ended: {error:?} {used:?} of client {index}");
                    end_of_use(used, oracle, false);
                }
            }
        }
        for link in std::mem::take(&mut client.attached) {
            if let Some(Use::Receiver { consumer }) = peer.links.get(&link.0) {
                oracle.confirmed(*consumer);
            }
            if peer.links.contains_key(&link.0) {
                peer.confirmed.insert(link.0);
            }
        }
        client.detached.clear();
        client.addresses.clear();
        client.drained.clear();
        peer.written = peer.said.len();
        let fault = client.ended.clone().or(client.closed.clone()).flatten();
        // It was silent for too long.
        let is_idle = fault.as_deref() == Some("amqp:resource-limit-exceeded") && peer.was_silent;
        assert!(fault.is_none() || is_idle, "client {index}: {fault:?}");
        if client.closed.is_some() {
            self.lost(oracle, index);
        }
    }

    /// A client accepts all that its subscriptions have brought, and asks for more.
    pub(crate) fn serve(&mut self, world: &mut World, oracle: &mut Oracle, index: usize) {
        for (link, consumer) in self.receivers(index) {
            let peer = &mut self.peers[index];
            if peer.is_closing || oracle.queues[oracle.consumers[consumer].queue].subscription().is_none() {
                continue;
            }
            while let Some((_, delivery_id)) = oracle.consumers[consumer].held.first().copied() {
                peer.said.push(oracle.settled(consumer, 0, Settling::Accepted));
                world.clients[peer.client].settle(LinkId(link), delivery_id, &DeliveryState::Accepted);
            }
            world.clients[peer.client].credit(LinkId(link), 100);
        }
    }

    /// Everything that is held is accepted, and every consumer ends.
    pub(crate) fn let_go(&mut self, world: &mut World, oracle: &mut Oracle, index: usize) {
        for (link, consumer) in self.receivers(index) {
            let peer = &mut self.peers[index];
            while let Some((_, delivery_id)) = oracle.consumers[consumer].held.first().copied() {
                peer.said.push(oracle.settled(consumer, 0, Settling::Accepted));
                world.clients[peer.client].settle(LinkId(link), delivery_id, &DeliveryState::Accepted);
            }
            if oracle.queues[oracle.consumers[consumer].queue].subscription().is_some() {
                // A durable one stays, and what is left in it is taken later.
                world.clients[peer.client].suspend(LinkId(link));
            } else {
                world.clients[peer.client].detach(LinkId(link));
            }
            peer.links.insert(link, Use::Ending);
            oracle.consumer_gone(consumer, false);
        }
    }

    /// Every drain of a client was answered, and every transaction has ended.
    pub(crate) fn check_drained(&self, world: &World, oracle: &Oracle, index: usize) {
        let peer = &self.peers[index];
        assert!(peer.dealings.is_idle(), "client {index} waits for its coordinator: {:?}", peer.dealings);
        for (link, used) in &peer.links {
            let drains = *used != Use::Ending && world.clients[peer.client].is_draining(LinkId(*link));
            let consumer = match used {
                Use::Receiver { consumer } => Some(&oracle.consumers[*consumer]),
                Use::Sender { .. } | Use::Coordinator | Use::Ending => None,
            };
            let queue = consumer.map(|consumer| &oracle.queues[consumer.queue]);
            let credit = world.clients[peer.client].credit_left(LinkId(*link));
            assert!(
                !drains,
                "client {index} waits on link {link} with credit {credit} for the end of a drain: {consumer:?} of {queue:?}"
            );
        }
    }

    /// Messages of a client's senders that were not answered.
    pub(crate) fn unanswered(&self, index: usize) -> usize {
        let peer = &self.peers[index];
        let sends = |stream| {
            peer.links.values().any(|used| matches!(used, Use::Sender { stream: own, .. } if *own == stream))
        };
        if !peer.is_alive || peer.is_closing {
            return 0;
        }
        peer.waiting.values().filter(|(_, stream)| sends(*stream)).count()
    }

    /// What a client has said and the broker has surely heard is certain from here on.
    pub(crate) fn confirm(&mut self, world: &mut World, oracle: &mut Oracle) {
        for peer in self.peers.iter_mut().filter(|peer| peer.is_alive && peer.written > 0) {
            if world.is_heard(peer.client) {
                for number in peer.said.drain(..std::mem::take(&mut peer.written)) {
                    oracle.heard(number);
                }
            }
        }
    }
}

fn draw_message(random: &mut Random, plan: &Plan, (queue, stream, peer): (usize, usize, usize)) -> Sent {
    let size = match random.below(60) {
        0 if plan.large => 1000 * random.below(200),
        1 => 2000,
        _ => random.below(40),
    };
    let mut sent = Sent {
        queue,
        stream,
        peer,
        priority: random.below(10) as u8,
        group: (plan.groups > 0 && random.one_in(2)).then(|| random.below(plan.groups) as u8),
        key: random.below(KEYS) as i64,
        color: COLORS[random.below(COLORS.len())],
        size,
        ttl_ms: (plan.ttl && random.one_in(3)).then(|| 1 + random.below(TTL_MS_MAX as usize) as u32),
        ends: None,
        life: None,
        is_delayed: plan.delays && random.one_in(4),
    };
    sent.ends = Some(sent.ttl_ms.is_some());
    sent
}

/// Gives a message to its client; the token comes back.
fn write_message(
    client: &mut Client,
    random: &mut Random,
    (link, transaction, to): (LinkId, Option<u32>, Option<&str>),
    number: usize,
    sent: &Sent,
) -> u64 {
    let group = sent.group.map(|group| format!("g{group}"));
    let properties = Properties { to, group_id: group.as_deref(), ..Properties::default() };
    let header =
        Header { durable: random.one_in(2), priority: sent.priority, ttl: sent.ttl_ms, ..Header::default() };
    let application = [("k", Value::Long(sent.key)), ("color", Value::String(sent.color))];
    let delay = [("x-opt-delivery-delay", Value::Ulong(1 + random.below(DELAY_MS_MAX) as u64))];
    let annotations = if sent.is_delayed { &delay[..] } else { &[] };
    let body = Oracle::body(number, sent.size);
    client.send_whole((link, transaction), &body, &properties, (&application, annotations), &header)
}

fn end_of_use(used: Use, oracle: &mut Oracle, is_closed: bool) {
    match used {
        Use::Sender { stream, .. } => oracle.sender_gone(stream),
        Use::Receiver { consumer } => oracle.consumer_gone(consumer, is_closed),
        Use::Coordinator | Use::Ending => {}
    }
}

fn draw_outcome(random: &mut Random, plan: &Plan) -> Settling {
    if random.below(10) < plan.accepts {
        return Settling::Accepted;
    }
    [
        Settling::Accepted,
        Settling::Rejected,
        Settling::Released,
        Settling::Released,
        Settling::Failed,
        Settling::NotHere,
    ][random.below(6)]
}

fn outcome_of(outcome: Settling) -> Outcome<'static> {
    let modified = |delivery_failed, undeliverable_here| {
        Outcome::Modified(Modified { delivery_failed, undeliverable_here, ..Modified::default() })
    };
    match outcome {
        Settling::Accepted => Outcome::Accepted,
        Settling::Rejected => Outcome::Rejected { error: None },
        Settling::Released => Outcome::Released,
        Settling::Failed => modified(true, false),
        Settling::NotHere => modified(false, true),
    }
}
