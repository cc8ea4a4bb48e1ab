//! How many instructions does a message cost the broker? Run under callgrind, which counts what `shard_part` does:
//!
//! `valgrind --tool=callgrind --toggle-collect='*HotPath::shard_part' target/release/examples/hot_path SIZE BATCH ROUNDS`

use corelane_sim::HotPath;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap_or(0));
    let mut next = |default| arguments.next().unwrap_or(default);
    let (size, batch, rounds) = (next(1024), next(100), next(200));
    let mut path = HotPath::new(size);
    for round in 0..rounds {
        assert!(path.round(batch, |shard_part| shard_part()), "round {round} is complete");
    }
    println!("{} messages of {size} B in batches of {batch}", batch * rounds);
}
