//! How deliveries end, and what time and limits do to messages.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn one_delivered(properties: QueueProperties) -> (Bench, ConsumerId, Got) {
    let mut bench = Bench::new(properties);
    let consumer = bench.ready(0);
    bench.put(note(1));
    let got = bench.run_for(consumer)[0];
    (bench, consumer, got)
}

#[test]
fn s30_rejected_is_terminal() {
    let (mut bench, consumer, got) = one_delivered(QueueProperties::default());
    assert_eq!(bench.settle(consumer, got, Outcome::Rejected), Settled::Done);
    assert_eq!(bench.run(), []);
    assert_eq!(bench.depth(), Depth::default());
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().rejected, 1, "dropped and counted");
    assert!(bench.engine.take_dead_letter().is_none());
    assert_eq!(bench.engine.take_spent().map(|spent| spent.message.here().unwrap().id), Some(1));

    let (mut bench, consumer, got) =
        one_delivered(QueueProperties { dead_letter: true, ..Default::default() });
    bench.settle(consumer, got, Outcome::Rejected);
    let letter = bench.engine.take_dead_letter().unwrap();
    assert_eq!((letter.message.here().unwrap().id, letter.reason), (1, DeadLetterReason::Rejected));
    assert_eq!((letter.queue, letter.acquired_count), (bench.queue, 1));
    assert!(bench.engine.take_spent().is_none());
    assert_eq!(bench.run(), []);
}

#[test]
fn s31_modified_and_released() {
    for (outcome, count) in [(RELEASED, 0), (FAILED, 1), (NOT_HERE, 0)] {
        let (mut bench, consumer, got) = one_delivered(QueueProperties::default());
        bench.put(note(2));
        bench.settle(consumer, got, outcome);
        let other = bench.ready(0);
        if outcome != NOT_HERE {
            bench.pause(consumer, PauseReason::NoCredit);
        }
        let again = bench.run().into_iter().find(|(_, got)| got.id == 1).unwrap();
        assert_eq!(again.0, other);
        assert_eq!((again.1.delivery_count, again.1.acquired_count), (count, 1), "{outcome:?}");
        assert_eq!(again.1.place, got.place);
    }
}

#[test]
fn s32_counts_tell_attempts_from_acquisitions() {
    let properties =
        QueueProperties { deliveries_max: Some(3), prefetch: Prefetch::Limit(100), ..Default::default() };
    let mut bench = Bench::new(properties);
    bench.put_all(1..=100);
    for _ in 0..5 {
        let consumer = bench.ready(0);
        let got = bench.run_for(consumer);
        let first = got.first().map(|got| got.place);
        bench.engine.close_consumer(bench.now, consumer, first);
        bench.check();
    }
    let consumer = bench.ready(0);
    let got = bench.run_for(consumer);
    let fifty = got.iter().find(|got| got.id == 50).unwrap();
    assert_eq!((fifty.delivery_count, fifty.acquired_count), (0, 5));
    assert_eq!(
        bench.engine.queue_counters(bench.queue).unwrap().exhausted,
        1,
        "the one it died of three times"
    );
    assert_eq!((got[0].id, got[0].delivery_count), (2, 2));
}

#[test]
fn a_message_that_fails_too_often_is_a_dead_letter() {
    let properties = QueueProperties { deliveries_max: Some(2), dead_letter: true, ..Default::default() };
    let (mut bench, consumer, got) = one_delivered(properties);
    bench.settle(consumer, got, FAILED);
    let got = bench.run_for(consumer)[0];
    bench.settle(consumer, got, FAILED);
    assert_eq!(bench.run(), []);
    let letter = bench.engine.take_dead_letter().unwrap();
    assert_eq!((letter.reason, letter.delivery_count), (DeadLetterReason::DeliveriesMax, 2));
}

#[test]
fn a_failed_message_waits_before_it_comes_again() {
    let properties =
        QueueProperties { redelivery: Some(RedeliveryDelay::constant(10 * TICK)), ..Default::default() };
    let (mut bench, consumer, got) = one_delivered(properties);
    bench.put(note(2));
    bench.settle(consumer, got, FAILED);
    assert_eq!(bench.depth().held, 1);
    assert_eq!(bench.ids_for(consumer), [2]);
    bench.pass(9);
    assert_eq!(bench.run(), []);
    bench.pass(1);
    assert_eq!(bench.ids_for(consumer), [1]);
}

#[test]
fn the_wait_grows_with_each_failure() {
    let delay = RedeliveryDelay { min_us: 2 * TICK, multiplier_permille: 3000, max_us: 10 * TICK };
    let properties = QueueProperties { redelivery: Some(delay), ..Default::default() };
    let (mut bench, consumer, mut got) = one_delivered(properties);
    for ticks in [2, 6, 10, 10] {
        bench.settle(consumer, got, FAILED);
        bench.pass(ticks - 1);
        assert_eq!(bench.run(), [], "{ticks}");
        bench.pass(1);
        got = bench.run_for(consumer)[0];
    }
    bench.settle(consumer, got, RELEASED);
    assert_eq!(bench.ids_for(consumer), [1], "released is not failed");
}

