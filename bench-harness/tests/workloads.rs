//! Workloads against a broker whose faults and delays are known: all of them must be reported as they are.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

mod support;

use std::time::Duration;

use corelane_bench::client::Protocol;
use corelane_bench::clock::{Phase, Timing};
use corelane_bench::error::BenchError;
use corelane_bench::message::Template;
use corelane_bench::pingpong::Connections;
use corelane_bench::sample::Sample;
use corelane_bench::scene::Pace;
use corelane_bench::scenes::Kind;
use corelane_bench::schedule::{Arrivals, Profile, Schedule};
use corelane_bench::traffic::{Flow, Settle};
use corelane_bench::url::Url;
use corelane_bench::{backlog, durable, pingpong, saturate, scenes};

use support::{Behaviour, FakeBroker};

const TIMING: Timing = Timing {
    warmup: Duration::from_millis(20),
    duration: Duration::from_millis(200),
    patience: Duration::from_secs(2),
};

const BOTH: [Protocol; 2] = [Protocol::Amqp10, Protocol::Amqp091];

fn flow(size: usize, settle: Settle) -> Flow {
    flow_in(Protocol::Amqp10, size, settle)
}

fn flow_in(protocol: Protocol, size: usize, settle: Settle) -> Flow {
    Flow { protocol, queue: "q".to_owned(), size, settle, window: 64, run: 0x1234, durable: false }
}

fn ping(broker: &FakeBroker, flow: &Flow) -> Result<Sample, BenchError> {
    pingpong::run(&Url::local(broker.address), flow, Connections::Two, &TIMING, &mut |_| {})
}

fn load(broker: &FakeBroker, flow: &Flow, producers: usize, consumers: usize) -> Result<Sample, BenchError> {
    saturate::run(&Url::local(broker.address), flow, producers, consumers, &TIMING, &mut |_| {})
}

/// What the workload says of a broker's faults in either protocol.
fn check_faults(behaviour: Behaviour, expect: &str) {
    for protocol in BOTH {
        let broker = FakeBroker::start(behaviour);
        let sample = load(&broker, &flow_in(protocol, 100, Settle::Batch), 1, 1).unwrap();
        let fault = sample.counts.fault().unwrap_or_default();
        assert!(
            fault.contains(expect),
            "{protocol:?}: {fault:?} does not say {expect:?}: {:?}",
            sample.counts
        );
    }
}

#[test]
fn a_good_broker_has_no_fault() {
    let broker = FakeBroker::start(Behaviour::default());
    for protocol in BOTH {
        for settle in [Settle::Pre, Settle::Batch] {
            for size in [16, 1000, 200_000] {
                let flow = flow_in(protocol, size, settle);
                for sample in [ping(&broker, &flow), load(&broker, &flow, 1, 1)] {
                    let sample = sample.unwrap();
                    let counts = sample.counts;
                    assert_eq!(counts.fault(), None, "{protocol:?} {size} {settle:?}");
                    assert_eq!(counts.sent, counts.delivered);
                    assert_eq!(counts.confirmed, if settle == Settle::Batch { counts.sent } else { 0 });
                    assert!(
                        0 < sample.count && sample.count <= counts.sent,
                        "the warm-up is not in the rate"
                    );
                    assert!(sample.latencies.count() > 0);
                }
            }
        }
    }
}

#[test]
fn both_links_on_one_connection() {
    let broker = FakeBroker::start(Behaviour::default());
    let url = Url::local(broker.address);
    for protocol in BOTH {
        for settle in [Settle::Pre, Settle::Batch] {
            for size in [16, 200_000] {
                let flow = flow_in(protocol, size, settle);
                let sample = pingpong::run(&url, &flow, Connections::One, &TIMING, &mut |_| {}).unwrap();
                assert_eq!(sample.counts.fault(), None, "{protocol:?} {size} {settle:?}");
                assert!(sample.count > 0 && sample.counts.sent == sample.counts.delivered);
            }
        }
    }
}

#[test]
fn several_producers_and_consumers() {
    let broker = FakeBroker::start(Behaviour::default());
    let sample = load(&broker, &flow(100, Settle::Batch), 3, 2).unwrap();
    assert_eq!(sample.counts.fault(), None);
    assert!(sample.counts.sent > 0);
}

