//! What is it doing? A line on a terminal that changes, or a line a step elsewhere; never while something is measured, but for what takes
//! minutes: that is told a few times.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often it is told how far something is, on a terminal and elsewhere.
const PERIOD_SEEN: Duration = Duration::from_secs(1);
const PERIOD_KEPT: Duration = Duration::from_secs(15);

/// Where progress is told, always stderr.
pub struct Progress {
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Quiet,
    Line,
    Lines,
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        let kind = match quiet {
            true => Kind::Quiet,
            false if io::stderr().is_terminal() => Kind::Line,
            false => Kind::Lines,
        };
        Progress { kind }
    }

    /// What is done next.
    pub fn step(&self, what: &str) {
        let mut out = io::stderr().lock();
        let _ = match self.kind {
            Kind::Quiet => Ok(()),
            Kind::Line => write!(out, "\r\x1b[K{what}").and_then(|()| out.flush()),
            Kind::Lines => writeln!(out, "{what}"),
        };
    }

    /// Tells how far it is, now and then.
    pub fn ticker<'a>(&'a self, label: &'a str, doing: &'a str, of: u64) -> Ticker<'a> {
        let now = Instant::now();
        let period = if self.kind == Kind::Line { PERIOD_SEEN } else { PERIOD_KEPT };
        Ticker { progress: self, label, doing, of, period, begun: now, told: now }
    }

    /// Something to know about all figures; said even when quiet.
    pub fn note(&self, what: &str) {
        self.end();
        let _ = writeln!(io::stderr(), "note: {what}");
    }

    /// Clears the line for what follows.
    pub fn end(&self) {
        if self.kind == Kind::Line {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

/// How far something is that takes long.
pub struct Ticker<'a> {
    progress: &'a Progress,
    label: &'a str,
    doing: &'a str,
    of: u64,
    period: Duration,
    begun: Instant,
    told: Instant,
}

impl Ticker<'_> {
    /// So many are done.
    pub fn tell(&mut self, done: u64) {
        let now = Instant::now();
        if now - self.told < self.period {
            return;
        }
        self.told = now;
        let rate = done as f64 / (now - self.begun).as_secs_f64();
        let left = self.of.saturating_sub(done) as f64 / rate.max(1.0);
        let Ticker { label, doing, of, .. } = self;
        self.progress.step(&format!("{label}: {doing} {done} of {of}, {rate:.0}/s, {left:.0} s left"));
    }
}
