//! What becomes of a configuration file that is read again? Its destinations hold from now on; all else waits for the next start.
//!
//! Invariants: a file that cannot be used changes nothing, and the log says why; what differs and cannot be changed is named.
//! Left out: when it is read (`control`, on SIGHUP), how shards take it over (`Shard`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use corelane_shard::Destinations;

use crate::config::{Pin, ServeSettings};

/// How to read the settings once more: the same flags and variables over the file as it is then.
pub struct Reread {
    file: Option<PathBuf>,
    read: Box<dyn FnMut() -> anyhow::Result<ServeSettings>>,
}

/// The settings that the process was started with, and the way to new ones.
#[derive(Debug)]
pub struct Reload {
    reread: Reread,
    started: ServeSettings,
    shards: usize,
}

impl fmt::Debug for Reread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reread").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Reread {
    /// `file`: the configuration file, if there is one.
    pub fn new(
        file: Option<PathBuf>,
        read: impl FnMut() -> anyhow::Result<ServeSettings> + 'static,
    ) -> Reread {
        Reread { file, read: Box::new(read) }
    }
}

impl Reload {
    /// `started`: what the shards, so many, were started with.
    pub fn new(reread: Reread, started: ServeSettings, shards: usize) -> Reload {
        Reload { reread, started, shards }
    }

    /// Reads the file again. What destinations are like from now on, unless nothing can be changed.
    pub fn read(&mut self) -> Option<Arc<Destinations>> {
        let Some(file) = self.reread.file.clone() else {
            tracing::warn!("SIGHUP: there is no configuration file to be read again; start with --config");
            return None;
        };
        let read = (self.reread.read)().and_then(|settings| {
            settings.check_pins(self.shards)?;
            Ok(settings)
        });
        let settings = match read {
            Ok(settings) => settings,
            Err(error) => {
                tracing::error!("{error:#}; what was in force before stays");
                return None;
            }
        };
        for name in fixed_differences(&self.started, &settings) {
            tracing::warn!("{name} has changed in the configuration, and holds from the next start");
        }
        tracing::info!(file = %file.display(), "the configuration file was read again");
        Some(Arc::new(settings.destinations))
    }
}

/// Settings that differ and hold for the life of the process.
fn fixed_differences(started: &ServeSettings, read: &ServeSettings) -> Vec<String> {
    let differences = [
        ("listen", started.listeners != read.listeners),
        ("vhosts", started.vhosts != read.vhosts),
        (
            "definitions",
            started.definitions != read.definitions || started.defined_users != read.defined_users,
        ),
        ("shards", started.shards != read.shards),
        ("cores", started.cores != read.cores),
        ("idle", started.idle != read.idle),
        ("spin-us", started.spin_us != read.spin_us),
        ("data-dir, in-memory, sync or on-damage", started.storage != read.storage),
        ("users", started.access.users != read.access.users),
        ("allow-anonymous", started.access.allow_anonymous != read.access.allow_anonymous),
        ("max-frame-size", started.limits.frame_size_max != read.limits.frame_size_max),
        ("idle-timeout", started.limits.idle_timeout_us != read.limits.idle_timeout_us),
        ("transaction-timeout", started.limits.transaction_timeout_us != read.limits.transaction_timeout_us),
        ("max-message-size", started.limits.message_size_max != read.limits.message_size_max),
        ("memory", started.limits.memory != read.limits.memory),
        ("log", started.log != read.log),
    ];
    let named = differences.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned());
    named.chain(moved_pins(started, read)).collect()
}

/// The destinations that one of the two pins to another shard than the other does.
fn moved_pins(started: &ServeSettings, read: &ServeSettings) -> Vec<String> {
    let shards = |pins: &[Pin]| -> BTreeMap<String, u64> {
        pins.iter().map(|pin| (pin.pattern.clone(), pin.shard)).collect()
    };
    let (before, after) = (shards(&started.pins), shards(&read.pins));
    let patterns: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let moved = patterns.into_iter().filter(|pattern| before.get(*pattern) != after.get(*pattern));
    moved.map(|pattern| format!("the shard of destination {pattern:?}")).collect()
}
