//! What is there to know of a queue, and how does an operator make, change and delete one?

use std::borrow::Cow;
use std::cell::OnceCell;

use corelane_engine::{Depth, QueueCounters, QueueId};
use corelane_wire::amqp10::Value;

use super::data::{Data, Pairs, pairs};
use super::kinds::Kind;
use super::question::{Answer, Change, ChangeKind};
use super::reply::{Fault, Status};
use super::request::WILDCARDS;
use crate::Shard;
use crate::address::has_wildcards;
use crate::contradictions::check_overrides;
use crate::dead_letter_paths::next_stop;
use crate::destinations::DestinationRule;
use crate::kept::Kept;
use crate::properties::{self, PROPERTIES, Property, PropertyError, PropertyValue};
use crate::queues::{QueueKind, QueueNode, is_ours};
use crate::statistics::{Flow, Summary};
use crate::vhost;

/// Pairs of a property that is a table.
const TABLE_PAIRS_MAX: usize = 16;

/// So many of [`ATTRIBUTES`], the first ones, say which queue it is.
pub(crate) const NAMING_ATTRIBUTES: usize = 5;

/// A queue of this shard.
pub(crate) struct QueueView<'a> {
    now: u64,
    shard: &'a Shard,
    id: QueueId,
    node: &'a QueueNode,
    depth: Depth,
    counters: QueueCounters,
    flow: Flow,
    /// What rules and overrides say, when it is asked for.
    rule: OnceCell<DestinationRule>,
}

impl<'a> QueueView<'a> {
    pub(crate) fn shard(&self) -> &'a Shard {
        self.shard
    }

    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    pub(crate) fn node(&self) -> &'a QueueNode {
        self.node
    }
}

/// How an attribute is read.
type Read = fn(&QueueView<'_>) -> Data;

/// The attributes of a queue, in order; its properties come behind them.
pub(crate) const ATTRIBUTES: &[(&str, Read)] = &[
    ("name", |view| vhost::plain(&view.node.name).to_owned().into()),
    ("identity", |view| vhost::plain(&view.node.name).to_owned().into()),
    ("type", |_| Kind::Queue.type_name().into()),
    ("shard", |view| view.shard.index.into()),
    ("kind", |view| match view.node.kind {
        QueueKind::Queue => "queue".into(),
        QueueKind::Dynamic => "dynamic".into(),
        QueueKind::Subscription => "subscription".into(),
    }),
    ("messages", |view| view.depth.messages.into()),
    ("bytes", |view| view.depth.bytes.into()),
    ("available", |view| view.depth.available.into()),
    ("acquired", |view| view.depth.acquired.into()),
    ("held", |view| view.depth.held.into()),
    ("pending", |view| view.depth.pending.into()),
    ("retired", |view| view.depth.retired.into()),
    ("consumers", |view| view.node.consumers.into()),
    ("oldest-age-us", |view| {
        let oldest = view.shard.engine.oldest(view.id);
        oldest.map(|enqueued_at| view.now.saturating_sub(enqueued_at)).into()
    }),
    ("messages-in", |view| view.counters.enqueued.into()),
    ("bytes-in", |view| view.flow.bytes_in.into()),
    ("deliveries", |view| view.flow.deliveries.into()),
    ("bytes-out", |view| view.flow.bytes_out.into()),
    ("accepted", |view| view.counters.accepted.into()),
    ("rejected", |view| view.counters.rejected.into()),
    ("returned", |view| view.counters.returned.into()),
    ("expired", |view| view.counters.expired.into()),
    ("exhausted", |view| view.counters.exhausted.into()),
    ("dropped", |view| view.counters.dropped.into()),
    ("replaced", |view| view.counters.replaced.into()),
    ("removed", |view| view.counters.removed.into()),
    ("refused", |view| view.counters.refused_publications.into()),
    ("dead-letters-lost", |view| view.node.dead_letters_lost.into()),
    ("ack-deadlines-missed", |view| view.counters.ack_deadlines_missed.into()),
    ("wake-ups", |view| view.counters.notified.into()),
    ("wake-ups-per-delivery", |view| {
        let (woken, delivered) = (view.counters.notified, view.flow.deliveries);
        if delivered == 0 { Data::Null } else { Data::Float(woken as f64 / delivered as f64) }
    }),
    ("time-in-queue-us", |view| summary(view.shard.statistics.time_in_queue(view.id))),
    ("settle-latency-us", |view| summary(view.shard.statistics.settle_latency(view.id))),
];

fn summary(summary: Option<Summary>) -> Data {
    summary.filter(|summary| summary.count > 0).map_or(Data::Null, |summary| {
        Data::Map(pairs![
            "count" => summary.count,
            "mean" => Data::Float(summary.mean),
            "p50" => summary.p50,
            "p90" => summary.p90,
            "p99" => summary.p99,
            "max" => summary.max,
        ])
    })
}

const PINNED_SHARD: &str = "pinned-shard";

/// What a property is called among the attributes. `shard` is where the queue lives, so the property that pins it there is not.
fn attribute_of(property: &Property) -> &'static str {
    if property.name == "shard" { PINNED_SHARD } else { property.name }
}

