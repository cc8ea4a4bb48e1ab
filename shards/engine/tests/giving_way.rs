//! Notifications between classes of different priority: what random lives showed, told once each.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn urgent(id: u64, color: &'static str) -> Publication<Note> {
    Publication { priority: 9, ..colored(id, color) }
}

fn with_priorities(limits: Limits) -> Bench {
    Bench::with_limits(QueueProperties { priorities: true, ..Default::default() }, limits)
}

/// Who gives way for one entry was also counted on for another: a class that was passed over for that is told.
#[test]
fn who_gives_way_hands_on_what_it_was_told_of_besides() {
    let mut bench = with_priorities(Limits::default());
    let any = bench.ready(0);
    let red = bench.ready_with("color = 'red'", 2);
    let blue = bench.ready_with("color = 'blue'", 0);
    bench.put(colored(1, "blue"));
    assert!(bench.is_notified(any) && !bench.is_notified(blue));
    bench.put(urgent(2, "red"));
    assert_eq!(bench.pull(any), None, "it gives way");
    assert!(bench.is_notified(blue));
    assert_eq!(bench.pull(blue).map(|got| got.id), Some(1));
    assert_eq!(bench.pull(red).map(|got| got.id), Some(2));
}

/// The one it gave way to stops; another of that class is at work, but takes less.
#[test]
fn who_gave_way_is_told_when_the_higher_one_stops() {
    let mut bench = Bench::plain();
    let high = bench.ready_with("color = 'red'", 2);
    let low = bench.ready_with("color = 'red'", 0);
    let any = bench.ready(0);
    bench.put(colored(1, "red"));
    bench.put(colored(2, "red"));
    bench.put(colored(3, "blue"));
    for consumer in [low, any] {
        bench.pause(consumer, PauseReason::NoCredit);
        bench.resume(consumer);
        assert!(bench.is_notified(consumer));
    }
    assert_eq!(bench.pull(any), None, "it gives way");
    bench.pause(high, PauseReason::Socket);
    assert!(bench.is_notified(any), "without waiting for the one that is left");
}

/// What was promised to a class that then forgets it, for want of room, is promised to nobody.
#[test]
fn what_a_full_class_forgets_is_told_to_another() {
    let mut bench = with_priorities(Limits { candidates_max: 1, ..Limits::default() });
    let heavy = bench.ready_with("weight >= 0", 2);
    let any = bench.ready(0);
    bench.put(note(1));
    assert!(bench.is_notified(heavy) && !bench.is_notified(any));
    bench.put(urgent(2, "red"));
    assert!(bench.is_notified(any));
    let mut ids: Vec<_> = bench.run().into_iter().map(|(_, got)| got.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

/// A class that is full of what its only consumer refuses goes on to what is behind.
#[test]
fn a_class_full_of_refused_entries_scans_on() {
    let mut bench = Bench::with_limits(
        QueueProperties::default(),
        Limits { candidates_max: 2, scan_slice_max: 1, ..Limits::default() },
    );
    let red = bench.ready_with("color = 'red'", 0);
    for id in 1..=3 {
        bench.put(colored(id, "red"));
    }
    let got = bench.run_for(red);
    assert_eq!(got.len(), 3);
    bench.pause(red, PauseReason::NoCredit);
    for got in got {
        bench.settle(red, got, NOT_HERE);
    }
    bench.put(colored(4, "red"));
    bench.resume(red);
    assert_eq!(bench.ids_for(red), [4]);
    let other = bench.ready_with("color = 'red'", 0);
    assert_eq!(bench.ids_for(other), [1, 2, 3]);
}
