//! Everything at once: a few seeds, checked often. `corelane-sim` runs as many as one likes.

use corelane_sim::{Options, Simulation};

fn run(seed: u64, events: u64) -> corelane_sim::Report {
    Simulation::new(Options { seed, events, shards: None, check_every: 4 }).run()
}

#[test]
fn whatever_happens_every_message_ends_once() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let mut deliveries = 0;
    for seed in 0..seeds {
        deliveries += run(seed, 2_000).deliveries;
    }
    assert!(deliveries > 100 * seeds, "something happens: {deliveries} deliveries");
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 1000..1004 {
        assert_eq!(run(seed, 1_500), run(seed, 1_500));
    }
}
