//! How do channels declare and delete exchanges, and what do exchanges read of messages?
//!
//! The channel's shard proposes the change, and answers when all shards have it (`topology`).

use std::sync::Arc;

use corelane_engine::exchanges::{
    Arguments, Binding, Change, Declaration, End, HeaderReader, HeaderValue, OwnedValue,
    Property as RoutedProperty, Refusal, RoutedBy, VhostId,
};
use corelane_protocol::amqp091::{LinkId, SessionId};
use corelane_wire::amqp10::{Map, Property, Value};
use corelane_wire::amqp091::{DecodeError, FieldValue, Properties, ReplyCode, ShortStr, Table, exchange};

use super::channel::ChannelFault;
use super::published::Published;
use super::queues::QueueReply;
use crate::Shard;
use crate::connection::QueueAt;
use crate::event::ConnectionSlot;
use crate::fan_out::Routes;
use crate::limits::EXCHANGE_ARGUMENTS_BYTES_MAX;
use crate::message::Message;
use crate::rights::{Object, Right};
use crate::topology::{self, NotMade, Then};

/// The argument that says where what an exchange leads nowhere goes.
const ALTERNATE_EXCHANGE: &str = "alternate-exchange";

/// The header that says for how long exchanges of the type `x-delayed-message` hold a message back.
pub(super) const X_DELAY: &str = "x-delay";

/// As long as RabbitMQ's plug-in can wait. What wants more is not held back, as there.
const DELAY_MS_MAX: i128 = u32::MAX as i128;

/// The arguments of an exchange or a binding, as they came.
pub(crate) fn arguments_of(table: Table<'_>) -> Result<Arguments, DecodeError> {
    let mut values: Vec<(Box<str>, OwnedValue)> = Vec::new();
    for pair in table {
        let (name, value) = pair?;
        // A name that is no text is nobody's.
        if let Some(name) = name.as_str() {
            values.push((name.into(), owned(header_value(&value))));
        }
    }
    Ok(Arguments::new(table.bytes(), values))
}

fn header_value<'a>(value: &FieldValue<'a>) -> HeaderValue<&'a [u8]> {
    match *value {
        FieldValue::Void => HeaderValue::Void,
        FieldValue::Boolean(value) => HeaderValue::Boolean(value),
        FieldValue::Int8(value) => HeaderValue::Integer(value.into()),
        FieldValue::Uint8(value) => HeaderValue::Integer(value.into()),
        FieldValue::Int16(value) => HeaderValue::Integer(value.into()),
        FieldValue::Uint16(value) => HeaderValue::Integer(value.into()),
        FieldValue::Int32(value) => HeaderValue::Integer(value.into()),
        FieldValue::Uint32(value) => HeaderValue::Integer(value.into()),
        FieldValue::Int64(value) => HeaderValue::Integer(value.into()),
        FieldValue::Timestamp(seconds) => HeaderValue::Integer(seconds.into()),
        FieldValue::Float(value) => HeaderValue::Float(value.into()),
        FieldValue::Double(value) => HeaderValue::Float(value),
        FieldValue::Decimal { scale, value } => HeaderValue::Decimal { scale, value },
        FieldValue::LongString(bytes) | FieldValue::Bytes(bytes) => HeaderValue::Bytes(bytes),
        FieldValue::Array(array) => HeaderValue::Array(array.bytes()),
        FieldValue::Table(table) => HeaderValue::Table(table.bytes()),
    }
}

fn owned(value: HeaderValue<&[u8]>) -> OwnedValue {
    match value {
        HeaderValue::Void => HeaderValue::Void,
        HeaderValue::Boolean(value) => HeaderValue::Boolean(value),
        HeaderValue::Integer(value) => HeaderValue::Integer(value),
        HeaderValue::Float(value) => HeaderValue::Float(value),
        HeaderValue::Decimal { scale, value } => HeaderValue::Decimal { scale, value },
        HeaderValue::Bytes(bytes) => HeaderValue::Bytes(bytes.into()),
        HeaderValue::Array(bytes) => HeaderValue::Array(bytes.into()),
        HeaderValue::Table(bytes) => HeaderValue::Table(bytes.into()),
    }
}

