//! Tables of values and their encodings, by the sections of part 1.

use corelane_wire::amqp10::{
    Array, DecodeError, DescribedAs, Descriptor, Encode, List, ListWriter, Map, MapWriter, Raw, Reader,
    Value, check_value,
};

use crate::bytes;

/// The encoding reads as the value, and the value is written as this encoding: it is the smallest.
fn check(encoding: &str, value: Value<'_>) {
    check_read(encoding, value);
    let mut out = Vec::new();
    value.encode(&mut out);
    assert_eq!(out, bytes(encoding), "{value:?} encodes as {encoding}");
}

/// The encoding reads as the value, but is not its smallest.
fn check_read(encoding: &str, value: Value<'_>) {
    let input = bytes(encoding);
    assert_eq!(Value::decode(&input), Ok(value), "{encoding}");
    assert_eq!(check_value(&input), Ok(()), "{encoding}");
    assert_eq!(Reader::new(&input).skip_value(), Ok(input.as_slice()), "{encoding}");
    for end in 0..input.len() {
        assert_eq!(Value::decode(&input[..end]), Err(DecodeError::Truncated), "{encoding} cut at {end}");
        assert_eq!(check_value(&input[..end]), Err(DecodeError::Truncated), "{encoding} cut at {end}");
    }
}

fn check_error(encoding: &str, error: DecodeError) {
    assert_eq!(Value::decode(&bytes(encoding)), Err(error), "{encoding}");
    assert_eq!(check_value(&bytes(encoding)), Err(error), "{encoding}");
}

#[test]
fn primitive_types_have_their_encodings() {
    // §1.6.1 null, §1.6.2 boolean
    check("40", Value::Null);
    check("41", Value::Boolean(true));
    check("42", Value::Boolean(false));
    check_read("56 01", Value::Boolean(true));
    check_read("56 00", Value::Boolean(false));
    // §1.6.3 ubyte, §1.6.4 ushort
    check("50 ff", Value::Ubyte(255));
    check("60 01 02", Value::Ushort(0x0102));
    // §1.6.5 uint
    check("43", Value::Uint(0));
    check("52 01", Value::Uint(1));
    check("52 ff", Value::Uint(255));
    check("70 00 00 01 00", Value::Uint(256));
    check("70 ff ff ff ff", Value::Uint(u32::MAX));
    check_read("52 00", Value::Uint(0));
    check_read("70 00 00 00 00", Value::Uint(0));
    // §1.6.6 ulong
    check("44", Value::Ulong(0));
    check("53 ff", Value::Ulong(255));
    check("80 00 00 00 00 00 00 01 00", Value::Ulong(256));
    check("80 ff ff ff ff ff ff ff ff", Value::Ulong(u64::MAX));
    // §1.6.7 byte, §1.6.8 short
    check("51 80", Value::Byte(-128));
    check("61 ff fe", Value::Short(-2));
    // §1.6.9 int
    check("54 ff", Value::Int(-1));
    check("54 7f", Value::Int(127));
    check("71 00 00 00 80", Value::Int(128));
    check("71 ff ff ff 7f", Value::Int(-129));
    check("54 80", Value::Int(-128));
    // §1.6.10 long
    check("55 80", Value::Long(-128));
    check("81 ff ff ff ff ff ff ff 7f", Value::Long(-129));
    // §1.6.11 float, §1.6.12 double
    check("72 3f 80 00 00", Value::Float(1.0));
    check("82 bf f0 00 00 00 00 00 00", Value::Double(-1.0));
    // §1.6.13 to §1.6.15 decimals
    check("74 01 02 03 04", Value::Decimal32([1, 2, 3, 4]));
    check("84 01 02 03 04 05 06 07 08", Value::Decimal64([1, 2, 3, 4, 5, 6, 7, 8]));
    check("94 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 09", {
        Value::Decimal128([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])
    });
    // §1.6.16 char
    check("73 00 01 f9 80", Value::Char('🦀'));
    // §1.6.17 timestamp: before the epoch too
    check("83 00 00 01 2d 6f 3c 9f c0", Value::Timestamp(0x012d_6f3c_9fc0));
    check("83 ff ff ff ff ff ff ff ff", Value::Timestamp(-1));
    // §1.6.18 uuid
    check("98 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff", {
        Value::Uuid([
            0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
        ])
    });
}

