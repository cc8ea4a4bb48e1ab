//! How are queues declared, emptied and deleted on a channel, and when is that refused?
//!
//! A queue's home does it, with RabbitMQ's answers: declaring a queue again in the same way finds it, deleting one that is not there is
//! done already. What is durable is answered when it is synced.
//!
//! A queue is exclusive to a connection: others may publish to it, and nothing else, and it goes with its connection.

use corelane_engine::{Place, QueueId};
use corelane_journal::Ticket;
use corelane_protocol::amqp091::{Reply, SessionId};
use corelane_wire::amqp091::{ReplyCode, ShortStr, Table, queue};

use super::arguments::{DEAD_LETTER_EXCHANGE, Declared, Refused};
use super::bindings::Bond;
use super::channel::{ChannelFault, ChannelMail, ChannelRef};
use super::owners::Redeclaration;
use super::reply_to::{REPLY_QUEUES, REPLY_TO};
use crate::Shard;
use crate::address::is_plain_name;
use crate::defining::QueueDefinition;
use crate::event::ConnectionSlot;
use crate::limits::PURGE_STEPS_MAX;
use crate::mail::{ConnectionId, Mail, Refusal};
use crate::queues::{QueueKind, QueueNode, is_ours};
use crate::rights::{Object, Right};
use crate::vhost::{self, InVhost};

/// What only the broker's queues are called.
const RESERVED: &str = "amq.";

/// What the names begin with that channels are given.
const GENERATED: &str = "amq.gen-";

/// What a channel declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// It is only looked whether the queue is there.
    pub(super) passive: bool,
    pub(super) exclusive: bool,
    pub(super) declared: Declared,
}

/// What a channel wants done with a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueRequest {
    Declare(Box<Declaration>),
    Purge,
    Bind(Box<Bond>),
    Delete { if_unused: bool, if_empty: bool },
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueReply {
    /// `owned`: the queue, if it belongs to the connection.
    Declared {
        name: Box<str>,
        owned: Option<QueueId>,
        messages: u32,
        consumers: u32,
    },
    Removed {
        messages: u32,
    },
    Done,
}

impl QueueReply {
    pub(crate) fn as_reply(&self) -> Reply<'_> {
        match self {
            QueueReply::Declared { name, messages, consumers, .. } => Reply::Declared {
                queue: ShortStr::cut(vhost::plain(name)),
                message_count: *messages,
                consumer_count: *consumers,
            },
            QueueReply::Done => Reply::Done,
            QueueReply::Removed { messages } => Reply::Removed { message_count: *messages },
        }
    }
}

/// A queue that is being emptied.
#[derive(Debug)]
pub(crate) struct Purge {
    queue: QueueId,
    /// Who is told, and the shard of its connection.
    channel: ChannelRef,
    to: usize,
    /// Entries that are still to be looked at: what came later stays.
    left: u64,
    next: Place,
    removed: u32,
    mark: Ticket,
}

/// The channel's side.
impl Shard {
    pub(crate) fn request_declaration(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        declare: &queue::Declare<'_>,
    ) -> Result<(), ChannelFault> {
        let queue::Declare { queue, passive, durable, exclusive, auto_delete, .. } = *declare;
        if queue == REPLY_TO {
            self.answer_for_replies(now, slot, session);
            return Ok(());
        }
        // Those queues are there or not.
        let passive = passive || queue.as_str().is_some_and(|name| name.starts_with(REPLY_QUEUES));
        let is_new = queue.is_empty() && !passive;
        let name =
            if is_new { self.new_name(slot, GENERATED) } else { self.queue_name(slot, session, queue)? };
        if !passive {
            check_name(vhost::plain(&name), is_new)?;
        }
        let arguments = if passive { Table::default() } else { declare.arguments };
        if !passive {
            self.check_declaration(slot, &name, arguments)?;
        }
        let mut unknown = None;
        let declared = Declared::read(&name, (durable, auto_delete), arguments, |argument| {
            unknown = Some(argument.to_string());
        })?;
        if let Some(argument) = unknown {
            self.argument_warnings.warn(now, &mut self.effects, |more| {
                format!(
                    "queue {name:?} was declared with the argument {argument:?}, which means nothing here and is ignored; and {more} \
                     others since this was last said"
                )
            });
        }
        let declaration = Declaration { passive, exclusive, declared };
        self.request_queue(now, slot, session, name, QueueRequest::Declare(Box::new(declaration)));
        Ok(())
    }
}

