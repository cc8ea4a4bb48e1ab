//! Topics: who gets a message, for how long subscriptions live, and what producers hear, over one to four shards.

use corelane_protocol::amqp10::LinkId;
use corelane_shard::{DestinationRule, OverflowRule};
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{Header, Properties, Value};

fn world(shards: usize, seed: u64) -> World {
    World::new(&Setup { seed, ..Setup::new(shards) })
}

fn shared(durable: bool, global: bool) -> ReceiverOptions {
    let mut capabilities = vec!["topic", "shared"];
    capabilities.extend(global.then_some("global"));
    ReceiverOptions { durable, capabilities, ..ReceiverOptions::default() }
}

fn durable() -> ReceiverOptions {
    ReceiverOptions { durable: true, ..ReceiverOptions::default() }
}

/// A receiver with much credit, attached.
fn subscribe(world: &mut World, client: usize, name: &str, topic: &str, options: &ReceiverOptions) -> LinkId {
    let link = world.clients[client].attach_receiver(name, topic, options);
    world.clients[client].credit(link, 10_000);
    world.clients[client].accepts = true;
    world.run();
    link
}

fn publish(world: &mut World, client: usize, topic: &str, bodies: &[&str]) -> LinkId {
    let name = format!("p{}", world.clients[client].attached.len());
    let sender = world.clients[client].attach_sender(&name, topic, &SenderOptions::default());
    for body in bodies {
        world.clients[client].send(sender, body);
    }
    world.run();
    sender
}

/// The error that a link was detached with.
fn error_of(world: &World, client: usize, link: LinkId) -> Option<&str> {
    let mut detached = world.clients[client].detached.iter().rev();
    detached.find(|(other, _)| *other == link)?.1.as_deref()
}

fn queue_count(world: &World) -> usize {
    world.shards.iter().map(corelane_shard::Shard::queue_count).sum()
}

/// Nothing is counted as memory when no queue has a message.
fn check_memory(world: &World) {
    for shard in &world.shards {
        assert_eq!(shard.memory_used(), 0);
    }
}

#[test]
fn each_subscription_that_matches_gets_a_message_once() {
    for shards in 1..=4 {
        for seed in 0..5 {
            let mut world = world(shards, seed);
            let patterns = ["news.eu", "news.*", "news.#", "news.>", "#", "news", "*.eu", "news.us"];
            let subscribers: Vec<(usize, LinkId)> = patterns
                .iter()
                .enumerate()
                .map(|(n, pattern)| {
                    let client = world.connect(n % shards);
                    let address = format!("topic://{pattern}");
                    (client, subscribe(&mut world, client, "s", &address, &ReceiverOptions::default()))
                })
                .collect();
            let producer = world.connect(seed as usize % shards);
            publish(&mut world, producer, "topic://news.eu", &["1", "2"]);
            publish(&mut world, producer, "/topics/news", &["3"]);
            let expect: [&[&str]; 8] = [
                &["1", "2"],
                &["1", "2"],
                &["1", "2", "3"],
                &["1", "2"],
                &["1", "2", "3"],
                &["3"],
                &["1", "2"],
                &[],
            ];
            for (((client, link), pattern), expect) in subscribers.iter().zip(patterns).zip(expect) {
                assert_eq!(world.clients[*client].bodies(*link), expect, "{pattern}, {shards} shards");
            }
            let outcomes: Vec<&str> = world.clients[producer].outcomes.iter().map(|(_, it)| &**it).collect();
            assert_eq!(outcomes, ["accepted"; 3]);
            check_memory(&world);
        }
    }
}

#[test]
fn a_message_that_nobody_has_subscribed_to_is_accepted() {
    let mut world = world(2, 1);
    let producer = world.connect(0);
    publish(&mut world, producer, "topic://nobody", &["1"]);
    assert_eq!(world.clients[producer].outcomes, [(1, "accepted".to_owned())]);
}

