//! How does a start get back what was kept, and how does a stop end that?
//!
//! The data directory is opened on a thread of its own, so that a signal can end the process meanwhile: whatever is done to the
//! directory may end at any point. Then each shard takes in what is its own, on its own thread.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{io, thread};

use corelane_journal::Queue;
use corelane_shard::{Decisions, Shard, definition_home};
use tracing::{info, warn};

use super::BootError;
use crate::config::ServeSettings;
use crate::control::Signals;
use crate::doorbell::Doorbell;
use crate::driver::{self, Clock, Disk};
use crate::storage::{self, DataDirectory, Progress, ShardStorage, SyncMode};

/// How often signals are looked at while the data directory is read.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);

/// Where the shards keep what they keep.
pub(super) enum Storage {
    InMemory,
    Directory(Directory),
}

/// A data directory. It is locked for as long as this is there.
pub(super) struct Directory {
    _directory: DataDirectory,
    sync: SyncMode,
    decisions: Arc<Decisions>,
    progress: Arc<Progress>,
    /// By number; each is taken once.
    shards: Vec<Option<ShardStorage>>,
}

/// What a shard takes in before anything else.
pub(super) struct Restoring {
    index: usize,
    storage: ShardStorage,
    decisions: Arc<Decisions>,
    progress: Arc<Progress>,
}

impl Storage {
    /// Reads what there is for so many shards. `None`: a signal came first.
    pub(super) fn open(
        settings: &ServeSettings,
        shards: usize,
        clock: Clock,
        signals: &Signals,
    ) -> Result<Option<Self>, BootError> {
        let Some(asked) = settings.storage.clone() else {
            info!("in memory: nothing outlives this process");
            return Ok(Some(Storage::InMemory));
        };
        let destinations = settings.destinations.clone();
        let (say, opened) = channel();
        let thread = thread::Builder::new().name("storage".to_owned()).spawn(move || {
            let home = |queue: &Queue| definition_home(&destinations, queue, shards);
            let _ = say.send(storage::open(&asked, shards as u16, clock.now(), &home, &driver::measure));
        });
        let thread = thread.map_err(BootError::Thread)?;
        let opened = loop {
            match opened.recv_timeout(SIGNAL_PERIOD) {
                Ok(opened) => break opened.map_err(BootError::Storage)?,
                Err(RecvTimeoutError::Timeout) if signals.take_stop() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Ok(()) => unreachable!("the thread says how it ended"),
                    Err(panic) => resume_unwind(panic),
                },
            }
        };
        Ok(Some(Storage::Directory(Directory {
            _directory: opened.directory,
            sync: opened.sync,
            decisions: opened.decisions,
            progress: Arc::new(Progress::new("restoring", opened.used_bytes)),
            shards: opened.shards.into_iter().map(Some).collect(),
        })))
    }

    /// What the shard writes with, and what it takes in.
    pub(super) fn shard(
        &mut self,
        index: usize,
        bell: &Doorbell,
    ) -> io::Result<(Option<Disk>, Option<Restoring>)> {
        let Storage::Directory(directory) = self else { return Ok((None, None)) };
        let storage = directory.shards[index].take().expect("each shard is started once");
        let disk = Disk::start(index, storage.files.clone(), directory.sync, bell.clone())?;
        let (decisions, progress) = (Arc::clone(&directory.decisions), Arc::clone(&directory.progress));
        Ok((Some(disk), Some(Restoring { index, storage, decisions, progress })))
    }
}

impl Restoring {
    pub(super) fn restore(self, shard: &mut Shard, clock: Clock) -> io::Result<()> {
        let Restoring { index, storage, decisions, progress } = self;
        let is_new = storage.used.is_empty();
        let now = || clock.now();
        let summary =
            storage::restore(shard, storage, &decisions, &progress, now).map_err(io::Error::other)?;
        if !is_new {
            info!(
                shard = index,
                queues = summary.queues,
                messages = summary.messages,
                bytes = summary.bytes,
                "has what it had before"
            );
        }
        if summary.committed + summary.rolled_back > 0 {
            info!(
                shard = index,
                committed = summary.committed,
                rolled_back = summary.rolled_back,
                "transactions were open, and have an end now"
            );
        }
        if summary.lost > 0 {
            let lost = summary.lost;
            warn!(
                shard = index,
                "{lost} messages were there and cannot be read, or their queue is not known"
            );
        }
        Ok(())
    }
}
