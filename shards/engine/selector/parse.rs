//! What does a text say, and where does it stop making sense?
//!
//! The grammar of JMS 2.0 §3.8.1.1 over the tokens of [`lexer`], loosest operator first:
//!
//! ```text
//! disjunction = conjunction { OR conjunction }
//! conjunction = negation { AND negation }
//! negation    = NOT negation | predicate
//! predicate   = sum [ relation sum | [NOT] BETWEEN sum AND sum | [NOT] IN list
//!                   | [NOT] LIKE string [ESCAPE string] | IS [NOT] NULL ]
//! sum         = product { (+ | -) product }
//! product     = sign { (* | /) sign }
//! sign        = (+ | -) sign | "(" disjunction ")" | primary
//! primary     = literal | identifier
//! ```
//!
//! Each rule that recurses keeps its frame small by leaving the rest of its work to a function of its own: a shard's stack must
//! hold [`NESTING_MAX`] of all of them.
//!
//! One token decides at every fork, so the parser never goes back, and an error stands at the first token that fits
//! nowhere. What no message could satisfy sensibly (`'a' + 1`, `5 AND flag`, `s < 'b'`) is refused here. Beyond JMS, a list
//! of `IN` may hold numbers and booleans, and conditions in parentheses may be compared for equality.

use winnow::combinator::{cut_err, opt, separated};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{Stateful, Stream, TokenSlice};
use winnow::token::any;
use winnow::{ModalResult, Parser};

use super::ast::{Approximate, Arithmetic, Expression, FieldId, Kind, Literal, Relation};
use super::error::{SelectorError, SelectorFault};
use super::field::Field;
use super::lexer::{self, INTEGER_MAGNITUDE_MAX, INTEGER_RANGE, Kind as Word, Token};
use super::like::{Pattern, PatternFault};
use super::limits::{FIELDS_MAX, LIKES_MAX, NESTING_MAX, NODES_MAX, SELECTOR_SIZE_MAX};

type Input<'t, 's> = Stateful<TokenSlice<'t, Token<'s>>, Context>;
type Parsed<T> = ModalResult<T, SelectorError>;

/// What the parser counts and collects.
#[derive(Debug, Default)]
struct Context {
    nesting: usize,
    nodes: usize,
    likes: usize,
    fields: Vec<Field>,
}

/// An expression and the byte at which it begins.
#[derive(Debug)]
struct Node {
    position: usize,
    expression: Expression,
}

impl ParserError<Input<'_, '_>> for SelectorError {
    type Inner = Self;

