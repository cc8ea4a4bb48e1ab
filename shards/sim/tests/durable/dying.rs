//! Messages that die: in transactions, with their queues, and while the journal is cleaned.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::DestinationRule;
use corelane_sim::{DiskSetup, Operator, Received, Setup, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Encode, Map, MapWriter, Modified, Outcome, Value, write_data};

use crate::{Stage, durable, name_at, other_at, rule};

const FAILED: Outcome<'static> = Outcome::Modified(Modified {
    delivery_failed: true,
    undeliverable_here: false,
    message_annotations: None,
});

/// A queue on shard 0 whose dead letters go to another one there or on shard 1.
struct Dying {
    stage: Stage,
    source: String,
    dead: String,
}

impl Dying {
    fn new(is_remote: bool, seed: u64, disk: DiskSetup) -> Dying {
        let (source, dead) = (name_at(0, 2), if is_remote { name_at(1, 2) } else { other_at(0, 2) });
        let rules: Vec<DestinationRule> = vec![rule(&source, |rule| {
            rule.dead_letter = Some(dead.as_str().into());
            rule.deliveries_max = Some(1);
        })];
        let setup = Setup { rules, disk: Some(disk), ..Setup::durable(2, seed) };
        Dying { stage: Stage::with(&setup), source, dead }
    }

    /// What is in the queue, and what has died; whatever dies at a start has arrived.
    fn found(&mut self) -> (Vec<String>, Vec<String>) {
        self.stage.world.advance(1_000_000);
        let mut dead = self.stage.take_bodies(&self.dead);
        dead.sort();
        (self.stage.take_bodies(&self.source), dead)
    }

    fn begin(&mut self) -> (LinkId, u32) {
        let client = self.stage.client;
        let coordinator = self.stage.world.clients[client].attach_coordinator("txn", &[]);
        let token = self.stage.world.clients[client].declare(coordinator);
        self.stage.world.run();
        let number = self.stage.outcome(token).strip_prefix("declared ").expect("there is room").parse();
        (coordinator, number.expect("a number"))
    }

    fn post_in(&mut self, queue: &str, number: u32, body: &str) {
        let sender = self.stage.sender(queue);
        let mut bytes = Vec::new();
        durable().encode(&mut bytes);
        write_data(&mut bytes, body.as_bytes());
        self.stage.world.clients[self.stage.client].send_bytes_in(sender, number, &bytes);
        self.stage.world.run();
    }
}

fn owned<const N: usize>(bodies: [&str; N]) -> Vec<String> {
    bodies.map(str::to_owned).to_vec()
}

/// Rejects one, fails with one too often and takes one, and posts one there and elsewhere.
fn crash_in_transaction(is_remote: bool, is_wide: bool, seed: u64, batch_bytes_max: u32) -> usize {
    let mut crashes = 0;
    for steps in 0.. {
        let mut dying = Dying::new(is_remote, seed, DiskSetup { batch_bytes_max, ..DiskSetup::default() });
        let source = dying.source.clone();
        let elsewhere = names_homed_at(usize::from(is_wide), 2).nth(3).expect("there are many");
        dying.stage.send(&source, &["rejected", "fails", "taken", "stays"]);
        let receiver = dying.stage.receiver(&source);
        let (coordinator, number) = dying.begin();
        let received = dying.stage.receive(receiver, 3);
        let client = dying.stage.client;
        for (received, outcome) in
            received.iter().zip([Outcome::Rejected { error: None }, FAILED, Outcome::Accepted])
        {
            let id = received.delivery_id;
            dying.stage.world.clients[client].settle_in(receiver, id, number, outcome);
        }
        dying.post_in(&source, number, "new");
        dying.post_in(&elsewhere, number, "elsewhere");
        let token = dying.stage.world.clients[client].discharge(coordinator, number, false);
        let is_over = (0..steps).any(|_| dying.stage.world.tick().is_none());
        let is_answered = dying.stage.outcome(token) == "accepted";
        assert!(is_answered || !is_over);
        dying.stage.crash();
        // What was decided at a start holds, before it is done and after.
        for _ in 0..steps % 4 {
            dying.stage.world.tick();
        }
        if steps % 2 == 0 {
            dying.stage.crash();
        }
        let found = dying.found();
        let posted = dying.stage.take_bodies(&elsewhere);
        let committed = (owned(["stays", "new"]), owned(["fails", "rejected"]));
        let rolled_back = (owned(["rejected", "fails", "taken", "stays"]), Vec::new());
        let at =
            format!("remote {is_remote}, wide {is_wide}, seed {seed}, {steps} steps: {found:?} {posted:?}");
        assert!(found == committed || found == rolled_back, "{at}");
        assert_eq!(posted.len(), usize::from(found == committed), "{at}");
        assert!(!is_answered || found == committed, "what was answered has happened: {at}");
        assert_eq!(dying.stage.crash().messages(), 0, "{at}");
        crashes += 1;
        if is_over {
            break;
        }
    }
    crashes
}

