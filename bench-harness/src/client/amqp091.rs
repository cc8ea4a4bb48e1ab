//! How does the generator speak AMQP 0-9-1? One channel for each link: it publishes to one place, or has one consumer.
//!
//! Unsettled is with confirms on the one side, and with acknowledgements of many at once on the other; settled is without
//! either. A queue that is not there is declared, as a durable one, and stays there.

use std::sync::Arc;

use corelane_protocol::amqp091::{
    Config, Connection, DeliveryKind, Error, Event, Login, Payload, Publication,
};
use corelane_protocol::{LinkId, Progress, SendReadiness, SessionId, Token};
use corelane_wire::amqp091::{
    Encode, FieldValue, Method, PropertyFields, ReplyCode, ShortStr, Table, TableWriter, basic, channel,
    confirm, exchange, queue,
};

use super::confirms::Confirms;
use super::{ANSWER_US_MAX, FRAME_BYTES_MAX, Heard, OUTPUT_BYTES, Receiver, broken, is_hang_up, pause, send};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::message::Template;
use crate::socket::Socket;
use crate::url::Url;

/// Messages of a channel without a confirm. 0-9-1 has no credit, so that the publisher stops by itself.
const UNCONFIRMED_MAX: usize = 10_000;
/// Deliveries that are acknowledged together, at most.
const ACK_BATCH: u32 = 64;
/// The first byte of a method frame (§2.3.5).
const FRAME_METHOD: u8 = 1;
/// The user that brokers know on the same machine.
const GUEST: &str = "guest";

/// A connection to the broker.
pub struct Client091 {
    pub connection: Connection,
    socket: Socket,
    clock: Clock,
    peer: String,
    /// By the channel's number.
    channels: Vec<Option<Channel>>,
    /// Deliveries of all channels that are not acknowledged.
    unacked: u32,
    /// A frame has come: whoever is there speaks 0-9-1.
    spoke: bool,
}

enum Channel {
    /// For questions only.
    Plain,
    Publisher {
        exchange: Box<[u8]>,
        routing_key: Box<[u8]>,
        confirms: Option<Confirms>,
    },
    Consumer(Consumer),
}

struct Consumer {
    queue: Box<[u8]>,
    no_ack: bool,
    /// What comes is not acknowledged at all, and goes back with the channel.
    browses: bool,
    /// `basic.consume` is sent.
    consumes: bool,
    /// Of those that are not acknowledged, the last one's tag, and how many there are.
    last_tag: u64,
    unacked: u32,
    batch: u32,
}

impl Client091 {
    pub fn connect(url: &Url, clock: Clock) -> Result<Client091, BenchError> {
        let unreachable = |error| BenchError::Unreachable { url: url.to_string(), error };
        let socket =
            url.addresses().and_then(|addresses| Socket::connect(&addresses)).map_err(unreachable)?;
        let mut connection = Connection::client(Arc::new(config(url)), clock.now_us());
        connection.output().reserve(OUTPUT_BYTES);
        let peer = url.to_string();
        let mut client =
            Client091 { connection, socket, clock, peer, channels: Vec::new(), unacked: 0, spoke: false };
        let with_password = url.credentials.is_some();
        let opened = client.wait_for("its open-ok", |peer, event| match event {
            Event::Opened { .. } => Ok(true),
            Event::Closed { error: Some(error) } if error.reply_code == ReplyCode::AccessRefused.code() => {
                Err(BenchError::LoginRefused { peer: peer.to_owned(), with_password })
            }
            event => pass(peer, &event).map(|()| false),
        });
        match opened {
            // Who is not let in may just find the socket closed.
            Err(BenchError::Closed { peer, reason: None }) if client.spoke => {
                Err(BenchError::LoginRefused { peer, with_password })
            }
            opened => opened.map(|()| client),
        }
    }

    /// A channel that publishes to a queue.
    pub fn open_sender(&mut self, queue: &str, settled: bool) -> Result<LinkId, BenchError> {
        self.ensure_queue(queue)?;
        self.open_publisher("", queue, settled)
    }

