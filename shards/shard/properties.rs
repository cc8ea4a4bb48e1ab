//! Which properties do destinations have, and what may each be? The one table: the configuration file, management and
//! `corelane help destinations` all go by it.
//!
//! Invariants:
//! - a value that was set is in its range and of its type;
//! - an error says which property, what was given, why not, and what is allowed; who reads a file adds the place.
//!
//! Left out: how rules merge (`destinations`), which properties exclude each other (`contradictions`).

mod table;

use std::fmt;
use std::fmt::Write;

use crate::address::{Address, has_wildcards, is_topic_name};
use crate::destinations::{DestinationRule, DispatchRule, OverflowRule, PrefetchRule, RedeliveryRule};
use crate::limits::QUEUE_NAME_BYTES_MAX;
use crate::management;
use crate::quantity::{duration_us, show_duration, show_size, size_bytes};
use crate::queues::is_ours;
pub use table::{ANNOTATIONS, MERGING, PROPERTIES};
use table::{count, duration};

/// A value as it comes from a file or a message, or goes there.
#[derive(Clone, Debug, PartialEq)]
pub enum PropertyValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Table(Vec<(String, PropertyValue)>),
    /// Of a type that no property takes, with its name.
    Other(&'static str),
}

/// One line of the table.
#[derive(Debug)]
pub struct Property {
    pub name: &'static str,
    /// An older or longer name that means the same.
    pub alias: Option<&'static str>,
    kind: Kind,
    /// What holds where nothing is said.
    pub default: &'static str,
    /// Whether it can be given to one queue while the broker runs.
    pub per_queue: bool,
    merge: Merge,
    pub effect: &'static str,
}

/// How what several rules say comes to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    AddsUp,
    MostSpecific,
    Largest,
    Strictest,
}

/// Where a rule keeps a property.
#[derive(Debug)]
struct Field<T: 'static> {
    of: fn(&DestinationRule) -> &Option<T>,
    of_mut: fn(&mut DestinationRule) -> &mut Option<T>,
}

// Copied whatever the field's type is.
impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Flag(Field<bool>),
    Number(Range, Field<u64>),
    Prefetch,
    Overflow,
    Dispatch,
    /// False and true, as they are said.
    Choice(Field<bool>, [&'static str; 2]),
    Redelivery,
    /// A queue's name; the empty one is none.
    Name(Field<Box<str>>),
    /// A text; the empty one is none.
    Text(Field<Box<str>>),
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
    Microseconds,
}

/// What a number may be.
#[derive(Clone, Copy, Debug)]
struct Range {
    unit: Unit,
    min: u64,
    max: u64,
    /// The word for none, which is kept as 0.
    none: Option<&'static str>,
}

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const YEARS: u64 = 100 * 365 * DAY;

const PREFETCH: Range = count(0, 65_535, None);
const DELAY: Range = duration(1_000, 30 * DAY, Some("none"));
/// Thousandths.
const MULTIPLIER: (u64, u64) = (1_000, 100_000);
/// Bytes of a property's name in a last-value key.
const KEY_BYTES_MAX: usize = 255;

/// Why a property is not set.
#[derive(Clone, Debug, PartialEq)]
pub enum PropertyError {
    Unknown {
        name: String,
    },
    WrongType {
        property: &'static str,
        found: String,
        allowed: String,
    },
    OutOfRange {
        property: &'static str,
        found: String,
        allowed: String,
    },
    /// A member of a property's table is wrong, or does not fit another.
    Malformed {
        property: &'static str,
        reason: String,
    },
    /// It is said for all queues of a name when the broker starts.
    Fixed {
        property: &'static str,
    },
}

impl fmt::Display for PropertyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PropertyError::Unknown { name } => {
                write!(formatter, "there is no property {name:?}")?;
                match nearest(name) {
                    Some(near) => write!(formatter, "; did you mean {near}?")?,
                    None => formatter.write_str(".")?,
                }
                let names: Vec<&str> = PROPERTIES.iter().map(|property| property.name).collect();
                write!(formatter, " Properties are {}", names.join(", "))
            }
            PropertyError::WrongType { property, found, allowed } => {
                write!(formatter, "{property} cannot be {found}; allowed: {allowed}")
            }
            PropertyError::OutOfRange { property, found, allowed } => {
                write!(formatter, "{property}: {found} is out of range; allowed: {allowed}")
            }
            PropertyError::Malformed { property, reason } => write!(formatter, "{property}: {reason}"),
            PropertyError::Fixed { property } => {
                write!(
                    formatter,
                    "{property} is not changed while the broker runs: say it in the configuration file"
                )
            }
        }
    }
}

