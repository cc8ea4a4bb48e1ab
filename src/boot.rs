//! How does a broker come up, and how does it go?
//!
//! First everything that could stop it is looked at, and said in one sentence that tells what to do; then ports are bound,
//! shards are started, each on its core, and the calling thread becomes the control thread until a signal ends it.
//!
//! Invariants: nothing is started before the machine was found fit; no connection is accepted before every shard runs; a
//! warning is only given for what the operator can change.
//! Left out: what a shard's thread does (`driver`), what the control thread does (`control`).

mod cores;

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{fmt, io, thread};

use corelane_journal::Queue;
use corelane_shard::{Decisions, Destinations, Shard, ShardConfig, queue_home};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::authenticate::Authenticator;
use crate::config::{IdlePolicy, Listener, ServeSettings, SettingsError};
use crate::control::{Control, Reload, Reread, Signals, Stop};
use crate::driver::{
    self, Clock, Disk, Doorbell, Driver, Idle, Listening, Participants, ShardThread, Unusable, participants,
};
use crate::storage::{self, DataDirectory, Progress, ShardStorage, StorageError, StorageSettings, SyncMode};
use cores::{CoresError, Plan};

/// Connections that wait to be accepted, for each listener; more are turned away by the kernel, which also caps it at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Fewer descriptors than this are worth a warning: every connection needs one.
const FILES_WANTED: u64 = 10_000;

/// How long threads have to end once their connections are closed.
const END_MAX: Duration = Duration::from_secs(2);

/// How often signals are looked at while the data directory is read.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);

/// Why a broker does not come up.
#[derive(Debug)]
pub enum BootError {
    Unusable(Unusable),
    Cores(CoresError),
    /// The data directory cannot be used.
    Storage(StorageError),
    /// Settings that do not fit the number of shards.
    Settings(SettingsError),
    Bind {
        address: SocketAddr,
        error: io::Error,
    },
    /// All listeners were optional, and this host has none of them.
    NoListener,
    /// Threads, memory or descriptors ran out.
    Start {
        shard: usize,
        error: io::Error,
    },
    Doorbells(io::Error),
    /// There is no thread for the data directory.
    Thread(io::Error),
}

/// Runs a broker until a signal ends it.
pub fn serve(
    settings: &ServeSettings,
    signals: Signals,
    authenticator: Authenticator,
    reread: Reread,
) -> Result<Stop, BootError> {
    if let Some(warning) = driver::probe().map_err(BootError::Unusable)? {
        warn!("{warning}");
    }
    let plan = Plan::new(settings.shards, settings.cores.as_deref()).map_err(BootError::Cores)?;
    settings.check_pins(plan.cores.len()).map_err(BootError::Settings)?;
    for warning in plan.warnings(settings.idle == IdlePolicy::Spin) {
        warn!("{warning}");
    }
    let files = raise_file_limit();
    if files < FILES_WANTED {
        warn!(
            "at most {files} files and connections can be open at once. Raise the limit: `ulimit -Hn 1048576` in the \
             shell, `LimitNOFILE=1048576` in a systemd unit"
        );
    }
    let listeners = bind(&settings.listeners)?;
    let addresses: Vec<_> = listeners.iter().map(Listening::address).collect();
    let clock = Clock::start();
    let boot = clock.now();
    let mut storage = match &settings.storage {
        None => None,
        Some(asked) => {
            let home = home(settings.destinations.clone(), plan.cores.len());
            let Some(opened) = open_storage(asked, plan.cores.len(), clock, home, &signals)? else {
                info!("stopped before everything was read");
                return Ok(Stop::Graceful);
            };
            Some(opened)
        }
    };
    let Participants { ports, bells, control } =
        participants(plan.cores.len()).map_err(BootError::Doorbells)?;
    let mut threads = Vec::new();
    let mut listeners = Some(listeners);
    let mut starting = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let (disk, restoring) = match &mut storage {
            Some(storage) => storage.shard(index, &bells[index])?,
            None => (None, None),
        };
        let driver = Driver {
            index,
            placement: plan.placement(index),
            idle: idle(settings),
            clock,
            port,
            bells: bells.clone(),
            listeners: if index == 0 { listeners.take().unwrap_or_default() } else { Vec::new() },
            disk,
        };
        let config = settings.shard_config(index, plan.cores.len(), boot);
        let started = driver.start(move || make_shard(config, restoring, clock));
        starting.push(started.map_err(|error| BootError::Start { shard: index, error })?);
    }
    for starting in starting {
        let index = starting.index();
        threads.push(starting.wait().map_err(|error| BootError::Start { shard: index, error })?);
        info!(shard = index, core = plan.cores[index], "started");
    }
    for address in addresses {
        info!(%address, "listening");
    }
    let reload = Reload::new(reread, settings.clone(), plan.cores.len());
    let stop = Control::new(control, clock, signals, authenticator, reload).run();
    end(threads, stop);
    Ok(stop)
}

/// The data directory, until the broker ends.
struct Storage {
    _directory: DataDirectory,
    sync: SyncMode,
    decisions: Arc<Decisions>,
    progress: Arc<Progress>,
    /// By number; each is taken once.
    shards: Vec<Option<ShardStorage>>,
}

/// What a shard takes in before anything else.
struct Restoring {
    index: usize,
    storage: ShardStorage,
    decisions: Arc<Decisions>,
    progress: Arc<Progress>,
}

fn home(destinations: Destinations, shards: usize) -> impl Fn(&Queue) -> usize + Send + 'static {
    move |queue| queue_home(&destinations, &queue.name, shards)
}

