//! Tables of field values (§4.2.5.5, and RabbitMQ's errata to it).

use corelane_wire::amqp091::{
    Array, ArrayWriter, DecodeError, FieldValue, NESTING_MAX, ReplyCode, ShortStr, Table, TableWriter,
    check_table,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::bytes;

const NAME: ShortStr<'static> = ShortStr::literal("a");

/// One value under the name `a`, read; and written with the first of the letters that mean the same.
fn check(letter: char, text: &str, value: FieldValue<'_>) {
    let check = |letter: char| {
        let table = bytes(&format!("['a'] '{letter}' {text}"));
        assert_eq!(check_table(Table::new(&table)), Ok(()), "{letter} {text}");
        let pairs: Vec<_> = Table::new(&table).iter().collect();
        assert_eq!(pairs, [Ok((NAME, value))], "{letter} {text}");
        assert_eq!(Array::new(&table[2..]).iter().collect::<Vec<_>>(), [Ok(value)], "{letter} {text}");
        for end in 1..table.len() {
            assert_eq!(
                check_table(Table::new(&table[..end])),
                Err(DecodeError::Truncated),
                "{letter} {text}"
            );
        }
        table
    };
    let table = check(letter);
    let mut out = Vec::new();
    TableWriter::new(&mut out).pair(NAME, value);
    assert_eq!(out, table, "{letter} {text}");
    match letter {
        'l' => drop(check('L')),
        's' => drop(check('U')),
        _ => {}
    }
}

#[test]
fn each_field_type() {
    check('t', "01", FieldValue::Boolean(true));
    check('t', "00", FieldValue::Boolean(false));
    check('b', "80", FieldValue::Int8(-128));
    check('B', "80", FieldValue::Uint8(128));
    check('s', "fffe", FieldValue::Int16(-2));
    check('u', "fffe", FieldValue::Uint16(0xfffe));
    check('I', "fffffffd", FieldValue::Int32(-3));
    check('i', "fffffffd", FieldValue::Uint32(0xffff_fffd));
    check('l', "fffffffffffffffc", FieldValue::Int64(-4));
    check('f', "3fc00000", FieldValue::Float(1.5));
    check('d', "bff8000000000000", FieldValue::Double(-1.5));
    check('D', "02 0000007b", FieldValue::Decimal { scale: 2, value: 123 });
    check('D', "00 ffffffff", FieldValue::Decimal { scale: 0, value: -1 });
    check('T', "0000000065920080", FieldValue::Timestamp(1_704_067_200));
    check('S', "('text' ff)", FieldValue::LongString(b"text\xff"));
    check('x', "(0001)", FieldValue::Bytes(&[0, 1]));
    check('V', "", FieldValue::Void);
    check('A', "('t' 01 'V')", FieldValue::Array(Array::new(b"t\x01V")));
    check('A', "()", FieldValue::Array(Array::default()));
    check('F', "(['b'] 'V')", FieldValue::Table(Table::new(b"\x01bV")));
    check('F', "()", FieldValue::Table(Table::default()));
}

#[test]
fn any_octet_but_zero_is_true() {
    let table = bytes("['a'] 't' 02");
    assert_eq!(Table::new(&table).find("a"), Ok(Some(FieldValue::Boolean(true))));
}

#[test]
fn other_letters_are_errors() {
    let known = b"tbBsuUIilLfdDTSxVAF";
    for letter in (0..=u8::MAX).filter(|letter| !known.contains(letter)) {
        let table = [1, b'a', letter, 0, 0, 0, 0, 0, 0, 0, 0];
        let error = DecodeError::UnknownFieldType { letter };
        assert_eq!(error.reply_code(), ReplyCode::SyntaxError);
        assert_eq!(check_table(Table::new(&table)), Err(error));
        assert_eq!(Table::new(&table).iter().collect::<Vec<_>>(), [Err(error)]);
        assert_eq!(Table::new(&table).find("b"), Err(error));
    }
    // Nested ones are found by the check, and no walk of what is around them minds.
    let table = bytes("['a'] 'F' (['b'] 'A' ('z'))");
    assert_eq!(check_table(Table::new(&table)), Err(DecodeError::UnknownFieldType { letter: b'z' }));
    assert_eq!(Table::new(&table).iter().filter(Result::is_ok).count(), 1);
}

#[test]
fn integers_of_any_type_are_numbers() {
    let numbers = bytes("'b'05 'B'05 's'0005 'U'0005 'u'0005 'I'00000005 'i'00000005 'l'0000000000000005");
    let numbers: Vec<_> =
        Array::new(&numbers).iter().map(|value| value.expect("a number").as_integer()).collect();
    assert_eq!(numbers, [Some(5); 8]);
    for value in
        [FieldValue::Void, FieldValue::Double(5.0), FieldValue::LongString(b"5"), FieldValue::Boolean(true)]
    {
        assert_eq!(value.as_integer(), None);
    }
    assert_eq!(FieldValue::LongString(b"5").as_str(), Some("5"));
    assert_eq!(FieldValue::LongString(b"\xff").as_str(), None);
    assert_eq!(FieldValue::Bytes(b"5").as_str(), None);
}

#[test]
fn the_first_of_equal_names_is_found() {
    let table = bytes("['a'] 'B' 01 ['b'] 'V' ['a'] 'B' 02");
    let table = Table::new(&table);
    assert_eq!(table.find("a"), Ok(Some(FieldValue::Uint8(1))));
    assert_eq!(table.find("b"), Ok(Some(FieldValue::Void)));
    assert_eq!(table.find("c"), Ok(None));
    assert_eq!(table.iter().count(), 3);
}

#[test]
fn tables_are_written_in_place() {
    // As RabbitMQ writes it into a dead letter's headers.
    let name = ShortStr::literal;
    let mut out = Vec::new();
    let mut table = TableWriter::new(&mut out);
    table.array(name("x-death"), |deaths| {
        deaths.table(|death| {
            death.pair(name("count"), FieldValue::Int64(1));
            death.array(name("routing-keys"), |keys| keys.value(FieldValue::LongString(b"key")));
        });
        deaths.array(|empty| empty.values_of(Array::default()));
    });
    table.table(name("t"), |inner| inner.pairs_of(Table::new(b"\x01bV")));
    table.pair(name("n"), FieldValue::Void);
    let expected = "['x-death'] 'A' (
            'F' ( ['count'] 'l' 0000000000000001 ['routing-keys'] 'A' ( 'S' ('key') ) )
            'A' ()
        )
        ['t'] 'F' ( ['b'] 'V' )
        ['n'] 'V'";
    assert_eq!(out, bytes(expected));
    assert_eq!(check_table(Table::new(&out)), Ok(()));
    let mut out = Vec::new();
    ArrayWriter::new(&mut out).table(|table| table.pair(NAME, FieldValue::Void));
    assert_eq!(out, bytes("'F' (['a'] 'V')"));
}

