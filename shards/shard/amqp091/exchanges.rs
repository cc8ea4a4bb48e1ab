//! How do channels declare and delete exchanges, and what do exchanges read of messages?
//!
//! The channel's shard proposes the change, and answers when all shards have it (`topology`).

use corelane_engine::exchanges::{
    Arguments, HeaderReader, HeaderValue, OwnedValue, Property as RoutedProperty,
};
use corelane_wire::amqp10::{Map, Property, Value};
use corelane_wire::amqp091::{DecodeError, FieldValue, Table};

use crate::message::Message;

/// The arguments of an exchange or a binding, as they came.
pub(crate) fn arguments_of(table: Table<'_>) -> Result<Arguments, DecodeError> {
    let mut values: Vec<(Box<str>, OwnedValue)> = Vec::new();
    for pair in table {
        let (name, value) = pair?;
        // A name that is no text is nobody's.
        if let Some(name) = name.as_str() {
            values.push((name.into(), owned(header_value(&value))));
        }
    }
    Ok(Arguments::new(table.bytes(), values))
}

fn header_value<'a>(value: &FieldValue<'a>) -> HeaderValue<&'a [u8]> {
    match *value {
        FieldValue::Void => HeaderValue::Void,
        FieldValue::Boolean(value) => HeaderValue::Boolean(value),
        FieldValue::Int8(value) => HeaderValue::Integer(value.into()),
        FieldValue::Uint8(value) => HeaderValue::Integer(value.into()),
        FieldValue::Int16(value) => HeaderValue::Integer(value.into()),
        FieldValue::Uint16(value) => HeaderValue::Integer(value.into()),
        FieldValue::Int32(value) => HeaderValue::Integer(value.into()),
        FieldValue::Uint32(value) => HeaderValue::Integer(value.into()),
        FieldValue::Int64(value) => HeaderValue::Integer(value.into()),
        FieldValue::Timestamp(seconds) => HeaderValue::Integer(seconds.into()),
        FieldValue::Float(value) => HeaderValue::Float(value.into()),
        FieldValue::Double(value) => HeaderValue::Float(value),
        FieldValue::Decimal { scale, value } => HeaderValue::Decimal { scale, value },
        FieldValue::LongString(bytes) | FieldValue::Bytes(bytes) => HeaderValue::Bytes(bytes),
        FieldValue::Array(array) => HeaderValue::Array(array.bytes()),
        FieldValue::Table(table) => HeaderValue::Table(table.bytes()),
    }
}

fn owned(value: HeaderValue<&[u8]>) -> OwnedValue {
    match value {
        HeaderValue::Void => HeaderValue::Void,
        HeaderValue::Boolean(value) => HeaderValue::Boolean(value),
        HeaderValue::Integer(value) => HeaderValue::Integer(value),
        HeaderValue::Float(value) => HeaderValue::Float(value),
        HeaderValue::Decimal { scale, value } => HeaderValue::Decimal { scale, value },
        HeaderValue::Bytes(bytes) => HeaderValue::Bytes(bytes.into()),
        HeaderValue::Array(bytes) => HeaderValue::Array(bytes.into()),
        HeaderValue::Table(bytes) => HeaderValue::Table(bytes.into()),
    }
}

/// A value of a message of 1.0; compounds are none.
fn value_of<'a>(value: &Value<'a>) -> Option<HeaderValue<&'a [u8]>> {
    Some(match *value {
        Value::Null => HeaderValue::Void,
        Value::Boolean(value) => HeaderValue::Boolean(value),
        Value::Ulong(value) => HeaderValue::Integer(value.into()),
        Value::Float(value) => HeaderValue::Float(value.into()),
        Value::Double(value) => HeaderValue::Float(value),
        Value::Timestamp(at) => HeaderValue::Integer(at.div_euclid(1000).into()),
        Value::String(text) | Value::Symbol(text) => HeaderValue::Bytes(text.as_bytes()),
        Value::Binary(bytes) => HeaderValue::Bytes(bytes),
        other => HeaderValue::Integer(other.as_i64()?.into()),
    })
}

/// What exchanges read of a message that is stored: of one of 1.0 the application properties, and the annotations that begin with `x-`.
pub(crate) struct BySections<'a>(pub(crate) &'a Message);

impl HeaderReader for BySections<'_> {
    fn each_header(&self, mut visit: impl FnMut(&str, HeaderValue<&[u8]>)) {
        let annotations = Map::decode(self.0.annotations()).unwrap_or_default();
        let said = annotations.iter().flatten().filter_map(|(name, value)| Some((name.as_str()?, value)));
        let properties = self.0.application_properties();
        let set = properties.iter().flatten().filter_map(|(name, value)| Some((name.as_str()?, value)));
        for (name, value) in said.filter(|(name, _)| name.starts_with("x-")).chain(set) {
            if let Some(value) = value_of(&value) {
                visit(name, value);
            }
        }
    }

    fn property(&self, property: RoutedProperty) -> Option<HeaderValue<&[u8]>> {
        let property = match property {
            RoutedProperty::CorrelationId => Property::CorrelationId,
            RoutedProperty::MessageId => Property::MessageId,
            RoutedProperty::Timestamp => Property::CreationTime,
        };
        value_of(&self.0.property(property)).filter(|value| !matches!(value, HeaderValue::Void))
    }

    fn is_delayed(&self) -> bool {
        false
    }
}
