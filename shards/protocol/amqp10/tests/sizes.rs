//! What a connection costs, in memory and in work.

use corelane_wire::amqp10::DeliveryState;

use super::script::{Script, config, encode_line};
use crate::amqp10::{Config, Connection, Event, LinkId, Outgoing, Progress, SendReadiness, Token};

/// Gives bytes to a connection and settles what must be; the count of events.
fn feed(connection: &mut Connection, bytes: &[u8]) -> usize {
    let mut input = bytes;
    let mut events = 0;
    while let Some(event) = connection.receive(0, &mut input) {
        events += 1;
        if let Event::Disposition { .. } = event {
            while connection.poll_outcome().is_some() {}
        }
    }
    assert!(input.is_empty());
    events
}

fn sending() -> Script {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run("header; open; begin; attach receiver; flow h=0 credit=4294967295 window=4294967295");
    script
}

#[test]
fn s16_a_head_that_is_never_settled_does_not_hold_the_rest() {
    // The first delivery stays unsettled while 200,000 pass it by, each settled at once.
    let mut script = sending();
    let connection = &mut script.connection;
    let outgoing =
        Outgoing { token: Token(0, 0), settled: false, message_format: 0, head: b"", rest: b"message" };
    for id in 0..200_000_u32 {
        let progress = connection.send(LinkId(0), &outgoing);
        assert_eq!(progress, Progress::Complete { delivery_id: id, settled: false });
        connection.output().clear();
        if id > 0 {
            connection.disposing = None;
            let disposition = corelane_wire::amqp10::Disposition {
                role: corelane_wire::amqp10::Role::Receiver,
                first: id,
                last: None,
                settled: true,
                state: Some(DeliveryState::Accepted),
                batchable: false,
            };
            assert!(connection.handle_disposition(0, &disposition).is_some());
            assert!(connection.poll_outcome().is_some_and(|disposed| disposed.delivery_id == id));
        }
    }
    let sent = &connection.sessions[0].sent;
    sent.verify();
    assert_eq!(sent.count(), 1);
    assert!(sent.capacity() < 128, "{}", sent.capacity());
}

#[test]
fn memory_of_a_burst_is_given_back() {
    let mut script = sending();
    script.run("!send count=20000");
    let sent = |script: &Script| script.connection.sessions[0].sent.capacity();
    assert!(sent(&script) >= 20_000);
    script.connection.output().clear();
    let mut bytes = Vec::new();
    encode_line("disposition first=1 last=19999 settled accepted", &mut bytes);
    feed(&mut script.connection, &bytes);
    script.run("!send");
    assert!(sent(&script) <= 1100, "{}", sent(&script));
}

#[test]
fn a_delivery_too_far_ahead_of_the_oldest_waits() {
    // RFC 1982: numbers 2^31 apart cannot be told from each other.
    let mut script = sending();
    script.run("!send");
    script.connection.sessions[0].next_delivery_id = 0x7fff_ffff;
    assert_eq!(script.connection.can_send(LinkId(0)), SendReadiness::Ready);
    script.run("!send");
    assert_eq!(script.connection.can_send(LinkId(0)), SendReadiness::NoWindow);
    script.run("disposition first=0 settled accepted");
    assert_eq!(script.connection.can_send(LinkId(0)), SendReadiness::Ready);
}

#[test]
fn a_turn_costs_no_allocation_per_message() {
    // Buffers that grew in the first round are enough for all that follow.
    let config = Config { incoming_window: 10_000, ..config() };
    let mut script = Script::new(Connection::server(config, 0));
    script.run("header; open; begin; attach sender; attach h=1 receiver name=m; flow h=1 credit=1000000 window=1000000");
    let connection = &mut script.connection;
    let mut capacities = Vec::new();
    for round in 0..4_u32 {
        connection.grant_credit(LinkId(0), 1000, false);
        let mut bytes = Vec::new();
        (0..500).for_each(|index| {
            let id = round * 500 + index;
            encode_line(&format!("transfer id={id} tag={}", id.wrapping_mul(0x9e37_79b9)), &mut bytes);
        });
        assert_eq!(feed(connection, &bytes), 500);
        for index in 0..500 {
            connection.settle(LinkId(0), round * 500 + index, &DeliveryState::Accepted);
            let message =
                Outgoing { token: Token(1, 2), settled: false, message_format: 0, head: b"a", rest: b"b" };
            assert!(matches!(connection.send(LinkId(1), &message), Progress::Complete { .. }));
        }
        connection.finish_turn(0);
        let mut bytes = Vec::new();
        encode_line(
            &format!("disposition first={} last={} settled accepted", round * 500, round * 500 + 499),
            &mut bytes,
        );
        assert_eq!(feed(connection, &bytes), 1);
        let session = &connection.sessions[0];
        capacities.push((connection.output.capacity(), session.sent.capacity(), session.arrived.capacity()));
        connection.output().clear();
    }
    assert!(capacities.iter().all(|capacity| *capacity == capacities[0]), "{capacities:?}");
}

#[test]
fn an_idle_connection_with_two_sessions_is_small() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run("header; open; begin; begin ch=1; attach receiver name=a; attach ch=1 sender name=b");
    let connection = &script.connection;
    let size = size_of::<Connection>()
        + connection.sessions.capacity() * size_of_val(&connection.sessions[0])
        + connection.links.capacity() * size_of_val(&connection.links[0])
        + connection.channels.capacity() * 2
        + (connection.dirty.capacity() + connection.echoes.capacity()) * 4
        + connection.queue.capacity() * size_of_val(&connection.queue);
    assert!(size < 6000, "{size}");
}

/// A connection moves between shards.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Connection>();
};

#[test]
fn work_of_a_disposition_is_bounded_by_what_is_unsettled() {
    let mut script = sending();
    script.run("!send count=3");
    script.log.clear();
    script.run("disposition first=0 last=2147483647 settled accepted");
    assert_eq!(script.log.len(), 4);
    script.run("disposition first=2147483650 last=4294967295 settled accepted");
    assert_eq!(script.log.len(), 4);
}
