//! A message's way from one client to another, on one shard and over several.

use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Header, Map, MapWriter, Modified, Properties, Value};

fn world(shards: usize, seed: u64) -> World {
    World::new(&Setup { seed, ..Setup::new(shards) })
}

#[test]
fn messages_arrive_in_order_and_are_settled() {
    for shards in [1, 2, 4] {
        for seed in 0..20 {
            let mut world = world(shards, seed);
            let producer = world.connect(0);
            let consumer = world.connect(shards - 1);
            let sender = world.clients[producer].attach_sender("s", "orders", &SenderOptions::default());
            let receiver =
                world.clients[consumer].attach_receiver("r", "orders", &ReceiverOptions::default());
            world.clients[consumer].accepts = true;
            world.clients[consumer].credit(receiver, 1000);
            let sent: Vec<String> = (0..50).map(|n| format!("m{n}")).collect();
            for body in &sent {
                world.clients[producer].send(sender, body);
            }
            world.run();
            assert_eq!(world.clients[consumer].bodies(receiver), sent, "{shards} shards, seed {seed}");
            assert_eq!(world.clients[producer].outcomes.len(), 50);
            assert!(world.clients[producer].outcomes.iter().all(|(_, outcome)| outcome == "accepted"));
            let depths: u64 = world
                .shards
                .iter()
                .filter_map(|shard| {
                    shard
                        .queue("orders")
                        .and_then(|queue| shard.engine().depth(queue))
                        .map(|depth| depth.messages)
                })
                .sum();
            assert_eq!(depths, 0);
        }
    }
}

#[test]
fn a_consuming_connection_moves_to_its_queue() {
    let mut world = world(4, 3);
    for shard in 0..4 {
        let name = names_homed_at(shard, 4).next().expect("there is one");
        let client = world.connect((shard + 1) % 4);
        world.clients[client].attach_receiver("r", &name, &ReceiverOptions::default());
        world.run();
        assert_eq!(world.shard_of(client), shard);
        assert_eq!(world.clients[client].attached.len(), 1);
    }
}

#[test]
fn consumers_on_several_shards_share_one_connection() {
    for seed in 0..20 {
        let mut world = world(4, seed);
        let consumer = world.connect(0);
        let producer = world.connect(1);
        world.clients[consumer].accepts = true;
        let mut pairs = Vec::new();
        for shard in 0..4 {
            for name in names_homed_at(shard, 4).take(3) {
                let receiver =
                    world.clients[consumer].attach_receiver(&name, &name, &ReceiverOptions::default());
                world.clients[consumer].credit(receiver, 7);
                let sender = world.clients[producer].attach_sender(&name, &name, &SenderOptions::default());
                pairs.push((sender, receiver, name));
            }
        }
        world.run();
        for n in 0..100 {
            for (sender, _, name) in &pairs {
                world.clients[producer].send(*sender, &format!("{name}-{n}"));
            }
        }
        world.run();
        for _ in 0..15 {
            for (_, receiver, _) in &pairs {
                world.clients[consumer].credit(*receiver, 7);
            }
            world.run();
        }
        for (_, receiver, name) in &pairs {
            let expect: Vec<String> = (0..100).map(|n| format!("{name}-{n}")).collect();
            assert_eq!(world.clients[consumer].bodies(*receiver), expect, "seed {seed}");
        }
        assert_eq!(world.clients[producer].outcomes.len(), 1200);
    }
}

#[test]
fn a_dynamic_node_serves_requests_and_goes_with_its_link() {
    for shards in [1, 4] {
        let mut world = world(shards, 5);
        let requester = world.connect(0);
        let responder = world.connect(shards - 1);
        let options = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
        let replies = world.clients[requester].attach_receiver("replies", "", &options);
        world.clients[requester].credit(replies, 10);
        world.run();
        let (_, address) = world.clients[requester].addresses[0].clone();
        let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
        let relay = world.clients[responder].attach_sender("relay", "", &options);
        let to = Properties { to: Some(&address), ..Properties::default() };
        world.clients[responder].send_with(relay, "pong", &to, &[], &Header::default());
        world.run();
        assert_eq!(world.clients[requester].bodies(replies), ["pong"]);
        world.clients[requester].detach(replies);
        world.run();
        assert!(world.shards.iter().all(|shard| shard.queue(&address).is_none()));
    }
}

