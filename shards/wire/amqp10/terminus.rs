//! What does a link connect, and how long do its ends live (§3.5)?

use super::composite::{Field, Fields};
use super::delivery_state::Outcome;
use super::descriptor::{
    self, COORDINATOR, DELETE_ON_CLOSE, DELETE_ON_NO_LINKS, DELETE_ON_NO_LINKS_OR_MESSAGES,
    DELETE_ON_NO_MESSAGES, SOURCE, TARGET,
};
use super::encode::{Encode, ListWriter};
use super::error::DecodeError;
use super::reader::Reader;
use super::symbols::Symbols;
use super::value::{Map, Value};

/// What of a terminus survives (§3.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminusDurability {
    #[default]
    None = 0,
    Configuration = 1,
    UnsettledState = 2,
}

/// When a terminus starts to expire (§3.5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryPolicy {
    LinkDetach,
    #[default]
    SessionEnd,
    ConnectionClose,
    Never,
}

/// Whether messages leave the source when they are sent (§3.5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistributionMode<'a> {
    Move,
    Copy,
    /// A mode the specification does not define.
    Other(&'a str),
}

/// §3.5.3
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Source<'a> {
    pub address: Option<&'a str>,
    pub durable: TerminusDurability,
    pub expiry_policy: ExpiryPolicy,
    /// Seconds.
    pub timeout: u32,
    pub dynamic: bool,
    pub dynamic_node_properties: Option<Map<'a>>,
    pub distribution_mode: Option<DistributionMode<'a>>,
    /// Names and described filters (§3.5.8).
    pub filter: Option<Map<'a>>,
    pub default_outcome: Option<Outcome<'a>>,
    pub outcomes: Symbols<'a>,
    pub capabilities: Symbols<'a>,
}

/// §3.5.4
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Target<'a> {
    pub address: Option<&'a str>,
    pub durable: TerminusDurability,
    pub expiry_policy: ExpiryPolicy,
    /// Seconds.
    pub timeout: u32,
    pub dynamic: bool,
    pub dynamic_node_properties: Option<Map<'a>>,
    pub capabilities: Symbols<'a>,
}

/// The target of links that control transactions (§4.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coordinator<'a> {
    pub capabilities: Symbols<'a>,
}

/// Whatever can stand as an attach's target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetArchetype<'a> {
    Target(Target<'a>),
    Coordinator(Coordinator<'a>),
}

/// When a dynamic node goes: the `lifetime-policy` of its properties (§3.5.10 to §3.5.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimePolicy {
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoMessages,
    DeleteOnNoLinksOrMessages,
}

impl LifetimePolicy {
    /// Reads the value that stands under `lifetime-policy`.
    pub fn decode(value: &Value<'_>) -> Result<Self, DecodeError> {
        const EXPECTED: &str = "a lifetime policy";
        let Value::Described(described) = value else {
            return Err(DecodeError::NotDescribed { expected: EXPECTED });
        };
        let code = described.descriptor()?.code();
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(DELETE_ON_CLOSE) => Ok(Self::DeleteOnClose),
            Some(DELETE_ON_NO_LINKS) => Ok(Self::DeleteOnNoLinks),
            Some(DELETE_ON_NO_MESSAGES) => Ok(Self::DeleteOnNoMessages),
            Some(DELETE_ON_NO_LINKS_OR_MESSAGES) => Ok(Self::DeleteOnNoLinksOrMessages),
            _ => Err(DecodeError::UnexpectedDescriptor { expected: EXPECTED, code }),
        }
    }
}

impl Encode for LifetimePolicy {
    fn encode(&self, out: &mut Vec<u8>) {
        let code = match self {
            Self::DeleteOnClose => DELETE_ON_CLOSE,
            Self::DeleteOnNoLinks => DELETE_ON_NO_LINKS,
            Self::DeleteOnNoMessages => DELETE_ON_NO_MESSAGES,
            Self::DeleteOnNoLinksOrMessages => DELETE_ON_NO_LINKS_OR_MESSAGES,
        };
        out.extend_from_slice(&[0x00, 0x53, code, 0x45]);
    }
}

impl<'a> Field<'a> for TerminusDurability {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u32::read(reader, field)? {
            0 => Ok(Self::None),
            1 => Ok(Self::Configuration),
            2 => Ok(Self::UnsettledState),
            _ => Err(DecodeError::InvalidField { field }),
        }
    }
}

impl Encode for TerminusDurability {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u32).encode(out);
    }
}

impl ExpiryPolicy {
    pub fn symbol(&self) -> &'static str {
        match self {
            Self::LinkDetach => "link-detach",
            Self::SessionEnd => "session-end",
            Self::ConnectionClose => "connection-close",
            Self::Never => "never",
        }
    }
}

