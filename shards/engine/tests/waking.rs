//! Who is told that there is work: notifications are never lost, never given to the wrong one, and cost nothing per idle consumer.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

/// A message comes while H and L are ready; H is told, and cannot take it after all.
fn handed_on(stop: impl Fn(&mut Bench, ConsumerId)) {
    let mut bench = Bench::plain();
    let high = bench.ready(5);
    let low = bench.ready(0);
    bench.put(note(1));
    assert!(bench.is_notified(high) && !bench.is_notified(low));
    stop(&mut bench, high);
    assert!(bench.is_notified(low), "in the same turn");
    assert_eq!(bench.ids_for(low), [1]);
}

#[test]
fn s01_a_notified_consumer_that_pauses_hands_on() {
    for reason in [PauseReason::Socket, PauseReason::NoCredit, PauseReason::FlowStopped, PauseReason::Lane] {
        handed_on(|bench, high| bench.pause(high, reason));
    }
}

#[test]
fn s01_also_to_another_class() {
    let mut bench = Bench::plain();
    let high = bench.ready_with("color = 'red'", 5);
    let low = bench.ready_with("color <> 'blue'", 0);
    bench.put(colored(1, "red"));
    assert!(bench.is_notified(high) && !bench.is_notified(low));
    bench.pause(high, PauseReason::Socket);
    assert_eq!(bench.ids_for(low), [1]);
}

/// Two classes have been passed over for entries of a third; each of them is told.
#[test]
fn s01_to_every_class_that_was_passed_over() {
    let mut bench = Bench::plain();
    let all = bench.ready(5);
    let red = bench.ready_with("color = 'red'", 0);
    let blue = bench.ready_with("color = 'blue'", 0);
    for id in 1..=4 {
        bench.put(colored(id, if id % 2 == 0 { "blue" } else { "red" }));
    }
    assert!(!bench.is_notified(red) && !bench.is_notified(blue));
    bench.pause(all, PauseReason::Socket);
    let mut got = bench.run();
    got.sort_by_key(|(_, got)| got.id);
    let by: Vec<_> = got.iter().map(|(consumer, _)| *consumer).collect();
    assert_eq!(by, [red, blue, red, blue]);
}

#[test]
fn s02_a_notified_consumer_that_closes_hands_on() {
    handed_on(Bench::close);
}

#[test]
fn s07_without_credit_is_not_asked() {
    let mut bench = Bench::plain();
    let without = bench.attach(ConsumerSpec { priority: 9, ..ConsumerSpec::new(0) });
    let with = bench.ready(0);
    assert_eq!(bench.list(without), ConsumerList::NotInterested(PauseReason::NoCredit));
    bench.put_all(1..=3);
    assert_eq!(bench.ids_for(with), [1, 2, 3]);
    assert_eq!(bench.wakes(without), 0);
}

mod s08_told_when_a_message_becomes_available {
    use super::*;

    #[test]
    fn enqueued() {
        let mut bench = Bench::plain();
        let consumer = bench.ready(0);
        bench.put(note(1));
        assert_eq!(bench.ids_for(consumer), [1]);
    }

    #[test]
    fn released() {
        let mut bench = Bench::plain();
        let first = bench.ready(0);
        bench.put(note(1));
        let got = bench.run_for(first)[0];
        let second = bench.ready(0);
        bench.pause(first, PauseReason::NoCredit);
        bench.settle(first, got, RELEASED);
        assert_eq!(bench.ids_for(second), [1]);
    }

    #[test]
    fn hold_ended() {
        let mut bench = Bench::plain();
        let consumer = bench.ready(0);
        let held_until = Some(bench.now + 10 * TICK);
        bench.put(Publication { held_until, ..note(1) });
        bench.pass(9);
        assert!(!bench.is_notified(consumer));
        bench.pass(1);
        assert_eq!(bench.ids_for(consumer), [1]);
    }

