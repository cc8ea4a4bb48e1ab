//! How does a 0-9-1 consumer get a message? As it was published, if it was published in 0-9-1; else translated, at its delivery.

use std::borrow::Cow;

use corelane_wire::amqp10::{BodyKind, List, Map, Property, PropertyFields as Fields, Sections, Value};
use corelane_wire::amqp091::{
    FieldValue, Properties, PropertyFields, SHORT_STRING_SIZE_MAX, ShortStr, Table,
};
use uuid::Uuid;

use super::headers::Headers;
use super::values::seconds;
use super::{AMQP10_TYPE, BasicMessage, DEATHS, EXCHANGE, ROUTING_KEY, TYPE, text_of};
use crate::address::Address;
use crate::message::Content;

const DELIVERY_COUNT: ShortStr<'static> = ShortStr::literal("x-delivery-count");

/// Memory for what is translated, used again.
#[derive(Debug, Default)]
pub(crate) struct Translator {
    headers: Vec<u8>,
    properties: Vec<u8>,
    body: Vec<u8>,
}

/// What a message's delivery adds to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition<'a> {
    /// Its queue: the routing key of a message that has none.
    pub(crate) queue: &'a str,
    /// How often it has come back, for the header `x-delivery-count`; 0: it is left out.
    pub(crate) delivery_count: u32,
    /// Bytes of properties that go into a content header. Headers that do not fit are left out of what is translated.
    pub(crate) properties_bytes_max: usize,
}

impl Translator {
    /// A message as a 0-9-1 consumer gets it.
    #[inline]
    pub(crate) fn basic<'a>(&'a mut self, message: &'a Content, addition: Addition<'a>) -> BasicMessage<'a> {
        match message.as_0_9_1() {
            Some(basic) if addition.delivery_count == 0 => basic,
            Some(basic) => self.counted(basic, addition),
            None => self.translated(message, addition),
        }
    }

    /// A message of 0-9-1 that has come back.
    fn counted<'a>(&'a mut self, basic: BasicMessage<'a>, addition: Addition<'_>) -> BasicMessage<'a> {
        let Ok(mut properties) = basic.properties.decode() else { return basic };
        self.headers.clear();
        let mut headers = Headers::new(&mut self.headers, addition.properties_bytes_max);
        headers.copy(DELIVERY_COUNT, FieldValue::Int64(addition.delivery_count.into()));
        for (name, value) in properties.headers.unwrap_or_default().iter().flatten() {
            if name != DELIVERY_COUNT {
                headers.copy(name, value);
            }
        }
        properties.headers = Some(Table::new(&self.headers));
        self.properties.clear();
        properties.encode(&mut self.properties);
        if self.properties.len() > addition.properties_bytes_max {
            return basic;
        }
        BasicMessage { properties: PropertyFields::new(&self.properties), ..basic }
    }

    fn translated<'a>(&'a mut self, message: &'a Content, addition: Addition<'a>) -> BasicMessage<'a> {
        let bytes = message.bytes();
        // It was scanned when it came.
        let sections = Sections::scan(bytes).unwrap_or_default();
        let annotations = sections.message_annotations.map(bytes).unwrap_or_default();
        let annotation = |name| annotations.find(name).ok().flatten();
        let name = |name| annotation(name).and_then(|value| text_of(&value)).and_then(ShortStr::new);
        self.write_properties(bytes, &sections, annotations, addition);
        let body = self.body_of(bytes, &sections);
        BasicMessage {
            exchange: name(EXCHANGE).unwrap_or_default(),
            routing_key: name(ROUTING_KEY).unwrap_or_else(|| ShortStr::cut(addition.queue)),
            properties: PropertyFields::new(&self.properties),
            body: body.unwrap_or(&self.body),
        }
    }

    fn write_properties(
        &mut self,
        bytes: &[u8],
        sections: &Sections,
        annotations: Map<'_>,
        addition: Addition<'_>,
    ) {
        let given = sections.properties(bytes).unwrap_or_default();
        let [message_id, correlation_id] =
            [Property::MessageId, Property::CorrelationId].map(|property| field(&given, property));
        let (message_id_text, correlation_id_text) = (id_text(&message_id), id_text(&correlation_id));
        let reply_to = field(&given, Property::ReplyTo).as_str().map(reply_to);
        let header = HeaderFields::read(bytes, sections);
        // A dead letter has had its time.
        let has_died = annotations.find(DEATHS).is_ok_and(|deaths| deaths.is_some());
        let expiration = header.ttl.filter(|_| !has_died).map(|ttl| ttl.to_string());
        let kind = annotations.find(TYPE).ok().flatten();
        let mut properties = Properties {
            content_type: field(&given, Property::ContentType).as_str().and_then(short_str),
            content_encoding: field(&given, Property::ContentEncoding).as_str().and_then(short_str),
            delivery_mode: Some(if header.durable { 2 } else { 1 }),
            priority: header.priority,
            correlation_id: correlation_id_text.as_deref().and_then(short_str),
            reply_to: reply_to.as_deref().and_then(short_str),
            expiration: expiration.as_deref().and_then(short_str),
            message_id: message_id_text.as_deref().and_then(short_str),
            timestamp: match field(&given, Property::CreationTime) {
                Value::Timestamp(at) => Some(seconds(at)),
                _ => None,
            },
            kind: match sections.body_kind {
                Some(BodyKind::Value | BodyKind::Sequence) => Some(ShortStr::literal(AMQP10_TYPE)),
                Some(BodyKind::Data) | None => kind.and_then(|kind| text_of(&kind)).and_then(ShortStr::new),
            },
            user_id: match field(&given, Property::UserId) {
                Value::Binary(user) => std::str::from_utf8(user).ok().and_then(short_str),
                _ => None,
            },
            app_id: field(&given, Property::GroupId).as_str().and_then(short_str),
            ..Properties::default()
        };
        self.properties.clear();
        properties.encode(&mut self.properties);
        self.headers.clear();
        // The size of a table comes with it.
        let headers_bytes_max = addition.properties_bytes_max.saturating_sub(self.properties.len() + 4);
        let mut headers = Headers::new(&mut self.headers, headers_bytes_max);
        if addition.delivery_count > 0 {
            headers.value("x-delivery-count", &Value::Long(addition.delivery_count.into()));
        }
        if message_id_text.is_none() && message_id != Value::Null {
            headers.value("x-message-id", &message_id);
        }
        if correlation_id_text.is_none() && correlation_id != Value::Null {
            headers.value("x-correlation-id", &correlation_id);
        }
        write_headers(bytes, sections, annotations, &mut headers);
        if !self.headers.is_empty() {
            properties.headers = Some(Table::new(&self.headers));
            self.properties.clear();
            properties.encode(&mut self.properties);
        }
    }

    /// Data is one or several pieces; these are put together, and stand in `self.body` then. Anything else stays as it is encoded, with
    /// the footer behind it.
    fn body_of<'a>(&mut self, bytes: &'a [u8], sections: &Sections) -> Option<&'a [u8]> {
        if !matches!(sections.body_kind, Some(BodyKind::Data)) {
            let start = sections.body.range().start;
            return Some(if sections.body_kind.is_some() { &bytes[start..] } else { &[] });
        }
        let mut pieces = sections.body_values(bytes).flatten().filter_map(|value| match value {
            Value::Binary(piece) => Some(piece),
            _ => None,
        });
        let first = pieces.next().unwrap_or_default();
        let Some(second) = pieces.next() else { return Some(first) };
        self.body.clear();
        for piece in [first, second].into_iter().chain(pieces) {
            self.body.extend_from_slice(piece);
        }
        None
    }
}

