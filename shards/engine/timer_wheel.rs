//! Whose time has come?
//!
//! One wheel a shard, for the entries' timers: expiry, hold, ack deadline. An entry has one timer at a time and keeps one
//! 4-byte link to it, [`TimerId`]; the rest of a timer (deadline, both neighbours, and whatever names the entry) lies in the
//! wheel's own chunks and costs memory only while the timer runs: 16 bytes and the name. An entry that has no timer, the
//! ordinary case, so pays 4 bytes, where links inside the entry would cost it 8 and a deadline; an entry of 32 bytes with a
//! timer under a 12-byte name takes 60. Both neighbours are kept because most timers are cancelled: a year's expiry
//! on a message that is consumed at once must not hold memory for the year.
//!
//! Time is cut into ticks of [`TICK_US`]. A timer fires when the tick in which its deadline lies is over: never before its
//! deadline, and at most a tick after it. There are [`LEVELS`] levels of 64 slots, enough for every `u64` of microseconds, so no list
//! of far deadlines. A timer stands at the level of the highest digit (base 64) in which its tick differs from `current`:
//!
//! - `tick ≥ current` for every timer; one that was late when scheduled counts as due at `current`;
//! - at level 0 a slot holds one tick; at level L > 0 the slot at `current`'s digit is empty, unless it is the one that
//!   is being spread over the levels below (`spreading`);
//! - so everything at a level is due before anything at the levels above.
//!
//! Firing and spreading are counted against a budget and can stop between any two timers. Timers fire in the order of
//! their ticks, and within a tick in the order in which they were scheduled.
//!
//! Left out: what a timer means, and asking for the time.

use std::num::NonZeroU32;

/// A timer is at most this late, and never early. Well under the 10 ms that are promised, so that the loop has its part.
pub(crate) const TICK_US: u64 = 1 << TICK_BITS;

const TICK_BITS: u32 = 12;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 9;
const _: () = assert!(LEVELS as u32 * DIGIT_BITS + TICK_BITS > u64::BITS, "every deadline has a slot");

/// In a node's links: the neighbour is a slot, not a node.
const SLOT_FLAG: u32 = 1 << 31;
/// In a slot or a free list: nobody. In a node's `previous`: the node is free.
const NONE: u32 = u32::MAX;
/// Nodes in a chunk. A chunk none of whose nodes is in use is given back.
const CHUNK_NODES: usize = 512;

/// The link an entry keeps to its timer. Valid until the timer fires or is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(NonZeroU32);

/// The timers of one shard. `T` names what the timer is for; keep it to 4-byte parts, so that no padding is added.
pub(crate) struct TimerWheel<T> {
    /// Every tick before this one is over and done.
    current: u64,
    /// The level whose slot at `current`'s digit is being spread over the levels below.
    spreading: Option<usize>,
    /// Per level, a bit for each slot that holds a timer.
    occupied: [u64; LEVELS],
    slots: [Slot; LEVELS * SLOTS],
    nodes: Nodes<T>,
}

/// First and last timer of a list; both `NONE` when it is empty.
#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
}

struct Node<T> {
    /// Two halves, so that the node is aligned to four bytes.
    deadline: [u32; 2],
    previous: u32,
    next: u32,
    payload: T,
}

impl<T: Copy> TimerWheel<T> {
    pub(crate) fn new(now: u64) -> Self {
        TimerWheel {
            current: now >> TICK_BITS,
            spreading: None,
            occupied: [0; LEVELS],
            slots: [Slot { first: NONE, last: NONE }; LEVELS * SLOTS],
            nodes: Nodes::new(),
        }
    }

    /// Starts a timer. One whose deadline is over fires at the next poll.
    pub(crate) fn schedule(&mut self, deadline: u64, payload: T) -> TimerId {
        let node = self.nodes.insert(Node { deadline: split(deadline), previous: NONE, next: NONE, payload });
        self.append(self.slot_for(deadline), node);
        TimerId::from_node(node)
    }

    /// Gives a running timer another deadline.
    pub(crate) fn reschedule(&mut self, timer: TimerId, deadline: u64) {
        let node = timer.node();
        self.unlink(node);
        self.nodes.node_mut(node).deadline = split(deadline);
        self.append(self.slot_for(deadline), node);
    }

