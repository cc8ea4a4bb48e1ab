//! What is a value of a field table (0-9-1) in AMQP 1.0, and what is a value of AMQP 1.0 in a field table?
//!
//! | 0-9-1 | | 1.0 |
//! |---|---|---|
//! | `b` `B` `s` `u` `I` `i` `l` | ⇄ | byte, ubyte, short, ushort, int, uint, long |
//! | `t` `f` `d` `V` | ⇄ | boolean, float, double, null |
//! | `S` | ⇄ | string; binary, if it is not UTF-8 |
//! | `x` | ⇄ | binary |
//! | `T`, seconds | ⇄ | timestamp, milliseconds |
//! | `D` | ⇄ | decimal64; decimal32 too in this direction |
//! | `A` | ⇄ | list; an array too in this direction |
//! | `F` | ⇄ | map, its keys symbols (strings, binaries where they must be) |
//! | `l`; `S` of its digits beyond 2⁶³ | ← | ulong |
//! | `S` | ← | symbol, char, uuid (`urn:uuid:…`) |
//! | its value | ← | a described value |
//! | `V` | ← | other decimals, and what is nested too deep |
//!
//! What is nested in a field table was checked when it was published, and is followed all the way down. What is nested in a value of 1.0
//! was not: its writing ends where it does not fit into [`Room`].

use corelane_wire::amqp10::{DecodeError, Encode, Map, NESTING_MAX, Value};
use corelane_wire::amqp091::{Array, ArrayWriter, FieldValue, ShortStr, Table, TableWriter};
use uuid::Uuid;
use uuid::fmt::Urn;

use super::text_of;
use crate::compound::{self, compound};

/// A value of a field table, to be written as one of AMQP 1.0.
#[derive(Clone, Copy)]
pub(super) struct Translated<'a>(pub(super) FieldValue<'a>);

impl Encode for Translated<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let value = match self.0 {
            FieldValue::Void => Value::Null,
            FieldValue::Boolean(value) => Value::Boolean(value),
            FieldValue::Int8(value) => Value::Byte(value),
            FieldValue::Uint8(value) => Value::Ubyte(value),
            FieldValue::Int16(value) => Value::Short(value),
            FieldValue::Uint16(value) => Value::Ushort(value),
            FieldValue::Int32(value) => Value::Int(value),
            FieldValue::Uint32(value) => Value::Uint(value),
            FieldValue::Int64(value) => Value::Long(value),
            FieldValue::Float(value) => Value::Float(value),
            FieldValue::Double(value) => Value::Double(value),
            FieldValue::Decimal { scale, value } => Value::Decimal64(decimal64(scale, value)),
            FieldValue::Timestamp(seconds) => Value::Timestamp(milliseconds(seconds)),
            FieldValue::LongString(value) => text(value),
            FieldValue::Bytes(value) => Value::Binary(value),
            FieldValue::Array(array) => return list(out, array),
            FieldValue::Table(table) => return map(out, table),
        };
        value.encode(out);
    }
}

/// What RabbitMQ calls a value's type.
pub(super) fn type_name(value: &FieldValue<'_>) -> &'static str {
    match value {
        FieldValue::Void => "void",
        FieldValue::Boolean(_) => "bool",
        FieldValue::Int8(_) => "byte",
        FieldValue::Uint8(_) => "unsignedbyte",
        FieldValue::Int16(_) => "short",
        FieldValue::Uint16(_) => "unsignedshort",
        FieldValue::Int32(_) => "signedint",
        FieldValue::Uint32(_) => "unsignedint",
        FieldValue::Int64(_) => "long",
        FieldValue::Float(_) => "float",
        FieldValue::Double(_) => "double",
        FieldValue::Decimal { .. } => "decimal",
        FieldValue::Timestamp(_) => "timestamp",
        FieldValue::LongString(_) => "longstr",
        FieldValue::Bytes(_) => "binary",
        FieldValue::Array(_) => "array",
        FieldValue::Table(_) => "table",
    }
}

/// Text, as far as it is.
pub(super) fn text(bytes: &[u8]) -> Value<'_> {
    std::str::from_utf8(bytes).map_or(Value::Binary(bytes), Value::String)
}

