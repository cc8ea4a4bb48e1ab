//! Any message, in both directions.

use corelane_wire::amqp10::{ListWriter, MapSection, MapWriter, write_amqp_value, write_data};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;

fn bytes(size_max: usize) -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![vec(any::<u8>(), 0..=size_max), "\\PC{0,20}".prop_map(String::into_bytes)]
        .prop_map(move |bytes| &*bytes[..bytes.len().min(size_max)].to_vec().leak())
}

fn name() -> impl Strategy<Value = ShortStr<'static>> {
    prop_oneof![8 => bytes(40), 1 => bytes(255), 2 => "x-[a-z]{0,5}".prop_map(|name| &*name.into_bytes().leak())]
        .prop_map(|bytes| ShortStr::new(bytes).expect("short"))
}

/// `exact`: what is the same after both translations.
fn field(exact: bool) -> impl Strategy<Value = FieldValue<'static>> {
    let text = bytes(400).prop_map(move |bytes| {
        if exact { String::from_utf8_lossy(bytes).into_owned().into_bytes().leak() } else { bytes }
    });
    let simple = prop_oneof![
        Just(FieldValue::Void),
        any::<bool>().prop_map(FieldValue::Boolean),
        any::<i8>().prop_map(FieldValue::Int8),
        any::<u8>().prop_map(FieldValue::Uint8),
        any::<i16>().prop_map(FieldValue::Int16),
        any::<u16>().prop_map(FieldValue::Uint16),
        any::<i32>().prop_map(FieldValue::Int32),
        any::<u32>().prop_map(FieldValue::Uint32),
        any::<i64>().prop_map(FieldValue::Int64),
        any::<i32>().prop_map(|number| FieldValue::Float(number as f32)),
        any::<i64>().prop_map(|number| FieldValue::Double(number as f64)),
        (any::<u8>(), any::<i32>()).prop_map(|(scale, value)| FieldValue::Decimal { scale, value }),
        any::<u64>().prop_map(move |at| FieldValue::Timestamp(if exact { at >> 12 } else { at })),
        text.prop_map(FieldValue::LongString),
        bytes(400).prop_map(FieldValue::Bytes),
    ];
    simple.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(|values| {
                let mut bytes = Vec::new();
                let mut writer = corelane_wire::amqp091::ArrayWriter::new(&mut bytes);
                values.into_iter().for_each(|value| writer.value(value));
                FieldValue::Array(corelane_wire::amqp091::Array::new(bytes.leak()))
            }),
            pairs(inner).prop_map(FieldValue::Table),
        ]
    })
}

fn pairs(value: impl Strategy<Value = FieldValue<'static>>) -> impl Strategy<Value = Table<'static>> {
    vec((name(), value), 0..6).prop_map(|pairs| {
        let bytes = table(|writer| pairs.into_iter().for_each(|(name, value)| writer.pair(name, value)));
        Table::new(bytes.leak())
    })
}

prop_compose! {
    fn properties()(
        (content_type, content_encoding, headers) in (of(name()), of(name()), of(pairs(field(false)))),
        (delivery_mode, priority, timestamp) in (of(any::<u8>()), of(any::<u8>()), of(any::<u64>())),
        (correlation_id, reply_to, message_id) in (of(name()), of(name()), of(name())),
        (kind, user_id, app_id, cluster_id) in (of(name()), of(name()), of(name()), of(name())),
        ttl in of(any::<u32>()),
    ) -> Properties<'static> {
        let expiration = ttl.map(|ttl| ShortStr::cut(ttl.to_string().leak()));
        Properties {
            content_type, content_encoding, headers, delivery_mode, priority, correlation_id, reply_to, expiration, message_id,
            timestamp, kind, user_id, app_id, cluster_id,
        }
    }
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let text = || "\\PC{0,30}".prop_map(|text| &*text.leak());
    let simple = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        any::<u32>().prop_map(Value::Uint),
        any::<u64>().prop_map(Value::Ulong),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        any::<i32>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(Value::Char),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        bytes(400).prop_map(Value::Binary),
        text().prop_map(Value::String),
        "[ -~]{0,30}".prop_map(|text| Value::Symbol(text.leak())),
    ];
    simple.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(|values| {
                let mut bytes = Vec::new();
                let mut list = ListWriter::new(&mut bytes);
                values.iter().for_each(|value| list.field(value));
                list.finish();
                Value::decode(bytes.leak()).expect("a list")
            }),
            vec((inner.clone(), inner), 0..5).prop_map(|pairs| {
                let mut bytes = Vec::new();
                let mut map = MapWriter::new(&mut bytes);
                pairs.iter().for_each(|(key, value)| map.pair(key, value));
                map.finish();
                Value::decode(bytes.leak()).expect("a map")
            }),
        ]
    })
}

fn annotations() -> impl Strategy<Value = Vec<(&'static str, Value<'static>)>> {
    static NAMES: [&str; 6] =
        ["x-exchange", "x-routing-key", "x-basic-type", "x-cc", "x-opt-deaths", "x-death"];
    let name = prop_oneof![
        proptest::sample::select(&NAMES),
        "x-[a-z]{0,9}".prop_map(|name| &*name.leak()),
        Just("other")
    ];
    vec((name, value()), 0..6)
}

