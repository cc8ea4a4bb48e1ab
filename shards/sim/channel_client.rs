//! What does a client of 0-9-1 do, and what does it see? The protocol's client role, with a record of everything that arrived.

use corelane_protocol::amqp091::{
    Config, Connection, Delivery, DeliveryKind, Event, Login, Publication, SessionId,
};
use corelane_wire::amqp091::{
    Encode, FieldValue, Method, Properties, PropertyFields, ShortStr, Table, TableWriter, basic, channel,
    confirm, exchange, queue, tx,
};

/// One client with as many channels as it opens.
#[derive(Debug)]
pub struct ChannelClient {
    pub(crate) protocol: Connection,
    pub(crate) input: Vec<u8>,
    is_open: bool,
    /// Everything that came, one line each, in order.
    pub seen: Vec<String>,
    /// Tags of what was delivered and not acknowledged by the client itself.
    pub tags: Vec<u64>,
    /// Where the answers to what was delivered are to go.
    pub reply_tos: Vec<String>,
    /// Why what was delivered has died first.
    pub deaths: Vec<String>,
}

impl ChannelClient {
    pub(crate) fn new(now: u64, vhost: &str, frame_max: u32) -> Self {
        let login = Login::Plain { user: "sim".into(), password: "".into() };
        let config = Config { login, virtual_host: vhost.into(), frame_max, ..Config::default() };
        ChannelClient {
            protocol: Connection::client(config, now),
            input: Vec::new(),
            is_open: false,
            seen: Vec::new(),
            tags: Vec::new(),
            reply_tos: Vec::new(),
            deaths: Vec::new(),
        }
    }

    /// Takes what has arrived. True if there was something.
    pub(crate) fn act(&mut self, now: u64) -> bool {
        let bytes = std::mem::take(&mut self.input);
        let mut input = &bytes[..];
        let mut acted = false;
        while let Some(event) = self.protocol.receive(now, &mut input) {
            acted = true;
            let line = match event {
                Event::Opened { .. } => {
                    self.is_open = true;
                    continue;
                }
                Event::Answered { method, .. } => show(&method),
                Event::Delivery(delivery) => {
                    self.tags.extend(tag_of(&delivery));
                    let properties = delivery.head.properties().decode().unwrap_or_default();
                    self.reply_tos.extend(properties.reply_to.map(|reply_to| reply_to.to_string()));
                    let reason =
                        properties.headers.unwrap_or_default().find("x-first-death-reason").ok().flatten();
                    self.deaths.extend(reason.and_then(|reason| Some(reason.as_str()?.to_owned())));
                    show_delivery(&delivery)
                }
                Event::Ended { error: Some(error), .. } => format!("channel closed: {}", error.reply_code),
                Event::Closed { error: Some(error) } => format!("closed: {}", error.reply_code),
                Event::Blocked { .. } => "blocked".to_owned(),
                Event::Unblocked => "unblocked".to_owned(),
                _ => continue,
            };
            self.seen.push(line);
        }
        self.input = input.to_vec();
        self.protocol.finish_turn(now);
        acted
    }

    /// A new channel.
    pub fn open_channel(&mut self) -> SessionId {
        assert!(self.is_open, "the world was run since the client was made");
        self.protocol.open_channel().expect("there are channels left")
    }

    pub fn declare(&mut self, channel: SessionId, name: &str, exclusive: bool) {
        let queue = ShortStr::cut(name);
        self.call(channel, &queue::Declare { queue, exclusive, ..declaration() });
    }

    pub fn look(&mut self, channel: SessionId, name: &str) {
        let queue = ShortStr::cut(name);
        self.call(channel, &queue::Declare { queue, passive: true, ..declaration() });
    }

    pub fn delete(&mut self, channel: SessionId, name: &str, if_empty: bool) {
        let queue = ShortStr::cut(name);
        self.call(channel, &queue::Delete { queue, if_unused: false, if_empty, no_wait: false });
    }

    pub fn purge(&mut self, channel: SessionId, name: &str) {
        self.call(channel, &queue::Purge { queue: ShortStr::cut(name), no_wait: false });
    }

    pub fn confirm(&mut self, channel: SessionId) {
        self.call(channel, &confirm::Select { no_wait: false });
    }

    /// Begins transactions.
    pub fn select(&mut self, channel: SessionId) {
        self.call(channel, &tx::Select {});
    }

    pub fn commit(&mut self, channel: SessionId) {
        self.call(channel, &tx::Commit {});
    }

    pub fn roll_back(&mut self, channel: SessionId) {
        self.call(channel, &tx::Rollback {});
    }

    pub fn prefetch(&mut self, channel: SessionId, prefetch_count: u16) {
        self.call(channel, &basic::Qos { prefetch_size: 0, prefetch_count, global: false });
    }

    /// Of all consumers of the channel together.
    pub fn prefetch_all(&mut self, channel: SessionId, prefetch_count: u16) {
        self.call(channel, &basic::Qos { prefetch_size: 0, prefetch_count, global: true });
    }

