//! What does a peer hear when something went wrong (§1.2)?

use std::fmt;

/// The codes of `connection.close`, `channel.close` and `basic.return`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ReplyCode {
    ReplySuccess = 200,
    ContentTooLarge = 311,
    /// A mandatory message that goes nowhere is returned with it.
    NoRoute = 312,
    NoConsumers = 313,
    ConnectionForced = 320,
    InvalidPath = 402,
    AccessRefused = 403,
    NotFound = 404,
    ResourceLocked = 405,
    PreconditionFailed = 406,
    FrameError = 501,
    SyntaxError = 502,
    CommandInvalid = 503,
    ChannelError = 504,
    UnexpectedFrame = 505,
    ResourceError = 506,
    NotAllowed = 530,
    NotImplemented = 540,
    InternalError = 541,
}

impl ReplyCode {
    pub const ALL: [Self; 19] = [
        Self::ReplySuccess,
        Self::ContentTooLarge,
        Self::NoRoute,
        Self::NoConsumers,
        Self::ConnectionForced,
        Self::InvalidPath,
        Self::AccessRefused,
        Self::NotFound,
        Self::ResourceLocked,
        Self::PreconditionFailed,
        Self::FrameError,
        Self::SyntaxError,
        Self::CommandInvalid,
        Self::ChannelError,
        Self::UnexpectedFrame,
        Self::ResourceError,
        Self::NotAllowed,
        Self::NotImplemented,
        Self::InternalError,
    ];

    pub fn code(self) -> u16 {
        self as u16
    }

    /// The code that a peer has sent, or `None` if the specification does not have it.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }

    /// Whether it ends the whole connection; others end their channel, or return a message.
    pub fn is_hard(self) -> bool {
        match self {
            Self::ConnectionForced
            | Self::InvalidPath
            | Self::FrameError
            | Self::SyntaxError
            | Self::CommandInvalid
            | Self::ChannelError
            | Self::UnexpectedFrame
            | Self::ResourceError
            | Self::NotAllowed
            | Self::NotImplemented
            | Self::InternalError => true,
            Self::ReplySuccess
            | Self::ContentTooLarge
            | Self::NoRoute
            | Self::NoConsumers
            | Self::AccessRefused
            | Self::NotFound
            | Self::ResourceLocked
            | Self::PreconditionFailed => false,
        }
    }

    /// The constant's name as RabbitMQ begins its reply texts with it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplySuccess => "REPLY_SUCCESS",
            Self::ContentTooLarge => "CONTENT_TOO_LARGE",
            Self::NoRoute => "NO_ROUTE",
            Self::NoConsumers => "NO_CONSUMERS",
            Self::ConnectionForced => "CONNECTION_FORCED",
            Self::InvalidPath => "INVALID_PATH",
            Self::AccessRefused => "ACCESS_REFUSED",
            Self::NotFound => "NOT_FOUND",
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::FrameError => "FRAME_ERROR",
            Self::SyntaxError => "SYNTAX_ERROR",
            Self::CommandInvalid => "COMMAND_INVALID",
            Self::ChannelError => "CHANNEL_ERROR",
            Self::UnexpectedFrame => "UNEXPECTED_FRAME",
            Self::ResourceError => "RESOURCE_ERROR",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotImplemented => "NOT_IMPLEMENTED",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }
}

impl fmt::Display for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
