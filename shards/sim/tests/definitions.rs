//! Is what the broker is given at its start there, on all shards and after each restart?

use std::sync::Arc;

use corelane_protocol::SessionId;
use corelane_shard::{BindingDefinition, Definitions, ExchangeDefinition, Policy, QueueDefinition};
use corelane_sim::{ChannelClient, DiskSetup, Setup, World};
use corelane_wire::amqp091::{FieldValue, Properties, ShortStr, TableWriter};

const QUEUES: usize = 8;

fn exchange(name: &str, kind: &str) -> ExchangeDefinition {
    ExchangeDefinition {
        vhost: "blue".into(),
        name: name.into(),
        kind: kind.into(),
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: Vec::new(),
    }
}

fn binding(source: &str, to_queue: bool, destination: &str) -> BindingDefinition {
    BindingDefinition {
        vhost: "blue".into(),
        source: source.into(),
        to_queue,
        destination: destination.into(),
        key: (*b"#").into(),
        arguments: Vec::new(),
    }
}

/// An exchange that leads to a second one, and that to queues on all shards.
fn definitions() -> Definitions {
    let queue = |n: usize| QueueDefinition {
        vhost: "blue".into(),
        name: format!("q{n}").into(),
        durable: true,
        auto_delete: false,
        arguments: Vec::new(),
    };
    let mut bindings: Vec<_> = (0..QUEUES).map(|n| binding("second", true, &format!("q{n}"))).collect();
    bindings.push(binding("first", false, "second"));
    Definitions {
        exchanges: vec![exchange("first", "topic"), exchange("second", "fanout")],
        queues: (0..QUEUES).map(queue).collect(),
        bindings,
    }
}

fn table(name: &'static str, value: FieldValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    TableWriter::new(&mut bytes).pair(ShortStr::literal(name), value);
    bytes
}

fn world(shards: usize, definitions: Definitions, policies: Vec<Policy>) -> World {
    let mut world = World::new(&Setup {
        vhosts: vec!["blue".into()],
        definitions: Some(Arc::new(definitions)),
        policies,
        disk: Some(DiskSetup::default()),
        ..Setup::new(shards)
    });
    world.run();
    world
}

fn on(world: &mut World, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
    let number = world.connect_channels_in(0, "blue");
    let channel = world.channel_client(number).open_channel();
    world.run();
    world.channel_client(number).take_seen();
    act(world.channel_client(number), channel);
    world.run();
    world.channel_client(number).take_seen()
}

#[test]
fn what_is_defined_is_there_once_on_all_shards_after_each_start() {
    for shards in [1, 3] {
        let mut world = world(shards, definitions(), Vec::new());
        for start in 1..=3 {
            assert!(world.is_ready());
            let none = Properties::default();
            on(&mut world, |it, on| it.publish_to(on, ("first", "k"), &none, "m", true));
            for n in 0..QUEUES {
                let name = format!("q{n}");
                let got = on(&mut world, |it, on| it.get(on, &name));
                assert_eq!(got, ["got m, 0 left"], "{name} of {shards} shards, start {start}");
                on(&mut world, |it, on| it.purge(on, &name));
            }
            world.crash_and_restart();
        }
    }
}

#[test]
fn what_is_there_otherwise_stays_and_is_told() {
    for shards in [1, 3] {
        let mut given = definitions();
        given.queues.push(QueueDefinition { durable: false, ..given.queues[0].clone() });
        given.exchanges.push(exchange("first", "fanout"));
        given.bindings.push(binding("second", true, "nowhere"));
        given.bindings.push(binding("missing", true, "q1"));
        let world = world(shards, given, Vec::new());
        let warned = world.warnings.join("\n");
        for part in [
            "queue 'q0' in vhost 'blue' is not as it is defined",
            "inequivalent arg 'durable'",
            "exchange 'first' in vhost 'blue' is not as it is defined",
            "a binding of queue 'nowhere' in vhost 'blue'",
            "the binding of \"q1\" to exchange 'missing' in vhost 'blue'",
        ] {
            assert!(warned.contains(part), "lacks {part:?}: {warned}");
        }
    }
}

#[test]
fn the_policy_of_the_highest_priority_holds_below_what_was_declared() {
    let maximum = |count: i64| table("x-max-length", FieldValue::Int64(count));
    let policy = |vhost: &str, pattern: &str, priority, count| {
        Policy::new(vhost, pattern, priority, &maximum(count), |_| ()).expect("it makes sense")
    };
    let policies = vec![
        policy("blue", "q", 0, 5),
        policy("blue", "^q1$", 2, 2),
        policy("blue", "^q1$", 1, 9),
        policy("/", "", 9, 1),
    ];
    let mut world = world(2, Definitions::default(), policies);
    for (name, arguments, expect) in
        [("q0", None, 5), ("q1", None, 2), ("q1x", Some(3), 3), ("other", None, 6)]
    {
        let arguments = arguments.map(maximum).unwrap_or_default();
        on(&mut world, |it, on| it.declare_durable(on, name, &arguments));
        on(&mut world, |it, on| (0..6).for_each(|_| it.publish(on, name, "m", false)));
        let seen = on(&mut world, |it, on| it.look(on, name));
        assert_eq!(seen, [format!("declared {name} {expect} 0")]);
    }
}
