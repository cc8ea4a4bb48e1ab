//! Why was a selector refused, and where?

use std::fmt;

/// A selector that cannot be used. The peer is told all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// Byte offset into the selector; its length when the text ended too early.
    pub position: usize,
    pub fault: SelectorFault,
    /// What should have stood there, as the object of "expected …"; for a limit, the limit.
    pub expected: &'static str,
}

/// The kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorFault {
    /// The text does not follow the grammar.
    Syntax,
    /// The grammar is followed, but no message could ever make sense of it (`'a' + 1`, `5 AND flag`).
    Type,
    /// A numeric literal outside its type.
    Range,
    /// One of the limits in `selector/limits.rs`.
    Limit,
}

impl SelectorError {
    pub(super) fn syntax(position: usize, expected: &'static str) -> Self {
        SelectorError { position, fault: SelectorFault::Syntax, expected }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.fault {
            SelectorFault::Syntax => "syntax error",
            SelectorFault::Type => "type error",
            SelectorFault::Range => "number out of range",
            SelectorFault::Limit => "selector too large",
        };
        write!(f, "{kind} at byte {}: expected {}", self.position, self.expected)
    }
}

impl std::error::Error for SelectorError {}