/// What a declaration needs rights to.
impl Shard {
    fn check_declaration(
        &mut self,
        slot: ConnectionSlot,
        queue: &str,
        arguments: Table<'_>,
    ) -> Result<(), ChannelFault> {
        self.check_right(slot, Right::Configure, Object::Queue, queue)?;
        if let Some(exchange) = arguments.find(DEAD_LETTER_EXCHANGE).ok().flatten()
            && let Some(exchange) = exchange.as_str()
        {
            let exchange = self.within(slot, exchange);
            self.check_right(slot, Right::Read, Object::Queue, queue)?;
            self.check_right(slot, Right::Write, Object::Exchange, &exchange)?;
        }
        Ok(())
    }
}

fn check_name(name: &str, is_new: bool) -> Result<(), ChannelFault> {
    if (name.starts_with(RESERVED) && !is_new) || is_ours(name) {
        let text = format!("queue name '{name}' contains reserved prefix '{RESERVED}*'");
        return Err(ChannelFault::new(ReplyCode::AccessRefused, text));
    }
    if !is_plain_name(name) {
        let text = format!("queue name '{name}' is an address of another kind, or has control characters");
        return Err(ChannelFault::precondition(text));
    }
    Ok(())
}

/// The home's side.
impl Shard {
    /// A channel's request, of this shard or another.
    pub(crate) fn on_channel_request(
        &mut self,
        now: u64,
        from: usize,
        channel: ChannelRef,
        name: Box<str>,
        request: QueueRequest,
    ) {
        let mark = self.said();
        let result = match request {
            QueueRequest::Bind(bond) => {
                self.bind_for_channel(now, from, channel, &name, *bond);
                return;
            }
            QueueRequest::Declare(declaration) => match self.other_owner(channel.connection, &name) {
                Some(owner) if !declaration.passive => {
                    let asked = Redeclaration { owner, to: from, channel, name, declaration };
                    self.ask_owner(now, asked);
                    return;
                }
                Some(_) | None => self.declare_0_9_1(now, (from, channel), &name, *declaration),
            },
            QueueRequest::Delete { if_unused, if_empty } => {
                let is_bound = |queue: &QueueId| self.queues.get(*queue).is_some_and(|node| node.is_bound);
                let bound = self.queues.find(&name).filter(is_bound);
                match (self.delete_0_9_1(now, channel, &name, (if_unused, if_empty)), bound) {
                    (Ok(reply), Some(queue)) => {
                        self.answer_deletion(now, (mark, from, channel), queue, reply);
                        return;
                    }
                    (result, _) => result,
                }
            }
            QueueRequest::Purge => match self.queue_for(channel.connection, &name) {
                Ok(queue) => {
                    let left = self.engine.depth(queue).map_or(0, |depth| depth.messages);
                    let next = Place(0);
                    self.purges.push_back(Purge { queue, channel, to: from, left, next, removed: 0, mark });
                    return;
                }
                Err(refusal) => Err(ChannelFault::of(refusal, &name)),
            },
        };
        self.answer_channel(now, mark, from, channel, result);
    }

    /// A queue that this connection may use otherwise than by publishing to it.
    pub(crate) fn queue_for(&self, connection: ConnectionId, name: &str) -> Result<QueueId, Refusal> {
        let queue = self.queues.find(name).ok_or(Refusal::NotFound)?;
        let owner = self.queues.get(queue).and_then(|node| node.owner);
        if owner.is_none_or(|owner| owner == connection) { Ok(queue) } else { Err(Refusal::Exclusive) }
    }

    pub(super) fn declare_0_9_1(
        &mut self,
        now: u64,
        (from, channel): (usize, ChannelRef),
        name: &str,
        declaration: Declaration,
    ) -> Result<QueueReply, ChannelFault> {
        let fault = |refusal| ChannelFault::of(refusal, name);
        let found = match vhost::plain(name).starts_with(REPLY_QUEUES) {
            // Who is to answer may look whether somebody waits for it.
            true => self.queues.find(name).ok_or(Refusal::NotFound),
            false => self.queue_for(channel.connection, name),
        };
        let queue = match found {
            Ok(queue) => {
                if let Some(node) = self.queues.get(queue).filter(|_| !declaration.passive) {
                    check_equivalence(node, &declaration)?;
                }
                if let Some(node) = self.queues.get_mut(queue) {
                    node.unused_since = now;
                }
                queue
            }
            Err(Refusal::NotFound) if !declaration.passive => {
                self.make_declared(now, (from, channel.connection), name, declaration).map_err(fault)?
            }
            Err(refusal) => return Err(fault(refusal)),
        };
        let Some(node) = self.queues.get(queue) else { return Err(ChannelFault::not_found(name)) };
        Ok(QueueReply::Declared {
            name: name.into(),
            owned: (node.owner == Some(channel.connection)).then_some(queue),
            messages: self.ready_messages(queue),
            consumers: node.consumers,
        })
    }

