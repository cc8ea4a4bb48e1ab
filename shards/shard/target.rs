//! How does a consumer work whose connection lives on another shard than its queue?
//!
//! The connection's shard *lends*: it tells the queue's home up to which delivery (a count since the consumer attached) it can
//! write, never more than the peer's credit. The home delivers against the loan; deliveries are written as they arrive. When
//! the socket or the session's window blocks, the loan is *recalled*: the home answers how many deliveries it had posted, all
//! up to that number come back to the queue unwritten, and only then something is lent again. So order is kept, and a message
//! is never stuck behind a peer that does not read. What came back, for whatever reason, is not overtaken: the loan is recalled.
//!
//! A shard that acknowledges nothing for too long is suspected, and a little later given up: its deliveries go to others.
//!
//! Invariants, all serial numbers:
//! - here (connection's side): `acknowledged ≤ received ≤ limit`, and while lending `limit ≤ received + credit`;
//! - there (home): `acknowledged ≤ posted`, and `posted ≤ limit` when the latest loan has been applied;
//! - a delivery that arrives in a recall, or older than half the recall time-out, is never written; so when the home takes
//!   back what a stalled shard has not acknowledged, that shard does not write it later.

use std::collections::VecDeque;

use corelane_engine::{Acquisition, ConsumerId, Desire, Outcome, PauseReason, Place, QueueId};
use corelane_mailbox::Lane;
use corelane_protocol::amqp10::LinkId;
use corelane_wire::amqp10::Map;
use slab::Slab;

use crate::Shard;
use crate::connection::{ConsumerAt, DynamicNode};
use crate::deliver::{Owner, Written};
use crate::event::ConnectionSlot;
use crate::limits::{RECALL_GRACE_US, RECALL_TIMEOUT_US, TARGET_BYTES_MAX, TARGET_MESSAGES_MAX};
use crate::mail::{Answer, ConsumeRequest, LinkRef, Loan, Mail, Refusal, RemoteDelivery, Settlement};
use crate::participant::RetirementAnswers;
use crate::subscription::Claim;
use crate::topology::Change;

/// The connection's side.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) home: usize,
    pub(crate) consumer: ConsumerId,
    received: u32,
    limit: u32,
    /// What the home was last told.
    acknowledged: u32,
    epoch: u32,
    state: TargetState,
    /// Deliveries to a browser that could not be written: nobody else wants them back.
    staged: VecDeque<RemoteDelivery>,
    /// On the list of targets whose home is to be told something when the turn ends.
    due: bool,
    /// A flow arrived since the last loan.
    flow: bool,
    /// A delivery was returned since something was last lent: a drain that met it is not done.
    returned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    Lending,
    /// The home has yet to answer, or deliveries it had posted have yet to arrive.
    Recalling {
        posted: Option<u32>,
    },
    Draining {
        posted: Option<u32>,
    },
}

impl Target {
    pub(crate) fn new(home: usize, consumer: ConsumerId) -> Self {
        Target {
            home,
            consumer,
            received: 0,
            limit: 0,
            acknowledged: 0,
            epoch: 0,
            state: TargetState::Lending,
            staged: VecDeque::new(),
            due: false,
            flow: false,
            returned: false,
        }
    }

    pub(crate) fn flow_received(&mut self) {
        self.flow = true;
    }

