//! A shard that writes its journal without a ring, and one that only looks at what it gets back.

use super::{
    Measured, Opened, Restore, ShardStorage, StorageSettings, SyncChoice, SyncError, SyncMode, open, restore,
};
use crate::storage::damage::OnDamage;
use crate::storage::progress::Progress;
use corelane_journal::{
    Batch, Config, Details, Identity, Journal, Message, Placed, Position, Queue, Record, Recovered, Returned,
    TransactionName, Write,
};
use corelane_shard::Decisions;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

pub(super) const SEGMENT: u32 = 64 << 10;

pub(super) fn settings(directory: &Path) -> StorageSettings {
    StorageSettings {
        directory: directory.to_owned(),
        segment_bytes: Some(SEGMENT),
        disk_free_min: 0,
        sync: SyncChoice::WriteThrough,
        on_damage: OnDamage::Skip,
    }
}

/// The home of a queue whose name ends with a number.
pub(super) fn home(name: &str, shards: usize) -> usize {
    name.bytes().last().map_or(0, usize::from) % shards
}

/// Nobody measures here.
pub(super) fn measured(
    _folder: &Path,
    _direct: bool,
    modes: &[SyncMode],
) -> Vec<Result<Measured, SyncError>> {
    modes.iter().map(|mode| Ok(Measured { mode: *mode, quartile: Duration::ZERO })).collect()
}

pub(super) fn start(directory: &Path, shards: u16) -> Opened {
    open(&settings(directory), shards, 7, &|queue| home(&queue.name, shards.into()), &measured).unwrap()
}

/// Says things, and writes and syncs each at once.
pub(super) struct Author {
    pub(super) storage: ShardStorage,
    files: BTreeMap<u32, File>,
}

impl Author {
    pub(super) fn new(storage: ShardStorage) -> Self {
        Author { storage, files: BTreeMap::new() }
    }

