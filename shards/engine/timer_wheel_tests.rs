//! The timer wheel against an ordered map, and its promises about lateness, slices and memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const START: u64 = 1_790_000_000_000_000;
const MS: u64 = 1_000;
const DAY: u64 = 86_400_000 * MS;

fn drain(wheel: &mut TimerWheel<u32>, now: u64) -> Vec<u32> {
    let mut budget = u32::MAX;
    std::iter::from_fn(|| wheel.poll(now, &mut budget)).collect()
}

#[test]
fn a_timer_is_never_early_and_at_most_a_tick_late() {
    for delay in
        [0, 1, 63, 4_095, 4_096, 4_097, 10 * MS, 262_143, 262_144, 999 * MS, 3_600_000 * MS, DAY, 365 * DAY]
    {
        for start in [START, START + 1, START + 4_095, 0, 63 * TICK_US] {
            let mut wheel = TimerWheel::new(start);
            wheel.schedule(start + delay, 7);
            let mut now = start;
            // As an idle shard would: asleep until the next deadline.
            let fired = loop {
                if let Some(payload) = wheel.poll(now, &mut 1_000) {
                    break payload;
                }
                let next = wheel.next_deadline().expect("the timer runs");
                assert!(next > now, "no time passes at {now}");
                now = next;
            };
            assert_eq!(fired, 7);
            assert!(now >= start + delay, "early by {}", start + delay - now);
            assert!(now < start + delay + TICK_US, "late by {}", now - start - delay);
            assert_eq!(wheel.next_deadline(), None);
        }
    }
}

#[test]
fn a_far_timer_wakes_an_idle_shard_a_few_times_only() {
    let mut wheel = TimerWheel::new(START);
    wheel.schedule(START + 20 * 365 * DAY, 7);
    let mut wakes = 0;
    while wheel.poll(wheel.next_deadline().expect("the timer runs"), &mut 1_000).is_none() {
        wakes += 1;
    }
    assert!(wakes <= LEVELS, "{wakes} wakes");
}

