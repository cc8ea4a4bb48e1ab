//! What happens between shards: moves, ends, stalls, full lanes.

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{ReceiverOptions, SenderOptions, Setup, World, names_homed_at};

fn world(shards: usize, seed: u64) -> World {
    World::new(&Setup { seed, ..Setup::new(shards) })
}

fn name_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).next().expect("there is one for each shard")
}

/// A connection publishes to queues everywhere, then attaches its first consumer and so moves, publishing all the while:
/// each queue has the messages of each link in order, each settled once.
#[test]
fn s61_order_and_settlements_hold_over_a_move() {
    for seed in 0..50 {
        let mut world = world(4, seed);
        let client = world.connect(0);
        let names: Vec<String> = (0..4).map(|shard| name_at(shard, 4)).collect();
        let senders: Vec<LinkId> = names
            .iter()
            .map(|name| world.clients[client].attach_sender(name, name, &SenderOptions::default()))
            .collect();
        world.run();
        for n in 0..30 {
            for sender in &senders {
                world.clients[client].send(*sender, &n.to_string());
            }
        }
        for _ in 0..seed % 7 {
            world.step();
        }
        let receiver = world.clients[client].attach_receiver("r", &names[3], &ReceiverOptions::default());
        for n in 30..60 {
            for sender in &senders {
                world.clients[client].send(*sender, &n.to_string());
            }
        }
        world.clients[client].credit(receiver, 1000);
        world.run();
        assert_eq!(world.shard_of(client), 3);
        let mut tokens: Vec<u64> = world.clients[client].outcomes.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (1..=240).collect::<Vec<u64>>(), "seed {seed}");
        let expect: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        assert_eq!(world.clients[client].bodies(receiver), expect);
        let reader = world.connect(1);
        for name in &names[..3] {
            let link = world.clients[reader].attach_receiver(name, name, &ReceiverOptions::default());
            world.clients[reader].credit(link, 1000);
            world.run();
            assert_eq!(world.clients[reader].bodies(link), expect, "{name}, seed {seed}");
        }
    }
}

/// A connection dies while the home of one of its consumers is delivering to it: everything comes back, in order, once.
#[test]
fn s62_a_dead_targets_messages_come_back_in_order() {
    for seed in 0..50 {
        let mut world = world(2, seed);
        let (near, far) = (name_at(0, 2), name_at(1, 2));
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
        let doomed = world.connect(0);
        world.clients[doomed].attach_receiver("near", &near, &ReceiverOptions::default());
        let receiver = world.clients[doomed].attach_receiver("far", &far, &ReceiverOptions::default());
        world.clients[doomed].credit(receiver, 100);
        world.run();
        for n in 0..60 {
            world.clients[producer].send(sender, &n.to_string());
        }
        for _ in 0..3 + seed % 9 {
            world.step();
        }
        world.kill(doomed);
        world.run();
        let heir = world.connect(1);
        let link = world.clients[heir].attach_receiver("heir", &far, &ReceiverOptions::default());
        world.clients[heir].credit(link, 1000);
        world.run();
        let expect: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        assert_eq!(world.clients[heir].bodies(link), expect, "seed {seed}");
    }
}

