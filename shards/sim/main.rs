//! The simulation as a program: runs seeds, and says how to run again what went wrong.
//!
//! `cargo run --release -p corelane-sim -- --seed 7 --events 100000`

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long a run took is for whoever waits for it"
)]

use std::ops::Range;
use std::process::Command;
use std::time::Instant;

use clap::Parser;
use corelane_sim::{CrashOptions, CrashReport, Crashing, Options, Simulation, crash_progress, progress};

/// Simulates clients, shards, network and time from a seed, and checks everything.
#[derive(Debug, Parser)]
#[command(name = "corelane-sim")]
struct Arguments {
    /// The seed of a single run.
    #[arg(long, default_value_t = 1, conflicts_with = "seeds")]
    seed: u64,
    /// Many runs: the seeds A..B, B not included.
    #[arg(long, value_name = "A..B", value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// Events of each run before its end begins.
    #[arg(long, default_value_t = 10_000)]
    events: u64,
    /// Shards, instead of as many as the seed says.
    #[arg(long)]
    shards: Option<usize>,
    /// Events between two checks of everything.
    #[arg(long, value_name = "EVENTS", default_value_t = 1)]
    check_every: u64,
    /// No new seed is begun after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<u64>,
    /// Durable queues on disks that the seed makes bad, and a machine that stops again and again.
    #[arg(long)]
    crashes: bool,
    /// With --crashes: one run for each of so many first events, which crashes there once, instead of as the seed says.
    #[arg(long, value_name = "EVENTS", requires = "crashes")]
    crash_at_each: Option<u64>,
    /// With --crashes: the one crash is at this event.
    #[arg(long, value_name = "EVENT", requires = "crashes")]
    crash_at: Option<u64>,
    /// With --crashes: backups are made meanwhile, and each is judged as a crash would be.
    #[arg(long, requires = "crashes")]
    backups: bool,
    /// One line for each seed.
    #[arg(long, short)]
    verbose: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text} is not A..B with A < B");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let (first, end) = (first.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
    if first < end { Ok((first, end)) } else { Err(wrong()) }
}

fn main() {
    let arguments = Arguments::parse();
    tell_failures(&arguments);
    let started = Instant::now();
    let (first, end) = arguments.seeds.unwrap_or((arguments.seed, arguments.seed + 1));
    if arguments.crashes {
        return crashes(&arguments, first..end, started);
    }
    let (mut seeds, mut events, mut messages, mut deliveries, mut trace) = (0, 0, 0, 0, 0u64);
    for seed in first..end {
        if arguments.budget.is_some_and(|budget| started.elapsed().as_secs() >= budget) {
            break;
        }
        let Arguments { events: count, shards, check_every, .. } = arguments;
        let report = Simulation::new(Options { seed, events: count, shards, check_every }).run();
        if arguments.verbose {
            println!("seed {seed}: {report:?}");
        }
        seeds += 1;
        events += report.events;
        messages += report.messages;
        deliveries += report.deliveries;
        trace = trace.rotate_left(1) ^ report.trace;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {events} events, {messages} messages, {deliveries} deliveries, {:.1} s, {:.0} events/s, trace {trace:016x}",
        seconds,
        events as f64 / seconds
    );
}

fn crashes(arguments: &Arguments, seeds: Range<u64>, started: Instant) {
    let mut all = CrashReport::default();
    let (mut count, mut runs) = (0, 0);
    for seed in seeds {
        if arguments.budget.is_some_and(|budget| started.elapsed().as_secs() >= budget) {
            break;
        }
        let moments = match arguments.crash_at_each {
            Some(events) => (0..events).map(Some).collect(),
            None => vec![arguments.crash_at],
        };
        for crash_at in moments {
            let Arguments { events, shards, backups, .. } = *arguments;
            let options = CrashOptions { seed, events, shards, crash_at, backups, operates: true };
            let report = Crashing::new(options).run();
            if arguments.verbose {
                println!("seed {seed}: {report:?}");
            }
            all.add(&report);
            runs += 1;
        }
        count += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{count} seeds, {runs} runs, {seconds:.1} s: {all:?}");
}

/// A failure says where it happened and how to see it again.
fn tell_failures(arguments: &Arguments) {
    let (events, shards) = (arguments.events, arguments.shards);
    let inherited = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        inherited(info);
        let (seed, event) = progress();
        let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
        let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let shards = shards.map_or(String::new(), |shards| format!(" --shards {shards}"));
        let (crash_seed, crash_event, crashes) = crash_progress();
        if crash_event > 0 {
            eprintln!(
                "seed {crash_seed} failed at event {crash_event}, after {crashes} crashes, of {events} events{shards}"
            );
            return;
        }
        eprintln!("seed {seed} failed at event {event}, commit {}", commit.unwrap_or_default());
        eprintln!("again: cargo run --release -p corelane-sim -- --seed {seed} --events {events}{shards}");
    }));
}
