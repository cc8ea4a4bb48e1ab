//! Topics, everything at once, from a seed: subscribers of all kinds that come, leave, die, read slowly or not at all, producers that
//! flood, shards that stand still. Whatever happened, each subscription that was attached when a message was sent, and matches it,
//! has it exactly once, and those of one producer and topic in the order in which they were sent.

use std::collections::{BTreeMap, BTreeSet};

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{PATTERNS, Random, ReceiverOptions, SenderOptions, Setup, TOPICS, World};

const STEPS: usize = 250;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Own,
    Durable,
    Shared,
    SharedDurable,
}

/// A message, as its producer knows it.
struct Sent {
    topic: usize,
    /// When it was given to the producer's client.
    at: u64,
}

struct Subscription {
    kind: Kind,
    name: String,
    pattern: usize,
    /// Since when its first consumer was attached.
    since: Option<u64>,
    /// Its consumers: client, link, whether it still lives.
    consumers: Vec<(usize, LinkId, bool)>,
    /// A consumer has died on it, with deliveries unsettled: some may come again.
    had_a_death: bool,
    ended: bool,
}

struct Topics {
    world: World,
    random: Random,
    clock: u64,
    producers: Vec<(usize, [LinkId; 3])>,
    sent: Vec<Sent>,
    subscriptions: Vec<Subscription>,
    slow: Option<usize>,
    stalled: Option<usize>,
    names: usize,
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(8)
}