    /// A channel that publishes to an exchange.
    pub fn open_publisher(&mut self, to: &str, key: &str, settled: bool) -> Result<LinkId, BenchError> {
        let session = self.open_channel()?;
        if !settled {
            self.call(session, to, &confirm::Select { no_wait: false })?;
        }
        let confirms = (!settled).then(Confirms::new);
        let (exchange, routing_key) = (to.as_bytes().into(), key.as_bytes().into());
        Ok(self.keep(session, Channel::Publisher { exchange, routing_key, confirms }))
    }

    /// A channel that consumes from a queue.
    pub fn open_receiver(&mut self, queue: &str, receiver: &Receiver<'_>) -> Result<LinkId, BenchError> {
        self.ensure_queue(queue)?;
        self.open_consumer(queue, receiver)
    }

    /// The same from a queue that is there.
    pub fn open_consumer(&mut self, queue: &str, receiver: &Receiver<'_>) -> Result<LinkId, BenchError> {
        let session = self.open_channel()?;
        let consumer = Consumer {
            queue: short(queue)?.as_bytes().into(),
            no_ack: receiver.settled && !receiver.browses,
            browses: receiver.browses,
            consumes: false,
            last_tag: 0,
            unacked: 0,
            batch: 1,
        };
        let link = self.keep(session, Channel::Consumer(consumer));
        if receiver.window > 0 {
            self.renew(link, receiver.window);
            self.flush()?;
        }
        Ok(link)
    }

    /// A channel for [`call`](Self::call).
    pub fn open_plain(&mut self) -> Result<LinkId, BenchError> {
        let session = self.open_channel()?;
        Ok(self.keep(session, Channel::Plain))
    }

    /// Declares a queue, durable or for this connection only, and waits for the answer.
    pub fn declare(&mut self, link: LinkId, name: &str, exclusive: bool) -> Result<(), BenchError> {
        let declare =
            queue::Declare { queue: short(name)?, durable: !exclusive, exclusive, ..Default::default() };
        self.call(SessionId(link.0), name, &declare)
    }

    pub fn delete(&mut self, link: LinkId, name: &str) -> Result<(), BenchError> {
        self.call(SessionId(link.0), name, &queue::Delete { queue: short(name)?, ..Default::default() })
    }

    /// Declares an exchange that goes when nothing is bound to it any more.
    pub fn declare_exchange(&mut self, link: LinkId, name: &str, kind: &str) -> Result<(), BenchError> {
        let declare = exchange::Declare {
            exchange: short(name)?,
            kind: short(kind)?,
            auto_delete: true,
            ..Default::default()
        };
        self.call(SessionId(link.0), name, &declare)
    }

    /// Binds a queue; `header` is a header and the value that messages need to have.
    pub fn bind(
        &mut self,
        link: LinkId,
        from: &str,
        key: &str,
        to: &str,
        header: Option<(&str, &str)>,
    ) -> Result<(), BenchError> {
        let mut arguments = Vec::new();
        if let Some((name, value)) = header {
            let mut table = TableWriter::new(&mut arguments);
            table.pair(short("x-match")?, FieldValue::LongString(b"all"));
            table.pair(short(name)?, FieldValue::LongString(value.as_bytes()));
        }
        let bind = queue::Bind {
            queue: short(to)?,
            exchange: short(from)?,
            routing_key: short(key)?,
            no_wait: false,
            arguments: Table::new(&arguments),
        };
        self.call(SessionId(link.0), to, &bind)
    }

    /// Calls a method and waits for its answer. `about` is what it is done to.
    fn call(&mut self, session: SessionId, about: &str, method: &impl Encode) -> Result<(), BenchError> {
        self.connection.call(session, method);
        self.wait_for("an answer on its channel", |peer, event| match event {
            Event::Answered { session: answered, method } if answered == session => {
                Ok(!matches!(method, Method::Basic(basic::Method::Ack(_) | basic::Method::Nack(_))))
            }
            Event::Ended { session: ended, error } if ended == session => Err(refused(about, error.as_ref())),
            event => pass(peer, &event).map(|()| false),
        })
    }