prop_compose! {
    /// A message of 1.0, whose sections may be of any values.
    fn message()(
        annotations in annotations(),
        fields in vec(value(), 0..13),
        application in vec(("\\PC{0,300}", value()), 0..5),
        (data, body) in (vec(bytes(100), 0..4), of(value())),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let mut section = MapWriter::section(&mut out, MapSection::MessageAnnotations);
        annotations.iter().for_each(|(name, value)| section.symbol(name, value));
        section.finish();
        out.extend_from_slice(&[0, 0x53, 0x73]);
        let mut list = ListWriter::new(&mut out);
        fields.iter().for_each(|value| list.field(value));
        list.finish();
        let mut section = MapWriter::section(&mut out, MapSection::ApplicationProperties);
        application.iter().for_each(|(name, value)| section.pair(&name.as_str(), value));
        section.finish();
        match body {
            Some(body) => write_amqp_value(&mut out, &body),
            None => data.iter().for_each(|data| write_data(&mut out, data)),
        }
        out
    }
}

/// What a consumer of 0-9-1 gets can be read, and fits.
fn check_translated(bytes: &[u8], properties_bytes_max: usize) {
    let Ok(message) = Message::received(&mut Buffers::new(), bytes.to_vec(), 0) else { return };
    let mut translator = Translator::default();
    let basic = translator.basic(&message, Addition { properties_bytes_max, ..addition(1) });
    assert!(basic.properties.decode().is_ok(), "{:?}", basic.properties);
    let fixed = Properties { headers: None, ..basic.properties.decode().expect("properties") };
    assert!(basic.properties.bytes().len() <= properties_bytes_max.max(encoded(&fixed).len()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_published_in_0_9_1_arrives_in_0_9_1_as_it_was(
        (exchange, key) in (name(), name()), properties in properties(), body in bytes(1000),
    ) {
        let headers = properties.headers.unwrap_or_default();
        let routes_badly = [super::super::CC_HEADER, super::super::BCC].iter().any(|name| headers.find(name) != Ok(None));
        prop_assume!(!routes_badly);
        let properties = encoded(&properties);
        let message = publish_names(exchange, key, &properties, body);
        let fields = PropertyFields::new(&properties);
        let expect = BasicMessage { exchange, routing_key: key, properties: fields, body };
        prop_assert_eq!(message.as_0_9_1(), Some(expect));
        let mut translator = Translator::default();
        prop_assert_eq!(translator.basic(&message, addition(0)), expect);
        prop_assert!(corelane_wire::amqp10::check_value(message.annotations()).is_ok());
        let sections = Sections::scan(message.bytes()).expect("sections");
        let application = sections.application_properties.map(message.bytes()).expect("a map");
        for pair in application {
            let (name, value) = pair.expect("a pair");
            let simple = !matches!(value, Value::List(_) | Value::Map(_) | Value::Array(_));
            prop_assert!(matches!(name, Value::String(_)) && simple);
        }
        prop_assert!(sections.properties(message.bytes()).and_then(|fields| fields.decode()).is_ok());
        // Not as one of 1.0 says it.
        let received = Message::received(&mut Buffers::new(), message.bytes().to_vec(), 0).expect("a message");
        prop_assert_eq!(received.as_0_9_1(), None);
        check_translated(message.bytes(), PROPERTIES_MAX);
    }

    #[test]
    fn headers_have_the_same_types_after_both_translations(headers in pairs(field(true))) {
        let routes_badly = [super::super::CC_HEADER, super::super::BCC].iter().any(|name| headers.find(name) != Ok(None));
        prop_assume!(!routes_badly);
        let message = with_headers(headers.bytes());
        let received = Message::received(&mut Buffers::new(), message.bytes().to_vec(), 0).expect("a message");
        let mut translator = Translator::default();
        let basic = translator.basic(&received, addition(0));
        let there = basic.properties.headers().expect("headers").unwrap_or_default();
        let mut expect: Vec<_> = headers.iter().flatten().filter(|(name, value)| is_translated(*name, value)).collect();
        // Annotations come first.
        expect.sort_by_key(|(name, _)| !name.as_bytes().starts_with(b"x-"));
        let there: Vec<_> = there.iter().flatten().collect();
        prop_assert_eq!(format!("{there:?}"), format!("{expect:?}"));
    }

    #[test]
    fn any_message_of_1_0_can_be_read_in_0_9_1(bytes in message(), max in prop_oneof![0_usize..300, Just(PROPERTIES_MAX)]) {
        check_translated(&bytes, max);
    }

    #[test]
    fn a_damaged_message_of_1_0_can_be_read_in_0_9_1(
        mut bytes in message(), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_translated(&bytes, PROPERTIES_MAX);
    }

    #[test]
    fn properties_of_any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(published) = Published::read(PropertyFields::new(&bytes)) {
            let mut stored = Vec::new();
            published.write_head(ShortStr::EMPTY, ShortStr::EMPTY, 0, &mut stored).complete(&mut stored);
            prop_assert!(Message::new(stored, 0).is_ok());
        }
    }
}

/// Whether a header is the same after both translations.
fn is_translated(name: ShortStr<'_>, value: &FieldValue<'_>) -> bool {
    let Some(text) = name.as_str() else { return false };
    if text.starts_with("x-") {
        text.is_ascii()
    } else {
        !matches!(value, FieldValue::Array(_) | FieldValue::Table(_))
    }
}