#[test]
fn what_cannot_be_routed_is_rejected_with_the_reason() {
    let mut world = World::new(&Setup { auto_create: false, ..Setup::new(4) });
    let client = world.connect(0);
    let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
    let relay = world.clients[client].attach_sender("relay", "", &options);
    world.clients[client].send(relay, "no address");
    for name in ["one", "two", "three", "four"] {
        let to = Properties { to: Some(name), ..Properties::default() };
        world.clients[client].send_with(relay, "no queue", &to, &[], &Header::default());
    }
    world.run();
    let outcomes: Vec<&str> = world.clients[client].outcomes.iter().map(|(_, outcome)| &**outcome).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "rejected amqp:not-found").count(), 4);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "rejected amqp:precondition-failed").count(), 1);
    let sender = world.clients[client].attach_sender("s", "one", &SenderOptions::default());
    let receiver = world.clients[client].attach_receiver("r", "two", &ReceiverOptions::default());
    world.run();
    for link in [sender, receiver] {
        assert!(world.clients[client].detached.contains(&(link, Some("amqp:not-found".to_owned()))));
    }
    assert_eq!(world.clients[client].closed, None);
}

#[test]
fn large_messages_pass_in_parts() {
    for shards in [1, 2] {
        for seed in 0..5 {
            let mut world = world(shards, seed);
            let producer = world.connect(0);
            let consumer = world.connect(shards - 1);
            world.clients[consumer].accepts = true;
            let names: Vec<String> =
                (0..shards).filter_map(|shard| names_homed_at(shard, shards).next()).collect();
            let mut links = Vec::new();
            for name in &names {
                let receiver =
                    world.clients[consumer].attach_receiver(name, name, &ReceiverOptions::default());
                world.clients[consumer].credit(receiver, 100);
                let sender = world.clients[producer].attach_sender(name, name, &SenderOptions::default());
                links.push((sender, receiver));
            }
            let bodies: Vec<String> =
                [0, 1, 100_000, 3, 3_000_000, 70_000].map(|size| "x".repeat(size)).into();
            for (sender, _) in &links {
                for body in &bodies {
                    world.clients[producer].send(*sender, body);
                }
            }
            world.run();
            for (_, receiver) in &links {
                let got: Vec<usize> =
                    world.clients[consumer].bodies(*receiver).iter().map(|body| body.len()).collect();
                assert_eq!(got, [0, 1, 100_000, 3, 3_000_000, 70_000]);
            }
        }
    }
}

#[test]
fn browsers_look_and_leave_everything_where_it_is() {
    for shards in [1, 4] {
        let mut world = world(shards, 8);
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", "shelf", &SenderOptions::default());
        for n in 0..10 {
            world.clients[client].send(sender, &n.to_string());
        }
        world.run();
        let browser = world.connect(0);
        let first = world.clients[browser].attach_receiver("first", "elsewhere", &ReceiverOptions::default());
        let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
        let browse = world.clients[browser].attach_receiver("b", "shelf", &options);
        world.clients[browser].credit(browse, 4);
        world.run();
        assert_eq!(world.clients[browser].bodies(browse), ["0", "1", "2", "3"]);
        world.clients[browser].credit(browse, 100);
        world.run();
        assert_eq!(world.clients[browser].bodies(browse).len(), 10);
        assert!(world.clients[browser].bodies(first).is_empty());
        let reader = world.clients[client].attach_receiver("r", "shelf", &ReceiverOptions::default());
        world.clients[client].credit(reader, 100);
        world.run();
        assert_eq!(world.clients[client].bodies(reader).len(), 10);
    }
}

#[test]
fn selectors_read_properties_and_headers() {
    for shards in [1, 4] {
        let mut world = world(shards, 9);
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", "colours", &SenderOptions::default());
        let selector = Some("colour = 'red' AND JMSPriority > 5 AND JMSType IS NOT NULL".to_owned());
        let options = ReceiverOptions { selector, ..ReceiverOptions::default() };
        let other = world.clients[client].attach_receiver("other", "other", &ReceiverOptions::default());
        let receiver = world.clients[client].attach_receiver("r", "colours", &options);
        world.clients[client].credit(receiver, 10);
        world.run();
        let subject = Properties { subject: Some("s"), ..Properties::default() };
        let high = Header { priority: 9, ..Header::default() };
        let red = [("colour", Value::String("red"))];
        let blue = [("colour", Value::String("blue"))];
        world.clients[client].send_with(sender, "blue", &subject, &blue, &high);
        world.clients[client].send_with(sender, "low", &subject, &red, &Header::default());
        world.clients[client].send_with(sender, "bare", &Properties::default(), &red, &high);
        world.clients[client].send_with(sender, "yes", &subject, &red, &high);
        world.run();
        assert_eq!(world.clients[client].bodies(receiver), ["yes"]);
        assert!(world.clients[client].bodies(other).is_empty());
    }
}

