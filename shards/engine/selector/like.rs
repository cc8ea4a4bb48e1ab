//! Does a string look like this pattern?
//!
//! `_` stands for one character, `%` for any number of them, and the escape character takes the meaning from the one that
//! follows it (JMS 2.0 §3.8.1.1). Characters are Unicode scalar values.
//!
//! A pattern is cut at its `%`: `head % middle % middle % tail`. Head and tail stand at the ends of the text; each middle is
//! searched for once, from where the one before it ended, because the leftmost place leaves the most room for the rest.
//! So the time grows with the length of the text plus that of the pattern, never with their product: a middle of plain
//! characters is found by `str::find`, and one that contains `_` by a bit-parallel automaton in one pass
//! (hence [`LIKE_SEARCH_MAX`]). A `_` beside a `%` only asks for room, so a middle begins and ends with plain characters.

use super::limits::LIKE_SEARCH_MAX;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    text: Box<str>,
    escape: Option<char>,
    head: Box<[Symbol]>,
    /// `None`: there is no `%`, the head is all.
    rest: Option<Rest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rest {
    middles: Box<[Middle]>,
    /// Characters there must be before the tail.
    room: usize,
    tail: Box<[Symbol]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Middle {
    /// Characters there must be before it.
    room: usize,
    search: Search,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Search {
    Plain(Box<str>),
    Automaton(Automaton),
}

/// Shift-And: bit i of the state says that the last i + 1 characters look like the first i + 1 of the pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Automaton {
    /// For each character of the pattern, sorted: where it stands.
    places: Box<[(char, u64)]>,
    /// Where the `_` stand.
    wild: u64,
    last: u64,
}

/// `Some(c)` is a plain character, `None` is `_`.
type Symbol = Option<char>;

/// Why a pattern is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternFault {
    /// It ends with its escape character.
    DanglingEscape,
    /// A part with `_` between two `%` is longer than [`LIKE_SEARCH_MAX`].
    SearchTooLong,
}

impl Pattern {
    pub(super) fn parse(text: &str, escape: Option<char>) -> Result<Self, PatternFault> {
        let mut parts: Vec<Vec<Symbol>> = vec![Vec::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let symbol = if Some(character) == escape {
                Some(characters.next().ok_or(PatternFault::DanglingEscape)?)
            } else if character == '%' {
                parts.push(Vec::new());
                continue;
            } else {
                (character != '_').then_some(character)
            };
            parts.last_mut().expect("there is always a part").push(symbol);
        }
        let mut parts = parts.into_iter();
        let head = parts.next().unwrap_or_default();
        let rest = match parts.next_back() {
            Some(tail) => Some(Rest::new(parts, tail)?),
            None => None,
        };
        Ok(Pattern { text: text.into(), escape, head: head.into(), rest })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let mut characters = text.chars();
        let fits =
            self.head.iter().all(|symbol| characters.next().is_some_and(|c| symbol.is_none_or(|s| s == c)));
        match &self.rest {
            _ if !fits => false,
            None => characters.as_str().is_empty(),
            Some(rest) => rest.matches(characters.as_str()),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn escape(&self) -> Option<char> {
        self.escape
    }
}

impl Rest {
    fn new(parts: impl Iterator<Item = Vec<Symbol>>, mut tail: Vec<Symbol>) -> Result<Self, PatternFault> {
        let mut middles = Vec::new();
        let mut room = 0;
        for part in parts {
            let Some(first) = part.iter().position(Option::is_some) else {
                room += part.len();
                continue;
            };
            let last = part.iter().rposition(Option::is_some).unwrap_or(first);
            middles.push(Middle { room: room + first, search: Search::new(&part[first..=last])? });
            room = part.len() - 1 - last;
        }
        let first = tail.iter().position(Option::is_some).unwrap_or(tail.len());
        tail.drain(..first);
        Ok(Rest { middles: middles.into(), room: room + first, tail: tail.into() })
    }

    fn matches(&self, mut text: &str) -> bool {
        for middle in &self.middles {
            let Some(found) = skip(text, middle.room).and_then(|text| middle.search.after(text)) else {
                return false;
            };
            text = found;
        }
        let Some(text) = skip(text, self.room) else { return false };
        let mut characters = text.chars().rev();
        self.tail.iter().rev().all(|symbol| characters.next().is_some_and(|c| symbol.is_none_or(|s| s == c)))
    }
}

impl Search {
    fn new(symbols: &[Symbol]) -> Result<Self, PatternFault> {
        if let Some(plain) = symbols.iter().copied().collect::<Option<String>>() {
            return Ok(Search::Plain(plain.into()));
        }
        if symbols.len() > LIKE_SEARCH_MAX {
            return Err(PatternFault::SearchTooLong);
        }
        let mut places: Vec<(char, u64)> = Vec::new();
        let mut wild = 0;
        for (index, symbol) in symbols.iter().enumerate() {
            let bit = 1 << index;
            match symbol {
                None => wild |= bit,
                Some(character) => match places.binary_search_by_key(character, |(known, _)| *known) {
                    Ok(place) => places[place].1 |= bit,
                    Err(place) => places.insert(place, (*character, bit)),
                },
            }
        }
        Ok(Search::Automaton(Automaton { places: places.into(), wild, last: 1 << (symbols.len() - 1) }))
    }

    /// What follows the first place that fits.
    fn after<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Search::Plain(plain) => text.find(&**plain).map(|start| &text[start + plain.len()..]),
            Search::Automaton(automaton) => automaton.after(text),
        }
    }
}

impl Automaton {
    fn after<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut state = 0;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let plain = match self.places.binary_search_by_key(&character, |(known, _)| *known) {
                Ok(place) => self.places[place].1,
                Err(_) => 0,
            };
            state = (state << 1 | 1) & (plain | self.wild);
            if state & self.last != 0 {
                return Some(characters.as_str());
            }
        }
        None
    }
}

/// The text without its first `count` characters, if it has as many.
fn skip(text: &str, count: usize) -> Option<&str> {
    let mut characters = text.chars();
    for _ in 0..count {
        characters.next()?;
    }
    Some(characters.as_str())
}

#[cfg(test)]
#[path = "like_tests.rs"]
mod tests;
