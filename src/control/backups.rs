//! Is a backup being made, and what have those who want one to be told?
//!
//! Invariants: whoever asks gets one answer; shards hold for [`BARRIER_US_MAX`] at most; a stop of the broker ends a backup, and whoever
//! copies hears then that it is not complete.

use std::sync::mpsc::Sender;

use corelane_shard::{BackupMail, BackupRefusal, Barrier, Image, Mail};

use crate::backup::{Door, Request};

/// How long shards may take until none of them writes. When one takes longer there is no backup, and all go on.
const BARRIER_US_MAX: u64 = 5_000_000;

type Answer = Sender<Result<Image, String>>;

/// The control thread's part of backups.
pub(super) struct Backups {
    /// None: there is nothing of which one could be made, or nobody can ask for it.
    door: Option<Door>,
    barrier: Barrier,
    /// Who waits until all shards hold, and when that began.
    waiting: Option<(Answer, u64)>,
    is_stopping: bool,
}

impl Backups {
    pub(super) fn new(door: Option<Door>, shards: usize) -> Self {
        Backups { door, barrier: Barrier::new(shards), waiting: None, is_stopping: false }
    }

    /// Looks for requests. `is_ready`: shards have what they had before.
    pub(super) fn take_requests(&mut self, now: u64, is_ready: bool) {
        while let Some(request) = self.door.as_ref().and_then(Door::take) {
            match request {
                Request::Begin { answer } => {
                    if let Err(reason) = self.begin(is_ready) {
                        refuse(&answer, reason);
                    } else {
                        self.waiting = Some((answer, now));
                    }
                }
                Request::End { copied, answer } => {
                    let result = self.end(copied);
                    let _ = answer.send(result);
                }
            }
        }
    }

    /// A shard has written.
    pub(super) fn handle_mail(&mut self, now: u64, from: usize, mail: BackupMail) {
        let Some(result) = self.barrier.handle(from, mail) else { return };
        let Some((answer, began)) = self.waiting.take() else { return };
        match result {
            Ok(image) => {
                let segments: usize = image.iter().map(Vec::len).sum();
                let bytes: u64 = image.iter().flatten().map(|segment| u64::from(segment.bytes)).sum();
                tracing::info!(segments, bytes, held_us = now - began, "a backup is being copied");
                if answer.send(Ok(image)).is_err() {
                    self.barrier.end();
                }
            }
            Err(refusal) => refuse(&answer, refusal.to_string()),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: u64) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let shard = self.barrier.waits_for().unwrap_or_default();
        self.barrier.end();
        if let Some((answer, _)) = self.waiting.take() {
            let seconds = BARRIER_US_MAX / 1_000_000;
            let reason = format!(
                "shard {shard} has not ended its write within {seconds} seconds, and all have gone on: its disk is slow or hangs"
            );
            refuse(&answer, reason);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.waiting.as_ref().map(|(_, began)| began + BARRIER_US_MAX)
    }

    /// The broker stops: what it needs for that goes first.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.barrier.end();
        if let Some((answer, _)) = self.waiting.take() {
            refuse(&answer, STOPPING.to_owned());
        }
    }

    /// Mail that is to be sent to a shard.
    pub(super) fn poll_mail(&mut self) -> Option<(usize, Mail)> {
        self.barrier.poll_mail()
    }

    fn begin(&mut self, is_ready: bool) -> Result<(), String> {
        if self.is_stopping {
            return Err(STOPPING.to_owned());
        }
        if !is_ready {
            return Err("the broker is still starting: try again when it is ready".to_owned());
        }
        self.barrier.begin().map_err(|refusal: BackupRefusal| refusal.to_string())
    }

    /// The one backup that was begun is over.
    fn end(&mut self, copied: bool) -> Result<(), String> {
        if self.is_stopping {
            return Err(STOPPING.to_owned());
        }
        self.barrier.end();
        match copied {
            true => tracing::info!("the backup is copied"),
            false => tracing::warn!("whoever was making a backup has gone before everything was copied"),
        }
        Ok(())
    }
}

const STOPPING: &str = "the broker is stopping";

fn refuse(answer: &Answer, reason: String) {
    tracing::warn!("there is no backup: {reason}");
    // Whoever has gone needs none.
    let _ = answer.send(Err(reason));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Asker;
    use crate::doorbell::Doorbell;
    use corelane_shard::ImageSegment;
    use std::thread;
    use std::time::{Duration, Instant};

    /// What somebody is told who asks for a backup, when `then` is done after shards were asked to hold.
    fn told(is_ready: bool, then: impl FnOnce(&mut Backups)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let bell = Doorbell::new().unwrap();
        let mut backups = Backups::new(Some(Door::open(folder.path(), bell.clone()).unwrap()), 2);
        let path = folder.path().to_owned();
        let asker = thread::spawn(move || {
            let mut asker = Asker::connect(&path).unwrap().unwrap();
            match asker.begin(2).and_then(|_| asker.end()) {
                Ok(()) => "complete".to_owned(),
                Err(error) => error.to_string(),
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut then = Some(then);
        while !asker.is_finished() {
            assert!(Instant::now() < deadline, "nobody is told anything");
            bell.wait(Some(Duration::from_millis(20)));
            backups.take_requests(7, is_ready);
            if backups.waiting.is_some()
                && let Some(then) = then.take()
            {
                then(&mut backups);
            }
        }
        assert!(backups.waiting.is_none() && backups.next_deadline().is_none());
        asker.join().unwrap()
    }

    fn hold(backups: &mut Backups, shard: usize) {
        let result = Ok(vec![ImageSegment { number: 1, bytes: 4096 }]);
        backups.handle_mail(9, shard, BackupMail::Held { number: 1, result });
    }

    #[test]
    fn whoever_asks_is_told_once() {
        let check = |told: String, part: &str| assert!(told.contains(part), "{told:?} does not say {part:?}");
        check(told(true, |backups| (0..2).for_each(|shard| hold(backups, shard))), "complete");
        check(told(false, |_| {}), "still starting");
        let slow = told(true, |backups| {
            hold(backups, 0);
            backups.handle_timeout(7 + BARRIER_US_MAX - 1);
            assert!(backups.waiting.is_some());
            backups.handle_timeout(7 + BARRIER_US_MAX);
            let released = std::iter::from_fn(|| backups.poll_mail())
                .filter(|(_, mail)| matches!(mail, Mail::Backup(BackupMail::Release)));
            assert_eq!(released.count(), 2, "all go on");
        });
        check(slow, "shard 1 has not ended its write within 5 seconds");
        check(told(true, Backups::stop), "the broker is stopping");
        let stopped = told(true, |backups| {
            (0..2).for_each(|shard| hold(backups, shard));
            backups.stop();
        });
        check(stopped, "the broker is stopping");
    }
}
