//! What completes when, and what is refused or reported at a start.

use std::collections::BTreeMap;

use corelane_journal::*;

const IDENTITY: Identity = Identity { layout: 1, shard: 3, shards: 4 };

fn config() -> Config {
    Config { segment_bytes: 8 * 4096, ..Config::new(IDENTITY, 1) }
}

fn journal() -> Journal {
    let mut journal = Journal::new(config());
    while let Some(spare) = journal.spare_wanted() {
        journal.handle_spare(spare, 0x1234_5678 + u64::from(spare.number));
    }
    journal
}

fn message(place: u64) -> Message {
    Message { uid: 1, place, ..Message::default() }
}

/// One batch with one message: its write, and where the message lies.
fn say(journal: &mut Journal, place: u64, payload: &[u8]) -> (Write, Position) {
    let ticket = journal.say();
    let mut batch = journal.begin_batch().expect("nothing is on its way");
    let placed = batch.message(&message(place), payload, None);
    let write = batch.finish(ticket).expect("there is something to write");
    let position = write.position(placed);
    (write, position)
}

fn put(file: &mut Vec<u8>, write: &Write) {
    let end = write.offset as usize + write.bytes().len();
    file.resize(file.len().max(end), 0);
    file[write.offset as usize..end].copy_from_slice(write.bytes());
}

/// A segment with batches of one message each.
fn segment(batches: u64) -> Vec<u8> {
    let (mut journal, mut file) = (journal(), Vec::new());
    for place in 0..batches {
        let (write, _) = say(&mut journal, place, b"payload");
        assert_eq!(write.segment, 1);
        put(&mut file, &write);
        journal.handle_synced(write);
    }
    file
}

fn scan(identity: Identity, file: &[u8]) -> Result<Recovered, Refusal> {
    let (mut scan, mut recovery) = (Scan::new(identity), Recovery::new());
    let each = &mut |position: Position, record: Record<'_>| recovery.handle(position, record);
    assert!(scan.begin(1));
    scan.feed(file, each)?;
    scan.end(each)?;
    Ok(recovery.finish(scan.finish(), config()))
}

#[test]
fn a_ticket_completes_when_its_batch_is_synced() {
    let mut journal = journal();
    assert!(journal.begin_batch().is_none(), "nothing was said");
    let (write, position) = say(&mut journal, 1, b"payload");
    assert_eq!(
        (write.offset, write.bytes().len()),
        (0, 12288),
        "the segment's header goes with its first batch"
    );
    assert_eq!(write.bytes().as_ptr().align_offset(BLOCK), 0);
    let later = journal.say();
    assert!(journal.begin_batch().is_none(), "one is on its way");
    assert_eq!(journal.completed(), Ticket(0));
    let bytes = write.bytes()[position.offset as usize..][..position.length as usize].to_vec();
    assert_eq!(journal.handle_synced(write), Ticket(1));
    assert_eq!(journal.read(position, &bytes), Some(Record::Message(message(1), b"payload")));
    assert_eq!(journal.read(Position { offset: position.offset + 1, ..position }, &bytes), None);
    let batch = journal.begin_batch().expect("something was said meanwhile");
    assert!(batch.finish(later).is_none(), "it turned out to be nothing");
    assert_eq!(journal.completed(), later);
}

#[test]
fn what_does_not_fit_waits_with_its_ticket() {
    let mut journal = journal();
    let (first, second) = (journal.say(), journal.say());
    let mut batch = journal.begin_batch().expect("something was said");
    batch.message(&message(1), b"first", None);
    let write = batch.finish(first).expect("there is something to write");
    assert_eq!(journal.handle_synced(write), first);
    let mut batch = journal.begin_batch().expect("something is left");
    batch.message(&message(2), b"second", None);
    let write = batch.finish(second).expect("there is something to write");
    assert_eq!(journal.handle_synced(write), second);
    assert!(journal.begin_batch().is_none());
}

#[test]
fn a_failed_sync_is_final() {
    let mut journal = journal();
    let (write, _) = say(&mut journal, 1, b"payload");
    journal.handle_failed();
    assert_eq!(journal.handle_synced(write), Ticket(0), "nobody knows what is on the disk");
    journal.say();
    assert!(journal.begin_batch().is_none());
    assert!(journal.is_failed());
}

#[test]
fn no_batch_has_room_without_a_segment() {
    let mut journal = Journal::new(config());
    journal.say();
    assert!(!journal.begin_batch().expect("something was said").has_room());
    let spare = journal.spare_wanted().expect("there is none");
    journal.handle_spare(spare, 1);
    assert!(journal.begin_batch().expect("it still waits").has_room());
}

