//! Has somebody asked the process to stop? SIGTERM and SIGINT, noted by a thread of their own.
//!
//! Invariant: a signal that came after `listen` is never lost, and never ends the process by itself.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;

use crate::driver::Doorbell;

/// Signals that ask for a stop.
#[derive(Debug)]
pub struct Signals {
    noted: Receiver<()>,
    /// Who is to be woken, once that is known.
    bell: Arc<OnceLock<Doorbell>>,
}

impl Signals {
    /// Takes over SIGTERM and SIGINT, for the whole process.
    pub fn listen() -> io::Result<Signals> {
        let incoming = Incoming::new([SIGTERM, SIGINT])?;
        let (note, noted) = channel();
        let bell = Arc::new(OnceLock::new());
        let known = Arc::clone(&bell);
        thread::Builder::new().name("signals".to_owned()).spawn(move || wait(incoming, &note, &known))?;
        Ok(Signals { noted, bell })
    }

    /// Whoever has this doorbell is woken by each signal from now on, and should look at those before.
    pub fn ring_on_signal(&self, bell: Doorbell) {
        // A second one would be a second control thread; the first stays.
        let _ = self.bell.set(bell);
    }

    /// Whether one more has come.
    pub fn take(&self) -> bool {
        self.noted.try_recv().is_ok()
    }
}

fn wait(mut incoming: Incoming, note: &Sender<()>, bell: &OnceLock<Doorbell>) {
    for _ in incoming.forever() {
        if note.send(()).is_err() {
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
        assert!(!signals.take());
        let bell = Doorbell::new().unwrap();
        signals.ring_on_signal(bell.clone());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        assert!(bell.wait(Some(std::time::Duration::from_secs(10))));
        assert!(signals.take());
        assert!(!signals.take());
    }
}
