//! What becomes of deliveries that have to do with a transaction: those with an outcome inside it, and those sent inside it?
//!
//! An outcome that the peer settles goes to the queue's home, where the delivery is retired; rolled back, it returns to its place. An
//! outcome that the peer does not settle is noted until the transaction ends; rolled back, the delivery is still its consumer's. A
//! delivery that was sent inside a transaction goes back when that is rolled back, unless it has an outcome that says where to.
//!
//! AMQP 1.0 §4.4.2: an outcome belongs to the transaction that its delivery belongs to, if there is one. Who breaks that loses the
//! coordinator's link, and with it the transactions that were declared there.

use corelane_engine::{Acquisition, ConsumerId, Outcome, Place};
use corelane_protocol::amqp10::{Disposed, ErrorSpec, LinkId, Token};
use corelane_wire::amqp10::{DeliveryState, Map, Modified};

use crate::Shard;
use crate::connection::ConsumerAt;
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::limits::UNSETTLED_OUTCOME_WORK;
use crate::mail::{Retirement, Settlement, TIMED_OUT, TransactionKey, UNKNOWN_TRANSACTION};
use crate::settle::encoded;
use crate::transaction::{Acquired, DeliveryKey, Noted};

/// What a peer's disposition says.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    /// The open transaction it names.
    pub(crate) transaction: Option<u32>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) annotations: Option<Map<'a>>,
}

/// A delivery as its queue knows it.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    place: Place,
    acquisition: Acquisition,
    /// When it was written, if the time until now counts as its consumer's.
    stamp: Option<u32>,
}

impl Written {
    fn of(token: Token) -> Written {
        Written {
            place: Place(token.0),
            acquisition: Acquisition(token.1 as u32),
            stamp: Some((token.1 >> 32) as u32),
        }
    }

    /// One that its consumer has not settled.
    fn uncounted(place: Place, acquisition: Acquisition) -> Written {
        Written { place, acquisition, stamp: None }
    }
}

/// A delivery's way to whoever holds its entry.
#[derive(Clone, Copy)]
struct Held {
    shard: usize,
    consumer: ConsumerId,
    default_outcome: Option<Outcome>,
}

impl Shard {
    /// The peer has spoken about a delivery that has to do with a transaction, or inside one.
    pub(crate) fn dispose_in_transaction(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        disposed: &Disposed,
        said: Said<'_>,
    ) {
        let key = (disposed.link, disposed.delivery_id);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let has_ended = connection.consumer_mut(disposed.link).is_none();
        let Some(transactions) = connection.transactions.as_deref_mut() else { return };
        if has_ended {
            // The peer has not read our detach yet: the delivery is its queue's again, and without it the transaction cannot commit.
            if let Some(number) = said.transaction {
                transactions.fail(number, Failure::LinkEnded);
            }
            return;
        }
        let noted = transactions.noted.get(&key).map(|noted| noted.outcome);
        let is_acquired = transactions.acquired.contains_key(&key);
        let bound_open = transactions.open_of(key);
        let nothing_said = said.transaction.is_none() && said.outcome.is_none();
        if said.transaction.is_none()
            && let Some(noted) = transactions.noted.get_mut(&key)
            && bound_open.is_none()
        {
            // The discharge that is under way decides first.
            let returned = Outcome::Modified { delivery_failed: true, undeliverable_here: false };
            noted.otherwise = Some(said.outcome.unwrap_or(returned));
            self.count_settled(slot, disposed.link);
            return;
        }
        let breaks_rule = match (said.transaction, bound_open) {
            (Some(named), Some(bound)) => named != bound,
            (None, Some(_)) => is_acquired && !nothing_said,
            (_, None) => false,
        };
        if breaks_rule {
            self.break_off(now, slot, disposed, said.transaction.or(bound_open));
            return;
        }
        let in_transaction = said.transaction.or(if nothing_said { bound_open } else { None });
        let outcome = said.outcome.or(if nothing_said { noted } else { None });
        let said = Said { transaction: in_transaction, outcome, ..said };
        match in_transaction {
            Some(number) => self.dispose_inside(now, slot, disposed, number, said),
            // It was noted, and the peer thinks better of it; or the transaction it was about has ended.
            None => {
                transactions.withdraw_noted(key);
                transactions.forget_acquired(key);
                self.dispose_plainly(now, slot, disposed, said);
            }
        }
    }

