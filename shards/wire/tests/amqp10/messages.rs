//! Tables of messages and their sections (§3.2).

use corelane_wire::amqp10::{
    BodyKind, DecodeError, Encode, Header, List, MapSection, MapWriter, MessageId, Properties, Property,
    PropertyFields, Sections, Value, write_amqp_sequence, write_amqp_value, write_application_properties,
    write_data, write_data_head, write_delivery_annotations, write_footer, write_message_annotations,
};

use crate::bytes;

const HEADER: &str = "00 53 70 c0 02 01 41";
const DELIVERY: &str = "00 53 71 c1 05 02 a3 01 'd' 41";
const MESSAGE: &str = "00 53 72 c1 05 02 a3 01 'm' 41";
const PROPERTIES: &str = "00 53 73 c0 04 01 a1 01 'i'";
const APPLICATION: &str = "00 53 74 c1 05 02 a1 01 'a' 41";
const DATA: &str = "00 53 75 a0 01 ff";
const SEQUENCE: &str = "00 53 76 c0 02 01 43";
const VALUE: &str = "00 53 77 a1 01 'v'";
const FOOTER: &str = "00 53 78 c1 05 02 a3 01 'f' 41";

fn scan(sections: &[&str]) -> Result<Sections, DecodeError> {
    Sections::scan(&bytes(&sections.concat()))
}

#[test]
fn every_section_is_found() {
    let order = [HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, DATA, FOOTER];
    let message = bytes(&order.concat());
    let sections = Sections::scan(&message).expect("well-formed");
    let found = [
        sections.header,
        sections.delivery_annotations,
        sections.message_annotations,
        sections.properties,
        sections.application_properties,
        sections.body,
        sections.footer,
    ];
    for (section, expected) in found.iter().zip(order) {
        assert_eq!(section.bytes(&message), bytes(expected));
        assert_eq!(section.value(&message), &bytes(expected)[3..]);
    }
    assert_eq!(sections.size(), message.len());
    assert_eq!(message[sections.bare()], bytes(&[PROPERTIES, APPLICATION, DATA].concat()));
    assert_eq!(message[sections.onward()], bytes(&[MESSAGE, PROPERTIES, APPLICATION, DATA, FOOTER].concat()));
    assert_eq!(sections.application_property(&message, "a"), Ok(Some(Value::Boolean(true))));
    assert_eq!(sections.application_property(&message, "m"), Ok(None));
    assert_eq!(sections.message_annotation(&message, "m"), Ok(Some(Value::Boolean(true))));
    assert_eq!(sections.delivery_annotation(&message, "d"), Ok(Some(Value::Boolean(true))));
    assert_eq!(sections.footer.map(&message).expect("a map").find("f"), Ok(Some(Value::Boolean(true))));
    assert!(sections.header(&message).expect("a header").durable);
}

#[test]
fn every_subset_in_order_is_a_message() {
    let order = [HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, VALUE, FOOTER];
    for subset in 0_u32..1 << order.len() {
        let chosen = |index: usize| subset & (1 << index) != 0;
        let text: String =
            (0..order.len()).filter(|index| chosen(*index)).map(|index| order[index]).collect();
        let message = bytes(&text);
        let sections = Sections::scan(&message).expect("well-formed");
        let found = [
            sections.header,
            sections.delivery_annotations,
            sections.message_annotations,
            sections.properties,
            sections.application_properties,
            sections.body,
            sections.footer,
        ];
        for (index, section) in found.iter().enumerate() {
            assert_eq!(section.is_present(), chosen(index), "{text}");
            let expected = if chosen(index) { bytes(order[index]) } else { Vec::new() };
            assert_eq!(section.bytes(&message), expected, "{text}");
        }
        // §3.2 wants a body. A message without one is taken and says so.
        assert_eq!(sections.body_kind, chosen(5).then_some(BodyKind::Value), "{text}");
        let bare: String = (3..6).filter(|index| chosen(*index)).map(|index| order[index]).collect();
        assert_eq!(message[sections.bare()], bytes(&bare), "{text}");
    }
}

