//! What was there when the broker stopped?
//!
//! Takes the records of all segments in any order, and in the end subtracts what is gone from what was said. What it keeps meanwhile
//! is names and positions: 40 bytes for each message record, 24 for each run of removed places. Payloads and details are read again where
//! they lie ([`Journal::read`]).

use crate::journal::{Continuation, Journal};
use crate::limits::Config;
use crate::record::{
    Decided, Details, Done, LEVEL_BITS, Manifest, Message, Origin, Places, Position, Prepared, Queue,
    QueueDeleted, Record, Removed, Returned, TRANSIENT, TransactionName,
};
use crate::scan::{End, Scanned};
use crate::segments::{Pin, Segments};
use std::collections::{BTreeMap, BTreeSet};

/// A message that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMessage {
    pub uid: u64,
    pub place: u64,
    pub position: Position,
    /// As it was when it came back last.
    pub delivery_count: u32,
    pub acquired_count: u32,
    /// One more than the index of its transaction, or 0.
    transaction: u32,
}

/// Ten million of them are to be held while a shard starts.
const _: () = assert!(size_of::<LiveMessage>() <= 40);

/// How a message came back to its queue last, if that is not told by its own record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReturn {
    pub uid: u64,
    pub place: u64,
    pub delivery_count: u32,
    pub acquired_count: u32,
    pub held_until: u64,
    /// As in [`Details`].
    pub death: u8,
    /// Where the record lies, with the annotations.
    pub position: Position,
}

/// What the journal knows of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// It is open here: what is to be done is asked of the shard that decides.
    pub prepared: Option<(Position, Prepared)>,
    /// It was committed by this shard.
    pub decided: Option<(Position, Decided)>,
    /// It was done here: whether by a commit.
    pub done: Option<bool>,
}

/// Puts together what the records say.
#[derive(Debug, Default)]
pub struct Recovery {
    messages: Vec<LiveMessage>,
    transaction_names: Vec<TransactionName>,
    /// Uid and place of messages that have come from other shards, with where they were.
    arrived: Vec<(u64, u64, Origin)>,
    removed: Vec<(u64, Places)>,
    returned: Vec<LastReturn>,
    queues: BTreeMap<u64, (Position, Queue)>,
    deleted: BTreeSet<u64>,
    transactions: BTreeMap<TransactionName, Transaction>,
    /// By the segment that says something, and the one that it says it about.
    pins: BTreeMap<(u32, u32), Pin>,
    ranges: BTreeSet<(u32, u32, u32)>,
    shared: BTreeMap<u32, u64>,
    boot: u32,
    sequence_end: u64,
    uid_end: u64,
    certain_from: u32,
    last: Option<Position>,
    stopped: Option<Position>,
}

/// What was there.
#[derive(Debug)]
pub struct Recovered {
    /// In order of their uids.
    pub queues: Vec<(Position, Queue)>,
    /// In order of uid and place. If there is damage, there may be some without a queue.
    pub messages: Vec<LiveMessage>,
    /// In the same order, at most one for each message.
    pub returned: Vec<LastReturn>,
    /// Those that are open, were decided here, or both.
    pub transactions: BTreeMap<TransactionName, Transaction>,
    transaction_names: Vec<TransactionName>,
    /// Where messages were that have come here from other shards and are here: they are not there any more. What is gone since says
    /// nothing of that: either it was gone where it was before anyone had it here, or it was not to come after all.
    pub arrived: Vec<Origin>,
    /// The highest number of a start; 0 if there was none.
    pub boot: u32,
    /// Every sequence (a place without its [`LEVEL_BITS`]) that was ever used is lower.
    pub sequence_end: u64,
    /// Every uid that was ever used is lower.
    pub uid_end: u64,
    /// The broker stopped in order, and nothing is missing.
    pub clean: bool,
    /// Of what was said in older segments nobody knows who has had it since.
    certain_from: u32,
    pub end: End,
    /// Goes on from here, in a new segment.
    pub journal: Journal,
}

impl Recovered {
    /// Whether the counts of a message, or of its last return, are exact: the broker has always stopped in order since that was written.
    pub fn is_certain(&self, written: Position) -> bool {
        written.segment >= self.certain_from
    }

