//! Where do dead letters go from where they arrive, stop after stop, and do they come back?
//!
//! Rules are checked when they are read (`contradictions`), by themselves. What queues were given while the broker runs is known at
//! their homes alone: who gives one of them another dead-letter follows the way from home to home first (`management`). A circle that
//! is closed in another way (rules that are read again, a queue with properties of its own that is deleted, two changes in the same
//! moment) is found by the messages that come round in it (`dead_letters`).
//!
//! Invariants:
//! - all of them go by [`Stop::at`] and [`next_stop`];
//! - a path ends where it leads nowhere, where it meets itself, or after [`DEAD_LETTER_STOPS_MAX`] stops.

use std::fmt;

use crate::Shard;
use crate::address::Address;
use crate::destinations::{DestinationRule, Destinations};
use crate::limits::DEAD_LETTER_STOPS_MAX;
use crate::vhost;

/// Where dead letters arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    Queue(Box<str>),
    /// Its subscriptions, which are ruled by its name.
    Topic(Box<str>),
    /// An exchange, by its address with the key, if there is one. Where it leads says each message.
    Exchange(Box<str>),
}

impl Stop {
    /// What an address means. One that names nothing leads nowhere; `properties` takes none.
    pub(crate) fn at(rules: &Destinations, address: &str) -> Stop {
        match Address::resolve(address) {
            Address::Name(name) if rules.is_topic(&name) => Stop::Topic(name.into()),
            Address::Topic(name) => Stop::Topic(name.into()),
            Address::Name(name) | Address::Queue(name) => Stop::Queue(name.into()),
            Address::Exchange { exchange, key: Some(queue) } if vhost::plain(&exchange).is_empty() => {
                Stop::Queue(vhost::within(vhost::parts(&exchange).0, queue).into())
            }
            Address::Exchange { .. } => Stop::Exchange(address.into()),
            Address::Unsupported | Address::Invalid => Stop::Queue(address.into()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Stop::Queue(name) | Stop::Topic(name) | Stop::Exchange(name) => name,
        }
    }

    /// The name that says which rules hold there.
    pub(crate) fn ruled_by(&self) -> Option<&str> {
        match self {
            Stop::Queue(name) | Stop::Topic(name) => Some(name),
            Stop::Exchange(_) => None,
        }
    }

    /// It was kept by its name.
    pub(crate) fn kept(name: &str, is_queue: bool) -> Stop {
        match Address::resolve(name) {
            _ if is_queue => Stop::Queue(name.into()),
            Address::Exchange { .. } => Stop::Exchange(name.into()),
            _ => Stop::Topic(name.into()),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Stop::Queue(_) | Stop::Exchange(_) => "",
            Stop::Topic(_) => "topic://",
        };
        write!(formatter, "{kind}{}", vhost::plain(self.name()))
    }
}

/// Where the dead letters of what is ruled by this name go. `overrides` stand above every rule.
pub(crate) fn next_stop(
    rules: &Destinations,
    name: &str,
    overrides: Option<&DestinationRule>,
) -> Option<Stop> {
    let dead_letter = rules.merged(name, overrides).dead_letter.filter(|to| !to.is_empty())?;
    Some(Stop::at(rules, &dead_letter))
}

/// The way that dead letters go.
#[derive(Debug)]
pub(crate) struct DeadLetterPath(Vec<Stop>);

impl DeadLetterPath {
    pub(crate) fn from(first: Stop) -> DeadLetterPath {
        DeadLetterPath(vec![first])
    }

    /// Adds a stop. None: it meets itself elsewhere than at its beginning, which is another queue's affair. An error says why the way
    /// cannot be.
    pub(crate) fn go_on(&mut self, next: Stop) -> Result<Option<&Stop>, String> {
        match self.0.iter().position(|stop| *stop == next) {
            Some(0) => {
                let stops: String = self.0.iter().map(|stop| format!("{stop} -> ")).collect();
                Err(format!(
                    "dead-letter goes round in a circle: {stops}{next}; allowed: queues whose own dead letters lead elsewhere or \
                     nowhere (dead-letter = \"none\")"
                ))
            }
            Some(_) => Ok(None),
            None if self.0.len() >= DEAD_LETTER_STOPS_MAX => {
                Err(format!("dead-letter leads over more than {DEAD_LETTER_STOPS_MAX} queues"))
            }
            None => {
                self.0.push(next);
                Ok(self.0.last())
            }
        }
    }
}

impl Shard {
    /// Where the dead letters of a stop go, by the rules and, if it is a queue of this shard, by what it was given.
    pub(crate) fn next_stop(&self, stop: &Stop) -> Option<Stop> {
        let node = match stop {
            Stop::Queue(name) => self.queues.find(name).and_then(|queue| self.queues.get(queue)),
            Stop::Topic(_) | Stop::Exchange(_) => None,
        };
        match node {
            Some(node) => next_stop(&self.destinations, node.ruled_by(), node.overrides()),
            None => next_stop(&self.destinations, stop.ruled_by()?, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_no_topic_of_the_same_name() {
        let topic =
            DestinationRule { pattern: "news".to_owned(), topic: Some(true), ..DestinationRule::default() };
        let rules = Destinations::new(vec![topic], true);
        let check = |address: &str, expect: Stop, shown: &str| {
            let stop = Stop::at(&rules, address);
            assert_eq!((&stop, stop.to_string().as_str()), (&expect, shown), "{address}");
        };
        for address in ["a", "queue://a", "/queues/a"] {
            check(address, Stop::Queue("a".into()), "a");
        }
        for address in ["news", "topic://news", "/topics/news"] {
            check(address, Stop::Topic("news".into()), "topic://news");
        }
        check("/exchanges//news", Stop::Queue("news".into()), "news");
        for address in ["/exchanges/news", "/exchanges/news/k"] {
            check(address, Stop::Exchange(address.into()), address);
            assert_eq!(Stop::kept(address, false), Stop::Exchange(address.into()));
        }
        check("queue://news", Stop::Queue("news".into()), "news");
        check("queue://topic://news", Stop::Queue("topic://news".into()), "topic://news");
    }
}
