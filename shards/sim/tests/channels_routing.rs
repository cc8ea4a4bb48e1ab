//! Are messages held back by exchanges that delay them, and do further keys lead to further queues, on any shard?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, DiskSetup, ExchangeKind, Setup, World, names_homed_at};
use corelane_wire::amqp091::{FieldValue, Properties, ShortStr, Table, TableWriter};

const SECOND: u64 = 1_000_000;

/// A channel of shard 0 with confirms, and a queue on each shard.
struct Stage {
    world: World,
    number: usize,
    channel: SessionId,
    queues: [String; 2],
}

impl Stage {
    fn new() -> Stage {
        let disk = Some(DiskSetup::default());
        let world = World::new(&Setup { verify: true, disk, ..Setup::new(2) });
        let queues = [0, 1].map(|shard| names_homed_at(shard, 2).next().expect("one of many"));
        let mut stage = Stage { world, number: 0, channel: SessionId(0), queues: queues.clone() };
        stage.connect();
        for queue in &queues {
            stage.on(|client, channel| client.declare_durable(channel, queue, &[]));
        }
        stage
    }

    fn connect(&mut self) {
        self.number = self.world.connect_channels(0);
        self.channel = self.world.channel_client(self.number).open_channel();
        self.world.run();
        self.on(|client, channel| client.confirm(channel));
    }

    fn on(&mut self, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        act(self.world.channel_client(self.number), self.channel);
        self.world.run();
        self.world.channel_client(self.number).take_seen()
    }

    fn declare_delayed(&mut self, exchange: &str, kind: Option<&str>) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut writer = TableWriter::new(&mut arguments);
        if let Some(kind) = kind {
            writer.pair(ShortStr::cut("x-delayed-type"), FieldValue::LongString(kind.as_bytes()));
        }
        let asked = ExchangeKind { durable: true, arguments: &arguments, ..ExchangeKind::default() };
        self.on(|client, channel| client.declare_exchange(channel, exchange, "x-delayed-message", asked))
    }

    /// Publishes a durable message with a header, and hears that it goes nowhere, or not.
    #[track_caller]
    fn publish(
        &mut self,
        to: (&str, &str),
        header: Option<(&str, FieldValue<'_>)>,
        body: &str,
        is_routed: bool,
    ) {
        let headers = header.map(|(name, value)| table(|writer| writer.pair(ShortStr::cut(name), value)));
        let headers = headers.as_deref().map(Table::new);
        let properties = Properties { delivery_mode: Some(2), headers, ..Properties::default() };
        let seen = self.on(|client, channel| client.publish_to(channel, to, &properties, body, true));
        let (last, before) = seen.split_last().expect("it is confirmed");
        assert!(last.starts_with("confirmed"), "{seen:?}");
        let returned: &[String] = if is_routed { &[] } else { &[format!("returned {body}: 312")] };
        assert_eq!(before, returned, "{to:?}");
    }

    /// What each queue has, which is taken.
    fn take(&mut self) -> [String; 2] {
        self.queues.clone().map(|queue| {
            let mut bodies = Vec::new();
            loop {
                let seen = self.on(|client, channel| client.get(channel, &queue));
                match seen[0].strip_prefix("got ").and_then(|line| line.split([',', ' ']).next()) {
                    Some(body) => bodies.push(body.to_owned()),
                    None => return bodies.join(" "),
                }
            }
        })
    }
}

fn table(write: impl FnOnce(&mut TableWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut TableWriter::new(&mut bytes));
    bytes
}

fn delay(milliseconds: i32) -> Option<(&'static str, FieldValue<'static>)> {
    Some(("x-delay", FieldValue::Int32(milliseconds)))
}

#[test]
fn what_is_to_be_delayed_is_there_when_that_is_over() {
    let mut stage = Stage::new();
    assert_eq!(stage.declare_delayed("late", Some("topic")), ["exchange declared"]);
    for queue in stage.queues.clone() {
        stage.on(|client, channel| client.bind(channel, &queue, ("late", "a.#"), &[]));
    }
    stage.publish(("late", "a.b"), delay(5_000), "A", true);
    stage.publish(("late", "a.b"), delay(0), "B", true);
    stage.publish(("late", "a.b"), delay(-5_000), "C", true);
    stage.publish(("late", "a.b"), None, "D", true);
    stage.publish(("late", "b"), delay(1), "E", false);
    assert_eq!(stage.take(), ["B C D", "B C D"]);
    stage.world.pass(4 * SECOND);
    assert_eq!(stage.take(), ["", ""]);
    stage.world.pass(2 * SECOND);
    assert_eq!(stage.take(), ["A", "A"]);
}

