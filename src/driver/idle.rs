//! What does a shard do when there is nothing to do?

use std::time::Duration;

/// How a shard waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Sleeps at once: least power, and a wake-up's time on every message.
    Park,
    /// Polls for a while, then sleeps.
    Adaptive { spin: Duration },
    /// Polls for ever: a core burns for it.
    Spin,
}

impl Idle {
    /// How long to poll before sleeping; `None`: for ever.
    pub(super) fn spin(self) -> Option<Duration> {
        match self {
            Idle::Park => Some(Duration::ZERO),
            Idle::Adaptive { spin } => Some(spin),
            Idle::Spin => None,
        }
    }
}
