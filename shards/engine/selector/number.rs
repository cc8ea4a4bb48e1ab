//! How do two values compare, and what is their sum?
//!
//! [`compare`] is the one comparison of the project: the evaluator decides by it, and the filter index files its keys so that
//! two values of which [`Comparison::is_equal`] holds are one key (see [`hash_value`]).
//!
//! Numbers compare by their exact value, whatever their types: no integer is rounded to compare it with a float. NaN is
//! unlike everything, itself included. Arithmetic is Java's: exact operands give a 64-bit signed result, and an
//! approximate operand makes the other one approximate; a result that does not fit, or is not finite, is null, as is
//! every operation on what is not a number.

use std::cmp::Ordering;
use std::hash::Hasher;

use super::ast::Arithmetic;
use super::field::Value;

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// One of them is null.
    Unknown,
    /// They are of different kinds, or not comparable at all: every comparison is false, also `<>`.
    Unlike,
    /// Of one kind that has no order (strings, booleans), and the same.
    Same,
    /// Of one kind that has no order, and not the same.
    Different,
    Less,
    Equal,
    Greater,
}

impl Comparison {
    /// Whether `=` holds.
    pub(crate) fn is_equal(self) -> bool {
        matches!(self, Comparison::Same | Comparison::Equal)
    }
}

/// JMS 2.0 §3.8.1.1: only values of like type are compared, exact and approximate numbers being alike; strings and booleans are
/// only compared for equality.
pub(crate) fn compare(left: Value<'_>, right: Value<'_>) -> Comparison {
    let unordered = |same| if same { Comparison::Same } else { Comparison::Different };
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Comparison::Unknown,
        (Value::String(left), Value::String(right)) => unordered(left == right),
        (Value::Bool(left), Value::Bool(right)) => unordered(left == right),
        (Value::Int(left), Value::Int(right)) => left.cmp(&right).into(),
        (Value::Unsigned(left), Value::Unsigned(right)) => left.cmp(&right).into(),
        (Value::Int(left), Value::Unsigned(right)) => i128::from(left).cmp(&i128::from(right)).into(),
        (Value::Unsigned(left), Value::Int(right)) => i128::from(left).cmp(&i128::from(right)).into(),
        (Value::Float(left), Value::Float(right)) => partial(left.partial_cmp(&right)),
        (Value::Int(left), Value::Float(right)) => partial(compare_mixed(left.into(), right)),
        (Value::Unsigned(left), Value::Float(right)) => partial(compare_mixed(left.into(), right)),
        (Value::Float(left), Value::Int(right)) => {
            partial(compare_mixed(right.into(), left).map(Ordering::reverse))
        }
        (Value::Float(left), Value::Unsigned(right)) => {
            partial(compare_mixed(right.into(), left).map(Ordering::reverse))
        }
        (
            Value::Opaque
            | Value::String(_)
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Unsigned(_)
            | Value::Float(_),
            _,
        ) => Comparison::Unlike,
    }
}

/// Feeds a hasher such that values that compare as equal feed it alike: a float that is an integer is hashed as one.
/// `false`: the value is equal to nothing (null, NaN, opaque).
pub(crate) fn hash_value(value: Value<'_>, hasher: &mut impl Hasher) -> bool {
    match value {
        Value::Null | Value::Opaque => return false,
        Value::Bool(value) => hasher.write_u8(value.into()),
        Value::Int(value) => hasher.write_i64(value),
        // Above the signed range there is no equal signed integer, so it does not matter what the bits collide with.
        Value::Unsigned(value) => hasher.write_i64(value as i64),
        Value::Float(value) if value.is_nan() => return false,
        Value::Float(value) => hasher.write_i64(integer_of(value).unwrap_or(value.to_bits() as i64)),
        Value::String(value) => {
            hasher.write(value.as_bytes());
            // Keeps ("a", "bc") and ("ab", "c") apart.
            hasher.write_u8(0xff);
        }
    }
    true
}

/// `left operator right`; null if there is no such number.
pub(super) fn calculate<'a>(operator: Arithmetic, left: Value<'a>, right: Value<'a>) -> Value<'a> {
    let (Some(left), Some(right)) = (Operand::new(left), Operand::new(right)) else {
        return Value::Null;
    };
    match (left, right) {
        (Operand::Exact(left), Operand::Exact(right)) => {
            let result = match operator {
                Arithmetic::Add => left.checked_add(right),
                Arithmetic::Subtract => left.checked_sub(right),
                Arithmetic::Multiply => left.checked_mul(right),
                Arithmetic::Divide => left.checked_div(right),
            };
            result.and_then(|result| i64::try_from(result).ok()).map_or(Value::Null, Value::Int)
        }
        (left, right) => {
            let (left, right) = (left.approximate(), right.approximate());
            let result = match operator {
                Arithmetic::Add => left + right,
                Arithmetic::Subtract => left - right,
                Arithmetic::Multiply => left * right,
                Arithmetic::Divide => left / right,
            };
            if result.is_finite() { Value::Float(result) } else { Value::Null }
        }
    }
}

/// `-operand`; null if there is no such number.
pub(super) fn negate(operand: Value<'_>) -> Value<'_> {
    match operand {
        Value::Float(value) if value.is_finite() => Value::Float(-value),
        operand => calculate(Arithmetic::Subtract, Value::Int(0), operand),
    }
}

/// Products of two 64-bit numbers fit into 127 bits, so exact operands never overflow before they are judged.
enum Operand {
    Exact(i128),
    Approximate(f64),
}

impl Operand {
    fn new(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Int(value) => Some(Operand::Exact(value.into())),
            Value::Unsigned(value) => Some(Operand::Exact(value.into())),
            Value::Float(value) => Some(Operand::Approximate(value)),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Opaque => None,
        }
    }

    fn approximate(&self) -> f64 {
        match self {
            Operand::Exact(value) => *value as f64,
            Operand::Approximate(value) => *value,
        }
    }
}

impl From<Ordering> for Comparison {
    fn from(ordering: Ordering) -> Self {
        match ordering {
            Ordering::Less => Comparison::Less,
            Ordering::Equal => Comparison::Equal,
            Ordering::Greater => Comparison::Greater,
        }
    }
}

fn partial(ordering: Option<Ordering>) -> Comparison {
    ordering.map_or(Comparison::Unlike, Comparison::from)
}

const TWO_POW_63: f64 = (1_u64 << 63) as f64;
const TWO_POW_64: f64 = 2.0 * TWO_POW_63;

/// Compares a 64-bit integer with a float by their exact values; `None` for NaN.
fn compare_mixed(exact: i128, approximate: f64) -> Option<Ordering> {
    if approximate.is_nan() {
        None
    } else if approximate >= TWO_POW_64 {
        Some(Ordering::Less)
    } else if approximate < -TWO_POW_63 {
        Some(Ordering::Greater)
    } else {
        // Between the two limits the cast drops the fraction and nothing else, and the fraction decides a tie.
        let whole = approximate.trunc();
        Some(exact.cmp(&(whole as i128)).then(0.0_f64.partial_cmp(&(approximate - whole))?))
    }
}

/// The 64-bit integer, signed or unsigned, that the float is, as the bits of a signed one.
fn integer_of(value: f64) -> Option<i64> {
    if value.trunc() != value || !(-TWO_POW_63..TWO_POW_64).contains(&value) {
        None
    } else if value >= TWO_POW_63 {
        Some(value as u64 as i64)
    } else {
        Some(value as i64)
    }
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;
