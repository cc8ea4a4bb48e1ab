//! What is published in 0-9-1, stored and as a consumer of 1.0 gets it.

use corelane_engine::Message as _;
use corelane_wire::amqp10::{Header, ListWriter, write_amqp_value, write_footer};
use corelane_wire::amqp091::ReplyCode;

use super::*;
use crate::amqp091::Refusal;

#[test]
fn a_message_without_properties() {
    let message = publish("", "q", &[0, 0], b"");
    check(
        &shown(&message),
        r#"header: durable false, priority 0, ttl None
           annotation: Symbol("x-exchange") = String("")
           annotation: Symbol("x-routing-key") = String("q")
           body: Binary()"#,
    );
    check(&delivered(&message, 0), "to:  q\nbody: ");
}

#[test]
fn all_properties() {
    let message = published(&Properties {
        content_type: Some(short("text/plain")),
        content_encoding: Some(short("gzip")),
        headers: None,
        delivery_mode: Some(2),
        priority: Some(7),
        correlation_id: Some(short("urn:uuid:550e8400-e29b-41d4-a716-446655440000")),
        reply_to: Some(short("answers")),
        expiration: Some(short("60000")),
        message_id: Some(short("m")),
        timestamp: Some(1_700_000_000),
        kind: Some(short("kind")),
        user_id: Some(short("guest")),
        app_id: Some(short("app")),
        cluster_id: Some(short("cluster")),
    });
    check(
        &shown(&message),
        r#"header: durable true, priority 7, ttl Some(60000)
           annotation: Symbol("x-exchange") = String("orders")
           annotation: Symbol("x-routing-key") = String("new")
           annotation: Symbol("x-basic-type") = String("kind")
           property: message_id: Some(String("m"))
           property: user_id: Some([103
           property: 117
           property: 101
           property: 115
           property: 116])
           property: reply_to: Some("answers")
           property: correlation_id: Some(Uuid([85
           property: 14
           property: 132
           property: 0
           property: 226
           property: 155
           property: 65
           property: 212
           property: 167
           property: 22
           property: 68
           property: 102
           property: 85
           property: 68
           property: 0
           property: 0]))
           property: content_type: Some("text/plain")
           property: content_encoding: Some("gzip")
           property: creation_time: Some(1700000000000)
           property: group_id: Some("app")
           body: Binary(body)"#,
    );
    assert!(message.is_durable());
    assert_eq!((message.priority(), message.expires_at(5)), (7, Some(60_000_005)));
}

#[test]
fn an_application_is_no_group() {
    let message = published(&Properties { app_id: Some(short("app")), ..Properties::default() });
    assert_eq!(message.group(), None);
}

#[test]
fn text_that_is_none_is_binary_or_left_out() {
    let not_text = ShortStr::new(b"\xff").expect("short");
    let headers = table(|headers| {
        headers.pair(not_text, FieldValue::Boolean(true));
        headers.pair(short("x-ä"), FieldValue::Boolean(true));
        headers.pair(short("x-bytes"), FieldValue::LongString(b"\xff"));
        headers.pair(short("ä"), FieldValue::LongString("ä".as_bytes()));
    });
    let properties = encoded(&Properties {
        content_type: Some(short("ä")),
        content_encoding: Some(not_text),
        headers: Some(Table::new(&headers)),
        correlation_id: Some(not_text),
        reply_to: Some(not_text),
        kind: Some(not_text),
        user_id: Some(not_text),
        app_id: Some(not_text),
        ..Properties::default()
    });
    let message = publish_names(not_text, not_text, &properties, b"");
    check(
        &shown(&message),
        r#"header: durable false, priority 0, ttl None
           annotation: Symbol("x-exchange") = Binary(\xff)
           annotation: Symbol("x-routing-key") = Binary(\xff)
           annotation: Symbol("x-basic-type") = Binary(\xff)
           annotation: Symbol("x-bytes") = Binary(\xff)
           property: user_id: Some([255])
           property: correlation_id: Some(Binary([255]))
           application: String("ä") = String("ä")
           body: Binary()"#,
    );
}

