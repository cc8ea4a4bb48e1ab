//! How much of anything does one connection take? Bounds that are negotiated or that an operator sets are in
//! [`Config`](super::Config); these are the fixed ones.

/// Largest frame in bytes taken before the handshake is done, unless the configured frame-max is smaller. The
/// specification names 4096, but tokens and properties are larger in practice. A larger frame is a frame error.
pub const FRAME_BEFORE_OPEN_MAX: u32 = 16_384;

/// Challenges of one login. A peer that wants more is refused.
pub const SASL_ROUNDS_MAX: u32 = 8;

/// Channels numbered below this are found in a list, others more slowly.
pub const CHANNELS_NEAR: usize = 2048;

/// Queues that a channel has got from and that are remembered although no delivery of theirs waits for an acknowledgement. The one
/// longest unused is forgotten for a further one.
pub const GETTERS_IDLE_MAX: usize = 8;

/// How far the oldest unsettled delivery or message of a channel may lie behind the newest, since numbers further apart cannot be told
/// from each other (RFC 1982). A consumer waits, a producer is not read.
pub const UNSETTLED_SPAN_MAX: u64 = (1 << 31) - 1;

/// Buffers kept for contents of several frames. A further one is dropped when its message is done with.
pub const SPARE_BUFFERS_MAX: usize = 4;

/// Largest buffer in bytes that is kept. A larger one is dropped when its message is done with.
pub const SPARE_BUFFER_SIZE_MAX: usize = 128 << 10;

/// Bytes that are reserved for a body when its first frame comes. What it needs beyond that is reserved as it comes.
pub const ASSEMBLY_RESERVE_MAX: usize = 4 << 20;

/// Bytes of the client's name for its connection that are kept. What is longer is cut.
pub const CONNECTION_NAME_SIZE_MAX: usize = 255;

/// Bytes kept for parked frames when none are left, for one channel.
pub const PARKED_KEPT_MAX: usize = 4 << 10;

/// Confirms of a channel for which room is kept.
pub const CONFIRMS_KEPT_MAX: usize = 4 << 10;