    /// What to tell the home, if anything. `credit` is what may be lent now; 0 when the link is not ready.
    fn next_loan(&mut self, credit: u32, ready: bool, draining: bool) -> Option<Loan> {
        let outstanding = self.limit.wrapping_sub(self.received);
        let recall = match self.state {
            TargetState::Recalling { .. } => false,
            // What came back is not overtaken by what is on its way behind it.
            TargetState::Draining { .. } => self.returned,
            TargetState::Lending => self.returned || (outstanding > 0 && (!ready || credit < outstanding)),
        };
        let answer = match self.state {
            _ if recall => {
                self.epoch = self.epoch.wrapping_add(1);
                self.limit = self.received;
                self.state = TargetState::Recalling { posted: None };
                Answer::Recall { epoch: self.epoch }
            }
            TargetState::Recalling { .. } | TargetState::Draining { .. } => Answer::Never,
            TargetState::Lending if ready && draining && self.staged.is_empty() => {
                self.epoch = self.epoch.wrapping_add(1);
                self.limit = self.received.wrapping_add(credit.min(TARGET_MESSAGES_MAX));
                self.state = TargetState::Draining { posted: None };
                Answer::Drain { epoch: self.epoch }
            }
            TargetState::Lending => {
                let lendable =
                    if ready && self.staged.is_empty() { credit.min(TARGET_MESSAGES_MAX) } else { 0 };
                if lendable > outstanding && (outstanding < TARGET_MESSAGES_MAX / 2 || self.flow) {
                    self.limit = self.received.wrapping_add(lendable);
                } else if self.acknowledged == self.received && !self.flow {
                    return None;
                }
                Answer::Never
            }
        };
        if answer == Answer::Never
            && !matches!(self.state, TargetState::Lending)
            && self.acknowledged == self.received
        {
            return None;
        }
        self.acknowledged = self.received;
        let flow = std::mem::take(&mut self.flow);
        let is_asked = answer != Answer::Never || self.state == TargetState::Lending;
        Some(Loan { limit: is_asked.then_some(self.limit), acknowledged: self.received, answer, flow })
    }

    /// Ends a recall or a drain whose deliveries have all arrived. True if a drain has ended.
    fn conclude(&mut self) -> bool {
        let (posted, drained) = match self.state {
            TargetState::Lending => return false,
            TargetState::Recalling { posted } => (posted, false),
            TargetState::Draining { posted } => (posted, true),
        };
        if posted != Some(self.received) {
            return false;
        }
        self.limit = self.received;
        self.state = TargetState::Lending;
        let returned = std::mem::take(&mut self.returned);
        drained && !returned && self.staged.is_empty()
    }
}

/// The home's side: its consumers whose connections live elsewhere.
#[derive(Debug)]
pub(crate) struct HomeTargets {
    slab: Slab<HomeTarget>,
    /// When to look whether a target has acknowledged, the earliest first. A look comes within two time-outs.
    checks: VecDeque<(u64, ConsumerId)>,
    /// When to give those up that are overdue, the earliest first.
    suspects: VecDeque<(u64, ConsumerId)>,
}

#[derive(Debug)]
pub(crate) struct HomeTarget {
    pub(crate) link: LinkRef,
    pub(crate) shard: usize,
    pub(crate) consumer: ConsumerId,
    limit: u32,
    posted: u32,
    acknowledged: u32,
    drain: Option<u32>,
    unacknowledged: VecDeque<Unacknowledged>,
    unacknowledged_bytes: usize,
    check_due: bool,
    browse: bool,
    /// Of a channel: it takes single messages.
    pub(crate) gets: bool,
    /// Of a channel: it gets nothing more.
    is_cancelled: bool,
    /// How many were posted when the queue last had nothing more.
    caught_up: u32,
}

#[derive(Debug)]
struct Unacknowledged {
    place: Place,
    acquisition: Acquisition,
    bytes: usize,
    posted_at: u64,
}

impl HomeTargets {
    pub(crate) fn new() -> Self {
        HomeTargets { slab: Slab::new(), checks: VecDeque::new(), suspects: VecDeque::new() }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        [&self.checks, &self.suspects].into_iter().filter_map(|line| Some(line.front()?.0)).min()
    }

    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut HomeTarget> {
        self.slab.get_mut(index as usize)
    }

    /// Forgets a target whose consumer goes.
    pub(crate) fn remove(&mut self, index: u32) -> Option<HomeTarget> {
        self.slab.try_remove(index as usize)
    }

