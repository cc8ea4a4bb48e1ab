//! What do the messages on a coordinator's link ask for, and how are they answered?
//!
//! A link whose target is a coordinator has credit and no queue. Its messages declare and discharge transactions (AMQP 1.0 §4.2,
//! §4.3). What cannot be done is said by a rejected outcome where the link's source knows that, else the link ends with the error, and
//! its transactions roll back with it. One that was sent settled cannot be answered, so it ends the link.
//!
//! A transaction belongs to the link that declared it, its work may be on any link of the connection.

use corelane_protocol::amqp10::{self, Answer, AttachAnswer, ErrorSpec, LinkId, Payload};
use corelane_wire::amqp10::{
    Attach, BodyKind, Declare, DeliveryState, Discharge as DischargeRequest, Error, Sections, Symbols,
    TransactionRequest,
};

use crate::Shard;
use crate::connection::{Coordinator, Link};
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::limits::{COORDINATOR_CREDIT, COORDINATOR_MESSAGE_BYTES_MAX, TRANSACTIONS_MAX};
use crate::mail::{TIMED_OUT, UNKNOWN_TRANSACTION};
use crate::transaction::{Asker, Discharge, transaction_id};

/// AMQP 1.0 §4.5.8: several transactions at a time, with work on links of any session; none that spans brokers.
const CAPABILITIES: &[&str] =
    &["amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"];

/// What a source's outcomes call a rejection.
const REJECTED: &str = "amqp:rejected:list";

impl Shard {
    pub(crate) fn attach_coordinator(&mut self, slot: ConnectionSlot, link: LinkId, attach: &Attach<'_>) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let attachment = connection.link_ref(link).attachment;
        let outcomes = attach.source.map(|source| source.outcomes).unwrap_or_default();
        // A source that names no outcomes does not restrict them.
        let rejects = outcomes.is_empty() || outcomes.contains(REJECTED);
        connection.bind(link, Link::Coordinator(Coordinator { attachment, rejects, answered: 0 }));
        // Transactions refer to the connection where it is: it stays, and consumers of queues elsewhere are served from there.
        connection.settled_down = true;
        connection.transactions.get_or_insert_default();
        let answer = AttachAnswer {
            target_capabilities: Answer::Other(Symbols::new(CAPABILITIES)),
            max_message_size: Some(COORDINATOR_MESSAGE_BYTES_MAX),
            ..AttachAnswer::default()
        };
        connection.protocol.accept_attach(link, &answer);
        connection.protocol.grant_credit(link, COORDINATOR_CREDIT, false);
        self.touch(slot);
    }

    /// A message on a coordinator's link.
    pub(crate) fn on_request(&mut self, now: u64, slot: ConnectionSlot, received: amqp10::Message<'_>) {
        let amqp10::Message { link, delivery_id, settled, payload, .. } = received;
        let request = (link, delivery_id);
        if settled {
            let description = "a message to a coordinator has to be sent unsettled";
            self.end_request(now, slot, link, "amqp:not-allowed", description);
        } else {
            match read_request(payload.bytes()) {
                Ok(TransactionRequest::Declare(declare)) => self.declare(now, slot, request, &declare),
                Ok(TransactionRequest::Discharge(discharge)) => {
                    self.discharge(now, slot, request, &discharge)
                }
                Err((condition, description)) => {
                    self.refuse_request(now, slot, request, condition, &description);
                }
            }
        }
        if let Payload::Assembled(buffer) = payload
            && let Some(connection) = self.connections.get_mut(slot)
        {
            connection.protocol.recycle(buffer);
        }
    }

    fn declare(&mut self, now: u64, slot: ConnectionSlot, request: (LinkId, u32), declare: &Declare<'_>) {
        if declare.global_id.is_some() {
            let description = "distributed transactions are not available: leave out the global-id";
            self.refuse_request(now, slot, request, "amqp:not-implemented", description);
            return;
        }
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(coordinator) = connection.coordinator_mut(request.0) else { return };
        let attachment = coordinator.attachment;
        let transactions = connection.transactions.get_or_insert_default();
        match transactions.declare(request.0, attachment) {
            Some(number) => {
                self.counters.transactions_declared += 1;
                self.watch_transactions(now, slot);
                let transaction = &transaction_id(number);
                self.answer_request(slot, request, &DeliveryState::Declared { transaction });
            }
            None => {
                let description = format!(
                    "a connection has at most {TRANSACTIONS_MAX} transactions that are not discharged"
                );
                self.refuse_request(now, slot, request, "amqp:resource-limit-exceeded", &description);
            }
        }
    }

