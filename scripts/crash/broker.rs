//! How is the broker started, and how does it end?

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::fault::Fault;

/// How long a start may take.
const START_TIME_MAX: Duration = Duration::from_secs(120);
/// How long a stop that was asked for may take.
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Bytes of a segment, so few that there are always several.
const SEGMENT_SIZE: &str = "1MiB";
/// What is in the log of a broker that found or did something wrong.
const BAD_WORDS: &[&str] = &["panicked", "cannot be read", "damage", "put aside", "could not be written"];

/// Where everything is that outlives the broker.
#[derive(Clone, Debug)]
pub struct Place {
    pub program: PathBuf,
    /// A folder of ours: data, configuration, log.
    pub folder: PathBuf,
}

#[derive(Debug)]
pub struct Broker {
    pub address: SocketAddr,
    child: Child,
    log: PathBuf,
    started: Instant,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn log(&self) -> PathBuf {
        self.path("broker.log")
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub fn configure(&self, text: &str) -> io::Result<()> {
        fs::write(self.path("broker.toml"), text)
    }

    /// Starts the broker and does not wait for it.
    pub fn spawn(&self, shards: usize) -> Result<Broker, Fault> {
        let failed = |error: io::Error| Fault::Broker(format!("{}: {error}", self.program.display()));
        let address =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).map_err(failed)?;
        let log = OpenOptions::new().create(true).append(true).open(self.log()).map_err(failed)?;
        let output: File = log.try_clone().map_err(failed)?;
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            // A broker that is configured for something else would be another broker.
            if name.to_string_lossy().starts_with("CORELANE_") {
                command.env_remove(name);
            }
        }
        command.args(["serve", "--listen", &address.to_string(), "--shards", &shards.to_string()]);
        command.args(["--segment-size", SEGMENT_SIZE, "--idle", "park", "--data-dir"]).arg(self.data());
        command.arg("--config").arg(self.path("broker.toml"));
        let child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().map_err(failed)?;
        Ok(Broker { address, child, log: self.log(), started: Instant::now() })
    }
}

impl Broker {
    /// Waits until it takes connections. How long that took since its start.
    pub fn wait_until_it_listens(&mut self) -> Result<Duration, Fault> {
        loop {
            self.check()?;
            if TcpStream::connect(self.address).is_ok() {
                return Ok(self.started.elapsed());
            }
            if self.started.elapsed() > START_TIME_MAX {
                return Err(Fault::Broker(format!(
                    "it does not listen after {} s",
                    START_TIME_MAX.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// An error if it has ended, or says that something is wrong.
    pub fn check(&mut self) -> Result<(), Fault> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status)),
            Err(error) => Err(Fault::Broker(error.to_string())),
        }
    }

    fn ended(&self, status: ExitStatus) -> Fault {
        Fault::Broker(format!("it has ended by itself, with {status}:\n{}", tail(&self.log)))
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) -> Result<(), Fault> {
        self.check()?;
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map_err(|error| Fault::Broker(error.to_string()))?;
        check_log(&self.log)
    }

    /// Asks it to end.
    pub fn stop(mut self) -> Result<(), Fault> {
        let failed = |error: io::Error| Fault::Broker(error.to_string());
        let asked = Instant::now();
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().map_err(failed)?;
        loop {
            match self.child.try_wait().map_err(failed)? {
                Some(status) if status.success() => return check_log(&self.log),
                Some(status) => return Err(self.ended(status)),
                None if asked.elapsed() > STOP_TIME_MAX => {
                    return Err(Fault::Broker("it does not stop when it is asked to".to_owned()));
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check_log(log: &Path) -> Result<(), Fault> {
    let text = fs::read_to_string(log).unwrap_or_default();
    match text.lines().find(|line| BAD_WORDS.iter().any(|word| line.contains(word))) {
        Some(line) => Err(Fault::Broker(format!("it says: {line}"))),
        None => Ok(()),
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
