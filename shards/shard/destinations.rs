//! Which properties does a queue have? Rules by exact name and by wildcard, merged.
//!
//! A pattern is words separated by dots: `*` stands for one word, a last `>` for one or more. A rule without wildcards is
//! about one queue; the others are its parents. Merging:
//! - flags (`exclusive`, `priorities`) add up: set by any matching rule, they are set;
//! - `prefetch`: the exact rule's value, unless it is 0 (inherit); else the largest of the parents';
//! - every other value: the exact rule's; else that of the most specific parent (more literal words, then the later rule).
//!
//! Left out: where rules come from. They are checked before they get here.

use std::sync::Arc;

use corelane_engine::{Prefetch, QueueProperties};

/// Unsettled messages that a queue whose rules say `prefetch = 0`, with no parent that says more, allows a consumer.
pub const PREFETCH_INHERITED: u32 = 5;

/// The properties that one rule gives; an absent one is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationRule {
    /// An exact name or a wildcard.
    pub pattern: String,
    /// One active consumer, the others stand by in attach order.
    pub exclusive: Option<bool>,
    /// Active consumers at most.
    pub consumers_max: Option<u32>,
    pub prefetch: Option<PrefetchRule>,
    /// Microseconds; replaces the producers' time to live. 0: messages never expire.
    pub expiration_us: Option<u64>,
    /// Ten priority levels.
    pub priorities: Option<bool>,
    /// A group stays with its consumer for the consumer's life.
    pub sticky_groups: Option<bool>,
    /// Queues are made on first use.
    pub auto_create: Option<bool>,
    /// Deleted when its last consumer has gone.
    pub auto_delete: Option<bool>,
    /// Microseconds; deleted when it was unused for so long. 0: never.
    pub idle_expiry_us: Option<u64>,
    /// Where messages go that are rejected, expire, fail too often or are dropped; empty: nowhere.
    pub dead_letter: Option<Box<str>>,
    /// Messages say who has sent them.
    pub sender_name: Option<bool>,
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

/// All rules.
#[derive(Clone, Debug)]
pub struct Destinations {
    rules: Vec<DestinationRule>,
    auto_create: bool,
}

/// What the rules say about one queue.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) properties: QueueProperties,
    pub(crate) auto_create: bool,
    pub(crate) auto_delete: bool,
    pub(crate) idle_expiry_us: Option<u64>,
    pub(crate) dead_letter: Option<Arc<str>>,
    pub(crate) sender_name: bool,
}

impl Destinations {
    /// `auto_create` holds where no rule says otherwise.
    pub fn new(mut rules: Vec<DestinationRule>, auto_create: bool) -> Self {
        // Least specific first; the sort is stable, so of equals the later rule stays later and wins.
        rules.sort_by_key(|rule| (!is_wildcard(&rule.pattern), literal_words(&rule.pattern)));
        Destinations { rules, auto_create }
    }

    /// What holds for a queue. `overrides` stand above every rule.
    pub(crate) fn lookup(&self, queue: &str, overrides: Option<&DestinationRule>) -> Destination {
        let matching = || {
            let rules = self.rules.iter().filter(|rule| pattern_matches(&rule.pattern, queue));
            rules.chain(overrides)
        };
        let flag =
            |read: fn(&DestinationRule) -> Option<bool>| matching().any(|rule| read(rule) == Some(true));
        let dead_letter = matching().filter_map(|rule| rule.dead_letter.as_deref()).next_back();
        // A rule for all queues is none for the one that it leads to.
        let dead_letter = dead_letter.filter(|name| !name.is_empty() && *name != queue).map(Arc::from);
        let properties = QueueProperties {
            exclusive: flag(|rule| rule.exclusive),
            consumers_max: matching().filter_map(|rule| rule.consumers_max).next_back(),
            prefetch: prefetch(matching()),
            expiration_us: matching().filter_map(|rule| rule.expiration_us).next_back(),
            priorities: flag(|rule| rule.priorities),
            sticky_groups: flag(|rule| rule.sticky_groups),
            dead_letter: dead_letter.is_some(),
            ..QueueProperties::default()
        };
        let auto_create = matching().filter_map(|rule| rule.auto_create).next_back();
        let idle_expiry_us = matching().filter_map(|rule| rule.idle_expiry_us).next_back();
        Destination {
            properties,
            auto_create: auto_create.unwrap_or(self.auto_create),
            auto_delete: flag(|rule| rule.auto_delete),
            idle_expiry_us: idle_expiry_us.filter(|after| *after > 0),
            dead_letter,
            sender_name: flag(|rule| rule.sender_name),
        }
    }
}

