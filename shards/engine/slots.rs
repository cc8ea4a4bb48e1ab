//! Where do parts that refer to each other by index live?
//!
//! A slot's generation rises each time it is emptied, so that an id from outside that is too old is recognised. Slots are
//! reused, last emptied first; memory is what the most parts at one time needed.

use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

/// No part: the end of a list, an absent reference.
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            assert!(slot.value.is_none());
            slot.value = Some(value);
            return index;
        }
        let index = self.slots.len() as u32;
        assert_ne!(index, NONE);
        self.slots.push(Slot { generation: 0, value: Some(value) });
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> T {
        let slot = &mut self.slots[index as usize];
        let value =
            slot.value.take().expect("a part is removed once, by the one function that ends its life");
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        value
    }

    /// Whether an id from outside still names the part it was given for.
    pub(crate) fn resolves(&self, index: u32, generation: u32) -> bool {
        self.slots
            .get(index as usize)
            .is_some_and(|slot| slot.generation == generation && slot.value.is_some())
    }

    pub(crate) fn is_taken(&self, index: u32) -> bool {
        self.slots.get(index as usize).is_some_and(|slot| slot.value.is_some())
    }

    /// Above every index that is in use.
    pub(crate) fn index_end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slots[index as usize].generation
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index as u32, slot.value.as_ref()?)))
    }
}

impl<T> Index<u32> for Slots<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.slots[index as usize]
            .value
            .as_ref()
            .expect("references inside the engine end before what they refer to")
    }
}

impl<T> IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize]
            .value
            .as_mut()
            .expect("references inside the engine end before what they refer to")
    }
}

/// Removes an index from a table, and gives memory back when little of it is used.
pub(crate) fn take_out(table: &mut HashTable<u32>, hash: u64, index: u32, hash_of: impl Fn(&u32) -> u64) {
    match table.find_entry(hash, |candidate| *candidate == index) {
        Ok(found) => {
            found.remove();
        }
        Err(_) => unreachable!("what is indexed is in the table for life"),
    }
    if table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2, hash_of);
    }
}
