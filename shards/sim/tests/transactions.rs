//! Transactions on one shard and over several: what others see of them, how they end, and what a peer may do wrong.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::{DestinationRule, PrefetchRule};
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{
    Declare, DeliveryState, Map, MapWriter, Modified, Outcome, Raw, Reader, TransactionRequest, Value,
};

/// A client with a coordinator's link and a sender to a queue on each shard.
struct Controller {
    client: usize,
    coordinator: LinkId,
    senders: Vec<LinkId>,
    queues: Vec<String>,
}

impl Controller {
    fn connect(world: &mut World, shard: usize) -> Controller {
        let shards = world.shards.len();
        let queues: Vec<String> = (0..shards).map(|shard| name_at(shard, shards)).collect();
        let client = world.connect(shard);
        let coordinator = world.clients[client].attach_coordinator("txn", &[]);
        let attach =
            |name: &String| world.clients[client].attach_sender(name, name, &SenderOptions::default());
        let senders = queues.iter().map(attach).collect();
        world.run();
        Controller { client, coordinator, senders, queues }
    }

    fn declare(&self, world: &mut World) -> u32 {
        let token = world.clients[self.client].declare(self.coordinator);
        world.run();
        let outcome = world.clients[self.client].outcome(token).expect("a declare is answered");
        outcome.strip_prefix("declared ").expect("there is room").parse().expect("a number")
    }

    fn discharge(&self, world: &mut World, number: u32, fail: bool) -> String {
        let token = world.clients[self.client].discharge(self.coordinator, number, fail);
        world.run();
        outcome(world, self.client, token)
    }

    fn commit(&self, world: &mut World, number: u32) {
        assert_eq!(self.discharge(world, number, false), "accepted");
    }

    fn roll_back(&self, world: &mut World, number: u32) {
        assert_eq!(self.discharge(world, number, true), "accepted");
    }

    /// What the last discharge was refused for.
    fn refusal<'a>(&self, world: &'a World) -> &'a str {
        world.clients[self.client].refusals.last().map_or("", |(_, text)| text)
    }
}

fn outcome(world: &World, client: usize, token: u64) -> String {
    world.clients[client].outcome(token).unwrap_or("nothing").to_owned()
}

fn world(shards: usize, seed: u64) -> World {
    World::new(&Setup { seed, ..Setup::new(shards) })
}

fn name_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).next().expect("there is one")
}

fn consume(world: &mut World, client: usize, queue: &str, options: &ReceiverOptions) -> LinkId {
    let link = world.clients[client].attach_receiver(&format!("r-{queue}"), queue, options);
    world.run();
    link
}

/// Messages, those pending, those retired, over all queues.
fn depths(world: &World) -> (u64, u64, u64) {
    let mut sum = (0, 0, 0);
    for shard in &world.shards {
        for n in 0..64 {
            let depth = shard.queue(&format!("q{n}")).and_then(|queue| shard.engine().depth(queue));
            let Some(depth) = depth else { continue };
            sum = (sum.0 + depth.messages, sum.1 + depth.pending, sum.2 + depth.retired);
        }
    }
    sum
}

fn participations(world: &World) -> usize {
    world.shards.iter().map(|shard| shard.participation_count()).sum()
}

fn delivery(world: &World, client: usize, link: LinkId, body: &str) -> u32 {
    let of = |received: &&corelane_sim::Received| received.link == link && received.body == body;
    world.clients[client].received.iter().rfind(of).expect("it has arrived").delivery_id
}

/// A message of each number to each queue, by somebody else.
fn fill(world: &mut World, queues: &[String], bodies: &[&str]) {
    let client = world.connect(0);
    for queue in queues {
        let sender = world.clients[client].attach_sender(queue, queue, &SenderOptions::default());
        for body in bodies {
            world.clients[client].send(sender, body);
        }
    }
    world.run();
    world.clients[client].close();
    world.run();
}

