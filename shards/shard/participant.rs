//! What does a queue's home do for transactions of connections, wherever these live?
//!
//! A participation is the part that one transaction has on this shard: messages put into queues that nobody sees yet (the engine's
//! pending entries), and deliveries that their consumers have settled (its retired ones). It begins with the first piece of work
//! that arrives and ends with the decision. The steps are apart from each other: *work* is done as it comes and answered; *prepare*
//! finds out whether all of it can still be done, and from then on nothing but the decision can undo it; *commit* or *roll back*
//! applies it within one event, so that the queues of a shard show all of a transaction or nothing.
//!
//! Invariants:
//! - a participation is there if and only if work of its transaction has arrived and was not decided, or a decision waits for work
//!   that is still on its way;
//! - work may come in either lane, so a decision says how many pieces were sent and is applied when all have arrived: nothing of a
//!   connection that is gone stays behind;
//! - who commits has been prepared in the same event or before;
//! - what a part writes is bounded, as it is written as a whole: `kept_bytes ≤ transaction_kept_bytes_max` where it commits.

use corelane_engine::{self as engine, Acquisition, Place, QueueId, Settled, Stored};
use corelane_journal::{Position, TransactionName};
use corelane_mailbox::Lane;
use corelane_wire::amqp10::Map;
use hashbrown::HashMap;

use crate::Shard;
use crate::durability::Keeping;
use crate::limits::TRANSACTION_RECORD_BYTES;
use crate::mail::{Decision, Mail, Retirement, Settlement, TransactionKey, Vote};
use crate::settle::encoded;
use crate::statistics::since_stamp;

/// The transactions that have a part on this shard.
#[derive(Debug, Default)]
pub(crate) struct Participations {
    by_key: HashMap<TransactionKey, Participation>,
}

/// One transaction's part.
#[derive(Debug, Default)]
struct Participation {
    posted: Vec<Posted>,
    retired: Vec<Retired>,
    /// What of it is to be written, in bytes.
    kept_bytes: u64,
    /// Pieces of work that have come, done or refused.
    arrived: u32,
    /// The connection has gone, or rolls back, and so many pieces of work are to be waited for.
    ends_after: Option<u32>,
    /// What it is to outlive the shard by, if it is.
    kept: Option<KeptPart>,
}

/// A part that is written, so that the decision finds it after a crash too.
#[derive(Debug, Clone, Copy)]
struct KeptPart {
    name: TransactionName,
    /// Where it lies, when it is written.
    position: Option<Position>,
}

/// The same, to be written.
pub(crate) struct PreparedPart<'a> {
    pub(crate) name: TransactionName,
    pub(crate) position: Option<Position>,
    pub(crate) posted: &'a [Posted],
    pub(crate) retired: &'a [Retired],
}

/// A message that is visible when the transaction commits.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) queue: QueueId,
    pub(crate) place: Place,
    /// The queue is a subscription: when it ends, it has no claim to the message.
    pub(crate) may_go: bool,
}

/// A delivery that is settled when the transaction commits.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) queue: QueueId,
    pub(crate) place: Place,
    /// The queue is a subscription: when it ends, there is nothing left to settle.
    may_go: bool,
    pub(crate) outcome: engine::Outcome,
    annotations: Option<Box<[u8]>>,
    /// When the delivery was written, as statistics stamp it; none: it was sent settled.
    stamp: Option<u32>,
    if_rolled_back: IfRolledBack,
}

/// Where a retired delivery goes when nothing of the transaction has happened.
#[derive(Debug, Clone, Copy)]
enum IfRolledBack {
    /// The peer has settled it, so back to its queue.
    Returned { failed: bool },
    /// The peer has not: it is its consumer's, as it was.
    Restored(Acquisition),
}

/// What is to be said of outcomes that came in one mail, by transaction.
#[derive(Debug, Default)]
pub(crate) struct RetirementAnswers(Vec<(TransactionKey, u32, u32)>);

impl RetirementAnswers {
    pub(crate) fn note(&mut self, key: TransactionKey, done: bool) {
        match self.0.last_mut() {
            Some((last, count, late)) if *last == key => {
                *count += 1;
                *late += u32::from(!done);
            }
            Some(_) | None => self.0.push((key, 1, u32::from(!done))),
        }
    }
}

/// What is counted for something of this size that is written.
fn record_bytes(size: usize) -> u64 {
    size as u64 + TRANSACTION_RECORD_BYTES
}

