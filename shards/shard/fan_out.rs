//! How does a message for a topic get to its subscriptions, and what does its producer hear?
//!
//! It is routed on its producer's shard, and goes once to each shard with a queue that gets it, with the list of those queues; its bytes
//! are shared. It takes the way that messages for queues take, so that its order, the windows and the answers are theirs. The
//! producer hears one answer when every shard has given its own: accepted, unless one refused (the others keep it). A message that
//! nobody has subscribed to is accepted.
//!
//! A message that very many subscriptions get goes to a shard, also to this one, in several parts, each of which is answered as if it were
//! another shard's: so no turn is longer for it. What comes behind such a message waits in the same line.
//!
//! A producer's routes are looked up when they may have changed, not for each message.

use std::collections::VecDeque;
use std::sync::Arc;

use corelane_engine::exchanges::RoutedBy;
use corelane_engine::{Origin, QueueId};
use corelane_journal::Ticket;
use corelane_protocol::amqp10::LinkId;

use crate::Shard;
use crate::amqp091::BySections;
use crate::connection::QueueAt;
use crate::event::ConnectionSlot;
use crate::limits::{FAN_OUT_STEP_MAX, FAN_OUT_WORK};
use crate::mail::{HandoffMessage, HandoffTarget, LinkRef, PublishOutcome};
use crate::message::Message;
use crate::producers::ProducerAt;
use crate::publish::{Arrival, Delivery, Timing};
use crate::subscription::Publisher;
use crate::vhost;

/// Where the messages of a producer on a topic or an exchange go, as it was when it was last looked up.
#[derive(Debug)]
pub(crate) struct TopicRoute {
    to: Address,
    routes: Arc<Routes>,
}

#[derive(Clone, Debug)]
enum Address {
    Topic(Box<str>),
    Exchange { exchange: Box<str>, key: Box<str> },
}

/// What routes are looked up in, and where: a connection may move.
pub(crate) type Version = (usize, u64, u64);

/// What a message was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    Topic {
        /// A temporary one that is gone.
        is_gone: bool,
        /// Of its messages, above what their producers say.
        expiration_us: Option<u64>,
    },
    Exchange,
}

/// Where the messages for a topic go.
#[derive(Debug)]
pub(crate) struct Routes {
    /// An exchange on the way holds it back for some of the queues.
    pub(crate) is_delayed: bool,
    /// What this was looked up in.
    pub(crate) version: Version,
    /// What becomes of a message that no queue gets: it is refused if its topic is gone, and an exchange says that it leads nowhere.
    pub(crate) otherwise: PublishOutcome,
    /// The queues of this shard, if they are few enough for one step.
    pub(crate) here: Option<Arc<Routed>>,
    /// All others. What is for this shard goes the way of what is for another one.
    pub(crate) elsewhere: Vec<(usize, Arc<Routed>)>,
}

/// Queues of one shard that a message goes to.
#[derive(Debug)]
pub struct Routed {
    queues: Vec<QueueId>,
    timing: Timing,
}

/// A message that is on its way to several shards.
#[derive(Debug)]
pub(crate) struct FanOut {
    delivery_id: u32,
    /// Parts of it that have yet to be answered, one a shard if these are not very many.
    unanswered: u32,
    outcome: PublishOutcome,
    /// Each part is for the queue of a name: one that is not there says nothing of the others.
    is_named: bool,
}

/// A producer's messages on their way to several shards, the earlier ones first.
#[derive(Debug, Default)]
pub(crate) struct FanOuts {
    line: VecDeque<FanOut>,
    /// Those with names that have come back from one of them, until all are answered.
    returned: Vec<(u32, Message)>,
}

impl FanOut {
    fn add(&mut self, outcome: PublishOutcome) {
        self.outcome = match (self.outcome, outcome) {
            (PublishOutcome::NoQueue, outcome) if self.is_named => outcome,
            (known, PublishOutcome::NoQueue) if self.is_named => known,
            (known, outcome) => known.and(outcome),
        };
    }
}

impl FanOuts {
    fn begin(&mut self, delivery_id: u32, unanswered: usize) {
        let (unanswered, outcome) = (unanswered as u32, PublishOutcome::Stored);
        self.line.push_back(FanOut { delivery_id, unanswered, outcome, is_named: false });
    }

    /// Nobody has it until one of the named queues is there.
    fn begin_named(&mut self, delivery_id: u32, unanswered: usize) {
        let (unanswered, outcome) = (unanswered as u32, PublishOutcome::NoQueue);
        self.line.push_back(FanOut { delivery_id, unanswered, outcome, is_named: true });
    }

