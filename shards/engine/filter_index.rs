//! Which classes might want this message?
//!
//! One index a queue. A filter that demands certain values under certain names ([`EqualityKeys`]) is filed under each of its keys,
//! in the table of its set of names; so a message is looked up once per table, however many filters there are. What demands nothing,
//! or finds no table, stands in a list that every message is offered to:
//!
//! - candidates(message) ⊇ { class : its filter matches the message }, each class at most once: a class is filed in one
//!   table, under keys that differ from one another, and a message has one key in a table;
//! - a table has at least one bucket and a bucket at least one posting;
//! - there are at most [`TABLES_MAX`] tables. A filter that comes when there is no room for its own goes to the table that has the most
//!   of its names and no other, and if there is none, to the list.
//!
//! Insertion and removal cost the number of the filter's keys (bounded by `KEYS_MAX`), a look-up the number of tables and of
//! candidates. A look-up allocates nothing. Keys are found by the hash and judged equal by the comparison that the evaluator uses.
//!
//! Left out: evaluating the candidates' filters, which the caller does; the index only saves it the hopeless ones.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::selector::limits::KEY_NAMES_MAX;
use crate::selector::{EqualityKeys, Field, Fields, Filter, Value, compare, hash_value};
use crate::slots::{NONE, Slots};

/// Different sets of names. Each costs every message a look-up; past it, filters are filed less exactly, or evaluated.
pub(crate) const TABLES_MAX: usize = 16;

/// The filters of a queue's classes. `C` names a class.
pub(crate) struct FilterIndex<C> {
    hasher: FixedState,
    tables: Vec<Option<Table>>,
    buckets: Slots<Bucket>,
    postings: Slots<Posting<C>>,
    /// The postings of filters that every message is offered to.
    evaluated: Chain,
}

/// Where an index keeps a class; given back to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexSlot(u32);

/// The filters that are filed by one set of names.
struct Table {
    /// Sorted.
    names: Box<[Field]>,
    buckets: HashTable<u32>,
}

/// The filters that are filed under one key.
struct Bucket {
    table: u32,
    hash: u64,
    /// In the order of the table's names.
    key: Box<[KeyValue]>,
    chain: Chain,
}

/// One class under one key.
struct Posting<C> {
    class: C,
    /// `NONE` for those that are evaluated.
    bucket: u32,
    previous: u32,
    next: u32,
    /// The next posting of the same class.
    sibling: u32,
}

#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

/// A literal that outlives its filter.
#[derive(Debug)]
enum KeyValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    String(Box<str>),
}

impl<C: Copy> FilterIndex<C> {
    /// `seed` decides where keys lie, so that a peer who chooses them cannot choose collisions.
    pub(crate) fn new(seed: u64) -> Self {
        FilterIndex {
            hasher: FixedState::with_seed(seed),
            tables: Vec::new(),
            buckets: Slots::new(),
            postings: Slots::new(),
            evaluated: Chain::EMPTY,
        }
    }

    pub(crate) fn insert(&mut self, class: C, filter: &Filter) -> IndexSlot {
        let filed = filter.equality_keys().and_then(|keys| self.table_for(keys));
        let Some((table, keys)) = filed else {
            return IndexSlot(self.post(class, NONE, NONE));
        };
        let mut posting = NONE;
        for index in 0..keys.count() {
            let bucket = self.bucket_for(table, keys.key(index));
            posting = self.post(class, bucket, posting);
        }
        assert_ne!(posting, NONE, "there is no list without a literal");
        IndexSlot(posting)
    }

    /// Takes a class out; its slot is void then.
    pub(crate) fn remove(&mut self, slot: IndexSlot) -> C {
        let mut next = slot.0;
        loop {
            let Posting { class, bucket, sibling, .. } = self.unlink(next);
            if bucket != NONE && self.buckets[bucket].chain.first == NONE {
                self.remove_bucket(bucket);
            }
            if sibling == NONE {
                return class;
            }
            next = sibling;
        }
    }

