//! Where do entries lie, and which one is the next?
//!
//! Entries lie in chunks of 64, found by `sequence / 64`; a chunk whose entries are all gone is given back (unless it is the one
//! that is being filled, behind others), so a stuck entry pins its own chunk and nothing else, and an empty queue has none. The chunks of one level of one queue hang in
//! a tree of 64-way nodes just high enough for the span of what is live. Each chunk has a word that tells which entries are
//! *takeable* (available, and in reach of consumers: see `group`), each node a word that tells which children have
//! one: "next takeable from here" is a few word operations, whatever lies between.
//!
//! - a node's takeable bit ⟺ the child's takeable word is not 0; its occupied bit ⟺ the child exists;
//! - a chunk exists ⟺ it has a live entry, or it is its tree's tail and not its only chunk;
//! - the root has two children or more, or is the only chunk.
//!
//! Entries are named across all queues by one `u32` (chunk and position), which is what timers and lists hold.

use crate::engine::Message;
use crate::entry::{Entry, EntryRef, State};
use crate::ids::Place;
use crate::list::Links;
use crate::slots::NONE;
use crate::stored::Stored;

const CHUNK_BITS: u32 = 6;
const FANOUT: usize = 1 << CHUNK_BITS;
const SLOT: u64 = FANOUT as u64 - 1;
/// So that chunk and position fit a `u32` and never make up `NONE`.
const CHUNKS_MAX: usize = (1 << (32 - CHUNK_BITS)) - 1;

/// The entries of one level of one queue.
pub(crate) struct Tree {
    /// A chunk when `height` is 0, else a node.
    root: u32,
    height: u32,
    /// The chunk that is being filled.
    tail: u32,
    /// The sequence of the next entry.
    pub(crate) next: u64,
    pub(crate) takeable: u64,
}

pub(crate) struct Chunk<M> {
    /// `sequence / 64`.
    number: u64,
    takeable: u64,
    live: u64,
    parent: u32,
    pub(crate) queue: u32,
    level: u8,
    /// When the first message came that is not in memory; 0: that of none is known.
    since: u64,
    room: Room<M>,
}

/// The memory of a chunk; empty when the chunk is not in use.
struct Room<M> {
    entries: Box<[Entry<M>]>,
    /// Each entry's neighbours among what one consumer holds, or in the FIFO of its group. Apart from the entries, so that taking
    /// one out of a long list does not fetch its neighbours: they are what the processor's caches have to hold.
    links: Box<[Links]>,
}

struct Node {
    takeable: u64,
    occupied: u64,
    /// The chunks' number above the part that the node tells apart.
    prefix: u64,
    parent: u32,
    children: [u32; FANOUT],
}

pub(crate) struct Store<M> {
    chunks: Vec<Chunk<M>>,
    chunks_free: Vec<u32>,
    /// Of chunks that were given back, all vacant.
    spare: Vec<Room<M>>,
    spare_max: usize,
    nodes: Vec<Node>,
    nodes_free: Vec<u32>,
    count: u64,
}

/// Which bits a search follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bits {
    Takeable,
    Live,
}

impl<M> Room<M> {
    fn new() -> Self {
        let entries = (0..FANOUT).map(|_| Entry::vacant()).collect();
        Room { entries, links: Box::new([Links::UNLINKED; FANOUT]) }
    }

    fn empty() -> Self {
        Room { entries: Box::default(), links: Box::default() }
    }
}

impl Tree {
    /// A tree whose first entry will have this sequence.
    pub(crate) fn new(next: u64) -> Self {
        Tree { root: NONE, height: 0, tail: NONE, next, takeable: 0 }
    }
}

impl<M> Store<M> {
    pub(crate) fn new(spare_max: usize) -> Self {
        Store {
            chunks: Vec::new(),
            chunks_free: Vec::new(),
            spare: Vec::new(),
            spare_max,
            nodes: Vec::new(),
            nodes_free: Vec::new(),
            count: 0,
        }
    }

    /// Takes the next place of a tree. The entry there is vacant and must be filled. None: no more chunks.
    #[inline]
    pub(crate) fn append(&mut self, tree: &mut Tree, queue: u32, level: usize) -> Option<EntryRef> {
        let (number, position) = (tree.next >> CHUNK_BITS, tree.next & SLOT);
        if tree.tail == NONE || self.chunks[tree.tail as usize].number != number {
            let chunk = self.take_chunk(number, queue, level)?;
            self.retire_tail(tree);
            self.insert_chunk(tree, chunk);
            tree.tail = chunk;
        }
        tree.next += 1;
        self.count += 1;
        self.chunks[tree.tail as usize].live |= 1 << position;
        Some(EntryRef(tree.tail << CHUNK_BITS | position as u32))
    }

