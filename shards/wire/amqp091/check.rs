//! Is a table well-formed all the way down?
//!
//! What is nested lies within the size of what it is nested in, so the walk keeps where each level ends in an array of fixed
//! length: no recursion, no allocation, and each byte is looked at once.

use super::error::DecodeError;
use super::limits::NESTING_MAX;
use super::reader::Reader;
use super::table::{FieldValue, Table};

/// Checks every name and value of a table (§4.2.5.5), nested at most [`NESTING_MAX`] deep, the table itself counted.
#[inline]
pub fn check_table(table: Table<'_>) -> Result<(), DecodeError> {
    for pair in table.iter() {
        if let (_, FieldValue::Table(_) | FieldValue::Array(_)) = pair? {
            return check_nested(table);
        }
    }
    Ok(())
}

/// What still has to be checked at one level.
#[derive(Clone, Copy)]
struct Level<'a> {
    reader: Reader<'a>,
    /// Each value has its name before it.
    is_table: bool,
}

/// The same, when there is something nested.
#[inline(never)]
fn check_nested(table: Table<'_>) -> Result<(), DecodeError> {
    let mut levels = [Level { reader: Reader::new(table.bytes()), is_table: true }; NESTING_MAX];
    let mut depth = 1;
    while depth > 0 {
        let level = &mut levels[depth - 1];
        if level.reader.is_empty() {
            depth -= 1;
            continue;
        }
        if level.is_table {
            level.reader.short_str()?;
        }
        let (bytes, is_table) = match FieldValue::read(&mut level.reader)? {
            FieldValue::Table(table) => (table.bytes(), true),
            FieldValue::Array(array) => (array.bytes(), false),
            _ => continue,
        };
        *levels.get_mut(depth).ok_or(DecodeError::TooDeep)? = Level { reader: Reader::new(bytes), is_table };
        depth += 1;
    }
    Ok(())
}