    /// Says something that has no place of its own.
    pub(super) fn say(&mut self, what: impl FnMut(&mut Batch<'_>)) {
        self.write(what, |_, ()| ());
    }

    /// Says a thing. Answers where it lies.
    pub(super) fn say_thing(&mut self, what: impl FnMut(&mut Batch<'_>) -> Placed) -> Position {
        self.write(what, |write, placed| write.position(placed))
    }

    fn write<T, R>(
        &mut self,
        mut what: impl FnMut(&mut Batch<'_>) -> T,
        then: impl FnOnce(&Write, T) -> R,
    ) -> R {
        let ShardStorage { files, recovered, .. } = &mut self.storage;
        let journal = &mut recovered.journal;
        let through = journal.say();
        let (said, write) = loop {
            while let Some(spare) = journal.spare_wanted() {
                self.files.insert(spare.number, files.prepare(spare).unwrap());
                journal.handle_spare(spare, u64::from(spare.number) * 77);
            }
            let mut batch = journal.begin_batch().unwrap();
            let said = what(&mut batch);
            if batch.has_room() {
                break (said, batch.finish(through).unwrap());
            }
            batch.wait_for_room();
        };
        self.files[&write.segment].write_all_at(write.bytes(), write.offset).unwrap();
        let answer = then(&write, said);
        journal.handle_synced(write);
        let freed = journal.take_freed();
        files.free(&freed).unwrap();
        answer
    }

    pub(super) fn journal(&mut self) -> &mut Journal {
        &mut self.storage.recovered.journal
    }
}

pub(super) fn queue(uid: u64, name: &str) -> Queue {
    Queue {
        uid,
        version: 1,
        since: 1,
        kind: 2,
        name: name.to_owned(),
        properties: bytes::Bytes::from_static(b"p"),
        subscription: bytes::Bytes::new(),
    }
}

pub(super) fn message(uid: u64, place: u64) -> Message {
    Message { uid, place, enqueued_at: place * 10, priority: 4, ..Message::default() }
}

pub(super) fn in_transaction(uid: u64, place: u64, transaction: TransactionName) -> Message {
    let details = Details { transaction: Some(transaction), ..Details::default() };
    Message { details: Some(Box::new(details)), ..message(uid, place) }
}

/// What there is of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) shard: usize,
    pub(super) payload: Vec<u8>,
    pub(super) counts: (u32, u32),
    pub(super) held_until: u64,
    pub(super) annotations: Vec<u8>,
}

/// Takes in what there was, by queue and place.
#[derive(Debug, Default)]
pub(super) struct Reader {
    shard: usize,
    recovered: Option<Recovered>,
    decided: BTreeSet<TransactionName>,
    seen: BTreeMap<(String, u64), Seen>,
    returned: Vec<Returned>,
}

impl Reader {
    fn name(&self, uid: u64) -> Option<String> {
        let queues = &self.recovered.as_ref()?.queues;
        queues.iter().find(|(_, queue)| queue.uid == uid).map(|(_, queue)| queue.name.clone())
    }
}

impl Restore for Reader {
    type Summary = BTreeMap<(String, u64), Seen>;

    fn begin_restore(&mut self, _now: u64, recovered: Recovered, decisions: &Decisions) {
        self.recovered = Some(recovered);
        self.decided = decisions.decided.clone();
    }

    fn restore_record(&mut self, _now: u64, position: Position, record: Record<'_>) {
        let recovered = self.recovered.as_ref().unwrap();
        if let Record::Returned(returned) = &record
            && recovered.returned.iter().any(|back| back.position == position)
        {
            self.returned.push(returned.clone());
        }
        let Record::Message(message, payload) = record else { return };
        let Some(found) = recovered.messages.iter().find(|found| found.position == position) else { return };
        if recovered.transaction_of(found).is_some_and(|name| !self.decided.contains(&name)) {
            return;
        }
        let Some(name) = self.name(message.uid) else { return };
        let seen = Seen {
            shard: self.shard,
            payload: payload.to_vec(),
            counts: (found.delivery_count, found.acquired_count),
            held_until: message.held_until,
            annotations: message.details.map_or_else(Vec::new, |details| details.annotations.to_vec()),
        };
        assert!(self.seen.insert((name, message.place), seen).is_none(), "once");
    }

    fn end_restore(&mut self, _now: u64) -> Self::Summary {
        let recovered = self.recovered.as_ref().unwrap();
        let prepared = recovered.transactions.values().filter_map(|known| known.prepared.as_ref());
        for (_, prepared) in prepared.filter(|(_, prepared)| self.decided.contains(&prepared.transaction)) {
            for (uid, place) in &prepared.removed {
                self.seen.remove(&(self.name(*uid).unwrap(), *place));
            }
            self.returned.extend(prepared.returned.iter().cloned());
        }
        for back in &self.returned {
            let seen = self.seen.get_mut(&(self.name(back.uid).unwrap(), back.place)).unwrap();
            seen.counts = (back.delivery_count, back.acquired_count);
            seen.held_until = back.held_until;
            seen.annotations = back.annotations.to_vec();
        }
        std::mem::take(&mut self.seen)
    }
}

/// All messages of all shards.
pub(super) fn contents(opened: Opened) -> BTreeMap<(String, u64), Seen> {
    let mut all = BTreeMap::new();
    for (shard, storage) in opened.shards.into_iter().enumerate() {
        let mut reader = Reader { shard, ..Reader::default() };
        let progress = Progress::new("restoring", opened.used_bytes);
        let seen = restore(&mut reader, storage, &opened.decisions, &progress, || 7).unwrap();
        all.extend(seen);
    }
    all
}

/// A journal's settings as [`open`] makes them.
pub(super) fn config(layout: u32, shard: u16, shards: u16, boot: u32) -> Config {
    Config { segment_bytes: SEGMENT, ..Config::new(Identity { layout, shard, shards }, boot) }
}
