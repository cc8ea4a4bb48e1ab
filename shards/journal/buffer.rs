//! Where does a batch lie in memory, so that a disk can be written from it directly?
//!
//! Invariant: the first byte stands at a multiple of [`BLOCK`], wherever the allocator put the rest.

use crate::limits::BLOCK;
use rkyv::rancor::Failure;
use rkyv::ser::{Positional, Writer};

/// Bytes whose first one is aligned to [`BLOCK`].
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// `start` bytes that are not ours, and then ours.
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    pub(crate) fn extend(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.bytes.extend_from_slice(more);
    }

    /// Zeros up to `len` bytes in all.
    pub(crate) fn grow_to(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        self.bytes.resize(self.start + len, 0);
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Never lets the vector move its bytes by itself: they would no longer be aligned.
    fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() >= more {
            return;
        }
        let capacity = (self.len() + more).max(2 * self.len()).max(BLOCK);
        let mut moved: Vec<u8> = Vec::with_capacity(capacity + BLOCK);
        let start = moved.as_ptr().align_offset(BLOCK);
        moved.resize(start, 0);
        moved.extend_from_slice(self.as_slice());
        *self = Buffer { bytes: moved, start };
    }
}

impl Positional for Buffer {
    fn pos(&self) -> usize {
        self.len()
    }
}

impl Writer<Failure> for Buffer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.extend(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_aligned_while_it_grows() {
        let mut buffer = Buffer::default();
        let mut all = Vec::new();
        for length in [1, 100, 4000, 4096, 5, 70_000, 3] {
            let more: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            buffer.extend(&more);
            all.extend(more);
            assert_eq!(buffer.as_slice(), all);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(BLOCK), 0);
        }
        buffer.clear();
        assert_eq!(buffer.len(), 0);
        buffer.grow_to(10);
        assert_eq!(buffer.as_slice(), [0; 10]);
    }
}
