//! What the management node tells of topics, subscriptions and links, over several shards, and what it has to do with transactions.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::{DestinationRule, PrefetchRule};
use corelane_sim::{Answer, Item, Operator, ReceiverOptions, SenderOptions, Setup, World, request};
use corelane_wire::amqp10::{DeliveryState, Outcome, Value};

use crate::{name_at, other_at};

fn rules() -> Vec<DestinationRule> {
    let topics =
        DestinationRule { pattern: "news.>".into(), topic: Some(true), ..DestinationRule::default() };
    let bounded = DestinationRule {
        pattern: "news.eu".into(),
        topic: Some(true),
        messages_max: Some(1000),
        prefetch: Some(PrefetchRule::Limit(7)),
        ..DestinationRule::default()
    };
    vec![topics, bounded]
}

fn attach(
    world: &mut World,
    shard: usize,
    (name, topic): (&str, &str),
    durable: bool,
    capabilities: &[&'static str],
) -> (usize, LinkId) {
    let client = world.connect(shard);
    let options =
        ReceiverOptions { durable, capabilities: capabilities.to_vec(), ..ReceiverOptions::default() };
    let link = world.clients[client].attach_receiver(name, topic, &options);
    world.run();
    (client, link)
}

fn publish(world: &mut World, shard: usize, topic: &str, count: usize) {
    let client = world.connect(shard);
    let sender = world.clients[client].attach_sender("p", topic, &SenderOptions::default());
    world.run();
    for n in 0..count {
        world.clients[client].send(sender, &n.to_string());
    }
    world.run();
}

fn query(operator: &mut Operator, world: &mut World, kind: &str, names: &[&str]) -> Vec<String> {
    let of_kind = [("entityType", Value::String(kind))];
    let names = [("attributeNames", Item::Texts(names))];
    let answer = operator.ask(world, "QUERY", ("", ""), &of_kind, &names);
    assert_eq!(answer.status, 200, "{answer:?}");
    let rows = (0..).map(|n| answer.at(&format!("results.{n}")));
    let mut rows: Vec<String> = rows.take_while(|row| row != "null").collect();
    rows.sort();
    rows
}

const DURABLE: &str = "corelane.subscription.durable.container.client/inbox";
const SHARED: &str = "corelane.subscription.volatile.container.client/pool";
const SHARED_DURABLE: &str = "corelane.subscription.durable.global/all%2Fof us";

/// One of each kind, on different shards, all with 3 messages.
fn subscribe_to_news(world: &mut World) -> Vec<(usize, LinkId)> {
    let shards = world.shards.len();
    let attached = vec![
        attach(world, 0, ("mine", "topic://news.*"), false, &[]),
        attach(world, 1 % shards, ("mine", "topic://news.eu"), false, &[]),
        attach(world, 2 % shards, ("inbox", "news.eu"), true, &[]),
        attach(world, 0, ("pool", "news.eu"), false, &["shared"]),
        attach(world, 1 % shards, ("pool|2", "news.eu"), false, &["shared"]),
        attach(world, 1 % shards, ("all/of us|global", "topic://#"), true, &["shared", "global"]),
    ];
    publish(world, shards - 1, "news.eu", 3);
    attached
}

#[test]
fn topics_are_those_of_rules_and_of_bindings() {
    for shards in [1, 3] {
        let mut world = World::new(&Setup { rules: rules(), ..Setup::new(shards) });
        let mut operator = Operator::new(&mut world, shards - 1);
        let columns = ["name", "subscriptions", "receivers", "by-rule", "pattern", "messages-max"];
        let list = |operator: &mut Operator, world: &mut World| query(operator, world, "topic", &columns);
        let by_rules = ["[news.>, 0, null, true, true, null]", "[news.eu, 0, 0, true, false, 1000]"];
        assert_eq!(list(&mut operator, &mut world), by_rules);
        let attached = subscribe_to_news(&mut world);
        assert_eq!(
            list(&mut operator, &mut world),
            [
                "[#, 1, null, false, true, null]",
                "[news.*, 1, null, true, true, null]",
                "[news.>, 0, null, true, true, null]",
                "[news.eu, 3, 5, true, false, 1000]",
            ]
        );
        let read = operator.ask(&mut world, "READ", ("topic", "topic://news.eu"), &[], &[]);
        assert_eq!((read.status, read.at("name"), read.at("prefetch")), (200, "news.eu".into(), "7".into()));
        assert_eq!((read.at("subscriptions"), read.at("receivers")), ("3".into(), "5".into()));
        // Nobody has named it, but what is published to it is received.
        let read = operator.ask(&mut world, "READ", ("topic", "weather"), &[], &[]);
        assert_eq!((read.at("subscriptions"), read.at("receivers")), ("0".into(), "1".into()));
        for operation in ["CREATE", "UPDATE", "DELETE"] {
            let refused = operator.ask(&mut world, operation, ("topic", "news.eu"), &[], &[]);
            assert_eq!(refused.status, 501, "{refused:?}");
            assert!(refused.description.contains("while it has subscriptions"), "{refused:?}");
        }
        assert_eq!(operator.ask(&mut world, "READ", ("topic", "a..b"), &[], &[]).status, 400);
        assert_eq!(operator.ask(&mut world, "PURGE", ("topic", "a"), &[], &[]).status, 501);
        let of_topics = [("entityType", Value::String("topic"))];
        let names = operator.ask(&mut world, "GET-ATTRIBUTES", ("", ""), &of_topics, &[]);
        assert!(names.body.contains("receivers") && names.body.contains("dead-letter"), "{}", names.body);
        for (client, link) in attached {
            world.clients[client].detach(link);
        }
        world.run();
        assert_eq!(list(&mut operator, &mut world), by_rules);
        assert_eq!(operator.ask(&mut world, "READ", ("topic", "weather"), &[], &[]).status, 404);
        // A temporary one is there as long as its link.
        let client = world.connect(0);
        let temporary =
            SenderOptions { dynamic: true, capabilities: vec!["topic"], ..SenderOptions::default() };
        let link = world.clients[client].attach_sender("t", "", &temporary);
        world.run();
        let temporary = query(&mut operator, &mut world, "topic", &["temporary"]);
        assert_eq!(temporary, ["[false]", "[false]", "[true]"]);
        world.clients[client].detach(link);
        world.run();
        assert_eq!(list(&mut operator, &mut world), by_rules);
    }
}

#[test]
fn subscriptions_are_read_wherever_they_live() {
    for shards in [1, 3] {
        let mut world = World::new(&Setup { rules: rules(), ..Setup::new(shards) });
        let mut operator = Operator::new(&mut world, shards - 1);
        let attached = subscribe_to_news(&mut world);
        let columns =
            ["kind", "topic", "container-id", "subscription", "consumers", "messages", "messages-max"];
        assert_eq!(
            query(&mut operator, &mut world, "subscription", &columns),
            [
                "[durable, news.eu, client, inbox, 1, 3, 1000]",
                "[own, news.*, client, mine, 1, 3, null]",
                "[own, news.eu, client, mine, 1, 3, 1000]",
                "[shared, news.eu, client, pool, 2, 3, 1000]",
                "[shared-durable, #, null, all/of us, 1, 3, null]",
            ]
        );
        let read = operator.ask(&mut world, "READ", ("subscription", SHARED_DURABLE), &[], &[]);
        assert_eq!(
            (read.status, read.at("messages-in"), read.at("no-local")),
            (200, "3".into(), "false".into())
        );
        // Its queue has the properties of its topic, too.
        let read = operator.ask(&mut world, "READ", ("queue", DURABLE), &[], &[]);
        assert_eq!((read.at("kind"), read.at("messages-max")), ("subscription".into(), "1000".into()));
        for name in ["nobody", "corelane.subscription.durable.global/x"] {
            for operation in ["READ", "DELETE", "PURGE"] {
                let unknown = operator.ask(&mut world, operation, ("subscription", name), &[], &[]);
                assert_eq!(unknown.status, 404, "{operation} {unknown:?}");
            }
        }
        // A queue is none.
        let queue = name_at(0, shards);
        operator.ask(&mut world, "CREATE", ("queue", &queue), &[], &[]);
        assert_eq!(operator.ask(&mut world, "DELETE", ("subscription", &queue), &[], &[]).status, 404);
        assert_eq!(operator.ask(&mut world, "CREATE", ("subscription", "x"), &[], &[]).status, 501);
        // One that nobody is attached to is still there, and its messages.
        let (client, link) = attached[2];
        world.clients[client].suspend(link);
        world.run();
        let read = operator.ask(&mut world, "READ", ("subscription", DURABLE), &[], &[]);
        assert_eq!((read.at("consumers"), read.at("messages")), ("0".into(), "3".into()));
    }
}

#[test]
fn an_operator_ends_subscriptions_of_all_kinds() {
    for shards in [1, 3] {
        let mut world = World::new(&Setup { rules: rules(), ..Setup::new(shards) });
        let mut operator = Operator::new(&mut world, 0);
        let attached = subscribe_to_news(&mut world);
        let names = query(&mut operator, &mut world, "subscription", &["name"]);
        assert_eq!(names.len(), 5);
        for name in &names {
            let name = name.trim_matches(['[', ']']);
            let ended = operator.ask(&mut world, "DELETE", ("subscription", name), &[], &[]);
            assert_eq!((ended.status, &*ended.body), (204, "{}"), "{name}");
            assert_eq!(operator.ask(&mut world, "READ", ("subscription", name), &[], &[]).status, 404);
        }
        for (client, link) in attached {
            let ended = (link, Some("amqp:resource-deleted".to_owned()));
            assert_eq!(world.clients[client].detached, [ended]);
        }
        // Their bindings are gone, too.
        assert_eq!(query(&mut operator, &mut world, "topic", &["subscriptions"]), ["[0]", "[0]"]);
    }
}

#[test]
fn what_is_done_to_the_messages_of_queues_is_done_to_those_of_subscriptions() {
    for shards in [1, 3] {
        let mut world = World::new(&Setup { rules: rules(), ..Setup::new(shards) });
        let mut operator = Operator::new(&mut world, 0);
        subscribe_to_news(&mut world);
        let target = name_at(shards - 1, shards);
        let mut ask = |operation: &str, kind: &str, name: &str, properties: &[(&str, Value<'_>)]| -> Answer {
            let answer = operator.ask(&mut world, operation, (kind, name), properties, &[]);
            assert_eq!(answer.status, 200, "{operation} {name}: {answer:?}");
            answer
        };
        assert_eq!(ask("PEEK", "subscription", SHARED, &[]).at("messages.2.body"), "2");
        let said = ask("EXPLAIN", "subscription", SHARED, &[]);
        assert_eq!(said.at("summary"), "Nobody takes the first message: of 2 consumers, 2 without credit.");
        let to = ("to", Value::String(&target));
        assert_eq!(ask("MOVE", "queue", SHARED, &[to, ("count", Value::Uint(2))]).at("count"), "2");
        assert_eq!(ask("COPY", "subscription", SHARED_DURABLE, &[to]).at("count"), "3");
        assert_eq!(ask("PURGE", "subscription", SHARED_DURABLE, &[]).at("count"), "3");
        assert_eq!(ask("READ", "queue", &target, &[]).at("messages"), "5");
        let back = ("to", Value::String(SHARED));
        assert_eq!(ask("MOVE", "queue", &target, &[back]).at("count"), "5");
        assert_eq!(ask("READ", "subscription", SHARED, &[]).at("messages"), "6");
    }
}

/// A client with a coordinator's link, and a transaction of it.
fn declare(world: &mut World, shard: usize) -> (usize, LinkId, u32) {
    let client = world.connect(shard);
    let coordinator = world.clients[client].attach_coordinator("txn", &[]);
    world.run();
    let number = declare_another(world, client, coordinator);
    (client, coordinator, number)
}

fn declare_another(world: &mut World, client: usize, coordinator: LinkId) -> u32 {
    let token = world.clients[client].declare(coordinator);
    world.run();
    let outcome = world.clients[client].outcome(token).expect("a declare is answered");
    outcome.strip_prefix("declared ").expect("there is room").parse().expect("a number")
}

fn discharge(world: &mut World, client: usize, coordinator: LinkId, number: u32, fail: bool) -> String {
    let token = world.clients[client].discharge(coordinator, number, fail);
    world.run();
    world.clients[client].outcome(token).unwrap_or("nothing").to_owned()
}

#[test]
fn a_request_inside_a_transaction_is_refused() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup::new(shards));
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(shards - 1, shards);
        let (client, coordinator, number) = declare(&mut world, 0);
        let sender = world.clients[client].attach_sender("s", &name, &SenderOptions::default());
        let requests = world.clients[client].attach_sender("r", "$management", &SenderOptions::default());
        world.run();
        let stored = world.clients[client].send_in(sender, number, "1");
        let create = [
            ("operation", Value::String("CREATE")),
            ("type", Value::String("queue")),
            ("name", Value::String("made")),
        ];
        let bytes = request(&name, 1, &create, &[]);
        let refused = world.clients[client].send_bytes_in(requests, number, &bytes);
        world.run();
        let outcome = |token| world.clients[client].outcome(token).unwrap_or("nothing").to_owned();
        assert_eq!(outcome(stored), format!("accepted in {number}"));
        assert_eq!(outcome(refused), format!("rejected amqp:not-implemented in {number}"));
        assert_eq!(
            discharge(&mut world, client, coordinator, number, false),
            "rejected amqp:transaction:rollback"
        );
        assert_eq!(operator.ask(&mut world, "READ", ("queue", "made"), &[], &[]).status, 404);
        let read = operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
        assert_eq!((read.at("messages"), read.at("pending")), ("0".into(), "0".into()));
        // Outside it is served, and the link has its credit.
        let served = world.clients[client].send_bytes(requests, &bytes);
        world.run();
        assert_eq!(world.clients[client].outcome(served), Some("accepted"));
        assert_eq!(operator.ask(&mut world, "READ", ("queue", "made"), &[], &[]).status, 200);
        assert_eq!(world.shards[0].requests_in_service(), 0);
    }
}

