//! What holds for a destination? Rules by exact name and by wildcard, merged.
//!
//! A pattern is words separated by dots: `*` stands for one word, a last `>` for one or more. A rule without wildcards is
//! about one name; the others are its parents. Of all rules that match a name:
//! - flags add up: set by any of them, they are set (`auto-create`, `durable` and `topic` are values, not flags, in this);
//! - `prefetch`: the exact rule's value, unless it is 0 (inherit); else the largest of the parents';
//! - `overflow`: the exact rule's; else reject-dead-letter before reject before block before drop-oldest, whichever of them a parent says;
//! - every other value: the exact rule's; else that of the most specific parent (more literal words, then the one without `>`,
//!   then the later one).
//!
//! What is said of one queue while the broker runs (its overrides) is one more exact rule, above all others.
//!
//! Rules are about names in the default virtual host; what is in another one has its policy and its overrides alone.
//!
//! Left out: which patterns match a name (`patterns`); where rules come from and what values they may have (`properties`); which
//! exclude each other (`contradictions`).

use std::sync::Arc;

use corelane_engine::{Dispatch, Overflow, Prefetch, QueueProperties, RedeliveryDelay};

use crate::address::names_queue;
use crate::patterns::PatternTree;
use crate::policies::{Policy, policy_of};
use crate::vhost;

/// Unsettled messages that a queue whose rules say `prefetch = 0`, with no parent that says more, allows a consumer.
pub const PREFETCH_INHERITED: u32 = 5;

/// The same for the subscriptions of a topic.
pub const PREFETCH_INHERITED_TOPIC: u32 = 64;

/// The properties that one rule gives; an absent one is inherited. What they mean says the table in `properties`.
///
/// A number of 0 takes back what a less specific rule says, a text that is empty, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationRule {
    /// An exact name or a wildcard.
    pub pattern: String,
    pub exclusive: Option<bool>,
    pub consumers_max: Option<u64>,
    pub prefetch: Option<PrefetchRule>,
    pub dispatch: Option<DispatchRule>,
    pub expiration_us: Option<u64>,
    pub priorities: Option<bool>,
    pub messages_max: Option<u64>,
    /// Clients of 0-9-1 say so, nobody else: what consumers hold does not count for `messages_max`.
    pub held_besides: bool,
    pub bytes_max: Option<u64>,
    pub overflow: Option<OverflowRule>,
    pub dead_letter: Option<Box<str>>,
    pub deliveries_max: Option<u64>,
    pub redelivery: Option<RedeliveryRule>,
    pub ack_deadline_us: Option<u64>,
    pub sticky_groups: Option<bool>,
    pub last_value_key: Option<Box<str>>,
    pub non_destructive: Option<bool>,
    pub auto_create: Option<bool>,
    pub auto_delete: Option<bool>,
    pub idle_expiry_us: Option<u64>,
    pub sender_name: Option<bool>,
    pub durable: Option<bool>,
    pub deliver_after_sync: Option<bool>,
    pub shard: Option<u64>,
    pub topic: Option<bool>,
}

/// What clamps a consumer's credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchRule {
    /// Effective credit 1, armed by a flow that arrives after the previous delivery was settled.
    None,
    /// As the parents say, else [`PREFETCH_INHERITED`].
    Inherit,
    /// Never more unsettled deliveries than this.
    Limit(u32),
}

/// What a full queue does. The stricter is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverflowRule {
    DropOldest,
    Block,
    Reject,
    /// The same, and the message dies.
    RejectDeadLetter,
}

/// Who of several consumers gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchRule {
    RoundRobin,
    LeastOutstanding,
}

/// How long a message waits after its deliveries failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedeliveryRule {
    pub min_us: u64,
    /// Thousandths.
    pub multiplier_permille: u32,
    pub max_us: u64,
}

/// All rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Destinations {
    /// The least specific first.
    rules: Vec<DestinationRule>,
    /// Where each of them stands.
    places: PatternTree,
    /// The rules among them that name a shard, and those that say whether a name is a topic's: these are asked for with messages.
    pins: PatternTree,
    topics: PatternTree,
    auto_create: bool,
    policies: Vec<Policy>,
}

