//! What can be asked of the kernel, and what does it answer?
//!
//! A safe face for an io_uring: accept and receive that go on and on, send, cancel, the doorbell, and writes to files with what
//! makes them durable. What an operation needs in memory is owned by the ring until the operation is complete.
//!
//! Invariants:
//! - an operation is named by its kind and by the key of its stream or the number of its listener; there is at most one
//!   receive, one send and one cancellation of a stream at a time, and one write to a file, so a name is never ambiguous;
//! - `in_flight` counts operations whose last completion has not been seen;
//! - what the kernel may still write to or read from is never freed, also when the ring is dropped.
#![expect(unsafe_code, reason = "the kernel reads and writes what submissions point to")]

use super::buffers::{Buffers, Filled};
use super::limits::{COMPLETIONS, SUBMISSIONS, WRITE_BYTES_MAX};
use crate::doorbell::Doorbell;
use corelane_journal::Write;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{SendFlags, SocketFlags};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Names a stream (a socket in use); a stale key is recognised by its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamKey {
    pub(super) index: u32,
    /// Below 2²⁴.
    pub(super) generation: u32,
}

/// Generations are counted modulo this.
pub(super) const GENERATIONS: u32 = 1 << 24;

/// What has happened.
#[derive(Debug)]
pub(super) enum Completion {
    /// Somebody connected, or the listener failed. Not armed: nothing more will come.
    Accepted { listener: u32, result: Result<OwnedFd, Errno>, armed: bool },
    /// Bytes arrived; `None`: the peer has closed its side. Not armed: nothing more will come.
    Received { stream: StreamKey, result: Result<Option<Filled>, Errno>, armed: bool },
    /// So many bytes were sent, counted from the offset that the send began with.
    Sent { stream: StreamKey, buffer: Vec<u8>, result: Result<usize, Errno> },
    /// The attempt to cancel a receive is over; the receive's own completion says what became of it.
    CancelDone { stream: StreamKey },
    /// The doorbell was rung. Not armed: it must be listened to again.
    Rung { armed: bool },
    /// The attempt to cancel an accept is over.
    AcceptCancelDone,
    /// So many bytes were written to a file, counted from where the write began.
    Written { write: Write, result: Result<usize, Errno> },
    /// The sync behind a write is over.
    Synced { result: Result<(), Errno> },
}

/// What makes a write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    /// The write itself.
    Write,
    /// A sync behind it, which is not made if not everything could be written.
    Fdatasync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    Accept = 1,
    Receive,
    Send,
    CancelReceive,
    Doorbell,
    CancelAccept,
    Write,
    Sync,
}

/// How task work is run, from the best to what any kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// In our own enters only (SINGLE_ISSUER, DEFER_TASKRUN, TASKRUN_FLAG).
    Deferred,
    /// At any of our system calls (COOP_TASKRUN, TASKRUN_FLAG).
    Cooperative,
}

/// An io_uring with its receive buffers and with what is being sent.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<Buffers>,
    /// By index of the stream.
    sending: ManuallyDrop<Vec<Option<Vec<u8>>>>,
    writing: ManuallyDrop<Option<Write>>,
    in_flight: usize,
    flavour: Flavour,
}

