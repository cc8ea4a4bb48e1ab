//! Where do messages go that leave their queue unconsumed, and what do they say of themselves there?

use corelane_protocol::amqp10::LinkId;
use corelane_shard::limits::LOST_WARNINGS_MAX;
use corelane_shard::{DestinationRule, RedeliveryRule};
use corelane_sim::{Operator, ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Header, Modified, Properties};

const SECOND: u64 = 1_000_000;

fn rule(pattern: &str, change: impl FnOnce(&mut DestinationRule)) -> DestinationRule {
    let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
    change(&mut rule);
    rule
}

/// Names of queues: the source on shard 0, the destination of its dead letters there or on another shard.
fn names(remote: bool) -> (String, String) {
    let mut here = names_homed_at(0, 2);
    let source = here.next().expect("there is one");
    let dead = if remote { names_homed_at(1, 2).next() } else { here.next() };
    (source, dead.expect("there is one"))
}

struct Stage {
    world: World,
    client: usize,
    source: String,
    dead: String,
    sender: LinkId,
    links: usize,
}

impl Stage {
    fn new(remote: bool, change: impl FnOnce(&mut DestinationRule)) -> Stage {
        let (source, dead) = names(remote);
        let rule = rule(&source, |rule| {
            rule.dead_letter = Some(dead.as_str().into());
            change(rule);
        });
        Stage::with(source, dead, vec![rule])
    }

    fn with(source: String, dead: String, rules: Vec<DestinationRule>) -> Stage {
        let mut world = World::new(&Setup { rules, ..Setup::new(2) });
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &source, &SenderOptions::default());
        world.run();
        Stage { world, client, source, dead, sender, links: 0 }
    }

    fn send(&mut self, body: &str, ttl: Option<u32>) {
        let header = Header { ttl, ..Header::default() };
        let client = &mut self.world.clients[self.client];
        client.send_with(self.sender, body, &Properties::default(), &[], &header);
        self.world.run();
    }

    fn receive(&mut self, queue: &str, credit: u32) -> LinkId {
        self.links += 1;
        let client = &mut self.world.clients[self.client];
        let link = client.attach_receiver(&format!("r{}", self.links), queue, &ReceiverOptions::default());
        client.credit(link, credit);
        self.world.run();
        link
    }

    /// What is in the destination of dead letters: body, reason, count and path.
    fn dead(&mut self) -> Vec<[String; 4]> {
        let dead = self.dead.clone();
        let link = self.receive(&dead, 1000);
        let received = self.world.clients[self.client].received.iter();
        let told = received.filter(|received| received.link == link).map(|received| {
            let annotation = |name: &str| {
                let found = received.annotations.iter().find(|(key, _)| key == name);
                found.map_or(String::new(), |(_, value)| value.clone())
            };
            [
                received.body.clone(),
                annotation("x-opt-death-reason"),
                annotation("x-opt-death-count"),
                annotation("x-opt-death-path"),
            ]
        });
        told.collect()
    }

    fn settle_last(&mut self, link: LinkId, state: &DeliveryState<'_>) {
        let client = &mut self.world.clients[self.client];
        let last = client.received.iter().rfind(|received| received.link == link);
        let id = last.expect("one has arrived").delivery_id;
        client.settle(link, id, state);
        self.world.run();
    }

    /// So many dead letters of the source were lost, and each warning (there is a bound to them) says why.
    #[track_caller]
    fn check_lost(&mut self, count: usize, parts: &[&str]) {
        assert_eq!(self.lost(), count.to_string());
        assert_eq!(self.world.warnings.len(), count.min(LOST_WARNINGS_MAX as usize));
        let source = format!("a dead letter of {} could not be stored in ", self.source);
        for warning in &self.world.warnings {
            for part in [&*source].iter().chain(parts) {
                assert!(warning.contains(part), "lacks {part:?}: {warning}");
            }
        }
    }

    /// What the source says of dead letters that are gone.
    fn lost(&mut self) -> String {
        let source = self.source.clone();
        self.lost_of(&source)
    }

    fn lost_of(&mut self, queue: &str) -> String {
        let mut operator = Operator::new(&mut self.world, 0);
        operator.ask(&mut self.world, "READ", ("queue", queue), &[], &[]).at("dead-letters-lost")
    }

    fn depth(&self, queue: &str) -> u64 {
        let shards = self.world.shards.iter();
        let depths = shards.filter_map(|shard| shard.engine().depth(shard.queue(queue)?));
        depths.map(|depth| depth.messages).sum()
    }
}

