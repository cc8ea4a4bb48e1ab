//! A client and a server in simulated time, with all they do chosen by a seed.
//!
//! Each side sends on links, receives, settles late and in any order, grants and takes back credit, drains, aborts,
//! detaches and ends. The oracle knows what was sent on each link and how it was settled: every message arrives once,
//! whole and in order, every outcome comes back once and as it was said, and both sides' records are empty in the end.

use std::collections::{BTreeMap, VecDeque};

use corelane_wire::amqp10::{
    DeliveryState, Modified, ReceiverSettleMode, SenderSettleMode, Source, Symbols, Target, TargetArchetype,
};

use crate::amqp10::{
    AttachAnswer, AttachRequest, Config, Connection, Event, LinkId, Message, Outgoing, Payload, Progress,
    SendReadiness, SessionId, Token,
};
use crate::random::Random;

/// One side: its connection and what its caller knows.
struct Side {
    connection: Connection,
    /// Bytes that have left the other side and not arrived.
    wire: VecDeque<u8>,
    inbox: Vec<u8>,
    sessions: Vec<SessionId>,
    sending: BTreeMap<LinkId, Sending>,
    receiving: BTreeMap<LinkId, Receiving>,
    /// Received, and not settled.
    held: Vec<(LinkId, u32, Key)>,
    closed: bool,
}

/// A message: the name of its link and its number on it.
type Key = (u64, u64);

struct Sending {
    name: u64,
    next: u64,
    drain: bool,
    /// What is left of the message that is written in part.
    rest: Option<(u64, Vec<u8>)>,
    detaching: bool,
}

struct Receiving {
    name: u64,
    next: u64,
    detaching: bool,
}

#[derive(Default)]
struct Oracle {
    /// Sent unsettled and without outcome so far; `Some` once the receiver has said what.
    open: BTreeMap<Key, Option<u8>>,
    /// Taken back while they were on their way.
    aborted: BTreeMap<Key, ()>,
    arrived: u64,
    outcomes: u64,
    names: u64,
}

pub(super) struct Pair {
    sides: [Side; 2],
    oracle: Oracle,
    random: Random,
    now: u64,
}

pub(super) struct Summary {
    pub(super) arrived: u64,
    pub(super) outcomes: u64,
}