/// Connections on all shards name the same queue at once: it is one queue. When it goes while messages are on their way to
/// it, their producers are told, and none turns up in a queue of the same name.
#[test]
fn s63_one_queue_whoever_names_it_and_none_for_the_dead() {
    for seed in 0..30 {
        let mut world = world(4, seed);
        let clients: Vec<usize> = (0..4).map(|shard| world.connect(shard)).collect();
        let senders: Vec<LinkId> = clients
            .iter()
            .map(|&client| world.clients[client].attach_sender("s", "shared", &SenderOptions::default()))
            .collect();
        for (&client, &sender) in clients.iter().zip(&senders) {
            world.clients[client].send(sender, "x");
        }
        world.run();
        let homes = world.shards.iter().filter(|shard| shard.queue("shared").is_some()).count();
        assert_eq!(homes, 1);

        let owner = world.connect(0);
        let options = ReceiverOptions { dynamic: true, ..ReceiverOptions::default() };
        let dynamic = world.clients[owner].attach_receiver("d", "", &options);
        world.run();
        let (_, address) = world.clients[owner].addresses[0].clone();
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("d", &address, &SenderOptions::default());
        world.run();
        world.stall(0, true);
        for n in 0..5 {
            world.clients[producer].send(sender, &n.to_string());
        }
        world.run();
        world.clients[owner].detach(dynamic);
        world.run();
        world.stall(0, false);
        world.run();
        let gone = (sender, Some("amqp:resource-deleted".to_owned()));
        assert!(world.clients[producer].detached.contains(&gone), "seed {seed}");
        // The next one on that shard takes the dead one's place in its tables, and none of its mail.
        let next = world.clients[owner].attach_receiver("next", "", &options);
        world.clients[owner].credit(next, 10);
        world.run();
        world.clients[producer].send(sender, "old");
        world.run();
        assert!(world.clients[owner].bodies(next).is_empty(), "seed {seed}");
        assert_eq!(world.clients[producer].outcomes.len(), 5, "what was under way is answered");
        let again = world.clients[producer].attach_sender("again", &address, &SenderOptions::default());
        world.run();
        assert!(world.clients[producer].detached.contains(&(again, Some("amqp:not-found".to_owned()))));
    }
}

/// Heavy traffic both ways between two shards, one client on each slow to read: both go on, order holds, nothing is lost.
/// There is more of everything than a window, a loan or an output takes.
#[test]
fn s64_full_lanes_both_ways_and_slow_readers() {
    const LINKS: usize = 6;
    let bodies: Vec<String> = (0..1_000).map(|n| format!("{n:0>800}")).collect();
    for seed in 0..3 {
        let mut world = World::new(&Setup { seed, verify: false, ..Setup::new(2) });
        let mut sides = Vec::new();
        for shard in 0..2 {
            let client = world.connect(shard);
            // The first consumer keeps the connection where it is, the others are targets on the other shard.
            world.clients[client].attach_receiver("stay", &name_at(shard, 2), &ReceiverOptions::default());
            world.run();
            world.clients[client].accepts = true;
            for name in names_homed_at(1 - shard, 2).skip(1).take(LINKS) {
                let receiver =
                    world.clients[client].attach_receiver(&name, &name, &ReceiverOptions::default());
                world.clients[client].credit(receiver, 20_000);
                let sender = world.clients[client].attach_sender(&name, &name, &SenderOptions::default());
                sides.push((client, sender, receiver));
            }
        }
        world.run();
        for body in &bodies {
            for &(client, sender, _) in &sides {
                world.clients[client].send(sender, body);
            }
        }
        for round in 0..300 {
            world.client_reads(0, round % 3 == 0);
            world.client_reads(1, round % 4 == 0);
            world.step();
        }
        world.client_reads(0, true);
        world.client_reads(1, true);
        world.run();
        for &(client, _, receiver) in &sides {
            assert_eq!(world.clients[client].bodies(receiver), bodies, "seed {seed}");
            assert_eq!(world.clients[client].outcomes.len(), 1_000 * LINKS);
        }
        let most = world.shards.iter().map(|shard| shard.counters().deliveries_returned).max();
        assert!(most > Some(0), "nobody was blocked");
    }
}

/// The links of a connection come and go while deliveries to them are on their way from another shard: none arrives on a
/// later link that has the same number.
#[test]
fn s62_deliveries_to_a_link_that_ended_reach_no_other() {
    for seed in 0..30 {
        let mut world = world(2, seed);
        let mut far = names_homed_at(1, 2);
        let (first, second) = (far.next().expect("there is one"), far.next().expect("there are two"));
        let client = world.connect(0);
        world.clients[client].attach_receiver("stay", &name_at(0, 2), &ReceiverOptions::default());
        let old = world.clients[client].attach_receiver("old", &first, &ReceiverOptions::default());
        world.clients[client].credit(old, 100);
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &first, &SenderOptions::default());
        world.run();
        world.clients[client].detach(old);
        for n in 0..50 {
            world.clients[producer].send(sender, &n.to_string());
        }
        for _ in 0..1 + seed % 5 {
            world.step();
        }
        let new = world.clients[client].attach_receiver("new", &second, &ReceiverOptions::default());
        world.clients[client].credit(new, 100);
        world.run();
        let arrived_late =
            world.clients[client].received.iter().filter(|r| r.link == new && new != old).count();
        assert_eq!(arrived_late, 0, "seed {seed}");
        assert_eq!(world.clients[client].credit_left(new), 100, "seed {seed}");
        let heir = world.connect(1);
        let link = world.clients[heir].attach_receiver("heir", &first, &ReceiverOptions::default());
        world.clients[heir].credit(link, 1000);
        world.run();
        let expect: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        assert_eq!(world.clients[heir].bodies(link), expect, "seed {seed}");
    }
}

