//! Which deliveries may have missed their deadline, and what may be said of those?
//!
//! The queues count the deliveries that they took back from their consumers for that, so it is known when that happened, though not
//! which they were: some of those that were sent to the queue long enough ago to have been held for so long. Their consumers may
//! speak of them too late, others may have them, they have failed once more, and transactions that settled them may fail. Everything
//! else stays as it was.

use crate::oracle::Oracle;
use crate::plan::{Plan, QueuePlan};
use crate::world::World;

/// Queues with deadlines: number, shard, and deliveries that were taken back by the last look.
#[derive(Debug)]
pub(crate) struct Deadlines(Vec<(usize, usize, u64)>);

impl Deadlines {
    pub(crate) fn new(plan: &Plan, world: &World) -> Self {
        let may_have = |queue: &usize| plan.changes || plan.queues[*queue].deadline_us.is_some();
        let queues = (0..plan.queue_count()).filter(may_have);
        Deadlines(queues.map(|queue| (queue, world.home_of(&plan.queues[queue].name), 0)).collect())
    }

    /// After each event: what has been taken back.
    pub(crate) fn look(&mut self, world: &World, oracle: &mut Oracle) {
        for (queue, home, known) in &mut self.0 {
            let QueuePlan { name, deadline_us, .. } = &oracle.queues[*queue];
            let Some(deadline_us) = *deadline_us else { continue };
            let shard = &world.shards[*home];
            let counters = shard.queue(name).and_then(|queue| shard.engine().queue_counters(queue));
            let missed = counters.map_or(0, |counters| counters.ack_deadlines_missed);
            // Where another queue has its name the count begins anew.
            if missed != std::mem::replace(known, missed) && missed > 0 {
                oracle.missed(*queue, world.now.saturating_sub(deadline_us));
            }
        }
    }
}

impl Oracle {
    /// Deliveries of a queue that began no later than this were taken back.
    fn missed(&mut self, queue: usize, begun: u64) {
        self.queues[queue].missed = begun;
        // Its dead letters may be there.
        let is_in = |it: &usize| *it == queue || self.queues[*it].dead_letter == Some(queue);
        for message in self.messages.iter_mut().filter(|it| is_in(&it.sent.queue) && it.sent_at <= begun) {
            message.is_loose = true;
        }
    }

    /// Whether deliveries of a message may have had a deadline, in its queue or as a dead letter.
    pub(crate) fn has_deadline(&self, number: usize) -> bool {
        let queue = &self.queues[self.messages[number].sent.queue];
        let grave = queue.dead_letter.map(|grave| &self.queues[grave]);
        [Some(queue), grave].into_iter().flatten().any(|queue| queue.deadline_us.is_some())
    }
}
