//! Which protocol does a connection speak?
//!
//! A connection is taken for AMQP 1.0 until its protocol header says otherwise. What queues have to do with it goes through here,
//! whatever it speaks: bytes and time, credit, deliveries and what becomes of them. What only one protocol has is asked of that one by its
//! name, and events and messages are told apart once each, where they are taken in hand.

use corelane_protocol::amqp10::{
    self, AttachAnswer, Disposed, ErrorSpec, LinkId, Progress, SendReadiness, TransactionId,
};
use corelane_wire::amqp10::{DeliveryState, SaslCode};

/// The state machine of a connection.
#[derive(Debug)]
pub(crate) enum Protocol {
    Amqp10(amqp10::Connection),
}

/// Bytes and time.
impl Protocol {
    /// The bytes to be sent. The caller may swap the buffer for an empty one.
    #[inline]
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Protocol::Amqp10(protocol) => protocol.output(),
        }
    }

    /// Writes what was gathered.
    #[inline]
    pub(crate) fn finish_turn(&mut self, now: u64) {
        match self {
            Protocol::Amqp10(protocol) => protocol.finish_turn(now),
        }
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        match self {
            Protocol::Amqp10(protocol) => protocol.next_deadline(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        match self {
            Protocol::Amqp10(protocol) => protocol.handle_timeout(now),
        }
    }

    /// Bytes have come that have to wait.
    #[inline]
    pub(crate) fn heard(&mut self, now: u64) {
        match self {
            Protocol::Amqp10(protocol) => protocol.heard(now),
        }
    }

    pub(crate) fn set_reading(&mut self, now: u64, reading: bool) {
        match self {
            Protocol::Amqp10(protocol) => protocol.set_reading(now, reading),
        }
    }

    /// Bytes of messages of which frames are still to come.
    #[inline]
    pub(crate) fn assembled_size(&self) -> usize {
        match self {
            Protocol::Amqp10(protocol) => protocol.assembled_size(),
        }
    }

    #[inline]
    pub(crate) fn bound_assembly(&mut self, size_max: usize) {
        match self {
            Protocol::Amqp10(protocol) => protocol.bound_assembly(size_max),
        }
    }

    /// Takes a message's buffer back.
    #[inline]
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        match self {
            Protocol::Amqp10(protocol) => protocol.recycle(buffer),
        }
    }

    /// Closes the connection, for no fault of the peer's.
    pub(crate) fn close_forced(&mut self, description: &str) {
        match self {
            Protocol::Amqp10(protocol) => {
                protocol.close(Some(ErrorSpec { condition: "amqp:connection:forced", description }));
            }
        }
    }
}

/// Who it is.
impl Protocol {
    pub(crate) fn sasl_challenge(&mut self, challenge: &[u8]) {
        match self {
            Protocol::Amqp10(protocol) => protocol.sasl_challenge(challenge),
        }
    }

    pub(crate) fn accept_credentials(&mut self, additional_data: Option<&[u8]>) {
        match self {
            Protocol::Amqp10(protocol) => protocol.sasl_outcome(SaslCode::Ok, additional_data),
        }
    }

    pub(crate) fn refuse_credentials(&mut self) {
        match self {
            Protocol::Amqp10(protocol) => protocol.sasl_outcome(SaslCode::Auth, None),
        }
    }
}

/// Links on which we send.
impl Protocol {
    #[inline]
    pub(crate) fn can_send(&self, link: LinkId) -> SendReadiness {
        match self {
            Protocol::Amqp10(protocol) => protocol.can_send(link),
        }
    }

    /// Messages that may be sent.
    #[inline]
    pub(crate) fn credit(&self, link: LinkId) -> u32 {
        match self {
            Protocol::Amqp10(protocol) => protocol.credit(link),
        }
    }

    /// The deliveries that the peer's last disposition is about, one after the other.
    #[inline]
    pub(crate) fn poll_outcome(&mut self) -> Option<Disposed> {
        match self {
            Protocol::Amqp10(protocol) => protocol.poll_outcome(),
        }
    }

    /// What the peer calls the link.
    pub(crate) fn link_name(&self, link: LinkId) -> Option<&str> {
        match self {
            Protocol::Amqp10(protocol) => protocol.link_name(link),
        }
    }
}

/// What only AMQP 1.0 has. Nothing that speaks another protocol has links of which it is asked for.
macro_rules! amqp10_alone {
    ($(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*);)*) => {
        impl Protocol {
            $(
                #[inline]
                pub(crate) fn $name(&mut self $(, $argument: $type)*) {
                    match self {
                        Protocol::Amqp10(protocol) => protocol.$name($($argument),*),
                    }
                }
            )*
        }
    };
}

amqp10_alone! {
    fn accept_open(&mut self);
    fn accept_attach(&mut self, link: LinkId, answer: &AttachAnswer<'_>);
    fn refuse_attach(&mut self, link: LinkId, error: ErrorSpec<'_>);
    fn detach(&mut self, link: LinkId, closed: bool, error: Option<ErrorSpec<'_>>);
    fn grant_credit(&mut self, link: LinkId, credit: u32, drain: bool);
    fn drained(&mut self, link: LinkId);
    fn settle(&mut self, link: LinkId, delivery_id: u32, state: &DeliveryState<'_>);
    fn settle_sent(&mut self, link: LinkId, delivery_id: u32, outcome: Option<&DeliveryState<'_>>);
    fn set_transaction(&mut self, link: LinkId, transaction: Option<TransactionId>);
    fn write_outcomes(&mut self);
    fn close(&mut self, error: Option<ErrorSpec<'_>>);
    fn abort(&mut self, link: LinkId);
}

impl Protocol {
    /// The transaction in which a link acquires.
    #[inline]
    pub(crate) fn transaction(&self, link: LinkId) -> Option<TransactionId> {
        match self {
            Protocol::Amqp10(protocol) => protocol.transaction(link),
        }
    }

    /// Outcomes were about deliveries that are not unsettled.
    #[inline]
    pub(crate) fn has_missed_outcomes(&self) -> bool {
        match self {
            Protocol::Amqp10(protocol) => protocol.has_missed_outcomes(),
        }
    }

    /// A message of this transaction has arrived in part only.
    #[inline]
    pub(crate) fn is_posting(&self, transaction: &TransactionId) -> bool {
        match self {
            Protocol::Amqp10(protocol) => protocol.is_posting(transaction),
        }
    }

    /// More of a message that is written in part.
    #[inline]
    pub(crate) fn send_more(&mut self, link: LinkId, remaining: &[u8]) -> Progress {
        match self {
            Protocol::Amqp10(protocol) => protocol.send_more(link, remaining),
        }
    }
}
