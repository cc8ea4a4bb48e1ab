//! Messages that leave their queue for another one: never half, and nowhere twice.

use corelane_shard::DestinationRule;
use corelane_sim::{DiskSetup, Item, Operator, ReceiverOptions, Setup, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Header, Value};

use crate::{Stage, bodies, durable, name_at, other_at, rule};

/// A queue on shard 0, and where its dead letters go: there, or to another shard.
fn names(is_remote: bool) -> (String, String) {
    (name_at(0, 2), if is_remote { name_at(1, 2) } else { other_at(0, 2) })
}

fn rules(source: &str, dead: &str) -> Vec<DestinationRule> {
    vec![rule(source, |rule| rule.dead_letter = Some(dead.into()))]
}

/// What is in both queues, with who is where.
fn both(stage: &mut Stage, source: &str, dead: &str) -> (Vec<String>, Vec<String>) {
    (stage.take_bodies(source), stage.take_bodies(dead))
}

#[test]
fn rejected_messages_are_in_one_queue_whenever_the_broker_crashes() {
    for is_remote in [false, true] {
        let (source, dead) = names(is_remote);
        let mut crashes = 0;
        for seed in 0..3 {
            for steps in 0.. {
                let mut stage = Stage::with_rules(2, seed, rules(&source, &dead));
                stage.send(&source, &["1", "2", "3"]);
                let receiver = stage.receiver(&source);
                let received = stage.receive(receiver, 2);
                let error = DeliveryState::Rejected { error: None };
                let client = stage.client;
                for received in &received {
                    stage.world.clients[client].settle(receiver, received.delivery_id, &error);
                }
                let mut is_over = false;
                for _ in 0..steps {
                    is_over = stage.world.tick().is_none();
                }
                stage.crash();
                stage.world.advance(1_000_000);
                let (there, letters) = both(&mut stage, &source, &dead);
                let mut all = [there.clone(), letters.clone()].concat();
                all.sort();
                let at = format!("remote {is_remote}, seed {seed}, {steps} steps: {there:?} and {letters:?}");
                assert_eq!(all, ["1", "2", "3"], "{at}");
                assert!(there.is_sorted() && letters.is_sorted(), "{at}");
                assert_eq!(stage.crash().messages(), 0);
                crashes += 1;
                if is_over {
                    assert_eq!(
                        (there, letters),
                        (vec!["3".to_owned()], vec!["1".to_owned(), "2".to_owned()])
                    );
                    break;
                }
            }
        }
        assert!(crashes > 20);
    }
}

#[test]
fn what_dies_before_it_is_written_is_where_it_died_or_where_it_went() {
    for steps in 0.. {
        let (source, dead) = names(false);
        let disk = Some(DiskSetup { batch_bytes_max: 1, ..DiskSetup::default() });
        let mut stage = Stage::with(&Setup { rules: rules(&source, &dead), disk, ..Setup::durable(2, 1) });
        let names = [name_at(0, 2), other_at(0, 2)];
        let other = names_homed_at(0, 2).find(|name| !names.contains(name)).expect("there are many");
        let others = stage.sender(&other);
        let sender = stage.sender(&source);
        let receiver = stage.receiver(&source);
        stage.hold_disks(true);
        for n in 0..3 {
            stage.post(others, &format!("other {n}"));
        }
        stage.world.run();
        stage.post(sender, "dies");
        let received = stage.receive(receiver, 1);
        stage.settle(&received[0], &DeliveryState::Rejected { error: None });
        stage.hold_disks(false);
        let mut is_over = false;
        for _ in 0..steps {
            is_over = stage.world.tick().is_none();
        }
        let restart = stage.crash();
        assert_eq!(restart.summaries[0].lost, 0, "after {steps} steps");
        let found = stage.take_bodies(&other);
        assert!(found.iter().all(|body| body.starts_with("other")), "after {steps} steps: {found:?}");
        let (there, letters) = both(&mut stage, &source, &dead);
        assert!(there.len() + letters.len() <= 1, "after {steps} steps: {there:?} {letters:?}");
        if is_over {
            assert_eq!((found.len(), letters.len()), (3, 1));
            break;
        }
    }
}