#[test]
fn what_is_posted_is_seen_when_it_commits() {
    for shards in 1..=4 {
        for seed in 0..5 {
            let mut world = world(shards, seed);
            let controller = Controller::connect(&mut world, seed as usize % shards);
            let consumer = world.connect(0);
            let links: Vec<LinkId> = controller
                .queues
                .iter()
                .map(|queue| consume(&mut world, consumer, queue, &ReceiverOptions::default()))
                .collect();
            for link in &links {
                world.clients[consumer].credit(*link, 100);
            }
            let number = controller.declare(&mut world);
            let mut tokens = Vec::new();
            for n in 0..3 {
                for sender in &controller.senders {
                    let client = &mut world.clients[controller.client];
                    tokens.push(client.send_in(*sender, number, &format!("t{n}")));
                    client.send(*sender, &format!("p{n}"));
                }
            }
            world.run();
            for token in tokens {
                let expect = format!("accepted in {number}");
                assert_eq!(outcome(&world, controller.client, token), expect);
            }
            for link in &links {
                assert_eq!(world.clients[consumer].bodies(*link), ["p0", "p1", "p2"], "seed {seed}");
            }
            assert_eq!(depths(&world), (6 * shards as u64, 3 * shards as u64, 0));
            controller.commit(&mut world, number);
            for link in &links {
                assert_eq!(world.clients[consumer].bodies(*link), ["p0", "p1", "p2", "t0", "t1", "t2"]);
            }
            assert_eq!((depths(&world).1, participations(&world)), (0, 0));
        }
    }
}

#[test]
fn what_is_rolled_back_was_never_there() {
    for shards in 1..=4 {
        let mut world = world(shards, 3);
        let controller = Controller::connect(&mut world, 0);
        let number = controller.declare(&mut world);
        for sender in &controller.senders {
            world.clients[controller.client].send_in(*sender, number, "gone");
        }
        controller.roll_back(&mut world, number);
        assert_eq!((depths(&world), participations(&world)), ((0, 0, 0), 0));
    }
}

/// Committed work of one shard shows all at once: whoever is there sees it in one turn.
#[test]
fn a_shard_shows_all_of_a_transaction_or_nothing() {
    for seed in 0..30 {
        let mut world = world(2, seed);
        let far: Vec<String> = names_homed_at(1, 2).take(3).collect();
        let controller = Controller::connect(&mut world, 0);
        let senders: Vec<LinkId> = far
            .iter()
            .map(|name| {
                world.clients[controller.client].attach_sender(
                    &format!("to {name}"),
                    name,
                    &SenderOptions::default(),
                )
            })
            .collect();
        world.run();
        let number = controller.declare(&mut world);
        for n in 0..10 {
            world.clients[controller.client].send_in(senders[n % 3], number, &n.to_string());
        }
        world.clients[controller.client].discharge(controller.coordinator, number, false);
        loop {
            let depth = |name: &String| {
                let shard = &world.shards[1];
                shard
                    .queue(name)
                    .and_then(|queue| shard.engine().depth(queue))
                    .map_or(0, |depth| depth.available)
            };
            let seen: u64 = far.iter().map(depth).sum();
            assert!(seen == 0 || seen == 10, "seed {seed}: {seen}");
            if !world.step() {
                break;
            }
        }
        assert_eq!(depths(&world).0, 10);
    }
}

