//! Which users are there now? The users file, read again when it has changed.
//!
//! Invariant: the users are those of one complete file; a file that cannot be read leaves them as they were, and is
//! complained about once.

use std::path::{Path, PathBuf};

use crate::users::{self, FileStamp, Users, UsersFileError};

/// The file is looked at no more often than this.
const LOOK_INTERVAL_US: u64 = 1_000_000;

/// A users file and what it said.
#[derive(Debug)]
pub struct UsersSource {
    file: PathBuf,
    users: Users,
    /// What was read last, with or without success. `None`: the file was not there.
    stamp: Option<FileStamp>,
    looked_at: u64,
}

impl UsersSource {
    pub fn open(file: &Path) -> Result<UsersSource, UsersFileError> {
        let (users, stamp) = users::load(file)?;
        Ok(UsersSource { file: file.to_owned(), users, stamp: Some(stamp), looked_at: 0 })
    }

    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Reads the file again if it has changed. True: there are new users.
    pub fn refresh(&mut self, now: u64) -> Result<bool, UsersFileError> {
        if now < self.looked_at.saturating_add(LOOK_INTERVAL_US) {
            return Ok(false);
        }
        self.looked_at = now;
        let stamp = FileStamp::of(&self.file).ok();
        if stamp == self.stamp {
            return Ok(false);
        }
        self.stamp = stamp;
        let (users, stamp) = users::load(&self.file)?;
        self.users = users;
        self.stamp = Some(stamp);
        Ok(true)
    }
}
