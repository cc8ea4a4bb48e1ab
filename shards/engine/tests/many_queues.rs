//! Queues come and go beside each other: nothing of one is ever met in another.
//!
//! Random operations by seed over a handful of queues of one engine, with `verify` after each. What a message says about the
//! queue it was enqueued in is checked wherever it comes out.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::selector::Filter;
use corelane_engine::*;
use support::{FAILED, NOT_HERE, Note, RELEASED, Random, TICK};

struct Held {
    consumer: ConsumerId,
    place: Place,
    acquisition: Acquisition,
}

struct World {
    engine: Engine<Note>,
    random: Random,
    now: u64,
    queues: Vec<QueueId>,
    consumers: Vec<(ConsumerId, QueueId)>,
    held: Vec<Held>,
    /// Messages that have been enqueued and not been seen leaving.
    inside: i64,
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            candidates_max: 2,
            scan_slice_max: 2,
            pull_steps_max: 2,
            timeout_slice_max: 3,
            classes_idle_max: 1,
            class_idle_us: 30 * TICK,
            chunks_spare_max: 1,
            ..Limits::default()
        };
        let (queues, consumers, held) = (Vec::new(), Vec::new(), Vec::new());
        let random = Random::new(seed);
        World { engine: Engine::new(limits), random, now: 500 * TICK, queues, consumers, held, inside: 0 }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0 => self.declare(),
            1 => self.delete(),
            2..14 => self.enqueue(),
            14..17 => self.attach(),
            17 => self.close(),
            18..28 => self.pull(),
            28..34 => self.settle(),
            34 | 35 => {
                self.now += self.random.below(5) as u64 * TICK;
                self.engine.handle_timeout(self.now);
            }
            36 => drop(self.random.chance(2) && self.engine.run_slice(self.now)),
            _ => self.pause_or_resume(),
        }
        self.engine.verify();
        while self.engine.take_spent().is_some() {
            self.inside -= 1;
        }
        while let Some(letter) = self.engine.take_dead_letter() {
            assert_eq!(letter.message.here().unwrap().color, color_of(letter.queue));
            self.inside -= 1;
        }
    }

    fn declare(&mut self) {
        if self.queues.len() < 5 {
            let random = &mut self.random;
            let properties = QueueProperties {
                priorities: random.chance(2),
                dead_letter: random.chance(2),
                exclusive: random.chance(4),
                ack_deadline_us: random.chance(3).then_some(8 * TICK),
                messages_max: random.chance(3).then_some(5),
                overflow: Overflow::DropOldest,
                ..QueueProperties::default()
            };
            self.queues.push(self.engine.declare_queue(properties));
        }
    }

    fn delete(&mut self) {
        if !self.queues.is_empty() {
            let at = self.random.below(self.queues.len());
            let queue = self.queues.swap_remove(at);
            let before = self.consumers.len();
            self.consumers.retain(|(_, other)| *other != queue);
            let gone = before - self.consumers.len();
            assert_eq!(self.engine.delete_queue(self.now, queue).len(), gone);
            assert!(self.engine.delete_queue(self.now, queue).is_empty());
        }
    }

    fn enqueue(&mut self) {
        let Some(queue) = self.random.pick(&self.queues).copied() else {
            return;
        };
        let random = &mut self.random;
        let group = random.chance(3).then(|| "g".to_string());
        let message = Note { id: 1, group, color: color_of(queue), weight: random.below(5) as i64 };
        let expires_at = random.chance(3).then_some(self.now + random.next() % 20 * TICK);
        let held_until = random.chance(5).then_some(self.now + random.next() % 20 * TICK);
        let priority = random.below(10) as u8;
        let publication = Publication { priority, expires_at, held_until, ..Publication::new(message) };
        assert!(self.engine.enqueue(self.now, queue, publication).is_ok());
        self.inside += 1;
    }

    fn attach(&mut self) {
        let Some(queue) = self.random.pick(&self.queues).copied() else {
            return;
        };
        let filters = ["weight > 2", "weight = 1", "weight IN (0, 3)"];
        let filter = self.random.chance(2).then(|| Filter::parse(filters[self.random.below(3)]).unwrap());
        let mode = if self.random.chance(5) { AcquireMode::Browse } else { AcquireMode::Acquire };
        let priority = self.random.below(2) as i32;
        let spec = ConsumerSpec { filter, mode, priority, ..ConsumerSpec::new(0) };
        let consumer = self.engine.attach_consumer(self.now, queue, spec).unwrap();
        self.engine.set_notify_work_desired(self.now, consumer, Desire::Ready);
        self.consumers.push((consumer, queue));
    }

    fn close(&mut self) {
        if !self.consumers.is_empty() {
            let at = self.random.below(self.consumers.len());
            let (consumer, _) = self.consumers.swap_remove(at);
            self.engine.close_consumer(self.now, consumer, None);
        }
    }

    fn pull(&mut self) {
        let Some(consumer) = self.engine.poll_notified() else {
            return;
        };
        let known = self.consumers.iter().find(|(other, _)| *other == consumer);
        let queue = known.expect("only who is attached is notified").1;
        if let Pull::Delivered(delivery) = self.engine.deliver_single_message(self.now, consumer) {
            assert_eq!(delivery.queue, queue);
            assert_eq!(delivery.message.color, color_of(queue));
            let (place, acquisition) = (delivery.place, delivery.acquisition);
            if acquisition != Acquisition(0) {
                self.held.push(Held { consumer, place, acquisition });
            }
        }
    }

    /// Also of consumers and queues that are gone, and of what the engine took back: these are late.
    fn settle(&mut self) {
        if !self.held.is_empty() {
            let at = self.random.below(self.held.len());
            let held = self.held.swap_remove(at);
            let outcomes = [Outcome::Accepted, Outcome::Rejected, RELEASED, FAILED, NOT_HERE];
            let outcome = outcomes[self.random.below(5)];
            self.engine.settle(self.now, held.consumer, held.place, held.acquisition, outcome);
        }
    }

    fn pause_or_resume(&mut self) {
        let Some((consumer, _)) = self.random.pick(&self.consumers).copied() else {
            return;
        };
        let pause = self.random.chance(3);
        let desire = if pause { Desire::Paused(PauseReason::Socket) } else { Desire::Ready };
        self.engine.set_notify_work_desired(self.now, consumer, desire);
    }
}

fn color_of(queue: QueueId) -> &'static str {
    ["a", "b", "c", "d", "e", "f", "g", "h"][(queue.index * 3 + queue.generation) as usize % 8]
}

#[test]
fn queues_do_not_meet() {
    for seed in 1..150 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        for queue in std::mem::take(&mut world.queues) {
            world.engine.delete_queue(world.now, queue);
        }
        for _ in 0..200 {
            world.engine.run_slice(world.now);
            world.engine.verify();
            while world.engine.take_spent().is_some() {
                world.inside -= 1;
            }
            while let Some(letter) = world.engine.take_dead_letter() {
                assert_eq!(letter.reason, DeadLetterReason::Deleted);
                world.inside -= 1;
            }
        }
        assert_eq!(world.inside, 0, "seed {seed}: each message leaves once");
        assert_eq!(world.engine.chunk_count(), 0);
        assert_eq!(world.engine.next_deadline(), None);
        for held in world.held {
            let settled = world.engine.settle(
                world.now,
                held.consumer,
                held.place,
                held.acquisition,
                Outcome::Accepted,
            );
            assert_eq!(settled, Settled::Late);
        }
    }
}
