//! Which classes might want this message?

use crate::selector::{Fields, Filter};

/// The filters of a queue's classes. `C` names a class.
pub(crate) struct FilterIndex<C> {
    classes: Vec<Option<C>>,
}

/// Where an index keeps a class; given back to remove it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSlot(u32);

impl<C: Copy> FilterIndex<C> {
    /// `seed` decides where keys lie, so that a peer who chooses them cannot choose collisions.
    pub(crate) fn new(_seed: u64) -> Self {
        FilterIndex { classes: Vec::new() }
    }

    pub(crate) fn insert(&mut self, class: C, _filter: &Filter) -> IndexSlot {
        self.classes.push(Some(class));
        IndexSlot(self.classes.len() as u32 - 1)
    }

    pub(crate) fn remove(&mut self, slot: IndexSlot) -> C {
        self.classes[slot.0 as usize].take().expect("a slot is removed once")
    }

    /// Yields every class whose filter might match, each at most once, in no particular order. The caller evaluates the whole filter.
    pub(crate) fn candidates(&self, _fields: &impl Fields, mut visit: impl FnMut(C)) {
        self.classes.iter().flatten().for_each(|class| visit(*class));
    }
}
