//! How much of anything does one connection take? Bounds that a peer negotiates or an operator sets are in
//! [`Config`](super::Config); these are the fixed ones.

/// Largest frame in bytes taken before the open exchange, unless the configured max-frame-size is smaller. The
/// specification names 512 (§2.7.1), but open frames with many properties and SASL tokens are larger in practice. A
/// larger frame is a framing error.
pub const FRAME_BEFORE_OPEN_MAX: u32 = 8192;

/// Milliseconds: the shortest idle timeout of a peer that is kept by empty frames. A shorter one would have us send all the time:
/// its connection is closed with an error.
pub const IDLE_TIME_OUT_MIN: u32 = 100;

/// Challenges of one SASL exchange. A peer that wants more is refused.
pub const SASL_ROUNDS_MAX: u32 = 8;

/// Links above the configured maximum that may stand refused and not yet detached by the peer. One more ends the
/// session.
pub const LINKS_REFUSED_MAX: usize = 64;

/// How far the oldest unsettled delivery of a session may lie behind the newest, since serial numbers further apart
/// cannot be told from each other (RFC 1982). A sender waits, a peer that goes further ends its session.
pub const UNSETTLED_SPAN_MAX: u32 = (1 << 31) - 1;

/// Bytes of an error description we send. What is longer is cut, so that every error fits the smallest frame.
pub const DESCRIPTION_SIZE_MAX: usize = 200;

/// Buffers kept for joining multi-frame deliveries. A further one is dropped when its message is done with.
pub const SPARE_BUFFERS_MAX: usize = 1;

/// Largest buffer in bytes that is kept for joining. A larger one is dropped when its message is done with.
pub const SPARE_BUFFER_SIZE_MAX: usize = 128 << 10;

/// Bytes that are reserved for a delivery of several frames when it begins, if the last one was as large. What it needs beyond
/// that is reserved as it comes.
pub const ASSEMBLY_RESERVE_MAX: usize = 4 << 20;
