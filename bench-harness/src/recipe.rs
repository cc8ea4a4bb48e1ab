//! How is another broker started and stopped? By a program that says where it is, and runs as long as it does.
//!
//! It prints lines `key=value` (`url`, `queue.PROTOCOL`, `version`, `confirm`) and then `ready=yes`. One that ends before that
//! cannot be had here; the last line of its stderr is the reason. It has a process group of its own, so a signal for us does not reach it:
//! [`end_with_us`] sees to that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::client::Protocol;
use crate::disk::Folder;
use crate::options::Peer;
use crate::subject::let_run;

/// How long it may take until it is ready: it may have to be fetched first.
const READY_MAX: Duration = Duration::from_secs(300);
const STOP_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Those that run, with their folders.
static RUNNING: Mutex<Vec<(Pid, PathBuf)>> = Mutex::new(Vec::new());

/// From now on a signal that ends this program ends those first that it has started.
pub(crate) fn end_with_us() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Kept locked: no other one is started any more.
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            for (group, folder) in running.iter() {
                stop(*group);
                let _ = fs::remove_dir_all(folder);
            }
            // As a shell tells that it was a signal.
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Ends one with all that it has started.
fn stop(group: Pid) {
    let_run(Some(group.as_raw_nonzero().get()), true);
    let _ = kill_process(group, Signal::TERM);
    let deadline = Instant::now() + STOP_MAX;
    while matches!(waitpid(Some(group), WaitOptions::NOHANG), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
    }
    // Whoever is left of it.
    let _ = kill_process_group(group, Signal::KILL);
}

/// A broker that runs, and stands still while it is not measured.
pub(crate) struct Started {
    pub(crate) name: String,
    child: Child,
    said: BTreeMap<String, String>,
    _folder: Folder,
}

impl Started {
    /// The reason, if it cannot be had.
    pub(crate) fn start(name: &str, words: &[String], folder: Folder) -> Result<Started, String> {
        let (program, arguments) = words.split_first().ok_or("it has no program")?;
        let log = folder.path().join("stderr");
        let errors = File::create(&log).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        running.extend(Pid::from_raw(child.id() as i32).map(|group| (group, folder.path().to_owned())));
        drop(running);
        let output = child.stdout.take();
        let mut started = Started { name: name.to_owned(), child, said: BTreeMap::new(), _folder: folder };
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()).flatten() {
                let _ = sender.send(line);
            }
        });
        let deadline = Instant::now() + READY_MAX;
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            match line.split_once('=') {
                Some(("ready", _)) => {
                    let_run(started.group(), false);
                    return Ok(started);
                }
                Some((key, value)) => drop(started.said.insert(key.to_owned(), value.to_owned())),
                None => {}
            }
        }
        drop(started.child.try_wait());
        let text = fs::read_to_string(&log).unwrap_or_default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        Err(last.unwrap_or("it ended, or was not ready in time, and said nothing").to_owned())
    }

    pub(crate) fn said(&self, key: &str) -> &str {
        self.said.get(key).map_or("", String::as_str)
    }

    fn group(&self) -> Option<i32> {
        Some(self.child.id() as i32)
    }

    /// What a workload needs to know. `None`: it does not speak the protocol.
    pub(crate) fn peer(&self, protocol: Protocol) -> Option<Peer> {
        let queue = self.said.get(&format!("queue.{}", protocol.name()))?;
        let url = self.said("url").parse().ok()?;
        let (name, queue) = (self.name.clone(), queue.clone());
        Some(Peer { name, url, queue, protocol: Some(protocol), group: self.group() })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(own) = self.group().and_then(Pid::from_raw) {
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            stop(own);
            running.retain(|(group, _)| *group != own);
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> Result<Started, String> {
        let folder = Folder::new(&std::env::temp_dir()).unwrap();
        let words = ["sh", "-c", script].map(str::to_owned);
        Started::start("it", &words, folder)
    }

    #[test]
    fn a_recipe_says_where_its_broker_is_and_goes_with_us() {
        let script =
            "echo url=amqp://h:1; echo queue.0-9-1=q; echo version=It 1; echo ready=yes; exec sleep 600";
        let started = start(script).unwrap();
        assert_eq!((started.said("version"), started.peer(Protocol::Amqp10)), ("It 1", None));
        let peer = started.peer(Protocol::Amqp091).unwrap();
        assert_eq!((peer.url.port, peer.queue.as_str()), (1, "q"));
        let group = Pid::from_raw(peer.group.unwrap()).unwrap();
        drop(started);
        assert!(kill_process_group(group, Signal::CONT).is_err(), "something of it is left");
    }

    #[test]
    fn one_that_cannot_be_had_says_why() {
        assert_eq!(
            start("echo downloading >&2; echo no java here >&2; exit 3").err().unwrap(),
            "no java here"
        );
        let folder = Folder::new(&std::env::temp_dir()).unwrap();
        let error = Started::start("it", &["/nowhere/recipe".to_owned()], folder).err().unwrap();
        assert!(error.contains("/nowhere/recipe"), "{error}");
    }
}