#[test]
fn what_is_retired_goes_when_it_commits_and_comes_back_when_not() {
    for shards in 1..=4 {
        for seed in 0..5 {
            let mut world = world(shards, seed);
            let controller = Controller::connect(&mut world, 0);
            fill(&mut world, &controller.queues, &["a", "b", "c"]);
            let client = controller.client;
            let mut links = Vec::new();
            for queue in &controller.queues {
                let link = consume(&mut world, client, queue, &ReceiverOptions::default());
                world.clients[client].credit(link, 3);
                links.push(link);
            }
            world.run();
            let number = controller.declare(&mut world);
            for link in &links {
                for body in ["a", "b"] {
                    let id = delivery(&world, client, *link, body);
                    world.clients[client].settle_in(*link, id, number, Outcome::Accepted);
                }
            }
            world.run();
            assert_eq!(depths(&world), (3 * shards as u64, 0, 2 * shards as u64));
            controller.roll_back(&mut world, number);
            assert_eq!(depths(&world), (3 * shards as u64, 0, 0));
            for link in &links {
                world.clients[client].credit(*link, 2);
            }
            world.run();
            let number = controller.declare(&mut world);
            for link in &links {
                assert_eq!(world.clients[client].bodies(*link), ["a", "b", "c", "a", "b"], "seed {seed}");
                let again =
                    &world.clients[client].received.iter().rfind(|r| r.link == *link).expect("b again");
                assert_eq!((again.delivery_count, again.first_acquirer), (1, false));
                for body in ["a", "b", "c"] {
                    let id = delivery(&world, client, *link, body);
                    world.clients[client].settle_in(*link, id, number, Outcome::Accepted);
                }
            }
            controller.commit(&mut world, number);
            assert_eq!((depths(&world), participations(&world)), ((0, 0, 0), 0));
        }
    }
}

/// Outcomes other than accepted take effect with the transaction too.
#[test]
fn released_and_modified_wait_for_the_commit() {
    for shards in [1, 2] {
        let mut world = world(shards, 1);
        let controller = Controller::connect(&mut world, 0);
        let queue = controller.queues[shards - 1].clone();
        fill(&mut world, std::slice::from_ref(&queue), &["a", "b"]);
        let client = controller.client;
        let link = consume(&mut world, client, &queue, &ReceiverOptions::default());
        world.clients[client].credit(link, 2);
        world.run();
        let number = controller.declare(&mut world);
        let (a, b) = (delivery(&world, client, link, "a"), delivery(&world, client, link, "b"));
        world.clients[client].settle_in(link, a, number, Outcome::Released);
        let failed = Modified { delivery_failed: true, ..Modified::default() };
        world.clients[client].settle_in(link, b, number, Outcome::Modified(failed));
        world.clients[client].credit(link, 2);
        world.run();
        assert_eq!(world.clients[client].received.len(), 2);
        controller.commit(&mut world, number);
        let counts: Vec<_> = world.clients[client].received[2..]
            .iter()
            .map(|received| (received.body.as_str(), received.delivery_count))
            .collect();
        assert_eq!(counts, [("a", 0), ("b", 1)]);
    }
}

