//! Who goes first among those who can take an entry?
//!
//! The highest priority first. Among equals they take turns, or, with `Dispatch::LeastOutstanding`, the one with the fewest unsettled
//! messages goes first, and of several the one that has waited longest. A queue with that keeps its ready consumers in order
//! ([`ByLoad`], one a class and priority); after each delivery its consumer goes back into the line and the first in line is told. One
//! that finds at its pull that another comes before it gives way, as to one of higher priority. Queues without it have no such
//! order and pay nothing for it.
//!
//! - `load` = messages the consumer holds, on a queue with `LeastOutstanding`; else 0.
//! - [`ByLoad`] holds each ready consumer of its band once, on a queue with `LeastOutstanding`; else nobody.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::class::Class;
use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message};
use crate::ids::Place;
use crate::queue::Extras;

/// The lower one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    priority: Reverse<i32>,
    load: u32,
    ticket: u64,
}

/// The ready consumers of one class and priority, those in line before those notified, each by load and ticket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ByLoad {
    consumers: BTreeSet<Standing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    notified: bool,
    load: u32,
    ticket: u64,
    consumer: u32,
}

impl Rank {
    pub(crate) fn new(priority: i32, load: u32, ticket: u64) -> Self {
        Rank { priority: Reverse(priority), load, ticket }
    }

    /// Behind all of its priority.
    pub(crate) fn last_of(priority: i32) -> Self {
        Rank::new(priority, u32::MAX, u64::MAX)
    }

    pub(crate) fn priority(self) -> i32 {
        self.priority.0
    }
}

impl ByLoad {
    pub(crate) const fn new() -> Self {
        ByLoad { consumers: BTreeSet::new() }
    }

    pub(crate) fn insert(&mut self, notified: bool, load: u32, ticket: u64, consumer: u32) {
        let new = self.consumers.insert(Standing { notified, load, ticket, consumer });
        debug_assert!(new, "a consumer stands there once");
    }

    pub(crate) fn remove(&mut self, notified: bool, load: u32, ticket: u64, consumer: u32) {
        let found = self.consumers.remove(&Standing { notified, load, ticket, consumer });
        debug_assert!(found, "a consumer is found as it was put there");
    }

    pub(crate) fn clear(&mut self) {
        self.consumers.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Those in line, first to last.
    pub(crate) fn line(&self) -> impl Iterator<Item = u32> {
        self.consumers.iter().take_while(|standing| !standing.notified).map(|standing| standing.consumer)
    }

    /// Those notified, with load and ticket, first to last.
    pub(crate) fn notified(&self) -> impl Iterator<Item = (u32, u64, u32)> {
        let first = Standing { notified: true, load: 0, ticket: 0, consumer: 0 };
        self.consumers.range(first..).map(|standing| (standing.load, standing.ticket, standing.consumer))
    }

    /// Everyone, in line or notified, who goes before this rank.
    pub(crate) fn before(&self, rank: Rank) -> impl Iterator<Item = u32> {
        let part = move |notified| {
            let first = Standing { notified, load: 0, ticket: 0, consumer: 0 };
            let end = Standing { notified, load: rank.load, ticket: rank.ticket, consumer: 0 };
            self.consumers.range(first..end).map(|standing| standing.consumer)
        };
        part(false).chain(part(true))
    }
}

impl Class {
    /// Where the first of its notified consumers stands.
    pub(crate) fn notified_rank(&self) -> Option<Rank> {
        if self.notified == 0 {
            return None;
        }
        let band = self.bands.iter().find(|band| band.notified > 0)?;
        Some(match band.by_load.notified().next() {
            Some((load, ticket, _)) => Rank::new(band.priority, load, ticket),
            None => Rank::last_of(band.priority),
        })
    }

