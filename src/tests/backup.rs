//! A backup of a broker that is used: a broker that starts from it has everything that was accepted when it was asked for, once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

#[path = "support/broker.rs"]
mod support;

use support::{Broker, PATIENCE, bodies, corelane};

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn backup(directory: &Path, target: &Path) -> Output {
    corelane().arg("backup").args([directory, target]).output().unwrap()
}

fn backed_up(directory: &Path, target: &Path) -> String {
    let output = backup(directory, target);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// One that fails, with a message that has these parts.
fn refused(directory: &Path, target: &Path, parts: &[&str]) {
    let output = backup(directory, target);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

/// Somebody who has asked for a backup: the connection, and the segments of the image with their bytes.
fn asker(directory: &Path) -> (BufReader<UnixStream>, Vec<(PathBuf, u64)>) {
    let mut stream = UnixStream::connect(directory.join("backup.socket")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(stream, "corelane backup 1").unwrap();
    let mut stream = BufReader::new(stream);
    let mut segments = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.trim().split(' ').collect();
        match words[..] {
            ["segment", shard, number, bytes] => {
                let number: u32 = number.parse().unwrap();
                let path = directory.join(format!("layout-1/shard-{shard}/{number:010}.segment"));
                segments.push((path, bytes.parse().unwrap()));
            }
            ["end"] => return (stream, segments),
            _ => panic!("the broker says {line:?}"),
        }
    }
}

fn image(segments: &[(PathBuf, u64)]) -> Vec<Option<Vec<u8>>> {
    let bytes = |(path, length): &(PathBuf, u64)| {
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.take(*length).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    segments.iter().map(bytes).collect()
}

#[test]
fn backups_of_a_broker_that_is_used_have_what_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("data");
    let broker = Broker::start(&directory, "2");
    let queues = ["orders", "invoices", "parcels"];
    // Messages that go to and fro all the time, between queues on both shards.
    let places = ["a", "b", "c", "d"];
    for index in 0..12 {
        broker.run(&["send", places[0], &format!("moved {index}"), "--durable"]);
    }
    let accepted = [const { AtomicU32::new(0) }; 3];
    let is_over = AtomicBool::new(false);
    let (broker, accepted, is_over) = (&broker, &accepted, &is_over);
    std::thread::scope(|scope| {
        for (queue, accepted) in queues.iter().zip(accepted) {
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let index = accepted.load(Ordering::SeqCst);
                    broker.run(&["send", queue, &format!("{queue} {index}"), "--durable"]);
                    accepted.store(index + 1, Ordering::SeqCst);
                }
            });
        }
        scope.spawn(move || {
            for from in (0..places.len()).cycle() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                broker.run(&["queue", "move", places[from], places[(from + 1) % places.len()]]);
            }
        });
        let counts = || accepted.each_ref().map(|accepted| accepted.load(Ordering::SeqCst));
        for number in 0..4 {
            let before = counts();
            until("more is accepted", || counts().iter().zip(before).all(|(now, then)| *now > then));
            let before = counts();
            let target = folder.path().join(format!("backup-{number}"));
            let text = backed_up(&directory, &target);
            let after = counts();
            assert!(text.contains("no damage") && text.contains(" queues, "), "{text}");
            let copy = Broker::start(&target, "2");
            for ((queue, before), after) in queues.iter().zip(before).zip(after) {
                let found = bodies(&copy, queue);
                let expected: Vec<String> =
                    (0..found.len()).map(|index| format!("{queue} {index}")).collect();
                assert_eq!(found, expected);
                let count = found.len() as u32;
                // The one whose answer was on its way may be there.
                assert!((before..=after + 1).contains(&count), "{before} ≤ {count} ≤ {after} + 1");
            }
            let mut moved: Vec<String> = places.iter().flat_map(|place| bodies(&copy, place)).collect();
            moved.sort_by_key(|body| body.trim_start_matches("moved ").parse::<u32>().unwrap());
            assert_eq!(moved, (0..12).map(|index| format!("moved {index}")).collect::<Vec<_>>());
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn what_is_copied_stays_until_whoever_copies_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("data");
    let broker = Broker::start(&directory, "2");
    let target = folder.path().join("target");
    let churn = || {
        broker.run(&["send", "orders", "-n", "40", "--size", "8KiB", "--durable"]);
        broker.run(&["receive", "orders", "-n", "40"]);
    };
    broker.run(&["send", "orders", "-n", "40", "--size", "8KiB", "--durable"]);
    let (stream, segments) = asker(&directory);
    let before = image(&segments);
    assert!(before.len() > 1 && before.iter().all(Option::is_some), "{segments:?}");
    refused(&directory, &target, &["another backup"]);
    assert!(!target.exists(), "nothing of it stays");
    broker.run(&["receive", "orders", "-n", "40"]);
    churn();
    churn();
    assert!(image(&segments) == before, "what is copied is freed or written again");
    drop(stream);
    until("files are freed", || {
        churn();
        image(&segments).iter().any(Option::is_none)
    });
    backed_up(&directory, &target);
    // A stop does not wait for a backup, and whoever makes it hears that it is not one.
    let (mut stream, _) = asker(&directory);
    broker.end(Signal::TERM);
    let _ = writeln!(stream.get_mut(), "done");
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert!(!said.contains("complete"), "{said:?}");
    assert!(!directory.join("backup.socket").exists());
}

#[test]
fn a_directory_that_no_broker_uses_is_copied_and_mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("data");
    let target = |name: &str| folder.path().join(name);
    let broker = Broker::start(&directory, "2");
    broker.run(&["send", "orders", "first", "--durable"]);
    broker.end(Signal::KILL);
    assert!(directory.join("backup.socket").exists(), "one that was killed leaves it");
    let text = backed_up(&directory, &target("stopped"));
    assert!(text.contains("1 queues, 1 messages, "), "{text}");
    refused(&directory, &target("stopped"), &["is not empty: there is "]);
    refused(&directory, &directory.join("inside"), &["is in the directory that is to be copied"]);
    refused(&target("none"), &target("other"), &["none"]);
    refused(folder.path(), &tempfile::tempdir().unwrap().path().join("new"), &["no data directory"]);
    let empty = target("empty");
    fs::create_dir(&empty).unwrap();
    let broker = Broker::start(&directory, "2");
    broker.run(&["send", "orders", "second", "--durable"]);
    backed_up(&directory, &empty);
    broker.end(Signal::TERM);
    assert_eq!(bodies(&Broker::start(&target("stopped"), "2"), "orders"), ["first"]);
    assert_eq!(bodies(&Broker::start(&empty, "2"), "orders"), ["first", "second"]);
}

#[test]
fn where_no_socket_can_be_made_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("d".repeat(120));
    let broker = Broker::start(&directory, "2");
    assert!(broker.log.contains("no backups can be made while this broker runs"), "{}", broker.log);
    refused(&directory, &folder.path().join("target"), &["in use by a broker", "makes no backups"]);
}
