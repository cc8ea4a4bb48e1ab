//! How are methods and tables appended to a buffer?
//!
//! A nested table or array is written in place behind its size, which is filled in when it ends.

use super::short_str::ShortStr;
use super::table::{Array, FieldValue, Table};

/// Something that is the payload of a method frame.
pub trait Encode {
    /// Appends class, method and arguments.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A size that goes on the wire. No value we send comes near the limit of 4 GiB: it would not fit a frame.
#[inline]
fn size_u32(size: usize) -> u32 {
    debug_assert!(u32::try_from(size).is_ok(), "a value is smaller than 4 GiB");
    size as u32
}

/// Appends a long string, a table or an array: size and bytes.
#[inline]
pub(super) fn append_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&size_u32(bytes.len()).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends what `write` appends, its size before it.
fn append_sized(out: &mut Vec<u8>, letter: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[letter, 0, 0, 0, 0]);
    let start = out.len();
    write(out);
    let size = size_u32(out.len() - start);
    out[start - 4..start].copy_from_slice(&size.to_be_bytes());
}

impl FieldValue<'_> {
    /// Appends letter and value. Of the letters that mean the same, the one RabbitMQ writes.
    fn append(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Void => out.push(b'V'),
            Self::Boolean(value) => out.extend_from_slice(&[b't', u8::from(value)]),
            Self::Int8(value) => fixed(out, b'b', value.to_be_bytes()),
            Self::Uint8(value) => fixed(out, b'B', value.to_be_bytes()),
            Self::Int16(value) => fixed(out, b's', value.to_be_bytes()),
            Self::Uint16(value) => fixed(out, b'u', value.to_be_bytes()),
            Self::Int32(value) => fixed(out, b'I', value.to_be_bytes()),
            Self::Uint32(value) => fixed(out, b'i', value.to_be_bytes()),
            Self::Int64(value) => fixed(out, b'l', value.to_be_bytes()),
            Self::Float(value) => fixed(out, b'f', value.to_be_bytes()),
            Self::Double(value) => fixed(out, b'd', value.to_be_bytes()),
            Self::Decimal { scale, value } => {
                let [a, b, c, d] = value.to_be_bytes();
                out.extend_from_slice(&[b'D', scale, a, b, c, d]);
            }
            Self::Timestamp(value) => fixed(out, b'T', value.to_be_bytes()),
            Self::LongString(value) => long(out, b'S', value),
            Self::Bytes(value) => long(out, b'x', value),
            Self::Array(value) => long(out, b'A', value.bytes()),
            Self::Table(value) => long(out, b'F', value.bytes()),
        }
    }
}

fn fixed<const N: usize>(out: &mut Vec<u8>, letter: u8, value: [u8; N]) {
    out.push(letter);
    out.extend_from_slice(&value);
}

fn long(out: &mut Vec<u8>, letter: u8, bytes: &[u8]) {
    out.push(letter);
    append_long(out, bytes);
}

/// Appends the pairs of a table: the bytes of a [`Table`], which have no size before them.
#[derive(Debug)]
pub struct TableWriter<'v>(&'v mut Vec<u8>);

impl<'v> TableWriter<'v> {
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        Self(out)
    }

    pub fn pair(&mut self, name: ShortStr<'_>, value: FieldValue<'_>) {
        name.append(self.0);
        value.append(self.0);
    }

    /// A pair whose value is the table that `write` writes.
    pub fn table(&mut self, name: ShortStr<'_>, write: impl FnOnce(&mut TableWriter<'_>)) {
        name.append(self.0);
        append_sized(self.0, b'F', |out| write(&mut TableWriter(out)));
    }

    /// A pair whose value is the array that `write` writes.
    pub fn array(&mut self, name: ShortStr<'_>, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        name.append(self.0);
        append_sized(self.0, b'A', |out| write(&mut ArrayWriter(out)));
    }

    /// All pairs of another table, as they are encoded.
    pub fn pairs_of(&mut self, table: Table<'_>) {
        self.0.extend_from_slice(table.bytes());
    }
}

/// Appends the values of an array: the bytes of an [`Array`], which have no size before them.
#[derive(Debug)]
pub struct ArrayWriter<'v>(&'v mut Vec<u8>);

impl<'v> ArrayWriter<'v> {
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        Self(out)
    }

    pub fn value(&mut self, value: FieldValue<'_>) {
        value.append(self.0);
    }

    /// A value that is the table which `write` writes.
    pub fn table(&mut self, write: impl FnOnce(&mut TableWriter<'_>)) {
        append_sized(self.0, b'F', |out| write(&mut TableWriter(out)));
    }

    /// A value that is the array which `write` writes.
    pub fn array(&mut self, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        append_sized(self.0, b'A', |out| write(&mut ArrayWriter(out)));
    }

    /// All values of another array, as they are encoded.
    pub fn values_of(&mut self, array: Array<'_>) {
        self.0.extend_from_slice(array.bytes());
    }
}
