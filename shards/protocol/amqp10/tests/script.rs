//! What does one side answer to these frames and commands?
//!
//! Input is a list of steps, one a line or between semicolons: frames of the peer (`transfer h=0 id=0 tag=a`), commands of
//! the caller (`!settle 0 accepted`), time (`wait 500`, in milliseconds). Output is what the side wrote (`> detach h=0`)
//! and told its caller (`* detached 0`), one a line; each step ends with `finish_turn`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use corelane_wire::amqp10::{
    Attach, Begin, Close, DeliveryState, Detach, Disposition, Encode, End, Error, Flow, Frame, FrameKind,
    Map, Modified, Open, Performative, ReceiverSettleMode, Role, SaslCode, SaslInit, SaslPerformative,
    SaslResponse, SenderSettleMode, Source, Symbols, Target, TargetArchetype, Transfer, write_frame,
};

use crate::amqp10::{
    AttachAnswer, AttachRequest, Config, Connection, ErrorSpec, Event, LinkId, Outgoing, Payload, Progress,
    Sasl, SessionId, Token,
};

/// A configuration with small figures.
pub(super) fn config() -> Config {
    Config {
        container_id: "us".into(),
        max_frame_size: 1024,
        channel_max: 7,
        handle_max: 7,
        links_max: 4,
        idle_timeout_us: None,
        handshake_timeout_us: None,
        incoming_window: 100,
        max_message_size: 4000,
        assembly_size_max: 6000,
        ..Config::default()
    }
}

/// Runs the steps against a server, past its handshake and one session.
#[track_caller]
pub(super) fn check(input: &str, expect: &str) {
    check_with(config(), "header; open; begin", input, expect);
}

/// Runs the steps against a server that is new.
#[track_caller]
pub(super) fn check_new(config: Config, input: &str, expect: &str) {
    check_with(config, "", input, expect);
}

#[track_caller]
pub(super) fn check_with(config: Config, before: &str, input: &str, expect: &str) {
    compare(Connection::server(config, 0), before, input, expect);
}

/// Runs the steps against a client.
#[track_caller]
pub(super) fn check_client(config: Config, before: &str, input: &str, expect: &str) {
    compare(Connection::client(config, 0), before, input, expect);
}

#[track_caller]
fn compare(connection: Connection, before: &str, input: &str, expect: &str) {
    let mut script = Script::new(connection);
    script.run(before);
    script.log.clear();
    script.run(input);
    let expect: Vec<&str> =
        expect.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty()).collect();
    if script.log != expect {
        panic!(
            "\ninput:\n  {}\nexpected:\n  {}\ngot:\n  {}\n",
            input.trim(),
            expect.join("\n  "),
            script.log.join("\n  ")
        );
    }
}

pub(super) struct Script {
    pub(super) connection: Connection,
    /// Received and not taken yet.
    inbox: Vec<u8>,
    pub(super) log: Vec<String>,
    pub(super) now: u64,
    /// Attaches are left for `!accept` and `!refuse`.
    manual: bool,
    sent: u64,
}

/// A step's name, its plain words and its `key=value` words.
struct Step<'a> {
    name: &'a str,
    words: Vec<&'a str>,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Self {
        let mut parts = line.split_whitespace();
        let name = parts.next().unwrap();
        let (mut words, mut values) = (Vec::new(), BTreeMap::new());
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) => drop(values.insert(key, value)),
                None => words.push(part),
            }
        }
        Self { name, words, values }
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn number(&self, key: &str) -> Option<u32> {
        self.values.get(key).map(|value| value.parse().unwrap())
    }

    fn word_number(&self, index: usize) -> u32 {
        self.words[index].parse().unwrap()
    }

    fn state(&self) -> Option<DeliveryState<'static>> {
        self.words.iter().find_map(|word| {
            Some(match *word {
                "accepted" => DeliveryState::Accepted,
                "released" => DeliveryState::Released,
                "rejected" => DeliveryState::Rejected { error: None },
                "rejected-why" => DeliveryState::Rejected { error: Some(Error::new("x:why", "because")) },
                "failed" => {
                    DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() })
                }
                "elsewhere" => {
                    DeliveryState::Modified(Modified { undeliverable_here: true, ..Modified::default() })
                }
                "received" => DeliveryState::Received(Default::default()),
                "transactional" => DeliveryState::Transactional {
                    transaction: b"tx",
                    outcome: Some(corelane_wire::amqp10::Outcome::Accepted),
                },
                "declared" => DeliveryState::Declared { transaction: b"tx" },
                _ => return None,
            })
        })
    }
}

