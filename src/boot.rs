//! How does a broker come up, and how does it go?
//!
//! First everything that could stop it is looked at, and said in one sentence that tells what to do; then ports are bound,
//! shards are started, each on its core, and the calling thread becomes the control thread until a signal ends it.
//!
//! Invariants: nothing is started before the machine was found fit; no connection is accepted before every shard runs; a
//! warning is only given for what the operator can change.
//! Left out: what a shard's thread does (`driver`), what the control thread does (`control`).

mod cores;
mod kept;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use corelane_mailbox::Port;
use corelane_shard::Shard;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::authenticate::Authenticator;
use crate::backup::Door;
use crate::config::{IdlePolicy, Listener, ServeSettings, SettingsError};
use crate::control::{Control, Reload, Reread, Signals, Stop};
use crate::doorbell::Doorbell;
use crate::driver::{
    self, Clock, ControlPort, Driver, Idle, Letter, Listening, Participants, ShardThread, Starting, Unusable,
    participants,
};
use crate::storage::StorageError;
use cores::{CoresError, Plan};
use kept::Storage;

/// Connections that wait to be accepted, for each listener; more are turned away by the kernel, which also caps it at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Fewer descriptors than this are worth a warning: every connection needs one.
const FILES_WANTED: u64 = 10_000;

/// How long threads have to end once their connections are closed.
const END_MAX: Duration = Duration::from_secs(2);

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
    if let Some(warning) = settings.size_warning(plan.cores.len()) {
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
    let shards = plan.cores.len();
    let Some(storage) = Storage::open(settings, shards, clock, &signals)? else {
        return Ok(stopped_early(settings));
    };
    // The directory stays locked until the process ends, because its threads may use it until then.
    let storage = Box::leak(Box::new(storage));
    let participants = participants(shards).map_err(BootError::Doorbells)?;
    let Participants { ports, bells, control } = participants;
    let starting = start_shards(settings, &plan, clock, ports, &bells, listeners, storage)?;
    let Some(threads) = wait_for_shards(starting, &plan, &signals)? else {
        return Ok(stopped_early(settings));
    };
    for address in addresses {
        info!(%address, "listening");
    }
    let reload = Reload::new(reread, settings.clone(), plan.cores.len());
    let door = open_door(settings, &control);
    let stop = Control::new(control, clock, signals, authenticator, reload, door).run();
    end(threads, stop);
    Ok(stop)
}

/// Where backups can be asked for, if there is something of which one could be made.
fn open_door(settings: &ServeSettings, control: &ControlPort) -> Option<Door> {
    let directory = &settings.storage.as_ref()?.directory;
    match Door::open(directory, control.bell()) {
        Ok(door) => Some(door),
        Err(error) => {
            warn!(
                "no backups can be made while this broker runs, as there is no socket in {}: {error}",
                directory.display()
            );
            None
        }
    }
}

/// Starts a thread for each shard. All of them take in what they had before at the same time.
fn start_shards(
    settings: &ServeSettings,
    plan: &Plan,
    clock: Clock,
    ports: Vec<Port<Letter>>,
    bells: &Arc<[Doorbell]>,
    listeners: Vec<Listening>,
    storage: &mut Storage,
) -> Result<Vec<Starting>, BootError> {
    let boot = clock.now();
    let mut listeners = Some(listeners);
    let mut starting = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let failed = |error| BootError::Start { shard: index, error };
        let (disk, restoring) = storage.shard(index, &bells[index]).map_err(failed)?;
        let driver = Driver {
            index,
            placement: plan.placement(index),
            idle: idle(settings),
            clock,
            port,
            bells: Arc::clone(bells),
            // The first shard accepts for all.
            listeners: listeners.take().unwrap_or_default(),
            disk,
        };
        let config = settings.shard_config(index, plan.cores.len(), boot);
        let started = driver.start(move || {
            let mut shard = Shard::new(config);
            restoring.map_or(Ok(()), |restoring| restoring.restore(&mut shard, clock))?;
            Ok(shard)
        });
        starting.push(started.map_err(failed)?);
    }
    Ok(starting)
}

/// Waits until all of them have what they had before. `None`: a signal came first.
fn wait_for_shards(
    starting: Vec<Starting>,
    plan: &Plan,
    signals: &Signals,
) -> Result<Option<Vec<ShardThread>>, BootError> {
    let mut threads = Vec::new();
    for starting in starting {
        let shard = starting.index();
        let started = starting.wait_unless(|| signals.take_stop());
        let Some(thread) = started.map_err(|error| BootError::Start { shard, error })? else {
            std::mem::forget(threads);
            return Ok(None);
        };
        info!(shard, core = plan.cores[shard], "started");
        threads.push(thread);
    }
    Ok(Some(threads))
}

/// A signal came while there was nobody yet who had to be told.
fn stopped_early(settings: &ServeSettings) -> Stop {
    match &settings.storage {
        None => info!("stopped before all shards had started"),
        Some(storage) => info!(
            "stopped before everything was read: nothing that is kept in {} is lost by that, and the next start reads it again",
            storage.directory.display()
        ),
    }
    Stop::Graceful
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