#[test]
fn a_missed_deadline_is_a_failure() {
    let (mut bench, consumer, _) = one_delivered(QueueProperties {
        ack_deadline_us: Some(10 * TICK),
        deliveries_max: Some(2),
        dead_letter: true,
        ..Default::default()
    });
    bench.pass(10);
    let again = bench.run_for(consumer)[0];
    assert_eq!(again.delivery_count, 1);
    bench.pass(10);
    assert_eq!(bench.depth().messages, 0);
    let letter = bench.engine.take_dead_letter().expect("who hangs on it does not get it for ever");
    assert_eq!((letter.reason, letter.delivery_count), (DeadLetterReason::DeliveriesMax, 2));
}

#[test]
fn s71_a_renewed_deadline_starts_anew() {
    let (mut bench, consumer, got) =
        one_delivered(QueueProperties { ack_deadline_us: Some(10 * TICK), ..Default::default() });
    let renew = |bench: &mut Bench, got: Got| {
        let settled = bench.engine.renew(bench.now, consumer, got.place, got.acquisition);
        bench.check();
        settled
    };
    for _ in 0..3 {
        bench.pass(9);
        assert_eq!(renew(&mut bench, got), Settled::Done);
    }
    bench.pass(9);
    assert_eq!(bench.depth().acquired, 1);
    bench.pass(1);
    assert_eq!(bench.depth().available, 1);
    assert_eq!(renew(&mut bench, got), Settled::Late, "it is not his any more");
    let again = bench.run_for(consumer)[0];
    assert_eq!(renew(&mut bench, got), Settled::Late);
    bench.pass(9);
    bench.accept(consumer, again);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().ack_deadlines_missed, 1);
    assert_eq!(bench.engine.counters().late_settlements, 0);
}

#[test]
fn s44_expiry_at_any_position_without_consumers() {
    let mut bench = Bench::new(QueueProperties { dead_letter: true, ..Default::default() });
    let at = |bench: &Bench, ticks: u64| Some(bench.now + ticks * TICK);
    for (id, ticks) in [(1, 1_000), (2, 10), (3, 500), (4, 20)] {
        bench.put(Publication { expires_at: at(&bench, ticks), ..note(id) });
    }
    bench.put(Publication { expires_at: at(&bench, 15), ..grouped(5, "g") });
    let start = bench.now;
    let mut expired = Vec::new();
    while let Some(deadline) = bench.engine.next_deadline() {
        bench.now = deadline.max(bench.now);
        bench.pass(0);
        while let Some(letter) = bench.engine.take_dead_letter() {
            assert_eq!(letter.reason, DeadLetterReason::Expired);
            expired.push((letter.message.here().unwrap().id, (bench.now - start) / TICK));
        }
    }
    assert_eq!(expired, [(2, 10), (5, 15), (4, 20), (3, 500), (1, 1_000)]);
}

#[test]
fn s44_very_many_due_at_once() {
    let mut bench = Bench::plain().unchecked();
    let expires_at = Some(bench.now + 10 * TICK);
    for id in 0..50_000 {
        bench.put(Publication { expires_at, ..note(id) });
    }
    bench.put(note(50_000));
    bench.now += 10 * TICK;
    let consumer = bench.ready(0);
    let mut slices = 0;
    let mut got = Vec::new();
    loop {
        if let Some(next) = bench.engine.poll_notified() {
            got.extend(bench.pull(next));
        }
        let before = bench.depth().messages;
        let more = bench.engine.handle_timeout(bench.now);
        slices += 1;
        assert!(before - bench.depth().messages <= Limits::default().timeout_slice_max as u64, "in slices");
        if !more && bench.engine.poll_notified().is_none() {
            break;
        }
    }
    assert!(slices > 100);
    assert_eq!(got.iter().map(|got| got.id).collect::<Vec<_>>(), [50_000], "none of them is delivered");
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().expired, 50_000);
    let _ = consumer;
    bench.engine.verify();
}

#[test]
fn s45_an_acquired_message_is_judged_when_it_comes_back() {
    let mut bench = Bench::plain();
    let consumer = bench.ready(0);
    let expires_at = Some(bench.now + 5 * TICK);
    bench.put(Publication { expires_at, ..note(1) });
    bench.put(Publication { expires_at, ..note(2) });
    let got = bench.run_for(consumer);
    bench.pass(10);
    assert_eq!(bench.depth().acquired, 2);
    bench.accept(consumer, got[0]);
    bench.settle(consumer, got[1], RELEASED);
    assert_eq!(bench.run(), []);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().expired, 1);
}

