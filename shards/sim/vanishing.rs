//! Which queues go while clients use them, and what may then be missing?
//!
//! A queue goes when an operator deletes it, with its last consumer (`auto-delete`), or when no link was attached to it for long
//! (`idle-expiry`), and whoever uses its name next has another queue. After each event the simulation looks whether a name still
//! means the queue that it meant before, so what has gone is known exactly:
//! - a queue goes for a reason: while a link is attached to it for certain, only an operator's;
//! - what was stored in it does not come to anybody who attached later, but as a dead letter if somebody held it;
//! - links that were made for it end, with `amqp:resource-deleted`, and no other link does;
//! - what is sent by such a link is refused, and a transaction that has to do with the queue may fail;
//! - of the next queue everything holds that holds of any.

use std::collections::BTreeSet;

use crate::oracle::{Answer, Fate, Message, Oracle};
use crate::plan::{Plan, QueuePlan};
use crate::random::Random;
use crate::workload::{Use, Workload};
use crate::world::World;

/// How long a queue may be unused, at most.
pub(crate) const IDLE_EXPIRY_US_MAX: u64 = 1_000_000;
const IDLE_EXPIRY_US: [u64; 3] = [100_000, 300_000, IDLE_EXPIRY_US_MAX];

/// What the broker says to a link whose queue has gone, and to a message for one.
const DELETED: &str = "amqp:resource-deleted";
const NOT_FOUND: &str = "rejected amqp:not-found";

/// A queue that is there, as its shard knows it.
type Index = (u32, u32);

/// Which queues there are: number, shard, and what that has of this name.
#[derive(Debug)]
pub(crate) struct Lives(Vec<(usize, usize, Option<Index>)>);

/// Lets some queues of some plans go.
pub(crate) fn draw(random: &mut Random, plan: &mut Plan) {
    if !random.one_in(3) {
        return;
    }
    plan.deletes = plan.operates && random.one_in(2);
    let count = plan.queue_count();
    for queue in &mut plan.queues[..count] {
        // What dead letters have become is known by where they are.
        let is_grave = queue.is_grave();
        if !is_grave && random.one_in(3) {
            queue.rule.auto_delete = Some(true);
        }
        if !is_grave && random.one_in(3) {
            queue.rule.idle_expiry_us = Some(IDLE_EXPIRY_US[random.below(IDLE_EXPIRY_US.len())]);
        }
        queue.goes = plan.deletes || queue.rule.auto_delete.is_some() || queue.rule.idle_expiry_us.is_some();
    }
}

impl Lives {
    pub(crate) fn new(plan: &Plan, world: &World) -> Self {
        let queues = (0..plan.queue_count()).filter(|queue| plan.queues[*queue].goes);
        Lives(queues.map(|queue| (queue, world.home_of(&plan.queues[queue].name), None)).collect())
    }

    /// Queues that have gone since this was last asked.
    pub(crate) fn gone(&mut self, world: &World, names: &[String]) -> Vec<usize> {
        let mut gone = Vec::new();
        for (queue, home, known) in &mut self.0 {
            let there = world.shards[*home].queue(&names[*queue]).map(|id| (id.index, id.generation));
            let before = std::mem::replace(known, there);
            if before.is_some() && before != there {
                gone.push(*queue);
            }
        }
        gone
    }
}

/// Nothing is left of queues that nobody uses any more.
pub(crate) fn check_gone(world: &World, queues: &[QueuePlan]) {
    let temporary = |it: &&QueuePlan| it.rule.auto_delete.is_some() || it.rule.idle_expiry_us.is_some();
    for QueuePlan { name, rule, .. } in queues.iter().filter(temporary) {
        let is_there = world.shards[world.home_of(name)].queue(name).is_some();
        assert!(!is_there, "{name} is there and nobody uses it: {rule:?}");
    }
}

