//! Where does a message go that is published on a channel, and what does its publisher hear?
//!
//! It is stored as sections, with what its publisher said beside them, and goes the way of all messages. Its publisher has no credit: what
//! bounds it is that no more of a connection is read while too much of a channel is not answered, or too much is on its way to another
//! shard.
//!
//! A message that goes nowhere is confirmed; if it is mandatory, it is returned before. Whether a queue of another shard is there says its
//! home, which sends such a message back. In a transaction it is returned when that commits.

use std::sync::Arc;

use corelane_protocol::amqp091::Payload;
use corelane_protocol::amqp091::{self, Head, LinkId, Publication};
use corelane_wire::amqp091::{PropertyFields, ReplyCode, ShortStr};

use super::channel::ChannelFault;
use super::reply_to::REPLY_TO;
use super::{BasicMessage, Published, Refusal};
use crate::Shard;
use crate::connection::{Hold, QueueAt};
use crate::event::ConnectionSlot;
use crate::limits::PUBLISHED_UNANSWERED_MAX;
use crate::mail::{HandoffMessage, HandoffTarget, PublishOutcome};
use crate::message::Message;
use crate::protocol::Protocol;
use crate::publish::{Delivery, Destination};
use crate::rights::{Object, Right};
use crate::vhost;

impl From<Refusal<'_>> for ChannelFault {
    fn from(refusal: Refusal<'_>) -> Self {
        ChannelFault::new(refusal.reply_code(), refusal.to_string())
    }
}

impl Shard {
    pub(crate) fn on_published(&mut self, now: u64, slot: ConnectionSlot, received: amqp091::Message<'_>) {
        self.counters.messages_received += 1;
        let amqp091::Message { link, delivery_id, settled, mandatory, transaction, head, payload } = received;
        let mut delivery = Delivery { link, delivery_id, settled, transaction: None };
        let begun = if transaction { self.transaction_on(now, slot, link).map(Some) } else { Ok(None) };
        let published = begun.and_then(|number| {
            delivery.transaction = number;
            self.publish(now, slot, (delivery, mandatory), &head, payload.bytes())
        });
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Protocol::Amqp091(protocol) = &mut connection.protocol {
            protocol.recycle_head(head);
            if let Payload::Assembled(buffer) = payload {
                protocol.recycle(buffer);
            }
        }
        if let Err(fault) = published
            && let Some(session) = connection.session_of(link)
        {
            self.fail_channel(slot, session, &fault);
        }
    }

    fn publish(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        (delivery, is_mandatory): (Delivery, bool),
        head: &Head<'_>,
        body: &[u8],
    ) -> Result<(), ChannelFault> {
        let (exchange, routing_key) = (head.exchange(), head.routing_key());
        self.check_publisher(slot, exchange)?;
        let mut rewritten = Vec::new();
        let mut published = Published::read(head.properties())?;
        if published.properties().reply_to.is_some_and(|reply_to| reply_to == REPLY_TO) {
            self.write_reply_to(slot, delivery.link, &published, &mut rewritten)?;
            published = Published::read(PropertyFields::new(&rewritten))?;
        }
        self.check_user(slot, &published)?;
        let route =
            self.route_0_9_1(slot, delivery.link, (exchange, routing_key), &published, is_mandatory)?;
        let Some(destination) = route else {
            if let (true, Some(number)) = (is_mandatory, delivery.transaction) {
                let message = self.stored_form(&published, (exchange, routing_key), body);
                self.keep_unrouted(slot, number, message);
            } else if is_mandatory {
                let properties = published.fields();
                let publication = Publication { exchange, routing_key, properties, body: &[body] };
                self.return_message(slot, delivery.link, &publication);
            }
            self.answer(slot, delivery, PublishOutcome::NoQueue);
            return Ok(());
        };
        if !self.has_room_within(slot, delivery.transaction) {
            self.answer(slot, delivery, PublishOutcome::TransactionFull);
            return Ok(());
        }
        if let Destination::Topic(routes) = &destination
            && routes.is_delayed
        {
            let held_back = published.held_back();
            rewritten = held_back;
            published = Published::read(PropertyFields::new(&rewritten))?;
        }
        if self.overshoots(slot, delivery.link) {
            self.answer(slot, delivery, PublishOutcome::Full);
            return Ok(());
        }
        let message = self.stored_form(&published, (exchange, routing_key), body);
        let Some(message) = message else {
            self.answer(slot, delivery, PublishOutcome::Malformed);
            return Ok(());
        };
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let Some((sender, _)) = connection.sender(delivery.link) else { return Ok(()) };
        self.send_to(now, slot, sender, destination, delivery, message);
        self.bound_unanswered(slot, delivery.link);
        self.hold_for_alarm(slot);
        Ok(())
    }

