//! What of a backlog that is larger than memory?

use corelane_protocol::amqp10::LinkId;
use corelane_shard::DestinationRule;
use corelane_sim::{DiskSetup, ReceiverOptions, Setup};
use corelane_wire::amqp10::{DeliveryState, Header, Modified, Properties, Value};

use super::{Stage, bodies, durable, rule};

/// Of the messages of a shard.
const MEMORY: u64 = 256 << 10;

/// Four times as much as there is memory for.
pub(crate) const COUNT: usize = 1000;

pub(crate) fn setup(rules: Vec<DestinationRule>) -> Setup {
    Setup { memory: MEMORY, rules, verify: false, ..Setup::durable(1, 7) }
}

pub(crate) fn body(n: usize) -> String {
    format!("{n:0>1000}")
}

pub(crate) fn all(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(body).collect()
}

/// Puts so many into a queue, in order, each with its color.
pub(crate) fn fill(stage: &mut Stage, queue: &str, header: &Header, range: std::ops::Range<usize>) {
    let sender = stage.sender(queue);
    let mut tokens = Vec::new();
    for n in range {
        let color = [("color", Value::String(if n % 10 == 0 { "red" } else { "blue" }))];
        let client = &mut stage.world.clients[stage.client];
        tokens.push(client.send_with(sender, &body(n), &Properties::default(), &color, header));
        if n % 20 == 19 {
            stage.world.run();
        }
    }
    stage.world.run();
    tokens.into_iter().for_each(|token| assert_eq!(stage.outcome(token), "accepted"));
}

fn overflowing(rules: Vec<DestinationRule>) -> Stage {
    let mut stage = Stage::with(&setup(rules));
    fill(&mut stage, "q", &durable(), 0..COUNT);
    assert!(stage.world.shards[0].memory_used() <= MEMORY);
    stage
}

/// Receives all there is in pieces, and settles each.
pub(crate) fn drain(stage: &mut Stage, link: LinkId) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let received = stage.receive(link, 50);
        if received.is_empty() {
            return all;
        }
        let most = MEMORY + MEMORY / 4;
        assert!(stage.world.shards[0].memory_used() <= most, "{}", stage.world.shards[0].memory_used());
        for received in &received {
            stage.world.clients[stage.client].settle(link, received.delivery_id, &DeliveryState::Accepted);
        }
        all.extend(bodies(&received));
    }
}

pub(crate) fn assert_empty(stage: &mut Stage) {
    stage.world.run();
    assert_eq!(stage.world.shards[0].memory_used(), 0);
    assert_eq!(stage.crash().messages(), 0);
}

#[test]
fn a_backlog_larger_than_memory_comes_in_order_durable_or_not() {
    for header in [durable(), Header::default()] {
        let mut stage = Stage::with(&setup(Vec::new()));
        fill(&mut stage, "q", &header, 0..COUNT);
        assert!(stage.world.shards[0].memory_used() <= MEMORY);
        let receiver = stage.receiver("q");
        assert_eq!(drain(&mut stage, receiver), all(0..COUNT));
        assert!(stage.world.shards[0].counters().reads > 10);
        assert_empty(&mut stage);
    }
}

#[test]
fn a_broker_starts_with_more_than_it_has_memory_for_and_forgets_what_was_transient() {
    let mut stage = overflowing(Vec::new());
    fill(&mut stage, "q", &Header::default(), COUNT..COUNT + 100);
    let restart = stage.crash();
    assert_eq!(restart.messages(), COUNT as u64);
    assert!(stage.world.shards[0].memory_used() <= MEMORY / 2);
    fill(&mut stage, "q", &durable(), COUNT..COUNT + 50);
    assert_eq!(stage.stop().messages(), COUNT as u64 + 50);
    let receiver = stage.receiver("q");
    assert_eq!(drain(&mut stage, receiver), all(0..COUNT + 50));
    assert_empty(&mut stage);
}

#[test]
fn who_browses_or_selects_gets_what_is_on_the_disk() {
    let mut stage = overflowing(Vec::new());
    let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
    let browser = stage.receiver_with("q", &options);
    let mut browsed = Vec::new();
    for _ in 0..COUNT / 50 + 1 {
        browsed.extend(bodies(&stage.receive(browser, 50)));
    }
    assert_eq!(browsed, all(0..COUNT));
    let options =
        ReceiverOptions { selector: Some("color = 'red'".to_owned()), ..ReceiverOptions::default() };
    let selecting = stage.receiver_with("q", &options);
    let red: Vec<String> = (0..COUNT).step_by(10).map(body).collect();
    assert_eq!(drain(&mut stage, selecting), red);
    let rest: Vec<String> = (0..COUNT).filter(|n| n % 10 != 0).map(body).collect();
    let receiver = stage.receiver("q");
    assert_eq!(drain(&mut stage, receiver), rest);
    assert_empty(&mut stage);
}

