//! How are values and composite types appended to a buffer?
//!
//! Each value takes the smallest of its encodings (§1.6). A list or map is written in place with a one-byte size and
//! count, and moved by six bytes only if it turns out to need wide ones.

use super::descriptor::{self, Descriptor};
use super::symbols::Symbols;
use super::value::{Array, Described, List, Map, Raw, Value};

/// Something with one encoding as a value.
pub trait Encode {
    /// Appends constructor and data.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Appends the descriptor of a type of the specification.
#[inline]
pub(super) fn describe(out: &mut Vec<u8>, code: u8) {
    out.extend_from_slice(&[0x00, 0x53, code]);
}

/// Writes the elements of a list, or the fields of a composite value, in place.
#[derive(Debug)]
pub struct ListWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    count: u32,
    /// Count and buffer size up to the last field that is not null.
    kept: (u32, usize),
}

const NARROW: usize = 3;
const WIDE: usize = 9;

impl<'v> ListWriter<'v> {
    #[inline]
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0xc0, 0, 0]);
        let size = out.len();
        Self { out, start, count: 0, kept: (0, size) }
    }

    /// Starts the list that encodes a composite value, its descriptor first.
    #[inline]
    pub(super) fn described(out: &'v mut Vec<u8>, code: u8) -> Self {
        out.extend_from_slice(&[0x00, 0x53, code, 0xc0, 0, 0]);
        let size = out.len();
        Self { out, start: size - NARROW, count: 0, kept: (0, size) }
    }

    #[inline]
    pub fn null(&mut self) {
        self.out.push(0x40);
        self.count += 1;
    }

    #[inline]
    pub fn field(&mut self, value: &impl Encode) {
        value.encode(self.out);
        self.count += 1;
        self.kept = (self.count, self.out.len());
    }

    #[inline]
    pub fn optional(&mut self, value: &Option<impl Encode>) {
        match value {
            Some(value) => self.field(value),
            None => self.null(),
        }
    }

    /// A field with a default needs no bytes when it has it.
    #[inline]
    pub(super) fn unless<T: Encode + PartialEq>(&mut self, value: T, default: T) {
        if value == default {
            self.null();
        } else {
            self.field(&value);
        }
    }

    #[inline]
    pub(super) fn symbol(&mut self, value: Option<&str>) {
        match value {
            Some(symbol) => self.field(&Value::Symbol(symbol)),
            None => self.null(),
        }
    }

    #[inline]
    pub(super) fn symbols(&mut self, symbols: Symbols<'_>) {
        if symbols.is_empty() {
            self.null();
        } else {
            self.field(&symbols);
        }
    }

    /// Ends a composite value: trailing nulls are left out.
    #[inline]
    pub(super) fn finish_fields(self) {
        let (count, size) = self.kept;
        self.out.truncate(size);
        finish_compound(self.out, self.start, count, 0xc0);
    }

    /// Ends a list as it is.
    #[inline]
    pub fn finish(self) {
        finish_compound(self.out, self.start, self.count, 0xc0);
    }
}

/// The sections of a message that are maps (§3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapSection {
    DeliveryAnnotations = descriptor::DELIVERY_ANNOTATIONS as isize,
    MessageAnnotations = descriptor::MESSAGE_ANNOTATIONS as isize,
    ApplicationProperties = descriptor::APPLICATION_PROPERTIES as isize,
    Footer = descriptor::FOOTER as isize,
}

/// A value under a descriptor, to be sent: a filter, for one (§1.3, §3.5.8).
#[derive(Clone, Copy, Debug)]
pub struct DescribedAs<'a, V>(pub Descriptor<'a>, pub V);

impl<V: Encode> Encode for DescribedAs<'_, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(0x00);
        match self.0 {
            Descriptor::Code(code) => code.encode(out),
            Descriptor::Symbol(name) => Value::Symbol(name).encode(out),
            Descriptor::Other(raw) => raw.encode(out),
        }
        self.1.encode(out);
    }
}

/// Writes the pairs of a map in place.
#[derive(Debug)]
pub struct MapWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    count: u32,
}

