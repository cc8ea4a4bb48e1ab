//! What is said of files that are cut short, changed, or somebody else's?

use super::support::{Author, SEGMENT, contents, measured, message, queue, settings, start};
use super::{OnDamage, StorageError, StorageSettings, describe, open};
use corelane_journal::Spare;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Five messages, each in a batch of its own, in one segment. Answers its file, and where the batches begin.
fn fill(directory: &Path) -> (PathBuf, Vec<u64>) {
    let opened = start(directory, 1);
    let mut author = Author::new(opened.shards.into_iter().next().unwrap());
    author.say_thing(|batch| batch.queue(&queue(1, "orders"), None));
    let mut offsets = Vec::new();
    let mut segment = 0;
    for place in 1..=5 {
        let position = author.say_thing(|batch| batch.message(&message(1, place), &[b'x'; 100], None));
        segment = position.segment;
        offsets.push(u64::from(position.offset) / 4096 * 4096);
    }
    (author.storage.files.path(segment), offsets)
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

/// Opens what was damaged, and answers what is said of it and which places are still there.
fn found(directory: &Path) -> (Vec<String>, Vec<u64>) {
    let opened = start(directory, 1);
    let shard = &opened.shards[0];
    let says = |damage| describe(damage, 0, &shard.files, &shard.recovered);
    let said = shard.recovered.end.damage.iter().map(says).collect();
    (said, contents(opened).into_keys().map(|(_, place)| place).collect())
}

#[test]
fn a_changed_bit_costs_what_it_is_in() {
    // The record's checksum, its length, its metadata and its payload; then the batch's header.
    let cases = [
        (24, "some records of batch 3", vec![1, 3, 4, 5]),
        (28, "some records of batch 3", vec![1, 3, 4, 5]),
        (24 + 20, "some records of batch 3", vec![1, 3, 4, 5]),
        (24 + 130, "some records of batch 3", vec![1, 3, 4, 5]),
        (2, "batch 3 cannot be read", vec![1, 3, 4, 5]),
        (16, "batch 3 cannot be read", vec![1, 3, 4, 5]),
    ];
    for (offset, says, places) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (path, offsets) = fill(folder.path());
        flip(&path, offsets[1] + offset);
        let (said, found) = found(folder.path());
        assert_eq!(found, places, "byte {offset}");
        let range = format!("in bytes {}", offsets[1]);
        assert!(said.len() == 1 && said[0].contains(says), "byte {offset}: {said:?}");
        assert!(offset >= 24 || said[0].contains(&range), "{said:?}");
        if ![28, 44].contains(&offset) {
            assert!(said[0].contains("a message of queue \"orders\""), "byte {offset}: {said:?}");
        }
        let stop = StorageSettings { on_damage: OnDamage::Stop, ..settings(folder.path()) };
        let error = open(&stop, 1, 7, &|_| 0, &measured).unwrap_err();
        assert!(matches!(error, StorageError::Damaged { count: 1, .. }), "{error}");
        assert!(error.to_string().contains("--on-damage skip"), "{error}");
    }
}

#[test]
fn a_torn_end_is_no_damage() {
    for cut in [0, 1, 24, 100] {
        let folder = tempfile::tempdir().unwrap();
        let (path, offsets) = fill(folder.path());
        OpenOptions::new().write(true).open(path).unwrap().set_len(offsets[4] + cut).unwrap();
        let (said, found) = found(folder.path());
        assert_eq!((said, found), (Vec::new(), vec![1, 2, 3, 4]), "cut {cut} bytes behind");
    }
}

#[test]
fn a_segment_cut_short_is_damage_when_there_are_newer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (path, offsets) = fill(folder.path());
    let newer = fill(folder.path()).0;
    assert_ne!(path, newer);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(offsets[2]).unwrap();
    let (said, _) = found(folder.path());
    assert!(said.len() == 1 && said[0].contains("batches 4 to 6 cannot be read"), "{said:?}");
    fs::remove_file(&path).unwrap();
    let (said, _) = found(folder.path());
    assert!(said.len() == 1 && said[0].contains("this segment is missing"), "{said:?}");
}

#[test]
fn a_shard_without_its_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(folder.path(), 2));
    let lost = folder.path().join("layout-1/shard-1");
    fs::remove_dir_all(&lost).unwrap();
    let error = open(&settings(folder.path()), 2, 7, &|_| 0, &measured).unwrap_err().to_string();
    for part in
        [&*lost.to_string_lossy(), "is missing", "shard 1", "from a backup", "make an empty directory"]
    {
        assert!(error.contains(part), "{error}");
    }
    fs::create_dir(&lost).unwrap();
    drop(start(folder.path(), 2));
}