/// Tables in tables or arrays in arrays, so many around each other.
pub(crate) fn nested(depth: usize, is_table: bool) -> Vec<u8> {
    let head = if is_table { &b"\x01aF"[..] } else { b"A" };
    let mut table = Vec::new();
    for level in (0..depth - 1).rev() {
        table.extend_from_slice(if level == depth - 2 && !is_table { b"\x01aA" } else { head });
        let size = level * (head.len() + 4);
        table.extend_from_slice(&u32::try_from(size).expect("small").to_be_bytes());
    }
    table
}

#[test]
fn nesting_is_bounded() {
    for is_table in [true, false] {
        assert_eq!(check_table(Table::new(&nested(NESTING_MAX, is_table))), Ok(()));
        for depth in [NESTING_MAX + 1, 10_000, 1_000_000] {
            assert_eq!(
                check_table(Table::new(&nested(depth, is_table))),
                Err(DecodeError::TooDeep),
                "{depth}"
            );
        }
    }
    // Many beside each other are not deep.
    let table = bytes("['a'] 'F' (['b'] 'A' ('A' ()))").repeat(10_000);
    assert_eq!(check_table(Table::new(&table)), Ok(()));
    assert_eq!(DecodeError::TooDeep.reply_code(), ReplyCode::SyntaxError);
}