impl Script {
    pub(super) fn new(connection: Connection) -> Self {
        let mut script =
            Self { connection, inbox: Vec::new(), log: Vec::new(), now: 0, manual: false, sent: 0 };
        script.note_output();
        script
    }

    pub(super) fn run(&mut self, input: &str) {
        for line in input.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty()) {
            let step = Step::parse(line);
            match step.name.strip_prefix('!') {
                Some(command) => self.command(command, &step),
                None if step.name == "wait" => self.wait(u64::from(step.word_number(0)) * 1000),
                None => self.receive(&step),
            }
            self.take_events();
            self.connection.finish_turn(self.now);
            self.take_events();
            self.note_output();
            self.connection.verify();
        }
    }

    fn wait(&mut self, duration_us: u64) {
        let end = self.now + duration_us;
        while let Some(deadline) = self.connection.next_deadline().filter(|&deadline| deadline <= end) {
            self.now = self.now.max(deadline);
            self.connection.handle_timeout(self.now);
            self.take_events();
            self.connection.finish_turn(self.now);
            self.note_output();
            assert!(
                self.connection.next_deadline().is_none_or(|next| next > self.now),
                "a deadline that stays due"
            );
        }
        self.now = end;
    }

    fn receive(&mut self, step: &Step<'_>) {
        encode(step, &mut self.inbox);
    }

    fn command(&mut self, command: &str, step: &Step<'_>) {
        let connection = &mut self.connection;
        let error = step.values.get("error").map(|condition| ErrorSpec { condition, description: "" });
        let link = LinkId(step.number("l").unwrap_or(0));
        let session = SessionId(step.number("s").unwrap_or(0));
        match command {
            "manual" => self.manual = true,
            "begin" => {
                let session = connection.begin().map(|session| session.0);
                self.note(format!("= {session:?}"));
            }
            "end" => connection.end(session, error),
            "close" => connection.close(error),
            "reading" => connection.set_reading(self.now, step.has("on")),
            "lost" => connection.handle_lost(),
            "accept-open" => connection.accept_open(),
            "outcome" => {
                let code = if step.has("ok") { SaslCode::Ok } else { SaslCode::Auth };
                connection.sasl_outcome(code, None);
            }
            "challenge" => connection.sasl_challenge(b"challenge"),
            "init" => connection.sasl_init("SCRAM-SHA-256", Some(b"first")),
            "respond" => connection.sasl_respond(b"response"),
            "attach" => self.attach(step, session),
            "accept" => {
                let max_message_size = step.values.get("max").map(|max| max.parse().unwrap());
                connection.accept_attach(link, &AttachAnswer { max_message_size, ..AttachAnswer::default() });
            }
            "refuse" => connection.refuse_attach(link, error.unwrap()),
            "detach" => connection.detach(link, step.has("closed"), error),
            "grant" => connection.grant_credit(link, step.word_number(0), step.has("drain")),
            "drained" => connection.drained(link),
            "available" => connection.available(link, step.word_number(0)),
            "settle" => {
                let id = step.word_number(0);
                connection.settle(link, id, &step.state().unwrap());
            }
            "settle-sent" => {
                let id = step.word_number(0);
                connection.settle_sent(link, id, step.state().as_ref());
            }
            "send" => self.send(step, link),
            "more" => {
                let remaining = vec![b'x'; step.word_number(0) as usize];
                let progress = self.connection.send_more(link, &remaining);
                self.note_progress(progress);
            }
            "abort" => connection.abort(link),
            "ready" => {
                let readiness = connection.can_send(link);
                self.note(format!("= {readiness:?}"));
            }
            "credit" => {
                let credit = connection.credit(link);
                self.note(format!("= {credit}"));
            }
            _ => panic!("no command {command}"),
        }
    }

    fn attach(&mut self, step: &Step<'_>, session: SessionId) {
        let request = AttachRequest {
            name: step.values.get("name").unwrap_or(&"l"),
            source: Some(Source { address: Some("q"), ..Source::default() }),
            target: Some(TargetArchetype::Target(Target { address: Some("q"), ..Target::default() })),
            sender_settle_mode: sender_settle_mode(step),
            receiver_settle_mode: receiver_settle_mode(step),
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let link = if step.has("sender") {
            self.connection.attach_sender(session, &request)
        } else {
            self.connection.attach_receiver(session, &request)
        };
        self.note(format!("= {:?}", link.map(|link| link.0)));
    }

    fn send(&mut self, step: &Step<'_>, link: LinkId) {
        for _ in 0..step.number("count").unwrap_or(1) {
            let size = step.number("size").unwrap_or(1) as usize;
            let message = vec![b'x'; size];
            let (head, rest) = message.split_at(size.min(2));
            let token = Token(self.sent, 0);
            self.sent += 1;
            let settled = step.has("settled");
            let outgoing = Outgoing { token, settled, message_format: 0, head, rest };
            let progress = self.connection.send(link, &outgoing);
            self.note_progress(progress);
        }
    }

    fn note_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Complete { .. } => {}
            Progress::Partial { written, .. } => self.note(format!("= written {written}")),
            Progress::TooLarge => self.note("= too large".into()),
            Progress::NotReady(readiness) => self.note(format!("= {readiness:?}")),
        }
    }

    fn take_events(&mut self) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut input = &inbox[..];
        while let Some(event) = self.connection.receive(self.now, &mut input) {
            let mut line = String::new();
            describe_event(&mut line, &event);
            self.note_output();
            self.log.push(format!("* {line}"));
            self.answer(event);
        }
        self.inbox = input.to_vec();
    }

    fn answer(&mut self, event: Event<'_>) {
        match event {
            Event::Opened(_) if !self.manual => self.connection.accept_open(),
            Event::Attached { link, .. } if !self.manual => {
                self.connection.accept_attach(link, &AttachAnswer::default());
            }
            Event::Message(message) => {
                if let Payload::Assembled(buffer) = message.payload {
                    self.connection.recycle(buffer);
                }
            }
            Event::Disposition { .. } => {
                while let Some(disposed) = self.connection.poll_outcome() {
                    let provisional = if disposed.settled { "" } else { " provisional" };
                    self.log
                        .push(format!("* outcome l={} {}{provisional}", disposed.link.0, disposed.token.0));
                }
            }
            _ => {}
        }
        self.note_output();
    }

    /// What a command returned comes behind what it wrote.
    fn note(&mut self, line: String) {
        self.note_output();
        self.log.push(line);
    }

    fn note_output(&mut self) {
        let output = std::mem::take(self.connection.output());
        let mut rest = &output[..];
        while !rest.is_empty() {
            if rest.starts_with(b"AMQP") {
                self.log.push(format!("> header {}", rest[4]));
                rest = &rest[8..];
                continue;
            }
            let frame = Frame::take(&mut rest, u32::MAX).unwrap().unwrap();
            let mut line = String::new();
            describe_frame(&mut line, &frame);
            self.log.push(format!("> {line}"));
        }
    }
}

