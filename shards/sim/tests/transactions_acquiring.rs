//! Deliveries that are sent inside a transaction, and who may say what about them; transactions while shards stall and connections move.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::DestinationRule;
use corelane_shard::limits::TRANSACTION_ACQUIRED_MAX;
use corelane_sim::{Operator, ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Outcome};

fn world(shards: usize) -> World {
    World::new(&Setup::new(shards))
}

/// A client of shard 0 with a coordinator and a receiver of a queue of the last shard, which holds these messages.
struct Stage {
    world: World,
    client: usize,
    coordinator: LinkId,
    receiver: LinkId,
    queue: String,
}

impl Stage {
    fn new(shards: usize, options: &ReceiverOptions, bodies: &[&str]) -> Stage {
        let mut world = world(shards);
        let queue = names_homed_at(shards - 1, shards).next().expect("there is one");
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("s", &queue, &SenderOptions::default());
        for body in bodies {
            world.clients[producer].send(sender, body);
        }
        let client = world.connect(0);
        let coordinator = world.clients[client].attach_coordinator("txn", &[]);
        let receiver = world.clients[client].attach_receiver("r", &queue, options);
        world.run();
        Stage { world, client, coordinator, receiver, queue }
    }

    fn declare(&mut self) -> u32 {
        let token = self.world.clients[self.client].declare(self.coordinator);
        self.world.run();
        let outcome = self.outcome(token);
        outcome.strip_prefix("declared ").expect("there is room").parse().expect("a number")
    }

    fn outcome(&self, token: u64) -> String {
        self.world.clients[self.client].outcome(token).unwrap_or("nothing").to_owned()
    }

    fn discharge(&mut self, number: u32, fail: bool) -> String {
        let token = self.world.clients[self.client].discharge(self.coordinator, number, fail);
        self.world.run();
        self.outcome(token)
    }

    fn credit_in(&mut self, number: u32, credit: u32) {
        self.world.clients[self.client].credit_in(self.receiver, number, credit);
        self.world.run();
    }

    /// Body, transaction, and whether it is unsettled, of all that arrived.
    fn arrived(&self) -> Vec<(String, Option<u32>, bool)> {
        let client = &self.world.clients[self.client];
        let told = |r: &corelane_sim::Received| {
            (r.body.clone(), r.transaction, client.is_unsettled(r.link, r.delivery_id))
        };
        client.received.iter().map(told).collect()
    }

    fn settle_in(&mut self, index: usize, number: u32) {
        let received = self.world.clients[self.client].received[index].clone();
        let client = &mut self.world.clients[self.client];
        client.settle_in(received.link, received.delivery_id, number, Outcome::Accepted);
        self.world.run();
    }

    /// What another client finds.
    fn left(&mut self) -> Vec<String> {
        let other = self.world.connect(0);
        let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
        let link = self.world.clients[other].attach_receiver("left", &self.queue, &options);
        self.world.run();
        self.world.clients[other].credit(link, 100);
        self.world.run();
        self.world.clients[other].bodies(link).iter().map(|body| (*body).to_owned()).collect()
    }

    fn waiting(&self) -> usize {
        self.world.shards.iter().map(|shard| shard.participation_count()).sum()
    }
}

fn arrived(body: &str, transaction: Option<u32>, unsettled: bool) -> (String, Option<u32>, bool) {
    (body.to_owned(), transaction, unsettled)
}

fn second() -> ReceiverOptions {
    ReceiverOptions { settles_second: true, ..ReceiverOptions::default() }
}

#[test]
fn what_was_acquired_in_a_transaction_goes_back_with_it() {
    for shards in [1, 2, 4] {
        let mut stage = Stage::new(shards, &ReceiverOptions::default(), &["a", "b", "c", "d"]);
        let number = stage.declare();
        stage.credit_in(number, 3);
        let inside = Some(number);
        assert_eq!(
            stage.arrived(),
            [arrived("a", inside, true), arrived("b", inside, true), arrived("c", inside, true)]
        );
        stage.settle_in(0, number);
        assert_eq!(stage.discharge(number, true), "accepted");
        assert_eq!(stage.left(), ["a", "b", "c", "d"], "{shards} shards");
        let left: Vec<bool> = stage.arrived().iter().map(|(_, _, unsettled)| *unsettled).collect();
        assert_eq!(left, [false, false, false], "the broker has settled them");
        // The link's txn-id is cleared.
        stage.world.clients[stage.client].credit(stage.receiver, 1);
        stage.world.run();
        assert_eq!(stage.arrived()[3], arrived("a", None, true));
        assert_eq!(stage.waiting(), 0);
    }
}

