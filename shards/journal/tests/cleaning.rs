//! Which segment is cleaned, and is there always another one?

use corelane_journal::*;

/// So much of a payload fills a segment.
const FILLER: usize = 14_000;

fn journal(segment_bytes: u32) -> Journal {
    let identity = Identity { layout: 1, shard: 3, shards: 4 };
    Journal::new(Config { segment_bytes, segments_idle_max: 1, ..Config::new(identity, 1) })
}

/// Says that in a batch of its own, which is synced.
fn say<T>(journal: &mut Journal, what: impl FnOnce(&mut Batch<'_>) -> T) -> (Write, T) {
    while let Some(spare) = journal.spare_wanted() {
        journal.handle_spare(spare, u64::from(spare.number));
    }
    let ticket = journal.say();
    let mut batch = journal.begin_batch().expect("nothing is on its way");
    let said = what(&mut batch);
    (batch.finish(ticket).expect("there is something to write"), said)
}

fn message(journal: &mut Journal, place: u64, length: usize, copied: Option<Position>) -> Position {
    let message = Message { uid: 1, place, ..Message::default() };
    let (write, placed) = say(journal, |batch| batch.message(&message, &vec![7; length], copied));
    let position = write.position(placed);
    journal.handle_synced(write);
    position
}

/// What comes back of cleaning everything that is to be cleaned: bytes that were written for that, of messages that all hold.
fn clean_all(journal: &mut Journal, messages: &mut [Position], length: usize) -> usize {
    let mut bytes = 0;
    for _ in 0..1_000 {
        let Some(segment) = journal.next_to_clean() else { return bytes };
        for (position, place) in messages.iter_mut().zip(1..).filter(|(at, _)| at.segment == segment) {
            let message = Message { uid: 1, place, ..Message::default() };
            let payload = vec![7; length];
            let (write, placed) = say(journal, |batch| batch.message(&message, &payload, Some(*position)));
            bytes += write.bytes().len();
            *position = write.position(placed);
            journal.handle_synced(write);
        }
        do_say(journal, |batch| batch.cleaned(segment));
    }
    panic!("cleaning never ends");
}

fn do_say(journal: &mut Journal, what: impl FnOnce(&mut Batch<'_>)) {
    let (write, ()) = say(journal, what);
    journal.handle_synced(write);
}

#[test]
fn a_message_that_comes_back_again_and_again_leaves_something_to_clean() {
    let mut journal = journal(64 * 4096);
    let Position { segment, .. } = message(&mut journal, 1, 100, None);
    for acquired_count in 1..200 {
        let returned = Returned {
            uid: 1,
            place: 1,
            segment,
            delivery_count: 0,
            acquired_count,
            held_until: 0,
            death: 0,
            annotations: bytes::Bytes::new(),
        };
        do_say(&mut journal, |batch| (0..100).for_each(|_| batch.returned(&returned)));
    }
    assert!(journal.next_to_clean().is_some(), "{} bytes for one message", journal.disk_bytes());
}

#[test]
fn what_nobody_says_again_is_not_cleaned_again() {
    let mut journal = journal(8 * 4096);
    // Little is left in each segment.
    let kept: Vec<Position> = (1..20)
        .map(|place| {
            let kept = message(&mut journal, place, 100, None);
            let gone = message(&mut journal, 100 + place, 10_000, None);
            journal.forget(gone);
            kept
        })
        .collect();
    let unknown = journal.next_to_clean().expect("there is more dead than alive");
    do_say(&mut journal, |batch| batch.cleaned(unknown));
    assert!(journal.uses(unknown), "there is something in it");
    let next = journal.next_to_clean().expect("there still is");
    assert!(next != unknown && kept.iter().any(|kept| kept.segment == next), "{next} after {unknown}");
}

#[test]
fn one_that_cannot_be_read_does_not_keep_others_from_being_cleaned() {
    let mut journal = journal(8 * 4096);
    let bad = message(&mut journal, 1, 7_000, None);
    let copied = message(&mut journal, 2, 4_000, None);
    assert_eq!(bad.segment, copied.segment);
    // The sparsest, and it has a copy of one in the other.
    let first = message(&mut journal, 3, FILLER, None);
    let sparse = message(&mut journal, 2, 4_000, Some(copied));
    let gone: Vec<Position> = (4..9).map(|place| message(&mut journal, place, FILLER, None)).collect();
    let other = message(&mut journal, 10, 12_000, None);
    message(&mut journal, 11, FILLER, None);
    gone.iter().chain([&first]).for_each(|gone| journal.forget(*gone));
    assert!(sparse.segment > bad.segment && other.segment > sparse.segment);
    assert_eq!(journal.next_to_clean(), Some(bad.segment));
    journal.leave_uncleaned(bad.segment);
    assert_eq!(journal.next_to_clean(), Some(other.segment));
}

/// Each message takes a block of its own when it is written again, of which it needs little: cleaning cannot gain anything.
#[test]
fn cleaning_ends_where_it_writes_as_much_as_it_frees() {
    let mut journal = journal(8 * 4096);
    let mut kept: Vec<Position> = (1..200).map(|place| message(&mut journal, place, 100, None)).collect();
    let before = journal.disk_bytes();
    let mut written = clean_all(&mut journal, &mut kept, 100);
    assert!(written < 4 * 8 * 4096, "{written} bytes were written for nothing");
    let mut said = 0;
    for place in 1000..1500 {
        let gone = message(&mut journal, place, 3_000, None);
        said += 4096;
        journal.forget(gone);
        written += clean_all(&mut journal, &mut kept, 100);
    }
    assert!(written <= 3 * said && written > 0, "{written} bytes were written again for {said}");
    assert!(journal.disk_bytes() < 3 * before, "{} bytes after {before}", journal.disk_bytes());
}
