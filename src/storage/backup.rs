//! How does what a crash would leave come into a directory of its own?
//!
//! Of each shard's segments the bytes that belong to the image are copied, written out and synced; the layout is put in force last. So
//! that a copy that is not complete is never taken for one: without a layout no broker starts from it.
//!
//! All bytes are written, those that are zero, too: a broker that starts from the copy uses the files of freed segments again, and
//! relies on their blocks being there. The segment that is being written ends in the copy with what belongs to the image, so its file
//! is never used again.
//!
//! Invariants: nothing is changed in the directory that is copied; what was made is deleted unless the copy is complete.

use super::directory::LOCK;
use super::error::StorageError;
use super::journals::Inspected;
use super::layout::{Layout, sync_directory};
use super::progress::Progress;
use super::segments::{PART_BYTES, SegmentFiles, read_at};
use corelane_shard::{Image, ImageSegment};
use rustix::fs::{Advice, fadvise};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why there is no backup.
#[derive(Debug)]
pub enum BackupError {
    Storage(StorageError),
    /// There is something where it is to be made.
    NotEmpty {
        path: PathBuf,
        name: String,
    },
    /// It is to be made in the directory that is copied.
    Inside {
        path: PathBuf,
    },
    /// A file that belongs to it is shorter than it must be.
    Short {
        path: PathBuf,
    },
    /// Somebody has stopped it.
    Stopped(&'static str),
}

/// What is copied.
#[derive(Debug)]
pub struct BackupSource {
    path: PathBuf,
    layout: Layout,
    image: Image,
    /// No broker uses it while this is there.
    _locked: Option<Inspected>,
}

impl BackupSource {
    /// How many shards the broker has that uses this directory.
    pub fn shards(path: &Path) -> Result<usize, StorageError> {
        let layout = Layout::read(path)?.ok_or_else(|| StorageError::Absent { path: path.to_owned() })?;
        Ok(layout.shards.into())
    }

    /// A directory whose broker gives this image, and frees nothing of it.
    pub fn running(path: &Path, image: Image) -> Result<Self, StorageError> {
        let layout = Layout::read(path)?.ok_or_else(|| StorageError::Absent { path: path.to_owned() })?;
        Ok(BackupSource { path: path.to_owned(), layout, image, _locked: None })
    }

    /// A directory that no broker uses. What is damaged in it is copied as it is.
    pub fn stopped(path: &Path) -> Result<Self, StorageError> {
        let inspected = Inspected::open(path)?;
        let layout = inspected.layout();
        let mut image = Image::new();
        for shard in &inspected.shards {
            let found = shard.files.numbers();
            let found =
                found.map_err(|error| StorageError::of("look through", shard.files.folder(), error))?;
            let damage = &shard.recovered.end.damage;
            let is_part = |number: &u32| {
                shard.used.contains(number) || damage.iter().any(|damage| damage.segment == *number)
            };
            let segment = |number| ImageSegment { number, bytes: u32::MAX };
            image.push(found.into_iter().filter(is_part).map(segment).collect());
        }
        Ok(BackupSource { path: path.to_owned(), layout, image, _locked: Some(inspected) })
    }

