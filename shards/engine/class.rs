//! What do consumers share that want the same?
//!
//! A class is a filter, an origin it does not want, and an acquire mode, on one queue. Its consumers see the same next entry, so
//! the class has the cursor:
//!
//! - The *plain* class (no filter, no `no_local`) needs none: its next is the queue's first takeable entry, from `mark` on.
//! - A *filtered* class knows *candidates*: places, in order, at most `candidates_max`. Every takeable entry before `scanned_to`
//!   that matches and is not parked is among them; some of them may be gone (they are dropped when looked at).
//! - Entries that a consumer of the class refused (`undeliverable-here`) are *parked* in `parked` when the cursor meets them,
//!   so that it passes each once; its other consumers look there too.
//!
//! Every takeable entry before `mark` is parked.
//!
//! Consumers in line stand in bands by priority, highest first; in a band the one first that waits longest, or as `dispatch` says.

use std::collections::{BTreeSet, VecDeque};

use crate::consumer::{Consumer, Standing};
use crate::dispatch::ByLoad;
use crate::filter_index::IndexSlot;
use crate::ids::{Origin, Place};
use crate::list::{Chain, Links, List};
use crate::properties::AcquireMode;
use crate::selector::Filter;
use crate::slots::Slots;

/// Kinds of lists of classes.
pub(crate) struct Promise;
pub(crate) struct Scan;
pub(crate) struct Idle;
pub(crate) struct IdleAll;

pub(crate) struct Class {
    pub(crate) queue: u32,
    pub(crate) filter: Option<Filter>,
    pub(crate) no_local: Option<Origin>,
    pub(crate) mode: AcquireMode,
    pub(crate) slot: Option<IndexSlot>,
    /// Of the class table.
    pub(crate) hash: u64,

    pub(crate) consumers: u32,
    pub(crate) bands: Vec<Band>,
    /// Sums over the bands.
    pub(crate) interested: u32,
    pub(crate) notified: u32,
    /// Browsers that have seen everything.
    pub(crate) caught_up: List<Standing>,

    pub(crate) candidates: VecDeque<Place>,
    pub(crate) scan: ScanState,
    pub(crate) mark: Place,
    pub(crate) parked: BTreeSet<Place>,
    /// How many entries have been parked so far.
    pub(crate) parked_count: u64,

    pub(crate) promised: bool,
    pub(crate) promise_links: Links,
    pub(crate) scan_links: Links,
    pub(crate) idle_links: Links,
    pub(crate) idle_all_links: Links,
    /// Since when it has no consumer; none: it has, or is new.
    pub(crate) idle_since: Option<u64>,
}

/// The class's consumers of one priority.
pub(crate) struct Band {
    pub(crate) priority: i32,
    pub(crate) consumers: u32,
    pub(crate) interested: List<Standing>,
    pub(crate) notified: u32,
    pub(crate) by_load: ByLoad,
}

/// How far a filtered class knows the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanState {
    /// All of it.
    Complete,
    /// Up to this place; it goes on when candidates run low.
    Resting(Place),
    /// Up to this place, and it is going on.
    Alone(Place),
    /// Nothing yet: it waits for the next sweep.
    Waiting,
    /// Up to the queue's front.
    Sweeping,
}

/// What a class did with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Kept,
    /// It has not come that far, and will find it by scanning.
    Beyond,
    /// It is full of candidates, and knows nothing any more from this place on.
    Full {
        kept: bool,
        scanned_to: Place,
    },
}

impl Class {
    pub(crate) fn new(
        queue: u32,
        filter: Option<Filter>,
        no_local: Option<Origin>,
        mode: AcquireMode,
        hash: u64,
    ) -> Self {
        Class {
            queue,
            filter,
            no_local,
            mode,
            slot: None,
            hash,
            consumers: 0,
            bands: Vec::new(),
            interested: 0,
            notified: 0,
            caught_up: List::new(),
            candidates: VecDeque::new(),
            scan: ScanState::Complete,
            mark: Place::FIRST,
            parked: BTreeSet::new(),
            parked_count: 0,
            promised: false,
            promise_links: Links::UNLINKED,
            scan_links: Links::UNLINKED,
            idle_links: Links::UNLINKED,
            idle_all_links: Links::UNLINKED,
            idle_since: None,
        }
    }

