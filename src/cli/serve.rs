//! `corelane serve`: the flags and variables as a layer of settings, and the start of the broker.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::builder::BoolishValueParser;

use super::{DONE, FAILED};
use crate::authenticate::{Authenticator, UsersSource};
use crate::boot;
use crate::config::setting::{self, Setting};
use crate::config::{
    IdlePolicy, Layer, Listener, LogSettings, ServeSettings, Tables, parse_address, parse_cores, parse_log,
};
use crate::control::{Reread, Signals, Stop};
use crate::storage::{OnDamage, SyncChoice};
use crate::users::fill_random;

/// Run a broker.
///
/// A setting is taken from its flag, else from its environment variable, else from the configuration file, else it has
/// its default.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = MORE)]
pub(super) struct ServeArguments {
    /// Where to listen; may be given several times [default: 127.0.0.1:5672 and [::1]:5672]
    #[arg(long, value_name = "ADDR:PORT", env = "CORELANE_LISTEN", value_delimiter = ',', value_parser = parse_address)]
    listen: Option<Vec<SocketAddr>>,

    /// How many shards to run [default: one for each usable core]
    #[arg(long, value_name = "N", env = "CORELANE_SHARDS", value_parser = count(setting::SHARDS))]
    shards: Option<u64>,

    /// Which cores the shards are pinned to, such as 0-3,6 [default: all usable ones]
    #[arg(long, value_name = "LIST", env = "CORELANE_CORES", value_parser = cores)]
    cores: Option<Cores>,

    /// What a shard does when it has nothing to do: sleep, poll for a while and then sleep, or poll for ever [default:
    /// adaptive]
    #[arg(long, value_name = "POLICY", env = "CORELANE_IDLE", value_enum)]
    idle: Option<IdlePolicy>,

    /// How many microseconds `--idle adaptive` polls before it sleeps [default: 20]
    #[arg(long, value_name = "US", env = "CORELANE_SPIN_US", value_parser = count(setting::SPIN_US))]
    spin_us: Option<u64>,

    /// Where durable messages are kept; made if there is no such directory [default: corelane-data, below the working directory]
    ///
    /// One broker at a time uses it, and only that user's. It can be used with another number of shards, too: the next start with
    /// another one writes everything anew.
    #[arg(long, value_name = "DIR", env = "CORELANE_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// How what is written becomes durable: the quickest way, as a few writes at the start tell; writes that are complete when they
    /// are durable; an fdatasync after each; or both on a thread beside the shard [default: auto]
    #[arg(long, value_name = "HOW", env = "CORELANE_SYNC", value_enum)]
    sync: Option<SyncChoice>,

    /// What to do when something in the data directory cannot be read: not start, or start with what can be [default: skip]
    #[arg(long, value_name = "WHAT", env = "CORELANE_ON_DAMAGE", value_enum)]
    on_damage: Option<OnDamage>,

