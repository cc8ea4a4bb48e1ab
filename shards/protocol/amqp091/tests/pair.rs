//! A client and a server in simulated time, with all they do chosen by a seed.
//!
//! The client opens and closes channels, publishes with confirms or in transactions, consumes, gets, acknowledges one or many,
//! recovers, and asks without waiting for answers; the server's caller answers late, delivers, cancels and fails channels. The
//! oracle of a channel knows what was said each way: every message arrives once, whole and in order, every confirm once
//! and as it was said, every outcome too, no consumer holds more than it may, and the records are empty in the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use corelane_wire::amqp091::{
    Method, PropertyFields, ReplyCode, ShortStr, basic, channel, confirm, queue, tx,
};

use super::script::{client_config, config};
use crate::amqp091::{
    Config, Connection, DeliveryKind, ErrorSpec, Event, LinkId, Outcome, Outgoing, Payload, Progress,
    Publication, Reply, Request, SendReadiness, SessionId, Token,
};
use crate::random::Random;

/// One side: its connection, and the bytes that come to it.
struct Side {
    connection: Connection,
    /// Bytes that have left the other side and not arrived.
    wire: VecDeque<u8>,
    inbox: Vec<u8>,
    closed: bool,
}

/// What both sides have said on a channel since the client opened it.
#[derive(Default)]
struct Lane {
    open: bool,
    closing: bool,
    confirms: bool,
    transactional: bool,
    /// Client: asked for, and not answered.
    recovering: bool,
    ending: bool,

    /// Sizes of messages on their way to the server.
    publishing: VecDeque<usize>,
    /// Numbers of messages that are to be confirmed: with `None`, not settled by the server.
    unconfirmed: BTreeMap<u64, Option<bool>>,
    published: u64,

    /// Deliveries on their way to the client: tag, size, and whether it is to be acknowledged.
    delivering: VecDeque<(u64, usize, bool)>,
    /// Tags that the client has got and not settled.
    held: BTreeSet<u64>,
    /// What the client has said, or will with its commit.
    said: BTreeMap<u64, Outcome>,
    saying: BTreeMap<u64, Outcome>,
    /// Client: what the next consumers may hold, and what consumers on their way may.
    prefetch: u16,
    consuming: VecDeque<u16>,
    tags: Vec<u64>,
    tag_last: u64,

    server: ServerLane,
}

#[derive(Default)]
struct ServerLane {
    open: bool,
    publisher: Option<LinkId>,
    arrived: u64,
    /// Messages that wait for their confirm: the connection's name and the tag.
    unsettled: Vec<(u32, u64)>,
    delivered: u64,
    /// Of each consumer: what it may hold, and what it does.
    consumers: BTreeMap<LinkId, (u16, usize)>,
    pending: Option<Pending>,
}

#[derive(Clone, Copy)]
enum Pending {
    Declare,
    Other,
    Consume(LinkId),
    Get(LinkId, bool),
}

pub(super) struct Pair {
    client: Side,
    server: Side,
    lanes: BTreeMap<u32, Lane>,
    random: Random,
    now: u64,
    /// Bytes that travel at one time.
    chunk_max: u64,
    done: Summary,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    pub(super) published: u64,
    pub(super) delivered: u64,
    pub(super) confirmed: u64,
    pub(super) outcomes: u64,
    pub(super) parked: u64,
}

