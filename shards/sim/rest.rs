//! What must hold when nothing is on its way and all faults are over?
//!
//! Then everyone has heard everything, so what the clients know and what the queues have noted is the same:
//! - a queue's acquired messages are those that its consumers hold;
//! - who has given credit is not kept from messages for the want of it, or by a socket, a window, a lane or a turn;
//! - nobody is told of work that he has not looked at;
//! - who sends to a queue with room has credit.

use corelane_protocol::amqp10::LinkId;

use crate::oracle::Oracle;
use crate::plan::{NodeKind, QueuePlan};
use crate::workload::Workload;
use crate::world::World;

/// Checks all queues that clients know by their names.
pub(crate) fn check(world: &World, workload: &Workload, oracle: &Oracle) {
    for queue in named(oracle) {
        check_held(world, oracle, queue);
        check_ready(world, workload, oracle, queue);
    }
    check_senders(world, workload, oracle);
}

fn named(oracle: &Oracle) -> impl Iterator<Item = usize> {
    (0..oracle.queues.len()).filter(|queue| matches!(oracle.queues[*queue].kind, NodeKind::Queue))
}

fn check_held(world: &World, oracle: &Oracle, queue: usize) {
    let name = &oracle.queues[queue].name;
    let shard = &world.shards[world.home_of(name)];
    let depth = shard.queue(name).and_then(|queue| shard.engine().depth(queue)).unwrap_or_default();
    if let Some(held) = oracle.held_of(queue) {
        assert_eq!(depth.acquired, held as u64, "{name} has {depth:?}");
    }
}

fn check_ready(world: &World, workload: &Workload, oracle: &Oracle, queue: usize) {
    let name = &oracle.queues[queue].name;
    let shard = &world.shards[world.home_of(name)];
    let engine = shard.engine();
    let consumers = shard.queue(name).into_iter().flat_map(|queue| engine.consumers(queue));
    let lists: Vec<_> =
        consumers.filter_map(|consumer| engine.explain(consumer)).map(|view| view.list).collect();
    let is_told = lists.iter().any(|list| list.is_notified());
    assert!(!is_told, "{name} has told somebody of work who does not look: {lists:?}");
    // The engine has reasons of its own, which are checked there.
    let kept = lists.iter().filter(|list| list.is_kept_by_owner()).count();
    let peers = workload.peers.iter().enumerate().filter(|(_, peer)| peer.is_alive && !peer.is_closing);
    let without_credit = peers.flat_map(|(index, peer)| {
        let links = workload.receivers(index).into_iter();
        let of_queue = links.filter(|(_, consumer)| oracle.consumers[*consumer].queue == queue);
        of_queue.filter(|(link, _)| world.clients[peer.client].credit_left(LinkId(*link)) == 0)
    });
    let without_credit = without_credit.count();
    assert!(
        kept <= without_credit,
        "of {name} {without_credit} have no credit, and these get nothing: {lists:?}"
    );
}

/// The part about senders, which holds when the queues are empty as well.
pub(crate) fn check_senders(world: &World, workload: &Workload, oracle: &Oracle) {
    for queue in named(oracle) {
        let QueuePlan { name, rule, .. } = &oracle.queues[queue];
        let shard = &world.shards[world.home_of(name)];
        if shard.queue(name).is_some_and(|queue| shard.engine().is_full(queue)) {
            continue;
        }
        let peers = workload.peers.iter().enumerate().filter(|(_, peer)| peer.is_alive && !peer.is_closing);
        for (index, peer) in peers {
            for (link, _) in workload.senders(index).into_iter().filter(|(_, of)| *of == queue) {
                let credit = world.clients[peer.client].credit_left(LinkId(link));
                assert!(credit > 0, "client {index} has no credit to send to {name}: {rule:?}");
            }
        }
    }
}
