//! What does a topic's subscriber get, and how long does its subscription live?
//!
//! A subscription is a queue of its own, bound to a pattern of topics, on one shard, its home. What does not match its selector, or
//! comes from a client that does not want its own messages, is never put into the queue. An attach is answered when all shards know
//! of the binding; until then it is a *claim* that waits at the home.
//!
//! | | lives at | ends |
//! |---|---|---|
//! | neither durable nor shared | the shard of its connection | with its link |
//! | shared | the home of its name | with its last consumer |
//! | durable | the home of its name | when its terminus is closed (AMQP 1.0 §2.6.6), shared: by its last consumer |
//!
//! Invariants:
//! - a queue has a subscription ⟺ its kind is one, and its binding was proposed when it was made and is ended when it goes;
//! - claims wait only while the binding is not known everywhere;
//! - a subscription that is not shared has one consumer or claim at most: a second one of the same terms takes the first one's place
//!   (AMQP 1.0 §2.6.1), of others it is refused.
//!
//! Left out: what a peer's attach has to say for all this (`attach_topic`), and how messages get here (`fan_out`).

use std::sync::Arc;

use corelane_engine::selector::{Field, Fields, Filter, HeaderField, Value};
use corelane_engine::{ConsumerId, Message as _, Origin, QueueId};
use corelane_mailbox::Lane;

use crate::Shard;
use crate::connection::{ConsumerAt, QueueAt};
use crate::deliver::Owner;
use crate::destinations::DestinationRule;
use crate::mail::{ConsumeRequest, Ending, LinkRef, Mail, Refusal};
use crate::message::Message;
use crate::queues::QueueKind;
use crate::topology::{Change, Then};

/// What makes one subscription differ from another.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// A topic, or a pattern of topics.
    pub topic: Arc<str>,
    pub selector: Option<Box<str>>,
    pub no_local: Option<NoLocal>,
    pub durable: bool,
    pub shared: bool,
}

/// Whose messages a subscription does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLocal {
    /// Those of this connection.
    Connection(Origin),
    /// Those of all connections of a container, by the hash of its name (JMS 2.0 §8.3.3 has it for what is durable).
    Container(u64),
}

/// Who has published a message, as subscriptions tell them apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publisher {
    pub(crate) origin: Origin,
    pub(crate) container: u64,
}

/// A subscription, at its home.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) terms: Terms,
    filter: Option<Filter>,
    /// All shards know of its binding.
    is_known: bool,
    claims: Vec<Claim>,
}

/// An attach that waits.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The connection's shard.
    pub(crate) shard: usize,
    pub(crate) link: LinkRef,
    pub(crate) priority: i32,
}

impl Subscription {
    /// One that was there before; the reason if it cannot be any more.
    pub(crate) fn restored(terms: Terms) -> Result<Self, String> {
        let filter = terms.selector.as_deref().map(Filter::parse).transpose();
        let filter = filter.map_err(|error| error.to_string())?;
        Ok(Subscription { terms, filter, is_known: false, claims: Vec::new() })
    }

    /// `work` rises by the nodes that are evaluated.
    fn wants(&self, publisher: Publisher, message: &Message, work: &mut u64) -> bool {
        let is_local = match self.terms.no_local {
            None => false,
            Some(NoLocal::Connection(origin)) => origin == publisher.origin,
            Some(NoLocal::Container(container)) => container == publisher.container,
        };
        let matches = |filter: &Filter| {
            *work += filter.node_count() as u64;
            filter.matches(&AsPublished(message))
        };
        !is_local && self.filter.as_ref().is_none_or(matches)
    }

    /// Whether an attach with these terms is one to this subscription.
    fn agrees(&self, terms: &Terms, filter: Option<&Filter>) -> bool {
        let Terms { topic, selector: _, no_local, durable, shared } = terms;
        let ours = &self.terms;
        (&ours.topic, ours.no_local.is_some(), ours.durable, ours.shared)
            == (topic, no_local.is_some(), *durable, *shared)
            && self.filter.as_ref() == filter
    }
}

/// A message that nobody has had yet.
struct AsPublished<'a>(&'a Message);

impl Fields for AsPublished<'_> {
    fn field(&self, field: &Field) -> Value<'_> {
        match field {
            Field::Header(HeaderField::Redelivered) => Value::Bool(false),
            Field::Header(HeaderField::DeliveryCount) => Value::Int(1),
            Field::Header(_) | Field::Property(_) => self.0.field(field),
        }
    }
}

