//! What does the runtime do for a shard?
//!
//! It makes the thread, pins it, and runs one future on it for ever. The pump does not wait inside of the runtime: it sleeps
//! in its own ring, where every event of a shard arrives. Background work that is to run beside it (clean-up, recovery) would
//! be spawned here, and the pump would yield to it between two turns, never on its way to sleep.

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, PoolPlacement};
use std::io;

/// The executor's own registered memory: it has next to no I/O of its own.
const IO_MEMORY: usize = 64 << 10;

/// With a shallower ring, cancellations may be applied to the wrong operation.
const RING_DEPTH: usize = 1024;

/// Where a shard's thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    Core(usize),
    /// On this core, which other shards use as well.
    Shared(usize),
    /// Wherever the scheduler likes: for tests.
    Unpinned,
}

/// A thread that runs `main` to its end.
pub(super) struct Thread {
    handle: ExecutorJoinHandle<()>,
}

impl Thread {
    pub(super) fn start(
        name: &str,
        placement: Placement,
        main: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let placement = match placement {
            Placement::Core(core) | Placement::Shared(core) => glommio::Placement::Fixed(core),
            Placement::Unpinned => glommio::Placement::Unbound,
        };
        let handle = LocalExecutorBuilder::new(placement)
            .name(name)
            .io_memory(IO_MEMORY)
            .ring_depth(RING_DEPTH)
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
            .spawn(move || async move { main() })
            .map_err(io::Error::from)?;
        Ok(Thread { handle })
    }

    pub(super) fn join(self) -> io::Result<()> {
        self.handle.join().map_err(io::Error::from)
    }
}
