//! Transactions that take too long: what they held comes back, and what is said of them afterwards.

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{Item, Operator, ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Outcome, Value};

const SECOND: u64 = 1_000_000;
const TIMEOUT: u64 = 100 * SECOND;

const ACCEPTED: Outcome<'_> = Outcome::Accepted;

/// A client of shard 0 with a coordinator, a sender and a receiver of a queue of the last shard that holds one message, `m`.
struct Stage {
    world: World,
    client: usize,
    coordinator: LinkId,
    sender: LinkId,
    receiver: LinkId,
    queue: String,
}

impl Stage {
    fn new(shards: usize, timeout: u64, outcomes: &[&str]) -> Stage {
        Stage::with(shards, timeout, outcomes, &ReceiverOptions::default())
    }

    fn with(shards: usize, timeout: u64, outcomes: &[&str], options: &ReceiverOptions) -> Stage {
        let setup = Setup { transaction_timeout_us: timeout, idle_timeout_us: None, ..Setup::new(shards) };
        let mut world = World::new(&setup);
        let queue = names_homed_at(shards - 1, shards).next().expect("there is one");
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("s", &queue, &SenderOptions::default());
        world.clients[producer].send(sender, "m");
        world.run();
        let client = world.connect_as(0, "teller");
        let coordinator = world.clients[client].attach_coordinator("txn", outcomes);
        let sender = world.clients[client].attach_sender("s", &queue, &SenderOptions::default());
        let receiver = world.clients[client].attach_receiver("r", &queue, options);
        world.run();
        Stage { world, client, coordinator, sender, receiver, queue }
    }

    fn outcome(&self, token: u64) -> String {
        self.world.clients[self.client].outcome(token).unwrap_or("nothing").to_owned()
    }

    fn refusal(&self) -> &str {
        self.world.clients[self.client].refusals.last().map_or("", |(_, text)| text)
    }

    fn declare(&mut self) -> u32 {
        let token = self.world.clients[self.client].declare(self.coordinator);
        self.world.run();
        let outcome = self.outcome(token);
        outcome.strip_prefix("declared ").expect("there is room").parse().expect("a number")
    }

    fn discharge(&mut self, number: u32, fail: bool) -> String {
        let token = self.world.clients[self.client].discharge(self.coordinator, number, fail);
        self.world.run();
        self.outcome(token)
    }

    fn send_in(&mut self, number: u32, body: &str) -> String {
        let token = self.world.clients[self.client].send_in(self.sender, number, body);
        self.world.run();
        self.outcome(token)
    }

    /// Takes one message.
    fn receive(&mut self) -> u32 {
        self.world.clients[self.client].credit(self.receiver, 1);
        self.world.run();
        self.world.clients[self.client].received.last().expect("there is one").delivery_id
    }

    fn credit_in(&mut self, number: u32, credit: u32) {
        self.world.clients[self.client].credit_in(self.receiver, number, credit);
        self.world.run();
    }

    fn settle_plainly(&mut self, delivery: u32, state: &DeliveryState<'_>) {
        self.world.clients[self.client].settle(self.receiver, delivery, state);
        self.world.run();
    }

    fn settle_in(&mut self, number: u32, delivery: u32) {
        self.world.clients[self.client].settle_in(self.receiver, delivery, number, ACCEPTED);
        self.world.run();
    }

    /// Messages of the queue: all, those pending, those retired, those available.
    fn depth(&self) -> [u64; 4] {
        let shard = &self.world.shards[self.world.home_of(&self.queue)];
        let depth = shard.queue(&self.queue).and_then(|queue| shard.engine().depth(queue));
        let depth = depth.expect("the queue is there");
        [depth.messages, depth.pending, depth.retired, depth.available]
    }

    fn detached(&self) -> &[(LinkId, Option<String>)] {
        &self.world.clients[self.client].detached
    }

    fn timed_out(&self) -> u64 {
        self.world.shards.iter().map(|shard| shard.counters().transactions_timed_out).sum()
    }
}

fn second() -> ReceiverOptions {
    ReceiverOptions { settles_second: true, ..ReceiverOptions::default() }
}

/// Open transactions of the client, and what the oldest of them has held for how long.
fn told(stage: &mut Stage, operator: &mut Operator) -> String {
    let about = [("entityType", Value::String("connection")), ("pattern", Value::String("teller"))];
    let names = [
        "transactions",
        "oldest-transaction-us",
        "oldest-transaction-messages",
        "oldest-transaction-outcomes",
    ];
    let asked = [("attributeNames", Item::Texts(&names))];
    let rows = operator.ask(&mut stage.world, "QUERY", ("", ""), &about, &asked);
    rows.at("results")
}

