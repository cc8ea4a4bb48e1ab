//! Tables of frames (§4.2.3), and whole ones as clients send them.

use corelane_wire::amqp091::{
    FRAME_EMPTY_SIZE, FRAME_SIZE_MIN_MAX, Frame, FrameError, FrameHeader, FrameKind, HEARTBEAT, Method,
    ReplyCode, ShortStr, Table, basic, begin_frame, channel, connection, exchange, finish_frame, queue, tx,
    write_method,
};

use crate::bytes;

fn check_error(text: &str, error: FrameError) {
    let input = bytes(text);
    assert_eq!(Frame::take(&mut input.as_slice(), 4096), Err(error), "{text}");
    assert_eq!(error.reply_code(), ReplyCode::FrameError);
    assert!(!error.to_string().is_empty());
}

#[test]
fn malformed_frames_are_distinct_errors() {
    check_error("00 0000 00000000 ce", FrameError::UnknownKind { kind: 0 });
    check_error("04 0000 00000000 ce", FrameError::UnknownKind { kind: 4 });
    check_error("'AMQP' 00 00 09 01", FrameError::UnknownKind { kind: 0x41 });
    // Known before the payload is there.
    check_error("03 0001 00000ff9", FrameError::SizeOverMax { size: 4097, max: 4096 });
    check_error("03 0001 ffffffff", FrameError::SizeOverMax { size: 0x1_0000_0007, max: 4096 });
    check_error("03 0001 80000000", FrameError::SizeOverMax { size: 0x8000_0008, max: 4096 });
    check_error("01 0001 00000001 aa cd", FrameError::BadEnd { end: 0xcd });
    check_error("01 0001 00000000 00 ce", FrameError::BadEnd { end: 0 });
    // §4.2.7
    check_error("08 0001 00000000 ce", FrameError::InvalidHeartbeat);
    check_error("08 0000 00000001 00 ce", FrameError::InvalidHeartbeat);
}

#[test]
fn frames_are_taken_whole() {
    let input = bytes("03 0102 (aabbcc) ce 08 0000 00000000 ce 02");
    let mut rest = input.as_slice();
    let first = Frame::take(&mut rest, 4096).expect("well-formed").expect("complete");
    assert_eq!(first, Frame { kind: FrameKind::Body, channel: 0x0102, payload: &[0xaa, 0xbb, 0xcc] });
    assert!(rest.starts_with(&HEARTBEAT));
    let second = Frame::take(&mut rest, 4096).expect("well-formed").expect("complete");
    assert_eq!(second, Frame { kind: FrameKind::Heartbeat, channel: 0, payload: &[] });
    assert_eq!(Frame::take(&mut rest, 4096), Ok(None));
    assert_eq!(rest, [2]);
    for end in 0..11 {
        let mut rest = &input[..end];
        assert_eq!(Frame::take(&mut rest, 4096), Ok(None), "cut at {end}");
        assert_eq!(rest.len(), end);
        // How much is needed is known from the header on.
        let header = FrameHeader::parse(rest, 4096).expect("well-formed");
        assert_eq!(header.map(|header| header.size()), (end >= 7).then_some(11), "cut at {end}");
    }
}

#[test]
fn a_frame_of_exactly_the_maximum_is_taken() {
    let mut out = Vec::new();
    let start = begin_frame(&mut out, FrameKind::Body, 7);
    out.resize(FRAME_SIZE_MIN_MAX as usize - 1, 0x40);
    finish_frame(&mut out, start);
    let frame = Frame::take(&mut out.as_slice(), FRAME_SIZE_MIN_MAX).expect("well-formed").expect("complete");
    assert_eq!((frame.channel, frame.payload.len()), (7, (FRAME_SIZE_MIN_MAX - FRAME_EMPTY_SIZE) as usize));
    let over = FrameError::SizeOverMax { size: 4096, max: FRAME_SIZE_MIN_MAX - 1 };
    assert_eq!(Frame::take(&mut out.as_slice(), FRAME_SIZE_MIN_MAX - 1), Err(over));
}

/// Reads a frame's method and compares; writes it and compares.
fn check_method(text: &str, channel: u16, method: Method<'_>) {
    let input = bytes(text);
    let frame = Frame::take(&mut input.as_slice(), 4096).expect("well-formed").expect("complete");
    assert_eq!((frame.kind, frame.channel), (FrameKind::Method, channel), "{text}");
    assert_eq!(Method::decode(frame.payload), Ok(method), "{text}");
    let mut out = vec![0xee];
    write_method(&mut out, channel, &method);
    assert_eq!(out[1..], input, "{text}");
}

