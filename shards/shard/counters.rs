//! How often did what happen on this shard? Plain counters, read by statistics; every drop and refusal has one.

/// Counts since the shard began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received from clients.
    pub messages_received: u64,
    /// Deliveries written to sessions.
    pub deliveries: u64,
    /// Pulls that found nothing.
    pub pulls_in_vain: u64,
    /// Messages handed to another shard.
    pub handoffs: u64,
    /// Messages whose sections could not be read.
    pub messages_malformed: u64,
    /// Messages for which there was no queue.
    pub messages_unroutable: u64,
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