#[test]
fn what_a_sleeping_client_holds_comes_back() {
    for shards in 1..=3 {
        for fail in [false, true] {
            let mut stage = Stage::new(shards, TIMEOUT, &[]);
            let number = stage.declare();
            let delivery = stage.receive();
            stage.settle_in(number, delivery);
            assert_eq!(stage.send_in(number, "posted"), format!("accepted in {number}"));
            stage.world.advance(TIMEOUT - 1);
            assert_eq!((stage.depth(), stage.timed_out()), ([2, 1, 1, 0], 0));
            stage.world.advance(1);
            assert_eq!((stage.depth(), stage.timed_out()), ([1, 0, 0, 1], 1));
            let warning = &stage.world.warnings[0];
            let told =
                "(\"teller\") took too long, with 1 messages and 1 outcomes: rolled back, and 0 others";
            assert!(stage.world.warnings.len() == 1 && warning.contains(told), "{warning}");

            // Nothing is done in it any more, and its links go on.
            assert_eq!(stage.send_in(number, "late"), "rejected amqp:transaction:timeout");
            let again = stage.receive();
            stage.settle_in(number, again);
            assert_eq!(stage.depth(), [1, 0, 0, 1]);
            if fail {
                // AMQP 1.0 §4.3: a roll-back can always be done.
                assert_eq!(stage.discharge(number, true), "accepted");
            } else {
                assert_eq!(stage.discharge(number, false), "rejected amqp:transaction:timeout");
                assert!(stage.refusal().contains("took too long"), "{}", stage.refusal());
            }
            // It has been told.
            assert_eq!(stage.discharge(number, false), "rejected amqp:transaction:unknown-id");
            assert_eq!(stage.detached(), []);
            let number = stage.declare();
            stage.send_in(number, "next");
            assert_eq!(stage.discharge(number, false), "accepted");
            assert_eq!(stage.depth(), [2, 0, 0, 2]);
            let decided = stage.world.shards[0].counters();
            assert_eq!((decided.transactions_rolled_back, decided.transactions_committed), (1, 1));
            let mut operator = Operator::new(&mut stage.world, 0);
            let shard = operator.ask(&mut stage.world, "READ", ("shard", "0"), &[], &[]);
            let of = |what: &str| shard.at(&format!("transactions-{what}"));
            assert_eq!(["declared", "rolled-back", "timed-out"].map(of), ["2", "1", "1"]);
        }
    }
}

/// A peer that does not understand rejections loses the coordinator's link, with the error.
#[test]
fn who_takes_no_rejections_is_told_by_the_end_of_the_link() {
    let mut stage = Stage::new(2, TIMEOUT, &["amqp:accepted:list"]);
    let number = stage.declare();
    stage.send_in(number, "posted");
    stage.world.advance(TIMEOUT);
    assert_eq!(stage.detached(), []);
    stage.discharge(number, false);
    assert_eq!(stage.detached(), [(stage.coordinator, Some("amqp:transaction:timeout".to_owned()))]);
    assert_eq!(stage.depth(), [1, 0, 0, 1]);
}

/// Outcomes that the peer has not settled, and deliveries that were sent inside the transaction.
#[test]
fn what_is_noted_or_acquired_counts_from_then_on() {
    for acquires in [false, true] {
        let mut stage = Stage::with(2, TIMEOUT, &[], &second());
        let number = stage.declare();
        stage.world.advance(10 * TIMEOUT);
        assert_eq!(stage.timed_out(), 0, "without work it holds nothing");
        if acquires {
            stage.credit_in(number, 1);
        } else {
            let delivery = stage.receive();
            stage.settle_in(number, delivery);
            assert_eq!(stage.depth(), [1, 0, 0, 0], "the peer has not settled it");
        }
        stage.world.advance(TIMEOUT - 1);
        assert_eq!(stage.timed_out(), 0);
        stage.world.advance(1);
        assert_eq!(stage.timed_out(), 1, "acquires: {acquires}");
        assert_eq!(stage.discharge(number, false), "rejected amqp:transaction:timeout");
    }
}