    /// Notes a delivery that is about to be posted, and says what the consumer may do next.
    pub(crate) fn note_posted(
        &mut self,
        now: u64,
        index: u32,
        place: Place,
        acquisition: Acquisition,
        bytes: usize,
    ) {
        let Some(target) = self.slab.get_mut(index as usize) else { return };
        target.posted = target.posted.wrapping_add(1);
        target.unacknowledged.push_back(Unacknowledged { place, acquisition, bytes, posted_at: now });
        target.unacknowledged_bytes += bytes;
        if !target.check_due {
            target.check_due = true;
            self.checks.push_back((now + RECALL_TIMEOUT_US, target.consumer));
        }
    }
}

impl HomeTarget {
    pub(crate) fn desire(&self) -> Desire {
        if self.limit.wrapping_sub(self.posted) as i32 <= 0 {
            Desire::Paused(PauseReason::NoCredit)
        } else if self.unacknowledged_bytes >= TARGET_BYTES_MAX {
            Desire::Paused(PauseReason::Lane)
        } else {
            Desire::Ready
        }
    }

    /// A drain was asked for and is not answered.
    pub(crate) fn drains(&self) -> bool {
        self.drain.is_some()
    }

    /// The answer to a drain that has come to its end. Nothing follows until something is lent again: the answer says how much was
    /// posted, and is waited for on the other side.
    pub(crate) fn drained(&mut self) -> Option<Mail> {
        let epoch = self.drain.take()?;
        self.limit = self.posted;
        Some(Mail::Lent { link: self.link, epoch, posted: self.posted })
    }

    /// A pull found nothing. True if that is news to the connection's shard.
    pub(crate) fn caught_up(&mut self) -> bool {
        std::mem::replace(&mut self.caught_up, self.posted) != self.posted
    }

    /// The limit is reached: a drain ends with it.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.limit == self.posted
    }

    /// Whether the oldest delivery has waited too long for its acknowledgement; none if none waits.
    fn overdue(&self, now: u64) -> Option<bool> {
        let oldest = self.unacknowledged.front()?;
        Some(now >= oldest.posted_at + RECALL_TIMEOUT_US)
    }

    fn acknowledge(&mut self, up_to: u32) {
        while (up_to.wrapping_sub(self.acknowledged) as i32) > 0 && self.acknowledged != self.posted {
            self.acknowledged = self.acknowledged.wrapping_add(1);
            if let Some(first) = self.unacknowledged.pop_front() {
                self.unacknowledged_bytes -= first.bytes;
            }
        }
    }
}

/// Home's side.
impl Shard {
    pub(crate) fn on_consume(&mut self, now: u64, from: usize, link: LinkRef, request: &ConsumeRequest) {
        if let Some(terms) = &request.subscription {
            let claim = Claim { shard: from, link, priority: request.priority };
            self.subscribe(now, claim, &request.queue, (**terms).clone());
            return;
        }
        let result = self.attach_named_target(now, from, link, request);
        self.post(from, Lane::Control, Mail::Consuming { link, result });
    }

    pub(crate) fn attach_target(
        &mut self,
        now: u64,
        from: usize,
        link: LinkRef,
        queue: QueueId,
        request: &ConsumeRequest,
    ) -> Result<ConsumerId, Refusal> {
        let index = self.targets.slab.vacant_key() as u32;
        let spec = request.spec(Owner::Target { index }.pack())?;
        let consumer = self.attach_to_queue(now, queue, spec)?;
        self.insert_target(from, link, consumer, request);
        Ok(consumer)
    }

    /// The same, of a queue by its name.
    fn attach_named_target(
        &mut self,
        now: u64,
        from: usize,
        link: LinkRef,
        request: &ConsumeRequest,
    ) -> Result<ConsumerId, Refusal> {
        let index = self.targets.slab.vacant_key() as u32;
        let spec = request.spec(Owner::Target { index }.pack())?;
        let (_, consumer) = self.attach_to_named(now, link.connection, request, spec)?;
        self.insert_target(from, link, consumer, request);
        Ok(consumer)
    }