#[test]
fn a_known_delay_is_measured() {
    let delay = Duration::from_millis(3);
    let broker = FakeBroker::start(Behaviour { delay, ..Behaviour::default() });
    let sample = ping(&broker, &flow(100, Settle::Pre)).unwrap();
    let least = sample.latencies.percentile_us(0.0).unwrap();
    assert!(least >= 2990.0, "{least} us are less than the broker waits");
    // One message at a time: nothing but their latencies fills the time.
    let (p50, us_each) = (sample.latencies.percentile_us(50.0).unwrap(), us_each(&sample));
    assert!(p50 <= 2.0 * us_each, "{p50} us, but a message took {us_each} us");
}

#[test]
fn a_stall_is_in_the_percentiles() {
    let stall = Some((10, Duration::from_millis(500)));
    let broker = FakeBroker::start(Behaviour { stall, ..Behaviour::default() });
    let timing = Timing { warmup: Duration::ZERO, duration: Duration::from_secs(1), ..TIMING };
    let url = Url::local(broker.address);
    let sample =
        pingpong::run(&url, &flow(100, Settle::Pre), Connections::Two, &timing, &mut |_| {}).unwrap();
    let worst = sample.latencies.percentile_us(100.0).unwrap();
    assert!(worst >= 499_000.0, "{worst} us: the stall is not there");
    assert!(sample.latencies.percentile_us(50.0).unwrap() < worst / 2.0);
}

fn us_each(sample: &Sample) -> f64 {
    sample.elapsed.as_secs_f64() / sample.count as f64 * 1e6
}

#[test]
fn faults_void_the_figures() {
    let good = Behaviour::default();
    check_faults(Behaviour { lose_every: Some(100), ..good }, "lost");
    check_faults(Behaviour { double_every: Some(100), ..good }, "delivered twice");
    check_faults(Behaviour { swap_every: Some(7), ..good }, "out of order");
    check_faults(Behaviour { change_every: Some(100), ..good }, "changed");
    check_faults(Behaviour { reject_every: Some(100), ..good }, "refused");
}

#[test]
fn a_single_loss_ends_a_pingpong() {
    let broker = FakeBroker::start(Behaviour { lose_every: Some(10), ..Behaviour::default() });
    let timing = Timing { duration: Duration::from_secs(10), patience: Duration::from_millis(500), ..TIMING };
    let url = Url::local(broker.address);
    let sample =
        pingpong::run(&url, &flow(100, Settle::Pre), Connections::Two, &timing, &mut |_| {}).unwrap();
    assert_eq!((sample.counts.sent, sample.counts.lost), (10, 1));
}

#[test]
fn duplicates_are_seen_by_a_pingpong() {
    let broker = FakeBroker::start(Behaviour { double_every: Some(2), ..Behaviour::default() });
    let sample = ping(&broker, &flow(100, Settle::Pre)).unwrap();
    let counts = sample.counts;
    assert!(counts.duplicated + 2 >= counts.sent / 2 && counts.duplicated <= counts.sent / 2, "{counts:?}");
}

#[test]
fn losses_are_counted_exactly() {
    let broker = FakeBroker::start(Behaviour { lose_every: Some(1000), ..Behaviour::default() });
    let sample = load(&broker, &flow(100, Settle::Pre), 1, 1).unwrap();
    assert_eq!(sample.counts.lost, sample.counts.sent / 1000);
    assert_eq!(sample.counts.delivered, sample.counts.sent - sample.counts.lost);
    assert_eq!(sample.counts.duplicated, 0);
}

#[test]
fn what_others_left_in_the_queue_is_not_counted() {
    let mut stranger = Template::new(50, 0x7777, 0);
    stranger.stamp(1, 1);
    let leftovers = vec![stranger.bytes().to_vec(); 5];
    let broker = FakeBroker::with_leftovers(Behaviour::default(), leftovers);
    let sample = ping(&broker, &flow(100, Settle::Pre)).unwrap();
    assert_eq!(sample.counts.fault(), None);
    assert_eq!(sample.counts.sent, sample.counts.delivered);
}

#[test]
fn refusals_say_what_to_do() {
    let check = |protocol: Protocol, behaviour: Behaviour, expect: &[&str]| {
        let broker = FakeBroker::start(behaviour);
        let error = ping(&broker, &flow_in(protocol, 100, Settle::Pre)).unwrap_err().to_string();
        for expect in expect {
            assert!(error.contains(expect), "{error:?} does not say {expect:?}");
        }
    };
    let good = Behaviour::default();
    let no_queue = Behaviour { refuse_links: true, ..good };
    let no_login = Behaviour { refuse_login: true, ..good };
    check(Protocol::Amqp10, no_queue, &["no queue for you (amqp:not-allowed)", "--queue"]);
    check(Protocol::Amqp10, no_login, &["refuses anonymous", "amqp://USER:PASSWORD@"]);
    check(Protocol::Amqp091, no_queue, &["no queue for you", "(403)", "--queue"]);
    check(Protocol::Amqp091, no_login, &["refuses anonymous", "amqp://USER:PASSWORD@"]);
}

