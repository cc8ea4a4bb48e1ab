//! What a selector says about a message: tables of the language. `model_tests` holds it against a naive reading.

use std::cell::Cell;

use super::limits::{FIELDS_MAX, LIKE_SEARCH_MAX, LIKES_MAX, NESTING_MAX, NODES_MAX, SELECTOR_SIZE_MAX};
use super::*;

const T: Truth = Truth::True;
const F: Truth = Truth::False;
const U: Truth = Truth::Unknown;

/// A message that answers alike for every test; a name it does not know is null.
struct Sample;

impl Fields for Sample {
    fn field(&self, field: &Field) -> Value<'_> {
        match field.name() {
            "i" => Value::Int(5),
            "j" => Value::Int(-3),
            "zero" => Value::Int(0),
            "max" => Value::Int(i64::MAX),
            "min" => Value::Int(i64::MIN),
            "u" => Value::Unsigned(5),
            "umax" => Value::Unsigned(u64::MAX),
            "f" => Value::Float(2.5),
            "whole" => Value::Float(5.0),
            "single" => Value::Float(f64::from(1.1_f32)),
            "nan" => Value::Float(f64::NAN),
            "inf" => Value::Float(f64::INFINITY),
            "s" => Value::String("abc"),
            "t" => Value::String("abd"),
            "empty" => Value::String(""),
            "quote" => Value::String("it's"),
            "five" => Value::String("5"),
            "yes" => Value::Bool(true),
            "no" => Value::Bool(false),
            "blob" => Value::Opaque,
            "my-property" | "a.b" | "say \"hi\"" | "AND" => Value::Int(1),
            "größe" | "$cash" | "_x9" => Value::Int(1),
            "JMSDeliveryMode" => Value::String("PERSISTENT"),
            "JMSPriority" => Value::Int(4),
            "JMSType" => Value::String("car"),
            "JMSXGroupSeq" => Value::Int(7),
            "JMSXDeliveryCount" => Value::Int(2),
            "JMSRedelivered" => Value::Bool(true),
            _ => Value::Null,
        }
    }
}

fn check(table: &[(&str, Truth)]) {
    for (selector, expected) in table {
        let filter = Filter::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
        assert_eq!(filter.evaluate(&Sample), *expected, "{selector}");
        assert_eq!(filter.matches(&Sample), *expected == T, "{selector}");
        let printed = filter.to_string();
        assert_eq!(Filter::parse(&printed).as_ref(), Ok(&filter), "{selector} printed as {printed}");
    }
}

// JMS 2.0 §3.8.1.1: identifiers are case-sensitive, keywords are not.
#[test]
fn identifiers() {
    check(&[
        ("i = 5", T),
        ("I = 5", U),
        ("i=5 aNd j=-3", T),
        ("\n\ti\r\n=\x0c5", T),
        ("größe = 1", T),
        ("$cash = 1", T),
        ("_x9 = 1", T),
        ("android IS NULL", T),
        ("nothing IS NULL", T),
        ("JMSDeliveryMode = 'PERSISTENT'", T),
        ("JMSPriority >= 4", T),
        ("JMSType = 'car' AND JMSXGroupSeq = 7", T),
        ("JMSXDeliveryCount = 2 AND JMSRedelivered", T),
        ("JMSMessageID IS NULL", T),
        ("JMS_vendor IS NULL", T),
        ("jmspriority = 4", U),
    ]);
}

// Beyond JMS: any name in double quotes.
#[test]
fn identifiers_in_quotes() {
    check(&[
        ("\"my-property\" = 1", T),
        ("\"a.b\"=1", T),
        ("\"say \"\"hi\"\"\" = 1", T),
        ("\"AND\" = 1", T),
        ("\"i\" = 5", T),
        ("\"JMSPriority\" = 4", T),
        ("\"no such name\" IS NULL", T),
        ("\"it's\" IS NULL", T),
    ]);
    assert_eq!(Filter::parse("\"i\" = 5"), Filter::parse("i = 5"));
}