#[test]
fn settlements_inside_transactions_are_timed_when_they_commit() {
    for (shards, shard) in [(1, 0), (2, 1)] {
        for settles_second in [false, true] {
            let mut world = World::new(&Setup::new(shards));
            let mut operator = Operator::new(&mut world, 0);
            let name = name_at(shard, shards);
            publish(&mut world, 0, &name, 4);
            let (client, coordinator, number) = declare(&mut world, 0);
            let options = ReceiverOptions { settles_second, ..ReceiverOptions::default() };
            let link = world.clients[client].attach_receiver("r", &name, &options);
            world.run();
            world.clients[client].credit(link, 4);
            world.run();
            let ids: Vec<u32> = world.clients[client].received.iter().map(|it| it.delivery_id).collect();
            world.advance(3_000);
            for id in &ids[..2] {
                world.clients[client].settle_in(link, *id, number, Outcome::Accepted);
            }
            world.run();
            world.advance(4_000);
            let mut read = || operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
            assert_eq!(read().at("settle-latency-us"), "null");
            assert_eq!(discharge(&mut world, client, coordinator, number, false), "accepted");
            let mut read = || operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
            let after = read();
            assert_eq!((after.at("settle-latency-us.count"), after.at("accepted")), ("2".into(), "2".into()));
            let median: f64 = after.at("settle-latency-us.p50").parse().expect("a number");
            assert!((6_800.0..=7_200.0).contains(&median), "{median}");
            // Rolled back, nothing was settled.
            let number = declare_another(&mut world, client, coordinator);
            for id in &ids[2..] {
                world.clients[client].settle_in(link, *id, number, Outcome::Accepted);
            }
            world.run();
            assert_eq!(discharge(&mut world, client, coordinator, number, true), "accepted");
            let read = operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
            assert_eq!(read.at("settle-latency-us.count"), "2");
        }
    }
}

