//! What the node tells of queues, connections and consumers, and how it refuses.

use corelane_shard::limits::ANSWERS_KEPT_BYTES_MAX;
use corelane_sim::{
    Answer, ExchangeKind, Item, Operator, ReceiverOptions, SenderOptions, Setup, World, request,
};
use corelane_wire::amqp10::{Header, MapWriter, MessageId, Properties, Value, write_amqp_value};

use crate::{consume, fill, name_at, other_at, peek_bodies, world};

#[test]
fn queues_are_made_read_changed_and_deleted_wherever_they_live() {
    for shards in 1..=4 {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        for shard in 0..shards {
            let name = name_at(shard, shards);
            let queue = ("queue", &*name);
            let made = operator.ask(
                &mut world,
                "CREATE",
                ("org.corelane.queue", &name),
                &[],
                &[("exclusive", Item::Value(Value::Boolean(true)))],
            );
            assert_eq!((made.status, &*made.description), (201, "Created"));
            assert_eq!((made.at("name"), made.at("exclusive")), (name.clone(), "true".to_owned()));
            assert_eq!(made.at("shard"), shard.to_string());
            let again = operator.ask(&mut world, "CREATE", queue, &[], &[]);
            assert_eq!(again.status, 409, "{again:?}");
            fill(&mut world, &name, 3);
            let read = operator.ask(&mut world, "READ", queue, &[], &[]);
            assert_eq!((read.at("messages"), read.at("messages-in")), ("3".to_owned(), "3".to_owned()));
            assert_eq!(read.at("overrides.exclusive"), "true");
            let changed = operator.ask(
                &mut world,
                "UPDATE",
                queue,
                &[],
                &[("consumers-max", Item::Value(Value::Uint(2))), ("exclusive", Item::Value(Value::Null))],
            );
            assert_eq!((changed.status, changed.at("consumers-max")), (200, "2".to_owned()), "{changed:?}");
            assert_eq!(changed.at("overrides"), "{consumers-max: 2}");
            let gone = operator.ask(&mut world, "DELETE", queue, &[], &[]);
            assert_eq!((gone.status, &*gone.body), (204, "{}"));
            assert_eq!(operator.ask(&mut world, "READ", queue, &[], &[]).status, 404);
            assert_eq!(operator.ask(&mut world, "DELETE", queue, &[], &[]).status, 404);
            assert_eq!(operator.ask(&mut world, "PURGE", queue, &[], &[]).status, 404);
        }
        assert_eq!(world.shards.iter().map(|shard| shard.counters().requests_refused).sum::<u64>(), 0);
    }
}

#[test]
fn what_cannot_be_done_is_said_with_a_reason() {
    let mut world = world(2);
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(1, 2);
    fill(&mut world, &name, 1);
    let mut check =
        |operation: &str, entity, properties: &[(&str, Value<'_>)], body: &[(&str, Item<'_>)], expect| {
            let answer = operator.ask(&mut world, operation, entity, properties, body);
            let got = format!("{} {}", answer.status, answer.description);
            assert!(got.starts_with(expect), "{operation} {entity:?}: {got}");
        };
    let queue = ("queue", &*name);
    check("FROB", queue, &[], &[], "501 a queue has no operation \"FROB\"");
    check("UPDATE", ("connection", "0-1"), &[], &[], "501 a connection has no operation");
    check(
        "READ",
        ("org.amqp.management", "self"),
        &[],
        &[],
        "501 the management node has no operation \"READ\"",
    );
    check("READ", ("goat", "x"), &[], &[], "404 there is no type \"goat\"");
    check("READ", ("connection", "0-99999"), &[], &[], "404 there is no connection");
    check("READ", ("connection", "nonsense"), &[], &[], "404 there is no connection");
    check("READ", ("consumer", "0-0-99"), &[], &[], "404 there is no consumer");
    check("READ", ("consumer", "77-0-0"), &[], &[], "404 there is no shard 77");
    check("READ", ("shard", "9"), &[], &[], "404 there is no shard 9");
    check("READ", ("queue", ""), &[], &[], "400 the application property `name`");
    check("READ", ("queue", "a\nb"), &[], &[], "400 \"a\\nb\" is not the name of a queue");
    check(
        "CREATE",
        ("queue", "$management"),
        &[],
        &[],
        "400 \"$management\" is a name that only the broker gives",
    );
    check("CREATE", ("queue", "corelane.dynamic.1"), &[], &[], "400");
    check("CREATE", ("queue", "new"), &[], &[("goat", Item::Value(Value::Uint(1)))], "400");
    check("READ", ("queue", "new"), &[], &[], "404");
    check("UPDATE", queue, &[], &[("exclusive", Item::Texts(&["x"]))], "400");
    check("MOVE", queue, &[], &[], "400 `to` is missing");
    check("MOVE", queue, &[("to", Value::String(&name))], &[], "400 `to` has to be another queue");
    check("COPY", queue, &[("to", Value::Uint(3))], &[], "400 `to` has to be a string");
    check("DELETE-MESSAGES", queue, &[], &[], "400 say which messages");
    check("DELETE-MESSAGES", queue, &[("selector", Value::String("n ="))], &[], "400 selector: ");
    check(
        "DELETE-MESSAGES",
        queue,
        &[],
        &[("ids", Item::Texts(&["twelve"]))],
        "400 \"twelve\" is not the place",
    );
    check(
        "PEEK",
        queue,
        &[("from", Value::String("99:1"))],
        &[],
        "400 `from` has to be the place of a message",
    );
    check("PEEK", queue, &[("count", Value::Int(-1))], &[], "400 `count` has to be a number");
    check("PEEK", queue, &[("count", Value::Boolean(true))], &[], "400 `count` has to be a number");
    check("PEEK", queue, &[("count", Value::Ulong(u64::MAX))], &[], "200");
    check("QUERY", ("", ""), &[("entityType", Value::String("goat"))], &[], "404 there is no type");
    check("QUERY", ("", ""), &[("from", Value::String("1.2"))], &[], "400 `from` has to be the `next`");
    check("QUERY", ("", ""), &[("count", Value::String("many"))], &[], "400 `count` has to be a number");
    check(
        "QUERY",
        ("", ""),
        &[],
        &[("attributeNames", Item::Value(Value::Uint(1)))],
        "400 `attributeNames` has to be",
    );
}

