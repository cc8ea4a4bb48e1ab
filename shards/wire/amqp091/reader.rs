//! Where in the bytes are we?

use super::error::DecodeError;
use super::short_str::ShortStr;

/// A cursor over encoded bytes. After an error its place is unspecified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (fixed, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*fixed)
    }

    #[inline]
    pub(super) fn take(&mut self, size: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn be_u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.fixed()?))
    }

    #[inline]
    pub(super) fn be_u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    #[inline]
    pub(super) fn be_u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.fixed()?))
    }

    #[inline]
    pub(super) fn short_str(&mut self) -> Result<ShortStr<'a>, DecodeError> {
        let size = self.byte()?;
        Ok(ShortStr::of_size(self.take(usize::from(size))?))
    }

    /// What has four bytes of size before it: a long string, a table, an array.
    #[inline]
    pub(super) fn long(&mut self) -> Result<&'a [u8], DecodeError> {
        let size = self.be_u32()? as usize;
        self.take(size)
    }

    /// All values were read: nothing may be left.
    #[inline]
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}