    /// The message at a place, if it is there.
    pub fn find(&self, uid: u64, place: u64) -> Option<&LiveMessage> {
        let found = self.messages.binary_search_by_key(&(uid, place), |message| (message.uid, message.place));
        found.ok().map(|index| &self.messages[index])
    }

    /// The open transaction that a message belongs to.
    pub fn transaction_of(&self, message: &LiveMessage) -> Option<TransactionName> {
        let name = self.transaction_names.get(message.transaction.checked_sub(1)? as usize)?;
        self.transactions.get(name).filter(|transaction| transaction.prepared.is_some()).map(|_| *name)
    }
}

impl Recovery {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what a record says.
    pub fn handle(&mut self, position: Position, record: Record<'_>) {
        // The journal's own records may stand behind what the owner said last.
        if !matches!(record, Record::Manifest(_)) {
            self.last = self.last.max(Some(position));
        }
        match record {
            Record::Queue(queue) => self.queue(position, queue),
            Record::QueueDeleted(QueueDeleted { uid, since, until }) => {
                self.uid_end = self.uid_end.max(uid.saturating_add(1));
                self.deleted.insert(uid);
                self.ranges.insert((position.segment, since, until));
                *self.shared.entry(position.segment).or_default() += u64::from(position.length);
            }
            // Nobody was promised that it would outlive its boot.
            Record::Message(message, _) if message.uid & TRANSIENT != 0 => {}
            Record::Message(message, _) => self.message(position, message),
            Record::Removed(Removed { uid, segment, places }) => {
                places.iter().for_each(|run| self.used(uid, run.last));
                self.removed.extend(places.into_iter().map(|run| (uid, run)));
                self.amends(position, segment, position.length);
            }
            Record::Returned(returned) => self.returned(position, returned),
            Record::Prepared(prepared) => self.prepared(position, prepared),
            Record::Decided(decided) => {
                let known = self.transactions.entry(decided.transaction).or_default();
                if known.decided.as_ref().is_none_or(|(at, _)| *at < position) {
                    known.decided = Some((position, decided));
                }
            }
            Record::Done(Done { transaction, committed, segments }) => {
                self.transactions.entry(transaction).or_default().done = Some(committed);
                segments.into_iter().for_each(|segment| self.amends(position, segment, 0));
                *self.shared.entry(position.segment).or_default() += u64::from(position.length);
            }
            Record::Started(started) => self.boot = self.boot.max(started.boot),
            Record::Stopped(_) => self.stopped = self.stopped.max(Some(position)),
            Record::Manifest(Manifest { boot, sequence_end, uid_end, certain_from, segments: _ }) => {
                self.certain_from = self.certain_from.max(certain_from);
                self.boot = self.boot.max(boot);
                self.sequence_end = self.sequence_end.max(sequence_end);
                self.uid_end = self.uid_end.max(uid_end);
            }
        }
    }

    /// Answers what was there. `config.boot` is to be higher than [`Self::boot`] of every shard.
    pub fn finish(mut self, scanned: Scanned, config: Config) -> Recovered {
        let Scanned { found, newest_file, end } = scanned;
        let newest = found.first().copied();
        self.copies();
        self.subtract();
        let arrived = self.arrived_and_here();
        let mut segments = Segments::found(found);
        self.reckon(&mut segments);
        let next_segment = newest_file.max(newest.map_or(0, |(header, _)| header.segment)) + 1;
        let next_batch = newest.map_or(1, |(_, batch_end)| batch_end);
        let (sequence_end, uid_end) = (self.sequence_end, self.uid_end);
        let is_known =
            |transaction: &Transaction| transaction.prepared.is_some() || transaction.decided.is_some();
        self.transactions.retain(|_, transaction| is_known(transaction));
        let clean = end.damage.is_empty() && end.torn.is_none() && self.stopped == self.last;
        let certain_from = if clean { self.certain_from } else { next_segment };
        let continuation =
            Continuation { segments, next_segment, next_batch, sequence_end, uid_end, certain_from };
        Recovered {
            queues: self.queues.into_values().collect(),
            messages: self.messages,
            returned: self.returned,
            transactions: self.transactions,
            transaction_names: self.transaction_names,
            arrived,
            boot: self.boot,
            sequence_end,
            uid_end,
            clean,
            certain_from,
            end,
            journal: Journal::continued(config, continuation),
        }
    }

