//! Entries inside transactions: unseen until committed, and away until decided.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn pending(publication: Publication<Note>) -> Publication<Note> {
    Publication { pending: true, ..publication }
}

fn commit(bench: &mut Bench, place: Place) -> bool {
    let done = bench.engine.commit_pending(bench.now, bench.queue, place);
    bench.check();
    done
}

fn retire(bench: &mut Bench, consumer: ConsumerId, got: Got) {
    assert_eq!(bench.engine.retire(bench.now, consumer, got.place, got.acquisition), Settled::Done);
    bench.check();
}

fn commit_retired(bench: &mut Bench, got: Got, outcome: Outcome) -> bool {
    let done = bench.engine.commit_retired(bench.now, bench.queue, got.place, outcome);
    bench.check();
    done
}

fn roll_back(bench: &mut Bench, got: Got, failed: bool) -> bool {
    let done = bench.engine.roll_back_retired(bench.now, bench.queue, got.place, failed);
    bench.check();
    done
}

#[test]
fn a_pending_message_is_seen_by_nobody_and_committed_comes_before_what_is_later() {
    let mut bench = Bench::plain();
    let (taker, filtered) = (bench.ready(0), bench.ready_with("color = 'red'", 0));
    let browser = bench.browser(None);
    bench.pause(taker, PauseReason::NoCredit);
    let place = bench.put(pending(colored(1, "red")));
    assert!(bench.run().is_empty());
    assert!(bench.list(browser) == ConsumerList::NonAcquiring { caught_up: true });
    bench.put(colored(2, "blue"));
    assert_eq!(bench.ids_for(browser), [2]);
    let view = bench.engine.explain_entry(bench.queue, place).unwrap();
    assert_eq!(view.state, EntryState::Pending);
    assert_eq!(bench.engine.verdict(filtered, place), Some(Verdict::NotAvailable));
    let depth = Depth { messages: 2, bytes: 20, available: 1, pending: 1, ..Depth::default() };
    assert_eq!(bench.depth(), depth);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().enqueued, 1);

    assert!(commit(&mut bench, place));
    assert!(!commit(&mut bench, place), "once");
    assert!(bench.is_notified(filtered));
    bench.pause(filtered, PauseReason::NoCredit);
    assert_eq!(bench.ids_for(browser), [1], "the browser had passed its place");
    bench.resume(taker);
    assert_eq!(bench.ids_for(taker), [1, 2]);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().enqueued, 2);
}

#[test]
fn a_pending_message_taken_back_was_never_there() {
    let mut bench = Bench::new(QueueProperties { messages_max: Some(1), ..QueueProperties::default() });
    let taker = bench.ready(0);
    let place = bench.put(pending(grouped(1, "g")));
    let refused = bench.engine.enqueue(bench.now, bench.queue, note(2)).unwrap_err().1;
    assert_eq!(refused, EnqueueRefusal::MessagesFull, "it counts for the limits");
    assert!(bench.engine.drop_pending(bench.queue, place));
    bench.check();
    assert!(!bench.engine.drop_pending(bench.queue, place));
    assert_eq!(bench.engine.take_spent().map(|spent| spent.message.here().unwrap().id), Some(1));
    assert_eq!(bench.depth(), Depth::default());
    bench.put(note(3));
    assert_eq!(bench.ids_for(taker), [3]);
}

#[test]
fn purge_and_dropping_the_oldest_leave_alone_what_transactions_have() {
    let properties = QueueProperties {
        messages_max: Some(3),
        overflow: Overflow::DropOldest,
        dead_letter: true,
        ..QueueProperties::default()
    };
    let mut bench = Bench::new(properties);
    let taker = bench.ready(0);
    bench.put(note(1));
    let got = bench.run_for(taker)[0];
    retire(&mut bench, taker, got);
    bench.pause(taker, PauseReason::NoCredit);
    let place = bench.put(pending(note(2)));
    bench.put_all([3, 4, 5]);
    assert_eq!(bench.engine.take_dead_letter().map(|letter| letter.message.here().unwrap().id), Some(3));
    assert_eq!(bench.purge().len(), 2);
    assert_eq!((bench.depth().pending, bench.depth().retired, bench.depth().messages), (1, 1, 2));

    // Decided, they are dropped like any other.
    assert!(roll_back(&mut bench, got, false));
    assert!(commit(&mut bench, place));
    bench.put_all([5, 6, 7]);
    let dropped = std::iter::from_fn(|| bench.engine.take_dead_letter());
    assert_eq!(dropped.map(|letter| letter.message.here().unwrap().id).collect::<Vec<_>>(), [1, 2]);
}

