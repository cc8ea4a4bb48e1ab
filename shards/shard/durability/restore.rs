//! How does a shard become again what it was when the broker stopped?
//!
//! Recovery has found what was there and where it lies. First come the queues, and it is settled what becomes of transactions that
//! were open; then the segments are read once more, and each message that is there goes back to its place, in the order of
//! these: one that is read too early waits. What there is not enough memory for stays where it lies (`overflow`). After a stop that was not in order nobody knows which messages were delivered, so all
//! that could have been are redelivered.
//!
//! What has gone to another shard, and is found in both places, is taken away where it was. Until that is synced, for which a full disk may
//! have no room for long, it is hidden where it went: taken there, and its segment freed, it would be back at the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use corelane_engine::{DeadLetterReason, Outline, Place, QueueId, QueueProperties, Restored, Stored};
use corelane_journal::{
    self as journal, LastReturn, LiveMessage, Position, Record, Recovered, Removal, Ticket, TransactionName,
};
use corelane_wire::amqp10::Map;
use hashbrown::HashMap;

use super::definition::Defined;
use super::leaving::{Closing, death_of, reason_of};
use super::overflow::{Annotations, away_of};
use super::promise::Promise;
use super::{Durability, Kept, Said, definition};
use crate::Shard;
use crate::effect::Effect;
use crate::limits::OVERFLOW_SHARE;
use crate::mail::{Arrived, Mail};
use crate::memory::AWAY_BYTES;
use crate::message::Message;
use crate::subscription::Subscription;

/// A uid names the layout and the shard that it was given out on, so that none is given out twice.
const UID_LAYOUT_SHIFT: u32 = 48;
const UID_SHARD_SHIFT: u32 = 32;

/// What all shards know of the transactions that were open, and of messages that went from one to another.
#[derive(Debug, Default, Clone)]
pub struct Decisions {
    /// Those that were committed by the shard that decides.
    pub decided: BTreeSet<TransactionName>,
    /// Those that are open on some shard.
    pub open: BTreeSet<TransactionName>,
    /// Where messages were that have gone to another shard, and are kept there.
    pub arrived: BTreeSet<journal::Origin>,
    /// Those of them that stand where they were, too, with the shard that has yet to say that they are gone.
    pub standing: BTreeMap<journal::Origin, usize>,
}

impl Decisions {
    /// What the journals of all shards say, in their order.
    pub fn of<'a>(shards: impl Iterator<Item = &'a Recovered> + Clone) -> Self {
        let mut decisions = Decisions::default();
        for recovered in shards.clone() {
            for (name, transaction) in &recovered.transactions {
                decisions.decided.extend(transaction.decided.as_ref().map(|_| *name));
                decisions.open.extend(transaction.prepared.as_ref().map(|_| *name));
            }
            decisions.arrived.extend(&recovered.arrived);
        }
        for (shard, recovered) in shards.enumerate() {
            let stands = |origin: &&journal::Origin| recovered.find(origin.uid, origin.place).is_some();
            decisions.standing.extend(decisions.arrived.iter().filter(stands).map(|origin| (*origin, shard)));
        }
        decisions
    }

    /// A sequence and a uid of these above all that messages have come from. What came from there may never have been synced where it
    /// was, and who gets its name is not to be taken for it.
    pub fn unused(&self, uids: Range<u64>) -> (u64, u64) {
        let sequences = self.arrived.iter().map(|origin| Place(origin.place).sequence() + 1);
        let used = self.arrived.iter().map(|origin| origin.uid).filter(|uid| uids.contains(uid)).max();
        (sequences.max().unwrap_or(0), used.map_or(uids.start, |uid| uid + 1))
    }
}

/// What was there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RestoreSummary {
    pub queues: u64,
    pub messages: u64,
    pub bytes: u64,
    /// Messages that were there and could not be read, or of whose queue nothing is known.
    pub lost: u64,
    /// Transactions that were open and are committed now, and rolled back.
    pub committed: u64,
    pub rolled_back: u64,
}