// §3.8.1.1: strings in single quotes, a quote is doubled.
#[test]
fn string_literals() {
    check(&[
        ("s = 'abc'", T),
        ("s = 'ABC'", F),
        ("quote = 'it''s'", T),
        ("empty = ''", T),
        ("s = ''''", F),
        ("s <> ''", T),
        ("s = 'a\"c'", F),
        ("s <> 'größe € 😀'", T),
    ]);
}

// §3.8.1.1: exact literals have Java's integer syntax and the range of a long.
#[test]
fn exact_literals() {
    check(&[
        ("i = +5", T),
        ("j = -3", T),
        ("i = 5l AND i = 5L", T),
        ("i = 0x5 AND i = 0X5L", T),
        ("i + 10 = 0xf", T),
        ("i + 3 = 010", T),
        ("zero = 00 AND zero = 0", T),
        ("max = 9223372036854775807", T),
        ("min = -9223372036854775808", T),
        ("min = - 9223372036854775808", T),
        ("max = 0x7fffffffffffffff", T),
        ("umax > 9223372036854775807", T),
    ]);
}

// §3.8.1.1: approximate literals have Java's floating-point syntax and the range of a double.
#[test]
fn approximate_literals() {
    check(&[
        ("f = 2.5", T),
        ("f = 25e-1 AND f = 2.5E0 AND f = .25e+1", T),
        ("i = 5. AND i = 5.0 AND i = 5d AND i = 5F AND i = 5.D", T),
        ("i < 7E3", T),
        ("j > -57.9E2 AND j > -95.7", T),
        ("f < +6.2", T),
        ("single = 1.1f", T),
        ("single = 1.1", F),
        ("single > 1.1", T),
        ("f > 4.9e-324", T),
        ("f < 1.7976931348623157e308", T),
        ("zero = -0.0 AND zero = 0e0", T),
    ]);
}

#[test]
fn boolean_literals_and_names_alone() {
    check(&[
        ("TRUE", T),
        ("false", F),
        ("yes", T),
        ("no", F),
        ("absent", U),
        ("NOT no", T),
        ("yes = TRUE", T),
        ("yes <> TRUE", F),
        ("no = FALSE", T),
        ("yes <> no", T),
        ("TRUE = yes", T),
        // A name alone is short for `name = TRUE`.
        ("s", F),
        ("i", F),
        ("blob", F),
        ("NOT s", T),
        ("NOT absent", U),
        ("(yes)", T),
    ]);
}

// §3.8.1.2: three-valued logic.
#[test]
fn logic() {
    let values = [("yes", T), ("no", F), ("absent", U)];
    for (left, left_truth) in values {
        for (right, right_truth) in values {
            let both = match (left_truth, right_truth) {
                (T, T) => T,
                (F, _) | (_, F) => F,
                (U, T | U) | (T, U) => U,
            };
            let either = match (left_truth, right_truth) {
                (F, F) => F,
                (T, _) | (_, T) => T,
                (U, F | U) | (F, U) => U,
            };
            check(&[
                (&format!("{left} AND {right}"), both),
                (&format!("{left} OR {right}"), either),
                (&format!("NOT ({left} AND {right})"), !both),
                (&format!("NOT ({left} OR {right})"), !either),
            ]);
        }
    }
}

#[test]
fn precedence() {
    check(&[
        ("yes OR no AND no", T),
        ("(yes OR no) AND no", F),
        ("NOT no AND no", F),
        ("NOT (no AND no)", T),
        ("NOT i = 6", T),
        ("NOT NOT yes", T),
        ("i + 2 * 3 = 11", T),
        ("(i + 2) * 3 = 21", T),
        ("10 - 3 - 2 = i", T),
        ("10 - (3 - 2) = 9", T),
        ("100 / 10 / 2 = i", T),
        ("100 / (10 / 2) = 20", T),
        ("7 - 2 * 1 = i AND i * -1 = -5", T),
        ("- i = -5", T),
        ("- (- i) = i", T),
        ("- - i = i", T),
        ("+ i = 5", T),
        ("i = 5 OR absent = 1 AND absent = 2", T),
        ("yes AND (no OR (yes AND (no OR yes)))", T),
    ]);
}