#[test]
fn sections_stand_in_order_and_once() {
    let order = [HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, VALUE, FOOTER];
    for (late, first) in order.iter().enumerate() {
        for (early, second) in order[..=late].iter().enumerate() {
            let code = bytes(second)[2];
            let expected = if (early, late) == (5, 5) {
                DecodeError::MixedBody { code }
            } else {
                DecodeError::SectionOutOfOrder { code }
            };
            assert_eq!(scan(&[first, second]), Err(expected), "{first} {second}");
        }
    }
}

#[test]
fn bodies_are_of_one_kind() {
    // §3.2: one or more data sections, one or more amqp-sequence sections, or a single amqp-value section.
    for (body, kind) in [
        (&[DATA][..], BodyKind::Data),
        (&[DATA, DATA, DATA], BodyKind::Data),
        (&[SEQUENCE, SEQUENCE], BodyKind::Sequence),
        (&[VALUE], BodyKind::Value),
    ] {
        let message = bytes(&[PROPERTIES, &body.concat(), FOOTER].concat());
        let sections = Sections::scan(&message).expect("well-formed");
        assert_eq!(sections.body_kind, Some(kind));
        assert_eq!(sections.body.bytes(&message), bytes(&body.concat()));
        assert_eq!(sections.body_values(&message).count(), body.len());
        assert!(sections.body_values(&message).all(|value| value.is_ok()));
    }
    for (body, code) in [
        ([DATA, SEQUENCE], 0x76),
        ([DATA, VALUE], 0x77),
        ([SEQUENCE, DATA], 0x75),
        ([SEQUENCE, VALUE], 0x77),
        ([VALUE, DATA], 0x75),
        ([VALUE, VALUE], 0x77),
    ] {
        assert_eq!(scan(&body), Err(DecodeError::MixedBody { code }), "{body:?}");
    }
}

#[test]
fn sections_have_their_types() {
    for (section, field, code) in [
        ("00 53 70 c1 01 00", "header", 0xc1),
        ("00 53 71 45", "delivery-annotations", 0x45),
        ("00 53 72 40", "message-annotations", 0x40),
        ("00 53 73 a0 00", "properties", 0xa0),
        ("00 53 74 c0 01 00", "application-properties", 0xc0),
        ("00 53 75 a1 00", "data", 0xa1),
        ("00 53 76 c1 01 00", "amqp-sequence", 0xc1),
        ("00 53 78 00 53 01 45", "footer", 0x00),
    ] {
        assert_eq!(scan(&[section]), Err(DecodeError::WrongType { field, code }), "{section}");
    }
    const EXPECTED: &str = "a message section";
    for (section, error) in [
        ("00 53 79 45", DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: Some(0x79) }),
        ("00 53 14 45", DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: Some(0x14) }),
        ("00 a3 01 'x' 45", DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: None }),
        ("45", DecodeError::NotDescribed { expected: EXPECTED }),
        ("00 53 77", DecodeError::Truncated),
        ("00 53 75 b0 00 00 00 05 01", DecodeError::Truncated),
        ("00 53 77 ff", DecodeError::UnknownConstructor { code: 0xff }),
    ] {
        assert_eq!(scan(&[section]), Err(error), "{section}");
    }
    // Descriptors in their other forms; any value as amqp-value, a described one too.
    let message = bytes("00 80 00 00 00 00 00 00 00 70 45 00 a3 11 'amqp:amqp-value:*' 00 53 31 45");
    let sections = Sections::scan(&message).expect("well-formed");
    assert_eq!(sections.header(&message), Ok(Header::default()));
    assert_eq!(sections.body.value(&message), bytes("00 53 31 45"));
}

