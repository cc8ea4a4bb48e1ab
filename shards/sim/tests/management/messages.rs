//! What the node does to the messages of queues.

use corelane_sim::{Answer, Item, Operator, ReceiverOptions, SenderOptions, Setup, World, request};
use corelane_wire::amqp10::Value;

use crate::{consume, fill, name_at, other_at, peek_bodies, world};

#[test]
fn messages_are_shown_page_by_page_with_their_holders() {
    for shards in [1, 2] {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(shards - 1, shards);
        fill(&mut world, &name, 30);
        let (holder, link) = consume(&mut world, 0, &name, &ReceiverOptions::default(), 2);
        assert_eq!(world.clients[holder].bodies(link), ["0", "1"]);
        world.advance(3_000_000);
        let ask = |operator: &mut Operator, world: &mut World, properties: &[(&str, Value<'_>)]| {
            operator.ask(world, "PEEK", ("queue", &name), properties, &[])
        };
        let first = ask(&mut operator, &mut world, &[("count", Value::Uint(5)), ("body", Value::Uint(1))]);
        assert_eq!(
            (first.at("messages.0.state"), first.at("messages.2.state")),
            ("acquired".into(), "available".into())
        );
        assert_eq!(first.at("messages.0.acquired-count"), "1");
        assert!(first.at("messages.0.age-us").parse::<u64>().expect("a number") >= 3_000_000);
        let consumer = first.at("messages.0.holder");
        let read = operator.ask(&mut world, "READ", ("consumer", &consumer), &[], &[]);
        assert_eq!((read.at("queue"), read.at("unsettled")), (name.clone(), "2".to_owned()));
        assert_eq!(first.at("messages.2.holder"), "null");
        assert_eq!(first.at("messages.4.message-id"), "id-4");
        assert_eq!(first.at("messages.4.application-properties"), "{n: 4}");
        assert_eq!(
            (first.at("messages.4.body"), first.at("messages.5")),
            ("4".to_owned(), "null".to_owned())
        );
        let next = first.at("next");
        let rest =
            ask(&mut operator, &mut world, &[("from", Value::String(&next)), ("body", Value::Uint(1))]);
        assert_eq!(rest.at("messages.0.body"), "5");
        assert_eq!(
            (rest.at("messages.19.body"), rest.at("messages.19.body-cut")),
            ("2".to_owned(), "true".to_owned())
        );
        let last = ask(&mut operator, &mut world, &[("from", Value::String(&rest.at("next")))]);
        assert_eq!((last.at("messages.4.body"), last.at("next")), ("29".to_owned(), "null".to_owned()));
    }
}

/// The messages of a queue, moved, copied and deleted, to queues here and elsewhere.
#[test]
fn messages_are_moved_copied_and_deleted_over_all_pairs_of_shards() {
    const SHARDS: usize = 3;
    for (from, to) in [(0, 0), (0, 1), (1, 0), (2, 1), (2, 2)] {
        let mut world = world(SHARDS);
        let mut operator = Operator::new(&mut world, 0);
        let source = name_at(from, SHARDS);
        let target = other_at(to, SHARDS);
        let entity = ("queue", &*source);
        fill(&mut world, &source, 600);
        let (_, _) = consume(&mut world, 1, &source, &ReceiverOptions::default(), 3);
        let some = [
            ("to", Value::String(&target)),
            ("selector", Value::String("n < 10")),
            ("count", Value::Uint(5)),
        ];
        let moved = operator.ask(&mut world, "MOVE", entity, &some, &[]);
        assert_eq!((moved.status, moved.at("count")), (200, "5".to_owned()), "{moved:?}");
        assert_eq!(peek_bodies(&mut operator, &mut world, &target), ["3", "4", "5", "6", "7"]);
        let all = [("to", Value::String(&target)), ("selector", Value::String("n >= 590"))];
        let copied = operator.ask(&mut world, "COPY", entity, &all, &[]);
        assert_eq!((copied.status, copied.at("count")), (200, "10".to_owned()));
        assert_eq!(peek_bodies(&mut operator, &mut world, &target).len(), 15);
        assert_eq!(peek_bodies(&mut operator, &mut world, &source).len(), 595);
        let places = [("ids", Item::Texts(&["0", "8", "9", "300", "1234567", "300"]))];
        let deleted = operator.ask(&mut world, "DELETE-MESSAGES", entity, &[], &places);
        // What a consumer holds is not touched, what is not there is not counted.
        assert_eq!((deleted.status, deleted.at("count")), (200, "3".to_owned()), "{deleted:?}");
        let rest = operator.ask(&mut world, "MOVE", entity, &[("to", Value::String(&target))], &[]);
        assert_eq!((rest.status, rest.at("count")), (200, "589".to_owned()), "{rest:?}");
        assert_eq!(peek_bodies(&mut operator, &mut world, &source), ["0", "1", "2"]);
        let bodies = peek_bodies(&mut operator, &mut world, &target);
        let numbers: Vec<u32> = bodies[15..].iter().map(|body| body.parse().expect("a number")).collect();
        assert!(numbers.is_sorted() && numbers.len() == 589, "{numbers:?}");
        let purged = operator.ask(&mut world, "PURGE", ("queue", &target), &[], &[]);
        assert_eq!((purged.status, purged.at("count")), (200, "604".to_owned()), "{purged:?}");
        let read = operator.ask(&mut world, "READ", ("queue", &target), &[], &[]);
        assert_eq!((read.at("messages"), read.at("bytes")), ("0".to_owned(), "0".to_owned()));
    }
}

#[test]
fn a_move_to_a_queue_without_room_stops_and_loses_nothing() {
    for (from, to) in [(0, 0), (0, 1)] {
        let mut world = world(2);
        let mut operator = Operator::new(&mut world, 0);
        let source = name_at(from, 2);
        let target = other_at(to, 2);
        fill(&mut world, &source, 20);
        let limit = [("messages-max", Item::Value(Value::Uint(7)))];
        operator.ask(&mut world, "CREATE", ("queue", &target), &[], &limit);
        let to = [("to", Value::String(&target))];
        let moved = operator.ask(&mut world, "MOVE", ("queue", &source), &to, &[]);
        assert_eq!(moved.status, 409, "{moved:?}");
        let mut all = peek_bodies(&mut operator, &mut world, &target);
        assert_eq!(all.len(), 7);
        all.extend(peek_bodies(&mut operator, &mut world, &source));
        assert_eq!(all, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

/// A target that does not exist is made with its first message, here and elsewhere.
#[test]
fn what_moves_nothing_makes_no_queue() {
    for to in 0..2 {
        let mut world = world(2);
        let mut operator = Operator::new(&mut world, 0);
        let (source, target) = (name_at(0, 2), other_at(to, 2));
        fill(&mut world, &source, 3);
        for operation in ["MOVE", "COPY"] {
            let none = [("to", Value::String(&target)), ("selector", Value::String("n > 100"))];
            let done = operator.ask(&mut world, operation, ("queue", &source), &none, &[]);
            assert_eq!((done.status, done.at("count")), (200, "0".to_owned()), "{done:?}");
            let read = operator.ask(&mut world, "READ", ("queue", &target), &[], &[]);
            assert_eq!(read.status, 404, "{operation} to shard {to}");
        }
        let to = [("to", Value::String(&target))];
        let done = operator.ask(&mut world, "MOVE", ("queue", &source), &to, &[]);
        assert_eq!((done.status, done.at("count")), (200, "3".to_owned()), "{done:?}");
        assert_eq!(peek_bodies(&mut operator, &mut world, &target), ["0", "1", "2"]);
    }
}

/// What is pending takes nobody's place in a queue that drops its oldest, and is not said to fill it.
#[test]
fn a_queue_that_drops_its_oldest_is_not_full_of_what_is_pending() {
    for (overflow, pending, committed) in [("drop-oldest", "null", "full"), ("reject", "full", "full")] {
        let mut world = world(1);
        let mut operator = Operator::new(&mut world, 0);
        let bounds = [
            ("messages-max", Item::Value(Value::Uint(2))),
            ("bytes-max", Item::Value(Value::Uint(1000))),
            ("overflow", Item::Value(Value::String(overflow))),
        ];
        assert_eq!(operator.ask(&mut world, "CREATE", ("queue", "q"), &[], &bounds).status, 201);
        let client = world.connect(0);
        let coordinator = world.clients[client].attach_coordinator("txn", &[]);
        let sender = world.clients[client].attach_sender("s", "q", &SenderOptions::default());
        world.run();
        world.clients[client].declare(coordinator);
        world.run();
        for body in ["a", "b"] {
            world.clients[client].send_in(sender, 1, body);
        }
        world.run();
        let mut full = |world: &mut World| {
            let said = operator.ask(world, "EXPLAIN", ("queue", "q"), &[], &[]).at("full");
            if said.starts_with("The queue is full (messages-max 2)") { "full".to_owned() } else { said }
        };
        assert_eq!(full(&mut world), pending, "{overflow}");
        world.clients[client].discharge(coordinator, 1, false);
        world.run();
        assert_eq!(full(&mut world), committed, "{overflow}");
    }
}

/// Of 3000 messages, whenever their operator's connection or one of its links ends; then it is in the log, or in the reply-to that has a
/// name.
#[test]
fn what_is_done_to_messages_is_carried_to_its_end_although_nobody_waits() {
    const COUNT: i32 = 3000;
    for (operation, shard, end) in [
        ("MOVE", 1, End::Connection),
        ("MOVE", 2, End::Connection),
        ("COPY", 1, End::Connection),
        ("PURGE", 1, End::Connection),
        ("MOVE", 1, End::Requests),
        ("MOVE", 2, End::Answers),
    ] {
        for slices in [0, 1, 5] {
            let mut world = World::new(&Setup { verify: false, ..Setup::new(3) });
            let mut operator = Operator::new(&mut world, 0);
            let (source, target) = (name_at(2, 3), other_at(shard, 3));
            fill(&mut world, &source, COUNT);
            let to = [("to", Value::String(&target))];
            let to = if operation == "PURGE" { &[][..] } else { &to[..] };
            operator.send(&mut world, operation, ("queue", &source), to, &[]);
            let gone = |world: &World| match operation {
                "COPY" => depth(world, &target),
                _ => COUNT as u64 - depth(world, &source),
            };
            while world.shards[0].requests_in_service() == 0 || gone(&world) < 256 * slices {
                assert!(world.step(), "{operation} {slices}");
            }
            assert!(gone(&world) < COUNT as u64, "it is under way");
            match end {
                End::Connection => world.kill(operator.client),
                End::Requests => world.clients[operator.client].detach(operator.sender),
                End::Answers => world.clients[operator.client].detach(operator.receiver),
            }
            world.run();
            let (left, there) = match operation {
                "MOVE" => (0, COUNT as u64),
                "COPY" => (COUNT as u64, COUNT as u64),
                _ => (0, 0),
            };
            assert_eq!(
                (depth(&world, &source), depth(&world, &target)),
                (left, there),
                "{operation} {slices}"
            );
            let said = world.warnings.join("\n");
            let expect = format!("3000 messages of {source:?} were ");
            let is_said = said.contains(&expect) && said.contains("for a client that has gone: 200 OK");
            assert_eq!(is_said, matches!(end, End::Connection), "{operation} {slices}: {said:?}");
            assert_eq!(world.shards.iter().map(|shard| shard.requests_in_service()).sum::<usize>(), 0);
        }
    }
}

/// What ends while messages are moved.
#[derive(Clone, Copy)]
enum End {
    Connection,
    /// The link that the request came by, and the one that its answer is to go by.
    Requests,
    Answers,
}

fn depth(world: &World, queue: &str) -> u64 {
    let shard = &world.shards[world.home_of(queue)];
    shard.queue(queue).and_then(|queue| shard.engine().depth(queue)).map_or(0, |depth| depth.messages)
}

#[test]
fn a_queue_that_has_a_name_takes_the_answer_for_a_client_that_has_gone() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(2) });
    fill(&mut world, "source", 1000);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("requests", "$management", &SenderOptions::default());
    world.run();
    let properties = [
        ("operation", Value::String("PURGE")),
        ("type", Value::String("queue")),
        ("name", Value::String("source")),
    ];
    world.clients[client].send_bytes(sender, &request("answers", 7, &properties, &[]));
    while depth(&world, "source") == 1000 {
        assert!(world.step());
    }
    world.kill(client);
    world.run();
    assert_eq!(depth(&world, "source"), 0);
    let (heir, _) = consume(&mut world, 0, "answers", &ReceiverOptions::default(), 1);
    let answer = Answer::read(&world.clients[heir].received[0].bytes);
    assert_eq!((answer.number, answer.status, answer.at("count")), (7, 200, "1000".to_owned()));
}

/// Whatever else was asked for is not looked for any more.
#[test]
fn a_connection_that_ends_leaves_its_requests_behind() {
    for steps in 0..40 {
        let mut world = World::new(&Setup { seed: steps, verify: false, ..Setup::new(3) });
        let mut operator = Operator::new(&mut world, 0);
        let name = name_at(2, 3);
        fill(&mut world, &name, 600);
        let target = other_at(1, 3);
        let to = [("to", Value::String(&target))];
        operator.send(&mut world, "MOVE", ("queue", &name), &to, &[]);
        operator.send(&mut world, "QUERY", ("", ""), &[], &[]);
        for _ in 0..steps {
            world.step();
        }
        world.kill(operator.client);
        world.run();
        world.advance(10_000_000);
        // All are in one of the two: the request was taken, or was not.
        let both = [&*target, &*name].map(|queue| depth(&world, queue));
        assert!(both == [600, 0] || both == [0, 600], "{both:?}");
        assert_eq!(world.shards.iter().map(|shard| shard.requests_in_service()).sum::<usize>(), 0);
    }
}

/// A broker that stops does not wait for all of them, but for those that are in two queues.
#[test]
fn a_stop_leaves_each_message_in_one_queue() {
    for steps in 0..60 {
        let mut world = World::new(&Setup { seed: steps, verify: false, ..Setup::new(3) });
        let mut operator = Operator::new(&mut world, 0);
        let (source, target) = (name_at(2, 3), other_at(1, 3));
        fill(&mut world, &source, 3000);
        let to = [("to", Value::String(&target))];
        operator.send(&mut world, "MOVE", ("queue", &source), &to, &[]);
        for _ in 0..steps {
            world.step();
        }
        world.begin_stop();
        while !world.has_stopped() {
            assert!(world.step());
        }
        assert_eq!(depth(&world, &source) + depth(&world, &target), 3000, "after {steps} steps");
    }
}

#[test]
fn what_comes_while_a_queue_is_purged_stays() {
    let mut world = World::new(&Setup { verify: false, ..Setup::new(1) });
    let mut operator = Operator::new(&mut world, 0);
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender("s", "q", &SenderOptions::default());
    fill(&mut world, "q", 3000);
    world.advance(10);
    let number = operator.send(&mut world, "PURGE", ("queue", "q"), &[], &[]);
    let depth = |world: &World| {
        let shard = &world.shards[0];
        shard.queue("q").and_then(|queue| shard.engine().depth(queue)).map_or(0, |depth| depth.messages)
    };
    while depth(&world) == 3000 {
        assert!(world.step());
    }
    assert!(depth(&world) > 0, "it goes in slices");
    world.now += 10;
    for n in 0..10 {
        world.clients[client].send(sender, &format!("late {n}"));
    }
    world.run();
    let answers = operator.answers(&world);
    assert_eq!((answers[0].number, answers[0].at("count")), (number, "3000".to_owned()));
    assert_eq!(peek_bodies(&mut operator, &mut world, "q").len(), 10);
}

/// More than fits one step on its way to another shard.
#[test]
fn large_messages_named_one_by_one_are_all_moved() {
    for (from, to) in [(0, 0), (0, 1)] {
        let mut world = world(2);
        let mut operator = Operator::new(&mut world, 0);
        let source = name_at(from, 2);
        let target = other_at(to, 2);
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &source, &SenderOptions::default());
        world.run();
        for n in 0..20 {
            world.clients[client].send(sender, &format!("{n:0100}").repeat(1000));
        }
        world.run();
        let ids: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let to = [("to", Value::String(&target))];
        let moved = operator.ask(&mut world, "MOVE", ("queue", &source), &to, &[("ids", Item::Texts(&ids))]);
        assert_eq!((moved.status, moved.at("count")), (200, "20".to_owned()), "{moved:?}");
        assert_eq!(peek_bodies(&mut operator, &mut world, &target).len(), 20);
    }
}

