//! The world of the model: an owner with queues, messages and transactions, and its disk.

mod disk;
mod state;

use corelane_journal::{
    Batch, Config, Decided, Details, Done, Feed, Identity, Journal, LiveMessage, Message, Placed, Position,
    Prepared, Queue, Record, Recovered, Recovery, Refusal, Removal, Returned, Scan, Scanned, Stopped, Ticket,
    TransactionName, Write,
};
use disk::Disk;
pub(crate) use disk::Random;
use state::{Key, Op, State, payload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

type Found = Vec<(Position, Record<'static>)>;

pub(crate) struct World {
    random: Random,
    disk: Disk,
    journal: Journal,
    /// With everything that was said.
    now: State,
    /// With everything that was completed, and with what is on its way too.
    durable: State,
    written: Option<State>,
    gathered: VecDeque<(Ticket, Op)>,
    in_flight: Option<Write>,
    through: Ticket,
    positions: BTreeMap<Key, Position>,
    queues: BTreeMap<u64, Position>,
    prepared: BTreeMap<u64, Position>,
    decided: BTreeMap<u64, Position>,
    /// Published and removed before it was written.
    skipped: BTreeSet<Key>,
    next_uid: u64,
    next_place: u64,
    next_transaction: u64,
    boot: u32,
}

/// What a batch puts where.
#[derive(Default)]
struct Places {
    messages: Vec<(Key, Placed)>,
    queues: Vec<(u64, Placed)>,
    prepared: Vec<(u64, Placed)>,
    decided: Vec<(u64, Placed)>,
}

const IDENTITY: Identity = Identity { layout: 1, shard: 3, shards: 4 };

fn config(random: &mut Random, boot: u32) -> Config {
    Config {
        segment_bytes: 4096 * (6 + random.below(5) as u32),
        batch_bytes_max: 4096 * (1 + random.below(2) as u32),
        segments_idle_max: 2,
        ..Config::new(IDENTITY, boot)
    }
}

fn name(number: u64) -> TransactionName {
    TransactionName { boot: 1, shard: 3, number }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let journal = Journal::new(config(&mut random, 1));
        World {
            random,
            disk: Disk::default(),
            journal,
            now: State::default(),
            durable: State::default(),
            written: None,
            gathered: VecDeque::new(),
            in_flight: None,
            through: Ticket(0),
            positions: BTreeMap::new(),
            queues: BTreeMap::new(),
            prepared: BTreeMap::new(),
            decided: BTreeMap::new(),
            skipped: BTreeSet::new(),
            next_uid: 1,
            next_place: 1,
            next_transaction: 1,
            boot: 1,
        }
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(100) {
            0..55 => self.say_something(),
            55..72 => self.write(),
            72..88 => self.sync(),
            88..94 => self.clean(),
            94..98 => self.read_one(),
            98 => self.stop(),
            _ => self.crash(),
        }
        self.spares();
        self.free();
        assert!(self.journal.completed() <= self.journal.said());
        let promised = if self.in_flight.is_some() { self.journal.completed() } else { self.through };
        assert_eq!(self.journal.completed(), promised, "what is on its way is not completed");
    }

    fn say(&mut self, op: Op) {
        self.now.apply(&op, &self.skipped);
        let ticket = self.journal.say();
        self.gathered.push_back((ticket, op));
    }

    fn say_something(&mut self) {
        let uid = match self.random.pick(self.now.queues.keys()) {
            Some(uid) if self.now.queues.len() > 3 || self.random.below(8) > 0 => *uid,
            _ => return self.new_queue(),
        };
        match self.random.below(40) {
            0..16 => self.publish(uid, None),
            16..26 => self.remove(),
            26..30 => self.give_back(),
            30 => self.say(Op::Update(uid)),
            31 if self.now.is_deletable(uid) && self.random.below(3) == 0 => self.say(Op::Delete(uid)),
            32..36 => self.transact(uid),
            36 => self.decide(),
            37..39 => self.finish_transaction(),
            _ => {}
        }
    }

    fn new_queue(&mut self) {
        let uid = self.next_uid;
        self.next_uid += 1;
        let since = self.journal.segment();
        self.say(Op::Create(uid, since));
    }

    fn publish(&mut self, uid: u64, transaction: Option<u64>) {
        let place = self.next_place;
        self.next_place += 1 + self.random.below(2);
        let level = self.random.below(3) << 60;
        let length = match self.random.below(400) {
            0 => 40_000 + self.random.below(60_000),
            1..20 => 3000 + self.random.below(9000),
            _ => self.random.below(700),
        };
        self.say(Op::Publish { key: (uid, place | level), length: length as usize, transaction });
    }

    fn remove(&mut self) {
        let first = self.random.pick(self.now.free_messages());
        let Some(first) = first else { return };
        let many = 1 + self.random.below(8) as usize;
        let keys: Vec<Key> = self.now.free_messages().filter(|key| *key >= first).take(many).collect();
        for key in &keys {
            if !self.positions.contains_key(key) && self.random.below(2) == 0 && self.durable_lacks(*key) {
                self.skipped.insert(*key);
            }
        }
        self.say(Op::Remove(keys));
    }

    fn durable_lacks(&self, key: Key) -> bool {
        let written = self.written.as_ref();
        !self.durable.knows(key) && !written.is_some_and(|written| written.knows(key))
    }

    fn give_back(&mut self) {
        if let Some(key) = self.random.pick(self.now.free_messages()) {
            let acquired = 1 + self.random.below(3) as u32;
            let failed = self.random.below(2) as u32;
            self.say(Op::Return { key, acquired, failed });
        }
    }

    fn transact(&mut self, uid: u64) {
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        for _ in 0..self.random.below(3) {
            self.publish(uid, Some(transaction));
        }
        if self.random.below(6) > 0 {
            let removed = self.random.pick(self.now.free_messages()).into_iter().collect();
            self.say(Op::Prepare { transaction, removed });
        }
    }

    fn decide(&mut self) {
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        self.say(Op::Decide(transaction));
        if let Some(known) = self.random.pick(self.decided.keys()).copied().filter(|_| self.decided.len() > 3)
        {
            self.say(Op::Forget(known));
        }
    }

    fn finish_transaction(&mut self) {
        if let Some(transaction) = self.random.pick(self.now.open.keys()).copied() {
            let committed = self.random.below(3) > 0;
            self.say(Op::Finish { transaction, committed });
        }
    }

    fn stop(&mut self) {
        self.say(Op::Stop);
        self.flush();
        self.crash();
    }

    fn spares(&mut self) {
        while let Some(spare) = self.journal.spare_wanted() {
            let epoch = self.random.next();
            self.disk.prepare(spare, &mut self.random);
            self.journal.handle_spare(spare, epoch);
        }
    }

    fn free(&mut self) {
        for segment in self.journal.take_freed() {
            assert!(!self.journal.uses(segment));
            self.disk.free(segment, &mut self.random);
        }
    }

    fn write(&mut self) {
        let mut through = self.journal.completed();
        let before = (
            self.gathered.clone(),
            self.positions.clone(),
            self.queues.clone(),
            self.prepared.clone(),
            self.decided.clone(),
        );
        let Some(mut batch) = self.journal.begin_batch() else { return };
        let mut state = self.durable.clone();
        let mut places = Places::default();
        let wanted = if self.random.below(4) == 0 { self.random.below(6) as usize } else { usize::MAX };
        let mut said = 0;
        let mut forgotten = Vec::new();
        while let Some((ticket, op)) = self.gathered.front() {
            // Only what has a position can be amended, and that is known when its batch is finished.
            if said == wanted || batch.is_full() || places.has_any_of(op, &state) {
                break;
            }
            through = *ticket;
            let known = Known {
                positions: &mut self.positions,
                queues: &mut self.queues,
                prepared: &mut self.prepared,
                decided: &mut self.decided,
                skipped: &self.skipped,
            };
            encode(op, &mut batch, &mut places, &state, &self.now, known);
            if let Op::Forget(id) = op {
                forgotten.extend(self.decided.remove(id));
            }
            state.apply(op, &self.skipped);
            self.gathered.pop_front();
            said += 1;
        }
        if !batch.has_room() {
            batch.wait_for_room();
            (self.gathered, self.positions, self.queues, self.prepared, self.decided) = before;
            return;
        }
        self.through = through;
        let Some(write) = batch.finish(through) else {
            assert_eq!(self.journal.completed(), through);
            forgotten.into_iter().for_each(|position| self.journal.forget(position));
            self.durable = state;
            return;
        };
        self.positions.extend(places.messages.iter().map(|(key, placed)| (*key, write.position(*placed))));
        self.queues.extend(places.queues.iter().map(|(uid, placed)| (*uid, write.position(*placed))));
        self.prepared.extend(places.prepared.iter().map(|(id, placed)| (*id, write.position(*placed))));
        self.decided.extend(places.decided.iter().map(|(id, placed)| (*id, write.position(*placed))));
        for uid in std::mem::take(&mut state.deleted) {
            let gone: Vec<Key> = self.positions.keys().filter(|key| key.0 == uid).copied().collect();
            forgotten.extend(gone.iter().map(|key| self.positions.remove(key).expect("it is there")));
        }
        let gone = std::mem::take(&mut state.forgotten);
        forgotten.extend(gone.iter().filter_map(|key| self.positions.remove(key)));
        forgotten.into_iter().for_each(|position| self.journal.forget(position));
        assert_eq!(write.bytes().len() % 4096, 0);
        assert_eq!(write.offset % 4096, 0);
        self.written = Some(state);
        self.in_flight = Some(write);
    }

    fn sync(&mut self) {
        let Some(write) = self.in_flight.take() else { return };
        self.disk.write(write.segment, write.offset, write.bytes());
        let completed = self.journal.handle_synced(write);
        assert_eq!(completed, self.through);
        self.durable = self.written.take().expect("what was on its way has a state");
    }

    fn flush(&mut self) {
        let mut rounds = 0;
        while self.in_flight.is_some() || !self.gathered.is_empty() {
            rounds += 1;
            assert!(rounds < 20_000, "there is always a way on");
            self.spares();
            self.write();
            self.sync();
            self.free();
        }
    }

    /// Reads the segment to clean and says what of it may still hold again; whether it does is seen when it is written.
    fn clean(&mut self) {
        let Some(segment) = self.journal.next_to_clean() else { return };
        let mut reader = self.journal.reader(segment).expect("only closed segments are cleaned");
        let mut ops = Vec::new();
        let each = &mut |position: Position, record: Record<'_>| match record {
            Record::Message(message, _) => ops.push(Op::CopyMessage((message.uid, message.place), position)),
            Record::Queue(queue) => ops.push(Op::CopyQueue(queue.uid, position)),
            Record::Prepared(prepared) => ops.push(Op::CopyPrepared(prepared.transaction.number, position)),
            Record::Decided(decided) => ops.push(Op::CopyDecided(decided.transaction.number, position)),
            other => ops.push(Op::Carry(owned(other))),
        };
        reader.feed(self.disk.bytes(segment), each).expect("it was written by us");
        let end = reader.finish(each).expect("it was written by us");
        assert!(end.damage.is_empty() && end.torn.is_none(), "{end:?}");
        ops.push(Op::Cleaned(segment));
        ops.into_iter().for_each(|op| self.say(op));
    }

    fn read_one(&mut self) {
        let Some((key, position)) = self.random.pick(self.positions.iter().map(|(key, at)| (*key, *at)))
        else {
            return;
        };
        if self.in_flight.as_ref().is_some_and(|write| write.segment == position.segment) {
            return;
        }
        let bytes = self.disk.at(position);
        match self.journal.read(position, bytes) {
            Some(Record::Message(message, body)) => {
                assert_eq!((message.uid, message.place), key);
                assert_eq!(body, payload(key, body.len()));
            }
            other => panic!("{key:?} at {position:?}: {other:?}"),
        }
    }

    /// The machine stops, in the middle of whatever it does, and starts again.
    pub(crate) fn crash(&mut self) {
        if let Some(write) = self.in_flight.take() {
            self.disk.tear(write.segment, write.offset, write.bytes(), &mut self.random);
        }
        self.boot += 1;
        let config = config(&mut self.random, self.boot);
        let (recovered, _) = recover(&self.disk, config, &mut self.random).expect("it is our own journal");
        assert!(recovered.end.damage.is_empty(), "{:?}", recovered.end);
        let found = State::of(&recovered);
        let written = self.written.take();
        let stops: Vec<State> = written.iter().chain([&self.durable]).cloned().collect();
        if let Some(difference) = found.differs(&self.durable) {
            let state = written.unwrap_or_else(|| panic!("{difference}"));
            if let Some(other) = found.differs(&state) {
                panic!("neither what was completed ({difference}) nor what was on its way ({other})");
            }
            self.durable = state;
        }
        let may_be = |state: &State| state.stopped.is_none_or(|stopped| stopped == recovered.clean);
        assert!(stops.iter().any(may_be) || recovered.end.torn.is_some(), "{}", recovered.clean);
        assert!(
            recovered.sequence_end >= self.durable.sequence_end && recovered.uid_end >= self.durable.uid_end
        );
        self.start(recovered);
    }

    fn start(&mut self, recovered: Recovered) {
        self.durable.forget_what_is_not_written();
        self.gathered.clear();
        self.skipped.clear();
        self.through = Ticket(0);
        let at = |message: &LiveMessage| ((message.uid, message.place), message.position);
        self.positions = recovered.messages.iter().map(at).collect();
        self.queues = recovered.queues.iter().map(|(at, queue)| (queue.uid, *at)).collect();
        let transactions = recovered.transactions.iter();
        self.prepared = transactions
            .clone()
            .filter_map(|(name, known)| Some((name.number, known.prepared.as_ref()?.0)))
            .collect();
        self.decided =
            transactions.filter_map(|(name, known)| Some((name.number, known.decided.as_ref()?.0))).collect();
        // The record that says so may be freed with its segment.
        self.durable.stopped.take_if(|stopped| *stopped);
        self.durable.decided = self.decided.keys().copied().collect();
        self.now = self.durable.clone();
        self.journal = recovered.journal;
        let keep: Vec<u32> = self.disk.files().filter(|number| self.journal.uses(*number)).collect();
        self.disk.free_others(&keep, &mut self.random);
        for (key, position) in &self.positions {
            assert!(
                self.journal.read(*position, self.disk.at(*position)).is_some(),
                "{key:?} at {position:?}"
            );
        }
    }

    /// When nothing happens any more but cleaning, what is on the disk is in proportion to what is live.
    pub(crate) fn settle_down(&mut self) {
        for _ in 0..200 {
            self.clean();
            self.flush();
        }
        let live: u64 = self.positions.values().map(|at| u64::from(at.length)).sum();
        let others = (self.queues.len() + self.prepared.len() + self.decided.len()) as u64 * 200;
        let bytes = self.journal.disk_bytes();
        assert!(bytes <= 3 * (live + others) + 12 * 11 * 4096, "{bytes} bytes for {live}");
    }

    /// One bit goes bad in what was synced.
    pub(crate) fn check_flip(&mut self) {
        let Some((segment, offset)) = self.disk.any_place(&mut self.random) else { return };
        let mut flipped = self.disk.clone();
        flipped.flip(segment, offset, self.random.below(8) as u32);
        self.check_damage(&flipped, segment, offset as u32..offset as u32 + 1);
    }

    /// Nothing is left of a batch.
    pub(crate) fn check_wiped_batch(&mut self) {
        let (segment, range) = match self.random.pick(self.disk.batches.iter()) {
            Some((segment, offset, length)) => (*segment, *offset as u32..(*offset + *length) as u32),
            None => return,
        };
        let mut wiped = self.disk.clone();
        wiped.wipe(segment, range.start as usize, range.len());
        self.check_damage(&wiped, segment, range);
    }

    /// Nothing is left of a block that a segment's header is in.
    pub(crate) fn check_wiped_header(&mut self) {
        let Some((segment, ..)) = self.random.pick(self.disk.batches.iter()) else { return };
        let (segment, start) = (*segment, 4096 * self.random.below(2) as u32);
        let mut wiped = self.disk.clone();
        wiped.wipe(segment, start as usize, 4096);
        self.check_damage(&wiped, segment, start..start + 4096);
    }

    fn check_damage(&mut self, damaged: &Disk, segment: u32, hit: std::ops::Range<u32>) {
        let config = config(&mut self.random, self.boot + 1);
        let (whole, before) = recover(&self.disk, config, &mut self.random).expect("it is our own journal");
        let (recovered, after) = match recover(damaged, config, &mut self.random) {
            Ok(found) => found,
            Err(refusal) => panic!("{refusal}"),
        };
        let hits = |position: &Position| {
            position.segment == segment
                && position.offset < hit.end
                && hit.start < position.offset + position.length
        };
        let batches = self.disk.batches.iter();
        let in_batch = batches.clone().filter(|(number, from, length)| {
            *number == segment && (*from as u32) < hit.end && hit.start < (*from + *length) as u32
        });
        let in_batch = in_batch.map(|(_, from, length)| *from as u32..(*from + *length) as u32).next_back();
        let of_batch = |position: &Position| {
            position.segment == segment
                && in_batch.as_ref().is_some_and(|batch| batch.contains(&position.offset))
        };
        let last = before.iter().filter(|(at, _)| at.segment == before[0].0.segment).map(|(at, _)| *at).max();
        let is_last_batch = last.is_some_and(|last| of_batch(&last));
        if before.iter().any(|(at, record)| of_batch(at) && matches!(record, Record::Manifest(_))) {
            // Then it may not be known which segments are there.
            return;
        }
        let lost: Vec<&(Position, Record<'static>)> =
            before.iter().filter(|record| !after.contains(record)).collect();
        assert!(after.iter().all(|record| before.contains(record)), "nothing new comes up");
        assert!(
            lost.iter().all(|(at, _)| of_batch(at)),
            "what is not hit is read: {lost:?}, {:?}",
            recovered.end
        );
        if is_last_batch {
            return;
        }
        let damage = &recovered.end.damage;
        if before.iter().any(|(at, _)| hits(at)) {
            assert!(lost.iter().any(|(at, _)| hits(at)), "a bad record does not count");
            let range = |range: &std::ops::Range<u32>| {
                range.start <= hit.start.max(range.start) && hit.start < range.end
            };
            assert!(
                damage.iter().any(|damage| damage.segment == segment && range(&damage.bytes)),
                "{hit:?} {damage:?}"
            );
        }
        let named = |at: &Position| {
            damage.iter().any(|damage| damage.segment == at.segment && damage.bytes.contains(&at.offset))
        };
        assert!(lost.iter().all(|(at, _)| named(at)), "{lost:?} {damage:?}");
        if lost.is_empty() {
            assert!(State::of(&recovered).differs(&State::of(&whole)).is_none());
        }
        let few = hit.len() > 1 || lost.len() <= 1 || lost.iter().any(|(at, _)| hit.start < at.offset + 13);
        assert!(few, "one bit costs one record, unless it is in a header: {lost:?}");
    }
}

impl Places {
    fn has_any_of(&self, op: &Op, state: &State) -> bool {
        let message = |key: &Key| self.messages.iter().any(|(placed, _)| placed == key);
        let prepared = |id: &u64| self.prepared.iter().any(|(placed, _)| placed == id);
        match op {
            Op::Remove(keys) => keys.iter().any(message),
            Op::Return { key, .. } | Op::CopyMessage(key, _) => message(key),
            Op::Update(uid) | Op::CopyQueue(uid, _) => self.queues.iter().any(|(placed, _)| placed == uid),
            Op::Delete(uid) => {
                self.queues.iter().any(|(placed, _)| placed == uid)
                    || self.messages.iter().any(|(placed, _)| placed.0 == *uid)
            }
            Op::Prepare { removed, .. } => removed.iter().any(message),
            Op::Finish { transaction, .. } => {
                let open = state.open.get(transaction);
                prepared(transaction)
                    || open.is_none_or(|open| open.messages.iter().chain(&open.removed).any(message))
            }
            Op::CopyPrepared(transaction, _) => prepared(transaction),
            Op::Forget(id) | Op::CopyDecided(id, _) => self.decided.iter().any(|(placed, _)| placed == id),
            Op::Create(..)
            | Op::Publish { .. }
            | Op::Decide(_)
            | Op::Carry(_)
            | Op::Cleaned(_)
            | Op::Stop => false,
        }
    }
}

/// Where things lie.
struct Known<'a> {
    positions: &'a mut BTreeMap<Key, Position>,
    queues: &'a mut BTreeMap<u64, Position>,
    prepared: &'a mut BTreeMap<u64, Position>,
    decided: &'a mut BTreeMap<u64, Position>,
    skipped: &'a BTreeSet<Key>,
}

