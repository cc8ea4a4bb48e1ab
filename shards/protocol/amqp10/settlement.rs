//! What became of which delivery, and who knows it already?
//!
//! A received delivery is recorded until we have settled it, or the peer has; then nothing more is said about it. A sent
//! one is recorded until its outcome is told to the caller. Dispositions of ours gather into runs of consecutive numbers
//! with the same outcome, which become frames when the run breaks or the turn is finished.

use corelane_wire::amqp10::{
    DeliveryState, Disposition, Map, Modified, Outcome, Received, ReceiverSettleMode, Role, Value,
};

use crate::delivery::Disposed;
use crate::ids::{LinkId, Token};
use crate::serial;
use crate::unsettled::Position;

use super::connection::Connection;
use super::event::Event;
use super::ids::{DeliveryTag, TransactionId};
use super::link::{Epoch, LinkEnd};
use super::session::Session;

/// The property of a flow that names a transaction (§4.4.3).
pub(super) const TXN_ID: &str = "txn-id";

/// A received delivery that is unsettled.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) link: u32,
    pub(super) tag: DeliveryTag,
    pub(super) phase: ArrivedPhase,
}

/// AMQP 1.0 §2.8.3: who settles first?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrivedPhase {
    /// We do, together with the outcome.
    First,
    /// The peer does, when it knows our outcome.
    Second,
    /// The peer does, and our outcome is on its way.
    SecondAnswered,
    /// The same, but the outcome was one inside a transaction: another may follow it (§4.4.4).
    SecondProvisional,
}

/// A sent delivery that is unsettled. It is an orphan if the link in that slot has another epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) token: Token,
    pub(super) link: u32,
    pub(super) epoch: Epoch,
}

/// An outcome that says no more than its kind, so that deliveries can share one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Accepted,
    Rejected,
    Released,
    Modified {
        delivery_failed: bool,
        undeliverable_here: bool,
    },
    /// Accepted if this transaction commits.
    AcceptedIn(TransactionId),
    /// No state at all.
    None,
}

/// Consecutive deliveries with one outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    first: u32,
    last: u32,
    settled: bool,
    outcome: Plain,
}

/// A disposition of the peer that [`Connection::poll_outcome`] is telling of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disposing {
    session: usize,
    next: u32,
    last: u32,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The peer has settled.
    Forget,
    /// The outcome is final and the peer waits for us to settle (§2.6.12).
    Settle(Plain),
    /// The outcome depends on a transaction (§4.4.4).
    Keep,
}

impl Connection {
    /// Says what became of a received delivery. Nothing happens if the peer has settled it, or we have. Every message
    /// that arrives unsettled must be settled once, also when its link is detached meanwhile.
    #[inline]
    pub fn settle(&mut self, link: LinkId, delivery_id: u32, outcome: &DeliveryState<'_>) {
        let slot = link.slot();
        let Some(link) = self.links.get(slot) else { return };
        let index = link.session;
        let Some(session) = self.sessions.get_mut(index) else { return };
        let Some((position, arrived)) = session.arrived.find_mut(delivery_id) else { return };
        if arrived.link as usize != slot {
            return;
        }
        let settled = match arrived.phase {
            ArrivedPhase::First => true,
            // The peer's end is gone and will not settle any more.
            ArrivedPhase::Second | ArrivedPhase::SecondProvisional if link.is_detached() => true,
            ArrivedPhase::Second | ArrivedPhase::SecondProvisional => {
                let provisional = matches!(outcome, DeliveryState::Transactional { .. });
                arrived.phase =
                    if provisional { ArrivedPhase::SecondProvisional } else { ArrivedPhase::SecondAnswered };
                false
            }
            ArrivedPhase::SecondAnswered => return,
        };
        if settled {
            self.forget_arrived_at(slot, delivery_id, position);
        }
        if self.is_writable(index) {
            self.write_disposition(index, Role::Receiver, delivery_id, settled, Some(outcome));
        }
        if settled {
            self.reap_link(slot);
        }
    }

    /// Says that a received delivery is still worked on (§3.4.1). It stays unsettled.
    pub fn renew(&mut self, link: LinkId, delivery_id: u32) {
        let Some(index) = self.links.get(link.slot()).map(|link| link.session) else { return };
        let arrived = self.sessions.get(index).and_then(|session| session.arrived.find(delivery_id));
        if arrived.is_some_and(|arrived| arrived.link as usize == link.slot()) && self.is_writable(index) {
            let state = DeliveryState::Received(Received { section_number: 0, section_offset: 0 });
            self.write_disposition(index, Role::Receiver, delivery_id, false, Some(&state));
        }
    }

