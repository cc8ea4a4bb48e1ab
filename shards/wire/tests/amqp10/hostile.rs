//! What a peer might send to hurt: each is answered with an error or a bounded amount of work.

use corelane_wire::amqp10::{
    ARRAY_EMPTY_ELEMENTS_MAX, DecodeError, NESTING_MAX, Performative, Reader, SaslPerformative, Sections,
    TransactionRequest, Value, check_value,
};

/// Feeds bytes to every decoder. None may panic or run long; what they answer is not looked at.
pub(crate) fn decode_everything(input: &[u8]) {
    let _ = Performative::decode(input);
    let _ = SaslPerformative::decode(input);
    let _ = TransactionRequest::decode(input);
    let _ = Reader::new(input).skip_value();
    let _ = check_value(input);
    if let Ok(sections) = Sections::scan(input) {
        let _ = sections.header(input);
        let _ = sections.properties(input).map(|properties| properties.decode().map(|_| ()));
        let _ = sections.application_property(input, "key");
        let _ = sections.body_values(input).count();
    }
    if let Ok(value) = Value::decode(input) {
        walk(value);
    }
}

/// Walks one level of a value.
fn walk(value: Value<'_>) {
    match value {
        Value::List(list) => drop(list.iter().count()),
        Value::Map(map) => drop((map.iter().count(), map.find("key"))),
        Value::Array(array) => drop(array.iter().count()),
        Value::Described(described) => drop((described.descriptor(), described.value())),
        _ => {}
    }
}

/// Lists in lists, each the only element of the one around it.
fn nested_lists(depth: usize) -> Vec<u8> {
    let mut input = Vec::new();
    for level in (0..depth).rev() {
        let inside = u32::try_from(level * 9 + 1).expect("small");
        input.push(0xd0);
        input.extend_from_slice(&(inside + 4).to_be_bytes());
        input.extend_from_slice(&1_u32.to_be_bytes());
    }
    input.push(0x43);
    input
}

#[test]
fn deep_nesting_costs_nothing() {
    for depth in [10_000, 1_000_000] {
        let input = nested_lists(depth);
        assert_eq!(Reader::new(&input).skip_value(), Ok(input.as_slice()));
        assert_eq!(check_value(&input), Err(DecodeError::TooDeep));
        decode_everything(&input);
        let body = [&[0x00, 0x53, 0x77], input.as_slice()].concat();
        assert!(Sections::scan(&body).is_ok());
    }
    // The level of the value itself, and all lists.
    assert_eq!(check_value(&nested_lists(NESTING_MAX - 1)), Ok(()));
    assert_eq!(check_value(&nested_lists(NESTING_MAX)), Err(DecodeError::TooDeep));
}

#[test]
fn descriptors_of_descriptors_are_no_recursion() {
    for depth in [10_000, 1_000_000] {
        // Every 0 asks for a descriptor and a value more.
        let mut input = vec![0x00; depth];
        assert_eq!(Reader::new(&input).skip_value(), Err(DecodeError::Truncated));
        decode_everything(&input);
        input.resize(2 * depth + 1, 0x43);
        assert_eq!(Reader::new(&input).skip_value(), Ok(input.as_slice()));
        assert_eq!(check_value(&input), Ok(()));
        decode_everything(&input);
        // Described values that are described: 0, descriptor, 0, descriptor, …
        let mut input = [0x00, 0x43].repeat(depth);
        input.push(0x43);
        assert_eq!(check_value(&input), Ok(()));
        decode_everything(&input);
    }
}

#[test]
fn counts_and_sizes_are_not_believed() {
    // Codes of list, map and array with a count of 2^31 and more, in a body with few bytes.
    for code in [0xd0, 0xd1, 0xf0] {
        for count in [0x7fff_ffff_u32, 0x8000_0000, 0xffff_fffe, 0xffff_ffff] {
            let mut input = vec![code];
            input.extend_from_slice(&10_u32.to_be_bytes());
            input.extend_from_slice(&count.to_be_bytes());
            input.extend_from_slice(&[0x43; 6]);
            assert!(Value::decode(&input).is_err(), "{code:#x} {count:#x}");
            decode_everything(&input);
            // Skipping goes by the size and does not look at the count.
            assert_eq!(Reader::new(&input).skip_value(), Ok(input.as_slice()));
        }
        for size in [11_u32, 0x7fff_ffff, 0xffff_ffff] {
            let mut input = vec![code];
            input.extend_from_slice(&size.to_be_bytes());
            input.extend_from_slice(&[0; 10]);
            assert_eq!(Value::decode(&input), Err(DecodeError::Truncated));
            assert_eq!(Reader::new(&input).skip_value(), Err(DecodeError::Truncated));
        }
    }
}

#[test]
fn arrays_of_nothing_are_short() {
    let array = |code: u8, count: u32| {
        let mut input = vec![0xf0];
        input.extend_from_slice(&5_u32.to_be_bytes());
        input.extend_from_slice(&count.to_be_bytes());
        input.push(code);
        input
    };
    for code in 0x40..=0x45 {
        let input = array(code, ARRAY_EMPTY_ELEMENTS_MAX);
        let Ok(Value::Array(few)) = Value::decode(&input) else { panic!("an array") };
        assert_eq!(few.iter().filter(Result::is_ok).count(), ARRAY_EMPTY_ELEMENTS_MAX as usize);
        assert_eq!(check_value(&input), Ok(()));
        for count in [ARRAY_EMPTY_ELEMENTS_MAX + 1, 0x8000_0000, u32::MAX] {
            let input = array(code, count);
            assert_eq!(Value::decode(&input), Err(DecodeError::TooManyEmptyElements { count }));
            assert_eq!(check_value(&input), Err(DecodeError::TooManyEmptyElements { count }));
        }
    }
}

#[test]
fn every_short_input_is_harmless() {
    for first in 0..=u8::MAX {
        decode_everything(&[first]);
        for second in 0..=u8::MAX {
            decode_everything(&[first, second]);
            decode_everything(&[0x00, 0x53, first, second]);
            decode_everything(&[0x00, 0x53, first, 0xc0, 0x04, second, 0x00, 0x53, 0x24]);
        }
    }
}
