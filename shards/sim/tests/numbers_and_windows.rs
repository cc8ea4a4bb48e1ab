//! Numbers that wrap, windows that close, links that end with deliveries on their way.

use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::DeliveryState;

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// Delivery numbers, transfer numbers and delivery counts pass their ends, and nothing else happens.
#[test]
fn s24_numbers_wrap() {
    for serial_first in [(1_u32 << 31) - 50, u32::MAX - 50] {
        for shards in [1, 2] {
            let mut world = World::new(&Setup { serial_first, seed: 4, ..Setup::new(shards) });
            let client = world.connect(0);
            world.clients[client].accepts = true;
            for shard in 0..shards {
                let name = names_homed_at(shard, shards).next().expect("there is one");
                let sender = world.clients[client].attach_sender(&name, &name, &SenderOptions::default());
                let receiver =
                    world.clients[client].attach_receiver(&name, &name, &ReceiverOptions::default());
                for body in numbered(200) {
                    world.clients[client].send(sender, &body);
                }
                for _ in 0..30 {
                    world.clients[client].credit(receiver, 7);
                    world.run();
                }
                assert_eq!(world.clients[client].bodies(receiver), numbered(200), "from {serial_first}");
            }
            assert_eq!(world.clients[client].outcomes.len(), 200 * shards);
        }
    }
}

/// A session's window is used up while links have credit: transfers pause, and go on when it opens.
#[test]
fn s25_a_closed_window_pauses_transfers() {
    for shards in [1, 2] {
        for seed in 0..10 {
            let mut world = World::new(&Setup { client_window: 3, seed, ..Setup::new(shards) });
            let producer = world.connect(0);
            let consumer = world.connect(0);
            world.clients[consumer].accepts = true;
            let mut receivers = Vec::new();
            for shard in 0..shards {
                let name = names_homed_at(shard, shards).next().expect("there is one");
                let sender = world.clients[producer].attach_sender(&name, &name, &SenderOptions::default());
                let receiver =
                    world.clients[consumer].attach_receiver(&name, &name, &ReceiverOptions::default());
                world.clients[consumer].credit(receiver, 1000);
                for body in numbered(100) {
                    world.clients[producer].send(sender, &body);
                }
                world.clients[producer].send(sender, &"x".repeat(500_000));
                receivers.push(receiver);
            }
            world.run();
            for receiver in receivers {
                let bodies = world.clients[consumer].bodies(receiver);
                assert_eq!(bodies[..100], numbered(100), "seed {seed}");
                assert_eq!(bodies[100].len(), 500_000);
            }
        }
    }
}

/// What a consumer had in hand goes back in order, before the one that waits is served.
#[test]
fn s22_what_was_prefetched_goes_back_in_order_first() {
    for shards in [1, 2] {
        for close in [false, true] {
            let mut world = World::new(&Setup { seed: 6, ..Setup::new(shards) });
            let (home, other) = (shards - 1, names_homed_at(0, shards).nth(1).expect("there is one"));
            let name = names_homed_at(home, shards).next().expect("there is one");
            let first = world.connect(0);
            world.clients[first].attach_receiver("other", &other, &ReceiverOptions::default());
            let holder = world.clients[first].attach_receiver("r", &name, &ReceiverOptions::default());
            world.clients[first].credit(holder, 20);
            let producer = world.connect(0);
            let sender = world.clients[producer].attach_sender("s", &name, &SenderOptions::default());
            for body in numbered(20) {
                world.clients[producer].send(sender, &body);
            }
            world.run();
            assert_eq!(world.clients[first].bodies(holder), numbered(20));
            let second = world.connect(home);
            let waiting = world.clients[second].attach_receiver("r", &name, &ReceiverOptions::default());
            world.clients[second].credit(waiting, 100);
            world.run();
            if close {
                world.clients[first].detach(holder);
            } else {
                world.kill(first);
            }
            for body in ["20", "21"] {
                world.clients[producer].send(sender, body);
            }
            world.run();
            let mut got: Vec<u32> =
                world.clients[second].bodies(waiting).iter().filter_map(|body| body.parse().ok()).collect();
            // The producer's next messages may have come before the end of the link.
            got.retain(|&n| n < 20);
            assert_eq!(got, (0..20).collect::<Vec<u32>>());
            assert_eq!(world.clients[second].bodies(waiting).len(), 22);
        }
    }
}

/// A high-priority consumer goes away with a message on its way to it: the other one gets it, without another publish.
#[test]
fn s02_a_closing_consumer_hands_its_message_on() {
    for seed in 0..20 {
        let mut world = World::new(&Setup { seed, ..Setup::new(2) });
        let (far, near) = (names_homed_at(1, 2).next(), names_homed_at(0, 2).next());
        let (far, near) = (far.expect("there is one"), near.expect("there is one"));
        let high = world.connect(0);
        world.clients[high].attach_receiver("stay", &near, &ReceiverOptions::default());
        let options = ReceiverOptions { priority: Some(10), ..ReceiverOptions::default() };
        let first = world.clients[high].attach_receiver("high", &far, &options);
        world.clients[high].credit(first, 10);
        let low = world.connect(1);
        let second = world.clients[low].attach_receiver("low", &far, &ReceiverOptions::default());
        world.clients[low].credit(second, 10);
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
        world.run();
        world.clients[producer].send(sender, "m");
        for _ in 0..seed % 6 {
            world.step();
        }
        if seed % 2 == 0 {
            world.kill(high);
        } else {
            world.clients[high].detach(first);
        }
        world.run();
        assert_eq!(world.clients[low].bodies(second), ["m"], "seed {seed}");
    }
}

