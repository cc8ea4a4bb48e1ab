//! What are the frames behind a method that has content (§4.2.6)?
//!
//! A content header, then body frames, none of them empty, whose payloads add up to the header's body size.

use super::error::DecodeError;
use super::frame::{FrameKind, begin_frame, finish_frame};
use super::limits::FRAME_EMPTY_SIZE;
use super::methods::basic;
use super::properties::PropertyFields;
use super::reader::Reader;

/// Bytes of a content header's payload before its properties: class, weight, body size.
const FIXED_SIZE: usize = 12;

/// The payload of a header frame (§4.2.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentHeader<'a> {
    /// Bytes of all body frames' payloads together.
    pub body_size: u64,
    pub properties: PropertyFields<'a>,
}

impl<'a> ContentHeader<'a> {
    /// Reads a header frame's payload. The properties are not looked at.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let (class_id, weight) = (reader.be_u16()?, reader.be_u16()?);
        if class_id != basic::CLASS_ID {
            return Err(DecodeError::UnexpectedClass { class_id });
        }
        if weight != 0 {
            return Err(DecodeError::UnexpectedWeight { weight });
        }
        Ok(Self { body_size: reader.be_u64()?, properties: PropertyFields::new(reader.rest()) })
    }
}

/// Starts a header frame: its properties must be appended next, and [`finish_frame`] ends it. Returns the frame's start.
#[inline]
pub fn begin_content_header(out: &mut Vec<u8>, channel: u16, body_size: u64) -> usize {
    let start = begin_frame(out, FrameKind::Header, channel);
    let mut fixed = [0; FIXED_SIZE];
    fixed[..2].copy_from_slice(&basic::CLASS_ID.to_be_bytes());
    fixed[4..].copy_from_slice(&body_size.to_be_bytes());
    out.extend_from_slice(&fixed);
    start
}

/// Appends a header frame with properties as they are encoded.
#[inline]
pub fn write_content_header(out: &mut Vec<u8>, channel: u16, body_size: u64, properties: PropertyFields<'_>) {
    let start = begin_content_header(out, channel, body_size);
    out.extend_from_slice(properties.bytes());
    finish_frame(out, start);
}

/// Appends a body, or a part of one, in frames of at most `frame_size_max` bytes each, header and end octet counted. Nothing is
/// appended for an empty one.
#[inline]
pub fn write_body(out: &mut Vec<u8>, channel: u16, body: &[u8], frame_size_max: u32) {
    debug_assert!(frame_size_max > FRAME_EMPTY_SIZE, "a frame has room for a body");
    let payload_size_max = frame_size_max.saturating_sub(FRAME_EMPTY_SIZE).max(1) as usize;
    let frames = body.len().div_ceil(payload_size_max);
    out.reserve(body.len() + frames * FRAME_EMPTY_SIZE as usize);
    for payload in body.chunks(payload_size_max) {
        let start = begin_frame(out, FrameKind::Body, channel);
        out.extend_from_slice(payload);
        finish_frame(out, start);
    }
}