    fn dispose_inside(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        disposed: &Disposed,
        number: u32,
        said: Said<'_>,
    ) {
        let Disposed { link, delivery_id, token, settled } = *disposed;
        let written = Written::of(token);
        let key = (link, delivery_id);
        let held = self.holder_of(slot, link);
        let Some(transactions) = self.transactions(slot) else { return };
        let room = transactions.find(number).is_some_and(|transaction| transaction.has_room());
        if settled {
            transactions.take_out(key, Some(number));
            self.count_settled(slot, link);
            if room {
                self.retire_delivery(now, slot, link, number, written, said);
            } else {
                let outcome = Outcome::Modified { delivery_failed: true, undeliverable_here: false };
                self.settle_delivery(now, slot, link, written, outcome, None);
            }
            return;
        }
        let Some(Held { shard, consumer, default_outcome }) = held else {
            // Nothing is held for a browser: there is nothing to wait for.
            if let Some(outcome) = said.outcome {
                self.settle_sent(slot, key, outcome);
            }
            return;
        };
        if room {
            let transaction = transactions.find(number);
            let annotations = transaction.and_then(|it| it.keep_annotations(said.annotations));
            let noted = Noted {
                transaction: number,
                shard,
                consumer,
                place: written.place,
                acquisition: written.acquisition,
                stamp: written.stamp,
                outcome: said.outcome.or(default_outcome).unwrap_or(Outcome::Released),
                annotations,
                otherwise: None,
            };
            transactions.note(now, key, noted);
        }
    }

    /// An outcome in no transaction.
    pub(crate) fn dispose_plainly(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        disposed: &Disposed,
        said: Said<'_>,
    ) {
        let Disposed { link, token, .. } = *disposed;
        self.count_settled(slot, link);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let outcome = said.outcome.or(consumer.default_outcome).unwrap_or(Outcome::Released);
        self.settle_delivery(now, slot, link, Written::of(token), outcome, said.annotations);
    }

    /// Outcomes in a transaction that took too long: what the peer settles goes back to its queue, as all of that transaction did. What
    /// it does not settle stays as it is.
    pub(crate) fn dispose_too_late(&mut self, now: u64, slot: ConnectionSlot) {
        let outcome = Some(Outcome::Modified { delivery_failed: true, undeliverable_here: false });
        let said = Said { transaction: None, outcome, annotations: None };
        while let Some(connection) = self.connections.get_mut(slot)
            && let Some(disposed) = connection.protocol.poll_outcome()
        {
            let key = (disposed.link, disposed.delivery_id);
            let transactions = connection.transactions.as_deref();
            let involved = transactions.is_some_and(|transactions| transactions.involves(key));
            let open = transactions.and_then(|transactions| transactions.open_of(key));
            self.turn.count_work(if disposed.settled { 0 } else { UNSETTLED_OUTCOME_WORK });
            match (open, disposed.settled) {
                // Not the one that took too long.
                (Some(_), _) => self.break_off(now, slot, &disposed, open),
                (None, false) => {}
                (None, true) if involved => self.dispose_in_transaction(now, slot, &disposed, said),
                (None, true) => self.dispose_plainly(now, slot, &disposed, said),
            }
        }
    }