    fn insert_target(&mut self, from: usize, link: LinkRef, consumer: ConsumerId, request: &ConsumeRequest) {
        let browse = request.browse;
        self.targets.slab.insert(HomeTarget {
            link,
            shard: from,
            consumer,
            limit: 0,
            posted: 0,
            acknowledged: 0,
            drain: None,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            check_due: false,
            browse,
            gets: request.channel.is_some_and(|terms| terms.gets),
            is_cancelled: false,
            caught_up: 0,
        });
    }

    /// The target that a consumer belongs to; none if it is closed.
    fn target_of(&mut self, consumer: ConsumerId) -> Option<&mut HomeTarget> {
        match Owner::unpack(self.engine.owner(consumer)?) {
            Owner::Target { index } => self.targets.at(index),
            Owner::Connection { .. } => None,
        }
    }

    pub(crate) fn on_lend(&mut self, now: u64, consumer: ConsumerId, loan: Loan) {
        let Some(target) = self.target_of(consumer) else { return };
        target.acknowledge(loan.acknowledged);
        target.limit = loan.limit.unwrap_or(target.limit);
        let desire = target.desire();
        let mut answer = None;
        match loan.answer {
            Answer::Never => {}
            Answer::Recall { epoch } => {
                target.drain = None;
                answer = Some(Mail::Lent { link: target.link, epoch, posted: target.posted });
            }
            Answer::Drain { epoch } => {
                target.drain = Some(epoch);
                if target.is_exhausted() {
                    answer = target.drained();
                }
            }
        }
        let to = target.shard;
        let pull = target.drain.is_some();
        let gets = target.gets && loan.flow;
        if loan.flow {
            self.engine.flow_received(consumer);
        }
        if gets && let Some(queue) = self.engine.queue_of(consumer) {
            self.note_used(now, queue);
        }
        self.engine.set_notify_work_desired(now, consumer, desire);
        // Paused for its unacknowledged bytes it goes on when they are acknowledged, and is asked to pull again then.
        let blocked = pull && desire == Desire::Ready && !self.engine.request_pull(now, consumer);
        if let (true, Some(target)) = (blocked, self.target_of(consumer)) {
            answer = answer.or(target.drained());
            let desire = target.desire();
            self.engine.set_notify_work_desired(now, consumer, desire);
        }
        if let Some(mail) = answer {
            self.post(to, Lane::Control, mail);
        }
    }

    pub(crate) fn on_settle(&mut self, now: u64, from: usize, mut settlements: Vec<Settlement>) {
        let mut answers = RetirementAnswers::default();
        for settlement in settlements.drain(..) {
            if let Some(retirement) = settlement.transaction {
                let retired = self.retire(now, settlement, retirement);
                answers.note(retirement.transaction, retired);
                continue;
            }
            let Settlement { consumer, place, acquisition, outcome, annotations, stamp, .. } = settlement;
            if let Some(stamp) = stamp {
                self.note_settled(now, consumer, stamp);
            }
            if let Some(map) = annotations.as_deref().and_then(|bytes| Map::decode(bytes).ok()) {
                self.annotate(consumer, place, acquisition, map);
            }
            self.settle_here(now, consumer, place, acquisition, outcome);
        }
        self.peers.reuse_settlements(settlements);
        self.answer_retirements(from, answers);
    }

    /// The link of a consumer whose connection lives elsewhere.
    pub(crate) fn target_link_of(&mut self, consumer: ConsumerId) -> Option<LinkRef> {
        Some(self.target_of(consumer)?.link)
    }

    pub(crate) fn on_close_consumer(&mut self, now: u64, consumer: ConsumerId, was_seen: bool, closed: bool) {
        if let Some(Owner::Target { index }) = self.engine.owner(consumer).map(Owner::unpack) {
            let target = self.targets.remove(index);
            let (gets, is_cancelled) = target.map_or((false, false), |it| (it.gets, it.is_cancelled));
            self.getters -= u32::from(gets);
            let is_counted = !gets && !is_cancelled;
            self.close_consumer_here(now, consumer, (was_seen, closed), is_counted);
        }
    }