impl std::error::Error for PropertyError {}

/// The property of this name; `_` stands for `-`.
pub fn find(name: &str) -> Option<&'static Property> {
    let name = name.replace('_', "-");
    PROPERTIES.iter().find(|property| property.name == name || property.alias == Some(&*name))
}

/// Sets a property in a rule.
pub fn set(rule: &mut DestinationRule, name: &str, value: &PropertyValue) -> Result<(), PropertyError> {
    let property = find(name).ok_or_else(|| PropertyError::Unknown { name: name.to_owned() })?;
    property.set(rule, value)
}

/// The same for what one queue is given while the broker runs.
pub fn set_for_queue(
    overrides: &mut DestinationRule,
    name: &str,
    value: &PropertyValue,
) -> Result<(), PropertyError> {
    match find(name) {
        Some(Property { name, per_queue: false, .. }) => Err(PropertyError::Fixed { property: name }),
        Some(_) | None => set(overrides, name, value),
    }
}

impl Property {
    fn set(&self, rule: &mut DestinationRule, value: &PropertyValue) -> Result<(), PropertyError> {
        match (self.kind, value) {
            (Kind::Flag(field), PropertyValue::Bool(flag)) => *(field.of_mut)(rule) = Some(*flag),
            (Kind::Number(range, field), value) => *(field.of_mut)(rule) = Some(range.read(self, value)?),
            (Kind::Prefetch, PropertyValue::Text(word)) if word == "none" => {
                rule.prefetch = Some(PrefetchRule::None)
            }
            (Kind::Prefetch, PropertyValue::Integer(_)) => {
                rule.prefetch = Some(match PREFETCH.read(self, value)? {
                    0 => PrefetchRule::Inherit,
                    limit => PrefetchRule::Limit(limit as u32),
                });
            }
            (Kind::Overflow, PropertyValue::Text(word)) => {
                let found = OverflowRule::ALL.iter().find(|overflow| overflow.word() == word);
                rule.overflow = Some(*found.ok_or_else(|| self.not_allowed(word))?);
            }
            (Kind::Dispatch, PropertyValue::Text(word)) => {
                let found = DispatchRule::ALL.iter().find(|dispatch| dispatch.word() == word);
                rule.dispatch = Some(*found.ok_or_else(|| self.not_allowed(word))?);
            }
            (Kind::Choice(field, choices), PropertyValue::Text(word)) => {
                let found = choices.iter().position(|choice| choice == word);
                *(field.of_mut)(rule) = Some(found.ok_or_else(|| self.not_allowed(word))? == 1);
            }
            (Kind::Redelivery, PropertyValue::Table(table)) => {
                rule.redelivery = Some(self.redelivery(table)?)
            }
            (Kind::Redelivery, value) => {
                let delay_us = DELAY.read(self, value)?;
                rule.redelivery = Some(RedeliveryRule::constant(delay_us));
            }
            (Kind::Name(field), PropertyValue::Text(name)) => {
                *(field.of_mut)(rule) = Some(self.name(name)?.into());
            }
            (Kind::Text(field), PropertyValue::Text(text)) => {
                if text.len() > KEY_BYTES_MAX {
                    return Err(self.not_allowed(text));
                }
                *(field.of_mut)(rule) = Some(none_as_empty(text).into());
            }
            (
                Kind::Flag(_)
                | Kind::Prefetch
                | Kind::Overflow
                | Kind::Dispatch
                | Kind::Choice(..)
                | Kind::Name(_)
                | Kind::Text(_),
                _,
            ) => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    /// What a rule says; none if it says nothing.
    pub fn read(&self, rule: &DestinationRule) -> Option<PropertyValue> {
        let text = |text: &str| PropertyValue::Text(text.to_owned());
        Some(match self.kind {
            Kind::Flag(field) => PropertyValue::Bool((*(field.of)(rule))?),
            Kind::Number(range, field) => range.show_value((*(field.of)(rule))?),
            Kind::Prefetch => match rule.prefetch? {
                PrefetchRule::None => text("none"),
                PrefetchRule::Inherit => PropertyValue::Integer(0),
                PrefetchRule::Limit(limit) => PropertyValue::Integer(i64::from(limit)),
            },
            Kind::Overflow => text(rule.overflow?.word()),
            Kind::Dispatch => text(rule.dispatch?.word()),
            Kind::Choice(field, choices) => text(choices[usize::from((*(field.of)(rule))?)]),
            Kind::Redelivery => {
                let RedeliveryRule { min_us, multiplier_permille, max_us } = rule.redelivery?;
                if min_us == max_us {
                    return Some(DELAY.show_value(min_us));
                }
                let multiplier = f64::from(multiplier_permille) / 1000.0;
                PropertyValue::Table(vec![
                    ("min".to_owned(), DELAY.show_value(min_us)),
                    ("multiplier".to_owned(), PropertyValue::Float(multiplier)),
                    ("max".to_owned(), DELAY.show_value(max_us)),
                ])
            }
            Kind::Name(field) | Kind::Text(field) => match (field.of)(rule).as_deref()? {
                "" => text("none"),
                name => text(name),
            },
        })
    }

    /// What it may be, in words.
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Flag(_) => "true or false".to_owned(),
            Kind::Number(range, _) => range.to_string(),
            Kind::Prefetch => format!("\"none\", 0 (inherited), or a limit of {PREFETCH}"),
            Kind::Overflow => words(OverflowRule::ALL.map(OverflowRule::word)),
            Kind::Dispatch => words(DispatchRule::ALL.map(DispatchRule::word)),
            Kind::Choice(_, choices) => words(choices),
            Kind::Redelivery => {
                let (least, most) = MULTIPLIER;
                format!(
                    "{DELAY}, or a table of min and max (such durations) and multiplier ({} to {})",
                    least / 1000,
                    most / 1000
                )
            }
            Kind::Name(_) => format!(
                "a queue's name, 1 to {QUEUE_NAME_BYTES_MAX} bytes, but none that only the broker gives; or \"none\""
            ),
            Kind::Text(_) => format!("a property's name, 1 to {KEY_BYTES_MAX} bytes, or \"none\""),
        }
    }

