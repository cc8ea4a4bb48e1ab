//! What goes out: everything a shard can ask of the world.
//!
//! Effects gather in a buffer that is reused; the driver carries them out in order after each batch of events.

use corelane_mailbox::Lane;

use crate::event::{ConnectionSlot, Socket};
use crate::mail::Mail;

/// One thing the driver shall do.
#[derive(Debug)]
pub enum Effect {
    /// Start receiving on this socket; its events carry this slot. Follows an accepted or an adopted connection.
    Register { connection: ConnectionSlot, socket: Socket },
    /// Output is waiting: when no send is in flight on the connection, `take_output` it and send all of it.
    Flush { connection: ConnectionSlot },
    /// Send what is waiting, then close the socket. The slot is not used again with this generation.
    Close { connection: ConnectionSlot },
    /// Stop receiving (back-pressure), or start again.
    Reading { connection: ConnectionSlot, on: bool },
    /// The connection moves to another shard: stop receiving, apply what has still arrived, then call
    /// [`Shard::release`](crate::Shard::release).
    HandOver { connection: ConnectionSlot },
    /// Put mail into a lane to another participant.
    Post { to: usize, lane: Lane, mail: Mail },
    /// Say this to who runs the broker.
    Warn { text: String },
    /// After [`Event::Stop`](crate::Event::Stop): the last connection is closed.
    Stopped,
}
