//! How does a received message get into its queue, here or on another shard, and what does its producer hear?
//!
//! The message is copied once, out of the receive buffer into a vector of the pool, and moves from then on. A queue that
//! lives elsewhere gets it by handoff; its home answers ranges of deliveries. Credit is renewed when messages are answered, not
//! when they are received: `granted + unanswered ≤ window ≤ PRODUCER_CREDIT`, but for what was granted
//! before the window became smaller.

use std::sync::Arc;

use corelane_engine::{
    DeadLetter, DeadLetterReason, EnqueueRefusal, Origin, Overflow, Place, Publication, QueueId,
    Stored as StoredMessage,
};
use corelane_mailbox::Lane;
use corelane_protocol::amqp10::limits::SPARE_BUFFER_SIZE_MAX;
use corelane_protocol::amqp10::{self, ErrorSpec, LinkId, Payload};
use corelane_wire::amqp10::{DeliveryState, Error, Outcome};

use crate::Shard;
use crate::address::{Address, is_topic_name};
use crate::connection::Sender;
use crate::connection::{Connection, Hold, QueueAt, Route};
use crate::durability::Keeping;
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::fan_out::Routes;
use crate::limits::ANSWERS_KEPT_BYTES_MAX;
use crate::mail::{
    Handoff, HandoffMessage, HandoffTarget, LinkRef, Mail, PublishOutcome, Refusal, Stored, TransactionKey,
};
use crate::management;
use crate::message::Message;
use crate::participant::Posted;
use crate::producers::ProducerAt;
use crate::protocol::Protocol;
use crate::rights::{Object, Right};
use crate::subscription::Publisher;
use crate::transaction::transaction_id;
use crate::vhost;

/// A message that has come to its queue's home, with what is known of its way.
pub(crate) struct Arrival {
    pub(crate) message: Message,
    /// The connection it came by; 0 for none.
    pub(crate) origin: Origin,
    /// Who has sent it, if that is known.
    pub(crate) user: Option<Arc<str>>,
    /// The link that has to wait if the queue is full and makes its producers wait.
    pub(crate) producer: Option<ProducerAt>,
    /// It becomes visible when this commits. Whoever stores it counts the piece of work: see `work_arrived`.
    pub(crate) transaction: Option<TransactionKey>,
    pub(crate) timing: Timing,
}

/// From when and until when a message may be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// As it says itself.
    Own,
    /// For so many microseconds, whatever it says; 0: for ever.
    For(u64),
    /// As it says itself, from when so many microseconds are over.
    Delayed(u64),
    /// It comes from another queue, as it stood there.
    Standing { held_until: Option<u64>, expires_at: Option<u64> },
}

impl Timing {
    #[inline(always)]
    fn of(self, now: u64, message: &mut Message) -> (Option<u64>, Option<u64>) {
        match self {
            Timing::Own => (message.schedule(now), message.expires_at(now)),
            Timing::For(0) => (message.schedule(now), None),
            Timing::For(after) => (message.schedule(now), Some(now.saturating_add(after))),
            Timing::Delayed(delay) => {
                let due = now.saturating_add(delay);
                (Some(message.schedule(due).unwrap_or(due)), message.expires_at(due))
            }
            Timing::Standing { held_until, expires_at } => (held_until, expires_at),
        }
    }
}

/// A received message that its producer is to be told about.
#[derive(Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) link: LinkId,
    pub(crate) delivery_id: u32,
    pub(crate) settled: bool,
    /// The open transaction that it is part of.
    pub(crate) transaction: Option<u32>,
}

impl Delivery {
    /// The transaction of this link's connection.
    pub(crate) fn key(&self, link: LinkRef) -> Option<TransactionKey> {
        self.transaction.map(|number| TransactionKey { connection: link.connection, number })
    }
}

/// Where a message goes.
pub(crate) enum Destination {
    Queue(QueueAt),
    /// To the management node.
    Management,
    /// To this shard, with all that is handed off to it.
    HandedOff(usize, HandoffTarget),
    Topic(Arc<Routes>),
    /// To those queues of these names that are there.
    Named {
        names: Vec<Arc<str>>,
        is_mandatory: bool,
    },
    Nowhere(PublishOutcome),
}

