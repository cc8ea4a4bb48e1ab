//! What does a SASL frame say (§5.3.3)?

use super::composite::{Field, Fields};
use super::descriptor::{self, SASL_CHALLENGE, SASL_INIT, SASL_MECHANISMS, SASL_OUTCOME, SASL_RESPONSE};
use super::encode::{Encode, ListWriter};
use super::error::DecodeError;
use super::reader::Reader;
use super::symbols::Symbols;
use super::value::Array;

/// §5.3.3.1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslMechanisms<'a> {
    pub mechanisms: Symbols<'a>,
}

/// §5.3.3.2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslInit<'a> {
    pub mechanism: &'a str,
    pub initial_response: Option<&'a [u8]>,
    pub hostname: Option<&'a str>,
}

/// §5.3.3.3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslChallenge<'a> {
    pub challenge: &'a [u8],
}

/// §5.3.3.4
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslResponse<'a> {
    pub response: &'a [u8],
}

/// §5.3.3.5
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslOutcome<'a> {
    pub code: SaslCode,
    pub additional_data: Option<&'a [u8]>,
}

/// §5.3.3.6
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslCode {
    Ok = 0,
    /// Wrong credentials.
    Auth = 1,
    /// Failed for a reason of the system's.
    Sys = 2,
    /// … that will not go away.
    SysPerm = 3,
    /// … that may go away.
    SysTemp = 4,
}

/// The body of a SASL frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslPerformative<'a> {
    Mechanisms(SaslMechanisms<'a>),
    Init(SaslInit<'a>),
    Challenge(SaslChallenge<'a>),
    Response(SaslResponse<'a>),
    Outcome(SaslOutcome<'a>),
}

impl<'a> SaslPerformative<'a> {
    /// Reads a SASL frame's body, which is one performative and nothing else (§5.3.1).
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        const EXPECTED: &str = "a SASL performative";
        let mut reader = Reader::new(body);
        let code = descriptor::read_code(&mut reader, EXPECTED)?;
        let unexpected = DecodeError::UnexpectedDescriptor { expected: EXPECTED, code };
        let Some(Ok(code)) = code.map(u8::try_from) else { return Err(unexpected) };
        let performative = Self::read(code, &mut reader)?.ok_or(unexpected)?;
        if reader.is_empty() { Ok(performative) } else { Err(DecodeError::TrailingBytes) }
    }

    fn read(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        let mut fields = Fields::read(reader, "a SASL performative")?;
        let performative = match code {
            SASL_MECHANISMS => Self::Mechanisms(SaslMechanisms {
                mechanisms: fields.mandatory("sasl-mechanisms.sasl-server-mechanisms")?,
            }),
            SASL_INIT => {
                const FIELD: &str = "sasl-init.mechanism";
                Self::Init(SaslInit {
                    mechanism: fields.symbol(FIELD)?.ok_or(DecodeError::MissingField { field: FIELD })?,
                    initial_response: fields.optional("sasl-init.initial-response")?,
                    hostname: fields.optional("sasl-init.hostname")?,
                })
            }
            SASL_CHALLENGE => {
                Self::Challenge(SaslChallenge { challenge: fields.mandatory("sasl-challenge.challenge")? })
            }
            SASL_RESPONSE => {
                Self::Response(SaslResponse { response: fields.mandatory("sasl-response.response")? })
            }
            SASL_OUTCOME => Self::Outcome(SaslOutcome {
                code: fields.mandatory("sasl-outcome.code")?,
                additional_data: fields.optional("sasl-outcome.additional-data")?,
            }),
            _ => return Ok(None),
        };
        fields.finish()?;
        Ok(Some(performative))
    }
}

impl<'a> Field<'a> for SaslCode {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(match u8::read(reader, field)? {
            0 => Self::Ok,
            1 => Self::Auth,
            2 => Self::Sys,
            3 => Self::SysPerm,
            4 => Self::SysTemp,
            _ => return Err(DecodeError::InvalidField { field }),
        })
    }
}

impl Encode for SaslPerformative<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mechanisms(mechanisms) => mechanisms.encode(out),
            Self::Init(init) => init.encode(out),
            Self::Challenge(challenge) => challenge.encode(out),
            Self::Response(response) => response.encode(out),
            Self::Outcome(outcome) => outcome.encode(out),
        }
    }
}

impl Encode for SaslMechanisms<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, SASL_MECHANISMS);
        // The field is mandatory, so no mechanisms at all are an array without elements and not a null.
        if self.mechanisms.is_empty() {
            list.field(&Array::default());
        } else {
            list.field(&self.mechanisms);
        }
        list.finish_fields();
    }
}

impl Encode for SaslInit<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, SASL_INIT);
        list.symbol(Some(self.mechanism));
        list.optional(&self.initial_response);
        list.optional(&self.hostname);
        list.finish_fields();
    }
}

impl Encode for SaslChallenge<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, SASL_CHALLENGE);
        list.field(&self.challenge);
        list.finish_fields();
    }
}

impl Encode for SaslResponse<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, SASL_RESPONSE);
        list.field(&self.response);
        list.finish_fields();
    }
}

impl Encode for SaslOutcome<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, SASL_OUTCOME);
        list.field(&(self.code as u8));
        list.optional(&self.additional_data);
        list.finish_fields();
    }
}
