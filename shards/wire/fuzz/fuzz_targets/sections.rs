//! Is every payload a message with its sections in place, or an error?

#![no_main]

use corelane_wire::amqp10::{BodyKind, Encode, Property, Sections, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    let Ok(sections) = Sections::scan(message) else { return };
    let order = [
        sections.header,
        sections.delivery_annotations,
        sections.message_annotations,
        sections.properties,
        sections.application_properties,
        sections.body,
        sections.footer,
    ];
    // The sections follow each other without a gap, from the first byte to the last.
    let mut end = 0;
    for section in order.iter().filter(|section| section.is_present()) {
        assert_eq!(section.range().start, end);
        assert!(section.bytes(message).ends_with(section.value(message)));
        end = section.range().end;
    }
    assert_eq!(end, message.len());
    assert_eq!(sections.size(), message.len());
    assert_eq!(sections.body.is_present(), sections.body_kind.is_some());

    // What is passed on reads as the same message without the sections in front.
    let onward = Sections::scan(&message[sections.onward()]).expect("a message");
    assert_eq!(onward.bare().len(), sections.bare().len());
    assert!(!onward.header.is_present() && !onward.delivery_annotations.is_present());
    let bare = Sections::scan(&message[sections.bare()]).expect("a message");
    assert_eq!(bare.bare(), 0..sections.bare().len());

    if let Ok(header) = sections.header(message) {
        let mut out = Vec::new();
        header.encode(&mut out);
        assert_eq!(Sections::scan(&out).expect("a section").header(&out), Ok(header));
    }
    if let Ok(fields) = sections.properties(message) {
        if let Ok(properties) = fields.decode() {
            let mut out = Vec::new();
            properties.encode(&mut out);
            let again = Sections::scan(&out).expect("a section").properties(&out).expect("a list");
            assert_eq!(again.decode(), Ok(properties));
            let group = fields.field(Property::GroupId).expect("well-formed");
            assert_eq!(group, properties.group_id.map(Value::String));
        }
        for property in [Property::MessageId, Property::ReplyToGroupId] {
            let _ = fields.field(property);
        }
    }
    for section in [sections.application_properties, sections.message_annotations, sections.footer] {
        let map = section.map(message);
        if let Ok(map) = map {
            for (key, _) in map.iter().flatten() {
                if let Some(key) = key.as_str() {
                    assert!(matches!(map.find(key), Ok(Some(_)) | Err(_)));
                }
            }
        }
    }
    let values: Vec<_> = sections.body_values(message).collect();
    match sections.body_kind {
        None => assert!(values.is_empty()),
        Some(BodyKind::Data) => assert!(values.iter().all(|value| matches!(value, Ok(Value::Binary(_))))),
        Some(BodyKind::Sequence) => {
            assert!(values.iter().all(|value| matches!(value, Ok(Value::List(_)) | Err(_))));
        }
        Some(BodyKind::Value) => assert_eq!(values.len(), 1),
    }
});