#[test]
fn bodies_that_are_no_maps_and_requests_that_are_none() {
    let mut world = world(1);
    let operator = Operator::new(&mut world, 0);
    let client = operator.client;
    let mut check = |bytes: Vec<u8>, outcome: &str, status: Option<i64>| {
        world.clients[client].received.clear();
        world.clients[client].outcomes.clear();
        world.clients[client].send_bytes(operator.sender, &bytes);
        world.run();
        assert_eq!(world.clients[client].outcomes[0].1, outcome);
        let received = world.clients[client].received.first();
        assert_eq!(received.map(|received| Answer::read(&received.bytes).status), status);
    };
    let create = |reply_to| {
        let properties = [
            ("operation", Value::String("CREATE")),
            ("type", Value::String("queue")),
            ("name", Value::String("x")),
        ];
        let whole = request(reply_to, 1, &properties, &[]);
        // Without the empty map at its end.
        whole[..whole.len() - 6].to_vec()
    };
    let with_body = |value: &Value<'_>| {
        let mut bytes = create("answers");
        write_amqp_value(&mut bytes, value);
        bytes
    };
    check(with_body(&Value::String("a string")), "accepted", Some(400));
    check(with_body(&Value::Uint(7)), "accepted", Some(400));
    let mut not_text = Vec::new();
    let mut map = MapWriter::new(&mut not_text);
    map.pair(&Value::Uint(1), &Value::Uint(2));
    map.finish();
    let map = Value::decode(&not_text).expect("a map");
    check(with_body(&map), "accepted", Some(400));
    check(request("answers", 1, &[], &[]), "accepted", Some(400));
    check(request("answers", 1, &[("operation", Value::Uint(1))], &[]), "accepted", Some(400));
    check(vec![1, 2, 3], "rejected amqp:decode-error", None);
    let mut nowhere = Vec::new();
    write_amqp_value(&mut nowhere, &Value::Null);
    check(nowhere, "rejected amqp:precondition-failed", None);
    check(request("$management", 1, &[], &[]), "rejected amqp:precondition-failed", None);
    for reply_to in ["", "\n", "queue://", "/exchanges/a/b", "x.*", "topic://a.*"] {
        check(request(reply_to, 1, &[], &[]), "rejected amqp:precondition-failed", None);
    }
    // Answers to a queue that is gone vanish; the request is served.
    check(request("corelane.dynamic.gone", 1, &[], &[]), "accepted", None);
    let long = "x".repeat(70_000);
    check(request("answers", 1, &[("operation", Value::String(&long))], &[]), "accepted", Some(400));
    check(with_body(&Value::Null), "accepted", Some(201));
    // The link still has its credit.
    assert!(world.clients[client].credit_left(operator.sender) > 8);
}

