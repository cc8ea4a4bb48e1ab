//! What does a shard's thread do all day?
//!
//! A turn: apply completions and mail, finish the turn, carry out the effects, ring who must be rung; then submit, and if
//! nothing is left to do poll or sleep as the idle policy says.
//!
//! Invariants:
//! - nothing is done to a stream while completions are applied: streams that something happened to are *touched*, and
//!   settled once the shard has finished its turn, so that what a turn brings is sent at once;
//! - a connection is told lost once, and closed only on the shard's word;
//! - on the way to sleep there is no completion, no mail and no work that was put off.

use super::buffers::Filled;
use super::clock::Clock;
use super::control::Letter;
use super::disk::{Disk, Done};
use super::executor::{Placement, Thread};
use super::idle::Idle;
use super::limits::{
    ACCEPT_PAUSE_US, CLOSE_FLUSH_US, CLOSE_LINGER_US, RECEIVE_BUFFERS, SLEEP_MAX_US, TURN_BYTES_MAX,
    TURN_COMPLETIONS_MAX, TURN_MAILS_MAX,
};
use super::listen::Listening;
use super::memory::{self, Tidy};
use super::ring::{Completion, Ring, StreamKey};
use super::service::Service;
use super::socket;
use super::streams::{Phase, Receive, Send, Stream, Streams};
use super::thread::Starting;
use crate::doorbell::Doorbell;
use crate::storage::Synced;
use corelane_mailbox::{Lane, Port};
use corelane_shard::{ConnectionSlot, Effect, Event, Peer, Socket, Turn};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// What a shard's thread is started with.
pub struct Driver {
    /// Below the number of shards.
    pub index: usize,
    pub placement: Placement,
    pub idle: Idle,
    pub clock: Clock,
    pub port: Port<Letter>,
    /// Of all participants.
    pub bells: Arc<[Doorbell]>,
    /// For the first shard, which accepts for all.
    pub listeners: Vec<Listening>,
    /// None: nothing is kept.
    pub disk: Option<Disk>,
}

impl Driver {
    /// Starts the thread, and has it make its service, which may take its time.
    pub fn start<S: Service>(
        self,
        make: impl FnOnce() -> io::Result<S> + std::marker::Send + 'static,
    ) -> io::Result<Starting> {
        let (say_ready, ready) = channel();
        let (end, ended) = channel();
        let index = self.index;
        let thread = Thread::start(&format!("shard-{index}"), self.placement, move || {
            self.run(make, say_ready);
            let _ = end.send(());
        })?;
        Ok(Starting::new(index, thread, ended, ready))
    }

    fn run<S: Service>(self, make: impl FnOnce() -> io::Result<S>, ready: Sender<io::Result<()>>) {
        let index = self.index;
        let guard = AbortOnUnwind { index };
        let started = Ring::new().and_then(|ring| Pump::new(self, ring, make()?));
        match started {
            Ok(mut pump) => {
                let _ = ready.send(Ok(()));
                if let Err(error) = pump.run() {
                    panic!("the ring of shard {index} has failed: {error}");
                }
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
        std::mem::forget(guard);
    }
}

/// A shard whose invariants are broken must not go on, and the others cannot without it.
struct AbortOnUnwind {
    index: usize,
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("shard {} has panicked: the process ends", self.index);
        std::process::abort();
    }
}

/// A shard with all that moves it.
struct Pump<S> {
    service: S,
    ring: Ring,
    streams: Streams,
    port: Port<Letter>,
    bells: Arc<[Doorbell]>,
    clock: Clock,
    idle: Idle,
    /// The core has other shards too: those that were rung may go first.
    yields: bool,
    listeners: Vec<Listener>,
    /// Who gets the next connection.
    next_shard: usize,
    /// Streams that something happened to in this turn.
    touched: Vec<StreamKey>,
    /// Streams whose receive found no buffer, in line.
    starved: VecDeque<StreamKey>,
    /// When a stream's phase must be over. Entries of phases that are over are stale.
    deadlines: BinaryHeap<Reverse<(u64, StreamKey)>>,
    effects: Vec<Effect>,
    disk: Option<Disk>,
    tidy: Tidy,
    /// The shard has forgotten a connection after it finished its turn, and may want to say that it has stopped.
    again: bool,
    stopping: bool,
    service_stopped: bool,
    reported: bool,
    exit: bool,
}

struct Listener {
    listening: Listening,
    state: Accept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accept {
    InFlight,
    PausedUntil(u64),
    Ended,
}

impl<S: Service> Pump<S> {
    fn new(driver: Driver, mut ring: Ring, service: S) -> io::Result<Self> {
        ring.listen_to(&driver.bells[driver.index]);
        let listeners = driver.listeners.into_iter();
        let mut pump = Pump {
            service,
            ring,
            streams: Streams::default(),
            port: driver.port,
            bells: driver.bells,
            clock: driver.clock,
            idle: driver.idle,
            yields: matches!(driver.placement, Placement::Shared(_)),
            listeners: listeners
                .map(|listening| Listener { listening, state: Accept::PausedUntil(u64::MAX) })
                .collect(),
            next_shard: 0,
            touched: Vec::new(),
            starved: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            effects: Vec::new(),
            disk: driver.disk,
            tidy: Tidy::default(),
            again: false,
            stopping: false,
            service_stopped: false,
            reported: false,
            exit: false,
        };
        pump.ring.submit()?;
        Ok(pump)
    }

