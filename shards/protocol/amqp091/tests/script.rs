//! What does one side answer to these frames and commands?
//!
//! Input is a list of steps, one a line or between semicolons: frames of the peer (`ack 3 multiple`), commands of
//! the caller (`!settle 1 accepted`), time (`wait 500`, in milliseconds). Output is what the side wrote (`> deliver 1 tag=t`)
//! and told its caller (`* message 1`), one a line; each step ends with `finish_turn`. Channels are 1 unless `ch` says otherwise,
//! and are shown when they are not 1.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use corelane_wire::amqp091::{
    Encode, FieldValue, Frame, FrameKind, HEARTBEAT, Method, PropertyFields, ReplyCode, ShortStr, Table,
    TableWriter, access, basic, begin_frame, channel, confirm, connection, exchange, finish_frame, queue, tx,
    write_body, write_content_header, write_method,
};

use crate::amqp091::{
    Config, Connection, ErrorSpec, Event, LinkId, Login, Message, Outcome, Outgoing, Payload, Progress,
    Publication, Reply, Request, SessionId, Token,
};

/// A configuration with small figures.
pub(super) fn config() -> Config {
    Config {
        frame_max: 4096,
        channel_max: 7,
        heartbeat: 0,
        handshake_timeout_us: None,
        links_max: 16,
        max_message_size: 20_000,
        unsettled_max: 8,
        unconfirmed_max: 8,
        assembly_size_max: 25_000,
        parked_size_max: 2_000,
        ..Config::default()
    }
}

/// What brings a new server to an open connection with one channel.
pub(super) const OPENED: &str = "header; start-ok; tune-ok; c.open; open";

/// Runs the steps against a server, past its handshake and with one channel.
#[track_caller]
pub(super) fn check(input: &str, expect: &str) {
    check_with(config(), OPENED, input, expect);
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
    /// Requests, consumes and logins are left for commands.
    manual: bool,
    sent: u64,
}

