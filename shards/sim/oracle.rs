//! What may happen to a message, and did anything else?
//!
//! The oracle follows every message by what clients see: who sent it and what the broker answered, to whom it came, and how that
//! ended. It knows nothing of shards and engines. Its rules:
//! - what comes was sent, to this queue (or died in a queue that has this one for its dead letters), and is for this consumer;
//! - it comes to one consumer at a time, and never again after it was accepted;
//! - it comes first in the order in which its producer sent it, among those of its level and group, to each link;
//! - a browser sees it once;
//! - its delivery-count is not above the number of times it failed, but for one message of each consumer that was cut off;
//! - a group has one consumer at a time, an exclusive queue one, and nobody holds more than the queue's prefetch;
//! - a transaction is all or nothing (`dealing`);
//! - each subscription gets its own copy of what is sent to a topic, once, and all it is owed (`subscribing`);
//! - in the end every message that the broker took has ended in a way that its queue allows.
//!
//! What cannot be known is not judged: what became of the last words of a client that was cut off, and deliveries to consumers whose
//! shard stood still so long that it was given up.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::Received;
use crate::dealing::Transaction;
use crate::moving::OfKey;
use crate::plan::{Group, NodeKind, QueuePlan, Selector};
use crate::subscribing::Subscription;

/// A message, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) queue: usize,
    /// One use of one sender link: what is sent by it stays in order.
    pub(crate) stream: usize,
    /// The client that sent it.
    pub(crate) peer: usize,
    pub(crate) priority: u8,
    pub(crate) group: Option<Group>,
    pub(crate) key: i64,
    pub(crate) color: &'static str,
    pub(crate) size: usize,
    pub(crate) ttl_ms: Option<u32>,
    /// Whether its own time ends; none if that hangs on what its last queue did with it.
    pub(crate) ends: Option<bool>,
    /// How often its queue had gone when its link was made, if that has a queue.
    pub(crate) life: Option<usize>,
    /// It is not to be available at once.
    pub(crate) is_delayed: bool,
}

/// What the broker said to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Waiting,
    Stored,
    Refused,
    /// Its producer was gone before it could hear.
    Unknown,
}

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// In its queue, or on its way.
    Open,
    /// Its consumer has said so; the broker may not have heard it yet.
    Ending {
        accepted: bool,
    },
    Ended {
        accepted: bool,
    },
    /// Its consumer has said so and was cut off: the broker may have heard it or not.
    Unsure,
    /// Its consumer has said so inside a transaction.
    Retired {
        transaction: usize,
        outcome: Settling,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) sent: Sent,
    /// Its own number, or that of what was sent to a topic and came to a subscription as this.
    pub(crate) original: usize,
    pub(crate) answer: Answer,
    pub(crate) sent_at: u64,
    pub(crate) fate: Fate,
    pub(crate) holder: Option<usize>,
    /// The transaction that it was sent in, and that it was sent to its holder in, while that has not ended.
    pub(crate) posted_in: Option<usize>,
    pub(crate) acquired_in: Option<usize>,
    /// Somebody has acquired it before.
    pub(crate) was_seen: bool,
    /// The largest delivery-count that was read.
    delivery_count_seen: u32,
    /// Those who have settled or held it in a way that may have been given up.
    pub(crate) is_loose: bool,
    /// It came from the queue of dead letters.
    pub(crate) is_dead: bool,
    /// A consumer has accepted it, in time or late.
    pub(crate) was_accepted: bool,
    /// A consumer has said something that ends it, whatever became of that.
    pub(crate) may_have_ended: bool,
    pub(crate) failed_max: u32,
    /// An operator may have taken it out by its place, or has for certain.
    pub(crate) may_be_gone: bool,
    pub(crate) was_removed: bool,
    /// It was in its queue when that went, and there were so many consumers by then.
    pub(crate) buried_at: Option<usize>,
}

