//! How does the generator speak AMQP 1.0? One session, and links that are named after their queues.

use std::sync::Arc;

use corelane_protocol::amqp10::{
    AttachRequest, Config, Connection, Event, LinkId, Outgoing, Payload, Progress, Sasl, SendReadiness,
    SessionId, Token,
};
use corelane_wire::amqp10::{
    Attach, DeliveryState, DistributionMode, Encode, Error, Map, MapWriter, ReceiverSettleMode, SaslCode,
    SenderSettleMode, Source, Symbols, Target, TargetArchetype, Value,
};

use super::{ANSWER_US_MAX, FRAME_BYTES_MAX, Heard, OUTPUT_BYTES, Receiver, broken, is_hang_up, pause, send};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::message::Template;
use crate::socket::Socket;
use crate::url::Url;

/// Frames that the broker may send before we renew its window: never what limits a measurement.
const INCOMING_WINDOW: u32 = 1 << 16;

/// A connection to the broker with one session.
pub struct Client10 {
    pub connection: Connection,
    socket: Socket,
    clock: Clock,
    session: SessionId,
    peer: String,
    /// Links that were attached, which have their names from that.
    attached: u32,
}

/// Which end of a link we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Sender,
    Receiver,
}

impl Client10 {
    /// Connects, logs in, opens the connection and begins a session.
    pub fn connect(url: &Url, clock: Clock) -> Result<Client10, BenchError> {
        let unreachable = |error| BenchError::Unreachable { url: url.to_string(), error };
        let socket =
            url.addresses().and_then(|addresses| Socket::connect(&addresses)).map_err(unreachable)?;
        let mut connection = Connection::client(Arc::new(config(url)), clock.now_us());
        connection.output().reserve(OUTPUT_BYTES);
        let peer = url.to_string();
        let mut client = Client10 { connection, socket, clock, session: SessionId(0), peer, attached: 0 };
        let with_password = url.credentials.is_some();
        client.wait_for("its open", |peer, event| match event {
            Event::Opened(_) => Ok(true),
            Event::SaslOutcome { code, .. } if code != SaslCode::Ok => {
                Err(BenchError::LoginRefused { peer: peer.to_owned(), with_password })
            }
            event => pass(peer, &event).map(|()| false),
        })?;
        client.session = client.begin()?;
        Ok(client)
    }

    /// Begins a session and waits for the answer.
    pub fn begin(&mut self) -> Result<SessionId, BenchError> {
        let no_session = BenchError::NoAnswer { peer: self.peer.clone(), awaited: "a session" };
        let session = self.connection.begin().ok_or(no_session)?;
        self.wait_for("its begin", |peer, event| match event {
            Event::SessionBegun { .. } => Ok(true),
            event => pass(peer, &event).map(|()| false),
        })?;
        Ok(session)
    }

    /// Ends a session and waits for the answer.
    pub fn end(&mut self, session: SessionId) -> Result<(), BenchError> {
        self.connection.end(session, None);
        self.wait_for("its end", |peer, event| match event {
            Event::Ended { .. } => Ok(true),
            event => pass(peer, &event).map(|()| false),
        })
    }

    /// What the last link that was attached is called.
    pub fn last_name(&self) -> String {
        format!("bench-{}", self.attached)
    }

    /// Attaches a link to a queue and waits for the answer. One that receives has no credit.
    pub fn attach(&mut self, queue: &str, end: End, settled: bool) -> Result<LinkId, BenchError> {
        let receiver = Receiver { settled, ..Receiver::default() };
        self.attach_as(queue, end, &receiver)
    }

    /// Attaches a link that receives, and gives it its credit.
    pub fn open_receiver(&mut self, queue: &str, receiver: &Receiver<'_>) -> Result<LinkId, BenchError> {
        let link = self.attach_as(queue, End::Receiver, receiver)?;
        if receiver.window > 0 {
            self.connection.grant_credit(link, receiver.window, false);
            self.flush()?;
        }
        Ok(link)
    }

    /// A sender to wherever each message says, as far as the broker has that.
    pub fn attach_relay(&mut self, settled: bool) -> Result<LinkId, BenchError> {
        self.attach("", End::Sender, settled)
    }