#[test]
fn wake_ups_are_counted_by_queue() {
    let mut world = World::new(&Setup::new(1));
    let mut operator = Operator::new(&mut world, 0);
    let read = |operator: &mut Operator, world: &mut World, queue: &str| {
        let read = operator.ask(world, "READ", ("queue", queue), &[], &[]);
        (read.at("wake-ups"), read.at("wake-ups-per-delivery"))
    };
    let mut clients = Vec::new();
    for queue in ["busy", "quiet"] {
        for n in 0..5 {
            let client = world.connect(0);
            let link =
                world.clients[client].attach_receiver(&n.to_string(), queue, &ReceiverOptions::default());
            world.clients[client].credit(link, 100);
            world.clients[client].accepts = true;
            clients.push(client);
        }
    }
    world.run();
    let sender = world.connect(0);
    let link = world.clients[sender].attach_sender("s", "busy", &SenderOptions::default());
    world.run();
    for n in 0..20 {
        world.clients[sender].send(link, &n.to_string());
        world.run();
    }
    // One consumer for each message, and nobody else.
    assert_eq!(read(&mut operator, &mut world, "busy"), ("20".into(), "1".into()));
    assert_eq!(read(&mut operator, &mut world, "quiet"), ("0".into(), "null".into()));
}

#[test]
fn consumers_are_read_with_their_links_wherever_their_connections_are() {
    for shards in [1, 3] {
        let mut world = World::new(&Setup::new(shards));
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(0, shards);
        // A connection with a consumer at home stays there.
        for shard in 0..shards {
            let client = world.connect(shard);
            let near = other_at(shard, shards);
            world.clients[client].attach_receiver("near", &near, &ReceiverOptions::default());
            let far = format!("from {shard}");
            let link = world.clients[client].attach_receiver(&far, &name, &ReceiverOptions::default());
            world.run();
            world.clients[client].credit(link, 10 + shard as u32);
        }
        world.run();
        let of_queue = [("entityType", Value::String("consumer")), ("pattern", Value::String(&name))];
        let names = [("attributeNames", Item::Texts(&["link", "credit", "name", "container-id", "queue"]))];
        let listed = operator.ask(&mut world, "QUERY", ("", ""), &of_queue, &names);
        let mut seen = Vec::new();
        for n in 0..shards {
            let at = |column: usize| listed.at(&format!("results.{n}.{column}"));
            assert_eq!((at(3), at(4)), ("client".into(), name.clone()));
            seen.push((at(0), at(1)));
            let read = operator.ask(&mut world, "READ", ("consumer", &at(2)), &[], &[]);
            assert_eq!(
                (read.status, read.at("link"), read.at("credit"), read.at("container-id"), read.at("queue")),
                (200, at(0), at(1), "client".into(), name.clone())
            );
        }
        seen.sort();
        let expect = (0..shards).map(|shard| (format!("from {shard}"), (10 + shard).to_string()));
        assert_eq!(seen, expect.collect::<Vec<_>>());
        // A shard that stalls costs what it knows, not the listing.
        if shards == 3 {
            world.stall(2, true);
            let page = [of_queue[0], of_queue[1], ("count", Value::Uint(3))];
            let number = operator.send(&mut world, "QUERY", ("", ""), &page, &names);
            world.run();
            assert_eq!(operator.answers(&world), []);
            world.advance(5_500_000);
            let answers = operator.answers(&world);
            assert_eq!((answers.len(), answers[0].number, answers[0].status), (1, number, 200));
            let links: Vec<String> = (0..3).map(|n| answers[0].at(&format!("results.{n}.0"))).collect();
            assert_eq!(links.iter().filter(|link| *link == "null").count(), 1, "{links:?}");
        }
    }
}