/// A step's name, its plain words and its `key=value` words.
pub(super) struct Step<'a> {
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

    fn text(&self, key: &str) -> ShortStr<'a> {
        ShortStr::new(self.values.get(key).unwrap_or(&"").as_bytes()).unwrap()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.values.get(key).map(|value| value.parse().unwrap())
    }

    /// The first word that is a number.
    fn first(&self) -> u64 {
        self.words.iter().find_map(|word| word.parse().ok()).unwrap_or(0)
    }

    fn outcome(&self) -> Outcome {
        match () {
            () if self.has("accepted") => Outcome::Accepted,
            () if self.has("released") => Outcome::Released,
            () => Outcome::Rejected,
        }
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
            // Steps with a plus arrive together.
            for part in line.split(" + ") {
                let step = Step::parse(part);
                match step.name.strip_prefix('!') {
                    Some(command) => self.command(command, &step),
                    None if step.name == "wait" => self.wait(step.first() * 1000),
                    None => encode(&step, &mut self.inbox),
                }
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

    fn command(&mut self, command: &str, step: &Step<'_>) {
        let connection = &mut self.connection;
        let link = LinkId(step.number("l").unwrap_or(0) as u32);
        let session = SessionId(step.number("ch").unwrap_or(1) as u32);
        let error = step.number("code").map(|code| ErrorSpec {
            reply_code: ReplyCode::from_code(code as u16).unwrap(),
            text: "because",
        });
        match command {
            "manual" => self.manual = true,
            "auto" => self.manual = false,
            "login" => connection.sasl_outcome(step.has("ok")),
            "challenge" => connection.sasl_challenge(b"more"),
            "accept-open" => connection.accept_open(),
            "close" => connection.close(error),
            "lost" => connection.handle_lost(),
            "reading" => connection.set_reading(self.now, step.has("on")),
            "reply" => connection.reply(session, reply(step)),
            "fail" => connection.fail(session, error.unwrap()),
            "accept" => connection.accept_consume(link),
            "empty" => connection.get_empty(link),
            "cancel" => connection.cancel(link),
            "settle" => connection.settle(link, step.first() as u32, step.outcome()),
            "blocked" => connection.set_blocked(step.words.first().copied()),
            "return" => {
                let message = Publication {
                    exchange: step.text("x"),
                    routing_key: step.text("k"),
                    properties: PropertyFields::default(),
                    body: &[b"body"],
                };
                connection.return_message(link, ReplyCode::NoRoute, &message);
            }
            "send" => self.send(step, link),
            "ready" => {
                let readiness = connection.can_send(link);
                self.note(format!("= {readiness:?}"));
            }
            "credit" => {
                let credit = connection.credit(link);
                self.note(format!("= {credit}"));
            }
            "full" => {
                let full = connection.is_full();
                self.note(format!("= {full}"));
            }
            "last-queue" => {
                let queue = connection.last_queue(session).to_string();
                self.note(format!("= {queue}"));
            }
            // Of a client.
            "open" => {
                let session = connection.open_channel().map(|session| session.0);
                self.note(format!("= {session:?}"));
            }
            "close-channel" => connection.close_channel(session, error),
            "publish" => {
                let body = vec![b'x'; step.number("size").unwrap_or(1) as usize];
                let message = Publication {
                    exchange: step.text("x"),
                    routing_key: step.text("k"),
                    properties: PropertyFields::default(),
                    body: &[&body],
                };
                let done = connection.publish(session, step.has("mandatory"), &message);
                self.note(format!("= {done}"));
            }
            "call" => {
                let done = connection.call(session, &tx::Select {});
                self.note(format!("= {done}"));
            }
            _ => panic!("no command {command}"),
        }
    }

    fn send(&mut self, step: &Step<'_>, link: LinkId) {
        for _ in 0..step.number("count").unwrap_or(1) {
            let body = vec![b'x'; step.number("size").unwrap_or(1) as usize];
            let properties = vec![0; step.number("properties").unwrap_or(2) as usize];
            let outgoing = Outgoing {
                token: Token(self.sent, 0),
                redelivered: step.has("redelivered"),
                exchange: step.text("x"),
                routing_key: step.text("k"),
                properties: PropertyFields::new(&properties),
                body: &[&body[..body.len() / 2], &body[body.len() / 2..]],
                message_count: 5,
            };
            let progress = self.connection.send(link, &outgoing);
            if let Progress::Complete { .. } = progress {
                self.sent += 1;
            } else {
                self.note(format!("= {progress:?}"));
            }
        }
    }

    fn take_events(&mut self) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut input = &inbox[..];
        loop {
            while let Some(event) = self.connection.receive(self.now, &mut input) {
                self.take_event(event);
            }
            if !self.connection.has_parked() {
                break;
            }
            let mut scratch = Vec::new();
            while self.connection.has_parked() {
                if let Some(event) = self.connection.receive_parked(self.now, &mut scratch) {
                    self.take_event(event);
                }
            }
        }
        self.inbox = input.to_vec();
    }

    fn take_event(&mut self, event: Event<'_>) {
        let mut line = String::new();
        describe_event(&mut line, &event);
        self.note_output();
        self.log.push(format!("* {line}").trim_end().to_owned());
        self.answer(event);
    }

    fn answer(&mut self, event: Event<'_>) {
        let connection = &mut self.connection;
        match event {
            Event::SaslInit { .. } | Event::SaslResponse(_) if !self.manual => connection.sasl_outcome(true),
            Event::Opened { .. } if !self.manual => connection.accept_open(),
            Event::Request { session, request } if !self.manual => match request {
                Request::QueueDeclare(declare) => {
                    let declared =
                        Reply::Declared { queue: declare.queue, message_count: 1, consumer_count: 2 };
                    connection.reply(session, declared);
                }
                Request::QueuePurge(_) | Request::QueueDelete(_) => {
                    connection.reply(session, Reply::Removed { message_count: 3 });
                }
                _ => connection.reply(session, Reply::Done),
            },
            Event::Consume { link, .. } if !self.manual => connection.accept_consume(link),
            Event::Get { link, .. } if !self.manual => connection.get_empty(link),
            Event::Message(Message { link, head, payload, .. }) => {
                if head.routing_key() == "nowhere" {
                    let error = ErrorSpec { reply_code: ReplyCode::NotFound, text: "no exchange" };
                    let session = SessionId(connection.links[link.0 as usize].channel.into());
                    connection.fail(session, error);
                }
                connection.recycle_head(head);
                if let Payload::Assembled(buffer) = payload {
                    connection.recycle(buffer);
                }
            }
            Event::Disposition { .. } => {
                while let Some(disposed) = connection.poll_outcome() {
                    let (link, token) = (disposed.link.0, disposed.token.0);
                    self.log.push(format!("* outcome l={link} {token}"));
                }
            }
            _ => {}
        }
        self.note_output();
    }

    /// What a command returned comes behind what it wrote.
    fn note(&mut self, line: String) {
        self.note_output();
        self.log.push(line.trim_end().to_owned());
    }

    fn note_output(&mut self) {
        let output = std::mem::take(self.connection.output());
        let mut rest = &output[..];
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(b"AMQP\x00\x00\x09\x01") {
                rest = behind;
                self.log.push("> header".into());
                continue;
            }
            let frame = Frame::take(&mut rest, 1 << 20).expect("frames").expect("whole frames");
            let mut line = String::from(">");
            describe_frame(&mut line, &frame);
            self.log.push(line);
        }
    }
}