/// A full queue of two that drops the oldest, of which a transaction has so many more.
fn dropping(limits: QueueProperties, posts: u64) -> (Bench, Vec<Place>) {
    let overflow = Overflow::DropOldest;
    let mut bench = Bench::new(QueueProperties { overflow, dead_letter: true, ..limits });
    bench.put_all([1, 2]);
    let places = (0..posts).map(|id| bench.put(pending(note(10 + id)))).collect();
    (bench, places)
}

fn dropped(bench: &mut Bench) -> Vec<u64> {
    std::iter::from_fn(|| bench.engine.take_dead_letter())
        .map(|letter| letter.message.here().unwrap().id)
        .collect()
}

/// Two of ten bytes fit.
fn two_fit() -> [QueueProperties; 2] {
    let default = QueueProperties::default();
    [QueueProperties { messages_max: Some(2), ..default }, QueueProperties { bytes_max: Some(25), ..default }]
}

#[test]
fn the_oldest_are_dropped_when_it_commits_and_never_if_it_does_not() {
    for limits in two_fit() {
        let (mut bench, places) = dropping(limits, 5);
        assert_eq!((dropped(&mut bench), bench.depth().messages), (vec![], 7));
        for place in places {
            assert!(bench.engine.drop_pending(bench.queue, place));
            bench.check();
        }
        let taker = bench.ready(0);
        assert_eq!((dropped(&mut bench), bench.ids_for(taker)), (vec![], vec![1, 2]));

        let (mut bench, places) = dropping(limits, 5);
        for place in places {
            assert!(commit(&mut bench, place));
        }
        assert_eq!(dropped(&mut bench), [1, 2, 10, 11, 12], "the oldest first, and down to the limit");
        let taker = bench.ready(0);
        assert_eq!(bench.ids_for(taker), [13, 14]);
    }
}

#[test]
fn what_may_still_be_taken_back_drops_nothing_by_way_of_others() {
    for limits in two_fit() {
        let (mut bench, places) = dropping(limits, 5);
        bench.put(note(3));
        assert_eq!(dropped(&mut bench), [1]);
        for place in places {
            assert!(bench.engine.drop_pending(bench.queue, place));
        }
        let taker = bench.ready(0);
        assert_eq!(bench.ids_for(taker), [2, 3]);
    }
}

/// What it has consumed makes room for what it brings, and so does the older value that is replaced; what has expired needs none.
#[test]
fn a_commit_drops_no_more_than_it_must() {
    let (mut bench, places) = dropping(two_fit()[0], 1);
    let taker = bench.ready(0);
    let got = bench.pull(taker).unwrap();
    bench.pause(taker, PauseReason::NoCredit);
    retire(&mut bench, taker, got);
    assert!(commit_retired(&mut bench, got, Outcome::Accepted));
    assert!(commit(&mut bench, places[0]));
    assert_eq!((dropped(&mut bench), bench.depth().messages), (vec![], 2));

    let (mut bench, _) = dropping(two_fit()[0], 0);
    let keyed = |id| Publication { last_value: Some(b"k".as_slice().into()), ..note(id) };
    bench.put(keyed(3));
    let place = bench.put(pending(keyed(4)));
    let expires_at = Some(bench.now + TICK);
    let late = bench.put(pending(Publication { expires_at, ..note(5) }));
    assert!(commit(&mut bench, place));
    bench.pass(2);
    assert!(commit(&mut bench, late));
    assert_eq!(dropped(&mut bench), [1, 5], "the first for the third, which the fourth replaces");
    let taker = bench.ready(0);
    assert_eq!(bench.ids_for(taker), [2, 4]);
}

