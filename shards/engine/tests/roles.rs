//! Queues that limit how many consumers are active: who is, who stands by, and what a hand-over looks like.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

const STANDBY: ConsumerList = ConsumerList::NotInterested(PauseReason::Standby);

fn exclusive() -> Bench {
    Bench::new(QueueProperties { exclusive: true, ..Default::default() })
}

fn limited(consumers_max: u32) -> Bench {
    Bench::new(QueueProperties { consumers_max: Some(consumers_max), ..Default::default() })
}

#[test]
fn s03_promotion_makes_nobody_ready() {
    let mut bench = limited(2);
    let stays = bench.ready(0);
    let goes = bench.attach(ConsumerSpec::new(0));
    let reserve = bench.attach(ConsumerSpec::new(0));
    assert_eq!(bench.list(reserve), STANDBY);
    bench.close(goes);
    assert_eq!(
        bench.list(reserve),
        ConsumerList::NotInterested(PauseReason::NoCredit),
        "active, and not ready"
    );
    bench.put(note(1));
    assert_eq!(bench.ids_for(stays), [1]);
    bench.resume(reserve);
    bench.pause(stays, PauseReason::NoCredit);
    bench.put(note(2));
    assert_eq!(bench.ids_for(reserve), [2]);
}

#[test]
fn s04_a_standby_is_never_notified() {
    let mut bench = exclusive();
    let active = bench.ready(0);
    let standby = bench.ready(0);
    for id in 0..50 {
        bench.put(note(id));
        let got = bench.run_for(active);
        bench.accept(active, got[0]);
        bench.pause(active, PauseReason::Socket);
        bench.resume(active);
    }
    assert_eq!(bench.wakes(standby), 0);
    assert_eq!(bench.list(standby), STANDBY);
}

#[test]
fn s05_a_standby_takes_over_in_order() {
    let mut bench = exclusive();
    let active = bench.ready(0);
    let standby = bench.ready(0);
    bench.put_all(1..=2);
    assert_eq!(bench.ids_for(active), [1, 2]);
    bench.pause(active, PauseReason::NoCredit);
    bench.put(note(3));
    assert_eq!(bench.run(), []);
    bench.close(active);
    let got = bench.run_for(standby);
    assert_eq!(got.iter().map(|got| got.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(got.iter().map(|got| got.acquired_count).collect::<Vec<_>>(), [1, 1, 0], "redelivered");
}

#[test]
fn s06_every_outcome_is_a_chance_to_hand_over() {
    let outcomes = [Outcome::Accepted, Outcome::Rejected, RELEASED, FAILED, NOT_HERE];
    for outcome in outcomes {
        let properties =
            QueueProperties { exclusive: true, prefetch: Prefetch::Limit(1), ..Default::default() };
        let mut bench = Bench::new(properties);
        let low = bench.ready(0);
        bench.put_all(1..=2);
        let got = bench.run_for(low)[0];
        let high = bench.ready(100);
        assert_eq!(bench.list(high), STANDBY, "the other still holds a message");
        assert_eq!(bench.list(low), STANDBY, "and gets no more");
        bench.settle(low, got, outcome);
        let back = !matches!(outcome, Outcome::Accepted | Outcome::Rejected);
        let first = bench.run_for(high)[0];
        assert_eq!(first.id, if back { 1 } else { 2 });
        assert_eq!(bench.list(low), STANDBY);
    }
    // The one without an outcome: its link ends.
    let mut bench = exclusive();
    let low = bench.ready(0);
    bench.put(note(1));
    bench.run();
    let high = bench.ready(100);
    bench.close(low);
    assert_eq!(bench.ids_for(high), [1]);
    // And the ack deadline.
    let properties =
        QueueProperties { exclusive: true, ack_deadline_us: Some(5 * TICK), ..Default::default() };
    let mut bench = Bench::new(properties);
    let low = bench.ready(0);
    bench.put(note(1));
    bench.run();
    let high = bench.ready(100);
    bench.pass(5);
    assert_eq!(bench.ids_for(high), [1]);
    assert_eq!(bench.list(low), STANDBY);
}

#[test]
fn a_higher_standby_that_leaves_reinstates_the_outranked() {
    let mut bench = exclusive();
    let low = bench.ready(0);
    bench.put_all(1..=2);
    let got = bench.pull(low).unwrap();
    let high = bench.ready(1);
    assert_eq!(bench.run(), []);
    bench.close(high);
    assert_eq!(bench.ids_for(low), [2]);
    bench.accept(low, got);
}

#[test]
fn standbys_follow_in_order_of_priority_then_attach() {
    let mut bench = exclusive();
    let first = bench.ready(9);
    let consumers = [bench.ready(0), bench.ready(5), bench.ready(0), bench.ready(5)];
    let mut order = Vec::new();
    let mut active = first;
    for id in 0..4 {
        bench.close(active);
        bench.put(note(id));
        let got = bench.run();
        active = got[0].0;
        bench.accept(active, got[0].1);
        order.push(active);
    }
    assert_eq!(order, [consumers[1], consumers[3], consumers[0], consumers[2]]);
}

#[test]
fn an_operator_hands_over() {
    let mut bench = exclusive();
    let first = bench.ready(0);
    let second = bench.ready(0);
    bench.put_all(1..=3);
    let got = bench.pull(first).unwrap();
    bench.engine.hand_over(bench.now, first);
    bench.check();
    assert_eq!(bench.run(), [], "what it holds comes first");
    bench.settle(first, got, RELEASED);
    assert_eq!(bench.ids_for(second), [1, 2, 3]);
    // Without a standby to take over nothing changes.
    bench.close(first);
    bench.engine.hand_over(bench.now, second);
    bench.put(note(4));
    assert_eq!(bench.ids_for(second), [4]);
}

#[test]
fn the_limit_can_be_changed() {
    let mut bench = limited(3);
    let consumers = [bench.ready(0), bench.ready(0), bench.ready(0), bench.ready(0)];
    let standing = |bench: &Bench| consumers.map(|consumer| bench.list(consumer) == STANDBY);
    assert_eq!(standing(&bench), [false, false, false, true]);
    let set = |bench: &mut Bench, consumers_max| {
        let properties = QueueProperties { consumers_max, ..Default::default() };
        bench.engine.set_properties(bench.now, bench.queue, properties);
        bench.check();
    };
    set(&mut bench, Some(1));
    assert_eq!(standing(&bench), [false, true, true, true]);
    set(&mut bench, None);
    assert_eq!(standing(&bench), [false; 4]);
}

/// Ten thousand stand by: one attach, one close, one message each cost nothing for the others.
#[test]
fn many_standbys_are_left_alone() {
    let mut bench = exclusive().unchecked();
    let mut active = bench.ready(0);
    let standbys: Vec<_> = (0..10_000).map(|_| bench.ready(0)).collect();
    for standby in standbys {
        bench.put(note(1));
        let got = bench.run_for(active)[0];
        bench.accept(active, got);
        assert_eq!(bench.wakes(standby), 0);
        bench.close(active);
        active = standby;
    }
    bench.engine.verify();
}

/// Browsers take nothing away and so do not count.
#[test]
fn browsers_need_no_place() {
    let mut bench = exclusive();
    let active = bench.ready(0);
    let browser = bench.browser(None);
    bench.put(note(1));
    assert_ne!(bench.list(browser), STANDBY);
    assert_eq!(bench.pull(browser).map(|got| got.id), Some(1));
    assert_eq!(bench.pull(active).map(|got| got.id), Some(1));
}
