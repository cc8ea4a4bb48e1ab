//! What can be wrong with the bytes of a peer, and what is it to be told?

use std::fmt;

use super::limits::NESTING_MAX;
use super::method::MethodId;
use super::reply_code::ReplyCode;

/// Why a frame cannot be cut from the stream. The connection cannot go on after any of these (§4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Neither method, header, body nor heartbeat.
    UnknownKind { kind: u8 },
    /// More than the receiver said it takes (`tune`: frame-max). The size counts header and end.
    SizeOverMax { size: u64, max: u32 },
    /// The octet behind the payload is not 0xce.
    BadEnd { end: u8 },
    /// A heartbeat with a payload, or on a channel (§4.2.7).
    InvalidHeartbeat,
}

impl FrameError {
    /// The reply code that the peer is told.
    pub fn reply_code(&self) -> ReplyCode {
        ReplyCode::FrameError
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind { kind } => write!(f, "unknown frame type {kind}"),
            Self::SizeOverMax { size, max } => write!(f, "frame size {size} is over the maximum of {max}"),
            Self::BadEnd { end } => write!(f, "frame ends with {end:#04x} instead of 0xce"),
            Self::InvalidHeartbeat => f.write_str("a heartbeat with a payload, or on a channel"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Why a frame's payload is not what must stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A value ends behind the bytes it is part of.
    Truncated,
    /// Bytes are left where the last value must end.
    TrailingBytes,
    /// A table or array has a value of a type that there is not (§4.2.5.5).
    UnknownFieldType { letter: u8 },
    /// Tables and arrays nested deeper than [`NESTING_MAX`].
    TooDeep,
    /// A flag is set of which nobody knows how its property is encoded (§4.2.6.1).
    UnknownProperty,
    /// No class has a method of these numbers.
    UnknownMethod,
    /// A content header of another class than basic, the only one with content.
    UnexpectedClass { class_id: u16 },
    /// A content header whose weight is not zero (§4.2.6.1).
    UnexpectedWeight { weight: u16 },
}

impl DecodeError {
    /// The reply code that the peer is told. All of them end the connection.
    pub fn reply_code(&self) -> ReplyCode {
        match self {
            Self::Truncated | Self::TrailingBytes => ReplyCode::FrameError,
            Self::UnknownFieldType { .. } | Self::TooDeep | Self::UnknownProperty => ReplyCode::SyntaxError,
            Self::UnknownMethod => ReplyCode::CommandInvalid,
            Self::UnexpectedClass { .. } | Self::UnexpectedWeight { .. } => ReplyCode::UnexpectedFrame,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a value ends behind the bytes it is part of"),
            Self::TrailingBytes => f.write_str("bytes are left behind the last value"),
            Self::UnknownFieldType { letter } => {
                write!(f, "unknown field type {:?} ({letter:#04x})", char::from(*letter))
            }
            Self::TooDeep => write!(f, "tables and arrays are nested more than {NESTING_MAX} deep"),
            Self::UnknownProperty => f.write_str("a flag of an unknown property is set"),
            Self::UnknownMethod => f.write_str("unknown method"),
            Self::UnexpectedClass { class_id } => write!(f, "content header of class {class_id}"),
            Self::UnexpectedWeight { weight } => write!(f, "content header with weight {weight}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why a method cannot be read, and which one: `close` names it to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodError {
    /// Zeros if not even these were there.
    pub id: MethodId,
    pub error: DecodeError,
}

impl MethodError {
    /// The reply code that the peer is told.
    pub fn reply_code(&self) -> ReplyCode {
        self.error.reply_code()
    }
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.error)
    }
}

impl std::error::Error for MethodError {}