/// One shard stands still: traffic among the others goes on; what needs it waits, and resumes.
#[test]
fn s65_a_stalled_shard_harms_nobody_else() {
    let mut world = world(3, 4);
    let (here, there) = (name_at(0, 3), name_at(2, 3));
    let producer = world.connect(0);
    let near = world.clients[producer].attach_sender("near", &here, &SenderOptions::default());
    let far = world.clients[producer].attach_sender("far", &there, &SenderOptions::default());
    let consumer = world.connect(1);
    let receiver = world.clients[consumer].attach_receiver("r", &here, &ReceiverOptions::default());
    world.clients[consumer].credit(receiver, 1000);
    world.run();
    world.stall(2, true);
    for n in 0..100 {
        world.clients[producer].send(far, &n.to_string());
        world.clients[producer].send(near, &n.to_string());
    }
    let late = world.clients[producer].attach_sender("late", &there, &SenderOptions::default());
    let waiting = world.clients[producer].attach_sender("later", &here, &SenderOptions::default());
    world.run();
    world.advance(2_000_000);
    assert_eq!(world.clients[consumer].bodies(receiver).len(), 100);
    assert_eq!(world.clients[producer].outcomes.len(), 100);
    assert!(world.clients[producer].attached.contains(&waiting), "an attach to another shard is answered");
    assert!(!world.clients[producer].attached.contains(&late), "an attach to the stalled one waits");
    world.stall(2, false);
    world.run();
    assert_eq!(world.clients[producer].outcomes.len(), 200);
    assert!(world.clients[producer].attached.contains(&late));
}

/// A message notified to a high-priority consumer elsewhere, whose socket blocks before it can be written, goes to the next
/// one; nothing waits for another publish.
#[test]
fn s01_a_blocked_target_hands_its_message_on() {
    for seed in 0..20 {
        let mut world = world(2, seed);
        let (far, near) = (name_at(1, 2), name_at(0, 2));
        let high = world.connect(0);
        world.clients[high].attach_receiver("stay", &near, &ReceiverOptions::default());
        let options = ReceiverOptions { priority: Some(10), ..ReceiverOptions::default() };
        let first = world.clients[high].attach_receiver("high", &far, &options);
        world.clients[high].credit(first, 100_000);
        let low = world.connect(1);
        let second = world.clients[low].attach_receiver("low", &far, &ReceiverOptions::default());
        world.clients[low].credit(second, 100_000);
        let producer = world.connect(1);
        let sender = world.clients[producer].attach_sender("s", &far, &SenderOptions::default());
        world.run();
        world.client_reads(high, false);
        let big = "x".repeat(100_000);
        for _ in 0..60 {
            world.clients[producer].send(sender, &big);
        }
        world.run();
        let (to_high, to_low) =
            (world.clients[high].bodies(first).len(), world.clients[low].bodies(second).len());
        assert!(to_low > 0, "seed {seed}: the low one got nothing");
        world.client_reads(high, true);
        world.run();
        let arrived = world.clients[high].bodies(first).len() + world.clients[low].bodies(second).len();
        assert_eq!(arrived, 60, "seed {seed}: {to_high} and {to_low} at first");
    }
}

