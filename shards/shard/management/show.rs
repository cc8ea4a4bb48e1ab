//! What does an operator see of a message?
//!
//! Producers are believed as little here as elsewhere: sections are passed on without a look at what is in them, so any value in them
//! may be none. Invariant: what is shown is well-formed, all the way down. What is not is shown as [`UNREADABLE`], under its name or,
//! if that cannot be read either, its position.

use corelane_engine::{EntryState, EntryView, Place};
use corelane_wire::amqp10::{
    Encode, Map, MapWriter, Property, Raw, Reader, Section, Sections, Value, check_value,
};

use super::consumers;
use super::data::{Data, Pairs, pairs};
use super::explain::state_word;
use super::request::place_text;
use crate::Shard;
use crate::limits::PEEK_PROPERTIES_BYTES_MAX;
use crate::message::Message;

/// Stands for a value that is none.
const UNREADABLE: &str = "(cannot be read)";

impl Shard {
    pub(crate) fn show_message(
        &self,
        now: u64,
        place: Place,
        message: &Message,
        view: &EntryView,
        body_max: usize,
    ) -> Pairs {
        let holder = match view.state {
            EntryState::Acquired(holder) | EntryState::Retired(holder) => Some(holder),
            _ => None,
        };
        let property = |property| show_property(message, property);
        let mut shown = pairs![
            "place" => place_text(place),
            "state" => state_word(view.state),
            "age-us" => now.saturating_sub(message.enqueued_at),
            "holder" => holder.map(|holder| consumers::name(self.index, holder)),
            "delivery-count" => view.delivery_count,
            "acquired-count" => view.acquired_count,
            "expires-in-us" => view.expires_at.map(|at| at.saturating_sub(now)),
            "group-owner" => view.group_owner.map(|owner| consumers::name(self.index, owner)),
            "priority" => u32::from(message.priority()),
            "size" => message.bytes().len(),
            "message-id" => property(Property::MessageId),
            "correlation-id" => property(Property::CorrelationId),
            "subject" => property(Property::Subject),
            "to" => property(Property::To),
            "reply-to" => property(Property::ReplyTo),
            "group-id" => property(Property::GroupId),
        ];
        let bytes = message.bytes();
        let Ok(sections) = Sections::scan(bytes) else { return shown };
        let (body, cut) = show_body(sections, bytes, body_max);
        shown.extend(pairs![
            "message-annotations" => show_map(&sections.message_annotations, bytes),
            "application-properties" => show_map(&sections.application_properties, bytes),
            "body" => body,
            "body-cut" => cut,
        ]);
        shown
    }
}

/// A property of a message, unless it is too large.
pub(crate) fn show_property(message: &Message, property: Property) -> Data {
    let value = match message.read_property(property) {
        Ok(value) => show_value(&value.unwrap_or(Value::Null)),
        Err(_) => Data::from(UNREADABLE),
    };
    if value.size() <= PEEK_PROPERTIES_BYTES_MAX { value } else { Data::Null }
}

fn show_value(value: &Value<'_>) -> Data {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    match check_value(&bytes) {
        Ok(()) => Data::Encoded(bytes.into()),
        Err(_) => Data::from(UNREADABLE),
    }
}

/// A section that is a map, unless it is too large.
fn show_map(section: &Section, message: &[u8]) -> Data {
    let encoded = section.value(message);
    if !section.is_present() || encoded.len() > PEEK_PROPERTIES_BYTES_MAX {
        return Data::Null;
    }
    match check_value(encoded) {
        Ok(()) => Data::Encoded(encoded.into()),
        Err(_) => section.map(message).map_or(Data::from(UNREADABLE), |map| readable_pairs(&map)),
    }
}

/// What can be read of a map that is not well-formed.
fn readable_pairs(map: &Map<'_>) -> Data {
    let is_value = |raw: &Raw<'_>| check_value(raw.bytes()).is_ok();
    let mut bytes = Vec::new();
    let mut shown = MapWriter::new(&mut bytes);
    let mut rest = Reader::new(map.elements());
    for position in 1..=map.len() {
        let pair = Raw::read(&mut rest).and_then(|key| Ok((key, Raw::read(&mut rest)?)));
        let Ok((key, value)) = pair else {
            // Where it ends is not known, so neither is where the next one begins.
            shown.pair(&&*format!("(position {position} and behind)"), &UNREADABLE);
            break;
        };
        match (is_value(&key), is_value(&value)) {
            (true, true) => shown.pair(&key, &value),
            (true, false) => shown.pair(&key, &UNREADABLE),
            (false, true) => shown.pair(&&*format!("(position {position})"), &value),
            (false, false) => shown.pair(&&*format!("(position {position})"), &UNREADABLE),
        }
    }
    shown.finish();
    // It has become longer with each of them.
    if bytes.len() <= 2 * PEEK_PROPERTIES_BYTES_MAX { Data::Encoded(bytes.into()) } else { UNREADABLE.into() }
}

/// A body's first part: text as text, data as bytes; and whether something is left out.
fn show_body(sections: Sections, bytes: &[u8], body_max: usize) -> (Data, bool) {
    let mut values = sections.body_values(bytes);
    let first = match values.next() {
        None => return (Data::Null, false),
        Some(Err(_)) => return (Data::from(UNREADABLE), true),
        Some(Ok(first)) => first,
    };
    let more = values.next().is_some();
    match first {
        Value::String(text) => {
            let end = text.floor_char_boundary(body_max);
            (Data::text(text[..end].to_owned()), more || end < text.len())
        }
        Value::Binary(data) => {
            let end = data.len().min(body_max);
            (Data::encoded(&Value::Binary(&data[..end])), more || end < data.len())
        }
        other => match show_value(&other) {
            Data::Encoded(bytes) if bytes.len() > body_max => (Data::Null, true),
            shown @ Data::Encoded(_) => (shown, more),
            unreadable => (unreadable, true),
        },
    }
}
