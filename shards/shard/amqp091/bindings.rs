//! How is a queue bound to an exchange by a channel?
//!
//! The queue's home says whether it is there and whose it is, and proposes the change (`topology`); the channel hears of it when all shards
//! have it, and what is durable is synced. So does who deletes a queue that was bound.

use std::sync::Arc;

use corelane_engine::QueueId;
use corelane_engine::exchanges::{Arguments, Binding, Change, End};
use corelane_journal::Ticket;
use corelane_protocol::amqp091::SessionId;
use corelane_wire::amqp091::{ShortStr, Table};

use super::channel::{ChannelFault, ChannelRef};
use super::exchanges::checked_arguments;
use super::queues::{QueueReply, QueueRequest};
use crate::Shard;
use crate::connection::QueueAt;
use crate::event::ConnectionSlot;
use crate::mail::Refusal;
use crate::rights::{Object, Right};
use crate::topology::{self, Then};

/// What a queue is bound by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bond {
    exchange: Arc<str>,
    key: Arc<[u8]>,
    arguments: Arguments,
    /// False: it is to be no more.
    is_wanted: bool,
}

/// A `queue.bind` or `queue.unbind`.
pub(super) struct BondRequest<'a> {
    pub(super) queue: ShortStr<'a>,
    pub(super) exchange: ShortStr<'a>,
    pub(super) routing_key: ShortStr<'a>,
    pub(super) arguments: Table<'a>,
    pub(super) is_wanted: bool,
}

impl Shard {
    pub(super) fn request_bond(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        request: &BondRequest<'_>,
    ) -> Result<(), ChannelFault> {
        let BondRequest { exchange, routing_key, arguments, is_wanted, .. } = *request;
        let queue = self.queue_name(slot, session, request.queue)?;
        self.check_right(slot, Right::Write, Object::Queue, &queue)?;
        let source = self.within(slot, super::exchanges::name_of(exchange)?);
        self.check_right(slot, Right::Read, Object::Exchange, &source)?;
        let bond = Bond {
            exchange: super::exchanges::name_of(exchange)?.into(),
            key: routing_key.as_bytes().into(),
            arguments: checked_arguments(arguments)?,
            is_wanted,
        };
        self.request_queue(now, slot, session, queue, QueueRequest::Bind(Box::new(bond)));
        Ok(())
    }

    /// The home's side.
    pub(super) fn bind_for_channel(
        &mut self,
        now: u64,
        to: usize,
        channel: ChannelRef,
        name: &str,
        bond: Bond,
    ) {
        let mark = self.said();
        let queue = match self.queue_for(channel.connection, name) {
            Ok(queue) => queue,
            // What is not there is not bound.
            Err(Refusal::NotFound) if !bond.is_wanted => {
                self.answer_channel(now, mark, to, channel, Ok(QueueReply::Done));
                return;
            }
            Err(refusal) => {
                self.answer_channel(now, mark, to, channel, Err(ChannelFault::of(refusal, name)));
                return;
            }
        };
        let is_durable = match bond.is_wanted {
            true => self.note_binding(queue),
            false => self.queues.get(queue).is_some_and(|node| node.is_durable()),
        };
        let uid = self.queues.uid(queue);
        let (vhost, _) = self.topology.place(name);
        let Bond { exchange, key, arguments, is_wanted } = bond;
        let at = QueueAt { shard: self.index, queue };
        let destination = End::Queue { queue: at, name: name.into(), is_durable };
        let binding = Binding { vhost, source: exchange, destination, key, arguments };
        let change = Box::new(if is_wanted { Change::Bind(binding) } else { Change::Unbind(binding) });
        let then = Then::Answer { mark, to, channel, reply: QueueReply::Done };
        self.propose(now, topology::Change::Exchanges { change, uid }, Some(then));
    }

    /// A queue is about to be bound. True if it is durable.
    pub(crate) fn note_binding(&mut self, queue: QueueId) -> bool {
        if let Some(node) = self.queues.get_mut(queue) {
            node.is_bound = true;
        }
        // A binding is of a queue that the journal knows.
        self.define(queue);
        self.queues.get(queue).is_some_and(|node| node.is_durable())
    }

    /// A queue that was bound is deleted: its channel hears so when no shard leads to it any more.
    pub(super) fn answer_deletion(
        &mut self,
        now: u64,
        (mark, to, channel): (Ticket, usize, ChannelRef),
        queue: QueueId,
        reply: QueueReply,
    ) {
        let change = Box::new(Change::RemoveQueue(QueueAt { shard: self.index, queue }));
        let then = Then::Answer { mark, to, channel, reply };
        self.propose(now, topology::Change::Exchanges { change, uid: None }, Some(then));
    }
}