/// The prefetch of these rules, the most specific last.
fn prefetch<'a>(rules: impl DoubleEndedIterator<Item = &'a DestinationRule> + Clone) -> Prefetch {
    let rules = || rules.clone().filter_map(|rule| Some((is_wildcard(&rule.pattern), rule.prefetch?)));
    let exact = rules().filter(|(wildcard, _)| !wildcard).map(|(_, prefetch)| prefetch).next_back();
    match exact {
        Some(PrefetchRule::None) => return Prefetch::None,
        Some(PrefetchRule::Limit(limit)) => return Prefetch::Limit(limit),
        Some(PrefetchRule::Inherit) | None => {}
    }
    let parents = || rules().filter(|(wildcard, _)| *wildcard).map(|(_, prefetch)| prefetch);
    let largest = parents().filter_map(|prefetch| match prefetch {
        PrefetchRule::Limit(limit) => Some(limit),
        PrefetchRule::None | PrefetchRule::Inherit => None,
    });
    match largest.max() {
        Some(limit) => Prefetch::Limit(limit),
        None if parents().any(|prefetch| prefetch == PrefetchRule::None) => Prefetch::None,
        None if rules().next().is_some() => Prefetch::Limit(PREFETCH_INHERITED),
        None => Prefetch::Absent,
    }
}

fn is_wildcard(pattern: &str) -> bool {
    pattern.split('.').any(|word| word == "*" || word == ">")
}

fn literal_words(pattern: &str) -> usize {
    pattern.split('.').filter(|word| !matches!(*word, "*" | ">")).count()
}

fn pattern_matches(pattern: &str, name: &str) -> bool {
    let mut words = name.split('.');
    for part in pattern.split('.') {
        match (part, words.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (part, Some(word)) if part == word => {}
            (_, _) => return false,
        }
    }
    words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str, change: impl FnOnce(&mut DestinationRule)) -> DestinationRule {
        let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
        change(&mut rule);
        rule
    }

    #[test]
    fn wildcards_match_words() {
        let check =
            |pattern, name, expect| assert_eq!(pattern_matches(pattern, name), expect, "{pattern} {name}");
        check("orders", "orders", true);
        check("orders", "orders.eu", false);
        check("orders.*", "orders.eu", true);
        check("orders.*", "orders", false);
        check("orders.*", "orders.eu.de", false);
        check("orders.>", "orders.eu.de", true);
        check("orders.>", "orders", false);
        check("*.eu", "orders.eu", true);
        check(">", "anything.at.all", true);
        check("orders*", "orders1", false);
    }

    #[test]
    fn flags_add_up_and_values_are_overridden() {
        let destinations = Destinations::new(
            vec![
                rule("a.b", |r| r.expiration_us = Some(7)),
                rule("a.>", |r| {
                    r.expiration_us = Some(9);
                    r.exclusive = Some(true);
                }),
                rule(">", |r| {
                    r.consumers_max = Some(3);
                    r.exclusive = Some(false);
                }),
            ],
            true,
        );
        let found = destinations.lookup("a.b", None).properties;
        assert_eq!((found.expiration_us, found.exclusive, found.consumers_max), (Some(7), true, Some(3)));
        let found = destinations.lookup("a.c", None).properties;
        assert_eq!(found.expiration_us, Some(9));
        let found = destinations.lookup("b", None).properties;
        assert_eq!((found.expiration_us, found.exclusive, found.consumers_max), (None, false, Some(3)));
    }

    #[test]
    fn of_several_parents_the_largest_prefetch_holds() {
        let destinations = Destinations::new(
            vec![
                rule("a.*", |r| r.prefetch = Some(PrefetchRule::Limit(10))),
                rule("*.b", |r| r.prefetch = Some(PrefetchRule::Limit(20))),
                rule("a.b", |r| r.prefetch = Some(PrefetchRule::Inherit)),
                rule("a.c", |r| r.prefetch = Some(PrefetchRule::None)),
                rule("z", |r| r.prefetch = Some(PrefetchRule::Inherit)),
            ],
            true,
        );
        assert_eq!(destinations.lookup("a.b", None).properties.prefetch, Prefetch::Limit(20));
        assert_eq!(destinations.lookup("a.c", None).properties.prefetch, Prefetch::None);
        assert_eq!(destinations.lookup("a.d", None).properties.prefetch, Prefetch::Limit(10));
        assert_eq!(destinations.lookup("z", None).properties.prefetch, Prefetch::Limit(PREFETCH_INHERITED));
        assert_eq!(destinations.lookup("y", None).properties.prefetch, Prefetch::Absent);
    }

    #[test]
    fn automatic_creation_is_a_property_too() {
        let rules = vec![rule("closed.>", |r| r.auto_create = Some(false))];
        let destinations = Destinations::new(rules, true);
        assert!(destinations.lookup("open", None).auto_create);
        assert!(!destinations.lookup("closed.one", None).auto_create);
    }
}