// §3.8.1.1: only like types are compared; exact and approximate numbers are like.
#[test]
fn comparisons() {
    check(&[
        ("i = 5", T),
        ("i <> 5", F),
        ("i < 6 AND i <= 5 AND i >= 5 AND i > 4", T),
        ("i < 5", F),
        ("i > 5", F),
        ("5 = i", T),
        ("6 > i", T),
        ("u = i AND i = u", T),
        ("whole = i AND i = whole AND u = whole", T),
        ("f > 2 AND f < 3 AND f <> 2", T),
        ("absent = 5", U),
        ("absent <> 5", U),
        ("5 < absent", U),
        ("absent = absent", U),
        ("s = s AND s <> t", T),
        ("(i > 4) = TRUE", T),
        ("(i > 4) <> (j > 4)", T),
        ("(absent > 4) = TRUE", U),
        ("(i = 5) = yes", T),
    ]);
}

#[test]
fn s58_unlike_types_compare_as_false() {
    check(&[
        ("s = 1", F),
        ("s <> 1", F),
        ("NOT (s = 1)", T),
        ("NOT (s <> 1)", T),
        ("i = '5'", F),
        ("i <> '5'", F),
        ("five = 5", F),
        ("five < 6", F),
        ("yes = 'true'", F),
        ("yes <> 1", F),
        ("yes = 1", F),
        ("'a' = 1", F),
        ("blob = 'abc'", F),
        ("blob <> 'abc'", F),
        ("blob = blob", F),
        ("blob IS NULL", F),
        // Strings and booleans that only the message knows to be such have no order.
        ("s < t", F),
        ("s <= s", F),
        ("NOT (s < t)", T),
        ("no < yes", F),
        // A comparison with null stays unknown, whatever the other side is.
        ("NOT (absent = 's')", U),
        ("nan = nan", F),
        ("nan <> nan", F),
        ("nan < 1", F),
        ("NOT (nan < 1)", T),
        ("inf > max", T),
        ("inf = inf", T),
    ]);
}

#[test]
fn s58_failed_arithmetic_is_unknown() {
    check(&[
        ("s + 1 = 2", U),
        ("s + 1 <> 2", U),
        ("NOT (s + 1 = 2)", U),
        ("-s = 1", U),
        ("+s = 'abc'", U),
        ("five * 1 = 5", U),
        ("yes + 1 = 2", U),
        ("blob - 1 = 2", U),
        ("absent + 1 = 2", U),
        ("1 + absent = 2", U),
        ("i / zero = 1", U),
        ("i / 0 <> 1", U),
        ("f / 0 = 1", U),
        ("f / 0.0 > 1", U),
        ("0.0 / 0 = 0", U),
        ("max + 1 > 0", U),
        ("min - 1 < 0", U),
        ("max * 2 > 0", U),
        ("min / -1 > 0", U),
        ("-min > 0", U),
        ("-(-9223372036854775808) > 0", U),
        ("1e308 * 10 > 0", U),
        ("inf + 1 > 0", U),
        ("-nan = 1", U),
        ("umax + 0 > 0", U),
        ("umax - umax = 0", T),
        ("i / 0 = 1 OR yes", T),
        ("i / 0 = 1 AND no", F),
    ]);
}

#[test]
fn arithmetic_promotes_as_in_java() {
    check(&[
        ("i / 2 = 2", T),
        ("-i / 2 = -2", T),
        ("i / 2. = 2.5", T),
        ("i / 2 * 2 = 4", T),
        ("i * 1.0 / 2 = 2.5", T),
        ("f + i = 7.5", T),
        ("f * 2 = i", T),
        ("max + 0 = max", T),
        ("max - 1 + 1 = 9223372036854775807", T),
        // An approximate operand makes the sum approximate, and so rounds it.
        ("max + 0.0 = 9223372036854775807", F),
        ("max + 0.0 = 9223372036854775808.0", T),
        ("u - 6 = -1", T),
        ("9007199254740993 + 0 = 9007199254740993", T),
    ]);
}

