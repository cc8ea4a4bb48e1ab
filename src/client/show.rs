//! How is a message shown on a terminal? Text as it is, other values in a notation close to JSON, bytes that are no text
//! in hexadecimal.
//!
//! Invariants: what a message holds never controls the terminal (control characters but tab and line feed are escaped);
//! a message that cannot be read is shown as such. Output is bounded by the message's size and `NESTING_MAX`.

use std::fmt::Write;

use corelane_wire::amqp10::{BodyKind, DecodeError, Descriptor, MessageId, Properties, Sections, Value};

/// Bytes of binary data that are shown in hexadecimal.
const HEX_BYTES_MAX: usize = 64;
/// Values within values that are shown.
const NESTING_MAX: usize = 8;

/// The body, for one line or several.
pub fn show_body(message: &[u8]) -> String {
    let mut text = String::new();
    if let Err(error) = write_body(&mut text, message) {
        let _ = write!(text, "<unreadable message: {error}>");
    }
    text
}

/// Header, message annotations, properties and application properties, a line each.
pub fn show_details(message: &[u8]) -> String {
    let mut text = String::new();
    if let Err(error) = write_details(&mut text, message) {
        let _ = writeln!(text, "  <unreadable: {error}>");
    }
    text
}

/// One value.
pub(super) fn show_value(value: &Value<'_>) -> String {
    let mut text = String::new();
    if let Err(error) = write_value(&mut text, value, 0) {
        let _ = write!(text, "<unreadable: {error}>");
    }
    text
}

fn write_body(text: &mut String, message: &[u8]) -> Result<(), DecodeError> {
    let sections = Sections::scan(message)?;
    let Some(kind) = sections.body_kind else { return Ok(()) };
    for (index, value) in sections.body_values(message).enumerate() {
        let value = value?;
        match (kind, value) {
            (BodyKind::Data, Value::Binary(bytes)) => write_data(text, bytes),
            (BodyKind::Value, Value::String(string)) => write_plain(text, string),
            (_, value) => {
                if index > 0 {
                    text.push('\n');
                }
                write_value(text, &value, 0)?;
            }
        }
    }
    Ok(())
}

fn write_details(text: &mut String, message: &[u8]) -> Result<(), DecodeError> {
    let sections = Sections::scan(message)?;
    let header = sections.header(message)?;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name}: {value}");
    };
    if sections.header.is_present() {
        line("durable", header.durable.to_string());
        line("priority", header.priority.to_string());
        line("delivery-count", header.delivery_count.to_string());
        if let Some(ttl) = header.ttl {
            line("ttl", format!("{ttl}ms"));
        }
    }
    for pair in sections.message_annotations.map(message)? {
        let (key, value) = pair?;
        let mut shown = String::new();
        write_value(&mut shown, &value, 0)?;
        let name = key.as_str().map_or_else(|| show_value(&key), escape);
        line(&format!("annotation {name}"), shown);
    }
    for (name, value) in named_properties(&sections.properties(message)?.decode()?) {
        line(name, value);
    }
    for pair in sections.application_properties.map(message)? {
        let (key, value) = pair?;
        let mut shown = String::new();
        write_value(&mut shown, &value, 0)?;
        let name = key.as_str().map_or_else(String::new, escape);
        line(&format!("property {name}"), shown);
    }
    Ok(())
}

/// The properties that are there, with their names in the specification.
fn named_properties(properties: &Properties<'_>) -> Vec<(&'static str, String)> {
    let id = |id: &MessageId<'_>| match id {
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(bytes) => show_uuid(bytes),
        MessageId::Binary(bytes) => hex(bytes),
        MessageId::String(string) => escape(string),
    };
    let string = |text: &&str| escape(text);
    let mut named = Vec::new();
    let mut add = |name, value: Option<String>| named.extend(value.map(|value| (name, value)));
    add("message-id", properties.message_id.as_ref().map(id));
    add("user-id", properties.user_id.map(hex));
    add("to", properties.to.as_ref().map(string));
    add("subject", properties.subject.as_ref().map(string));
    add("reply-to", properties.reply_to.as_ref().map(string));
    add("correlation-id", properties.correlation_id.as_ref().map(id));
    add("content-type", properties.content_type.as_ref().map(string));
    add("content-encoding", properties.content_encoding.as_ref().map(string));
    add("absolute-expiry-time", properties.absolute_expiry_time.map(|time| time.to_string()));
    add("creation-time", properties.creation_time.map(|time| time.to_string()));
    add("group-id", properties.group_id.as_ref().map(string));
    add("group-sequence", properties.group_sequence.map(|number| number.to_string()));
    add("reply-to-group-id", properties.reply_to_group_id.as_ref().map(string));
    named
}

/// Data that is text is shown as text.
fn write_data(text: &mut String, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(string) if !string.chars().any(is_control) => text.push_str(string),
        Ok(_) | Err(_) => {
            let _ = write!(text, "<{} bytes: {}>", bytes.len(), hex(bytes));
        }
    }
}

