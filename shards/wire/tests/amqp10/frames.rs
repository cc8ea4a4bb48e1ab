//! Tables of protocol headers and frames (§2.2, §2.3).

use corelane_wire::amqp10::{
    Close, Frame, FrameError, FrameHeader, FrameKind, ProtocolHeader, ProtocolId, begin_frame, finish_frame,
    write_frame,
};

use crate::bytes;

#[test]
fn protocol_headers_are_told_apart() {
    let check = |text: &str, header: Option<ProtocolHeader>| {
        let input = bytes(text);
        let input = input.first_chunk().expect("eight bytes");
        assert_eq!(ProtocolHeader::parse(input), header, "{text}");
        if let Some(header) = header {
            assert_eq!(header.bytes(), *input, "{text}");
        }
    };
    // §2.2, §5.2.1, §5.3.2
    check("'AMQP' 00 01 00 00", Some(ProtocolHeader::AMQP));
    check("'AMQP' 02 01 00 00", Some(ProtocolHeader::TLS));
    check("'AMQP' 03 01 00 00", Some(ProtocolHeader::SASL));
    // AMQP 0-9-1 §4.2.2
    check("'AMQP' 00 00 09 01", Some(ProtocolHeader::AMQP091));
    check("'AMQP' 00 01 01 00", Some(ProtocolHeader { id: ProtocolId::Amqp, version: [1, 1, 0] }));
    check("'AMQP' 01 01 00 0a", Some(ProtocolHeader { id: ProtocolId::Other(1), version: [1, 0, 10] }));
    check("'GET / H'00", None);
    check("16 03 01 02 00 01 00 01", None);
}

#[test]
fn versions_before_10_are_told_apart() {
    let check = |text: &str, is_before: bool| {
        let header = bytes(text).first_chunk().and_then(ProtocolHeader::parse).expect("a header");
        assert_eq!(header.is_before_10(), is_before, "{text}");
    };
    check("'AMQP' 00 00 09 01", true);
    check("'AMQP' 00 00 09 02", true);
    // 0-8 as most clients write it, 0-8 as its specification does, 0-9, 0-10.
    check("'AMQP' 01 01 08 00", true);
    check("'AMQP' 01 01 09 01", true);
    check("'AMQP' 01 01 00 09", true);
    check("'AMQP' 01 01 00 0a", true);
    check("'AMQP' 00 01 00 00", false);
    check("'AMQP' 00 01 01 00", false);
    check("'AMQP' 03 01 00 00", false);
    check("'AMQP' 02 01 00 00", false);
    check("'AMQP' 04 01 00 00", false);
}

fn check_error(text: &str, error: FrameError) {
    let input = bytes(text);
    assert_eq!(FrameHeader::parse(&input, 512), Err(error), "{text}");
    assert_eq!(Frame::take(&mut input.as_slice(), 512), Err(error), "{text}");
    assert_eq!(error.condition(), "amqp:connection:framing-error");
    assert!(!error.to_string().is_empty());
}

#[test]
fn malformed_frame_headers_are_distinct_errors() {
    // §2.3.1: the size includes the frame header, so it is malformed below 8.
    check_error("00 00 00 07 02 00 00 00", FrameError::SizeBelowHeader { size: 7 });
    check_error("00 00 00 00 02 00 00 00", FrameError::SizeBelowHeader { size: 0 });
    // §2.7.1
    check_error("00 00 02 01 02 00 00 00", FrameError::SizeOverMax { size: 513, max: 512 });
    check_error("ff ff ff ff 02 00 00 00", FrameError::SizeOverMax { size: u32::MAX, max: 512 });
    // §2.3.1: malformed with a data offset below 2.
    check_error("00 00 00 08 01 00 00 00", FrameError::DataOffsetBelowHeader { data_offset: 1 });
    check_error("00 00 00 08 00 00 00 00", FrameError::DataOffsetBelowHeader { data_offset: 0 });
    check_error("00 00 00 0b 03 00 00 00", FrameError::DataOffsetBeyondSize { data_offset: 3, size: 11 });
    check_error("00 00 00 08 02 02 00 00", FrameError::UnknownKind { kind: 2 });
}

#[test]
fn frames_are_taken_whole() {
    let input = bytes("00 00 00 0a 02 00 01 02 aa bb 00 00 00 08 02 01 00 00 00");
    let mut rest = input.as_slice();
    let first = Frame::take(&mut rest, 512).expect("well-formed").expect("complete");
    assert_eq!(first, Frame { kind: FrameKind::Amqp, channel: 0x0102, body: &[0xaa, 0xbb] });
    // §2.4.5: an empty frame.
    let second = Frame::take(&mut rest, 512).expect("well-formed").expect("complete");
    assert_eq!(second, Frame { kind: FrameKind::Sasl, channel: 0, body: &[] });
    assert_eq!(Frame::take(&mut rest, 512), Ok(None));
    assert_eq!(rest, [0]);
    for end in 0..10 {
        let mut rest = &input[..end];
        assert_eq!(Frame::take(&mut rest, 512), Ok(None), "cut at {end}");
        assert_eq!(rest.len(), end);
    }
}

#[test]
fn extended_headers_are_passed_over() {
    // §2.3.1: what stands between byte 8 and the data offset is to be ignored.
    let input = bytes("00 00 00 0e 03 00 00 00 de ad be ef 01 02");
    let frame = Frame::take(&mut input.as_slice(), 512).expect("well-formed").expect("complete");
    assert_eq!(frame.body, [1, 2]);
}

#[test]
fn a_frame_of_exactly_the_maximum_is_taken() {
    let mut out = Vec::new();
    let start = begin_frame(&mut out, FrameKind::Amqp, 7);
    out.resize(512, 0x40);
    finish_frame(&mut out, start);
    let frame = Frame::take(&mut out.as_slice(), 512).expect("well-formed").expect("complete");
    assert_eq!((frame.channel, frame.body.len()), (7, 504));
}

#[test]
fn frames_are_appended() {
    let mut out = vec![0xee];
    write_frame(&mut out, FrameKind::Amqp, 3, &Close::default(), &[]);
    assert_eq!(out, bytes("ee 00 00 00 0c 02 00 00 03 00 53 18 45"));
}
