//! The disk itself: room on it, clean-up, and what it does wrong.

use corelane_journal::Lost;
use corelane_sim::{DiskSetup, Operator, ReceiverOptions, SenderOptions, Setup};
use corelane_wire::amqp10::{DeliveryState, Header, Value, write_data};

use crate::{Stage, bodies, name_at, other_at, rule};

fn setup(disk: DiskSetup) -> Setup {
    Setup { disk: Some(disk), ..Setup::durable(1, 1) }
}

#[test]
fn s16_cleaning_frees_segments_and_loses_nothing() {
    for seed in 0..10 {
        let mut stage = Stage::new(1, seed);
        let sender = stage.sender("busy");
        let rare = stage.sender("rare");
        let receiver = stage.receiver("busy");
        let client = stage.client;
        stage.world.clients[client].credit(receiver, 100_000);
        let filler = "f".repeat(500);
        for n in 0..1500 {
            stage.post(sender, &filler);
            if n % 100 == 0 {
                stage.post(rare, &format!("rare {n}"));
            }
            if n % 10 == 9 {
                stage.world.run();
                // Late enough for them to be written.
                stage.world.clients[client].accept_all(receiver);
                stage.world.run();
            }
        }
        stage.world.run();
        let disk = &stage.world.disks[0];
        assert!(disk.bytes_written > 15 * 16 * 4096, "{}", disk.bytes_written);
        assert!(disk.freed >= 8, "{} of {:?}", disk.freed, disk.segments());
        assert!(stage.world.disks[0].freed > 5);
        let expect: Vec<String> = (0..1500).step_by(100).map(|n| format!("rare {n}")).collect();
        for _ in 0..2 {
            let restart = stage.crash();
            assert_eq!(restart.messages(), 15);
            assert!(!restart.is_damaged());
        }
        assert!(stage.world.disks[0].segments().len() <= 8, "{:?}", stage.world.disks[0].segments());
        assert_eq!(stage.take_bodies("rare"), expect);
    }
}

#[test]
fn s60_a_full_disk_refuses_producers_lets_consumers_go_on_and_recovers() {
    let mut stage = Stage::with(&setup(DiskSetup { files_max: 4, ..DiskSetup::default() }));
    let sender = stage.sender("q");
    let body = "b".repeat(2000);
    let mut accepted = 0;
    let mut refused = false;
    for n in 0..400 {
        let token = stage.post(sender, &format!("{n} {body}"));
        stage.world.run();
        match stage.outcome(token) {
            "accepted" => accepted += 1,
            other => {
                assert_eq!(other, "rejected amqp:resource-limit-exceeded");
                refused = true;
                break;
            }
        }
    }
    assert!(refused && accepted > 10, "{accepted} were accepted");
    assert_eq!(stage.world.warnings.len(), 1, "{:?}", stage.world.warnings);
    // Transient messages are taken all the same.
    let client = stage.client;
    let token = stage.world.clients[client].send(sender, "transient");
    stage.world.run();
    assert_eq!(stage.outcome(token), "accepted");
    // What was accepted is there after a crash.
    assert_eq!(stage.crash().messages(), accepted);
    let sender = stage.sender("q");
    stage.world.advance(2_000_000);
    let token = stage.post(sender, "still full");
    stage.world.run();
    assert_ne!(stage.outcome(token), "accepted");
    let received = stage.take("q");
    assert_eq!(received.len() as u64, accepted);
    for _ in 0..5 {
        stage.world.advance(2_000_000);
    }
    let token = stage.post(sender, "there is room again");
    stage.world.run();
    assert_eq!(stage.outcome(token), "accepted");
    stage.crash();
    assert_eq!(stage.take_bodies("q"), ["there is room again"]);
}

#[test]
fn what_dies_while_the_disk_is_full_is_not_lost() {
    for is_remote in [false, true] {
        let (source, dead) = (name_at(0, 2), if is_remote { name_at(1, 2) } else { other_at(0, 2) });
        let rules = vec![rule(&source, |rule| rule.dead_letter = Some(dead.as_str().into()))];
        let mut stage = Stage::with_rules(2, 1, rules);
        stage.send(&source, &["1", "2"]);
        let fillers = [stage.sender(&source), stage.sender(&dead)];
        stage.world.disks.iter_mut().for_each(|disk| disk.full = true);
        let body = "f".repeat(3000);
        for filler in fillers {
            for _ in 0..60 {
                stage.post(filler, &body);
                stage.world.run();
            }
        }
        let receiver = stage.receiver(&source);
        let received = stage.receive(receiver, 1);
        stage.settle(&received[0], &DeliveryState::Rejected { error: None });
        stage.world.advance(100_000);
        if is_remote {
            stage.world.disks.iter_mut().for_each(|disk| disk.full = false);
            stage.world.advance(2_000_000);
        }
        stage.crash();
        let (there, letters) = (stage.take_bodies(&source), stage.take_bodies(&dead));
        assert!(there.contains(&"1".to_owned()) || letters.contains(&"1".to_owned()), "remote {is_remote}");
    }
}

