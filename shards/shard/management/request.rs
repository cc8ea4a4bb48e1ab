//! What does a request ask for, and where does its answer go?
//!
//! A request is a message (AMQP Management 1.0, working draft, §3): its application properties name the operation, the type and
//! the entity, its body is a map of attributes or arguments. Arguments are taken from the body, else from the application
//! properties. Numbers may be of any integer type, or written as a string.
//!
//! What cannot be read is answered with 400 and a sentence that says what is allowed.

use std::borrow::Cow;

use corelane_engine::Place;
use corelane_engine::selector::Filter;
use corelane_wire::amqp10::{BodyKind, Map, Property, Sections, Value};

use super::data::Data;
use super::kinds::{Kind, NODE_TYPE};
use super::question::{Change, ChangeKind, PeekQuestion, Question, SweepAction, Where};
use super::reply::{Fault, Status};
use crate::address::{Address, has_wildcards, is_topic_pattern};
use crate::attach_topic::SUBSCRIPTIONS;
use crate::destinations::Destinations;
use crate::limits::{
    EXPLAIN_CONSUMERS, EXPLAIN_CONSUMERS_MAX, PEEK_BODY_BYTES, PEEK_BODY_BYTES_MAX, PEEK_MESSAGES,
    PEEK_MESSAGES_MAX, QUERY_NAMES_MAX, QUERY_ROWS, QUERY_ROWS_MAX, REQUEST_BYTES_MAX, SWEEP_IDS_MAX,
};
use crate::mail::ConnectionId;
use crate::topology::COORDINATOR;
use crate::vhost;

/// Where an answer goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) reply_to: Box<str>,
    /// The virtual host that it is an address of.
    pub(crate) vhost: Box<str>,
    /// Where that is, if it names a link of the connection instead of a queue.
    pub(crate) queue: Option<Box<str>>,
    /// The request's correlation-id, else its message-id.
    pub(crate) correlation_id: Data,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Command {
    /// Answered at once, by the tables.
    Types(Option<Kind>),
    Attributes(Option<Kind>),
    Operations(Option<Kind>),
    Nodes,
    Query(Query),
    /// One question to one shard, or to each until one knows.
    Ask(Where, Box<Question>),
    Sweep(Sweep),
    Explain {
        queue: Box<str>,
        count: u32,
    },
}

/// Many entities, a page at a time.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) kinds: Vec<Kind>,
    /// The columns; none: all attributes.
    pub(crate) names: Vec<Box<str>>,
    /// Only what is in this virtual host.
    pub(crate) vhost: Box<str>,
    /// Only entities whose name has this in it, or fits it where it has wildcards.
    pub(crate) pattern: Option<Box<str>>,
    pub(crate) offset: u64,
    pub(crate) count: u32,
    /// Where the page before had ended.
    pub(crate) from: Option<Mark>,
}

/// A place in the list of all entities: kind, shard, and index there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) kind: usize,
    pub(crate) shard: usize,
    pub(crate) index: u32,
}

/// Messages of a queue to be moved, copied or deleted.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) queue: Box<str>,
    pub(crate) action: SweepAction,
    pub(crate) selector: Option<Box<str>>,
    pub(crate) places: Option<Box<[Place]>>,
    pub(crate) count: u64,
}

impl Mark {
    pub(crate) fn to_text(self) -> String {
        format!("{}.{}.{}", self.kind, self.shard, self.index)
    }

    fn parse(text: &str) -> Option<Mark> {
        let mut parts = text.split('.');
        let mark = Mark {
            kind: parts.next()?.parse().ok()?,
            shard: parts.next()?.parse().ok()?,
            index: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(mark)
    }
}

/// A place as operators read and write it: `SEQUENCE`, or `LEVEL:SEQUENCE` where the level is not 0.
pub(crate) fn place_text(place: Place) -> String {
    match place.level() {
        0 => place.sequence().to_string(),
        level => format!("{level}:{}", place.sequence()),
    }
}

pub(crate) fn parse_place(text: &str) -> Option<Place> {
    let (level, sequence) = text.split_once(':').unwrap_or(("0", text));
    let (level, sequence): (u64, u64) = (level.parse().ok()?, sequence.parse().ok()?);
    (level < 16 && sequence < 1 << 60).then_some(Place(level << 60 | sequence))
}

/// A connection's name: the shard that accepted it and a count.
pub(crate) fn connection_name(id: ConnectionId) -> String {
    format!("{}-{}", id.0 >> 48, id.0 & ((1 << 48) - 1))
}

fn parse_connection(text: &str) -> Option<ConnectionId> {
    let (shard, count) = text.split_once('-')?;
    let (shard, count): (u64, u64) = (shard.parse().ok()?, count.parse().ok()?);
    (shard < 1 << 16 && count < 1 << 48).then_some(ConnectionId(shard << 48 | count))
}

impl Envelope {
    /// None: there is nowhere to answer to.
    pub(crate) fn read(bytes: &[u8], vhost: &str) -> Option<Envelope> {
        let properties = Sections::scan(bytes).ok()?.properties(bytes).ok()?;
        let field = |property| properties.field(property).ok().flatten();
        let reply_to = field(Property::ReplyTo)?.as_str()?.into();
        let correlation_id = field(Property::CorrelationId).or_else(|| field(Property::MessageId));
        let correlation_id = correlation_id.map_or(Data::Null, |id| Data::encoded(&id));
        Some(Envelope { reply_to, vhost: vhost.into(), queue: None, correlation_id })
    }

