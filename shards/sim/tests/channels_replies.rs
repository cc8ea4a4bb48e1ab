//! Do replies reach the channel that has asked, and nobody else, without a queue that it has declared?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, Setup, World};
use corelane_wire::amqp091::{Properties, ShortStr};

const REPLY_TO: &str = "amq.rabbitmq.reply-to";

fn ask(client: &mut ChannelClient, channel: SessionId, body: &str) {
    let request = Properties { reply_to: Some(ShortStr::literal(REPLY_TO)), ..Properties::default() };
    client.publish_to(channel, ("", "requests"), &request, body, true);
}

/// A world with a server of `requests` on shard 1, and two clients of shard 0 that consume their replies.
fn world() -> (World, (usize, SessionId), [(usize, SessionId); 2]) {
    let mut world = World::new(&Setup { verify: true, ..Setup::new(2) });
    let server = world.open_channel(1);
    world.on_channel(server, |client, channel| client.declare(channel, "requests", false));
    let clients = [world.open_channel(0), world.open_channel(0)];
    for client in clients {
        let seen = world.on_channel(client, |client, channel| client.consume_settled(channel, REPLY_TO, "r"));
        assert_eq!(seen, ["consuming r"]);
    }
    (world, server, clients)
}

/// Where the server is to send the next reply.
fn next_reply_to(world: &mut World, server: (usize, SessionId)) -> String {
    let seen = world.on_channel(server, |client, channel| client.get(channel, "requests"));
    assert!(seen[0].starts_with("got"), "{seen:?}");
    world.channel_client(server.0).reply_tos.pop().expect("it says where to")
}

#[test]
fn a_reply_goes_to_the_channel_that_has_asked() {
    let (mut world, server, clients) = world();
    let mut names = Vec::new();
    for client in clients {
        world.on_channel(client, |client, channel| ask(client, channel, "A"));
        names.push(next_reply_to(&mut world, server));
    }
    assert!(names[0] != names[1] && names.iter().all(|name| name.starts_with(REPLY_TO)), "{names:?}");
    for (n, client) in clients.into_iter().enumerate() {
        let seen = world.on_channel(server, |client, channel| client.publish(channel, &names[n], "a", true));
        assert!(seen.is_empty(), "{seen:?}");
        assert_eq!(world.on_channel(client, |_, _| {}), ["r: a"]);
        assert_eq!(world.on_channel(clients[1 - n], |_, _| {}), [""; 0], "{n}");
        // Whoever is to answer can see whether it is waited for, and that is all.
        for name in [&names[n], REPLY_TO] {
            let seen = world.on_channel(server, |client, channel| client.look(channel, name));
            assert_eq!(seen, [format!("declared {name} 0 1")]);
        }
        let other = world.open_channel(1);
        let seen = world.on_channel(other, |client, channel| client.get(channel, &names[n]));
        assert_eq!(seen, ["channel closed: 405"]);
    }
}

#[test]
fn a_reply_that_nobody_waits_for_goes_nowhere() {
    for end in 0..3 {
        let (mut world, server, [client, _]) = world();
        world.on_channel(client, |client, channel| ask(client, channel, "A"));
        let name = next_reply_to(&mut world, server);
        match end {
            0 => drop(world.on_channel(client, |client, channel| client.cancel(channel, "r"))),
            1 => drop(world.on_channel(client, |client, channel| client.close_channel(channel))),
            _ => world.kill(client.0),
        }
        world.run();
        for name in [name.as_str(), "amq.rabbitmq.reply-to.none"] {
            let seen = world.on_channel(server, |client, channel| client.publish(channel, name, "a", true));
            assert_eq!(seen, ["returned a: 312"]);
        }
        let seen = world.on_channel(server, |client, channel| client.look(channel, &name));
        assert_eq!(seen, ["channel closed: 404"]);
    }
}

#[test]
fn who_wants_replies_has_to_consume_them_without_acknowledging() {
    let (mut world, _, [client, other]) = world();
    let seen = world.on_channel(other, |client, channel| client.consume_settled(channel, REPLY_TO, "s"));
    assert_eq!(seen, ["channel closed: 406"], "one consumer a channel");
    let channel = world.channel_client(client.0).open_channel();
    world.run();
    world.channel_client(client.0).take_seen();
    let acknowledging = (client.0, channel);
    let seen =
        world.on_channel(acknowledging, |client, channel| client.consume(channel, REPLY_TO, "s", false));
    assert_eq!(seen, ["channel closed: 406"]);
    // The consumer is another channel's.
    let silent = world.open_channel(0);
    assert_eq!(
        world.on_channel(silent, |client, channel| ask(client, channel, "A")),
        ["channel closed: 406"]
    );
    let cancelled = world.on_channel(client, |client, channel| client.cancel(channel, "r"));
    assert_eq!(cancelled, ["cancelled r"]);
    assert_eq!(
        world.on_channel(client, |client, channel| ask(client, channel, "A")),
        ["channel closed: 406"]
    );
}