#[test]
fn expiry_and_hold_take_effect_at_the_commit() {
    let mut bench = Bench::new(QueueProperties { dead_letter: true, ..QueueProperties::default() });
    let taker = bench.ready(0);
    let now = bench.now;
    let expired = bench.put(pending(Publication { expires_at: Some(now + 2 * TICK), ..note(1) }));
    let held = bench.put(pending(Publication { held_until: Some(now + 10 * TICK), ..note(2) }));
    let due = bench.put(pending(Publication { held_until: Some(now + 2 * TICK), ..note(3) }));
    let lasting = bench.put(pending(Publication { expires_at: Some(now + 10 * TICK), ..note(4) }));
    bench.pass(5);
    assert_eq!(bench.depth().pending, 4, "no timer runs");
    for place in [expired, held, due, lasting] {
        assert!(commit(&mut bench, place));
    }
    let letter = bench.engine.take_dead_letter().unwrap();
    assert_eq!((letter.message.here().unwrap().id, letter.reason), (1, DeadLetterReason::Expired));
    assert_eq!(bench.depth().held, 1);
    assert_eq!(bench.ids_for(taker), [3, 4]);
    bench.pass(6);
    assert_eq!(bench.ids_for(taker), [2]);

    let place = bench.put(pending(Publication { expires_at: Some(bench.now + 3 * TICK), ..note(5) }));
    bench.pause(taker, PauseReason::NoCredit);
    assert!(commit(&mut bench, place));
    bench.pass(4);
    assert_eq!(
        bench.engine.take_dead_letter().map(|letter| letter.message.here().unwrap().id),
        Some(5),
        "its timer ran"
    );
}

#[test]
fn a_retired_delivery_leaves_prefetch_and_deadline_and_stays_when_its_consumer_closes() {
    let properties = QueueProperties {
        prefetch: Prefetch::Limit(1),
        ack_deadline_us: Some(2 * TICK),
        ..QueueProperties::default()
    };
    let mut bench = Bench::new(properties);
    let first = bench.ready(0);
    bench.put_all([1, 2]);
    let one = bench.run_for(first)[0];
    retire(&mut bench, first, one);
    let two = bench.run_for(first)[0];
    assert_eq!(two.id, 2, "the first does not count for the prefetch");
    bench.pass(3);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().ack_deadlines_missed, 1, "of the second");
    let late = bench.engine.settle(bench.now, first, one.place, one.acquisition, Outcome::Accepted);
    assert_eq!(late, Settled::Late, "it is no delivery any more");
    assert_eq!(bench.engine.retire(bench.now, first, one.place, one.acquisition), Settled::Late);
    bench.close(first);
    assert_eq!(bench.depth(), Depth { messages: 2, bytes: 20, available: 1, retired: 1, ..Depth::default() });
    let view = bench.engine.explain_entry(bench.queue, one.place).unwrap();
    assert_eq!(view.state, EntryState::Retired(first));

    assert!(roll_back(&mut bench, one, true));
    assert!(!roll_back(&mut bench, one, true), "once");
    let second = bench.ready(0);
    let again = bench.run_for(second)[0];
    assert_eq!((again.id, again.delivery_count, again.acquired_count), (1, 1, 1), "at its place");
}

#[test]
fn the_outcome_of_a_retired_delivery_happens_at_the_commit() {
    let properties =
        QueueProperties { dead_letter: true, deliveries_max: Some(2), ..QueueProperties::default() };
    let mut bench = Bench::new(properties);
    let taker = bench.ready(0);
    bench.put_all([1, 2, 3, 4]);
    let got = bench.run_for(taker);
    for got in &got {
        retire(&mut bench, taker, *got);
    }
    bench.engine.retired_message_mut(bench.queue, got[2].place).unwrap().here().unwrap().weight = 5;
    assert_eq!(bench.depth().bytes, 45);
    assert!(bench.engine.take_spent().is_none());
    assert!(commit_retired(&mut bench, got[0], Outcome::Accepted));
    assert!(!commit_retired(&mut bench, got[0], Outcome::Accepted));
    assert_eq!(bench.engine.take_spent().map(|spent| spent.message.here().unwrap().id), Some(1));
    assert!(commit_retired(&mut bench, got[1], Outcome::Rejected));
    assert_eq!(bench.engine.take_dead_letter().map(|letter| letter.message.here().unwrap().id), Some(2));
    assert!(commit_retired(&mut bench, got[2], NOT_HERE));
    assert!(commit_retired(&mut bench, got[3], FAILED));
    let again = bench.run_for(taker)[0];
    assert_eq!((again.id, again.delivery_count), (4, 1));
    let other = bench.ready(0);
    assert_eq!(bench.ids_for(other), [3], "not to the one that refused it");
    retire(&mut bench, taker, again);
    assert!(roll_back(&mut bench, again, true));
    let letter = bench.engine.take_dead_letter().unwrap();
    assert_eq!((letter.message.here().unwrap().id, letter.reason), (4, DeadLetterReason::DeliveriesMax));
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().accepted, 1);
}

