//! Many seeds of a client and a server.

use super::pair::Pair;

#[test]
fn every_message_and_every_outcome_arrives_once() {
    let (mut arrived, mut outcomes) = (0, 0);
    for seed in 0..seeds() {
        let result = std::panic::catch_unwind(|| Pair::new(seed).run(3000));
        let summary = result.unwrap_or_else(|_| panic!("seed {seed}"));
        arrived += summary.arrived;
        outcomes += summary.outcomes;
    }
    println!("{arrived} messages, {outcomes} outcomes");
    assert!(arrived > 100 * seeds() && outcomes > 30 * seeds(), "{arrived} messages, {outcomes} outcomes");
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60)
}
