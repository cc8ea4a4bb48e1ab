//! How does a message leave that is larger than one burst, or than the session's window?
//!
//! In parts: the link is busy until the last is written, the link's place on the list `continuing` is taken once, and every turn
//! writes to those on the list, in line, within the turn's bytes. The bytes come from the queue's entry, which the consumer holds;
//! where it holds none (a browser, or a queue on another shard), or the message may leave memory, the part owns a copy.

use corelane_engine::{Acquisition, Place, Stored};
use corelane_protocol::amqp10::{LinkId, Progress};

use crate::Shard;
use crate::connection::{Connection, ConsumerAt, Link};
use crate::event::ConnectionSlot;
use crate::limits::TURN_BYTES_MAX;
use crate::message::Message;

/// A delivery of which a part is written.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) place: Place,
    pub(crate) acquisition: Acquisition,
    /// Bytes of the message (behind the sections that are made anew) that are written.
    pub(crate) written: usize,
    /// The message, where no entry is held, or may lose it.
    pub(crate) copy: Option<Message>,
    /// It was begun inside this transaction.
    pub(crate) transaction: Option<u32>,
    /// On the list `continuing`.
    pub(crate) in_line: bool,
}

impl Shard {
    /// A part of a delivery is written. `copy` is the message, unless its entry is held here and keeps it.
    pub(crate) fn keep_part(&mut self, slot: ConnectionSlot, link: LinkId, copy: Option<Message>) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(partial) = connection.consumer_mut(link).and_then(|consumer| consumer.partial.as_mut()) {
            partial.copy = copy;
        }
        self.line_up(slot, link);
    }

    /// Puts the link in line, if a delivery is written in part.
    pub(crate) fn line_up(&mut self, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(partial) = connection.consumer_mut(link).and_then(|consumer| consumer.partial.as_mut())
            && !partial.in_line
        {
            partial.in_line = true;
            self.continuing.push_back((slot, link));
        }
    }

    /// Writes to those in line, each once, until the turn's bytes are used up; returns the bytes written.
    pub(crate) fn continue_partials(&mut self, now: u64) -> usize {
        let mut bytes = 0;
        for _ in 0..self.continuing.len() {
            if bytes >= TURN_BYTES_MAX {
                break;
            }
            let Some((slot, link)) = self.continuing.pop_front() else { break };
            bytes += self.continue_partial(now, slot, link);
        }
        bytes
    }

    fn continue_partial(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) -> usize {
        let Some(connection) = self.connections.get_mut(slot) else { return 0 };
        let Connection { protocol, links, output_blocked, closing, .. } = connection;
        let Some(Some(Link::Consumer(consumer))) = links.get_mut(link.0 as usize) else { return 0 };
        let Some(partial) = &mut consumer.partial else { return 0 };
        partial.in_line = false;
        if *output_blocked || *closing {
            return 0;
        }
        let (place, acquisition) = (partial.place, partial.acquisition);
        let message = match (&partial.copy, &consumer.at) {
            (Some(copy), _) => Some(copy),
            (None, ConsumerAt::Here(id)) => {
                self.engine.message(*id, place, acquisition).and_then(Stored::here)
            }
            (None, ConsumerAt::Nowhere(_) | ConsumerAt::Elsewhere(_)) => None,
        };
        let Some(rest) = message.and_then(|message| message.rest().get(partial.written..)) else {
            // The queue has taken the entry back (it was deleted, or its deadline passed): what was sent is void.
            protocol.abort(link);
            self.part_ended(now, slot, link, false);
            return 0;
        };
        let bytes = match protocol.send_more(link, rest) {
            Progress::Complete { settled, .. } => {
                let bytes = rest.len();
                if settled {
                    self.settle_part(now, slot, link, place, acquisition);
                }
                self.part_ended(now, slot, link, true);
                bytes
            }
            Progress::Partial { written, .. } => {
                partial.written += written;
                if written > 0 {
                    self.line_up(slot, link);
                }
                written
            }
            Progress::TooLarge | Progress::NotReady(_) => {
                self.part_ended(now, slot, link, false);
                0
            }
        };
        self.check_output(now, slot);
        self.touch(slot);
        bytes
    }

    /// A delivery on a link that sends settled is whole.
    fn settle_part(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        place: Place,
        acquisition: Acquisition,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let partial = connection.consumer_mut(link).and_then(|consumer| consumer.partial.as_ref());
        let transaction = partial.and_then(|partial| partial.transaction);
        self.settle_presettled(now, slot, link, (place, acquisition), transaction);
    }

    /// The link is free for the next delivery.
    pub(crate) fn part_ended(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, whole: bool) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(consumer) = connection.consumer_mut(link) else { return };
        if !whole && consumer.is_counted() {
            consumer.unsettled = consumer.unsettled.saturating_sub(1);
        }
        if let Some(copy) = consumer.partial.take().and_then(|partial| partial.copy) {
            self.buffers.give(copy.into_bytes());
        }
        self.refresh_consumer(now, slot, link);
        self.touch(slot);
    }
}
