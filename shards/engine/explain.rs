//! Why is this message not delivered? What the engine shows of itself.

use crate::consumer::Browser;
use crate::counters::{ConsumerView, Depth, EngineCounters, EntryState, EntryView, QueueCounters, Verdict};
use crate::engine::{Engine, Message};
use crate::entry::{EntryRef, State};
use crate::ids::{ConsumerId, Place, QueueId};
use crate::selector::Filter;
use crate::slots::NONE;

impl<M: Message> Engine<M> {
    /// How full a queue is; none: there is no such queue (any more).
    pub fn depth(&self, queue: QueueId) -> Option<Depth> {
        let index = self.resolve_queue(queue)?;
        let entries = &self.queues[index].entries;
        let lent = self.lent.filter(|entry| self.store.queue(*entry) == index);
        Some(Depth {
            messages: entries.messages,
            bytes: entries.bytes + lent.map_or(0, |entry| self.size_of(entry)),
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

    /// The queue that a consumer is attached to.
    pub fn queue_of(&self, consumer: ConsumerId) -> Option<QueueId> {
        Some(self.queue_id(self.consumers[self.resolve_consumer(consumer)?].queue))
    }

    /// The consumer with this index in its id, whichever it is now.
    pub fn consumer_at(&self, index: u32) -> Option<ConsumerId> {
        self.consumers.is_taken(index).then(|| self.consumer_id(index))
    }

    /// Above the indices of all consumers.
    pub fn consumer_index_end(&self) -> u32 {
        self.consumers.index_end()
    }

    /// What a consumer has held for longest.
    pub fn oldest_held(&self, consumer: ConsumerId) -> Option<Place> {
        let first = self.consumers[self.resolve_consumer(consumer)?].holding.first()?;
        Some(self.store.place(EntryRef(first)))
    }

    /// What an entry is doing; none: it is not in the queue (any more).
    pub fn explain_entry(&self, queue: QueueId, place: Place) -> Option<EntryView> {
        let queue = self.resolve_queue(queue)?;
        Some(self.view(self.find(queue, place)?))
    }

    pub(crate) fn view(&self, entry: EntryRef) -> EntryView {
        let (stored, place) = (self.store.entry(entry), self.store.place(entry));
        let queue = &self.queues[self.store.queue(entry)];
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
        EntryView {
            state,
            group_owner: owner,
            delivery_count: stored.delivery_count(),
            acquired_count: stored.acquired_count(),
            expires_at: stored.expires_at(),
            held_until: match stored.state() {
                State::Held => stored.timer.map(|timer| self.wheel.deadline(timer)),
                State::Pending => stored.held_until(),
                State::Available | State::Acquired | State::Retired | State::Vacant => None,
            },
            refused_count: queue.refusals.get(&place).map_or(0, |refusal| refusal.consumers.len()),
        }
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
            _ if state.browser.as_ref().is_some_and(|it| self.has_passed(state.queue, it, place)) => {
                Verdict::Seen
            }
            _ if state.browser.is_some() => Verdict::Takes,
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
        let index = self.resolve_consumer(consumer)?;
        let consumer = &self.consumers[index];
        let (cursor, lag) = match &consumer.browser {
            Some(browser) => self.browser_cursor(consumer.queue, browser),
            None => self.class_cursor(consumer.class),
        };
        let class = &self.classes[consumer.class];
        Some(ConsumerView {
            queue: self.queue_id(consumer.queue),
            owner: consumer.owner,
            priority: consumer.priority,
            list: consumer.list,
            cause: consumer.last_cause,
            since: consumer.since,
            class: consumer.class,
            cursor,
            lag: lag + consumer.owned_waiting,
            wake_count: consumer.wake_count,
            delivered_count: consumer.delivered_count,
            unsettled_count: consumer.unsettled_count(),
            refused_count: consumer.refused.len(),
            class_consumers: class.consumers,
            scanning: class.is_scanning(),
        })
    }

    /// Whether a browser has seen an entry, or has gone by.
    fn has_passed(&self, queue: u32, browser: &Browser, place: Place) -> bool {
        let late = &self.queues[queue].late.entries;
        let is_to_come = || late.range(browser.unread_late(late)..).any(|(_, other)| *other == place);
        place.sequence() < browser.cursors[place.level()] && !is_to_come()
    }

    /// The groups that belong to a consumer, each with how many messages of it the consumer holds, and how many wait for it.
    pub fn groups_of(&self, consumer: ConsumerId) -> impl Iterator<Item = (&str, u32, u64)> {
        let consumer = self.resolve_consumer(consumer).map(|index| &self.consumers[index]);
        consumer.into_iter().flat_map(|consumer| {
            let groups = &self.queues[consumer.queue].groups.groups;
            let told = |group: u32| (groups[group].name(), groups[group].unsettled, groups[group].waiting());
            consumer.owned.iter(groups).map(told)
        })
    }

    /// What a consumer's filter says; none: it has none.
    pub fn filter_text(&self, consumer: ConsumerId) -> Option<String> {
        let class = self.consumers[self.resolve_consumer(consumer)?].class;
        self.classes[class].filter.as_ref().map(Filter::to_string)
    }

    /// Where the consumers of a class look next, and how much there may be for them.
    fn class_cursor(&self, class: u32) -> (Place, u64) {
        let state = &self.classes[class];
        let queue = &self.queues[state.queue];
        let takeable = queue.entries.takeable;
        if state.is_plain() {
            let first = queue.entries.first_takeable(&self.store, state.mark);
            let cursor = first.map_or_else(|| queue.entries.end(), |entry| self.store.place(entry));
            return (cursor, state.work(takeable));
        }
        let first = state.candidates.iter().find(|place| self.find_takeable(state.queue, **place).is_some());
        let scanned_to = state.scanned_to(queue.scans.front).min(queue.entries.end());
        let lag = if state.is_scanning() { takeable } else { state.work(takeable) };
        (first.copied().unwrap_or(scanned_to), lag)
    }

    /// Where a browser looks next, and how much it has not passed.
    fn browser_cursor(&self, queue: u32, browser: &Browser) -> (Place, u64) {
        let queue = &self.queues[queue];
        let ahead = |level: usize| queue.entries.trees[level].next.saturating_sub(browser.cursors[level]);
        let levels = 0..queue.entries.trees.len();
        let level = levels.clone().find(|level| ahead(*level) > 0).unwrap_or(levels.end - 1);
        let late = &queue.late.entries;
        let lag = levels.map(ahead).sum::<u64>() + (late.len() - browser.unread_late(late)) as u64;
        (Place::new(level, browser.cursors[level]), lag.min(queue.entries.messages))
    }
}