/// A queue's messages are on their way to another shard: who comes then is refused, and nothing is there twice, nor out of order.
#[test]
fn a_queue_that_is_being_moved_elsewhere_is_left_alone_by_others() {
    const SHARDS: usize = 3;
    for (from, to) in [(0, 1), (1, 0), (2, 1)] {
        let mut world = World::new(&Setup { verify: false, ..Setup::new(SHARDS) });
        let (source, target) = (name_at(from, SHARDS), other_at(to, SHARDS));
        let entity = ("queue", &*source);
        let mut operators = [0, 2].map(|shard| Operator::new(&mut world, shard));
        let to = [("to", Value::String(&target))];
        for round in 1..=2 {
            fill(&mut world, &source, 2500);
            let numbers =
                operators.each_mut().map(|operator| operator.send(&mut world, "MOVE", entity, &to, &[]));
            world.run();
            let mut statuses: Vec<i64> = Vec::new();
            for (operator, number) in operators.iter_mut().zip(numbers) {
                let answer = operator.answers(&world).pop().expect("each is answered");
                assert_eq!(answer.number, number);
                assert!(
                    answer.status == 200 || answer.description.contains("by another request"),
                    "{answer:?}"
                );
                statuses.push(answer.status);
            }
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 409]);
            assert_eq!(peek_bodies(&mut operators[0], &mut world, &source), [""; 0]);
            let moved = peek_bodies(&mut operators[0], &mut world, &target);
            let expected = (0..round * 2500).map(|n| (n % 2500).to_string()).take(1000);
            assert_eq!(moved, expected.collect::<Vec<_>>());
        }
        fill(&mut world, &source, 3000);
        let [mover, other] = &mut operators;
        let some = [("count", Value::Uint(1))];
        for (operation, arguments) in [("PURGE", &[][..]), ("DELETE-MESSAGES", &some[..]), ("COPY", &to[..])]
        {
            let depth = |world: &World, shard: usize, queue: &str| {
                let shard = &world.shards[shard];
                shard.queue(queue).and_then(|queue| shard.engine().depth(queue)).map_or(0, |it| it.messages)
            };
            let there = depth(&world, world.home_of(&target), &target);
            mover.send(&mut world, "MOVE", entity, &to, &[]);
            while depth(&world, world.home_of(&target), &target) == there {
                assert!(world.step());
            }
            let refused = other.ask(&mut world, operation, entity, arguments, &[]);
            assert_eq!(refused.status, 409, "{operation}: {refused:?}");
            let moved = mover.answers(&world).pop().expect("it is answered");
            assert_eq!((moved.status, moved.at("count")), (200, "3000".to_owned()), "{operation}");
            fill(&mut world, &source, 3000);
        }
    }
}

