//! How often did what happen on this shard? Plain counters; every drop and refusal has one.

use corelane_engine::DeadLetterReason;

use crate::mail::PublishOutcome;

/// Counts since the shard began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received from clients.
    pub messages_received: u64,
    /// Deliveries handed to sessions, those included that turned out too large.
    pub deliveries: u64,
    /// Pulls that found nothing.
    pub pulls_in_vain: u64,
    /// Messages handed to another shard.
    pub handoffs: u64,
    /// Messages whose sections could not be read.
    pub messages_malformed: u64,
    /// Messages for which there was no queue, or that named none.
    pub messages_unroutable: u64,
    /// Messages refused because their queue or the memory was full.
    pub messages_refused_full: u64,
    /// Messages of transactions that are not open, or have too much work already.
    pub messages_transactional: u64,
    pub transactions_declared: u64,
    pub transactions_committed: u64,
    /// For whatever reason, those included whose connection went.
    pub transactions_rolled_back: u64,
    /// Those of them that had taken too long.
    pub transactions_timed_out: u64,
    /// Messages of the broker's own making (dead letters, moved messages, answers) that were handed to another shard.
    pub messages_forwarded: u64,
    /// Such messages that were dropped: there was no queue for them.
    pub forwards_unroutable: u64,
    /// The same: their queue, or the memory, was full.
    pub forwards_refused_full: u64,
    /// Times that a link had to wait for room in a queue.
    pub producers_blocked: u64,
    /// Dead letters that were sent on their way, by what they died of.
    pub dead_letters: DeadLetterCounts,
    /// Dead letters that went round in a circle and were dropped.
    pub dead_letters_circling: u64,
    /// Dead letters whose queue was deleted, or has no place for them any more.
    pub dead_letters_orphaned: u64,
    /// Queues that went with their last consumer.
    pub queues_auto_deleted: u64,
    /// Queues that were unused for too long.
    pub queues_idle_expired: u64,
    /// Connections that were closed for a heartbeat, since another one has declared a queue of theirs.
    pub owners_closed: u64,
    /// Mail for a connection that has ended.
    pub mail_dropped: u64,
    /// Settlements of deliveries that someone else holds by now.
    pub settlements_late: u64,
    /// Deliveries of consumer targets that came back unwritten.
    pub deliveries_returned: u64,
    /// Consumer targets whose shard did not answer in time.
    pub targets_stalled: u64,
    /// Connections that arrived from another shard.
    pub connections_adopted: u64,
    /// Requests for the management node that were taken.
    pub requests: u64,
    /// Those that were not: nowhere to answer to, or too many.
    pub requests_refused: u64,
    /// Questions of management that another shard did not answer in time.
    pub questions_unanswered: u64,
    /// Batches that were given to the disk, each written and synced once.
    pub journal_writes: u64,
    /// Bytes of them, headers and padding included.
    pub journal_bytes: u64,
    /// Pieces of the journal that were read for messages that had left memory.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Messages that had left memory and could not be read.
    pub messages_unreadable: u64,
}

/// Counts of dead letters by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterCounts {
    pub rejected: u64,
    pub expired: u64,
    pub deliveries: u64,
    pub overflow: u64,
    pub deleted: u64,
}

impl DeadLetterCounts {
    pub(crate) fn count(&mut self, reason: DeadLetterReason) {
        let counter = match reason {
            DeadLetterReason::Rejected => &mut self.rejected,
            DeadLetterReason::Expired => &mut self.expired,
            DeadLetterReason::DeliveriesMax => &mut self.deliveries,
            DeadLetterReason::Overflow => &mut self.overflow,
            DeadLetterReason::Deleted => &mut self.deleted,
        };
        *counter += 1;
    }
}

impl Counters {
    /// A batch of so many bytes is given to the disk.
    pub(crate) fn count_write(&mut self, bytes: usize) {
        self.journal_writes += 1;
        self.journal_bytes += bytes as u64;
    }

    pub(crate) fn count_refused(&mut self, outcome: PublishOutcome) {
        let counter = match outcome {
            PublishOutcome::Stored => return,
            PublishOutcome::NoQueue
            | PublishOutcome::NoSubscription
            | PublishOutcome::NoAddress
            | PublishOutcome::Denied => &mut self.messages_unroutable,
            PublishOutcome::Full | PublishOutcome::NoRoom | PublishOutcome::NoDisk => {
                &mut self.messages_refused_full
            }
            PublishOutcome::Malformed => &mut self.messages_malformed,
            PublishOutcome::NoTransaction
            | PublishOutcome::TransactionTimedOut
            | PublishOutcome::TransactionFull
            | PublishOutcome::NotTransactional => &mut self.messages_transactional,
        };
        *counter += 1;
    }

    /// A message of the broker's own making was dropped.
    pub(crate) fn count_forward_refused(&mut self, outcome: PublishOutcome) {
        match outcome {
            PublishOutcome::Stored => {}
            PublishOutcome::Full | PublishOutcome::NoRoom | PublishOutcome::NoDisk => {
                self.forwards_refused_full += 1
            }
            PublishOutcome::NoQueue
            | PublishOutcome::NoSubscription
            | PublishOutcome::NoAddress
            | PublishOutcome::Malformed
            | PublishOutcome::NoTransaction
            | PublishOutcome::TransactionTimedOut
            | PublishOutcome::TransactionFull
            | PublishOutcome::NotTransactional
            | PublishOutcome::Denied => self.forwards_unroutable += 1,
        }
    }
}
