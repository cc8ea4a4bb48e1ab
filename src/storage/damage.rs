//! What was lost where a journal cannot be read?
//!
//! Damage is told by segment and range. What its bytes claim to have been is told too, as far as that makes sense; nothing is built
//! on it.

use super::segments::{SegmentFiles, read_at};
use corelane_journal::{Damage, Lost, Record, Recovered, TRANSIENT};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;

/// Bytes of a damaged range that are looked at for what they were.
const LOOKED_AT_MAX: u32 = 64 << 20;

/// What `--on-damage` may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OnDamage {
    /// Do not start.
    Stop,
    /// Start with what can be read.
    #[default]
    Skip,
}

/// One sentence about what was lost.
pub fn describe(damage: &Damage, shard: u16, files: &SegmentFiles, recovered: &Recovered) -> String {
    let path = files.path(damage.segment);
    let mut text = format!("shard {shard}: {}: ", path.display());
    let (from, to) = (damage.bytes.start, damage.bytes.end);
    let (first, last) = (damage.batches.start, damage.batches.end.saturating_sub(1));
    // Writing to a string does not fail.
    let _ = match damage.what {
        Lost::Records => {
            write!(text, "some records of batch {first} cannot be read, in bytes {from} to {to}")
        }
        Lost::Batches if first == last => {
            write!(text, "batch {first} cannot be read, in bytes {from} to {to}")
        }
        Lost::Batches => {
            write!(text, "batches {first} to {last} cannot be read, in bytes {from} to {to}")
        }
        Lost::Segment if path.exists() => write!(text, "nothing in this segment can be read"),
        Lost::Segment => write!(text, "this segment is missing"),
        Lost::Unreadable => write!(text, "the disk does not give bytes {from} to {to}"),
    };
    let claims = claimed_messages(damage, files, recovered);
    for (index, (uid, count)) in claims.iter().enumerate() {
        let queue = recovered.queues.iter().find(|(_, queue)| queue.uid == *uid);
        let start = if index == 0 { "; it looks as if " } else { " and " };
        let many = if *count == 1 { "a message".to_owned() } else { format!("up to {count} messages") };
        let _ = match queue {
            Some((_, queue)) => write!(text, "{start}{many} of queue {:?}", queue.name),
            None => write!(text, "{start}{many} of a queue that is not known"),
        };
    }
    if !claims.is_empty() {
        text.push_str(" stood there");
    }
    text
}

/// By uid: the messages that the damaged bytes seem to have been, without those that were found elsewhere.
fn claimed_messages(damage: &Damage, files: &SegmentFiles, recovered: &Recovered) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    let length = damage.bytes.end.saturating_sub(damage.bytes.start).min(LOOKED_AT_MAX);
    let mut bytes = vec![0; length as usize];
    let read = File::open(files.path(damage.segment))
        .and_then(|file| read_at(&file, &mut bytes, damage.bytes.start.into()));
    let Ok(read) = read else { return counts };
    damage.claims(&bytes[..read], &mut |record| {
        if let Record::Message(message, _) = record {
            let name = (message.uid, message.place);
            let found = recovered.messages.binary_search_by_key(&name, |found| (found.uid, found.place));
            // What was not kept is not missed.
            if found.is_err() && message.uid & TRANSIENT == 0 {
                *counts.entry(message.uid).or_default() += 1;
            }
        }
    });
    counts
}