impl Shard {
    /// Whether the queue is to get the message: a subscription gets what it has subscribed to. False for a queue that is gone. `work`
    /// rises by what the answer costs.
    pub(crate) fn wants(
        &self,
        queue: QueueId,
        publisher: Publisher,
        message: &Message,
        work: &mut u64,
    ) -> bool {
        let Some(node) = self.queues.get(queue) else { return false };
        node.subscription.as_ref().is_none_or(|subscription| subscription.wants(publisher, message, work))
    }

    /// A consumer for a subscription whose home is this shard; it is found or made. The claim is answered now or later.
    pub(crate) fn subscribe(&mut self, now: u64, claim: Claim, name: &str, terms: Terms) {
        match self.find_or_make_subscription(now, &claim, name, terms) {
            Ok((queue, made)) => {
                let Some(subscription) = self.subscription_mut(queue) else { return };
                if subscription.is_known {
                    self.admit(now, queue, &claim);
                } else {
                    subscription.claims.push(claim);
                    if made {
                        let mark = self.said();
                        self.define(queue);
                        self.bind_kept(now, mark, queue);
                    }
                }
            }
            Err(refusal) => self.refuse_claim(now, &claim, refusal),
        }
    }

    /// Lets topics lead to a subscription.
    pub(crate) fn bind_topics(&mut self, now: u64, queue: QueueId) {
        if let Some((pattern, at)) = self.binding_of(queue) {
            self.propose(now, Change::Bind { pattern, queue: at }, Some(Then::Subscribed(queue)));
        }
    }

    fn find_or_make_subscription(
        &mut self,
        now: u64,
        claim: &Claim,
        name: &str,
        terms: Terms,
    ) -> Result<(QueueId, bool), Refusal> {
        let filter = match &terms.selector {
            Some(text) => Some(Filter::parse(text).map_err(|_| Refusal::InvalidFilter)?),
            None => None,
        };
        if let Some(queue) = self.queues.find(name) {
            let in_use = self.is_subscription_in_use(queue);
            let Some(subscription) = self.subscription_mut(queue) else { return Err(Refusal::Locked) };
            let agrees = subscription.agrees(&terms, filter.as_ref());
            if agrees && (terms.shared || !in_use) {
                return Ok((queue, false));
            }
            if agrees {
                self.steal(now, queue, claim);
                return Ok((queue, false));
            }
            if in_use {
                return Err(Refusal::Locked);
            }
            // JMS 2.0 §8.3.3: the one of other terms is ended, and a new one made.
            self.delete_queue(now, queue);
        }
        let subscription = Subscription { terms, filter, is_known: false, claims: Vec::new() };
        let overrides = DestinationRule::default();
        let queue =
            self.declare_node(now, name, QueueKind::Subscription, overrides, Some(Box::new(subscription)))?;
        Ok((queue, true))
    }

    /// All shards know of the subscription's binding, or it was refused.
    pub(crate) fn on_subscribed(&mut self, now: u64, queue: QueueId, result: Result<(), Refusal>) {
        self.note_bound(queue);
        // Its end may have come first.
        let Some(subscription) = self.subscription_mut(queue) else { return };
        let claims = std::mem::take(&mut subscription.claims);
        subscription.is_known = result.is_ok();
        let topic = subscription.terms.topic.clone();
        // Its end may have been put in order before the binding.
        let result = if self.is_topic_gone(&topic) { Err(Refusal::NotFound) } else { result };
        match result {
            Ok(()) => {
                for claim in claims {
                    self.admit(now, queue, &claim);
                }
                self.review_subscription(now, queue, false);
            }
            Err(refusal) => {
                self.delete_queue(now, queue);
                for claim in claims {
                    self.refuse_claim(now, &claim, refusal);
                }
            }
        }
    }

    /// Makes the claim's consumer and answers its attach.
    fn admit(&mut self, now: u64, queue: QueueId, claim: &Claim) {
        let request = ConsumeRequest::for_subscription(claim.priority);
        if claim.shard != self.index {
            let result = self.attach_target(now, claim.shard, claim.link, queue, &request);
            self.post(claim.shard, Lane::Control, Mail::Consuming { link: claim.link, result });
            return;
        }
        // The link may have ended meanwhile.
        let Some((slot, link)) = self.target_link(claim.link) else { return };
        let owner = Owner::Connection { index: slot.index, link }.pack();
        match request.spec(owner).and_then(|spec| self.attach_to_queue(now, queue, spec)) {
            Ok(consumer) => self.accept_consumer(now, slot, link, ConsumerAt::Here(consumer)),
            Err(refusal) => self.refuse_claim(now, claim, refusal),
        }
    }