#[test]
fn nothing_is_settled_for_a_subscription_that_ended_meanwhile() {
    let mut world = World::new(&Setup::new(1));
    let mut operator = Operator::new(&mut world, 0);
    let (client, coordinator, number) = declare(&mut world, 0);
    let link = world.clients[client].attach_receiver("s", "topic://t", &ReceiverOptions::default());
    world.run();
    world.clients[client].credit(link, 1);
    publish(&mut world, 0, "topic://t", 1);
    let id = world.clients[client].received[0].delivery_id;
    world.clients[client].settle_in(link, id, number, Outcome::Accepted);
    world.run();
    let name = query(&mut operator, &mut world, "subscription", &["name"]).remove(0);
    let name = name.trim_matches(['[', ']']).to_owned();
    assert_eq!(operator.ask(&mut world, "DELETE", ("subscription", &name), &[], &[]).status, 204);
    // Another queue has its place now, with figures of its own.
    publish(&mut world, 0, "heir", 1);
    let (heir, link) = attach(&mut world, 0, ("r", "heir"), false, &[]);
    world.clients[heir].credit(link, 1);
    world.run();
    world.advance(1_000);
    let id = world.clients[heir].received[0].delivery_id;
    world.clients[heir].settle(link, id, &DeliveryState::Accepted);
    world.run();
    let before = operator.ask(&mut world, "READ", ("queue", "heir"), &[], &[]);
    assert_eq!(before.at("settle-latency-us.count"), "1");
    discharge(&mut world, client, coordinator, number, false);
    let after = operator.ask(&mut world, "READ", ("queue", "heir"), &[], &[]);
    assert_eq!(after.at("settle-latency-us"), before.at("settle-latency-us"));
}

