//! What does a message cost in the engine? Plain loops and a clock; figures are the best of several rounds.
//!
//! `cargo bench -p corelane-engine`

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark measures time")]

use std::hint::black_box;
use std::time::Instant;

use corelane_engine::selector::{Field, Filter, Value};
use corelane_engine::*;

/// As large as a handle to an encoded message.
struct Handle {
    id: u64,
    _rest: [u64; 4],
}

impl Message for Handle {
    fn size(&self) -> usize {
        1024
    }

    fn group(&self) -> Option<&str> {
        None
    }

    fn field(&self, _: &Field) -> Value<'_> {
        Value::Int(self.id as i64)
    }
}

fn publication(id: u64) -> Publication<Handle> {
    Publication::new(Handle { id, _rest: [id; 4] })
}

fn ready(engine: &mut Engine<Handle>, queue: QueueId, spec: ConsumerSpec) -> ConsumerId {
    let consumer = engine.attach_consumer(0, queue, spec).expect("there is room");
    engine.set_notify_work_desired(0, consumer, Desire::Ready);
    consumer
}

/// Delivers to whoever is notified until nobody is, and answers what is to be settled.
fn deliver(engine: &mut Engine<Handle>, unsettled: &mut Vec<(ConsumerId, Place, Acquisition)>) {
    while let Some(consumer) = engine.poll_notified() {
        if let Pull::Delivered(delivery) = engine.deliver_single_message(0, consumer) {
            black_box(delivery.message.id);
            unsettled.push((consumer, delivery.place, delivery.acquisition));
        }
    }
}

fn settle(engine: &mut Engine<Handle>, unsettled: &mut Vec<(ConsumerId, Place, Acquisition)>) {
    for (consumer, place, acquisition) in unsettled.drain(..) {
        engine.settle(0, consumer, place, acquisition, Outcome::Accepted);
    }
    while let Some(spent) = engine.take_spent() {
        black_box(spent.message.here().map(|message| message.id));
    }
}

/// Messages in batches: enqueued, delivered, settled. Nanoseconds for each message.
fn flow(name: &str, batch: u64, standing: u64, prepare: impl Fn(&mut Engine<Handle>, QueueId)) {
    let mut engine = Engine::new(Limits::default());
    let queue = engine.declare_queue(QueueProperties::default());
    for id in 0..standing {
        let _ = engine.enqueue(0, queue, publication(1 << 40 | id));
    }
    prepare(&mut engine, queue);
    while engine.run_slice(0) {}
    let mut unsettled = Vec::new();
    let rounds = 200_000 / batch;
    let mut best = f64::MAX;
    let mut id = 0;
    for _ in 0..12 {
        let start = Instant::now();
        for _ in 0..rounds {
            for _ in 0..batch {
                id += 1;
                let _ = engine.enqueue(0, queue, publication(id));
            }
            deliver(&mut engine, &mut unsettled);
            settle(&mut engine, &mut unsettled);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (rounds * batch) as f64);
    }
    println!("{name:<58} {best:>8.1} ns a message");
}

fn equality(id: u64) -> ConsumerSpec {
    let filter = Filter::parse(&format!("id = {id}")).expect("a selector");
    ConsumerSpec { filter: Some(filter), ..ConsumerSpec::new(0) }
}

/// s17: acks in order and in random order, a hundred thousand unsettled.
fn random_acks() {
    let mut times = [f64::MAX; 2];
    for _ in 0..8 {
        for (which, time) in times.iter_mut().enumerate() {
            let mut engine = Engine::new(Limits::default());
            let queue = engine.declare_queue(QueueProperties::default());
            ready(&mut engine, queue, ConsumerSpec::new(0));
            let mut unsettled = Vec::new();
            for id in 0..100_000 {
                let _ = engine.enqueue(0, queue, publication(id));
            }
            deliver(&mut engine, &mut unsettled);
            let mut random = 88172645463325252_u64;
            for index in (1..unsettled.len()).rev().filter(|_| which == 1) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                unsettled.swap(index, random as usize % (index + 1));
            }
            let start = Instant::now();
            settle(&mut engine, &mut unsettled);
            *time = time.min(start.elapsed().as_nanos() as f64 / 100_000.0);
        }
    }
    println!("settling 100,000 in order {:.1} ns each, in random order {:.1} ns each", times[0], times[1]);
}

fn main() {
    flow("one at a time, one consumer", 1, 0, |engine, queue| {
        ready(engine, queue, ConsumerSpec::new(0));
    });
    flow("batches of 64, one consumer", 64, 0, |engine, queue| {
        ready(engine, queue, ConsumerSpec::new(0));
    });
    flow("batches of 64, four consumers", 64, 0, |engine, queue| {
        (0..4).for_each(|_| {
            ready(engine, queue, ConsumerSpec::new(0));
        });
    });
    flow("batches of 64, 10,000 equal consumers", 64, 0, |engine, queue| {
        (0..10_000).for_each(|_| {
            ready(engine, queue, ConsumerSpec::new(0));
        });
    });
    flow("batches of 64, one consumer and 10,000 without credit", 64, 0, |engine, queue| {
        (0..10_000).for_each(|_| {
            let _ = engine.attach_consumer(0, queue, ConsumerSpec::new(0));
        });
        ready(engine, queue, ConsumerSpec::new(0));
    });
    flow("batches of 64, one consumer and 10,000 other selectors", 64, 0, |engine, queue| {
        (0..10_000).for_each(|id| {
            ready(engine, queue, equality(1 << 50 | id));
        });
        ready(engine, queue, ConsumerSpec::new(0));
    });
    flow("batches of 64, one consumer with a selector", 64, 0, |engine, queue| {
        let filter = Filter::parse("id > 0").expect("a selector");
        ready(engine, queue, ConsumerSpec { filter: Some(filter), ..ConsumerSpec::new(0) });
    });
    flow("batches of 64, a selector over 100,000 that stand", 64, 100_000, |engine, queue| {
        let filter = Filter::parse("id < 1000000000").expect("a selector");
        ready(engine, queue, ConsumerSpec { filter: Some(filter), ..ConsumerSpec::new(0) });
    });
    random_acks();
}
