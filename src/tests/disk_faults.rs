//! Disks that are full, read-only or fail: what the broker says, what it goes on with, and what is there afterwards.
//!
//! The disks are file systems in memory that a few processes alone see. Where the machine does not allow to make these, the tests that
//! need one say so and end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tempfile::TempDir;

use support::{Broker, PATIENCE, bodies, refused, send, serve};

#[path = "support/broker.rs"]
mod support;

/// What a producer is told of a message that cannot be kept.
const REFUSED: [&str; 2] = ["amqp:resource-limit-exceeded", "its disk is full, or has failed"];

/// A file system in memory, which is there while this is.
struct Disk {
    /// Keeps the mount.
    holder: Child,
    mount: TempDir,
}

impl Disk {
    /// With room for so much, as `mount` takes it.
    fn new(size: &str) -> Option<Disk> {
        Self::of_kind("tmpfs", size)
    }

    fn of_kind(kind: &str, size: &str) -> Option<Disk> {
        let mount = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        let script = "mount -t \"$1\" -o \"size=$2\" none \"$3\" && echo mounted && exec cat";
        command.args(["--mount", "sh", "-c", script, "sh", kind, size]).arg(mount.path());
        let holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut holder) = holder else { return Self::not_allowed() };
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let disk = Disk { holder, mount };
        if line == "mounted\n" { Some(disk) } else { Self::not_allowed() }
    }

    fn not_allowed() -> Option<Disk> {
        eprintln!("not tried: this machine does not allow to mount a file system");
        None
    }

    /// Where the data directory is, for those who see the disk.
    fn data(&self) -> PathBuf {
        self.mount.path().join("data")
    }

    /// The same command, by somebody who sees the disk.
    fn with(&self, command: &Command) -> Command {
        let mut with = Command::new("nsenter");
        if !rustix::process::geteuid().is_root() {
            with.args(["--user", "--preserve-credentials"]);
        }
        with.arg(format!("--mount=/proc/{0}/ns/mnt", self.holder.id())).arg("--");
        with.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => with.env(name, value),
                None => with.env_remove(name),
            };
        }
        with
    }

    fn serve(&self, shards: &str) -> Command {
        self.with(serve(&self.data(), shards).args(["--disk-free-min", "0"]))
    }

    fn remount(&self, how: &str) {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,{how}")]).arg(self.mount.path());
        assert!(self.with(&command).status().unwrap().success());
    }

    /// Where its root is for those who do not see it.
    fn outside(&self) -> PathBuf {
        let inside = self.mount.path().strip_prefix("/").unwrap();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside)
    }

    /// Fills it, but for so many bytes.
    fn fill(&self, left: u64) {
        let disk = rustix::fs::statvfs(self.outside()).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        let mut file = File::create(self.outside().join("filler")).unwrap();
        let zeros = vec![0; 4096];
        for _ in 0..free.saturating_sub(left) / 4096 {
            file.write_all(&zeros).unwrap();
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.outside().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_disk_that_is_read_only_is_told() {
    let Some(disk) = Disk::new("16m") else { return };
    let says = ["is on a file system that is mounted read-only", "--data-dir", "--in-memory"];
    disk.remount("ro");
    refused(&mut disk.serve("1"), &says);
    disk.remount("rw");
    let broker = Broker::spawn(&mut disk.serve("1"));
    send(&broker, "orders", ["kept".to_owned()]);
    broker.end(Signal::TERM);
    disk.remount("ro");
    refused(&mut disk.serve("1"), &says);
    disk.remount("rw");
    assert_eq!(bodies(&Broker::spawn(&mut disk.serve("1")), "orders"), ["kept"]);
}

#[test]
fn a_disk_without_direct_io_is_told_and_works() {
    let Some(disk) = Disk::of_kind("ramfs", "16m") else { return };
    let broker = Broker::spawn(&mut disk.with(&serve(&disk.data(), "1")));
    for part in ["has no direct I/O", "everything in it is lost when the machine stops"] {
        assert!(broker.log.contains(part), "{}", broker.log);
    }
    send(&broker, "orders", ["kept".to_owned()]);
    broker.end(Signal::KILL);
    assert_eq!(bodies(&Broker::spawn(&mut disk.serve("1")), "orders"), ["kept"]);
}

#[test]
fn a_start_on_a_full_disk_is_told() {
    let Some(disk) = Disk::new("16m") else { return };
    let says = ["there is no room on the disk of", "make room and start again", "--data-dir"];
    for left in [0, 8 << 10, 64 << 10, 1 << 20] {
        disk.fill(left);
        refused(&mut disk.serve("1"), &says);
        disk.make_room();
    }
    let broker = Broker::spawn(&mut disk.serve("1"));
    send(&broker, "orders", ["kept".to_owned()]);
    broker.end(Signal::KILL);
    for left in [0, 1 << 20] {
        disk.fill(left);
        refused(&mut disk.serve("1"), &says);
        disk.make_room();
    }
    assert_eq!(bodies(&Broker::spawn(&mut disk.serve("1")), "orders"), ["kept"]);
}

#[test]
fn without_room_to_write_everything_anew_the_old_stays() {
    let Some(disk) = Disk::new("32m") else { return };
    let broker = Broker::spawn(&mut disk.serve("1"));
    broker.run(&["send", "orders", "--count", "1600", "--size", "5000", "--durable"]);
    broker.end(Signal::KILL);
    disk.fill(5 << 20);
    let folder = disk.data().join("layout-2").display().to_string();
    refused(&mut disk.serve("2"), &["there is no room on the disk of", &folder, "make room and start again"]);
    assert!(!disk.outside().join("data/layout-2").exists(), "what it has taken is free again");
    assert_eq!(bodies(&Broker::spawn(&mut disk.serve("1")), "orders").len(), 1600);
    disk.make_room();
    assert_eq!(bodies(&Broker::spawn(&mut disk.serve("2")), "orders").len(), 1600);
}

#[test]
fn s60_with_less_room_than_is_to_be_left_producers_are_refused_until_there_is_more() {
    let Some(disk) = Disk::new("32m") else { return };
    let mut command = serve(&disk.data(), "1");
    let broker = Broker::spawn(&mut disk.with(command.args(["--disk-free-min", "8MiB"])));
    send(&broker, "orders", ["first".to_owned(), "second".to_owned()]);
    disk.fill(4 << 20);
    // What is prepared is used up first. What has come by then waits, so whoever waits for its answer is held back.
    let error = broker.fails(&["send", "bulk", "--count", "2000", "--size", "1000", "--durable"]);
    assert!(
        REFUSED.iter().all(|part| error.contains(part)) || error.contains("did not answer in time"),
        "{error}"
    );
    let told = broker.log_line("no file for the next segment of the journal");
    for part in ["are free, and a file takes 64 KiB", "8192 KiB are to be left to others (--disk-free-min)"] {
        assert!(told.contains(part), "{told}");
    }
    let error = broker.fails(&["send", "orders", "now", "--durable"]);
    assert!(REFUSED.iter().all(|part| error.contains(part)), "{error}");
    // Everything else goes on.
    broker.run(&["send", "orders", "transient"]);
    let received = broker.run(&["receive", "orders", "--count", "2", "--timeout", "20s"]);
    assert_eq!(received.lines().collect::<Vec<_>>(), ["first", "second"]);
    disk.make_room();
    let deadline = Instant::now() + PATIENCE;
    let durable = ["send", "orders", "third", "--durable"];
    while !broker.command(&durable).output().unwrap().status.success() {
        assert!(Instant::now() < deadline, "there is room, and it is not used");
    }
    broker.end(Signal::KILL);
    let broker = Broker::spawn(&mut disk.serve("1"));
    assert_eq!(bodies(&broker, "orders"), ["third"]);
    let count = bodies(&broker, "bulk").len();
    assert!((1..2000).contains(&count), "{count} were accepted");
}

#[test]
fn s60_what_is_larger_than_a_file_is_not_begun_without_room_for_it() {
    let Some(disk) = Disk::new("16m") else { return };
    let broker = Broker::spawn(&mut disk.serve("1"));
    send(&broker, "orders", ["first".to_owned()]);
    let deadline = Instant::now() + PATIENCE;
    while segment_count(&disk.outside().join("data")) < 3 {
        assert!(Instant::now() < deadline, "its files are not made");
    }
    disk.fill(512 << 10);
    let mut waits = broker.command(&["send", "orders", "--size", "1000000", "--durable"]).spawn().unwrap();
    let told = broker.log_line("no file for the next segment of the journal");
    assert!(told.contains("are free, and a file takes"), "{told}");
    let error = broker.fails(&["send", "orders", "now", "--durable"]);
    assert!(REFUSED.iter().all(|part| error.contains(part)), "{error}");
    disk.make_room();
    assert!(waits.wait().unwrap().success(), "it was written when there was room");
    send(&broker, "orders", ["last".to_owned()]);
    broker.end(Signal::KILL);
    let found: Vec<usize> =
        bodies(&Broker::spawn(&mut disk.serve("1")), "orders").iter().map(String::len).collect();
    assert_eq!(found, [5, 1_000_000, 4]);
}

/// Files of the first shard that are whole.
fn segment_count(data: &Path) -> usize {
    let is_segment = |path: PathBuf| path.extension().is_some_and(|ending| ending == "segment");
    let entries = fs::read_dir(data.join("layout-1/shard-0")).unwrap();
    entries.filter(|entry| is_segment(entry.as_ref().unwrap().path())).count()
}

/// A limit on the size of files stands for a disk that fails: no byte is written from then on.
#[test]
fn s60_after_a_write_has_failed_nothing_is_accepted_and_everything_else_goes_on() {
    for sync in ["write-through", "fdatasync", "thread"] {
        let folder = tempfile::tempdir().unwrap();
        let plain = serve(folder.path(), "1");
        // The signal that such a write brings as well would end the process.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(plain.get_program());
        let broker = Broker::spawn(command.args(plain.get_args()).args(["--sync", sync]));
        send(&broker, "orders", ["before".to_owned()]);
        // One file is written and two are made ahead; what could not be made would be refused before it is written.
        let deadline = Instant::now() + PATIENCE;
        while segment_count(folder.path()) < 3 {
            assert!(Instant::now() < deadline, "its files are not made");
        }
        let limit = Rlimit { current: Some(0), maximum: Some(0) };
        prlimit(Some(Pid::from_child(&broker.process)), Resource::Fsize, limit).unwrap();
        let mut waits = broker
            .command(&["send", "orders", "while it fails", "--durable"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let told = broker.log_line("the journal could not be written");
        for part in
            ["File too large", "durable messages are refused", "mend the disk and start the broker again"]
        {
            assert!(told.contains(part), "{told}");
        }
        let error = broker.fails(&["send", "orders", "later", "--durable"]);
        assert!(REFUSED.iter().all(|part| error.contains(part)), "{error}");
        let refused = waits.wait().unwrap();
        assert_eq!(refused.code(), Some(3), "nobody knows what is on the disk, so it is not accepted");
        broker.run(&["send", "orders", "transient"]);
        let received = broker.run(&["receive", "orders", "--count", "3", "--timeout", "20s"]);
        assert_eq!(received.lines().collect::<Vec<_>>(), ["before", "while it fails", "transient"], "{sync}");
        assert_eq!(broker.end(Signal::TERM), Some(0), "{sync}");
        // Not even that it was consumed could be written.
        assert_eq!(bodies(&Broker::start(folder.path(), "1"), "orders"), ["before"], "{sync}");
    }
}
