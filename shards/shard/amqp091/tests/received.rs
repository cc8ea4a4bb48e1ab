//! What was sent in 1.0, as a consumer of 0-9-1 gets it.

use corelane_wire::amqp10::{
    self, Encode, Header, ListWriter, MapSection, MapWriter, MessageId, write_amqp_value,
    write_application_properties, write_data, write_delivery_annotations, write_footer,
    write_message_annotations,
};

use super::*;

#[test]
fn a_message_of_nothing_but_data() {
    let message = receive(&[&|out| write_data(out, b"body")]);
    check(&delivered(&message, 0), "to:  q\ndelivery-mode: 1\nbody: body");
    check(
        &delivered(&message, 3),
        "to:  q\ndelivery-mode: 1\nheader: x-delivery-count = Int64(3)\nbody: body",
    );
}

#[test]
fn all_that_has_a_place() {
    let message = receive(&[
        &|out| Header { durable: true, priority: 4, ttl: Some(5000), ..Header::default() }.encode(out),
        &|out| {
            write_message_annotations(
                out,
                &[
                    ("x-exchange", Value::String("e")),
                    ("x-routing-key", Value::String("k")),
                    ("x-basic-type", Value::String("kind")),
                    ("x-opt-mine", Value::Uint(1)),
                    ("other", Value::Uint(1)),
                    ("x-opt-death-count", Value::Uint(1)),
                ],
            );
        },
        &|out| {
            let properties = amqp10::Properties {
                message_id: Some(MessageId::Ulong(7)),
                user_id: Some(b"guest"),
                to: Some("to"),
                subject: Some("subject"),
                reply_to: Some("/queues/my%20answers"),
                correlation_id: Some(MessageId::Uuid([0x11; 16])),
                content_type: Some("text/plain"),
                content_encoding: Some("gzip"),
                absolute_expiry_time: Some(1),
                creation_time: Some(1_700_000_000_999),
                group_id: Some("g"),
                group_sequence: Some(1),
                reply_to_group_id: Some("r"),
            };
            properties.encode(out);
        },
        &|out| write_data(out, b"one"),
        &|out| write_data(out, b""),
        &|out| write_data(out, b"two"),
        &|out| write_footer(out, &[("f", Value::Int(1))]),
    ]);
    check(
        &delivered(&message, 0),
        r"to: e k
          content-type: text/plain
          content-encoding: gzip
          delivery-mode: 2
          correlation-id: urn:uuid:11111111-1111-1111-1111-111111111111
          reply-to: my answers
          expiration: 5000
          message-id: 7
          timestamp: 1700000000
          type: kind
          user-id: guest
          app-id: g
          header: x-opt-mine = Uint32(1)
          body: onetwo",
    );
}

#[test]
fn priority_is_said_if_it_is() {
    let of = |header: Header| {
        let message = receive(&[&|out| header.encode(out), &|out| write_data(out, b"")]);
        delivered(&message, 0)
    };
    check(&of(Header { priority: 9, ..Header::default() }), "to:  q\ndelivery-mode: 1\npriority: 9\nbody: ");
    check(&of(Header { durable: true, ..Header::default() }), "to:  q\ndelivery-mode: 2\nbody: ");
    check(&of(Header { ttl: Some(0), ..Header::default() }), "to:  q\ndelivery-mode: 1\nbody: ");
}

#[test]
fn identifiers_that_are_no_short_text_are_headers() {
    let long = "l".repeat(256);
    let message = receive(&[
        &|out| {
            let properties = amqp10::Properties {
                message_id: Some(MessageId::Binary(b"\xff")),
                user_id: Some(b"\xff"),
                reply_to: Some(&long),
                correlation_id: Some(MessageId::String(&long)),
                content_type: Some(&long),
                group_id: Some(&long),
                ..amqp10::Properties::default()
            };
            properties.encode(out);
        },
        &|out| write_data(out, b""),
    ]);
    check(
        &delivered(&message, 0),
        &format!(
            r#"to:  q
               delivery-mode: 1
               header: x-message-id = Bytes(\xff)
               header: x-correlation-id = "{long}"
               body: "#
        ),
    );
}

