//! What a peer might send to hurt: each is answered with an error or a bounded amount of work.

use corelane_wire::amqp091::{
    Array, ContentHeader, DecodeError, Encode, Frame, Method, MethodError, PropertyFields, Table,
    check_table, queue,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::tables::nested;

/// Feeds bytes to every decoder. None may panic or run long; what they answer is not looked at.
fn decode_everything(input: &[u8]) {
    let _ = Frame::take(&mut &*input, 4096);
    let _ = Method::decode(input);
    let _ = ContentHeader::decode(input).map(|header| header.properties.decode().map(drop));
    let _ = PropertyFields::new(input).decode();
    let _ = PropertyFields::new(input).cluster_id();
    let _ = check_table(Table::new(input));
    assert!(Table::new(input).iter().count() <= input.len());
    assert!(Array::new(input).iter().count() <= input.len());
    let _ = Table::new(input).find("key");
}

#[test]
fn deep_tables_in_methods_are_refused() {
    for is_table in [true, false] {
        let arguments = nested(10_000, is_table);
        let declare = queue::Declare { arguments: Table::new(&arguments), ..queue::Declare::default() };
        let mut payload = Vec::new();
        declare.encode(&mut payload);
        let error = MethodError { id: queue::Declare::ID, error: DecodeError::TooDeep };
        assert_eq!(Method::decode(&payload), Err(error));
        assert_eq!(error.reply_code().code(), 502);
        assert_eq!(error.to_string(), "queue.declare: tables and arrays are nested more than 128 deep");
        decode_everything(&payload);
        decode_everything(&arguments);
    }
}

#[test]
fn every_short_input_is_harmless() {
    for first in 0..=u8::MAX {
        decode_everything(&[first]);
        for second in 0..=u8::MAX {
            decode_everything(&[first, second]);
            decode_everything(&[0, first, 0, second]);
            decode_everything(&[0, first, 0, second, 0xff, 0xff, 0xff, 0xff, 0xff]);
            decode_everything(&[1, b'a', first, second, 0xff, 0xff, 0xff, 0xff]);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_harmless(input in vec(any::<u8>(), 0..64)) {
        decode_everything(&input);
    }

    #[test]
    fn bytes_that_look_like_amqp_are_harmless(input in vec(prop_oneof![
        4 => Just(0_u8), 2 => 1..=12_u8, 1 => Just(20_u8), 1 => Just(40), 1 => Just(50), 2 => Just(60), 1 => Just(0xce),
        4 => prop::sample::select(b"tbBsuUIilLfdDTSxVAFa".to_vec()), 1 => Just(0xff), 1 => Just(0x80),
    ], 0..64)) {
        decode_everything(&input);
    }
}