/// A name as the key of a map.
fn key(name: ShortStr<'_>) -> Value<'_> {
    match name.as_str() {
        Some(name) if name.is_ascii() => Value::Symbol(name),
        Some(name) => Value::String(name),
        None => Value::Binary(name.as_bytes()),
    }
}

/// Of what has no sign there, some clients say one: it is a time before 1970.
pub(super) fn milliseconds(seconds: u64) -> i64 {
    seconds.cast_signed().saturating_mul(1000)
}

pub(super) fn seconds(milliseconds: i64) -> u64 {
    milliseconds.div_euclid(1000).cast_unsigned()
}

fn list(out: &mut Vec<u8>, array: Array<'_>) {
    compound(out, compound::LIST, |out| {
        let mut count = 0;
        for value in array.iter().flatten() {
            Translated(value).encode(out);
            count += 1;
        }
        count
    });
}

fn map(out: &mut Vec<u8>, table: Table<'_>) {
    compound(out, compound::MAP, |out| {
        let mut count = 0;
        for (name, value) in table.iter().flatten() {
            key(name).encode(out);
            Translated(value).encode(out);
            count += 2;
        }
        count
    });
}

/// Exponent of a decimal64 whose encoded exponent is 0, in the binary encoding (IEEE 754-2008 §3.5.2); the same of a decimal32.
const DECIMAL64_BIAS: u64 = 398;
const DECIMAL32_BIAS: u32 = 101;

fn decimal64(scale: u8, value: i32) -> [u8; 8] {
    let sign = u64::from(value < 0) << 63;
    let exponent = (DECIMAL64_BIAS - u64::from(scale)) << 53;
    (sign | exponent | u64::from(value.unsigned_abs())).to_be_bytes()
}

/// The decimal of 0-9-1 of this sign, coefficient and exponent, if there is one.
fn decimal(is_negative: bool, coefficient: u64, exponent: i64) -> Option<FieldValue<'static>> {
    let scale = u8::try_from(-exponent).ok()?;
    let magnitude = i64::try_from(coefficient).ok()?;
    let value = i32::try_from(if is_negative { -magnitude } else { magnitude }).ok()?;
    Some(FieldValue::Decimal { scale, value })
}

fn from_decimal64(bytes: [u8; 8]) -> Option<FieldValue<'static>> {
    let bits = u64::from_be_bytes(bytes);
    // Larger coefficients, infinities and what is no number have other forms, which begin with these bits.
    if bits >> 61 & 3 == 3 {
        return None;
    }
    let exponent = (bits >> 53 & 0x3ff) as i64 - DECIMAL64_BIAS as i64;
    decimal(bits >> 63 == 1, bits & ((1 << 53) - 1), exponent)
}

fn from_decimal32(bytes: [u8; 4]) -> Option<FieldValue<'static>> {
    let bits = u32::from_be_bytes(bytes);
    if bits >> 29 & 3 == 3 {
        return None;
    }
    let exponent = i64::from(bits >> 23 & 0xff) - i64::from(DECIMAL32_BIAS);
    decimal(bits >> 31 == 1, u64::from(bits & ((1 << 23) - 1)), exponent)
}

/// What there is room for in a field table.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    is_over: bool,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Room { bytes, is_over: false }
    }

    /// Something did not fit, or could not be read: what was written is not all of it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether so many bytes fit.
    fn take(&mut self, bytes: usize) -> bool {
        match self.bytes.checked_sub(bytes) {
            Some(left) if !self.is_over => self.bytes = left,
            Some(_) | None => self.is_over = true,
        }
        !self.is_over
    }

    /// Whether the head of something nested fits.
    fn take_head(&mut self) -> bool {
        self.take(5)
    }
}

/// Writes a value of AMQP 1.0 under a name.
pub(super) fn pair(writer: &mut TableWriter<'_>, name: ShortStr<'_>, value: &Value<'_>, room: &mut Room) {
    nested_pair(writer, name, value, NESTING_MAX, room);
}

/// The same; `depth` is how deep what is nested may be.
fn nested_pair(
    writer: &mut TableWriter<'_>,
    name: ShortStr<'_>,
    value: &Value<'_>,
    depth: usize,
    room: &mut Room,
) {
    if !room.take(1 + name.len()) {
        return;
    }
    match (plain(*value), depth.checked_sub(1)) {
        (Value::List(list), Some(depth)) if room.take_head() => {
            writer.array(name, |writer| values(writer, list.iter(), depth, room));
        }
        (Value::Array(array), Some(depth)) if room.take_head() => {
            writer.array(name, |writer| values(writer, array.iter(), depth, room));
        }
        (Value::Map(map), Some(depth)) if room.take_head() => {
            writer.table(name, |writer| pairs(writer, map, depth, room));
        }
        (value, _) => simple(&value, room, |value| writer.pair(name, value)),
    }
}