/// A directory cannot be read as a file can, like a file on a disk that fails.
#[test]
fn what_the_disk_does_not_give_is_told_and_the_rest_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = fill(folder.path()).0.with_file_name("0000000099.segment");
    fs::create_dir(&path).unwrap();
    let (said, found) = found(folder.path());
    assert_eq!(found, [1, 2, 3, 4, 5]);
    assert!(said.iter().any(|said| said.contains("the disk does not give bytes 0 to 4096")), "{said:?}");
    assert!(path.with_extension("damaged").exists() && !path.exists());
}

#[test]
fn a_segment_without_a_header_is_put_aside() {
    for is_newest in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = fill(folder.path()).0;
        if !is_newest {
            fill(folder.path());
        }
        flip(&path, 9);
        flip(&path, 4096 + 9);
        let stop = StorageSettings { on_damage: OnDamage::Stop, ..settings(folder.path()) };
        assert!(matches!(open(&stop, 1, 7, &|_| 0, &measured), Err(StorageError::Damaged { count: 1, .. })));
        assert!(path.exists(), "a start that is refused changes nothing");
        drop(start(folder.path(), 1));
        assert!(path.with_extension("damaged").exists() && !path.exists());
        drop(start(folder.path(), 2));
        let aside = folder
            .path()
            .join("damaged-layout-1/shard-0")
            .join(path.with_extension("damaged").file_name().unwrap());
        assert!(aside.exists(), "it is still there when everything else has moved");
        drop(start(folder.path(), 2));
        assert!(aside.exists());
    }
}

#[test]
fn a_segment_with_damage_in_it_is_put_aside_when_nothing_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, offsets) = fill(folder.path());
    flip(&path, offsets[1] + 24);
    let opened = start(folder.path(), 1);
    assert!(path.exists(), "the rest of it is needed");
    let mut storage = opened.shards.into_iter().next().unwrap();
    let number = storage.used[0];
    storage.files.free(&[number]).unwrap();
    assert!(path.with_extension("damaged").exists() && !path.exists());
}

#[test]
fn a_segment_of_another_journal_is_refused() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = fill(folder.path()).0;
    let opened = start(other.path(), 2);
    for storage in opened.shards {
        Author::new(storage).say_thing(|batch| batch.message(&message(1, 1), b"", None));
    }
    let foreign = other.path().join("layout-1/shard-1").join(path.file_name().unwrap());
    fs::copy(foreign, &path).unwrap();
    let error = open(&settings(folder.path()), 1, 7, &|_| 0, &measured).unwrap_err().to_string();
    assert!(error.contains("belongs to shard 1 of 2") && error.contains("take it away"), "{error}");
}

#[test]
fn freed_files_are_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let opened = start(folder.path(), 1);
    let mut files = opened.shards.into_iter().next().unwrap().files;
    let file = files.prepare(Spare { number: 1, bytes: SEGMENT }).unwrap();
    file.write_all_at(super::aligned(&vec![7; 3 * 4096])[..4096].as_ref(), 4096).unwrap();
    files.free(&[1]).unwrap();
    assert!(files.path(1).exists(), "it waits");
    let again = files.prepare(Spare { number: 2, bytes: SEGMENT }).unwrap();
    assert!(!files.path(1).exists());
    let mut bytes = vec![0; 3 * 4096];
    let start = bytes.as_ptr().align_offset(4096);
    again.read_exact_at(&mut bytes[start..start + 4096], 4096).unwrap();
    assert!(bytes[start..start + 4096].iter().all(|byte| *byte == 7), "it is the same file");
    // One that is longer is not.
    again.set_len(1 << 20).unwrap();
    files.free(&[2]).unwrap();
    assert!(!files.path(2).exists());
}

#[test]
fn a_file_is_made_longer_if_there_is_room_and_stays_as_it_is_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let opened = start(folder.path(), 1);
    let mut files = opened.shards.into_iter().next().unwrap().files;
    let paths = [1, 2].map(|number| files.path(number));
    let length = |number: usize| fs::metadata(&paths[number - 1]).unwrap().len();
    for number in [1, 2] {
        files.prepare(Spare { number, bytes: SEGMENT }).unwrap();
    }
    files.prepare(Spare { number: 1, bytes: 1 << 20 }).unwrap();
    assert_eq!([length(1), length(2)], [1 << 20, SEGMENT.into()]);
    // Those that wait for others make room first.
    files.free(&[2]).unwrap();
    assert!(files.path(2).exists());
    files.leave_free(u64::MAX);
    let error = files.prepare(Spare { number: 1, bytes: 2 << 20 }).unwrap_err();
    assert!(error.to_string().contains("a file takes 1024 KiB"), "{error}");
    assert!(!files.path(2).exists());
    assert_eq!(length(1), 1 << 20);
    files.free(&[1]).unwrap();
    assert!(!files.path(1).exists(), "it is no file for others");
}
