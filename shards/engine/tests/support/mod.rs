//! A message for tests, and short words for what scenarios do over and over.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![allow(dead_code, reason = "each test file uses its own part")]

use corelane_engine::selector::{Field, Filter, HeaderField, Value};
use corelane_engine::*;

/// The engine's timers tick in these; times that are multiples of it are exact.
pub(crate) const TICK: u64 = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) id: u64,
    pub(crate) group: Option<String>,
    pub(crate) color: &'static str,
    pub(crate) weight: i64,
}

impl Message for Note {
    fn size(&self) -> usize {
        10 + self.weight as usize
    }

    fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    fn enqueued_at(&self) -> u64 {
        self.id
    }

    fn field(&self, field: &Field) -> Value<'_> {
        match field {
            Field::Property(name) if &**name == "color" => Value::String(self.color),
            Field::Property(name) if &**name == "weight" => Value::Int(self.weight),
            Field::Property(name) if &**name == "id" => Value::Int(self.id as i64),
            Field::Header(HeaderField::GroupId) => self.group.as_deref().map_or(Value::Null, Value::String),
            _ => Value::Null,
        }
    }
}

pub(crate) fn note(id: u64) -> Publication<Note> {
    Publication::new(Note { id, ..Note::default() })
}

pub(crate) fn colored(id: u64, color: &'static str) -> Publication<Note> {
    Publication::new(Note { id, color, ..Note::default() })
}

pub(crate) fn grouped(id: u64, group: &str) -> Publication<Note> {
    Publication::new(Note { id, group: Some(group.into()), ..Note::default() })
}

/// Takes out all that nobody holds.
pub(crate) fn purge(engine: &mut Engine<Note>, now: u64, queue: QueueId) -> Vec<Stored<Note>> {
    let places: Vec<Place> = engine.entries(queue, Place(0)).map(|(place, ..)| place).collect();
    places.into_iter().filter_map(|place| engine.remove(now, queue, place)).collect()
}

/// One delivery, without its borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) id: u64,
    pub(crate) place: Place,
    pub(crate) acquisition: Acquisition,
    pub(crate) delivery_count: u32,
    pub(crate) acquired_count: u32,
}

/// An engine with one queue, at a time of its own. Every step is verified.
pub(crate) struct Bench {
    pub(crate) engine: Engine<Note>,
    pub(crate) queue: QueueId,
    pub(crate) now: u64,
    pub(crate) checks: bool,
}

impl Bench {
    pub(crate) fn new(properties: QueueProperties) -> Self {
        Self::with_limits(properties, Limits::default())
    }

    pub(crate) fn plain() -> Self {
        Self::new(QueueProperties::default())
    }

    pub(crate) fn with_limits(properties: QueueProperties, limits: Limits) -> Self {
        let mut engine = Engine::new(limits);
        let queue = engine.declare_queue(properties);
        Bench { engine, queue, now: TICK * 1000, checks: true }
    }

    /// For many steps: `verify` takes the time of everything there is.
    pub(crate) fn unchecked(mut self) -> Self {
        self.checks = false;
        self
    }

    pub(crate) fn check(&self) {
        if self.checks {
            self.engine.verify();
        }
    }

    pub(crate) fn put(&mut self, publication: Publication<Note>) -> Place {
        let place = self.engine.enqueue(self.now, self.queue, publication).map_err(|(_, why)| why).unwrap();
        self.check();
        place
    }

    /// Takes out all that nobody holds, as an operator does.
    pub(crate) fn purge(&mut self) -> Vec<Note> {
        let gone = purge(&mut self.engine, self.now, self.queue);
        self.check();
        gone.into_iter().filter_map(Stored::here).collect()
    }

