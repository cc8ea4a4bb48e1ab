//! What does a message say of itself that is published in 0-9-1, and how is it stored?
//!
//! Its properties are read once, when they have come; what nobody may say is refused then. The head of the stored message is written at
//! once, before the body is there, so that the body is appended to it as it comes.

use std::fmt;

use corelane_wire::amqp10::{
    self, BodyKind, Encode, Header, MapSection, MapWriter, MessageId, Sections, write_data_head,
};
use corelane_wire::amqp091::{
    Array, DecodeError, FieldValue, Properties, PropertyFields, ReplyCode, ShortStr, Table, TableWriter,
};
use uuid::Uuid;

use super::exchanges::X_DELAY;
use super::headers::annotation_of;
use super::stored::{Original, split_blind};
use super::values::{Translated, milliseconds, text, type_name};
use super::{AMQP10_TYPE, BCC, CC, CC_HEADER, EXCHANGE, ROUTING_KEY, TYPE};

/// `delivery-mode` of a message that outlives the broker.
const PERSISTENT: u8 = 2;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refusal<'a> {
    /// Its properties cannot be read. The connection ends.
    Malformed(DecodeError),
    /// `expiration` is no number of milliseconds. The channel ends.
    Expiration { given: ShortStr<'a>, why: BadNumber<'a> },
    /// `CC` or `BCC` is no array. The channel ends.
    RoutingHeader { name: &'static str, value: FieldValue<'a> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadNumber<'a> {
    NoInteger,
    LeftOver(&'a str),
    Negative,
    TooBig,
}

impl Refusal<'_> {
    /// The reply code that the publisher is told.
    pub(crate) fn reply_code(&self) -> ReplyCode {
        match self {
            Refusal::Malformed(error) => error.reply_code(),
            Refusal::Expiration { .. } | Refusal::RoutingHeader { .. } => ReplyCode::PreconditionFailed,
        }
    }
}

/// As RabbitMQ says it.
impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(error) => error.fmt(f),
            Refusal::Expiration { given, why } => {
                write!(f, "invalid expiration '{given}': ")?;
                match why {
                    BadNumber::NoInteger => f.write_str("no_integer"),
                    BadNumber::LeftOver(rest) => write!(f, "{{leftover_string,{rest:?}}}"),
                    BadNumber::Negative => write!(f, "{{value_negative,{given}}}"),
                    BadNumber::TooBig => write!(f, "{{value_too_big,{given}}}"),
                }
            }
            Refusal::RoutingHeader { name, value } => {
                let kind = type_name(value);
                write!(f, "invalid message: {{unacceptable_type_in_header,{name:?},{kind}}}")
            }
        }
    }
}

/// Where the body of a stored message begins, of which the head is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    body_at: usize,
    /// The body claims to be sections of AMQP 1.0. If it is, it stands for itself.
    is_amqp10: bool,
}

impl Head {
    /// The stored form is whole. A body that is not what it claims to be is data.
    #[inline]
    pub(crate) fn complete(self, bytes: &mut Vec<u8>) {
        if self.is_amqp10 && !self.has_sections(bytes) {
            let mut head = Vec::new();
            write_data_head(&mut head, bytes.len() - self.body_at);
            bytes.splice(self.body_at..self.body_at, head);
        }
    }

    fn has_sections(self, bytes: &[u8]) -> bool {
        let Ok(sections) = Sections::scan(bytes) else { return false };
        matches!(sections.body_kind, Some(BodyKind::Value | BodyKind::Sequence))
            && sections.body.range().start == self.body_at
    }
}

/// The properties of a message that is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published<'a> {
    fields: PropertyFields<'a>,
    properties: Properties<'a>,
    ttl: Option<u32>,
    cc: Option<Array<'a>>,
    bcc: Option<Array<'a>>,
    has_annotations: bool,
    has_application_properties: bool,
}

