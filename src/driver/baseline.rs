//! How fast is the driver without a broker?
//!
//! Two services on the very same ring, buffers and idle policy that shards use, as yardsticks for the benchmarks: *echo* sends
//! back what it receives; *relay* forwards what producers send to a consumer, which is what a broker does if nothing costs
//! anything. The first byte a connection sends to the relay tells its role; it is not forwarded. There is one consumer, the
//! one that came last; until it comes, producers are not read.

use super::clock::Clock;
use super::control::{self, ControlPort, Participants};
use super::listen;
use super::{Driver, Idle, Placement, Service, ShardThread};
use corelane_shard::{ConnectionSlot, Effect, Event, Socket, Turn};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// First byte of a connection that sends.
pub const PRODUCER: u8 = b'P';
/// First byte of a connection that is sent to.
pub const CONSUMER: u8 = b'C';

/// Unsent output of a connection above which those who fill it are not read.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How long the thread has to end once its connections are closed.
const END_MAX: Duration = Duration::from_secs(2);

/// Which yardstick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    Echo,
    Relay,
}

/// A yardstick that runs.
pub struct Running {
    pub address: SocketAddr,
    pub control: ControlPort,
    shard: ShardThread,
}

impl Baseline {
    /// Starts the only shard.
    pub fn start(self, listen_on: SocketAddr, placement: Placement, idle: Idle) -> io::Result<Running> {
        let listening = listen(listen_on, 1024)?;
        let address = listening.address();
        let Participants { mut ports, bells, mut control } = control::participants(1)?;
        let port = ports.remove(0);
        let driver = Driver {
            index: 0,
            placement,
            idle,
            clock: Clock::start(),
            port,
            bells,
            listeners: vec![listening],
            disk: None,
        };
        let shard = driver.start(move || Ok(Yardstick::new(self)))?.wait()?;
        control.wait_until_ready();
        Ok(Running { address, control, shard })
    }
}

impl Running {
    /// Closes all connections and ends the shard.
    pub fn stop(mut self) -> io::Result<()> {
        self.control.stop_shards();
        while self.control.stopped_count() == 0 {
            self.control.wait(None);
            self.control.take(|_, _| {});
        }
        self.control.end_shards();
        self.control.flush();
        self.shard.join_within(END_MAX)
    }
}

/// Both services: they differ in where received bytes go.
struct Yardstick {
    kind: Baseline,
    connections: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
    count: usize,
    consumer: Option<ConnectionSlot>,
    effects: Vec<Effect>,
    ready: bool,
    stopping: bool,
    stopped: bool,
}

#[derive(Default)]
struct Connection {
    role: Option<u8>,
    output: Vec<u8>,
    /// The buffer that is not in use.
    spare: Vec<u8>,
    sending_bytes: usize,
    flush_requested: bool,
    reading_stopped: bool,
    closing: bool,
}

impl Yardstick {
    fn new(kind: Baseline) -> Self {
        Yardstick {
            kind,
            connections: Vec::new(),
            free: Vec::new(),
            count: 0,
            consumer: None,
            effects: Vec::new(),
            ready: false,
            stopping: false,
            stopped: false,
        }
    }

    fn get_mut(&mut self, slot: ConnectionSlot) -> Option<&mut Connection> {
        match self.connections.get_mut(slot.index as usize) {
            Some((generation, connection)) if *generation == slot.generation => connection.as_mut(),
            Some(_) | None => None,
        }
    }