    /// Empties an entry. It must not be takeable any more.
    pub(crate) fn remove(&mut self, tree: &mut Tree, entry: EntryRef) -> Stored<M> {
        let (index, position) = split(entry);
        let chunk = &mut self.chunks[index];
        assert!(chunk.takeable >> position & 1 == 0 && chunk.live >> position & 1 == 1);
        let message = chunk.room.entries[position].vacate();
        chunk.live &= !(1 << position);
        self.count -= 1;
        if chunk.live == 0 {
            if tree.tail != index as u32 {
                self.remove_chunk(tree, index as u32);
            }
            // Alone and empty, the one that is being filled goes too.
            let is_alone = tree.height == 0 && tree.tail != NONE && tree.root == tree.tail;
            if is_alone && self.chunks[tree.tail as usize].live == 0 {
                self.retire_tail(tree);
            }
        }
        message
    }

    /// Puts an entry in reach of consumers. True: it is the only one in its tree.
    pub(crate) fn set_takeable(&mut self, tree: &mut Tree, entry: EntryRef) -> bool {
        let (index, position) = split(entry);
        let chunk = &mut self.chunks[index];
        debug_assert!(chunk.takeable >> position & 1 == 0 && chunk.live >> position & 1 == 1);
        let before = chunk.takeable;
        chunk.takeable |= 1 << position;
        if before == 0 {
            let (mut slot, mut parent) = (chunk.number & SLOT, chunk.parent);
            while parent != NONE {
                let node = &mut self.nodes[parent as usize];
                let before = node.takeable;
                node.takeable |= 1 << slot;
                if before != 0 {
                    break;
                }
                (slot, parent) = (node.prefix & SLOT, node.parent);
            }
        }
        tree.takeable += 1;
        tree.takeable == 1
    }

    /// Takes an entry out of reach of consumers. True: it was the only one in its tree.
    pub(crate) fn clear_takeable(&mut self, tree: &mut Tree, entry: EntryRef) -> bool {
        let (index, position) = split(entry);
        let chunk = &mut self.chunks[index];
        debug_assert!(chunk.takeable >> position & 1 == 1);
        chunk.takeable &= !(1 << position);
        if chunk.takeable == 0 {
            let (mut slot, mut parent) = (chunk.number & SLOT, chunk.parent);
            while parent != NONE {
                let node = &mut self.nodes[parent as usize];
                node.takeable &= !(1 << slot);
                if node.takeable != 0 {
                    break;
                }
                (slot, parent) = (node.prefix & SLOT, node.parent);
            }
        }
        tree.takeable -= 1;
        tree.takeable == 0
    }

    /// Gives the first chunk of a deleted queue's tree back, with the messages in it. `forget` ends what refers to an entry.
    /// False: there are no more.
    pub(crate) fn dismantle(
        &mut self,
        tree: &mut Tree,
        mut forget: impl FnMut(&mut Entry<M>),
        mut part: impl FnMut(Place, Stored<M>),
    ) -> bool {
        self.retire_tail(tree);
        let Some(index) = self.first_chunk(tree) else {
            return false;
        };
        while let Some(position) = lowest(self.chunks[index as usize].takeable) {
            self.clear_takeable(tree, EntryRef(index << CHUNK_BITS | position));
        }
        // The removal of the last one gives the chunk back.
        let mut live = self.chunks[index as usize].live;
        while let Some(position) = lowest(live) {
            live &= live - 1;
            let entry = EntryRef(index << CHUNK_BITS | position);
            forget(self.entry_mut(entry));
            let place = self.place(entry);
            part(place, self.remove(tree, entry));
        }
        true
    }

    pub(crate) fn first_takeable(&self, tree: &Tree, from: u64) -> Option<EntryRef> {
        if tree.takeable == 0 { None } else { self.seek(tree, from, Bits::Takeable) }
    }

    pub(crate) fn first_live(&self, tree: &Tree, from: u64) -> Option<EntryRef> {
        self.seek(tree, from, Bits::Live)
    }