#[test]
fn s60_after_a_failed_write_nothing_is_promised_any_more() {
    for seed in 0..20 {
        let mut stage = Stage::with(&Setup { seed, ..setup(DiskSetup::default()) });
        stage.send("q", &["before"]);
        let sender = stage.sender("q");
        stage.hold_disks(true);
        let first = stage.post(sender, "in the write that fails");
        stage.world.run();
        let second = stage.post(sender, "behind it");
        stage.world.run();
        stage.world.disks[0].fails_next = true;
        stage.hold_disks(false);
        stage.world.run();
        let refused = "rejected amqp:resource-limit-exceeded";
        assert_eq!((stage.outcome(first), stage.outcome(second)), (refused, refused));
        assert_eq!(stage.world.warnings.len(), 1, "{:?}", stage.world.warnings);
        let third = stage.post(sender, "when it is known");
        stage.world.run();
        assert_eq!(stage.outcome(third), "rejected amqp:resource-limit-exceeded");
        // Consumers go on.
        let receiver = stage.receiver("q");
        let received = stage.receive(receiver, 10);
        assert_eq!(bodies(&received), ["before", "in the write that fails", "behind it"]);
        stage.settle(&received[0], &DeliveryState::Accepted);
        stage.world.advance(10_000_000);
        assert!(!stage.world.disks[0].is_writing());
        stage.crash();
        let found = stage.take_bodies("q");
        assert!(found == ["before"] || found == ["before", "in the write that fails"], "{found:?}");
    }
}

#[test]
fn s60_a_slow_disk_on_one_shard_holds_up_nobody_else() {
    let mut stage = Stage::new(2, 1);
    let senders = [0, 1].map(|shard| stage.sender(&name_at(shard, 2)));
    stage.world.disks[0].held = true;
    let tokens = senders.map(|sender| stage.post(sender, "m"));
    stage.world.run();
    assert_eq!(tokens.map(|token| stage.outcome(token).to_owned()), ["nothing", "accepted"]);
    stage.world.advance(5_000_000);
    let token = stage.post(senders[1], "n");
    stage.world.run();
    assert_eq!(stage.outcome(token), "accepted");
    stage.world.disks[0].held = false;
    stage.world.run();
    assert_eq!(stage.outcome(tokens[0]), "accepted");
}

#[test]
fn s60_a_segment_that_cannot_be_read_is_not_cleaned_and_loses_nothing() {
    let mut stage = Stage::new(1, 5);
    let sender = stage.sender("q");
    stage.world.disks[0].unreadable = true;
    let filler = "f".repeat(500);
    stage.send("rare", &["rare"]);
    let receiver = stage.receiver("q");
    stage.world.clients[stage.client].credit(receiver, 100_000);
    for _ in 0..150 {
        (0..10).for_each(|_| {
            stage.post(sender, &filler);
        });
        stage.world.run();
        stage.world.clients[stage.client].accept_all(receiver);
        stage.world.run();
    }
    assert!(
        stage.world.warnings.iter().any(|text| text.contains("cannot be cleaned")),
        "{:?}",
        stage.world.warnings
    );
    stage.world.disks[0].unreadable = false;
    let before = stage.world.disks[0].freed;
    stage.send("rare", &["rarer"]);
    for _ in 0..150 {
        (0..10).for_each(|_| {
            stage.post(sender, &filler);
        });
        stage.world.run();
        stage.world.clients[stage.client].accept_all(receiver);
        stage.world.run();
    }
    assert!(stage.world.disks[0].freed > before + 5, "the others are cleaned");
    assert_eq!(stage.crash().messages(), 2);
    assert!(stage.world.disks[0].segments().len() <= 12, "{:?}", stage.world.disks[0].segments());
    assert_eq!(stage.take_bodies("rare"), ["rare", "rarer"]);
}

