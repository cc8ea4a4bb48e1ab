//! Who may take the next message of a group?

use crate::counters::{Cause, ConsumerList};
use crate::engine::{Engine, Message};
use crate::entry::EntryRef;
use crate::group::Groups;
use crate::ids::Place;
use crate::slots::NONE;

impl<M: Message> Engine<M> {
    /// Takes an available entry out of its group's FIFO; whoever is next is seen to.
    pub(crate) fn leave_group(&mut self, queue: u32, group: u32, entry: EntryRef) {
        self.leave_fifo(queue, group, entry);
        self.refresh_group(queue, group, Cause::Returned);
    }

    /// A consumer takes the first entry of a group, and the group with it.
    pub(crate) fn claim(&mut self, index: u32, group: u32, entry: EntryRef) {
        let queue = self.consumers[index].queue;
        self.leave_fifo(queue, group, entry);
        let groups = &mut self.queues[queue].groups;
        let state = &mut groups.groups[group];
        assert!(state.owner == NONE || state.owner == index, "a group has one owner");
        state.unsettled += 1;
        if state.owner == NONE {
            state.owner = index;
            self.consumers[index].owned_waiting += state.waiting();
            self.consumers[index].owned.push_back(&mut groups.groups, group);
        }
        self.refresh_group(queue, group, Cause::Returned);
    }

    /// Brings a group in order after something has happened to its entries or its owner: first it loses an owner that holds
    /// nothing of it and has retired nothing, then whoever can take its first entry is told.
    pub(crate) fn refresh_group(&mut self, queue: u32, group: u32, cause: Cause) {
        let state = &self.queues[queue].groups.groups[group];
        let first = state.next(&self.store);
        let owner = state.owner;
        if owner != NONE {
            let takes = first.is_some_and(|place| self.owner_takes(owner, place));
            let stays = !self.consumers[owner].closing;
            let sticky = self.queues[queue].properties.sticky_groups && (takes || first.is_none());
            let keeps = state.unsettled > 0 || stays && (state.retired > 0 || sticky);
            if keeps {
                self.promise_owner(queue, group, first.filter(|_| takes));
                if takes && self.consumers[owner].list == ConsumerList::Interested {
                    self.transition(owner, ConsumerList::Notified, cause);
                }
                self.rest_group(queue, group);
                return;
            }
            self.free_group(queue, group);
        }
        let shown = first.filter(|_| self.queues[queue].groups.groups[group].retired == 0);
        let entry = shown.and_then(|place| self.find(queue, place));
        let state = &mut self.queues[queue].groups.groups[group];
        if entry == state.shown {
            if state.entries == 0 {
                self.queues[queue].groups.remove(group);
            }
            return;
        }
        if let Some(before) = std::mem::replace(&mut state.shown, entry) {
            self.unexpose(queue, before);
        }
        if let Some(entry) = entry {
            self.expose(queue, entry, cause);
        }
    }

    fn leave_fifo(&mut self, queue: u32, group: u32, entry: EntryRef) {
        let state = &mut self.queues[queue].groups.groups[group];
        if state.shown == Some(entry) {
            state.shown = None;
            self.unexpose(queue, entry);
        }
        let state = &mut self.queues[queue].groups.groups[group];
        state.leave(&mut self.store, entry);
        if state.owner != NONE {
            self.consumers[state.owner].owned_waiting -= 1;
        }
    }

    /// Puts an available entry into its group's FIFO; whoever is next is seen to.
    pub(crate) fn join_group(&mut self, queue: u32, group: u32, entry: EntryRef, cause: Cause) {
        let state = &mut self.queues[queue].groups.groups[group];
        state.join(&mut self.store, entry);
        if state.owner != NONE {
            self.consumers[state.owner].owned_waiting += 1;
        }
        self.refresh_group(queue, group, cause);
    }

    fn free_group(&mut self, queue: u32, group: u32) {
        self.promise_owner(queue, group, None);
        let groups = &mut self.queues[queue].groups;
        if std::mem::replace(&mut groups.groups[group].rests, false) {
            groups.resting.remove(&mut groups.groups, group);
        }
        let owner = std::mem::replace(&mut groups.groups[group].owner, NONE);
        self.consumers[owner].owned_waiting -= groups.groups[group].waiting();
        self.consumers[owner].owned.remove(&mut groups.groups, group);
    }

    /// Notes with a group's owner which entry it can take next.
    fn promise_owner(&mut self, queue: u32, group: u32, place: Option<Place>) {
        let state = &mut self.queues[queue].groups.groups[group];
        let before = std::mem::replace(&mut state.promised, place);
        if before == place {
            return;
        }
        let heads = &mut self.consumers[state.owner].owned_heads;
        if let Some(before) = before {
            assert!(heads.remove(&(before, group)));
        }
        if let Some(place) = place {
            heads.insert((place, group));
        }
    }

    /// A sticky group without an entry is remembered, as long as there are not too many.
    fn rest_group(&mut self, queue: u32, group: u32) {
        let Groups { groups, resting, .. } = &mut self.queues[queue].groups;
        let rests = groups[group].entries == 0;
        if std::mem::replace(&mut groups[group].rests, rests) == rests {
            return;
        }
        if !rests {
            resting.remove(groups, group);
            return;
        }
        resting.push_back(groups, group);
        if resting.count() as usize > self.limits.sticky_groups_max
            && let Some(oldest) = resting.first()
        {
            self.free_group(queue, oldest);
            self.queues[queue].groups.remove(oldest);
        }
    }

    /// Whether a group's owner may and wants to take this entry.
    fn owner_takes(&self, owner: u32, place: Place) -> bool {
        let consumer = &self.consumers[owner];
        !consumer.closing
            && !consumer.refused.contains(&place)
            && self.find(consumer.queue, place).is_some_and(|entry| {
                // Of what is not in memory it is known when it has been read.
                self.store.entry(entry).is_away() || self.matches(consumer.class, entry)
            })
    }
}
