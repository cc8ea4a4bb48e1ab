//! Queues, their properties, and subscriptions.

use corelane_sim::{Item, Operator, ReceiverOptions, SenderOptions};
use corelane_wire::amqp10::Value;

use crate::{Stage, bodies, name_at, other_at};

fn subscriber() -> ReceiverOptions {
    ReceiverOptions { durable: true, ..ReceiverOptions::default() }
}

#[test]
fn queues_made_by_management_have_their_properties() {
    for shards in [1, 2] {
        for shard in 0..shards {
            let mut stage = Stage::new(shards, 1);
            let (queue, other) = (name_at(shard, shards), other_at(shard, shards));
            let mut operator = Operator::new(&mut stage.world, 0);
            for name in [&queue, &other] {
                let body = [
                    ("messages-max", Item::Value(Value::Ulong(3))),
                    ("overflow", Item::Value(Value::String("reject"))),
                ];
                let answer = operator.ask(&mut stage.world, "CREATE", ("queue", name), &[], &body);
                assert_eq!(answer.status, 201, "{answer:?}");
            }
            let body = [("messages-max", Item::Value(Value::Ulong(2)))];
            let answer = operator.ask(&mut stage.world, "UPDATE", ("queue", &queue), &[], &body);
            assert_eq!(answer.status, 200, "{answer:?}");
            let answer = operator.ask(&mut stage.world, "DELETE", ("queue", &other), &[], &[]);
            assert_eq!(answer.status, 204, "{answer:?}");
            for _ in 0..2 {
                stage.crash();
                let mut operator = Operator::new(&mut stage.world, 0);
                let answer = operator.ask(&mut stage.world, "READ", ("queue", &other), &[], &[]);
                assert_eq!(answer.status, 404, "{answer:?}");
                let answer = operator.ask(&mut stage.world, "READ", ("queue", &queue), &[], &[]);
                assert_eq!(answer.status, 200, "{answer:?}");
                let sender = stage.sender(&queue);
                let tokens = [(); 3].map(|()| stage.post(sender, "m"));
                stage.world.run();
                let outcomes = tokens.map(|token| stage.outcome(token).to_owned());
                assert_eq!(outcomes, ["accepted", "accepted", "rejected amqp:resource-limit-exceeded"]);
                assert_eq!(stage.take(&queue).len(), 2);
            }
        }
    }
}

#[test]
fn an_operator_hears_of_a_queue_when_it_is_synced() {
    for shard in [0, 1] {
        let mut stage = Stage::new(2, 1);
        let queue = name_at(shard, 2);
        let mut operator = Operator::new(&mut stage.world, 0);
        stage.hold_disks(true);
        for (operation, status) in [("CREATE", 201), ("DELETE", 204)] {
            stage.hold_disks(true);
            operator.send(&mut stage.world, operation, ("queue", &queue), &[], &[]);
            stage.world.run();
            assert!(operator.answers(&stage.world).is_empty(), "{operation} on shard {shard}");
            stage.hold_disks(false);
            stage.world.run();
            assert_eq!(operator.answers(&stage.world)[0].status, status);
        }
    }
}

#[test]
fn an_operator_hears_that_a_queue_is_not_synced_when_a_write_has_failed() {
    for shard in [0, 1] {
        let mut stage = Stage::new(2, 1);
        let mut operator = Operator::new(&mut stage.world, 0);
        let queue = name_at(shard, 2);
        stage.world.disks[shard].fails_next = true;
        for operation in ["CREATE", "DELETE", "CREATE"] {
            operator.send(&mut stage.world, operation, ("queue", &queue), &[], &[]);
            stage.world.run();
            assert_eq!(operator.answers(&stage.world)[0].status, 503, "{operation} on shard {shard}");
        }
    }
}

#[test]
fn a_deleted_queue_and_what_was_in_it_stay_away() {
    for seed in 0..10 {
        let mut stage = Stage::new(1, seed);
        stage.send("q", &["old 1", "old 2"]);
        let mut operator = Operator::new(&mut stage.world, 0);
        let answer = operator.ask(&mut stage.world, "DELETE", ("queue", "q"), &[], &[]);
        assert_eq!(answer.status, 204, "{answer:?}");
        stage.send("q", &["new"]);
        stage.crash();
        stage.crash();
        assert_eq!(stage.take_bodies("q"), ["new"]);
    }
}