    /// Keeps a message that has come back, unless it was for one queue alone.
    pub(crate) fn keep_returned(&mut self, delivery_id: u32, message: Message) -> Option<Message> {
        let is_named = self.line.iter().any(|it| it.is_named && it.delivery_id == delivery_id);
        if !is_named {
            return Some(message);
        }
        self.returned.push((delivery_id, message));
        None
    }

    /// The message that came back, perhaps from several queues, now that all are answered.
    #[inline]
    pub(crate) fn take_returned(&mut self, delivery_id: u32) -> Option<Message> {
        if self.returned.is_empty() {
            return None;
        }
        let returned = self.returned.extract_if(.., |(known, _)| *known == delivery_id);
        returned.map(|(_, message)| message).last()
    }

    /// A shard has answered: what the producer is told, if it was the last one.
    pub(crate) fn answered(&mut self, delivery_id: u32, outcome: PublishOutcome) -> Option<PublishOutcome> {
        // AMQP 1.0 §2.8.7: delivery-ids are serial numbers; those of one link ascend.
        let before = |other: &FanOut| (other.delivery_id.wrapping_sub(delivery_id) as i32) < 0;
        let at = self.line.partition_point(before);
        let Some(fan_out) = self.line.get_mut(at).filter(|other| other.delivery_id == delivery_id) else {
            return Some(outcome);
        };
        fan_out.unanswered -= 1;
        fan_out.add(outcome);
        if fan_out.unanswered > 0 {
            return None;
        }
        self.line.remove(at).map(|fan_out| fan_out.outcome)
    }
}

impl TopicRoute {
    pub(crate) fn new(topic: &str) -> Self {
        TopicRoute { to: Address::Topic(topic.into()), routes: Arc::new(Routes::none()) }
    }

    pub(crate) fn to_exchange(exchange: &str, key: &str) -> Self {
        let to = Address::Exchange { exchange: exchange.into(), key: key.into() };
        TopicRoute { to, routes: Arc::new(Routes::none()) }
    }
}

impl Routes {
    /// Nobody has looked.
    pub(crate) fn none() -> Self {
        let otherwise = PublishOutcome::NoQueue;
        let version = (usize::MAX, 0, 0);
        Routes { is_delayed: false, version, otherwise, here: None, elsewhere: Vec::new() }
    }

    /// They lead nowhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.here.is_none() && self.elsewhere.is_empty()
    }
}

impl Shard {
    /// Where a message of a producer on a topic or an exchange goes now.
    pub(crate) fn routes_of(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        message: &mut Message,
    ) -> Option<Arc<Routes>> {
        let version = self.routes_version();
        let route = self.topic_route(slot, link)?;
        let is_current = route.routes.version == version;
        if let (true, Address::Topic(_)) = (is_current, &route.to) {
            return Some(route.routes.clone());
        }
        let to = route.to.clone();
        let (routes, by) = match &to {
            Address::Topic(topic) => (self.look_up_routes(topic), RoutedBy::Keys),
            Address::Exchange { exchange, key } => {
                // Who gets it with 0-9-1 is told where it was published.
                message.readdress(vhost::plain(exchange), Some(key));
                if is_current {
                    return Some(self.topic_route(slot, link)?.routes.clone());
                }
                self.look_up_exchange(exchange, &[key.as_bytes()], &BySections(message))?
            }
        };
        if by == RoutedBy::Keys {
            self.topic_route(slot, link)?.routes = routes.clone();
        }
        Some(routes)
    }

    fn topic_route(&mut self, slot: ConnectionSlot, link: LinkId) -> Option<&mut TopicRoute> {
        self.connections.get_mut(slot)?.producer_mut(link)?.topic.as_deref_mut()
    }

    pub(crate) fn routes_version(&self) -> Version {
        (self.index, self.topology.version(), self.destinations_version)
    }

    /// Where messages for a topic go.
    pub(crate) fn look_up_routes(&mut self, topic: &str) -> Arc<Routes> {
        let expiration_us = self.destinations.lookup_topic(topic, None).properties.expiration_us;
        let mut found: Vec<QueueAt> = Vec::new();
        self.topology.matches(topic, |at| found.push(at));
        self.turn.count_work(self.topology.take_work());
        let is_gone = self.is_topic_gone(topic);
        if is_gone {
            found.clear();
        }
        Arc::new(self.routes_to(found, Aim::Topic { is_gone, expiration_us }))
    }

