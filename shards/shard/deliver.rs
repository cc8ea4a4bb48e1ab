//! How does a message leave? Notified consumers pull one message each, in turn, and it is written to their session.
//!
//! The engine decides who is next; here is decided who is *ready*: the link has credit, its session's window is open, the
//! socket takes what we write. Each change of that is told to the engine by `set_notify_work_desired`, so a consumer that is
//! notified can be written to.
//!
//! Left out: messages that are written in parts (`parts`), and consumers whose connection is elsewhere (`target`).

use corelane_engine::{Acquisition, ConsumerId, Desire, Outcome, PauseReason, Place, Pull};
use corelane_mailbox::Lane;
use corelane_protocol::amqp10::{LinkId, Outgoing, Progress, SendReadiness, Token};

use crate::Shard;
use crate::amqp091::{Translator, consume};
use crate::connection::{Connection, ConsumerAt, Link};
use crate::event::ConnectionSlot;
use crate::limits::{LEAD_MAX, LEAD_WAIT_US, OUTPUT_BYTES_MAX, TURN_BYTES_MAX, TURN_DELIVERIES_MAX};
use crate::mail::{DeliveryCounts, Mail, RemoteDelivery};
use crate::message::Message;
use crate::parts::Partial;
use crate::protocol::Protocol;
use crate::statistics::stamp;
use crate::transaction::Acquired;

/// Whose consumer it is, as the engine carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A link of a connection on this shard.
    Connection { index: u32, link: LinkId },
    /// A link of a connection on another shard.
    Target { index: u32 },
}

impl Owner {
    const TARGET: u64 = 1 << 63;

    pub(crate) fn pack(self) -> u64 {
        match self {
            Owner::Connection { index, link } => (u64::from(index) << 32) | u64::from(link.0),
            Owner::Target { index } => Self::TARGET | u64::from(index),
        }
    }

    pub(crate) fn unpack(packed: u64) -> Owner {
        if packed & Self::TARGET != 0 {
            Owner::Target { index: packed as u32 }
        } else {
            Owner::Connection { index: (packed >> 32) as u32, link: LinkId(packed as u32) }
        }
    }
}

/// Memory for what is written, used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) head: Vec<u8>,
    pub(crate) translator: Translator,
    /// A frame that a connection had put aside.
    pub(crate) frame: Vec<u8>,
}

/// What became of a delivery that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Whole {
        presettled: bool,
    },
    Part,
    /// Larger than the peer takes on this link.
    TooLarge,
    /// The link was not ready after all.
    NotReady,
}

impl Shard {
    /// Serves the delivery ring, within the bounds of a turn. True if there is more to do.
    pub(crate) fn run_deliveries(&mut self, now: u64) -> bool {
        let mut bytes = self.continue_partials(now);
        for _ in 0..TURN_DELIVERIES_MAX {
            let Some(consumer) = self.engine.poll_notified() else {
                return !self.continuing.is_empty();
            };
            bytes += self.serve(now, consumer);
            if bytes >= TURN_BYTES_MAX || self.is_turn_over() {
                return true;
            }
        }
        true
    }

    /// The connection's consumers on this shard wait until one on another shard is served, or seems to have nothing.
    fn wait_for_others(&mut self, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if !std::mem::replace(&mut connection.waits, true) {
            self.waiting_for_others.push_back((connection.remote_at + LEAD_WAIT_US, slot));
        }
    }

    /// A delivery from another shard has come.
    pub(crate) fn others_served(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.lead = connection.lead.saturating_sub(1);
        connection.remote_at = now;
        if connection.waits && connection.lead <= LEAD_MAX / 2 {
            connection.waits = false;
            self.refresh_consumers(now, slot);
        }
    }

    /// A consumer on another shard has had all there is: nobody waits for it.
    pub(crate) fn others_caught_up(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.remote_at = 0;
        connection.lead = 0;
        if std::mem::take(&mut connection.waits) {
            self.refresh_consumers(now, slot);
        }
    }

    /// Those that waited in vain go on.
    pub(crate) fn end_waits(&mut self, now: u64) {
        while let Some((_, slot)) = self.waiting_for_others.pop_front_if(|(at, _)| *at <= now) {
            if let Some(connection) = self.connections.get_mut(slot)
                && std::mem::take(&mut connection.waits)
            {
                self.refresh_consumers(now, slot);
            }
        }
    }