/// Where its new queue is stands still.
#[test]
fn what_has_died_is_dead_after_a_crash_although_it_had_not_gone_on() {
    let mut dying = Dying::new(true, 1, DiskSetup::default());
    let source = dying.source.clone();
    dying.stage.send(&source, &["rejected", "fails", "stays"]);
    let receiver = dying.stage.receiver(&source);
    let received = dying.stage.receive(receiver, 2);
    dying.stage.world.disks[1].held = true;
    dying.stage.settle(&received[0], &DeliveryState::Rejected { error: None });
    let failed = Modified { delivery_failed: true, ..Modified::default() };
    dying.stage.settle(&received[1], &DeliveryState::Modified(failed));
    dying.stage.world.run();
    dying.stage.crash();
    assert_eq!(dying.found(), (owned(["stays"]), owned(["fails", "rejected"])));
    assert_eq!(dying.stage.crash().messages(), 0);
}

/// What is written is that it has died; where it went, and was had, that is lost.
#[test]
fn a_dead_letter_that_was_had_says_so_when_it_comes_anew_after_a_crash() {
    let again: usize = (0..4).map(dead_letters_that_come_anew).sum();
    assert!(again > 0);
}

/// Crashes at every step; how many of them had been had.
fn dead_letters_that_come_anew(seed: u64) -> usize {
    let mut again = 0;
    for steps in 0.. {
        let mut dying = Dying::new(false, seed, DiskSetup { batch_bytes_max: 1, ..DiskSetup::default() });
        let (source, dead) = (dying.source.clone(), dying.dead.clone());
        let (receiver, taker) = (dying.stage.receiver(&source), dying.stage.receiver(&dead));
        dying.stage.hold_disks(true);
        for n in 0..3 {
            dying.stage.send_without_answer("other", &format!("on its way {n}"));
        }
        dying.stage.send_without_answer(&source, "dies");
        let received = dying.stage.receive(receiver, 1);
        dying.stage.settle(&received[0], &DeliveryState::Rejected { error: None });
        dying.stage.receive(taker, 1);
        dying.stage.hold_disks(false);
        let is_over = (0..steps).any(|_| dying.stage.world.tick().is_none());
        // What is on its way is lost, or not.
        dying.stage.hold_disks(true);
        dying.stage.world.run();
        let was_had = !dying.stage.world.clients[dying.stage.client].bodies(taker).is_empty();
        dying.stage.world.crash();
        dying.stage.world.begin_restart();
        let comes_anew = dying.stage.world.shards[0].dead_letters(|_, _| &[]).next().is_some();
        dying.stage.world.run();
        dying.stage.client = dying.stage.world.connect(0);
        for letter in dying.stage.take(&dead) {
            assert!(!comes_anew || !letter.first_acquirer, "after {steps} steps");
            again += usize::from(comes_anew && was_had);
        }
        if is_over {
            break;
        }
    }
    again
}

#[test]
fn what_a_transaction_lets_die_is_dead_whenever_the_broker_crashes() {
    for (is_remote, is_wide) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut crashes = 0;
        for (seed, batch_bytes_max) in [(0, 2 * 4096), (1, 1)] {
            crashes += crash_in_transaction(is_remote, is_wide, seed, batch_bytes_max);
        }
        assert!(crashes > 15, "{crashes}");
    }
}

