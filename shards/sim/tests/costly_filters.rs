//! Filters that are as costly as they may be: what they cost a turn is bounded, and others are served meanwhile. By counts, not by
//! time.

use corelane_shard::limits::TURN_WORK_MAX;
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{Header, Properties};

/// A filter of many conditions that no message fits.
fn costly(n: usize) -> String {
    let conditions: Vec<String> = (0..300).map(|k| format!("weight + {k} < -{n}")).collect();
    conditions.join(" or ")
}

#[test]
fn filters_do_not_make_a_turn_long_and_others_go_on() {
    for shards in [1, 2] {
        publish_to_costly_filters(shards);
    }
}

/// The queues are on the first shard, those who publish on the last.
fn publish_to_costly_filters(shards: usize) {
    const MESSAGES: usize = 150;
    let mut world = World::new(&Setup { verify: false, ..Setup::new(shards) });
    let mut names = names_homed_at(0, shards);
    let (costly_queue, cheap_queue) = names.next().zip(names.next()).expect("there are many");
    let receiver = world.connect(0);
    for n in 0..30 {
        let options = ReceiverOptions { selector: Some(costly(n)), ..ReceiverOptions::default() };
        let link = world.clients[receiver].attach_receiver(&format!("r{n}"), &costly_queue, &options);
        world.clients[receiver].credit(link, 10);
    }
    let publishers: Vec<usize> = (0..3).map(|_| world.connect(shards - 1)).collect();
    let publishing: Vec<_> = publishers
        .iter()
        .map(|client| {
            (*client, world.clients[*client].attach_sender("s", &costly_queue, &SenderOptions::default()))
        })
        .collect();
    let other = world.connect(0);
    let elsewhere = world.clients[other].attach_sender("s", &cheap_queue, &SenderOptions::default());
    world.run();
    world.clients[publishers[0]].send(publishing[0].1, "one");
    let before = world.shards[0].engine().work();
    world.run();
    let message = world.shards[0].engine().work() - before;
    assert!(message > TURN_WORK_MAX / 10, "it is costly: {message}");

    for (client, link) in &publishing {
        for _ in 0..MESSAGES {
            world.clients[*client].send(*link, "costly");
        }
    }
    for _ in 0..20 {
        world.clients[other].send(elsewhere, "cheap");
    }
    let (mut work, mut steps, mut cheap_after) = (world.shards[0].engine().work(), 0, None);
    while world.step() {
        steps += 1;
        let done = world.shards[0].engine().work() - work;
        // What arrives before a turn's end may use what the turn before has left.
        assert!(done <= 2 * (TURN_WORK_MAX + message), "{done} in one step");
        work += done;
        if cheap_after.is_none() && world.clients[other].outcomes.len() == 20 {
            cheap_after = Some(steps);
        }
    }
    let answered = publishers.iter().map(|client| world.clients[*client].outcomes.len()).sum::<usize>();
    assert_eq!(answered, 3 * MESSAGES + 1, "all are taken in the end");
    assert!(steps as u64 >= 3 * MESSAGES as u64 * message / (2 * (TURN_WORK_MAX + message)));
    assert!(cheap_after.is_some_and(|after| after < steps / 2), "{cheap_after:?} of {steps}");
}

#[test]
fn selectors_of_subscriptions_do_not_make_a_turn_long() {
    for shards in [1, 2] {
        publish_to_costly_subscriptions(shards);
    }
}

/// The subscriptions are on the first shard, those who publish on the last.
fn publish_to_costly_subscriptions(shards: usize) {
    const MESSAGES: usize = 100;
    let mut world = World::new(&Setup { verify: false, ..Setup::new(shards) });
    let receiver = world.connect(0);
    for n in 0..30 {
        let options = ReceiverOptions { selector: Some(costly(n)), ..ReceiverOptions::default() };
        world.clients[receiver].attach_receiver(&format!("r{n}"), "topic://costly", &options);
    }
    let publisher = world.connect(shards - 1);
    let link = world.clients[publisher].attach_sender("s", "topic://costly", &SenderOptions::default());
    world.run();
    world.clients[publisher].send(link, "one");
    let before = world.shards[0].work();
    world.run();
    let message = world.shards[0].work() - before;
    assert!(message > TURN_WORK_MAX / 10, "it is costly: {message}");
    for _ in 0..MESSAGES {
        world.clients[publisher].send(link, "costly");
    }
    let (mut work, mut steps) = (world.shards[0].work(), 0);
    while world.step() {
        steps += 1;
        let done = world.shards[0].work() - work;
        assert!(done <= 2 * (TURN_WORK_MAX + message), "{done} in one step");
        work += done;
    }
    assert_eq!(world.clients[publisher].outcomes.len(), MESSAGES + 1, "all are taken in the end");
    assert!(steps as u64 >= MESSAGES as u64 * message / (2 * (TURN_WORK_MAX + message)));
}

/// Each message names its topic, so that each is looked up.
#[test]
fn what_looking_a_topic_up_costs_is_counted() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(1) });
    let receiver = world.connect(0);
    for n in 0..200 {
        let pattern = format!("topic://{}#", "*.".repeat(n % 20));
        world.clients[receiver].attach_receiver(&n.to_string(), &pattern, &ReceiverOptions::default());
    }
    let publisher = world.connect(0);
    let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
    let link = world.clients[publisher].attach_sender("s", "", &options);
    world.run();
    let before = world.shards[0].work();
    let to = format!("topic://{}", vec!["a"; 30].join("."));
    let properties = Properties { to: Some(&to), ..Properties::default() };
    world.clients[publisher].send_with(link, "one", &properties, &[], &Header::default());
    world.run();
    assert!(world.shards[0].work() - before >= 200, "all that match are met");
}
