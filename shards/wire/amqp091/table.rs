//! What do a field table and a field array hold (§4.2.5.5)?
//!
//! They stay encoded, so that they are handed on byte for byte, and are walked one value at a time. Where the letters of
//! 0-9-1 and those that brokers and clients use differ, the latter hold: `s` is an int16, `l` an int64 and `x` bytes. `U` and
//! `L`, which some clients send, are the same as `s` and `l`.
//!
//! Two tables are equal when their bytes are: the same pairs in another order, or numbers of other types, compare as different.

use super::error::DecodeError;
use super::reader::Reader;
use super::short_str::ShortStr;

/// A value in a table or an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    Void,
    Boolean(bool),
    Int8(i8),
    Uint8(u8),
    Int16(i16),
    Uint16(u16),
    Int32(i32),
    Uint32(u32),
    Int64(i64),
    Float(f32),
    Double(f64),
    /// `value` · 10^-`scale`.
    Decimal {
        scale: u8,
        value: i32,
    },
    /// Seconds since the Unix epoch.
    Timestamp(u64),
    /// Most often text; nobody checks.
    LongString(&'a [u8]),
    Bytes(&'a [u8]),
    Array(Array<'a>),
    Table(Table<'a>),
}

impl<'a> FieldValue<'a> {
    /// Reads letter and value. What is nested is not looked at.
    #[inline]
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match reader.byte()? {
            b'S' => Self::LongString(reader.long()?),
            b'I' => Self::Int32(i32::from_be_bytes(reader.fixed()?)),
            b't' => Self::Boolean(reader.byte()? != 0),
            b'l' | b'L' => Self::Int64(i64::from_be_bytes(reader.fixed()?)),
            b'F' => Self::Table(Table::new(reader.long()?)),
            b'A' => Self::Array(Array::new(reader.long()?)),
            b'T' => Self::Timestamp(reader.be_u64()?),
            b'd' => Self::Double(f64::from_be_bytes(reader.fixed()?)),
            b'V' => Self::Void,
            b'b' => Self::Int8(i8::from_be_bytes(reader.fixed()?)),
            b'B' => Self::Uint8(reader.byte()?),
            b's' | b'U' => Self::Int16(i16::from_be_bytes(reader.fixed()?)),
            b'u' => Self::Uint16(reader.be_u16()?),
            b'i' => Self::Uint32(reader.be_u32()?),
            b'f' => Self::Float(f32::from_be_bytes(reader.fixed()?)),
            b'D' => Self::Decimal { scale: reader.byte()?, value: i32::from_be_bytes(reader.fixed()?) },
            b'x' => Self::Bytes(reader.long()?),
            letter => return Err(DecodeError::UnknownFieldType { letter }),
        })
    }

    /// A whole number of any type.
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Int8(value) => Some(value.into()),
            Self::Uint8(value) => Some(value.into()),
            Self::Int16(value) => Some(value.into()),
            Self::Uint16(value) => Some(value.into()),
            Self::Int32(value) => Some(value.into()),
            Self::Uint32(value) => Some(value.into()),
            Self::Int64(value) => Some(value),
            Self::Void
            | Self::Boolean(_)
            | Self::Float(_)
            | Self::Double(_)
            | Self::Decimal { .. }
            | Self::Timestamp(_)
            | Self::LongString(_)
            | Self::Bytes(_)
            | Self::Array(_)
            | Self::Table(_) => None,
        }
    }

    /// A long string that is UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Self::LongString(value) => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }
}

/// Names and values, still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table<'a>(&'a [u8]);

impl<'a> Table<'a> {
    /// Takes the bytes of a table, without the size before them. They are not looked at;
    /// [`check_table`](super::check_table) does.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The pairs in order. An error ends them.
    #[inline]
    pub fn iter(self) -> TableIter<'a> {
        TableIter(Reader::new(self.0))
    }

    /// The value of the first pair with this name.
    pub fn find(self, name: &str) -> Result<Option<FieldValue<'a>>, DecodeError> {
        for pair in self.iter() {
            let (found, value) = pair?;
            if found == name {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

impl<'a> IntoIterator for Table<'a> {
    type Item = Result<(ShortStr<'a>, FieldValue<'a>), DecodeError>;
    type IntoIter = TableIter<'a>;

    fn into_iter(self) -> TableIter<'a> {
        self.iter()
    }
}

/// See [`Table::iter`].
#[derive(Clone, Debug)]
pub struct TableIter<'a>(Reader<'a>);

impl<'a> Iterator for TableIter<'a> {
    type Item = Result<(ShortStr<'a>, FieldValue<'a>), DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        walk(&mut self.0, |reader| Ok((reader.short_str()?, FieldValue::read(reader)?)))
    }
}

/// Values, still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Array<'a>(&'a [u8]);

impl<'a> Array<'a> {
    /// Takes the bytes of an array, without the size before them. They are not looked at.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The values in order. An error ends them.
    #[inline]
    pub fn iter(self) -> ArrayIter<'a> {
        ArrayIter(Reader::new(self.0))
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Result<FieldValue<'a>, DecodeError>;
    type IntoIter = ArrayIter<'a>;

    fn into_iter(self) -> ArrayIter<'a> {
        self.iter()
    }
}

/// See [`Array::iter`].
#[derive(Clone, Debug)]
pub struct ArrayIter<'a>(Reader<'a>);

impl<'a> Iterator for ArrayIter<'a> {
    type Item = Result<FieldValue<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        walk(&mut self.0, FieldValue::read)
    }
}

/// The next thing, or nothing at the end and behind an error.
#[inline]
fn walk<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Option<Result<T, DecodeError>> {
    if reader.is_empty() {
        return None;
    }
    let next = read(reader);
    if next.is_err() {
        *reader = Reader::new(&[]);
    }
    Some(next)
}