/// Annotations wait in memory that is no message's.
#[test]
fn outcomes_with_too_many_annotations_keep_the_transaction_from_committing() {
    for (shards, settled) in [(1, true), (1, false), (2, true), (2, false)] {
        let mut world = world(shards, 1);
        let controller = Controller::connect(&mut world, 0);
        let queue = controller.queues[shards - 1].clone();
        let bodies: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        fill(&mut world, std::slice::from_ref(&queue), &bodies);
        let client = controller.client;
        let options = if settled { ReceiverOptions::default() } else { second() };
        let link = consume(&mut world, client, &queue, &options);
        world.clients[client].credit(link, 25);
        world.run();
        let text = "long".repeat(5_000);
        let mut annotations = Vec::new();
        let mut map = MapWriter::new(&mut annotations);
        map.symbol("x-opt-why", &Value::String(&text));
        map.finish();
        let message_annotations = Map::decode(&annotations).ok();
        let modified = Modified { message_annotations, ..Modified::default() };
        for (bodies, expect) in
            [(&bodies[..10], "accepted"), (&bodies[10..], "rejected amqp:transaction:rollback")]
        {
            let number = controller.declare(&mut world);
            for body in bodies {
                let id = delivery(&world, client, link, body);
                world.clients[client].settle_in(link, id, number, Outcome::Modified(modified));
            }
            assert_eq!(controller.discharge(&mut world, number, false), expect);
        }
        assert!(
            controller.refusal(&world).contains("bytes of annotations"),
            "{}",
            controller.refusal(&world)
        );
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    CoordinatorLink,
    Session,
    Connection,
    ClosedConnection,
}

#[test]
fn whatever_is_lost_the_transaction_rolls_back() {
    for loss in [Loss::CoordinatorLink, Loss::Session, Loss::Connection, Loss::ClosedConnection] {
        for shards in 1..=3 {
            for seed in 0..12 {
                let mut world = world(shards, seed);
                let controller = Controller::connect(&mut world, 0);
                fill(&mut world, &controller.queues, &["a", "b"]);
                let client = controller.client;
                let mut links = Vec::new();
                for queue in &controller.queues {
                    let link = consume(&mut world, client, queue, &ReceiverOptions::default());
                    world.clients[client].credit(link, 2);
                    links.push(link);
                }
                world.run();
                let number = controller.declare(&mut world);
                for (link, sender) in links.iter().zip(&controller.senders) {
                    world.clients[client].send_in(*sender, number, "posted");
                    let id = delivery(&world, client, *link, "a");
                    world.clients[client].settle_in(*link, id, number, Outcome::Accepted);
                }
                if seed % 3 == 0 {
                    world.clients[client].discharge(controller.coordinator, number, false);
                }
                // Somewhere on the way.
                for _ in 0..seed % 7 {
                    world.step();
                }
                match loss {
                    Loss::CoordinatorLink => world.clients[client].detach(controller.coordinator),
                    Loss::Session => world.clients[client].end(),
                    Loss::Connection => world.kill(client),
                    Loss::ClosedConnection => world.clients[client].close(),
                }
                world.run();
                let what = format!("{loss:?}, {shards} shards, seed {seed}");
                assert_eq!(participations(&world), 0, "{what}");
                let (messages, pending, retired) = depths(&world);
                assert_eq!((pending, retired), (0, 0), "{what}");
                // Either all of it happened or nothing; it can have only if it was discharged.
                let shards = shards as u64;
                assert!(messages == 2 * shards, "{what}: {messages}");
                let committed: u64 =
                    world.shards.iter().map(|shard| shard.counters().transactions_committed).sum();
                let posted = count_of(&mut world, &controller.queues, "posted") as u64;
                assert!(posted == 0 || (posted == shards && seed % 3 == 0), "{what}: {posted}");
                assert!(committed == 0 || posted == shards, "{what}");
            }
        }
    }
}

/// How many messages of this body browsers find.
fn count_of(world: &mut World, queues: &[String], body: &str) -> usize {
    let client = world.connect(0);
    let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
    for queue in queues {
        let link = consume(world, client, queue, &options);
        world.clients[client].credit(link, 1000);
    }
    world.run();
    world.clients[client].received.iter().filter(|received| received.body == body).count()
}

#[test]
fn wrong_discharges_are_told_what_is_wrong() {
    let mut world = world(1, 1);
    let controller = Controller::connect(&mut world, 0);
    assert_eq!(controller.discharge(&mut world, 7, false), "rejected amqp:transaction:unknown-id");
    assert_eq!(controller.discharge(&mut world, 7, true), "rejected amqp:transaction:unknown-id");
    let number = controller.declare(&mut world);
    controller.commit(&mut world, number);
    assert_eq!(controller.discharge(&mut world, number, false), "rejected amqp:transaction:unknown-id");
    // Another link's transaction is not this one's to end.
    let other = world.clients[controller.client].attach_coordinator("other", &[]);
    world.run();
    let token = world.clients[controller.client].declare(other);
    world.run();
    assert_eq!(outcome(&world, controller.client, token), "declared 2");
    assert_eq!(controller.discharge(&mut world, 2, false), "rejected amqp:transaction:unknown-id");
    let client = &mut world.clients[controller.client];
    let data = client.send(controller.coordinator, "not a request");
    let garbage = client.send_bytes(controller.coordinator, &[0x00, 0x53]);
    let empty = client.send_bytes(controller.coordinator, &[0x00, 0x53, 0x77, 0x40]);
    world.run();
    assert_eq!(outcome(&world, controller.client, data), "rejected amqp:decode-error");
    assert_eq!(outcome(&world, controller.client, garbage), "rejected amqp:decode-error");
    assert_eq!(outcome(&world, controller.client, empty), "rejected amqp:decode-error");
    let mut global = Vec::new();
    corelane_wire::amqp10::Encode::encode(&Value::Uint(7), &mut global);
    let global_id = Raw::read(&mut Reader::new(&global)).ok();
    let declare = TransactionRequest::Declare(Declare { global_id });
    let token = world.clients[controller.client].request(controller.coordinator, &declare);
    world.run();
    assert_eq!(outcome(&world, controller.client, token), "rejected amqp:not-implemented");
    // The link has lived through all of it.
    let number = controller.declare(&mut world);
    controller.commit(&mut world, number);
}

/// A source that does not know rejections hears of an error by the end of its link.
#[test]
fn a_source_without_rejections_is_detached_with_the_error() {
    let mut world = world(2, 1);
    let client = world.connect(0);
    let coordinator = world.clients[client].attach_coordinator("txn", &["amqp:accepted:list"]);
    world.run();
    let token = world.clients[client].declare(coordinator);
    world.run();
    assert_eq!(outcome(&world, client, token), "declared 1");
    world.clients[client].discharge(coordinator, 9, false);
    world.run();
    let error = Some("amqp:transaction:unknown-id".to_owned());
    assert_eq!(world.clients[client].detached, [(coordinator, error)]);
    assert_eq!(world.shards[0].counters().transactions_rolled_back, 1);
}

#[test]
fn too_many_transactions_are_refused() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(1) });
    let controller = Controller::connect(&mut world, 0);
    let numbers: Vec<u32> = (0..256).map(|_| controller.declare(&mut world)).collect();
    let token = world.clients[controller.client].declare(controller.coordinator);
    world.run();
    assert_eq!(outcome(&world, controller.client, token), "rejected amqp:resource-limit-exceeded");
    controller.roll_back(&mut world, numbers[100]);
    controller.declare(&mut world);
}

