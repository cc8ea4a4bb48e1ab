//! Which messages does a consumer want? Message selectors of JMS 2.0 (§3.8.1), parsed once and evaluated on every message.

mod error;
mod field;

pub use error::{SelectorError, SelectorFault};
pub use field::{Field, Fields, HeaderField, Value};

/// A parsed selector. Two filters are equal when they are written alike, save for spaces, case of keywords and parentheses
/// that change nothing; equal filters match the same messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {}

/// Three-valued logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    False,
    Unknown,
    True,
}

impl Filter {
    /// Parses a selector. A blank text is an error here: a consumer that gives one has no selector.
    pub fn parse(_text: &str) -> Result<Self, SelectorError> {
        Ok(Filter {})
    }

    /// What the selector says about a message.
    pub fn evaluate(&self, _fields: &impl Fields) -> Truth {
        Truth::Unknown
    }

    /// Only a selector that is true matches; one that is unknown does not.
    pub fn matches(&self, fields: &impl Fields) -> bool {
        self.evaluate(fields) == Truth::True
    }
}
