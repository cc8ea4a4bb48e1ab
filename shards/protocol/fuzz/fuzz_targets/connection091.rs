//! Does any peer of AMQP 0-9-1, with any caller, break a connection?
//!
//! The first byte chooses role and limits; then each byte chooses a step: raw bytes, frames whose fields come from small ranges
//! (so that channels, tags and names meet), or a command of the caller, who answers what it is asked at once or later. After each
//! step the connection's own invariants hold, and `Watch` reads what it wrote as a strict peer would.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use corelane_protocol::amqp091::{
    Config, Connection, ErrorSpec, Event, LinkId, Login, Outcome, Outgoing, Payload, Publication, Reply,
    SessionId, Token,
};
use corelane_wire::amqp091::{
    ContentHeader, Encode, Frame, FrameKind, HEARTBEAT, Method, PropertyFields, ReplyCode, ShortStr, access,
    basic, channel, confirm, connection, exchange, queue, tx, write_body, write_content_header, write_method,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut world = World::new(data);
    while let Some(step) = world.input.byte() {
        world.step(step);
        world.take_events();
        if step % 3 == 0 {
            world.connection.finish_turn(world.now);
        }
        world.watch.read(world.connection.output());
        world.connection.verify();
    }
    world.connection.handle_lost();
    world.take_events();
    world.connection.verify();
    assert!(world.closed && world.links.is_empty() && world.sessions.is_empty(), "the end is told");
});

struct Input<'d>(&'d [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::from(self.byte().unwrap_or(0)) % bound
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Mostly small; sometimes at the borders.
    fn tag(&mut self) -> u64 {
        match self.byte().unwrap_or(0) {
            252 => u64::MAX,
            253 => 1 << 32,
            254 => (1 << 32) + 1,
            255 => 1 << 31,
            small => u64::from(small % 12),
        }
    }

    fn name(&mut self) -> ShortStr<'static> {
        [ShortStr::EMPTY, ShortStr::literal("a"), ShortStr::literal("b"), ShortStr::literal("amq.ctag-1.1")]
            [self.below(4) as usize]
    }
}

struct World<'d> {
    input: Input<'d>,
    connection: Connection,
    inbox: Vec<u8>,
    now: u64,
    watch: Watch,
    links: BTreeSet<LinkId>,
    sessions: BTreeSet<SessionId>,
    /// Published and to be confirmed.
    held: Vec<(LinkId, u32)>,
    /// Unsettled deliveries by their tokens.
    sent: BTreeMap<u64, LinkId>,
    sent_last: u64,
    closed: bool,
    patient: bool,
}

impl<'d> World<'d> {
    fn new(data: &'d [u8]) -> Self {
        let mut input = Input(data);
        let kind = input.byte().unwrap_or(0);
        let server = kind & 1 == 0;
        let login = match kind & 2 {
            _ if server => Login::Server { mechanisms: vec!["PLAIN".into(), "AMQPLAIN".into()] },
            0 => Login::Plain { user: "u".into(), password: "p".into() },
            _ => Login::AmqPlain { user: "u".into(), password: "p".into() },
        };
        let config = Config {
            login,
            frame_max: 4096,
            channel_max: 3,
            heartbeat: 2,
            links_max: 9,
            max_message_size: 9000,
            unsettled_max: 6,
            unconfirmed_max: 4,
            assembly_size_max: 10_000,
            parked_size_max: 500,
            ..Config::default()
        };
        let connection = if server { Connection::server(config, 0) } else { Connection::client(config, 0) };
        Self {
            input,
            connection,
            inbox: Vec::new(),
            now: 0,
            watch: Watch { server, ..Watch::default() },
            links: BTreeSet::new(),
            sessions: BTreeSet::new(),
            held: Vec::new(),
            sent: BTreeMap::new(),
            sent_last: 0,
            closed: false,
            patient: kind & 0x80 != 0,
        }
    }

    fn step(&mut self, step: u8) {
        match step {
            0..12 => {
                let size = usize::from(step) * 2 + 1;
                let (raw, rest) = self.input.0.split_at(size.min(self.input.0.len()));
                self.inbox.extend_from_slice(raw);
                self.input.0 = rest;
            }
            12..24 => self.preamble(step - 12),
            24..190 => self.frame(step),
            190..=255 => self.command(step),
        }
    }

