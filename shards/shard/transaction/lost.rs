//! What becomes of transactions whose coordinator's link, channel or connection has ended?
//!
//! They roll back, unless they are decided. Who has lost its connection is not waited for: the homes are told how much work to wait for.

use super::{Discharge, Phase};
use crate::Shard;
use crate::event::ConnectionSlot;
use crate::failure::Failure;
use crate::mail::{Decision, Mail, TransactionKey};

impl Shard {
    /// The link of a coordinator has ended (AMQP 1.0 §4.2): what it declared and was not discharged rolls back.
    pub(crate) fn coordinator_ended(&mut self, now: u64, slot: ConnectionSlot, attachment: u32) {
        let Some(transactions) = self.transactions(slot) else { return };
        transactions.timed_out.retain(|(_, declared_on)| *declared_on != attachment);
        let declared =
            transactions.list.iter_mut().filter(|transaction| transaction.attachment == attachment);
        let mut open = Vec::new();
        for transaction in declared {
            match transaction.phase {
                Phase::Open => open.push(transaction.number),
                Phase::Gathering(_) | Phase::Preparing { .. } => {
                    transaction.failure.get_or_insert(Failure::CoordinatorEnded);
                }
                Phase::Deciding { .. } => {}
            }
        }
        for number in open {
            self.end_transaction(now, slot, number, Discharge { asker: None, fail: true });
        }
    }

    /// The connection is lost: whatever is not decided rolls back, and nobody waits for it.
    pub(crate) fn abandon_transactions(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let connection_id = connection.id;
        let Some(transactions) = connection.transactions.take() else { return };
        if let Some(deadline) = transactions.watched {
            self.transaction_deadlines.remove(&(deadline, slot));
        }
        for mut transaction in transactions.list {
            for message in std::mem::take(&mut transaction.unrouted) {
                self.forget(message);
            }
            match transaction.phase {
                Phase::Open | Phase::Gathering(_) | Phase::Preparing { alone: false, .. } => {}
                // Its one home has decided, or everyone knows.
                Phase::Preparing { alone: true, .. } | Phase::Deciding { .. } => continue,
            }
            self.count_decided(false);
            let key = TransactionKey { connection: connection_id, number: transaction.number };
            for part in transaction.parts {
                let decision = Decision { transaction: key, commit: false, work: part.sent, answer: false };
                if part.shard == self.index {
                    self.on_decide(now, self.index, decision);
                } else {
                    self.peers.control(&mut self.effects, part.shard, Mail::Decide(decision));
                }
            }
        }
    }
}
