//! How does a connection's transaction begin, gather work, and end, on however many shards its queues are?
//!
//! The connection's shard keeps the transaction and decides; the homes of the queues do the work (`participant`). In order:
//! - *open*: messages and outcomes go to their homes at once, and each is answered. An outcome that the peer has not settled is noted
//!   here instead, since the peer may still change it;
//! - *gathering*: the peer has discharged it, its coordinator's link has ended, or it broke a rule. No more work is taken; answers are
//!   waited for;
//! - *preparing*: every home is asked whether it can do its part. If only one has a part, it does it in the same step;
//! - *deciding*: all can: it commits, otherwise it rolls back. The homes are told, and when all have done it the peer is.
//!
//! When the connection is lost, its transactions are rolled back without waiting: the homes are told how much work to wait for.
//!
//! Invariants:
//! - work belongs to open transactions only, and so do deliveries that start;
//! - `unanswered` of a home falls to 0 once no more work is taken, unless that shard stands still;
//! - a delivery is in `noted` or `acquired` only while it is unsettled and its link is bound;
//! - what a transaction keeps of its acquired deliveries: `acquired_count ≤ TRANSACTION_ACQUIRED_MAX`, and
//!   `keys ≤ 2 · acquired_count + ACQUIRED_GONE_MAX`.
//!
//! Left out: how long one may take (`slow`), the end of those whose link or connection is gone (`lost`), the messages on the
//! coordinator's link (`coordinator`), what channels of 0-9-1 ask for (`amqp091/tx`), and what a shard does for others (`participant`).

mod lost;
mod slow;

use std::collections::VecDeque;

use corelane_engine::{Acquisition, ConsumerId, Outcome, Place};
use corelane_journal::TransactionName;
use corelane_protocol::amqp10::{LinkId, TransactionId};
use corelane_wire::amqp10::Map;
use hashbrown::HashMap;

use crate::Shard;
use crate::amqp091::ChannelRef;
use crate::connection::Connection;
use crate::durability::next_name;
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::limits::{
    TRANSACTION_ACQUIRED_MAX, TRANSACTION_ANNOTATIONS_BYTES_MAX, TRANSACTION_WORK_MAX, TRANSACTIONS_MAX,
};
use crate::mail::{
    Decision, Mail, PublishOutcome, Settlement, TIMED_OUT, TransactionKey, UNKNOWN_TRANSACTION, Vote,
};
use crate::message::Message;
use crate::settle::encoded;

/// The transactions of a connection that has, or had, a coordinator's link.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    last: u32,
    list: Vec<Transaction>,
    /// Those that took too long and were not discharged since, with the attachments they were declared on. The latest ones.
    timed_out: VecDeque<(u32, u32)>,
    /// When it will be looked whether one has taken too long.
    watched: Option<u64>,
    /// Deliveries with an outcome inside a transaction that the peer has not settled.
    pub(crate) noted: HashMap<DeliveryKey, Noted>,
    /// Deliveries that were sent inside a transaction and have no outcome, with that transaction.
    pub(crate) acquired: HashMap<DeliveryKey, Acquired>,
}

/// Keys of acquired deliveries with an outcome that a transaction may still have, whatever it has otherwise.
const ACQUIRED_GONE_MAX: usize = 64;

/// A delivery on a link: the number that its session gave it.
pub(crate) type DeliveryKey = (LinkId, u32);

/// An outcome that the peer has named and not settled.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) transaction: u32,
    pub(crate) shard: usize,
    pub(crate) consumer: ConsumerId,
    pub(crate) place: Place,
    pub(crate) acquisition: Acquisition,
    /// When the delivery was written, as statistics stamp it.
    pub(crate) stamp: Option<u32>,
    pub(crate) outcome: Outcome,
    pub(crate) annotations: Option<Box<[u8]>>,
    /// The peer has settled it since the transaction was discharged: what happens to it if that rolls back.
    pub(crate) otherwise: Option<Outcome>,
}