/// What the rules say about one queue, or about the subscriptions of a topic.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) properties: QueueProperties,
    pub(crate) auto_create: bool,
    pub(crate) auto_delete: bool,
    pub(crate) idle_expiry_us: Option<u64>,
    /// What it refuses for want of room is a dead letter.
    pub(crate) refused_die: bool,
    pub(crate) dead_letter: Option<Arc<str>>,
    pub(crate) last_value_key: Option<Arc<str>>,
    pub(crate) sender_name: bool,
    /// Which messages are kept; none: those that say so themselves.
    pub(crate) durable: Option<bool>,
    pub(crate) deliver_after_sync: bool,
}

impl Destinations {
    /// `auto_create` holds where no rule says otherwise.
    pub fn new(mut rules: Vec<DestinationRule>, auto_create: bool) -> Self {
        // The last one wins. The sort is stable, so of rules of one pattern that is the later one.
        rules.sort_by_cached_key(|rule| (specificity(&rule.pattern), rule.pattern.clone()));
        let places = places_of(&rules, |_| true);
        let pins = places_of(&rules, |rule| rule.shard.is_some());
        let topics = places_of(&rules, |rule| rule.topic.is_some());
        Destinations { rules, places, pins, topics, auto_create, policies: Vec::new() }
    }

    /// The same with policies, which stand above all rules.
    pub fn with_policies(self, policies: Vec<Policy>) -> Self {
        Destinations { policies, ..self }
    }

    /// The rules, the least specific first.
    pub fn rules(&self) -> &[DestinationRule] {
        &self.rules
    }

    /// What holds for a queue. `overrides` stand above every rule.
    pub(crate) fn lookup(&self, queue: &str, overrides: Option<&DestinationRule>) -> Destination {
        self.destination(self.merged(queue, overrides), PREFETCH_INHERITED)
    }

    /// What holds for a topic and its subscriptions.
    pub(crate) fn lookup_topic(&self, topic: &str, overrides: Option<&DestinationRule>) -> Destination {
        self.destination(self.merged(topic, overrides), PREFETCH_INHERITED_TOPIC)
    }

    /// Whether a plain name is a topic's.
    pub fn is_topic(&self, name: &str) -> bool {
        self.topic_rule(name).is_some()
    }

    /// The rule that makes a plain name a topic's.
    pub(crate) fn topic_rule(&self, name: &str) -> Option<&DestinationRule> {
        self.last_of(&self.topics, name).filter(|rule| rule.topic == Some(true))
    }

    /// The shard that a name is pinned to.
    pub(crate) fn pin(&self, name: &str) -> Option<u64> {
        self.last_of(&self.pins, name)?.shard
    }

    /// The most specific rule of those in a tree that match a name.
    fn last_of(&self, tree: &PatternTree, name: &str) -> Option<&DestinationRule> {
        if vhost::is_elsewhere(name) {
            return None;
        }
        let mut last = None;
        tree.matching(name, |index| last = last.max(Some(index)));
        last.map(|index| &self.rules[index])
    }

    /// The rules that match a name, or all names of a pattern, the least specific first.
    pub(crate) fn matching(&self, name: &str) -> impl DoubleEndedIterator<Item = &DestinationRule> {
        let mut found = Vec::new();
        if !vhost::is_elsewhere(name) {
            self.places.matching(name, |index| found.push(index));
        }
        found.sort_unstable();
        found.into_iter().map(|index| &self.rules[index])
    }

    /// What the rules say about a name, as one rule.
    pub(crate) fn merged(&self, name: &str, overrides: Option<&DestinationRule>) -> DestinationRule {
        let mut merged = merge(self.matching(name).chain(policy_of(&self.policies, name)).chain(overrides));
        let (vhost, plain) = vhost::parts(name);
        // A rule for all queues is none for the one that it leads to.
        if merged.dead_letter.as_deref().is_some_and(|to| names_queue(to, plain)) {
            merged.dead_letter = None;
        }
        // Dead letters stay in their virtual host.
        if let Some(to) = merged.dead_letter.as_mut().filter(|to| !to.is_empty()) {
            *to = vhost::within(vhost, &**to).into();
        }
        merged.pattern = name.to_owned();
        merged
    }

