//! What does a message to a coordinator ask for (§4.5)?

use super::composite::Fields;
use super::descriptor::{self, DECLARE, DISCHARGE};
use super::encode::{Encode, ListWriter};
use super::error::DecodeError;
use super::reader::Reader;
use super::value::Raw;

/// Begin a transaction (§4.5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declare<'a> {
    /// Of a distributed transaction; absent in a local one.
    pub global_id: Option<Raw<'a>>,
}

/// End a transaction (§4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discharge<'a> {
    pub transaction: &'a [u8],
    /// Roll back instead of commit.
    pub fail: bool,
}

/// What stands in the amqp-value section of a message to a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionRequest<'a> {
    Declare(Declare<'a>),
    Discharge(Discharge<'a>),
}

impl<'a> TransactionRequest<'a> {
    /// Reads the encoded value of the section.
    pub fn decode(value: &'a [u8]) -> Result<Self, DecodeError> {
        const EXPECTED: &str = "a declare or discharge";
        let mut reader = Reader::new(value);
        let code = descriptor::read_code(&mut reader, EXPECTED)?;
        let request = match code.and_then(|code| u8::try_from(code).ok()) {
            Some(DECLARE) => {
                let mut fields = Fields::read(&mut reader, "declare")?;
                let declare = Declare { global_id: fields.optional("declare.global-id")? };
                fields.finish()?;
                Self::Declare(declare)
            }
            Some(DISCHARGE) => {
                let mut fields = Fields::read(&mut reader, "discharge")?;
                let discharge = Discharge {
                    transaction: fields.mandatory("discharge.txn-id")?,
                    fail: fields.or("discharge.fail", false)?,
                };
                fields.finish()?;
                Self::Discharge(discharge)
            }
            _ => return Err(DecodeError::UnexpectedDescriptor { expected: EXPECTED, code }),
        };
        if reader.is_empty() { Ok(request) } else { Err(DecodeError::TrailingBytes) }
    }
}

impl Encode for TransactionRequest<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Declare(declare) => {
                let mut list = ListWriter::described(out, DECLARE);
                list.optional(&declare.global_id);
                list.finish_fields();
            }
            Self::Discharge(discharge) => {
                let mut list = ListWriter::described(out, DISCHARGE);
                list.field(&discharge.transaction);
                list.unless(discharge.fail, false);
                list.finish_fields();
            }
        }
    }
}