impl<'a> Published<'a> {
    /// Reads all of them, and what is nested in the headers.
    #[inline]
    pub(crate) fn read(fields: PropertyFields<'a>) -> Result<Self, Refusal<'a>> {
        let properties = fields.decode().map_err(Refusal::Malformed)?;
        let mut published = Published {
            fields,
            properties,
            ttl: properties.expiration.map(expiration).transpose()?,
            cc: None,
            bcc: None,
            has_annotations: false,
            has_application_properties: false,
        };
        if let Some(headers) = properties.headers {
            published.read_headers(headers)?;
        }
        Ok(published)
    }

    fn read_headers(&mut self, headers: Table<'a>) -> Result<(), Refusal<'a>> {
        for (name, value) in headers.iter().flatten() {
            let routing = match name.as_bytes() {
                b"CC" => Some((CC_HEADER, &mut self.cc)),
                b"BCC" => Some((BCC, &mut self.bcc)),
                _ => None,
            };
            if let Some((name, keys)) = routing
                && keys.is_none()
            {
                let FieldValue::Array(array) = value else {
                    return Err(Refusal::RoutingHeader { name, value });
                };
                *keys = Some(array);
            }
            self.has_annotations |= annotation_of(name).is_some();
            self.has_application_properties |= application_property(name, &value).is_some();
        }
        Ok(())
    }

    /// The properties of the message, encoded, when its delay is taken for granted: it is not held back again wherever it goes from there.
    pub(crate) fn held_back(&self) -> Vec<u8> {
        let mut table = Vec::new();
        let mut writer = TableWriter::new(&mut table);
        for (name, value) in self.properties.headers.unwrap_or_default().iter().flatten() {
            match value.as_integer().filter(|_| name == X_DELAY) {
                Some(delay) => writer.pair(name, FieldValue::Int64(delay.saturating_neg())),
                None => writer.pair(name, value),
            }
        }
        let mut bytes = Vec::new();
        Properties { headers: Some(Table::new(&table)), ..self.properties }.encode(&mut bytes);
        bytes
    }

    /// As they are encoded.
    pub(crate) fn fields(&self) -> PropertyFields<'a> {
        self.fields
    }

    pub(crate) fn properties(&self) -> &Properties<'a> {
        &self.properties
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.properties.delivery_mode == Some(PERSISTENT)
    }

    /// The keys that the message is routed by beside its own: those of the headers `CC` and `BCC`.
    pub(crate) fn further_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        keys(self.cc).chain(keys(self.bcc))
    }

    /// Appends the stored form to an empty buffer, up to the body. Its `body_size` bytes must be appended next; [`Head::complete`] ends
    /// it.
    #[inline]
    pub(crate) fn write_head(
        &self,
        exchange: ShortStr<'_>,
        routing_key: ShortStr<'_>,
        body_size: usize,
        out: &mut Vec<u8>,
    ) -> Head {
        let header = Header {
            durable: self.is_persistent(),
            // Without one it stands behind all others, unlike a message of 1.0.
            priority: self.properties.priority.unwrap_or(0),
            // Of 0 the header would say that there is none.
            ttl: self.ttl.map(|ttl| ttl.max(1)),
            ..Header::default()
        };
        header.encode(out);
        if self.bcc.is_some() {
            self.write_without_blind(exchange, routing_key, out);
        } else {
            Original { exchange, routing_key, properties: self.fields, blind: &[] }.write(out);
        }
        self.write_annotations(exchange, routing_key, out);
        self.write_properties(out);
        if self.has_application_properties {
            self.write_application_properties(out);
        }
        let is_amqp10 = self.properties.kind.is_some_and(|kind| kind == AMQP10_TYPE);
        if !is_amqp10 {
            write_data_head(out, body_size);
        }
        Head { body_at: out.len(), is_amqp10 }
    }

    #[cold]
    fn write_without_blind(&self, exchange: ShortStr<'_>, routing_key: ShortStr<'_>, out: &mut Vec<u8>) {
        let keys: Vec<_> = keys(self.bcc).collect();
        let (properties, blind) = split_blind(&self.properties, &keys);
        let properties = PropertyFields::new(&properties);
        Original { exchange, routing_key, properties, blind: &blind }.write(out);
    }

    #[inline]
    fn write_annotations(&self, exchange: ShortStr<'_>, routing_key: ShortStr<'_>, out: &mut Vec<u8>) {
        let mut map = MapWriter::section(out, MapSection::MessageAnnotations);
        map.symbol(EXCHANGE, &text(exchange.as_bytes()));
        map.symbol(ROUTING_KEY, &text(routing_key.as_bytes()));
        if let Some(kind) = self.properties.kind {
            map.symbol(TYPE, &text(kind.as_bytes()));
        }
        if self.has_annotations {
            for (name, value) in self.properties.headers.unwrap_or_default().iter().flatten() {
                match annotation_of(name) {
                    Some(CC) => {
                        if let FieldValue::Array(_) = value {
                            map.symbol(CC, &Translated(value));
                        }
                    }
                    Some(name) => map.symbol(name, &Translated(value)),
                    None => {}
                }
            }
        }
        map.finish();
    }

    #[inline]
    fn write_properties(&self, out: &mut Vec<u8>) {
        let given = &self.properties;
        let properties = amqp10::Properties {
            message_id: given.message_id.map(id),
            user_id: given.user_id.map(ShortStr::as_bytes),
            reply_to: given.reply_to.and_then(ShortStr::as_str),
            correlation_id: given.correlation_id.map(id),
            content_type: given.content_type.and_then(ascii),
            content_encoding: given.content_encoding.and_then(ascii),
            creation_time: given.timestamp.map(milliseconds),
            group_id: given.app_id.and_then(ShortStr::as_str),
            ..amqp10::Properties::default()
        };
        if properties != amqp10::Properties::default() {
            properties.encode(out);
        }
    }

    fn write_application_properties(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::section(out, MapSection::ApplicationProperties);
        for (name, value) in self.properties.headers.unwrap_or_default().iter().flatten() {
            if let Some(name) = application_property(name, &value) {
                map.pair(&name, &Translated(value));
            }
        }
        map.finish();
    }
}