fn encode(op: &Op, batch: &mut Batch<'_>, places: &mut Places, state: &State, now: &State, known: Known<'_>) {
    let Known { positions, queues, prepared, decided, skipped } = known;
    match op {
        Op::Create(uid, since) => places.queues.push((*uid, batch.queue(&definition(*uid, 1, *since), None))),
        Op::Update(uid) => {
            let (version, since) = state.queues[uid];
            let placed = batch.queue(&definition(*uid, version + 1, since), Some(queues[uid]));
            places.queues.push((*uid, placed));
        }
        Op::Delete(uid) => {
            batch.queue_deleted(*uid, state.queues[uid].1, queues.remove(uid).expect("it was defined"))
        }
        Op::Publish { key, .. } if skipped.contains(key) => {}
        Op::Publish { key, length, transaction } => {
            let message = message(*key, (0, 0), *transaction);
            places.messages.push((*key, batch.message(&message, &payload(*key, *length), None)));
        }
        Op::Remove(keys) => remove(batch, keys.iter().filter(|key| !skipped.contains(*key)), positions),
        Op::Return { key, .. } => {
            if let Some(position) = positions.get(key) {
                let mut after = state.clone();
                after.apply(op, skipped);
                let (acquired_count, delivery_count) = after.messages[key].counts;
                batch.returned(&returned(*key, position.segment, acquired_count, delivery_count));
            }
        }
        Op::Prepare { transaction, removed } => {
            let record = preparation(*transaction, removed);
            places.prepared.push((*transaction, batch.prepared(&record, None)));
        }
        Op::Finish { transaction, committed } => {
            let open = &state.open[transaction];
            let at = prepared.remove(transaction).expect("it was prepared");
            let of_messages = open.messages.iter().map(|key| positions[key].segment);
            let segments = of_messages.chain([at.segment]).collect();
            batch.done(&Done { transaction: name(*transaction), committed: *committed, segments }, at);
            if *committed {
                remove(batch, open.removed.iter(), positions);
            }
        }
        Op::Decide(id) => {
            let record = Decided { transaction: name(*id), participants: vec![1, 2] };
            places.decided.push((*id, batch.decided(&record, None)));
        }
        Op::Forget(_) => {}
        Op::CopyDecided(id, at) => {
            if decided.get(id) == Some(at) {
                let record = Decided { transaction: name(*id), participants: vec![1, 2] };
                places.decided.push((*id, batch.decided(&record, Some(*at))));
            }
        }
        Op::CopyMessage(key, at) => {
            if positions.get(key) == Some(at) && now.knows(*key) {
                let known = state.message(*key);
                let message = message(*key, known.counts, known.transaction);
                places
                    .messages
                    .push((*key, batch.message(&message, &payload(*key, known.length), Some(*at))));
            }
        }
        Op::CopyQueue(uid, at) => {
            if queues.get(uid) == Some(at) {
                let (version, since) = state.queues[uid];
                places.queues.push((*uid, batch.queue(&definition(*uid, version, since), Some(*at))));
            }
        }
        Op::CopyPrepared(id, at) => {
            if prepared.get(id) == Some(at) {
                let removed: Vec<Key> = state.open[id].removed.iter().copied().collect();
                places.prepared.push((*id, batch.prepared(&preparation(*id, &removed), Some(*at))));
            }
        }
        Op::Carry(record) => batch.carry(record),
        Op::Cleaned(segment) => batch.cleaned(*segment),
        Op::Stop => batch.stopped(&Stopped { time: 1 }),
    }
}

