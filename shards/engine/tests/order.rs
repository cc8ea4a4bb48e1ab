//! Entries keep their places: what comes back comes back there, and what is gone takes no room.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

#[test]
fn s14_released_entries_return_to_their_places() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put_all(1..=6);
    let got: Vec<_> = (0..5).filter_map(|_| bench.pull(consumer)).collect();
    bench.settle(consumer, got[3], RELEASED);
    bench.settle(consumer, got[1], RELEASED);
    assert_eq!(bench.ids_for(consumer), [2, 4, 6]);
}

#[test]
fn s14_for_filtered_consumers_too() {
    let mut bench = Bench::plain();
    let consumer = bench.ready_with("weight >= 0", 0);
    bench.put_all(1..=6);
    let got: Vec<_> = (0..5).filter_map(|_| bench.pull(consumer)).collect();
    bench.settle(consumer, got[3], RELEASED);
    bench.settle(consumer, got[1], RELEASED);
    assert_eq!(bench.ids_for(consumer), [2, 4, 6]);
}

/// The cursor has passed what its consumer refused; an entry before that comes back.
#[test]
fn s14_behind_an_entry_that_was_refused() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put_all(1..=3);
    let got = bench.run_for(consumer);
    bench.settle(consumer, got[1], NOT_HERE);
    assert_eq!(bench.pull(consumer), None, "its cursor passes it");
    bench.settle(consumer, got[2], RELEASED);
    bench.settle(consumer, got[0], RELEASED);
    assert_eq!(bench.ids_for(consumer), [1, 3]);
}

/// A cursor is a number, not a reference: what passes by is given back.
#[test]
fn s15_an_idle_consumer_far_behind_pins_nothing() {
    let mut bench = Bench::plain().unchecked();
    let idle = bench.attach(ConsumerSpec::new(0));
    let filtered = bench.ready_with("color = 'red'", 0);
    bench.put(colored(0, "red"));
    assert_eq!(bench.ids_for(filtered), [0]);
    bench.pause(filtered, PauseReason::NoCredit);
    let browser = bench.browser(None);
    bench.pause(browser, PauseReason::NoCredit);
    let busy = bench.ready(0);
    for id in 1..=200_000 {
        bench.put(colored(id, "red"));
        let got = bench.run_for(busy)[0];
        bench.accept(busy, got);
    }
    assert!(bench.engine.chunk_count() <= 2);
    assert_eq!(bench.depth().messages, 1);
    bench.pause(busy, PauseReason::NoCredit);
    bench.put_all(300_001..=300_002);
    bench.resume(idle);
    assert_eq!(bench.ids_for(idle), [300_001, 300_002]);
    bench.engine.verify();
}

#[test]
fn s16_an_entry_that_is_never_settled_pins_nothing_else() {
    let mut bench = Bench::plain().unchecked();
    let stuck = bench.ready(0);
    bench.put(note(0));
    assert_eq!(bench.ids_for(stuck), [0]);
    bench.pause(stuck, PauseReason::NoCredit);
    let busy = bench.ready(0);
    for id in 1..=300_000 {
        bench.put(note(id));
        let got = bench.run_for(busy)[0];
        bench.accept(busy, got);
        while bench.engine.take_spent().is_some() {}
    }
    assert!(bench.engine.chunk_count() <= 3);
    bench.engine.verify();
}

/// The same work for each entry wherever it lies. A search among the unsettled would take thousands of times as long, a
/// processor that has to fetch entries from far away takes a few times as long.
#[test]
fn s17_a_hundred_thousand_unsettled_in_any_order() {
    let settle_all = |shuffled: bool| {
        let mut bench = Bench::plain().unchecked();
        let consumer = bench.ready(0);
        bench.put_all(0..100_000);
        let mut held = bench.run_for(consumer);
        assert_eq!(held.len(), 100_000);
        let mut random = Random::new(17);
        for index in (1..held.len()).rev().filter(|_| shuffled) {
            held.swap(index, random.below(index + 1));
        }
        #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it is about time")]
        let start = std::time::Instant::now();
        for got in held {
            bench.accept(consumer, got);
        }
        let took = start.elapsed();
        assert_eq!(bench.depth(), Depth::default());
        assert!(bench.engine.chunk_count() <= 1);
        bench.engine.verify();
        took
    };
    let best = |shuffled| (0..3).map(|_| settle_all(shuffled)).min().unwrap();
    let (in_order, in_any_order) = (best(false), best(true));
    assert!(in_any_order < in_order * 50, "{in_any_order:?} against {in_order:?}");
    println!("in any order {in_any_order:?}, in order {in_order:?}");
}

