//! Messages that very many subscriptions get: they go to them bit by bit, in order, and in transactions as a whole.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::DestinationRule;
use corelane_shard::limits::{FAN_OUT_STEP_MAX, FAN_OUT_WORK, TURN_WORK_MAX};
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World};
use corelane_wire::amqp10::{Header, Properties};

const SUBSCRIPTIONS: usize = 3 * FAN_OUT_STEP_MAX + 500;
const LINKS: usize = 250;

/// A world in which very many have subscribed to `topic://wide`, all on its last shard, and one to both that and `topic://narrow`.
fn wide(shards: usize) -> (World, Vec<(usize, LinkId)>) {
    wide_with(shards, Vec::new())
}

fn wide_with(shards: usize, rules: Vec<DestinationRule>) -> (World, Vec<(usize, LinkId)>) {
    let mut world = World::new(&Setup { rules, verify: false, ..Setup::new(shards) });
    let mut links = Vec::new();
    for n in 0..SUBSCRIPTIONS {
        if n % LINKS == 0 {
            world.run();
            world.connect(shards - 1);
        }
        let client = world.clients.len() - 1;
        world.clients[client].accepts = true;
        let pattern = if n == SUBSCRIPTIONS - 1 { "topic://*" } else { "topic://wide" };
        let link =
            world.clients[client].attach_receiver(&n.to_string(), pattern, &ReceiverOptions::default());
        world.clients[client].credit(link, 100);
        links.push((client, link));
    }
    world.run();
    (world, links)
}

/// Runs until nothing happens any more; the most that a shard has done in one step.
fn longest_step(world: &mut World) -> u64 {
    let work = |world: &World| world.shards.iter().map(|shard| shard.work()).sum::<u64>();
    let (mut before, mut longest) = (work(world), 0);
    while world.step() {
        let after = work(world);
        longest = longest.max(after - before);
        before = after;
    }
    longest
}

#[test]
fn a_turn_is_no_longer_for_the_subscriptions_there_are() {
    for shards in [1, 2] {
        let (mut world, links) = wide(shards);
        let producer = world.connect(0);
        let options = SenderOptions::default();
        let to_wide = world.clients[producer].attach_sender("wide", "topic://wide", &options);
        let to_narrow = world.clients[producer].attach_sender("narrow", "topic://narrow", &options);
        world.run();
        // What is narrow waits behind what is wide.
        let bodies: Vec<String> = (0..12).map(|n| n.to_string()).collect();
        for pair in bodies.chunks(2) {
            world.clients[producer].send(to_wide, &pair[0]);
            world.clients[producer].send(to_narrow, &pair[1]);
        }
        let longest = longest_step(&mut world);
        // What waits has a turn's work, and so has what arrives; each may end in the middle of one part of a message.
        let bound = 2 * (TURN_WORK_MAX + FAN_OUT_STEP_MAX as u64 * FAN_OUT_WORK);
        assert!(longest <= bound, "{shards} shards: {longest} of {bound}");
        let outcomes = &world.clients[producer].outcomes;
        assert!(outcomes.len() == 12 && outcomes.iter().all(|(_, outcome)| outcome == "accepted"));
        let (both, others) = links.split_last().expect("there are many");
        assert_eq!(world.clients[both.0].bodies(both.1), bodies, "{shards} shards");
        for (client, link) in others {
            assert!(
                world.clients[*client].bodies(*link).iter().eq(bodies.iter().step_by(2)),
                "{shards} shards"
            );
        }
        assert!(world.shards.iter().all(|shard| shard.memory_used() == 0));
    }
}

/// Each of them goes to all subscriptions.
#[test]
fn a_turn_is_no_longer_for_dead_letters() {
    const COUNT: usize = 40;
    for shards in [1, 2] {
        let rule = DestinationRule {
            pattern: "short".to_owned(),
            dead_letter: Some("topic://wide".into()),
            ..DestinationRule::default()
        };
        let (mut world, links) = wide_with(shards, vec![rule]);
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("s", "short", &SenderOptions::default());
        world.run();
        let bodies: Vec<String> = (0..COUNT).map(|n| n.to_string()).collect();
        for body in &bodies {
            let header = Header { ttl: Some(1000), ..Header::default() };
            world.clients[producer].send_with(sender, body, &Properties::default(), &[], &header);
        }
        world.run();
        world.pass(2_000_000);
        let longest = longest_step(&mut world);
        // What waits has a turn's work, and so has what arrives; each may end in the middle of one message.
        let bound = 2 * (TURN_WORK_MAX + SUBSCRIPTIONS as u64 * FAN_OUT_WORK);
        assert!(longest <= bound, "{shards} shards: {longest} of {bound}");
        for (client, link) in &links {
            assert_eq!(world.clients[*client].bodies(*link), bodies, "{shards} shards");
        }
        assert!(world.shards.iter().all(|shard| shard.memory_used() == 0));
    }
}

#[test]
fn all_subscriptions_see_a_transaction_or_none() {
    for shards in [1, 2] {
        let (mut world, links) = wide(shards);
        let client = world.connect(0);
        let coordinator = world.clients[client].attach_coordinator("txn", &[]);
        let sender = world.clients[client].attach_sender("s", "topic://wide", &SenderOptions::default());
        world.run();
        for (body, fail) in [("never", true), ("whole", false)] {
            let declared = world.clients[client].declare(coordinator);
            world.run();
            let outcome = world.clients[client].outcome(declared).expect("it is answered");
            let number = outcome.strip_prefix("declared ").expect("there is room").parse().expect("a number");
            // More than there is work for in a turn, and nothing is waited for before the end is asked for.
            for _ in 0..4 {
                world.clients[client].send_in(sender, number, body);
            }
            let end = world.clients[client].discharge(coordinator, number, fail);
            world.run();
            assert_eq!(world.clients[client].outcome(end), Some("accepted"));
        }
        for (client, link) in &links {
            assert_eq!(world.clients[*client].bodies(*link), ["whole"; 4], "{shards} shards");
        }
        // A connection that is lost in the middle of it.
        let declared = world.clients[client].declare(coordinator);
        world.run();
        let outcome = world.clients[client].outcome(declared).expect("it is answered");
        let number = outcome.strip_prefix("declared ").expect("there is room").parse().expect("a number");
        for _ in 0..4 {
            world.clients[client].send_in(sender, number, "lost");
        }
        let work = |world: &World| world.shards.iter().map(|shard| shard.work()).sum::<u64>();
        let before = work(&world);
        while work(&world) == before {
            world.step();
        }
        world.kill(client);
        world.run();
        assert_eq!(world.shards.iter().map(|shard| shard.participation_count()).sum::<usize>(), 0);
        assert!(world.shards.iter().all(|shard| shard.memory_used() == 0));
    }
}
