//! In what way does what was written become durable?
//!
//! Which of the ways is the quickest depends on the device, its cache, the file system and the kernel, so it is measured.

use crate::doorbell::Doorbell;
use corelane_journal::Write;
use serde::Deserialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;
use std::{fmt, io, thread};

/// What `--sync` may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SyncChoice {
    /// The quickest of the others, as a few writes at the start tell.
    #[default]
    Auto,
    /// A write that is complete when it is durable (RWF_DSYNC).
    WriteThrough,
    /// A write with an fdatasync linked to it.
    Fdatasync,
    /// A write and an fdatasync on a thread beside the shard.
    Thread,
}

/// One of the ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    WriteThrough,
    Fdatasync,
    Thread,
}

impl SyncMode {
    /// The first is preferred if all are equal.
    pub const ALL: [SyncMode; 3] = [SyncMode::WriteThrough, SyncMode::Fdatasync, SyncMode::Thread];
}

impl SyncChoice {
    /// `None`: the quickest.
    pub fn mode(self) -> Option<SyncMode> {
        match self {
            SyncChoice::Auto => None,
            SyncChoice::WriteThrough => Some(SyncMode::WriteThrough),
            SyncChoice::Fdatasync => Some(SyncMode::Fdatasync),
            SyncChoice::Thread => Some(SyncMode::Thread),
        }
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SyncMode::WriteThrough => "write-through",
            SyncMode::Fdatasync => "fdatasync",
            SyncMode::Thread => "thread",
        })
    }
}

/// How long a small batch takes, from the write's beginning to the end of its sync: three of four take longer. What else the machine
/// does meanwhile only adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub mode: SyncMode,
    pub quartile: Duration,
}

/// A way of syncing that does not work here.
#[derive(Debug)]
pub struct SyncError {
    pub mode: SyncMode,
    pub error: io::Error,
}

/// Measures ways of syncing, in a folder that has nothing else in it, past the kernel's cache or not. Whoever writes for the shards
/// knows how.
pub type Measure<'a> = &'a dyn Fn(&Path, bool, &[SyncMode]) -> Vec<Result<Measured, SyncError>>;

/// What became of a write.
#[derive(Debug)]
pub struct Synced {
    pub write: Write,
    pub result: io::Result<()>,
}

/// A thread that writes and syncs for a shard. It ends when this is dropped.
#[derive(Debug)]
pub struct SyncThread {
    requests: Sender<(Arc<File>, Write)>,
    answers: Receiver<Synced>,
}

impl SyncThread {
    /// Starts it; it runs where the calling thread may. `bell` is rung for each answer.
    pub fn start(name: &str, bell: Doorbell) -> io::Result<Self> {
        let (requests, incoming) = channel::<(Arc<File>, Write)>();
        let (outgoing, answers) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for (file, write) in incoming {
                let result = file.write_all_at(write.bytes(), write.offset).and_then(|()| file.sync_data());
                drop(file);
                if outgoing.send(Synced { write, result }).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(SyncThread { requests, answers })
    }

    pub fn write(&self, file: Arc<File>, write: Write) {
        self.requests.send((file, write)).expect("the thread ends when its shard does");
    }

    pub fn poll(&self) -> Option<Synced> {
        match self.answers.try_recv() {
            Ok(synced) => Some(synced),
            Err(TryRecvError::Empty) => None,
            // A write would be without an answer for ever.
            Err(TryRecvError::Disconnected) => panic!("the thread that syncs has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the thread that syncs has ended")]
    fn a_thread_that_ends_is_noticed() {
        let ((requests, _), (_, answers)) = (channel(), channel());
        SyncThread { requests, answers }.poll();
    }
}
