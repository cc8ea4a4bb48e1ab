//! Properties of destinations, from the outside: what a wrong file is told, what the help says, and a change while the broker runs.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn corelane() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("corelane"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CORELANE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A broker with this configuration file. Killed when dropped.
struct Broker {
    process: Child,
    address: String,
    log: BufReader<ChildStderr>,
}

impl Broker {
    fn start(file: &Path) -> Broker {
        let mut broker = Broker::begin(file);
        broker.await_start();
        broker
    }

    /// One that has only begun to start.
    fn begin(file: &Path) -> Broker {
        let mut command = corelane();
        command.args(["serve", "--listen", "127.0.0.1:0", "--shards", "2", "--idle", "park", "--in-memory"]);
        let mut process = command.arg("--config").arg(file).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        Broker { process, address: String::new(), log }
    }

    fn await_start(&mut self) {
        let line = self.log_line("listening address=");
        line.rsplit_once('=').unwrap().1.clone_into(&mut self.address);
    }

    /// Until it has a handler for the signal that `reload` sends.
    fn await_handler(&self) {
        let status = format!("/proc/{}/status", self.process.id());
        let give_up = Instant::now() + Duration::from_secs(30);
        loop {
            let status = std::fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            if u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (Signal::HUP.as_raw() - 1) != 0 {
                return;
            }
            assert!(Instant::now() < give_up, "no handler in time: {caught}");
            std::thread::yield_now();
        }
    }

    /// The next line of the log that has this in it.
    fn log_line(&mut self, part: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the broker ended:\n{seen}");
            if line.contains(part) {
                return line.trim().to_owned();
            }
            seen.push_str(&line);
        }
    }

    fn reload(&self) {
        kill_process(Pid::from_child(&self.process), Signal::HUP).unwrap();
    }

    /// Runs a command against it: exit code, standard error.
    fn run(&self, line: &[&str]) -> (Option<i32>, String) {
        let url = format!("amqp://{}", self.address);
        let output = corelane().args(line).args(["--url", &url]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Whether a message is accepted.
    fn takes_a_message(&self, queue: &str) -> bool {
        let url = format!("amqp://{}", self.address);
        let output = corelane().args(["send", queue, "a message", "--url", &url]).output().unwrap();
        match output.status.code() {
            Some(0) => true,
            Some(3) => false,
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_wrong_file_ends_the_start_with_place_reason_and_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    let check = |text: &str, parts: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut command = corelane();
        command.args(["serve", "--shards", "1", "--in-memory", "--config"]).arg(&file);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        for part in [file.to_str().unwrap()].iter().chain(parts) {
            assert!(error.contains(part), "lacks {part:?}:\n{error}");
        }
    };
    check("[destinations.\"a.>\"]\nprefech = 1", &["line 2", "\"a.>\"", "did you mean prefetch?"]);
    check("[destinations.a]\nmessages-max = -5", &["line 2", "\"a\"", "messages-max: -5", "1 to 4000000000"]);
    check("[destinations.a]\noverflow = \"block\"", &["line 1", "\"a\"", "messages-max or bytes-max"]);
    check("[destinations.a]\ndead-letter = \"a\"", &["line 1", "circle: a -> a"]);
    check("[destinations.a]\ndead-letter = \"$management\"", &["line 2", "none that only the broker gives"]);
}

#[test]
fn a_pin_beyond_the_shards_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "[destinations.a]\nshard = 1").unwrap();
    let mut command = corelane();
    command.args(["serve", "--shards", "1", "--in-memory", "--config"]).arg(&file);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("\"a\": shard 1 is out of range") && error.contains("0 to 0"), "{error}");
}

