//! The order of one producer's messages whatever they are like, and the end of a queue that is in use.

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{DeliveryState, Header, Properties};

/// Durable messages and others share one queue and one order, here and over shards.
#[test]
fn s21_durable_messages_and_others_keep_their_order() {
    for seed in 0..20 {
        let mut world = World::new(&Setup { seed, ..Setup::new(2) });
        for home in 0..2 {
            let queue = names_homed_at(home, 2).next().expect("there is one");
            let producer = world.connect(0);
            let sender = world.clients[producer].attach_sender("s", &queue, &SenderOptions::default());
            let consumer = world.connect(1);
            let receiver = world.clients[consumer].attach_receiver("r", &queue, &ReceiverOptions::default());
            world.run();
            if seed % 2 == 0 {
                world.clients[consumer].credit(receiver, 100);
            }
            for n in 0..40 {
                let header = Header { durable: n % 2 == 0, ..Header::default() };
                let body = n.to_string();
                world.clients[producer].send_with(sender, &body, &Properties::default(), &[], &header);
                if n % 7 == 0 {
                    world.step();
                }
            }
            world.clients[consumer].credit(receiver, 100);
            world.run();
            let expect: Vec<String> = (0..40).map(|n| n.to_string()).collect();
            assert_eq!(world.clients[consumer].bodies(receiver), expect, "seed {seed}");
        }
    }
}

/// A queue ends with its owner's link while others publish to it and hold messages of it, on the same shard and on another: its
/// consumers' links end with the reason, its producers hear it message by message, and what is settled late harms nobody.
#[test]
fn s53_a_queue_ends_under_its_producers_and_consumers() {
    for seed in 0..20 {
        let mut world = World::new(&Setup { seed, ..Setup::new(2) });
        let owner = world.connect(0);
        let options = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
        let owned = world.clients[owner].attach_receiver("owned", "", &options);
        world.run();
        let (_, address) = world.clients[owner].addresses[0].clone();

        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &address, &SenderOptions::default());
        let near = consumer_of(&mut world, &address, 0);
        let far = consumer_of(&mut world, &address, 1);
        for n in 0..10 {
            world.clients[producer].send(sender, &n.to_string());
        }
        world.run();
        assert_eq!(world.clients[producer].outcomes.len(), 10);

        world.clients[owner].detach(owned);
        for n in 10..15 {
            world.clients[producer].send(sender, &n.to_string());
        }
        for _ in 0..seed % 5 {
            world.step();
        }
        // They settle what they hold without knowing that it is gone.
        for (client, link) in [near, far] {
            for received in world.clients[client].received.clone() {
                if received.link == link {
                    world.clients[client].settle(link, received.delivery_id, &DeliveryState::Accepted);
                }
            }
        }
        world.run();
        for (client, link) in [near, far] {
            let end = (link, Some("amqp:resource-deleted".to_owned()));
            assert!(world.clients[client].detached.contains(&end), "seed {seed}");
            assert_eq!(world.clients[client].closed, None);
        }
        // What the broker took is answered; then the link ends too, and takes no more.
        let outcomes = &world.clients[producer].outcomes;
        assert!((10..=15).contains(&outcomes.len()), "seed {seed}");
        assert!(outcomes[10..].iter().all(|(_, o)| o == "accepted" || o == "rejected amqp:not-found"));
        let end = (sender, Some("amqp:resource-deleted".to_owned()));
        assert!(world.clients[producer].detached.contains(&end), "seed {seed}");
        assert_eq!(world.clients[producer].closed, None);
    }
}

/// A client whose first consumer, on another queue, keeps it on the shard.
fn consumer_of(world: &mut World, address: &str, shard: usize) -> (usize, LinkId) {
    let client = world.connect(shard);
    let anchor = names_homed_at(shard, 2).next().expect("there is one");
    world.clients[client].attach_receiver("anchor", &anchor, &ReceiverOptions::default());
    world.run();
    let link = world.clients[client].attach_receiver("r", address, &ReceiverOptions::default());
    world.run();
    assert_eq!(world.shard_of(client), shard);
    world.clients[client].credit(link, 4);
    world.run();
    (client, link)
}
