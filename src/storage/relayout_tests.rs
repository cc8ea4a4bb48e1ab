//! Does everything get into another number of shards, and is it all there wherever that ends?

use super::journals::ShardStorage;
use super::open::open;
use super::progress::Progress;
use super::relayout::{Step, Target, relayout};
use super::support::{
    Author, SEGMENT, Seen, contents, home, in_transaction, measured, message, queue, settings, start,
};
use super::{DataDirectory, Found, Layout, SegmentFiles, StorageError};
use corelane_journal::{
    Decided, Details, Done, Identity, Message, Origin, Position, Prepared, Removal, Returned, Stopped,
    TransactionName,
};
use corelane_shard::Decisions;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

type Contents = BTreeMap<(String, u64), Seen>;

const QUEUES: u64 = 9;

fn name(uid: u64) -> String {
    format!("queue{uid}")
}

fn payload(uid: u64, place: u64) -> Vec<u8> {
    // Some are larger than a segment.
    let length = if place == 3 { 2 * SEGMENT as usize } else { 700 };
    (0..length).map(|byte| (byte as u64 * 31 + uid * 7 + place) as u8).collect()
}

/// Ten messages in each of the queues, of which some were removed, returned, or belong to transactions.
fn fill(directory: &Path, shards: u16) -> Contents {
    let mut expected = Contents::new();
    let opened = start(directory, shards);
    let boot = opened.boot;
    let committed = TransactionName { boot, shard: 0, number: 1 };
    let undecided = TransactionName { boot, shard: 0, number: 2 };
    for (shard, storage) in opened.shards.into_iter().enumerate() {
        let mut author = Author::new(storage);
        let uids: Vec<u64> = (0..QUEUES).filter(|uid| home(&name(*uid), shards.into()) == shard).collect();
        for uid in uids {
            author.say_thing(|batch| batch.queue(&queue(uid, &name(uid)), None));
            let mut positions = Vec::new();
            for place in 1..=6 {
                let bytes = payload(uid, place);
                positions.push(author.say_thing(|batch| batch.message(&message(uid, place), &bytes, None)));
                expected.insert((name(uid), place), Seen { payload: bytes, ..Seen::default() });
            }
            fill_outcomes(&mut author, uid, &positions, &mut expected);
            fill_transactions(&mut author, uid, committed, undecided, &mut expected);
        }
        author.say(|batch| batch.stopped(&Stopped { time: 7 }));
    }
    for ((queue, _), seen) in &mut expected {
        seen.shard = home(queue, shards.into());
    }
    expected
}

fn fill_outcomes(author: &mut Author, uid: u64, positions: &[Position], expected: &mut Contents) {
    author.say(|batch| batch.remove(&mut [Removal { uid, place: 1, position: positions[0] }]));
    expected.remove(&(name(uid), 1));
    for acquired_count in [1, 2] {
        let segment = positions[1].segment;
        let annotations = bytes::Bytes::from(format!("back {acquired_count}"));
        let (delivery_count, held_until) = (acquired_count - 1, u64::from(acquired_count) * 1000);
        let back = Returned {
            uid,
            place: 2,
            segment,
            delivery_count,
            acquired_count,
            held_until,
            annotations,
            death: 0,
        };
        author.say(|batch| batch.returned(&back));
    }
    let seen = expected.get_mut(&(name(uid), 2)).unwrap();
    *seen = Seen { counts: (1, 2), held_until: 2000, annotations: b"back 2".to_vec(), ..seen.clone() };
}

fn fill_transactions(
    author: &mut Author,
    uid: u64,
    committed: TransactionName,
    undecided: TransactionName,
    expected: &mut Contents,
) {
    let number = |name: TransactionName| TransactionName { number: name.number + 10 * uid, ..name };
    let (committed, undecided) = (number(committed), number(undecided));
    let segment = author.journal().segment();
    author.say_thing(|batch| batch.message(&in_transaction(uid, 11, committed), b"yes", None));
    author.say_thing(|batch| batch.message(&in_transaction(uid, 12, undecided), b"no", None));
    let returned = Returned {
        uid,
        place: 5,
        segment,
        delivery_count: 4,
        acquired_count: 5,
        held_until: 6,
        annotations: bytes::Bytes::from_static(b"in a transaction"),
        death: 0,
    };
    let prepared = |transaction, removed: u64| Prepared {
        transaction,
        removed: vec![(uid, removed)],
        returned: vec![Returned { place: if removed == 4 { 5 } else { 6 }, ..returned.clone() }],
    };
    author.say_thing(|batch| batch.prepared(&prepared(committed, 4), None));
    author.say_thing(|batch| batch.prepared(&prepared(undecided, 6), None));
    author.say_thing(|batch| batch.decided(&Decided { transaction: committed, participants: vec![0] }, None));
    expected.insert((name(uid), 11), Seen { payload: b"yes".to_vec(), ..Seen::default() });
    expected.remove(&(name(uid), 4));
    let seen = expected.get_mut(&(name(uid), 5)).unwrap();
    *seen = Seen { counts: (4, 5), held_until: 6, annotations: b"in a transaction".to_vec(), ..seen.clone() };
}

