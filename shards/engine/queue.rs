//! What does a queue keep?
//!
//! Its entries' trees (one a level), its consumers' lists, its classes, groups and refusals. All of it is plain state: what
//! happens to it is in the modules named after the happenings (`publish`, `pull`, `settle`, `manager`, `roles`, …).
//!
//! takeable ≤ messages − acquired − held − pending − retired

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::class::{Idle, Promise, Scan};
use crate::consumer::{All, Standing};
use crate::counters::QueueCounters;
use crate::entry::EntryRef;
use crate::filter_index::FilterIndex;
use crate::group::Groups;
use crate::ids::Place;
use crate::last_value::LastValues;
use crate::limits::LEVELS;
use crate::list::{Links, List};
use crate::properties::{Dispatch, Overflow, PauseReason, QueueProperties};
use crate::room::Room;
use crate::slots::NONE;
use crate::store::{Store, Tree};

pub(crate) struct Queue {
    pub(crate) properties: QueueProperties,
    pub(crate) extras: Extras,
    /// Deleted: nobody can name it any more, its entries are dismantled in slices.
    pub(crate) deleted: bool,
    pub(crate) entries: Entries,
    pub(crate) counters: QueueCounters,

    pub(crate) consumers: List<All>,
    /// By reason; those on standby are in their bands.
    pub(crate) not_interested: [List<Standing>; PauseReason::COUNT],
    /// The priorities of its consumers, highest first.
    pub(crate) bands: Vec<QueueBand>,
    /// Consumers that are active or about to stop being so: never more than the limit, unless it was lowered.
    pub(crate) active: u32,
    /// Those of them that are about to stop.
    pub(crate) retiring: u32,

    /// The acquiring and the browsing class of those who want everything, if there were any yet.
    pub(crate) plain: u32,
    pub(crate) browse_plain: u32,
    /// The other acquiring and browsing classes.
    pub(crate) matching: Matching,
    pub(crate) browse_matching: Matching,
    pub(crate) class_count: u32,
    /// Classes without a consumer, the one idle for longest first.
    pub(crate) idle: List<Idle>,
    /// Classes with a ready consumer but without a notified one whose work is, or was, promised to other classes.
    pub(crate) promised: List<Promise>,
    /// Entry and class: a consumer of the class gave way to one of higher priority, whose class has this entry next.
    pub(crate) yields: BTreeSet<(Place, u32)>,
    pub(crate) refusals: BTreeMap<Place, Refusal>,
    pub(crate) groups: Groups,

    pub(crate) scans: Scans,
    pub(crate) late: Late,
    /// For `DropOldest`: per level, nothing before it could be dropped.
    pub(crate) drop_marks: [u64; LEVELS],
    /// For `Block`: what its producers were told.
    pub(crate) room: Room,
    /// None: no message has had a key yet.
    pub(crate) last_values: Option<Box<LastValues>>,
}

/// What a queue's properties ask for at each message beyond the ordinary, so that the message path asks once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras(u8);

/// The trees, and what they add up to.
pub(crate) struct Entries {
    /// One, or one a level once the queue has had priorities.
    pub(crate) trees: Vec<Tree>,
    /// Where new trees begin.
    base: u64,
    /// A bit for each level with takeable entries.
    takeable_levels: u16,
    pub(crate) takeable: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) acquired: u64,
    pub(crate) held: u64,
    pub(crate) pending: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) retired: u64,
}

/// The consumers of one priority.
pub(crate) struct QueueBand {
    pub(crate) priority: i32,
    pub(crate) consumers: u32,
    /// Interested or Notified.
    pub(crate) ready: u32,
    /// Active, and not about to stop.
    pub(crate) active: u32,
    pub(crate) standby: List<Standing>,
}

/// Who has said "undeliverable here" of an entry that is still in the queue.
#[derive(Default)]
pub(crate) struct Refusal {
    pub(crate) consumers: Vec<u32>,
    /// Classes that have it in their refused set.
    pub(crate) classes: Vec<u32>,
}

/// Classes that do not want everything.
pub(crate) struct Matching {
    pub(crate) index: FilterIndex<u32>,
    /// Those without a filter (`no_local` only): they are asked about every message.
    pub(crate) unfiltered: Vec<u32>,
    pub(crate) count: u32,
    /// Of all their filters.
    pub(crate) node_count: usize,
}

