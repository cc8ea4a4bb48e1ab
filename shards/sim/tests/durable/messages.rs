//! Messages: which are there, in what order, and with what counts.

use corelane_sim::{Operator, ReceiverOptions, Setup};
use corelane_wire::amqp10::{DeliveryState, Header, Map, MapWriter, Modified, Properties, Value};

use crate::{Stage, bodies, durable, name_at, rule};

const SECOND: u64 = 1_000_000;

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| format!("message {n}")).collect()
}

fn refs(bodies: &[String]) -> Vec<&str> {
    bodies.iter().map(String::as_str).collect()
}

#[test]
fn s39_what_was_accepted_is_there_once_and_in_order() {
    for shards in [1, 2] {
        for seed in 0..20 {
            let mut stage = Stage::new(shards, seed);
            let queues: Vec<String> = (0..shards).map(|shard| name_at(shard, shards)).collect();
            let all = numbers(0..100);
            for queue in &queues {
                stage.send(queue, &refs(&all));
            }
            for _ in 0..3 {
                let restart = stage.crash();
                assert_eq!(restart.messages(), 100 * shards as u64);
                assert!(!restart.clean && !restart.is_damaged());
            }
            for queue in &queues {
                assert_eq!(stage.take_bodies(queue), all, "{shards} shards, seed {seed}");
            }
            assert_eq!(stage.crash().messages(), 0, "what was accepted by its consumer is gone");
        }
    }
}

#[test]
fn s39_a_producer_hears_of_it_when_it_is_synced() {
    for shards in [1, 2] {
        for shard in 0..shards {
            let mut stage = Stage::new(shards, 3);
            let queue = name_at(shard, shards);
            let sender = stage.sender(&queue);
            stage.hold_disks(true);
            let token = stage.post(sender, "kept");
            stage.world.run();
            assert_eq!(stage.outcome(token), "nothing");
            assert_eq!(stage.depth(&queue), 1, "it is there, and may be delivered");
            assert!(stage.world.disks[shard].is_writing());
            stage.hold_disks(false);
            stage.world.run();
            assert_eq!(stage.outcome(token), "accepted");
        }
    }
}

#[test]
fn all_that_gathers_during_a_write_goes_with_the_next_one() {
    let mut stage = Stage::new(1, 3);
    let sender = stage.sender("q");
    let before = stage.world.disks[0].writes;
    stage.hold_disks(true);
    let tokens: Vec<u64> = (0..50)
        .map(|n| {
            let token = stage.post(sender, &format!("{n}"));
            stage.world.run();
            token
        })
        .collect();
    stage.hold_disks(false);
    stage.world.run();
    assert!(tokens.iter().all(|token| stage.outcome(*token) == "accepted"));
    assert_eq!(stage.world.disks[0].writes, before + 2);
}

#[test]
fn what_is_settled_before_its_batch_is_never_written() {
    let mut stage = Stage::new(1, 3);
    let sender = stage.sender("q");
    stage.send("other", &["first"]);
    let receiver = stage.receiver("q");
    stage.world.clients[stage.client].credit(receiver, 10);
    stage.world.clients[stage.client].accepts = true;
    stage.hold_disks(true);
    let first = stage.post_with(sender, "occupies the disk", &durable());
    stage.world.run();
    let token = stage.post(sender, "gone before it was written");
    stage.world.run();
    assert_eq!((stage.depth("q"), stage.outcome(token)), (0, "nothing"));
    stage.hold_disks(false);
    stage.world.run();
    assert_eq!((stage.outcome(first), stage.outcome(token)), ("accepted", "accepted"));
    assert!(stage.world.disks[0].contains("occupies the disk"));
    assert!(!stage.world.disks[0].contains("gone before it was written"));
    assert_eq!(stage.crash().messages(), 1, "the other queue's");
}

#[test]
fn transient_messages_are_gone_and_leave_no_trace() {
    let mut stage = Stage::new(1, 1);
    let sender = stage.sender("q");
    for n in 0..20 {
        let header = Header { durable: n % 2 == 0, ..Header::default() };
        stage.post_with(sender, &format!("number {n}"), &header);
    }
    stage.world.run();
    assert_eq!(stage.depth("q"), 20);
    assert!(!stage.world.disks[0].contains("number 7"));
    stage.crash();
    let even: Vec<String> = (0..20).step_by(2).map(|n| format!("number {n}")).collect();
    assert_eq!(stage.take_bodies("q"), even);
}