fn rehomed(expected: &Contents, shards: usize) -> Contents {
    let mut expected = expected.clone();
    for ((queue, _), seen) in &mut expected {
        seen.shard = home(queue, shards);
    }
    expected
}

#[test]
fn all_is_there_in_another_number_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    let expected = fill(folder.path(), 1);
    for (layout, shards) in [(2, 4), (3, 2), (4, 1), (4, 1)] {
        let opened = start(folder.path(), shards);
        assert_eq!(opened.directory.layout(), Layout { number: layout, shards });
        assert!(opened.shards.iter().all(|shard| shard.recovered.end.damage.is_empty()));
        assert!(opened.shards.iter().all(|shard| shard.recovered.transactions.is_empty()));
        assert!(opened.shards.iter().all(|shard| shard.recovered.uid_end > QUEUES - 1));
        assert!(opened.shards.iter().all(|shard| shard.recovered.sequence_end > 12));
        assert_same(&contents(opened), &rehomed(&expected, shards.into()));
        let folders = fs::read_dir(folder.path()).unwrap().flatten();
        let layouts =
            folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("layout-")).count();
        assert_eq!(layouts, 1, "the old one is deleted");
    }
}

#[test]
fn what_went_to_another_shard_is_left_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let opened = start(folder.path(), 2);
    let mut authors: Vec<Author> = opened.shards.into_iter().map(Author::new).collect();
    for (shard, author) in authors.iter_mut().enumerate() {
        let uid = shard as u64;
        author.say_thing(|batch| batch.queue(&queue(uid, &name(uid)), None));
    }
    for place in 1..=2 {
        authors[0].say_thing(|batch| batch.message(&message(0, place), b"died", None));
    }
    let details = Details { origin: Some(Origin { uid: 0, place: 1 }), ..Details::default() };
    let letter = Message { details: Some(Box::new(details)), ..message(1, 7) };
    authors[1].say_thing(|batch| batch.message(&letter, b"died", None));
    drop((authors, opened.directory));
    let found = contents(start(folder.path(), 1));
    let places: Vec<(&str, u64)> = found.keys().map(|(queue, place)| (queue.as_str(), *place)).collect();
    assert_eq!(places, [("queue0", 2), ("queue1", 7)]);
}

#[test]
fn a_queue_that_is_to_be_on_another_shard_goes_there() {
    let folder = tempfile::tempdir().unwrap();
    let opened = start(folder.path(), 2);
    let mut author = Author::new(opened.shards.into_iter().next().unwrap());
    author.say_thing(|batch| batch.queue(&queue(0, &name(0)), None));
    author.say_thing(|batch| batch.message(&message(0, 1), b"there", None));
    drop((author, opened.directory));
    // The author was shard 0's.
    for (layout, shard) in [(1, 0), (2, 1), (2, 1), (3, 0)] {
        let opened = open(&settings(folder.path()), 2, 7, &|_| shard, &measured).unwrap();
        assert_eq!(opened.directory.layout(), Layout { number: layout, shards: 2 });
        let found: Vec<usize> = contents(opened).into_values().map(|seen| seen.shard).collect();
        assert_eq!(found, [shard]);
    }
}

#[test]
fn what_could_have_been_delivered_is_marked_there_too() {
    let folder = tempfile::tempdir().unwrap();
    let opened = start(folder.path(), 1);
    let mut author = Author::new(opened.shards.into_iter().next().unwrap());
    author.say_thing(|batch| batch.queue(&queue(0, &name(0)), None));
    author.say_thing(|batch| batch.message(&message(0, 1), b"before the crash", None));
    drop((author, opened.directory));
    let opened = start(folder.path(), 1);
    let mut author = Author::new(opened.shards.into_iter().next().unwrap());
    author.say_thing(|batch| batch.message(&message(0, 2), b"after it", None));
    author.say(|batch| batch.stopped(&Stopped { time: 7 }));
    drop((author, opened.directory));
    let opened = start(folder.path(), 2);
    assert!(opened.shards.iter().all(|shard| shard.recovered.clean));
    let counts: Vec<(u32, u32)> = contents(opened).into_values().map(|seen| seen.counts).collect();
    assert_eq!(counts, [(0, 1), (0, 0)]);
}

#[test]
fn a_damaged_layout_is_put_aside_by_the_next_start_if_this_one_dies() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 1);
    let segment = folder.path().join("layout-1/shard-0/0000000001.segment");
    let file = OpenOptions::new().write(true).open(segment).unwrap();
    file.write_all_at(&[0xff; 8], 8192 + 30).unwrap();
    let mut steps = 0;
    while killed_after(folder.path(), 2, steps).unwrap() != Step::InForce {
        steps += 1;
    }
    drop(start(folder.path(), 2));
    assert!(folder.path().join("damaged-layout-1/shard-0").exists());
}