/// A value of a message of 1.0; compounds are none.
fn value_of<'a>(value: &Value<'a>) -> Option<HeaderValue<&'a [u8]>> {
    Some(match *value {
        Value::Null => HeaderValue::Void,
        Value::Boolean(value) => HeaderValue::Boolean(value),
        Value::Ulong(value) => HeaderValue::Integer(value.into()),
        Value::Float(value) => HeaderValue::Float(value.into()),
        Value::Double(value) => HeaderValue::Float(value),
        Value::Timestamp(at) => HeaderValue::Integer(at.div_euclid(1000).into()),
        Value::String(text) | Value::Symbol(text) => HeaderValue::Bytes(text.as_bytes()),
        Value::Binary(bytes) => HeaderValue::Bytes(bytes),
        other => HeaderValue::Integer(other.as_i64()?.into()),
    })
}

/// What exchanges read of a message that was published in 0-9-1: its headers and properties.
pub(crate) struct ByProperties<'a>(pub(crate) &'a Properties<'a>);

impl HeaderReader for ByProperties<'_> {
    fn each_header(&self, mut visit: impl FnMut(&str, HeaderValue<&[u8]>)) {
        for (name, value) in self.0.headers.unwrap_or_default().iter().flatten() {
            if let Some(name) = name.as_str() {
                visit(name, header_value(&value));
            }
        }
    }

    fn property(&self, property: RoutedProperty) -> Option<HeaderValue<&[u8]>> {
        match property {
            RoutedProperty::CorrelationId => {
                self.0.correlation_id.map(|id| HeaderValue::Bytes(id.as_bytes()))
            }
            RoutedProperty::MessageId => self.0.message_id.map(|id| HeaderValue::Bytes(id.as_bytes())),
            RoutedProperty::Timestamp => self.0.timestamp.map(|at| HeaderValue::Integer(at.into())),
        }
    }

    fn is_delayed(&self) -> bool {
        delay_of(self).is_some()
    }
}

/// What exchanges read of a message that is stored: of one of 1.0 the application properties, and the annotations that begin with `x-`.
pub(crate) struct BySections<'a>(pub(crate) &'a Message);

impl HeaderReader for BySections<'_> {
    fn each_header(&self, mut visit: impl FnMut(&str, HeaderValue<&[u8]>)) {
        let annotations = Map::decode(self.0.annotations()).unwrap_or_default();
        let said = annotations.iter().flatten().filter_map(|(name, value)| Some((name.as_str()?, value)));
        let properties = self.0.application_properties();
        let set = properties.iter().flatten().filter_map(|(name, value)| Some((name.as_str()?, value)));
        for (name, value) in said.filter(|(name, _)| name.starts_with("x-")).chain(set) {
            if let Some(value) = value_of(&value) {
                visit(name, value);
            }
        }
    }

    fn property(&self, property: RoutedProperty) -> Option<HeaderValue<&[u8]>> {
        let property = match property {
            RoutedProperty::CorrelationId => Property::CorrelationId,
            RoutedProperty::MessageId => Property::MessageId,
            RoutedProperty::Timestamp => Property::CreationTime,
        };
        value_of(&self.0.property(property)).filter(|value| !matches!(value, HeaderValue::Void))
    }

    fn is_delayed(&self) -> bool {
        delay_of(self).is_some()
    }
}

/// A message whose delay is over.
pub(crate) struct HeldBack<'a, H>(pub(crate) &'a H);

impl<H: HeaderReader> HeaderReader for HeldBack<'_, H> {
    fn each_header(&self, visit: impl FnMut(&str, HeaderValue<&[u8]>)) {
        self.0.each_header(visit);
    }

    fn property(&self, property: RoutedProperty) -> Option<HeaderValue<&[u8]>> {
        self.0.property(property)
    }

    fn is_delayed(&self) -> bool {
        false
    }
}

/// For how many microseconds a message wants to be held back, where exchanges do that: by its header `x-delay`, in milliseconds.
pub(crate) fn delay_of(headers: &impl HeaderReader) -> Option<u64> {
    let mut delay = None;
    headers.each_header(|name, value| {
        if let (X_DELAY, HeaderValue::Integer(milliseconds)) = (name, value) {
            delay = delay.or(Some(milliseconds));
        }
    });
    let milliseconds = delay.filter(|milliseconds| (1..=DELAY_MS_MAX).contains(milliseconds))?;
    Some(milliseconds as u64 * 1000)
}

