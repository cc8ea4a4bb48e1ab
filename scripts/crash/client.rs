//! How does a client speak to the broker? The protocol's client role over one socket, with what happened as values.
//!
//! What the broker has said before it went is heard to its end: only then is a client told that the connection is gone.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane_protocol::amqp10::{
    AttachRequest, Config, Connection, Event, LinkId, Outgoing, Payload, Progress, Sasl, SendReadiness,
    SessionId, Token, TransactionId,
};
use corelane_wire::amqp10::{
    Coordinator, Declare, DeliveryState, Discharge, DistributionMode, Encode, Error, ExpiryPolicy, Outcome,
    ReceiverSettleMode, SenderSettleMode, Source, Symbols, Target, TargetArchetype, TerminusDurability,
    TransactionRequest,
};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// How long a broker that runs may take to take what is sent, and to answer.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The descriptor of an amqp-value section (AMQP 1.0 §3.2.8).
const AMQP_VALUE: [u8; 3] = [0x00, 0x53, 0x77];

/// The connection is no more, and why.
#[derive(Clone, Debug)]
pub struct Gone(pub String);

/// What the broker says of what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    Refused,
    Declared(TransactionId),
    /// Inside a transaction.
    Provisional,
}

#[derive(Debug)]
pub enum Happening {
    Opened,
    Attached,
    Answered {
        token: Token,
        answer: Answer,
    },
    Message {
        link: LinkId,
        delivery: u32,
        bytes: Vec<u8>,
    },
    /// All that was there has been delivered.
    Drained(LinkId),
    Detached {
        link: LinkId,
        error: Option<String>,
    },
}

/// How to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Acquire,
    Browse,
    /// By the durable subscription of the link's name.
    Subscribe,
}

#[derive(Debug)]
pub struct Client {
    connection: Connection,
    stream: TcpStream,
    session: Option<SessionId>,
    input: Vec<u8>,
    happenings: VecDeque<Happening>,
    /// A message that is sent in part: the rest of it.
    rest: Option<(LinkId, Vec<u8>)>,
    draining: Vec<LinkId>,
    started: Instant,
    /// Nothing can be sent any more.
    is_mute: bool,
}

impl Client {
    /// Connects and begins a session.
    pub fn connect(address: SocketAddr, container: &str) -> Result<Client, Gone> {
        let stream = TcpStream::connect(address).map_err(gone)?;
        stream.set_nodelay(true).map_err(gone)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(gone)?;
        let sasl = Sasl::Anonymous { trace: "".into() };
        let config = Config { container_id: container.into(), sasl, ..Config::default() };
        let mut client = Client {
            connection: Connection::client(Arc::new(config), 0),
            stream,
            session: None,
            input: Vec::new(),
            happenings: VecDeque::new(),
            rest: None,
            draining: Vec::new(),
            started: Instant::now(),
            is_mute: false,
        };
        while !matches!(client.next(PATIENCE)?, Some(Happening::Opened)) {
            client.check_patience(PATIENCE)?;
        }
        client.session = client.connection.begin();
        Ok(client)
    }

    pub fn attach_sender(&mut self, name: &str, address: &str) -> Result<LinkId, Gone> {
        let target = Target { address: Some(address), ..Target::default() };
        self.attach_to(name, TargetArchetype::Target(target))
    }

    pub fn attach_coordinator(&mut self, name: &str) -> Result<LinkId, Gone> {
        let capabilities = Symbols::new(&["amqp:local-transactions"]);
        self.attach_to(name, TargetArchetype::Coordinator(Coordinator { capabilities }))
    }

    fn attach_to(&mut self, name: &str, target: TargetArchetype<'_>) -> Result<LinkId, Gone> {
        let request = AttachRequest { target: Some(target), ..request(name, Source::default()) };
        let session = self.session()?;
        self.connection.attach_sender(session, &request).ok_or_else(no_handle)
    }