    fn run(&mut self) -> io::Result<()> {
        while !(self.exit && self.is_quiet()) {
            let now = self.clock.now();
            self.harvest(now);
            self.take_done(now);
            let more_mail = self.take_mail(now);
            self.handle_timeouts(now);
            let turn = self.service.finish_turn(now);
            self.carry_out(now);
            self.report();
            let bells = &self.bells;
            let mut rang = false;
            self.port.flush(|to| {
                bells[to].ring();
                rang = true;
            });
            if rang && self.yields {
                std::thread::yield_now();
            }
            let again = std::mem::take(&mut self.again);
            let busy = turn.more_work || more_mail || again || !self.starved.is_empty();
            self.idle(busy, now, turn)?;
        }
        Ok(())
    }

    // Inputs.

    fn harvest(&mut self, now: u64) {
        let mut bytes = 0;
        for _ in 0..TURN_COMPLETIONS_MAX {
            let Some(completion) = self.ring.complete() else { return };
            self.tidy.note_work(now);
            match completion {
                Completion::Received { stream, result, armed } => {
                    bytes += self.handle_received(now, stream, result, armed);
                }
                Completion::Sent { stream, buffer, result } => self.handle_sent(now, stream, buffer, result),
                Completion::CancelDone { stream } => {
                    self.streams.present(stream).cancelling = false;
                    self.touched.push(stream);
                }
                Completion::Accepted { listener, result, armed } => {
                    self.handle_accepted(now, listener as usize, result, armed);
                }
                Completion::Rung { armed } => {
                    if !armed {
                        self.ring.listen_to(&self.bells[self.port.index()]);
                    }
                }
                Completion::AcceptCancelDone => {}
                Completion::Written { write, result } => {
                    let synced = self
                        .disk
                        .as_mut()
                        .and_then(|disk| disk.handle_written(&mut self.ring, write, result));
                    self.handle_synced(now, synced);
                }
                Completion::Synced { result } => {
                    let synced =
                        self.disk.as_mut().and_then(|disk| disk.handle_synced(&mut self.ring, result));
                    self.handle_synced(now, synced);
                }
            }
            if bytes >= TURN_BYTES_MAX {
                return;
            }
        }
    }