#[test]
fn order_holds_between_what_was_there_and_what_comes() {
    let mut stage = Stage::new(1, 1);
    stage.send("q", &["1", "2"]);
    stage.crash();
    stage.send("q", &["3"]);
    stage.crash();
    stage.send("q", &["4"]);
    assert_eq!(stage.take_bodies("q"), ["1", "2", "3", "4"]);
}

#[test]
fn priorities_are_what_they_were() {
    let rules = vec![rule("q", |rule| rule.priorities = Some(true))];
    let mut stage = Stage::with_rules(1, 1, rules);
    let sender = stage.sender("q");
    for (n, priority) in [4, 9, 0, 4, 9, 0].into_iter().enumerate() {
        stage.post_with(sender, &format!("{priority}-{n}"), &Header { priority, ..durable() });
    }
    stage.world.run();
    stage.crash();
    assert_eq!(stage.take_bodies("q"), ["9-1", "9-4", "4-0", "4-3", "0-2", "0-5"]);
}

#[test]
fn what_was_delivered_is_redelivered_and_the_rest_may_have_been() {
    let mut stage = Stage::new(1, 1);
    stage.send("q", &["1", "2"]);
    let receiver = stage.receiver("q");
    let received = stage.receive(receiver, 1);
    assert_eq!(bodies(&received), ["1"]);
    assert!(received[0].first_acquirer);
    stage.crash();
    let received = stage.take("q");
    assert_eq!(bodies(&received), ["1", "2"]);
    assert!(!received[0].first_acquirer, "it was delivered before");
    assert_eq!((received[0].delivery_count, received[1].delivery_count), (0, 0));
}

#[test]
fn after_a_stop_in_order_only_what_was_delivered_is_redelivered() {
    for shards in [1, 2] {
        let queue = name_at(shards - 1, shards);
        let mut stage = Stage::new(shards, 1);
        stage.send(&queue, &["1", "2", "3"]);
        let receiver = stage.receiver(&queue);
        let received = stage.receive(receiver, 2);
        assert_eq!(bodies(&received), ["1", "2"]);
        let restart = stage.stop();
        assert!(restart.clean);
        let received = stage.take(&queue);
        assert_eq!(bodies(&received), ["1", "2", "3"]);
        let first: Vec<bool> = received.iter().map(|received| received.first_acquirer).collect();
        assert_eq!(first, [false, false, true]);
        // Its peer may have failed on the oldest.
        let counts: Vec<u32> = received.iter().map(|received| received.delivery_count).collect();
        assert_eq!(counts, [1, 0, 0]);
    }
}

#[test]
fn after_a_crash_a_later_stop_in_order_makes_nobody_forget() {
    let mut stage = Stage::new(1, 1);
    stage.send("q", &["delivered"]);
    let receiver = stage.receiver("q");
    assert_eq!(stage.receive(receiver, 1).len(), 1);
    stage.crash();
    stage.send("q", &["not delivered"]);
    for _ in 0..2 {
        assert!(stage.stop().clean);
    }
    let received = stage.take("q");
    let first: Vec<bool> = received.iter().map(|received| received.first_acquirer).collect();
    assert_eq!(first, [false, true]);
}

#[test]
fn nobody_gets_anything_before_the_start_is_written() {
    let mut stage = Stage::new(2, 1);
    stage.send(&name_at(1, 2), &["m"]);
    stage.world.stop();
    stage.world.crash();
    stage.world.begin_restart();
    stage.world.disks[1].held = true;
    stage.world.run();
    assert!(!stage.world.is_ready());
    stage.world.disks[1].held = false;
    stage.world.run();
    assert!(stage.world.is_ready());
}