impl Workload {
    /// A queue has gone: was there a reason?
    pub(crate) fn vanished(&self, oracle: &mut Oracle, queue: usize) {
        let QueuePlan { name, rule, deleting, gone, .. } = &oracle.queues[queue];
        let (mut senders, mut consumers) = (BTreeSet::new(), BTreeSet::new());
        for (index, peer) in self.peers.iter().enumerate().filter(|(_, it)| it.is_alive && !it.is_closing) {
            for (link, used) in &peer.links {
                match used {
                    Use::Sender { queue: Some(to), life, .. } if *to == queue && life == gone => {
                        senders.extend(peer.confirmed.contains(link).then_some((index, *link)));
                    }
                    Use::Receiver { consumer } => {
                        let it = &oracle.consumers[*consumer];
                        let is_sure = it.queue == queue && it.life == *gone && it.is_confirmed;
                        consumers.extend(is_sure.then_some((index, *link)));
                    }
                    Use::Sender { .. } | Use::Coordinator | Use::Ending => {}
                }
            }
        }
        let goes_with_consumers = rule.auto_delete.is_some() && consumers.is_empty();
        let is_idle = rule.idle_expiry_us.is_some() && consumers.is_empty() && senders.is_empty();
        assert!(
            *deleting > 0 || goes_with_consumers || is_idle,
            "{name} has gone, and links have not (client, link): {senders:?} send, {consumers:?} receive"
        );
        oracle.vanished(queue, true);
    }
}

impl Oracle {
    /// `is_new`: and is not there again, so that what was stored was stored in it.
    pub(crate) fn vanished(&mut self, queue: usize, is_new: bool) {
        let own = &mut self.queues[queue];
        own.gone += 1;
        own.removed = self.messages.len();
        for message in self.messages.iter_mut().filter(|it| it.sent.queue == queue) {
            if is_new && message.answer == Answer::Stored {
                message.buried_at.get_or_insert(self.consumers.len());
            }
            // It may be a dead letter by now, whatever is said of it.
            message.is_loose |= message.holder.is_some() || matches!(message.fate, Fate::Retired { .. });
        }
        self.loosen(|consumer| consumer.queue == queue);
        self.may_fail(queue);
    }

    /// Whether a link may have been ended for this.
    pub(crate) fn may_have_ended(&mut self, used: Use, error: Option<&str>) -> bool {
        let (queue, life) = match used {
            Use::Sender { queue: Some(queue), life, .. } => (queue, life),
            Use::Receiver { consumer } => (self.consumers[consumer].queue, self.consumers[consumer].life),
            Use::Sender { queue: None, .. } | Use::Coordinator | Use::Ending => return false,
        };
        if error != Some(DELETED) {
            return false;
        }
        let own = &self.queues[queue];
        if life == own.gone && (own.deleting > 0 || own.rule.auto_delete.is_some()) {
            // It was made and gone within one event.
            self.vanished(queue, false);
        }
        life < self.queues[queue].gone
    }

    /// What a link that has ended was still to send is not sent, and of the rest nobody will hear.
    pub(crate) fn cut(&mut self, used: Use) {
        let Use::Sender { stream, .. } = used else { return };
        let waiting = |it: &&mut Message| it.sent.stream == stream && it.answer == Answer::Waiting;
        self.messages.iter_mut().filter(waiting).for_each(|message| message.is_loose = true);
    }

    /// Whether a message was answered as one for a queue that has gone.
    pub(crate) fn came_too_late(&self, number: usize, outcome: &str) -> bool {
        let sent = &self.messages[number].sent;
        let is_gone = sent.life.is_some_and(|life| life < self.queues[sent.queue].gone);
        is_gone && outcome.split(" in ").next() == Some(NOT_FOUND)
    }

    /// A consumer that attached after the queue of a message had gone does not get that.
    pub(crate) fn judge_life(&self, index: usize, number: usize) {
        let message = &self.messages[number];
        let is_known = message.buried_at.is_none_or(|at| index < at);
        assert!(
            is_known || message.sent.queue != self.consumers[index].queue,
            "message {number} came to {index} from a queue that had gone before: {message:?}"
        );
    }
}