#[test]
fn s18_a_browser_sees_a_higher_priority_once_and_nothing_twice() {
    let mut bench = Bench::new(QueueProperties { priorities: true, ..Default::default() });
    let browser = bench.browser(None);
    for id in 1..=4 {
        bench.put(Publication { priority: 4, ..note(id) });
    }
    assert_eq!(bench.pull(browser).map(|got| got.id), Some(1));
    assert_eq!(bench.pull(browser).map(|got| got.id), Some(2));
    bench.put(Publication { priority: 9, ..note(10) });
    bench.put(Publication { priority: 0, ..note(20) });
    assert_eq!(bench.ids_for(browser), [10, 3, 4, 20]);
    bench.put(Publication { priority: 9, ..note(11) });
    bench.put(Publication { priority: 4, ..note(5) });
    assert_eq!(bench.ids_for(browser), [11, 5]);
    assert_eq!(bench.run(), []);
    assert_eq!(bench.depth().available, 8, "it acquires nothing");
}

#[test]
fn s19_a_browser_does_not_see_again_what_comes_back() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put_all(1..=3);
    let got = bench.pull(consumer).unwrap();
    bench.pause(consumer, PauseReason::NoCredit);
    let browser = bench.browser(None);
    assert_eq!(bench.ids_for(browser), [2, 3]);
    assert_eq!(bench.list(browser), ConsumerList::NonAcquiring { caught_up: true });
    bench.settle(consumer, got, RELEASED);
    assert_eq!(bench.run(), [], "it has passed the place");
    bench.put(note(4));
    assert_eq!(bench.ids_for(browser), [4], "and goes on");
}

#[test]
fn s20_a_browser_sees_a_delayed_message_once_when_it_is_due() {
    let mut bench = Bench::plain();
    let browsers = [bench.browser(None), bench.browser(Some("id < 100"))];
    let slow = bench.browser(None);
    bench.pause(slow, PauseReason::NoCredit);
    let held_until = Some(bench.now + 5 * TICK);
    bench.put(Publication { held_until, ..note(1) });
    bench.put(note(2));
    let ids = |bench: &mut Bench, browser| {
        let all = bench.run();
        all.into_iter().filter(|(other, _)| *other == browser).map(|(_, got)| got.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut bench, browsers[0]), [2]);
    bench.pass(4);
    assert_eq!(bench.run(), []);
    bench.pass(1);
    let mut got = bench.run();
    got.sort_by_key(|(browser, _)| *browser);
    assert_eq!(
        got.iter().map(|(browser, got)| (*browser, got.id)).collect::<Vec<_>>(),
        browsers.map(|b| (b, 1))
    );
    // One that had not come so far sees it at its place, and once.
    bench.resume(slow);
    assert_eq!(bench.ids_for(slow), [1, 2]);
    assert_eq!(bench.run(), []);
}

/// Many late entries, most of which go again: the list of them stays short, and nobody misses one.
#[test]
fn s20_late_entries_are_forgotten_when_they_are_gone() {
    let mut bench = Bench::plain().unchecked();
    let browser = bench.browser(None);
    let lazy = bench.browser(None);
    bench.pause(lazy, PauseReason::NoCredit);
    let consumer = bench.ready(0);
    for id in 0..2_000 {
        let held_until = Some(bench.now + TICK);
        bench.put(Publication { held_until, ..note(id) });
        bench.pass(1);
        let got = bench.run();
        assert_eq!(got.iter().filter(|(other, _)| *other == browser).count(), 1);
        let (_, taken) = got.iter().find(|(other, _)| *other == consumer).unwrap();
        if id % 500 != 0 {
            bench.accept(consumer, *taken);
        } else {
            bench.settle(
                consumer,
                *taken,
                Outcome::Modified { delivery_failed: false, undeliverable_here: true },
            );
        }
    }
    bench.resume(lazy);
    assert_eq!(bench.ids_for(lazy), [0, 500, 1_000, 1_500]);
    bench.engine.verify();
}

#[test]
fn s22_what_was_prefetched_is_back_before_the_next_consumer_starts() {
    let mut bench = Bench::plain();
    let first = bench.ready(0);
    bench.put_all(1..=6);
    let held: Vec<_> = (0..4).filter_map(|_| bench.pull(first)).collect();
    bench.accept(first, held[1]);
    let second = bench.attach(ConsumerSpec::new(0));
    bench.pause(first, PauseReason::Socket);
    bench.resume(second);
    bench.close(first);
    assert_eq!(bench.ids_for(second), [1, 3, 4, 5, 6]);
}

