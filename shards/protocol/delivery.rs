//! What is said of one message on a link, whichever version the peer speaks?

use crate::ids::{LinkId, Token};

/// The bytes of a received message: with 1.0 all sections, with 0-9-1 the body.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Of a single frame.
    Slice(&'a [u8]),
    /// Of several frames. The connection's `recycle` takes the buffer back.
    Assembled(Vec<u8>),
}

impl Payload<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Assembled(bytes) => bytes,
        }
    }
}

/// What a connection's `send` and `send_more` have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of it. `settled`: there will be no outcome.
    Complete { delivery_id: u32, settled: bool },
    /// So many bytes of what this call was given; `send_more` wants the others. None is possible: the window is used up.
    Partial { delivery_id: u32, written: usize },
    /// More than the peer's max-message-size (AMQP 1.0 §2.7.3). Nothing was written.
    TooLarge,
    /// Nothing was written, and why.
    NotReady(SendReadiness),
}

/// May a message be sent on a link now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendReadiness {
    Ready,
    /// A `LinkFlow` tells when that changes.
    NoCredit,
    /// A `SessionFlow` tells when that changes.
    NoWindow,
    /// A delivery is written in part: `send_more` or `abort`.
    Busy,
    /// Not attached, or not a link that we send on.
    Detached,
}

/// The fate of one delivery that we sent; what became of it is in the `Disposition` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposed {
    pub link: LinkId,
    pub token: Token,
    pub delivery_id: u32,
    /// The delivery is done with. Otherwise its outcome is provisional, inside a transaction (AMQP 1.0 §4.4.4), and the
    /// caller ends it by `settle_sent`.
    pub settled: bool,
}