#[test]
fn dead_letters_say_what_they_died_of() {
    for is_remote in [false, true] {
        let (source, dead) = names(is_remote);
        let mut stage = Stage::with_rules(2, 1, rules(&source, &dead));
        let sender = stage.sender(&source);
        stage.post_with(sender, "expires", &Header { ttl: Some(100), ..durable() });
        stage.post(sender, "rejected");
        stage.world.run();
        let receiver = stage.receiver(&source);
        let received = stage.receive(receiver, 2);
        stage.settle(&received[1], &DeliveryState::Rejected { error: None });
        stage.settle(&received[0], &DeliveryState::Released);
        stage.world.advance(1_000_000);
        stage.crash();
        let received = stage.take(&dead);
        let reasons: Vec<(String, String)> = received
            .iter()
            .map(|received| {
                let reason = received.annotations.iter().find(|(name, _)| name == "x-opt-death-reason");
                (received.body.clone(), reason.map_or("?".to_owned(), |(_, reason)| reason.clone()))
            })
            .collect();
        let expect = [("rejected", "rejected"), ("expires", "expired")];
        assert_eq!(reasons, expect.map(|(body, reason)| (body.to_owned(), reason.to_owned())));
    }
}

#[test]
fn what_expires_while_the_broker_is_down_becomes_a_dead_letter() {
    for is_remote in [false, true] {
        let (source, dead) = names(is_remote);
        let mut stage = Stage::with_rules(2, 1, rules(&source, &dead));
        let sender = stage.sender(&source);
        for n in 0..5 {
            stage.post_with(sender, &format!("{n}"), &Header { ttl: Some(1000), ..durable() });
        }
        stage.world.run();
        stage.world.crash();
        stage.world.pass(5_000_000);
        stage.world.restart();
        stage.client = stage.world.connect(0);
        stage.world.advance(1_000_000);
        assert_eq!(stage.depth(&source), 0);
        stage.crash();
        assert_eq!(stage.take_bodies(&dead), ["0", "1", "2", "3", "4"]);
    }
}

#[test]
fn what_an_operator_moves_is_in_one_queue_whenever_the_broker_crashes() {
    for is_remote in [false, true] {
        let (source, target) = names(is_remote);
        for steps in 0.. {
            let mut stage = Stage::new(2, 1);
            stage.send(&source, &["1", "2", "3", "4"]);
            stage.send(&target, &["0"]);
            let mut operator = Operator::new(&mut stage.world, 0);
            let body = [("to", Item::Value(Value::String(&target)))];
            operator.send(&mut stage.world, "MOVE", ("queue", &source), &[], &body);
            let mut is_over = false;
            for _ in 0..steps {
                is_over = stage.world.tick().is_none();
            }
            let answered = operator.answers(&stage.world);
            stage.crash();
            let (there, moved) = both(&mut stage, &source, &target);
            let mut all = [there.clone(), moved.clone()].concat();
            all.sort();
            assert_eq!(
                all,
                ["0", "1", "2", "3", "4"],
                "remote {is_remote}, {steps} steps: {there:?} {moved:?}"
            );
            if let Some(answer) = answered.first() {
                assert_eq!(answer.status, 200, "{answer:?}");
                assert!(there.is_empty(), "what was answered has happened: {there:?}");
            }
            if is_over {
                assert_eq!(answered.len(), 1);
                break;
            }
        }
    }
}

