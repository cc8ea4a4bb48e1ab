//! How does the command line talk to a broker? A blocking AMQP 1.0 client over one socket, small and reusable.
//!
//! [`Client::connect`] logs in and opens; [`send`](Client::send), [`Receiver`] and [`browse`](Client::browse) use one
//! link each. The protocol is the same state machine that the broker runs, in the client's role.
//!
//! Invariants: everything that waits has a deadline or is meant to wait; what the peer announces of itself (sizes,
//! windows, credit) is honoured by the state machine; an error says what to do.
//! Left out: reconnecting, TLS, transactions.

mod error;
mod login;
mod manage;
mod receive;
mod send;
mod show;
mod url;

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane_protocol::amqp10::{Config, Connection, Event, LinkId, Sasl, SessionId};
use corelane_wire::amqp10::{DeliveryState, Error, SaslCode};

pub use error::{ClientError, Reason};
use login::Login;
pub use manage::{Argument, Manager, Request, Response};
pub use receive::{Ended, Receiver, Selection};
pub use send::{PropertyValue, SendOptions, SendReport, TextMessage};
pub use show::{show_body, show_details};
pub use url::{Credentials, Url, UrlError};

/// How long the broker may take for an answer that needs nothing but itself.
const ANSWER_US_MAX: u64 = 10_000_000;
/// How long is read on for the reason after the broker has stopped to take what is sent.
const LAST_WORDS_US_MAX: u64 = 1_000_000;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that one read takes.
const READ_BYTES: usize = 64 << 10;
/// The largest message that is taken.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// A connection to a broker, with one session.
pub struct Client {
    url: Url,
    stream: TcpStream,
    connection: Connection,
    session: Option<SessionId>,
    login: Option<Login>,
    /// Received, not yet taken by the state machine.
    input: Vec<u8>,
    notices: std::collections::VecDeque<Notice>,
    started: Instant,
}

/// What happened, without a tie to the received bytes.
#[derive(Debug)]
enum Notice {
    Opened,
    SessionBegun,
    /// Our attach was answered; refused links have no terminus and are detached next.
    Attached(LinkId),
    /// What may be sent, or what the peer may still send.
    Credit {
        link: LinkId,
        credit: u32,
    },
    WindowOpened,
    Message {
        link: LinkId,
        delivery_id: u32,
        settled: bool,
        bytes: Vec<u8>,
    },
    Disposed(Fate),
    Detached {
        link: LinkId,
        reason: Reason,
    },
    Ended(Reason),
    Closed(Option<Reason>),
}

/// What became of a message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Accepted,
    Rejected(Reason),
    Released,
    Modified,
    /// Settled without an outcome.
    Unknown,
}

impl Client {
    /// Connects, logs in, opens the connection and a session.
    pub fn connect(url: &Url) -> Result<Client, ClientError> {
        let stream = dial(url).map_err(|error| ClientError::Unreachable { url: url.clone(), error })?;
        let started = Instant::now();
        let connection = Connection::client(Arc::new(config(url)), 0);
        let mut client = Client {
            url: url.clone(),
            stream,
            connection,
            session: None,
            login: None,
            input: Vec::new(),
            notices: std::collections::VecDeque::new(),
            started,
        };
        client.wait_for("its open", |notice| matches!(notice, Notice::Opened))?;
        client.session = client.connection.begin();
        client.wait_for("its begin", |notice| matches!(notice, Notice::SessionBegun))?;
        Ok(client)
    }

