//! What queues may be called, where they live, and what they may be given while the broker runs.

use corelane_shard::{DestinationRule, OverflowRule};
use corelane_sim::{Answer, Item, Operator, SenderOptions, Setup, World};
use corelane_wire::amqp10::{Header, Properties, Value};

use crate::{fill, name_at, other_at};

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
