//! How does a message of the broker's own making (a dead letter, a moved message, an answer of management) get into its queue?
//!
//! As a producer's does, but nobody waits for what becomes of it. To a queue elsewhere it goes as [`Mail::Forward`], against a
//! window of its own: who makes many of them asks [`may_route`](Shard::may_route) first, and waits. An address may be a topic's, too.
//!
//! A turn does no more of it than of what producers send: what comes from another shard waits in the same line (`turn`).
//!
//! The queue in which a dead letter has died is told when it could not be stored: at once, or by the answer of the shard it went to.
//!
//! A message that is kept where it was is hidden in its new queue, on another shard, until it is gone there for good. So nobody
//! has it before it is in one place only, and whatever is lost in a crash, it is never had twice.

use corelane_engine::{Origin, QueueId};

use crate::Shard;
use crate::address::{Address, is_topic_name};
use crate::dead_letters::LostDeadLetter;
use crate::fan_out::Routes;
use crate::mail::{Arrived, ForwardedMessage, HandoffTarget, Mail, PublishOutcome};
use crate::message::Message;
use crate::publish::{Arrival, Timing};
use crate::subscription::Publisher;

/// Nobody's connection, nobody's container.
const PUBLISHER: Publisher = Publisher { origin: Origin(0), container: 0 };

impl Shard {
    /// Whether there is room on the way to this address. What is routed nevertheless goes, too.
    pub(crate) fn may_route(&self, address: &str) -> bool {
        match Address::resolve(address) {
            Address::Name(name) if !self.is_topic(&name) => self.may_forward_to_queue(&name),
            Address::Queue(name) => self.may_forward_to_queue(&name),
            Address::Name(_) | Address::Topic(_) | Address::Exchange { .. } => {
                (0..self.shards).all(|shard| shard == self.index || self.peers.may_forward(shard))
            }
            Address::Unsupported | Address::Invalid => true,
        }
    }

    /// Whether what goes to this address goes to no other shard, whatever is bound or subscribed there.
    pub(crate) fn stays_here(&self, address: &str) -> bool {
        match Address::resolve(address) {
            Address::Name(name) if !self.is_topic(&name) => self.home_of(&name) == self.index,
            Address::Queue(name) => self.home_of(&name) == self.index,
            Address::Name(_) | Address::Topic(_) | Address::Exchange { .. } => self.shards == 1,
            Address::Unsupported | Address::Invalid => true,
        }
    }

    fn may_forward_to_queue(&self, name: &str) -> bool {
        let home = self.home_of(name);
        home == self.index || self.peers.may_forward(home)
    }

    /// Puts a message into the queue of this address, here or elsewhere, or into those of a topic. A message that cannot be stored is
    /// dropped and counted; what is answered is what is known at once. `died_in`: it is a dead letter of this queue.
    pub(crate) fn route_internal(
        &mut self,
        now: u64,
        address: &str,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        let outcome = match Address::resolve(address) {
            Address::Name(name) if !self.is_topic(&name) => self.route_to_queue(now, &name, died_in, message),
            Address::Queue(name) => self.route_to_queue(now, &name, died_in, message),
            Address::Name(topic) | Address::Topic(topic) => {
                self.route_to_topic(now, &topic, died_in, message)
            }
            Address::Exchange { exchange, .. } => self.route_to_exchange(now, &exchange, died_in, message),
            Address::Unsupported | Address::Invalid => {
                self.dissolve(message);
                PublishOutcome::NoAddress
            }
        };
        self.counters.count_forward_refused(outcome);
        outcome
    }

    pub(crate) fn route_to_queue(
        &mut self,
        now: u64,
        name: &str,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        self.route_to_home(now, self.home_of(name), HandoffTarget::Name(name.into()), died_in, message)
    }

    /// The same, if the queue is there: it is not made.
    pub(crate) fn route_to_existing(
        &mut self,
        now: u64,
        name: &str,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        let target = HandoffTarget::Existing { name: name.into(), is_mandatory: false };
        self.route_to_home(now, self.home_of(name), target, died_in, message)
    }

    fn route_to_home(
        &mut self,
        now: u64,
        home: usize,
        target: HandoffTarget,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        if home == self.index {
            self.store_internal(now, &target, message)
        } else {
            let (source, origin) = (self.source_in_hand(), self.origin_in_hand());
            self.forward(home, ForwardedMessage { target, died_in, source, origin, message });
            PublishOutcome::Stored
        }
    }