#[test]
fn outcomes_decide_what_becomes_of_a_message() {
    for shards in [1, 4] {
        let mut world = world(shards, 10);
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", "work", &SenderOptions::default());
        world.clients[client].attach_receiver("other", "other", &ReceiverOptions::default());
        let receiver = world.clients[client].attach_receiver("r", "work", &ReceiverOptions::default());
        for body in ["a", "b", "c", "d"] {
            world.clients[client].send(sender, body);
        }
        world.clients[client].credit(receiver, 4);
        world.run();
        let ids: Vec<u32> =
            world.clients[client].received.iter().map(|received| received.delivery_id).collect();
        let failed = DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() });
        world.clients[client].settle(receiver, ids[0], &DeliveryState::Accepted);
        world.clients[client].settle(receiver, ids[1], &DeliveryState::Released);
        world.clients[client].settle(receiver, ids[2], &DeliveryState::Rejected { error: None });
        world.clients[client].settle(receiver, ids[3], &failed);
        world.run();
        world.clients[client].received.clear();
        world.clients[client].credit(receiver, 10);
        world.run();
        let again: Vec<(&str, u32, bool)> = world.clients[client]
            .received
            .iter()
            .map(|received| (&*received.body, received.delivery_count, received.first_acquirer))
            .collect();
        assert_eq!(again, [("b", 0, false), ("d", 1, false)]);
    }
}

#[test]
fn messages_beyond_the_memory_are_refused_until_there_is_room() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { memory: 100_000, ..Setup::new(shards) });
        let client = world.connect(0);
        let names: Vec<String> =
            (0..shards).filter_map(|shard| names_homed_at(shard, shards).next()).collect();
        for name in &names {
            let sender = world.clients[client].attach_sender(name, name, &SenderOptions::default());
            for _ in 0..30 {
                world.clients[client].send(sender, &"x".repeat(10_000));
            }
            world.run();
            let outcomes = std::mem::take(&mut world.clients[client].outcomes);
            let accepted = outcomes.iter().filter(|(_, outcome)| outcome == "accepted").count();
            let refused = outcomes
                .iter()
                .filter(|(_, outcome)| outcome == "rejected amqp:resource-limit-exceeded")
                .count();
            assert_eq!(accepted + refused, 30);
            let refusals = std::mem::take(&mut world.clients[client].refusals);
            assert!(
                refusals.iter().all(|(_, why)| why.contains("its memory for messages is full")),
                "{refusals:?}"
            );
            assert!((7..10).contains(&accepted), "{accepted}");
            let reader = world.connect(0);
            world.clients[reader].accepts = true;
            let link = world.clients[reader].attach_receiver("r", name, &ReceiverOptions::default());
            world.clients[reader].credit(link, 100);
            world.run();
            assert_eq!(world.clients[reader].bodies(link).len(), accepted);
            for _ in 0..accepted {
                world.clients[client].send(sender, &"x".repeat(10_000));
            }
            world.run();
            assert!(world.clients[client].outcomes.iter().all(|(_, outcome)| outcome == "accepted"));
            world.clients[client].outcomes.clear();
        }
    }
}

/// JMS 2.0 §3.8.1.
#[test]
fn an_empty_selector_is_none() {
    for selector in ["", "  "] {
        let mut world = world(1, 1);
        let client = world.connect(0);
        let options = ReceiverOptions { selector: Some(selector.to_owned()), ..ReceiverOptions::default() };
        let receiver = world.clients[client].attach_receiver("r", "orders", &options);
        world.clients[client].credit(receiver, 10);
        let sender = world.clients[client].attach_sender("s", "orders", &SenderOptions::default());
        world.clients[client].send(sender, "any");
        world.run();
        assert_eq!(world.clients[client].detached, []);
        assert_eq!(world.clients[client].bodies(receiver), ["any"]);
    }
}

/// What consumers add to messages is memory too: it is counted, and what there is no room for is left out.
#[test]
fn annotations_of_consumers_are_counted() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { memory: 200_000, ..Setup::new(shards) });
        let queue = names_homed_at(shards - 1, shards).next().expect("there is one");
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &queue, &SenderOptions::default());
        for _ in 0..10 {
            world.clients[client].send(sender, "m");
        }
        let receiver = world.clients[client].attach_receiver("r", &queue, &ReceiverOptions::default());
        world.run();
        let mut used = world.shards[shards - 1].memory_used();
        let text = "x".repeat(30_000);
        for round in 0..40 {
            world.clients[client].received.clear();
            world.clients[client].credit(receiver, 1);
            world.run();
            let delivery_id = world.clients[client].received[0].delivery_id;
            let mut annotations = Vec::new();
            let mut map = MapWriter::new(&mut annotations);
            map.symbol(&format!("x-opt-{round}"), &Value::String(&text));
            map.finish();
            let message_annotations = Map::decode(&annotations).ok();
            let modified = Modified { message_annotations, ..Modified::default() };
            world.clients[client].settle(receiver, delivery_id, &DeliveryState::Modified(modified));
            world.run();
            let now = world.shards[shards - 1].memory_used();
            if round < 2 {
                assert!(now >= used + 29_000, "{used} to {now}");
            }
            assert!(now <= 200_000);
            // The first one gets what is added, up to what a message may have.
            assert!(now <= 100_000, "one message has it all: {now}");
            used = now;
        }
        world.clients[client].accepts = true;
        world.clients[client].credit(receiver, 100);
        world.run();
        assert_eq!(world.shards[shards - 1].memory_used(), 0);
    }
}