    /// Bytes of a file of the journal [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "CORELANE_SEGMENT_SIZE", hide = true,
          value_parser = count(setting::SEGMENT_SIZE))]
    segment_size: Option<u64>,

    /// Room on the disk that is left to others: with less, durable messages are refused, and taken again when there is room
    /// [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "CORELANE_DISK_FREE_MIN", value_parser = count(setting::DISK_FREE_MIN))]
    disk_free_min: Option<u64>,

    /// Keep nothing on disk: when the broker ends, all messages and subscriptions are gone
    #[arg(long, env = "CORELANE_IN_MEMORY", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "BOOL", hide_possible_values = true, value_parser = BoolishValueParser::new())]
    in_memory: Option<bool>,

    /// A TOML file with any of these settings, and the properties of destinations
    #[arg(long, value_name = "FILE", env = "CORELANE_CONFIG")]
    config: Option<PathBuf>,

    /// Definitions as RabbitMQ exports them, in JSON: what is not there yet is declared at the start
    ///
    /// Virtual hosts, users with RabbitMQ's hashes of their passwords (who log in with PLAIN or AMQPLAIN), permissions, exchanges,
    /// queues, bindings, and policies for queues. What is there and differs stays and is warned about; nothing is deleted.
    #[arg(long, value_name = "FILE", env = "CORELANE_DEFINITIONS")]
    definitions: Option<PathBuf>,

    /// The users that may connect; see `corelane user`
    #[arg(long, value_name = "FILE", env = "CORELANE_USERS")]
    users: Option<PathBuf>,

    /// Let everyone in who can reach an address that is listened on
    #[arg(long, env = "CORELANE_ALLOW_ANONYMOUS", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL", hide_possible_values = true,
          value_parser = BoolishValueParser::new())]
    allow_anonymous: Option<bool>,

    /// Do not make queues on first use
    #[arg(long, env = "CORELANE_NO_AUTO_CREATE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL", hide_possible_values = true,
          value_parser = BoolishValueParser::new())]
    no_auto_create: Option<bool>,

    /// The largest frame that is accepted [default: 64KiB]
    #[arg(long, value_name = "SIZE", env = "CORELANE_MAX_FRAME_SIZE", value_parser = count(setting::FRAME_SIZE))]
    max_frame_size: Option<u64>,

    /// The largest message that is accepted [default: 128MiB]
    ///
    /// A message is in one shard. Where one's share of `--memory` is not an eighth larger than this, less holds: a warning at the start
    /// says how much, and so does what producers are told.
    #[arg(long, value_name = "SIZE", env = "CORELANE_MAX_MESSAGE_SIZE", value_parser = count(setting::MESSAGE_SIZE))]
    max_message_size: Option<u64>,

    /// Memory for messages, shared among the shards; when it is used up, messages are refused [default: half of the machine's]
    ///
    /// With a data directory, messages beyond half of it are in the journal only, durable or not, and are read again as consumers come to
    /// them (a quarter of it is for these, and may go beyond it). Such a message takes 64 bytes. With `--in-memory` all are in memory.
    ///
    /// Messages of which parts are still to come have a quarter of it besides, or as much as one of `--max-message-size` takes on each
    /// shard, if that is more. It does not count the queues themselves. Each takes about 10 KiB while there is a message in it, and a shard has at most
    /// 1,048,576: who may make queues by name (auto-create) can take about 10 GiB a shard. `--no-auto-create`, or `auto-create` of
    /// destinations, says who may; `auto-delete` and `idle-expiry` delete those that nobody uses.
    #[arg(long, value_name = "SIZE", env = "CORELANE_MEMORY", value_parser = count(setting::MEMORY))]
    memory: Option<u64>,

    /// How long a connection may be silent, or `never` for any time [default: 60s]
    #[arg(long, value_name = "DURATION", env = "CORELANE_IDLE_TIMEOUT", value_parser = count(setting::IDLE_TIMEOUT))]
    idle_timeout: Option<u64>,

    /// How long a transaction may hold messages before it is rolled back, or `never` for any time [default: 5m]
    ///
    /// It counts from the first message or outcome in it. What the client does in it afterwards, and its commit, fail with
    /// amqp:transaction:timeout.
    #[arg(long, value_name = "DURATION", env = "CORELANE_TRANSACTION_TIMEOUT",
          value_parser = count(setting::TRANSACTION_TIMEOUT))]
    transaction_timeout: Option<u64>,

    /// How much to log: off, error, warn, info, debug or trace; `json` for one object a line; both with a comma
    /// [default: info]
    #[arg(long, value_name = "LEVEL|json", env = "CORELANE_LOG", value_parser = parse_log)]
    log: Option<LogSettings>,
}

/// Shown by `-h` and `--help`.
macro_rules! examples {
    () => {
        "\
Examples:
  corelane serve
      For this machine alone: clients need no password (anonymous, or guest/guest).
      Durable messages are kept in ./corelane-data, and are there after a restart.
  corelane serve --in-memory
      The same, and nothing is kept.
  corelane user add alice --users /etc/corelane/users
  corelane serve --listen 0.0.0.0:5672 --users /etc/corelane/users --data-dir /var/lib/corelane
      For the network: clients log in as one of the users.
  corelane serve --shards 2 --cores 2,3 --idle spin
      Two shards that never sleep, on cores that are theirs.
  corelane serve --config /etc/corelane/broker.toml
"
    };
}

const EXAMPLES: &str = concat!(examples!(), "\nSee --help for the configuration file.");