/// Classes that look through what was in the queue before them.
pub(crate) struct Scans {
    /// Fresh ones sweep together, so that a thousand cost one pass: those on their way, the place they have reached, and those
    /// that wait for the next pass.
    pub(crate) sweeping: List<Scan>,
    pub(crate) front: Place,
    pub(crate) waiting: List<Scan>,
    /// Those that go on from a place of their own, in turn.
    pub(crate) alone: List<Scan>,
    /// Whose turn it is, when there are both.
    pub(crate) sweep_next: bool,
    /// The next entry's message is not in memory.
    pub(crate) waits: bool,
    /// In the engine's list of queues with scans to do.
    pub(crate) links: Links,
    pub(crate) listed: bool,
}

/// What became available for the first time at a place that browsers may have passed.
pub(crate) struct Late {
    /// Ordinal and place. Compacted when most are gone, so never much longer than what is live.
    pub(crate) entries: VecDeque<(u64, Place)>,
    pub(crate) next: u64,
    pub(crate) browsers: u32,
    /// Compact when the list gets this long.
    pub(crate) compact_at: usize,
}

impl Queue {
    pub(crate) fn new(properties: QueueProperties, seed: u64) -> Self {
        Queue {
            properties,
            extras: Extras::of(&properties),
            deleted: false,
            entries: Entries::new(),
            counters: QueueCounters::default(),
            consumers: List::new(),
            not_interested: [const { List::new() }; PauseReason::COUNT],
            bands: Vec::new(),
            active: 0,
            retiring: 0,
            plain: NONE,
            browse_plain: NONE,
            matching: Matching::new(seed),
            browse_matching: Matching::new(seed),
            class_count: 0,
            idle: List::new(),
            promised: List::new(),
            yields: BTreeSet::new(),
            refusals: BTreeMap::new(),
            groups: Groups::new(),
            scans: Scans::new(),
            late: Late::new(),
            drop_marks: [0; LEVELS],
            room: Room::Enough,
            last_values: None,
        }
    }

    /// How many consumers may be active.
    pub(crate) fn active_max(&self) -> u32 {
        match (self.properties.exclusive, self.properties.consumers_max) {
            (true, _) => 1,
            (false, Some(max)) => max.max(1),
            (false, None) => u32::MAX,
        }
    }

    /// The last values, from the first message with a key on.
    pub(crate) fn last_values_mut(&mut self) -> &mut LastValues {
        self.last_values.get_or_insert_with(|| Box::new(LastValues::new()))
    }

    pub(crate) fn band_mut(&mut self, priority: i32) -> &mut QueueBand {
        let position = self.bands.iter().position(|band| band.priority == priority);
        &mut self.bands[position.expect("a consumer's band is there as long as the consumer")]
    }

    /// The highest priority that has a ready consumer.
    pub(crate) fn ready_priority(&self) -> Option<i32> {
        self.bands.iter().find(|band| band.ready > 0).map(|band| band.priority)
    }
}

impl Extras {
    /// `messages_max` or `bytes_max`.
    pub(crate) const LIMITS: Extras = Extras(1);
    /// Limits under `Overflow::Block`.
    pub(crate) const BLOCKS: Extras = Extras(1 << 1);
    /// `Overflow::DropOldest`.
    pub(crate) const DROPS: Extras = Extras(1 << 2);
    /// `Dispatch::LeastOutstanding`.
    pub(crate) const LOADS: Extras = Extras(1 << 3);
    /// `ack_deadline_us`.
    pub(crate) const DEADLINE: Extras = Extras(1 << 4);
    /// Any that concerns an acquisition, or its end.
    pub(crate) const AT_ACQUISITION: Extras = Extras(Self::LOADS.0 | Self::DEADLINE.0);
    pub(crate) const AT_RELEASE: Extras = Extras(Self::LOADS.0 | Self::DROPS.0);

    pub(crate) fn of(properties: &QueueProperties) -> Self {
        let limits = properties.messages_max.is_some() || properties.bytes_max.is_some();
        let wanted = [
            (Self::LIMITS, limits),
            (Self::BLOCKS, limits && properties.overflow == Overflow::Block),
            (Self::DROPS, properties.overflow == Overflow::DropOldest),
            (Self::DEADLINE, properties.ack_deadline_us.is_some()),
            (Self::LOADS, properties.dispatch == Dispatch::LeastOutstanding),
        ];
        Extras(wanted.iter().filter(|(_, wanted)| *wanted).fold(0, |all, (extra, _)| all | extra.0))
    }

