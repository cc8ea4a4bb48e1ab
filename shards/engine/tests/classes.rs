//! Consumers that want the same share a cursor: filters, refusals, and what a thousand of them may cost.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::selector::Filter;
use corelane_engine::*;
use support::*;

#[test]
fn s13_the_one_match_in_a_deep_queue() {
    let mut bench = Bench::plain().unchecked();
    for id in 1..=100_000 {
        bench.put(colored(id, "blue"));
    }
    bench.put(colored(100_001, "red"));
    let consumer = bench.ready_with("color = 'red'", 0);
    let mut slices = 0;
    while bench.engine.poll_notified().is_none() {
        let more = bench.engine.run_slice(bench.now);
        assert!(more || bench.engine.poll_notified().is_some(), "it scans until it has found it");
        slices += 1;
    }
    assert!(slices > 100_000 / Limits::default().scan_slice_max, "in slices");
    assert_eq!(bench.ids_for(consumer), [100_001]);
    let scanned = bench.engine.counters().scanned;
    assert!(scanned <= 100_010, "after one pass");
    bench.put(colored(100_002, "red"));
    assert!(bench.is_notified(consumer), "the second at once");
    assert_eq!(bench.ids_for(consumer), [100_002]);
    assert_eq!(bench.engine.counters().scanned, scanned);
    bench.engine.verify();
}

/// A class that matches more than it may remember goes on from where it was.
#[test]
fn a_class_that_matches_much_remembers_little() {
    let mut bench = Bench::plain().unchecked();
    for id in 0..5_000 {
        bench.put(colored(id, if id % 3 == 0 { "red" } else { "blue" }));
    }
    let red = bench.ready_with("color = 'red'", 0);
    let expected: Vec<_> = (0..5_000).filter(|id| id % 3 == 0).collect();
    assert_eq!(bench.ids_for(red), expected);
    assert!(bench.engine.counters().scanned <= 5_000 + 2 * 5_000, "each entry about once");
    for id in 5_000..5_300 {
        bench.put(colored(id, "red"));
    }
    assert_eq!(bench.ids_for(red), (5_000..5_300).collect::<Vec<_>>());
    bench.engine.verify();
}

/// Lower priorities are not held back by a class that does not know yet.
#[test]
fn a_scanning_class_holds_nobody_back() {
    let mut bench = Bench::plain().unchecked();
    for id in 0..2_000 {
        bench.put(colored(id, "blue"));
    }
    let high = bench.ready_with("color = 'blue'", 5);
    let low = bench.ready(0);
    assert!(bench.engine.explain(high).unwrap().scanning);
    assert_eq!(bench.pull(low).map(|got| got.id), Some(0));
    while bench.engine.run_slice(bench.now) {}
    assert!(bench.is_notified(high));
    assert_eq!(bench.pull(low), None, "now it gives way");
    assert_eq!(bench.pull(high).map(|got| got.id), Some(1));
}

#[test]
fn s67_what_one_refuses_waits_for_another() {
    for filter in [None, Some("color = 'red'")] {
        let mut bench = Bench::plain();
        let attach = |bench: &mut Bench| match filter {
            Some(filter) => bench.ready_with(filter, 0),
            None => bench.ready(0),
        };
        let refuser = attach(&mut bench);
        bench.put(colored(1, "red"));
        let got = bench.run_for(refuser)[0];
        assert_eq!(bench.settle(refuser, got, NOT_HERE), Settled::Done);
        assert_eq!(bench.run(), [], "never again");
        bench.put(colored(2, "red"));
        assert_eq!(bench.ids_for(refuser), [2], "other messages pass it");
        assert_eq!(bench.run(), []);
        bench.pause(refuser, PauseReason::NoCredit);
        bench.resume(refuser);
        assert_eq!(bench.run(), []);
        let other = attach(&mut bench);
        assert_eq!(bench.ids_for(other), [1]);
    }
}

/// Order among what was refused and what was not.
#[test]
fn s67_in_order_of_places() {
    let mut bench = Bench::plain();
    let refuser = bench.ready(0);
    bench.put_all(1..=3);
    let got = bench.run_for(refuser);
    bench.settle(refuser, got[0], NOT_HERE);
    bench.settle(refuser, got[2], NOT_HERE);
    bench.settle(refuser, got[1], RELEASED);
    bench.put(note(4));
    bench.pause(refuser, PauseReason::NoCredit);
    let other = bench.ready(0);
    assert_eq!(bench.ids_for(other), [1, 2, 3, 4]);
}

/// A consumer that refuses everything is paused when it has refused too much, and goes on when others took it.
#[test]
fn refusals_are_bounded() {
    let limits = Limits { refused_max: 3, ..Limits::default() };
    let mut bench = Bench::with_limits(QueueProperties::default(), limits);
    let refuser = bench.ready(0);
    bench.put_all(1..=5);
    for _ in 0..3 {
        let got = bench.pull(refuser).unwrap();
        bench.settle(refuser, got, NOT_HERE);
    }
    assert_eq!(bench.list(refuser), ConsumerList::NotInterested(PauseReason::Refusals));
    let other = bench.ready(0);
    let got = bench.pull(other).unwrap();
    assert_eq!(got.id, 1);
    bench.pause(other, PauseReason::NoCredit);
    bench.accept(other, got);
    assert_eq!(bench.ids_for(refuser), [4, 5]);
    assert_eq!(bench.depth().available, 2);
}