    fn redelivery(&self, table: &[(String, PropertyValue)]) -> Result<RedeliveryRule, PropertyError> {
        let malformed = |reason: String| PropertyError::Malformed { property: self.name, reason };
        let (mut min_us, mut max_us, mut multiplier_permille) = (None, None, 2000);
        for (index, (name, value)) in table.iter().enumerate() {
            if table[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(malformed(format!("{name:?} stands twice in its table; allowed: once")));
            }
            match (name.as_str(), value) {
                ("min", value) => min_us = Some(DELAY.read(self, value)?),
                ("max", value) => max_us = Some(DELAY.read(self, value)?),
                ("multiplier", PropertyValue::Integer(_) | PropertyValue::Float(_)) => {
                    let factor = match value {
                        PropertyValue::Integer(factor) => *factor as f64,
                        PropertyValue::Float(factor) => *factor,
                        PropertyValue::Bool(_)
                        | PropertyValue::Text(_)
                        | PropertyValue::Table(_)
                        | PropertyValue::Other(_) => 0.0,
                    };
                    let permille = (factor * 1000.0).round();
                    let (least, most) = MULTIPLIER;
                    if !(least as f64..=most as f64).contains(&permille) {
                        let allowed = format!("{} to {}", least / 1000, most / 1000);
                        return Err(malformed(format!(
                            "the multiplier {factor} is out of range; allowed: {allowed}"
                        )));
                    }
                    multiplier_permille = permille as u32;
                }
                ("multiplier", other) => {
                    return Err(malformed(format!("the multiplier cannot be {other}; allowed: a number")));
                }
                (other, _) => {
                    return Err(malformed(format!(
                        "its table has no {other:?}; allowed: min, multiplier, max"
                    )));
                }
            }
        }
        let min_us = min_us.ok_or_else(|| malformed("its table needs min".to_owned()))?;
        let max_us = max_us.ok_or_else(|| malformed("its table needs max".to_owned()))?;
        if min_us > max_us {
            let (min, max) = (show_duration(min_us), show_duration(max_us));
            return Err(malformed(format!("min ({min}) is more than max ({max}); allowed: min up to max")));
        }
        Ok(RedeliveryRule { min_us, multiplier_permille, max_us })
    }