    #[test]
    fn group_freed() {
        let mut bench = Bench::plain();
        let owner = bench.ready(0);
        bench.put(grouped(1, "g"));
        let first = bench.run_for(owner)[0];
        bench.pause(owner, PauseReason::NoCredit);
        let other = bench.ready(0);
        bench.put(grouped(2, "g"));
        assert_eq!(bench.run(), []);
        bench.accept(owner, first);
        assert_eq!(bench.ids_for(other), [2]);
    }

    #[test]
    fn credit_raised() {
        let mut bench = Bench::plain();
        let consumer = bench.attach(ConsumerSpec::new(0));
        bench.put(note(1));
        bench.resume(consumer);
        assert_eq!(bench.ids_for(consumer), [1]);
    }

    #[test]
    fn credit_raised_by_settling() {
        let mut bench = Bench::new(QueueProperties { prefetch: Prefetch::Limit(1), ..Default::default() });
        let consumer = bench.ready(0);
        bench.put_all(1..=2);
        let got = bench.run_for(consumer);
        assert_eq!(got.len(), 1);
        assert_eq!(bench.list(consumer), ConsumerList::NotInterested(PauseReason::Prefetch));
        bench.accept(consumer, got[0]);
        assert_eq!(bench.ids_for(consumer), [2]);
    }

    /// The lower one has given way before; nothing is enqueued when the higher one stops.
    #[test]
    fn higher_priority_not_ready() {
        for filter in [None, Some("weight >= 0")] {
            let mut bench = Bench::plain();
            let low = bench.ready(0);
            bench.put_all(1..=3);
            let high = match filter {
                Some(filter) => bench.ready_with(filter, 5),
                None => bench.attach(ConsumerSpec { priority: 5, ..ConsumerSpec::new(0) }),
            };
            bench.pause(high, PauseReason::NoCredit);
            while bench.engine.run_slice(bench.now) {}
            bench.resume(high);
            assert_eq!(bench.pull(low), None, "it gives way");
            assert!(!bench.is_notified(low) && bench.is_notified(high));
            assert_eq!(bench.pull(high).map(|got| got.id), Some(1));
            bench.pause(high, PauseReason::Socket);
            assert_eq!(bench.ids_for(low), [2, 3]);
        }
    }

    #[test]
    fn consumer_removed() {
        let mut bench = Bench::plain();
        let first = bench.ready(0);
        bench.put_all(1..=2);
        assert_eq!(bench.ids_for(first), [1, 2]);
        let second = bench.ready(0);
        bench.close(first);
        assert_eq!(bench.ids_for(second), [1, 2]);
    }

    #[test]
    fn consumer_of_a_filter_attached() {
        let mut bench = Bench::plain();
        let red = bench.ready_with("color = 'red'", 0);
        bench.put(colored(1, "blue"));
        assert_eq!(bench.run(), []);
        let blue = bench.ready_with("color = 'blue'", 0);
        assert_eq!(bench.ids_for(blue), [1]);
        assert_eq!(bench.wakes(red), 0);
    }
}

#[test]
fn s09_one_release_wakes_one_of_ten_thousand() {
    let mut bench = Bench::plain().unchecked();
    let first = bench.ready(0);
    bench.put(note(1));
    let got = bench.run_for(first)[0];
    bench.pause(first, PauseReason::NoCredit);
    let others: Vec<_> = (0..10_000).map(|_| bench.ready(0)).collect();
    let before = bench.engine.counters().notified;
    bench.settle(first, got, RELEASED);
    assert_eq!(bench.engine.counters().notified, before + 1);
    assert_eq!(others.iter().filter(|consumer| bench.is_notified(**consumer)).count(), 1);
    assert_eq!(bench.ids_for(others[0]), [1], "the one that waited longest");
    bench.engine.verify();
}