fn told(body: &str, reason: &str, path: &str) -> [String; 4] {
    [body, reason, "1", path].map(str::to_owned)
}

/// Each at its own time, wherever it stands, though nobody consumes; where it arrives its time to live is over and does not
/// count again.
#[test]
fn s44_expired_messages_are_dead_letters_in_time() {
    for remote in [false, true] {
        let mut stage = Stage::new(remote, |_| {});
        stage.send("long", Some(3000));
        stage.send("short", Some(1000));
        stage.send("for ever", None);
        stage.world.advance(SECOND + 10_000);
        let source = stage.source.clone();
        assert_eq!((stage.depth(&source), stage.depth(&stage.dead)), (2, 1));
        stage.world.advance(2 * SECOND);
        stage.world.advance(100 * SECOND);
        assert_eq!((stage.depth(&source), stage.depth(&stage.dead)), (1, 2));
        let expect = [told("short", "expired", &source), told("long", "expired", &source)];
        assert_eq!(stage.dead(), expect);
    }
}

/// A consumer's message does not expire under it.
#[test]
fn s45_expiry_is_judged_when_the_message_comes_back() {
    for remote in [false, true] {
        let mut stage = Stage::new(remote, |_| {});
        stage.send("m", Some(1000));
        let source = stage.source.clone();
        let link = stage.receive(&source, 1);
        stage.world.advance(5 * SECOND);
        assert_eq!((stage.depth(&source), stage.depth(&stage.dead)), (1, 0));
        stage.settle_last(link, &DeliveryState::Released);
        assert_eq!(stage.dead(), [told("m", "expired", &source)]);
    }
}

#[test]
fn s47_what_overflow_drops_is_a_dead_letter() {
    for remote in [false, true] {
        let mut stage = Stage::new(remote, |rule| {
            rule.messages_max = Some(2);
            rule.overflow = Some(corelane_shard::OverflowRule::DropOldest);
        });
        for n in 0..5 {
            stage.send(&n.to_string(), None);
        }
        let source = stage.source.clone();
        let expect = ["0", "1", "2"].map(|body| told(body, "overflow", &source));
        assert_eq!(stage.dead(), expect);
    }
}

#[test]
fn s30_a_rejected_message_is_a_dead_letter() {
    for remote in [false, true] {
        let mut stage = Stage::new(remote, |_| {});
        stage.send("bad", None);
        let source = stage.source.clone();
        let link = stage.receive(&source, 1);
        stage.settle_last(link, &DeliveryState::Rejected { error: None });
        assert_eq!(stage.dead(), [told("bad", "rejected", &source)]);
        assert_eq!(stage.depth(&source), 0);
    }
}

#[test]
fn s32_a_message_that_failed_too_often_is_a_dead_letter() {
    for remote in [false, true] {
        let mut stage = Stage::new(remote, |rule| {
            rule.deliveries_max = Some(2);
            rule.redelivery = Some(RedeliveryRule::constant(1000));
        });
        stage.send("poison", None);
        let source = stage.source.clone();
        let link = stage.receive(&source, 10);
        let failed = DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() });
        for _ in 0..2 {
            stage.settle_last(link, &failed);
            stage.world.advance(20_000);
        }
        assert_eq!(stage.dead(), [told("poison", "deliveries", &source)]);
    }
}