#[test]
fn work_in_a_transaction_that_is_not_open_is_refused() {
    for shards in [1, 2] {
        let mut world = world(shards, 2);
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        let queue = controller.queues[shards - 1].clone();
        fill(&mut world, std::slice::from_ref(&queue), &["a"]);
        let link = consume(&mut world, client, &queue, &ReceiverOptions::default());
        world.clients[client].credit(link, 1);
        world.run();
        let token = world.clients[client].send_in(controller.senders[shards - 1], 5, "x");
        let id = delivery(&world, client, link, "a");
        world.clients[client].settle_in(link, id, 5, Outcome::Accepted);
        world.run();
        let unknown = "amqp:transaction:unknown-id";
        assert_eq!(outcome(&world, client, token), format!("rejected {unknown}"));
        assert_eq!(world.clients[client].detached, [(link, Some(unknown.to_owned()))]);
        assert_eq!(depths(&world), (1, 0, 0));
    }
}

#[test]
fn a_refused_message_keeps_the_transaction_from_committing() {
    for (shards, presettled) in [(1, false), (2, false), (1, true), (2, true)] {
        let setup = Setup { memory: 4000, ..Setup::new(shards) };
        let mut world = World::new(&setup);
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        let far = controller.queues[shards - 1].clone();
        let options = SenderOptions { presettled, ..SenderOptions::default() };
        let sender = world.clients[client].attach_sender("big", &far, &options);
        world.run();
        let number = controller.declare(&mut world);
        world.clients[client].send_in(controller.senders[0], number, "small");
        let token = world.clients[client].send_in(sender, number, &"x".repeat(10_000));
        world.run();
        if !presettled {
            let expect = format!("rejected amqp:resource-limit-exceeded in {number}");
            assert_eq!(outcome(&world, client, token), expect);
        }
        assert_eq!(controller.discharge(&mut world, number, false), "rejected amqp:transaction:rollback");
        assert!(controller.refusal(&world).contains("full"), "{}", controller.refusal(&world));
        assert_eq!((depths(&world), participations(&world)), ((0, 0, 0), 0));
        assert_eq!(world.clients[client].detached, [], "a link that sends settled lives on");
    }
}

