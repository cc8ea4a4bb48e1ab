//! In which order is what measured?
//!
//! For each row so many rounds, and in each round echo, broker and relay right after one another, each started anew and
//! alone on its core. A fault of the broker ends its row: more rounds would not make it better.

use std::net::SocketAddr;
use std::time::Duration;

use crate::backlog::{self, Backlog, Summary};
use crate::clock::{Clock, Phase, Timing};
use crate::cores::{Cores, Unpin, pin};
use crate::error::BenchError;
use crate::journal::JournalUse;
use crate::options::{BacklogOptions, Case, CommonOptions, DurableOptions, Workload};
use crate::pingpong::Connections;
use crate::progress::Progress;
use crate::quantity::show_size;
use crate::report::{OURS, Row, Subject};
use crate::rounds::{Round, Verdict};
use crate::sample::Sample;
use crate::subject::{Keeping, Launch, Role, Running, program_beside_us};
use crate::traffic::Flow;
use crate::url::Url;
use crate::{disk, durable, pingpong, records, saturate, subject, yardstick};

/// How long nothing may arrive until it counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// A yardstick that the row is not about is measured no longer than this.
const SIDE_DURATION_MAX: Duration = Duration::from_secs(1);
const SIDE_WARMUP_MAX: Duration = Duration::from_millis(200);

/// One command, being carried out.
pub struct Bench<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) progress: Progress,
    launch: Launch,
    has_yardsticks: bool,
    /// Why no row can be good.
    pub(crate) void: Option<String>,
    /// Tells the messages of each measurement from all others.
    run: u16,
    _unpin: Unpin,
}

