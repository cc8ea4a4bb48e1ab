//! Where is the channel of a number?
//!
//! Clients count from one, so that a list finds most channels. A peer may choose any number, though, and does not get a list as long
//! as that: what lies far off is in a tree.

use std::collections::BTreeMap;

use super::channel::Channel;
use super::limits::CHANNELS_NEAR;

/// Channels by number; 0 is never used.
#[derive(Debug, Default)]
pub(super) struct Channels {
    pub(super) near: Vec<Option<Box<Channel>>>,
    /// Those numbered [`CHANNELS_NEAR`] and above.
    far: BTreeMap<u16, Box<Channel>>,
    count: usize,
}

impl Channels {
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Channel> {
        match self.near.get(usize::from(number)) {
            Some(channel) => channel.as_deref(),
            None => self.far.get(&number).map(Box::as_ref),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut Channel> {
        match self.near.get_mut(usize::from(number)) {
            Some(channel) => channel.as_deref_mut(),
            None => self.far.get_mut(&number).map(Box::as_mut),
        }
    }

    /// Puts a channel where none is.
    pub(super) fn insert(&mut self, number: u16, channel: Channel) {
        let channel = Box::new(channel);
        let index = usize::from(number);
        let replaced = if index >= CHANNELS_NEAR {
            self.far.insert(number, channel)
        } else {
            if self.near.len() <= index {
                self.near.resize_with(index + 1, || None);
            }
            self.near[index].replace(channel)
        };
        debug_assert!(replaced.is_none(), "a number is free before it is used again");
        self.count += 1;
    }

    pub(super) fn remove(&mut self, number: u16) {
        let removed = match self.near.get_mut(usize::from(number)) {
            Some(channel) => channel.take(),
            None => self.far.remove(&number),
        };
        self.count -= usize::from(removed.is_some());
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// By number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Channel)> {
        let near = self.near.iter().enumerate();
        let near = near.filter_map(|(index, channel)| Some((index as u16, channel.as_deref()?)));
        near.chain(self.far.iter().map(|(&number, channel)| (number, &**channel)))
    }
}
