//! `corelane journal`: what is in a data directory, and can all of it be read?

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use corelane_journal::{Message, Places, Position, Record, Returned, TRANSIENT, TransactionName};
use serde_json::{Map, Value as Json, json};

use super::table::cell;
use super::{DONE, FAILED};
use crate::storage::{Inspected, describe};

/// Look into a data directory that no broker uses.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum JournalCommand {
    /// Read everything, and say what is there and what cannot be read
    ///
    /// The exit code is 1 if there is damage. A last write that was not complete when the broker was killed is none: nobody was told
    /// that it was.
    Verify(DirectoryArgument),
    /// Print what stands in the journals, one line a record
    Dump(DumpArguments),
}

const EXAMPLES: &str = "\
Examples:
  corelane journal verify corelane-data
  corelane journal dump corelane-data --queue orders
  corelane journal dump corelane-data --json | jq -c 'select(.record == \"message\")'";

#[derive(Debug, Args)]
pub(super) struct DirectoryArgument {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct DumpArguments {
    #[command(flatten)]
    directory: DirectoryArgument,

    /// Only what concerns this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &JournalCommand) -> anyhow::Result<u8> {
    let mut output = BufWriter::new(io::stdout().lock());
    let result = match command {
        JournalCommand::Verify(arguments) => verify(&arguments.directory, &mut output)
            .map(|found| if found.damaged == 0 { DONE } else { FAILED }),
        JournalCommand::Dump(arguments) => dump(arguments, &mut output),
    };
    let flushed = result.and_then(|code| Ok(output.flush().map(|()| code)?));
    match flushed {
        // Whoever reads has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(DONE),
        result => result,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// What there is in a data directory.
#[derive(Debug, Default)]
pub(super) struct Verified {
    pub(super) queues: usize,
    pub(super) messages: usize,
    /// Of the files in use.
    pub(super) bytes: u64,
    /// Places that cannot be read.
    pub(super) damaged: usize,
}

/// Reads everything, and says what is there and what cannot be read.
pub(super) fn verify(directory: &Path, output: &mut impl Write) -> anyhow::Result<Verified> {
    let inspected = Inspected::open(directory)?;
    let mut found = Verified { bytes: inspected.used_bytes(), ..Verified::default() };
    for (index, shard) in inspected.shards.iter().enumerate() {
        let recovered = &shard.recovered;
        found.queues += recovered.queues.len();
        found.messages += recovered.messages.len();
        let stop = if recovered.clean { "stopped in order" } else { "did not stop in order" };
        writeln!(
            output,
            "shard {index}: {} segments, {} queues, {} messages, {} open transactions; {stop}",
            shard.used.len(),
            recovered.queues.len(),
            recovered.messages.len(),
            recovered.transactions.len(),
        )?;
        if let Some((segment, offset)) = recovered.end.torn {
            writeln!(
                output,
                "shard {index}: the last write was not complete: segment {segment}, byte {offset}"
            )?;
        }
        for damage in &recovered.end.damage {
            found.damaged += 1;
            writeln!(output, "{}", describe(damage, index as u16, &shard.files, recovered))?;
        }
    }
    match found.damaged {
        0 => writeln!(output, "no damage")?,
        1 => writeln!(output, "1 place is damaged")?,
        count => writeln!(output, "{count} places are damaged")?,
    }
    Ok(found)
}

fn dump(arguments: &DumpArguments, output: &mut impl Write) -> anyhow::Result<u8> {
    let inspected = Inspected::open(&arguments.directory.directory)?;
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    inspected.records(&mut |_, _, record| {
        if let Record::Queue(queue) = record {
            names.insert(queue.uid, queue.name);
        }
    })?;
    if let Some(wanted) = &arguments.queue
        && !names.values().any(|name| name == wanted)
    {
        anyhow::bail!("nothing in {} concerns a queue {wanted:?}", arguments.directory.directory.display());
    }
    let mut written = Ok(());
    inspected.records(&mut |shard, position, record| {
        let concerns = |uid: &u64| arguments.queue.is_none() || names.get(uid) == arguments.queue.as_ref();
        let uids = uids(&record);
        if written.is_err() || (arguments.queue.is_some() && !uids.iter().any(concerns)) {
            return;
        }
        let fields = fields(&record, &names);
        written = if arguments.json {
            writeln!(output, "{}", to_json(shard, position, kind(&record), fields))
        } else {
            writeln!(output, "{}", to_text(shard, position, kind(&record), &fields))
        };
    })?;
    written?;
    Ok(DONE)
}

type Fields = Vec<(&'static str, Json)>;

fn to_json(shard: usize, position: Position, kind: &str, fields: Fields) -> Json {
    let mut object = Map::new();
    object.insert("shard".to_owned(), json!(shard));
    object.insert("segment".to_owned(), json!(position.segment));
    object.insert("offset".to_owned(), json!(position.offset));
    object.insert("record".to_owned(), json!(kind));
    object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Json::Object(object)
}

fn to_text(shard: usize, position: Position, kind: &str, fields: &Fields) -> String {
    let Position { segment, offset, .. } = position;
    let mut text = format!("shard {shard}, segment {segment}, byte {offset}: {kind}");
    let said = fields.iter().filter(|(_, value)| !value.is_null());
    for (index, (name, value)) in said.enumerate() {
        text.push_str(if index == 0 { ": " } else { ", " });
        text.push_str(&format!("{} {}", name.replace('-', " "), cell(value)));
    }
    text
}

fn kind(record: &Record<'_>) -> &'static str {
    match record {
        Record::Queue(_) => "queue",
        Record::QueueDeleted(_) => "queue-deleted",
        Record::Message(..) => "message",
        Record::Removed(_) => "removed",
        Record::Returned(_) => "returned",
        Record::Prepared(_) => "prepared",
        Record::Decided(_) => "decided",
        Record::Done(_) => "done",
        Record::Started(_) => "started",
        Record::Stopped(_) => "stopped",
        Record::Manifest(_) => "manifest",
    }
}

/// The queues that a record is about.
fn uids(record: &Record<'_>) -> BTreeSet<u64> {
    match record {
        Record::Queue(queue) => BTreeSet::from([queue.uid]),
        Record::QueueDeleted(deleted) => BTreeSet::from([deleted.uid]),
        Record::Message(message, _) => BTreeSet::from([message.uid]),
        Record::Removed(removed) => BTreeSet::from([removed.uid]),
        Record::Returned(returned) => BTreeSet::from([returned.uid]),
        Record::Prepared(prepared) => {
            let removed = prepared.removed.iter().map(|(uid, _)| *uid);
            removed.chain(prepared.returned.iter().map(|back| back.uid)).collect()
        }
        Record::Decided(_)
        | Record::Done(_)
        | Record::Started(_)
        | Record::Stopped(_)
        | Record::Manifest(_) => BTreeSet::new(),
    }
}

fn fields(record: &Record<'_>, names: &BTreeMap<u64, String>) -> Fields {
    let name = |uid: u64| json!(names.get(&uid));
    match record {
        Record::Queue(queue) => vec![
            ("queue", json!(queue.name)),
            ("uid", json!(queue.uid)),
            ("version", json!(queue.version)),
            ("kind", json!(queue.kind)),
            ("since-segment", json!(queue.since)),
        ],
        Record::QueueDeleted(deleted) => vec![("queue", name(deleted.uid)), ("uid", json!(deleted.uid))],
        Record::Message(message, payload) => message_fields(message, payload, name(message.uid)),
        Record::Removed(removed) => vec![
            ("queue", name(removed.uid)),
            ("uid", json!(removed.uid)),
            ("places", json!(removed.places.iter().map(show).collect::<Vec<_>>())),
            ("of-segment", json!(removed.segment)),
        ],
        Record::Returned(returned) => returned_fields(returned, name(returned.uid)),
        Record::Prepared(prepared) => {
            let removed = prepared.removed.iter().map(|(uid, place)| json!({"uid": uid, "place": place}));
            let returned = prepared.returned.iter().map(|back| json!({"uid": back.uid, "place": back.place}));
            vec![
                ("transaction", json!(transaction(&prepared.transaction))),
                ("removes", json!(removed.collect::<Vec<_>>())),
                ("returns", json!(returned.collect::<Vec<_>>())),
            ]
        }
        Record::Decided(decided) => vec![
            ("transaction", json!(transaction(&decided.transaction))),
            ("participants", json!(decided.participants)),
        ],
        Record::Done(done) => vec![
            ("transaction", json!(transaction(&done.transaction))),
            ("committed", json!(done.committed)),
            ("of-segments", json!(done.segments)),
        ],
        Record::Started(started) => vec![
            ("boot", json!(started.boot)),
            ("shards", json!(started.shards)),
            ("time-us", json!(started.time)),
        ],
        Record::Stopped(stopped) => vec![("time-us", json!(stopped.time))],
        Record::Manifest(manifest) => vec![
            ("boot", json!(manifest.boot)),
            ("uids-below", json!(manifest.uid_end)),
            ("sequences-below", json!(manifest.sequence_end)),
            ("segments", json!(manifest.segments.iter().map(|end| end.segment).collect::<Vec<_>>())),
        ],
    }
}

fn message_fields(message: &Message, payload: &[u8], queue: Json) -> Fields {
    let details = message.details.as_deref();
    let origin = details
        .and_then(|details| details.origin)
        .map(|origin| json!({"uid": origin.uid, "place": origin.place}));
    vec![
        ("queue", queue),
        ("uid", json!(message.uid)),
        ("kept", json!(message.uid & TRANSIENT == 0)),
        ("place", json!(message.place)),
        ("bytes", json!(payload.len())),
        ("priority", json!(message.priority)),
        ("enqueued-at-us", json!(message.enqueued_at)),
        ("expires-at-us", unless_zero(message.expires_at)),
        ("held-until-us", unless_zero(message.held_until)),
        ("delivery-count", unless_zero(message.delivery_count.into())),
        ("acquired-count", unless_zero(message.acquired_count.into())),
        ("death", unless_zero(details.map_or(0, |details| details.death.into()))),
        ("transaction", json!(details.and_then(|details| details.transaction.as_ref()).map(transaction))),
        ("origin", json!(origin)),
    ]
}

fn returned_fields(returned: &Returned, queue: Json) -> Fields {
    vec![
        ("queue", queue),
        ("uid", json!(returned.uid)),
        ("place", json!(returned.place)),
        ("delivery-count", json!(returned.delivery_count)),
        ("acquired-count", json!(returned.acquired_count)),
        ("held-until-us", unless_zero(returned.held_until)),
        ("of-segment", json!(returned.segment)),
    ]
}

fn unless_zero(number: u64) -> Json {
    if number == 0 { Json::Null } else { json!(number) }
}

fn show(places: &Places) -> String {
    let Places { first, last } = places;
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// The start of the broker, the shard that decides, and the number there.
fn transaction(name: &TransactionName) -> String {
    format!("{}.{}.{}", name.boot, name.shard, name.number)
}
