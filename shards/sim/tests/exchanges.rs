//! Do exchanges lead to queues of any shard, from any shard?

use corelane_protocol::SessionId;
use corelane_sim::{
    ChannelClient, DiskSetup, ExchangeKind, SenderOptions, Setup, World, names_homed_at, table,
};
use corelane_wire::amqp10::{self, Header, Value};
use corelane_wire::amqp091::{FieldValue, Properties, Table};

const PLAIN: ExchangeKind<'static> =
    ExchangeKind { durable: false, auto_delete: false, internal: false, passive: false, arguments: &[] };
const DURABLE: ExchangeKind<'static> = ExchangeKind { durable: true, ..PLAIN };

/// A world with a client on each shard.
struct Stage {
    world: World,
    shards: usize,
    clients: Vec<(usize, SessionId)>,
}

impl Stage {
    fn new(shards: usize, disk: bool) -> Self {
        let disk = disk.then(DiskSetup::default);
        let world = World::new(&Setup { verify: true, disk, ..Setup::new(shards) });
        let mut stage = Stage { world, shards, clients: Vec::new() };
        stage.connect();
        stage
    }

    fn connect(&mut self) {
        self.clients.clear();
        for shard in 0..self.shards {
            let number = self.world.connect_channels(shard);
            let channel = self.world.channel_client(number).open_channel();
            self.world.run();
            self.world.channel_client(number).confirm(channel);
            self.world.run();
            self.world.channel_client(number).take_seen();
            self.clients.push((number, channel));
        }
    }

    fn name_at(&self, shard: usize) -> String {
        names_homed_at(shard, self.shards).next().expect("one of many")
    }

    /// Does it on the channel of this shard, and says what that has seen then.
    fn on(&mut self, shard: usize, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        let (number, channel) = self.clients[shard % self.shards];
        act(self.world.channel_client(number), channel);
        self.world.run();
        self.world.channel_client(number).take_seen()
    }

    #[track_caller]
    fn check(&mut self, shard: usize, act: impl FnOnce(&mut ChannelClient, SessionId), expect: &[&str]) {
        let seen = self.on(shard, act);
        assert_eq!(seen, expect);
    }

    /// Publishes and hears that it goes nowhere, or not.
    #[track_caller]
    fn publish(&mut self, shard: usize, to: (&str, &str), properties: &Properties<'_>, is_routed: bool) {
        let seen = self.on(shard, |client, channel| client.publish_to(channel, to, properties, "m", true));
        let (last, before) = seen.split_last().expect("it is confirmed");
        assert!(last.starts_with("confirmed"), "{seen:?}");
        let returned: &[String] = if is_routed { &[] } else { &["returned m: 312".to_owned()] };
        assert_eq!(before, returned, "{to:?}");
    }

    /// How many messages there are, which are taken.
    fn take(&mut self, queue: &str) -> usize {
        let mut count = 0;
        while !self.on(0, |client, channel| client.get(channel, queue)).contains(&"nothing".to_owned()) {
            count += 1;
            let (number, channel) = self.clients[0];
            let client = self.world.channel_client(number);
            let tag = *client.tags.last().expect("it was got");
            client.ack(channel, tag, false);
        }
        count
    }
}

#[test]
fn what_is_bound_on_one_shard_gets_what_is_published_on_another_right_after_the_ok() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, false);
            let queue = &stage.name_at(home);
            stage.check(1, |it, on| it.declare_exchange(on, "e", "topic", PLAIN), &["exchange declared"]);
            stage.check(2, |it, on| it.declare_exchange(on, "e", "topic", PLAIN), &["exchange declared"]);
            stage.on(0, |it, on| it.declare(on, queue, false));
            stage.publish(2, ("e", "a.b"), &Properties::default(), false);
            stage.check(2, |it, on| it.bind(on, queue, ("e", "a.*"), &[]), &["bound"]);
            for shard in 0..shards {
                stage.publish(shard, ("e", "a.b"), &Properties::default(), true);
                stage.publish(shard, ("e", "b"), &Properties::default(), false);
            }
            assert_eq!(stage.take(queue), shards);
            stage.check(1, |it, on| it.unbind(on, queue, ("e", "b")), &["unbound"]);
            stage.publish(0, ("e", "a.b"), &Properties::default(), true);
            stage.check(1, |it, on| it.unbind(on, queue, ("e", "a.*")), &["unbound"]);
            stage.publish(0, ("e", "a.b"), &Properties::default(), false);
        }
    }
}

