//! What an operator sees of a queue, and takes out of it.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn listed(bench: &Bench, from: Place) -> Vec<(u64, EntryState)> {
    bench
        .engine
        .entries(bench.queue, from)
        .map(|(_, note, view)| (note.here().unwrap().id, view.state))
        .collect()
}

#[test]
fn everything_is_listed_whatever_its_state() {
    let mut bench = Bench::new(QueueProperties { priorities: true, ..Default::default() });
    let consumer = bench.ready(0);
    bench.put(note(1));
    bench.put(grouped(2, "g"));
    bench.run_for(consumer);
    bench.pause(consumer, PauseReason::NoCredit);
    let third = bench.put(grouped(3, "g"));
    bench.put(Publication { held_until: Some(bench.now + TICK), ..note(4) });
    bench.put(Publication { priority: 9, ..note(5) });
    let held = EntryState::Acquired(consumer);
    let available = EntryState::Available;
    let all = [(5, available), (1, held), (2, held), (3, available), (4, EntryState::Held)];
    assert_eq!(listed(&bench, Place(0)), all);
    assert_eq!(listed(&bench, third), all[3..]);
    assert_eq!(listed(&bench, Place(u64::MAX)), []);
    let owner = bench.engine.explain_entry(bench.queue, third).unwrap().group_owner;
    assert_eq!(owner, Some(consumer));
    assert_eq!(bench.engine.groups_of(consumer).collect::<Vec<_>>(), [("g", 1, 1)]);
    bench.engine.delete_queue(bench.now, bench.queue);
    assert_eq!(listed(&bench, Place(0)), []);
}

#[test]
fn removed_unless_somebody_holds_it() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    let first = bench.put(note(1));
    bench.run_for(consumer);
    bench.pause(consumer, PauseReason::NoCredit);
    let second = bench.put(grouped(2, "g"));
    let third = bench.put(grouped(3, "g"));
    let fourth = bench.put(Publication { held_until: Some(bench.now + TICK), ..note(4) });
    let mut remove = |place| {
        let id =
            bench.engine.remove(bench.now, bench.queue, place).and_then(Stored::here).map(|note| note.id);
        bench.check();
        id
    };
    assert_eq!([first, second, fourth, fourth].map(&mut remove), [None, Some(2), Some(4), None]);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().removed, 2);
    assert_eq!(bench.engine.head(bench.queue), Some(third));
    bench.resume(consumer);
    assert_eq!(bench.ids_for(consumer), [3]);
    assert_eq!(bench.engine.head(bench.queue), None, "all that is left is held");
    assert_eq!(bench.engine.oldest(bench.queue), Some(1));
}

/// Also one that waits in its group.
#[test]
fn the_head_is_the_first_that_is_available() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put(grouped(1, "g"));
    bench.run_for(consumer);
    bench.pause(consumer, PauseReason::NoCredit);
    let waiting = bench.put(grouped(2, "g"));
    bench.put(note(3));
    assert_eq!(bench.engine.head(bench.queue), Some(waiting));
}

/// Behind very many that are held the first in reach does, so that asking costs little.
#[test]
fn the_head_behind_very_many_held() {
    let mut bench = Bench::plain().unchecked();
    let consumer = bench.ready(0);
    bench.put_all(0..5_000);
    bench.run_for(consumer);
    bench.pause(consumer, PauseReason::NoCredit);
    let free = bench.put(note(5_000));
    assert_eq!(bench.engine.head(bench.queue), Some(free));
}

#[test]
fn a_consumers_view_tells_since_when_and_how_far() {
    let mut bench = Bench::plain();
    let plain = bench.attach(ConsumerSpec::new(0));
    bench.pass(3);
    let since = bench.now;
    bench.resume(plain);
    bench.pass(3);
    bench.put(note(1));
    let got = bench.run_for(plain)[0];
    let view = |bench: &Bench, consumer| bench.engine.explain(consumer).unwrap();
    assert_eq!((view(&bench, plain).list, view(&bench, plain).since), (ConsumerList::Interested, bench.now));
    assert!(since < bench.now);
    bench.pause(plain, PauseReason::Socket);
    let at = bench.put(colored(2, "red"));
    for id in 3..6 {
        bench.put(colored(id, "blue"));
    }
    assert_eq!((view(&bench, plain).cursor, view(&bench, plain).lag), (at, 4));
    bench.settle(plain, got, RELEASED);
    assert_eq!((view(&bench, plain).cursor, view(&bench, plain).lag), (got.place, 5));
    assert_eq!(view(&bench, plain).since, bench.now);

    let red = bench.ready_with("color = 'red'", 0);
    assert_eq!(view(&bench, red).lag, 5, "while it scans, all that is in reach");
    bench.pause(red, PauseReason::NoCredit);
    bench.run();
    assert_eq!((view(&bench, red).cursor, view(&bench, red).lag), (at, 1));
    assert_eq!(bench.engine.filter_text(red).as_deref(), Some("color = 'red'"));
    assert_eq!(bench.engine.filter_text(plain), None);
    let twin = bench.ready_with("color = 'red'", 0);
    assert_eq!(view(&bench, twin).class, view(&bench, red).class);
    assert_ne!(view(&bench, twin).class, view(&bench, plain).class);
    bench.close(twin);

    let browser = bench.browser(None);
    assert_eq!(view(&bench, browser).lag, 5);
    bench.pull(browser);
    bench.pull(browser);
    assert_eq!((view(&bench, browser).cursor, view(&bench, browser).lag), (Place(at.0 + 1), 3));
}
