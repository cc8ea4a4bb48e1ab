//! What do publishers on channels hear when there is no more memory, or no room on a disk?
//!
//! A channel has no credit, so its connection is told (`connection.blocked`) as soon as any shard is about to refuse messages, and again
//! when none is. A connection that goes on publishing and consumes nothing is read no further until then: so nothing is lost of what its
//! peer does not want confirmed. One that consumes is read on, since what it acknowledges makes room; what it publishes beyond is refused.

use corelane_mailbox::Lane;

use super::channel::ChannelMail;
use crate::Shard;
use crate::connection::{Connection, Hold, Link};
use crate::event::ConnectionSlot;
use crate::limits::{ALARM_OFF_EIGHTHS, ALARM_ON_EIGHTHS};
use crate::mail::Mail;
use crate::protocol::Protocol;

/// Why a shard is about to refuse messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    Memory,
    Disk,
}

/// By shard.
#[derive(Debug)]
pub(crate) struct Alarms(Vec<Option<Alarm>>);

impl Alarm {
    fn reason(self) -> &'static str {
        match self {
            Alarm::Memory => "low on memory",
            Alarm::Disk => "low on disk",
        }
    }
}

impl Alarms {
    pub(crate) fn new(shards: usize) -> Self {
        Alarms(vec![None; shards])
    }

    pub(crate) fn any(&self) -> Option<Alarm> {
        self.0.iter().flatten().next().copied()
    }
}

impl Shard {
    /// Sees whether this shard is about to refuse messages, or takes them again, and tells the others.
    pub(crate) fn review_alarm(&mut self) {
        let before = self.alarms.0[self.index];
        let eighths = if before == Some(Alarm::Memory) { ALARM_OFF_EIGHTHS } else { ALARM_ON_EIGHTHS };
        let alarm = if self.takes_nothing() {
            Some(Alarm::Disk)
        } else if self.memory_used > self.memory_max / 8 * eighths {
            Some(Alarm::Memory)
        } else {
            None
        };
        if alarm == before {
            return;
        }
        self.set_alarm(self.index, alarm);
        let here = self.index;
        for shard in (0..self.shards).filter(|shard| *shard != here) {
            self.post(shard, Lane::Control, Mail::Channel(ChannelMail::Alarm(alarm)));
        }
    }

    pub(super) fn set_alarm(&mut self, shard: usize, alarm: Option<Alarm>) {
        let before = self.alarms.any().is_some();
        self.alarms.0[shard] = alarm;
        if before != self.alarms.any().is_some() {
            for slot in self.connections.slots() {
                self.tell_alarm(slot);
            }
        }
    }

    /// Tells a connection how it is now.
    pub(crate) fn tell_alarm(&mut self, slot: ConnectionSlot) {
        let alarm = self.alarms.any();
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Protocol::Amqp091(protocol) = &mut connection.protocol else { return };
        match alarm {
            Some(alarm) => protocol.set_blocked(Some(alarm.reason())),
            None => {
                connection.tell_unblocked();
                if connection.hold == Some(Hold::Alarm) {
                    connection.hold = None;
                    self.resume(slot);
                }
            }
        }
        self.touch(slot);
    }

    /// A connection has published: no more of it is read if there is no room for that.
    pub(super) fn hold_for_alarm(&mut self, slot: ConnectionSlot) {
        self.review_alarm();
        let Some(connection) = self.connections.get_mut(slot).filter(|_| self.alarms.any().is_some()) else {
            return;
        };
        if connection.hold.is_none() && !connection.consumes() {
            connection.hold = Some(Hold::Alarm);
        }
    }
}

impl Connection {
    fn consumes(&self) -> bool {
        self.links.iter().flatten().any(|link| matches!(link, Link::Consumer(_)))
    }
}