/// What is delivered and not settled leaves memory too, and goes back to its place from there.
#[test]
fn a_consumer_may_hold_more_than_there_is_memory_for() {
    let mut stage = overflowing(Vec::new());
    let receiver = stage.receiver("q");
    let held = stage.receive(receiver, 600);
    assert_eq!(bodies(&held), all(0..600));
    assert!(stage.world.shards[0].memory_used() <= MEMORY + MEMORY / 4);
    let colored = [(Value::Symbol("x-opt-note"), Value::String("seen"))];
    let mut annotations = Vec::new();
    let mut map = corelane_wire::amqp10::MapWriter::new(&mut annotations);
    colored.iter().for_each(|(key, value)| map.pair(key, value));
    map.finish();
    let map = corelane_wire::amqp10::Map::decode(&annotations).unwrap();
    for (n, received) in held.iter().enumerate() {
        let state = match n % 3 {
            0 => DeliveryState::Accepted,
            1 => DeliveryState::Released,
            _ => DeliveryState::Modified(Modified {
                delivery_failed: true,
                message_annotations: (n < 100).then_some(map),
                ..Modified::default()
            }),
        };
        stage.settle(received, &state);
    }
    let rest: Vec<String> = (0..COUNT).filter(|n| *n >= 600 || n % 3 != 0).map(body).collect();
    let mut again = Vec::new();
    loop {
        let received = stage.receive(receiver, 50);
        for received in &received {
            let n: usize = received.body.parse().unwrap();
            assert_eq!(received.delivery_count, u32::from(n < 600 && n % 3 == 2), "{n}");
            stage.world.clients[stage.client].settle(
                receiver,
                received.delivery_id,
                &DeliveryState::Accepted,
            );
        }
        again.extend(bodies(&received));
        if received.is_empty() {
            break;
        }
    }
    assert_eq!(again, rest);
    assert_empty(&mut stage);
}

/// More than there is memory for, too.
const FEW: usize = 400;

/// Takes so many messages and gives them back with an annotation.
fn annotate_all(stage: &mut Stage, receiver: LinkId, count: usize) {
    let mut annotations = Vec::new();
    let mut map = corelane_wire::amqp10::MapWriter::new(&mut annotations);
    map.pair(&Value::Symbol("x-opt-note"), &Value::String("seen"));
    map.finish();
    let map = corelane_wire::amqp10::Map::decode(&annotations).expect("it was encoded above");
    let modified = Modified { message_annotations: Some(map), ..Modified::default() };
    let held = stage.receive(receiver, count as u32);
    assert_eq!(held.len(), count);
    for received in &held {
        let state = DeliveryState::Modified(modified);
        stage.world.clients[stage.client].settle(receiver, received.delivery_id, &state);
    }
    stage.world.run();
}

/// What is not read any more is not annotated any more.
#[test]
fn annotations_go_with_their_messages() {
    for header in [durable(), Header::default()] {
        let mut stage = Stage::with(&setup(Vec::new()));
        fill(&mut stage, "q", &Header { ttl: Some(60_000), ..header }, 0..FEW);
        let receiver = stage.receiver("q");
        annotate_all(&mut stage, receiver, FEW);
        assert!(stage.world.shards[0].memory_used() > 0);
        stage.world.advance(120_000_000);
        assert_empty(&mut stage);
    }
}

/// They leave memory as others do, come back as they were, and are that after a crash too, wherever their records lie by then.
#[test]
fn annotated_messages_leave_memory_and_come_back_annotated() {
    for header in [durable(), Header::default()] {
        // Annotations take of it, too.
        let memory = 2 * MEMORY;
        let mut stage = Stage::with(&Setup { memory, ..setup(Vec::new()) });
        fill(&mut stage, "other", &header, 0..COUNT / 2);
        let receiver = stage.receiver("other");
        annotate_all(&mut stage, receiver, COUNT / 2);
        assert!(stage.world.shards[0].memory_used() <= memory);
        let (kept, taken): (Vec<_>, Vec<_>) =
            stage.receive(receiver, COUNT as u32).into_iter().enumerate().partition(|(n, _)| n % 4 == 0);
        let client = &mut stage.world.clients[stage.client];
        for (received, state) in kept
            .iter()
            .map(|(_, it)| (it, DeliveryState::Released))
            .chain(taken.iter().map(|(_, it)| (it, DeliveryState::Accepted)))
        {
            client.settle(receiver, received.delivery_id, &state);
        }
        client.detach(receiver);
        stage.world.run();
        if header.durable {
            for _ in 0..2 {
                // What lies beside them is gone then, and they are written again.
                let freed = stage.world.disks[0].freed;
                for _ in 0..4 {
                    fill(&mut stage, "q", &durable(), 0..100);
                    assert_eq!(stage.take_bodies("q"), all(0..100));
                }
                assert!(stage.world.disks[0].freed > freed + 5, "segments are cleaned");
                stage.crash();
            }
        }
        let receiver = stage.receiver("other");
        let mut bodies = Vec::new();
        loop {
            let received = stage.receive(receiver, 50);
            if received.is_empty() {
                break;
            }
            for received in received {
                let has_note = received.bytes.windows(10).any(|bytes| bytes == b"x-opt-note");
                assert!(has_note, "{} has lost its annotation", received.body);
                let client = &mut stage.world.clients[stage.client];
                client.settle(receiver, received.delivery_id, &DeliveryState::Accepted);
                bodies.push(received.body);
            }
        }
        let kept: Vec<String> = (0..COUNT / 2).step_by(4).map(body).collect();
        assert_eq!(bodies, kept);
        assert_empty(&mut stage);
    }
}

