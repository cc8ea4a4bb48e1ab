//! How is a sleeping participant woken?
//!
//! By a write to its eventfd. A shard has a lasting poll of it armed in its ring, the control thread waits for it with
//! `poll`. A shard never reads it: each write wakes, and the count has room for 2⁶⁴ of them.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// One participant's doorbell. Copies ring the same.
#[derive(Clone, Debug)]
pub struct Doorbell {
    descriptor: Arc<OwnedFd>,
}

impl Doorbell {
    /// A doorbell nobody has rung.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell { descriptor: Arc::new(descriptor) })
    }

    /// Wakes the participant, or makes its next sleep end at once.
    pub fn ring(&self) {
        match write(&self.descriptor, &1_u64.to_ne_bytes()) {
            // A count that is full has been rung.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => panic!("an eventfd of ours cannot be written to: {error}"),
        }
    }

    /// Sleeps until it is rung, at most for so long. True: it was rung since the last time.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted wait is over, too.
        let _ = poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], timeout.as_ref());
        let mut count = [0; 8];
        read(&self.descriptor, &mut count).is_ok()
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