    /// One pull of one consumer; returns the bytes delivered.
    fn serve(&mut self, now: u64, consumer: ConsumerId) -> usize {
        let left = if self.getters > 0 { self.left_behind(consumer) } else { 0 };
        let delivery = match self.engine.deliver_single_message(now, consumer) {
            Pull::Delivered(delivery) => delivery,
            Pull::Nothing => {
                self.counters.pulls_in_vain += 1;
                if let Some(owner) = self.engine.owner(consumer) {
                    self.on_nothing(now, consumer, owner);
                }
                return 0;
            }
            Pull::Scanning => return 0,
        };
        let (place, acquisition) = (delivery.place, delivery.acquisition);
        let counts = DeliveryCounts {
            delivery_count: delivery.delivery_count,
            first_acquirer: delivery.first_acquirer,
            expires_at: delivery.expires_at,
            left,
        };
        let size = delivery.message.bytes().len();
        // A browser acquires nothing.
        let is_first = delivery.first_acquirer && delivery.acquisition != Acquisition(0);
        let waited_us = is_first.then(|| now.saturating_sub(delivery.message.enqueued_at));
        self.statistics.note_out(now, delivery.queue, size, waited_us);
        match Owner::unpack(delivery.owner) {
            Owner::Connection { index, link } => {
                let Some((slot, connection)) = self.connections.at(index) else { return 0 };
                let message = delivery.message;
                let written =
                    write(&mut self.scratch, now, connection, link, message, (place, acquisition), counts);
                if written == Written::Part {
                    let browse = connection.consumer_mut(link).is_some_and(|consumer| consumer.browse);
                    let copy = (browse || message.was_read).then(|| message.copied(&mut self.buffers));
                    self.keep_part(slot, link, copy);
                }
                self.after_write(now, slot, link, consumer, (place, acquisition), written);
            }
            Owner::Target { index } => {
                let message = delivery.message.copied(&mut self.buffers);
                self.post_delivery(now, index, consumer, (place, acquisition), counts, message);
            }
        }
        size
    }

    /// Messages that stay when who takes single ones has got one.
    #[cold]
    fn left_behind(&mut self, consumer: ConsumerId) -> u32 {
        match self.engine.queue_of(consumer) {
            Some(queue) if self.is_getter(consumer) => self.ready_messages(queue).saturating_sub(1),
            Some(_) | None => 0,
        }
    }

    fn after_write(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        consumer: ConsumerId,
        (place, acquisition): (Place, Acquisition),
        written: Written,
    ) {
        self.counters.deliveries += 1;
        match written {
            Written::Whole { presettled: true } => {
                self.settle_written(now, slot, link, (place, acquisition));
            }
            Written::Whole { presettled: false } | Written::Part => self.bound_acquired(now, slot, link),
            Written::TooLarge => {
                let outcome = Outcome::Modified { delivery_failed: false, undeliverable_here: true };
                self.settle_here(now, consumer, place, acquisition, outcome);
                // A connection of 0-9-1 ends for it.
                self.resume(slot);
            }
            Written::NotReady => self.settle_here(now, consumer, place, acquisition, Outcome::Released),
        }
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.lead = connection.lead.saturating_add(1);
        let is_ahead = connection.is_ahead(now);
        let desire = desire_of(connection, link);
        let draining = connection.consumer_mut(link).is_some_and(|consumer| consumer.draining);
        if self.check_output(now, slot) {
            // All consumers of the connection are paused.
        } else if desire != Desire::Ready {
            self.refresh_consumer(now, slot, link);
        } else if is_ahead {
            self.engine.set_notify_work_desired(now, consumer, Desire::Paused(PauseReason::Turn));
            self.wait_for_others(slot);
        } else if draining && !self.engine.request_pull(now, consumer) {
            // It has reached its prefetch: that was all for now.
            self.finish_drain(now, slot, link);
        }
        self.touch(slot);
    }