#[test]
fn headers_of_all_types() {
    let nested = table(|nested| nested.pair(short("k"), FieldValue::Int32(1)));
    let array = table(|_| {});
    let all = |headers: &mut TableWriter<'_>, x: &str| {
        let mut pair = |name: &str, value| headers.pair(short(&format!("{x}{name}")), value);
        pair("void", FieldValue::Void);
        pair("bool", FieldValue::Boolean(true));
        pair("int8", FieldValue::Int8(-1));
        pair("uint8", FieldValue::Uint8(1));
        pair("int16", FieldValue::Int16(-1));
        pair("uint16", FieldValue::Uint16(1));
        pair("int32", FieldValue::Int32(-1));
        pair("uint32", FieldValue::Uint32(1));
        pair("int64", FieldValue::Int64(-1));
        pair("float", FieldValue::Float(0.5));
        pair("double", FieldValue::Double(0.25));
        pair("decimal", FieldValue::Decimal { scale: 2, value: -150 });
        pair("time", FieldValue::Timestamp(1_700_000_000));
        pair("text", FieldValue::LongString(b"t"));
        pair("bytes", FieldValue::Bytes(b"b"));
        pair("array", FieldValue::Array(corelane_wire::amqp091::Array::new(&array)));
        pair("table", FieldValue::Table(Table::new(&nested)));
    };
    let message = with_headers(&table(|headers| {
        all(headers, "");
        all(headers, "x-");
    }));
    let simple = r#"void = Null
        bool = Boolean(true)
        int8 = Byte(-1)
        uint8 = Ubyte(1)
        int16 = Short(-1)
        uint16 = Ushort(1)
        int32 = Int(-1)
        uint32 = Uint(1)
        int64 = Long(-1)
        float = Float(0.5)
        double = Double(0.25)
        decimal = Decimal64([177, 128, 0, 0, 0, 0, 0, 150])
        time = Timestamp(1700000000000)
        text = String("t")
        bytes = Binary(b)"#;
    let lines = |start: &str, x: &str, kind: &str| -> String {
        let line = |line: &str| {
            let (name, value) = line.trim().split_once(" = ").expect("a pair");
            format!("{start}: {kind}(\"{x}{name}\") = {value}\n")
        };
        simple.lines().map(line).collect()
    };
    check(
        &shown(&message),
        &format!(
            r#"header: durable false, priority 0, ttl None
               annotation: Symbol("x-exchange") = String("orders")
               annotation: Symbol("x-routing-key") = String("new")
               {}
               annotation: Symbol("x-array") = []
               annotation: Symbol("x-table") = {{Symbol("k"): Int(1)}}
               {}
               body: Binary(body)"#,
            lines("annotation", "x-", "Symbol"),
            lines("application", "", "String"),
        ),
    );
}

#[test]
fn what_the_broker_says_nobody_else_says() {
    let headers = table(|headers| {
        for name in [
            "x-exchange",
            "x-routing-key",
            "x-basic-type",
            "x-cc",
            "x-death",
            "x-opt-deaths",
            "x-opt-death-count",
        ] {
            headers.pair(short(name), FieldValue::LongString(b"mine"));
        }
    });
    let message = with_headers(&headers);
    check(
        &shown(&message),
        r#"header: durable false, priority 0, ttl None
           annotation: Symbol("x-exchange") = String("orders")
           annotation: Symbol("x-routing-key") = String("new")
           body: Binary(body)"#,
    );
    assert_eq!(message.as_0_9_1().expect("0-9-1").properties.headers(), Ok(Some(Table::new(&headers))));
}

