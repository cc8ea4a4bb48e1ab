//! The generator allocates nothing per message while it measures.
#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]
#![expect(unsafe_code, reason = "a global allocator is unsafe to write")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use corelane_bench::client::Protocol;
use corelane_bench::clock::{Phase, Timing};
use corelane_bench::error::BenchError;
use corelane_bench::pingpong::Connections;
use corelane_bench::sample::Sample;
use corelane_bench::scene::Pace;
use corelane_bench::scenes::Kind;
use corelane_bench::schedule::{Arrivals, Profile, Schedule};
use corelane_bench::traffic::{Flow, Settle};
use corelane_bench::url::Url;
use corelane_bench::{pingpong, saturate, scenes};

use support::{Behaviour, FakeBroker};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread by itself, so that the fake broker's do not matter.
struct Counting;

// SAFETY: every call is passed on unchanged; the count is a constant-initialised cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A list of unsettled deliveries may still grow to its full length, by doubling, if the warm-up was too slow for that.
const GROWTH_MAX: u64 = 8;

#[test]
fn nothing_is_allocated_while_it_measures() {
    let mut timing = Timing {
        warmup: Duration::from_millis(300),
        duration: Duration::from_millis(300),
        patience: Duration::from_secs(2),
    };
    let broker = FakeBroker::start(Behaviour::default());
    let url = Url::local(broker.address);
    for protocol in [Protocol::Amqp10, Protocol::Amqp091] {
        for settle in [Settle::Pre, Settle::Batch] {
            for size in [100, 1024, 16 << 10] {
                let flow = Flow {
                    protocol,
                    queue: "q".to_owned(),
                    size,
                    settle,
                    window: 256,
                    run: 1,
                    durable: false,
                };
                for workload in ["pingpong", "saturate", "open-loop"] {
                    check(&url, &flow, workload, &mut timing);
                }
            }
        }
    }
}

fn open_loop(
    url: &Url,
    flow: &Flow,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let scene = scenes::set_up(url, flow, Kind::Queue).unwrap();
    let profile = Profile { rates: vec![200.0, 400.0], arrivals: Arrivals::Poisson };
    let now = scene.clock.now_ns();
    let begin = now + timing.warmup.as_nanos() as u64;
    let schedule = Schedule::new(profile, now, begin, timing.duration.as_nanos() as u64, 1);
    scene.run(Pace::Timed(schedule), timing, watch)
}

fn check(url: &Url, flow: &Flow, workload: &str, timing: &mut Timing) {
    let mut counts = [0; 2];
    // On a machine that is busy otherwise it takes longer until there is something to see.
    loop {
        let mut watch = |phase: Phase| {
            counts[usize::from(phase == Phase::Measured)] = COUNT.with(Cell::get);
        };
        let sample = match workload {
            "pingpong" => pingpong::run(url, flow, Connections::Two, timing, &mut watch),
            "open-loop" => open_loop(url, flow, timing, &mut watch),
            _ => saturate::run(url, flow, 1, 1, timing, &mut watch),
        };
        let sample = sample.unwrap();
        assert_eq!(sample.counts.fault(), None);
        if sample.count > 2 * GROWTH_MAX {
            break;
        }
        timing.duration *= 2;
        assert!(timing.duration < Duration::from_secs(60), "{flow:?} {workload}: {} messages", sample.count);
    }
    let allocated = counts[1] - counts[0];
    assert!(allocated <= GROWTH_MAX, "{flow:?} {workload}: {allocated} allocations");
}
