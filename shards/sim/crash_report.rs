//! What was a run with crashes, or what were many?

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    pub events: u64,
    pub crashes: u64,
    pub stops: u64,
    pub messages: u64,
    pub deliveries: u64,
    /// Copies that had to be there after a crash, and were.
    pub kept: u64,
    pub transactions: u64,
    /// Disks that failed, or were full.
    pub faults: u64,
    /// Backups that were made and judged.
    pub backups: u64,
    /// Pieces of the journal that were read for messages that had left memory.
    pub reads: u64,
    /// Messages that an operator has deleted for certain.
    pub deleted: u64,
    /// Starts from a disk on which a bit had turned.
    pub rotten: u64,
    pub trace: u64,
}

impl CrashReport {
    pub fn add(&mut self, other: &CrashReport) {
        self.events += other.events;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.kept += other.kept;
        self.transactions += other.transactions;
        self.faults += other.faults;
        self.backups += other.backups;
        self.reads += other.reads;
        self.deleted += other.deleted;
        self.rotten += other.rotten;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}