#[test]
fn a_refusal_by_a_consumer_that_is_gone_is_a_release() {
    let mut bench = Bench::plain();
    let taker = bench.ready(0);
    bench.put(note(1));
    let got = bench.run_for(taker)[0];
    retire(&mut bench, taker, got);
    bench.close(taker);
    // Has the slot of the one that is gone.
    let other = bench.ready(0);
    assert_eq!(other.index, taker.index);
    assert!(commit_retired(&mut bench, got, NOT_HERE));
    assert_eq!(bench.ids_for(other), [1]);
}

#[test]
fn a_pending_message_does_not_hold_its_group_back() {
    let mut bench = Bench::plain();
    let taker = bench.ready(0);
    let place = bench.put(pending(grouped(1, "g")));
    bench.put(grouped(2, "g"));
    let two = bench.run_for(taker)[0];
    assert_eq!(two.id, 2);
    bench.put(grouped(3, "g"));
    bench.pause(taker, PauseReason::NoCredit);
    assert!(commit(&mut bench, place));
    let other = bench.ready(0);
    assert!(bench.run_for(other).is_empty(), "the group is the first one's");
    bench.accept(taker, two);
    assert_eq!(bench.ids_for(other), [1, 3], "at its place in the group");
}

#[test]
fn a_retired_delivery_keeps_its_group_with_its_consumer() {
    let mut bench = Bench::plain();
    let (owner, other) = (bench.ready(0), bench.ready(0));
    bench.put_all([]);
    bench.put(grouped(1, "g"));
    let one = bench.run_for(owner)[0];
    retire(&mut bench, owner, one);
    bench.pause(owner, PauseReason::NoCredit);
    bench.put(grouped(2, "g"));
    assert!(bench.run_for(other).is_empty(), "the group is still the first one's");
    bench.resume(owner);
    let two = bench.run_for(owner)[0];
    retire(&mut bench, owner, two);
    bench.put(grouped(3, "g"));
    bench.pause(owner, PauseReason::NoCredit);
    assert!(roll_back(&mut bench, one, false));
    assert!(bench.run_for(other).is_empty(), "the second is undecided");
    assert!(commit_retired(&mut bench, two, Outcome::Accepted));
    assert_eq!(bench.ids_for(other), [1, 3], "freed, in order");
}

#[test]
fn a_group_whose_owner_closed_waits_for_what_the_owner_retired() {
    for commits in [true, false] {
        let mut bench = Bench::plain();
        let (owner, other) = (bench.ready(0), bench.ready(0));
        bench.put(grouped(1, "g"));
        let one = bench.run_for(owner)[0];
        bench.put(grouped(2, "g"));
        let two = bench.run_for(owner)[0];
        retire(&mut bench, owner, one);
        bench.close(owner);
        let third = bench.put(grouped(3, "g"));
        assert!(bench.run_for(other).is_empty(), "the first may come back");
        for place in [two.place, third] {
            let view = bench.engine.explain_entry(bench.queue, place).unwrap();
            assert_eq!((view.state, view.group_owner), (EntryState::BehindInGroup, None));
            assert_eq!(bench.engine.verdict(other, place), Some(Verdict::BehindInGroup));
        }
        bench.put(grouped(4, "h"));
        assert_eq!(bench.ids_for(other), [4], "other groups flow");
        if commits {
            assert!(commit_retired(&mut bench, one, Outcome::Accepted));
            assert_eq!(bench.ids_for(other), [2, 3]);
        } else {
            assert!(roll_back(&mut bench, one, false));
            assert_eq!(bench.ids_for(other), [1, 2, 3]);
        }
    }
}