    /// The queue that the answer goes to.
    pub(crate) fn address(&self) -> Cow<'_, str> {
        let named = || vhost::within(&self.vhost, &*self.reply_to);
        self.queue.as_deref().map_or_else(named, Cow::Borrowed)
    }
}

/// What everybody may ask for.
const LOOKS: [&str; 7] =
    ["READ", "QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-MGMT-NODES"];

/// Reads a request. Whoever may not change anything may look.
pub(crate) fn parse(
    bytes: &[u8],
    destinations: &Destinations,
    vhost: &str,
    may_change: bool,
) -> Result<Command, Fault> {
    if bytes.len() > REQUEST_BYTES_MAX {
        return Err(Fault::bad(format!("a request has at most {REQUEST_BYTES_MAX} bytes")));
    }
    let unreadable = |_| Fault::bad("the request's sections could not be read");
    let sections = Sections::scan(bytes).map_err(unreadable)?;
    let properties = sections.application_properties.map(bytes).map_err(unreadable)?;
    let request = Fields { bytes, sections, properties, body: None, destinations, vhost };
    let operation = request.required("operation", "READ")?;
    if !may_change && !LOOKS.contains(&operation) {
        let why = format!("{operation} is for users with the tag `administrator`");
        return Err(Fault { status: Status::Forbidden, why });
    }
    let kind = request.text("type")?.filter(|kind| !kind.is_empty());
    let request = request.with_body()?;
    match operation {
        "QUERY" | "GET-TYPES" | "GET-ATTRIBUTES" | "GET-OPERATIONS" | "GET-MGMT-NODES"
        | "GET-ANNOTATIONS" => {
            // The draft's type of these is the node's own; entityType says what they are about.
            let about = match request.text("entityType")? {
                None => kind.filter(|kind| *kind != NODE_TYPE),
                given => given,
            };
            let about = about.map(known_kind).transpose()?;
            request.takes_only(operation, node_arguments(operation), false)?;
            parse_node_operation(&request, operation, about)
        }
        _ => match kind {
            None => Err(Fault::bad("the application property `type` is missing: queue, for one")),
            Some(NODE_TYPE) => Err(unknown_operation(operation, "the management node")),
            Some(kind) => {
                let kind = known_kind(kind)?;
                if let Some(arguments) = kind.arguments(operation) {
                    let has_attributes = matches!(operation, "CREATE" | "UPDATE");
                    request.takes_only(operation, arguments, has_attributes)?;
                }
                parse_operation(&request, operation, kind)
            }
        },
    }
}

fn parse_node_operation(
    request: &Fields<'_>,
    operation: &str,
    about: Option<Kind>,
) -> Result<Command, Fault> {
    Ok(match operation {
        "GET-TYPES" => Command::Types(about),
        "GET-ATTRIBUTES" => Command::Attributes(about),
        "GET-OPERATIONS" => Command::Operations(about),
        "GET-MGMT-NODES" => Command::Nodes,
        "QUERY" => {
            let names = request.list("attributeNames", QUERY_NAMES_MAX)?;
            let from = request.text("from")?.map(|text| {
                Mark::parse(text)
                    .ok_or_else(|| Fault::bad("`from` has to be the `next` of an earlier answer"))
            });
            Command::Query(Query {
                kinds: about.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]),
                names: names.unwrap_or_default(),
                vhost: request.vhost.into(),
                pattern: request.text("pattern")?.map(Into::into),
                offset: request.number("offset")?.unwrap_or(0),
                count: request.count("count", QUERY_ROWS, QUERY_ROWS_MAX)?,
                from: from.transpose()?,
            })
        }
        _ => return Err(unknown_operation(operation, "the management node")),
    })
}

