//! What carries bytes and mail, and who acts next?

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corelane_protocol::amqp10::{self, Sasl};
use corelane_protocol::{SessionId, amqp091};
use corelane_shard::limits::TRANSACTION_KEPT_BYTES_MAX;
use corelane_shard::{
    BackupRefusal, Barrier, ConnectionSlot, Definitions, DestinationRule, Destinations, Effect, Event, Image,
    Lane, Mail, Offers, Peer, Policy, Rights, SaslReply, Shard, ShardConfig, Socket, home_shard,
};

use crate::channel_client::ChannelClient;
use crate::client::Client;
use crate::disk::{Disk, DiskSetup};
use crate::random::Random;

/// Steps without an end in sight after which [`World::run`] gives up: something goes in circles.
const STEPS_MAX: usize = 1_000_000;

/// What a world begins with.
#[derive(Clone, Debug)]
pub struct Setup {
    pub shards: usize,
    pub seed: u64,
    pub rules: Vec<DestinationRule>,
    /// The virtual hosts besides the default one.
    pub vhosts: Vec<Box<str>>,
    pub policies: Vec<Policy>,
    /// What is declared at each start.
    pub definitions: Option<Arc<Definitions>>,
    /// What whoever logs in may do; none: everything.
    pub rights: Option<Arc<Rights>>,
    pub auto_create: bool,
    /// Bytes of messages that a shard takes.
    pub memory: u64,
    /// Bytes of the largest message that is taken.
    pub message_size_max: u64,
    /// How long a transaction may hold messages; 0: for ever.
    pub transaction_timeout_us: u64,
    /// Bytes that a transaction may write on one shard.
    pub transaction_kept_bytes_max: u64,
    /// First delivery and transfer numbers of both sides.
    pub serial_first: u32,
    /// Transfers that a client takes before it opens its window again.
    pub client_window: u32,
    /// Clients log in, as `sim`.
    pub login: bool,
    /// How long the broker waits for a silent client.
    pub idle_timeout_us: Option<u64>,
    /// Check every engine after every step.
    pub verify: bool,
    /// What is durable is kept on disks like this.
    pub disk: Option<DiskSetup>,
}

impl Setup {
    pub fn new(shards: usize) -> Self {
        Setup {
            shards,
            seed: 1,
            rules: Vec::new(),
            vhosts: Vec::new(),
            policies: Vec::new(),
            definitions: None,
            rights: None,
            auto_create: true,
            memory: u64::MAX / 2,
            message_size_max: amqp10::Config::default().max_message_size,
            transaction_timeout_us: 300_000_000,
            transaction_kept_bytes_max: TRANSACTION_KEPT_BYTES_MAX,
            serial_first: 0,
            client_window: 2048,
            login: false,
            idle_timeout_us: amqp10::Config::default().idle_timeout_us,
            verify: true,
            disk: None,
        }
    }

    /// With a disk for each shard.
    pub fn durable(shards: usize, seed: u64) -> Self {
        Setup { seed, disk: Some(DiskSetup::default()), ..Setup::new(shards) }
    }
}

/// Shards, clients, and what is between them.
#[derive(Debug)]
pub struct World {
    pub now: u64,
    pub shards: Vec<Shard>,
    pub clients: Vec<Client>,
    /// Those that speak 0-9-1, by their number among all. What stands in for them there does nothing.
    channel_clients: BTreeMap<usize, ChannelClient>,
    /// None if nothing is kept.
    pub disks: Vec<Disk>,
    pub(crate) setup: Setup,
    /// Starts of the broker.
    pub(crate) boot: u32,
    /// Shards that are what they were before, and those that have stopped in order.
    pub(crate) ready: Vec<bool>,
    pub(crate) stopped: Vec<bool>,
    sockets: Vec<SimSocket>,
    /// By receiver, sender and kind.
    pub(crate) lanes: Vec<Vec<[VecDeque<Mail>; 2]>>,
    pub(crate) stalled: Vec<bool>,
    pub(crate) random: Random,
    client_config: amqp10::Config,
    verify: bool,
    pub(crate) more_work: Vec<bool>,
    /// Mails that were taken from lanes.
    pub mails: u64,
    /// What was applied to shards, and turns that they ended.
    pub events: u64,
    /// What shards have said to who runs them.
    pub warnings: Vec<String>,
    /// A hash of all events.
    pub trace: u64,
    pub(crate) barrier: Barrier,
    /// What a backup is to be made of, until somebody takes note.
    pub(crate) image: Option<Result<Image, BackupRefusal>>,
    /// Clients whose connections a shard has closed, until somebody takes note.
    pub(crate) closed_by_broker: Vec<usize>,
}