fn sender_settle_mode(step: &Step<'_>) -> SenderSettleMode {
    match step.values.get("snd") {
        Some(&"settled") => SenderSettleMode::Settled,
        Some(&"unsettled") => SenderSettleMode::Unsettled,
        _ => SenderSettleMode::Mixed,
    }
}

fn receiver_settle_mode(step: &Step<'_>) -> ReceiverSettleMode {
    match step.values.get("rcv") {
        Some(&"second") => ReceiverSettleMode::Second,
        _ => ReceiverSettleMode::First,
    }
}

/// Appends the bytes of a peer's step.
pub(super) fn encode_line(line: &str, out: &mut Vec<u8>) {
    encode(&Step::parse(line), out);
}

fn encode(step: &Step<'_>, out: &mut Vec<u8>) {
    let error = step.values.get("error").map(|condition| Error::new(condition, ""));
    let handle = step.number("h");
    let channel = step.number("ch").unwrap_or(0) as u16;
    let frame = |out: &mut Vec<u8>, body: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        body(&mut bytes);
        write_frame(out, FrameKind::Amqp, channel, &Raw(&bytes), &[]);
    };
    match step.name {
        "header" => out.extend_from_slice(b"AMQP\x00\x01\x00\x00"),
        "sasl-header" => out.extend_from_slice(b"AMQP\x03\x01\x00\x00"),
        "text" => out.extend_from_slice(step.words[0].as_bytes()),
        "bytes" => out.extend(step.words.iter().map(|word| u8::from_str_radix(word, 16).unwrap())),
        "empty" => write_frame(out, FrameKind::Amqp, channel, &Raw(&[]), &[]),
        "sasl-empty" => write_frame(out, FrameKind::Sasl, 0, &Raw(&[]), &[]),
        "sasl-init" => {
            let init =
                SaslInit { mechanism: step.words[0], initial_response: Some(b"hello"), hostname: None };
            write_frame(out, FrameKind::Sasl, 0, &SaslPerformative::Init(init), &[]);
        }
        "sasl-response" => {
            let response = SaslPerformative::Response(SaslResponse { response: b"response" });
            write_frame(out, FrameKind::Sasl, 0, &response, &[]);
        }
        "sasl-mechanisms" => {
            let mechanisms = corelane_wire::amqp10::SaslMechanisms { mechanisms: Symbols::new(&step.words) };
            write_frame(out, FrameKind::Sasl, 0, &SaslPerformative::Mechanisms(mechanisms), &[]);
        }
        "sasl-challenge" => {
            let challenge = corelane_wire::amqp10::SaslChallenge { challenge: b"challenge" };
            write_frame(out, FrameKind::Sasl, 0, &SaslPerformative::Challenge(challenge), &[]);
        }
        "sasl-outcome" => {
            let code = if step.has("ok") { SaslCode::Ok } else { SaslCode::Auth };
            let outcome = corelane_wire::amqp10::SaslOutcome { code, additional_data: None };
            write_frame(out, FrameKind::Sasl, 0, &SaslPerformative::Outcome(outcome), &[]);
        }
        "open" => frame(out, &|bytes| {
            Open {
                container_id: "peer",
                max_frame_size: step.number("max-frame").unwrap_or(u32::MAX),
                channel_max: step.number("channel-max").map_or(u16::MAX, |max| max as u16),
                idle_time_out: step.number("idle"),
                ..Open::default()
            }
            .encode(bytes);
        }),
        "begin" => frame(out, &|bytes| {
            Begin {
                remote_channel: step.number("remote").map(|channel| channel as u16),
                next_outgoing_id: step.number("noi").unwrap_or(0),
                incoming_window: step.number("window").unwrap_or(1000),
                outgoing_window: 1000,
                handle_max: step.number("handle-max").unwrap_or(u32::MAX),
                ..Begin::default()
            }
            .encode(bytes);
        }),
        "attach" => frame(out, &|bytes| encode_attach(step, bytes)),
        "flow" => frame(out, &|bytes| {
            Flow {
                next_incoming_id: if step.has("early") {
                    None
                } else {
                    Some(step.number("nii").unwrap_or(0))
                },
                incoming_window: step.number("window").unwrap_or(1000),
                next_outgoing_id: step.number("noi").unwrap_or(0),
                outgoing_window: 1000,
                handle,
                delivery_count: step.number("dc"),
                link_credit: step.number("credit"),
                available: step.number("available"),
                drain: step.has("drain"),
                echo: step.has("echo"),
                properties: None,
            }
            .encode(bytes);
        }),
        "transfer" => encode_transfer(step, channel, out),
        "disposition" => frame(out, &|bytes| {
            Disposition {
                role: if step.has("sender") { Role::Sender } else { Role::Receiver },
                first: step.number("first").unwrap_or(0),
                last: step.number("last"),
                settled: step.has("settled"),
                state: step.state(),
                batchable: false,
            }
            .encode(bytes);
        }),
        "detach" => frame(out, &|bytes| {
            Detach { handle: handle.unwrap_or(0), closed: step.has("closed"), error }.encode(bytes);
        }),
        "end" => frame(out, &|bytes| End { error }.encode(bytes)),
        "close" => frame(out, &|bytes| Close { error }.encode(bytes)),
        name => panic!("no frame {name}"),
    }
}