/// As before, but the whole shard of the high-priority consumer stands still: after the recall time-out its message goes to
/// the next one, and the stalled shard does not write it later.
#[test]
fn s01_a_stalled_targets_message_is_recalled() {
    let mut world = world(2, 6);
    let (far, near) = (name_at(1, 2), name_at(0, 2));
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
    world.stall(0, true);
    world.clients[producer].send(sender, "m");
    world.run();
    assert!(world.clients[low].bodies(second).is_empty());
    for _ in 0..22 {
        world.advance(50_000);
    }
    assert_eq!(world.clients[low].bodies(second), ["m"]);
    world.stall(0, false);
    world.run();
    assert!(world.clients[high].bodies(first).is_empty());
    world.clients[producer].send(sender, "n");
    world.run();
    assert_eq!(world.clients[high].bodies(first), ["n"], "the stalled one is served again");
}

/// One connection with two busy consumers, one of them on another shard: neither waits for the other to run dry.
#[test]
fn s11_consumers_on_two_shards_take_turns() {
    let mut judged = 0;
    for seed in 0..20 {
        let mut world = World::new(&Setup { seed, verify: false, ..Setup::new(2) });
        let names = [name_at(0, 2), name_at(1, 2)];
        let producer = world.connect(0);
        let consumer = world.connect(0);
        let mut receivers = Vec::new();
        for name in &names {
            let sender = world.clients[producer].attach_sender(name, name, &SenderOptions::default());
            for n in 0..2000 {
                world.clients[producer].send(sender, &n.to_string());
            }
            receivers.push(world.clients[consumer].attach_receiver(name, name, &ReceiverOptions::default()));
        }
        world.run();
        for receiver in &receivers {
            world.clients[consumer].credit(*receiver, 2000);
        }
        world.run();
        // Who is ahead waits a little for who has nothing any more and has not said so.
        world.advance(60_000);
        let order: Vec<LinkId> =
            world.clients[consumer].received.iter().map(|received| received.link).collect();
        assert_eq!(order.len(), 4000);
        // Whoever's flow was read first had a start, how long a one is the network's doing.
        if order.iter().position(|link| *link != order[0]).expect("both were served") > 600 {
            continue;
        }
        let last = |link| order.iter().rposition(|other| *other == link).expect("both were served");
        let first_dry = last(receivers[0]).min(last(receivers[1]));
        let other = if order[first_dry] == receivers[0] { receivers[1] } else { receivers[0] };
        let served = order[..first_dry].iter().filter(|link| **link == other).count();
        assert!(served >= 1000, "seed {seed}: {served} of 2000 when the other ran dry");
        judged += 1;
    }
    assert!(judged >= 2, "{judged}");
}

/// A connection that has more on its way to a shard than a window takes is read no further, and goes on when that shard answers,
/// though nothing else happens on it: its messages are sent settled, and on so many links that none wants credit.
#[test]
fn s64_a_held_connection_goes_on() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(2) });
    let producer = world.connect(0);
    let options = SenderOptions { presettled: true, ..SenderOptions::default() };
    let names: Vec<String> = names_homed_at(1, 2).take(60).collect();
    let attach = |name: &String| world.clients[producer].attach_sender(name, name, &options);
    let senders: Vec<LinkId> = names.iter().map(attach).collect();
    world.run();
    world.stall(1, true);
    for n in 0..100 {
        for sender in &senders {
            world.clients[producer].send(*sender, &n.to_string());
        }
    }
    world.run();
    let handed_off = world.shards[0].counters().handoffs;
    assert!((4096..5000).contains(&handed_off), "{handed_off}");
    world.stall(1, false);
    world.run();
    assert_eq!(world.shards[0].counters().handoffs, 6000);
}

/// Two links whose messages alternate: what became of them goes back in as many mails as they came in, not one a message.
#[test]
fn one_handoff_has_one_answer() {
    let mut world = world(2, 1);
    let far: Vec<String> = names_homed_at(1, 2).take(2).collect();
    let producer = world.connect(0);
    let senders: Vec<LinkId> = far
        .iter()
        .map(|name| world.clients[producer].attach_sender(name, name, &SenderOptions::default()))
        .collect();
    world.run();
    let before = world.mails;
    for n in 0..128 {
        world.clients[producer].send(senders[n % 2], &n.to_string());
    }
    world.run();
    let outcomes = &world.clients[producer].outcomes;
    assert_eq!(outcomes.iter().filter(|(_, outcome)| outcome == "accepted").count(), 128);
    let mails = world.mails - before;
    assert!(mails <= 16, "{mails} mails for 128 messages");
}