    fn attach_as(&mut self, queue: &str, end: End, terms: &Receiver<'_>) -> Result<LinkId, BenchError> {
        let no_link = BenchError::NoAnswer { peer: self.peer.clone(), awaited: "a free link" };
        self.attached += 1;
        let filter = terms.selector.map(selector_filter);
        let source = Source {
            // No address: a queue of its own.
            address: Some(queue).filter(|queue| end == End::Receiver && !queue.is_empty()),
            dynamic: end == End::Receiver && queue.is_empty(),
            distribution_mode: terms.browses.then_some(DistributionMode::Copy),
            filter: filter.as_deref().and_then(|filter| Map::decode(filter).ok()),
            ..Source::default()
        };
        // No address: each message says where it goes.
        let far = Some(queue).filter(|queue| end == End::Sender && !queue.is_empty());
        let mode = if terms.settled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let request = AttachRequest {
            name: &self.last_name(),
            source: Some(source),
            target: Some(TargetArchetype::Target(Target { address: far, ..Target::default() })),
            sender_settle_mode: mode,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let link = match end {
            End::Sender => self.connection.attach_sender(self.session, &request),
            End::Receiver => self.connection.attach_receiver(self.session, &request),
        };
        let link = link.ok_or(no_link)?;
        self.wait_for("its attach", |peer, event| match event {
            // AMQP 1.0 §2.6.3: an attach without a terminus is a refusal, and a detach with the reason follows.
            Event::AttachConfirmed { attach, .. } => Ok(!is_refusal(&attach, end)),
            Event::Detached { error, .. } => {
                let reason = error.map_or("no reason was given".to_owned(), show);
                Err(BenchError::QueueRefused { queue: queue.to_owned(), reason })
            }
            event => pass(peer, &event).map(|()| false),
        })?;
        Ok(link)
    }

    /// Detaches a link for good and waits for the answer.
    pub fn detach(&mut self, link: LinkId) -> Result<(), BenchError> {
        self.flush()?;
        self.connection.detach(link, true, None);
        self.wait_for("its detach", |peer, event| match event {
            Event::Detached { link: detached, .. } if detached == link => Ok(true),
            event => pass(peer, &event).map(|()| false),
        })
    }

    #[inline]
    pub(super) fn can_send(&self, link: LinkId) -> bool {
        self.connection.can_send(link) == SendReadiness::Ready
    }

    #[inline]
    pub(super) fn write(
        &mut self,
        link: LinkId,
        template: &Template,
        settled: bool,
        token: Token,
    ) -> Progress {
        let rest = template.bytes();
        self.connection.send(link, &Outgoing { token, settled, message_format: 0, head: &[], rest })
    }

    /// Reads once. Messages are accepted, outcomes told one by one.
    #[inline]
    pub(super) fn hear(
        &mut self,
        mut handle: impl FnMut(Heard<'_>) -> Result<(), BenchError>,
    ) -> Result<usize, BenchError> {
        self.receive(|connection, event| match event {
            Event::Message(message) => {
                let (link, settled) = (message.link, message.settled);
                handle(Heard::Message { link, bytes: message.payload.bytes(), settled })?;
                if !settled {
                    connection.settle(link, message.delivery_id, &DeliveryState::Accepted);
                }
                if let Payload::Assembled(buffer) = message.payload {
                    connection.recycle(buffer);
                }
                Ok(())
            }
            Event::Disposition { state, .. } => {
                let accepted = matches!(state, Some(DeliveryState::Accepted));
                while let Some(disposed) = connection.poll_outcome() {
                    if !disposed.settled {
                        connection.settle_sent(disposed.link, disposed.delivery_id, None);
                    }
                    handle(Heard::Outcome { link: disposed.link, token: disposed.token, accepted })?;
                }
                Ok(())
            }
            event => pass("the broker", &event),
        })
    }

    #[inline]
    pub(super) fn renew(&mut self, link: LinkId, window: u32) -> bool {
        let low = self.connection.credit(link) <= window / 2;
        if low {
            self.connection.grant_credit(link, window, false);
        }
        low
    }

    /// Reads once and gives each event to `handle`. How many bytes came.
    #[inline]
    pub fn receive(
        &mut self,
        mut handle: impl FnMut(&mut Connection, Event<'_>) -> Result<(), BenchError>,
    ) -> Result<usize, BenchError> {
        let count = self.socket.fill().map_err(|error| broken(&self.peer, error))?;
        if count > 0 {
            let now = self.clock.now_us();
            let mut input = self.socket.unread();
            let size = input.len();
            while let Some(event) = self.connection.receive(now, &mut input) {
                handle(&mut self.connection, event)?;
            }
            let left = input.len();
            self.socket.consume(size - left);
        }
        Ok(count)
    }

    /// Writes what the protocol gathered, and sends what the socket takes. Whether that is all.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, BenchError> {
        self.connection.finish_turn(self.clock.now_us());
        self.send()
    }

    /// Sends what is written, dispositions that gather aside. Whether that is all.
    #[inline]
    pub fn send(&mut self) -> Result<bool, BenchError> {
        send(&mut self.socket, self.connection.output()).map_err(|error| broken(&self.peer, error))
    }

    /// Nothing waits for the socket.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.socket.is_flushed()
    }

    /// How the peer is called in messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Says goodbye and waits for the answers, but not for long: nothing here depends on it. The session ends first, so that the broker
    /// has taken all that was settled in it: what it takes for unsettled it would give to the next one.
    pub fn close(mut self) {
        let deadline = self.clock.now_us() + ANSWER_US_MAX / 10;
        if self.flush().is_err() {
            return;
        }
        self.connection.end(self.session, None);
        if self.goes_on_until(deadline, |event| matches!(event, Event::Ended { .. } | Event::Closed { .. })) {
            self.connection.close(None);
            self.goes_on_until(deadline, |event| matches!(event, Event::Closed { .. }));
        }
    }

    /// Waits for an event, whatever comes before it. False: it did not come.
    fn goes_on_until(&mut self, deadline_us: u64, mut is_it: impl FnMut(&Event<'_>) -> bool) -> bool {
        let mut found = false;
        while self.clock.now_us() < deadline_us {
            let received = self.receive(|_, event| {
                found |= is_it(&event);
                Ok(())
            });
            if found || received.is_err() || self.send().is_err() {
                return found;
            }
            std::thread::sleep(super::ANSWER_POLL);
        }
        false
    }

    fn wait_for(
        &mut self,
        awaited: &'static str,
        mut is_it: impl FnMut(&str, Event<'_>) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let begun = self.clock.now_us();
        let deadline = begun + ANSWER_US_MAX;
        let peer = self.peer.clone();
        let mut found = false;
        loop {
            let received = self.flush().and_then(|_| {
                self.receive(|_, event| {
                    found |= is_it(&peer, event)?;
                    Ok(())
                })
            });
            match received {
                Err(BenchError::Broken { error, .. }) if is_hang_up(&error) => {
                    return Err(BenchError::Closed { peer, reason: None });
                }
                received => drop(received?),
            }
            if found {
                return Ok(());
            }
            if self.clock.now_us() >= deadline {
                return Err(BenchError::NoAnswer { peer, awaited });
            }
            pause(self.clock, begun);
        }
    }
}

/// Lets events go by that say nothing about a measurement; an end of something is an error.
#[inline]
pub fn pass(peer: &str, event: &Event<'_>) -> Result<(), BenchError> {
    match event {
        Event::Detached { error, .. } | Event::Ended { error, .. } | Event::Closed { error } => {
            Err(BenchError::Closed { peer: peer.to_owned(), reason: error.map(show) })
        }
        Event::SaslInit { .. }
        | Event::SaslResponse(_)
        | Event::SaslMechanisms(_)
        | Event::SaslChallenge(_)
        | Event::SaslOutcome { .. }
        | Event::Opened(_)
        | Event::SessionBegun { .. }
        | Event::Attached { .. }
        | Event::AttachConfirmed { .. }
        | Event::LinkFlow { .. }
        | Event::SessionFlow { .. }
        | Event::Message(_)
        | Event::Disposition { .. } => Ok(()),
    }
}

fn is_refusal(attach: &Attach<'_>, end: End) -> bool {
    match end {
        End::Sender => attach.target.is_none(),
        End::Receiver => attach.source.is_none(),
    }
}

fn show(error: Error<'_>) -> String {
    match error.description {
        Some(description) if !description.is_empty() => format!("{description} ({})", error.condition),
        Some(_) | None => error.condition.to_owned(),
    }
}

/// The filter set of a JMS selector: `apache.org:selector-filter:string`, a described string.
fn selector_filter(selector: &str) -> Vec<u8> {
    struct Filter<'a>(&'a str);
    impl Encode for Filter<'_> {
        fn encode(&self, out: &mut Vec<u8>) {
            // AMQP 1.0 §1.2: a constructor of a described value; the code is the filters registry's.
            out.push(0x00);
            Value::Ulong(0x0000_468C_0000_0004).encode(out);
            Value::String(self.0).encode(out);
        }
    }
    let mut bytes = Vec::new();
    let mut map = MapWriter::new(&mut bytes);
    map.symbol("apache.org:selector-filter:string", &Filter(selector));
    map.finish();
    bytes
}

fn config(url: &Url) -> Config {
    let sasl = match &url.credentials {
        Some((user, password)) => {
            Sasl::Plain { user: user.as_str().into(), password: password.as_str().into() }
        }
        None => Sasl::Anonymous { trace: "".into() },
    };
    Config {
        container_id: format!("corelane-bench-{}", std::process::id()).into(),
        // As RabbitMQ names a virtual host.
        hostname: Some(match &url.virtual_host {
            Some(name) => format!("vhost:{name}").into(),
            None => url.host.as_str().into(),
        }),
        max_frame_size: FRAME_BYTES_MAX,
        idle_timeout_us: None,
        incoming_window: INCOMING_WINDOW,
        max_message_size: 0,
        burst_size_max: FRAME_BYTES_MAX as usize,
        sasl,
        ..Config::default()
    }
}
