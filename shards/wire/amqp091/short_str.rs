//! What are the names of 0-9-1?
//!
//! A short string has at most 255 bytes (§4.2.5.3). UTF-8 is what it should be, and nobody checks: brokers take any bytes and
//! hand on the same ones, so text is asked for where it is needed.

use std::fmt;

use super::limits::SHORT_STRING_SIZE_MAX;

/// At most 255 bytes, most often text.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortStr<'a>(&'a [u8]);

impl<'a> ShortStr<'a> {
    pub const EMPTY: ShortStr<'static> = ShortStr(&[]);

    /// `None` if it is too long.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() <= SHORT_STRING_SIZE_MAX { Some(Self(bytes)) } else { None }
    }

    /// As much of a text for people as there is room for, cut between characters.
    pub fn cut(text: &'a str) -> Self {
        Self(&text.as_bytes()[..text.floor_char_boundary(SHORT_STRING_SIZE_MAX)])
    }

    /// Bytes whose size was read from one byte.
    #[inline]
    pub(super) fn of_size(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() <= SHORT_STRING_SIZE_MAX, "a size of one byte");
        Self(bytes)
    }

    #[inline]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, or `None` if it is not UTF-8.
    #[inline]
    pub fn as_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn append(self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        out.extend_from_slice(self.0);
    }
}

impl ShortStr<'static> {
    /// A name that the program has. One that is too long is a mistake in it, found when it is compiled in a `const`.
    pub const fn literal(text: &'static str) -> Self {
        match Self::new(text.as_bytes()) {
            Some(name) => name,
            None => panic!("a short string of more than 255 bytes"),
        }
    }
}

impl PartialEq<str> for ShortStr<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for ShortStr<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Bytes that are not UTF-8 show as U+FFFD.
impl fmt::Display for ShortStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

/// In quotes, everything that is not printable ASCII escaped.
impl fmt::Debug for ShortStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
