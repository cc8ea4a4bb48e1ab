//! Transactions: all or nothing, whenever the broker crashes; and what was answered has happened.

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{DiskSetup, Operator, ReceiverOptions, SenderOptions, Setup};
use corelane_wire::amqp10::{DeliveryState, Encode, Map, MapWriter, Modified, Outcome, Value, write_data};

use crate::{Stage, bodies, durable, name_at, other_at, rule};

/// Posts, acquires and settles on a queue of each shard, in one transaction, which is not discharged yet.
struct Work {
    coordinator: LinkId,
    number: u32,
    queues: Vec<String>,
}

const OUTCOMES: [Outcome<'static>; 4] = [
    Outcome::Accepted,
    Outcome::Released,
    Outcome::Rejected { error: None },
    Outcome::Modified(Modified {
        delivery_failed: true,
        undeliverable_here: false,
        message_annotations: None,
    }),
];

fn begin(stage: &mut Stage, shards: usize, connects: usize) -> Work {
    let queues: Vec<String> = (0..shards).map(|shard| name_at(shard, shards)).collect();
    for queue in &queues {
        stage.send(queue, &["a", "b", "c", "d", "e"]);
    }
    stage.client = stage.world.connect(connects);
    let client = stage.client;
    let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
    let token = stage.world.clients[client].declare(coordinator);
    stage.world.run();
    let number =
        stage.outcome(token).strip_prefix("declared ").expect("there is room").parse().expect("a number");
    for queue in &queues {
        let options = ReceiverOptions::default();
        let receiver = stage.world.clients[client].attach_receiver(&format!("in {queue}"), queue, &options);
        let sender = stage.world.clients[client].attach_sender(
            &format!("to {queue}"),
            queue,
            &SenderOptions::default(),
        );
        stage.world.run();
        let received = stage.receive(receiver, 4);
        for (received, outcome) in received.iter().zip(OUTCOMES) {
            stage.world.clients[client].settle_in(receiver, received.delivery_id, number, outcome);
        }
        for n in 0..3 {
            let mut bytes = Vec::new();
            durable().encode(&mut bytes);
            write_data(&mut bytes, format!("new {n}").as_bytes());
            stage.world.clients[client].send_bytes_in(sender, number, &bytes);
        }
    }
    stage.world.run();
    Work { coordinator, number, queues }
}

/// What is in a queue: body, and failed deliveries.
fn contents(stage: &mut Stage, queue: &str) -> Vec<(String, u32)> {
    stage.take(queue).into_iter().map(|received| (received.body, received.delivery_count)).collect()
}

fn committed() -> Vec<(String, u32)> {
    [("b", 0), ("d", 1), ("e", 0), ("new 0", 0), ("new 1", 0), ("new 2", 0)]
        .map(|(body, count)| (body.to_owned(), count))
        .to_vec()
}

fn rolled_back() -> Vec<(String, u32)> {
    ["a", "b", "c", "d", "e"].map(|body| (body.to_owned(), 0)).to_vec()
}

/// What of a transaction is on its way to another shard, where it is synced sooner.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Moved,
    Copied,
    Died,
    /// It was there before, and dies by the commit.
    DiesByCommit,
}