#[test]
fn a_stop_in_order_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 1);
    let opened = start(folder.path(), 1);
    Author::new(opened.shards.into_iter().next().unwrap())
        .say_thing(|batch| batch.message(&message(0, 20), b"later", None));
    drop(opened.directory);
    assert!(!start(folder.path(), 2).shards.iter().any(|shard| shard.recovered.clean));
    let opened = start(folder.path(), 1);
    let mut author = Author::new(opened.shards.into_iter().next().unwrap());
    author.say(|batch| batch.stopped(&Stopped { time: 7 }));
    drop((author, opened.directory));
    assert!(start(folder.path(), 1).shards[0].recovered.clean);
    assert!(start(folder.path(), 3).shards.iter().all(|shard| shard.recovered.clean));
}

fn assert_same(found: &Contents, expected: &Contents) {
    for (key, seen) in expected {
        assert_eq!(found.get(key), Some(seen), "{key:?}");
    }
    let extra: Vec<_> = found.keys().filter(|key| !expected.contains_key(*key)).collect();
    assert!(extra.is_empty(), "{extra:?} should not be there");
}

/// Fails after so many steps, as if the process had died there. Answers the last step, if it did not come that far.
fn killed_after(path: &Path, shards: u16, steps: usize) -> Option<Step> {
    let mut directory = DataDirectory::open(path, 9).unwrap();
    let before = directory.layout();
    let layout = Layout { number: before.number + 1, shards };
    let (storages, decisions) = read_all(&directory);
    let target = Target { layout, segment_bytes: SEGMENT, boot: 50, now: 9 };
    let mut left = steps;
    let mut last = None;
    let result = relayout(
        &mut directory,
        storages,
        &decisions,
        target,
        &|queue| home(&queue.name, shards.into()),
        &Progress::new("writing", 1),
        &mut |step| {
            last = Some(step);
            left = left.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
            Ok(())
        },
    );
    match result {
        Ok(()) => None,
        Err(StorageError::File { .. }) => last,
        Err(error) => panic!("{error}"),
    }
}

fn read_all(directory: &DataDirectory) -> (Vec<ShardStorage>, Decisions) {
    let Layout { number: layout, shards } = directory.layout();
    let mut storages = Vec::new();
    let mut decisions = Decisions::default();
    for shard in 0..shards {
        let files =
            SegmentFiles::new(directory.layout().shard_folder(directory.path(), shard), SEGMENT, false);
        let found =
            Found::read(&files, Identity { layout, shard, shards }, &Progress::new("reading", 1)).unwrap();
        let recovered = found.finish(super::support::config(layout, shard, shards, 50));
        let used = files.numbers().unwrap().into_iter().filter(|n| recovered.journal.uses(*n)).collect();
        let committed = recovered.transactions.iter().filter(|(_, known)| known.decided.is_some());
        decisions.decided.extend(committed.map(|(name, _)| *name));
        storages.push(ShardStorage { files, used, recovered });
    }
    (storages, decisions)
}

#[test]
fn a_death_at_any_step_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let expected = fill(folder.path(), 1);
    let mut before = 1;
    let mut died_at = Vec::new();
    for shards in [4, 2, 1] {
        let mut steps = 0;
        while let Some(step) = killed_after(folder.path(), shards, steps) {
            died_at.push(step);
            let in_force = matches!(step, Step::InForce | Step::OldDeleted);
            let now = if in_force { shards } else { before };
            let opened =
                open(&settings(folder.path()), now, 7, &|queue| home(&queue.name, now.into()), &measured)
                    .unwrap();
            assert_eq!(opened.directory.layout().shards, now, "after {step:?}");
            assert_same(&contents(opened), &rehomed(&expected, now.into()));
            if in_force {
                break;
            }
            steps += 1;
        }
        // What is in force now is the new one, whether it ended before or after that.
        before = shards;
        drop(start(folder.path(), shards));
    }
    for step in [Step::FoldersMade, Step::BatchWritten, Step::JournalSynced, Step::AllSynced, Step::InForce] {
        assert!(died_at.contains(&step), "{step:?} was not tried");
    }
}

#[test]
fn a_transaction_that_is_done_is_not_done_twice() {
    let folder = tempfile::tempdir().unwrap();
    let opened = start(folder.path(), 1);
    let transaction = TransactionName { boot: opened.boot, shard: 0, number: 1 };
    let mut author = Author::new(opened.shards.into_iter().next().unwrap());
    author.say_thing(|batch| batch.queue(&queue(1, "q1"), None));
    author.say_thing(|batch| batch.message(&in_transaction(1, 1, transaction), b"done", None));
    author.say_thing(|batch| {
        batch.message(&in_transaction(1, 2, TransactionName { number: 2, ..transaction }), b"no", None)
    });
    let prepared = Prepared { transaction, removed: Vec::new(), returned: Vec::new() };
    let position = author.say_thing(|batch| batch.prepared(&prepared, None));
    let done = Done { transaction, committed: true, segments: vec![position.segment] };
    author.say(|batch| batch.done(&done, position));
    drop((author, opened.directory));
    let seen = contents(start(folder.path(), 2));
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&("q1".to_owned(), 1)]);
}