#[test]
fn a_bit_that_turned_costs_what_it_hit_and_is_reported() {
    let mut lost = 0;
    for seed in 0..60 {
        let mut stage = Stage::with(&Setup { seed, ..setup(DiskSetup::default()) });
        let all: Vec<String> = (0..60).map(|n| format!("message {n:0>200}")).collect();
        let sender = stage.sender("q");
        for body in &all {
            stage.post(sender, body);
            stage.world.run();
        }
        stage.world.crash();
        let mut random = corelane_sim::Random::new(seed);
        stage.world.disks[0].rot(&mut random);
        let restart = stage.world.restart();
        stage.client = stage.world.connect(0);
        let found = stage.take_bodies("q");
        let missing: Vec<&String> = all.iter().filter(|body| !found.contains(body)).collect();
        assert!(found.iter().eq(all.iter().filter(|body| found.contains(body))), "order holds");
        let mut damage = restart.ends.iter().flat_map(|end| &end.damage);
        let is_header = damage.any(|damage| damage.what == Lost::Batches);
        assert!(missing.len() <= 1 || is_header || found.is_empty(), "seed {seed}: {missing:?} {restart:?}");
        lost += missing.len();
        if !missing.is_empty() {
            assert!(restart.is_damaged(), "seed {seed}: {:?} lost, {:?}", missing.len(), restart);
        }
        let again = stage.crash();
        assert_eq!(again.messages(), 0);
    }
    assert!(lost > 0);
}

#[test]
fn a_shard_says_how_often_and_how_much_it_writes() {
    let mut stage = Stage::new(1, 1);
    let queue = name_at(0, 1);
    stage.send(&queue, &["first"]);
    let mut operator = Operator::new(&mut stage.world, 0);
    let mut read = |stage: &mut Stage| {
        let said = operator.ask(&mut stage.world, "READ", ("shard", "0"), &[], &[]);
        ["journal-writes", "journal-bytes"].map(|name| said.at(name).parse::<u64>().expect("a number"))
    };
    let before = read(&mut stage);
    let link = stage.sender(&queue);
    stage.post_with(link, "transient", &Header::default());
    stage.world.run();
    assert_eq!(read(&mut stage), before);
    // While a batch is on its way the next one gathers.
    stage.hold_disks(true);
    for body in ["a", "b", "c", "d"] {
        stage.send_without_answer(&queue, body);
    }
    stage.hold_disks(false);
    stage.world.run();
    assert_eq!(read(&mut stage), [before[0] + 2, before[1] + 2 * 4096]);
}

#[test]
fn on_a_full_disk_what_consumers_take_makes_room_also_behind_a_message_that_has_none() {
    let mut stage = Stage::with(&setup(DiskSetup { files_max: 5, ..DiskSetup::default() }));
    let sender = stage.sender("q");
    let body = "b".repeat(2000);
    let mut accepted = 0;
    // As many as there is room for, but for the last segment.
    while stage.world.disks[0].segments().len() < 5 {
        let token = stage.post(sender, &body);
        stage.world.run();
        assert_eq!(stage.outcome(token), "accepted");
        accepted += 1;
    }
    let large = stage.sender("large");
    stage.hold_disks(true);
    let tokens = [0, 1, 2, 3].map(|_| stage.post(large, &"l".repeat(40_000)));
    stage.world.run();
    stage.hold_disks(false);
    stage.world.advance(2_000_000);
    assert!(stage.world.disks[0].is_full());
    assert_eq!(stage.outcome(tokens[3]), "nothing", "there is no room for it");
    let received = stage.take("q");
    assert_eq!(received.len(), accepted);
    for _ in 0..5 {
        stage.world.advance(2_000_000);
    }
    for token in tokens {
        assert_eq!(stage.outcome(token), "accepted");
    }
    stage.crash();
    assert_eq!((stage.take_bodies("q").len(), stage.take_bodies("large").len()), (0, 4));
}

