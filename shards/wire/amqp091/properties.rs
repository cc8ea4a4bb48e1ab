//! What does a message say about itself (§1.7, §4.2.6.1)?
//!
//! Flags tell which properties there are, highest bit first; their values follow in the same order. They stay encoded, so that
//! they are handed on byte for byte; [`PropertyFields`] reads one of them, [`Properties`] are all of them.

use super::check::check_table;
use super::encode::append_long;
use super::error::DecodeError;
use super::reader::Reader;
use super::short_str::ShortStr;
use super::table::Table;

/// Another word of flags follows this one.
const CONTINUED: u16 = 1;

/// A type that a property can have.
trait Property<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
    fn append(&self, out: &mut Vec<u8>);
    /// What `read` does not look at.
    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }
}

impl<'a> Property<'a> for ShortStr<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.short_str()
    }

    #[inline]
    fn append(&self, out: &mut Vec<u8>) {
        ShortStr::append(*self, out);
    }
}

impl Property<'_> for u8 {
    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.byte()
    }

    #[inline]
    fn append(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
}

impl Property<'_> for u64 {
    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.be_u64()
    }

    #[inline]
    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl<'a> Property<'a> for Table<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.long().map(Table::new)
    }

    #[inline]
    fn append(&self, out: &mut Vec<u8>) {
        append_long(out, self.bytes());
    }

    #[inline]
    fn check(&self) -> Result<(), DecodeError> {
        check_table(*self)
    }
}

/// Declares the properties in their order, each with the bit of its flag.
macro_rules! properties {
    ($($(#[$about:meta])* $bit:literal $property:ident: $kind:ty,)+) => {
        /// All properties of a message.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Properties<'a> {
            $($(#[$about])* pub $property: Option<$kind>,)+
        }

        impl<'a> Properties<'a> {
            /// Flags of the properties that there are.
            const ALL: u16 = 0 $(| 1 << $bit)+;

            /// Appends flags and values.
            pub fn encode(&self, out: &mut Vec<u8>) {
                let flags = 0_u16 $(| u16::from(self.$property.is_some()) << $bit)+;
                out.extend_from_slice(&flags.to_be_bytes());
                $(if let Some(value) = &self.$property {
                    Property::append(value, out);
                })+
            }
        }

        impl<'a> PropertyFields<'a> {
            /// Reads and checks all properties, the headers all the way down.
            #[inline]
            pub fn decode(self) -> Result<Properties<'a>, DecodeError> {
                let (flags, mut reader) = self.flags()?;
                let mut properties = Properties::default();
                $(if flags & 1 << $bit != 0 {
                    let value: $kind = Property::read(&mut reader)?;
                    value.check()?;
                    properties.$property = Some(value);
                })+
                reader.finish()?;
                Ok(properties)
            }

            $(
                /// Passes those before it and reads this one alone.
                $(#[$about])*
                pub fn $property(self) -> Result<Option<$kind>, DecodeError> {
                    match self.seek($bit)? {
                        Some(mut reader) => Property::read(&mut reader).map(Some),
                        None => Ok(None),
                    }
                }
            )+

            /// Passes the property with this flag.
            fn skip(bit: u32, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
                match bit {
                    $($bit => <$kind as Property>::read(reader).map(drop),)+
                    _ => Err(DecodeError::UnknownProperty),
                }
            }
        }
    };
}

properties! {
    15 content_type: ShortStr<'a>,
    14 content_encoding: ShortStr<'a>,
    13 headers: Table<'a>,
    /// 2 is persistent.
    12 delivery_mode: u8,
    11 priority: u8,
    10 correlation_id: ShortStr<'a>,
    9 reply_to: ShortStr<'a>,
    /// Milliseconds in decimal digits.
    8 expiration: ShortStr<'a>,
    7 message_id: ShortStr<'a>,
    /// Seconds since the Unix epoch.
    6 timestamp: u64,
    /// `type` in the specification.
    5 kind: ShortStr<'a>,
    4 user_id: ShortStr<'a>,
    3 app_id: ShortStr<'a>,
    2 cluster_id: ShortStr<'a>,
}

/// The properties of a message, still encoded: the bytes of a content header behind its body size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyFields<'a>(&'a [u8]);

/// Those of a message without properties.
impl Default for PropertyFields<'_> {
    fn default() -> Self {
        Self(&[0, 0])
    }
}

impl<'a> PropertyFields<'a> {
    /// Takes flags and values. They are not looked at.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The flags, and where the values start. Words of flags behind the first have no property in basic.
    #[inline]
    fn flags(self) -> Result<(u16, Reader<'a>), DecodeError> {
        let mut reader = Reader::new(self.0);
        let flags = reader.be_u16()?;
        let (mut word, mut known) = (flags, Properties::ALL);
        loop {
            if word & !known & !CONTINUED != 0 {
                return Err(DecodeError::UnknownProperty);
            }
            if word & CONTINUED == 0 {
                return Ok((flags & !CONTINUED, reader));
            }
            (word, known) = (reader.be_u16()?, 0);
        }
    }

    /// Where the property with this flag starts, if there is one.
    fn seek(self, bit: u32) -> Result<Option<Reader<'a>>, DecodeError> {
        let (flags, mut reader) = self.flags()?;
        if flags & 1 << bit == 0 {
            return Ok(None);
        }
        for before in (bit + 1..u16::BITS).rev().filter(|before| flags & 1 << before != 0) {
            Self::skip(before, &mut reader)?;
        }
        Ok(Some(reader))
    }
}
