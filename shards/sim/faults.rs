//! What goes wrong in the world? Connections break, peers fall silent, read slowly, and shards stand still.
//!
//! Faults end on their own after a while, or when the simulation asks for it: then all that is left must come to rest.

use crate::random::Random;

/// Time that one fault lasts at most, in microseconds of the world.
const LASTS_MAX_US: usize = 3_000_000;

/// One fault that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A peer neither reads nor writes; its socket stays open.
    Frozen { peer: usize },
    /// A peer reads nothing.
    Slow { peer: usize },
    /// A shard does nothing.
    Stalled { shard: usize },
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    lasting: Vec<(u64, Fault)>,
}

impl Faults {
    pub(crate) fn begin(&mut self, now: u64, random: &mut Random, fault: Fault) {
        // Most are short, some long enough to be given up by others.
        let longest = if random.one_in(4) { LASTS_MAX_US } else { LASTS_MAX_US / 30 };
        self.lasting.push((now + random.below(longest) as u64, fault));
    }

    pub(crate) fn is_stalled(&self, shard: usize) -> bool {
        self.lasting.iter().any(|(_, fault)| *fault == Fault::Stalled { shard })
    }

    pub(crate) fn stalled_count(&self) -> usize {
        self.lasting.iter().filter(|(_, fault)| matches!(fault, Fault::Stalled { .. })).count()
    }

    /// The next fault that is over.
    pub(crate) fn next_over(&mut self, now: u64) -> Option<Fault> {
        let over = self.lasting.iter().position(|(until, _)| *until <= now)?;
        Some(self.lasting.swap_remove(over).1)
    }
}
