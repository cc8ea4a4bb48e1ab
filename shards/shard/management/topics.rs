//! What is there to know of topics: those that subscriptions are bound to, those that live with a link, and those that rules name?
//!
//! Nobody makes or deletes a topic: it is there by a rule that says so, and while something is bound to it. The shard that puts
//! bindings in order answers for all of them. In a listing the rules come first, then what is bound, by the place where it is kept.

use super::data::{Data, Pairs, pairs};
use super::kinds::Kind;
use super::question::Answer;
use super::queues::show;
use super::reply::Fault;
use crate::Shard;
use crate::address::is_topic_name;
use crate::properties::PROPERTIES;
use crate::vhost;

/// How an attribute is read of the topic of this name.
type Read = fn(&mut Shard, &str) -> Data;

/// The attributes of a topic, in order; what rules say of its subscriptions' properties comes behind them.
const ATTRIBUTES: &[(&str, Read)] = &[
    ("name", |_, name| vhost::plain(name).to_owned().into()),
    ("identity", |_, name| vhost::plain(name).to_owned().into()),
    ("type", |_, _| Kind::Topic.type_name().into()),
    // It has wildcards, so nothing is published to it.
    ("pattern", |_, name| (!is_topic_name(name)).into()),
    // A rule says that a plain address of this name is a topic.
    ("by-rule", |shard, name| shard.destinations.is_topic(name).into()),
    // It ends with the link that it was made for.
    ("temporary", |shard, name| shard.topology.has_temporary(name).into()),
    // Those to exactly this topic or pattern.
    ("subscriptions", |shard, name| shard.topology.bound_to(name).unwrap_or(0).into()),
    // Those that get what is published to it, by patterns too.
    ("receivers", |shard, name| receivers(shard, name).into()),
];

fn receivers(shard: &mut Shard, name: &str) -> Option<u32> {
    is_topic_name(name).then(|| {
        let mut count = 0;
        shard.topology.matches(name, |_| count += 1);
        let work = shard.topology.take_work();
        shard.turn.count_work(work);
        count
    })
}

/// The names of all attributes.
pub(crate) fn attribute_names() -> Vec<&'static str> {
    let properties = PROPERTIES.iter().map(|property| property.name);
    ATTRIBUTES.iter().map(|(name, _)| *name).chain(properties).collect()
}

impl Shard {
    /// Above the indices of all topics that this shard lists.
    pub(crate) fn topic_index_end(&self) -> u32 {
        let bound = self.topology.bound_index_end();
        bound.map_or(0, |bound| (self.destinations.rules().len() + bound) as u32)
    }

    /// The topic of an index, if there is one.
    pub(crate) fn topic_at(&self, index: u32) -> Option<&str> {
        let rules = self.destinations.rules();
        match rules.get(index as usize) {
            Some(rule) => {
                let is_listed = rule.topic == Some(true) && self.topology.bound_to(&rule.pattern).is_none();
                is_listed.then_some(&*rule.pattern)
            }
            None => self.topology.bound_at(index as usize - rules.len()),
        }
    }

    pub(crate) fn topic_cell(&mut self, name: &str, column: usize) -> Data {
        match ATTRIBUTES.get(column) {
            Some((_, read)) => read(self, name),
            None => {
                let rule = self.destinations.merged(name, None);
                let property = PROPERTIES.get(column - ATTRIBUTES.len());
                property.and_then(|property| property.read(&rule)).map(show).into()
            }
        }
    }

    /// Also of a topic that is named nowhere, if there is a pattern by which it has subscriptions.
    pub(crate) fn read_topic(&mut self, name: &str) -> Answer {
        let is_known = self.topology.bound_to(name).is_some() || self.destinations.is_topic(name);
        if !is_known && receivers(self, name).unwrap_or(0) == 0 {
            return Answer::Refused(Fault::unknown(Kind::Topic, name));
        }
        let names = attribute_names().into_iter().enumerate();
        let pairs: Pairs =
            names.flat_map(|(column, known)| pairs![known => self.topic_cell(name, column)]).collect();
        Answer::ok(pairs)
    }
}