/// Opens the data directory on a thread of its own. `None`: a signal came first; what the thread does may end at any point.
fn open_storage(
    settings: &StorageSettings,
    shards: usize,
    clock: Clock,
    home: impl Fn(&Queue) -> usize + Send + 'static,
    signals: &Signals,
) -> Result<Option<Storage>, BootError> {
    let (say, opened) = channel();
    let settings = settings.clone();
    let thread = thread::Builder::new().name("storage".to_owned()).spawn(move || {
        let _ = say.send(storage::open(&settings, shards as u16, clock.now(), &home));
    });
    let thread = thread.map_err(BootError::Thread)?;
    let opened = loop {
        match opened.recv_timeout(SIGNAL_PERIOD) {
            Ok(opened) => break opened.map_err(BootError::Storage)?,
            Err(RecvTimeoutError::Timeout) if signals.take_stop() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Ok(()) => unreachable!("the thread says how it ended"),
                Err(panic) => resume_unwind(panic),
            },
        }
    };
    Ok(Some(Storage {
        _directory: opened.directory,
        sync: opened.sync,
        decisions: opened.decisions,
        progress: Arc::new(Progress::new("restoring", opened.used_bytes)),
        shards: opened.shards.into_iter().map(Some).collect(),
    }))
}

impl Storage {
    /// What the shard writes with, and what it takes in.
    fn shard(
        &mut self,
        index: usize,
        bell: &Doorbell,
    ) -> Result<(Option<Disk>, Option<Restoring>), BootError> {
        let storage = self.shards[index].take().expect("each shard is started once");
        let disk = Disk::start(index, storage.files.clone(), self.sync, bell.clone());
        let disk = disk.map_err(|error| BootError::Start { shard: index, error })?;
        let (decisions, progress) = (Arc::clone(&self.decisions), Arc::clone(&self.progress));
        Ok((Some(disk), Some(Restoring { index, storage, decisions, progress })))
    }
}

fn make_shard(config: ShardConfig, restoring: Option<Restoring>, clock: Clock) -> io::Result<Shard> {
    let mut shard = Shard::new(config);
    let Some(Restoring { index, storage, decisions, progress }) = restoring else { return Ok(shard) };
    let is_new = storage.used.is_empty();
    let summary = storage::restore(&mut shard, storage, &decisions, &progress, || clock.now())
        .map_err(io::Error::other)?;
    if !is_new {
        info!(
            shard = index,
            queues = summary.queues,
            messages = summary.messages,
            bytes = summary.bytes,
            "has what it had before"
        );
    }
    if summary.committed + summary.rolled_back > 0 {
        info!(
            shard = index,
            committed = summary.committed,
            rolled_back = summary.rolled_back,
            "transactions were open, and have an end now"
        );
    }
    if summary.lost > 0 {
        warn!(
            shard = index,
            "{} messages were there and cannot be read, or their queue is not known", summary.lost
        );
    }
    Ok(shard)
}

/// Lets the process open as many files as it may. Returns how many that are.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

fn bind(listeners: &[Listener]) -> Result<Vec<Listening>, BootError> {
    let mut bound = Vec::new();
    for &Listener { address, optional } in listeners {
        match driver::listen(address, BACKLOG) {
            Ok(listening) => bound.push(listening),
            Err(error) if optional && is_absent(&error) => {
                info!(%address, "not listening: this host does not have the address");
            }
            Err(error) => return Err(BootError::Bind { address, error }),
        }
    }
    if bound.is_empty() { Err(BootError::NoListener) } else { Ok(bound) }
}

/// Whether the host has no such address (as opposed to somebody else having the port).
fn is_absent(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::PROTONOSUPPORT)
    )
}

fn idle(settings: &ServeSettings) -> Idle {
    match settings.idle {
        IdlePolicy::Park => Idle::Park,
        IdlePolicy::Adaptive => Idle::Adaptive { spin: Duration::from_micros(settings.spin_us) },
        IdlePolicy::Spin => Idle::Spin,
    }
}

/// A thread that does not end is left to the end of the process: nothing that must be kept depends on it.
fn end(threads: Vec<ShardThread>, stop: Stop) {
    match stop {
        Stop::Graceful => {
            for thread in threads {
                if let Err(error) = thread.join_within(END_MAX) {
                    warn!(%error, "a shard's thread did not end well");
                }
            }
            info!("stopped");
        }
        Stop::Forced => std::mem::forget(threads),
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::Unusable(error) => error.fmt(formatter),
            BootError::Cores(error) => error.fmt(formatter),
            BootError::Storage(error) => error.fmt(formatter),
            BootError::Settings(error) => error.fmt(formatter),
            BootError::Bind { address, error } => {
                write!(formatter, "cannot listen on {address}: {error}{}", bind_advice(error))
            }
            BootError::NoListener => {
                write!(formatter, "this host has none of the addresses to listen on; name one with --listen")
            }
            BootError::Start { shard, error } => {
                write!(formatter, "shard {shard} cannot be started: {error}")
            }
            BootError::Thread(error) => {
                write!(formatter, "no thread to read the data directory: {error}")
            }
            BootError::Doorbells(error) => {
                write!(formatter, "no descriptors for the shards' doorbells: {error}")
            }
        }
    }
}

impl std::error::Error for BootError {}

fn bind_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ". Another process has this port, perhaps another broker: stop it, or choose another port with --listen"
        }
        io::ErrorKind::AddrNotAvailable => ". This host does not have the address: see `ip address`",
        io::ErrorKind::PermissionDenied => {
            ". Ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose a higher one with --listen"
        }
        _ => "",
    }
}