    /// Ends a sent delivery whose outcome was provisional ([`Disposed::settled`] false).
    pub fn settle_sent(&mut self, link: LinkId, delivery_id: u32, outcome: Option<&DeliveryState<'_>>) {
        let slot = link.slot();
        let Some(link) = self.links.get(slot) else { return };
        let index = link.session;
        if self.forget_sent(slot, delivery_id) && self.is_writable(index) {
            self.write_disposition(index, Role::Sender, delivery_id, true, outcome);
        }
    }

    /// Writes what became of deliveries now, instead of when the turn is finished: what is said next of others stays behind it.
    pub fn write_outcomes(&mut self) {
        for index in 0..self.dirty.len() {
            self.write_runs(self.dirty[index] as usize);
        }
    }

    /// After [`Event::Disposition`]: the next sent delivery that it means, in the order of sending, each only once. Those of a link that
    /// has ended on this side are among them until the peer's detach: what it said before may depend on a transaction (§4.4.4).
    #[inline]
    pub fn poll_outcome(&mut self) -> Option<Disposed> {
        loop {
            let disposing = self.disposing.as_mut()?;
            let (session, last) = (disposing.session, disposing.last);
            let sent = self.sessions.get(session).map(|session| &session.sent);
            let Some((position, delivery_id, &sent)) =
                sent.and_then(|sent| sent.next_in(disposing.next, last))
            else {
                self.disposing = None;
                return None;
            };
            let (settled, outcome) = match &disposing.then {
                Then::Forget => (true, None),
                Then::Settle(outcome) => (true, Some(*outcome)),
                Then::Keep => (false, None),
            };
            disposing.next = delivery_id.wrapping_add(1);
            if delivery_id == last {
                self.disposing = None;
            }
            let Sent { token, link, .. } = sent;
            let alive = self.is_alive(&sent);
            if settled || !alive {
                self.remove_sent(session, position, alive);
            }
            if !alive {
                continue;
            }
            if let Some(outcome) = outcome {
                self.gather(session, Role::Sender, delivery_id, true, outcome);
            }
            self.disposed_left = self.disposed_left.saturating_sub(1);
            return Some(Disposed { link: LinkId(link), token, delivery_id, settled });
        }
    }

    /// When [`poll_outcome`](Self::poll_outcome) has told of all: whether the disposition means others too, which are not unsettled any
    /// more or were never sent.
    #[inline]
    pub fn has_missed_outcomes(&self) -> bool {
        self.disposed_left > 0
    }