    /// What its filter costs at most on one message.
    pub(crate) fn node_count(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::node_count)
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.filter.is_none() && self.no_local.is_none()
    }

    pub(crate) fn is_scanning(&self) -> bool {
        self.scan != ScanState::Complete
    }

    pub(crate) fn band_mut(&mut self, priority: i32) -> &mut Band {
        let position = self.bands.iter().position(|band| band.priority == priority);
        &mut self.bands[position.expect("a consumer's band is there as long as the consumer")]
    }

    /// The first in line: highest priority, then longest wait, or as `dispatch` says.
    pub(crate) fn first_in_line(&self) -> Option<u32> {
        if self.interested == 0 {
            return None;
        }
        self.bands.iter().find_map(Band::first_in_line)
    }

    /// All in line, first to last.
    pub(crate) fn line<'a>(&'a self, consumers: &'a Slots<Consumer>) -> impl Iterator<Item = u32> + use<'a> {
        self.bands.iter().flat_map(|band| band.line(consumers))
    }

    /// Up to where the class knows which entries match.
    pub(crate) fn scanned_to(&self, front: Place) -> Place {
        match self.scan {
            ScanState::Complete => Place::END,
            ScanState::Resting(place) | ScanState::Alone(place) => place,
            ScanState::Waiting => Place::FIRST,
            ScanState::Sweeping => front,
        }
    }

    /// Whether the class knows about an entry, if it matches: it has come that far, or parked it.
    pub(crate) fn knows(&self, place: Place, front: Place) -> bool {
        place < self.scanned_to(front) || self.parked.contains(&place)
    }

    /// Notes a place whose entry matches and is takeable. `is_gone` is asked about the others only when the class is full.
    pub(crate) fn offer(
        &mut self,
        place: Place,
        front: Place,
        candidates_max: usize,
        is_gone: impl Fn(Place) -> bool,
    ) -> Offer {
        if place >= self.scanned_to(front) {
            return Offer::Beyond;
        }
        let Err(mut position) = self.candidates.binary_search(&place) else {
            return Offer::Kept;
        };
        if self.candidates.len() >= candidates_max {
            self.candidates.retain(|candidate| !is_gone(*candidate));
            position = self.candidates.partition_point(|candidate| *candidate < place);
        }
        if self.candidates.len() < candidates_max {
            self.candidates.insert(position, place);
            return Offer::Kept;
        }
        if position == self.candidates.len() {
            return Offer::Full { kept: false, scanned_to: place };
        }
        self.candidates.insert(position, place);
        let highest = self.candidates.pop_back().expect("one was just inserted");
        Offer::Full { kept: true, scanned_to: highest }
    }

    /// How many entries there may be for it: exact for the plain class, else some may be gone.
    pub(crate) fn work(&self, takeable: u64) -> u64 {
        match self.is_plain() {
            true => takeable - self.parked.len() as u64,
            false => self.candidates.len() as u64,
        }
    }
}

impl Band {
    pub(crate) fn new(priority: i32) -> Self {
        Band { priority, consumers: 0, interested: List::new(), notified: 0, by_load: ByLoad::new() }
    }

    fn first_in_line(&self) -> Option<u32> {
        if self.by_load.is_empty() { self.interested.first() } else { self.by_load.line().next() }
    }

    fn line<'a>(&'a self, consumers: &'a Slots<Consumer>) -> impl Iterator<Item = u32> + use<'a> {
        let turns = self.by_load.is_empty().then(|| self.interested.iter(consumers));
        turns.into_iter().flatten().chain(self.by_load.line())
    }
}

impl Chain<Promise> for Slots<Class> {
    fn links(&self, index: u32) -> Links {
        self[index].promise_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].promise_links
    }
}

impl Chain<Scan> for Slots<Class> {
    fn links(&self, index: u32) -> Links {
        self[index].scan_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].scan_links
    }
}

impl Chain<Idle> for Slots<Class> {
    fn links(&self, index: u32) -> Links {
        self[index].idle_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].idle_links
    }
}

impl Chain<IdleAll> for Slots<Class> {
    fn links(&self, index: u32) -> Links {
        self[index].idle_all_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].idle_all_links
    }
}
