//! Which rules about destinations does the file hold? Its tables `[destinations."PATTERN"]`.
//!
//! What properties there are and what they may be is the shards' table; here is added where in the file a mistake stands: the
//! line, the pattern and the property. Left out: rules that contradict each other (`Layer::from_text` asks).

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use corelane_shard::properties::{self, PropertyError, PropertyValue};
use corelane_shard::{DestinationRule, is_plain_name};
use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// The rules, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    pub rules: Vec<DestinationRule>,
    /// Where each of them stands in the text.
    places: Vec<Range<usize>>,
    /// Those that name a shard; there once [`Tables::note_pins`] was called.
    pub pins: Vec<Pin>,
}

/// A rule that names a shard, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub pattern: String,
    pub shard: u64,
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
}

impl Tables {
    /// The line of the rule of this pattern, counted from 1.
    pub fn line(&self, text: &str, pattern: &str) -> usize {
        let index = self.rules.iter().position(|rule| rule.pattern == pattern);
        let start = index.and_then(|index| self.places.get(index)).map_or(0, |place| place.start);
        let before = text.get(..start).unwrap_or_default();
        1 + before.matches('\n').count()
    }

    /// Notes where rules name shards, in the text of this file.
    pub fn note_pins(&mut self, file: &Path, text: &str) {
        let ends: Vec<usize> = text.match_indices('\n').map(|(end, _)| end).collect();
        let pin = |(rule, place): (&DestinationRule, &Range<usize>)| {
            let line = 1 + ends.partition_point(|end| *end < place.start);
            Some(Pin { pattern: rule.pattern.clone(), shard: rule.shard?, file: file.to_owned(), line })
        };
        self.pins = self.rules.iter().zip(&self.places).filter_map(pin).collect();
    }
}

impl<'de> Deserialize<'de> for Tables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TablesVisitor)
    }
}

struct TablesVisitor;

impl<'de> Visitor<'de> for TablesVisitor {
    type Value = Tables;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .write_str("a table of properties for each name or wildcard, as in [destinations.\"orders.>\"]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tables, A::Error> {
        let mut tables = Tables::default();
        while let Some(Pattern(pattern)) = map.next_key()? {
            tables.places.push(pattern.span());
            tables.rules.push(map.next_value_seed(TableOf { pattern: pattern.into_inner() })?);
        }
        Ok(tables)
    }
}

/// A key that was checked where its place is known.
struct Pattern(Spanned<String>);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pattern = Spanned::<String>::deserialize(deserializer)?;
        check_pattern(pattern.get_ref()).map_err(de::Error::custom)?;
        Ok(Pattern(pattern))
    }
}

/// Checks a destination pattern: words with `.` between; `*` stands for one word, a last `>` for all that follow.
fn check_pattern(pattern: &str) -> Result<(), String> {
    let words: Vec<&str> = pattern.split('.').collect();
    for (index, word) in words.iter().enumerate() {
        if word.is_empty() {
            return Err(format!("{pattern:?} has an empty word; a name is words with \".\" between"));
        }
        if *word == "#" {
            return Err(format!(
                "in {pattern:?}, \"#\" is a wildcard of subscribers, not of rules; use \">\" at the end, as in \"orders.>\""
            ));
        }
        if word.contains('*') && *word != "*" {
            return Err(format!("in {pattern:?}, \"*\" stands for a whole word, as in \"orders.*\""));
        }
        if word.contains('>') && (*word != ">" || index + 1 != words.len()) {
            return Err(format!(
                "in {pattern:?}, \">\" stands for all words that follow, as in \"orders.>\""
            ));
        }
    }
    if !is_plain_name(pattern) {
        return Err(format!(
            "{pattern:?} is no name; a name has 1 to 1024 bytes without control characters, and no \"queue://\", \"topic://\", \
             \"/queues/\" or such before it, which say in addresses what it is the name of"
        ));
    }
    Ok(())
}

/// The properties of one pattern.
struct TableOf {
    pattern: String,
}

impl<'de> DeserializeSeed<'de> for TableOf {
    type Value = DestinationRule;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<DestinationRule, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TableOf {
    type Value = DestinationRule;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the properties of {:?}, a table", self.pattern)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DestinationRule, A::Error> {
        let TableOf { pattern } = self;
        let mut rule = DestinationRule { pattern, ..DestinationRule::default() };
        while let Some(name) = map.next_key_seed(NameIn { rule: &rule })? {
            map.next_value_seed(ValueOf { name, rule: &mut rule })?;
        }
        Ok(rule)
    }
}

/// A property's name in a rule's table.
struct NameIn<'a> {
    rule: &'a DestinationRule,
}

impl<'de> DeserializeSeed<'de> for NameIn<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        let name = String::deserialize(deserializer)?;
        let pattern = &self.rule.pattern;
        match properties::find(&name) {
            None => {
                let error = PropertyError::Unknown { name };
                Err(de::Error::custom(format!("destination {pattern:?}: {error}")))
            }
            Some(property) if property.read(self.rule).is_some() => {
                let name = property.name;
                Err(de::Error::custom(format!(
                    "destination {pattern:?}: {name} is given twice; allowed: once"
                )))
            }
            Some(property) => Ok(property.name),
        }
    }
}

/// The value of a property, to be set in a rule.
struct ValueOf<'a> {
    name: &'static str,
    rule: &'a mut DestinationRule,
}

impl<'de> DeserializeSeed<'de> for ValueOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let value = deserializer.deserialize_any(AnyValue)?;
        let ValueOf { name, rule } = self;
        properties::set(rule, name, &value)
            .map_err(|error| de::Error::custom(format!("destination {:?}: {error}", rule.pattern)))
    }
}

struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = PropertyValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PropertyValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = PropertyValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a property's value")
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Bool(flag))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Integer(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Float(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<PropertyValue, A::Error> {
        while items.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(PropertyValue::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PropertyValue, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key()? {
            members.push((name, map.next_value_seed(AnyValue)?));
        }
        Ok(PropertyValue::Table(members))
    }
}