/// A reply-to at which nobody reads takes no more answers, wherever it is.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { verify: false, ..Setup::new(shards) });
        let operator = Operator::new(&mut world, 0);
        let unread = name_at(shards - 1, shards);
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &unread, &SenderOptions::default());
        let body = "x".repeat(1 << 20);
        while world.shards.iter().map(corelane_shard::Shard::memory_used).sum::<u64>()
            <= ANSWERS_KEPT_BYTES_MAX + (1 << 20)
        {
            world.clients[client].send(sender, &body);
            world.run();
        }
        let home = &world.shards[shards - 1];
        let queue = home.queue(&unread).expect("it is there");
        let before = home.engine().depth(queue);
        let refused = home.counters().forwards_refused_full;
        for number in 0..10 {
            let bytes = request(&unread, number, &[("operation", Value::String("GET-MGMT-NODES"))], &[]);
            world.clients[operator.client].send_bytes(operator.sender, &bytes);
            world.run();
        }
        let home = &world.shards[shards - 1];
        assert_eq!(home.engine().depth(queue), before);
        let expect = if shards == 1 { "rejected amqp:resource-limit-exceeded" } else { "accepted" };
        let outcomes = &world.clients[operator.client].outcomes;
        assert!(outcomes.iter().all(|(_, outcome)| outcome == expect), "{outcomes:?}");
        assert_eq!(home.counters().forwards_refused_full - refused, if shards == 1 { 0 } else { 10 });
    }
}

#[test]
fn a_request_by_an_anonymous_link_is_answered_to_a_dynamic_node() {
    let mut world = world(2);
    let client = world.connect(0);
    let dynamic = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
    let receiver = world.clients[client].attach_receiver("r", "", &dynamic);
    let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
    let sender = world.clients[client].attach_sender("s", "", &options);
    world.run();
    world.clients[client].credit(receiver, 10);
    let reply_to = world.clients[client].addresses[0].1.clone();
    let mut bytes = Vec::new();
    let properties = Properties {
        to: Some("$management"),
        reply_to: Some(&reply_to),
        message_id: Some(MessageId::Ulong(1)),
        correlation_id: Some(MessageId::Ulong(55)),
        ..Properties::default()
    };
    corelane_wire::amqp10::Encode::encode(&properties, &mut bytes);
    let operation = [("operation", Value::String("GET-MGMT-NODES"))];
    corelane_wire::amqp10::write_application_properties(&mut bytes, &operation);
    write_amqp_value(&mut bytes, &Value::Null);
    world.clients[client].send_bytes(sender, &bytes);
    world.run();
    let answer = Answer::read(&world.clients[client].received[0].bytes);
    assert_eq!((answer.number, answer.status, &*answer.body), (55, 200, "[$management]"));
}

