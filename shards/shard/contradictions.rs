//! Which properties make no sense together, in one rule or in what several rules come to?
//!
//! Invariants:
//! - rules that passed [`check`] contradict each other for no name at all, wildcards included: two rules that match a name in
//!   common are looked at for the names they have in common;
//! - a contradiction names the patterns, the properties, why they do not go together, and what to do instead;
//! - the dead letters of no queue come back to it by the rules alone, or go over too many stops;
//! - work grows with the rules, and with how many of those that may contradict each other have names in common: not with the rules'
//!   square.
//!
//! Left out: values that are wrong by themselves (`properties`), and where dead letters go by what single queues were given
//! (`dead_letter_paths`).

use std::collections::BTreeSet;
use std::fmt;

use crate::address::{is_topic_name, names_queue};
use crate::dead_letter_paths::{DeadLetterPath, Stop, next_stop};
use crate::destinations::{DestinationRule, Destinations, OverflowRule, merge, places_of};
use crate::patterns::{PatternTree, common};
use crate::properties::find;

/// Rules that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Whose rule it is, or of several the first.
    pub pattern: String,
    /// Complete: which properties of which rules, the reason, what is allowed.
    pub reason: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}

impl std::error::Error for Contradiction {}

/// Two properties that exclude each other.
struct Pair {
    names: [&'static str; 2],
    are_set: [fn(&DestinationRule) -> bool; 2],
    why: &'static str,
}

impl Pair {
    fn reason(&self) -> String {
        let [a, b] = self.names;
        format!("{a} and {b} exclude each other: {}", self.why)
    }
}

/// They say together whether a queue can overflow.
const OVERFLOW_PROPERTIES: &[&str] = &["overflow", "messages-max", "bytes-max"];

const fn pair(
    names: [&'static str; 2],
    are_set: [fn(&DestinationRule) -> bool; 2],
    why: &'static str,
) -> Pair {
    Pair { names, are_set, why }
}

const NOTHING_ACQUIRED: &str = "consumers of a non-destructive queue take nothing, so there is nothing to share out or to come \
                                back; allowed: one of the two";
const QUEUES_ONLY: &str =
    "it is for queues, and the subscriptions of a topic come and go by themselves; allowed: one of the two";

fn is_non_destructive(rule: &DestinationRule) -> bool {
    rule.non_destructive == Some(true)
}

fn is_exclusive(rule: &DestinationRule) -> bool {
    rule.exclusive == Some(true)
}

fn has_standby(rule: &DestinationRule) -> bool {
    rule.consumers_max.is_some_and(|max| max > 0)
}

fn is_topic(rule: &DestinationRule) -> bool {
    rule.topic == Some(true)
}

const PAIRS: &[Pair] = &[
    pair(
        ["exclusive", "consumers-max"],
        [is_exclusive, |rule| rule.consumers_max.is_some_and(|max| max > 1)],
        "exclusive means that one consumer is active; allowed: one of the two, or consumers-max = 1",
    ),
    pair(["non-destructive", "exclusive"], [is_non_destructive, is_exclusive], NOTHING_ACQUIRED),
    pair(["non-destructive", "consumers-max"], [is_non_destructive, has_standby], NOTHING_ACQUIRED),
    pair(
        ["non-destructive", "sticky-groups"],
        [is_non_destructive, |rule| rule.sticky_groups == Some(true)],
        NOTHING_ACQUIRED,
    ),
    pair(
        ["non-destructive", "deliveries-max"],
        [is_non_destructive, |rule| rule.deliveries_max.is_some_and(|max| max > 0)],
        NOTHING_ACQUIRED,
    ),
    pair(
        ["non-destructive", "redelivery-delay"],
        [is_non_destructive, |rule| rule.redelivery.is_some_and(|delay| delay.max_us > 0)],
        NOTHING_ACQUIRED,
    ),
    pair(
        ["non-destructive", "ack-deadline"],
        [is_non_destructive, |rule| rule.ack_deadline_us.is_some_and(|after| after > 0)],
        NOTHING_ACQUIRED,
    ),
    pair(["topic", "exclusive"], [is_topic, is_exclusive], QUEUES_ONLY),
    pair(["topic", "consumers-max"], [is_topic, has_standby], QUEUES_ONLY),
    pair(["topic", "non-destructive"], [is_topic, is_non_destructive], QUEUES_ONLY),
    pair(["topic", "auto-delete"], [is_topic, |rule| rule.auto_delete == Some(true)], QUEUES_ONLY),
    pair(["topic", "shard"], [is_topic, |rule| rule.shard.is_some()], QUEUES_ONLY),
];

/// The first contradiction among rules.
pub fn check(rules: &[DestinationRule]) -> Result<(), Contradiction> {
    let destinations = Destinations::new(rules.to_vec(), true);
    let rules = destinations.rules();
    let limited = places_of(rules, is_limited);
    for rule in rules {
        if let Some(pair) = conflicts(rule).next() {
            return Err(contradiction(rule, pair.reason()));
        }
        check_overflow(rule, &limited)?;
        check_place(&destinations, rule)?;
    }
    check_pairs(&destinations)?;
    check_dead_letters(&destinations)
}

/// The same for what one queue is given while the broker runs, above the rules, and was given `before`. Judged is what changes: rules
/// that were read again may have made a contradiction of something else.
pub fn check_overrides(
    destinations: &Destinations,
    queue: &str,
    before: Option<&DestinationRule>,
    overrides: &DestinationRule,
) -> Result<(), Contradiction> {
    let (was, merged) = (destinations.merged(queue, before), destinations.merged(queue, Some(overrides)));
    let changes = |name: &&str| find(name).is_some_and(|it| it.read(&was) != it.read(&merged));
    let judged = faults(&merged, overrides).find(|fault| fault.properties.iter().any(&changes));
    if let Some(fault) = judged {
        return Err(fault.contradiction);
    }
    if changes(&"dead-letter") {
        check_place(destinations, &merged)?;
    }
    if overrides.dead_letter.as_deref().is_some_and(|to| names_queue(to, queue)) {
        let reason = "its dead letters would come back to it; allowed: another queue, or \"none\"";
        return Err(contradiction(&merged, format!("dead-letter is the queue itself: {reason}")));
    }
    Ok(())
}

/// Why the properties of a queue do not go together, by the rules and by what it was given.
pub(crate) fn contradictions_of(
    destinations: &Destinations,
    queue: &str,
    overrides: &DestinationRule,
) -> impl Iterator<Item = String> {
    let merged = destinations.merged(queue, Some(overrides));
    let faults: Vec<Fault> = faults(&merged, overrides).collect();
    faults.into_iter().map(|fault| fault.contradiction.reason)
}

/// What does not go together in one queue.
struct Fault {
    properties: &'static [&'static str],
    contradiction: Contradiction,
}

fn faults(merged: &DestinationRule, overrides: &DestinationRule) -> impl Iterator<Item = Fault> {
    let of_pair = |pair: &'static Pair| Fault {
        properties: &pair.names,
        contradiction: contradiction(merged, pair.reason()),
    };
    // A rule for many queues says how they overflow, whichever of them are limited.
    let overflow = overrides.overflow.and_then(|_| check_overflow(merged, &PatternTree::new([])).err());
    let of_overflow = |contradiction| Fault { properties: OVERFLOW_PROPERTIES, contradiction };
    conflicts(merged).map(of_pair).chain(overflow.map(of_overflow))
}