impl Shard {
    pub(crate) fn on_message(&mut self, now: u64, slot: ConnectionSlot, received: amqp10::Message<'_>) {
        self.counters.messages_received += 1;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.coordinator_mut(received.link).is_some() {
            self.on_request(now, slot, received);
            return;
        }
        let Some((delivery, mut message)) = self.read_message(slot, received) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some((sender, producer)) = connection.sender(delivery.link) else {
            self.buffers.give(message.into_bytes());
            return;
        };
        let destination = match producer.route {
            Route::Queue(at) => Destination::Queue(at),
            Route::Topic => match self.routes_of(slot, delivery.link, &mut message) {
                Some(routes) => Destination::Topic(routes),
                None => Destination::Nowhere(PublishOutcome::NoQueue),
            },
            Route::Anonymous => self.destination_of(now, slot, &mut message),
            Route::Management => Destination::Management,
            Route::Resolving | Route::Exchange => Destination::Nowhere(PublishOutcome::NoQueue),
        };
        self.send_to(now, slot, sender, destination, delivery, message);
    }

    /// A producer's message goes where it is to go, and its producer hears of it.
    #[inline(always)]
    pub(crate) fn send_to(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        Sender { link: link_ref, user }: Sender,
        destination: Destination,
        delivery: Delivery,
        message: Message,
    ) {
        let Delivery { link, delivery_id, settled, .. } = delivery;
        let transaction = delivery.key(link_ref);
        let (to, target) = match destination {
            Destination::Queue(at) if at.shard == self.index => {
                let producer = Some(ProducerAt { shard: self.index, link: link_ref });
                let origin = Origin(link_ref.connection.0);
                let arrival = Arrival { message, origin, user, producer, transaction, timing: Timing::Own };
                let mark = self.said();
                let outcome = self.store(now, at.queue, arrival);
                if let Some(key) = transaction {
                    self.note_work(now, slot, key.number, at.shard, false);
                    self.work_arrived(now, key);
                }
                self.count_message(slot, delivery.transaction.filter(|_| outcome == PublishOutcome::Stored));
                self.answer_kept(slot, link_ref, delivery, outcome, mark);
                return;
            }
            Destination::Management => {
                self.on_management_request(now, slot, delivery, message);
                return;
            }
            Destination::Topic(routes) => {
                self.fan_out(now, slot, link_ref, delivery, &routes, message);
                return;
            }
            Destination::Named { names, is_mandatory } => {
                self.send_to_named(now, slot, link_ref, delivery, (&names, is_mandatory), message);
                return;
            }
            Destination::Nowhere(outcome) => {
                self.buffers.give(message.into_bytes());
                self.answer(slot, delivery, outcome);
                return;
            }
            Destination::Queue(at) => (at.shard, HandoffTarget::Queue(at.queue)),
            Destination::HandedOff(shard, target) => (shard, target),
        };
        let handoff =
            HandoffMessage { link: link_ref, delivery_id, settled, target, user, transaction, message };
        if let Some(producer) = self.connections.get_mut(slot).and_then(|it| it.producer_mut(link)) {
            producer.unanswered += 1;
        }
        self.hand_off(now, slot, to, handoff);
    }

    /// What has been received, as a message of its transaction; none if its producer was told what is wrong with it.
    #[inline(always)]
    fn read_message(
        &mut self,
        slot: ConnectionSlot,
        received: amqp10::Message<'_>,
    ) -> Option<(Delivery, Message)> {
        let amqp10::Message { link, delivery_id, settled, payload, message_format, transaction } = received;
        let bytes = self.owned(slot, payload);
        let mut delivery = Delivery { link, delivery_id, settled, transaction: None };
        match transaction.map(|id| self.transaction_for(slot, &id)).transpose() {
            Ok(number) => delivery.transaction = number,
            Err(outcome) => {
                self.buffers.give(bytes);
                self.answer(slot, delivery, outcome);
                return None;
            }
        }
        let message = match Message::received(&mut self.buffers, bytes, message_format) {
            Ok(message) => message,
            Err(bytes) => {
                self.buffers.give(bytes);
                self.answer(slot, delivery, PublishOutcome::Malformed);
                return None;
            }
        };
        Some((delivery, message))
    }