    pub fn attach_receiver(&mut self, name: &str, address: &str, mode: Mode) -> Result<LinkId, Gone> {
        let stays = mode == Mode::Subscribe;
        let source = Source {
            address: Some(address),
            durable: if stays { TerminusDurability::UnsettledState } else { TerminusDurability::None },
            expiry_policy: if stays { ExpiryPolicy::Never } else { ExpiryPolicy::default() },
            distribution_mode: (mode == Mode::Browse).then_some(DistributionMode::Copy),
            ..Source::default()
        };
        let sender_settle_mode =
            if mode == Mode::Browse { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let request = AttachRequest { sender_settle_mode, ..request(name, source) };
        let session = self.session()?;
        self.connection.attach_receiver(session, &request).ok_or_else(no_handle)
    }

    fn session(&self) -> Result<SessionId, Gone> {
        self.session.ok_or_else(|| Gone("no session can be begun".to_owned()))
    }

    /// Ends a link, or only its attachment.
    pub fn detach(&mut self, link: LinkId, closed: bool) {
        self.connection.detach(link, closed, None);
    }

    /// Whether a message may be sent now.
    pub fn can_send(&self, link: LinkId) -> bool {
        self.rest.is_none() && self.connection.can_send(link) == SendReadiness::Ready
    }

    /// Sends a message on a link on which one [can be](Self::can_send) sent.
    pub fn send(&mut self, link: LinkId, token: Token, bytes: Vec<u8>, transaction: Option<TransactionId>) {
        let outgoing = Outgoing { token, settled: false, message_format: 0, head: &[], rest: &bytes };
        self.connection.set_transaction(link, transaction);
        if let Progress::Partial { written, .. } = self.connection.send(link, &outgoing) {
            self.rest = Some((link, bytes[written..].to_vec()));
        }
    }

    pub fn declare(&mut self, coordinator: LinkId, token: Token) {
        self.ask(coordinator, token, &TransactionRequest::Declare(Declare::default()));
    }

    pub fn discharge(&mut self, coordinator: LinkId, token: Token, transaction: &TransactionId, fail: bool) {
        self.ask(coordinator, token, &TransactionRequest::Discharge(Discharge { transaction, fail }));
    }

    fn ask(&mut self, coordinator: LinkId, token: Token, request: &TransactionRequest<'_>) {
        let mut bytes = AMQP_VALUE.to_vec();
        request.encode(&mut bytes);
        self.send(coordinator, token, bytes, None);
    }

    pub fn credit(&mut self, link: LinkId, credit: u32) {
        self.connection.grant_credit(link, credit, false);
    }

    pub fn credit_left(&self, link: LinkId) -> u32 {
        self.connection.credit(link)
    }

    /// Asks for all that is there.
    pub fn drain(&mut self, link: LinkId, credit: u32) {
        self.draining.push(link);
        self.connection.grant_credit(link, credit, true);
    }

    pub fn settle(&mut self, link: LinkId, delivery: u32, state: &DeliveryState<'_>) {
        self.connection.settle(link, delivery, state);
    }

    /// What was settled is written before what is sent next.
    pub fn end_settlements(&mut self) {
        let now = self.now();
        self.connection.finish_turn(now);
    }

    pub fn settle_in(&mut self, link: LinkId, delivery: u32, transaction: &TransactionId) {
        let outcome = Some(Outcome::Accepted);
        self.connection.settle(link, delivery, &DeliveryState::Transactional { transaction, outcome });
    }

    /// The next thing that happens, if it happens within so long.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Happening>, Gone> {
        if self.happenings.is_empty() {
            self.flush();
            self.read(wait)?;
        }
        Ok(self.happenings.pop_front())
    }

    /// Whether nothing more has been heard.
    pub fn is_up_to_date(&self) -> bool {
        self.happenings.is_empty()
    }

    /// So long a broker may take that runs.
    pub fn check_patience(&self, patience: Duration) -> Result<(), Gone> {
        match self.started.elapsed() < patience {
            true => Ok(()),
            false => Err(Gone(format!("the broker does not answer within {} s", patience.as_secs()))),
        }
    }

    /// Sends what was written. What cannot be sent is not heard of again: the connection is gone, as reading will say.
    fn flush(&mut self) {
        let now = self.now();
        if let Some((link, rest)) = self.rest.take() {
            self.rest = match self.connection.send_more(link, &rest) {
                Progress::Partial { written, .. } => Some((link, rest[written..].to_vec())),
                Progress::NotReady(_) => Some((link, rest)),
                Progress::Complete { .. } | Progress::TooLarge => None,
            };
        }
        if self.connection.next_deadline().is_some_and(|due| due <= now) {
            self.connection.handle_timeout(now);
        }
        self.connection.finish_turn(now);
        let output = std::mem::take(self.connection.output());
        if !self.is_mute && !output.is_empty() {
            self.is_mute = self.stream.write_all(&output).is_err();
        }
    }