    /// Says goodbye. What was sent and not answered for is lost from sight, so this is for the end.
    pub fn close(mut self) -> Result<(), ClientError> {
        self.connection.close(None);
        let deadline = self.now() + ANSWER_US_MAX;
        loop {
            match self.next_notice(Some(deadline)) {
                Ok(Some(Notice::Closed(Some(reason)))) => {
                    return Err(ClientError::ConnectionClosed { reason });
                }
                // All is said and done: how exactly it ends does not matter any more.
                Ok(Some(Notice::Closed(None)) | None) | Err(ClientError::ClosedSilently { .. }) => {
                    return Ok(());
                }
                // Links and session end before the connection does.
                Ok(Some(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The session that `connect` began.
    fn session(&self) -> Result<SessionId, ClientError> {
        self.session.ok_or(ClientError::NoAnswer { url: self.url.clone(), awaited: "its begin" })
    }

    /// Microseconds since the connection was made.
    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Waits for what must come soon, passing over everything else that is not an end.
    fn wait_for(
        &mut self,
        awaited: &'static str,
        wanted: impl Fn(&Notice) -> bool,
    ) -> Result<(), ClientError> {
        let deadline = self.now() + ANSWER_US_MAX;
        loop {
            match self.next_notice(Some(deadline))? {
                Some(notice) if wanted(&notice) => return Ok(()),
                Some(Notice::Closed(reason)) => return Err(self.closed(reason)),
                Some(Notice::Ended(reason)) => return Err(ClientError::SessionEnded { reason }),
                Some(_) => {}
                None => return Err(ClientError::NoAnswer { url: self.url.clone(), awaited }),
            }
        }
    }

    fn closed(&self, reason: Option<Reason>) -> ClientError {
        match reason {
            Some(reason) => ClientError::ConnectionClosed { reason },
            None => ClientError::ClosedSilently { url: self.url.clone() },
        }
    }

    /// The next thing that happens, until the deadline.
    fn next_notice(&mut self, deadline: Option<u64>) -> Result<Option<Notice>, ClientError> {
        loop {
            self.take_input()?;
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(notice));
            }
            let now = self.now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(None);
            }
            let wake_at = [deadline, self.connection.next_deadline()].into_iter().flatten().min();
            if self.read(wake_at.map(|wake_at| wake_at.saturating_sub(now)))? {
                continue;
            }
            let now = self.now();
            if self.connection.next_deadline().is_some_and(|due| due <= now) {
                self.connection.handle_timeout(now);
            }
        }
    }

    /// Gives the state machine what was received, notes what it tells, and sends what it writes.
    fn take_input(&mut self) -> Result<(), ClientError> {
        self.tell_input()?;
        self.flush()
    }

    fn tell_input(&mut self) -> Result<(), ClientError> {
        let now = self.now();
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some(event) = self.connection.receive(now, &mut rest) {
            self.handle(event)?;
        }
        self.input = rest.to_vec();
        Ok(())
    }

    /// Sends what the state machine has written.
    fn flush(&mut self) -> Result<(), ClientError> {
        self.connection.finish_turn(self.now());
        let output = std::mem::take(self.connection.output());
        if output.is_empty() {
            return Ok(());
        }
        match self.stream.write_all(&output) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.last_words(error)),
        }
    }

    /// Nothing can be sent any more. A broker that has closed the connection said why before.
    fn last_words(&mut self, error: io::Error) -> ClientError {
        let deadline = self.now() + LAST_WORDS_US_MAX;
        loop {
            if let Err(refused) = self.tell_input() {
                return refused;
            }
            let reason_of =
                |notice: &Notice| if let Notice::Closed(reason) = notice { reason.clone() } else { None };
            if let Some(reason) = self.notices.iter().find_map(reason_of) {
                return ClientError::ConnectionClosed { reason };
            }
            let left = deadline.saturating_sub(self.now());
            if left == 0 || !matches!(self.read(Some(left)), Ok(true)) {
                return self.broken(error);
            }
        }
    }

    /// Reads what is there, waiting so long. False: nothing came in time.
    fn read(&mut self, wait_us: Option<u64>) -> Result<bool, ClientError> {
        // A timeout of zero would mean none.
        let timeout = wait_us.map(|us| Duration::from_micros(us.max(1_000)));
        self.stream.set_read_timeout(timeout).map_err(|error| self.broken(error))?;
        let filled = self.input.len();
        self.input.resize(filled + READ_BYTES, 0);
        let result = self.stream.read(&mut self.input[filled..]);
        self.input.truncate(filled + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => {
                self.connection.handle_lost();
                Err(ClientError::ClosedSilently { url: self.url.clone() })
            }
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(self.broken(error)),
        }
    }

