//! What is each socket doing?
//!
//! A *stream* is a socket in use, with the operations it has in the ring. Its place in this table is not the connection's
//! slot: the shard forgets a connection when its last output is taken, while its socket still has to be closed in peace.
//!
//! Invariants:
//! - at most one receive, one cancellation and one send of a stream are in flight;
//! - a stream leaves the table, and its descriptor is closed or handed over, when it has none in flight; so a completion
//!   always finds its stream;
//! - phases go forward only: open → (moving →) closing → lingering → ending, save that a move may be called off.

use super::ring::{GENERATIONS, StreamKey};
use corelane_shard::ConnectionSlot;
use std::os::fd::OwnedFd;

/// A socket in use.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: OwnedFd,
    pub(super) connection: ConnectionSlot,
    pub(super) phase: Phase,
    pub(super) receive: Receive,
    /// A cancellation of the receive is in flight.
    pub(super) cancelling: bool,
    pub(super) send: Send,
    /// The shard wants its bytes.
    pub(super) reading: bool,
    /// The shard has output that was not taken.
    pub(super) flush_due: bool,
    /// The shard was told that the connection is lost.
    pub(super) lost: bool,
    /// Nothing can be sent any more.
    pub(super) broken: bool,
    /// When the present phase must be over; without meaning while open.
    pub(super) deadline: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Bytes go both ways.
    Open,
    /// Goes to another shard when nothing is in flight.
    Moving,
    /// The shard is done with it: what is in flight and its last output are still sent, what comes in is ignored.
    Closing {
        /// The shard has given its last output.
        taken: bool,
    },
    /// All is sent and the peer was told so; what comes in is ignored until it closes, too.
    Lingering,
    /// Is closed when nothing is in flight.
    Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    Idle,
    InFlight,
    /// Found no buffer, and stands in line for another try.
    Starved,
    /// The peer has closed its side, or receiving failed.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Send {
    Idle,
    /// From this offset of the buffer.
    InFlight {
        offset: usize,
    },
}

impl Stream {
    fn new(socket: OwnedFd, connection: ConnectionSlot) -> Self {
        Stream {
            socket,
            connection,
            phase: Phase::Open,
            receive: Receive::Idle,
            cancelling: false,
            send: Send::Idle,
            reading: true,
            flush_due: false,
            lost: false,
            broken: false,
            deadline: 0,
        }
    }

    /// Whether no operation in the ring refers to it.
    pub(super) fn is_quiet(&self) -> bool {
        self.receive != Receive::InFlight && self.send == Send::Idle && !self.cancelling
    }

    /// Whether the shard still knows its connection.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Moving)
    }

    /// Whether bytes are to be received, be it to ignore them.
    pub(super) fn wants_bytes(&self) -> bool {
        match self.phase {
            Phase::Open => self.reading,
            Phase::Closing { .. } | Phase::Lingering => true,
            Phase::Moving | Phase::Ending => false,
        }
    }
}

/// All streams of a shard.
#[derive(Debug, Default)]
pub(super) struct Streams {
    places: Vec<(u32, Option<Stream>)>,
    free: Vec<u32>,
    /// By the slot's index: the stream of the connection that has it.
    by_connection: Vec<Option<StreamKey>>,
    count: usize,
}

impl Streams {
    pub(super) fn insert(&mut self, socket: OwnedFd, connection: ConnectionSlot) -> StreamKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, place) = &mut self.places[index as usize];
        assert!(place.is_none());
        *place = Some(Stream::new(socket, connection));
        let key = StreamKey { index, generation: *generation };
        let slot = connection.index as usize;
        if self.by_connection.len() <= slot {
            self.by_connection.resize(slot + 1, None);
        }
        self.by_connection[slot] = Some(key);
        self.count += 1;
        key
    }

    pub(super) fn remove(&mut self, key: StreamKey) -> Stream {
        let (generation, place) = &mut self.places[key.index as usize];
        assert_eq!(*generation, key.generation);
        let stream = place.take().expect("a key of this generation has its stream");
        assert!(stream.is_quiet(), "the ring still refers to this socket");
        *generation = (*generation + 1) % GENERATIONS;
        self.free.push(key.index);
        let slot = &mut self.by_connection[stream.connection.index as usize];
        if *slot == Some(key) {
            *slot = None;
        }
        self.count -= 1;
        stream
    }

    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        match self.places.get_mut(key.index as usize) {
            Some((generation, Some(stream))) if *generation == key.generation => Some(stream),
            Some(_) | None => None,
        }
    }

    /// A stream that must be here, because an operation of it is in flight or it was looked up just now.
    pub(super) fn present(&mut self, key: StreamKey) -> &mut Stream {
        self.get_mut(key).expect("a stream stays in the table while an operation of it is in flight")
    }

    /// The stream of a connection that the shard knows.
    pub(super) fn of_connection(&mut self, connection: ConnectionSlot) -> Option<(StreamKey, &mut Stream)> {
        let key = (*self.by_connection.get(connection.index as usize)?)?;
        let stream = self.get_mut(key)?;
        (stream.connection == connection && stream.is_known()).then_some((key, stream))
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}