impl Pair {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let figures = |config: Config| Config {
            channel_max: 3,
            links_max: 200,
            unsettled_max: 50,
            unconfirmed_max: 20,
            assembly_size_max: 1 << 20,
            parked_size_max: 10_000,
            heartbeat: 10,
            ..config
        };
        let frame_max = 4096 + random.below(3) as u32 * 500;
        let client = Connection::client(Config { frame_max, ..figures(client_config()) }, 0);
        let server = Connection::server(Config { frame_max: 5096, ..figures(config()) }, 0);
        let side = |connection| Side { connection, wire: VecDeque::new(), inbox: Vec::new(), closed: false };
        let (client, server) = (side(client), side(server));
        Self {
            client,
            server,
            lanes: BTreeMap::new(),
            random,
            now: 0,
            chunk_max: 3000,
            done: Summary::default(),
        }
    }

    /// Does `steps` things at random, then lets everything come to rest and closes.
    pub(super) fn run(mut self, steps: usize) -> Summary {
        for _ in 0..steps {
            match self.random.below(16) {
                0..3 => self.carry_to_client(),
                3..6 => self.carry_to_server(),
                6..10 => self.act_as_client(),
                10..14 => self.act_as_server(),
                14 => self.client.connection.finish_turn(self.now),
                _ => self.server.connection.finish_turn(self.now),
            }
            self.now += self.random.below(100_000);
            self.pass_time();
            self.client.connection.verify();
            self.server.connection.verify();
        }
        self.settle_down();
        self.close();
        self.done
    }

    fn pass_time(&mut self) {
        for side in [&mut self.client, &mut self.server] {
            if side.connection.next_deadline().is_some_and(|deadline| deadline <= self.now) {
                side.connection.handle_timeout(self.now);
            }
        }
    }

    fn carry_to_client(&mut self) {
        let sent = std::mem::take(self.server.connection.output());
        self.client.wire.extend(sent);
        let size = self.random.below(self.chunk_max).min(self.client.wire.len() as u64) as usize;
        let arrived = self.client.wire.drain(..size);
        self.client.inbox.extend(arrived);
        let inbox = std::mem::take(&mut self.client.inbox);
        let mut input = &inbox[..];
        while let Some(event) = self.client.connection.receive(self.now, &mut input) {
            self.tell_client(event);
        }
        self.client.inbox = input.to_vec();
    }

    fn carry_to_server(&mut self) {
        let sent = std::mem::take(self.client.connection.output());
        self.server.wire.extend(sent);
        let size = self.random.below(self.chunk_max).min(self.server.wire.len() as u64) as usize;
        let arrived = self.server.wire.drain(..size);
        self.server.inbox.extend(arrived);
        self.read_as_server();
    }

    fn read_as_server(&mut self) {
        let inbox = std::mem::take(&mut self.server.inbox);
        let mut input = &inbox[..];
        let mut scratch = Vec::new();
        loop {
            while let Some(event) = self.server.connection.receive(self.now, &mut input) {
                self.tell_server(event);
                self.server.connection.verify();
            }
            if !self.server.connection.has_parked() {
                break;
            }
            self.done.parked += 1;
            if let Some(event) = self.server.connection.receive_parked(self.now, &mut scratch) {
                self.tell_server(event);
            }
        }
        self.server.inbox = input.to_vec();
    }

    fn tell_client(&mut self, event: Event<'_>) {
        match event {
            Event::Opened { .. } => {}
            Event::Answered { session, method } => self.answered(session.0, &method),
            Event::Delivery(delivery) => {
                let lane = self.lanes.get_mut(&delivery.session.0).unwrap();
                let size = delivery.payload.bytes().len();
                let tag = match delivery.kind {
                    DeliveryKind::Delivered { delivery_tag, .. } => delivery_tag,
                    DeliveryKind::Got { delivery_tag, .. } => delivery_tag,
                    DeliveryKind::Returned { reply_code } => {
                        assert_eq!((reply_code, size), (312, 7));
                        return;
                    }
                };
                let (expect, expect_size, acknowledged) = lane.delivering.pop_front().unwrap();
                assert_eq!(
                    (tag, size),
                    (expect, expect_size),
                    "deliveries come in order, each once and whole"
                );
                assert_eq!(delivery.head.routing_key(), &*size.to_string());
                if acknowledged {
                    lane.held.insert(tag);
                }
                self.done.delivered += 1;
                self.client.connection.recycle_head(delivery.head);
                if let Payload::Assembled(buffer) = delivery.payload {
                    self.client.connection.recycle(buffer);
                }
            }
            Event::Ended { session, error } => {
                assert!(error.is_none_or(|error| error.reply_code == 404));
                let lane = self.lanes.get_mut(&session.0).unwrap();
                (lane.open, lane.closing) = (false, false);
            }
            Event::Closed { error } => {
                assert_eq!(error, None);
                self.client.closed = true;
            }
            other => panic!("{other:?}"),
        }
    }

    fn answered(&mut self, number: u32, method: &Method<'_>) {
        let lane = self.lanes.get_mut(&number).unwrap();
        match *method {
            Method::Basic(basic::Method::Ack(ack)) => {
                self.done.confirmed += lane.confirmed(ack.delivery_tag, ack.multiple, true);
            }
            Method::Basic(basic::Method::Nack(nack)) => {
                self.done.confirmed += lane.confirmed(nack.delivery_tag, nack.multiple, false);
            }
            // What came until now was given back.
            Method::Basic(basic::Method::RecoverOk(_)) => {
                lane.recovering = false;
                lane.held.clear();
            }
            Method::Tx(tx::Method::CommitOk(_) | tx::Method::RollbackOk(_)) => lane.ending = false,
            Method::Channel(channel::Method::OpenOk(_)) => (lane.open, lane.closing) = (true, false),
            Method::Channel(_) | Method::Basic(_) | Method::Queue(_) | Method::Confirm(_) | Method::Tx(_) => {
            }
            other => panic!("{other:?}"),
        }
    }

    fn act_as_client(&mut self) {
        let (client, random) = (&mut self.client.connection, &mut self.random);
        let number = 1 + random.below(3) as u32;
        let session = SessionId(number);
        let is_free = self.lanes.get(&number).is_none_or(|lane| !lane.open && !lane.closing);
        if is_free {
            if random.below(4) == 0
                && let Some(session) = client.open_channel()
            {
                // Until open-ok it is neither free nor open.
                self.lanes.insert(session.0, Lane { closing: true, ..Lane::default() });
            }
            return;
        }
        let lane = self.lanes.get_mut(&number).unwrap();
        if !lane.open || lane.closing {
            return;
        }
        match random.below(60) {
            0..20 => lane.publish(client, session, random, &mut self.done),
            20..35 => lane.acknowledge(client, session, random),
            35..38 => lane.consume(client, session, random),
            38 => {
                if let Some(tag) = lane.tags.pop() {
                    let tag = format!("c{tag}");
                    client
                        .call(session, &basic::Cancel { consumer_tag: ShortStr::cut(&tag), no_wait: false });
                }
            }
            39..43 => {
                let declare = queue::Declare { queue: ShortStr::literal("q"), ..Default::default() };
                client.call(session, &declare);
            }
            43..46 => {
                let queue = ShortStr::cut(["a", "b", "c"][random.below(3) as usize]);
                client.call(session, &basic::Get { queue, no_ack: random.below(2) == 0 });
            }
            46 => {
                lane.prefetch = random.below(5) as u16;
                let qos = basic::Qos { prefetch_count: lane.prefetch, ..Default::default() };
                client.call(session, &qos);
            }
            47 => {
                let prefetch_count = random.below(8) as u16;
                client.call(session, &basic::Qos { prefetch_count, global: true, ..Default::default() });
            }
            48 if !lane.transactional && !lane.confirms => {
                lane.confirms = true;
                lane.published = 0;
                client.call(session, &confirm::Select { no_wait: random.below(2) == 0 });
            }
            49 if !lane.transactional && !lane.confirms && random.below(3) == 0 => {
                lane.transactional = true;
                client.call(session, &tx::Select {});
            }
            50..54 if lane.transactional && !lane.ending && !lane.recovering => {
                lane.end_transaction(client, session, random)
            }
            54 if !lane.recovering && !lane.ending => {
                lane.recovering = true;
                client.call(session, &basic::Recover { requeue: true });
            }
            55 => {
                client.call(session, &channel::Flow { active: random.below(3) > 0 });
            }
            56 if random.below(20) == 0 => {
                client.close_channel(session, None);
                lane.closing = true;
            }
            _ => {}
        }
    }

    fn tell_server(&mut self, event: Event<'_>) {
        let connection = &mut self.server.connection;
        match event {
            Event::SaslInit { .. } => connection.sasl_outcome(true),
            Event::Opened { .. } => connection.accept_open(),
            Event::ChannelOpened { session, publisher } => {
                let lane = self.lanes.get_mut(&session.0).unwrap();
                lane.server = ServerLane { open: true, publisher: Some(publisher), ..ServerLane::default() };
            }
            Event::Message(message) => {
                let size = message.payload.bytes().len();
                let (number, lane) = self
                    .lanes
                    .iter_mut()
                    .find(|(_, lane)| lane.server.publisher == Some(message.link))
                    .unwrap();
                assert_eq!(lane.publishing.pop_front(), Some(size), "messages come in order, each once");
                assert_eq!(message.head.routing_key(), &*size.to_string());
                assert!(message.payload.bytes().iter().all(|&byte| byte == size as u8), "{number}");
                if !message.settled {
                    lane.server.arrived += 1;
                    lane.server.unsettled.push((message.delivery_id, lane.server.arrived));
                }
                if message.mandatory {
                    Content::new(7, "back").with(|message_back| {
                        connection.return_message(message.link, ReplyCode::NoRoute, message_back)
                    });
                }
                connection.recycle_head(message.head);
                if let Payload::Assembled(buffer) = message.payload {
                    connection.recycle(buffer);
                }
            }
            Event::Request { session, request } => {
                let server = &mut self.lanes.get_mut(&session.0).unwrap().server;
                assert!(server.pending.is_none(), "what follows a request waits");
                server.pending = Some(match request {
                    Request::QueueDeclare(_) => Pending::Declare,
                    _ => Pending::Other,
                });
            }
            Event::Consume { link, session, consume } => {
                let lane = self.lanes.get_mut(&session.0).unwrap();
                let prefetch = lane.consuming.pop_front().unwrap();
                let prefetch = if consume.no_ack { u16::MAX } else { prefetch };
                lane.server.consumers.insert(link, (prefetch, 0));
                lane.server.pending = Some(Pending::Consume(link));
            }
            Event::Get { link, session, no_ack, .. } => {
                let server = &mut self.lanes.get_mut(&session.0).unwrap().server;
                server.pending = Some(Pending::Get(link, no_ack));
            }
            Event::Disposition { session, outcome, transaction } => {
                let lane = self.lanes.get_mut(&session.0).unwrap();
                assert!(!transaction || lane.transactional);
                let mut last = 0;
                while let Some(disposed) = connection.poll_outcome() {
                    let tag = disposed.token.0;
                    assert!(tag > last, "outcomes come in the order of the tags");
                    last = tag;
                    // What is recovered the client has not named.
                    let said = lane.said.remove(&tag).unwrap_or(Outcome::Released);
                    assert_eq!(said, outcome, "an outcome comes as it was said");
                    if let Some((_, held)) = lane.server.consumers.get_mut(&disposed.link) {
                        *held -= 1;
                    }
                    self.done.outcomes += 1;
                }
            }
            Event::Detached { link } => {
                for lane in self.lanes.values_mut() {
                    lane.server.consumers.remove(&link);
                }
            }
            Event::Ended { session, .. } => {
                let lane = self.lanes.get_mut(&session.0).unwrap();
                lane.server = ServerLane::default();
            }
            Event::Cancel { .. } | Event::LinkFlow { .. } | Event::SessionFlow { .. } => {}
            Event::Closed { error } => {
                assert_eq!(error, None);
                self.server.closed = true;
            }
            other => panic!("{other:?}"),
        }
    }

    fn act_as_server(&mut self) {
        let (server, random) = (&mut self.server.connection, &mut self.random);
        let number = 1 + random.below(3) as u32;
        let session = SessionId(number);
        let Some(lane) = self.lanes.get_mut(&number).filter(|lane| lane.server.open) else { return };
        match random.below(40) {
            0..10 => {
                lane.answer(server, session, random);
                self.read_as_server();
            }
            10..20 => {
                lane.settle(server, random);
                self.read_as_server();
            }
            20..38 => lane.deliver(server, random),
            38 => {
                let links: Vec<LinkId> = lane.server.consumers.keys().copied().collect();
                if !links.is_empty() && random.below(4) == 0 {
                    server.cancel(links[random.below(links.len() as u64) as usize]);
                }
            }
            _ if random.below(30) == 0 => {
                // What the client has sent and sends until it knows is passed over.
                server.fail(session, ErrorSpec { reply_code: ReplyCode::NotFound, text: "no" });
                lane.publishing.clear();
            }
            _ => {}
        }
    }

    /// Lets both sides answer and acknowledge until nothing is left to do.
    fn settle_down(&mut self) {
        self.chunk_max = 30_000;
        for _ in 0..100 {
            for _ in 0..4 {
                self.carry_to_client();
                self.carry_to_server();
            }
            for (&number, lane) in &mut self.lanes {
                let session = SessionId(number);
                if lane.server.open {
                    lane.answer(&mut self.server.connection, session, &mut self.random);
                    while !lane.server.unsettled.is_empty() {
                        lane.settle(&mut self.server.connection, &mut self.random);
                    }
                }
                if lane.open && !lane.closing && !lane.recovering && !lane.ending {
                    if lane.transactional {
                        lane.end_transaction(&mut self.client.connection, session, &mut self.random);
                    } else {
                        lane.acknowledge_all(&mut self.client.connection, session);
                    }
                }
            }
            self.read_as_server();
            self.client.connection.finish_turn(self.now);
            self.server.connection.finish_turn(self.now);
            self.server.connection.verify();
        }
        for (&number, lane) in &self.lanes {
            assert!(!lane.closing, "a close is answered");
            let Some(channel) = self.server.connection.channel(number as u16).filter(|_| lane.open) else {
                continue;
            };
            let on_the_way = (lane.publishing.len(), lane.delivering.len());
            assert_eq!(on_the_way, (0, 0), "all that was sent has arrived");
            assert!(lane.unconfirmed.is_empty(), "all is confirmed: {:?}", lane.unconfirmed);
            assert_eq!(lane.tag_last, lane.server.delivered);
            assert!(channel.pending.is_none() && !channel.parked.has_frames());
            if !lane.transactional {
                assert!(lane.said.is_empty() && channel.sent.count() == 0, "every outcome was told");
            }
        }
    }

    fn close(&mut self) {
        self.client.connection.close(None);
        for _ in 0..1000 {
            self.carry_to_client();
            self.carry_to_server();
            for (&number, lane) in &mut self.lanes {
                lane.answer(&mut self.server.connection, SessionId(number), &mut self.random);
            }
            if self.client.closed && self.server.closed {
                return;
            }
        }
        panic!("a close that is not answered");
    }
}

