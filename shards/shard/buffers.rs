//! Where do message bytes live? In vectors from a pool of the shard, sized to fit within an eighth.
//!
//! A message that leaves for good gives its vector back, so a steady flow allocates nothing. What the pool keeps is bounded;
//! beyond it memory goes back to the allocator. Vectors that came from another shard are as welcome.

use crate::limits::{POOL_BYTES_MAX, SHELLS_MAX};
use crate::message::Content;

/// Classes of 64 B upwards, eight to a doubling, up to 64 KiB. Larger vectors are not kept.
const CLASS_COUNT: usize = 1 + 8 * 10;
const SMALLEST_BYTES: usize = 64;

/// Free vectors by size class.
#[derive(Debug)]
pub(crate) struct Buffers {
    classes: Vec<Vec<Vec<u8>>>,
    kept_bytes: usize,
    /// Where messages were that have left.
    #[expect(clippy::vec_box, reason = "what is kept is the boxes")]
    shells: Vec<Box<Content>>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        let classes = (0..CLASS_COUNT).map(|_| Vec::new()).collect();
        Buffers { classes, kept_bytes: 0, shells: Vec::new() }
    }

    /// Where a message was.
    #[inline]
    pub(crate) fn take_shell(&mut self) -> Option<Box<Content>> {
        self.shells.pop()
    }

    /// A message was there, and has left.
    #[inline]
    pub(crate) fn give_shell(&mut self, shell: Box<Content>) {
        if self.shells.len() < SHELLS_MAX {
            self.shells.push(shell);
        }
    }

    /// An owned copy of the bytes.
    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.with_capacity(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// An empty vector for so many bytes.
    #[inline]
    pub(crate) fn with_capacity(&mut self, size: usize) -> Vec<u8> {
        match class_up(size) {
            Some(class) => match self.classes[class].pop() {
                Some(buffer) => {
                    self.kept_bytes -= buffer.capacity();
                    buffer
                }
                None => Vec::with_capacity(class_bytes(class)),
            },
            None => Vec::with_capacity(size),
        }
    }

    /// Takes a vector back.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let Some(class) = class_down(buffer.capacity()) else { return };
        if self.kept_bytes + buffer.capacity() <= POOL_BYTES_MAX {
            self.kept_bytes += buffer.capacity();
            buffer.clear();
            self.classes[class].push(buffer);
        }
    }
}

/// Bytes that a vector of the class can hold.
fn class_bytes(class: usize) -> usize {
    if class == 0 {
        return SMALLEST_BYTES;
    }
    let (doubling, eighth) = ((class - 1) / 8, (class - 1) % 8);
    (SMALLEST_BYTES << doubling) / 8 * (9 + eighth)
}

/// The smallest class whose vectors hold `bytes`.
fn class_up(bytes: usize) -> Option<usize> {
    if bytes <= SMALLEST_BYTES {
        return Some(0);
    }
    let above = bytes - 1;
    let doubling = (above.ilog2() - SMALLEST_BYTES.ilog2()) as usize;
    let eighth = (above >> (doubling + 3)) - 8;
    let class = 1 + doubling * 8 + eighth;
    (class < CLASS_COUNT).then_some(class)
}

/// The largest class whose vectors are no larger than `capacity`.
fn class_down(capacity: usize) -> Option<usize> {
    if capacity < SMALLEST_BYTES || capacity > class_bytes(CLASS_COUNT - 1) {
        return None;
    }
    let up = class_up(capacity)?;
    Some(if class_bytes(up) == capacity { up } else { up - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_it_is_asked_for_and_little_more() {
        for bytes in 0..=class_bytes(CLASS_COUNT - 1) {
            let class = class_up(bytes).unwrap();
            let size = class_bytes(class);
            assert!(size >= bytes);
            assert!(bytes <= SMALLEST_BYTES || size <= bytes + bytes / 8 + 1, "{bytes} in {size}");
            assert!(class == 0 || class_bytes(class - 1) < bytes);
            if bytes >= SMALLEST_BYTES {
                let down = class_down(bytes).unwrap();
                assert!(class_bytes(down) <= bytes);
            }
        }
        assert_eq!(class_up(class_bytes(CLASS_COUNT - 1) + 1), None);
    }

    #[test]
    fn a_buffer_is_used_again() {
        let mut buffers = Buffers::new();
        let first = buffers.copy(&[7; 1000]);
        let address = first.as_ptr();
        buffers.give(first);
        let second = buffers.copy(&[8; 1010]);
        assert_eq!((second.as_ptr(), second.len()), (address, 1010));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut buffers = Buffers::new();
        let count = 2 * POOL_BYTES_MAX / (64 << 10);
        for _ in 0..count {
            buffers.give(Vec::with_capacity(64 << 10));
        }
        let kept: usize = buffers.classes.iter().map(Vec::len).sum();
        assert_eq!(kept, count / 2);
    }
}
