//! What is the value that starts here, and what does it hold?
//!
//! Compound values keep their encoded bytes and are walked one element at a time. A list's or map's count is checked
//! against its size when it is met, so a walk is never longer than the bytes there are.
//! Two compound values are equal when their bytes are: the same numbers encoded differently compare as different.

use super::descriptor::Descriptor;
use super::error::DecodeError;
use super::limits::ARRAY_EMPTY_ELEMENTS_MAX;
use super::reader::{Layout, Reader};

/// Any value of the AMQP type system (§1.6), borrowed from its encoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Boolean(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    /// IEEE 754-2008 decimals in network byte order.
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    /// Milliseconds since the Unix epoch.
    Timestamp(i64),
    Uuid([u8; 16]),
    Binary(&'a [u8]),
    String(&'a str),
    Symbol(&'a str),
    List(List<'a>),
    Map(Map<'a>),
    Array(Array<'a>),
    Described(Described<'a>),
}

impl<'a> Value<'a> {
    /// Reads the one value that `input` holds, to its last byte.
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(input);
        let value = Self::read(&mut reader)?;
        if reader.is_empty() { Ok(value) } else { Err(DecodeError::TrailingBytes) }
    }

    /// Reads the value at the reader's place.
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.peek() {
            Some(0) => Ok(Self::Described(Described::read(reader)?)),
            _ => {
                let code = reader.byte()?;
                Self::read_data(code, reader)
            }
        }
    }

    /// Reads the data of a value whose constructor was `code`.
    pub(super) fn read_data(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            0x40 => Self::Null,
            0x41 => Self::Boolean(true),
            0x42 => Self::Boolean(false),
            0x43 => Self::Uint(0),
            0x44 => Self::Ulong(0),
            0x45 => Self::List(List::default()),
            0x50 => Self::Ubyte(reader.byte()?),
            0x51 => Self::Byte(i8::from_be_bytes(reader.fixed()?)),
            0x52 => Self::Uint(u32::from(reader.byte()?)),
            0x53 => Self::Ulong(u64::from(reader.byte()?)),
            0x54 => Self::Int(i32::from(i8::from_be_bytes(reader.fixed()?))),
            0x55 => Self::Long(i64::from(i8::from_be_bytes(reader.fixed()?))),
            0x56 => Self::Boolean(boolean(reader.byte()?)?),
            0x60 => Self::Ushort(u16::from_be_bytes(reader.fixed()?)),
            0x61 => Self::Short(i16::from_be_bytes(reader.fixed()?)),
            0x70 => Self::Uint(u32::from_be_bytes(reader.fixed()?)),
            0x71 => Self::Int(i32::from_be_bytes(reader.fixed()?)),
            0x72 => Self::Float(f32::from_be_bytes(reader.fixed()?)),
            0x73 => Self::Char(char::from_u32(reader.be_u32()?).ok_or(DecodeError::InvalidChar)?),
            0x74 => Self::Decimal32(reader.fixed()?),
            0x80 => Self::Ulong(u64::from_be_bytes(reader.fixed()?)),
            0x81 => Self::Long(i64::from_be_bytes(reader.fixed()?)),
            0x82 => Self::Double(f64::from_be_bytes(reader.fixed()?)),
            0x83 => Self::Timestamp(i64::from_be_bytes(reader.fixed()?)),
            0x84 => Self::Decimal64(reader.fixed()?),
            0x94 => Self::Decimal128(reader.fixed()?),
            0x98 => Self::Uuid(reader.fixed()?),
            0xa0 | 0xb0 => Self::Binary(reader.sized(code == 0xb0)?),
            0xa1 | 0xb1 => Self::String(text(reader.sized(code == 0xb1)?)?),
            0xa3 | 0xb3 => Self::Symbol(symbol(reader.sized(code == 0xb3)?)?),
            0xc0 | 0xd0 => Self::List(List::read_data(code == 0xd0, reader)?),
            0xc1 | 0xd1 => Self::Map(Map::read_data(code == 0xd1, reader)?),
            0xe0 | 0xf0 => Self::Array(Array::read_data(code == 0xf0, reader)?),
            _ => return Err(DecodeError::UnknownConstructor { code }),
        })
    }

    /// The number, if it is an integer of any type that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Ubyte(number) => Some(number.into()),
            Self::Ushort(number) => Some(number.into()),
            Self::Uint(number) => Some(number.into()),
            Self::Ulong(number) => number.try_into().ok(),
            Self::Byte(number) => Some(number.into()),
            Self::Short(number) => Some(number.into()),
            Self::Int(number) => Some(number.into()),
            Self::Long(number) => Some(number),
            _ => None,
        }
    }

    /// The text of a string or symbol.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }
}

#[inline]
pub(super) fn boolean(byte: u8) -> Result<bool, DecodeError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::InvalidBoolean),
    }
}