/// The channel's side.
impl Shard {
    pub(crate) fn declare_exchange(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        declare: &exchange::Declare<'_>,
    ) -> Result<(), ChannelFault> {
        let name = name_of(declare.exchange)?;
        if declare.passive {
            let name = self.within(slot, name);
            self.topology.check_exists(&name).map_err(|refusal| ChannelFault::of_exchange(&refusal))?;
            self.answer_at_once(now, slot, session);
            return Ok(());
        }
        let kind = declare.kind.as_str().unwrap_or_default();
        let known = self.within(slot, name);
        self.check_right(slot, Right::Configure, Object::Exchange, &known)?;
        if let Some(alternate) = declare.arguments.find(ALTERNATE_EXCHANGE).ok().flatten()
            && let Some(alternate) = alternate.as_str()
        {
            let alternate = self.within(slot, alternate);
            self.check_right(slot, Right::Read, Object::Exchange, &known)?;
            self.check_right(slot, Right::Write, Object::Exchange, &alternate)?;
        }
        let change = Change::Declare(Declaration {
            vhost: self.vhost_id(slot),
            name: name.into(),
            kind: kind.into(),
            is_durable: declare.durable,
            is_auto_delete: declare.auto_delete,
            is_internal: declare.internal,
            arguments: checked_arguments(declare.arguments)?,
        });
        self.request_change(now, slot, session, change);
        Ok(())
    }

    pub(crate) fn delete_exchange(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        delete: &exchange::Delete<'_>,
    ) -> Result<(), ChannelFault> {
        let exchange: Arc<str> = name_of(delete.exchange)?.into();
        let known = self.within(slot, &exchange);
        self.check_right(slot, Right::Configure, Object::Exchange, &known)?;
        let change = Change::Delete { vhost: self.vhost_id(slot), exchange, if_unused: delete.if_unused };
        self.request_change(now, slot, session, change);
        Ok(())
    }

    pub(crate) fn bind_exchange(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        bind: &exchange::Bind<'_>,
    ) -> Result<(), ChannelFault> {
        let exchange::Bind { source, destination, routing_key, arguments, .. } = *bind;
        self.check_binding(slot, (source, destination))?;
        let binding = binding_of(self.vhost_id(slot), (source, destination), routing_key, arguments)?;
        self.request_change(now, slot, session, Change::Bind(binding));
        Ok(())
    }

    pub(crate) fn unbind_exchange(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        unbind: &exchange::Unbind<'_>,
    ) -> Result<(), ChannelFault> {
        let exchange::Unbind { source, destination, routing_key, arguments, .. } = *unbind;
        self.check_binding(slot, (source, destination))?;
        let binding = binding_of(self.vhost_id(slot), (source, destination), routing_key, arguments)?;
        self.request_change(now, slot, session, Change::Unbind(binding));
        Ok(())
    }

    /// Whether exchanges may be bound to each other.
    fn check_binding(
        &mut self,
        slot: ConnectionSlot,
        (source, destination): (ShortStr<'_>, ShortStr<'_>),
    ) -> Result<(), ChannelFault> {
        for (right, exchange) in [(Right::Write, destination), (Right::Read, source)] {
            let exchange = self.within(slot, name_of(exchange)?);
            self.check_right(slot, right, Object::Exchange, &exchange)?;
        }
        Ok(())
    }

    /// The virtual host of a connection.
    fn vhost_id(&mut self, slot: ConnectionSlot) -> VhostId {
        let name = self.within(slot, "");
        self.topology.place(&name).0
    }

    /// Asks all shards for what a channel asks for.
    fn request_change(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        session: SessionId,
        change: Change<QueueAt>,
    ) {
        let Some(channel) = self.begin_request(slot, session) else { return };
        let (mark, to) = (self.said(), self.index);
        let then = Then::Answer { mark, to, channel, reply: QueueReply::Done };
        self.propose(now, topology::Change::Exchanges { change: Box::new(change), uid: None }, Some(then));
    }

