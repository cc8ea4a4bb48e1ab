//! Do channels of 0-9-1 work on queues of any shard?

use corelane_protocol::SessionId;
use corelane_shard::{DestinationRule, OverflowRule};
use corelane_sim::{ChannelClient, Setup, World, names_homed_at};
use corelane_wire::amqp091::{FieldValue, ShortStr, TableWriter};

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
fn a_get_in_vain_leaves_nothing_of_the_next_message() {
    let (mut world, queues) = world();
    let (number, channel) = open(&mut world, 0);
    for queue in &queues {
        client(&mut world, number).declare(channel, queue, false);
        world.run();
        client(&mut world, number).take_seen();
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["nothing"]);
        client(&mut world, number).publish(channel, queue, "A", false);
        check(&mut world, number, &[]);
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got A, 0 left"]);
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
        // Who deletes it and consumes from it is answered first.
        let (third, thirds) = open(&mut world, 0);
        client(&mut world, third).declare(thirds, queue, false);
        client(&mut world, third).consume(thirds, queue, "tag", false);
        world.run();
        client(&mut world, third).take_seen();
        client(&mut world, third).delete(thirds, queue, false);
        check(&mut world, third, &["deleted 0", "cancel tag"]);
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

#[test]
fn a_queue_is_empty_if_all_that_it_has_is_held() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        client(&mut world, number).declare(channel, queue, false);
        for body in ["A", "B"] {
            client(&mut world, number).publish(channel, queue, body, false);
        }
        client(&mut world, number).get(channel, queue);
        world.run();
        client(&mut world, number).take_seen();
        let other = client(&mut world, number).open_channel();
        world.run();
        client(&mut world, number).delete(other, queue, true);
        world.run();
        let seen = client(&mut world, number).take_seen();
        assert!(seen.iter().any(|line| line.contains("406")), "{seen:?}");
        client(&mut world, number).get(channel, queue);
        check(&mut world, number, &["got B, 0 left"]);
        client(&mut world, number).delete(channel, queue, true);
        check(&mut world, number, &["deleted 0"]);
    }
}

#[test]
fn s37_who_acknowledges_what_was_never_delivered_loses_the_channel_and_all_comes_back() {
    for home in [0, 1] {
        for multiple in [false, true] {
            let (mut world, queues) = world();
            let queue = &queues[home];
            let (number, channel) = open(&mut world, 0);
            let one = client(&mut world, number);
            one.declare(channel, queue, false);
            one.publish(channel, queue, "A", false);
            one.publish(channel, queue, "B", false);
            one.consume(channel, queue, "tag", false);
            world.run();
            client(&mut world, number).take_seen();
            client(&mut world, number).ack(channel, 999, multiple);
            check(&mut world, number, &["channel closed: 406"]);
            let (other, others) = open(&mut world, 1);
            for expect in ["got A again, 1 left", "got B again, 0 left"] {
                client(&mut world, other).get(others, queue);
                check(&mut world, other, &[expect]);
            }
        }
    }
}

#[test]
fn s38_what_is_rejected_is_gone_and_makes_room_for_one_more() {
    for home in [0, 1] {
        for dies in [false, true] {
            let (mut world, queues) = world();
            let queue = &queues[home];
            let (number, channel) = open(&mut world, 0);
            let mut arguments = Vec::new();
            if dies {
                let mut writer = TableWriter::new(&mut arguments);
                writer.pair(ShortStr::cut("x-dead-letter-exchange"), FieldValue::LongString(b""));
                writer.pair(ShortStr::cut("x-dead-letter-routing-key"), FieldValue::LongString(b"dead"));
            }
            let one = client(&mut world, number);
            one.declare(channel, "dead", false);
            one.declare_durable(channel, queue, &arguments);
            for body in ["A", "B", "C"] {
                one.publish(channel, queue, body, false);
            }
            one.prefetch(channel, 1);
            one.consume(channel, queue, "tag", false);
            world.run();
            assert_eq!(client(&mut world, number).take_seen().last().map(String::as_str), Some("tag: A"));
            let tag = client(&mut world, number).tags[0];
            client(&mut world, number).nack(channel, tag, false, false);
            // One more, and no further one.
            check(&mut world, number, &["tag: B"]);
            let (other, others) = open(&mut world, 1);
            client(&mut world, other).get(others, "dead");
            check(&mut world, other, &[if dies { "got A, 0 left" } else { "nothing" }]);
            // It is the consumer's no more.
            client(&mut world, number).nack(channel, tag, false, true);
            check(&mut world, number, &["channel closed: 406"]);
        }
    }
}

#[test]
fn s41_a_queue_of_a_connection_that_is_gone_is_free_and_one_of_a_living_connection_is_not() {
    for (home, moves, is_silent) in [
        (0, false, false),
        (0, false, true),
        (1, false, false),
        (1, false, true),
        (1, true, false),
        (1, true, true),
    ] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        client(&mut world, number).declare(channel, queue, true);
        if moves {
            client(&mut world, number).consume(channel, queue, "tag", false);
        }
        world.run();
        assert_eq!(world.shard_of(number), usize::from(moves));
        if is_silent {
            world.freeze(number);
            // One heartbeat of 60 seconds is missed, and not yet two.
            world.pass(70_000_000);
        }
        let (other, others) = open(&mut world, 1);
        client(&mut world, other).declare(others, queue, true);
        if is_silent {
            check(&mut world, other, &[&format!("declared {queue} 0 0")]);
            world.thaw(number);
            world.run();
            assert_eq!(
                client(&mut world, number).take_seen().last().map(String::as_str),
                Some("closed: 320")
            );
            client(&mut world, other).look(others, queue);
            check(&mut world, other, &[&format!("declared {queue} 0 0")]);
        } else {
            check(&mut world, other, &["channel closed: 405"]);
        }
    }
}