    /// Where a message goes that is published to this exchange under this key; none: it goes nowhere.
    pub(crate) fn route_0_9_1(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        (exchange, routing_key): (ShortStr<'_>, ShortStr<'_>),
        published: &Published<'_>,
        is_mandatory: bool,
    ) -> Result<Option<Destination>, ChannelFault> {
        if !exchange.is_empty() {
            let routes = self.routes_through(slot, link, (exchange, routing_key), published)?;
            return Ok((!routes.is_empty()).then_some(Destination::Topic(routes)));
        }
        if published.further_keys().next().is_some() {
            let keys = std::iter::once(routing_key.as_bytes()).chain(published.further_keys());
            let connection = self.connections.get_mut(slot);
            let vhost = connection.map_or(vhost::DEFAULT, |connection| connection.vhost());
            return Ok(queues_named(vhost, keys, is_mandatory));
        }
        Ok(routing_key.as_str().and_then(|key| self.queue_of_key(slot, link, key, is_mandatory)))
    }

    /// The default exchange leads to the queue of the key's name.
    fn queue_of_key(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        key: &str,
        is_mandatory: bool,
    ) -> Option<Destination> {
        let vhost = self.connections.get_mut(slot).and_then(|connection| connection.vhost.clone());
        let name = &*vhost::within(vhost.as_deref().unwrap_or(vhost::DEFAULT), key);
        let home = self.home_of(name);
        if home == self.index {
            let queue = self.queues.find(name)?;
            // Behind what the channel may have sent before.
            return Some(match self.turn.has_handoffs(home) {
                true => Destination::HandedOff(home, HandoffTarget::Queue(queue)),
                false => Destination::Queue(QueueAt { shard: home, queue }),
            });
        }
        let producer = self.connections.get_mut(slot)?.producer_mut(link)?;
        let name = match &producer.last_key {
            Some(last) if **last == *name => last.clone(),
            Some(_) | None => producer.last_key.insert(name.into()).clone(),
        };
        Some(Destination::HandedOff(home, HandoffTarget::Existing { name, is_mandatory }))
    }