#[inline]
pub(super) fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidText)
}

#[inline]
pub(super) fn symbol(bytes: &[u8]) -> Result<&str, DecodeError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Ok(text),
        _ => Err(DecodeError::InvalidSymbol),
    }
}

/// The bytes of exactly one encoded value, not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a [u8]);

impl<'a> Raw<'a> {
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self(reader.skip_value()?))
    }

    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub fn value(&self) -> Result<Value<'a>, DecodeError> {
        Value::decode(self.0)
    }
}

/// Splits the bytes of a compound value into its count and what follows it.
#[inline]
fn counted(wide: bool, reader: &mut Reader<'_>) -> Result<(u32, usize), DecodeError> {
    // The size covers the count (§1.6.22), so a size too small for it is malformed.
    if wide {
        let size = reader.be_u32()? as usize;
        let rest = size.checked_sub(4).ok_or(DecodeError::CountMismatch)?;
        Ok((reader.be_u32()?, rest))
    } else {
        let size = usize::from(reader.byte()?);
        let rest = size.checked_sub(1).ok_or(DecodeError::CountMismatch)?;
        Ok((u32::from(reader.byte()?), rest))
    }
}

/// A list (§1.6.22): a count and its elements, still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List<'a> {
    count: u32,
    elements: &'a [u8],
}

impl<'a> List<'a> {
    #[inline]
    pub(super) fn read_data(wide: bool, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (count, size) = counted(wide, reader)?;
        let elements = reader.take(size)?;
        // Every element has at least its constructor.
        if count as usize > elements.len() {
            return Err(DecodeError::CountMismatch);
        }
        Ok(Self { count, elements })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded elements, one after the other.
    #[inline]
    pub fn elements(&self) -> &'a [u8] {
        self.elements
    }

    pub fn iter(&self) -> ListIter<'a> {
        ListIter { remaining: self.count, reader: Reader::new(self.elements) }
    }
}

impl<'a> IntoIterator for List<'a> {
    type Item = Result<Value<'a>, DecodeError>;
    type IntoIter = ListIter<'a>;

    fn into_iter(self) -> ListIter<'a> {
        self.iter()
    }
}

/// The elements of a list in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct ListIter<'a> {
    remaining: u32,
    reader: Reader<'a>,
}

impl<'a> Iterator for ListIter<'a> {
    type Item = Result<Value<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let value = Value::read(&mut self.reader);
        if value.is_err() {
            self.remaining = 0;
        }
        Some(value)
    }
}

/// A map (§1.6.23): keys and values in turn, still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Map<'a> {
    /// Keys and values together.
    count: u32,
    elements: &'a [u8],
}

impl<'a> Map<'a> {
    /// Reads the one map that `input` holds, constructor included.
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        match Value::decode(input)? {
            Value::Map(map) => Ok(map),
            _ => Err(DecodeError::WrongType { field: "map", code: input[0] }),
        }
    }

    #[inline]
    pub(super) fn read_data(wide: bool, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let List { count, elements } = List::read_data(wide, reader)?;
        if count % 2 != 0 {
            return Err(DecodeError::OddMap);
        }
        Ok(Self { count, elements })
    }

    /// Count of pairs.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize / 2
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Count of keys and values together, as encoded.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The encoded keys and values, one after the other.
    #[inline]
    pub fn elements(&self) -> &'a [u8] {
        self.elements
    }

    pub fn iter(&self) -> MapIter<'a> {
        MapIter { remaining: self.count / 2, reader: Reader::new(self.elements) }
    }

    /// The value of the first key that is a string or symbol of this text. Values before it are skipped, not read.
    pub fn find(&self, key: &str) -> Result<Option<Value<'a>>, DecodeError> {
        let mut reader = Reader::new(self.elements);
        for _ in 0..self.count / 2 {
            let found = match reader.peek() {
                Some(code @ (0xa1 | 0xa3 | 0xb1 | 0xb3)) => {
                    reader.byte()?;
                    reader.sized(code >= 0xb0)? == key.as_bytes()
                }
                _ => {
                    reader.skip_value()?;
                    false
                }
            };
            if found {
                return Value::read(&mut reader).map(Some);
            }
            reader.skip_value()?;
        }
        Ok(None)
    }
}

impl<'a> IntoIterator for Map<'a> {
    type Item = Result<(Value<'a>, Value<'a>), DecodeError>;
    type IntoIter = MapIter<'a>;

    fn into_iter(self) -> MapIter<'a> {
        self.iter()
    }
}

/// The pairs of a map in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct MapIter<'a> {
    remaining: u32,
    reader: Reader<'a>,
}

impl<'a> MapIter<'a> {
    fn pair(&mut self) -> Result<(Value<'a>, Value<'a>), DecodeError> {
        Ok((Value::read(&mut self.reader)?, Value::read(&mut self.reader)?))
    }
}

