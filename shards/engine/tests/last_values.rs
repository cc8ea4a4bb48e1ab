//! Last values: of all messages with a key the queue keeps the last.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn keyed(id: u64, key: &str) -> Publication<Note> {
    Publication { last_value: Some(key.as_bytes().into()), ..note(id) }
}

fn replaced(bench: &Bench) -> u64 {
    bench.engine.queue_counters(bench.queue).unwrap().replaced
}

#[test]
fn the_last_of_a_key_takes_the_tail() {
    let mut bench = Bench::plain();
    for (id, key) in [(1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "b")] {
        bench.put(keyed(id, key));
    }
    bench.put(note(6));
    assert_eq!((bench.depth().messages, replaced(&bench)), (4, 2));
    let consumer = bench.ready(0);
    assert_eq!(bench.ids_for(consumer), [3, 4, 5, 6]);
}

/// Waiting in a group, or for its redelivery: also gone, and never a dead letter.
#[test]
fn whatever_the_older_one_waits_for() {
    let redelivery = Some(RedeliveryDelay::constant(5 * TICK));
    let mut bench = Bench::new(QueueProperties { dead_letter: true, redelivery, ..Default::default() });
    let consumer = bench.ready(0);
    bench.put(grouped(1, "g"));
    let held = bench.run_for(consumer)[0];
    bench.pause(consumer, PauseReason::NoCredit);
    let last_value = Some(b"a".as_slice().into());
    bench.put(Publication { last_value, ..grouped(2, "g") });
    bench.put(keyed(3, "a"));
    bench.resume(consumer);
    let failed = bench.run_for(consumer)[0];
    bench.pause(consumer, PauseReason::NoCredit);
    bench.settle(consumer, failed, FAILED);
    assert_eq!((bench.depth().messages, bench.depth().held), (2, 1));
    bench.put(keyed(4, "a"));
    assert_eq!((bench.depth().messages, bench.depth().held, replaced(&bench)), (2, 0, 2));
    bench.pass(9);
    bench.accept(consumer, held);
    bench.resume(consumer);
    assert_eq!(bench.ids_for(consumer), [4]);
    assert!(bench.engine.take_dead_letter().is_none());
    let retired: Vec<u64> = std::iter::from_fn(|| bench.engine.take_spent())
        .map(|spent| spent.message.here().unwrap().id)
        .collect();
    assert_eq!(retired, [1, 3, 2]);
}

/// What is delayed replaces nothing before its time, and then what has come meanwhile; without a transaction and in one.
#[test]
fn the_present_value_stays_until_the_delayed_one_is_due() {
    for pending in [false, true] {
        let mut bench = Bench::new(QueueProperties { messages_max: Some(3), ..Default::default() });
        bench.put(keyed(1, "a"));
        let held_until = Some(bench.now + 5 * TICK);
        let place = bench.put(Publication { held_until, pending, ..keyed(2, "a") });
        if pending {
            assert!(bench.engine.commit_pending(bench.now, bench.queue, place));
            bench.check();
        }
        let browser = bench.browser(None);
        assert_eq!(bench.ids_for(browser), [1]);
        bench.put(keyed(3, "a"));
        assert_eq!((bench.ids_for(browser), replaced(&bench)), (vec![3], 1));
        let gone = bench.put(Publication { held_until, ..keyed(4, "b") });
        assert!(bench.engine.remove(bench.now, bench.queue, gone).is_some());
        bench.pass(6);
        assert_eq!((bench.ids_for(browser), replaced(&bench)), (vec![2], 2));
        assert_eq!(bench.depth().messages, 1);
        bench.put(keyed(5, "a"));
        assert_eq!((bench.ids_for(browser), bench.depth().messages), (vec![5], 1));
    }
}

/// Two that are delayed: the one that is due later is the last, not the one that was sent later.
#[test]
fn of_delayed_ones_the_last_is_the_one_that_is_due_last() {
    let mut bench = Bench::plain();
    bench.put(Publication { held_until: Some(bench.now + 9 * TICK), ..keyed(1, "a") });
    bench.put(Publication { held_until: Some(bench.now + 3 * TICK), ..keyed(2, "a") });
    assert_eq!((bench.depth().messages, replaced(&bench)), (2, 0));
    bench.pass(10);
    let consumer = bench.ready(0);
    assert_eq!((bench.ids_for(consumer), replaced(&bench)), (vec![1], 1));
}

/// However an older one comes back to the queue, it is dropped.
#[test]
fn an_older_one_that_is_held_is_dropped_when_it_comes_back() {
    let properties = QueueProperties {
        dead_letter: true,
        ack_deadline_us: Some(20 * TICK),
        deliveries_max: Some(1),
        ..Default::default()
    };
    for way in ["released", "failed", "not here", "closed", "deadline", "delay"] {
        let mut bench = Bench::new(properties);
        if way == "delay" {
            let redelivery = Some(RedeliveryDelay::constant(5 * TICK));
            let properties = QueueProperties { redelivery, deliveries_max: None, ..properties };
            bench.engine.set_properties(bench.now, bench.queue, properties);
        }
        let consumer = bench.ready(0);
        bench.put(keyed(1, "a"));
        let got = bench.run_for(consumer)[0];
        bench.pause(consumer, PauseReason::NoCredit);
        bench.put(keyed(2, "a"));
        assert_eq!(bench.depth().messages, 2, "it is not taken from its holder");
        match way {
            "released" => drop(bench.settle(consumer, got, RELEASED)),
            "failed" | "delay" => drop(bench.settle(consumer, got, FAILED)),
            "not here" => drop(bench.settle(consumer, got, NOT_HERE)),
            "closed" => bench.close(consumer),
            _ => bench.pass(21),
        }
        assert_eq!((bench.depth().messages, replaced(&bench)), (1, 1), "{way}");
        assert!(bench.engine.take_dead_letter().is_none(), "{way}");
        let other = bench.ready(0);
        assert_eq!(bench.ids_for(other), [2], "{way}");
    }
}

