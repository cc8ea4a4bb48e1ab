//! What do arguments and headers hold, and when are two of their values the same?
//!
//! As in RabbitMQ: numbers by what they stand for, of whatever type (1 = 1.0; a timestamp is a number of seconds), strings by
//! their bytes, arrays and tables by their encoding. Values of different kinds are never the same. This is an equivalence, so that
//! values can be looked up.
//!
//! Left out: how they are encoded.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value of an argument or a header; `B` holds bytes.
#[derive(Clone, Copy, Debug)]
pub enum HeaderValue<B> {
    /// In a binding's arguments: the header is there, with any value.
    Void,
    Boolean(bool),
    /// Of any width, and timestamps.
    Integer(i128),
    Float(f64),
    /// `value` · 10^-`scale`; the same only as one with the same parts.
    Decimal {
        scale: u8,
        value: i32,
    },
    /// Strings and byte arrays.
    Bytes(B),
    Array(B),
    Table(B),
}

/// One that is kept.
pub type OwnedValue = HeaderValue<Box<[u8]>>;

/// The arguments of an exchange or a binding. Their order does not count.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    encoded: Arc<[u8]>,
    /// By name.
    values: Arc<[(Box<str>, OwnedValue)]>,
}

impl<B: AsRef<[u8]>> HeaderValue<B> {
    /// Two values are the same ⟺ these are equal.
    pub(super) fn identity(&self) -> (u8, i128, &[u8]) {
        // Larger ones have no whole numbers as their equals.
        const WHOLE_MAX: f64 = i64::MAX as f64 * 4.0;
        match self {
            HeaderValue::Void => (0, 0, &[]),
            HeaderValue::Boolean(value) => (1, i128::from(*value), &[]),
            HeaderValue::Integer(value) => (2, *value, &[]),
            HeaderValue::Float(value) if value.trunc() == *value && value.abs() <= WHOLE_MAX => {
                (2, *value as i128, &[])
            }
            HeaderValue::Float(value) => (3, i128::from(value.to_bits()), &[]),
            HeaderValue::Decimal { scale, value } => {
                (4, i128::from(*scale) << 32 | i128::from(*value as u32), &[])
            }
            HeaderValue::Bytes(bytes) => (5, 0, bytes.as_ref()),
            HeaderValue::Array(bytes) => (6, 0, bytes.as_ref()),
            HeaderValue::Table(bytes) => (7, 0, bytes.as_ref()),
        }
    }

    /// A string that is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            HeaderValue::Bytes(bytes) => std::str::from_utf8(bytes.as_ref()).ok(),
            HeaderValue::Void
            | HeaderValue::Boolean(_)
            | HeaderValue::Integer(_)
            | HeaderValue::Float(_)
            | HeaderValue::Decimal { .. }
            | HeaderValue::Array(_)
            | HeaderValue::Table(_) => None,
        }
    }

    /// What its type is called.
    pub fn type_name(&self) -> &'static str {
        match self {
            HeaderValue::Void => "void",
            HeaderValue::Boolean(_) => "bool",
            HeaderValue::Integer(_) => "long",
            HeaderValue::Float(_) => "double",
            HeaderValue::Decimal { .. } => "decimal",
            HeaderValue::Bytes(_) => "longstr",
            HeaderValue::Array(_) => "array",
            HeaderValue::Table(_) => "table",
        }
    }
}

impl<B: AsRef<[u8]>, C: AsRef<[u8]>> PartialEq<HeaderValue<C>> for HeaderValue<B> {
    fn eq(&self, other: &HeaderValue<C>) -> bool {
        self.identity() == other.identity()
    }
}

impl<B: AsRef<[u8]>> Eq for HeaderValue<B> {}

impl<B: AsRef<[u8]>> Hash for HeaderValue<B> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl Arguments {
    /// `encoded` is what the peer sent, and is given back as it is; `values` is what it holds.
    pub fn new(encoded: &[u8], mut values: Vec<(Box<str>, OwnedValue)>) -> Self {
        values.sort_by(|(one, _), (other, _)| one.cmp(other));
        Arguments { encoded: encoded.into(), values: values.into() }
    }

    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    pub fn values(&self) -> &[(Box<str>, OwnedValue)] {
        &self.values
    }

    /// About how much memory they take, what finds them included.
    pub(super) fn size(&self) -> usize {
        const VALUE_SIZE: usize = 320;
        let sizes =
            self.values.iter().map(|(name, value)| VALUE_SIZE + 2 * (name.len() + value.identity().2.len()));
        self.encoded.len() + sizes.sum::<usize>()
    }

    pub fn find(&self, name: &str) -> Option<&OwnedValue> {
        let at = self.values.partition_point(|(known, _)| **known < *name);
        self.values.get(at).filter(|(known, _)| **known == *name).map(|(_, value)| value)
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Arguments {}

impl Hash for Arguments {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values.hash(state);
    }
}
