//! How do the two sides agree on protocol, user, limits and virtual host (§2.2.4)?
//!
//! A server's mechanisms are the caller's matter: it is told what the client says and answers. A client answers by itself.

use std::borrow::Cow;

use corelane_wire::amqp091::{
    FRAME_SIZE_MIN_MAX, FieldValue, Frame, FrameKind, Method, ReplyCode, ShortStr, Table, TableWriter,
    connection,
};

use super::config::Login;
use super::connection::{Connection, Phase, Side, Step, unexpected_method};
use super::event::Event;
use super::fault::{self, Fault};
use super::limits::{CONNECTION_NAME_SIZE_MAX, SASL_ROUNDS_MAX};

/// The header of 0-9-1.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";

const LOCALE: &str = "en_US";
const PLAIN: &str = "PLAIN";
const AMQPLAIN: &str = "AMQPLAIN";

/// What a server can do that clients ask about.
const SERVER_CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    CANCEL_NOTIFY,
    BLOCKED,
    "consumer_priorities",
    LOGIN_FAILURE_CLOSE,
    "per_consumer_qos",
    "direct_reply_to",
];

/// What a client of ours understands.
const CLIENT_CAPABILITIES: [&str; 5] =
    ["publisher_confirms", "basic.nack", CANCEL_NOTIFY, BLOCKED, LOGIN_FAILURE_CLOSE];

const CANCEL_NOTIFY: &str = "consumer_cancel_notify";
const BLOCKED: &str = "connection.blocked";
const LOGIN_FAILURE_CLOSE: &str = "authentication_failure_close";

impl Connection {
    /// Server: asks the client for more.
    pub fn sasl_challenge(&mut self, challenge: &[u8]) {
        let Phase::Login { round } = self.phase else { return };
        if round >= SASL_ROUNDS_MAX {
            self.sasl_outcome(false);
            return;
        }
        self.write(0, &connection::Secure { challenge });
        self.phase = Phase::Secure { round: round + 1 };
    }

    /// Server: decides. A client that is refused has to go.
    pub fn sasl_outcome(&mut self, is_known: bool) {
        let Phase::Login { .. } = self.phase else { return };
        if is_known {
            let (channel_max, frame_max) = (self.config.channel_max, self.frame_max());
            self.write(0, &connection::Tune { channel_max, frame_max, heartbeat: self.config.heartbeat });
            self.phase = Phase::Tune;
            return;
        }
        let text = format!("Login was refused using authentication mechanism {}.", self.peer.mechanism);
        let fault = Fault::new(ReplyCode::AccessRefused, text).by(connection::StartOk::ID);
        // A client that does not expect a close here takes it for a broken protocol; one that knows reads why.
        if self.peer.takes_login_failures {
            self.fail_connection(fault);
        } else {
            self.refuse(fault);
        }
    }

    /// Server: answers the peer's open.
    pub fn accept_open(&mut self) {
        if self.phase == Phase::OpenReceived {
            self.write(0, &connection::OpenOk {});
            self.phase = Phase::Open;
        }
    }

    pub(super) fn start_client(&mut self) {
        self.output.extend_from_slice(&PROTOCOL_HEADER);
        self.phase = Phase::Start;
    }

