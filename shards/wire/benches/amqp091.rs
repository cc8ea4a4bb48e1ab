//! What does the 0-9-1 codec cost per message? Prints nanoseconds, the least of several rounds.
//!
//! `cargo bench -p corelane-wire --bench amqp091`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark needs the clock")]

use std::hint::black_box;
use std::time::Instant;

use corelane_wire::amqp091::{
    ContentHeader, FieldValue, Frame, Method, Properties, ShortStr, Table, TableWriter, basic,
    begin_content_header, finish_frame, write_body, write_content_header, write_method,
};

const ROUNDS: usize = 25;
const ITERATIONS: u32 = 40_000;
const FRAME_SIZE_MAX: u32 = 131_072;

fn measure(name: &str, mut work: impl FnMut()) {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..ITERATIONS {
            work();
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(ITERATIONS));
    }
    println!("{name:<58} {least:7.1} ns");
}

/// A publish of 1 KiB with five properties and two headers, in three frames.
fn message() -> Vec<u8> {
    let name = ShortStr::literal;
    let mut headers = Vec::new();
    let mut writer = TableWriter::new(&mut headers);
    writer.pair(name("price"), FieldValue::Int32(1200));
    writer.pair(name("region"), FieldValue::LongString(b"emea"));
    let properties = Properties {
        content_type: Some(name("application/octet-stream")),
        headers: Some(Table::new(&headers)),
        delivery_mode: Some(2),
        message_id: Some(name("123456")),
        timestamp: Some(1_700_000_000),
        ..Properties::default()
    };
    let mut out = Vec::new();
    let publish = basic::Publish { routing_key: name("orders"), ..basic::Publish::default() };
    write_method(&mut out, 1, &publish);
    let start = begin_content_header(&mut out, 1, 1024);
    properties.encode(&mut out);
    finish_frame(&mut out, start);
    write_body(&mut out, 1, &[0x5a; 1024], FRAME_SIZE_MAX);
    out
}

fn take<'a>(rest: &mut &'a [u8]) -> Frame<'a> {
    Frame::take(rest, FRAME_SIZE_MAX).expect("a frame").expect("complete")
}

fn decode(mut rest: &[u8]) -> (Method<'_>, ContentHeader<'_>, &[u8]) {
    let method = Method::decode(take(&mut rest).payload).expect("a method");
    let header = ContentHeader::decode(take(&mut rest).payload).expect("a content header");
    (method, header, take(&mut rest).payload)
}

fn main() {
    let message = message();
    measure("frame + publish", || {
        let mut rest = black_box(message.as_slice());
        black_box(&Method::decode(take(&mut rest).payload));
    });
    measure("3 frames: publish + content header + body", || {
        black_box(&decode(black_box(&message)));
    });
    measure("… + delivery-mode", || {
        let decoded = decode(black_box(&message));
        black_box(&(decoded, decoded.1.properties.delivery_mode()));
    });
    measure("… + all properties, headers checked", || {
        let decoded = decode(black_box(&message));
        black_box(&(decoded, decoded.1.properties.decode()));
    });
    let (_, header, body) = decode(&message);
    let headers = header.properties.headers().expect("well-formed").expect("headers");
    measure("1 of 2 headers", || {
        black_box(&black_box(headers).find("region"));
    });

    let mut out = Vec::with_capacity(4096);
    let deliver = basic::Deliver {
        consumer_tag: ShortStr::literal("ctag1.8f2a"),
        delivery_tag: 70_000,
        routing_key: ShortStr::literal("orders"),
        ..basic::Deliver::default()
    };
    measure("encode deliver", || {
        out.clear();
        write_method(&mut out, 1, black_box(&deliver));
        black_box(&out);
    });
    measure("encode deliver + content header, copy 1 KiB", || {
        out.clear();
        write_method(&mut out, 1, black_box(&deliver));
        write_content_header(&mut out, 1, black_box(header.body_size), black_box(header.properties));
        write_body(&mut out, 1, black_box(body), FRAME_SIZE_MAX);
        black_box(&out);
    });
    let ack = basic::Ack { delivery_tag: 70_000, multiple: true };
    measure("encode ack", || {
        out.clear();
        write_method(&mut out, 1, black_box(&ack));
        black_box(&out);
    });
    measure("frame + ack", || {
        black_box(&Method::decode(take(&mut black_box(out.as_slice())).payload));
    });
}
