//! Which words is the text made of?
//!
//! The tokens of JMS 2.0 §3.8.1.1, each with the byte at which it begins; the last one is [`Kind::End`], at the length of the
//! text. Keywords are told in any case. Beyond JMS, a name in double quotes is an identifier whatever it is made of. Comments do not
//! exist; `--` is refused rather than read as two signs, because SQL would read on as if the rest of the line were not there.

use winnow::ModalResult;
use winnow::Parser;
use winnow::ascii::{Caseless, digit0, digit1, hex_digit1};
use winnow::combinator::{
    alt, cut_err, delimited, dispatch, empty, fail, not, opt, peek, preceded, repeat, terminated,
};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::{any, one_of, take_till, take_while};

use super::error::{SelectorError, SelectorFault};

/// A word of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind<'s>,
    /// The byte at which it begins.
    pub(super) position: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind<'s> {
    And,
    Or,
    Not,
    Between,
    In,
    Like,
    Escape,
    Is,
    Null,
    True,
    False,
    Identifier(&'s str),
    /// An identifier as it is written between double quotes: `""` stands for a quote.
    Quoted(&'s str),
    /// A string as it is written between single quotes: `''` stands for a quote.
    String(&'s str),
    /// At most [`INTEGER_MAGNITUDE_MAX`]; the largest one only after a minus.
    Integer(u64),
    Float(f64),
    Open,
    Close,
    Comma,
    Plus,
    Minus,
    Star,
    Slash,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    End,
}

/// The magnitude of the least `i64`.
pub(super) const INTEGER_MAGNITUDE_MAX: u64 = 1 << 63;

const KEYWORDS: [(&str, Kind<'static>); 11] = [
    ("AND", Kind::And),
    ("OR", Kind::Or),
    ("NOT", Kind::Not),
    ("BETWEEN", Kind::Between),
    ("IN", Kind::In),
    ("LIKE", Kind::Like),
    ("ESCAPE", Kind::Escape),
    ("IS", Kind::Is),
    ("NULL", Kind::Null),
    ("TRUE", Kind::True),
    ("FALSE", Kind::False),
];

const TOKEN: &str = "a name, a literal or an operator";

type Input<'s> = LocatingSlice<&'s str>;
type Lexed<T> = ModalResult<T, SelectorError>;

impl ParserError<Input<'_>> for SelectorError {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        SelectorError::syntax(input.current_token_start(), TOKEN)
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// Cuts a text into its tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, SelectorError> {
    let mut input = LocatingSlice::new(text);
    let mut tokens = Vec::new();
    loop {
        // Spaces, tabs, form feeds and line ends.
        let _: Lexed<&str> = take_while(0.., (' ', '\t', '\x0c', '\r', '\n')).parse_next(&mut input);
        let position = input.current_token_start();
        if input.peek_token().is_none() {
            tokens.push(Token { kind: Kind::End, position });
            return Ok(tokens);
        }
        let kind = token.parse_next(&mut input).map_err(|error| match error {
            ErrMode::Cut(error) => error,
            // Nothing said more about it: there is no such token.
            ErrMode::Backtrack(_) | ErrMode::Incomplete(_) => SelectorError::syntax(position, TOKEN),
        })?;
        tokens.push(Token { kind, position });
    }
}

/// Whether a name needs no quotes.
pub(super) fn is_plain_identifier(name: &str) -> bool {
    name.starts_with(begins_identifier) && name.chars().all(continues_identifier) && keyword(name).is_none()
}

/// What is written between quotes, as it is meant.
pub(super) fn unquoted(written: &str, quote: char) -> Box<str> {
    let mut text = String::with_capacity(written.len());
    let mut pieces = written.split(quote).step_by(2);
    text.extend(pieces.next());
    for piece in pieces {
        text.push(quote);
        text.push_str(piece);
    }
    text.into()
}

fn token<'s>(input: &mut Input<'s>) -> Lexed<Kind<'s>> {
    dispatch! {peek(any);
        '\'' => quoted('\'', "the closing ' of this string").map(Kind::String),
        '"' => identifier_in_quotes,
        '0'..='9' => number,
        '.' => number,
        first if begins_identifier(first) => word,
        _ => symbol,
    }
    .parse_next(input)
}

fn symbol<'s>(input: &mut Input<'s>) -> Lexed<Kind<'s>> {
    if input.starts_with("--") || input.starts_with("/*") {
        let expected = "no comment (signs in a row need a space between them)";
        return Err(ErrMode::Cut(SelectorError::syntax(input.current_token_start(), expected)));
    }
    let (position, sign) = (input.current_token_start(), input.chars().next());
    dispatch! {any;
        '=' => empty.value(Kind::Equal),
        '<' => alt((
            '>'.value(Kind::NotEqual),
            '='.value(Kind::LessOrEqual),
            empty.value(Kind::Less),
        )),
        '>' => alt(('='.value(Kind::GreaterOrEqual), empty.value(Kind::Greater))),
        '(' => empty.value(Kind::Open),
        ')' => empty.value(Kind::Close),
        ',' => empty.value(Kind::Comma),
        '+' => empty.value(Kind::Plus),
        '-' => empty.value(Kind::Minus),
        '*' => empty.value(Kind::Star),
        '/' => empty.value(Kind::Slash),
        _ => fail,
    }
    .parse_next(input)
    .map_err(|error: ErrMode<SelectorError>| match sign {
        Some('!') => ErrMode::Cut(SelectorError::syntax(position, "<> for what is not equal")),
        Some('%') => ErrMode::Cut(SelectorError::syntax(position, "+, -, * or /: there is no remainder")),
        _ => error,
    })
}