    fn handle_received(
        &mut self,
        now: u64,
        key: StreamKey,
        result: Result<Option<Filled>, Errno>,
        armed: bool,
    ) -> usize {
        let stream = self.streams.present(key);
        let (connection, known) = (stream.connection, stream.is_known());
        if !armed {
            stream.receive = Receive::Idle;
            self.touched.push(key);
        }
        match result {
            Ok(Some(filled)) => {
                let bytes = self.ring.bytes(&filled);
                let size = bytes.len();
                if known {
                    self.service.apply(now, Event::Received { connection, bytes });
                }
                self.ring.lend(filled);
                return size;
            }
            Ok(None) => {
                self.streams.present(key).receive = Receive::Ended;
                self.handle_lost(now, key);
            }
            Err(Errno::NOBUFS) => {
                self.streams.present(key).receive = Receive::Starved;
                self.starved.push_back(key);
            }
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Err(_) => {
                let stream = self.streams.present(key);
                stream.receive = Receive::Ended;
                stream.broken = true;
                self.handle_lost(now, key);
            }
        }
        0
    }

    fn handle_sent(&mut self, now: u64, key: StreamKey, buffer: Vec<u8>, result: Result<usize, Errno>) {
        let stream = self.streams.present(key);
        let Send::InFlight { offset } = stream.send else {
            unreachable!("a send that completes is in flight")
        };
        stream.send = Send::Idle;
        self.touched.push(key);
        let sent = match result {
            Ok(0) => Err(Errno::PIPE),
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            result => result,
        };
        match sent {
            Ok(count) if offset + count == buffer.len() => {
                let (connection, known) = (stream.connection, stream.is_known());
                if known {
                    self.service.apply(now, Event::Flushed { connection, buffer });
                }
            }
            Ok(_) if stream.phase == Phase::Ending => {}
            Ok(count) => self.send(key, buffer, offset + count),
            Err(_) => {
                stream.broken = true;
                self.handle_lost(now, key);
            }
        }
    }

    fn handle_lost(&mut self, now: u64, key: StreamKey) {
        let stream = self.streams.present(key);
        let connection = stream.connection;
        if stream.is_known() && !std::mem::replace(&mut stream.lost, true) {
            self.service.apply(now, Event::Lost { connection });
        }
    }