    fn destination(&self, rule: DestinationRule, prefetch_inherited: u32) -> Destination {
        let some = |text: Option<Box<str>>| text.filter(|text| !text.is_empty()).map(Arc::from);
        let at_most = |number: Option<u64>| {
            number.filter(|number| *number > 0).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
        };
        let dead_letter = some(rule.dead_letter);
        let properties = QueueProperties {
            exclusive: rule.exclusive == Some(true),
            consumers_max: at_most(rule.consumers_max),
            prefetch: match rule.prefetch {
                None => Prefetch::Absent,
                Some(PrefetchRule::None) => Prefetch::None,
                Some(PrefetchRule::Inherit) => Prefetch::Limit(prefetch_inherited),
                Some(PrefetchRule::Limit(limit)) => Prefetch::Limit(limit),
            },
            dispatch: match rule.dispatch {
                None | Some(DispatchRule::RoundRobin) => Dispatch::RoundRobin,
                Some(DispatchRule::LeastOutstanding) => Dispatch::LeastOutstanding,
            },
            expiration_us: rule.expiration_us,
            priorities: rule.priorities == Some(true),
            sticky_groups: rule.sticky_groups == Some(true),
            non_destructive: rule.non_destructive == Some(true),
            ack_deadline_us: rule.ack_deadline_us.filter(|after| *after > 0),
            dead_letter: dead_letter.is_some(),
            deliveries_max: at_most(rule.deliveries_max),
            redelivery: rule.redelivery.filter(|delay| delay.max_us > 0).map(|delay| RedeliveryDelay {
                min_us: delay.min_us,
                multiplier_permille: delay.multiplier_permille,
                max_us: delay.max_us,
            }),
            messages_max: rule.messages_max.filter(|max| *max > 0),
            held_besides: rule.held_besides,
            bytes_max: rule.bytes_max.filter(|max| *max > 0),
            overflow: match rule.overflow {
                None | Some(OverflowRule::Reject | OverflowRule::RejectDeadLetter) => Overflow::Reject,
                Some(OverflowRule::Block) => Overflow::Block,
                Some(OverflowRule::DropOldest) => Overflow::DropOldest,
            },
        };
        Destination {
            properties,
            auto_create: rule.auto_create.unwrap_or(self.auto_create),
            auto_delete: rule.auto_delete == Some(true),
            idle_expiry_us: rule.idle_expiry_us.filter(|after| *after > 0),
            refused_die: dead_letter.is_some() && rule.overflow == Some(OverflowRule::RejectDeadLetter),
            dead_letter,
            last_value_key: some(rule.last_value_key),
            sender_name: rule.sender_name == Some(true),
            durable: rule.durable,
            deliver_after_sync: rule.deliver_after_sync == Some(true),
        }
    }
}

/// Where those rules stand, among all, that are meant.
pub(crate) fn places_of(rules: &[DestinationRule], is_meant: fn(&DestinationRule) -> bool) -> PatternTree {
    let meant = rules.iter().enumerate().filter(|(_, rule)| is_meant(rule));
    PatternTree::new(meant.map(|(index, rule)| (index, &*rule.pattern)))
}

