//! What did the peer do wrong, and how much does that end?

use corelane_wire::amqp10::Error;

/// A peer's fault. `description` is told to the peer and to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) condition: &'static str,
    pub(super) description: &'static str,
}

/// How much a fault ends. The numbers are slots of this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Link(usize),
    Session(usize),
    Connection,
}

/// A fault and what it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) scope: Scope,
    pub(super) fault: Fault,
}

impl Fault {
    pub(super) const fn new(condition: &'static str, description: &'static str) -> Self {
        Self { condition, description }
    }

    pub(super) fn to_error(self) -> Error<'static> {
        Error::new(self.condition, self.description)
    }

    pub(super) fn on_link(self, link: usize) -> Failure {
        Failure { scope: Scope::Link(link), fault: self }
    }

    pub(super) fn on_session(self, session: usize) -> Failure {
        Failure { scope: Scope::Session(session), fault: self }
    }

    pub(super) fn on_connection(self) -> Failure {
        Failure { scope: Scope::Connection, fault: self }
    }
}

// AMQP 1.0 §2.8.15 to §2.8.18: the conditions the specification names, and what we say about them.

pub(super) const BEFORE_OPEN: Fault = Fault::new("amqp:illegal-state", "a frame before the open");
pub(super) const OPENED_TWICE: Fault = Fault::new("amqp:illegal-state", "a second open");
pub(super) const CHANNEL_IN_USE: Fault =
    Fault::new("amqp:illegal-state", "a begin on a channel that has a session");
pub(super) const CHANNEL_UNUSED: Fault =
    Fault::new("amqp:illegal-state", "a frame on a channel that has no session");
pub(super) const CHANNEL_TOO_HIGH: Fault =
    Fault::new("amqp:connection:framing-error", "a channel above the channel-max");
pub(super) const REMOTE_CHANNEL_UNKNOWN: Fault =
    Fault::new("amqp:invalid-field", "a begin that answers none of ours");
pub(super) const CHANNELS_EXHAUSTED: Fault =
    Fault::new("amqp:resource-limit-exceeded", "the peer's channel-max leaves no channel for the answer");
pub(super) const HANDLE_TOO_HIGH: Fault =
    Fault::new("amqp:connection:framing-error", "a handle above the handle-max");
pub(super) const HEADER: Fault = Fault::new("amqp:not-implemented", "the peer speaks another protocol");
pub(super) const SASL: Fault = Fault::new("amqp:unauthorized-access", "the SASL exchange failed");
pub(super) const SASL_FRAME: Fault =
    Fault::new("amqp:connection:framing-error", "a SASL frame behind the SASL layer");
pub(super) const FRAME: Fault = Fault::new("amqp:connection:framing-error", "a malformed or oversized frame");
pub(super) const DECODE: Fault = Fault::new("amqp:decode-error", "a frame body that cannot be decoded");
pub(super) const IDLE: Fault =
    Fault::new("amqp:resource-limit-exceeded", "nothing was received within the idle timeout");
pub(super) const IDLE_TIME_OUT_TOO_SHORT: Fault = Fault::new(
    "amqp:invalid-field",
    "an idle-time-out below 100 ms is not supported; 0 or an absent one means none",
);
pub(super) const HANDSHAKE: Fault =
    Fault::new("amqp:resource-limit-exceeded", "no open was received within the handshake timeout");

pub(super) const HANDLE_IN_USE: Fault =
    Fault::new("amqp:session:handle-in-use", "an attach with a handle that is attached");
pub(super) const HANDLE_UNATTACHED: Fault =
    Fault::new("amqp:session:unattached-handle", "a frame with a handle that is not attached");
pub(super) const WINDOW: Fault =
    Fault::new("amqp:session:window-violation", "a transfer beyond the session's incoming window");
pub(super) const ERRANT_LINK: Fault = Fault::new(
    "amqp:session:errant-link",
    "a transfer beyond the credit of a link that was detached with an error",
);
pub(super) const DELIVERY_ID_ORDER: Fault =
    Fault::new("amqp:invalid-field", "a delivery-id that is not behind the one before it");
pub(super) const UNSETTLED_SPAN: Fault =
    Fault::new("amqp:resource-limit-exceeded", "the oldest unsettled delivery is 2^31 deliveries behind");
pub(super) const UNSETTLED: Fault =
    Fault::new("amqp:resource-limit-exceeded", "too many deliveries that are not settled");
pub(super) const LINKS_REFUSED: Fault =
    Fault::new("amqp:resource-limit-exceeded", "attaches go on above the maximum of links");
pub(super) const HANDLES_EXHAUSTED: Fault =
    Fault::new("amqp:resource-limit-exceeded", "the peer's handle-max leaves no handle for the answer");
pub(super) const FRAME_TOO_SMALL: Fault =
    Fault::new("amqp:frame-size-too-small", "the answer does not fit the peer's max-frame-size");

pub(super) const REFUSED: Fault = Fault::new("amqp:not-allowed", "the link was refused");
pub(super) const LINKS: Fault = Fault::new("amqp:resource-limit-exceeded", "the maximum of links is reached");
pub(super) const CREDIT: Fault =
    Fault::new("amqp:link:transfer-limit-exceeded", "a transfer beyond the link's credit");
pub(super) const MESSAGE_SIZE: Fault =
    Fault::new("amqp:link:message-size-exceeded", "a message larger than the max-message-size");
pub(super) const ASSEMBLY_SIZE: Fault = Fault::new(
    "amqp:resource-limit-exceeded",
    "more bytes of unfinished deliveries than there is memory for",
);
pub(super) const STOLEN: Fault = Fault::new("amqp:link:stolen", "the link was attached again elsewhere");
pub(super) const WRONG_DIRECTION: Fault =
    Fault::new("amqp:not-allowed", "a transfer on a link that we send on");
pub(super) const TAG_IN_USE: Fault =
    Fault::new("amqp:invalid-field", "a delivery-tag that an unsettled delivery of the link has");
pub(super) const DELIVERY_ID_MISSING: Fault =
    Fault::new("amqp:invalid-field", "a delivery's first transfer without delivery-id");
pub(super) const DELIVERY_TAG_MISSING: Fault =
    Fault::new("amqp:invalid-field", "a delivery's first transfer without delivery-tag");
pub(super) const DELIVERY_ID_CHANGED: Fault = Fault::new(
    "amqp:invalid-field",
    "a transfer that names another delivery-id than the delivery it goes on with",
);
pub(super) const SETTLE_MODE: Fault =
    Fault::new("amqp:invalid-field", "rcv-settle-mode second on a link of mode first");