    /// Declares a queue, unless there is one by this name, whatever its properties.
    fn ensure_queue(&mut self, name: &str) -> Result<(), BenchError> {
        let session = self.open_channel()?;
        let passive = queue::Declare { queue: short(name)?, passive: true, ..Default::default() };
        self.connection.call(session, &passive);
        let mut missing = false;
        self.wait_for("its declare-ok", |peer, event| match event {
            Event::Answered { session: answered, .. } if answered == session => Ok(true),
            Event::Ended { session: ended, error: Some(error) } if ended == session => {
                missing = error.reply_code == ReplyCode::NotFound.code();
                if missing { Ok(true) } else { Err(refused(name, Some(&error))) }
            }
            event => pass(peer, &event).map(|()| false),
        })?;
        let mut link = LinkId(session.0);
        if missing {
            link = self.open_plain()?;
            self.declare(link, name, false)?;
        }
        self.close_channel(link)
    }

    fn open_channel(&mut self) -> Result<SessionId, BenchError> {
        let no_channel = BenchError::NoAnswer { peer: self.peer.clone(), awaited: "a free channel" };
        let session = self.connection.open_channel().ok_or(no_channel)?;
        self.wait_for("its open-ok", |peer, event| match event {
            Event::Answered { session: opened, method: Method::Channel(channel::Method::OpenOk(_)) } => {
                Ok(opened == session)
            }
            event => pass(peer, &event).map(|()| false),
        })?;
        Ok(session)
    }

    /// Closes a channel and waits for the answer: what it had without an acknowledgement goes back.
    pub fn close_channel(&mut self, link: LinkId) -> Result<(), BenchError> {
        self.flush()?;
        let session = SessionId(link.0);
        if let Some(Some(Channel::Consumer(consumer))) = self.channels.get(link.0 as usize) {
            self.unacked -= consumer.unacked;
        }
        if let Some(channel) = self.channels.get_mut(link.0 as usize) {
            *channel = None;
        }
        self.connection.close_channel(session, None);
        self.wait_for("its close-ok", |peer, event| match event {
            Event::Ended { session: ended, .. } if ended == session => Ok(true),
            event => pass(peer, &event).map(|()| false),
        })
    }

    fn keep(&mut self, session: SessionId, channel: Channel) -> LinkId {
        let number = session.0 as usize;
        if self.channels.len() <= number {
            self.channels.resize_with(number + 1, || None);
        }
        self.channels[number] = Some(channel);
        LinkId(session.0)
    }

    #[inline]
    pub(super) fn can_send(&self, link: LinkId) -> bool {
        match self.channels.get(link.0 as usize) {
            Some(Some(Channel::Publisher { confirms, .. })) => {
                confirms.as_ref().is_none_or(|confirms| confirms.len() < UNCONFIRMED_MAX)
            }
            Some(_) | None => false,
        }
    }

    #[inline]
    pub(super) fn write(&mut self, link: LinkId, template: &Template, token: Token) -> Progress {
        let Some(Some(Channel::Publisher { exchange, routing_key, confirms })) =
            self.channels.get_mut(link.0 as usize)
        else {
            return Progress::NotReady(SendReadiness::Detached);
        };
        let message = Publication {
            exchange: ShortStr::new(exchange).unwrap_or_default(),
            routing_key: ShortStr::new(template.key().unwrap_or(routing_key)).unwrap_or_default(),
            properties: PropertyFields::new(template.properties()),
            body: &[template.body()],
        };
        if !self.connection.publish(SessionId(link.0), false, &message) {
            return Progress::NotReady(SendReadiness::Detached);
        }
        if let Some(confirms) = confirms {
            confirms.push(token);
        }
        Progress::Complete { delivery_id: 0, settled: confirms.is_none() }
    }