    fn files(&self, directory: &Path, shard: usize) -> SegmentFiles {
        SegmentFiles::new(self.layout.shard_folder(directory, shard as u16), 0, false)
    }
}

/// Where it is copied to. What was made there is deleted again if the copy is not completed.
#[derive(Debug)]
pub struct BackupTarget {
    path: PathBuf,
    /// The directory itself was made, too.
    is_new: bool,
    /// The folder of the layout, once it is being made.
    folder: Option<PathBuf>,
    is_complete: bool,
}

impl BackupTarget {
    /// A directory that is empty, or is made; not in the one that is to be copied.
    pub fn make(path: &Path, source: &Path) -> Result<Self, BackupError> {
        let failed = |error| StorageError::of("make", path, error);
        let path = std::path::absolute(path).map_err(failed)?;
        let parent = path.parent().unwrap_or(&path);
        let whole =
            |path: &Path| fs::canonicalize(path).map_err(|error| StorageError::of("find", path, error));
        let source = whole(source)?;
        let is_new = !path.exists();
        if whole(if is_new { parent } else { &path })?.starts_with(&source) {
            return Err(BackupError::Inside { path });
        }
        if is_new {
            DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map_err(|error| StorageError::of("make", &path, error))?;
        } else {
            check_empty(&path)?;
        }
        Ok(BackupTarget { path, is_new, folder: None, is_complete: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Copies all that belongs to the image. `check` is called all the time, and may stop it.
    pub fn copy(
        &mut self,
        source: &BackupSource,
        check: &mut dyn FnMut() -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        let mut total = 0;
        for (shard, segments) in source.image.iter().enumerate() {
            let files = source.files(&source.path, shard);
            let length = |segment: &ImageSegment| {
                let there = fs::metadata(files.path(segment.number)).map_or(0, |file| file.len());
                there.min(segment.bytes.into())
            };
            total += segments.iter().map(length).sum::<u64>();
        }
        let progress = Progress::new("copying", total);
        let folder = source.layout.folder(&self.path);
        self.folder = Some(folder.clone());
        self.make_folder(&folder)?;
        for (shard, segments) in source.image.iter().enumerate() {
            let (from, to) = (source.files(&source.path, shard), source.files(&self.path, shard));
            self.make_folder(to.folder())?;
            for segment in segments {
                let paths = (from.path(segment.number), to.path(segment.number));
                copy_file(&paths.0, &paths.1, segment.bytes, &progress, check)?;
            }
            sync(to.folder())?;
        }
        sync(&folder)?;
        Ok(sync(&self.path)?)
    }

    /// Everything was copied from a directory that was as it had to be: from now on a broker can start from the copy.
    pub fn complete(mut self, source: &BackupSource) -> Result<(), StorageError> {
        let lock = self.path.join(LOCK);
        let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&lock);
        made.map_err(|error| StorageError::of("make", &lock, error))?;
        let put = source.layout.replace(&self.path);
        put.map_err(|error| StorageError::of("write the layout in", &self.path, error))?;
        self.is_complete = true;
        sync(self.path.parent().unwrap_or(&self.path))
    }

    fn make_folder(&self, folder: &Path) -> Result<(), StorageError> {
        DirBuilder::new().mode(0o700).create(folder).map_err(|error| StorageError::of("make", folder, error))
    }
}

impl Drop for BackupTarget {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        // What stays is not complete, and nobody takes it for more.
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
            let _ = fs::remove_file(self.path.join(LOCK));
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn check_empty(path: &Path) -> Result<(), BackupError> {
    let failed = |error| StorageError::of("look through", path, error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // A file system of its own begins with this.
        if name != "lost+found" {
            let name = name.to_string_lossy().into_owned();
            return Err(BackupError::NotEmpty { path: path.to_owned(), name });
        }
    }
    Ok(())
}

fn sync(folder: &Path) -> Result<(), StorageError> {
    sync_directory(folder).map_err(|error| StorageError::of("sync", folder, error))
}

/// Copies so many bytes, or all if there are fewer and so many that this is no matter.
fn copy_file(
    from: &Path,
    to: &Path,
    bytes: u32,
    progress: &Progress,
    check: &mut dyn FnMut() -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let reading = |error| StorageError::of("read", from, error);
    let writing = |error| StorageError::of("write", to, error);
    let input = File::open(from).map_err(reading)?;
    let output = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(writing)?;
    let length = input.metadata().map_err(reading)?.len().min(bytes.into());
    let mut part = vec![0; PART_BYTES];
    let mut at = 0;
    while at < length {
        check()?;
        let wanted = PART_BYTES.min((length - at) as usize);
        let count = read_at(&input, &mut part[..wanted], at).map_err(reading)?;
        if count < wanted {
            return Err(BackupError::Short { path: from.to_owned() });
        }
        output.write_all_at(&part[..count], at).map_err(writing)?;
        at += count as u64;
        progress.advance(count as u64);
    }
    output.sync_all().map_err(writing)?;
    // The broker needs the memory more. Advice that is not taken changes nothing.
    let _ = fadvise(&input, 0, None, Advice::DontNeed);
    let _ = fadvise(&output, 0, None, Advice::DontNeed);
    Ok(())
}

impl From<StorageError> for BackupError {
    fn from(error: StorageError) -> Self {
        BackupError::Storage(error)
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Storage(StorageError::Full { path, error }) => write!(
                formatter,
                "there is no room for the backup on the disk of {}: {error}. What was copied is deleted: make room, or name a \
                 directory on another disk",
                path.display()
            ),
            BackupError::Storage(error) => error.fmt(formatter),
            BackupError::NotEmpty { path, name } => write!(
                formatter,
                "{} is not empty: there is {name:?} in it. Name a directory that is empty, or one that is to be made",
                path.display()
            ),
            BackupError::Inside { path } => write!(
                formatter,
                "{} is in the directory that is to be copied: name one elsewhere, best on another disk",
                path.display()
            ),
            BackupError::Short { path } => write!(
                formatter,
                "{} has changed while it was copied, so the backup is not complete: make another one",
                path.display()
            ),
            BackupError::Stopped(why) => {
                write!(formatter, "{why}, so the backup is not complete, and is deleted")
            }
        }
    }
}

impl std::error::Error for BackupError {}

#[cfg(test)]
mod tests {
    use super::super::directory::DataDirectory;
    use super::super::support::{Author, queue, start};
    use super::*;
    use std::io;

    #[test]
    fn a_copy_that_is_not_completed_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("data");
        let mut author = Author::new(start(&directory, 1).shards.remove(0));
        author.say_thing(|batch| batch.queue(&queue(1, "orders"), None));
        drop(author);
        let source = BackupSource::stopped(&directory).unwrap();
        let (new, empty) = (folder.path().join("new"), folder.path().join("empty"));
        fs::create_dir(&empty).unwrap();
        for path in [&new, &empty] {
            let mut target = BackupTarget::make(path, &directory).unwrap();
            let stopped = target.copy(&source, &mut || Err(BackupError::Stopped("nobody wants it")));
            assert_eq!(
                stopped.unwrap_err().to_string(),
                "nobody wants it, so the backup is not complete, and is deleted"
            );
            assert!(path.join("layout-1/shard-0").exists());
        }
        assert!(!new.exists() && fs::read_dir(&empty).unwrap().next().is_none());
        let mut target = BackupTarget::make(&empty, &directory).unwrap();
        target.copy(&source, &mut || Ok(())).unwrap();
        assert!(DataDirectory::open_to_read(&empty).is_err(), "it is not complete yet");
        target.complete(&source).unwrap();
        assert_eq!(Inspected::open(&empty).unwrap().shards[0].recovered.queues.len(), 1);
    }

    #[test]
    fn that_there_is_no_room_is_told() {
        let full = StorageError::of("write to", Path::new("/mnt/x"), io::ErrorKind::StorageFull.into());
        let message = BackupError::from(full).to_string();
        assert!(message.starts_with("there is no room for the backup on the disk of /mnt/x"), "{message}");
    }
}