/// A delivery that was sent inside a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquired {
    pub(crate) transaction: u32,
    pub(crate) place: Place,
    pub(crate) acquisition: Acquisition,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) number: u32,
    /// The link it was declared on; of a channel's, the one that the channel publishes on.
    pub(crate) coordinator: LinkId,
    pub(crate) attachment: u32,
    parts: Vec<Part>,
    /// When the first piece of work came.
    began: Option<u64>,
    work: u32,
    /// What it holds, as operators are told: messages, and outcomes of deliveries.
    messages: u32,
    outcomes: u32,
    annotation_bytes: usize,
    pub(crate) failure: Option<Failure>,
    phase: Phase,
    /// What it is written by, if several shards have a part.
    name: Option<TransactionName>,
    /// In `noted` and `acquired`, unless they have left these.
    pub(crate) noted: Vec<DeliveryKey>,
    pub(crate) acquired: Vec<DeliveryKey>,
    /// Those that have not left it.
    acquired_count: usize,
    /// Links whose deliveries are sent inside it.
    pub(crate) acquirers: Vec<LinkId>,
    /// Messages of a channel that go nowhere and are to be returned when it commits; they count against the shard's memory.
    pub(crate) unrouted: Vec<Message>,
}

/// What one shard has to do with it.
#[derive(Debug)]
struct Part {
    shard: usize,
    /// Pieces of work.
    sent: u32,
    unanswered: u32,
    vote: Option<Vote>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Gathering(Discharge),
    /// `alone`: it is done with the vote.
    Preparing {
        discharge: Discharge,
        alone: bool,
    },
    Deciding {
        discharge: Discharge,
        committed: bool,
        undone: u32,
    },
}

/// The transactions of a connection that are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OpenTransactions {
    pub(crate) count: usize,
    /// The one that has had work for longest.
    pub(crate) oldest: Option<OldestTransaction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OldestTransaction {
    /// When its first piece of work came.
    pub(crate) began: u64,
    pub(crate) messages: u32,
    pub(crate) outcomes: u32,
}

/// Why a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Discharge {
    /// Who is told; nobody if the peer did not ask.
    pub(crate) asker: Option<Asker>,
    /// It is to be rolled back.
    pub(crate) fail: bool,
}

/// Who has asked for the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A message on the coordinator's link.
    Delivery(u32),
    /// A channel of 0-9-1.
    Channel(ChannelRef),
}

/// The id that a peer knows a transaction by.
pub(crate) fn transaction_id(number: u32) -> TransactionId {
    TransactionId::new(&number.to_be_bytes()).unwrap_or(TransactionId::EMPTY)
}

impl Transactions {
    /// Begins a transaction; none if there are too many.
    pub(crate) fn declare(&mut self, coordinator: LinkId, attachment: u32) -> Option<u32> {
        if self.list.len() >= TRANSACTIONS_MAX {
            return None;
        }
        // Transactions that live long are met again when the numbers come round.
        loop {
            self.last = self.last.wrapping_add(1);
            if self.find(self.last).is_none() && !self.has_timed_out(self.last) {
                break;
            }
        }
        self.list.push(Transaction {
            number: self.last,
            coordinator,
            attachment,
            parts: Vec::new(),
            began: None,
            work: 0,
            messages: 0,
            outcomes: 0,
            annotation_bytes: 0,
            failure: None,
            phase: Phase::Open,
            name: None,
            noted: Vec::new(),
            acquired: Vec::new(),
            acquired_count: 0,
            acquirers: Vec::new(),
            unrouted: Vec::new(),
        });
        Some(self.last)
    }

    pub(crate) fn find(&mut self, number: u32) -> Option<&mut Transaction> {
        self.list.iter_mut().find(|transaction| transaction.number == number)
    }

    /// The open transaction that a peer calls so.
    pub(crate) fn open(&mut self, id: &[u8]) -> Option<&mut Transaction> {
        let number = u32::from_be_bytes(id.try_into().ok()?);
        self.find(number).filter(|transaction| transaction.phase == Phase::Open)
    }

