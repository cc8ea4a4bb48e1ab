//! Do publishers on channels wait while a shard has no memory for messages, and go on afterwards?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, Setup, World, names_homed_at};

const MESSAGES: usize = 200;
const SIZE: usize = 10_000;

/// A world whose shards have room for a quarter of the messages.
fn world(home: usize) -> (World, String) {
    let memory = (MESSAGES * SIZE / 4) as u64;
    let world = World::new(&Setup { verify: true, memory, ..Setup::new(2) });
    (world, names_homed_at(home, 2).next().expect("one of many"))
}

fn publish_all(client: &mut ChannelClient, channel: SessionId, queue: &str) {
    for n in 0..MESSAGES {
        client.publish(channel, queue, &format!("{n:0SIZE$}"), false);
    }
}

/// How many messages were refused for want of room.
fn refused(world: &World) -> usize {
    world.shards.iter().map(|shard| shard.counters().messages_refused_full as usize).sum()
}

#[test]
fn who_only_publishes_waits_for_memory_and_loses_nothing() {
    let (mut world, queue) = world(0);
    let publisher = world.open_channel(0);
    let witness = world.open_channel(1);
    world.on_channel(publisher, |client, channel| client.declare(channel, &queue, false));
    let seen = world.on_channel(publisher, |client, channel| publish_all(client, channel, &queue));
    assert_eq!(seen, ["blocked"]);
    // Everybody hears it, and who comes now.
    assert_eq!(world.on_channel(witness, |_, _| {}), ["blocked"]);
    let number = world.connect_channels(1);
    assert_eq!(world.channel_client(number).take_seen(), ["blocked"]);
    let channel = world.channel_client(number).open_channel();
    world.run();
    let consumer = (number, channel);
    world.on_channel(consumer, |client, channel| {
        client.prefetch(channel, 10);
        client.consume(channel, &queue, "tag", false);
    });
    for n in 0..MESSAGES {
        let tag = *world.channel_client(number).tags.get(n).expect("there are all of them");
        world.on_channel(consumer, |client, channel| client.ack(channel, tag, false));
    }
    for client in [publisher, witness] {
        let seen = world.on_channel(client, |_, _| {});
        assert_eq!(seen.last().map(String::as_str), Some("unblocked"));
    }
    assert_eq!(refused(&world), 0);
}

/// The connection is not read while there is no memory, so nobody sees it end.
#[test]
fn s41_a_queue_is_free_whose_connection_has_hung_up_unread() {
    for (home, hangs_up) in [(0, true), (1, true), (0, false), (1, false)] {
        let (mut world, queue) = world(home);
        let publisher = world.open_channel(0);
        world.on_channel(publisher, |client, channel| client.declare(channel, &queue, true));
        world.on_channel(publisher, |client, channel| publish_all(client, channel, &queue));
        if hangs_up {
            world.hang_up(publisher.0);
        }
        let other = world.open_channel(1);
        let seen = world.on_channel(other, |client, channel| client.declare(channel, &queue, true));
        let expect =
            if hangs_up { format!("declared {queue} 0 0") } else { "channel closed: 405".to_owned() };
        assert!(seen.contains(&expect), "{home}: {seen:?}");
    }
}

#[test]
fn who_consumes_is_read_on_so_that_it_can_make_room() {
    for home in [0, 1] {
        let (mut world, queue) = world(home);
        let both = world.open_channel(0);
        world.on_channel(both, |client, channel| {
            client.declare(channel, &queue, false);
            client.prefetch(channel, 1);
            client.consume(channel, &queue, "tag", false);
        });
        let seen = world.on_channel(both, |client, channel| publish_all(client, channel, &queue));
        assert!(seen.contains(&"blocked".to_owned()), "{home}");
        let mut n = 0;
        while let Some(tag) = world.channel_client(both.0).tags.get(n).copied() {
            world.on_channel(both, |client, channel| client.ack(channel, tag, false));
            n += 1;
        }
        // What there was no room for was refused, and counted.
        assert_eq!(n + refused(&world), MESSAGES);
        world.on_channel(both, |client, channel| client.publish(channel, &queue, "last", false));
        assert_eq!(world.channel_client(both.0).tags.len(), n + 1);
    }
}
