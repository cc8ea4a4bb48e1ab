//! What is in force in a data directory? A small text, replaced as a whole.
//!
//! Invariant: whoever reads it finds the old text or the new one, also after the machine has stopped.

use super::error::StorageError;
use crate::regular_file::read_text;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The format of the directory that is written, and the newest that is read.
pub const FORMAT: u32 = 1;

pub(super) const FILE: &str = "layout";
pub(super) const FILE_NEW: &str = "layout.new";

/// Bytes of the text at most; a longer one is none of ours.
const BYTES_MAX: u64 = 4096;

/// How queues are spread over shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rises with each.
    pub number: u32,
    pub shards: u16,
}

impl Layout {
    /// The one in force. `None`: there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, StorageError> {
        let path = directory.join(FILE);
        match read_text(&path, BYTES_MAX) {
            Ok(text) => Self::parse(directory, &path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(StorageError::Layout { path, what: "it is no text".to_owned() })
            }
            Err(error) => Err(StorageError::of("read", &path, error)),
        }
    }

    /// Makes an empty folder for each shard, before it is put in force: from then on one that is not there has been lost.
    pub(super) fn make_folders(&self, directory: &Path) -> io::Result<()> {
        let folder = self.folder(directory);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for shard in 0..self.shards {
            DirBuilder::new().recursive(true).mode(0o700).create(self.shard_folder(directory, shard))?;
        }
        sync_directory(&folder)?;
        sync_directory(directory)
    }

    /// Puts it in force, durably.
    pub(super) fn replace(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join(FILE_NEW);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, directory.join(FILE))?;
        sync_directory(directory)
    }

    pub(super) fn folder(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{FOLDER}{}", self.number))
    }

    pub(super) fn shard_folder(&self, directory: &Path, shard: u16) -> PathBuf {
        self.folder(directory).join(format!("shard-{shard}"))
    }

    fn text(&self) -> String {
        let Layout { number, shards } = self;
        format!("corelane data directory\nformat {FORMAT}\nlayout {number}\nshards {shards}\n")
    }

    fn parse(directory: &Path, path: &Path, text: &str) -> Result<Self, StorageError> {
        let wrong = |what: String| StorageError::Layout { path: path.to_owned(), what };
        let mut lines = text.lines();
        if lines.next() != Some("corelane data directory") {
            return Err(wrong("its first line is not \"corelane data directory\"".to_owned()));
        }
        let mut number = |name: &str| -> Result<u32, StorageError> {
            let line = lines.next().unwrap_or_default();
            let value = line
                .split_once(' ')
                .filter(|(key, _)| *key == name)
                .and_then(|(_, value)| value.parse().ok());
            value.ok_or_else(|| wrong(format!("there is {line:?} where \"{name} NUMBER\" should be")))
        };
        let format = number("format")?;
        if format > FORMAT {
            return Err(StorageError::Newer { path: directory.to_owned(), format });
        }
        let layout = number("layout")?;
        let shards = number("shards")?;
        match u16::try_from(shards) {
            Ok(shards) if shards > 0 => Ok(Layout { number: layout, shards }),
            _ => Err(wrong(format!("there cannot be {shards} shards"))),
        }
    }
}

/// What the folders of layouts begin with.
const FOLDER: &str = "layout-";

/// The number of the layout whose folder has this name.
pub(super) fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix(FOLDER)?.parse().ok()
}

/// What was made, renamed and deleted in a directory stays so.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