/// Transient messages, transactions and dead letters go on, and nobody waits for what will never be synced.
#[test]
fn after_a_failed_write_what_is_not_durable_goes_on() {
    let (source, dead) = (name_at(0, 2), other_at(0, 2));
    let rules = vec![rule(&source, |rule| {
        rule.dead_letter = Some(dead.as_str().into());
        rule.deliver_after_sync = Some(true);
    })];
    for connects in [0, 1] {
        let mut stage = Stage::with_rules(2, 1, rules.clone());
        stage.client = stage.world.connect(connects);
        let client = stage.client;
        let sender = stage.sender(&source);
        let receiver = stage.receiver(&source);
        stage.hold_disks(true);
        let durable = stage.post(sender, "durable");
        stage.world.run();
        // It waits behind that.
        let transient = stage.world.clients[client].send(sender, "transient");
        stage.world.run();
        stage.world.disks[0].fails_next = true;
        stage.hold_disks(false);
        let received = bodies(&stage.receive(receiver, 10));
        assert_eq!(received, ["durable", "transient"]);
        assert_eq!(stage.outcome(durable), "rejected amqp:resource-limit-exceeded");
        assert_eq!(stage.outcome(transient), "accepted");
        let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
        let token = stage.world.clients[client].declare(coordinator);
        stage.world.run();
        let number = stage.outcome(token).strip_prefix("declared ").and_then(|number| number.parse().ok());
        let number = number.expect("there is room");
        let mut bytes = Vec::new();
        write_data(&mut bytes, b"in a transaction");
        stage.world.clients[client].send_bytes_in(sender, number, &bytes);
        stage.world.run();
        let token = stage.world.clients[client].discharge(coordinator, number, false);
        stage.world.run();
        assert_eq!(stage.outcome(token), "accepted");
        assert_eq!(stage.world.clients[client].bodies(receiver)[2..], ["in a transaction"]);
        let held = stage.world.clients[client].received.clone();
        for received in held.iter().filter(|received| received.link == receiver) {
            stage.settle(received, &DeliveryState::Rejected { error: None });
        }
        assert_eq!(stage.take_bodies(&dead), ["durable", "transient", "in a transaction"]);
    }
}

#[test]
fn what_is_moved_to_a_full_disk_stays_where_it_is() {
    for is_remote in [false, true] {
        let (source, target) = (name_at(0, 2), if is_remote { name_at(1, 2) } else { other_at(0, 2) });
        let mut stage = Stage::new(2, 1);
        stage.send(&source, &["1", "2"]);
        let filler = stage.sender(&target);
        stage.world.disks.iter_mut().for_each(|disk| disk.full = true);
        for _ in 0..60 {
            stage.post(filler, &"f".repeat(3000));
            stage.world.run();
        }
        let before = stage.depth(&target);
        let mut operator = Operator::new(&mut stage.world, 0);
        for operation in ["MOVE", "COPY"] {
            let to = [("to", Value::String(&target))];
            let answer = operator.ask(&mut stage.world, operation, ("queue", &source), &to, &[]);
            assert_eq!(answer.status, 409, "{operation}, remote {is_remote}: {answer:?}");
        }
        assert_eq!((stage.depth(&source), stage.depth(&target)), (2, before), "remote {is_remote}");
    }
}

/// What one subscription has no room for, others may have.
#[test]
fn a_publisher_that_wants_no_answers_is_not_cut_off_by_a_full_disk() {
    let mut stage = Stage::new(1, 1);
    let options = ReceiverOptions { durable: true, ..ReceiverOptions::default() };
    let subscriber = stage.world.connect_as(0, "container");
    stage.world.clients[subscriber].attach_receiver("sub", "topic://t", &options);
    let listener = stage.receiver("topic://t");
    stage.world.clients[stage.client].credit(listener, 1000);
    let filler = stage.sender("q");
    stage.world.disks[0].full = true;
    for _ in 0..60 {
        stage.post(filler, &"f".repeat(3000));
        stage.world.run();
    }
    let client = stage.client;
    let options = SenderOptions { presettled: true, ..SenderOptions::default() };
    let publisher = stage.world.clients[client].attach_sender("publisher", "topic://t", &options);
    stage.world.run();
    for body in ["1", "2"] {
        stage.post(publisher, body);
        stage.world.run();
    }
    assert_eq!(stage.world.clients[client].bodies(listener), ["1", "2"]);
}

/// A file that is made for a large message is wanted only as long as that is to be written.
#[test]
fn s60_when_a_consumer_has_taken_what_had_no_room_durable_messages_are_taken_again() {
    let mut stage = Stage::with(&setup(DiskSetup::default()));
    let sender = stage.sender("q");
    stage.send("q", &["before"]);
    stage.world.disks[0].full = true;
    let large = stage.post(sender, &"l".repeat(100_000));
    stage.world.advance(2_000_000);
    assert_eq!(stage.outcome(large), "nothing", "there is no room for it");
    let refused = stage.post(sender, "refused");
    stage.world.run();
    assert_eq!(stage.outcome(refused), "rejected amqp:resource-limit-exceeded");
    assert_eq!(stage.take("q").len(), 2);
    stage.world.advance(2_000_000);
    assert_eq!(stage.outcome(large), "accepted");
    stage.send("q", &["small"]);
    stage.crash();
    assert_eq!(stage.take_bodies("q"), ["small"]);
}
