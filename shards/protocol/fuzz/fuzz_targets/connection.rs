//! Does any peer, with any caller, break a connection?
//!
//! The first byte chooses role and limits; then each byte chooses a step: raw bytes, a frame whose fields come from small
//! ranges (so that channels, handles and numbers meet), or a command of the caller, who accepts all it is asked. After each
//! step the connection's own invariants hold, and `Watch` reads what it wrote as a strict peer would.

#![no_main]

use std::collections::BTreeSet;

use corelane_protocol::amqp10::{
    AttachAnswer, AttachRequest, Config, Connection, ErrorSpec, Event, LinkId, Outgoing, Payload, Progress,
    Sasl, SessionId, Token,
};
use corelane_wire::amqp10::{
    Attach, Begin, Close, DeliveryState, Detach, Disposition, Encode, End, Flow, Frame, FrameKind, Modified,
    Open, Performative, ReceiverSettleMode, Role, SaslCode, SaslInit, SaslPerformative, SaslResponse,
    SenderSettleMode, Source, Symbols, Target, TargetArchetype, Transfer, write_frame,
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
        world.take_events();
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

    /// Mostly small; sometimes at the borders where numbers wrap or change sign.
    fn number(&mut self) -> u32 {
        match self.byte().unwrap_or(0) {
            250 => u32::MAX,
            251 => u32::MAX - 1,
            252 => 0x8000_0000,
            253 => 0x7fff_ffff,
            254 => 0xffff_fff0,
            255 => 1 << 16,
            small => u32::from(small % 24),
        }
    }

    fn optional(&mut self) -> Option<u32> {
        if self.flag() { Some(self.number()) } else { None }
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
    /// Received and not settled.
    held: Vec<(LinkId, u32)>,
    /// Left of a message that is written in part.
    rest: usize,
    closed: bool,
    patient: bool,
}

impl<'d> World<'d> {
    fn new(data: &'d [u8]) -> Self {
        let mut input = Input(data);
        let kind = input.byte().unwrap_or(0);
        let server = kind & 1 == 0;
        let sasl = match (kind >> 1) & 3 {
            0 if server => {
                Sasl::Server { mechanisms: vec!["PLAIN".into(), "X".into()], required: kind & 8 == 0 }
            }
            0 => Sasl::Caller,
            1 if !server => Sasl::Plain { user: "u".into(), password: "p".into() },
            _ => Sasl::Absent,
        };
        let config = Config {
            max_frame_size: 512 << ((kind >> 4) & 1),
            channel_max: 3,
            handle_max: 7,
            links_max: 6,
            idle_timeout_us: Some(5_000_000),
            incoming_window: 1 + u32::from(kind >> 5) * 3,
            max_message_size: 2000,
            assembly_size_max: 3000,
            burst_size_max: 700,
            serial_first: [0, 0x7fff_fffa, 0xffff_fffa][usize::from(kind >> 3) % 3],
            sasl,
            ..Config::default()
        };
        let connection = if server { Connection::server(config, 0) } else { Connection::client(config, 0) };
        Self {
            input,
            connection,
            inbox: Vec::new(),
            now: 0,
            watch: Watch::default(),
            links: BTreeSet::new(),
            sessions: BTreeSet::new(),
            held: Vec::new(),
            rest: 0,
            closed: false,
            patient: kind & 0x80 != 0,
        }
    }

    fn step(&mut self, step: u8) {
        match step {
            0..16 => {
                let size = usize::from(step) * 2 + 1;
                let (raw, rest) = self.input.0.split_at(size.min(self.input.0.len()));
                self.inbox.extend_from_slice(raw);
                self.input.0 = rest;
            }
            16..24 => self.preamble(step - 16),
            24..180 => self.frame(step),
            180..=255 => self.command(step),
        }
    }

    /// What stands before sessions, so that they are reached soon.
    fn preamble(&mut self, kind: u8) {
        match kind {
            0 => self.inbox.extend_from_slice(b"AMQP\x00\x01\x00\x00"),
            1 => self.inbox.extend_from_slice(b"AMQP\x03\x01\x00\x00"),
            2 => self.sasl(SaslPerformative::Init(SaslInit {
                mechanism: "X",
                initial_response: None,
                hostname: None,
            })),
            3 => self.sasl(SaslPerformative::Response(SaslResponse { response: b"r" })),
            4 => {
                let mechanisms =
                    corelane_wire::amqp10::SaslMechanisms { mechanisms: Symbols::new(&["PLAIN", "X"]) };
                self.sasl(SaslPerformative::Mechanisms(mechanisms));
            }
            5 => {
                let outcome =
                    corelane_wire::amqp10::SaslOutcome { code: SaslCode::Ok, additional_data: None };
                self.sasl(SaslPerformative::Outcome(outcome));
            }
            6 => self
                .sasl(SaslPerformative::Challenge(corelane_wire::amqp10::SaslChallenge { challenge: b"c" })),
            _ => {
                self.inbox.extend_from_slice(b"AMQP\x00\x01\x00\x00");
                self.put(0, &Open { container_id: "peer", ..Open::default() }, 0);
                self.put(0, &Begin { incoming_window: 20, ..Begin::default() }, 0);
            }
        }
    }

    fn sasl(&mut self, performative: SaslPerformative<'_>) {
        write_frame(&mut self.inbox, FrameKind::Sasl, 0, &performative, &[]);
    }

    fn put(&mut self, channel: u16, performative: &impl Encode, payload: usize) {
        write_frame(&mut self.inbox, FrameKind::Amqp, channel, performative, &vec![b'x'; payload]);
    }

    fn frame(&mut self, step: u8) {
        let channel = if self.input.below(8) == 0 { self.input.below(5) as u16 } else { 0 };
        match step {
            24..28 => {
                let open = Open {
                    container_id: "peer",
                    max_frame_size: self.input.optional().unwrap_or(u32::MAX),
                    channel_max: self.input.optional().unwrap_or(u32::MAX) as u16,
                    idle_time_out: self.input.optional(),
                    ..Open::default()
                };
                self.put(channel, &open, 0);
            }
            28..40 => {
                let begin = Begin {
                    remote_channel: if self.input.flag() { Some(self.input.below(4) as u16) } else { None },
                    next_outgoing_id: self.input.number(),
                    incoming_window: self.input.number(),
                    outgoing_window: 9,
                    handle_max: self.input.optional().unwrap_or(u32::MAX),
                    ..Begin::default()
                };
                self.put(channel, &begin, 0);
            }
            40..68 => self.attach_frame(channel),
            68..100 => {
                let flow = Flow {
                    next_incoming_id: self.input.optional(),
                    incoming_window: self.input.number(),
                    next_outgoing_id: self.input.number(),
                    outgoing_window: 9,
                    handle: if self.input.below(4) > 0 { Some(self.input.below(9)) } else { None },
                    delivery_count: self.input.optional(),
                    link_credit: self.input.optional(),
                    available: self.input.optional(),
                    drain: self.input.flag(),
                    echo: self.input.flag(),
                    properties: None,
                };
                self.put(channel, &flow, 0);
            }
            100..140 => self.transfer_frame(channel),
            140..160 => {
                let disposition = Disposition {
                    role: if self.input.flag() { Role::Sender } else { Role::Receiver },
                    first: self.input.number(),
                    last: self.input.optional(),
                    settled: self.input.flag(),
                    state: self.state(),
                    batchable: false,
                };
                self.put(channel, &disposition, 0);
            }
            160..172 => {
                let detach = Detach { handle: self.input.below(9), closed: self.input.flag(), error: None };
                self.put(channel, &detach, 0);
            }
            172..176 => self.put(channel, &End::default(), 0),
            176..178 => self.put(channel, &Close::default(), 0),
            _ => self.put(channel, &Nothing, 0),
        }
    }

    fn attach_frame(&mut self, channel: u16) {
        let role = if self.input.flag() { Role::Sender } else { Role::Receiver };
        let name = ["a", "b", "c", "d", "e", "f", "g", "h"][self.input.below(8) as usize];
        let null = self.input.below(8) == 0;
        let attach = Attach {
            snd_settle_mode: self.sender_settle_mode(),
            rcv_settle_mode: self.receiver_settle_mode(),
            source: (!null).then_some(Source { address: Some("q"), ..Source::default() }),
            target: (!null).then_some(TargetArchetype::Target(Target::default())),
            initial_delivery_count: self.input.optional(),
            max_message_size: self.input.optional().map(u64::from),
            ..Attach::new(name, self.input.below(9), role)
        };
        self.put(channel, &attach, 0);
    }

    fn transfer_frame(&mut self, channel: u16) {
        let tags: [&[u8]; 6] = [b"", b"1", b"2", b"10", b"a", &[7; 32]];
        let transfer = Transfer {
            handle: self.input.below(9),
            delivery_id: self.input.optional(),
            delivery_tag: if self.input.below(8) > 0 {
                Some(tags[self.input.below(6) as usize])
            } else {
                None
            },
            message_format: Some(0),
            settled: if self.input.flag() { Some(self.input.flag()) } else { None },
            more: self.input.flag(),
            rcv_settle_mode: if self.input.below(8) == 0 { Some(self.receiver_settle_mode()) } else { None },
            state: if self.input.below(8) == 0 { self.state() } else { None },
            resume: self.input.below(16) == 0,
            aborted: self.input.below(8) == 0,
            batchable: false,
        };
        let size = self.input.below(40) as usize * 10;
        self.put(channel, &transfer, size);
    }

    fn sender_settle_mode(&mut self) -> SenderSettleMode {
        [SenderSettleMode::Mixed, SenderSettleMode::Settled, SenderSettleMode::Unsettled]
            [self.input.below(3) as usize]
    }

    fn receiver_settle_mode(&mut self) -> ReceiverSettleMode {
        if self.input.flag() { ReceiverSettleMode::Second } else { ReceiverSettleMode::First }
    }

    fn state(&mut self) -> Option<DeliveryState<'static>> {
        Some(match self.input.below(8) {
            0 => return None,
            1 => DeliveryState::Accepted,
            2 => DeliveryState::Released,
            3 => DeliveryState::Rejected { error: None },
            4 => DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() }),
            5 => DeliveryState::Received(Default::default()),
            6 => DeliveryState::Declared { transaction: b"t" },
            _ => DeliveryState::Transactional { transaction: b"t", outcome: None },
        })
    }

    fn command(&mut self, step: u8) {
        let link = LinkId(self.input.below(10));
        let session = SessionId(self.input.below(4));
        let error = ErrorSpec { condition: "x:y", description: "because" };
        match step {
            180..184 => self.sessions.extend(self.connection.begin()),
            184..196 => self.attach(session),
            196..206 => {
                let (credit, drain) = (self.input.number(), self.input.flag());
                self.connection.grant_credit(link, credit, drain);
            }
            206..218 => {
                if !self.held.is_empty() {
                    let index = self.input.below(self.held.len() as u32) as usize;
                    let (link, delivery_id) = self.held.remove(index);
                    let state = self.state().unwrap_or(DeliveryState::Accepted);
                    self.connection.settle(link, delivery_id, &state);
                }
            }
            218..230 => {
                let size = self.input.below(200) as usize * 12;
                let message = vec![b'y'; size];
                let (head, rest) = message.split_at(size.min(5));
                let settled = self.input.flag();
                let outgoing = Outgoing { token: Token(1, 2), settled, message_format: 0, head, rest };
                let progress = self.connection.send(link, &outgoing);
                self.note(progress, size);
            }
            230..236 => {
                let remaining = vec![b'z'; self.rest];
                let progress = self.connection.send_more(link, &remaining);
                self.note(progress, remaining.len());
            }
            236..238 => self.connection.abort(link),
            238..242 => self.connection.drained(link),
            242 => self.connection.available(link, 7),
            243 => self.connection.detach(link, step & 1 == 0, Some(error)),
            244 => self.connection.detach(link, true, None),
            245 => self.connection.refuse_attach(link, error),
            246 => self.connection.end(session, Some(error)),
            247 => {
                let id = self.input.number();
                let state = self.state();
                self.connection.settle_sent(link, id, state.as_ref());
            }
            248 => self.connection.accept_attach(link, &AttachAnswer::default()),
            249 => self.connection.sasl_challenge(b"c"),
            250 => self.connection.sasl_outcome(SaslCode::Ok, None),
            251 => self.connection.close(None),
            252 => {
                let _ = self.connection.pending_attach(link);
                let _ = (self.connection.credit(link), self.connection.message_size_max(link));
            }
            _ => self.pass_time(),
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

    fn attach(&mut self, session: SessionId) {
        let name = ["a", "b", "x", "y"][self.input.below(4) as usize];
        let request = AttachRequest {
            name,
            source: Some(Source::default()),
            target: None,
            sender_settle_mode: self.sender_settle_mode(),
            receiver_settle_mode: self.receiver_settle_mode(),
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let link = if self.input.flag() {
            self.connection.attach_sender(session, &request)
        } else {
            self.connection.attach_receiver(session, &request)
        };
        self.bind(link);
    }

    fn bind(&mut self, link: Option<LinkId>) {
        if let Some(link) = link {
            assert!(self.links.insert(link), "an id is used again only when its link was told to be over");
            self.held.retain(|(held, _)| *held != link);
        }
    }

    fn note(&mut self, progress: Progress, size: usize) {
        if let Progress::Partial { written, .. } = progress {
            assert!(written <= size);
            self.rest = size - written;
        }
    }

    fn take_events(&mut self) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut input = &inbox[..];
        while let Some(event) = self.connection.receive(self.now, &mut input) {
            assert!(!self.closed, "nothing is told behind the end");
            self.answer(event);
            self.watch.read(self.connection.output());
        }
        self.inbox = input.to_vec();
        assert!(self.inbox.len() < 70_000, "input waits only for an answer or for the rest of a frame");
    }

    fn answer(&mut self, event: Event<'_>) {
        match event {
            Event::SaslInit { .. } | Event::SaslResponse(_) => {
                if !self.patient {
                    self.connection.sasl_outcome(SaslCode::Ok, None);
                }
            }
            Event::SaslMechanisms(_) => self.connection.sasl_init("X", None),
            Event::SaslChallenge(_) => self.connection.sasl_respond(b"r"),
            Event::SaslOutcome { .. } => {}
            Event::Opened(open) => {
                self.watch.frame_max = open.max_frame_size.max(512);
                self.connection.accept_open();
            }
            Event::SessionBegun { session, ours } => {
                assert_eq!(!self.sessions.insert(session), ours, "a session is told of once");
            }
            Event::Attached { link, .. } => {
                self.bind(Some(link));
                if !self.patient {
                    self.connection.accept_attach(link, &AttachAnswer::default());
                    self.connection.grant_credit(link, 10, false);
                }
            }
            Event::AttachConfirmed { link, .. } | Event::LinkFlow { link, .. } => {
                assert!(self.links.contains(&link), "links are told of first");
            }
            Event::SessionFlow { session } => {
                assert!(self.sessions.contains(&session), "sessions are told of first")
            }
            Event::Message(message) => {
                assert!(self.links.contains(&message.link), "messages come on links");
                if !message.settled {
                    self.held.push((message.link, message.delivery_id));
                }
                if let Payload::Assembled(buffer) = message.payload {
                    self.connection.recycle(buffer);
                }
            }
            Event::Disposition { .. } => {
                while let Some(disposed) = self.connection.poll_outcome() {
                    assert_eq!(disposed.token, Token(1, 2));
                }
            }
            Event::Detached { link, .. } => assert!(self.links.remove(&link), "a link is over once"),
            Event::Ended { session, .. } => assert!(self.sessions.remove(&session), "a session is over once"),
            Event::Closed { .. } => {
                assert!(self.links.is_empty() && self.sessions.is_empty(), "all is told before the end");
                self.closed = true;
            }
        }
    }
}

/// Reads what a connection writes, as strictly as the specification allows.
#[derive(Default)]
struct Watch {
    frame_max: u32,
    opened: bool,
    closed: bool,
    channels: BTreeSet<u16>,
    handles: BTreeSet<(u16, u32)>,
}

impl Watch {
    fn read(&mut self, output: &mut Vec<u8>) {
        let bytes = std::mem::take(output);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(b"AMQP") {
                rest = &behind[4..];
                continue;
            }
            let frame =
                Frame::take(&mut rest, self.frame_max.max(8192)).expect("frames").expect("whole frames");
            if frame.kind == FrameKind::Amqp && !frame.body.is_empty() {
                let (performative, _) = Performative::decode(frame.body).expect("performatives");
                self.check(frame.channel, &performative);
            }
        }
    }

    fn check(&mut self, channel: u16, performative: &Performative<'_>) {
        assert!(!self.closed, "nothing behind a close");
        assert_eq!(self.opened, !matches!(performative, Performative::Open(_)), "an open first, and once");
        let known = |handle: u32| self.handles.contains(&(channel, handle));
        match performative {
            Performative::Open(_) => self.opened = true,
            Performative::Close(_) => self.closed = true,
            Performative::Begin(_) => assert!(self.channels.insert(channel), "a channel is begun once"),
            Performative::End(_) => {
                assert!(self.channels.remove(&channel), "a channel is ended once");
                self.handles.retain(|(on, _)| *on != channel);
            }
            Performative::Attach(attach) => {
                assert!(self.handles.insert((channel, attach.handle)), "a handle is attached once");
            }
            Performative::Detach(detach) => {
                assert!(self.handles.remove(&(channel, detach.handle)), "a handle is detached once");
            }
            Performative::Transfer(transfer) => {
                assert!(known(transfer.handle), "transfers of attached links")
            }
            Performative::Flow(flow) => assert!(flow.handle.is_none_or(known), "flows of attached links"),
            Performative::Disposition(_) => {}
        }
        let inside =
            !matches!(performative, Performative::Open(_) | Performative::Close(_) | Performative::End(_));
        assert!(!inside || self.channels.contains(&channel), "frames on channels that are begun");
    }
}

/// An empty frame.
struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Vec<u8>) {}
}