#[test]
fn what_was_acquired_in_a_transaction_stays_when_it_commits() {
    for shards in [1, 2, 4] {
        let mut stage = Stage::new(shards, &ReceiverOptions::default(), &["a", "b", "c"]);
        let number = stage.declare();
        stage.credit_in(number, 2);
        stage.settle_in(0, number);
        assert_eq!(stage.discharge(number, false), "accepted");
        // The other one is its consumer's, outside of any transaction.
        assert_eq!(stage.arrived()[1], arrived("b", Some(number), true));
        let received = stage.world.clients[stage.client].received[1].clone();
        let client = &mut stage.world.clients[stage.client];
        client.settle(received.link, received.delivery_id, &DeliveryState::Accepted);
        stage.world.run();
        assert_eq!(stage.left(), ["c"]);
        assert_eq!(stage.world.clients[stage.client].detached, []);
    }
}

#[test]
fn what_was_sent_settled_in_a_transaction_is_gone_when_it_commits() {
    for (shards, fail) in [(1, false), (1, true), (2, false), (2, true)] {
        let options = ReceiverOptions { presettled: true, ..ReceiverOptions::default() };
        let mut stage = Stage::new(shards, &options, &["a", "b", "c"]);
        let number = stage.declare();
        stage.credit_in(number, 2);
        assert_eq!(stage.arrived().len(), 2);
        assert_eq!(stage.left(), ["c"]);
        assert_eq!(stage.discharge(number, fail), "accepted");
        assert_eq!(stage.left(), if fail { vec!["a", "b", "c"] } else { vec!["c"] });
        assert_eq!(stage.waiting(), 0);
    }
}

/// The acquisition and the outcome are in two transactions, or only one of them is in one.
#[test]
fn an_outcome_in_another_transaction_ends_the_coordinators_link() {
    for (shards, options) in [(1, ReceiverOptions::default()), (2, second())] {
        for plain in [false, true] {
            let mut stage = Stage::new(shards, &options, &["a", "b"]);
            let number = stage.declare();
            let other = stage.declare();
            stage.credit_in(number, 1);
            if plain {
                let received = stage.world.clients[stage.client].received[0].clone();
                let client = &mut stage.world.clients[stage.client];
                client.settle(received.link, received.delivery_id, &DeliveryState::Accepted);
                stage.world.run();
            } else {
                stage.settle_in(0, other);
            }
            let rollback = Some("amqp:transaction:rollback".to_owned());
            assert_eq!(stage.world.clients[stage.client].detached, [(stage.coordinator, rollback)]);
            assert_eq!(stage.left(), ["a", "b"], "{shards} shards, plainly {plain}");
            assert_eq!(stage.waiting(), 0);
        }
    }
}

/// A delivery that is noted in one transaction is settled in another: neither commits, also if they are of two coordinators' links.
#[test]
fn a_transaction_does_not_commit_without_what_was_taken_out_of_it() {
    for shards in [1, 2] {
        let mut stage = Stage::new(shards, &second(), &["a", "b"]);
        stage.world.clients[stage.client].credit(stage.receiver, 1);
        let noted = stage.declare();
        stage.settle_in(0, noted);
        let first = stage.coordinator;
        stage.coordinator = stage.world.clients[stage.client].attach_coordinator("txn 2", &[]);
        stage.world.run();
        let other = stage.declare();
        let client = &mut stage.world.clients[stage.client];
        client.settle_at_once_in(client.received[0].delivery_id, other, Outcome::Accepted);
        stage.world.run();
        let rollback = Some("amqp:transaction:rollback".to_owned());
        assert_eq!(stage.world.clients[stage.client].detached, [(stage.coordinator, rollback)]);
        stage.coordinator = first;
        assert_eq!(stage.discharge(noted, false), "rejected amqp:transaction:rollback", "{shards} shards");
        assert_eq!(stage.left(), ["a", "b"]);
        assert_eq!(stage.waiting(), 0);
    }
}

