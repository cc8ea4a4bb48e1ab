//! How much of anything does the codec take? Every bound of `amqp091` has its name here.

/// Size in bytes of what stands in front of a frame's payload: kind, channel, size (§4.2.3).
pub const FRAME_HEADER_SIZE: u32 = 7;

/// Size in bytes of a frame without payload: header and end octet.
pub const FRAME_EMPTY_SIZE: u32 = 8;

/// The largest frame that every peer must take, and the largest that may be sent before `tune-ok` (§1.2: frame-min-size).
pub const FRAME_SIZE_MIN_MAX: u32 = 4096;

/// Longest short string in bytes (§4.2.5.3). Longer ones cannot be made.
pub const SHORT_STRING_SIZE_MAX: usize = 255;

/// Deepest nesting of tables and arrays that is read, the outermost one counted. Deeper is an error. Walking one level jumps
/// over nested ones by their size and needs no such bound.
pub const NESTING_MAX: usize = 128;