#[test]
fn application_properties_keep_their_types() {
    let message = receive(&[
        &|out| {
            write_application_properties(
                out,
                &[
                    ("null", Value::Null),
                    ("boolean", Value::Boolean(false)),
                    ("ubyte", Value::Ubyte(1)),
                    ("ushort", Value::Ushort(1)),
                    ("uint", Value::Uint(0)),
                    ("ulong", Value::Ulong(i64::MAX as u64)),
                    ("ulong-max", Value::Ulong(u64::MAX)),
                    ("byte", Value::Byte(-1)),
                    ("short", Value::Short(-1)),
                    ("int", Value::Int(-1)),
                    ("long", Value::Long(-1)),
                    ("float", Value::Float(0.5)),
                    ("double", Value::Double(0.25)),
                    ("decimal32", Value::Decimal32([0x32, 0x80, 0, 3])),
                    ("decimal64", Value::Decimal64([177, 128, 0, 0, 0, 0, 0, 150])),
                    ("decimal128", Value::Decimal128([0; 16])),
                    ("infinity", Value::Decimal64([0x78, 0, 0, 0, 0, 0, 0, 0])),
                    ("char", Value::Char('ä')),
                    ("timestamp", Value::Timestamp(-1)),
                    ("uuid", Value::Uuid([0x22; 16])),
                    ("binary", Value::Binary(b"b")),
                    ("string", Value::String("s")),
                    ("symbol", Value::Symbol("y")),
                    (&"k".repeat(256), Value::Int(1)),
                    ("", Value::Int(1)),
                ],
            );
        },
        &|out| write_data(out, b""),
    ]);
    check(
        &delivered(&message, 0),
        r#"to:  q
           delivery-mode: 1
           header: null = Void
           header: boolean = Boolean(false)
           header: ubyte = Uint8(1)
           header: ushort = Uint16(1)
           header: uint = Uint32(0)
           header: ulong = Int64(9223372036854775807)
           header: ulong-max = "18446744073709551615"
           header: byte = Int8(-1)
           header: short = Int16(-1)
           header: int = Int32(-1)
           header: long = Int64(-1)
           header: float = Float(0.5)
           header: double = Double(0.25)
           header: decimal32 = Decimal { scale: 0, value: 3 }
           header: decimal64 = Decimal { scale: 2, value: -150 }
           header: decimal128 = Void
           header: infinity = Void
           header: char = "ä"
           header: timestamp = Timestamp(18446744073709551615)
           header: uuid = "urn:uuid:22222222-2222-2222-2222-222222222222"
           header: binary = Bytes(b)
           header: string = "s"
           header: symbol = "y"
           header:  = Int32(1)
           body: "#,
    );
}

