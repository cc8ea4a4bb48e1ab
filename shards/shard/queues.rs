//! What does a shard keep of each queue that lives on it, and how do queues come and go?
//!
//! The engine knows what a queue holds and who consumes it; a [`QueueNode`] is everything else: its name, what kind it is, which
//! properties it has, how long it has been unused. It is found by name and, without hashing, by the engine's id.
//!
//! Invariants:
//! - a name leads to the id of a queue that is not deleted, and that id to the node of this name;
//! - `consumers` counts what is attached to the queue in the engine;
//! - a queue with `idle-expiry` to which no link is attached is on the list of those that are looked at when their time may have come.
//!
//! Left out: which properties a name has (`destinations`), and what happens to messages (`publish`, `engine`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::Arc;

use corelane_engine::{AttachRefusal, ConsumerId, ConsumerSpec, QueueId};
use corelane_mailbox::Lane;
use hashbrown::HashMap;

use crate::Shard;
use crate::address::has_wildcards;
use crate::amqp091::{Declared, REPLY_QUEUES};
use crate::attach_topic::SUBSCRIPTIONS;
use crate::connection::QueueAt;
use crate::contradictions::contradictions_of;
use crate::deliver::Owner;
use crate::destinations::{Destination, DestinationRule, Destinations};
use crate::durability::{Closing, Kept};
use crate::event::ConnectionSlot;
use crate::limits::{QUEUES_MAX, TURN_QUEUES_EXPIRED_MAX, TURN_QUEUES_REVIEWED_MAX};
use crate::mail::{ConnectionId, ConsumeRequest, Ending, Mail, Refusal};
use crate::management;
use crate::producers::Producers;
use crate::subscription::Subscription;
use crate::target::HomeTarget;
use crate::vhost;

/// What the names of dynamic nodes begin with. Queues of such a name are made by no one else: who addresses a node that is gone
/// is told so.
pub(crate) const DYNAMIC_NAMES: &str = "corelane.dynamic.";

/// What a shard knows of a queue beside what the engine does.
#[derive(Debug)]
pub(crate) struct QueueNode {
    pub(crate) name: Box<str>,
    pub(crate) kind: QueueKind,
    /// What was said of this queue alone while the broker runs; stands above every rule. Of most queues nothing was.
    overrides: Option<Box<DestinationRule>>,
    /// How it was declared on a channel, if it was.
    pub(crate) declared: Option<Box<Declared>>,
    /// It was bound to an exchange, or is about to be.
    pub(crate) is_bound: bool,
    /// What rules and overrides come to, but for what it keeps while it is used.
    pub(crate) destination: Destination,
    /// It keeps something: see `kept`.
    pub(crate) waiting_rules: bool,
    /// Attached consumers, browsers included. Not those of channels that take single messages, or were cancelled.
    pub(crate) consumers: u32,
    /// One of them is to be the only one.
    pub(crate) is_taken: bool,
    /// The connection that it lives as long as. Nobody else may have its messages.
    pub(crate) owner: Option<ConnectionId>,
    /// The shard of that connection, as it was last heard.
    pub(crate) owner_at: usize,
    pub(crate) producers: Producers,
    /// Dead letters that could not be stored where they go, or went round in a circle.
    pub(crate) dead_letters_lost: u64,
    /// It has had a consumer: `auto-delete` holds from then on.
    pub(crate) had_consumer: bool,
    /// When it last lost its last link, or was attached to, or made.
    pub(crate) unused_since: u64,
    /// What it has subscribed to, if it is a subscription.
    pub(crate) subscription: Option<Box<Subscription>>,
    /// What the journal knows it by, if it does.
    pub(crate) kept: Option<Box<Kept>>,
    /// When its idle time is looked at, if it is.
    idle_watched: Option<NonZeroU64>,
}

/// Why a queue is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Its name was used, or it was declared.
    Queue,
    /// A link asked for a node of its own; it goes with that link.
    Dynamic,
    /// It gets what is published to topics.
    Subscription,
}

