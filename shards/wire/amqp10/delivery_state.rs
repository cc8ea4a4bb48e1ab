//! What became of a delivery?
//!
//! An outcome is a delivery state that is final (§3.4). A transaction wraps an outcome that takes effect when it
//! commits (§4.4.4). Here too stands the error (§2.8.14), which rejections and closings carry.

use super::composite::{Field, Fields};
use super::descriptor::{
    self, ACCEPTED, DECLARED, ERROR, MODIFIED, RECEIVED, REJECTED, RELEASED, TRANSACTIONAL_STATE,
};
use super::encode::{Encode, ListWriter};
use super::error::DecodeError;
use super::reader::Reader;
use super::value::Map;

/// Why a delivery was rejected, or a link, session or connection ended (§2.8.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Error<'a> {
    pub condition: &'a str,
    pub description: Option<&'a str>,
    pub info: Option<Map<'a>>,
}

impl<'a> Error<'a> {
    pub fn new(condition: &'a str, description: &'a str) -> Self {
        Self { condition, description: (!description.is_empty()).then_some(description), info: None }
    }
}

impl<'a> Field<'a> for Error<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        let mut fields = Fields::described(reader, ERROR, "error")?;
        let condition = fields.symbol("error.condition")?;
        let error = Self {
            condition: condition.ok_or(DecodeError::MissingField { field: "error.condition" })?,
            description: fields.optional("error.description")?,
            info: fields.optional("error.info")?,
        };
        fields.finish()?;
        Ok(error)
    }
}

impl Encode for Error<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, ERROR);
        list.symbol(Some(self.condition));
        list.optional(&self.description);
        list.optional(&self.info);
        list.finish_fields();
    }
}

/// How much of a delivery the receiver has, for resuming it (§3.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub section_number: u32,
    pub section_offset: u64,
}

/// Given back with changes (§3.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modified<'a> {
    pub delivery_failed: bool,
    pub undeliverable_here: bool,
    pub message_annotations: Option<Map<'a>>,
}

/// A final state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    Accepted,
    Rejected {
        error: Option<Error<'a>>,
    },
    Released,
    Modified(Modified<'a>),
    /// A transaction was begun: the outcome of a declare (§4.5.5).
    Declared {
        transaction: &'a [u8],
    },
}

/// Any state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState<'a> {
    Received(Received),
    Accepted,
    Rejected { error: Option<Error<'a>> },
    Released,
    Modified(Modified<'a>),
    Declared { transaction: &'a [u8] },
    Transactional { transaction: &'a [u8], outcome: Option<Outcome<'a>> },
}

impl<'a> DeliveryState<'a> {
    /// Reads a described delivery state.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        // Nearly every disposition says accepted without fields.
        if let [0x00, 0x53, ACCEPTED, 0x45, ..] = *reader.rest() {
            reader.take(4)?;
            return Ok(Self::Accepted);
        }
        Self::read_any(reader)
    }

    fn read_any(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        const EXPECTED: &str = "a delivery state";
        let code = descriptor::read_code(reader, EXPECTED)?;
        let unexpected = DecodeError::UnexpectedDescriptor { expected: EXPECTED, code };
        let Some(Ok(code)) = code.map(u8::try_from) else { return Err(unexpected) };
        if code == RECEIVED {
            return read_received(reader).map(Self::Received);
        }
        if code == TRANSACTIONAL_STATE {
            return read_transactional(reader);
        }
        read_outcome(code, reader)?.map(Self::from).ok_or(unexpected)
    }

    /// The state as an outcome. `None` if it is not final, or final only once its transaction commits.
    pub fn outcome(&self) -> Option<Outcome<'a>> {
        match *self {
            Self::Accepted => Some(Outcome::Accepted),
            Self::Rejected { error } => Some(Outcome::Rejected { error }),
            Self::Released => Some(Outcome::Released),
            Self::Modified(modified) => Some(Outcome::Modified(modified)),
            Self::Declared { transaction } => Some(Outcome::Declared { transaction }),
            Self::Received(_) | Self::Transactional { .. } => None,
        }
    }
}

impl<'a> From<Outcome<'a>> for DeliveryState<'a> {
    fn from(outcome: Outcome<'a>) -> Self {
        match outcome {
            Outcome::Accepted => Self::Accepted,
            Outcome::Rejected { error } => Self::Rejected { error },
            Outcome::Released => Self::Released,
            Outcome::Modified(modified) => Self::Modified(modified),
            Outcome::Declared { transaction } => Self::Declared { transaction },
        }
    }
}