/// Two queues whose messages expire into each other, whatever they are called there: a message is in each once, and then gone,
/// counted. The configuration file would not be taken; here nobody asks.
#[test]
fn s51_a_circle_is_cut_after_one_round() {
    for (remote, prefix) in [(false, ""), (true, ""), (false, "/queues/"), (true, "queue://")] {
        let (a, b) = names(remote);
        let expires_to = |queue: &str, to: &str| {
            rule(queue, |rule| {
                rule.dead_letter = Some(format!("{prefix}{to}").into());
                rule.expiration_us = Some(SECOND);
            })
        };
        let mut stage = Stage::with(a.clone(), b.clone(), vec![expires_to(&a, &b), expires_to(&b, &a)]);
        stage.send("m", None);
        stage.world.advance(SECOND + 10_000);
        assert_eq!((stage.depth(&a), stage.depth(&b)), (0, 1));
        stage.world.advance(SECOND + 10_000);
        assert_eq!((stage.depth(&a), stage.depth(&b)), (0, 0));
        let circling: u64 =
            stage.world.shards.iter().map(|shard| shard.counters().dead_letters_circling).sum();
        assert_eq!(circling, 1);
        assert_eq!(stage.lost_of(&b), "1");
        assert_eq!(stage.world.warnings.len(), 1);
        let warning = &stage.world.warnings[0];
        for part in
            [format!("has died in {b} would go on to {prefix}{a}, "), format!("(it has died in {a}, {b})")]
        {
            assert!(warning.contains(&part), "{warning}");
        }
        // A consumer that rejects may send it round as often as it likes.
        stage.send("again", None);
        let (link_a, link_b) = (stage.receive(&a, 10), stage.receive(&b, 10));
        for _ in 0..5 {
            stage.settle_last(link_a, &DeliveryState::Rejected { error: None });
            stage.settle_last(link_b, &DeliveryState::Rejected { error: None });
        }
        assert_eq!(stage.world.clients[stage.client].bodies(link_a).len(), 6);
    }
}

/// A queue goes while a consumer holds a message: nobody knows whether it was processed, so it is kept.
#[test]
fn s53_what_was_held_when_its_queue_was_deleted_is_a_dead_letter() {
    for remote in [false, true] {
        let dead = names_homed_at(usize::from(remote), 2).next().expect("there is one");
        let all = rule(">", |rule| rule.dead_letter = Some(dead.as_str().into()));
        let mut stage = Stage::with(dead.clone(), dead, vec![all]);
        // A node that goes with the link that asked for it, and a second connection that consumes from it.
        let options = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
        let owner = stage.world.connect(0);
        let node = stage.world.clients[owner].attach_receiver("node", "", &options);
        stage.world.run();
        let (_, address) = stage.world.clients[owner].addresses[0].clone();
        let sender =
            stage.world.clients[stage.client].attach_sender("to", &address, &SenderOptions::default());
        stage.world.clients[stage.client].send(sender, "held");
        let link = stage.receive(&address, 1);
        stage.world.clients[stage.client].send(sender, "waiting");
        stage.world.run();
        stage.world.clients[owner].detach(node);
        stage.world.run();
        let gone = Some("amqp:resource-deleted".to_owned());
        for link in [link, sender] {
            assert!(stage.world.clients[stage.client].detached.contains(&(link, gone.clone())));
        }
        assert_eq!(stage.dead(), [told("held", "deleted", &address)]);
    }
}

/// Many at once, to a shard that does not answer for a while: nothing is lost, and no more is on its way than may be.
#[test]
fn dead_letters_wait_for_a_shard_that_is_slow() {
    let mut stage = Stage::new(true, |rule| rule.expiration_us = Some(SECOND));
    for n in 0..5000 {
        let client = &mut stage.world.clients[stage.client];
        client.send(stage.sender, &n.to_string());
    }
    stage.world.run();
    stage.world.stall(1, true);
    stage.world.advance(2 * SECOND);
    let sent = stage.world.shards[0].counters().messages_forwarded;
    assert!((1000..1100).contains(&sent), "{sent}");
    stage.world.stall(1, false);
    stage.world.advance(0);
    assert_eq!(stage.depth(&stage.dead), 5000);
    let dead = stage.dead();
    assert_eq!(dead.len(), 1000);
    assert!(dead.iter().enumerate().all(|(n, told)| told[0] == n.to_string()));
}

