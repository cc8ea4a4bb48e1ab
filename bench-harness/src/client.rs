//! How does the generator speak AMQP 1.0? The protocol's client role over a socket that never blocks.
//!
//! Setting up may wait and allocate; [`Client::receive`] and [`Client::flush`] do neither.
//! Left out: reconnecting, TLS, SCRAM.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_protocol::amqp10::{AttachRequest, Config, Connection, Event, LinkId, Sasl, SessionId};
use corelane_wire::amqp10::{
    Attach, Error, ReceiverSettleMode, SaslCode, SenderSettleMode, Source, Symbols, Target, TargetArchetype,
};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::socket::Socket;
use crate::url::Url;

/// How long the broker may take for an answer that needs nothing but itself.
const ANSWER_US_MAX: u64 = 10_000_000;
/// How often it is looked for meanwhile.
const ANSWER_POLL: Duration = Duration::from_micros(50);
/// Largest frame that we take.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// Room for what is written between two sends.
const OUTPUT_BYTES: usize = 256 << 10;
/// Frames that the broker may send before we renew its window: never what limits a measurement.
const INCOMING_WINDOW: u32 = 1 << 16;

/// A connection to the broker with one session.
pub struct Client {
    pub connection: Connection,
    socket: Socket,
    clock: Clock,
    session: SessionId,
    peer: String,
}

/// Which end of a link we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Sender,
    Receiver,
}

impl Client {
    /// Connects, logs in, opens the connection and begins a session.
    pub fn connect(url: &Url, clock: Clock) -> Result<Client, BenchError> {
        let unreachable = |error| BenchError::Unreachable { url: url.to_string(), error };
        let socket =
            url.addresses().and_then(|addresses| Socket::connect(&addresses)).map_err(unreachable)?;
        let mut connection = Connection::client(Arc::new(config(url)), clock.now_us());
        connection.output().reserve(OUTPUT_BYTES);
        let mut client = Client { connection, socket, clock, session: SessionId(0), peer: url.to_string() };
        let with_password = url.credentials.is_some();
        client.wait_for("its open", |peer, event| match event {
            Event::Opened(_) => Ok(true),
            Event::SaslOutcome { code, .. } if code != SaslCode::Ok => {
                Err(BenchError::LoginRefused { peer: peer.to_owned(), with_password })
            }
            event => pass(peer, &event).map(|()| false),
        })?;
        let no_session = BenchError::NoAnswer { peer: client.peer.clone(), awaited: "a session" };
        client.session = client.connection.begin().ok_or(no_session)?;
        client.wait_for("its begin", |peer, event| match event {
            Event::SessionBegun { .. } => Ok(true),
            event => pass(peer, &event).map(|()| false),
        })?;
        Ok(client)
    }

    /// What a link to a queue is called.
    pub fn name_of(queue: &str, end: End) -> String {
        let kind = if end == End::Sender { "sender" } else { "receiver" };
        format!("bench-{kind}-{queue}")
    }

    /// Attaches a link to a queue and waits for the answer.
    pub fn attach(&mut self, queue: &str, end: End, settled: bool) -> Result<LinkId, BenchError> {
        let no_link = BenchError::NoAnswer { peer: self.peer.clone(), awaited: "a free link" };
        let own = Some(queue).filter(|_| end == End::Receiver);
        let far = Some(queue).filter(|_| end == End::Sender);
        let request = AttachRequest {
            name: &Client::name_of(queue, end),
            source: Some(Source { address: own, ..Source::default() }),
            target: Some(TargetArchetype::Target(Target { address: far, ..Target::default() })),
            sender_settle_mode: if settled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled },
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
        let sent = self.socket.flush().map_err(|error| broken(&self.peer, error))?;
        if !sent || self.connection.output().is_empty() {
            return Ok(sent);
        }
        std::mem::swap(self.socket.outbox(), self.connection.output());
        self.socket.flush().map_err(|error| broken(&self.peer, error))
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
            std::thread::sleep(ANSWER_POLL);
        }
        false
    }

    fn wait_for(
        &mut self,
        awaited: &'static str,
        mut is_it: impl FnMut(&str, Event<'_>) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let deadline = self.clock.now_us() + ANSWER_US_MAX;
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
            std::thread::sleep(ANSWER_POLL);
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

/// The peer does not want us.
fn is_hang_up(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    kinds.contains(&error.kind())
}

fn broken(peer: &str, error: io::Error) -> BenchError {
    BenchError::Broken { peer: peer.to_owned(), error }
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
        hostname: Some(url.host.as_str().into()),
        max_frame_size: FRAME_BYTES_MAX,
        idle_timeout_us: None,
        incoming_window: INCOMING_WINDOW,
        max_message_size: 0,
        burst_size_max: FRAME_BYTES_MAX as usize,
        sasl,
        ..Config::default()
    }
}