fn parse_operation(request: &Fields<'_>, operation: &str, kind: Kind) -> Result<Command, Fault> {
    match kind {
        Kind::Queue => parse_queue_operation(request, operation),
        Kind::Connection | Kind::Consumer | Kind::Shard if kind.arguments(operation).is_none() => {
            Err(unknown_operation(operation, &format!("a {}", kind.word())))
        }
        Kind::Connection => {
            let name = request.entity()?;
            let unknown = || Fault::unknown(kind, name);
            let connection = parse_connection(name).ok_or_else(unknown)?;
            let question = match operation {
                "READ" => Question::ReadConnection { connection },
                "DELETE" => Question::CloseConnection { connection },
                _ => return Err(unknown_operation(operation, "a connection")),
            };
            Ok(Command::Ask(Where::Any, Box::new(question)))
        }
        Kind::Consumer => {
            let name = request.entity()?;
            match (operation, super::consumers::parse_name(name)) {
                ("READ", Some((shard, consumer))) => {
                    Ok(Command::Ask(Where::Shard(shard), Box::new(Question::ReadConsumer { consumer })))
                }
                ("READ", None) => Err(Fault::unknown(kind, name)),
                (_, _) => Err(unknown_operation(operation, "a consumer")),
            }
        }
        Kind::Shard => {
            let name = request.entity()?;
            match (operation, name.parse()) {
                ("READ", Ok(shard)) => Ok(Command::Ask(Where::Shard(shard), Box::new(Question::ReadShard))),
                ("READ", Err(_)) => Err(Fault::unknown(kind, name)),
                (_, _) => Err(unknown_operation(operation, "a shard")),
            }
        }
        Kind::Exchange => {
            let exchange = vhost::within(request.vhost, request.entity()?).into_owned().into();
            let question = match operation {
                "READ" => Question::ReadExchange { exchange },
                "DELETE" => Question::DeleteExchange { exchange },
                _ => return Err(unknown_operation(operation, "an exchange")),
            };
            Ok(Command::Ask(Where::Shard(COORDINATOR), Box::new(question)))
        }
        Kind::Binding => Err(unknown_operation(operation, "a binding")),
        Kind::Topic => parse_topic_operation(request, operation),
        Kind::Subscription => parse_subscription_operation(request, operation),
    }
}

fn parse_topic_operation(request: &Fields<'_>, operation: &str) -> Result<Command, Fault> {
    match operation {
        "READ" => {
            let name = request.entity()?;
            match Address::parse(name).within(request.vhost) {
                Address::Topic(name) | Address::Name(name) if is_topic_pattern(&name) => {
                    let question = Question::ReadTopic { topic: name.into() };
                    Ok(Command::Ask(Where::Shard(COORDINATOR), Box::new(question)))
                }
                _ => Err(Fault::bad(format!("{name:?} is not a topic, nor a pattern of topics"))),
            }
        }
        "CREATE" | "UPDATE" | "DELETE" => Err(Fault {
            status: Status::NotImplemented,
            why: "a topic is there by a rule for destinations with `topic = true`, or while it has subscriptions: \
                  change the rules, or end the subscriptions"
                .to_owned(),
        }),
        _ => Err(unknown_operation(operation, "a topic")),
    }
}

fn parse_subscription_operation(request: &Fields<'_>, operation: &str) -> Result<Command, Fault> {
    if operation == "CREATE" {
        let why = "a subscription is made by a link that attaches to a topic".to_owned();
        return Err(Fault { status: Status::NotImplemented, why });
    }
    if Kind::Subscription.arguments(operation).is_none() {
        return Err(unknown_operation(operation, "a subscription"));
    }
    let queue = queue_name(request.vhost, request.entity()?)?;
    // What bears such a name is one.
    if !vhost::plain(&queue).starts_with(SUBSCRIPTIONS) {
        return Err(Fault::unknown(Kind::Subscription, &queue));
    }
    match operation {
        "READ" => Ok(Command::Ask(Where::Home, Box::new(Question::ReadSubscription { queue }))),
        "DELETE" => Ok(Command::Ask(Where::Home, Box::new(Question::DeleteSubscription { queue }))),
        _ => parse_queue_operation(request, operation),
    }
}