fn reply<'a>(step: &Step<'a>) -> Reply<'a> {
    match (step.values.contains_key("q"), step.number("removed")) {
        (true, _) => Reply::Declared { queue: step.text("q"), message_count: 1, consumer_count: 2 },
        (false, Some(count)) => Reply::Removed { message_count: count as u32 },
        (false, None) => Reply::Done,
    }
}

pub(super) fn encode_line(line: &str, out: &mut Vec<u8>) {
    encode(&Step::parse(line), out);
}

/// Appends the frames of a step.
fn encode(step: &Step<'_>, out: &mut Vec<u8>) {
    let number = step.number("ch").unwrap_or(1) as u16;
    let no_wait = step.has("nowait");
    let (queue, routing_key, exchange) = (step.text("q"), step.text("k"), step.text("x"));
    let close_text = ShortStr::literal("because");
    let mut put = |method: &dyn Fn(&mut Vec<u8>)| {
        let start = begin_frame(out, FrameKind::Method, number);
        method(out);
        finish_frame(out, start);
    };
    macro_rules! put {
        ($method:expr) => {{
            let method = $method;
            put(&|out| method.encode(out))
        }};
    }
    match step.name {
        "declare" => {
            put!(queue::Declare { queue, passive: step.has("passive"), no_wait, ..Default::default() })
        }
        "bind" => put!(queue::Bind { queue, exchange, routing_key, no_wait, ..Default::default() }),
        "unbind" => put!(queue::Unbind { queue, exchange, routing_key, ..Default::default() }),
        "purge" => put!(queue::Purge { queue, no_wait }),
        "delete" => put!(queue::Delete { queue, no_wait, ..Default::default() }),
        "x.declare" => put!(exchange::Declare { exchange, no_wait, ..Default::default() }),
        "x.delete" => put!(exchange::Delete { exchange, no_wait, ..Default::default() }),
        "x.bind" => put!(exchange::Bind { source: exchange, no_wait, ..Default::default() }),
        "x.unbind" => put!(exchange::Unbind { source: exchange, no_wait, ..Default::default() }),
        "qos" => put!(basic::Qos {
            prefetch_size: step.number("size").unwrap_or(0) as u32,
            prefetch_count: step.first() as u16,
            global: step.has("global"),
        }),
        "consume" => put!(basic::Consume {
            queue,
            consumer_tag: step.text("tag"),
            no_ack: step.has("noack"),
            no_wait,
            ..Default::default()
        }),
        "cancel" => put!(basic::Cancel { consumer_tag: step.text("tag"), no_wait }),
        "cancel-ok" => put!(basic::CancelOk { consumer_tag: step.text("tag") }),
        "get" => put!(basic::Get { queue, no_ack: step.has("noack") }),
        "ack" => put!(basic::Ack { delivery_tag: step.first(), multiple: step.has("multiple") }),
        "nack" => put!(basic::Nack {
            delivery_tag: step.first(),
            multiple: step.has("multiple"),
            requeue: step.has("requeue"),
        }),
        "reject" => put!(basic::Reject { delivery_tag: step.first(), requeue: step.has("requeue") }),
        "recover" => put!(basic::Recover { requeue: step.has("requeue") }),
        "recover-async" => put!(basic::RecoverAsync { requeue: step.has("requeue") }),
        "confirm" => put!(confirm::Select { no_wait }),
        "tx.select" => put!(tx::Select {}),
        "tx.commit" => put!(tx::Commit {}),
        "tx.rollback" => put!(tx::Rollback {}),
        "access" => put!(access::Request::default()),
        "open" => put!(channel::Open {}),
        "open-ok" => put!(channel::OpenOk {}),
        "close" => put!(channel::Close {
            reply_code: step.number("code").unwrap_or(200) as u16,
            reply_text: close_text,
            ..Default::default()
        }),
        "close-ok" => put!(channel::CloseOk {}),
        "flow" => put!(channel::Flow { active: step.has("on") }),
        "flow-ok" => put!(channel::FlowOk { active: step.has("on") }),
        "deliver" => put!(basic::Deliver {
            consumer_tag: step.text("tag"),
            delivery_tag: step.first(),
            redelivered: step.has("redelivered"),
            exchange,
            routing_key,
        }),
        "get-ok" => put!(basic::GetOk {
            delivery_tag: step.first(),
            redelivered: false,
            exchange,
            routing_key,
            message_count: 5,
        }),
        "get-empty" => put!(basic::GetEmpty {}),
        "return" => put!(basic::Return { reply_code: 312, reply_text: close_text, exchange, routing_key }),
        "publish" | "message" => {
            let (mandatory, immediate) = (step.has("mandatory"), step.has("immediate"));
            put!(basic::Publish { exchange, routing_key, mandatory, immediate });
            if step.name == "message" {
                let body = vec![b'b'; step.number("size").unwrap_or(1) as usize];
                write_content_header(out, number, body.len() as u64, PropertyFields::default());
                write_body(out, number, &body, step.number("frame").unwrap_or(4096) as u32);
            }
        }
        "head" => {
            let size = step.number("size").unwrap_or(1);
            write_content_header(out, number, size, PropertyFields::default());
        }
        "body" => write_body(out, number, &vec![b'b'; step.number("size").unwrap_or(1) as usize], 4096),
        _ => encode_connection(step, out),
    }
}