#[test]
fn what_a_transaction_lets_die_before_it_is_written_is_dead_too() {
    for (is_remote, batch_bytes_max) in [(false, 1), (true, 1), (true, 2 * 4096)] {
        for steps in 0.. {
            let mut dying = Dying::new(is_remote, 1, DiskSetup { batch_bytes_max, ..DiskSetup::default() });
            let source = dying.source.clone();
            let receiver = dying.stage.receiver(&source);
            let (coordinator, number) = dying.begin();
            dying.stage.hold_disks(true);
            for other in 0..3 {
                dying.stage.send_without_answer("other", &format!("on its way {other}"));
            }
            dying.stage.send_without_answer(&source, "rejected");
            let received = dying.stage.receive(receiver, 1);
            let client = dying.stage.client;
            let (id, outcome) = (received[0].delivery_id, Outcome::Rejected { error: None });
            dying.stage.world.clients[client].settle_in(receiver, id, number, outcome);
            dying.post_in(&source, number, "new");
            let token = dying.stage.world.clients[client].discharge(coordinator, number, false);
            dying.stage.world.run();
            dying.stage.hold_disks(false);
            let is_over = (0..steps).any(|_| dying.stage.world.tick().is_none());
            let is_answered = dying.stage.outcome(token) == "accepted";
            dying.stage.crash();
            let found = dying.found();
            let at = format!("remote {is_remote}, {steps} steps: {found:?}");
            match &*found.0 {
                [new] if new == "new" => assert_eq!(found.1, ["rejected"], "{at}"),
                [] | [_] => assert!(!is_answered && found.1.is_empty(), "{at}"),
                [..] => panic!("{at}"),
            }
            if is_over {
                assert!(is_answered);
                break;
            }
        }
    }
}

#[test]
fn what_consumers_held_outlives_their_queue_whenever_the_broker_crashes() {
    for (is_remote, is_slow) in [(false, false), (true, false), (true, true)] {
        for steps in 0.. {
            let mut dying = Dying::new(is_remote, steps, DiskSetup::default());
            let source = dying.source.clone();
            dying.stage.send(&source, &["1", "2", "3", "4", "5"]);
            let receiver = dying.stage.receiver(&source);
            let received = dying.stage.receive(receiver, 3);
            dying.stage.world.disks[1].held = is_slow;
            // It is on its way when its queue is deleted.
            let rejected = DeliveryState::Rejected { error: None };
            dying.stage.world.clients[dying.stage.client].settle(
                receiver,
                received[0].delivery_id,
                &rejected,
            );
            let mut operator = Operator::new(&mut dying.stage.world, 0);
            operator.send(&mut dying.stage.world, "DELETE", ("queue", &source), &[], &[]);
            let is_over = (0..steps).any(|_| dying.stage.world.tick().is_none());
            let answers = operator.answers(&dying.stage.world);
            let is_answered = answers.first().is_some_and(|answer| answer.status == 204);
            // Another one of this name.
            let token = is_answered.then(|| dying.stage.send_without_answer(&source, "new"));
            let is_new = token.is_some_and(|token| dying.stage.outcome(token) == "accepted");
            for again in 0..1 + steps % 3 {
                dying.stage.crash();
                for _ in 0..again {
                    dying.stage.world.tick();
                }
            }
            let (there, dead) = dying.found();
            let at = format!("remote {is_remote}, slow {is_slow}, {steps} steps: {there:?} {dead:?}");
            assert!(is_answered || !is_over, "{at}");
            if dead.len() < 3 {
                let mut all = [there.clone(), dead].concat();
                all.sort();
                assert_eq!(all, ["1", "2", "3", "4", "5"], "{at}");
                assert!(!is_answered, "{at}");
            } else {
                assert_eq!(dead, ["1", "2", "3"], "{at}");
                assert_eq!(there, if is_new { owned(["new"]) } else { Vec::new() }, "{at}");
            }
            assert_eq!(dying.stage.crash().messages(), 0, "{at}");
            let queues = dying.stage.world.shards[0].queue_count();
            dying.stage.world.advance(1_000_000);
            assert_eq!(dying.stage.world.shards[0].queue_count(), queues);
            if is_over {
                break;
            }
        }
    }
}

