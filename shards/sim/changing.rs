//! Which properties of queues does an operator change while clients use them, and what may hold then?
//!
//! From the request on the new value may hold, and until it is answered the old one. Of what can be told by the message ([`Reach`])
//! is judged by what may have held since that was sent; everything else by all that ever held.

use corelane_shard::{OverflowRule, PrefetchRule};
use corelane_wire::amqp10::Value;

use crate::operator::{Item, Operator};
use crate::oracle::Sent;
use crate::plan::QueuePlan;
use crate::random::Random;
use crate::world::World;

/// The messages that something may concern: those that were sent before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach(usize);

impl Reach {
    pub(crate) const NONE: Reach = Reach(0);
    pub(crate) const ALL: Reach = Reach(usize::MAX);

    pub(crate) fn covers(self, number: usize) -> bool {
        number < self.0
    }

    /// It ends, when so many messages were sent.
    fn end(&mut self, count: usize) {
        self.0 = self.0.min(count);
    }
}

const DROP_OLDEST: &str = "drop-oldest";
const OVERFLOWS: [&str; 3] = ["reject", "block", DROP_OLDEST];

/// A change of properties, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Prefetch(u32),
    Limit(Option<u32>, &'static str),
    Expiration(u64),
    DeliveriesMax(u32),
    RedeliveryMs(u32),
    AckDeadlineMs(u32),
    Dispatch(&'static str),
    Flag(Flag, bool),
    LastValueKey(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Exclusive,
    Priorities,
    StickyGroups,
    SenderName,
}

impl Change {
    /// One that contradicts nothing else that holds for the queue.
    pub(crate) fn draw(random: &mut Random, queue: &QueuePlan) -> Option<Change> {
        let destroys = !queue.shows_all;
        Some(match random.below(10) {
            0 => Change::Prefetch(1 + random.below(20) as u32),
            1 | 2 if random.one_in(3) => Change::Limit(None, "reject"),
            1 | 2 => Change::Limit(Some(1 + random.below(30) as u32), OVERFLOWS[random.below(3)]),
            // What nobody takes has to end.
            3 if destroys => Change::Expiration([0, 20_000, 500_000][random.below(3)]),
            3 => Change::Expiration([20_000, 500_000][random.below(2)]),
            4 if destroys => Change::DeliveriesMax(random.below(5) as u32),
            5 if destroys => Change::RedeliveryMs([0, 1, 80][random.below(3)]),
            6 => Change::Dispatch(["round-robin", "least-outstanding"][random.below(2)]),
            7 if destroys => Change::AckDeadlineMs([0, 30, 300][random.below(3)]),
            8 if random.one_in(4) => Change::LastValueKey(random.one_in(2)),
            _ => {
                let flag = [Flag::Exclusive, Flag::Priorities, Flag::StickyGroups, Flag::SenderName]
                    [random.below(4)];
                let fits = match flag {
                    Flag::Exclusive => destroys && queue.rule.consumers_max.is_none(),
                    Flag::StickyGroups => destroys,
                    Flag::Priorities | Flag::SenderName => true,
                };
                if !fits {
                    return None;
                }
                Change::Flag(flag, random.one_in(2))
            }
        })
    }

    pub(crate) fn send(self, operator: &mut Operator, world: &mut World, name: &str) -> u64 {
        let number = |number: u32| Item::Value(Value::Uint(number));
        let text = |text: &'static str| Item::Value(Value::String(text));
        let duration = |us: u64| if us == 0 { "0".to_owned() } else { format!("{us}us") };
        let owned;
        let body = match self {
            Change::Prefetch(limit) => vec![("prefetch", number(limit))],
            Change::Limit(max, overflow) => {
                let max = number(max.unwrap_or(0));
                vec![("messages-max", max), ("bytes-max", number(0)), ("overflow", text(overflow))]
            }
            Change::Expiration(us) => {
                owned = duration(us);
                vec![("expiration", Item::Value(Value::String(&owned)))]
            }
            Change::DeliveriesMax(max) => vec![("deliveries-max", number(max))],
            Change::RedeliveryMs(ms) => {
                owned = duration(1000 * u64::from(ms));
                vec![("redelivery-delay", Item::Value(Value::String(&owned)))]
            }
            Change::AckDeadlineMs(ms) => {
                owned = duration(1000 * u64::from(ms));
                vec![("ack-deadline", Item::Value(Value::String(&owned)))]
            }
            Change::Dispatch(word) => vec![("dispatch", text(word))],
            Change::Flag(flag, on) => {
                let name = match flag {
                    Flag::Exclusive => "exclusive",
                    Flag::Priorities => "priorities",
                    Flag::StickyGroups => "sticky-groups",
                    Flag::SenderName => "sender-name",
                };
                vec![(name, Item::Value(Value::Boolean(on)))]
            }
            Change::LastValueKey(on) => vec![("last-value-key", text(if on { "k" } else { "none" }))],
        };
        operator.send(world, "UPDATE", ("queue", name), &[], &body)
    }

    /// What has a condition may not be changed now.
    pub(crate) fn may_conflict(self) -> bool {
        matches!(self, Change::LastValueKey(_))
    }
}

impl QueuePlan {
    /// What its properties are at first.
    pub(crate) fn begin(&mut self) {
        let rule = &self.rule;
        let of = |holds: bool| if holds { Reach::ALL } else { Reach::NONE };
        let is_limited = rule.messages_max.is_some() || rule.bytes_max.is_some();
        let drops = rule.overflow == Some(OverflowRule::DropOldest);
        (self.refuses, self.drops) = (of(is_limited && !drops), of(is_limited && drops));
        self.exhausts = of(rule.deliveries_max.is_some());
        self.deliveries_max = rule.deliveries_max;
        self.deadline_us = rule.ack_deadline_us;
        self.expirations = vec![(rule.expiration_us, Reach::ALL)];
        self.prefetch_max = match rule.prefetch {
            Some(PrefetchRule::None) => Some(1),
            Some(PrefetchRule::Limit(limit)) => Some(limit as usize),
            Some(PrefetchRule::Inherit) | None => None,
        };
    }

    /// A change may hold from now on.
    pub(crate) fn may_change(&mut self, change: Change) {
        self.changing += 1;
        match change {
            // Who has more keeps it.
            Change::Prefetch(limit) => {
                self.prefetch_max = self.prefetch_max.map(|max| max.max(limit as usize));
            }
            Change::Limit(max, overflow) => {
                // It may have more than this by now.
                self.is_bounded = false;
                if max.is_some() && overflow == DROP_OLDEST {
                    self.drops = Reach::ALL;
                } else if max.is_some() {
                    self.refuses = Reach::ALL;
                }
            }
            Change::Expiration(us) => self.expirations.push((Some(us), Reach::ALL)),
            Change::DeliveriesMax(max) => {
                self.deliveries_max = self.deliveries_max.filter(|_| max > 0).map(|old| old.max(max.into()));
                if max > 0 {
                    self.exhausts = Reach::ALL;
                }
            }
            Change::AckDeadlineMs(0) => {}
            Change::AckDeadlineMs(ms) => {
                let after = 1000 * u64::from(ms);
                self.deadline_us = Some(self.deadline_us.map_or(after, |old| old.min(after)));
            }
            Change::Flag(Flag::Exclusive, on) => self.exclusive &= on,
            Change::Flag(Flag::Priorities, on) => self.priorities |= on,
            Change::LastValueKey(on) => self.replaces |= on,
            Change::Flag(Flag::StickyGroups | Flag::SenderName, _)
            | Change::RedeliveryMs(_)
            | Change::Dispatch(_) => {}
        }
    }

    /// A change was answered, when so many messages were sent: it holds, and what it has replaced does not, unless another may come
    /// yet, or what the rules say comes back with the queue.
    pub(crate) fn has_changed(&mut self, change: Change, is_done: bool, count: usize) {
        self.changing -= 1;
        if !is_done || self.changing > 0 || self.goes {
            return;
        }
        match change {
            Change::Limit(max, overflow) => {
                let drops = overflow == DROP_OLDEST;
                if max.is_none() || drops {
                    self.refuses.end(count);
                }
                if max.is_none() || !drops {
                    self.drops.end(count);
                }
            }
            Change::Expiration(_) => {
                if let Some((_, earlier)) = self.expirations.split_last_mut() {
                    earlier.iter_mut().for_each(|(_, reach)| reach.end(count));
                }
            }
            Change::DeliveriesMax(0) => self.exhausts.end(count),
            Change::DeliveriesMax(_)
            | Change::Prefetch(_)
            | Change::RedeliveryMs(_)
            | Change::AckDeadlineMs(_)
            | Change::Dispatch(_)
            | Change::Flag(..)
            | Change::LastValueKey(_) => {}
        }
    }

    /// Whether a dead letter may be lost that comes here, by changes alone.
    pub(crate) fn may_lose_dead(&self, number: usize) -> bool {
        let may_expire = self.expirations.iter().any(|(after, _)| after.is_some_and(|after| after > 0));
        let losing = [self.refuses, self.drops, self.exhausts];
        may_expire || self.replaces || losing.iter().any(|reach| reach.covers(number))
    }

    fn ends(&self, number: usize, sent: &Sent) -> impl Iterator<Item = Option<bool>> {
        let held = self.expirations.iter().filter(move |(_, reach)| reach.covers(number));
        held.map(|(expiration, _)| expiration.map_or(sent.ends, |after| Some(after > 0)))
    }

    /// Whether the time of a message of this queue may end.
    pub(crate) fn may_expire(&self, number: usize, sent: &Sent) -> bool {
        self.ends(number, sent).any(|ends| ends != Some(false))
    }

    /// Whether it does for certain.
    pub(crate) fn must_expire(&self, number: usize, sent: &Sent) -> bool {
        self.ends(number, sent).all(|ends| ends == Some(true))
    }
}
