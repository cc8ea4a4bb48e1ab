//! What is this process told to do? The settings of `corelane serve`, merged and checked.
//!
//! Invariants: every value here is in its range and has its unit in its name; precedence is flag, then environment,
//! then file, then default; nothing below this module reads a flag, a variable or the configuration file.
//! Left out: reading the users file (`users`), binding sockets and pinning cores (`boot`).

mod layer;
pub mod setting;
mod shards;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use corelane_journal::BLOCK;
use corelane_shard::{Definitions, Destinations, is_vhost_name};
use serde::Deserialize;

use crate::definitions::{DefinedUser, DefinitionsFile};
use crate::storage::StorageSettings;

pub use layer::{FileError, Layer, parse_address, parse_cores, parse_log};
pub use tables::{Pin, Tables};

/// The port registered for AMQP.
pub const AMQP_PORT: u16 = 5672;

/// Where durable messages are kept if nothing is said: below the working directory.
pub const DATA_DIR: &str = "corelane-data";

/// The settings of a broker process.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSettings {
    /// Where to listen; never empty.
    pub listeners: Vec<Listener>,
    /// Shards to run; `None`: one per usable core.
    pub shards: Option<usize>,
    /// Cores to pin shards to, in this order and repeated when shards outnumber them; `None`: the usable ones.
    pub cores: Option<Vec<usize>>,
    pub idle: IdlePolicy,
    /// How long a shard polls before it sleeps, under `adaptive`.
    pub spin_us: u64,
    /// Where messages are kept; `None`: in memory alone.
    pub storage: Option<StorageSettings>,
    pub access: AccessSettings,
    pub limits: ProtocolSettings,
    pub destinations: Destinations,
    /// What is declared at the start; none: nothing.
    pub definitions: Option<Arc<Definitions>>,
    /// Who is defined.
    pub defined_users: BTreeMap<String, DefinedUser>,
    /// What of the definitions is left out.
    pub definitions_warnings: Vec<String>,
    /// Virtual hosts besides the default one, in order.
    pub vhosts: Vec<Box<str>>,
    /// The rules among them that name a shard, where they stand.
    pub pins: Vec<Pin>,
    pub log: LogSettings,
}

/// One address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
    /// A default that this host may lack (IPv6): when it cannot be bound for that reason, say so and go on.
    pub optional: bool,
}

/// What a shard does when it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum IdlePolicy {
    /// Sleep at once.
    Park,
    /// Poll for the time of `--spin-us`, then sleep.
    Adaptive,
    /// Never sleep.
    Spin,
}

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// The file of SCRAM verifiers; `None`: loopback alone may use ANONYMOUS, no SASL, and PLAIN guest/guest.
    pub users: Option<PathBuf>,
    /// ANONYMOUS and no SASL are accepted from everywhere.
    pub allow_anonymous: bool,
}

/// What connections are told and held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// Bytes, 512 or more.
    pub frame_size_max: u32,
    /// The silence after which a connection is closed; half of it is announced. `None`: never.
    pub idle_timeout_us: Option<u64>,
    /// How long a transaction may hold messages before it is rolled back. `None`: for ever.
    pub transaction_timeout_us: Option<u64>,
    /// Bytes of one message.
    pub message_size_max: u64,
    /// Bytes of all messages in all queues.
    pub memory: u64,
}