fn encode_attach(step: &Step<'_>, bytes: &mut Vec<u8>) {
    let role = if step.has("sender") { Role::Sender } else { Role::Receiver };
    let name = step.values.get("name").unwrap_or(&"l");
    let null = step.has("null");
    let source = Source { address: Some("q"), dynamic: step.has("dynamic"), ..Source::default() };
    let target = Target { address: (!step.has("anonymous")).then_some("q"), ..Target::default() };
    Attach {
        snd_settle_mode: sender_settle_mode(step),
        rcv_settle_mode: receiver_settle_mode(step),
        source: (!null).then_some(source),
        target: (!null).then_some(TargetArchetype::Target(target)),
        unsettled: step.has("unsettled").then(Map::default),
        initial_delivery_count: (role == Role::Sender).then(|| step.number("idc").unwrap_or(0)),
        max_message_size: step.number("max").map(u64::from),
        ..Attach::new(name, step.number("h").unwrap_or(0), role)
    }
    .encode(bytes);
}

fn encode_transfer(step: &Step<'_>, channel: u16, out: &mut Vec<u8>) {
    let transfer = Transfer {
        handle: step.number("h").unwrap_or(0),
        delivery_id: step.number("id"),
        delivery_tag: step.values.get("tag").map(|tag| tag.as_bytes()),
        message_format: step.number("id").map(|_| 0),
        settled: if step.has("settled") { Some(true) } else { None },
        more: step.has("more"),
        rcv_settle_mode: step.values.contains_key("rcv").then(|| receiver_settle_mode(step)),
        state: step.state(),
        resume: step.has("resume"),
        aborted: step.has("aborted"),
        batchable: false,
    };
    let payload = vec![b'x'; step.number("size").unwrap_or(1) as usize];
    write_frame(out, FrameKind::Amqp, channel, &transfer, &payload);
}

struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

fn describe_event(line: &mut String, event: &Event<'_>) {
    let described = match event {
        Event::SaslInit { mechanism, .. } => write!(line, "sasl-init {mechanism}"),
        Event::SaslResponse(_) => write!(line, "sasl-response"),
        Event::SaslMechanisms(mechanisms) => write!(line, "sasl-mechanisms {mechanisms:?}"),
        Event::SaslChallenge(_) => write!(line, "sasl-challenge"),
        Event::SaslOutcome { code, .. } => write!(line, "sasl-outcome {code:?}"),
        Event::Opened(open) => write!(line, "opened {}", open.container_id),
        Event::SessionBegun { session, ours } => {
            write!(line, "begun {}{}", session.0, if *ours { " ours" } else { "" })
        }
        Event::Attached { link, session, attach } => {
            write!(line, "attached {} s={} {}", link.0, session.0, attach.name)
        }
        Event::AttachConfirmed { link, attach } => {
            let null = if attach.source.is_none() && attach.target.is_none() { " null" } else { "" };
            write!(line, "confirmed {}{null}", link.0)
        }
        Event::LinkFlow { link, credit, available, drain } => {
            let available = if *available > 0 { format!(" available={available}") } else { String::new() };
            let drain = if *drain { " drain" } else { "" };
            write!(line, "flow {} credit={credit}{available}{drain}", link.0)
        }
        Event::SessionFlow { session } => write!(line, "window {}", session.0),
        Event::Message(message) => {
            let settled = if message.settled { " settled" } else { "" };
            let transaction = if message.transaction.is_some() { " transactional" } else { "" };
            let size = message.payload.bytes().len();
            write!(
                line,
                "message {} id={} size={size}{settled}{transaction}",
                message.link.0, message.delivery_id
            )
        }
        Event::Disposition { state, settled } => {
            write!(
                line,
                "disposition{}{}",
                describe_state(state.as_ref()),
                if *settled { " settled" } else { "" }
            )
        }
        Event::Detached { link, closed, cause, error } => {
            let closed = if *closed { " closed" } else { "" };
            write!(line, "detached {}{closed} {cause:?}{}", link.0, describe_error(error.as_ref()))
        }
        Event::Ended { session, error } => {
            write!(line, "ended {}{}", session.0, describe_error(error.as_ref()))
        }
        Event::Closed { error } => write!(line, "closed{}", describe_error(error.as_ref())),
    };
    described.unwrap();
}

fn describe_error(error: Option<&Error<'_>>) -> String {
    error.map(|error| format!(" {}", error.condition)).unwrap_or_default()
}

fn describe_state(state: Option<&DeliveryState<'_>>) -> String {
    match state {
        None => String::new(),
        Some(DeliveryState::Accepted) => " accepted".into(),
        Some(DeliveryState::Released) => " released".into(),
        Some(DeliveryState::Rejected { error }) => format!(" rejected{}", describe_error(error.as_ref())),
        Some(DeliveryState::Modified(modified)) => {
            let failed = if modified.delivery_failed { " failed" } else { "" };
            format!(" modified{failed}{}", if modified.undeliverable_here { " elsewhere" } else { "" })
        }
        Some(DeliveryState::Received(_)) => " received".into(),
        Some(DeliveryState::Declared { .. }) => " declared".into(),
        Some(DeliveryState::Transactional { .. }) => " transactional".into(),
    }
}