    pub(super) fn step_header<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        let known = input.len().min(PROTOCOL_HEADER.len());
        if input[..known] != PROTOCOL_HEADER[..known] {
            // §4.2.2: a server that does not speak the protocol says which one it speaks, and closes.
            self.output.extend_from_slice(&PROTOCOL_HEADER);
            self.refuse(Fault::new(ReplyCode::NotImplemented, "the peer speaks another protocol"));
            return Step::Again;
        }
        let Some(rest) = input.strip_prefix(&PROTOCOL_HEADER) else { return Step::Wait };
        *input = rest;
        self.write_start();
        self.phase = Phase::Start;
        Step::Again
    }

    pub(super) fn step_handshake<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        // A server that refuses our header answers by its own one.
        if self.side == Side::Client && self.phase == Phase::Start && input.first() == Some(&b'A') {
            self.refuse(Fault::new(ReplyCode::NotImplemented, "the peer speaks another protocol"));
            return Step::Again;
        }
        let frame = match Frame::take(input, self.peer.frame_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Wait,
            Err(error) => return self.fail_frame(error.into()),
        };
        match self.handle_handshake(&frame) {
            Ok(step) => step,
            Err(fault) => {
                self.fail_connection(fault);
                Step::Again
            }
        }
    }

    fn handle_handshake<'a>(&mut self, frame: &Frame<'a>) -> Result<Step<'a>, Fault> {
        if frame.kind == FrameKind::Heartbeat {
            return Ok(Step::Again);
        }
        if frame.channel != 0 || frame.kind != FrameKind::Method {
            return Err(fault::unexpected_frame("the connection is not open"));
        }
        use connection::Method as Of;
        let method = Method::decode(frame.payload)?;
        let Method::Connection(said) = method else { return Err(unexpected_method().by(method.id())) };
        let server = self.side == Side::Server;
        match (self.phase, said) {
            (Phase::Start, Of::StartOk(start_ok)) if server => self.handle_start_ok(&start_ok),
            (Phase::Secure { round }, Of::SecureOk(secure_ok)) if server => {
                self.phase = Phase::Login { round };
                Ok(Step::Event(Event::SaslResponse(self.plain_response(secure_ok.response)?)))
            }
            (Phase::Tune, Of::TuneOk(tune_ok)) if server => {
                self.handle_tune_ok(tune_ok).map_err(|fault| fault.by(connection::TuneOk::ID))?;
                Ok(Step::Again)
            }
            (Phase::Opening, Of::Open(open)) if server => {
                self.phase = Phase::OpenReceived;
                Ok(Step::Event(Event::Opened { virtual_host: open.virtual_host }))
            }
            (Phase::Start, Of::Start(start)) if !server => self.handle_start(&start),
            (Phase::Tune, Of::Secure(_)) if !server => {
                self.write_secure_ok();
                Ok(Step::Again)
            }
            (Phase::Tune, Of::Tune(tune)) if !server => {
                self.handle_tune(tune);
                Ok(Step::Again)
            }
            (Phase::Opening, Of::OpenOk(_)) if !server => {
                self.phase = Phase::Open;
                Ok(Step::Event(Event::Opened { virtual_host: ShortStr::EMPTY }))
            }
            (_, Of::Close(close)) => Ok(self.handle_early_close(&close)),
            (_, other) => Err(unexpected_method().by(other.id())),
        }
    }

    fn handle_start_ok<'a>(&mut self, start_ok: &connection::StartOk<'a>) -> Result<Step<'a>, Fault> {
        let properties = start_ok.client_properties;
        if let Ok(Some(FieldValue::Table(capabilities))) = properties.find("capabilities") {
            let has = |name| matches!(capabilities.find(name), Ok(Some(FieldValue::Boolean(true))));
            self.peer.takes_cancels = has(CANCEL_NOTIFY);
            self.peer.takes_blocked = has(BLOCKED);
            self.peer.takes_login_failures = has(LOGIN_FAILURE_CLOSE);
        }
        let name = properties.find("connection_name").ok().flatten().and_then(|name| name.as_str());
        if let Some(name) = name {
            self.peer.connection_name = name[..name.floor_char_boundary(CONNECTION_NAME_SIZE_MAX)].into();
        }
        let config = self.config.clone();
        let Login::Server { mechanisms } = &config.login else { return Err(unexpected_method()) };
        let asked = start_ok.mechanism.as_str().unwrap_or_default();
        let Some(mechanism) = mechanisms.iter().find(|offered| ***offered == *asked) else {
            let text = format!("unknown authentication mechanism '{}'", start_ok.mechanism);
            return Err(Fault::new(ReplyCode::CommandInvalid, text).by(connection::StartOk::ID));
        };
        self.peer.mechanism = mechanism.clone();
        let response = self.plain_response(start_ok.response)?;
        let mechanism = if asked == AMQPLAIN { PLAIN } else { asked };
        // The field is always there; clients leave it empty to be asked.
        let asks = mechanism == PLAIN && response.is_empty();
        self.phase = Phase::Login { round: 0 };
        Ok(Step::Event(Event::SaslInit { mechanism, initial_response: (!asks).then_some(response) }))
    }

    /// A client's response; one of AMQPLAIN as PLAIN has it.
    fn plain_response<'a>(&self, response: &'a [u8]) -> Result<Cow<'a, [u8]>, Fault> {
        if *self.peer.mechanism != *AMQPLAIN || response.is_empty() {
            return Ok(Cow::Borrowed(response));
        }
        let table = Table::new(response);
        let find = |name| match table.find(name) {
            Ok(Some(FieldValue::LongString(text))) => Ok(text),
            Ok(_) | Err(_) => {
                let text = "a response of AMQPLAIN is a table with LOGIN and PASSWORD";
                Err(Fault::new(ReplyCode::SyntaxError, text).by(connection::StartOk::ID))
            }
        };
        Ok(Cow::Owned(plain(find("LOGIN")?, find("PASSWORD")?)))
    }

    fn handle_tune_ok(&mut self, tune_ok: connection::TuneOk) -> Result<(), Fault> {
        // Zero is no limit of the peer's; ours stays.
        let chosen = |name: &str, chosen: u32, ours: u32, min: u32| match chosen {
            0 => Ok(ours),
            _ if chosen > ours => Err(Fault::new(
                ReplyCode::NotAllowed,
                format!("negotiated {name} = {chosen} is higher than the maximum allowed value ({ours})"),
            )),
            _ if chosen < min => Err(Fault::new(
                ReplyCode::NotAllowed,
                format!("negotiated {name} = {chosen} is lower than the minimum allowed value ({min})"),
            )),
            _ => Ok(chosen),
        };
        let ours = self.frame_max();
        self.peer.frame_max = chosen("frame_max", tune_ok.frame_max, ours, FRAME_SIZE_MIN_MAX)?;
        let channel_max = u32::from(self.config.channel_max);
        self.peer.channel_max = chosen("channel_max", tune_ok.channel_max.into(), channel_max, 1)? as u16;
        self.start_heartbeats(tune_ok.heartbeat);
        self.phase = Phase::Opening;
        Ok(())
    }

    fn handle_start<'a>(&mut self, start: &connection::Start<'_>) -> Result<Step<'a>, Fault> {
        let config = self.config.clone();
        let (mechanism, response): (&str, Vec<u8>) = match &config.login {
            Login::Plain { user, password } => (PLAIN, plain(user.as_bytes(), password.as_bytes())),
            Login::AmqPlain { user, password } => (AMQPLAIN, amq_plain(user, password)),
            Login::Other { mechanism, response } => (mechanism, response.to_vec()),
            Login::Server { .. } => ("", Vec::new()),
        };
        if !start.mechanisms.split(|&byte| byte == b' ').any(|offered| offered == mechanism.as_bytes()) {
            self.refuse(Fault::new(ReplyCode::AccessRefused, "the server does not offer our mechanism"));
            return Ok(Step::Again);
        }
        let mut properties = Vec::new();
        self.append_properties(&mut properties, &CLIENT_CAPABILITIES);
        let start_ok = connection::StartOk {
            client_properties: Table::new(&properties),
            mechanism: ShortStr::cut(mechanism),
            response: &response,
            locale: ShortStr::literal(LOCALE),
        };
        self.write(0, &start_ok);
        self.phase = Phase::Tune;
        Ok(Step::Again)
    }

    fn handle_tune(&mut self, tune: connection::Tune) {
        let less = |ours: u32, theirs: u32| if theirs == 0 { ours } else { ours.min(theirs) };
        let frame_max = less(self.frame_max(), tune.frame_max).max(FRAME_SIZE_MIN_MAX);
        let channel_max = less(self.config.channel_max.into(), tune.channel_max.into()) as u16;
        let heartbeat = self.config.heartbeat;
        self.peer.frame_max = frame_max;
        self.peer.channel_max = channel_max;
        self.write(0, &connection::TuneOk { channel_max, frame_max, heartbeat });
        self.start_heartbeats(heartbeat);
        let config = self.config.clone();
        self.write(0, &connection::Open { virtual_host: ShortStr::cut(&config.virtual_host) });
        self.phase = Phase::Opening;
    }

    fn write_secure_ok(&mut self) {
        let config = self.config.clone();
        let response = match &config.login {
            Login::Plain { user, password } => plain(user.as_bytes(), password.as_bytes()),
            Login::AmqPlain { user, password } => amq_plain(user, password),
            Login::Other { response, .. } => response.to_vec(),
            Login::Server { .. } => Vec::new(),
        };
        self.write(0, &connection::SecureOk { response: &response });
    }

    fn write_start(&mut self) {
        let config = self.config.clone();
        let Login::Server { mechanisms } = &config.login else { return };
        let mut properties = Vec::new();
        self.append_properties(&mut properties, &SERVER_CAPABILITIES);
        let mechanisms = mechanisms.join(" ");
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: Table::new(&properties),
            mechanisms: mechanisms.as_bytes(),
            locales: LOCALE.as_bytes(),
        };
        self.write(0, &start);
    }

    fn append_properties(&self, out: &mut Vec<u8>, capabilities: &[&'static str]) {
        let mut table = TableWriter::new(out);
        table.table(ShortStr::literal("capabilities"), |nested| {
            for capability in capabilities {
                nested.pair(ShortStr::literal(capability), FieldValue::Boolean(true));
            }
        });
        for (name, value) in &self.config.properties {
            table.pair(ShortStr::cut(name), FieldValue::LongString(value.as_bytes()));
        }
    }

    fn frame_max(&self) -> u32 {
        self.config.frame_max.max(FRAME_SIZE_MIN_MAX)
    }
}

/// RFC 4616, without an identity to act as.
fn plain(user: &[u8], password: &[u8]) -> Vec<u8> {
    [b"\0", user, b"\0", password].concat()
}

fn amq_plain(user: &str, password: &str) -> Vec<u8> {
    let mut response = Vec::new();
    let mut table = TableWriter::new(&mut response);
    table.pair(ShortStr::literal("LOGIN"), FieldValue::LongString(user.as_bytes()));
    table.pair(ShortStr::literal("PASSWORD"), FieldValue::LongString(password.as_bytes()));
    response
}