/// A consumer: one use of one receiver link.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub(crate) peer: usize,
    pub(crate) queue: usize,
    /// How often its queue had gone by then.
    pub(crate) life: usize,
    pub(crate) selector: Option<Selector>,
    pub(crate) no_local: bool,
    pub(crate) browse: bool,
    pub(crate) presettled: bool,
    pub(crate) is_attached: bool,
    /// It knows that it is attached.
    pub(crate) is_confirmed: bool,
    /// Its deliveries may have been given up by their queue.
    pub(crate) is_loose: bool,
    /// Unsettled deliveries: message and delivery id, in the order they came.
    pub(crate) held: Vec<(usize, u32)>,
    /// Of these, those that were sent in a transaction that has not ended, by delivery id.
    pub(crate) acquired: BTreeMap<u32, usize>,
    /// Those whose outcome was named in a transaction and not settled, likewise.
    pub(crate) noted: BTreeMap<u32, usize>,
    pub(crate) settles_second: bool,
    /// By stream, level, group and transaction: the last message that came to this consumer first of all.
    last: BTreeMap<(usize, u8, Option<Group>, Option<usize>), usize>,
    pub(crate) refused: BTreeSet<usize>,
    seen: BTreeSet<usize>,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) queues: Vec<QueuePlan>,
    pub(crate) messages: Vec<Message>,
    pub(crate) transactions: Vec<Transaction>,
    /// By subscription and number of what was sent: what came of it.
    pub(crate) copies: BTreeMap<(usize, usize), usize>,
    /// Where messages of a key were moved or copied to.
    pub(crate) transfers: Vec<OfKey>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) deliveries: u64,
    /// By queue: how many deliveries may have failed without having been said to. One for each consumer that has ended: the oldest
    /// that its client may have seen.
    failures: Vec<u32>,
    /// Messages may not be seen any more whose time is over.
    pub(crate) all_expired: bool,
    pub(crate) now: u64,
}

impl Oracle {
    pub(crate) fn new(queues: Vec<QueuePlan>) -> Self {
        Oracle {
            failures: vec![0; queues.len()],
            queues,
            messages: Vec::new(),
            transactions: Vec::new(),
            copies: BTreeMap::new(),
            transfers: Vec::new(),
            consumers: Vec::new(),
            deliveries: 0,
            all_expired: false,
            now: 0,
        }
    }

    /// One more queue.
    pub(crate) fn add(&mut self, queue: QueuePlan) -> usize {
        self.queues.push(queue);
        self.failures.push(0);
        self.queues.len() - 1
    }

    pub(crate) fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// A message's number is its body's beginning.
    pub(crate) fn sent(&mut self, sent: Sent) -> usize {
        let original = self.messages.len();
        self.messages.push(Message {
            sent,
            sent_at: self.now,
            original,
            answer: Answer::Waiting,
            fate: Fate::Open,
            holder: None,
            posted_in: None,
            acquired_in: None,
            was_seen: false,
            delivery_count_seen: 0,
            is_loose: false,
            is_dead: false,
            was_accepted: false,
            may_have_ended: false,
            failed_max: 0,
            may_be_gone: false,
            was_removed: false,
            buried_at: None,
        });
        self.messages.len() - 1
    }

    /// What came of a message to a topic in one of the subscriptions.
    pub(crate) fn copy(&mut self, queue: usize, original: usize) -> usize {
        if let Some(copy) = self.copies.get(&(queue, original)) {
            return *copy;
        }
        let sent = Sent { queue, ..self.messages[original].sent.clone() };
        let copy = self.sent(sent);
        self.messages[copy].original = original;
        self.messages[copy].sent_at = self.messages[original].sent_at;
        self.messages[copy].posted_in = self.messages[original].posted_in;
        // Nobody is told of each one.
        self.messages[copy].answer = Answer::Unknown;
        self.copies.insert((queue, original), copy);
        copy
    }

    pub(crate) fn sent_of(&self, number: usize) -> &Sent {
        &self.messages[number].sent
    }

    /// What was sent, and stored, from this number on.
    pub(crate) fn stored_since(&self, since: usize) -> impl Iterator<Item = (usize, &Sent)> {
        let stored = self.messages.iter().enumerate().skip(since);
        let stored = stored.filter(|(number, it)| it.answer == Answer::Stored && self.is_committed(*number));
        stored.map(|(number, it)| (number, &it.sent))
    }

    pub(crate) fn was_refused(&self, number: usize) -> bool {
        self.messages[number].answer == Answer::Refused
    }

    /// What came of a message in a subscription, in words.
    pub(crate) fn describe_copy(&self, queue: usize, original: usize) -> String {
        self.copies
            .get(&(queue, original))
            .map_or("nothing".to_owned(), |&copy| format!("{:?}", self.messages[copy]))
    }

