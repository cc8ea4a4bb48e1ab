//! Does the connection still live that a queue belongs to?
//!
//! A client that has lost its connection comes again, and may meet its own queue, which goes with the connection before. So a queue that is
//! declared again by another connection is not refused before the owner's shard was asked: a connection that has ended, or whose peer
//! has missed a heartbeat and is closed for it now, has left nothing when the answer comes, and the queue is made anew.
//!
//! A connection that is not read, because there is no room for what it sends or it does not take what it is sent, is not seen to end. Of
//! its socket the driver is asked whether its peer has hung up; the answer waits for that.
//!
//! The home knows the owner's shard: that of the channel that has declared the queue, or what a shard has said that it has left since.
//! Who is asked before the connection has come there says that it is not there; its queue is, so the home asks again.

use corelane_engine::QueueId;
use corelane_mailbox::Lane;

use super::channel::{ChannelFault, ChannelMail, ChannelRef};
use super::queues::Declaration;
use crate::Shard;
use crate::connection::QueueAt;
use crate::effect::Effect;
use crate::event::ConnectionSlot;
use crate::mail::{ConnectionId, Mail};
use crate::protocol::Protocol;

/// A queue of a connection, declared by another one.
#[derive(Debug)]
pub struct Redeclaration {
    pub(super) owner: ConnectionId,
    /// The shard of the channel that declares it.
    pub(super) to: usize,
    pub(super) channel: ChannelRef,
    pub(super) name: Box<str>,
    pub(super) declaration: Box<Declaration>,
}

#[derive(Debug)]
pub enum OwnerMail {
    /// To the owner's shard.
    Ask(Box<Redeclaration>),
    /// Back, behind the end of what the owner had.
    Lives { asked: Box<Redeclaration>, lives: bool },
    /// To a queue's home: its owner goes to another shard.
    Moves { queue: QueueId, to: usize },
}

/// Why a connection ends whose client is there again.
const SILENT: &str = "a heartbeat was missed, and another connection declares a queue of this one";

impl Shard {
    /// The connection that a queue belongs to, if it is another one than this.
    pub(super) fn other_owner(&self, connection: ConnectionId, name: &str) -> Option<ConnectionId> {
        let node = self.queues.get(self.queues.find(name)?)?;
        node.owner.filter(|owner| *owner != connection)
    }

    pub(super) fn ask_owner(&mut self, now: u64, asked: Redeclaration) {
        let queue = self.queues.find(&asked.name).and_then(|queue| self.queues.get(queue));
        let at = queue.map_or(self.index, |node| node.owner_at);
        if at == self.index {
            self.look_for_owner(now, at, Box::new(asked));
        } else {
            self.post_owner(at, OwnerMail::Ask(Box::new(asked)));
        }
    }

    pub(super) fn on_owner_mail(&mut self, now: u64, from: usize, mail: OwnerMail) {
        match mail {
            OwnerMail::Ask(asked) => self.look_for_owner(now, from, asked),
            OwnerMail::Lives { asked, lives } => self.on_owner_answered(now, *asked, lives),
            OwnerMail::Moves { queue, to } => self.on_owner_moves(queue, to),
        }
    }

    /// Tells a queue's home whether its owner lives, at once unless the owner's socket has to be looked at first.
    fn look_for_owner(&mut self, now: u64, home: usize, asked: Box<Redeclaration>) {
        if let Some(slot) = self.slot_of(asked.owner)
            && self.connections.get_mut(slot).is_some_and(|owner| owner.reading_stopped && !owner.closing)
        {
            self.owners_probed.push((slot, home, asked));
            self.effects.push(Effect::Probe { connection: slot });
        } else {
            self.tell_of_owner(now, home, asked);
        }
    }

    /// A socket was looked at.
    pub(crate) fn on_probed(&mut self, now: u64, connection: ConnectionSlot) {
        let (probed, others) =
            std::mem::take(&mut self.owners_probed).into_iter().partition(|(slot, ..)| *slot == connection);
        self.owners_probed = others;
        for (_, home, asked) in probed {
            self.tell_of_owner(now, home, asked);
        }
    }

    fn tell_of_owner(&mut self, now: u64, home: usize, asked: Box<Redeclaration>) {
        let lives = self.is_owner_alive(now, asked.owner);
        if home == self.index {
            self.on_owner_answered(now, *asked, lives);
        } else {
            self.post_owner(home, OwnerMail::Lives { asked, lives });
        }
    }

    /// Whether the connection is here and lives. If its peer may be gone, it is closed.
    fn is_owner_alive(&mut self, now: u64, owner: ConnectionId) -> bool {
        let Some(slot) = self.slot_of(owner) else { return false };
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let is_silent = match &connection.protocol {
            Protocol::Amqp091(protocol) => protocol.is_silent(now),
            Protocol::Amqp10(_) => false,
        };
        if is_silent && !connection.closing {
            self.counters.owners_closed += 1;
            self.close_forced(now, slot, SILENT);
        }
        self.connections.get_mut(slot).is_some_and(|connection| !connection.closing)
    }

    fn on_owner_answered(&mut self, now: u64, asked: Redeclaration, lives: bool) {
        let asks_nobody =
            self.shards == 1 && self.other_owner(asked.channel.connection, &asked.name).is_some();
        if lives || asks_nobody {
            let (mark, fault) = (self.said(), ChannelFault::locked(&asked.name));
            self.answer_channel(now, mark, asked.to, asked.channel, Err(fault));
            return;
        }
        if let Some(owner) = self.other_owner(asked.channel.connection, &asked.name) {
            // The connection is on its way to another shard, or the queue is another one by now.
            self.ask_again(now, Redeclaration { owner, ..asked });
            return;
        }
        let Redeclaration { to, channel, name, declaration, .. } = asked;
        let mark = self.said();
        let result = self.declare_0_9_1(now, (to, channel), &name, *declaration);
        self.answer_channel(now, mark, to, channel, result);
    }

    fn ask_again(&mut self, now: u64, asked: Redeclaration) {
        let queue = self.queues.find(&asked.name).and_then(|queue| self.queues.get(queue));
        let comes_here = queue.is_some_and(|node| node.owner_at == self.index);
        if comes_here && self.slot_of(asked.owner).is_none() {
            // It takes as long as a mail to another shard and back.
            let other = (self.index + 1) % self.shards;
            self.post_owner(other, OwnerMail::Ask(Box::new(asked)));
        } else {
            self.ask_owner(now, asked);
        }
    }

    /// A connection goes to another shard: the homes of its queues are told.
    pub(crate) fn announce_owner(&mut self, slot: ConnectionSlot, to: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        for QueueAt { shard, queue } in connection.channels.exclusive.clone() {
            if shard == self.index {
                self.on_owner_moves(queue, to);
            } else {
                self.post_owner(shard, OwnerMail::Moves { queue, to });
            }
        }
    }

    fn on_owner_moves(&mut self, queue: QueueId, to: usize) {
        if let Some(node) = self.queues.get_mut(queue) {
            node.owner_at = to;
        }
    }

    fn post_owner(&mut self, to: usize, mail: OwnerMail) {
        self.post(to, Lane::Control, Mail::Channel(ChannelMail::Owner(mail)));
    }
}