    /// The message's bytes, in a vector that fits.
    #[inline]
    fn owned(&mut self, slot: ConnectionSlot, payload: Payload<'_>) -> Vec<u8> {
        match payload {
            Payload::Slice(bytes) => self.buffers.copy(bytes),
            // Beyond that a copy costs more than a little room at the vector's end.
            Payload::Assembled(mut bytes) if bytes.len() > SPARE_BUFFER_SIZE_MAX => {
                if bytes.capacity() > bytes.len() + bytes.len() / 8 {
                    bytes.shrink_to_fit();
                }
                bytes
            }
            Payload::Assembled(bytes) => {
                let copy = self.buffers.copy(&bytes);
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.protocol.recycle(bytes);
                }
                copy
            }
        }
    }

    pub(crate) fn hand_off(&mut self, now: u64, slot: ConnectionSlot, to: usize, message: HandoffMessage) {
        if let Some(key) = message.transaction {
            self.note_work(now, slot, key.number, to, true);
            // A copy for each shard of a topic's is counted as one message, by `fan_out`.
            let is_copy = matches!(message.target, HandoffTarget::Queues { .. });
            self.count_message(slot, (!is_copy).then_some(key.number));
        }
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.unanswered += 1;
        self.counters.handoffs += 1;
        if to == self.index {
            self.peers.note_handed_off(to, message.message.memory());
            self.turn.hand_off(to, message);
        } else {
            self.peers.hand_off(&mut self.effects, to, message);
        }
        if !self.peers.has_room(to) && connection.hold.is_none() {
            connection.hold = Some(Hold::Lane { to });
            self.peers.hold(to, slot);
        }
    }

    /// Where the `to` of a message leads.
    fn destination_of(&mut self, now: u64, slot: ConnectionSlot, message: &mut Message) -> Destination {
        let is_restricted = self.connections.get_mut(slot).is_some_and(|it| it.permission.is_some());
        if is_restricted && let Some(denied) = self.destination_denied(slot, message) {
            return denied;
        }
        let vhost = self.connections.get_mut(slot).map_or(vhost::DEFAULT, |connection| connection.vhost());
        let name = match message.to().map(|to| Address::parse(to).within(vhost)) {
            Some(Address::Queue(name) | Address::Name(name))
                if vhost::plain(&name) == management::ADDRESS =>
            {
                return Destination::Management;
            }
            Some(Address::Name(name)) if self.is_topic(&name) => return self.topic_of(&name),
            Some(Address::Topic(name)) => return self.topic_of(&name),
            Some(Address::Queue(name) | Address::Name(name)) => name,
            Some(Address::Exchange { exchange, key }) if !vhost::plain(&exchange).is_empty() => {
                let (exchange, key) = (exchange.into_owned(), key.unwrap_or_default().into_owned());
                return self.destination_through(&exchange, &key, message);
            }
            Some(Address::Exchange { .. } | Address::Unsupported | Address::Invalid) => {
                return Destination::Nowhere(PublishOutcome::NoQueue);
            }
            None => return Destination::Nowhere(PublishOutcome::NoAddress),
        };
        let home = self.home_of(&name);
        if home != self.index {
            return Destination::HandedOff(home, HandoffTarget::Name(name.into()));
        }
        match self.find_or_create(now, &name) {
            Ok(queue) => Destination::Queue(QueueAt { shard: home, queue }),
            Err(_) => Destination::Nowhere(PublishOutcome::NoQueue),
        }
    }

    /// Where a message of somebody who may not do everything does not go.
    fn destination_denied(&mut self, slot: ConnectionSlot, message: &Message) -> Option<Destination> {
        let vhost = self.connections.get_mut(slot)?.vhost();
        let (object, name) = match Address::parse(message.to()?).within(vhost) {
            Address::Queue(name) | Address::Name(name) if vhost::plain(&name) == management::ADDRESS => {
                return None;
            }
            Address::Name(name) if self.is_topic(&name) => (Object::Topic, name),
            Address::Topic(name) => (Object::Topic, name),
            Address::Name(name) | Address::Queue(name) => (Object::Queue, name),
            Address::Exchange { exchange, .. } => (Object::Exchange, exchange),
            Address::Unsupported | Address::Invalid => return None,
        };
        if self.check_right(slot, Right::Write, object, &name).is_err() {
            return Some(Destination::Nowhere(PublishOutcome::Denied));
        }
        if object != Object::Queue || self.may_configure(slot, &name) {
            return None;
        }
        // It is not made on first use.
        let target = HandoffTarget::Existing { name: (&*name).into(), is_mandatory: false };
        Some(Destination::HandedOff(self.home_of(&name), target))
    }

    fn topic_of(&mut self, topic: &str) -> Destination {
        if is_topic_name(topic) {
            Destination::Topic(self.look_up_routes(topic))
        } else {
            Destination::Nowhere(PublishOutcome::NoAddress)
        }
    }

    /// Puts a message into a queue of this shard.
    pub(crate) fn store(&mut self, now: u64, queue: QueueId, arrival: Arrival) -> PublishOutcome {
        let Arrival { mut message, origin, user, producer, transaction, timing } = arrival;
        let mut last_value = None;
        let mut makes_wait = false;
        let mut keeping = Keeping::Not;
        self.take_over_rules(now, queue);
        if let Some(node) = self.queues.get(queue) {
            let destination = &node.destination;
            // Messages of the broker's own making keep what they say.
            if destination.sender_name && producer.is_some() {
                message.stamp_sender(user.as_deref());
            }
            last_value = destination.last_value_key.as_deref().and_then(|property| message.key(property));
            makes_wait = destination.properties.overflow == Overflow::Block;
            if self.durability.is_some() {
                keeping = node.keeping(&message);
            }
        }
        let is_unwanted = message.is_answer && self.is_unread(queue, ANSWERS_KEPT_BYTES_MAX);
        if is_unwanted || !self.take_memory_for(&message, producer.is_some()) {
            self.dissolve(message);
            return PublishOutcome::NoRoom;
        }
        // A dead letter is not lost for want of room. What is moved or copied stays where it is.
        let is_new = producer.is_some() || matches!(timing, Timing::Standing { .. });
        if keeping != Keeping::Not
            && let Some(outcome) = self.why_not_kept(&message, is_new, transaction)
        {
            self.forget(message);
            return outcome;
        }
        message.arrive(now, keeping != Keeping::Not);
        let size = message.bytes().len();
        let priority = message.priority();
        let (held_until, expires_at) = timing.of(now, &mut message);
        let replaces = last_value.is_some();
        let waits = keeping == Keeping::Not && self.waits_behind_unsynced(queue);
        let hides = waits || self.hiding.is_some() || keeping == Keeping::BeforeDelivery;
        let pending = hides || transaction.is_some();
        let is_known = std::mem::take(&mut message.may_be_known);
        let publication =
            Publication { message, priority, expires_at, held_until, origin, pending, last_value };
        let place = match self.engine.enqueue(now, queue, publication) {
            Ok(place) => place,
            Err((message, refusal)) => {
                let may_die = transaction.is_none() && !matches!(timing, Timing::Standing { .. });
                return self.refuse_message(now, queue, message, refusal.into(), may_die);
            }
        };
        if is_known {
            self.engine.count_acquired(queue, place);
        }
        self.statistics.note_in(queue, size);
        if let Some(key) = transaction {
            let may_go = self.queues.get(queue).is_some_and(|node| node.subscription.is_some());
            self.note_posted(key, Posted { queue, place, may_go }, (keeping != Keeping::Not).then_some(size));
        } else {
            self.keep_stored(queue, place, keeping, waits);
            if replaces {
                self.note_replaced();
            }
        }
        if makes_wait
            && let Some(producer) = producer
            && self.engine.is_full(queue)
        {
            self.make_wait(queue, producer);
        }
        PublishOutcome::Stored
    }

    /// Why a durable message is not taken, if it is not.
    fn why_not_kept(
        &self,
        message: &Message,
        is_new: bool,
        transaction: Option<TransactionKey>,
    ) -> Option<PublishOutcome> {
        if is_new && self.takes_nothing() {
            return Some(PublishOutcome::NoDisk);
        }
        let is_full = transaction.is_some_and(|key| !self.has_room_to_keep(key, message.bytes().len()));
        is_full.then_some(PublishOutcome::TransactionFull)
    }

    /// A queue has refused a message: it dies, if the queue is full and wants that. Nobody was promised anything, so it is kept no
    /// earlier than where it goes.
    fn refuse_message(
        &mut self,
        now: u64,
        queue: QueueId,
        mut message: Message,
        outcome: PublishOutcome,
        may_die: bool,
    ) -> PublishOutcome {
        let is_moved = !may_die || self.hiding.is_some() || message.origin.is_some();
        let dies = self.queues.get(queue).is_some_and(|node| node.destination.refused_die);
        if !dies || is_moved || outcome != PublishOutcome::Full {
            self.forget(message);
            return outcome;
        }
        message.arrive(now, false);
        // Behind those that have died before.
        self.say_what_left();
        self.dead_letters.push_back(DeadLetter {
            queue,
            place: Place(u64::MAX),
            message: StoredMessage::Here(message),
            reason: DeadLetterReason::Overflow,
            delivery_count: 0,
            acquired_count: 0,
        });
        outcome
    }

    /// Messages from another shard arrive at their queues' home.
    pub(crate) fn on_handoff(&mut self, now: u64, from: usize, mut handoff: Handoff) {
        let mark = self.said();
        let Handoff { messages, answers, returned } = &mut handoff;
        debug_assert!(answers.is_empty());
        let mut coming = messages.drain(..);
        let mut rest = Vec::new();
        while let Some(handoff) = coming.next() {
            let HandoffMessage { link, delivery_id, settled, target, user, transaction, message } = handoff;
            let bytes = message.memory();
            let producer = Some(ProducerAt { shard: from, link });
            let origin = Origin(link.connection.0);
            let arrival = Arrival { message, origin, user, producer, transaction, timing: Timing::Own };
            let outcome = match target {
                HandoffTarget::Queue(queue) => self.store(now, queue, arrival),
                HandoffTarget::Name(name) => self.store_by_name(now, &name, arrival),
                HandoffTarget::Existing { name, is_mandatory } => match self.queues.find(&name) {
                    Some(queue) => self.store(now, queue, arrival),
                    None => {
                        let Arrival { message, user, .. } = arrival;
                        let target = HandoffTarget::Existing { name, is_mandatory };
                        let refused =
                            HandoffMessage { link, delivery_id, settled, target, user, transaction, message };
                        if is_mandatory {
                            returned.push(refused);
                        } else {
                            self.dissolve(refused.message);
                        }
                        PublishOutcome::NoQueue
                    }
                },
                HandoffTarget::Queues { routed, container } => {
                    let publisher = Publisher { origin, container };
                    self.store_in_all(now, &routed, publisher, arrival)
                }
            };
            if let Some(key) = transaction {
                self.work_arrived(now, key);
            }
            let (first, last) = (delivery_id, delivery_id);
            let stored = Stored { link, first, last, bytes, settled, transaction, outcome };
            match answers.last_mut() {
                Some(run) if run.last.wrapping_add(1) == delivery_id && run.is_alike(&stored) => {
                    run.last = delivery_id;
                    run.bytes += bytes;
                }
                Some(_) | None => answers.push(stored),
            }
            if self.is_turn_over() {
                rest.extend(coming.by_ref());
                break;
            }
        }
        drop(coming);
        if !rest.is_empty() {
            self.turn.put_back(from, Handoff { messages: rest, ..Handoff::default() });
        }
        self.answer_handoff_kept(mark, from, handoff);
    }

    /// What became of messages goes back to the shard that handed them off, which may be this one.
    pub(crate) fn answer_handoff(&mut self, to: usize, handoff: Handoff) {
        if to == self.index {
            self.turn.note_stored(handoff);
        } else {
            self.post(to, Lane::Control, Mail::Stored(handoff));
        }
    }

    /// Puts a message into the queue of this name, made if it does not exist.
    pub(crate) fn store_by_name(&mut self, now: u64, name: &str, arrival: Arrival) -> PublishOutcome {
        match self.find_or_create(now, name) {
            Ok(queue) => self.store(now, queue, arrival),
            Err(refusal) => {
                self.dissolve(arrival.message);
                match refusal {
                    Refusal::NotFound | Refusal::InvalidFilter => PublishOutcome::NoQueue,
                    Refusal::ResourceLimit
                    | Refusal::Filters
                    | Refusal::Priorities
                    | Refusal::Locked
                    | Refusal::Stolen
                    | Refusal::Exclusive
                    | Refusal::InUse => PublishOutcome::NoRoom,
                }
            }
        }
    }

    /// The home's answer to messages that were handed off.
    pub(crate) fn on_stored(&mut self, now: u64, from: usize, mut handoff: Handoff) {
        for returned in handoff.returned.drain(..) {
            self.on_returned(returned);
        }
        for stored in handoff.answers.drain(..) {
            self.on_run_stored(now, from, &stored);
        }
        self.peers.reuse_handoff(handoff);
        while let Some(held) = self.peers.next_held(from) {
            self.advance(now, held);
        }
    }

    fn on_run_stored(&mut self, now: u64, from: usize, stored: &Stored) {
        let Stored { link, first, last, bytes, .. } = *stored;
        let count = last.wrapping_sub(first) as usize + 1;
        self.peers.answered(from, count, bytes);
        match self.slot_of(link.connection) {
            Some(slot) => {
                for delivery_id in (0..count as u32).map(|n| first.wrapping_add(n)) {
                    self.on_handoff_answered(slot, stored, delivery_id);
                }
                self.end_deleted_producer(slot, link.link);
                self.release_detached(slot, link.link);
                if let Some(key) = stored.transaction {
                    let failure = self.failure_of(slot, stored.outcome);
                    self.work_answered(now, from, key, count as u32, failure);
                }
            }
            None => self.counters.mail_dropped += 1,
        }
    }

    /// What producers here have sent to queues of this shard is synced.
    pub(crate) fn on_kept(&mut self, stored: &Stored) {
        let Stored { link, first, last, .. } = *stored;
        let Some(slot) = self.slot_of(link.connection) else { return };
        for n in 0..=last.wrapping_sub(first) {
            self.on_handoff_answered(slot, stored, first.wrapping_add(n));
        }
        self.end_deleted_producer(slot, link.link);
        self.release_detached(slot, link.link);
    }

    fn on_handoff_answered(&mut self, slot: ConnectionSlot, stored: &Stored, delivery_id: u32) {
        let Stored { link, settled, outcome, transaction, .. } = *stored;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.unanswered -= 1;
        let Some(producer) = connection.producer_mut(link.link) else { return };
        if producer.attachment == link.attachment {
            let Some(outcome) = producer.fan_outs.answered(delivery_id, outcome) else { return };
            producer.unanswered -= 1;
            let transaction = transaction.map(|key| key.number);
            let delivery = Delivery { link: link.link, delivery_id, settled, transaction };
            if let Some(returned) = producer.fan_outs.take_returned(delivery_id) {
                self.return_named(slot, delivery, outcome, returned);
            }
            self.answer(slot, delivery, outcome);
        }
    }

    /// Why a transaction of this connection cannot commit if this became of a message of it. On a channel it is none that nobody gets it.
    pub(crate) fn failure_of(&mut self, slot: ConnectionSlot, outcome: PublishOutcome) -> Option<Failure> {
        let connection = self.connections.get_mut(slot);
        let is_channel = connection.is_some_and(|it| matches!(it.protocol, Protocol::Amqp091(_)));
        let is_none = outcome == PublishOutcome::Stored || is_channel && outcome.is_unrouted();
        (!is_none).then_some(Failure::Refused(outcome))
    }

    /// Tells a producer what became of its message.
    pub(crate) fn answer(&mut self, slot: ConnectionSlot, delivery: Delivery, outcome: PublishOutcome) {
        let Delivery { link, delivery_id, settled, transaction } = delivery;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Protocol::Amqp091(_) = connection.protocol {
            self.answer_channel_message(slot, delivery, outcome);
            return;
        }
        if outcome != PublishOutcome::Stored {
            self.counters.count_refused(outcome);
            let is_topic = connection.producer_mut(link).is_some_and(|it| it.topic.is_some());
            if let (Some(number), Some(transactions)) = (transaction, connection.transactions.as_deref_mut())
            {
                // AMQP 1.0 §4.4.4: it is said by the answer to the discharge.
                transactions.fail(number, Failure::Refused(outcome));
            // What a topic's subscriptions have refused, others may have; and an exchange may lead nowhere.
            } else if settled
                && outcome != PublishOutcome::NoSubscription
                && !(is_topic && outcome.is_for_want_of_room())
            {
                // AMQP 1.0 anonymous terminus §2.2.2: what cannot be said by an outcome ends the link.
                let (condition, description) = outcome.error();
                connection.protocol.detach(link, true, Some(ErrorSpec { condition, description }));
                self.touch(slot);
                return;
            }
        }
        if !settled {
            let outcome = match outcome {
                PublishOutcome::Stored => Outcome::Accepted,
                // Nobody wants it now.
                PublishOutcome::NoSubscription => Outcome::Released,
                PublishOutcome::NoQueue
                | PublishOutcome::NoAddress
                | PublishOutcome::Full
                | PublishOutcome::NoRoom
                | PublishOutcome::NoDisk
                | PublishOutcome::Malformed
                | PublishOutcome::NoTransaction
                | PublishOutcome::TransactionTimedOut
                | PublishOutcome::TransactionFull
                | PublishOutcome::NotTransactional
                | PublishOutcome::Denied => {
                    let (condition, description) = outcome.error();
                    Outcome::Rejected { error: Some(Error::new(condition, description)) }
                }
            };
            // AMQP 1.0 §4.4.2: an outcome inside a transaction says so.
            let id = transaction.map(transaction_id);
            let state = match &id {
                Some(id) => DeliveryState::Transactional { transaction: id, outcome: Some(outcome) },
                None => outcome.into(),
            };
            connection.protocol.settle(link, delivery_id, &state);
        }
        renew_credit(connection, link);
        self.touch(slot);
    }
}

impl From<EnqueueRefusal> for PublishOutcome {
    fn from(refusal: EnqueueRefusal) -> Self {
        match refusal {
            EnqueueRefusal::QueueGone => PublishOutcome::NoQueue,
            EnqueueRefusal::MessagesFull | EnqueueRefusal::BytesFull => PublishOutcome::Full,
            EnqueueRefusal::ShardFull => PublishOutcome::NoRoom,
        }
    }
}

/// Grants a producer credit again when half of it was used and answered.
#[inline]
pub(crate) fn renew_credit(connection: &mut Connection, link: LinkId) {
    let Some(producer) = connection.producer_mut(link) else { return };
    producer.answered += 1;
    if producer.answered >= producer.window.div_ceil(2) && producer.waits_for.is_empty() {
        connection.grant_producer(link);
    }
}

impl Stored {
    fn is_alike(&self, other: &Stored) -> bool {
        (self.link, self.settled, self.outcome, self.transaction)
            == (other.link, other.settled, other.outcome, other.transaction)
    }
}