/// Whether it is a name of our making, of a node that was made for a link, of a subscription, or of a channel's replies.
pub(crate) fn is_ours(name: &str) -> bool {
    let name = vhost::plain(name);
    [DYNAMIC_NAMES, SUBSCRIPTIONS, REPLY_QUEUES].iter().any(|prefix| name.starts_with(prefix))
}

impl QueueNode {
    /// The name that rules are looked up by: a subscription has those of its topic.
    pub(crate) fn ruled_by(&self) -> &str {
        self.subscription.as_ref().map_or(&self.name, |subscription| &subscription.terms.topic)
    }

    pub(crate) fn overrides(&self) -> Option<&DestinationRule> {
        self.overrides.as_deref()
    }

    pub(crate) fn set_overrides(&mut self, overrides: DestinationRule) {
        self.overrides = (overrides != DestinationRule::default()).then(|| Box::new(overrides));
    }

    /// No link is attached to it.
    fn is_unused(&self) -> bool {
        self.consumers == 0 && self.producers.is_empty()
    }
}

/// The queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_name: HashMap<Box<str>, QueueId>,
    /// By the index of the id; the id itself tells one use of the index from the next.
    nodes: Vec<Option<(QueueId, Box<QueueNode>)>>,
    /// When the idle time of which queue may be over. What a node does not say itself is out of date.
    idle: BinaryHeap<Reverse<(u64, QueueId)>>,
    /// Deleted queues with dead letters, until their index is used again: the engine gives up what is in them bit by bit.
    graves: HashMap<u32, (QueueId, Box<str>, Arc<str>)>,
    /// Deleted queues with dead letters that are kept, until these are gone.
    closing: HashMap<QueueId, Closing>,
    /// Properties were changed: the queues from this index on have yet to take them over.
    review_from: Option<usize>,
    /// The rules before those.
    ruled_before: Option<Arc<Destinations>>,
}

