//! Where does a frame start and end, and what kind is it?
//!
//! `8 ≤ payload size + 8 ≤ maximum` and a last octet of 0xce hold for every frame that is handed out.

use super::encode::Encode;
use super::error::FrameError;
use super::limits::{FRAME_EMPTY_SIZE, FRAME_HEADER_SIZE};

/// The last octet of a frame (§4.2.3).
const FRAME_END: u8 = 0xce;

/// A whole heartbeat frame (§4.2.7).
pub const HEARTBEAT: [u8; 8] = [FrameKind::Heartbeat as u8, 0, 0, 0, 0, 0, 0, FRAME_END];

/// What a frame's payload is (§4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Method = 1,
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

/// What stands in front of a frame's payload (§4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    pub channel: u16,
    /// Bytes between this header and the end octet.
    pub payload_size: u32,
}

impl FrameHeader {
    /// Reads and checks the header at the front of `input`; `None` if it is not complete yet. `size_max` counts header and end
    /// octet, as frame-max does.
    #[inline]
    pub fn parse(input: &[u8], size_max: u32) -> Result<Option<Self>, FrameError> {
        let Some(&[kind, high, low, a, b, c, d]) = input.first_chunk() else { return Ok(None) };
        let kind = match kind {
            1 => FrameKind::Method,
            2 => FrameKind::Header,
            3 => FrameKind::Body,
            8 => FrameKind::Heartbeat,
            _ => return Err(FrameError::UnknownKind { kind }),
        };
        let channel = u16::from_be_bytes([high, low]);
        let payload_size = u32::from_be_bytes([a, b, c, d]);
        let size = u64::from(payload_size) + u64::from(FRAME_EMPTY_SIZE);
        if size > u64::from(size_max) {
            return Err(FrameError::SizeOverMax { size, max: size_max });
        }
        // §4.2.7: an invalid heartbeat is a frame error.
        if kind == FrameKind::Heartbeat && (channel, payload_size) != (0, 0) {
            return Err(FrameError::InvalidHeartbeat);
        }
        Ok(Some(Self { kind, channel, payload_size }))
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn size(&self) -> usize {
        self.payload_size as usize + FRAME_EMPTY_SIZE as usize
    }
}

/// One complete frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: FrameKind,
    pub channel: u16,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes one frame from the front of `input`; `None`, and `input` as it was, if it is not complete yet.
    #[inline]
    pub fn take(input: &mut &'a [u8], size_max: u32) -> Result<Option<Self>, FrameError> {
        let Some(header) = FrameHeader::parse(input, size_max)? else { return Ok(None) };
        let Some((frame, rest)) = input.split_at_checked(header.size()) else { return Ok(None) };
        let [.., end] = *frame else { return Ok(None) };
        if end != FRAME_END {
            return Err(FrameError::BadEnd { end });
        }
        *input = rest;
        let payload = &frame[FRAME_HEADER_SIZE as usize..frame.len() - 1];
        Ok(Some(Self { kind: header.kind, channel: header.channel, payload }))
    }
}

/// Appends a frame header whose size [`finish_frame`] fills in. Returns the frame's start.
#[inline]
pub fn begin_frame(out: &mut Vec<u8>, kind: FrameKind, channel: u16) -> usize {
    let start = out.len();
    let [high, low] = channel.to_be_bytes();
    out.extend_from_slice(&[kind as u8, high, low, 0, 0, 0, 0]);
    start
}

/// Ends the frame that [`begin_frame`] began at `start`: everything appended since is its payload.
#[inline]
pub fn finish_frame(out: &mut Vec<u8>, start: usize) {
    let payload_start = start + FRAME_HEADER_SIZE as usize;
    debug_assert!(out.len() >= payload_start, "a frame has its header");
    let size = out.len() - payload_start;
    debug_assert!(u32::try_from(size).is_ok(), "a frame is smaller than 4 GiB");
    out[start + 3..payload_start].copy_from_slice(&(size as u32).to_be_bytes());
    out.push(FRAME_END);
}

/// Appends a method frame.
#[inline]
pub fn write_method(out: &mut Vec<u8>, channel: u16, method: &impl Encode) {
    let start = begin_frame(out, FrameKind::Method, channel);
    method.encode(out);
    finish_frame(out, start);
}