    /// The open one that was declared on this attachment of a link, which has one at a time.
    pub(crate) fn open_on(&self, attachment: u32) -> Option<u32> {
        let is_it = |transaction: &&Transaction| {
            (transaction.attachment, transaction.phase) == (attachment, Phase::Open)
        };
        self.list.iter().find(is_it).map(|transaction| transaction.number)
    }

    fn has_timed_out(&self, number: u32) -> bool {
        self.timed_out.iter().any(|(other, _)| *other == number)
    }

    /// The transaction of this name took too long.
    pub(crate) fn is_timed_out(&self, id: &[u8]) -> bool {
        id.try_into().is_ok_and(|number| self.has_timed_out(u32::from_be_bytes(number)))
    }

    /// The same, if it was declared on this attachment: nobody is to be told again.
    pub(crate) fn take_timed_out(&mut self, id: &[u8], attachment: u32) -> bool {
        let Ok(number) = id.try_into() else { return false };
        let named = (u32::from_be_bytes(number), attachment);
        let found = self.timed_out.iter().position(|timed_out| *timed_out == named);
        found.and_then(|index| self.timed_out.remove(index)).is_some()
    }

    /// What is said of a transaction that is not open.
    pub(crate) fn why_not_open(&self, id: &[u8]) -> (&'static str, &'static str) {
        if self.is_timed_out(id) { TIMED_OUT } else { UNKNOWN_TRANSACTION }
    }

