//! The same of 0-9-1: what a message costs from the producer's socket to the consumer's.

use corelane_wire::amqp091::{
    ContentHeader, FieldValue, Frame, FrameKind, Method, Properties, ShortStr, Table, basic,
    begin_content_header, check_table, finish_frame, queue, write_body, write_content_header, write_method,
};

use super::allocations;

const FRAME_SIZE_MAX: u32 = 4096;

fn publish() -> basic::Publish<'static> {
    basic::Publish { routing_key: ShortStr::literal("key"), mandatory: true, ..basic::Publish::default() }
}

fn deliver() -> basic::Deliver<'static> {
    basic::Deliver {
        consumer_tag: ShortStr::literal("ctag1.1"),
        delivery_tag: 70_000,
        routing_key: ShortStr::literal("key"),
        ..basic::Deliver::default()
    }
}

fn properties() -> Properties<'static> {
    Properties {
        headers: Some(Table::new(b"\x06regionS\0\0\0\x04emea\x04listA\0\0\0\x05F\0\0\0\0")),
        delivery_mode: Some(2),
        expiration: Some(ShortStr::literal("60000")),
        ..Properties::default()
    }
}

/// A publish with its content, in four frames.
fn message() -> Vec<u8> {
    let mut out = Vec::new();
    write_method(&mut out, 1, &publish());
    let start = begin_content_header(&mut out, 1, 5000);
    properties().encode(&mut out);
    finish_frame(&mut out, start);
    write_body(&mut out, 1, &[7; 5000], FRAME_SIZE_MAX);
    out
}

#[test]
fn a_message_is_passed_on_without_allocation() {
    let message = message();
    let mut out = Vec::with_capacity(8192);
    let pass = || {
        let mut rest = message.as_slice();
        let mut next = || Frame::take(&mut rest, FRAME_SIZE_MAX).expect("a frame").expect("complete");
        assert_eq!(Method::decode(next().payload), Ok(Method::Basic(basic::Method::Publish(publish()))));
        let header = ContentHeader::decode(next().payload).expect("a header");
        let fields = header.properties;
        assert_eq!(fields.decode(), Ok(properties()));
        assert_eq!(fields.expiration(), Ok(Some(ShortStr::literal("60000"))));
        let headers = fields.headers().expect("a table").expect("headers");
        assert_eq!(headers.find("region"), Ok(Some(FieldValue::LongString(b"emea"))));
        write_method(&mut out, 1, &deliver());
        write_content_header(&mut out, 1, header.body_size, fields);
        for _ in 0..2 {
            let frame = next();
            assert_eq!(frame.kind, FrameKind::Body);
            write_body(&mut out, 1, frame.payload, FRAME_SIZE_MAX);
        }
    };
    assert_eq!(allocations(pass), 0);
    assert!(out.len() > 5000);
}

#[test]
fn settling_allocates_nothing() {
    let mut out = Vec::with_capacity(256);
    let settle = || {
        let ack = basic::Ack { delivery_tag: 7, multiple: true };
        let nack = basic::Nack { delivery_tag: 8, multiple: false, requeue: true };
        write_method(&mut out, 1, &ack);
        write_method(&mut out, 1, &nack);
        let mut rest = out.as_slice();
        for expected in [basic::Method::Ack(ack), basic::Method::Nack(nack)] {
            let frame = Frame::take(&mut rest, FRAME_SIZE_MAX).expect("a frame").expect("complete");
            assert_eq!(Method::decode(frame.payload), Ok(Method::Basic(expected)));
        }
    };
    assert_eq!(allocations(settle), 0);
}

#[test]
fn refusing_hostile_bytes_allocates_nothing() {
    let huge = [1, b'a', b'F', 0x7f, 0xff, 0xff, 0xff];
    let deep = b"\0\x46".repeat(10_000);
    let declare = queue::Declare { arguments: Table::new(&huge), ..queue::Declare::default() };
    let mut frame = Vec::new();
    write_method(&mut frame, 1, &declare);
    let refuse = || {
        let frame = Frame::take(&mut frame.as_slice(), FRAME_SIZE_MAX).expect("a frame").expect("complete");
        assert!(Method::decode(frame.payload).is_err());
        for table in [&huge[..], &deep] {
            assert!(check_table(Table::new(table)).is_err());
            assert!(Method::decode(table).is_err());
            assert!(ContentHeader::decode(table).is_err());
        }
        let size = [3, 0, 1, 0xff, 0xff, 0xff, 0xff];
        assert!(Frame::take(&mut size.as_slice(), FRAME_SIZE_MAX).is_err());
    };
    assert_eq!(allocations(refuse), 0);
}