#[test]
fn each_transaction_has_its_time_and_none_where_it_is_turned_off() {
    let mut stage = Stage::new(2, TIMEOUT, &[]);
    let [first, second, idle] = [0; 3].map(|_| stage.declare());
    stage.send_in(first, "first");
    stage.world.advance(TIMEOUT / 2);
    stage.send_in(second, "second");
    stage.world.advance(TIMEOUT / 2);
    assert_eq!(stage.timed_out(), 1);
    assert_eq!(stage.discharge(first, false), "rejected amqp:transaction:timeout");
    stage.world.advance(TIMEOUT / 2 - 1);
    assert_eq!(stage.timed_out(), 1);
    stage.send_in(second, "more");
    stage.world.advance(1);
    assert_eq!(stage.timed_out(), 2);
    stage.send_in(idle, "idle");
    assert_eq!(stage.discharge(idle, false), "accepted");
    // One that is declared when all have ended is watched as the first one was.
    stage.world.advance(10 * TIMEOUT);
    let last = stage.declare();
    stage.send_in(last, "last");
    stage.world.advance(TIMEOUT);
    assert_eq!(stage.timed_out(), 3);

    let mut stage = Stage::new(2, 0, &[]);
    let number = stage.declare();
    stage.send_in(number, "posted");
    stage.world.advance(1_000 * TIMEOUT);
    assert_eq!(stage.discharge(number, false), "accepted");
}

#[test]
fn a_shard_that_stands_still_is_waited_for() {
    let mut stage = Stage::new(2, TIMEOUT, &[]);
    let number = stage.declare();
    stage.send_in(number, "first");
    stage.world.stall(1, true);
    stage.send_in(number, "second");
    stage.world.advance(TIMEOUT);
    assert_eq!((stage.timed_out(), stage.depth()), (1, [2, 1, 0, 1]));
    stage.world.stall(1, false);
    stage.world.run();
    assert_eq!(stage.depth(), [1, 0, 0, 1]);
    assert_eq!(stage.world.shards[1].participation_count(), 0);
    assert_eq!(stage.discharge(number, false), "rejected amqp:transaction:timeout");
}

#[test]
fn an_operator_sees_what_transactions_hold() {
    let mut stage = Stage::new(2, TIMEOUT, &[]);
    let mut operator = Operator::new(&mut stage.world, 1);
    let mut check = |stage: &mut Stage, expect: &str| {
        assert_eq!(told(stage, &mut operator), format!("[{expect}]"));
    };
    check(&mut stage, "[0, null, null, null]");
    let [first, second] = [0; 2].map(|_| stage.declare());
    check(&mut stage, "[2, null, null, null]");
    stage.send_in(second, "one");
    stage.world.advance(SECOND);
    let delivery = stage.receive();
    stage.settle_in(second, delivery);
    stage.send_in(second, "two");
    stage.send_in(first, "three");
    stage.world.advance(SECOND);
    check(&mut stage, "[2, 2000000, 2, 1]");
    stage.discharge(second, false);
    check(&mut stage, "[1, 1000000, 1, 0]");
    stage.discharge(first, true);
    check(&mut stage, "[0, null, null, null]");
}

/// What a message was refused for is not held, and an outcome that is said twice is one.
#[test]
fn an_operator_sees_no_more_than_they_hold() {
    let mut stage = Stage::with(2, TIMEOUT, &[], &second());
    let mut operator = Operator::new(&mut stage.world, 1);
    let mut check = |stage: &mut Stage, expect: &str| {
        assert_eq!(told(stage, &mut operator), format!("[{expect}]"));
    };
    let number = stage.declare();
    stage.world.clients[stage.client].send_bytes_in(stage.sender, number, b"no message");
    stage.world.run();
    check(&mut stage, "[1, null, null, null]");
    let delivery = stage.receive();
    for _ in 0..2 {
        stage.settle_in(number, delivery);
        check(&mut stage, "[1, 0, 0, 1]");
    }
    stage.settle_plainly(delivery, &DeliveryState::Released);
    check(&mut stage, "[1, 0, 0, 0]");

    // A message for a topic is one, on however many shards its subscriptions are.
    for shard in 0..2 {
        let subscriber = stage.world.connect(shard);
        let options = ReceiverOptions::default();
        stage.world.clients[subscriber].attach_receiver("news", "topic://news", &options);
    }
    let client = &mut stage.world.clients[stage.client];
    let sender = client.attach_sender("news", "topic://news", &SenderOptions::default());
    stage.world.run();
    stage.world.clients[stage.client].send_in(sender, number, "for all");
    stage.world.run();
    check(&mut stage, "[1, 0, 1, 0]");
}