#[test]
fn what_leaves_for_another_shard_leaves_when_its_transaction_is_synced() {
    let all = [Leaves::Moved, Leaves::Copied, Leaves::Died, Leaves::DiesByCommit];
    let mut lost = 0;
    for (leaves, seed) in all.into_iter().flat_map(|leaves| (0..4).map(move |seed| (leaves, seed))) {
        let (source, other, target) = (name_at(0, 2), other_at(0, 2), name_at(1, 2));
        let rules = vec![rule(&source, |rule| rule.dead_letter = Some(target.as_str().into()))];
        let mut stage = Stage::with_rules(2, seed, rules);
        stage.send(&source, &["before"]);
        stage.send(&other, &[]);
        let client = stage.client;
        let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
        let token = stage.world.clients[client].declare(coordinator);
        let links = [&source, &other].map(|queue| stage.sender(queue));
        let receiver = stage.receiver(&source);
        let number = stage.outcome(token).strip_prefix("declared ").and_then(|number| number.parse().ok());
        let number = number.expect("there is room");
        let before = stage.receive(receiver, 1);
        for link in links {
            let mut bytes = Vec::new();
            durable().encode(&mut bytes);
            write_data(&mut bytes, b"new");
            stage.world.clients[client].send_bytes_in(link, number, &bytes);
        }
        if matches!(leaves, Leaves::DiesByCommit) {
            let outcome = Outcome::Rejected { error: None };
            stage.world.clients[client].settle_in(receiver, before[0].delivery_id, number, outcome);
        }
        stage.world.run();
        stage.world.disks[0].held = true;
        stage.world.clients[client].discharge(coordinator, number, false);
        stage.world.run();
        let to = [("to", Value::String(&target))];
        let mut operator = Operator::new(&mut stage.world, 0);
        match leaves {
            Leaves::Moved => _ = operator.send(&mut stage.world, "MOVE", ("queue", &source), &to, &[]),
            Leaves::Copied => _ = operator.send(&mut stage.world, "COPY", ("queue", &source), &to, &[]),
            Leaves::Died => {
                let received = stage.receive(receiver, 1);
                assert_eq!(bodies(&received), ["new"], "consumers do not wait");
                stage.settle(&received[0], &DeliveryState::Rejected { error: None });
            }
            Leaves::DiesByCommit => {}
        }
        stage.world.run();
        assert_eq!(stage.depth(&target), 0, "{leaves:?}: nothing of it is elsewhere before it is synced");
        stage.crash();
        stage.world.advance(1_000_000);
        // What is being written when the broker crashes may be there all the same, but all of it then.
        let is_committed = stage.take_bodies(&other) == ["new"];
        let (there, gone) = (stage.take_bodies(&source), stage.take_bodies(&target));
        let has = |body: &str| there.iter().chain(&gone).any(|it| it == body);
        assert_eq!((has("before"), has("new")), (true, is_committed), "{leaves:?}: {there:?} {gone:?}");
        if matches!(leaves, Leaves::DiesByCommit) {
            assert_eq!(gone == ["before"], is_committed, "{there:?} {gone:?}");
        }
        lost += u32::from(!is_committed);
    }
    assert!(lost > 4, "{lost} of the transactions are lost");
}

/// Crashes after every step between the discharge and rest.
fn crash_everywhere(shards: usize, connects: usize, fail: bool, seed: u64) -> usize {
    let mut crashes = 0;
    for steps in 0.. {
        let mut stage = Stage::new(shards, seed);
        let Work { coordinator, number, queues } = begin(&mut stage, shards, connects);
        let token = stage.world.clients[stage.client].discharge(coordinator, number, fail);
        let mut is_over = false;
        for _ in 0..steps {
            is_over = stage.world.tick().is_none();
        }
        let is_answered = stage.outcome(token) == "accepted";
        assert!(is_answered || !is_over);
        stage.crash();
        // Once more: what was decided at the start holds.
        if steps % 2 == 0 {
            stage.crash();
        }
        let found: Vec<Vec<(String, u32)>> = queues.iter().map(|queue| contents(&mut stage, queue)).collect();
        let at = format!("{shards} shards, from {connects}, fail {fail}, seed {seed}, after {steps} steps");
        let is_committed = found.iter().all(|found| *found == committed());
        // Who rolls back has failed on what was delivered.
        let is_failed =
            |found: &Vec<(String, u32)>| fail && found.iter().map(|(_, count)| *count).eq([1, 1, 1, 1, 0]);
        let bodies = |found: &[(String, u32)]| found.iter().map(|(body, _)| body.clone()).collect::<Vec<_>>();
        let is_rolled_back = found.iter().all(|found| {
            *found == rolled_back() || (is_failed(found) && bodies(found) == bodies(&rolled_back()))
        });
        assert!(is_committed || is_rolled_back, "{at}: {found:?}");
        assert!(!(fail && is_committed), "{at}");
        assert!(fail || !is_answered || is_committed, "{at}: what was answered has happened");
        assert_eq!(stage.crash().messages(), 0, "{at}");
        crashes += 1;
        if is_over {
            break;
        }
    }
    crashes
}