    /// Stops a running timer.
    pub(crate) fn cancel(&mut self, timer: TimerId) -> T {
        self.unlink(timer.node());
        self.nodes.remove(timer.node())
    }

    /// The next timer that is due, which is then gone. Each timer that fires or is brought nearer takes one from `budget`;
    /// `None` means that nothing is due or that the budget is used up, and [`Self::is_due`] tells which.
    pub(crate) fn poll(&mut self, now: u64, budget: &mut u32) -> Option<T> {
        let target = now >> TICK_BITS;
        while *budget > 0 {
            if let Some(level) = self.spreading {
                let node = self.slots[slot_index(level, self.current)].first;
                if node == NONE {
                    self.spreading = None;
                    continue;
                }
                *budget -= 1;
                self.bring_nearer(node);
                continue;
            }
            let node = self.slots[slot_index(0, self.current)].first;
            if node != NONE {
                if self.current > target {
                    return None;
                }
                *budget -= 1;
                self.unlink(node);
                return Some(self.nodes.remove(node));
            }
            match self.next_slot() {
                Some((level, start)) if start <= target => {
                    self.current = start;
                    self.spreading = (level > 0).then_some(level);
                }
                Some(_) | None => {
                    self.current = self.current.max(target);
                    return None;
                }
            }
        }
        None
    }

    /// Whether [`Self::poll`] has something to do.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// When to poll next: the first moment at which a timer fires, or an earlier one at which far timers are brought
    /// nearer (at most once per timer and level).
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let holds = |level| self.slots[slot_index(level, self.current)].first != NONE;
        let tick =
            if holds(0) || self.spreading.is_some_and(holds) { self.current } else { self.next_slot()?.1 };
        Some(tick.saturating_mul(TICK_US))
    }

    pub(crate) fn deadline(&self, timer: TimerId) -> u64 {
        join(self.nodes.node(timer.node()).deadline)
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.count
    }

    /// Checks every invariant, in the time of all timers.
    pub(crate) fn verify(&self) {
        let mut count = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let (level, digit) = (index / SLOTS, index as u64 % SLOTS as u64);
            let occupied = self.occupied[level] >> digit & 1 == 1;
            assert_eq!(occupied, slot.first != NONE, "level {level}, digit {digit}");
            let spread = self.spreading == Some(level) && digit_of(self.current, level) == digit;
            assert!(level == 0 || !occupied || spread || digit > digit_of(self.current, level));
            let (mut previous, mut node) = (SLOT_FLAG | index as u32, slot.first);
            while occupied && node & SLOT_FLAG == 0 {
                let stored = self.nodes.node(node);
                assert_eq!(stored.previous, previous);
                let tick = tick_of(join(stored.deadline)).max(self.current);
                let above = (level as u32 + 1) * DIGIT_BITS;
                assert_eq!(tick >> above, self.current >> above, "level {level} is too low");
                assert!(level == 0 && digit == digit_of(self.current, 0) || digit_of(tick, level) == digit);
                count += 1;
                (previous, node) = (node, stored.next);
            }
            assert_eq!(slot.last, if occupied { previous } else { NONE });
        }
        assert_eq!(count, self.nodes.count);
        self.nodes.verify();
    }

    /// The slot a new deadline belongs to. What belongs under the slot that is being spread joins its end, so that timers of one
    /// tick stay in the order in which they were scheduled.
    fn slot_for(&self, deadline: u64) -> usize {
        let tick = tick_of(deadline).max(self.current);
        match self.spreading {
            Some(level) if (tick ^ self.current) >> (level as u32 * DIGIT_BITS) == 0 => {
                slot_index(level, self.current)
            }
            Some(_) | None => self.slot_below(tick),
        }
    }

    fn slot_below(&self, tick: u64) -> usize {
        let difference = tick ^ self.current;
        let level = match difference.checked_ilog2() {
            Some(bit) => (bit / DIGIT_BITS) as usize,
            None => 0,
        };
        slot_index(level, tick)
    }

    /// Moves a timer from the slot that is being spread to where it stands from `current`.
    fn bring_nearer(&mut self, node: u32) {
        self.unlink(node);
        let tick = tick_of(join(self.nodes.node(node).deadline)).max(self.current);
        self.append(self.slot_below(tick), node);
    }

    /// The first slot in time after `current`: its level and first tick. Everything at a level is due before anything above.
    fn next_slot(&self) -> Option<(usize, u64)> {
        let level = self.occupied.iter().position(|bits| *bits != 0)?;
        let shift = level as u32 * DIGIT_BITS;
        let above = self.current >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        Some((level, above | u64::from(self.occupied[level].trailing_zeros()) << shift))
    }

    fn append(&mut self, index: usize, node: u32) {
        let end = SLOT_FLAG | index as u32;
        let slot = &mut self.slots[index];
        let last = std::mem::replace(&mut slot.last, node);
        if last == NONE {
            slot.first = node;
            self.occupied[index / SLOTS] |= 1 << (index % SLOTS);
        } else {
            self.nodes.node_mut(last).next = node;
        }
        let stored = self.nodes.node_mut(node);
        stored.previous = if last == NONE { end } else { last };
        stored.next = end;
    }

    fn unlink(&mut self, node: u32) {
        let Node { previous, next, .. } = *self.nodes.node(node);
        assert_ne!(previous, NONE, "the timer has fired or was cancelled");
        match (previous & SLOT_FLAG != 0, next & SLOT_FLAG != 0) {
            (true, true) => {
                let index = (next & !SLOT_FLAG) as usize;
                self.slots[index] = Slot { first: NONE, last: NONE };
                self.occupied[index / SLOTS] &= !(1 << (index % SLOTS));
            }
            (true, false) => {
                self.slots[(previous & !SLOT_FLAG) as usize].first = next;
                self.nodes.node_mut(next).previous = previous;
            }
            (false, true) => {
                self.slots[(next & !SLOT_FLAG) as usize].last = previous;
                self.nodes.node_mut(previous).next = next;
            }
            (false, false) => {
                self.nodes.node_mut(previous).next = next;
                self.nodes.node_mut(next).previous = previous;
            }
        }
    }
}