/// A shard whose messages are on their way back.
pub(super) struct Restoring {
    /// Those that go back to their queues, in the order of queue and place.
    messages: Vec<LiveMessage>,
    returned: Vec<LastReturn>,
    /// What a transaction gave back that is committed now, by uid and place.
    given_back: BTreeMap<(u64, u64), journal::Returned>,
    /// What came from another shard and has yet to go there.
    standing: BTreeMap<journal::Origin, usize>,
    /// By uid.
    waiting: HashMap<u64, Waiting>,
    /// By their index in `messages`: read, and not their turn yet.
    early: BTreeMap<usize, Loaded>,
    /// Memory of these.
    early_bytes: u64,
    sequence_end: u64,
    summary: RestoreSummary,
}

/// A queue whose messages with these indices are to come.
struct Waiting {
    queue: QueueId,
    next: usize,
    end: usize,
}

/// A message that was read.
struct Loaded {
    stored: Stored<Message>,
    outline: Outline,
    last_value: Option<Box<[u8]>>,
    expires_at: u64,
    held_until: u64,
    /// Its last return has yet to be read, with the annotations.
    misses_return: bool,
    /// Those, if the message is not in memory.
    annotations: Option<Box<[u8]>>,
    death: u8,
    /// Nobody sees it before this shard says that it is gone there.
    stands_at: Option<usize>,
}

impl Restoring {
    fn index_of(&self, uid: u64, place: u64) -> Option<usize> {
        // Mostly it is the next one of its queue.
        let waiting = self.waiting.get(&uid)?;
        let is_it = |message: &&LiveMessage| message.uid == uid && message.place == place;
        if self.messages.get(waiting.next).filter(is_it).is_some() {
            return Some(waiting.next);
        }
        let rest = &self.messages[waiting.next..waiting.end];
        rest.binary_search_by_key(&place, |message| message.place).ok().map(|index| waiting.next + index)
    }

    /// What is taken of the memory for messages, and will be: each that has yet to come takes a place in its queue, and all are named
    /// here until the last one has come.
    fn memory(&self) -> u64 {
        let (named, come) = (self.messages.len() as u64, self.summary.messages);
        self.early_bytes + named.saturating_sub(come) * AWAY_BYTES + named * size_of::<LiveMessage>() as u64
    }

    fn return_of(&self, uid: u64, place: u64) -> Option<&LastReturn> {
        return_of(&self.returned, uid, place)
    }
}

fn return_of(returned: &[LastReturn], uid: u64, place: u64) -> Option<&LastReturn> {
    let index = returned.binary_search_by_key(&(uid, place), |last| (last.uid, last.place)).ok()?;
    returned.get(index)
}

/// What becomes of the transactions that are open.
#[derive(Default)]
struct Resolved {
    /// The messages that are there then.
    kept: Vec<LiveMessage>,
    given_back: BTreeMap<(u64, u64), journal::Returned>,
    /// What is to be said of it, all together.
    said: Vec<Said>,
    summary: RestoreSummary,
}