    /// Pauses the consumers of a connection whose output has become too much. True if it has.
    pub(crate) fn check_output(&mut self, now: u64, slot: ConnectionSlot) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let full = !connection.output_blocked && connection.unsent_bytes() > OUTPUT_BYTES_MAX;
        if full {
            connection.output_blocked = true;
            self.refresh_consumers(now, slot);
        }
        full
    }

    /// A delivery was sent settled, and whole at once: its entry goes, unless a browser looked at it.
    pub(crate) fn settle_written(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        acquired: (Place, Acquisition),
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let transaction = connection.consumer_mut(link).and_then(|consumer| consumer.transaction);
        self.settle_presettled(now, slot, link, acquired, transaction);
    }

    fn post_delivery(
        &mut self,
        now: u64,
        index: u32,
        consumer: ConsumerId,
        (place, acquisition): (Place, Acquisition),
        counts: DeliveryCounts,
        message: Message,
    ) {
        self.targets.note_posted(now, index, place, acquisition, message.bytes().len());
        let Some(target) = self.targets.at(index) else { return };
        let (to, link, desire) = (target.shard, target.link, target.desire());
        // At its limit, or at its prefetch, it gets nothing more for now.
        let is_done = target.is_exhausted()
            || target.drains() && desire == Desire::Ready && !self.engine.request_pull(now, consumer);
        let drained = if is_done { target.drained() } else { None };
        let desire = target.desire();
        let delivery = RemoteDelivery { link, place, acquisition, counts, posted_at: now, message };
        self.peers.deliver(&mut self.effects, to, delivery);
        if desire != Desire::Ready {
            self.engine.set_notify_work_desired(now, consumer, desire);
        }
        if let Some(mail) = drained {
            self.post(to, Lane::Control, mail);
        }
    }

    /// Drains end with the part of their consumer in its queue.
    pub(crate) fn answer_unpulled(&mut self, now: u64) {
        while let Some(consumer) = self.engine.poll_unpulled() {
            if let Some(owner) = self.engine.owner(consumer) {
                self.on_nothing(now, consumer, owner);
            }
        }
    }

    /// A pull found nothing: if the peer had asked for a drain, it is done.
    fn on_nothing(&mut self, now: u64, consumer: ConsumerId, owner: u64) {
        match Owner::unpack(owner) {
            Owner::Connection { index, link } => {
                if let Some((slot, _)) = self.connections.at(index) {
                    self.finish_drain(now, slot, link);
                }
            }
            Owner::Target { index } => {
                let Some(target) = self.targets.at(index) else { return };
                let (to, link, news) = (target.shard, target.link, target.caught_up());
                let drained = target.drained();
                if news {
                    self.peers.behind_deliveries(&mut self.effects, to, Mail::CaughtUp { link });
                }
                if let Some(mail) = drained {
                    self.engine.set_notify_work_desired(now, consumer, Desire::Paused(PauseReason::NoCredit));
                    self.post(to, Lane::Control, mail);
                }
            }
        }
    }

    /// AMQP 1.0 §2.6.7: uses up the credit that is left and says so.
    pub(crate) fn finish_drain(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(consumer) = connection.consumer_mut(link)
            && consumer.draining
            // A message in parts is sent first; then the drain is tried again.
            && consumer.partial.is_none()
        {
            consumer.draining = false;
            let at = match consumer.at {
                ConsumerAt::Here(id) => Some(id),
                ConsumerAt::Nowhere(_) | ConsumerAt::Elsewhere(_) => None,
            };
            connection.protocol.drained(link);
            // It would acquire the next message only to give it back.
            let desire = desire_of(connection, link);
            if let Some(id) = at {
                self.engine.set_notify_work_desired(now, id, desire);
            }
            self.touch(slot);
        }
    }

    /// The peer's flow on a link on which we send.
    pub(crate) fn on_link_flow(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, drain: bool) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(link) else { return };
        consumer.draining = drain;
        let was_in = consumer.transaction.is_some();
        if (was_in || connection.protocol.transaction(link).is_some()) && !self.acquire_in(now, slot, link) {
            return;
        }
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(link) else { return };
        match &mut consumer.at {
            ConsumerAt::Nowhere(_) => {}
            ConsumerAt::Here(id) => {
                let id = *id;
                self.engine.flow_received(id);
            }
            ConsumerAt::Elsewhere(target) => target.flow_received(),
        }
        self.refresh_consumer(now, slot, link);
    }

    pub(crate) fn refresh_consumers(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let links = 0..connection.links.len() as u32;
        for link in links.map(LinkId) {
            self.refresh_consumer(now, slot, link);
        }
    }

    /// Tells whoever keeps the consumer whether its link is ready.
    pub(crate) fn refresh_consumer(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let desire = desire_of(connection, link);
        let blocked = connection.output_blocked;
        let credit = connection.protocol.credit(link);
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let draining = consumer.draining;
        if consumer.partial.is_some() && !blocked {
            self.line_up(slot, link);
        }
        let Some(consumer) = self.connections.get_mut(slot).and_then(|c| c.consumer_mut(link)) else {
            return;
        };
        match &consumer.at {
            ConsumerAt::Nowhere(_) => return,
            ConsumerAt::Here(id) => {
                let id = *id;
                self.engine.set_notify_work_desired(now, id, desire);
                if draining && desire == Desire::Ready && !self.engine.request_pull(now, id) {
                    self.finish_drain(now, slot, link);
                }
            }
            ConsumerAt::Elsewhere(_) => self.target_due(slot, link),
        }
        if draining && credit == 0 && desire == Desire::Paused(PauseReason::NoCredit) {
            self.finish_drain(now, slot, link);
        }
    }

    /// Whether a message can be written on the link now.
    pub(crate) fn is_ready(&mut self, slot: ConnectionSlot, link: LinkId) -> bool {
        self.connections.get_mut(slot).is_some_and(|connection| desire_of(connection, link) == Desire::Ready)
    }
}