    /// Reads once. Messages are noted to be acknowledged, confirms told one by one.
    #[inline]
    pub(super) fn hear(
        &mut self,
        mut handle: impl FnMut(Heard<'_>) -> Result<(), BenchError>,
    ) -> Result<usize, BenchError> {
        let count = self.socket.fill().map_err(|error| broken(&self.peer, error))?;
        if count == 0 {
            return Ok(0);
        }
        let now = self.clock.now_us();
        let mut input = self.socket.unread();
        let size = input.len();
        while let Some(event) = self.connection.receive(now, &mut input) {
            match event {
                Event::Delivery(delivery) => {
                    if let DeliveryKind::Delivered { delivery_tag, .. } = delivery.kind
                        && let Some(Some(Channel::Consumer(consumer))) =
                            self.channels.get_mut(delivery.session.0 as usize)
                    {
                        let (link, settled) = (LinkId(delivery.session.0), consumer.no_ack);
                        handle(Heard::Message { link, bytes: delivery.payload.bytes(), settled })?;
                        self.unacked += u32::from(!settled);
                        consumer.unacked += u32::from(!settled);
                        consumer.last_tag = delivery_tag;
                    }
                    self.connection.recycle_head(delivery.head);
                    if let Payload::Assembled(buffer) = delivery.payload {
                        self.connection.recycle(buffer);
                    }
                }
                Event::Answered { session, method: Method::Basic(basic::Method::Ack(ack)) } => {
                    let (tag, multiple) = (ack.delivery_tag, ack.multiple);
                    confirm(&mut self.channels, session, (tag, multiple, true), &mut handle)?;
                }
                Event::Answered { session, method: Method::Basic(basic::Method::Nack(nack)) } => {
                    let (tag, multiple) = (nack.delivery_tag, nack.multiple);
                    confirm(&mut self.channels, session, (tag, multiple, false), &mut handle)?;
                }
                event => pass("the broker", &event)?,
            }
        }
        let left = input.len();
        self.socket.consume(size - left);
        Ok(count)
    }

    /// Acknowledges what has come, if that is enough. The first time, it begins to consume.
    #[inline]
    pub(super) fn renew(&mut self, link: LinkId, window: u32) -> bool {
        let Some(Some(Channel::Consumer(consumer))) = self.channels.get_mut(link.0 as usize) else {
            return false;
        };
        if !consumer.consumes {
            consume(&mut self.connection, SessionId(link.0), consumer, window);
            return true;
        }
        let is_due = !consumer.browses && consumer.unacked >= consumer.batch;
        if is_due {
            self.unacked -= acknowledge(&mut self.connection, link.0, consumer);
        }
        is_due
    }

    /// Acknowledges everything that has come, but what is browsed, and sends what the socket takes. Whether that is all.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, BenchError> {
        if self.unacked > 0 {
            for (number, channel) in self.channels.iter_mut().enumerate() {
                if let Some(Channel::Consumer(consumer)) = channel
                    && !consumer.browses
                {
                    self.unacked -= acknowledge(&mut self.connection, number as u32, consumer);
                }
            }
        }
        self.connection.finish_turn(self.clock.now_us());
        self.send()
    }

    /// Sends what is written. Whether that is all.
    #[inline]
    pub fn send(&mut self) -> Result<bool, BenchError> {
        send(&mut self.socket, self.connection.output()).map_err(|error| broken(&self.peer, error))
    }

    /// Nothing waits for the socket.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.socket.is_flushed()
    }

    /// Says goodbye and waits for the answer, but not for long: nothing here depends on it.
    pub fn close(mut self) {
        if self.flush().is_ok() {
            self.connection.close(None);
            let _ = self.wait_for("its close-ok", |_, event| Ok(matches!(event, Event::Closed { .. })));
        }
    }

    fn wait_for(
        &mut self,
        awaited: &'static str,
        mut is_it: impl FnMut(&str, Event<'_>) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let begun = self.clock.now_us();
        let deadline = begun + ANSWER_US_MAX;
        loop {
            match self.look(&mut is_it) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(BenchError::Broken { error, .. }) if is_hang_up(&error) => {
                    return Err(BenchError::Closed { peer: self.peer.clone(), reason: None });
                }
                Err(error) => return Err(error),
            }
            if self.clock.now_us() >= deadline {
                return Err(BenchError::NoAnswer { peer: self.peer.clone(), awaited });
            }
            pause(self.clock, begun);
        }
    }

    /// Sends, and looks once at what has come. Whether `is_it` was among that.
    fn look(
        &mut self,
        is_it: &mut impl FnMut(&str, Event<'_>) -> Result<bool, BenchError>,
    ) -> Result<bool, BenchError> {
        self.connection.finish_turn(self.clock.now_us());
        self.send()?;
        self.socket.fill().map_err(|error| broken(&self.peer, error))?;
        let mut input = self.socket.unread();
        let size = input.len();
        self.spoke |= input.first() == Some(&FRAME_METHOD);
        let mut found = false;
        while !found && let Some(event) = self.connection.receive(self.clock.now_us(), &mut input) {
            found |= is_it(&self.peer, event)?;
        }
        let left = input.len();
        self.socket.consume(size - left);
        Ok(found)
    }
}

