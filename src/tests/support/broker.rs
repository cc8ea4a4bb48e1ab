//! A broker with a data directory, as a process: started, asked, ended.

#![allow(dead_code, reason = "not every test asks for everything")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn corelane() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("corelane"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CORELANE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn serve(directory: &Path, shards: &str) -> Command {
    let mut command = corelane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--idle", "park", "--shards", shards, "--cores", "0"]);
    command.args(["--segment-size", "64KiB", "--data-dir"]).arg(directory);
    command
}

pub(crate) struct Broker {
    pub(crate) process: Child,
    pub(crate) address: String,
    /// The log until it was ready.
    pub(crate) log: String,
    /// The lines after that.
    rest: Mutex<Receiver<String>>,
}

impl Broker {
    pub(crate) fn start(directory: &Path, shards: &str) -> Broker {
        Self::spawn(&mut serve(directory, shards))
    }

    pub(crate) fn spawn(command: &mut Command) -> Broker {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (tell, rest) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let mut log = String::new();
        let mut address = None;
        loop {
            let line = rest.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it is not ready:\n{log}"));
            log.push_str(&line);
            log.push('\n');
            if let Some((_, listening)) = line.trim().rsplit_once("listening address=") {
                address = Some(listening.to_owned());
            }
            if line.contains(" ready ") {
                break;
            }
        }
        Broker { process, address: address.unwrap(), log, rest: Mutex::new(rest) }
    }

    /// The next line of the log that has this in it.
    pub(crate) fn log_line(&self, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let line = self.rest.lock().unwrap().recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{part:?} is not in {seen:#?}"));
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
    }

    /// A command for it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = corelane();
        command.args(arguments).args(["--url", &format!("amqp://{}", self.address)]);
        command
    }

    /// Runs a command that fails: what it says.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?} did not fail: {error}");
        error
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the broker does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A start that fails: the message is to have these parts.
pub(crate) fn refused(command: &mut Command, parts: &[&str]) {
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

pub(crate) fn journal(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let output =
        corelane().arg("journal").arg(arguments[0]).arg(directory).args(&arguments[1..]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

pub(crate) fn send(broker: &Broker, queue: &str, bodies: impl IntoIterator<Item = String>) {
    for body in bodies {
        broker.run(&["send", queue, &body, "--durable"]);
    }
}

/// What is in a queue, in order.
pub(crate) fn bodies(broker: &Broker, queue: &str) -> Vec<String> {
    broker.run(&["browse", queue]).lines().map(str::to_owned).collect()
}