fn parse_queue_operation(request: &Fields<'_>, operation: &str) -> Result<Command, Fault> {
    if Kind::Queue.arguments(operation).is_none() {
        return Err(unknown_operation(operation, "a queue"));
    }
    let queue = queue_name(request.vhost, request.entity()?)?;
    let ask = |question| Ok(Command::Ask(Where::Home, Box::new(question)));
    match operation {
        "READ" => ask(Question::ReadQueue { queue }),
        "DELETE" => ask(Question::DeleteQueue { queue }),
        "CREATE" => {
            request.may_be_made(request.entity()?)?;
            let properties = request.attributes(&queue)?;
            ask(Question::Change(Change { queue, kind: ChangeKind::Create, properties }))
        }
        "UPDATE" => {
            let properties = request.attributes(&queue)?;
            ask(Question::Change(Change { queue, kind: ChangeKind::Update, properties }))
        }
        "PEEK" => {
            let from = match request.text("from")? {
                None => Place(0),
                Some(text) => {
                    parse_place(text).ok_or_else(|| Fault::bad("`from` has to be the place of a message"))?
                }
            };
            let count = request.count("count", PEEK_MESSAGES, PEEK_MESSAGES_MAX)?;
            let body_max = request.count("body", PEEK_BODY_BYTES, PEEK_BODY_BYTES_MAX)?;
            ask(Question::Peek(PeekQuestion { queue, from, count, body_max, reads: 0 }))
        }
        "EXPLAIN" => {
            let count = request.count("count", EXPLAIN_CONSUMERS, EXPLAIN_CONSUMERS_MAX)?;
            Ok(Command::Explain { queue, count })
        }
        "PURGE" => Ok(Command::Sweep(Sweep {
            queue,
            action: SweepAction::Delete,
            selector: None,
            places: None,
            count: u64::MAX,
        })),
        _ => parse_sweep(request, operation, queue),
    }
}

fn parse_sweep(request: &Fields<'_>, operation: &str, queue: Box<str>) -> Result<Command, Fault> {
    let action = match operation {
        "DELETE-MESSAGES" => SweepAction::Delete,
        _ => {
            let address = request.required("to", "another queue")?;
            let to = queue_name(request.vhost, address)?;
            request.may_be_made(address)?;
            if to == queue {
                return Err(Fault::bad("`to` has to be another queue"));
            }
            if operation == "MOVE" { SweepAction::Move { to } } else { SweepAction::Copy { to } }
        }
    };
    let selector = request.text("selector")?;
    if let Some(text) = selector {
        Filter::parse(text).map_err(|error| Fault::bad(format!("selector: {error}")))?;
    }
    let ids = request.list("ids", SWEEP_IDS_MAX)?;
    let places = ids.map(|ids| {
        let place = |id: Box<str>| {
            parse_place(&id).ok_or_else(|| Fault::bad(format!("{id:?} is not the place of a message")))
        };
        let mut places = ids.into_iter().map(place).collect::<Result<Vec<Place>, Fault>>()?;
        places.sort_unstable();
        places.dedup();
        Ok(places)
    });
    let count = request.number("count")?;
    if selector.is_none() && places.is_none() && count.is_none() && action == SweepAction::Delete {
        return Err(Fault::bad("say which messages: `selector`, `ids`, `count`, or PURGE for all of them"));
    }
    let count = count.unwrap_or(u64::MAX);
    let places = places.transpose()?.map(Into::into);
    Ok(Command::Sweep(Sweep { queue, action, selector: selector.map(Into::into), places, count }))
}

fn known_kind(text: &str) -> Result<Kind, Fault> {
    let words = Kind::ALL.map(Kind::word).join(", ");
    Kind::parse(text).ok_or_else(|| Fault {
        status: Status::NotFound,
        why: format!("there is no type {text:?}; there are {words}"),
    })
}

fn unknown_operation(operation: &str, on: &str) -> Fault {
    Fault {
        status: Status::NotImplemented,
        why: format!("{on} has no operation {operation:?}; see GET-OPERATIONS"),
    }
}

fn queue_name(vhost: &str, text: &str) -> Result<Box<str>, Fault> {
    match Address::parse(text).within(vhost) {
        Address::Queue(name) | Address::Name(name) => Ok(name.into()),
        Address::Topic(_) | Address::Exchange { .. } | Address::Unsupported | Address::Invalid => {
            Err(Fault::bad(format!("{text:?} is not the name of a queue")))
        }
    }
}