impl Ring {
    /// Belongs to the thread that makes it.
    pub(super) fn new() -> io::Result<Self> {
        let (ring, flavour) = match build(Flavour::Deferred) {
            Ok(ring) => (ring, Flavour::Deferred),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                (build(Flavour::Cooperative)?, Flavour::Cooperative)
            }
            Err(error) => return Err(error),
        };
        let buffers = Buffers::new(&ring)?;
        Ok(Ring {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            sending: ManuallyDrop::new(Vec::new()),
            writing: ManuallyDrop::new(None),
            in_flight: 0,
            flavour,
        })
    }

    pub(super) fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Accepts whoever connects, until it is cancelled or fails.
    pub(super) fn accept(&mut self, listener: u32, socket: BorrowedFd<'_>) {
        let flags = SocketFlags::CLOEXEC.bits() as i32;
        let entry = opcode::AcceptMulti::new(types::Fd(socket.as_raw_fd())).flags(flags).build();
        self.submit_later(entry, Operation::Accept, listener_key(listener));
    }

    pub(super) fn cancel_accept(&mut self, listener: u32) {
        let entry = opcode::AsyncCancel::new(user_data(Operation::Accept, listener_key(listener))).build();
        self.submit_later(entry, Operation::CancelAccept, listener_key(listener));
    }

    /// Receives whatever comes, until it is cancelled, fails or finds no buffer.
    pub(super) fn receive(&mut self, stream: StreamKey, socket: BorrowedFd<'_>) {
        let entry = self.buffers.receive(socket.as_raw_fd());
        self.submit_later(entry, Operation::Receive, stream);
    }

    pub(super) fn cancel_receive(&mut self, stream: StreamKey) {
        let entry = opcode::AsyncCancel::new(user_data(Operation::Receive, stream)).build();
        self.submit_later(entry, Operation::CancelReceive, stream);
    }

    /// Sends `buffer[offset..]`, or a part of it.
    pub(super) fn send(&mut self, stream: StreamKey, socket: BorrowedFd<'_>, buffer: Vec<u8>, offset: usize) {
        let rest = &buffer[offset..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let flags = (SendFlags::NOSIGNAL.bits() | WAIT_ALL) as i32;
        let entry =
            opcode::Send::new(types::Fd(socket.as_raw_fd()), rest.as_ptr(), length).flags(flags).build();
        let index = stream.index as usize;
        if self.sending.len() <= index {
            self.sending.resize_with(index + 1, || None);
        }
        // The vector moves, its bytes do not; nobody touches it until `complete` has taken it out again.
        assert!(self.sending[index].replace(buffer).is_none(), "one send at a time");
        self.submit_later(entry, Operation::Send, stream);
    }

    /// Writes `write.bytes()[from..]`, or a part of it, to its place in the file.
    pub(super) fn write(&mut self, file: BorrowedFd<'_>, write: Write, from: usize, through: Through) {
        let file = types::Fd(file.as_raw_fd());
        let rest = &write.bytes()[from..];
        let length = rest.len().min(WRITE_BYTES_MAX) as u32;
        let flags = match through {
            Through::Write => ReadWriteFlags::DSYNC.bits().cast_signed(),
            Through::Fdatasync => 0,
        };
        let entry = opcode::Write::new(file, rest.as_ptr(), length)
            .offset(write.offset + from as u64)
            .rw_flags(flags)
            .build();
        // Its bytes do not move with it; nobody touches them until `complete` has taken it out again.
        assert!(self.writing.replace(write).is_none(), "one write at a time");
        match through {
            Through::Write => self.submit_later(entry, Operation::Write, listener_key(0)),
            Through::Fdatasync => {
                let sync = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build();
                self.submit_linked(entry, sync);
            }
        }
    }

    /// Tells of every ring of the doorbell, until that is said not to be so any more.
    pub(super) fn listen_to(&mut self, doorbell: &Doorbell) {
        let descriptor = types::Fd(doorbell.descriptor().as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, PollFlags::IN.bits().into()).multi(true).build();
        self.submit_later(entry, Operation::Doorbell, listener_key(0));
    }

    /// The next completion, if there is one.
    pub(super) fn complete(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let armed = cqueue::more(entry.flags());
        if !armed {
            self.in_flight -= 1;
        }
        let (operation, stream) = from_user_data(entry.user_data());
        let result = if entry.result() < 0 {
            Err(Errno::from_raw_os_error(-entry.result()))
        } else {
            Ok(entry.result() as usize)
        };
        Some(match operation {
            Operation::Accept => {
                // SAFETY: a successful accept returns a new descriptor that is nobody's yet.
                let result = result.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor as i32) });
                Completion::Accepted { listener: stream.index, result, armed }
            }
            Operation::Receive => {
                let filled = match (cqueue::buffer_select(entry.flags()), &result) {
                    (Some(index), Ok(size)) => Some(self.buffers.take(index, *size)),
                    (Some(index), Err(_)) => Some(self.buffers.take(index, 0)),
                    (None, _) => None,
                };
                let result = match (result, filled) {
                    (Ok(size), Some(filled)) if size > 0 => Ok(Some(filled)),
                    (result, filled) => {
                        if let Some(filled) = filled {
                            self.buffers.lend(filled);
                        }
                        result.map(|_| None)
                    }
                };
                Completion::Received { stream, result, armed }
            }
            Operation::Send => {
                let buffer = self.sending[stream.index as usize].take();
                Completion::Sent {
                    stream,
                    buffer: buffer.expect("a send in flight has its buffer here"),
                    result,
                }
            }
            Operation::CancelReceive => Completion::CancelDone { stream },
            Operation::CancelAccept => Completion::AcceptCancelDone,
            Operation::Doorbell => Completion::Rung { armed },
            Operation::Write => {
                let write = self.writing.take();
                Completion::Written { write: write.expect("a write in flight has its bytes here"), result }
            }
            Operation::Sync => Completion::Synced { result: result.map(|_| ()) },
        })
    }

    pub(super) fn bytes<'a>(&'a self, filled: &'a Filled) -> &'a [u8] {
        self.buffers.bytes(filled)
    }

    /// Gives a receive buffer back.
    pub(super) fn lend(&mut self, filled: Filled) {
        self.buffers.lend(filled);
    }

    /// Whether [`Ring::complete`] has something, or will have after [`Ring::submit`]. Cheap: two loads.
    pub(super) fn is_ready(&mut self) -> bool {
        if !self.ring.completion().is_empty() {
            return true;
        }
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// Hands over what was asked for, and has the kernel bring in what has happened. No system call if there is neither.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        let submission = self.ring.submission();
        if submission.is_empty() && !submission.taskrun() && !submission.cq_overflow() {
            return Ok(());
        }
        drop(submission);
        tolerate(self.ring.submitter().submit_and_wait(0))
    }

    /// Hands over what was asked for and sleeps until there is a completion, at most for so long.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        tolerate(self.ring.submitter().submit_with_args(1, &arguments))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit_later(&mut self, entry: squeue::Entry, operation: Operation, key: StreamKey) {
        let entry = entry.user_data(user_data(operation, key));
        // SAFETY: what the entry points to lives until its completion: receive buffers are never freed while an operation
        // is in flight (see `drop`), bytes to send lie in `sending`, those to write in `writing`; other operations point to
        // nothing.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // Full: make room. If the kernel cannot take any for now, it can when completions have been harvested.
            tolerate(self.ring.submitter().submit_and_wait(0))
                .expect("a ring that was set up takes submissions");
        }
        self.in_flight += 1;
    }

    /// A write, and a sync that begins when all of it is written. Both are handed over at once: a chain ends with what is.
    fn submit_linked(&mut self, write: squeue::Entry, sync: squeue::Entry) {
        let key = listener_key(0);
        let write = write.flags(squeue::Flags::IO_LINK).user_data(user_data(Operation::Write, key));
        let chain = [write, sync.user_data(user_data(Operation::Sync, key))];
        // SAFETY: as in `submit_later`: what is written lies in `writing`.
        while unsafe { self.ring.submission().push_multiple(&chain) }.is_err() {
            tolerate(self.ring.submitter().submit_and_wait(0))
                .expect("a ring that was set up takes submissions");
        }
        self.in_flight += chain.len();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: none of the four is used after this.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            // Closing the ring does not wait for what is in flight, so that memory stays where it is.
            if self.in_flight == 0 {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sending);
                ManuallyDrop::drop(&mut self.writing);
            }
        }
    }
}

