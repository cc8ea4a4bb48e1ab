//! What is it doing? A line on a terminal that changes, or a line a step elsewhere; never while something is measured.

use std::io::{self, IsTerminal, Write};

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
