//! What do the participants share?
//!
//! For each receiver a *desk*: words of bits that say whose lanes are to be looked at, and whether it sleeps. For each
//! ordered pair and kind a lane, made when its first mail is posted. Who may write what:
//!
//! | field | written by |
//! |---|---|
//! | `posted`, the slots' tail | the lane's sender |
//! | `taken`, the slots' head | the lane's receiver |
//! | `room_wanted` | the sender sets, the receiver clears |
//! | a desk's bit | one other participant sets, the desk's owner clears |
//! | `sleeping` | the desk's owner |
//!
//! The orderings are argued where they stand, in `port.rs`, and checked by the model in `tests/model.rs`.

use crate::sync::{AtomicBool, AtomicU64, Ordering, Slots, fence};
use crate::{Lane, Port};
use crossbeam_utils::CachePadded;
use std::sync::{Arc, OnceLock};

/// Bits in a desk's word; one for each participant.
pub(crate) const WORD_BITS: usize = u64::BITS as usize;

/// The kinds of bits on a desk: one for each lane, and one that says there is room again in a lane that was full.
pub(crate) const BIT_KINDS: usize = 3;
pub(crate) const ROOM: usize = 2;

/// All lanes between a fixed number of participants.
pub struct Mailboxes<T> {
    participants: usize,
    capacity: usize,
    desks: Box<[Desk]>,
    /// By receiver, sender and kind.
    lanes: Box<[OnceLock<Box<LaneState<T>>>]>,
}

pub(crate) struct Desk {
    /// Whether its owner must be rung to look at what follows.
    sleeping: CachePadded<AtomicBool>,
    /// By participant / 64 and kind of bit: one cache line serves 64 participants.
    words: Box<[CachePadded<[AtomicU64; BIT_KINDS]>]>,
}

pub(crate) struct LaneState<T> {
    pub(crate) slots: Slots<T>,
    /// How many pieces of mail the sender has completely put in, ever.
    pub(crate) posted: CachePadded<AtomicU64>,
    /// How many the receiver has completely taken out, ever.
    pub(crate) taken: CachePadded<AtomicU64>,
    /// The sender has mail that does not fit.
    pub(crate) room_wanted: CachePadded<AtomicBool>,
}

impl<T: Send> Mailboxes<T> {
    /// Ports for `participants` participants, each lane holding up to `capacity` pieces of mail. More than that waits
    /// in the sender's outbox.
    #[expect(clippy::new_ret_no_self, reason = "what is shared is only ever reached through the ports")]
    pub fn new(participants: usize, capacity: usize) -> Vec<Port<T>> {
        assert!(participants > 0 && capacity > 0, "mailboxes need someone to write and room to write to");
        let mailboxes = Arc::new(Mailboxes {
            participants,
            capacity,
            desks: (0..participants).map(|_| Desk::new(participants)).collect(),
            lanes: (0..participants * participants * Lane::ALL.len()).map(|_| OnceLock::new()).collect(),
        });
        (0..participants).map(|index| Port::new(index, Arc::clone(&mailboxes))).collect()
    }
}

impl<T> Mailboxes<T> {
    pub(crate) fn participants(&self) -> usize {
        self.participants
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn desk(&self, owner: usize) -> &Desk {
        &self.desks[owner]
    }

    /// For its sender: made on first use.
    pub(crate) fn lane_of_sender(&self, from: usize, to: usize, lane: Lane) -> &LaneState<T> {
        self.lanes[self.position(from, to, lane)].get_or_init(|| Box::new(LaneState::new(self.capacity)))
    }

    /// For its receiver: absent until something was posted.
    pub(crate) fn lane_of_receiver(&self, from: usize, to: usize, lane: Lane) -> Option<&LaneState<T>> {
        self.lanes[self.position(from, to, lane)].get().map(|state| &**state)
    }

    fn position(&self, from: usize, to: usize, lane: Lane) -> usize {
        (to * self.participants + from) * Lane::ALL.len() + lane.index()
    }
}

impl<T> LaneState<T> {
    fn new(capacity: usize) -> Self {
        LaneState {
            slots: Slots::new(capacity),
            posted: CachePadded::new(AtomicU64::new(0)),
            taken: CachePadded::new(AtomicU64::new(0)),
            room_wanted: CachePadded::new(AtomicBool::new(false)),
        }
    }
}

impl Desk {
    fn new(participants: usize) -> Self {
        let word = || CachePadded::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        Desk {
            sleeping: CachePadded::new(AtomicBool::new(false)),
            words: (0..participants.div_ceil(WORD_BITS)).map(|_| word()).collect(),
        }
    }

    /// Tells the desk's owner that participant `from` has done something (put mail in a lane, made room in one).
    /// True: the owner may be asleep and must be rung.
    pub(crate) fn mark(&self, from: usize, kind: usize) -> bool {
        let word = &self.words[from / WORD_BITS][kind];
        let bit = 1 << (from % WORD_BITS);
        // What was done before this fence is seen by an owner whose fence in `claim` or `fall_asleep` comes later; an
        // owner whose fence came earlier has already written what we read below.
        fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) & bit != 0 {
            // Only we set this bit: whoever set it was us, and has rung if that was needed. An owner that has yet to
            // clear it fences between that and looking into the lane, so it finds the new mail too; and it cannot fall
            // asleep over it.
            return false;
        }
        word.fetch_or(bit, Ordering::Release);
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Moves the shared bits of one word and kind to the owner.
    pub(crate) fn claim(&self, word: usize, kind: usize) -> u64 {
        let word = &self.words[word][kind];
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let bits = word.swap(0, Ordering::Acquire);
        fence(Ordering::SeqCst);
        bits
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.words.iter().flat_map(|word| word.iter()).any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// False: there is something to do first.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        // Against the second fence in `mark`: either we see the bit, or its writer sees that we sleep.
        fence(Ordering::SeqCst);
        let marked = self.is_marked();
        if marked {
            self.awake();
        }
        !marked
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}