#[test]
fn after_a_stop_in_order_what_was_cleaned_and_settled_meanwhile_counts() {
    for seed in 0..10 {
        let mut stage = Stage::new(2, seed);
        let queues = [name_at(0, 2), name_at(1, 2)];
        for queue in &queues {
            let body = "b".repeat(700);
            stage.send(queue, &vec![body.as_str(); 300]);
            let receiver = stage.receiver(queue);
            let received = stage.receive(receiver, 290);
            let client = stage.client;
            for received in &received[..280] {
                stage.world.clients[client].settle(receiver, received.delivery_id, &DeliveryState::Accepted);
            }
            stage.world.run();
        }
        let restart = stage.stop();
        assert!(restart.clean);
        for queue in &queues {
            let received = stage.take(queue);
            let first: Vec<bool> = received.iter().map(|received| received.first_acquirer).collect();
            assert_eq!(first, [[false; 10], [true; 10]].concat(), "seed {seed}");
        }
    }
}

#[test]
fn s52_what_was_given_back_has_its_counts_and_annotations() {
    for is_clean in [false, true] {
        let mut stage = Stage::new(1, 1);
        stage.send("q", &["released", "failed", "failed twice", "never"]);
        let receiver = stage.receiver("q");
        let received = stage.receive(receiver, 3);
        stage.settle(&received[0], &DeliveryState::Released);
        let mut bytes = Vec::new();
        let mut map = MapWriter::new(&mut bytes);
        map.symbol("x-opt-note", &Value::String("broken"));
        map.finish();
        let failed = Modified {
            delivery_failed: true,
            undeliverable_here: false,
            message_annotations: Map::decode(&bytes).ok(),
        };
        stage.settle(&received[1], &DeliveryState::Modified(failed));
        let failed = Modified { delivery_failed: true, ..Modified::default() };
        stage.settle(&received[2], &DeliveryState::Modified(failed));
        let second = stage.receiver("q");
        let again = stage.receive(second, 3);
        assert_eq!(bodies(&again), ["released", "failed", "failed twice"]);
        stage.settle(&again[2], &DeliveryState::Modified(failed));
        stage.settle(&again[0], &DeliveryState::Released);
        stage.settle(&again[1], &DeliveryState::Released);
        if is_clean {
            stage.stop()
        } else {
            stage.crash()
        };
        for _ in 0..2 {
            let all = stage.receiver("q");
            let received = stage.receive(all, 10);
            assert_eq!(bodies(&received), ["released", "failed", "failed twice", "never"]);
            let counts: Vec<u32> = received.iter().map(|received| received.delivery_count).collect();
            assert_eq!(counts, [0, 1, 2, 0]);
            let first: Vec<bool> = received[..3].iter().map(|received| received.first_acquirer).collect();
            assert_eq!(first, [false; 3]);
            assert_eq!(received[1].annotations, [("x-opt-note".to_owned(), "broken".to_owned())]);
            stage.crash();
        }
    }
}

#[test]
fn s52_what_was_written_while_somebody_had_it_has_the_counts_of_its_return() {
    let mut stage = Stage::new(1, 1);
    let receiver = stage.receiver("q");
    stage.world.clients[stage.client].credit(receiver, 1);
    stage.hold_disks(true);
    stage.send_without_answer("q", "m");
    stage.hold_disks(false);
    stage.world.run();
    let received = stage.world.clients[stage.client].received[0].clone();
    let failed = Modified { delivery_failed: true, ..Modified::default() };
    stage.settle(&received, &DeliveryState::Modified(failed));
    stage.crash();
    let received = stage.take("q");
    assert_eq!((received[0].delivery_count, received[0].first_acquirer), (1, false));
}