fn encode_connection(step: &Step<'_>, out: &mut Vec<u8>) {
    let number = step.number("ch").unwrap_or(0) as u16;
    match step.name {
        "header" => out.extend_from_slice(b"AMQP\x00\x00\x09\x01"),
        "heartbeat" => out.extend_from_slice(&HEARTBEAT),
        "text" => out.extend_from_slice(step.words[0].as_bytes()),
        "bytes" => out.extend(step.words.iter().map(|byte| u8::from_str_radix(byte, 16).unwrap())),
        "start" => {
            let start = connection::Start {
                version_minor: 9,
                mechanisms: b"AMQPLAIN PLAIN",
                locales: b"en_US",
                ..Default::default()
            };
            write_method(out, number, &start);
        }
        "secure" => write_method(out, number, &connection::Secure { challenge: b"more" }),
        "start-ok" => {
            let mut properties = Vec::new();
            let mut table = TableWriter::new(&mut properties);
            table.table(ShortStr::literal("capabilities"), |table| {
                for (word, name) in [
                    ("cancels", "consumer_cancel_notify"),
                    ("blocks", "connection.blocked"),
                    ("failures", "authentication_failure_close"),
                ] {
                    table.pair(ShortStr::literal(name), FieldValue::Boolean(step.has(word)));
                }
            });
            let mechanism = *step.values.get("mechanism").unwrap_or(&"PLAIN");
            let mut response = step.values.get("response").unwrap_or(&".u.p").replace('.', "\0").into_bytes();
            if step.has("table") {
                response.clear();
                let mut table = TableWriter::new(&mut response);
                table.pair(ShortStr::literal("LOGIN"), FieldValue::LongString(b"u"));
                table.pair(ShortStr::literal("PASSWORD"), FieldValue::LongString(b"p"));
            }
            let start_ok = connection::StartOk {
                client_properties: Table::new(&properties),
                mechanism: ShortStr::cut(mechanism),
                response: &response,
                locale: ShortStr::literal("en_US"),
            };
            write_method(out, number, &start_ok);
        }
        "secure-ok" => write_method(out, number, &connection::SecureOk { response: b"\0u\0p" }),
        "tune" => {
            let tune = connection::Tune {
                channel_max: step.number("channels").unwrap_or(0) as u16,
                frame_max: step.number("frame").unwrap_or(0) as u32,
                heartbeat: step.number("heartbeat").unwrap_or(0) as u16,
            };
            write_method(out, number, &tune);
        }
        "tune-ok" => {
            let tune_ok = connection::TuneOk {
                channel_max: step.number("channels").unwrap_or(0) as u16,
                frame_max: step.number("frame").unwrap_or(0) as u32,
                heartbeat: step.number("heartbeat").unwrap_or(0) as u16,
            };
            write_method(out, number, &tune_ok);
        }
        "c.open" => {
            let virtual_host = *step.values.get("vhost").unwrap_or(&"/");
            write_method(out, number, &connection::Open { virtual_host: ShortStr::cut(virtual_host) });
        }
        "c.open-ok" => write_method(out, number, &connection::OpenOk {}),
        "c.close" => {
            let reply_code = step.number("code").unwrap_or(200) as u16;
            let reply_text = ShortStr::literal("because");
            write_method(out, number, &connection::Close { reply_code, reply_text, ..Default::default() });
        }
        "c.close-ok" => write_method(out, number, &connection::CloseOk {}),
        "update-secret" => write_method(out, number, &connection::UpdateSecret::default()),
        "c.blocked" => write_method(out, number, &connection::Blocked { reason: ShortStr::literal("full") }),
        "c.unblocked" => write_method(out, number, &connection::Unblocked {}),
        name => panic!("no step {name}"),
    }
}