    pub(crate) fn put_all(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            self.put(note(id));
        }
    }

    pub(crate) fn attach(&mut self, spec: ConsumerSpec) -> ConsumerId {
        let consumer = self.engine.attach_consumer(self.now, self.queue, spec).unwrap();
        self.check();
        consumer
    }

    /// Attaches a consumer without filter, of this priority, that is ready.
    pub(crate) fn ready(&mut self, priority: i32) -> ConsumerId {
        let consumer = self.attach(ConsumerSpec { priority, ..ConsumerSpec::new(0) });
        self.resume(consumer);
        consumer
    }

    pub(crate) fn ready_with(&mut self, filter: &str, priority: i32) -> ConsumerId {
        let filter = Some(Filter::parse(filter).unwrap());
        let consumer = self.attach(ConsumerSpec { filter, priority, ..ConsumerSpec::new(0) });
        self.resume(consumer);
        consumer
    }

    pub(crate) fn browser(&mut self, filter: Option<&str>) -> ConsumerId {
        let filter = filter.map(|text| Filter::parse(text).unwrap());
        let consumer =
            self.attach(ConsumerSpec { filter, mode: AcquireMode::Browse, ..ConsumerSpec::new(0) });
        self.resume(consumer);
        consumer
    }

    pub(crate) fn resume(&mut self, consumer: ConsumerId) {
        self.engine.set_notify_work_desired(self.now, consumer, Desire::Ready);
        self.check();
    }

    pub(crate) fn pause(&mut self, consumer: ConsumerId, reason: PauseReason) {
        self.engine.set_notify_work_desired(self.now, consumer, Desire::Paused(reason));
        self.check();
    }

    pub(crate) fn close(&mut self, consumer: ConsumerId) {
        self.engine.close_consumer(self.now, consumer, None);
        self.check();
    }

    pub(crate) fn pull(&mut self, consumer: ConsumerId) -> Option<Got> {
        let got = match self.engine.deliver_single_message(self.now, consumer) {
            Pull::Delivered(delivery) => Some(Got {
                id: delivery.message.id,
                place: delivery.place,
                acquisition: delivery.acquisition,
                delivery_count: delivery.delivery_count,
                acquired_count: delivery.acquired_count,
            }),
            Pull::Nothing | Pull::Scanning => None,
        };
        self.check();
        got
    }

    /// Runs the delivery ring until it is empty, and scans until there is nothing more to do.
    pub(crate) fn run(&mut self) -> Vec<(ConsumerId, Got)> {
        let mut all = Vec::new();
        loop {
            while let Some(consumer) = self.engine.poll_notified() {
                all.extend(self.pull(consumer).map(|got| (consumer, got)));
            }
            let more = self.engine.run_slice(self.now);
            self.check();
            if !more && self.engine.poll_notified().is_none() {
                return all;
            }
        }
    }

    /// What this consumer gets until the ring is empty; nobody else may get anything.
    pub(crate) fn run_for(&mut self, consumer: ConsumerId) -> Vec<Got> {
        let all = self.run();
        assert!(all.iter().all(|(other, _)| *other == consumer), "only one consumer gets something");
        all.into_iter().map(|(_, got)| got).collect()
    }

    pub(crate) fn ids_for(&mut self, consumer: ConsumerId) -> Vec<u64> {
        self.run_for(consumer).into_iter().map(|got| got.id).collect()
    }

    pub(crate) fn settle(&mut self, consumer: ConsumerId, got: Got, outcome: Outcome) -> Settled {
        let settled = self.engine.settle(self.now, consumer, got.place, got.acquisition, outcome);
        self.check();
        settled
    }

    pub(crate) fn accept(&mut self, consumer: ConsumerId, got: Got) {
        assert_eq!(self.settle(consumer, got, Outcome::Accepted), Settled::Done);
    }

    /// Lets time pass and handles all that is due.
    pub(crate) fn pass(&mut self, ticks: u64) {
        self.now += ticks * TICK;
        loop {
            let more = self.engine.handle_timeout(self.now);
            self.check();
            if !more {
                return;
            }
        }
    }

    pub(crate) fn list(&self, consumer: ConsumerId) -> ConsumerList {
        self.engine.explain(consumer).unwrap().list
    }

    pub(crate) fn is_notified(&self, consumer: ConsumerId) -> bool {
        self.list(consumer) == ConsumerList::Notified
    }

    pub(crate) fn wakes(&self, consumer: ConsumerId) -> u64 {
        self.engine.explain(consumer).unwrap().wake_count
    }

    pub(crate) fn depth(&self) -> Depth {
        self.engine.depth(self.queue).unwrap()
    }
}

pub(crate) const RELEASED: Outcome = Outcome::Released;
pub(crate) const FAILED: Outcome = Outcome::Modified { delivery_failed: true, undeliverable_here: false };
pub(crate) const NOT_HERE: Outcome = Outcome::Modified { delivery_failed: false, undeliverable_here: true };

/// A small random number generator, the same for a seed for ever.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { Some(&of[self.below(of.len())]) }
    }
}