#[test]
fn only_the_way_through_a_delaying_exchange_is_delayed() {
    let mut stage = Stage::new();
    stage.declare_delayed("late", Some("fanout"));
    let [one, other] = stage.queues.clone();
    stage.on(|client, channel| client.bind(channel, &one, ("amq.fanout", ""), &[]));
    stage.on(|client, channel| client.bind(channel, &other, ("late", ""), &[]));
    stage.on(|client, channel| client.bind_exchange(channel, "amq.fanout", "late", ""));
    stage.publish(("amq.fanout", ""), delay(5_000), "A", true);
    assert_eq!(stage.take(), ["A", ""]);
    stage.world.pass(6 * SECOND);
    assert_eq!(stage.take(), ["", "A"]);
    // What has waited once does not wait again where it dies.
    let arguments = table(|writer| {
        writer.pair(ShortStr::cut("x-dead-letter-exchange"), FieldValue::LongString(b"late"));
    });
    stage.on(|client, channel| client.declare_durable(channel, "dying", &arguments));
    stage.on(|client, channel| client.bind(channel, "dying", ("late", ""), &[]));
    stage.publish(("late", ""), delay(5_000), "B", true);
    stage.world.pass(6 * SECOND);
    assert_eq!(stage.take(), ["", "B"]);
    stage.on(|client, channel| client.get(channel, "dying"));
    let tag = *stage.world.channel_client(stage.number).tags.last().expect("it was got");
    stage.on(|client, channel| client.nack(channel, tag, false, false));
    assert_eq!(stage.take(), ["", "B"]);
}

#[test]
fn what_is_delayed_is_there_after_a_crash_and_waits_on() {
    let mut stage = Stage::new();
    stage.declare_delayed("late", Some("direct"));
    for queue in stage.queues.clone() {
        stage.on(|client, channel| client.bind(channel, &queue, ("late", "k"), &[]));
    }
    stage.publish(("late", "k"), delay(60_000), "A", true);
    stage.world.crash_and_restart();
    stage.connect();
    assert_eq!(stage.take(), ["", ""]);
    stage.publish(("late", "k"), delay(60_000), "B", true);
    stage.world.pass(61 * SECOND);
    assert_eq!(stage.take(), ["A B", "A B"]);
}

#[test]
fn an_exchange_that_delays_says_how_it_routes() {
    for kind in [None, Some("nonsense")] {
        let mut stage = Stage::new();
        assert_eq!(stage.declare_delayed("late", kind), ["channel closed: 406"]);
    }
}

#[test]
fn further_keys_lead_to_further_queues() {
    for (exchange, header) in [("", "CC"), ("", "BCC"), ("amq.direct", "CC"), ("amq.direct", "BCC")] {
        let mut stage = Stage::new();
        let [one, other] = stage.queues.clone();
        for queue in [&one, &other].into_iter().filter(|_| !exchange.is_empty()) {
            stage.on(|client, channel| client.bind(channel, queue, (exchange, queue), &[]));
        }
        let keys = |keys: &[&str]| {
            table(|writer| {
                writer.array(ShortStr::cut(header), |array| {
                    keys.iter().for_each(|key| array.value(FieldValue::LongString(key.as_bytes())));
                });
            })
        };
        let mut publish = |key: &str, further: &[&str], body: &str, is_routed: bool| {
            let headers = keys(further);
            let value = Table::new(&headers).find(header).expect("it is well-formed").expect("it is there");
            stage.publish((exchange, key), Some((header, value)), body, is_routed);
        };
        publish(&one, &[&other], "A", true);
        publish(&one, &[&one, "none", &one], "B", true);
        publish("none", &[&other, "none", "no"], "C", true);
        publish("none", &["no"], "D", false);
        publish("none", &[], "E", false);
        assert_eq!(stage.take(), ["A B", "A C"], "{exchange:?} {header}");
    }
}
