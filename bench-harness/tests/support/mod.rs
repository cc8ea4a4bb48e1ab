//! A broker that misbehaves as it is told, made with the protocols' server roles: one queue, whatever its name.

mod amqp091;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corelane_protocol::amqp10::{
    AttachAnswer, Config, Connection, ErrorSpec, Event, LinkId, Outgoing, Progress, Sasl, SendReadiness,
    Token,
};
use corelane_wire::amqp10::{DeliveryState, Role, SaslCode, TargetArchetype};

/// What the broker does wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Behaviour {
    /// Each delivery waits this long.
    pub(crate) delay: Duration,
    /// This message, by count, waits that long in addition, with all behind it.
    pub(crate) stall: Option<(u64, Duration)>,
    /// Every so many messages one vanishes.
    pub(crate) lose_every: Option<u64>,
    /// Every so many messages one comes twice.
    pub(crate) double_every: Option<u64>,
    /// Every so many messages one overtakes the one before.
    pub(crate) swap_every: Option<u64>,
    /// Every so many messages one is changed.
    pub(crate) change_every: Option<u64>,
    /// Every so many messages one is rejected, and delivered all the same.
    pub(crate) reject_every: Option<u64>,
    /// Nobody may attach or declare.
    pub(crate) refuse_links: bool,
    /// Nobody may log in.
    pub(crate) refuse_login: bool,
}

/// A broker on a thread of its own. One at a time in a process: a generator that shares its core measures something else.
pub(crate) struct FakeBroker {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl FakeBroker {
    pub(crate) fn start(behaviour: Behaviour) -> FakeBroker {
        FakeBroker::with_leftovers(behaviour, Vec::new())
    }

    /// The queue holds messages already.
    pub(crate) fn with_leftovers(behaviour: Behaviour, leftovers: Vec<Vec<u8>>) -> FakeBroker {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = stop.clone();
        let now = Instant::now();
        let queue = leftovers.into_iter().map(|bytes| (now, bytes)).collect();
        let mut broker = Broker {
            behaviour,
            started: now,
            peers: Vec::new(),
            peers091: Vec::new(),
            queue,
            count: 0,
            next_consumer: 0,
            stalled: now,
        };
        let thread = std::thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = listener.accept() {
                    broker.accept(stream);
                }
                if !broker.turn() {
                    std::thread::yield_now();
                }
            }
        });
        FakeBroker { address, stop, thread: Some(thread), _alone: alone }
    }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the fake broker has failed");
        }
    }
}

struct Broker {
    behaviour: Behaviour,
    started: Instant,
    peers: Vec<Peer>,
    peers091: Vec<amqp091::Peer>,
    queue: VecDeque<(Instant, Vec<u8>)>,
    count: u64,
    next_consumer: usize,
    stalled: Instant,
}

struct Peer {
    stream: TcpStream,
    connection: Connection,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Links that we send on, and the rest of a message that is sent in part.
    consumers: Vec<(LinkId, Option<Vec<u8>>)>,
}

const CREDIT: u32 = 1000;

