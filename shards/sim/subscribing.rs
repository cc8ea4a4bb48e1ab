//! Who subscribes to which topics, and what does each subscription have to get?
//!
//! The oracle counts a topic and a subscription as queues of their own kinds. What is sent to a topic is one message; each subscription
//! that it comes to has a copy, with a fate of its own. A subscription that was confirmed before a message was sent, and that matches
//! it, is owed it, unless the message's time was over.

use crate::client::ReceiverOptions;
use crate::oracle::{Oracle, Sent};
use crate::plan::{NodeKind, Plan, QueuePlan, Selector, plain_queue};
use crate::random::Random;

/// Topics that messages are published to.
pub const TOPICS: [&str; 3] = ["t.a", "t.b", "u.a.x"];

/// Patterns, and which of the topics they match.
pub const PATTERNS: [(&str, [bool; 3]); 7] = [
    ("t.a", [true, false, false]),
    ("t.*", [true, true, false]),
    ("#", [true, true, true]),
    ("*.a.#", [true, false, true]),
    ("u.>", [false, false, true]),
    ("t.>", [true, true, false]),
    ("v", [false, false, false]),
];

/// Subscriptions of one world that anything may come to: each makes the end longer.
const SUBSCRIPTIONS_MAX: usize = 12;

/// A subscription, as its consumers know it.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    name: String,
    pattern: usize,
    selector: Option<Selector>,
    pub(crate) is_durable: bool,
    is_shared: bool,
    /// The first message that was sent after the first attach was confirmed.
    since: Option<usize>,
    /// Nobody can come back to it.
    is_ended: bool,
    /// Consumers that it has had: each of a shared one has a name of its own.
    consumers: usize,
}

impl Subscription {
    fn draw(random: &mut Random, plan: &Plan, number: usize) -> Self {
        Subscription {
            name: format!("d{number}"),
            pattern: random.below(PATTERNS.len()),
            selector: plan.selector(random),
            is_durable: random.one_in(2),
            is_shared: random.one_in(2),
            since: None,
            is_ended: false,
            consumers: 0,
        }
    }

    /// Only while its consumer is there.
    pub(crate) fn is_own(&self) -> bool {
        !self.is_durable && !self.is_shared
    }

    /// Whoever attaches last has its link.
    pub(crate) fn may_be_stolen(&self) -> bool {
        self.is_durable && !self.is_shared
    }

    /// The node, and how a consumer asks for it.
    pub(crate) fn terms(&self) -> (&'static str, ReceiverOptions) {
        let options = ReceiverOptions {
            durable: self.is_durable,
            selector: self.selector.map(Selector::text),
            capabilities: if self.is_shared { vec!["topic", "shared"] } else { vec!["topic"] },
            ..ReceiverOptions::default()
        };
        (PATTERNS[self.pattern].0, options)
    }

    /// The name of the link of its newest consumer.
    pub(crate) fn link_name(&self) -> String {
        if self.is_shared { format!("{}|{}", self.name, self.consumers) } else { self.name.clone() }
    }

    /// Whether it gets what is sent to this topic.
    pub(crate) fn wants(&self, topic: usize, sent: &Sent) -> bool {
        let selected = self.selector.is_none_or(|selector| selector.matches(sent.key, sent.color));
        PATTERNS[self.pattern].1[topic] && selected
    }
}

impl QueuePlan {
    pub(crate) fn subscription(&self) -> Option<&Subscription> {
        match &self.kind {
            NodeKind::Subscription(subscription) => Some(subscription),
            NodeKind::Queue | NodeKind::Topic(_) => None,
        }
    }

    fn subscription_mut(&mut self) -> Option<&mut Subscription> {
        match &mut self.kind {
            NodeKind::Subscription(subscription) => Some(subscription),
            NodeKind::Queue | NodeKind::Topic(_) => None,
        }
    }
}

impl Oracle {
    /// The subscription that a new consumer is for: one that is there, or a new one. None: there are many already.
    pub(crate) fn draw_subscription(&mut self, random: &mut Random, plan: &Plan) -> Option<usize> {
        let usable = |queue: usize| {
            let attached = self.consumers.iter().any(|it| it.queue == queue && it.is_attached);
            self.queues[queue].subscription().is_some_and(|it| {
                let may_join = if it.is_shared {
                    it.is_durable || attached && it.since.is_some()
                } else {
                    it.is_durable && !attached
                };
                may_join && !it.is_ended
            })
        };
        let known: Vec<usize> = (0..self.queues.len()).filter(|queue| usable(*queue)).collect();
        let living = |queue: &&QueuePlan| queue.subscription().is_some_and(|it| !it.is_ended);
        let queue = if !known.is_empty() && !random.one_in(3) {
            known[random.below(known.len())]
        } else if self.queues.iter().filter(living).count() < SUBSCRIPTIONS_MAX {
            let number = self.queues.len();
            let mut queue = plain_queue(number, false);
            queue.kind = NodeKind::Subscription(Box::new(Subscription::draw(random, plan, number)));
            self.add(queue)
        } else {
            return None;
        };
        self.queues[queue].subscription_mut()?.consumers += 1;
        Some(queue)
    }

    /// A consumer knows that it is attached.
    pub(crate) fn confirmed(&mut self, consumer: usize) {
        let since = self.message_count();
        let consumer = &mut self.consumers[consumer];
        consumer.is_confirmed = true;
        if let Some(subscription) = self.queues[consumer.queue].subscription_mut() {
            subscription.since.get_or_insert(since);
        }
    }

    /// A consumer has gone; one of a subscription may have taken it along.
    pub(crate) fn subscriber_gone(&mut self, queue: usize, is_closed: bool) {
        let more = |it: &crate::oracle::Consumer| it.queue == queue && it.is_attached && it.is_confirmed;
        let is_left = !self.consumers.iter().any(more);
        if let Some(subscription) = self.queues[queue].subscription_mut() {
            subscription.is_ended |= is_left && (is_closed || !subscription.is_durable);
            if is_closed {
                // The broker may have given up the others; then it begins anew when somebody comes.
                subscription.since = None;
            }
        }
    }

    /// A message that has come to a subscription's consumer, as the subscription's own.
    pub(crate) fn copy_for(&mut self, queue: usize, number: usize) -> usize {
        let sent = self.sent_of(number).clone();
        let NodeKind::Topic(topic) = self.queues[sent.queue].kind else {
            panic!("message {number} of {} came to a subscription", self.queues[sent.queue].name);
        };
        let subscription = self.queues[queue].subscription().expect("it is asked for subscriptions only");
        assert!(subscription.wants(topic, &sent), "message {number} of {topic} came to {subscription:?}");
        self.messages[number].was_seen = true;
        self.copy(queue, number)
    }

    /// Every subscription that is there has got what it is owed by now, or each that has consumers.
    pub(crate) fn check_owed(&self, are_attached: bool) {
        for (queue, plan) in self.queues.iter().enumerate() {
            let Some(subscription) = plan.subscription().filter(|it| !it.is_ended) else { continue };
            let Some(since) = subscription.since else { continue };
            if are_attached && !self.consumers.iter().any(|it| it.queue == queue && it.is_attached) {
                continue;
            }
            for (number, sent) in self.stored_since(since) {
                let NodeKind::Topic(topic) = self.queues[sent.queue].kind else { continue };
                if subscription.wants(topic, sent) && !plan.may_expire(number, sent) {
                    assert!(
                        self.is_copy_ended(queue, number),
                        "{subscription:?} has not got message {number}: {sent:?}, but {}",
                        self.describe_copy(queue, number),
                    );
                }
            }
        }
    }
}