impl Queues {
    pub(crate) fn find(&self, name: &str) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, queue: QueueId) -> Option<&QueueNode> {
        let (id, node) = self.nodes.get(queue.index as usize)?.as_ref()?;
        (*id == queue).then_some(node)
    }

    pub(crate) fn get_mut(&mut self, queue: QueueId) -> Option<&mut QueueNode> {
        let (id, node) = self.nodes.get_mut(queue.index as usize)?.as_mut()?;
        (*id == queue).then_some(node)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The queue whose id has this index.
    pub(crate) fn at(&self, index: u32) -> Option<(QueueId, &QueueNode)> {
        self.nodes.get(index as usize)?.as_ref().map(|(id, node)| (*id, &**node))
    }

    /// Above the indices of all queues.
    pub(crate) fn index_end(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// When somebody has to look for queues that were unused for too long.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.idle.peek().map(|Reverse((deadline, _))| *deadline)
    }

    fn insert(&mut self, queue: QueueId, node: QueueNode) {
        let index = queue.index as usize;
        if self.nodes.len() <= index {
            self.nodes.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.nodes[index].is_none(),
            "a deleted queue's node is gone before its index is used again"
        );
        self.graves.remove(&queue.index);
        self.by_name.insert(node.name.clone(), queue);
        self.nodes[index] = Some((queue, Box::new(node)));
    }

    fn remove(&mut self, queue: QueueId) -> Option<QueueNode> {
        let slot = self.nodes.get_mut(queue.index as usize)?;
        let (_, node) = slot.take_if(|(id, _)| *id == queue)?;
        self.by_name.remove(&node.name);
        if let Some(to) = &node.destination.dead_letter {
            self.graves.insert(queue.index, (queue, node.name.clone(), Arc::clone(to)));
        }
        Some(*node)
    }

    /// The name of a queue, and where its dead letters go; also of one that was deleted a moment ago.
    pub(crate) fn last_will(&self, queue: QueueId) -> Option<(&str, &Arc<str>)> {
        if let Some(node) = self.get(queue) {
            return Some((&node.name, node.destination.dead_letter.as_ref()?));
        }
        if let Some(closing) = self.closing.get(&queue) {
            return Some((&closing.name, &closing.to));
        }
        let (id, name, to) = self.graves.get(&queue.index)?;
        (*id == queue).then_some((name, to))
    }

    /// A queue is deleted, and has dead letters.
    pub(crate) fn close(&mut self, queue: QueueId, closing: Closing) {
        self.closing.insert(queue, closing);
    }

    pub(crate) fn closing(&self, queue: QueueId) -> Option<&Closing> {
        self.closing.get(&queue)
    }

    pub(crate) fn closing_mut(&mut self, queue: QueueId) -> Option<&mut Closing> {
        self.closing.get_mut(&queue)
    }

    pub(crate) fn closing_ones(&self) -> impl Iterator<Item = QueueId> {
        self.closing.keys().copied()
    }

    pub(crate) fn end_closing(&mut self, queue: QueueId) -> Option<Closing> {
        self.closing.remove(&queue)
    }

    /// What the journal knows a queue by, also one that is deleted and has dead letters.
    pub(crate) fn kept(&self, queue: QueueId) -> Option<Kept> {
        let node = self.get(queue).and_then(|node| node.kept.as_deref());
        node.or_else(|| Some(&self.closing(queue)?.kept)).copied()
    }

    pub(crate) fn kept_mut(&mut self, queue: QueueId) -> Option<&mut Kept> {
        if self.closing.contains_key(&queue) {
            return self.closing_mut(queue).map(|closing| &mut closing.kept);
        }
        self.get_mut(queue)?.kept.as_deref_mut()
    }

    pub(crate) fn uid(&self, queue: QueueId) -> Option<u64> {
        Some(self.kept(queue)?.uid)
    }

    /// Watches the idle time of a queue to which nothing is attached.
    fn watch(&mut self, queue: QueueId) {
        let Some(node) = self.get_mut(queue) else { return };
        let Some(after) = node.destination.idle_expiry_us.filter(|_| node.is_unused()) else { return };
        let deadline = node.unused_since.saturating_add(after);
        if node.idle_watched.is_none_or(|watched| deadline < watched.get()) {
            node.idle_watched = NonZeroU64::new(deadline);
            self.idle.push(Reverse((deadline, queue)));
        }
    }

    /// The next queue whose idle time may be over.
    fn take_due(&mut self, now: u64) -> Option<(u64, QueueId)> {
        let due = self.idle.peek().is_some_and(|Reverse((deadline, _))| *deadline <= now);
        due.then(|| self.idle.pop()).flatten().map(|Reverse(due)| due)
    }

    /// Whether a queue that is due has been unused for too long.
    fn is_expired(&mut self, now: u64, (deadline, queue): (u64, QueueId)) -> bool {
        let Some(node) = self.get_mut(queue).filter(|node| node.idle_watched == NonZeroU64::new(deadline))
        else {
            return false;
        };
        node.idle_watched = None;
        match node.destination.idle_expiry_us {
            Some(after) if node.is_unused() && node.unused_since.saturating_add(after) <= now => true,
            Some(_) | None => {
                self.watch(queue);
                false
            }
        }
    }
}

impl Shard {
    /// A queue of this shard by its name; made if it does not exist, unless that is turned off. It counts as used.
    pub(crate) fn find_or_create(&mut self, now: u64, name: &str) -> Result<QueueId, Refusal> {
        if let Some(queue) = self.queues.find(name) {
            if let Some(node) = self.queues.get_mut(queue) {
                node.unused_since = now;
            }
            return Ok(queue);
        }
        self.may_create(name)?;
        self.declare_queue(now, name, QueueKind::Queue, DestinationRule::default())
    }

    /// The same for somebody who may not make any.
    pub(crate) fn find_or_make(&mut self, now: u64, name: &str, makes: bool) -> Result<QueueId, Refusal> {
        if makes || self.queues.find(name).is_some() {
            return self.find_or_create(now, name);
        }
        Err(Refusal::NotFound)
    }

    /// Whether a queue of this shard that does not exist is made when it is needed.
    pub(crate) fn may_create(&self, name: &str) -> Result<(), Refusal> {
        let destination = self.destinations.lookup(name, None);
        let is_nobodys = is_ours(name) || vhost::plain(name) == management::ADDRESS || has_wildcards(name);
        if !destination.auto_create || is_nobodys {
            return Err(Refusal::NotFound);
        }
        if self.queues.len() >= QUEUES_MAX { Err(Refusal::ResourceLimit) } else { Ok(()) }
    }

