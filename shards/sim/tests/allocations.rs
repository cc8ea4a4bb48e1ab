//! A message on the transient path costs the broker no allocation.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corelane_sim::HotPath;

struct Counting;

static COUNTED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(usize::from(COUNTED.load(Relaxed)), Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(usize::from(COUNTED.load(Relaxed)), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_message_costs_no_allocation() {
    for (size, batch) in [(0, 1), (100, 100), (1024, 1), (1024, 100)] {
        let mut path = HotPath::new(size);
        // Long enough for numbers to reach their larger encodings, and buffers with them.
        for _ in 0..400 {
            assert!(path.round(batch, |shard_part| shard_part()));
        }
        COUNT.store(0, Relaxed);
        for _ in 0..100 {
            let complete = path.round(batch, |shard_part| {
                COUNTED.store(true, Relaxed);
                shard_part();
                COUNTED.store(false, Relaxed);
            });
            assert!(complete);
        }
        assert_eq!(COUNT.load(Relaxed), 0, "{} messages of {size} B in batches of {batch}", batch * 100);
    }
}