#[test]
fn numbers_compare_without_rounding() {
    check(&[
        ("9007199254740993 = 9007199254740992.0", F),
        ("9007199254740993 > 9007199254740992.0", T),
        ("9223372036854775807 = 9223372036854775808.0", F),
        ("9223372036854775807 < 9223372036854775808.0", T),
        ("max < 9.3e18", T),
        ("min = -9223372036854775808.0", T),
        ("min > -9.3e18", T),
        ("umax < 18446744073709551616.0", T),
        ("umax = 18446744073709551616.0", F),
        ("umax > 1.8446744073709550e19", T),
        ("umax > max AND umax > j", T),
        ("i < 5.000000000000001 AND i > 4.999999999999999", T),
        ("j > -3.5 AND j < -2.5", T),
    ]);
}

// §3.8.1.1: `NOT BETWEEN` is `<` or `>`.
#[test]
fn between() {
    check(&[
        ("i BETWEEN 5 AND 5", T),
        ("i BETWEEN 1 AND 4", F),
        ("i BETWEEN 6 AND 9", F),
        ("i NOT BETWEEN 1 AND 4", T),
        ("i NOT BETWEEN 6 AND 9", T),
        ("i NOT BETWEEN 1 AND 9", F),
        ("i BETWEEN 4.5 AND 5.5", T),
        ("i BETWEEN j AND max", T),
        ("i + 1 BETWEEN 2 * 3 AND 6", T),
        ("6 BETWEEN i AND 7", T),
        ("i BETWEEN 1 AND 9 AND yes", T),
        ("NOT i BETWEEN 1 AND 9", F),
        ("absent BETWEEN 1 AND 9", U),
        ("absent NOT BETWEEN 1 AND 9", U),
        ("i BETWEEN absent AND 4", F),
        ("i BETWEEN absent AND 9", U),
        ("i BETWEEN 9 AND absent", F),
        ("i BETWEEN 1 AND absent", U),
        ("i NOT BETWEEN absent AND 4", T),
        ("i NOT BETWEEN absent AND 9", U),
        ("i NOT BETWEEN 9 AND absent", T),
        ("i NOT BETWEEN 1 AND absent", U),
        ("s BETWEEN 1 AND 9", F),
        ("s NOT BETWEEN 1 AND 9", F),
        ("i BETWEEN s AND 9", F),
    ]);
}

// §3.8.1.1: `NOT IN` is `NOT (… = … OR …)`; both are unknown over null.
#[test]
fn lists() {
    check(&[
        ("s IN ('abc')", T),
        ("s IN ('x', 'abc', 'y')", T),
        ("s IN ('x', 'y')", F),
        ("s NOT IN ('x', 'y')", T),
        ("s NOT IN ('x', 'abc')", F),
        ("NOT s IN ('x')", T),
        ("absent IN ('x')", U),
        ("absent NOT IN ('x')", U),
        ("i IN ('5')", F),
        ("i NOT IN ('5')", T),
        ("i IN (4, 5.0, -6)", T),
        ("j IN (+3, -3)", T),
        ("min IN (-9223372036854775808)", T),
        ("i IN ('x', TRUE, 5)", T),
        ("yes IN (TRUE, FALSE)", T),
        ("(s) IN ('abc')", T),
    ]);
}

// §3.8.1.1: `_` is one character, `%` any number of them.
#[test]
fn likes() {
    check(&[
        ("s LIKE 'abc'", T),
        ("s LIKE 'a%'", T),
        ("s LIKE '%c'", T),
        ("s LIKE 'a_c'", T),
        ("s LIKE '_b_'", T),
        ("s LIKE '%'", T),
        ("s LIKE 'ABC'", F),
        ("s LIKE 'ab'", F),
        ("s LIKE '____'", F),
        ("s NOT LIKE 'x%'", T),
        ("s NOT LIKE 'a%'", F),
        ("NOT s LIKE 'a%'", F),
        ("empty LIKE ''", T),
        ("empty LIKE '%'", T),
        ("empty LIKE '_'", F),
        ("quote LIKE 'it''s'", T),
        ("absent LIKE '%'", U),
        ("absent NOT LIKE '%'", U),
        ("i LIKE '5'", F),
        ("i NOT LIKE '5'", T),
        ("s LIKE 'a\\_c' ESCAPE '\\'", F),
        ("s LIKE 'axbxc' ESCAPE 'x'", T),
        ("s LIKE 'a''bc' ESCAPE ''''", T),
        ("s LIKE '!abc' ESCAPE '!'", T),
    ]);
}

