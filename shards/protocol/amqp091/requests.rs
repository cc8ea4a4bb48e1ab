//! What does a peer want done with exchanges and queues, and what does it hear?

use corelane_wire::amqp091::{Method, basic, connection, exchange, queue, tx};
use corelane_wire::amqp091::{MethodId, ShortStr};

use super::channel::{PendingKind, not_for_server};
use super::connection::{Connection, Side, Step};
use super::event::{Reply, Request};
use super::fault::Fault;
use crate::ids::SessionId;

impl Connection {
    /// Server: the answer to a [`Request`]. It is for the request's kind; one of another kind says what can be said.
    pub fn reply(&mut self, session: SessionId, reply: Reply<'_>) {
        let number = session.0 as u16;
        let asked = self.channel(number).and_then(|channel| channel.pending);
        if asked.is_none_or(|pending| pending.kind != PendingKind::Request) {
            return;
        }
        let Some(pending) = self.take_pending(number) else { return };
        if let Reply::Declared { queue, .. } = reply
            && let Some(channel) = self.channel_mut(number)
        {
            channel.last_queue.clear();
            channel.last_queue.extend_from_slice(queue.as_bytes());
        }
        if !pending.no_wait {
            self.write_reply(number, pending.method, reply);
        }
        if let Some(channel) = self.channels.get_mut(number) {
            self.output.append(&mut std::mem::take(&mut channel.cancels));
        }
    }

    /// Server: tells the client that we do not read what it publishes, and why, or that we read again (`None`). Clients that would
    /// not understand it are not told.
    pub fn set_blocked(&mut self, reason: Option<&str>) {
        let is_told = self.side == Side::Server && self.may_send() && self.peer.takes_blocked;
        if !is_told || self.blocked == reason.is_some() {
            return;
        }
        self.blocked = reason.is_some();
        match reason {
            Some(reason) => self.write(0, &connection::Blocked { reason: ShortStr::cut(reason) }),
            None => self.write(0, &connection::Unblocked {}),
        }
    }

    pub(super) fn handle_exchange_request<'a>(
        &mut self,
        number: u16,
        method: exchange::Method<'a>,
    ) -> Result<Step<'a>, Fault> {
        use exchange::Method as Of;
        let id = method.id();
        Ok(match method {
            Of::Declare(declare) => self.ask(number, id, declare.no_wait, Request::ExchangeDeclare(declare)),
            Of::Delete(delete) => self.ask(number, id, delete.no_wait, Request::ExchangeDelete(delete)),
            Of::Bind(bind) => self.ask(number, id, bind.no_wait, Request::ExchangeBind(bind)),
            Of::Unbind(unbind) => self.ask(number, id, unbind.no_wait, Request::ExchangeUnbind(unbind)),
            Of::DeclareOk(_) | Of::DeleteOk(_) | Of::BindOk(_) | Of::UnbindOk(_) => {
                return Err(not_for_server(id));
            }
        })
    }

    pub(super) fn handle_queue_request<'a>(
        &mut self,
        number: u16,
        method: queue::Method<'a>,
    ) -> Result<Step<'a>, Fault> {
        use queue::Method as Of;
        let id = method.id();
        let (queue, no_wait, request) = match method {
            Of::Declare(declare) => {
                return Ok(self.ask(number, id, declare.no_wait, Request::QueueDeclare(declare)));
            }
            Of::Bind(bind) => (bind.queue, bind.no_wait, Request::QueueBind(bind)),
            Of::Unbind(unbind) => (unbind.queue, false, Request::QueueUnbind(unbind)),
            Of::Purge(purge) => (purge.queue, purge.no_wait, Request::QueuePurge(purge)),
            Of::Delete(delete) => (delete.queue, delete.no_wait, Request::QueueDelete(delete)),
            Of::DeclareOk(_) | Of::BindOk(_) | Of::UnbindOk(_) | Of::PurgeOk(_) | Of::DeleteOk(_) => {
                return Err(not_for_server(id));
            }
        };
        self.check_queue_name(number, queue)?;
        Ok(self.ask(number, id, no_wait, request))
    }

    fn write_reply(&mut self, number: u16, asked: MethodId, reply: Reply<'_>) {
        let (queue, message_count, consumer_count) = match reply {
            Reply::Done => (ShortStr::EMPTY, 0, 0),
            Reply::Declared { queue, message_count, consumer_count } => {
                (queue, message_count, consumer_count)
            }
            Reply::Removed { message_count } => (ShortStr::EMPTY, message_count, 0),
        };
        let answer = match asked {
            exchange::Declare::ID => Method::Exchange(exchange::Method::DeclareOk(exchange::DeclareOk {})),
            exchange::Delete::ID => Method::Exchange(exchange::Method::DeleteOk(exchange::DeleteOk {})),
            exchange::Bind::ID => Method::Exchange(exchange::Method::BindOk(exchange::BindOk {})),
            exchange::Unbind::ID => Method::Exchange(exchange::Method::UnbindOk(exchange::UnbindOk {})),
            queue::Declare::ID => {
                let declared = queue::DeclareOk { queue, message_count, consumer_count };
                Method::Queue(queue::Method::DeclareOk(declared))
            }
            queue::Bind::ID => Method::Queue(queue::Method::BindOk(queue::BindOk {})),
            queue::Unbind::ID => Method::Queue(queue::Method::UnbindOk(queue::UnbindOk {})),
            queue::Purge::ID => Method::Queue(queue::Method::PurgeOk(queue::PurgeOk { message_count })),
            queue::Delete::ID => Method::Queue(queue::Method::DeleteOk(queue::DeleteOk { message_count })),
            tx::Commit::ID => Method::Tx(tx::Method::CommitOk(tx::CommitOk {})),
            tx::Rollback::ID => Method::Tx(tx::Method::RollbackOk(tx::RollbackOk {})),
            // There is no other request.
            _ => Method::Basic(basic::Method::RecoverOk(basic::RecoverOk {})),
        };
        self.write(number, &answer);
    }
}