#[test]
fn capabilities_and_rules_say_that_a_plain_name_is_a_topic() {
    let rule = DestinationRule { pattern: "news.>".into(), topic: Some(true), ..DestinationRule::default() };
    let mut world = World::new(&Setup { rules: vec![rule], ..Setup::new(2) });
    let client = world.connect(0);
    let by_rule = subscribe(&mut world, client, "rule", "news.*", &ReceiverOptions::default());
    let topic = ReceiverOptions { capabilities: vec!["topic"], ..ReceiverOptions::default() };
    let by_capability = subscribe(&mut world, client, "capability", "weather", &topic);
    let producer = world.connect(1);
    publish(&mut world, producer, "news.eu", &["1"]);
    let topic = SenderOptions { capabilities: vec!["topic"], ..SenderOptions::default() };
    let sender = world.clients[producer].attach_sender("weather", "weather", &topic);
    world.clients[producer].send(sender, "2");
    world.run();
    assert_eq!(world.clients[client].bodies(by_rule), ["1"]);
    assert_eq!(world.clients[client].bodies(by_capability), ["2"]);
    // What is called a queue is one.
    let queue = SenderOptions { capabilities: vec!["queue"], ..SenderOptions::default() };
    let sender = world.clients[producer].attach_sender("queue", "news.eu", &queue);
    world.clients[producer].send(sender, "3");
    world.run();
    assert!(world.shards.iter().any(|shard| shard.queue("news.eu").is_some()));
    assert_eq!(world.clients[client].bodies(by_rule), ["1"]);
}

#[test]
fn producers_have_no_patterns_and_subscribers_none_that_are_malformed() {
    let mut world = world(1, 1);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "topic://news.*", &SenderOptions::default());
    world.run();
    assert_eq!(error_of(&world, client, sender), Some("amqp:invalid-field"));
    for pattern in ["topic://news.>.eu", "topic://news..eu", "topic://ne*s"] {
        let link = world.clients[client].attach_receiver(pattern, pattern, &ReceiverOptions::default());
        world.run();
        assert_eq!(error_of(&world, client, link), Some("amqp:invalid-field"), "{pattern}");
    }
}

#[test]
fn a_message_to_a_topic_by_its_to_is_fanned_out() {
    for shards in 1..=3 {
        let mut world = world(shards, 1);
        let client = world.connect(0);
        let first = subscribe(&mut world, client, "1", "topic://news", &ReceiverOptions::default());
        let other = world.connect(shards - 1);
        let second = subscribe(&mut world, other, "2", "topic://news", &ReceiverOptions::default());
        let producer = world.connect(0);
        let anonymous = SenderOptions { anonymous: true, ..SenderOptions::default() };
        let sender = world.clients[producer].attach_sender("s", "", &anonymous);
        for (to, body) in [("topic://news", "1"), ("topic://news.*", "2")] {
            let properties = Properties { to: Some(to), ..Properties::default() };
            world.clients[producer].send_with(sender, body, &properties, &[], &Header::default());
        }
        world.run();
        assert_eq!(world.clients[client].bodies(first), ["1"]);
        assert_eq!(world.clients[other].bodies(second), ["1"]);
        let mut outcomes = world.clients[producer].outcomes.clone();
        outcomes.sort();
        let outcomes: Vec<&str> = outcomes.iter().map(|(_, outcome)| &**outcome).collect();
        assert_eq!(outcomes, ["accepted", "rejected amqp:precondition-failed"]);
    }
}

#[test]
fn selectors_and_no_local_keep_messages_out_of_the_subscription() {
    for shards in 1..=3 {
        let mut world = world(shards, 1);
        let client = world.connect(0);
        let selective = ReceiverOptions { selector: Some("kind = 'a'".into()), ..ReceiverOptions::default() };
        let selective = subscribe(&mut world, client, "selective", "topic://t", &selective);
        let not_mine = ReceiverOptions { no_local: true, ..ReceiverOptions::default() };
        let not_mine = subscribe(&mut world, client, "not mine", "topic://t", &not_mine);
        let other = world.connect(shards - 1);
        for (publisher, prefix) in [(client, "own"), (other, "other")] {
            let sender = world.clients[publisher].attach_sender("p", "topic://t", &SenderOptions::default());
            for kind in ["a", "b"] {
                let application = [("kind", Value::String(kind))];
                let body = format!("{prefix} {kind}");
                let (properties, header) = (Properties::default(), Header::default());
                world.clients[publisher].send_with(sender, &body, &properties, &application, &header);
            }
            world.run();
        }
        assert_eq!(world.clients[client].bodies(selective), ["own a", "other a"]);
        assert_eq!(world.clients[client].bodies(not_mine), ["other a", "other b"]);
        check_memory(&world);
    }
}

