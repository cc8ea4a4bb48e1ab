//! What goes with a message that is moved or copied: its time, its delay and its deaths.

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{Answer, Item, Operator, ReceiverOptions, SenderOptions, World};
use corelane_wire::amqp10::{DeliveryState, Header, Modified, Properties, Sections, Value};

use crate::{name_at, other_at, world};

const SECOND: u64 = 1_000_000;

/// A queue on shard 0, and another one there or on another shard.
struct Stage {
    world: World,
    operator: Operator,
    client: usize,
    sender: LinkId,
    source: String,
    target: String,
}

impl Stage {
    /// With properties of the source. The target is where its dead letters go.
    fn new(is_remote: bool, properties: &[(&str, Value<'_>)]) -> Stage {
        let (source, target) = (name_at(0, 2), if is_remote { name_at(1, 2) } else { other_at(0, 2) });
        let mut world = world(2);
        let mut operator = Operator::new(&mut world, 0);
        let mut body = vec![("dead-letter", Item::Value(Value::String(&target)))];
        body.extend(properties.iter().map(|(name, value)| (*name, Item::Value(*value))));
        let made = operator.ask(&mut world, "CREATE", ("queue", &source), &[], &body);
        assert_eq!(made.status, 201, "{made:?}");
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &source, &SenderOptions::default());
        world.run();
        Stage { world, operator, client, sender, source, target }
    }

    fn send(&mut self, ttl: Option<u32>) {
        let header = Header { ttl, ..Header::default() };
        let client = &mut self.world.clients[self.client];
        client.send_with(self.sender, "m", &Properties::default(), &[], &header);
        self.world.run();
    }

    fn send_delayed(&mut self, milliseconds: u32) {
        let delay = [("x-opt-delivery-delay", Value::Uint(milliseconds))];
        self.world.clients[self.client].send_annotated(self.sender, "m", &delay);
        self.world.run();
    }

    fn run(&mut self, operation: &str, from: &str, to: &str) {
        let to = [("to", Value::String(to))];
        let done = self.operator.ask(&mut self.world, operation, ("queue", from), &to, &[]);
        assert_eq!((done.status, done.at("count")), (200, "1".to_owned()), "{done:?}");
    }

    fn go(&mut self, operation: &str) {
        self.run(operation, &self.source.clone(), &self.target.clone());
    }

    fn go_back(&mut self) {
        self.run("MOVE", &self.target.clone(), &self.source.clone());
    }

    /// What is said of the first message.
    fn peek(&mut self, queue: &str) -> Answer {
        self.operator.ask(&mut self.world, "PEEK", ("queue", queue), &[], &[])
    }

    fn left_us(&mut self, queue: &str) -> Option<u64> {
        self.peek(queue).at("messages.0.expires-in-us").parse().ok()
    }

    fn state(&mut self, queue: &str) -> String {
        self.peek(queue).at("messages.0.state")
    }

    fn reject(&mut self) {
        let client = &mut self.world.clients[self.client];
        let link = client.attach_receiver("r", &self.source, &ReceiverOptions::default());
        client.credit(link, 1);
        self.world.run();
        let client = &mut self.world.clients[self.client];
        let id = client.received.last().expect("it has come").delivery_id;
        client.settle(link, id, &DeliveryState::Rejected { error: None });
        client.detach(link);
        self.world.run();
    }

    fn deaths(&mut self, queue: &str) -> [String; 2] {
        let shown = self.peek(queue);
        ["count", "path"].map(|it| shown.at(&format!("messages.0.message-annotations.x-opt-death-{it}")))
    }
}

#[test]
fn what_is_left_of_a_time_to_live_goes_with_a_message() {
    for is_remote in [false, true] {
        for operation in ["MOVE", "COPY"] {
            let mut stage = Stage::new(is_remote, &[]);
            let target = stage.target.clone();
            stage.send(Some(10_000));
            stage.world.advance(4 * SECOND);
            stage.go(operation);
            let left = stage.left_us(&target).expect("it expires");
            assert!((5 * SECOND..=6 * SECOND).contains(&left), "{operation}: {left}");
            // Its header says so too.
            let client = &mut stage.world.clients[stage.client];
            let link = client.attach_receiver("r", &target, &ReceiverOptions::default());
            client.credit(link, 1);
            stage.world.run();
            let received = stage.world.clients[stage.client].received.last().expect("it has come");
            let header =
                Sections::scan(&received.bytes).and_then(|sections| sections.header(&received.bytes));
            let ttl = header.expect("readable").ttl.expect("it says so");
            assert!((5000..=6000).contains(&ttl), "{operation}: {ttl}");
        }
    }
}

#[test]
fn a_dead_letter_that_goes_back_has_no_time_to_live_any_more() {
    for is_remote in [false, true] {
        let mut stage = Stage::new(is_remote, &[]);
        let (source, target) = (stage.source.clone(), stage.target.clone());
        stage.send(Some(300));
        stage.world.advance(SECOND);
        assert_eq!(stage.deaths(&target), ["1".to_owned(), format!("[{source}]")]);
        stage.go_back();
        assert_eq!(stage.left_us(&source), None);
        stage.world.advance(SECOND);
        assert_eq!(stage.state(&source), "available");
    }
}

#[test]
fn a_message_waits_out_its_delay_once() {
    for is_remote in [false, true] {
        for operation in ["MOVE", "COPY"] {
            let mut stage = Stage::new(is_remote, &[]);
            let target = stage.target.clone();
            stage.send_delayed(800);
            stage.world.advance(SECOND);
            stage.go(operation);
            assert_eq!(stage.state(&target), "available", "{operation}, remote {is_remote}");
            let mut stage = Stage::new(is_remote, &[]);
            stage.send_delayed(2000);
            stage.world.advance(SECOND);
            stage.go(operation);
            assert_eq!(stage.state(&target), "held", "{operation}, remote {is_remote}");
            stage.world.advance(SECOND + SECOND / 10);
            assert_eq!(stage.state(&target), "available", "{operation}, remote {is_remote}");
        }
    }
}

/// What waits for its next delivery after a failure begins anew elsewhere.
#[test]
fn a_redelivery_delay_stays_behind() {
    let mut stage = Stage::new(false, &[("redelivery-delay", Value::String("1h"))]);
    let (source, target) = (stage.source.clone(), stage.target.clone());
    stage.send(None);
    let client = &mut stage.world.clients[stage.client];
    let link = client.attach_receiver("r", &source, &ReceiverOptions::default());
    client.credit(link, 1);
    stage.world.run();
    let client = &mut stage.world.clients[stage.client];
    let failed = Modified { delivery_failed: true, ..Default::default() };
    client.settle(link, 0, &DeliveryState::Modified(failed));
    stage.world.run();
    assert_eq!(stage.state(&source), "held");
    stage.go("MOVE");
    assert_eq!(stage.state(&target), "available");
}

#[test]
fn deaths_are_counted_on_when_a_dead_letter_goes_back() {
    for is_remote in [false, true] {
        let mut stage = Stage::new(is_remote, &[]);
        let (source, target) = (stage.source.clone(), stage.target.clone());
        stage.send(None);
        for death in 1..=3 {
            stage.reject();
            assert_eq!(stage.deaths(&target), [death.to_string(), format!("[{source}]")]);
            stage.go_back();
            assert_eq!(stage.deaths(&source), [death.to_string(), format!("[{source}]")]);
        }
    }
}

/// No consumer drives it, but an operator does: it is not taken for one that goes round in a circle.
#[test]
fn a_dead_letter_that_goes_back_may_die_there_again() {
    for is_remote in [false, true] {
        let mut stage = Stage::new(is_remote, &[("expiration", Value::String("1s"))]);
        let target = stage.target.clone();
        stage.send(None);
        for death in 1..=3 {
            stage.world.advance(2 * SECOND);
            assert_eq!(stage.deaths(&target)[0], death.to_string());
            stage.go_back();
        }
    }
}

/// To another shard it is copied, and leaves when it has arrived.
#[test]
fn what_a_consumer_takes_while_it_is_moved_is_in_one_queue() {
    for is_remote in [false, true] {
        let (mut at_source, mut at_target) = (0, 0);
        for steps in 0.. {
            let mut stage = Stage::new(is_remote, &[]);
            stage.send(None);
            let client = &mut stage.world.clients[stage.client];
            let links = [&stage.source, &stage.target]
                .map(|queue| client.attach_receiver(queue, queue, &ReceiverOptions::default()));
            stage.world.run();
            let to = [("to", Value::String(&stage.target))];
            stage.operator.send(&mut stage.world, "MOVE", ("queue", &stage.source), &to, &[]);
            let is_over = (0..steps).any(|_| stage.world.tick().is_none());
            stage.world.clients[stage.client].credit(links[0], 10);
            stage.world.run();
            stage.world.clients[stage.client].credit(links[1], 10);
            stage.world.run();
            let answer = &stage.operator.answers(&stage.world)[0];
            let taken = links.map(|link| stage.world.clients[stage.client].bodies(link).len());
            assert_eq!(taken.iter().sum::<usize>(), 1, "remote {is_remote}, {steps} steps: {taken:?}");
            assert_eq!(answer.at("count"), taken[1].to_string(), "remote {is_remote}, {steps} steps");
            at_source += taken[0];
            at_target += taken[1];
            if is_over {
                break;
            }
        }
        assert!(at_source > 1 && at_target > 1, "{at_source} {at_target}");
    }
}
