//! What does a text say, and where does it stop making sense?
//!
//! The grammar of JMS 2.0 §3.8.1.1 over the tokens of [`lexer`](super::lexer), loosest operator first:
//!
//! ```text
//! disjunction = conjunction { OR conjunction }
//! conjunction = negation { AND negation }
//! negation    = NOT negation | predicate
//! predicate   = sum [ relation sum | [NOT] BETWEEN sum AND sum | [NOT] IN list
//!                   | [NOT] LIKE string [ESCAPE string] | IS [NOT] NULL ]
//! sum         = product { (+ | -) product }
//! product     = sign { (* | /) sign }
//! sign        = (+ | -) sign | primary
//! primary     = literal | identifier | "(" disjunction ")"
//! ```
//!
//! One token decides at every fork, so the parser never goes back, and an error stands at the first token that fits
//! nowhere. What no message could satisfy sensibly (`'a' + 1`, `5 AND flag`, `s < 'b'`) is refused here. Beyond JMS, a list
//! of `IN` may hold numbers and booleans, and conditions in parentheses may be compared for equality.

use winnow::combinator::{cut_err, opt, repeat, separated};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{Stateful, Stream, TokenSlice};
use winnow::token::any;
use winnow::{ModalResult, Parser};

use super::ast::{Approximate, Arithmetic, Expression, FieldId, Kind, Literal, Relation};
use super::error::{SelectorError, SelectorFault};
use super::field::Field;
use super::lexer::{self, INTEGER_MAGNITUDE_MAX, INTEGER_RANGE, Kind as Word, Token};
use super::like::{Pattern, PatternFault};
use super::limits::{FIELDS_MAX, NESTING_MAX, NODES_MAX, SELECTOR_SIZE_MAX};

type Input<'t, 's> = Stateful<TokenSlice<'t, Token<'s>>, Context>;
type Parsed<T> = ModalResult<T, SelectorError>;