#[test]
fn the_next_takes_over_when_what_the_active_one_retired_is_decided() {
    let mut bench = Bench::new(QueueProperties { exclusive: true, ..QueueProperties::default() });
    let (active, next) = (bench.ready(0), bench.ready(0));
    bench.put_all([1, 2]);
    let got = bench.run_for(active);
    bench.engine.hand_over(bench.now, active);
    bench.check();
    bench.accept(active, got[1]);
    retire(&mut bench, active, got[0]);
    bench.put(note(3));
    assert!(bench.run_for(next).is_empty(), "the first may come back");
    assert!(roll_back(&mut bench, got[0], false));
    assert_eq!(bench.ids_for(next), [1, 3]);
}

#[test]
fn s53_a_deleted_queue_takes_what_transactions_have_with_it() {
    let mut bench = Bench::plain();
    let taker = bench.ready(0);
    bench.put(grouped(1, "g"));
    let got = bench.run_for(taker)[0];
    retire(&mut bench, taker, got);
    let place = bench.put(pending(grouped(2, "g")));
    bench.engine.delete_queue(bench.now, bench.queue);
    bench.check();
    assert!(!commit(&mut bench, place));
    assert!(!bench.engine.drop_pending(bench.queue, place));
    assert!(!commit_retired(&mut bench, got, Outcome::Accepted));
    assert!(!roll_back(&mut bench, got, false));
    let mut back = Vec::new();
    while bench.engine.run_slice(bench.now) {
        bench.check();
        back.extend(
            std::iter::from_fn(|| bench.engine.take_spent()).map(|spent| spent.message.here().unwrap().id),
        );
    }
    assert_eq!(back.len(), 2);
    // A queue in the same slot is another one.
    bench.queue = bench.engine.declare_queue(QueueProperties::default());
    let place = bench.put(pending(note(3)));
    assert!(commit(&mut bench, place));
    let old = QueueId { generation: bench.queue.generation.wrapping_sub(1), ..bench.queue };
    assert!(!bench.engine.commit_pending(bench.now, old, place));
}

#[test]
fn a_retired_delivery_can_be_its_consumers_again() {
    let properties = QueueProperties {
        prefetch: Prefetch::Limit(2),
        ack_deadline_us: Some(5 * TICK),
        ..QueueProperties::default()
    };
    let mut bench = Bench::new(properties);
    let (owner, other) = (bench.ready(0), bench.ready(0));
    bench.pause(other, PauseReason::NoCredit);
    for id in 1..=3 {
        bench.put(grouped(id, "g"));
    }
    let got = bench.run_for(owner);
    assert_eq!(got.iter().map(|got| got.id).collect::<Vec<_>>(), [1, 2]);
    let one = got[0];
    retire(&mut bench, owner, one);
    bench.pause(owner, PauseReason::NoCredit);
    bench.pass(3);
    let restore = |bench: &mut Bench, got: Got| {
        let done = bench.engine.restore_retired(bench.now, bench.queue, got.place, got.acquisition);
        bench.check();
        done
    };
    assert!(restore(&mut bench, one));
    assert!(!restore(&mut bench, one), "once");
    bench.resume(owner);
    assert!(bench.run_for(owner).is_empty(), "at its prefetch");
    bench.resume(other);
    assert!(bench.run_for(other).is_empty(), "the group is the owner's");
    bench.pass(3);
    assert_eq!(bench.engine.queue_counters(bench.queue).unwrap().ack_deadlines_missed, 1, "of the second");
    let settled = bench.engine.settle(bench.now, owner, one.place, one.acquisition, Outcome::Accepted);
    assert_eq!(settled, Settled::Done, "under its old acquisition");
    bench.check();
}

#[test]
fn a_retired_delivery_whose_consumer_is_gone_goes_back_to_its_place() {
    let mut bench = Bench::plain();
    let owner = bench.ready(0);
    bench.put_all([1, 2]);
    let one = bench.run_for(owner)[0];
    retire(&mut bench, owner, one);
    bench.close(owner);
    assert!(bench.engine.restore_retired(bench.now, bench.queue, one.place, one.acquisition));
    bench.check();
    let next = bench.ready(0);
    assert_eq!(bench.ids_for(next), [1, 2]);
}