/// The names of all attributes.
pub(crate) fn attribute_names() -> Vec<&'static str> {
    let properties = PROPERTIES.iter().map(attribute_of);
    ATTRIBUTES.iter().map(|(name, _)| *name).chain(properties).collect()
}

/// One attribute.
pub(crate) fn cell(view: &QueueView<'_>, column: usize) -> Data {
    match ATTRIBUTES.get(column) {
        Some((_, read)) => read(view),
        None => {
            let rule = view.rule.get_or_init(|| {
                let node = view.node;
                let mut rule = view.shard.destinations.merged(node.ruled_by(), node.overrides());
                node.show_kept(&mut rule);
                rule
            });
            let property = PROPERTIES.get(column - ATTRIBUTES.len());
            property.and_then(|property| property.read(rule)).map(show).into()
        }
    }
}

/// What was said of this queue alone.
pub(crate) fn overrides(node: &QueueNode) -> Pairs {
    let said = |property: &'static Property| {
        Some((Cow::Borrowed(property.name), show(property.read(node.overrides()?)?)))
    };
    PROPERTIES.iter().filter_map(said).collect()
}

/// What is said of properties that change later, and when; nothing, if there are none.
fn waiting(view: &QueueView<'_>) -> Data {
    let said = view.shard.destinations.merged(view.node.ruled_by(), view.node.overrides());
    let waits = |kept: Kept| {
        let (name, until) = kept.name_and_end();
        let value = properties::find(name).and_then(|property| property.read(&said)).map(show);
        (Cow::Borrowed(name), Data::Map(pairs!["value" => value, "until" => until]))
    };
    let waiting: Pairs = view.shard.waiting(view.id, view.node).into_iter().map(waits).collect();
    if waiting.is_empty() { Data::Null } else { Data::Map(waiting) }
}

pub(crate) fn show(value: PropertyValue) -> Data {
    match value {
        PropertyValue::Bool(flag) => Data::Bool(flag),
        PropertyValue::Integer(number) => Data::Int(number),
        PropertyValue::Float(number) => Data::Float(number),
        PropertyValue::Text(text) => vhost::plain(&text).to_owned().into(),
        PropertyValue::Table(pairs) => {
            Data::Map(pairs.into_iter().map(|(name, value)| (Cow::Owned(name), show(value))).collect())
        }
        PropertyValue::Other(_) => Data::Null,
    }
}