/// AMQP 1.0 §3.2.5: application properties have strings as keys, and nothing nested in their values.
fn application_property<'a>(name: ShortStr<'a>, value: &FieldValue<'_>) -> Option<&'a str> {
    if matches!(value, FieldValue::Array(_) | FieldValue::Table(_)) {
        return None;
    }
    name.as_str().filter(|name| !name.starts_with("x-") && *name != CC_HEADER && *name != BCC)
}

/// The long strings of an array of keys; others are passed over.
fn keys<'a>(array: Option<Array<'a>>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    array.unwrap_or_default().iter().flatten().filter_map(|key| match key {
        FieldValue::LongString(key) => Some(key),
        _ => None,
    })
}

fn id(given: ShortStr<'_>) -> MessageId<'_> {
    // Other forms of a UUID are plain strings.
    let urn = Some(given.as_bytes()).filter(|id| id.starts_with(b"urn:uuid:"));
    match (urn.and_then(|id| Uuid::try_parse_ascii(id).ok()), given.as_str()) {
        (Some(id), _) => MessageId::Uuid(id.into_bytes()),
        (None, Some(id)) => MessageId::String(id),
        (None, None) => MessageId::Binary(given.as_bytes()),
    }
}

fn ascii(given: ShortStr<'_>) -> Option<&str> {
    given.as_str().filter(|text| text.is_ascii())
}

/// Milliseconds in decimal digits. A sign is taken, as RabbitMQ takes it.
fn expiration(given: ShortStr<'_>) -> Result<u32, Refusal<'_>> {
    let refuse = |why| Err(Refusal::Expiration { given, why });
    let Some(text) = given.as_str() else { return refuse(BadNumber::NoInteger) };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = digits.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let digits = &digits[..digits.len() - rest.len()];
    if digits.is_empty() {
        return refuse(BadNumber::NoInteger);
    }
    if !rest.is_empty() {
        return refuse(BadNumber::LeftOver(rest));
    }
    match digits.parse::<u32>() {
        Ok(0) => Ok(0),
        _ if text.starts_with('-') => refuse(BadNumber::Negative),
        Ok(number) => Ok(number),
        Err(_) => refuse(BadNumber::TooBig),
    }
}
