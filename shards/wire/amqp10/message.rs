//! How are the sections of a message written that have no struct of their own?
//!
//! A message is its sections one after the other (§3.2): header and properties by their `Encode`, the rest by these
//! functions, in the specification's order. The order is the caller's to keep.

use super::descriptor::{AMQP_SEQUENCE, AMQP_VALUE, DATA};
use super::encode::{Encode, MapSection, MapWriter, binary_head, describe};
use super::value::{List, Value};

/// Annotations have symbols as keys (§3.2.10).
pub fn write_delivery_annotations(out: &mut Vec<u8>, annotations: &[(&str, Value<'_>)]) {
    annotation_map(out, MapSection::DeliveryAnnotations, annotations);
}

pub fn write_message_annotations(out: &mut Vec<u8>, annotations: &[(&str, Value<'_>)]) {
    annotation_map(out, MapSection::MessageAnnotations, annotations);
}

pub fn write_footer(out: &mut Vec<u8>, annotations: &[(&str, Value<'_>)]) {
    annotation_map(out, MapSection::Footer, annotations);
}

/// Application properties have strings as keys, and values of simple types only (§3.2.5).
pub fn write_application_properties(out: &mut Vec<u8>, properties: &[(&str, Value<'_>)]) {
    let mut map = MapWriter::section(out, MapSection::ApplicationProperties);
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

fn annotation_map(out: &mut Vec<u8>, section: MapSection, annotations: &[(&str, Value<'_>)]) {
    let mut map = MapWriter::section(out, section);
    for (key, value) in annotations {
        map.symbol(key, value);
    }
    map.finish();
}