fn write_plain(text: &mut String, string: &str) {
    for c in string.chars() {
        if is_control(c) {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
}

fn write_value(text: &mut String, value: &Value<'_>, depth: usize) -> Result<(), DecodeError> {
    if depth > NESTING_MAX {
        text.push('…');
        return Ok(());
    }
    match value {
        Value::Null => text.push_str("null"),
        Value::String(string) => write_quoted(text, string),
        Value::Symbol(symbol) => write_plain(text, symbol),
        Value::Binary(bytes) => write_data(text, bytes),
        Value::Uuid(bytes) => text.push_str(&show_uuid(bytes)),
        Value::Char(c) => write_quoted(text, c.encode_utf8(&mut [0; 4])),
        Value::Decimal32(bytes) => write_decimal(text, bytes),
        Value::Decimal64(bytes) => write_decimal(text, bytes),
        Value::Decimal128(bytes) => write_decimal(text, bytes),
        Value::List(list) => write_items(text, list.iter(), depth)?,
        Value::Array(array) => write_items(text, array.iter(), depth)?,
        Value::Map(map) => {
            text.push('{');
            for (index, pair) in map.iter().enumerate() {
                let (key, value) = pair?;
                text.push_str(if index > 0 { ", " } else { "" });
                write_value(text, &key, depth + 1)?;
                text.push_str(": ");
                write_value(text, &value, depth + 1)?;
            }
            text.push('}');
        }
        Value::Described(described) => {
            match described.descriptor()? {
                Descriptor::Code(code) => {
                    let _ = write!(text, "@{code:#x} ");
                }
                Descriptor::Symbol(symbol) => {
                    let _ = write!(text, "@{} ", escape(symbol));
                }
                Descriptor::Other(_) => text.push_str("@? "),
            }
            write_value(text, &described.value()?, depth + 1)?;
        }
        scalar => write_scalar(text, scalar),
    }
    Ok(())
}

fn write_scalar(text: &mut String, value: &Value<'_>) {
    let shown = match value {
        Value::Boolean(value) => value.to_string(),
        Value::Ubyte(value) => value.to_string(),
        Value::Ushort(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Ulong(value) => value.to_string(),
        Value::Byte(value) => value.to_string(),
        Value::Short(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Long(value) | Value::Timestamp(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        other => format!("{other:?}"),
    };
    text.push_str(&shown);
}

fn write_items<'a>(
    text: &mut String,
    items: impl Iterator<Item = Result<Value<'a>, DecodeError>>,
    depth: usize,
) -> Result<(), DecodeError> {
    text.push('[');
    for (index, item) in items.enumerate() {
        text.push_str(if index > 0 { ", " } else { "" });
        write_value(text, &item?, depth + 1)?;
    }
    text.push(']');
    Ok(())
}

fn write_quoted(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c if is_control(c) => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    text.push('"');
}

fn write_decimal(text: &mut String, bytes: &[u8]) {
    let _ = write!(text, "<decimal {}>", hex(bytes));
}

fn escape(string: &str) -> String {
    let mut text = String::new();
    write_plain(&mut text, string);
    text.replace('\n', "\\n")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in &bytes[..bytes.len().min(HEX_BYTES_MAX)] {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > HEX_BYTES_MAX {
        text.push('…');
    }
    text
}

fn show_uuid(bytes: &[u8; 16]) -> String {
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

fn is_control(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use corelane_wire::amqp10::{
        Encode, Header, ListWriter, MapWriter, Raw, Reader, write_amqp_value, write_application_properties,
        write_data, write_message_annotations,
    };

    use super::*;

    fn value(value: &impl Encode) -> Vec<u8> {
        let mut message = Vec::new();
        write_amqp_value(&mut message, value);
        message
    }

    fn data(bytes: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        write_data(&mut message, bytes);
        message
    }

    #[test]
    fn bodies() {
        let check =
            |message: Vec<u8>, expected: &str| assert_eq!(show_body(&message), expected, "{message:?}");
        check(value(&"hello"), "hello");
        check(value(&"two\nlines"), "two\nlines");
        check(value(&"\u{1b}[2Jgone"), "\\u{1b}[2Jgone");
        check(value(&7u32), "7");
        check(value(&Value::Null), "null");
        check(value(&Value::Boolean(true)), "true");
        check(value(&Value::Double(1.5)), "1.5");
        check(value(&Value::Uuid([0xab; 16])), "abababab-abab-abab-abab-abababababab");
        check(data(b"plain bytes"), "plain bytes");
        check(data(&[0, 1, 0xff]), "<3 bytes: 0001ff>");
        check(data(&[0; 100]), &format!("<100 bytes: {}…>", "00".repeat(64)));
        check(Vec::new(), "");
        assert!(show_body(&[1, 2, 3]).starts_with("<unreadable message: "));
    }

    #[test]
    fn compound_values() {
        let mut bytes = Vec::new();
        let mut list = ListWriter::new(&mut bytes);
        list.field(&1u32);
        list.field(&"a \"b\"");
        list.finish();
        let list = Raw::read(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(show_body(&value(&list)), r#"[1, "a \"b\""]"#);
        let mut bytes = Vec::new();
        let mut map = MapWriter::new(&mut bytes);
        map.pair(&"k", &list);
        map.finish();
        let map = Raw::read(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(show_body(&value(&map)), r#"{"k": [1, "a \"b\""]}"#);
    }

    #[test]
    fn details() {
        let mut message = Vec::new();
        Header { priority: 7, ttl: Some(5), ..Header::default() }.encode(&mut message);
        write_message_annotations(&mut message, &[("x-opt-sender", Value::String("alice"))]);
        let properties = Properties {
            message_id: Some(MessageId::Ulong(1)),
            subject: Some("s\n"),
            ..Properties::default()
        };
        properties.encode(&mut message);
        write_application_properties(
            &mut message,
            &[("colour", Value::String("red")), ("n", Value::Int(-1))],
        );
        let expected = "  durable: false\n  priority: 7\n  delivery-count: 0\n  ttl: 5ms\n  annotation x-opt-sender: \"alice\"\n  message-id: 1\n  \
                        subject: s\\n\n  property colour: \"red\"\n  property n: -1\n";
        assert_eq!(show_details(&message), expected);
    }
}
