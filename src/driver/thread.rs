//! How does a shard's thread begin and end, seen from outside?

use super::executor::Thread;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How often is looked whether to go on waiting.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A shard's thread that has been started and is not known to run yet.
pub struct Starting {
    index: usize,
    thread: Thread,
    ended: Receiver<()>,
    ready: Receiver<io::Result<()>>,
}

/// A shard's thread.
pub struct ShardThread {
    thread: Thread,
    /// Has something when the thread has nothing left to do.
    ended: Receiver<()>,
}

impl Starting {
    pub(super) fn new(
        index: usize,
        thread: Thread,
        ended: Receiver<()>,
        ready: Receiver<io::Result<()>>,
    ) -> Self {
        Starting { index, thread, ended, ready }
    }

    /// Waits until its ring stands, and everything that is to be there is.
    pub fn wait(self) -> io::Result<ShardThread> {
        let started = self.wait_unless(|| false)?;
        Ok(started.expect("it is waited for until it has started"))
    }

    /// The same, unless somebody stops that. `None`: somebody did, and the thread is left to the end of the process.
    pub fn wait_unless(self, mut is_stopped: impl FnMut() -> bool) -> io::Result<Option<ShardThread>> {
        let Starting { thread, ended, ready, .. } = self;
        loop {
            match ready.recv_timeout(LOOK_EVERY) {
                Ok(Ok(())) => return Ok(Some(ShardThread { thread, ended })),
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) if is_stopped() => {
                    std::mem::forget(thread);
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    thread.join()?;
                    return Err(io::Error::other("the shard's thread has ended"));
                }
            }
        }
    }

    /// The number of the shard.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl ShardThread {
    /// Waits for its end, which [`Letter::Exit`](super::Letter::Exit) brings, at most for so long.
    pub fn join_within(self, time: Duration) -> io::Result<()> {
        match self.ended.recv_timeout(time) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => self.thread.join(),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