impl Shard {
    pub(crate) fn queue_view(&mut self, now: u64, index: u32) -> Option<QueueView<'_>> {
        let (id, _) = self.queues.at(index)?;
        self.statistics.complete(id);
        let (_, node) = self.queues.at(index)?;
        Some(QueueView {
            now,
            shard: self,
            id,
            node,
            depth: self.engine.depth(id)?,
            counters: self.engine.queue_counters(id)?,
            flow: self.statistics.flow(id),
            rule: OnceCell::new(),
        })
    }

    pub(crate) fn read_queue(&mut self, now: u64, name: &str) -> Answer {
        match self.queues.find(name) {
            Some(queue) => self.describe_queue(now, Status::Ok, queue),
            None => self.no_queue(name),
        }
    }

    fn describe_queue(&mut self, now: u64, status: Status, queue: QueueId) -> Answer {
        let Some(view) = self.queue_view(now, queue.index) else { return Answer::ok(Pairs::new()) };
        let names = attribute_names().into_iter().enumerate();
        let mut pairs: Pairs = names.map(|(column, name)| (name.into(), cell(&view, column))).collect();
        pairs.extend(pairs!["overrides" => Data::Map(overrides(view.node)), "waiting" => waiting(&view)]);
        Answer::Said { status, body: Data::Map(pairs) }
    }

    /// Properties that are given stand above every rule from now on; null takes such a one back.
    pub(crate) fn change_queue(&mut self, now: u64, change: &Change) -> Result<Answer, Fault> {
        let name = &change.queue;
        match self.overrides_by(change)? {
            (Some(queue), overrides) => {
                if let Some(node) = self.queues.get_mut(queue) {
                    node.set_overrides(overrides);
                }
                self.apply_properties(now, queue);
                self.redefine(queue);
                Ok(self.describe_queue(now, Status::Ok, queue))
            }
            (None, overrides) => match self.declare_queue(now, name, QueueKind::Queue, overrides) {
                Ok(queue) => {
                    self.define(queue);
                    Ok(self.describe_queue(now, Status::Created, queue))
                }
                Err(_) => {
                    let why = format!("shard {} has no room for another queue", self.index);
                    Err(Fault { status: Status::Unavailable, why })
                }
            },
        }
    }

    /// Fails as the change would, and says where the queue's dead letters would go.
    pub(crate) fn try_change(&self, change: &Change) -> Result<Answer, Fault> {
        let (queue, overrides) = self.overrides_by(change)?;
        let node = queue.and_then(|queue| self.queues.get(queue));
        let ruled_by = node.map_or(&*change.queue, |node| node.ruled_by());
        Ok(Answer::LeadsTo(next_stop(&self.destinations, ruled_by, Some(&overrides))))
    }

    /// What overrides there would be, and of which queue, unless it is to be made.
    fn overrides_by(&self, change: &Change) -> Result<(Option<QueueId>, DestinationRule), Fault> {
        let name = &*change.queue;
        let known = self.queues.find(name).and_then(|queue| Some((queue, self.queues.get(queue)?)));
        match (change.kind, known) {
            (ChangeKind::Create, Some(_)) => {
                let why = format!("there is a queue {:?} already", vhost::plain(name));
                Err(Fault { status: Status::Conflict, why })
            }
            (ChangeKind::Create, None) if is_ours(name) || vhost::plain(name) == super::ADDRESS => {
                Err(Fault::bad(format!("{:?} is a name that only the broker gives", vhost::plain(name))))
            }
            (ChangeKind::Create, None) => Ok((None, self.overrides_with(name, None, &change.properties)?)),
            (ChangeKind::Update, Some((queue, node))) => {
                let overrides = self.overrides_with(node.ruled_by(), node.overrides(), &change.properties)?;
                match self.kept_against(queue, &overrides) {
                    Some(kept) => Err(Fault { status: Status::Conflict, why: kept.reason().to_owned() }),
                    None => Ok((Some(queue), overrides)),
                }
            }
            (ChangeKind::Update, None) => {
                let Fault { status, why } = Fault::unknown(Kind::Queue, name);
                let why = if has_wildcards(name) { format!("{why}: {WILDCARDS}") } else { why };
                Err(Fault { status, why })
            }
        }
    }

    /// The overrides of a queue with properties of a request, if they agree with each other and with the rules for this name.
    fn overrides_with(
        &self,
        name: &str,
        before: Option<&DestinationRule>,
        properties: &[(Box<str>, Data)],
    ) -> Result<DestinationRule, Fault> {
        let overrides = with_properties(before, properties)?;
        match check_overrides(&self.destinations, name, before, &overrides) {
            Ok(()) => Ok(overrides),
            Err(contradiction) => Err(Fault::bad(contradiction.to_string())),
        }
    }

    pub(crate) fn delete_named_queue(&mut self, now: u64, name: &str) -> Answer {
        let Some(queue) = self.queues.find(name) else { return self.no_queue(name) };
        self.delete_queue(now, queue);
        Answer::Said { status: Status::NoContent, body: Data::Map(Pairs::new()) }
    }
}