impl TimerId {
    fn from_node(node: u32) -> Self {
        TimerId(NonZeroU32::MIN.saturating_add(node))
    }

    fn node(self) -> u32 {
        self.0.get() - 1
    }
}

/// The first tick that begins with the deadline over: a timer fires when `now` has reached this tick.
fn tick_of(deadline: u64) -> u64 {
    deadline.div_ceil(TICK_US)
}

fn digit_of(tick: u64, level: usize) -> u64 {
    tick >> (level as u32 * DIGIT_BITS) & (SLOTS as u64 - 1)
}

fn slot_index(level: usize, tick: u64) -> usize {
    level * SLOTS + digit_of(tick, level) as usize
}

fn split(deadline: u64) -> [u32; 2] {
    [deadline as u32, (deadline >> 32) as u32]
}

fn join([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Where the nodes lie: chunks of equal size, so that growing copies nothing, and a chunk without timers is given back
/// (but for one, which spares a wheel with few timers an allocation each).
struct Nodes<T> {
    chunks: Vec<Chunk<T>>,
    /// First of the chunks that have room, and first of those whose memory was given back.
    roomy: u32,
    vacant: u32,
    count: usize,
}

/// Nodes are handed out from the free list, then by growing `nodes` up to its capacity.
struct Chunk<T> {
    nodes: Vec<Node<T>>,
    live: u32,
    /// First free node of the chunk, by offset.
    free: u32,
    /// Neighbours among the chunks that have room; `next` also links the vacant ones.
    previous: u32,
    next: u32,
}

impl<T: Copy> Nodes<T> {
    fn new() -> Self {
        Nodes { chunks: Vec::new(), roomy: NONE, vacant: NONE, count: 0 }
    }

    fn insert(&mut self, node: Node<T>) -> u32 {
        if self.roomy == NONE {
            self.add_chunk();
        }
        let index = self.roomy;
        let chunk = &mut self.chunks[index as usize];
        let offset = if chunk.free == NONE {
            chunk.nodes.push(node);
            chunk.nodes.len() as u32 - 1
        } else {
            let offset = chunk.free;
            chunk.free = std::mem::replace(&mut chunk.nodes[offset as usize], node).next;
            offset
        };
        chunk.live += 1;
        self.count += 1;
        if chunk.live as usize == CHUNK_NODES {
            self.unlink_roomy(index);
        }
        index * CHUNK_NODES as u32 + offset
    }

    fn remove(&mut self, node: u32) -> T {
        let (index, offset) = place_of(node);
        let chunk = &mut self.chunks[index];
        let stored = &mut chunk.nodes[offset];
        (stored.previous, stored.next) = (NONE, chunk.free);
        let payload = stored.payload;
        chunk.free = offset as u32;
        chunk.live -= 1;
        self.count -= 1;
        let live = chunk.live as usize;
        if live + 1 == CHUNK_NODES {
            self.link_roomy(index as u32);
        } else if live == 0 && (self.roomy != index as u32 || self.chunks[index].next != NONE) {
            self.unlink_roomy(index as u32);
            let vacant = std::mem::replace(&mut self.vacant, index as u32);
            let chunk = &mut self.chunks[index];
            (chunk.nodes, chunk.free, chunk.next) = (Vec::new(), NONE, vacant);
        }
        payload
    }

    fn node(&self, node: u32) -> &Node<T> {
        let (index, offset) = place_of(node);
        &self.chunks[index].nodes[offset]
    }

    fn node_mut(&mut self, node: u32) -> &mut Node<T> {
        let (index, offset) = place_of(node);
        &mut self.chunks[index].nodes[offset]
    }

    fn add_chunk(&mut self) {
        let index = self.vacant;
        let index = if index == NONE {
            // 2³¹ timers would be 60 GB of nodes: memory ends long before the numbers do.
            assert!((self.chunks.len() + 1) * CHUNK_NODES < SLOT_FLAG as usize, "too many timers");
            self.chunks.push(Chunk { nodes: Vec::new(), live: 0, free: NONE, previous: NONE, next: NONE });
            self.chunks.len() as u32 - 1
        } else {
            self.vacant = self.chunks[index as usize].next;
            index
        };
        self.chunks[index as usize].nodes = Vec::with_capacity(CHUNK_NODES);
        self.link_roomy(index);
    }

    fn link_roomy(&mut self, index: u32) {
        let next = std::mem::replace(&mut self.roomy, index);
        let chunk = &mut self.chunks[index as usize];
        (chunk.previous, chunk.next) = (NONE, next);
        if next != NONE {
            self.chunks[next as usize].previous = index;
        }
    }

    fn unlink_roomy(&mut self, index: u32) {
        let Chunk { previous, next, .. } = self.chunks[index as usize];
        if previous == NONE {
            self.roomy = next;
        } else {
            self.chunks[previous as usize].next = next;
        }
        if next != NONE {
            self.chunks[next as usize].previous = previous;
        }
    }

    fn verify(&self) {
        let live: usize = self.chunks.iter().map(|chunk| chunk.live as usize).sum();
        assert_eq!(live, self.count);
        let (mut roomy, mut previous, mut index) = (0, NONE, self.roomy);
        while index != NONE {
            let chunk = &self.chunks[index as usize];
            assert_eq!(chunk.previous, previous);
            assert!((chunk.live as usize) < CHUNK_NODES);
            roomy += 1;
            (previous, index) = (index, chunk.next);
        }
        let full = self.chunks.iter().filter(|chunk| chunk.live as usize == CHUNK_NODES).count();
        let vacant = self.chunks.iter().filter(|chunk| chunk.nodes.is_empty()).count();
        assert_eq!(roomy + full + vacant, self.chunks.len());
        assert!(self.chunks.iter().filter(|chunk| chunk.live == 0).count() <= vacant + 1);
    }
}

fn place_of(node: u32) -> (usize, usize) {
    (node as usize / CHUNK_NODES, node as usize % CHUNK_NODES)
}

#[cfg(test)]
#[path = "timer_wheel_tests.rs"]
mod tests;