    /// The entry with this sequence, if it is still there.
    pub(crate) fn find(&self, tree: &Tree, sequence: u64) -> Option<EntryRef> {
        let number = sequence >> CHUNK_BITS;
        let index = if tree.tail != NONE && self.chunks[tree.tail as usize].number == number {
            tree.tail
        } else {
            self.find_chunk(tree, number)?
        };
        let position = sequence & SLOT;
        let live = self.chunks[index as usize].live >> position & 1 == 1;
        live.then_some(EntryRef(index << CHUNK_BITS | position as u32))
    }

    pub(crate) fn entry(&self, entry: EntryRef) -> &Entry<M> {
        let (index, position) = split(entry);
        &self.chunks[index].room.entries[position]
    }

    pub(crate) fn entry_mut(&mut self, entry: EntryRef) -> &mut Entry<M> {
        let (index, position) = split(entry);
        &mut self.chunks[index].room.entries[position]
    }

    pub(crate) fn links_of(&self, entry: EntryRef) -> Links {
        let (index, position) = split(entry);
        self.chunks[index].room.links[position]
    }

    pub(crate) fn links_of_mut(&mut self, entry: EntryRef) -> &mut Links {
        let (index, position) = split(entry);
        &mut self.chunks[index].room.links[position]
    }

    pub(crate) fn place(&self, entry: EntryRef) -> Place {
        let (index, position) = split(entry);
        let chunk = &self.chunks[index];
        Place::new(chunk.level as usize, chunk.number << CHUNK_BITS | position as u64)
    }

    /// The queue an entry is in.
    pub(crate) fn queue(&self, entry: EntryRef) -> u32 {
        self.chunks[split(entry).0].queue
    }

    /// Notes when a message came that is not in memory, or is about to leave it.
    pub(crate) fn note_away(&mut self, entry: EntryRef, enqueued_at: u64) {
        let since = &mut self.chunks[split(entry).0].since;
        *since = if *since == 0 { enqueued_at } else { enqueued_at.min(*since) };
    }

    pub(crate) fn is_takeable(&self, entry: EntryRef) -> bool {
        let (index, position) = split(entry);
        self.chunks[index].takeable >> position & 1 == 1
    }

