//! In which order is what measured, of scenes and of things that are opened or held?
//!
//! In each round an echo, the situation that it is compared with if there is one, and the broker.

use crate::clock::Phase;
use crate::error::BenchError;
use crate::operations;
use crate::options::{Case, Workload};
use crate::quantity::show_size;
use crate::records;
use crate::report::{OURS, Row, Subject};
use crate::rounds::{Round, Verdict};
use crate::run::{Bench, Meter};
use crate::sample::Sample;
use crate::scene::Pace;
use crate::scene_options::{SceneOptions, base_of};
use crate::scenes::{self, Kind};
use crate::schedule::{Arrivals, Profile, Schedule};
use crate::subject::Role;
use crate::traffic::Flow;
use crate::url::Url;
use crate::yardstick;

/// Of what was due, so much has to come for a rate to hold, and p99 in that of the first rate may be so much.
const KNEE_SHARE_MIN: f64 = 0.99;
const KNEE_P99_MAX: f64 = 10.0;
/// How often the rate is doubled, and then bisected.
const KNEE_DOUBLINGS_MAX: u32 = 16;
const KNEE_BISECTIONS: u32 = 4;

impl Bench<'_> {
    pub(crate) fn scene_rows(&mut self, case: &Case) -> Result<Vec<Row>, BenchError> {
        match self.workload.scene(case) {
            Some((options, _)) if options.find_knee => self.knee_rows(case),
            Some(_) | None => self.scene_rows_of(case),
        }
    }

    /// A row for each rate that was tried; the last one tells the highest that held. Rows stay void where the generator was what gave way.
    fn knee_rows(&mut self, case: &Case) -> Result<Vec<Row>, BenchError> {
        let first =
            case.profile.as_ref().and_then(|profile| profile.rates.first().copied()).unwrap_or(1000.0);
        let arrivals = case.profile.as_ref().map_or(Arrivals::Fixed, |profile| profile.arrivals);
        let mut rows: Vec<Row> = Vec::new();
        let mut floor_us = None;
        let (mut holds, mut fails, mut rate) = (None, None, first);
        let mut bisections = 0;
        for _ in 0..KNEE_DOUBLINGS_MAX + KNEE_BISECTIONS {
            let profile = Some(Profile { rates: vec![rate], arrivals });
            let mut of_rate = self.scene_rows_of(&Case { profile, ..case.clone() })?;
            let row = of_rate.swap_remove(0);
            let floor = *floor_us.get_or_insert(row.p99_us.unwrap_or(f64::MAX));
            let came = row.rate_per_s.unwrap_or(0.0) / (rate * f64::from(self.copies(case)));
            let is_good = row.void.is_none()
                && came >= KNEE_SHARE_MIN
                && row.p99_us.is_some_and(|p99| p99 <= KNEE_P99_MAX * floor);
            rows.push(row);
            *(if is_good { &mut holds } else { &mut fails }) = Some(rate);
            rate = match (holds, fails) {
                (Some(_), None) => rate * 2.0,
                (Some(holds), Some(fails)) if bisections < KNEE_BISECTIONS => {
                    bisections += 1;
                    f64::midpoint(holds, fails)
                }
                (_, _) => break,
            };
        }
        if let Some(last) = rows.last_mut() {
            last.knee_per_s = holds;
        }
        Ok(rows)
    }

    fn copies(&self, case: &Case) -> u32 {
        match self.workload {
            Workload::Fanout(_) => case.count,
            _ => 1,
        }
    }

    /// Ours, and each of the other brokers.
    fn scene_rows_of(&mut self, case: &Case) -> Result<Vec<Row>, BenchError> {
        let common = self.workload.common();
        let (workload, window) = (self.workload.name(), self.workload.window(case));
        let scene = self.workload.scene(case);
        let impossible =
            scene.and_then(|(_, kind)| scenes::impossible(kind, common.protocol)).map(str::to_owned);
        let mut rounds = Vec::new();
        for number in 1..=common.rounds {
            if impossible.is_some() {
                break;
            }
            let label = format!("{workload} {}, round {number} of {}", told(case), common.rounds);
            let flow = Flow {
                protocol: common.protocol,
                queue: common.queue.clone(),
                size: case.size,
                settle: case.settle,
                window,
                run: self.next_run(),
                durable: false,
            };
            let round = self.scene_round(&label, &flow, case)?;
            let has_fault = round.ours.counts.fault().is_some();
            rounds.push(round);
            if has_fault {
                break;
            }
        }
        self.progress.end();
        let subject = self.subject(case, window);
        let ours = Verdict::of(&rounds);
        let mut told = vec![(Row::new(&subject, &ours), ours)];
        for (index, peer) in common.peers.iter().enumerate() {
            let verdict = Verdict::of_peer(&rounds, index);
            let protocol = peer.protocol.unwrap_or(common.protocol).name();
            let subject = Subject { broker: &peer.name, protocol, ..subject };
            told.push((Row::new(&subject, &verdict), verdict));
        }
        let mut rows = Vec::with_capacity(told.len());
        for (mut row, verdict) in told {
            if let Some(profile) = &case.profile {
                row.rates_asked.clone_from(&profile.rates);
                row.arrivals = Some(match profile.arrivals {
                    Arrivals::Fixed => "fixed",
                    Arrivals::Poisson => "poisson",
                });
            }
            (row.count, row.churn) = (case.count, case.churn.map(operations::Churn::name));
            row.void = impossible.clone().or(row.void).or_else(|| self.void.clone());
            records::keep(common.out.as_deref(), &row, &verdict)?;
            rows.push(row);
        }
        Ok(rows)
    }

    fn subject<'s>(&self, case: &Case, window: u32) -> Subject<'s> {
        Subject {
            workload: self.workload.name(),
            broker: OURS,
            protocol: self.workload.common().protocol.name(),
            size: case.size,
            settle: case.settle,
            connections: 2,
            producers: 1,
            consumers: case.count.max(1) as usize,
            window,
            queues: 1,
        }
    }

    fn scene_round(&mut self, label: &str, flow: &Flow, case: &Case) -> Result<Round, BenchError> {
        let side = self.side_timing();
        let echo = self.yardstick(&format!("{label}: echo"), Role::Echo, |address, watch| {
            yardstick::echo(address, flow.size, &side, watch)
        })?;
        let scene = self.workload.scene(case);
        let mut base = None;
        if let Some((options, kind)) = scene
            && let Some(kind) = base_of(kind)
        {
            self.progress.step(&format!("{label}: base"));
            let flow = Flow { run: self.next_run(), ..flow.clone() };
            let played = self.with_broker(|url, meter| self.play(url, &flow, kind, options, case, meter));
            base = Some(played?);
        }
        self.progress.step(&format!("{label}: broker"));
        let ours = self.with_broker(|url, meter| match scene {
            Some((options, kind)) => self.play(url, flow, kind, options, case, meter),
            None => self.operate(url, flow, case, meter),
        })?;
        let peers = self.peers(label, flow, |url, flow| match scene {
            Some((options, kind)) => self.play(url, flow, kind, options, case, &mut Meter::new(None)),
            None => self.operate(url, flow, case, &mut Meter::new(None)),
        })?;
        Ok(Round { ours, echo, base, peers, ..Round::default() })
    }

    fn play(
        &self,
        url: &Url,
        flow: &Flow,
        kind: Kind,
        options: &SceneOptions,
        case: &Case,
        meter: &mut Meter<'_>,
    ) -> Result<Sample, BenchError> {
        let timing = self.timing();
        let scene = scenes::set_up(url, flow, kind)?;
        let pace = match &case.profile {
            Some(profile) => {
                let now = scene.clock.now_ns();
                let (begin, duration) =
                    (now + timing.warmup.as_nanos() as u64, timing.duration.as_nanos() as u64);
                Pace::Timed(Schedule::new(profile.clone(), now, begin, duration, flow.run.into()))
            }
            // Of each receiver's copies there are as many on their way as of a single one's messages.
            None => Pace::Window((u64::from(options.window) / u64::from(self.copies(case))).max(4)),
        };
        let sample = scene.run(pace, &timing, &mut |phase: Phase| meter.read(phase))?;
        Ok(Sample { cpu: meter.used(), ..sample })
    }

    fn operate(
        &self,
        url: &Url,
        flow: &Flow,
        case: &Case,
        meter: &mut Meter<'_>,
    ) -> Result<Sample, BenchError> {
        let (timing, running, count) = (self.timing(), meter.running, case.count);
        let mut watch = |phase: Phase| meter.read(phase);
        let sample = match (self.workload, case.churn) {
            (_, Some(what)) => operations::churn(url, flow, what, &timing, &mut watch)?,
            (Workload::Queues(_), _) => operations::queues(url, flow, count, running, &mut watch)?,
            (Workload::Idle(_), _) => operations::idle(url, flow, count, &timing, running, &mut watch)?,
            (_, None) => operations::browse(url, flow, count, &timing, &mut watch)?,
        };
        Ok(Sample { cpu: meter.used(), ..sample })
    }
}

/// What a row is about.
fn told(case: &Case) -> String {
    match (&case.churn, &case.profile) {
        (Some(churn), _) => churn.name().to_owned(),
        (None, Some(profile)) => {
            let rates: Vec<String> = profile.rates.iter().map(f64::to_string).collect();
            format!("{} at {}/s", show_size(case.size), rates.join("-"))
        }
        (None, None) => format!("{} for {}", show_size(case.size), case.count),
    }
}
