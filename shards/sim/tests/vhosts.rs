//! Do things of the same name in different virtual hosts know nothing of each other, on any shards?

use corelane_protocol::SessionId;
use corelane_sim::{
    ChannelClient, DiskSetup, ExchangeKind, Item, Operator, ReceiverOptions, SenderOptions, Setup, World,
    names_homed_at,
};
use corelane_wire::amqp10::Value;
use corelane_wire::amqp091::{FieldValue, Properties, ShortStr, TableWriter};

const HOSTS: [&str; 3] = ["/", "blue", "a.b/c"];
const DURABLE: ExchangeKind<'static> =
    ExchangeKind { durable: true, auto_delete: false, internal: false, passive: false, arguments: &[] };

/// A world with a channel in each virtual host.
struct Stage {
    world: World,
    channels: Vec<(usize, SessionId)>,
}

fn setup(shards: usize, disk: bool) -> Setup {
    let disk = disk.then(DiskSetup::default);
    Setup { vhosts: HOSTS[1..].iter().map(|name| (*name).into()).collect(), disk, ..Setup::new(shards) }
}

impl Stage {
    fn new(shards: usize, disk: bool) -> Self {
        let mut stage = Stage { world: World::new(&setup(shards, disk)), channels: Vec::new() };
        stage.connect(shards);
        stage
    }

    fn connect(&mut self, shards: usize) {
        self.channels.clear();
        for (at, host) in HOSTS.into_iter().enumerate() {
            let number = self.world.connect_channels_in(at % shards, host);
            let channel = self.world.channel_client(number).open_channel();
            self.world.run();
            self.world.channel_client(number).confirm(channel);
            self.world.run();
            self.world.channel_client(number).take_seen();
            self.channels.push((number, channel));
        }
    }

    fn on(&mut self, host: usize, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        let (number, channel) = self.channels[host];
        act(self.world.channel_client(number), channel);
        self.world.run();
        self.world.channel_client(number).take_seen()
    }

    /// The bodies in a queue, which are taken.
    fn take(&mut self, host: usize, queue: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let seen = self.on(host, |it, on| it.get(on, queue));
            if seen == ["nothing"] {
                return all;
            }
            all.extend(seen);
            let (number, channel) = self.channels[host];
            let client = self.world.channel_client(number);
            let tag = *client.tags.last().expect("it was got");
            client.ack(channel, tag, false);
        }
    }
}

#[track_caller]
fn assert_has(seen: &[String], body: &str) {
    assert!(matches!(seen, [one] if one.contains(body)), "{seen:?}, expected {body} alone");
}

#[test]
fn a_virtual_host_that_is_not_there_is_refused() {
    let mut world = World::new(&setup(2, false));
    let number = world.connect_channels_in(0, "green");
    assert_eq!(world.channel_client(number).take_seen(), ["closed: 530"]);
    let client = world.connect_in(1, "green");
    assert_eq!(world.clients[client].closed, Some(Some("amqp:not-found".to_owned())));
}

#[test]
fn queues_and_exchanges_of_one_name_never_meet() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, false);
            let queue = &names_homed_at(home, shards).next().expect("one of many");
            for (host, name) in HOSTS.into_iter().enumerate() {
                assert_eq!(stage.on(host, |it, on| it.look(on, queue)), ["channel closed: 404"], "{name}");
                stage.connect(shards);
                let declared = stage.on(host, |it, on| it.declare(on, queue, false));
                assert_eq!(declared, [format!("declared {queue} 0 0")]);
            }
            for host in 0..HOSTS.len() {
                let kind = ["direct", "fanout", "topic"][host];
                let declared = stage.on(host, |it, on| it.declare_exchange(on, "e", kind, DURABLE));
                assert_eq!(declared, ["exchange declared"], "another type in each");
                stage.on(host, |it, on| it.bind(on, queue, ("e", "k"), &[]));
                stage.on(host, |it, on| it.bind(on, queue, ("amq.direct", "k"), &[]));
            }
            for host in 0..HOSTS.len() {
                for to in [("", &**queue), ("e", "k"), ("amq.direct", "k")] {
                    let body = format!("m{host}");
                    let seen =
                        stage.on(host, |it, on| it.publish_to(on, to, &Properties::default(), &body, true));
                    assert!(matches!(&*seen, [line] if line.starts_with("confirmed")), "{seen:?}");
                }
            }
            for host in 0..HOSTS.len() {
                let seen = stage.take(host, queue);
                assert_eq!(seen.len(), 3, "{seen:?}");
                assert!(seen.iter().all(|line| line.contains(&format!("m{host}"))), "{seen:?}");
            }
            stage.on(1, |it, on| it.delete(on, queue, false));
            assert_eq!(stage.on(2, |it, on| it.look(on, queue)).len(), 1, "it is there still");
            assert_eq!(stage.on(1, |it, on| it.look(on, queue)), ["channel closed: 404"]);
        }
    }
}

#[test]
fn dead_letters_stay_in_their_virtual_host() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, false);
            let queue = &names_homed_at(home, shards).next().expect("one of many");
            let mut arguments = Vec::new();
            let mut writer = TableWriter::new(&mut arguments);
            writer.pair(ShortStr::literal("x-dead-letter-exchange"), FieldValue::LongString(b"dlx"));
            for host in 0..HOSTS.len() {
                stage.on(host, |it, on| it.declare_exchange(on, "dlx", "fanout", DURABLE));
                stage.on(host, |it, on| it.declare(on, "dead", false));
                stage.on(host, |it, on| it.bind(on, "dead", ("dlx", ""), &[]));
                stage.on(host, |it, on| it.declare_durable(on, queue, &arguments));
            }
            stage.on(1, |it, on| it.publish(on, queue, "m1", true));
            stage.on(1, |it, on| it.get(on, queue));
            let (number, channel) = stage.channels[1];
            let client = stage.world.channel_client(number);
            let tag = *client.tags.last().expect("it was got");
            client.nack(channel, tag, false, false);
            stage.world.run();
            assert_has(&stage.take(1, "dead"), "m1");
            for other in [0, 2] {
                assert_eq!(stage.take(other, "dead"), [""; 0]);
            }
        }
    }
}

