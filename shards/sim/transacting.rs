//! What does a client do with transactions?

use corelane_protocol::amqp10::{AttachRequest, LinkId, TransactionId};
use corelane_wire::amqp10::{
    Coordinator, Declare, DeliveryState, Discharge, Disposition, Encode, Outcome, ReceiverSettleMode, Role,
    SenderSettleMode, Source, Symbols, TargetArchetype, TransactionRequest, write_data,
};

use crate::client::Client;

/// A transaction of a client, as the broker calls it.
pub fn transaction_id(number: u32) -> TransactionId {
    TransactionId::new(&number.to_be_bytes()).expect("four bytes are few")
}

impl Client {
    /// Attaches a link to the coordinator. `outcomes`: those that its source knows; none says nothing about it.
    pub fn attach_coordinator(&mut self, name: &str, outcomes: &[&str]) -> LinkId {
        let capabilities = &["amqp:local-transactions"];
        let coordinator = Coordinator { capabilities: Symbols::new(capabilities) };
        let request = AttachRequest {
            name,
            source: Some(Source { outcomes: Symbols::new(outcomes), ..Source::default() }),
            target: Some(TargetArchetype::Coordinator(coordinator)),
            sender_settle_mode: SenderSettleMode::Unsettled,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        self.protocol.attach_sender(self.session(), &request).expect("there is a handle left")
    }

    /// Asks for a transaction; the outcome of the token says which.
    pub fn declare(&mut self, coordinator: LinkId) -> u64 {
        self.request(coordinator, &TransactionRequest::Declare(Declare::default()))
    }

    pub fn discharge(&mut self, coordinator: LinkId, number: u32, fail: bool) -> u64 {
        let discharge = Discharge { transaction: &transaction_id(number), fail };
        self.request(coordinator, &TransactionRequest::Discharge(discharge))
    }

    pub fn request(&mut self, coordinator: LinkId, request: &TransactionRequest<'_>) -> u64 {
        let mut value = Vec::new();
        request.encode(&mut value);
        // AMQP 1.0 §3.2.8: the descriptor of an amqp-value section.
        self.send_encoded(coordinator, [&[0x00, 0x53, 0x77], &value[..]].concat(), None)
    }

    /// Sends any bytes as a message.
    pub fn send_bytes(&mut self, link: LinkId, bytes: &[u8]) -> u64 {
        self.send_encoded(link, bytes.to_vec(), None)
    }

    /// The same, inside a transaction.
    pub fn send_bytes_in(&mut self, link: LinkId, number: u32, bytes: &[u8]) -> u64 {
        self.send_encoded(link, bytes.to_vec(), Some(transaction_id(number)))
    }

    /// Queues a message inside a transaction.
    pub fn send_in(&mut self, link: LinkId, number: u32, body: &str) -> u64 {
        let mut bytes = Vec::new();
        write_data(&mut bytes, body.as_bytes());
        self.send_encoded(link, bytes, Some(transaction_id(number)))
    }

    /// Sends the beginning of a message inside a transaction, about so many bytes, and never the rest.
    pub fn send_unfinished_in(&mut self, link: LinkId, number: u32, size: usize) {
        self.protocol.set_transaction(link, Some(transaction_id(number)));
        self.send_unfinished(link, size);
    }

    /// An outcome inside a transaction; settled unless the link settles second.
    pub fn settle_in(&mut self, link: LinkId, delivery_id: u32, number: u32, outcome: Outcome<'_>) {
        let transaction = &transaction_id(number);
        let state = DeliveryState::Transactional { transaction, outcome: Some(outcome) };
        self.protocol.settle(link, delivery_id, &state);
    }

    /// The same, settled at once however the link settles, and whatever was said before.
    pub fn settle_at_once_in(&mut self, delivery_id: u32, number: u32, outcome: Outcome<'_>) {
        let transaction = &transaction_id(number);
        let state = Some(DeliveryState::Transactional { transaction, outcome: Some(outcome) });
        let (role, first) = (Role::Receiver, delivery_id);
        let disposition = Disposition { role, first, last: None, settled: true, state, batchable: false };
        self.write_disposition(&disposition);
    }

    /// Credit for deliveries inside a transaction.
    pub fn credit_in(&mut self, link: LinkId, number: u32, credit: u32) {
        self.protocol.set_transaction(link, Some(transaction_id(number)));
        self.protocol.grant_credit(link, credit, false);
        self.protocol.set_transaction(link, None);
    }

    /// Whether a delivery that arrived is settled by neither side.
    pub fn is_unsettled(&self, link: LinkId, delivery_id: u32) -> bool {
        self.protocol.delivery_tag(link, delivery_id).is_some()
    }

    /// Says in a transaction that deliveries from one to another are accepted, whatever it knows of them.
    pub fn accept_in(&mut self, (first, last): (u32, u32), number: u32, settled: bool) {
        let transaction = &number.to_be_bytes();
        let state = Some(DeliveryState::Transactional { transaction, outcome: Some(Outcome::Accepted) });
        let last = Some(last);
        self.write_disposition(&Disposition {
            role: Role::Receiver,
            first,
            last,
            settled,
            state,
            batchable: false,
        });
    }

    /// What became of what was sent under this token, if it is known.
    pub fn outcome(&self, token: u64) -> Option<&str> {
        let found = self.outcomes.iter().find(|(of, _)| *of == token);
        found.map(|(_, outcome)| outcome.as_str())
    }
}