fn resolve(recovered: &mut Recovered, decisions: &Decisions) -> Resolved {
    let letters = |(_, queue): &(Position, journal::Queue)| match definition::read(queue) {
        Ok(Defined::Closed { letters, .. }) => Some((queue.uid, letters)),
        Ok(Defined::Queue { .. }) | Err(_) => None,
    };
    let closed: BTreeMap<u64, BTreeSet<Place>> = recovered.queues.iter().filter_map(letters).collect();
    let Resolved { mut given_back, mut said, mut summary, .. } = Resolved::default();
    let mut gone: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut segments: BTreeMap<TransactionName, BTreeSet<u32>> = BTreeMap::new();
    for (name, transaction) in &recovered.transactions {
        let Some((_, prepared)) = &transaction.prepared else { continue };
        if decisions.decided.contains(name) {
            gone.extend(&prepared.removed);
            for returned in &prepared.returned {
                given_back.insert((returned.uid, returned.place), returned.clone());
            }
        }
    }
    // There may be very many.
    let mut kept = std::mem::take(&mut recovered.messages);
    kept.retain_mut(|message| {
        let LiveMessage { uid, place, position, .. } = *message;
        let has_arrived = decisions.arrived.contains(&journal::Origin { uid, place });
        let mut is_gone = has_arrived || gone.contains(&(uid, place));
        is_gone |= closed.get(&uid).is_some_and(|letters| !letters.contains(&Place(place)));
        if let Some(name) = recovered.transaction_of(message) {
            segments.entry(name).or_default().insert(position.segment);
            is_gone |= !decisions.decided.contains(&name);
        }
        if is_gone {
            said.push(Said::Removed(Removal { uid, place, position }));
        } else {
            let last_return = return_of(&recovered.returned, uid, place);
            let written = last_return.map_or(position, |last| last.position.max(position));
            // Who has had it, and what became of that, is known only if all was said.
            let least = u32::from(!recovered.is_certain(written));
            message.acquired_count = message.acquired_count.max(least);
            if let Some(back) = given_back.get(&(uid, place)) {
                (message.delivery_count, message.acquired_count) = (back.delivery_count, back.acquired_count);
                let back = journal::Returned { segment: position.segment, ..back.clone() };
                said.push(Said::Carried(Box::new(Record::Returned(back))));
            }
        }
        !is_gone
    });
    for (name, transaction) in &recovered.transactions {
        let Some((position, _)) = &transaction.prepared else { continue };
        let committed = decisions.decided.contains(name);
        let (counter, prepared) = match committed {
            true => (&mut summary.committed, *position),
            false => (&mut summary.rolled_back, *position),
        };
        *counter += 1;
        let mut of_it = segments.remove(name).unwrap_or_default();
        of_it.insert(position.segment);
        said.push(Said::Done { name: *name, committed, prepared, segments: of_it.into_iter().collect() });
    }
    Resolved { kept, given_back, said, summary }
}

impl Shard {
    /// From now on durable messages are kept, after what there was before. Everything that was found is to be handed to
    /// [`Self::restore_record`] next, segment by segment, and then comes [`Self::end_restore`]; all before the first event.
    pub fn begin_restore(&mut self, now: u64, mut recovered: Recovered, decisions: &Decisions) {
        let Resolved { kept, given_back, said, mut summary } = resolve(&mut recovered, decisions);
        let Recovered { queues, returned, transactions, uid_end, sequence_end, mut journal, .. } = recovered;
        let lowest_uid =
            u64::from(journal.identity().layout) << UID_LAYOUT_SHIFT | (self.index as u64) << UID_SHARD_SHIFT;
        let boot = journal.boot();
        let (next_sequence, next_uid) = decisions.unused(lowest_uid..lowest_uid + (1 << UID_SHARD_SHIFT));
        let (sequence_end, uid_end) = (sequence_end.max(next_sequence), uid_end.max(next_uid));
        journal.reserve(sequence_end, uid_end);
        let mut durability = Durability::new(journal, uid_end, boot);
        durability.say(Said::Started { time: now, boot, shards: self.shards as u16 });
        durability.say(Said::Begin);
        said.into_iter().for_each(|said| durability.say(said));
        durability.say(Said::End);
        if decisions.standing.values().any(|shard| *shard == self.index) {
            let ticket = durability.journal.said();
            for to in (0..self.shards).filter(|to| *to != self.index) {
                durability.promise(ticket, Promise::Post { to, mail: Mail::GoneSinceStart });
            }
        }
        for (name, transaction) in transactions {
            // Nobody has to ask any more, if no shard has its part open.
            if let Some((position, _)) = transaction.decided {
                if decisions.open.contains(&name) {
                    durability.decided.insert(name, position);
                } else {
                    durability.say(Said::Forgotten(position));
                }
            }
        }
        self.durability = Some(Box::new(durability));
        let mut waiting = HashMap::new();
        for (position, queue) in &queues {
            if self.restore_definition(*position, queue) {
                continue;
            }
            match self.restore_queue(now, *position, queue) {
                Ok(id) => {
                    let begin = kept.partition_point(|message| message.uid < queue.uid);
                    let count = kept[begin..].partition_point(|message| message.uid == queue.uid);
                    waiting.insert(queue.uid, Waiting { queue: id, next: begin, end: begin + count });
                    summary.queues += 1;
                }
                Err(reason) => {
                    let text = format!(
                        "queue {:?} of the journal is left out, with its messages: {reason}",
                        queue.name
                    );
                    self.effects.push(Effect::Warn { text });
                }
            }
        }
        let early = BTreeMap::new();
        let restoring = Restoring {
            messages: kept,
            returned,
            given_back,
            standing: decisions.standing.clone(),
            waiting,
            early,
            early_bytes: 0,
            sequence_end,
            summary,
        };
        if let Some(durability) = &mut self.durability {
            durability.restoring = Some(Box::new(restoring));
        }
    }