impl<'v> MapWriter<'v> {
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0xc1, 0, 0]);
        Self { out, start, count: 0 }
    }

    /// Starts a section of a message, its descriptor first.
    pub fn section(out: &'v mut Vec<u8>, section: MapSection) -> Self {
        out.extend_from_slice(&[0x00, 0x53, section as u8]);
        Self::new(out)
    }

    pub fn pair(&mut self, key: &impl Encode, value: &impl Encode) {
        key.encode(self.out);
        value.encode(self.out);
        self.count += 2;
    }

    pub fn symbol(&mut self, key: &str, value: &impl Encode) {
        self.pair(&Value::Symbol(key), value);
    }

    /// Copies all pairs of another map as they are encoded.
    pub fn pairs_of(&mut self, map: &Map<'_>) {
        self.out.extend_from_slice(map.elements());
        self.count += map.count();
    }

    pub fn finish(self) {
        finish_compound(self.out, self.start, self.count, 0xc1);
    }
}

/// Fills in size and count of the compound value at `start`, whose narrow code is `code`.
#[inline]
fn finish_compound(out: &mut Vec<u8>, start: usize, count: u32, code: u8) {
    let size = out.len() - start - NARROW;
    match (u8::try_from(size + 1), u8::try_from(count)) {
        _ if count == 0 && code == 0xc0 => {
            out.truncate(start);
            out.push(0x45);
        }
        (Ok(size), Ok(count)) => {
            out[start + 1] = size;
            out[start + 2] = count;
        }
        _ => widen_compound(out, start, size, count, code),
    }
}

#[cold]
fn widen_compound(out: &mut Vec<u8>, start: usize, size: usize, count: u32, code: u8) {
    let end = out.len();
    out.resize(end + WIDE - NARROW, 0);
    out.copy_within(start + NARROW..end, start + WIDE);
    out[start] = code + 0x10;
    out[start + 1..start + 5].copy_from_slice(&size_u32(size + 4).to_be_bytes());
    out[start + 5..start + 9].copy_from_slice(&count.to_be_bytes());
}

/// A size that goes on the wire. No value we send comes near the limit of 4 GiB: it would not fit a message.
#[inline]
fn size_u32(size: usize) -> u32 {
    debug_assert!(u32::try_from(size).is_ok(), "a value is smaller than 4 GiB");
    size as u32
}

/// Appends a size, and a count if there is one, in the narrow or the wide form of a code.
#[inline]
fn head(out: &mut Vec<u8>, narrow: u8, size: usize) {
    match u8::try_from(size) {
        Ok(size) => out.extend_from_slice(&[narrow, size]),
        Err(_) => {
            let [a, b, c, d] = size_u32(size).to_be_bytes();
            out.extend_from_slice(&[narrow + 0x10, a, b, c, d]);
        }
    }
}

#[inline]
fn compound_head(out: &mut Vec<u8>, narrow: u8, size: usize, count: u32) {
    match (u8::try_from(size + 1), u8::try_from(count)) {
        (Ok(size), Ok(count)) => out.extend_from_slice(&[narrow, size, count]),
        _ => {
            out.push(narrow + 0x10);
            out.extend_from_slice(&size_u32(size + 4).to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }
}

/// Appends constructor and size of binary data; the data itself must follow.
#[inline]
pub(super) fn binary_head(out: &mut Vec<u8>, size: usize) {
    head(out, 0xa0, size);
}

impl Encode for bool {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(if *self { 0x41 } else { 0x42 });
    }
}

impl Encode for u8 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0x50, *self]);
    }
}

impl Encode for u16 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let [a, b] = self.to_be_bytes();
        out.extend_from_slice(&[0x60, a, b]);
    }
}

impl Encode for u32 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            0 => out.push(0x43),
            small @ 1..=0xff => out.extend_from_slice(&[0x52, small as u8]),
            large => fixed(out, 0x70, large.to_be_bytes()),
        }
    }
}

impl Encode for u64 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            0 => out.push(0x44),
            small @ 1..=0xff => out.extend_from_slice(&[0x53, small as u8]),
            large => fixed(out, 0x80, large.to_be_bytes()),
        }
    }
}

impl Encode for i32 {
    fn encode(&self, out: &mut Vec<u8>) {
        match i8::try_from(*self) {
            Ok(small) => out.extend_from_slice(&[0x54, small as u8]),
            Err(_) => fixed(out, 0x71, self.to_be_bytes()),
        }
    }
}