    /// Those that can be discharged.
    pub(crate) fn open_ones(&self) -> OpenTransactions {
        let open = || self.list.iter().filter(|transaction| transaction.phase == Phase::Open);
        let begun = open().filter_map(|transaction| {
            let Transaction { began, messages, outcomes, .. } = *transaction;
            Some(OldestTransaction { began: began?, messages, outcomes })
        });
        OpenTransactions { count: open().count(), oldest: begun.min_by_key(|transaction| transaction.began) }
    }

    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.list.iter().any(|transaction| transaction.number == number && transaction.phase == Phase::Open)
    }

    /// Whether this was a transaction once, and is not open any more.
    pub(crate) fn has_ended(&self, id: &[u8]) -> bool {
        let number = id.try_into().map(u32::from_be_bytes);
        // Those of longer ago than half of all numbers are unknown.
        let was_declared = |number: u32| self.last.wrapping_sub(number) < u32::MAX / 2 && number != 0;
        number.is_ok_and(|number| was_declared(number) && !self.is_open(number))
    }

    pub(crate) fn fail(&mut self, number: u32, failure: Failure) {
        if let Some(transaction) = self.find(number) {
            transaction.failure.get_or_insert(failure);
        }
    }

    /// Whether a delivery has to do with a transaction.
    pub(crate) fn involves(&self, key: DeliveryKey) -> bool {
        self.noted.contains_key(&key) || self.acquired.contains_key(&key)
    }

    /// The open transaction that a delivery belongs to.
    pub(crate) fn open_of(&self, key: DeliveryKey) -> Option<u32> {
        let acquired = self.acquired.get(&key).map(|acquired| acquired.transaction);
        let bound = acquired.or_else(|| self.noted.get(&key).map(|noted| noted.transaction));
        bound.filter(|number| self.is_open(*number))
    }

    pub(crate) fn note(&mut self, now: u64, key: DeliveryKey, noted: Noted) {
        let number = noted.transaction;
        let before = self.withdraw_noted(key);
        self.noted.insert(key, noted);
        let Some(transaction) = self.find(number) else { return };
        transaction.count_outcome();
        if before.is_none_or(|before| before.transaction != number) {
            transaction.noted.push(key);
            transaction.begin(now);
            transaction.work += 1;
        }
    }

    /// An outcome that was noted is not any more: the delivery has another one, or is not its consumer's.
    pub(crate) fn withdraw_noted(&mut self, key: DeliveryKey) -> Option<Noted> {
        let noted = self.noted.remove(&key)?;
        if let Some(transaction) = self.find(noted.transaction) {
            transaction.outcomes = transaction.outcomes.saturating_sub(1);
        }
        Some(noted)
    }

    /// A delivery that the peer has settled leaves the transactions that it has to do with, unless it goes `into` one: without what was
    /// noted in it, no other can commit.
    pub(crate) fn take_out(&mut self, key: DeliveryKey, into: Option<u32>) {
        self.forget_acquired(key);
        if let Some(noted) = self.withdraw_noted(key)
            && into != Some(noted.transaction)
        {
            self.fail(noted.transaction, Failure::Late);
        }
    }

    pub(crate) fn note_acquired(&mut self, now: u64, key: DeliveryKey, acquired: Acquired) {
        let number = acquired.transaction;
        self.acquired.insert(key, acquired);
        let Transactions { list, acquired, .. } = self;
        if let Some(transaction) = list.iter_mut().find(|transaction| transaction.number == number) {
            transaction.begin(now);
            transaction.acquired.push(key);
            transaction.acquired_count += 1;
            if transaction.acquired.len() > 2 * transaction.acquired_count + ACQUIRED_GONE_MAX {
                let is_there =
                    |key: &DeliveryKey| acquired.get(key).is_some_and(|it| it.transaction == number);
                transaction.acquired.retain(is_there);
            }
        }
    }

    /// Whether a transaction has acquired as much as it may.
    pub(crate) fn has_acquired_all(&mut self, number: u32) -> bool {
        self.find(number).is_some_and(|transaction| transaction.acquired_count >= TRANSACTION_ACQUIRED_MAX)
    }

    /// A delivery that was sent inside a transaction has an outcome.
    pub(crate) fn forget_acquired(&mut self, key: DeliveryKey) -> Option<Acquired> {
        let acquired = self.acquired.remove(&key)?;
        if let Some(transaction) = self.find(acquired.transaction) {
            transaction.acquired_count -= 1;
        }
        Some(acquired)
    }

    /// Takes an outcome that was noted for this transaction.
    pub(crate) fn take_noted(&mut self, key: DeliveryKey, number: u32) -> Option<Noted> {
        self.noted.get(&key).filter(|noted| noted.transaction == number)?;
        self.noted.remove(&key)
    }

    /// Takes a delivery that was sent inside this transaction.
    pub(crate) fn take_acquired(&mut self, key: DeliveryKey, number: u32) -> Option<Acquired> {
        self.acquired.get(&key).filter(|acquired| acquired.transaction == number)?;
        self.forget_acquired(key)
    }

    /// A link has ended: its deliveries are their queue's again, so transactions in which they have an outcome cannot commit.
    pub(crate) fn forget_link(&mut self, link: LinkId, failure: Failure) {
        let Transactions { noted, acquired, list, .. } = self;
        acquired.retain(|(of, _), acquired| {
            let ends = *of == link;
            if ends && let Some(transaction) = list.iter_mut().find(|t| t.number == acquired.transaction) {
                transaction.acquired_count -= 1;
            }
            !ends
        });
        noted.retain(|(of, _), noted| {
            let ends = *of == link;
            if ends && let Some(transaction) = list.iter_mut().find(|t| t.number == noted.transaction) {
                transaction.outcomes = transaction.outcomes.saturating_sub(1);
                transaction.failure.get_or_insert(failure);
            }
            !ends
        });
    }

    /// What each home is asked to do when the transaction is prepared.
    fn settlements(&self, transaction: &Transaction) -> Vec<(usize, Settlement)> {
        let of = |key: &DeliveryKey| {
            let noted = self.noted.get(key).filter(|noted| noted.transaction == transaction.number)?;
            let Noted { shard, consumer, place, acquisition, stamp, outcome, .. } = *noted;
            let annotations = noted.annotations.clone();
            let settlement =
                Settlement { consumer, place, acquisition, outcome, annotations, stamp, transaction: None };
            Some((shard, settlement))
        };
        transaction.noted.iter().filter_map(of).collect()
    }
}

impl Transaction {
    fn begin(&mut self, now: u64) {
        self.began.get_or_insert(now);
    }