#[test]
fn s69_a_consumer_with_very_much_dies_among_ten_thousand_classes() {
    let mut bench = Bench::plain().unchecked();
    let holder = bench.ready(0);
    for id in 0..100_000 {
        bench.put(colored(id, "red"));
    }
    assert_eq!(bench.run_for(holder).len(), 100_000);
    for id in 0..10_000 {
        bench.ready_with(&format!("id = {}", 200_000 + id), 0);
    }
    let before = bench.engine.counters();
    bench.close(holder);
    let after = bench.engine.counters();
    assert_eq!((after.notified, after.scanned), (before.notified, before.scanned));
    assert_eq!(bench.depth().available, 100_000);
    let next = bench.ready(0);
    assert_eq!(bench.ids_for(next), (0..100_000).collect::<Vec<_>>());
}

/// Request and reply: each client attaches with a filter for its own answer, again and again.
#[test]
fn s70_classes_come_and_go_without_rescans() {
    let mut bench = Bench::plain().unchecked();
    for id in 0..20_000 {
        bench.put(note(id));
    }
    let spec = |id: u64| {
        let filter = Some(Filter::parse(&format!("id = {id}")).unwrap());
        ConsumerSpec { filter, ..ConsumerSpec::new(id) }
    };
    // A thousand at a time look through the queue together.
    let first: Vec<_> = (0..1_000).map(|id| bench.attach(spec(100_000 + id))).collect();
    while bench.engine.run_slice(bench.now) {}
    assert_eq!(bench.engine.counters().scanned, 20_000, "one pass for all of them");
    for consumer in first {
        bench.close(consumer);
    }
    for round in 0..3 {
        for id in 0..1_000 {
            let consumer = bench.attach(spec(100_000 + id));
            bench.put(note(100_000 + id));
            bench.resume(consumer);
            let got = bench.run_for(consumer);
            assert_eq!(got.len(), 1, "round {round}");
            bench.accept(consumer, got[0]);
            bench.close(consumer);
        }
    }
    assert_eq!(bench.engine.counters().scanned, 20_000, "nobody looked again");
    bench.engine.verify();
}

/// Classes without a consumer are bounded by number and by time.
#[test]
fn s70_idle_classes_are_forgotten() {
    let limits = Limits { classes_idle_max: 10, class_idle_us: 100 * TICK, ..Limits::default() };
    let mut bench = Bench::with_limits(QueueProperties::default(), limits).unchecked();
    for id in 0..2_000 {
        let consumer = bench.ready_with(&format!("id = {id}"), 0);
        bench.close(consumer);
    }
    bench.engine.verify();
    assert_eq!(bench.engine.next_deadline(), Some(bench.now + 100 * TICK));
    bench.pass(100);
    assert_eq!(bench.engine.next_deadline(), None);
    bench.engine.verify();
}

#[test]
fn s71_a_late_accept_does_not_settle_the_next_holder() {
    let properties = QueueProperties { ack_deadline_us: Some(10 * TICK), ..Default::default() };
    let mut bench = Bench::new(properties);
    let first = bench.ready(0);
    bench.put(note(1));
    let late = bench.run_for(first)[0];
    bench.pause(first, PauseReason::NoCredit);
    let second = bench.ready(0);
    bench.pass(9);
    assert_eq!(bench.run(), []);
    bench.pass(1);
    let got = bench.run_for(second)[0];
    assert_eq!((got.id, got.place), (1, late.place));
    assert_eq!(bench.settle(first, late, Outcome::Accepted), Settled::Late);
    assert_eq!(bench.settle(second, late, Outcome::Accepted), Settled::Late, "nor under its own name");
    assert_eq!(bench.engine.counters().late_settlements, 2);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().ack_deadlines_missed, 1);
    bench.accept(second, got);
    assert_eq!(bench.depth(), Depth::default());
}

/// The same consumer gets it again: only the acquisition tells the two deliveries apart.
#[test]
fn s71_also_for_the_same_consumer() {
    let properties = QueueProperties { ack_deadline_us: Some(10 * TICK), ..Default::default() };
    let mut bench = Bench::new(properties);
    let consumer = bench.ready(0);
    bench.put(note(1));
    let late = bench.run_for(consumer)[0];
    bench.pass(10);
    let got = bench.run_for(consumer)[0];
    assert_eq!(bench.settle(consumer, late, Outcome::Rejected), Settled::Late);
    bench.accept(consumer, got);
}

#[test]
fn no_local_keeps_own_messages_away() {
    let mut bench = Bench::plain();
    let no_local = Some(Origin(7));
    let picky = bench.attach(ConsumerSpec { no_local, ..ConsumerSpec::new(0) });
    bench.put(Publication { origin: Origin(7), ..note(1) });
    bench.put(Publication { origin: Origin(8), ..note(2) });
    bench.resume(picky);
    assert_eq!(bench.ids_for(picky), [2]);
    bench.put(Publication { origin: Origin(7), ..note(3) });
    assert_eq!(bench.run(), []);
    let other = bench.ready(0);
    assert_eq!(bench.ids_for(other), [1, 3]);
}