fn values<'a>(
    writer: &mut ArrayWriter<'_>,
    values: impl Iterator<Item = Result<Value<'a>, DecodeError>>,
    depth: usize,
    room: &mut Room,
) {
    for value in values {
        match value {
            Ok(value) if !room.is_over => nested_value(writer, &value, depth, room),
            Ok(_) | Err(_) => return room.is_over = true,
        }
    }
}

fn nested_value(writer: &mut ArrayWriter<'_>, value: &Value<'_>, depth: usize, room: &mut Room) {
    match (plain(*value), depth.checked_sub(1)) {
        (Value::List(list), Some(depth)) if room.take_head() => {
            writer.array(|writer| values(writer, list.iter(), depth, room));
        }
        (Value::Array(array), Some(depth)) if room.take_head() => {
            writer.array(|writer| values(writer, array.iter(), depth, room));
        }
        (Value::Map(map), Some(depth)) if room.take_head() => {
            writer.table(|writer| pairs(writer, map, depth, room));
        }
        (value, _) => simple(&value, room, |value| writer.value(value)),
    }
}

/// Keys that are no names are left out with their values.
fn pairs(writer: &mut TableWriter<'_>, map: Map<'_>, depth: usize, room: &mut Room) {
    for pair in map {
        let (key, value) = match pair {
            Ok(pair) if !room.is_over => pair,
            Ok(_) | Err(_) => return room.is_over = true,
        };
        if let Some(name) = text_of(&key).and_then(ShortStr::new) {
            nested_pair(writer, name, &value, depth, room);
        }
    }
}

/// What a described value describes.
fn plain(mut value: Value<'_>) -> Value<'_> {
    while let Value::Described(described) = value {
        value = described.value().unwrap_or(Value::Null);
    }
    value
}

/// Gives a value that nothing is nested in to `write`, if there is room for it.
fn simple(value: &Value<'_>, room: &mut Room, write: impl FnOnce(FieldValue<'_>)) {
    let (mut character, mut urn) = ([0; 4], [0; Urn::LENGTH]);
    let digits;
    let value = match *value {
        Value::Boolean(value) => FieldValue::Boolean(value),
        Value::Ubyte(value) => FieldValue::Uint8(value),
        Value::Ushort(value) => FieldValue::Uint16(value),
        Value::Uint(value) => FieldValue::Uint32(value),
        Value::Ulong(value) => match i64::try_from(value) {
            Ok(value) => FieldValue::Int64(value),
            Err(_) => {
                digits = value.to_string();
                FieldValue::LongString(digits.as_bytes())
            }
        },
        Value::Byte(value) => FieldValue::Int8(value),
        Value::Short(value) => FieldValue::Int16(value),
        Value::Int(value) => FieldValue::Int32(value),
        Value::Long(value) => FieldValue::Int64(value),
        Value::Float(value) => FieldValue::Float(value),
        Value::Double(value) => FieldValue::Double(value),
        Value::Decimal32(bytes) => from_decimal32(bytes).unwrap_or(FieldValue::Void),
        Value::Decimal64(bytes) => from_decimal64(bytes).unwrap_or(FieldValue::Void),
        Value::Char(value) => FieldValue::LongString(value.encode_utf8(&mut character).as_bytes()),
        Value::Timestamp(value) => FieldValue::Timestamp(seconds(value)),
        Value::Uuid(value) => {
            FieldValue::LongString(Uuid::from_bytes(value).urn().encode_lower(&mut urn).as_bytes())
        }
        Value::Binary(value) => FieldValue::Bytes(value),
        Value::String(value) | Value::Symbol(value) => FieldValue::LongString(value.as_bytes()),
        Value::Null
        | Value::Decimal128(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Array(_)
        | Value::Described(_) => FieldValue::Void,
    };
    if room.take(size(&value)) {
        write(value);
    }
}

/// Bytes of a value that nothing is nested in, with its letter.
fn size(value: &FieldValue<'_>) -> usize {
    match value {
        FieldValue::Void => 1,
        FieldValue::Boolean(_) | FieldValue::Int8(_) | FieldValue::Uint8(_) => 2,
        FieldValue::Int16(_) | FieldValue::Uint16(_) => 3,
        FieldValue::Int32(_) | FieldValue::Uint32(_) | FieldValue::Float(_) => 5,
        FieldValue::Decimal { .. } => 6,
        FieldValue::Int64(_) | FieldValue::Double(_) | FieldValue::Timestamp(_) => 9,
        FieldValue::LongString(bytes) | FieldValue::Bytes(bytes) => 5 + bytes.len(),
        FieldValue::Array(array) => 5 + array.bytes().len(),
        FieldValue::Table(table) => 5 + table.bytes().len(),
    }
}
