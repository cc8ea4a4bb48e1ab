//! How do consumers and their classes come and go?
//!
//! A class is made for the first consumer that wants just that, and kept for a while after the last: attach, receive, detach over
//! and over neither scans the queue again nor grows anything. The plain classes stay as long as the queue.

use crate::class::{Band, Class, ScanState};
use crate::consumer::{Browser, Consumer, Role};
use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::ids::{ConsumerId, Place, QueueId};
use crate::limits::LEVELS;
use crate::properties::{AcquireMode, AttachRefusal, ConsumerSpec, PauseReason};
use crate::queue::QueueBand;
use crate::slots::NONE;

impl<M: Message> Engine<M> {
    /// Adds a consumer. It starts as not interested, for lack of credit (or on standby).
    pub fn attach_consumer(
        &mut self,
        now: u64,
        queue: QueueId,
        spec: ConsumerSpec,
    ) -> Result<ConsumerId, AttachRefusal> {
        let queue = self.resolve_queue(queue).ok_or(AttachRefusal::QueueGone)?;
        self.now = now;
        if self.consumers.count() >= self.limits.consumers_max as usize {
            return Err(AttachRefusal::ConsumersFull);
        }
        let known = self.queues[queue].bands.iter().any(|band| band.priority == spec.priority);
        if !known && self.queues[queue].bands.len() >= self.limits.priorities_max {
            return Err(AttachRefusal::PrioritiesFull);
        }
        let (owner, priority) = (spec.owner, spec.priority);
        let class = self.find_class(queue, spec)?;
        let mut consumer = Consumer::new(queue, class, owner, priority, now);
        let browses = self.classes[class].mode == AcquireMode::Browse;
        if browses {
            let late = self.queues[queue].late.next;
            consumer.browser = Some(Box::new(Browser { cursors: [0; LEVELS], late }));
            self.queues[queue].late.browsers += 1;
        } else {
            consumer.role = Role::Standby;
            consumer.list = ConsumerList::NotInterested(PauseReason::Standby);
        }
        let index = self.consumers.insert(consumer);
        self.join_bands(index);
        self.queues[queue].consumers.push_back(&mut self.consumers, index);
        self.enter(index);
        self.review_roles(queue);
        Ok(self.consumer_id(index))
    }

    /// Removes a consumer. What it holds goes back to its place before anyone else is served; the delivery-count rises for
    /// `oldest_written` only, the oldest unsettled delivery that was written to its socket.
    pub fn close_consumer(&mut self, now: u64, consumer: ConsumerId, oldest_written: Option<Place>) {
        let Some(index) = self.resolve_consumer(consumer) else {
            return;
        };
        self.now = now;
        let queue = self.consumers[index].queue;
        self.consumers[index].closing = true;
        let was_notified = self.consumers[index].list == ConsumerList::Notified;
        self.retreat(index);
        while let Some(handle) = self.consumers[index].holding.first() {
            let entry = EntryRef(handle);
            self.release_hold(index, entry);
            if oldest_written == Some(self.store.place(entry)) {
                self.store.entry_mut(entry).count_failure();
                self.give_back_failed(now, entry);
            } else {
                self.give_back(now, entry);
            }
        }
        while let Some(group) = self.consumers[index].owned.first() {
            self.refresh_group(queue, group, Cause::GroupFreed);
        }
        self.withdraw_refusals(queue, index);
        if was_notified {
            self.hand_on(index);
        }
        self.give_up_role(index);
        self.remove_consumer(now, index);
        self.review_roles(queue);
    }

    /// Removes a consumer whose queue goes with it.
    pub(crate) fn discard_consumer(&mut self, index: u32) {
        self.retreat(index);
        self.remove_consumer(0, index);
    }

