//! How often did what happen on this shard? Plain counters; every drop and refusal has one.

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
    /// Messages of transactions.
    pub messages_transactional: u64,
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
}

impl Counters {
    pub(crate) fn count_refused(&mut self, outcome: PublishOutcome) {
        let counter = match outcome {
            PublishOutcome::Stored => return,
            PublishOutcome::NoQueue | PublishOutcome::NoAddress => &mut self.messages_unroutable,
            PublishOutcome::Full => &mut self.messages_refused_full,
            PublishOutcome::Malformed => &mut self.messages_malformed,
            PublishOutcome::NoTransaction => &mut self.messages_transactional,
        };
        *counter += 1;
    }
}