    /// What stands before channels, so that they are reached soon.
    fn preamble(&mut self, kind: u8) {
        let responses: [&[u8]; 3] = [b"", b"\0u\0p", b"\x05LOGINS\0\0\0\x01u\x08PASSWORDS\0\0\0\x01p"];
        let response = responses[self.input.below(3) as usize];
        let mechanism = ShortStr::literal(["PLAIN", "AMQPLAIN", "X"][self.input.below(3) as usize]);
        match kind {
            0 => self.inbox.extend_from_slice(b"AMQP\x00\x00\x09\x01"),
            1 => self.put(0, &connection::StartOk { mechanism, response, ..Default::default() }),
            2 => self.put(0, &connection::SecureOk { response }),
            3 => self.put(0, &connection::TuneOk { heartbeat: 1, ..Default::default() }),
            4 => self.put(0, &connection::Open { virtual_host: ShortStr::literal("/") }),
            5 => self.put(0, &connection::Start { mechanisms: b"PLAIN X", ..Default::default() }),
            6 => self.put(0, &connection::Tune::default()),
            7 => self.put(0, &connection::OpenOk {}),
            8 => {
                self.put(0, &connection::Start { mechanisms: b"PLAIN AMQPLAIN", ..Default::default() });
                self.put(0, &connection::Tune::default());
                self.put(0, &connection::OpenOk {});
            }
            _ => {
                self.inbox.extend_from_slice(b"AMQP\x00\x00\x09\x01");
                let mechanism = ShortStr::literal("PLAIN");
                self.put(0, &connection::StartOk { mechanism, response: b"\0u\0p", ..Default::default() });
                self.put(0, &connection::TuneOk::default());
                self.put(0, &connection::Open { virtual_host: ShortStr::literal("/") });
                self.put(1, &channel::Open {});
            }
        }
    }

    fn put(&mut self, channel: u16, method: &impl Encode) {
        write_method(&mut self.inbox, channel, method);
    }

    fn channel(&mut self) -> u16 {
        if self.input.below(6) == 0 { self.input.below(6) as u16 } else { 1 }
    }

    fn frame(&mut self, step: u8) {
        let number = self.channel();
        let no_wait = self.input.flag();
        match step {
            24..32 => self.put(number, &channel::Open {}),
            32..36 => self.put(number, &channel::Close::default()),
            36..40 => self.put(number, &channel::CloseOk {}),
            40..42 => {
                let active = self.input.flag();
                self.put(number, &channel::Flow { active });
            }
            42..70 => self.content(number),
            70..74 => {
                let size = u64::from(self.input.below(40)) * 100;
                write_content_header(&mut self.inbox, number, size, PropertyFields::default());
            }
            74..78 => {
                let size = self.input.below(40) as usize * 100;
                write_body(&mut self.inbox, number, &vec![b'b'; size], 4096);
            }
            78..100 => {
                let (delivery_tag, multiple) = (self.input.tag(), self.input.flag());
                self.put(number, &basic::Ack { delivery_tag, multiple });
            }
            100..112 => {
                let (delivery_tag, multiple, requeue) =
                    (self.input.tag(), self.input.flag(), self.input.flag());
                self.put(number, &basic::Nack { delivery_tag, multiple, requeue });
            }
            112..116 => {
                let (delivery_tag, requeue) = (self.input.tag(), no_wait);
                self.put(number, &basic::Reject { delivery_tag, requeue });
            }
            116..130 => {
                let (queue, consumer_tag, no_ack) =
                    (self.input.name(), self.input.name(), self.input.below(4) == 0);
                let consume = basic::Consume { queue, consumer_tag, no_ack, no_wait, ..Default::default() };
                self.put(number, &consume);
            }
            130..134 => {
                let consumer_tag = self.input.name();
                self.put(number, &basic::Cancel { consumer_tag, no_wait });
            }
            134..140 => {
                let queue = self.input.name();
                self.put(number, &basic::Get { queue, no_ack: no_wait });
            }
            140..146 => {
                let prefetch_count = self.input.below(4) as u16;
                self.put(number, &basic::Qos { prefetch_size: 0, prefetch_count, global: no_wait });
            }
            146..152 => self.put(number, &basic::Recover { requeue: step > 146 }),
            152..156 => self.put(number, &confirm::Select { no_wait }),
            156..158 => self.put(number, &tx::Select {}),
            158..162 => self.put(number, &tx::Commit {}),
            162..165 => self.put(number, &tx::Rollback {}),
            165..180 => self.request(number, step, no_wait),
            180..182 => self.inbox.extend_from_slice(&HEARTBEAT),
            182 => self.put(0, &connection::Close::default()),
            183 => self.put(0, &connection::CloseOk {}),
            184 => self.put(0, &connection::UpdateSecret::default()),
            185 => self.put(number, &access::Request::default()),
            186 => self.put(number, &channel::OpenOk {}),
            187 => self.put(number, &channel::FlowOk { active: true }),
            188 => self.put(0, &connection::Blocked::default()),
            _ => self.put(number, &basic::CancelOk::default()),
        }
    }

