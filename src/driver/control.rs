//! How does the rest of the process talk to the shards?
//!
//! As one more participant, with a port like theirs and a doorbell to wait for.

use super::limits::{INBOX_MAILS, LANE_MAILS_MAX, LANE_MAILS_MIN};
use crate::doorbell::Doorbell;
use corelane_mailbox::{Lane, Port};
use corelane_shard::{Mail, Peer};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// What is in the lanes between participants.
#[derive(Debug)]
pub enum Letter {
    /// For the shard.
    Mail(Mail),
    /// A connection that the first shard deals out.
    Accepted { socket: OwnedFd, peer: Peer },
    /// To the control thread: everything that this shard had is there again.
    Ready,
    /// From the control thread, when all are ready: connections may come.
    Accept,
    /// From the control thread: close all connections.
    Stop,
    /// To the control thread: this shard has none left.
    Stopped,
    /// From the control thread, when all have stopped: the thread may end.
    Exit,
}

/// The control thread's end.
pub struct ControlPort {
    port: Port<Letter>,
    bells: Arc<[Doorbell]>,
    ready: usize,
    stopped: usize,
}

impl ControlPort {
    pub(crate) fn new(port: Port<Letter>, bells: Arc<[Doorbell]>) -> Self {
        assert_eq!(port.index(), port.participants() - 1, "the control thread is the last participant");
        assert_eq!(bells.len(), port.participants());
        ControlPort { port, bells, ready: 0, stopped: 0 }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.port.participants() - 1
    }

    /// Mail for a shard. It is on its way after the next [`ControlPort::flush`] or [`ControlPort::wait`].
    pub fn post(&mut self, shard: usize, mail: Mail) {
        self.port.post(shard, Lane::Control, Letter::Mail(mail));
    }

    /// Asks every shard to close its connections and to report.
    pub fn stop_shards(&mut self) {
        for shard in 0..self.shards() {
            self.port.post(shard, Lane::Control, Letter::Stop);
        }
    }

    /// How many shards have no connection left after [`ControlPort::stop_shards`].
    pub fn stopped_count(&self) -> usize {
        self.stopped
    }

    /// Lets the threads of the shards end.
    pub fn end_shards(&mut self) {
        for shard in 0..self.shards() {
            self.port.post(shard, Lane::Control, Letter::Exit);
        }
    }

    /// Whether everything that the shards had is there again. From then on the first one accepts connections.
    pub fn is_ready(&self) -> bool {
        self.ready == self.shards()
    }

    /// Waits until connections are accepted.
    pub fn wait_until_ready(&mut self) {
        while !self.is_ready() {
            self.wait(None);
            self.take(|_, _| {});
        }
        self.flush();
    }

    /// Hands over what the shards have written. True: there is more.
    pub fn take(&mut self, mut receive: impl FnMut(usize, Mail)) -> bool {
        let before = self.ready;
        let ControlPort { ready, stopped, .. } = self;
        let more = self.port.take(super::limits::TURN_MAILS_MAX, |from, _, letter| match letter {
            Letter::Mail(mail) => receive(from, mail),
            Letter::Ready => *ready += 1,
            Letter::Stopped => *stopped += 1,
            Letter::Accepted { .. } | Letter::Accept | Letter::Stop | Letter::Exit => {
                unreachable!("no shard writes this to the control thread")
            }
        });
        if self.ready > before && self.is_ready() {
            for shard in 0..self.shards() {
                self.port.post(shard, Lane::Control, Letter::Mail(Mail::AllReady));
            }
            self.port.post(0, Lane::Control, Letter::Accept);
        }
        more
    }

    /// Sends off what was posted.
    pub fn flush(&mut self) {
        let bells = &self.bells;
        self.port.flush(|to| bells[to].ring());
    }

    /// Sends off what was posted, then sleeps until there is mail or the doorbell is rung, at most for so long.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        self.flush();
        if self.port.prepare_sleep() {
            self.bells[self.port.index()].wait(timeout);
            self.port.awake();
        }
    }

    /// Rings for this thread: for those who are no participants and want it to look at something.
    pub fn bell(&self) -> Doorbell {
        self.bells[self.port.index()].clone()
    }
}

/// What connects the participants of a process.
pub struct Participants {
    /// By shard.
    pub ports: Vec<Port<Letter>>,
    pub bells: Arc<[Doorbell]>,
    pub control: ControlPort,
}

/// How much mail one lane holds.
fn lane_mails(participants: usize) -> usize {
    (INBOX_MAILS / participants).clamp(LANE_MAILS_MIN, LANE_MAILS_MAX)
}

/// Ports and doorbells for so many shards and the control thread.
pub fn participants(shards: usize) -> io::Result<Participants> {
    let mut ports = corelane_mailbox::Mailboxes::new(shards + 1, lane_mails(shards + 1));
    let bells: Arc<[Doorbell]> =
        (0..=shards).map(|_| Doorbell::new()).collect::<io::Result<Vec<_>>>()?.into();
    let port = ports.pop().expect("there is a port for each participant");
    let control = ControlPort::new(port, Arc::clone(&bells));
    Ok(Participants { ports, bells, control })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_a_budget_as_shards_become_many() {
        for (participants, expect) in [(2, 1024), (9, 1024), (33, 496), (65, 252), (129, 128), (1025, 128)] {
            assert_eq!(lane_mails(participants), expect, "{participants} participants");
        }
    }
}
