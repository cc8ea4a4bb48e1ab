//! What does the engine keep about one consumer?
//!
//! It stands in exactly one list of the consumer manager ([`ConsumerList`]) and in its queue's list of all consumers. Which list
//! is decided by `manager` alone.

use std::collections::{BTreeSet, VecDeque};

use crate::counters::{Cause, ConsumerList};
use crate::entry::EntryRef;
use crate::group::OwnedBy;
use crate::ids::Place;
use crate::limits::LEVELS;
use crate::list::{Chain, Links, List};
use crate::properties::{Desire, PauseReason};
use crate::slots::Slots;

/// The list of all consumers of a queue.
pub(crate) struct All;
/// The one list of the consumer manager a consumer is in; a notified one's is the delivery ring.
pub(crate) struct Standing;
/// The entries a consumer holds.
pub(crate) struct Holding;

pub(crate) struct Consumer {
    pub(crate) queue: u32,
    pub(crate) class: u32,
    pub(crate) owner: u64,
    pub(crate) priority: i32,

    pub(crate) list: ConsumerList,
    pub(crate) standing_links: Links,
    pub(crate) all_links: Links,
    /// Drawn when it enters Interested; the lowest has waited longest.
    pub(crate) ticket: u64,
    /// What it stands for in the order of those who are ready, where that counts (see `dispatch`).
    pub(crate) load: u32,
    pub(crate) desire: Desire,
    pub(crate) role: Role,
    /// A flow has arrived since the last delivery was settled (`Prefetch::None`).
    pub(crate) armed: bool,
    /// Somebody waits to be told that there is nothing.
    pub(crate) pull_requested: bool,
    /// On its way out: nothing may be given to it.
    pub(crate) closing: bool,

    pub(crate) holding: List<Holding>,
    /// Entries that it retired and whose transactions are open.
    pub(crate) retired_count: u32,
    /// Groups it owns.
    pub(crate) owned: List<OwnedBy>,
    /// Entries in line in those.
    pub(crate) owned_waiting: u64,
    /// First entry and group, of the groups it owns whose first entry it can take.
    pub(crate) owned_heads: BTreeSet<(Place, u32)>,
    pub(crate) refused: BTreeSet<Place>,
    /// When the class had parked so many entries, this one refused all that were parked before this place.
    pub(crate) parked_seen: (u64, Place),
    pub(crate) browser: Option<Box<Browser>>,

    pub(crate) wake_count: u64,
    pub(crate) delivered_count: u64,
    pub(crate) last_cause: Cause,
    /// When it came into its list.
    pub(crate) since: u64,
}

/// A consumer's part on a queue that limits how many are active. Elsewhere all are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Active,
    /// One of higher priority waits for its place: no new messages, until what it holds is settled.
    Outranked,
    /// The same by an operator's hand-over, which is not taken back.
    Leaving,
    Standby,
}

/// How far a browser has come.
pub(crate) struct Browser {
    /// Per level, the sequence of the next entry to look at.
    pub(crate) cursors: [u64; LEVELS],
    /// The ordinal of the next late entry to look at.
    pub(crate) late: u64,
}

impl Browser {
    /// Where the late entries begin that it has not looked at.
    pub(crate) fn unread_late(&self, late: &VecDeque<(u64, Place)>) -> usize {
        late.partition_point(|(ordinal, _)| *ordinal < self.late)
    }
}

impl Consumer {
    pub(crate) fn new(queue: u32, class: u32, owner: u64, priority: i32, since: u64) -> Self {
        Consumer {
            queue,
            class,
            owner,
            priority,
            list: ConsumerList::NotInterested(PauseReason::NoCredit),
            standing_links: Links::UNLINKED,
            all_links: Links::UNLINKED,
            ticket: 0,
            load: 0,
            desire: Desire::Paused(PauseReason::NoCredit),
            role: Role::Active,
            armed: false,
            pull_requested: false,
            closing: false,
            holding: List::new(),
            retired_count: 0,
            owned: List::new(),
            owned_waiting: 0,
            owned_heads: BTreeSet::new(),
            refused: BTreeSet::new(),
            parked_seen: (0, Place::FIRST),
            browser: None,
            wake_count: 0,
            delivered_count: 0,
            last_cause: Cause::Attached,
            since,
        }
    }

    pub(crate) fn unsettled_count(&self) -> u32 {
        self.holding.count()
    }

    /// Whether something of it may still come back to the queue.
    pub(crate) fn is_occupied(&self) -> bool {
        self.unsettled_count() > 0 || self.retired_count > 0
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.list, ConsumerList::Interested | ConsumerList::Notified)
    }
}

impl Chain<All> for Slots<Consumer> {
    fn links(&self, index: u32) -> Links {
        self[index].all_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].all_links
    }
}

impl Chain<Standing> for Slots<Consumer> {
    fn links(&self, index: u32) -> Links {
        self[index].standing_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].standing_links
    }
}

impl<M> Chain<Holding> for crate::store::Store<M> {
    fn links(&self, index: u32) -> Links {
        self.links_of(EntryRef(index))
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        self.links_of_mut(EntryRef(index))
    }
}