#[test]
fn a_deleted_queue_is_bound_no_more_and_takes_exchanges_with_it() {
    let auto = ExchangeKind { auto_delete: true, ..PLAIN };
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, false);
            let queue = &stage.name_at(home);
            stage.on(0, |it, on| it.declare(on, queue, false));
            stage.on(0, |it, on| it.declare_exchange(on, "first", "fanout", auto));
            stage.on(1, |it, on| it.declare_exchange(on, "second", "direct", auto));
            stage.check(1, |it, on| it.bind_exchange(on, "first", "second", "k"), &["exchange bound"]);
            stage.on(2, |it, on| it.bind(on, queue, ("second", "k"), &[]));
            stage.publish(1, ("first", "k"), &Properties::default(), true);
            stage.check(2, |it, on| it.delete(on, queue, false), &["deleted 1"]);
            for (shard, exchange) in (0..3).flat_map(|shard| [(shard, "first"), (shard, "second")]) {
                let passive = ExchangeKind { passive: true, ..PLAIN };
                let seen = stage.on(shard, |it, on| it.declare_exchange(on, exchange, "", passive));
                assert_eq!(seen, ["channel closed: 404"], "{exchange}");
                stage.connect();
            }
        }
    }
}

#[test]
fn channels_are_told_what_cannot_be() {
    let stage = || Stage::new(3, false);
    type Act = fn(&mut ChannelClient, SessionId);
    let refused: [(Act, &str); 10] = [
        (|it, on| it.declare_exchange(on, "amq.foo", "direct", PLAIN), "channel closed: 403"),
        (|it, on| it.declare_exchange(on, "e", "stream", PLAIN), "channel closed: 406"),
        (|it, on| it.declare_exchange(on, "e", "x-delayed-message", PLAIN), "channel closed: 406"),
        (|it, on| it.declare_exchange(on, "amq.topic", "direct", DURABLE), "channel closed: 406"),
        (|it, on| it.delete_exchange(on, "amq.direct", false), "channel closed: 403"),
        (|it, on| it.delete_exchange(on, "nope", false), "exchange deleted"),
        (|it, on| it.bind(on, "nope", ("amq.direct", "k"), &[]), "channel closed: 404"),
        (|it, on| it.unbind(on, "nope", ("amq.direct", "k")), "unbound"),
        (|it, on| it.bind_exchange(on, "nope", "amq.direct", "k"), "channel closed: 404"),
        (
            |it, on| it.publish_to(on, ("nope", "k"), &Properties::default(), "m", false),
            "channel closed: 404",
        ),
    ];
    for (n, (act, expect)) in refused.into_iter().enumerate() {
        assert_eq!(stage().on(n, act), [expect], "{n}");
    }
    let mut stage = stage();
    let queue = &stage.name_at(2);
    stage.on(0, |it, on| it.declare(on, queue, false));
    stage.check(0, |it, on| it.bind(on, queue, ("nope", "k"), &[]), &["channel closed: 404"]);
    let internal = ExchangeKind { internal: true, ..PLAIN };
    stage.on(1, |it, on| it.declare_exchange(on, "inner", "fanout", internal));
    let publish =
        |it: &mut ChannelClient, on| it.publish_to(on, ("inner", ""), &Properties::default(), "m", false);
    stage.check(1, publish, &["channel closed: 403"]);
    stage.check(2, |it, on| it.bind(on, queue, ("inner", ""), &[]), &["bound"]);
    stage.check(2, |it, on| it.delete_exchange(on, "inner", true), &["channel closed: 406"]);
}