fn describe_frame(line: &mut String, frame: &Frame<'_>) {
    if frame.channel > 0 {
        write!(line, "ch={} ", frame.channel).unwrap();
    }
    if frame.body.is_empty() {
        line.push_str("empty");
        return;
    }
    if frame.kind == FrameKind::Sasl {
        let described = match SaslPerformative::decode(frame.body).unwrap() {
            SaslPerformative::Mechanisms(sasl) => format!("sasl-mechanisms {:?}", sasl.mechanisms),
            SaslPerformative::Init(sasl) => {
                let response = sasl.initial_response.map(|response| response.escape_ascii().to_string());
                format!("sasl-init {} {}", sasl.mechanism, response.unwrap_or_default()).trim_end().into()
            }
            SaslPerformative::Challenge(_) => "sasl-challenge".into(),
            SaslPerformative::Response(_) => "sasl-response".into(),
            SaslPerformative::Outcome(sasl) => format!("sasl-outcome {:?}", sasl.code),
        };
        line.push_str(&described);
        return;
    }
    let (performative, payload) = Performative::decode(frame.body).unwrap();
    describe_performative(line, &performative, payload);
}

fn describe_performative(line: &mut String, performative: &Performative<'_>, payload: &[u8]) {
    let optional =
        |key: &str, value: Option<u32>| value.map(|value| format!(" {key}={value}")).unwrap_or_default();
    let flag = |name: &str, set: bool| if set { format!(" {name}") } else { String::new() };
    let described = match performative {
        Performative::Open(open) => {
            write!(line, "open {}{}", open.container_id, optional("idle", open.idle_time_out))
        }
        Performative::Begin(begin) => {
            write!(line, "begin{}", optional("remote", begin.remote_channel.map(u32::from)))
        }
        Performative::Attach(attach) => {
            let role = if attach.role == Role::Sender { "sender" } else { "receiver" };
            let null = flag("null", attach.source.is_none() && attach.target.is_none());
            let anonymous =
                matches!(attach.target, Some(TargetArchetype::Target(Target { address: None, .. })));
            let second = flag("second", attach.rcv_settle_mode == ReceiverSettleMode::Second);
            let unsettled = flag("unsettled", attach.unsettled.is_some());
            let anonymous = flag("anonymous", anonymous);
            write!(
                line,
                "attach h={} {role} {}{null}{anonymous}{second}{unsettled}",
                attach.handle, attach.name
            )
        }
        Performative::Flow(flow) => write!(
            line,
            "flow{}{}{}{}{}{} window={}",
            optional("h", flow.handle),
            optional("dc", flow.delivery_count),
            optional("credit", flow.link_credit),
            optional("available", flow.available.filter(|&available| available > 0)),
            flag("drain", flow.drain),
            optional("nii", flow.next_incoming_id),
            flow.incoming_window
        ),
        Performative::Transfer(transfer) => write!(
            line,
            "transfer h={}{} size={}{}{}{}",
            transfer.handle,
            optional("id", transfer.delivery_id),
            payload.len(),
            flag("settled", transfer.settled == Some(true)),
            flag("more", transfer.more),
            flag("aborted", transfer.aborted)
        ),
        Performative::Disposition(disposition) => {
            let role = if disposition.role == Role::Sender { "sender" } else { "receiver" };
            let last = disposition.last.map(|last| format!("..{last}")).unwrap_or_default();
            let settled = flag("settled", disposition.settled);
            let state = describe_state(disposition.state.as_ref());
            write!(line, "disposition {role} {}{last}{settled}{state}", disposition.first)
        }
        Performative::Detach(detach) => {
            let error = describe_error(detach.error.as_ref());
            write!(line, "detach h={}{}{error}", detach.handle, flag("closed", detach.closed))
        }
        Performative::End(end) => write!(line, "end{}", describe_error(end.error.as_ref())),
        Performative::Close(close) => write!(line, "close{}", describe_error(close.error.as_ref())),
    };
    described.unwrap();
}

/// A server's configuration that wants SASL.
pub(super) fn sasl_config(required: bool) -> Config {
    let mechanisms = vec!["PLAIN".into(), "SCRAM-SHA-256".into()];
    Config { sasl: Sasl::Server { mechanisms, required }, ..config() }
}
