//! What a connection costs, in memory and in work.

use super::script::{OPENED, Script, check, check_with, config, encode_line};
use crate::amqp091::{
    Config, Connection, Event, LinkId, Outcome, Outgoing, Payload, Progress, SendReadiness, Token,
};
use corelane_wire::amqp091::{PropertyFields, ShortStr};

#[test]
fn unfinished_messages_are_bounded() {
    check(
        "open ch=2; publish; head size=15000; body size=4000; body size=4000; body size=4000; publish ch=2; head ch=2 size=20000
         body ch=2 size=4000; body ch=2 size=4000; body ch=2 size=4000; body ch=2 size=4000; close-ok ch=2; body size=3000",
        "> ch=2 channel.open-ok; * channel 2 l=1
         > ch=2 channel.close 311 (CONTENT_TOO_LARGE - more bytes of unfinished messages than there is memory for) by basic.publish
         * detached l=1; * ended 2 311; * message l=0 1 k= 15000 settled assembled",
    );
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(OPENED);
    script.connection.bound_assembly(5000);
    script.run("publish; head size=6000; body size=4000");
    assert_eq!(script.connection.assembled_size(), 4000);
    script.log.clear();
    script.run("body size=1001");
    assert_eq!(script.connection.assembled_size(), 0);
    assert_eq!(script.log.len(), 3, "{:?}", script.log);
}

#[test]
fn links_are_bounded() {
    let few = Config { links_max: 2, ..config() };
    let text = "RESOURCE_ERROR - the maximum of channels and consumers is reached";
    for (input, by) in
        [("consume q=q", "basic.consume"), ("open ch=2", "channel.open"), ("get q=r", "basic.get")]
    {
        check_with(
            few.clone(),
            &format!("{OPENED}; consume q=q"),
            &format!("{input}; c.close-ok"),
            &format!(
                "> connection.close 506 ({text}) by {by}; * detached l=0; * detached l=1; * ended 1; * closed 506"
            ),
        );
    }
}

#[test]
fn unsettled_deliveries_are_bounded() {
    check_with(
        config(),
        &format!("{OPENED}; consume q=q tag=a; !send l=1 count=8 size=0"),
        "!ready l=1; get q=r; !manual; get q=r noack; !empty l=2; ack 3; !ready l=1; !credit l=1; !send l=1 size=0; ack 0 multiple",
        "= NoCredit; > get-empty; * get 1 l=2 q=r noack; > get-empty
         * accepted; * outcome l=1 2; * session-flow 1; = Ready; = 1; > deliver 9 tag=a; > head 0
         * accepted; * outcome l=1 0; * outcome l=1 1; * outcome l=1 3; * outcome l=1 4; * outcome l=1 5; * outcome l=1 6
         * outcome l=1 7; * outcome l=1 8; * session-flow 1",
    );
}

/// Gives bytes to a connection; the count of events.
fn feed(connection: &mut Connection, bytes: &[u8]) -> usize {
    let mut input = bytes;
    let mut events = 0;
    while let Some(event) = connection.receive(0, &mut input) {
        events += 1;
        match event {
            Event::Disposition { .. } => while connection.poll_outcome().is_some() {},
            Event::Message(message) => {
                assert!(matches!(message.payload, Payload::Slice(_)), "frames that come together are slices");
                connection.settle(message.link, message.delivery_id, Outcome::Accepted);
            }
            _ => {}
        }
    }
    assert!(input.is_empty());
    events
}

const OUTGOING: Outgoing<'_> = Outgoing {
    token: Token(1, 2),
    redelivered: false,
    exchange: ShortStr::literal("e"),
    routing_key: ShortStr::literal("k"),
    properties: PropertyFields::new(&[0, 0]),
    body: &[b"message"],
    message_count: 0,
};

#[test]
fn a_turn_costs_no_allocation_per_message() {
    // Buffers that grew in the first round are enough for all that follow.
    let config = Config { unsettled_max: 10_000, unconfirmed_max: 10_000, ..config() };
    let mut script = Script::new(Connection::server(config, 0));
    script.run(OPENED);
    script.run("confirm; consume q=q tag=a; consume q=q tag=b");
    let connection = &mut script.connection;
    let mut capacities = Vec::new();
    for round in 0..4_u64 {
        let mut bytes = Vec::new();
        (0..500).for_each(|_| encode_line("message x=e k=q size=100", &mut bytes));
        assert_eq!(feed(connection, &bytes), 500);
        for index in 0..500 {
            let progress = connection.send(LinkId(1 + index % 2), &OUTGOING);
            assert!(matches!(progress, Progress::Complete { settled: false, .. }));
        }
        connection.finish_turn(0);
        let mut bytes = Vec::new();
        (1..400).for_each(|index| encode_line(&format!("ack {}", round * 500 + index), &mut bytes));
        encode_line("ack 0 multiple", &mut bytes);
        assert_eq!(feed(connection, &bytes), 400);
        let channel = connection.channel(1).unwrap();
        capacities.push((connection.output.capacity(), channel.sent.capacity(), channel.confirms.capacity()));
        connection.output().clear();
        connection.verify();
    }
    assert!(capacities.iter().all(|capacity| *capacity == capacities[0]), "{capacities:?}");
}

