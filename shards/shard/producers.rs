//! Who sends to a queue, and who of them has to wait because it is full?
//!
//! The home of a queue knows every link that is attached to it, wherever its connection lives, and tells them when the queue is deleted.
//! Under `overflow = block` a message that finds the queue full is stored and answered, but its link's credit is taken back until there
//! is room; a link that attaches to a full queue begins without credit. What is on its way is taken, so the queue overshoots by at
//! most one window of each of its links. The window of such a queue is half of its `messages-max`, and never more than that of others.
//!
//! Invariants:
//! - here (home): a link that waits is on `waiting` once, and is let go on when there is room, or forgotten when it ends;
//! - there (the link's shard): a link has credit only while `waits_for` is empty;
//! - when a connection moves, its new shard tells the homes; what was sent to the old one meanwhile is said again.
//!
//! Left out: when a queue is full (`engine`), what a refused message is told (`publish`).

use std::collections::VecDeque;

use corelane_engine::{Overflow, QueueId};
use corelane_mailbox::Lane;
use corelane_protocol::amqp10::{ErrorSpec, LinkId};
use hashbrown::HashMap;

use crate::Shard;
use crate::connection::{Link, QueueAt, Route};
use crate::destinations::Destination;
use crate::event::ConnectionSlot;
use crate::limits::{PRODUCER_CREDIT, TURN_PRODUCERS_RELEASED_MAX};
use crate::mail::{LinkRef, Mail};

/// A link that sends, and the shard of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerAt {
    pub(crate) shard: usize,
    pub(crate) link: LinkRef,
}

/// The links that send to a queue.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    /// With the shards of their connections. Links without an address are not attached to any queue.
    attached: HashMap<LinkRef, usize>,
    /// Those that wait for room, likewise.
    waiting: HashMap<LinkRef, usize>,
    /// In which order they came to wait; some may be gone.
    line: VecDeque<LinkRef>,
    /// On the list of queues that let links go on.
    is_letting_go: bool,
}

impl Producers {
    pub(crate) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    /// How many wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// False: it waits already.
    fn wait(&mut self, producer: ProducerAt) -> bool {
        let is_new = self.waiting.insert(producer.link, producer.shard).is_none();
        if is_new {
            self.line.push_back(producer.link);
        }
        is_new
    }

    fn next_waiting(&mut self) -> Option<ProducerAt> {
        while let Some(link) = self.line.pop_front() {
            if let Some(shard) = self.waiting.remove(&link) {
                return Some(ProducerAt { shard, link });
            }
        }
        None
    }

    fn forget(&mut self, link: LinkRef) {
        self.attached.remove(&link);
        if self.waiting.remove(&link).is_some() && self.line.len() > 2 * self.waiting.len() {
            self.line.retain(|link| self.waiting.contains_key(link));
        }
    }
}

/// Messages that a link may have on their way to a queue.
pub(crate) fn window(destination: &Destination) -> u32 {
    let properties = &destination.properties;
    match (properties.overflow, properties.messages_max) {
        (Overflow::Block, Some(max)) => u32::try_from(max / 2).unwrap_or(u32::MAX).clamp(1, PRODUCER_CREDIT),
        (Overflow::Block, None) | (Overflow::Reject | Overflow::DropOldest, _) => PRODUCER_CREDIT,
    }
}

/// The home's side.
impl Shard {
    /// A link attaches to a queue of this shard. Returns its window; if the queue is full, the link has been told to wait.
    pub(crate) fn attach_producer_to(&mut self, queue: QueueId, producer: ProducerAt) -> u32 {
        let Some(node) = self.queues.get_mut(queue) else { return PRODUCER_CREDIT };
        node.producers.attached.insert(producer.link, producer.shard);
        let window = window(&node.destination);
        if self.engine.is_full(queue) {
            self.make_wait(queue, producer);
        }
        window
    }

