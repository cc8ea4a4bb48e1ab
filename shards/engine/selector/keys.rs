//! Which values must some fields have, for a filter to match at all?
//!
//! An operand `name = literal` (either way round), `name IN (literals)` or `name` alone, at the top level of the filter's `AND`, must be
//! true for the filter to be true; so a message that matches has one of a few values under that name. Names whose value changes
//! when a message comes back are left out: what was filed once would be wrong later.

use super::Filter;
use super::ast::{Expression, FieldId, Relation};
use super::field::{Field, Value};
use super::limits::{KEY_NAMES_MAX, KEYS_MAX};
use super::number::compare;

/// What a filter demands: for each name, in the order of the names, its possible values, none of them twice.
#[derive(Debug)]
pub(crate) struct EqualityKeys<'f> {
    columns: Vec<(&'f Field, Vec<Value<'f>>)>,
}

impl Filter {
    /// The keys under which the filter can be filed; `None` if a message that matches might look like anything. With too
    /// many names or combinations, those names are kept that have the fewest values.
    pub(crate) fn equality_keys(&self) -> Option<EqualityKeys<'_>> {
        let operands = match &self.root {
            Expression::And(operands) => &**operands,
            root => std::slice::from_ref(root),
        };
        let mut columns: Vec<(&Field, Vec<Value<'_>>)> = Vec::new();
        for (id, values) in operands.iter().filter_map(demand) {
            let field = &self.fields[usize::from(id.0)];
            if !field.is_stable() {
                continue;
            }
            match columns.iter_mut().find(|(known, _)| *known == field) {
                Some((_, known)) if known.len() > values.len() => *known = values,
                Some(_) => {}
                None => columns.push((field, values)),
            }
        }
        columns.sort_by_key(|(field, values)| (values.len(), *field));
        let mut count = 1;
        let kept = columns.iter().take(KEY_NAMES_MAX).take_while(|(_, values)| {
            count *= values.len();
            count <= KEYS_MAX
        });
        columns.truncate(kept.count());
        columns.sort_by_key(|(field, _)| *field);
        (!columns.is_empty()).then_some(EqualityKeys { columns })
    }
}

impl<'f> EqualityKeys<'f> {
    /// The names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'f Field> {
        self.columns.iter().map(|(field, _)| *field)
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> usize {
        self.columns.iter().map(|(_, values)| values.len()).product()
    }

    /// Leaves out all names but these.
    pub(crate) fn narrow(&mut self, names: &[Field]) {
        self.columns.retain(|(field, _)| names.contains(field));
    }

    /// The values of a key, in the order of the names.
    pub(crate) fn key(&self, mut index: usize) -> impl Iterator<Item = Value<'f>> + Clone {
        self.columns.iter().map(move |(_, values)| {
            let value = values[index % values.len()];
            index /= values.len();
            value
        })
    }
}

/// The field and the values it must have for the operand to be true.
fn demand(operand: &Expression) -> Option<(FieldId, Vec<Value<'_>>)> {
    match operand {
        Expression::Field(field) => Some((*field, vec![Value::Bool(true)])),
        Expression::Compare(Relation::Equal, operands) => match &**operands {
            [Expression::Field(field), Expression::Literal(literal)]
            | [Expression::Literal(literal), Expression::Field(field)] => {
                Some((*field, vec![literal.value()]))
            }
            _ => None,
        },
        Expression::In { negated: false, field, list } => {
            let mut values: Vec<Value<'_>> = Vec::new();
            for literal in list {
                let known = |value: &Value<'_>| compare(*value, literal.value()).is_equal();
                // One more than can be used is enough to know that it cannot be used.
                if values.len() <= KEYS_MAX && !values.iter().any(known) {
                    values.push(literal.value());
                }
            }
            Some((*field, values))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
