//! What was given, and where? One layer of settings: the flags with the environment, or the file.
//!
//! Invariants: an absent setting is `None`, so that the layer below shows through; every value that is present is in
//! range. `flag > environment > file > default` is `flags.over(file)` and then the defaults; clap puts the environment
//! under the flags. Left out: what a default is (`config`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use corelane_shard::contradictions::{self, Contradiction};
use serde::{Deserialize, Deserializer, de};

use super::setting::{self, Setting};
use super::tables::Tables;
use super::{IdlePolicy, LogSettings};
use crate::regular_file::read_text;
use crate::storage::{OnDamage, SyncChoice};

/// Bytes of a configuration file. A larger one is not read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Settings that were given in one place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Layer {
    #[serde(deserialize_with = "listen")]
    pub listen: Option<Vec<SocketAddr>>,
    #[serde(deserialize_with = "shards")]
    pub shards: Option<usize>,
    #[serde(deserialize_with = "cores")]
    pub cores: Option<Vec<usize>>,
    pub idle: Option<IdlePolicy>,
    #[serde(alias = "spin_us", deserialize_with = "spin_us")]
    pub spin_us: Option<u64>,
    #[serde(alias = "in_memory")]
    pub in_memory: Option<bool>,
    #[serde(alias = "data_dir")]
    pub data_dir: Option<PathBuf>,
    pub sync: Option<SyncChoice>,
    #[serde(alias = "on_damage")]
    pub on_damage: Option<OnDamage>,
    #[serde(alias = "segment_size", deserialize_with = "segment_size")]
    pub segment_size: Option<u64>,
    #[serde(alias = "disk_free_min", deserialize_with = "disk_free_min")]
    pub disk_free_min: Option<u64>,
    pub users: Option<PathBuf>,
    pub definitions: Option<PathBuf>,
    #[serde(alias = "allow_anonymous")]
    pub allow_anonymous: Option<bool>,
    #[serde(alias = "auto_create")]
    pub auto_create: Option<bool>,
    #[serde(alias = "max_frame_size", deserialize_with = "max_frame_size")]
    pub max_frame_size: Option<u32>,
    #[serde(alias = "idle_timeout", deserialize_with = "idle_timeout")]
    pub idle_timeout: Option<u64>,
    #[serde(alias = "transaction_timeout", deserialize_with = "transaction_timeout")]
    pub transaction_timeout: Option<u64>,
    #[serde(alias = "max_message_size", deserialize_with = "max_message_size")]
    pub max_message_size: Option<u64>,
    #[serde(deserialize_with = "memory")]
    pub memory: Option<u64>,
    #[serde(deserialize_with = "log")]
    pub log: Option<LogSettings>,
    pub destinations: Tables,
    /// Virtual hosts besides the default one.
    pub vhosts: BTreeMap<String, VhostTable>,
}

/// What is said of a virtual host: that it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VhostTable {}

/// Why a configuration file is not usable. The message is complete: file, place, reason, what is allowed.
#[derive(Debug)]
pub enum FileError {
    Unreadable {
        file: PathBuf,
        error: std::io::Error,
    },
    Invalid {
        file: PathBuf,
        error: toml::de::Error,
    },
    /// Destinations whose properties do not go together. Lines count from 1.
    Contradiction {
        file: PathBuf,
        line: usize,
        error: Contradiction,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Unreadable { file, error } => {
                write!(formatter, "the configuration file {} cannot be read: {error}", file.display())
            }
            FileError::Invalid { file, error } => {
                let text = one_spelling(&error.to_string());
                write!(
                    formatter,
                    "the configuration file {} is not valid: {}",
                    file.display(),
                    text.trim_end()
                )
            }
            FileError::Contradiction { file, line, error } => {
                write!(
                    formatter,
                    "the configuration file {} is not valid: line {line}: {error}",
                    file.display()
                )
            }
        }
    }
}

impl std::error::Error for FileError {}