#[test]
fn headers() {
    // §3.2.1
    let check = |encoding: &str, header: Header| {
        let input = bytes(encoding);
        assert_eq!(
            Sections::scan(&input).and_then(|sections| sections.header(&input)),
            Ok(header),
            "{encoding}"
        );
        let mut out = Vec::new();
        header.encode(&mut out);
        assert_eq!(out, input, "{header:?}");
    };
    check("00 53 70 45", Header::default());
    check("00 53 70 c0 02 01 41", Header { durable: true, ..Header::default() });
    check("00 53 70 c0 [05 41 50 09 52 64 41 52 02]", {
        Header { durable: true, priority: 9, ttl: Some(100), first_acquirer: true, delivery_count: 2 }
    });
    check("00 53 70 c0 04 03 40 40 43", Header { ttl: Some(0), ..Header::default() });
    for (wrong, error) in [
        ("c0 02 01 43", DecodeError::WrongType { field: "header.durable", code: 0x43 }),
        ("c0 07 06 40 40 40 40 40 40", DecodeError::TooManyFields { composite: "header" }),
        ("c0 03 02 40 ff", DecodeError::UnknownConstructor { code: 0xff }),
    ] {
        assert_eq!(Header::decode(&bytes(wrong)), Err(error), "{wrong}");
    }
    assert_eq!(scan(&[]).map(|sections| sections.header(&[])), Ok(Ok(Header::default())));
}

#[test]
fn properties() {
    // §3.2.4
    let properties = Properties {
        message_id: Some(MessageId::String("m")),
        user_id: Some(b"u"),
        to: Some("t"),
        subject: Some("s"),
        reply_to: Some("r"),
        correlation_id: Some(MessageId::Uuid([7; 16])),
        content_type: Some("text/plain"),
        content_encoding: Some("gzip"),
        absolute_expiry_time: Some(1),
        creation_time: Some(-1),
        group_id: Some("g"),
        group_sequence: Some(4),
        reply_to_group_id: Some("rg"),
    };
    let mut message = Vec::new();
    properties.encode(&mut message);
    let expected = "00 53 73 c0 [0d a1 01 'm' a0 01 'u' a1 01 't' a1 01 's' a1 01 'r'
        98 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 a3 0a 'text/plain' a3 04 'gzip'
        83 00 00 00 00 00 00 00 01 83 ff ff ff ff ff ff ff ff a1 01 'g' 52 04 a1 02 'rg']";
    let expected = bytes(expected);
    assert_eq!(message, expected);
    let sections = Sections::scan(&message).expect("well-formed");
    let fields = sections.properties(&message).expect("a list");
    assert_eq!(fields.decode(), Ok(properties));
    for (property, value) in [
        (Property::MessageId, Value::String("m")),
        (Property::UserId, Value::Binary(b"u")),
        (Property::To, Value::String("t")),
        (Property::Subject, Value::String("s")),
        (Property::ReplyTo, Value::String("r")),
        (Property::CorrelationId, Value::Uuid([7; 16])),
        (Property::ContentType, Value::Symbol("text/plain")),
        (Property::ContentEncoding, Value::Symbol("gzip")),
        (Property::AbsoluteExpiryTime, Value::Timestamp(1)),
        (Property::CreationTime, Value::Timestamp(-1)),
        (Property::GroupId, Value::String("g")),
        (Property::GroupSequence, Value::Uint(4)),
        (Property::ReplyToGroupId, Value::String("rg")),
    ] {
        assert_eq!(fields.field(property), Ok(Some(value)), "{property:?}");
        assert_eq!(PropertyFields::default().field(property), Ok(None));
    }
    assert_eq!(PropertyFields::default().decode(), Ok(Properties::default()));
}

