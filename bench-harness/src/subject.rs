//! How is the program started that is measured? `corelane` as a broker, as an echo or as a relay, on a core of its own.
//!
//! Each measurement starts it anew, so that programs that poll do not share the core. It ends with the harness: by SIGTERM,
//! or if it does not listen by SIGKILL.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::cores::{Cores, pin};
use crate::disk::{Folder, Syncing};
use crate::error::BenchError;

/// How long a program may take until it takes connections.
const START_TIME_MAX: Duration = Duration::from_secs(10);
/// How long it may take to stop when it is asked to.
const STOP_TIME_MAX: Duration = Duration::from_secs(3);
/// How often we look.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A port may be taken between our choice and the program's start.
const STARTS_MAX: u32 = 3;

/// What the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Broker,
    Echo,
    Relay,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Broker => "the broker",
            Role::Echo => "the echo",
            Role::Relay => "the relay",
        }
    }
}

/// What the measured program does when it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Idle {
    /// Sleep at once.
    Park,
    /// Poll for a while, then sleep.
    Adaptive,
    /// Poll for ever.
    Spin,
}

/// How to start the program.
#[derive(Clone, Debug)]
pub struct Launch {
    pub program: PathBuf,
    pub cores: Cores,
    pub idle: Idle,
    pub spin_us: u64,
    /// Where the broker keeps durable messages; none: it keeps nothing.
    pub keeping: Option<Keeping>,
}

/// How a broker keeps durable messages: in a folder of its own for each start.
#[derive(Clone, Debug)]
pub struct Keeping {
    pub within: PathBuf,
    pub sync: Syncing,
    /// What its messages may take of memory, as `--memory` says it; none: what the broker chooses.
    pub memory: Option<String>,
}

/// A program that runs.
pub struct Running {
    pub address: SocketAddr,
    role: Role,
    child: Child,
    log: PathBuf,
    /// Goes with it.
    data: Option<Folder>,
}

impl Launch {
    /// Starts the program and waits until it takes connections.
    pub fn start(&self, role: Role) -> Result<Running, BenchError> {
        let keeping = self.keeping.as_ref().filter(|_| role == Role::Broker);
        let data = keeping.map(|keeping| Folder::new(&keeping.within)).transpose()?;
        self.start_on(role, data)
    }

    /// The same, on what a broker has kept that was stopped.
    pub fn start_on(&self, role: Role, mut data: Option<Folder>) -> Result<Running, BenchError> {
        if !self.program.is_file() {
            return Err(BenchError::NoProgram { path: self.program.clone() });
        }
        let mut attempt = 1;
        loop {
            match self.start_once(role, &mut data) {
                Err(BenchError::NotStarted { .. }) if attempt < STARTS_MAX => attempt += 1,
                result => return result,
            }
        }
    }

    fn start_once(&self, role: Role, data: &mut Option<Folder>) -> Result<Running, BenchError> {
        let address = free_address().map_err(system("finding a free port"))?;
        let log = log_path();
        let output = File::create(&log).map_err(system("making a temporary file"))?;
        let error_output = output.try_clone().map_err(system("making a temporary file"))?;
        let mut command = Command::new(&self.program);
        command
            .args(self.arguments(role, address, data.as_ref()))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(error_output);
        for (name, _) in std::env::vars_os() {
            // A broker that is configured for something else would be another broker.
            if name.to_string_lossy().starts_with("CORELANE_") {
                command.env_remove(name);
            }
        }
        // It inherits the core from us.
        pin(self.cores.broker)?;
        let child = command.spawn();
        pin(self.cores.generator)?;
        let mut running = match child {
            Ok(child) => Running { address, role, child, log, data: data.take() },
            Err(error) => {
                let _ = fs::remove_file(&log);
                return Err(self.not_started(role, error.to_string()));
            }
        };
        if running.wait_until_it_listens() {
            return Ok(running);
        }
        let output = fs::read_to_string(&running.log).unwrap_or_default();
        *data = running.data.take();
        Err(self.not_started(role, output))
    }

    fn arguments(&self, role: Role, address: SocketAddr, data: Option<&Folder>) -> Vec<String> {
        let kept = match (&self.keeping, data) {
            (Some(keeping), Some(data)) => {
                let folder = data.path().join("data").to_string_lossy().into_owned();
                let kept = ["--data-dir", &folder, "--sync", keeping.sync.name()];
                let memory = keeping.memory.iter().flat_map(|memory| ["--memory", memory]);
                kept.into_iter().chain(memory).map(str::to_owned).collect()
            }
            (None, _) | (_, None) if role == Role::Broker => vec!["--in-memory".to_owned()],
            (None, _) | (_, None) => Vec::new(),
        };
        let (role, core): (&[&str], &str) = match role {
            Role::Broker => (&["serve", "--shards", "1", "--log", "warn"], "--cores"),
            Role::Echo => (&["baseline", "echo"], "--core"),
            Role::Relay => (&["baseline", "relay"], "--core"),
        };
        let idle = match self.idle {
            Idle::Park => "park",
            Idle::Adaptive => "adaptive",
            Idle::Spin => "spin",
        };
        let (number, address) = (self.cores.broker.to_string(), address.to_string());
        let spin_us = self.spin_us.to_string();
        let settings = ["--listen", &address, core, &number, "--idle", idle, "--spin-us", &spin_us];
        role.iter().chain(&settings).map(|argument| (*argument).to_owned()).chain(kept).collect()
    }