/// A topic of a name by which nobody can publish gets nothing.
fn check_place(destinations: &Destinations, rule: &DestinationRule) -> Result<(), Contradiction> {
    let Some(to) = rule.dead_letter.as_deref().filter(|to| !to.is_empty()) else { return Ok(()) };
    match Stop::at(destinations, to) {
        Stop::Topic(name) if !is_topic_name(&name) => {
            let what = format!("dead-letter {to:?} is a topic by the rules, and no topic can be called so");
            Err(contradiction(rule, what))
        }
        Stop::Topic(_) | Stop::Queue(_) | Stop::Exchange(_) => Ok(()),
    }
}

fn contradiction(rule: &DestinationRule, what: String) -> Contradiction {
    let pattern = rule.pattern.clone();
    Contradiction { reason: format!("destination {pattern:?}: {what}"), pattern }
}

fn conflicts(rule: &DestinationRule) -> impl Iterator<Item = &'static Pair> {
    PAIRS.iter().filter(|pair| pair.are_set.iter().all(|is_set| is_set(rule)))
}

fn is_limited(rule: &DestinationRule) -> bool {
    [rule.messages_max, rule.bytes_max].into_iter().flatten().any(|max| max > 0)
}

/// A way to overflow is for queues that can be full: this rule says when, or a limited one about some of the same names.
fn check_overflow(rule: &DestinationRule, limited: &PatternTree) -> Result<(), Contradiction> {
    let Some(overflow) = rule.overflow else { return Ok(()) };
    if overflow == OverflowRule::Reject || is_limited(rule) || limited.meets(&rule.pattern) {
        return Ok(());
    }
    let what = format!(
        "overflow = {:?}, but no queue of this name is ever full; allowed: with messages-max or bytes-max",
        overflow.word()
    );
    Err(contradiction(rule, what))
}