/// What a confirm is for, told one by one.
#[inline]
fn confirm(
    channels: &mut [Option<Channel>],
    session: SessionId,
    (tag, multiple, accepted): (u64, bool, bool),
    handle: &mut impl FnMut(Heard<'_>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut told = Ok(());
    if let Some(Some(Channel::Publisher { confirms: Some(confirms), .. })) =
        channels.get_mut(session.0 as usize)
    {
        confirms.take(tag, multiple, |token| {
            let heard = handle(Heard::Outcome { link: LinkId(session.0), token, accepted });
            if told.is_ok() {
                told = heard;
            }
        });
    }
    told
}

/// Nobody waits for the answers: what comes behind them is not to be passed over.
fn consume(connection: &mut Connection, session: SessionId, consumer: &mut Consumer, window: u32) {
    consumer.consumes = true;
    consumer.batch = (window / 2).clamp(1, ACK_BATCH);
    if !consumer.no_ack && !consumer.browses {
        let prefetch_count = window.min(u16::MAX.into()) as u16;
        connection.call(session, &basic::Qos { prefetch_size: 0, prefetch_count, global: false });
    }
    let consume = basic::Consume {
        queue: ShortStr::new(&consumer.queue).unwrap_or_default(),
        consumer_tag: ShortStr::literal("bench"),
        no_ack: consumer.no_ack,
        no_wait: true,
        ..Default::default()
    };
    connection.call(session, &consume);
}

/// How many that were.
#[inline]
fn acknowledge(connection: &mut Connection, number: u32, consumer: &mut Consumer) -> u32 {
    let count = std::mem::take(&mut consumer.unacked);
    if count > 0 {
        let ack = basic::Ack { delivery_tag: consumer.last_tag, multiple: count > 1 };
        connection.call(SessionId(number), &ack);
    }
    count
}

/// Lets events go by that say nothing about a measurement; an end of something is an error.
#[inline]
fn pass(peer: &str, event: &Event<'_>) -> Result<(), BenchError> {
    let closed = |reason| Err(BenchError::Closed { peer: peer.to_owned(), reason });
    match event {
        Event::Ended { error, .. } | Event::Closed { error } => closed(error.as_ref().map(show)),
        Event::Answered { method: Method::Basic(basic::Method::Cancel(_)), .. } => {
            closed(Some("it has cancelled the consumer".to_owned()))
        }
        _ => Ok(()),
    }
}

fn refused(queue: &str, error: Option<&Error<'_>>) -> BenchError {
    let reason = error.map_or("no reason was given".to_owned(), show);
    BenchError::QueueRefused { queue: queue.to_owned(), reason }
}

fn show(error: &Error<'_>) -> String {
    format!("{} ({})", String::from_utf8_lossy(&error.text), error.reply_code)
}

fn short(name: &str) -> Result<ShortStr<'_>, BenchError> {
    let too_long = || BenchError::QueueRefused {
        queue: name.to_owned(),
        reason: "0-9-1 has names of 255 bytes at most".to_owned(),
    };
    ShortStr::new(name.as_bytes()).ok_or_else(too_long)
}

fn config(url: &Url) -> Config {
    let (user, password) = match &url.credentials {
        Some((user, password)) => (user.as_str().into(), password.as_str().into()),
        None => (GUEST.into(), GUEST.into()),
    };
    Config {
        properties: vec![("product".into(), "corelane-bench".into())],
        login: Login::Plain { user, password },
        virtual_host: url.virtual_host.as_deref().unwrap_or("/").into(),
        frame_max: FRAME_BYTES_MAX,
        heartbeat: 0,
        ..Config::default()
    }
}
