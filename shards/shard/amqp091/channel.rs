//! What do a 0-9-1 connection's channels ask for, and who answers?
//!
//! A channel is a session; its publishing is one link, made with it, and each consumer is one. A request that another shard answers parks
//! its channel alone. It waits until all that the channel has published before is answered, so it finds those messages in their queues;
//! what is of this shard is done at once.
//!
//! Invariants:
//! - a channel has at most one request that is not answered, and `asks` is its number;
//! - `exclusive` has every queue that lives as long as the connection, but for those that were deleted meanwhile.

use std::collections::BTreeMap;

use corelane_protocol::amqp091::{self, Event, LinkId, Request, SessionId};
use corelane_wire::amqp091::{ReplyCode, ShortStr, queue};

use super::alarms::Alarm;
use super::bindings::BondRequest;
use super::owners::OwnerMail;
use super::queues::{QueueReply, QueueRequest};
use crate::Shard;
use crate::connection::{DynamicNode, Link, Producer, QueueAt, Route};
use crate::event::ConnectionSlot;
use crate::mail::{ConnectionId, Mail, Refusal, SaslStep};
use crate::protocol::Protocol;
use crate::rights::{Object, Right};
use crate::vhost::InVhost;

/// The channels of a connection, and what lives as long as it does.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// By session, which is the number that the peer has chosen: it may be a high one.
    list: BTreeMap<u32, Channel>,
    /// Requests so far.
    requests: u32,
    /// Channels with something that waits, and what waits no more.
    waiting_count: usize,
    due: Vec<Waiting>,
    pub(crate) exclusive: Vec<QueueAt>,
}

#[derive(Debug)]
struct Channel {
    publisher: LinkId,
    /// The request that is not answered.
    asks: Option<u32>,
    /// What waits until all that was published is answered.
    waiting: Option<Waiting>,
    /// The queue of its replies, if it consumes them.
    reply_to: Option<Box<str>>,
}

/// What is for another shard.
#[derive(Debug)]
pub(crate) enum Waiting {
    Request { channel: ChannelRef, home: usize, queue: Box<str>, request: QueueRequest },
    Get { link: LinkId },
}

/// A channel's request, as other shards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRef {
    pub(crate) connection: ConnectionId,
    session: SessionId,
    request: u32,
}

/// Between a channel's shard and the home of a queue.
#[derive(Debug)]
pub enum ChannelMail {
    /// What a channel wants done with the queue.
    Request { channel: ChannelRef, queue: Box<str>, request: QueueRequest },
    /// The home's answer.
    Answer { channel: ChannelRef, result: Result<QueueReply, ChannelFault> },
    /// To the shard of a connection that a queue belongs to, and back.
    Owner(OwnerMail),
    /// The sender is about to refuse messages, or takes them again.
    Alarm(Option<Alarm>),
}

/// Why a channel is closed, or its connection if the code demands that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFault {
    pub(crate) code: ReplyCode,
    pub(crate) text: Box<str>,
}

impl ChannelFault {
    pub(crate) fn new(code: ReplyCode, text: impl Into<Box<str>>) -> Self {
        ChannelFault { code, text: text.into() }
    }

    pub(crate) fn not_found(queue: &str) -> Self {
        Self::new(ReplyCode::NotFound, format!("no queue {}", InVhost(queue)))
    }

    pub(crate) fn locked(queue: &str) -> Self {
        let text = format!(
            "cannot obtain exclusive access to locked queue {}: it belongs to another connection, or its exclusive property is not \
             the one it was declared with",
            InVhost(queue)
        );
        Self::new(ReplyCode::ResourceLocked, text)
    }

    pub(crate) fn disk_failed() -> Self {
        Self::new(ReplyCode::InternalError, "the disk has failed: nothing durable can be changed")
    }

    pub(crate) fn precondition(text: impl Into<Box<str>>) -> Self {
        Self::new(ReplyCode::PreconditionFailed, text)
    }

    /// Why a queue cannot be consumed from, or made.
    pub(crate) fn of(refusal: Refusal, queue: &str) -> Self {
        match refusal {
            Refusal::NotFound => Self::not_found(queue),
            Refusal::Exclusive => Self::locked(queue),
            Refusal::InUse => {
                let text = format!("queue {} in exclusive use", InVhost(queue));
                Self::new(ReplyCode::AccessRefused, text)
            }
            Refusal::ResourceLimit => Self::precondition(format!(
                "no room for another queue or consumer on the shard of queue {}",
                InVhost(queue)
            )),
            Refusal::Priorities => Self::precondition(format!(
                "the consumers of queue {} have too many different priorities: 64 are allowed",
                InVhost(queue)
            )),
            Refusal::Filters | Refusal::InvalidFilter | Refusal::Locked | Refusal::Stolen => {
                Self::precondition(format!("queue {} is in use on other terms", InVhost(queue)))
            }
        }
    }
}