/// Settled at once or with the transaction: what its consumer had for too long is its queue's again.
#[test]
fn s71_an_outcome_that_comes_after_the_ack_deadline_does_not_commit() {
    for shards in [1, 2] {
        for options in [ReceiverOptions::default(), second()] {
            let mut stage = Stage::new(shards, &options, &["a"]);
            let (pattern, ack_deadline_us) = (stage.queue.clone(), Some(1_000_000));
            let rule = DestinationRule { pattern, ack_deadline_us, ..DestinationRule::default() };
            stage.world.change_destinations(vec![rule]);
            stage.world.clients[stage.client].credit(stage.receiver, 1);
            let number = stage.declare();
            stage.world.advance(2_000_000);
            stage.settle_in(0, number);
            assert_eq!(
                stage.discharge(number, false),
                "rejected amqp:transaction:rollback",
                "{shards} shards"
            );
            assert_eq!(stage.left(), ["a"]);
            assert_eq!(stage.waiting(), 0);
        }
    }
}

/// The broker ends a link for its queue, and the peer gives the link's delivery an outcome before it knows.
#[test]
fn a_transaction_does_not_commit_without_an_outcome_that_crossed_the_detach() {
    for shards in [1, 2] {
        for options in [ReceiverOptions::default(), second()] {
            let mut stage = Stage::new(shards, &options, &["a"]);
            stage.world.clients[stage.client].credit(stage.receiver, 1);
            let number = stage.declare();
            stage.world.client_reads(stage.client, false);
            let mut operator = Operator::new(&mut stage.world, 0);
            let queue = stage.queue.clone();
            let deleted = operator.ask(&mut stage.world, "DELETE", ("queue", &queue), &[], &[]);
            assert_eq!(deleted.status, 204);
            stage.settle_in(0, number);
            stage.world.client_reads(stage.client, true);
            stage.world.run();
            let gone = Some("amqp:resource-deleted".to_owned());
            assert_eq!(stage.world.clients[stage.client].detached, [(stage.receiver, gone)]);
            assert_eq!(
                stage.discharge(number, false),
                "rejected amqp:transaction:rollback",
                "{shards} shards"
            );
            // Another one is not concerned.
            let other = stage.declare();
            assert_eq!(stage.discharge(other, false), "accepted");
            assert_eq!(stage.waiting(), 0);
        }
    }
}

#[test]
fn a_link_cannot_acquire_in_a_transaction_that_is_not_open() {
    let mut stage = Stage::new(1, &ReceiverOptions::default(), &["a"]);
    stage.credit_in(9, 1);
    let unknown = Some("amqp:transaction:unknown-id".to_owned());
    assert_eq!(stage.world.clients[stage.client].detached, [(stage.receiver, unknown)]);
    assert_eq!(stage.arrived(), []);
}

#[test]
fn a_browser_acquires_nothing_in_a_transaction() {
    let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
    let mut stage = Stage::new(2, &options, &["a"]);
    let number = stage.declare();
    stage.credit_in(number, 1);
    let error = Some("amqp:not-implemented".to_owned());
    assert_eq!(stage.world.clients[stage.client].detached, [(stage.receiver, error)]);
}

/// A message that is sent in part when its transaction rolls back is not sent to its end.
#[test]
fn a_part_of_a_message_is_taken_back_with_its_transaction() {
    for (shards, presettled) in [(1, false), (2, false), (1, true), (2, true)] {
        let large = "l".repeat(3_000_000);
        let options = ReceiverOptions { presettled, ..ReceiverOptions::default() };
        let mut stage = Stage::new(shards, &options, &[&large, "small"]);
        let number = stage.declare();
        stage.world.client_reads(stage.client, false);
        stage.credit_in(number, 1);
        let discharge = stage.world.clients[stage.client].discharge(stage.coordinator, number, true);
        stage.world.run();
        stage.world.client_reads(stage.client, true);
        stage.world.run();
        assert_eq!(stage.outcome(discharge), "accepted");
        // What was begun inside it was aborted; the credit that the client has back then is for one outside of any.
        let sizes: Vec<_> = stage.arrived().iter().map(|(body, inside, _)| (body.len(), *inside)).collect();
        assert_eq!(sizes, [(3_000_000, None)], "{shards} shards, settled {presettled}");
        let left: Vec<usize> = stage.left().iter().map(String::len).collect();
        assert_eq!(left, [5]);
        assert_eq!(stage.waiting(), 0);
    }
}

