//! The process and its data directory: what was settled is there after any end, what cannot be used is told, and the tools that look in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use support::{Broker, bodies, corelane, journal, refused, send, serve};

#[path = "support/broker.rs"]
mod support;

fn expected(queue: &str, range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|index| format!("{queue} {index}")).collect()
}

#[test]
fn s39_what_was_settled_is_there_after_any_end_and_with_any_number_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    let queues = ["orders", "invoices", "parcels"];
    let mut sent = 0;
    for (shards, signal) in [
        ("1", Signal::KILL),
        ("4", Signal::TERM),
        ("4", Signal::KILL),
        ("2", Signal::KILL),
        ("1", Signal::TERM),
    ] {
        let broker = Broker::start(folder.path(), shards);
        for queue in queues {
            assert_eq!(bodies(&broker, queue), expected(queue, 0..sent), "{shards} shards\n{}", broker.log);
            send(&broker, queue, expected(queue, sent..sent + 3));
        }
        sent += 3;
        let code = broker.end(signal);
        assert_eq!(code, (signal == Signal::TERM).then_some(0));
    }
    let (code, text, _) = journal(&["verify"], folder.path());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("3 queues, 45 messages") && text.contains("no damage"), "{text}");
    assert!(text.contains("; stopped in order"), "{text}");
}

/// A broker that is told nothing about where to keep messages, started in this directory.
fn serve_in(working: &Path) -> Command {
    let mut command = corelane();
    command.current_dir(working).args(["--listen", "127.0.0.1:0", "--idle", "park", "--shards", "1"]);
    command
}

#[test]
fn without_a_word_messages_are_kept_below_the_working_directory() {
    let working = tempfile::tempdir().unwrap();
    let data = working.path().canonicalize().unwrap().join("corelane-data");
    let broker = Broker::spawn(&mut serve_in(working.path()));
    let kept = format!("keeps durable messages in {}, synced by ", data.display());
    assert!(broker.log.contains(&kept) && broker.log.contains("µs a small write)"), "{}", broker.log);
    send(&broker, "orders", ["hello".to_owned()]);
    broker.run(&["send", "orders", "transient"]);
    broker.end(Signal::KILL);
    let broker = Broker::spawn(&mut serve_in(working.path()));
    assert_eq!(bodies(&broker, "orders"), ["hello"]);
    broker.end(Signal::TERM);
}

#[test]
fn in_memory_nothing_is_kept_and_that_is_said() {
    let working = tempfile::tempdir().unwrap();
    let broker = Broker::spawn(serve_in(working.path()).arg("--in-memory"));
    assert!(broker.log.contains("in memory: nothing outlives this process"), "{}", broker.log);
    send(&broker, "orders", ["hello".to_owned()]);
    broker.end(Signal::TERM);
    assert_eq!(fs::read_dir(working.path()).unwrap().count(), 0);
}

#[test]
fn a_stop_while_everything_is_read_is_one() {
    let folder = tempfile::tempdir().unwrap();
    Broker::start(folder.path(), "1").end(Signal::TERM);
    // Whoever opens it waits for ever.
    let fifo = folder.path().join("layout-1/shard-0/0000000009.segment");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut process = serve(folder.path(), "1").stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("synced by") {
        assert!(log.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    log.read_to_string(&mut seen).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert!(seen.contains("stopped before everything was read: nothing that is kept in"), "{seen}");
    fs::remove_file(fifo).unwrap();
    Broker::start(folder.path(), "1").end(Signal::TERM);
}

/// Wherever in it the stop comes: the old layout is in force, or the new one.
#[test]
fn a_stop_while_everything_is_written_anew_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path(), "1");
    for queue in ["orders", "invoices", "parcels"] {
        broker.run(&["send", queue, "--count", "1000", "--size", "5000", "--durable"]);
    }
    broker.end(Signal::KILL);
    // Each differs from both that may be in force.
    for shards in ["2", "3", "4"] {
        let mut process = serve(folder.path(), shards).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains("everything is written anew") {
            assert!(log.read_line(&mut seen).unwrap() > 0 && !seen.contains(" ready "), "{seen}");
        }
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        log.read_to_string(&mut seen).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(0), "{seen}");
    }
    let (code, text, _) = journal(&["verify"], folder.path());
    assert!(code == Some(0) && text.contains("no damage"), "{text}");
    let broker = Broker::start(folder.path(), "5");
    assert!(broker.log.contains("found 3 queues and 3000 messages"), "{}", broker.log);
    assert_eq!(bodies(&broker, "orders").len(), 1000);
    broker.end(Signal::TERM);
}