#[test]
fn queries_are_paged_over_all_shards() {
    for shards in [1, 3] {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        let client = world.connect(0);
        for n in 0..600 {
            let name = format!("many.{n:03}");
            world.clients[client].attach_sender(&name, &name, &SenderOptions::default());
        }
        fill(&mut world, "other", 1);
        world.run();
        let of_queues = ("entityType", Value::String("queue"));
        let pattern = ("pattern", Value::String("many.*"));
        let names = [("attributeNames", Item::Texts(&["name", "messages", "goats"]))];
        let ask = |operator: &mut Operator, world: &mut World, more: &[(&str, Value<'_>)]| {
            let mut properties = vec![of_queues, pattern];
            properties.extend_from_slice(more);
            operator.ask(world, "QUERY", ("", ""), &properties, &names)
        };
        let all = ask(&mut operator, &mut world, &[]);
        assert_eq!((all.status, all.property("count")), (200, Some("600".to_owned())));
        assert_eq!(all.property("next"), None);
        assert_eq!(all.at("attributeNames"), "[name, messages, goats]");
        let rows = |answer: &Answer| -> Vec<String> {
            (0..600).map(|n| answer.at(&format!("results.{n}.0"))).take_while(|name| name != "null").collect()
        };
        let expect = rows(&all);
        assert_eq!(all.at("results.0").split(", ").skip(1).collect::<Vec<_>>(), ["0", "null]"]);
        // By offset, and by where the page before had ended.
        let mut paged = Vec::new();
        while paged.len() < 600 {
            let offset = ("offset", Value::Uint(paged.len() as u32));
            let page = ask(&mut operator, &mut world, &[offset, ("count", Value::Uint(70))]);
            paged.extend(rows(&page));
        }
        assert_eq!(paged, expect);
        let (mut paged, mut next) = (Vec::new(), None);
        loop {
            let from: Option<String> = next;
            let from = from.as_deref().map(|text| ("from", Value::String(text)));
            let mut more = vec![("count", Value::Uint(70))];
            more.extend(from);
            let page = ask(&mut operator, &mut world, &more);
            paged.extend(rows(&page));
            next = page.property("next");
            if next.is_none() {
                break;
            }
        }
        assert_eq!(paged, expect);
        let beyond = ask(&mut operator, &mut world, &[("offset", Value::Ulong(1 << 40))]);
        assert_eq!((beyond.property("count"), beyond.at("results")), (Some("0".to_owned()), "[]".to_owned()));
        let huge = ask(&mut operator, &mut world, &[("count", Value::Ulong(u64::MAX))]);
        assert_eq!(rows(&huge), expect);
        let mut sorted = expect;
        sorted.sort();
        assert_eq!(sorted, (0..600).map(|n| format!("many.{n:03}")).collect::<Vec<_>>());
    }
}

#[test]
fn tables_say_what_there_is() {
    let mut world = world(1);
    let mut operator = Operator::new(&mut world, 0);
    let types = operator.ask(&mut world, "GET-TYPES", ("org.amqp.management", "self"), &[], &[]);
    assert!(types.body.starts_with("{org.corelane.queue: [org.amqp.manageableEntity], "), "{}", types.body);
    let of_queues = [("entityType", Value::String("org.corelane.queue"))];
    let operations = operator.ask(&mut world, "GET-OPERATIONS", ("", ""), &of_queues, &[]);
    assert!(
        operations.at("org.corelane.queue").is_empty()
            || operations.body.contains("MOVE: [to, selector, ids, count]")
    );
    let attributes = operator.ask(&mut world, "GET-ATTRIBUTES", ("", ""), &of_queues, &[]);
    assert!(attributes.body.contains("oldest-age-us") && attributes.body.contains("exclusive"));
    // Each kind can be read whole.
    let all = operator.ask(&mut world, "QUERY", ("", ""), &[], &[]);
    assert_eq!(all.status, 200);
    for kind in ["connection", "consumer", "shard"] {
        let properties = [("entityType", Value::String(kind))];
        let listed = operator.ask(&mut world, "QUERY", ("", ""), &properties, &[]);
        let name = listed.at("results.0.0");
        let read = operator.ask(&mut world, "READ", (kind, &name), &[], &[]);
        assert_eq!((read.status, read.at("name")), (200, name));
    }
}

#[test]
fn what_an_operation_does_not_take_is_refused_and_nothing_is_done() {
    let mut world = world(2);
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(1, 2);
    let queue = ("queue", &*name);
    fill(&mut world, &name, 10);
    let arguments = [
        ("selector", Item::Value(Value::String("n = 3"))),
        ("count", Item::Value(Value::Uint(2))),
        ("ids", Item::Texts(&["5"])),
        ("goat", Item::Value(Value::Boolean(true))),
    ];
    for (key, item) in &arguments {
        for operation in ["PURGE", "DELETE", "READ", "EXPLAIN", "PEEK"] {
            if *key == "count" && matches!(operation, "EXPLAIN" | "PEEK") {
                continue;
            }
            let answer = operator.ask(&mut world, operation, queue, &[], &[(key, item.clone())]);
            let expect = format!("{operation} takes no {key:?}: ");
            assert!(answer.status == 400 && answer.description.starts_with(&expect), "{answer:?}");
            assert_eq!(
                answer.description.contains("DELETE-MESSAGES"),
                matches!(operation, "PURGE" | "DELETE"),
                "{answer:?}",
            );
        }
    }
    // Arguments may be application properties, too; what else is there is the client's own affair.
    let as_property = [("selector", Value::String("n = 3"))];
    assert_eq!(operator.ask(&mut world, "PURGE", queue, &as_property, &[]).status, 400);
    assert_eq!(operator.ask(&mut world, "UPDATE", queue, &as_property, &[]).status, 400);
    let strange = [("to", Item::Value(Value::String("x")))];
    assert_eq!(operator.ask(&mut world, "DELETE-MESSAGES", queue, &[], &strange).status, 400);
    assert_eq!(operator.ask(&mut world, "QUERY", ("", ""), &[], &strange).status, 400);
    assert_eq!(peek_bodies(&mut operator, &mut world, &name).len(), 10);
    let two = [("count", Item::Value(Value::Uint(2)))];
    assert_eq!(operator.ask(&mut world, "DELETE-MESSAGES", queue, &[], &two).at("count"), "2");
    let own = [("trace", Value::String("x"))];
    let absent = [("selector", Item::Value(Value::Null))];
    assert_eq!(operator.ask(&mut world, "PURGE", queue, &own, &absent).at("count"), "8");
}

#[test]
fn answers_come_although_the_memory_for_messages_is_full() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { memory: 100_000, ..Setup::new(shards) });
        let mut operator = Operator::new(&mut world, 0);
        let client = world.connect(0);
        let names: Vec<String> = (0..shards).map(|shard| name_at(shard, shards)).collect();
        for name in &names {
            let sender = world.clients[client].attach_sender(name, name, &SenderOptions::default());
            for size in [10_000, 1000, 100, 1] {
                for _ in 0..30 {
                    world.clients[client].send(sender, &"x".repeat(size));
                }
                world.run();
            }
        }
        for name in &names {
            let queue = ("queue", &**name);
            assert_eq!(operator.ask(&mut world, "READ", queue, &[], &[]).status, 200);
            assert_eq!(operator.ask(&mut world, "EXPLAIN", queue, &[], &[]).status, 200);
            assert_eq!(operator.ask(&mut world, "PEEK", queue, &[], &[]).status, 200);
        }
        assert_eq!(operator.ask(&mut world, "QUERY", ("", ""), &[], &[]).status, 200);
        for name in &names {
            assert_eq!(operator.ask(&mut world, "PURGE", ("queue", name), &[], &[]).status, 200);
        }
        assert!(world.shards.iter().all(|shard| shard.memory_used() == 0), "answers that were read count");
    }
}

