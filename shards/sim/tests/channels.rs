//! Do channels of 0-9-1 work on queues of any shard?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, Setup, World, names_homed_at};

/// A world of two shards, with the names of a queue on each: first that of the shard of the connection.
fn world() -> (World, [String; 2]) {
    let world = World::new(&Setup { verify: true, ..Setup::new(2) });
    let name = |shard| names_homed_at(shard, 2).next().expect("one of many");
    (world, [name(0), name(1)])
}

fn client(world: &mut World, number: usize) -> &mut ChannelClient {
    world.channel_client(number)
}

/// A client with a channel; what it has seen so far is forgotten.
fn open(world: &mut World, shard: usize) -> (usize, SessionId) {
    let number = world.connect_channels(shard);
    let channel = client(world, number).open_channel();
    world.run();
    client(world, number).take_seen();
    (number, channel)
}

fn check(world: &mut World, number: usize, expect: &[&str]) {
    world.run();
    let seen = client(world, number).take_seen();
    assert_eq!(seen, expect);
}

#[test]
fn what_is_published_is_confirmed_and_got_on_either_shard() {
    let (mut world, queues) = world();
    let (number, channel) = open(&mut world, 0);
    client(&mut world, number).confirm(channel);
    world.run();
    client(&mut world, number).take_seen();
    for queue in &queues {
        client(&mut world, number).declare(channel, queue, false);
        check(&mut world, number, &[&format!("declared {queue} 0 0")]);
        let one = client(&mut world, number);
        one.publish(channel, queue, "A", true);
        one.publish(channel, queue, "B", false);
        // It is there for who asks behind it.
        one.look(channel, queue);
        world.run();
        let seen = client(&mut world, number).take_seen();
        assert!(seen.contains(&format!("declared {queue} 2 0")), "{seen:?}");
        assert!(seen.iter().any(|line| line.starts_with("confirmed")), "{seen:?}");
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got A, 1 left"]);
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got B, 0 left"]);
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["nothing"]);
        client(&mut world, number).recover(channel);
        check(&mut world, number, &["recovered"]);
        for expect in ["got A again, 1 left", "got B again, 0 left"] {
            client(&mut world, number).get(channel, queue);
            check(&mut world, number, &[expect]);
        }
        let last = *client(&mut world, number).tags.last().expect("there were four");
        client(&mut world, number).ack(channel, last, true);
        client(&mut world, number).delete(channel, queue, true);
        check(&mut world, number, &["deleted 0"]);
        client(&mut world, number).delete(channel, queue, true);
        check(&mut world, number, &["deleted 0"]);
    }
}

#[test]
fn s40_a_mandatory_message_that_goes_nowhere_is_returned_and_then_confirmed() {
    let (mut world, queues) = world();
    let (number, channel) = open(&mut world, 0);
    client(&mut world, number).confirm(channel);
    world.run();
    client(&mut world, number).take_seen();
    for (tag, queue) in (1..).step_by(2).zip(&queues) {
        client(&mut world, number).publish(channel, queue, "A", true);
        check(&mut world, number, &["returned A: 312", &format!("confirmed {tag}")]);
        // Nobody has asked for it back.
        client(&mut world, number).publish(channel, queue, "B", false);
        check(&mut world, number, &[&format!("confirmed {}", tag + 1)]);
    }
}

#[test]
fn s36_what_is_not_acknowledged_comes_back_in_its_old_order() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        // Consumers elsewhere: the connection has settled down on its own shard.
        let (number, channel) = open(&mut world, 0);
        let one = client(&mut world, number);
        one.declare(channel, &queues[0], false);
        one.declare(channel, &queues[1], false);
        one.consume(channel, &queues[0], "first", false);
        world.run();
        client(&mut world, number).take_seen();
        client(&mut world, number).consume(channel, queue, "tag", false);
        world.run();
        let (other, others) = open(&mut world, 1);
        for body in ["A", "B", "C"] {
            client(&mut world, other).publish(others, queue, body, false);
        }
        world.run();
        let one = client(&mut world, number);
        assert_eq!(one.tags.len(), 3, "{:?}", one.seen);
        let last = one.tags[2];
        one.take_seen();
        one.nack(channel, last, true, true);
        world.run();
        let seen = client(&mut world, number).take_seen();
        let mut bodies: Vec<&str> = seen.iter().filter_map(|line| line.split(": ").nth(1)).collect();
        // On one's own shard two consumers take turns with what is delivered, not with its order.
        bodies.sort_unstable();
        assert_eq!(bodies, ["A again", "B again", "C again"], "{seen:?}");
        client(&mut world, number).close();
        world.run();
        for expect in ["got A again, 2 left", "got B again, 1 left", "got C again, 0 left"] {
            client(&mut world, other).take_seen();
            client(&mut world, other).get(others, queue);
            check(&mut world, other, &[expect]);
        }
    }
}

