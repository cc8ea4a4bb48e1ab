//! What kinds of exchanges are there, and what do their arguments say?

use std::sync::Arc;

use super::refusal::InvalidArgument;
use super::{Arguments, Declaration, OwnedValue, Refusal};

/// How an exchange chooses among its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Direct,
    Fanout,
    Topic,
    Headers,
    ConsistentHash,
}

/// What a consistent hash is taken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HashOn {
    Key,
    Header(Box<str>),
    Property(Property),
}

/// Properties of a message that a consistent hash can be taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    CorrelationId,
    MessageId,
    Timestamp,
}

/// A declaration's type and arguments, understood.
#[derive(Debug)]
pub(super) struct Traits {
    pub(super) kind: Kind,
    /// It may hold messages back before it routes them.
    pub(super) is_delayed: bool,
    /// The exchange that gets what this one has no way for.
    pub(super) alternate: Option<Arc<str>>,
    pub(super) hash_on: HashOn,
}

pub(super) const ALTERNATE_EXCHANGE: &str = "alternate-exchange";
pub(super) const DELAYED_TYPE: &str = "x-delayed-type";
pub(super) const HASH_HEADER: &str = "hash-header";
pub(super) const HASH_PROPERTY: &str = "hash-property";
const DELAYED: &str = "x-delayed-message";

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "direct" => Kind::Direct,
            "fanout" => Kind::Fanout,
            "topic" => Kind::Topic,
            "headers" => Kind::Headers,
            "x-consistent-hash" => Kind::ConsistentHash,
            _ => return None,
        })
    }
}

impl Traits {
    pub(super) fn of(declaration: &Declaration) -> Result<Self, Refusal> {
        let arguments = &declaration.arguments;
        let is_delayed = *declaration.kind == *DELAYED;
        let kind = if is_delayed {
            let inner =
                text(arguments, DELAYED_TYPE)?.ok_or(invalid(DELAYED_TYPE, InvalidArgument::Missing))?;
            Kind::named(inner).ok_or(invalid(DELAYED_TYPE, InvalidArgument::UnknownValue))?
        } else {
            Kind::named(&declaration.kind).ok_or_else(|| Refusal::UnknownType(declaration.kind.clone()))?
        };
        let hash_on = if kind == Kind::ConsistentHash { hash_on(arguments)? } else { HashOn::Key };
        let alternate = text(arguments, ALTERNATE_EXCHANGE)?.map(Arc::from);
        Ok(Traits { kind, is_delayed, alternate, hash_on })
    }
}

fn hash_on(arguments: &Arguments) -> Result<HashOn, Refusal> {
    match (text(arguments, HASH_HEADER)?, text(arguments, HASH_PROPERTY)?) {
        (None, None) => Ok(HashOn::Key),
        (Some(header), None) => Ok(HashOn::Header(header.into())),
        (None, Some("correlation_id")) => Ok(HashOn::Property(Property::CorrelationId)),
        (None, Some("message_id")) => Ok(HashOn::Property(Property::MessageId)),
        (None, Some("timestamp")) => Ok(HashOn::Property(Property::Timestamp)),
        (None, Some(_)) => Err(invalid(HASH_PROPERTY, InvalidArgument::UnknownValue)),
        (Some(_), Some(_)) => Err(invalid(HASH_HEADER, InvalidArgument::Exclusive(HASH_PROPERTY))),
    }
}

pub(super) fn invalid(argument: &'static str, reason: InvalidArgument) -> Refusal {
    Refusal::InvalidArgument { argument, reason }
}

fn text<'a>(arguments: &'a Arguments, name: &'static str) -> Result<Option<&'a str>, Refusal> {
    let as_text = |value: &'a OwnedValue| value.as_str().ok_or(invalid(name, InvalidArgument::NotText));
    arguments.find(name).map(as_text).transpose()
}