    #[inline]
    pub(super) fn handle_disposition<'a>(
        &mut self,
        session: usize,
        disposition: &Disposition<'a>,
    ) -> Option<Event<'a>> {
        let (first, last) = (disposition.first, disposition.last.unwrap_or(disposition.first));
        if serial::distance(first, last) < 0 {
            return None;
        }
        match disposition.role {
            Role::Sender => {
                // AMQP 1.0 §2.6.12: the peer has settled, so there is nothing left to say.
                if disposition.settled {
                    self.forget_arrived_in(session, first, last);
                }
                None
            }
            Role::Receiver => {
                let state = disposition.state;
                let then = match &state {
                    _ if disposition.settled => Then::Forget,
                    Some(DeliveryState::Transactional { .. }) => Then::Keep,
                    None => return None,
                    // Not final: the receiver is at work on it (§3.4.1).
                    Some(DeliveryState::Received(_)) => Then::Keep,
                    Some(outcome) => Then::Settle(Plain::of(outcome).unwrap_or(Plain::None)),
                };
                let disposing = Disposing { session, next: first, last, then };
                let is_known = self.sessions.get(session)?.sent.next_in(first, last).is_some();
                // Where nothing is unsettled there is nothing to tell, but that what a transaction was asked for cannot be done.
                if !is_known && !matches!(state, Some(DeliveryState::Transactional { .. })) {
                    return None;
                }
                self.disposing = is_known.then_some(disposing);
                self.disposed_left = last.wrapping_sub(first).saturating_add(1);
                Some(Event::Disposition { state, settled: disposition.settled })
            }
        }
    }

    /// Forgets a received delivery that is settled.
    #[inline]
    pub(super) fn forget_arrived(&mut self, slot: usize, delivery_id: u32) {
        let Some(session) = self.sessions.get_mut(self.links[slot].session) else { return };
        if let Some((position, _)) = session.arrived.find_mut(delivery_id) {
            self.forget_arrived_at(slot, delivery_id, position);
        }
    }

    #[inline]
    fn forget_arrived_at(&mut self, slot: usize, delivery_id: u32, position: Position) {
        let link = &mut self.links[slot];
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        let Some(arrived) = session.arrived.remove_at(position) else { return };
        if let LinkEnd::Receiver(receiver) = &mut link.end {
            receiver.unsettled -= 1;
            receiver.tags.remove(&arrived.tag, delivery_id);
        }
    }

    /// The peer's end is gone: where it was to settle after our outcome, it will not.
    pub(super) fn forget_answered(&mut self, slot: usize) {
        let link = &self.links[slot];
        if link.receiver_settle_mode == ReceiverSettleMode::First || link.received_unsettled() == 0 {
            return;
        }
        let Some(session) = self.sessions.get(link.session) else { return };
        let answered = |arrived: &Arrived| {
            let answered = [ArrivedPhase::SecondAnswered, ArrivedPhase::SecondProvisional];
            arrived.link as usize == slot && answered.contains(&arrived.phase)
        };
        let found = session.arrived.iter().filter(|(_, arrived)| answered(arrived));
        let found: Vec<u32> = found.map(|(delivery_id, _)| delivery_id).collect();
        found.into_iter().for_each(|delivery_id| self.forget_arrived(slot, delivery_id));
    }

    fn forget_arrived_in(&mut self, session: usize, first: u32, last: u32) {
        let mut next = first;
        while let Some((position, delivery_id, arrived)) = self.sessions[session].arrived.next_in(next, last)
        {
            let slot = arrived.link as usize;
            self.forget_arrived_at(slot, delivery_id, position);
            if let LinkEnd::Receiver(receiver) = &mut self.links[slot].end {
                let partial = receiver.partial.as_mut().filter(|partial| partial.delivery_id == delivery_id);
                if let Some(partial) = partial {
                    partial.recorded = false;
                    partial.settled = true;
                }
            }
            self.reap_link(slot);
            if delivery_id == last {
                return;
            }
            next = delivery_id.wrapping_add(1);
        }
    }

    /// Forgets a sent delivery of a link; whether it was still unsettled.
    pub(super) fn forget_sent(&mut self, slot: usize, delivery_id: u32) -> bool {
        let link = &self.links[slot];
        let index = link.session;
        let Some(session) = self.sessions.get_mut(index) else { return false };
        let found = session.sent.find_mut(delivery_id).filter(|(_, sent)| sent.epoch == link.epoch);
        let position = found.map(|(position, _)| position);
        if let Some(position) = position {
            self.remove_sent(index, position, true);
        }
        position.is_some()
    }

    /// The link is gone: nobody wants the outcomes of its deliveries any more. They are swept when they outnumber
    /// the others, so that no detach costs more than its own deliveries.
    pub(super) fn orphan_sent(&mut self, slot: usize) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        let link = &mut self.links[slot];
        let LinkEnd::Sender(sender) = &mut link.end else { return };
        let orphans = std::mem::take(&mut sender.unsettled);
        link.epoch = Epoch::new(self.epoch).unwrap_or(Epoch::MIN);
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        session.sent_orphans += orphans;
        if 2 * session.sent_orphans > session.sent.count() {
            let links = &self.links;
            session
                .sent
                .retain(|sent| links.get(sent.link as usize).is_some_and(|link| link.epoch == sent.epoch));
            session.sent_orphans = 0;
        }
    }

    /// Writes the dispositions that were gathered.
    pub(super) fn write_runs(&mut self, session: usize) {
        if !self.is_writable(session) {
            return;
        }
        for role in [Role::Receiver, Role::Sender] {
            if let Some(run) = self.sessions[session].run_of(role).take() {
                self.write_run(session, role, run);
            }
        }
    }

    fn is_alive(&self, sent: &Sent) -> bool {
        self.links.get(sent.link as usize).is_some_and(|link| link.epoch == sent.epoch)
    }

    #[inline]
    fn remove_sent(&mut self, session: usize, position: Position, alive: bool) {
        let session = &mut self.sessions[session];
        let Some(sent) = session.sent.remove_at(position) else { return };
        if !alive {
            session.sent_orphans -= 1;
        } else if let LinkEnd::Sender(sender) = &mut self.links[sent.link as usize].end {
            sender.unsettled -= 1;
        }
    }

    /// Gathers a disposition, or writes it at once if its state says more than a kind.
    fn write_disposition(
        &mut self,
        session: usize,
        role: Role,
        delivery_id: u32,
        settled: bool,
        state: Option<&DeliveryState<'_>>,
    ) {
        match state.map_or(Some(Plain::None), Plain::of) {
            Some(plain) => self.gather(session, role, delivery_id, settled, plain),
            None => {
                if let Some(run) = self.sessions[session].run_of(role).take() {
                    self.write_run(session, role, run);
                }
                let disposition = Disposition {
                    role,
                    first: delivery_id,
                    last: None,
                    settled,
                    state: state.copied(),
                    batchable: false,
                };
                self.write(session, &disposition);
            }
        }
    }

    #[inline]
    fn gather(&mut self, session: usize, role: Role, delivery_id: u32, settled: bool, outcome: Plain) {
        self.mark_dirty(session);
        let gathered = self.sessions[session].run_of(role);
        if let Some(run) = gathered
            && run.settled == settled
            && run.outcome == outcome
        {
            if delivery_id == run.last.wrapping_add(1) {
                run.last = delivery_id;
                return;
            }
            if delivery_id.wrapping_add(1) == run.first {
                run.first = delivery_id;
                return;
            }
        }
        let run = Run { first: delivery_id, last: delivery_id, settled, outcome };
        if let Some(done) = gathered.replace(run) {
            self.write_run(session, role, done);
        }
    }

    fn write_run(&mut self, session: usize, role: Role, run: Run) {
        let disposition = Disposition {
            role,
            first: run.first,
            last: (run.last != run.first).then_some(run.last),
            settled: run.settled,
            state: run.outcome.state(),
            batchable: false,
        };
        self.write(session, &disposition);
    }
}