#[test]
fn s42_single_gets_beside_the_only_consumer_take_what_it_does_not_hold() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        let mut arguments = Vec::new();
        let mut writer = TableWriter::new(&mut arguments);
        writer.pair(ShortStr::cut("x-single-active-consumer"), FieldValue::Boolean(true));
        let one = client(&mut world, number);
        one.declare_durable(channel, queue, &arguments);
        one.prefetch(channel, 1);
        one.consume(channel, queue, "tag", false);
        for body in ["A", "B"] {
            one.publish(channel, queue, body, false);
        }
        world.run();
        assert_eq!(client(&mut world, number).take_seen().last().map(String::as_str), Some("tag: A"));
        let (other, others) = open(&mut world, 1);
        // Others are active on the queue: each get is answered, and nobody loses anything.
        for _ in 0..2 {
            client(&mut world, other).get(others, queue);
            world.run();
            let seen = client(&mut world, other).take_seen();
            assert_eq!(seen.len(), 1, "{seen:?}");
        }
        client(&mut world, other).close();
        world.run();
        let tag = client(&mut world, number).tags[0];
        client(&mut world, number).ack(channel, tag, false);
        world.run();
        let seen = client(&mut world, number).take_seen();
        assert!(seen.len() == 1 && seen[0].starts_with("tag: B"), "{seen:?}");
    }
}

#[test]
fn s43_tags_of_the_server_and_of_the_client_are_never_the_same_consumer() {
    for home in [0, 1] {
        let (mut world, queues) = world();
        let queue = &queues[home];
        let (number, channel) = open(&mut world, 0);
        let one = client(&mut world, number);
        one.declare(channel, queue, false);
        // The tag that the server would give next is taken by the client.
        one.consume(channel, queue, "amq.ctag-1.1", false);
        one.consume(channel, queue, "", false);
        world.run();
        let seen = client(&mut world, number).take_seen();
        let consuming: Vec<&String> = seen.iter().filter(|line| line.starts_with("consuming")).collect();
        assert!(consuming.len() == 2 && consuming[0] != consuming[1], "{seen:?}");
        // A tag comes again while its first consumer holds a message.
        client(&mut world, number).publish(channel, queue, "A", false);
        client(&mut world, number).publish(channel, queue, "B", false);
        world.run();
        client(&mut world, number).take_seen();
        client(&mut world, number).cancel(channel, "amq.ctag-1.1");
        client(&mut world, number).consume(channel, queue, "amq.ctag-1.1", false);
        check(&mut world, number, &["cancelled amq.ctag-1.1", "consuming amq.ctag-1.1"]);
        client(&mut world, number).consume(channel, queue, "amq.ctag-1.1", false);
        world.run();
        assert_eq!(client(&mut world, number).take_seen(), ["closed: 530"]);
        let (other, others) = open(&mut world, 1);
        for expect in ["got A again, 1 left", "got B again, 0 left"] {
            client(&mut world, other).get(others, queue);
            check(&mut world, other, &[expect]);
        }
    }
}

#[test]
fn s72_a_connection_that_fills_a_queue_and_empties_it_goes_on() {
    for home in [0, 1] {
        let rule = DestinationRule {
            pattern: ">".into(),
            messages_max: Some(4),
            overflow: Some(OverflowRule::Block),
            ..DestinationRule::default()
        };
        let mut world = World::new(&Setup { verify: true, rules: vec![rule], ..Setup::new(2) });
        let queue = &names_homed_at(home, 2).next().expect("one of many");
        let (number, channel) = open(&mut world, 0);
        let one = client(&mut world, number);
        one.confirm(channel);
        one.declare_durable(channel, queue, &[]);
        one.prefetch(channel, 1);
        one.consume(channel, queue, "tag", false);
        for n in 0..6 {
            one.publish(channel, queue, &n.to_string(), false);
        }
        world.run();
        let seen = client(&mut world, number).take_seen();
        assert!(seen.contains(&"blocked".to_owned()), "{seen:?}");
        for n in 0..6 {
            let one = client(&mut world, number);
            let tag = one.tags[n];
            one.ack(channel, tag, false);
            world.run();
        }
        let seen = client(&mut world, number).take_seen();
        assert!(seen.contains(&"unblocked".to_owned()) && seen.contains(&"tag: 5".to_owned()), "{seen:?}");
        // All that was published is answered, and what comes from now on too.
        client(&mut world, number).publish(channel, queue, "6", false);
        world.run();
        let seen = client(&mut world, number).take_seen();
        assert!(
            seen.iter().any(|line| line.starts_with("confirmed 7")) && seen.contains(&"tag: 6".to_owned()),
            "{seen:?}"
        );
    }
}

#[test]
fn what_waits_behind_a_get_of_another_shard_goes_on_when_that_is_answered() {
    let (mut world, queues) = world();
    let (number, channel) = open(&mut world, 0);
    let one = client(&mut world, number);
    one.declare(channel, &queues[0], false);
    one.declare(channel, &queues[1], false);
    one.publish(channel, &queues[1], "A", false);
    // It has settled down on its own shard.
    one.consume(channel, &queues[0], "tag", false);
    one.confirm(channel);
    world.run();
    client(&mut world, number).take_seen();
    for expect in ["got A, 0 left", "nothing"] {
        let one = client(&mut world, number);
        one.get(channel, &queues[1]);
        one.publish(channel, &queues[0], "B", false);
        world.run();
        let seen = client(&mut world, number).take_seen();
        assert_eq!(seen.first().map(String::as_str), Some(expect));
        assert!(seen.len() == 3 && seen.contains(&"tag: B".to_owned()), "{seen:?}");
    }
}