#[test]
fn what_is_rejected_or_expires_goes_where_dead_letters_go() {
    for expires in [false, true] {
        let rules = vec![rule("q", |rule| rule.dead_letter = Some("dead".into()))];
        let mut stage = Stage::with(&setup(rules));
        let ttl = expires.then_some(1000);
        fill(&mut stage, "q", &Header { ttl, ..durable() }, 0..COUNT);
        if expires {
            stage.world.advance(2_000_000);
        } else {
            let receiver = stage.receiver("q");
            let received = stage.receive(receiver, COUNT as u32);
            assert_eq!(received.len(), COUNT);
            for received in received {
                let rejected = DeliveryState::Rejected { error: None };
                stage.world.clients[stage.client].settle(receiver, received.delivery_id, &rejected);
            }
        }
        stage.world.run();
        assert_eq!((stage.depth("q"), stage.depth("dead")), (0, COUNT as u64));
        let receiver = stage.receiver("dead");
        assert_eq!(drain(&mut stage, receiver), all(0..COUNT));
        assert_empty(&mut stage);
    }
}

#[test]
fn segments_are_cleaned_beside_what_waits_on_the_disk() {
    let disk = DiskSetup::default();
    let mut stage = Stage::with(&Setup { disk: Some(disk), verify: false, ..setup(Vec::new()) });
    let keeper = stage.sender("keeps");
    let filler = stage.sender("fills");
    let taker = stage.receiver("fills");
    stage.world.clients[stage.client].credit(taker, 1_000_000);
    for n in 0..COUNT {
        if n % 2 == 0 {
            let header = if n % 4 == 0 { durable() } else { Header::default() };
            stage.post_with(keeper, &body(n), &header);
        }
        stage.post(filler, &body(n));
        stage.world.run();
        stage.world.clients[stage.client].accept_all(taker);
    }
    let before = stage.world.disks[0].freed;
    for n in 0..COUNT {
        stage.post(filler, &body(n));
        stage.world.run();
        stage.world.clients[stage.client].accept_all(taker);
    }
    assert!(stage.world.disks[0].freed > before + 20, "segments are cleaned");
    let receiver = stage.receiver("keeps");
    let kept: Vec<String> = (0..COUNT).step_by(2).map(body).collect();
    assert_eq!(drain(&mut stage, receiver), kept);
    assert_empty(&mut stage);
}

/// It is taken out and told of, and those behind it come.
#[test]
fn a_message_that_cannot_be_read_costs_itself() {
    let mut stage = overflowing(Vec::new());
    assert!(stage.world.disks[0].damage(&body(700)));
    let receiver = stage.receiver("q");
    let rest: Vec<String> = (0..COUNT).filter(|n| *n != 700).map(body).collect();
    assert_eq!(drain(&mut stage, receiver), rest);
    let told: Vec<&String> =
        stage.world.warnings.iter().filter(|text| text.contains("a message of q cannot be read")).collect();
    assert_eq!((told.len(), stage.world.shards[0].counters().messages_unreadable), (1, 1));
    assert_eq!(stage.world.shards[0].memory_used(), 0);

    let mut stage = overflowing(Vec::new());
    stage.world.disks[0].unreadable = true;
    let receiver = stage.receiver("q");
    let received = drain(&mut stage, receiver);
    assert!(!received.is_empty() && received.is_sorted(), "what was in memory comes, in order");
    assert_eq!(stage.depth("q"), 0);
    // They were not consumed: a start that can read them has them.
    stage.world.disks[0].unreadable = false;
    assert_eq!(stage.crash().messages() as usize, COUNT - received.len());
}

#[test]
fn a_last_value_and_a_transaction_do_not_ask_where_a_message_is() {
    let rules = vec![rule("q", |rule| rule.last_value_key = Some("color".into()))];
    let mut stage = Stage::with(&setup(rules));
    fill(&mut stage, "other", &durable(), 0..300);
    fill(&mut stage, "q", &durable(), 0..100);
    assert_eq!(stage.depth("q"), 2);
    assert_eq!(stage.take_bodies("q"), [body(90), body(99)]);
    let receiver = stage.receiver("other");
    assert_eq!(drain(&mut stage, receiver), all(0..300));
    assert_empty(&mut stage);
}