    /// The address of a queue, a topic or an exchange, or nothing. What it means hangs on the rules.
    fn name<'a>(&self, text: &'a str) -> Result<&'a str, PropertyError> {
        let address = none_as_empty(text);
        let is_allowed = match Address::parse(address) {
            Address::Name(name) | Address::Queue(name) => {
                !has_wildcards(&name) && !is_ours(&name) && *name != *management::ADDRESS
            }
            Address::Topic(name) => is_topic_name(&name) && !is_ours(&name),
            Address::Exchange { .. } => true,
            Address::Unsupported => false,
            Address::Invalid => address.is_empty(),
        };
        if is_allowed { Ok(address) } else { Err(self.not_allowed(text)) }
    }

    fn wrong_type(&self, value: &PropertyValue) -> PropertyError {
        PropertyError::WrongType { property: self.name, found: value.to_string(), allowed: self.allowed() }
    }

    /// A text that is none of those allowed.
    fn not_allowed(&self, found: &str) -> PropertyError {
        PropertyError::WrongType { property: self.name, found: format!("{found:?}"), allowed: self.allowed() }
    }
}

/// The number that is nearest to this one, of those that a property may be.
pub(crate) fn clamp(property: &str, number: u64) -> u64 {
    match find(property).map(|property| &property.kind) {
        Some(Kind::Number(range, _)) => number.clamp(range.min, range.max),
        Some(_) | None => number,
    }
}

impl Range {
    fn read(&self, property: &Property, value: &PropertyValue) -> Result<u64, PropertyError> {
        let out_of_range = |found: String| PropertyError::OutOfRange {
            property: property.name,
            found,
            allowed: property.allowed(),
        };
        let number = match (value, self.unit) {
            (PropertyValue::Text(word), _) if self.none == Some(word.as_str()) => return Ok(0),
            (PropertyValue::Integer(number), _) if *number < 0 => {
                return Err(out_of_range(number.to_string()));
            }
            (PropertyValue::Integer(number), Unit::Microseconds) if *number != 0 => {
                let reason = format!("a duration needs its unit, as in \"{number}ms\" or \"{number}s\"");
                return Err(PropertyError::Malformed { property: property.name, reason });
            }
            (PropertyValue::Integer(number), _) => *number as u64,
            (PropertyValue::Text(text), Unit::Bytes | Unit::Microseconds) => {
                let read = if self.unit == Unit::Bytes { size_bytes(text) } else { duration_us(text) };
                read.map_err(|error| PropertyError::Malformed {
                    property: property.name,
                    reason: format!("{text:?}: {error}; allowed: {}", property.allowed()),
                })?
            }
            (
                PropertyValue::Bool(_)
                | PropertyValue::Float(_)
                | PropertyValue::Text(_)
                | PropertyValue::Table(_)
                | PropertyValue::Other(_),
                _,
            ) => return Err(property.wrong_type(value)),
        };
        let is_none = number == 0 && self.none.is_some();
        if is_none || (self.min..=self.max).contains(&number) {
            Ok(number)
        } else {
            Err(out_of_range(self.show(number)))
        }
    }

