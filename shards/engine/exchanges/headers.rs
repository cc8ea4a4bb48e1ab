//! Which bindings of a headers exchange does a message match?
//!
//! A binding names headers and their values, and wants `all` of them (also when it does not say) or `any`. Names that begin with
//! `x-` count only for `all-with-x` and `any-with-x`, and `x-match` never does. The pairs that bindings want are looked up by the headers
//! of a message, each once; only bindings that are listed under one of these are then asked for the rest of what they want.
//!
//! - a binding that wants any is listed under each of its pairs, one that wants all under that which fewest were listed under when
//!   it came;
//! - without a pair that counts, `all` matches each message, `any` none;
//! - a pair is kept ⟺ an entry wants it.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use super::kind::invalid;
use super::refusal::InvalidArgument;
use super::{Arguments, Destination, HeaderReader, HeaderValue, OwnedValue, Refusal};
use crate::slots::{Slots, take_out};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    is_any: bool,
    is_with_x: bool,
}

pub(super) struct HeaderIndex {
    hasher: FixedState,
    entries: Slots<Entry>,
    pairs: Slots<Pair>,
    pair_table: HashTable<u32>,
    /// Entries that each message matches.
    always: Vec<u32>,
    /// The pairs that the message in hand has; kept for its memory.
    present: Vec<u32>,
    /// Rises with every message.
    round: u64,
}

/// A binding.
struct Entry {
    destination: Destination,
    is_any: bool,
    /// What it wants; one that wants all of it is listed under the first.
    pairs: Box<[u32]>,
}

/// A header with a value.
struct Pair {
    name: Box<str>,
    /// Void: with any value.
    value: OwnedValue,
    hash: u64,
    /// How often entries want it.
    wants: u32,
    /// Those that are listed here.
    entries: Vec<u32>,
    /// The round in which a message had it last.
    round: u64,
}

impl Match {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Refusal> {
        const X_MATCH: &str = "x-match";
        let Some(value) = arguments.find(X_MATCH) else {
            return Ok(Match { is_any: false, is_with_x: false });
        };
        let (is_any, is_with_x) = match value.as_str() {
            Some("all") => (false, false),
            Some("any") => (true, false),
            Some("all-with-x") => (false, true),
            Some("any-with-x") => (true, true),
            Some(_) => return Err(invalid(X_MATCH, InvalidArgument::UnknownValue)),
            None => return Err(invalid(X_MATCH, InvalidArgument::NotText)),
        };
        Ok(Match { is_any, is_with_x })
    }

    fn counts(self, name: &str) -> bool {
        name != "x-match" && (self.is_with_x || !name.starts_with("x-"))
    }
}

impl HeaderIndex {
    pub(super) fn new(hasher: FixedState) -> Self {
        HeaderIndex {
            hasher,
            entries: Slots::new(),
            pairs: Slots::new(),
            pair_table: HashTable::new(),
            always: Vec::new(),
            present: Vec::new(),
            round: 0,
        }
    }

    /// The place of a new binding.
    pub(super) fn insert(&mut self, arguments: &Arguments, how: Match, destination: Destination) -> u32 {
        let counting = arguments.values().iter().filter(|(name, _)| how.counts(name));
        let mut pairs: Box<[u32]> = counting.map(|(name, value)| self.intern(name, value)).collect();
        if let Some(fewest) = (0..pairs.len()).min_by_key(|at| self.pairs[pairs[*at]].entries.len()) {
            pairs.swap(0, fewest);
        }
        let entry = self.entries.insert(Entry { destination, is_any: how.is_any, pairs });
        let Entry { pairs, .. } = &self.entries[entry];
        pairs.iter().for_each(|pair| self.pairs[*pair].wants += 1);
        for pair in self.entries[entry].listed() {
            self.pairs[*pair].entries.push(entry);
        }
        if self.entries[entry].is_always() {
            self.always.push(entry);
        }
        entry
    }

