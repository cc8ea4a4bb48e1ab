//! What properties of destinations do, with the queue on the clients' shard and with both elsewhere.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::limits::TURN_QUEUES_EXPIRED_MAX;
use corelane_shard::properties::{PropertyValue, set};
use corelane_shard::{DestinationRule, Lane, Shard};
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Header, Modified, Outcome, Properties, Value};

const SECOND: u64 = 1_000_000;
const FULL: &str = "rejected amqp:resource-limit-exceeded";

/// Rules written as `pattern: name=value name=value`.
fn rules(lines: &[&str]) -> Vec<DestinationRule> {
    let rule = |line: &&str| {
        let (pattern, properties) = line.split_once(": ").expect("a pattern");
        let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
        for property in properties.split(' ') {
            let (name, value) = property.split_once('=').expect("a value");
            let value = match (value.parse(), value.parse()) {
                (Ok(number), _) => PropertyValue::Integer(number),
                (Err(_), Ok(flag)) => PropertyValue::Bool(flag),
                (Err(_), Err(_)) => PropertyValue::Text(value.to_owned()),
            };
            set(&mut rule, name, &value).expect("it is a right value");
        }
        rule
    };
    lines.iter().map(rule).collect()
}

/// A client on shard 0 that sends to `queue`, which is there or on another shard, and a client that may receive.
struct Stage {
    world: World,
    queue: String,
    home: usize,
    producer: usize,
    sender: LinkId,
    consumer: usize,
}

impl Stage {
    /// `properties` are those of the queue.
    fn new(remote: bool, properties: &str) -> Stage {
        Stage::with(remote, properties, Setup::new(2))
    }

    fn with(remote: bool, properties: &str, setup: Setup) -> Stage {
        let home = usize::from(remote);
        let queue = names_homed_at(home, 2).next().expect("there is one");
        let line = format!("{queue}: {properties}");
        let mut world = World::new(&Setup { rules: rules(&[&line]), ..setup });
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("s", &queue, &SenderOptions::default());
        let consumer = world.connect(0);
        world.run();
        Stage { world, queue, home, producer, sender, consumer }
    }

    /// The same on one shard and on two.
    fn both(properties: &str, check: impl Fn(Stage)) {
        for remote in [false, true] {
            check(Stage::new(remote, properties));
        }
    }

    fn send(&mut self, bodies: &[&str]) {
        for body in bodies {
            self.world.clients[self.producer].send(self.sender, body);
        }
        self.world.run();
    }

    fn send_with_ttl(&mut self, body: &str, ttl: u32) {
        let header = Header { ttl: Some(ttl), ..Header::default() };
        self.world.clients[self.producer].send_with(self.sender, body, &Properties::default(), &[], &header);
        self.world.run();
    }

    fn receive(&mut self, credit: u32) -> LinkId {
        let queue = self.queue.clone();
        self.receive_from(&queue, credit)
    }

    fn receive_from(&mut self, queue: &str, credit: u32) -> LinkId {
        let client = &mut self.world.clients[self.consumer];
        let name = format!("r{}", client.attached.len());
        let link = client.attach_receiver(&name, queue, &ReceiverOptions::default());
        client.credit(link, credit);
        self.world.run();
        link
    }

    fn bodies(&self, link: LinkId) -> Vec<&str> {
        self.world.clients[self.consumer].bodies(link)
    }

    fn settle(&mut self, link: LinkId, index: usize, state: &DeliveryState<'_>) {
        let client = &mut self.world.clients[self.consumer];
        let id = client.received.iter().filter(|received| received.link == link).nth(index);
        let id = id.expect("so many have arrived").delivery_id;
        client.settle(link, id, state);
        self.world.run();
    }

    fn outcomes(&self) -> Vec<&str> {
        self.world.clients[self.producer].outcomes.iter().map(|(_, outcome)| outcome.as_str()).collect()
    }

    fn shard(&self) -> &Shard {
        &self.world.shards[self.home]
    }

    fn messages(&self) -> u64 {
        let depth = self.shard().queue(&self.queue).and_then(|queue| self.shard().engine().depth(queue));
        depth.map_or(0, |depth| depth.messages)
    }

