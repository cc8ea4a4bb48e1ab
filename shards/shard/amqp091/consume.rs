//! How does a channel take messages: by consuming, or one by one?
//!
//! A consumer is attached as one of AMQP 1.0 is, on a queue that has to be there; the connection moves to its home likewise. A get is a
//! consumer that asks for one message, or to be told that there is none: it is attached once for a queue, with the lowest priority, and
//! is no consumer to who counts them. One that was cancelled gets nothing and is not counted either; what it holds stays with it until it
//! is acknowledged.

use corelane_engine as engine;
use corelane_protocol::amqp091::{self, LinkId, SessionId};
use corelane_wire::amqp091::{FieldValue, ReplyCode, ShortStr, basic};

use super::channel::{ChannelFault, Waiting};
use super::reply_to::REPLY_TO;
use super::{Addition, Translator};
use crate::Shard;
use crate::connection::{ChannelConsumer, Connection, Consumer, ConsumerAt, Link, PendingConsumer};
use crate::deliver::Written;
use crate::event::ConnectionSlot;
use crate::limits::PROPERTIES_BYTES_MAX;
use crate::mail::{ChannelTerms, ConsumeRequest, DeliveryCounts, Mail};
use crate::message::Message;
use crate::protocol::Protocol;
use crate::rights::{Object, Right};
use crate::vhost;

impl Shard {
    pub(crate) fn on_consume_0_9_1(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        session: SessionId,
        consume: &basic::Consume<'_>,
    ) {
        let queue = match consume.queue == REPLY_TO {
            true => self.make_reply_queue(now, slot, session, consume.no_ack),
            false => self.readable_queue(slot, session, consume.queue),
        };
        let asked = queue.and_then(|queue| Ok((queue, priority_of(consume)?)));
        let (queue, priority) = match asked {
            Ok(asked) => asked,
            Err(fault) => return self.fail_channel(slot, session, &fault),
        };
        let consumer = ChannelConsumer { queue, gets: false, is_cancelled: false };
        let terms = ChannelTerms { exclusive: consume.exclusive, gets: false };
        self.attach_channel_consumer(now, slot, (link, session), consumer, (consume.no_ack, priority, terms));
    }

    pub(crate) fn on_get(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        session: SessionId,
        queue: ShortStr<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.consumer_mut(link).is_some() {
            self.pull_behind_published(now, slot, link);
            return;
        }
        let queue = match self.readable_queue(slot, session, queue) {
            Ok(queue) => queue,
            Err(fault) => return self.fail_channel(slot, session, &fault),
        };
        let consumer = ChannelConsumer { queue, gets: true, is_cancelled: false };
        let terms = ChannelTerms { exclusive: false, gets: true };
        self.attach_channel_consumer(now, slot, (link, session), consumer, (false, i32::MIN, terms));
    }

    /// A queue that the channel's user may have messages of.
    fn readable_queue(
        &mut self,
        slot: ConnectionSlot,
        session: SessionId,
        queue: ShortStr<'_>,
    ) -> Result<Box<str>, ChannelFault> {
        let queue = self.queue_name(slot, session, queue)?;
        self.check_right(slot, Right::Read, Object::Queue, &queue)?;
        Ok(queue)
    }

    fn attach_channel_consumer(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        (link, session): (LinkId, SessionId),
        consumer: ChannelConsumer,
        (no_ack, priority, terms): (bool, i32, ChannelTerms),
    ) {
        let home = self.home_of(&consumer.queue);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let link_ref = connection.link_ref(link);
        let settled_down = connection.settled_down;
        let request = ConsumeRequest {
            queue: consumer.queue.clone(),
            filter: None,
            no_local: None,
            browse: false,
            priority,
            subscription: None,
            makes: false,
            channel: Some(terms),
        };
        let pending = PendingConsumer { request, filters_in_force: None };
        let bound = Consumer {
            attachment: link_ref.attachment,
            session,
            browse: false,
            presettled: no_ack,
            draining: false,
            default_outcome: None,
            at: ConsumerAt::Nowhere(Box::new(pending)),
            partial: None,
            unsettled: 0,
            unflushed: [0, 0],
            dynamic: None,
            transaction: None,
            answers: None,
            channel: Some(Box::new(consumer)),
        };
        connection.bind(link, Link::Consumer(bound));
        if home == self.index {
            self.attach_consumer_here(now, slot, link);
        } else if settled_down {
            self.ask_for_consumer(slot, link_ref, home);
        } else {
            self.start_move(slot, link, home);
        }
    }

    /// The consumer of a channel's link is there.
    pub(crate) fn accept_channel_consumer(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let gets = connection.consumer_mut(link).is_some_and(|consumer| consumer.gets());
        if gets {
            self.pull_behind_published(now, slot, link);
        } else {
            if let Protocol::Amqp091(protocol) = &mut connection.protocol {
                protocol.accept_consume(link);
            }
            self.refresh_consumer(now, slot, link);
        }
        self.resume(slot);
    }

    /// A queue cannot be consumed from.
    pub(crate) fn refuse_channel_consumer(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        refusal: crate::mail::Refusal,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let id = connection.id;
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let session = consumer.session;
        let queue = consumer.channel.as_ref().map(|channel| channel.queue.clone()).unwrap_or_default();
        self.unbind(now, slot, link);
        self.drop_reply_queue(now, id, &queue);
        self.fail_channel(slot, session, &ChannelFault::of(refusal, &queue));
    }

