//! Which directories are taken, and what is said of the others?

use super::directory::check_contents;
use super::{DataDirectory, Layout, StorageError};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn refused(path: &Path, parts: &[&str]) {
    let before = listing(path);
    let message = DataDirectory::open(path, 2).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert_eq!(listing(path), before, "nothing is changed");
}

fn listing(path: &Path) -> Vec<std::ffi::OsString> {
    let entries =
        fs::read_dir(path).map(|entries| entries.flatten().map(|entry| entry.file_name()).collect());
    entries.unwrap_or_default()
}

#[test]
fn a_directory_is_made_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let directory = DataDirectory::open(&path, 2).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(directory.layout(), Layout { number: 1, shards: 2 });
    drop(directory);
    let again = DataDirectory::open(&path, 5).unwrap();
    assert_eq!(again.layout(), Layout { number: 1, shards: 2 }, "what is in force stays");
}

#[test]
fn one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(folder.path(), 2).unwrap();
    refused(folder.path(), &["in use by another broker", &std::process::id().to_string(), "--data-dir"]);
    let message = DataDirectory::open_to_read(folder.path()).unwrap_err().to_string();
    assert!(message.contains("in use by another broker"), "{message}");
    drop(directory);
    let first = DataDirectory::open_to_read(folder.path()).unwrap();
    let second = DataDirectory::open_to_read(folder.path()).unwrap();
    refused(folder.path(), &["in use"]);
    drop((first, second));
    DataDirectory::open(folder.path(), 2).unwrap();
}

#[test]
fn what_is_not_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("lost+found")).unwrap();
    fs::write(path.join("letter"), "dear").unwrap();
    refused(path, &["not empty", "\"letter\"", "--data-dir"]);
    refused(&path.join("letter"), &["not a directory"]);
    refused(&path.join("no/where"), &["there is no", "/no"]);
    fs::remove_file(path.join("letter")).unwrap();
    DataDirectory::open(path, 2).unwrap();
}

#[test]
fn a_first_start_that_was_killed_is_no_stranger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir_all(path.join("layout-1/shard-0")).unwrap();
    fs::create_dir_all(path.join("layout-1/shard-7")).unwrap();
    fs::write(path.join("layout-1/shard-0/0000000001.segment"), "").unwrap();
    refused(path, &["not empty", "\"layout-1\""]);
    fs::remove_file(path.join("layout-1/shard-0/0000000001.segment")).unwrap();
    drop(DataDirectory::open(path, 2).unwrap());
    assert_eq!(listing(&path.join("layout-1")).len(), 2);
}

#[test]
fn a_layout_that_is_not_known_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    drop(DataDirectory::open(path, 2).unwrap());
    let text = fs::read_to_string(path.join("layout")).unwrap();
    let try_text = |text: &str, parts: &[&str]| {
        fs::write(path.join("layout"), text).unwrap();
        refused(path, parts);
    };
    try_text(&text.replace("format 1", "format 2"), &["newer version", "format 2", "up to 1"]);
    try_text(&text.replace("layout 1", "layout one"), &["\"layout one\"", "restore it"]);
    try_text(&text.replace("shards 2", "shards 0"), &["cannot be 0 shards"]);
    try_text("", &["first line"]);
    fs::write(path.join("layout"), [0xff, 0xfe]).unwrap();
    refused(path, &["it is no text"]);
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(DataDirectory::open(folder.path(), 2).unwrap());
    let user = rustix::process::geteuid().as_raw();
    check_contents(folder.path(), user).unwrap();
    let message = check_contents(folder.path(), user + 1).unwrap_err().to_string();
    for part in [format!("belongs to user {user}"), format!("runs as user {}", user + 1), "chown -R".into()] {
        assert!(message.contains(&part), "{message}");
    }
}

#[test]
fn leftovers_of_other_layouts_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    drop(DataDirectory::open(path, 2).unwrap());
    for layout in ["layout-0", "layout-1", "layout-2"] {
        fs::create_dir_all(path.join(layout).join("shard-0")).unwrap();
    }
    fs::write(path.join("layout.new"), "half of a te").unwrap();
    DataDirectory::open(path, 2).unwrap();
    assert!(path.join("layout-1/shard-0").exists());
    assert!(!path.join("layout-0").exists() && !path.join("layout-2").exists());
}

#[test]
fn a_file_system_that_cannot_be_written_is_told() {
    let message =
        |kind: io::ErrorKind| StorageError::of("make", Path::new("/mnt/x"), kind.into()).to_string();
    assert!(message(io::ErrorKind::ReadOnlyFilesystem).contains("mounted read-only"));
    assert!(message(io::ErrorKind::PermissionDenied).contains("chown -R"));
    assert!(message(io::ErrorKind::StorageFull).contains("no room on the disk of /mnt/x"));
    assert!(message(io::ErrorKind::QuotaExceeded).contains("make room and start again"));
    let broken = StorageError::of("read", Path::new("/mnt/x"), rustix::io::Errno::IO.into()).to_string();
    assert!(broken.starts_with("cannot read /mnt/x: ") && broken.contains("`dmesg`"), "{broken}");
    assert!(message(io::ErrorKind::FileTooLarge).contains("cannot make /mnt/x"));
}