// §3.8.1.1: whether there is a value.
#[test]
fn nulls() {
    check(&[
        ("absent IS NULL", T),
        ("absent IS NOT NULL", F),
        ("i IS NULL", F),
        ("i IS NOT NULL", T),
        ("NOT absent IS NULL", F),
        ("(i) IS NULL", F),
        ("JMSCorrelationID IS NULL AND JMSType IS NOT NULL", T),
    ]);
}

// The examples of §3.8.1.1.
#[test]
fn examples_of_the_specification() {
    check(&[
        ("JMSType = 'car' AND color = 'blue' AND weight > 2500", U),
        ("Country IN ('UK', 'US', 'France')", U),
        ("phone LIKE '12%3'", U),
        ("i NOT BETWEEN 15 AND 19", T),
        ("t LIKE 'a_d' AND s NOT LIKE 'a_d'", T),
    ]);
}

fn refused(table: &[(&str, SelectorFault, usize, &str)]) {
    for (selector, fault, position, expected) in table {
        match Filter::parse(selector) {
            Ok(filter) => panic!("{selector} was read as {filter}"),
            Err(error) => {
                let shown: String = selector.chars().take(80).collect();
                assert_eq!((error.fault, error.position), (*fault, *position), "{shown}: {error}");
                assert_eq!(error.expected, *expected, "{shown}");
            }
        }
    }
}

const OPERAND: &str = "a name, a literal or (";
const AFTER: &str = "an operator or the end";
const NUMBER: &str = "a number, and a space or an operator after it";

