//! What of a transaction over several shards outlives them?
//!
//! Each participant writes its part before it votes; the deciding shard writes a commit before it tells anyone; a participant writes that
//! its part is done in the batch that does it, and when all have, the decision is not needed any more. A part without a decision rolls
//! back when the shard starts again.

use corelane_journal::{Position, Ticket, TransactionName};

use super::promise::Promise;
use super::{Durability, Said};
use crate::Shard;
use crate::mail::TransactionKey;

/// A name for a transaction that this shard decides.
pub(crate) fn next_name(durability: &mut Option<Box<Durability>>, shard: usize) -> TransactionName {
    let shard = shard as u16;
    match durability {
        Some(durability) => {
            durability.transactions += 1;
            TransactionName { boot: durability.boot, shard, number: durability.transactions }
        }
        // Nothing is written.
        None => TransactionName { boot: 0, shard, number: 0 },
    }
}

impl Shard {
    pub(crate) fn say_prepared(&mut self, transaction: TransactionKey) {
        self.begin_group();
        self.note(Said::Prepared { transaction });
        self.end_group();
    }

    pub(crate) fn say_done(
        &mut self,
        name: TransactionName,
        committed: bool,
        prepared: Position,
        segments: Vec<u32>,
    ) {
        self.note(Said::Done { name, committed, prepared, segments });
    }

    /// Writes that a transaction is committed, and then tells who has a part in it.
    pub(crate) fn keep_decision(
        &mut self,
        transaction: TransactionKey,
        name: TransactionName,
        parts: Vec<(usize, u32)>,
    ) {
        let Some(durability) = &mut self.durability else { return };
        let participants = parts.iter().map(|(shard, _)| *shard as u16).collect();
        durability.say(Said::Decided { name, participants });
        durability.undone.insert(transaction, (name, parts.len()));
        let ticket = durability.journal.said();
        durability.promise(ticket, Promise::Decided { transaction, parts });
    }

    /// This shard's own part is done when what was said since the mark is synced.
    pub(crate) fn done_kept(&mut self, now: u64, mark: Ticket, transaction: TransactionKey) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => durability.promise(ticket, Promise::Done { transaction }),
            (_, _) => self.on_part_done(now, transaction),
        }
    }

    /// One part less is to be done; with the last one the decision is not needed any more.
    pub(crate) fn note_part_done(&mut self, transaction: TransactionKey) {
        let Some(durability) = &mut self.durability else { return };
        let Some((name, count)) = durability.undone.get_mut(&transaction) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let name = *name;
        durability.undone.remove(&transaction);
        if let Some(position) = durability.decided.remove(&name) {
            durability.say(Said::Forgotten(position));
        }
    }
}