    /// The link's message has found the queue full.
    pub(crate) fn make_wait(&mut self, queue: QueueId, producer: ProducerAt) {
        let Some(node) = self.queues.get_mut(queue) else { return };
        if !node.producers.wait(producer) {
            return;
        }
        self.counters.producers_blocked += 1;
        let ProducerAt { shard, link } = producer;
        let name = node.name.clone();
        if shard == self.index {
            self.on_wait(QueueAt { shard, queue }, name, link);
        } else {
            self.post(shard, Lane::Control, Mail::Wait { link, queue, name });
        }
    }

    /// Lets links go on whose queues have room again, some in a turn. True if there are more.
    pub(crate) fn release_producers(&mut self) -> bool {
        while let Some(queue) = self.engine.poll_room() {
            if let Some(node) = self.queues.get_mut(queue)
                && !std::mem::replace(&mut node.producers.is_letting_go, true)
            {
                self.roomy.push_back(queue);
            }
        }
        for _ in 0..TURN_PRODUCERS_RELEASED_MAX {
            let Some(&queue) = self.roomy.front() else { return false };
            let is_full = self.engine.is_full(queue);
            let Some(node) = self.queues.get_mut(queue) else {
                self.roomy.pop_front();
                continue;
            };
            // When it has room once more, it is named again.
            let next = if is_full { None } else { node.producers.next_waiting() };
            match next {
                Some(producer) => self.let_go_on(queue, producer),
                None => {
                    node.producers.is_letting_go = false;
                    self.roomy.pop_front();
                }
            }
        }
        !self.roomy.is_empty()
    }

    fn let_go_on(&mut self, queue: QueueId, producer: ProducerAt) {
        let window = self.queues.get(queue).map_or(PRODUCER_CREDIT, |node| window(&node.destination));
        let ProducerAt { shard, link } = producer;
        if shard == self.index {
            self.on_go_on(QueueAt { shard, queue }, link, window);
        } else {
            self.post(shard, Lane::Control, Mail::GoOn { link, queue, window });
        }
    }

    /// The link has ended.
    pub(crate) fn on_producer_gone(&mut self, now: u64, queue: QueueId, link: LinkRef) {
        if let Some(node) = self.queues.get_mut(queue) {
            node.producers.forget(link);
            self.note_unused(now, queue);
        }
    }

    /// The link's connection lives on another shard now, and may have missed what was said to the one before.
    pub(crate) fn on_producer_moved(&mut self, queue: QueueId, attached: bool, producer: ProducerAt) {
        let ProducerAt { shard, link } = producer;
        let Some(node) = self.queues.get_mut(queue) else {
            if attached {
                self.tell_deleted(producer);
            } else {
                self.let_go_on(queue, producer);
            }
            return;
        };
        if attached {
            node.producers.attached.insert(link, shard);
        }
        match node.producers.waiting.get_mut(&link) {
            Some(known) => *known = shard,
            None => self.let_go_on(queue, producer),
        }
    }

    /// The queue is deleted: its links end, those without an address go on.
    pub(crate) fn dismiss_producers(&mut self, queue: QueueId, mut producers: Producers) {
        let attached = std::mem::take(&mut producers.attached);
        // In an order that a seed gives again.
        let mut links: Vec<(LinkRef, usize)> = attached.iter().map(|(link, shard)| (*link, *shard)).collect();
        links.sort_unstable();
        while let Some(producer) = producers.next_waiting() {
            if !attached.contains_key(&producer.link) {
                self.let_go_on(queue, producer);
            }
        }
        for (link, shard) in links {
            self.tell_deleted(ProducerAt { shard, link });
        }
    }

    fn tell_deleted(&mut self, producer: ProducerAt) {
        let ProducerAt { shard, link } = producer;
        if shard == self.index {
            self.on_target_deleted(link);
        } else {
            self.post(shard, Lane::Control, Mail::TargetDeleted { link });
        }
    }
}

/// The link's side.
impl Shard {
    /// No more credit for the link until the queue has room.
    pub(crate) fn on_wait(&mut self, queue: QueueAt, name: Box<str>, link: LinkRef) {
        let Some((slot, link)) = self.producer_link(link) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(producer) = connection.producer_mut(link) else { return };
        if producer.waits_for.iter().any(|(at, _)| *at == queue) {
            return;
        }
        producer.waits_for.push((queue, name));
        if producer.waits_for.len() == 1 && producer.route != Route::Resolving {
            connection.protocol.stop_producer(link);
            self.touch(slot);
        }
    }