    /// Whether what came of a message in a subscription has come to its end, or waits because a consumer does not want it, or an
    /// earlier one of its group.
    pub(crate) fn is_copy_ended(&self, queue: usize, original: usize) -> bool {
        let copy_of = self.copies.get(&(queue, original)).copied();
        let group = self.messages[original].sent.group;
        let blocks = |refused: &usize| {
            Some(*refused) == copy_of || group.is_some() && self.messages[*refused].sent.group == group
        };
        let refuses = |it: &Consumer| it.is_attached && it.queue == queue && it.refused.iter().any(blocks);
        // A transaction of which nobody has heard may have refused it.
        let may_block = |copy: &usize| {
            let message = &self.messages[*copy];
            message.is_loose && (Some(*copy) == copy_of || group.is_some() && message.sent.group == group)
        };
        let mut copies = self.copies.range((queue, 0)..(queue + 1, 0)).map(|(_, copy)| copy);
        copies.any(may_block)
            || copy_of.is_some_and(|copy| self.messages[copy].fate != Fate::Open)
            || self.consumers.iter().any(refuses)
    }

    pub(crate) fn body(number: usize, size: usize) -> String {
        let mut body = format!("{number:08}");
        body.extend(std::iter::repeat_n('x', size));
        body
    }

    /// An outcome has come; nobody waits for it if its link has ended meanwhile.
    pub(crate) fn answered(&mut self, number: usize, outcome: &str) {
        if self.messages[number].answer == Answer::Unknown {
            return;
        }
        let is_gone = self.came_too_late(number, outcome);
        let posted = self.messages[number]
            .posted_in
            .map(|transaction| self.post_answered((transaction, number), outcome, is_gone));
        let queue = &self.queues[self.messages[number].sent.queue];
        let message = &mut self.messages[number];
        assert_eq!(message.answer, Answer::Waiting, "message {number} is answered once");
        message.answer = match outcome {
            _ if posted == Some(true) => Answer::Stored,
            _ if posted == Some(false) => Answer::Refused,
            "accepted" => Answer::Stored,
            "rejected amqp:resource-limit-exceeded" if queue.refuses.covers(number) => Answer::Refused,
            _ if is_gone => Answer::Refused,
            other => panic!("message {number} for {} was answered {other:?}", queue.name),
        };
        assert!(
            message.answer != Answer::Refused || !message.was_seen,
            "message {number} was refused and delivered"
        );
    }

    /// Nobody will hear any more what becomes of this sender's messages.
    pub(crate) fn sender_gone(&mut self, stream: usize) {
        for message in self.messages.iter_mut().rev().filter(|message| message.sent.stream == stream) {
            if message.answer == Answer::Waiting {
                message.answer = Answer::Unknown;
            }
        }
    }

    pub(crate) fn attached(
        &mut self,
        peer: usize,
        queue: usize,
        selector: Option<Selector>,
        [no_local, browse, presettled]: [bool; 3],
    ) -> usize {
        self.consumers.push(Consumer {
            peer,
            queue,
            life: self.queues[queue].gone,
            selector,
            no_local,
            browse,
            presettled,
            is_attached: true,
            is_confirmed: false,
            is_loose: false,
            held: Vec::new(),
            acquired: BTreeMap::new(),
            noted: BTreeMap::new(),
            settles_second: false,
            last: BTreeMap::new(),
            refused: BTreeSet::new(),
            seen: BTreeSet::new(),
        });
        self.consumers.len() - 1
    }

    /// Consumers whose deliveries may have been given up from now on.
    pub(crate) fn loosen(&mut self, is_loose: impl Fn(&Consumer) -> bool) {
        for index in 0..self.consumers.len() {
            if self.consumers[index].is_attached && is_loose(&self.consumers[index]) {
                self.consumers[index].is_loose = true;
                for (number, _) in &self.consumers[index].held {
                    self.messages[*number].is_loose = true;
                }
            }
        }
    }

