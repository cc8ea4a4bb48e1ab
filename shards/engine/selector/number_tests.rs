//! Comparison, hash and arithmetic against exact oracles, around the limits of the types.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use proptest::prelude::*;

use super::*;

fn hash(value: Value<'_>) -> Option<u64> {
    let mut hasher = FixedState::with_seed(1).build_hasher();
    hash_value(value, &mut hasher).then(|| hasher.finish())
}

/// Exact numbers as fractions over 2^1074, which every finite float is a multiple of, would be long; so the oracle compares
/// the floor of a float and then what is left of it, in 256-bit steps by hand.
fn naive(exact: i128, approximate: f64) -> Comparison {
    if approximate.is_nan() {
        return Comparison::Unlike;
    }
    // Saturating: an infinity and anything past 2^127 stays beyond every 64-bit integer.
    let floor = approximate.floor();
    match exact.cmp(&(floor as i128)) {
        Ordering::Equal if floor < approximate => Comparison::Less,
        ordering => ordering.into(),
    }
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<i64>().prop_map(|value| value as f64),
        any::<u64>().prop_map(|value| value as f64),
        (-1_000..1_000_i32).prop_map(|value| f64::from(value) / 4.0),
        (0..3_u64).prop_map(|off| f64::from_bits(TWO_POW_63.to_bits() - 1 + off)),
        (0..3_u64).prop_map(|off| f64::from_bits(TWO_POW_64.to_bits() - 1 + off)),
        (0..3_u64).prop_map(|off| f64::from_bits((-TWO_POW_63).to_bits() - 1 + off)),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-0.0),
    ]
}

fn integers() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -300..300_i64,
        (0..4_i64).prop_map(|off| i64::MAX - off),
        (0..4_i64).prop_map(|off| i64::MIN + off),
        (-2..3_i64).prop_map(|off| (1 << 53) + off),
    ]
}

fn values() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        integers().prop_map(Value::Int),
        integers().prop_map(|value| Value::Unsigned(value as u64)),
        floats().prop_map(Value::Float),
        // The same number in another dress.
        integers().prop_map(|value| Value::Float(value as f64)),
        any::<bool>().prop_map(Value::Bool),
        prop::sample::select(vec!["", "a", "ab", "1"]).prop_map(Value::String),
        Just(Value::Null),
        Just(Value::Opaque),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn integers_and_floats_compare_by_exact_value(signed in integers(), float in floats()) {
        let unsigned = signed as u64;
        prop_assert_eq!(compare(Value::Int(signed), Value::Float(float)), naive(signed.into(), float));
        prop_assert_eq!(compare(Value::Unsigned(unsigned), Value::Float(float)), naive(unsigned.into(), float));
    }

    #[test]
    fn comparison_is_symmetric(left in values(), right in values()) {
        let mirrored = match compare(right, left) {
            Comparison::Less => Comparison::Greater,
            Comparison::Greater => Comparison::Less,
            same => same,
        };
        prop_assert_eq!(compare(left, right), mirrored);
    }

    #[test]
    fn what_is_equal_has_one_hash(integer in integers(), float in floats(), left in values(), right in values()) {
        let dresses = [
            Value::Int(integer),
            Value::Unsigned(integer as u64),
            Value::Float(integer as f64),
            Value::Float(integer as u64 as f64),
            Value::Float(float),
            Value::Int(float as i64),
            Value::Unsigned(float as u64),
            left,
            right,
        ];
        for one in dresses {
            for other in dresses {
                if compare(one, other).is_equal() {
                    prop_assert!(hash(one).is_some());
                    prop_assert_eq!(hash(one), hash(other), "{:?} and {:?}", one, other);
                }
            }
            prop_assert_eq!(hash(one).is_some(), compare(one, one).is_equal(), "{:?}", one);
        }
    }

    #[test]
    fn arithmetic_is_that_of_checked_integers(left in integers(), right in integers()) {
        for (operator, expected) in [
            (Arithmetic::Add, left.checked_add(right)),
            (Arithmetic::Subtract, left.checked_sub(right)),
            (Arithmetic::Multiply, left.checked_mul(right)),
            (Arithmetic::Divide, left.checked_div(right)),
        ] {
            let result = calculate(operator, Value::Int(left), Value::Int(right));
            match (result, expected) {
                (Value::Null, None) => {}
                (Value::Int(result), Some(expected)) => prop_assert_eq!(result, expected),
                _ => prop_assert!(false, "{:?} {:?} {:?} is {:?}", left, operator, right, result),
            }
        }
    }
}

#[test]
fn strings_that_join_alike_differ() {
    let hash = |values: [&str; 2]| {
        let mut hasher = FixedState::with_seed(1).build_hasher();
        assert!(values.into_iter().all(|value| hash_value(Value::String(value), &mut hasher)));
        hasher.finish()
    };
    assert_ne!(hash(["a", "bc"]), hash(["ab", "c"]));
}