fn describe_frame(line: &mut String, frame: &Frame<'_>) {
    if frame.channel > 1 {
        write!(line, " ch={}", frame.channel).unwrap();
    }
    match frame.kind {
        FrameKind::Heartbeat => line.push_str(" heartbeat"),
        FrameKind::Header => {
            let header = corelane_wire::amqp091::ContentHeader::decode(frame.payload).unwrap();
            write!(line, " head {}", header.body_size).unwrap();
        }
        FrameKind::Body => write!(line, " body {}", frame.payload.len()).unwrap(),
        FrameKind::Method => describe_method(line, &Method::decode(frame.payload).unwrap()),
    }
}

fn describe_method(line: &mut String, method: &Method<'_>) {
    use basic::Method as Basic;
    let name = method.id().name().unwrap();
    let name = name.strip_prefix("basic.").unwrap_or(name);
    write!(line, " {name}").unwrap();
    let mut flag = |is_set: bool, name: &str| {
        if is_set {
            write!(line, " {name}").unwrap();
        }
    };
    match method {
        Method::Basic(Basic::Ack(ack)) => {
            flag(true, &ack.delivery_tag.to_string());
            flag(ack.multiple, "multiple");
        }
        Method::Basic(Basic::Nack(nack)) => {
            flag(true, &nack.delivery_tag.to_string());
            flag(nack.multiple, "multiple");
        }
        Method::Basic(Basic::Deliver(deliver)) => {
            flag(true, &deliver.delivery_tag.to_string());
            flag(true, &format!("tag={}", deliver.consumer_tag));
            flag(deliver.redelivered, "redelivered");
            flag(!deliver.exchange.is_empty(), &format!("x={}", deliver.exchange));
            flag(!deliver.routing_key.is_empty(), &format!("k={}", deliver.routing_key));
        }
        Method::Basic(Basic::GetOk(got)) => {
            flag(true, &format!("{} left={}", got.delivery_tag, got.message_count));
            flag(got.redelivered, "redelivered");
        }
        Method::Basic(Basic::Return(returned)) => {
            flag(true, &format!("{} {}", returned.reply_code, returned.reply_text));
            flag(true, &format!("k={}", returned.routing_key));
        }
        Method::Basic(Basic::ConsumeOk(ok)) => flag(true, &format!("tag={}", ok.consumer_tag)),
        Method::Basic(Basic::CancelOk(ok)) => flag(true, &format!("tag={}", ok.consumer_tag)),
        Method::Basic(Basic::Cancel(cancel)) => flag(true, &format!("tag={}", cancel.consumer_tag)),
        Method::Queue(queue::Method::DeclareOk(ok)) => {
            flag(true, &format!("q={} {} {}", ok.queue, ok.message_count, ok.consumer_count));
        }
        Method::Queue(queue::Method::PurgeOk(ok)) => flag(true, &ok.message_count.to_string()),
        Method::Queue(queue::Method::DeleteOk(ok)) => flag(true, &ok.message_count.to_string()),
        Method::Channel(channel::Method::Close(close)) => {
            let by =
                corelane_wire::amqp091::MethodId { class_id: close.class_id, method_id: close.method_id };
            flag(true, &format!("{} ({}) by {by}", close.reply_code, close.reply_text));
        }
        Method::Connection(connection::Method::Close(close)) => {
            let by =
                corelane_wire::amqp091::MethodId { class_id: close.class_id, method_id: close.method_id };
            flag(true, &format!("{} ({}) by {by}", close.reply_code, close.reply_text));
        }
        Method::Channel(channel::Method::FlowOk(ok)) => flag(true, if ok.active { "on" } else { "off" }),
        Method::Connection(connection::Method::Start(start)) => {
            flag(true, &String::from_utf8_lossy(start.mechanisms));
        }
        Method::Connection(connection::Method::StartOk(start_ok)) => {
            let response = start_ok.response.escape_ascii();
            flag(true, &format!("{} {response}", start_ok.mechanism));
        }
        Method::Connection(connection::Method::Tune(tune)) => {
            flag(true, &format!("{} {} {}", tune.channel_max, tune.frame_max, tune.heartbeat));
        }
        Method::Connection(connection::Method::TuneOk(tune)) => {
            flag(true, &format!("{} {} {}", tune.channel_max, tune.frame_max, tune.heartbeat));
        }
        Method::Connection(connection::Method::Open(open)) => flag(true, &open.virtual_host.to_string()),
        Method::Connection(connection::Method::Blocked(blocked)) => flag(true, &blocked.reason.to_string()),
        _ => {}
    }
}