    pub(super) fn make_declared(
        &mut self,
        now: u64,
        (from, connection): (usize, ConnectionId),
        name: &str,
        declaration: Declaration,
    ) -> Result<QueueId, Refusal> {
        let Declaration { exclusive, declared, .. } = declaration;
        let queue = self.declare_queue(now, name, QueueKind::Queue, declared.rule())?;
        if let Some(node) = self.queues.get_mut(queue) {
            node.owner = exclusive.then_some(connection);
            node.owner_at = from;
            node.declared = Some(Box::new(declared));
        }
        self.define(queue);
        Ok(queue)
    }

    /// A queue of this shard is there as it is defined, or it is said why not.
    pub(crate) fn define_queue(
        &mut self,
        now: u64,
        name: &str,
        definition: &QueueDefinition,
    ) -> Result<(), ChannelFault> {
        check_name(vhost::plain(name), false)?;
        let flags = (definition.durable, definition.auto_delete);
        let arguments = Table::new(&definition.arguments);
        let declared = Declared::read(name, flags, arguments, |_| {})?;
        let declaration = Declaration { passive: false, exclusive: false, declared };
        match self.queues.find(name).and_then(|queue| self.queues.get(queue)) {
            Some(node) => check_equivalence(node, &declaration),
            None => {
                let made = self.make_declared(now, (self.index, ConnectionId(0)), name, declaration);
                made.map(|_| ()).map_err(|refusal| ChannelFault::of(refusal, name))
            }
        }
    }

    fn delete_0_9_1(
        &mut self,
        now: u64,
        channel: ChannelRef,
        name: &str,
        (if_unused, if_empty): (bool, bool),
    ) -> Result<QueueReply, ChannelFault> {
        let queue = match self.queue_for(channel.connection, name) {
            Ok(queue) => queue,
            Err(Refusal::NotFound) => return Ok(QueueReply::Removed { messages: 0 }),
            Err(refusal) => return Err(ChannelFault::of(refusal, name)),
        };
        let refused = |why: &str| Err(ChannelFault::precondition(format!("queue {} {why}", InVhost(name))));
        if if_unused && self.queues.get(queue).is_some_and(|node| node.consumers > 0) {
            return refused("in use");
        }
        // What is delivered and not settled does not count.
        if if_empty && self.ready_messages(queue) > 0 {
            return refused("not empty");
        }
        let messages = self.ready_messages(queue);
        self.delete_queue(now, queue);
        Ok(QueueReply::Removed { messages })
    }

    /// Messages of a queue that a consumer could have.
    pub(crate) fn ready_messages(&self, queue: QueueId) -> u32 {
        let available = self.engine.depth(queue).map_or(0, |depth| depth.available);
        u32::try_from(available).unwrap_or(u32::MAX)
    }

    /// Removes some of the messages that are to be removed. True if there are more.
    pub(crate) fn run_purges(&mut self, now: u64) -> bool {
        let Some(mut purge) = self.purges.pop_front() else { return false };
        let steps = usize::try_from(purge.left).unwrap_or(usize::MAX).min(PURGE_STEPS_MAX);
        let entries = self.engine.entries(purge.queue, purge.next).take(steps);
        let places: Vec<Place> = entries.map(|(place, ..)| place).collect();
        for place in &places {
            if let Some(stored) = self.engine.remove(now, purge.queue, *place) {
                self.discard(purge.queue, *place, stored);
                self.note_replaced();
                purge.removed += 1;
            }
        }
        purge.left -= places.len() as u64;
        match places.last() {
            Some(last) if purge.left > 0 => {
                purge.next = last.next();
                self.purges.push_back(purge);
            }
            Some(_) | None => {
                let Purge { channel, to, removed, mark, .. } = purge;
                self.answer_channel(now, mark, to, channel, Ok(QueueReply::Removed { messages: removed }));
            }
        }
        !self.purges.is_empty()
    }

    /// Tells a channel what was done, when what was said since the mark is synced.
    pub(crate) fn answer_channel(
        &mut self,
        now: u64,
        mark: Ticket,
        to: usize,
        channel: ChannelRef,
        result: Result<QueueReply, ChannelFault>,
    ) {
        if to == self.index {
            self.answer_channel_kept(now, mark, channel, result);
        } else {
            self.post_kept(mark, to, Mail::Channel(ChannelMail::Answer { channel, result }));
        }
    }
}

/// A queue that is there has to be as it is declared.
fn check_equivalence(node: &QueueNode, declaration: &Declaration) -> Result<(), ChannelFault> {
    if declaration.exclusive != node.owner.is_some() {
        return Err(ChannelFault::locked(&node.name));
    }
    // What no channel has declared is as a durable queue is.
    let undeclared = Declared::durable();
    let found = node.declared.as_deref().unwrap_or(&undeclared);
    Ok(found.check_equivalent(&node.name, &declaration.declared)?)
}

impl From<Refused> for ChannelFault {
    fn from(refused: Refused) -> Self {
        ChannelFault::new(refused.reply_code(), refused.to_string())
    }
}