    /// A message, whole or without its end.
    fn content(&mut self, number: u16) {
        let (exchange, routing_key) = (self.input.name(), self.input.name());
        match self.input.below(16) {
            0 => {
                let publish =
                    basic::Publish { exchange, routing_key, mandatory: true, immediate: self.input.flag() };
                self.put(number, &publish);
            }
            1 | 2 => {
                let delivery_tag = self.input.tag();
                let deliver = basic::Deliver { delivery_tag, exchange, routing_key, ..Default::default() };
                self.put(number, &deliver);
            }
            3 => self.put(number, &basic::GetOk { exchange, routing_key, ..Default::default() }),
            4 => self.put(number, &basic::Return { exchange, routing_key, ..Default::default() }),
            _ => self.put(number, &basic::Publish { exchange, routing_key, ..Default::default() }),
        }
        let size = match self.input.byte().unwrap_or(0) {
            255 => 9001,
            254 => 5000,
            other => usize::from(other) % 20,
        };
        let parts = self.input.below(16);
        if parts == 0 {
            return;
        }
        write_content_header(&mut self.inbox, number, size as u64, PropertyFields::default());
        if parts > 1 {
            let frame_max = if parts == 2 { 9 } else { 4096 };
            write_body(&mut self.inbox, number, &vec![b'b'; size], frame_max);
        }
    }

    fn request(&mut self, number: u16, step: u8, no_wait: bool) {
        let (name, other) = (self.input.name(), self.input.name());
        match step {
            165..170 => self.put(number, &queue::Declare { queue: name, no_wait, ..Default::default() }),
            170 => {
                let bind = queue::Bind { queue: name, exchange: other, no_wait, ..Default::default() };
                self.put(number, &bind);
            }
            171 => self.put(number, &queue::Unbind { queue: name, ..Default::default() }),
            172 => self.put(number, &queue::Purge { queue: name, no_wait }),
            173 => self.put(number, &queue::Delete { queue: name, no_wait, ..Default::default() }),
            174 => self.put(number, &exchange::Declare { exchange: name, no_wait, ..Default::default() }),
            175 => self.put(number, &exchange::Delete { exchange: name, no_wait, ..Default::default() }),
            176 => self.put(number, &exchange::Bind { source: name, no_wait, ..Default::default() }),
            177 => self.put(number, &exchange::Unbind { source: name, no_wait, ..Default::default() }),
            _ => self.put(number, &queue::DeclareOk::default()),
        }
    }

    fn command(&mut self, step: u8) {
        let link = LinkId(self.input.below(10));
        let session = SessionId(self.input.below(5));
        let code = ReplyCode::ALL[1 + self.input.below(18) as usize];
        let error = ErrorSpec { reply_code: code, text: "because" };
        let body = vec![b'y'; self.input.below(6) as usize * 1000];
        let publication = Publication {
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::literal("k"),
            properties: PropertyFields::default(),
            body: &[&body, b"end"],
        };
        match step {
            190..210 => self.send(link, &body),
            210..218 => {
                if !self.held.is_empty() {
                    let index = self.input.below(self.held.len() as u32) as usize;
                    let (link, delivery_id) = self.held.remove(index);
                    let outcome = if self.input.flag() { Outcome::Accepted } else { Outcome::Rejected };
                    self.connection.settle(link, delivery_id, outcome);
                }
            }
            218..222 => {
                let queue = self.input.name();
                self.connection.reply(session, Reply::Declared { queue, message_count: 1, consumer_count: 1 });
            }
            222..225 => self.connection.reply(session, Reply::Done),
            225..229 => self.connection.accept_consume(link),
            229..232 => self.connection.get_empty(link),
            232..234 => self.connection.cancel(link),
            234 => self.connection.fail(session, error),
            235 => drop(self.connection.return_message(link, ReplyCode::NoRoute, &publication)),
            236 => self.connection.set_blocked(self.input.flag().then_some("full")),
            237 => self.connection.bound_assembly(self.input.below(20) as usize * 1000),
            238 => self.connection.close(self.input.flag().then_some(error)),
            239 => self.connection.sasl_challenge(b"c"),
            240 => self.connection.sasl_outcome(self.input.flag()),
            241 => self.connection.accept_open(),
            242 => {
                let _ = (self.connection.link_name(link), self.connection.last_queue(session));
                let _ = (self.connection.credit(link), self.connection.connection_name());
            }
            243 => self.connection.write_outcomes(),
            244 | 245 => {
                if let Some(session) = self.connection.open_channel() {
                    assert!(self.sessions.insert(session), "a number is used again when its channel is over");
                }
            }
            246 => self.connection.close_channel(session, Some(error)),
            247 => drop(self.connection.publish(session, true, &publication)),
            248 => drop(self.connection.call(session, &tx::Select {})),
            _ => self.pass_time(),
        }
    }

