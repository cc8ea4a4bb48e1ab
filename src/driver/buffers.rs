//! Where do received bytes live until the shard has seen them?
//!
//! In a fixed set of buffers that a ring of the kernel's own kind lends out: a receive takes one when bytes are there, its
//! completion names it, and it goes back when the shard has been applied to its bytes.
//!
//! Invariant: a buffer is either lent (the kernel may write to it, nobody here looks at it) or ours, never both.
#![expect(unsafe_code, reason = "the kernel reads and writes this memory")]

use super::limits::{RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS};
use io_uring::types::BufRingEntry;
use io_uring::{IoUring, opcode};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

const PAGE: usize = 4096;
const COUNT: usize = RECEIVE_BUFFERS as usize;
const _: () = assert!(COUNT.is_power_of_two());

/// The number of the only group of buffers in a ring.
pub(super) const GROUP: u16 = 0;

/// The receive buffers of one shard.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    /// Entries ever written; the kernel sees the lower 16 bits.
    tail: u16,
    lent: Box<[bool]>,
}

/// A buffer that came back from the ring, filled. Give it back with [`Buffers::lend`].
#[derive(Debug)]
pub(super) struct Filled {
    index: u16,
    size: usize,
}

impl Buffers {
    /// Makes the buffers and lends all of them to the ring.
    pub(super) fn new(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: neither layout is of size zero.
        let (entries, bytes) = unsafe { (allocate(entries_layout()), allocate(bytes_layout())) };
        let lent = vec![false; COUNT].into_boxed_slice();
        let mut buffers = Buffers { entries: entries.cast(), bytes, tail: 0, lent };
        // SAFETY: the address is aligned to a page and has room for that many entries, all zero. It is freed by `drop`
        // alone, which the owner (`Ring`) calls when the ring is gone and had no receive in flight.
        unsafe {
            let address = buffers.entries.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(address, RECEIVE_BUFFERS, GROUP, 0)?;
        }
        for index in 0..RECEIVE_BUFFERS {
            buffers.lend_index(index);
        }
        Ok(buffers)
    }

    /// The receive that goes on and on and takes a buffer of these each time.
    pub(super) fn receive(&self, socket: std::os::fd::RawFd) -> io_uring::squeue::Entry {
        opcode::RecvMulti::new(io_uring::types::Fd(socket), GROUP).build()
    }

    /// A completion has named this buffer: it is ours now.
    pub(super) fn take(&mut self, index: u16, size: usize) -> Filled {
        let lent = std::mem::replace(&mut self.lent[index as usize], false);
        assert!(
            lent && size <= RECEIVE_BUFFER_BYTES,
            "the kernel fills a buffer that it has, within its bounds"
        );
        Filled { index, size }
    }

    /// What was received.
    pub(super) fn bytes<'a>(&'a self, filled: &'a Filled) -> &'a [u8] {
        assert!(!self.lent[filled.index as usize]);
        // SAFETY: the buffer lies within the allocation, was zeroed when it was made, and is ours: the kernel writes to
        // none that is not lent. It cannot be lent while the slice lives, which borrows `self`.
        unsafe {
            let start = self.bytes.add(filled.index as usize * RECEIVE_BUFFER_BYTES);
            std::slice::from_raw_parts(start.as_ptr(), filled.size)
        }
    }

    /// Gives a buffer back to the ring.
    pub(super) fn lend(&mut self, filled: Filled) {
        self.lend_index(filled.index);
    }

    fn lend_index(&mut self, index: u16) {
        assert!(!std::mem::replace(&mut self.lent[index as usize], true), "a buffer is lent once");
        let place = self.tail as usize & (COUNT - 1);
        // SAFETY: `place` is within the entries. The kernel reads an entry only between the tail that we publish below
        // and its own head, and as at most `COUNT` buffers are lent it has read this one. The fields are written one by
        // one because the tail lies in the unused field of the first entry. The tail is aligned, and written by us alone.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(place);
            entry.set_addr(self.bytes.add(index as usize * RECEIVE_BUFFER_BYTES).as_ptr() as u64);
            entry.set_len(RECEIVE_BUFFER_BYTES as u32);
            entry.set_bid(index);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries.as_ptr());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: both were allocated with these layouts, and nobody refers to them: `Ring` forgets the buffers instead of
        // dropping them while a receive may be in flight.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries_layout());
            dealloc(self.bytes.as_ptr(), bytes_layout());
        }
    }
}

fn entries_layout() -> Layout {
    layout(COUNT * size_of::<BufRingEntry>())
}

fn bytes_layout() -> Layout {
    layout(COUNT * RECEIVE_BUFFER_BYTES)
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, PAGE).expect("a few megabytes, aligned to a power of two")
}

/// # Safety
/// The layout's size is not zero.
unsafe fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: promised by the caller.
    let pointer = unsafe { alloc_zeroed(layout) };
    NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout))
}