fn word<'s>(input: &mut Input<'s>) -> Lexed<Kind<'s>> {
    let position = input.current_token_start();
    let word = take_while(1.., continues_identifier).parse_next(input)?;
    if input.strip_prefix('.').is_some_and(|rest| rest.starts_with(begins_identifier)) {
        let expected = "double quotes around a name with dots, as in \"a.b\" = 1";
        return Err(ErrMode::Cut(SelectorError::syntax(position, expected)));
    }
    Ok(keyword(word).unwrap_or(Kind::Identifier(word)))
}

fn identifier_in_quotes<'s>(input: &mut Input<'s>) -> Lexed<Kind<'s>> {
    let position = input.current_token_start();
    let name = quoted('"', "the closing \" of this name").parse_next(input)?;
    if name.is_empty() {
        return Err(ErrMode::Cut(SelectorError::syntax(position, "a name between the quotes")));
    }
    Ok(Kind::Quoted(name))
}

/// What stands between two quotes; a doubled quote does not end it.
fn quoted<'s>(
    quote: char,
    expected: &'static str,
) -> impl Parser<Input<'s>, &'s str, ErrMode<SelectorError>> {
    move |input: &mut Input<'s>| {
        let position = input.current_token_start();
        let piece = delimited(quote, take_till(0.., quote), cut_err(quote));
        let written: Lexed<&str> = repeat::<_, _, (), _, _>(1.., piece).take().parse_next(input);
        match written {
            Ok(written) => Ok(&written[1..written.len() - 1]),
            Err(_) => Err(ErrMode::Cut(SelectorError::syntax(position, expected))),
        }
    }
}

/// §3.8.1.1: numeric literals are those of Java, so a leading 0 makes an integer octal. There is no sign here.
fn number<'s>(input: &mut Input<'s>) -> Lexed<Kind<'s>> {
    let position = input.current_token_start();
    let fault = |fault, expected| ErrMode::Cut(SelectorError { position, fault, expected });
    let syntax = fault(SelectorFault::Syntax, "a number, and a space or an operator after it");
    let end = || not(one_of(|c| continues_identifier(c) || c == '.'));
    let written =
        alt((terminated(hexadecimal, end()), terminated(approximate, end()), terminated(exact, end())))
            .parse_next(input)
            .map_err(|_| syntax)?;
    match written {
        Written::Integer { digits, radix } if digits.chars().all(|digit| digit.is_digit(radix)) => {
            match u64::from_str_radix(digits, radix) {
                Ok(value)
                    if value < INTEGER_MAGNITUDE_MAX || radix == 10 && value == INTEGER_MAGNITUDE_MAX =>
                {
                    Ok(Kind::Integer(value))
                }
                Ok(_) | Err(_) => Err(fault(SelectorFault::Range, INTEGER_RANGE)),
            }
        }
        Written::Integer { .. } => Err(fault(SelectorFault::Syntax, "octal digits after a leading 0")),
        Written::Float { digits, single } => {
            let value = if single { digits.parse().map(f32::into) } else { digits.parse() };
            let value: f64 = value.map_err(|_| fault(SelectorFault::Syntax, "a number"))?;
            let mantissa = digits.split(['e', 'E']).next().unwrap_or(digits);
            if value.is_finite() && (value != 0.0 || !mantissa.contains(|digit| ('1'..='9').contains(&digit)))
            {
                Ok(Kind::Float(value))
            } else {
                Err(fault(SelectorFault::Range, FLOAT_RANGE))
            }
        }
    }
}

pub(super) const INTEGER_RANGE: &str = "an integer between -9223372036854775808 and 9223372036854775807";
const FLOAT_RANGE: &str = "a number that a float of this size can hold";

enum Written<'s> {
    Integer { digits: &'s str, radix: u32 },
    Float { digits: &'s str, single: bool },
}

fn hexadecimal<'s>(input: &mut Input<'s>) -> Lexed<Written<'s>> {
    delimited(Caseless("0x"), hex_digit1, opt(one_of(['l', 'L'])))
        .map(|digits| Written::Integer { digits, radix: 16 })
        .parse_next(input)
}

fn exact<'s>(input: &mut Input<'s>) -> Lexed<Written<'s>> {
    terminated(digit1, opt(one_of(['l', 'L'])))
        .map(|digits: &str| match digits.strip_prefix('0') {
            Some(octal) if !octal.is_empty() => Written::Integer { digits: octal, radix: 8 },
            Some(_) | None => Written::Integer { digits, radix: 10 },
        })
        .parse_next(input)
}

/// Digits with a point, an exponent or a suffix, at least one of them.
fn approximate<'s>(input: &mut Input<'s>) -> Lexed<Written<'s>> {
    let mantissa = alt(((digit1, opt(('.', digit0))).take(), preceded('.', digit1).take()));
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let digits = (mantissa, opt(exponent)).take();
    let suffix = opt(one_of(['f', 'F', 'd', 'D']));
    (digits, suffix)
        .verify_map(|(digits, suffix): (&str, Option<char>)| {
            let approximate = suffix.is_some() || digits.contains(['.', 'e', 'E']);
            approximate.then_some(Written::Float { digits, single: matches!(suffix, Some('f' | 'F')) })
        })
        .parse_next(input)
}

fn keyword(word: &str) -> Option<Kind<'static>> {
    KEYWORDS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word)).map(|(_, kind)| *kind)
}

/// Java's letters, `_`, `$` and the other currency signs.
fn begins_identifier(character: char) -> bool {
    matches!(character, '_' | '$' | '\u{a2}'..='\u{a5}' | '\u{20a0}'..='\u{20cf}')
        || character.is_alphabetic()
}

fn continues_identifier(character: char) -> bool {
    begins_identifier(character) || character.is_numeric()
}
