//! What bounds hold for channels whose queues are on several shards, and what does not fit?

use corelane_protocol::SessionId;
use corelane_sim::{Setup, World, names_homed_at, table};
use corelane_wire::amqp091::{FieldValue, Properties, Table};

fn world() -> (World, [String; 2]) {
    let world = World::new(&Setup { verify: true, ..Setup::new(2) });
    (world, [0, 1].map(|shard| names_homed_at(shard, 2).next().expect("one of many")))
}

fn opened(world: &mut World, number: usize) -> (usize, SessionId) {
    let channel = world.channel_client(number).open_channel();
    world.run();
    world.channel_client(number).take_seen();
    (number, channel)
}

fn open(world: &mut World, shard: usize) -> (usize, SessionId) {
    let number = world.connect_channels(shard);
    opened(world, number)
}

#[test]
fn a_channels_prefetch_holds_for_its_consumers_of_all_shards_together() {
    let (mut world, queues) = world();
    let one = open(&mut world, 0);
    let other = open(&mut world, 1);
    for queue in &queues {
        world.on_channel(one, |client, channel| client.declare(channel, queue, false));
        for n in 0..10 {
            let body = format!("{queue}-{n}");
            world.on_channel(other, |client, channel| client.publish(channel, queue, &body, false));
        }
    }
    let mut seen = world.on_channel(one, |client, channel| client.prefetch_all(channel, 3));
    for (queue, tag) in queues.iter().zip(["a", "b"]) {
        seen.extend(world.on_channel(one, |client, channel| client.consume(channel, queue, tag, false)));
    }
    let mut bodies: Vec<String> = Vec::new();
    for acknowledged in 0..=20 {
        bodies.extend(seen.iter().filter_map(|line| Some(line.split_once(": ")?.1.to_owned())));
        assert_eq!(bodies.len(), 20.min(acknowledged + 3), "{bodies:?}");
        if acknowledged < 20 {
            let tag = world.channel_client(one.0).tags[acknowledged];
            seen = world.on_channel(one, |client, channel| client.ack(channel, tag, false));
        }
    }
    // Each queue's come in order.
    for queue in &queues {
        let of_queue: Vec<&str> = bodies
            .iter()
            .filter(|body| body.starts_with(queue.as_str()))
            .map(|body| body.split(' ').next().expect("there is one"))
            .collect();
        let expect: Vec<String> = (0..10).map(|n| format!("{queue}-{n}")).collect();
        assert_eq!(of_queue, expect);
    }
}

#[test]
fn a_connection_ends_whose_frames_are_too_small_for_the_properties_of_a_message() {
    for (home, settles, gets) in [(0, false, false), (1, true, false), (0, false, true), (1, true, true)] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let publisher = open(&mut world, 1);
        let number = world.connect_channels_of(0, "/", 4096);
        let small = opened(&mut world, number);
        world.on_channel(publisher, |client, channel| client.declare(channel, queue, false));
        if settles {
            // Its consumers of other shards are served from here.
            world.on_channel(small, |client, channel| client.declare(channel, &queues[0], false));
            world.on_channel(small, |client, channel| client.consume(channel, &queues[0], "here", false));
        }
        let long = "h".repeat(8192);
        let headers = table(&[("h", FieldValue::LongString(long.as_bytes()))]);
        let properties = Properties { headers: Some(Table::new(&headers)), ..Properties::default() };
        world.on_channel(publisher, |client, channel| {
            client.publish_to(channel, ("", queue), &properties, "A", false);
        });
        let seen = world.on_channel(small, |client, channel| match gets {
            true => client.get(channel, queue),
            false => client.consume(channel, queue, "tag", false),
        });
        assert_eq!(seen.last().map(String::as_str), Some("closed: 501"), "{seen:?}");
        let seen = world.on_channel(publisher, |client, channel| client.get(channel, queue));
        assert!(seen[0].starts_with("got A"), "{seen:?}");
    }
}

#[test]
fn what_dies_does_not_make_the_queue_that_it_is_for() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let one = open(&mut world, 0);
        let missing = names_homed_at(1 - home, 2).nth(1).expect("one of many");
        let arguments = table(&[
            ("x-dead-letter-exchange", FieldValue::LongString(b"")),
            ("x-dead-letter-routing-key", FieldValue::LongString(missing.as_bytes())),
        ]);
        let queue = &queues[home];
        world.on_channel(one, |client, channel| client.declare_durable(channel, queue, &arguments));
        world.on_channel(one, |client, channel| client.publish(channel, queue, "A", false));
        world.on_channel(one, |client, channel| client.get(channel, queue));
        world.on_channel(one, |client, channel| client.nack(channel, 1, false, false));
        let unroutable: u64 = world.shards.iter().map(|shard| shard.counters().forwards_unroutable).sum();
        assert_eq!(unroutable, 1);
        let seen = world.on_channel(one, |client, channel| client.look(channel, &missing));
        assert_eq!(seen, ["channel closed: 404"]);
    }
}