/// A peer may send and end its link without waiting: the message is stored.
#[test]
fn a_message_sent_just_before_the_link_ends_is_stored() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { seed: 8, ..Setup::new(shards) });
        let name = names_homed_at(shards - 1, shards).next().expect("there is one");
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &name, &SenderOptions::default());
        world.run();
        world.clients[client].send_and_detach(sender, "last words");
        world.run();
        let reader = world.connect(0);
        let receiver = world.clients[reader].attach_receiver("r", &name, &ReceiverOptions::default());
        world.clients[reader].credit(receiver, 1);
        world.run();
        assert_eq!(world.clients[reader].bodies(receiver), ["last words"]);
    }
}

/// Settling out of order, twice, and what was never sent: each delivery is settled once.
#[test]
fn s17_a_hundred_thousand_are_settled_in_any_order() {
    let mut world = World::new(&Setup { seed: 5, verify: false, ..Setup::new(1) });
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "deep", &SenderOptions::default());
    let receiver = world.clients[client].attach_receiver("r", "deep", &ReceiverOptions::default());
    world.clients[client].credit(receiver, 100_000);
    for _ in 0..100_000 {
        world.clients[client].send(sender, "x");
    }
    world.run();
    let mut ids: Vec<u32> =
        world.clients[client].received.iter().map(|received| received.delivery_id).collect();
    assert_eq!(ids.len(), 100_000);
    let mut random = corelane_sim::Random::new(5);
    for last in (1..ids.len()).rev() {
        ids.swap(last, random.below(last + 1));
    }
    for id in ids {
        world.clients[client].settle(receiver, id, &DeliveryState::Accepted);
    }
    world.run();
    let shard = &world.shards[0];
    let depth = shard.queue("deep").and_then(|queue| shard.engine().depth(queue)).expect("it exists");
    assert_eq!(depth.messages, 0);
}

/// A client that dies again and again before it settles anything: only the oldest delivery it was sent counts as failed.
#[test]
fn s32_only_the_oldest_delivery_of_a_dead_client_counts_as_failed() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { seed: 3, ..Setup::new(shards) });
        let (home, other) = (shards - 1, names_homed_at(0, shards).nth(1).expect("there is one"));
        let name = names_homed_at(home, shards).next().expect("there is one");
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("s", &name, &SenderOptions::default());
        for body in numbered(10) {
            world.clients[producer].send(sender, &body);
        }
        for round in 0..3 {
            let client = world.connect(0);
            world.clients[client].attach_receiver("other", &other, &ReceiverOptions::default());
            let receiver = world.clients[client].attach_receiver("r", &name, &ReceiverOptions::default());
            world.clients[client].credit(receiver, 10);
            world.run();
            let counts: Vec<u32> = world.clients[client].received.iter().map(|r| r.delivery_count).collect();
            let mut expect = vec![0; 10];
            expect[0] = round;
            assert_eq!(counts, expect, "{shards} shards");
            match round {
                0 => world.kill(client),
                1 => world.clients[client].detach(receiver),
                _ => world.clients[client].close(),
            }
            world.run();
        }
    }
}

/// What a client cannot have seen, since its socket took nothing, does not count as failed.
#[test]
fn s32_what_was_never_sent_does_not_count_as_failed() {
    for shards in [1, 2] {
        let mut world = World::new(&Setup { seed: 3, ..Setup::new(shards) });
        let (home, other) = (shards - 1, names_homed_at(0, shards).nth(1).expect("there is one"));
        let name = names_homed_at(home, shards).next().expect("there is one");
        let client = world.connect(0);
        world.clients[client].attach_receiver("other", &other, &ReceiverOptions::default());
        let receiver = world.clients[client].attach_receiver("r", &name, &ReceiverOptions::default());
        world.clients[client].credit(receiver, 10);
        world.run();
        world.client_reads(client, false);
        let producer = world.connect(0);
        let sender = world.clients[producer].attach_sender("s", &name, &SenderOptions::default());
        for body in numbered(3) {
            world.clients[producer].send(sender, &body);
        }
        world.run();
        world.kill(client);
        world.run();
        let heir = world.connect(0);
        let link = world.clients[heir].attach_receiver("r", &name, &ReceiverOptions::default());
        world.clients[heir].credit(link, 10);
        world.run();
        let counts: Vec<u32> = world.clients[heir].received.iter().map(|r| r.delivery_count).collect();
        assert_eq!(counts, [0, 0, 0], "{shards} shards");
    }
}