#[test]
fn higher_priorities_go_first_and_equal_ones_in_order() {
    let mut bench = Bench::new(QueueProperties { priorities: true, ..Default::default() });
    for (id, priority) in [(1, 4), (2, 9), (3, 0), (4, 200), (5, 4)] {
        bench.put(Publication { priority, ..note(id) });
    }
    let consumer = bench.ready(0);
    let got = bench.run_for(consumer);
    assert_eq!(got.iter().map(|got| got.id).collect::<Vec<_>>(), [2, 4, 1, 5, 3]);
    bench.settle(consumer, got[4], RELEASED);
    bench.settle(consumer, got[2], RELEASED);
    bench.settle(consumer, got[0], RELEASED);
    assert_eq!(bench.ids_for(consumer), [2, 1, 3]);
}

/// Priorities can be turned on and off: what is there keeps its place before what comes.
#[test]
fn priorities_switched_while_running() {
    let mut bench = Bench::plain();
    bench.put_all(1..=2);
    let on = QueueProperties { priorities: true, ..Default::default() };
    bench.engine.set_properties(bench.now, bench.queue, on);
    bench.put(Publication { priority: 0, ..note(3) });
    bench.put(Publication { priority: 9, ..note(4) });
    bench.engine.set_properties(bench.now, bench.queue, QueueProperties::default());
    bench.put(Publication { priority: 9, ..note(5) });
    let consumer = bench.ready(0);
    assert_eq!(bench.ids_for(consumer), [1, 2, 4, 3, 5]);
}

#[test]
fn a_deleted_queue_gives_everything_back_in_slices() {
    let mut bench = Bench::new(QueueProperties { priorities: true, ..Default::default() });
    let consumer = bench.attach(ConsumerSpec { priority: 3, ..ConsumerSpec::new(11) });
    bench.attach(ConsumerSpec { mode: AcquireMode::Browse, ..ConsumerSpec::new(12) });
    bench.resume(consumer);
    bench.checks = false;
    for id in 0..1_000 {
        let expires_at = (id % 3 == 0).then_some(bench.now + id * TICK + TICK);
        bench.put(Publication { priority: (id % 10) as u8, expires_at, ..note(id) });
    }
    let got = bench.pull(consumer).unwrap();
    assert_eq!(bench.engine.delete_queue(bench.now, bench.queue), [11, 12]);
    bench.engine.verify();
    assert_eq!(bench.settle(consumer, got, Outcome::Accepted), Settled::Late);
    assert!(bench.engine.enqueue(bench.now, bench.queue, note(1)).is_err());
    assert!(bench.engine.poll_notified().is_none());
    bench.pass(500);
    let mut count = 0;
    while bench.engine.run_slice(bench.now) {
        let before = count;
        while bench.engine.take_spent().is_some() {
            count += 1;
        }
        assert!(count - before <= 64);
    }
    assert_eq!(count, 1_000, "also what was acquired, and what would have expired");
    assert_eq!((bench.engine.chunk_count(), bench.engine.next_deadline()), (0, None));
    let next = bench.engine.declare_queue(QueueProperties::default());
    assert!(next.index == bench.queue.index && next != bench.queue, "an old id does not name it");
    bench.engine.verify();
}

#[test]
fn a_purge_leaves_what_is_held() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put_all(1..=3);
    bench.put(Publication { held_until: Some(bench.now + TICK), ..note(4) });
    bench.put(grouped(5, "g"));
    bench.put(grouped(6, "g"));
    let got = bench.pull(consumer).unwrap();
    assert_eq!(bench.purge().len(), 5);
    assert_eq!(bench.depth().acquired, 1);
    assert_eq!(bench.depth().messages, 1);
    bench.settle(consumer, got, RELEASED);
    bench.pass(2);
    assert_eq!(bench.ids_for(consumer), [1]);
}

/// What was there before comes first, and then the levels hold, whether or not the queue was ever empty.
#[test]
fn priorities_that_begin_and_end_while_there_are_messages() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    let put = |bench: &mut Bench, id: u64, priority: u8| bench.put(Publication { priority, ..note(id) });
    let take = |bench: &mut Bench| bench.pull(consumer).unwrap().id;
    put(&mut bench, 1, 1);
    put(&mut bench, 2, 8);
    let properties = QueueProperties { priorities: true, ..Default::default() };
    bench.engine.set_properties(bench.now, bench.queue, properties);
    put(&mut bench, 3, 0);
    put(&mut bench, 4, 9);
    put(&mut bench, 5, 5);
    assert_eq!([take(&mut bench), take(&mut bench)], [1, 2]);
    put(&mut bench, 6, 9);
    assert_eq!([take(&mut bench), take(&mut bench)], [4, 6]);
    bench.engine.set_properties(bench.now, bench.queue, QueueProperties::default());
    put(&mut bench, 7, 9);
    assert_eq!([take(&mut bench), take(&mut bench), take(&mut bench)], [5, 3, 7]);
}