/// Leaves out of a list of allowed keys those that are others of the list with `_` instead of `-`.
fn one_spelling(text: &str) -> String {
    let Some((before, listed)) = text.split_once("expected one of ") else { return text.to_owned() };
    let (keys, after) = listed.split_once('\n').map_or((listed, ""), |(keys, after)| (keys, after));
    let all: Vec<&str> = keys.split(", ").collect();
    let twin = |key: &&str| key.contains('_') && all.contains(&key.replace('_', "-").as_str());
    let kept: Vec<&str> = all.iter().copied().filter(|key| !twin(key)).collect();
    let end = if after.is_empty() && !listed.ends_with('\n') { "" } else { "\n" };
    format!("{before}expected one of {}{end}{after}", kept.join(", "))
}

impl Layer {
    /// The layer that a file holds. Relative paths in it are relative to the file.
    pub fn from_file(file: &Path) -> Result<Layer, FileError> {
        let text = read_text(file, FILE_BYTES_MAX)
            .map_err(|error| FileError::Unreadable { file: file.to_owned(), error })?;
        let mut layer = Layer::from_text(file, &text)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        layer.users = layer.users.map(|users| folder.join(users));
        layer.definitions = layer.definitions.map(|definitions| folder.join(definitions));
        layer.data_dir = layer.data_dir.map(|directory| folder.join(directory));
        Ok(layer)
    }

    /// The layer of a text that stands in this file.
    pub fn from_text(file: &Path, text: &str) -> Result<Layer, FileError> {
        let mut layer: Layer =
            toml::from_str(text).map_err(|error| FileError::Invalid { file: file.to_owned(), error })?;
        contradictions::check(&layer.destinations.rules).map_err(|error| {
            let line = layer.destinations.line(text, &error.pattern);
            FileError::Contradiction { file: file.to_owned(), line, error }
        })?;
        layer.destinations.note_pins(file, text);
        Ok(layer)
    }

    /// What is given here, and where nothing is, what is given below.
    pub fn over(self, mut below: Layer) -> Layer {
        // Where messages are kept is one question.
        if self.in_memory == Some(true) {
            below.data_dir = None;
        }
        if self.data_dir.is_some() {
            below.in_memory = None;
        }
        Layer {
            listen: self.listen.or(below.listen),
            shards: self.shards.or(below.shards),
            cores: self.cores.or(below.cores),
            idle: self.idle.or(below.idle),
            spin_us: self.spin_us.or(below.spin_us),
            in_memory: self.in_memory.or(below.in_memory),
            data_dir: self.data_dir.or(below.data_dir),
            sync: self.sync.or(below.sync),
            on_damage: self.on_damage.or(below.on_damage),
            segment_size: self.segment_size.or(below.segment_size),
            disk_free_min: self.disk_free_min.or(below.disk_free_min),
            users: self.users.or(below.users),
            definitions: self.definitions.or(below.definitions),
            allow_anonymous: self.allow_anonymous.or(below.allow_anonymous),
            auto_create: self.auto_create.or(below.auto_create),
            max_frame_size: self.max_frame_size.or(below.max_frame_size),
            idle_timeout: self.idle_timeout.or(below.idle_timeout),
            transaction_timeout: self.transaction_timeout.or(below.transaction_timeout),
            max_message_size: self.max_message_size.or(below.max_message_size),
            memory: self.memory.or(below.memory),
            log: self.log.or(below.log),
            vhosts: if self.vhosts.is_empty() { below.vhosts } else { self.vhosts },
            destinations: if self.destinations.rules.is_empty() {
                below.destinations
            } else {
                self.destinations
            },
        }
    }
}

/// One address of a `listen` setting.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is not an address; write ADDR:PORT, as in 127.0.0.1:5672, 0.0.0.0:5672 or [::1]:5672"
        )
    })
}

