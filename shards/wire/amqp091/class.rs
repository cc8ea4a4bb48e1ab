//! How are a class's methods declared, read and written (§4.2.4)?
//!
//! [`class!`] takes a class as a table: each method with its number, and its arguments in order. A `_` is a reserved
//! argument: passed over when read, zero when written. Behind a `;` stand those that are reserved at the end. Bits that
//! follow each other share an octet, lowest first (§4.2.5.2).

use super::check::check_table;
use super::error::DecodeError;
use super::reader::Reader;
use super::short_str::ShortStr;
use super::table::Table;

/// A method's arguments that are still to be read.
pub(super) struct Arguments<'a> {
    reader: Reader<'a>,
    bits: u8,
    /// The bits of `bits` that have been read; none of them if it was no bit that was read last.
    bit_count: u32,
}

impl<'a> Arguments<'a> {
    #[inline]
    pub(super) fn new(reader: Reader<'a>) -> Self {
        Self { reader, bits: 0, bit_count: 0 }
    }

    /// The place of an argument that is not a bit.
    #[inline]
    fn aligned(&mut self) -> &mut Reader<'a> {
        self.bit_count = 0;
        &mut self.reader
    }

    /// Bits of the last octet that no argument has are of no meaning.
    #[inline]
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        self.reader.finish()
    }
}

/// A method's arguments on their way to a buffer.
pub(super) struct ArgumentWriter<'v> {
    out: &'v mut Vec<u8>,
    bit_count: u32,
}

impl<'v> ArgumentWriter<'v> {
    #[inline]
    pub(super) fn new(out: &'v mut Vec<u8>, class_id: u16, method_id: u16) -> Self {
        let ([a, b], [c, d]) = (class_id.to_be_bytes(), method_id.to_be_bytes());
        out.extend_from_slice(&[a, b, c, d]);
        Self { out, bit_count: 0 }
    }

    #[inline]
    fn aligned(&mut self) -> &mut Vec<u8> {
        self.bit_count = 0;
        self.out
    }
}

/// A type that an argument can have.
pub(super) trait Argument<'a>: Sized {
    fn read(arguments: &mut Arguments<'a>) -> Result<Self, DecodeError>;
    fn write(&self, writer: &mut ArgumentWriter<'_>);
}

impl Argument<'_> for bool {
    #[inline]
    fn read(arguments: &mut Arguments<'_>) -> Result<Self, DecodeError> {
        if arguments.bit_count == 0 {
            arguments.bits = arguments.reader.byte()?;
        }
        let is_set = arguments.bits >> arguments.bit_count & 1 == 1;
        arguments.bit_count = (arguments.bit_count + 1) % 8;
        Ok(is_set)
    }

    #[inline]
    fn write(&self, writer: &mut ArgumentWriter<'_>) {
        let bit = u8::from(*self) << writer.bit_count;
        match writer.out.last_mut() {
            Some(octet) if writer.bit_count > 0 => *octet |= bit,
            _ => writer.out.push(bit),
        }
        writer.bit_count = (writer.bit_count + 1) % 8;
    }
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl Argument<'_> for $kind {
            #[inline]
            fn read(arguments: &mut Arguments<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(arguments.aligned().fixed()?))
            }

            #[inline]
            fn write(&self, writer: &mut ArgumentWriter<'_>) {
                writer.aligned().extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

number!(u8, u16, u32, u64);

impl<'a> Argument<'a> for ShortStr<'a> {
    #[inline]
    fn read(arguments: &mut Arguments<'a>) -> Result<Self, DecodeError> {
        arguments.aligned().short_str()
    }

    #[inline]
    fn write(&self, writer: &mut ArgumentWriter<'_>) {
        self.append(writer.aligned());
    }
}

/// A long string.
impl<'a> Argument<'a> for &'a [u8] {
    #[inline]
    fn read(arguments: &mut Arguments<'a>) -> Result<Self, DecodeError> {
        arguments.aligned().long()
    }

    #[inline]
    fn write(&self, writer: &mut ArgumentWriter<'_>) {
        super::encode::append_long(writer.aligned(), self);
    }
}

/// A table, all of which is checked when it is read.
impl<'a> Argument<'a> for Table<'a> {
    #[inline]
    fn read(arguments: &mut Arguments<'a>) -> Result<Self, DecodeError> {
        let table = Table::new(arguments.aligned().long()?);
        check_table(table)?;
        Ok(table)
    }

    #[inline]
    fn write(&self, writer: &mut ArgumentWriter<'_>) {
        super::encode::append_long(writer.aligned(), self.bytes());
    }
}

