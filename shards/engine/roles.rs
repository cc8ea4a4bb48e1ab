//! Which consumers are active, on a queue that limits them?
//!
//! As many as the limit allows, of the highest priority, and among equals in the order in which they attached or were handed
//! over. The others stand by. One that is outranked gets no new messages; when what it holds is settled, in whatever way,
//! and no open transaction has any of it, it steps down and the next is promoted. Promotion makes nobody ready that is not.

use crate::consumer::Role;
use crate::counters::ConsumerList;
use crate::engine::{Engine, Message};
use crate::ids::ConsumerId;
use crate::list::List;
use crate::properties::PauseReason;

impl<M: Message> Engine<M> {
    /// The operator's hand-over: an active consumer of a queue that limits them goes to the end of the standbys of its
    /// priority, if there is one to take over. What it holds stays with it; the next starts when that is settled.
    pub fn hand_over(&mut self, now: u64, consumer: ConsumerId) {
        self.now = now;
        if let Some(index) = self.resolve_consumer(consumer)
            && self.consumers[index].role == Role::Active
            && self.consumers[index].browser.is_none()
            && self.first_standby(self.consumers[index].queue).is_some()
        {
            self.relieve(index, Role::Leaving);
        }
    }

    /// Promotes, outranks and reinstates until the right consumers are active.
    pub(crate) fn review_roles(&mut self, queue: u32) {
        while self.change_role(queue) {}
    }

    /// A consumer that was to stop being active has nothing any more that may come back.
    pub(crate) fn step_down(&mut self, index: u32) {
        let queue = self.consumers[index].queue;
        self.queues[queue].active -= 1;
        self.queues[queue].retiring -= 1;
        self.set_role(index, Role::Standby);
        self.review_roles(queue);
    }

    /// A consumer is going for good.
    pub(crate) fn give_up_role(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        let (role, priority) = (consumer.role, consumer.priority);
        if consumer.browser.is_some() {
            return;
        }
        let queue = &mut self.queues[consumer.queue];
        match role {
            Role::Active => {
                queue.active -= 1;
                queue.band_mut(priority).active -= 1;
            }
            Role::Outranked | Role::Leaving => {
                queue.active -= 1;
                queue.retiring -= 1;
            }
            Role::Standby => {}
        }
    }

    /// One step towards the right consumers being active; false: they are.
    fn change_role(&mut self, queue: u32) -> bool {
        let state = &self.queues[queue];
        let max = state.active_max();
        let standby = self.first_standby(queue);
        if state.active < max
            && let Some(index) = standby
        {
            self.promote(index);
            return true;
        }
        let staying = state.active - state.retiring;
        let lowest = state.bands.iter().rev().find(|band| band.active > 0).map(|band| band.priority);
        if let Some(lowest) = lowest {
            let outranking: u32 = state
                .bands
                .iter()
                .filter(|band| band.priority > lowest)
                .map(|band| band.standby.count())
                .sum();
            if staying > max || outranking > state.retiring {
                return self.outrank_one(queue, lowest);
            }
        }
        let outranked = self.reinstatable(queue, standby);
        if staying < max
            && let Some(index) = outranked
        {
            self.queues[queue].retiring -= 1;
            self.activate(index);
            return true;
        }
        false
    }

    /// Takes the part of the latest active consumer of a priority.
    fn outrank_one(&mut self, queue: u32, priority: i32) -> bool {
        let candidates = self.queues[queue].consumers.iter(&self.consumers).filter(|index| {
            let consumer = &self.consumers[*index];
            consumer.role == Role::Active && consumer.priority == priority && consumer.browser.is_none()
        });
        if let Some(index) = candidates.last() {
            self.relieve(index, Role::Outranked);
            return true;
        }
        false
    }

    /// One that was outranked, by somebody who is not there any more.
    fn reinstatable(&self, queue: u32, standby: Option<u32>) -> Option<u32> {
        let retiring: &List<_> = &self.queues[queue].not_interested[PauseReason::Standby as usize];
        let above = standby.map(|index| self.consumers[index].priority);
        retiring.iter(&self.consumers).find(|index| {
            let consumer = &self.consumers[*index];
            consumer.role == Role::Outranked && Some(consumer.priority) >= above
        })
    }

    fn promote(&mut self, index: u32) {
        let queue = self.consumers[index].queue;
        self.queues[queue].active += 1;
        self.activate(index);
    }

    fn activate(&mut self, index: u32) {
        let consumer = &self.consumers[index];
        let (queue, priority) = (consumer.queue, consumer.priority);
        self.queues[queue].band_mut(priority).active += 1;
        self.set_role(index, Role::Active);
        self.review(index);
    }

    fn relieve(&mut self, index: u32, role: Role) {
        let consumer = &self.consumers[index];
        let (queue, priority) = (consumer.queue, consumer.priority);
        self.queues[queue].band_mut(priority).active -= 1;
        self.queues[queue].retiring += 1;
        self.set_role(index, role);
        self.review(index);
        if !self.consumers[index].is_occupied() {
            self.step_down(index);
        }
    }

    /// Changes a consumer's part. Standbys stand in lists of their own, so it may change places too.
    fn set_role(&mut self, index: u32, role: Role) {
        let standing = self.consumers[index].list == ConsumerList::NotInterested(PauseReason::Standby);
        if standing {
            self.leave(index);
        }
        self.consumers[index].role = role;
        if standing {
            self.enter(index);
        }
    }

    fn first_standby(&self, queue: u32) -> Option<u32> {
        self.queues[queue].bands.iter().find_map(|band| band.standby.first())
    }
}