    /// The same, without those who refused the entry in question; `refused` counts them by priority.
    pub(crate) fn notified_rank_without(
        &self,
        refusing: &[u32],
        refused: impl Fn(i32) -> usize,
    ) -> Option<Rank> {
        self.bands.iter().find_map(|band| {
            if band.by_load.is_empty() {
                return (band.notified as usize > refused(band.priority))
                    .then(|| Rank::last_of(band.priority));
            }
            let (load, ticket, _) =
                band.by_load.notified().find(|(_, _, consumer)| !refusing.contains(consumer))?;
            Some(Rank::new(band.priority, load, ticket))
        })
    }
}

impl<M: Message> Engine<M> {
    /// Where a consumer stands among the ready ones.
    pub(crate) fn rank(&self, index: u32) -> Rank {
        let consumer = &self.consumers[index];
        Rank::new(consumer.priority, consumer.load, consumer.ticket)
    }

    pub(crate) fn counts_load(&self, queue: u32) -> bool {
        self.queues[queue].extras.has(Extras::LOADS)
    }

    /// A ready consumer takes its place in the order, as it is in its list now.
    pub(crate) fn join_order(&mut self, index: u32) {
        let consumer = &mut self.consumers[index];
        consumer.load = consumer.holding.count();
        let (load, ticket, notified) =
            (consumer.load, consumer.ticket, consumer.list == ConsumerList::Notified);
        let band = self.classes[consumer.class].band_mut(consumer.priority);
        band.by_load.insert(notified, load, ticket, index);
    }

    /// A ready consumer leaves the order.
    pub(crate) fn leave_order(&mut self, index: u32) {
        let consumer = &mut self.consumers[index];
        let (load, ticket, notified) =
            (consumer.load, consumer.ticket, consumer.list == ConsumerList::Notified);
        let band = self.classes[consumer.class].band_mut(consumer.priority);
        band.by_load.remove(notified, load, ticket, index);
    }

    /// A consumer of a queue with `LeastOutstanding` holds more or less than before.
    pub(crate) fn note_load(&mut self, index: u32) {
        if self.consumers[index].is_ready() {
            self.leave_order(index);
            self.join_order(index);
        }
    }

    /// What gave way to a consumer, or was given way to by it, may be for others now that it holds more or less.
    pub(crate) fn review_yields(&mut self, queue: u32) {
        if !self.queues[queue].yields.is_empty() {
            self.resume_yielded(queue, Place::FIRST..=Place::END);
        }
    }

    /// A notified consumer has got a message: if another of its class comes before it now, that one is told in its stead.
    pub(crate) fn pass_turn(&mut self, index: u32) {
        self.leave_order(index);
        self.consumers[index].ticket = self.next_ticket;
        self.next_ticket += 1;
        self.join_order(index);
        self.ring.move_to_back(&mut self.consumers, index);
        let (queue, class) = (self.consumers[index].queue, self.consumers[index].class);
        let state = &self.classes[class];
        let Some(first) = state.first_in_line() else {
            return;
        };
        if self.rank(first) > self.rank(index) || state.work(self.queues[queue].entries.takeable) == 0 {
            return;
        }
        self.transition(first, ConsumerList::Notified, Cause::MoreWork);
        // What is next in its own groups nobody else can take.
        if !self.consumers[index].owned_heads.is_empty() {
            return;
        }
        self.transition(index, ConsumerList::Interested, Cause::Served);
        // The other one can take all that this one could, save what it refused.
        let refused: Vec<Place> = self.consumers[first].refused.iter().copied().collect();
        for place in refused {
            if let Some(entry) = self.find_takeable(queue, place) {
                self.cover(entry, None);
            }
        }
    }

    /// `dispatch` has changed: the order of the ready consumers is made, or forgotten.
    pub(crate) fn reorder(&mut self, queue: u32) {
        let consumers: Vec<u32> = self.queues[queue].consumers.iter(&self.consumers).collect();
        for index in &consumers {
            let consumer = &mut self.consumers[*index];
            consumer.load = 0;
            self.classes[consumer.class].band_mut(consumer.priority).by_load.clear();
        }
        let counts = self.counts_load(queue);
        for index in consumers.into_iter().filter(|_| counts) {
            if self.consumers[index].is_ready() {
                self.join_order(index);
            }
        }
        self.resume_yielded(queue, Place::FIRST..=Place::END);
    }
}