/// What an outcome has added to a dead letter is there wherever its record lies by then.
#[test]
fn dead_letters_that_wait_keep_their_annotations_when_their_segments_are_cleaned() {
    const COUNT: usize = 400;
    let mut dying = Dying::new(true, 1, DiskSetup { files_max: 1000, ..DiskSetup::default() });
    let source = dying.source.clone();
    let names: Vec<String> = (0..COUNT).map(|n| format!("{n:03} {}", "x".repeat(400))).collect();
    dying.stage.send(&source, &names.iter().map(String::as_str).collect::<Vec<_>>());
    dying.stage.world.disks[1].held = true;
    let receiver = dying.stage.receiver(&source);
    let mut annotations = Vec::new();
    let mut map = MapWriter::new(&mut annotations);
    map.pair(&Value::Symbol("x-opt-note"), &Value::String("seen"));
    map.finish();
    let map = Map::decode(&annotations).ok();
    for (n, received) in dying.stage.receive(receiver, COUNT as u32).into_iter().enumerate() {
        let state = match n % 8 {
            0 => DeliveryState::Modified(Modified {
                delivery_failed: true,
                undeliverable_here: false,
                message_annotations: map,
            }),
            _ => DeliveryState::Accepted,
        };
        dying.stage.settle(&received, &state);
    }
    let before = dying.stage.world.disks[0].segments();
    for _ in 0..20 {
        dying.stage.send(&source, &["more"]);
        assert_eq!(dying.stage.take_bodies(&source), ["more"]);
    }
    let after = dying.stage.world.disks[0].segments();
    assert!(before.iter().filter(|number| !after.contains(number)).count() > 2, "{before:?} {after:?}");
    for _ in 0..2 {
        dying.stage.crash();
    }
    dying.stage.world.advance(1_000_000);
    let dead = dying.stage.take(&dying.dead.clone());
    let is_annotated = |dead: &&Received| dead.annotations.iter().any(|(name, _)| name == "x-opt-note");
    assert_eq!((dead.len(), dead.iter().filter(is_annotated).count()), (COUNT / 8, COUNT / 8));
}

/// Until they have arrived, the records of dead letters are written again when their segments are cleaned, with what they died of.
#[test]
fn dead_letters_that_wait_outlive_the_cleaning_of_their_segments() {
    const COUNT: usize = 400;
    for (is_in_transaction, seed) in [(false, 1), (true, 1), (true, 2)] {
        let mut dying = Dying::new(true, seed, DiskSetup { files_max: 1000, ..DiskSetup::default() });
        let source = dying.source.clone();
        let names: Vec<String> = (0..COUNT).map(|n| format!("{n:03} {}", "x".repeat(400))).collect();
        dying.stage.send(&source, &names.iter().map(String::as_str).collect::<Vec<_>>());
        dying.stage.world.disks[1].held = true;
        let receiver = dying.stage.receiver(&source);
        let client = dying.stage.client;
        let received = dying.stage.receive(receiver, COUNT as u32);
        let (coordinator, number) = dying.begin();
        for (n, received) in received.iter().enumerate() {
            let (id, rejected) = (received.delivery_id, Outcome::Rejected { error: None });
            let client = &mut dying.stage.world.clients[client];
            match (n % 8, is_in_transaction) {
                (0, true) => client.settle_in(receiver, id, number, rejected),
                (0, false) => client.settle(receiver, id, &rejected.into()),
                _ => client.settle(receiver, id, &DeliveryState::Accepted),
            }
        }
        let token = dying.stage.world.clients[client].discharge(coordinator, number, false);
        let before = dying.stage.world.disks[0].segments();
        dying.stage.world.run();
        assert_eq!(dying.stage.outcome(token), "accepted");
        for _ in 0..20 {
            dying.stage.send(&source, &["more"]);
            assert_eq!(dying.stage.take_bodies(&source), ["more"]);
        }
        let after = dying.stage.world.disks[0].segments();
        let cleaned = before.iter().filter(|number| !after.contains(number)).count();
        assert!(cleaned > 2, "{before:?} {after:?}");
        for _ in 0..2 {
            dying.stage.crash();
        }
        let (there, dead) = dying.found();
        let all = [&*dead, &*there].concat();
        assert!(all.iter().eq(names.iter().step_by(8)), "{is_in_transaction}: {} there", there.len());
        assert!(!is_in_transaction || there.is_empty(), "{} are back", there.len());
    }
}