    fn read(&mut self, wait: Duration) -> Result<(), Gone> {
        // A timeout of zero would mean none.
        let wait = wait.max(Duration::from_micros(100));
        self.stream.set_read_timeout(Some(wait)).map_err(gone)?;
        let filled = self.input.len();
        self.input.resize(filled + READ_BYTES, 0);
        let result = self.stream.read(&mut self.input[filled..]);
        self.input.truncate(filled + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => return Err(Gone("the broker has closed the socket".to_owned())),
            Ok(_) => {}
            Err(error) if is_not_yet(&error) => {}
            Err(error) => return Err(gone(error)),
        }
        let now = self.now();
        let input = std::mem::take(&mut self.input);
        let mut unread = input.as_slice();
        while let Some(event) = self.connection.receive(now, &mut unread) {
            hear(event, &mut self.connection, &mut self.happenings, &mut self.draining)?;
        }
        self.input = unread.to_vec();
        Ok(())
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

fn hear(
    event: Event<'_>,
    connection: &mut Connection,
    happenings: &mut VecDeque<Happening>,
    draining: &mut Vec<LinkId>,
) -> Result<(), Gone> {
    match event {
        Event::Opened(_) => happenings.push_back(Happening::Opened),
        Event::AttachConfirmed { .. } => happenings.push_back(Happening::Attached),
        Event::Message(message) => {
            let (link, delivery, bytes) =
                (message.link, message.delivery_id, message.payload.bytes().to_vec());
            happenings.push_back(Happening::Message { link, delivery, bytes });
            if let Payload::Assembled(buffer) = message.payload {
                connection.recycle(buffer);
            }
        }
        Event::Disposition { state, .. } => {
            let answer = answer_of(state);
            while let Some(disposed) = connection.poll_outcome() {
                if !disposed.settled {
                    connection.settle_sent(disposed.link, disposed.delivery_id, None);
                }
                happenings.push_back(Happening::Answered { token: disposed.token, answer });
            }
        }
        Event::LinkFlow { link, credit: 0, .. } if draining.contains(&link) => {
            draining.retain(|draining| *draining != link);
            happenings.push_back(Happening::Drained(link));
        }
        Event::Detached { link, error, .. } => {
            draining.retain(|draining| *draining != link);
            happenings.push_back(Happening::Detached { link, error: error.map(said) });
        }
        Event::Closed { error } => {
            return Err(Gone(format!("the broker has closed the connection: {:?}", error.map(said))));
        }
        Event::Ended { error: Some(error), .. } => {
            return Err(Gone(format!("the broker has ended the session: {}", said(error))));
        }
        Event::LinkFlow { .. }
        | Event::SessionFlow { .. }
        | Event::SessionBegun { .. }
        | Event::Ended { .. }
        | Event::Attached { .. }
        | Event::SaslInit { .. }
        | Event::SaslResponse(_)
        | Event::SaslMechanisms(_)
        | Event::SaslChallenge(_)
        | Event::SaslOutcome { .. } => {}
    }
    Ok(())
}

fn answer_of(state: Option<DeliveryState<'_>>) -> Answer {
    match state {
        Some(DeliveryState::Accepted) => Answer::Accepted,
        Some(DeliveryState::Declared { transaction }) => {
            TransactionId::new(transaction).map_or(Answer::Refused, Answer::Declared)
        }
        Some(DeliveryState::Transactional { .. }) => Answer::Provisional,
        Some(
            DeliveryState::Rejected { .. }
            | DeliveryState::Released
            | DeliveryState::Modified(_)
            | DeliveryState::Received(_),
        )
        | None => Answer::Refused,
    }
}

fn said(error: Error<'_>) -> String {
    format!("{}: {}", error.condition, error.description.unwrap_or("no reason"))
}

fn request<'a>(name: &'a str, source: Source<'a>) -> AttachRequest<'a> {
    AttachRequest {
        name,
        source: Some(source),
        target: Some(TargetArchetype::Target(Target::default())),
        sender_settle_mode: SenderSettleMode::Unsettled,
        receiver_settle_mode: ReceiverSettleMode::First,
        max_message_size: None,
        desired_capabilities: Symbols::default(),
        properties: None,
    }
}

fn no_handle() -> Gone {
    Gone("no handle is left".to_owned())
}

fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn gone(error: std::io::Error) -> Gone {
    Gone(error.to_string())
}
