//! What can be wrong with what a broker keeps?

use std::fmt;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What was promised is not there.
    Lost(String),
    /// What was settled is there, or something is there twice.
    Doubled(String),
    Order(String),
    /// Of a transaction there is a part.
    Half(String),
    /// What was refused is there.
    Refused(String),
    /// Deliveries that failed are not counted right.
    Counts(String),
    /// The broker has ended, or does not do what it is asked.
    Broker(String),
    Other(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, text) = match self {
            Fault::Lost(text) => ("lost", text),
            Fault::Doubled(text) => ("doubled", text),
            Fault::Order(text) => ("out of order", text),
            Fault::Half(text) => ("half a transaction", text),
            Fault::Refused(text) => ("refused", text),
            Fault::Counts(text) => ("counts", text),
            Fault::Broker(text) => ("broker", text),
            Fault::Other(text) => ("other", text),
        };
        write!(f, "{kind}: {text}")
    }
}