#[test]
fn a_connection_is_closed_by_an_operator_wherever_it_is() {
    for shard in 0..3 {
        let mut world = world(3);
        let mut operator = Operator::new(&mut world, 0);
        let doomed = world.connect(shard);
        let name = format!("{shard}-{}", if shard == 0 { 2 } else { 1 });
        let read = operator.ask(&mut world, "READ", ("connection", &name), &[], &[]);
        assert_eq!(
            (read.status, read.at("shard"), read.at("container-id")),
            (200, shard.to_string(), "client".into())
        );
        let closed = operator.ask(&mut world, "DELETE", ("connection", &name), &[], &[]);
        assert_eq!(closed.status, 204, "{closed:?}");
        world.run();
        assert_eq!(world.clients[doomed].closed, Some(Some("amqp:connection:forced".to_owned())));
        assert_eq!(operator.ask(&mut world, "READ", ("connection", &name), &[], &[]).status, 404);
    }
    // Its own, too: then there is nobody to hear the answer.
    let mut world = world(1);
    let mut operator = Operator::new(&mut world, 0);
    operator.send(&mut world, "DELETE", ("connection", "0-1"), &[], &[]);
    world.run();
    assert_eq!(world.clients[operator.client].closed, Some(Some("amqp:connection:forced".to_owned())));
}

#[test]
fn a_shard_that_does_not_answer_is_named() {
    let mut world = world(2);
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(1, 2);
    fill(&mut world, &name, 1);
    world.stall(1, true);
    let number = operator.send(&mut world, "READ", ("queue", &name), &[], &[]);
    world.run();
    world.advance(4_000_000);
    assert_eq!(operator.answers(&world), []);
    world.advance(2_000_000);
    let answers = operator.answers(&world);
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(
        (answer.number, answer.status, &*answer.description),
        (number, 504, "shard 1 did not answer in time")
    );
    // What it says too late is nobody's.
    world.stall(1, false);
    world.run();
    assert_eq!(operator.answers(&world), []);
    assert_eq!(world.shards[0].counters().questions_unanswered, 1);
    assert_eq!(operator.ask(&mut world, "READ", ("queue", &name), &[], &[]).at("messages"), "1");
}

#[test]
fn requests_by_the_thousand_without_reading_are_bounded() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(2) });
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(1, 2);
    fill(&mut world, &name, 300);
    world.clients[operator.client].credit(operator.receiver, 0);
    world.run();
    world.stall(1, true);
    for _ in 0..1000 {
        operator.send(&mut world, "PEEK", ("queue", &name), &[("count", Value::Uint(300))], &[]);
    }
    world.run();
    // No more are on their way than the link has credit for.
    assert_eq!(world.shards[0].counters().requests, 16);
    world.stall(1, false);
    world.run();
    let counters = *world.shards[0].counters();
    assert_eq!(counters.requests + counters.requests_refused, 1000);
    assert!(counters.requests_refused > 500, "{counters:?}");
    let refused = ("rejected amqp:resource-limit-exceeded", counters.requests_refused);
    let outcomes = &world.clients[operator.client].outcomes;
    assert_eq!(
        (refused.0, outcomes.iter().filter(|(_, outcome)| outcome == refused.0).count() as u64),
        refused
    );
    // When they are read all is well again.
    world.clients[operator.client].credit(operator.receiver, 10_000);
    world.run();
    assert_eq!(operator.answers(&world).len() as u64, counters.requests);
    assert_eq!(operator.ask(&mut world, "READ", ("queue", &name), &[], &[]).status, 200);
}

