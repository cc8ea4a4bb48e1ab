//! What does an operator see of messages that are not in memory, and do to them?

use corelane_sim::{Answer, Item, Operator, Setup};
use corelane_wire::amqp10::{DeliveryState, Header, Value};

use super::overflow::{COUNT, all, assert_empty, body, drain, fill, setup};
use super::{Stage, durable, name_at, rule};

const Q: (&str, &str) = ("queue", "q");

fn count_of(answer: &Answer) -> usize {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.at("count").parse().expect("a count")
}

#[test]
fn who_deletes_messages_or_their_queue_reads_none() {
    for header in [durable(), Header::default()] {
        for operation in ["PURGE", "DELETE-MESSAGES", "DELETE"] {
            let mut stage = Stage::with(&setup(Vec::new()));
            fill(&mut stage, "q", &header, 0..COUNT);
            let mut operator = Operator::new(&mut stage.world, 0);
            stage.world.disks[0].unreadable = true;
            let some = [("count", Value::Uint(COUNT as u32))];
            let which = if operation == "DELETE-MESSAGES" { &some[..] } else { &[] };
            let answer = operator.ask(&mut stage.world, operation, Q, which, &[]);
            if operation == "DELETE" {
                assert_eq!(answer.status, 204, "{answer:?}");
            } else {
                assert_eq!(count_of(&answer), COUNT);
            }
            assert_eq!(stage.world.shards[0].counters().reads, 0);
            assert_empty(&mut stage);
        }
    }
}

#[test]
fn what_comes_while_all_is_purged_stays() {
    let mut stage = Stage::with(&Setup { shards: 2, ..setup(Vec::new()) });
    let name = name_at(0, 2);
    fill(&mut stage, &name, &durable(), 0..COUNT);
    let mut operator = Operator::new(&mut stage.world, 1);
    let sender = stage.sender(&name);
    operator.send(&mut stage.world, "PURGE", ("queue", &name), &[], &[]);
    let (mut sent, mut depth, mut begun) = (COUNT, 0, None);
    while operator.answers(&stage.world).is_empty() {
        stage.post(sender, &body(sent));
        sent += 1;
        stage.world.tick();
        let before = std::mem::replace(&mut depth, stage.depth(&name));
        if depth < before {
            begun.get_or_insert(sent);
        }
    }
    stage.world.run();
    let left = stage.take_bodies(&name);
    let first: usize = left[0].parse().expect("a number");
    assert_eq!(left, all(first..sent), "of what came, the last ones");
    assert!(first >= COUNT, "{first} was there before");
    assert!(Some(first) <= begun, "{first} came behind {begun:?}");
}

#[test]
fn the_oldest_is_as_old_as_it_is_wherever_it_is() {
    let mut stage = Stage::with(&setup(Vec::new()));
    for from in (0..COUNT).step_by(100) {
        fill(&mut stage, "q", &durable(), from..from + 100);
        stage.world.advance(1_000_000);
    }
    for starts_again in [false, true] {
        if starts_again {
            stage.crash();
        }
        let mut operator = Operator::new(&mut stage.world, 0);
        let first = if starts_again { 650 } else { 550 };
        let left = COUNT - first;
        let gone: usize = stage.depth("q") as usize - left;
        let which = [("count", Value::Uint(gone as u32))];
        let reads = stage.world.shards[0].counters().reads;
        assert_eq!(count_of(&operator.ask(&mut stage.world, "DELETE-MESSAGES", Q, &which, &[])), gone);
        let read = operator.ask(&mut stage.world, "READ", Q, &[], &[]);
        assert_eq!(stage.world.shards[0].counters().reads, reads);
        let age: u64 = read.at("oldest-age-us").parse().expect("a number");
        assert_eq!(age / 1_000_000, 10 - first as u64 / 100);
    }
}

#[test]
fn an_operator_sees_copies_moves_and_deletes_what_is_on_the_disk() {
    for shards in [1, 2] {
        let (from, to) = (name_at(0, shards), name_at(shards - 1, shards) + "-copy");
        let mut stage = Stage::with(&Setup { shards, ..setup(Vec::new()) });
        fill(&mut stage, &from, &durable(), 0..COUNT);
        let mut operator = Operator::new(&mut stage.world, 0);
        let queue = ("queue", &*from);
        let mut next = "0".to_owned();
        let mut shown = 0;
        while !next.is_empty() && next != "null" {
            let which = [("from", Value::String(&next)), ("count", Value::Uint(70))];
            let peeked = operator.ask(&mut stage.world, "PEEK", queue, &which, &[]);
            for at in 0.. {
                let shown_body = peeked.at(&format!("messages.{at}.body"));
                if !shown_body.starts_with('0') {
                    break;
                }
                assert!(body(shown).starts_with(&shown_body[..8]), "{shown_body}");
                shown += 1;
            }
            next = peeked.at("next").trim_matches('"').to_owned();
        }
        assert_eq!(shown, COUNT);
        let ids = [("ids", Item::Texts(&["700", "701", "703"]))];
        let deleted = operator.ask(&mut stage.world, "DELETE-MESSAGES", queue, &[], &ids);
        assert_eq!(count_of(&deleted), 3);
        let red = [("to", Value::String(&to)), ("selector", Value::String("color = 'red'"))];
        let copied = operator.ask(&mut stage.world, "COPY", queue, &red, &[]);
        assert_eq!(count_of(&copied), COUNT / 10 - 1);
        let moved = operator.ask(&mut stage.world, "MOVE", queue, &red, &[]);
        assert_eq!(count_of(&moved), COUNT / 10 - 1);
        let reds: Vec<String> = (0..COUNT).step_by(10).filter(|n| *n != 700).map(body).collect();
        let receiver = stage.receiver(&to);
        assert_eq!(drain(&mut stage, receiver), [reds.clone(), reds].concat());
        stage.crash();
        let receiver = stage.receiver(&from);
        let rest = (0..COUNT).filter(|n| n % 10 != 0 && ![701, 703].contains(n));
        assert_eq!(drain(&mut stage, receiver), rest.map(body).collect::<Vec<_>>());
    }
}

/// They lie in segments that go meanwhile, and are written again as what they are.
#[test]
fn what_was_transient_and_left_memory_dies_while_segments_are_cleaned() {
    let rules = vec![rule("q", |rule| rule.dead_letter = Some("dead".into()))];
    let mut stage = Stage::with(&setup(rules));
    for from in (0..COUNT / 2).step_by(20) {
        fill(&mut stage, "q", &Header::default(), from..from + 20);
        fill(&mut stage, "beside", &durable(), 0..40);
        if from % 200 == 180 {
            stage.take("beside");
        }
    }
    let freed = stage.world.disks[0].freed;
    let receiver = stage.receiver("q");
    loop {
        let received = stage.receive(receiver, 20);
        if received.is_empty() {
            break;
        }
        for received in &received {
            let rejected = DeliveryState::Rejected { error: None };
            stage.world.clients[stage.client].settle(receiver, received.delivery_id, &rejected);
        }
        fill(&mut stage, "beside", &durable(), 0..40);
        stage.take("beside");
    }
    assert!(stage.world.disks[0].freed > freed + 10, "segments are cleaned");
    let receiver = stage.receiver("dead");
    assert_eq!(drain(&mut stage, receiver), all(0..COUNT / 2));
    assert_empty(&mut stage);
}
