//! How does a part stand in a list without an allocation?
//!
//! The links lie in the parts. `K` names which of a part's links a list uses, so that a part can be in several lists and no
//! list can be threaded through the wrong ones. Everything is O(1), the count included.

use std::marker::PhantomData;

use crate::slots::NONE;

/// A part's neighbours in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    pub(crate) const UNLINKED: Links = Links { previous: NONE, next: NONE };
}

/// The place where the links of lists of kind `K` are found.
pub(crate) trait Chain<K> {
    fn links(&self, index: u32) -> Links;
    fn links_mut(&mut self, index: u32) -> &mut Links;
}

pub(crate) struct List<K> {
    first: u32,
    last: u32,
    count: u32,
    kind: PhantomData<K>,
}

impl<K> List<K> {
    pub(crate) const fn new() -> Self {
        List { first: NONE, last: NONE, count: 0, kind: PhantomData }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, chain: &mut impl Chain<K>, index: u32) {
        *chain.links_mut(index) = Links { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = index,
            last => chain.links_mut(last).next = index,
        }
        self.last = index;
        self.count += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, chain: &mut impl Chain<K>, index: u32) {
        let Links { previous, next } = std::mem::replace(chain.links_mut(index), Links::UNLINKED);
        match previous {
            NONE => {
                assert_eq!(self.first, index, "a part is removed from the list it is in");
                self.first = next;
            }
            previous => chain.links_mut(previous).next = next,
        }
        match next {
            NONE => {
                assert_eq!(self.last, index, "a part is removed from the list it is in");
                self.last = previous;
            }
            next => chain.links_mut(next).previous = previous,
        }
        self.count -= 1;
    }

    #[inline]
    pub(crate) fn move_to_back(&mut self, chain: &mut impl Chain<K>, index: u32) {
        if self.last != index {
            self.remove(chain, index);
            self.push_back(chain, index);
        }
    }

    pub(crate) fn pop_front(&mut self, chain: &mut impl Chain<K>) -> Option<u32> {
        let first = self.first()?;
        self.remove(chain, first);
        Some(first)
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    pub(crate) fn next(chain: &impl Chain<K>, index: u32) -> Option<u32> {
        let next = chain.links(index).next;
        (next != NONE).then_some(next)
    }

    pub(crate) fn iter<'a, C: Chain<K>>(&self, chain: &'a C) -> impl Iterator<Item = u32> + use<'a, C, K> {
        std::iter::successors(self.first(), move |index| Self::next(chain, *index))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}