    /// Publishes to the default exchange.
    pub fn publish(&mut self, channel: SessionId, queue: &str, body: &str, mandatory: bool) {
        self.publish_to(channel, ("", queue), &Properties::default(), body, mandatory);
    }

    /// Publishes to an exchange with a key.
    pub fn publish_to(
        &mut self,
        channel: SessionId,
        (exchange, routing_key): (&str, &str),
        properties: &Properties<'_>,
        body: &str,
        mandatory: bool,
    ) {
        let mut encoded = Vec::new();
        properties.encode(&mut encoded);
        let publication = Publication {
            exchange: ShortStr::cut(exchange),
            routing_key: ShortStr::cut(routing_key),
            properties: PropertyFields::new(&encoded),
            body: &[body.as_bytes()],
        };
        assert!(self.protocol.publish(channel, mandatory, &publication), "the channel is open");
    }

    /// Declares a queue that is durable, with the arguments of a table that is encoded.
    pub fn declare_durable(&mut self, channel: SessionId, name: &str, arguments: &[u8]) {
        let (queue, arguments) = (ShortStr::cut(name), Table::new(arguments));
        self.call(channel, &queue::Declare { queue, durable: true, arguments, ..declaration() });
    }

    pub fn declare_exchange(&mut self, channel: SessionId, name: &str, kind: &str, asked: ExchangeKind) {
        let (exchange, kind) = (ShortStr::cut(name), ShortStr::cut(kind));
        let ExchangeKind { durable, auto_delete, internal, passive, arguments } = asked;
        let (arguments, no_wait) = (Table::new(arguments), false);
        let declare =
            exchange::Declare { exchange, kind, passive, durable, auto_delete, internal, no_wait, arguments };
        self.call(channel, &declare);
    }

    pub fn delete_exchange(&mut self, channel: SessionId, name: &str, if_unused: bool) {
        let exchange = ShortStr::cut(name);
        self.call(channel, &exchange::Delete { exchange, if_unused, no_wait: false });
    }

    /// From the exchange to the other one.
    pub fn bind_exchange(&mut self, channel: SessionId, source: &str, destination: &str, key: &str) {
        let [source, destination, routing_key] = [source, destination, key].map(ShortStr::cut);
        let (no_wait, arguments) = (false, Table::default());
        self.call(channel, &exchange::Bind { destination, source, routing_key, no_wait, arguments });
    }

    pub fn bind(&mut self, channel: SessionId, queue: &str, (exchange, key): (&str, &str), arguments: &[u8]) {
        let [queue, exchange, routing_key] = [queue, exchange, key].map(ShortStr::cut);
        let (no_wait, arguments) = (false, Table::new(arguments));
        self.call(channel, &queue::Bind { queue, exchange, routing_key, no_wait, arguments });
    }

    pub fn unbind(&mut self, channel: SessionId, queue: &str, (exchange, key): (&str, &str)) {
        let [queue, exchange, routing_key] = [queue, exchange, key].map(ShortStr::cut);
        let arguments = Table::default();
        self.call(channel, &queue::Unbind { queue, exchange, routing_key, arguments });
    }

    pub fn consume(&mut self, channel: SessionId, name: &str, tag: &'static str, exclusive: bool) {
        self.call(channel, &basic::Consume { exclusive, ..consumer(name, tag) });
    }

    /// What is delivered needs no acknowledgement.
    pub fn consume_settled(&mut self, channel: SessionId, name: &str, tag: &'static str) {
        self.call(channel, &basic::Consume { no_ack: true, ..consumer(name, tag) });
    }

    /// With the arguments of a table that is encoded.
    pub fn consume_with(&mut self, channel: SessionId, name: &str, tag: &'static str, arguments: &[u8]) {
        self.call(channel, &basic::Consume { arguments: Table::new(arguments), ..consumer(name, tag) });
    }

    /// Asks for deliveries to stop, or to go on.
    pub fn flow(&mut self, channel: SessionId, active: bool) {
        self.call(channel, &channel::Flow { active });
    }

    pub fn cancel(&mut self, channel: SessionId, tag: &'static str) {
        let consumer_tag = ShortStr::literal(tag);
        self.call(channel, &basic::Cancel { consumer_tag, no_wait: false });
    }

    pub fn get(&mut self, channel: SessionId, name: &str) {
        self.call(channel, &basic::Get { queue: ShortStr::cut(name), no_ack: false });
    }

    pub fn ack(&mut self, channel: SessionId, delivery_tag: u64, multiple: bool) {
        self.call(channel, &basic::Ack { delivery_tag, multiple });
    }

    pub fn nack(&mut self, channel: SessionId, delivery_tag: u64, multiple: bool, requeue: bool) {
        self.call(channel, &basic::Nack { delivery_tag, multiple, requeue });
    }