#[test]
fn what_a_shard_says_too_late_of_links_is_not_taken_for_others() {
    const CONSUMERS: usize = 300;
    let mut world = World::new(&Setup { verify: false, ..Setup::new(2) });
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(0, 2);
    // Their connections live on the other shard, where something holds them.
    for _ in 0..3 {
        let client = world.connect(1);
        world.clients[client].attach_receiver("near", &other_at(1, 2), &ReceiverOptions::default());
        world.run();
        for n in 0..CONSUMERS / 3 {
            let link =
                world.clients[client].attach_receiver(&n.to_string(), &name, &ReceiverOptions::default());
            world.clients[client].credit(link, 1 + n as u32);
        }
        world.run();
    }
    let of_queue = [
        ("entityType", Value::String("consumer")),
        ("pattern", Value::String(&name)),
        ("count", Value::Uint(CONSUMERS as u32)),
    ];
    let names = [("attributeNames", Item::Texts(&["name", "link", "credit"]))];
    let rows = |answer: &Answer| -> Vec<[String; 3]> {
        (0..CONSUMERS).map(|n| [0, 1, 2].map(|column| answer.at(&format!("results.{n}.{column}")))).collect()
    };
    let right = rows(&operator.ask(&mut world, "QUERY", ("", ""), &of_queue, &names));
    assert!(
        right.iter().all(|[_, link, credit]| link.parse::<u32>().ok().map(|n| (n + 1).to_string()).as_ref()
            == Some(credit))
    );
    world.stall(1, true);
    operator.send(&mut world, "QUERY", ("", ""), &of_queue, &names);
    world.run();
    world.advance(5_500_000);
    assert_eq!(operator.answers(&world), []);
    world.stall(1, false);
    world.run();
    let got = rows(&operator.answers(&world)[0]);
    let unknown = got.iter().filter(|[_, link, _]| link == "null").count();
    assert!((1..CONSUMERS).contains(&unknown), "{unknown}");
    for ([name, link, credit], right) in got.into_iter().zip(right) {
        assert!(link == "null" || [name, link, credit] == right, "{right:?}");
    }
}

