//! A message on the transient path costs the broker no allocation, and a queue that nobody uses little memory.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corelane_shard::DestinationRule;
use corelane_sim::{HotPath, SenderOptions, Setup, World};
use corelane_wire::amqp10::{Header, Properties};

struct Counting;

static COUNTED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Bytes that are allocated.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(usize::from(COUNTED.load(Relaxed)), Relaxed);
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(usize::from(COUNTED.load(Relaxed)), Relaxed);
        LIVE.fetch_add(size, Relaxed);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_message_costs_no_allocation() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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

/// So many that what tables have in reserve is the same before and after: they double.
const QUEUES: usize = 8192;

#[test]
fn a_queue_that_was_used_and_is_not_takes_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut world = World::new(&Setup { verify: false, ..Setup::new(1) });
    let client = world.connect(0);
    let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
    let sender = world.clients[client].attach_sender("s", "", &options);
    world.run();
    // Messages that are gone a millisecond later: all that stays is the queues.
    let mut use_queues = |from: usize, to: usize| {
        for n in from..to {
            let to = format!("queue.{n}");
            let properties = Properties { to: Some(&to), ..Properties::default() };
            let header = Header { ttl: Some(1), ..Header::default() };
            world.clients[client].send_with(sender, "m", &properties, &[], &header);
            if n % 100 == 0 {
                world.run();
            }
        }
        world.run();
        world.advance(10_000_000);
        world.clients[client].outcomes = Vec::new();
        assert_eq!((world.shards[0].queue_count(), world.shards[0].memory_used()), (to, 0));
        LIVE.load(Relaxed)
    };
    let before = use_queues(0, QUEUES / 8);
    let after = use_queues(QUEUES / 8, QUEUES);
    let each = after.saturating_sub(before) / (QUEUES - QUEUES / 8);
    assert!(each <= 2304, "{each} B");
}

#[test]
fn a_queue_that_was_deleted_leaves_hardly_any_memory_behind() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let idle = DestinationRule {
        pattern: "queue.>".to_owned(),
        idle_expiry_us: Some(1_000_000),
        ..DestinationRule::default()
    };
    let mut world = World::new(&Setup { verify: false, rules: vec![idle], ..Setup::new(1) });
    let client = world.connect(0);
    let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
    let sender = world.clients[client].attach_sender("s", "", &options);
    world.run();
    let before = LIVE.load(Relaxed);
    for n in 0..QUEUES {
        let to = format!("queue.{n}");
        let properties = Properties { to: Some(&to), ..Properties::default() };
        world.clients[client].send_with(sender, "m", &properties, &[], &Header::default());
        if n % 100 == 0 {
            world.run();
        }
    }
    // The last one is still used, so tables cannot simply be as short as they were.
    world.clients[client].attach_sender("last", &format!("queue.{}", QUEUES - 1), &SenderOptions::default());
    world.run();
    let full = LIVE.load(Relaxed);
    for _ in 0..100 {
        world.advance(1_000_000);
    }
    world.clients[client].outcomes = Vec::new();
    assert_eq!(world.shards[0].queue_count(), 1);
    let left = LIVE.load(Relaxed).saturating_sub(before) / QUEUES;
    // Of that, a good part are the spare chunks, however many queues there were.
    assert!(left <= 800, "{left} B of {}", (full - before) / QUEUES);
}