#[test]
fn s53_a_deleted_queue_ends_the_transaction_with_a_clear_error() {
    for shards in [1, 2, 3] {
        for retires in [false, true] {
            let mut world = world(shards, 4);
            let controller = Controller::connect(&mut world, 0);
            let client = controller.client;
            // A dynamic node lives as long as the link that made it.
            let maker = world.connect(shards - 1);
            let options = SenderOptions { dynamic: true, ..SenderOptions::default() };
            let made = world.clients[maker].attach_sender("made", "", &options);
            world.run();
            let name = world.clients[maker].addresses[0].1.clone();
            let sender = world.clients[client].attach_sender("to it", &name, &SenderOptions::default());
            let receiver = consume(&mut world, client, &name, &ReceiverOptions::default());
            world.clients[client].send(sender, "m");
            world.clients[client].credit(receiver, 1);
            world.run();
            let number = controller.declare(&mut world);
            for other in &controller.senders {
                world.clients[client].send_in(*other, number, "elsewhere");
            }
            if retires {
                let id = delivery(&world, client, receiver, "m");
                world.clients[client].settle_in(receiver, id, number, Outcome::Accepted);
            } else {
                world.clients[client].send_in(sender, number, "n");
            }
            world.run();
            world.clients[maker].detach(made);
            world.run();
            let result = controller.discharge(&mut world, number, false);
            assert_eq!(result, "rejected amqp:transaction:rollback", "{shards} {retires}");
            assert!(controller.refusal(&world).contains("deleted"), "{}", controller.refusal(&world));
            assert_eq!((depths(&world), participations(&world)), ((0, 0, 0), 0));
        }
    }
}

/// What is settled inside an open transaction makes room for more.
#[test]
fn settled_in_a_transaction_does_not_count_for_the_prefetch() {
    for shards in [1, 2] {
        let rule = DestinationRule {
            pattern: ">".to_owned(),
            prefetch: Some(PrefetchRule::Limit(2)),
            ..DestinationRule::default()
        };
        let mut world = World::new(&Setup { rules: vec![rule], ..Setup::new(shards) });
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        let queue = controller.queues[shards - 1].clone();
        fill(&mut world, std::slice::from_ref(&queue), &["a", "b", "c", "d", "e"]);
        let link = consume(&mut world, client, &queue, &ReceiverOptions::default());
        world.clients[client].credit(link, 10);
        world.run();
        assert_eq!(world.clients[client].bodies(link), ["a", "b"]);
        let number = controller.declare(&mut world);
        for body in ["a", "b"] {
            let id = delivery(&world, client, link, body);
            world.clients[client].settle_in(link, id, number, Outcome::Accepted);
        }
        world.run();
        assert_eq!(world.clients[client].bodies(link), ["a", "b", "c", "d"]);
        controller.commit(&mut world, number);
        assert_eq!(depths(&world).0, 3);
    }
}

