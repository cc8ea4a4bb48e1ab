//! How does everything get from the journals of so many shards into those of another number?
//!
//! The old journals are read and new ones are written beside them, each queue with all it has into that of its new home. Transactions
//! are resolved on the way: what was committed holds, what was not is gone. Uids and places stay what they were.
//!
//! Invariants:
//! - the new layout is in force when everything in it is durable, by one rename; until then the old one is, and nothing in it is changed;
//! - an attempt that was not finished is deleted by the next start, as is an old layout; one with damage in it is put aside.

use super::directory::DataDirectory;
use super::error::StorageError;
use super::helper::random;
use super::journals::ShardStorage;
use super::layout::{Layout, sync_directory};
use super::progress::Progress;
use super::scan::{part, read_segment};
use super::segments::{SegmentFiles, read_at};
use corelane_journal::{
    Config, Details, Identity, Journal, LastReturn, Message, Origin, Position, Queue, Record, Recovered,
    Returned, Started, Stopped,
};
use corelane_shard::Decisions;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use tracing::warn;

/// Bytes of payloads that gather for a batch. With the message that exceeds it, it is written.
const GATHERED_MAX: usize = 4 << 20;

/// What is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) layout: Layout,
    pub(super) segment_bytes: u32,
    pub(super) boot: u32,
    /// Microseconds since 1970.
    pub(super) now: u64,
}

/// Something of it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    FoldersMade,
    BatchWritten,
    JournalSynced,
    AllSynced,
    InForce,
    OldDeleted,
}

/// Writes all that `shards` have for another layout, and puts that in force. `watch` is told after each step, and may end it there.
pub(super) fn relayout(
    directory: &mut DataDirectory,
    shards: Vec<ShardStorage>,
    decisions: &Decisions,
    target: Target,
    home: &dyn Fn(&Queue) -> usize,
    progress: &Progress,
    watch: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<(), StorageError> {
    let folder = target.layout.folder(directory.path());
    let failed = |error| StorageError::of("write", &folder, error);
    let mut writers = Writers::new(directory, &shards, decisions, target, home, watch).map_err(failed)?;
    let clean = shards.iter().all(|shard| shard.recovered.clean);
    let is_damaged =
        |shard: &ShardStorage| !shard.recovered.end.damage.is_empty() || shard.files.has_damaged();
    let damaged = shards.iter().any(is_damaged);
    let before = directory.layout();
    for shard in shards {
        Reader::new(shard, decisions).read(&mut writers, progress)?;
    }
    let Writers { writers, lost, watch, .. } = writers;
    if lost > 0 {
        warn!("{lost} messages are of queues whose definitions are lost to damage, and are left behind");
    }
    for writer in writers {
        writer.finish(clean, target.now, watch).map_err(failed)?;
        watch(Step::JournalSynced).map_err(failed)?;
    }
    sync_directory(&folder).and_then(|()| sync_directory(directory.path())).map_err(failed)?;
    watch(Step::AllSynced).map_err(failed)?;
    if damaged {
        directory.mark_damaged(before).map_err(failed)?;
    }
    directory.put_in_force(target.layout).map_err(failed)?;
    watch(Step::InForce).map_err(failed)?;
    directory.delete_leftovers()?;
    watch(Step::OldDeleted).map_err(failed)
}

/// All new journals.
struct Writers<'a> {
    writers: Vec<Writer>,
    /// By uid.
    homes: BTreeMap<u64, usize>,
    /// Messages without a queue.
    lost: u64,
    watch: &'a mut dyn FnMut(Step) -> io::Result<()>,
}

impl<'a> Writers<'a> {
    fn new(
        directory: &DataDirectory,
        shards: &[ShardStorage],
        decisions: &Decisions,
        target: Target,
        home: &dyn Fn(&Queue) -> usize,
        watch: &'a mut dyn FnMut(Step) -> io::Result<()>,
    ) -> io::Result<Self> {
        let ends = shards.iter().map(|shard| shard.recovered.sequence_end);
        let sequence_end = ends.chain([decisions.unused(0..0).0]).max().unwrap_or(0);
        let uid_end = shards.iter().map(|shard| shard.recovered.uid_end).max().unwrap_or(0);
        let mut writers = Vec::new();
        for shard in 0..target.layout.shards {
            let mut writer = Writer::new(directory, target, shard)?;
            writer.journal.reserve(sequence_end, uid_end);
            writers.push(writer);
        }
        watch(Step::FoldersMade)?;
        let mut homes = BTreeMap::new();
        for (_, queue) in shards.iter().flat_map(|shard| &shard.recovered.queues) {
            let shard = home(queue);
            homes.insert(queue.uid, shard);
            writers[shard].queue(queue.clone());
        }
        Ok(Writers { writers, homes, lost: 0, watch })
    }