fn remove<'a>(
    batch: &mut Batch<'_>,
    keys: impl Iterator<Item = &'a Key>,
    positions: &mut BTreeMap<Key, Position>,
) {
    let removal = |key: &Key| Some(Removal { uid: key.0, place: key.1, position: positions.remove(key)? });
    let mut removals: Vec<Removal> = keys.filter_map(removal).collect();
    batch.remove(&mut removals);
}

fn definition(uid: u64, version: u64, since: u32) -> Queue {
    let name = format!("queue-{uid}");
    Queue {
        uid,
        version,
        since,
        kind: 1,
        name,
        properties: vec![7; 20].into(),
        subscription: Vec::new().into(),
    }
}

fn message(key: Key, counts: (u32, u32), transaction: Option<u64>) -> Message {
    let details =
        transaction.map(|id| Box::new(Details { transaction: Some(name(id)), ..Details::default() }));
    let (acquired_count, delivery_count) = counts;
    Message { uid: key.0, place: key.1, acquired_count, delivery_count, details, ..Message::default() }
}

fn returned(key: Key, segment: u32, acquired_count: u32, delivery_count: u32) -> Returned {
    let annotations = Vec::new().into();
    Returned {
        uid: key.0,
        place: key.1,
        segment,
        delivery_count,
        acquired_count,
        held_until: 0,
        annotations,
        death: 0,
    }
}