impl<'a> Field<'a> for DeliveryState<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        DeliveryState::read(reader)
    }
}

impl<'a> Field<'a> for Outcome<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        const EXPECTED: &str = "an outcome";
        let code = descriptor::read_code(reader, EXPECTED)?;
        let unexpected = DecodeError::UnexpectedDescriptor { expected: EXPECTED, code };
        let Some(Ok(code)) = code.map(u8::try_from) else { return Err(unexpected) };
        read_outcome(code, reader)?.ok_or(unexpected)
    }
}

fn read_received(reader: &mut Reader<'_>) -> Result<Received, DecodeError> {
    let mut fields = Fields::read(reader, "received")?;
    let received = Received {
        section_number: fields.mandatory("received.section-number")?,
        section_offset: fields.mandatory("received.section-offset")?,
    };
    fields.finish()?;
    Ok(received)
}

fn read_transactional<'a>(reader: &mut Reader<'a>) -> Result<DeliveryState<'a>, DecodeError> {
    let mut fields = Fields::read(reader, "transactional-state")?;
    let state = DeliveryState::Transactional {
        transaction: fields.mandatory("transactional-state.txn-id")?,
        outcome: fields.optional("transactional-state.outcome")?,
    };
    fields.finish()?;
    Ok(state)
}

/// Reads the list of an outcome of the type `code`; `None` if that is no outcome.
fn read_outcome<'a>(code: u8, reader: &mut Reader<'a>) -> Result<Option<Outcome<'a>>, DecodeError> {
    let (outcome, fields) = match code {
        ACCEPTED => (Outcome::Accepted, Fields::read(reader, "accepted")?),
        RELEASED => (Outcome::Released, Fields::read(reader, "released")?),
        REJECTED => {
            let mut fields = Fields::read(reader, "rejected")?;
            (Outcome::Rejected { error: fields.optional("rejected.error")? }, fields)
        }
        MODIFIED => {
            let mut fields = Fields::read(reader, "modified")?;
            let modified = Modified {
                delivery_failed: fields.or("modified.delivery-failed", false)?,
                undeliverable_here: fields.or("modified.undeliverable-here", false)?,
                message_annotations: fields.optional("modified.message-annotations")?,
            };
            (Outcome::Modified(modified), fields)
        }
        DECLARED => {
            let mut fields = Fields::read(reader, "declared")?;
            (Outcome::Declared { transaction: fields.mandatory("declared.txn-id")? }, fields)
        }
        _ => return Ok(None),
    };
    fields.finish()?;
    Ok(Some(outcome))
}

impl Encode for Outcome<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Accepted => out.extend_from_slice(&[0x00, 0x53, ACCEPTED, 0x45]),
            Self::Released => out.extend_from_slice(&[0x00, 0x53, RELEASED, 0x45]),
            Self::Rejected { error } => {
                let mut list = ListWriter::described(out, REJECTED);
                list.optional(&error);
                list.finish_fields();
            }
            Self::Modified(modified) => {
                let mut list = ListWriter::described(out, MODIFIED);
                list.unless(modified.delivery_failed, false);
                list.unless(modified.undeliverable_here, false);
                list.optional(&modified.message_annotations);
                list.finish_fields();
            }
            Self::Declared { transaction } => {
                let mut list = ListWriter::described(out, DECLARED);
                list.field(&transaction);
                list.finish_fields();
            }
        }
    }
}

impl Encode for DeliveryState<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Received(received) => {
                let mut list = ListWriter::described(out, RECEIVED);
                list.field(&received.section_number);
                list.field(&received.section_offset);
                list.finish_fields();
            }
            Self::Transactional { transaction, outcome } => {
                let mut list = ListWriter::described(out, TRANSACTIONAL_STATE);
                list.field(&transaction);
                list.optional(&outcome);
                list.finish_fields();
            }
            Self::Accepted => Outcome::Accepted.encode(out),
            Self::Released => Outcome::Released.encode(out),
            Self::Rejected { error } => Outcome::Rejected { error }.encode(out),
            Self::Modified(modified) => Outcome::Modified(modified).encode(out),
            Self::Declared { transaction } => Outcome::Declared { transaction }.encode(out),
        }
    }
}