    fn restore_queue(
        &mut self,
        now: u64,
        position: Position,
        queue: &journal::Queue,
    ) -> Result<QueueId, String> {
        let kept =
            Kept { uid: queue.uid, since: queue.since, version: queue.version, definition: Some(position) };
        let (kind, mut overrides, declared, terms) = match definition::read(queue)? {
            Defined::Queue { kind, overrides, declared, terms } => (kind, *overrides, declared, terms),
            Defined::Closed { to, letters } => {
                let properties = QueueProperties { dead_letter: true, ..QueueProperties::default() };
                let id = self.engine.declare_queue(properties);
                let (name, left) = (queue.name.as_str().into(), BTreeSet::new());
                self.queues.close(id, Closing { name, to, kept, letters, left });
                if let Some(durability) = &mut self.durability {
                    durability.by_uid.insert(queue.uid, id);
                }
                return Ok(id);
            }
        };
        // Not among the properties that have a name.
        overrides.held_besides = declared.as_ref().is_some_and(|declared| declared.rule().held_besides);
        let subscription = match terms {
            Some(terms) => Some(Box::new(Subscription::restored(terms)?)),
            None => None,
        };
        let is_subscription = subscription.is_some();
        let id = self
            .declare_node(now, &queue.name, kind, overrides, subscription)
            .map_err(|_| "there are as many queues as there may be".to_owned())?;
        if let Some(node) = self.queues.get_mut(id) {
            node.kept = Some(Box::new(kept));
            node.declared = declared;
        }
        if let Some(durability) = &mut self.durability {
            durability.by_uid.insert(queue.uid, id);
            if is_subscription {
                durability.unbound.insert(id);
            }
        }
        Ok(id)
    }

    /// Takes what a segment says. Only messages that are there count, and what was added to them when they came back.
    pub fn restore_record(&mut self, now: u64, position: Position, record: Record<'_>) {
        let Some(mut restoring) = self.durability.as_mut().and_then(|durability| durability.restoring.take())
        else {
            return;
        };
        match record {
            Record::Message(message, payload) => {
                self.restore_message(now, &mut restoring, position, message, payload);
            }
            Record::Returned(returned) => {
                self.restore_annotations(now, &mut restoring, position, &returned);
            }
            Record::Queue(_)
            | Record::QueueDeleted(_)
            | Record::Removed(_)
            | Record::Prepared(_)
            | Record::Decided(_)
            | Record::Done(_)
            | Record::Started(_)
            | Record::Stopped(_)
            | Record::Manifest(_) => {}
        }
        if let Some(durability) = &mut self.durability {
            durability.restoring = Some(restoring);
        }
    }