/// How and how much is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level, or a filter of levels by target.
    pub filter: String,
    /// One JSON object a line.
    pub json: bool,
}

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// Anyone on the network could use the broker, and nobody said that this is meant.
    OpenToTheNetwork(SocketAddr),
    /// The same address is listed twice.
    ListenTwice(SocketAddr),
    /// Messages were asked to be kept on disk, and to be kept in memory alone.
    OnDiskAndInMemory,
    /// The file of definitions cannot be taken.
    Definitions(String),
    /// Its name is empty, too long, or has control characters.
    VhostName(String),
    /// Queues are pinned to a shard that there is not.
    PinnedBeyond { pin: Pin, shards: usize },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::OpenToTheNetwork(address) => write!(
                formatter,
                "refusing to listen on {address}: it is not a loopback address, and there is nobody to ask for a \
                 password. Make a users file with `corelane user add NAME --users FILE` and start with `--users FILE`, \
                 or say `--allow-anonymous` to let everyone in"
            ),
            SettingsError::OnDiskAndInMemory => {
                write!(formatter, "`data-dir` and `in-memory` cannot both be given: leave one of them out")
            }
            SettingsError::PinnedBeyond { pin: Pin { pattern, shard, file, line }, shards } => write!(
                formatter,
                "the configuration file {} is not valid: line {line}: destination {pattern:?}: shard {shard} is out of \
                 range, the broker has {}; allowed: 0 to {}",
                file.display(),
                if *shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") },
                shards - 1
            ),
            SettingsError::Definitions(error) => formatter.write_str(error),
            SettingsError::VhostName(name) => write!(
                formatter,
                "{name:?} cannot be a virtual host: a name has 1 to 255 bytes and no control characters"
            ),
            SettingsError::ListenTwice(address) => {
                write!(formatter, "{address} is listed twice under `listen`")
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl ServeSettings {
    /// The settings, from everything that was given.
    pub fn new(given: Layer) -> Result<ServeSettings, SettingsError> {
        let storage = match (given.in_memory, given.data_dir) {
            (Some(true), Some(_)) => return Err(SettingsError::OnDiskAndInMemory),
            (Some(true), None) => None,
            (Some(false) | None, directory) => Some(StorageSettings {
                directory: directory.unwrap_or_else(|| PathBuf::from(DATA_DIR)),
                // Whole blocks, and small enough for the type.
                segment_bytes: given.segment_size.map(|size| (size as u32).next_multiple_of(BLOCK as u32)),
                disk_free_min: given.disk_free_min.unwrap_or(256 << 20),
                sync: given.sync.unwrap_or_default(),
                on_damage: given.on_damage.unwrap_or_default(),
            }),
        };
        let listeners = match given.listen {
            Some(addresses) => {
                addresses.into_iter().map(|address| Listener { address, optional: false }).collect()
            }
            None => default_listeners(),
        };
        let defined = given.definitions.as_deref().map(DefinitionsFile::read).transpose();
        let defined = defined.map_err(|error| SettingsError::Definitions(error.to_string()))?;
        let has_definitions = defined.is_some();
        let DefinitionsFile { vhosts, users, policies, shards, warnings } = defined.unwrap_or_default();
        let vhosts: BTreeSet<String> = vhosts.into_iter().chain(given.vhosts.into_keys()).collect();
        let destinations = Destinations::new(given.destinations.rules, given.auto_create.unwrap_or(true));
        let settings = ServeSettings {
            listeners,
            shards: given.shards,
            cores: given.cores,
            idle: given.idle.unwrap_or(IdlePolicy::Adaptive),
            spin_us: given.spin_us.unwrap_or(20),
            storage,
            access: AccessSettings {
                users: given.users,
                allow_anonymous: given.allow_anonymous.unwrap_or(false),
            },
            limits: ProtocolSettings {
                frame_size_max: given.max_frame_size.unwrap_or(64 << 10),
                idle_timeout_us: Some(given.idle_timeout.unwrap_or(60_000_000)).filter(|us| *us != 0),
                transaction_timeout_us: Some(given.transaction_timeout.unwrap_or(300_000_000))
                    .filter(|us| *us != 0),
                message_size_max: given.max_message_size.unwrap_or(128 << 20),
                memory: given.memory.unwrap_or_else(half_of_the_machine),
            },
            definitions: has_definitions.then(|| Arc::new(shards)),
            defined_users: users,
            definitions_warnings: warnings,
            vhosts: vhosts.into_iter().filter(|name| name != "/").map(Into::into).collect(),
            pins: given.destinations.pins,
            destinations: destinations.with_policies(policies),
            log: given.log.unwrap_or_default(),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Whether the shards that queues are pinned to are there, when so many are.
    pub fn check_pins(&self, shards: usize) -> Result<(), SettingsError> {
        match self.pins.iter().find(|pin| pin.shard >= shards as u64) {
            Some(pin) => Err(SettingsError::PinnedBeyond { pin: pin.clone(), shards }),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), SettingsError> {
        if let Some(name) = self.vhosts.iter().find(|name| !is_vhost_name(name)) {
            return Err(SettingsError::VhostName(name.to_string()));
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            let address = listener.address;
            let twice = self.listeners[..index].iter().any(|earlier| earlier.address == address);
            if twice && address.port() != 0 {
                return Err(SettingsError::ListenTwice(address));
            }
            let open =
                self.access.users.is_none() && self.defined_users.is_empty() && !self.access.allow_anonymous;
            if open && !address.ip().to_canonical().is_loopback() {
                return Err(SettingsError::OpenToTheNetwork(address));
            }
        }
        Ok(())
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { filter: "info".to_owned(), json: false }
    }
}

/// Bytes; what is left is for connections, the kernel and everyone else.
fn half_of_the_machine() -> u64 {
    rustix::system::sysinfo().totalram / 2
}

fn default_listeners() -> Vec<Listener> {
    vec![
        Listener { address: SocketAddr::from((Ipv4Addr::LOCALHOST, AMQP_PORT)), optional: false },
        Listener { address: SocketAddr::from((Ipv6Addr::LOCALHOST, AMQP_PORT)), optional: true },
    ]
}

#[cfg(test)]
#[path = "config/config_tests.rs"]
mod tests;
