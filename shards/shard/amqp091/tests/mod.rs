//! Does a message say in each version what it says in the other one?

#![allow(unsafe_code, reason = "an allocator that counts is an unsafe impl")]

mod allocations;
mod changes;
mod random;
mod received;
mod sent;

use corelane_wire::amqp10::{Map, Sections, Value};
use corelane_wire::amqp091::{FieldValue, Properties, PropertyFields, ShortStr, Table, TableWriter};

use super::published::Head;
use super::{Addition, BasicMessage, Published, Translator};
use crate::buffers::Buffers;
use crate::message::Message;

fn short(text: &str) -> ShortStr<'_> {
    ShortStr::new(text.as_bytes()).expect("short")
}

/// The bytes of a table that `write` writes.
fn table(write: impl FnOnce(&mut TableWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut TableWriter::new(&mut bytes));
    bytes
}

fn encoded(properties: &Properties<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    properties.encode(&mut bytes);
    bytes
}

/// A message as it is stored that was published so.
fn publish(exchange: &str, routing_key: &str, properties: &[u8], body: &[u8]) -> Message {
    publish_names(short(exchange), short(routing_key), properties, body)
}

fn publish_names(
    exchange: ShortStr<'_>,
    routing_key: ShortStr<'_>,
    properties: &[u8],
    body: &[u8],
) -> Message {
    let published = Published::read(PropertyFields::new(properties)).expect("properties");
    let mut bytes = Vec::new();
    let head: Head = published.write_head(exchange, routing_key, body.len(), &mut bytes);
    bytes.extend_from_slice(body);
    head.complete(&mut bytes);
    Message::new(bytes, 0).expect("a message")
}

/// With these properties, to an exchange.
fn published(properties: &Properties<'_>) -> Message {
    publish("orders", "new", &encoded(properties), b"body")
}

fn with_headers(headers: &[u8]) -> Message {
    published(&Properties { headers: Some(Table::new(headers)), ..Properties::default() })
}

const PROPERTIES_MAX: usize = 100_000;

fn addition(delivery_count: u32) -> Addition<'static> {
    Addition { queue: "q", delivery_count, properties_bytes_max: PROPERTIES_MAX }
}

/// Where they are, the fields and pairs, one a line.
fn shown(message: &Message) -> String {
    let bytes = message.bytes();
    let sections = Sections::scan(bytes).expect("sections");
    let header = sections.header(bytes).expect("a header");
    let mut lines = vec![format!(
        "header: durable {}, priority {}, ttl {:?}",
        header.durable, header.priority, header.ttl
    )];
    let map = |name: &str, map: Map<'_>| -> Vec<String> {
        map.iter()
            .map(|pair| pair.expect("a pair"))
            .map(|(key, value)| format!("{name}: {} = {}", show(&key), show(&value)))
            .collect()
    };
    lines.extend(map("annotation", sections.message_annotations.map(bytes).expect("a map")));
    if sections.properties.is_present() {
        let properties = sections.properties(bytes).expect("properties");
        let properties = format!("{:?}", properties.decode().expect("properties"));
        let given = properties.trim_start_matches("Properties { ").trim_end_matches(" }").split(", ");
        lines
            .extend(given.filter(|field| !field.ends_with("None")).map(|field| format!("property: {field}")));
    }
    lines.extend(map("application", sections.application_properties.map(bytes).expect("a map")));
    for value in sections.body_values(bytes) {
        lines.push(format!("body: {}", show(&value.expect("a body"))));
    }
    lines.join("\n")
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::List(list) => {
            let values: Vec<_> = list.iter().map(|value| show(&value.expect("a value"))).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Array(array) => {
            let values: Vec<_> = array.iter().map(|value| show(&value.expect("a value"))).collect();
            format!("array[{}]", values.join(", "))
        }
        Value::Map(map) => {
            let pairs = map.iter().map(|pair| pair.expect("a pair"));
            let pairs: Vec<_> =
                pairs.map(|(key, value)| format!("{}: {}", show(&key), show(&value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Binary(bytes) => format!("Binary({})", bytes.escape_ascii()),
        value => format!("{value:?}"),
    }
}

/// What a 0-9-1 consumer gets, one property or header a line.
fn shown_basic(basic: &BasicMessage<'_>) -> String {
    let properties = basic.properties.decode().expect("properties");
    let mut lines = vec![format!("to: {} {}", basic.exchange, basic.routing_key)];
    let text = |name: &str, value: Option<ShortStr<'_>>| value.map(|value| format!("{name}: {value}"));
    lines.extend(text("content-type", properties.content_type));
    lines.extend(text("content-encoding", properties.content_encoding));
    lines.extend(properties.delivery_mode.map(|mode| format!("delivery-mode: {mode}")));
    lines.extend(properties.priority.map(|priority| format!("priority: {priority}")));
    lines.extend(text("correlation-id", properties.correlation_id));
    lines.extend(text("reply-to", properties.reply_to));
    lines.extend(text("expiration", properties.expiration));
    lines.extend(text("message-id", properties.message_id));
    lines.extend(properties.timestamp.map(|timestamp| format!("timestamp: {timestamp}")));
    lines.extend(text("type", properties.kind));
    lines.extend(text("user-id", properties.user_id));
    lines.extend(text("app-id", properties.app_id));
    for (name, value) in properties.headers.unwrap_or_default().iter().map(|pair| pair.expect("a pair")) {
        lines.push(format!("header: {name} = {}", show_field(&value)));
    }
    lines.push(format!("body: {}", basic.body.escape_ascii()));
    lines.join("\n")
}

fn show_field(value: &FieldValue<'_>) -> String {
    match value {
        FieldValue::Array(array) => {
            let values: Vec<_> = array.iter().map(|value| show_field(&value.expect("a value"))).collect();
            format!("[{}]", values.join(", "))
        }
        FieldValue::Table(table) => {
            let pairs = table.iter().map(|pair| pair.expect("a pair"));
            let pairs: Vec<_> =
                pairs.map(|(name, value)| format!("{name}: {}", show_field(&value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        FieldValue::LongString(text) => format!("{:?}", String::from_utf8_lossy(text)),
        FieldValue::Bytes(bytes) => format!("Bytes({})", bytes.escape_ascii()),
        value => format!("{value:?}"),
    }
}

fn check(given: &str, expect: &str) {
    let lines = |text: &str| {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(lines(given), lines(expect));
}

/// What a consumer of 0-9-1 gets.
fn delivered(message: &Message, delivery_count: u32) -> String {
    shown_basic(&Translator::default().basic(message, addition(delivery_count)))
}

/// Writes a section.
type Section<'a> = &'a dyn Fn(&mut Vec<u8>);

/// What was sent in 1.0, by these sections one after the other.
fn receive(sections: &[Section<'_>]) -> Message {
    let mut bytes = Vec::new();
    sections.iter().for_each(|section| section(&mut bytes));
    Message::received(&mut Buffers::new(), bytes, 0).expect("a message")
}