/// The destination of dead letters is full: what does not fit is gone, and counted where it died, with the reason in the log.
#[test]
fn dead_letters_that_do_not_fit_are_counted() {
    for remote in [false, true] {
        let (source, dead) = names(remote);
        let rules = vec![
            rule(&source, |rule| {
                rule.dead_letter = Some(dead.as_str().into());
                rule.expiration_us = Some(SECOND);
            }),
            rule(&dead, |rule| rule.messages_max = Some(2)),
        ];
        let mut stage = Stage::with(source, dead, rules);
        for n in 0..5 {
            stage.send(&n.to_string(), None);
        }
        stage.world.advance(2 * SECOND);
        assert_eq!(stage.depth(&stage.dead), 2);
        let refused: u64 =
            stage.world.shards.iter().map(|shard| shard.counters().forwards_refused_full).sum();
        assert_eq!(refused, 3);
        stage.check_lost(3, &["and is lost", "no room there"]);
    }
}

/// There is no such queue, and none is made.
#[test]
fn dead_letters_that_have_nowhere_to_go_are_counted() {
    for remote in [false, true] {
        let (source, dead) = names(remote);
        let rules = vec![
            rule(&source, |rule| {
                rule.dead_letter = Some(dead.as_str().into());
                rule.expiration_us = Some(SECOND);
            }),
            rule(&dead, |rule| rule.auto_create = Some(false)),
        ];
        let mut stage = Stage::with(source, dead, rules);
        for n in 0..9 {
            stage.send(&n.to_string(), None);
        }
        stage.world.advance(2 * SECOND);
        stage.check_lost(9, &["and is lost", "it is not there", "auto-create"]);
    }
}

/// A topic that nobody has subscribed to, under any of its names; one that somebody has takes them.
#[test]
fn dead_letters_for_a_topic_without_subscriptions_are_counted() {
    for (to, is_subscribed) in [("topic://dead", false), ("dead.eu", false), ("dead.eu", true)] {
        let (source, _) = names(false);
        let rules = vec![
            rule(&source, |rule| {
                rule.dead_letter = Some(to.into());
                rule.expiration_us = Some(SECOND);
            }),
            rule("dead.>", |rule| rule.topic = Some(true)),
        ];
        let mut stage = Stage::with(source, to.to_owned(), rules);
        if is_subscribed {
            let subscriber = stage.world.connect(1);
            stage.world.clients[subscriber].attach_receiver("sub", to, &ReceiverOptions::default());
            stage.world.run();
        }
        for n in 0..5 {
            stage.send(&n.to_string(), None);
        }
        stage.world.advance(2 * SECOND);
        if is_subscribed {
            assert_eq!(stage.lost(), "0");
        } else {
            stage.check_lost(5, &["and is lost", "nothing is subscribed", to]);
        }
    }
}

/// The subscription of a topic is full, on the shard where messages die or on another one.
#[test]
fn dead_letters_that_a_subscription_does_not_take_are_counted() {
    for shard in 0..2 {
        let (source, _) = names(false);
        let rules = vec![
            rule(&source, |rule| {
                rule.dead_letter = Some("topic://dead".into());
                rule.expiration_us = Some(SECOND);
            }),
            rule("dead", |rule| rule.messages_max = Some(2)),
        ];
        let mut stage = Stage::with(source, "dead".to_owned(), rules);
        let subscriber = stage.world.connect(shard);
        stage.world.clients[subscriber].attach_receiver("sub", "topic://dead", &ReceiverOptions::default());
        stage.world.run();
        for n in 0..5 {
            stage.send(&n.to_string(), None);
        }
        stage.world.advance(2 * SECOND);
        stage.check_lost(3, &["and is lost", "no room there"]);
    }
}

/// A full queue that would let its producers wait has none here: it takes what comes.
#[test]
fn dead_letters_go_beyond_the_limit_of_a_queue_that_blocks() {
    let (source, dead) = names(false);
    let rules = vec![
        rule(&source, |rule| {
            rule.dead_letter = Some(dead.as_str().into());
            rule.expiration_us = Some(SECOND);
        }),
        rule(&dead, |rule| {
            rule.messages_max = Some(1);
            rule.overflow = Some(corelane_shard::OverflowRule::Block);
        }),
    ];
    let mut stage = Stage::with(source, dead, rules);
    for n in 0..4 {
        stage.send(&n.to_string(), None);
    }
    stage.world.advance(2 * SECOND);
    assert_eq!(stage.depth(&stage.dead), 4);
    assert_eq!(stage.lost(), "0");
    assert!(stage.world.warnings.is_empty());
}