impl<'a> Iterator for MapIter<'a> {
    type Item = Result<(Value<'a>, Value<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let pair = self.pair();
        if pair.is_err() {
            self.remaining = 0;
        }
        Some(pair)
    }
}

/// An array (§1.6.24): one constructor and the data of `count` elements, still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    count: u32,
    /// Descriptors, if any, and the code of the elements' primitive type.
    constructor: &'a [u8],
    data: &'a [u8],
}

/// No symbols.
impl Default for Array<'_> {
    fn default() -> Self {
        Self { count: 0, constructor: &[0xa3], data: &[] }
    }
}

impl<'a> Array<'a> {
    pub(super) fn read_data(wide: bool, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (count, size) = counted(wide, reader)?;
        let mut inside = Reader::new(reader.take(size)?);
        if inside.is_empty() && count == 0 {
            // Without elements the constructor says nothing; some peers leave it out.
            return Ok(Self::default());
        }
        let constructor = inside.skip_constructor()?;
        let array = Self { count, constructor, data: inside.rest() };
        let code = array.code();
        let fits = match Layout::of(code) {
            Layout::Unknown => return Err(DecodeError::UnknownConstructor { code }),
            Layout::Fixed(0) if count > ARRAY_EMPTY_ELEMENTS_MAX => {
                return Err(DecodeError::TooManyEmptyElements { count });
            }
            Layout::Fixed(size) => u64::from(count) * u64::from(size) == array.data.len() as u64,
            // Every element has at least its size.
            Layout::Sized | Layout::SizedWide => count as usize <= array.data.len(),
        };
        if fits { Ok(array) } else { Err(DecodeError::CountMismatch) }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The constructor that all elements share, as encoded.
    #[inline]
    pub fn constructor(&self) -> &'a [u8] {
        self.constructor
    }

    /// The elements' data, one after the other, as encoded.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The code of the elements' primitive type.
    #[inline]
    pub(super) fn code(&self) -> u8 {
        // A constructor has at least one byte: `skip_constructor` takes one before it ends.
        self.constructor[self.constructor.len() - 1]
    }

    pub fn iter(&self) -> ArrayIter<'a> {
        ArrayIter { remaining: self.count, constructor: self.constructor, reader: Reader::new(self.data) }
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Result<Value<'a>, DecodeError>;
    type IntoIter = ArrayIter<'a>;

    fn into_iter(self) -> ArrayIter<'a> {
        self.iter()
    }
}

/// The elements of an array in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct ArrayIter<'a> {
    remaining: u32,
    constructor: &'a [u8],
    reader: Reader<'a>,
}

impl<'a> Iterator for ArrayIter<'a> {
    type Item = Result<Value<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let value = match *self.constructor {
            [code] => Value::read_data(code, &mut self.reader),
            [.., code] => self
                .reader
                .skip_data(code)
                .map(|data| Value::Described(Described { constructor: &self.constructor[1..], data })),
            [] => Err(DecodeError::Truncated),
        };
        if value.is_err() {
            self.remaining = 0;
        }
        Some(value)
    }
}

/// A described value (§1.3): a descriptor and the value it describes, both still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described<'a> {
    /// What follows the constructor's leading 0: the descriptor, then the inner constructor.
    constructor: &'a [u8],
    data: &'a [u8],
}

impl<'a> Described<'a> {
    /// Reads a described value, which starts with a 0.
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let constructor = reader.skip_constructor()?;
        let (&code, descriptors) = constructor.split_last().ok_or(DecodeError::Truncated)?;
        if descriptors.is_empty() {
            return Err(DecodeError::NotDescribed { expected: "a described value" });
        }
        Ok(Self { constructor: &constructor[1..], data: reader.skip_data(code)? })
    }

    pub fn descriptor(&self) -> Result<Descriptor<'a>, DecodeError> {
        Descriptor::read(&mut Reader::new(self.constructor))
    }

    /// The value that the descriptor describes.
    pub fn value(&self) -> Result<Value<'a>, DecodeError> {
        let mut inner = Reader::new(self.constructor);
        inner.skip_value()?;
        match *inner.rest() {
            [code] => {
                let mut data = Reader::new(self.data);
                let value = Value::read_data(code, &mut data)?;
                if data.is_empty() { Ok(value) } else { Err(DecodeError::TrailingBytes) }
            }
            [0, ref constructor @ ..] => Ok(Value::Described(Self { constructor, data: self.data })),
            _ => Err(DecodeError::Truncated),
        }
    }

    /// The encoding behind the leading 0, in two parts that follow each other.
    pub(super) fn parts(&self) -> (&'a [u8], &'a [u8]) {
        (self.constructor, self.data)
    }
}