/// The engine knows better than the message how often it was delivered.
#[test]
fn filters_can_ask_for_redelivery() {
    let mut bench = Bench::plain();
    let fresh = bench.ready_with("JMSRedelivered = FALSE AND JMSXDeliveryCount = 1", 0);
    let again = bench.ready_with("JMSRedelivered = TRUE AND JMSXDeliveryCount = 2", 0);
    bench.put(note(1));
    let got = bench.run_for(fresh)[0];
    bench.settle(fresh, got, RELEASED);
    let got = bench.run_for(fresh)[0];
    assert_eq!((got.id, got.delivery_count), (1, 0), "a release is no failure");
    bench.settle(fresh, got, FAILED);
    assert_eq!(bench.ids_for(again), [1]);
}

/// A thousand consumers of one filter are one class: a message costs one of them, not each.
#[test]
fn equal_filters_share_a_class() {
    let mut bench = Bench::plain().unchecked();
    let first = bench.ready_with("color = 'red' AND weight >= 0", 0);
    for _ in 1..1_000 {
        bench.ready_with("(color = 'red')  and weight >= 0", 0);
    }
    assert_eq!(bench.engine.explain(first).unwrap().class_consumers, 1_000);
    let before = bench.engine.counters().notified;
    bench.put(colored(1, "red"));
    bench.put(colored(2, "blue"));
    assert_eq!(bench.engine.counters().notified, before + 1);
}

#[test]
fn attaching_is_bounded() {
    let limits = Limits { consumers_max: 4, priorities_max: 2, classes_max: 2, ..Limits::default() };
    let mut bench = Bench::with_limits(QueueProperties::default(), limits);
    let try_attach = |bench: &mut Bench, filter: Option<&str>, priority| {
        let filter = filter.map(|text| Filter::parse(text).unwrap());
        let spec = ConsumerSpec { filter, priority, ..ConsumerSpec::new(0) };
        bench.engine.attach_consumer(bench.now, bench.queue, spec)
    };
    let first = try_attach(&mut bench, Some("id = 1"), 0).unwrap();
    try_attach(&mut bench, Some("id = 2"), 1).unwrap();
    assert_eq!(try_attach(&mut bench, Some("id = 3"), 0), Err(AttachRefusal::ClassesFull));
    assert_eq!(try_attach(&mut bench, None, 2), Err(AttachRefusal::PrioritiesFull));
    bench.check();
    try_attach(&mut bench, Some("id = 1"), 1).unwrap();
    try_attach(&mut bench, None, 0).unwrap();
    assert_eq!(try_attach(&mut bench, None, 0), Err(AttachRefusal::ConsumersFull));
    bench.close(first);
    bench.check();
}

/// Why is this message not delivered? Each entry and each consumer has its answer.
#[test]
fn every_entry_has_its_verdict() {
    let mut bench = Bench::plain();
    let taker = bench.ready(0);
    let first = bench.put(grouped(1, "g"));
    let got = bench.run_for(taker)[0];
    let second = bench.put(grouped(2, "g"));
    let third = bench.put(grouped(3, "g"));
    let own = bench.put(Publication { origin: Origin(7), ..colored(4, "red") });
    let held = bench.put(Publication { held_until: Some(u64::MAX / 2), ..note(5) });
    bench.pause(taker, PauseReason::NoCredit);
    let red = bench.ready_with("color = 'red'", 0);
    assert_eq!(bench.engine.verdict(red, own), Some(Verdict::Scanning));
    while bench.engine.run_slice(bench.now) {}
    assert_eq!(bench.engine.verdict(red, own), Some(Verdict::Takes));
    assert_eq!(bench.engine.verdict(red, second), Some(Verdict::FilteredOut));
    let no_local = Some(Origin(7));
    let picky = bench.attach(ConsumerSpec { no_local, ..ConsumerSpec::new(0) });
    assert_eq!(bench.engine.verdict(picky, own), Some(Verdict::OwnMessage));
    assert_eq!(bench.engine.verdict(picky, second), Some(Verdict::GroupOf(taker)));
    assert_eq!(bench.engine.verdict(taker, third), Some(Verdict::BehindInGroup));
    assert_eq!(bench.engine.verdict(taker, held), Some(Verdict::NotAvailable));
    let view = bench.engine.explain_entry(bench.queue, first).unwrap();
    assert_eq!((view.state, view.group_owner), (EntryState::Acquired(taker), Some(taker)));
    bench.settle(taker, got, NOT_HERE);
    assert_eq!(bench.engine.verdict(taker, first), Some(Verdict::Refused));
    assert_eq!(bench.engine.explain_entry(bench.queue, first).unwrap().refused_count, 1);
    assert_eq!(bench.engine.verdict(picky, second), Some(Verdict::BehindInGroup), "the group is free");
    assert_eq!(bench.engine.verdict(taker, Place(99)), None);
}
