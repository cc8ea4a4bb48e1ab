//! Where does a frame start and end, and what kind is it?
//!
//! `8 ≤ 4 · data offset ≤ size ≤ maximum` holds for every frame that is handed out.

use super::error::FrameError;
use super::limits::FRAME_HEADER_SIZE;

/// The eight bytes that start a connection or one of its layers (§2.2, §5.2.1, §5.3.2; AMQP 0-9-1 §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolHeader {
    pub id: ProtocolId,
    /// Major, minor, revision.
    pub version: [u8; 3],
}

/// Which layer a protocol header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolId {
    Amqp,
    Tls,
    Sasl,
    /// `AMQP 0 0 9 1`: the older protocol, which has its version elsewhere.
    Amqp091,
    /// `AMQP`, then anything else.
    Other(u8),
}

impl ProtocolHeader {
    pub const SIZE: usize = 8;
    pub const AMQP: Self = Self { id: ProtocolId::Amqp, version: [1, 0, 0] };
    pub const TLS: Self = Self { id: ProtocolId::Tls, version: [1, 0, 0] };
    pub const SASL: Self = Self { id: ProtocolId::Sasl, version: [1, 0, 0] };
    pub const AMQP091: Self = Self { id: ProtocolId::Amqp091, version: [0, 9, 1] };

    /// Reads the header, or `None` if the bytes do not start with `AMQP`.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let [b'A', b'M', b'Q', b'P', id, major, minor, revision] = *bytes else { return None };
        let version = [major, minor, revision];
        let id = match (id, version) {
            (0, [0, 9, 1]) => ProtocolId::Amqp091,
            (0, _) => ProtocolId::Amqp,
            (2, _) => ProtocolId::Tls,
            (3, _) => ProtocolId::Sasl,
            (other, _) => ProtocolId::Other(other),
        };
        Some(Self { id, version })
    }

    /// Whether it asks for a version before 1.0: `AMQP 0 0 9 1`, other revisions in the same form, or those of 0-8 to 0-10,
    /// `AMQP 1 1 x y`. A peer that asks for one we lack is answered with [`AMQP091`](Self::AMQP091) (AMQP 0-9-1 §4.2.2).
    pub fn is_before_10(&self) -> bool {
        match self.id {
            ProtocolId::Amqp091 | ProtocolId::Other(1) => true,
            ProtocolId::Amqp => self.version[0] == 0,
            ProtocolId::Tls | ProtocolId::Sasl | ProtocolId::Other(_) => false,
        }
    }

    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let id = match self.id {
            ProtocolId::Amqp | ProtocolId::Amqp091 => 0,
            ProtocolId::Tls => 2,
            ProtocolId::Sasl => 3,
            ProtocolId::Other(id) => id,
        };
        let [major, minor, revision] = self.version;
        [b'A', b'M', b'Q', b'P', id, major, minor, revision]
    }
}

/// What a frame's body is (§2.3.1, §5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Amqp = 0,
    Sasl = 1,
}

/// The fixed part of a frame (§2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the whole frame, this header included.
    pub size: u32,
    /// Where the body starts, in words of four bytes from the frame's start.
    pub data_offset: u8,
    pub kind: FrameKind,
    /// The channel of an AMQP frame; of no meaning in a SASL frame.
    pub channel: u16,
}

impl FrameHeader {
    /// Reads and checks the header at the front of `input`; `None` if it is not complete yet.
    #[inline]
    pub fn parse(input: &[u8], size_max: u32) -> Result<Option<Self>, FrameError> {
        let Some(&[a, b, c, d, data_offset, kind, high, low]) = input.first_chunk() else { return Ok(None) };
        let size = u32::from_be_bytes([a, b, c, d]);
        if size < FRAME_HEADER_SIZE {
            return Err(FrameError::SizeBelowHeader { size });
        }
        if size > size_max {
            return Err(FrameError::SizeOverMax { size, max: size_max });
        }
        if data_offset < 2 {
            return Err(FrameError::DataOffsetBelowHeader { data_offset });
        }
        if u32::from(data_offset) * 4 > size {
            return Err(FrameError::DataOffsetBeyondSize { data_offset, size });
        }
        let kind = match kind {
            0 => FrameKind::Amqp,
            1 => FrameKind::Sasl,
            _ => return Err(FrameError::UnknownKind { kind }),
        };
        Ok(Some(Self { size, data_offset, kind, channel: u16::from_be_bytes([high, low]) }))
    }
}

/// One complete frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: FrameKind,
    pub channel: u16,
    /// Empty in a frame that only keeps the connection alive (§2.4.5).
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes one frame from the front of `input`; `None`, and `input` as it was, if it is not complete yet. The extended
    /// header is passed over (§2.3.1).
    #[inline]
    pub fn take(input: &mut &'a [u8], size_max: u32) -> Result<Option<Self>, FrameError> {
        let Some(header) = FrameHeader::parse(input, size_max)? else { return Ok(None) };
        let Some((frame, rest)) = input.split_at_checked(header.size as usize) else { return Ok(None) };
        *input = rest;
        let body = &frame[usize::from(header.data_offset) * 4..];
        Ok(Some(Self { kind: header.kind, channel: header.channel, body }))
    }
}

/// Appends a frame header whose size [`finish_frame`] fills in. Returns the frame's start.
#[inline]
pub fn begin_frame(out: &mut Vec<u8>, kind: FrameKind, channel: u16) -> usize {
    let start = out.len();
    let [high, low] = channel.to_be_bytes();
    out.extend_from_slice(&[0, 0, 0, 0, 2, kind as u8, high, low]);
    start
}

/// Ends the frame that [`begin_frame`] began at `start`: everything appended since is its body.
#[inline]
pub fn finish_frame(out: &mut [u8], start: usize) {
    let size = out.len() - start;
    debug_assert!(size >= FRAME_HEADER_SIZE as usize, "a frame has its header");
    debug_assert!(
        u32::try_from(size).is_ok(),
        "a frame is no larger than the peer's maximum, an unsigned int"
    );
    out[start..start + 4].copy_from_slice(&(size as u32).to_be_bytes());
}

/// Appends a whole frame: header, performative, payload.
#[inline]
pub fn write_frame(
    out: &mut Vec<u8>,
    kind: FrameKind,
    channel: u16,
    performative: &impl super::encode::Encode,
    payload: &[u8],
) {
    let start = begin_frame(out, kind, channel);
    performative.encode(out);
    out.extend_from_slice(payload);
    finish_frame(out, start);
}