    /// A delivery has come to a consumer.
    pub(crate) fn delivered(&mut self, index: usize, received: &Received) {
        self.deliveries += 1;
        let number = self.identify(index, received);
        let consumer = &self.consumers[index];
        if !consumer.is_attached {
            // It crossed with the end of the link, and goes back.
            self.messages[number].was_seen |= !consumer.browse;
            return;
        }
        // What was given up may come late, when others have had it.
        self.messages[number].is_loose |= consumer.is_loose && !consumer.browse;
        let message = &mut self.messages[number];
        // Somebody has read a later delivery of it.
        let is_overtaken = message.was_seen && received.first_acquirer
            || received.delivery_count < message.delivery_count_seen;
        message.delivery_count_seen = message.delivery_count_seen.max(received.delivery_count);
        if let Some(transaction) = received.transaction
            && self.is_adrift(index, number, transaction, is_overtaken)
        {
            self.messages[number].was_seen = true;
            return;
        }
        self.judge_order(index, number, received);
        if self.consumers[index].browse {
            let first = self.consumers[index].seen.insert(number);
            assert!(first, "browser {index} sees message {number} twice");
            return;
        }
        self.judge_transactions(index, number, received.transaction);
        self.judge_ownership(index, number);
        let (message, consumer) = (&mut self.messages[number], &mut self.consumers[index]);
        if received.delivery_count > message.failed_max {
            let more = received.delivery_count - message.failed_max;
            message.failed_max = received.delivery_count;
            let failures = &mut self.failures[consumer.queue];
            // Who misses the deadline has failed too.
            let is_unknown = self.queues[consumer.queue].takes_settled_in || message.is_loose;
            assert!(
                more <= *failures || is_unknown,
                "message {number} says that it failed {more} times more than it did"
            );
            if !is_unknown {
                *failures -= more;
            }
        }
        if let Some(max) = self.queues[message.sent.queue].deliveries_max {
            let fails = u64::from(received.delivery_count);
            assert!(
                message.is_dead || fails < max,
                "message {number} has failed {fails} times, and {max} are too many"
            );
        }
        message.was_seen = true;
        (message.fate, message.acquired_in) = (Fate::Open, None);
        assert_eq!(received.settled, consumer.presettled, "link {index} is sent what it asked for");
        if consumer.presettled {
            message.fate = Fate::Ended { accepted: true };
        } else {
            message.holder = Some(index);
        }
        if let Some(transaction) = received.transaction {
            self.acquired((index, number, received.delivery_id), transaction);
        }
        if self.consumers[index].presettled {
            return;
        }
        self.consumers[index].held.push((number, received.delivery_id));
        self.judge_prefetch(index);
    }

    fn judge_prefetch(&self, index: usize) {
        let consumer = &self.consumers[index];
        let queue = &self.queues[consumer.queue];
        if let Some(limit) = queue.prefetch_max
            && !consumer.is_loose
        {
            // What goes back with its transaction may have gone before its consumer hears of that.
            let held = consumer.held.iter().filter(|it| self.is_surely_held(consumer, **it)).count();
            assert!(held <= limit, "consumer {index} holds more than the prefetch {limit}");
        }
    }

    /// Whether it is what was sent, and for this consumer.
    fn identify(&mut self, index: usize, received: &Received) -> usize {
        let number = received.body.get(..8).and_then(|number| number.parse().ok());
        let number: usize = number.unwrap_or_else(|| panic!("a body from nowhere: {:?}", received.body));
        assert_ne!(
            self.messages[number].answer,
            Answer::Refused,
            "message {number} was refused and delivered"
        );
        if let Some(transaction) = self.messages[number].posted_in {
            self.saw(transaction, true);
        }
        let consumer = &self.consumers[index];
        let number = match &self.queues[consumer.queue].kind {
            NodeKind::Subscription(_) => self.copy_for(consumer.queue, number),
            NodeKind::Queue if self.messages[number].sent.queue != consumer.queue => {
                self.moved_to(consumer.queue, number)
            }
            NodeKind::Queue | NodeKind::Topic(_) => number,
        };
        self.judge_life(index, number);
        let may_be_adrift = received.transaction.is_some_and(|it| self.may_be_adrift(index, it));
        let was_rejected = self.may_have_rejected(number) || self.may_be_removed(number);
        let (consumer, message) = (&self.consumers[index], &mut self.messages[number]);
        let name = &self.queues[consumer.queue].name;
        let sent = &message.sent;
        if sent.queue != consumer.queue {
            let died_in = &self.queues[sent.queue];
            assert_eq!(died_in.dead_letter, Some(consumer.queue), "message {number} came from {name}");
            if !consumer.browse && !message.is_dead {
                assert!(
                    died_in.may_kill(number, sent)
                        || message.is_loose
                        || was_rejected
                        || matches!(
                            message.fate,
                            Fate::Unsure | Fate::Ending { accepted: false } | Fate::Ended { accepted: false }
                        ),
                    "message {number} of {} died of nothing",
                    died_in.name
                );
                (message.is_dead, message.fate, message.holder) = (true, Fate::Open, None);
                message.failed_max = received.delivery_count;
                // It begins anew where it is now.
                (message.was_seen, message.delivery_count_seen) = (false, 0);
            }
        } else {
            // One that was too late for its deadline, or given up, may be read long after.
            let may_be_late = message.is_loose || consumer.is_loose || may_be_adrift;
            assert!(
                !message.is_dead || consumer.browse || may_be_late,
                "message {number} came back from the dead: {message:?} {consumer:?}"
            );
        }
        let sent = &message.sent;
        assert!(received.body.len() == 8 + sent.size, "message {number} is whole");
        // A dead letter comes from the broker.
        let local = consumer.no_local && sent.peer == consumer.peer && sent.queue == consumer.queue;
        assert!(!local, "message {number} came back to its sender");
        let wanted = consumer.selector.as_ref().is_none_or(|selector| selector.matches(sent.key, sent.color));
        assert!(wanted, "message {number} is not for {:?}", consumer.selector);
        assert!(
            !self.all_expired || message.is_dead || !self.queues[sent.queue].must_expire(number, sent),
            "message {number} of {name} is delivered after its time"
        );
        number
    }

