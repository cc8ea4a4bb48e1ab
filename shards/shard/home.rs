//! Where does a queue live? A pure function of its name within its virtual host and the number of shards: no directory, no look-up.
//!
//! The hash is FNV-1a with a final mix. It is part of the layout: every shard of a process, and every process that reads
//! what another wrote, must agree on it, so it is spelled out here and pinned by a test.

use crate::Destinations;
use crate::durability::is_of_topology;
use crate::queues::is_ours;
use crate::topology::COORDINATOR;
use crate::vhost;

/// The shard that the queue of this name lives on, where there are so many: the one that its rules name, else the one of its hash.
pub fn queue_home(destinations: &Destinations, queue: &str, shards: usize) -> usize {
    let pinned = if is_ours(queue) { None } else { destinations.pin(queue) };
    match pinned.and_then(|shard| usize::try_from(shard).ok()) {
        Some(shard) if shard < shards => shard,
        Some(_) | None => home_shard(vhost::DEFAULT, queue, shards),
    }
}

/// The shard whose journal a definition belongs to.
pub fn definition_home(
    destinations: &Destinations,
    definition: &corelane_journal::Queue,
    shards: usize,
) -> usize {
    if is_of_topology(definition.kind) {
        COORDINATOR
    } else {
        queue_home(destinations, &definition.name, shards)
    }
}

/// The shard that owns the queue.
pub fn home_shard(virtual_host: &str, queue: &str, shards: usize) -> usize {
    ((u128::from(hash_name(virtual_host, queue)) * shards as u128) >> 64) as usize
}

pub(crate) fn hash_name(virtual_host: &str, name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in virtual_host.bytes().chain([0]).chain(name.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_pinned() {
        let homes: Vec<usize> = (0..16).map(|n| home_shard("/", &format!("q{n}"), 4)).collect();
        assert_eq!(homes, PINNED);
        assert_eq!(home_shard("/", "anything", 1), 0);
    }

    #[test]
    fn exchanges_and_bindings_are_defined_by_the_coordinator() {
        let rules = Destinations::new(Vec::new(), true);
        let name = (0..).map(|n| format!("q{n}")).find(|name| home_shard("/", name, 4) == 3);
        let name = name.expect("one of many");
        for (kind, expect) in [(1, 3), (2, 3), (3, 3), (4, 0), (5, 0)] {
            let definition = corelane_journal::Queue {
                uid: 1,
                version: 1,
                since: 0,
                kind,
                name: name.clone(),
                properties: bytes::Bytes::new(),
                subscription: bytes::Bytes::new(),
            };
            assert_eq!(definition_home(&rules, &definition, 4), expect, "{kind}");
        }
    }

    #[test]
    fn queues_spread_evenly() {
        let mut counts = [0; 4];
        for n in 0..4000 {
            counts[home_shard("/", &format!("orders.{n}"), 4)] += 1;
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }

    const PINNED: [usize; 16] = [0, 3, 0, 1, 3, 2, 0, 3, 1, 1, 2, 3, 1, 1, 1, 3];
}
