//! What did the peer do wrong, and how much does that end?
//!
//! The reply code says how much: a hard one ends the connection, a soft one its channel (§1.2). Codes and texts are RabbitMQ's where it
//! has them, since clients know these.

use std::borrow::Cow;

use corelane_wire::amqp091::{DecodeError, FrameError, MethodError, MethodId, ReplyCode, ShortStr};

use super::event::{Error, ErrorSpec};

/// A peer's fault, as it and the caller are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: ReplyCode,
    pub(super) text: Cow<'static, str>,
    /// The method that was wrong; zeros: not known yet, or none.
    pub(super) method: MethodId,
}

impl Fault {
    pub(super) fn new(code: ReplyCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into(), method: MethodId::default() }
    }

    pub(super) fn of(spec: ErrorSpec<'_>) -> Self {
        Self::new(spec.reply_code, spec.text.to_owned())
    }

    /// Names the method, unless the fault does.
    pub(super) fn by(mut self, method: MethodId) -> Self {
        if self.method == MethodId::default() {
            self.method = method;
        }
        self
    }

    /// What the peer reads.
    pub(super) fn reply_text(&self) -> String {
        format!("{} - {}", self.code, self.text)
    }

    pub(super) fn to_error(&self) -> Error<'static> {
        let text = Cow::Owned(ShortStr::cut(&self.reply_text()).as_bytes().to_vec());
        Error { reply_code: self.code.code(), text }
    }
}

impl From<FrameError> for Fault {
    #[cold]
    fn from(error: FrameError) -> Self {
        Self::new(error.reply_code(), error.to_string())
    }
}

impl From<MethodError> for Fault {
    #[cold]
    fn from(error: MethodError) -> Self {
        Self::new(error.reply_code(), error.to_string()).by(error.id)
    }
}

impl From<DecodeError> for Fault {
    #[cold]
    fn from(error: DecodeError) -> Self {
        Self::new(error.reply_code(), error.to_string())
    }
}

#[cold]
pub(super) fn unknown_delivery_tag(tag: u64) -> Fault {
    Fault::new(ReplyCode::PreconditionFailed, format!("unknown delivery tag {tag}"))
}

#[cold]
pub(super) fn unexpected_frame(text: &'static str) -> Fault {
    Fault::new(ReplyCode::UnexpectedFrame, text)
}

#[cold]
pub(super) fn links() -> Fault {
    Fault::new(ReplyCode::ResourceError, "the maximum of channels and consumers is reached")
}