#[test]
fn deadlines_at_the_end_of_time_are_kept() {
    let mut wheel = TimerWheel::new(START);
    let never = wheel.schedule(u64::MAX, 1);
    wheel.schedule(START + 400_000 * 365 * DAY, 2);
    wheel.verify();
    assert_eq!(drain(&mut wheel, START + 1_000 * 365 * DAY), []);
    assert_eq!(drain(&mut wheel, START + 400_001 * 365 * DAY), [2]);
    assert_eq!(wheel.deadline(never), u64::MAX);
    assert_eq!(drain(&mut wheel, u64::MAX - TICK_US), []);
    wheel.verify();
    assert_eq!(wheel.cancel(never), 1);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_late_timer_fires_at_the_next_poll() {
    let mut wheel = TimerWheel::new(START);
    assert_eq!(drain(&mut wheel, START + 10 * DAY), []);
    wheel.schedule(START, 1);
    assert!(wheel.is_due(START + 10 * DAY));
    assert_eq!(drain(&mut wheel, START + 10 * DAY), [1]);
}

#[test]
fn timers_of_one_tick_fire_in_the_order_of_scheduling() {
    let mut wheel = TimerWheel::new(START);
    let due = (START / TICK_US + 10_000) * TICK_US;
    for payload in 0..10 {
        wheel.schedule(due - u64::from(payload), payload);
    }
    // Stop in the middle of spreading the slot they share, and add one more.
    assert_eq!(wheel.poll(due, &mut 4), None);
    assert!(wheel.spreading.is_some());
    wheel.schedule(due - 1, 10);
    wheel.verify();
    assert_eq!(drain(&mut wheel, due), (0..=10).collect::<Vec<_>>());
}

#[test]
fn s44_a_million_due_at_once_come_in_slices() {
    let mut wheel = TimerWheel::new(START);
    let count = 1_000_000_u32;
    for payload in 0..count {
        wheel.schedule(START + 60_000 * MS + u64::from(payload % 1_000), payload);
    }
    let now = START + 60_000 * MS + 10 * MS;
    let (mut slices, mut fired) = (0, 0);
    while wheel.is_due(now) {
        let mut budget = 5_000;
        while wheel.poll(now, &mut budget).is_some() {
            fired += 1;
        }
        slices += 1;
    }
    assert_eq!(fired, count);
    // Each timer is touched once to fire and once per level it came down, of at most three in a minute.
    assert!((200..=800).contains(&slices), "{slices} slices");
    assert_eq!((wheel.count(), wheel.next_deadline()), (0, None));
}

#[test]
fn s44_a_short_timer_behind_a_long_one_fires_first() {
    let mut wheel = TimerWheel::new(START);
    wheel.schedule(START + DAY, 1);
    wheel.schedule(START + 50 * MS, 2);
    assert_eq!(drain(&mut wheel, START + 50 * MS - 1), []);
    assert_eq!(drain(&mut wheel, START + 60 * MS), [2]);
    assert_eq!(drain(&mut wheel, START + DAY + 10 * MS), [1]);
}

#[test]
fn memory_is_given_back() {
    let mut wheel = TimerWheel::new(START);
    let timers: Vec<_> = (0..100_000).map(|payload| wheel.schedule(START + DAY, payload)).collect();
    let held = |wheel: &TimerWheel<u32>| {
        wheel.nodes.chunks.iter().filter(|chunk| chunk.nodes.capacity() > 0).count()
    };
    assert_eq!(held(&wheel), 100_000_usize.div_ceil(CHUNK_NODES));
    for (index, timer) in timers.iter().enumerate() {
        if index != 70_000 {
            wheel.cancel(*timer);
        }
    }
    assert_eq!(wheel.count(), 1);
    assert!(held(&wheel) <= 2, "{} chunks", held(&wheel));
    wheel.verify();
}

#[test]
fn sizes() {
    assert_eq!(size_of::<Option<TimerId>>(), 4);
    assert_eq!(size_of::<Node<[u32; 3]>>(), 28);
}

#[test]
#[should_panic(expected = "the timer has fired or was cancelled")]
fn a_timer_is_cancelled_once() {
    let mut wheel = TimerWheel::new(START);
    let timer = wheel.schedule(START, 1);
    wheel.cancel(timer);
    wheel.cancel(timer);
}

#[derive(Clone, Debug)]
enum Step {
    Schedule { delay: i64 },
    Reschedule { pick: usize, delay: i64 },
    Cancel { pick: usize },
    Poll { pass: u64, budget: u32 },
}

fn delays() -> impl Strategy<Value = i64> {
    prop_oneof![
        -50_000..50_000_i64,
        0..1_000_000_i64,
        0..300_000_000_i64,
        0..(100 * DAY as i64),
        (0..6_u32, -3..3_i64).prop_map(|(digit, off)| (TICK_US as i64) << (digit * 6) | off),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => delays().prop_map(|delay| Step::Schedule { delay }),
        1 => (any::<usize>(), delays()).prop_map(|(pick, delay)| Step::Reschedule { pick, delay }),
        2 => any::<usize>().prop_map(|pick| Step::Cancel { pick }),
        4 => (delays().prop_map(|delay| delay.unsigned_abs()), prop_oneof![0..8_u32, Just(10_000)])
            .prop_map(|(pass, budget)| Step::Poll { pass, budget }),
    ]
}

/// The oracle: timers by the tick they count for and the order in which they were scheduled.
#[derive(Default)]
struct Model {
    running: BTreeMap<(u64, u64), (u64, TimerId)>,
    sequence: u64,
}

impl Model {
    fn add(&mut self, wheel: &TimerWheel<u32>, deadline: u64, timer: TimerId) {
        self.running.insert((tick_of(deadline).max(wheel.current), self.sequence), (deadline, timer));
        self.sequence += 1;
    }

    fn pick(&self, pick: usize) -> Option<(u64, u64)> {
        self.running.keys().nth(pick % self.running.len().max(1)).copied()
    }
}

fn run(start: u64, steps: &[Step]) {
    let mut now = start;
    let mut wheel = TimerWheel::new(now);
    let mut model = Model::default();
    for step in steps {
        match *step {
            Step::Schedule { delay } => {
                let deadline = now.saturating_add_signed(delay);
                let timer = wheel.schedule(deadline, model.sequence as u32);
                assert_eq!(wheel.deadline(timer), deadline);
                model.add(&wheel, deadline, timer);
            }
            Step::Reschedule { pick, delay } => {
                let Some(key) = model.pick(pick) else { continue };
                let (_, timer) = model.running.remove(&key).expect("picked");
                // The payload is the sequence, so the timer is started anew in the model and in the wheel.
                let deadline = now.saturating_add_signed(delay);
                wheel.reschedule(timer, deadline);
                let payload = wheel.nodes.node(timer.node()).payload;
                wheel.nodes.node_mut(timer.node()).payload = model.sequence as u32;
                assert_eq!(u64::from(payload), key.1);
                model.add(&wheel, deadline, timer);
            }
            Step::Cancel { pick } => {
                let Some(key) = model.pick(pick) else { continue };
                let (_, timer) = model.running.remove(&key).expect("picked");
                assert_eq!(u64::from(wheel.cancel(timer)), key.1);
            }
            Step::Poll { pass, mut budget } => {
                now = now.saturating_add(pass);
                while let Some(payload) = wheel.poll(now, &mut budget) {
                    let ((tick, sequence), (deadline, _)) = model.running.pop_first().expect("a timer runs");
                    assert_eq!(u64::from(payload), sequence, "order");
                    assert!(deadline <= now && tick * TICK_US <= now, "early");
                }
                let due =
                    model.running.first_key_value().is_some_and(|((tick, _), _)| *tick <= now / TICK_US);
                assert!(budget == 0 || !due, "due and not fired");
                assert!(!due || wheel.is_due(now));
            }
        }
        wheel.verify();
        assert_eq!(wheel.count(), model.running.len());
        let first = model.running.first_key_value().map(|((tick, _), _)| tick * TICK_US);
        assert_eq!(wheel.next_deadline().is_some(), first.is_some());
        assert!(wheel.next_deadline() <= first, "would sleep through {first:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_an_ordered_map(
        start in prop_oneof![Just(0), Just(START), 0..START, Just(START | 0xfff_ffff_ffff)],
        steps in prop::collection::vec(steps(), 1..200),
    ) {
        run(start, &steps);
    }
}
