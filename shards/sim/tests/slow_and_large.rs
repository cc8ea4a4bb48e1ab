//! Large messages in parts, peers that do not read, and what meets them on the way.

use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};

fn name_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).next().expect("there is one for each shard")
}

/// A client with a first receiver that keeps it on shard 0, so that queues of shard 1 are elsewhere.
fn settled_client(world: &mut World) -> usize {
    let client = world.connect(0);
    let name = names_homed_at(0, world.shards.len()).nth(1).expect("there are two");
    world.clients[client].attach_receiver("stay", &name, &ReceiverOptions::default());
    world.run();
    client
}

#[test]
fn browsers_get_messages_in_parts() {
    for (shards, home) in [(1, 0), (2, 0), (2, 1)] {
        let mut world = World::new(&Setup { seed: 2, ..Setup::new(shards) });
        let client = settled_client(&mut world);
        let name = name_at(home, shards);
        let sender = world.clients[client].attach_sender("s", &name, &SenderOptions::default());
        for size in [10, 3_000_000, 20] {
            world.clients[client].send(sender, &"x".repeat(size));
        }
        let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
        let browse = world.clients[client].attach_receiver("b", &name, &options);
        world.clients[client].credit(browse, 10);
        world.run();
        let sizes: Vec<usize> = world.clients[client].bodies(browse).iter().map(|body| body.len()).collect();
        assert_eq!(sizes, [10, 3_000_000, 20], "{shards} shards, home {home}");
    }
}

/// What a browser's peer cannot take yet waits for it: nobody else wants it back, and it is not sent again.
#[test]
fn a_far_browser_that_reads_slowly_misses_nothing() {
    for size in [1_000, 50_000] {
        let count = 1 + 3_000_000 / size;
        let bodies: Vec<String> = (0..count).map(|n| format!("{n:>size$}")).collect();
        for seed in 0..4 {
            let mut world = World::new(&Setup { seed, verify: false, ..Setup::new(2) });
            let client = settled_client(&mut world);
            let far = name_at(1, 2);
            let producer = world.connect(1);
            let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
            for body in &bodies {
                world.clients[producer].send(sender, body);
            }
            let options = ReceiverOptions { browse: true, ..ReceiverOptions::default() };
            let browser = world.clients[client].attach_receiver("b", &far, &options);
            world.clients[client].credit(browser, count as u32);
            for round in 0..200 {
                world.client_reads(client, round % 5 == 0);
                world.step();
            }
            world.client_reads(client, true);
            world.run();
            assert!(world.clients[client].bodies(browser) == bodies, "size {size}, seed {seed}");
        }
    }
}

/// A message in parts makes its link busy; those behind it that come back are not overtaken by those behind them.
#[test]
fn nothing_overtakes_what_came_back() {
    let bodies: Vec<String> =
        (0..150).map(|n| if n == 0 { "x".repeat(300_000) } else { n.to_string() }).collect();
    for seed in 0..30 {
        let mut world = World::new(&Setup { seed, ..Setup::new(2) });
        let consumer = settled_client(&mut world);
        let far = name_at(1, 2);
        let receiver = world.clients[consumer].attach_receiver("r", &far, &ReceiverOptions::default());
        world.clients[consumer].credit(receiver, 200);
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
        world.run();
        for body in &bodies {
            world.clients[producer].send(sender, body);
        }
        world.run();
        assert!(world.clients[consumer].bodies(receiver) == bodies, "seed {seed}");
    }
}

/// The consumer's shard stands still for a while and messages keep coming: they arrive in order, and none twice.
#[test]
fn a_stall_neither_reorders_nor_repeats() {
    for (stall_us, with_heir) in [(700_000, false), (1_300_000, false), (1_300_000, true)] {
        for seed in 0..5 {
            let mut world = World::new(&Setup { seed, ..Setup::new(2) });
            let consumer = settled_client(&mut world);
            let far = name_at(1, 2);
            let receiver = world.clients[consumer].attach_receiver("r", &far, &ReceiverOptions::default());
            world.clients[consumer].credit(receiver, 200);
            let heir = world.connect(1);
            let second = world.clients[heir].attach_receiver("r", &far, &ReceiverOptions::default());
            world.clients[heir].credit(second, if with_heir { 200 } else { 0 });
            let producer = world.connect(1);
            let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
            world.run();
            world.stall(0, true);
            for n in 0..stall_us / 50_000 {
                world.clients[producer].send(sender, &n.to_string());
                world.advance(50_000);
            }
            world.stall(0, false);
            world.run();
            world.advance(10_000);
            let of = |client: usize, link| -> Vec<u64> {
                world.clients[client].bodies(link).iter().filter_map(|body| body.parse().ok()).collect()
            };
            let (first, other) = (of(consumer, receiver), of(heir, second));
            assert!(first.is_sorted(), "{first:?}");
            let mut all = [first, other].concat();
            all.sort_unstable();
            assert_eq!(all, (0..stall_us / 50_000).collect::<Vec<u64>>(), "stall {stall_us}, seed {seed}");
        }
    }
}