impl Channels {
    fn channel_mut(&mut self, session: SessionId) -> Option<&mut Channel> {
        self.list.get_mut(&session.0)
    }

    fn open(&mut self, session: SessionId, publisher: LinkId) {
        self.list.insert(session.0, Channel { publisher, asks: None, waiting: None, reply_to: None });
    }

    /// What it had waiting is not done.
    fn close(&mut self, session: SessionId) -> Option<Waiting> {
        let waiting = self.list.remove(&session.0).and_then(|channel| channel.waiting);
        self.waiting_count -= usize::from(waiting.is_some());
        waiting
    }

    /// The link that a channel publishes on.
    pub(super) fn publisher(&self, session: SessionId) -> Option<LinkId> {
        Some(self.list.get(&session.0)?.publisher)
    }

    /// Where the replies for a channel go.
    pub(super) fn reply_to_mut(&mut self, session: SessionId) -> Option<&mut Option<Box<str>>> {
        Some(&mut self.channel_mut(session)?.reply_to)
    }

    /// A channel's next request.
    fn next_request(&mut self, connection: ConnectionId, session: SessionId) -> Option<ChannelRef> {
        let request = self.requests.wrapping_add(1);
        self.channel_mut(session)?.asks = Some(request);
        self.requests = request;
        Some(ChannelRef { connection, session, request })
    }

    /// A channel's messages are answered. True if something has waited for that.
    fn stop_waiting(&mut self, session: SessionId) -> bool {
        let channel = self.channel_mut(session);
        let waiting = channel.and_then(|channel| channel.waiting.take());
        self.waiting_count -= usize::from(waiting.is_some());
        self.due.extend(waiting);
        !self.due.is_empty()
    }
}

impl Shard {
    pub(crate) fn on_amqp091_event(&mut self, now: u64, slot: ConnectionSlot, event: Event<'_>) {
        match event {
            Event::Message(message) => self.on_published(now, slot, message),
            Event::Disposition { session, outcome, transaction: true } => {
                self.on_acknowledged_within(now, slot, session, outcome);
            }
            Event::Disposition { outcome, .. } => self.on_acknowledged(now, slot, outcome),
            Event::LinkFlow { link } => self.refresh_consumer(now, slot, link),
            Event::SessionFlow { session } => self.on_session_flow(now, slot, session),
            Event::Consume { link, session, consume } => {
                self.on_consume_0_9_1(now, slot, link, session, &consume);
            }
            Event::Get { link, session, queue, no_ack: _ } => {
                self.on_get(now, slot, link, session, queue);
            }
            Event::Cancel { link } => self.on_cancel(now, slot, link),
            Event::Request { session, request } => self.on_request_0_9_1(now, slot, session, request),
            Event::ChannelOpened { session, publisher } => self.on_channel_opened(slot, session, publisher),
            Event::Detached { link } => self.on_detached(now, slot, link, true),
            Event::Ended { session, .. } => {
                let Some(connection) = self.connections.get_mut(slot) else { return };
                if let Some(Waiting::Request { .. }) = connection.channels.close(session) {
                    connection.unanswered -= 1;
                }
            }
            Event::SaslInit { mechanism, initial_response } => {
                let step = |peer| SaslStep::Start {
                    mechanism: mechanism.to_owned(),
                    initial_response: initial_response.map(|response| response.into_owned()),
                    peer,
                };
                self.ask_for_credentials(slot, step);
            }
            Event::SaslResponse(response) => {
                self.ask_for_credentials(slot, |_| SaslStep::Response(response.into_owned()));
            }
            Event::Opened { virtual_host } => self.on_opened_0_9_1(slot, virtual_host),
            Event::Closed { .. } => self.close(now, slot),
            // Events of the client role.
            Event::Answered { .. } | Event::Delivery(_) | Event::Blocked { .. } | Event::Unblocked => {}
        }
    }

    fn on_opened_0_9_1(&mut self, slot: ConnectionSlot, virtual_host: ShortStr<'_>) {
        let vhost = virtual_host.as_str().and_then(|name| self.topology.vhost(name)).cloned();
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Protocol::Amqp091(protocol) = &mut connection.protocol else { return };
        connection.container = protocol.connection_name().into();
        let no_vhost = || format!("vhost {virtual_host} not found");
        let entered = vhost.ok_or_else(no_vhost).and_then(|vhost| connection.enter(vhost));
        let Protocol::Amqp091(protocol) = &mut connection.protocol else { return };
        match &entered {
            Ok(()) => {
                protocol.accept_open();
                self.tell_alarm(slot);
            }
            Err(text) => {
                protocol.close(Some(amqp091::ErrorSpec { reply_code: ReplyCode::NotAllowed, text }));
            }
        }
    }