    fn broken(&self, error: io::Error) -> ClientError {
        ClientError::Broken { url: self.url.clone(), error }
    }

    fn handle(&mut self, event: Event<'_>) -> Result<(), ClientError> {
        match event {
            Event::SaslMechanisms(offered) => {
                let (login, init) = Login::start(self.url.credentials.as_ref(), offered.iter())?;
                self.connection.sasl_init(init.mechanism, Some(&init.response));
                self.login = Some(login);
            }
            Event::SaslChallenge(challenge) => {
                if let Some(login) = &mut self.login {
                    let response = login.respond(challenge)?;
                    self.connection.sasl_respond(&response);
                }
            }
            Event::SaslOutcome { code, additional_data } => {
                if let Some(login) = &mut self.login {
                    match code {
                        SaslCode::Ok => login.finish(additional_data)?,
                        SaslCode::Auth | SaslCode::Sys | SaslCode::SysPerm | SaslCode::SysTemp => {
                            return Err(login.refused());
                        }
                    }
                }
            }
            Event::Opened(_) => self.notices.push_back(Notice::Opened),
            Event::SessionBegun { .. } => self.notices.push_back(Notice::SessionBegun),
            Event::AttachConfirmed { link, .. } => self.notices.push_back(Notice::Attached(link)),
            Event::LinkFlow { link, credit, .. } => self.notices.push_back(Notice::Credit { link, credit }),
            Event::SessionFlow { .. } => self.notices.push_back(Notice::WindowOpened),
            Event::Message(message) => {
                let (link, delivery_id, settled) = (message.link, message.delivery_id, message.settled);
                let bytes = message.payload.bytes().to_vec();
                self.notices.push_back(Notice::Message { link, delivery_id, settled, bytes });
            }
            Event::Disposition { state, .. } => {
                let fate = fate(state);
                while let Some(disposed) = self.connection.poll_outcome() {
                    if !disposed.settled {
                        self.connection.settle_sent(disposed.link, disposed.delivery_id, None);
                    }
                    self.notices.push_back(Notice::Disposed(fate.clone()));
                }
            }
            Event::Detached { link, error, .. } => {
                self.notices.push_back(Notice::Detached { link, reason: Reason::new(error) });
            }
            Event::Ended { error, .. } => self.notices.push_back(Notice::Ended(Reason::new(error))),
            Event::Closed { error } => {
                // The close is why links and session have ended just now, and it has the reason.
                self.notices.retain(|notice| !matches!(notice, Notice::Detached { .. } | Notice::Ended(_)));
                self.notices
                    .push_back(Notice::Closed(error.map(|error: Error<'_>| Reason::new(Some(error)))));
            }
            // A broker does not attach links to us, nor log in.
            Event::Attached { .. } | Event::SaslInit { .. } | Event::SaslResponse(_) => {}
        }
        Ok(())
    }
}

fn dial(url: &Url) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn config(url: &Url) -> Config {
    Config {
        container_id: format!("corelane-client-{}", std::process::id()).into(),
        hostname: Some(url.host.as_str().into()),
        max_message_size: MESSAGE_BYTES_MAX,
        sasl: Sasl::Caller,
        ..Config::default()
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn fate(state: Option<DeliveryState<'_>>) -> Fate {
    match state {
        Some(DeliveryState::Accepted) => Fate::Accepted,
        Some(DeliveryState::Rejected { error }) => Fate::Rejected(Reason::new(error)),
        Some(DeliveryState::Released) => Fate::Released,
        Some(DeliveryState::Modified(_)) => Fate::Modified,
        Some(
            DeliveryState::Received(_) | DeliveryState::Declared { .. } | DeliveryState::Transactional { .. },
        )
        | None => Fate::Unknown,
    }
}

#[cfg(test)]
#[path = "client/client_tests.rs"]
mod tests;
