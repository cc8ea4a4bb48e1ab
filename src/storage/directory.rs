//! Is this a data directory, is it ours, and is nobody else using it?
//!
//! Invariants:
//! - nothing is changed before the lock is ours, and nothing at all in a directory that has files and no layout;
//! - the lock is the kernel's, on an open file: it ends with the process, however that ends.

use super::error::StorageError;
use super::layout::{self, Layout, sync_directory};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) const LOCK: &str = "lock";

/// Through it the broker that uses the directory is asked for backups of it.
pub const SOCKET: &str = "backup.socket";

/// What marks the folder of a layout that is put aside.
const DAMAGED: &str = "damaged";

/// The number of a directory's first layout.
const FIRST: u32 = 1;

/// A directory with the journals of a broker, and the right to use it.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    layout: Layout,
    /// Held while it is open.
    _lock: File,
}

impl DataDirectory {
    /// Locks it for this process alone, and makes it if there is none, for so many shards.
    pub fn open(path: &Path, shards: u16) -> Result<Self, StorageError> {
        make_directory(path)?;
        check_contents(path, rustix::process::geteuid().as_raw())?;
        let lock = lock(path)?;
        let layout = match Layout::read(path)? {
            Some(layout) => layout,
            None => {
                let layout = Layout { number: FIRST, shards };
                let made = layout.make_folders(path).and_then(|()| layout.replace(path));
                made.map_err(|error| StorageError::of("write the layout in", path, error))?;
                layout
            }
        };
        let directory = DataDirectory { path: path.to_owned(), layout, _lock: lock };
        directory.delete_leftovers()?;
        Ok(directory)
    }

    /// To read it while no broker uses it.
    pub fn open_to_read(path: &Path) -> Result<Self, StorageError> {
        let absent = || StorageError::Absent { path: path.to_owned() };
        let at = path.join(LOCK);
        let lock = match File::open(&at) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(absent()),
            Err(error) => return Err(StorageError::of("open", &at, error)),
        };
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(path, &lock)),
            Err(TryLockError::Error(error)) => return Err(StorageError::of("lock", &at, error)),
        }
        let layout = Layout::read(path)?.ok_or_else(absent)?;
        Ok(DataDirectory { path: path.to_owned(), layout, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The one in force.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Puts another one in force, durably. All that is in its folder has been synced.
    pub(super) fn put_in_force(&mut self, layout: Layout) -> io::Result<()> {
        layout.replace(&self.path)?;
        self.layout = layout;
        Ok(())
    }

    /// The folder of a layout is to stay when that is no longer in force, as not everything in it could be read.
    pub(super) fn mark_damaged(&self, layout: Layout) -> io::Result<()> {
        let folder = layout.folder(&self.path);
        File::create(folder.join(DAMAGED))?;
        sync_directory(&folder)
    }

    /// Deletes the folders of all layouts but the one in force: they were never finished, or are no longer needed. Those that are marked
    /// as damaged are put aside.
    pub(super) fn delete_leftovers(&self) -> Result<(), StorageError> {
        let failed = |error| StorageError::of("look through", &self.path, error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let number = entry.file_name().to_str().and_then(layout::number_of);
            let Some(number) = number.filter(|number| *number != self.layout.number) else { continue };
            let path = entry.path();
            if path.join(DAMAGED).exists() {
                self.put_aside(&path, number).map_err(|error| StorageError::of("rename", &path, error))?;
            } else {
                fs::remove_dir_all(&path).map_err(|error| StorageError::of("delete", &path, error))?;
            }
        }
        Ok(())
    }

    fn put_aside(&self, folder: &Path, number: u32) -> io::Result<()> {
        let aside = self.path.join(format!("damaged-layout-{number}"));
        fs::rename(folder, &aside)?;
        tracing::warn!(
            "not everything in the old journals could be read; they were put aside as {}",
            aside.display()
        );
        sync_directory(&self.path)
    }
}

fn make_directory(path: &Path) -> Result<(), StorageError> {
    let failed = |error| StorageError::of("make", path, error);
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            // It would be a pity to lose it with everything in it.
            let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
            sync_directory(parent).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(path);
            Err(StorageError::File {
                doing: "make the data directory, as there is no",
                path: parent.to_owned(),
                error,
            })
        }
        // Where nothing can be made something may stand already.
        Err(_) if path.is_dir() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Refuses what is not ours, `user`'s, before anything is changed.
pub(super) fn check_contents(path: &Path, user: u32) -> Result<(), StorageError> {
    let failed = |error| StorageError::of("look through", path, error);
    match fs::metadata(path.join(layout::FILE)) {
        Ok(file) if file.uid() != user => {
            return Err(StorageError::OtherUser { path: path.to_owned(), owner: file.uid(), user });
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // What a start that was killed leaves, and what a file system of its own begins with.
        let known = [LOCK, layout::FILE_NEW, "lost+found"];
        let begun = name.to_str().and_then(layout::number_of) == Some(FIRST) && is_unused(&path.join(&name));
        if !begun && !known.iter().any(|known| name == *known) {
            let name = name.to_string_lossy().into_owned();
            return Err(StorageError::Foreign { path: path.to_owned(), name });
        }
    }
    Ok(())
}

/// Whether this is the folder of a layout in which there was never anything.
fn is_unused(folder: &Path) -> bool {
    let is_empty = |path: PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_empty(entry.path()))))
}

fn lock(path: &Path) -> Result<File, StorageError> {
    let at = path.join(LOCK);
    let failed = |error| StorageError::of("lock", &at, error);
    let options =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&at);
    let mut lock = options.map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(path, &lock)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    lock.set_len(0).map_err(failed)?;
    writeln!(lock, "{}", std::process::id()).map_err(failed)?;
    Ok(lock)
}

fn locked(path: &Path, mut lock: &File) -> StorageError {
    let mut text = String::new();
    let process = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
    StorageError::Locked { path: path.to_owned(), process }
}