    /// The peer has given one delivery to two transactions, or has taken it out of one.
    fn break_off(&mut self, now: u64, slot: ConnectionSlot, disposed: &Disposed, number: Option<u32>) {
        let Disposed { link, delivery_id, token, settled } = *disposed;
        if settled {
            // It has no other way back.
            if let Some(transactions) = self.transactions(slot) {
                transactions.take_out((link, delivery_id), None);
            }
            self.count_settled(slot, link);
            let outcome = Outcome::Modified { delivery_failed: true, undeliverable_here: false };
            self.settle_delivery(now, slot, link, Written::of(token), outcome, None);
        }
        let transaction = number
            .and_then(|number| self.transactions(slot).and_then(|transactions| transactions.find(number)));
        let Some(transaction) = transaction else { return };
        let coordinator = (transaction.coordinator, transaction.attachment);
        let description = "a delivery was given an outcome in another transaction than its own";
        self.end_coordinator(now, slot, coordinator, "amqp:transaction:rollback", description);
    }

    /// A delivery that the peer has settled, or that was sent settled, leaves its consumer until the transaction ends.
    pub(crate) fn retire_delivery(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        number: u32,
        written: Written,
        said: Said<'_>,
    ) {
        let Some(Held { shard, consumer, default_outcome }) = self.holder_of(slot, link) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let transaction = TransactionKey { connection: connection.id, number };
        let retirement = Retirement { transaction, failed_if_rolled_back: fails(default_outcome) };
        let kept = connection.transactions.as_deref_mut().and_then(|transactions| transactions.find(number));
        let annotations = kept.and_then(|kept| {
            kept.count_outcome();
            kept.keep_annotations(said.annotations)
        });
        let settlement = Settlement {
            consumer,
            place: written.place,
            acquisition: written.acquisition,
            outcome: said.outcome.or(default_outcome).unwrap_or(Outcome::Released),
            annotations,
            stamp: written.stamp,
            transaction: Some(retirement),
        };
        self.note_work(now, slot, number, shard, shard != self.index);
        if shard != self.index {
            self.peers.settle(shard, settlement);
        } else if !self.retire(now, settlement, retirement)
            && let Some(transactions) = self.transactions(slot)
        {
            transactions.fail(number, Failure::Late);
        }
    }

    /// A delivery was sent settled: its entry goes, now or with the transaction it was sent in.
    pub(crate) fn settle_presettled(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        (place, acquisition): (Place, Acquisition),
        transaction: Option<u32>,
    ) {
        let written = Written::uncounted(place, acquisition);
        let open = transaction.filter(|number| {
            let transactions = self.transactions(slot);
            transactions.is_some_and(|transactions| transactions.is_open(*number))
        });
        match open {
            Some(number) => {
                let said = Said { transaction: open, outcome: Some(Outcome::Accepted), annotations: None };
                self.retire_delivery(now, slot, link, number, written, said);
            }
            None => self.settle_delivery(now, slot, link, written, Outcome::Accepted, None),
        }
    }

    /// Tells whoever holds the entry.
    pub(crate) fn settle_delivery(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        Written { place, acquisition, stamp }: Written,
        outcome: Outcome,
        annotations: Option<Map<'_>>,
    ) {
        let Some(Held { shard, consumer, .. }) = self.holder_of(slot, link) else { return };
        if shard == self.index {
            if let Some(stamp) = stamp {
                self.note_settled(now, consumer, stamp);
            }
            if let Some(annotations) = annotations {
                self.annotate(consumer, place, acquisition, annotations);
            }
            self.settle_here(now, consumer, place, acquisition, outcome);
        } else {
            let annotations = annotations.map(encoded);
            let settlement =
                Settlement { annotations, stamp, ..Settlement::new(consumer, place, acquisition, outcome) };
            self.peers.settle(shard, settlement);
        }
    }