/// The later one was consumed already: the older one does not take its place again.
#[test]
fn an_older_value_never_comes_back_after_a_later_one() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put(keyed(1, "a"));
    let older = bench.run_for(consumer)[0];
    bench.put(keyed(2, "a"));
    let later = bench.run_for(consumer)[0];
    bench.accept(consumer, later);
    bench.settle(consumer, older, RELEASED);
    assert_eq!(bench.run(), []);
    assert_eq!(bench.depth(), Depth::default());
    bench.put(keyed(3, "a"));
    let got = bench.run_for(consumer)[0];
    bench.settle(consumer, got, RELEASED);
    assert_eq!(bench.ids_for(consumer), [3], "the last one comes back as any other");
}

#[test]
fn browsers_and_readers_see_the_new_one() {
    for non_destructive in [false, true] {
        let mut bench = Bench::new(QueueProperties { non_destructive, ..Default::default() });
        let browser = bench.browser(None);
        bench.put(keyed(1, "a"));
        bench.put(keyed(2, "b"));
        assert_eq!(bench.ids_for(browser), [1, 2]);
        bench.put(keyed(3, "a"));
        assert_eq!(bench.ids_for(browser), [3]);
        let late = bench.browser(None);
        assert_eq!(bench.ids_for(late), [2, 3]);
    }
}

#[test]
fn over_priorities() {
    let mut bench = Bench::new(QueueProperties { priorities: true, ..Default::default() });
    bench.put(Publication { priority: 9, ..keyed(1, "a") });
    bench.put(Publication { priority: 5, ..keyed(2, "b") });
    bench.put(Publication { priority: 0, ..keyed(3, "a") });
    let consumer = bench.ready(0);
    assert_eq!(bench.ids_for(consumer), [2, 3]);
}

/// What it replaces makes room for it; what is held does not.
#[test]
fn s47_at_a_limit() {
    let limits = |overflow| QueueProperties { messages_max: Some(3), overflow, ..Default::default() };
    for overflow in [Overflow::Reject, Overflow::DropOldest, Overflow::Block] {
        let mut bench = Bench::new(limits(overflow));
        for (id, key) in [(1, "a"), (2, "b"), (3, "c")] {
            bench.put(keyed(id, key));
        }
        bench.put(keyed(4, "b"));
        assert_eq!(bench.depth().messages, 3);
        let counters = bench.engine.queue_counters(bench.queue).unwrap();
        assert_eq!((counters.replaced, counters.dropped, counters.refused_publications), (1, 0, 0));
        let consumer = bench.ready(0);
        assert_eq!(bench.pull(consumer).map(|got| got.id), Some(1), "nothing else was dropped for it");
        bench.pause(consumer, PauseReason::NoCredit);
        let publication = keyed(5, "a");
        let taken = bench.engine.enqueue(bench.now, bench.queue, publication).is_ok();
        bench.check();
        assert_eq!(taken, overflow != Overflow::Reject, "the held one still takes its place");
        assert_eq!(bench.depth().messages, if overflow == Overflow::Block { 4 } else { 3 });
    }
    // A message that is too large replaces nothing.
    let mut bench = Bench::new(QueueProperties { bytes_max: Some(30), ..Default::default() });
    bench.put(keyed(1, "a"));
    let mut large = keyed(2, "a");
    large.message.weight = 21;
    assert!(bench.engine.enqueue(bench.now, bench.queue, large.clone()).is_err());
    large.message.weight = 20;
    bench.put(large);
    assert_eq!((bench.depth().bytes, replaced(&bench)), (30, 1));
}

/// However a last value leaves, its key is free again, and the table does not grow.
#[test]
fn a_key_ends_with_its_message() {
    let mut bench = Bench::new(QueueProperties { expiration_us: Some(10 * TICK), ..Default::default() });
    bench.put(keyed(1, "a"));
    bench.pass(11);
    bench.put(keyed(2, "a"));
    bench.purge();
    let place = bench.put(keyed(3, "a"));
    assert_eq!(
        bench.engine.remove(bench.now, bench.queue, place).and_then(Stored::here).map(|note| note.id),
        Some(3)
    );
    bench.check();
    bench.put(keyed(4, "a"));
    let consumer = bench.ready(0);
    let got = bench.run_for(consumer)[0];
    bench.settle(consumer, got, Outcome::Rejected);
    assert_eq!((replaced(&bench), bench.depth()), (0, Depth::default()));
    bench.put(keyed(5, "a"));
    bench.engine.delete_queue(bench.now, bench.queue);
    while bench.engine.run_slice(bench.now) {
        while bench.engine.take_spent().is_some() {}
    }
    bench.check();
}
