//! What becomes of a delivery when its consumer has spoken, and of a link's deliveries when it ends?
//!
//! An outcome goes to the queue that holds the entry, here or by mail. A delivery that is settled without an outcome has its
//! source's default outcome, or is released: the peer did not say that it was processed (AMQP 1.0 §3.5.3).

use corelane_engine::{self as engine, Acquisition, ConsumerId, Place, Settled, Stored};
use corelane_protocol::amqp10::{Disposed, ErrorSpec, LinkId};
use corelane_wire::amqp10::{DeliveryState, Encode, Map, Outcome};

use crate::Shard;
use crate::connection::{Connection, ConsumerAt, Link, Route};
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::limits::UNSETTLED_OUTCOME_WORK;
use crate::mail::{Ending, LinkRef, Mail, Renewal, Settlement, UNKNOWN_TRANSACTION};
use crate::retiring::Said;
use crate::statistics::since_stamp;

impl Shard {
    pub(crate) fn on_disposition(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        state: Option<DeliveryState<'_>>,
    ) {
        let (transaction, stated) = match state {
            Some(DeliveryState::Transactional { transaction, outcome }) => {
                let transactions = self.transactions(slot);
                let timed_out = transactions.as_ref().is_some_and(|all| all.is_timed_out(transaction));
                let open = transactions.and_then(|transactions| transactions.open(transaction));
                let Some(open) = open else {
                    if timed_out {
                        self.dispose_too_late(now, slot);
                    } else {
                        self.refuse_transaction(now, slot);
                    }
                    return;
                };
                (Some(open.number), outcome)
            }
            state => (None, state.and_then(|state| state.outcome())),
        };
        let annotations = stated.and_then(annotations_added);
        let stated = stated.as_ref().and_then(engine_outcome);
        loop {
            let Some(connection) = self.connections.get_mut(slot) else { return };
            let Some(disposed) = connection.protocol.poll_outcome() else { break };
            let key = (disposed.link, disposed.delivery_id);
            let involved = connection.transactions.as_deref().is_some_and(|list| list.involves(key));
            if transaction.is_some() || involved {
                self.turn.count_work(if disposed.settled { 0 } else { UNSETTLED_OUTCOME_WORK });
                let said = Said { transaction, outcome: stated, annotations };
                self.dispose_in_transaction(now, slot, &disposed, said);
                continue;
            }
            self.dispose(now, slot, &disposed, stated, annotations);
        }
        self.fail_if_missed(slot, transaction);
    }

    /// The peer has settled a delivery, outside transactions.
    #[inline(always)]
    pub(crate) fn dispose(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        disposed: &Disposed,
        stated: Option<engine::Outcome>,
        annotations: Option<Map<'_>>,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(disposed.link) else { return };
        consumer.unsettled = consumer.unsettled.saturating_sub(1);
        let outcome = stated.or(consumer.default_outcome).unwrap_or(engine::Outcome::Released);
        let place = Place(disposed.token.0);
        let acquisition = Acquisition(disposed.token.1 as u32);
        let stamp = (disposed.token.1 >> 32) as u32;
        match &consumer.at {
            ConsumerAt::Here(_) | ConsumerAt::Elsewhere(_) if consumer.browse => {}
            ConsumerAt::Nowhere(_) => {}
            ConsumerAt::Here(id) => {
                let id = *id;
                self.note_settled(now, id, stamp);
                if let Some(annotations) = annotations {
                    self.annotate(id, place, acquisition, annotations);
                }
                self.settle_here(now, id, place, acquisition, outcome);
            }
            ConsumerAt::Elsewhere(target) => {
                let (home, consumer) = (target.home, target.consumer);
                let annotations = annotations.map(encoded);
                let stamp = Some(stamp);
                let settlement = Settlement {
                    annotations,
                    stamp,
                    ..Settlement::new(consumer, place, acquisition, outcome)
                };
                self.peers.settle(home, settlement);
            }
        }
    }

    /// A transaction cannot commit if an outcome in it was for a delivery that is not unsettled.
    fn fail_if_missed(&mut self, slot: ConnectionSlot, transaction: Option<u32>) {
        let Some(number) = transaction else { return };
        if let Some(Connection { protocol, transactions: Some(transactions), .. }) =
            self.connections.get_mut(slot)
            && protocol.has_missed_outcomes()
        {
            transactions.fail(number, Failure::NotUnsettled);
        }
    }

