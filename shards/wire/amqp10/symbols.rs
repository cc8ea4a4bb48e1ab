//! Which symbols does a field of `multiple` values hold?
//!
//! The specification has one symbol or an array of them (§1.4). Peers also send lists, and strings instead of symbols
//! (what a Python list of `str` becomes): all are walked alike, if they are ASCII. Symbols from the wire were checked
//! when they were decoded, so walking cannot fail.

use super::composite::Field;
use super::error::DecodeError;
use super::reader::Reader;
use super::value::{Array, ArrayIter, List, ListIter, Value};

/// Several symbols: capabilities, locales, outcomes, mechanisms. Null and none at all are the same.
#[derive(Clone, Copy, Default)]
pub struct Symbols<'a>(Form<'a>);

#[derive(Clone, Copy, Default)]
enum Form<'a> {
    #[default]
    None,
    One(&'a str),
    List(List<'a>),
    Array(Array<'a>),
    Slice(&'a [&'a str]),
}

impl<'a> Symbols<'a> {
    /// Symbols to be sent. They must be ASCII.
    pub fn new(symbols: &'a [&'a str]) -> Self {
        debug_assert!(symbols.iter().all(|symbol| symbol.is_ascii()), "symbols are ASCII");
        Self(if symbols.is_empty() { Form::None } else { Form::Slice(symbols) })
    }

    pub fn iter(&self) -> SymbolsIter<'a> {
        SymbolsIter(match self.0 {
            Form::None => IterForm::Slice([].iter()),
            Form::One(symbol) => IterForm::One(Some(symbol)),
            Form::List(list) => IterForm::List(list.iter()),
            Form::Array(array) => IterForm::Array(array.iter()),
            Form::Slice(symbols) => IterForm::Slice(symbols.iter()),
        })
    }

    pub fn contains(&self, symbol: &str) -> bool {
        self.iter().any(|each| each == symbol)
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl<'a> Field<'a> for Symbols<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let code = reader.peek().unwrap_or(0);
        let wrong = DecodeError::WrongType { field, code };
        let form = match Value::read(reader)? {
            Value::Symbol(symbol) => Form::One(symbol),
            Value::String(text) if text.is_ascii() => Form::One(text),
            Value::String(_) => return Err(DecodeError::InvalidSymbol),
            Value::List(list) => Form::List(list),
            Value::Array(array) => Form::Array(array),
            _ => return Err(wrong),
        };
        let check = |value| match value {
            Ok(Value::Symbol(_)) => Ok(()),
            Ok(Value::String(text)) if text.is_ascii() => Ok(()),
            Ok(Value::String(_)) => Err(DecodeError::InvalidSymbol),
            Ok(_) => Err(wrong),
            Err(error) => Err(error),
        };
        match form {
            Form::List(list) => list.iter().try_for_each(check)?,
            Form::Array(array) => array.iter().try_for_each(check)?,
            Form::None | Form::One(_) | Form::Slice(_) => {}
        }
        Ok(Self(form))
    }
}

impl PartialEq for Symbols<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Symbols<'_> {}

impl std::fmt::Debug for Symbols<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Symbols<'a> {
    type Item = &'a str;
    type IntoIter = SymbolsIter<'a>;

    fn into_iter(self) -> SymbolsIter<'a> {
        self.iter()
    }
}

/// Symbols in order.
#[derive(Clone, Debug)]
pub struct SymbolsIter<'a>(IterForm<'a>);

#[derive(Clone, Debug)]
enum IterForm<'a> {
    One(Option<&'a str>),
    List(ListIter<'a>),
    Array(ArrayIter<'a>),
    Slice(std::slice::Iter<'a, &'a str>),
}

impl<'a> Iterator for SymbolsIter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let value = match &mut self.0 {
            IterForm::One(symbol) => return symbol.take(),
            IterForm::Slice(symbols) => return symbols.next().copied(),
            IterForm::List(list) => list.next(),
            IterForm::Array(array) => array.next(),
        };
        // The field's decoder saw that all are symbols, or strings that stand for some.
        value?.ok()?.as_str()
    }
}