fn describe_event(line: &mut String, event: &Event<'_>) {
    let told = match event {
        Event::SaslInit { mechanism, initial_response } => {
            let response = initial_response.as_ref().map(|response| response.escape_ascii().to_string());
            format!("sasl-init {mechanism} {}", response.as_deref().unwrap_or("-"))
        }
        Event::SaslResponse(response) => format!("sasl-response {}", response.escape_ascii()),
        Event::Opened { virtual_host } => format!("opened {virtual_host}"),
        Event::ChannelOpened { session, publisher } => format!("channel {} l={}", session.0, publisher.0),
        Event::Request { session, request } => format!("request {} {}", session.0, name_of(request)),
        Event::Consume { link, session, consume } => {
            format!("consume {} l={} q={}", session.0, link.0, consume.queue)
        }
        Event::Get { link, session, queue, no_ack } => {
            format!("get {} l={} q={queue}{}", session.0, link.0, if *no_ack { " noack" } else { "" })
        }
        Event::Cancel { link } => format!("cancel l={}", link.0),
        Event::Message(message) => describe_message(message),
        Event::Disposition { outcome, transaction, .. } => {
            format!("{outcome:?}{}", if *transaction { " in transaction" } else { "" }).to_lowercase()
        }
        Event::LinkFlow { link } => format!("link-flow l={}", link.0),
        Event::SessionFlow { session } => format!("session-flow {}", session.0),
        Event::Detached { link } => format!("detached l={}", link.0),
        Event::Ended { session, error } => {
            format!("ended {}{}", session.0, code_of(error.as_ref().map(|error| error.reply_code)))
        }
        Event::Answered { session, method } => {
            let mut line = format!("answered {}", session.0);
            describe_method(&mut line, method);
            line
        }
        Event::Delivery(delivery) => format!(
            "{:?} tag={} k={} {}",
            delivery.kind,
            delivery.head.consumer_tag(),
            delivery.head.routing_key(),
            delivery.payload.bytes().len()
        ),
        Event::Blocked { reason } => format!("blocked {reason}"),
        Event::Unblocked => "unblocked".into(),
        Event::Closed { error } => {
            format!("closed{}", code_of(error.as_ref().map(|error| error.reply_code)))
        }
    };
    line.push_str(&told);
}

fn describe_message(message: &Message<'_>) -> String {
    let mut line = format!("message l={} {}", message.link.0, message.delivery_id);
    let (exchange, routing_key) = (message.head.exchange(), message.head.routing_key());
    if !exchange.is_empty() {
        write!(line, " x={exchange}").unwrap();
    }
    write!(line, " k={routing_key} {}", message.payload.bytes().len()).unwrap();
    assert_eq!(message.head.properties(), PropertyFields::default());
    assert!(message.head.consumer_tag().is_empty());
    for (flag, name) in [
        (message.settled, " settled"),
        (message.mandatory, " mandatory"),
        (message.transaction, " in transaction"),
        (matches!(message.payload, Payload::Assembled(_)), " assembled"),
    ] {
        line.push_str(if flag { name } else { "" });
    }
    line
}

fn code_of(code: Option<u16>) -> String {
    code.map_or(String::new(), |code| format!(" {code}"))
}

fn name_of(request: &Request<'_>) -> String {
    let text = format!("{request:?}");
    text.split('(').next().unwrap().to_owned()
}

/// A client's configuration.
pub(super) fn client_config() -> Config {
    let login = Login::Plain { user: "u".into(), password: "p".into() };
    Config { login, ..config() }
}
