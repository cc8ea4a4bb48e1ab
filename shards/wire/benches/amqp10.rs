//! What does the codec cost per message? Prints nanoseconds, the least of several rounds.
//!
//! `cargo bench -p corelane-wire`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark needs the clock")]

use std::hint::black_box;
use std::time::Instant;

use corelane_wire::amqp10::{
    DeliveryState, Disposition, Encode, Flow, Frame, FrameKind, Header, MessageId, Performative, Properties,
    Property, Role, Sections, Transfer, Value, begin_frame, finish_frame, write_application_properties,
    write_data, write_frame,
};

const ROUNDS: usize = 25;
const ITERATIONS: u32 = 40_000;

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

fn message(application_properties: bool) -> Vec<u8> {
    let mut message = Vec::new();
    Header { durable: true, ..Header::default() }.encode(&mut message);
    let properties = Properties {
        message_id: Some(MessageId::Ulong(123_456)),
        to: Some("queue://orders"),
        content_type: Some("application/octet-stream"),
        creation_time: Some(1_700_000_000_000),
        group_id: Some("customer-17"),
        ..Properties::default()
    };
    properties.encode(&mut message);
    if application_properties {
        let region = ("region", Value::String("emea"));
        write_application_properties(&mut message, &[("price", Value::Int(1200)), region]);
    }
    write_data(&mut message, &[0x5a; 1024]);
    message
}

fn transfer() -> Transfer<'static> {
    Transfer {
        handle: 1,
        delivery_id: Some(70_000),
        delivery_tag: Some(&[1, 2, 3, 4, 5, 6, 7, 8]),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    }
}

fn decode(frame: &[u8]) -> (Transfer<'_>, Sections, &[u8]) {
    let mut input = frame;
    let frame = Frame::take(&mut input, 65_536).expect("a frame").expect("complete");
    match Performative::decode(frame.body) {
        Ok((Performative::Transfer(transfer), payload)) => {
            (transfer, Sections::scan(payload).expect("a message"), payload)
        }
        _ => unreachable!("the frame holds a transfer"),
    }
}

fn main() {
    let plain = message(false);
    let mut frame = Vec::new();
    write_frame(&mut frame, FrameKind::Amqp, 1, &transfer(), &plain);
    let mut with_properties = Vec::new();
    write_frame(&mut with_properties, FrameKind::Amqp, 1, &transfer(), &message(true));

    measure("frame + transfer", || {
        let mut input = black_box(frame.as_slice());
        let frame = Frame::take(&mut input, 65_536).expect("a frame").expect("complete");
        black_box(&Performative::decode(frame.body));
    });
    measure("section scan", || {
        black_box(&Sections::scan(black_box(&plain)));
    });
    measure("frame + transfer + section scan", || {
        let (transfer, sections, _) = decode(black_box(&frame));
        black_box(&(transfer.delivery_id, sections.bare()));
    });
    measure("frame + transfer + section scan + header", || {
        let (transfer, sections, payload) = decode(black_box(&frame));
        black_box(&(transfer.delivery_id, sections.header(payload)));
    });
    measure("… + header + group-id", || {
        let (transfer, sections, payload) = decode(black_box(&frame));
        let properties = sections.properties(payload).expect("properties");
        black_box(&(transfer.delivery_id, sections.header(payload), properties.field(Property::GroupId)));
    });
    measure("… + header + all properties", || {
        let (transfer, sections, payload) = decode(black_box(&frame));
        let properties = sections.properties(payload).expect("properties");
        black_box(&(transfer.delivery_id, sections.header(payload), properties.decode()));
    });
    measure("… + header + group-id + 1 of 2 application properties", || {
        let (transfer, sections, payload) = decode(black_box(&with_properties));
        let properties = sections.properties(payload).expect("properties");
        let region = sections.application_property(payload, "region");
        black_box(&(
            transfer.delivery_id,
            sections.header(payload),
            properties.field(Property::GroupId),
            region,
        ));
    });
    measure_rest(&plain);
}

fn measure_rest(plain: &[u8]) {
    let mut body = Vec::new();
    let flow =
        Flow { handle: Some(1), link_credit: Some(100), delivery_count: Some(70_000), ..Flow::default() };
    flow.encode(&mut body);
    measure("decode flow", || {
        black_box(&Performative::decode(black_box(&body)));
    });
    let disposition = Disposition {
        role: Role::Receiver,
        first: 70_000,
        last: Some(70_063),
        settled: true,
        state: Some(DeliveryState::Accepted),
        batchable: false,
    };
    body.clear();
    disposition.encode(&mut body);
    measure("decode disposition", || {
        black_box(&Performative::decode(black_box(&body)));
    });

    let mut out = Vec::with_capacity(4096);
    measure("encode disposition", || {
        out.clear();
        write_frame(&mut out, FrameKind::Amqp, 1, black_box(&disposition), &[]);
        black_box(&out);
    });
    measure("encode transfer + header, copy 1 KiB", || {
        out.clear();
        let start = begin_frame(&mut out, FrameKind::Amqp, 1);
        black_box(&transfer()).encode(&mut out);
        black_box(&Header { delivery_count: 1, durable: true, ..Header::default() }).encode(&mut out);
        out.extend_from_slice(black_box(plain));
        finish_frame(&mut out, start);
        black_box(&out);
    });
}