#[test]
fn annotations_that_there_is_no_memory_for_are_left_out() {
    let mut world = World::new(&Setup { memory: 200_000, ..Setup::new(1) });
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "orders", &SenderOptions::default());
    for _ in 0..20 {
        world.clients[client].send(sender, "m");
    }
    let receiver = world.clients[client].attach_receiver("r", "orders", &ReceiverOptions::default());
    world.clients[client].credit(receiver, 20);
    world.run();
    let text = "x".repeat(30_000);
    let mut annotations = Vec::new();
    let mut map = MapWriter::new(&mut annotations);
    map.symbol("x-opt-why", &Value::String(&text));
    map.finish();
    let message_annotations = Map::decode(&annotations).ok();
    let modified = Modified { message_annotations, ..Modified::default() };
    for received in std::mem::take(&mut world.clients[client].received) {
        world.clients[client].settle(receiver, received.delivery_id, &DeliveryState::Modified(modified));
    }
    world.run();
    let used = world.shards[0].memory_used();
    assert!((150_000..=200_000).contains(&used), "{used}");
    world.clients[client].accepts = true;
    world.clients[client].credit(receiver, 20);
    world.run();
    let annotated = world.clients[client].received.iter().filter(|received| !received.annotations.is_empty());
    assert_eq!((annotated.count(), world.clients[client].received.len()), (6, 20));
    assert_eq!(world.shards[0].memory_used(), 0);
}

/// What is a container's own is no stranger's: a name that cannot be kept whole is refused, and none is no name.
#[test]
fn containers_without_a_name_that_can_be_kept_own_no_subscriptions() {
    let mut world = world(2, 5);
    let long = "x".repeat(1025);
    let refused = world.connect_as(0, &long);
    world.run();
    assert_eq!(world.clients[refused].closed, Some(Some("amqp:invalid-field".to_owned())));
    let longest = world.connect_as(0, &long[1..]);
    let nameless = world.connect_as(0, "");
    let receiver = |durable, no_local, capabilities: &[&'static str]| ReceiverOptions {
        durable,
        no_local,
        capabilities: capabilities.to_vec(),
        ..ReceiverOptions::default()
    };
    let cases = [
        ("durable", receiver(true, false, &[]), false),
        ("shared", receiver(false, false, &["shared"]), false),
        ("global without its own", receiver(true, true, &["shared", "global"]), false),
        ("global", receiver(true, false, &["shared", "global"]), true),
        ("own", receiver(false, true, &[]), true),
    ];
    for (name, options, is_attached) in cases {
        let link = world.clients[nameless].attach_receiver(name, "topic://t", &options);
        world.run();
        let detached = std::mem::take(&mut world.clients[nameless].detached);
        let error = detached.first().and_then(|(other, error)| error.as_deref().filter(|_| *other == link));
        assert_eq!(error, (!is_attached).then_some("amqp:invalid-field"), "{name}");
    }
    // Nor is an empty name of a link that of a subscription.
    let named = world.connect_as(0, "c");
    for capabilities in [&["shared", "global"][..], &["shared"], &[]] {
        let link =
            world.clients[named].attach_receiver("|x", "topic://t", &receiver(true, false, capabilities));
        world.run();
        let is_refused = std::mem::take(&mut world.clients[named].detached).iter().any(|(it, _)| *it == link);
        assert_eq!(is_refused, !capabilities.is_empty(), "{capabilities:?}");
    }
    let unsubscriber = world.clients[nameless].attach_unsubscriber("durable", &[]);
    world.run();
    let detached = world.clients[nameless].detached.last();
    assert_eq!(detached, Some(&(unsubscriber, Some("amqp:invalid-field".to_owned()))));
    assert_eq!((world.clients[longest].closed.clone(), world.clients[nameless].closed.clone()), (None, None));
}