#[test]
fn a_subscription_of_its_links_life_ends_with_it_however_that_ends() {
    for shards in 1..=3 {
        for ending in 0..3 {
            let mut world = world(shards, 1);
            let client = world.connect(shards - 1);
            let link = world.clients[client].attach_receiver("s", "topic://t", &ReceiverOptions::default());
            world.run();
            assert_eq!(queue_count(&world), 1);
            let producer = world.connect(0);
            publish(&mut world, producer, "topic://t", &["1", "2"]);
            match ending {
                0 => world.clients[client].detach(link),
                1 => world.clients[client].suspend(link),
                _ => world.kill(client),
            }
            world.run();
            assert_eq!(queue_count(&world), 0, "ending {ending}");
            publish(&mut world, producer, "topic://t", &["3"]);
            assert_eq!(world.clients[producer].outcomes.len(), 3);
            check_memory(&world);
        }
    }
}

#[test]
fn a_durable_subscription_gets_what_is_published_while_nobody_listens() {
    for shards in 1..=4 {
        for ending in 0..2 {
            let mut world = world(shards, 1);
            let client = world.connect_as(shards - 1, "c1");
            let link = subscribe(&mut world, client, "sub", "topic://t", &durable());
            let producer = world.connect(0);
            publish(&mut world, producer, "topic://t", &["1"]);
            assert_eq!(world.clients[client].bodies(link), ["1"]);
            if ending == 0 {
                world.clients[client].suspend(link)
            } else {
                world.kill(client)
            }
            world.run();
            publish(&mut world, producer, "topic://t", &["2", "3"]);
            let again = world.connect_as(0, "c1");
            let link = subscribe(&mut world, again, "sub", "topic://t", &durable());
            assert_eq!(world.clients[again].bodies(link), ["2", "3"]);
            // Another container's of that name is another one, and so is another link's.
            let other = world.connect_as(0, "c2");
            let of_other = subscribe(&mut world, other, "sub", "topic://t", &durable());
            let second = subscribe(&mut world, again, "sub2", "topic://t", &durable());
            assert_eq!(queue_count(&world), 3);
            publish(&mut world, producer, "topic://t", &["4"]);
            assert_eq!(world.clients[again].bodies(link), ["2", "3", "4"]);
            assert_eq!(world.clients[other].bodies(of_other), ["4"]);
            assert_eq!(world.clients[again].bodies(second), ["4"]);
            // The terminus is closed.
            world.clients[again].detach(link);
            world.run();
            assert_eq!(queue_count(&world), 2);
            check_memory(&world);
        }
    }
}

#[test]
fn unsubscribing_asks_for_the_source_and_closes_the_link() {
    for shards in 1..=4 {
        let mut world = world(shards, 1);
        let client = world.connect_as(0, "c1");
        let link = subscribe(&mut world, client, "sub", "topic://t", &durable());
        let other = world.connect_as(shards - 1, "c1");
        let early = world.clients[other].attach_unsubscriber("sub", &[]);
        world.run();
        assert_eq!(error_of(&world, other, early), Some("amqp:resource-locked"));
        world.clients[client].suspend(link);
        world.run();
        let unsubscriber = world.clients[other].attach_unsubscriber("sub", &[]);
        world.run();
        let found = (unsubscriber, "topic://t".to_owned());
        assert_eq!(world.clients[other].addresses.last(), Some(&found));
        assert_eq!(queue_count(&world), 1, "it is looked at until the link is closed");
        world.clients[other].detach(unsubscriber);
        world.run();
        assert_eq!(queue_count(&world), 0);
        let unknown = world.clients[other].attach_unsubscriber("sub", &[]);
        world.run();
        assert_eq!(error_of(&world, other, unknown), Some("amqp:not-found"));
    }
}

