//! Does a message match?
//!
//! Three-valued logic over [`compare`] and [`calculate`]. A field is read when the outcome first depends on it, and the
//! first [`REMEMBERED`] fields of a selector are read at most once. Nothing is allocated; the depth of the recursion is
//! bounded by the nesting the parser allows.
//!
//! Unlike types compare as false, null and failed arithmetic are unknown. The long forms follow JMS 2.0 §3.8.1.1: `NOT BETWEEN` is
//! `value < low OR value > high`, so it is false over a string, but `NOT IN` is `NOT (… = … OR …)`, so it is true over a number.

use super::Truth;
use super::ast::{Expression, FieldId, Literal, Relation};
use super::field::{Field, Fields, Value};
use super::number::{Comparison, calculate, compare, negate};

/// How many fields are remembered once read.
const REMEMBERED: usize = 8;

pub(super) struct Evaluation<'m, F> {
    names: &'m [Field],
    message: &'m F,
    values: [Option<Value<'m>>; REMEMBERED],
}

impl<'m, F: Fields> Evaluation<'m, F> {
    pub(super) fn new(names: &'m [Field], message: &'m F) -> Self {
        Evaluation { names, message, values: [None; REMEMBERED] }
    }

    /// What an expression is as a condition.
    pub(super) fn truth(&mut self, expression: &'m Expression) -> Truth {
        match expression {
            Expression::And(operands) => self.all(operands),
            Expression::Or(operands) => self.any(operands),
            Expression::Not(operand) => !self.truth(operand),
            Expression::Compare(relation, operands) => self.relation(*relation, operands),
            Expression::Between { negated, operands } => self.between(*negated, operands),
            Expression::In { negated, field, list } => negate_if(*negated, self.is_in(*field, list)),
            Expression::Like { negated, field, pattern } => {
                let truth = match self.read(*field) {
                    Value::Null => Truth::Unknown,
                    Value::String(text) => pattern.matches(text).into(),
                    Value::Bool(_) | Value::Int(_) | Value::Unsigned(_) | Value::Float(_) | Value::Opaque => {
                        Truth::False
                    }
                };
                negate_if(*negated, truth)
            }
            Expression::IsNull { negated, field } => {
                (matches!(self.read(*field), Value::Null) != *negated).into()
            }
            Expression::Literal(_)
            | Expression::Field(_)
            | Expression::Negate(_)
            | Expression::Arithmetic(..) => {
                Relation::Equal.holds(compare(self.value(expression), Value::Bool(true)))
            }
        }
    }

    /// What an expression is as an operand.
    fn value(&mut self, expression: &'m Expression) -> Value<'m> {
        match expression {
            Expression::Literal(literal) => literal.value(),
            Expression::Field(field) => self.read(*field),
            Expression::Negate(operand) => negate(self.value(operand)),
            Expression::Arithmetic(first, rest) => {
                let mut result = self.value(first);
                for (operator, operand) in rest {
                    if matches!(result, Value::Null) {
                        break;
                    }
                    result = calculate(*operator, result, self.value(operand));
                }
                result
            }
            Expression::And(_)
            | Expression::Or(_)
            | Expression::Not(_)
            | Expression::Compare(..)
            | Expression::Between { .. }
            | Expression::In { .. }
            | Expression::Like { .. }
            | Expression::IsNull { .. } => match self.truth(expression) {
                Truth::True => Value::Bool(true),
                Truth::False => Value::Bool(false),
                Truth::Unknown => Value::Null,
            },
        }
    }

    fn read(&mut self, field: FieldId) -> Value<'m> {
        let index = usize::from(field.0);
        let name = &self.names[index];
        match self.values.get_mut(index) {
            Some(remembered) => *remembered.get_or_insert_with(|| self.message.field(name)),
            None => self.message.field(name),
        }
    }

    fn all(&mut self, operands: &'m [Expression]) -> Truth {
        let mut truth = Truth::True;
        for operand in operands {
            match self.truth(operand) {
                Truth::False => return Truth::False,
                Truth::Unknown => truth = Truth::Unknown,
                Truth::True => {}
            }
        }
        truth
    }

    fn any(&mut self, operands: &'m [Expression]) -> Truth {
        let mut truth = Truth::False;
        for operand in operands {
            match self.truth(operand) {
                Truth::True => return Truth::True,
                Truth::Unknown => truth = Truth::Unknown,
                Truth::False => {}
            }
        }
        truth
    }

    fn relation(&mut self, relation: Relation, [left, right]: &'m [Expression; 2]) -> Truth {
        match self.value(left) {
            Value::Null => Truth::Unknown,
            left => relation.holds(compare(left, self.value(right))),
        }
    }

    fn between(&mut self, negated: bool, [value, low, high]: &'m [Expression; 3]) -> Truth {
        let value = self.value(value);
        if matches!(value, Value::Null) {
            return Truth::Unknown;
        }
        let (below, above) = if negated {
            (Relation::Less, Relation::Greater)
        } else {
            (Relation::GreaterOrEqual, Relation::LessOrEqual)
        };
        let first = below.holds(compare(value, self.value(low)));
        // True decides a disjunction, false a conjunction; else it is up to the other bound.
        if first == Truth::from(negated) {
            return first;
        }
        let second = above.holds(compare(value, self.value(high)));
        if first == Truth::Unknown && second != Truth::from(negated) { Truth::Unknown } else { second }
    }

    fn is_in(&mut self, field: FieldId, list: &[Literal]) -> Truth {
        match self.read(field) {
            Value::Null => Truth::Unknown,
            value => list.iter().any(|literal| compare(value, literal.value()).is_equal()).into(),
        }
    }
}

impl Relation {
    fn holds(self, comparison: Comparison) -> Truth {
        use Comparison::{Different, Equal, Greater, Less, Same, Unknown, Unlike};
        let truth = match comparison {
            Unknown => return Truth::Unknown,
            Unlike => false,
            // Strings and booleans have no order (§3.8.1.1).
            Same => self == Relation::Equal,
            Different => self == Relation::NotEqual,
            Less => matches!(self, Relation::Less | Relation::LessOrEqual | Relation::NotEqual),
            Equal => matches!(self, Relation::Equal | Relation::LessOrEqual | Relation::GreaterOrEqual),
            Greater => matches!(self, Relation::Greater | Relation::GreaterOrEqual | Relation::NotEqual),
        };
        truth.into()
    }
}

fn negate_if(negated: bool, truth: Truth) -> Truth {
    if negated { !truth } else { truth }
}
