//! Least outstanding: who has the fewest unsettled messages gets the next one.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn least() -> QueueProperties {
    QueueProperties { dispatch: Dispatch::LeastOutstanding, ..Default::default() }
}

fn counts(bench: &Bench, consumers: &[ConsumerId]) -> Vec<u32> {
    consumers.iter().map(|consumer| bench.engine.explain(*consumer).unwrap().unsettled_count).collect()
}

/// Holds so many messages, then waits in line.
fn loaded(bench: &mut Bench, count: u64) -> ConsumerId {
    let consumer = bench.ready(0);
    bench.put_all(0..count);
    assert_eq!(bench.run_for(consumer).len() as u64, count);
    bench.pause(consumer, PauseReason::NoCredit);
    consumer
}

#[test]
fn the_one_with_the_fewest_gets_the_next() {
    let mut bench = Bench::new(least());
    let consumers = [loaded(&mut bench, 3), loaded(&mut bench, 1), loaded(&mut bench, 0)];
    consumers.iter().for_each(|consumer| bench.resume(*consumer));
    let mut takers = Vec::new();
    for id in 0..5 {
        bench.put(note(id));
        takers
            .extend(bench.run().iter().map(|(taker, _)| consumers.iter().position(|c| c == taker).unwrap()));
    }
    // Of two with as many the one that has waited longer.
    assert_eq!(takers, [2, 1, 2, 1, 2]);
    assert_eq!(counts(&bench, &consumers), [3, 3, 3]);
}

/// Many messages are there before anybody asks.
#[test]
fn a_burst_levels_the_loads() {
    let mut bench = Bench::new(least());
    let consumers =
        [loaded(&mut bench, 7), loaded(&mut bench, 2), loaded(&mut bench, 4), loaded(&mut bench, 0)];
    consumers.iter().for_each(|consumer| bench.resume(*consumer));
    bench.put_all(0..15);
    bench.run();
    assert_eq!(counts(&bench, &consumers), [7; 4]);
    bench.put_all(0..8);
    bench.run();
    assert_eq!(counts(&bench, &consumers), [9; 4]);
}

#[test]
fn settling_brings_a_consumer_forward() {
    let mut bench = Bench::new(least());
    let [busy, quick] = [bench.ready(0), bench.ready(0)];
    bench.put_all(0..6);
    let all = bench.run();
    assert_eq!(counts(&bench, &[busy, quick]), [3, 3]);
    for (consumer, got) in all.into_iter().filter(|(consumer, _)| *consumer == quick) {
        bench.accept(consumer, got);
    }
    bench.put_all(6..9);
    assert_eq!(bench.ids_for(quick), [6, 7, 8]);
}

/// The filter of the one who has less matches too: it is told, whatever class it is of.
#[test]
fn over_classes_too() {
    let mut bench = Bench::new(least());
    let busy = loaded(&mut bench, 2);
    bench.resume(busy);
    let red = bench.ready_with("color = 'red'", 0);
    for id in 0..2 {
        bench.put(colored(id, "red"));
    }
    assert_eq!(bench.ids_for(red), [0, 1]);
    bench.put(colored(2, "blue"));
    assert_eq!(bench.ids_for(busy), [2]);
    for id in 3..6 {
        bench.put(colored(id, "red"));
    }
    bench.run();
    assert_eq!(counts(&bench, &[busy, red]), [4, 4]);
}

/// A consumer without filter that holds two gave way to one that holds one: 3 is for both, 4 for the first alone.
fn one_gave_way() -> (Bench, ConsumerId, ConsumerId, Vec<Got>) {
    let mut bench = Bench::new(least());
    let plain = bench.ready(0);
    bench.put_all(0..2);
    let held = bench.run_for(plain);
    bench.pause(plain, PauseReason::NoCredit);
    let red = bench.ready_with("color = 'red'", 0);
    bench.put(colored(2, "red"));
    assert_eq!(bench.ids_for(red), [2]);
    bench.pause(red, PauseReason::NoCredit);
    bench.put(colored(3, "red"));
    bench.put(colored(4, "blue"));
    bench.resume(plain);
    bench.resume(red);
    assert_eq!(bench.pull(plain), None, "the other has less");
    assert!(bench.is_notified(red) && !bench.is_notified(plain));
    (bench, plain, red, held)
}

#[test]
fn giving_way_ends_when_the_loads_change() {
    let (mut bench, plain, _, held) = one_gave_way();
    held.iter().for_each(|got| bench.accept(plain, *got));
    assert!(bench.is_notified(plain));
    assert_eq!(bench.ids_for(plain), [3, 4]);
}

