//! How is something short appended to a buffer at once?
//!
//! A value that is written with each message is put together in memory of a fixed size, so that the buffer is asked for room once, and
//! not for each of its bytes. What is put into a piece must fit: its size is the caller's to know.

/// Up to `SIZE_MAX` bytes that are on their way to a buffer.
pub(super) struct Piece<const SIZE_MAX: usize> {
    bytes: [u8; SIZE_MAX],
    size: usize,
}

/// Where a list's size stands.
pub(super) struct ListSize(usize);

impl<const SIZE_MAX: usize> Piece<SIZE_MAX> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Piece { bytes: [0; SIZE_MAX], size: 0 }
    }

    #[inline(always)]
    pub(super) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.size..self.size + N].copy_from_slice(&bytes);
        self.size += N;
    }

    /// An unsigned int (§1.6.4).
    #[inline(always)]
    pub(super) fn put_uint(&mut self, value: u32) {
        let [a, b, c, d] = value.to_be_bytes();
        match value {
            0 => self.put([0x43]),
            1..=0xff => self.put([0x52, d]),
            0x100.. => self.put([0x70, a, b, c, d]),
        }
    }

    /// Descriptor and head of the list that encodes a composite value of so many fields.
    #[inline(always)]
    pub(super) fn begin_list(&mut self, code: u8, count: u8) -> ListSize {
        self.put([0, 0x53, code, 0xc0, 0, count]);
        ListSize(self.size - 2)
    }

    /// The list's fields have been put: its size counts all that stands behind itself.
    #[inline(always)]
    pub(super) fn finish_list(&mut self, list: ListSize) {
        self.bytes[list.0] = (self.size - list.0 - 1) as u8;
    }

    #[inline(always)]
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        out.truncate(start + self.size);
    }
}
