//! Which properties does a queue keep while it is used, and when does it take over the new ones?
//!
//! A consumer attaches to take messages or to read them, and a message has come with its last-value key or without: what is said
//! later would hold for some of them only. So management refuses to change these properties of a queue that is used; what the rules
//! say otherwise waits, with a line in the log, and is taken over by whoever ends the use.
//!
//! Invariants:
//! - `non-destructive` changes only while nobody is attached, `last-value-key` only while the queue is empty;
//! - a queue that keeps one is `waiting_rules`, and else has what rules and overrides come to.

use corelane_engine::QueueId;

use crate::Shard;
use crate::destinations::{Destination, DestinationRule};
use crate::queues::QueueNode;

/// A property that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    NonDestructive,
    LastValueKey,
}

impl Kept {
    const ALL: [Kept; 2] = [Kept::NonDestructive, Kept::LastValueKey];

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Kept::NonDestructive => "non-destructive is changed only while no consumer is attached",
            Kept::LastValueKey => "last-value-key is changed only while the queue is empty",
        }
    }

    /// The property, and when it may change.
    pub(crate) fn name_and_end(self) -> (&'static str, &'static str) {
        match self {
            Kept::NonDestructive => ("non-destructive", "no consumer is attached"),
            Kept::LastValueKey => ("last-value-key", "the queue is empty"),
        }
    }

    /// Whether two rules say different things of it.
    fn is_said_anew(self, before: Option<&DestinationRule>, after: &DestinationRule) -> bool {
        match self {
            Kept::NonDestructive => before.and_then(|it| it.non_destructive) != after.non_destructive,
            Kept::LastValueKey => {
                before.and_then(|it| it.last_value_key.as_ref()) != after.last_value_key.as_ref()
            }
        }
    }

    fn differs(self, one: &Destination, other: &Destination) -> bool {
        match self {
            Kept::NonDestructive => one.properties.non_destructive != other.properties.non_destructive,
            Kept::LastValueKey => one.last_value_key != other.last_value_key,
        }
    }

    fn keep(self, held: &Destination, new: &mut Destination) {
        match self {
            Kept::NonDestructive => new.properties.non_destructive = held.properties.non_destructive,
            Kept::LastValueKey => new.last_value_key.clone_from(&held.last_value_key),
        }
    }
}

impl Shard {
    /// Whether a queue would have to keep a property for now that these overrides change, or say again while it waits.
    pub(crate) fn kept_against(&self, queue: QueueId, overrides: &DestinationRule) -> Option<Kept> {
        let node = self.queues.get(queue)?;
        let [before, after] =
            [node.overrides(), Some(overrides)].map(|it| self.evaluate(node.ruled_by(), node.kind, it));
        self.kept(queue, node, &after)
            .find(|kept| kept.differs(&before, &after) || kept.is_said_anew(node.overrides(), overrides))
    }

    /// Lets a queue keep what it has to, and warns if that is new.
    pub(crate) fn keep(&mut self, now: u64, queue: QueueId, new: &mut Destination) {
        let Some(node) = self.queues.get(queue) else { return };
        let mut last = None;
        let kept: Vec<Kept> = self.kept(queue, node, new).collect();
        for kept in kept {
            kept.keep(&node.destination, new);
            last = Some(kept);
        }
        let Some(node) = self.queues.get_mut(queue) else { return };
        let was_waiting = std::mem::replace(&mut node.waiting_rules, last.is_some());
        if let (Some(kept), false) = (last, was_waiting) {
            let name = &node.name;
            self.kept_warnings.warn(now, &mut self.effects, |more| {
                format!(
                    "queue {name:?} keeps what it had, until it may change: {}; and {more} others since this was last said",
                    kept.reason()
                )
            });
        }
    }

    /// Lets a queue that is empty take over what waits for that.
    pub(crate) fn take_over_rules(&mut self, now: u64, queue: QueueId) {
        if self.queues.get(queue).is_some_and(|node| node.waiting_rules)
            && self.engine.depth(queue).is_some_and(|depth| depth.messages == 0)
        {
            self.apply_properties(now, queue);
        }
    }

    /// Those for which rules and overrides say something else than what holds.
    pub(crate) fn waiting(&self, queue: QueueId, node: &QueueNode) -> Vec<Kept> {
        if !node.waiting_rules {
            return Vec::new();
        }
        let said = self.evaluate(node.ruled_by(), node.kind, node.overrides());
        self.kept(queue, node, &said).collect()
    }

    fn kept<'a>(
        &self,
        queue: QueueId,
        node: &'a QueueNode,
        new: &'a Destination,
    ) -> impl Iterator<Item = Kept> + use<'a> {
        let is_empty = self.engine.depth(queue).is_none_or(|depth| depth.messages == 0);
        let is_free = move |kept: Kept| match kept {
            Kept::NonDestructive => node.consumers == 0,
            Kept::LastValueKey => is_empty,
        };
        Kept::ALL.into_iter().filter(move |kept| !is_free(*kept) && kept.differs(&node.destination, new))
    }
}

impl QueueNode {
    /// Says in a rule what holds and not what waits.
    pub(crate) fn show_kept(&self, rule: &mut DestinationRule) {
        if self.waiting_rules {
            rule.non_destructive = Some(self.destination.properties.non_destructive);
            rule.last_value_key = Some(self.destination.last_value_key.as_deref().unwrap_or("").into());
        }
    }
}
