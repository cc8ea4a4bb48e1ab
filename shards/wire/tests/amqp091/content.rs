//! Tables of content headers and properties (§4.2.6), and bodies in frames.

use corelane_wire::amqp091::{
    ContentHeader, DecodeError, FieldValue, Frame, FrameKind, Properties, PropertyFields, ReplyCode,
    ShortStr, Table, begin_content_header, check_table, finish_frame, write_body, write_content_header,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::bytes;
use crate::tables::{nested, table};

/// Reads properties and compares; writes them and compares.
fn check(text: &str, properties: Properties<'_>) {
    let input = bytes(text);
    assert_eq!(PropertyFields::new(&input).decode(), Ok(properties), "{text}");
    let mut out = Vec::new();
    properties.encode(&mut out);
    assert_eq!(out, input, "{text}");
}

fn short(text: &'static str) -> Option<ShortStr<'static>> {
    Some(ShortStr::literal(text))
}

fn all() -> Properties<'static> {
    Properties {
        content_type: short("text/plain"),
        content_encoding: short("gzip"),
        headers: Some(Table::new(b"\x01aV")),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: short("c"),
        reply_to: short("r"),
        expiration: short("1000"),
        message_id: short("m"),
        timestamp: Some(1_704_067_200),
        kind: short("t"),
        user_id: short("guest"),
        app_id: short("app"),
        cluster_id: short("cluster"),
    }
}

const ALL: &str = "fffc ['text/plain'] ['gzip'] (['a'] 'V') 02 09 ['c'] ['r'] ['1000'] ['m'] 0000000065920080 \
                   ['t'] ['guest'] ['app'] ['cluster']";

#[test]
fn each_property() {
    check("0000", Properties::default());
    check(ALL, all());
    check("8000 ['a']", Properties { content_type: short("a"), ..Properties::default() });
    check("4000 ['a']", Properties { content_encoding: short("a"), ..Properties::default() });
    check("2000 ()", Properties { headers: Some(Table::default()), ..Properties::default() });
    check("1000 01", Properties { delivery_mode: Some(1), ..Properties::default() });
    check("0800 05", Properties { priority: Some(5), ..Properties::default() });
    check("0400 ['a']", Properties { correlation_id: short("a"), ..Properties::default() });
    check("0200 ['a']", Properties { reply_to: short("a"), ..Properties::default() });
    check("0100 ['a']", Properties { expiration: short("a"), ..Properties::default() });
    check("0080 ['a']", Properties { message_id: short("a"), ..Properties::default() });
    check("0040 ffffffffffffffff", Properties { timestamp: Some(u64::MAX), ..Properties::default() });
    check("0020 ['a']", Properties { kind: short("a"), ..Properties::default() });
    check("0010 ['a']", Properties { user_id: short("a"), ..Properties::default() });
    check("0008 ['a']", Properties { app_id: short("a"), ..Properties::default() });
    check("0004 []", Properties { cluster_id: short(""), ..Properties::default() });
}

/// Compares each property read alone with all of them.
fn check_alone(fields: PropertyFields<'_>, properties: Properties<'_>) {
    let alone = Properties {
        content_type: fields.content_type().expect("well-formed"),
        content_encoding: fields.content_encoding().expect("well-formed"),
        headers: fields.headers().expect("well-formed"),
        delivery_mode: fields.delivery_mode().expect("well-formed"),
        priority: fields.priority().expect("well-formed"),
        correlation_id: fields.correlation_id().expect("well-formed"),
        reply_to: fields.reply_to().expect("well-formed"),
        expiration: fields.expiration().expect("well-formed"),
        message_id: fields.message_id().expect("well-formed"),
        timestamp: fields.timestamp().expect("well-formed"),
        kind: fields.kind().expect("well-formed"),
        user_id: fields.user_id().expect("well-formed"),
        app_id: fields.app_id().expect("well-formed"),
        cluster_id: fields.cluster_id().expect("well-formed"),
    };
    assert_eq!(alone, properties);
}

#[test]
fn properties_cut_at_every_byte_are_errors() {
    let input = bytes(ALL);
    check_alone(PropertyFields::new(&input), all());
    for end in 0..input.len() {
        let fields = PropertyFields::new(&input[..end]);
        assert_eq!(fields.decode(), Err(DecodeError::Truncated), "cut at {end}");
        assert_eq!(fields.cluster_id(), Err(DecodeError::Truncated), "cut at {end}");
        // What stands before the cut can be read.
        assert_eq!(fields.content_type().is_ok(), end >= 13, "cut at {end}");
    }
    let longer = [input.as_slice(), &[0]].concat();
    assert_eq!(PropertyFields::new(&longer).decode(), Err(DecodeError::TrailingBytes));
}

#[test]
fn flags_may_be_continued() {
    let decode = |text: &str| {
        let input = bytes(text);
        let delivery_mode = PropertyFields::new(&input).delivery_mode();
        assert_eq!(PropertyFields::new(&input).decode().map(|all| all.delivery_mode), delivery_mode);
        delivery_mode
    };
    assert_eq!(decode("1001 0000 02"), Ok(Some(2)));
    assert_eq!(decode("1001 0001 0001 0000 02"), Ok(Some(2)));
    assert_eq!(decode("1001 0001 0001"), Err(DecodeError::Truncated));
    // There are no properties in these places.
    assert_eq!(decode("1002 02"), Err(DecodeError::UnknownProperty));
    assert_eq!(decode("1001 8000 02"), Err(DecodeError::UnknownProperty));
    assert_eq!(decode("1001 0003 0000 02"), Err(DecodeError::UnknownProperty));
    assert_eq!(DecodeError::UnknownProperty.reply_code(), ReplyCode::SyntaxError);
}

#[test]
fn headers_are_checked_all_the_way_down() {
    for (headers, error) in [
        (nested(10_000, true), DecodeError::TooDeep),
        (nested(10_000, false), DecodeError::TooDeep),
        (bytes("['a'] 'z'"), DecodeError::UnknownFieldType { letter: b'z' }),
        (bytes("['a'] 'S' 80000000"), DecodeError::Truncated),
        (bytes("['a'] 'F' ffffffff"), DecodeError::Truncated),
        (bytes("['a'] 'F' (['b'] 'A' 7fffffff)"), DecodeError::Truncated),
    ] {
        let properties = Properties { headers: Some(Table::new(&headers)), ..Properties::default() };
        let mut out = Vec::new();
        properties.encode(&mut out);
        assert_eq!(PropertyFields::new(&out).decode(), Err(error));
        // Reading them alone does not look inside.
        assert_eq!(PropertyFields::new(&out).headers(), Ok(Some(Table::new(&headers))));
        assert_eq!(check_table(Table::new(&headers)), Err(error));
    }
    let input = bytes("2000 (['a'] 'I' 00000001)");
    let headers = PropertyFields::new(&input).decode().expect("well-formed").headers.expect("headers");
    assert_eq!(headers.find("a"), Ok(Some(FieldValue::Int32(1))));
}

#[test]
fn content_headers() {
    let input = bytes("02 0007 ( 003c 0000 0000000000000400 1000 02 ) ce");
    let frame = Frame::take(&mut input.as_slice(), 4096).expect("well-formed").expect("complete");
    assert_eq!((frame.kind, frame.channel), (FrameKind::Header, 7));
    let header = ContentHeader::decode(frame.payload).expect("a header");
    assert_eq!((header.body_size, header.properties.delivery_mode()), (1024, Ok(Some(2))));
    let mut out = Vec::new();
    write_content_header(&mut out, 7, header.body_size, header.properties);
    let start = begin_content_header(&mut out, 7, 1024);
    Properties { delivery_mode: Some(2), ..Properties::default() }.encode(&mut out);
    finish_frame(&mut out, start);
    assert_eq!(out, input.repeat(2));
    for end in 0..12 {
        assert_eq!(ContentHeader::decode(&frame.payload[..end]), Err(DecodeError::Truncated), "cut at {end}");
    }
    let error = |text: &str| ContentHeader::decode(&bytes(text)).expect_err("no header");
    let class = error("0032 0000 0000000000000400 0000");
    assert_eq!(class, DecodeError::UnexpectedClass { class_id: 50 });
    let weight = error("003c 0001 0000000000000400 0000");
    assert_eq!(weight, DecodeError::UnexpectedWeight { weight: 1 });
    assert_eq!((class.reply_code().code(), weight.reply_code().code()), (505, 505));
    // A message without properties.
    let none = bytes("003c 0000 ffffffffffffffff 0000");
    let expected = ContentHeader { body_size: u64::MAX, properties: PropertyFields::default() };
    assert_eq!(ContentHeader::decode(&none), Ok(expected));
    assert_eq!(PropertyFields::default().decode(), Ok(Properties::default()));
}

#[test]
fn bodies_are_split_into_frames() {
    let body: Vec<_> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
    let check = |size: usize, frame_size_max: u32, sizes: &[usize]| {
        let mut out = Vec::new();
        write_body(&mut out, 3, &body[..size], frame_size_max);
        let (mut rest, mut joined, mut found) = (out.as_slice(), Vec::new(), Vec::new());
        while let Some(frame) = Frame::take(&mut rest, frame_size_max).expect("well-formed") {
            assert_eq!((frame.kind, frame.channel), (FrameKind::Body, 3));
            joined.extend_from_slice(frame.payload);
            found.push(frame.payload.len());
        }
        assert!(rest.is_empty());
        assert_eq!((joined.as_slice(), found.as_slice()), (&body[..size], sizes));
    };
    check(0, 4096, &[]);
    check(1, 4096, &[1]);
    check(4088, 4096, &[4088]);
    check(4089, 4096, &[4088, 1]);
    check(8176, 4096, &[4088, 4088]);
    check(131_064, 131_072, &[131_064]);
    check(1_000_000, 131_072, &[131_064, 131_064, 131_064, 131_064, 131_064, 131_064, 131_064, 82_552]);
}

fn name() -> impl Strategy<Value = ShortStr<'static>> {
    vec(any::<u8>(), 0..=255).prop_map(|bytes| ShortStr::new(bytes.leak()).expect("short"))
}

fn properties() -> impl Strategy<Value = Properties<'static>> {
    let names = prop::array::uniform11(of(name()));
    let headers = of(table().prop_map(|bytes| Table::new(bytes.leak())));
    (names, headers, any::<(Option<u8>, Option<u8>, Option<u64>)>()).prop_map(
        |(names, headers, (delivery_mode, priority, timestamp))| {
            let [content_type, content_encoding, correlation_id, reply_to, expiration, rest @ ..] = names;
            let [message_id, kind, user_id, app_id, cluster_id, _] = rest;
            Properties {
                content_type,
                content_encoding,
                headers,
                delivery_mode,
                priority,
                correlation_id,
                reply_to,
                expiration,
                message_id,
                timestamp,
                kind,
                user_id,
                app_id,
                cluster_id,
            }
        },
    )
}

proptest! {
    #[test]
    fn properties_are_read_and_written(properties in properties()) {
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        prop_assert_eq!(PropertyFields::new(&bytes).decode(), Ok(properties));
        check_alone(PropertyFields::new(&bytes), properties);
        for end in 0..bytes.len() {
            prop_assert_eq!(PropertyFields::new(&bytes[..end]).decode(), Err(DecodeError::Truncated));
        }
    }
}
