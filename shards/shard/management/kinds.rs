//! Which types of things can be managed, and what can be done to each?
//!
//! A type's full name begins with [`PREFIX`]; requests may leave that out. The attributes of a type stand with the module that
//! reads them.

use super::data::{Data, Pairs, pairs};
use super::{connections, consumers, exchanges, queues, shards, subscriptions, topics};

/// What the names of our types begin with.
const PREFIX: &str = "org.corelane.";

/// The type of the management node itself (AMQP Management 1.0).
pub(crate) const NODE_TYPE: &str = "org.amqp.management";

/// The type that all others extend.
const ENTITY_TYPE: &str = "org.amqp.manageableEntity";

/// A type of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Queue,
    Connection,
    Consumer,
    Shard,
    Topic,
    Subscription,
    Exchange,
    Binding,
}

impl Kind {
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Queue,
        Kind::Connection,
        Kind::Consumer,
        Kind::Shard,
        Kind::Topic,
        Kind::Subscription,
        Kind::Exchange,
        Kind::Binding,
    ];

    pub(crate) fn parse(text: &str) -> Option<Kind> {
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        Kind::ALL.into_iter().find(|kind| kind.word() == text)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Queue => "queue",
            Kind::Connection => "connection",
            Kind::Consumer => "consumer",
            Kind::Shard => "shard",
            Kind::Topic => "topic",
            Kind::Subscription => "subscription",
            Kind::Exchange => "exchange",
            Kind::Binding => "binding",
        }
    }

    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Kind::Queue => "org.corelane.queue",
            Kind::Connection => "org.corelane.connection",
            Kind::Consumer => "org.corelane.consumer",
            Kind::Shard => "org.corelane.shard",
            Kind::Topic => "org.corelane.topic",
            Kind::Subscription => "org.corelane.subscription",
            Kind::Exchange => "org.corelane.exchange",
            Kind::Binding => "org.corelane.binding",
        }
    }

    /// The names of its attributes, in the order of its table.
    pub(crate) fn attributes(self) -> Vec<&'static str> {
        match self {
            Kind::Queue => queues::attribute_names(),
            Kind::Connection => connections::ATTRIBUTES.iter().map(|(name, _)| *name).collect(),
            Kind::Consumer => consumers::ATTRIBUTES.iter().map(|(name, _)| *name).collect(),
            Kind::Shard => shards::ATTRIBUTES.iter().map(|(name, _)| *name).collect(),
            Kind::Topic => topics::attribute_names(),
            Kind::Subscription => subscriptions::attribute_names(),
            Kind::Exchange => exchanges::ATTRIBUTES.iter().map(|(name, _)| *name).collect(),
            Kind::Binding => exchanges::BINDING_ATTRIBUTES.iter().map(|(name, _)| *name).collect(),
        }
    }

    /// What an operation takes, beside `name`; none: it has no such operation.
    pub(crate) fn arguments(self, operation: &str) -> Option<&'static [&'static str]> {
        self.operations().find(|(name, _)| *name == operation).map(|(_, arguments)| *arguments)
    }

    /// Its operations and the arguments of each, beside `name`.
    fn operations(self) -> impl Iterator<Item = &'static Operation> {
        let (own, of_messages): (&[Operation], &[Operation]) = match self {
            Kind::Queue => (&[("CREATE", &[]), READ, ("UPDATE", &[]), DELETE], OF_MESSAGES),
            Kind::Subscription => (&[READ, DELETE], OF_MESSAGES),
            Kind::Connection | Kind::Exchange => (&[READ, DELETE], &[]),
            Kind::Consumer | Kind::Shard | Kind::Topic => (&[READ], &[]),
            // Listed, and no more.
            Kind::Binding => (&[], &[]),
        };
        own.iter().chain(of_messages)
    }
}

/// An operation and its arguments.
type Operation = (&'static str, &'static [&'static str]);

const READ: Operation = ("READ", &[]);
const DELETE: Operation = ("DELETE", &[]);

/// What can be done to whatever has messages.
const OF_MESSAGES: &[Operation] = &[
    ("PURGE", &[]),
    ("MOVE", &["to", "selector", "ids", "count"]),
    ("COPY", &["to", "selector", "ids", "count"]),
    ("DELETE-MESSAGES", &["selector", "ids", "count"]),
    ("PEEK", &["from", "count", "body"]),
    ("EXPLAIN", &["count"]),
];

/// What GET-TYPES answers: each type, with those that it extends.
pub(crate) fn types(of: Option<Kind>) -> Pairs {
    each(of, |_| Data::List(vec![Data::from(ENTITY_TYPE)]))
}

/// What GET-ATTRIBUTES answers.
pub(crate) fn attributes(of: Option<Kind>) -> Pairs {
    each(of, |kind| Data::List(kind.attributes().into_iter().map(Data::from).collect()))
}

/// What GET-OPERATIONS answers: each operation with its arguments.
pub(crate) fn operations(of: Option<Kind>) -> Pairs {
    each(of, |kind| {
        let arguments =
            |names: &[&'static str]| Data::List(names.iter().map(|name| Data::from(*name)).collect());
        Data::Map(kind.operations().map(|(name, names)| ((*name).into(), arguments(names))).collect())
    })
}

fn each(of: Option<Kind>, value: impl Fn(Kind) -> Data) -> Pairs {
    let kinds = Kind::ALL.into_iter().filter(|kind| of.is_none_or(|of| of == *kind));
    kinds.flat_map(|kind| pairs![kind.type_name() => value(kind)]).collect()
}