    pub(crate) fn on_go_on(&mut self, queue: QueueAt, link: LinkRef, window: u32) {
        let is_alarmed = self.alarms.any().is_some();
        let Some((slot, link)) = self.producer_link(link) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(producer) = connection.producer_mut(link) else { return };
        let waited = !producer.waits_for.is_empty();
        producer.waits_for.retain(|(at, _)| *at != queue);
        if producer.route == Route::Queue(queue) {
            producer.window = window;
        }
        if waited && producer.waits_for.is_empty() && producer.route != Route::Resolving {
            producer.overshoot = 0;
            connection.grant_producer(link);
            if !is_alarmed {
                connection.tell_unblocked();
            }
            self.touch(slot);
        }
    }

    /// The queue that a link sends to was deleted.
    pub(crate) fn on_target_deleted(&mut self, link: LinkRef) {
        let Some((slot, link)) = self.producer_link(link) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(producer) = connection.producer_mut(link) else { return };
        producer.target_deleted = true;
        self.end_deleted_producer(slot, link);
    }

    /// Ends a link whose queue was deleted, once its producer has been told about all that it has sent.
    pub(crate) fn end_deleted_producer(&mut self, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(producer) = connection.producer_mut(link) else { return };
        if !producer.target_deleted || producer.detached || producer.unanswered > 0 {
            return;
        }
        producer.detached = true;
        producer.dynamic = None;
        let error = ErrorSpec { condition: "amqp:resource-deleted", description: "the queue was deleted" };
        connection.protocol.detach(link, true, Some(error));
        self.release_detached(slot, link);
        self.touch(slot);
    }

    /// A link that sends has ended: the homes of its queues forget it.
    pub(crate) fn forget_producer(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let id = connection.id;
        let Some(producer) = connection.producer_mut(link) else { return };
        let link = LinkRef { connection: id, link, attachment: producer.attachment };
        let waits_for = std::mem::take(&mut producer.waits_for);
        let attached_to = match producer.route {
            Route::Queue(at) => Some(at),
            Route::Resolving | Route::Topic | Route::Anonymous | Route::Exchange | Route::Management => None,
        };
        let others = waits_for.into_iter().map(|(at, _)| at).filter(|at| Some(*at) != attached_to);
        for QueueAt { shard, queue } in attached_to.into_iter().chain(others) {
            if shard == self.index {
                self.on_producer_gone(now, queue, link);
            } else {
                self.post(shard, Lane::Control, Mail::ProducerGone { queue, link });
            }
        }
    }

    /// A connection has come from another shard: the homes of its producers' queues are told.
    pub(crate) fn announce_producers(&mut self, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let id = connection.id;
        let mut moved = Vec::new();
        for (index, link) in connection.links.iter().enumerate() {
            let Some(Link::Producer(producer)) = link else { continue };
            let link =
                LinkRef { connection: id, link: LinkId(index as u32), attachment: producer.attachment };
            if let Route::Queue(at) = producer.route {
                moved.push((at, true, link));
            }
            let waits_for = producer.waits_for.iter().map(|(at, _)| *at);
            let elsewhere = waits_for.filter(|at| producer.route != Route::Queue(*at));
            moved.extend(elsewhere.map(|at| (at, false, link)));
        }
        for (QueueAt { shard, queue }, attached, link) in moved {
            if shard == self.index {
                self.on_producer_moved(queue, attached, ProducerAt { shard, link });
            } else {
                self.post(shard, Lane::Control, Mail::ProducerMoved { queue, attached, link });
            }
        }
    }

    /// The link that other shards know by this name, if it is still the same attachment.
    fn producer_link(&mut self, link: LinkRef) -> Option<(ConnectionSlot, LinkId)> {
        let Some(slot) = self.slot_of(link.connection) else {
            self.counters.mail_dropped += 1;
            return None;
        };
        let producer = self.connections.get_mut(slot)?.producer_mut(link.link)?;
        (producer.attachment == link.attachment && !producer.detached).then_some((slot, link.link))
    }
}