/// Entries that nobody can take: an orphaned filter's, one that all have refused, one that is held.
#[test]
fn s10_what_nobody_can_take_costs_nothing_per_consumer() {
    let mut bench = Bench::plain().unchecked();
    let refuser = bench.ready_with("color = 'red'", 0);
    bench.put(colored(1, "red"));
    let got = bench.run_for(refuser)[0];
    bench.settle(refuser, got, NOT_HERE);
    bench.put(colored(2, "green"));
    bench.put(Publication { held_until: Some(u64::MAX / 2), ..colored(3, "red") });
    for _ in 0..2_000 {
        bench.ready_with("color = 'blue'", 0);
    }
    bench.run();
    bench.pause(refuser, PauseReason::NoCredit);
    let before = bench.engine.counters();
    for id in 10..110 {
        bench.put(colored(id, "blue"));
        let got = bench.run();
        assert_eq!(got.len(), 1);
        bench.accept(got[0].0, got[0].1);
    }
    let after = bench.engine.counters();
    assert_eq!(after.notified - before.notified, 100, "one each");
    assert_eq!(after.empty_pulls - before.empty_pulls, 100, "each consumer looks once more");
    assert_eq!(after.scanned, before.scanned);
    assert_eq!(bench.depth().messages, 3);
    bench.engine.verify();
}

#[test]
fn s11_two_busy_consumers_alternate() {
    let mut bench = Bench::plain();
    let here = bench.ready(0);
    let second = bench.engine.declare_queue(QueueProperties::default());
    let there = bench.engine.attach_consumer(bench.now, second, ConsumerSpec::new(0)).unwrap();
    bench.engine.set_notify_work_desired(bench.now, there, Desire::Ready);
    for id in 1..=5 {
        bench.put(note(id));
        bench.engine.enqueue(bench.now, second, note(id)).unwrap();
    }
    let order: Vec<_> = bench.run().into_iter().map(|(consumer, _)| consumer).collect();
    let expected: Vec<_> = (0..10).map(|turn| if turn % 2 == 0 { here } else { there }).collect();
    assert_eq!(order, expected);
}

/// Shares follow the speeds, and the slow one never holds more than its prefetch.
#[test]
fn s12_slow_and_fast() {
    for (slowness, least, most) in [(10, 7.0, 13.0), (1, 1.0 / 1.2, 1.2)] {
        let mut bench =
            Bench::new(QueueProperties { prefetch: Prefetch::Limit(100), ..Default::default() }).unchecked();
        let consumers = [bench.ready(0), bench.ready(0)];
        let mut held: [std::collections::VecDeque<Got>; 2] = Default::default();
        let mut done = [0_u32; 2];
        for round in 0..20_000_u64 {
            bench.put(note(round));
            for (consumer, got) in bench.run() {
                let which = usize::from(consumer == consumers[1]);
                held[which].push_back(got);
                assert!(held[which].len() <= 100);
            }
            for which in 0..2 {
                let due = if which == 0 { round % 2 == 0 } else { round % (2 * slowness) == 0 };
                if due && let Some(got) = held[which].pop_front() {
                    bench.accept(consumers[which], got);
                    done[which] += 1;
                }
            }
        }
        let ratio = f64::from(done[0]) / f64::from(done[1]);
        assert!(ratio > least && ratio < most, "{done:?}");
    }
}

#[test]
fn s68_equal_consumers_share_equally() {
    let mut bench = Bench::plain();
    let both = [bench.ready(0), bench.ready(0)];
    bench.put_all(1..=10);
    let got = bench.run();
    for consumer in both {
        assert_eq!(got.iter().filter(|(other, _)| *other == consumer).count(), 5);
    }
    // The same when the messages were there first, and when the consumers have prefetch.
    let mut bench = Bench::new(QueueProperties { prefetch: Prefetch::Limit(100), ..Default::default() });
    bench.put_all(1..=10);
    let both = [bench.ready(0), bench.ready(0)];
    let got = bench.run();
    for consumer in both {
        assert_eq!(got.iter().filter(|(other, _)| *other == consumer).count(), 5);
    }
}

/// One is handed the notification, and the others join in as long as there is more to do than consumers at work.
#[test]
fn s68_also_when_they_take_over_a_backlog() {
    let mut bench = Bench::plain();
    let high = bench.ready(1);
    let both = [bench.ready(0), bench.ready(0)];
    bench.put_all(1..=10);
    assert!(both.iter().all(|low| !bench.is_notified(*low)));
    bench.pause(high, PauseReason::Socket);
    let got = bench.run();
    for consumer in both {
        assert_eq!(got.iter().filter(|(other, _)| *other == consumer).count(), 5);
    }
}