    fn send(&mut self, link: LinkId, body: &[u8]) {
        use corelane_protocol::amqp091::{Progress, SendReadiness};
        let properties = if self.input.below(16) == 0 { vec![0; 5000] } else { vec![0; 2] };
        let readiness = self.connection.can_send(link);
        self.sent_last += 1;
        let progress = self.connection.send(
            link,
            &Outgoing {
                token: Token(self.sent_last, 0),
                redelivered: false,
                exchange: ShortStr::EMPTY,
                routing_key: ShortStr::EMPTY,
                properties: PropertyFields::new(&properties),
                body: &[body],
                message_count: 0,
            },
        );
        match progress {
            Progress::Complete { settled, .. } => {
                assert_eq!(readiness, SendReadiness::Ready);
                if !settled {
                    self.sent.insert(self.sent_last, link);
                }
            }
            Progress::NotReady(reason) => assert_eq!(readiness, reason),
            Progress::TooLarge | Progress::Partial { .. } => {}
        }
    }

    fn pass_time(&mut self) {
        self.now += 1 << self.input.below(24);
        if let Some(deadline) = self.connection.next_deadline().filter(|&deadline| deadline <= self.now) {
            self.connection.handle_timeout(self.now);
            self.take_events();
            self.connection.finish_turn(self.now);
            let next = self.connection.next_deadline();
            assert!(next.is_none_or(|next| next > self.now), "{deadline} stays due: {next:?}");
        }
    }

    fn take_events(&mut self) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut input = &inbox[..];
        let mut scratch = Vec::new();
        loop {
            while let Some(event) = self.connection.receive(self.now, &mut input) {
                self.answer(event);
                self.watch.read(self.connection.output());
            }
            if !self.connection.has_parked() {
                break;
            }
            if let Some(event) = self.connection.receive_parked(self.now, &mut scratch) {
                self.answer(event);
                self.watch.read(self.connection.output());
            }
        }
        self.inbox = input.to_vec();
        let waits = self.inbox.len() < 20_000 || self.connection.is_full() || self.patient;
        assert!(waits, "input waits only for an answer or for the rest of a frame");
    }

    fn answer(&mut self, event: Event<'_>) {
        assert!(!self.closed, "nothing is told behind the end");
        let now = !self.patient;
        match event {
            Event::SaslInit { .. } | Event::SaslResponse(_) if now => self.connection.sasl_outcome(true),
            Event::Opened { .. } if now => self.connection.accept_open(),
            Event::ChannelOpened { session, publisher } => {
                assert!(self.sessions.insert(session), "a channel is told of once");
                self.bind(publisher);
                self.watch.confirms.remove(&(session.0 as u16));
            }
            Event::Request { session, .. } => {
                assert!(self.sessions.contains(&session));
                if now {
                    self.connection.reply(session, Reply::Removed { message_count: 0 });
                }
            }
            Event::Consume { link, .. } => {
                self.bind(link);
                if now {
                    self.connection.accept_consume(link);
                }
            }
            Event::Get { link, .. } => {
                self.links.insert(link);
                if now {
                    self.send(link, b"got");
                    self.connection.get_empty(link);
                }
            }
            Event::Message(message) => {
                assert!(self.links.contains(&message.link), "messages come on links");
                assert!(message.payload.bytes().len() <= 9000);
                if !message.settled {
                    self.held.push((message.link, message.delivery_id));
                }
                self.connection.recycle_head(message.head);
                if let Payload::Assembled(buffer) = message.payload {
                    self.connection.recycle(buffer);
                }
            }
            Event::Disposition { session, .. } => {
                assert!(self.sessions.contains(&session));
                let mut last = 0;
                while let Some(disposed) = self.connection.poll_outcome() {
                    assert_eq!(self.sent.remove(&disposed.token.0), Some(disposed.link), "told once");
                    assert!(disposed.token.0 > last, "in the order of the tags");
                    last = disposed.token.0;
                }
            }
            Event::LinkFlow { link } | Event::Cancel { link } => assert!(self.links.contains(&link)),
            Event::SessionFlow { session } | Event::Answered { session, .. } => {
                assert!(self.sessions.contains(&session))
            }
            Event::Delivery(delivery) => self.connection.recycle_head(delivery.head),
            Event::Detached { link } => {
                assert!(self.links.remove(&link), "a link is over once");
                self.held.retain(|(held, _)| *held != link);
                self.sent.retain(|_, of| *of != link);
            }
            Event::Ended { session, .. } => assert!(self.sessions.remove(&session), "a channel is over once"),
            Event::Closed { .. } => {
                assert!(self.links.is_empty() && self.sessions.is_empty(), "all is told before the end");
                self.closed = true;
            }
            Event::SaslInit { .. }
            | Event::SaslResponse(_)
            | Event::Opened { .. }
            | Event::Blocked { .. }
            | Event::Unblocked => {}
        }
    }

    fn bind(&mut self, link: LinkId) {
        assert!(self.links.insert(link), "an id is used again only when its link was told to be over");
    }
}