/// What is sent settled, and in part when its transaction is discharged, is not sent to its end while that waits for a shard: it could
/// not be taken back.
#[test]
fn a_part_that_is_sent_settled_does_not_outlive_the_discharge() {
    for fail in [false, true] {
        let mut world = world(2);
        let names: Vec<String> =
            (0..2).map(|shard| names_homed_at(shard, 2).next().expect("there is one")).collect();
        let client = world.connect(0);
        let coordinator = world.clients[client].attach_coordinator("txn", &[]);
        let attach =
            |name: &String| world.clients[client].attach_sender(name, name, &SenderOptions::default());
        let senders: Vec<LinkId> = names.iter().map(attach).collect();
        let options = ReceiverOptions { presettled: true, ..ReceiverOptions::default() };
        let receiver = world.clients[client].attach_receiver("r", &names[0], &options);
        world.clients[client].send(senders[0], &"l".repeat(3_000_000));
        world.clients[client].declare(coordinator);
        world.run();
        world.stall(1, true);
        world.clients[client].send_in(senders[1], 1, "waits");
        world.client_reads(client, false);
        world.clients[client].credit_in(receiver, 1, 1);
        let token = world.clients[client].discharge(coordinator, 1, fail);
        world.run();
        world.client_reads(client, true);
        world.run();
        // The credit that the client has back is for one outside of the transaction.
        let inside: Vec<_> = world.clients[client].received.iter().map(|r| r.transaction).collect();
        assert_eq!(inside, [None], "fail: {fail}");
        world.stall(1, false);
        world.run();
        assert_eq!(world.clients[client].outcome(token), Some("accepted"));
    }
}

/// A transaction of which a message has arrived in part must not be discharged.
#[test]
fn a_message_in_part_forbids_the_discharge() {
    let mut stage = Stage::new(1, &ReceiverOptions::default(), &[]);
    let number = stage.declare();
    let sender =
        stage.world.clients[stage.client].attach_sender("p", &stage.queue, &SenderOptions::default());
    stage.world.run();
    stage.world.clients[stage.client].send_unfinished_in(sender, number, 1 << 20);
    stage.world.run();
    stage.discharge(number, false);
    let rollback = Some("amqp:transaction:rollback".to_owned());
    assert_eq!(stage.world.clients[stage.client].detached, [(stage.coordinator, rollback)]);
    assert_eq!(stage.world.shards[0].counters().transactions_rolled_back, 1);
}

/// An outcome that is settled without a word takes the one that was said before; one that is said plainly replaces it.
#[test]
fn the_last_word_counts() {
    for shards in [1, 2] {
        let mut stage = Stage::new(shards, &second(), &["a", "b", "c"]);
        stage.world.clients[stage.client].credit(stage.receiver, 3);
        stage.world.run();
        let number = stage.declare();
        for index in 0..3 {
            stage.settle_in(index, number);
        }
        // Of another transaction it cannot be while this one is open; outside of any it can.
        let b = stage.world.clients[stage.client].received[1].clone();
        stage.world.clients[stage.client].settle(b.link, b.delivery_id, &DeliveryState::Released);
        stage.world.run();
        assert_eq!(stage.discharge(number, false), "accepted");
        assert_eq!(stage.left(), ["b"]);
    }
}

#[test]
fn s65_a_stalled_shard_delays_only_its_own_discharge() {
    let mut world = world(3);
    let names: Vec<String> =
        (0..3).map(|shard| names_homed_at(shard, 3).next().expect("there is one")).collect();
    let client = world.connect(0);
    let coordinator = world.clients[client].attach_coordinator("txn", &[]);
    let senders: Vec<LinkId> = names
        .iter()
        .map(|name| world.clients[client].attach_sender(name, name, &SenderOptions::default()))
        .collect();
    let tokens = [world.clients[client].declare(coordinator), world.clients[client].declare(coordinator)];
    world.run();
    assert_eq!(
        tokens.map(|token| world.clients[client].outcome(token)),
        [Some("declared 1"), Some("declared 2")]
    );
    world.stall(2, true);
    world.clients[client].send_in(senders[1], 1, "stalled");
    world.clients[client].send_in(senders[2], 1, "stalled");
    let first = world.clients[client].discharge(coordinator, 1, false);
    world.clients[client].send_in(senders[0], 2, "goes on");
    world.clients[client].send_in(senders[1], 2, "goes on");
    let second = world.clients[client].discharge(coordinator, 2, false);
    world.run();
    world.advance(2_000_000);
    assert_eq!(
        (world.clients[client].outcome(first), world.clients[client].outcome(second)),
        (None, Some("accepted"))
    );
    world.stall(2, false);
    world.run();
    assert_eq!(world.clients[client].outcome(first), Some("accepted"));
}