impl Broker {
    fn accept(&mut self, stream: TcpStream) {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        let sasl = Sasl::Server { mechanisms: vec!["ANONYMOUS".into(), "PLAIN".into()], required: false };
        if amqp091::is_asked_for(&stream) {
            self.peers091.push(amqp091::Peer::new(stream, self.now()));
            return;
        }
        let connection = Connection::server(Config { sasl, ..Config::default() }, self.now());
        let (input, output, consumers) = (Vec::new(), Vec::new(), Vec::new());
        self.peers.push(Peer { stream, connection, input, output, consumers });
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Whether anything happened.
    fn turn(&mut self) -> bool {
        let now = self.now();
        let mut peers = std::mem::take(&mut self.peers);
        let mut busy = false;
        for peer in &mut peers {
            busy |= peer.read();
            self.handle(now, peer);
        }
        busy |= self.deliver(&mut peers);
        peers.retain_mut(|peer| peer.flush(now));
        self.peers = peers;
        busy | self.turn091(now)
    }

    fn handle(&mut self, now: u64, peer: &mut Peer) {
        let input = std::mem::take(&mut peer.input);
        let mut rest = input.as_slice();
        while let Some(event) = peer.connection.receive(now, &mut rest) {
            match event {
                Event::SaslInit { .. } => {
                    let code = if self.behaviour.refuse_login { SaslCode::Auth } else { SaslCode::Ok };
                    peer.connection.sasl_outcome(code, None);
                }
                Event::Opened(_) => peer.connection.accept_open(),
                Event::Attached { link, attach, .. } => {
                    let far = match &attach.target {
                        Some(TargetArchetype::Target(target)) => target.address,
                        Some(_) | None => None,
                    };
                    let own = attach.source.as_ref().and_then(|source| source.address);
                    let is_management = far.or(own) == Some("$management");
                    self.attach(peer, link, attach.role, is_management);
                }
                Event::Message(message) => {
                    let bytes = message.payload.bytes().to_vec();
                    self.enqueue(bytes);
                    let (link, id, settled) = (message.link, message.delivery_id, message.settled);
                    if !settled {
                        let rejected =
                            self.behaviour.reject_every.is_some_and(|n| self.count.is_multiple_of(n));
                        let rejection = DeliveryState::Rejected { error: None };
                        let state = if rejected { rejection } else { DeliveryState::Accepted };
                        peer.connection.settle(link, id, &state);
                    }
                    if peer.connection.credit(link) < CREDIT / 2 {
                        peer.connection.grant_credit(link, CREDIT, false);
                    }
                }
                Event::Disposition { .. } => while peer.connection.poll_outcome().is_some() {},
                Event::Detached { link, .. } => peer.consumers.retain(|(consumer, _)| *consumer != link),
                _ => {}
            }
        }
        peer.input = rest.to_vec();
    }

    fn attach(&self, peer: &mut Peer, link: LinkId, role: Role, is_management: bool) {
        // It has no node for management, as other brokers have none.
        if self.behaviour.refuse_links || is_management {
            let description = "no queue for you";
            peer.connection.refuse_attach(link, ErrorSpec { condition: "amqp:not-allowed", description });
            return;
        }
        peer.connection.accept_attach(link, &AttachAnswer::default());
        match role {
            Role::Sender => peer.connection.grant_credit(link, CREDIT, false),
            Role::Receiver => peer.consumers.push((link, None)),
        }
    }

    fn enqueue(&mut self, mut bytes: Vec<u8>) {
        self.count += 1;
        let behaviour = self.behaviour;
        let is_due = |every: Option<u64>| every.is_some_and(|every| self.count.is_multiple_of(every));
        if let Some((number, time)) = behaviour.stall
            && number == self.count
        {
            self.stalled = Instant::now() + time;
        }
        let due = (Instant::now() + behaviour.delay).max(self.stalled);
        if is_due(behaviour.lose_every) {
            return;
        }
        if is_due(behaviour.change_every) {
            *bytes.last_mut().unwrap() ^= 1;
        }
        if is_due(behaviour.double_every) {
            self.queue.push_back((due, bytes.clone()));
        }
        self.queue.push_back((due, bytes));
        if is_due(behaviour.swap_every) && self.queue.len() > 1 {
            let last = self.queue.len() - 1;
            self.queue.swap(last, last - 1);
        }
    }

    /// One message to each consumer in turn, as long as there are messages that are due and credit.
    fn deliver(&mut self, peers: &mut [Peer]) -> bool {
        let places: Vec<(usize, usize)> = (0..peers.len())
            .flat_map(|peer| (0..peers[peer].consumers.len()).map(move |place| (peer, place)))
            .collect();
        let mut delivered = false;
        let mut idle = 0;
        while idle < places.len() {
            self.next_consumer = (self.next_consumer + 1) % places.len();
            let (peer, place) = places[self.next_consumer];
            let peer = &mut peers[peer];
            let (link, rest) = &mut peer.consumers[place];
            let progress = match rest.take() {
                Some(bytes) => (peer.connection.send_more(*link, &bytes), bytes),
                None => {
                    let is_due = self.queue.front().is_some_and(|(due, _)| *due <= Instant::now());
                    if !is_due || peer.connection.can_send(*link) != SendReadiness::Ready {
                        idle += 1;
                        continue;
                    }
                    let (_, bytes) = self.queue.pop_front().unwrap();
                    let (token, rest) = (Token::default(), bytes.as_slice());
                    let outgoing = Outgoing { token, settled: false, message_format: 0, head: &[], rest };
                    (peer.connection.send(*link, &outgoing), bytes)
                }
            };
            match progress {
                (Progress::Complete { .. }, _) => (delivered, idle) = (true, 0),
                (Progress::Partial { written, .. }, bytes) => {
                    *rest = Some(bytes[written..].to_vec());
                    idle = if written > 0 { 0 } else { idle + 1 };
                }
                (other, _) => panic!("{other:?}"),
            }
        }
        delivered
    }
}

impl Peer {
    fn read(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => {
                self.connection.handle_lost();
                false
            }
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) => {
                if error.kind() != ErrorKind::WouldBlock {
                    self.connection.handle_lost();
                }
                false
            }
        }
    }

    /// Whether the connection goes on.
    fn flush(&mut self, now: u64) -> bool {
        self.connection.finish_turn(now);
        self.output.append(self.connection.output());
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