/// What the parser counts and collects.
#[derive(Debug, Default)]
struct Context {
    nesting: usize,
    nodes: usize,
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
pub(super) fn parse(text: &str) -> Result<(Box<[Field]>, Expression), SelectorError> {
    if text.len() > SELECTOR_SIZE_MAX {
        let expected = "at most 16384 bytes";
        return Err(SelectorError { position: SELECTOR_SIZE_MAX, fault: SelectorFault::Limit, expected });
    }
    let tokens = lexer::tokens(text)?;
    let mut input = Stateful { input: TokenSlice::new(&tokens), state: Context::default() };
    match selector(&mut input) {
        Ok(expression) => Ok((input.state.fields.into(), expression)),
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
    let operands: Vec<Node> = separated(1.., cut_err(conjunction), accept(Word::Or)).parse_next(input)?;
    chain(input, operands, Expression::Or)
}

fn conjunction(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let operands: Vec<Node> = separated(1.., cut_err(negation), accept(Word::And)).parse_next(input)?;
    chain(input, operands, Expression::And)
}

/// One operand stays what it is; several are conditions, and chains of the same operator in parentheses are joined in.
fn chain(
    input: &mut Input<'_, '_>,
    mut nodes: Vec<Node>,
    build: fn(Box<[Expression]>) -> Expression,
) -> Parsed<Node> {
    let position = nodes.first().map_or(0, |node| node.position);
    if nodes.len() == 1
        && let Some(node) = nodes.pop()
    {
        return Ok(node);
    }
    let is_or = matches!(build(Box::default()), Expression::Or(_));
    let mut operands = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node.condition()? {
            Expression::Or(inner) if is_or => operands.extend(inner),
            Expression::And(inner) if !is_or => operands.extend(inner),
            operand => operands.push(operand),
        }
    }
    node(input, position, build(operands.into()))
}

fn negation(input: &mut Input<'_, '_>) -> Parsed<Node> {
    match opt(accept(Word::Not)).parse_next(input)? {
        None => predicate(input),
        Some(token) => {
            let operand = nested(input, negation)?.condition()?;
            node(input, token.position, Expression::Not(Box::new(operand)))
        }
    }
}

fn predicate(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let left = sum(input)?;
    let position = left.position;
    let relation = match peeked(input).kind {
        Word::Equal => Relation::Equal,
        Word::NotEqual => Relation::NotEqual,
        Word::Less => Relation::Less,
        Word::LessOrEqual => Relation::LessOrEqual,
        Word::Greater => Relation::Greater,
        Word::GreaterOrEqual => Relation::GreaterOrEqual,
        Word::Not | Word::Between | Word::In | Word::Like | Word::Is => {
            let expression = membership(input, left)?;
            return node(input, position, expression);
        }
        _ => return Ok(left),
    };
    input.next_token();
    let right = sum(input)?;
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
fn membership(input: &mut Input<'_, '_>, left: Node) -> Parsed<Expression> {
    let mut negated = opt(accept(Word::Not)).parse_next(input)?.is_some();
    let token = peeked(input);
    match token.kind {
        Word::Between => {
            input.next_token();
            let value = left.number()?;
            let low = sum(input)?.number()?;
            expect(input, Word::And, "AND between the bounds")?;
            let high = sum(input)?.number()?;
            Ok(Expression::Between { negated, operands: Box::new([value, low, high]) })
        }
        Word::In => {
            input.next_token();
            Ok(Expression::In { negated, field: left.field()?, list: list(input)? })
        }
        Word::Like => {
            input.next_token();
            Ok(Expression::Like { negated, field: left.field()?, pattern: Box::new(pattern(input)?) })
        }
        Word::Is if !negated => {
            input.next_token();
            negated = opt(accept(Word::Not)).parse_next(input)?.is_some();
            expect(input, Word::Null, if negated { "NULL" } else { "NULL or NOT NULL" })?;
            Ok(Expression::IsNull { negated, field: left.field()? })
        }
        _ => Err(ErrMode::Cut(SelectorError::syntax(token.position, "BETWEEN, IN or LIKE"))),
    }
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
    arithmetic(input, product, |word| match word {
        Word::Plus => Some(Arithmetic::Add),
        Word::Minus => Some(Arithmetic::Subtract),
        _ => None,
    })
}

fn product(input: &mut Input<'_, '_>) -> Parsed<Node> {
    arithmetic(input, sign, |word| match word {
        Word::Star => Some(Arithmetic::Multiply),
        Word::Slash => Some(Arithmetic::Divide),
        _ => None,
    })
}

fn arithmetic<'t, 's>(
    input: &mut Input<'t, 's>,
    operand: fn(&mut Input<'t, 's>) -> Parsed<Node>,
    operator: fn(Word<'s>) -> Option<Arithmetic>,
) -> Parsed<Node> {
    let first = operand(input)?;
    let operator = any.verify_map(|token: &Token<'s>| operator(token.kind));
    let rest: Vec<(Arithmetic, Node)> = repeat(0.., (operator, cut_err(operand))).parse_next(input)?;
    if rest.is_empty() {
        return Ok(first);
    }
    let position = first.position;
    let first = Box::new(first.number()?);
    let rest = rest.into_iter().map(|(operator, operand)| Ok((operator, operand.number()?)));
    let rest = rest.collect::<Parsed<_>>()?;
    node(input, position, Expression::Arithmetic(first, rest))
}

fn sign(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let Token { kind, position } = peeked(input);
    let expression = match kind {
        Word::Minus => {
            input.next_token();
            let least = accept(Word::Integer(INTEGER_MAGNITUDE_MAX));
            match opt(least).parse_next(input)? {
                Some(_) => Expression::Literal(Literal::Int(i64::MIN)),
                None => negated(nested(input, sign)?.number()?),
            }
        }
        Word::Plus => {
            input.next_token();
            match nested(input, sign)?.number()? {
                // A sign makes arithmetic of it, which fails on what is not a number.
                field @ Expression::Field(_) => {
                    let zero = Expression::Literal(Literal::Int(0));
                    Expression::Arithmetic(Box::new(zero), Box::new([(Arithmetic::Add, field)]))
                }
                number => number,
            }
        }
        _ => return primary(input),
    };
    node(input, position, expression)
}

fn negated(operand: Expression) -> Expression {
    if let Expression::Literal(literal) = &operand
        && let Some(literal) = literal.negated()
    {
        return Expression::Literal(literal);
    }
    Expression::Negate(Box::new(operand))
}

fn primary(input: &mut Input<'_, '_>) -> Parsed<Node> {
    let Token { kind, position } = peeked(input);
    let expression = match kind {
        Word::Open => {
            input.next_token();
            let inner = nested(input, disjunction)?;
            expect(input, Word::Close, "an operator or )")?;
            return Ok(Node { position, ..inner });
        }
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
