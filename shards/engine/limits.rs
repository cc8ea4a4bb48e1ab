//! How much of everything is there at most, and what happens when it is full?

/// Priorities 0 to 9 (JMS 2.0 §3.4.10, AMQP 1.0 §3.2.1); higher ones count as 9. One level each.
pub(crate) const LEVELS: usize = 10;

/// The bounds of one engine. Each says what happens when it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of all queues together. Full: `enqueue` answers [`crate::EnqueueRefusal::ShardFull`].
    pub entries_max: u32,
    /// Consumers of all queues together. Full: `attach_consumer` answers [`crate::AttachRefusal::ConsumersFull`].
    pub consumers_max: u32,
    /// Different consumer priorities on one queue. Full: `attach_consumer` answers
    /// [`crate::AttachRefusal::PrioritiesFull`].
    pub priorities_max: usize,
    /// Classes that have consumers, on one queue. Full: `attach_consumer` answers [`crate::AttachRefusal::ClassesFull`].
    pub classes_max: usize,
    /// Operators, identifiers and literals of all filters of one queue's acquiring classes, or of its browsing ones: what one message
    /// may cost at most. Full: classes without a consumer are forgotten, the one idle for longest first; where that is not enough,
    /// `attach_consumer` answers [`crate::AttachRefusal::FiltersFull`].
    pub filter_nodes_max: usize,
    /// The same, times entries, that one slice of scanning, or of what is due, evaluates at most, if that is more than one entry.
    pub scan_nodes_max: usize,
    /// Classes without a consumer that are kept, on one queue, so that the next attach need not scan. Full: the one idle
    /// for longest is forgotten.
    pub classes_idle_max: usize,
    /// How long a class is kept without a consumer, in microseconds.
    pub class_idle_us: u64,
    /// Places known to one filtered class. Full: the highest is dropped and scanned for again when its turn comes.
    pub candidates_max: usize,
    /// Entries one slice of scanning looks at.
    pub scan_slice_max: usize,
    /// Entries one pull looks at before it answers [`Pull::Scanning`](crate::Pull::Scanning) and goes on next time.
    pub pull_steps_max: usize,
    /// Entries whose time has come that one call of `handle_timeout` handles; the rest waits for the next call.
    pub timeout_slice_max: usize,
    /// Entries one consumer has refused (`undeliverable-here`) and that are still in the queue. Full: the consumer is
    /// paused ([`PauseReason::Refusals`](crate::PauseReason::Refusals)) until others took some of them.
    pub refused_max: usize,
    /// Sticky groups without an entry, on one queue. Full: the one idle for longest loses its consumer.
    pub sticky_groups_max: usize,
    /// Not a bound: what tables hash with, so that a peer who chooses keys cannot choose collisions. Chance is the caller's.
    pub hash_seed: u64,
    /// Emptied chunks kept for reuse; more are given back to the allocator.
    pub chunks_spare_max: usize,
}

impl Limits {
    /// What makes progress possible is never 0.
    pub(crate) fn at_least_one(mut self) -> Self {
        self.candidates_max = self.candidates_max.max(1);
        self.scan_slice_max = self.scan_slice_max.max(1);
        self.pull_steps_max = self.pull_steps_max.max(1);
        self.timeout_slice_max = self.timeout_slice_max.clamp(1, u32::MAX as usize);
        self.refused_max = self.refused_max.max(1);
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries_max: 1 << 30,
            consumers_max: 1 << 20,
            priorities_max: 64,
            classes_max: 1 << 16,
            filter_nodes_max: 1 << 16,
            scan_nodes_max: 1 << 16,
            classes_idle_max: 4096,
            class_idle_us: 60_000_000,
            candidates_max: 64,
            scan_slice_max: 256,
            pull_steps_max: 64,
            timeout_slice_max: 256,
            refused_max: 1024,
            sticky_groups_max: 1 << 16,
            hash_seed: 0,
            chunks_spare_max: 256,
        }
    }
}