impl Topics {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x70_91c5);
        let shards = 1 + random.below(4);
        let client_window = [3, 50, 2048][random.below(3)];
        let setup = Setup { seed, verify: seed.is_multiple_of(8), client_window, ..Setup::new(shards) };
        let mut world = World::new(&setup);
        let mut producers = Vec::new();
        for n in 0..2 {
            let client = world.connect(random.below(shards));
            let options = SenderOptions { presettled: n == 1, ..SenderOptions::default() };
            let links = [0, 1, 2].map(|topic| {
                let address = format!("topic://{}", TOPICS[topic]);
                world.clients[client].attach_sender(&address, &address, &options)
            });
            producers.push((client, links));
        }
        world.run();
        let (sent, subscriptions) = (Vec::new(), Vec::new());
        Topics {
            world,
            random,
            clock: 0,
            producers,
            sent,
            subscriptions,
            slow: None,
            stalled: None,
            names: 0,
        }
    }

    fn act(&mut self) {
        self.clock += 1;
        match self.random.below(20) {
            0..8 => self.send(),
            8..11 => self.attach(),
            11 => self.leave(),
            12 => self.kill(),
            13 => self.toggle_reading(),
            14 => self.toggle_stall(),
            _ => self.world.advance(1000 * self.random.below(20) as u64),
        }
        for _ in 0..self.random.below(5) {
            self.world.step();
        }
        self.note_attached();
    }

    /// A subscription counts from when its first consumer's attach was answered.
    fn note_attached(&mut self) {
        for subscription in self.subscriptions.iter_mut().filter(|subscription| subscription.since.is_none())
        {
            let attached = |(client, link, lives): &(usize, LinkId, bool)| {
                *lives && self.world.clients[*client].attached.contains(link)
            };
            if subscription.consumers.iter().any(attached) {
                subscription.since = Some(self.clock);
            }
        }
    }

    fn send(&mut self) {
        let which = self.random.below(2);
        let (client, links) = self.producers[which];
        for _ in 0..1 + self.random.below(8) {
            let topic = self.random.below(3);
            let padding = if self.random.one_in(25) { 10_000 * self.random.below(30) } else { 0 };
            let body = format!("{:09}{which}{topic}{}", self.sent.len(), "x".repeat(padding));
            // What was sent in the same action as the answer came may be before it.
            self.sent.push(Sent { topic, at: self.clock });
            self.world.clients[client].send(links[topic], &body);
        }
    }

    /// A consumer for a subscription that is new, or was there before.
    fn attach(&mut self) {
        let kind = [Kind::Own, Kind::Durable, Kind::Shared, Kind::SharedDurable][self.random.below(4)];
        if self.subscriptions.iter().map(|it| it.consumers.len()).sum::<usize>() > 24 {
            return;
        }
        let again = |it: &Subscription| {
            let lives = it.consumers.iter().any(|(.., lives)| *lives);
            let usable = match kind {
                Kind::Own => false,
                Kind::Durable => !lives,
                Kind::Shared => lives && it.since.is_some(),
                Kind::SharedDurable => true,
            };
            it.kind == kind && usable && !it.ended
        };
        let known = self.subscriptions.iter().position(again).filter(|_| self.random.below(3) > 0);
        let which = known.unwrap_or_else(|| {
            self.names += 1;
            let pattern = self.random.below(PATTERNS.len());
            let name = format!("s{}", self.names);
            self.subscriptions.push(Subscription {
                kind,
                name,
                pattern,
                since: None,
                consumers: Vec::new(),
                had_a_death: false,
                ended: false,
            });
            self.subscriptions.len() - 1
        });
        let shards = self.world.shards.len();
        let shard = self.random.below(shards);
        // A shard that stands still does not get to greet anyone in time.
        let shard = if Some(shard) == self.stalled { (shard + 1) % shards } else { shard };
        let client = self.world.connect_as(shard, "mixed");
        let subscription = &mut self.subscriptions[which];
        let shares = matches!(kind, Kind::Shared | Kind::SharedDurable);
        let options = ReceiverOptions {
            durable: matches!(kind, Kind::Durable | Kind::SharedDurable),
            capabilities: if shares { vec!["topic", "shared"] } else { vec!["topic"] },
            ..ReceiverOptions::default()
        };
        let number = if shares { format!("|{}", subscription.consumers.len()) } else { String::new() };
        let name = format!("{}{number}", subscription.name);
        let topic = PATTERNS[subscription.pattern].0;
        self.world.clients[client].accepts = true;
        let link = self.world.clients[client].attach_receiver(&name, topic, &options);
        self.world.clients[client].credit(link, 100_000);
        subscription.consumers.push((client, link, true));
    }

    fn any_consumer(&mut self) -> Option<(usize, usize)> {
        let living: Vec<(usize, usize)> = self
            .subscriptions
            .iter()
            .enumerate()
            .flat_map(|(n, it)| it.consumers.iter().enumerate().map(move |(c, consumer)| (n, c, consumer.2)))
            .filter(|(.., lives)| *lives)
            .map(|(n, c, _)| (n, c))
            .collect();
        (!living.is_empty()).then(|| living[self.random.below(living.len())])
    }

    /// Ends an attachment, not the terminus.
    fn leave(&mut self) {
        self.go(|world, client, link| world.clients[client].suspend(link));
    }

    fn kill(&mut self) {
        self.go(|world, client, _| world.kill(client));
    }

    fn go(&mut self, how: impl FnOnce(&mut World, usize, LinkId)) {
        let Some((which, consumer)) = self.any_consumer() else { return };
        let subscription = &mut self.subscriptions[which];
        let (client, link, lives) = &mut subscription.consumers[consumer];
        // Until it knows that it is attached nobody knows what it is owed.
        if !self.world.clients[*client].attached.contains(link) {
            return;
        }
        *lives = false;
        how(&mut self.world, *client, *link);
        subscription.had_a_death = true;
        let mut living = subscription.consumers.iter().filter(|(.., lives)| *lives).peekable();
        if matches!(subscription.kind, Kind::Own | Kind::Shared) {
            subscription.ended = living.peek().is_none();
            if !living.any(|(client, link, _)| self.world.clients[*client].attached.contains(link)) {
                // Who is on the way may find it gone: then it begins anew.
                subscription.since = None;
            }
        }
    }

    fn toggle_reading(&mut self) {
        if let Some(client) = self.slow.take() {
            self.world.client_reads(client, true);
        } else if let Some((which, consumer)) = self.any_consumer() {
            let client = self.subscriptions[which].consumers[consumer].0;
            self.world.client_reads(client, false);
            self.slow = Some(client);
        }
    }

    fn toggle_stall(&mut self) {
        if let Some(shard) = self.stalled.take() {
            self.world.stall(shard, false);
        } else if self.world.shards.len() > 1 {
            let shard = self.random.below(self.world.shards.len());
            self.world.stall(shard, true);
            self.stalled = Some(shard);
        }
    }

    fn finish(mut self, seed: u64) {
        if let Some(client) = self.slow.take() {
            self.world.client_reads(client, true);
        }
        if let Some(shard) = self.stalled.take() {
            self.world.stall(shard, false);
        }
        self.world.run();
        self.world.advance(3_000_000);
        self.note_attached();
        self.wake_the_durable();
        let answered = self.world.clients[self.producers[0].0].outcomes.iter();
        assert!(answered.clone().all(|(_, outcome)| outcome == "accepted"), "seed {seed}");
        for subscription in &self.subscriptions {
            self.check(subscription, seed);
        }
        self.end_all(seed);
    }

    /// What waits in durable subscriptions without consumers is fetched.
    fn wake_the_durable(&mut self) {
        for which in 0..self.subscriptions.len() {
            let subscription = &mut self.subscriptions[which];
            let lives = subscription.consumers.iter().any(|(.., lives)| *lives);
            if lives || subscription.ended {
                continue;
            }
            let capabilities = match subscription.kind {
                Kind::Durable => vec!["topic"],
                Kind::SharedDurable => vec!["topic", "shared"],
                Kind::Own | Kind::Shared => continue,
            };
            let client = self.world.connect_as(0, "mixed");
            let options = ReceiverOptions { durable: true, capabilities, ..ReceiverOptions::default() };
            let topic = PATTERNS[subscription.pattern].0;
            let link = self.world.clients[client].attach_receiver(&subscription.name, topic, &options);
            self.world.clients[client].accepts = true;
            self.world.clients[client].credit(link, 100_000);
            subscription.consumers.push((client, link, true));
            self.world.run();
        }
    }

    fn check(&self, subscription: &Subscription, seed: u64) {
        let what = format!(
            "seed {seed}, {} {:?} {}",
            subscription.name, subscription.kind, PATTERNS[subscription.pattern].0
        );
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for (client, ..) in &subscription.consumers {
            let mut last: BTreeMap<String, usize> = BTreeMap::new();
            for received in &self.world.clients[*client].received {
                let number: usize = received.body[..9].parse().expect("bodies begin with a number");
                assert!(
                    PATTERNS[subscription.pattern].1[self.sent[number].topic],
                    "{what}: {number} is no match"
                );
                *counts.entry(number).or_default() += 1;
                if received.first_acquirer {
                    // Bodies go on with the producer and the topic.
                    let before = last.insert(received.body[9..11].to_owned(), number);
                    assert!(before < Some(number), "{what}: {number} after {before:?}");
                }
            }
        }
        if !subscription.had_a_death {
            assert!(counts.values().all(|count| *count == 1), "{what}: twice");
        }
        if subscription.ended {
            return;
        }
        let since = subscription.since.expect("all attaches are answered by now");
        let owed: BTreeSet<usize> = (0..self.sent.len())
            .filter(|n| self.sent[*n].at > since && PATTERNS[subscription.pattern].1[self.sent[*n].topic])
            .collect();
        let missing: Vec<usize> = owed.into_iter().filter(|n| !counts.contains_key(n)).take(5).collect();
        assert!(missing.is_empty(), "{what}: {missing:?} are missing");
    }

    /// Nothing is left when everyone has gone.
    fn end_all(mut self, seed: u64) {
        for subscription in &self.subscriptions {
            for (client, link, lives) in &subscription.consumers {
                if *lives {
                    self.world.clients[*client].detach(*link);
                    self.world.run();
                }
            }
        }
        for shard in &self.world.shards {
            assert_eq!((shard.queue_count(), shard.memory_used()), (0, 0), "seed {seed}");
        }
    }
}

#[test]
fn each_subscription_has_what_it_is_owed_whatever_happens() {
    for seed in 0..seeds() {
        let mut topics = Topics::new(seed);
        for _ in 0..STEPS {
            topics.act();
        }
        topics.finish(seed);
    }
}