impl Encode for i64 {
    fn encode(&self, out: &mut Vec<u8>) {
        match i8::try_from(*self) {
            Ok(small) => out.extend_from_slice(&[0x55, small as u8]),
            Err(_) => fixed(out, 0x81, self.to_be_bytes()),
        }
    }
}

/// A string. Symbols are [`Value::Symbol`].
impl Encode for &str {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        head(out, 0xa1, self.len());
        out.extend_from_slice(self.as_bytes());
    }
}

impl Encode for &[u8] {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        head(out, 0xa0, self.len());
        out.extend_from_slice(self);
    }
}

impl Encode for Symbols<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let (count, size, longest) = self.iter().fold((0_usize, 0, 0), |(count, size, longest), symbol| {
            (count + 1, size + symbol.len(), longest.max(symbol.len()))
        });
        if count == 0 {
            return out.push(0x40);
        }
        if let (1, Some(symbol)) = (count, self.iter().next()) {
            return Value::Symbol(symbol).encode(out);
        }
        let wide = longest > 0xff;
        let size = 1 + size + count * if wide { 4 } else { 1 };
        compound_head(out, 0xe0, size, size_u32(count));
        out.push(if wide { 0xb3 } else { 0xa3 });
        for symbol in self.iter() {
            if wide {
                out.extend_from_slice(&size_u32(symbol.len()).to_be_bytes());
            } else {
                out.push(symbol.len() as u8);
            }
            out.extend_from_slice(symbol.as_bytes());
        }
    }
}

impl Encode for List<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            out.push(0x45);
        } else {
            compound_head(out, 0xc0, self.elements().len(), size_u32(self.len()));
            out.extend_from_slice(self.elements());
        }
    }
}

impl Encode for Map<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        compound_head(out, 0xc1, self.elements().len(), self.count());
        out.extend_from_slice(self.elements());
    }
}

impl Encode for Array<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        compound_head(out, 0xe0, self.constructor().len() + self.data().len(), size_u32(self.len()));
        out.extend_from_slice(self.constructor());
        out.extend_from_slice(self.data());
    }
}

impl Encode for Described<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let (constructor, data) = self.parts();
        out.push(0x00);
        out.extend_from_slice(constructor);
        out.extend_from_slice(data);
    }
}

impl Encode for Raw<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes());
    }
}

impl Encode for Value<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Null => out.push(0x40),
            Self::Boolean(value) => value.encode(out),
            Self::Ubyte(value) => value.encode(out),
            Self::Ushort(value) => value.encode(out),
            Self::Uint(value) => value.encode(out),
            Self::Ulong(value) => value.encode(out),
            Self::Byte(value) => out.extend_from_slice(&[0x51, value as u8]),
            Self::Short(value) => fixed(out, 0x61, value.to_be_bytes()),
            Self::Int(value) => value.encode(out),
            Self::Long(value) => value.encode(out),
            Self::Float(value) => fixed(out, 0x72, value.to_be_bytes()),
            Self::Double(value) => fixed(out, 0x82, value.to_be_bytes()),
            Self::Decimal32(value) => fixed(out, 0x74, value),
            Self::Decimal64(value) => fixed(out, 0x84, value),
            Self::Decimal128(value) => fixed(out, 0x94, value),
            Self::Char(value) => fixed(out, 0x73, u32::from(value).to_be_bytes()),
            Self::Timestamp(value) => fixed(out, 0x83, value.to_be_bytes()),
            Self::Uuid(value) => fixed(out, 0x98, value),
            Self::Binary(value) => value.encode(out),
            Self::String(value) => value.encode(out),
            Self::Symbol(value) => {
                head(out, 0xa3, value.len());
                out.extend_from_slice(value.as_bytes());
            }
            Self::List(value) => value.encode(out),
            Self::Map(value) => value.encode(out),
            Self::Array(value) => value.encode(out),
            Self::Described(value) => value.encode(out),
        }
    }
}

#[inline]
pub(super) fn fixed<const N: usize>(out: &mut Vec<u8>, code: u8, data: [u8; N]) {
    out.push(code);
    out.extend_from_slice(&data);
}