#[test]
fn s50_what_was_purged_stays_away_and_what_was_acquired_does_not() {
    let mut stage = Stage::new(1, 1);
    stage.send("q", &["acquired", "returned", "ready"]);
    let receiver = stage.receiver("q");
    let received = stage.receive(receiver, 2);
    stage.settle(&received[1], &corelane_wire::amqp10::DeliveryState::Released);
    let mut operator = Operator::new(&mut stage.world, 0);
    let answer = operator.ask(&mut stage.world, "PURGE", ("queue", "q"), &[], &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    stage.crash();
    assert_eq!(stage.take_bodies("q"), ["acquired"]);
}

#[test]
fn dynamic_queues_are_gone() {
    let mut stage = Stage::new(1, 1);
    let options = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
    let receiver = stage.receiver_with("", &options);
    let client = &stage.world.clients[stage.client];
    let (_, address) =
        client.addresses.iter().find(|(link, _)| *link == receiver).expect("it has one").clone();
    stage.send(&address, &["kept nowhere"]);
    assert!(!stage.world.disks[0].contains("kept nowhere"));
    let queues = stage.world.shards[0].queue_count();
    assert_eq!(stage.crash().messages(), 0);
    assert!(stage.world.shards[0].queue_count() < queues);
}

#[test]
fn a_durable_subscription_gets_what_is_published_before_and_after() {
    for shards in [1, 2, 3] {
        for seed in 0..6 {
            let mut stage = Stage::new(shards, seed);
            let subscribers: Vec<(usize, &str)> = (0..shards)
                .flat_map(|shard| [(shard, "topic://news.eu"), (shard, "topic://news.*")])
                .collect();
            for (n, (shard, address)) in subscribers.iter().enumerate() {
                let client = stage.world.connect_as(*shard, &format!("container-{n}"));
                stage.world.clients[client].attach_receiver("sub", address, &subscriber());
                stage.world.run();
            }
            stage.send("topic://news.eu", &["1", "2"]);
            stage.crash();
            stage.send("topic://news.eu", &["3"]);
            stage.send("topic://news.us", &["4"]);
            stage.crash();
            for (n, (shard, address)) in subscribers.iter().enumerate() {
                let client = stage.world.connect_as(*shard, &format!("container-{n}"));
                let link = stage.world.clients[client].attach_receiver("sub", address, &subscriber());
                stage.world.clients[client].accepts = true;
                stage.world.clients[client].credit(link, 100);
                stage.world.run();
                let all: &[&str] =
                    if address.ends_with('*') { &["1", "2", "3", "4"] } else { &["1", "2", "3"] };
                let mut found = stage.world.clients[client].bodies(link);
                // Of different topics on different shards.
                found.sort_unstable();
                assert_eq!(found, all, "{address} on {shard} of {shards}, seed {seed}");
            }
            assert_eq!(stage.crash().messages(), 0);
        }
    }
}

#[test]
fn a_publisher_hears_when_all_subscriptions_have_synced() {
    let mut stage = Stage::new(2, 1);
    for shard in [0, 1] {
        let client = stage.world.connect_as(shard, &format!("container-{shard}"));
        stage.world.clients[client].attach_receiver("sub", "topic://t", &subscriber());
        stage.world.run();
    }
    let sender = stage.sender("topic://t");
    for late in [0, 1] {
        stage.world.disks[late].held = true;
        let token = stage.post(sender, "m");
        stage.world.run();
        let homes: Vec<usize> = stage.world.shards.iter().map(corelane_shard::Shard::queue_count).collect();
        if homes[late] > 0 {
            assert_eq!(stage.outcome(token), "nothing", "{homes:?}");
        }
        stage.world.disks[late].held = false;
        stage.world.run();
        assert_eq!(stage.outcome(token), "accepted");
    }
}

#[test]
fn a_subscription_that_was_ended_is_gone() {
    let mut stage = Stage::new(2, 1);
    let client = stage.world.connect_as(1, "container");
    let link = stage.world.clients[client].attach_receiver("sub", "topic://t", &subscriber());
    stage.world.run();
    stage.send("topic://t", &["1"]);
    stage.world.clients[client].detach(link);
    stage.world.run();
    assert_eq!(stage.crash().messages(), 0);
    stage.send("topic://t", &["2"]);
    let client = stage.world.connect_as(1, "container");
    let link = stage.world.clients[client].attach_receiver("sub", "topic://t", &subscriber());
    stage.world.clients[client].credit(link, 10);
    stage.world.run();
    assert!(stage.world.clients[client].bodies(link).is_empty());
}

#[test]
fn a_volatile_subscription_is_gone_and_its_messages_are_not_written() {
    let mut stage = Stage::new(1, 1);
    stage.receiver_with("topic://t", &ReceiverOptions::default());
    stage.send("topic://t", &["not kept"]);
    assert!(!stage.world.disks[0].contains("not kept"));
    assert_eq!(stage.crash().messages(), 0);
}

#[test]
fn selectors_of_subscriptions_are_what_they_were() {
    let mut stage = Stage::new(1, 1);
    let options = ReceiverOptions { selector: Some("n > 1".to_owned()), ..subscriber() };
    stage.receiver_with("topic://t", &options);
    let name = "r1";
    for _ in 0..2 {
        stage.crash();
        let client = stage.client;
        let options_of = SenderOptions::default();
        let sender = stage.world.clients[client].attach_sender("p", "topic://t", &options_of);
        stage.world.run();
        for n in 0..4 {
            let application = [("n", Value::Int(n))];
            stage.world.clients[client].send_with(
                sender,
                &n.to_string(),
                &Default::default(),
                &application,
                &crate::durable(),
            );
        }
        stage.world.run();
    }
    let link = stage.world.clients[stage.client].attach_receiver(name, "topic://t", &options);
    stage.world.run();
    assert_eq!(bodies(&stage.receive(link, 10)), ["2", "3", "2", "3"]);
}