fn explain(operator: &mut Operator, world: &mut World, name: &str) -> Answer {
    operator.ask(world, "EXPLAIN", ("queue", name), &[], &[])
}

#[test]
fn explain_says_why_nobody_takes_the_first_message() {
    for shards in [1, 2] {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(shards - 1, shards);
        fill(&mut world, &name, 2);
        assert_eq!(explain(&mut operator, &mut world, &name).at("summary"), "Nobody consumes this queue.");
        let none = ReceiverOptions { priority: Some(3), ..ReceiverOptions::default() };
        consume(&mut world, 0, &name, &none, 0);
        let picky = ReceiverOptions { selector: Some("n = 77".to_owned()), ..ReceiverOptions::default() };
        let (picky, _) = consume(&mut world, 0, &name, &picky, 9);
        // One with a first consumer elsewhere does not move to the queue, so its consumer is a target.
        let far = world.connect(0);
        world.clients[far].attach_receiver("near", &other_at(0, shards), &ReceiverOptions::default());
        let browse = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
        let browser = world.clients[far].attach_receiver("far", &name, &browse);
        world.run();
        world.clients[far].credit(browser, 50);
        world.advance(2_000_000);
        let said = explain(&mut operator, &mut world, &name);
        assert_eq!(
            said.at("summary"),
            "Nobody takes the first message: of 3 consumers, 1 without credit, 1 with a filter that does not match it, 1 only read."
        );
        let at = |consumer: usize, key: &str| said.at(&format!("consumers.{consumer}.{key}"));
        assert_eq!(
            (at(0, "list"), at(0, "reason"), at(0, "credit")),
            ("not-interested".into(), "no-credit".into(), "0".into())
        );
        assert_eq!(
            (at(0, "priority"), at(0, "head-verdict"), at(0, "link")),
            ("3".into(), "takes".into(), "consumer".into())
        );
        assert_eq!(
            (at(1, "list"), at(1, "credit"), at(1, "head-verdict")),
            ("interested".into(), "9".into(), "filtered-out".into())
        );
        assert_eq!(at(1, "filter"), "n = 77");
        assert_eq!(
            (at(2, "list"), at(2, "reason"), at(2, "link")),
            ("non-acquiring".into(), "caught-up".into(), "far".into())
        );
        assert_eq!((at(2, "credit"), at(2, "container-id")), ("48".into(), "client".into()));
        assert!(at(1, "since-us").parse::<u64>().expect("a number") >= 2_000_000);
        assert_eq!((said.at("head.state"), said.at("head.message-id")), ("available".into(), "id-0".into()));
        world.kill(picky);
        world.run();
        // A shard that stalls is part of the explanation.
        if shards == 2 {
            let mut beside = Operator::new(&mut world, 1);
            world.stall(0, true);
            beside.send(&mut world, "EXPLAIN", ("queue", &name), &[], &[]);
            world.run();
            world.advance(6_000_000);
            let said = &beside.answers(&world)[0];
            assert_eq!(
                said.at("consumers.1.problem"),
                "shard 0, where its connection lives, does not answer"
            );
        }
    }
}

#[test]
fn explain_tells_of_prefetch_groups_and_held_messages() {
    let mut world = world(1);
    let mut operator = Operator::new(&mut world, 0);
    let limit = [("prefetch", Item::Value(Value::Uint(1)))];
    operator.ask(&mut world, "CREATE", ("queue", "q"), &[], &limit);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "q", &SenderOptions::default());
    world.run();
    let group = Properties { group_id: Some("g"), ..Properties::default() };
    for body in ["1", "2"] {
        world.clients[client].send_with(sender, body, &group, &[], &Header::default());
    }
    consume(&mut world, 0, "q", &ReceiverOptions::default(), 5);
    consume(&mut world, 0, "q", &ReceiverOptions::default(), 5);
    let said = explain(&mut operator, &mut world, "q");
    assert_eq!(
        said.at("summary"),
        "Nobody takes the first message: of 2 consumers, 1 at the queue's prefetch, 1 may not: its group belongs to another."
    );
    assert_eq!(said.at("consumers.0.groups"), "[{name: g, unsettled: 1, waiting: 1}]");
    assert_eq!(said.at("head.holder"), said.at("consumers.0.name"));
    assert_eq!(said.at("consumers.1.head-verdict"), "group-of-another");
    let settled =
        operator.ask(&mut world, "DELETE-MESSAGES", ("queue", "q"), &[], &[("ids", Item::Texts(&["1"]))]);
    assert_eq!(settled.at("count"), "1");
    let said = explain(&mut operator, &mut world, "q");
    assert_eq!(
        said.at("summary"),
        "No message is available: of 1, 1 are with consumers that have not settled them, 0 are delayed, 0 are part of open transactions, or wait for the disk or for the end of a move."
    );
}