#[test]
fn s58_syntax_errors_name_the_place() {
    use SelectorFault::Syntax;
    refused(&[
        ("a.b = 1", Syntax, 0, "double quotes around a name with dots, as in \"a.b\" = 1"),
        ("c = 2 AND a.b = 1", Syntax, 10, "double quotes around a name with dots, as in \"a.b\" = 1"),
        ("i != 5", Syntax, 2, "<> for what is not equal"),
        ("i % 2 = 1", Syntax, 2, "+, -, * or /: there is no remainder"),
        ("", Syntax, 0, OPERAND),
        ("  ", Syntax, 2, OPERAND),
        ("i =", Syntax, 3, OPERAND),
        ("i = ", Syntax, 4, OPERAND),
        ("= 5", Syntax, 0, OPERAND),
        ("i = 5 5", Syntax, 6, AFTER),
        ("i = 5 AND", Syntax, 9, OPERAND),
        ("i = 5 AND OR j = 3", Syntax, 10, OPERAND),
        ("i = j = 1", Syntax, 6, AFTER),
        ("i == 5", Syntax, 3, OPERAND),
        ("i = 5;", Syntax, 5, "a name, a literal or an operator"),
        ("i & 5", Syntax, 2, "a name, a literal or an operator"),
        ("größe = €5 ?", Syntax, 15, "a name, a literal or an operator"),
        ("(i = 5", Syntax, 6, "an operator or )"),
        ("(i = 5 j", Syntax, 7, "an operator or )"),
        ("i = 5)", Syntax, 5, AFTER),
        ("()", Syntax, 1, OPERAND),
        ("NOT", Syntax, 3, OPERAND),
        ("i NOT 5", Syntax, 6, "BETWEEN, IN or LIKE"),
        ("i NOT IS NULL", Syntax, 6, "BETWEEN, IN or LIKE"),
        ("i = NOT yes", Syntax, 4, OPERAND),
        ("i IS 5", Syntax, 5, "NULL or NOT NULL"),
        ("i IS NOT 5", Syntax, 9, "NULL"),
        ("5 IS NULL", Syntax, 0, "a name on the left side"),
        ("i = NULL", Syntax, 4, OPERAND),
        ("i BETWEEN 1", Syntax, 11, "AND between the bounds"),
        ("i BETWEEN 1 OR 2", Syntax, 12, "AND between the bounds"),
        ("i BETWEEN 1 AND", Syntax, 15, OPERAND),
        ("s IN 'a'", Syntax, 5, "( and a list of literals"),
        ("s IN ()", Syntax, 6, OPERAND),
        ("s IN ('a',)", Syntax, 10, OPERAND),
        ("s IN ('a' 'b')", Syntax, 10, "a comma or )"),
        ("s IN ('a', t)", Syntax, 11, "a literal"),
        ("'a' IN ('a')", Syntax, 0, "a name on the left side"),
        ("s + 1 IN ('a')", Syntax, 0, "a name on the left side"),
        ("s LIKE", Syntax, 6, "a pattern in single quotes"),
        ("s LIKE t", Syntax, 7, "a pattern in single quotes"),
        ("s LIKE 5", Syntax, 7, "a pattern in single quotes"),
        ("s LIKE 'a' ESCAPE", Syntax, 17, "one character in single quotes"),
        ("s LIKE 'a' ESCAPE ''", Syntax, 18, "one character in single quotes"),
        ("s LIKE 'a' ESCAPE 'xy'", Syntax, 18, "one character in single quotes"),
        ("s LIKE 'a!' ESCAPE '!'", Syntax, 7, "a character after the escape character"),
        ("s ESCAPE 'x'", Syntax, 2, AFTER),
        ("s = 'abc", Syntax, 4, "the closing ' of this string"),
        ("s = 'abc''", Syntax, 4, "the closing ' of this string"),
        ("\"s = 5", Syntax, 0, "the closing \" of this name"),
        ("\"\" = 5", Syntax, 0, "a name between the quotes"),
        ("i = 5 -- five", Syntax, 6, "no comment (signs in a row need a space between them)"),
        ("i = 5 /* five */", Syntax, 6, "no comment (signs in a row need a space between them)"),
        ("i = 4--1", Syntax, 5, "no comment (signs in a row need a space between them)"),
        (
            "my-property = 1 AND a.b = 1",
            Syntax,
            20,
            "double quotes around a name with dots, as in \"a.b\" = 1",
        ),
        ("i + = 1", Syntax, 4, OPERAND),
        ("i = 5 * * 2", Syntax, 8, OPERAND),
    ]);
}

#[test]
fn s58_numbers_that_are_none() {
    use SelectorFault::{Range, Syntax};
    let integer = "an integer between -9223372036854775808 and 9223372036854775807";
    let float = "a number that a float of this size can hold";
    refused(&[
        ("i = 5x", Syntax, 4, NUMBER),
        ("i = 5and yes", Syntax, 4, NUMBER),
        ("i = 1_000", Syntax, 4, NUMBER),
        ("i = 1.2.3", Syntax, 4, NUMBER),
        ("i = 1e", Syntax, 4, NUMBER),
        ("i = 1e+", Syntax, 4, NUMBER),
        ("i = .", Syntax, 4, NUMBER),
        ("i = .e5", Syntax, 4, NUMBER),
        ("i = 0x", Syntax, 4, NUMBER),
        ("i = 0xg", Syntax, 4, NUMBER),
        ("i = 0x1.8", Syntax, 4, NUMBER),
        ("i = 5lf", Syntax, 4, NUMBER),
        ("i = 089", Syntax, 4, "octal digits after a leading 0"),
        ("i = 9223372036854775808", Range, 4, integer),
        ("i = -9223372036854775809", Range, 5, integer),
        ("i = -(9223372036854775808)", Range, 6, integer),
        ("i = 1 - 9223372036854775808", Range, 8, integer),
        ("i = 99999999999999999999999", Range, 4, integer),
        ("i = 0x8000000000000000", Range, 4, integer),
        ("i = -0x8000000000000000", Range, 5, integer),
        ("i = 01000000000000000000000", Range, 4, integer),
        ("i = 1e309", Range, 4, float),
        ("i = 1e39f", Range, 4, float),
        ("i = 1e-400", Range, 4, float),
    ]);
}

