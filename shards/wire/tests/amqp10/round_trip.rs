//! Whatever is written is read back the same, and whatever is read is no cause for panic.

use corelane_wire::amqp10::{
    BodyKind, DecodeError, Encode, Performative, Reader, SaslPerformative, Sections, Value, check_value,
    write_amqp_value, write_application_properties, write_data, write_footer, write_message_annotations,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::hostile::decode_everything;
use crate::strategies::{binary, header, performative, properties, sasl, simple_value, symbol, text, value};

fn encode(value: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

proptest! {
    #[test]
    fn values(value in value()) {
        let bytes = encode(&value);
        let read = Value::decode(&bytes);
        prop_assert!(matches!(read, Ok(read) if encode(&read) == bytes), "{:?}", read);
        prop_assert_eq!(check_value(&bytes), Ok(()));
        prop_assert_eq!(Reader::new(&bytes).skip_value(), Ok(bytes.as_slice()));
        for end in 0..bytes.len() {
            prop_assert_eq!(Reader::new(&bytes[..end]).skip_value(), Err(DecodeError::Truncated));
            prop_assert!(check_value(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn simple_values(value in simple_value()) {
        let bytes = encode(&value);
        prop_assert_eq!(Value::decode(&bytes), Ok(value));
    }

    #[test]
    fn performatives(performative in performative(), payload in vec(any::<u8>(), 0..20)) {
        let mut bytes = encode(&performative);
        prop_assert_eq!(check_value(&bytes), Ok(()));
        for end in 0..bytes.len() {
            prop_assert_eq!(Performative::decode(&bytes[..end]), Err(DecodeError::Truncated));
        }
        bytes.extend_from_slice(&payload);
        prop_assert_eq!(Performative::decode(&bytes), Ok((performative, payload.as_slice())));
    }

    #[test]
    fn sasl_performatives(performative in sasl()) {
        let bytes = encode(&performative);
        prop_assert_eq!(check_value(&bytes), Ok(()));
        prop_assert_eq!(SaslPerformative::decode(&bytes), Ok(performative));
    }

    #[test]
    fn messages(
        header in of(header()),
        annotations in of(vec((symbol(), value()), 0..4)),
        properties in of(properties()),
        application in of(vec((text(), simple_value()), 0..5)),
        body in prop_oneof![vec(binary(), 0..4).prop_map(Ok), value().prop_map(Err)],
        footer in of(vec((symbol(), value()), 0..3)),
    ) {
        let mut message = Vec::new();
        if let Some(header) = &header {
            header.encode(&mut message);
        }
        if let Some(annotations) = &annotations {
            write_message_annotations(&mut message, annotations);
        }
        let bare_start = message.len();
        if let Some(properties) = &properties {
            properties.encode(&mut message);
        }
        if let Some(application) = &application {
            write_application_properties(&mut message, application);
        }
        let kind = match &body {
            Ok(data) => {
                data.iter().for_each(|data| write_data(&mut message, data));
                (!data.is_empty()).then_some(BodyKind::Data)
            }
            Err(value) => {
                write_amqp_value(&mut message, value);
                Some(BodyKind::Value)
            }
        };
        let bare_end = message.len();
        if let Some(footer) = &footer {
            write_footer(&mut message, footer);
        }

        let sections = Sections::scan(&message).expect("what was just written");
        prop_assert_eq!(sections.bare(), bare_start..bare_end);
        prop_assert_eq!(sections.header(&message), Ok(header.unwrap_or_default()));
        let fields = sections.properties(&message).expect("what was just written");
        prop_assert_eq!(fields.decode(), Ok(properties.unwrap_or_default()));
        prop_assert_eq!(sections.body_kind, kind);
        if let Ok(data) = body {
            let expected: Vec<_> = data.iter().map(|data| Ok(Value::Binary(data))).collect();
            prop_assert_eq!(sections.body_values(&message).collect::<Vec<_>>(), expected);
        }
        for (key, _) in application.iter().flatten() {
            let first = application.iter().flatten().find(|(other, _)| other == key).map(|(_, value)| *value);
            prop_assert_eq!(sections.application_property(&message, key), Ok(first));
        }
        prop_assert_eq!(sections.footer.is_present(), footer.is_some());
        prop_assert_eq!(sections.message_annotations.is_present(), annotations.is_some());
    }

    #[test]
    fn random_bytes_are_harmless(input in vec(any::<u8>(), 0..64)) {
        decode_everything(&input);
    }

    #[test]
    fn bytes_that_look_like_amqp_are_harmless(input in vec(prop_oneof![
        Just(0x00_u8), Just(0x53), 0x10..=0x18_u8, 0x23..=0x34_u8, 0x70..=0x78_u8, 0x40..=0x45_u8, Just(0xc0),
        Just(0xc1), Just(0xd0), Just(0xe0), Just(0xf0), Just(0xa0), Just(0xa1), Just(0xa3), 0..=8_u8,
    ], 0..64)) {
        decode_everything(&input);
    }

    #[test]
    fn changed_bytes_are_harmless(
        performative in performative(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&performative);
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        decode_everything(&bytes);
    }
}