impl<'a> Bench<'a> {
    /// Pins the generator and looks what there is to measure.
    pub fn new(workload: &'a Workload) -> Result<Bench<'a>, BenchError> {
        let common = workload.common();
        let cores = Cores::choose(common.broker_core, common.generator_core)?;
        let unpin = Unpin::later()?;
        pin(cores.generator)?;
        let program = common.corelane.clone().unwrap_or_else(program_beside_us);
        let keeping = keeping(workload)?;
        let launch = Launch { program, cores, idle: common.idle, spin_us: common.spin_us, keeping };
        let progress = Progress::new(common.quiet);
        let void = common.url.is_none() && cores.shared();
        let void = void.then(|| format!("broker and generator share core {}", cores.broker));
        let run = std::process::id() as u16;
        let mut bench = Bench { workload, progress, launch, has_yardsticks: false, void, run, _unpin: unpin };
        bench.has_yardsticks = bench.can_compare(common);
        if cfg!(debug_assertions) {
            bench.progress.note("this is a debug build; measure with `cargo build --release`");
        }
        Ok(bench)
    }

    /// Measures one row, and one for each broker beside ours.
    pub fn rows(&mut self, case: &Case) -> Result<Vec<Row>, BenchError> {
        match self.workload {
            Workload::Backlog(options) => Ok(vec![self.backlog_row(options, case)?]),
            Workload::Pingpong(_) | Workload::Saturate(_) | Workload::Durable(_) => self.flow_rows(case),
            _ => self.scene_rows(case),
        }
    }

    fn flow_rows(&mut self, case: &Case) -> Result<Vec<Row>, BenchError> {
        let window = self.workload.window(case);
        let (producers, consumers) = match self.workload {
            Workload::Saturate(options) => (usize::from(options.producers), usize::from(options.consumers)),
            Workload::Durable(_) => (1, 0),
            _ => (1, 1),
        };
        let rounds = self.flow_rounds(case, window)?;
        self.progress.end();
        let common = self.workload.common();
        let subject = Subject {
            workload: self.workload.name(),
            broker: OURS,
            protocol: common.protocol.name(),
            size: case.size,
            settle: case.settle,
            connections: match case.connections {
                Connections::One => 1,
                Connections::Two => producers + consumers,
            },
            producers,
            consumers,
            window,
            queues: case.queues,
        };
        let verdict = Verdict::of(&rounds);
        let mut rows = vec![Row::new(&subject, &verdict)];
        records::keep(common.out.as_deref(), &rows[0], &verdict)?;
        for (index, peer) in common.peers.iter().enumerate() {
            let subject = Subject { broker: &peer.name, ..subject };
            let verdict = Verdict::of_peer(&rounds, index);
            let mut row = Row::new(&subject, &verdict);
            row.protocol = peer.protocol.unwrap_or(common.protocol).name();
            records::keep(common.out.as_deref(), &row, &verdict)?;
            rows.push(row);
        }
        for row in &mut rows {
            row.void = row.void.take().or_else(|| self.void.clone());
        }
        Ok(rows)
    }

    fn flow_rounds(&mut self, case: &Case, window: u32) -> Result<Vec<Round>, BenchError> {
        let common = self.workload.common();
        let (name, size) = (self.workload.name(), show_size(case.size));
        let mut rounds = Vec::new();
        for number in 1..=common.rounds {
            let label = format!("{name} {size} {}, round {number} of {}", detail(case), common.rounds);
            let flow = Flow {
                protocol: common.protocol,
                queue: common.queue.clone(),
                size: case.size,
                settle: case.settle,
                window,
                run: self.next_run(),
                durable: false,
            };
            let round = match self.workload {
                Workload::Durable(options) => self.durable_round(&label, &flow, options, case.queues)?,
                _ => self.round(&label, &flow, case.connections)?,
            };
            let has_fault = round.ours.counts.fault().is_some();
            rounds.push(round);
            if has_fault {
                break;
            }
        }
        Ok(rounds)
    }

    fn round(&self, label: &str, flow: &Flow, connections: Connections) -> Result<Round, BenchError> {
        let (main, side) = (self.timing(), self.side_timing());
        let is_latency = matches!(self.workload, Workload::Pingpong(_));
        let (echo_timing, relay_timing) = if is_latency { (main, side) } else { (side, main) };
        let (size, window) = (flow.size, flow.window);
        let echo = self.yardstick(&format!("{label}: echo"), Role::Echo, |address, watch| {
            yardstick::echo(address, size, &echo_timing, watch)
        })?;
        self.progress.step(&format!("{label}: broker"));
        let ours = self.broker(flow, connections)?;
        let peers =
            self.peers(label, flow, |url, flow| self.load(url, flow, connections, &mut Meter::new(None)))?;
        let relay = self.yardstick(&format!("{label}: relay"), Role::Relay, |address, watch| {
            yardstick::relay(address, size, window, &relay_timing, watch)
        })?;
        let relay_latency = match is_latency {
            true => {
                self.yardstick(&format!("{label}: relay, one by one"), Role::Relay, |address, watch| {
                    yardstick::relay_one_by_one(address, size, &side, watch)
                })?
            }
            false => None,
        };
        Ok(Round { ours, echo, relay, relay_latency, peers, ..Round::default() })
    }

    /// Echo, broker, others beside it, and bare disk. How large a write is, and for how many messages, is what the broker's were in this round.
    fn durable_round(
        &self,
        label: &str,
        flow: &Flow,
        options: &DurableOptions,
        queues: u16,
    ) -> Result<Round, BenchError> {
        let side = self.side_timing();
        let echo = self.yardstick(&format!("{label}: echo"), Role::Echo, |address, watch| {
            yardstick::echo(address, flow.size, &side, watch)
        })?;
        self.progress.step(&format!("{label}: broker"));
        let (ours, journal) = self.with_broker(|url, meter| {
            let mut watch = |phase: Phase| meter.read(phase);
            let (sample, journal) = durable::run(url, flow, queues.into(), &self.timing(), &mut watch)?;
            Ok((Sample { cpu: meter.used(), ..sample }, journal))
        })?;
        let peers = self
            .peers(label, flow, |url, flow| durable::run_unasked(url, flow, queues.into(), &self.timing()))?;
        self.progress.step(&format!("{label}: disk"));
        let usual = journal.as_ref().and_then(JournalUse::write_bytes);
        let disk = match (&self.launch.keeping, &journal, usual) {
            (Some(Keeping { sync, .. }), Some(journal), Some(bytes)) if self.has_yardsticks => {
                let messages = journal.messages_per_write();
                // It runs where the broker ran.
                pin(self.launch.cores.broker)?;
                let sample = disk::run(&options.folder(), bytes, messages, *sync, &self.timing());
                pin(self.launch.cores.generator)?;
                Some(sample?)
            }
            (_, _, _) => None,
        };
        Ok(Round { ours, echo, disk, journal, peers, ..Round::default() })
    }

    fn backlog_row(&mut self, options: &BacklogOptions, case: &Case) -> Result<Row, BenchError> {
        let (common, messages) = (&options.common, case.messages.unwrap_or(1));
        if common.url.is_none() {
            backlog::check_room(&options.folder(), messages, case.size)?;
        }
        let mut rounds = Vec::new();
        for number in 1..=common.rounds {
            let size = show_size(case.size);
            let label = format!("backlog {messages} of {size}, round {number} of {}", common.rounds);
            let (queue, run, window) = (common.queue.clone(), self.next_run(), self.workload.window(case));
            let durable = !options.transient;
            let flow = Flow {
                protocol: common.protocol,
                queue,
                size: case.size,
                settle: case.settle,
                window,
                run,
                durable,
            };
            let round = self.backlog_round(&label, &flow, messages, options.producers)?;
            let has_fault = round.counts().fault().is_some();
            rounds.push(round);
            if has_fault {
                break;
            }
        }
        self.progress.end();
        let mut row = Row::of_backlog(case, options, &Summary::of(&rounds), rounds.len());
        row.void = row.void.or_else(|| self.void.clone());
        Ok(row)
    }

    fn backlog_round(
        &mut self,
        label: &str,
        flow: &Flow,
        messages: u64,
        producers: u16,
    ) -> Result<Backlog, BenchError> {
        let timing = self.timing();
        let saturate = match self.has_yardsticks && self.workload.common().url.is_none() {
            true => Some(self.saturate_in_memory(label, flow)?),
            false => None,
        };
        let build = |url: &Url| {
            let mut ticker = self.progress.ticker(label, "built", messages);
            backlog::build(url, flow, messages, producers, &timing, &mut |done| ticker.tell(done))
        };
        let drain = |url: &Url| {
            let mut ticker = self.progress.ticker(label, "drained", messages);
            backlog::drain(url, flow, messages, producers, &timing, &mut |done| ticker.tell(done))
        };
        self.progress.step(&format!("{label}: building"));
        if let Some(url) = &self.workload.common().url {
            let (built, journal) = build(url)?;
            self.progress.step(&format!("{label}: draining"));
            return Ok(Backlog { built, drained: drain(url)?, journal, ..Backlog::default() });
        }
        let mut running = self.launch.start(Role::Broker)?;
        let mut url = Url::local(running.address);
        let (built, journal) = build(&url).map_err(|error| running.explain(error))?;
        let memory_built = running.memory_peak();
        let mut restart = None;
        if flow.durable {
            self.progress.step(&format!("{label}: restarting"));
            let kept = running.stop(backlog::STOP_TIME_MAX)?;
            let clock = Clock::start();
            running = self.launch.start_on(Role::Broker, kept)?;
            url = Url::local(running.address);
            backlog::await_open(&url, flow.protocol, &mut running).map_err(|error| running.explain(error))?;
            restart = Some(Duration::from_nanos(clock.now_ns()));
        }
        self.progress.step(&format!("{label}: draining"));
        let drained = drain(&url).map_err(|error| running.explain(error))?;
        let memory_drained = running.memory_peak();
        Ok(Backlog { saturate, built, drained, journal, restart, memory_built, memory_drained })
    }

    /// The same messages through a broker in which they do not stay.
    fn saturate_in_memory(&mut self, label: &str, flow: &Flow) -> Result<Sample, BenchError> {
        self.progress.step(&format!("{label}: saturate"));
        let flow = Flow { run: self.next_run(), durable: false, ..flow.clone() };
        let launch = Launch { keeping: None, ..self.launch.clone() };
        let mut running = launch.start(Role::Broker)?;
        let sample = saturate::run(&Url::local(running.address), &flow, 1, 1, &self.timing(), &mut |_| {});
        sample.map_err(|error| running.explain(error))
    }

    /// Measures each of the other brokers; those that are not at their turn stand still, if we may stop them.
    pub(crate) fn peers(
        &self,
        label: &str,
        flow: &Flow,
        mut measure: impl FnMut(&Url, &Flow) -> Result<Sample, BenchError>,
    ) -> Result<Vec<Sample>, BenchError> {
        let common = self.workload.common();
        let mut samples = Vec::with_capacity(common.peers.len());
        for peer in &common.peers {
            self.progress.step(&format!("{label}: {}", peer.name));
            let protocol = peer.protocol.unwrap_or(flow.protocol);
            let flow = Flow { queue: peer.queue.clone(), protocol, ..flow.clone() };
            subject::let_run(peer.group, true);
            let measured = measure(&peer.url, &flow);
            subject::let_run(peer.group, false);
            samples.push(measured?);
        }
        Ok(samples)
    }

    pub(crate) fn yardstick(
        &self,
        label: &str,
        role: Role,
        measure: impl FnOnce(SocketAddr, &mut dyn FnMut(Phase)) -> Result<Sample, BenchError>,
    ) -> Result<Option<Sample>, BenchError> {
        if !self.has_yardsticks {
            return Ok(None);
        }
        self.progress.step(label);
        let mut running = self.launch.start(role)?;
        let mut meter = Meter::new(Some(&running));
        let sample = measure(running.address, &mut |phase| meter.read(phase));
        let cpu = meter.used();
        match sample {
            Ok(sample) => Ok(Some(Sample { cpu, ..sample })),
            Err(error) => Err(running.explain(error)),
        }
    }

    fn broker(&self, flow: &Flow, connections: Connections) -> Result<Sample, BenchError> {
        self.with_broker(|url, meter| self.load(url, flow, connections, meter))
    }

    /// Measures the broker that was named, or one that is started for that.
    pub(crate) fn with_broker<T>(
        &self,
        measure: impl FnOnce(&Url, &mut Meter<'_>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let Some(url) = &self.workload.common().url else {
            let mut running = self.launch.start(Role::Broker)?;
            let mut meter = Meter::new(Some(&running));
            let measured = measure(&Url::local(running.address), &mut meter);
            return measured.map_err(|error| running.explain(error));
        };
        measure(url, &mut Meter::new(None))
    }

    fn load(
        &self,
        url: &Url,
        flow: &Flow,
        connections: Connections,
        meter: &mut Meter<'_>,
    ) -> Result<Sample, BenchError> {
        let timing = self.timing();
        let mut watch = |phase: Phase| meter.read(phase);
        let sample = match self.workload {
            Workload::Saturate(options) => {
                let (producers, consumers) = (usize::from(options.producers), usize::from(options.consumers));
                saturate::run(url, flow, producers, consumers, &timing, &mut watch)?
            }
            _ => pingpong::run(url, flow, connections, &timing, &mut watch)?,
        };
        Ok(Sample { cpu: meter.used(), ..sample })
    }

    pub(crate) fn timing(&self) -> Timing {
        let common = self.workload.common();
        Timing { warmup: common.warmup, duration: common.duration, patience: PATIENCE }
    }

    pub(crate) fn side_timing(&self) -> Timing {
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

    pub(crate) fn next_run(&mut self) -> u16 {
        self.run = self.run.wrapping_add(1);
        self.run
    }
}

/// How the broker is to keep messages, if they are durable.
fn keeping(workload: &Workload) -> Result<Option<Keeping>, BenchError> {
    let (within, sync, memory) = match workload {
        Workload::Durable(options) => (options.folder(), options.sync, None),
        Workload::Backlog(options) => (options.folder(), options.sync, Some(options.memory.clone())),
        _ => return Ok(None),
    };
    let sync = sync.map_or_else(|| disk::quicker(&within), Ok)?;
    Ok(Some(Keeping { within, sync, memory }))
}

/// What a row is about beside its size.
fn detail(case: &Case) -> String {
    match (case.depth, case.connections) {
        (Some(depth), _) => format!("{depth} in flight over {} queues", case.queues),
        (None, Connections::One) => format!("{} on one connection", case.settle.name()),
        (None, Connections::Two) => case.settle.name().to_owned(),
    }
}

/// Reads the processor time of what is measured when the measurement starts and when it ends.
pub(crate) struct Meter<'a> {
    pub(crate) running: Option<&'a Running>,
    before: Option<Duration>,
    after: Option<Duration>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(running: Option<&'a Running>) -> Self {
        Meter { running, before: None, after: None }
    }

    pub(crate) fn read(&mut self, phase: Phase) {
        let now = self.running.and_then(Running::cpu);
        match phase {
            Phase::Measuring => self.before = now,
            Phase::Measured => self.after = now,
        }
    }

    pub(crate) fn used(&self) -> Option<Duration> {
        Some(self.after?.saturating_sub(self.before?))
    }
}