#[test]
fn what_expires_meanwhile_is_gone_and_what_was_delayed_comes_in_time() {
    let mut stage = Stage::new(1, 1);
    let sender = stage.sender("q");
    stage.post_with(sender, "short", &Header { ttl: Some(1000), ..durable() });
    stage.post_with(sender, "long", &Header { ttl: Some(60_000), ..durable() });
    let delay = [("x-opt-delivery-delay", Value::Ulong(30_000))];
    let client = &mut stage.world.clients[stage.client];
    client.send_whole((sender, None), "delayed", &Properties::default(), (&[], &delay), &durable());
    stage.world.run();
    assert_eq!(stage.depth("q"), 3);
    stage.world.crash();
    stage.world.pass(2 * SECOND);
    stage.world.restart();
    stage.client = stage.world.connect(0);
    stage.world.advance(SECOND);
    assert_eq!(stage.depth("q"), 2);
    let receiver = stage.receiver("q");
    let received = stage.receive(receiver, 10);
    assert_eq!(bodies(&received), ["long"]);
    stage.settle(&received[0], &DeliveryState::Accepted);
    stage.world.crash();
    stage.world.pass(28 * SECOND);
    stage.world.restart();
    stage.client = stage.world.connect(0);
    stage.world.advance(SECOND);
    assert_eq!(stage.take_bodies("q"), ["delayed"]);
    assert_eq!(stage.crash().messages(), 0);
}

#[test]
fn a_last_value_is_the_only_one() {
    let rules = vec![rule("q", |rule| rule.last_value_key = Some("key".into()))];
    for seed in 0..10 {
        let mut stage = Stage::with_rules(1, seed, rules.clone());
        let sender = stage.sender("q");
        for n in 0..30 {
            let client = &mut stage.world.clients[stage.client];
            let key = format!("k{}", n % 3);
            let application = [("key", Value::String(&key))];
            client.send_with(sender, &format!("{n}"), &Properties::default(), &application, &durable());
            if n % 7 == 0 {
                stage.world.run();
            }
        }
        stage.world.run();
        assert_eq!(stage.crash().messages(), 3);
        let sender = stage.sender("q");
        let client = &mut stage.world.clients[stage.client];
        let application = [("key", Value::String("k1"))];
        client.send_with(sender, "new", &Properties::default(), &application, &durable());
        stage.world.run();
        stage.crash();
        assert_eq!(stage.take_bodies("q"), ["27", "29", "new"]);
    }
}

#[test]
fn what_has_been_replaced_makes_no_batch_longer_than_to_where_that_is_said() {
    let rules = vec![rule("q", |rule| rule.last_value_key = Some("key".into()))];
    let mut stage = Stage::with_rules(1, 1, rules);
    let (values, others) = (stage.sender("q"), stage.sender("others"));
    stage.world.run();
    let before = stage.world.disks[0].writes;
    stage.hold_disks(true);
    for body in ["old", "new"] {
        let client = &mut stage.world.clients[stage.client];
        let application = [("key", Value::String("k"))];
        client.send_with(values, body, &Properties::default(), &application, &durable());
        stage.world.run();
    }
    let body = "o".repeat(3000);
    for _ in 0..30 {
        stage.post(others, &body);
    }
    stage.world.run();
    stage.hold_disks(false);
    stage.world.run();
    // Batches have 8 KiB.
    assert!(stage.world.disks[0].writes - before > 10, "{}", stage.world.disks[0].writes);
    stage.crash();
    assert_eq!((stage.take_bodies("q"), stage.take_bodies("others").len()), (vec!["new".to_owned()], 30));
}

#[test]
fn what_was_replaced_before_it_was_written_is_promised_with_what_replaced_it() {
    let rules = vec![rule("q", |rule| rule.last_value_key = Some("key".into()))];
    for ticks in 0..60 {
        let mut stage = Stage::with_rules(1, 1, rules.clone());
        let (values, others) = (stage.sender("q"), stage.sender("others"));
        stage.world.run();
        stage.hold_disks(true);
        let body = "o".repeat(3000);
        let tokens = ["old", "new"].map(|body_of_it| {
            let client = &mut stage.world.clients[stage.client];
            let application = [("key", Value::String("k"))];
            let token =
                client.send_with(values, body_of_it, &Properties::default(), &application, &durable());
            stage.world.run();
            for _ in 0..9 {
                stage.post(others, &body);
                stage.world.run();
            }
            token
        });
        stage.hold_disks(false);
        for _ in 0..ticks {
            stage.world.tick();
        }
        let promised = tokens.map(|token| stage.outcome(token) == "accepted");
        stage.crash();
        let found = stage.take_bodies("q");
        assert!(promised == [false, false] || found == ["new"], "{ticks} ticks: {promised:?} {found:?}");
    }
}