    fn judge_order(&mut self, index: usize, number: usize, received: &Received) {
        let message = &self.messages[number];
        let (sent, consumer) = (&message.sent, &mut self.consumers[index]);
        if !received.first_acquirer || message.is_dead || sent.is_delayed {
            return;
        }
        let queue = &self.queues[sent.queue];
        // To others, since this delivery was given up on its way.
        assert!(
            !message.was_seen || consumer.browse || message.is_loose,
            "message {number} was delivered before and says that it was not to {index}: {message:?} {consumer:?}"
        );
        if queue.reorders || sent.queue != consumer.queue {
            return;
        }
        let level = if queue.priorities { sent.priority } else { 0 };
        let original = message.original;
        // What is posted in a transaction has its place before it is seen.
        let line = (sent.stream, level, sent.group, message.posted_in);
        let before = consumer.last.insert(line, original);
        let (message, queue) = (&self.messages[number], &self.queues[self.messages[number].sent.queue]);
        assert!(
            before < Some(original),
            "consumer {index} got {original} after {before:?}: {message:?} {queue:?}"
        );
    }

    fn judge_ownership(&mut self, index: usize, number: usize) {
        let message = &self.messages[number];
        let queue = &self.queues[self.consumers[index].queue];
        // Who was too late may speak of it still when it is a dead letter.
        if message.is_loose {
            return;
        }
        assert!(!message.was_removed, "message {number} came to {index} and was taken out: {message:?}");
        let refused = self.consumers[index].refused.contains(&number);
        assert!(!refused, "message {number} is undeliverable at consumer {index}");
        // What a subscription's consumer says while another takes its place may come too late to the queue, whoever has heard it.
        let may_be_late = matches!(message.fate, Fate::Ending { .. } | Fate::Ended { .. })
            && queue.subscription().is_some_and(Subscription::may_be_stolen);
        assert!(
            may_be_late || matches!(message.fate, Fate::Open | Fate::Unsure),
            "message {number} came to {index} and was {:?}: {message:?} {:?}",
            message.fate,
            self.consumers[index]
        );
        assert_eq!(message.holder, None, "message {number} came to {index} and is held");
        if self.consumers[index].presettled {
            // It was over when it was sent, however long ago that was.
            return;
        }
        let others = self.consumers.iter().enumerate().filter(|(other, consumer)| {
            *other != index && consumer.queue == self.consumers[index].queue && !consumer.is_loose
        });
        let group = message.sent.group.filter(|_| !message.is_dead);
        for (other, consumer) in others {
            let mut held = consumer.held.iter().filter(|it| self.is_surely_held(consumer, **it)).peekable();
            if held.peek().is_none() {
                continue;
            }
            let is_active_too = queue.exclusive && !consumer.browse;
            assert!(!is_active_too, "{index} and {other} are active on {} at once", queue.name);
            if group.is_none() {
                continue;
            }
            let split = held
                .find(|(held, _)| self.messages[*held].sent.group == group && !self.messages[*held].is_dead);
            assert!(split.is_none(), "the group of {number} is with {index} and with {other}: {split:?}");
        }
    }

    /// Deliveries of a queue that its consumers hold; none where some may have been given up.
    pub(crate) fn held_of(&self, queue: usize) -> Option<usize> {
        let of_queue = || self.consumers.iter().filter(|consumer| consumer.queue == queue);
        let is_lost = |(number, _): &(usize, u32)| self.messages[*number].is_loose;
        let is_sure = !of_queue()
            .any(|consumer| consumer.is_attached && consumer.is_loose || consumer.held.iter().any(is_lost));
        is_sure.then(|| of_queue().map(|consumer| consumer.held.len()).sum())
    }

