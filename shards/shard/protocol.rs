//! Which protocol does a connection speak?
//!
//! A connection is taken for AMQP 1.0 until its protocol header says otherwise. What queues have to do with it goes through here,
//! whatever it speaks: bytes and time, credit, deliveries and what becomes of them. What only one protocol has is asked of that one by its
//! name, and events and messages are told apart once each, where they are taken in hand.

use std::sync::Arc;

use corelane_protocol::amqp10::{self, AttachAnswer, ErrorSpec, TransactionId};
use corelane_protocol::{Disposed, LinkId, Progress, SendReadiness, amqp091};
use corelane_wire::amqp10::{DeliveryState, ProtocolHeader, ProtocolId, SaslCode};
use corelane_wire::amqp091::ReplyCode;

/// What connections are offered and held to, by what they speak.
#[derive(Clone, Debug)]
pub struct Offers {
    pub amqp10: Arc<amqp10::Config>,
    pub amqp091: Arc<amqp091::Config>,
}

/// The state machine of a connection.
#[derive(Debug)]
pub(crate) enum Protocol {
    Amqp10(amqp10::Connection),
    Amqp091(amqp091::Connection),
}

impl Protocol {
    /// Before its peer has said anything.
    pub(crate) fn new(offers: &Offers, now: u64) -> Self {
        Protocol::Amqp10(amqp10::Connection::server(offers.amqp10.clone(), now))
    }

    /// Whether these first bytes of a peer, or what they are the beginning of, are for another protocol than AMQP 1.0. One that says that it
    /// is an older AMQP than 0-9-1 is told of that.
    pub(crate) fn wants_amqp091(&self, input: &[u8]) -> bool {
        let Protocol::Amqp10(protocol) = self else { return false };
        let Some(bytes) =
            input.first_chunk::<{ ProtocolHeader::SIZE }>().filter(|_| protocol.awaits_header())
        else {
            return false;
        };
        match ProtocolHeader::parse(bytes) {
            Some(ProtocolHeader { id: ProtocolId::Amqp091, .. }) => true,
            Some(ProtocolHeader { id: ProtocolId::Other(1), version }) => version[0] == 1,
            Some(_) | None => false,
        }
    }
}

/// Bytes and time.
impl Protocol {
    /// The bytes to be sent. The caller may swap the buffer for an empty one.
    #[inline]
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Protocol::Amqp10(protocol) => protocol.output(),
            Protocol::Amqp091(protocol) => protocol.output(),
        }
    }

    /// Writes what was gathered.
    #[inline]
    pub(crate) fn finish_turn(&mut self, now: u64) {
        match self {
            Protocol::Amqp10(protocol) => protocol.finish_turn(now),
            Protocol::Amqp091(protocol) => protocol.finish_turn(now),
        }
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        match self {
            Protocol::Amqp10(protocol) => protocol.next_deadline(),
            Protocol::Amqp091(protocol) => protocol.next_deadline(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        match self {
            Protocol::Amqp10(protocol) => protocol.handle_timeout(now),
            Protocol::Amqp091(protocol) => protocol.handle_timeout(now),
        }
    }

    /// Bytes have come that have to wait.
    #[inline]
    pub(crate) fn heard(&mut self, now: u64) {
        match self {
            Protocol::Amqp10(protocol) => protocol.heard(now),
            Protocol::Amqp091(protocol) => protocol.heard(now),
        }
    }

    pub(crate) fn set_reading(&mut self, now: u64, reading: bool) {
        match self {
            Protocol::Amqp10(protocol) => protocol.set_reading(now, reading),
            Protocol::Amqp091(protocol) => protocol.set_reading(now, reading),
        }
    }

    /// It takes no more input before it is told something.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Protocol::Amqp10(_) => false,
            Protocol::Amqp091(protocol) => protocol.is_full(),
        }
    }

    /// Frames that have waited for an answer can be looked at.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        match self {
            Protocol::Amqp10(_) => false,
            Protocol::Amqp091(protocol) => protocol.has_parked(),
        }
    }

    /// Bytes of messages of which frames are still to come.
    #[inline]
    pub(crate) fn assembled_size(&self) -> usize {
        match self {
            Protocol::Amqp10(protocol) => protocol.assembled_size(),
            Protocol::Amqp091(protocol) => protocol.assembled_size(),
        }
    }

    #[inline]
    pub(crate) fn bound_assembly(&mut self, size_max: usize) {
        match self {
            Protocol::Amqp10(protocol) => protocol.bound_assembly(size_max),
            Protocol::Amqp091(protocol) => protocol.bound_assembly(size_max),
        }
    }

    /// Takes a message's buffer back.
    #[inline]
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        match self {
            Protocol::Amqp10(protocol) => protocol.recycle(buffer),
            Protocol::Amqp091(protocol) => protocol.recycle(buffer),
        }
    }

    /// Closes the connection, for no fault of the peer's.
    pub(crate) fn close_forced(&mut self, description: &str) {
        match self {
            Protocol::Amqp10(protocol) => {
                protocol.close(Some(ErrorSpec { condition: "amqp:connection:forced", description }));
            }
            Protocol::Amqp091(protocol) => {
                let reply_code = ReplyCode::ConnectionForced;
                protocol.close(Some(amqp091::ErrorSpec { reply_code, text: description }));
            }
        }
    }
}