impl<'a> Field<'a> for ExpiryPolicy {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match super::composite::Symbol::read(reader, field)?.0 {
            "link-detach" => Ok(Self::LinkDetach),
            "session-end" => Ok(Self::SessionEnd),
            "connection-close" => Ok(Self::ConnectionClose),
            "never" => Ok(Self::Never),
            _ => Err(DecodeError::InvalidField { field }),
        }
    }
}

impl Encode for ExpiryPolicy {
    fn encode(&self, out: &mut Vec<u8>) {
        Value::Symbol(self.symbol()).encode(out);
    }
}

impl<'a> DistributionMode<'a> {
    pub fn symbol(&self) -> &'a str {
        match self {
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Other(symbol) => symbol,
        }
    }
}

impl<'a> Field<'a> for DistributionMode<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(match super::composite::Symbol::read(reader, field)?.0 {
            "move" => Self::Move,
            "copy" => Self::Copy,
            other => Self::Other(other),
        })
    }
}

impl Encode for DistributionMode<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        Value::Symbol(self.symbol()).encode(out);
    }
}

impl<'a> Field<'a> for Source<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        let mut fields = Fields::described(reader, SOURCE, "source")?;
        let source = Self {
            address: fields.optional("source.address")?,
            durable: fields.or("source.durable", TerminusDurability::None)?,
            expiry_policy: fields.or("source.expiry-policy", ExpiryPolicy::SessionEnd)?,
            timeout: fields.or("source.timeout", 0)?,
            dynamic: fields.or("source.dynamic", false)?,
            dynamic_node_properties: fields.optional("source.dynamic-node-properties")?,
            distribution_mode: fields.optional("source.distribution-mode")?,
            filter: fields.optional("source.filter")?,
            default_outcome: fields.optional("source.default-outcome")?,
            outcomes: fields.symbols("source.outcomes")?,
            capabilities: fields.symbols("source.capabilities")?,
        };
        fields.finish()?;
        Ok(source)
    }
}

impl Encode for Source<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, SOURCE);
        list.optional(&self.address);
        list.unless(self.durable, TerminusDurability::None);
        list.unless(self.expiry_policy, ExpiryPolicy::SessionEnd);
        list.unless(self.timeout, 0);
        list.unless(self.dynamic, false);
        list.optional(&self.dynamic_node_properties);
        list.optional(&self.distribution_mode);
        list.optional(&self.filter);
        list.optional(&self.default_outcome);
        list.symbols(self.outcomes);
        list.symbols(self.capabilities);
        list.finish_fields();
    }
}

impl<'a> Target<'a> {
    fn read_fields(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "target")?;
        let target = Self {
            address: fields.optional("target.address")?,
            durable: fields.or("target.durable", TerminusDurability::None)?,
            expiry_policy: fields.or("target.expiry-policy", ExpiryPolicy::SessionEnd)?,
            timeout: fields.or("target.timeout", 0)?,
            dynamic: fields.or("target.dynamic", false)?,
            dynamic_node_properties: fields.optional("target.dynamic-node-properties")?,
            capabilities: fields.symbols("target.capabilities")?,
        };
        fields.finish()?;
        Ok(target)
    }
}

impl Encode for Target<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, TARGET);
        list.optional(&self.address);
        list.unless(self.durable, TerminusDurability::None);
        list.unless(self.expiry_policy, ExpiryPolicy::SessionEnd);
        list.unless(self.timeout, 0);
        list.unless(self.dynamic, false);
        list.optional(&self.dynamic_node_properties);
        list.symbols(self.capabilities);
        list.finish_fields();
    }
}

impl<'a> Field<'a> for TargetArchetype<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        const EXPECTED: &str = "a target or coordinator";
        let code = descriptor::read_code(reader, EXPECTED)?;
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(TARGET) => Target::read_fields(reader).map(Self::Target),
            Some(COORDINATOR) => {
                let mut fields = Fields::read(reader, "coordinator")?;
                let coordinator = Coordinator { capabilities: fields.symbols("coordinator.capabilities")? };
                fields.finish()?;
                Ok(Self::Coordinator(coordinator))
            }
            _ => Err(DecodeError::UnexpectedDescriptor { expected: EXPECTED, code }),
        }
    }
}

impl Encode for TargetArchetype<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Target(target) => target.encode(out),
            Self::Coordinator(coordinator) => coordinator.encode(out),
        }
    }
}

impl Encode for Coordinator<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, COORDINATOR);
        list.symbols(self.capabilities);
        list.finish_fields();
    }
}
