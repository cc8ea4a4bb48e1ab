//! Can any value be skipped, checked, walked and written again without harm, and do all four agree?

#![no_main]

use corelane_wire::amqp10::{DecodeError, Descriptor, Encode, NESTING_MAX, Reader, Value, check_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let skipped = Reader::new(input).skip_value();
    let checked = check_value(input);
    let decoded = Value::decode(input);
    if checked.is_ok() {
        assert_eq!(skipped, Ok(input));
        let value = decoded.expect("what is right inside is right outside");
        assert!(matches!(walk(value, 0), Ok(()) | Err(DecodeError::TooDeep)));
        let mut out = Vec::new();
        value.encode(&mut out);
        // The smallest encoding, save that an array gets the constructor that it may lack.
        assert!(out.len() <= input.len() + 1);
        assert_eq!(check_value(&out), Ok(()));
        let again = Value::decode(&out).expect("what was just written");
        let mut twice = Vec::new();
        again.encode(&mut twice);
        assert_eq!(out, twice);
    } else if let Ok(value) = decoded {
        assert_eq!(skipped, Ok(input));
        // Lists with bytes left over walk well; everything else that is wrong is met on the way.
        let walked = walk(value, 0);
        let allowed = matches!(checked, Err(DecodeError::CountMismatch | DecodeError::TooDeep));
        assert!(walked.is_err() || allowed, "{checked:?}");
    }
});

/// Walks a value to its leaves. A recursion, so it says `TooDeep` where it goes no further.
fn walk(value: Value<'_>, depth: usize) -> Result<(), DecodeError> {
    if depth > 4 * NESTING_MAX {
        return Err(DecodeError::TooDeep);
    }
    match value {
        Value::List(list) => list.iter().try_for_each(|value| walk(value?, depth + 1)),
        // Nobody sees the descriptors of no elements.
        Value::Array(array) if array.is_empty() && array.constructor().len() > 1 => Err(DecodeError::TooDeep),
        Value::Array(array) => array.iter().try_for_each(|value| walk(value?, depth + 1)),
        Value::Map(map) => map.iter().try_for_each(|pair| {
            let (key, value) = pair?;
            walk(key, depth + 1)?;
            walk(value, depth + 1)
        }),
        Value::Described(described) => {
            if let Descriptor::Other(raw) = described.descriptor()? {
                walk(raw.value()?, depth + 1)?;
            }
            walk(described.value()?, depth + 1)
        }
        _ => Ok(()),
    }
}
