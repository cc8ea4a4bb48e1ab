//! What a purge takes and what it leaves: whatever state an entry is in.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

#[test]
fn s50_a_purge_takes_everything_that_nobody_holds() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    bench.put_all(1..=4);
    let held = bench.run_for(consumer);
    bench.pause(consumer, PauseReason::NoCredit);
    // Of the four one comes back, and one comes back as failed; two stay with the consumer.
    bench.settle(consumer, held[1], RELEASED);
    bench.settle(consumer, held[2], FAILED);
    bench.put_all(5..=6);
    bench.put(Publication { held_until: Some(bench.now + 10 * TICK), ..note(7) });
    bench.put(Publication { expires_at: Some(bench.now + 10 * TICK), ..note(8) });
    bench.put(grouped(9, "g"));
    bench.put(grouped(10, "g"));
    let gone: Vec<u64> = bench.purge().iter().map(|note| note.id).collect();
    assert_eq!(gone, [2, 3, 5, 6, 7, 8, 9, 10]);
    let depth = bench.depth();
    assert_eq!((depth.messages, depth.acquired, depth.held), (2, 2, 0));

    // Nothing comes back when its time is due; what was held is its consumer's to settle, and goes back to its place.
    bench.pass(20);
    bench.resume(consumer);
    assert_eq!(bench.run(), []);
    bench.accept(consumer, held[0]);
    bench.settle(consumer, held[3], RELEASED);
    assert_eq!(bench.ids_for(consumer), [4]);
    bench.put_all(11..=11);
    bench.put(grouped(12, "g"));
    assert_eq!(bench.ids_for(consumer), [11, 12]);
}

#[test]
fn s50_what_a_consumer_refused_goes_too() {
    let mut bench = Bench::plain();
    let (one, other) = (bench.ready(0), bench.ready(0));
    bench.put_all(1..=1);
    let (first, got) = bench.run()[0];
    bench.settle(first, got, NOT_HERE);
    bench.pause(if first == one { other } else { one }, PauseReason::NoCredit);
    assert_eq!(bench.purge().len(), 1);
    bench.put_all(2..=2);
    assert_eq!(bench.ids_for(first), [2]);
}