    fn annotation(&self, link: LinkId, name: &str) -> Option<&str> {
        let received =
            self.world.clients[self.consumer].received.iter().rfind(|received| received.link == link)?;
        let found = received.annotations.iter().find(|(key, _)| key == name)?;
        Some(&found.1)
    }
}

fn failed() -> DeliveryState<'static> {
    DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() })
}

#[test]
fn s46_the_queues_expiration_replaces_the_producers() {
    Stage::both("expiration=1s", |mut stage| {
        stage.send_with_ttl("an hour", 3_600_000);
        stage.send_with_ttl("a moment", 10);
        stage.world.advance(SECOND / 2);
        assert_eq!(stage.messages(), 2);
        stage.world.advance(SECOND);
        assert_eq!(stage.messages(), 0);
    });
    Stage::both("expiration=never", |mut stage| {
        stage.send_with_ttl("a moment", 10);
        stage.world.advance(1000 * SECOND);
        assert_eq!(stage.messages(), 1);
    });
}

#[test]
fn s47_drop_oldest_spares_what_a_consumer_holds() {
    Stage::both("messages-max=3 overflow=drop-oldest", |mut stage| {
        stage.send(&["0", "1", "2"]);
        let link = stage.receive(1);
        stage.send(&["3", "4"]);
        assert_eq!(stage.messages(), 3);
        stage.settle(link, 0, &DeliveryState::Accepted);
        stage.world.clients[stage.consumer].credit(link, 10);
        stage.world.run();
        assert_eq!(stage.bodies(link), ["0", "3", "4"]);
        assert!(stage.outcomes().iter().all(|outcome| *outcome == "accepted"));
    });
}

#[test]
fn s48_a_full_queue_refuses_and_counts_are_exact() {
    Stage::both("messages-max=2", |mut stage| {
        stage.send(&["0", "1", "2", "3"]);
        assert_eq!(stage.outcomes(), ["accepted", "accepted", FULL, FULL]);
        let link = stage.receive(1);
        stage.settle(link, 0, &DeliveryState::Accepted);
        stage.send(&["4", "5"]);
        assert_eq!(stage.outcomes()[4..], ["accepted", FULL]);
        assert_eq!(stage.messages(), 2);
        let refused: u64 =
            stage.world.shards.iter().map(|shard| shard.counters().messages_refused_full).sum();
        assert_eq!(refused, 3);
    });
    Stage::both("bytes-max=10", |mut stage| {
        stage.send(&["0", "1"]);
        assert_eq!(stage.outcomes(), ["accepted", FULL]);
    });
}

/// A producer that filled the queue waits while its messages are accepted; a new one begins without credit; both go on when there
/// is room. What the queue takes beyond its limit is what was on its way.
#[test]
fn s49_producers_of_a_full_queue_wait_and_go_on() {
    Stage::both("messages-max=10 overflow=block", |mut stage| {
        let bodies: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        stage.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
        let stored = stage.messages();
        assert!((10..=15).contains(&stored), "{stored}");
        assert_eq!(stage.outcomes().len() as u64, stored);
        assert_eq!(stage.world.clients[stage.producer].credit_left(stage.sender), 0);

        // A link that attaches now, and one that leaves again.
        let late = stage.world.connect(0);
        let queue = stage.queue.clone();
        let options = SenderOptions::default();
        let sender = stage.world.clients[late].attach_sender("late", &queue, &options);
        let gone = stage.world.clients[late].attach_sender("gone", &queue, &options);
        stage.world.run();
        stage.world.clients[late].send(sender, "late");
        stage.world.clients[late].detach(gone);
        stage.world.run();
        assert_eq!(stage.world.clients[late].attached.len(), 2);
        assert_eq!(stage.world.clients[late].outcomes, []);
        assert_eq!(stage.messages(), stored);

        stage.world.clients[stage.consumer].accepts = true;
        let link = stage.receive(10_000);
        let received = stage.bodies(link);
        assert_eq!(received.len(), 101);
        let in_order: Vec<&str> = received.iter().copied().filter(|body| *body != "late").collect();
        assert_eq!(in_order, bodies);
        assert_eq!(stage.world.clients[late].outcomes.len(), 1);
        assert!(stage.outcomes().iter().all(|outcome| *outcome == "accepted"));
        assert!(stage.world.clients[stage.producer].credit_left(stage.sender) > 0);
    });
}