#[test]
fn what_was_retired_outlives_its_consumer() {
    for (shards, commits) in [(1, true), (1, false), (2, true), (2, false)] {
        let mut world = world(shards, 5);
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        let queue = controller.queues[shards - 1].clone();
        fill(&mut world, std::slice::from_ref(&queue), &["a", "b"]);
        let link = consume(&mut world, client, &queue, &ReceiverOptions::default());
        world.clients[client].credit(link, 2);
        world.run();
        let number = controller.declare(&mut world);
        let id = delivery(&world, client, link, "a");
        world.clients[client].settle_in(link, id, number, Outcome::Accepted);
        world.run();
        world.clients[client].detach(link);
        let other = world.connect(0);
        let next = consume(&mut world, other, &queue, &ReceiverOptions::default());
        world.clients[other].credit(next, 10);
        world.run();
        assert_eq!(world.clients[other].bodies(next), ["b"]);
        if commits {
            controller.commit(&mut world, number);
            assert_eq!(depths(&world), (1, 0, 0));
        } else {
            controller.roll_back(&mut world, number);
            assert_eq!(world.clients[other].bodies(next), ["b", "a"]);
        }
    }
}

fn second() -> ReceiverOptions {
    ReceiverOptions { settles_second: true, ..ReceiverOptions::default() }
}

/// A peer that does not settle hears of the outcome with the commit, and keeps its delivery when there is none.
#[test]
fn an_outcome_that_is_not_settled_is_the_consumers_until_the_commit() {
    for shards in 1..=3 {
        let mut world = world(shards, 6);
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        fill(&mut world, &controller.queues, &["a", "b"]);
        let mut links = Vec::new();
        for queue in &controller.queues {
            let link = consume(&mut world, client, queue, &second());
            world.clients[client].credit(link, 2);
            links.push(link);
        }
        world.run();
        let shards = shards as u64;
        let first = controller.declare(&mut world);
        let say = |world: &mut World, number, body: &str| {
            for link in &links {
                let id = delivery(world, client, *link, body);
                world.clients[client].settle_in(*link, id, number, Outcome::Accepted);
            }
            world.run();
        };
        let unsettled = |world: &World, body: &str| {
            let left = |link: &&LinkId| {
                let id = delivery(world, client, **link, body);
                world.clients[client].is_unsettled(**link, id)
            };
            links.iter().filter(left).count() as u64
        };
        say(&mut world, first, "a");
        assert_eq!((unsettled(&world, "a"), depths(&world).2), (shards, 0));
        controller.roll_back(&mut world, first);
        assert_eq!((unsettled(&world, "a"), depths(&world).0), (shards, 2 * shards));
        let number = controller.declare(&mut world);
        say(&mut world, number, "b");
        controller.commit(&mut world, number);
        assert_eq!((unsettled(&world, "b"), depths(&world).0), (0, shards));
        assert_eq!(unsettled(&world, "a"), shards);
        assert_eq!(participations(&world), 0);
    }
}

/// Whoever lets go of a delivery that has an outcome in a transaction cannot commit that.
#[test]
fn an_outcome_whose_delivery_went_back_does_not_commit() {
    for shards in 1..=3 {
        let mut world = world(shards, 7);
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        fill(&mut world, &controller.queues, &["a"]);
        let mut links = Vec::new();
        for queue in &controller.queues {
            let link = consume(&mut world, client, queue, &second());
            world.clients[client].credit(link, 1);
            links.push(link);
        }
        world.run();
        let number = controller.declare(&mut world);
        for link in &links {
            let id = delivery(&world, client, *link, "a");
            world.clients[client].settle_in(*link, id, number, Outcome::Accepted);
        }
        world.clients[client].detach(links[shards - 1]);
        world.run();
        assert_eq!(controller.discharge(&mut world, number, false), "rejected amqp:transaction:rollback");
        assert!(controller.refusal(&world).contains("link"), "{}", controller.refusal(&world));
        assert_eq!((depths(&world), participations(&world)), ((shards as u64, 0, 0), 0));
        for link in &links[..shards - 1] {
            let id = delivery(&world, client, *link, "a");
            assert!(world.clients[client].is_unsettled(*link, id));
            world.clients[client].settle(*link, id, &DeliveryState::Accepted);
        }
        world.run();
    }
}

