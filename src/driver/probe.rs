//! Can a shard run on this machine?
//!
//! Asked before anything is started, because the runtime panics where a sentence would help.

use super::ring::{Completion, Flavour, Ring, StreamKey};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, getrlimit};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

/// The least locked memory with which the runtime starts.
const MEMLOCK_MIN_BYTES: u64 = 512 << 10;

const FORBIDDEN_PATH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Why not.
#[derive(Debug)]
pub enum Unusable {
    /// The limit of locked memory is too low.
    LockedMemory { bytes: u64 },
    /// The kernel's switch (`kernel.io_uring_disabled`) is set.
    SwitchedOff { value: u32 },
    /// A filter of system calls forbids it.
    Forbidden,
    /// The kernel has no io_uring, or one that is too old.
    TooOld { missing: &'static str },
    /// Memory or descriptors ran out.
    Failed(io::Error),
}

/// Tries everything that a shard's ring needs, once. Returns a warning, if there is one.
pub fn probe() -> Result<Option<&'static str>, Unusable> {
    if let Some(bytes) = getrlimit(Resource::Memlock).current
        && bytes < MEMLOCK_MIN_BYTES
    {
        return Err(Unusable::LockedMemory { bytes });
    }
    let mut ring = Ring::new().map_err(|error| from_error(error, "receive buffers in the ring"))?;
    try_receive(&mut ring)?;
    Ok((ring.flavour() == Flavour::Cooperative)
        .then_some("this kernel is older than 6.1: latencies will be somewhat longer"))
}

/// The youngest of the operations that are needed.
fn try_receive(ring: &mut Ring) -> Result<(), Unusable> {
    let failed = |error: Errno| from_error(error.into(), "lasting receives");
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    rustix::io::write(&far, b"x").map_err(failed)?;
    drop(far);
    ring.receive(StreamKey { index: 0, generation: 0 }, near.as_fd());
    let give_up = Instant::now() + Duration::from_secs(1);
    while ring.in_flight() > 0 && Instant::now() < give_up {
        ring.wait(Duration::from_millis(100)).map_err(Unusable::Failed)?;
        while let Some(completion) = ring.complete() {
            if let Completion::Received { result, .. } = completion
                && let Some(filled) = result.map_err(failed)?
            {
                ring.lend(filled);
            }
        }
    }
    if ring.in_flight() > 0 { Err(Unusable::TooOld { missing: "receives that complete" }) } else { Ok(()) }
}

fn from_error(error: io::Error, missing: &'static str) -> Unusable {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => match switch() {
            0 => Unusable::Forbidden,
            value => Unusable::SwitchedOff { value },
        },
        Some(Errno::NOSYS) => Unusable::TooOld { missing: "io_uring" },
        Some(Errno::INVAL | Errno::OPNOTSUPP) => Unusable::TooOld { missing },
        _ if error.kind() == io::ErrorKind::Unsupported => Unusable::TooOld { missing },
        _ => Unusable::Failed(error),
    }
}

fn switch() -> u32 {
    fs::read_to_string(FORBIDDEN_PATH).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

impl fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::LockedMemory { bytes } => write!(
                formatter,
                "only {} KiB of memory may be locked, 512 are needed. Raise the limit: `ulimit -l 8192` in the shell, \
                 `LimitMEMLOCK=8M` in a systemd unit, `--ulimit memlock=8388608` for a container",
                bytes / 1024
            ),
            Unusable::SwitchedOff { value } => write!(
                formatter,
                "io_uring is switched off on this host (kernel.io_uring_disabled = {value}). Allow it with \
                 `sysctl -w kernel.io_uring_disabled=0`{}",
                if *value == 1 { ", or run as a member of the group in kernel.io_uring_group" } else { "" }
            ),
            Unusable::Forbidden => write!(
                formatter,
                "io_uring is forbidden to this process, most likely by the seccomp profile of a container. Allow the \
                 system calls io_uring_setup, io_uring_enter and io_uring_register in it (Docker: \
                 `--security-opt seccomp=PROFILE`)"
            ),
            Unusable::TooOld { missing } => {
                write!(formatter, "this kernel is too old: it has no {missing}. Linux 6.1 or later is needed")
            }
            Unusable::Failed(error) => write!(formatter, "io_uring cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for Unusable {}
