//! How long may a transaction take?
//!
//! One that has had work for longer than the shard's time-out is rolled back, so that a client that sleeps holds nothing for ever. One
//! without work holds nothing and may stay open; clients open the next one long before they need it. The peer hears of it when it
//! discharges the transaction, or names it; until then links on which it acquires would go on outside of any, so these end. A channel
//! of 0-9-1 is closed.
//!
//! Invariant: a connection with an open transaction that has work is looked at no later than when that has had its time.

use super::{Discharge, Phase, Transaction};
use crate::Shard;
use crate::event::ConnectionSlot;
use crate::limits::TRANSACTIONS_MAX;
use crate::management::connection_name;

impl Shard {
    /// A transaction was declared: in time it will be looked whether it takes too long.
    pub(crate) fn watch_transactions(&mut self, now: u64, slot: ConnectionSlot) {
        let deadline = now.saturating_add(self.transaction_timeout_us);
        if self.transaction_timeout_us > 0
            && let Some(transactions) = self.transactions(slot)
            && transactions.watched.is_none()
        {
            transactions.watched = Some(deadline);
            self.transaction_deadlines.insert((deadline, slot));
        }
    }

    /// Rolls back the transactions that have had work for too long.
    pub(crate) fn end_slow_transactions(&mut self, now: u64) {
        let timeout = self.transaction_timeout_us;
        while let Some(&(deadline, slot)) = self.transaction_deadlines.first()
            && deadline <= now
        {
            self.transaction_deadlines.pop_first();
            let Some(transactions) = self.transactions(slot) else { continue };
            transactions.watched = None;
            let mut slow = Vec::new();
            let mut earliest = None;
            for transaction in &transactions.list {
                let Transaction { number, coordinator, attachment, phase: Phase::Open, began, .. } =
                    *transaction
                else {
                    continue;
                };
                // One without work has all of its time before it.
                let deadline = began.unwrap_or(now).saturating_add(timeout);
                if deadline <= now {
                    slow.push((number, coordinator, attachment));
                } else {
                    earliest = earliest.into_iter().chain([deadline]).min();
                }
            }
            transactions.timed_out.extend(slow.iter().map(|(number, _, attachment)| (*number, *attachment)));
            let too_many = transactions.timed_out.len().saturating_sub(TRANSACTIONS_MAX);
            transactions.timed_out.drain(..too_many);
            transactions.watched = earliest;
            self.transaction_deadlines.extend(earliest.map(|deadline| (deadline, slot)));
            for (number, coordinator, _) in slow {
                self.counters.transactions_timed_out += 1;
                self.warn_of_slow(now, slot, number);
                let acquirers = self.acquirers_of(slot, number);
                self.end_transaction(now, slot, number, Discharge { asker: None, fail: true });
                self.detach_acquirers(now, slot, &acquirers);
                self.fail_slow_channel(slot, coordinator);
            }
        }
    }

    fn warn_of_slow(&mut self, now: u64, slot: ConnectionSlot, number: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let (name, container) = (connection_name(connection.id), &connection.container);
        let transaction = connection.transactions.as_deref_mut().and_then(|list| list.find(number));
        let Some(Transaction { messages, outcomes, .. }) = transaction else { return };
        self.transaction_warnings.warn(now, &mut self.effects, |more| {
            format!(
                "a transaction of connection {name} ({container:?}) took too long, with {messages} messages and {outcomes} outcomes: \
                 rolled back, and {more} others since this was last said"
            )
        });
    }
}
