//! Where in a stored message is what its publisher said in 0-9-1?
//!
//! In a delivery annotation, which is never passed on (AMQP 1.0 §3.2.2): the exchange and the routing key, each a size of one byte and
//! its bytes, then the property bytes of the content header, as they came. It stands first, so that it is found without a search, and
//! whoever sends 1.0 cannot send it ([`Message::received`](crate::message::Message::received)). The keys of a `BCC` header, which nobody
//! else is to see, follow in a second one.
//!
//! Invariant: headers say what annotations say. Whoever changes the annotations of a message changes its headers by [`rewrite`].

use corelane_wire::amqp10::{List, ListWriter, Reader, Value};
use corelane_wire::amqp091::{Properties, PropertyFields, ShortStr, Table, TableWriter};

use super::headers::{Headers, annotation_of};
use super::{BCC, Change, DEATHS, EXCHANGE, ROUTING_KEY};
use crate::limits::PROPERTIES_BYTES_MAX;

/// The first annotation's name, as it is encoded.
const NAME: &[u8] = b"\xa3\x07x-0-9-1";
/// The second one's.
const BLIND_NAME: &[u8] = b"\xa3\x05x-bcc";

const HEADER: u8 = 0x70;
const DELIVERY_ANNOTATIONS: u8 = 0x71;
const DATA: u8 = 0x75;
const DATA_NARROW: u8 = 0xa0;
const DATA_WIDE: u8 = 0xb0;
const MAP_NARROW: u8 = 0xc1;
const MAP_WIDE: u8 = 0xd1;

/// A message as it was published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Original<'a> {
    pub(super) exchange: ShortStr<'a>,
    pub(super) routing_key: ShortStr<'a>,
    pub(super) properties: PropertyFields<'a>,
    /// The keys of a `BCC` header: an encoded list, or nothing.
    pub(super) blind: &'a [u8],
}

impl<'a> Original<'a> {
    /// Reads it from the sections that are not passed on. None: the message was not published in 0-9-1.
    #[inline]
    pub(super) fn read(head: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(head);
        if let [0, 0x53, HEADER, ..] = head {
            reader.take(3).ok()?;
            reader.skip_value().ok()?;
        }
        let [0, 0x53, DELIVERY_ANNOTATIONS] = reader.fixed().ok()? else { return None };
        match reader.byte().ok()? {
            MAP_NARROW => reader.take(2).ok()?,
            MAP_WIDE => reader.take(8).ok()?,
            _ => return None,
        };
        if reader.take(NAME.len()).ok()? != NAME {
            return None;
        }
        let Value::Binary(bytes) = Value::read(&mut reader).ok()? else { return None };
        let (exchange, bytes) = short_str(bytes)?;
        let (routing_key, bytes) = short_str(bytes)?;
        let properties = PropertyFields::new(bytes);
        let blind = reader.rest().strip_prefix(BLIND_NAME).unwrap_or_default();
        Some(Original { exchange, routing_key, properties, blind })
    }

    /// Appends the section.
    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (exchange, routing_key) = (self.exchange.as_bytes(), self.routing_key.as_bytes());
        let properties = self.properties.bytes();
        let size = 2 + exchange.len() + routing_key.len() + properties.len();
        let (head, head_size) = sized(DATA_NARROW, size);
        let mut pairs_size = NAME.len() + head_size + size;
        let mut count = 2;
        if !self.blind.is_empty() {
            pairs_size += BLIND_NAME.len() + self.blind.len();
            count = 4;
        }
        match u8::try_from(pairs_size + 1) {
            Ok(size) => out.extend_from_slice(&[0, 0x53, DELIVERY_ANNOTATIONS, MAP_NARROW, size, count]),
            Err(_) => {
                let [a, b, c, d] = ((pairs_size + 4) as u32).to_be_bytes();
                let head = [0, 0x53, DELIVERY_ANNOTATIONS, MAP_WIDE, a, b, c, d, 0, 0, 0, count];
                out.extend_from_slice(&head);
            }
        }
        out.extend_from_slice(NAME);
        out.extend_from_slice(&head[..head_size]);
        for name in [exchange, routing_key] {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
        }
        out.extend_from_slice(properties);
        if !self.blind.is_empty() {
            out.extend_from_slice(BLIND_NAME);
            out.extend_from_slice(self.blind);
        }
    }

    pub(super) fn blind_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let list = match Value::decode(self.blind) {
            Ok(Value::List(list)) => list,
            Ok(_) | Err(_) => List::default(),
        };
        list.into_iter().flatten().filter_map(|key| match key {
            Value::Binary(key) => Some(key),
            _ => None,
        })
    }
}

