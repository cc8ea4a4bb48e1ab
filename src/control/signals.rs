//! Has somebody asked the process to stop (SIGTERM, SIGINT), or to read its configuration again (SIGHUP)? Noted by a thread of
//! their own.
//!
//! Invariant: a signal that came after `listen` is never lost, and never ends the process by itself. One that asks to stop within
//! [`SAME_SIGNAL`] of another is the same: whoever ends a process and its group sends two at once, and means one.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;

use crate::doorbell::Doorbell;

/// Signals that ask to stop, this close together, are one.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Stop,
    /// Read the configuration file again.
    Reload,
}

/// Signals that ask for something.
#[derive(Debug)]
pub struct Signals {
    noted: Receiver<Signal>,
    /// Who is to be woken, once that is known.
    bell: Arc<OnceLock<Doorbell>>,
    /// What was looked at and is still to be done.
    reload: Cell<bool>,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP, for the whole process.
    pub fn listen() -> io::Result<Signals> {
        let incoming = Incoming::new([SIGTERM, SIGINT, SIGHUP])?;
        let (note, noted) = channel();
        let bell = Arc::new(OnceLock::new());
        let known = Arc::clone(&bell);
        thread::Builder::new().name("signals".to_owned()).spawn(move || wait(incoming, &note, &known))?;
        Ok(Signals { noted, bell, reload: Cell::new(false) })
    }

    /// Whoever has this doorbell is woken by each signal from now on, and should look at those before.
    pub fn ring_on_signal(&self, bell: Doorbell) {
        // A second one would be a second control thread; the first stays.
        let _ = self.bell.set(bell);
    }

    /// What the next one asks for, if one more has come.
    pub fn take(&self) -> Option<Signal> {
        if self.reload.take() { Some(Signal::Reload) } else { self.noted.try_recv().ok() }
    }

    /// Takes what asks for a stop, if something does; what asks for something else waits.
    pub fn take_stop(&self) -> bool {
        while let Ok(signal) = self.noted.try_recv() {
            match signal {
                Signal::Stop => return true,
                Signal::Reload => self.reload.set(true),
            }
        }
        false
    }
}

fn wait(mut incoming: Incoming, note: &Sender<Signal>, bell: &OnceLock<Doorbell>) {
    let mut stopped: Option<Instant> = None;
    for signal in incoming.forever() {
        let signal = if signal == SIGHUP { Signal::Reload } else { Signal::Stop };
        if signal == Signal::Stop {
            if stopped.is_some_and(|at| at.elapsed() < SAME_SIGNAL) {
                continue;
            }
            stopped = Some(Instant::now());
        }
        if note.send(signal).is_err() {
            return;
        }
        if let Some(bell) = bell.get() {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_noted_and_rings_and_does_not_kill() {
        let signals = Signals::listen().unwrap();
        assert_eq!(signals.take(), None);
        let bell = Doorbell::new().unwrap();
        signals.ring_on_signal(bell.clone());
        let signal = |signal| {
            rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
            assert!(bell.wait(Some(Duration::from_secs(10))));
        };
        signal(rustix::process::Signal::TERM);
        assert_eq!(signals.take(), Some(Signal::Stop));
        // Again at once: the same. Later: another.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        assert!(!bell.wait(Some(2 * SAME_SIGNAL)), "one signal counts twice");
        assert_eq!(signals.take(), None);
        signal(rustix::process::Signal::TERM);
        assert_eq!(signals.take(), Some(Signal::Stop));
        signal(rustix::process::Signal::HUP);
        assert!(!signals.take_stop());
        assert_eq!(signals.take(), Some(Signal::Reload));
        assert_eq!(signals.take(), None);
    }
}