#[test]
fn a_transaction_is_done_or_not_whenever_the_broker_crashes() {
    for (shards, connects) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
        let mut crashes = 0;
        for seed in 0..3 {
            crashes += crash_everywhere(shards, connects, false, seed);
        }
        crashes += crash_everywhere(shards, connects, true, 7);
        assert!(crashes > 15, "{crashes}");
    }
}

#[test]
fn a_transaction_is_done_or_not_whichever_disk_stands_still_before_a_crash() {
    for (connects, slow) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for steps in 0.. {
            let mut stage = Stage::new(2, 1);
            let Work { coordinator, number, queues } = begin(&mut stage, 2, connects);
            let token = stage.world.clients[stage.client].discharge(coordinator, number, false);
            let mut is_over = false;
            for _ in 0..steps {
                is_over = stage.world.tick().is_none();
            }
            stage.world.disks[slow].held = true;
            stage.world.run();
            let is_answered = stage.outcome(token) == "accepted";
            stage.crash();
            let found: Vec<Vec<(String, u32)>> =
                queues.iter().map(|queue| contents(&mut stage, queue)).collect();
            let is_committed = found.iter().all(|found| *found == committed());
            let is_rolled_back = found.iter().all(|found| *found == rolled_back());
            let at = format!("from {connects}, disk {slow} after {steps} steps");
            assert!(is_committed || is_rolled_back, "{at}: {found:?}");
            assert!(!is_answered || is_committed, "{at}: what was answered has happened");
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn a_transaction_that_was_open_never_was() {
    for shards in [1, 2] {
        let mut stage = Stage::new(shards, 1);
        let Work { queues, .. } = begin(&mut stage, shards, 0);
        stage.crash();
        for queue in &queues {
            assert_eq!(contents(&mut stage, queue), rolled_back());
        }
    }
}

#[test]
fn a_commit_is_answered_when_it_is_synced() {
    for shards in [1, 2] {
        for held in 0..shards {
            let mut stage = Stage::new(shards, 1);
            let Work { coordinator, number, .. } = begin(&mut stage, shards, 0);
            stage.world.disks[held].held = true;
            let token = stage.world.clients[stage.client].discharge(coordinator, number, false);
            stage.world.run();
            assert_eq!(stage.outcome(token), "nothing", "{shards} shards, {held} is slow");
            stage.world.disks[held].held = false;
            stage.world.run();
            assert_eq!(stage.outcome(token), "accepted");
        }
    }
}

#[test]
fn what_is_over_leaves_nothing_behind() {
    let mut stage = Stage::new(2, 1);
    let client = stage.client;
    let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
    let senders = [0, 1].map(|shard| stage.sender(&name_at(shard, 2)));
    for n in 0..200 {
        let token = stage.world.clients[client].declare(coordinator);
        stage.world.run();
        let number =
            stage.outcome(token).strip_prefix("declared ").expect("there is room").parse().expect("a number");
        for sender in senders {
            let mut bytes = Vec::new();
            durable().encode(&mut bytes);
            write_data(&mut bytes, format!("{n}").as_bytes());
            stage.world.clients[client].send_bytes_in(sender, number, &bytes);
        }
        stage.world.run();
        let token = stage.world.clients[client].discharge(coordinator, number, n % 5 == 0);
        stage.world.run();
        assert_eq!(stage.outcome(token), "accepted");
        if n % 20 == 19 {
            (0..2).for_each(|shard| drop(stage.take(&name_at(shard, 2))));
        }
    }
    let restart = stage.crash();
    assert_eq!(restart.messages(), 0);
    assert!(
        restart.summaries.iter().all(|summary| summary.committed + summary.rolled_back == 0),
        "{restart:?}"
    );
    for disk in &stage.world.disks {
        assert!(disk.segments().len() <= 7, "{:?}", disk.segments());
    }
}

#[test]
fn an_outcome_that_is_only_said_is_not_settled() {
    let mut stage = Stage::new(1, 1);
    stage.send("q", &["1"]);
    let receiver = stage.receiver("q");
    let received = stage.receive(receiver, 1);
    stage.hold_disks(true);
    stage.settle(&received[0], &DeliveryState::Accepted);
    let disk = &stage.world.disks[0];
    assert!(disk.is_writing());
    stage.crash();
    assert!(stage.take_bodies("q").len() <= 1);
}

#[test]
fn where_nothing_is_delivered_before_it_is_synced_that_holds_for_what_is_committed() {
    for shards in 1..=2 {
        let queue = name_at(0, shards);
        let rules = vec![rule(&queue, |rule| rule.deliver_after_sync = Some(true))];
        let mut stage = Stage::with_rules(shards, 1, rules);
        stage.send(&queue, &["before"]);
        let receiver = stage.receiver(&queue);
        let client = stage.client;
        let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
        let token = stage.world.clients[client].declare(coordinator);
        stage.world.run();
        let number = stage.outcome(token).strip_prefix("declared ").expect("there is room").parse();
        let number = number.expect("a number");
        for shard in 0..shards {
            let sender = stage.sender(&name_at(shard, shards));
            let mut bytes = Vec::new();
            durable().encode(&mut bytes);
            write_data(&mut bytes, b"committed");
            stage.world.clients[client].send_bytes_in(sender, number, &bytes);
        }
        stage.world.run();
        stage.hold_disks(true);
        stage.world.clients[client].discharge(coordinator, number, false);
        stage.world.run();
        assert_eq!(bodies(&stage.receive(receiver, 10)), ["before"], "{shards} shards");
        stage.hold_disks(false);
        stage.world.run();
        assert_eq!(stage.world.clients[client].bodies(receiver), ["before", "committed"], "{shards} shards");
    }
}

/// A message is not written that was taken before its batch began; then that it was taken is in the same batch.
#[test]
fn what_is_taken_before_it_is_written_is_taken_together_with_the_rest() {
    let mut crashes = 0;
    for steps in 0.. {
        let queue = name_at(0, 1);
        let disk = DiskSetup { batch_bytes_max: 4096, ..DiskSetup::default() };
        let mut stage = Stage::with(&Setup { disk: Some(disk), ..Setup::durable(1, 1) });
        stage.send(&queue, &["written"]);
        let receiver = stage.receiver(&queue);
        let client = stage.client;
        let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
        let token = stage.world.clients[client].declare(coordinator);
        stage.world.run();
        let number = stage.outcome(token).strip_prefix("declared ").expect("there is room").parse();
        let number = number.expect("a number");
        stage.hold_disks(true);
        stage.send_without_answer("other", "on its way");
        let token = stage.send_without_answer(&queue, "not written");
        for _ in 0..3 {
            stage.send_without_answer("other", &"x".repeat(4000));
        }
        for received in stage.receive(receiver, 2) {
            stage.world.clients[client].settle_in(receiver, received.delivery_id, number, Outcome::Accepted);
        }
        stage.world.clients[client].discharge(coordinator, number, false);
        stage.world.run();
        stage.hold_disks(false);
        let mut is_over = false;
        for _ in 0..steps {
            is_over = stage.world.tick().is_none();
        }
        let is_accepted = stage.outcome(token) == "accepted";
        stage.crash();
        let there = stage.take_bodies(&queue);
        if is_accepted {
            assert!(there.is_empty() || there.len() == 2, "after {steps} steps there is {there:?}");
        }
        crashes += 1;
        if is_over {
            assert!(is_accepted && there.is_empty());
            break;
        }
    }
    assert!(crashes > 5);
}

/// What is decided is kept until all have done it, and not for longer.
#[test]
fn decisions_that_all_have_done_are_forgotten() {
    let disk = DiskSetup { files_max: 1000, ..DiskSetup::default() };
    let mut stage = Stage::with(&Setup { disk: Some(disk), ..Setup::durable(2, 1) });
    let client = stage.client;
    let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
    let queues = [name_at(0, 2), name_at(1, 2)];
    let senders = queues.each_ref().map(|queue| stage.sender(queue));
    let receivers = queues.each_ref().map(|queue| stage.receiver(queue));
    receivers.iter().for_each(|receiver| stage.world.clients[client].credit(*receiver, 10_000));
    for n in 0..150 {
        let token = stage.world.clients[client].declare(coordinator);
        stage.world.run();
        let number = stage.outcome(token).strip_prefix("declared ").and_then(|number| number.parse().ok());
        let number = number.expect("there is room");
        for sender in senders {
            let mut bytes = Vec::new();
            durable().encode(&mut bytes);
            write_data(&mut bytes, format!("{n}").as_bytes());
            stage.world.clients[client].send_bytes_in(sender, number, &bytes);
        }
        let token = stage.world.clients[client].discharge(coordinator, number, false);
        stage.world.run();
        assert_eq!(stage.outcome(token), "accepted");
        receivers.iter().for_each(|receiver| stage.world.clients[client].accept_all(*receiver));
        stage.world.run();
    }
    assert!(stage.world.disks[0].freed > 10, "{}", stage.world.disks[0].freed);
    for disk in &stage.world.disks {
        assert!(disk.segments().len() <= 8, "{:?}", disk.segments());
    }
}

/// A client, on this shard, with a transaction.
fn declare(stage: &mut Stage, connects: usize) -> (LinkId, u32) {
    stage.client = stage.world.connect(connects);
    let coordinator = stage.world.clients[stage.client].attach_coordinator("txn", &[]);
    (coordinator, declare_on(stage, coordinator))
}

fn declare_on(stage: &mut Stage, coordinator: LinkId) -> u32 {
    let token = stage.world.clients[stage.client].declare(coordinator);
    stage.world.run();
    stage.outcome(token).strip_prefix("declared ").expect("there is room").parse().expect("a number")
}

/// Sends durable messages of this size inside a transaction. What became of each.
fn send_in(stage: &mut Stage, link: LinkId, number: u32, sizes: &[usize]) -> Vec<String> {
    let mut outcomes = Vec::new();
    for size in sizes {
        let mut bytes = Vec::new();
        durable().encode(&mut bytes);
        write_data(&mut bytes, &vec![b'm'; *size]);
        let token = stage.world.clients[stage.client].send_bytes_in(link, number, &bytes);
        stage.world.run();
        outcomes.push(outcome_within(stage, token));
    }
    outcomes
}

/// Without the transaction that it names.
fn outcome_within(stage: &Stage, token: u64) -> String {
    stage.outcome(token).split(" in ").next().unwrap_or_default().to_owned()
}

fn discharge(stage: &mut Stage, coordinator: LinkId, number: u32) -> String {
    let token = stage.world.clients[stage.client].discharge(coordinator, number, false);
    stage.world.run();
    stage.outcome(token).to_owned()
}

#[test]
fn what_a_transaction_writes_on_a_shard_is_bounded() {
    const FULL: &str = "rejected amqp:resource-limit-exceeded";
    for connects in [0, 1] {
        let setup = Setup { transaction_kept_bytes_max: 100_000, ..Setup::durable(2, 1) };
        let mut stage = Stage::with(&setup);
        let queues = [name_at(0, 2), name_at(1, 2)];
        let (coordinator, number) = declare(&mut stage, connects);
        let senders = [stage.sender(&queues[0]), stage.sender(&queues[1])];
        for sender in senders {
            assert_eq!(send_in(&mut stage, sender, number, &[30_000; 3]), ["accepted"; 3]);
        }
        // What is not written does not count.
        let token = stage.world.clients[stage.client].send_in(senders[0], number, &"t".repeat(30_000));
        assert_eq!(discharge(&mut stage, coordinator, number), "accepted", "each shard has its share");
        assert_eq!(outcome_within(&stage, token), "accepted");
        assert_eq!([stage.take(&queues[0]).len(), stage.take(&queues[1]).len()], [4, 3]);
        for sender in senders {
            let number = declare_on(&mut stage, coordinator);
            let outcomes = send_in(&mut stage, sender, number, &[30_000, 30_000, 60_000, 10_000]);
            assert_eq!(outcomes, ["accepted", "accepted", FULL, "accepted"], "from {connects}");
            assert_eq!(discharge(&mut stage, coordinator, number), "rejected amqp:transaction:rollback");
        }
        assert_eq!(stage.crash().messages(), 0);
        assert!(queues.iter().all(|queue| stage.take(queue).is_empty()));
    }
}

/// What goes back is written with its annotations.
#[test]
fn what_goes_back_in_a_transaction_is_counted_as_well() {
    for shards in [1, 2] {
        let setup = Setup { transaction_kept_bytes_max: 20_000, ..Setup::durable(shards, 1) };
        let mut stage = Stage::with(&setup);
        let queue = name_at(0, shards);
        stage.send(&queue, &["1", "2", "3", "4"]);
        let receiver = stage.receiver(&queue);
        let mut annotations = Vec::new();
        let mut map = MapWriter::new(&mut annotations);
        map.symbol("x-opt-note", &Value::String(&"n".repeat(9_000)));
        map.finish();
        let message_annotations = Map::decode(&annotations).ok();
        for received in stage.receive(receiver, 4) {
            let modified = Modified { message_annotations, ..Modified::default() };
            stage.settle(&received, &DeliveryState::Modified(modified));
        }
        stage.world.clients[stage.client].detach(receiver);
        stage.world.run();
        for (outcome, count, expect) in [
            (Outcome::Released, 2, "accepted"),
            (Outcome::Released, 3, "rejected amqp:transaction:rollback"),
            (Outcome::Rejected { error: None }, 3, "rejected amqp:transaction:rollback"),
            (Outcome::Accepted, 4, "accepted"),
        ] {
            let (coordinator, number) = declare(&mut stage, shards - 1);
            let receiver = stage.receiver(&queue);
            for received in stage.receive(receiver, count) {
                stage.world.clients[stage.client].settle_in(receiver, received.delivery_id, number, outcome);
            }
            stage.world.run();
            assert_eq!(discharge(&mut stage, coordinator, number), expect, "{outcome:?}, {count}");
            stage.world.clients[stage.client].detach(receiver);
            stage.world.run();
        }
        assert_eq!(stage.crash().messages(), 0);
    }
}

/// What does not fit into a segment's file is not begun before a larger one is there.
#[test]
fn s60_a_transaction_larger_than_a_segment_waits_for_room_on_a_full_disk() {
    for shards in [1, 2] {
        let mut stage = Stage::new(shards, 1);
        let queues: Vec<String> = (0..shards).map(|shard| name_at(shard, shards)).collect();
        let (coordinator, number) = declare(&mut stage, 0);
        for queue in &queues {
            let sender = stage.sender(queue);
            assert_eq!(send_in(&mut stage, sender, number, &[40_000; 5]), ["accepted"; 5]);
        }
        stage.world.disks.iter_mut().for_each(|disk| disk.full = true);
        let token = stage.world.clients[stage.client].discharge(coordinator, number, false);
        for _ in 0..3 {
            stage.world.advance(2_000_000);
        }
        assert_eq!(stage.outcome(token), "nothing");
        assert!(stage.world.disks.iter().all(|disk| disk.is_full() && !disk.is_failed()));
        assert_eq!(stage.world.warnings.len(), shards, "{:?}", stage.world.warnings);
        let sender = stage.sender(&queues[0]);
        let late = stage.post(sender, "late");
        stage.world.run();
        assert_eq!(stage.outcome(late), "rejected amqp:resource-limit-exceeded");
        stage.world.disks.iter_mut().for_each(|disk| disk.full = false);
        stage.world.advance(2_000_000);
        assert_eq!(stage.outcome(token), "accepted");
        assert_eq!(stage.crash().messages(), 5 * shards as u64);
        assert!(queues.iter().all(|queue| stage.take(queue).len() == 5));
    }
}