    fn refuse_claim(&mut self, now: u64, claim: &Claim, refusal: Refusal) {
        if claim.shard != self.index {
            self.post(claim.shard, Lane::Control, Mail::Consuming { link: claim.link, result: Err(refusal) });
        } else if let Some((slot, link)) = self.target_link(claim.link) {
            self.refuse(now, slot, link, &refusal.into());
        }
    }

    /// AMQP 1.0 §2.6.1: the subscription's link is where it was attached last.
    fn steal(&mut self, now: u64, queue: QueueId, by: &Claim) {
        let Some(subscription) = self.subscription_mut(queue) else { return };
        let waiting = std::mem::take(&mut subscription.claims);
        for claim in waiting.iter().filter(|claim| claim.link != by.link) {
            self.refuse_claim(now, claim, Refusal::Stolen);
        }
        let consumers: Vec<ConsumerId> = self.engine.consumers(queue).collect();
        for consumer in consumers {
            let Some(owner) = self.engine.owner(consumer) else { continue };
            // The peer may have seen what it holds.
            self.end_consumer(owner, Ending::Stolen);
            let oldest = self.engine.oldest_held(consumer);
            self.engine.close_consumer(now, consumer, oldest);
            if let Some(node) = self.queues.get_mut(queue) {
                node.consumers -= 1;
            }
        }
    }

    fn is_subscription_in_use(&self, queue: QueueId) -> bool {
        self.queues.get(queue).is_some_and(|node| {
            node.consumers > 0 || node.subscription.as_ref().is_some_and(|it| !it.claims.is_empty())
        })
    }

    /// A consumer or claim is gone, its terminus closed or not: the subscription may be at its end.
    pub(crate) fn review_subscription(&mut self, now: u64, queue: QueueId, closed: bool) {
        if self.is_subscription_in_use(queue) {
            return;
        }
        let Some(subscription) = self.subscription_mut(queue) else { return };
        if closed || !subscription.terms.durable {
            self.delete_queue(now, queue);
        }
    }

    /// The queue of a subscription is deleted: so is its binding. Claims that wait are refused.
    pub(crate) fn on_subscription_deleted(&mut self, now: u64, queue: QueueId, subscription: Subscription) {
        let queue = QueueAt { shard: self.index, queue };
        self.propose(now, Change::Unbind { pattern: subscription.terms.topic, queue }, None);
        for claim in &subscription.claims {
            self.refuse_claim(now, claim, Refusal::NotFound);
        }
    }

    /// A temporary topic is gone, and its subscriptions with it.
    pub(crate) fn end_subscriptions_to(&mut self, now: u64, topic: &str) {
        let mut ended = Vec::new();
        self.topology.matches(topic, |at| ended.push(at));
        self.turn.count_work(self.topology.take_work());
        for QueueAt { shard, queue } in ended {
            let is_here = shard == self.index;
            if is_here && self.subscription_mut(queue).is_some_and(|it| *it.terms.topic == *topic) {
                self.delete_queue(now, queue);
            }
        }
    }

    /// A link to a subscription was closed before its attach was answered, or a peer unsubscribes: claims of this link are forgotten, its
    /// consumer ends, and the subscription too if nobody uses it.
    pub(crate) fn end_subscription(&mut self, now: u64, name: &str, link: LinkRef) {
        let Some(queue) = self.queues.find(name) else { return };
        let Some(subscription) = self.subscription_mut(queue) else { return };
        subscription.claims.retain(|claim| claim.link != link);
        let consumers: Vec<ConsumerId> = self.engine.consumers(queue).collect();
        for consumer in consumers {
            if self.target_link_of(consumer) == Some(link) {
                self.on_close_consumer(now, consumer, false, true);
            }
        }
        self.review_subscription(now, queue, true);
    }

    /// What a peer is told that looks a durable subscription up to end it.
    pub(crate) fn look_up_subscription(&self, name: &str) -> Result<Terms, Refusal> {
        let queue = self.queues.find(name).ok_or(Refusal::NotFound)?;
        let node = self.queues.get(queue);
        let subscription = node.and_then(|node| node.subscription.as_ref()).ok_or(Refusal::NotFound)?;
        if self.is_subscription_in_use(queue) {
            return Err(Refusal::Locked);
        }
        Ok(subscription.terms.clone())
    }

    fn binding_of(&self, queue: QueueId) -> Option<(Arc<str>, QueueAt)> {
        let subscription = self.queues.get(queue)?.subscription.as_ref()?;
        Some((subscription.terms.topic.clone(), QueueAt { shard: self.index, queue }))
    }

    fn subscription_mut(&mut self, queue: QueueId) -> Option<&mut Subscription> {
        self.queues.get_mut(queue)?.subscription.as_deref_mut()
    }
}