impl Participations {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// A part that is to outlive the shard.
    pub(crate) fn prepared(&self, key: TransactionKey) -> Option<PreparedPart<'_>> {
        let Participation { posted, retired, kept, .. } = self.by_key.get(&key)?;
        let KeptPart { name, position } = (*kept)?;
        Some(PreparedPart { name, position, posted, retired })
    }

    /// It is written there.
    pub(crate) fn note_prepared(&mut self, key: TransactionKey, position: Position) {
        if let Some(kept) = self.by_key.get_mut(&key).and_then(|part| part.kept.as_mut()) {
            kept.position = Some(position);
        }
    }

    /// The part that is written there.
    pub(crate) fn prepared_at(&self, position: Position) -> Option<TransactionKey> {
        let lies_there = |part: &Participation| part.kept.is_some_and(|kept| kept.position == Some(position));
        self.by_key.iter().find(|(_, part)| lies_there(part)).map(|(key, _)| *key)
    }

    /// The written part that a message belongs to.
    pub(crate) fn name_of(&self, queue: QueueId, place: Place) -> Option<TransactionName> {
        let has = |part: &&Participation| {
            part.kept.is_some() && part.posted.iter().any(|it| (it.queue, it.place) == (queue, place))
        };
        self.by_key.values().find(has).and_then(|part| part.kept).map(|kept| kept.name)
    }
}

/// Work.
impl Shard {
    /// A message of the transaction has its place in a queue, where nobody sees it. `kept`: its size, if it is to be written.
    pub(crate) fn note_posted(&mut self, key: TransactionKey, posted: Posted, kept: Option<usize>) {
        let part = self.participations.by_key.entry(key).or_default();
        part.posted.push(posted);
        part.kept_bytes += kept.map_or(0, record_bytes);
    }

    /// Whether a transaction may write one more message, of this size.
    pub(crate) fn has_room_to_keep(&self, key: TransactionKey, size: usize) -> bool {
        let kept = self.participations.by_key.get(&key).map_or(0, |part| part.kept_bytes);
        kept + record_bytes(size) <= self.transaction_kept_bytes_max
    }

    fn note_retired(&mut self, key: TransactionKey, retired: Retired) {
        let kept_bytes = self.kept_bytes_of(&retired);
        let part = self.participations.by_key.entry(key).or_default();
        part.retired.push(retired);
        part.kept_bytes += kept_bytes;
    }

    /// What is written of it when the transaction commits, about.
    fn kept_bytes_of(&self, retired: &Retired) -> u64 {
        let Retired { queue, place, outcome, annotations, .. } = retired;
        if self.durability.is_none() || !self.engine.is_kept_at(*queue, *place) {
            return 0;
        }
        let annotations = match outcome {
            engine::Outcome::Accepted => 0,
            engine::Outcome::Released | engine::Outcome::Rejected | engine::Outcome::Modified { .. } => {
                let added = annotations.as_ref().map_or(0, |annotations| annotations.len());
                added + self.annotations_size(*queue, *place)
            }
        };
        record_bytes(annotations)
    }

    /// A piece of work has come to its end here, whatever became of it. Called once for each that the connection's shard counted.
    pub(crate) fn work_arrived(&mut self, now: u64, key: TransactionKey) {
        let part = self.participations.by_key.entry(key).or_default();
        part.arrived += 1;
        if part.ends_after.is_some_and(|work| part.arrived >= work) {
            self.roll_back(now, key);
        }
    }

    /// Takes a delivery from its consumer until the transaction ends, if the consumer has acquired it and not just read it. False if
    /// it is not that consumer's any more, without which the transaction cannot commit: the connection's shard hears of it before it asks
    /// anybody to prepare.
    pub(crate) fn retire(&mut self, now: u64, settlement: Settlement, retirement: Retirement) -> bool {
        let key = retirement.transaction;
        let returned = IfRolledBack::Returned { failed: retirement.failed_if_rolled_back };
        let browses = self.engine.browses(settlement.consumer);
        let retired = self.take_from_consumer(now, settlement, returned);
        let done = browses || retired.is_some();
        if let Some(retired) = retired {
            self.note_retired(key, retired);
        }
        self.work_arrived(now, key);
        done
    }

    pub(crate) fn answer_retirements(&mut self, to: usize, answers: RetirementAnswers) {
        for (transaction, count, late) in answers.0 {
            self.post(to, Lane::Control, Mail::Retired { transaction, count, late });
        }
    }

