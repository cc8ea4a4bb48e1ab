//! Is every stream of 0-9-1 frames answered with values or errors, and is what was read written the same?

#![no_main]

use corelane_wire::amqp091::{
    Array, ArrayWriter, ContentHeader, Encode, FieldValue, Frame, FrameHeader, FrameKind, HEARTBEAT, Method,
    NESTING_MAX, PropertyFields, Table, TableWriter, check_table, write_body, write_content_header,
    write_method,
};
use libfuzzer_sys::fuzz_target;

const FRAME_SIZE_MAX: u32 = 4096;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    loop {
        let before = rest;
        match Frame::take(&mut rest, FRAME_SIZE_MAX) {
            Ok(Some(frame)) => {
                assert_eq!(before.len() - rest.len(), 8 + frame.payload.len());
                read(frame, &before[..before.len() - rest.len()]);
            }
            Ok(None) => {
                assert_eq!(before, rest);
                let header = FrameHeader::parse(rest, FRAME_SIZE_MAX).expect("no error yet");
                assert!(header.map_or(rest.len() < 7, |header| rest.len() < header.size()));
                break;
            }
            Err(_) => {
                assert_eq!(before, rest);
                break;
            }
        }
    }
    // Payloads are found faster without a frame around them.
    method(input);
    content_header(input);
    properties(PropertyFields::new(input));
    table(Table::new(input));
});

fn read(frame: Frame<'_>, whole: &[u8]) {
    let mut out = Vec::new();
    match frame.kind {
        FrameKind::Method => {
            if let Ok(method) = Method::decode(frame.payload) {
                write_method(&mut out, frame.channel, &method);
                let again = Frame::take(&mut out.as_slice(), u32::MAX).expect("a frame").expect("complete");
                assert_eq!((again.kind, again.channel), (frame.kind, frame.channel));
                assert_eq!(Method::decode(again.payload), Ok(method));
            }
        }
        FrameKind::Header => {
            if let Ok(header) = ContentHeader::decode(frame.payload) {
                write_content_header(&mut out, frame.channel, header.body_size, header.properties);
                assert_eq!(out, whole);
            }
        }
        FrameKind::Body => {
            write_body(&mut out, frame.channel, frame.payload, FRAME_SIZE_MAX);
            assert!(out == whole || frame.payload.is_empty());
        }
        FrameKind::Heartbeat => assert_eq!(whole, HEARTBEAT),
    }
}

fn method(payload: &[u8]) {
    let Ok(method) = Method::decode(payload) else { return };
    assert!(method.id().name().is_some());
    let mut out = Vec::new();
    method.encode(&mut out);
    // What is reserved is written empty.
    assert!(out.len() <= payload.len());
    assert_eq!(Method::decode(&out), Ok(method));
}

fn content_header(payload: &[u8]) {
    if let Ok(header) = ContentHeader::decode(payload) {
        assert_eq!(header.properties.bytes(), &payload[12..]);
        properties(header.properties);
    }
}

fn properties(fields: PropertyFields<'_>) {
    let last = fields.cluster_id();
    let headers = fields.headers();
    let Ok(properties) = fields.decode() else { return };
    assert_eq!(last, Ok(properties.cluster_id));
    assert_eq!(headers, Ok(properties.headers));
    assert_eq!(fields.timestamp(), Ok(properties.timestamp));
    let mut out = Vec::new();
    properties.encode(&mut out);
    // Words of flags without a flag are left out.
    assert!(fields.bytes().ends_with(&out[2..]));
    assert_eq!(PropertyFields::new(&out).decode(), Ok(properties));
    if let Some(headers) = properties.headers {
        assert_eq!(check_table(headers), Ok(()));
    }
}

fn table(table: Table<'_>) {
    let checked = check_table(table);
    let mut out = Vec::new();
    let written = rewrite(table, &mut TableWriter::new(&mut out), 1);
    // The check and a walk of everything agree, and the walk finds all that there is.
    assert_eq!(checked.is_ok(), written.is_some(), "{checked:?}");
    if written.is_some() {
        assert_eq!(out.len(), table.bytes().len());
        assert_eq!(check_table(Table::new(&out)), Ok(()));
        let mut twice = Vec::new();
        assert!(rewrite(Table::new(&out), &mut TableWriter::new(&mut twice), 1).is_some());
        assert_eq!(out, twice);
    }
}

/// Writes what a table holds, or `None` if it is wrong somewhere or too deep.
fn rewrite(table: Table<'_>, writer: &mut TableWriter<'_>, depth: usize) -> Option<()> {
    if depth > NESTING_MAX {
        return None;
    }
    for pair in table {
        match pair.ok()? {
            (name, FieldValue::Table(inner)) => {
                let mut written = None;
                writer.table(name, |writer| written = rewrite(inner, writer, depth + 1));
                written?;
            }
            (name, FieldValue::Array(inner)) => {
                let mut written = None;
                writer.array(name, |writer| written = rewrite_array(inner, writer, depth + 1));
                written?;
            }
            (name, value) => writer.pair(name, value),
        }
    }
    Some(())
}

fn rewrite_array(array: Array<'_>, writer: &mut ArrayWriter<'_>, depth: usize) -> Option<()> {
    if depth > NESTING_MAX {
        return None;
    }
    for value in array {
        let mut written = Some(());
        match value.ok()? {
            FieldValue::Table(inner) => {
                writer.table(|writer| written = rewrite(inner, writer, depth + 1));
            }
            FieldValue::Array(inner) => {
                writer.array(|writer| written = rewrite_array(inner, writer, depth + 1));
            }
            value => writer.value(value),
        }
        written?;
    }
    Some(())
}