    /// It holds one more outcome.
    pub(crate) fn count_outcome(&mut self) {
        self.outcomes += 1;
    }

    /// Whether one more piece of work is taken.
    pub(crate) fn has_room(&mut self) -> bool {
        let room = self.work < TRANSACTION_WORK_MAX;
        if !room {
            self.failure.get_or_insert(Failure::TooLarge);
        }
        room
    }

    /// What an outcome adds to its message's annotations, to be kept until the end.
    pub(crate) fn keep_annotations(&mut self, annotations: Option<Map<'_>>) -> Option<Box<[u8]>> {
        let map = annotations?;
        self.annotation_bytes += map.elements().len();
        if self.annotation_bytes > TRANSACTION_ANNOTATIONS_BYTES_MAX {
            self.failure.get_or_insert(Failure::TooLarge);
            return None;
        }
        Some(encoded(map))
    }

    pub(crate) fn acquires_on(&mut self, link: LinkId) {
        if !self.acquirers.contains(&link) {
            self.acquirers.push(link);
        }
    }

    fn part(&mut self, shard: usize) -> &mut Part {
        let index = match self.parts.iter().position(|part| part.shard == shard) {
            Some(index) => index,
            None => {
                self.parts.push(Part { shard, sent: 0, unanswered: 0, vote: None });
                self.parts.len() - 1
            }
        };
        &mut self.parts[index]
    }
}

/// Work.
impl Shard {
    pub(crate) fn transactions(&mut self, slot: ConnectionSlot) -> Option<&mut Transactions> {
        self.connections.get_mut(slot)?.transactions.as_deref_mut()
    }

    /// The transaction that a message is part of, if it takes one more.
    pub(crate) fn transaction_for(
        &mut self,
        slot: ConnectionSlot,
        id: &TransactionId,
    ) -> Result<u32, PublishOutcome> {
        let Some(transactions) = self.transactions(slot) else { return Err(PublishOutcome::NoTransaction) };
        let Some(transaction) = transactions.open(id) else {
            let timed_out = transactions.is_timed_out(id);
            let why =
                if timed_out { PublishOutcome::TransactionTimedOut } else { PublishOutcome::NoTransaction };
            return Err(why);
        };
        if !transaction.has_room() {
            return Err(PublishOutcome::TransactionFull);
        }
        Ok(transaction.number)
    }

    /// The transaction of a message, if it has one, holds that now.
    pub(crate) fn count_message(&mut self, slot: ConnectionSlot, number: Option<u32>) {
        let Some(number) = number else { return };
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(number));
        if let Some(transaction) = transaction {
            transaction.messages += 1;
        }
    }

    /// A piece of work goes to this shard, which `answers` it unless it is done at once.
    pub(crate) fn note_work(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        number: u32,
        shard: usize,
        answers: bool,
    ) {
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(number));
        let Some(transaction) = transaction else { return };
        transaction.begin(now);
        transaction.work += 1;
        let part = transaction.part(shard);
        part.sent += 1;
        part.unanswered += u32::from(answers);
    }

    /// Another shard has answered work.
    pub(crate) fn work_answered(
        &mut self,
        now: u64,
        from: usize,
        key: TransactionKey,
        count: u32,
        failure: Option<Failure>,
    ) {
        // A connection that is gone waits for nothing.
        let Some(slot) = self.slot_of(key.connection) else { return };
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(key.number));
        let Some(transaction) = transaction else { return };
        if let Some(failure) = failure {
            transaction.failure.get_or_insert(failure);
        }
        let part = transaction.part(from);
        part.unanswered = part.unanswered.saturating_sub(count);
        if part.unanswered == 0 {
            self.advance_transaction(now, slot, key.number);
        }
    }
}