    /// The peer's flow has named a transaction for what the link sends, or none (AMQP 1.0 §4.4.3). False if the link ends for it.
    pub(crate) fn acquire_in(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let named = connection.protocol.transaction(link);
        let Some(consumer) = connection.consumer_mut(link) else { return false };
        let Some(id) = named else {
            consumer.transaction = None;
            return true;
        };
        let browse = consumer.browse;
        let transactions = connection.transactions.as_deref_mut();
        let closed = transactions.as_ref().map_or(UNKNOWN_TRANSACTION, |all| all.why_not_open(&id));
        let open = transactions.and_then(|transactions| transactions.open(&id));
        let error = match open {
            Some(transaction) if !browse => {
                transaction.acquires_on(link);
                let number = transaction.number;
                if let Some(consumer) = connection.consumer_mut(link) {
                    consumer.transaction = Some(number);
                }
                return true;
            }
            Some(_) => ("amqp:not-implemented", "a browser does not acquire what it is sent"),
            None => closed,
        };
        self.detach_acquirer(now, slot, link, error);
        false
    }

    /// Links that acquire in a transaction now.
    pub(crate) fn acquirers_of(&mut self, slot: ConnectionSlot, number: u32) -> Vec<LinkId> {
        let Some(connection) = self.connections.get_mut(slot) else { return Vec::new() };
        let transaction = connection.transactions.as_deref_mut().and_then(|list| list.find(number));
        let mut acquirers = transaction.map(|it| it.acquirers.clone()).unwrap_or_default();
        acquirers.retain(|link| {
            connection.consumer_mut(*link).is_some_and(|consumer| consumer.transaction == Some(number))
        });
        acquirers
    }

    /// The transaction that these links acquired in took too long, and the peer does not know: what it granted for that one would be
    /// used up outside of any, and on a link that sends settled that could not be taken back.
    pub(crate) fn detach_acquirers(&mut self, now: u64, slot: ConnectionSlot, acquirers: &[LinkId]) {
        for link in acquirers {
            self.detach_acquirer(now, slot, *link, TIMED_OUT);
        }
    }

    fn detach_acquirer(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        (condition, description): (&str, &str),
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.protocol.detach(link, true, Some(ErrorSpec { condition, description }));
        self.unbind(now, slot, link);
        self.touch(slot);
    }

    /// A link that has been sent all that its transaction may acquire ends, and the transaction can only roll back.
    pub(crate) fn bound_acquired(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let number = connection.consumer_mut(link).and_then(|consumer| consumer.transaction);
        let (Some(number), Some(transactions)) = (number, connection.transactions.as_deref_mut()) else {
            return;
        };
        if transactions.has_acquired_all(number) {
            transactions.fail(number, Failure::TooLarge);
            let description = "too many deliveries without an outcome in one transaction";
            self.detach_acquirer(now, slot, link, ("amqp:resource-limit-exceeded", description));
        }
    }

