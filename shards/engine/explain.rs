//! Why is this message not delivered? What the engine shows of itself.

use crate::counters::{ConsumerView, Depth, EngineCounters, QueueCounters};
use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::ids::{ConsumerId, Place, QueueId};

impl<M: Message> Engine<M> {
    pub fn depth(&self, queue: QueueId) -> Option<Depth> {
        let index = self.resolve_queue(queue)?;
        let entries = &self.queues[index].entries;
        let lent = self.lent.filter(|entry| self.store.queue(*entry) == index);
        Some(Depth {
            messages: entries.messages,
            bytes: entries.bytes + lent.map_or(0, |entry| self.lent_size(entry)),
            available: entries.messages - entries.acquired - entries.held,
            acquired: entries.acquired,
            held: entries.held,
        })
    }

    pub fn queue_counters(&self, queue: QueueId) -> Option<QueueCounters> {
        Some(self.queues[self.resolve_queue(queue)?].counters)
    }

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