#[test]
fn the_help_explains_destinations() {
    let output = corelane().args(["help", "destinations"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["[destinations.\"orders.>\"]", "\n  exclusive\n", "drop-oldest", "default", "Merging:", "add up"]
    {
        assert!(text.contains(part), "lacks {part:?}:\n{text}");
    }
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "held by a consumer when their queue is deleted",
        "with reject the dead letter is lost",
        "with drop-oldest its oldest message is",
        "with block it takes the dead letter, beyond its limits",
    ] {
        assert!(flowing.contains(part), "lacks {part:?}:\n{text}");
    }
    let output = corelane().args(["queue", "delete", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flowing.contains("What they hold goes to its dead-letter, if it has one; all else"), "{text}");
}

/// SIGHUP: a better file holds at once, a bad one changes nothing, and what cannot change is named.
#[test]
fn a_file_is_read_again_while_the_broker_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "[destinations.\"q.>\"]\nmessages-max = 1").unwrap();
    let mut broker = Broker::start(&file);
    // So many queues that each shard has some.
    let queues: Vec<String> = (0..8).map(|n| format!("q.{n}")).collect();
    for queue in &queues {
        assert!(broker.takes_a_message(queue));
        assert!(!broker.takes_a_message(queue));
    }
    std::fs::write(&file, "spin-us = 7\n[destinations.\"q.>\"]\nmessages-max = 2").unwrap();
    broker.reload();
    broker.log_line("spin-us has changed in the configuration, and holds from the next start");
    broker.log_line("the configuration file was read again");
    for queue in &queues {
        // The shards are told, not waited for.
        while !broker.takes_a_message(queue) {}
        assert!(!broker.takes_a_message(queue));
    }
    std::fs::write(&file, "[destinations.\"q.>\"]\nmessages-max = \"many\"").unwrap();
    broker.reload();
    broker.log_line("what was in force before stays");
    for queue in &queues {
        assert!(!broker.takes_a_message(queue));
    }
}

/// A file that is changed while the broker starts holds, whether it was read before or after.
#[test]
fn a_file_that_is_to_be_read_again_during_the_start_holds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "[destinations.q]\nmessages-max = 1").unwrap();
    let mut broker = Broker::begin(&file);
    broker.await_handler();
    std::fs::write(&file, "[destinations.q]\nmessages-max = 2").unwrap();
    broker.reload();
    broker.await_start();
    broker.log_line("the configuration file was read again");
    assert!(broker.takes_a_message("q"));
    while !broker.takes_a_message("q") {}
    assert!(!broker.takes_a_message("q"));
}

/// What the file and an operator say together: refused, or named in the log where it is the file that was changed.
#[test]
fn an_operator_cannot_break_what_the_file_says_and_the_other_way_round_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "[destinations.\"news.>\"]\ntopic = true").unwrap();
    let mut broker = Broker::start(&file);
    let create = |broker: &Broker, queue: &str, to: &str| {
        let dead_letter = format!("dead-letter={to}");
        broker.run(&["queue", "create", queue, "--set", &dead_letter, "--set", "expiration=1ms"])
    };
    assert_eq!(create(&broker, "a", "b"), (Some(0), String::new()));
    let (code, error) = create(&broker, "b", "a");
    assert!(code == Some(1) && error.contains("in a circle: b -> a -> b"), "{error}");
    let (code, error) = broker.run(&["queue", "create", "news.x"]);
    assert!(code == Some(1) && error.contains("\"news.x\" is a topic by the rule \"news.>\""), "{error}");
    let (code, error) = broker.run(&["queue", "create", "a.*"]);
    assert!(code == Some(1) && error.contains("has wildcards"), "{error}");
    let set = |value: &str| broker.run(&["queue", "set", "a", value]);
    assert_eq!(
        set("redelivery-delay={ min = \"1s\", multiplier = 2, max = \"1m\" }"),
        (Some(0), String::new())
    );
    let (code, error) = set("redelivery-delay={ min = \"1m\", max = \"1s\" }");
    assert!(code == Some(1) && error.contains("min (1m) is more than max (1s)"), "{error}");
    let (code, error) = broker.run(&["queue", "set", "a", "deliveries-max=5", "delivery-max=6"]);
    assert!(code == Some(1) && error.contains("deliveries-max is given twice"), "{error}");
    let (code, error) = broker.run(&["send", "a", "x", "-p", "n=1", "-p", "n=2"]);
    assert!(code == Some(1) && error.contains("\"n\" is given twice"), "{error}");
    std::fs::write(&file, "[destinations.b]\ndead-letter = \"/queues/a\"\nexpiration = \"1ms\"").unwrap();
    broker.reload();
    assert!(broker.takes_a_message("a"));
    let line = broker.log_line("in a circle");
    assert!(line.contains("WARN") && line.contains("died in b would go on to /queues/a, "), "{line}");
}

/// A configuration file that would never be read to its end: the broker goes on as before, and can be stopped.
#[test]
fn a_file_that_does_not_answer_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "[destinations.q]\nmessages-max = 1").unwrap();
    let mut broker = Broker::start(&file);
    std::fs::remove_file(&file).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    broker.reload();
    let line = broker.log_line("what was in force before stays");
    assert!(line.contains("it is not a regular file"), "{line}");
    assert!(broker.takes_a_message("q") && !broker.takes_a_message("q"));
    kill_process(Pid::from_child(&broker.process), Signal::TERM).unwrap();
    assert_eq!(broker.process.wait().unwrap().code(), Some(0));
}
