//! Are a channel's transactions all or nothing, on queues of any shard?

use corelane_protocol::SessionId;
use corelane_sim::{ChannelClient, DiskSetup, Setup, World, names_homed_at};
use corelane_wire::amqp091::{FieldValue, Properties, ShortStr, TableWriter};

/// A teller of shard 0 whose channel is transactional, and a witness of shard 1, with a queue on each shard.
struct Stage {
    world: World,
    queues: [String; 2],
    teller: (usize, SessionId),
    witness: (usize, SessionId),
}

impl Stage {
    fn new() -> Stage {
        Stage::with(Setup { verify: true, ..Setup::new(2) })
    }

    fn with(setup: Setup) -> Stage {
        let mut world = World::new(&setup);
        let name = |shard| names_homed_at(shard, 2).next().expect("one of many");
        let queues = [name(0), name(1)];
        let witness = world.open_channel(1);
        let teller = world.open_channel(0);
        let mut stage = Stage { world, queues, teller, witness };
        for n in 0..2 {
            let queue = stage.queues[n].clone();
            stage.witness(|client, channel| client.declare(channel, &queue, false));
        }
        stage.check(|client, channel| client.select(channel), &["selected"]);
        stage
    }

    fn teller(&mut self, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        self.world.on_channel(self.teller, act)
    }

    fn witness(&mut self, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
        self.world.on_channel(self.witness, act)
    }

    #[track_caller]
    fn check(&mut self, act: impl FnOnce(&mut ChannelClient, SessionId), expect: &[&str]) {
        let seen = self.teller(act);
        assert_eq!(seen, expect);
    }

    /// How many messages each queue has that a consumer could have.
    #[track_caller]
    fn check_ready(&mut self, expect: [usize; 2]) {
        for (queue, count) in self.queues.clone().iter().zip(expect) {
            let seen = self.witness(|client, channel| client.look(channel, queue));
            assert_eq!(seen, [format!("declared {queue} {count} 0")]);
        }
    }

    /// Publishes one message to each queue, in the teller's transaction.
    fn publish_to_both(&mut self) {
        let [one, other] = self.queues.clone();
        let seen = self.teller(|client, channel| {
            client.publish(channel, &one, "A", false);
            client.publish(channel, &other, "B", false);
        });
        assert!(seen.is_empty(), "{seen:?}");
    }
}

fn commit(client: &mut ChannelClient, channel: SessionId) {
    client.commit(channel);
}

fn roll_back(client: &mut ChannelClient, channel: SessionId) {
    client.roll_back(channel);
}

#[test]
fn messages_are_there_when_the_transaction_commits_and_never_if_it_rolls_back() {
    let mut stage = Stage::new();
    stage.check(commit, &["committed"]);
    for round in 1..3 {
        stage.publish_to_both();
        stage.check_ready([round - 1; 2]);
        stage.check(commit, &["committed"]);
        stage.check_ready([round; 2]);
        stage.publish_to_both();
        stage.check(roll_back, &["rolled back"]);
        stage.check_ready([round; 2]);
    }
    // Nothing of it is left for the next one.
    stage.check(commit, &["committed"]);
    stage.check_ready([2; 2]);
    stage.check(roll_back, &["rolled back"]);
}

#[test]
fn acknowledgements_hold_when_the_transaction_commits_and_are_undone_if_it_rolls_back() {
    for home in [0, 1] {
        let mut stage = Stage::new();
        let queue = stage.queues[home].clone();
        for body in ["A", "B", "C"] {
            stage.witness(|client, channel| client.publish(channel, &queue, body, false));
            stage.check(|client, channel| client.get(channel, &queue), &[&format!("got {body}, 0 left")]);
        }
        // Acknowledged, rejected and requeued.
        stage.check(|client, channel| client.ack(channel, 1, false), &[]);
        stage.check(|client, channel| client.nack(channel, 2, false, false), &[]);
        stage.check(|client, channel| client.nack(channel, 3, false, true), &[]);
        stage.check(roll_back, &["rolled back"]);
        stage.check_ready([0, 0]);
        // They are the channel's still, and have come back when it has said so in vain and is gone.
        stage.check(|client, channel| client.nack(channel, 3, true, true), &[]);
        stage.check_ready([0, 0]);
        let (number, channel) = stage.teller;
        stage.world.channel_client(number).close_channel(channel);
        stage.world.run();
        let mut ready = [0, 0];
        ready[home] = 3;
        stage.check_ready(ready);
        stage.teller = stage.world.open_channel(0);
        stage.check(|client, channel| client.select(channel), &["selected"]);
        for body in ["A", "B", "C"] {
            let seen = stage.teller(|client, channel| client.get(channel, &queue));
            assert!(seen[0].starts_with(&format!("got {body} again")), "{seen:?}");
        }
        stage.check(|client, channel| client.ack(channel, 1, false), &[]);
        stage.check(|client, channel| client.nack(channel, 2, false, false), &[]);
        stage.check(|client, channel| client.nack(channel, 3, false, true), &[]);
        stage.check(commit, &["committed"]);
        stage.check(|client, channel| client.get(channel, &queue), &["got C again, 0 left"]);
        stage.check(|client, channel| client.ack(channel, 3, false), &["channel closed: 406"]);
    }
}

