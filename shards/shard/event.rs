//! What comes in: everything a shard can learn from the world.
//!
//! The driver turns completions into events and hands them to [`Shard::apply`](crate::Shard::apply) one at a time. Events
//! borrow received bytes and own nothing else that the ring still uses.

use std::net::SocketAddr;

use corelane_journal::Write;

use crate::mail::Mail;

/// A connection's place in its shard. A stale one (the connection ended, the place was given to another) is recognised
/// by its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionSlot {
    /// Place in the shard's table of connections.
    pub index: u32,
    /// Raised each time the place is given out.
    pub generation: u32,
}

/// The driver's own name for a socket (a descriptor, or an index in a simulated network). A shard only carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket(pub u64);

/// What is known of the other end when a connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The connection came over the loopback interface.
    pub loopback: bool,
    /// For the log; none where there is no network.
    pub address: Option<SocketAddr>,
}

/// One thing that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A listener accepted a connection. Answered by [`Effect::Register`](crate::Effect::Register).
    Accepted { socket: Socket, peer: Peer },
    /// Bytes arrived.
    Received { connection: ConnectionSlot, bytes: &'a [u8] },
    /// All of a buffer taken by `take_output` was sent; it comes back for reuse.
    Flushed { connection: ConnectionSlot, buffer: Vec<u8> },
    /// The peer closed its side or the socket failed. Answered by [`Effect::Close`](crate::Effect::Close).
    Lost { connection: ConnectionSlot },
    /// [`Effect::Probe`](crate::Effect::Probe) was carried out. If its peer had hung up, [`Lost`](Event::Lost) has come before.
    Probed { connection: ConnectionSlot },
    /// Mail from another participant (a shard, or the control thread).
    Mail { from: usize, mail: Mail },
    /// What was to be written to the journal is written and synced, or the reason why not, after which nothing is written any more.
    Written { write: Write, result: Result<(), String> },
    /// A segment's file is there. `epoch` is random.
    SegmentPrepared { number: u32, epoch: u64 },
    /// A segment's file could not be made, most often for want of room.
    SegmentRefused { number: u32, reason: String },
    /// Bytes of a segment's file from `offset` on; none at its end.
    SegmentRead { number: u32, offset: u64, result: Result<&'a [u8], String> },
    /// What was asked for by [`Effect::ReadBodies`](crate::Effect::ReadBodies), all of it.
    BodiesRead { result: Result<&'a [u8], String> },
    /// Close every connection with `amqp:connection:forced` and report [`Effect::Stopped`](crate::Effect::Stopped).
    Stop,
}