    fn take_from_consumer(
        &mut self,
        now: u64,
        settlement: Settlement,
        if_rolled_back: IfRolledBack,
    ) -> Option<Retired> {
        let Settlement { consumer, place, acquisition, outcome, annotations, stamp, .. } = settlement;
        if self.engine.browses(consumer) {
            return None;
        }
        let queue = self.engine.queue_of(consumer);
        match (queue, self.engine.retire(now, consumer, place, acquisition)) {
            (Some(queue), Settled::Done) => {
                let may_go = self.queues.get(queue).is_some_and(|node| node.subscription.is_some());
                Some(Retired { queue, place, may_go, outcome, annotations, stamp, if_rolled_back })
            }
            (_, Settled::Done | Settled::Late) => {
                self.counters.settlements_late += 1;
                None
            }
        }
    }
}

/// The end.
impl Shard {
    pub(crate) fn on_prepare(
        &mut self,
        now: u64,
        from: usize,
        key: TransactionKey,
        settlements: Vec<Settlement>,
        name: Option<TransactionName>,
    ) {
        let mark = self.said();
        let vote = self.prepare_part(now, key, settlements, name);
        self.post_kept(mark, from, Mail::Voted { transaction: key, vote });
    }

    /// Prepares, and ends the transaction at once if no other shard has a part: then it needs no name.
    pub(crate) fn prepare_part(
        &mut self,
        now: u64,
        key: TransactionKey,
        settlements: Vec<Settlement>,
        name: Option<TransactionName>,
    ) -> Vote {
        let vote = self.prepare(now, key, settlements);
        match (vote, name) {
            (Vote::Yes { .. }, Some(name)) => return Vote::Yes { kept: self.write_part(key, name) },
            (Vote::Yes { .. }, None) => self.commit(now, key),
            (Vote::Late | Vote::QueueGone | Vote::TooLarge, None) => self.roll_back(now, key),
            (Vote::Late | Vote::QueueGone | Vote::TooLarge, Some(_)) => {}
        }
        vote
    }

    /// What a part does to messages that are kept is written before it is voted for. False: there is nothing of that.
    fn write_part(&mut self, key: TransactionKey, name: TransactionName) -> bool {
        let Some(part) = self.participations.by_key.get_mut(&key) else { return false };
        let posted = part.posted.iter().map(|posted| (posted.queue, posted.place));
        let retired = part.retired.iter().map(|retired| (retired.queue, retired.place));
        let engine = &self.engine;
        let is_kept = |(queue, place)| engine.is_kept_at(queue, place);
        if !posted.chain(retired).any(is_kept) {
            return false;
        }
        part.kept = Some(KeptPart { name, position: None });
        let queues: Vec<QueueId> = part.posted.iter().map(|posted| posted.queue).collect();
        for queue in queues {
            self.define(queue);
        }
        self.say_prepared(key);
        true
    }

    /// Can all of it be done? `settlements` are outcomes that the peer has named without settling: their deliveries are still their
    /// consumers', and are taken from them now.
    fn prepare(&mut self, now: u64, key: TransactionKey, settlements: Vec<Settlement>) -> Vote {
        let part = self.participations.by_key.entry(key).or_default();
        let posted = part.posted.iter().filter(|posted| !posted.may_go).map(|posted| posted.queue);
        let retired = part.retired.iter().filter(|retired| !retired.may_go).map(|retired| retired.queue);
        let mut queues = posted.chain(retired);
        if queues.any(|queue| self.queues.get(queue).is_none()) {
            return Vote::QueueGone;
        }
        let held = |settlement: &Settlement| {
            let Settlement { consumer, place, acquisition, .. } = *settlement;
            // Who only reads holds nothing that could be lost.
            self.engine.browses(consumer) || self.engine.message(consumer, place, acquisition).is_some()
        };
        if !settlements.iter().all(held) {
            return Vote::Late;
        }
        for settlement in settlements {
            let restored = IfRolledBack::Restored(settlement.acquisition);
            if let Some(retired) = self.take_from_consumer(now, settlement, restored) {
                self.note_retired(key, retired);
            }
        }
        let kept = self.participations.by_key.get(&key).map_or(0, |part| part.kept_bytes);
        if kept <= self.transaction_kept_bytes_max { Vote::Yes { kept: false } } else { Vote::TooLarge }
    }