#[test]
fn what_is_consumed_and_what_is_made_of_it_go_together() {
    let mut stage = Stage::new();
    let [source, target] = stage.queues.clone();
    stage.witness(|client, channel| client.publish(channel, &source, "A", false));
    stage.check(
        |client, channel| client.consume(channel, &source, "tag", false),
        &["consuming tag", "tag: A"],
    );
    stage.check(
        |client, channel| {
            client.publish(channel, &target, "a", false);
            client.ack(channel, 1, false);
        },
        &[],
    );
    // Whatever the connection has said, it has not committed.
    stage.world.kill(stage.teller.0);
    stage.world.run();
    stage.check_ready([1, 0]);
    stage.teller = stage.world.open_channel(0);
    stage.check(|client, channel| client.select(channel), &["selected"]);
    stage.check(
        |client, channel| client.consume(channel, &source, "tag", false),
        &["consuming tag", "tag: A again"],
    );
    stage.check(
        |client, channel| {
            client.publish(channel, &target, "a", false);
            client.cancel(channel, "tag");
            client.ack(channel, 1, false);
            client.commit(channel);
        },
        &["cancelled tag", "committed"],
    );
    stage.check_ready([0, 1]);
}

#[test]
fn a_transaction_ends_with_its_channel() {
    let mut stage = Stage::new();
    for end in 0..3 {
        stage.publish_to_both();
        match end {
            // There is no such exchange.
            0 => stage.check(
                |client, channel| {
                    client.publish_to(channel, ("none", ""), &Properties::default(), "C", false)
                },
                &["channel closed: 404"],
            ),
            1 => {
                let (number, channel) = stage.teller;
                stage.world.channel_client(number).close_channel(channel);
            }
            _ => stage.world.kill(stage.teller.0),
        }
        stage.world.run();
        stage.check_ready([0, 0]);
        for shard in &stage.world.shards {
            assert_eq!(shard.participation_count(), 0);
        }
        stage.teller = stage.world.open_channel(0);
        stage.check(|client, channel| client.select(channel), &["selected"]);
        stage.check(commit, &["committed"]);
    }
}

#[test]
fn a_mandatory_message_that_goes_nowhere_is_returned_when_the_transaction_commits() {
    let mut stage = Stage::new();
    let queues = [0, 1].map(|shard| names_homed_at(shard, 2).nth(1).expect("one of many"));
    for queue in &queues {
        let memory: Vec<u64> = stage.world.shards.iter().map(|it| it.memory_used()).collect();
        let publish = |client: &mut ChannelClient, channel: SessionId| {
            client.publish(channel, queue, "A", true);
            client.publish(channel, queue, "B", false);
            client.publish_to(channel, ("amq.direct", queue), &Properties::default(), "C", true);
        };
        stage.check(publish, &[]);
        stage.check(roll_back, &["rolled back"]);
        stage.check(publish, &[]);
        let mut seen = stage.teller(commit);
        assert_eq!(seen.pop().as_deref(), Some("committed"), "{seen:?}");
        seen.sort_unstable();
        assert_eq!(seen, ["returned A: 312", "returned C: 312"]);
        let after: Vec<u64> = stage.world.shards.iter().map(|it| it.memory_used()).collect();
        assert_eq!(memory, after);
    }
}

#[test]
fn s53_a_transaction_about_a_queue_that_is_gone_ends_with_an_error_and_nothing_of_it_is_done() {
    for home in [0, 1] {
        for acknowledges in [false, true] {
            let mut stage = Stage::new();
            let queue = stage.queues[home].clone();
            if acknowledges {
                stage.witness(|client, channel| client.publish(channel, &queue, "A", false));
                stage.check(|client, channel| client.get(channel, &queue), &["got A, 0 left"]);
                let other = stage.queues[1 - home].clone();
                stage.check(
                    |client, channel| {
                        client.publish(channel, &other, "a", false);
                        client.ack(channel, 1, false);
                    },
                    &[],
                );
            } else {
                stage.publish_to_both();
            }
            stage.witness(|client, channel| client.delete(channel, &queue, false));
            stage.check(commit, &["channel closed: 406"]);
            stage.witness(|client, channel| client.declare(channel, &queue, false));
            stage.check_ready([0, 0]);
        }
    }
}

