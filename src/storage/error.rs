//! Why can a data directory not be used, and what is to be done about it?

use super::layout::FORMAT;
use super::sync::SyncMode;
use corelane_journal::Refusal;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why a broker does not start on a data directory. The message names the file and what to do.
#[derive(Debug)]
pub enum StorageError {
    NotADirectory {
        path: PathBuf,
    },
    /// The files in it are not those of the user that this process runs as.
    OtherUser {
        path: PathBuf,
        owner: u32,
        user: u32,
    },
    /// Files cannot be made or read in it, for want of rights.
    Rights {
        path: PathBuf,
        error: io::Error,
    },
    ReadOnly {
        path: PathBuf,
    },
    /// There is no room for what a start has to write.
    Full {
        path: PathBuf,
        error: io::Error,
    },
    Locked {
        path: PathBuf,
        process: Option<u32>,
    },
    /// There is something in it, and it is no data directory.
    Foreign {
        path: PathBuf,
        name: String,
    },
    /// There is none, and none is to be made.
    Absent {
        path: PathBuf,
    },
    Newer {
        path: PathBuf,
        format: u32,
    },
    /// The file that says what is in force makes no sense.
    Layout {
        path: PathBuf,
        what: String,
    },
    /// What a shard has kept is not there.
    MissingFolder {
        path: PathBuf,
        shard: usize,
    },
    Segment {
        path: PathBuf,
        refusal: Refusal,
    },
    /// There is damage, and it was asked for not to go on then.
    Damaged {
        path: PathBuf,
        count: usize,
    },
    /// The file system does not take what `--sync` asks for.
    Sync {
        path: PathBuf,
        mode: SyncMode,
        error: io::Error,
    },
    /// Something else could not be done with a file.
    File {
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

impl StorageError {
    /// What went wrong with a file, by the kind of error. `directory` is the data directory.
    pub(super) fn of(doing: &'static str, path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied => StorageError::Rights { path, error },
            io::ErrorKind::ReadOnlyFilesystem => StorageError::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StorageError::Full { path, error },
            io::ErrorKind::NotADirectory => StorageError::NotADirectory { path },
            _ => StorageError::File { doing, path, error },
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::NotADirectory { path } => write!(
                formatter,
                "{} is not a directory: name one with --data-dir, or one that is to be made, or keep nothing with --in-memory",
                path.display()
            ),
            StorageError::OtherUser { path, owner, user } => write!(
                formatter,
                "{} belongs to user {owner}, and this broker runs as user {user}: run it as user {owner}, or give the \
                 directory and everything in it to user {user} with `chown -R`",
                path.display()
            ),
            StorageError::Rights { path, error } => write!(
                formatter,
                "{} cannot be used by user {}: {error}. Give that user the directory with `chown -R`, name another one with \
                 --data-dir, or keep nothing with --in-memory",
                path.display(),
                rustix::process::geteuid().as_raw()
            ),
            StorageError::ReadOnly { path } => write!(
                formatter,
                "{} is on a file system that is mounted read-only: mount it for writing, name another directory with \
                 --data-dir, or keep nothing with --in-memory",
                path.display()
            ),
            StorageError::Full { path, error } => write!(
                formatter,
                "there is no room on the disk of {}: {error}. Nothing that is kept there is lost: make room and start again, or \
                 name a directory on another disk with --data-dir",
                path.display()
            ),
            StorageError::Locked { path, process } => {
                write!(formatter, "{} is in use by another broker", path.display())?;
                if let Some(process) = process {
                    write!(formatter, " (process {process})")?;
                }
                write!(formatter, ": stop that one, or name another directory with --data-dir")
            }
            StorageError::Foreign { path, name } => write!(
                formatter,
                "{} is not empty and no data directory of a broker: there is {name:?} in it, and nothing that says which \
                 layout is in force. Name an empty directory, or one that is to be made, with --data-dir",
                path.display()
            ),
            StorageError::Absent { path } => {
                write!(formatter, "there is no data directory of a broker at {}", path.display())
            }
            StorageError::Newer { .. }
            | StorageError::Layout { .. }
            | StorageError::MissingFolder { .. }
            | StorageError::Segment { .. }
            | StorageError::Damaged { .. }
            | StorageError::Sync { .. }
            | StorageError::File { .. } => self.fmt_contents(formatter),
        }
    }
}

impl std::error::Error for StorageError {}

impl StorageError {
    /// What has to do with what stands in the directory, not with who may use it.
    fn fmt_contents(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::NotADirectory { .. }
            | StorageError::OtherUser { .. }
            | StorageError::Rights { .. }
            | StorageError::ReadOnly { .. }
            | StorageError::Full { .. }
            | StorageError::Locked { .. }
            | StorageError::Foreign { .. }
            | StorageError::Absent { .. } => fmt::Display::fmt(self, formatter),
            StorageError::Newer { path, format } => write!(
                formatter,
                "{} was written by a newer version of Corelane: it has format {format}, and this version ({}) knows \
                 formats up to {FORMAT}. Start the newer version, or name another directory with --data-dir",
                path.display(),
                env!("CARGO_PKG_VERSION")
            ),
            StorageError::Layout { path, what } => write!(
                formatter,
                "{} cannot be understood: {what}. It says which layout is in force; restore it from a backup",
                path.display()
            ),
            StorageError::MissingFolder { path, shard } => write!(
                formatter,
                "{} is missing, in which shard {shard} has kept its queues: restore it from a backup. If all that was in it is \
                 given up, make an empty directory there",
                path.display()
            ),
            StorageError::Segment { path, refusal: refusal @ Refusal::Version { .. } } => write!(
                formatter,
                "{}: {refusal}. A newer version of Corelane wrote it: start that one",
                path.display()
            ),
            StorageError::Segment { path, refusal: refusal @ Refusal::Foreign { .. } } => write!(
                formatter,
                "{}: {refusal}. It was put there by somebody else: take it away",
                path.display()
            ),
            StorageError::Damaged { path, count } => write!(
                formatter,
                "{count} places in {} cannot be read, as the log says. Restore the directory from a backup, or start with \
                 `--on-damage skip` without what is lost",
                path.display()
            ),
            StorageError::Sync { path, mode, error } => write!(
                formatter,
                "the file system of {} does not take `--sync {mode}`: {error}. Start with `--sync auto`",
                path.display()
            ),
            StorageError::File { doing, path, error } => {
                write!(formatter, "cannot {doing} {}: {error}", path.display())?;
                if Errno::from_io_error(error) == Some(Errno::IO) {
                    formatter.write_str(
                        ". The disk fails: the kernel's log (`dmesg`) says more. Copy the directory to another disk, and \
                         name it there with --data-dir",
                    )?;
                }
                Ok(())
            }
        }
    }
}