#[test]
fn what_is_settled_makes_room_at_once() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(OPENED);
    script.run("confirm");
    let connection = &mut script.connection;
    let mut bytes = Vec::new();
    (0..10).for_each(|_| encode_line("message", &mut bytes));
    let mut input = &bytes[..];
    let mut take = |connection: &mut Connection| {
        std::iter::from_fn(|| connection.receive(0, &mut input).map(drop)).count()
    };
    assert_eq!(take(connection), 8);
    assert!(connection.is_full());
    connection.settle(LinkId(0), 1, Outcome::Accepted);
    assert_eq!(take(connection), 1);
    assert!(connection.is_full());
    connection.settle(LinkId(0), 2, Outcome::Accepted);
    assert_eq!(take(connection), 1);
    assert!(!connection.is_full());
    connection.verify();
}

#[test]
fn s16_a_head_that_is_never_settled_does_not_hold_the_rest() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(OPENED);
    script.run("consume q=q tag=a");
    let connection = &mut script.connection;
    assert!(matches!(connection.send(LinkId(1), &OUTGOING), Progress::Complete { .. }));
    let mut bytes = Vec::new();
    for tag in 2..50_000 {
        assert!(matches!(connection.send(LinkId(1), &OUTGOING), Progress::Complete { .. }));
        connection.output().clear();
        bytes.clear();
        encode_line(&format!("ack {tag}"), &mut bytes);
        assert_eq!(feed(connection, &bytes), 1);
    }
    let sent = &connection.channel(1).unwrap().sent;
    sent.verify();
    assert_eq!(sent.count(), 1);
    assert!(sent.capacity() < 128, "{}", sent.capacity());
}

#[test]
fn memory_of_a_burst_is_given_back() {
    let config =
        Config { unsettled_max: 100_000, unconfirmed_max: 100_000, parked_size_max: 1 << 20, ..config() };
    let mut script = Script::new(Connection::server(config, 0));
    script.run(OPENED);
    script.run("confirm; consume q=q tag=a; !send l=1 count=20000 size=0");
    script.log.clear();
    let connection = &mut script.connection;
    let mut bytes = Vec::new();
    (0..20_000).for_each(|_| encode_line("message", &mut bytes));
    encode_line("ack 19999 multiple", &mut bytes);
    assert_eq!(feed(connection, &bytes), 20_001);
    connection.finish_turn(0);
    script.run("!send l=1 size=0; message; !settle 20001 accepted; !manual; declare q=q; message size=200000; !reply q=q");
    let channel = script.connection.channel(1).unwrap();
    assert!(channel.sent.capacity() <= 1100, "{}", channel.sent.capacity());
    assert!(channel.confirms.capacity() <= 5000, "{}", channel.confirms.capacity());
    assert!(channel.parked.capacity() <= 4096, "{}", channel.parked.capacity());
}

#[test]
fn a_delivery_too_far_ahead_of_the_oldest_waits() {
    // RFC 1982: numbers 2^31 apart cannot be told from each other.
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(OPENED);
    script.run("consume q=q tag=a; !send l=1");
    for (tag, expect) in [(0x7fff_ffff, SendReadiness::Ready), (0x8000_0000, SendReadiness::NoCredit)] {
        script.connection.channel_mut(1).unwrap().delivery_tag_next = tag;
        assert_eq!(script.connection.can_send(LinkId(1)), expect);
    }
    script.log.clear();
    script.run("ack 1");
    assert_eq!(script.connection.can_send(LinkId(1)), SendReadiness::Ready);
    assert_eq!(script.log, ["* accepted", "* outcome l=1 0", "* session-flow 1"]);
}

#[test]
fn tags_go_on_beyond_32_bits() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(OPENED);
    script.run("confirm; consume q=q tag=a");
    let next = (1 << 32) - 1;
    let channel = script.connection.channel_mut(1).unwrap();
    channel.delivery_tag_next = next;
    channel.published = next - 1;
    channel.confirms.skip_to(next);
    script.log.clear();
    script.run("!send l=1 count=3 size=0; ack 4294967296; ack 4294967297 multiple; message + message + message; !settle 1 accepted; !settle 4294967295 accepted + !settle 0 accepted");
    let told = &script.log[script.log.len() - 10..];
    assert_eq!(
        told,
        [
            "* accepted",
            "* outcome l=1 1",
            "* accepted",
            "* outcome l=1 0",
            "* outcome l=1 2",
            "* message l=0 4294967295 k= 1",
            "* message l=0 0 k= 1",
            "* message l=0 1 k= 1",
            "> ack 4294967297",
            "> ack 4294967296 multiple",
        ]
    );
}

#[test]
fn an_idle_connection_with_two_channels_is_small() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(OPENED);
    script.run("open ch=2; consume q=q; consume ch=2 q=q");
    let connection = &script.connection;
    let size = size_of::<Connection>()
        + connection.channels.near.capacity() * 8
        + 2 * size_of_val(connection.channel(1).unwrap())
        + connection.links.capacity() * size_of_val(&connection.links[0])
        + connection.queue.capacity() * size_of_val(&connection.queue);
    assert!(size < 6000, "{size}");
}

/// A connection moves between shards.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Connection>();
};
