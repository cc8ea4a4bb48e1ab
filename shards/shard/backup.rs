//! What would a crash leave at this instant, over all shards?
//!
//! A backup is that, copied while the broker goes on. Shards sync what they do one after the other (what is moved is written where it
//! goes before it is gone where it was, a transaction is decided after all its parts are written), so copies of them at different
//! instants would have things half, or not at all. Hence one *barrier*: no shard begins a write until no write of any is on its way.
//!
//! ```text
//!   Hold ──→ each shard ──Held (its segments)──→ all have answered: that is the instant ──GoOn──→ … copying … ──Release
//! ```
//!
//! Invariants:
//! - from its answer to [`BackupMail::GoOn`] or [`BackupMail::Release`] a shard writes nothing;
//! - until [`BackupMail::Release`] it frees no segment, so whoever copies finds all bytes of the image as they were;
//! - one backup at a time, and what a shard answers late to one before is not taken for an answer to this.
//!
//! Left out: who asks for a backup, how long shards may take, and the copying (the process does all of that); a shard's part
//! (`durability`).

use std::collections::VecDeque;
use std::fmt;

use crate::mail::Mail;

/// Between the control thread and the shards.
#[derive(Debug)]
pub enum BackupMail {
    /// To a shard: begin no write, and answer when none is on its way.
    Hold { number: u64 },
    /// The answer.
    Held { number: u64, result: Result<Vec<ImageSegment>, BackupRefusal> },
    /// To a shard: write again.
    GoOn,
    /// To a shard: the backup is over, however it has ended.
    Release,
}

/// Of the file of this segment so many bytes from the front belong to the image; of a shorter one all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSegment {
    pub number: u32,
    pub bytes: u32,
}

/// What a crash would have left: by shard, the segments of its journal.
pub type Image = Vec<Vec<ImageSegment>>;

/// Why there is no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupRefusal {
    /// Another one has not ended.
    Busy,
    /// Nothing is kept.
    InMemory,
    /// The journal of this shard has failed.
    Failed { shard: usize },
}

/// The control thread's part of it.
#[derive(Debug)]
pub struct Barrier {
    shards: usize,
    /// Of the last backup that was begun.
    number: u64,
    state: State,
    mail: VecDeque<(usize, Mail)>,
}

#[derive(Debug)]
enum State {
    Idle,
    /// What each shard has answered.
    Holding(Vec<Option<Vec<ImageSegment>>>),
    Copying,
}

impl Barrier {
    pub fn new(shards: usize) -> Self {
        Barrier { shards, number: 0, state: State::Idle, mail: VecDeque::new() }
    }

    /// All shards are asked to hold.
    pub fn begin(&mut self) -> Result<(), BackupRefusal> {
        match self.state {
            State::Idle => {}
            State::Holding(_) | State::Copying => return Err(BackupRefusal::Busy),
        }
        self.number += 1;
        self.state = State::Holding(vec![None; self.shards]);
        let number = self.number;
        self.post_all(|| BackupMail::Hold { number });
        Ok(())
    }

    /// A shard has written. Answers the image when it was the last one, at this instant, or why there is none.
    pub fn handle(&mut self, from: usize, mail: BackupMail) -> Option<Result<Image, BackupRefusal>> {
        let BackupMail::Held { number, result } = mail else { return None };
        let State::Holding(answers) = &mut self.state else { return None };
        if number != self.number {
            return None;
        }
        match result {
            Ok(segments) => answers[from] = Some(segments),
            Err(refusal) => {
                self.end();
                return Some(Err(refusal));
            }
        }
        if answers.iter().any(Option::is_none) {
            return None;
        }
        let image = answers.iter_mut().filter_map(Option::take).collect();
        self.state = State::Copying;
        self.post_all(|| BackupMail::GoOn);
        Some(Ok(image))
    }

