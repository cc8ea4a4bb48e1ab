//! What happens beside the shards? The control thread: it answers their SASL steps, turns signals into a stop, or into other
//! properties of destinations, and has shards hold for backups.
//!
//! Invariants: signals are looked at and answers sent after every batch of mail, and an answer that is ready does not
//! wait for the next step's milliseconds; a stop is announced once, and when the shards have not closed their
//! connections `STOP_US_MAX` later they are ended all the same. It never waits for a shard.
//! Left out: how mail travels and who is rung (`driver`), what a stop does to connections (`Shard`).

mod backups;
mod reload;
mod signals;

use std::sync::Arc;
use std::time::Duration;

use corelane_shard::Mail;

use crate::authenticate::Authenticator;
use crate::backup::Door;
use crate::driver::{Clock, ControlPort};
use backups::Backups;
pub use reload::{Reload, Reread};
pub use signals::{Signal, Signals};

/// How long connections have to close after a stop was asked for.
pub const STOP_US_MAX: u64 = 10_000_000;

/// The control thread's belongings.
pub struct Control {
    port: ControlPort,
    clock: Clock,
    signals: Signals,
    authenticator: Authenticator,
    reload: Reload,
    backups: Backups,
    inbox: Vec<(usize, Mail)>,
    /// That connections are accepted was said.
    is_ready: bool,
    /// When the shards are ended, whatever is still open.
    stop_at: Option<u64>,
}

/// How the shards came to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Every connection was closed.
    Graceful,
    /// Some were still open.
    Forced,
}

impl Control {
    pub fn new(
        port: ControlPort,
        clock: Clock,
        signals: Signals,
        authenticator: Authenticator,
        reload: Reload,
        door: Option<Door>,
    ) -> Control {
        let backups = Backups::new(door, port.shards());
        signals.ring_on_signal(port.bell());
        Control {
            port,
            clock,
            signals,
            authenticator,
            reload,
            backups,
            inbox: Vec::new(),
            is_ready: false,
            stop_at: None,
        }
    }

    /// Runs until a signal has stopped the shards; their threads may be joined then.
    pub fn run(mut self) -> Stop {
        loop {
            let more = self.take_mail();
            let now = self.clock.now();
            self.authenticator.handle_timeout(now);
            self.run_backups(now);
            self.post_replies();
            if self.look_at_signals(now) {
                tracing::warn!("stopping at once: a second signal came");
                return self.end(Stop::Forced);
            }
            if let Some(stop_at) = self.stop_at {
                if self.port.stopped_count() == self.port.shards() {
                    return self.end(Stop::Graceful);
                }
                if stop_at <= now {
                    tracing::error!("stopping without grace: connections did not close in time");
                    return self.end(Stop::Forced);
                }
            }
            if more {
                self.port.flush();
            } else {
                self.port.wait(self.timeout(now));
            }
        }
    }

    fn take_mail(&mut self) -> bool {
        let inbox = &mut self.inbox;
        let more = self.port.take(|from, mail| inbox.push((from, mail)));
        if self.port.is_ready() && !std::mem::replace(&mut self.is_ready, true) {
            tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "ready");
        }
        for (from, mail) in std::mem::take(&mut self.inbox) {
            match mail {
                Mail::SaslStep { connection, step } => {
                    self.authenticator.handle_step(self.clock.now(), from, connection, step);
                    self.post_replies();
                    self.port.flush();
                }
                // Shards are waiting.
                Mail::Backup(mail) => {
                    self.backups.handle_mail(self.clock.now(), from, mail);
                    self.post_of_backups();
                    self.port.flush();
                }
                _ => tracing::error!(from, "mail that is not for the control thread was dropped"),
            }
        }
        more
    }

    fn run_backups(&mut self, now: u64) {
        self.backups.take_requests(now, self.is_ready);
        self.backups.handle_timeout(now);
        self.post_of_backups();
    }

    fn post_of_backups(&mut self) {
        while let Some((shard, mail)) = self.backups.poll_mail() {
            self.port.post(shard, mail);
        }
    }

    fn post_replies(&mut self) {
        while let Some(reply) = self.authenticator.poll_reply() {
            let mail = Mail::SaslReply { connection: reply.connection, reply: reply.reply };
            self.port.post(reply.shard, mail);
        }
    }

    /// True: somebody does not want to wait for the stop.
    fn look_at_signals(&mut self, now: u64) -> bool {
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::Reload => self.read_settings_again(),
                Signal::Stop if self.stop_at.is_some() => return true,
                Signal::Stop => {
                    tracing::info!("stopping: connections are being closed");
                    self.stop_at = Some(now + STOP_US_MAX);
                    self.backups.stop();
                    self.post_of_backups();
                    self.port.stop_shards();
                }
            }
        }
        false
    }

    /// The properties of destinations may be others from now on.
    fn read_settings_again(&mut self) {
        if let Some(destinations) = self.reload.read() {
            for shard in 0..self.port.shards() {
                self.port.post(shard, Mail::Destinations(Arc::clone(&destinations)));
            }
        }
    }

    fn end(mut self, stop: Stop) -> Stop {
        self.port.end_shards();
        self.port.flush();
        stop
    }

    /// How long there is nothing to do.
    fn timeout(&self, now: u64) -> Option<Duration> {
        let deadline = [self.authenticator.next_deadline(), self.backups.next_deadline(), self.stop_at];
        let deadline = deadline.into_iter().flatten().min();
        deadline.map(|deadline| Duration::from_micros(deadline.saturating_sub(now)))
    }
}