    pub(crate) fn on_decide(&mut self, now: u64, from: usize, decision: Decision) {
        let Decision { transaction: key, commit, work, answer } = decision;
        let mark = self.said();
        if commit {
            self.commit(now, key);
        } else {
            let part = self.participations.by_key.entry(key).or_default();
            if part.arrived < work {
                debug_assert!(!answer, "who waits for the end has waited for all answers");
                part.ends_after = Some(work);
                return;
            }
            self.roll_back(now, key);
        }
        if answer {
            self.post_kept(mark, from, Mail::Decided { transaction: key });
        }
    }

    /// All of it happens now.
    pub(crate) fn commit(&mut self, now: u64, key: TransactionKey) {
        let Some(part) = self.participations.by_key.remove(&key) else { return };
        self.begin_group();
        self.say_part_done(&part, true);
        for retired in part.retired {
            let Retired { queue, place, outcome, annotations, stamp, .. } = retired;
            // Of a subscription that has ended there is nothing to be counted any more.
            if let Some(stamp) = stamp.filter(|_| self.queues.get(queue).is_some()) {
                self.statistics.note_settled(now, queue, since_stamp(now, stamp));
            }
            let memory_left = self.memory_left();
            if let Some(map) = annotations.as_deref().and_then(|bytes| Map::decode(bytes).ok()) {
                match self.engine.retired_message_mut(queue, place) {
                    Some(Stored::Here(message)) => {
                        if let Some(before) = message.annotate(map, memory_left) {
                            self.memory_used += message.memory();
                            self.forget(before);
                        }
                    }
                    Some(Stored::Away(_)) => self.annotate_when_read(queue, place, encoded(map)),
                    None => {}
                }
            }
            if self.keeping_unwritten(queue, place) != Keeping::Not {
                // It never will be, and whoever has sent it is told that it is kept. What was said of it before is waited for.
                self.open_group();
                self.note_replaced();
            }
            self.engine.commit_retired(now, queue, place, outcome);
        }
        self.say_what_left();
        for Posted { queue, place, .. } in part.posted {
            let keeping = self.keeping_unwritten(queue, place);
            if keeping != Keeping::Not {
                // It was shown to nobody before.
                self.keep_message(queue, place, keeping);
                self.note_replaced();
            }
            let is_kept = self.engine.is_kept_at(queue, place);
            match keeping {
                Keeping::BeforeDelivery => {}
                Keeping::Not if !is_kept && self.waits_behind_unsynced(queue) => {
                    self.reveal_kept(queue, place);
                }
                Keeping::Not | Keeping::Kept => {
                    self.engine.commit_pending(now, queue, place);
                    if keeping == Keeping::Not {
                        self.overflow_stored(queue, place);
                    }
                }
            }
        }
        self.end_group();
    }

    /// What becomes of a message that is not written yet; others are on the disk, or never will be.
    fn keeping_unwritten(&self, queue: QueueId, place: Place) -> Keeping {
        let is_unwritten = self.engine.is_kept_at(queue, place) && self.position_at(queue, place).is_none();
        match self.queues.get(queue).filter(|_| is_unwritten) {
            Some(node) if node.destination.deliver_after_sync => Keeping::BeforeDelivery,
            Some(_) => Keeping::Kept,
            None => Keeping::Not,
        }
    }

    /// What was prepared and written is done.
    fn say_part_done(&mut self, part: &Participation, committed: bool) {
        let Some(KeptPart { name, position: Some(position) }) = part.kept else { return };
        let posted = part.posted.iter().filter_map(|posted| {
            self.position_at(posted.queue, posted.place).map(|position| position.segment)
        });
        let mut segments: Vec<u32> = posted.chain([position.segment]).collect();
        segments.sort_unstable();
        segments.dedup();
        self.say_done(name, committed, position, segments);
    }

    /// Nothing of it has happened.
    pub(crate) fn roll_back(&mut self, now: u64, key: TransactionKey) {
        let Some(part) = self.participations.by_key.remove(&key) else { return };
        self.begin_group();
        self.say_part_done(&part, false);
        for retired in part.retired {
            let Retired { queue, place, if_rolled_back, .. } = retired;
            match if_rolled_back {
                IfRolledBack::Returned { failed } => {
                    self.engine.roll_back_retired(now, queue, place, failed);
                }
                IfRolledBack::Restored(acquisition) => {
                    self.engine.restore_retired(now, queue, place, acquisition);
                }
            }
        }
        for Posted { queue, place, .. } in part.posted {
            self.engine.drop_pending(queue, place);
        }
        self.end_group();
    }
}