fn preparation(transaction: u64, removed: &[Key]) -> Prepared {
    Prepared { transaction: name(transaction), removed: removed.to_vec(), returned: Vec::new() }
}

fn owned(record: Record<'_>) -> Record<'static> {
    match record {
        Record::Message(message, body) => Record::Message(message, Vec::leak(body.to_vec())),
        Record::Queue(it) => Record::Queue(it),
        Record::QueueDeleted(it) => Record::QueueDeleted(it),
        Record::Removed(it) => Record::Removed(it),
        Record::Returned(it) => Record::Returned(it),
        Record::Prepared(it) => Record::Prepared(it),
        Record::Decided(it) => Record::Decided(it),
        Record::Done(it) => Record::Done(it),
        Record::Started(it) => Record::Started(it),
        Record::Stopped(it) => Record::Stopped(it),
        Record::Manifest(it) => Record::Manifest(it),
    }
}

/// Reads all files, in slices of odd lengths, as a start does.
fn recover(disk: &Disk, config: Config, random: &mut Random) -> Result<(Recovered, Found), Refusal> {
    let mut scan = Scan::new(IDENTITY);
    let mut recovery = Recovery::new();
    let mut found = Vec::new();
    let slice = 1 + random.below(20_000) as usize;
    for number in disk.files().collect::<Vec<_>>().into_iter().rev() {
        if !scan.begin(number) {
            continue;
        }
        let each = &mut |position: Position, record: Record<'_>| {
            if let Record::Message(message, body) = &record {
                assert_eq!(*body, payload((message.uid, message.place), body.len()), "half a message");
            }
            found.push((position, summary(&record)));
            recovery.handle(position, record);
        };
        for bytes in disk.bytes(number).chunks(slice) {
            if scan.feed(bytes, each)? == Feed::Done {
                break;
            }
        }
        scan.end(each)?;
    }
    let scanned: Scanned = scan.finish();
    Ok((recovery.finish(scanned, config), found))
}

/// Payloads were compared when they were found.
fn summary(record: &Record<'_>) -> Record<'static> {
    match record {
        Record::Message(message, _) => Record::Message(message.clone(), &[]),
        other => owned(other.clone()),
    }
}
