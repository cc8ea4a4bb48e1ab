//! Credit and drain, on the queue's shard and from another one.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::{DestinationRule, PrefetchRule};
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::DeliveryState;

/// A client with a receiver on a queue that is homed on its shard, or on another one.
struct Stage {
    world: World,
    client: usize,
    sender: LinkId,
    receiver: LinkId,
    queue: String,
}

fn stage(remote: bool, options: &ReceiverOptions, rules: Vec<DestinationRule>) -> Stage {
    seeded(11, remote, options, rules)
}

fn seeded(seed: u64, remote: bool, options: &ReceiverOptions, rules: Vec<DestinationRule>) -> Stage {
    let mut world = World::new(&Setup { rules, seed, ..Setup::new(2) });
    let queue = names_homed_at(0, 2).next().expect("there is one");
    let other = names_homed_at(usize::from(remote), 2).nth(1).expect("there is one");
    let client = world.connect(0);
    world.clients[client].attach_receiver("other", &other, &ReceiverOptions::default());
    world.run();
    let sender = world.clients[client].attach_sender("s", &queue, &SenderOptions::default());
    let receiver = world.clients[client].attach_receiver("r", &queue, options);
    world.run();
    Stage { world, client, sender, receiver, queue }
}

impl Stage {
    fn publish(&mut self, bodies: &[&str]) {
        for body in bodies {
            self.world.clients[self.client].send(self.sender, body);
        }
        self.world.run();
    }

    fn drain(&mut self, credit: u32) {
        self.world.clients[self.client].drained.clear();
        self.world.clients[self.client].drain(self.receiver, credit);
        self.world.run();
    }

    /// The drain has been answered: the flow came back with credit 0.
    fn assert_drained(&self, case: &str) {
        assert_eq!(self.world.clients[self.client].drained, [self.receiver], "{case}");
        assert_eq!(self.world.clients[self.client].credit_left(self.receiver), 0, "{case}");
    }

    fn bodies(&self) -> Vec<&str> {
        self.world.clients[self.client].bodies(self.receiver)
    }
}

#[test]
fn s23_a_drain_is_answered_whatever_the_queue_holds() {
    for remote in [false, true] {
        let mut stage = stage(remote, &ReceiverOptions::default(), Vec::new());
        stage.drain(10);
        stage.assert_drained("empty queue");
        stage.drain(0);
        stage.assert_drained("no credit");
        stage.publish(&["a", "b", "c"]);
        stage.drain(10);
        stage.assert_drained("three messages");
        assert_eq!(stage.bodies(), ["a", "b", "c"]);
        stage.publish(&["d", "e"]);
        stage.drain(1);
        stage.assert_drained("more messages than credit");
        assert_eq!(stage.bodies(), ["a", "b", "c", "d"]);
        stage.drain(300);
        stage.assert_drained("more credit than is lent at once");
        assert_eq!(stage.bodies(), ["a", "b", "c", "d", "e"]);
    }
}

#[test]
fn s23_what_comes_after_a_drain_is_delivered_for_the_first_time() {
    for remote in [false, true] {
        let mut stage = stage(remote, &ReceiverOptions::default(), Vec::new());
        stage.drain(10);
        stage.assert_drained("empty queue");
        // Nobody is there to acquire it yet.
        stage.publish(&["a"]);
        stage.drain(10);
        assert_eq!(stage.bodies(), ["a"]);
        let received = &stage.world.clients[stage.client].received;
        assert!(received.iter().all(|received| received.first_acquirer), "remote: {remote}");
    }
}

#[test]
fn s23_a_drain_is_answered_when_the_selector_matches_nothing() {
    for remote in [false, true] {
        let options =
            ReceiverOptions { selector: Some("colour = 'red'".to_owned()), ..ReceiverOptions::default() };
        let mut stage = stage(remote, &options, Vec::new());
        stage.publish(&["a", "b", "c"]);
        stage.drain(10);
        stage.assert_drained("no match");
        assert!(stage.bodies().is_empty());
    }
}

#[test]
fn s23_a_drain_is_answered_when_another_is_served_first() {
    for remote in [false, true] {
        let mut stage = stage(remote, &ReceiverOptions::default(), Vec::new());
        let high = stage.world.connect(0);
        let options = ReceiverOptions { priority: Some(9), ..ReceiverOptions::default() };
        let link = stage.world.clients[high].attach_receiver("high", &stage.queue.clone(), &options);
        stage.world.clients[high].credit(link, 100);
        stage.world.run();
        stage.drain(10);
        stage.assert_drained("a higher one waits");
        stage.publish(&["a"]);
        stage.drain(10);
        stage.assert_drained("a higher one took it");
        assert!(stage.bodies().is_empty());
    }
}

