//! What does a queue with limits do on a channel, and who is its only active consumer?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, DiskSetup, Setup, World, names_homed_at, table};
use corelane_wire::amqp091::FieldValue;

use FieldValue::{Boolean, Int32, LongString};

/// A channel of shard 0 with confirms, and the name of a queue on `home`, which was declared with these arguments.
struct Stage {
    world: World,
    number: usize,
    channel: SessionId,
    queue: String,
}

const DEAD: &str = "dead";

impl Stage {
    fn new(home: usize, arguments: &[(&str, FieldValue<'_>)]) -> Stage {
        let disk = Some(DiskSetup::default());
        let mut world = World::new(&Setup { verify: true, disk, ..Setup::new(2) });
        let (number, channel) = world.open_channel(0);
        let queue = names_homed_at(home, 2).next().expect("one of many");
        let mut stage = Stage { world, number, channel, queue: queue.clone() };
        stage.on(|client, channel| {
            client.confirm(channel);
            client.declare(channel, DEAD, false);
            client.declare_durable(channel, &queue, &table(arguments));
        });
        stage
    }

    fn on(&mut self, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        self.world.on_channel((self.number, self.channel), act)
    }

    #[track_caller]
    fn publish(&mut self, body: &str, expect: &str) {
        let queue = self.queue.clone();
        let seen = self.on(|client, channel| client.publish(channel, &queue, body, false));
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(seen[0].starts_with(expect), "{seen:?}");
    }

    /// What a queue has, which is taken.
    fn take(&mut self, queue: &str) -> String {
        let mut bodies = Vec::new();
        loop {
            let seen = self.on(|client, channel| client.get(channel, queue));
            match seen[0].strip_prefix("got ").and_then(|line| line.split(',').next()) {
                Some(body) => bodies.push(body.to_owned()),
                None => return bodies.join(" "),
            }
        }
    }
}

const TO_DEAD: [(&str, FieldValue<'_>); 2] =
    [("x-dead-letter-exchange", LongString(b"")), ("x-dead-letter-routing-key", LongString(DEAD.as_bytes()))];

#[test]
fn what_a_full_queue_refuses_is_not_confirmed_and_dies_if_the_queue_says_so() {
    for home in [0, 1] {
        for (overflow, dead) in [("reject-publish", ""), ("reject-publish-dlx", "B C")] {
            let limits = [("x-max-length", Int32(1)), ("x-overflow", LongString(overflow.as_bytes()))];
            let mut stage = Stage::new(home, &[&limits[..], &TO_DEAD].concat());
            stage.publish("A", "confirmed");
            stage.publish("B", "refused");
            stage.publish("C", "refused");
            assert_eq!(stage.take(DEAD), dead);
            let deaths = std::mem::take(&mut stage.world.channel_client(stage.number).deaths);
            assert!(deaths.iter().all(|reason| reason == "maxlen") && deaths.len() == dead.len().div_ceil(2));
            let queue = stage.queue.clone();
            assert_eq!(stage.take(&queue), "A");
        }
    }
}

#[test]
fn a_queue_that_drops_its_oldest_lets_them_die_for_its_length() {
    for home in [0, 1] {
        let limits = [("x-max-length", Int32(2)), ("x-overflow", LongString(b"drop-head"))];
        let mut stage = Stage::new(home, &[&limits[..], &TO_DEAD].concat());
        for body in ["A", "B", "C", "D"] {
            stage.publish(body, "confirmed");
        }
        assert_eq!(stage.take(DEAD), "A B");
        assert_eq!(stage.world.channel_client(stage.number).deaths, ["maxlen", "maxlen"]);
        let queue = stage.queue.clone();
        assert_eq!(stage.take(&queue), "C D");
    }
}

#[test]
fn what_consumers_hold_does_not_count_for_the_length_until_it_comes_back() {
    for home in [0, 1] {
        for overflow in ["drop-head", "reject-publish"] {
            let limits = [("x-max-length", Int32(2)), ("x-overflow", LongString(overflow.as_bytes()))];
            let mut stage = Stage::new(home, &[&limits[..], &TO_DEAD].concat());
            let queue = stage.queue.clone();
            for body in ["A", "B"] {
                stage.publish(body, "confirmed");
                stage.on(|client, channel| client.get(channel, &queue));
            }
            for body in ["C", "D"] {
                stage.publish(body, "confirmed");
            }
            assert_eq!(stage.take(DEAD), "");
            stage.on(|client, channel| client.nack(channel, 2, true, true));
            let (dead, left) = match overflow {
                "drop-head" => ("A again B again", "C D"),
                _ => ("", "A again B again C D"),
            };
            assert_eq!(stage.take(DEAD), dead.replace(" again", ""), "{overflow}");
            assert_eq!(stage.take(&queue), left, "{overflow}");
        }
    }
}

#[test]
fn what_consumers_hold_does_not_count_after_a_restart_either() {
    let limits = [("x-max-length", Int32(1)), ("x-overflow", LongString(b"reject-publish"))];
    let mut stage = Stage::new(1, &limits);
    stage.world.crash_and_restart();
    (stage.number, stage.channel) = stage.world.open_channel(0);
    stage.on(|client, channel| client.confirm(channel));
    let queue = stage.queue.clone();
    stage.publish("A", "confirmed");
    stage.publish("B", "refused");
    stage.on(|client, channel| client.get(channel, &queue));
    stage.publish("C", "confirmed");
}

#[test]
fn of_a_queue_without_room_only_who_waits_for_a_message_gets_it() {
    for home in [0, 1] {
        for limit in ["x-max-length", "x-max-length-bytes"] {
            let mut stage = Stage::new(home, &[&[(limit, Int32(0))][..], &TO_DEAD].concat());
            stage.publish("A", "confirmed");
            let queue = stage.queue.clone();
            assert_eq!(stage.take(DEAD), "A");
            assert_eq!(stage.take(&queue), "");
            let other = stage.world.open_channel(1);
            let seen = stage.world.on_channel(other, |client, channel| {
                client.prefetch(channel, 1);
                client.consume(channel, &queue, "tag", false);
            });
            assert!(seen.contains(&"consuming tag".to_owned()), "{seen:?}");
            stage.publish("B", "confirmed");
            assert_eq!(stage.world.on_channel(other, |_, _| {}), ["tag: B"]);
            stage.publish("C", "confirmed");
            // It may have been offered, and turned down.
            assert!(stage.take(DEAD).starts_with('C'));
            assert_eq!(stage.world.on_channel(other, |_, _| {}), [""; 0]);
            let mut refuses =
                Stage::new(home, &[(limit, Int32(0)), ("x-overflow", LongString(b"reject-publish"))]);
            refuses.publish("A", "refused");
        }
    }
}

#[test]
fn the_next_single_active_consumer_begins_when_the_one_before_holds_nothing_any_more() {
    for home in [0, 1] {
        for ends_by in ["ack", "requeue", "channel", "death"] {
            let mut stage = Stage::new(home, &[("x-single-active-consumer", Boolean(true))]);
            let queue = stage.queue.clone();
            let mut others = [stage.world.open_channel(0), stage.world.open_channel(1)];
            for other in &others {
                stage
                    .world
                    .on_channel(*other, |client, channel| client.consume(channel, &queue, "tag", false));
            }
            stage.publish("A", "confirmed");
            let [first, second] = &mut others;
            assert_eq!(stage.world.on_channel(*first, |_, _| {}), ["tag: A"]);
            stage.world.on_channel(*first, |client, channel| client.cancel(channel, "tag"));
            stage.publish("B", "confirmed");
            let seen = stage.world.on_channel(*first, |_, _| {});
            assert_eq!(seen, [""; 0], "it is cancelled");
            match ends_by {
                "ack" => {
                    drop(stage.world.on_channel(*first, |client, channel| client.ack(channel, 1, false)))
                }
                "requeue" => {
                    drop(
                        stage
                            .world
                            .on_channel(*first, |client, channel| client.nack(channel, 1, false, true)),
                    );
                }
                "channel" => {
                    drop(stage.world.on_channel(*first, |client, channel| client.close_channel(channel)))
                }
                _ => stage.world.kill(first.0),
            }
            let seen = stage.world.on_channel(*second, |_, _| {});
            let expect: &[&str] = if ends_by == "ack" { &["tag: B"] } else { &["tag: A again", "tag: B"] };
            assert_eq!(seen, expect, "{ends_by}");
        }
    }
}