/// Credit that a producer has left is taken back: what it sends later waits.
#[test]
fn s49_a_full_queue_takes_credit_back() {
    Stage::both("bytes-max=50 overflow=block", |mut stage| {
        for n in 0..50 {
            stage.send(&[&n.to_string()]);
        }
        let stored = stage.messages();
        assert!((5..20).contains(&stored), "{stored}");
        assert_eq!(stage.world.clients[stage.producer].credit_left(stage.sender), 0);
        stage.world.clients[stage.consumer].accepts = true;
        let link = stage.receive(100);
        assert_eq!(stage.bodies(link).len(), 50);
    });
}

/// A link without an address waits for the full queue, too; after its end nobody waits for it.
#[test]
fn s49_links_without_an_address_wait_as_well() {
    Stage::both("messages-max=2 overflow=block", |mut stage| {
        let queue = stage.queue.clone();
        let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
        let relay = stage.world.clients[stage.producer].attach_sender("relay", "", &options);
        let to = Properties { to: Some(&queue), ..Properties::default() };
        for _ in 0..3000 {
            stage.world.clients[stage.producer].send_with(relay, "x", &to, &[], &Header::default());
        }
        stage.world.run();
        // What it had credit for was on its way.
        assert!(stage.messages() <= 1000, "{}", stage.messages());
        assert_eq!(stage.world.clients[stage.producer].credit_left(relay), 0);
        stage.world.clients[stage.consumer].accepts = true;
        let link = stage.receive(10_000);
        assert_eq!(stage.bodies(link).len(), 3000);
        assert!(stage.world.clients[stage.producer].credit_left(relay) > 0);
    });
}

/// The connection of a waiting producer moves to another shard: it is still let go on, once.
#[test]
fn s49_a_waiting_producer_moves_with_its_connection() {
    for seed in 0..20 {
        let mut stage = Stage::with(true, "messages-max=2 overflow=block", Setup { seed, ..Setup::new(2) });
        stage.send(&["0", "1", "2", "3"]);
        let waiting = stage.outcomes().len();
        assert!(waiting < 4);
        // Its first consumer is on the queue's shard.
        let producer = stage.producer;
        let other = names_homed_at(1, 2).nth(1).expect("there is one");
        stage.world.clients[producer].attach_receiver("r", &other, &ReceiverOptions::default());
        stage.world.clients[stage.consumer].accepts = true;
        for _ in 0..seed {
            stage.world.step();
        }
        let link = stage.receive(100);
        assert_eq!(stage.world.shard_of(producer), 1);
        assert_eq!(stage.bodies(link), ["0", "1", "2", "3"], "seed {seed}");
        assert_eq!(stage.outcomes().len(), 4);
    }
}

/// One connection both fills and empties a queue that makes it wait: its settlements get through, and it goes on.
#[test]
fn s72_who_fills_a_queue_may_empty_it() {
    Stage::both("messages-max=4 overflow=block", |mut stage| {
        let bodies: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        stage.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(stage.outcomes().len() < 50);
        let queue = stage.queue.clone();
        let client = &mut stage.world.clients[stage.producer];
        client.accepts = true;
        let link = client.attach_receiver("r", &queue, &ReceiverOptions::default());
        client.credit(link, 1000);
        stage.world.run();
        assert_eq!(stage.world.clients[stage.producer].bodies(link), bodies);
        assert_eq!(stage.outcomes().len(), 50);
        assert_eq!(stage.messages(), 0);
    });
}