    /// Removes a class that has no consumers.
    pub(crate) fn forget_class(&mut self, index: u32) {
        self.set_scan(index, ScanState::Complete);
        self.wake_idle(index);
        let class = &mut self.classes[index];
        assert!(class.consumers == 0 && class.bands.is_empty());
        let (hash, parked) = (class.hash, std::mem::take(&mut class.parked));
        let queue = &mut self.queues[class.queue];
        if std::mem::replace(&mut class.promised, false) {
            queue.promised.remove(&mut self.classes, index);
        }
        for place in parked {
            if let Some(refusal) = queue.refusals.get_mut(&place) {
                refusal.classes.retain(|class| *class != index);
            }
        }
        queue.yields.retain(|(_, class)| *class != index);
        let class = self.classes.remove(index);
        let queue = &mut self.queues[class.queue];
        match (class.is_plain(), class.mode) {
            (true, AcquireMode::Acquire) => queue.plain = NONE,
            (true, AcquireMode::Browse) => queue.browse_plain = NONE,
            (false, mode) => {
                let matching = match mode {
                    AcquireMode::Acquire => &mut queue.matching,
                    AcquireMode::Browse => &mut queue.browse_matching,
                };
                matching.count -= 1;
                matching.node_count -= class.node_count();
                match class.slot {
                    Some(slot) => {
                        matching.index.remove(slot);
                    }
                    None => matching.unfiltered.retain(|class| *class != index),
                }
            }
        }
        if let Ok(found) = self.class_table.find_entry(hash, |candidate| *candidate == index) {
            found.remove();
        }
    }

    /// Moves a consumer that is going out of the way, without handing anything on.
    fn retreat(&mut self, index: u32) {
        if !matches!(self.consumers[index].list, ConsumerList::NotInterested(_)) {
            let list = ConsumerList::NotInterested(PauseReason::NoCredit);
            self.transition(index, list, Cause::Paused);
        }
    }

    /// What a consumer has refused is no longer refused by it.
    fn withdraw_refusals(&mut self, queue: u32, index: u32) {
        for place in std::mem::take(&mut self.consumers[index].refused) {
            let Some(refusal) = self.queues[queue].refusals.get_mut(&place) else {
                continue;
            };
            refusal.consumers.retain(|consumer| *consumer != index);
            if !refusal.consumers.is_empty() {
                continue;
            }
            let classes =
                self.queues[queue].refusals.remove(&place).map_or(Vec::new(), |refusal| refusal.classes);
            if let Some(entry) = self.find(queue, place) {
                self.store.entry_mut(entry).set_refused(false);
            }
            for class in classes {
                self.classes[class].parked.remove(&place);
                match self.classes[class].is_plain() {
                    true => {
                        let mark = &mut self.classes[class].mark;
                        *mark = (*mark).min(place);
                    }
                    false => {
                        self.offer(class, place);
                    }
                }
            }
        }
    }

    fn remove_consumer(&mut self, now: u64, index: u32) {
        self.leave(index);
        let queue = self.consumers[index].queue;
        self.queues[queue].consumers.remove(&mut self.consumers, index);
        self.leave_bands(index);
        let consumer = self.consumers.remove(index);
        let state = &mut self.queues[queue];
        if consumer.browser.is_some() {
            state.late.browsers -= 1;
            if state.late.browsers == 0 {
                state.late.entries.clear();
            }
        }
        let class = &mut self.classes[consumer.class];
        class.consumers -= 1;
        if class.consumers > 0 || class.is_plain() {
            return;
        }
        class.idle_since = Some(now);
        state.class_count -= 1;
        state.idle.push_back(&mut self.classes, consumer.class);
        self.idle_classes.push_back(&mut self.classes, consumer.class);
        if state.idle.count() as usize > self.limits.classes_idle_max
            && let Some(oldest) = state.idle.first()
        {
            self.forget_class(oldest);
        }
    }

    fn join_bands(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        let priority = consumer.priority;
        let bands = &mut self.queues[consumer.queue].bands;
        let position = bands.partition_point(|band| band.priority > priority);
        if bands.get(position).is_none_or(|band| band.priority != priority) {
            bands.insert(position, QueueBand::new(priority));
        }
        bands[position].consumers += 1;
        let class = &mut self.classes[consumer.class];
        let position = class.bands.partition_point(|band| band.priority > priority);
        if class.bands.get(position).is_none_or(|band| band.priority != priority) {
            class.bands.insert(position, Band::new(priority));
        }
        class.bands[position].consumers += 1;
    }

    fn leave_bands(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        let (queue, class, priority) = (consumer.queue, consumer.class, consumer.priority);
        self.queues[queue].band_mut(priority).consumers -= 1;
        self.queues[queue].bands.retain(|band| band.consumers > 0);
        self.classes[class].band_mut(priority).consumers -= 1;
        self.classes[class].bands.retain(|band| band.consumers > 0);
    }