    fn on_channel_opened(&mut self, slot: ConnectionSlot, session: SessionId, publisher: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.channels.open(session, publisher);
        let mut producer = Producer::new(connection.link_ref(publisher).attachment);
        producer.route = Route::Exchange;
        connection.bind(publisher, Link::Producer(producer));
    }

    fn on_request_0_9_1(&mut self, now: u64, slot: ConnectionSlot, session: SessionId, request: Request<'_>) {
        let done = match request {
            Request::QueueDeclare(declare) => self.request_declaration(now, slot, session, &declare),
            Request::QueueDelete(delete) => {
                let request = QueueRequest::Delete { if_unused: delete.if_unused, if_empty: delete.if_empty };
                self.request_of_queue(now, slot, session, (delete.queue, Right::Configure), request)
            }
            Request::QueuePurge(purge) => {
                self.request_of_queue(now, slot, session, (purge.queue, Right::Read), QueueRequest::Purge)
            }
            Request::QueueBind(queue::Bind { queue, exchange, routing_key, arguments, .. }) => {
                let bond = BondRequest { queue, exchange, routing_key, arguments, is_wanted: true };
                self.request_bond(now, slot, session, &bond)
            }
            Request::QueueUnbind(queue::Unbind { queue, exchange, routing_key, arguments }) => {
                let bond = BondRequest { queue, exchange, routing_key, arguments, is_wanted: false };
                self.request_bond(now, slot, session, &bond)
            }
            Request::ExchangeDeclare(declare) => self.declare_exchange(now, slot, session, &declare),
            Request::ExchangeDelete(delete) => self.delete_exchange(now, slot, session, &delete),
            Request::ExchangeBind(bind) => self.bind_exchange(now, slot, session, &bind),
            Request::ExchangeUnbind(unbind) => self.unbind_exchange(now, slot, session, &unbind),
            Request::TxCommit => {
                self.end_channel_transaction(now, slot, session, false);
                Ok(())
            }
            Request::TxRollback => {
                self.end_channel_transaction(now, slot, session, true);
                Ok(())
            }
        };
        if let Err(fault) = done {
            self.fail_channel(slot, session, &fault);
        }
    }