/// A shard stands still while messages are on their way to it, for longer than anybody waits: they are in one of the two queues all
/// the same, once it goes on.
#[test]
fn a_move_that_was_given_up_leaves_each_message_in_one_queue() {
    for stalled in [1, 2] {
        for steps in 0..40 {
            let mut world = World::new(&Setup { seed: steps, verify: false, ..Setup::new(3) });
            let mut operator = Operator::new(&mut world, 0);
            let (source, target) = (name_at(2, 3), other_at(1, 3));
            fill(&mut world, &source, 600);
            let to = [("to", Value::String(&target))];
            operator.send(&mut world, "MOVE", ("queue", &source), &to, &[]);
            for _ in 0..steps {
                world.step();
            }
            world.stall(stalled, true);
            world.run();
            world.advance(10_000_000);
            let answer = operator.answers(&world).pop().expect("it is answered");
            assert!(matches!(answer.status, 200 | 504), "{answer:?}");
            world.stall(stalled, false);
            world.run();
            let both = [&*target, &*source].map(|queue| peek_bodies(&mut operator, &mut world, queue).len());
            assert_eq!(both.iter().sum::<usize>(), 600, "{both:?}");
            let purged = operator.ask(&mut world, "PURGE", ("queue", &source), &[], &[]);
            assert_eq!((purged.status, purged.at("count")), (200, both[1].to_string()), "{purged:?}");
            assert_eq!(world.shards.iter().map(|shard| shard.requests_in_service()).sum::<usize>(), 0);
        }
    }
}
