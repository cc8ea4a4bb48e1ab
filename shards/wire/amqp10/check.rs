//! Is a value well-formed all the way down?
//!
//! Decoders look only as deep as they must, so text inside a map may be no text. Whoever keeps or converts a whole
//! value checks it once. The walk keeps the levels it is inside of in an array of fixed length: no recursion, no
//! allocation, and each byte is looked at a bounded number of times.

use super::error::DecodeError;
use super::limits::NESTING_MAX;
use super::reader::{Layout, Reader};
use super::value::{Array, Value};

/// Checks that `input` is one well-formed value (§1.2 to §1.6) and nothing else, nested at most [`NESTING_MAX`] deep.
pub fn check_value(input: &[u8]) -> Result<(), DecodeError> {
    let root = Level::Values { remaining: 1, reader: Reader::new(input) };
    let mut levels = [root; NESTING_MAX];
    let mut depth = 1;
    while depth > 0 {
        match levels[depth - 1].step()? {
            Step::Again => {}
            Step::Into(level) => {
                *levels.get_mut(depth).ok_or(DecodeError::TooDeep)? = level;
                depth += 1;
            }
            Step::Done { left_over: false } => depth -= 1,
            Step::Done { left_over: true } if depth == 1 => return Err(DecodeError::TrailingBytes),
            Step::Done { left_over: true } => return Err(DecodeError::CountMismatch),
        }
    }
    Ok(())
}

/// What still has to be checked at one level.
#[derive(Clone, Copy)]
enum Level<'a> {
    /// Values one after the other: the elements of a list or map.
    Values { remaining: usize, reader: Reader<'a> },
    /// An array: the descriptors in its constructor, then elements of one primitive type.
    Elements { descriptors: Reader<'a>, code: u8, remaining: usize, reader: Reader<'a> },
}

enum Step<'a> {
    Again,
    Into(Level<'a>),
    Done { left_over: bool },
}

impl<'a> Level<'a> {
    fn values(remaining: usize, bytes: &'a [u8]) -> Self {
        Self::Values { remaining, reader: Reader::new(bytes) }
    }

    fn array(array: &Array<'a>) -> Self {
        let code = array.code();
        // Elements without bytes cannot be wrong, and an array can have many of them in few bytes.
        let remaining = if Layout::of(code) == Layout::Fixed(0) { 0 } else { array.len() };
        let descriptors = Reader::new(&array.constructor()[..array.constructor().len() - 1]);
        Self::Elements { descriptors, code, remaining, reader: Reader::new(array.data()) }
    }

    fn step(&mut self) -> Result<Step<'a>, DecodeError> {
        let value = match self {
            Self::Values { remaining: 0, reader } => return Ok(Step::Done { left_over: !reader.is_empty() }),
            Self::Values { remaining, reader } => {
                // A descriptor is one more value, and what it describes stands where the described value stood.
                if reader.peek() == Some(0) {
                    reader.byte()?;
                    *remaining += 1;
                    return Ok(Step::Again);
                }
                *remaining -= 1;
                Value::read(reader)?
            }
            Self::Elements { descriptors, .. } if !descriptors.is_empty() => {
                descriptors.byte()?;
                return Ok(Step::Into(Self::values(1, descriptors.skip_value()?)));
            }
            Self::Elements { remaining: 0, reader, .. } => {
                return Ok(Step::Done { left_over: !reader.is_empty() });
            }
            Self::Elements { code, remaining, reader, .. } => {
                *remaining -= 1;
                Value::read_data(*code, reader)?
            }
        };
        Ok(match value {
            Value::List(list) => Step::Into(Self::values(list.len(), list.elements())),
            Value::Map(map) => Step::Into(Self::values(map.len() * 2, map.elements())),
            Value::Array(array) => Step::Into(Self::array(&array)),
            _ => Step::Again,
        })
    }
}