/// Annotations come first, as RabbitMQ has them.
fn write_headers(bytes: &[u8], sections: &Sections, annotations: Map<'_>, headers: &mut Headers<'_>) {
    for (key, value) in annotations.iter().flatten() {
        if let Value::Symbol(name) = key {
            headers.annotation(name, &value);
        }
    }
    let application = sections.application_properties.map(bytes).unwrap_or_default();
    for (key, value) in application.iter().flatten() {
        if let Value::String(name) = key {
            headers.value(name, &value);
        }
    }
}

/// What the header says, and what it does not say.
struct HeaderFields {
    durable: bool,
    priority: Option<u8>,
    ttl: Option<u32>,
}

impl HeaderFields {
    fn read(bytes: &[u8], sections: &Sections) -> Self {
        let mut fields = match Value::decode(sections.header.value(bytes)) {
            Ok(Value::List(list)) => list,
            Ok(_) | Err(_) => List::default(),
        }
        .into_iter()
        .flatten();
        HeaderFields {
            durable: fields.next() == Some(Value::Boolean(true)),
            priority: match fields.next() {
                Some(Value::Ubyte(priority)) => Some(priority),
                _ => None,
            },
            ttl: match fields.next() {
                // None is meant by it.
                Some(Value::Uint(0)) => None,
                Some(Value::Uint(ttl)) => Some(ttl),
                _ => None,
            },
        }
    }
}

fn field<'a>(fields: &Fields<'a>, property: Property) -> Value<'a> {
    fields.field(property).ok().flatten().unwrap_or(Value::Null)
}

fn short_str(text: &str) -> Option<ShortStr<'_>> {
    ShortStr::new(text.as_bytes())
}

/// An identifier as a property of 0-9-1. What has no such text is a header.
fn id_text<'a>(id: &Value<'a>) -> Option<Cow<'a, str>> {
    match *id {
        Value::Ulong(id) => Some(id.to_string().into()),
        Value::Uuid(id) => Some(Uuid::from_bytes(id).urn().to_string().into()),
        Value::String(id) if id.len() <= SHORT_STRING_SIZE_MAX => Some(id.into()),
        _ => None,
    }
}

/// Where answers go is a queue's name in 0-9-1.
fn reply_to(address: &str) -> Cow<'_, str> {
    match Address::parse(address) {
        Address::Queue(name) | Address::Name(name) => name,
        Address::Topic(_) | Address::Exchange { .. } | Address::Unsupported | Address::Invalid => {
            Cow::Borrowed(address)
        }
    }
}