/// Who has acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Client(usize),
    Shard(usize),
    /// The thread that checks credentials.
    Control,
    /// The disk of a shard.
    Disk(usize),
}

/// The socket of the client of the same number.
#[derive(Debug)]
struct SimSocket {
    shard: usize,
    slot: Option<ConnectionSlot>,
    /// From the client, not yet received by the broker.
    to_broker: VecDeque<u8>,
    /// Taken by the driver, not yet by the client.
    sending: Option<Vec<u8>>,
    flush_asked: bool,
    reading: bool,
    /// The client takes bytes.
    client_reads: bool,
    /// The client does nothing at all.
    frozen: bool,
    open: bool,
    last_output: bool,
    /// What is on its way in either direction arrives from then on.
    delayed_until: u64,
}

impl World {
    pub fn new(setup: &Setup) -> Self {
        let mut world = World::without_shards(setup);
        world.begin_shards();
        if !world.disks.is_empty() {
            world.recover();
            world.run();
        }
        world
    }

    /// No broker has been started in it yet.
    pub(crate) fn without_shards(setup: &Setup) -> Self {
        let client_sasl = match setup.login {
            true => Sasl::Plain { user: "sim".into(), password: "".into() },
            false => Sasl::Absent,
        };
        let participants = setup.shards + 1;
        let disk = |(index, disk): (usize, DiskSetup)| Disk::new(disk, setup.seed ^ (index as u64 + 1) << 40);
        World {
            now: 1_000_000_000_000_000,
            shards: Vec::new(),
            clients: Vec::new(),
            channel_clients: BTreeMap::new(),
            disks: (0..setup.shards).zip(setup.disk.iter().cycle().cloned()).map(disk).collect(),
            setup: setup.clone(),
            boot: 0,
            ready: vec![false; setup.shards],
            stopped: vec![false; setup.shards],
            sockets: Vec::new(),
            lanes: (0..participants)
                .map(|_| (0..participants).map(|_| Default::default()).collect())
                .collect(),
            stalled: vec![false; setup.shards],
            random: Random::new(setup.seed),
            client_config: amqp10::Config {
                serial_first: setup.serial_first,
                incoming_window: setup.client_window,
                sasl: client_sasl,
                ..client_config()
            },
            verify: setup.verify,
            more_work: vec![false; setup.shards],
            mails: 0,
            events: 0,
            warnings: Vec::new(),
            trace: 0,
            barrier: Barrier::new(setup.shards),
            image: None,
            closed_by_broker: Vec::new(),
        }
    }

    /// Shards in the place of those that were.
    pub(crate) fn begin_shards(&mut self) {
        let setup = &self.setup;
        let sasl = match setup.login {
            true => Sasl::Server { mechanisms: vec!["PLAIN".into()], required: true },
            false => Sasl::Absent,
        };
        let config = Arc::new(amqp10::Config {
            container_id: "broker".into(),
            serial_first: setup.serial_first,
            idle_timeout_us: setup.idle_timeout_us,
            max_message_size: setup.message_size_max,
            sasl,
            ..amqp10::Config::default()
        });
        let login = amqp091::Login::Server { mechanisms: vec!["PLAIN".into()] };
        let amqp091 =
            amqp091::Config { login, max_message_size: setup.message_size_max, ..amqp091::Config::default() };
        let offers = Offers { amqp10: config, amqp091: Arc::new(amqp091) };
        let shard = |index| {
            Shard::new(ShardConfig {
                index,
                shards: setup.shards,
                boot: 7 + u64::from(self.boot),
                loopback: offers.clone(),
                elsewhere: offers.clone(),
                destinations: Destinations::new(setup.rules.clone(), setup.auto_create)
                    .with_policies(setup.policies.clone()),
                vhosts: setup.vhosts.clone(),
                definitions: setup.definitions.clone(),
                memory: setup.memory,
                transaction_timeout_us: setup.transaction_timeout_us,
                transaction_kept_bytes_max: setup.transaction_kept_bytes_max,
            })
        };
        self.shards = (0..setup.shards).map(shard).collect();
    }

    /// All connections are broken; their clients see that.
    pub(crate) fn break_connections(&mut self) {
        for socket in &mut self.sockets {
            socket.slot = None;
            socket.open = false;
            socket.sending = None;
            socket.flush_asked = false;
            socket.to_broker.clear();
        }
    }