impl Pair {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut config = |name: &str| Config {
            container_id: name.into(),
            max_frame_size: 512 + random.below(600) as u32,
            channel_max: 3,
            handle_max: 40,
            incoming_window: 1 + random.below(40) as u32,
            burst_size_max: 500 + random.below(2000) as usize,
            max_message_size: 0,
            serial_first: [0, 0x7fff_ffc0, 0xffff_ffc0][random.below(3) as usize],
            ..Config::default()
        };
        let client = Connection::client(config("client"), 0);
        let server = Connection::server(config("server"), 0);
        let side = |connection| Side {
            connection,
            wire: VecDeque::new(),
            inbox: Vec::new(),
            sessions: Vec::new(),
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            held: Vec::new(),
            closed: false,
        };
        Self { sides: [side(client), side(server)], oracle: Oracle::default(), random, now: 0 }
    }

    /// Does `steps` things at random, then lets everything come to rest and closes.
    pub(super) fn run(mut self, steps: usize) -> Summary {
        for _ in 0..steps {
            let side = self.random.below(2) as usize;
            match self.random.below(12) {
                0..5 => self.transport(side),
                5..10 => self.act(side),
                _ => self.finish_turn(side),
            }
            self.now += self.random.below(1000);
            self.sides[side].connection.verify();
        }
        self.settle_down();
        self.close();
        Summary { arrived: self.oracle.arrived, outcomes: self.oracle.outcomes }
    }

    /// Moves some bytes, cut anywhere, to a side and lets it read.
    fn transport(&mut self, to: usize) {
        let sent = std::mem::take(self.sides[1 - to].connection.output());
        self.sides[to].wire.extend(sent);
        let size = self.random.below(3000).min(self.sides[to].wire.len() as u64) as usize;
        let side = &mut self.sides[to];
        side.inbox.extend(side.wire.drain(..size));
        self.read(to);
    }

    fn read(&mut self, at: usize) {
        let inbox = std::mem::take(&mut self.sides[at].inbox);
        let mut input = &inbox[..];
        while let Some(event) = self.sides[at].connection.receive(self.now, &mut input) {
            self.sides[at].handle(event, &mut self.oracle, &mut self.random);
            self.sides[at].connection.verify();
        }
        self.sides[at].inbox = input.to_vec();
    }

    fn finish_turn(&mut self, side: usize) {
        self.sides[side].connection.finish_turn(self.now);
    }

    fn act(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let random = &mut self.random;
        match random.below(60) {
            0 => {
                if side.sessions.len() < 3 {
                    side.sessions.extend(side.connection.begin());
                }
            }
            1..4 => side.attach(&mut self.oracle, random),
            4..30 => side.send(&mut self.oracle, random),
            30..45 => side.settle(&mut self.oracle, random),
            45..55 => side.grant(random),
            55..58 => side.drained(),
            58 => side.detach(random),
            _ => {
                // Rare, since it throws away all that is on its way.
                if random.below(20) == 0 && !side.sessions.is_empty() {
                    let session = side.sessions[random.below(side.sessions.len() as u64) as usize];
                    side.connection.end(session, None);
                }
            }
        }
    }

    /// Lets both sides send, settle and grant until nothing is left to do.
    fn settle_down(&mut self) {
        for round in 0..400 {
            for side in 0..2 {
                for _ in 0..8 {
                    self.transport(side);
                }
                let side = &mut self.sides[side];
                while !side.held.is_empty() {
                    side.settle(&mut self.oracle, &mut self.random);
                }
                let receiving: Vec<LinkId> = side.receiving.keys().copied().collect();
                receiving.into_iter().for_each(|link| side.connection.grant_credit(link, 5, false));
                side.finish_partials();
                side.connection.finish_turn(self.now);
                side.connection.verify();
            }
            let quiet = |side: &Side| side.wire.len() < 2000 && side.held.is_empty();
            if round > 30 && self.sides.iter().all(quiet) && self.rests() {
                break;
            }
        }
        self.check_counts();
        for side in &self.sides {
            for (_, session) in &side.connection.sessions {
                assert_eq!(session.sent.count() - session.sent_orphans, 0, "sent deliveries without outcome");
                assert_eq!(session.arrived.count(), 0, "received deliveries that were not settled");
            }
        }
    }

    /// Nothing is lost on links that both sides still have.
    fn check_counts(&mut self) {
        for at in 0..2 {
            let sending: Vec<(u64, u64)> =
                self.sides[at].sending.values().map(|link| (link.name, link.next)).collect();
            for (name, sent) in sending {
                let receiving = self.sides[1 - at].receiving.values_mut().find(|link| link.name == name);
                let Some(receiving) = receiving.filter(|link| !link.detaching) else { continue };
                while self.oracle.aborted.remove(&(name, receiving.next)).is_some() {
                    receiving.next += 1;
                }
                assert_eq!(receiving.next, sent, "all that was sent has arrived");
            }
        }
    }

    fn rests(&self) -> bool {
        self.sides.iter().all(|side| {
            let mut sessions = side.connection.sessions.iter();
            sessions.all(|(_, session)| {
                session.arrived.count() == 0 && session.sent.count() == session.sent_orphans
            })
        })
    }

    fn close(&mut self) {
        self.sides[0].connection.close(None);
        for _ in 0..4000 {
            self.transport(0);
            self.transport(1);
            if self.sides.iter().all(|side| side.closed) {
                return;
            }
        }
        panic!("a close that is not answered");
    }
}

fn state(code: u8) -> DeliveryState<'static> {
    match code {
        0 => DeliveryState::Accepted,
        1 => DeliveryState::Released,
        2 => DeliveryState::Rejected { error: None },
        _ => DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() }),
    }
}

/// The bytes of a message: its key, then a pattern.
fn body(key: Key, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + size);
    bytes.extend_from_slice(&key.0.to_be_bytes());
    bytes.extend_from_slice(&key.1.to_be_bytes());
    bytes.extend((0..size).map(|index| (index as u64 ^ key.1) as u8));
    bytes
}

