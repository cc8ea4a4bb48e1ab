//! What is known of the links of a connection: a channel's publishing, its consumers, and the queues it gets from?
//!
//! `unsettled` of a link is the number of its entries in its channel's record. A link that is to end is told of when that is zero,
//! or its channel ends; its slot is free from then on.

use corelane_wire::amqp091::{ReplyCode, ShortStr, basic};

use super::channel::{ChannelState, Pending, PendingKind};
use super::connection::{Connection, Queued, Step};
use super::event::Event;
use super::fault::{self, Fault};
use super::limits::GETTERS_IDLE_MAX;
use crate::ids::{LinkId, SessionId};

#[derive(Debug)]
pub(super) struct Link {
    pub(super) channel: u16,
    pub(super) end: LinkEnd,
    /// Sent and not settled.
    pub(super) unsettled: usize,
    /// Its `Detached` is queued.
    pub(super) retired: bool,
}

#[derive(Debug)]
pub(super) enum LinkEnd {
    Publisher,
    Consumer(Consumer),
    Getter(Getter),
}

#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) tag: Box<[u8]>,
    pub(super) no_ack: bool,
    /// 0: no limit.
    pub(super) prefetch: u16,
    pub(super) state: ConsumerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumerState {
    /// The caller has not accepted it.
    Asked,
    Active,
    /// It gets nothing more.
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Getter {
    pub(super) queue: Box<[u8]>,
    /// A get waits for its answer: whether that is settled.
    pub(super) asked: Option<bool>,
}

impl Link {
    pub(super) fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        match &mut self.end {
            LinkEnd::Consumer(consumer) => Some(consumer),
            LinkEnd::Publisher | LinkEnd::Getter(_) => None,
        }
    }

    /// What it is looked up by.
    pub(super) fn name(&self) -> Option<(LinkKind, &[u8])> {
        match &self.end {
            LinkEnd::Publisher => None,
            LinkEnd::Consumer(consumer) => Some((LinkKind::Consumer, &consumer.tag)),
            LinkEnd::Getter(getter) => Some((LinkKind::Getter, &getter.queue)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    Consumer,
    Getter,
}

impl Connection {
    /// Server: the consumer is there, and may be sent to.
    pub fn accept_consume(&mut self, link: LinkId) {
        let Some(entry) = self.links.get_mut(link.slot()) else { return };
        let number = entry.channel;
        let Some(consumer) = entry.consumer_mut().filter(|consumer| consumer.state == ConsumerState::Asked)
        else {
            return;
        };
        consumer.state = ConsumerState::Active;
        let Some(pending) = self.take_pending(number) else { return };
        if !pending.no_wait
            && let LinkEnd::Consumer(consumer) = &self.links[link.slot()].end
        {
            let consumer_tag = ShortStr::new(&consumer.tag).unwrap_or_default();
            corelane_wire::amqp091::write_method(
                &mut self.output,
                number,
                &basic::ConsumeOk { consumer_tag },
            );
        }
    }

    /// Server: the queue has nothing for the link's `Get`.
    pub fn get_empty(&mut self, link: LinkId) {
        let Some(entry) = self.links.get_mut(link.slot()) else { return };
        let number = entry.channel;
        if let LinkEnd::Getter(getter) = &mut entry.end
            && getter.asked.take().is_some()
        {
            self.take_pending(number);
            self.write(number, &basic::GetEmpty {});
        }
    }

    /// Server: the consumer gets nothing more, since its queue is gone. A client that understands it is told; `Detached`
    /// follows when all that the consumer got is acknowledged.
    pub fn cancel(&mut self, link: LinkId) {
        let Some(entry) = self.links.get_mut(link.slot()) else { return };
        let number = entry.channel;
        let is_active = |consumer: &&mut Consumer| consumer.state == ConsumerState::Active;
        if entry.retired || entry.consumer_mut().filter(is_active).is_none() {
            return;
        }
        if self.peer.takes_cancels
            && let LinkEnd::Consumer(consumer) = &entry.end
        {
            let consumer_tag = ShortStr::new(&consumer.tag).unwrap_or_default();
            let cancel = basic::Cancel { consumer_tag, no_wait: true };
            // Who deletes a queue under its own consumers hears first that it is gone: clients take no other method for the answer.
            let channel = self.channels.get_mut(number);
            let out = match channel.filter(|channel| channel.deletes()) {
                Some(channel) => &mut channel.cancels,
                None => &mut self.output,
            };
            corelane_wire::amqp091::write_method(out, number, &cancel);
        }
        self.end_consumer(link.slot());
    }

    /// What the peer calls a consumer, or the queue that it gets from.
    pub fn link_name(&self, link: LinkId) -> Option<&str> {
        let (_, name) = self.links.get(link.slot())?.name()?;
        std::str::from_utf8(name).ok()
    }

    pub(super) fn handle_consume<'a>(
        &mut self,
        number: u16,
        mut consume: basic::Consume<'a>,
    ) -> Result<Step<'a>, Fault> {
        if self.links.len() >= self.config.links_max {
            return Err(fault::links());
        }
        self.check_queue_name(number, consume.queue)?;
        let tag: Box<[u8]> = if consume.consumer_tag.is_empty() {
            self.new_tag(number)
        } else if self.find_link(number, LinkKind::Consumer, consume.consumer_tag.as_bytes()).is_some() {
            let text = format!("attempt to reuse consumer tag '{}'", consume.consumer_tag);
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        } else {
            consume.consumer_tag.as_bytes().into()
        };
        let Some(channel) = self.channel(number) else { return Ok(Step::Again) };
        let state = ConsumerState::Asked;
        let consumer = Consumer { tag, no_ack: consume.no_ack, prefetch: channel.prefetch, state };
        let slot = self.insert_link(number, LinkEnd::Consumer(consumer));
        self.set_pending(
            number,
            Pending {
                method: basic::Consume::ID,
                no_wait: consume.no_wait,
                kind: PendingKind::Link(slot as u32),
            },
        );
        consume.no_wait = false;
        let session = SessionId(number.into());
        Ok(Step::Event(Event::Consume { link: LinkId(slot as u32), session, consume }))
    }

    pub(super) fn handle_cancel<'a>(
        &mut self,
        number: u16,
        cancel: &basic::Cancel<'a>,
    ) -> Result<Step<'a>, Fault> {
        let found = self.find_link(number, LinkKind::Consumer, cancel.consumer_tag.as_bytes());
        if !cancel.no_wait {
            self.write(number, &basic::CancelOk { consumer_tag: cancel.consumer_tag });
        }
        let Some(slot) = found else { return Ok(Step::Again) };
        self.end_consumer(slot);
        Ok(Step::Event(Event::Cancel { link: LinkId(slot as u32) }))
    }

    pub(super) fn handle_get<'a>(&mut self, number: u16, get: &basic::Get<'a>) -> Result<Step<'a>, Fault> {
        self.check_queue_name(number, get.queue)?;
        let Some(channel) = self.channel(number) else { return Ok(Step::Again) };
        if !get.no_ack && !channel.has_room(self.config.unsettled_max) {
            self.write(number, &basic::GetEmpty {});
            return Ok(Step::Again);
        }
        let queue: &[u8] = if get.queue.is_empty() { &channel.last_queue } else { get.queue.as_bytes() };
        let slot = match self.find_link(number, LinkKind::Getter, queue) {
            Some(slot) => slot,
            None => {
                if let Some(idle) = self.idle_getter(number) {
                    self.retire_link(idle);
                    return Ok(Step::Later);
                }
                if self.links.len() >= self.config.links_max {
                    return Err(fault::links());
                }
                let queue = queue.into();
                self.insert_link(number, LinkEnd::Getter(Getter { queue, asked: None }))
            }
        };
        if let LinkEnd::Getter(getter) = &mut self.links[slot].end {
            getter.asked = Some(get.no_ack);
        }
        let pending =
            Pending { method: basic::Get::ID, no_wait: false, kind: PendingKind::Link(slot as u32) };
        self.set_pending(number, pending);
        let (link, session) = (LinkId(slot as u32), SessionId(number.into()));
        Ok(Step::Event(Event::Get { link, session, queue: get.queue, no_ack: get.no_ack }))
    }

    /// An empty name means the queue that was declared last, so there has to be one.
    pub(super) fn check_queue_name(&self, number: u16, queue: ShortStr<'_>) -> Result<(), Fault> {
        let known = self.channel(number).is_some_and(|channel| !channel.last_queue.is_empty());
        if queue.is_empty() && !known {
            return Err(Fault::new(ReplyCode::NotFound, "no previously declared queue"));
        }
        Ok(())
    }

    pub(super) fn insert_link(&mut self, number: u16, end: LinkEnd) -> usize {
        let link = Link { channel: number, end, unsettled: 0, retired: false };
        let hash = link.name().map(|(kind, name)| hash_name(number, kind, name));
        let slot = self.links.insert(link);
        if let Some(hash) = hash {
            let links = &self.links;
            self.names.insert_unique(hash, slot as u32, |&slot| {
                let link = &links[slot as usize];
                link.name().map_or(0, |(kind, name)| hash_name(link.channel, kind, name))
            });
        }
        if let Some(channel) = self.channel_mut(number) {
            channel.links.push(slot as u32);
        }
        slot
    }

    pub(super) fn find_link(&self, number: u16, kind: LinkKind, name: &[u8]) -> Option<usize> {
        let same = |slot: &u32| {
            let link = &self.links[*slot as usize];
            link.channel == number && link.name() == Some((kind, name))
        };
        self.names.find(hash_name(number, kind, name), same).map(|&slot| slot as usize)
    }

    /// A link has nothing unsettled any more, and nothing else to come: it is told to be over.
    #[inline]
    pub(super) fn retire_if_done(&mut self, slot: usize) {
        let link = &mut self.links[slot];
        if link.unsettled == 0
            && let LinkEnd::Consumer(Consumer { state: ConsumerState::Cancelled, .. }) = link.end
        {
            self.retire_link(slot);
        }
    }

    fn end_consumer(&mut self, slot: usize) {
        self.unname(slot);
        if let Some(consumer) = self.links[slot].consumer_mut() {
            consumer.state = ConsumerState::Cancelled;
        }
        self.retire_if_done(slot);
    }

    /// Takes a link from its channel, and tells of its end.
    fn retire_link(&mut self, slot: usize) {
        let number = self.links[slot].channel;
        if let Some(channel) = self.channel_mut(number)
            && let Some(index) = channel.links.iter().position(|&known| known as usize == slot)
        {
            channel.links.remove(index);
        }
        self.tell_detached(slot);
    }

    pub(super) fn tell_detached(&mut self, slot: usize) {
        self.unname(slot);
        let link = &mut self.links[slot];
        if !std::mem::replace(&mut link.retired, true) {
            self.queue.push_back(Queued::Detached { link: slot as u32 });
        }
    }

    fn unname(&mut self, slot: usize) {
        let link = &self.links[slot];
        let Some((kind, name)) = link.name() else { return };
        let hash = hash_name(link.channel, kind, name);
        if let Ok(entry) = self.names.find_entry(hash, |&named| named as usize == slot) {
            entry.remove();
        }
    }

    /// The link that a get can do without, if there are enough of them: the one longest there.
    fn idle_getter(&self, number: u16) -> Option<usize> {
        let channel = self.channel(number)?;
        let is_idle = |slot: &usize| {
            let link = &self.links[*slot];
            link.unsettled == 0 && matches!(link.end, LinkEnd::Getter(_))
        };
        let mut idle = channel.links.iter().map(|&slot| slot as usize).filter(is_idle);
        let first = idle.next()?;
        (idle.count() + 1 >= GETTERS_IDLE_MAX).then_some(first)
    }

    fn new_tag(&mut self, number: u16) -> Box<[u8]> {
        loop {
            self.tag_last += 1;
            let tag = format!("amq.ctag-{number}.{}", self.tag_last).into_bytes();
            if self.find_link(number, LinkKind::Consumer, &tag).is_none() {
                return tag.into();
            }
        }
    }

    /// The channel that a link is of.
    pub fn session_of(&self, link: LinkId) -> Option<SessionId> {
        Some(SessionId(self.links.get(link.slot())?.channel.into()))
    }

    /// Whether the link is one of an open channel that is not told to be over.
    #[inline]
    pub(super) fn live_link(&self, link: LinkId) -> Option<&Link> {
        let entry = self.links.get(link.slot()).filter(|entry| !entry.retired)?;
        let channel = self.channel(entry.channel)?;
        (self.may_send() && channel.state == ChannelState::Open).then_some(entry)
    }
}

/// FNV-1a. A peer that seeks collisions slows down its own consumers, and `links_max` bounds by how much.
fn hash_name(number: u16, kind: LinkKind, name: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::from(number) << 1 ^ (kind as u64);
    name.iter().fold(start, step)
}
