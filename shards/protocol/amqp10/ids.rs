//! How do peers name deliveries and transactions?

use std::fmt;
use std::ops::Deref;

/// Up to 32 bytes that a peer chose, kept in place.
#[derive(Clone, Copy)]
pub struct ShortBinary {
    size: u8,
    bytes: [u8; Self::SIZE_MAX],
}

/// AMQP 1.0 §2.8.7: up to 32 bytes.
pub type DeliveryTag = ShortBinary;

/// AMQP 1.0 §4.5.6: up to 32 bytes.
pub type TransactionId = ShortBinary;

impl ShortBinary {
    pub const SIZE_MAX: usize = 32;
    pub const EMPTY: Self = Self { size: 0, bytes: [0; Self::SIZE_MAX] };

    /// `None` if there are more than [`SIZE_MAX`](Self::SIZE_MAX) bytes.
    #[inline]
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::SIZE_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { size: from.len() as u8, bytes })
    }

    /// Takes over other bytes; too many are cut.
    #[inline]
    pub(super) fn set(&mut self, from: &[u8]) {
        let size = from.len().min(Self::SIZE_MAX);
        self.bytes[..size].copy_from_slice(&from[..size]);
        self.size = size as u8;
    }
}

impl Deref for ShortBinary {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }
}

impl PartialEq for ShortBinary {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ShortBinary {}

impl fmt::Debug for ShortBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
