//! Is every stream of frames answered with values or errors, and is what was read written the same?

#![no_main]

use corelane_wire::amqp10::{
    Encode, Frame, FrameHeader, FrameKind, Performative, ProtocolHeader, SaslPerformative,
    TransactionRequest, write_frame,
};
use libfuzzer_sys::fuzz_target;

const FRAME_SIZE_MAX: u32 = 4096;

fuzz_target!(|input: &[u8]| {
    if let Some(header) = input.first_chunk().and_then(ProtocolHeader::parse) {
        assert_eq!(Some(&header.bytes()), input.first_chunk());
    }
    let mut rest = input;
    loop {
        let before = rest;
        match Frame::take(&mut rest, FRAME_SIZE_MAX) {
            Ok(Some(frame)) => {
                assert!(before.len() - rest.len() >= 8 + frame.body.len());
                body(frame);
            }
            Ok(None) => {
                assert_eq!(before, rest);
                assert!(FrameHeader::parse(rest, FRAME_SIZE_MAX).is_ok());
                break;
            }
            Err(_) => {
                assert_eq!(before, rest);
                break;
            }
        }
    }
    // Bodies are found faster without a frame around them.
    body(Frame { kind: FrameKind::Amqp, channel: 0, body: input });
    body(Frame { kind: FrameKind::Sasl, channel: 0, body: input });
});

fn body(frame: Frame<'_>) {
    match frame.kind {
        FrameKind::Amqp => {
            if let Ok((performative, payload)) = Performative::decode(frame.body) {
                assert!(frame.body.ends_with(payload));
                let mut out = Vec::new();
                write_frame(&mut out, frame.kind, frame.channel, &performative, payload);
                let again = Frame::take(&mut out.as_slice(), u32::MAX).expect("a frame").expect("complete");
                assert_eq!(again.channel, frame.channel);
                assert_eq!(Performative::decode(again.body), Ok((performative, payload)));
            }
        }
        FrameKind::Sasl => {
            if let Ok(performative) = SaslPerformative::decode(frame.body) {
                let mut out = Vec::new();
                performative.encode(&mut out);
                assert_eq!(SaslPerformative::decode(&out), Ok(performative));
            }
        }
    }
    if let Ok(request) = TransactionRequest::decode(frame.body) {
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(TransactionRequest::decode(&out), Ok(request));
    }
}