#[test]
fn a_cancelled_consumer_gets_nothing_more_and_keeps_what_it_has() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        let one = client(&mut world, number);
        one.declare(channel, queue, false);
        one.prefetch(channel, 1);
        one.publish(channel, queue, "A", false);
        one.publish(channel, queue, "B", false);
        one.consume(channel, queue, "tag", false);
        world.run();
        assert_eq!(world.shard_of(number), home, "it lives where its first consumer is");
        let one = client(&mut world, number);
        assert_eq!(one.take_seen().last().map(String::as_str), Some("tag: A"));
        one.cancel(channel, "tag");
        check(&mut world, number, &["cancelled tag"]);
        let one = client(&mut world, number);
        let tag = one.tags[0];
        one.look(channel, queue);
        check(&mut world, number, &[&format!("declared {queue} 1 0")]);
        client(&mut world, number).nack(channel, tag, false, true);
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got A again, 1 left"]);
        // s43: the tag is free.
        client(&mut world, number).consume(channel, queue, "tag", false);
        check(&mut world, number, &["consuming tag", "tag: B"]);
    }
}

#[test]
fn a_queue_belongs_to_its_connection_and_goes_with_it() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        client(&mut world, number).declare(channel, queue, true);
        check(&mut world, number, &[&format!("declared {queue} 0 0")]);
        let (other, _) = open(&mut world, 1);
        let attempts: [fn(&mut ChannelClient, SessionId, &str); 5] = [
            |client, channel, queue| client.look(channel, queue),
            |client, channel, queue| client.declare(channel, queue, true),
            |client, channel, queue| client.delete(channel, queue, false),
            |client, channel, queue| client.consume(channel, queue, "tag", false),
            |client, channel, queue| client.get(channel, queue),
        ];
        for attempt in attempts {
            let channel = client(&mut world, other).open_channel();
            world.run();
            client(&mut world, other).take_seen();
            attempt(client(&mut world, other), channel, queue);
            check(&mut world, other, &["channel closed: 405"]);
        }
        let others = client(&mut world, other).open_channel();
        world.run();
        client(&mut world, other).take_seen();
        // Everybody may publish to it.
        client(&mut world, other).publish(others, queue, "A", true);
        check(&mut world, other, &[]);
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got A, 0 left"]);
        world.kill(number);
        world.run();
        client(&mut world, other).look(others, queue);
        check(&mut world, other, &["channel closed: 404"]);
    }
}

#[test]
fn one_who_wants_to_be_the_only_consumer_is_or_is_refused() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        let (other, _) = open(&mut world, 1);
        client(&mut world, number).declare(channel, queue, false);
        client(&mut world, number).consume(channel, queue, "only", true);
        world.run();
        for exclusive in [true, false] {
            let channel = client(&mut world, other).open_channel();
            world.run();
            client(&mut world, other).take_seen();
            client(&mut world, other).consume(channel, queue, "tag", exclusive);
            check(&mut world, other, &["channel closed: 403"]);
        }
        client(&mut world, number).cancel(channel, "only");
        world.run();
        let channel = client(&mut world, other).open_channel();
        world.run();
        client(&mut world, other).take_seen();
        client(&mut world, other).consume(channel, queue, "tag", false);
        check(&mut world, other, &["consuming tag"]);
    }
}

#[test]
fn consumers_and_publishers_hear_that_their_queue_is_gone() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        let (other, others) = open(&mut world, 1);
        client(&mut world, number).declare(channel, queue, false);
        client(&mut world, number).consume(channel, queue, "tag", false);
        world.run();
        client(&mut world, number).take_seen();
        client(&mut world, other).delete(others, queue, false);
        check(&mut world, other, &["deleted 0"]);
        check(&mut world, number, &["cancel tag"]);
        client(&mut world, other).purge(others, queue);
        check(&mut world, other, &["channel closed: 404"]);
        // s43: nothing of it is left.
        client(&mut world, number).declare(channel, queue, false);
        client(&mut world, number).consume(channel, queue, "tag", false);
        check(&mut world, number, &[&format!("declared {queue} 0 0"), "consuming tag"]);
    }
}

#[test]
fn a_queue_is_emptied_but_for_what_is_held() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        client(&mut world, number).declare(channel, queue, false);
        for n in 0..10_000 {
            client(&mut world, number).publish(channel, queue, &n.to_string(), false);
        }
        client(&mut world, number).get(channel, queue);
        world.run();
        client(&mut world, number).take_seen();
        client(&mut world, number).purge(channel, queue);
        check(&mut world, number, &["purged 9999"]);
        client(&mut world, number).close_channel(channel);
        world.run();
        let channel = client(&mut world, number).open_channel();
        world.run();
        client(&mut world, number).take_seen();
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got 0 again, 0 left"]);
    }
}