    fn handle_accepted(&mut self, now: u64, index: usize, result: Result<OwnedFd, Errno>, armed: bool) {
        let listener = &mut self.listeners[index];
        if !armed {
            listener.state = if self.stopping { Accept::Ended } else { Accept::PausedUntil(now) };
        }
        match result {
            Ok(socket) if !self.stopping => {
                let peer = listener.listening.peer(&socket);
                let to = self.next_shard;
                self.next_shard = (to + 1) % (self.port.participants() - 1);
                if to == self.port.index() {
                    self.adopt_socket(now, socket, peer);
                } else {
                    self.port.post(to, Lane::Control, Letter::Accepted { socket, peer });
                }
            }
            // It is closed at once.
            Ok(_) => {}
            Err(Errno::CANCELED | Errno::CONNABORTED | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => {
                let address = listener.listening.address();
                warn!(%address, %error, "cannot accept connections for a moment");
                if listener.state != Accept::Ended {
                    listener.state = Accept::PausedUntil(now + ACCEPT_PAUSE_US);
                }
            }
        }
    }

    fn handle_synced(&mut self, now: u64, synced: Option<Synced>) {
        if let Some(Synced { write, result }) = synced {
            let result = result.map_err(|error| error.to_string());
            self.service.apply(now, Event::Written { write, result });
        }
    }

    /// What was done beside the shard.
    fn take_done(&mut self, now: u64) {
        while let Some(done) = self.disk.as_mut().and_then(Disk::poll) {
            self.tidy.note_work(now);
            match done {
                Done::Synced(synced) => self.handle_synced(now, Some(synced)),
                Done::Prepared { number, result: Ok(epoch) } => {
                    self.service.apply(now, Event::SegmentPrepared { number, epoch });
                }
                Done::Prepared { number, result: Err(error) } => {
                    self.service.apply(now, Event::SegmentRefused { number, reason: error.to_string() });
                }
                Done::BodiesRead { buffer, result } => {
                    let result = result.map(|()| buffer.as_slice()).map_err(|error| error.to_string());
                    self.service.apply(now, Event::BodiesRead { result });
                    if let Some(disk) = &mut self.disk {
                        disk.reuse_bodies(buffer);
                    }
                }
                Done::Read { number, offset, buffer, result } => {
                    let result = match result {
                        Ok(count) => Ok(&buffer[..count]),
                        Err(error) => Err(error.to_string()),
                    };
                    self.service.apply(now, Event::SegmentRead { number, offset, result });
                    if let Some(disk) = &mut self.disk {
                        disk.reuse(buffer);
                    }
                }
                Done::NotFreed { error } => {
                    warn!(shard = self.port.index(), %error, "files that are no longer needed cannot be deleted");
                }
            }
        }
    }

    fn take_mail(&mut self, now: u64) -> bool {
        let (mut stop, mut accept) = (false, false);
        let Pump { port, service, stopping, exit, tidy, .. } = self;
        let more = port.take(TURN_MAILS_MAX, |from, _, letter| match letter {
            Letter::Mail(mail) => {
                tidy.note_work(now);
                service.apply(now, Event::Mail { from, mail });
            }
            Letter::Accepted { socket, peer } => {
                if !*stopping {
                    service.apply(now, Event::Accepted { socket: socket::into_socket(socket), peer });
                }
            }
            Letter::Stop => {
                stop = !std::mem::replace(stopping, true);
                service.apply(now, Event::Stop);
            }
            Letter::Accept => accept = true,
            Letter::Exit => *exit = true,
            Letter::Ready | Letter::Stopped => {
                unreachable!("this is written to the control thread alone")
            }
        });
        if accept && !self.stopping {
            self.begin_accepting(now);
        }
        if stop {
            self.stop_accepting();
        }
        more
    }

    fn handle_timeouts(&mut self, now: u64) {
        self.resume_accepting(now);
        while let Some(&Reverse((deadline, key))) = self.deadlines.peek()
            && deadline <= now
        {
            self.deadlines.pop();
            let Some(stream) = self.streams.get_mut(key) else { continue };
            if stream.deadline != deadline || stream.phase == Phase::Ending {
                continue;
            }
            if stream.phase == (Phase::Closing { taken: false }) {
                // The shard forgets the connection with this.
                drop(self.service.take_output(stream.connection));
                self.again = true;
            }
            socket::reset_on_close(&stream.socket);
            stream.phase = Phase::Ending;
            self.touched.push(key);
        }
        for _ in 0..RECEIVE_BUFFERS {
            let Some(key) = self.starved.pop_front() else { break };
            if let Some(stream) = self.streams.get_mut(key)
                && stream.receive == Receive::Starved
            {
                stream.receive = Receive::Idle;
                self.touched.push(key);
            }
        }
    }

    // Outputs.

    fn carry_out(&mut self, now: u64) {
        loop {
            let mut effects = std::mem::take(&mut self.effects);
            self.service.take_effects(&mut effects);
            for effect in effects.drain(..) {
                self.carry_out_one(now, effect);
            }
            self.effects = effects;
            // Settling a stream may bring new effects, and touch it again; nothing else does.
            if self.touched.is_empty() {
                return;
            }
            let mut touched = std::mem::take(&mut self.touched);
            for key in touched.drain(..) {
                self.settle(now, key);
            }
            touched.append(&mut self.touched);
            self.touched = touched;
        }
    }

    fn carry_out_one(&mut self, now: u64, effect: Effect) {
        match effect {
            Effect::Register { connection, socket } => {
                let key = self.streams.insert(socket::from_socket(socket), connection);
                self.touched.push(key);
            }
            Effect::Flush { connection } => self.change(connection, |stream| stream.flush_due = true),
            Effect::Reading { connection, on } => self.change(connection, |stream| stream.reading = on),
            Effect::Probe { connection } => self.probe(now, connection),
            Effect::HandOver { connection } => self.change(connection, |stream| stream.phase = Phase::Moving),
            Effect::Close { connection } => {
                let deadline = now + CLOSE_FLUSH_US;
                if let Some((key, stream)) = self.streams.of_connection(connection) {
                    stream.phase = Phase::Closing { taken: false };
                    stream.deadline = deadline;
                    self.deadlines.push(Reverse((deadline, key)));
                    self.touched.push(key);
                }
            }
            Effect::Post { to, lane, mail } => self.port.post(to, lane, Letter::Mail(mail)),
            Effect::Warn { text } => warn!(shard = self.port.index(), "{text}"),
            Effect::Ready => {
                let control = self.port.participants() - 1;
                self.port.post(control, Lane::Control, Letter::Ready);
            }
            Effect::Stopped => self.service_stopped = true,
            Effect::Write { write } => {
                let (disk, ring) = self.disk();
                disk.write(ring, write);
            }
            Effect::PrepareSegment { spare } => self.disk().0.prepare(spare),
            Effect::ReadSegment { number, offset } => self.disk().0.read(number, offset),
            Effect::ReadBodies { number, offset, length } => {
                self.disk().0.read_bodies(number, offset, length);
            }
            Effect::FreeSegments { numbers } => self.disk().0.free(numbers),
        }
    }

    fn disk(&mut self) -> (&mut Disk, &mut Ring) {
        let disk = self.disk.as_mut().expect("a shard that keeps nothing asks for no files");
        (disk, &mut self.ring)
    }

    /// Nothing that must not be cut off is on its way.
    fn is_quiet(&self) -> bool {
        self.disk.as_ref().is_none_or(Disk::is_quiet)
    }

    /// What is not read does not tell that there is nothing more to come.
    fn probe(&mut self, now: u64, connection: ConnectionSlot) {
        if let Some((key, stream)) = self.streams.of_connection(connection)
            && socket::has_hung_up(&stream.socket)
        {
            self.handle_lost(now, key);
            self.touched.push(key);
        }
        self.service.apply(now, Event::Probed { connection });
    }

    fn change(&mut self, connection: ConnectionSlot, change: impl FnOnce(&mut Stream)) {
        if let Some((key, stream)) = self.streams.of_connection(connection) {
            change(stream);
            self.touched.push(key);
        }
    }

    /// Does for a stream whatever its state now asks for.
    fn settle(&mut self, now: u64, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        match stream.phase {
            Phase::Open => {
                if stream.flush_due && stream.send == Send::Idle && !stream.broken {
                    self.flush(key);
                }
            }
            Phase::Moving => {
                if stream.is_quiet() && self.hand_over(key) {
                    return;
                }
            }
            Phase::Closing { .. } => self.settle_closing(now, key),
            Phase::Lingering => {
                if stream.receive == Receive::Ended {
                    stream.phase = Phase::Ending;
                }
            }
            Phase::Ending => {}
        }
        self.settle_receive(key);
    }

    fn settle_closing(&mut self, now: u64, key: StreamKey) {
        let stream = self.streams.present(key);
        if stream.send != Send::Idle {
            return;
        }
        if stream.phase == (Phase::Closing { taken: false }) {
            stream.phase = Phase::Closing { taken: true };
            self.flush(key);
            self.again = true;
        }
        let stream = self.streams.present(key);
        if stream.send != Send::Idle {
            return;
        }
        if stream.broken || stream.receive == Receive::Ended || socket::end_output(&stream.socket).is_err() {
            stream.phase = Phase::Ending;
            return;
        }
        stream.phase = Phase::Lingering;
        stream.deadline = now + CLOSE_LINGER_US;
        self.deadlines.push(Reverse((stream.deadline, key)));
    }

    fn settle_receive(&mut self, key: StreamKey) {
        let stream = self.streams.present(key);
        match stream.receive {
            Receive::Idle if stream.wants_bytes() && !stream.cancelling => {
                stream.receive = Receive::InFlight;
                self.ring.receive(key, stream.socket.as_fd());
            }
            Receive::InFlight if !stream.wants_bytes() && !stream.cancelling => {
                stream.cancelling = true;
                self.ring.cancel_receive(key);
            }
            Receive::Idle | Receive::InFlight | Receive::Starved | Receive::Ended => {}
        }
        if stream.phase == Phase::Ending {
            if stream.is_quiet() {
                drop(self.streams.remove(key));
            } else if stream.send != Send::Idle {
                socket::end_all(&stream.socket);
            }
        }
    }

    /// Sends what the shard has for the stream.
    fn flush(&mut self, key: StreamKey) {
        let stream = self.streams.present(key);
        stream.flush_due = false;
        let (connection, broken) = (stream.connection, stream.broken);
        let output = self.service.take_output(connection);
        if !output.is_empty() && !broken {
            self.send(key, output, 0);
        }
    }

    fn send(&mut self, key: StreamKey, buffer: Vec<u8>, offset: usize) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.send = Send::InFlight { offset };
        self.ring.send(key, stream.socket.as_fd(), buffer, offset);
    }