    /// Entries of all queues.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Chunks in use, by all queues.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len() - self.chunks_free.len()
    }

    fn take_chunk(&mut self, number: u64, queue: u32, level: usize) -> Option<u32> {
        let index = match self.chunks_free.pop() {
            Some(index) => index,
            None if self.chunks.len() < CHUNKS_MAX => {
                let room = Room::empty();
                self.chunks.push(Chunk {
                    number: 0,
                    takeable: 0,
                    live: 0,
                    parent: NONE,
                    queue: 0,
                    level: 0,
                    since: 0,
                    room,
                });
                self.chunks.len() as u32 - 1
            }
            None => return None,
        };
        let room = self.spare.pop().unwrap_or_else(Room::new);
        let level = level as u8;
        self.chunks[index as usize] =
            Chunk { number, takeable: 0, live: 0, parent: NONE, queue, level, since: 0, room };
        Some(index)
    }

    /// The tail is full, or alone: from now on it is given back like any other, which may be at once.
    fn retire_tail(&mut self, tree: &mut Tree) {
        let tail = std::mem::replace(&mut tree.tail, NONE);
        if tail != NONE && self.chunks[tail as usize].live == 0 {
            self.remove_chunk(tree, tail);
        }
    }

    fn insert_chunk(&mut self, tree: &mut Tree, chunk: u32) {
        let number = self.chunks[chunk as usize].number;
        if tree.root == NONE {
            (tree.root, tree.height) = (chunk, 0);
            return;
        }
        while self.prefix(tree.root, tree.height) != number >> (CHUNK_BITS * tree.height) {
            let below = self.prefix(tree.root, tree.height);
            let node = self.take_node(below >> CHUNK_BITS, NONE);
            self.adopt(node, below & SLOT, tree.root, tree.height);
            (tree.root, tree.height) = (node, tree.height + 1);
        }
        let (mut node, mut height) = (tree.root, tree.height);
        while height > 1 {
            let below = number >> (CHUNK_BITS * (height - 1));
            let slot = below & SLOT;
            height -= 1;
            if self.nodes[node as usize].occupied >> slot & 1 == 0 {
                let child = self.take_node(below, node);
                self.adopt(node, slot, child, height);
            }
            node = self.nodes[node as usize].children[slot as usize];
        }
        self.adopt(node, number & SLOT, chunk, 0);
    }

    /// Hangs a child (a chunk when `height` is 0) under a node.
    fn adopt(&mut self, node: u32, slot: u64, child: u32, height: u32) {
        let takeable = match height {
            0 => {
                let chunk = &mut self.chunks[child as usize];
                chunk.parent = node;
                chunk.takeable != 0
            }
            _ => {
                let below = &mut self.nodes[child as usize];
                below.parent = node;
                below.takeable != 0
            }
        };
        let node = &mut self.nodes[node as usize];
        node.children[slot as usize] = child;
        node.occupied |= 1 << slot;
        node.takeable |= u64::from(takeable) << slot;
    }

    fn remove_chunk(&mut self, tree: &mut Tree, index: u32) {
        let chunk = &mut self.chunks[index as usize];
        assert!(chunk.live == 0 && chunk.takeable == 0);
        let room = std::mem::replace(&mut chunk.room, Room::empty());
        let (mut slot, mut parent) = (chunk.number & SLOT, chunk.parent);
        if self.spare.len() < self.spare_max {
            self.spare.push(room);
        }
        self.chunks_free.push(index);
        if parent == NONE {
            tree.root = NONE;
            return;
        }
        loop {
            let node = &mut self.nodes[parent as usize];
            node.occupied &= !(1 << slot);
            if node.occupied != 0 {
                break;
            }
            // Only the root has no parent, and it has two children: it is never emptied here.
            self.nodes_free.push(parent);
            (slot, parent) = (node.prefix & SLOT, node.parent);
        }
        while tree.height > 0 && self.nodes[tree.root as usize].occupied.is_power_of_two() {
            let node = &self.nodes[tree.root as usize];
            let child = node.children[node.occupied.trailing_zeros() as usize];
            self.nodes_free.push(tree.root);
            (tree.root, tree.height) = (child, tree.height - 1);
            match tree.height {
                0 => self.chunks[child as usize].parent = NONE,
                _ => self.nodes[child as usize].parent = NONE,
            }
        }
    }

    fn take_node(&mut self, prefix: u64, parent: u32) -> u32 {
        let node = Node { takeable: 0, occupied: 0, prefix, parent, children: [NONE; FANOUT] };
        match self.nodes_free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    fn prefix(&self, index: u32, height: u32) -> u64 {
        match height {
            0 => self.chunks[index as usize].number,
            _ => self.nodes[index as usize].prefix,
        }
    }

    fn find_chunk(&self, tree: &Tree, number: u64) -> Option<u32> {
        if tree.root == NONE || self.prefix(tree.root, tree.height) != number >> (CHUNK_BITS * tree.height) {
            return None;
        }
        let (mut index, mut height) = (tree.root, tree.height);
        while height > 0 {
            height -= 1;
            let slot = number >> (CHUNK_BITS * height) & SLOT;
            let node = &self.nodes[index as usize];
            if node.occupied >> slot & 1 == 0 {
                return None;
            }
            index = node.children[slot as usize];
        }
        Some(index)
    }

    fn first_chunk(&self, tree: &Tree) -> Option<u32> {
        if tree.root == NONE {
            return None;
        }
        let (mut index, mut height) = (tree.root, tree.height);
        while height > 0 {
            let node = &self.nodes[index as usize];
            index = node.children[node.occupied.trailing_zeros() as usize];
            height -= 1;
        }
        Some(index)
    }

    /// The first entry at `from` or behind whose bit is set.
    fn seek(&self, tree: &Tree, from: u64, bits: Bits) -> Option<EntryRef> {
        if tree.root == NONE {
            return None;
        }
        let number = from >> CHUNK_BITS;
        let (mut index, mut height) = (tree.root, tree.height);
        match self.prefix(index, height).cmp(&(number >> (CHUNK_BITS * height))) {
            std::cmp::Ordering::Less => return None,
            std::cmp::Ordering::Greater => return self.leftmost(index, height, bits),
            std::cmp::Ordering::Equal => {}
        }
        // Down along `from` as far as its path exists.
        let mut after = loop {
            if height == 0 {
                let chunk = &self.chunks[index as usize];
                let word = if bits == Bits::Takeable { chunk.takeable } else { chunk.live };
                if let Some(position) = lowest(word & u64::MAX << (from & SLOT)) {
                    return Some(EntryRef(index << CHUNK_BITS | position));
                }
                break number & SLOT;
            }
            let slot = number >> (CHUNK_BITS * (height - 1)) & SLOT;
            let node = &self.nodes[index as usize];
            let word = if bits == Bits::Takeable { node.takeable } else { node.occupied };
            if word >> slot & 1 == 0 {
                break slot;
            }
            index = node.children[slot as usize];
            height -= 1;
        };
        if height == 0 {
            index = self.chunks[index as usize].parent;
            height = 1;
        }
        // Up, until a node has a bit further on.
        while index != NONE {
            let node = &self.nodes[index as usize];
            let word = if bits == Bits::Takeable { node.takeable } else { node.occupied };
            if let Some(slot) = lowest(word & (u64::MAX << after) << 1) {
                return self.leftmost(node.children[slot as usize], height - 1, bits);
            }
            (after, index, height) = (node.prefix & SLOT, node.parent, height + 1);
        }
        None
    }

    fn leftmost(&self, mut index: u32, mut height: u32, bits: Bits) -> Option<EntryRef> {
        while height > 0 {
            let node = &self.nodes[index as usize];
            let word = if bits == Bits::Takeable { node.takeable } else { node.occupied };
            index = node.children[lowest(word)? as usize];
            height -= 1;
        }
        let chunk = &self.chunks[index as usize];
        let word = if bits == Bits::Takeable { chunk.takeable } else { chunk.live };
        // A chunk without a live entry is the tail: nothing follows it.
        lowest(word).map(|position| EntryRef(index << CHUNK_BITS | position))
    }
}