    /// A client, accepted by this shard, with its session begun.
    pub fn connect(&mut self, shard: usize) -> usize {
        self.connect_as(shard, "client")
    }

    /// The same, of this container.
    pub fn connect_as(&mut self, shard: usize, container: &str) -> usize {
        let client = self.open_as(shard, container);
        self.run();
        client
    }

    /// The same, in this virtual host.
    pub fn connect_in(&mut self, shard: usize, vhost: &str) -> usize {
        let config =
            amqp10::Config { hostname: Some(format!("vhost:{vhost}").into()), ..self.client_config.clone() };
        let client = self.open_with(shard, config);
        self.run();
        client
    }

    /// A client on its way: this shard accepts it, and nothing further is waited for.
    pub fn open(&mut self, shard: usize) -> usize {
        self.open_as(shard, "client")
    }

    fn open_as(&mut self, shard: usize, container: &str) -> usize {
        let config = amqp10::Config { container_id: container.into(), ..self.client_config.clone() };
        self.open_with(shard, config)
    }

    fn open_with(&mut self, shard: usize, config: amqp10::Config) -> usize {
        let client = self.clients.len();
        self.clients.push(Client::new(config, self.now));
        self.accept(shard, client);
        // Without a login all is sent at once.
        if self.client_config.sasl != Sasl::Absent {
            self.run();
        }
        if self.clients[client].closed.is_none() {
            self.clients[client].begin();
        }
        client
    }

    /// A client that speaks 0-9-1, accepted by this shard.
    pub fn connect_channels(&mut self, shard: usize) -> usize {
        self.connect_channels_in(shard, "/")
    }

    /// The same, in this virtual host.
    pub fn connect_channels_in(&mut self, shard: usize, vhost: &str) -> usize {
        self.connect_channels_of(shard, vhost, amqp091::Config::default().frame_max)
    }

    /// The same, with frames of so many bytes at most.
    pub fn connect_channels_of(&mut self, shard: usize, vhost: &str, frame_max: u32) -> usize {
        let number = self.clients.len();
        self.clients.push(Client::new(self.client_config.clone(), self.now));
        self.channel_clients.insert(number, ChannelClient::new(self.now, vhost, frame_max));
        self.accept(shard, number);
        self.run();
        number
    }

    /// A new client of this shard that speaks 0-9-1, and a channel of it.
    pub fn open_channel(&mut self, shard: usize) -> (usize, SessionId) {
        let number = self.connect_channels(shard);
        let channel = self.channel_client(number).open_channel();
        self.run();
        self.channel_client(number).take_seen();
        (number, channel)
    }

    /// What a channel has seen when it has done this and all has happened that follows.
    pub fn on_channel(
        &mut self,
        (number, channel): (usize, SessionId),
        act: impl FnOnce(&mut ChannelClient, SessionId),
    ) -> Vec<String> {
        act(self.channel_client(number), channel);
        self.run();
        self.channel_client(number).take_seen()
    }

    /// The client of this number, which speaks 0-9-1.
    pub fn channel_client(&mut self, number: usize) -> &mut ChannelClient {
        self.channel_clients.get_mut(&number).expect("it was connected as one")
    }

    fn accept(&mut self, shard: usize, client: usize) {
        self.sockets.push(SimSocket {
            shard,
            slot: None,
            to_broker: VecDeque::new(),
            sending: None,
            flush_asked: false,
            reading: true,
            client_reads: true,
            frozen: false,
            open: true,
            last_output: false,
            delayed_until: 0,
        });
        let peer = Peer { loopback: true, address: None };
        self.apply(shard, Event::Accepted { socket: Socket(client as u64), peer });
    }

    /// The shard that a client's connection is on.
    pub fn shard_of(&self, client: usize) -> usize {
        self.sockets[client].shard
    }

    /// Other properties of destinations hold from now on.
    pub fn change_destinations(&mut self, rules: Vec<DestinationRule>) {
        let destinations = Arc::new(Destinations::new(rules, true));
        let control = self.shards.len();
        for shard in 0..control {
            let mail = Mail::Destinations(Arc::clone(&destinations));
            self.lanes[shard][control][Lane::Control as usize].push_back(mail);
        }
        self.run();
    }

    /// A stalled shard does nothing; what is sent to it waits.
    pub fn stall(&mut self, shard: usize, stalled: bool) {
        self.stalled[shard] = stalled;
    }

    /// A client that does not read lets the broker's sends hang.
    pub fn client_reads(&mut self, client: usize, reads: bool) {
        self.sockets[client].client_reads = reads;
    }