    fn restore_message(
        &mut self,
        now: u64,
        restoring: &mut Restoring,
        position: Position,
        record: journal::Message,
        payload: &[u8],
    ) {
        let Some(index) = restoring.index_of(record.uid, record.place) else { return };
        // Of one that was said several times the last holds.
        if restoring.messages[index].position != position {
            return;
        }
        let Some(mut message) = self.revive(&record, payload) else { return };
        message.is_kept = true;
        message.position = Some(position);
        let mut death = record.details.as_ref().map_or(0, |details| details.death);
        let last_return = restoring.return_of(record.uid, record.place);
        death = death.max(last_return.map_or(0, |last| last.death));
        let mut held_until = last_return.map_or(record.held_until, |last| last.held_until);
        let mut misses_return = last_return.is_some();
        if let Some(back) = restoring.given_back.get(&(record.uid, record.place)) {
            (held_until, misses_return, death) = (back.held_until, false, back.death);
            if let Ok(map) = Map::decode(&back.annotations) {
                message.restore_annotations(map);
            }
        }
        let origin = message.origin.as_deref();
        let stands_at = origin.and_then(|origin| restoring.standing.get(origin).copied());
        // On this shard both are said in order.
        let stands_at = stands_at.filter(|shard| *shard != self.index);
        let queue = restoring.waiting.get(&record.uid).and_then(|waiting| self.queues.get(waiting.queue));
        let key = queue.and_then(|node| node.destination.last_value_key.as_deref());
        let last_value = key.and_then(|property| message.key(property));
        let outline = Outline::of(&message);
        let memory = message.memory();
        let is_full = self.memory_used + restoring.memory() + memory > self.memory_max / OVERFLOW_SHARE;
        let mut annotations = None;
        let stored = if is_full && stands_at.is_none() {
            annotations = message.is_annotated.then(|| message.annotations().into());
            self.dissolve(message);
            Stored::Away(away_of(position, true))
        } else {
            restoring.early_bytes += memory;
            Stored::Here(message)
        };
        let loaded = Loaded {
            stored,
            outline,
            last_value,
            expires_at: record.expires_at,
            held_until,
            misses_return,
            annotations,
            death,
            stands_at,
        };
        match restoring.waiting.get_mut(&record.uid) {
            Some(waiting) if waiting.next == index && !loaded.misses_return => {
                waiting.next += 1;
                let queue = waiting.queue;
                self.put_back(now, restoring, queue, index, loaded);
                if restoring.early.is_empty() {
                    return;
                }
            }
            Some(_) | None => _ = restoring.early.insert(index, loaded),
        }
        self.restore_ready(now, restoring, record.uid);
    }

    fn restore_annotations(
        &mut self,
        now: u64,
        restoring: &mut Restoring,
        position: Position,
        returned: &journal::Returned,
    ) {
        let last = restoring.return_of(returned.uid, returned.place);
        let index = restoring.index_of(returned.uid, returned.place);
        // It stands behind its message.
        if let Some(index) = index.filter(|_| last.is_some_and(|last| last.position == position))
            && let Some(loaded) = restoring.early.get_mut(&index)
        {
            loaded.misses_return = false;
            if let Ok(map) = Map::decode(&returned.annotations) {
                match &mut loaded.stored {
                    Stored::Here(message) => {
                        restoring.early_bytes -= message.memory();
                        message.restore_annotations(map);
                        restoring.early_bytes += message.memory();
                        loaded.outline = Outline::of(message);
                    }
                    Stored::Away(_) => loaded.annotations = Some(returned.annotations.to_vec().into()),
                }
            }
            self.restore_ready(now, restoring, returned.uid);
        }
    }

    /// Puts back the messages of a queue whose turn it is.
    fn restore_ready(&mut self, now: u64, restoring: &mut Restoring, uid: u64) {
        while let Some(Waiting { queue, next, end }) = restoring.waiting.get_mut(&uid)
            && next < end
            && let Some(loaded) = restoring
                .early
                .get(next)
                .filter(|loaded| !loaded.misses_return)
                .is_some()
                .then(|| restoring.early.remove(next))
                .flatten()
        {
            let (queue, index) = (*queue, *next);
            *next += 1;
            self.put_back(now, restoring, queue, index, loaded);
        }
    }

