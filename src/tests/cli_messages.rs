//! A broker and the commands that use it, as processes: messages go in and come out, users log in, signals end it.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use corelane::client::{Client, ClientError, Selection};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker on a port of its own. Killed when dropped.
struct Broker {
    process: Child,
    address: String,
    log: BufReader<std::process::ChildStderr>,
}

fn corelane() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("corelane"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CORELANE_") {
            command.env_remove(name);
        }
    }
    command
}

impl Broker {
    fn start(arguments: &[&str]) -> Broker {
        let mut command = corelane();
        command.args(["serve", "--listen", "127.0.0.1:0", "--in-memory", "--idle", "park"]).args(arguments);
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            let more = log.read_line(&mut line).unwrap();
            assert!(more > 0, "the broker ended:\n{seen}");
            seen.push_str(&line);
            if let Some((_, address)) = line.trim().rsplit_once("listening address=") {
                break address.to_owned();
            }
        };
        Broker { process, address, log }
    }

    fn url(&self) -> String {
        format!("amqp://{}", self.address)
    }

    /// Runs a command against it: exit code, standard output, standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        self.run_as("", arguments)
    }

    /// The same, as a user: `NAME:PASSWORD@`.
    fn run_as(&self, user: &str, arguments: &[&str]) -> (i32, String, String) {
        let url = format!("amqp://{user}{}", self.address);
        let mut process = corelane();
        process.args(arguments).args(["--url", &url]).stdin(Stdio::null());
        let output = process.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    #[track_caller]
    fn check(&self, arguments: &[&str], expected: &str) {
        assert_eq!(self.run(arguments), (0, expected.to_owned(), String::new()), "{arguments:?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// How it ended, and the rest of its log.
    fn wait(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the broker does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        (status, log)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn add_user(file: &Path, name: &str, password: &str) {
    let mut command = corelane();
    command.args(["user", "add", name, "--password-stdin", "--users"]).arg(file);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn messages_go_in_and_come_out_in_order() {
    for shards in ["1", "3"] {
        let broker = Broker::start(&["--shards", shards]);
        broker.check(&["send", "orders", "first"], "");
        broker.check(&["send", "orders", "second", "-n", "2"], "");
        broker.check(&["browse", "orders"], "first\nsecond\nsecond\n");
        broker.check(&["browse", "orders", "-n", "2"], "first\nsecond\n");
        broker.check(&["receive", "orders"], "first\n");
        broker.check(&["receive", "orders", "-n", "2"], "second\nsecond\n");
        broker.check(&["browse", "orders"], "");
        // More than is asked for at a time.
        broker.check(&["send", "many", "x", "-n", "250"], "");
        broker.check(&["browse", "many"], &"x\n".repeat(250));
        broker.check(&["browse", "many", "-n", "150"], &"x\n".repeat(150));
        broker.check(&["receive", "orders", "-n", "0", "--timeout", "0.2"], "");
    }
}

#[test]
fn what_does_not_come_in_time_is_told_by_the_exit_code() {
    let broker = Broker::start(&["--shards", "1"]);
    broker.check(&["send", "orders", "only"], "");
    let (code, output, error) = broker.run(&["receive", "orders", "-n", "2", "--timeout", "0.2"]);
    assert_eq!(
        (code, output.as_str(), error.as_str()),
        (3, "only\n", "corelane: 1 of 2 messages came in time\n")
    );
}

#[test]
fn sizes_and_many_messages() {
    let broker = Broker::start(&["--shards", "2", "--max-message-size", "1MiB"]);
    for (size, bytes) in [("0", 0), ("1", 1), ("64KiB", 64 << 10), ("1000KB", 1_000_000)] {
        broker.check(&["send", "sizes", "-n", "3", "--size", size], "");
        let (code, output, error) = broker.run(&["receive", "sizes", "-n", "3"]);
        assert_eq!((code, error.as_str()), (0, ""), "{size}");
        assert!(output.lines().all(|line| line.len() == bytes), "{size}");
        assert_eq!(output.lines().count(), 3);
    }
    broker.check(&["send", "many", "-n", "5000", "--size", "100"], "");
    let (code, output, _) = broker.run(&["receive", "many", "-n", "5000"]);
    assert_eq!((code, output.lines().count()), (0, 5000));
    let (code, _, error) = broker.run(&["send", "sizes", "--size", "2MiB"]);
    assert_eq!(code, 1);
    assert!(error.contains("larger than the broker takes (at most 1048576 bytes)"), "{error}");
}

/// Two shards with 8 MiB each, of which one message may have seven.
#[test]
fn the_memory_of_a_shard_bounds_messages_and_no_less_does() {
    let broker = Broker::start(&["--shards", "2", "--memory", "16MiB"]);
    for queue in ["a", "b", "c", "d"] {
        broker.check(&["send", queue, "--size", "7100KiB"], "");
        broker.check(&["queue", "purge", queue], "deleted 1 message\n");
    }
    let (code, _, error) = broker.run(&["send", "a", "--size", "8MiB"]);
    assert_eq!(code, 1);
    assert!(error.contains("larger than the broker takes (at most 7340032 bytes)"), "{error}");
}

#[test]
fn selectors_choose_messages() {
    let broker = Broker::start(&["--shards", "2"]);
    broker.check(&["send", "orders", "a red one", "--property", "colour=red"], "");
    broker.check(&["send", "orders", "a blue one", "--property", "colour=blue"], "");
    broker.check(&["browse", "orders", "--selector", "colour = 'blue'"], "a blue one\n");
    broker.check(&["receive", "orders", "--selector", "colour = 'blue'"], "a blue one\n");
    broker.check(&["browse", "orders"], "a red one\n");
    let (code, _, error) = broker.run(&["receive", "orders", "--selector", "colour = "]);
    assert_eq!(code, 1);
    assert!(error.contains("amqp:invalid-field"), "{error}");
}

#[test]
fn numbers_in_properties_are_compared_and_annotations_are_shown() {
    let broker = Broker::start(&["--shards", "1"]);
    broker.check(&["send", "jobs", "one", "-p", "attempt=1", "-p", "last=true"], "");
    broker.check(&["send", "jobs", "five", "-p", "attempt=5"], "");
    broker.check(&["send", "jobs", "text", "-p", "attempt='1'", "--delay", "1ms"], "");
    broker.check(&["browse", "jobs", "--selector", "attempt < 3"], "one\n");
    broker.check(&["browse", "jobs", "--selector", "last = true"], "one\n");
    broker.check(&["receive", "jobs", "--selector", "attempt = '1'"], "text\n");
    broker.check(&["send", "later", "x", "--delay", "1h"], "");
    broker.check(&["browse", "later"], "");
    let (_, peeked, _) = broker.run(&["queue", "peek", "later"]);
    assert!(peeked.contains("x-opt-delivery-delay") && peeked.contains("3600000"), "{peeked}");
    broker.check(&["send", "soon", "x", "--delay", "1ms"], "");
    let (_, shown, _) = broker.run(&["receive", "soon", "-v", "--timeout", "10"]);
    assert!(shown.contains("annotation x-opt-delivery-delay: 1\n"), "{shown}");
}

#[test]
fn a_sender_that_waits_for_room_says_so_once() {
    let broker = Broker::start(&["--shards", "1"]);
    let make = ["queue", "create", "full", "--set", "messages-max=2", "--set", "overflow=block"];
    broker.check(&make, "");
    let url = broker.url();
    let mut sender = corelane();
    sender.args(["send", "full", "x", "-n", "10", "--url", &url]).stderr(Stdio::piped());
    let mut sender = sender.spawn().unwrap();
    let mut said = BufReader::new(sender.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("of 10; waiting") && line.contains("\"full\""), "{line}");
    let (code, taken, _) = broker.run(&["receive", "full", "-n", "10", "--timeout", "30"]);
    assert_eq!((code, taken.lines().count()), (0, 10));
    assert!(sender.wait().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_queue_that_must_exist_is_told_about() {
    let broker = Broker::start(&["--shards", "2", "--no-auto-create"]);
    for command in ["send", "receive", "browse"] {
        let (code, _, error) = broker.run(&[command, "orders"]);
        assert_eq!(code, 1, "{command}");
        assert!(error.contains("\"orders\" does not exist"), "{command}: {error}");
        assert!(error.contains("auto-create is false"), "{command}: {error}");
    }
}

/// Whatever the broker makes on first use.
#[test]
fn a_pattern_is_not_taken_for_a_queue_that_is_missing() {
    let broker = Broker::start(&["--shards", "1"]);
    for command in ["send", "receive", "browse"] {
        let (code, _, error) = broker.run(&[command, "orders.>"]);
        assert_eq!(code, 1, "{command}");
        assert!(error.contains("has wildcards") && !error.contains("queue create"), "{command}: {error}");
    }
}

#[test]
fn destinations_have_the_properties_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    let text = "shards = 2\nauto-create = false\n[destinations.\"open.>\"]\nauto-create = true\n\
                [destinations.\"open.short\"]\nexpiration = \"1ms\"\n";
    std::fs::write(&file, text).unwrap();
    let broker = Broker::start(&["--config", &file.to_string_lossy()]);
    broker.check(&["send", "open.one", "here"], "");
    broker.check(&["browse", "open.one"], "here\n");
    assert_eq!(broker.run(&["send", "closed", "x"]).0, 1);
    broker.check(&["send", "open.short", "gone soon"], "");
    std::thread::sleep(Duration::from_millis(50));
    broker.check(&["browse", "open.short"], "");
}

#[test]
fn users_log_in_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("users");
    add_user(&file, "alice", "open sesame");
    let broker = Broker::start(&["--shards", "2", "--users", &file.to_string_lossy()]);
    let send = ["send", "orders", "x"];
    assert_eq!(broker.run_as("alice:open%20sesame@", &send), (0, String::new(), String::new()));
    let refused = |user: &str, expected: &str| {
        let (code, _, error) = broker.run_as(user, &send);
        assert_eq!(code, 1, "{user}");
        assert!(error.contains(expected), "{user}: {error}");
    };
    refused("alice:wrong@", "refused user \"alice\"");
    refused("bob:open%20sesame@", "refused user \"bob\"");
    refused("guest:guest@", "refused user \"guest\"");
    refused("", "--url amqp://USER:PASSWORD@HOST:PORT");
    // A user that is added now may come in soon.
    add_user(&file, "bob", "two");
    let deadline = Instant::now() + PATIENCE;
    while broker.run_as("bob:two@", &send).0 != 0 {
        assert!(Instant::now() < deadline, "bob is not known");
    }
}

#[test]
fn without_users_the_loopback_has_its_guests() {
    let broker = Broker::start(&["--shards", "1"]);
    assert_eq!(broker.run_as("guest:guest@", &["send", "q", "x"]).0, 0);
    assert_eq!(broker.run_as("guest:gast@", &["send", "q", "x"]).0, 1);
    assert_eq!(broker.run(&["send", "q", "x"]).0, 0);
}

#[test]
fn a_signal_closes_connections_and_ends_the_broker() {
    for signal in [Signal::TERM, Signal::INT] {
        let broker = Broker::start(&["--shards", "2"]);
        let mut client = Client::connect(&broker.url().parse().unwrap()).unwrap();
        let mut receiver = client.receive("orders", &Selection::default()).unwrap();
        // One that says nothing at all, too.
        let mut silent = TcpStream::connect(&broker.address).unwrap();
        broker.signal(signal);
        let error = receiver.run(None, |_| Ok::<(), ClientError>(())).unwrap_err().to_string();
        assert!(error.contains("(amqp:connection:forced)"), "{error}");
        drop(client);
        let (status, log) = broker.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        let _ = silent.read(&mut [0; 64]);
    }
}

#[test]
fn a_second_signal_ends_the_broker_at_once() {
    let broker = Broker::start(&["--shards", "2"]);
    // It does not answer the broker's close, so that the broker waits for it.
    let client = Client::connect(&broker.url().parse().unwrap()).unwrap();
    broker.signal(Signal::TERM);
    let began = Instant::now();
    broker.signal(Signal::TERM);
    // Two of a kind may be told as one; then one more makes two.
    while began.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(50));
        broker.signal(Signal::TERM);
    }
    let (status, log) = broker.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("a second signal"), "{log}");
    drop(client);
}

#[test]
fn a_port_that_is_taken_is_told_with_what_to_do() {
    let broker = Broker::start(&["--shards", "1"]);
    let output = corelane().args(["serve", "--in-memory", "--listen", &broker.address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains(&broker.address) && error.contains("--listen"), "{error}");
}

#[test]
fn the_log_can_be_json() {
    let mut command = corelane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--shards", "1", "--idle", "park", "--in-memory"]);
    command.args(["--log", "json"]);
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let mut lines = String::new();
    while !lines.contains("\"ready\"") {
        assert!(log.read_line(&mut lines).unwrap() > 0, "{lines}");
    }
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
    assert!(lines.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{lines}");
}
