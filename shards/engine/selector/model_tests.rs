//! Random selectors, whose meaning a naive evaluator knows before they are written down.
//!
//! A tree is made up, written as text (with as few parentheses as the grammar allows, or with more), parsed and evaluated; the naive
//! evaluator walks the tree itself. It does without short cuts, and its numbers are small enough that `f64` is exact.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Number {
    Int(i32),
    Quarters(i32),
    Field(&'static str),
    Negate(Box<Number>),
    Binary(char, Box<Number>, Box<Number>),
    Parentheses(Box<Number>),
}

#[derive(Clone, Debug)]
enum Operand {
    Number(Number),
    String(&'static str),
    Bool(bool),
}

#[derive(Clone, Debug)]
enum Condition {
    Bool(bool),
    Field(&'static str),
    Compare(&'static str, Operand, Operand),
    Order(&'static str, Number, Number),
    Between(bool, Number, Number, Number),
    In(bool, &'static str, Vec<Operand>),
    Like(bool, &'static str, &'static str),
    IsNull(bool, &'static str),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Parentheses(Box<Condition>),
}

#[derive(Clone, Debug, PartialEq)]
enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(&'static str),
    Opaque,
}

#[derive(Clone, Debug)]
struct Message([Plain; NAMES.len()]);

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e-e", "JMSType"];
const TEXTS: [&str; 5] = ["", "x", "xy", "it's", "50%"];

impl Message {
    fn plain(&self, name: &str) -> Plain {
        let index = NAMES.iter().position(|known| *known == name).expect("a name of the model");
        self.0[index].clone()
    }
}

impl Fields for Message {
    fn field(&self, field: &Field) -> Value<'_> {
        match self.plain(field.name()) {
            Plain::Null => Value::Null,
            Plain::Bool(value) => Value::Bool(value),
            // Both types of integer, by a rule that the evaluator cannot know.
            Plain::Int(value) if value % 3 == 0 && value >= 0 => Value::Unsigned(value as u64),
            Plain::Int(value) => Value::Int(value),
            Plain::Float(value) => Value::Float(value),
            Plain::String(value) => Value::String(value),
            Plain::Opaque => Value::Opaque,
        }
    }
}

fn name(name: &str) -> String {
    if name.contains('-') { format!("\"{name}\"") } else { name.to_owned() }
}

fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

impl Number {
    fn write(&self, least: u8) -> String {
        let (own, written) = match self {
            Number::Int(value) => (if *value < 0 { 2 } else { 3 }, value.to_string()),
            Number::Quarters(value) => {
                (if *value < 0 { 2 } else { 3 }, format!("{:?}", f64::from(*value) / 4.0))
            }
            Number::Field(field) => (3, name(field)),
            Number::Negate(operand) => (2, format!("- {}", operand.write(2))),
            Number::Binary(operator @ ('*' | '/'), left, right) => {
                (1, format!("{}{operator}{}", left.write(1), right.write(2)))
            }
            Number::Binary(operator, left, right) => {
                (0, format!("{} {operator} {}", left.write(0), right.write(1)))
            }
            Number::Parentheses(inner) => (3, format!("({})", inner.write(0))),
        };
        if own < least { format!("({written})") } else { written }
    }

    fn value(&self, message: &Message) -> Plain {
        match self {
            Number::Int(value) => Plain::Int((*value).into()),
            Number::Quarters(value) => Plain::Float(f64::from(*value) / 4.0),
            Number::Field(field) => message.plain(field),
            Number::Parentheses(inner) => inner.value(message),
            Number::Negate(operand) => match operand.value(message) {
                Plain::Int(value) => Plain::Int(-value),
                Plain::Float(value) => Plain::Float(-value),
                _ => Plain::Null,
            },
            Number::Binary(operator, left, right) => match (left.value(message), right.value(message)) {
                (Plain::Int(left), Plain::Int(right)) => match operator {
                    '+' => Plain::Int(left + right),
                    '-' => Plain::Int(left - right),
                    '*' => Plain::Int(left * right),
                    _ if right == 0 => Plain::Null,
                    _ => Plain::Int(left / right),
                },
                (left, right) => match (left.float(), right.float()) {
                    (Some(left), Some(right)) => match operator {
                        '+' => Plain::Float(left + right),
                        '-' => Plain::Float(left - right),
                        '*' => Plain::Float(left * right),
                        _ if right == 0.0 => Plain::Null,
                        _ => Plain::Float(left / right),
                    },
                    _ => Plain::Null,
                },
            },
        }
    }
}

impl Plain {
    fn float(&self) -> Option<f64> {
        match self {
            Plain::Int(value) => Some(*value as f64),
            Plain::Float(value) => Some(*value),
            _ => None,
        }
    }
}

impl Operand {
    fn write(&self) -> String {
        match self {
            Operand::Number(number) => number.write(0),
            Operand::String(value) => text(value),
            Operand::Bool(value) => value.to_string(),
        }
    }

    fn value(&self, message: &Message) -> Plain {
        match self {
            Operand::Number(number) => number.value(message),
            Operand::String(value) => Plain::String(value),
            Operand::Bool(value) => Plain::Bool(*value),
        }
    }
}

fn relate(relation: &str, left: Plain, right: Plain) -> Truth {
    if left == Plain::Null || right == Plain::Null {
        return Truth::Unknown;
    }
    let ordering = match (&left, &right) {
        (Plain::String(left), Plain::String(right)) => match relation {
            "=" => return (left == right).into(),
            "<>" => return (left != right).into(),
            _ => None,
        },
        (Plain::Bool(left), Plain::Bool(right)) => match relation {
            "=" => return (left == right).into(),
            "<>" => return (left != right).into(),
            _ => None,
        },
        _ => left.float().zip(right.float()).and_then(|(left, right)| left.partial_cmp(&right)),
    };
    ordering
        .is_some_and(|ordering| match relation {
            "=" => ordering.is_eq(),
            "<>" => ordering.is_ne(),
            "<" => ordering.is_lt(),
            "<=" => ordering.is_le(),
            ">" => ordering.is_gt(),
            _ => ordering.is_ge(),
        })
        .into()
}

fn and(left: Truth, right: Truth) -> Truth {
    [left, right].into_iter().min_by_key(|truth| rank(*truth)).expect("two")
}

fn or(left: Truth, right: Truth) -> Truth {
    [left, right].into_iter().max_by_key(|truth| rank(*truth)).expect("two")
}

fn rank(truth: Truth) -> u8 {
    match truth {
        Truth::False => 0,
        Truth::Unknown => 1,
        Truth::True => 2,
    }
}

fn like(pattern: &str, value: &str) -> bool {
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('%') => {
            value.char_indices().any(|(at, _)| like(&pattern[1..], &value[at..])) || like(&pattern[1..], "")
        }
        Some(symbol) => value.chars().next().is_some_and(|first| {
            (symbol == '_' || symbol == first)
                && like(&pattern[symbol.len_utf8()..], &value[first.len_utf8()..])
        }),
    }
}

impl Condition {
    fn write(&self, least: u8) -> String {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        let (own, written) = match self {
            Condition::Bool(value) => (3, value.to_string()),
            Condition::Field(field) => (3, name(field)),
            Condition::Compare(relation, left, right) => {
                (3, format!("{}{relation}{}", left.write(), right.write()))
            }
            Condition::Order(relation, left, right) => {
                (3, format!("{} {relation} {}", left.write(0), right.write(0)))
            }
            Condition::Between(negated, value, low, high) => (
                3,
                format!("{} {}BETWEEN {} and {}", value.write(0), not(negated), low.write(0), high.write(0)),
            ),
            Condition::In(negated, field, list) => {
                let list: Vec<_> = list.iter().map(Operand::write).collect();
                (3, format!("{} {}in({})", name(field), not(negated), list.join(",")))
            }
            Condition::Like(negated, field, pattern) => {
                (3, format!("{} {}LIKE {}", name(field), not(negated), text(pattern)))
            }
            Condition::IsNull(negated, field) => (3, format!("{} IS {}NULL", name(field), not(negated))),
            Condition::Not(inner) => (2, format!("not {}", inner.write(2))),
            Condition::And(left, right) => (1, format!("{} AND {}", left.write(1), right.write(1))),
            Condition::Or(left, right) => (0, format!("{} OR {}", left.write(0), right.write(0))),
            Condition::Parentheses(inner) => (3, format!("({})", inner.write(0))),
        };
        if own < least { format!("({written})") } else { written }
    }

    fn truth(&self, message: &Message) -> Truth {
        let negate = |negated: &bool, truth: Truth| if *negated { !truth } else { truth };
        match self {
            Condition::Bool(value) => (*value).into(),
            Condition::Field(field) => relate("=", message.plain(field), Plain::Bool(true)),
            Condition::Compare(relation, left, right) => {
                relate(relation, left.value(message), right.value(message))
            }
            Condition::Order(relation, left, right) => {
                relate(relation, left.value(message), right.value(message))
            }
            Condition::Between(negated, value, low, high) => {
                let (value, low, high) = (value.value(message), low.value(message), high.value(message));
                if *negated {
                    or(relate("<", value.clone(), low), relate(">", value, high))
                } else {
                    and(relate(">=", value.clone(), low), relate("<=", value, high))
                }
            }
            Condition::In(negated, field, list) => {
                let value = message.plain(field);
                let any = list.iter().fold(Truth::False, |truth, literal| {
                    or(truth, relate("=", value.clone(), literal.value(message)))
                });
                negate(negated, any)
            }
            Condition::Like(negated, field, pattern) => match message.plain(field) {
                Plain::Null => Truth::Unknown,
                Plain::String(value) => negate(negated, like(pattern, value).into()),
                _ => negate(negated, Truth::False),
            },
            Condition::IsNull(negated, field) => ((message.plain(field) == Plain::Null) != *negated).into(),
            Condition::Not(inner) => !inner.truth(message),
            Condition::And(left, right) => and(left.truth(message), right.truth(message)),
            Condition::Or(left, right) => or(left.truth(message), right.truth(message)),
            Condition::Parentheses(inner) => inner.truth(message),
        }
    }
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn numbers() -> impl Strategy<Value = Number> {
    let leaf = prop_oneof![
        (-4..8_i32).prop_map(Number::Int),
        (-8..16_i32).prop_map(Number::Quarters),
        names().prop_map(Number::Field),
        names().prop_map(Number::Field),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|operand| Number::Negate(operand.into())),
            inner.clone().prop_map(|operand| Number::Parentheses(operand.into())),
            (prop::sample::select(vec!['+', '-', '*', '/']), inner.clone(), inner)
                .prop_map(|(operator, left, right)| Number::Binary(operator, left.into(), right.into())),
        ]
    })
}

fn literals() -> impl Strategy<Value = Operand> {
    prop_oneof![
        (-4..8_i32).prop_map(|value| Operand::Number(Number::Int(value))),
        (-8..16_i32).prop_map(|value| Operand::Number(Number::Quarters(value))),
        prop::sample::select(TEXTS.to_vec()).prop_map(Operand::String),
        any::<bool>().prop_map(Operand::Bool),
    ]
}

fn operands() -> impl Strategy<Value = Operand> {
    prop_oneof![numbers().prop_map(Operand::Number), literals()]
}

fn conditions() -> impl Strategy<Value = Condition> {
    let patterns = prop::sample::select(vec!["", "%", "x%", "_y", "%t's", "50%", "x_%", "_"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Condition::Bool),
        names().prop_map(Condition::Field),
        (prop::sample::select(vec!["=", "<>"]), operands(), operands())
            .prop_map(|(relation, left, right)| Condition::Compare(relation, left, right)),
        (prop::sample::select(vec!["<", "<=", ">", ">="]), numbers(), numbers())
            .prop_map(|(relation, left, right)| Condition::Order(relation, left, right)),
        (any::<bool>(), numbers(), numbers(), numbers())
            .prop_map(|(negated, value, low, high)| Condition::Between(negated, value, low, high)),
        (any::<bool>(), names(), prop::collection::vec(literals(), 1..4))
            .prop_map(|(negated, field, list)| Condition::In(negated, field, list)),
        (any::<bool>(), names(), patterns)
            .prop_map(|(negated, field, pattern)| Condition::Like(negated, field, pattern)),
        (any::<bool>(), names()).prop_map(|(negated, field)| Condition::IsNull(negated, field)),
    ];
    leaf.prop_recursive(5, 32, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.clone().prop_map(|operand| Condition::Not(operand.into())),
            inner.prop_map(|operand| Condition::Parentheses(operand.into())),
            pair.clone().prop_map(|(left, right)| Condition::And(left.into(), right.into())),
            pair.prop_map(|(left, right)| Condition::Or(left.into(), right.into())),
        ]
    })
}