    /// What a channel has asked for is so.
    fn answer_at_once(&mut self, now: u64, slot: ConnectionSlot, session: SessionId) {
        if let Some(channel) = self.begin_request(slot, session) {
            self.on_channel_answer(now, self.index, channel, Ok(QueueReply::Done));
        }
    }

    /// Where a message goes that is published to an exchange that is not the default one.
    pub(crate) fn routes_through(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        (exchange, routing_key): (ShortStr<'_>, ShortStr<'_>),
        published: &Published<'_>,
    ) -> Result<Arc<Routes>, ChannelFault> {
        let exchange = name_of(exchange)?;
        let key = routing_key.as_bytes();
        let version = self.routes_version();
        let has_others = published.further_keys().next().is_some();
        let producer = self.connections.get_mut(slot).and_then(|it| it.producer_mut(link));
        let kept =
            producer.and_then(|producer| producer.exchange_routes.as_deref()?.find(version, exchange, key));
        if let Some(routes) = kept.filter(|_| !has_others) {
            return Ok(routes);
        }
        let known = &*self.within(slot, exchange);
        self.topology.check_publish(known).map_err(|refusal| ChannelFault::of_exchange(&refusal))?;
        let keys: Vec<&[u8]> = std::iter::once(key).chain(published.further_keys()).collect();
        let headers = ByProperties(published.properties());
        let Some((routes, by)) = self.look_up_exchange(known, &keys, &headers) else {
            return Ok(Arc::new(Routes::none()));
        };
        if by == RoutedBy::Keys
            && !has_others
            && let Some(producer) = self.connections.get_mut(slot).and_then(|it| it.producer_mut(link))
        {
            producer.exchange_routes.get_or_insert_default().keep(exchange, key, routes.clone());
        }
        Ok(routes)
    }
}

/// From the first exchange to the second.
fn binding_of(
    vhost: VhostId,
    (source, destination): (ShortStr<'_>, ShortStr<'_>),
    routing_key: ShortStr<'_>,
    arguments: Table<'_>,
) -> Result<Binding<QueueAt>, ChannelFault> {
    Ok(Binding {
        vhost,
        source: name_of(source)?.into(),
        destination: End::Exchange(name_of(destination)?.into()),
        key: routing_key.as_bytes().into(),
        arguments: checked_arguments(arguments)?,
    })
}

pub(super) fn name_of(name: ShortStr<'_>) -> Result<&str, ChannelFault> {
    name.as_str().ok_or_else(|| ChannelFault::precondition(format!("exchange name '{name}' is not UTF-8")))
}

/// The arguments of an exchange or a binding, unless they are too large.
pub(super) fn checked_arguments(table: Table<'_>) -> Result<Arguments, ChannelFault> {
    if table.bytes().len() > EXCHANGE_ARGUMENTS_BYTES_MAX {
        return Err(ChannelFault::precondition(format!(
            "arguments of {} bytes are too large; allowed: {EXCHANGE_ARGUMENTS_BYTES_MAX}",
            table.bytes().len()
        )));
    }
    arguments_of(table).map_err(|error| ChannelFault::new(error.reply_code(), error.to_string()))
}

impl ChannelFault {
    /// Why exchanges and bindings are not as they were asked to be.
    pub(crate) fn of_exchange(refusal: &Refusal) -> Self {
        let code = match refusal {
            Refusal::NoVhost | Refusal::NoExchange(_) => ReplyCode::NotFound,
            Refusal::DefaultExchange
            | Refusal::ReservedName(_)
            | Refusal::SystemExchange(_)
            | Refusal::InternalExchange(_) => ReplyCode::AccessRefused,
            Refusal::UnknownType(_)
            | Refusal::InUse(_)
            | Refusal::Inequivalent { .. }
            | Refusal::InvalidArgument { .. } => ReplyCode::PreconditionFailed,
        };
        ChannelFault::new(code, refusal.to_string())
    }

    pub(crate) fn of_change(reason: &NotMade) -> Self {
        match reason {
            NotMade::Limit(_) => ChannelFault::precondition(reason.to_string()),
            NotMade::Disk => ChannelFault::disk_failed(),
            NotMade::Exchange(refusal) => ChannelFault::of_exchange(refusal),
        }
    }
}
