//! How does the users file reach the disk, and come back?
//!
//! Invariants: readers see the old file or the new one, never a part; two writers never lose each other's change (they
//! lock the folder); the file keeps its owner and has mode 0600.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::regular_file::read_text;

use super::{CredentialError, USERS_MAX, Users, VerifierError, prepare_name};

const HEADING: &str = "# corelane users: NAME SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY";
/// A line that says that nobody may do more than is granted.
const RESTRICTED: &str = "@restricted";
/// Bytes of a users file that are read at most.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Why a users file cannot be used. The message names the file, the place and what to do.
#[derive(Debug)]
pub enum UsersFileError {
    Unreadable { file: PathBuf, error: io::Error },
    Unwritable { file: PathBuf, error: io::Error },
    Line { file: PathBuf, line: usize, fault: LineFault },
    TooLarge { file: PathBuf },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFault {
    VerifierMissing,
    Name(CredentialError),
    NameTwice,
    Verifier(VerifierError),
    Grant(String),
}

impl fmt::Display for UsersFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsersFileError::Unreadable { file, error } if error.kind() == io::ErrorKind::NotFound => write!(
                formatter,
                "the users file {0} does not exist; make it with `corelane user add NAME --users {0}`",
                file.display()
            ),
            UsersFileError::Unreadable { file, error } => {
                write!(formatter, "the users file {} cannot be read: {error}", file.display())
            }
            UsersFileError::Unwritable { file, error } => {
                write!(formatter, "the users file {} cannot be written: {error}", file.display())
            }
            UsersFileError::Line { file, line, fault } => {
                write!(formatter, "{}:{line}: ", file.display())?;
                match fault {
                    LineFault::VerifierMissing => VerifierError::Shape.fmt(formatter),
                    LineFault::Name(error) => error.fmt(formatter),
                    LineFault::NameTwice => formatter.write_str("this name stands in an earlier line too"),
                    LineFault::Verifier(error) => error.fmt(formatter),
                    LineFault::Grant(why) => formatter.write_str(why),
                }
            }
            UsersFileError::TooLarge { file } => write!(
                formatter,
                "the users file {} is too large; at most {USERS_MAX} users and {FILE_BYTES_MAX} bytes are read",
                file.display()
            ),
        }
    }
}

impl std::error::Error for UsersFileError {}

/// The users of a file, and the stamp of the content that was read.
pub fn load(file: &Path) -> Result<(Users, FileStamp), UsersFileError> {
    let unreadable = |error| UsersFileError::Unreadable { file: file.to_owned(), error };
    let stamp = FileStamp::of(file).map_err(unreadable)?;
    if stamp.size > FILE_BYTES_MAX {
        return Err(UsersFileError::TooLarge { file: file.to_owned() });
    }
    let text = read_text(file, FILE_BYTES_MAX).map_err(unreadable)?;
    Ok((parse(file, &text)?, stamp))
}

/// The users of a file; none when there is no file.
pub fn load_or_empty(file: &Path) -> Result<Users, UsersFileError> {
    match load(file) {
        Ok((users, _)) => Ok(users),
        Err(UsersFileError::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Users::default())
        }
        Err(error) => Err(error),
    }
}

/// Changes a file's users: reads, applies `change`, replaces the file when `change` says so. Makes the file if needed.
pub fn update(file: &Path, change: impl FnOnce(&mut Users) -> bool) -> Result<(), UsersFileError> {
    let unwritable = |error| UsersFileError::Unwritable { file: file.to_owned(), error };
    // A symbolic link stays one: what it points to is replaced.
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = match target.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    };
    let lock = File::open(&folder).map_err(unwritable)?;
    lock.lock().map_err(unwritable)?;
    let mut users = load_or_empty(&target)?;
    if change(&mut users) {
        if users.count() > USERS_MAX {
            return Err(UsersFileError::TooLarge { file: file.to_owned() });
        }
        replace(&target, &users).map_err(unwritable)?;
        lock.sync_all().map_err(unwritable)?;
    }
    Ok(())
}

impl FileStamp {
    pub fn of(file: &Path) -> io::Result<FileStamp> {
        let metadata = fs::metadata(file)?;
        Ok(FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

fn parse(file: &Path, text: &str) -> Result<Users, UsersFileError> {
    let mut users = Users::default();
    for (index, line) in text.lines().enumerate() {
        let wrong = |fault| UsersFileError::Line { file: file.to_owned(), line: index + 1, fault };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == RESTRICTED {
            users.is_restricted = true;
            continue;
        }
        let (name, verifier) =
            line.split_once(char::is_whitespace).ok_or_else(|| wrong(LineFault::VerifierMissing))?;
        let name = prepare_name(name).map_err(|error| wrong(LineFault::Name(error)))?;
        if let Some(taken) = users.change_grants(&name, |grants| grants.take_line(verifier)) {
            taken.map_err(|why| wrong(LineFault::Grant(why)))?;
            continue;
        }
        let verifier = verifier.trim().parse().map_err(|error| wrong(LineFault::Verifier(error)))?;
        if users.insert(name, verifier) {
            return Err(wrong(LineFault::NameTwice));
        }
        if users.count() > USERS_MAX {
            return Err(UsersFileError::TooLarge { file: file.to_owned() });
        }
    }
    Ok(users)
}

/// Writes a new file beside the old one and puts it in its place.
fn replace(file: &Path, users: &Users) -> io::Result<()> {
    let mut name = file.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(".new");
    let beside = file.with_file_name(name);
    // Left by a writer that was killed; the folder's lock is ours.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write(&beside, file, users).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write(beside: &Path, file: &Path, users: &Users) -> io::Result<()> {
    let mut output = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    if let Ok(old) = fs::metadata(file) {
        let new = output.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            std::os::unix::fs::fchown(&output, Some(old.uid()), Some(old.gid()))?;
        }
    }
    let mut text = format!("{HEADING}\n");
    for (name, verifier) in &users.verifiers {
        text.push_str(&format!("{name} {verifier}\n"));
    }
    if users.is_restricted {
        text.push_str(&format!("{RESTRICTED}\n"));
    }
    for (name, grants) in &users.grants {
        text.push_str(&grants.lines(name));
    }
    output.write_all(text.as_bytes())?;
    output.sync_all()
}