#[test]
fn phases_are_told_once_and_in_order() {
    let broker = FakeBroker::start(Behaviour::default());
    let mut phases = Vec::new();
    let url = Url::local(broker.address);
    saturate::run(&url, &flow(100, Settle::Batch), 1, 1, &TIMING, &mut |phase| phases.push(phase)).unwrap();
    assert_eq!(phases, [Phase::Measuring, Phase::Measured]);
}

#[test]
fn durable_messages_are_confirmed_and_then_received() {
    let broker = FakeBroker::start(Behaviour::default());
    let url = Url::local(broker.address);
    for depth in [1, 100] {
        let flow = Flow { window: depth, ..flow(1000, Settle::Batch) };
        let (sample, journal) = durable::run(&url, &flow, 1, &TIMING, &mut |_| {}).unwrap();
        let counts = sample.counts;
        assert_eq!((counts.fault(), counts.confirmed, journal), (None, counts.sent, None));
        assert_eq!(counts.delivered, counts.sent);
        assert!(0 < sample.count && sample.latencies.count() == sample.count);
    }
}

#[test]
fn durable_messages_stand_behind_what_was_left() {
    let mut stranger = Template::durable(100, 0x4321, 0);
    stranger.stamp(0, 0);
    let broker = FakeBroker::with_leftovers(Behaviour::default(), vec![stranger.bytes().to_vec(); 5]);
    let url = Url::local(broker.address);
    let (sample, _) = durable::run(&url, &flow(100, Settle::Batch), 1, &TIMING, &mut |_| {}).unwrap();
    assert_eq!(sample.counts.fault(), None);
    assert!(sample.counts.delivered > 0);
}

#[test]
fn a_durable_message_that_is_lost_or_refused_is_told() {
    for (behaviour, expect) in [
        (Behaviour { lose_every: Some(50), ..Behaviour::default() }, "lost"),
        (Behaviour { double_every: Some(50), ..Behaviour::default() }, "delivered twice"),
        (Behaviour { reject_every: Some(50), ..Behaviour::default() }, "refused"),
    ] {
        let broker = FakeBroker::start(behaviour);
        let flow = flow(100, Settle::Batch);
        let run = durable::run(&Url::local(broker.address), &flow, 1, &TIMING, &mut |_| {});
        let fault = run.unwrap().0.counts.fault().unwrap_or_default();
        assert!(fault.contains(expect), "{fault:?} does not say {expect:?}");
    }
}

/// A backlog of so many is built and drained: what is counted of it.
fn fill_and_empty(behaviour: Behaviour, messages: u64) -> backlog::Backlog {
    let broker = FakeBroker::start(behaviour);
    let (url, flow) = (Url::local(broker.address), Flow { durable: true, ..flow(100, Settle::Batch) });
    let timing = Timing { patience: Duration::from_millis(500), ..TIMING };
    let mut told = (0, 0);
    let (built, journal) =
        backlog::build(&url, &flow, messages, 3, &timing, &mut |done| told.0 = done).unwrap();
    let drained = backlog::drain(&url, &flow, messages, 3, &timing, &mut |done| told.1 = done).unwrap();
    assert!(told.0 <= messages && told.1 <= messages, "{told:?}");
    assert_eq!(journal, None, "it does not say what it writes");
    backlog::Backlog { built, drained, ..backlog::Backlog::default() }
}

#[test]
fn a_backlog_is_built_and_drained() {
    let backlog = fill_and_empty(Behaviour::default(), 5000);
    let counts = backlog.counts();
    assert_eq!(counts.fault(), None, "{counts:?}");
    assert_eq!((counts.sent, counts.confirmed, counts.delivered), (5000, 5000, 5000));
    assert!(backlog.built.rate_per_s().unwrap() > 0.0 && backlog.drained.rate_per_s().unwrap() > 0.0);
}

