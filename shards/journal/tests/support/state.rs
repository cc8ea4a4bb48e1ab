//! What an owner knows, as it follows from what it said.

use corelane_journal::{LEVEL_BITS, Position, Record, Recovered};
use std::collections::{BTreeMap, BTreeSet};

/// Queue and place.
pub(crate) type Key = (u64, u64);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(u64, u32),
    Update(u64),
    Delete(u64),
    Publish { key: Key, length: usize, transaction: Option<u64> },
    Remove(Vec<Key>),
    Return { key: Key, acquired: u32, failed: u32 },
    Prepare { transaction: u64, removed: Vec<Key> },
    Finish { transaction: u64, committed: bool },
    Decide(u64),
    Forget(u64),
    CopyMessage(Key, Position),
    CopyQueue(u64, Position),
    CopyPrepared(u64, Position),
    CopyDecided(u64, Position),
    Carry(Record<'static>),
    Cleaned(u32),
    Stop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Acquired and delivery count.
    pub counts: (u32, u32),
    pub length: usize,
    pub transaction: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    pub messages: BTreeSet<Key>,
    pub removed: BTreeSet<Key>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Version and first segment.
    pub queues: BTreeMap<u64, (u64, u32)>,
    pub messages: BTreeMap<Key, Known>,
    /// Of open transactions, and of those that are not prepared.
    pub pending: BTreeMap<Key, Known>,
    pub open: BTreeMap<u64, Open>,
    pub decided: BTreeSet<u64>,
    pub deleted: BTreeSet<u64>,
    /// Rolled back, and yet to be told to the journal.
    pub forgotten: Vec<Key>,
    /// Whether the last record says that the broker stopped, if that is known.
    pub stopped: Option<bool>,
    pub sequence_end: u64,
    pub uid_end: u64,
}