/// One shard has prepared, another cannot: what the peer had not settled is still its own.
#[test]
fn what_was_prepared_in_vain_is_the_consumers_again() {
    for shards in 2..=3 {
        let mut world = world(shards, 8);
        let controller = Controller::connect(&mut world, 0);
        let client = controller.client;
        fill(&mut world, &controller.queues, &["a"]);
        let maker = world.connect(shards - 1);
        let options = SenderOptions { dynamic: true, ..SenderOptions::default() };
        let made = world.clients[maker].attach_sender("made", "", &options);
        world.run();
        let name = world.clients[maker].addresses[0].1.clone();
        let sender = world.clients[client].attach_sender("to it", &name, &SenderOptions::default());
        let mut links = Vec::new();
        for queue in &controller.queues {
            let link = consume(&mut world, client, queue, &second());
            world.clients[client].credit(link, 1);
            links.push(link);
        }
        world.run();
        let number = controller.declare(&mut world);
        let say = |world: &mut World, number| {
            for link in &links {
                let id = delivery(world, client, *link, "a");
                world.clients[client].settle_in(*link, id, number, Outcome::Accepted);
            }
            world.run();
        };
        say(&mut world, number);
        world.clients[client].send_in(sender, number, "n");
        world.run();
        world.clients[maker].detach(made);
        world.run();
        assert_eq!(controller.discharge(&mut world, number, false), "rejected amqp:transaction:rollback");
        let other = world.connect(0);
        for (link, queue) in links.iter().zip(&controller.queues) {
            let id = delivery(&world, client, *link, "a");
            assert!(world.clients[client].is_unsettled(*link, id));
            let rival = consume(&mut world, other, queue, &ReceiverOptions::default());
            world.clients[other].credit(rival, 1);
        }
        world.run();
        assert_eq!(world.clients[other].received, [], "nobody else gets it");
        let number = controller.declare(&mut world);
        say(&mut world, number);
        controller.commit(&mut world, number);
        assert_eq!((depths(&world), participations(&world)), ((0, 0, 0), 0));
    }
}

/// A message for a topic inside a transaction reaches every subscription when that commits, and none when it does not.
#[test]
fn a_topics_subscriptions_see_a_transaction_when_it_commits() {
    for shards in 1..=4 {
        for fail in [false, true] {
            let mut world = world(shards, 9);
            let controller = Controller::connect(&mut world, 0);
            let mut subscribers = Vec::new();
            for n in 0..2 * shards {
                let client = world.connect(n % shards);
                let pattern = ["topic://news.*", "topic://news.eu"][n % 2];
                let link = world.clients[client].attach_receiver(
                    &format!("s{n}"),
                    pattern,
                    &ReceiverOptions::default(),
                );
                world.run();
                world.clients[client].credit(link, 10);
                subscribers.push((client, link));
            }
            world.run();
            let client = controller.client;
            let sender =
                world.clients[client].attach_sender("t", "topic://news.eu", &SenderOptions::default());
            world.run();
            let number = controller.declare(&mut world);
            let tokens = ["1", "2"].map(|body| world.clients[client].send_in(sender, number, body));
            world.run();
            for token in tokens {
                assert_eq!(outcome(&world, client, token), format!("accepted in {number}"));
            }
            assert!(subscribers.iter().all(|(client, link)| world.clients[*client].bodies(*link).is_empty()));
            // One that leaves is no concern of the publisher.
            let (gone, link) = subscribers.pop().expect("there are two");
            world.clients[gone].detach(link);
            world.run();
            assert_eq!(controller.discharge(&mut world, number, fail), "accepted", "{shards} shards");
            let expect: &[&str] = if fail { &[] } else { &["1", "2"] };
            for (client, link) in subscribers {
                assert_eq!(world.clients[client].bodies(link), expect, "{shards} shards");
            }
            assert_eq!(participations(&world), 0);
        }
    }
}