impl Side {
    fn handle(&mut self, event: Event<'_>, oracle: &mut Oracle, random: &mut Random) {
        match event {
            Event::Opened(_) => self.connection.accept_open(),
            Event::SessionBegun { session, ours: false } => self.sessions.push(session),
            Event::Attached { link, attach, .. } => {
                let name = attach.name.parse().unwrap();
                if random.below(30) == 0 {
                    let error = crate::amqp10::ErrorSpec { condition: "amqp:not-found", description: "no" };
                    return self.connection.refuse_attach(link, error);
                }
                self.connection.accept_attach(link, &AttachAnswer::default());
                self.note_link(link, name, attach.role == corelane_wire::amqp10::Role::Receiver);
            }
            Event::AttachConfirmed { link, attach } => {
                if attach.source.is_some() {
                    let name = attach.name.parse().unwrap();
                    self.note_link(link, name, attach.role == corelane_wire::amqp10::Role::Receiver);
                }
            }
            Event::LinkFlow { link, drain, .. } => {
                if let Some(sending) = self.sending.get_mut(&link) {
                    sending.drain = drain;
                }
            }
            Event::Message(message) => self.take(message, oracle),
            Event::Disposition { state, .. } => self.take_outcomes(state, oracle),
            Event::Detached { link, error, .. } => {
                let expected = error.is_none_or(|error| error.condition == "amqp:not-found");
                assert!(expected, "neither side has faults: {error:?}");
                self.forget_link(link, oracle);
            }
            Event::Ended { session, error } => {
                assert_eq!(error, None);
                self.sessions.retain(|known| *known != session);
            }
            Event::Closed { error } => {
                assert_eq!(error, None);
                self.closed = true;
            }
            Event::SessionBegun { .. } | Event::SessionFlow { .. } => {}
            Event::SaslInit { .. }
            | Event::SaslResponse(_)
            | Event::SaslMechanisms(_)
            | Event::SaslChallenge(_)
            | Event::SaslOutcome { .. } => panic!("no SASL here"),
        }
    }

    fn note_link(&mut self, link: LinkId, name: u64, sends: bool) {
        // What is held under this id is of an earlier link whose session has ended.
        self.held.retain(|(held, _, _)| *held != link);
        if sends {
            self.sending.insert(link, Sending { name, next: 0, drain: false, rest: None, detaching: false });
        } else {
            self.receiving.insert(link, Receiving { name, next: 0, detaching: false });
        }
    }

    fn forget_link(&mut self, link: LinkId, oracle: &mut Oracle) {
        if let Some(sending) = self.sending.remove(&link) {
            // Nobody is told of the outcomes of these any more.
            let gone = |key: &Key| key.0 == sending.name;
            oracle.open.retain(|key, _| !gone(key));
        }
        self.receiving.remove(&link);
    }

    fn take(&mut self, message: Message<'_>, oracle: &mut Oracle) {
        let bytes = message.payload.bytes();
        let key = (
            u64::from_be_bytes(bytes[..8].try_into().unwrap()),
            u64::from_be_bytes(bytes[8..16].try_into().unwrap()),
        );
        assert!(bytes == body(key, bytes.len() - 16), "a message arrives as it was sent");
        let receiving =
            self.receiving.get_mut(&message.link).expect("messages come on links that are attached");
        assert_eq!(receiving.name, key.0);
        while oracle.aborted.remove(&(key.0, receiving.next)).is_some() {
            receiving.next += 1;
        }
        assert_eq!(receiving.next, key.1, "messages come in order, each once");
        receiving.next += 1;
        oracle.arrived += 1;
        if !message.settled {
            self.held.push((message.link, message.delivery_id, key));
        }
        if let Payload::Assembled(buffer) = message.payload {
            self.connection.recycle(buffer);
        }
    }

    fn take_outcomes(&mut self, said: Option<DeliveryState<'_>>, oracle: &mut Oracle) {
        let mut last = None;
        while let Some(disposed) = self.connection.poll_outcome() {
            assert!(disposed.settled);
            let key = (disposed.token.0, disposed.token.1);
            let expect = oracle.open.remove(&key).expect("an outcome comes once");
            assert_eq!(expect.map(state), said, "an outcome comes as it was said");
            let in_order = last.is_none_or(|last: u32| disposed.delivery_id.wrapping_sub(last) < 1 << 31);
            assert!(in_order, "outcomes come in the order of sending");
            last = Some(disposed.delivery_id);
            oracle.outcomes += 1;
        }
    }