/// The end.
impl Shard {
    /// No more work is taken; when all of it is answered the transaction ends. False if it is not open.
    pub(crate) fn end_transaction(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        number: u32,
        discharge: Discharge,
    ) -> bool {
        let Some(Connection { transactions, links, protocol, .. }) = self.connections.get_mut(slot) else {
            return false;
        };
        let transaction = transactions.as_deref_mut().and_then(|transactions| transactions.find(number));
        let Some(transaction) = transaction.filter(|transaction| transaction.phase == Phase::Open) else {
            return false;
        };
        transaction.phase = Phase::Gathering(discharge);
        // AMQP 1.0 §4.4.3: the links' txn-id is cleared, their credit is not.
        let mut presettled = Vec::new();
        for link in &transaction.acquirers {
            let Some(Some(bound)) = links.get_mut(link.0 as usize) else { continue };
            let Some(consumer) = bound.consumer_mut() else { continue };
            presettled.extend(consumer.presettled.then_some(*link));
            if consumer.transaction == Some(number) {
                consumer.transaction = None;
                protocol.set_transaction(*link, None);
            }
        }
        // What is whole after this could not be taken back any more.
        self.abort_parts(now, slot, number, &presettled);
        self.advance_transaction(now, slot, number);
        true
    }

    /// Goes on with a transaction that gathers, if all its work is answered.
    fn advance_transaction(&mut self, now: u64, slot: ConnectionSlot, number: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let key = TransactionKey { connection: connection.id, number };
        let Some(transactions) = connection.transactions.as_deref_mut() else { return };
        let Some(index) = transactions.list.iter().position(|transaction| transaction.number == number)
        else {
            return;
        };
        let transaction = &transactions.list[index];
        let Phase::Gathering(discharge) = transaction.phase else { return };
        if transaction.parts.iter().any(|part| part.unanswered > 0) {
            return;
        }
        if discharge.fail || transaction.failure.is_some() {
            self.decide(now, slot, key, discharge, false);
            return;
        }
        let settlements = transactions.settlements(transaction);
        let transaction = &mut transactions.list[index];
        for (shard, _) in &settlements {
            transaction.part(*shard);
        }
        if transaction.parts.is_empty() {
            self.decide(now, slot, key, discharge, true);
            return;
        }
        let alone = transaction.parts.len() == 1;
        let name = (!alone).then(|| next_name(&mut self.durability, self.index));
        transaction.name = name;
        transaction.phase = Phase::Preparing { discharge, alone };
        let shards: Vec<usize> = transaction.parts.iter().map(|part| part.shard).collect();
        let mut by_shard: Vec<Vec<Settlement>> = shards.iter().map(|_| Vec::new()).collect();
        for (shard, settlement) in settlements {
            if let Some(index) = shards.iter().position(|other| *other == shard) {
                by_shard[index].push(settlement);
            }
        }
        for (shard, settlements) in shards.into_iter().zip(by_shard) {
            if shard == self.index {
                let mark = self.said();
                let vote = self.prepare_part(now, key, settlements, name);
                self.vote_kept(now, mark, key, vote);
            } else {
                let mail = Mail::Prepare { transaction: key, settlements, name };
                self.peers.control(&mut self.effects, shard, mail);
            }
        }
    }

