//! How does a channel of 0-9-1 work in transactions?
//!
//! They are those of AMQP 1.0 (`transaction`), so one is atomic over queues on all shards. One begins with the first message, or with the
//! first outcome that the channel commits, since the last one ended. Its messages go to their queues at once, where nobody sees them;
//! its outcomes wait in the protocol, which tells them right before it asks for the commit, and forgets them when it rolls back. A
//! message that is mandatory and goes nowhere is returned when the transaction commits, and that it goes nowhere is no failure.
//!
//! A transaction that cannot commit is rolled back, and the channel closed with the reason: so all that it held comes back. It rolls
//! back with its channel, too.

use corelane_protocol::amqp091;
use corelane_protocol::amqp091::{LinkId, SessionId};

use super::channel::{ChannelFault, ChannelRef};
use super::consume::engine_outcome;
use super::queues::QueueReply;
use crate::Shard;
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::limits::TRANSACTIONS_MAX;
use crate::mail::{PublishOutcome, TIMED_OUT};
use crate::message::Message;
use crate::retiring::Said;
use crate::transaction::{Asker, Discharge};

impl Shard {
    /// The transaction of the channel that publishes on this link, begun if there is none.
    pub(super) fn transaction_on(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        publisher: LinkId,
    ) -> Result<u32, ChannelFault> {
        let attachment = self.attachment_of(slot, publisher);
        let (Some(connection), Some(attachment)) = (self.connections.get_mut(slot), attachment) else {
            return Err(ChannelFault::precondition("the channel is closed"));
        };
        // Transactions refer to the connection where it is: it stays.
        connection.settled_down = true;
        let transactions = connection.transactions.get_or_insert_default();
        if let Some(number) = transactions.open_on(attachment) {
            return Ok(number);
        }
        let Some(number) = transactions.declare(publisher, attachment) else {
            let text = format!("a connection has at most {TRANSACTIONS_MAX} transactions that are not ended");
            return Err(ChannelFault::precondition(text));
        };
        self.counters.transactions_declared += 1;
        self.watch_transactions(now, slot);
        Ok(number)
    }

    fn attachment_of(&mut self, slot: ConnectionSlot, publisher: LinkId) -> Option<u32> {
        self.connections.get_mut(slot)?.producer_mut(publisher).map(|producer| producer.attachment)
    }

    /// Whether a transaction takes one more message; there is always room outside of any.
    pub(super) fn has_room_within(&mut self, slot: ConnectionSlot, number: Option<u32>) -> bool {
        let Some(number) = number else { return true };
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(number));
        transaction.is_some_and(|transaction| transaction.has_room())
    }

    /// A mandatory message of a transaction goes nowhere. None: nor can it be returned.
    pub(super) fn keep_unrouted(&mut self, slot: ConnectionSlot, number: u32, message: Option<Message>) {
        let Some(message) = message else { return };
        let has_memory = self.take_memory(&message);
        let transaction = self.transactions(slot).and_then(|transactions| transactions.find(number));
        match (transaction, has_memory) {
            (Some(transaction), true) => transaction.unrouted.push(message),
            (None, true) => self.forget(message),
            (transaction, false) => {
                if let Some(transaction) = transaction {
                    transaction.failure.get_or_insert(Failure::Refused(PublishOutcome::NoRoom));
                }
                self.dissolve(message);
            }
        }
    }

    /// Returns the messages of a transaction that go nowhere, if it has committed.
    pub(crate) fn end_unrouted(
        &mut self,
        slot: ConnectionSlot,
        publisher: LinkId,
        unrouted: Vec<Message>,
        committed: bool,
    ) {
        for message in unrouted {
            if committed {
                self.return_stored(slot, publisher, &message);
            }
            self.forget(message);
        }
    }

    /// What became of deliveries, by a transaction that is about to commit.
    pub(super) fn on_acknowledged_within(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        outcome: amqp091::Outcome,
    ) {
        let publisher = self.connections.get_mut(slot).and_then(|it| it.channels.publisher(session));
        let Some(publisher) = publisher else { return };
        let begun = self.transaction_on(now, slot, publisher);
        let outcome = Some(engine_outcome(outcome));
        while let Some(connection) = self.connections.get_mut(slot)
            && let Some(disposed) = connection.protocol.poll_outcome()
        {
            // Where there is no transaction, deliveries come back with the end of the channel.
            let Ok(number) = begun else { continue };
            let is_gone = connection.consumer_mut(disposed.link).is_none();
            if let (true, Some(transactions)) = (is_gone, self.transactions(slot)) {
                transactions.fail(number, Failure::QueueGone);
                continue;
            }
            let said = Said { transaction: Some(number), outcome, annotations: None };
            self.dispose_in_transaction(now, slot, &disposed, said);
        }
        if let Err(fault) = begun {
            self.fail_channel(slot, session, &fault);
        }
    }

    /// `fail`: it is to be rolled back.
    pub(super) fn end_channel_transaction(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        fail: bool,
    ) {
        let Some(channel) = self.begin_request(slot, session) else { return };
        let publisher = self.connections.get_mut(slot).and_then(|it| it.channels.publisher(session));
        let attachment = publisher.and_then(|publisher| self.attachment_of(slot, publisher));
        let transactions = self.transactions(slot);
        let open = transactions.and_then(|transactions| transactions.open_on(attachment?));
        match open {
            Some(number) => {
                let discharge = Discharge { asker: Some(Asker::Channel(channel)), fail };
                self.end_transaction(now, slot, number, discharge);
            }
            // Nothing was done in it.
            None => self.answer_transaction(now, channel, None),
        }
    }

    /// A channel's transaction has ended, `failure`: not as it was asked to.
    pub(crate) fn answer_transaction(&mut self, now: u64, channel: ChannelRef, failure: Option<Failure>) {
        let result = match failure {
            None => Ok(QueueReply::Done),
            Some(failure) => Err(ChannelFault::precondition(failure.text())),
        };
        self.on_channel_answer(now, self.index, channel, result);
    }

    /// The transaction of the channel that publishes on this link took too long, if it is a channel's.
    pub(crate) fn fail_slow_channel(&mut self, slot: ConnectionSlot, publisher: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(session) = connection.session_of(publisher) {
            self.fail_channel(slot, session, &ChannelFault::precondition(TIMED_OUT.1));
        }
    }
}