    fn show(&self, number: u64) -> String {
        match self.unit {
            Unit::Count => number.to_string(),
            Unit::Bytes => show_size(number),
            Unit::Microseconds => show_duration(number),
        }
    }

    fn show_value(&self, number: u64) -> PropertyValue {
        match (self.none, self.unit) {
            (Some(word), _) if number == 0 => PropertyValue::Text(word.to_owned()),
            (_, Unit::Count | Unit::Bytes) => {
                PropertyValue::Integer(i64::try_from(number).unwrap_or(i64::MAX))
            }
            (_, Unit::Microseconds) => PropertyValue::Text(show_duration(number)),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {}", self.show(self.min), self.show(self.max))?;
        match self.none {
            Some(word) => write!(formatter, ", or 0 or {word:?} for none"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PropertyValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PropertyValue::Bool(flag) => write!(formatter, "{flag}"),
            PropertyValue::Integer(number) => write!(formatter, "{number}"),
            PropertyValue::Float(number) => write!(formatter, "{number}"),
            PropertyValue::Text(text) => write!(formatter, "{text:?}"),
            PropertyValue::Table(_) => formatter.write_str("a table"),
            PropertyValue::Other(name) => write!(formatter, "{name}"),
        }
    }
}

fn none_as_empty(text: &str) -> &str {
    if text == "none" { "" } else { text }
}

fn words<const N: usize>(words: [&str; N]) -> String {
    words.map(|word| format!("{word:?}")).join(", ")
}

/// The property whose name differs least, if it is by a few letters.
fn nearest(name: &str) -> Option<&'static str> {
    const DISTANCE_MAX: usize = 3;
    let name = name.replace('_', "-");
    let names = PROPERTIES.iter().flat_map(|property| [Some(property.name), property.alias]).flatten();
    let near = names.map(|known| (distance(&name, known), known)).min()?;
    (near.0 <= DISTANCE_MAX && near.0 < near.1.len() / 2 + 1).then_some(near.1)
}

/// Letters to be put in, taken out or changed to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    const NAME_MAX: usize = 64;
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().take(NAME_MAX).enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, right) in b.iter().enumerate() {
            let changed = corner + usize::from(left != *right);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The table and the rules of merging, for a terminal.
pub fn help() -> String {
    const WIDTH: usize = 96;
    let mut text = String::from(
        "Destinations are queues and topics. Their properties stand in the configuration file, in a table under a name or\n\
         a wildcard, and are read again on SIGHUP:\n\n\
         \x20   [destinations.\"orders.>\"]        # every name below orders\n\
         \x20   dead-letter = \"failed\"\n\
         \x20   deliveries-max = 5\n\
         \x20   redelivery-delay = { min = \"1s\", multiplier = 2, max = \"1m\" }\n\n\
         Properties:\n",
    );
    for property in PROPERTIES {
        let alias = property.alias.map(|alias| format!(" (or {alias})")).unwrap_or_default();
        let _ = writeln!(text, "\n  {}{alias}", property.name);
        let facts = [
            ("values ", property.allowed()),
            ("default", property.default.to_owned()),
            ("merging", property.merge.in_words().to_owned()),
        ];
        for (label, what) in facts {
            let _ = writeln!(text, "      {label}  {what}");
        }
        for line in wrapped(property.effect, WIDTH - 6) {
            let _ = writeln!(text, "      {line}");
        }
    }
    let _ = writeln!(text, "\nMerging:\n\n{MERGING}\n\n{ANNOTATIONS}");
    text
}

impl Merge {
    fn in_words(self) -> &'static str {
        match self {
            Merge::AddsUp => "adds up",
            Merge::MostSpecific => "the most specific",
            Merge::Largest => "the exact name's, else the largest",
            Merge::Strictest => "the exact name's, else the strictest",
        }
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
