//! Where in the bytes are we, and where does the value that starts here end?
//!
//! A value is a constructor and its data (§1.2). The reader takes fixed pieces, and skips whole values: compound ones
//! by their size without looking inside, described ones with a counter instead of recursion. So skipping costs at most
//! one step for each byte of input, whatever a peer nests or announces.

use super::error::DecodeError;

/// A cursor over encoded bytes. After an error its place is unspecified.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte, left in place.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (fixed, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*fixed)
    }

    #[inline]
    pub fn take(&mut self, size: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn be_u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    /// The bytes of a value with a one-byte (`wide` false) or four-byte size before it.
    #[inline]
    pub(super) fn sized(&mut self, wide: bool) -> Result<&'a [u8], DecodeError> {
        let size = if wide { self.be_u32()? as usize } else { usize::from(self.byte()?) };
        self.take(size)
    }

    /// Passes one value, constructor and data, and returns its bytes.
    #[inline]
    pub fn skip_value(&mut self) -> Result<&'a [u8], DecodeError> {
        let start = self.rest;
        match self.byte()? {
            0 => self.skip_described()?,
            code => self.pass_data(code)?,
        }
        Ok(&start[..start.len() - self.rest.len()])
    }

    /// Passes a described value behind its leading 0: a descriptor, which is a value, then another constructor (§1.2).
    #[cold]
    fn skip_described(&mut self) -> Result<(), DecodeError> {
        let mut pending = 2_usize;
        while pending > 0 {
            match self.byte()? {
                0 => pending += 1,
                code => {
                    self.pass_data(code)?;
                    pending -= 1;
                }
            }
        }
        Ok(())
    }

    /// Passes a constructor, which ends with the code of a primitive type, and returns its bytes.
    pub(super) fn skip_constructor(&mut self) -> Result<&'a [u8], DecodeError> {
        let start = self.rest;
        while self.byte()? == 0 {
            self.skip_value()?;
        }
        Ok(&start[..start.len() - self.rest.len()])
    }

    /// Passes the data of a value whose constructor ends with `code`, and returns it.
    #[inline]
    pub(super) fn skip_data(&mut self, code: u8) -> Result<&'a [u8], DecodeError> {
        let start = self.rest;
        self.pass_data(code)?;
        Ok(&start[..start.len() - self.rest.len()])
    }

    #[inline]
    fn pass_data(&mut self, code: u8) -> Result<(), DecodeError> {
        match Layout::of(code) {
            Layout::Fixed(size) => self.take(usize::from(size))?,
            Layout::Sized => self.sized(false)?,
            Layout::SizedWide => self.sized(true)?,
            Layout::Unknown => return Err(DecodeError::UnknownConstructor { code }),
        };
        Ok(())
    }
}

/// How the data behind a constructor's code is laid out (§1.2, figure 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Unknown,
    Fixed(u8),
    Sized,
    SizedWide,
}

/// Looked up instead of computed: skipping values is most of what a section scan and a look-up do.
static LAYOUTS: [Layout; 256] = {
    let mut layouts = [Layout::Unknown; 256];
    let mut code = 0;
    while code < layouts.len() {
        layouts[code] = match code {
            0x40..=0x45 => Layout::Fixed(0),
            0x50..=0x56 => Layout::Fixed(1),
            0x60 | 0x61 => Layout::Fixed(2),
            0x70..=0x74 => Layout::Fixed(4),
            0x80..=0x84 => Layout::Fixed(8),
            0x94 | 0x98 => Layout::Fixed(16),
            0xa0 | 0xa1 | 0xa3 | 0xc0 | 0xc1 | 0xe0 => Layout::Sized,
            0xb0 | 0xb1 | 0xb3 | 0xd0 | 0xd1 | 0xf0 => Layout::SizedWide,
            _ => Layout::Unknown,
        };
        code += 1;
    }
    layouts
};

impl Layout {
    #[inline]
    pub(super) fn of(code: u8) -> Self {
        LAYOUTS[usize::from(code)]
    }
}