#[test]
fn giving_way_ends_when_loads_do_not_count_any_more() {
    let (mut bench, plain, _, _) = one_gave_way();
    bench.engine.set_properties(bench.now, bench.queue, QueueProperties::default());
    bench.check();
    assert!(bench.is_notified(plain));
}

/// A group's owner goes on with its group while another comes before it at what both can take; that one is told.
#[test]
fn the_owner_of_a_group_tells_who_has_less() {
    let mut bench = Bench::new(least());
    let red = bench.ready_with("color = 'red'", 0);
    for id in 0..2 {
        bench.put(colored(id, "red"));
    }
    let held = bench.run_for(red);
    let owner = bench.ready(0);
    bench.put(grouped(2, "g"));
    assert_eq!(bench.ids_for(owner), [2]);
    bench.put(colored(3, "red"));
    bench.put(grouped(4, "g"));
    assert!(bench.is_notified(owner) && !bench.is_notified(red));
    held.iter().for_each(|got| bench.accept(red, *got));
    assert_eq!(bench.pull(owner).map(|got| got.id), Some(4));
    assert!(bench.is_notified(red));
    assert_eq!(bench.pull(red).map(|got| got.id), Some(3));
}

#[test]
fn priority_comes_before_load() {
    let mut bench = Bench::new(least());
    let idle = bench.ready(0);
    let high = bench.ready(3);
    bench.put_all(0..4);
    assert_eq!(bench.ids_for(high), [0, 1, 2, 3]);
    bench.pause(high, PauseReason::NoCredit);
    bench.put(note(4));
    assert_eq!(bench.ids_for(idle), [4]);
}

/// What a consumer refused goes to another, even if that one has more.
#[test]
fn refused_by_the_one_with_less() {
    let mut bench = Bench::new(least());
    let busy = loaded(&mut bench, 2);
    let light = bench.ready(0);
    bench.put(note(10));
    let got = bench.run_for(light)[0];
    bench.settle(light, got, NOT_HERE);
    bench.resume(busy);
    bench.put_all(11..13);
    let all: Vec<_> = bench.run().into_iter().map(|(taker, got)| (taker, got.id)).collect();
    assert!(all.contains(&(busy, 10)) && all.contains(&(light, 11)) && all.contains(&(light, 12)), "{all:?}");
}

#[test]
fn switched_on_and_off_while_running() {
    let mut bench = Bench::plain();
    let consumers = [loaded(&mut bench, 4), loaded(&mut bench, 0)];
    consumers.iter().for_each(|consumer| bench.resume(*consumer));
    bench.engine.set_properties(bench.now, bench.queue, least());
    bench.check();
    bench.put_all(0..4);
    assert_eq!(bench.ids_for(consumers[1]), [0, 1, 2, 3]);
    bench.engine.set_properties(bench.now, bench.queue, QueueProperties::default());
    bench.check();
    bench.put_all(4..8);
    bench.run();
    assert_eq!(counts(&bench, &consumers), [6, 6]);
}

/// A message costs a pull and a wake, however many are ready.
#[test]
fn costs_nothing_per_consumer() {
    let mut bench = Bench::new(least()).unchecked();
    let consumers: Vec<_> = (0..5_000).map(|_| bench.ready(0)).collect();
    let before = bench.engine.counters();
    for id in 0..10_000 {
        bench.put(note(id));
    }
    let mut pulls = 0;
    while let Some(consumer) = bench.engine.poll_notified() {
        pulls += 1;
        bench.pull(consumer);
    }
    let after = bench.engine.counters();
    assert!(counts(&bench, &consumers).iter().all(|count| *count == 2));
    assert!(pulls <= 10_001, "{pulls} pulls");
    assert!(after.notified - before.notified <= 10_001);
    bench.engine.verify();
}

#[test]
fn what_a_transaction_gives_back_counts_again() {
    let mut bench = Bench::new(least());
    let [busy, idle] = [bench.ready(0), bench.ready(0)];
    bench.put_all(0..2);
    let got = bench.run().into_iter().find(|(taker, _)| *taker == busy).unwrap().1;
    assert_eq!(bench.engine.retire(bench.now, busy, got.place, got.acquisition), Settled::Done);
    bench.check();
    assert!(bench.engine.restore_retired(bench.now, bench.queue, got.place, got.acquisition));
    bench.check();
    let extra = loaded(&mut bench, 0);
    bench.resume(extra);
    bench.put(note(2));
    let takers: Vec<ConsumerId> = bench.run().into_iter().map(|(taker, _)| taker).collect();
    assert_eq!(takers, [extra], "{idle:?} and {busy:?} hold one each");
}
