//! What is in a queue that is a table: of each key the last value, shown to everybody?
//!
//! Where messages have a last-value key, the later of a key takes the place of the earlier one, whether a consumer holds that or not.
//! Where consumers acquire nothing, each of them sees each message once, as a browser does; what is in such a queue ends with its time.

use corelane_shard::DestinationRule;

use crate::oracle::Oracle;
use crate::plan::QueuePlan;
use crate::random::Random;

/// The time of what nobody takes.
const EXPIRATION_US: [u64; 3] = [20_000, 200_000, 1_000_000];

/// Makes a table of some queues.
pub(crate) fn draw(random: &mut Random, queue: &mut QueuePlan) {
    if random.one_in(6) {
        queue.rule.last_value_key = Some("k".into());
        queue.replaces = true;
    }
    if random.one_in(8) {
        queue.rule = DestinationRule {
            exclusive: None,
            consumers_max: None,
            sticky_groups: None,
            deliveries_max: None,
            redelivery: None,
            ack_deadline_us: None,
            non_destructive: Some(true),
            expiration_us: Some(EXPIRATION_US[random.below(EXPIRATION_US.len())]),
            ..queue.rule.clone()
        };
        (queue.exclusive, queue.shows_all) = (false, true);
    }
}

impl Oracle {
    /// Whether a message may have given its place to another: one of its key that was not sent before it by the same sender. Those
    /// of transactions come when these commit, and delayed ones when they are due.
    pub(crate) fn may_be_replaced(&self, number: usize) -> bool {
        let message = &self.messages[number];
        let sent = &message.sent;
        let is_later = |other: usize| {
            let in_order = message.posted_in.is_none() && self.messages[other].posted_in.is_none();
            let it = &self.messages[other].sent;
            let before = other < number && in_order && it.stream == sent.stream && !it.is_delayed;
            other != number && !before && !self.was_refused(other)
        };
        let of_key = |other: usize| {
            let it = &self.messages[other].sent;
            (it.queue, it.key) == (sent.queue, sent.key)
        };
        let others = 0..self.messages.len();
        self.queues[sent.queue].replaces
            && !message.is_dead
            && others.into_iter().any(|it| of_key(it) && is_later(it))
    }
}
