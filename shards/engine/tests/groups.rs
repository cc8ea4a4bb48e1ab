//! Messages of a group stay together and in order.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::selector::Filter;
use corelane_engine::*;
use support::*;

fn red(id: u64, group: &str) -> Publication<Note> {
    Publication::new(Note { id, color: "red", group: Some(group.into()), ..Note::default() })
}

#[test]
fn s54_a_group_waits_for_its_owner_while_others_flow() {
    let mut bench = Bench::plain();
    let first = bench.ready(0);
    bench.put(grouped(1, "g"));
    let held = bench.run_for(first)[0];
    bench.pause(first, PauseReason::NoCredit);
    let second = bench.ready(0);
    for id in 2..=4 {
        bench.put(grouped(id, "g"));
    }
    bench.put(grouped(5, "h"));
    bench.put(note(6));
    assert_eq!(bench.ids_for(second), [5, 6]);
    bench.pause(second, PauseReason::NoCredit);
    bench.resume(first);
    assert_eq!(bench.ids_for(first), [2, 3, 4]);
    bench.accept(first, held);
}

#[test]
fn s55_a_freed_group_starts_at_its_earliest_entry() {
    let mut bench = Bench::plain();
    let first = bench.ready(0);
    for id in 1..=3 {
        bench.put(grouped(id, "g"));
    }
    let held = bench.run_for(first);
    bench.pause(first, PauseReason::NoCredit);
    let others = [bench.ready(0), bench.ready(0)];
    bench.put(grouped(4, "g"));
    bench.put(grouped(5, "g"));
    bench.settle(first, held[1], RELEASED);
    bench.settle(first, held[0], RELEASED);
    assert_eq!(bench.run(), [], "it still holds one");
    let before = bench.engine.counters().notified;
    bench.accept(first, held[2]);
    assert_eq!(bench.engine.counters().notified, before + 1, "one is told");
    assert_eq!(bench.ids_for(others[0]), [1, 2, 4, 5]);
}

#[test]
fn s56_order_comes_before_the_filter() {
    for sticky_groups in [false, true] {
        let mut bench = Bench::new(QueueProperties { sticky_groups, ..Default::default() });
        let first = bench.ready_with("color = 'red'", 0);
        let second = bench.ready_with("color <> 'red'", 0);
        bench.put(red(1, "g"));
        let held = bench.run_for(first)[0];
        let next = bench.put(grouped(2, "g"));
        bench.put(red(3, "g"));
        assert_eq!(
            bench.engine.verdict(second, next),
            Some(Verdict::GroupOf(first)),
            "explain names the holder"
        );
        assert_eq!(bench.engine.verdict(first, next), Some(Verdict::FilteredOut));
        assert_eq!(bench.run(), [], "its filter matches the third only, and the second comes before it");
        bench.accept(first, held);
        assert_eq!(bench.ids_for(second), [2], "also with sticky groups: they move");
    }
}

#[test]
fn sticky_groups_stay_for_the_consumers_life() {
    let mut bench = Bench::new(QueueProperties { sticky_groups: true, ..Default::default() });
    let first = bench.ready(0);
    bench.put(grouped(1, "g"));
    let held = bench.run_for(first)[0];
    bench.accept(first, held);
    bench.pause(first, PauseReason::NoCredit);
    let second = bench.ready(0);
    bench.put(grouped(2, "g"));
    bench.put(grouped(3, "h"));
    assert_eq!(bench.ids_for(second), [3]);
    bench.close(first);
    assert_eq!(bench.ids_for(second), [2]);
}

/// Sticky groups without an entry are bounded: the one idle for longest loses its consumer.
#[test]
fn sticky_groups_are_bounded() {
    let limits = Limits { sticky_groups_max: 2, ..Limits::default() };
    let properties = QueueProperties { sticky_groups: true, ..Default::default() };
    let mut bench = Bench::with_limits(properties, limits);
    let first = bench.ready(0);
    for (id, group) in [(1, "a"), (2, "b"), (3, "c")] {
        bench.put(grouped(id, group));
        let got = bench.run_for(first)[0];
        bench.accept(first, got);
    }
    bench.pause(first, PauseReason::NoCredit);
    let second = bench.ready(0);
    for (id, group) in [(4, "a"), (5, "b"), (6, "c")] {
        bench.put(grouped(id, group));
    }
    assert_eq!(bench.ids_for(second), [4]);
}