fn split(entry: EntryRef) -> (usize, usize) {
    ((entry.0 >> CHUNK_BITS) as usize, (entry.0 as u64 & SLOT) as usize)
}

fn lowest(word: u64) -> Option<u32> {
    (word != 0).then(|| word.trailing_zeros())
}

impl<M: Message> Store<M> {
    /// When a message came; of one that is not in memory, when one of its neighbours did at the latest.
    pub(crate) fn enqueued_at(&self, entry: EntryRef) -> u64 {
        let since = self.chunks[split(entry).0].since;
        self.entry(entry).message().map_or(since, Message::enqueued_at)
    }
}

impl<M> Store<M> {
    /// Checks every invariant of one tree, and answers its live entries in order.
    pub(crate) fn verify(&self, tree: &Tree, queue: u32, level: usize) -> Vec<EntryRef> {
        let mut entries = Vec::new();
        let mut takeable = 0;
        if tree.root != NONE {
            assert_eq!(self.prefix(tree.root, tree.height) >> 58, 0);
            let root = self.prefix(tree.root, tree.height);
            let mut pending = vec![(tree.root, tree.height, NONE, root)];
            while let Some((index, height, parent, prefix)) = pending.pop() {
                if height == 0 {
                    takeable += self.verify_chunk(tree, index, parent, prefix, &mut entries);
                    assert_eq!(self.chunks[index as usize].queue, queue);
                    assert_eq!(self.chunks[index as usize].level as usize, level);
                    continue;
                }
                let node = &self.nodes[index as usize];
                assert_eq!((node.parent, node.prefix), (parent, prefix));
                assert_ne!(node.occupied, 0);
                assert!(parent != NONE || !node.occupied.is_power_of_two());
                for slot in (0..FANOUT).rev().filter(|slot| node.occupied >> slot & 1 == 1) {
                    let child = node.children[slot];
                    let word = match height {
                        1 => self.chunks[child as usize].takeable,
                        _ => self.nodes[child as usize].takeable,
                    };
                    assert_eq!(node.takeable >> slot & 1 == 1, word != 0);
                    pending.push((child, height - 1, index, prefix << CHUNK_BITS | slot as u64));
                }
                assert_eq!(node.takeable & !node.occupied, 0);
            }
        }
        assert_eq!(takeable, tree.takeable);
        entries
    }

    fn verify_chunk(
        &self,
        tree: &Tree,
        index: u32,
        parent: u32,
        number: u64,
        entries: &mut Vec<EntryRef>,
    ) -> u64 {
        let chunk = &self.chunks[index as usize];
        assert_eq!((chunk.parent, chunk.number), (parent, number));
        let is_tail = tree.tail == index && tree.height > 0;
        assert!(chunk.live != 0 || is_tail, "an empty chunk is given back");
        assert_eq!(chunk.takeable & !chunk.live, 0);
        for position in 0..FANOUT {
            let entry = EntryRef(index << CHUNK_BITS | position as u32);
            let live = chunk.live >> position & 1 == 1;
            assert_eq!(live, self.entry(entry).state() != State::Vacant);
            if live {
                assert!(self.place(entry).sequence() < tree.next);
                assert_eq!(self.find(tree, self.place(entry).sequence()), Some(entry));
                entries.push(entry);
            }
        }
        u64::from(chunk.takeable.count_ones())
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