#[test]
fn a_durable_subscriptions_link_is_where_it_was_attached_last() {
    for shards in 1..=4 {
        let mut world = world(shards, 1);
        let old = world.connect_as(0, "c1");
        let first = world.clients[old].attach_receiver("sub", "topic://t", &durable());
        world.clients[old].credit(first, 1);
        world.run();
        let producer = world.connect(0);
        publish(&mut world, producer, "topic://t", &["1", "2"]);
        assert_eq!(world.clients[old].bodies(first), ["1"]);
        let new = world.connect_as(shards - 1, "c1");
        let second = subscribe(&mut world, new, "sub", "topic://t", &durable());
        assert_eq!(error_of(&world, old, first), Some("amqp:link:stolen"));
        assert_eq!(world.clients[new].bodies(second), ["1", "2"]);
        assert_eq!(queue_count(&world), 1);
        check_memory(&world);
    }
}

#[test]
fn other_terms_make_another_subscription_of_a_durable_one_that_is_not_in_use() {
    for shards in 1..=4 {
        for seed in 0..4 {
            let mut world = world(shards, seed);
            let client = world.connect_as(0, "c1");
            let link = subscribe(&mut world, client, "sub", "topic://t", &durable());
            let other = world.connect_as(shards - 1, "c1");
            let refused = world.clients[other].attach_receiver("sub", "topic://u", &durable());
            world.run();
            assert_eq!(error_of(&world, other, refused), Some("amqp:resource-locked"));
            world.clients[client].suspend(link);
            world.run();
            let producer = world.connect(0);
            publish(&mut world, producer, "topic://t", &["1"]);
            let selective = ReceiverOptions { selector: Some("a = 1".into()), ..durable() };
            let link = subscribe(&mut world, client, "sub", "topic://t", &selective);
            publish(&mut world, producer, "topic://t", &["2"]);
            assert!(world.clients[client].bodies(link).is_empty());
            world.clients[client].suspend(link);
            world.run();
            let link = subscribe(&mut world, client, "sub", "topic://u", &durable());
            publish(&mut world, producer, "topic://t", &["3"]);
            publish(&mut world, producer, "topic://u", &["4"]);
            assert_eq!(world.clients[client].bodies(link), ["4"]);
            assert_eq!(queue_count(&world), 1);
            check_memory(&world);
        }
    }
}

/// One queue for two connections, of one container or of any; it ends only when nobody uses it.
#[test]
fn a_shared_durable_subscription_is_balanced_and_ends_when_unused() {
    for shards in 1..=4 {
        for global in [false, true] {
            let mut world = world(shards, 1);
            let names: [&str; 2] = if global { ["sub|global", "sub|global2"] } else { ["sub", "sub|2"] };
            let containers = if global { ["c1", "c2"] } else { ["c1", "c1"] };
            let options = shared(true, global);
            let clients = [world.connect_as(0, containers[0]), world.connect_as(shards - 1, containers[1])];
            let links = [0, 1].map(|n| subscribe(&mut world, clients[n], names[n], "topic://t", &options));
            assert_eq!(queue_count(&world), 1);
            let producer = world.connect(0);
            let bodies: Vec<String> = (0..100).map(|n| n.to_string()).collect();
            let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
            publish(&mut world, producer, "topic://t", &bodies);
            let counts = [0, 1].map(|n| world.clients[clients[n]].bodies(links[n]).len());
            assert_eq!(counts[0] + counts[1], 100);
            assert!(counts.iter().all(|count| *count >= 25), "{counts:?}");

            let capabilities: &[&str] = if global { &["shared", "global"] } else { &[] };
            let locked = world.clients[clients[0]].attach_unsubscriber("sub|x", capabilities);
            world.run();
            assert_eq!(error_of(&world, clients[0], locked), Some("amqp:resource-locked"));
            let refused =
                world.clients[clients[0]].attach_receiver(&format!("{}3", names[1]), "topic://u", &options);
            world.run();
            assert_eq!(error_of(&world, clients[0], refused), Some("amqp:resource-locked"));
            for n in [0, 1] {
                world.clients[clients[n]].suspend(links[n]);
                world.run();
            }
            publish(&mut world, producer, "topic://t", &["kept"]);
            assert_eq!(queue_count(&world), 1);
            let link = subscribe(&mut world, clients[1], names[1], "topic://t", &options);
            assert_eq!(world.clients[clients[1]].bodies(link).last(), Some(&"kept"));
            world.clients[clients[1]].suspend(link);
            world.run();
            let unsubscriber = world.clients[clients[0]].attach_unsubscriber(names[0], capabilities);
            world.run();
            world.clients[clients[0]].detach(unsubscriber);
            world.run();
            assert_eq!(queue_count(&world), 0);
            check_memory(&world);
        }
    }
}