    /// Asks for one message; from another shard, when it has all that the channel has published.
    fn pull_behind_published(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let session = consumer.session;
        match consumer.at {
            ConsumerAt::Elsewhere(_) => {
                self.behind_published(now, slot, session, Waiting::Get { link });
            }
            ConsumerAt::Here(_) => self.pull_one(now, slot, link),
            // It is pulled when the consumer is there.
            ConsumerAt::Nowhere(_) => {}
        }
    }

    /// A get is a drain with a credit of one.
    pub(crate) fn pull_one(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(consumer) = connection.consumer_mut(link)
            && let ConsumerAt::Here(id) = consumer.at
            && let Some(queue) = self.engine.queue_of(id)
        {
            self.note_used(now, queue);
        }
        self.on_link_flow(now, slot, link, true);
    }

    /// The peer wants nothing more from a consumer.
    pub(crate) fn on_cancel(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        self.refresh_consumer(now, slot, link);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let Some(channel) = &mut consumer.channel else { return };
        channel.is_cancelled = true;
        let (session, queue) = (consumer.session, channel.queue.clone());
        if let Some(reply_to) = connection.channels.reply_to_mut(session) {
            reply_to.take_if(|reply_to| *reply_to == queue);
        }
        let Some(consumer) = connection.consumer_mut(link) else { return };
        match &consumer.at {
            ConsumerAt::Nowhere(_) => {}
            ConsumerAt::Here(id) => {
                if let Some(queue) = self.engine.queue_of(*id) {
                    self.note_consumer_closed(now, queue, false);
                }
            }
            ConsumerAt::Elsewhere(target) => {
                let mail = Mail::ConsumerCancelled { consumer: target.consumer };
                self.peers.control(&mut self.effects, target.home, mail);
            }
        }
    }

    /// The peer has said what became of deliveries.
    pub(crate) fn on_acknowledged(&mut self, now: u64, slot: ConnectionSlot, outcome: amqp091::Outcome) {
        let outcome = engine_outcome(outcome);
        while let Some(connection) = self.connections.get_mut(slot)
            && let Some(disposed) = connection.protocol.poll_outcome()
        {
            self.dispose(now, slot, &disposed, Some(outcome), None);
        }
    }
}

pub(super) fn engine_outcome(outcome: amqp091::Outcome) -> engine::Outcome {
    match outcome {
        amqp091::Outcome::Accepted => engine::Outcome::Accepted,
        amqp091::Outcome::Rejected => engine::Outcome::Rejected,
        // What comes back too often is a dead letter, where a queue says so.
        amqp091::Outcome::Released => {
            engine::Outcome::Modified { delivery_failed: true, undeliverable_here: false }
        }
    }
}

/// The consumer's `x-priority`; 0 where there is none.
fn priority_of(consume: &basic::Consume<'_>) -> Result<i32, ChannelFault> {
    match consume.arguments.find("x-priority") {
        Ok(None | Some(FieldValue::Void)) => Ok(0),
        Ok(Some(value)) => {
            let priority = value.as_integer().and_then(|value| i32::try_from(value).ok());
            priority.ok_or_else(|| {
                ChannelFault::precondition("invalid arg 'x-priority': expected a whole number of 32 bits")
            })
        }
        Err(error) => Err(ChannelFault::new(error.reply_code(), error.to_string())),
    }
}

impl Consumer {
    /// It takes one message at a time, when it is asked to.
    pub(crate) fn gets(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.gets)
    }

    /// Its queue counts it among its consumers.
    pub(crate) fn is_one_of_the_queue(&self) -> bool {
        self.channel.as_ref().is_none_or(|channel| !channel.gets && !channel.is_cancelled)
    }
}

/// Writes a delivery to its channel.
#[inline]
pub(crate) fn write(
    translator: &mut Translator,
    connection: &mut Connection,
    link: LinkId,
    message: &Message,
    token: amqp091::Token,
    counts: DeliveryCounts,
) -> Written {
    let Connection { protocol: Protocol::Amqp091(protocol), links, .. } = connection else {
        return Written::NotReady;
    };
    let Some(Some(Link::Consumer(consumer))) = links.get_mut(link.0 as usize) else {
        return Written::NotReady;
    };
    let queue = consumer.channel.as_ref().map_or("", |channel| vhost::plain(&channel.queue));
    let addition = Addition { queue, delivery_count: 0, properties_bytes_max: PROPERTIES_BYTES_MAX };
    let basic = translator.basic(message, addition);
    let outgoing = amqp091::Outgoing {
        token,
        redelivered: !counts.first_acquirer,
        exchange: basic.exchange,
        routing_key: basic.routing_key,
        properties: basic.properties,
        body: &[basic.body],
        message_count: counts.left,
    };
    match protocol.send(link, &outgoing) {
        amqp091::Progress::Complete { settled, .. } => {
            if !settled {
                connection.note_written(link);
            }
            Written::Whole { presettled: settled }
        }
        amqp091::Progress::TooLarge => {
            // Its peer has agreed on frames in which it cannot be had; others may have it.
            let text =
                "the properties of a message do not fit into the frames that were agreed on (frame-max)";
            protocol.close(Some(amqp091::ErrorSpec { reply_code: ReplyCode::FrameError, text }));
            Written::TooLarge
        }
        amqp091::Progress::Partial { .. } | amqp091::Progress::NotReady(_) => Written::NotReady,
    }
}
