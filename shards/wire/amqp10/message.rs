//! How are the sections of a message written that have no struct of their own?
//!
//! A message is its sections one after the other (§3.2): header and properties by their `Encode`, the rest by these
//! functions, in the specification's order. The order is the caller's to keep.

use super::descriptor::{
    AMQP_SEQUENCE, AMQP_VALUE, APPLICATION_PROPERTIES, DATA, DELIVERY_ANNOTATIONS, FOOTER,
    MESSAGE_ANNOTATIONS,
};
use super::encode::{Encode, MapWriter, binary_head, describe};
use super::value::{List, Value};

/// Annotations have symbols as keys (§3.2.10).
pub fn write_delivery_annotations(out: &mut Vec<u8>, annotations: &[(&str, Value<'_>)]) {
    annotation_map(out, DELIVERY_ANNOTATIONS, annotations);
}

pub fn write_message_annotations(out: &mut Vec<u8>, annotations: &[(&str, Value<'_>)]) {
    annotation_map(out, MESSAGE_ANNOTATIONS, annotations);
}

pub fn write_footer(out: &mut Vec<u8>, annotations: &[(&str, Value<'_>)]) {
    annotation_map(out, FOOTER, annotations);
}

/// Application properties have strings as keys, and values of simple types only (§3.2.5).
pub fn write_application_properties(out: &mut Vec<u8>, properties: &[(&str, Value<'_>)]) {
    describe(out, APPLICATION_PROPERTIES);
    let mut map = MapWriter::new(out);
    for (key, value) in properties {
        map.pair(key, value);
    }
    map.finish();
}

/// A data section (§3.2.6).
pub fn write_data(out: &mut Vec<u8>, data: &[u8]) {
    write_data_head(out, data.len());
    out.extend_from_slice(data);
}

/// A data section up to its data, of which `size` bytes must follow.
pub fn write_data_head(out: &mut Vec<u8>, size: usize) {
    describe(out, DATA);
    binary_head(out, size);
}

/// An amqp-sequence section (§3.2.7).
pub fn write_amqp_sequence(out: &mut Vec<u8>, list: &List<'_>) {
    describe(out, AMQP_SEQUENCE);
    list.encode(out);
}

/// An amqp-value section (§3.2.8).
pub fn write_amqp_value(out: &mut Vec<u8>, value: &impl Encode) {
    describe(out, AMQP_VALUE);
    value.encode(out);
}

fn annotation_map(out: &mut Vec<u8>, code: u8, annotations: &[(&str, Value<'_>)]) {
    describe(out, code);
    let mut map = MapWriter::new(out);
    for (key, value) in annotations {
        map.symbol(key, value);
    }
    map.finish();
}