    /// Makes a queue whose home is this shard, and that does not exist yet.
    pub(crate) fn declare_queue(
        &mut self,
        now: u64,
        name: &str,
        kind: QueueKind,
        overrides: DestinationRule,
    ) -> Result<QueueId, Refusal> {
        self.declare_node(now, name, kind, overrides, None)
    }

    /// The same, for a subscription too.
    pub(crate) fn declare_node(
        &mut self,
        now: u64,
        name: &str,
        kind: QueueKind,
        overrides: DestinationRule,
        subscription: Option<Box<Subscription>>,
    ) -> Result<QueueId, Refusal> {
        debug_assert!(self.queues.find(name).is_none());
        if self.queues.len() >= QUEUES_MAX {
            return Err(Refusal::ResourceLimit);
        }
        let topic = subscription.as_ref().map(|subscription| subscription.terms.topic.clone());
        let destination = self.evaluate(topic.as_deref().unwrap_or(name), kind, Some(&overrides));
        let queue = self.engine.declare_queue(destination.properties);
        let mut node = QueueNode {
            name: name.into(),
            kind,
            overrides: None,
            declared: None,
            is_bound: false,
            destination,
            waiting_rules: false,
            consumers: 0,
            is_taken: false,
            owner: None,
            owner_at: 0,
            producers: Producers::default(),
            dead_letters_lost: 0,
            had_consumer: false,
            unused_since: now,
            subscription,
            kept: None,
            idle_watched: None,
        };
        node.set_overrides(overrides);
        self.queues.insert(queue, node);
        self.queues.watch(queue);
        Ok(queue)
    }

    /// What holds for a queue by the rules as they are now; a subscription has those of its topic.
    pub(crate) fn evaluate(
        &self,
        name: &str,
        kind: QueueKind,
        overrides: Option<&DestinationRule>,
    ) -> Destination {
        let destination = match kind {
            QueueKind::Queue | QueueKind::Dynamic => self.destinations.lookup(name, overrides),
            QueueKind::Subscription => self.destinations.lookup_topic(name, overrides),
        };
        match kind {
            QueueKind::Queue => destination,
            // It has its link's life.
            QueueKind::Dynamic => Destination { auto_delete: false, idle_expiry_us: None, ..destination },
            // It ends as its terms say.
            QueueKind::Subscription => Destination { auto_delete: false, ..destination },
        }
    }

    /// The rules have changed.
    pub(crate) fn on_destinations(&mut self, destinations: Arc<Destinations>) {
        let before = std::mem::replace(&mut self.destinations, destinations);
        self.queues.ruled_before = Some(before);
        self.destinations_version += 1;
        self.queues.review_from = Some(0);
    }

    /// Lets some of the queues take over rules that have changed. True if there are more.
    pub(crate) fn review_queues(&mut self, now: u64) -> bool {
        let Some(from) = self.queues.review_from.take() else { return false };
        let to = self.queues.nodes.len().min(from + TURN_QUEUES_REVIEWED_MAX);
        for index in from..to {
            let Some((queue, _)) = &self.queues.nodes[index] else { continue };
            let queue = *queue;
            self.apply_properties(now, queue);
            self.warn_if_hidden(now, queue);
            self.warn_of_contradictions(now, queue);
        }
        self.queues.review_from = (to < self.queues.nodes.len()).then_some(to);
        if self.queues.review_from.is_none() {
            self.queues.ruled_before = None;
        }
        self.queues.review_from.is_some()
    }

    /// What was a queue's plain name is a topic's by rules that are new: its messages are not where clients look for them.
    fn warn_if_hidden(&mut self, now: u64, queue: QueueId) {
        let Some(before) = &self.queues.ruled_before else { return };
        let messages = self.engine.depth(queue).map_or(0, |depth| depth.messages);
        if let Some(QueueNode { name, kind: QueueKind::Queue, .. }) = self.queues.get(queue)
            && messages > 0
            && self.destinations.is_topic(name)
            && !before.is_topic(name)
        {
            let text = format!(
                "{name:?} is a topic by the rules that were read, and a queue of this name holds messages: {messages}. It is \
                 reached as \"queue://{name}\"; what is sent to the plain name goes to the topic's subscriptions"
            );
            self.hidden_warnings.warn(now, &mut self.effects, |_| text);
        }
    }