    pub(super) fn remove(&mut self, entry: u32, work: &mut u64) {
        let removed = self.entries.remove(entry);
        for pair in removed.listed() {
            *work += forget(&mut self.pairs[*pair].entries, entry);
        }
        for pair in &removed.pairs {
            self.pairs[*pair].wants -= 1;
            if self.pairs[*pair].wants == 0 {
                let Pair { hash, .. } = self.pairs.remove(*pair);
                let pairs = &self.pairs;
                take_out(&mut self.pair_table, hash, *pair, |pair| pairs[*pair].hash);
            }
        }
        if removed.is_always() {
            *work += forget(&mut self.always, entry);
        }
    }

    /// Names what a message goes to, possibly more than once, and counts what that costs.
    pub(super) fn matches(
        &mut self,
        headers: &impl HeaderReader,
        work: &mut u64,
        mut found: impl FnMut(Destination),
    ) {
        self.round += 1;
        self.present.clear();
        headers.each_header(|name, value| {
            *work += 1;
            self.note(name, HeaderValue::Void);
            self.note(name, value);
        });
        let present = |pair: &u32| self.pairs[*pair].round == self.round;
        let listed = self.present.iter().flat_map(|pair| &self.pairs[*pair].entries);
        for entry in listed.map(|entry| &self.entries[*entry]) {
            *work += 1;
            if entry.is_any || entry.pairs.iter().inspect(|_| *work += 1).all(present) {
                found(entry.destination);
            }
        }
        for entry in &self.always {
            *work += 1;
            found(self.entries[*entry].destination);
        }
    }

    /// The message in hand has a header with a value.
    fn note(&mut self, name: &str, value: HeaderValue<&[u8]>) {
        let Some(index) = self.find(self.hasher.hash_one((name, value)), name, &value) else { return };
        let pair = &mut self.pairs[index];
        if std::mem::replace(&mut pair.round, self.round) != self.round {
            self.present.push(index);
        }
    }

    fn find<B: AsRef<[u8]>>(&self, hash: u64, name: &str, value: &HeaderValue<B>) -> Option<u32> {
        let is_it = |pair: &u32| *self.pairs[*pair].name == *name && self.pairs[*pair].value == *value;
        self.pair_table.find(hash, is_it).copied()
    }

    fn intern(&mut self, name: &str, value: &OwnedValue) -> u32 {
        let hash = self.hasher.hash_one((name, value));
        self.find(hash, name, value).unwrap_or_else(|| {
            let (name, value) = (name.into(), value.clone());
            let pair = self.pairs.insert(Pair { name, value, hash, wants: 0, entries: Vec::new(), round: 0 });
            let pairs = &self.pairs;
            self.pair_table.insert_unique(hash, pair, |pair| pairs[*pair].hash);
            pair
        })
    }

    /// Recounts what is kept; the count of bindings.
    pub(super) fn verify(&self) -> usize {
        assert_eq!(self.pair_table.len(), self.pairs.count());
        assert!(self.pairs.iter().all(|(_, pair)| pair.wants > 0));
        let wants: u32 = self.pairs.iter().map(|(_, pair)| pair.wants).sum();
        let wanted: usize = self.entries.iter().map(|(_, entry)| entry.pairs.len()).sum();
        assert_eq!(wants as usize, wanted);
        let listed: usize = self.pairs.iter().map(|(_, pair)| pair.entries.len()).sum();
        assert_eq!(listed, self.entries.iter().map(|(_, entry)| entry.listed().len()).sum());
        let always = self.entries.iter().filter(|(_, entry)| entry.is_always());
        assert_eq!(always.count(), self.always.len());
        self.entries.count()
    }
}

impl Entry {
    /// The pairs that it is listed under.
    fn listed(&self) -> &[u32] {
        if self.is_any { &self.pairs } else { &self.pairs[..self.pairs.len().min(1)] }
    }

    fn is_always(&self) -> bool {
        self.pairs.is_empty() && !self.is_any
    }
}

/// Takes an entry out of a list; how many were looked at for it.
fn forget(entries: &mut Vec<u32>, entry: u32) -> u64 {
    let at = entries.iter().position(|known| *known == entry).expect("an entry is where it is listed");
    entries.swap_remove(at);
    if entries.len() < entries.capacity() / 4 {
        entries.shrink_to_fit();
    }
    at as u64 + 1
}