#[test]
fn headers_alternate_exchanges_and_further_keys_lead_to_queues() {
    for shards in [1, 3] {
        let mut stage = Stage::new(shards, false);
        let names: Vec<String> = (0..3).map(|n| stage.name_at(n % shards) + &format!(".{n}")).collect();
        let [by_headers, by_alternate, by_copy] = &*names else { unreachable!("there are three") };
        for name in &names {
            stage.on(0, |it, on| it.declare(on, name, false));
        }
        let alternate = table(&[("alternate-exchange", FieldValue::LongString(b"amq.fanout"))]);
        let kind = ExchangeKind { arguments: &alternate, ..PLAIN };
        stage.on(0, |it, on| it.declare_exchange(on, "h", "headers", kind));
        let wanted = table(&[("x-match", FieldValue::LongString(b"all")), ("n", FieldValue::Int8(1))]);
        stage.on(1, |it, on| it.bind(on, by_headers, ("h", ""), &wanted));
        stage.on(2, |it, on| it.bind(on, by_alternate, ("amq.fanout", ""), &[]));
        stage.on(2, |it, on| it.bind(on, by_copy, ("amq.direct", "copy"), &[]));
        for (number, shard) in [(1, 0), (2, 0), (1, 1), (2, 2)] {
            let headers = table(&[("n", FieldValue::Int64(number))]);
            let properties = Properties { headers: Some(Table::new(&headers)), ..Properties::default() };
            stage.publish(shard, ("h", "k"), &properties, true);
        }
        assert_eq!((stage.take(by_headers), stage.take(by_alternate)), (2, 2));
        let mut keys = Vec::new();
        corelane_wire::amqp091::ArrayWriter::new(&mut keys).value(FieldValue::LongString(b"copy"));
        let copies = corelane_wire::amqp091::Array::new(&keys);
        let headers = table(&[("CC", FieldValue::Array(copies))]);
        let properties = Properties { headers: Some(Table::new(&headers)), ..Properties::default() };
        stage.publish(1, ("amq.direct", "k"), &properties, true);
        stage.publish(1, ("amq.direct", "k"), &Properties::default(), false);
        assert_eq!(stage.take(by_copy), 1);
    }
}

#[test]
fn durable_exchanges_and_bindings_are_there_after_a_restart() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, true);
            let (queue, gone) = (&stage.name_at(home), &format!("{}.gone", stage.name_at(home)));
            let transient = &format!("{}.transient", stage.name_at(home));
            stage.on(0, |it, on| it.declare_durable(on, queue, &[]));
            stage.on(0, |it, on| it.declare_durable(on, gone, &[]));
            stage.on(0, |it, on| it.declare(on, transient, false));
            stage.check(1, |it, on| it.declare_exchange(on, "e", "direct", DURABLE), &["exchange declared"]);
            stage.on(1, |it, on| it.declare_exchange(on, "f", "fanout", DURABLE));
            stage.on(1, |it, on| it.declare_exchange(on, "ended", "fanout", DURABLE));
            stage.on(1, |it, on| it.declare_exchange(on, "passing", "fanout", PLAIN));
            for (queue, key) in [(queue, "k"), (queue, "unbound"), (gone, "gone"), (transient, "t")] {
                stage.check(2, |it, on| it.bind(on, queue, ("e", key), &[]), &["bound"]);
            }
            stage.on(2, |it, on| it.bind_exchange(on, "f", "e", ""));
            stage.on(0, |it, on| it.unbind(on, queue, ("e", "unbound")));
            stage.on(0, |it, on| it.delete(on, gone, false));
            stage.on(0, |it, on| it.delete_exchange(on, "ended", false));
            for _ in 0..3 {
                stage.world.crash_and_restart();
                stage.connect();
                stage.on(0, |it, on| it.declare_durable(on, gone, &[]));
                for shard in 0..3 {
                    for exchange in ["e", "f"] {
                        stage.publish(shard, (exchange, "k"), &Properties::default(), true);
                        for key in ["unbound", "gone", "t"] {
                            stage.publish(shard, (exchange, key), &Properties::default(), false);
                        }
                    }
                }
                assert_eq!(stage.take(queue), 6);
                for exchange in ["ended", "passing"] {
                    let passive = ExchangeKind { passive: true, ..PLAIN };
                    let seen = stage.on(0, |it, on| it.declare_exchange(on, exchange, "", passive));
                    assert_eq!(seen, ["channel closed: 404"], "{exchange}");
                    stage.connect();
                }
                stage.on(0, |it, on| it.delete(on, gone, false));
            }
        }
    }
}

#[test]
fn a_durable_binding_is_of_the_queue_that_was_bound() {
    // The queue is deleted and declared again, and the broker stops before the coordinator has written what that ends.
    let mut stage = Stage::new(3, true);
    let queue = &stage.name_at(2);
    stage.on(0, |it, on| it.declare_durable(on, queue, &[]));
    stage.on(0, |it, on| it.bind(on, queue, ("amq.direct", "k"), &[]));
    stage.world.disks[0].held = true;
    // It is not said to be deleted before all of that is written, but others see that it is.
    stage.check(1, |it, on| it.delete(on, queue, false), &[]);
    let declared = format!("declared {queue} 0 0");
    stage.check(2, |it, on| it.declare_durable(on, queue, &[]), &[&declared]);
    stage.world.disks[0].held = false;
    stage.world.crash_and_restart();
    stage.connect();
    stage.check(0, |it, on| it.declare_durable(on, queue, &[]), &[&declared]);
    stage.publish(1, ("amq.direct", "k"), &Properties::default(), false);
}

