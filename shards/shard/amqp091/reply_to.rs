//! How do replies reach a channel that has declared no queue for them?
//!
//! A channel that consumes from `amq.rabbitmq.reply-to` gets a queue of its own, under a name that its requests carry instead: whoever
//! answers one publishes to that name, through the default exchange or by AMQP 1.0, on any shard. The queue lives where the connection
//! does, is never kept, and goes with its consumer; an answer that comes later goes nowhere. Nobody else can have what is in it.

use corelane_protocol::amqp091::{LinkId, SessionId};
use corelane_wire::amqp091::{Properties, ShortStr};

use super::channel::ChannelFault;
use super::queues::{Declaration, QueueReply};
use super::{Declared, Published};
use crate::Shard;
use crate::event::ConnectionSlot;
use crate::mail::ConnectionId;
use crate::vhost;

/// What channels call their own replies.
pub(super) const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// What the names of the queues behind it begin with. Nobody else makes one.
pub(crate) const REPLY_QUEUES: &str = "amq.rabbitmq.reply-to.";

impl Shard {
    /// The queue that a channel is about to consume its replies from.
    pub(super) fn make_reply_queue(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        no_ack: bool,
    ) -> Result<Box<str>, ChannelFault> {
        if !no_ack {
            return Err(ChannelFault::precondition("reply consumer cannot acknowledge"));
        }
        let known = self.connections.get_mut(slot).and_then(|it| it.channels.reply_to_mut(session).cloned());
        if known.flatten().is_some() {
            return Err(ChannelFault::precondition("reply consumer already set"));
        }
        let name = self.new_name(slot, REPLY_QUEUES);
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(name) };
        if let Some(reply_to) = connection.channels.reply_to_mut(session) {
            *reply_to = Some(name.clone());
        }
        let owner = connection.id;
        let declared = Declared::of_replies();
        let declaration = Declaration { passive: false, exclusive: true, declared };
        self.make_declared(now, (self.index, owner), &name, declaration)
            .map_err(|refusal| ChannelFault::of(refusal, REPLY_TO))?;
        Ok(name)
    }

    /// The consumer of a connection's own reply queue could not be attached.
    pub(super) fn drop_reply_queue(&mut self, now: u64, owner: ConnectionId, name: &str) {
        if vhost::plain(name).starts_with(REPLY_QUEUES)
            && let Ok(queue) = self.queue_for(owner, name)
        {
            self.delete_queue(now, queue);
        }
    }

    /// Appends the properties of a request: they say where its sender's replies go.
    pub(super) fn write_reply_to(
        &mut self,
        slot: ConnectionSlot,
        publisher: LinkId,
        published: &Published<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ChannelFault> {
        let name = self.connections.get_mut(slot).and_then(|connection| {
            let session = connection.session_of(publisher)?;
            connection.channels.reply_to_mut(session)?.as_deref()
        });
        let Some(name) = name else {
            return Err(ChannelFault::precondition("fast reply consumer does not exist"));
        };
        Properties { reply_to: Some(ShortStr::cut(vhost::plain(name))), ..*published.properties() }
            .encode(out);
        Ok(())
    }

    /// A channel has declared `amq.rabbitmq.reply-to`, which is always there.
    pub(super) fn answer_for_replies(&mut self, now: u64, slot: ConnectionSlot, session: SessionId) {
        if let Some(channel) = self.begin_request(slot, session) {
            let reply =
                QueueReply::Declared { name: REPLY_TO.into(), owned: None, messages: 0, consumers: 1 };
            self.on_channel_answer(now, self.index, channel, Ok(reply));
        }
    }
}
