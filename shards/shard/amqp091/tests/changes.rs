//! Messages whose annotations change: by outcomes, senders' names and deaths.

use corelane_engine::DeadLetterReason;
use corelane_wire::amqp10::{Encode, Header, MapWriter, write_data};

use super::*;
use crate::dead_letter_paths::Stop;

fn map(write: impl FnOnce(&mut MapWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut map = MapWriter::new(&mut bytes);
    write(&mut map);
    map.finish();
    bytes
}

fn annotate(message: &mut Message, write: impl FnOnce(&mut MapWriter<'_>)) {
    let added = map(write);
    let before = message.annotate(Map::decode(&added).expect("a map"), u64::MAX);
    assert!(before.is_some());
}

fn die(message: &mut Message, at: u64, queue: &str, reason: DeadLetterReason) {
    message.die(at * 1_000_000, queue, reason, Stop::Queue("dead".into()));
}

#[test]
fn annotations_of_outcomes_are_headers_also_when_they_are_read_again() {
    let headers = table(|headers| {
        headers.pair(short("a"), FieldValue::Int32(1));
        headers.pair(short("x-old"), FieldValue::Int32(1));
        headers.pair(short("x-changed"), FieldValue::Int32(1));
        headers.array(short("CC"), |keys| keys.value(FieldValue::LongString(b"copy")));
        headers.array(short("BCC"), |keys| keys.value(FieldValue::LongString(b"blind")));
    });
    let mut message = with_headers(&headers);
    let stored = message.bytes().to_vec();
    annotate(&mut message, |map| {
        map.symbol("x-changed", &"two");
        map.symbol("x-new", &true);
        map.symbol("other", &true);
    });
    let expect = r#"to: orders new
        header: a = Int32(1)
        header: x-old = Int32(1)
        header: CC = ["copy"]
        header: x-changed = "two"
        header: x-new = Boolean(true)
        body: body"#;
    check(&delivered(&message, 0), expect);
    let mut read = Message::new(stored, 0).expect("a message");
    read.restore_annotations(Map::decode(message.annotations()).expect("a map"));
    let lines = |message: &Message| {
        let mut lines: Vec<_> = delivered(message, 0).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&read), lines(&message));
    assert_eq!(read.rest(), message.rest());
    assert_eq!(read.route("q"), message.route("q"));
    assert_eq!(message.route("q").1, [b"new".as_slice(), b"copy", b"blind"]);
}

#[test]
fn a_sender_does_not_name_itself() {
    let headers = table(|headers| headers.pair(short("x-opt-sender"), FieldValue::LongString(b"me")));
    let mut message = with_headers(&headers);
    message.stamp_sender(None);
    check(&delivered(&message, 0), "to: orders new\nbody: body");
    let mut message = with_headers(&headers);
    message.stamp_sender(Some("guest"));
    check(&delivered(&message, 0), "to: orders new\nheader: x-opt-sender = \"guest\"\nbody: body");
}

#[test]
fn a_message_that_has_come_back_says_how_often() {
    let headers = table(|headers| {
        headers.pair(short("x-delivery-count"), FieldValue::LongString(b"mine"));
        headers.pair(short("a"), FieldValue::Int32(1));
    });
    check(
        &delivered(&with_headers(&headers), 2),
        "to: orders new\nheader: x-delivery-count = Int64(2)\nheader: a = Int32(1)\nbody: body",
    );
    check(
        &delivered(&published(&Properties::default()), 1),
        "to: orders new\nheader: x-delivery-count = Int64(1)\nbody: body",
    );
}

#[test]
fn deaths_are_headers() {
    let forged = table(|headers| {
        headers.array(short("x-death"), |deaths| deaths.table(|_| {}));
        headers.pair(short("x-first-death-queue"), FieldValue::LongString(b"forged"));
        headers.array(short("CC"), |keys| keys.value(FieldValue::LongString(b"copy")));
        headers.array(short("BCC"), |keys| keys.value(FieldValue::LongString(b"blind")));
    });
    let mut message = published(&Properties {
        expiration: Some(short("3000")),
        headers: Some(Table::new(&forged)),
        ..Properties::default()
    });
    die(&mut message, 10, "a", DeadLetterReason::Expired);
    check(
        &delivered(&message, 0),
        r#"to: orders new
           header: CC = ["copy"]
           header: x-death = [{original-expiration: "3000", count: Int64(1), reason: "expired", queue: "a", time: Timestamp(10), exchange: "orders", routing-keys: ["new", "copy"]}]
           header: x-first-death-queue = "a"
           header: x-first-death-reason = "expired"
           header: x-first-death-exchange = "orders"
           header: x-last-death-queue = "a"
           header: x-last-death-reason = "expired"
           header: x-last-death-exchange = "orders"
           body: body"#,
    );
    message.readdress("dead", Some("letter"));
    die(&mut message, 20, "b", DeadLetterReason::Rejected);
    die(&mut message, 30, "b", DeadLetterReason::DeliveriesMax);
    die(&mut message, 40, "a", DeadLetterReason::Expired);
    let expect = r#"to: dead letter
        header: x-first-death-queue = "a"
        header: x-first-death-reason = "expired"
        header: x-first-death-exchange = "orders"
        header: x-death = [{original-expiration: "3000", count: Int64(2), reason: "expired", queue: "a", time: Timestamp(10), exchange: "orders", routing-keys: ["new", "copy"]}, {count: Int64(1), reason: "delivery_limit", queue: "b", time: Timestamp(30), exchange: "dead", routing-keys: ["letter"]}, {count: Int64(1), reason: "rejected", queue: "b", time: Timestamp(20), exchange: "dead", routing-keys: ["letter"]}]
        header: x-last-death-queue = "a"
        header: x-last-death-reason = "expired"
        header: x-last-death-exchange = "dead"
        body: body"#;
    check(&delivered(&message, 0), expect);
    // They are in its bytes, and go where these go.
    check(&delivered(&message.copied(&mut Buffers::new()), 0), expect);
    check(&delivered(&Message::new(message.bytes().to_vec(), 0).expect("a message"), 0), expect);
}

#[test]
fn deaths_of_a_message_of_1_0() {
    let mut message =
        receive(&[&|out| Header { ttl: Some(3000), ..Header::default() }.encode(out), &|out| {
            write_data(out, b"body")
        }]);
    die(&mut message, 10, "a", DeadLetterReason::Overflow);
    check(
        &delivered(&message, 0),
        r#"to:  q
           delivery-mode: 1
           header: x-death = [{original-expiration: "3000", count: Int64(1), reason: "maxlen", queue: "a", time: Timestamp(10), exchange: "", routing-keys: ["a"]}]
           header: x-first-death-queue = "a"
           header: x-first-death-reason = "maxlen"
           header: x-first-death-exchange = ""
           header: x-last-death-queue = "a"
           header: x-last-death-reason = "maxlen"
           header: x-last-death-exchange = ""
           body: body"#,
    );
    check(
        &shown(&message),
        r#"header: durable false, priority 4, ttl Some(3000)
           annotation: Symbol("x-opt-death-reason") = String("overflow")
           annotation: Symbol("x-opt-death-queue") = String("a")
           annotation: Symbol("x-opt-death-count") = Uint(1)
           annotation: Symbol("x-opt-death-path") = [String("a")]
           annotation: Symbol("x-opt-deaths") = array[{Symbol("queue"): String("a"), Symbol("reason"): Symbol("maxlen"), Symbol("count"): Ulong(1), Symbol("first-time"): Timestamp(10000), Symbol("last-time"): Timestamp(10000), Symbol("exchange"): String(""), Symbol("routing-keys"): array[String("a")], Symbol("ttl"): Uint(3000)}]
           annotation: Symbol("x-first-death-queue") = String("a")
           annotation: Symbol("x-first-death-reason") = String("maxlen")
           annotation: Symbol("x-first-death-exchange") = String("")
           annotation: Symbol("x-last-death-queue") = String("a")
           annotation: Symbol("x-last-death-reason") = String("maxlen")
           annotation: Symbol("x-last-death-exchange") = String("")
           body: Binary(body)"#,
    );
}

#[test]
fn what_is_said_of_deaths_is_bounded() {
    let long = "k".repeat(200);
    let headers = table(|headers| {
        headers.array(short("CC"), |keys| {
            (0..100).for_each(|_| keys.value(FieldValue::LongString(long.as_bytes())));
        });
    });
    let mut message = with_headers(&headers);
    let mut sizes = Vec::new();
    for n in 0..40 {
        die(&mut message, n, &format!("queue-{n:02}"), DeadLetterReason::Expired);
        sizes.push(message.bytes().len());
    }
    assert_eq!(sizes[20], sizes[39]);
    let shown = delivered(&message, 0);
    let deaths = shown.lines().find(|line| line.starts_with("header: x-death")).expect("a header");
    assert_eq!(deaths.matches("count: ").count(), 16);
    assert!(deaths.contains("queue-39") && deaths.contains("queue-24") && !deaths.contains("queue-23"));
}

#[test]
fn annotations_that_no_frame_has_room_for_are_no_headers() {
    let big = vec![b'b'; 130_000];
    let headers = table(|headers| headers.pair(short("big"), FieldValue::Bytes(&big)));
    let mut message = with_headers(&headers);
    annotate(&mut message, |map| map.symbol("x-small", &1_i32));
    annotate(&mut message, |map| map.symbol("x-large", &"l".repeat(2000).as_str()));
    let basic = message.as_0_9_1().expect("0-9-1");
    let names: Vec<_> = basic
        .properties
        .headers()
        .expect("headers")
        .unwrap_or_default()
        .iter()
        .flatten()
        .map(|(name, _)| name.to_string())
        .collect();
    assert_eq!(names, ["big", "x-small"]);
}