    /// A client that is frozen neither reads nor writes; its socket stays open.
    pub fn freeze(&mut self, client: usize) {
        self.sockets[client].frozen = true;
    }

    /// A client that was frozen goes on.
    pub fn thaw(&mut self, client: usize) {
        self.sockets[client].frozen = false;
    }

    /// What is on its way to and from a client arrives later.
    pub fn delay(&mut self, client: usize, until: u64) {
        self.sockets[client].delayed_until = until;
    }

    /// Whether a client's shard has taken in all that the client has said.
    pub fn is_heard(&mut self, client: usize) -> bool {
        let socket = &self.sockets[client];
        let Some(slot) = socket.slot else { return false };
        socket.to_broker.is_empty()
            && self.clients[client].protocol.output().is_empty()
            && self.shards[socket.shard].unread_bytes(slot) == 0
    }

    /// The shard where a queue of this name lives, or would.
    pub fn home_of(&self, queue: &str) -> usize {
        home_shard("/", queue, self.shards.len())
    }

    /// Pieces of mail on their way to a shard.
    pub fn mail_for(&self, shard: usize, lane: Lane) -> usize {
        self.lanes[shard].iter().map(|lanes| lanes[lane as usize].len()).sum()
    }

    /// The client's host is gone: the broker sees the connection break.
    pub fn kill(&mut self, client: usize) {
        let socket = &mut self.sockets[client];
        socket.open = false;
        socket.to_broker.clear();
        if let Some(slot) = socket.slot {
            let shard = socket.shard;
            self.apply(shard, Event::Lost { connection: slot });
        }
    }

    /// The client hangs up. The broker sees that when it reads, which it may not do now.
    pub fn hang_up(&mut self, client: usize) {
        if self.sockets[client].reading {
            self.kill(client);
        } else {
            self.sockets[client].open = false;
        }
    }

    /// Lets time pass, and timers with it.
    pub fn advance(&mut self, us: u64) {
        self.now += us;
        self.more_work.fill(true);
        self.run();
    }

    /// Lets time pass; nobody has acted yet.
    pub fn pass(&mut self, us: u64) {
        self.now += us;
        self.more_work.fill(true);
    }

    /// One participant acts, drawn from the seed among those who can. None: nobody could.
    pub fn tick(&mut self) -> Option<Actor> {
        let count = self.clients.len() + self.shards.len() + 1 + self.disks.len();
        let first = self.random.below(count);
        for at in (first..first + count).map(|at| at % count) {
            let shards = self.shards.len();
            let (acted, actor) = match at.checked_sub(self.clients.len()) {
                None => (self.is_connected(at) && self.act(at), Actor::Client(at)),
                Some(shard) if shard < shards => (self.turn(shard), Actor::Shard(shard)),
                Some(at) if at > shards => (self.disk(at - shards - 1), Actor::Disk(at - shards - 1)),
                Some(_) => (self.control(), Actor::Control),
            };
            if acted {
                return Some(actor);
            }
        }
        None
    }

    /// A client whose socket is closed reads what is left, and then does nothing more.
    fn is_connected(&self, client: usize) -> bool {
        let socket = &self.sockets[client];
        socket.open || socket.sending.is_some()
    }

    /// Runs until nothing is left to do at this time.
    pub fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    /// Everyone who can acts once, in an order drawn from the seed. False: nobody could.
    pub fn step(&mut self) -> bool {
        let mut acted = false;
        let shards = self.shards.len();
        let mut actors: Vec<usize> = (0..self.clients.len() + shards + self.disks.len()).collect();
        for last in (1..actors.len()).rev() {
            actors.swap(last, self.random.below(last + 1));
        }
        for actor in actors {
            acted |= match actor.checked_sub(self.clients.len()) {
                Some(shard) if shard < shards => self.turn(shard),
                Some(at) => self.disk(at - shards),
                None => self.act(actor),
            };
        }
        acted |= self.control();
        if self.verify {
            self.shards.iter().for_each(|shard| shard.engine().verify());
        }
        acted
    }