    pub(crate) fn on_consumer_cancelled(&mut self, now: u64, consumer: ConsumerId) {
        if let Some(target) = self.target_of(consumer) {
            target.is_cancelled = true;
            if let Some(queue) = self.engine.queue_of(consumer) {
                self.note_consumer_closed(now, queue, false);
            }
        }
    }

    /// Whether a consumer takes single messages, and is told how many are left.
    pub(crate) fn is_getter(&mut self, consumer: ConsumerId) -> bool {
        match self.engine.owner(consumer).map(Owner::unpack) {
            Some(Owner::Target { index }) => self.targets.at(index).is_some_and(|target| target.gets),
            Some(Owner::Connection { index, link }) => {
                let connection = self.connections.at(index);
                connection.and_then(|(_, it)| it.consumer_mut(link)).is_some_and(|consumer| consumer.gets())
            }
            None => false,
        }
    }

    /// Takes back what was posted to shards that have not acknowledged it for too long.
    ///
    /// It may be this shard that stood still, with the acknowledgements in its lanes. So a target is suspected first, and given up a
    /// little later, when this shard has had turns enough to take its mail.
    pub(crate) fn recall_from_stalled(&mut self, now: u64) {
        while let Some(consumer) = due(&mut self.targets.checks, now).map(|(_, consumer)| consumer) {
            let Some(target) = self.target_of(consumer) else { continue };
            match target.overdue(now) {
                None => target.check_due = false,
                Some(false) => self.targets.checks.push_back((now + RECALL_TIMEOUT_US, consumer)),
                Some(true) => self.targets.suspects.push_back((now + RECALL_GRACE_US, consumer)),
            }
        }
        while let Some((at, consumer)) = due(&mut self.targets.suspects, now) {
            let Some(target) = self.target_of(consumer) else { continue };
            match target.overdue(now) {
                None => target.check_due = false,
                Some(false) => self.targets.checks.push_back((now + RECALL_TIMEOUT_US, consumer)),
                // Late again.
                Some(true) if now - at > RECALL_GRACE_US => {
                    self.targets.suspects.push_back((now + RECALL_GRACE_US, consumer));
                }
                Some(true) => self.take_back(now, consumer),
            }
        }
    }

    fn take_back(&mut self, now: u64, consumer: ConsumerId) {
        let Some(target) = self.target_of(consumer) else { return };
        target.check_due = false;
        target.limit = target.posted;
        target.unacknowledged_bytes = 0;
        target.acknowledged = target.posted;
        let browse = target.browse;
        let taken_back = std::mem::take(&mut target.unacknowledged);
        self.counters.targets_stalled += 1;
        self.engine.set_notify_work_desired(now, consumer, Desire::Paused(PauseReason::Suspended));
        if !browse {
            for entry in taken_back {
                self.settle_here(now, consumer, entry.place, entry.acquisition, Outcome::Released);
            }
        }
    }
}

/// The first of a line that is in order of time, if its time has come.
fn due(line: &mut VecDeque<(u64, ConsumerId)>, now: u64) -> Option<(u64, ConsumerId)> {
    line.pop_front_if(|(at, _)| *at <= now)
}

/// The connection's side.
impl Shard {
    pub(crate) fn on_deliver(&mut self, now: u64, mut deliveries: Vec<RemoteDelivery>) {
        for delivery in deliveries.drain(..) {
            self.on_remote_delivery(now, delivery);
        }
        self.peers.reuse_deliveries(deliveries);
    }