fn short(text: &'static str) -> ShortStr<'static> {
    ShortStr::literal(text)
}

#[test]
fn methods_of_a_connection() {
    check_method(
        "01 0000 ( 000a 000b ( ['product'] 'S' ('x') ) ['PLAIN'] (00 'guest' 00 'guest') ['en_US'] ) ce",
        0,
        Method::Connection(connection::Method::StartOk(connection::StartOk {
            client_properties: Table::new(b"\x07productS\0\0\0\x01x"),
            mechanism: short("PLAIN"),
            response: b"\0guest\0guest",
            locale: short("en_US"),
        })),
    );
    check_method(
        "01 0000 ( 000a 001f 07ff 00020000 003c ) ce",
        0,
        Method::Connection(connection::Method::TuneOk(connection::TuneOk {
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60,
        })),
    );
    check_method(
        "01 0000 ( 000a 0028 ['/'] [] 00 ) ce",
        0,
        Method::Connection(connection::Method::Open(connection::Open { virtual_host: short("/") })),
    );
    check_method("01 0001 ( 0014 000a [] ) ce", 1, Method::Channel(channel::Method::Open(channel::Open {})));
    check_method("01 0001 ( 005a 0014 ) ce", 1, Method::Tx(tx::Method::Commit(tx::Commit {})));
    check_method(
        "01 0001 ( 0014 0028 0194 ['NOT_FOUND'] 003c 0014 ) ce",
        1,
        Method::Channel(channel::Method::Close(channel::Close {
            reply_code: ReplyCode::NotFound.code(),
            reply_text: short("NOT_FOUND"),
            class_id: basic::Consume::ID.class_id,
            method_id: basic::Consume::ID.method_id,
        })),
    );
}

#[test]
fn methods_with_bits() {
    check_method(
        "01 0001 ( 0032 000a 0000 ['q'] 06 ( ['x-expires'] 'I' 00002710 ) ) ce",
        1,
        Method::Queue(queue::Method::Declare(queue::Declare {
            queue: short("q"),
            durable: true,
            exclusive: true,
            arguments: Table::new(b"\x09x-expiresI\0\0\x27\x10"),
            ..queue::Declare::default()
        })),
    );
    check_method(
        "01 0001 ( 0028 000a 0000 ['e'] ['topic'] 1a () ) ce",
        1,
        Method::Exchange(exchange::Method::Declare(exchange::Declare {
            exchange: short("e"),
            kind: short("topic"),
            durable: true,
            internal: true,
            no_wait: true,
            ..exchange::Declare::default()
        })),
    );
    check_method(
        "01 ffff ( 003c 0078 0000000000000102 03 ) ce",
        0xffff,
        Method::Basic(basic::Method::Nack(basic::Nack { delivery_tag: 258, multiple: true, requeue: true })),
    );
    check_method(
        "01 0001 ( 003c 003c ['ctag'] 0000000000000007 01 ['e'] ['key'] ) ce",
        1,
        Method::Basic(basic::Method::Deliver(basic::Deliver {
            consumer_tag: short("ctag"),
            delivery_tag: 7,
            redelivered: true,
            exchange: short("e"),
            routing_key: short("key"),
        })),
    );
}

#[test]
fn what_is_reserved_is_passed_over() {
    // pika: insist. A ticket from `access.request-ok`.
    let open = bytes("000a 0028 ['/'] ['capabilities'] 01");
    let virtual_host = connection::Open { virtual_host: short("/") };
    assert_eq!(Method::decode(&open), Ok(Method::Connection(connection::Method::Open(virtual_host))));
    let publish = bytes("003c 0028 0065 [] ['key'] fe");
    let expected = basic::Publish { routing_key: short("key"), immediate: true, ..basic::Publish::default() };
    assert_eq!(Method::decode(&publish), Ok(Method::Basic(basic::Method::Publish(expected))));
}

#[test]
fn content_follows_four_methods() {
    let content: Vec<_> = (0..=120)
        .filter_map(|method_id| {
            let mut payload = [60_u16.to_be_bytes(), u16::to_be_bytes(method_id)].concat();
            (0..20).find_map(|_| {
                payload.push(0);
                Method::decode(&payload).ok().map(|method| (method.id().to_string(), method.has_content()))
            })
        })
        .filter_map(|(name, has_content)| has_content.then_some(name))
        .collect();
    assert_eq!(content, ["basic.publish", "basic.return", "basic.deliver", "basic.get-ok"]);
}

#[test]
fn short_strings_may_be_no_text() {
    let name = ShortStr::new(b"caf\xc3\xa9\xff").expect("short");
    assert_eq!(name.as_str(), None);
    assert_eq!(name.to_string(), "caf\u{e9}\u{fffd}");
    assert_eq!(format!("{name:?}"), r#""caf\xc3\xa9\xff""#);
    assert_eq!(ShortStr::new(&[0; 256]), None);
    assert_eq!(ShortStr::new(&[0; 255]).map(ShortStr::len), Some(255));
    // A text for people is cut between characters.
    let text = "\u{e9}".repeat(200);
    assert_eq!(ShortStr::cut(&text).as_str(), Some(&text[..254]));
    assert_eq!(ShortStr::cut("short"), "short");
}

#[test]
fn reply_codes_are_those_of_the_specification() {
    for code in 0..1000 {
        assert!(ReplyCode::from_code(code).is_none_or(|known| known.code() == code));
    }
    let hard: Vec<_> = ReplyCode::ALL.iter().filter(|code| code.is_hard()).map(|code| code.code()).collect();
    assert_eq!(hard, [320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541]);
    let soft: Vec<_> = ReplyCode::ALL.iter().filter(|code| !code.is_hard()).map(|code| code.code()).collect();
    assert_eq!(soft, [200, 311, 312, 313, 403, 404, 405, 406]);
    assert_eq!(ReplyCode::NotFound.to_string(), "NOT_FOUND");
}