fn short_str(bytes: &[u8]) -> Option<(ShortStr<'_>, &[u8])> {
    let (size, bytes) = bytes.split_first()?;
    let (text, bytes) = bytes.split_at_checked(usize::from(*size))?;
    Some((ShortStr::new(text)?, bytes))
}

/// Constructor and size of a binary, and how many bytes they are.
fn sized(narrow: u8, size: usize) -> ([u8; 5], usize) {
    match u8::try_from(size) {
        Ok(size) => ([narrow, size, 0, 0, 0], 2),
        Err(_) => {
            let [a, b, c, d] = (size as u32).to_be_bytes();
            ([narrow + (DATA_WIDE - DATA_NARROW), a, b, c, d], 5)
        }
    }
}

/// The body of a message that was published in 0-9-1, in the sections that are passed on: the data, or what stands instead of it.
#[inline]
pub(super) fn body(onward: &[u8]) -> &[u8] {
    let mut reader = Reader::new(onward);
    while let [0, 0x53, code, ..] = *reader.rest() {
        match code {
            DATA => {
                let data = reader.take(3).and_then(|_| Value::read(&mut reader));
                return if let Ok(Value::Binary(data)) = data { data } else { &[] };
            }
            code if code > DATA => return reader.rest(),
            _ => {}
        }
        if reader.take(3).and_then(|_| reader.skip_value()).is_err() {
            break;
        }
    }
    &[]
}

/// The header, of the sections that are not passed on.
pub(super) fn header_of(head: &[u8]) -> &[u8] {
    let mut reader = Reader::new(head);
    match head {
        [0, 0x53, HEADER, ..] => reader.skip_value().unwrap_or_default(),
        _ => &[],
    }
}

/// Appends the section of a message whose annotations change.
pub(super) fn rewrite(
    original: &Original<'_>,
    change: &Change<'_, impl Fn(&Value<'_>) -> bool>,
    out: &mut Vec<u8>,
) {
    let Ok(mut properties) = original.properties.decode() else { return original.write(out) };
    let mut rewritten = *original;
    if change.is_readdressed {
        rewritten.blind = &[];
    }
    let added = change.added;
    let has_died = added.find(DEATHS).is_ok_and(|deaths| deaths.is_some());
    if has_died {
        properties.expiration = None;
    }
    let mut table = Vec::new();
    let old = properties.headers;
    properties.headers = None;
    let mut fixed = Vec::new();
    properties.encode(&mut fixed);
    let mut headers = Headers::new(&mut table, PROPERTIES_BYTES_MAX.saturating_sub(fixed.len()));
    for (name, value) in old.unwrap_or_default().iter().flatten() {
        let stays = match annotation_of(name) {
            Some(annotation) => (change.is_kept)(&Value::Symbol(annotation)),
            None => true,
        };
        if stays && !(has_died && name == "x-death") {
            headers.copy(name, value);
        }
    }
    for (key, value) in added.iter().flatten() {
        match key.as_str() {
            Some(EXCHANGE) => rewritten.exchange = name_of(&value).unwrap_or(rewritten.exchange),
            Some(ROUTING_KEY) => rewritten.routing_key = name_of(&value).unwrap_or(rewritten.routing_key),
            Some(name) => headers.annotation(name, &value),
            None => {}
        }
    }
    if old.is_some() || !table.is_empty() {
        properties.headers = Some(Table::new(&table));
    }
    fixed.clear();
    properties.encode(&mut fixed);
    rewritten.properties = PropertyFields::new(&fixed);
    rewritten.write(out);
}

fn name_of<'a>(value: &Value<'a>) -> Option<ShortStr<'a>> {
    super::text_of(value).and_then(ShortStr::new)
}

/// Splits the keys of a `BCC` header off: the properties without it, and its keys as an encoded list.
pub(super) fn split_blind(properties: &Properties<'_>, keys: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let mut table = Vec::new();
    let mut writer = TableWriter::new(&mut table);
    for (name, value) in properties.headers.unwrap_or_default().iter().flatten() {
        if name != BCC {
            writer.pair(name, value);
        }
    }
    let mut bytes = Vec::new();
    Properties { headers: Some(Table::new(&table)), ..*properties }.encode(&mut bytes);
    let mut blind = Vec::new();
    let mut list = ListWriter::new(&mut blind);
    for key in keys {
        list.field(key);
    }
    list.finish();
    (bytes, blind)
}