    /// Outcomes inside a transaction that is not open: the links that they are about end (AMQP 1.0 §4.5.8).
    fn refuse_transaction(&mut self, now: u64, slot: ConnectionSlot) {
        let (condition, description) = UNKNOWN_TRANSACTION;
        while let Some(connection) = self.connections.get_mut(slot)
            && let Some(disposed) = connection.protocol.poll_outcome()
        {
            connection.protocol.detach(disposed.link, true, Some(ErrorSpec { condition, description }));
            self.unbind(now, slot, disposed.link);
        }
    }

    /// The peer is still at work on deliveries: their ack deadlines start anew.
    pub(crate) fn renew_deliveries(&mut self, now: u64, slot: ConnectionSlot) {
        while let Some(connection) = self.connections.get_mut(slot)
            && let Some(disposed) = connection.protocol.poll_outcome()
        {
            let Some(consumer) = connection.consumer_mut(disposed.link) else { continue };
            let (place, acquisition) = (Place(disposed.token.0), Acquisition(disposed.token.1 as u32));
            self.turn.count_work(UNSETTLED_OUTCOME_WORK);
            match &consumer.at {
                ConsumerAt::Nowhere(_) => {}
                ConsumerAt::Here(id) => {
                    let renewal = Renewal { consumer: *id, place, acquisition };
                    self.renew_here(now, renewal);
                }
                ConsumerAt::Elsewhere(target) => {
                    let renewal = Renewal { consumer: target.consumer, place, acquisition };
                    self.peers.renew(target.home, renewal);
                }
            }
        }
    }

    pub(crate) fn renew_here(&mut self, now: u64, renewal: Renewal) {
        let Renewal { consumer, place, acquisition } = renewal;
        match self.engine.renew(now, consumer, place, acquisition) {
            Settled::Done => {}
            Settled::Late => self.counters.settlements_late += 1,
        }
    }

    /// Counts the time from a delivery, by its stamp, to its settlement.
    pub(crate) fn note_settled(&mut self, now: u64, consumer: ConsumerId, stamp: u32) {
        if let Some(queue) = self.engine.queue_of(consumer) {
            self.statistics.note_settled(now, queue, since_stamp(now, stamp));
        }
    }

    /// Tells the queue of this shard.
    pub(crate) fn settle_here(
        &mut self,
        now: u64,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
        outcome: engine::Outcome,
    ) {
        match self.engine.settle(now, consumer, place, acquisition, outcome) {
            Settled::Done => {}
            Settled::Late => self.counters.settlements_late += 1,
        }
    }

    /// AMQP 1.0 §3.4.5: the annotations of a modified outcome are added to the message's.
    pub(crate) fn annotate(
        &mut self,
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
        map: Map<'_>,
    ) {
        let memory_left = self.memory_left();
        match self.engine.message_mut(consumer, place, acquisition) {
            Some(Stored::Here(message)) => {
                if let Some(before) = message.annotate(map, memory_left) {
                    // It has bytes of its own now, whoever shared the others.
                    self.memory_used += message.memory();
                    self.forget(before);
                }
            }
            Some(Stored::Away(_)) => {
                if let Some(queue) = self.engine.queue_of(consumer) {
                    self.annotate_when_read(queue, place, encoded(map));
                }
            }
            None => {}
        }
    }

    /// `closed`: the peer has closed the link's terminus.
    pub(crate) fn on_detached(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, closed: bool) {
        self.end_link(now, slot, link, closed);
        self.touch(slot);
    }

    /// A link has ended: its consumer is closed; a producer stays until all its messages are answered.
    pub(crate) fn unbind(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        self.end_link(now, slot, link, false);
    }