/// Where wildcards stand.
pub(crate) const WILDCARDS: &str =
    "rules for many queues stand in the configuration file, under [destinations]";

/// What an operation of the node itself takes.
fn node_arguments(operation: &str) -> &'static [&'static str] {
    match operation {
        "QUERY" => &["entityType", "attributeNames", "pattern", "offset", "count", "from"],
        _ => &["entityType"],
    }
}

/// Application properties that are arguments of some operation. Others are the client's own affair.
const ARGUMENTS: [&str; 10] =
    ["to", "selector", "ids", "count", "from", "body", "entityType", "attributeNames", "pattern", "offset"];

/// The application properties and the body of a request.
struct Fields<'a> {
    bytes: &'a [u8],
    sections: Sections,
    properties: Map<'a>,
    body: Option<Map<'a>>,
    /// Which names are topics'.
    destinations: &'a Destinations,
    /// The virtual host of the connection, which the names are of.
    vhost: &'a str,
}

impl<'a> Fields<'a> {
    /// Reads the body, too, which has to be a map if there is one.
    fn with_body(mut self) -> Result<Self, Fault> {
        let not_a_map = || Fault::bad("the body has to be a map, in an amqp-value section");
        self.body = match self.sections.body_values(self.bytes).next() {
            None => None,
            Some(Ok(Value::Map(map))) if self.sections.body_kind == Some(BodyKind::Value) => Some(map),
            // Some clients cannot send a message without a body.
            Some(Ok(Value::Null | Value::String("") | Value::Binary(&[]))) => None,
            Some(_) => return Err(not_a_map()),
        };
        if self.body.is_some_and(|map| map.iter().any(|pair| pair.is_err())) {
            return Err(not_a_map());
        }
        Ok(self)
    }

    /// Refuses arguments that the operation does not have: who gives one means less, or something else, than what would be done.
    fn takes_only(&self, operation: &str, known: &[&str], has_attributes: bool) -> Result<(), Fault> {
        let body = self.body.filter(|_| !has_attributes);
        let in_body = body.iter().flat_map(|map| map.iter().flatten());
        let in_properties = self.properties.iter().flatten();
        let in_properties =
            in_properties.filter(|(key, _)| key.as_str().is_some_and(|key| ARGUMENTS.contains(&key)));
        for (key, value) in in_body.chain(in_properties) {
            let Some(key) = key.as_str() else {
                return Err(Fault::bad("the keys of the body have to be strings"));
            };
            if value == Value::Null || known.contains(&key) {
                continue;
            }
            let hint = match (operation, known) {
                ("PURGE" | "DELETE", _) => {
                    "use DELETE-MESSAGES to delete some messages of a queue".to_owned()
                }
                (_, []) => "it has no arguments".to_owned(),
                (_, known) => format!("it takes `{}`", known.join("`, `")),
            };
            return Err(Fault::bad(format!("{operation} takes no {key:?}: {hint}")));
        }
        Ok(())
    }

