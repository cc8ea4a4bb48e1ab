//! What do consumers that settle second say inside transactions, and what may then be seen of it?
//!
//! They name an outcome and do not settle, so the delivery stays with them until the transaction ends: its outcome happens if that
//! commits, and if it is rolled back the delivery is its consumer's, as it was. Who loses its link before loses the transaction, too.

use crate::oracle::{Consumer, Fate, Oracle, Settling};

/// An outcome that waits: whose it is, message, delivery id, and what it is.
pub(crate) type Noted = (usize, usize, u32, Settling);

impl Oracle {
    /// A consumer names the outcome of a delivery, and does not settle it: the `held` one at this position.
    pub(crate) fn noted_in(
        &mut self,
        (index, position): (usize, usize),
        outcome: Settling,
        transaction: usize,
    ) {
        let may_fail = self.may_lose_hold(index);
        let (number, delivery_id) = self.consumers[index].held[position];
        self.consumers[index].noted.insert(delivery_id, transaction);
        self.messages[number].may_have_ended |= outcome.is_end();
        self.transactions[transaction].noted(may_fail, (index, number, delivery_id, outcome));
    }

    /// The transaction has ended, or its consumer's link before that.
    pub(crate) fn note_ends(&mut self, transaction: usize, noted: Noted, committed: bool) {
        let (index, number, delivery_id, outcome) = noted;
        let consumer = &mut self.consumers[index];
        if consumer.noted.get(&delivery_id) != Some(&transaction) {
            return;
        }
        consumer.noted.remove(&delivery_id);
        if !committed {
            return;
        }
        let is_held = consumer.held.iter().any(|(_, held)| *held == delivery_id);
        consumer.held.retain(|(_, held)| *held != delivery_id);
        consumer.acquired.remove(&delivery_id);
        if outcome == Settling::NotHere {
            consumer.refused.insert(number);
        }
        let message = &mut self.messages[number];
        message.failed_max += u32::from(outcome == Settling::Failed);
        if is_held && message.holder == Some(index) {
            (message.holder, message.acquired_in) = (None, None);
            if outcome.is_end() {
                let accepted = outcome == Settling::Accepted;
                message.was_accepted |= accepted;
                message.fate = Fate::Ended { accepted };
            }
        }
    }

    /// The transaction in which the holder of a message has named its outcome, and what that is.
    pub(crate) fn noted_of(&self, number: usize) -> Option<(usize, Noted)> {
        let holder = self.messages[number].holder?;
        let consumer = &self.consumers[holder];
        let (_, delivery_id) = consumer.held.iter().find(|(held, _)| *held == number)?;
        let transaction = *consumer.noted.get(delivery_id)?;
        let noted = self.transactions[transaction].find_noted(*delivery_id, holder)?;
        Some((transaction, noted))
    }

    /// A message has come while its holder waits for a transaction: that has committed, if it says that the message is for others.
    pub(crate) fn judge_noted(&mut self, number: usize) {
        let Some((transaction, noted)) = self.noted_of(number) else { return };
        let (_, _, _, outcome) = noted;
        if self.is_open(transaction) || outcome.is_end() {
            return;
        }
        if self.messages[number].acquired_in == Some(transaction) {
            // Or it was rolled back, and what was sent in it went back.
            self.messages[number].is_loose = true;
        } else {
            self.saw(transaction, true);
        }
        self.note_ends(transaction, noted, true);
    }

    /// A consumer is gone: what it has named happens only if the transaction had been asked to commit before.
    pub(crate) fn noter_gone(&mut self, index: usize) {
        for (delivery_id, transaction) in std::mem::take(&mut self.consumers[index].noted) {
            let Some((_, number, _, outcome)) = self.transactions[transaction].find_noted(delivery_id, index)
            else {
                continue;
            };
            self.fails_or_retires((index, number), outcome, transaction);
        }
    }
}

impl Consumer {
    /// The transaction that a delivery waits for, whether it was sent in that or is to be settled in it.
    pub(crate) fn waits_for(&self, delivery_id: u32) -> Option<usize> {
        self.acquired.get(&delivery_id).or_else(|| self.noted.get(&delivery_id)).copied()
    }
}