/// Values of any type, encoded: letter and all.
pub(crate) fn value() -> impl Strategy<Value = Vec<u8>> {
    let flat = prop_oneof![
        Just(FieldValue::Void),
        any::<bool>().prop_map(FieldValue::Boolean),
        any::<i8>().prop_map(FieldValue::Int8),
        any::<u8>().prop_map(FieldValue::Uint8),
        any::<i16>().prop_map(FieldValue::Int16),
        any::<u16>().prop_map(FieldValue::Uint16),
        any::<i32>().prop_map(FieldValue::Int32),
        any::<u32>().prop_map(FieldValue::Uint32),
        any::<i64>().prop_map(FieldValue::Int64),
        any::<f32>().prop_map(FieldValue::Float),
        any::<f64>().prop_map(FieldValue::Double),
        any::<(u8, i32)>().prop_map(|(scale, value)| FieldValue::Decimal { scale, value }),
        any::<u64>().prop_map(FieldValue::Timestamp),
        vec(any::<u8>(), 0..300).prop_map(|bytes| FieldValue::LongString(bytes.leak())),
        vec(any::<u8>(), 0..9).prop_map(|bytes| FieldValue::Bytes(bytes.leak())),
    ];
    let flat = flat.prop_map(|value| {
        let mut out = Vec::new();
        ArrayWriter::new(&mut out).value(value);
        out
    });
    flat.prop_recursive(4, 32, 4, |inner| {
        let name = vec(any::<u8>(), 0..255);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|values| {
                let mut out = Vec::new();
                ArrayWriter::new(&mut out).array(|array| array.values_of(Array::new(&values.concat())));
                out
            }),
            vec((name, inner), 0..4).prop_map(|pairs| {
                let mut out = Vec::new();
                ArrayWriter::new(&mut out).table(|table| table.pairs_of(Table::new(&join(&pairs))));
                out
            }),
        ]
    })
}

fn join(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let pair = |(name, value): &(Vec<u8>, Vec<u8>)| [&[name.len() as u8], name.as_slice(), value].concat();
    pairs.iter().flat_map(pair).collect()
}

/// A table's bytes.
pub(crate) fn table() -> impl Strategy<Value = Vec<u8>> {
    vec((vec(any::<u8>(), 0..255), value()), 0..5).prop_map(|pairs| join(&pairs))
}

/// Writes every value again from what was read of it, all the way down.
fn rewrite(table: Table<'_>, writer: &mut TableWriter<'_>) {
    for pair in table {
        match pair.expect("a checked table") {
            (name, FieldValue::Table(inner)) => writer.table(name, |writer| rewrite(inner, writer)),
            (name, FieldValue::Array(inner)) => writer.array(name, |writer| rewrite_array(inner, writer)),
            (name, value) => writer.pair(name, value),
        }
    }
}

fn rewrite_array(array: Array<'_>, writer: &mut ArrayWriter<'_>) {
    for value in array {
        match value.expect("a checked array") {
            FieldValue::Table(inner) => writer.table(|writer| rewrite(inner, writer)),
            FieldValue::Array(inner) => writer.array(|writer| rewrite_array(inner, writer)),
            value => writer.value(value),
        }
    }
}

proptest! {
    #[test]
    fn tables_are_read_and_written(bytes in table()) {
        prop_assert_eq!(check_table(Table::new(&bytes)), Ok(()));
        let mut out = Vec::new();
        rewrite(Table::new(&bytes), &mut TableWriter::new(&mut out));
        prop_assert_eq!(&out, &bytes);
        // Cut anywhere, it is a shorter table or an error; walking it ends.
        for end in 0..bytes.len() {
            let cut = Table::new(&bytes[..end]);
            prop_assert!(cut.iter().count() <= end);
            let is_whole = cut.iter().all(|pair| pair.is_ok());
            prop_assert_eq!(check_table(cut), if is_whole { Ok(()) } else { Err(DecodeError::Truncated) });
        }
    }
}