    fn find(&self, key: &str) -> Result<Option<Value<'a>>, Fault> {
        let unreadable = |_| Fault::bad("the request's application properties could not be read");
        let in_body = self.body.and_then(|map| find_loosely(map, key));
        let found = match in_body {
            None => self.properties.find(key).map_err(unreadable)?,
            found => found,
        };
        Ok(found.filter(|value| *value != Value::Null))
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        match self.find(key)? {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text)),
                None => Err(Fault::bad(format!("`{key}` has to be a string"))),
            },
        }
    }

    fn required(&self, key: &str, example: &str) -> Result<&'a str, Fault> {
        self.text(key)?.ok_or_else(|| Fault::bad(format!("`{key}` is missing: {example}, for one")))
    }

    /// The entity that the request is about.
    fn entity(&self) -> Result<&'a str, Fault> {
        let property = |key| match self.properties.find(key) {
            Ok(None | Some(Value::Null)) => Ok(None),
            Ok(Some(value)) => value.as_str().map(Some).ok_or(()),
            Err(_) => Err(()),
        };
        match (property("name"), property("identity")) {
            (Ok(Some(name)), Ok(Some(identity))) if name != identity => Err(Fault::bad(format!(
                "`name` is {name:?} and `identity` is {identity:?}; allowed: one of them, or the same"
            ))),
            (Ok(Some(name)), Ok(_)) | (Ok(None), Ok(Some(name))) => Ok(name),
            (Ok(None), Ok(None)) => {
                Err(Fault::bad("the application property `name` (or `identity`) is missing"))
            }
            (_, _) => Err(Fault::bad("`name` and `identity` have to be strings")),
        }
    }

    /// Whether there can be a queue of this address that gets what is sent to it.
    fn may_be_made(&self, address: &str) -> Result<(), Fault> {
        let (Address::Name(name) | Address::Queue(name)) = Address::parse(address) else { return Ok(()) };
        if has_wildcards(&name) {
            let why = format!("{name:?} has wildcards, which no queue's name has: {WILDCARDS}");
            return Err(Fault::bad(why));
        }
        match self.destinations.topic_rule(&vhost::within(self.vhost, &*name)) {
            // Who says that a queue is meant sends to it in the same way.
            Some(rule) if matches!(Address::parse(address), Address::Name(_)) => Err(Fault::bad(format!(
                "{name:?} is a topic by the rule {:?}: what is sent there goes to its subscriptions; allowed: another \
                 name, or \"queue://{name}\" for who sends to that",
                rule.pattern
            ))),
            Some(_) | None => Ok(()),
        }
    }

    fn number(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(value) = self.find(key)? else { return Ok(None) };
        let number = match value {
            Value::String(text) => text.parse().ok(),
            Value::Ulong(number) => Some(number),
            other => other.as_i64().and_then(|number| u64::try_from(number).ok()),
        };
        number.map(Some).ok_or_else(|| Fault::bad(format!("`{key}` has to be a number, 0 or more")))
    }

    /// A number up to a maximum; a larger one is taken for it.
    fn count(&self, key: &str, default: u32, max: u32) -> Result<u32, Fault> {
        let number = self.number(key)?.unwrap_or(u64::from(default));
        Ok(u32::try_from(number).unwrap_or(u32::MAX).min(max))
    }

    /// A list of strings.
    fn list(&self, key: &str, count_max: usize) -> Result<Option<Vec<Box<str>>>, Fault> {
        let wrong = || Fault::bad(format!("`{key}` has to be a list of at most {count_max} strings"));
        let text = |value: Value<'_>| match value {
            Value::String(text) | Value::Symbol(text) => Some(text.into()),
            other => other.as_i64().map(|number| number.to_string().into()),
        };
        match self.find(key)? {
            None => Ok(None),
            Some(Value::List(list)) if list.len() <= count_max => list
                .iter()
                .map(|item| item.ok().and_then(text).ok_or_else(wrong))
                .collect::<Result<_, _>>()
                .map(Some),
            Some(Value::Array(array)) if array.len() <= count_max => array
                .iter()
                .map(|item| item.ok().and_then(text).ok_or_else(wrong))
                .collect::<Result<_, _>>()
                .map(Some),
            Some(_) => Err(wrong()),
        }
    }

    /// The pairs of the body, but for those that say what it is about.
    fn attributes(&self, queue: &str) -> Result<Vec<(Box<str>, Data)>, Fault> {
        let name = self.entity()?;
        let kind =
            if vhost::plain(queue).starts_with(SUBSCRIPTIONS) { Kind::Subscription } else { Kind::Queue };
        let Some(body) = self.body else { return Ok(Vec::new()) };
        if body.len() > QUERY_NAMES_MAX {
            return Err(Fault::bad(format!("at most {QUERY_NAMES_MAX} properties can be set at once")));
        }
        let mut attributes = Vec::new();
        for (key, value) in body.iter().flatten() {
            let key = key.as_str().ok_or_else(|| Fault::bad("the names of properties have to be strings"))?;
            match key {
                // Who writes back what was read says these, too.
                "name" | "identity"
                    if value.as_str().is_some_and(|said| said == name || said == vhost::plain(queue)) => {}
                "type" if value.as_str().and_then(Kind::parse) == Some(kind) => {}
                "name" | "identity" => {
                    let why = format!("the body says another `{key}` than {name:?}; a queue keeps its name");
                    return Err(Fault::bad(why));
                }
                "type" => {
                    let why = format!("the body says another `type` than {:?}", kind.word());
                    return Err(Fault::bad(why));
                }
                _ => attributes.push((key.into(), Data::encoded(&value))),
            }
        }
        Ok(attributes)
    }
}

/// Keys are strings, or symbols.
fn find_loosely<'a>(map: Map<'a>, key: &str) -> Option<Value<'a>> {
    map.iter().flatten().find(|(other, _)| other.as_str() == Some(key)).map(|(_, value)| value)
}
