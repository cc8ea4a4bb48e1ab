//! `corelane baseline`: the yardsticks of the benchmarks, hidden from the help because no operator needs them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::DONE;
use crate::boot::raise_file_limit;
use crate::config::{IdlePolicy, parse_address};
use crate::control::{Signal, Signals};
use crate::driver::baseline::Baseline;
use crate::driver::{Idle, Placement};

/// Run a server that does no more than to move bytes, the way the broker moves them.
#[derive(Debug, Args)]
pub(super) struct BaselineArguments {
    kind: Kind,

    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5673", value_parser = parse_address)]
    listen: SocketAddr,

    /// The core of its only shard.
    #[arg(long, default_value_t = 0)]
    core: usize,

    #[arg(long, value_name = "POLICY", value_enum, default_value = "adaptive")]
    idle: IdlePolicy,

    #[arg(long, value_name = "N", default_value_t = 20)]
    spin_us: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Sends back what comes.
    Echo,
    /// Sends what producers (first byte `P`) send to the consumer (first byte `C`) that came last.
    Relay,
}

/// Runs it until a signal ends it.
pub(super) fn run(arguments: &BaselineArguments) -> anyhow::Result<u8> {
    let signals = Signals::listen().context("signals cannot be listened for")?;
    raise_file_limit();
    let idle = match arguments.idle {
        IdlePolicy::Park => Idle::Park,
        IdlePolicy::Adaptive => Idle::Adaptive { spin: Duration::from_micros(arguments.spin_us) },
        IdlePolicy::Spin => Idle::Spin,
    };
    let kind = match arguments.kind {
        Kind::Echo => Baseline::Echo,
        Kind::Relay => Baseline::Relay,
    };
    let placement = Placement::Core(arguments.core);
    let mut running = kind.start(arguments.listen, placement, idle).context("the shard cannot be started")?;
    println!("listening on {}", running.address);
    signals.ring_on_signal(running.control.bell());
    while signals.take() != Some(Signal::Stop) {
        running.control.wait(None);
    }
    running.stop().context("the shard did not end")?;
    Ok(DONE)
}