impl Lane {
    fn publish(
        &mut self,
        client: &mut Connection,
        session: SessionId,
        random: &mut Random,
        done: &mut Summary,
    ) {
        let size = if random.below(4) == 0 { random.below(12_000) } else { random.below(100) } as usize;
        let published = Content::new(size, &size.to_string());
        let mandatory = random.below(10) == 0;
        assert!(published.with(|message| client.publish(session, mandatory, message)));
        self.publishing.push_back(size);
        done.published += 1;
        if self.confirms {
            self.published += 1;
            self.unconfirmed.insert(self.published, None);
        }
    }

    fn confirmed(&mut self, tag: u64, multiple: bool, ack: bool) -> u64 {
        let first = if multiple { 0 } else { tag };
        let meant: Vec<u64> = self.unconfirmed.range(first..=tag).map(|(&tag, _)| tag).collect();
        assert!(meant.contains(&tag), "a confirm comes once");
        for tag in &meant {
            assert_eq!(self.unconfirmed.remove(tag), Some(Some(ack)), "as it was said, and never before");
        }
        meant.len() as u64
    }

    fn consume(&mut self, client: &mut Connection, session: SessionId, random: &mut Random) {
        if self.tags.len() > 5 {
            return;
        }
        let number = self.consuming.len() as u64 + 1000 * self.published + random.below(1 << 40);
        let tag = format!("c{number}");
        self.tags.push(number);
        self.consuming.push_back(self.prefetch);
        client.call(
            session,
            &basic::Consume {
                queue: ShortStr::literal("q"),
                consumer_tag: ShortStr::cut(&tag),
                no_ack: random.below(4) == 0,
                ..Default::default()
            },
        );
    }