    fn end_link(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, closed: bool) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let id = connection.id;
        match connection.link_mut(link) {
            None => {}
            Some(Link::Producer(producer)) => {
                producer.detached = true;
                let dynamic = producer.dynamic.take();
                let channel = (producer.route == Route::Exchange).then_some(producer.attachment);
                if let Some(attachment) = channel {
                    self.coordinator_ended(now, slot, attachment);
                }
                self.forget_producer(now, slot, link);
                self.release_detached(slot, link);
                if let Some(node) = dynamic {
                    self.delete_dynamic(now, node);
                }
            }
            Some(Link::Coordinator(coordinator)) => {
                let attachment = coordinator.attachment;
                connection.unbind(link);
                self.coordinator_ended(now, slot, attachment);
            }
            Some(Link::Consumer(_)) => {
                if let Some(transactions) = connection.transactions.as_deref_mut() {
                    transactions.forget_link(link, Failure::LinkEnded);
                }
                let Some(Link::Consumer(consumer)) = connection.unbind(link) else { return };
                let was_seen = consumer.was_seen();
                let (is_counted, gets) = (consumer.is_one_of_the_queue(), consumer.gets());
                match consumer.at {
                    ConsumerAt::Nowhere(pending) => {
                        let link = LinkRef { connection: id, link, attachment: consumer.attachment };
                        if closed && pending.request.subscription.is_some_and(|terms| terms.durable) {
                            self.end_subscription_anywhere(now, &pending.request.queue, link);
                        }
                    }
                    ConsumerAt::Here(id) => {
                        self.getters -= u32::from(gets);
                        self.close_consumer_here(now, id, (was_seen, closed), is_counted);
                    }
                    ConsumerAt::Elsewhere(target) => {
                        connection.targets -= 1;
                        let mail = Mail::CloseConsumer { consumer: target.consumer, was_seen, closed };
                        self.peers.control(&mut self.effects, target.home, mail);
                    }
                }
                if let Some(node) = consumer.dynamic {
                    self.delete_dynamic(now, node);
                }
            }
            Some(Link::Unsubscriber(_)) => {
                let Some(Link::Unsubscriber(unsubscriber)) = connection.unbind(link) else { return };
                let link = LinkRef { connection: id, link, attachment: unsubscriber.attachment };
                if let (true, true, Some(name)) = (closed, unsubscriber.found, unsubscriber.names.last()) {
                    self.end_subscription_anywhere(now, name, link);
                }
            }
        }
    }

    /// What the consumer holds goes back. The oldest delivery counts as failed if the peer may have seen it: it is the one the
    /// peer may have failed on.
    pub(crate) fn close_consumer_here(
        &mut self,
        now: u64,
        consumer: ConsumerId,
        (was_seen, closed): (bool, bool),
        is_counted: bool,
    ) {
        let oldest_written = if was_seen { self.engine.oldest_held(consumer) } else { None };
        let queue = self.engine.explain(consumer).map(|view| view.queue);
        self.engine.close_consumer(now, consumer, oldest_written);
        match queue {
            Some(queue) if is_counted => self.note_consumer_closed(now, queue, closed),
            Some(queue) => self.note_unused(now, queue),
            None => {}
        }
    }

    /// Forgets a detached producer to which nothing is owed any more.
    pub(crate) fn release_detached(&mut self, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(producer) = connection.producer_mut(link)
            && producer.detached
            && producer.unanswered == 0
        {
            connection.unbind(link);
        }
    }

    pub(crate) fn on_consumer_gone(&mut self, link: LinkRef, ending: Ending) {
        if let Some((slot, link)) = self.target_link(link) {
            self.end_consumer_link(slot, link, ending);
        }
    }

    pub(crate) fn end_consumer_link(&mut self, slot: ConnectionSlot, link: LinkId, ending: Ending) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        // The consumer is gone already.
        if let Some(Link::Consumer(consumer)) = connection.unbind(link) {
            if let Some(transactions) = connection.transactions.as_deref_mut() {
                transactions.forget_link(link, Failure::QueueGone);
            }
            connection.targets -= u32::from(matches!(consumer.at, ConsumerAt::Elsewhere(_)));
            self.getters -= u32::from(matches!(consumer.at, ConsumerAt::Here(_)) && consumer.gets());
        }
        let (condition, description) = match ending {
            Ending::Deleted => ("amqp:resource-deleted", "the queue was deleted"),
            Ending::Stolen => ("amqp:link:stolen", "the subscription's link was attached elsewhere"),
        };
        let error = ErrorSpec { condition, description };
        connection.protocol.end_consumer(link, error);
        self.touch(slot);
    }
}

/// What an outcome adds to its message's annotations.
fn annotations_added(outcome: Outcome<'_>) -> Option<Map<'_>> {
    match outcome {
        Outcome::Modified(modified) => modified.message_annotations,
        Outcome::Accepted | Outcome::Rejected { .. } | Outcome::Released | Outcome::Declared { .. } => None,
    }
}

/// An outcome as the engine knows it; `None` for one that only transactions have.
pub(crate) fn engine_outcome(outcome: &Outcome<'_>) -> Option<engine::Outcome> {
    match outcome {
        Outcome::Accepted => Some(engine::Outcome::Accepted),
        Outcome::Rejected { .. } => Some(engine::Outcome::Rejected),
        Outcome::Released => Some(engine::Outcome::Released),
        Outcome::Modified(modified) => Some(engine::Outcome::Modified {
            delivery_failed: modified.delivery_failed,
            undeliverable_here: modified.undeliverable_here,
        }),
        Outcome::Declared { .. } => None,
    }
}

pub(crate) fn encoded(map: Map<'_>) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(map.elements().len() + 9);
    map.encode(&mut bytes);
    bytes.into()
}
