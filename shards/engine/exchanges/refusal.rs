//! Why is a change refused, and how is that said?
//!
//! The texts are those of RabbitMQ, which people search for.

use std::fmt;
use std::sync::Arc;

/// An exchange as texts name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub exchange: Arc<str>,
    pub vhost: Arc<str>,
}

/// Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A virtual host that is gone, or never was.
    NoVhost,
    NoExchange(Named),
    /// What is not done with the default exchange was asked of it.
    DefaultExchange,
    /// A new exchange with a name that is reserved.
    ReservedName(Named),
    /// The exchange is always there.
    SystemExchange(Named),
    /// Only exchanges publish to it.
    InternalExchange(Named),
    UnknownType(Arc<str>),
    /// Queues or exchanges are bound to it, and it was to be deleted only if none were.
    InUse(Named),
    /// It is there, and is another than the one asked for.
    Inequivalent {
        field: &'static str,
        exchange: Named,
        received: Box<str>,
        current: Box<str>,
    },
    InvalidArgument {
        argument: &'static str,
        reason: InvalidArgument,
    },
}

/// What is wrong with an argument, or with a routing key that is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidArgument {
    NotText,
    UnknownValue,
    /// It is needed, and was not given.
    Missing,
    /// One that excludes it was given as well.
    Exclusive(&'static str),
    NotAWeight,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exchange '{}' in vhost '{}'", self.exchange, self.vhost)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoVhost => f.write_str("no such vhost"),
            Refusal::NoExchange(named) => write!(f, "no {named}"),
            Refusal::DefaultExchange => f.write_str("operation not permitted on the default exchange"),
            Refusal::ReservedName(named) => {
                write!(f, "exchange name '{}' contains reserved prefix 'amq.*'", named.exchange)
            }
            Refusal::SystemExchange(named) => write!(f, "deletion of system {named} not allowed"),
            Refusal::InternalExchange(Named { exchange, vhost }) => {
                write!(f, "cannot publish to internal exchange '{exchange}' in vhost '{vhost}'")
            }
            Refusal::UnknownType(kind) => write!(f, "unknown exchange type '{kind}'"),
            Refusal::InUse(named) => write!(f, "{named} in use"),
            Refusal::Inequivalent { field, exchange, received, current } => write!(
                f,
                "inequivalent arg '{field}' for {exchange}: received {received} but current is {current}"
            ),
            Refusal::InvalidArgument { argument, reason } => write!(f, "invalid arg '{argument}': {reason}"),
        }
    }
}

impl fmt::Display for InvalidArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidArgument::NotText => f.write_str("expected a string"),
            InvalidArgument::UnknownValue => f.write_str("unknown value"),
            InvalidArgument::Missing => f.write_str("missing"),
            InvalidArgument::Exclusive(other) => write!(f, "mutually exclusive with '{other}'"),
            InvalidArgument::NotAWeight => f.write_str("expected an integer greater than 0"),
        }
    }
}