    /// So many messages may be there in all: memory for them is taken at once, instead of being copied as they become more.
    pub fn expect(&mut self, messages: usize) {
        if messages > self.messages.capacity() {
            self.messages.reserve_exact(messages - self.messages.len());
        }
    }

    /// Messages so far.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// The highest number of a start so far.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    fn queue(&mut self, position: Position, queue: Queue) {
        self.uid_end = self.uid_end.max(queue.uid.saturating_add(1));
        let newer = |(at, before): &(Position, Queue)| (before.version, *at) > (queue.version, position);
        if !self.queues.get(&queue.uid).is_some_and(newer) {
            self.queues.insert(queue.uid, (position, queue));
        }
    }

    fn message(&mut self, position: Position, message: Message) {
        let Message { uid, place, delivery_count, acquired_count, details, .. } = message;
        self.used(uid, place);
        let transaction = details.and_then(|details| {
            let Details { transaction, origin, .. } = *details;
            self.arrived.extend(origin.map(|origin| (uid, place, origin)));
            transaction
        });
        let transaction = transaction.map_or(0, |name| {
            // Messages of one transaction stand together.
            if self.transaction_names.last() != Some(&name) {
                self.transaction_names.push(name);
            }
            self.transaction_names.len() as u32
        });
        self.messages.push(LiveMessage { uid, place, position, delivery_count, acquired_count, transaction });
    }

    fn prepared(&mut self, position: Position, prepared: Prepared) {
        self.boot = self.boot.max(prepared.transaction.boot);
        let known = self.transactions.entry(prepared.transaction).or_default();
        let (newer, older) = match known.prepared.as_ref().map(|(at, _)| *at) {
            Some(at) => (at.max(position), at.min(position)),
            None => (position, position),
        };
        if newer == position {
            known.prepared = Some((position, prepared));
        }
        self.pins.entry((newer.segment, older.segment)).or_default().copy = true;
    }

    fn returned(&mut self, position: Position, returned: Returned) {
        let Returned { uid, place, segment, delivery_count, acquired_count, held_until, death, .. } =
            returned;
        self.used(uid, place);
        let last = LastReturn { uid, place, delivery_count, acquired_count, held_until, death, position };
        self.returned.push(last);
        self.amends(position, segment, 0);
    }

    fn used(&mut self, uid: u64, place: u64) {
        self.uid_end = self.uid_end.max(uid.saturating_add(1));
        self.sequence_end = self.sequence_end.max((place & (u64::MAX >> LEVEL_BITS)) + 1);
    }

    fn amends(&mut self, position: Position, segment: u32, bytes: u32) {
        self.pins.entry((position.segment, segment)).or_default().bytes += u64::from(bytes);
    }

    /// Of a message that was said several times the last record holds, and stays while the others are there.
    fn copies(&mut self) {
        order_segments(&mut self.messages);
        self.messages.sort_unstable_by_key(|message| (message.uid, message.place, message.position));
        let pins = &mut self.pins;
        self.messages.dedup_by(|newer, older| {
            let same = (newer.uid, newer.place) == (older.uid, older.place);
            if same && newer.position != older.position {
                pins.entry((newer.position.segment, older.position.segment)).or_default().copy = true;
                *older = *newer;
            }
            same
        });
    }

    /// Takes away the messages that are gone, and gives the others their counts.
    fn subtract(&mut self) {
        self.queues.retain(|uid, _| !self.deleted.contains(uid));
        for transaction in self.transactions.values_mut() {
            transaction.prepared.take_if(|_| transaction.done.is_some());
        }
        self.removed.sort_unstable_by_key(|(uid, run)| (*uid, run.first));
        let mut removed = Runs { rest: &self.removed, uid: 0, until: None };
        self.messages.retain(|message| {
            let exists = message.transaction == 0 || {
                let name = &self.transaction_names[message.transaction as usize - 1];
                let known = self.transactions.get(name);
                known.is_some_and(|known| known.prepared.is_some() || known.done == Some(true))
            };
            exists && !self.deleted.contains(&message.uid) && !removed.contain(message.uid, message.place)
        });
        self.removed = Vec::new();
        self.returned.sort_unstable_by_key(|back| (back.uid, back.place, back.acquired_count, back.position));
        self.returned.dedup_by(|larger, back| {
            let same = (larger.uid, larger.place) == (back.uid, back.place);
            if same {
                *back = *larger;
            }
            same
        });
        let mut messages = self.messages.iter_mut().peekable();
        self.returned.retain(|back| {
            while messages.next_if(|message| (message.uid, message.place) < (back.uid, back.place)).is_some()
            {
            }
            match messages.peek_mut() {
                Some(message) if (message.uid, message.place) == (back.uid, back.place) => {
                    // It may have been written while somebody had it.
                    let holds =
                        (back.acquired_count, back.position) > (message.acquired_count, message.position);
                    if holds {
                        message.acquired_count = back.acquired_count;
                        message.delivery_count = back.delivery_count;
                    }
                    holds
                }
                _ => false,
            }
        });
    }

    /// Where the messages were that are here and have come from other shards.
    fn arrived_and_here(&self) -> Vec<Origin> {
        let is_here = |(uid, place, _): &&(u64, u64, Origin)| {
            self.messages.binary_search_by_key(&(*uid, *place), |it| (it.uid, it.place)).is_ok()
        };
        self.arrived.iter().filter(is_here).map(|(.., origin)| *origin).collect()
    }

    /// What is valid in each segment, and what it says about others.
    fn reckon(&self, segments: &mut Segments) {
        for message in &self.messages {
            segments.found_thing(message.position);
        }
        for (position, _) in self.queues.values() {
            segments.found_thing(*position);
        }
        for transaction in self.transactions.values() {
            let prepared = transaction.prepared.as_ref().map(|(position, _)| *position);
            let decided = transaction.decided.as_ref().map(|(position, _)| *position);
            prepared.into_iter().chain(decided).for_each(|position| segments.found_thing(position));
        }
        let mut pins = self.pins.clone();
        for (segment, since, until) in &self.ranges {
            let amended: Vec<u32> = segments.numbers_in(*since..=*until).collect();
            for older in amended {
                pins.entry((*segment, older)).or_default();
            }
        }
        for ((segment, older), found) in pins {
            segments.found_pin(segment, older, found);
        }
        for (segment, bytes) in &self.shared {
            segments.found_shared(*segment, *bytes);
        }
    }
}