/// Drain: a pull that was asked for always gets an answer.
#[test]
fn s23_a_requested_pull_tells_that_there_is_nothing() {
    let mut bench = Bench::plain();
    let request = |bench: &mut Bench, consumer| {
        bench.engine.request_pull(bench.now, consumer);
        bench.check();
        for _ in 0..10_000 {
            assert_eq!(bench.engine.poll_notified(), Some(consumer));
            match bench.engine.deliver_single_message(bench.now, consumer) {
                Pull::Nothing => return,
                Pull::Scanning => {}
                Pull::Delivered(_) => panic!("there is nothing for it"),
            }
        }
        panic!("no answer");
    };
    let consumer = bench.ready_with("color = 'red'", 0);
    request(&mut bench, consumer);
    // No match, in a deep queue that has to be looked through.
    bench.checks = false;
    for id in 0..5_000 {
        bench.put(colored(id, "blue"));
    }
    let late = bench.ready_with("color = 'green'", 0);
    request(&mut bench, late);
    request(&mut bench, consumer);
    // Taken by another just before.
    bench.put(colored(7, "red"));
    let other = bench.ready_with("color = 'red'", 0);
    assert_eq!(bench.pull(other).map(|got| got.id), Some(7));
    bench.pause(other, PauseReason::NoCredit);
    assert_eq!(bench.pull(consumer), None);
    request(&mut bench, consumer);
}

/// The higher one is ready and will take it: the drain of the lower one ends without.
#[test]
fn s23_a_requested_pull_gives_way() {
    let mut bench = Bench::plain();
    let low = bench.ready(0);
    let high = bench.ready(1);
    bench.put(note(1));
    bench.engine.request_pull(bench.now, low);
    assert!(matches!(bench.engine.deliver_single_message(bench.now, low), Pull::Nothing));
    assert_eq!(bench.ids_for(high), [1]);
}

#[test]
fn s35_prefetch_none_delivers_one_for_each_flow() {
    let mut bench = Bench::new(QueueProperties { prefetch: Prefetch::None, ..Default::default() });
    let consumer = bench.ready(0);
    bench.put_all(1..=3);
    assert_eq!(bench.run(), [], "no flow has arrived");
    bench.engine.flow_received(consumer);
    bench.engine.flow_received(consumer);
    let got = bench.run_for(consumer);
    assert_eq!(got.len(), 1, "at most one");
    bench.engine.flow_received(consumer);
    assert_eq!(bench.run(), [], "the flow came before the settlement");
    bench.accept(consumer, got[0]);
    assert_eq!(bench.run(), []);
    bench.engine.flow_received(consumer);
    let got = bench.run_for(consumer);
    assert_eq!(got.len(), 1);
    bench.accept(consumer, got[0]);
    assert_eq!(bench.run(), [], "that flow has had its message");
    bench.engine.flow_received(consumer);
    assert_eq!(bench.ids_for(consumer), [3]);
}

/// The clamp holds whatever credit was given, and can be changed while consumers wait.
#[test]
fn prefetch_limits_what_is_unsettled() {
    let mut bench = Bench::new(QueueProperties { prefetch: Prefetch::Limit(2), ..Default::default() });
    let consumer = bench.ready(0);
    bench.put_all(1..=5);
    let got = bench.run_for(consumer);
    assert_eq!(got.len(), 2);
    assert_eq!(bench.engine.explain(consumer).unwrap().unsettled_count, 2);
    let properties = QueueProperties { prefetch: Prefetch::Limit(3), ..Default::default() };
    bench.engine.set_properties(bench.now, bench.queue, properties);
    bench.check();
    assert_eq!(bench.ids_for(consumer), [3]);
    bench.settle(consumer, got[0], RELEASED);
    assert_eq!(bench.ids_for(consumer), [1]);
}