#[test]
fn times_and_bytes_are_counted() {
    for (shards, shard) in [(1, 0), (2, 1)] {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(shard, shards);
        fill(&mut world, &name, 10);
        world.advance(50_000);
        // A consumer here and one whose connection stays elsewhere.
        let client = world.connect(0);
        world.clients[client].attach_receiver("near", &other_at(0, shards), &ReceiverOptions::default());
        let link = world.clients[client].attach_receiver("far", &name, &ReceiverOptions::default());
        world.run();
        world.clients[client].credit(link, 10);
        world.run();
        let read = operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
        assert_eq!((read.at("oldest-age-us"), read.at("settle-latency-us")), ("50000".into(), "null".into()));
        world.advance(7_000);
        let ids: Vec<u32> =
            world.clients[client].received.iter().map(|received| received.delivery_id).collect();
        for id in ids {
            world.clients[client].settle(link, id, &corelane_wire::amqp10::DeliveryState::Accepted);
        }
        world.run();
        let read = operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
        assert_eq!(
            (read.at("time-in-queue-us.count"), read.at("settle-latency-us.count")),
            ("10".into(), "10".into())
        );
        let near = |path: &str, expect: f64| {
            let got: f64 = read.at(path).parse().expect("a number");
            assert!((got - expect).abs() <= expect * 0.02, "{path}: {got}");
        };
        near("time-in-queue-us.p50", 50_000.0);
        near("settle-latency-us.p99", 7_000.0);
        assert_eq!(
            (read.at("bytes-in"), read.at("deliveries"), read.at("accepted")),
            (read.at("bytes-out"), "10".into(), "10".into())
        );
        let shard = operator.ask(&mut world, "READ", ("shard", &shard.to_string()), &[], &[]);
        assert!(shard.at("wake-ups-per-delivery").parse::<f64>().expect("a number") <= 1.0, "{}", shard.body);
    }
}

#[test]
fn an_answer_that_is_late_is_not_taken_for_another_shards() {
    let mut world = world(3);
    let mut operator = Operator::new(&mut world, 2);
    let name = name_at(2, 3);
    for shard in [0, 1] {
        let client = world.connect(shard);
        world.clients[client].attach_receiver("near", &other_at(shard, 3), &ReceiverOptions::default());
        let link = format!("from {shard}");
        world.clients[client].attach_receiver(&link, &name, &ReceiverOptions::default());
        world.run();
    }
    world.stall(0, true);
    world.stall(1, true);
    operator.send(&mut world, "EXPLAIN", ("queue", &name), &[], &[]);
    world.run();
    world.advance(5_500_000);
    world.stall(0, false);
    world.run();
    assert_eq!(operator.answers(&world), []);
    world.stall(1, false);
    world.run();
    let said = &operator.answers(&world)[0];
    assert_eq!(said.at("consumers.0.problem"), "shard 0, where its connection lives, does not answer");
    assert_eq!(
        (said.at("consumers.1.link"), said.at("consumers.1.problem")),
        ("from 1".into(), "null".into())
    );
}

#[test]
fn an_answer_has_its_size_whatever_names_and_properties_are_like() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(1) });
    let mut operator = Operator::new(&mut world, 0);
    let long = "long".repeat(200);
    for n in 0..40 {
        operator.ask(&mut world, "CREATE", ("queue", &format!("{long}{n}")), &[], &[]);
    }
    let names = [("attributeNames", Item::Texts(&["name"; 200]))];
    let mut from = String::new();
    let mut count = 0;
    loop {
        let mut page = vec![("pattern", Value::String(&long))];
        if !from.is_empty() {
            page.push(("from", Value::String(&from)));
        }
        let answer = operator.ask(&mut world, "QUERY", ("queue", ""), &page, &names);
        assert_eq!(answer.status, 200, "{}", answer.description);
        assert!(answer.body.len() < 2 << 20, "{}", answer.body.len());
        count += answer.property("count").and_then(|count| count.parse::<u32>().ok()).expect("a count");
        match answer.property("next") {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(count, 40);

    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "q", &SenderOptions::default());
    world.run();
    let large = "large".repeat(200_000);
    for id in ["a", "b"] {
        let properties = Properties {
            message_id: Some(MessageId::String(id)),
            subject: Some(&large),
            ..Properties::default()
        };
        world.clients[client].send_with(sender, "body", &properties, &[], &Header::default());
    }
    world.run();
    let peek = operator.ask(&mut world, "PEEK", ("queue", "q"), &[], &[]);
    assert_eq!(
        (peek.at("messages.1.message-id"), peek.at("messages.1.subject")),
        ("b".into(), "null".into())
    );
}

