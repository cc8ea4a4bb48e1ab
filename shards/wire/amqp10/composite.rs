//! How are the fields of a composite type (§1.4) read from the list that encodes it?
//!
//! Fields come in order. A field that is null or left out at the list's end is absent; the reader of the field says
//! whether that is an error or a default.

use super::descriptor;
use super::error::DecodeError;
use super::reader::{Layout, Reader};
use super::symbols::Symbols;
use super::value::{List, Map, Raw, Value, boolean, symbol, text};

/// The fields of one composite value that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    remaining: u32,
    reader: Reader<'a>,
    composite: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(list: List<'a>, composite: &'static str) -> Self {
        Self { remaining: list.len() as u32, reader: Reader::new(list.elements()), composite }
    }

    /// Reads the list that encodes a composite value, behind its descriptor.
    #[inline]
    pub(super) fn read(reader: &mut Reader<'a>, composite: &'static str) -> Result<Self, DecodeError> {
        let list = match reader.byte()? {
            0x45 => List::default(),
            0xc0 => List::read_data(false, reader)?,
            0xd0 => List::read_data(true, reader)?,
            code => return Err(DecodeError::WrongType { field: composite, code }),
        };
        Ok(Self::new(list, composite))
    }

    /// Reads descriptor and list of a value that must be of the type `code`.
    pub(super) fn described(
        reader: &mut Reader<'a>,
        code: u8,
        composite: &'static str,
    ) -> Result<Self, DecodeError> {
        match descriptor::read_code(reader, composite)? {
            Some(found) if found == u64::from(code) => Self::read(reader, composite),
            found => Err(DecodeError::UnexpectedDescriptor { expected: composite, code: found }),
        }
    }

    /// The next field's place if the field is present.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<&mut Reader<'a>>, DecodeError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.remaining -= 1;
        match self.reader.peek() {
            Some(0x40) => {
                self.reader.byte()?;
                Ok(None)
            }
            Some(_) => Ok(Some(&mut self.reader)),
            None => Err(DecodeError::Truncated),
        }
    }

    #[inline]
    pub(super) fn optional<T: Field<'a>>(&mut self, field: &'static str) -> Result<Option<T>, DecodeError> {
        match self.next()? {
            Some(reader) => T::read(reader, field).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    pub(super) fn mandatory<T: Field<'a>>(&mut self, field: &'static str) -> Result<T, DecodeError> {
        self.optional(field)?.ok_or(DecodeError::MissingField { field })
    }

    #[inline]
    pub(super) fn or<T: Field<'a>>(&mut self, field: &'static str, default: T) -> Result<T, DecodeError> {
        Ok(self.optional(field)?.unwrap_or(default))
    }

    #[inline]
    pub(super) fn symbol(&mut self, field: &'static str) -> Result<Option<&'a str>, DecodeError> {
        Ok(self.optional::<Symbol<'a>>(field)?.map(|symbol| symbol.0))
    }

    #[inline]
    pub(super) fn symbols(&mut self, field: &'static str) -> Result<Symbols<'a>, DecodeError> {
        Ok(self.optional(field)?.unwrap_or_default())
    }

    /// Whether there are fields that were not read.
    #[inline]
    pub(super) fn are_left(&self) -> bool {
        self.remaining > 0
    }

    /// All fields of the type were read: nothing may be left.
    #[inline]
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if self.remaining > 0 {
            return Err(DecodeError::TooManyFields { composite: self.composite });
        }
        if self.reader.is_empty() { Ok(()) } else { Err(DecodeError::CountMismatch) }
    }
}

/// A type that a field can have. Other constructors than its own are errors, null included.
pub(super) trait Field<'a>: Sized {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError>;
}

#[cold]
fn wrong<T>(field: &'static str, code: u8) -> Result<T, DecodeError> {
    // Whether the code is known at all is the better news.
    if code != 0 && Layout::of(code) == Layout::Unknown {
        return Err(DecodeError::UnknownConstructor { code });
    }
    Err(DecodeError::WrongType { field, code })
}

impl<'a> Field<'a> for bool {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0x41 => Ok(true),
            0x42 => Ok(false),
            0x56 => boolean(reader.byte()?),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for u8 {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0x50 => reader.byte(),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for u16 {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0x60 => Ok(Self::from_be_bytes(reader.fixed()?)),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for u32 {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0x43 => Ok(0),
            0x52 => Ok(Self::from(reader.byte()?)),
            0x70 => reader.be_u32(),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for u64 {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0x44 => Ok(0),
            0x53 => Ok(Self::from(reader.byte()?)),
            0x80 => Ok(Self::from_be_bytes(reader.fixed()?)),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for &'a str {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            code @ (0xa1 | 0xb1) => text(reader.sized(code == 0xb1)?),
            code => wrong(field, code),
        }
    }
}

/// A symbol, to tell it from a string.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol<'a>(pub(super) &'a str);

impl<'a> Field<'a> for Symbol<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            code @ (0xa3 | 0xb3) => symbol(reader.sized(code == 0xb3)?).map(Symbol),
            code => wrong(field, code),
        }
    }
}

/// Milliseconds since the Unix epoch, to tell a timestamp from a long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp(pub(super) i64);

impl<'a> Field<'a> for Timestamp {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0x83 => Ok(Self(i64::from_be_bytes(reader.fixed()?))),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            code @ (0xa0 | 0xb0) => reader.sized(code == 0xb0),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for Map<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.byte()? {
            code @ (0xc1 | 0xd1) => Map::read_data(code == 0xd1, reader),
            code => wrong(field, code),
        }
    }
}

impl<'a> Field<'a> for Value<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        Value::read(reader)
    }
}

impl<'a> Field<'a> for Raw<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        Raw::read(reader)
    }
}