#[test]
fn a_backlog_with_a_fault_is_void() {
    let good = Behaviour::default();
    let check = |behaviour: Behaviour, expect: &str| {
        let fault = fill_and_empty(behaviour, 1000).counts().fault().unwrap_or_default();
        assert!(fault.contains(expect), "{fault:?} does not say {expect:?}");
    };
    check(Behaviour { lose_every: Some(100), ..good }, "10 lost");
    // The last one, too.
    check(Behaviour { double_every: Some(1000), ..good }, "1 delivered twice");
    check(Behaviour { swap_every: Some(7), ..good }, "out of order");
    check(Behaviour { reject_every: Some(100), ..good }, "10 refused");
}

/// At 500/s for a second, as a schedule has it.
fn open_loop(broker: &FakeBroker, flow: &Flow, duration: Duration) -> Sample {
    let scene = scenes::set_up(&Url::local(broker.address), flow, Kind::Queue).unwrap();
    let timing = Timing { warmup: Duration::ZERO, duration, ..TIMING };
    let now = scene.clock.now_ns();
    let profile = Profile { rates: vec![500.0], arrivals: Arrivals::Fixed };
    let schedule = Schedule::new(profile, now, now, duration.as_nanos() as u64, 1);
    scene.run(Pace::Timed(schedule), &timing, &mut |_| {}).unwrap()
}

#[test]
fn a_stall_is_in_the_latency_of_all_that_were_due_in_it() {
    for protocol in BOTH {
        let stall = Some((50, Duration::from_millis(200)));
        let broker = FakeBroker::start(Behaviour { stall, ..Behaviour::default() });
        let sample = open_loop(&broker, &flow_in(protocol, 100, Settle::Batch), Duration::from_secs(1));
        assert_eq!(sample.counts.fault(), None, "{protocol:?}");
        assert!(sample.counts.sent >= 400, "{protocol:?}: the schedule did not stand: {:?}", sample.counts);
        // A hundred messages were due in the stall, half of them in its first half.
        let p91 = sample.latencies.percentile_us(91.0).unwrap();
        assert!(p91 >= 95_000.0, "{protocol:?}: {p91} us at p91 hide the stall");
        assert!(sample.latencies.percentile_us(100.0).unwrap() >= 199_000.0);
        // All but those of the first turn, before which nothing is measured.
        assert!(sample.lag.unwrap().count() > sample.counts.sent / 2, "{protocol:?}");
    }
}

#[test]
fn losses_and_doubles_of_an_open_loop_are_told() {
    for protocol in BOTH {
        let check = |behaviour: Behaviour, expect: &str| {
            let broker = FakeBroker::start(behaviour);
            let flow = flow_in(protocol, 100, Settle::Pre);
            let sample = open_loop(&broker, &flow, Duration::from_millis(200));
            let fault = sample.counts.fault().unwrap_or_default();
            assert!(fault.contains(expect), "{protocol:?}: {fault:?}");
        };
        check(Behaviour { lose_every: Some(10), ..Behaviour::default() }, "lost");
        check(Behaviour { double_every: Some(10), ..Behaviour::default() }, "delivered twice");
    }
}

#[test]
fn a_constant_delay_is_in_every_latency_of_an_open_loop() {
    let delay = Duration::from_millis(20);
    let broker = FakeBroker::start(Behaviour { delay, ..Behaviour::default() });
    let sample = open_loop(&broker, &flow(100, Settle::Pre), Duration::from_millis(300));
    assert!(sample.latencies.percentile_us(0.0).unwrap() >= 19_900.0);
    // Many are on their way at a time: the next is sent although the one before has not come.
    assert!(sample.counts.sent >= 100, "{:?}", sample.counts);
}

#[test]
fn a_message_that_goes_late_is_timed_from_when_it_was_due() {
    const LATE_NS: u64 = 300_000_000;
    let broker = FakeBroker::start(Behaviour::default());
    let scene = scenes::set_up(&Url::local(broker.address), &flow(100, Settle::Pre), Kind::Queue).unwrap();
    let clock = scene.clock;
    let first = clock.now_ns();
    while clock.now_ns() < first + LATE_NS {
        std::thread::yield_now();
    }
    let profile = Profile { rates: vec![500.0], arrivals: Arrivals::Fixed };
    let timing = Timing { warmup: Duration::ZERO, ..TIMING };
    let schedule = Schedule::new(profile, first, first, LATE_NS, 1);
    let sample = scene.run(Pace::Timed(schedule), &timing, &mut |_| {}).unwrap();
    // Those that were due first have waited for all of it.
    let worst = sample.latencies.percentile_us(100.0).unwrap();
    assert!(worst >= 0.9 * LATE_NS as f64 / 1000.0, "{worst} us");
    assert_eq!(sample.counts.fault(), None);
}