/// The peer does not know yet that it is over. What it granted inside is not used outside: sent settled, it could not come back.
#[test]
fn links_that_acquire_in_it_end_with_it() {
    for shards in [1, 2] {
        for presettled in [false, true] {
            let options = ReceiverOptions { presettled, ..ReceiverOptions::default() };
            let mut stage = Stage::with(shards, TIMEOUT, &[], &options);
            let number = stage.declare();
            stage.credit_in(number, 3);
            assert_eq!(stage.world.clients[stage.client].received.len(), 1);
            stage.world.advance(TIMEOUT);
            assert_eq!(stage.depth(), [1, 0, 0, 1], "{shards} shards, settled {presettled}");
            let timeout = Some("amqp:transaction:timeout".to_owned());
            assert_eq!(stage.detached(), [(stage.receiver, timeout)]);
            stage.world.clients[stage.client].send(stage.sender, "next");
            stage.world.run();
            assert_eq!(stage.world.clients[stage.client].received.len(), 1);
            assert_eq!(stage.discharge(number, false), "rejected amqp:transaction:timeout");
            assert_eq!(stage.depth(), [2, 0, 0, 2]);
        }
    }
}

/// While the roll-back waits for a shard, the peer says again what it has not settled: that is still its consumer's afterwards.
#[test]
fn what_is_not_settled_waits_for_the_roll_back() {
    let mut stage = Stage::with(2, TIMEOUT, &[], &second());
    let number = stage.declare();
    let delivery = stage.receive();
    stage.settle_in(number, delivery);
    stage.world.stall(1, true);
    stage.send_in(number, "waits");
    stage.world.advance(TIMEOUT);
    stage.settle_in(number, delivery);
    stage.world.stall(1, false);
    stage.world.run();
    assert_eq!((stage.timed_out(), stage.depth()), (1, [1, 0, 0, 0]));
    stage.settle_plainly(delivery, &DeliveryState::Accepted);
    assert_eq!(stage.depth(), [0, 0, 0, 0]);
}

/// The same of one that was sent inside the transaction, on a link that has left it since: it goes back, and the peer hears of it.
#[test]
fn what_was_acquired_goes_back_with_the_roll_back() {
    let mut stage = Stage::with(2, TIMEOUT, &[], &second());
    let [number, other] = [0; 2].map(|_| stage.declare());
    stage.credit_in(number, 1);
    stage.credit_in(other, 0);
    let delivery = stage.world.clients[stage.client].received[0].delivery_id;
    stage.world.stall(1, true);
    stage.send_in(number, "waits");
    stage.world.advance(TIMEOUT);
    stage.settle_in(number, delivery);
    stage.world.stall(1, false);
    stage.world.run();
    assert_eq!((stage.timed_out(), stage.depth()), (1, [1, 0, 0, 1]));
    assert!(!stage.world.clients[stage.client].is_unsettled(stage.receiver, delivery));
    assert_eq!(stage.detached(), []);
}

/// A delivery that has an outcome in an open transaction is not taken out of that behind the peer's back.
#[test]
fn an_outcome_in_it_breaks_the_transaction_that_the_delivery_is_in() {
    let mut stage = Stage::with(2, TIMEOUT, &[], &second());
    let late = stage.declare();
    stage.send_in(late, "posted");
    stage.world.advance(TIMEOUT);
    let other = stage.declare();
    let delivery = stage.receive();
    stage.settle_in(other, delivery);
    stage.settle_in(late, delivery);
    let rollback = Some("amqp:transaction:rollback".to_owned());
    assert_eq!(stage.detached(), [(stage.coordinator, rollback)]);
    assert_eq!(stage.depth(), [1, 0, 0, 0]);
    stage.settle_plainly(delivery, &DeliveryState::Accepted);
    assert_eq!(stage.depth(), [0, 0, 0, 0]);
}

#[test]
fn connections_that_are_gone_are_not_watched() {
    let mut stage = Stage::new(1, TIMEOUT, &[]);
    for closes in [false, true] {
        let client = stage.world.connect(0);
        let coordinator = stage.world.clients[client].attach_coordinator("txn", &[]);
        stage.world.run();
        stage.world.clients[client].declare(coordinator);
        stage.world.run();
        assert_eq!(stage.world.shards[0].watched_count(), 1);
        if closes {
            stage.world.clients[client].close();
        } else {
            stage.world.kill(client);
        }
        stage.world.run();
        assert_eq!(stage.world.shards[0].watched_count(), 0, "closes: {closes}");
    }
}