    fn put_back(
        &mut self,
        now: u64,
        restoring: &mut Restoring,
        queue: QueueId,
        index: usize,
        loaded: Loaded,
    ) {
        let LiveMessage { place, delivery_count, acquired_count, .. } = restoring.messages[index];
        let Loaded { stored, outline, last_value, expires_at, held_until, annotations, mut death, .. } =
            loaded;
        if death == 0 && self.queues.closing(queue).is_some() {
            death = death_of(DeadLetterReason::Deleted);
        }
        // What has died has been seen.
        let stands_at = loaded.stands_at.filter(|_| death == 0);
        let (bytes, place) = (outline.size as u64, Place(place));
        match &stored {
            Stored::Here(message) => {
                restoring.early_bytes -= message.memory();
                self.memory_used += message.memory();
            }
            Stored::Away(_) => self.memory_used += AWAY_BYTES,
        }
        if let Some(map) = annotations {
            self.keep_annotations(queue, place, Annotations::Instead(map));
        }
        let restored = Restored {
            place,
            stored,
            outline,
            expires_at: Some(expires_at).filter(|at| *at > 0),
            held_until: Some(held_until).filter(|until| *until > 0),
            last_value,
            delivery_count,
            acquired_count,
            pending: stands_at.is_some(),
        };
        match self.engine.restore(now, queue, restored) {
            Ok(()) => {
                restoring.summary.messages += 1;
                restoring.summary.bytes += bytes;
                if let (Some(shard), Some(durability)) = (stands_at, &mut self.durability) {
                    durability.restored_hidden.entry(shard).or_default().push(Arrived { queue, place });
                }
                if let Some(reason) = reason_of(death) {
                    self.say_what_left();
                    self.engine.kill(now, queue, place, reason);
                    self.take_in_letters(true);
                }
            }
            Err(stored) => {
                drop(self.take_annotations(queue, place));
                self.forget_stored(stored);
            }
        }
    }

    /// Everything has been read.
    pub fn end_restore(&mut self, now: u64) -> RestoreSummary {
        let restoring = self.durability.as_mut().and_then(|durability| durability.restoring.take());
        let Some(mut restoring) = restoring else { return RestoreSummary::default() };
        // What waits for something that could not be read waits no longer.
        let queues: Vec<(QueueId, Range<usize>)> =
            restoring.waiting.values().map(|waiting| (waiting.queue, waiting.next..waiting.end)).collect();
        for (queue, indices) in queues {
            for index in indices {
                if let Some(loaded) = restoring.early.remove(&index) {
                    self.put_back(now, &mut restoring, queue, index, loaded);
                }
            }
            self.engine.begin_at(queue, restoring.sequence_end);
        }
        let closing: Vec<QueueId> = self.queues.closing_ones().collect();
        for queue in closing {
            self.engine.delete_queue(now, queue);
            self.settle_closing(queue);
        }
        restoring.summary.lost = restoring.messages.len() as u64 - restoring.summary.messages;
        if let Some(durability) = &mut self.durability {
            let unbound: Vec<QueueId> = durability.unbound.iter().copied().collect();
            for queue in unbound {
                self.bind_topics(now, queue);
            }
        }
        self.restore_topology(now);
        restoring.summary
    }

    /// Topics lead to a subscription that was there before.
    pub(crate) fn note_bound(&mut self, queue: QueueId) {
        if let Some(durability) = &mut self.durability {
            durability.unbound.remove(&queue);
        }
    }

    /// What was found to have come from a shard is gone there: consumers may have it.
    pub(crate) fn reveal_restored(&mut self, now: u64, from: usize) {
        let hidden = self.durability.as_mut().and_then(|durability| durability.restored_hidden.remove(&from));
        self.reveal(now, &hidden.unwrap_or_default());
    }

    /// All shards have again what they had.
    pub(crate) fn on_all_ready(&mut self) {
        if let Some(durability) = &mut self.durability {
            durability.all_ready = true;
        }
    }

    /// Whether what all shards had is there again: before, who asks for a queue or for subscriptions may not find them.
    pub(crate) fn knows_all(&self) -> bool {
        self.durability.as_ref().is_none_or(|durability| durability.all_ready)
    }

    /// Whether everything that was there is there again, and the start is written: from then on the last stop does not count as one in
    /// order any more, and who gets a message is noted. A disk without room for that keeps nobody waiting.
    pub(crate) fn is_restored(&self) -> bool {
        self.durability.as_ref().is_none_or(|durability| {
            let is_written = durability.journal.completed() > Ticket(0);
            let never = durability.refused.is_some() || durability.journal.is_failed();
            durability.unbound.is_empty() && self.topology.restoring == 0 && (is_written || never)
        })
    }
}