#[test]
fn expirations() {
    let read = |text: &str| {
        let properties = encoded(&Properties { expiration: Some(short(text)), ..Properties::default() });
        match Published::read(PropertyFields::new(&properties)) {
            Ok(published) => {
                let mut bytes = Vec::new();
                published.write_head(ShortStr::EMPTY, ShortStr::EMPTY, 0, &mut bytes);
                let header = Sections::scan(&bytes).and_then(|sections| sections.header(&bytes));
                format!("ttl {}", header.ok().and_then(|header| header.ttl).unwrap_or(0))
            }
            Err(refusal) => {
                assert_eq!(refusal.reply_code(), ReplyCode::PreconditionFailed);
                refusal.to_string()
            }
        }
    };
    for (text, expect) in [
        ("0", "ttl 1"),
        ("1", "ttl 1"),
        ("+07", "ttl 7"),
        ("-0", "ttl 1"),
        ("4294967295", "ttl 4294967295"),
        ("4294967296", "invalid expiration '4294967296': {value_too_big,4294967296}"),
        ("-1", "invalid expiration '-1': {value_negative,-1}"),
        ("", "invalid expiration '': no_integer"),
        ("abc", "invalid expiration 'abc': no_integer"),
        ("10s", "invalid expiration '10s': {leftover_string,\"s\"}"),
        ("1.5", "invalid expiration '1.5': {leftover_string,\".5\"}"),
    ] {
        assert_eq!(read(text), expect, "{text}");
    }
}

#[test]
fn copies_are_routed_too_and_blind_ones_are_not_seen() {
    let headers = table(|headers| {
        headers.array(short("BCC"), |keys| keys.value(FieldValue::LongString(b"blind")));
        headers.pair(short("a"), FieldValue::Int32(1));
        headers.array(short("CC"), |keys| {
            keys.value(FieldValue::LongString(b"copy"));
            keys.value(FieldValue::Int32(1));
            keys.value(FieldValue::LongString(b"other"));
        });
    });
    let properties = encoded(&Properties {
        content_type: Some(short("text/plain")),
        headers: Some(Table::new(&headers)),
        ..Properties::default()
    });
    let read = Published::read(PropertyFields::new(&properties)).expect("properties");
    let keys = [b"copy".as_slice(), b"other", b"blind"];
    assert_eq!(read.further_keys().collect::<Vec<_>>(), keys);
    let message = publish("orders", "new", &properties, b"body");
    let route = |message: &Message| {
        let (exchange, keys) = message.route("q");
        let keys: Vec<_> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        format!("{} {}", exchange.escape_ascii(), keys.join(" "))
    };
    assert_eq!(route(&message), "orders new copy other blind");
    check(
        &delivered(&message, 0),
        r#"to: orders new
           content-type: text/plain
           header: a = Int32(1)
           header: CC = ["copy", Int32(1), "other"]
           body: body"#,
    );
    check(
        &shown(&message),
        r#"header: durable false, priority 0, ttl None
           annotation: Symbol("x-exchange") = String("orders")
           annotation: Symbol("x-routing-key") = String("new")
           annotation: Symbol("x-cc") = [String("copy"), Int(1), String("other")]
           property: content_type: Some("text/plain")
           application: String("a") = Int(1)
           body: Binary(body)"#,
    );
    let mut through = publish("orders", "new", &properties, b"body");
    through.readdress("dead", None);
    assert_eq!(route(&through), "dead new copy other blind");
    through.readdress("dead", Some("key"));
    assert_eq!(route(&through), "dead key");
    check(
        &delivered(&through, 0),
        r#"to: dead key
           content-type: text/plain
           header: a = Int32(1)
           body: body"#,
    );
}

#[test]
fn copies_are_arrays() {
    for name in ["CC", "BCC"] {
        let headers = table(|headers| headers.pair(short(name), FieldValue::LongString(b"key")));
        let properties =
            encoded(&Properties { headers: Some(Table::new(&headers)), ..Properties::default() });
        let refusal = Published::read(PropertyFields::new(&properties)).expect_err("a string");
        assert_eq!(refusal.reply_code(), ReplyCode::PreconditionFailed);
        let expect = format!("invalid message: {{unacceptable_type_in_header,\"{name}\",longstr}}");
        assert_eq!(refusal.to_string(), expect);
    }
}