#[test]
fn a_message_that_failed_waits_longer_each_time_and_leaves_in_the_end() {
    Stage::both("deliveries-max=3 redelivery-delay=1s", |mut stage| {
        stage.send(&["poison", "good"]);
        let link = stage.receive(10);
        stage.settle(link, 0, &failed());
        stage.settle(link, 1, &DeliveryState::Accepted);
        assert_eq!(stage.bodies(link), ["poison", "good"]);
        stage.world.advance(SECOND + 20_000);
        assert_eq!(stage.bodies(link), ["poison", "good", "poison"]);
        stage.settle(link, 2, &failed());
        stage.world.advance(SECOND + 20_000);
        assert_eq!(stage.world.clients[stage.consumer].received[3].delivery_count, 2);
        stage.settle(link, 3, &failed());
        stage.world.advance(10 * SECOND);
        assert_eq!(stage.bodies(link).len(), 4);
        assert_eq!(stage.messages(), 0);
    });
}

#[test]
fn a_delivery_that_is_not_settled_in_time_goes_back_unless_it_is_renewed() {
    Stage::both("ack-deadline=1s", |mut stage| {
        stage.send(&["m"]);
        let link = stage.receive(1);
        let id = stage.world.clients[stage.consumer].received[0].delivery_id;
        for _ in 0..5 {
            stage.world.advance(SECOND * 8 / 10);
            stage.world.clients[stage.consumer].renew(link, id);
            stage.world.run();
        }
        let heir = stage.receive(1);
        assert!(stage.bodies(heir).is_empty());
        stage.world.advance(SECOND + 20_000);
        assert_eq!(stage.bodies(heir), ["m"]);
        // Too late.
        stage.settle(link, 0, &DeliveryState::Accepted);
        assert_eq!(stage.messages(), 1);
    });
}

#[test]
fn a_peer_that_renews_everything_again_and_again_has_its_share_of_a_turn() {
    for remote in [false, true] {
        let setup = Setup { verify: false, ..Setup::new(2) };
        let mut stage = Stage::with(remote, "ack-deadline=1s", setup);
        // It stays on its shard, wherever the queue is.
        let near = names_homed_at(0, 2).nth(1).expect("there are many");
        stage.world.clients[stage.consumer].attach_receiver("near", &near, &ReceiverOptions::default());
        stage.world.run();
        stage.send(&["m"; 10_000]);
        stage.receive(10_000);
        let received = &stage.world.clients[stage.consumer].received;
        let all = (received[0].delivery_id, received[9999].delivery_id);
        stage.world.stall(1, true);
        stage.world.clients[stage.consumer].renew_all(all, 200);
        let mut steps = 0;
        while !stage.world.is_heard(stage.consumer) {
            assert!(stage.world.step());
            steps += 1;
        }
        assert!(steps > 20, "2,000,000 renewals in {steps} steps");
        stage.world.run();
        let mails = stage.world.mail_for(1, Lane::Control);
        assert!(mails < 100, "{mails} mails for as many turns");
        stage.world.stall(1, false);
        stage.world.run();
    }
}