    fn message(&mut self, message: Message, payload: &[u8]) -> io::Result<()> {
        match self.homes.get(&message.uid) {
            Some(shard) => self.writers[*shard].message(message, payload, self.watch),
            None => {
                self.lost += 1;
                Ok(())
            }
        }
    }
}

/// One old journal.
struct Reader<'a> {
    shard: ShardStorage,
    decisions: &'a Decisions,
    /// What committed transactions have taken out, and what they have given back.
    removed: BTreeSet<(u64, u64)>,
    returned: BTreeMap<(u64, u64), Returned>,
}

impl<'a> Reader<'a> {
    fn new(shard: ShardStorage, decisions: &'a Decisions) -> Self {
        let mut removed = BTreeSet::new();
        let mut returned: BTreeMap<(u64, u64), Returned> = BTreeMap::new();
        let prepared = shard.recovered.transactions.values().filter_map(|known| known.prepared.as_ref());
        for (_, prepared) in
            prepared.filter(|(_, prepared)| decisions.decided.contains(&prepared.transaction))
        {
            removed.extend(prepared.removed.iter().copied());
            for back in &prepared.returned {
                let known = returned.entry((back.uid, back.place)).or_insert_with(|| back.clone());
                if known.acquired_count < back.acquired_count {
                    *known = back.clone();
                }
            }
        }
        Reader { shard, decisions, removed, returned }
    }

    fn read(&self, writers: &mut Writers<'_>, progress: &Progress) -> Result<(), StorageError> {
        let ShardStorage { files, used, recovered } = &self.shard;
        let mut buffer = part();
        for number in used {
            let Some(reader) = recovered.journal.reader(*number) else { continue };
            let mut result = Ok(());
            read_segment(files, *number, &mut buffer, reader, progress, &mut |position, record| {
                if let (Record::Message(message, payload), true) = (record, result.is_ok())
                    && self.exists(&message, position)
                {
                    result = self.now(message).and_then(|message| writers.message(message, payload));
                }
            })?;
            result.map_err(|error| StorageError::of("move messages of", &files.path(*number), error))?;
        }
        Ok(())
    }

    /// Whether this record is the one of a message that is there.
    fn exists(&self, message: &Message, position: Position) -> bool {
        let recovered = &self.shard.recovered;
        let name = (message.uid, message.place);
        let found = recovered.messages.binary_search_by_key(&name, |found| (found.uid, found.place));
        let Ok(index) = found else { return false };
        let found = &recovered.messages[index];
        let undone =
            recovered.transaction_of(found).is_some_and(|name| !self.decisions.decided.contains(&name));
        let has_left = self.decisions.arrived.contains(&Origin { uid: message.uid, place: message.place });
        found.position == position && !undone && !has_left && !self.removed.contains(&name)
    }

    /// The message with what has happened to it since.
    fn now(&self, mut message: Message) -> io::Result<Message> {
        let recovered = &self.shard.recovered;
        let name = (message.uid, message.place);
        let found = recovered.messages.binary_search_by_key(&name, |found| (found.uid, found.place));
        if let Ok(index) = found {
            message.delivery_count = recovered.messages[index].delivery_count;
            message.acquired_count = recovered.messages[index].acquired_count;
        }
        let back = recovered.returned.binary_search_by_key(&name, |back| (back.uid, back.place));
        if let Ok(index) = back {
            let back = &recovered.returned[index];
            message.held_until = back.held_until;
            die(&mut message, back.death);
            annotate(&mut message, self.annotations(back)?);
        }
        // Who has had it, and what became of that, is known only if all was said.
        if let Ok(index) = found {
            let position = recovered.messages[index].position;
            let written = back.map_or(position, |index| recovered.returned[index].position.max(position));
            message.acquired_count = message.acquired_count.max(u32::from(!recovered.is_certain(written)));
        }
        if let Some(back) = self.returned.get(&name)
            && back.acquired_count >= message.acquired_count
        {
            message.delivery_count = back.delivery_count;
            message.acquired_count = back.acquired_count;
            message.held_until = back.held_until;
            die(&mut message, back.death);
            annotate(&mut message, back.annotations.clone());
        }
        if message.details.is_some() {
            details(&mut message).transaction = None;
        }
        message.details.take_if(|details| **details == Details::default());
        Ok(message)
    }