#[test]
fn s23_a_drain_is_answered_on_standby() {
    for remote in [false, true] {
        let rule =
            DestinationRule { pattern: ">".to_owned(), exclusive: Some(true), ..DestinationRule::default() };
        let mut stage = stage(remote, &ReceiverOptions::default(), vec![rule]);
        let late = stage.world.connect(0);
        let other = names_homed_at(usize::from(remote), 2).nth(2).expect("there is one");
        stage.world.clients[late].attach_receiver("other", &other, &ReceiverOptions::default());
        stage.world.run();
        let queue = stage.queue.clone();
        let standby = stage.world.clients[late].attach_receiver("r", &queue, &ReceiverOptions::default());
        stage.world.run();
        stage.publish(&["a", "b"]);
        stage.world.clients[late].drain(standby, 10);
        stage.world.run();
        assert_eq!(stage.world.clients[late].drained, [standby]);
        assert!(stage.world.clients[late].bodies(standby).is_empty());
        let active = stage.receiver;
        stage.world.clients[stage.client].credit(active, 10);
        stage.world.run();
        assert_eq!(stage.bodies(), ["a", "b"]);
    }
}

/// Who drains loses its part in the queue to another before it was its turn.
#[test]
fn s23_a_drain_is_answered_when_another_takes_over() {
    // How much is read at once depends on the seed.
    for (seed, remote) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let rule =
            DestinationRule { pattern: ">".to_owned(), exclusive: Some(true), ..DestinationRule::default() };
        let mut stage = seeded(seed, remote, &ReceiverOptions::default(), vec![rule]);
        stage.publish(&["a", "b"]);
        let (receiver, queue) = (stage.receiver, stage.queue.clone());
        let client = &mut stage.world.clients[stage.client];
        client.drain(receiver, 10);
        let options = ReceiverOptions { priority: Some(9), ..ReceiverOptions::default() };
        client.attach_receiver("high", &queue, &options);
        stage.world.run();
        stage.assert_drained(&format!("seed {seed}, remote {remote}"));
    }
}

/// The whole of what the peer says is on its way when the queue's shard answers the attach.
#[test]
fn s23_a_drain_before_the_attach_is_answered_is_answered() {
    for (remote, credit) in [(false, 0), (false, 10), (true, 0), (true, 10)] {
        let mut stage = stage(remote, &ReceiverOptions::default(), Vec::new());
        stage.publish(&["a"]);
        let queue = stage.queue.clone();
        let client = &mut stage.world.clients[stage.client];
        stage.receiver = client.attach_receiver("early", &queue, &ReceiverOptions::default());
        stage.drain(credit);
        stage.assert_drained("the flow came first");
        assert_eq!(stage.bodies().len(), credit.min(1) as usize);
    }
}

/// The flow that asks for a message without prefetch may be the one before the attach is answered.
#[test]
fn s35_a_flow_before_the_attach_is_answered_asks_for_a_message() {
    for remote in [false, true] {
        let rule = DestinationRule {
            pattern: ">".to_owned(),
            prefetch: Some(PrefetchRule::None),
            ..DestinationRule::default()
        };
        let mut stage = stage(remote, &ReceiverOptions::default(), vec![rule]);
        stage.publish(&["a", "b"]);
        let queue = stage.queue.clone();
        let client = &mut stage.world.clients[stage.client];
        stage.receiver = client.attach_receiver("early", &queue, &ReceiverOptions::default());
        client.credit(stage.receiver, 10);
        stage.world.run();
        assert_eq!(stage.bodies(), ["a"]);
        let sender = stage.sender;
        stage.world.clients[stage.client].send(sender, "c");
        stage.world.run();
        assert_eq!(stage.bodies(), ["a"], "one flow, one message");
    }
}

