//! What is in a queue, and how does an operator take it out?

use crate::counters::EntryView;
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{Place, QueueId};
use crate::stored::Stored;

/// Entries `head` looks at before it contents itself with what is in reach.
const HEAD_STEPS_MAX: usize = 1024;

/// The ends of a queue's levels, at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    queue: QueueId,
    sequences: Box<[u64]>,
}

impl Ends {
    /// Whether what stands at a place of a queue was there by then.
    pub fn include(&self, queue: QueueId, place: Place) -> bool {
        let end = self.sequences.get(place.level()).copied().unwrap_or(0);
        self.queue == queue && place.sequence() < end
    }
}

impl<M: Message> Engine<M> {
    /// Everything in a queue from a place on, in the order of places, whatever its state.
    pub fn entries(
        &self,
        queue: QueueId,
        from: Place,
    ) -> impl Iterator<Item = (Place, Stored<&M>, EntryView)> {
        let queue = self.resolve_queue(queue);
        let live = queue.into_iter().flat_map(move |queue| self.live(queue, from));
        live.filter_map(|entry| {
            Some((self.store.place(entry), self.store.entry(entry).stored()?.as_ref(), self.view(entry)))
        })
    }

    /// Takes one message out of a queue, if nobody holds it.
    pub fn remove(&mut self, _now: u64, queue: QueueId, place: Place) -> Option<Stored<M>> {
        let queue = self.resolve_queue(queue)?;
        let entry = self.find(queue, place).filter(|entry| self.store.entry(*entry).is_free())?;
        self.queues[queue].counters.removed += 1;
        self.withdraw(entry);
        Some(self.remove_entry(entry))
    }

    /// When the message came that has been in a queue for longest, whatever its state. Of one that is not in memory that is known to
    /// within the 64 places around it: when the first of them came of which it is known.
    pub fn oldest(&self, queue: QueueId) -> Option<u64> {
        let queue = self.resolve_queue(queue)?;
        let trees = self.queues[queue].entries.trees.iter();
        let firsts = trees.filter_map(|tree| self.store.first_live(tree, 0));
        firsts.map(|entry| self.store.enqueued_at(entry)).min()
    }

    /// Where a queue ends now: what comes later stands behind, on each level.
    pub fn ends(&self, queue: QueueId) -> Ends {
        let trees = self.resolve_queue(queue).map(|queue| &self.queues[queue].entries.trees);
        Ends { queue, sequences: trees.into_iter().flatten().map(|tree| tree.next).collect() }
    }

    /// The first entry that is available, be it in reach of consumers or waiting in its group. Behind very many that are held,
    /// the first in reach.
    pub fn head(&self, queue: QueueId) -> Option<Place> {
        let queue = self.resolve_queue(queue)?;
        let mut live = self.live(queue, Place::FIRST).take(HEAD_STEPS_MAX);
        let head = live.find(|entry| self.store.entry(*entry).state() == State::Available);
        let head = head.or_else(|| self.queues[queue].entries.first_takeable(&self.store, Place::FIRST));
        head.map(|entry| self.store.place(entry))
    }

    /// The live entries from a place on.
    pub(crate) fn live(&self, queue: u32, from: Place) -> impl Iterator<Item = EntryRef> {
        std::iter::successors(self.first_live(queue, from), move |entry| {
            self.first_live(queue, self.store.place(*entry).next())
        })
    }

    /// The first live entry at a place or behind.
    fn first_live(&self, queue: u32, from: Place) -> Option<EntryRef> {
        let trees = self.queues[queue].entries.trees.iter().enumerate().skip(from.level());
        let mut firsts = trees.filter_map(|(level, tree)| {
            let sequence = if level == from.level() { from.sequence() } else { 0 };
            self.store.first_live(tree, sequence)
        });
        firsts.next()
    }
}