/// Whoever stalls between the vote and the decision: nobody shows a part of the transaction before it is decided.
#[test]
fn a_shard_that_has_not_voted_keeps_the_others_waiting() {
    let mut world = world(2);
    let names: Vec<String> =
        (0..2).map(|shard| names_homed_at(shard, 2).next().expect("there is one")).collect();
    let client = world.connect(0);
    let coordinator = world.clients[client].attach_coordinator("txn", &[]);
    let senders: Vec<LinkId> = names
        .iter()
        .map(|name| world.clients[client].attach_sender(name, name, &SenderOptions::default()))
        .collect();
    world.clients[client].declare(coordinator);
    world.run();
    for sender in &senders {
        world.clients[client].send_in(*sender, 1, "m");
    }
    world.run();
    world.stall(1, true);
    let token = world.clients[client].discharge(coordinator, 1, false);
    world.run();
    let available = |world: &World, shard: usize| {
        let queue = world.shards[shard].queue(&names[shard]).expect("it was made");
        world.shards[shard].engine().depth(queue).expect("it is there").available
    };
    assert_eq!((available(&world, 0), world.clients[client].outcome(token)), (0, None));
    world.stall(1, false);
    world.run();
    assert_eq!((available(&world, 0), available(&world, 1)), (1, 1));
    assert_eq!(world.clients[client].outcome(token), Some("accepted"));
}

/// A connection that moves to its first consumer's queue has arrived before its transactions begin; one that has a coordinator stays.
#[test]
fn a_connection_declares_where_it_stays() {
    let name = |shard| names_homed_at(shard, 3).next().expect("there is one");
    for coordinator_first in [false, true] {
        let mut world = world(3);
        let client = world.connect(0);
        let mut coordinator = coordinator_first.then(|| world.clients[client].attach_coordinator("txn", &[]));
        let receiver = world.clients[client].attach_receiver("r", &name(2), &ReceiverOptions::default());
        let coordinator =
            *coordinator.get_or_insert_with(|| world.clients[client].attach_coordinator("txn", &[]));
        let sender = world.clients[client].attach_sender("s", &name(1), &SenderOptions::default());
        // All of it is on its way before the first answer.
        world.run();
        let token = world.clients[client].declare(coordinator);
        world.clients[client].credit(receiver, 10);
        world.run();
        assert_eq!(world.clients[client].outcome(token), Some("declared 1"));
        assert_eq!(world.shard_of(client), if coordinator_first { 0 } else { 2 });
        world.clients[client].send_in(sender, 1, "m");
        let token = world.clients[client].discharge(coordinator, 1, false);
        let far = world.clients[client].attach_receiver("far", &name(1), &ReceiverOptions::default());
        world.run();
        world.clients[client].credit(far, 1);
        world.run();
        assert_eq!(world.clients[client].outcome(token), Some("accepted"));
        assert_eq!(world.clients[client].bodies(far), ["m"]);
    }
}