/// A consumer takes it where it is while it is on its way, so it stays there, and its copy is dropped: that says nothing after a crash.
#[test]
fn what_a_consumer_takes_while_it_moves_to_another_shard_stays_where_it_was() {
    let (source, target) = names(true);
    let mut stayed = 0;
    for steps in 0..300 {
        let mut stage = Stage::new(2, 1);
        stage.send(&source, &["1"]);
        stage.send(&target, &["0"]);
        let receiver = stage.receiver(&source);
        let mut operator = Operator::new(&mut stage.world, 0);
        let to = [("to", Value::String(&target))];
        let number = operator.send(&mut stage.world, "MOVE", ("queue", &source), &to, &[]);
        for _ in 0..steps {
            stage.world.tick();
        }
        let mut answers = operator.answers(&stage.world);
        let received = stage.receive(receiver, 1);
        answers.extend(operator.answers(&stage.world));
        let answer = answers.iter().find(|answer| answer.number == number).expect("it was answered");
        for received in &received {
            assert_eq!((answer.status, &*answer.at("count")), (200, "0"), "it is with its consumer");
            stage.settle(received, &DeliveryState::Released);
        }
        stayed += received.len();
        stage.crash();
        let (there, moved) = both(&mut stage, &source, &target);
        assert_eq!((there.len(), moved.len()), (received.len(), 2 - received.len()), "{there:?} {moved:?}");
    }
    assert!(stayed > 0);
}

/// What has left one queue for another and is taken there does not come back, however long the first one's disk takes to hear of it.
#[test]
fn nobody_has_what_moves_to_another_shard_before_it_is_gone_where_it_was() {
    for (is_move, seed) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let (source, target) = names(true);
        let rules = if is_move { Vec::new() } else { rules(&source, &target) };
        let mut stage = Stage::with_rules(2, seed, rules);
        stage.send(&source, &["1", "2"]);
        let mut operator = Operator::new(&mut stage.world, 0);
        let receiver = stage.receiver(&source);
        let taker = stage.receiver(&target);
        stage.world.clients[stage.client].credit(taker, 10);
        stage.world.run();
        stage.world.disks[0].held = true;
        if is_move {
            let body = [("to", Item::Value(Value::String(&target)))];
            operator.send(&mut stage.world, "MOVE", ("queue", &source), &[], &body);
        } else {
            for received in stage.receive(receiver, 2) {
                stage.settle(&received, &DeliveryState::Rejected { error: None });
            }
        }
        stage.world.run();
        assert!(stage.world.clients[stage.client].bodies(taker).is_empty(), "is a move: {is_move}");
        stage.crash();
        let (there, moved) = both(&mut stage, &source, &target);
        let mut all = [there, moved].concat();
        all.sort();
        assert_eq!(all, ["1", "2"], "is a move: {is_move}");
        assert_eq!(stage.crash().messages(), 0);
    }
}

/// Nor after a start, before it is written where it was that it is gone: else it would be back as soon as nothing of it is left where
/// it went.
#[test]
fn after_a_start_nobody_has_what_moved_to_another_shard_before_it_is_gone_where_it_was() {
    let mut hidden = 0;
    for seed in 0..12 {
        let (source, dead) = names(true);
        let mut stage = Stage::with_rules(2, seed, rules(&source, &dead));
        stage.send(&source, &["1", "2"]);
        let receiver = stage.receiver(&source);
        let received = stage.receive(receiver, 2);
        stage.world.disks[0].held = true;
        for received in &received {
            stage.settle(received, &DeliveryState::Rejected { error: None });
        }
        stage.world.crash();
        (stage.world.disks[0].held, stage.world.disks[0].full) = (false, true);
        stage.crash();
        let mut taken = stage.take_bodies(&dead);
        hidden += 2 - taken.len();
        // Segments are cleaned and freed where they went.
        let filler = "f".repeat(3000);
        for _ in 0..100 {
            stage.send(&dead, &[&filler]);
            taken.extend(stage.take_bodies(&dead).into_iter().filter(|body| *body != filler));
        }
        stage.crash();
        stage.world.disks[0].full = false;
        stage.world.advance(10_000_000);
        let (there, moved) = both(&mut stage, &source, &dead);
        taken.extend([there, moved].concat());
        taken.sort();
        assert_eq!(taken, ["1", "2"], "seed {seed}");
        assert_eq!(stage.crash().messages(), 0);
    }
    assert!(hidden > 0, "of some it is not written that they are gone");
}