/// What was said of a queue alone, from the map that it was encoded as, with others that are no properties.
pub(crate) fn decode_overrides(bytes: &[u8], others: &[&str]) -> Result<DestinationRule, String> {
    if bytes.is_empty() {
        return Ok(DestinationRule::default());
    }
    let map = corelane_wire::amqp10::Map::decode(bytes).map_err(|error| error.to_string())?;
    let mut properties = Vec::new();
    for pair in map {
        let (name, value) = pair.map_err(|error| error.to_string())?;
        let name = name.as_str().unwrap_or_default();
        if !others.contains(&name) {
            properties.push((name.into(), Data::encoded(&value)));
        }
    }
    with_properties(None, &properties).map_err(|fault| fault.why)
}

/// A rule with properties of a request; null takes back what was said before.
fn with_properties(
    before: Option<&DestinationRule>,
    properties: &[(Box<str>, Data)],
) -> Result<DestinationRule, Fault> {
    let mut rule = DestinationRule::default();
    for (index, (name, _)) in properties.iter().enumerate() {
        let Some(property) = properties::find(name) else { continue };
        if properties[..index].iter().any(|(earlier, _)| names(property, earlier)) {
            return Err(Fault::bad(format!("{} is given twice; allowed: once", property.name)));
        }
    }
    let is_given = |known: &Property| properties.iter().any(|(name, _)| names(known, name));
    for property in PROPERTIES.iter().filter(|property| !is_given(property)) {
        if let Some(value) = before.and_then(|before| property.read(before)) {
            properties::set_for_queue(&mut rule, property.name, &value).map_err(refused)?;
        }
    }
    for (name, value) in properties {
        let Data::Encoded(bytes) = value else { continue };
        let value =
            Value::decode(bytes).map_err(|_| Fault::bad(format!("the value of {name} cannot be read")))?;
        if value == Value::Null && properties::find(name).is_some() {
            continue;
        }
        set(&mut rule, name, &value).map_err(refused)?;
    }
    Ok(rule)
}

fn refused(error: PropertyError) -> Fault {
    Fault::bad(error.to_string())
}

impl Change {
    /// Whether it says where dead letters go.
    pub(crate) fn leads_dead_letters(&self) -> bool {
        self.properties
            .iter()
            .any(|(name, _)| properties::find(name).is_some_and(|property| property.name == "dead-letter"))
    }
}

fn names(property: &Property, name: &str) -> bool {
    properties::find(name).is_some_and(|found| found.name == property.name)
}

/// A string stands for a number or a flag where one is wanted, as the draft has it.
fn set(rule: &mut DestinationRule, name: &str, value: &Value<'_>) -> Result<(), PropertyError> {
    let given = property_value(value, 0);
    // As the attribute is called that says so.
    let name = if name.replace('_', "-") == PINNED_SHARD { "shard" } else { name };
    let result = properties::set_for_queue(rule, name, &given);
    let meant = match &given {
        PropertyValue::Text(text) => match (text.parse(), text.parse()) {
            (Ok(number), _) => PropertyValue::Integer(number),
            (_, Ok(flag)) => PropertyValue::Bool(flag),
            (Err(_), Err(_)) => return result,
        },
        _ => return result,
    };
    result.or_else(|error| properties::set_for_queue(rule, name, &meant).map_err(|_| error))
}

fn property_value(value: &Value<'_>, depth: usize) -> PropertyValue {
    match value {
        Value::Boolean(flag) => PropertyValue::Bool(*flag),
        Value::Float(number) => PropertyValue::Float(f64::from(*number)),
        Value::Double(number) => PropertyValue::Float(*number),
        Value::String(text) | Value::Symbol(text) => PropertyValue::Text((*text).to_owned()),
        Value::Map(map) if depth == 0 && map.len() <= TABLE_PAIRS_MAX => {
            let pairs = map.iter().flatten().map(|(key, value)| {
                (key.as_str().unwrap_or_default().to_owned(), property_value(&value, depth + 1))
            });
            PropertyValue::Table(pairs.collect())
        }
        other => match other.as_i64() {
            Some(number) => PropertyValue::Integer(number),
            None => PropertyValue::Other("a value of this type"),
        },
    }
}