/// Reads what a connection writes, as a strict peer would.
#[derive(Default)]
struct Watch {
    server: bool,
    closed: bool,
    /// Channels, and whether our close is written.
    channels: BTreeMap<u16, bool>,
    /// What is left of content, by channel: `None` before its header.
    content: Option<(u16, Option<u64>)>,
    tags: BTreeMap<u16, u64>,
    confirms: BTreeMap<u16, BTreeSet<u64>>,
}

impl Watch {
    fn read(&mut self, output: &mut Vec<u8>) {
        let bytes = std::mem::take(output);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(b"AMQP\x00\x00\x09\x01") {
                rest = behind;
                continue;
            }
            let frame = Frame::take(&mut rest, 4096).expect("frames").expect("whole frames");
            match frame.kind {
                FrameKind::Heartbeat => assert_eq!(self.content, None),
                FrameKind::Header => {
                    let header = ContentHeader::decode(frame.payload).expect("headers");
                    assert_eq!(self.content, Some((frame.channel, None)), "a header behind its method");
                    let left = (frame.channel, Some(header.body_size));
                    self.content = (header.body_size > 0).then_some(left);
                }
                FrameKind::Body => {
                    let Some((channel, Some(left))) = self.content else { panic!("a body behind its header") };
                    assert_eq!(channel, frame.channel);
                    let left = left.checked_sub(frame.payload.len() as u64).expect("as much as announced");
                    self.content = (left > 0).then_some((channel, Some(left)));
                }
                FrameKind::Method => {
                    assert_eq!(self.content, None, "content is whole");
                    let method = Method::decode(frame.payload).expect("methods");
                    if method.has_content() {
                        self.content = Some((frame.channel, None));
                    }
                    self.check(frame.channel, &method);
                }
            }
        }
    }

    fn check(&mut self, number: u16, method: &Method<'_>) {
        let is_close_ok = matches!(method, Method::Connection(connection::Method::CloseOk(_)));
        assert!(!self.closed || is_close_ok, "nothing behind a close");
        match method {
            Method::Connection(of) => {
                assert_eq!(number, 0);
                self.closed |= matches!(of, connection::Method::Close(_)) || is_close_ok;
                return;
            }
            Method::Channel(channel::Method::OpenOk(_) | channel::Method::Open(_)) => {
                assert_ne!(self.channels.insert(number, false), Some(false), "a channel is opened once");
                self.tags.remove(&number);
                return;
            }
            // Also what crosses is answered.
            Method::Channel(channel::Method::CloseOk(_)) => {
                if self.channels.get(&number) == Some(&false) {
                    self.channels.remove(&number);
                }
                return;
            }
            _ => {}
        }
        let closing = self.channels.get_mut(&number).expect("methods on open channels");
        assert!(!*closing, "nothing behind a close");
        let tags = self.tags.entry(number).or_default();
        match method {
            Method::Channel(channel::Method::Close(_)) => *closing = true,
            Method::Basic(
                basic::Method::Deliver(basic::Deliver { delivery_tag, .. })
                | basic::Method::GetOk(basic::GetOk { delivery_tag, .. }),
            ) if self.server => {
                assert_eq!(*delivery_tag, *tags + 1, "tags ascend");
                *tags = *delivery_tag;
            }
            Method::Basic(
                basic::Method::Ack(basic::Ack { delivery_tag, .. })
                | basic::Method::Nack(basic::Nack { delivery_tag, .. }),
            ) if self.server => {
                let told = self.confirms.entry(number).or_default();
                assert!(told.insert(*delivery_tag), "a confirm is said once");
            }
            _ => {}
        }
    }
}