    /// Those of a record that was read before, and whose place is known. If it cannot be read any more, none.
    fn annotations(&self, back: &LastReturn) -> io::Result<bytes::Bytes> {
        let Recovered { journal, .. } = &self.shard.recovered;
        let mut bytes = vec![0; back.position.length as usize];
        let file = File::open(self.shard.files.path(back.position.segment))?;
        read_at(&file, &mut bytes, back.position.offset.into())?;
        Ok(match journal.read(back.position, &bytes) {
            Some(Record::Returned(returned)) => returned.annotations,
            Some(_) | None => bytes::Bytes::new(),
        })
    }
}

/// Where nothing was added to a message, what was added before stays.
fn annotate(message: &mut Message, annotations: bytes::Bytes) {
    if !annotations.is_empty() {
        details(message).annotations = annotations;
    }
}

/// It has left its queue, and nobody has taken it in yet.
fn die(message: &mut Message, death: u8) {
    if death != 0 {
        details(message).death = death;
    }
}

fn details(message: &mut Message) -> &mut Details {
    message.details.get_or_insert_default()
}

/// One new journal.
struct Writer {
    journal: Journal,
    files: SegmentFiles,
    file: Option<(u32, File)>,
    started: Option<Started>,
    queues: Vec<Queue>,
    messages: Vec<(Message, Vec<u8>)>,
    gathered: usize,
}

impl Writer {
    fn new(directory: &DataDirectory, target: Target, shard: u16) -> io::Result<Self> {
        let Target { layout, segment_bytes, boot, now } = target;
        let files = SegmentFiles::new(layout.shard_folder(directory.path(), shard), segment_bytes, false);
        files.make_folder()?;
        let identity = Identity { layout: layout.number, shard, shards: layout.shards };
        let config = Config { segment_bytes, ..Config::new(identity, boot) };
        let started = Some(Started { boot, shards: layout.shards, time: now });
        Ok(Writer {
            journal: Journal::new(config),
            files,
            file: None,
            started,
            queues: Vec::new(),
            messages: Vec::new(),
            gathered: 0,
        })
    }

    fn queue(&mut self, queue: Queue) {
        self.queues.push(Queue { since: self.journal.segment(), ..queue });
    }

    fn message(
        &mut self,
        message: Message,
        payload: &[u8],
        watch: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> io::Result<()> {
        self.gathered += payload.len() + size_of::<Message>();
        self.messages.push((message, payload.to_vec()));
        if self.gathered >= GATHERED_MAX {
            self.write(None)?;
            watch(Step::BatchWritten)?;
        }
        Ok(())
    }

    /// Writes what has gathered. Nothing is synced before the file is full: nobody relies on it yet.
    fn write(&mut self, stopped: Option<Stopped>) -> io::Result<()> {
        let through = self.journal.say();
        let write = loop {
            while let Some(spare) = self.journal.spare_wanted() {
                self.journal.handle_spare(spare, random()?);
            }
            let mut batch = self.journal.begin_batch().expect("there are spares, and nothing is on its way");
            self.started.iter().for_each(|started| batch.started(started));
            for queue in &self.queues {
                batch.queue(queue, None);
            }
            for (message, payload) in &self.messages {
                batch.message(message, payload, None);
            }
            stopped.iter().for_each(|stopped| batch.stopped(stopped));
            if batch.has_room() {
                break batch.finish(through);
            }
            // No file is there yet, so the next one is as long as it has to be.
            batch.wait_for_room();
        };
        self.started = None;
        self.queues.clear();
        self.messages.clear();
        self.gathered = 0;
        let Some(write) = write else { return Ok(()) };
        if self.file.as_ref().is_none_or(|(number, _)| *number != write.segment) {
            self.sync()?;
            let path = self.files.path(write.segment);
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            self.file = Some((write.segment, file));
        }
        if let Some((_, file)) = &self.file {
            file.write_all_at(write.bytes(), write.offset)?;
        }
        self.journal.handle_synced(write);
        Ok(())
    }

    fn finish(
        mut self,
        clean: bool,
        now: u64,
        watch: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write(clean.then_some(Stopped { time: now }))?;
        watch(Step::BatchWritten)?;
        self.sync()?;
        sync_directory(self.files.folder())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), |(_, file)| file.sync_all())
    }
}