    fn attach(&mut self, oracle: &mut Oracle, random: &mut Random) {
        if self.sessions.is_empty() || self.sending.len() + self.receiving.len() > 8 {
            return;
        }
        let session = self.sessions[random.below(self.sessions.len() as u64) as usize];
        oracle.names += 1;
        let name = oracle.names.to_string();
        let request = AttachRequest {
            name: &name,
            source: Some(Source::default()),
            target: Some(TargetArchetype::Target(Target::default())),
            sender_settle_mode: [
                SenderSettleMode::Mixed,
                SenderSettleMode::Unsettled,
                SenderSettleMode::Settled,
            ][random.below(3) as usize],
            receiver_settle_mode: [ReceiverSettleMode::First, ReceiverSettleMode::Second]
                [random.below(2) as usize],
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        if random.below(2) == 0 {
            self.connection.attach_sender(session, &request);
        } else if let Some(link) = self.connection.attach_receiver(session, &request)
            && random.below(2) == 0
        {
            self.connection.grant_credit(link, random.below(10) as u32, false);
        }
    }

    fn send(&mut self, oracle: &mut Oracle, random: &mut Random) {
        let Some((&link, sending)) = pick(&mut self.sending, random) else { return };
        if sending.detaching {
            return;
        }
        if let Some((number, rest)) = sending.rest.take() {
            if random.below(10) == 0 {
                self.connection.abort(link);
                let key = (sending.name, number);
                oracle.open.remove(&key);
                oracle.aborted.insert(key, ());
                return;
            }
            let progress = self.connection.send_more(link, &rest);
            sending.rest = left(progress, number, rest);
            return;
        }
        if self.connection.can_send(link) != SendReadiness::Ready {
            return;
        }
        let key = (sending.name, sending.next);
        let size = if random.below(4) == 0 { random.below(6000) } else { random.below(100) };
        let bytes = body(key, size as usize);
        let (head, rest) = bytes.split_at(random.below(100).min(bytes.len() as u64) as usize);
        let settled = random.below(4) == 0;
        let token = Token(key.0, key.1);
        sending.next += 1;
        let progress =
            self.connection.send(link, &Outgoing { token, settled, message_format: 0, head, rest });
        match progress {
            Progress::Complete { settled, .. } => {
                if !settled {
                    oracle.open.insert(key, None);
                }
            }
            Progress::Partial { .. } => {
                // Whether it is settled is known when it is complete; the entry says that it may have an outcome.
                oracle.open.insert(key, None);
                sending.rest = left(progress, key.1, bytes);
            }
            Progress::TooLarge | Progress::NotReady(_) => panic!("it was ready"),
        }
    }

    /// Sends what is left of messages that are written in part.
    fn finish_partials(&mut self) {
        for (&link, sending) in &mut self.sending {
            if let Some((number, rest)) = sending.rest.take() {
                let progress = self.connection.send_more(link, &rest);
                sending.rest = left(progress, number, rest);
            }
        }
    }

    fn settle(&mut self, oracle: &mut Oracle, random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        // Mostly in order, so that ranges form.
        let index = if random.below(4) == 0 { random.below(self.held.len() as u64) as usize } else { 0 };
        let (link, delivery_id, key) = self.held.remove(index);
        let code = if random.below(3) == 0 { random.below(4) as u8 } else { 0 };
        if let Some(open) = oracle.open.get_mut(&key) {
            *open = Some(code);
        }
        self.connection.settle(link, delivery_id, &state(code));
    }

    fn grant(&mut self, random: &mut Random) {
        if let Some((&link, receiving)) = pick(&mut self.receiving, random)
            && !receiving.detaching
        {
            self.connection.grant_credit(link, random.below(12) as u32, random.below(5) == 0);
        }
    }

    fn drained(&mut self) {
        for (&link, sending) in &mut self.sending {
            if sending.drain && sending.rest.is_none() {
                self.connection.drained(link);
            }
        }
    }

    fn detach(&mut self, random: &mut Random) {
        let closed = random.below(2) == 0;
        if random.below(2) == 0 {
            if let Some((&link, sending)) = pick(&mut self.sending, random) {
                sending.detaching = true;
                sending.rest = None;
                self.connection.detach(link, closed, None);
            }
        } else if let Some((&link, receiving)) = pick(&mut self.receiving, random) {
            receiving.detaching = true;
            self.connection.detach(link, closed, None);
        }
    }
}

/// What of a message is still to be written.
fn left(progress: Progress, number: u64, bytes: Vec<u8>) -> Option<(u64, Vec<u8>)> {
    match progress {
        Progress::Partial { written, .. } => Some((number, bytes[written..].to_vec())),
        Progress::Complete { .. } => None,
        Progress::NotReady(SendReadiness::Detached) => None,
        Progress::TooLarge | Progress::NotReady(_) => panic!("a message that was begun goes on"),
    }
}

fn pick<'a, V>(map: &'a mut BTreeMap<LinkId, V>, random: &mut Random) -> Option<(&'a LinkId, &'a mut V)> {
    let index = random.below(map.len().max(1) as u64) as usize;
    map.iter_mut().nth(index)
}