    fn acknowledge(&mut self, client: &mut Connection, session: SessionId, random: &mut Random) {
        // While these are on their way, what is held is not known to be.
        if self.recovering || self.held.is_empty() {
            return;
        }
        let index = random.below(self.held.len() as u64) as usize;
        let tag = *self.held.iter().nth(index).unwrap();
        let multiple = random.below(3) == 0;
        let outcome = [Outcome::Accepted, Outcome::Rejected, Outcome::Released][random.below(3) as usize];
        self.say(client, session, tag, multiple, outcome);
    }

    fn acknowledge_all(&mut self, client: &mut Connection, session: SessionId) {
        if let Some(&last) = self.held.last() {
            self.say(client, session, last, true, Outcome::Accepted);
        }
    }

    fn say(
        &mut self,
        client: &mut Connection,
        session: SessionId,
        delivery_tag: u64,
        multiple: bool,
        outcome: Outcome,
    ) {
        let first = if multiple { 0 } else { delivery_tag };
        let meant: Vec<u64> = self.held.range(first..=delivery_tag).copied().collect();
        let said = if self.transactional { &mut self.saying } else { &mut self.said };
        said.extend(meant.iter().map(|&tag| (tag, outcome)));
        self.held.retain(|tag| !meant.contains(tag));
        let requeue = outcome == Outcome::Released;
        match outcome {
            Outcome::Accepted => client.call(session, &basic::Ack { delivery_tag, multiple }),
            _ if !multiple => client.call(session, &basic::Reject { delivery_tag, requeue }),
            _ => client.call(session, &basic::Nack { delivery_tag, multiple, requeue }),
        };
    }