    /// A shard with a part has said whether it can do it.
    pub(crate) fn on_voted(&mut self, now: u64, from: usize, key: TransactionKey, vote: Vote) {
        let Some(slot) = self.slot_of(key.connection) else { return };
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(key.number));
        let Some(transaction) = transaction else { return };
        let Phase::Preparing { discharge, alone } = transaction.phase else { return };
        transaction.part(from).vote = Some(vote);
        if transaction.parts.iter().any(|part| part.vote.is_none()) {
            return;
        }
        let unable = transaction.parts.iter().find_map(|part| part.vote.and_then(Vote::failure));
        transaction.failure = transaction.failure.or(unable);
        if alone {
            let committed = matches!(vote, Vote::Yes { .. });
            transaction.phase = Phase::Deciding { discharge, committed, undone: 0 };
            self.count_decided(committed);
            self.conclude_deliveries(now, slot, key.number, committed);
            self.finish_transaction(now, slot, key.number);
        } else {
            let commit = transaction.failure.is_none();
            self.decide(now, slot, key, discharge, commit);
        }
    }

    fn count_decided(&mut self, committed: bool) {
        let counters = &mut self.counters;
        let counter = if committed {
            &mut counters.transactions_committed
        } else {
            &mut counters.transactions_rolled_back
        };
        *counter += 1;
    }

    /// The decision. Where a part of it is written, so is a commit, before anyone is told.
    fn decide(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        key: TransactionKey,
        discharge: Discharge,
        commit: bool,
    ) {
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(key.number));
        let Some(transaction) = transaction else { return };
        let parts: Vec<(usize, u32)> = transaction.parts.iter().map(|part| (part.shard, part.sent)).collect();
        let is_kept = transaction.parts.iter().any(|part| part.vote == Some(Vote::Yes { kept: true }));
        if let Some(name) = transaction.name.filter(|_| commit && is_kept) {
            transaction.phase = Phase::Deciding { discharge, committed: true, undone: parts.len() as u32 };
            self.count_decided(true);
            self.keep_decision(key, name, parts);
            return;
        }
        self.count_decided(commit);
        let here = self.index;
        let undone = parts.iter().filter(|(shard, _)| *shard != here).count() as u32;
        if let Some(transaction) = self.transactions(slot).and_then(|list| list.find(key.number)) {
            transaction.phase = Phase::Deciding { discharge, committed: commit, undone };
        }
        for (shard, work) in parts {
            if shard != here {
                let decision = Decision { transaction: key, commit, work, answer: true };
                self.peers.control(&mut self.effects, shard, Mail::Decide(decision));
            } else if commit {
                self.commit(now, key);
            } else {
                self.roll_back(now, key);
            }
        }
        self.conclude_deliveries(now, slot, key.number, commit);
        if undone == 0 {
            self.finish_transaction(now, slot, key.number);
        }
    }

    /// The decision to commit is written: whatever happens now, it holds.
    pub(crate) fn on_decision_kept(&mut self, now: u64, key: TransactionKey, parts: &[(usize, u32)]) {
        for &(shard, work) in parts {
            if shard == self.index {
                let mark = self.said();
                self.commit(now, key);
                self.done_kept(now, mark, key);
            } else {
                let decision = Decision { transaction: key, commit: true, work, answer: true };
                self.peers.control(&mut self.effects, shard, Mail::Decide(decision));
            }
        }
        if let Some(slot) = self.slot_of(key.connection) {
            self.conclude_deliveries(now, slot, key.number, true);
        }
    }

    /// A shard has done its part of what was decided, and written that.
    pub(crate) fn on_part_done(&mut self, now: u64, key: TransactionKey) {
        self.note_part_done(key);
        self.on_decided(now, key);
    }

    /// A shard has done what was decided.
    pub(crate) fn on_decided(&mut self, now: u64, key: TransactionKey) {
        let Some(slot) = self.slot_of(key.connection) else { return };
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(key.number));
        let Some(transaction) = transaction else { return };
        if let Phase::Deciding { undone, .. } = &mut transaction.phase {
            *undone = undone.saturating_sub(1);
            if *undone == 0 {
                self.finish_transaction(now, slot, key.number);
            }
        }
    }

    /// All is done: the peer is told, if it asked.
    fn finish_transaction(&mut self, now: u64, slot: ConnectionSlot, number: u32) {
        let Some(transactions) = self.transactions(slot) else { return };
        let Some(index) = transactions.list.iter().position(|transaction| transaction.number == number)
        else {
            return;
        };
        let transaction = transactions.list.swap_remove(index);
        let Phase::Deciding { discharge, committed, .. } = transaction.phase else { return };
        let coordinator = (transaction.coordinator, transaction.attachment);
        let failure = transaction.failure.filter(|_| !committed && !discharge.fail);
        self.end_unrouted(slot, transaction.coordinator, transaction.unrouted, committed);
        match discharge.asker {
            Some(Asker::Delivery(delivery_id)) => {
                self.answer_discharge(now, slot, coordinator, delivery_id, failure);
            }
            Some(Asker::Channel(channel)) => self.answer_transaction(now, channel, failure),
            None => {}
        }
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