#[test]
fn a_shared_subscription_that_is_not_durable_ends_with_its_last_consumer() {
    for shards in 1..=4 {
        let mut world = world(shards, 1);
        let clients = [world.connect_as(0, "c1"), world.connect_as(shards - 1, "c1")];
        let options = shared(false, false);
        let names = ["sub|volatile1", "sub|volatile2"];
        let links = [0, 1].map(|n| subscribe(&mut world, clients[n], names[n], "topic://t", &options));
        // A durable one of that name is another.
        let durable = subscribe(&mut world, clients[0], "sub", "topic://t", &shared(true, false));
        assert_eq!(queue_count(&world), 2);
        let producer = world.connect(0);
        publish(&mut world, producer, "topic://t", &["1", "2"]);
        let counts = [0, 1].map(|n| world.clients[clients[n]].bodies(links[n]).len());
        assert_eq!(counts, [1, 1]);
        assert_eq!(world.clients[clients[0]].bodies(durable), ["1", "2"]);
        world.clients[clients[0]].detach(links[0]);
        world.run();
        assert_eq!(queue_count(&world), 2);
        world.kill(clients[1]);
        world.run();
        assert_eq!(queue_count(&world), 1);
        check_memory(&world);
    }
}

#[test]
fn a_temporary_topic_lives_as_long_as_its_link() {
    for shards in 1..=4 {
        for by_source in [false, true] {
            let mut world = world(shards, 1);
            let owner = world.connect(0);
            let capabilities = vec!["temporary-topic"];
            let link = if by_source {
                let options = ReceiverOptions { dynamic: true, capabilities, ..ReceiverOptions::default() };
                world.clients[owner].attach_receiver("t", "", &options)
            } else {
                let options = SenderOptions { dynamic: true, capabilities, ..SenderOptions::default() };
                world.clients[owner].attach_sender("t", "", &options)
            };
            world.run();
            let (_, address) = world.clients[owner].addresses[0].clone();
            let subscriber = world.connect(shards - 1);
            let subscription = subscribe(&mut world, subscriber, "s", &address, &ReceiverOptions::default());
            let producer = world.connect(shards / 2);
            let sender = publish(&mut world, producer, &address, &["1", "2"]);
            assert_eq!(world.clients[subscriber].bodies(subscription), ["1", "2"]);
            world.clients[owner].detach(link);
            world.run();
            assert_eq!(error_of(&world, subscriber, subscription), Some("amqp:resource-deleted"));
            world.clients[producer].send(sender, "3");
            world.run();
            let last = world.clients[producer].outcomes.last().map(|(_, outcome)| &**outcome);
            assert_eq!(last, Some("rejected amqp:not-found"));
            let late = world.clients[producer].attach_sender("late", &address, &SenderOptions::default());
            world.run();
            assert_eq!(error_of(&world, producer, late), Some("amqp:not-found"));
            assert_eq!(queue_count(&world), 0);
            check_memory(&world);
        }
    }
}

/// A producer floods a topic whose slow subscriber takes nothing; a fast one, everywhere, gets all of it in order, memory is
/// bounded by what is shared, and the slow one gets all of it later.
#[test]
fn a_slow_subscriber_slows_nobody_down() {
    for shards in [1, 2, 4] {
        for seed in 0..2 {
            let mut world = world(shards, seed);
            let slow = world.connect(0);
            let waiting =
                world.clients[slow].attach_receiver("slow", "topic://t", &ReceiverOptions::default());
            world.clients[slow].accepts = true;
            let fast: Vec<(usize, LinkId)> = (0..shards)
                .map(|shard| {
                    let client = world.connect(shard);
                    (client, subscribe(&mut world, client, "fast", "topic://#", &ReceiverOptions::default()))
                })
                .collect();
            let producer = world.connect(shards - 1);
            let bodies: Vec<String> = (0..1500).map(|n| format!("{n:0100}")).collect();
            let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
            publish(&mut world, producer, "topic://t", &bodies);
            assert_eq!(world.clients[producer].outcomes.len(), 1500);
            for (client, link) in fast {
                assert!(world.clients[client].bodies(link) == bodies, "in order, all of them");
            }
            world.clients[slow].credit(waiting, 10_000);
            world.run();
            assert!(world.clients[slow].bodies(waiting) == bodies);
            check_memory(&world);
        }
    }
}