    /// A request about a queue, by its name or as the last one that was declared, which needs a right to it.
    fn request_of_queue(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        (queue, right): (ShortStr<'_>, Right),
        request: QueueRequest,
    ) -> Result<(), ChannelFault> {
        let queue = self.queue_name(slot, session, queue)?;
        self.check_right(slot, right, Object::Queue, &queue)?;
        self.request_queue(now, slot, session, queue, request);
        Ok(())
    }

    /// The name of a queue; an empty one means the one that the channel has declared last.
    pub(crate) fn queue_name(
        &mut self,
        slot: ConnectionSlot,
        session: SessionId,
        queue: ShortStr<'_>,
    ) -> Result<Box<str>, ChannelFault> {
        let last = match self.connections.get_mut(slot).map(|connection| &connection.protocol) {
            Some(Protocol::Amqp091(protocol)) if queue.is_empty() => protocol.last_queue(session),
            _ => queue,
        };
        // A queue that has another name cannot be there.
        let name = last.as_str().map(Box::<str>::from).ok_or_else(|| last.to_string());
        match name {
            Ok(name) => Ok(self.within(slot, &name)),
            Err(name) => Err(ChannelFault::not_found(&self.within(slot, &name))),
        }
    }

    /// A channel's request, which is answered by [`Self::on_channel_answer`].
    pub(crate) fn begin_request(&mut self, slot: ConnectionSlot, session: SessionId) -> Option<ChannelRef> {
        let connection = self.connections.get_mut(slot)?;
        let channel = connection.channels.next_request(connection.id, session)?;
        // It does not move before it is answered.
        connection.unanswered += 1;
        Some(channel)
    }

    /// Lets the home of a queue do what a channel asks for.
    pub(crate) fn request_queue(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        queue: Box<str>,
        request: QueueRequest,
    ) {
        let home = self.home_of(&queue);
        let Some(channel) = self.begin_request(slot, session) else { return };
        if home == self.index && !self.turn.has_handoffs(home) {
            self.on_channel_request(now, home, channel, queue, request);
            return;
        }
        self.behind_published(now, slot, session, Waiting::Request { channel, home, queue, request });
    }

    /// Does something on another shard when all that the channel has published is answered.
    pub(crate) fn behind_published(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        waiting: Waiting,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(publisher) = connection.channels.channel_mut(session).map(|channel| channel.publisher)
        else {
            return;
        };
        if connection.producer_mut(publisher).is_some_and(|producer| producer.unanswered > 0) {
            if let Some(channel) = connection.channels.channel_mut(session) {
                channel.waiting = Some(waiting);
                connection.channels.waiting_count += 1;
            }
        } else {
            self.do_waiting(now, slot, waiting);
        }
    }

    /// All that was published on this link is answered.
    pub(crate) fn all_published(&mut self, slot: ConnectionSlot, publisher: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.channels.waiting_count > 0
            && let Some(session) = connection.session_of(publisher)
            && connection.channels.stop_waiting(session)
        {
            self.resume(slot);
        }
    }

    fn do_waiting(&mut self, now: u64, slot: ConnectionSlot, waiting: Waiting) {
        match waiting {
            Waiting::Request { channel, home, queue, request } if home == self.index => {
                self.on_channel_request(now, home, channel, queue, request);
            }
            Waiting::Request { channel, home, queue, request } => {
                // Behind what the channel has acknowledged.
                let mail = Mail::Channel(ChannelMail::Request { channel, queue, request });
                self.peers.control(&mut self.effects, home, mail);
            }
            Waiting::Get { link } => self.pull_one(now, slot, link),
        }
    }

    pub(crate) fn on_channel_mail(&mut self, now: u64, from: usize, mail: ChannelMail) {
        match mail {
            ChannelMail::Request { channel, queue, request } => {
                self.on_channel_request(now, from, channel, queue, request);
            }
            ChannelMail::Answer { channel, result } => self.on_channel_answer(now, from, channel, result),
            ChannelMail::Owner(mail) => self.on_owner_mail(now, from, mail),
            ChannelMail::Alarm(alarm) => self.set_alarm(from, alarm),
        }
    }

    /// The home has done what a channel has asked for.
    pub(crate) fn on_channel_answer(
        &mut self,
        now: u64,
        from: usize,
        channel: ChannelRef,
        result: Result<QueueReply, ChannelFault>,
    ) {
        let ChannelRef { connection: id, session, request } = channel;
        let Some(slot) = self.slot_of(id).filter(|slot| self.is_alive(*slot)) else {
            self.counters.mail_dropped += 1;
            if let Ok(QueueReply::Declared { owned: Some(queue), .. }) = result {
                self.delete_dynamic(now, DynamicNode::Queue(QueueAt { shard: from, queue }));
            }
            return;
        };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.unanswered = connection.unanswered.saturating_sub(1);
        if let Ok(QueueReply::Declared { owned: Some(queue), .. }) = result {
            let at = QueueAt { shard: from, queue };
            if !connection.channels.exclusive.contains(&at) {
                connection.channels.exclusive.push(at);
            }
        }
        let asks = connection.channels.channel_mut(session).map(|channel| &mut channel.asks);
        if asks.and_then(|asks| asks.take_if(|asked| *asked == request)).is_none() {
            // The channel has ended meanwhile.
            return;
        }
        match result {
            Ok(reply) => {
                if let Protocol::Amqp091(protocol) = &mut connection.protocol {
                    protocol.reply(session, reply.as_reply());
                }
                self.resume(slot);
            }
            Err(fault) => self.fail_channel(slot, session, &fault),
        }
    }

    fn is_alive(&mut self, slot: ConnectionSlot) -> bool {
        self.connections.get_mut(slot).is_some_and(|connection| !connection.closing)
    }

    /// Closes a channel, or its connection if the code demands that.
    pub(crate) fn fail_channel(&mut self, slot: ConnectionSlot, session: SessionId, fault: &ChannelFault) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Protocol::Amqp091(protocol) = &mut connection.protocol {
            protocol.fail(session, amqp091::ErrorSpec { reply_code: fault.code, text: &fault.text });
        }
        self.resume(slot);
    }

    /// The connection was told something that lets go on what waits inside it, or that it has events of.
    pub(crate) fn resume(&mut self, slot: ConnectionSlot) {
        self.touch(slot);
        if self.resuming.last() != Some(&slot) {
            self.resuming.push(slot);
        }
    }

    /// Lets those connections go on.
    pub(crate) fn run_resumed(&mut self, now: u64) {
        for slot in std::mem::take(&mut self.resuming) {
            let due = self.connections.get_mut(slot).map(|it| std::mem::take(&mut it.channels.due));
            for waiting in due.into_iter().flatten() {
                self.do_waiting(now, slot, waiting);
            }
            if self.connections.get_mut(slot).is_some_and(|connection| connection.hold.is_none()) {
                self.release_hold(now, slot);
            }
        }
    }

    /// The connection has ended: so do the queues that live as long.
    pub(crate) fn delete_exclusive(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        for at in std::mem::take(&mut connection.channels.exclusive) {
            self.delete_dynamic(now, DynamicNode::Queue(at));
        }
    }
}