    /// The routes to these queues.
    pub(crate) fn routes_to(&self, found: Vec<QueueAt>, aim: Aim) -> Routes {
        let (otherwise, timing) = match aim {
            Aim::Topic { is_gone: true, .. } => (PublishOutcome::NoQueue, Timing::Own),
            Aim::Topic { is_gone: false, expiration_us } => {
                (PublishOutcome::Stored, expiration_us.map_or(Timing::Own, Timing::For))
            }
            Aim::Exchange => (PublishOutcome::NoSubscription, Timing::Own),
        };
        let version = self.routes_version();
        let mut routes = Routes { is_delayed: false, version, otherwise, here: None, elsewhere: Vec::new() };
        self.add_routes(&mut routes, found, timing);
        routes
    }

    /// Adds the ways to these queues.
    pub(crate) fn add_routes(&self, routes: &mut Routes, mut found: Vec<QueueAt>, timing: Timing) {
        found.sort_unstable_by_key(|at| (at.shard, at.queue));
        for of_shard in found.chunk_by(|one, other| one.shard == other.shard) {
            let (shard, is_one_step) = (of_shard[0].shard, of_shard.len() <= FAN_OUT_STEP_MAX);
            for step in of_shard.chunks(FAN_OUT_STEP_MAX) {
                let queues = step.iter().map(|at| at.queue).collect();
                let routed = Arc::new(Routed { queues, timing });
                if shard == self.index && is_one_step && routes.here.is_none() {
                    routes.here = Some(routed);
                } else {
                    routes.elsewhere.push((shard, routed));
                }
            }
        }
    }

    /// Sends a message to all queues that get it, and answers when all have.
    pub(crate) fn fan_out(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkRef,
        delivery: Delivery,
        routes: &Routes,
        message: Message,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let (user, container) = (connection.user.clone(), connection.container_hash);
        // Behind what this producer may have sent before.
        let waits = self.turn.has_handoffs(self.index);
        let here = routes.here.as_ref().filter(|_| !waits);
        let behind = routes.here.as_ref().filter(|_| waits).map(|routed| (self.index, routed));
        let elsewhere = routes.elsewhere.iter().map(|(to, routed)| (*to, routed)).chain(behind);
        let parts = elsewhere.clone().count();
        if parts == 0 {
            let outcome = match here {
                Some(routed) => {
                    let mark = self.said();
                    let outcome = self.fan_out_here(now, slot, link, delivery, routed, message);
                    if outcome == PublishOutcome::Stored {
                        self.count_message(slot, delivery.transaction);
                    }
                    self.answer_kept(slot, link, delivery, outcome, mark);
                    return;
                }
                None => {
                    self.dissolve(message);
                    routes.otherwise
                }
            };
            self.answer(slot, delivery, outcome);
            return;
        }
        let is_single = parts == 1 && here.is_none();
        let Delivery { delivery_id, settled, .. } = delivery;
        if let Some(producer) = connection.producer_mut(link.link) {
            producer.unanswered += 1;
            if !is_single {
                producer.fan_outs.begin(delivery_id, parts);
            }
        }
        self.count_message(slot, delivery.transaction);
        let transaction = delivery.key(link);
        let mut message = Some(if is_single { message } else { message.passed() });
        for (n, (to, routed)) in elsewhere.enumerate() {
            let is_last = n + 1 == parts && here.is_none();
            let passed = if is_last { message.take() } else { message.as_ref().and_then(Message::another) };
            let Some(message) = passed else { continue };
            let target = HandoffTarget::Queues { routed: routed.clone(), container };
            let user = user.clone();
            let handoff = HandoffMessage { link, delivery_id, settled, target, user, transaction, message };
            self.hand_off(now, slot, to, handoff);
        }
        if let (Some(routed), Some(message)) = (here, message) {
            let mark = self.said();
            let outcome = self.fan_out_here(now, slot, link, delivery, routed, message);
            self.note_part(slot, link, delivery, outcome, mark);
        }
    }

    /// Sends a message to the queues of several names.
    pub(crate) fn send_to_named(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkRef,
        delivery: Delivery,
        (names, is_mandatory): (&[Arc<str>], bool),
        message: Message,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let user = connection.user.clone();
        let Delivery { delivery_id, settled, .. } = delivery;
        if let Some(producer) = connection.producer_mut(link.link) {
            producer.unanswered += 1;
            producer.fan_outs.begin_named(delivery_id, names.len());
        }
        let transaction = delivery.key(link);
        let passed = message.passed();
        for name in names {
            let Some(message) = passed.another() else { continue };
            let home = self.home_of(name);
            let target = HandoffTarget::Existing { name: name.clone(), is_mandatory };
            let user = user.clone();
            let handoff = HandoffMessage { link, delivery_id, settled, target, user, transaction, message };
            self.hand_off(now, slot, home, handoff);
        }
        self.dissolve(passed);
    }

