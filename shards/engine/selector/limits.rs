//! How large may a selector be? A selector over a limit is refused when it is parsed, with the place where it went over.

/// Bytes of text.
pub const SELECTOR_SIZE_MAX: usize = 16 * 1024;

/// Parentheses, `NOT`s and signs around one another. It bounds the stack of the parser and of the evaluator.
pub const NESTING_MAX: usize = 64;

/// Operators, identifiers and literals together. It bounds the memory of a filter and the time of an evaluation.
pub const NODES_MAX: usize = 4 * 1024;

/// Different names.
pub const FIELDS_MAX: usize = 256;

/// Characters between two `%` of a `LIKE` pattern when `_` is among them: the bits of the word that searches for them.
pub const LIKE_SEARCH_MAX: usize = 64;

/// `LIKE`s in one selector. Each may read the whole of a long string, on every message.
pub const LIKES_MAX: usize = 64;

/// Keys that one filter may have in the index (`IN` lists multiply). A list that would exceed it is left to evaluation.
pub const KEYS_MAX: usize = 128;

/// Names in one key of the index. Further ones are left to evaluation.
pub const KEY_NAMES_MAX: usize = 4;