/// A payload that nobody else has.
pub(crate) fn payload(key: Key, length: usize) -> Vec<u8> {
    let mut word = (key.0 << 32 ^ key.1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend(word.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl State {
    pub(crate) fn apply(&mut self, op: &Op, skipped: &BTreeSet<Key>) {
        self.stopped = match op {
            Op::Stop => Some(true),
            Op::Create(..)
            | Op::Update(_)
            | Op::Delete(_)
            | Op::Prepare { .. }
            | Op::Finish { .. }
            | Op::Decide(_) => Some(false),
            Op::Publish { key, .. } if !skipped.contains(key) => Some(false),
            _ if self.stopped == Some(false) => Some(false),
            _ => None,
        };
        match op {
            Op::Create(uid, since) => {
                self.queues.insert(*uid, (1, *since));
                self.uid_end = self.uid_end.max(uid + 1);
            }
            Op::Update(uid) => self.queues.get_mut(uid).expect("it is there").0 += 1,
            Op::Delete(uid) => {
                self.queues.remove(uid);
                self.messages.retain(|key, _| key.0 != *uid);
                self.pending.retain(|key, _| key.0 != *uid);
                self.deleted.insert(*uid);
            }
            Op::Publish { key, .. } if skipped.contains(key) => {}
            Op::Publish { key, length, transaction } => {
                let known = Known { counts: (0, 0), length: *length, transaction: *transaction };
                let to = if transaction.is_some() { &mut self.pending } else { &mut self.messages };
                to.insert(*key, known);
                self.sequence_end = self.sequence_end.max((key.1 & (u64::MAX >> LEVEL_BITS)) + 1);
            }
            Op::Remove(keys) => keys.iter().for_each(|key| {
                self.messages.remove(key);
            }),
            Op::Return { key, acquired, failed } => {
                if let Some(known) = self.messages.get_mut(key) {
                    known.counts.0 += acquired;
                    known.counts.1 += failed;
                }
            }
            Op::Prepare { transaction, removed } => {
                let messages =
                    self.pending.iter().filter(|(_, known)| known.transaction == Some(*transaction));
                let messages = messages.map(|(key, _)| *key).collect();
                self.open.insert(*transaction, Open { messages, removed: removed.iter().copied().collect() });
            }
            Op::Finish { transaction, committed } => self.finish(*transaction, *committed),
            Op::Decide(id) => {
                self.decided.insert(*id);
            }
            Op::Forget(id) => {
                self.decided.remove(id);
            }
            Op::Stop
            | Op::CopyMessage(..)
            | Op::CopyQueue(..)
            | Op::CopyPrepared(..)
            | Op::CopyDecided(..)
            | Op::Carry(_)
            | Op::Cleaned(_) => {}
        }
    }

    fn finish(&mut self, transaction: u64, committed: bool) {
        let open = self.open.remove(&transaction).expect("it is open");
        for key in open.messages {
            let known = self.pending.remove(&key).expect("it was published");
            if committed {
                self.messages.insert(key, Known { transaction: None, ..known });
            } else {
                self.forgotten.push(key);
            }
        }
        if committed {
            open.removed.iter().for_each(|key| {
                self.messages.remove(key);
            });
        }
    }

    /// Messages that no transaction holds.
    pub(crate) fn free_messages(&self) -> impl Iterator<Item = Key> + Clone {
        let held: BTreeSet<Key> = self.open.values().flat_map(|open| open.removed.iter().copied()).collect();
        self.messages.keys().copied().filter(move |key| !held.contains(key))
    }

    pub(crate) fn is_deletable(&self, uid: u64) -> bool {
        let mut open = self.open.values().flat_map(|open| open.removed.iter().chain(&open.messages));
        open.all(|key| key.0 != uid) && self.pending.keys().all(|key| key.0 != uid)
    }

    pub(crate) fn knows(&self, key: Key) -> bool {
        self.messages.contains_key(&key) || self.pending.contains_key(&key)
    }

    pub(crate) fn message(&self, key: Key) -> Known {
        *self.messages.get(&key).or_else(|| self.pending.get(&key)).expect("it is there")
    }

    /// What a transaction sent before it was prepared does not outlive a crash.
    pub(crate) fn forget_what_is_not_written(&mut self) {
        let open: BTreeSet<Key> = self.open.values().flat_map(|open| open.messages.iter().copied()).collect();
        self.pending.retain(|key, _| open.contains(key));
        self.forgotten.clear();
    }

    pub(crate) fn of(recovered: &Recovered) -> State {
        let queues =
            recovered.queues.iter().map(|(_, queue)| (queue.uid, (queue.version, queue.since))).collect();
        let mut state = State { queues, ..State::default() };
        for (name, known) in &recovered.transactions {
            if let Some((_, prepared)) = &known.prepared {
                let open =
                    Open { messages: BTreeSet::new(), removed: prepared.removed.iter().copied().collect() };
                state.open.insert(name.number, open);
            }
            if known.decided.is_some() {
                state.decided.insert(name.number);
            }
        }
        let mut before = None;
        for message in &recovered.messages {
            let key = (message.uid, message.place);
            assert!(before < Some(key), "in order, and each once");
            before = Some(key);
            let counts = (message.acquired_count, message.delivery_count);
            let transaction = recovered.transaction_of(message).map(|name| name.number);
            let known = Known { counts, length: 0, transaction };
            match transaction {
                Some(number) => {
                    state.open.get_mut(&number).expect("it is open").messages.insert(key);
                    state.pending.insert(key, known);
                }
                None => {
                    state.messages.insert(key, known);
                }
            }
        }
        for back in &recovered.returned {
            let counts = state.messages.get(&(back.uid, back.place)).map(|known| known.counts);
            assert_eq!(counts, Some((back.acquired_count, back.delivery_count)));
        }
        state
    }

    /// The first thing in which what was found (`self`) is not what it should be. Forgotten decisions may come back.
    pub(crate) fn differs(&self, wanted: &State) -> Option<String> {
        let mut wanted = wanted.clone();
        wanted.forget_what_is_not_written();
        if self.queues != wanted.queues {
            return Some(format!("queues {:?}, not {:?}", self.queues, wanted.queues));
        }
        if self.open != wanted.open {
            return Some(format!("open {:?}, not {:?}", self.open, wanted.open));
        }
        if !self.decided.is_superset(&wanted.decided) {
            return Some(format!("decided {:?}, not {:?}", self.decided, wanted.decided));
        }
        for key in wanted.messages.keys().chain(wanted.pending.keys()) {
            if !self.knows(*key) {
                return Some(format!("{key:?} is missing"));
            }
            let (found, wanted) = (self.message(*key), wanted.message(*key));
            if (found.counts, found.transaction) != (wanted.counts, wanted.transaction) {
                return Some(format!("{key:?} is {found:?}, not {wanted:?}"));
            }
        }
        let extra = self.messages.keys().chain(self.pending.keys()).find(|key| !wanted.knows(**key));
        extra.map(|key| format!("{key:?} came back"))
    }
}
