//! How does anything get from one shard to another?
//!
//! By a bounded lane for each ordered pair of participants (the shards, then the control thread) and each kind of mail.
//! Every participant owns one [`Port`]; nothing else is shared between shards, and no other room has atomics.
//!
//! Invariants:
//! - a lane has one writer and one reader, and its order is the order of [`Port::post`], also when it had been full;
//! - per lane: taken ≤ posted ≤ taken + capacity;
//! - posted > taken ⇒ the reader has the lane's bit, in its shared word or in its own copy of it;
//! - a participant that sleeps and has a bit set has been rung, or the one who set the bit has yet to end its
//!   [`Port::flush`];
//! - control mail never waits behind handoffs: it has lanes, bits and outboxes of its own and is taken first;
//! - nobody waits for anybody: a participant that is stopped in the middle of a call holds up no other's call.
//!
//! Left out: how a doorbell is rung (the driver's eventfd), what the mail says, and the windows that bound an outbox.

mod mailboxes;
mod port;
mod sync;

pub use mailboxes::Mailboxes;
pub use port::Port;

/// The kind of a piece of mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Settlements, credit, housekeeping, topology, queries.
    Control,
    /// Messages on their way to a queue of another shard.
    Handoff,
}

impl Lane {
    /// In the order in which they are taken.
    pub(crate) const ALL: [Lane; 2] = [Lane::Control, Lane::Handoff];

    pub(crate) const fn index(self) -> usize {
        match self {
            Lane::Control => 0,
            Lane::Handoff => 1,
        }
    }
}