/// One consumer passes what another's group keeps back; after its owner's death the group goes to one, in order.
#[test]
fn s66_a_group_outlives_its_owner_in_order() {
    let mut bench = Bench::plain();
    let first = bench.ready(0);
    bench.put(grouped(1, "g"));
    assert_eq!(bench.ids_for(first), [1]);
    bench.pause(first, PauseReason::Socket);
    let second = bench.ready(0);
    bench.put(grouped(2, "g"));
    bench.put(grouped(3, "g"));
    bench.put(grouped(10, "h"));
    assert_eq!(bench.ids_for(second), [10]);
    bench.pause(second, PauseReason::Socket);
    bench.resume(first);
    assert_eq!(bench.ids_for(first), [2, 3]);
    let third = bench.ready(0);
    bench.resume(second);
    bench.put(grouped(4, "g"));
    bench.pause(first, PauseReason::Socket);
    bench.close(first);
    bench.put(grouped(5, "g"));
    let got = bench.run();
    assert_eq!(got.iter().map(|(_, got)| got.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(got.iter().all(|(consumer, _)| *consumer == got[0].0), "all to one");
    assert!(got[0].0 == second || got[0].0 == third);
}

/// A group's first entry that its consumer refuses goes to others when the consumer holds nothing of the group.
#[test]
fn a_refused_entry_frees_its_group() {
    for sticky_groups in [false, true] {
        let mut bench = Bench::new(QueueProperties { sticky_groups, ..Default::default() });
        let first = bench.ready(0);
        bench.put(grouped(1, "g"));
        bench.put(grouped(2, "g"));
        let held = bench.run_for(first);
        bench.settle(first, held[0], NOT_HERE);
        assert_eq!(bench.run(), [], "nobody else may overtake, and it may not");
        bench.settle(first, held[1], RELEASED);
        assert_eq!(bench.run(), []);
        let second = bench.ready(0);
        assert_eq!(bench.ids_for(second), [1, 2]);
    }
}

/// Groups that are gone leave nothing behind, whatever their names.
#[test]
fn groups_come_and_go() {
    let mut bench = Bench::plain().unchecked();
    let consumer = bench.ready(0);
    for id in 0..10_000 {
        bench.put(grouped(id, &format!("group {id}")));
        bench.put(grouped(id, &format!("group {id}")));
        for got in bench.run_for(consumer) {
            bench.accept(consumer, got);
        }
    }
    assert_eq!(bench.depth(), Depth::default());
    bench.engine.verify();
}

/// A filter by group, on a queue whose groups are owned: the class is told when its group is free.
#[test]
fn a_filter_on_the_group_waits_for_the_group() {
    let mut bench = Bench::plain();
    let owner = bench.ready(0);
    bench.put(grouped(1, "g"));
    let held = bench.run_for(owner)[0];
    bench.pause(owner, PauseReason::NoCredit);
    bench.put(grouped(2, "g"));
    let filter = Some(Filter::parse("JMSXGroupID = 'g'").unwrap());
    let waiting = bench.attach(ConsumerSpec { filter, ..ConsumerSpec::new(0) });
    bench.resume(waiting);
    assert_eq!(bench.run(), []);
    bench.accept(owner, held);
    assert_eq!(bench.ids_for(waiting), [2]);
}

/// A group keeps its order while a message of it waits for its next delivery, for whoever owns it then; other groups go on.
#[test]
fn what_stands_behind_a_failed_message_of_its_group_waits_with_it() {
    for sticky_groups in [false, true] {
        let redelivery = Some(RedeliveryDelay::constant(10 * TICK));
        let mut bench = Bench::new(QueueProperties { sticky_groups, redelivery, ..Default::default() });
        let first = bench.ready(0);
        for id in 1..=2 {
            bench.put(grouped(id, "g"));
        }
        let held = bench.run_for(first);
        for id in 3..=4 {
            bench.put(grouped(id, "g"));
        }
        bench.pause(first, PauseReason::NoCredit);
        // The second one fails, the first comes back in between: it is before that.
        bench.settle(first, held[1], FAILED);
        bench.settle(first, held[0], RELEASED);
        bench.put(grouped(5, "h"));
        bench.ready(0);
        bench.resume(first);
        let ids = |bench: &mut Bench| -> Vec<u64> { bench.run().iter().map(|(_, got)| got.id).collect() };
        let mut got = ids(&mut bench);
        got.sort_unstable();
        assert_eq!(got, [1, 5], "what is before it, and the other group");
        bench.pass(9);
        assert_eq!(ids(&mut bench), []);
        bench.pass(1);
        assert_eq!(ids(&mut bench), [2, 3, 4]);
    }
}

/// Whatever ends the wait, the group goes on.
#[test]
fn a_group_goes_on_when_the_message_that_it_waits_for_leaves() {
    for leaves_by in ["expiry", "removal"] {
        let redelivery = Some(RedeliveryDelay::constant(1000 * TICK));
        let mut bench = Bench::new(QueueProperties { redelivery, ..Default::default() });
        let first = bench.ready(0);
        let expires_at = Some(bench.now + 5 * TICK);
        bench.put(Publication { expires_at, ..grouped(1, "g") });
        let held = bench.run_for(first);
        bench.settle(first, held[0], FAILED);
        bench.put(grouped(2, "g"));
        assert_eq!(bench.run(), []);
        match leaves_by {
            "removal" => assert!(bench.engine.remove(bench.now, bench.queue, held[0].place).is_some()),
            _ => bench.pass(6),
        }
        bench.check();
        assert_eq!(bench.ids_for(first), [2], "{leaves_by}");
    }
}

/// What its sender wants delayed does not hold its group back.
#[test]
fn a_group_does_not_wait_for_what_is_delayed_by_its_sender() {
    let mut bench = Bench::plain();
    let first = bench.ready(0);
    let held_until = Some(bench.now + 10 * TICK);
    bench.put(Publication { held_until, ..grouped(1, "g") });
    bench.put(grouped(2, "g"));
    assert_eq!(bench.ids_for(first), [2]);
}