    pub fn reject(&mut self, channel: SessionId, delivery_tag: u64, requeue: bool) {
        self.call(channel, &basic::Reject { delivery_tag, requeue });
    }

    pub fn recover(&mut self, channel: SessionId) {
        self.call(channel, &basic::Recover { requeue: true });
    }

    pub fn close_channel(&mut self, channel: SessionId) {
        self.protocol.close_channel(channel, None);
    }

    pub fn close(&mut self) {
        self.protocol.close(None);
    }

    /// What was seen since this was last asked.
    pub fn take_seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }

    fn call(&mut self, channel: SessionId, method: &impl Encode) {
        assert!(self.protocol.call(channel, method), "the channel is open");
    }
}

/// What an exchange is to be like.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExchangeKind<'a> {
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub passive: bool,
    /// An encoded table.
    pub arguments: &'a [u8],
}

fn declaration() -> queue::Declare<'static> {
    queue::Declare {
        queue: ShortStr::EMPTY,
        passive: false,
        durable: false,
        exclusive: false,
        auto_delete: false,
        no_wait: false,
        arguments: Table::default(),
    }
}

fn consumer<'a>(name: &'a str, tag: &'static str) -> basic::Consume<'a> {
    basic::Consume {
        queue: ShortStr::cut(name),
        consumer_tag: ShortStr::literal(tag),
        no_local: false,
        no_ack: false,
        exclusive: false,
        no_wait: false,
        arguments: Table::default(),
    }
}

fn show(method: &Method<'_>) -> String {
    match method {
        Method::Queue(queue::Method::DeclareOk(ok)) => {
            format!("declared {} {} {}", ok.queue, ok.message_count, ok.consumer_count)
        }
        Method::Queue(queue::Method::BindOk(_)) => "bound".to_owned(),
        Method::Queue(queue::Method::UnbindOk(_)) => "unbound".to_owned(),
        Method::Exchange(exchange::Method::DeclareOk(_)) => "exchange declared".to_owned(),
        Method::Exchange(exchange::Method::DeleteOk(_)) => "exchange deleted".to_owned(),
        Method::Exchange(exchange::Method::BindOk(_)) => "exchange bound".to_owned(),
        Method::Queue(queue::Method::PurgeOk(ok)) => format!("purged {}", ok.message_count),
        Method::Queue(queue::Method::DeleteOk(ok)) => format!("deleted {}", ok.message_count),
        Method::Basic(basic::Method::ConsumeOk(ok)) => format!("consuming {}", ok.consumer_tag),
        Method::Basic(basic::Method::CancelOk(ok)) => format!("cancelled {}", ok.consumer_tag),
        Method::Basic(basic::Method::Cancel(cancel)) => format!("cancel {}", cancel.consumer_tag),
        Method::Basic(basic::Method::GetEmpty(_)) => "nothing".to_owned(),
        Method::Basic(basic::Method::RecoverOk(_)) => "recovered".to_owned(),
        Method::Basic(basic::Method::Ack(ack)) => {
            format!("confirmed {}{}", ack.delivery_tag, if ack.multiple { " and before" } else { "" })
        }
        Method::Basic(basic::Method::Nack(nack)) => format!("refused {}", nack.delivery_tag),
        Method::Channel(channel::Method::OpenOk(_)) => "opened".to_owned(),
        Method::Channel(channel::Method::FlowOk(ok)) => format!("flow {}", ok.active),
        Method::Tx(tx::Method::SelectOk(_)) => "selected".to_owned(),
        Method::Tx(tx::Method::CommitOk(_)) => "committed".to_owned(),
        Method::Tx(tx::Method::RollbackOk(_)) => "rolled back".to_owned(),
        other => format!("{other:?}"),
    }
}

fn tag_of(delivery: &Delivery<'_>) -> Option<u64> {
    match delivery.kind {
        DeliveryKind::Delivered { delivery_tag, .. } | DeliveryKind::Got { delivery_tag, .. } => {
            Some(delivery_tag)
        }
        DeliveryKind::Returned { .. } => None,
    }
}

fn show_delivery(delivery: &Delivery<'_>) -> String {
    let body = String::from_utf8_lossy(delivery.payload.bytes());
    let again = |redelivered: bool| if redelivered { " again" } else { "" };
    match delivery.kind {
        DeliveryKind::Delivered { redelivered, .. } => {
            format!("{}: {body}{}", delivery.head.consumer_tag(), again(redelivered))
        }
        DeliveryKind::Got { redelivered, message_count, .. } => {
            format!("got {body}{}, {message_count} left", again(redelivered))
        }
        DeliveryKind::Returned { reply_code } => format!("returned {body}: {reply_code}"),
    }
}

/// A field table with these fields.
pub fn table(pairs: &[(&str, FieldValue<'_>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TableWriter::new(&mut bytes);
    for (name, value) in pairs {
        writer.pair(ShortStr::cut(name), *value);
    }
    bytes
}