/// Merges rules about one name, the least specific first.
pub(crate) fn merge<'a>(rules: impl Iterator<Item = &'a DestinationRule>) -> DestinationRule {
    let mut merged = DestinationRule::default();
    let (mut parents_prefetch, mut exact_prefetch) = (None, None);
    let (mut parents_overflow, mut exact_overflow) = (None, None);
    for rule in rules {
        let flag = |sum: &mut Option<bool>, next: Option<bool>| *sum = next.max(*sum);
        flag(&mut merged.exclusive, rule.exclusive);
        flag(&mut merged.priorities, rule.priorities);
        flag(&mut merged.sticky_groups, rule.sticky_groups);
        flag(&mut merged.non_destructive, rule.non_destructive);
        flag(&mut merged.auto_delete, rule.auto_delete);
        flag(&mut merged.sender_name, rule.sender_name);
        follow(&mut merged.consumers_max, &rule.consumers_max);
        follow(&mut merged.dispatch, &rule.dispatch);
        follow(&mut merged.expiration_us, &rule.expiration_us);
        follow(&mut merged.messages_max, &rule.messages_max);
        merged.held_besides |= rule.held_besides;
        follow(&mut merged.bytes_max, &rule.bytes_max);
        follow(&mut merged.dead_letter, &rule.dead_letter);
        follow(&mut merged.deliveries_max, &rule.deliveries_max);
        follow(&mut merged.redelivery, &rule.redelivery);
        follow(&mut merged.ack_deadline_us, &rule.ack_deadline_us);
        follow(&mut merged.last_value_key, &rule.last_value_key);
        follow(&mut merged.auto_create, &rule.auto_create);
        follow(&mut merged.idle_expiry_us, &rule.idle_expiry_us);
        follow(&mut merged.durable, &rule.durable);
        follow(&mut merged.deliver_after_sync, &rule.deliver_after_sync);
        follow(&mut merged.shard, &rule.shard);
        follow(&mut merged.topic, &rule.topic);
        if is_wildcard(&rule.pattern) {
            parents_prefetch = larger(parents_prefetch, rule.prefetch);
            parents_overflow = rule.overflow.max(parents_overflow);
        } else {
            follow(&mut exact_prefetch, &rule.prefetch);
            follow(&mut exact_overflow, &rule.overflow);
        }
    }
    merged.prefetch = match exact_prefetch {
        Some(PrefetchRule::None | PrefetchRule::Limit(_)) => exact_prefetch,
        Some(PrefetchRule::Inherit) | None => parents_prefetch.or(exact_prefetch),
    };
    merged.overflow = exact_overflow.or(parents_overflow);
    merged
}

fn follow<T: Clone>(value: &mut Option<T>, next: &Option<T>) {
    if next.is_some() {
        value.clone_from(next);
    }
}

/// A limit before `none` before "inherited" before nothing; of limits the larger.
fn larger(a: Option<PrefetchRule>, b: Option<PrefetchRule>) -> Option<PrefetchRule> {
    let size = |prefetch: Option<PrefetchRule>| match prefetch {
        None => (0, 0),
        Some(PrefetchRule::Inherit) => (1, 0),
        Some(PrefetchRule::None) => (2, 0),
        Some(PrefetchRule::Limit(limit)) => (3, limit),
    };
    if size(b) > size(a) { b } else { a }
}

impl OverflowRule {
    pub(crate) const ALL: [OverflowRule; 4] =
        [OverflowRule::Reject, OverflowRule::DropOldest, OverflowRule::Block, OverflowRule::RejectDeadLetter];

    pub(crate) fn word(self) -> &'static str {
        match self {
            OverflowRule::Reject => "reject",
            OverflowRule::DropOldest => "drop-oldest",
            OverflowRule::Block => "block",
            OverflowRule::RejectDeadLetter => "reject-dead-letter",
        }
    }
}

impl DispatchRule {
    pub(crate) const ALL: [DispatchRule; 2] = [DispatchRule::RoundRobin, DispatchRule::LeastOutstanding];

    pub(crate) fn word(self) -> &'static str {
        match self {
            DispatchRule::RoundRobin => "round-robin",
            DispatchRule::LeastOutstanding => "least-outstanding",
        }
    }
}

impl RedeliveryRule {
    /// The same after every failure.
    pub fn constant(delay_us: u64) -> Self {
        RedeliveryRule { min_us: delay_us, multiplier_permille: 1000, max_us: delay_us }
    }
}

pub(crate) fn is_wildcard(pattern: &str) -> bool {
    pattern.split('.').any(|word| word == "*" || word == ">")
}

/// Greater for the more specific pattern.
fn specificity(pattern: &str) -> (bool, usize, bool) {
    let literal_words = pattern.split('.').filter(|word| !matches!(*word, "*" | ">")).count();
    (!is_wildcard(pattern), literal_words, !pattern.ends_with('>'))
}

#[cfg(test)]
#[path = "destinations_tests.rs"]
mod tests;