/// Declares the methods of a class: a struct for each, and `Method`, which is one of them.
macro_rules! class {
    (
        $class:literal: Method$(<$of:lifetime>)? = $class_id:literal;
        $(
            $(#[$about:meta])*
            $name:ident$(<$lifetime:lifetime>)? = $method_id:literal $text:literal {
                $(_: $before:ty,)*
                $($(#[$note:meta])* $field:ident: $kind:ty,)*
                $(; $(_: $after:ty,)+)?
            }
        )+
    ) => {
        #[allow(unused_imports, reason = "not every class has each of them")]
        use crate::amqp091::class::{Argument, ArgumentWriter, Arguments};
        use crate::amqp091::encode::Encode;
        use crate::amqp091::error::DecodeError;
        use crate::amqp091::method::MethodId;

        pub const CLASS_ID: u16 = $class_id;

        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name$(<$lifetime>)? {
                $($(#[$note])* pub $field: $kind,)*
            }

            impl$(<$lifetime>)? $name$(<$lifetime>)? {
                pub const ID: MethodId = MethodId { class_id: CLASS_ID, method_id: $method_id };

                #[inline]
                #[allow(unused_variables, reason = "not every method has arguments")]
                fn read(arguments: &mut Arguments$(<$lifetime>)?) -> Result<Self, DecodeError> {
                    $(<$before as Argument>::read(arguments)?;)*
                    let method = Self { $($field: Argument::read(arguments)?,)* };
                    $($(<$after as Argument>::read(arguments)?;)+)?
                    Ok(method)
                }
            }

            impl$(<$lifetime>)? Encode for $name$(<$lifetime>)? {
                #[inline]
                #[allow(unused_mut, unused_variables, reason = "not every method has arguments")]
                fn encode(&self, out: &mut Vec<u8>) {
                    let mut writer = ArgumentWriter::new(out, CLASS_ID, $method_id);
                    $(<$before>::default().write(&mut writer);)*
                    $(self.$field.write(&mut writer);)*
                    $($(<$after>::default().write(&mut writer);)+)?
                }
            }
        )+

        /// Any method of the class.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method$(<$of>)? {
            $($name($name$(<$lifetime>)?),)+
        }

        impl$(<$of>)? Method$(<$of>)? {
            /// Reads the arguments of the method with this number.
            #[inline]
            pub(in crate::amqp091) fn read(
                method_id: u16,
                arguments: &mut Arguments$(<$of>)?,
            ) -> Result<Self, DecodeError> {
                match method_id {
                    $($method_id => $name::read(arguments).map(Self::$name),)+
                    _ => Err(DecodeError::UnknownMethod),
                }
            }

            pub fn id(&self) -> MethodId {
                match self {
                    $(Self::$name(_) => $name::ID,)+
                }
            }
        }

        impl$(<$of>)? Encode for Method$(<$of>)? {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(method) => method.encode(out),)+
                }
            }
        }

        /// A method's name as the specification has it, `basic.publish`.
        pub(in crate::amqp091) fn name(method_id: u16) -> Option<&'static str> {
            match method_id {
                $($method_id => Some(concat!($class, ".", $text)),)+
                _ => None,
            }
        }
    };
}

pub(super) use class;

#[cfg(test)]
mod tests {
    use super::*;

    /// No method has bits on both sides of something else, or more than eight of them: a class may.
    #[test]
    fn bits_share_an_octet_only_with_their_neighbours() {
        let values = [true, false, true, true, false, false, true, false, true];
        let mut out = Vec::new();
        let mut writer = ArgumentWriter::new(&mut out, 1, 2);
        values.iter().for_each(|value| value.write(&mut writer));
        0x0304_u16.write(&mut writer);
        true.write(&mut writer);
        assert_eq!(out, [0, 1, 0, 2, 0b0100_1101, 1, 3, 4, 1]);

        let mut arguments = Arguments::new(Reader::new(&out[4..]));
        for value in values {
            assert_eq!(bool::read(&mut arguments), Ok(value));
        }
        assert_eq!(u16::read(&mut arguments), Ok(0x0304));
        assert_eq!(bool::read(&mut arguments), Ok(true));
        assert_eq!(arguments.finish(), Ok(()));
    }
}