#[test]
fn s58_type_errors_that_the_text_shows() {
    use SelectorFault::Type;
    refused(&[
        ("5", Type, 0, "a condition"),
        ("'true'", Type, 0, "a condition"),
        ("i + 1", Type, 0, "a condition"),
        ("yes AND 5", Type, 8, "a condition"),
        ("5 OR yes", Type, 0, "a condition"),
        ("yes AND (i + 1)", Type, 8, "a condition"),
        ("NOT 'a'", Type, 4, "a condition"),
        ("NOT -i", Type, 4, "a condition"),
        ("i + 'a' = 1", Type, 4, "a number"),
        ("'a' * 2 = 1", Type, 0, "a number"),
        ("-'a' = 1", Type, 1, "a number"),
        ("-TRUE = 1", Type, 1, "a number"),
        ("i + (j = 1) = 2", Type, 4, "a number"),
        ("s < 'b'", Type, 4, "a number"),
        ("'b' >= s", Type, 0, "a number"),
        ("yes > FALSE", Type, 6, "a number"),
        ("s BETWEEN 'a' AND 'b'", Type, 10, "a number"),
        ("i BETWEEN 1 AND TRUE", Type, 16, "a number"),
        ("(i = 5) BETWEEN 1 AND 2", Type, 0, "a number"),
    ]);
}

#[test]
fn s58_limits() {
    use SelectorFault::Limit;
    let size = format!("at most {SELECTOR_SIZE_MAX} bytes");
    refused(&[
        (&format!("yes{}", " ".repeat(SELECTOR_SIZE_MAX)), Limit, SELECTOR_SIZE_MAX, &size),
        (&"(".repeat(100_000), Limit, SELECTOR_SIZE_MAX, &size),
    ]);
    check(&[(&format!("yes{}", " ".repeat(SELECTOR_SIZE_MAX - 3)), T)]);

    let nodes = format!("at most {NODES_MAX} operators, names and literals");
    let sum = |count| format!("i={}", vec!["i"; count].join("+"));
    // The sum and the comparison are nodes, too.
    check(&[(&sum(NODES_MAX - 3), F), (&vec!["i=1"; 1_000].join(" OR "), F)]);
    refused(&[(&sum(NODES_MAX), Limit, 2 * NODES_MAX + 1, &nodes)]);
    let list = |count| format!("i IN ({})", vec!["1"; count].join(","));
    check(&[(&list(NODES_MAX - 2), F)]);
    refused(&[(&list(NODES_MAX), Limit, 5 + 2 * NODES_MAX, &nodes)]);

    let names = |count: usize| (0..count).map(|name| format!("n{name}")).collect::<Vec<_>>().join(" OR ");
    check(&[(&names(FIELDS_MAX), U)]);
    let error = Filter::parse(&names(FIELDS_MAX + 1)).expect_err("too many");
    assert_eq!((error.fault, error.expected), (Limit, &*format!("at most {FIELDS_MAX} different names")));

    let likes = |count| vec!["s LIKE 'x'"; count].join(" OR ");
    check(&[(&likes(LIKES_MAX), F)]);
    refused(&[(&likes(LIKES_MAX + 1), Limit, 14 * LIKES_MAX + 7, &format!("at most {LIKES_MAX} LIKEs"))]);
    let search = format!("at most {LIKE_SEARCH_MAX} characters with a _ between two %");
    check(&[(&format!("s LIKE '%a{}b%'", "_".repeat(LIKE_SEARCH_MAX - 2)), F)]);
    refused(&[(&format!("s LIKE '%a{}b%'", "_".repeat(LIKE_SEARCH_MAX - 1)), Limit, 7, &search)]);
}