    fn discharge(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        request: (LinkId, u32),
        discharge: &DischargeRequest<'_>,
    ) {
        let (link, delivery_id) = request;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(attachment) = connection.coordinator_mut(link).map(|coordinator| coordinator.attachment)
        else {
            return;
        };
        let mut transactions = connection.transactions.as_deref_mut();
        if transactions
            .as_deref_mut()
            .is_some_and(|all| all.take_timed_out(discharge.transaction, attachment))
        {
            // AMQP 1.0 §4.3: a roll-back can always be done, and this one is.
            if discharge.fail {
                self.answer_request(slot, request, &DeliveryState::Accepted);
            } else {
                let (condition, description) = TIMED_OUT;
                self.refuse_request(now, slot, request, condition, description);
            }
            return;
        }
        let open = transactions.and_then(|transactions| transactions.open(discharge.transaction));
        let Some(transaction) = open.filter(|transaction| transaction.attachment == attachment) else {
            let (condition, description) = UNKNOWN_TRANSACTION;
            self.refuse_request(now, slot, request, condition, description);
            return;
        };
        let number = transaction.number;
        if connection.protocol.is_posting(&transaction_id(number)) {
            // AMQP 1.0 §4.4.2: the coordinator's link has to end.
            let description = "a message of the transaction has arrived in part only";
            self.end_request(now, slot, link, "amqp:transaction:rollback", description);
            return;
        }
        let discharge = Discharge { asker: Some(Asker::Delivery(delivery_id)), fail: discharge.fail };
        self.end_transaction(now, slot, number, discharge);
    }

    /// All of a discharge is done; `failure` if it could not be done as it was asked.
    pub(crate) fn answer_discharge(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        (link, attachment): (LinkId, u32),
        delivery_id: u32,
        failure: Option<Failure>,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let bound = connection.coordinator_mut(link).is_some_and(|bound| bound.attachment == attachment);
        if !bound {
            // The link has ended; if its place was not used again, the protocol waits for the delivery to be settled.
            if connection.link_mut(link).is_none() {
                let state = if failure.is_none() { DeliveryState::Accepted } else { DeliveryState::Released };
                connection.protocol.settle(link, delivery_id, &state);
            }
            return;
        }
        match failure {
            None => self.answer_request(slot, (link, delivery_id), &DeliveryState::Accepted),
            Some(failure) => {
                let request = (link, delivery_id);
                self.refuse_request(now, slot, request, "amqp:transaction:rollback", &failure.text());
            }
        }
    }

    fn answer_request(
        &mut self,
        slot: ConnectionSlot,
        (link, delivery_id): (LinkId, u32),
        state: &DeliveryState<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.protocol.settle(link, delivery_id, state);
        if let Some(coordinator) = connection.coordinator_mut(link) {
            coordinator.answered += 1;
            if coordinator.answered >= COORDINATOR_CREDIT / 2 {
                // What is unanswered has a transaction each, so there are few.
                coordinator.answered = 0;
                connection.protocol.grant_credit(link, COORDINATOR_CREDIT, false);
            }
        }
        self.touch(slot);
    }

    fn refuse_request(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        (link, delivery_id): (LinkId, u32),
        condition: &str,
        description: &str,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.coordinator_mut(link).is_some_and(|coordinator| coordinator.rejects) {
            let error = Some(Error::new(condition, description));
            self.answer_request(slot, (link, delivery_id), &DeliveryState::Rejected { error });
        } else {
            connection.protocol.settle(link, delivery_id, &DeliveryState::Released);
            self.end_request(now, slot, link, condition, description);
        }
    }

    /// Ends the coordinator's link of a transaction, if it is still there.
    pub(crate) fn end_coordinator(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        (link, attachment): (LinkId, u32),
        condition: &str,
        description: &str,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.coordinator_mut(link).is_some_and(|coordinator| coordinator.attachment == attachment) {
            self.end_request(now, slot, link, condition, description);
        }
    }

    fn end_request(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        condition: &str,
        description: &str,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.protocol.detach(link, true, Some(ErrorSpec { condition, description }));
        self.unbind(now, slot, link);
        self.touch(slot);
    }
}

/// The request is the value of the message's only body section.
fn read_request(message: &[u8]) -> Result<TransactionRequest<'_>, (&'static str, String)> {
    let sections = Sections::scan(message).map_err(|error| (error.condition(), error.to_string()))?;
    if sections.body_kind != Some(BodyKind::Value) {
        let description =
            "a message to a coordinator has one amqp-value section with a declare or a discharge";
        return Err(("amqp:decode-error", description.to_owned()));
    }
    let value = sections.body.value(message);
    TransactionRequest::decode(value).map_err(|error| (error.condition(), error.to_string()))
}
