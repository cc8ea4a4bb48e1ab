//! What is there to know of a topic's subscription, and how does an operator end one?
//!
//! A subscription is a queue with terms. Its attributes are its terms, then those of its queue; its properties are by the rules for
//! its topic. What can be done to the messages of a queue can be done to those of a subscription, by the same name.

use std::borrow::Cow;

use super::data::{Data, Pairs, pairs};
use super::kinds::Kind;
use super::question::Answer;
use super::queues::{self, NAMING_ATTRIBUTES, QueueView};
use super::reply::{Fault, Status};
use crate::Shard;
use crate::attach_topic::parts_of_name;
use crate::connection::Connection;
use crate::deliver::Owner;
use crate::subscription::{Subscription, Terms};
use crate::vhost;

/// A subscription of this shard.
struct SubscriptionView<'a> {
    queue: &'a QueueView<'a>,
    name: &'a str,
    subscription: &'a Subscription,
}

/// How an attribute is read.
type Read = fn(&SubscriptionView<'_>) -> Data;

/// The attributes that its queue does not have, in order; the queue's come behind them.
const ATTRIBUTES: &[(&str, Read)] = &[
    ("name", |view| vhost::plain(view.name).to_owned().into()),
    ("identity", |view| vhost::plain(view.name).to_owned().into()),
    ("type", |_| Kind::Subscription.type_name().into()),
    ("shard", |view| view.queue.shard().index.into()),
    ("topic", |view| vhost::plain(&view.terms().topic).to_owned().into()),
    ("kind", |view| {
        let word = match (view.terms().durable, view.terms().shared) {
            (false, false) => "own",
            (true, false) => "durable",
            (false, true) => "shared",
            (true, true) => "shared-durable",
        };
        word.into()
    }),
    ("container-id", |view| match parts_of_name(view.name) {
        Some((container, _)) => container.into(),
        None => view.connection().map(|(connection, _)| connection.container.to_string()).into(),
    }),
    ("subscription", |view| match parts_of_name(view.name) {
        Some((_, name)) => name.into(),
        None => view.connection().and_then(|(_, link)| link).into(),
    }),
    ("selector", |view| view.terms().selector.as_ref().map(|text| text.to_string()).into()),
    ("no-local", |view| view.terms().no_local.is_some().into()),
];

impl SubscriptionView<'_> {
    fn terms(&self) -> &Terms {
        &self.subscription.terms
    }

    /// The connection of its consumer, and how the link is called there; of one whose home is where its connection lives.
    fn connection(&self) -> Option<(&Connection, Option<String>)> {
        let shard = self.queue.shard();
        let consumer = shard.engine.consumers(self.queue.id()).next()?;
        match shard.engine.owner(consumer).map(Owner::unpack)? {
            Owner::Connection { index, link } => {
                let connection = shard.connections.peek(index)?;
                Some((connection, connection.protocol.link_name(link).map(str::to_owned)))
            }
            Owner::Target { .. } => None,
        }
    }
}

/// The names of all attributes.
pub(crate) fn attribute_names() -> Vec<&'static str> {
    let of_queue = queues::attribute_names().into_iter().skip(NAMING_ATTRIBUTES);
    ATTRIBUTES.iter().map(|(name, _)| *name).chain(of_queue).collect()
}

/// One attribute; null if the queue is no subscription.
pub(crate) fn cell(queue: &QueueView<'_>, column: usize) -> Data {
    let node = queue.node();
    match (&node.subscription, ATTRIBUTES.get(column)) {
        (None, _) => Data::Null,
        (Some(subscription), Some((_, read))) => {
            read(&SubscriptionView { queue, name: &node.name, subscription })
        }
        (Some(_), None) => queues::cell(queue, column - ATTRIBUTES.len() + NAMING_ATTRIBUTES),
    }
}

impl Shard {
    pub(crate) fn read_subscription(&mut self, now: u64, name: &str) -> Answer {
        let queue = self.queues.find(name).and_then(|queue| self.queue_view(now, queue.index));
        let Some(view) = queue.filter(|view| view.node().subscription.is_some()) else {
            return Answer::Refused(Fault::unknown(Kind::Subscription, name));
        };
        let names = attribute_names().into_iter().enumerate();
        let mut pairs: Pairs =
            names.map(|(column, name)| (Cow::Borrowed(name), cell(&view, column))).collect();
        pairs.extend(pairs!["overrides" => Data::Map(queues::overrides(view.node()))]);
        Answer::ok(pairs)
    }

    /// Ends a subscription, whatever its terms: it gets nothing more, and its consumers' links end with `amqp:resource-deleted`.
    pub(crate) fn delete_subscription(&mut self, now: u64, name: &str) -> Answer {
        let queue = self.queues.find(name);
        let is_one = |queue| self.queues.get(queue).is_some_and(|node| node.subscription.is_some());
        let Some(queue) = queue.filter(|queue| is_one(*queue)) else {
            return Answer::Refused(Fault::unknown(Kind::Subscription, name));
        };
        self.delete_queue(now, queue);
        Answer::Said { status: Status::NoContent, body: Data::Map(Pairs::new()) }
    }
}