    /// A consumer ends a delivery: the `held` one at this position.
    pub(crate) fn settled(&mut self, index: usize, position: usize, outcome: Settling) -> usize {
        let consumer = &mut self.consumers[index];
        let (number, _) = consumer.held.remove(position);
        let message = &mut self.messages[number];
        message.holder = None;
        message.may_have_ended |= outcome.is_end();
        match outcome {
            Settling::Accepted => message.fate = Fate::Ending { accepted: true },
            Settling::Rejected => {
                message.fate = Fate::Ending { accepted: false };
            }
            Settling::Released => {}
            Settling::Failed => message.failed_max += 1,
            Settling::NotHere => {
                consumer.refused.insert(number);
            }
        }
        number
    }

    /// The broker has heard all that this message's consumer has said.
    pub(crate) fn heard(&mut self, number: usize) {
        let message = &mut self.messages[number];
        if let Fate::Ending { accepted } = message.fate {
            message.fate = Fate::Ended { accepted };
            message.was_accepted |= accepted;
        }
    }

    /// The broker has heard everything.
    pub(crate) fn all_heard(&mut self) {
        (0..self.messages.len()).for_each(|number| self.heard(number));
    }

    /// Its consumer was cut off before the broker heard it for certain.
    pub(crate) fn unheard(&mut self, number: usize) {
        let message = &mut self.messages[number];
        if let Fate::Ending { .. } = message.fate {
            message.fate = Fate::Unsure;
        }
    }

    /// A consumer is gone, and what it held goes back.
    pub(crate) fn consumer_gone(&mut self, index: usize, is_closed: bool) {
        self.noter_gone(index);
        let consumer = &mut self.consumers[index];
        consumer.is_attached = false;
        consumer.acquired.clear();
        self.failures[consumer.queue] += 1;
        for (number, _) in std::mem::take(&mut consumer.held) {
            self.messages[number].holder = None;
        }
        let queue = consumer.queue;
        self.subscriber_gone(queue, is_closed);
    }

    /// Everything has come to an end: each message in a way that its queue allows. `lost_max` is how many of each queue the
    /// broker says it has dropped.
    pub(crate) fn finish(&self, dropped: &[u64]) {
        self.check_whole();
        let mut missing = vec![Vec::new(); self.queues.len()];
        for (number, message) in self.messages.iter().enumerate() {
            let sent = &message.sent;
            assert_ne!(message.answer, Answer::Waiting, "message {number} was never answered");
            let queue = &self.queues[sent.queue];
            if !matches!(queue.kind, NodeKind::Queue) {
                // What subscriptions are owed is checked apart.
                continue;
            }
            let dies = queue.dead_letter.is_some();
            // Of what is said too late nothing holds, and others may have got it meanwhile.
            let was_ended = message.was_accepted || message.may_have_ended && self.has_deadline(number);
            let was_late = was_ended && message.is_loose;
            let ended = match message.fate {
                // A rejection that came after the deadline was not one; the message may have died of its deadlines since.
                Fate::Ended { accepted } => accepted || !dies || message.is_dead || message.is_loose,
                Fate::Unsure | Fate::Retired { .. } => true,
                Fate::Open | Fate::Ending { .. } => false,
            };
            let is_stored = message.answer == Answer::Stored && self.is_committed(number);
            let is_lost_dead = queue.dead_letter.is_some_and(|it| self.queues[it].may_lose_dead(number));
            if ended || was_late || is_lost_dead || !is_stored || self.may_be_removed(number) {
                continue;
            }
            assert!(
                self.may_be_replaced(number) || queue.may_lose(number, sent) && !(dies && queue.keeps_dead),
                "message {number} is lost: {message:?} {queue:?}",
            );
            missing[sent.queue].push(number);
        }
        for (queue, missing) in missing.iter().enumerate().take(dropped.len()) {
            let plan = &self.queues[queue];
            assert!(
                plan.takes_settled || missing.len() as u64 <= dropped[queue],
                "{} has dropped {} and lost {missing:?}",
                plan.name,
                dropped[queue]
            );
        }
    }
}

impl Settling {
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Settling::Accepted | Settling::Rejected)
    }
}

/// What a consumer says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    Accepted,
    Rejected,
    Released,
    Failed,
    NotHere,
}