    fn not_started(&self, role: Role, output: String) -> BenchError {
        BenchError::NotStarted { what: role.name(), path: self.program.clone(), output }
    }
}

impl Running {
    /// Processor time of all its threads so far, where the kernel tells.
    pub fn cpu(&self) -> Option<Duration> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let mut total_ns = 0;
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            total_ns += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(total_ns))
    }

    /// The most memory that it has had at once, where the kernel tells.
    pub fn memory_peak(&self) -> Option<u64> {
        self.status_bytes("VmHWM:")
    }

    /// The memory that it has now, where the kernel tells.
    pub fn memory(&self) -> Option<u64> {
        self.status_bytes("VmRSS:")
    }

    fn status_bytes(&self, key: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let value = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    }

    /// Whether it has not ended.
    pub fn goes_on(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops it in order. What it has kept, for the next one.
    pub fn stop(mut self, within: Duration) -> Result<Option<Folder>, BenchError> {
        if !self.end(within) {
            return Err(BenchError::NotStopped { what: self.role.name(), within });
        }
        Ok(self.data.take())
    }

    /// Asks it to stop. Whether it did.
    fn end(&mut self, within: Duration) -> bool {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + within;
        while self.goes_on() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }

    /// Why a measurement failed: if the program has ended, that and what it said.
    pub fn explain(&mut self, error: BenchError) -> BenchError {
        // Its end may follow that of its connections.
        std::thread::sleep(LOOK_EVERY);
        match self.child.try_wait() {
            Ok(Some(_)) => {
                let output = fs::read_to_string(&self.log).unwrap_or_default();
                BenchError::Ended { what: self.role.name(), output }
            }
            Ok(None) | Err(_) => error,
        }
    }

    fn wait_until_it_listens(&mut self) -> bool {
        let deadline = Instant::now() + START_TIME_MAX;
        while Instant::now() < deadline {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.goes_on() && !self.end(STOP_TIME_MAX) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.log);
    }
}

/// Lets a process group go on, or stand still. A group that has gone is no matter here: its broker will be missed.
pub fn let_run(group: Option<i32>, goes_on: bool) {
    if let Some(group) = group.and_then(Pid::from_raw) {
        let _ = kill_process_group(group, if goes_on { Signal::CONT } else { Signal::STOP });
    }
}

/// The `corelane` that was built together with this program.
pub fn program_beside_us() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("."));
    // Test programs stand one folder deeper.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    folder.join("corelane")
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn log_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("corelane-bench-{}-{count}.log", std::process::id()))
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> BenchError {
    move |error| BenchError::System { doing, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(program: &str) -> Launch {
        let cores = Cores::choose(None, None).unwrap();
        Launch { program: program.into(), cores, idle: Idle::Adaptive, spin_us: 20, keeping: None }
    }

    #[test]
    fn yardsticks_are_started_as_the_broker_is() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1234));
        let launch = Launch { cores: Cores { broker: 3, generator: 4 }, ..launch("corelane") };
        let check = |role: Role, kind: &str, core: &str, kept: &str| {
            let expect = format!("{kind} --listen 127.0.0.1:1234 {core} --idle adaptive --spin-us 20{kept}");
            assert_eq!(launch.arguments(role, address, None).join(" "), expect);
        };
        check(Role::Broker, "serve --shards 1 --log warn", "--cores 3", " --in-memory");
        check(Role::Echo, "baseline echo", "--core 3", "");
        check(Role::Relay, "baseline relay", "--core 3", "");
    }

    #[test]
    fn a_broker_that_keeps_messages_has_a_folder_for_them() {
        let (within, memory) = (std::env::temp_dir(), Some("2GiB".to_owned()));
        let keeping = Some(Keeping { within, sync: Syncing::Fdatasync, memory });
        let launch = Launch { keeping, ..launch("corelane") };
        let folder = Folder::new(&std::env::temp_dir()).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1234));
        let arguments = launch.arguments(Role::Broker, address, Some(&folder)).join(" ");
        let data = folder.path().join("data");
        let expect = format!("--data-dir {} --sync fdatasync --memory 2GiB", data.display());
        assert!(arguments.ends_with(&expect) && !arguments.contains("--in-memory"), "{arguments}");
    }

    #[test]
    fn a_program_that_is_not_there_is_said() {
        let error = launch("/nowhere/corelane").start(Role::Broker).err().unwrap().to_string();
        assert!(error.contains("/nowhere/corelane") && error.contains("cargo build"), "{error}");
    }

    #[test]
    fn a_program_that_ends_early_is_told_from_one_that_goes_on() {
        let running = |program: &str| {
            let child = Command::new(program).arg("60").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            Running { address, role: Role::Echo, child: child.unwrap(), log: log_path(), data: None }
        };
        let told = |running: &mut Running| {
            let error = BenchError::Broken { peer: "it".to_owned(), error: io::ErrorKind::BrokenPipe.into() };
            running.explain(error).to_string()
        };
        let mut ended = running("/bin/false");
        ended.child.wait().unwrap();
        assert!(told(&mut ended).contains("the echo has ended"));
        assert!(told(&mut running("/bin/sleep")).contains("it broke"));
    }

    #[test]
    fn what_a_program_said_before_it_failed_is_shown() {
        let error = launch("/bin/ls").start(Role::Broker).err().unwrap().to_string();
        assert!(error.contains("did not come up") && error.contains("--shards"), "{error}");
    }
}