/// A producer's connection moves to the home of its first consumer's queue: what is near and far is different from there.
#[test]
fn a_producer_on_a_topic_moves_with_its_connection() {
    for seed in 0..10 {
        let mut world = world(3, seed);
        let subscribers: Vec<(usize, LinkId)> = (0..3)
            .map(|shard| {
                let client = world.connect(shard);
                (client, subscribe(&mut world, client, "s", "topic://t", &ReceiverOptions::default()))
            })
            .collect();
        let producer = world.connect(0);
        let sender = publish(&mut world, producer, "topic://t", &["1", "2"]);
        let queue = names_homed_at(2, 3).next().expect("there is one for each shard");
        world.clients[producer].attach_receiver("r", &queue, &ReceiverOptions::default());
        for n in 3..50 {
            world.clients[producer].send(sender, &n.to_string());
        }
        world.run();
        assert_eq!(world.shard_of(producer), 2);
        let expect: Vec<String> = (1..50).map(|n| n.to_string()).collect();
        for (client, link) in subscribers {
            assert_eq!(world.clients[client].bodies(link), expect, "seed {seed}");
        }
        assert_eq!(world.clients[producer].outcomes.len(), 49);
    }
}

#[test]
fn a_body_counts_once_for_all_entries_of_a_shard() {
    let mut world = world(1, 1);
    let client = world.connect(0);
    for n in 0..10 {
        let name = n.to_string();
        world.clients[client].attach_receiver(&name, "topic://t", &ReceiverOptions::default());
    }
    world.run();
    let producer = world.connect(0);
    publish(&mut world, producer, "topic://t", &[&"x".repeat(10_000)]);
    let used = world.shards[0].memory_used();
    assert!((10_000..15_000).contains(&used), "{used}");
}

#[test]
fn one_full_subscription_refuses_and_the_others_keep_the_message() {
    for shards in [1, 2, 3] {
        let rule = DestinationRule {
            messages_max: Some(1),
            ..DestinationRule { pattern: "full.*".into(), ..DestinationRule::default() }
        };
        let mut world = World::new(&Setup { rules: vec![rule], ..Setup::new(shards) });
        let client = world.connect(0);
        let wide = subscribe(&mut world, client, "wide", "topic://>", &ReceiverOptions::default());
        let other = world.connect(shards - 1);
        world.clients[other].attach_receiver("full", "topic://full.t", &ReceiverOptions::default());
        world.run();
        let producer = world.connect(0);
        publish(&mut world, producer, "topic://full.t", &["1", "2"]);
        let outcomes: Vec<&str> = world.clients[producer].outcomes.iter().map(|(_, it)| &**it).collect();
        assert_eq!(outcomes, ["accepted", "rejected amqp:resource-limit-exceeded"]);
        assert_eq!(world.clients[client].bodies(wide), ["1", "2"]);
        let presettled = SenderOptions { presettled: true, ..SenderOptions::default() };
        let sender = world.clients[producer].attach_sender("p", "topic://full.t", &presettled);
        for n in 3..6 {
            world.clients[producer].send(sender, &n.to_string());
        }
        world.run();
        assert_eq!(world.clients[client].bodies(wide), ["1", "2", "3", "4", "5"]);
        assert_eq!(error_of(&world, producer, sender), None);
    }
}

/// A producer on a topic waits for a full subscription that makes producers wait, and loses nothing.
#[test]
fn a_full_subscription_may_make_producers_wait() {
    for shards in [1, 3] {
        let rule = DestinationRule {
            pattern: "full.*".into(),
            messages_max: Some(10),
            overflow: Some(OverflowRule::Block),
            ..DestinationRule::default()
        };
        let mut world = World::new(&Setup { rules: vec![rule], ..Setup::new(shards) });
        let client = world.connect(0);
        let wide = subscribe(&mut world, client, "wide", "topic://>", &ReceiverOptions::default());
        let other = world.connect(shards - 1);
        world.clients[other].accepts = true;
        let full =
            world.clients[other].attach_receiver("full", "topic://full.t", &ReceiverOptions::default());
        world.run();
        let producer = world.connect(0);
        let bodies: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        publish(&mut world, producer, "topic://full.t", &bodies);
        let accepted = world.clients[producer].outcomes.len();
        assert!(accepted <= 1500, "{accepted}");
        world.clients[other].credit(full, 10_000);
        world.run();
        assert!(world.clients[other].bodies(full) == bodies);
        assert!(world.clients[client].bodies(wide) == bodies);
    }
}