#[test]
fn s46_the_queues_expiration_replaces_the_producers() {
    let tell = |expiration_us, expires_at: Option<u64>| {
        let mut bench = Bench::new(QueueProperties { expiration_us, ..Default::default() });
        let expires_at = expires_at.map(|ticks| bench.now + ticks * TICK);
        bench.put(Publication { expires_at, ..note(1) });
        bench.engine.next_deadline().map(|deadline| (deadline - bench.now) / TICK)
    };
    assert_eq!(tell(None, Some(3)), Some(3));
    assert_eq!(tell(Some(5 * TICK), Some(3)), Some(5));
    assert_eq!(tell(Some(5 * TICK), None), Some(5));
    assert_eq!(tell(Some(0), Some(3)), None, "0: never");
}

#[test]
fn s47_drop_oldest_spares_what_is_held() {
    let properties =
        QueueProperties { messages_max: Some(3), overflow: Overflow::DropOldest, ..Default::default() };
    let mut bench = Bench::new(properties);
    let consumer = bench.ready(0);
    bench.put_all(1..=3);
    let got = [bench.pull(consumer).unwrap(), bench.pull(consumer).unwrap()];
    bench.pause(consumer, PauseReason::NoCredit);
    bench.put_all(4..=5);
    assert_eq!(bench.depth().messages, 3, "3 and 4 are dropped");
    bench.settle(consumer, got[0], RELEASED);
    bench.put(note(6));
    bench.resume(consumer);
    assert_eq!(bench.ids_for(consumer), [5, 6], "the released one was the oldest");
    bench.put_all(7..=9);
    assert_eq!(bench.depth().acquired, 3);
    assert_eq!(bench.ids_for(consumer), [9], "of what is not held, the last one stays");
    assert_eq!(bench.depth().messages, 4, "all are held: it overshoots by what is acquired");
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().dropped, 5);
}

#[test]
fn s48_a_full_queue_refuses_and_counts() {
    let properties = QueueProperties { messages_max: Some(2), bytes_max: Some(25), ..Default::default() };
    let mut bench = Bench::new(properties);
    let put = |bench: &mut Bench, weight| {
        let message = Note { id: 1, weight, ..Note::default() };
        bench
            .engine
            .enqueue(bench.now, bench.queue, Publication::new(message))
            .map_err(|(note, why)| (note.weight, why))
    };
    put(&mut bench, 0).unwrap();
    assert_eq!(put(&mut bench, 6), Err((6, EnqueueRefusal::BytesFull)), "10 + 16 bytes");
    put(&mut bench, 5).unwrap();
    assert_eq!(put(&mut bench, 0), Err((0, EnqueueRefusal::MessagesFull)));
    bench.check();
    assert_eq!((bench.depth().messages, bench.depth().bytes), (2, 25));
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().refused_publications, 2);
    let consumer = bench.ready(0);
    for got in bench.run_for(consumer) {
        bench.accept(consumer, got);
    }
    assert_eq!(bench.depth(), Depth::default());
    put(&mut bench, 6).unwrap();
}

/// Never under a consumer, never twice, never after the queue is gone.
#[test]
fn settlements_that_are_too_late_do_nothing() {
    let (mut bench, consumer, got) = one_delivered(QueueProperties::default());
    bench.accept(consumer, got);
    assert_eq!(bench.settle(consumer, got, Outcome::Accepted), Settled::Late, "twice");
    bench.put(note(2));
    let got = bench.run_for(consumer)[0];
    bench.close(consumer);
    assert_eq!(bench.settle(consumer, got, Outcome::Accepted), Settled::Late, "closed");
    let other = bench.ready(0);
    let again = bench.run_for(other)[0];
    assert_eq!((again.id, again.acquired_count), (2, 1));
    assert!(bench.engine.message(other, again.place, got.acquisition).is_none());
    assert_eq!(
        bench
            .engine
            .message(other, again.place, again.acquisition)
            .and_then(Stored::here)
            .map(|note| note.id),
        Some(2)
    );
    bench.engine.message_mut(other, again.place, again.acquisition).unwrap().here().unwrap().color =
        "changed";
    bench.settle(other, again, RELEASED);
    assert_eq!(bench.engine.counters().late_settlements, 2);
}

#[test]
fn non_destructive_queues_show_everything_to_everybody() {
    let mut bench = Bench::new(QueueProperties { non_destructive: true, ..Default::default() });
    bench.put_all(1..=2);
    let readers = [bench.ready(0), bench.ready(5)];
    bench.put(note(3));
    let got = bench.run();
    for reader in readers {
        let ids: Vec<_> = got.iter().filter(|(other, _)| *other == reader).map(|(_, got)| got.id).collect();
        assert_eq!(ids, [1, 2, 3]);
    }
    assert_eq!(bench.settle(readers[0], got[0].1, Outcome::Accepted), Settled::Done, "nothing to settle");
    assert_eq!(bench.depth().available, 3);
}