    /// Whether it has any of these.
    pub(crate) fn has(self, extra: Extras) -> bool {
        self.0 & extra.0 != 0
    }
}

impl QueueBand {
    pub(crate) fn new(priority: i32) -> Self {
        QueueBand { priority, consumers: 0, ready: 0, active: 0, standby: List::new() }
    }
}

impl Entries {
    fn new() -> Self {
        Entries {
            trees: vec![Tree::new(0)],
            base: 0,
            takeable_levels: 0,
            takeable: 0,
            messages: 0,
            bytes: 0,
            acquired: 0,
            held: 0,
            pending: 0,
            pending_bytes: 0,
            retired: 0,
        }
    }

    /// The level for a message, highest priority first. A queue that has priorities no longer appends behind everything.
    pub(crate) fn level(&mut self, priorities: bool, priority: u8) -> usize {
        match (priorities, self.trees.len()) {
            (false, count) => count - 1,
            (true, _) => {
                self.have_levels();
                LEVELS - 1 - usize::from(priority).min(LEVELS - 1)
            }
        }
    }

    /// From now on it has a tree a level.
    pub(crate) fn have_levels(&mut self) {
        if self.trees.len() < LEVELS {
            self.trees.resize_with(LEVELS, || Tree::new(self.base));
        }
    }

    /// Sequences below this one are not given out.
    pub(crate) fn begin_at(&mut self, sequence: u64) {
        self.base = self.base.max(sequence);
        for tree in &mut self.trees {
            tree.next = tree.next.max(sequence);
        }
    }

    pub(crate) fn tree_mut(&mut self, place: Place) -> &mut Tree {
        &mut self.trees[place.level()]
    }

    pub(crate) fn set_takeable<M>(&mut self, store: &mut Store<M>, entry: EntryRef, place: Place) {
        let level = place.level();
        if store.set_takeable(&mut self.trees[level], entry) {
            self.takeable_levels |= 1 << level;
        }
        self.takeable += 1;
    }

    pub(crate) fn clear_takeable<M>(&mut self, store: &mut Store<M>, entry: EntryRef, place: Place) {
        let level = place.level();
        if store.clear_takeable(&mut self.trees[level], entry) {
            self.takeable_levels &= !(1 << level);
        }
        self.takeable -= 1;
    }

    /// The first takeable entry at `from` or behind.
    pub(crate) fn first_takeable<M>(&self, store: &Store<M>, from: Place) -> Option<EntryRef> {
        let first = from.level();
        if first >= self.trees.len() {
            return None;
        }
        let mut levels = self.takeable_levels & u16::MAX << first;
        while levels != 0 {
            let level = levels.trailing_zeros() as usize;
            let sequence = if level == first { from.sequence() } else { 0 };
            if let Some(entry) = store.first_takeable(&self.trees[level], sequence) {
                return Some(entry);
            }
            levels &= levels - 1;
        }
        None
    }

    /// Where the next entry of the lowest priority comes.
    pub(crate) fn end(&self) -> Place {
        let lowest = self.trees.len() - 1;
        Place::new(lowest, self.trees[lowest].next)
    }

    /// The entry at a place, if it is still there.
    #[inline]
    pub(crate) fn find<M>(&self, store: &Store<M>, place: Place) -> Option<EntryRef> {
        store.find(self.trees.get(place.level())?, place.sequence())
    }

    pub(crate) fn takeable_levels(&self) -> u16 {
        self.takeable_levels
    }
}

impl Matching {
    fn new(seed: u64) -> Self {
        Matching { index: FilterIndex::new(seed), unfiltered: Vec::new(), count: 0, node_count: 0 }
    }
}

impl Scans {
    fn new() -> Self {
        Scans {
            sweeping: List::new(),
            front: Place::FIRST,
            waiting: List::new(),
            alone: List::new(),
            sweep_next: false,
            waits: false,
            links: Links::UNLINKED,
            listed: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sweeping.is_empty() && self.waiting.is_empty() && self.alone.is_empty()
    }
}

impl Late {
    fn new() -> Self {
        Late { entries: VecDeque::new(), next: 0, browsers: 0, compact_at: LATE_MIN }
    }
}

/// The list of late entries is not compacted below this.
pub(crate) const LATE_MIN: usize = 64;
