//! Which messages does a consumer want?
//!
//! Message selectors of JMS 2.0 (§3.8.1): the conditional expressions of SQL-92, parsed once to a [`Filter`] and evaluated
//! on every message through [`Fields`], the door to its fields. The tree under a filter is immutable, its depth and its size are
//! bounded ([`limits`]), and evaluating it allocates nothing.
//!
//! What this project decided where JMS leaves a choice:
//!
//! - Values of unlike types compare as false, also with `<>`; so `NOT (s = 1)` is true over a string `s`. Null and failed
//!   arithmetic are unknown, and only what is true matches.
//! - A name alone is a condition that holds if the field is the boolean true; over a string or a number it is false.
//! - Numbers compare by their exact value, whatever their types.
//! - An identifier may be any text in double quotes (`"my-property" = 1`).
//!
//! Left out: how a message's sections answer for a field, and anything that depends on when a message arrived.

mod ast;
mod error;
mod evaluate;
mod field;
mod keys;
mod lexer;
mod like;
pub mod limits;
mod number;
mod parse;

use std::fmt;
use std::hash::{Hash, Hasher};

pub use error::{SelectorError, SelectorFault};
pub use field::{Field, Fields, HeaderField, Value};
pub(crate) use keys::EqualityKeys;
pub(crate) use number::{compare, hash_value};

use ast::{Expression, Printer};
use evaluate::Evaluation;

/// A parsed selector. Two filters are equal when they are written alike, save for spaces, the case of keywords and
/// parentheses that change nothing; equal filters match the same messages. Prints as a selector that parses to itself.
#[derive(Clone, Debug)]
pub struct Filter {
    fields: Box<[Field]>,
    root: Expression,
    node_count: usize,
}

/// Three-valued logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    False,
    Unknown,
    True,
}

impl Filter {
    /// Parses a selector. A blank text is an error here: a consumer that gives one has no selector (§3.8.1).
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let (fields, root, node_count) = parse::parse(text)?;
        Ok(Filter { fields, root, node_count })
    }

    /// What the selector says about a message.
    pub fn evaluate(&self, message: &impl Fields) -> Truth {
        Evaluation::new(&self.fields, message).truth(&self.root)
    }

    /// Only a selector that is true matches; one that is unknown does not.
    pub fn matches(&self, message: &impl Fields) -> bool {
        self.evaluate(message) == Truth::True
    }

    /// Operators, identifiers and literals that it was written with: what an evaluation costs at most.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// The fields the selector names, in the order of their first mention.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields && self.root == other.root
    }
}

impl Eq for Filter {}

impl Hash for Filter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fields.hash(state);
        self.root.hash(state);
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Printer { expression: &self.root, fields: &self.fields })
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Truth::True } else { Truth::False }
    }
}

impl std::ops::Not for Truth {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Truth::False => Truth::True,
            Truth::Unknown => Truth::Unknown,
            Truth::True => Truth::False,
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
