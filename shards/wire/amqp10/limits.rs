//! How much of anything does the codec take? Every bound of `amqp10` has its name here.

/// Size in bytes of a frame header without extension (§2.3.1).
pub const FRAME_HEADER_SIZE: u32 = 8;

/// The largest frame every peer must take, and the largest that may be sent before the open exchange and in the SASL
/// layer (§2.8.19, §5.3.1).
pub const FRAME_SIZE_MIN_MAX: u32 = 512;

/// Longest delivery tag in bytes (§2.8.7). A longer one is an invalid field.
pub const DELIVERY_TAG_SIZE_MAX: usize = 32;

/// Most elements of an array whose elements have no bytes (`null`, `true`, `list0`, …). Nothing else bounds how long
/// walking such an array takes, so a larger count is an error.
pub const ARRAY_EMPTY_ELEMENTS_MAX: u32 = 255;

/// Deepest nesting of compound values that [`check_value`](super::check_value) follows. Deeper is an error. Plain
/// skipping jumps over compound values by their size and needs no such bound.
pub const NESTING_MAX: usize = 64;