/// Who it is.
impl Protocol {
    pub(crate) fn sasl_challenge(&mut self, challenge: &[u8]) {
        match self {
            Protocol::Amqp10(protocol) => protocol.sasl_challenge(challenge),
            Protocol::Amqp091(protocol) => protocol.sasl_challenge(challenge),
        }
    }

    /// 0-9-1 has no place for what the mechanism says at the end.
    pub(crate) fn accept_credentials(&mut self, additional_data: Option<&[u8]>) {
        match self {
            Protocol::Amqp10(protocol) => protocol.sasl_outcome(SaslCode::Ok, additional_data),
            Protocol::Amqp091(protocol) => protocol.sasl_outcome(true),
        }
    }

    pub(crate) fn refuse_credentials(&mut self) {
        match self {
            Protocol::Amqp10(protocol) => protocol.sasl_outcome(SaslCode::Auth, None),
            Protocol::Amqp091(protocol) => protocol.sasl_outcome(false),
        }
    }
}

/// Links on which we send.
impl Protocol {
    #[inline]
    pub(crate) fn can_send(&self, link: LinkId) -> SendReadiness {
        match self {
            Protocol::Amqp10(protocol) => protocol.can_send(link),
            Protocol::Amqp091(protocol) => protocol.can_send(link),
        }
    }

    /// Messages that may be sent.
    #[inline]
    pub(crate) fn credit(&self, link: LinkId) -> u32 {
        match self {
            Protocol::Amqp10(protocol) => protocol.credit(link),
            Protocol::Amqp091(protocol) => protocol.credit(link),
        }
    }

    /// The deliveries that the peer's last disposition is about, one after the other.
    #[inline]
    pub(crate) fn poll_outcome(&mut self) -> Option<Disposed> {
        match self {
            Protocol::Amqp10(protocol) => protocol.poll_outcome(),
            Protocol::Amqp091(protocol) => protocol.poll_outcome(),
        }
    }

    /// Nothing is left to send (AMQP 1.0 §2.6.7), or for the `get` of a channel.
    pub(crate) fn drained(&mut self, link: LinkId) {
        match self {
            Protocol::Amqp10(protocol) => protocol.drained(link),
            Protocol::Amqp091(protocol) => protocol.get_empty(link),
        }
    }

    /// The consumer of a link is gone.
    pub(crate) fn end_consumer(&mut self, link: LinkId, error: ErrorSpec<'_>) {
        match self {
            Protocol::Amqp10(protocol) => protocol.detach(link, true, Some(error)),
            Protocol::Amqp091(protocol) => {
                // One that has asked for a message is told that there is none.
                protocol.get_empty(link);
                protocol.cancel(link);
            }
        }
    }

    /// What the peer calls the link.
    pub(crate) fn link_name(&self, link: LinkId) -> Option<&str> {
        match self {
            Protocol::Amqp10(protocol) => protocol.link_name(link),
            Protocol::Amqp091(protocol) => protocol.link_name(link),
        }
    }
}

/// Links on which we receive.
impl Protocol {
    /// The peer shall send no more on a link for now. A channel cannot be told that: its connection is.
    pub(crate) fn stop_producer(&mut self, link: LinkId) {
        match self {
            Protocol::Amqp10(protocol) => protocol.grant_credit(link, 0, false),
            Protocol::Amqp091(protocol) => protocol.set_blocked(Some("a queue is full")),
        }
    }

    /// The peer may send so many messages.
    #[inline]
    pub(crate) fn grant_credit(&mut self, link: LinkId, credit: u32, drain: bool) {
        match self {
            Protocol::Amqp10(protocol) => protocol.grant_credit(link, credit, drain),
            Protocol::Amqp091(_) => {}
        }
    }
}

/// What only AMQP 1.0 has. A connection that speaks another protocol has no links for which it is asked.
macro_rules! amqp10_alone {
    ($(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*);)*) => {
        impl Protocol {
            $(
                #[inline]
                pub(crate) fn $name(&mut self $(, $argument: $type)*) {
                    match self {
                        Protocol::Amqp10(protocol) => protocol.$name($($argument),*),
                        Protocol::Amqp091(_) => {}
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
            Protocol::Amqp091(_) => None,
        }
    }

    /// Outcomes were about deliveries that are not unsettled.
    #[inline]
    pub(crate) fn has_missed_outcomes(&self) -> bool {
        match self {
            Protocol::Amqp10(protocol) => protocol.has_missed_outcomes(),
            Protocol::Amqp091(_) => false,
        }
    }

    /// A message of this transaction has arrived in part only.
    #[inline]
    pub(crate) fn is_posting(&self, transaction: &TransactionId) -> bool {
        match self {
            Protocol::Amqp10(protocol) => protocol.is_posting(transaction),
            Protocol::Amqp091(_) => false,
        }
    }

    /// More of a message that is written in part.
    #[inline]
    pub(crate) fn send_more(&mut self, link: LinkId, remaining: &[u8]) -> Progress {
        match self {
            Protocol::Amqp10(protocol) => protocol.send_more(link, remaining),
            // Its messages are written whole.
            Protocol::Amqp091(_) => Progress::NotReady(SendReadiness::Detached),
        }
    }
}