    fn from_input(input: &Input<'_, '_>) -> Self {
        SelectorError::syntax(peeked(input).position, "something else")
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// The condition a text states, and the fields it names, in the order of their first mention.
pub(super) fn parse(text: &str) -> Result<(Box<[Field]>, Expression, usize), SelectorError> {
    if text.len() > SELECTOR_SIZE_MAX {
        let expected = "at most 16384 bytes";
        return Err(SelectorError { position: SELECTOR_SIZE_MAX, fault: SelectorFault::Limit, expected });
    }
    let tokens = lexer::tokens(text)?;
    let mut input = Stateful { input: TokenSlice::new(&tokens), state: Context::default() };
    match selector(&mut input) {
        Ok(expression) => Ok((input.state.fields.into(), expression, input.state.nodes)),
        Err(ErrMode::Backtrack(error) | ErrMode::Cut(error)) => Err(error),
        Err(ErrMode::Incomplete(_)) => Err(SelectorError::syntax(text.len(), "more text")),
    }
}

fn selector(input: &mut Input<'_, '_>) -> Parsed<Expression> {
    let node = disjunction(input)?;
    expect(input, Word::End, "an operator or the end")?;
    node.condition()
}

fn disjunction(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let first = conjunction(input)?;
    if peeked(input).kind == Word::Or { chain(input, first, Word::Or, conjunction) } else { Ok(first) }
}

fn conjunction(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let first = negation(input)?;
    if peeked(input).kind == Word::And { chain(input, first, Word::And, negation) } else { Ok(first) }
}

/// Conditions with `AND` or `OR` between them. A chain of the same operator in parentheses is joined in.
fn chain<'t, 's>(
    input: &mut Input<'t, 's>,
    first: Node,
    operator: Word<'s>,
    operand: fn(&mut Input<'t, 's>) -> Parsed<Node>,
) -> Parsed<Node> {
    let position = first.position;
    let mut next = first.condition()?;
    let mut operands = Vec::new();
    loop {
        match next {
            Expression::Or(inner) if operator == Word::Or => operands.extend(inner),
            Expression::And(inner) if operator == Word::And => operands.extend(inner),
            other => operands.push(other),
        }
        if opt(accept(operator)).parse_next(input)?.is_none() {
            break;
        }
        next = operand(input)?.condition()?;
    }
    let operands = operands.into();
    let chain = if operator == Word::Or { Expression::Or(operands) } else { Expression::And(operands) };
    node(input, position, chain)
}

fn negation(input: &mut Input<'_, '_>) -> Parsed<Node> {
    if peeked(input).kind == Word::Not { negated(input) } else { predicate(input) }
}

fn negated(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let position = peeked(input).position;
    input.next_token();
    let operand = nested(input, negation)?.condition()?;
    node(input, position, Expression::Not(Box::new(operand)))
}

fn predicate(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let left = sum(input)?;
    let relation = match peeked(input).kind {
        Word::Equal => Relation::Equal,
        Word::NotEqual => Relation::NotEqual,
        Word::Less => Relation::Less,
        Word::LessOrEqual => Relation::LessOrEqual,
        Word::Greater => Relation::Greater,
        Word::GreaterOrEqual => Relation::GreaterOrEqual,
        Word::Not | Word::Between | Word::In | Word::Like | Word::Is => return membership(input, left),
        _ => return Ok(left),
    };
    input.next_token();
    comparison(input, left, relation)
}

fn comparison(input: &mut Input<'_, '_>, left: Node, relation: Relation) -> Parsed<Node> {
    let right = sum(input)?;
    let position = left.position;
    let operands = match relation {
        Relation::Equal | Relation::NotEqual => [left.expression, right.expression],
        // §3.8.1.1: strings and booleans are compared for equality only.
        Relation::Less | Relation::LessOrEqual | Relation::Greater | Relation::GreaterOrEqual => {
            [left.number()?, right.number()?]
        }
    };
    node(input, position, Expression::Compare(relation, Box::new(operands)))
}

/// The predicates that are written with words.
fn membership(input: &mut Input<'_, '_>, left: Node) -> Parsed<Node> {
    let position = left.position;
    let mut negated = opt(accept(Word::Not)).parse_next(input)?.is_some();
    let token = peeked(input);
    if token.kind == Word::Between {
        return between(input, left, negated);
    }
    let expression = match token.kind {
        Word::In => {
            input.next_token();
            Expression::In { negated, field: left.field()?, list: list(input)? }
        }
        Word::Like => {
            input.next_token();
            Expression::Like { negated, field: left.field()?, pattern: Box::new(pattern(input)?) }
        }
        Word::Is if !negated => {
            input.next_token();
            negated = opt(accept(Word::Not)).parse_next(input)?.is_some();
            expect(input, Word::Null, if negated { "NULL" } else { "NULL or NOT NULL" })?;
            Expression::IsNull { negated, field: left.field()? }
        }
        _ => return Err(ErrMode::Cut(SelectorError::syntax(token.position, "BETWEEN, IN or LIKE"))),
    };
    node(input, position, expression)
}

fn between(input: &mut Input<'_, '_>, left: Node, negated: bool) -> Parsed<Node> {
    let position = left.position;
    input.next_token();
    let value = left.number()?;
    let low = sum(input)?.number()?;
    expect(input, Word::And, "AND between the bounds")?;
    let high = sum(input)?.number()?;
    node(input, position, Expression::Between { negated, operands: Box::new([value, low, high]) })
}

fn list(input: &mut Input<'_, '_>) -> Parsed<Box<[Literal]>> {
    expect(input, Word::Open, "( and a list of literals")?;
    let list: Vec<Literal> = separated(1.., cut_err(member), accept(Word::Comma)).parse_next(input)?;
    expect(input, Word::Close, "a comma or )")?;
    Ok(list.into())
}

fn member(input: &mut Input<'_, '_>) -> Parsed<Literal> {
    let Node { position, expression } = sign(input)?;
    match expression {
        Expression::Literal(literal) => Ok(literal),
        _ => Err(ErrMode::Cut(SelectorError::syntax(position, "a literal"))),
    }
}

fn pattern(input: &mut Input<'_, '_>) -> Parsed<Pattern> {
    let position = peeked(input).position;
    if input.state.likes == LIKES_MAX {
        return Err(limit(input, "at most 64 LIKEs"));
    }
    input.state.likes += 1;
    let written = string(input, "a pattern in single quotes")?;
    let mut escape = None;
    if opt(accept(Word::Escape)).parse_next(input)?.is_some() {
        let expected = "one character in single quotes";
        let position = peeked(input).position;
        let text = string(input, expected)?;
        let mut characters = text.chars();
        escape = characters.next();
        if escape.is_none() || characters.next().is_some() {
            return Err(ErrMode::Cut(SelectorError::syntax(position, expected)));
        }
    }
    Pattern::parse(&written, escape).map_err(|fault| {
        let (fault, expected) = match fault {
            PatternFault::DanglingEscape => (SelectorFault::Syntax, "a character after the escape character"),
            PatternFault::SearchTooLong => {
                (SelectorFault::Limit, "at most 64 characters with a _ between two %")
            }
        };
        ErrMode::Cut(SelectorError { position, fault, expected })
    })
}

fn sum(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let first = product(input)?;
    let operator = |word| match word {
        Word::Plus => Some(Arithmetic::Add),
        Word::Minus => Some(Arithmetic::Subtract),
        _ => None,
    };
    if operator(peeked(input).kind).is_none() {
        Ok(first)
    } else {
        arithmetic(input, first, operator, product)
    }
}

fn product(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let first = sign(input)?;
    let operator = |word| match word {
        Word::Star => Some(Arithmetic::Multiply),
        Word::Slash => Some(Arithmetic::Divide),
        _ => None,
    };
    if operator(peeked(input).kind).is_none() { Ok(first) } else { arithmetic(input, first, operator, sign) }
}

fn arithmetic<'t, 's>(
    input: &mut Input<'t, 's>,
    first: Node,
    operator: fn(Word<'s>) -> Option<Arithmetic>,
    operand: fn(&mut Input<'t, 's>) -> Parsed<Node>,
) -> Parsed<Node> {
    let position = first.position;
    let first = Box::new(first.number()?);
    let mut rest = Vec::new();
    while let Some(operator) = operator(peeked(input).kind) {
        input.next_token();
        rest.push((operator, operand(input)?.number()?));
    }
    node(input, position, Expression::Arithmetic(first, rest.into()))
}

fn sign(input: &mut Input<'_, '_>) -> Parsed<Node> {
    match peeked(input).kind {
        Word::Minus => minus(input),
        Word::Plus => plus(input),
        Word::Open => parentheses(input),
        _ => primary(input),
    }
}

fn minus(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let position = peeked(input).position;
    input.next_token();
    // The magnitude of the least integer is no integer by itself.
    if opt(accept(Word::Integer(INTEGER_MAGNITUDE_MAX))).parse_next(input)?.is_some() {
        return node(input, position, Expression::Literal(Literal::Int(i64::MIN)));
    }
    let operand = nested(input, sign)?.number()?;
    let folded = match &operand {
        Expression::Literal(literal) => literal.negated().map(Expression::Literal),
        _ => None,
    };
    node(input, position, folded.unwrap_or_else(|| Expression::Negate(Box::new(operand))))
}

fn plus(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let position = peeked(input).position;
    input.next_token();
    let expression = match nested(input, sign)?.number()? {
        // A sign makes arithmetic of it, which fails on what is not a number.
        field @ Expression::Field(_) => {
            let zero = Expression::Literal(Literal::Int(0));
            Expression::Arithmetic(Box::new(zero), Box::new([(Arithmetic::Add, field)]))
        }
        number => number,
    };
    node(input, position, expression)
}

fn parentheses(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let position = peeked(input).position;
    input.next_token();
    let inner = nested(input, disjunction)?;
    expect(input, Word::Close, "an operator or )")?;
    Ok(Node { position, ..inner })
}

fn primary(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let Token { kind, position } = peeked(input);
    let expression = match kind {
        Word::Identifier(name) => {
            input.next_token();
            Expression::Field(field(input, Field::named(name))?)
        }
        Word::Quoted(written) => {
            input.next_token();
            Expression::Field(field(input, Field::named(&lexer::unquoted(written, '"')))?)
        }
        _ => match literal(input)? {
            Some(literal) => Expression::Literal(literal),
            None => return Err(ErrMode::Cut(SelectorError::syntax(position, "a name, a literal or ("))),
        },
    };
    node(input, position, expression)
}

/// The literal that comes next, if it is one.
fn literal(input: &mut Input<'_, '_>) -> Parsed<Option<Literal>> {
    let Token { kind, position } = peeked(input);
    let literal = match kind {
        Word::True => Literal::Bool(true),
        Word::False => Literal::Bool(false),
        Word::Integer(value) => match i64::try_from(value) {
            Ok(value) => Literal::Int(value),
            Err(_) => {
                let error = SelectorError { position, fault: SelectorFault::Range, expected: INTEGER_RANGE };
                return Err(ErrMode::Cut(error));
            }
        },
        Word::Float(value) => Literal::Float(Approximate::new(value)),
        Word::String(written) => Literal::String(lexer::unquoted(written, '\'')),
        _ => return Ok(None),
    };
    input.next_token();
    Ok(Some(literal))
}

fn string(input: &mut Input<'_, '_>, expected: &'static str) -> Parsed<Box<str>> {
    let Token { kind, position } = peeked(input);
    let Word::String(written) = kind else {
        return Err(ErrMode::Cut(SelectorError::syntax(position, expected)));
    };
    input.next_token();
    Ok(lexer::unquoted(written, '\''))
}

fn field(input: &mut Input<'_, '_>, field: Field) -> Parsed<FieldId> {
    let fields = &mut input.state.fields;
    let index = fields.iter().position(|known| *known == field).unwrap_or_else(|| {
        fields.push(field);
        fields.len() - 1
    });
    if index < FIELDS_MAX {
        Ok(FieldId(index as u16))
    } else {
        Err(limit(input, "at most 256 different names"))
    }
}

fn node(input: &mut Input<'_, '_>, position: usize, expression: Expression) -> Parsed<Node> {
    input.state.nodes += 1;
    if input.state.nodes > NODES_MAX {
        return Err(limit(input, "at most 4096 operators, names and literals"));
    }
    Ok(Node { position, expression })
}

/// Parses what stands inside something; the only way to recurse.
fn nested<'t, 's>(input: &mut Input<'t, 's>, inner: fn(&mut Input<'t, 's>) -> Parsed<Node>) -> Parsed<Node> {
    if input.state.nesting == NESTING_MAX {
        return Err(limit(input, "at most 64 levels of parentheses, NOTs and signs"));
    }
    input.state.nesting += 1;
    let node = inner(input)?;
    input.state.nesting -= 1;
    Ok(node)
}

fn limit(input: &Input<'_, '_>, expected: &'static str) -> ErrMode<SelectorError> {
    ErrMode::Cut(SelectorError { position: peeked(input).position, fault: SelectorFault::Limit, expected })
}

/// The next token; the last one is never consumed by anything but [`selector`].
fn peeked<'s>(input: &Input<'_, 's>) -> Token<'s> {
    input.peek_token().copied().unwrap_or(Token { kind: Word::End, position: 0 })
}

fn accept<'t, 's: 't>(word: Word<'s>) -> impl Parser<Input<'t, 's>, Token<'s>, ErrMode<SelectorError>> {
    any.verify(move |token: &&Token<'s>| token.kind == word).map(|token: &Token<'s>| *token)
}

fn expect<'s>(input: &mut Input<'_, 's>, word: Word<'s>, expected: &'static str) -> Parsed<()> {
    let token = peeked(input);
    if token.kind != word {
        return Err(ErrMode::Cut(SelectorError::syntax(token.position, expected)));
    }
    input.next_token();
    Ok(())
}

impl Node {
    fn condition(self) -> Parsed<Expression> {
        match self.expression.kind() {
            Kind::Condition | Kind::Any => Ok(self.expression),
            Kind::Number | Kind::Text => Err(self.fault(SelectorFault::Type, "a condition")),
        }
    }

    fn number(self) -> Parsed<Expression> {
        match self.expression.kind() {
            Kind::Number | Kind::Any => Ok(self.expression),
            Kind::Condition | Kind::Text => Err(self.fault(SelectorFault::Type, "a number")),
        }
    }

    fn field(self) -> Parsed<FieldId> {
        match self.expression {
            Expression::Field(field) => Ok(field),
            _ => Err(self.fault(SelectorFault::Syntax, "a name on the left side")),
        }
    }

    fn fault(&self, fault: SelectorFault, expected: &'static str) -> ErrMode<SelectorError> {
        ErrMode::Cut(SelectorError { position: self.position, fault, expected })
    }
}
