//! Which message of a key is the last?
//!
//! A table from key to place for each queue that has keys; others pay nothing. A new message of a key takes the place of the
//! older one in the table, and the older one is deleted, unless a consumer or a transaction has it: then it is dropped when it comes
//! back. A message that is published inside a transaction takes its place when it is committed, and a delayed one when its time
//! has come, whatever has come meanwhile: until then it replaces nothing and is not replaced.
//!
//! - a keyed entry that nobody has ⟹ the table names it, or it waits for its time;
//! - the table names an entry ⟹ it is keyed, and in the queue.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::ids::Place;
use crate::slots::Slots;

pub(crate) struct LastValues {
    values: Slots<LastValue>,
    by_key: HashTable<u32>,
    by_place: HashTable<u32>,
    /// Keys of entries that wait for their transaction or their time.
    waiting: BTreeMap<Place, Box<[u8]>>,
}

struct LastValue {
    key: Box<[u8]>,
    place: Place,
    key_hash: u64,
    place_hash: u64,
}

impl LastValues {
    pub(crate) fn new() -> Self {
        LastValues {
            values: Slots::new(),
            by_key: HashTable::new(),
            by_place: HashTable::new(),
            waiting: BTreeMap::new(),
        }
    }

    pub(crate) fn find(&self, key: &[u8], key_hash: u64) -> Option<Place> {
        Some(self.values[self.slot(key, key_hash)?].place)
    }

    /// Notes where a key's last value is from now on, and answers where it was.
    pub(crate) fn replace(
        &mut self,
        key: Box<[u8]>,
        key_hash: u64,
        place: Place,
        place_hash: u64,
    ) -> Option<Place> {
        let known = self.slot(&key, key_hash);
        let before = known.map(|slot| self.values[slot].place);
        let slot = match known {
            Some(slot) => {
                self.forget_place(slot);
                let value = &mut self.values[slot];
                (value.place, value.place_hash) = (place, place_hash);
                slot
            }
            None => {
                let slot = self.values.insert(LastValue { key, place, key_hash, place_hash });
                let values = &self.values;
                self.by_key.insert_unique(key_hash, slot, |slot| values[*slot].key_hash);
                slot
            }
        };
        let values = &self.values;
        self.by_place.insert_unique(place_hash, slot, |slot| values[*slot].place_hash);
        before
    }

    /// The entry at a place leaves the queue: if it is a last value, its key has none any more.
    pub(crate) fn remove(&mut self, place: Place, place_hash: u64) {
        let values = &self.values;
        let Some(slot) = self.by_place.find(place_hash, |slot| values[*slot].place == place).copied() else {
            self.waiting.remove(&place);
            return;
        };
        self.forget_place(slot);
        let value = self.values.remove(slot);
        match self.by_key.find_entry(value.key_hash, |candidate| *candidate == slot) {
            Ok(found) => drop(found.remove()),
            Err(_) => unreachable!("a last value is found by its key"),
        }
    }

    pub(crate) fn is_last(&self, place: Place, place_hash: u64) -> bool {
        self.by_place.find(place_hash, |slot| self.values[*slot].place == place).is_some()
    }

    pub(crate) fn waits(&self, place: Place) -> bool {
        self.waiting.contains_key(&place)
    }

    /// Checks that each is found by its key and by its place, and answers where the last values are.
    pub(crate) fn verify(&self, hasher: &FixedState) -> impl Iterator<Item = Place> {
        let count = self.values.count();
        assert_eq!((self.by_key.len(), self.by_place.len()), (count, count));
        self.values.iter().map(|(slot, value)| {
            assert_eq!(self.slot(&value.key, hasher.hash_one(&*value.key)), Some(slot));
            assert!(self.is_last(value.place, hasher.hash_one(value.place)));
            value.place
        })
    }

    fn slot(&self, key: &[u8], key_hash: u64) -> Option<u32> {
        self.by_key.find(key_hash, |slot| *self.values[*slot].key == *key).copied()
    }

    fn forget_place(&mut self, slot: u32) {
        match self.by_place.find_entry(self.values[slot].place_hash, |candidate| *candidate == slot) {
            Ok(found) => drop(found.remove()),
            Err(_) => unreachable!("a last value is found by its place"),
        }
    }
}

impl<M: Message> Engine<M> {
    /// The entry that a new message of this key would replace, if nobody has it.
    pub(crate) fn find_replaced(&self, queue: u32, key: &[u8]) -> Option<EntryRef> {
        let values = self.queues[queue].last_values.as_ref()?;
        let entry = self.find(queue, values.find(key, self.hash_of(key))?)?;
        self.store.entry(entry).is_free().then_some(entry)
    }

    /// The same for a pending entry that is about to be committed.
    pub(crate) fn find_replaced_by_pending(&self, entry: EntryRef) -> Option<EntryRef> {
        let queue = self.store.queue(entry);
        let values = self.queues[queue].last_values.as_ref()?;
        self.find_replaced(queue, values.waiting.get(&self.store.place(entry))?)
    }

    /// A new entry has a key. It is the last of its key from now on, or, if it `waits`, when that ends.
    pub(crate) fn note_key(&mut self, queue: u32, entry: EntryRef, key: Box<[u8]>, waits: bool) {
        self.store.entry_mut(entry).set_keyed();
        if waits {
            let place = self.store.place(entry);
            self.queues[queue].last_values_mut().waiting.insert(place, key);
        } else {
            self.become_last(queue, entry, key);
        }
    }

    /// An entry waits no more, neither for its transaction nor for its time.
    pub(crate) fn end_waiting(&mut self, entry: EntryRef) {
        if !self.store.entry(entry).keyed() {
            return;
        }
        let (queue, place) = (self.store.queue(entry), self.store.place(entry));
        let values = self.queues[queue].last_values.as_mut();
        if let Some(key) = values.and_then(|values| values.waiting.remove(&place)) {
            self.become_last(queue, entry, key);
        }
    }

    /// An entry is the last of its key from now on; an older one that nobody has is gone.
    fn become_last(&mut self, queue: u32, entry: EntryRef, key: Box<[u8]>) {
        let place = self.store.place(entry);
        let (key_hash, place_hash) = (self.hash_of(&*key), self.hash_of(place));
        let values = self.queues[queue].last_values_mut();
        let before = values.replace(key, key_hash, place, place_hash);
        if let Some(before) = before.and_then(|place| self.find(queue, place))
            && self.store.entry(before).is_free()
        {
            self.withdraw(before);
            self.drop_replaced(before);
        }
    }

    /// Whether a later message of an entry's key has come.
    pub(crate) fn is_replaced(&self, entry: EntryRef) -> bool {
        if !self.store.entry(entry).keyed() {
            return false;
        }
        let place = self.store.place(entry);
        let values = &self.queues[self.store.queue(entry)].last_values;
        !values.as_ref().is_some_and(|values| values.is_last(place, self.hash_of(place)))
    }

    /// Removes an entry that is in no list any more and that a later one has replaced.
    pub(crate) fn drop_replaced(&mut self, entry: EntryRef) {
        let queue = self.store.queue(entry);
        self.queues[queue].counters.replaced += 1;
        self.spend(entry);
    }

    /// An entry with a key leaves the queue.
    pub(crate) fn forget_last(&mut self, queue: u32, place: Place) {
        let hash = self.hash_of(place);
        if let Some(values) = &mut self.queues[queue].last_values {
            values.remove(place, hash);
        }
    }
}