    /// Rules agree with each other, and what a queue was given with the rules as they were then: not always with others.
    fn warn_of_contradictions(&mut self, now: u64, queue: QueueId) {
        let Some(node) = self.queues.get(queue) else { return };
        let Some(overrides) = node.overrides() else { return };
        let reasons: Vec<String> =
            contradictions_of(&self.destinations, node.ruled_by(), overrides).collect();
        if reasons.is_empty() {
            return;
        }
        let (name, reasons) = (&node.name, reasons.join("; "));
        self.contradiction_warnings.warn(now, &mut self.effects, |more| {
            format!(
                "queue {name} contradicts itself: what the rules say that were read again does not go with what it was given while \
                 the broker runs: {reasons}; change the rules or the queue ({more} other queues since this was last said)"
            )
        });
    }

    /// Lets a queue take over what rules and its overrides say now, as far as it can while it is used.
    pub(crate) fn apply_properties(&mut self, now: u64, queue: QueueId) {
        let Some(node) = self.queues.get(queue) else { return };
        let mut destination = self.evaluate(node.ruled_by(), node.kind, node.overrides());
        let before = node.destination.properties;
        self.keep(now, queue, &mut destination);
        if destination.properties != before {
            self.engine.set_properties(now, queue, destination.properties);
        }
        if let Some(node) = self.queues.get_mut(queue) {
            node.destination = destination;
            self.queues.watch(queue);
        }
    }

    /// A queue with a name of our making, whose home is this shard.
    pub(crate) fn make_dynamic(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
    ) -> Result<(Box<str>, QueueAt), Refusal> {
        let name = self.new_name(slot, DYNAMIC_NAMES);
        let queue = self.declare_queue(now, &name, QueueKind::Dynamic, DestinationRule::default())?;
        Ok((name, QueueAt { shard: self.index, queue }))
    }

    /// A name in a connection's virtual host that no queue has had, whose home is this shard.
    pub(crate) fn new_name(&mut self, slot: ConnectionSlot, prefix: &str) -> Box<str> {
        loop {
            self.dynamic_names += 1;
            let name = format!("{prefix}{:x}-{}-{:x}", self.boot, self.index, self.dynamic_names);
            let name = self.within(slot, &name);
            if self.home_of(&name) == self.index {
                break name;
            }
        }
    }

    /// Attaches a consumer to a queue of this shard.
    pub(crate) fn attach_to_queue(
        &mut self,
        now: u64,
        queue: QueueId,
        spec: ConsumerSpec,
    ) -> Result<ConsumerId, Refusal> {
        let attached = self.engine.attach_consumer(now, queue, spec);
        let consumer = attached.map_err(|refusal| match refusal {
            AttachRefusal::QueueGone => Refusal::NotFound,
            AttachRefusal::ConsumersFull => Refusal::ResourceLimit,
            AttachRefusal::ClassesFull | AttachRefusal::FiltersFull => Refusal::Filters,
            AttachRefusal::PrioritiesFull => Refusal::Priorities,
        })?;
        if let Some(node) = self.queues.get_mut(queue) {
            node.consumers += 1;
            node.had_consumer = true;
        }
        Ok(consumer)
    }