#[test]
fn what_was_declared_is_checked_after_a_restart_too() {
    let arguments = table(&[("x-message-ttl", FieldValue::Int32(60_000))]);
    for disk in [false, true] {
        let mut stage = Stage::new(2, disk);
        let queue = &stage.name_at(1);
        stage.on(0, |it, on| it.declare_durable(on, queue, &arguments));
        if disk {
            stage.world.crash_and_restart();
            stage.connect();
        }
        let wider = table(&[("x-message-ttl", FieldValue::Int64(60_000))]);
        let ok = format!("declared {queue} 0 0");
        stage.check(0, |it, on| it.declare_durable(on, queue, &wider), &[&ok]);
        stage.check(1, |it, on| it.declare_durable(on, queue, &[]), &["channel closed: 406"]);
        stage.connect();
        stage.check(1, |it, on| it.declare(on, queue, false), &["channel closed: 406"]);
    }
}

#[test]
fn dead_letters_go_through_exchanges() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, home == 0);
            let (queue, dead) = (&stage.name_at(home), &format!("{}.dead", stage.name_at(home)));
            for (key, expect) in [(Some("dead"), 1), (None, 1), (Some("nowhere"), 0)] {
                let mut pairs = vec![("x-dead-letter-exchange", FieldValue::LongString(b"amq.direct"))];
                if let Some(key) = key {
                    pairs.push(("x-dead-letter-routing-key", FieldValue::LongString(key.as_bytes())));
                }
                stage.on(0, |it, on| it.declare_durable(on, queue, &table(&pairs)));
                stage.on(0, |it, on| it.declare_durable(on, dead, &[]));
                // Without a key of its own a dead letter has the one that it was published with: the queue's name.
                for key in ["dead", queue] {
                    stage.on(1, |it, on| it.bind(on, dead, ("amq.direct", key), &[]));
                }
                stage.publish(2, ("", queue), &Properties::default(), true);
                stage.on(0, |it, on| it.get(on, queue));
                let (number, channel) = stage.clients[0];
                let client = stage.world.channel_client(number);
                let tag = *client.tags.last().expect("it was got");
                client.nack(channel, tag, false, false);
                stage.world.run();
                assert_eq!(stage.take(dead), expect, "{key:?}");
                stage.on(0, |it, on| it.delete(on, queue, false));
                stage.on(0, |it, on| it.delete(on, dead, false));
            }
        }
    }
}

#[test]
fn producers_of_1_0_publish_to_exchanges() {
    for shards in [1, 3] {
        for home in 0..shards {
            let mut stage = Stage::new(shards, false);
            let queue = &stage.name_at(home);
            stage.on(0, |it, on| it.declare(on, queue, false));
            let client = stage.world.connect(1 % shards);
            let attach = |world: &mut World, name: &str, address: &str| {
                world.clients[client].attach_sender(name, address, &SenderOptions::default())
            };
            let [by_key, by_header] =
                [("by key", "/exchanges/amq.topic/a.b"), ("by header", "/exchanges/amq.headers")]
                    .map(|(name, address)| attach(&mut stage.world, name, address));
            let missing = attach(&mut stage.world, "missing", "/exchanges/nope/a.b");
            stage.world.run();
            let not_found = (missing, Some("amqp:not-found".to_owned()));
            assert_eq!(stage.world.clients[client].detached, [not_found]);
            let send = |stage: &mut Stage, link| {
                let properties = &[("n", Value::Int(1))];
                let (header, sections) = (Header::default(), amqp10::Properties::default());
                let token = stage.world.clients[client].send_with(link, "m", &sections, properties, &header);
                stage.world.run();
                stage.world.clients[client].outcome(token).map(str::to_owned)
            };
            for link in [by_key, by_header] {
                assert_eq!(send(&mut stage, link).as_deref(), Some("released"));
            }
            let wanted = table(&[("n", FieldValue::Int8(1))]);
            stage.on(2, |it, on| it.bind(on, queue, ("amq.topic", "a.#"), &[]));
            stage.on(2, |it, on| it.bind(on, queue, ("amq.headers", ""), &wanted));
            for link in [by_key, by_header] {
                assert_eq!(send(&mut stage, link).as_deref(), Some("accepted"));
            }
            assert_eq!(stage.take(queue), 2);
        }
    }
}
