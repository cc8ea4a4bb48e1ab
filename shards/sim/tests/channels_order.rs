//! In which order do channels get what there is, who gets it next, and what of it dies?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, ExchangeKind, ReceiverOptions, Setup, World, names_homed_at, table};
use corelane_wire::amqp091::{FieldValue, Properties, ShortStr};

use FieldValue::{Boolean, Int32, LongString};

const SECOND: u64 = 1_000_000;
const DEAD: &str = "dead";
const TO_DEAD: [(&str, FieldValue<'_>); 2] =
    [("x-dead-letter-exchange", LongString(b"")), ("x-dead-letter-routing-key", LongString(DEAD.as_bytes()))];

/// A client and one of its channels.
type At = (usize, SessionId);

/// A channel of shard 0 that publishes and declares, and a queue at home on a certain shard.
struct Stage {
    world: World,
    maker: At,
    queue: String,
}

impl Stage {
    fn new(home: usize, arguments: &[(&str, FieldValue<'_>)]) -> Stage {
        Self::seeded(1, home, arguments)
    }

    fn seeded(seed: u64, home: usize, arguments: &[(&str, FieldValue<'_>)]) -> Stage {
        let world = World::new(&Setup { verify: true, seed, ..Setup::new(2) });
        let queue = names_homed_at(home, 2).next().expect("one of many");
        let mut stage = Stage { world, maker: (0, SessionId(0)), queue: queue.clone() };
        stage.maker = stage.open(0);
        stage.on(stage.maker, |client, channel| {
            client.declare(channel, DEAD, false);
            client.declare_durable(channel, &queue, &table(arguments));
        });
        stage
    }

    /// A new connection, on this shard.
    fn open(&mut self, shard: usize) -> At {
        let number = self.world.connect_channels(shard);
        self.open_on(number)
    }

    fn open_on(&mut self, number: usize) -> At {
        let channel = self.world.channel_client(number).open_channel();
        self.world.run();
        self.world.channel_client(number).take_seen();
        (number, channel)
    }

    /// One that consumes from the queue, with this prefetch. What came with the answer is returned.
    fn consumer(&mut self, shard: usize, prefetch: u16, priority: i32) -> (At, Vec<String>) {
        let at = self.open(shard);
        let queue = self.queue.clone();
        let mut seen = self.on(at, |client, channel| {
            client.prefetch(channel, prefetch);
            client.consume_with(channel, &queue, "tag", &table(&[("x-priority", Int32(priority))]));
        });
        assert!(seen.iter().any(|line| line == "consuming tag"), "{seen:?}");
        seen.retain(|line| line.starts_with("tag: "));
        (at, seen)
    }

    fn on(&mut self, (number, channel): At, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        act(self.world.channel_client(number), channel);
        self.world.run();
        self.world.channel_client(number).take_seen()
    }

    fn seen(&mut self, at: At) -> Vec<String> {
        self.on(at, |_, _| {})
    }

    fn publish(&mut self, bodies: &[&str]) {
        let queue = self.queue.clone();
        self.on(self.maker, |client, channel| {
            bodies.iter().for_each(|body| client.publish(channel, &queue, body, false));
        });
    }

    fn publish_for(&mut self, body: &str, milliseconds: &str) {
        let queue = self.queue.clone();
        let properties =
            Properties { expiration: Some(ShortStr::cut(milliseconds)), ..Properties::default() };
        self.on(self.maker, |client, channel| {
            client.publish_to(channel, ("", &queue), &properties, body, false);
        });
    }

    /// What a queue has, which is taken, as it is told.
    fn take(&mut self, queue: &str) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let seen = self.on(self.maker, |client, channel| client.get(channel, queue));
            match seen[0].strip_prefix("got ").and_then(|line| line.split(',').next()) {
                Some(body) => bodies.push(body.to_owned()),
                None => return bodies,
            }
        }
    }

    fn take_dead(&mut self) -> Vec<String> {
        self.take(DEAD)
    }

    fn deaths(&mut self) -> Vec<String> {
        std::mem::take(&mut self.world.channel_client(self.maker.0).deaths)
    }

    /// How many messages a queue has for who asks for one.
    fn depth(&mut self, queue: &str) -> String {
        let seen = self.on(self.maker, |client, channel| client.look(channel, queue));
        seen[0].split(' ').nth(2).expect("a count").to_owned()
    }
}

/// The higher consumer's connection publishes and at once stops what is delivered to it, with whatever falls between.
#[test]
fn s01_who_stops_the_flow_of_its_channel_leaves_what_it_was_told_of_to_others() {
    for home in [0, 1] {
        let mut left = 0;
        for seed in 1..=20 {
            let mut stage = Stage::seeded(seed, home, &[]);
            let queue = stage.queue.clone();
            let own = names_homed_at(0, 2).nth(5).expect("one of many");
            let high = stage.open(0);
            stage.on(high, |client, channel| {
                // It has settled down there, so that the queue is another shard's, or its own.
                client.declare(channel, &own, false);
                client.consume(channel, &own, "own", false);
                client.consume_with(channel, &queue, "tag", &table(&[("x-priority", Int32(10))]));
            });
            let publisher = stage.open_on(high.0);
            let (low, _) = stage.consumer(1, 0, 0);
            stage.on(publisher, |client, channel| {
                client.publish(channel, &queue, "A", false);
                client.flow(high.1, false);
                // So that it seldom arrives in parts that end in between.
                client.publish(channel, DEAD, &"behind".repeat(500), false);
            });
            // What it had been sent before its word was heard is its own.
            left += stage.seen(low).len();
            stage.publish(&["B"]);
            // Nobody was asked for this before.
            assert_eq!(stage.seen(low), ["tag: B"], "seed {seed}");
            assert_eq!(stage.seen(high), [""; 0], "seed {seed}");
            stage.on(high, |client, _| client.flow(high.1, true));
            stage.publish(&["C"]);
            assert_eq!(stage.seen(high), ["tag: C"], "seed {seed}");
            stage.on(high, |client, _| client.flow(high.1, false));
            stage.publish(&["D"]);
            assert_eq!(stage.seen(low), ["tag: D"], "seed {seed}");
        }
        assert!(left >= 15, "home {home}: {left}");
    }
}

#[test]
fn s05_who_comes_after_a_single_active_consumer_begins_with_what_it_held() {
    for home in [0, 1] {
        let mut stage = Stage::new(home, &[("x-single-active-consumer", Boolean(true))]);
        let (active, _) = stage.consumer(0, 2, 0);
        let (standby, _) = stage.consumer(1, 0, 0);
        stage.publish(&["A", "B", "C"]);
        assert_eq!(stage.seen(active), ["tag: A", "tag: B"]);
        assert_eq!(stage.seen(standby), [""; 0]);
        stage.world.kill(active.0);
        assert_eq!(stage.seen(standby), ["tag: A again", "tag: B again", "tag: C"]);
    }
}

/// Two queues of one shard, where all that a transaction has sent shows at once.
#[test]
fn s11_channels_of_a_connection_take_turns() {
    for home in [0, 1] {
        let mut stage = Stage::new(home, &[]);
        let queues: Vec<String> = names_homed_at(home, 2).take(2).collect();
        let one = stage.open(0);
        let other = stage.open_on(one.0);
        for ((at, queue), tag) in [one, other].into_iter().zip(&queues).zip(["a", "b"]) {
            stage.on(at, |client, channel| {
                client.declare_durable(channel, queue, &[]);
                client.consume(channel, queue, tag, false);
            });
        }
        stage.on(stage.maker, |client, channel| {
            client.select(channel);
            for n in 0..20 {
                client.publish(channel, &queues[n / 10], &n.to_string(), false);
            }
            client.commit(channel);
        });
        let seen = stage.seen(one);
        let expect = (0..10).flat_map(|n| [format!("a: {n}"), format!("b: {}", n + 10)]);
        assert_eq!(seen, expect.collect::<Vec<_>>());
    }
}

#[test]
fn s14_what_is_requeued_is_next_in_its_old_order() {
    for home in [0, 1] {
        for rejects in [false, true] {
            let mut stage = Stage::new(home, &[]);
            let queue = stage.queue.clone();
            let (first, _) = stage.consumer(0, 5, 0);
            stage.publish(&["1", "2", "3", "4", "5"]);
            let (second, _) = stage.consumer(1, 1, 0);
            stage.publish(&["6", "7"]);
            assert_eq!(stage.seen(second), ["tag: 6"]);
            stage.on(first, |client, channel| {
                client.flow(channel, false);
                // Not in the order in which they came.
                for tag in [4, 2] {
                    match rejects {
                        true => client.reject(channel, tag, true),
                        false => client.nack(channel, tag, false, true),
                    }
                }
            });
            for (tag, expect) in (1..).zip(["tag: 2 again", "tag: 4 again", "tag: 7"]) {
                let seen = stage.on(second, |client, channel| client.ack(channel, tag, false));
                assert_eq!(seen, [expect]);
            }
            stage.on(first, |client, channel| client.close_channel(channel));
            assert_eq!(stage.take(&queue), ["1 again", "3 again", "5 again"]);
        }
    }
}

#[test]
fn s20_a_browser_sees_what_an_exchange_delays_once_when_it_is_due() {
    for home in [0, 1] {
        let mut stage = Stage::new(home, &[]);
        let queue = stage.queue.clone();
        let delays = table(&[("x-delayed-type", LongString(b"direct"))]);
        let asked = ExchangeKind { durable: true, arguments: &delays, ..ExchangeKind::default() };
        let headers = table(&[("x-delay", Int32(5_000))]);
        let headers = Some(corelane_wire::amqp091::Table::new(&headers));
        stage.on(stage.maker, |client, channel| {
            client.declare_exchange(channel, "late", "x-delayed-message", asked);
            client.bind(channel, &queue, ("late", "k"), &[]);
        });
        let browser = stage.world.connect(0);
        let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
        let link = stage.world.clients[browser].attach_receiver("browser", &queue, &options);
        stage.world.run();
        stage.world.clients[browser].credit(link, 10);
        stage.on(stage.maker, |client, channel| {
            let properties = Properties { headers, ..Properties::default() };
            client.publish_to(channel, ("late", "k"), &properties, "A", false);
            client.publish(channel, &queue, "B", false);
        });
        stage.world.advance(4 * SECOND);
        assert_eq!(stage.world.clients[browser].bodies(link), ["B"]);
        stage.world.advance(2 * SECOND);
        stage.world.advance(2 * SECOND);
        assert_eq!(stage.world.clients[browser].bodies(link), ["B", "A"]);
        assert_eq!(stage.take(&queue), ["A", "B"]);
    }
}

#[test]
fn s22_what_a_closed_channel_had_ahead_is_back_before_another_one_begins() {
    for home in [0, 1] {
        for ends_by in ["channel", "connection", "death"] {
            let mut stage = Stage::new(home, &[]);
            let (first, _) = stage.consumer(0, 5, 0);
            stage.publish(&["1", "2", "3", "4", "5"]);
            let seen = stage.seen(first);
            assert_eq!(seen.len(), 5, "{seen:?}");
            let (second, seen) = stage.consumer(1, 0, 0);
            assert_eq!(seen, [""; 0]);
            stage.on(first, |client, channel| client.ack(channel, 2, false));
            stage.publish(&["6"]);
            // It has room for one.
            let taken: Vec<String> = [first, second].into_iter().flat_map(|at| stage.seen(at)).collect();
            assert_eq!(taken, ["tag: 6"]);
            match ends_by {
                "channel" => drop(stage.on(first, |client, channel| client.close_channel(channel))),
                "connection" => drop(stage.on(first, |client, _| client.close())),
                _ => stage.world.kill(first.0),
            }
            let mut seen = stage.seen(second);
            seen.retain(|line| !line.contains('6'));
            assert_eq!(seen, ["tag: 1 again", "tag: 3 again", "tag: 4 again", "tag: 5 again"], "{ends_by}");
        }
    }
}

#[test]
fn s30_what_is_rejected_is_over_for_its_queue() {
    for home in [0, 1] {
        for dies in [false, true] {
            let mut stage = Stage::new(home, if dies { &TO_DEAD } else { &[] });
            let (consumer, _) = stage.consumer(1, 0, 0);
            stage.publish(&["A", "B", "C"]);
            stage.on(consumer, |client, channel| {
                client.reject(channel, 1, false);
                client.nack(channel, 3, true, false);
            });
            let dead: &[&str] = if dies { &["A", "B", "C"] } else { &[] };
            assert_eq!(stage.take_dead(), dead);
            assert_eq!(stage.deaths(), vec!["rejected"; dead.len()]);
            stage.on(consumer, |client, channel| client.close_channel(channel));
            let queue = stage.queue.clone();
            assert_eq!(stage.take(&queue), [""; 0]);
        }
    }
}

#[test]
fn s44_each_message_dies_in_its_time_wherever_it_stands() {
    for home in [0, 1] {
        let mut stage = Stage::new(home, &TO_DEAD);
        stage.publish_for("long", "3000");
        stage.publish_for("short", "1000");
        stage.publish(&["for ever"]);
        stage.world.advance(SECOND + 10_000);
        let queue = stage.queue.clone();
        assert_eq!((stage.depth(&queue), stage.depth(DEAD)), ("2".to_owned(), "1".to_owned()));
        stage.world.advance(2 * SECOND);
        assert_eq!(stage.depth(&queue), "1");
        // There its time to live does not count again.
        stage.world.advance(100 * SECOND);
        assert_eq!(stage.take_dead(), ["short", "long"]);
        assert_eq!(stage.deaths(), ["expired", "expired"]);
        assert_eq!(stage.take(&queue), ["for ever"]);
    }
}

#[test]
fn s45_a_message_does_not_expire_under_its_consumer() {
    for home in [0, 1] {
        for ends_by in ["ack", "nack", "close"] {
            let mut stage = Stage::new(home, &TO_DEAD);
            let (consumer, _) = stage.consumer(1, 1, 0);
            stage.publish_for("A", "1000");
            assert_eq!(stage.seen(consumer), ["tag: A"]);
            stage.world.advance(5 * SECOND);
            assert_eq!(stage.depth(DEAD), "0");
            stage.on(consumer, |client, channel| match ends_by {
                "ack" => client.ack(channel, 1, false),
                "nack" => client.nack(channel, 1, false, true),
                _ => client.close_channel(channel),
            });
            let dead: &[&str] = if ends_by == "ack" { &[] } else { &["A"] };
            assert_eq!(stage.take_dead(), dead, "{ends_by}");
            assert_eq!(stage.deaths(), vec!["expired"; dead.len()]);
            assert_eq!(stage.seen(consumer), [""; 0], "it does not come again");
        }
    }
}

#[test]
fn s46_a_queues_time_to_live_replaces_what_publishers_say() {
    for home in [0, 1] {
        let mut stage = Stage::new(home, &[&[("x-message-ttl", Int32(2_000))][..], &TO_DEAD].concat());
        stage.publish_for("short", "1000");
        stage.publish_for("long", "9000");
        stage.publish(&["for ever"]);
        stage.world.advance(SECOND + 10_000);
        assert_eq!(stage.depth(DEAD), "0");
        stage.world.advance(SECOND);
        assert_eq!(stage.take_dead(), ["short", "long", "for ever"]);
    }
}

/// Two queues whose messages expire into each other.
#[test]
fn s51_a_circle_of_dead_letters_ends_unless_a_consumer_rejects() {
    for (home, home_of_other) in [(0, 0), (0, 1), (1, 0)] {
        let other = names_homed_at(home_of_other, 2).nth(3).expect("one of many");
        let to = |queue| {
            let key = LongString(str::as_bytes(queue));
            [("x-dead-letter-exchange", LongString(b"")), ("x-dead-letter-routing-key", key)]
        };
        let ttl = ("x-message-ttl", Int32(1_000));
        let mut stage = Stage::new(home, &[&to(&other)[..], &[ttl]].concat());
        let queue = stage.queue.clone();
        stage.on(stage.maker, |client, channel| {
            client.declare_durable(channel, &other, &table(&[&to(&queue)[..], &[ttl]].concat()));
        });
        stage.publish(&["A"]);
        stage.world.advance(SECOND + 10_000);
        assert_eq!((stage.depth(&queue), stage.depth(&other)), ("0".to_owned(), "1".to_owned()));
        stage.world.advance(SECOND + 10_000);
        assert_eq!((stage.depth(&queue), stage.depth(&other)), ("0".to_owned(), "0".to_owned()));
        let circling: u64 =
            stage.world.shards.iter().map(|shard| shard.counters().dead_letters_circling).sum();
        assert_eq!(circling, 1);
        // Whoever rejects it sends it round as often as it likes, and sees how often that was.
        stage.publish(&["B"]);
        let at = stage.open(0);
        for round in 0..6 {
            let from = if round % 2 == 0 { &queue } else { &other };
            let seen = stage.on(at, |client, channel| client.get(channel, from));
            assert_eq!(seen, ["got B, 0 left"], "round {round}");
            stage.on(at, |client, channel| {
                let tag = *client.tags.last().expect("it was got");
                client.reject(channel, tag, false);
            });
        }
        assert_eq!(stage.world.channel_client(at.0).deaths, ["rejected"; 5]);
    }
}