    /// Whether the channel's user may publish to an exchange; looked up when it is another one than the last.
    #[inline]
    fn check_publisher(&mut self, slot: ConnectionSlot, exchange: ShortStr<'_>) -> Result<(), ChannelFault> {
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let is_known = connection.may_publish_to.as_deref().is_some_and(|known| exchange == *known);
        if connection.permission.is_none() || is_known {
            return Ok(());
        }
        let exchange = super::exchanges::name_of(exchange)?;
        let known = self.within(slot, exchange);
        self.check_right(slot, Right::Write, Object::Exchange, &known)?;
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.may_publish_to = Some(exchange.into());
        }
        Ok(())
    }

    /// `user-id` has to be who has logged in.
    fn check_user(&mut self, slot: ConnectionSlot, published: &Published<'_>) -> Result<(), ChannelFault> {
        let Some(claimed) = published.properties().user_id else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let is_impersonator = connection.rights.as_deref().is_some_and(|rights| rights.is_impersonator);
        let user = connection.user.as_deref().unwrap_or_default();
        if claimed == user || is_impersonator {
            return Ok(());
        }
        let text = format!("user_id property set to '{claimed}' but authenticated user was '{user}'");
        Err(ChannelFault::precondition(text))
    }

    /// The message in a vector that fits.
    fn stored_form(
        &mut self,
        published: &Published<'_>,
        (exchange, routing_key): (ShortStr<'_>, ShortStr<'_>),
        body: &[u8],
    ) -> Option<Message> {
        self.scratch.head.clear();
        let head = published.write_head(exchange, routing_key, body.len(), &mut self.scratch.head);
        let mut bytes = self.buffers.with_capacity(self.scratch.head.len() + body.len());
        bytes.extend_from_slice(&self.scratch.head);
        bytes.extend_from_slice(body);
        head.complete(&mut bytes);
        match Message::new_in(&mut self.buffers, bytes, 0) {
            Ok(message) => Some(message),
            Err(bytes) => {
                self.buffers.give(bytes);
                None
            }
        }
    }

    pub(super) fn return_message(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        publication: &Publication<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Protocol::Amqp091(protocol) = &mut connection.protocol {
            protocol.return_message(link, ReplyCode::NoRoute, publication);
        }
    }

    /// All queues that a message with several names was for have answered, and it has come back from one of them.
    pub(crate) fn return_named(
        &mut self,
        slot: ConnectionSlot,
        delivery: Delivery,
        outcome: PublishOutcome,
        returned: Message,
    ) {
        if outcome == PublishOutcome::NoQueue {
            self.give_back(slot, delivery, returned);
        } else {
            self.dissolve(returned);
        }
    }

    /// A mandatory message has come back from where its queue would be.
    pub(crate) fn on_returned(&mut self, returned: HandoffMessage) {
        let HandoffMessage { link, delivery_id, message, transaction, .. } = returned;
        let slot = self.slot_of(link.connection);
        let publisher = slot.and_then(|slot| self.connections.get_mut(slot)?.producer_mut(link.link));
        let publisher = publisher.filter(|it| it.attachment == link.attachment);
        let (Some(slot), Some(publisher)) = (slot, publisher) else { return self.dissolve(message) };
        let Some(message) = publisher.fan_outs.keep_returned(delivery_id, message) else { return };
        let transaction = transaction.map(|key| key.number);
        let delivery = Delivery { link: link.link, delivery_id, settled: true, transaction };
        self.give_back(slot, delivery, message);
    }

    /// Returns a message, now or when its transaction commits.
    fn give_back(&mut self, slot: ConnectionSlot, delivery: Delivery, message: Message) {
        match delivery.transaction {
            Some(number) => self.keep_unrouted(slot, number, Some(message)),
            None => {
                self.return_stored(slot, delivery.link, &message);
                self.dissolve(message);
            }
        }
    }

    /// Returns a message in its stored form.
    pub(super) fn return_stored(&mut self, slot: ConnectionSlot, link: LinkId, message: &Message) {
        let Some(basic) = message.as_0_9_1() else { return };
        let BasicMessage { exchange, routing_key, properties, body } = basic;
        self.return_message(slot, link, &Publication { exchange, routing_key, properties, body: &[body] });
    }

    /// Tells a channel what became of its message.
    pub(crate) fn answer_channel_message(
        &mut self,
        slot: ConnectionSlot,
        delivery: Delivery,
        outcome: PublishOutcome,
    ) {
        let Delivery { link, delivery_id, settled, .. } = delivery;
        let confirm = match outcome {
            // That nobody gets it is no failure.
            PublishOutcome::Stored | PublishOutcome::NoQueue | PublishOutcome::NoSubscription => {
                amqp091::Outcome::Accepted
            }
            PublishOutcome::NoAddress
            | PublishOutcome::Full
            | PublishOutcome::NoRoom
            | PublishOutcome::NoDisk
            | PublishOutcome::Malformed
            | PublishOutcome::NoTransaction
            | PublishOutcome::TransactionTimedOut
            | PublishOutcome::TransactionFull
            | PublishOutcome::NotTransactional
            | PublishOutcome::Denied => amqp091::Outcome::Rejected,
        };
        if outcome != PublishOutcome::Stored {
            self.counters.count_refused(outcome);
        }
        if let (Some(number), Some(failure)) = (delivery.transaction, self.failure_of(slot, outcome))
            && let Some(transactions) = self.transactions(slot)
        {
            transactions.fail(number, failure);
        }
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Protocol::Amqp091(protocol) = &mut connection.protocol else { return };
        if !settled {
            protocol.settle(link, delivery_id, confirm);
        }
        let is_full = protocol.is_full();
        let unanswered = connection.producer_mut(link).map_or(0, |producer| producer.unanswered);
        if is_full {
            self.resume(slot);
        }
        self.touch(slot);
        self.note_answered(slot, link, unanswered);
    }

    fn note_answered(&mut self, slot: ConnectionSlot, link: LinkId, unanswered: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.hold == Some(Hold::Answers { link }) && unanswered <= PUBLISHED_UNANSWERED_MAX / 2 {
            connection.hold = None;
            self.resume(slot);
        }
        if unanswered == 0 {
            self.all_published(slot, link);
        }
    }

    /// Reads no more of a connection while too much of a channel is not answered.
    fn bound_unanswered(&mut self, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let unanswered = connection.producer_mut(link).map_or(0, |producer| producer.unanswered);
        if unanswered >= PUBLISHED_UNANSWERED_MAX && connection.hold.is_none() {
            connection.hold = Some(Hold::Answers { link });
        }
    }

    /// The channel has been told to wait for room in a queue, and goes on publishing: more than a window of that is refused.
    fn overshoots(&mut self, slot: ConnectionSlot, link: LinkId) -> bool {
        let producer = self.connections.get_mut(slot).and_then(|connection| connection.producer_mut(link));
        let Some(producer) = producer.filter(|producer| !producer.waits_for.is_empty()) else { return false };
        producer.overshoot = producer.overshoot.saturating_add(1);
        producer.overshoot > producer.window
    }
}

/// The queues of these names, each once; none: no key is a name.
fn queues_named<'a>(
    vhost: &str,
    keys: impl Iterator<Item = &'a [u8]>,
    is_mandatory: bool,
) -> Option<Destination> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for key in keys.filter_map(|key| std::str::from_utf8(key).ok()) {
        let name = vhost::within(vhost, key);
        if names.iter().all(|known| **known != *name) {
            names.push(name.into());
        }
    }
    (!names.is_empty()).then_some(Destination::Named { names, is_mandatory })
}