#[test]
fn properties_have_their_types() {
    let decode =
        |encoding: &str| PropertyFields::new(&bytes(encoding)).and_then(|fields| fields.decode().map(|_| ()));
    // §3.2.11 to §3.2.14: identifiers are of four types.
    for id in ["53 01", "98 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00", "a0 01 ff", "a1 01 'x'"] {
        let list = bytes(&format!("c0 [01 {id}]"));
        assert!(PropertyFields::new(&list).and_then(|fields| fields.decode().map(|_| ())).is_ok(), "{id}");
    }
    for (wrong, error) in [
        ("c0 02 01 43", DecodeError::WrongType { field: "properties.message-id", code: 0x43 }),
        ("c0 04 01 a3 01 'x'", DecodeError::WrongType { field: "properties.message-id", code: 0xa3 }),
        ("c0 06 03 40 40 a3 01 'x'", DecodeError::WrongType { field: "properties.to", code: 0xa3 }),
        ("c0 0a 07 40 40 40 40 40 40 a1 01 'x'", {
            DecodeError::WrongType { field: "properties.content-type", code: 0xa1 }
        }),
        ("c0 0b 09 40 40 40 40 40 40 40 40 55 01", {
            DecodeError::WrongType { field: "properties.absolute-expiry-time", code: 0x55 }
        }),
        ("c0 0f 0e 40 40 40 40 40 40 40 40 40 40 40 40 40 40", {
            DecodeError::TooManyFields { composite: "properties" }
        }),
        ("c1 01 00", DecodeError::WrongType { field: "properties", code: 0xc1 }),
    ] {
        assert_eq!(decode(wrong), Err(error), "{wrong}");
    }
}

#[test]
fn messages_are_written_section_by_section() {
    let mut out = Vec::new();
    Header { durable: true, ..Header::default() }.encode(&mut out);
    write_delivery_annotations(&mut out, &[("d", Value::Boolean(true))]);
    write_message_annotations(&mut out, &[("m", Value::Boolean(true))]);
    Properties { message_id: Some(MessageId::String("i")), ..Properties::default() }.encode(&mut out);
    write_application_properties(&mut out, &[("a", Value::Boolean(true))]);
    let bare_until_body = out.len();
    write_data(&mut out, &[0xff]);
    write_footer(&mut out, &[("f", Value::Boolean(true))]);
    assert_eq!(out, bytes(&[HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, DATA, FOOTER].concat()));

    out.truncate(bare_until_body);
    write_data_head(&mut out, 300);
    out.extend_from_slice(&[7; 300]);
    let sections = Sections::scan(&out).expect("well-formed");
    assert_eq!(sections.body_values(&out).next(), Some(Ok(Value::Binary(&[7; 300]))));

    out.truncate(bare_until_body);
    let list = bytes("c0 02 01 43");
    let Ok(Value::List(list)) = Value::decode(&list) else { panic!("a list") };
    write_amqp_sequence(&mut out, &list);
    write_amqp_sequence(&mut out, &List::default());
    let sections = Sections::scan(&out).expect("well-formed");
    let expected = [Ok(Value::List(list)), Ok(Value::List(List::default()))];
    assert_eq!(sections.body_values(&out).collect::<Vec<_>>(), expected);

    out.truncate(bare_until_body);
    write_amqp_value(&mut out, &"v");
    assert_eq!(out[bare_until_body..], bytes(VALUE));
}

#[test]
fn many_application_properties_widen_their_map() {
    let keys: Vec<String> = (0..200).map(|index| format!("key-{index}")).collect();
    let pairs: Vec<(&str, Value<'_>)> = keys.iter().map(|key| (key.as_str(), Value::Int(1000))).collect();
    let mut out = Vec::new();
    write_application_properties(&mut out, &pairs);
    let sections = Sections::scan(&out).expect("well-formed");
    for key in &keys {
        assert_eq!(sections.application_property(&out, key), Ok(Some(Value::Int(1000))));
    }
    assert_eq!(sections.application_properties.map(&out).expect("a map").len(), 200);
}

#[test]
fn annotations_are_added_to_those_there_are() {
    let message = bytes(MESSAGE);
    let sections = Sections::scan(&message).expect("well-formed");
    let mut out = Vec::new();
    let mut map = MapWriter::section(&mut out, MapSection::MessageAnnotations);
    map.pairs_of(&sections.message_annotations.map(&message).expect("a map"));
    map.symbol("x-opt-n", &2_u32);
    map.finish();
    assert_eq!(out, bytes("00 53 72 c1 [04 a3 ['m'] 41 a3 ['x-opt-n'] 52 02]"));
}