#[test]
fn variable_width_types_have_their_encodings() {
    // §1.6.19 binary
    check("a0 00", Value::Binary(&[]));
    check("a0 02 00 ff", Value::Binary(&[0, 0xff]));
    check_read("b0 00 00 00 01 07", Value::Binary(&[7]));
    // §1.6.20 string
    check("a1 05 'hello'", Value::String("hello"));
    check("a1 02 c3 bc", Value::String("ü"));
    check_read("b1 00 00 00 02 'ok'", Value::String("ok"));
    // §1.6.21 symbol
    check("a3 04 'copy'", Value::Symbol("copy"));
    check_read("b3 00 00 00 01 'x'", Value::Symbol("x"));
}

#[test]
fn long_values_take_the_wide_encoding() {
    let text = "x".repeat(256);
    let mut out = Vec::new();
    Value::String(&text).encode(&mut out);
    assert_eq!(out[..5], bytes("b1 00 00 01 00"));
    assert_eq!(Value::decode(&out), Ok(Value::String(&text)));
    out.clear();
    Value::String(&text[..255]).encode(&mut out);
    assert_eq!(out[..2], bytes("a1 ff"));
}

#[test]
fn malformed_primitives_are_errors() {
    check_error("56 02", DecodeError::InvalidBoolean);
    check_error("a1 01 ff", DecodeError::InvalidText);
    check_error("a3 02 c3 bc", DecodeError::InvalidSymbol);
    // A surrogate, and a number beyond Unicode.
    check_error("73 00 00 d8 00", DecodeError::InvalidChar);
    check_error("73 00 11 00 00", DecodeError::InvalidChar);
    check_error("43 43", DecodeError::TrailingBytes);
    // §1.2: constructors no type has, among them the reserved 0x0f.
    for code in [0x0f, 0x3f, 0x46, 0x57, 0x62, 0x75, 0x85, 0x93, 0x99, 0xa2, 0xb2, 0xc2, 0xd2, 0xe1, 0xff] {
        check_error(&format!("{code:02x} 00 00 00 00"), DecodeError::UnknownConstructor { code });
    }
}

fn elements(list: List<'_>) -> Vec<Result<Value<'_>, DecodeError>> {
    list.iter().collect()
}

#[test]
fn lists_are_walked_one_element_at_a_time() {
    // §1.6.22
    let Ok(Value::List(list)) = Value::decode(&[0x45]) else { panic!("a list") };
    assert!(list.is_empty());
    for encoding in ["c0 07 03 52 07 a1 01 'x' 40", "d0 00 00 00 0a 00 00 00 03 52 07 a1 01 'x' 40"] {
        let input = bytes(encoding);
        let Ok(Value::List(list)) = Value::decode(&input) else { panic!("a list") };
        assert_eq!(list.len(), 3);
        assert_eq!(elements(list), [Ok(Value::Uint(7)), Ok(Value::String("x")), Ok(Value::Null)]);
        let mut out = Vec::new();
        list.encode(&mut out);
        assert_eq!(out, bytes("c0 07 03 52 07 a1 01 'x' 40"));
    }
    // The walk ends at the first error: an unknown constructor as second of three.
    let input = bytes("c0 04 03 43 ff 43");
    let Ok(Value::List(list)) = Value::decode(&input) else { panic!("a list") };
    assert_eq!(elements(list), [Ok(Value::Uint(0)), Err(DecodeError::UnknownConstructor { code: 0xff })]);
}

#[test]
fn compound_sizes_and_counts_must_fit() {
    check_error("c0 00", DecodeError::CountMismatch);
    check_error("d0 00 00 00 03 00 00 00", DecodeError::CountMismatch);
    check_error("c0 02 02 43", DecodeError::CountMismatch);
    check_error("d0 00 00 00 05 80 00 00 00 43", DecodeError::CountMismatch);
    // §1.6.23: a map has as many values as keys.
    check_error("c1 02 01 43", DecodeError::OddMap);
    // More bytes than the count needs: seen when all of it is checked.
    assert_eq!(check_value(&bytes("c0 03 01 43 43")), Err(DecodeError::CountMismatch));
    assert_eq!(check_value(&bytes("c1 04 02 43 43 43")), Err(DecodeError::CountMismatch));
    // A list that is wrong inside is right outside.
    let broken = bytes("c0 04 01 a1 01 ff");
    assert!(Value::decode(&broken).is_ok());
    assert_eq!(check_value(&broken), Err(DecodeError::InvalidText));
    // A size beyond the buffer.
    check_error("d0 ff ff ff ff 00 00 00 00", DecodeError::Truncated);
    check_error("b0 ff ff ff ff", DecodeError::Truncated);
}

#[test]
fn maps_find_their_keys() {
    // §1.6.23
    let mut out = Vec::new();
    let mut map = MapWriter::new(&mut out);
    map.pair(&Value::Uint(300), &Value::Null);
    map.symbol("x-opt-a", &1_u32);
    map.pair(&"text", &"value");
    map.pair(&"text", &"hidden by the first");
    map.finish();
    let map = Map::decode(&out).expect("a map");
    assert_eq!(map.len(), 4);
    assert_eq!(map.find("x-opt-a"), Ok(Some(Value::Uint(1))));
    assert_eq!(map.find("text"), Ok(Some(Value::String("value"))));
    assert_eq!(map.find("absent"), Ok(None));
    let pairs: Vec<_> = map.iter().map(|pair| pair.expect("well-formed")).collect();
    assert_eq!(pairs[0], (Value::Uint(300), Value::Null));
    assert_eq!(pairs[1], (Value::Symbol("x-opt-a"), Value::Uint(1)));
    assert_eq!(pairs.len(), 4);
    check("c1 01 00", Value::Map(Map::default()));
    assert_eq!(Map::decode(&[0x40]), Err(DecodeError::WrongType { field: "map", code: 0x40 }));
}

fn array(input: &[u8]) -> Array<'_> {
    match Value::decode(input) {
        Ok(Value::Array(array)) => array,
        other => panic!("{other:?} is no array"),
    }
}

