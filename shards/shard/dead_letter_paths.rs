//! Where do dead letters lead, queue after queue, and do they come back?
//!
//! Rules are checked when they are read (`contradictions`). What queues are given while the broker runs is known at their homes alone,
//! so a path is followed from home to home. Who changes where the dead letters of a queue go asks first, and is refused if they would
//! come back ([`Shard::next_stop`], asked by `management`). What closes a circle in another way (rules that are read again, a queue
//! with properties of its own that is deleted, two changes in the same moment) is followed by mail, and the log names the circle.
//!
//! Invariants:
//! - a path is followed by the rules of who began, so that shards that read them a moment later do not mislead it;
//! - a path ends where it leads nowhere, where it meets itself, or after [`DEAD_LETTER_STOPS_MAX`] stops.
//!
//! Left out: what becomes of a message that comes round nevertheless (`dead_letters`).

use std::sync::Arc;

use corelane_mailbox::Lane;

use crate::Shard;
use crate::address::Address;
use crate::destinations::{DestinationRule, Destinations};
use crate::limits::DEAD_LETTER_STOPS_MAX;
use crate::mail::Mail;

/// What a stop at a topic begins with: it is not at the queue of the same name.
const TOPIC: &str = "topic://";

/// The way that dead letters of a queue go.
#[derive(Debug)]
pub struct DeadLetterPath {
    stops: Vec<Box<str>>,
    rules: Arc<Destinations>,
}

/// What the next stop makes of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// It goes on there.
    To,
    /// It comes back to its beginning.
    Circle,
    /// It meets itself elsewhere, which is another queue's affair.
    Elsewhere,
    /// It has too many stops.
    TooLong,
}

/// Adds a stop to a path.
pub(crate) fn go_on(path: &mut Vec<Box<str>>, next: Box<str>) -> Onward {
    let onward = match path.iter().position(|stop| *stop == next) {
        Some(0) => Onward::Circle,
        Some(_) => Onward::Elsewhere,
        None if path.len() >= DEAD_LETTER_STOPS_MAX => Onward::TooLong,
        None => Onward::To,
    };
    path.push(next);
    onward
}

/// A path as people read it.
pub(crate) fn show(path: &[Box<str>]) -> String {
    path.join(" -> ")
}

impl Shard {
    /// Where the dead letters of a stop go by these rules, and, if it is a queue of this shard, by what it was given. `overrides` are
    /// to stand for that.
    pub(crate) fn next_stop(
        &self,
        rules: &Destinations,
        stop: &str,
        overrides: Option<&DestinationRule>,
    ) -> Option<Box<str>> {
        let rule = match stop.strip_prefix(TOPIC) {
            Some(topic) => rules.merged(topic, None),
            None => {
                let node = self.queues.find(stop).and_then(|queue| self.queues.get(queue));
                let ruled_by = node.map_or(stop, |node| node.ruled_by());
                rules.merged(ruled_by, overrides.or(node.and_then(|node| node.overrides())))
            }
        };
        match Address::parse(&rule.dead_letter?) {
            Address::Name(name) if rules.is_topic(&name) => Some(format!("{TOPIC}{name}").into()),
            Address::Topic(name) => Some(format!("{TOPIC}{name}").into()),
            Address::Name(name) | Address::Queue(name) => Some(name.into()),
            Address::Unsupported | Address::Invalid => None,
        }
    }

    /// Something has changed that may lead the dead letters of this queue in a circle: looks for it, and warns.
    pub(crate) fn look_for_circle(&mut self, now: u64, queue: Box<str>) {
        let path = DeadLetterPath { stops: vec![queue], rules: Arc::clone(&self.destinations) };
        self.follow_dead_letters(now, path);
    }

    /// Follows a path as far as it leads over queues of this shard.
    pub(crate) fn follow_dead_letters(&mut self, now: u64, mut path: DeadLetterPath) {
        while let Some(stop) = path.stops.last()
            && let Some(next) = self.next_stop(&path.rules, stop, None)
        {
            let home = self.home_of(&next);
            match go_on(&mut path.stops, next) {
                Onward::To if home == self.index => {}
                Onward::To => {
                    self.post(home, Lane::Control, Mail::FollowDeadLetters(Box::new(path)));
                    return;
                }
                Onward::Circle => {
                    let stops = show(&path.stops);
                    let text = format!(
                        "dead-letter goes round in a circle, by what queues were given while the broker runs: {stops}; what comes \
                         round without being rejected is dropped: change dead-letter of one of them"
                    );
                    self.circle_warnings.warn(now, &mut self.effects, |_| text);
                    return;
                }
                Onward::Elsewhere | Onward::TooLong => return,
            }
        }
    }
}
