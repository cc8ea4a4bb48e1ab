//! What does a selector say, once it is parsed?
//!
//! Chains of `AND`, of `OR`, of `+ -` and of `* /` are one node each, so the depth of the tree is bounded by the nesting of the
//! text. Printing an expression gives a text that parses to the same expression.

use std::fmt::{self, Write as _};

use super::field::{Field, Value};
use super::lexer;
use super::like::Pattern;

/// An index into the fields of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FieldId(pub(super) u16);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expression {
    Literal(Literal),
    Field(FieldId),
    Negate(Box<Expression>),
    /// From left to right; either all `+ -` or all `* /`.
    Arithmetic(Box<Expression>, Box<[(Arithmetic, Expression)]>),
    /// `TRUE` and `FALSE` are literals; a field alone stands for `field = TRUE`.
    And(Box<[Expression]>),
    Or(Box<[Expression]>),
    Not(Box<Expression>),
    Compare(Relation, Box<[Expression; 2]>),
    /// The value, the lower and the upper bound.
    Between {
        negated: bool,
        operands: Box<[Expression; 3]>,
    },
    In {
        negated: bool,
        field: FieldId,
        list: Box<[Literal]>,
    },
    Like {
        negated: bool,
        field: FieldId,
        pattern: Box<Pattern>,
    },
    IsNull {
        negated: bool,
        field: FieldId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Literal {
    Bool(bool),
    Int(i64),
    Float(Approximate),
    String(Box<str>),
}

/// A finite `f64`, equal to itself only bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Approximate(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// What an expression can be, as far as its text tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Condition,
    Number,
    Text,
    /// A field: whatever the message says.
    Any,
}

impl Expression {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Expression::Literal(Literal::Int(_) | Literal::Float(_))
            | Expression::Negate(_)
            | Expression::Arithmetic(..) => Kind::Number,
            Expression::Literal(Literal::String(_)) => Kind::Text,
            Expression::Field(_) => Kind::Any,
            Expression::Literal(Literal::Bool(_))
            | Expression::And(_)
            | Expression::Or(_)
            | Expression::Not(_)
            | Expression::Compare(..)
            | Expression::Between { .. }
            | Expression::In { .. }
            | Expression::Like { .. }
            | Expression::IsNull { .. } => Kind::Condition,
        }
    }

    /// How tightly the outermost operator binds.
    fn precedence(&self) -> Precedence {
        match self {
            Expression::Or(_) => Precedence::Or,
            Expression::And(_) => Precedence::And,
            Expression::Not(_) => Precedence::Not,
            Expression::Compare(..)
            | Expression::Between { .. }
            | Expression::In { .. }
            | Expression::Like { .. }
            | Expression::IsNull { .. } => Precedence::Predicate,
            Expression::Arithmetic(_, rest) => match rest.first() {
                Some((Arithmetic::Multiply | Arithmetic::Divide, _)) => Precedence::Product,
                Some((Arithmetic::Add | Arithmetic::Subtract, _)) | None => Precedence::Sum,
            },
            Expression::Negate(_) => Precedence::Sign,
            Expression::Literal(_) | Expression::Field(_) => Precedence::Primary,
        }
    }
}

impl Literal {
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Int(value) => Value::Int(*value),
            Literal::Float(value) => Value::Float(value.value()),
            Literal::String(value) => Value::String(value),
        }
    }

    /// The literal with its sign changed, if it is a number whose negative exists.
    pub(super) fn negated(&self) -> Option<Literal> {
        match self {
            Literal::Int(value) => value.checked_neg().map(Literal::Int),
            Literal::Float(value) => Some(Literal::Float(Approximate::new(-value.value()))),
            Literal::Bool(_) | Literal::String(_) => None,
        }
    }
}

impl Approximate {
    pub(super) fn new(value: f64) -> Self {
        Approximate(value.to_bits())
    }

    pub(super) fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Or,
    And,
    Not,
    Predicate,
    Sum,
    Product,
    Sign,
    Primary,
}

/// Prints an expression; the identifiers are looked up in `fields`.
pub(super) struct Printer<'a> {
    pub(super) expression: &'a Expression,
    pub(super) fields: &'a [Field],
}