#[test]
fn a_page_of_consumers_ends_by_the_size_of_their_links_names_too() {
    const CONSUMERS: usize = 300;
    let mut world = World::new(&Setup { verify: false, ..Setup::new(2) });
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(0, 2);
    for _ in 0..3 {
        let client = world.connect(1);
        world.clients[client].attach_receiver("near", &other_at(1, 2), &ReceiverOptions::default());
        world.run();
        for n in 0..CONSUMERS / 3 {
            let link = format!("{n:08000}");
            world.clients[client].attach_receiver(&link, &name, &ReceiverOptions::default());
            world.run();
        }
    }
    let of_queue = [("entityType", Value::String("consumer")), ("pattern", Value::String(&name))];
    let names = [("attributeNames", Item::Texts(&["link"]))];
    let page = operator.ask(&mut world, "QUERY", ("", ""), &of_queue, &names);
    let count = |page: &Answer| page.property("count").and_then(|count| count.parse::<usize>().ok());
    let first = count(&page).expect("a count");
    assert!((100..CONSUMERS).contains(&first), "{first}");
    assert_eq!(page.at("results.0.0").len(), 8000);
    let next = page.property("next").expect("there are more");
    let rest = [of_queue[0], of_queue[1], ("from", Value::String(&next))];
    let page = operator.ask(&mut world, "QUERY", ("", ""), &rest, &names);
    assert_eq!(count(&page), Some(CONSUMERS - first));
}

#[test]
fn a_refused_attach_leaves_no_temporary_topic_behind() {
    let mut world = World::new(&Setup::new(2));
    let mut operator = Operator::new(&mut world, 0);
    for shard in 0..2 {
        let client = world.connect(shard);
        let options = ReceiverOptions {
            dynamic: true,
            capabilities: vec!["temporary-topic", "shared"],
            ..ReceiverOptions::default()
        };
        let link = world.clients[client].attach_receiver(&"long".repeat(500), "", &options);
        world.run();
        assert_eq!(world.clients[client].detached, [(link, Some("amqp:invalid-field".to_owned()))]);
        assert_eq!(query(&mut operator, &mut world, "topic", &["name"]), [""; 0]);
    }
}