/// A peer that neither reads nor speaks is closed when its time is up, and gives back what it held; one that only does not read
/// but shows that it is there stays.
#[test]
fn silence_ends_a_connection_whatever_it_waits_for() {
    for speaks in [false, true] {
        let mut world = World::new(&Setup { seed: 9, verify: false, ..Setup::new(1) });
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", "deep", &SenderOptions::default());
        let receiver = world.clients[client].attach_receiver("r", "deep", &ReceiverOptions::default());
        for _ in 0..40 {
            world.clients[client].send(sender, &"x".repeat(100_000));
        }
        world.run();
        world.client_reads(client, false);
        world.clients[client].credit(receiver, 1000);
        world.run();
        assert_eq!(world.shards[0].connection_count(), 1);
        if !speaks {
            world.freeze(client);
        }
        for _ in 0..30 {
            world.advance(10_000_000);
        }
        assert_eq!(world.shards[0].connection_count(), usize::from(speaks), "speaks: {speaks}");
        if !speaks {
            let heir = world.connect(0);
            let link = world.clients[heir].attach_receiver("r", "deep", &ReceiverOptions::default());
            world.clients[heir].credit(link, 100);
            world.run();
            assert_eq!(world.clients[heir].bodies(link).len(), 40);
        }
    }
}

/// A drain is not done while the queue's home only waits for acknowledgements.
#[test]
fn s23_a_drain_brings_all_there_is_however_large() {
    for seed in 0..10 {
        let mut world = World::new(&Setup { seed, verify: false, ..Setup::new(2) });
        let consumer = settled_client(&mut world);
        let far = name_at(1, 2);
        let receiver = world.clients[consumer].attach_receiver("r", &far, &ReceiverOptions::default());
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
        for _ in 0..20 {
            world.clients[producer].send(sender, &"x".repeat(300_000));
        }
        world.run();
        world.clients[consumer].credit(receiver, 20);
        for _ in 0..seed {
            world.step();
        }
        world.clients[consumer].drain(receiver, 20);
        world.run();
        assert_eq!(world.clients[consumer].bodies(receiver).len(), 20, "seed {seed}");
        assert_eq!(world.clients[consumer].drained, [receiver]);
    }
}

/// An attach with a dynamic node that is refused leaves no node behind.
#[test]
fn a_refused_attach_leaves_no_dynamic_node() {
    let mut world = World::new(&Setup::new(1));
    let client = world.connect(0);
    let options = ReceiverOptions {
        dynamic: true,
        selector: Some("colour = ".to_owned()),
        ..ReceiverOptions::default()
    };
    let link = world.clients[client].attach_receiver("r", "", &options);
    world.run();
    assert!(world.clients[client].detached.contains(&(link, Some("amqp:invalid-field".to_owned()))));
    assert_eq!(world.shards[0].queue_count(), 0);
}

/// Messages that never end have a quarter of the memory: the link that goes above it ends, and gives it back. Whole ones are
/// refused one by one when the memory is full, and their links go on.
#[test]
fn messages_in_parts_have_a_share_of_the_memory() {
    let mut world = World::new(&Setup { memory: 4_000_000, message_size_max: 500_000, ..Setup::new(1) });
    let client = world.connect(0);
    let links: Vec<_> = (0..5)
        .map(|n| world.clients[client].attach_sender(&n.to_string(), "parts", &SenderOptions::default()))
        .collect();
    world.run();
    for link in &links {
        world.clients[client].send_unfinished(*link, 400_000);
        world.run();
    }
    let ended = world.clients[client].detached.iter();
    let ended: Vec<_> =
        ended.filter(|(_, error)| error.as_deref() == Some("amqp:resource-limit-exceeded")).collect();
    assert!(!ended.is_empty() && ended.len() <= 2, "{ended:?}");
    world.kill(client);
    world.run();
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "parts", &SenderOptions::default());
    for _ in 0..20 {
        world.clients[client].send(sender, &"x".repeat(300_000));
    }
    world.run();
    let outcomes = &world.clients[client].outcomes;
    assert_eq!(outcomes.len(), 20);
    assert_eq!(outcomes.iter().filter(|(_, outcome)| outcome == "accepted").count(), 13);
    assert!(world.clients[client].detached.is_empty());
}

/// It is larger than a quarter of the memory, and comes in many parts.
#[test]
fn a_broker_without_messages_takes_the_largest_one() {
    let size_max = 3_500_000;
    let mut world = World::new(&Setup { memory: 4_000_000, message_size_max: size_max, ..Setup::new(2) });
    for shard in 0..2 {
        let client = world.connect(0);
        let queue = name_at(shard, 2);
        let sender = world.clients[client].attach_sender("s", &queue, &SenderOptions::default());
        world.run();
        world.clients[client].send(sender, &"x".repeat(size_max as usize - 100));
        world.run();
        let outcomes = world.clients[client].outcomes.iter().map(|(_, outcome)| outcome.as_str());
        assert_eq!(outcomes.collect::<Vec<_>>(), ["accepted"]);
    }
}