impl fmt::Display for Printer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expression {
            Expression::Literal(literal) => literal.fmt(f),
            Expression::Field(field) => self.name(f, *field),
            Expression::Negate(operand) => {
                // Two signs in a row would begin a comment.
                let signed = matches!(**operand, Expression::Negate(_) | Expression::Literal(_));
                f.write_str(if signed { "- " } else { "-" })?;
                self.part(f, operand, Precedence::Sign)
            }
            Expression::Arithmetic(first, rest) => self.arithmetic(f, first, rest),
            Expression::And(operands) => self.chain(f, operands, " AND ", Precedence::Not),
            Expression::Or(operands) => self.chain(f, operands, " OR ", Precedence::And),
            Expression::Not(operand) => {
                f.write_str("NOT ")?;
                self.part(f, operand, Precedence::Not)
            }
            Expression::Compare(relation, operands) => {
                self.part(f, &operands[0], Precedence::Sum)?;
                write!(f, " {} ", relation.symbol())?;
                self.part(f, &operands[1], Precedence::Sum)
            }
            Expression::Between { negated, operands } => {
                self.part(f, &operands[0], Precedence::Sum)?;
                f.write_str(not(*negated))?;
                f.write_str(" BETWEEN ")?;
                self.part(f, &operands[1], Precedence::Sum)?;
                f.write_str(" AND ")?;
                self.part(f, &operands[2], Precedence::Sum)
            }
            Expression::In { negated, field, list } => {
                self.name(f, *field)?;
                f.write_str(not(*negated))?;
                for (index, literal) in list.iter().enumerate() {
                    f.write_str(if index == 0 { " IN (" } else { ", " })?;
                    literal.fmt(f)?;
                }
                f.write_char(')')
            }
            Expression::Like { negated, field, pattern } => {
                self.name(f, *field)?;
                f.write_str(not(*negated))?;
                f.write_str(" LIKE ")?;
                quoted(f, pattern.text(), '\'')?;
                match pattern.escape() {
                    Some(escape) => {
                        f.write_str(" ESCAPE ")?;
                        quoted(f, escape.encode_utf8(&mut [0; 4]), '\'')
                    }
                    None => Ok(()),
                }
            }
            Expression::IsNull { negated, field } => {
                self.name(f, *field)?;
                write!(f, " IS{} NULL", not(*negated))
            }
        }
    }
}

impl Printer<'_> {
    fn part(&self, f: &mut fmt::Formatter<'_>, part: &Expression, least: Precedence) -> fmt::Result {
        let printer = Printer { expression: part, fields: self.fields };
        if part.precedence() < least { write!(f, "({printer})") } else { write!(f, "{printer}") }
    }

    fn chain(
        &self,
        f: &mut fmt::Formatter<'_>,
        operands: &[Expression],
        between: &str,
        least: Precedence,
    ) -> fmt::Result {
        for (index, operand) in operands.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { between })?;
            self.part(f, operand, least)?;
        }
        Ok(())
    }

    fn arithmetic(
        &self,
        f: &mut fmt::Formatter<'_>,
        first: &Expression,
        rest: &[(Arithmetic, Expression)],
    ) -> fmt::Result {
        let own = self.expression.precedence();
        let tighter = if own == Precedence::Sum { Precedence::Product } else { Precedence::Sign };
        self.part(f, first, tighter)?;
        for (operator, operand) in rest {
            write!(f, " {} ", operator.symbol())?;
            self.part(f, operand, tighter)?;
        }
        Ok(())
    }

    fn name(&self, f: &mut fmt::Formatter<'_>, field: FieldId) -> fmt::Result {
        let name = self.fields[usize::from(field.0)].name();
        if lexer::is_plain_identifier(name) { f.write_str(name) } else { quoted(f, name, '"') }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Bool(true) => f.write_str("TRUE"),
            Literal::Bool(false) => f.write_str("FALSE"),
            Literal::Int(value) => write!(f, "{value}"),
            // The debug form always has a point or an exponent, which keeps the number approximate.
            Literal::Float(value) => write!(f, "{:?}", value.value()),
            Literal::String(value) => quoted(f, value, '\''),
        }
    }
}

impl Relation {
    fn symbol(self) -> &'static str {
        match self {
            Relation::Equal => "=",
            Relation::NotEqual => "<>",
            Relation::Less => "<",
            Relation::LessOrEqual => "<=",
            Relation::Greater => ">",
            Relation::GreaterOrEqual => ">=",
        }
    }
}

impl Arithmetic {
    fn symbol(self) -> char {
        match self {
            Arithmetic::Add => '+',
            Arithmetic::Subtract => '-',
            Arithmetic::Multiply => '*',
            Arithmetic::Divide => '/',
        }
    }
}

fn not(negated: bool) -> &'static str {
    if negated { " NOT" } else { "" }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str, quote: char) -> fmt::Result {
    f.write_char(quote)?;
    for character in text.chars() {
        f.write_char(character)?;
        if character == quote {
            f.write_char(quote)?;
        }
    }
    f.write_char(quote)
}