    /// What has become of deliveries that the peer had not settled when their transaction was decided.
    pub(crate) fn conclude_deliveries(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        number: u32,
        committed: bool,
    ) {
        let Some(transaction) = self.transactions(slot).and_then(|transactions| transactions.find(number))
        else {
            return;
        };
        let noted = std::mem::take(&mut transaction.noted);
        let acquired = std::mem::take(&mut transaction.acquired);
        let acquirers = std::mem::take(&mut transaction.acquirers);
        let aborted = if committed { Vec::new() } else { self.abort_parts(now, slot, number, &acquirers) };
        for key in noted {
            self.conclude_noted(now, slot, number, key, committed);
        }
        for key in acquired {
            let Some(transactions) = self.transactions(slot) else { return };
            let Some(acquired) = transactions.take_acquired(key, number) else { continue };
            // AMQP 1.0 §4.4.4: rolled back, the acquisition has not been.
            if !committed {
                let Acquired { place, acquisition, .. } = acquired;
                let written = Written::uncounted(place, acquisition);
                self.settle_delivery(now, slot, key.0, written, Outcome::Released, None);
                if !aborted.contains(&place) {
                    self.settle_sent(slot, key, Outcome::Released);
                }
            }
        }
        // The peer knows before the answer to its discharge what it still holds.
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.protocol.write_outcomes();
        }
        self.touch(slot);
    }

    fn conclude_noted(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        number: u32,
        key: DeliveryKey,
        committed: bool,
    ) {
        let Some(transactions) = self.transactions(slot) else { return };
        let Some(noted) = transactions.take_noted(key, number) else { return };
        let Noted { shard, consumer, place, acquisition, outcome, .. } = noted;
        if committed {
            transactions.forget_acquired(key);
            if noted.otherwise.is_none() {
                self.settle_sent(slot, key, outcome);
            }
        } else if let Some(outcome) = noted.otherwise {
            transactions.forget_acquired(key);
            if shard == self.index {
                self.settle_here(now, consumer, place, acquisition, outcome);
            } else {
                self.peers.settle(shard, Settlement::new(consumer, place, acquisition, outcome));
            }
        }
    }

    /// Messages that were sent in part inside a transaction on these links are not sent to their end; answers their places.
    pub(crate) fn abort_parts(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        number: u32,
        acquirers: &[LinkId],
    ) -> Vec<Place> {
        let mut aborted = Vec::new();
        for &link in acquirers {
            let Some(connection) = self.connections.get_mut(slot) else { return aborted };
            let Some(consumer) = connection.consumer_mut(link) else { continue };
            let Some(partial) = consumer.partial.as_ref() else { continue };
            if partial.transaction != Some(number) {
                continue;
            }
            let (place, acquisition, presettled) = (partial.place, partial.acquisition, consumer.presettled);
            aborted.push(place);
            connection.protocol.abort(link);
            self.part_ended(now, slot, link, false);
            if presettled {
                let written = Written::uncounted(place, acquisition);
                self.settle_delivery(now, slot, link, written, Outcome::Released, None);
            }
        }
        aborted
    }

    /// Settles a delivery that the peer has not.
    fn settle_sent(&mut self, slot: ConnectionSlot, (link, delivery_id): DeliveryKey, outcome: Outcome) {
        self.count_settled(slot, link);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.protocol.settle_sent(link, delivery_id, Some(&state_of(outcome)));
        self.touch(slot);
    }

    /// One delivery less that is written and not settled.
    fn count_settled(&mut self, slot: ConnectionSlot, link: LinkId) {
        if let Some(consumer) =
            self.connections.get_mut(slot).and_then(|connection| connection.consumer_mut(link))
        {
            consumer.unsettled = consumer.unsettled.saturating_sub(1);
        }
    }

    /// Where the entries are that a link's consumer holds; none for a browser, which holds none.
    fn holder_of(&mut self, slot: ConnectionSlot, link: LinkId) -> Option<Held> {
        let here = self.index;
        let consumer = self.connections.get_mut(slot)?.consumer_mut(link)?;
        let (shard, id) = match &consumer.at {
            ConsumerAt::Nowhere(_) => return None,
            ConsumerAt::Here(id) => (here, *id),
            ConsumerAt::Elsewhere(target) => (target.home, target.consumer),
        };
        let default_outcome = consumer.default_outcome;
        (!consumer.browse).then_some(Held { shard, consumer: id, default_outcome })
    }
}

/// Whether a delivery that its consumer has settled counts as failed when that is rolled back. AMQP 1.0 §4.4.4: the source's default
/// outcome is applied then; one that would take the message from its queue is not, since nobody has said that it was processed.
fn fails(default_outcome: Option<Outcome>) -> bool {
    match default_outcome {
        Some(Outcome::Released) => false,
        Some(Outcome::Modified { delivery_failed, .. }) => delivery_failed,
        Some(Outcome::Accepted | Outcome::Rejected) | None => true,
    }
}

fn state_of(outcome: Outcome) -> DeliveryState<'static> {
    match outcome {
        Outcome::Accepted => DeliveryState::Accepted,
        Outcome::Rejected => DeliveryState::Rejected { error: None },
        Outcome::Released => DeliveryState::Released,
        Outcome::Modified { delivery_failed, undeliverable_here } => DeliveryState::Modified(Modified {
            delivery_failed,
            undeliverable_here,
            message_annotations: None,
        }),
    }
}