    /// Attaches a consumer of this connection to a queue of this shard by its name. One of a channel finds what is there, others make it.
    pub(crate) fn attach_to_named(
        &mut self,
        now: u64,
        connection: ConnectionId,
        request: &ConsumeRequest,
        spec: ConsumerSpec,
    ) -> Result<(QueueId, ConsumerId), Refusal> {
        let found = self.queue_for(connection, &request.queue);
        let queue = match (found, request.channel) {
            (Ok(queue), _) => queue,
            (Err(Refusal::NotFound), None) => self.find_or_make(now, &request.queue, request.makes)?,
            (Err(refusal), _) => return Err(refusal),
        };
        let node = self.queues.get(queue).ok_or(Refusal::NotFound)?;
        let (gets, exclusive) = request.channel.map_or((false, false), |it| (it.gets, it.exclusive));
        if !gets && (node.is_taken || exclusive && node.consumers > 0) {
            return Err(Refusal::InUse);
        }
        let had_consumer = node.had_consumer;
        let consumer = self.attach_to_queue(now, queue, spec)?;
        if let Some(node) = self.queues.get_mut(queue) {
            node.is_taken |= exclusive;
            node.unused_since = now;
            if gets {
                node.consumers -= 1;
                node.had_consumer = had_consumer;
            }
        }
        self.getters += u32::from(gets);
        Ok((queue, consumer))
    }

    /// A queue is used, though nothing is attached to it.
    pub(crate) fn note_used(&mut self, now: u64, queue: QueueId) {
        if let Some(node) = self.queues.get_mut(queue) {
            node.unused_since = now;
        }
    }

    /// A consumer of the queue was closed, `closed`: with its terminus. A queue that goes with its last one is deleted.
    pub(crate) fn note_consumer_closed(&mut self, now: u64, queue: QueueId, closed: bool) {
        let Some(node) = self.queues.get_mut(queue) else { return };
        node.consumers -= 1;
        node.is_taken = false;
        if node.consumers == 0 && node.waiting_rules {
            self.apply_properties(now, queue);
        }
        let Some(node) = self.queues.get(queue) else { return };
        if node.consumers == 0 && node.had_consumer && node.destination.auto_delete {
            self.counters.queues_auto_deleted += 1;
            self.delete_queue(now, queue);
        } else {
            self.note_unused(now, queue);
            self.review_subscription(now, queue, closed);
        }
    }

    /// A link of the queue has ended. If it was the last, its idle time begins.
    pub(crate) fn note_unused(&mut self, now: u64, queue: QueueId) {
        if let Some(node) = self.queues.get_mut(queue).filter(|node| node.is_unused()) {
            node.unused_since = now;
            self.queues.watch(queue);
        }
    }

    /// Deletes queues that were unused for as long as their `idle-expiry`, so many a turn. True if there are more to look at.
    pub(crate) fn expire_idle_queues(&mut self, now: u64) -> bool {
        for _ in 0..TURN_QUEUES_EXPIRED_MAX {
            let Some(due) = self.queues.take_due(now) else { return false };
            if self.queues.is_expired(now, due) {
                self.counters.queues_idle_expired += 1;
                self.delete_queue(now, due.1);
            }
        }
        self.queues.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Deletes a queue of this shard; the links of its consumers and producers end with `amqp:resource-deleted`.
    pub(crate) fn delete_queue(&mut self, now: u64, queue: QueueId) {
        let mut subscription = None;
        self.say_what_left();
        let node = self.queues.remove(queue);
        let owners = self.engine.delete_queue(now, queue);
        if let Some(node) = node {
            self.undefine(queue, &node);
            self.dismiss_producers(queue, node.producers);
            subscription = node.subscription;
            if node.is_bound {
                self.unbind_queue(now, queue);
            }
        }
        self.statistics.forget(queue);
        for owner in owners {
            self.end_consumer(owner, Ending::Deleted);
        }
        if let Some(subscription) = subscription {
            self.on_subscription_deleted(now, queue, *subscription);
        }
    }

    /// Tells the link of a consumer that it has none any more.
    pub(crate) fn end_consumer(&mut self, owner: u64, ending: Ending) {
        match Owner::unpack(owner) {
            Owner::Connection { index, link } => {
                if let Some((slot, _)) = self.connections.at(index) {
                    self.end_consumer_link(slot, link, ending);
                }
            }
            Owner::Target { index } => {
                if let Some(HomeTarget { shard, link, gets, .. }) = self.targets.remove(index) {
                    self.getters -= u32::from(gets);
                    self.post(shard, Lane::Control, Mail::ConsumerGone { link, ending });
                }
            }
        }
    }
}