#[test]
fn arrays_share_one_constructor() {
    // §1.6.24
    let input = bytes("e0 06 02 a3 01 'a' 01 'b'");
    let symbols: Vec<_> = array(&input).iter().collect();
    assert_eq!(symbols, [Ok(Value::Symbol("a")), Ok(Value::Symbol("b"))]);
    let wide = bytes("f0 00 00 00 09 00 00 00 02 a3 01 'a' 01 'b'");
    let mut out = Vec::new();
    array(&wide).encode(&mut out);
    assert_eq!(out, input);
    // Elements may be compound.
    let lists = bytes("e0 08 02 c0 02 01 41 02 01 42");
    let lists: Vec<_> = array(&lists).iter().map(|list| list.expect("a list")).collect();
    assert_eq!(lists.len(), 2);
    assert!(matches!(lists[1], Value::List(list) if elements(list) == [Ok(Value::Boolean(false))]));
    // An empty array still has a constructor; some peers leave it out.
    assert!(array(&bytes("e0 02 00 a3")).is_empty());
    assert!(array(&bytes("e0 01 00")).is_empty());
    check_error("e0 01 01", DecodeError::Truncated);
    check_error("e0 05 02 70 00 00 00", DecodeError::CountMismatch);
    check_error("e0 03 02 a3 00", DecodeError::CountMismatch);
    check_error("e0 03 01 ff 00", DecodeError::UnknownConstructor { code: 0xff });
}

#[test]
fn array_elements_may_be_described() {
    // §1.2: the constructor of figure 1.5, a descriptor and a string.
    let input = bytes("e0 0c 02 00 a1 03 'URL' a1 01 'x' 01 'y'");
    let array = array(&input);
    let values: Vec<_> = array.iter().map(|value| value.expect("well-formed")).collect();
    let Value::Described(second) = values[1] else { panic!("described") };
    assert_eq!(second.value(), Ok(Value::String("y")));
    assert!(matches!(second.descriptor(), Ok(Descriptor::Other(_))));
    // On its own it is the same value with a constructor of its own.
    let mut out = Vec::new();
    values[1].encode(&mut out);
    assert_eq!(out, bytes("00 a1 03 'URL' a1 01 'y'"));
    assert_eq!(check_value(&input), Ok(()));
    // A descriptor that is wrong inside.
    assert_eq!(check_value(&bytes("e0 08 01 00 a1 01 ff a1 01 'x'")), Err(DecodeError::InvalidText));
}