#[test]
fn messages_larger_than_a_segment_are_kept_too() {
    let mut stage = Stage::new(1, 1);
    let large = "x".repeat(300_000);
    stage.send("q", &["before", &large, "after"]);
    stage.crash();
    assert_eq!(stage.take_bodies("q"), ["before", &large, "after"]);
}

#[test]
fn browsing_changes_nothing() {
    let mut stage = Stage::new(1, 1);
    stage.send("q", &["1", "2"]);
    let before = stage.world.disks[0].writes;
    let browser = stage.receiver_with("q", &ReceiverOptions { browse: true, ..ReceiverOptions::default() });
    let seen = stage.receive(browser, 10);
    assert_eq!(bodies(&seen), ["1", "2"]);
    stage.settle(&seen[0], &DeliveryState::Accepted);
    assert_eq!(stage.world.disks[0].writes, before);
    stage.crash();
    assert_eq!(stage.take_bodies("q"), ["1", "2"]);
}

#[test]
fn without_a_disk_nothing_waits() {
    let mut stage = Stage::with(&Setup::new(1));
    stage.send("q", &["1"]);
    assert!(stage.world.disks.is_empty());
    assert_eq!(stage.take_bodies("q"), ["1"]);
}

#[test]
fn s21_a_transient_message_does_not_overtake_a_durable_one_that_waits_for_the_disk() {
    for in_transaction in [false, true] {
        let queue = name_at(0, 1);
        let mut stage =
            Stage::with_rules(1, 1, vec![rule(&queue, |rule| rule.deliver_after_sync = Some(true))]);
        let client = stage.client;
        let receiver = stage.receiver(&queue);
        let sender = stage.sender(&queue);
        let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
        let token = stage.world.clients[client].declare(coordinator);
        stage.world.run();
        let number = stage.outcome(token).strip_prefix("declared ").expect("there is room").parse();
        let number = Some(number.expect("a number")).filter(|_| in_transaction);
        let mut operator = Operator::new(&mut stage.world, 0);
        stage.hold_disks(true);
        for (body, header) in [("durable", durable()), ("transient", Header::default())] {
            let to = (sender, number);
            let nothing = (&[][..], &[][..]);
            stage.world.clients[client].send_whole(to, body, &Properties::default(), nothing, &header);
        }
        stage.world.run();
        if let Some(number) = number {
            stage.world.clients[client].discharge(coordinator, number, false);
        }
        assert_eq!(stage.receive(receiver, 10), []);
        let said = operator.ask(&mut stage.world, "EXPLAIN", ("queue", &queue), &[], &[]).at("summary");
        assert!(said.contains("2 are part of open transactions, or wait for the disk"), "{said}");
        stage.hold_disks(false);
        stage.world.run();
        assert_eq!(stage.world.clients[client].bodies(receiver), ["durable", "transient"]);
        // Nothing is on its way to the disk.
        stage.post_with(sender, "another", &Header::default());
        stage.hold_disks(true);
        stage.world.run();
        assert_eq!(
            stage.world.clients[client].bodies(receiver).len(),
            3,
            "in a transaction: {in_transaction}"
        );
    }
}

#[test]
fn s21_nor_does_it_overtake_one_that_has_just_been_synced() {
    for seed in 0..20 {
        let queue = name_at(0, 1);
        let rules = vec![rule(&queue, |rule| rule.deliver_after_sync = Some(true))];
        let mut stage = Stage::with_rules(1, seed, rules);
        let (receiver, sender) = (stage.receiver(&queue), stage.sender(&queue));
        let client = stage.client;
        stage.world.clients[client].credit(receiver, 1000);
        stage.world.run();
        let mut all = Vec::new();
        for n in 0..40 {
            let header = if n % 2 == 0 { durable() } else { Header::default() };
            all.push(n.to_string());
            stage.post_with(sender, &all[n], &header);
            for _ in 0..(n * 7 + seed as usize) % 6 {
                stage.world.tick();
            }
        }
        stage.world.run();
        assert_eq!(stage.world.clients[client].bodies(receiver), all, "seed {seed}");
    }
}
