//! In which order is what measured?
//!
//! For each row so many rounds, and in each round echo, broker and relay right after one another, each started anew and
//! alone on its core. A fault of the broker ends its row: more rounds would not make it better.

use std::time::Duration;

use crate::clock::{Phase, Timing};
use crate::cores::{Cores, pin};
use crate::error::BenchError;
use crate::options::{CommonOptions, Workload};
use crate::progress::Progress;
use crate::quantity::show_size;
use crate::report::{Row, Subject};
use crate::rounds::{Round, Verdict};
use crate::sample::Sample;
use crate::subject::{self, Launch, Role};
use crate::traffic::{Flow, Settle};
use crate::url::Url;
use crate::{pingpong, saturate, yardstick};

/// How long nothing may arrive until it counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// A yardstick that the row is not about is measured no longer than this.
const SIDE_DURATION_MAX: Duration = Duration::from_secs(1);
const SIDE_WARMUP_MAX: Duration = Duration::from_millis(200);

/// One command, being carried out.
pub struct Bench<'a> {
    workload: &'a Workload,
    progress: Progress,
    launch: Launch,
    has_yardsticks: bool,
    /// Why no row can be good.
    void: Option<String>,
    /// Tells the messages of each measurement from all others.
    run: u16,
}

impl<'a> Bench<'a> {
    /// Pins the generator and looks what there is to measure.
    pub fn new(workload: &'a Workload) -> Result<Bench<'a>, BenchError> {
        let common = workload.common();
        let cores = Cores::choose(common.broker_core, common.generator_core)?;
        pin(cores.generator)?;
        let program = common.corelane.clone().unwrap_or_else(subject::program_beside_us);
        let launch = Launch { program, cores, idle: common.idle, spin_us: common.spin_us };
        let progress = Progress::new(common.quiet);
        let void = common.url.is_none() && cores.shared();
        let void = void.then(|| format!("broker and generator share core {}", cores.broker));
        let mut bench =
            Bench { workload, progress, launch, has_yardsticks: false, void, run: std::process::id() as u16 };
        bench.has_yardsticks = bench.can_compare(common);
        if cfg!(debug_assertions) {
            bench.progress.note("this is a debug build; measure with `cargo build --release`");
        }
        Ok(bench)
    }

    /// Measures one row.
    pub fn row(&mut self, size: usize, settle: Settle) -> Result<Row, BenchError> {
        let window = self.workload.window(size);
        let (producers, consumers) = match self.workload {
            Workload::Pingpong(_) => (1, 1),
            Workload::Saturate(options) => (usize::from(options.producers), usize::from(options.consumers)),
        };
        let common = self.workload.common();
        let mut rounds = Vec::new();
        for number in 1..=common.rounds {
            let label = format!(
                "{} {} {settle:?}, round {number} of {}",
                self.workload.name(),
                show_size(size),
                common.rounds
            );
            let flow = Flow { queue: common.queue.clone(), size, settle, window, run: self.next_run() };
            let round = self.round(&label, &flow)?;
            let has_fault = round.ours.counts.fault().is_some();
            rounds.push(round);
            if has_fault {
                break;
            }
        }
        self.progress.end();
        let workload = self.workload.name();
        let protocol = common.protocol.name();
        let subject = Subject { workload, protocol, size, settle, producers, consumers, window };
        let mut row = Row::new(&subject, &Verdict::of(&rounds));
        row.void = row.void.or_else(|| self.void.clone());
        Ok(row)
    }

    fn round(&mut self, label: &str, flow: &Flow) -> Result<Round, BenchError> {
        let is_latency = matches!(self.workload, Workload::Pingpong(_));
        let echo = self.yardstick(&format!("{label}: echo"), Role::Echo, flow, is_latency)?;
        self.progress.step(&format!("{label}: broker"));
        let ours = self.broker(flow)?;
        let relay = self.yardstick(&format!("{label}: relay"), Role::Relay, flow, !is_latency)?;
        Ok(Round { ours, echo, relay })
    }

    fn yardstick(
        &self,
        label: &str,
        role: Role,
        flow: &Flow,
        is_main: bool,
    ) -> Result<Option<Sample>, BenchError> {
        if !self.has_yardsticks {
            return Ok(None);
        }
        self.progress.step(label);
        let timing = if is_main { self.timing() } else { self.side_timing() };
        let subject = self.launch.start(role)?;
        let address = subject.address;
        let sample = match role {
            Role::Relay => yardstick::relay(address, flow.size, flow.window, &timing, &mut |_| {}),
            Role::Echo | Role::Broker => yardstick::echo(address, flow.size, &timing, &mut |_| {}),
        };
        sample.map(Some)
    }

    fn broker(&self, flow: &Flow) -> Result<Sample, BenchError> {
        let common = self.workload.common();
        let subject = match common.url {
            Some(_) => None,
            None => Some(self.launch.start(Role::Broker)?),
        };
        let url = match (&common.url, &subject) {
            (Some(url), _) => url.clone(),
            (None, Some(subject)) => Url::local(subject.address),
            (None, None) => unreachable!("a broker without a URL was just started"),
        };
        let mut cpu = [None; 2];
        let mut watch = |phase: Phase| {
            let place = match phase {
                Phase::Measuring => 0,
                Phase::Measured => 1,
            };
            cpu[place] = subject.as_ref().and_then(subject::Subject::cpu);
        };
        let timing = self.timing();
        let mut sample = match self.workload {
            Workload::Pingpong(_) => pingpong::run(&url, flow, &timing, &mut watch)?,
            Workload::Saturate(options) => {
                let (producers, consumers) = (usize::from(options.producers), usize::from(options.consumers));
                saturate::run(&url, flow, producers, consumers, &timing, &mut watch)?
            }
        };
        sample.cpu = cpu[1].zip(cpu[0]).map(|(after, before)| after.saturating_sub(before));
        Ok(sample)
    }

    fn timing(&self) -> Timing {
        let common = self.workload.common();
        Timing { warmup: common.warmup, duration: common.duration, patience: PATIENCE }
    }

    fn side_timing(&self) -> Timing {
        let main = self.timing();
        Timing {
            warmup: main.warmup.min(SIDE_WARMUP_MAX),
            duration: main.duration.min(SIDE_DURATION_MAX),
            ..main
        }
    }

    /// Yardsticks run on this machine, so a broker elsewhere is not compared with them.
    fn can_compare(&self, common: &CommonOptions) -> bool {
        let is_here = common.url.as_ref().is_none_or(Url::is_loopback);
        let is_wanted = !common.no_yardsticks && is_here;
        if is_wanted && common.url.is_some() && !self.launch.program.is_file() {
            self.progress.note(&format!(
                "no yardsticks: there is no {}; name one with --corelane",
                self.launch.program.display()
            ));
            return false;
        }
        is_wanted
    }

    fn next_run(&mut self) -> u16 {
        self.run = self.run.wrapping_add(1);
        self.run
    }
}