#[test]
fn s26_credit_is_what_the_receiver_said_last() {
    for remote in [false, true] {
        let mut stage = stage(remote, &ReceiverOptions::default(), Vec::new());
        let receiver = stage.receiver;
        stage.world.clients[stage.client].credit(receiver, 10);
        stage.publish(&["a", "b", "c", "d"]);
        stage.world.clients[stage.client].credit(receiver, 10);
        stage.world.run();
        let many: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        stage.publish(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(stage.bodies().len(), 14);
    }
}

#[test]
fn credit_that_is_taken_back_stops_deliveries() {
    for remote in [false, true] {
        let mut stage = stage(remote, &ReceiverOptions::default(), Vec::new());
        let receiver = stage.receiver;
        stage.world.clients[stage.client].credit(receiver, 10);
        stage.world.run();
        stage.world.clients[stage.client].credit(receiver, 0);
        stage.world.run();
        stage.publish(&["a", "b"]);
        assert!(stage.bodies().is_empty());
        stage.world.clients[stage.client].credit(receiver, 5);
        stage.world.run();
        assert_eq!(stage.bodies(), ["a", "b"]);
    }
}

#[test]
fn s27_what_is_sent_settled_is_gone_when_it_is_sent() {
    for remote in [false, true] {
        let options = ReceiverOptions { presettled: true, ..ReceiverOptions::default() };
        let mut stage = stage(remote, &options, Vec::new());
        let receiver = stage.receiver;
        stage.world.clients[stage.client].credit(receiver, 2);
        stage.publish(&["a", "b", "c"]);
        assert_eq!(stage.bodies(), ["a", "b"]);
        assert!(stage.world.clients[stage.client].received.iter().all(|received| received.settled));
        let shard = &stage.world.shards[0];
        let depth =
            shard.queue(&stage.queue).and_then(|queue| shard.engine().depth(queue)).expect("it exists");
        assert_eq!(depth.messages, 1);
    }
}

#[test]
fn s35_a_pull_from_a_queue_without_prefetch_leaves_nothing_behind() {
    for remote in [false, true] {
        let rule = DestinationRule {
            pattern: ">".to_owned(),
            prefetch: Some(PrefetchRule::None),
            ..DestinationRule::default()
        };
        let mut stage = stage(remote, &ReceiverOptions::default(), vec![rule]);
        let receiver = stage.receiver;
        stage.drain(1);
        stage.assert_drained("empty queue");
        stage.publish(&["a", "b", "c"]);
        assert!(stage.bodies().is_empty(), "nothing was outstanding");
        stage.world.clients[stage.client].credit(receiver, 100);
        stage.world.run();
        assert_eq!(stage.bodies(), ["a"], "whatever the credit, one at a time");
        let id = stage.world.clients[stage.client].received[0].delivery_id;
        stage.world.clients[stage.client].settle(receiver, id, &DeliveryState::Accepted);
        stage.world.run();
        assert_eq!(stage.bodies(), ["a"], "the next one wants a flow");
        stage.world.clients[stage.client].credit(receiver, 100);
        stage.world.run();
        assert_eq!(stage.bodies(), ["a", "b"]);
    }
}

#[test]
fn s11_consumers_of_one_connection_take_turns() {
    let mut judged = 0;
    for seed in 0..20 {
        let mut world = World::new(&Setup { seed, ..Setup::new(1) });
        let client = world.connect(0);
        let mut links = Vec::new();
        for name in ["a", "b"] {
            let sender = world.clients[client].attach_sender(name, name, &SenderOptions::default());
            for n in 0..1000 {
                world.clients[client].send(sender, &n.to_string());
            }
            links.push(world.clients[client].attach_receiver(name, name, &ReceiverOptions::default()));
        }
        world.run();
        for link in &links {
            world.clients[client].credit(*link, 1000);
        }
        world.run();
        let order: Vec<LinkId> =
            world.clients[client].received.iter().map(|received| received.link).collect();
        assert_eq!(order.len(), 2000);
        // Whoever's flow was read first had a start, how long a one is the network's doing; from there on until it is done, they alternate.
        let start = order.iter().position(|link| *link != order[0]).expect("both are served");
        let both = &order[start..(2 * (1000 - start) + start).max(start)];
        assert!(both.windows(2).all(|pair| pair[0] != pair[1]), "seed {seed}: {both:?}");
        judged += usize::from(both.len() > 900);
    }
    assert!(judged >= 2, "{judged}");
}

/// The prefetch stops a consumer before its credit is used up: then the drain is over.
#[test]
fn s35_a_drain_ends_at_the_prefetch() {
    for remote in [false, true] {
        for prefetch in [PrefetchRule::None, PrefetchRule::Limit(2)] {
            let rule = DestinationRule {
                pattern: ">".to_owned(),
                prefetch: Some(prefetch),
                ..DestinationRule::default()
            };
            let mut stage = stage(remote, &ReceiverOptions::default(), vec![rule]);
            stage.publish(&["a", "b", "c"]);
            stage.drain(10);
            stage.assert_drained("prefetch");
            let expect: &[&str] = if prefetch == PrefetchRule::None { &["a"] } else { &["a", "b"] };
            assert_eq!(stage.bodies(), expect);
        }
    }
}