    /// The class for what a consumer wants, made when it is new.
    fn find_class(&mut self, queue: u32, spec: ConsumerSpec) -> Result<u32, AttachRefusal> {
        let mode = match self.queues[queue].properties.non_destructive {
            true => AcquireMode::Browse,
            false => spec.mode,
        };
        let hash = self.hash_of((queue, &spec.filter, spec.no_local, mode));
        let classes = &self.classes;
        let found = self.class_table.find(hash, |index| {
            let class = &classes[*index];
            class.queue == queue
                && class.mode == mode
                && class.no_local == spec.no_local
                && class.filter == spec.filter
        });
        if let Some(index) = found.copied() {
            if self.classes[index].consumers == 0 && !self.classes[index].is_plain() {
                self.admit_class(queue)?;
                self.wake_idle(index);
            }
            self.classes[index].consumers += 1;
            return Ok(index);
        }
        let class = Class::new(queue, spec.filter, spec.no_local, mode, hash);
        if !class.is_plain() {
            self.make_room_for_filter(queue, mode, class.node_count())?;
            self.admit_class(queue)?;
        }
        let index = self.classes.insert(class);
        self.classes[index].consumers = 1;
        let classes = &self.classes;
        self.class_table.insert_unique(hash, index, |index| classes[*index].hash);
        self.introduce_class(queue, index);
        Ok(index)
    }

    /// Forgets classes without a consumer, the one idle for longest first, until there is room for a filter of so many nodes. None is
    /// forgotten for one that finds no room all the same.
    fn make_room_for_filter(
        &mut self,
        queue: u32,
        mode: AcquireMode,
        node_count: usize,
    ) -> Result<(), AttachRefusal> {
        let state = &self.queues[queue];
        let matching = match mode {
            AcquireMode::Acquire => &state.matching,
            AcquireMode::Browse => &state.browse_matching,
        };
        let mut excess = (matching.node_count + node_count).saturating_sub(self.limits.filter_nodes_max);
        let mut forgotten = Vec::new();
        for index in state.idle.iter(&self.classes).filter(|index| self.classes[*index].mode == mode) {
            if excess == 0 {
                break;
            }
            let freed = self.classes[index].node_count();
            excess = excess.saturating_sub(freed);
            forgotten.extend((freed > 0).then_some(index));
        }
        if excess > 0 {
            return Err(AttachRefusal::FiltersFull);
        }
        for index in forgotten {
            self.forget_class(index);
        }
        Ok(())
    }

    fn admit_class(&mut self, queue: u32) -> Result<(), AttachRefusal> {
        let state = &mut self.queues[queue];
        if state.class_count as usize >= self.limits.classes_max {
            return Err(AttachRefusal::ClassesFull);
        }
        state.class_count += 1;
        Ok(())
    }

    /// Makes a new class known to its queue, and lets it look at what is there.
    fn introduce_class(&mut self, queue: u32, index: u32) {
        let state = &mut self.queues[queue];
        let class = &mut self.classes[index];
        let matching = match (class.is_plain(), class.mode) {
            (true, AcquireMode::Acquire) => {
                state.plain = index;
                return;
            }
            (true, AcquireMode::Browse) => {
                state.browse_plain = index;
                return;
            }
            (false, AcquireMode::Acquire) => &mut state.matching,
            (false, AcquireMode::Browse) => &mut state.browse_matching,
        };
        matching.count += 1;
        matching.node_count += class.node_count();
        match &class.filter {
            Some(filter) => class.slot = Some(matching.index.insert(index, filter)),
            None => matching.unfiltered.push(index),
        }
        if class.mode == AcquireMode::Acquire && state.entries.takeable > 0 {
            self.set_scan(index, ScanState::Waiting);
        }
    }

    /// An idle class is wanted again, or goes for good.
    fn wake_idle(&mut self, index: u32) {
        let class = &mut self.classes[index];
        if class.idle_since.take().is_some() {
            let queue = class.queue;
            self.queues[queue].idle.remove(&mut self.classes, index);
            self.idle_classes.remove(&mut self.classes, index);
        }
    }
}