    /// Yields every class whose filter might match, each at most once, in no particular order. The caller evaluates the whole
    /// filter.
    pub(crate) fn candidates(&self, message: &impl Fields, mut visit: impl FnMut(C)) {
        for table in self.tables.iter().flatten() {
            if let Some(bucket) = self.find(table, message) {
                self.visit(self.buckets[bucket].chain, &mut visit);
            }
        }
        self.visit(self.evaluated, &mut visit);
    }

    /// Checks every invariant, in the time of all postings.
    #[allow(dead_code, reason = "for tests and simulation")]
    pub(crate) fn verify(&self) {
        let mut postings = self.verify_chain(NONE, self.evaluated);
        let mut buckets = 0;
        assert!(self.tables.len() <= TABLES_MAX);
        for (index, table) in self.tables.iter().enumerate() {
            let Some(table) = table else { continue };
            assert!(
                !table.buckets.is_empty() && table.names.is_sorted() && table.names.len() <= KEY_NAMES_MAX
            );
            for id in &table.buckets {
                let bucket = &self.buckets[*id];
                assert_eq!((bucket.table as usize, bucket.key.len()), (index, table.names.len()));
                assert_eq!(
                    bucket.hash,
                    self.hash(bucket.key.iter().map(KeyValue::value)).expect("a literal")
                );
                assert_ne!(bucket.chain.first, NONE);
                postings += self.verify_chain(*id, bucket.chain);
                buckets += 1;
            }
        }
        assert_eq!((postings, buckets), (self.postings.count(), self.buckets.count()));
    }

    #[allow(dead_code, reason = "for tests and simulation")]
    fn verify_chain(&self, bucket: u32, chain: Chain) -> usize {
        let (mut count, mut previous, mut next) = (0, NONE, chain.first);
        while next != NONE {
            let posting = &self.postings[next];
            assert_eq!((posting.bucket, posting.previous), (bucket, previous));
            count += 1;
            (previous, next) = (next, posting.next);
        }
        assert_eq!(chain.last, previous);
        count
    }