impl Session {
    /// Whether outcomes of deliveries inside a transaction are gathered.
    #[inline]
    pub(super) fn has_transactional_run(&self) -> bool {
        self.run_as_receiver.is_some_and(|run| matches!(run.outcome, Plain::AcceptedIn(_)))
    }

    #[inline]
    fn run_of(&mut self, role: Role) -> &mut Option<Run> {
        match role {
            Role::Receiver => &mut self.run_as_receiver,
            Role::Sender => &mut self.run_as_sender,
        }
    }
}

impl Plain {
    #[inline]
    fn of(state: &DeliveryState<'_>) -> Option<Self> {
        match *state {
            DeliveryState::Accepted => Some(Self::Accepted),
            DeliveryState::Released => Some(Self::Released),
            DeliveryState::Rejected { error: None } => Some(Self::Rejected),
            DeliveryState::Modified(Modified {
                delivery_failed,
                undeliverable_here,
                message_annotations: None,
            }) => Some(Self::Modified { delivery_failed, undeliverable_here }),
            DeliveryState::Transactional { transaction, outcome: Some(Outcome::Accepted) } => {
                TransactionId::new(transaction).map(Self::AcceptedIn)
            }
            DeliveryState::Rejected { .. }
            | DeliveryState::Modified(_)
            | DeliveryState::Received(_)
            | DeliveryState::Declared { .. }
            | DeliveryState::Transactional { .. } => None,
        }
    }

    fn state(&self) -> Option<DeliveryState<'_>> {
        match *self {
            Self::Accepted => Some(DeliveryState::Accepted),
            Self::Rejected => Some(DeliveryState::Rejected { error: None }),
            Self::Released => Some(DeliveryState::Released),
            Self::Modified { delivery_failed, undeliverable_here } => {
                let modified = Modified { delivery_failed, undeliverable_here, message_annotations: None };
                Some(DeliveryState::Modified(modified))
            }
            Self::AcceptedIn(ref transaction) => {
                Some(DeliveryState::Transactional { transaction, outcome: Some(Outcome::Accepted) })
            }
            Self::None => None,
        }
    }
}

/// The transaction that a transfer is part of.
#[inline]
pub(super) fn transaction_of(state: Option<&DeliveryState<'_>>) -> Option<TransactionId> {
    match state {
        Some(DeliveryState::Transactional { transaction, .. }) => Some(transaction_id(transaction)),
        Some(
            DeliveryState::Received(_)
            | DeliveryState::Accepted
            | DeliveryState::Rejected { .. }
            | DeliveryState::Released
            | DeliveryState::Modified(_)
            | DeliveryState::Declared { .. },
        )
        | None => None,
    }
}

/// The transaction that a flow's properties put a link's deliveries under, or none any more; `None` if they say nothing about it
/// (§4.4.3).
pub(super) fn transaction_of_flow(properties: &Map<'_>) -> Option<Option<TransactionId>> {
    match properties.find(TXN_ID).ok()?? {
        Value::Null => Some(None),
        Value::Binary(transaction) => Some(Some(transaction_id(transaction))),
        _ => Some(Some(TransactionId::EMPTY)),
    }
}

/// An id longer than any can be is nobody's, and so is the empty one: the work it stands for must not be done without a
/// transaction.
fn transaction_id(transaction: &[u8]) -> TransactionId {
    TransactionId::new(transaction).unwrap_or(TransactionId::EMPTY)
}
