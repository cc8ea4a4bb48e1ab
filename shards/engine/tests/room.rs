//! Queues that make their producers wait: when they are full, and when there is room again.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn blocking(messages_max: u64) -> QueueProperties {
    QueueProperties { messages_max: Some(messages_max), overflow: Overflow::Block, ..Default::default() }
}

fn full(messages_max: u64) -> Bench {
    let mut bench = Bench::new(blocking(messages_max));
    bench.put_all(1..=messages_max);
    assert!(bench.engine.is_full(bench.queue));
    assert_eq!(bench.engine.poll_room(), None);
    bench
}

/// There is room, and it is told once.
fn check_room(bench: &mut Bench) {
    bench.check();
    assert!(!bench.engine.is_full(bench.queue));
    assert_eq!(bench.engine.poll_room(), Some(bench.queue));
    assert_eq!(bench.engine.poll_room(), None);
}

#[test]
fn s49_what_comes_is_taken_and_producers_wait() {
    let mut bench = full(3);
    bench.put_all(4..=5);
    assert_eq!(bench.depth().messages, 5, "what is on its way is not lost");
    assert!(bench.engine.is_full(bench.queue));
    let consumer = bench.ready(0);
    let got = bench.run_for(consumer);
    assert!(bench.engine.is_full(bench.queue), "what is held takes room");
    bench.accept(consumer, got[0]);
    bench.accept(consumer, got[3]);
    assert!(bench.engine.is_full(bench.queue));
    assert_eq!(bench.engine.poll_room(), None);
    bench.accept(consumer, got[1]);
    check_room(&mut bench);
    bench.put(note(6));
    assert!(bench.engine.is_full(bench.queue), "full again");
    bench.accept(consumer, got[2]);
    check_room(&mut bench);
}

#[test]
fn s49_room_by_every_way_a_message_leaves() {
    let mut bench = full(2);
    let place = bench.engine.head(bench.queue).unwrap();
    bench.engine.remove(bench.now, bench.queue, place);
    check_room(&mut bench);

    let mut bench = full(2);
    bench.purge();
    check_room(&mut bench);

    let mut bench = Bench::new(blocking(1));
    bench.put(Publication { expires_at: Some(bench.now + TICK), ..note(1) });
    bench.pass(2);
    check_room(&mut bench);

    let mut bench = full(1);
    let consumer = bench.ready(0);
    let got = bench.run_for(consumer)[0];
    bench.settle(consumer, got, Outcome::Rejected);
    check_room(&mut bench);

    for properties in [
        blocking(3),
        QueueProperties::default(),
        QueueProperties { overflow: Overflow::Reject, ..blocking(2) },
    ] {
        let mut bench = full(2);
        bench.engine.set_properties(bench.now, bench.queue, properties);
        check_room(&mut bench);
    }
}

#[test]
fn full_again_before_anybody_was_told() {
    let mut bench = full(2);
    let consumer = bench.ready(0);
    for id in 3..6 {
        let got = bench.pull(consumer).unwrap();
        bench.accept(consumer, got);
        bench.put(note(id));
    }
    assert_eq!(bench.engine.poll_room(), None);
    assert!(bench.engine.is_full(bench.queue));
    let got = bench.pull(consumer).unwrap();
    bench.accept(consumer, got);
    check_room(&mut bench);
}

#[test]
fn full_by_bytes_and_by_a_lowered_limit() {
    let properties = QueueProperties { bytes_max: Some(25), overflow: Overflow::Block, ..Default::default() };
    let mut bench = Bench::new(properties);
    bench.put_all(1..=2);
    assert!(!bench.engine.is_full(bench.queue));
    bench.put(note(3));
    assert!(bench.engine.is_full(bench.queue));
    let consumer = bench.ready(0);
    let got = bench.run_for(consumer);
    bench.accept(consumer, got[0]);
    check_room(&mut bench);
    // A message that its consumer makes larger fills the queue, too.
    bench.engine.message_mut(consumer, got[1].place, got[1].acquisition).unwrap().here().unwrap().weight = 9;
    bench.settle(consumer, got[1], RELEASED);
    bench.put(note(4));
    assert!(bench.engine.is_full(bench.queue));

    let mut bench = Bench::plain();
    bench.put_all(1..=2);
    bench.engine.set_properties(bench.now, bench.queue, blocking(2));
    assert!(bench.engine.is_full(bench.queue));
}

#[test]
fn a_deleted_queue_is_not_told_of() {
    let mut bench = full(2);
    bench.purge();
    bench.engine.delete_queue(bench.now, bench.queue);
    assert_eq!(bench.engine.poll_room(), None);
    assert!(!bench.engine.is_full(bench.queue));
}

/// One message for three queues of which one is full: what each does is its own affair, and the counts are exact.
#[test]
fn s48_one_of_three_queues_is_full() {
    let mut engine: Engine<Note> = Engine::new(Limits::default());
    let properties = [
        QueueProperties { messages_max: Some(1), ..Default::default() },
        QueueProperties { messages_max: Some(1), overflow: Overflow::DropOldest, ..Default::default() },
        blocking(1),
    ];
    let queues = properties.map(|properties| engine.declare_queue(properties));
    let results: Vec<Vec<bool>> = (0..3)
        .map(|round| queues.iter().map(|queue| engine.enqueue(TICK, *queue, note(round)).is_ok()).collect())
        .collect();
    assert_eq!(results, [[true; 3], [false, true, true], [false, true, true]]);
    engine.verify();
    let depths = queues.map(|queue| engine.depth(queue).unwrap().messages);
    assert_eq!(depths, [1, 1, 3]);
    let counters = queues.map(|queue| engine.queue_counters(queue).unwrap());
    assert_eq!(counters.map(|counters| counters.refused_publications), [2, 0, 0]);
    assert_eq!(counters.map(|counters| counters.dropped), [0, 2, 0]);
    for queue in queues {
        purge(&mut engine, TICK, queue);
        assert_eq!(engine.depth(queue), Some(Depth::default()));
    }
    engine.verify();
}

#[test]
fn a_message_that_comes_back_from_elsewhere_counts_as_large_as_it_is_then() {
    let bytes_max = Some(30);
    let mut bench =
        Bench::new(QueueProperties { bytes_max, overflow: Overflow::Block, ..Default::default() });
    let place = bench.put(note(1));
    bench.put(note(2));
    let heavy = |weight| Note { id: 1, weight, ..Note::default() };
    for (weight, is_full) in [(20, true), (0, false), (5, false), (15, true)] {
        let gone = bench.engine.send_away(bench.queue, place, |_| Some(Away([1, 2, 3])));
        assert!(gone.is_some());
        bench.engine.bring_back(bench.now, bench.queue, place, heavy(weight)).unwrap();
        bench.check();
        assert_eq!(bench.depth().bytes, 20 + weight as u64);
        assert_eq!(bench.engine.is_full(bench.queue), is_full);
        assert_eq!(bench.engine.poll_room().is_some(), weight == 0, "{weight}");
    }
}