#[test]
fn described_values_keep_descriptor_and_value() {
    // §1.3: the example of figure 1.3 and its kin.
    let input = bytes("00 a3 03 'foo' a1 03 'bar'");
    let Ok(Value::Described(described)) = Value::decode(&input) else { panic!("described") };
    assert_eq!(described.descriptor(), Ok(Descriptor::Symbol("foo")));
    assert_eq!(described.value(), Ok(Value::String("bar")));
    // What is described may be described itself.
    let input = bytes("00 53 01 00 53 02 43");
    let Ok(Value::Described(outer)) = Value::decode(&input) else { panic!("described") };
    assert_eq!(outer.descriptor(), Ok(Descriptor::Code(1)));
    let Ok(Value::Described(inner)) = outer.value() else { panic!("described") };
    assert_eq!(inner.descriptor(), Ok(Descriptor::Code(2)));
    assert_eq!(inner.value(), Ok(Value::Uint(0)));
    // And so may a descriptor.
    let input = bytes("00 00 53 01 43 41");
    let Ok(Value::Described(described)) = Value::decode(&input) else { panic!("described") };
    assert!(
        matches!(described.descriptor(), Ok(Descriptor::Other(raw)) if raw.bytes() == bytes("00 53 01 43"))
    );
    assert_eq!(described.value(), Ok(Value::Boolean(true)));
    check_error("00 53 01", DecodeError::Truncated);
    // Wrong inside the descriptor, or inside what it describes.
    for wrong in ["00 a3 01 ff 43", "00 53 01 a1 01 ff", "00 00 a1 01 ff 43 41", "c0 [01 00 53 01 a1 01 ff]"]
    {
        assert!(Value::decode(&bytes(wrong)).is_ok());
        assert_eq!(
            check_value(&bytes(wrong)).map_err(|error| error.condition()),
            Err("amqp:decode-error"),
            "{wrong}"
        );
    }
}

#[test]
fn symbolic_descriptors_have_codes() {
    // §1.5: either form names the type.
    for (name, code) in
        [("amqp:transfer:list", 0x14), ("amqp:accepted:list", 0x24), ("amqp:footer:map", 0x78)]
    {
        assert_eq!(Descriptor::Symbol(name).code(), Some(code));
    }
    assert_eq!(Descriptor::Symbol("apache.org:selector-filter:string").code(), None);
}

#[test]
fn lists_are_written_in_place_and_widen_when_they_must() {
    let mut out = vec![0xee];
    ListWriter::new(&mut out).finish();
    assert_eq!(out, [0xee, 0x45]);
    for (size, head) in [(252, "c0 ff 01"), (253, "d0 00 00 01 03 00 00 00 01")] {
        let text = "x".repeat(size);
        let mut out = vec![0xee];
        let mut list = ListWriter::new(&mut out);
        list.field(&text.as_str());
        list.finish();
        let head = bytes(head);
        assert_eq!(out[1..1 + head.len()], head, "{size}");
        let Ok(Value::List(list)) = Value::decode(&out[1..]) else { panic!("a list") };
        assert_eq!(elements(list), [Ok(Value::String(&text))]);
    }
    // A plain list keeps its trailing nulls; more than 255 elements need a wide count.
    let mut out = Vec::new();
    let mut list = ListWriter::new(&mut out);
    for _ in 0..256 {
        list.null();
    }
    list.finish();
    assert_eq!(out[..9], bytes("d0 00 00 01 04 00 00 01 00"));
    assert_eq!(check_value(&out), Ok(()));
}

#[test]
fn raw_values_are_passed_unread() {
    let input = bytes("c0 03 01 a1 ff 43");
    let mut reader = Reader::new(&input);
    let raw = Raw::read(&mut reader).expect("a value");
    assert_eq!(raw.bytes(), &input[..5]);
    assert_eq!(reader.rest(), [0x43]);
    let mut out = Vec::new();
    raw.encode(&mut out);
    assert_eq!(out, raw.bytes());
}

#[test]
fn values_are_described_to_be_sent() {
    // §3.5.8: a filter set maps names to described filters.
    let mut out = Vec::new();
    let mut map = MapWriter::new(&mut out);
    let name = Descriptor::Symbol("apache.org:selector-filter:string");
    map.symbol("selector", &DescribedAs(name, "a > 1"));
    map.symbol("no-local", &DescribedAs(Descriptor::Code(0x4_6800_0000_0003), List::default()));
    map.finish();
    let expected = "c1 [04 a3 ['selector'] 00 a3 ['apache.org:selector-filter:string'] a1 ['a > 1']
        a3 ['no-local'] 00 80 00 04 68 00 00 00 00 03 45]";
    assert_eq!(out, bytes(expected));
}

#[test]
fn integers_of_any_type_are_numbers() {
    for value in [Value::Ubyte(7), Value::Ushort(7), Value::Uint(7), Value::Ulong(7)] {
        assert_eq!(value.as_i64(), Some(7));
    }
    for value in [Value::Byte(-7), Value::Short(-7), Value::Int(-7), Value::Long(-7)] {
        assert_eq!(value.as_i64(), Some(-7));
    }
    for value in [Value::Ulong(u64::MAX), Value::Timestamp(1), Value::Float(1.0), Value::Null] {
        assert_eq!(value.as_i64(), None);
    }
}