fn list(values: &[&dyn Fn(&mut ListWriter<'_>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut list = ListWriter::new(&mut bytes);
    values.iter().for_each(|value| value(&mut list));
    list.finish();
    bytes
}

#[test]
fn what_is_nested_in_annotations_is_nested_in_headers() {
    let mut map = Vec::new();
    let mut writer = MapWriter::new(&mut map);
    writer.symbol("symbol", &1_i32);
    writer.pair(&"string", &2_i32);
    writer.pair(&b"binary".as_slice(), &3_i32);
    writer.pair(&4_i32, &4_i32);
    writer.finish();
    let map = Map::decode(&map).expect("a map");
    let nested = list(&[&|list| list.field(&map), &|list| list.null(), &|list| list.field(&"s")]);
    let message = receive(&[
        &|out| {
            let mut section = MapWriter::section(out, MapSection::MessageAnnotations);
            section.symbol("x-list", &Value::decode(&nested).expect("a list"));
            section.symbol("x-map", &map);
            section.pair(&1_u64, &1_i32);
            section.finish();
        },
        &|out| write_data(out, b""),
    ]);
    check(
        &delivered(&message, 0),
        r#"to:  q
           delivery-mode: 1
           header: x-list = [{symbol: Int32(1), string: Int32(2), binary: Int32(3)}, Void, "s"]
           header: x-map = {symbol: Int32(1), string: Int32(2), binary: Int32(3)}
           body: "#,
    );
}

#[test]
fn other_bodies_stay_sections() {
    let message = receive(&[
        &|out| write_application_properties(out, &[("a", Value::Int(1))]),
        &|out| write_amqp_value(out, &"text"),
        &|out| write_footer(out, &[("f", Value::Int(1))]),
    ]);
    let footer = r"\x00Sx\xc1\x06\x02\xa3\x01fT\x01";
    check(
        &delivered(&message, 0),
        &format!(
            r"to:  q
              delivery-mode: 1
              type: amqp-1.0
              header: a = Int32(1)
              body: \x00Sw\xa1\x04text{footer}"
        ),
    );
    let message = receive(&[&|out| Header::default().encode(out)]);
    check(&delivered(&message, 0), "to:  q\ndelivery-mode: 1\nbody: ");
}

#[test]
fn nobody_says_in_1_0_that_it_was_0_9_1() {
    let stored = publish("orders", "new", &[0, 0], b"body");
    let mut buffers = Buffers::new();
    let message = Message::received(&mut buffers, stored.bytes().to_vec(), 0).expect("a message");
    assert_eq!((message.as_0_9_1(), message.rest()), (None, stored.rest()));
    assert_eq!(Message::new(message.bytes().to_vec(), 0).expect("a message").as_0_9_1(), None);
    // Other annotations may stay, and what only looks like it.
    for name in ["x-0-9-2", "x-0-9-1"] {
        let annotation = [(name, Value::Binary(b"\x09"))];
        let message =
            receive(&[&|out| write_delivery_annotations(out, &annotation), &|out| write_data(out, b"")]);
        assert_eq!(message.as_0_9_1(), None);
    }
}

#[test]
fn headers_that_do_not_fit_are_left_out() {
    let zeros = {
        // Each zero takes no byte here, and nine there.
        let array = [0xe0, 2, 255, 0x44];
        let many: Vec<u8> = std::iter::repeat_n(array, 1000).flatten().collect();
        let mut list = vec![0xd0];
        list.extend_from_slice(&(many.len() as u32 + 4).to_be_bytes());
        list.extend_from_slice(&1000_u32.to_be_bytes());
        list.extend_from_slice(&many);
        list
    };
    let message = receive(&[
        &|out| write_message_annotations(out, &[("x-zeros", Value::decode(&zeros).expect("a list"))]),
        &|out| write_application_properties(out, &[("a", Value::Int(1))]),
        &|out| write_data(out, b"body"),
    ]);
    check(&delivered(&message, 0), "to:  q\ndelivery-mode: 1\nbody: body");
    let message = receive(&[
        &|out| write_application_properties(out, &[("a", Value::Int(1)), ("b", Value::Long(1))]),
        &|out| write_data(out, b"body"),
    ]);
    let mut translator = Translator::default();
    for properties_bytes_max in 0..40 {
        let addition = Addition { properties_bytes_max, ..addition(0) };
        let basic = translator.basic(&message, addition);
        let size = basic.properties.bytes().len();
        assert!(size <= properties_bytes_max.max(3), "{size} of {properties_bytes_max}");
        let headers = basic.properties.headers().expect("headers").unwrap_or_default();
        assert_eq!(headers.iter().count(), [14, 25].iter().filter(|it| **it <= properties_bytes_max).count());
    }
}

#[test]
fn what_is_nested_too_deep_is_void() {
    let mut deep = vec![0x45];
    for _ in 0..200 {
        let mut outer = vec![0xd0];
        outer.extend_from_slice(&(deep.len() as u32 + 4).to_be_bytes());
        outer.extend_from_slice(&1_u32.to_be_bytes());
        outer.extend_from_slice(&deep);
        deep = outer;
    }
    let message = receive(&[
        &|out| {
            let mut section = MapWriter::section(out, MapSection::MessageAnnotations);
            section.symbol("x-deep", &Value::decode(&deep).expect("a list"));
            section.finish();
        },
        &|out| write_data(out, b""),
    ]);
    let shown = delivered(&message, 0);
    let line = shown.lines().find_map(|line| line.strip_prefix("header: x-deep = ")).expect("a header");
    assert_eq!(line, format!("{}Void{}", "[".repeat(64), "]".repeat(64)));
}