fn messages() -> impl Strategy<Value = Message> {
    let plain = prop_oneof![
        1 => Just(Plain::Null),
        1 => any::<bool>().prop_map(Plain::Bool),
        3 => (-4..8_i64).prop_map(Plain::Int),
        2 => (-8..16_i32).prop_map(|value| Plain::Float(f64::from(value) / 4.0)),
        2 => prop::sample::select(TEXTS.to_vec()).prop_map(Plain::String),
        1 => Just(Plain::Opaque),
    ];
    prop::array::uniform6(plain).prop_map(Message)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(condition in conditions(), messages in prop::collection::vec(messages(), 1..8)) {
        let text = condition.write(0);
        let filter = Filter::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for message in &messages {
            prop_assert_eq!(filter.evaluate(message), condition.truth(message), "{} over {:?}", text, message);
        }
        let printed = filter.to_string();
        let again = Filter::parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        prop_assert_eq!(&filter, &again, "{} printed as {}", text, printed);
    }

    /// Whatever the text, parsing ends, an error is inside it, and what parses prints as itself.
    #[test]
    fn any_text_is_read_or_refused(text in texts()) {
        match Filter::parse(&text) {
            Ok(filter) => prop_assert_eq!(Filter::parse(&filter.to_string()), Ok(filter)),
            Err(error) => prop_assert!(text.is_char_boundary(error.position), "{}", error),
        }
    }
}

fn texts() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "a",
        "b",
        "NOT",
        "AND",
        "OR",
        "IN",
        "LIKE",
        "ESCAPE",
        "IS",
        "NULL",
        "BETWEEN",
        "TRUE",
        "(",
        ")",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "<",
        ">=",
        "+",
        "-",
        "-",
        "*",
        "/",
        "1",
        "0x1f",
        "2.5e3",
        ".5",
        "9223372036854775808",
        "'x'",
        "'%a_'",
        "''",
        "\"q\"\"\"",
        "'",
        "\"",
        "é",
    ]);
    prop_oneof![
        prop::collection::vec(words.clone(), 0..16).prop_map(|words| words.join(" ")),
        prop::collection::vec(words, 0..16).prop_map(|words| words.concat()),
        any::<String>(),
    ]
}