#[test]
fn exchanges_and_bindings_are_listed_whichever_shard_is_asked() {
    for shard in 0..2 {
        let mut world = world(2);
        let client = world.connect_channels(1);
        let channel = world.channel_client(client).open_channel();
        world.run();
        let one = world.channel_client(client);
        one.declare_exchange(
            channel,
            "news",
            "topic",
            ExchangeKind { durable: true, ..ExchangeKind::default() },
        );
        one.declare_durable(channel, "inbox", &[]);
        one.bind(channel, "inbox", ("news", "eu.#"), &[]);
        one.bind_exchange(channel, "news", "amq.fanout", "all");
        world.run();
        let mut operator = Operator::new(&mut world, shard);
        let mut rows = |kind: &str, pattern: &str| {
            let properties = [("entityType", Value::String(kind)), ("pattern", Value::String(pattern))];
            let names = match kind {
                "exchange" => ["name", "exchange-type", "durable"],
                _ => ["source", "routing-key", "destination"],
            };
            let asked = [("attributeNames", Item::Texts(&names))];
            let listed = operator.ask(&mut world, "QUERY", ("", ""), &properties, &asked);
            assert_eq!(listed.status, 200, "{}", listed.body);
            let cell = |row: usize, column: usize| listed.at(&format!("results.{row}.{column}"));
            let shown = |row| format!("{} {} {}", cell(row, 0), cell(row, 1), cell(row, 2));
            let mut rows: Vec<String> =
                (0..9).map(shown).take_while(|row| !row.starts_with("null")).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(rows("exchange", "news"), ["news topic true"]);
        assert_eq!(rows("exchange", "amq.").len(), 5);
        assert_eq!(rows("binding", "news"), ["news all amq.fanout", "news eu.# inbox"]);
        assert_eq!(rows("binding", "inbox"), ["news eu.# inbox"]);
    }
}

#[test]
fn an_exchange_is_read_and_deleted_with_what_is_bound_to_it_on_all_shards() {
    for shard in 0..2 {
        let mut world = world(2);
        let clients = [0, 1].map(|shard| world.connect_channels(shard));
        let channels = clients.map(|client| world.channel_client(client).open_channel());
        world.run();
        let one = world.channel_client(clients[1]);
        let kind = ExchangeKind { durable: true, ..ExchangeKind::default() };
        one.declare_exchange(channels[1], "news", "topic", kind);
        one.declare_durable(channels[1], "inbox", &[]);
        one.bind(channels[1], "inbox", ("news", "eu.#"), &[]);
        one.bind_exchange(channels[1], "amq.fanout", "news", "");
        world.run();
        let mut operator = Operator::new(&mut world, shard);
        let read = operator.ask(&mut world, "READ", ("exchange", "news"), &[], &[]);
        assert_eq!((read.at("name"), read.at("exchange-type")), ("news".into(), "topic".into()));
        for (name, status) in [("", 400), ("amq.topic", 400), ("other", 404)] {
            let refused = operator.ask(&mut world, "DELETE", ("exchange", name), &[], &[]);
            assert_eq!(refused.status, status, "{name:?}: {}", refused.body);
        }
        let deleted = operator.ask(&mut world, "DELETE", ("exchange", "news"), &[], &[]);
        assert_eq!(deleted.status, 204, "{}", deleted.body);
        let read = operator.ask(&mut world, "READ", ("exchange", "news"), &[], &[]);
        assert_eq!(read.status, 404, "{}", read.body);
        let bindings = [("entityType", Value::String("binding"))];
        let listed = operator.ask(&mut world, "QUERY", ("", ""), &bindings, &[]);
        assert_eq!(listed.at("results.0"), "null", "{}", listed.body);
        for (client, channel) in clients.into_iter().zip(channels) {
            world.channel_client(client).take_seen();
            let properties = corelane_wire::amqp091::Properties::default();
            world.channel_client(client).publish_to(channel, ("news", "eu.de"), &properties, "A", false);
            world.run();
            assert_eq!(world.channel_client(client).take_seen(), ["channel closed: 404"]);
        }
    }
}
