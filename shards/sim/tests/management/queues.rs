//! What queues may be called, where they live, and what they may be given while the broker runs.

use corelane_shard::limits::DEAD_LETTER_STOPS_MAX;
use corelane_shard::{DestinationRule, OverflowRule};
use corelane_sim::{Answer, Item, Operator, ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{Header, Properties, Value};

use crate::{consume, fill, name_at, other_at};

fn rule(pattern: &str, change: impl FnOnce(&mut DestinationRule)) -> DestinationRule {
    let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
    change(&mut rule);
    rule
}

fn ruled(shards: usize, rules: Vec<DestinationRule>) -> World {
    World::new(&Setup { rules, ..Setup::new(shards) })
}

fn said(answer: &Answer) -> String {
    format!("{} {}", answer.status, answer.description)
}

#[test]
fn a_queue_has_a_name_that_messages_come_to() {
    let mut world = ruled(
        2,
        vec![
            rule("news.>", |rule| rule.topic = Some(true)),
            rule("news.plain", |rule| rule.topic = Some(false)),
        ],
    );
    let mut operator = Operator::new(&mut world, 0);
    fill(&mut world, "orders", 2);
    let mut check = |operation: &str, name: &str, properties: &[(&str, Value<'_>)], parts: &[&str]| {
        let body: &[_] =
            if operation == "UPDATE" { &[("prefetch", Item::Value(Value::Uint(7)))] } else { &[] };
        let got = said(&operator.ask(&mut world, operation, ("queue", name), properties, body));
        for part in parts {
            assert!(got.contains(part), "{operation} {name}: {got}");
        }
    };
    let topic = ["400", "\"news.x\" is a topic by the rule \"news.>\"", "queue://news.x"];
    check("CREATE", "news.x", &[], &topic);
    check("READ", "news.x", &[], &["404"]);
    check("MOVE", "orders", &[("to", Value::String("news.x"))], &topic);
    check("READ", "orders", &[], &["200"]);
    check("CREATE", "news.plain", &[], &["201"]);
    check("CREATE", "queue://news.x", &[], &["201"]);
    for name in ["a.*", "*", "a.>", "a.#.b", "queue://a.*"] {
        check("CREATE", name, &[], &["400", "has wildcards", "configuration file"]);
        check("MOVE", "orders", &[("to", Value::String(name))], &["400", "has wildcards"]);
        check("UPDATE", name, &[], &["404", "configuration file"]);
    }
    check("CREATE", "a*.b", &[], &["201"]);
}

#[test]
fn where_a_queue_lives_is_its_shard_whether_it_is_pinned_or_not() {
    let pinned = other_at(0, 2);
    let mut world = ruled(2, vec![rule(&pinned, |rule| rule.shard = Some(1))]);
    let mut operator = Operator::new(&mut world, 0);
    for (name, shard, pin) in [(name_at(0, 2), "0", "null"), (name_at(1, 2), "1", "null"), (pinned, "1", "1")]
    {
        for (operation, status) in [("CREATE", 201), ("READ", 200), ("UPDATE", 200)] {
            let answer = operator.ask(&mut world, operation, ("queue", &name), &[], &[]);
            let got = (answer.status, answer.at("shard"), answer.at("pinned-shard"));
            assert_eq!(got, (status, shard.to_owned(), pin.to_owned()), "{operation} {name}");
            assert_eq!(answer.body.matches("shard: ").count(), 2, "{}", answer.body);
        }
        let names = ["name", "shard", "pinned-shard"];
        let asked = [("attributeNames", Item::Texts(&names))];
        let about = [("entityType", Value::String("queue")), ("pattern", Value::String(&name))];
        let rows = operator.ask(&mut world, "QUERY", ("", ""), &about, &asked);
        assert_eq!(rows.at("results.0"), format!("[{name}, {shard}, {pin}]"));
    }
}

/// Here and elsewhere, by a link to the queue and by one without an address.
#[test]
fn a_connection_that_waits_for_room_names_the_queue() {
    let blocks = |rule: &mut DestinationRule| {
        rule.messages_max = Some(1);
        rule.overflow = Some(OverflowRule::Block);
    };
    for home in 0..2 {
        for address in [true, false] {
            let queue = name_at(home, 2);
            let mut world = ruled(2, vec![rule(&queue, blocks)]);
            let mut operator = Operator::new(&mut world, 1);
            let client = world.connect(0);
            let options = SenderOptions { anonymous: !address, ..SenderOptions::default() };
            let link = world.clients[client].attach_sender("fast", &queue, &options);
            world.run();
            let properties = Properties { to: Some(&queue), ..Properties::default() };
            for body in ["1", "2"] {
                world.clients[client].send_with(link, body, &properties, &[], &Header::default());
            }
            world.run();
            let about = [("entityType", Value::String("connection"))];
            let names = [("attributeNames", Item::Texts(&["waits-for"]))];
            let rows = operator.ask(&mut world, "QUERY", ("", ""), &about, &names);
            let expect = format!("room in the full queue \"{queue}\" that link \"fast\" sends to");
            assert!(rows.body.contains(&expect), "home {home}, address {address}: {}", rows.body);
        }
    }
}

/// Gives a queue a place for its dead letters, and says how that went.
fn lead(operator: &mut Operator, world: &mut World, (operation, from): (&str, &str), to: &str) -> String {
    let value = if to.is_empty() { Value::Null } else { Value::String(to) };
    let body = [("dead_letter", Item::Value(value))];
    said(&operator.ask(world, operation, ("queue", from), &[], &body))
}

/// Over any shards, of what queues were given and of that with rules, by CREATE and by UPDATE.
#[test]
fn a_circle_of_dead_letters_is_refused_with_its_path() {
    for shards in 1..=4 {
        let [a, b, c] = [0, 1, 2].map(|n| {
            let at = names_homed_at(n % shards, shards).nth(n / shards);
            at.expect("there are many for each shard")
        });
        let mut world = ruled(shards, vec![rule(&c, |rule| rule.dead_letter = Some(a.as_str().into()))]);
        let mut operator = Operator::new(&mut world, shards - 1);
        let mut lead = |change, to: &str| lead(&mut operator, &mut world, change, to);
        assert_eq!(lead(("CREATE", &a), &b), "201 Created");
        assert_eq!(lead(("CREATE", &b), "failed"), "201 Created");
        let circle = format!("400 dead-letter goes round in a circle: {b} -> {a} -> {b}; allowed: ");
        let got = lead(("UPDATE", &b), &a);
        assert!(got.starts_with(&circle), "{got}");
        let circle = format!("400 dead-letter goes round in a circle: {b} -> {c} -> {a} -> {b}; allowed: ");
        for to in [c.clone(), format!("queue://{c}"), format!("/queues/{c}")] {
            let got = lead(("UPDATE", &b), &to);
            assert!(got.starts_with(&circle), "{to}: {got}");
        }
        // One that is to be made, and one whose own place stands in the rules.
        assert_eq!(lead(("UPDATE", &b), "later"), "200 OK");
        let got = lead(("CREATE", "later"), &c);
        assert!(got.starts_with("400 dead-letter goes round in a circle: later -> "), "{got}");
        assert_eq!(lead(("CREATE", "later"), "none"), "201 Created");
        assert_eq!(lead(("CREATE", &c), "none"), "201 Created");
        assert_eq!(lead(("UPDATE", &b), &c), "200 OK");
        // To take back what stands above a rule closes a circle, too.
        let got = lead(("UPDATE", &c), "");
        assert!(got.contains(&format!("{c} -> {a} -> {b} -> {c}; ")), "{got}");
        let got = lead(("UPDATE", &a), &format!("/queues/{a}"));
        assert!(got.starts_with("400 "), "{got}");
        assert_eq!(lead(("UPDATE", &b), ""), "200 OK");
        assert_eq!(lead(("UPDATE", &c), ""), "200 OK");
        assert_eq!(world.warnings, Vec::<String>::new());
        let read = operator.ask(&mut world, "READ", ("queue", &b), &[], &[]);
        assert_eq!((read.at("dead-letter"), read.at("overrides")), ("null".to_owned(), "{}".to_owned()));
    }
}

/// A change that cannot be made anyhow fails as it does otherwise.
#[test]
fn a_change_of_what_is_not_there_says_so_before_it_speaks_of_circles() {
    let (a, b) = (name_at(0, 2), name_at(1, 2));
    let mut world = ruled(2, vec![rule(&b, |rule| rule.dead_letter = Some(a.as_str().into()))]);
    let mut operator = Operator::new(&mut world, 0);
    let mut lead = |change, to: &str| lead(&mut operator, &mut world, change, to);
    assert!(lead(("UPDATE", &a), &b).starts_with("404 "));
    assert!(lead(("CREATE", &a), &b).starts_with("400 dead-letter goes round"));
    assert_eq!(lead(("CREATE", &a), "none"), "201 Created");
    assert!(lead(("CREATE", &a), &b).starts_with("409 "));
    assert!(lead(("UPDATE", &a), &b).starts_with("400 dead-letter goes round"));
}

/// Whatever management has made goes to its end, also what it would have refused in another order.
#[test]
fn a_way_of_dead_letters_has_its_length_and_messages_go_it_to_the_end() {
    for (count, reversed) in [(DEAD_LETTER_STOPS_MAX, true), (DEAD_LETTER_STOPS_MAX + 1, false)] {
        let mut world = ruled(2, vec![rule("way.*", |rule| rule.expiration_us = Some(1_000))]);
        let mut operator = Operator::new(&mut world, 0);
        let name = |n: usize| if n == count { "end".to_owned() } else { format!("way.{n}") };
        let mut lead =
            |from: usize| lead(&mut operator, &mut world, ("CREATE", &name(from)), &name(from + 1));
        for n in 1..count {
            assert_eq!(lead(if reversed { count - n } else { n }), "201 Created");
        }
        let refused = format!("400 dead-letter leads over more than {DEAD_LETTER_STOPS_MAX} queues");
        assert_eq!(lead(0), refused);
        fill(&mut world, "way.1", 1);
        for _ in 0..2 * count {
            world.advance(5_000);
        }
        let (client, link) = consume(&mut world, 0, "end", &ReceiverOptions::default(), 1);
        assert_eq!(world.clients[client].bodies(link), ["0"], "{:?}", world.warnings);
    }
}

/// Rules that are read again, or a queue that goes: whoever closes the circle, what comes round in it is dropped, and the log names
/// the queues.
#[test]
fn what_comes_round_in_a_circle_that_is_closed_behind_managements_back_is_told() {
    for shards in 1..=3 {
        let (a, b) = (name_at(0, shards), other_at(shards - 1, shards));
        let expires = || rule(">", |rule| rule.expiration_us = Some(1_000));
        let from_a = |to: &str| rule(&a, |rule| rule.dead_letter = Some(to.into()));
        let comes_round = |world: &mut World| {
            assert_eq!(world.warnings, Vec::<String>::new());
            fill(world, &a, 3);
            for _ in 0..3 {
                world.advance(5_000);
            }
            let circle = format!("a message that has died in {b} would go on to {a}, where it was before: ");
            assert!(
                world.warnings.len() == 1 && world.warnings[0].starts_with(&circle),
                "{:?}",
                world.warnings
            );
            let circling = world.shards.iter().map(|shard| shard.counters().dead_letters_circling);
            assert_eq!(circling.sum::<u64>(), 3);
        };

        let mut world = ruled(shards, vec![expires()]);
        let mut operator = Operator::new(&mut world, 0);
        assert_eq!(lead(&mut operator, &mut world, ("CREATE", &b), &a), "201 Created");
        world.change_destinations(vec![expires(), from_a(&b)]);
        comes_round(&mut world);

        let mut world = ruled(shards, vec![expires(), from_a(&b)]);
        let mut operator = Operator::new(&mut world, 0);
        assert_eq!(lead(&mut operator, &mut world, ("CREATE", &a), "none"), "201 Created");
        assert_eq!(lead(&mut operator, &mut world, ("CREATE", &b), &a), "201 Created");
        assert_eq!(operator.ask(&mut world, "DELETE", ("queue", &a), &[], &[]).status, 204);
        comes_round(&mut world);
    }
}

/// It would hold for some of the messages, or of the consumers, only.
#[test]
fn what_cannot_change_while_a_queue_is_used_is_refused() {
    let name = name_at(1, 2);
    let mut world = ruled(2, vec![rule(&name, |rule| rule.last_value_key = Some("rule".into()))]);
    let mut operator = Operator::new(&mut world, 0);
    fill(&mut world, &name, 1);
    let mut update = |world: &mut World, property: &str, value: Value<'_>| {
        let body = [(property, Item::Value(value)), ("prefetch", Item::Value(Value::Uint(7)))];
        said(&operator.ask(world, "UPDATE", ("queue", &name), &[], &body))
    };
    let refused = "409 last-value-key is changed only while the queue is empty";
    for value in ["k", "none"] {
        assert_eq!(update(&mut world, "last-value-key", Value::String(value)), refused);
    }
    for value in [Value::String("rule"), Value::Null] {
        assert_eq!(update(&mut world, "last-value-key", value), "200 OK", "it is so already");
    }
    assert_eq!(update(&mut world, "non-destructive", Value::Boolean(true)), "200 OK", "nobody is attached");
    let (client, link) = consume(&mut world, 0, &name, &ReceiverOptions::default(), 0);
    let refused = "409 non-destructive is changed only while no consumer is attached";
    assert_eq!(update(&mut world, "non-destructive", Value::Null), refused);
    // What the rules change meanwhile waits, and what holds is shown.
    world.change_destinations(vec![rule(&name, |rule| rule.non_destructive = Some(false))]);
    assert_eq!(update(&mut world, "non-destructive", Value::Boolean(true)), "200 OK");
    world.change_destinations(vec![rule(&name, |rule| rule.last_value_key = Some("other".into()))]);
    world.clients[client].detach(link);
    world.run();
    assert_eq!(update(&mut world, "non-destructive", Value::Null), "200 OK");
    // To say again what waits would seem to be done.
    let refused = "409 last-value-key is changed only while the queue is empty";
    assert_eq!(update(&mut world, "last-value-key", Value::String("other")), refused);
    let read = operator.ask(&mut world, "READ", ("queue", &name), &[], &[]);
    assert_eq!(read.at("waiting"), "{last-value-key: {value: other, until: the queue is empty}}");
    assert_eq!([read.at("non-destructive"), read.at("last-value-key")], ["false", "rule"]);
}

/// What is said twice, of two things, or under another name is refused with what is allowed: nothing is chosen silently.
#[test]
fn a_request_that_says_two_things_is_refused() {
    let mut world = ruled(1, vec![rule("news.>", |rule| rule.topic = Some(true))]);
    let mut operator = Operator::new(&mut world, 0);
    let mut ask = |operation: &str, name: &str, properties: &[(&str, Value<'_>)], given: &[(&str, u32)]| {
        let body: Vec<_> =
            given.iter().map(|(name, number)| (*name, Item::Value(Value::Uint(*number)))).collect();
        said(&operator.ask(&mut world, operation, ("queue", name), properties, &body))
    };
    let twice = "400 deliveries-max is given twice; allowed: once";
    assert_eq!(ask("CREATE", "a", &[], &[("deliveries-max", 5), ("delivery-max", 6)]), twice);
    assert_eq!(ask("CREATE", "a", &[], &[("prefetch", 5)]), "201 Created");
    assert_eq!(ask("UPDATE", "a", &[], &[("deliveries_max", 5), ("deliveries-max", 5)]), twice);
    for name in ["shard", "pinned-shard", "pinned_shard"] {
        let got = ask("UPDATE", "a", &[], &[(name, 0)]);
        assert!(got.starts_with("400 shard is not changed while the broker runs"), "{got}");
    }
    let identity = |name| [("identity", Value::String(name))];
    assert_eq!(ask("READ", "a", &identity("a"), &[]), "200 OK");
    let got = ask("READ", "a", &identity("b"), &[]);
    assert_eq!(got, "400 `name` is \"a\" and `identity` is \"b\"; allowed: one of them, or the same");
    for operation in ["READ", "PEEK", "EXPLAIN", "PURGE", "DELETE"] {
        let got = ask(operation, "news.x", &[], &[]);
        assert!(got.starts_with("404 there is no queue \"news.x\": it is a topic"), "{operation}: {got}");
        assert_eq!(ask(operation, "b", &[], &[]), "404 there is no queue \"b\"");
    }
}

/// A queue that is called as a pattern could be sent to, and not be managed: nobody makes one.
#[test]
fn no_queue_is_called_as_a_pattern() {
    for shards in [1, 2] {
        let mut world = ruled(shards, Vec::new());
        let client = world.connect(0);
        let queues = |world: &World| world.shards.iter().map(|shard| shard.queue_count()).sum::<usize>();
        for name in ["*", "x.*", "a.>", "#", "queue://x.*"] {
            let link = world.clients[client].attach_sender(name, name, &SenderOptions::default());
            world.run();
            let refused = (link, Some("amqp:not-found".to_owned()));
            assert_eq!(world.clients[client].detached.last(), Some(&refused), "{name}");
        }
        assert_eq!(queues(&world), 0);
    }
}

#[test]
fn a_queue_with_messages_whose_name_becomes_a_topics_is_named_in_the_log() {
    let topic = |pattern: &str| rule(pattern, |rule| rule.topic = Some(true));
    let mut world = ruled(2, vec![topic("old.>")]);
    for queue in ["news.a", "queue://old.b", "news.empty"] {
        fill(&mut world, queue, if queue == "news.empty" { 0 } else { 3 });
    }
    world.change_destinations(vec![topic("old.>"), topic("news.>")]);
    assert_eq!(world.warnings.len(), 1, "{:?}", world.warnings);
    assert!(world.warnings[0].starts_with("\"news.a\" is a topic"), "{:?}", world.warnings);
    assert!(world.warnings[0].contains("holds messages: 3. It is reached as \"queue://news.a\""));
    world.change_destinations(vec![topic("old.>"), topic("news.>")]);
    assert_eq!(world.warnings.len(), 1, "it is said once");
}

/// A file that is read again stands beside what a queue was given: what does not go together is told, and does not keep an operator
/// from changing something else, or from mending it.
#[test]
fn a_contradiction_made_by_a_reload_is_told_and_can_be_mended() {
    for home in 0..2 {
        let queue = name_at(home, 2);
        let mut world = ruled(2, vec![rule(&queue, |rule| rule.messages_max = Some(5))]);
        let mut operator = Operator::new(&mut world, 0);
        fill(&mut world, &queue, 1);
        let mut set = |world: &mut World, property: &'static str, value: Value<'_>| {
            let body = [(property, Item::Value(value))];
            said(&operator.ask(world, "UPDATE", ("queue", &queue), &[], &body))
        };
        let (yes, null) = (Value::Boolean(true), Value::Null);
        assert!(set(&mut world, "overflow", Value::String("drop-oldest")).starts_with("200"));
        assert!(set(&mut world, "exclusive", yes).starts_with("200"));
        world.change_destinations(vec![rule(&queue, |rule| rule.non_destructive = Some(true))]);
        world.run();
        assert_eq!(world.warnings.len(), 1, "{:?}", world.warnings);
        let names = format!("queue {queue} contradicts itself");
        for part in [&*names, "non-destructive and exclusive", "overflow = \"drop-oldest\"", "messages-max"] {
            assert!(world.warnings[0].contains(part), "lacks {part:?}: {}", world.warnings[0]);
        }
        assert!(set(&mut world, "prefetch", Value::Uint(3)).starts_with("200"));
        assert!(
            set(&mut world, "deliveries-max", Value::Uint(3)).contains("non-destructive and deliveries-max")
        );
        assert!(set(&mut world, "exclusive", null).starts_with("200"));
        assert!(set(&mut world, "exclusive", yes).contains("non-destructive and exclusive"));
        assert!(set(&mut world, "overflow", null).starts_with("200"));
        world.change_destinations(vec![rule(&queue, |rule| rule.non_destructive = Some(true))]);
        world.run();
        assert_eq!(world.warnings.len(), 1, "{:?}", world.warnings);
    }
}

/// The body of a request cannot name another queue, or another type, than the request does.
#[test]
fn a_body_that_names_another_queue_is_refused() {
    let mut world = crate::world(1);
    let mut operator = Operator::new(&mut world, 0);
    let mut ask = |operation: &str, body: &[(&str, Value<'_>)]| {
        let body: Vec<_> = body.iter().map(|(key, value)| (*key, Item::Value(*value))).collect();
        said(&operator.ask(&mut world, operation, ("queue", "a"), &[], &body))
    };
    let (own, kind) = (("name", Value::String("a")), ("type", Value::String("queue")));
    for operation in ["CREATE", "UPDATE"] {
        for key in ["name", "identity"] {
            let expect = format!("400 the body says another `{key}` than \"a\"; a queue keeps its name");
            assert_eq!(ask(operation, &[(key, Value::String("b")), kind]), expect);
            assert_eq!(ask(operation, &[(key, Value::Uint(7))]), expect);
        }
        let expect = "400 the body says another `type` than \"queue\"";
        assert_eq!(ask(operation, &[own, ("type", Value::String("topic"))]), expect);
        let done = if operation == "CREATE" { "201 Created" } else { "200 OK" };
        assert_eq!(ask(operation, &[own, kind, ("identity", Value::String("a"))]), done);
    }
}

/// What an entity cannot do is said before it is looked for.
#[test]
fn an_operation_that_a_type_does_not_have_is_not_implemented() {
    let mut world = crate::world(1);
    let mut operator = Operator::new(&mut world, 0);
    for (kind, operation) in [("connection", "CREATE"), ("consumer", "DELETE"), ("shard", "UPDATE")] {
        let answer = operator.ask(&mut world, operation, (kind, "x"), &[], &[]);
        assert_eq!(said(&answer), format!("501 a {kind} has no operation {operation:?}; see GET-OPERATIONS"));
    }
}

/// What a last-value queue replaces is counted, so that what came in and what went add up.
#[test]
fn replaced_messages_are_counted() {
    let mut world = ruled(1, vec![rule("q", |rule| rule.last_value_key = Some("k".into()))]);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "q", &SenderOptions::default());
    world.run();
    for _ in 0..3 {
        let key = [("k", Value::Int(1))];
        world.clients[client].send_with(sender, "m", &Properties::default(), &key, &Header::default());
    }
    world.run();
    let mut operator = Operator::new(&mut world, 0);
    let read = operator.ask(&mut world, "READ", ("queue", "q"), &[], &[]);
    let figures = ["messages-in", "messages", "replaced"].map(|name| read.at(name));
    assert_eq!(figures, ["3", "1", "2"]);
}
