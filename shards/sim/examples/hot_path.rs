//! How many instructions does a message cost the broker? Run under callgrind, which counts what `shard_part` does:
//!
//! `valgrind --tool=callgrind --toggle-collect='*HotPath*shard_part*' hot_path SIZE BATCH ROUNDS [CROWD COUNT]`
//!
//! where CROWD is who else is on the queue: `idle`, `interested`, `browsers`, `equals` or `selectors`. `scripts/instructions` runs it.

use corelane_sim::{Crowd, HotPath};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default| {
        arguments.get(n).map_or(default, |argument| argument.parse().expect("it is a number"))
    };
    let (size, batch, rounds) = (number(0, 1024), number(1, 100), number(2, 200));
    let crowd = arguments.get(3).map(|crowd| match crowd.as_str() {
        "idle" => Crowd::Idle,
        "interested" => Crowd::Interested,
        "browsers" => Crowd::Browsers,
        "equals" => Crowd::Equals,
        "selectors" => Crowd::Selectors,
        other => panic!("there is no crowd {other}"),
    });
    let mut path = HotPath::with_crowd(size, crowd.map(|crowd| (crowd, number(4, 1))));
    for round in 0..rounds {
        assert!(path.round(batch, |shard_part| shard_part()), "round {round} is complete");
    }
    println!("{} messages of {size} B in batches of {batch}", batch * rounds);
}