    fn act(&mut self, client: usize) -> bool {
        if self.sockets[client].frozen {
            return false;
        }
        let (mut acted, output) = match self.channel_clients.get_mut(&client) {
            None => {
                let client = &mut self.clients[client];
                (client.act(self.now), std::mem::take(client.protocol.output()))
            }
            Some(client) => (client.act(self.now), std::mem::take(client.protocol.output())),
        };
        acted |= !output.is_empty();
        let socket = &mut self.sockets[client];
        if socket.open {
            socket.to_broker.extend(output);
        }
        if socket.client_reads
            && socket.delayed_until <= self.now
            && let Some(bytes) = socket.sending.take()
        {
            acted = true;
            match self.channel_clients.get_mut(&client) {
                None => self.clients[client].input.extend_from_slice(&bytes),
                Some(client) => client.input.extend_from_slice(&bytes),
            }
            let (shard, slot) = (socket.shard, socket.slot);
            if let Some(connection) = slot {
                self.apply(shard, Event::Flushed { connection, buffer: bytes });
            }
            self.start_send(client);
        }
        acted
    }

    /// A turn of a shard: some bytes of each of its sockets, some mail of each lane.
    fn turn(&mut self, shard: usize) -> bool {
        if self.stalled[shard] {
            return false;
        }
        let mut acted = false;
        for client in 0..self.sockets.len() {
            let socket = &mut self.sockets[client];
            let Some(connection) = socket.slot else { continue };
            let waits = socket.to_broker.is_empty() || socket.delayed_until > self.now;
            if socket.shard != shard || !socket.reading || waits {
                continue;
            }
            let count = 1 + self.random.below(socket.to_broker.len());
            let bytes: Vec<u8> = socket.to_broker.drain(..count).collect();
            self.apply(shard, Event::Received { connection, bytes: &bytes });
            acted = true;
        }
        for from in 0..self.lanes[shard].len() {
            for kind in 0..2 {
                let waiting = self.lanes[shard][from][kind].len();
                for _ in 0..if waiting > 0 { self.random.below(waiting + 1) } else { 0 } {
                    let Some(mail) = self.lanes[shard][from][kind].pop_front() else { break };
                    self.mails += 1;
                    self.apply(shard, Event::Mail { from, mail });
                }
                acted |= waiting > 0;
            }
        }
        if acted || self.more_work[shard] {
            let turn = self.shards[shard].finish_turn(self.now);
            self.note(shard as u64);
            self.more_work[shard] = turn.more_work || turn.next_deadline.is_some_and(|at| at <= self.now);
            self.effects(shard);
            acted = true;
        }
        acted
    }

    /// A disk has done something.
    fn disk(&mut self, shard: usize) -> bool {
        let Some(answer) = self.disks[shard].act(self.now) else { return false };
        let mut bytes = Vec::new();
        self.apply(shard, answer.event(&mut bytes));
        true
    }

    /// The control thread: lets everyone in, and makes backups.
    fn control(&mut self) -> bool {
        let control = self.shards.len();
        let mut acted = false;
        for from in 0..control {
            while let Some(mail) = self.lanes[control][from][Lane::Control as usize].pop_front() {
                acted = true;
                match mail {
                    Mail::SaslStep { connection, .. } => {
                        let user = Some("sim".to_owned());
                        let reply = SaslReply::Accepted {
                            user,
                            rights: self.setup.rights.clone(),
                            additional: Vec::new(),
                        };
                        let answer = Mail::SaslReply { connection, reply };
                        self.lanes[from][control][Lane::Control as usize].push_back(answer);
                    }
                    Mail::Backup(mail) => {
                        if let Some(image) = self.barrier.handle(from, mail) {
                            self.image = Some(image);
                        }
                        self.post_of_barrier();
                    }
                    _ => {}
                }
            }
        }
        acted
    }

