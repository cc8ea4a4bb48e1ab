//! Why is this message not delivered? What the engine shows of itself.

use crate::counters::{ConsumerView, Depth, EngineCounters, EntryState, EntryView, QueueCounters, Verdict};
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{ConsumerId, Place, QueueId};
use crate::slots::NONE;

impl<M: Message> Engine<M> {
    /// How full a queue is; none: there is no such queue (any more).
    pub fn depth(&self, queue: QueueId) -> Option<Depth> {
        let index = self.resolve_queue(queue)?;
        let entries = &self.queues[index].entries;
        let lent = self.lent.filter(|entry| self.store.queue(*entry) == index);
        Some(Depth {
            messages: entries.messages,
            bytes: entries.bytes + lent.map_or(0, |entry| self.lent_size(entry)),
            available: entries.messages - entries.acquired - entries.held - entries.pending - entries.retired,
            acquired: entries.acquired,
            held: entries.held,
            pending: entries.pending,
            retired: entries.retired,
        })
    }

    /// What happened in a queue since it was declared.
    pub fn queue_counters(&self, queue: QueueId) -> Option<QueueCounters> {
        Some(self.queues[self.resolve_queue(queue)?].counters)
    }

    /// What happened in the engine since it began.
    pub fn counters(&self) -> EngineCounters {
        self.counters
    }

    /// Chunks of 64 entries that are in use, by all queues: what entries take in memory.
    pub fn chunk_count(&self) -> usize {
        self.store.chunk_count()
    }

    /// A queue's consumers, in the order they attached.
    pub fn consumers(&self, queue: QueueId) -> impl Iterator<Item = ConsumerId> {
        let queue = self.resolve_queue(queue);
        let consumers =
            queue.into_iter().flat_map(|queue| self.queues[queue].consumers.iter(&self.consumers));
        consumers.map(|index| self.consumer_id(index))
    }

    /// What a consumer was attached with as its owner.
    pub fn owner(&self, consumer: ConsumerId) -> Option<u64> {
        Some(self.consumers[self.resolve_consumer(consumer)?].owner)
    }

    /// What a consumer has held for longest.
    pub fn oldest_held(&self, consumer: ConsumerId) -> Option<Place> {
        let first = self.consumers[self.resolve_consumer(consumer)?].holding.first()?;
        Some(self.store.place(EntryRef(first)))
    }

    /// What an entry is doing; none: it is not in the queue (any more).
    pub fn explain_entry(&self, queue: QueueId, place: Place) -> Option<EntryView> {
        let index = self.resolve_queue(queue)?;
        let entry = self.find(index, place)?;
        let stored = self.store.entry(entry);
        let queue = &self.queues[index];
        let group = (stored.group != NONE).then(|| &queue.groups.groups[stored.group]);
        let state = match stored.state() {
            State::Available if group.is_some_and(|group| group.holds_back(&self.store, place)) => {
                EntryState::BehindInGroup
            }
            State::Available | State::Vacant => EntryState::Available,
            State::Held => EntryState::Held,
            State::Acquired => EntryState::Acquired(self.consumer_id(stored.holder)),
            State::Pending => EntryState::Pending,
            State::Retired => EntryState::Retired(stored.retired_by()),
        };
        let owner = group.filter(|group| group.owner != NONE).map(|group| self.consumer_id(group.owner));
        Some(EntryView {
            state,
            group_owner: owner,
            delivery_count: stored.delivery_count(),
            acquired_count: stored.acquired_count(),
            expires_at: stored.expires_at(),
            refused_count: queue.refusals.get(&place).map_or(0, |refusal| refusal.consumers.len()),
        })
    }

    /// Why a consumer does, or does not, get an entry.
    pub fn verdict(&self, consumer: ConsumerId, place: Place) -> Option<Verdict> {
        let state = &self.consumers[self.resolve_consumer(consumer)?];
        let view = self.explain_entry(self.queue_id(state.queue), place)?;
        let entry = self.find(state.queue, place)?;
        let class = &self.classes[state.class];
        let own = class.no_local == Some(self.store.entry(entry).origin());
        Some(match (view.state, view.group_owner) {
            (EntryState::Held | EntryState::Acquired(_), _) => Verdict::NotAvailable,
            (EntryState::Pending | EntryState::Retired(_), _) => Verdict::NotAvailable,
            _ if own => Verdict::OwnMessage,
            _ if !self.matches(state.class, entry) => Verdict::FilteredOut,
            _ if state.refused.contains(&place) => Verdict::Refused,
            (_, Some(owner)) if owner != consumer => Verdict::GroupOf(owner),
            (EntryState::BehindInGroup, _) => Verdict::BehindInGroup,
            (EntryState::Available, None) if !class.knows(place, self.queues[state.queue].scans.front) => {
                Verdict::Scanning
            }
            (EntryState::Available, _) => Verdict::Takes,
        })
    }

    /// Where a consumer stands and why.
    pub fn explain(&self, consumer: ConsumerId) -> Option<ConsumerView> {
        let consumer = &self.consumers[self.resolve_consumer(consumer)?];
        let class = &self.classes[consumer.class];
        Some(ConsumerView {
            queue: self.queue_id(consumer.queue),
            owner: consumer.owner,
            priority: consumer.priority,
            list: consumer.list,
            cause: consumer.last_cause,
            wake_count: consumer.wake_count,
            delivered_count: consumer.delivered_count,
            unsettled_count: consumer.unsettled_count(),
            refused_count: consumer.refused.len(),
            class_consumers: class.consumers,
            scanning: class.is_scanning(),
        })
    }
}
