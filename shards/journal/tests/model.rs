//! A shard that says what comes to its mind, on a disk that loses, tears and reorders what was not synced, and that is recycled
//! with what was on it. Whatever it is stopped in, what was completed is found, exactly once, and nothing else.

mod support;

use support::World;

const SEEDS: u64 = 60;

fn run(seed: u64, steps: usize) {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.crash();
    world.settle_down();
}

#[test]
fn what_was_completed_is_found_once_and_nothing_else() {
    for seed in 0..SEEDS {
        run(seed, 400);
    }
}

#[test]
fn clean_up_keeps_up_for_long() {
    for seed in 1000..1004 {
        run(seed, 4000);
    }
}

#[test]
fn bad_bits_cost_what_they_hit_and_are_reported() {
    for seed in 2000..2012 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        world.crash();
        for _ in 0..30 {
            world.check_flip();
            world.check_wiped_batch();
            world.check_wiped_header();
        }
    }
}