    /// An event, in the hash of all.
    fn note(&mut self, what: u64) {
        self.events += 1;
        self.trace = (self.trace ^ what ^ self.now.rotate_left(32))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    pub(crate) fn apply(&mut self, shard: usize, event: Event<'_>) {
        let what = match &event {
            Event::Accepted { socket, .. } => socket.0,
            Event::Received { bytes, .. } => {
                bytes.iter().fold(1, |hash, byte| hash * 31 % 0xffff_fffb + u64::from(*byte))
            }
            Event::Flushed { buffer, .. } => 0x1_0000 + buffer.len() as u64,
            Event::Lost { connection } => 0x2_0000 + u64::from(connection.index),
            Event::Probed { connection } => 0x9_0000 + u64::from(connection.index),
            Event::Mail { from, .. } => 0x3_0000 + *from as u64,
            Event::Stop => 0x4_0000,
            Event::Written { write, .. } => 0x5_0000 + write.offset,
            Event::SegmentPrepared { number, .. } => 0x6_0000 + u64::from(*number),
            Event::SegmentRefused { number, .. } => 0x7_0000 + u64::from(*number),
            Event::SegmentRead { offset, .. } => 0x8_0000 + *offset,
            Event::BodiesRead { result } => 0xb_0000 + result.as_ref().map_or(0, |bytes| bytes.len() as u64),
        };
        self.note(what << 8 | shard as u64);
        self.shards[shard].apply(self.now, event);
        self.more_work[shard] = true;
        self.effects(shard);
    }

    pub(crate) fn effects(&mut self, shard: usize) {
        let mut effects = Vec::new();
        self.shards[shard].take_effects(&mut effects);
        let mut looked_at = Vec::new();
        for effect in effects {
            looked_at.extend(self.effect(shard, effect));
        }
        // What the shard had said by then goes before what it says of this.
        for connection in looked_at {
            if self.client_of(shard, connection).is_some_and(|client| !self.sockets[client].open) {
                self.apply(shard, Event::Lost { connection });
            }
            self.apply(shard, Event::Probed { connection });
        }
    }

    /// A connection whose socket may have ended comes back.
    fn effect(&mut self, shard: usize, effect: Effect) -> Option<ConnectionSlot> {
        match effect {
            Effect::Register { connection, socket: Socket(client) } => {
                let socket = &mut self.sockets[client as usize];
                socket.shard = shard;
                socket.slot = Some(connection);
                socket.reading = true;
                return (!socket.open).then_some(connection);
            }
            Effect::Flush { connection } => {
                if let Some(client) = self.client_of(shard, connection) {
                    self.sockets[client].flush_asked = true;
                    self.start_send(client);
                }
            }
            Effect::Close { connection } => {
                let last = self.shards[shard].take_output(connection);
                if let Some(client) = self.client_of(shard, connection) {
                    let socket = &mut self.sockets[client];
                    if socket.open {
                        self.closed_by_broker.push(client);
                    }
                    socket.slot = None;
                    socket.sending.get_or_insert_default().extend(last);
                    socket.open = false;
                    socket.last_output = true;
                }
            }
            Effect::Reading { connection, on } => {
                if let Some(client) = self.client_of(shard, connection) {
                    let socket = &mut self.sockets[client];
                    socket.reading = on;
                    // What was hung up meanwhile is seen now.
                    return (on && !socket.open).then_some(connection);
                }
            }
            Effect::Probe { connection } => return Some(connection),
            Effect::HandOver { connection } => {
                if let Some(client) = self.client_of(shard, connection)
                    && self.shards[shard].release(connection, Socket(client as u64))
                {
                    self.sockets[client].slot = None;
                    self.effects(shard);
                }
            }
            Effect::Post { to, lane, mail } => self.lanes[to][shard][lane as usize].push_back(mail),
            Effect::Warn { text } => self.warnings.push(text),
            Effect::Ready => {
                self.ready[shard] = true;
                if self.is_ready() {
                    let control = self.setup.shards;
                    for lanes in self.lanes.iter_mut().take(control) {
                        lanes[control][Lane::Control as usize].push_back(Mail::AllReady);
                    }
                }
            }
            Effect::Stopped => self.stopped[shard] = true,
            Effect::Write { .. }
            | Effect::PrepareSegment { .. }
            | Effect::ReadSegment { .. }
            | Effect::ReadBodies { .. }
            | Effect::FreeSegments { .. } => self.disks[shard].handle(self.now, effect),
        }
        None
    }

    fn start_send(&mut self, client: usize) {
        let socket = &mut self.sockets[client];
        if let Some(slot) = socket.slot
            && socket.flush_asked
            && socket.sending.is_none()
        {
            socket.flush_asked = false;
            let output = self.shards[socket.shard].take_output(slot);
            self.sockets[client].sending = Some(output);
        }
    }

    fn client_of(&self, shard: usize, slot: ConnectionSlot) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.shard == shard && socket.slot == Some(slot))
    }
}

/// What a client is like if nothing else is asked for.
pub(crate) fn client_config() -> amqp10::Config {
    amqp10::Config {
        container_id: "client".into(),
        idle_timeout_us: None,
        // One that was silent for long goes on where it was.
        handshake_timeout_us: None,
        unsettled_max: 1 << 20,
        ..amqp10::Config::default()
    }
}

/// Queue names whose home is this shard.
pub fn names_homed_at(shard: usize, shards: usize) -> impl Iterator<Item = String> {
    (0..).map(|n| format!("q{n}")).filter(move |name| home_shard("/", name, shards) == shard)
}
