//! What goes out: everything a shard can ask of the world.
//!
//! Effects gather in a buffer that is reused; the driver carries them out in order after each batch of events.

use corelane_journal::{Spare, Write};
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
    /// Look whether the peer of a socket that is not read has hung up. Answered by [`Event::Probed`](crate::Event::Probed), at once.
    Probe { connection: ConnectionSlot },
    /// The connection moves to another shard: stop receiving, apply what has still arrived, then call
    /// [`Shard::release`](crate::Shard::release).
    HandOver { connection: ConnectionSlot },
    /// Put mail into a lane to another participant.
    Post { to: usize, lane: Lane, mail: Mail },
    /// Write these bytes to their segment's file and sync them: [`Event::Written`](crate::Event::Written). One at a time.
    Write { write: Write },
    /// Make the file of this segment, with all blocks allocated and written once; or make it so long, with all blocks allocated, if it is
    /// there and nothing was written in it:
    /// [`Event::SegmentPrepared`](crate::Event::SegmentPrepared) or [`Event::SegmentRefused`](crate::Event::SegmentRefused).
    PrepareSegment { spare: Spare },
    /// Read some of this segment's file from `offset` on: [`Event::SegmentRead`](crate::Event::SegmentRead). One at a time.
    ReadSegment { number: u32, offset: u64 },
    /// Read exactly these bytes of this segment's file: [`Event::BodiesRead`](crate::Event::BodiesRead). One at a time, and before files are
    /// freed that it was told of later.
    ReadBodies { number: u32, offset: u32, length: u32 },
    /// The files of these segments hold nothing any more: delete them, or prepare others from them.
    FreeSegments { numbers: Vec<u32> },
    /// Everything that was there before is there again: connections may come. Once.
    Ready,
    /// Say this to who runs the broker.
    Warn { text: String },
    /// After [`Event::Stop`](crate::Event::Stop): the last connection is closed.
    Stopped,
}
