//! What can be wrong with the bytes of a peer, and what is it to be told?

use std::fmt;

use super::condition;
use super::limits::DELIVERY_TAG_SIZE_MAX;

/// Why a frame cannot be cut from the stream. The connection cannot go on after any of these (§2.8.16: framing-error).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The size counts the header, so it is at least 8 (§2.3.1).
    SizeBelowHeader { size: u32 },
    /// More than the receiver said it takes (§2.7.1: max-frame-size).
    SizeOverMax { size: u32, max: u32 },
    /// The data offset counts four-byte words from the frame's start, so it is at least 2 (§2.3.1).
    DataOffsetBelowHeader { data_offset: u8 },
    /// The data offset points behind the frame's end.
    DataOffsetBeyondSize { data_offset: u8, size: u32 },
    /// Neither an AMQP nor a SASL frame.
    UnknownKind { kind: u8 },
}

impl FrameError {
    /// The error condition the peer is told.
    pub fn condition(&self) -> &'static str {
        condition::FRAMING_ERROR
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SizeBelowHeader { size } => {
                write!(f, "frame size {size} is below the 8 bytes of its header")
            }
            Self::SizeOverMax { size, max } => write!(f, "frame size {size} is over the maximum of {max}"),
            Self::DataOffsetBelowHeader { data_offset } => {
                write!(f, "frame data offset {data_offset} is below 2")
            }
            Self::DataOffsetBeyondSize { data_offset, size } => {
                write!(f, "frame data offset {data_offset} points behind the frame's size {size}")
            }
            Self::UnknownKind { kind } => write!(f, "unknown frame type {kind:#04x}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Why bytes are not the value that must stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A value ends behind the bytes it is part of.
    Truncated,
    /// Bytes are left where the enclosing value must end.
    TrailingBytes,
    /// No type has this constructor (§1.2).
    UnknownConstructor {
        code: u8,
    },
    /// The size of a compound value does not fit its count of elements.
    CountMismatch,
    /// A map with a key that has no value (§1.6.23).
    OddMap,
    /// Compound values nested deeper than [`NESTING_MAX`](super::NESTING_MAX).
    TooDeep,
    /// An array of more than [`ARRAY_EMPTY_ELEMENTS_MAX`](super::ARRAY_EMPTY_ELEMENTS_MAX) elements without bytes.
    TooManyEmptyElements {
        count: u32,
    },
    /// Not UTF-8 (§1.6.20), not ASCII (§1.6.21), not a Unicode scalar (§1.6.16), not 0 or 1 (§1.6.2).
    InvalidText,
    InvalidSymbol,
    InvalidChar,
    InvalidBoolean,
    /// A value without a descriptor where a described one must stand.
    NotDescribed {
        expected: &'static str,
    },
    /// A described value of another type than what may stand here. `code` is `None` if even its descriptor is unknown.
    UnexpectedDescriptor {
        expected: &'static str,
        code: Option<u64>,
    },
    /// The field has a type other than the one the specification gives it.
    WrongType {
        field: &'static str,
        code: u8,
    },
    /// A mandatory field is null or left out.
    MissingField {
        field: &'static str,
    },
    /// The field's type is right, its value is none of those allowed.
    InvalidField {
        field: &'static str,
    },
    /// A list has more fields than the composite type it encodes.
    TooManyFields {
        composite: &'static str,
    },
    /// A message section stands behind one it must precede, or stands there twice (§3.2).
    SectionOutOfOrder {
        code: u8,
    },
    /// A message has body sections of two kinds, or two amqp-value sections (§3.2).
    MixedBody {
        code: u8,
    },
    /// A message of more bytes than its sections' offsets can name.
    MessageTooLarge,
}

impl DecodeError {
    /// The error condition the peer is told (§2.8.15).
    pub fn condition(&self) -> &'static str {
        match self {
            Self::MissingField { .. } | Self::InvalidField { .. } => condition::INVALID_FIELD,
            Self::MessageTooLarge => condition::MESSAGE_SIZE_EXCEEDED,
            Self::Truncated
            | Self::TrailingBytes
            | Self::UnknownConstructor { .. }
            | Self::CountMismatch
            | Self::OddMap
            | Self::TooDeep
            | Self::TooManyEmptyElements { .. }
            | Self::InvalidText
            | Self::InvalidSymbol
            | Self::InvalidChar
            | Self::InvalidBoolean
            | Self::NotDescribed { .. }
            | Self::UnexpectedDescriptor { .. }
            | Self::WrongType { .. }
            | Self::TooManyFields { .. }
            | Self::SectionOutOfOrder { .. }
            | Self::MixedBody { .. } => condition::DECODE_ERROR,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a value ends behind the bytes it is part of"),
            Self::TrailingBytes => f.write_str("bytes are left behind a value's end"),
            Self::UnknownConstructor { code } => write!(f, "unknown constructor {code:#04x}"),
            Self::CountMismatch => f.write_str("the size of a compound value does not fit its count"),
            Self::OddMap => f.write_str("a map has a key without a value"),
            Self::TooDeep => f.write_str("values are nested too deeply"),
            Self::TooManyEmptyElements { count } => write!(f, "an array of {count} elements without bytes"),
            Self::InvalidText => f.write_str("a string is not UTF-8"),
            Self::InvalidSymbol => f.write_str("a symbol is not ASCII"),
            Self::InvalidChar => f.write_str("a char is not a Unicode scalar"),
            Self::InvalidBoolean => f.write_str("a boolean is neither 0 nor 1"),
            Self::NotDescribed { expected } => write!(f, "a value without descriptor instead of {expected}"),
            Self::UnexpectedDescriptor { expected, code: Some(code) } => {
                write!(f, "descriptor {code:#x} instead of {expected}")
            }
            Self::UnexpectedDescriptor { expected, code: None } => {
                write!(f, "unknown descriptor instead of {expected}")
            }
            Self::WrongType { field, code } => write!(f, "constructor {code:#04x} is no type of {field}"),
            Self::MissingField { field } => write!(f, "mandatory field {field} is missing"),
            Self::InvalidField { field: "transfer.delivery-tag" } => {
                write!(f, "field transfer.delivery-tag is longer than {DELIVERY_TAG_SIZE_MAX} bytes")
            }
            Self::InvalidField { field } => write!(f, "field {field} has none of its allowed values"),
            Self::TooManyFields { composite } => write!(f, "more fields than {composite} has"),
            Self::SectionOutOfOrder { code } => write!(f, "message section {code:#04x} out of order"),
            Self::MixedBody { code } => write!(f, "message body section {code:#04x} cannot join the body"),
            Self::MessageTooLarge => f.write_str("message too large"),
        }
    }
}

impl std::error::Error for DecodeError {}