    fn on_remote_delivery(&mut self, now: u64, delivery: RemoteDelivery) {
        let Some((slot, link)) = self.target_link(delivery.link) else {
            self.counters.mail_dropped += 1;
            self.buffers.give(delivery.message.into_bytes());
            return;
        };
        let fresh = now.saturating_sub(delivery.posted_at) < RECALL_TIMEOUT_US / 2;
        let ready = self.is_ready(slot, link);
        let Some((target, browse)) = self.target_mut(slot, link) else { return };
        target.received = target.received.wrapping_add(1);
        let recalling = matches!(target.state, TargetState::Recalling { .. });
        let writable = fresh && ready && !target.returned && !recalling;
        if browse && (!ready || !target.staged.is_empty()) {
            target.staged.push_back(delivery);
        } else if !browse && !writable {
            let consumer = target.consumer;
            let home = target.home;
            target.returned = true;
            self.counters.deliveries_returned += 1;
            let RemoteDelivery { place, acquisition, message, .. } = delivery;
            self.peers.settle(home, Settlement::new(consumer, place, acquisition, Outcome::Released));
            self.buffers.give(message.into_bytes());
        } else {
            self.write_remote(now, slot, link, delivery);
        }
        self.others_served(now, slot);
        self.conclude_target(now, slot, link);
        self.target_due(slot, link);
    }

    fn write_remote(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, delivery: RemoteDelivery) {
        let RemoteDelivery { place, acquisition, counts, message, .. } = delivery;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let written = crate::deliver::write(
            &mut self.scratch,
            now,
            connection,
            link,
            &message,
            (place, acquisition),
            counts,
        );
        self.counters.deliveries += 1;
        match written {
            Written::Whole { presettled } => {
                if presettled {
                    self.settle_written(now, slot, link, (place, acquisition));
                }
                self.buffers.give(message.into_bytes());
            }
            Written::Part => self.keep_part(slot, link, Some(message)),
            Written::TooLarge => {
                let outcome = Outcome::Modified { delivery_failed: false, undeliverable_here: true };
                self.settle_elsewhere(slot, link, place, acquisition, outcome);
                self.resume(slot);
                self.buffers.give(message.into_bytes());
            }
            Written::NotReady => {
                self.settle_elsewhere(slot, link, place, acquisition, Outcome::Released);
                self.buffers.give(message.into_bytes());
            }
        }
        self.bound_acquired(now, slot, link);
        self.touch(slot);
    }

    /// Sends an outcome to the queue's home.
    pub(crate) fn settle_elsewhere(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        place: Place,
        acquisition: Acquisition,
        outcome: Outcome,
    ) {
        if let Some((target, browse)) = self.target_mut(slot, link)
            && !browse
        {
            let (home, consumer) = (target.home, target.consumer);
            self.peers.settle(home, Settlement::new(consumer, place, acquisition, outcome));
        }
    }

    pub(crate) fn on_caught_up(&mut self, now: u64, link: LinkRef) {
        if let Some((slot, _)) = self.target_link(link) {
            self.others_caught_up(now, slot);
        }
    }

    pub(crate) fn on_lent(&mut self, now: u64, link: LinkRef, epoch: u32, posted: u32) {
        let Some((slot, link)) = self.target_link(link) else { return };
        let Some((target, _)) = self.target_mut(slot, link) else { return };
        if target.epoch == epoch {
            match &mut target.state {
                TargetState::Lending => {}
                TargetState::Recalling { posted: known } | TargetState::Draining { posted: known } => {
                    *known = Some(posted)
                }
            }
        }
        self.conclude_target(now, slot, link);
        self.target_due(slot, link);
    }

    /// A recall or drain may be over.
    fn conclude_target(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some((target, _)) = self.target_mut(slot, link) else { return };
        let lent_all = target.limit;
        let was_exhausted = target.received == lent_all;
        if target.conclude()
            && let Some(connection) = self.connections.get_mut(slot)
        {
            // Of a drain with more credit than is lent at once, the rest follows in another round.
            let credit_left = connection.protocol.credit(link);
            if !(was_exhausted && credit_left > 0) {
                self.finish_drain(now, slot, link);
            }
        }
    }

    /// Puts the target on the list of those whose home hears from us when the turn ends.
    pub(crate) fn target_due(&mut self, slot: ConnectionSlot, link: LinkId) {
        if let Some((target, _)) = self.target_mut(slot, link)
            && !target.due
        {
            target.due = true;
            self.targets_due.push((slot, link));
        }
    }