/// Two rules that say what excludes each other, about a name that both match.
fn check_pairs(destinations: &Destinations) -> Result<(), Contradiction> {
    let rules = destinations.rules();
    for pair in PAIRS {
        let [first, second] = pair.are_set;
        let seconds = places_of(rules, second);
        for a in rules.iter().filter(|rule| first(rule)) {
            for b in seconds.meeting(&a.pattern).into_iter().map(|index| &rules[index]) {
                let Some(names) = common(&a.pattern, &b.pattern) else { continue };
                // Another rule may take back what one of them says.
                let merged = merge(destinations.matching(&names));
                if pair.are_set.iter().all(|is_set| is_set(&merged)) {
                    let [left, right] = pair.names;
                    let what = format!(
                        "{left} (of {:?}) and {right} (of {:?}) exclude each other for {names:?}: {}",
                        a.pattern, b.pattern, pair.why
                    );
                    return Err(contradiction(b, what));
                }
            }
        }
    }
    Ok(())
}

/// Follows the dead letters of whatever gets some. A circle consists of such stops alone.
fn check_dead_letters(destinations: &Destinations) -> Result<(), Contradiction> {
    let mut firsts = BTreeSet::new();
    for rule in destinations.rules() {
        let Some(to) = rule.dead_letter.as_deref().filter(|to| !to.is_empty()) else { continue };
        firsts.insert(Stop::at(destinations, to));
        // Merged, it would be none.
        if names_queue(to, &rule.pattern) {
            let itself = Stop::Queue(rule.pattern.as_str().into());
            let refused = DeadLetterPath::from(itself.clone()).go_on(itself).map(drop);
            refused.map_err(|why| contradiction(rule, why))?;
        }
    }
    for first in firsts {
        let mut path = DeadLetterPath::from(first.clone());
        let mut next = first.ruled_by().and_then(|name| next_stop(destinations, name, None));
        while let Some(stop) = next {
            next = match path.go_on(stop) {
                Ok(stop) => {
                    stop.and_then(Stop::ruled_by).and_then(|name| next_stop(destinations, name, None))
                }
                Err(why) => {
                    let mut rules = destinations.matching(first.name());
                    let rule = rules.rfind(|rule| rule.dead_letter.is_some()).cloned().unwrap_or_default();
                    return Err(contradiction(&rule, why));
                }
            };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DEAD_LETTER_STOPS_MAX;
    use crate::patterns::tests::steps_of;
    use crate::properties::{PropertyValue, set};

    /// Rules written as `pattern: name=value name=value`, values as they would be in a file.
    fn rules(lines: &[&str]) -> Vec<DestinationRule> {
        let rule = |line: &&str| {
            let (pattern, properties) = line.split_once(':').expect("a pattern");
            let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
            for property in properties.split_whitespace() {
                let (name, value) = property.split_once('=').expect("a value");
                let value = match (value.parse(), value) {
                    (Ok(number), _) => PropertyValue::Integer(number),
                    (Err(_), "true") => PropertyValue::Bool(true),
                    (Err(_), text) => PropertyValue::Text(text.to_owned()),
                };
                set(&mut rule, name, &value).expect("it is a value of its own");
            }
            rule
        };
        lines.iter().map(rule).collect()
    }

    #[track_caller]
    fn contradict(lines: &[&str], parts: &[&str]) {
        let reason = check(&rules(lines)).expect_err("they contradict").reason;
        for part in parts {
            assert!(reason.contains(part), "{lines:?}\nlacks {part:?}: {reason}");
        }
    }

    #[track_caller]
    fn agree(lines: &[&str]) {
        assert_eq!(check(&rules(lines)), Ok(()), "{lines:?}");
    }

    #[test]
    fn one_rule_contradicts_itself() {
        contradict(
            &["a: exclusive=true consumers-max=3"],
            &["\"a\"", "exclusive and consumers-max", "consumers-max = 1"],
        );
        agree(&["a: exclusive=true consumers-max=1"]);
        contradict(
            &["a: non-destructive=true deliveries-max=3"],
            &["non-destructive and deliveries-max", "allowed: "],
        );
        contradict(&["a: topic=true auto-delete=true"], &["topic and auto-delete", "allowed: "]);
        contradict(&["a: overflow=block"], &["overflow = \"block\"", "messages-max or bytes-max"]);
        agree(&["a: overflow=reject"]);
        agree(&["a: overflow=block messages-max=1"]);
    }

    #[test]
    fn two_rules_contradict_each_other_where_they_meet() {
        let both = &["\"a.>\"", "\"*.b\"", "for \"a.b\""];
        contradict(&["a.>: exclusive=true", "*.b: non-destructive=true"], both);
        agree(&["a.>: exclusive=true", "b.*: non-destructive=true"]);
        contradict(&[">: deliveries-max=5", "a: non-destructive=true"], &["(of \">\")", "for \"a\""]);
        agree(&[">: deliveries-max=5", "a: non-destructive=true deliveries-max=unlimited"]);
        agree(&[">: overflow=drop-oldest", "a.b: messages-max=5"]);
        contradict(&["b.>: overflow=drop-oldest", "a.b: messages-max=5"], &["overflow", "\"b.>\""]);
    }

    #[test]
    fn dead_letters_do_not_come_back() {
        contradict(&["a: dead-letter=a"], &["a -> a", "circle"]);
        contradict(&["a: dead-letter=b", "b: dead-letter=a"], &["a -> b -> a"]);
        contradict(&["a: dead-letter=/queues/a"], &["a -> a"]);
        contradict(&["a: dead-letter=/queues/b", "b: dead-letter=queue://a"], &["a -> b -> a"]);
        contradict(&["a: dead-letter=topic://b", "b: dead-letter=/queues/a"], &["a -> topic://b -> a"]);
        contradict(&["b: dead-letter=a topic=true", "a: dead-letter=b"], &["a -> topic://b -> a"]);
        contradict(&["a: dead-letter=topic://b", ">: dead-letter=topic://b"], &["topic://b -> topic://b"]);
        agree(&["a: dead-letter=queue://topic://a"]);
        agree(&[">: dead-letter=/queues/dead"]);
        contradict(&["x.*: dead-letter=y.dead", "y.*: dead-letter=x.dead"], &["x.dead -> y.dead -> x.dead"]);
        contradict(&["a: dead-letter=b", "b: dead-letter=c", ">: dead-letter=b"], &["b -> c -> b"]);
        agree(&[">: dead-letter=dead"]);
        agree(&[">: dead-letter=dead", "dead: dead-letter=graveyard", "graveyard: dead-letter=none"]);
        contradict(&[">: dead-letter=dead", "dead: dead-letter=graveyard"], &["dead -> graveyard -> dead"]);
    }

    #[test]
    fn dead_letters_do_not_go_for_ever() {
        let lines = |count: usize| (0..count).map(|n| format!("q{n}: dead-letter=q{}", n + 1)).collect();
        let check = |count: usize| {
            let lines: Vec<String> = lines(count);
            check(&rules(&lines.iter().map(String::as_str).collect::<Vec<_>>())).is_ok()
        };
        assert!(check(DEAD_LETTER_STOPS_MAX));
        assert!(!check(DEAD_LETTER_STOPS_MAX + 1));
    }

    #[test]
    fn one_queue_is_checked_with_the_rules_around_it() {
        let destinations = Destinations::new(rules(&["a.>: exclusive=true"]), true);
        let check = |line: &str| check_overrides(&destinations, "a.b", None, &rules(&[line])[0]).is_ok();
        assert!(check("a.b: priorities=true"));
        assert!(!check("a.b: non-destructive=true"));
        assert!(!check("a.b: overflow=block"));
        assert!(!check("a.b: dead-letter=a.b"));
        assert!(check("a.b: dead-letter=a.c"));
    }

    /// Rules that were read again contradict what a queue was given: what has nothing to do with it can be changed, and so can what
    /// mends it.
    #[test]
    fn a_change_is_judged_by_what_it_changes() {
        let destinations = Destinations::new(rules(&["a: non-destructive=true"]), true);
        let before = &rules(&["a: exclusive=true overflow=drop-oldest"])[0];
        let check = |line: &str| {
            let overrides = &rules(&[line])[0];
            check_overrides(&destinations, "a", Some(before), overrides).map_err(|error| error.reason)
        };
        let given = contradictions_of(&destinations, "a", before).collect::<Vec<_>>().join(" ");
        assert!(given.contains("non-destructive and exclusive") && given.contains("drop-oldest"), "{given}");
        assert_eq!(check("a: exclusive=true overflow=drop-oldest prefetch=3"), Ok(()));
        assert_eq!(check("a: overflow=drop-oldest"), Ok(()));
        assert_eq!(check("a: exclusive=true"), Ok(()));
        let refused = check("a: exclusive=true overflow=block").expect_err("it still cannot overflow");
        assert!(refused.contains("messages-max or bytes-max"), "{refused}");
        let refused = check("a: exclusive=true overflow=drop-oldest deliveries-max=3");
        assert!(refused.expect_err("it is new").contains("non-destructive and deliveries-max"));
        let limited = &rules(&["a: overflow=block messages-max=5"])[0];
        let unlimited = &rules(&["a: overflow=block"])[0];
        assert!(check_overrides(&destinations, "a", Some(limited), unlimited).is_err());
    }

    #[test]
    fn dead_letters_go_to_no_topic_that_cannot_be() {
        contradict(&["x.>: topic=true", "a: dead-letter=x..y"], &["\"a\"", "\"x..y\"", "no topic"]);
        agree(&["x.>: topic=true", "a: dead-letter=x.y"]);
        agree(&["a: dead-letter=x..y"]);
    }

    /// Rules of every kind that is looked at, so many of each.
    fn many(count: usize) -> Vec<DestinationRule> {
        let mut lines = vec!["limited.>: messages-max=9".to_owned(), "news.>: topic=true".to_owned()];
        for n in 0..count {
            lines.push(format!("a.q{n}: dead-letter=b.q{n} deliveries-max=5"));
            lines.push(format!("b.q{n}: dead-letter=c.q{n} exclusive=true"));
            lines.push(format!("c.q{n}.*: non-destructive=true dead-letter=news.q{n}"));
            lines.push(format!("limited.*.q{n}: overflow=drop-oldest"));
            // Chains of sixteen.
            let next = if n % 16 == 15 { "none".to_owned() } else { format!("d.q{}", n + 1) };
            lines.push(format!("d.q{n}: consumers-max=3 shard=0 dead-letter={next}"));
        }
        rules(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Of a file, and of a change of one queue.
    #[test]
    fn the_work_for_four_times_as_many_rules_is_four_times_as_much() {
        let work = |count: usize| {
            let rules = many(count);
            let of_file = steps_of(|| assert_eq!(check(&rules), Ok(())));
            let destinations = Destinations::new(rules, true);
            let given = &rules_of_one("dead-letter=a.q1");
            let of_queue = steps_of(|| {
                assert_eq!(check_overrides(&destinations, "x", None, given), Ok(()));
                assert_eq!(next_stop(&destinations, "a.q1", None), Some(Stop::Queue("b.q1".into())));
            });
            (of_file, of_queue)
        };
        let ((few, of_queue), (many, of_queue_of_many)) = (work(400), work(1600));
        assert!(few < many && many <= 4 * few, "{few}, {many}");
        assert_eq!(of_queue, of_queue_of_many);
    }

    fn rules_of_one(properties: &str) -> DestinationRule {
        rules(&[&format!("x: {properties}")]).swap_remove(0)
    }
}