#[test]
fn a_topics_expiration_is_applied_and_a_subscriptions_own_wins() {
    let rule = |pattern: &str, expiration_us| DestinationRule {
        pattern: pattern.into(),
        expiration_us: Some(expiration_us),
        ..DestinationRule::default()
    };
    for shards in [1, 2] {
        let rules = vec![rule("t.short", 10_000), rule("t.*", 50_000), rule("u.*", 0)];
        let mut world = World::new(&Setup { rules, ..Setup::new(shards) });
        let client = world.connect(0);
        let of_topic = world.clients[client].attach_receiver("1", "topic://#", &ReceiverOptions::default());
        let of_its_own =
            world.clients[client].attach_receiver("2", "topic://t.*", &ReceiverOptions::default());
        world.run();
        let producer = world.connect(shards - 1);
        publish(&mut world, producer, "topic://t.short", &["short"]);
        let sender = publish(&mut world, producer, "topic://u.x", &[]);
        let header = Header { ttl: Some(5), ..Header::default() };
        world.clients[producer].send_with(sender, "never", &Properties::default(), &[], &header);
        world.run();
        world.advance(20_000);
        world.clients[client].credit(of_topic, 10);
        world.clients[client].credit(of_its_own, 10);
        world.run();
        assert_eq!(world.clients[client].bodies(of_topic), ["never"]);
        assert_eq!(world.clients[client].bodies(of_its_own), ["short"]);
    }
}

/// What dies in a queue may go to a topic, and what dies in a topic's subscription anywhere; a circle of them is cut.
#[test]
fn dead_letters_go_to_topics_too() {
    let rule = |pattern: &str, to: &str, expiration_us| DestinationRule {
        pattern: pattern.into(),
        dead_letter: Some(to.into()),
        expiration_us,
        ..DestinationRule::default()
    };
    for shards in [1, 2, 4] {
        let rules =
            vec![rule("mortal", "topic://dead", Some(1000)), rule("dead", "topic://dead", Some(1000))];
        let mut world = World::new(&Setup { rules, ..Setup::new(shards) });
        let client = world.connect(0);
        let wide = subscribe(&mut world, client, "wide", "topic://#", &ReceiverOptions::default());
        let other = world.connect(shards - 1);
        // In these it dies again, on its way to where it was.
        for name in ["1", "2", "3"] {
            world.clients[other].attach_receiver(name, "topic://dead", &ReceiverOptions::default());
        }
        world.run();
        let producer = world.connect(0);
        publish(&mut world, producer, "mortal", &["1"]);
        for _ in 0..20 {
            world.advance(5_000);
        }
        assert_eq!(world.clients[client].bodies(wide), ["1"], "{shards} shards");
        let circling: u64 = world.shards.iter().map(|it| it.counters().dead_letters_circling).sum();
        assert_eq!(circling, 3);
        check_memory(&world);
    }
}