const MORE: &str = concat!(
    examples!(),
    "
Configuration file:
  Every flag is a key of the same name, save `--no-auto-create`, which is
  `auto-create = false`. A destination's properties stand in a table under its
  name, or under a wildcard: `*` is one word, a last `>` all that follow.

    listen = [\"0.0.0.0:5672\", \"[::]:5672\"]
    users = \"users\"         # beside this file
    data-dir = \"data\"       # beside this file, too
    max-message-size = \"4MiB\"
    idle-timeout = \"2m\"

    [destinations.\"orders.>\"]
    prefetch = 10           # a consumer's unsettled messages
    expiration = \"1h30m\"    # instead of the sender's; \"never\": none

    [destinations.\"orders.audit\"]
    exclusive = true        # one active consumer, the others stand by

    [vhosts.blue]           # a virtual host beside \"/\"; read at the start alone

  `corelane help destinations` explains all of these properties.

Signals:
  SIGTERM and SIGINT close all connections and end the broker with exit code 0;
  a second one ends it at once, with 1. SIGHUP reads the configuration file again
  and changes destinations; a file with a mistake changes nothing. One that comes
  while the broker starts is taken as soon as it runs."
);

/// A list of cores, as one value.
#[derive(Clone, Debug)]
struct Cores(Vec<usize>);

fn cores(text: &str) -> Result<Cores, String> {
    parse_cores(text).map(Cores)
}

/// A parser of a numeric setting.
fn count(setting: Setting) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| setting.parse(text)
}

impl ServeArguments {
    /// What was given by flags and variables.
    fn layer(self) -> Layer {
        // Settings were checked against ranges that fit.
        Layer {
            listen: self.listen,
            shards: self.shards.map(|shards| shards as usize),
            cores: self.cores.map(|cores| cores.0),
            idle: self.idle,
            spin_us: self.spin_us,
            in_memory: self.in_memory,
            data_dir: self.data_dir,
            sync: self.sync,
            on_damage: self.on_damage,
            segment_size: self.segment_size,
            disk_free_min: self.disk_free_min,
            users: self.users,
            definitions: self.definitions,
            allow_anonymous: self.allow_anonymous,
            auto_create: self.no_auto_create.map(|no| !no),
            max_frame_size: self.max_frame_size.map(|size| size as u32),
            idle_timeout: self.idle_timeout,
            transaction_timeout: self.transaction_timeout,
            max_message_size: self.max_message_size,
            memory: self.memory,
            log: self.log,
            destinations: Tables::default(),
            vhosts: BTreeMap::new(),
        }
    }

    /// The settings: flags and variables over the file over the defaults.
    fn settings(self) -> anyhow::Result<ServeSettings> {
        let file = match &self.config {
            Some(file) => Layer::from_file(file)?,
            None => Layer::default(),
        };
        Ok(ServeSettings::new(self.layer().over(file))?)
    }
}

/// Runs a broker until a signal ends it.
pub(super) fn run(arguments: ServeArguments, signals: io::Result<Signals>) -> anyhow::Result<u8> {
    let signals = signals.context("signals cannot be listened for")?;
    let settings = arguments.clone().settings()?;
    start_log(&settings.log)?;
    for warning in &settings.definitions_warnings {
        tracing::warn!("definitions: {warning}");
    }
    let authenticator = authenticator(&settings)?;
    let reread = Reread::new(arguments.config.clone(), move || arguments.clone().settings());
    match boot::serve(&settings, signals, authenticator, reread)? {
        Stop::Graceful => Ok(DONE),
        Stop::Forced => Ok(FAILED),
    }
}

fn authenticator(settings: &ServeSettings) -> anyhow::Result<Authenticator> {
    let source = settings.access.users.as_deref().map(UsersSource::open).transpose()?;
    if let Some(file) = &settings.access.users {
        warn_about_users(settings, file);
    }
    let mut secret = [0; 32];
    fill_random(&mut secret).context("the kernel gives no random bytes")?;
    Ok(Authenticator::new(settings.access.allow_anonymous, source, settings.defined_users.clone(), secret))
}

/// What is allowed, but gives passwords away.
fn warn_about_users(settings: &ServeSettings, file: &Path) {
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        let file = file.display();
        tracing::warn!("others on this machine can read {file} and guess at passwords: `chmod 600 {file}`");
    }
    let is_loopback = |listener: &Listener| listener.address.ip().to_canonical().is_loopback();
    if !settings.listeners.iter().all(is_loopback) {
        tracing::warn!(
            "clients that log in with PLAIN send their passwords over the network unencrypted; those that can use \
             SCRAM-SHA-256 do not"
        );
    }
}

fn start_log(settings: &LogSettings) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.filter)
        .with_context(|| format!("{:?} is not a filter for the log", settings.filter))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    if settings.json {
        log.json().init()
    } else {
        log.init()
    }
    Ok(())
}
