//! What does a shard say of itself?

use super::data::{Data, Pairs};
use super::kinds::Kind;
use super::question::Answer;
use crate::Shard;

/// How an attribute is read.
type Read = fn(&Shard) -> Data;

/// The attributes of a shard, in order.
pub(crate) const ATTRIBUTES: &[(&str, Read)] = &[
    ("name", |shard| shard.index.to_string().into()),
    ("identity", |shard| shard.index.to_string().into()),
    ("type", |_| Kind::Shard.type_name().into()),
    ("connections", |shard| shard.connection_count().into()),
    ("queues", |shard| shard.queue_count().into()),
    ("memory-used", |shard| shard.memory_used().into()),
    ("memory-max", |shard| shard.memory_max().into()),
    ("messages-received", |shard| shard.counters.messages_received.into()),
    ("deliveries", |shard| shard.statistics.deliveries().into()),
    ("wake-ups", |shard| shard.engine.counters().notified.into()),
    ("wake-ups-per-delivery", |shard| {
        let (woken, delivered) = (shard.engine.counters().notified, shard.statistics.deliveries());
        if delivered == 0 { Data::Null } else { Data::Float(woken as f64 / delivered as f64) }
    }),
    ("pulls-in-vain", |shard| shard.counters.pulls_in_vain.into()),
    ("entries-scanned", |shard| shard.engine.counters().scanned.into()),
    ("handoffs", |shard| shard.counters.handoffs.into()),
    ("messages-unroutable", |shard| shard.counters.messages_unroutable.into()),
    ("messages-refused-full", |shard| shard.counters.messages_refused_full.into()),
    ("messages-malformed", |shard| shard.counters.messages_malformed.into()),
    ("dead-letters-circling", |shard| shard.counters.dead_letters_circling.into()),
    ("transactions-declared", |shard| shard.counters.transactions_declared.into()),
    ("transactions-committed", |shard| shard.counters.transactions_committed.into()),
    ("transactions-rolled-back", |shard| shard.counters.transactions_rolled_back.into()),
    ("transactions-timed-out", |shard| shard.counters.transactions_timed_out.into()),
    ("owners-closed", |shard| shard.counters.owners_closed.into()),
    ("settlements-late", |shard| shard.counters.settlements_late.into()),
    ("targets-stalled", |shard| shard.counters.targets_stalled.into()),
    ("mail-dropped", |shard| shard.counters.mail_dropped.into()),
    ("requests", |shard| shard.counters.requests.into()),
    ("requests-refused", |shard| shard.counters.requests_refused.into()),
    ("questions-unanswered", |shard| shard.counters.questions_unanswered.into()),
    ("journal-writes", |shard| shard.counters.journal_writes.into()),
    ("journal-bytes", |shard| shard.counters.journal_bytes.into()),
    ("journal-reads", |shard| shard.counters.reads.into()),
    ("journal-bytes-read", |shard| shard.counters.read_bytes.into()),
    ("messages-unreadable", |shard| shard.counters.messages_unreadable.into()),
];

impl Shard {
    pub(crate) fn read_shard(&self) -> Answer {
        let pairs: Pairs = ATTRIBUTES.iter().map(|(name, read)| ((*name).into(), read(self))).collect();
        Answer::ok(pairs)
    }
}