/// A list of cores such as `0-3,6`, in the order given.
pub fn parse_cores(text: &str) -> Result<Vec<usize>, String> {
    const CORE_MAX: usize = 4095;
    let wrong = |part: &str| {
        format!("{part:?} is not a core; write numbers and ranges up to {CORE_MAX}, as in 0-3,6")
    };
    let mut cores = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong(part))?;
        let last: usize = last.trim().parse().map_err(|_| wrong(part))?;
        if first > last || last > CORE_MAX {
            return Err(wrong(part));
        }
        for core in first..=last {
            if cores.contains(&core) {
                return Err(format!("core {core} is listed twice"));
            }
            cores.push(core);
        }
    }
    Ok(cores)
}

/// `LEVEL`, `json`, `TARGET=LEVEL`, or several of them with commas between.
pub fn parse_log(text: &str) -> Result<LogSettings, String> {
    let mut json = false;
    let mut directives = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let level = part.rsplit('=').next().unwrap_or(part);
        match level {
            "json" if level == part => json = true,
            "off" | "error" | "warn" | "info" | "debug" | "trace" => directives.push(part),
            _ => {
                return Err(format!(
                    "{part:?} is neither a level nor a format; allowed: off, error, warn, info, debug, trace, \
                     TARGET=LEVEL, json"
                ));
            }
        }
    }
    if directives.is_empty() {
        directives.push("info");
    }
    Ok(LogSettings { filter: directives.join(","), json })
}

fn narrow<T: TryFrom<u64>, E: de::Error>(setting: &Setting, value: u64) -> Result<Option<T>, E> {
    T::try_from(value)
        .map(Some)
        .map_err(|_| E::custom(format!("{value} is out of range; allowed: {setting}")))
}

fn shards<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    narrow(&setting::SHARDS, setting::SHARDS.read(deserializer)?)
}

fn spin_us<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::SPIN_US.read(deserializer).map(Some)
}

fn max_frame_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    narrow(&setting::FRAME_SIZE, setting::FRAME_SIZE.read(deserializer)?)
}

fn idle_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::IDLE_TIMEOUT.read(deserializer).map(Some)
}

fn transaction_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::TRANSACTION_TIMEOUT.read(deserializer).map(Some)
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::MEMORY.read(deserializer).map(Some)
}

fn segment_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::SEGMENT_SIZE.read(deserializer).map(Some)
}

fn disk_free_min<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::DISK_FREE_MIN.read(deserializer).map(Some)
}

fn max_message_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    setting::MESSAGE_SIZE.read(deserializer).map(Some)
}

/// One address, or a list of them.
fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<SocketAddr>>, D::Error> {
    struct Addresses;
    impl<'de> de::Visitor<'de> for Addresses {
        type Value = Vec<SocketAddr>;
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an address such as \"127.0.0.1:5672\", or a list of them")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            parse_address(text).map(|address| vec![address]).map_err(E::custom)
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut addresses = Vec::new();
            while let Some(text) = items.next_element::<String>()? {
                addresses.push(parse_address(&text).map_err(de::Error::custom)?);
            }
            if addresses.is_empty() {
                return Err(de::Error::custom("the list is empty; leave it out for the default addresses"));
            }
            Ok(addresses)
        }
    }
    deserializer.deserialize_any(Addresses).map(Some)
}

/// A text such as `"0-3,6"`, or a list of numbers.
fn cores<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<usize>>, D::Error> {
    struct Cores;
    impl<'de> de::Visitor<'de> for Cores {
        type Value = Vec<usize>;
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("cores such as \"0-3,6\" or [0, 1, 2, 3, 6]")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            parse_cores(text).map_err(E::custom)
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut texts = Vec::new();
            while let Some(core) = items.next_element::<u64>()? {
                texts.push(core.to_string());
            }
            parse_cores(&texts.join(",")).map_err(de::Error::custom)
        }
    }
    deserializer.deserialize_any(Cores).map(Some)
}

fn log<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LogSettings>, D::Error> {
    parse_log(&String::deserialize(deserializer)?).map(Some).map_err(de::Error::custom)
}