    /// It is over, at whatever point: shards write and free again. Does nothing if there is none.
    pub fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Holding(_) | State::Copying => self.post_all(|| BackupMail::Release),
        }
    }

    /// Mail that is to be sent to a shard.
    pub fn poll_mail(&mut self) -> Option<(usize, Mail)> {
        self.mail.pop_front()
    }

    /// The first shard that is waited for.
    pub fn waits_for(&self) -> Option<usize> {
        match &self.state {
            State::Holding(answers) => answers.iter().position(Option::is_none),
            State::Idle | State::Copying => None,
        }
    }

    fn post_all(&mut self, mail: impl Fn() -> BackupMail) {
        self.mail.extend((0..self.shards).map(|shard| (shard, Mail::Backup(mail()))));
    }
}

impl fmt::Display for BackupRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupRefusal::Busy => {
                write!(formatter, "another backup of this broker is being made: wait until it has ended")
            }
            BackupRefusal::InMemory => write!(formatter, "the broker keeps nothing on a disk"),
            BackupRefusal::Failed { shard } => write!(
                formatter,
                "the journal of shard {shard} could not be written, and nobody knows what of it is on the disk: mend the disk \
                 and start the broker again, as its log says"
            ),
        }
    }
}

impl std::error::Error for BackupRefusal {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is posted, as one text for each mail.
    fn posted(barrier: &mut Barrier) -> String {
        let mut text = Vec::new();
        while let Some((shard, mail)) = barrier.poll_mail() {
            let Mail::Backup(mail) = mail else { panic!("{mail:?} has nothing to do with it") };
            text.push(match mail {
                BackupMail::Hold { number } => format!("{shard} hold {number}"),
                BackupMail::Held { .. } => panic!("this is a shard's"),
                BackupMail::GoOn => format!("{shard} go on"),
                BackupMail::Release => format!("{shard} release"),
            });
        }
        text.join(", ")
    }

    fn held(number: u64, segment: u32) -> BackupMail {
        BackupMail::Held { number, result: Ok(vec![ImageSegment { number: segment, bytes: 4096 }]) }
    }

    #[test]
    fn all_hold_and_all_go_on_when_the_last_has_answered() {
        let mut barrier = Barrier::new(2);
        barrier.begin().unwrap();
        assert_eq!(posted(&mut barrier), "0 hold 1, 1 hold 1");
        assert_eq!(barrier.begin(), Err(BackupRefusal::Busy));
        assert_eq!(barrier.waits_for(), Some(0));
        assert!(barrier.handle(1, held(1, 7)).is_none());
        assert_eq!((posted(&mut barrier), barrier.waits_for()), (String::new(), Some(0)));
        let image = barrier.handle(0, held(1, 5)).unwrap().unwrap();
        let numbers: Vec<u32> = image.iter().map(|segments| segments[0].number).collect();
        assert_eq!(numbers, [5, 7]);
        assert_eq!(posted(&mut barrier), "0 go on, 1 go on");
        assert_eq!((barrier.begin(), barrier.waits_for()), (Err(BackupRefusal::Busy), None));
        barrier.end();
        assert_eq!(posted(&mut barrier), "0 release, 1 release");
        barrier.end();
        assert_eq!(posted(&mut barrier), "");
        barrier.begin().unwrap();
        assert_eq!(posted(&mut barrier), "0 hold 2, 1 hold 2");
    }

    #[test]
    fn one_that_cannot_ends_it_for_all_and_late_answers_are_not_taken() {
        let mut barrier = Barrier::new(2);
        barrier.begin().unwrap();
        posted(&mut barrier);
        let refusal = BackupRefusal::Failed { shard: 0 };
        let failed = BackupMail::Held { number: 1, result: Err(refusal) };
        assert_eq!(barrier.handle(0, failed).unwrap(), Err(refusal));
        assert_eq!(posted(&mut barrier), "0 release, 1 release");
        assert!(barrier.handle(1, held(1, 7)).is_none(), "there is no backup");
        barrier.begin().unwrap();
        assert!(barrier.handle(0, held(2, 5)).is_none());
        assert!(barrier.handle(1, held(1, 7)).is_none(), "it is of the one before");
        assert_eq!(barrier.waits_for(), Some(1));
        assert!(barrier.handle(1, held(2, 8)).unwrap().is_ok());
    }
}