/// Segments are read from the newest to the oldest. From the oldest on, messages of one queue are in order, but for those that were
/// written again, and so are quickly sorted.
fn order_segments(messages: &mut [LiveMessage]) {
    messages.reverse();
    messages.chunk_by_mut(|one, next| one.position.segment == next.position.segment).for_each(<[_]>::reverse);
}

/// Runs of removed places, in order; runs may overlap.
struct Runs<'a> {
    rest: &'a [(u64, Places)],
    uid: u64,
    until: Option<u64>,
}

impl Runs<'_> {
    /// Whether a place is in one of them. Is asked in order.
    fn contain(&mut self, uid: u64, place: u64) -> bool {
        if uid != self.uid {
            (self.uid, self.until) = (uid, None);
        }
        while let Some(((of, run), rest)) = self.rest.split_first()
            && (*of, run.first) <= (uid, place)
        {
            if *of == uid {
                self.until = self.until.max(Some(run.last));
            }
            self.rest = rest;
        }
        self.until.is_some_and(|until| place <= until)
    }
}

impl Segments {
    fn found_thing(&mut self, position: Position) {
        self.change(position.segment, |segment| segment.things += u64::from(position.length));
    }

    fn found_shared(&mut self, number: u32, bytes: u64) {
        self.change(number, |segment| segment.shared += bytes);
    }

    fn found_pin(&mut self, number: u32, older: u32, found: Pin) {
        if older < number && self.contains(older) {
            self.change(number, |segment| segment.pin(older, found.bytes, found.copy));
        }
    }
}