#[test]
fn a_message_larger_than_a_segment_has_one_of_its_own_when_there_is_room_for_it() {
    let mut journal = journal();
    let (write, _) = say(&mut journal, 1, b"small");
    journal.handle_synced(write);
    journal.say();
    while let Some(spare) = journal.spare_wanted() {
        journal.handle_spare(spare, 1);
    }
    let mut batch = journal.begin_batch().expect("something was said");
    batch.message(&message(2), &[7; 100_000], None);
    assert!(!batch.has_room());
    batch.wait_for_room();
    // What frees segments does not wait, nor does it take away what is waited for.
    assert!(journal.begin_freeing(&BTreeMap::new()).is_none());
    let spare = journal.spare_wanted().expect("it waits for a larger one");
    assert!((100_000..130_000).contains(&spare.bytes), "{spare:?}");
    assert_eq!((spare.number, spare.bytes % 4096), (2, 0));
    journal.handle_spare(spare, 1);
    assert_eq!(journal.spare_wanted(), None);
    let (write, position) = say(&mut journal, 2, &vec![7; 100_000]);
    assert_eq!((write.segment, write.offset, position.segment), (2, 0, 2));
    assert!((100_000..=spare.bytes as usize).contains(&write.bytes().len()));
    journal.handle_synced(write);
    assert!(journal.disk_bytes() > 100_000);
    assert_eq!(journal.spare_wanted().map(|spare| spare.bytes), Some(config().segment_bytes));
}

#[test]
fn who_has_less_to_say_than_before_waits_for_no_room() {
    let mut journal = journal();
    journal.say();
    let mut batch = journal.begin_batch().expect("something was said");
    batch.message(&message(1), &[7; 100_000], None);
    batch.wait_for_room();
    assert!(journal.spare_wanted().is_some());
    let (write, _) = say(&mut journal, 1, b"small");
    journal.handle_synced(write);
    assert_eq!(
        journal.spare_wanted().map(|spare| (spare.number, spare.bytes)),
        Some((3, config().segment_bytes))
    );
}

#[test]
fn another_shards_segment_is_refused() {
    let found = scan(Identity { shard: 2, ..IDENTITY }, &segment(2)).map(|_| ());
    assert_eq!(found, Err(Refusal::Foreign { segment: 1, found: IDENTITY }));
}

#[test]
fn a_torn_end_is_no_damage_and_a_bad_batch_before_another_is() {
    let whole = segment(2);
    assert_eq!(
        scan(IDENTITY, &whole).map(|found| (found.messages.len(), found.end)),
        Ok((2, End::default()))
    );
    let torn = scan(IDENTITY, &whole[..3 * 4096 + 90]).expect("it is ours");
    assert_eq!((torn.messages.len(), torn.end.torn, torn.end.damage), (1, Some((1, 12288)), vec![]));
    let mut bad = whole.clone();
    bad[8192 + 60] ^= 1;
    let found = scan(IDENTITY, &bad).expect("it is ours");
    let bytes = 8192 + 24..8192 + 24 + 77;
    let damage = Damage { segment: 1, bytes, batches: 1..2, what: Lost::Records };
    assert_eq!((found.messages.len(), found.end.damage), (1, vec![damage]));
    bad[8192 + 9] ^= 1;
    let found = scan(IDENTITY, &bad).expect("it is ours");
    let damage = Damage { segment: 1, bytes: 8192..12288, batches: 1..2, what: Lost::Batches };
    assert_eq!((found.messages.len(), found.end.damage), (1, vec![damage]));
}

#[test]
fn a_block_of_a_header_costs_nothing_and_both_cost_the_segment_and_are_told() {
    for lost in [0..4096, 4096..8192] {
        let mut file = segment(2);
        file[lost].fill(0);
        let found = scan(IDENTITY, &file).expect("it is ours");
        assert_eq!((found.messages.len(), found.end), (2, End::default()));
    }
    let mut file = segment(3);
    file[..8192].fill(0);
    let found = scan(IDENTITY, &file).expect("it is ours");
    // No more is looked at than tells that there was something.
    let damage = Damage { segment: 1, bytes: 0..8192, batches: 1..3, what: Lost::Segment };
    assert_eq!((found.messages.len(), found.clean, found.end.damage), (0, false, vec![damage]));
    // One that is alone may have been written in part, with nothing of its header.
    let mut file = segment(1);
    file[..8192].fill(0);
    assert_eq!(scan(IDENTITY, &file).expect("it is ours").end, End::default());
}

#[test]
fn what_a_prepared_file_was_before_is_no_damage() {
    let (mut scan, mut recovery) = (Scan::new(IDENTITY), Recovery::new());
    let each = &mut |position: Position, record: Record<'_>| recovery.handle(position, record);
    // Segment 2 was made of a file that was a segment with the first two batches, and has not been begun.
    for (number, batches) in [(2, 2), (1, 3)] {
        assert!(scan.begin(number));
        scan.feed(&segment(batches), each).expect("it is ours");
        scan.end(each).expect("it is ours");
    }
    let found = recovery.finish(scan.finish(), config());
    assert_eq!((found.messages.len(), found.end), (3, End::default()));
}

#[test]
fn what_the_driver_cannot_read_is_damage_wherever_it_is() {
    let file = segment(2);
    let (mut scan, mut recovery) = (Scan::new(IDENTITY), Recovery::new());
    let each = &mut |position: Position, record: Record<'_>| recovery.handle(position, record);
    assert!(scan.begin(1));
    scan.feed(&file[..12288], each).expect("it is ours");
    scan.feed_unreadable(4096, each).expect("it is ours");
    scan.end(each).expect("it is ours");
    let found = recovery.finish(scan.finish(), config());
    let damage = Damage { segment: 1, bytes: 12288..16384, batches: 0..0, what: Lost::Unreadable };
    assert_eq!((found.messages.len(), found.end.damage), (1, vec![damage]));
}