#[test]
fn both_protocols_and_topics_mean_the_virtual_host_of_their_connection() {
    for shards in [1, 3] {
        let mut stage = Stage::new(shards, false);
        let clients: Vec<usize> = HOSTS
            .iter()
            .enumerate()
            .map(|(at, host)| stage.world.connect_in((at + 1) % shards, host))
            .collect();
        let receivers: Vec<_> = clients
            .iter()
            .map(|client| {
                let it = &mut stage.world.clients[*client];
                let options = ReceiverOptions::default();
                let links = ["q", "topic://#"].map(|address| it.attach_receiver(address, address, &options));
                links.iter().for_each(|link| it.credit(*link, 10));
                links
            })
            .collect();
        stage.world.run();
        for (host, client) in clients.iter().enumerate() {
            let it = &mut stage.world.clients[*client];
            let sender = it.attach_sender("s", "topic://news.eu", &SenderOptions::default());
            it.send(sender, &format!("t{host}"));
            stage.world.run();
            stage.on(host, |it, on| it.publish(on, "q", &format!("m{host}"), true));
        }
        for (host, (client, links)) in clients.iter().zip(receivers).enumerate() {
            let it = &stage.world.clients[*client];
            assert_eq!(it.bodies(links[0]), [format!("m{host}")]);
            assert_eq!(it.bodies(links[1]), [format!("t{host}")]);
        }
    }
}

#[test]
fn what_is_durable_is_there_again_in_its_virtual_host() {
    for shards in [1, 3] {
        let mut stage = Stage::new(shards, true);
        for host in 0..HOSTS.len() {
            stage.on(host, |it, on| {
                it.declare_exchange(on, "e", ["direct", "fanout", "topic"][host], DURABLE)
            });
            stage.on(host, |it, on| it.declare_durable(on, "q", &[]));
            stage.on(host, |it, on| it.bind(on, "q", ("e", "k"), &[]));
            let durable = Properties { delivery_mode: Some(2), ..Properties::default() };
            let body = format!("m{host}");
            stage.on(host, |it, on| it.publish_to(on, ("e", "k"), &durable, &body, true));
        }
        stage.world.crash_and_restart();
        stage.connect(shards);
        for host in 0..HOSTS.len() {
            assert_has(&stage.take(host, "q"), &format!("m{host}"));
            let body = format!("n{host}");
            stage.on(host, |it, on| it.publish_to(on, ("e", "k"), &Properties::default(), &body, true));
            assert_has(&stage.take(host, "q"), &body);
        }
    }
}

#[test]
fn the_management_node_shows_and_changes_what_is_in_its_virtual_host() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, false);
            let mut names = names_homed_at(home, shards);
            let (queue, only) = (&names.next().expect("one of many"), &names.next().expect("one of many"));
            for host in 0..HOSTS.len() {
                stage.on(host, |it, on| it.declare(on, queue, false));
                (0..=host).for_each(|_| drop(stage.on(host, |it, on| it.publish(on, queue, "m", true))));
            }
            stage.on(1, |it, on| it.declare(on, only, false));
            stage.on(1, |it, on| it.declare_exchange(on, "mine", "fanout", DURABLE));
            stage.on(1, |it, on| it.bind(on, only, ("mine", ""), &[]));
            let operators: Vec<_> =
                HOSTS.iter().map(|host| Operator::within(&mut stage.world, 0, host)).collect();
            for (host, mut operator) in operators.into_iter().enumerate() {
                let mut ask = |operation: &str, name: &str| {
                    operator.ask(&mut stage.world, operation, ("queue", name), &[], &[])
                };
                let read = ask("READ", queue);
                assert_eq!((read.at("name"), read.at("messages")), (queue.clone(), (host + 1).to_string()));
                assert_eq!(ask("READ", only).status, if host == 1 { 200 } else { 404 });
                let mut rows = |kind| {
                    let columns = [("attributeNames", Item::Texts(&["name"]))];
                    let about = [("entityType", Value::String(kind))];
                    let node = ("org.amqp.management", "self");
                    operator.ask(&mut stage.world, "QUERY", node, &about, &columns).body
                };
                let queues = rows("queue");
                assert!(queues.contains(&**queue) && !queues.contains('\u{1f}'), "{queues}");
                assert_eq!(queues.contains(&**only), host == 1, "{queues}");
                assert_eq!(rows("exchange").contains("mine"), host == 1);
                assert_eq!(rows("binding").contains("mine"), host == 1);
                let mut ask =
                    |operation: &str| operator.ask(&mut stage.world, operation, ("queue", queue), &[], &[]);
                assert_eq!(ask("PURGE").status, 200);
                assert_eq!(ask("DELETE").status, 204);
                let left: Vec<_> = (0..HOSTS.len())
                    .map(|other| {
                        stage
                            .world
                            .shards
                            .iter()
                            .filter(|shard| {
                                let name = if other == 0 {
                                    queue.clone()
                                } else {
                                    format!("\u{1f}{}\u{1f}{queue}", HOSTS[other])
                                };
                                shard.queue(&name).is_some()
                            })
                            .count()
                    })
                    .collect();
                let expect: Vec<_> = (0..HOSTS.len()).map(|other| usize::from(other > host)).collect();
                assert_eq!(left, expect, "after the deletion in {:?}", HOSTS[host]);
            }
        }
    }
}