/// Subscribers die and detach while messages are on their way to their queues: producers hear `accepted`, memory is given back,
/// and no binding is left.
#[test]
fn subscriptions_that_go_in_the_middle_hurt_nobody() {
    for seed in 0..60 {
        let shards = 1 + seed as usize % 4;
        let mut world = world(shards, seed);
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("p", "topic://t", &SenderOptions::default());
        let stays = world.connect(shards - 1);
        let kept = subscribe(&mut world, stays, "kept", "topic://t", &ReceiverOptions::default());
        let doomed: Vec<(usize, LinkId)> = (0..3)
            .map(|n| {
                let client = world.connect(n % shards);
                let options = if n == 0 { shared(false, false) } else { ReceiverOptions::default() };
                let link = world.clients[client].attach_receiver("d", "topic://t", &options);
                world.clients[client].credit(link, 5);
                (client, link)
            })
            .collect();
        // Some of them are not even attached when it begins.
        for _ in 0..seed % 5 {
            world.step();
        }
        for n in 0..200 {
            world.clients[producer].send(sender, &n.to_string());
        }
        for _ in 0..seed % 7 {
            world.step();
        }
        for (n, (client, link)) in doomed.iter().enumerate() {
            if n == 1 {
                world.clients[*client].detach(*link)
            } else {
                world.kill(*client)
            }
            world.step();
        }
        world.run();
        let outcomes = &world.clients[producer].outcomes;
        assert!(outcomes.len() == 200 && outcomes.iter().all(|(_, it)| it == "accepted"), "seed {seed}");
        let expect: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        assert_eq!(world.clients[stays].bodies(kept), expect, "seed {seed}");
        assert_eq!(queue_count(&world), 1, "seed {seed}");
        check_memory(&world);
    }
}

/// What is published inside a transaction is seen when it commits, on all shards, also if a subscription has ended meanwhile.
#[test]
fn a_transaction_reaches_all_subscriptions_or_none() {
    for shards in [1, 3] {
        let mut world = world(shards, 1);
        let subscribers: Vec<(usize, LinkId)> = (0..4)
            .map(|n| {
                let client = world.connect(n % shards);
                (client, subscribe(&mut world, client, "s", "topic://t.*", &ReceiverOptions::default()))
            })
            .collect();
        let producer = world.connect(0);
        let coordinator = world.clients[producer].attach_coordinator("txn", &[]);
        let sender = publish(&mut world, producer, "topic://t.a", &[]);
        for (fail, body) in [(true, "no"), (false, "yes")] {
            let declared = world.clients[producer].declare(coordinator);
            world.run();
            let outcome = world.clients[producer].outcome(declared).expect("a declare is answered");
            let number = outcome.strip_prefix("declared ").and_then(|it| it.parse().ok());
            let number = number.expect("there is room for a transaction");
            world.clients[producer].send_in(sender, number, body);
            world.run();
            let (client, link) = subscribers[3];
            assert!(world.clients[client].bodies(link).is_empty());
            if !fail {
                world.clients[client].detach(link);
                world.run();
            }
            let discharged = world.clients[producer].discharge(coordinator, number, fail);
            world.run();
            assert_eq!(world.clients[producer].outcome(discharged), Some("accepted"), "{shards} shards");
        }
        for (client, link) in &subscribers[..3] {
            assert_eq!(world.clients[*client].bodies(*link), ["yes"]);
        }
        check_memory(&world);
    }
}

#[test]
fn nobody_is_left_with_a_subscription_to_a_temporary_topic_that_ends_just_then() {
    for seed in 0..60 {
        let mut world = world(3, seed);
        let maker = world.connect(1);
        let capabilities = vec!["temporary-topic"];
        let options = SenderOptions { dynamic: true, capabilities, ..SenderOptions::default() };
        let producer = world.clients[maker].attach_sender("p", "", &options);
        world.run();
        let topic = world.clients[maker].addresses[0].1.clone();
        let client = world.connect(2);
        world.clients[maker].detach(producer);
        for _ in 0..seed % 4 {
            world.step();
        }
        let link = world.clients[client].attach_receiver("s", &topic, &ReceiverOptions::default());
        world.run();
        let error = error_of(&world, client, link);
        assert!(matches!(error, Some("amqp:not-found" | "amqp:resource-deleted")), "{seed} {error:?}");
        assert_eq!(queue_count(&world), 0);
    }
}

#[test]
fn who_waits_for_a_subscription_does_not_move_away_from_it() {
    for seed in 0..8 {
        let mut world = world(3, seed);
        let client = world.connect(1);
        let queue = names_homed_at(2, 3).next().expect("some name");
        // One of these lives where the connection is.
        for n in 0..6 {
            world.clients[client].attach_receiver(&format!("s{n}"), "topic://t", &shared(n % 2 == 0, false));
        }
        world.clients[client].attach_receiver("r", &queue, &ReceiverOptions::default());
        world.run();
        assert_eq!(world.clients[client].attached.len(), 7, "{seed}");
    }
}