/// Send all of it, as long as that does not fail (MSG_WAITALL).
const WAIT_ALL: u32 = 0x100;

fn build(flavour: Flavour) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_submit_all().setup_cqsize(COMPLETIONS).setup_taskrun_flag();
    match flavour {
        Flavour::Deferred => builder.setup_single_issuer().setup_defer_taskrun(),
        Flavour::Cooperative => builder.setup_coop_taskrun(),
    };
    let ring = builder.build(SUBMISSIONS)?;
    let parameters = ring.params();
    if !(parameters.is_feature_nodrop()
        && parameters.is_feature_ext_arg()
        && parameters.is_feature_fast_poll())
    {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(ring)
}

/// Errors of an enter that mean no more than that it is over.
fn tolerate(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            // The time is over; a signal; completions wait for room; memory is short: all of that passes.
            Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

fn listener_key(listener: u32) -> StreamKey {
    StreamKey { index: listener, generation: 0 }
}

fn user_data(operation: Operation, key: StreamKey) -> u64 {
    debug_assert!(key.generation < GENERATIONS);
    (operation as u64) << 56 | u64::from(key.generation) << 32 | u64::from(key.index)
}

fn from_user_data(user_data: u64) -> (Operation, StreamKey) {
    let operation = match user_data >> 56 {
        1 => Operation::Accept,
        2 => Operation::Receive,
        3 => Operation::Send,
        4 => Operation::CancelReceive,
        5 => Operation::Doorbell,
        6 => Operation::CancelAccept,
        7 => Operation::Write,
        8 => Operation::Sync,
        other => unreachable!("no operation of ours is named {other}"),
    };
    let key = StreamKey { index: user_data as u32, generation: (user_data >> 32) as u32 % GENERATIONS };
    (operation, key)
}
