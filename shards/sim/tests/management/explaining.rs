//! What is said of a consumer that gets nothing is true.

use corelane_sim::{Answer, Item, Operator, ReceiverOptions, SenderOptions, World};
use corelane_wire::amqp10::{DeliveryState, Header, Properties, Value};

use crate::{consume, fill, name_at, world};

fn make(world: &mut World, operator: &mut Operator, name: &str, properties: &[(&str, Value<'_>)]) {
    let body: Vec<_> = properties.iter().map(|(name, value)| (*name, Item::Value(*value))).collect();
    let made = operator.ask(world, "CREATE", ("queue", name), &[], &body);
    assert_eq!(made.status, 201, "{made:?}");
}

fn explain(world: &mut World, operator: &mut Operator, name: &str) -> Answer {
    operator.ask(world, "EXPLAIN", ("queue", name), &[], &[])
}

#[test]
fn a_consumer_that_waits_for_its_own_flow_is_told_apart() {
    for shards in [1, 2] {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(shards - 1, shards);
        make(&mut world, &mut operator, &name, &[("prefetch", Value::String("none"))]);
        fill(&mut world, &name, 3);
        let (client, link) = consume(&mut world, 0, &name, &ReceiverOptions::default(), 10);
        let said = explain(&mut world, &mut operator, &name);
        assert_eq!(said.at("consumers.0.reason"), "prefetch");
        world.clients[client].accept_all(link);
        world.run();
        let said = explain(&mut world, &mut operator, &name);
        assert_eq!(
            (said.at("consumers.0.reason"), said.at("consumers.0.unsettled")),
            ("flow".into(), "0".into())
        );
        let summary = "Nobody takes the first message: of 1 consumer, 1 waiting for its client to give credit again (prefetch = none).";
        assert_eq!(said.at("summary"), summary);
        assert!(said.at("consumers.0.why").contains("gives credit again"), "{said:?}");
        world.clients[client].credit(link, 10);
        world.run();
        assert_eq!(world.clients[client].bodies(link), ["1"]);
    }
}

#[test]
fn what_waits_in_a_consumers_groups_counts_as_for_it() {
    let mut world = world(1);
    let mut operator = Operator::new(&mut world, 0);
    let name = name_at(0, 1);
    make(&mut world, &mut operator, &name, &[]);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", &name, &SenderOptions::default());
    let owner = consume(&mut world, 0, &name, &ReceiverOptions::default(), 1);
    for body in ["0", "1", "2"] {
        let properties = Properties { group_id: Some("g"), ..Properties::default() };
        world.clients[client].send_with(sender, body, &properties, &[], &Header::default());
    }
    world.run();
    let other = consume(&mut world, 0, &name, &ReceiverOptions::default(), 5);
    assert_eq!(
        (world.clients[owner.0].bodies(owner.1).len(), world.clients[other.0].bodies(other.1).len()),
        (1, 0)
    );
    let said = explain(&mut world, &mut operator, &name);
    let at = |consumer: usize, key: &str| said.at(&format!("consumers.{consumer}.{key}"));
    let own = usize::from(at(0, "reason") != "no-credit");
    assert_eq!(
        (at(own, "lag"), at(own, "groups")),
        ("2".into(), "[{name: g, unsettled: 1, waiting: 2}]".into())
    );
    assert_eq!(at(1 - own, "lag"), "0");
}

/// Of more groups than are shown, and the same whether it is explained or read.
#[test]
fn what_waits_in_all_of_a_consumers_groups_counts() {
    let mut world = world(1);
    let mut operator = Operator::new(&mut world, 0);
    make(&mut world, &mut operator, "q", &[]);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "q", &SenderOptions::default());
    consume(&mut world, 0, "q", &ReceiverOptions::default(), 50);
    for n in 0..100 {
        let group = (n % 50).to_string();
        let properties = Properties { group_id: Some(&group), ..Properties::default() };
        world.clients[client].send_with(sender, "m", &properties, &[], &Header::default());
    }
    world.run();
    let said = explain(&mut world, &mut operator, "q");
    let name = said.at("consumers.0.name");
    let read = operator.ask(&mut world, "READ", ("consumer", &name), &[], &[]);
    assert_eq!((said.at("consumers.0.lag"), read.at("lag")), ("50".into(), "50".into()));
    assert_eq!(said.at("consumers.0.groups.20"), "null");
}

/// Browsers, and whoever reads a queue that is non-destructive.
#[test]
fn who_has_seen_a_message_is_not_said_to_take_it() {
    for (non_destructive, browse) in [(false, true), (true, false)] {
        let mut world = world(1);
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(0, 1);
        make(&mut world, &mut operator, &name, &[("non-destructive", Value::Boolean(non_destructive))]);
        fill(&mut world, &name, 3);
        let options = ReceiverOptions { browse, ..ReceiverOptions::default() };
        let (client, link) = consume(&mut world, 0, &name, &options, 3);
        if !browse {
            world.clients[client].settle(link, 0, &DeliveryState::Accepted);
            world.run();
        }
        assert_eq!(world.clients[client].bodies(link), ["0", "1", "2"]);
        let said = explain(&mut world, &mut operator, &name);
        assert_eq!(said.at("consumers.0.head-verdict"), "seen", "{said:?}");
        let expect = if non_destructive {
            "The queue is non-destructive, so messages stay when they are read: of 1 consumer, 1 past it."
        } else {
            "Nobody takes the first message: of 1 consumer, 1 past it."
        };
        assert_eq!(said.at("summary"), expect);
        // More credit, and it waits for what comes.
        world.clients[client].credit(link, 3);
        world.run();
        let said = explain(&mut world, &mut operator, &name);
        assert_eq!(said.at("consumers.0.head-verdict"), "seen", "{said:?}");
        assert!(said.at("consumers.0.why").contains("has seen everything"), "{said:?}");
    }
}