#[test]
fn malformed_properties_are_refused() {
    let headers = table(|headers| {
        headers
            .array(short("a"), |array| array.table(|nested| nested.pair(short("k"), FieldValue::Int64(1))));
    });
    let properties = encoded(&Properties {
        content_type: Some(short("text/plain")),
        headers: Some(Table::new(&headers)),
        timestamp: Some(1),
        cluster_id: Some(short("c")),
        ..Properties::default()
    });
    let read = Published::read(PropertyFields::new(&properties)).expect("properties");
    assert_eq!((read.properties().timestamp, read.is_persistent()), (Some(1), false));
    for end in 0..properties.len() {
        let cut = Published::read(PropertyFields::new(&properties[..end]));
        assert!(matches!(cut, Err(Refusal::Malformed(_))), "{end}");
    }
    for (index, byte) in (0..properties.len()).flat_map(|index| (0..=255).map(move |byte| (index, byte))) {
        let mut changed = properties.clone();
        changed[index] = byte;
        if let Ok(published) = Published::read(PropertyFields::new(&changed)) {
            let mut bytes = Vec::new();
            published.write_head(ShortStr::EMPTY, ShortStr::EMPTY, 0, &mut bytes).complete(&mut bytes);
            assert!(Message::new(bytes, 0).is_ok_and(|message| message.as_0_9_1().is_some()));
        }
    }
}

#[test]
fn sections_of_1_0_stand_for_themselves() {
    let properties = encoded(&Properties {
        kind: Some(short("amqp-1.0")),
        app_id: Some(short("app")),
        ..Properties::default()
    });
    let mut sections = Vec::new();
    write_amqp_value(&mut sections, &"text");
    write_footer(&mut sections, &[("f", Value::Int(1))]);
    let message = publish("", "q", &properties, &sections);
    check(shown(&message).lines().last().expect("a line"), r#"body: String("text")"#);
    assert_eq!(message.as_0_9_1().expect("0-9-1").body, sections);
    let mut header = Vec::new();
    corelane_wire::amqp10::Encode::encode(&Header::default(), &mut header);
    let mut application = Vec::new();
    corelane_wire::amqp10::write_application_properties(&mut application, &[("a", Value::Int(1))]);
    application.extend_from_slice(&sections);
    let mut data = Vec::new();
    corelane_wire::amqp10::write_data(&mut data, b"data");
    let mut list = Vec::new();
    ListWriter::new(&mut list).finish();
    for body in [b"".as_slice(), b"text", &header, &application, &data, &list, &sections[..5]] {
        let message = publish("", "q", &properties, body);
        let expect = format!("body: Binary({})", body.escape_ascii());
        check(shown(&message).lines().last().expect("a line"), &expect);
        assert_eq!(message.as_0_9_1().expect("0-9-1").body, body);
    }
}

#[test]
fn a_urn_of_a_uuid_is_one_and_all_else_is_a_string() {
    for (given, is_uuid) in [
        ("urn:uuid:550e8400-e29b-41d4-a716-446655440000", true),
        ("urn:uuid:550E8400-E29B-41D4-A716-446655440000", true),
        ("550e8400-e29b-41d4-a716-446655440000", false),
        ("{550e8400-e29b-41d4-a716-446655440000}", false),
        ("550e8400e29b41d4a716446655440000", false),
        ("urn:uuid:550e8400e29b41d4a716446655440000", false),
        ("urn:uuid:550e8400-e29b-41d4-a716-44665544000", false),
        ("urn:uuid:550e8400+e29b-41d4-a716-446655440000", false),
        ("urn:uuid:550e8400-e29b-41d4-a716-44665544000g", false),
        ("urn:uuid:", false),
    ] {
        let message = published(&Properties { message_id: Some(short(given)), ..Properties::default() });
        let said = shown(&message);
        assert_eq!(said.contains("message_id: Some(Uuid("), is_uuid, "{given}: {said}");
    }
}