    /// The table for these keys, which are narrowed to its names; made if there is room.
    fn table_for<'f>(&mut self, mut keys: EqualityKeys<'f>) -> Option<(u32, EqualityKeys<'f>)> {
        let exact = self
            .tables
            .iter()
            .position(|table| table.as_ref().is_some_and(|table| table.names.iter().eq(keys.names())));
        if let Some(index) = exact {
            return Some((index as u32, keys));
        }
        let table = |keys: &EqualityKeys<'_>| Table {
            names: keys.names().cloned().collect(),
            buckets: HashTable::new(),
        };
        if let Some(index) = self.tables.iter().position(Option::is_none) {
            self.tables[index] = Some(table(&keys));
            return Some((index as u32, keys));
        }
        if self.tables.len() < TABLES_MAX {
            self.tables.push(Some(table(&keys)));
            return Some((self.tables.len() as u32 - 1, keys));
        }
        let covered = |table: &Table| table.names.iter().all(|name| keys.names().any(|own| own == name));
        let tables =
            self.tables.iter().enumerate().filter_map(|(index, table)| Some((index, table.as_ref()?)));
        let (index, table) =
            tables.filter(|(_, table)| covered(table)).max_by_key(|(_, table)| table.names.len())?;
        keys.narrow(&table.names);
        Some((index as u32, keys))
    }

    fn bucket_for<'f>(&mut self, table: u32, key: impl Iterator<Item = Value<'f>> + Clone) -> u32 {
        let hash = self.hash(key.clone()).expect("a literal is equal to itself");
        let buckets = &mut self.tables[table as usize].as_mut().expect("the table was just found").buckets;
        let rows = &self.buckets;
        if let Some(bucket) = buckets.find(hash, |bucket| rows[*bucket].has(key.clone())) {
            return *bucket;
        }
        let key = key.map(KeyValue::new).collect();
        let bucket = self.buckets.insert(Bucket { table, hash, key, chain: Chain::EMPTY });
        let rows = &self.buckets;
        buckets.insert_unique(hash, bucket, |bucket| rows[*bucket].hash);
        bucket
    }

    fn remove_bucket(&mut self, bucket: u32) {
        let Bucket { table, hash, .. } = self.buckets.remove(bucket);
        let slot = &mut self.tables[table as usize];
        let buckets = &mut slot.as_mut().expect("a bucket's table lives as long as the bucket").buckets;
        match buckets.find_entry(hash, |known| *known == bucket) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("a bucket is in its table"),
        }
        if buckets.is_empty() {
            *slot = None;
        }
    }

    /// The bucket of the message's key in a table. The fields behind the first one without a usable value are not read.
    fn find(&self, table: &Table, message: &impl Fields) -> Option<u32> {
        let mut values = [Value::Null; KEY_NAMES_MAX];
        let mut hasher = self.hasher.build_hasher();
        for (value, name) in values.iter_mut().zip(&table.names) {
            *value = message.field(name);
            if !hash_value(*value, &mut hasher) {
                return None;
            }
        }
        let key = values.iter().copied().take(table.names.len());
        table.buckets.find(hasher.finish(), |bucket| self.buckets[*bucket].has(key.clone())).copied()
    }

    /// `None` if one of the values is equal to nothing.
    fn hash<'v>(&self, mut key: impl Iterator<Item = Value<'v>>) -> Option<u64> {
        let mut hasher = self.hasher.build_hasher();
        key.all(|value| hash_value(value, &mut hasher)).then(|| hasher.finish())
    }

    fn visit(&self, chain: Chain, visit: &mut impl FnMut(C)) {
        let mut next = chain.first;
        while next != NONE {
            let posting = &self.postings[next];
            visit(posting.class);
            next = posting.next;
        }
    }

    fn chain(&mut self, bucket: u32) -> &mut Chain {
        if bucket == NONE { &mut self.evaluated } else { &mut self.buckets[bucket].chain }
    }

    /// Adds a posting at the end of a bucket.
    fn post(&mut self, class: C, bucket: u32, sibling: u32) -> u32 {
        let previous = self.chain(bucket).last;
        let posting = self.postings.insert(Posting { class, bucket, previous, next: NONE, sibling });
        let chain = self.chain(bucket);
        chain.last = posting;
        if previous == NONE {
            chain.first = posting;
        } else {
            self.postings[previous].next = posting;
        }
        posting
    }

    fn unlink(&mut self, posting: u32) -> Posting<C> {
        let posting = self.postings.remove(posting);
        match posting.previous {
            NONE => self.chain(posting.bucket).first = posting.next,
            previous => self.postings[previous].next = posting.next,
        }
        match posting.next {
            NONE => self.chain(posting.bucket).last = posting.previous,
            next => self.postings[next].previous = posting.previous,
        }
        posting
    }
}

impl Bucket {
    fn has<'v>(&self, key: impl Iterator<Item = Value<'v>>) -> bool {
        self.key.iter().zip(key).all(|(own, value)| compare(own.value(), value).is_equal())
    }
}

impl Chain {
    const EMPTY: Chain = Chain { first: NONE, last: NONE };
}

impl KeyValue {
    fn new(value: Value<'_>) -> Self {
        match value {
            Value::Bool(value) => KeyValue::Bool(value),
            Value::Int(value) => KeyValue::Int(value),
            Value::Float(value) => KeyValue::Float(value),
            Value::String(value) => KeyValue::String(value.into()),
            Value::Unsigned(_) | Value::Null | Value::Opaque => unreachable!("there is no such literal"),
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            KeyValue::Bool(value) => Value::Bool(*value),
            KeyValue::Int(value) => Value::Int(*value),
            KeyValue::Float(value) => Value::Float(*value),
            KeyValue::String(value) => Value::String(value),
        }
    }
}

#[cfg(test)]
#[path = "filter_index_tests.rs"]
mod tests;