#[test]
fn what_was_found_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path(), "1");
    assert!(!broker.log.contains("found"), "there is nothing yet:\n{}", broker.log);
    send(&broker, "orders", (0..3).map(|index| format!("body-{index}")));
    broker.end(Signal::TERM);
    let broker = Broker::start(folder.path(), "1");
    let found = "found 1 queues and 3 messages in ";
    assert!(broker.log.contains(found), "{}", broker.log);
    assert!(
        broker.log.contains("; the broker had stopped in order; everything can be read"),
        "{}",
        broker.log
    );
    send(&broker, "orders", ["body-3".to_owned()]);
    broker.end(Signal::KILL);
    let (path, at) = find(folder.path(), "body-3");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(at + 3).unwrap();
    // What is written anew is told of what it was made of.
    let broker = Broker::start(folder.path(), "2");
    let torn = "the broker had not stopped in order, and the last write of 1 of 1 shards was not complete";
    for part in
        [found, torn, "everything can be read", "nobody was told that it was: segment ", "written anew"]
    {
        assert!(broker.log.contains(part), "{part:?} is not in\n{}", broker.log);
    }
    assert_eq!(bodies(&broker, "orders"), ["body-0", "body-1", "body-2"]);
    broker.end(Signal::TERM);
}

#[test]
fn one_broker_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = Broker::start(folder.path(), "1");
    let process = format!("process {}", first.process.id());
    refused(&mut serve(folder.path(), "1"), &["in use by another broker", &process, "--data-dir"]);
    let (code, _, error) = journal(&["verify"], folder.path());
    assert!(code == Some(1) && error.contains("in use by another broker"), "{error}");
    first.end(Signal::KILL);
    Broker::start(folder.path(), "1").end(Signal::TERM);
}

#[test]
fn a_directory_that_cannot_be_used_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    refused(&mut serve(folder.path(), "1"), &["is not empty", "\"file\""]);
    refused(&mut serve(&file, "1"), &["is not a directory"]);
    let data = folder.path().join("data");
    Broker::start(&data, "1").end(Signal::TERM);
    let layout = data.join("layout");
    let text = fs::read_to_string(&layout).unwrap();
    fs::write(&layout, text.replace("format 1", "format 7")).unwrap();
    refused(&mut serve(&data, "1"), &["newer version of Corelane", "format 7"]);
    fs::write(&layout, text).unwrap();
    refused(serve(&data, "1").arg("--in-memory"), &["`data-dir` and `in-memory` cannot both be given"]);
    let (code, _, error) = journal(&["verify"], &folder.path().join("nowhere"));
    assert!(code == Some(1) && error.contains("no data directory"), "{error}");
}

#[test]
fn a_directory_of_another_user_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    Broker::start(&data, "1").end(Signal::TERM);
    if rustix::process::geteuid().is_root() {
        // Its files are not readable for others, nor is a broker run on those of others.
        let nobody = 65534;
        refused(serve(&data, "1").uid(nobody), &["cannot be used by user 65534", "chown -R"]);
        refused(serve(&folder.path().join("new"), "1").uid(nobody), &["cannot be used by user 65534"]);
        chown(data.join("layout"), Some(nobody), None).unwrap();
        refused(&mut serve(&data, "1"), &["belongs to user 65534", "runs as user 0", "chown -R"]);
    } else {
        fs::set_permissions(&data, fs::Permissions::from_mode(0o500)).unwrap();
        fs::remove_file(data.join("lock")).unwrap_err();
        fs::set_permissions(data.join("lock"), fs::Permissions::from_mode(0o400)).unwrap();
        refused(&mut serve(&data, "1"), &["cannot be used by user", "chown -R"]);
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_file_system_in_memory_is_told() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let broker = Broker::start(folder.path(), "1");
    assert!(broker.log.contains("everything in it is lost when the machine stops"), "{}", broker.log);
    send(&broker, "q", ["kept".to_owned()]);
    broker.end(Signal::KILL);
    assert_eq!(bodies(&Broker::start(folder.path(), "1"), "q"), ["kept"]);
}

