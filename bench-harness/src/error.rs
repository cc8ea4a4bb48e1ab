//! Why could nothing be measured? Each message says what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a measurement did not come about.
#[derive(Debug)]
pub enum BenchError {
    /// No connection.
    Unreachable { url: String, error: io::Error },
    /// The connection broke.
    Broken { peer: String, error: io::Error },
    /// The peer closed the connection.
    Closed { peer: String, reason: Option<String> },
    /// Nobody answered in time.
    NoAnswer { peer: String, awaited: &'static str },
    /// The broker does not let us in.
    LoginRefused { peer: String, with_password: bool },
    /// The broker does not let us use the queue.
    QueueRefused { queue: String, reason: String },
    /// The broker takes no messages of this size.
    MessageTooLarge { size: usize, size_max: Option<u64> },
    /// The program that is to be measured is not there.
    NoProgram { path: PathBuf },
    /// The program that is to be measured did not come up.
    NotStarted { what: &'static str, path: PathBuf, output: String },
    /// The program that was measured has ended.
    Ended { what: &'static str, output: String },
    /// It was asked to stop and went on.
    NotStopped { what: &'static str, within: Duration },
    /// The disk has too little room for what is to be kept.
    NoRoom { path: PathBuf, free: u64, wanted: u64 },
    /// No port is free, or no temporary file can be made.
    System { doing: &'static str, error: io::Error },
    /// The disk that is to be measured does not do what it is asked.
    Disk { path: PathBuf, error: io::Error },
    /// What is to be compared is not understood.
    Plan { path: PathBuf, reason: String },
    /// What was measured cannot be kept.
    Kept { path: PathBuf, error: io::Error },
    /// A core that this process may not use.
    NoCore { core: usize, usable: Vec<usize> },
    /// The kernel did not pin us.
    Pin { core: usize, error: io::Error },
}

impl fmt::Display for BenchError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Unreachable { url, error } => write!(
                formatter,
                "cannot connect to {url}: {error}. Is the broker running there? Start one with `corelane serve`, correct \
                 --url, or leave --url out to have a broker started on a core of its own"
            ),
            BenchError::Broken { peer, error } => write!(
                formatter,
                "the connection to {peer} broke: {error}. Look into the broker's log, then try again"
            ),
            BenchError::Closed { peer, reason: Some(reason) } => {
                write!(formatter, "{peer} closed the connection: {reason}")
            }
            BenchError::Closed { peer, reason: None } => write!(
                formatter,
                "{peer} closed the connection without a reason. Does a broker that speaks this --protocol listen there?"
            ),
            BenchError::NoAnswer { peer, awaited } => write!(
                formatter,
                "{peer} did not answer in time ({awaited}). Does a broker that speaks this --protocol listen there?"
            ),
            BenchError::LoginRefused { peer, with_password: true } => write!(
                formatter,
                "{peer} refused the user, or takes no PLAIN passwords. Check user and password in --url"
            ),
            BenchError::LoginRefused { peer, with_password: false } => write!(
                formatter,
                "{peer} refuses anonymous clients. Say who you are with --url amqp://USER:PASSWORD@HOST:PORT"
            ),
            BenchError::QueueRefused { queue, reason } => write!(
                formatter,
                "the broker refused the queue {queue:?}: {reason}. Make the queue first, or name another with --queue"
            ),
            BenchError::MessageTooLarge { size, size_max } => {
                let limit = size_max.map_or(String::new(), |size| format!(" (at most {size} bytes)"));
                write!(
                    formatter,
                    "the broker takes no messages of {size} bytes{limit}. Choose a smaller --size, or raise the broker's \
                     --max-message-size"
                )
            }
            BenchError::NoProgram { path } => formatter.write_str(&no_program(path)),
            BenchError::NotStarted { what, path, output } => {
                write!(formatter, "{} ({what}) did not come up:\n{}", path.display(), said(output))
            }
            BenchError::Ended { what, output } => {
                write!(formatter, "{what} has ended while it was measured:\n{}", said(output))
            }
            BenchError::NotStopped { what, within } => {
                write!(formatter, "{what} was asked to stop and did not within {} s", within.as_secs())
            }
            BenchError::NoRoom { path, free, wanted } => formatter.write_str(&no_room(path, *free, *wanted)),
            BenchError::System { doing, error } => write!(formatter, "{doing} failed: {error}"),
            BenchError::Disk { path, error } => {
                write!(formatter, "cannot write in {}: {error}; name another --within", path.display())
            }
            BenchError::Plan { path, reason } => write!(formatter, "{}: {reason}", path.display()),
            BenchError::Kept { path, error } => formatter.write_str(&not_kept(path, error)),
            BenchError::NoCore { core, usable } => write!(
                formatter,
                "core {core} is not among those this process may use ({usable:?}); correct --broker-core or \
                 --generator-core"
            ),
            BenchError::Pin { core, error } => write!(
                formatter,
                "cannot run on core {core}: {error}. Choose other cores with --broker-core and --generator-core"
            ),
        }
    }
}

impl std::error::Error for BenchError {}

fn not_kept(path: &Path, error: &io::Error) -> String {
    format!("cannot write into {}: {error}; name another --out", path.display())
}

fn no_room(path: &Path, free: u64, wanted: u64) -> String {
    let (path, free, wanted) = (path.display(), free / 1_000_000, wanted / 1_000_000);
    format!(
        "{path} has {free} MB free, and a backlog of this size takes about {wanted} MB; name another --within, or measure a \
         part of it with --scale"
    )
}

fn no_program(path: &Path) -> String {
    format!(
        "there is no broker at {}. Build it with `cargo build --release -p corelane -p corelane-bench`, say where it is with \
         --corelane PATH, or measure a broker that runs already with --url amqp://HOST:PORT",
        path.display()
    )
}

fn said(output: &str) -> &str {
    if output.trim().is_empty() { "it said nothing" } else { output.trim() }
}