/// A queue without end and a consumer that says nothing about what it gets do not make a transaction grow without end.
#[test]
fn a_transaction_acquires_only_so_much() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { verify: false, ..Setup::new(shards) });
        let queue = names_homed_at(shards - 1, shards).next().expect("there is one");
        let client = world.connect(0);
        let coordinator = world.clients[client].attach_coordinator("txn", &[]);
        let receiver = world.clients[client].attach_receiver("r", &queue, &ReceiverOptions::default());
        let sender = world.clients[client].attach_sender("s", &queue, &SenderOptions::default());
        world.run();
        let mut stage = Stage { world, client, coordinator, receiver, queue };
        let number = stage.declare();
        stage.credit_in(number, u32::MAX / 2);
        let mut sent = 0;
        while sent < TRANSACTION_ACQUIRED_MAX + 1000 {
            for _ in 0..1000 {
                stage.world.clients[client].send(sender, "m");
            }
            sent += 1000;
            stage.world.run();
            stage.world.clients[client].outcomes.clear();
            if sent <= TRANSACTION_ACQUIRED_MAX - 1000 {
                assert_eq!(stage.world.clients[client].detached, []);
                assert_eq!(stage.world.clients[client].received.len(), sent);
            }
        }
        let ended = (receiver, Some("amqp:resource-limit-exceeded".to_owned()));
        assert_eq!(stage.world.clients[client].detached, [ended]);
        assert_eq!(stage.discharge(number, false), "rejected amqp:transaction:rollback");
        let engine = stage.world.shards[shards - 1].engine();
        let id = stage.world.shards[shards - 1].queue(&stage.queue).expect("it is there");
        let depth = engine.depth(id).expect("it is there");
        assert_eq!(depth.available as usize, sent, "all is back");
    }
}

#[test]
fn a_transaction_may_end_before_the_link_is_there_that_was_to_acquire_in_it() {
    let mut stage = Stage::new(2, &ReceiverOptions::default(), &["m"]);
    let number = stage.declare();
    stage.world.stall(1, true);
    let (client, queue) = (stage.client, stage.queue.clone());
    let late = stage.world.clients[client].attach_receiver("late", &queue, &ReceiverOptions::default());
    stage.world.clients[client].credit_in(late, number, 5);
    stage.world.run();
    assert_eq!(stage.discharge(number, false), "accepted");
    stage.world.stall(1, false);
    stage.world.run();
    assert!(stage.world.clients[client].attached.contains(&late));
    assert_eq!(stage.world.clients[client].detached, []);
    assert_eq!(stage.arrived(), [arrived("m", None, true)]);
}

/// Deliveries that are settled in a transaction and cannot be: the broker has settled them, the peer has, or there never were any.
#[test]
fn an_outcome_for_what_is_not_unsettled_does_not_commit() {
    let ends = [
        ("acquired in one that was rolled back", true),
        ("settled in one that was rolled back", true),
        ("released before", true),
        ("never there", true),
        ("some of a range were never there", true),
        ("all of a range are there", false),
    ];
    for (shards, settled) in [(1, true), (2, true), (2, false)] {
        for (end, is_refused) in ends {
            let mut stage = Stage::new(shards, &ReceiverOptions::default(), &["a", "b", "c"]);
            let (client, receiver) = (stage.client, stage.receiver);
            let first = stage.declare();
            let credit = |stage: &mut Stage, credit| {
                stage.world.clients[client].credit(receiver, credit);
                stage.world.run();
            };
            let ids = match end {
                "acquired in one that was rolled back" => {
                    stage.credit_in(first, 1);
                    (0, 0)
                }
                "settled in one that was rolled back" => {
                    credit(&mut stage, 1);
                    stage.world.clients[client].accept_in((0, 0), first, true);
                    (0, 0)
                }
                "released before" => {
                    credit(&mut stage, 1);
                    stage.world.clients[client].settle(receiver, 0, &DeliveryState::Released);
                    (0, 0)
                }
                "never there" => (77, 77),
                "some of a range were never there" => {
                    credit(&mut stage, 2);
                    (0, i32::MAX as u32 - 1)
                }
                _ => {
                    credit(&mut stage, 2);
                    (0, 1)
                }
            };
            assert_eq!(stage.discharge(first, true), "accepted");
            let number = stage.declare();
            stage.world.clients[client].accept_in(ids, number, settled);
            stage.world.run();
            let discharged = stage.discharge(number, false);
            if is_refused {
                assert_eq!(discharged, "rejected amqp:transaction:rollback", "{end}");
                let (_, why) = stage.world.clients[client].refusals.last().expect("it was refused");
                assert!(why.contains("not unsettled any more"), "{why}");
                // What the peer did not settle stays with it.
                let held = if settled || end != "some of a range were never there" { 0 } else { 2 };
                assert_eq!(stage.left(), ["a", "b", "c"][held..], "{end}");
            } else {
                assert_eq!((discharged.as_str(), stage.left()), ("accepted", vec!["c".to_owned()]), "{end}");
            }
            assert_eq!(stage.waiting(), 0);
        }
    }
}