#[test]
fn a_transaction_with_a_message_that_is_refused_does_not_commit() {
    for home in [0, 1] {
        let mut stage = Stage::new();
        let full = names_homed_at(home, 2).nth(1).expect("one of many");
        let mut arguments = Vec::new();
        let mut writer = TableWriter::new(&mut arguments);
        writer.pair(ShortStr::cut("x-max-length"), FieldValue::Int32(1));
        writer.pair(ShortStr::cut("x-overflow"), FieldValue::LongString(b"reject-publish"));
        stage.witness(|client, channel| client.declare_durable(channel, &full, &arguments));
        let source = stage.queues[1 - home].clone();
        stage.witness(|client, channel| client.publish(channel, &source, "S", false));
        stage.check(|client, channel| client.get(channel, &source), &["got S, 0 left"]);
        stage.publish_to_both();
        stage.check(
            |client, channel| {
                client.publish(channel, &full, "C", false);
                client.publish(channel, &full, "D", false);
                client.ack(channel, 1, false);
            },
            &[],
        );
        stage.check(commit, &["channel closed: 406"]);
        // What was acknowledged in it is there again.
        let mut ready = [0, 0];
        ready[1 - home] = 1;
        stage.check_ready(ready);
        let seen = stage.witness(|client, channel| client.look(channel, &full));
        assert_eq!(seen, [format!("declared {full} 0 0")]);
    }
}

#[test]
fn what_is_committed_is_there_after_a_crash_and_nothing_else() {
    let disk = Some(DiskSetup::default());
    let mut stage = Stage::with(Setup { verify: true, disk, ..Setup::new(2) });
    let queues = [0, 1].map(|shard| names_homed_at(shard, 2).nth(1).expect("one of many"));
    let durable = Properties { delivery_mode: Some(2), ..Properties::default() };
    for queue in &queues {
        stage.witness(|client, channel| client.declare_durable(channel, queue, &[]));
        stage.check(|client, channel| client.publish_to(channel, ("", queue), &durable, "A", false), &[]);
    }
    stage.check(commit, &["committed"]);
    for queue in &queues {
        stage.check(|client, channel| client.publish_to(channel, ("", queue), &durable, "B", false), &[]);
        let seen = stage.teller(|client, channel| client.get(channel, queue));
        assert_eq!(seen, ["got A, 0 left"]);
    }
    stage.check(|client, channel| client.ack(channel, 2, true), &[]);
    stage.world.crash_and_restart();
    stage.teller = stage.world.open_channel(0);
    for queue in &queues {
        stage.check(|client, channel| client.get(channel, queue), &["got A again, 0 left"]);
        stage.check(|client, channel| client.get(channel, queue), &["nothing"]);
    }
}

#[test]
fn a_transaction_that_takes_too_long_ends_with_its_channel() {
    let setup = Setup { transaction_timeout_us: 5_000_000, verify: true, ..Setup::new(2) };
    let mut stage = Stage::with(setup);
    // What is not begun takes no time.
    stage.world.pass(60_000_000);
    stage.check(commit, &["committed"]);
    stage.publish_to_both();
    stage.world.pass(6_000_000);
    stage.world.run();
    stage.check(|_, _| {}, &["channel closed: 406"]);
    stage.check_ready([0, 0]);
}

#[test]
fn a_transaction_that_would_write_too_much_is_rolled_back() {
    let disk = Some(DiskSetup::default());
    let setup = Setup { transaction_kept_bytes_max: 50_000, verify: true, disk, ..Setup::new(2) };
    let mut stage = Stage::with(setup);
    let durable = Properties { delivery_mode: Some(2), ..Properties::default() };
    let body = "b".repeat(20_000);
    for shard in [0, 1] {
        let queue = names_homed_at(shard, 2).nth(1).expect("one of many");
        stage.witness(|client, channel| client.declare_durable(channel, &queue, &[]));
        let publish = |client: &mut ChannelClient, channel| {
            client.publish_to(channel, ("", &queue), &durable, &body, false)
        };
        (0..2).for_each(|_| stage.check(publish, &[]));
        stage.check(commit, &["committed"]);
        (0..3).for_each(|_| stage.check(publish, &[]));
        stage.check(commit, &["channel closed: 406"]);
        let seen = stage.witness(|client, channel| client.look(channel, &queue));
        assert_eq!(seen, [format!("declared {queue} 2 0")]);
        stage.teller = stage.world.open_channel(0);
        stage.check(|client, channel| client.select(channel), &["selected"]);
    }
}