    fn route_to_topic(
        &mut self,
        now: u64,
        topic: &str,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        let routes = self.look_up_routes(topic);
        if !is_topic_name(topic) || routes.otherwise == PublishOutcome::NoQueue {
            self.dissolve(message);
            return PublishOutcome::NoQueue;
        }
        self.route_by(now, &routes, died_in, message)
    }

    /// Puts a message into the queues that it is routed to.
    pub(crate) fn route_by(
        &mut self,
        now: u64,
        routes: &Routes,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        let is_alone = routes.elsewhere.len() == 1 && routes.here.is_none();
        let message = message.passed();
        let mut outcome = PublishOutcome::Stored;
        for (shard, routed) in &routes.elsewhere {
            let target = HandoffTarget::Queues { routed: routed.clone(), container: PUBLISHER.container };
            let Some(message) = message.another() else { continue };
            if *shard == self.index {
                outcome = outcome.and(self.store_internal(now, &target, message));
            } else {
                // One of several shards that has it does not speak for the others.
                let origin = self.origin_in_hand().filter(|_| is_alone);
                let source = self.source_in_hand();
                self.forward(*shard, ForwardedMessage { target, died_in, source, origin, message });
            }
        }
        match &routes.here {
            Some(routed) => {
                let target = HandoffTarget::Queues { routed: routed.clone(), container: PUBLISHER.container };
                self.store_internal(now, &target, message)
            }
            None => {
                self.dissolve(message);
                if routes.elsewhere.is_empty() { PublishOutcome::NoSubscription } else { outcome }
            }
        }
    }

    fn forward(&mut self, to: usize, message: ForwardedMessage) {
        self.counters.messages_forwarded += 1;
        self.note_forwarded();
        self.peers.forward(&mut self.effects, to, message);
    }

    /// Takes in what has come from a shard, as far as there is work left in the turn, and answers that.
    pub(crate) fn on_forward(&mut self, now: u64, from: usize) {
        let mark = self.said();
        let mut count = 0;
        let (mut bytes, mut lost, mut kept) = (0, Vec::new(), Vec::new());
        while !self.is_turn_over()
            && let Some(forwarded) = self.turn.next_forward(from)
        {
            let ForwardedMessage { target, died_in, source, origin, mut message } = forwarded;
            count += 1;
            bytes += message.memory();
            message.origin = origin.map(Box::new);
            self.hiding = origin.map(|_| Vec::new());
            let outcome = match origin {
                // It is in all queues that it goes to, or after a crash in none of them.
                Some(_) => {
                    self.begin_group();
                    let outcome = self.store_internal(now, &target, message);
                    self.end_group();
                    outcome
                }
                None => self.store_internal(now, &target, message),
            };
            let hidden = self.hiding.take().unwrap_or_default();
            kept.extend(source.map(|source| (source, hidden)));
            self.counters.count_forward_refused(outcome);
            if let Some(died_in) = died_in.filter(|_| outcome != PublishOutcome::Stored) {
                let to = match target {
                    HandoffTarget::Name(name) => Some(name),
                    HandoffTarget::Existing { name, .. } => Some(Box::from(&*name)),
                    HandoffTarget::Queue(_) | HandoffTarget::Queues { .. } => None,
                };
                lost.push(LostDeadLetter { died_in, to, outcome });
            }
        }
        self.post_kept(mark, from, Mail::Forwarded { count, bytes, lost, kept });
    }

    /// What was hidden is gone where it was: consumers may have it.
    pub(crate) fn reveal(&mut self, now: u64, hidden: &[Arrived]) {
        for Arrived { queue, place } in hidden {
            self.engine.commit_pending(now, *queue, *place);
        }
    }

    fn store_internal(&mut self, now: u64, target: &HandoffTarget, message: Message) -> PublishOutcome {
        let arrival = Arrival {
            message,
            origin: PUBLISHER.origin,
            user: None,
            producer: None,
            transaction: None,
            timing: Timing::Own,
        };
        match target {
            HandoffTarget::Queue(queue) => self.store(now, *queue, arrival),
            HandoffTarget::Name(name) => self.store_by_name(now, name, arrival),
            HandoffTarget::Existing { name, .. } => match self.queues.find(name) {
                Some(queue) => self.store(now, queue, arrival),
                None => {
                    self.dissolve(arrival.message);
                    PublishOutcome::NoQueue
                }
            },
            HandoffTarget::Queues { routed, .. } => self.store_in_all(now, routed, PUBLISHER, arrival),
        }
    }
}