/// Can a message be written on the link now?
#[inline(always)]
fn desire_of(connection: &Connection, link: LinkId) -> Desire {
    if connection.output_blocked {
        return Desire::Paused(PauseReason::Socket);
    }
    match connection.protocol.can_send(link) {
        SendReadiness::Ready => Desire::Ready,
        SendReadiness::NoCredit => Desire::Paused(PauseReason::NoCredit),
        SendReadiness::NoWindow => Desire::Paused(PauseReason::SessionWindow),
        SendReadiness::Busy => Desire::Paused(PauseReason::Partial),
        SendReadiness::Detached => Desire::Paused(PauseReason::Suspended),
    }
}

/// Writes a delivery to its session, or the first part of it.
pub(crate) fn write(
    scratch: &mut Scratch,
    now: u64,
    connection: &mut Connection,
    link: LinkId,
    message: &Message,
    (place, acquisition): (Place, Acquisition),
    counts: DeliveryCounts,
) -> Written {
    let token = Token(place.0, u64::from(stamp(now)) << 32 | u64::from(acquisition.0));
    let Connection { protocol: Protocol::Amqp10(protocol), links, transactions, .. } = connection else {
        return consume::write(&mut scratch.translator, connection, link, message, token, counts);
    };
    let Some(Some(Link::Consumer(consumer))) = links.get_mut(link.0 as usize) else {
        return Written::NotReady;
    };
    let head = &mut scratch.head;
    head.clear();
    message.encode_head(head, now, counts);
    let outgoing = Outgoing {
        token,
        settled: consumer.presettled,
        message_format: message.format(),
        head,
        rest: message.rest(),
    };
    let counted = consumer.is_counted();
    let transaction = consumer.transaction;
    let (delivery_id, written) = match protocol.send(link, &outgoing) {
        Progress::Complete { delivery_id, settled } => (delivery_id, Written::Whole { presettled: settled }),
        Progress::Partial { delivery_id, written } => {
            let written = written.saturating_sub(head.len());
            let copy = None;
            consumer.partial =
                Some(Partial { place, acquisition, written, copy, transaction, in_line: false });
            (delivery_id, Written::Part)
        }
        Progress::TooLarge => return Written::TooLarge,
        Progress::NotReady(_) => return Written::NotReady,
    };
    if counted {
        if let (Some(number), Some(transactions)) = (transaction, transactions) {
            let acquired = Acquired { transaction: number, place, acquisition };
            transactions.note_acquired(now, (link, delivery_id), acquired);
        }
        connection.note_written(link);
    }
    written
}