    /// Tells the homes of the targets on the list what they may send.
    pub(crate) fn lend_all(&mut self, now: u64) {
        let mut due = std::mem::take(&mut self.targets_due);
        for (slot, link) in due.drain(..) {
            self.write_staged(now, slot, link);
            let ready = self.is_ready(slot, link);
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            let credit = connection.protocol.credit(link);
            let draining = connection.consumer_mut(link).is_some_and(|consumer| consumer.draining);
            if draining && credit == 0 {
                // What came back in a recall has used up the credit meanwhile, or others have.
                self.finish_drain(now, slot, link);
            }
            let Some((target, _)) = self.target_mut(slot, link) else { continue };
            target.due = false;
            let (home, consumer) = (target.home, target.consumer);
            let was_idle = target.limit == target.received;
            if let Some(loan) = target.next_loan(credit, ready, draining) {
                let begins = was_idle && loan.limit.is_some_and(|limit| limit != loan.acknowledged);
                self.peers.control(&mut self.effects, home, Mail::Lend { consumer, loan });
                if let Some(connection) = self.connections.get_mut(slot).filter(|_| begins) {
                    connection.remote_at = now;
                }
            }
        }
        debug_assert!(self.targets_due.is_empty());
        self.targets_due = due;
    }

    fn write_staged(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        while self.is_ready(slot, link) {
            let Some((target, _)) = self.target_mut(slot, link) else { return };
            let Some(delivery) = target.staged.pop_front() else { return };
            self.write_remote(now, slot, link, delivery);
        }
    }

    /// The link that other shards know by this name, if it is still the same attachment.
    pub(crate) fn target_link(&mut self, link: LinkRef) -> Option<(ConnectionSlot, LinkId)> {
        let slot = self.slot_of(link.connection)?;
        let attachment = self.connections.get_mut(slot)?.consumer_mut(link.link)?.attachment;
        (attachment == link.attachment).then_some((slot, link.link))
    }

    fn target_mut(&mut self, slot: ConnectionSlot, link: LinkId) -> Option<(&mut Target, bool)> {
        let consumer = self.connections.get_mut(slot)?.consumer_mut(link)?;
        match &mut consumer.at {
            ConsumerAt::Elsewhere(target) => Some((target, consumer.browse)),
            ConsumerAt::Nowhere(_) | ConsumerAt::Here(_) => None,
        }
    }

    /// Deletes a dynamic node wherever it is.
    pub(crate) fn delete_dynamic(&mut self, now: u64, node: DynamicNode) {
        match node {
            DynamicNode::Queue(at) if at.shard == self.index => self.delete_queue(now, at.queue),
            DynamicNode::Queue(at) => {
                self.post(at.shard, Lane::Control, Mail::DeleteQueue { queue: at.queue })
            }
            DynamicNode::Topic(topic) => self.propose(now, Change::EndTopic(topic), None),
        }
    }
}

impl Settlement {
    pub(crate) fn new(
        consumer: ConsumerId,
        place: Place,
        acquisition: Acquisition,
        outcome: Outcome,
    ) -> Self {
        Settlement {
            consumer,
            place,
            acquisition,
            outcome,
            annotations: None,
            stamp: None,
            transaction: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The home may have ended the drain already: what acknowledges deliveries must not lend once more what the drain has lent.
    #[test]
    fn an_acknowledgement_inside_a_drain_lends_nothing() {
        let mut target = Target::new(1, ConsumerId { index: 0, generation: 0 });
        let drain = target.next_loan(50, true, true).expect("the drain is asked for");
        assert_eq!((drain.limit, drain.answer), (Some(50), Answer::Drain { epoch: 1 }));
        target.received = 4;
        let acknowledgement = target.next_loan(46, true, true).expect("deliveries are acknowledged");
        assert_eq!((acknowledgement.limit, acknowledgement.acknowledged), (None, 4));
        target.state = TargetState::Draining { posted: Some(4) };
        assert!(target.conclude());
        let loan = target.next_loan(30, true, false).expect("something is lent again");
        assert_eq!(loan.limit, Some(34));
    }
}