#[test]
fn s58_nesting() {
    use SelectorFault::Limit;
    let deep = format!("at most {NESTING_MAX} levels of parentheses, NOTs and signs");
    let nested = |count| format!("{}yes{} = TRUE", "(".repeat(count), ")".repeat(count));
    let position = NESTING_MAX + 1;
    refused(&[
        (&nested(position), Limit, position, &deep),
        (&nested(8_000), Limit, position, &deep),
        (&"(".repeat(SELECTOR_SIZE_MAX), Limit, position, &deep),
        (&"NOT ".repeat(4_000), Limit, 4 * position, &deep),
        (&format!("i = {}1", "- ".repeat(8_000)), Limit, 4 + 2 * position, &deep),
        (&format!("i = {}1", "-(".repeat(8_000)), Limit, 4 + position, &deep),
        (&format!("i IN ({}1", "+ ".repeat(8_000)), Limit, 6 + 2 * position, &deep),
    ]);
    check(&[
        (&nested(NESTING_MAX), T),
        (&format!("{}yes", "NOT ".repeat(NESTING_MAX)), T),
        (&format!("{}i = 5", "- ".repeat(NESTING_MAX)), T),
        (&format!("{}yes{}", "no OR (".repeat(NESTING_MAX), ")".repeat(NESTING_MAX)), T),
        (&format!("5 = {}i{}", "0 + 1 * (".repeat(NESTING_MAX), ")".repeat(NESTING_MAX)), T),
        // One beside the other is not one in the other.
        (&vec!["(NOT (- i > 0))"; 100].join(" AND "), T),
    ]);
}

#[test]
fn equal_filters() {
    let same = |left: &str, right: &str| Filter::parse(left) == Filter::parse(right);
    assert!(same("i = 5 and (j = 1)", "i=5 AND j=1"));
    assert!(same("(a AND b) AND c", "a AND (b AND c)"));
    assert!(!same("a AND b", "b AND a"));
    assert!(!same("i = 5", "i = 5.0"));
    assert!(!same("i = 5", "I = 5"));
}

#[test]
fn prints() {
    let prints = |text: &str, expected: &str| {
        assert_eq!(Filter::parse(text).map(|filter| filter.to_string()).as_deref(), Ok(expected));
    };
    prints("a=1 or(b=2 and not(c))", "a = 1 OR b = 2 AND NOT c");
    prints("(a or b) and c", "(a OR b) AND c");
    prints("((x+1))*2<>-(y)", "(x + 1) * 2 <> -y");
    prints("x - (1 - 2) = - (- x)", "x - (1 - 2) = - -x");
    prints("- (-9223372036854775808) = x", "- -9223372036854775808 = x");
    prints("x not in('it''s',-5,1e3,true)", "x NOT IN ('it''s', -5, 1000.0, TRUE)");
    prints("x like'a%'escape'!'", "x LIKE 'a%' ESCAPE '!'");
    prints("\"a-b\" is not null", "\"a-b\" IS NOT NULL");
    prints("0x10 = x", "16 = x");
    prints("NOT (a = 1)", "NOT a = 1");
    prints("(a = 1) = TRUE", "(a = 1) = TRUE");
}

/// Counts the reads of each of three fields.
#[derive(Default)]
struct Counting([Cell<u32>; 3]);

impl Fields for Counting {
    fn field(&self, field: &Field) -> Value<'_> {
        let index = ["a", "b", "c"].iter().position(|name| *name == field.name());
        if let Some(reads) = index.and_then(|index| self.0.get(index)) {
            reads.set(reads.get() + 1);
        }
        if field.name() == "a" { Value::Null } else { Value::Int(1) }
    }
}

#[test]
fn fields_are_read_when_needed_and_once() {
    for (selector, reads) in [
        ("b = 1 OR c = 1", [0, 1, 0]),
        ("b = 2 AND c = 1", [0, 1, 0]),
        ("a = 1 AND b = 2 AND c = 1", [1, 1, 0]),
        ("a = b", [1, 0, 0]),
        ("a + b = c", [1, 0, 0]),
        ("a BETWEEN b AND c", [1, 0, 0]),
        ("b BETWEEN 2 AND c", [0, 1, 0]),
        ("b > 0 AND b < 2 AND b <> 3 AND b IN (1, 2, 3) AND b + b = 2", [0, 1, 0]),
        ("FALSE AND a = b", [0, 0, 0]),
    ] {
        let message = Counting::default();
        Filter::parse(selector).expect("valid").evaluate(&message);
        assert_eq!(message.0.each_ref().map(Cell::get), reads, "{selector}");
    }
}
