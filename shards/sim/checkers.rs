//! What must hold of every shard at every moment, whatever was sent?
//!
//! The engines' own `verify` (lists, counts, and the rule that nobody who is ready is forgotten), the conservation of messages by
//! what the queues have counted, and bounded lanes.

use corelane_shard::{Lane, OverflowRule, Shard};

use crate::plan::QueuePlan;
use crate::world::World;

/// Mail in a lane, beside its messages, for each link and connection of the world: requests are answered one by one.
const MAIL_MAX: usize = 4096;

/// Everything about the shards. Returns how many messages there are.
pub(crate) fn check(world: &World, queues: &[String]) -> u64 {
    let mut messages = 0;
    for (index, shard) in world.shards.iter().enumerate() {
        shard.engine().verify();
        for name in queues {
            messages += check_conservation(shard, name);
        }
        for lane in [Lane::Handoff, Lane::Control] {
            let waiting = world.mail_for(index, lane);
            assert!(waiting <= MAIL_MAX, "{waiting} pieces of mail wait for shard {index} in lane {lane:?}");
        }
    }
    messages
}

/// What came into a queue is in it or has left it by one of the ways that are counted.
fn check_conservation(shard: &Shard, name: &str) -> u64 {
    let Some(queue) = shard.queue(name) else { return 0 };
    let (Some(depth), Some(counts)) = (shard.engine().depth(queue), shard.engine().queue_counters(queue))
    else {
        return 0;
    };
    let alone = counts.expired + counts.exhausted + counts.dropped + counts.replaced + counts.removed;
    let left = counts.accepted + counts.rejected + alone;
    // What a transaction has posted counts when that commits.
    let there = depth.messages - depth.pending;
    assert_eq!(counts.enqueued, there + left, "{name} has {depth:?} and counted {counts:?}");
    let visible = depth.available + depth.acquired + depth.held;
    assert_eq!(visible + depth.pending + depth.retired, depth.messages, "{name} has {depth:?}");
    depth.messages
}

/// A queue that refuses what is too much never has too much.
pub(crate) fn check_limits(world: &World, queues: &[QueuePlan]) {
    for QueuePlan { name, rule, .. } in
        queues.iter().filter(|plan| plan.is_bounded && plan.rule.overflow == Some(OverflowRule::Reject))
    {
        let shard = &world.shards[world.home_of(name)];
        let depth = shard.queue(name).and_then(|queue| shard.engine().depth(queue)).unwrap_or_default();
        let within = |count: u64, max: Option<u64>| max.is_none_or(|max| count <= max);
        assert!(
            within(depth.messages, rule.messages_max) && within(depth.bytes, rule.bytes_max),
            "{name} has more than it may: {depth:?}"
        );
    }
}

/// Nothing is left of anything.
pub(crate) fn check_empty(world: &World, queues: &[String]) {
    for (index, shard) in world.shards.iter().enumerate() {
        shard.engine().verify();
        for name in queues {
            let depth = shard.queue(name).and_then(|queue| shard.engine().depth(queue)).unwrap_or_default();
            assert_eq!(depth.messages, 0, "{name} is not empty: {depth:?}");
        }
        assert_eq!(shard.participation_count(), 0, "shard {index} has parts of transactions that are over");
        assert_eq!(shard.memory_used(), 0, "shard {index} counts memory for no message");
        for lane in [Lane::Handoff, Lane::Control] {
            assert_eq!(world.mail_for(index, lane), 0, "mail is left for shard {index} in lane {lane:?}");
        }
    }
}

/// Messages of a queue that it has dropped on its own.
pub(crate) fn dropped(world: &World, name: &str) -> u64 {
    let counted = world.shards.iter().filter_map(|shard| {
        let counts = shard.engine().queue_counters(shard.queue(name)?)?;
        Some(counts.expired + counts.dropped + counts.exhausted + counts.replaced)
    });
    counted.sum()
}