/// That it is gone where it was will never be written: had now, it would be back after the next start.
#[test]
fn what_moved_to_another_shard_is_had_after_the_next_start_if_a_write_failed_where_it_was() {
    let (source, dead) = names(true);
    let mut stage = Stage::with_rules(2, 1, rules(&source, &dead));
    stage.send(&source, &["1", "2"]);
    let receiver = stage.receiver(&source);
    let received = stage.receive(receiver, 2);
    stage.world.disks[0].held = true;
    stage.settle(&received[0], &DeliveryState::Rejected { error: None });
    stage.world.run();
    assert!(stage.take_bodies(&dead).is_empty());
    stage.world.disks[0].fails_next = true;
    stage.world.disks[0].held = false;
    stage.world.run();
    stage.settle(&received[1], &DeliveryState::Rejected { error: None });
    assert!(stage.take_bodies(&dead).is_empty());
    stage.crash();
    let (there, mut moved) = both(&mut stage, &source, &dead);
    moved.sort();
    assert_eq!((there.len(), moved), (0, vec!["1".to_owned(), "2".to_owned()]));
    assert_eq!(stage.crash().messages(), 0);
}

/// An answer about later messages that had nothing to wait for is none about earlier ones.
#[test]
fn a_dead_letter_is_gone_where_it_died_when_it_is_kept_and_not_when_another_is() {
    let (source, dead) = names(true);
    let mut stage = Stage::with_rules(2, 1, rules(&source, &dead));
    let sender = stage.sender(&source);
    stage.post(sender, "durable");
    stage.post_with(sender, "transient", &Header::default());
    stage.world.run();
    let receiver = stage.receiver(&source);
    let received = stage.receive(receiver, 2);
    stage.world.disks[1].held = true;
    for received in &received {
        stage.settle(received, &DeliveryState::Rejected { error: None });
    }
    stage.crash();
    let (there, letters) = both(&mut stage, &source, &dead);
    assert_eq!([there, letters].concat(), ["durable"]);
}

/// What was in a write that is lost may be elsewhere; its place is not given to another message then.
#[test]
fn a_message_is_not_taken_for_one_that_was_lost_and_had_left_for_another_shard() {
    for (is_new, seed) in (0..24).map(|n| (n % 2 == 0, n)) {
        let (source, dead) = names(true);
        let mut stage = Stage::with_rules(2, seed, rules(&source, &dead));
        if !is_new {
            stage.send(&source, &["before"]);
            assert_eq!(stage.take_bodies(&source), ["before"]);
        }
        let receiver = stage.receiver(&source);
        let sender = stage.sender(&source);
        stage.world.disks[0].held = true;
        stage.post(sender, "lost");
        let received = stage.receive(receiver, 1);
        stage.settle(&received[0], &DeliveryState::Rejected { error: None });
        stage.crash();
        stage.send(&source, &["1", "2"]);
        for _ in 0..2 {
            stage.crash();
        }
        let (mut there, mut letters) = both(&mut stage, &source, &dead);
        there.retain(|body| body != "lost");
        letters.retain(|body| body != "lost");
        assert_eq!((there, letters.len()), (vec!["1".to_owned(), "2".to_owned()], 0), "seed {seed}");
    }
}

/// Nobody knows before all shards have started where a topic's messages go.
#[test]
fn what_dies_while_the_broker_is_down_gets_to_subscriptions_on_all_shards() {
    for seed in 0..10 {
        let source = name_at((seed % 2) as usize, 2);
        let mut stage = Stage::with_rules(2, seed, rules(&source, "topic://dead"));
        let options = ReceiverOptions { durable: true, ..ReceiverOptions::default() };
        let containers = ["a", "b", "c", "d"];
        for container in containers {
            let client = stage.world.connect_as(0, container);
            stage.world.clients[client].attach_receiver("sub", "topic://dead", &options);
            stage.world.run();
        }
        let sender = stage.sender(&source);
        stage.post_with(sender, "expires", &Header { ttl: Some(1000), ..durable() });
        stage.world.run();
        stage.world.crash();
        stage.world.pass(5_000_000);
        stage.world.restart();
        stage.world.advance(1_000_000);
        for container in containers {
            stage.client = stage.world.connect_as(0, container);
            let link = stage.world.clients[stage.client].attach_receiver("sub", "topic://dead", &options);
            stage.world.run();
            assert_eq!(bodies(&stage.receive(link, 10)), ["expires"], "{container}, seed {seed}");
        }
    }
}
