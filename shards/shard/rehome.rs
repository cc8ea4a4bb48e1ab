//! How does a connection move to the shard that owns its first consumer's queue?
//!
//! It is held (its input waits), until no other shard owes it an answer and all its output is sent; then the driver stops
//! receiving and the whole connection travels in one mail, with its socket. No answer is in flight to it at that moment, so nothing
//! has to be forwarded; the homes of its producers' queues are told where it is, and say again what may have missed it. It moves once: later consumers elsewhere are targets.

use corelane_mailbox::Lane;
use corelane_protocol::amqp10::LinkId;

use crate::Shard;
use crate::connection::Hold;
use crate::effect::Effect;
use crate::event::{ConnectionSlot, Socket};
use crate::mail::{Adopted, Mail};
use crate::shard::SHUTTING_DOWN;

impl Shard {
    /// Begins the move that answers the attach of `link`.
    pub(crate) fn start_move(&mut self, slot: ConnectionSlot, link: LinkId, to: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        debug_assert!(!connection.settled_down && connection.hold.is_none());
        connection.settled_down = true;
        connection.hold = Some(Hold::Move { to, link });
        self.touch(slot);
        self.moving.push(slot);
    }

    /// Lets those connections go that have nothing left to wait for. Called when a turn ends, when output is known.
    pub(crate) fn try_moves(&mut self) {
        let mut moving = std::mem::take(&mut self.moving);
        moving.retain(|&slot| {
            let Some(connection) = self.connections.get_mut(slot) else { return false };
            let quiet = connection.unanswered == 0 && connection.unsent_bytes() == 0;
            if quiet && !connection.closing {
                self.effects.push(Effect::HandOver { connection: slot });
            }
            !quiet
        });
        self.moving = moving;
    }

    /// The driver has stopped receiving on the connection and applied all that had arrived: it goes, with its socket.
    /// False if it has ended meanwhile; then the socket is closed as its [`Effect::Close`] says.
    pub fn release(&mut self, slot: ConnectionSlot, socket: Socket) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let Some(Hold::Move { to, .. }) = connection.hold else { return false };
        if connection.closing {
            return false;
        }
        self.announce_owner(slot, to);
        let Some(mut connection) = self.connections.remove(slot) else { return false };
        self.forget_assembly(&mut connection);
        let adopted = Box::new(Adopted { connection, socket });
        self.effects.push(Effect::Post { to, lane: Lane::Control, mail: Mail::Adopt(adopted) });
        true
    }

    pub(crate) fn on_adopt(&mut self, now: u64, adopted: Adopted) {
        let Adopted { mut connection, socket } = adopted;
        let Some(Hold::Move { to, link }) = connection.hold else {
            unreachable!("only a connection that moves is sent")
        };
        debug_assert_eq!(to, self.index);
        self.counters.connections_adopted += 1;
        connection.reading_stopped = false;
        connection.protocol.set_reading(now, true);
        connection.touched = false;
        connection.flush_requested = false;
        connection.timer_at = None;
        let slot = self.connections.insert(connection);
        self.count_assembly(slot);
        self.effects.push(Effect::Register { connection: slot, socket });
        self.touch(slot);
        if self.is_stopping() {
            self.close_forced(now, slot, SHUTTING_DOWN);
            return;
        }
        self.announce_producers(slot);
        self.tell_alarm(slot);
        self.attach_consumer_here(now, slot, link);
        self.release_hold(now, slot);
    }
}