/// The newest segment with something in it, and where in it a body stands.
fn find(directory: &Path, body: &str) -> (PathBuf, u64) {
    for entry in fs::read_dir(directory.join("layout-1/shard-0")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(body.len()).position(|window| window == body.as_bytes()) {
            return (path, at as u64);
        }
    }
    panic!("{body:?} is nowhere");
}

#[test]
fn damage_is_told_and_costs_what_it_is_in() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path(), "1");
    send(&broker, "orders", (0..4).map(|index| format!("body-{index}")));
    broker.end(Signal::KILL);
    let (path, at) = find(folder.path(), "body-1");
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"X", at).unwrap();
    let says = ["some records of batch", "a message of queue \"orders\""];
    let (code, text, _) = journal(&["verify"], folder.path());
    assert_eq!(code, Some(1), "{text}");
    let segment = path.to_string_lossy();
    for part in says.iter().chain([&&*segment, &"1 place is damaged"]) {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    let mut stop = serve(folder.path(), "1");
    refused(stop.args(["--on-damage", "stop"]), &["1 places in", "--on-damage skip"]);
    let broker = Broker::start(folder.path(), "1");
    for part in says.iter().chain(&["; 1 place is damaged"]) {
        assert!(broker.log.contains(part), "{:?} does not say {part:?}", broker.log);
    }
    assert_eq!(bodies(&broker, "orders"), ["body-0", "body-2", "body-3"]);
}

#[test]
fn records_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path(), "2");
    send(&broker, "orders", ["one".to_owned(), "two".to_owned()]);
    send(&broker, "other", ["three".to_owned()]);
    broker.run(&["receive", "orders"]);
    broker.end(Signal::TERM);
    let (code, text, error) = journal(&["dump"], folder.path());
    assert_eq!(code, Some(0), "{error}");
    for part in
        [": started: boot 1", ": message: queue orders", ": message: queue other", ": stopped: time us"]
    {
        assert!(text.contains(part), "{text} does not say {part:?}");
    }
    let (_, text, _) = journal(&["dump", "--queue", "orders", "--json"], folder.path());
    let records: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| records.iter().filter(|record| record["record"] == kind).count();
    assert_eq!((of("queue"), of("message"), of("removed")), (1, 2, 1), "{text}");
    assert!(records.iter().all(|record| record["queue"] == "orders"), "{text}");
    let (code, _, error) = journal(&["dump", "--queue", "nothing"], folder.path());
    assert!(code == Some(1) && error.contains("nothing in"), "{error}");
}

#[test]
fn with_little_room_on_the_disk_durable_messages_are_refused_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let broker = Broker::spawn(serve(&data, "1").args(["--disk-free-min", "1000000GiB"]));
    broker.run(&["send", "q", "transient"]);
    let error = broker.fails(&["send", "q", "durable", "--durable"]);
    assert!(error.contains("its disk is full"), "{error}");
    assert_eq!(broker.run(&["receive", "q", "--count", "1", "--timeout", "20s"]).trim(), "transient");
    broker.end(Signal::TERM);
    let broker = Broker::start(&data, "1");
    broker.run(&["send", "q", "durable", "--durable"]);
    broker.end(Signal::KILL);
    let broker = Broker::start(&data, "1");
    assert_eq!(broker.run(&["receive", "q", "--count", "1", "--timeout", "20s"]).trim(), "durable");
    broker.end(Signal::TERM);
}