    fn end_transaction(&mut self, client: &mut Connection, session: SessionId, random: &mut Random) {
        self.ending = true;
        if random.below(3) > 0 {
            self.said.append(&mut self.saying);
            client.call(session, &tx::Commit {});
        } else {
            self.held.extend(std::mem::take(&mut self.saying).into_keys());
            client.call(session, &tx::Rollback {});
        }
    }

    fn answer(&mut self, server: &mut Connection, session: SessionId, random: &mut Random) {
        match self.server.pending.take() {
            None => {}
            Some(Pending::Declare) => {
                let queue = ShortStr::literal("q");
                server.reply(session, Reply::Declared { queue, message_count: 0, consumer_count: 0 });
            }
            Some(Pending::Other) => server.reply(session, Reply::Done),
            Some(Pending::Consume(link)) => server.accept_consume(link),
            Some(Pending::Get(link, no_ack)) => {
                if random.below(2) == 0 {
                    server.get_empty(link);
                } else {
                    assert_eq!(server.can_send(link), SendReadiness::Ready);
                    self.send(server, link, random, no_ack);
                }
            }
        }
    }

    fn settle(&mut self, server: &mut Connection, random: &mut Random) {
        if self.server.unsettled.is_empty() {
            return;
        }
        let index =
            if random.below(3) == 0 { random.below(self.server.unsettled.len() as u64) as usize } else { 0 };
        let (delivery_id, tag) = self.server.unsettled.remove(index);
        let ack = random.below(5) > 0;
        // The client may not know of its channel's end.
        if let Some(said) = self.unconfirmed.get_mut(&tag) {
            *said = Some(ack);
        }
        let outcome = if ack { Outcome::Accepted } else { Outcome::Rejected };
        server.settle(self.server.publisher.unwrap(), delivery_id, outcome);
    }