#[test]
fn a_message_is_delivered_when_it_says() {
    Stage::both("exclusive=false", |mut stage| {
        let at = i64::try_from(stage.world.now / 1000 + 5000).expect("it is this century");
        let annotations: [&[(&str, Value<'_>)]; 3] = [
            &[("x-opt-delivery-time", Value::Timestamp(at))],
            &[("x-opt-delivery-delay", Value::Uint(2000))],
            &[("x-opt-other", Value::Uint(1))],
        ];
        for (body, annotations) in ["at", "delay", "now"].iter().zip(annotations) {
            stage.world.clients[stage.producer].send_annotated(stage.sender, body, annotations);
        }
        stage.world.run();
        let link = stage.receive(10);
        assert_eq!(stage.bodies(link), ["now"]);
        stage.world.advance(2 * SECOND + 10_000);
        assert_eq!(stage.bodies(link), ["now", "delay"]);
        stage.world.advance(2 * SECOND + SECOND / 2);
        assert_eq!(stage.bodies(link).len(), 2);
        stage.world.advance(SECOND);
        assert_eq!(stage.bodies(link), ["now", "delay", "at"]);
    });
}

#[test]
fn of_messages_with_the_same_key_the_last_stays() {
    Stage::both("last-value-key=symbol", |mut stage| {
        let send = |stage: &mut Stage, body: &str, key: &[(&str, Value<'_>)]| {
            let header = Header::default();
            let client = &mut stage.world.clients[stage.producer];
            client.send_with(stage.sender, body, &Properties::default(), key, &header);
        };
        send(&mut stage, "a1", &[("symbol", Value::String("a"))]);
        send(&mut stage, "b1", &[("symbol", Value::Int(7))]);
        send(&mut stage, "none", &[]);
        send(&mut stage, "a2", &[("symbol", Value::Symbol("a"))]);
        send(&mut stage, "b2", &[("symbol", Value::Ulong(7))]);
        send(&mut stage, "c", &[("symbol", Value::String("7"))]);
        stage.world.run();
        let link = stage.receive(10);
        assert_eq!(stage.bodies(link), ["none", "a2", "b2", "c"]);
    });
}

#[test]
fn a_non_destructive_queue_shows_everything_to_everyone() {
    Stage::both("non-destructive=true", |mut stage| {
        stage.world.clients[stage.consumer].accepts = true;
        stage.send(&["0", "1"]);
        let first = stage.receive(10);
        let second = stage.receive(10);
        stage.send(&["2"]);
        assert_eq!(stage.bodies(first), ["0", "1", "2"]);
        assert_eq!(stage.bodies(second), ["0", "1", "2"]);
        assert_eq!(stage.messages(), 3);
    });
}

/// Who only reads says so inside a transaction as well, settled or not, and that is no reason for it to fail.
#[test]
fn a_transaction_commits_what_was_only_read() {
    for settles_second in [false, true] {
        Stage::both("non-destructive=true", |mut stage| {
            stage.send(&["0", "1"]);
            let client = &mut stage.world.clients[stage.consumer];
            let coordinator = client.attach_coordinator("txn", &[]);
            let options = ReceiverOptions { settles_second, ..ReceiverOptions::default() };
            let link = client.attach_receiver("r", &stage.queue, &options);
            client.credit(link, 10);
            for commits in [true, false] {
                let declare = stage.world.clients[stage.consumer].declare(coordinator);
                stage.world.run();
                let client = &mut stage.world.clients[stage.consumer];
                let number =
                    client.outcome(declare).and_then(|it| it.strip_prefix("declared ")?.parse().ok());
                let number = number.expect("there is room");
                let delivery_id = client.received[usize::from(!commits)].delivery_id;
                client.settle_in(link, delivery_id, number, Outcome::Accepted);
                stage.world.run();
                let client = &mut stage.world.clients[stage.consumer];
                let discharge = client.discharge(coordinator, number, !commits);
                stage.world.run();
                assert_eq!(stage.world.clients[stage.consumer].outcome(discharge), Some("accepted"));
            }
            assert_eq!(stage.messages(), 2);
            assert_eq!(stage.shard().counters().settlements_late, 0);
            let other = stage.receive(10);
            assert_eq!(stage.bodies(other), ["0", "1"]);
        });
    }
}

/// What is posted drops the oldest when it commits, and nothing when it does not.
#[test]
fn s47_drop_oldest_waits_for_the_commit() {
    Stage::both("messages-max=2 overflow=drop-oldest", |mut stage| {
        stage.send(&["0", "1"]);
        let coordinator = stage.world.clients[stage.producer].attach_coordinator("txn", &[]);
        stage.world.run();
        for fail in [true, false] {
            let client = &mut stage.world.clients[stage.producer];
            let declare = client.declare(coordinator);
            stage.world.run();
            let client = &mut stage.world.clients[stage.producer];
            let number = client.outcome(declare).and_then(|it| it.strip_prefix("declared ")?.parse().ok());
            let number = number.expect("there is room");
            for body in ["2", "3", "4"] {
                client.send_in(stage.sender, number, body);
            }
            stage.world.run();
            assert_eq!(stage.messages(), 5);
            stage.world.clients[stage.producer].discharge(coordinator, number, fail);
            stage.world.run();
            assert_eq!(stage.messages(), 2);
            let browse = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
            let client = &mut stage.world.clients[stage.consumer];
            let link = client.attach_receiver(&format!("r{fail}"), &stage.queue, &browse);
            client.credit(link, 10);
            stage.world.run();
            assert_eq!(stage.bodies(link), if fail { ["0", "1"] } else { ["3", "4"] });
        }
    });
}

#[test]
fn s53_a_queue_goes_with_its_last_consumer_and_its_producers_are_told() {
    Stage::both("auto-delete=true", |mut stage| {
        stage.send(&["0", "1"]);
        let first = stage.receive(1);
        let second = stage.receive(1);
        stage.world.clients[stage.consumer].detach(first);
        stage.world.run();
        assert_eq!(stage.messages(), 2);
        stage.world.clients[stage.consumer].detach(second);
        stage.world.run();
        assert!(stage.shard().queue(&stage.queue).is_none());
        let gone = (stage.sender, Some("amqp:resource-deleted".to_owned()));
        assert_eq!(stage.world.clients[stage.producer].detached, [gone]);
        assert_eq!(stage.world.clients[stage.producer].closed, None);
    });
}

#[test]
fn a_queue_that_nobody_is_attached_to_goes_after_a_while() {
    Stage::both("idle-expiry=10s", |mut stage| {
        stage.send(&["0"]);
        stage.world.advance(60 * SECOND);
        assert_eq!(stage.messages(), 1, "a producer is attached");
        stage.world.clients[stage.producer].detach(stage.sender);
        stage.world.run();
        stage.world.advance(6 * SECOND);
        let link = stage.receive(0);
        stage.world.advance(60 * SECOND);
        assert_eq!(stage.messages(), 1, "a consumer is attached");
        stage.world.clients[stage.consumer].detach(link);
        stage.world.run();
        stage.world.advance(9 * SECOND);
        assert!(stage.shard().queue(&stage.queue).is_some());
        stage.world.advance(SECOND + 1);
        assert!(stage.shard().queue(&stage.queue).is_none());
        assert_eq!(stage.shard().counters().queues_idle_expired, 1);
    });
}

/// Many queues whose time is over at once are not one turn's work.
#[test]
fn idle_queues_go_so_many_a_turn() {
    const QUEUES: usize = 4 * TURN_QUEUES_EXPIRED_MAX;
    let mut world = World::new(&Setup { rules: rules(&["idle.>: idle-expiry=10s"]), ..Setup::new(1) });
    let client = world.connect(0);
    for n in 0..QUEUES {
        let link = world.clients[client].attach_sender("s", &format!("idle.{n}"), &SenderOptions::default());
        world.run();
        world.clients[client].detach(link);
        world.run();
    }
    world.pass(11 * SECOND);
    let mut expired = 0;
    while world.step() {
        let now = world.shards[0].counters().queues_idle_expired;
        assert!(now - expired <= TURN_QUEUES_EXPIRED_MAX as u64, "{now} after {expired}");
        expired = now;
    }
    assert_eq!((expired, world.shards[0].queue_count()), (QUEUES as u64, 0));
}

#[test]
fn a_message_says_who_has_sent_it() {
    for (login, expect) in [(true, Some("sim")), (false, None)] {
        for remote in [false, true] {
            let setup = Setup { login, ..Setup::new(2) };
            let mut stage = Stage::with(remote, "sender-name=true", setup);
            let forged = [("x-opt-sender", Value::String("somebody else")), ("x-opt-other", Value::Uint(1))];
            stage.world.clients[stage.producer].send_annotated(stage.sender, "m", &forged);
            stage.world.run();
            let link = stage.receive(1);
            assert_eq!(stage.bodies(link), ["m"]);
            assert_eq!(stage.annotation(link, "x-opt-sender"), expect);
            assert_eq!(stage.annotation(link, "x-opt-other"), Some("1"));
        }
    }
}

#[test]
fn a_pinned_queue_lives_on_its_shard() {
    for shard in 0..4_usize {
        let rules = rules(&[&format!("pinned.>: shard={shard}"), "pinned.not: shard=3"]);
        let mut world = World::new(&Setup { rules, ..Setup::new(4) });
        let client = world.connect(0);
        for n in 0..4 {
            let name = format!("pinned.{n}");
            world.clients[client].attach_sender(&name, &name, &SenderOptions::default());
        }
        world.clients[client].attach_sender("not", "pinned.not", &SenderOptions::default());
        let options = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
        world.clients[client].attach_receiver("dynamic", "", &options);
        world.run();
        assert!((0..4).all(|n| world.shards[shard].queue(&format!("pinned.{n}")).is_some()));
        assert!(world.shards[3].queue("pinned.not").is_some());
        // A change holds from the next start: the queue is still found where it was.
        world.change_destinations(self::rules(&["pinned.>: shard=0"]));
        let link = world.clients[client].attach_sender("again", "pinned.1", &SenderOptions::default());
        world.clients[client].send(link, "m");
        world.run();
        let queue = world.shards[shard].queue("pinned.1").expect("it is there");
        assert_eq!(world.shards[shard].engine().depth(queue).map(|depth| depth.messages), Some(1));
    }
}

#[test]
fn properties_change_while_a_queue_is_used() {
    Stage::both("messages-max=2 overflow=block", |mut stage| {
        stage.send(&["0", "1", "2", "3", "4", "5"]);
        assert!(stage.outcomes().len() < 6);
        // Producers that wait go on when their queue has no limit any more.
        let queue = stage.queue.clone();
        stage.world.change_destinations(rules(&[&format!("{queue}: expiration=1s")]));
        assert_eq!(stage.outcomes().len(), 6);
        stage.send(&["6"]);
        stage.world.advance(2 * SECOND);
        assert!(stage.messages() < 7, "the new ones have expired");
        stage.world.change_destinations(rules(&[&format!("{queue}: idle-expiry=1s auto-delete=true")]));
        stage.world.clients[stage.producer].detach(stage.sender);
        stage.world.run();
        stage.world.advance(2 * SECOND);
        assert!(stage.shard().queue(&queue).is_none());
    });
}

/// Rules that are read again: what holds for some of its messages or consumers only waits until there are none, and the log says so.
#[test]
fn what_cannot_change_while_a_queue_is_used_waits() {
    Stage::both("prefetch=5", |mut stage| {
        let queue = stage.queue.clone();
        let send = |stage: &mut Stage, body: &str| {
            let key = [("k", Value::Int(1))];
            let client = &mut stage.world.clients[stage.producer];
            client.send_with(stage.sender, body, &Properties::default(), &key, &Header::default());
            stage.world.run();
        };
        stage.world.clients[stage.consumer].accepts = true;
        send(&mut stage, "0");
        stage.world.change_destinations(rules(&[&format!("{queue}: last-value-key=k")]));
        assert_eq!(stage.world.warnings.len(), 1, "{:?}", stage.world.warnings);
        assert!(stage.world.warnings[0].contains("last-value-key is changed only while the queue is empty"));
        send(&mut stage, "1");
        assert_eq!(stage.messages(), 2, "none has a key");
        let link = stage.receive(2);
        assert_eq!((stage.bodies(link).len(), stage.messages()), (2, 0));
        send(&mut stage, "2");
        send(&mut stage, "3");
        assert_eq!(stage.messages(), 1, "it was empty");

        stage.world.change_destinations(rules(&[&format!("{queue}: last-value-key=k non-destructive=true")]));
        assert!(stage.world.warnings[1].contains("non-destructive is changed only while no consumer"));
        stage.world.clients[stage.consumer].credit(link, 10);
        stage.world.run();
        assert_eq!((stage.bodies(link), stage.messages()), (vec!["0", "1", "3"], 0), "it takes as before");
        stage.world.clients[stage.consumer].detach(link);
        stage.world.run();
        send(&mut stage, "4");
        let link = stage.receive(10);
        assert_eq!((stage.bodies(link), stage.messages()), (vec!["0", "1", "3", "4"], 1), "it reads");
        assert_eq!(stage.world.warnings.len(), 2);
    });
}
