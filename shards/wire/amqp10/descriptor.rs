//! Which type does a descriptor name?
//!
//! Every type of the specification has a numeric and a symbolic descriptor, and peers may send either (§1.3, §1.5).

use super::error::DecodeError;
use super::reader::Reader;
use super::value::{Raw, Value};

/// The descriptor of a described value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    Code(u64),
    Symbol(&'a str),
    /// Neither an unsigned long nor a symbol: allowed, but reserved (§1.5).
    Other(Raw<'a>),
}

impl<'a> Descriptor<'a> {
    /// Reads the descriptor at the reader's place, behind the leading 0 of a described value.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let raw = Raw::read(reader)?;
        Ok(match raw.value()? {
            Value::Ulong(code) => Self::Code(code),
            Value::Symbol(name) => Self::Symbol(name),
            _ => Self::Other(raw),
        })
    }

    /// The numeric code, also of a symbol that the specification defines.
    pub fn code(&self) -> Option<u64> {
        match *self {
            Self::Code(code) => Some(code),
            Self::Symbol(name) => code_of(name).map(u64::from),
            Self::Other(_) => None,
        }
    }
}

/// Reads the leading 0 and the descriptor of a described value and returns its code, or `None` if it names a type the
/// specification does not define.
#[inline]
pub(super) fn read_code(reader: &mut Reader<'_>, expected: &'static str) -> Result<Option<u64>, DecodeError> {
    // The usual form: 0, smallulong, code.
    if let [0, 0x53, code, ..] = *reader.rest() {
        reader.take(3)?;
        return Ok(Some(u64::from(code)));
    }
    if reader.byte()? != 0 {
        return Err(DecodeError::NotDescribed { expected });
    }
    Ok(Descriptor::read(reader)?.code())
}

pub(super) const OPEN: u8 = 0x10;
pub(super) const BEGIN: u8 = 0x11;
pub(super) const ATTACH: u8 = 0x12;
pub(super) const FLOW: u8 = 0x13;
pub(super) const TRANSFER: u8 = 0x14;
pub(super) const DISPOSITION: u8 = 0x15;
pub(super) const DETACH: u8 = 0x16;
pub(super) const END: u8 = 0x17;
pub(super) const CLOSE: u8 = 0x18;
pub(super) const ERROR: u8 = 0x1d;
pub(super) const RECEIVED: u8 = 0x23;
pub(super) const ACCEPTED: u8 = 0x24;
pub(super) const REJECTED: u8 = 0x25;
pub(super) const RELEASED: u8 = 0x26;
pub(super) const MODIFIED: u8 = 0x27;
pub(super) const SOURCE: u8 = 0x28;
pub(super) const TARGET: u8 = 0x29;
pub(super) const DELETE_ON_CLOSE: u8 = 0x2b;
pub(super) const DELETE_ON_NO_LINKS: u8 = 0x2c;
pub(super) const DELETE_ON_NO_MESSAGES: u8 = 0x2d;
pub(super) const DELETE_ON_NO_LINKS_OR_MESSAGES: u8 = 0x2e;
pub(super) const COORDINATOR: u8 = 0x30;
pub(super) const DECLARE: u8 = 0x31;
pub(super) const DISCHARGE: u8 = 0x32;
pub(super) const DECLARED: u8 = 0x33;
pub(super) const TRANSACTIONAL_STATE: u8 = 0x34;
pub(super) const SASL_MECHANISMS: u8 = 0x40;
pub(super) const SASL_INIT: u8 = 0x41;
pub(super) const SASL_CHALLENGE: u8 = 0x42;
pub(super) const SASL_RESPONSE: u8 = 0x43;
pub(super) const SASL_OUTCOME: u8 = 0x44;
pub(super) const HEADER: u8 = 0x70;
pub(super) const DELIVERY_ANNOTATIONS: u8 = 0x71;
pub(super) const MESSAGE_ANNOTATIONS: u8 = 0x72;
pub(super) const PROPERTIES: u8 = 0x73;
pub(super) const APPLICATION_PROPERTIES: u8 = 0x74;
pub(super) const DATA: u8 = 0x75;
pub(super) const AMQP_SEQUENCE: u8 = 0x76;
pub(super) const AMQP_VALUE: u8 = 0x77;
pub(super) const FOOTER: u8 = 0x78;

fn code_of(name: &str) -> Option<u8> {
    Some(match name {
        "amqp:open:list" => OPEN,
        "amqp:begin:list" => BEGIN,
        "amqp:attach:list" => ATTACH,
        "amqp:flow:list" => FLOW,
        "amqp:transfer:list" => TRANSFER,
        "amqp:disposition:list" => DISPOSITION,
        "amqp:detach:list" => DETACH,
        "amqp:end:list" => END,
        "amqp:close:list" => CLOSE,
        "amqp:error:list" => ERROR,
        "amqp:received:list" => RECEIVED,
        "amqp:accepted:list" => ACCEPTED,
        "amqp:rejected:list" => REJECTED,
        "amqp:released:list" => RELEASED,
        "amqp:modified:list" => MODIFIED,
        "amqp:source:list" => SOURCE,
        "amqp:target:list" => TARGET,
        "amqp:delete-on-close:list" => DELETE_ON_CLOSE,
        "amqp:delete-on-no-links:list" => DELETE_ON_NO_LINKS,
        "amqp:delete-on-no-messages:list" => DELETE_ON_NO_MESSAGES,
        "amqp:delete-on-no-links-or-messages:list" => DELETE_ON_NO_LINKS_OR_MESSAGES,
        "amqp:coordinator:list" => COORDINATOR,
        "amqp:declare:list" => DECLARE,
        "amqp:discharge:list" => DISCHARGE,
        "amqp:declared:list" => DECLARED,
        "amqp:transactional-state:list" => TRANSACTIONAL_STATE,
        "amqp:sasl-mechanisms:list" => SASL_MECHANISMS,
        "amqp:sasl-init:list" => SASL_INIT,
        "amqp:sasl-challenge:list" => SASL_CHALLENGE,
        "amqp:sasl-response:list" => SASL_RESPONSE,
        "amqp:sasl-outcome:list" => SASL_OUTCOME,
        "amqp:header:list" => HEADER,
        "amqp:delivery-annotations:map" => DELIVERY_ANNOTATIONS,
        "amqp:message-annotations:map" => MESSAGE_ANNOTATIONS,
        "amqp:properties:list" => PROPERTIES,
        "amqp:application-properties:map" => APPLICATION_PROPERTIES,
        "amqp:data:binary" => DATA,
        "amqp:amqp-sequence:list" => AMQP_SEQUENCE,
        "amqp:amqp-value:*" => AMQP_VALUE,
        "amqp:footer:map" => FOOTER,
        _ => return None,
    })
}