    fn on_accepted(&mut self, socket: Socket) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push((0, None));
            self.connections.len() as u32 - 1
        });
        let place = &mut self.connections[index as usize];
        place.1 = Some(Connection::default());
        self.count += 1;
        let slot = ConnectionSlot { index, generation: place.0 };
        self.effects.push(Effect::Register { connection: slot, socket });
        if self.stopping {
            self.close(slot);
        }
    }

    fn on_received(&mut self, slot: ConnectionSlot, bytes: &[u8]) {
        match self.kind {
            Baseline::Echo => {
                self.write(slot, bytes);
                self.stop_reading_if_full(slot, slot);
            }
            Baseline::Relay => self.on_received_to_relay(slot, bytes),
        }
    }

    fn on_received_to_relay(&mut self, slot: ConnectionSlot, bytes: &[u8]) {
        let Some(connection) = self.get_mut(slot) else { return };
        let bytes = if connection.role.is_none() {
            connection.role = bytes.first().copied();
            if connection.role == Some(CONSUMER) {
                self.consumer = Some(slot);
                self.resume_reading();
            }
            &bytes[1..]
        } else {
            bytes
        };
        let role = self.get_mut(slot).and_then(|connection| connection.role);
        match (role, self.consumer) {
            (Some(PRODUCER), Some(consumer)) => {
                self.write(consumer, bytes);
                self.stop_reading_if_full(slot, consumer);
            }
            // Bytes that come before the consumer are lost; a harness starts it first.
            (Some(PRODUCER), None) => self.stop_reading(slot),
            (Some(CONSUMER), _) => {}
            (_, _) => self.close(slot),
        }
    }

    fn write(&mut self, to: ConnectionSlot, bytes: &[u8]) {
        let Some(connection) = self.get_mut(to) else { return };
        if connection.closing || bytes.is_empty() {
            return;
        }
        connection.output.extend_from_slice(bytes);
        if !std::mem::replace(&mut connection.flush_requested, true) {
            self.effects.push(Effect::Flush { connection: to });
        }
    }

    fn stop_reading_if_full(&mut self, reader: ConnectionSlot, target: ConnectionSlot) {
        if self
            .get_mut(target)
            .is_some_and(|target| target.output.len() + target.sending_bytes > OUTPUT_BYTES_MAX)
        {
            self.stop_reading(reader);
        }
    }

    fn stop_reading(&mut self, slot: ConnectionSlot) {
        if let Some(connection) = self.get_mut(slot)
            && !std::mem::replace(&mut connection.reading_stopped, true)
        {
            self.effects.push(Effect::Reading { connection: slot, on: false });
        }
    }

    /// For echo only one connection could wait for another's output: its own. For a relay it is all producers.
    fn resume_reading(&mut self) {
        for index in 0..self.connections.len() {
            if let (generation, Some(connection)) = &mut self.connections[index]
                && std::mem::replace(&mut connection.reading_stopped, false)
            {
                let slot = ConnectionSlot { index: index as u32, generation: *generation };
                self.effects.push(Effect::Reading { connection: slot, on: true });
            }
        }
    }

    fn on_flushed(&mut self, slot: ConnectionSlot, mut buffer: Vec<u8>) {
        let kind = self.kind;
        let Some(connection) = self.get_mut(slot) else { return };
        buffer.clear();
        connection.spare = buffer;
        connection.sending_bytes = 0;
        let has_room = connection.output.len() < OUTPUT_BYTES_MAX / 2;
        match kind {
            Baseline::Echo => {
                if has_room && std::mem::replace(&mut connection.reading_stopped, false) {
                    self.effects.push(Effect::Reading { connection: slot, on: true });
                }
            }
            Baseline::Relay => {
                if has_room {
                    self.resume_reading();
                }
            }
        }
    }

    fn close(&mut self, slot: ConnectionSlot) {
        if let Some(connection) = self.get_mut(slot)
            && !std::mem::replace(&mut connection.closing, true)
        {
            self.effects.push(Effect::Close { connection: slot });
            if self.consumer == Some(slot) {
                self.consumer = None;
            }
        }
    }

    fn on_stop(&mut self) {
        self.stopping = true;
        for index in 0..self.connections.len() {
            let slot = ConnectionSlot { index: index as u32, generation: self.connections[index].0 };
            self.close(slot);
        }
    }
}

impl Service for Yardstick {
    fn apply(&mut self, _now: u64, event: Event<'_>) {
        match event {
            Event::Accepted { socket, .. } => self.on_accepted(socket),
            Event::Received { connection, bytes } => self.on_received(connection, bytes),
            Event::Flushed { connection, buffer } => self.on_flushed(connection, buffer),
            Event::Lost { connection } => self.close(connection),
            Event::Mail { .. } | Event::Probed { .. } => {}
            Event::Written { .. }
            | Event::SegmentPrepared { .. }
            | Event::SegmentRefused { .. }
            | Event::SegmentRead { .. }
            | Event::BodiesRead { .. } => unreachable!("nothing is kept here"),
            Event::Stop => self.on_stop(),
        }
    }

    fn finish_turn(&mut self, _now: u64) -> Turn {
        if !std::mem::replace(&mut self.ready, true) {
            self.effects.push(Effect::Ready);
        }
        if self.stopping && self.count == 0 && !std::mem::replace(&mut self.stopped, true) {
            self.effects.push(Effect::Stopped);
        }
        Turn { more_work: false, next_deadline: None }
    }

    fn take_effects(&mut self, into: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, into);
    }

    fn take_output(&mut self, slot: ConnectionSlot) -> Vec<u8> {
        let Some(connection) = self.get_mut(slot) else { return Vec::new() };
        let spare = std::mem::take(&mut connection.spare);
        let output = std::mem::replace(&mut connection.output, spare);
        connection.flush_requested = false;
        connection.sending_bytes += output.len();
        if connection.closing {
            self.connections[slot.index as usize] = (slot.generation.wrapping_add(1), None);
            self.free.push(slot.index);
            self.count -= 1;
        }
        output
    }

    fn release(&mut self, _connection: ConnectionSlot, _socket: Socket) -> bool {
        false
    }
}