    fn deliver(&mut self, server: &mut Connection, random: &mut Random) {
        let links: Vec<LinkId> = self.server.consumers.keys().copied().collect();
        if links.is_empty() {
            return;
        }
        let link = links[random.below(links.len() as u64) as usize];
        let (prefetch, held) = self.server.consumers[&link];
        if server.can_send(link) != SendReadiness::Ready {
            assert_eq!(server.credit(link), 0);
            return;
        }
        assert!(prefetch == 0 || held < usize::from(prefetch), "a consumer holds no more than it may");
        self.send(server, link, random, prefetch == u16::MAX);
    }

    fn send(&mut self, server: &mut Connection, link: LinkId, random: &mut Random, no_ack: bool) {
        let size = if random.below(8) == 0 { random.below(12_000) } else { random.below(100) } as usize;
        let tag = self.server.delivered + 1;
        self.server.delivered = tag;
        let key = size.to_string();
        let body = vec![size as u8; size];
        let outgoing = Outgoing {
            token: Token(tag, 0),
            redelivered: false,
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::cut(&key),
            properties: PropertyFields::default(),
            body: &[&body],
            message_count: 0,
        };
        let progress = server.send(link, &outgoing);
        assert_eq!(progress, Progress::Complete { delivery_id: tag as u32, settled: no_ack });
        if let Some((_, held)) = self.server.consumers.get_mut(&link) {
            *held += usize::from(!no_ack);
        }
        self.delivering.push_back((tag, size, !no_ack));
        self.tag_last = tag;
    }
}

/// A message to publish, or to give back.
struct Content {
    body: Vec<u8>,
    key: String,
}

impl Content {
    fn new(size: usize, key: &str) -> Self {
        Self { body: vec![size as u8; size], key: key.to_owned() }
    }

    fn with(&self, act: impl FnOnce(&Publication<'_>) -> bool) -> bool {
        let (head, rest) = self.body.split_at(self.body.len() / 3);
        act(&Publication {
            exchange: ShortStr::literal("e"),
            routing_key: ShortStr::cut(&self.key),
            properties: PropertyFields::default(),
            body: &[head, rest],
        })
    }
}

#[test]
fn everything_arrives_once_and_as_it_was_said() {
    let mut done = Summary::default();
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30);
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| Pair::new(seed).run(3000));
        let Summary { published, delivered, confirmed, outcomes, parked } =
            result.unwrap_or_else(|_| panic!("seed {seed}"));
        done.published += published;
        done.delivered += delivered;
        done.confirmed += confirmed;
        done.outcomes += outcomes;
        done.parked += parked;
    }
    println!("{done:?}");
    assert!(done.published > 100 * seeds && done.delivered > 100 * seeds, "{done:?}");
    assert!(
        done.confirmed > 30 * seeds && done.outcomes > 50 * seeds && done.parked > 20 * seeds,
        "{done:?}"
    );
}