    /// False: the shard has changed its mind.
    fn hand_over(&mut self, key: StreamKey) -> bool {
        let stream = self.streams.present(key);
        let socket = Socket(stream.socket.as_raw_fd() as u64);
        stream.phase = Phase::Open;
        let connection = stream.connection;
        let moves = self.service.release(connection, socket);
        if moves {
            // The number is on its way to the other shard.
            let _ = self.streams.remove(key).socket.into_raw_fd();
        } else {
            self.touched.push(key);
        }
        moves
    }

    fn adopt_socket(&mut self, now: u64, socket: OwnedFd, peer: Peer) {
        self.service.apply(now, Event::Accepted { socket: socket::into_socket(socket), peer });
    }

    fn begin_accepting(&mut self, now: u64) {
        for listener in &mut self.listeners {
            listener.state = Accept::PausedUntil(now);
        }
        self.resume_accepting(now);
    }

    fn resume_accepting(&mut self, now: u64) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if let Accept::PausedUntil(time) = listener.state
                && time <= now
            {
                listener.state = Accept::InFlight;
                self.ring.accept(index as u32, listener.listening.socket());
            }
        }
    }

    fn stop_accepting(&mut self) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            match listener.state {
                Accept::InFlight => self.ring.cancel_accept(index as u32),
                Accept::PausedUntil(_) => listener.state = Accept::Ended,
                Accept::Ended => {}
            }
        }
    }

    fn report(&mut self) {
        if self.service_stopped && self.streams.count() == 0 && !std::mem::replace(&mut self.reported, true) {
            info!(shard = self.port.index(), "stopped");
            let control = self.port.participants() - 1;
            self.port.post(control, Lane::Control, Letter::Stopped);
        }
    }

    // Waiting.

    fn idle(&mut self, busy: bool, now: u64, turn: Turn) -> io::Result<()> {
        self.tidy.end_turn(now, busy, turn.next_deadline);
        if busy || (self.exit && self.is_quiet()) {
            return self.ring.submit();
        }
        if self.tidy.take_due(now) {
            memory::give_back();
        }
        let timeout = Duration::from_micros(self.next_deadline(turn).saturating_sub(now).min(SLEEP_MAX_US));
        let spin = self.idle.spin().unwrap_or(timeout).min(timeout);
        if !spin.is_zero() {
            self.ring.submit()?;
            if self.poll(spin) {
                return self.ring.submit();
            }
        }
        if self.idle == Idle::Spin || spin == timeout {
            return self.ring.submit();
        }
        if self.port.prepare_sleep() {
            let result = self.ring.wait(timeout - spin);
            self.port.awake();
            return result;
        }
        self.ring.submit()
    }

    /// True: something has happened.
    fn poll(&mut self, time: Duration) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..POLLS_PER_CLOCK {
                if self.ring.is_ready() || self.port.is_marked() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= time {
                return false;
            }
        }
    }

    fn next_deadline(&self, turn: Turn) -> u64 {
        let closing = self.deadlines.peek().map(|Reverse((deadline, _))| *deadline);
        let accepting = self.listeners.iter().filter_map(|listener| match listener.state {
            Accept::PausedUntil(time) => Some(time),
            Accept::InFlight | Accept::Ended => None,
        });
        turn.next_deadline
            .into_iter()
            .chain(closing)
            .chain(accepting)
            .chain(self.tidy.next_deadline())
            .min()
            .unwrap_or(u64::MAX)
    }
}

/// How often to look between two looks at the clock.
const POLLS_PER_CLOCK: usize = 8;