    /// This shard's part of a message for several is stored, or refused.
    fn note_part(
        &mut self,
        slot: ConnectionSlot,
        link: LinkRef,
        delivery: Delivery,
        outcome: PublishOutcome,
        mark: Ticket,
    ) {
        let kept = self.kept_since(mark).filter(|_| outcome == PublishOutcome::Stored);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(producer) = connection.producer_mut(link.link) else { return };
        let Some(fan_out) = producer.fan_outs.line.back_mut() else { return };
        fan_out.add(outcome);
        if let Some(ticket) = kept {
            // It is one more that has yet to answer.
            fan_out.unanswered += 1;
            connection.unanswered += 1;
            self.promise_stored(ticket, link, delivery.delivery_id, delivery.settled);
        }
    }

    /// This shard's part of it.
    fn fan_out_here(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkRef,
        delivery: Delivery,
        routed: &Routed,
        message: Message,
    ) -> PublishOutcome {
        let Some(connection) = self.connections.get_mut(slot) else { return PublishOutcome::NoQueue };
        let publisher = Publisher { origin: Origin(link.connection.0), container: connection.container_hash };
        let arrival = Arrival {
            message,
            origin: publisher.origin,
            user: connection.user.clone(),
            producer: Some(ProducerAt { shard: self.index, link }),
            transaction: delivery.key(link),
            timing: Timing::Own,
        };
        let outcome = self.store_in_all(now, routed, publisher, arrival);
        if let Some(key) = delivery.key(link) {
            self.note_work(now, slot, key.number, self.index, false);
            self.work_arrived(now, key);
            // The producer's link may be gone when all have answered, and with it what it would be told.
            if let (Some(failure), Some(transactions)) =
                (self.failure_of(slot, outcome), self.transactions(slot))
            {
                transactions.fail(key.number, failure);
            }
        }
        outcome
    }

    /// Puts a message into those queues of this shard that want it. What becomes of it in all of them: refused if one refused.
    pub(crate) fn store_in_all(
        &mut self,
        now: u64,
        routed: &Routed,
        publisher: Publisher,
        arrival: Arrival,
    ) -> PublishOutcome {
        let Arrival { message, origin, user, producer, transaction, .. } = arrival;
        let timing = routed.timing;
        let mut wanting = std::mem::take(&mut self.wanting);
        let mut work = 0;
        let wants = |queue: &&QueueId| self.wants(**queue, publisher, &message, &mut work);
        wanting.extend(routed.queues.iter().filter(wants).copied());
        self.turn.count_work(work + FAN_OUT_WORK * wanting.len() as u64);
        let outcome = match *wanting {
            [] => {
                self.dissolve(message);
                PublishOutcome::Stored
            }
            [queue] => {
                let arrival = Arrival { message, origin, user, producer, transaction, timing };
                self.store(now, queue, arrival)
            }
            _ => match self.share(message) {
                Ok(shared) => {
                    let mut outcome = PublishOutcome::Stored;
                    for &queue in &wanting {
                        let Some(message) = shared.another() else { break };
                        let user = user.clone();
                        let arrival = Arrival { message, origin, user, producer, transaction, timing };
                        outcome = outcome.and(self.store(now, queue, arrival));
                    }
                    self.dissolve(shared);
                    outcome
                }
                Err(message) => {
                    self.dissolve(message);
                    PublishOutcome::NoRoom
                }
            },
        };
        wanting.clear();
        self.wanting = wanting;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PublishOutcome::{Full, Stored};

    #[test]
    fn a_producer_hears_of_a_message_when_all_shards_have_answered() {
        let mut fan_outs = FanOuts::default();
        for delivery_id in [u32::MAX, 1, 2] {
            fan_outs.begin(delivery_id, 2);
        }
        // One of a single shard is none of these.
        assert_eq!(fan_outs.answered(0, Full), Some(Full));
        assert_eq!(fan_outs.answered(1, Full), None);
        assert_eq!(fan_outs.answered(u32::MAX, Stored), None);
        assert_eq!(fan_outs.answered(1, Stored), Some(Full));
        assert_eq!(fan_outs.answered(u32::MAX, Stored), Some(Stored));
        assert_eq!(fan_outs.answered(2, Stored), None);
        assert_eq!(fan_outs.answered(2, Stored), Some(Stored));
        assert!(fan_outs.line.is_empty());
    }
}
