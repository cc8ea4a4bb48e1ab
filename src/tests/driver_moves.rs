//! Connections that move from shard to shard in the middle of a conversation lose nothing and keep their order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use corelane::driver::{
    Clock, ControlPort, Driver, Idle, Participants, Placement, Service, ShardThread, Starting, listen,
    participants,
};
use corelane_mailbox::Lane;
use corelane_shard::{ConnectionId, ConnectionSlot, Effect, Event, Mail, SaslReply, Socket, Turn};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// What mail would carry.
type Luggage = Arc<Vec<Mutex<VecDeque<(Connection, Socket)>>>>;

/// Echoes, and hands each connection on whenever it has brought so many bytes.
struct Nomads {
    index: usize,
    move_after: usize,
    connections: Vec<(u32, Option<Connection>)>,
    luggage: Luggage,
    effects: Vec<Effect>,
    moves: Arc<Mutex<usize>>,
}

#[derive(Default)]
struct Connection {
    output: Vec<u8>,
    received: usize,
    moving: bool,
    closing: bool,
}

impl Nomads {
    fn insert(&mut self, connection: Connection, socket: Socket) {
        let free = self.connections.iter().position(|(_, connection)| connection.is_none());
        let index = free.unwrap_or_else(|| {
            self.connections.push((0, None));
            self.connections.len() - 1
        });
        let has_output = !connection.output.is_empty();
        self.connections[index].1 = Some(connection);
        let slot = ConnectionSlot { index: index as u32, generation: self.connections[index].0 };
        self.effects.push(Effect::Register { connection: slot, socket });
        if has_output {
            self.effects.push(Effect::Flush { connection: slot });
        }
    }

    fn get_mut(&mut self, slot: ConnectionSlot) -> Option<&mut Connection> {
        let (generation, connection) = &mut self.connections[slot.index as usize];
        if *generation == slot.generation { connection.as_mut() } else { None }
    }

    fn remove(&mut self, slot: ConnectionSlot) -> Connection {
        self.connections[slot.index as usize].0 += 1;
        self.connections[slot.index as usize].1.take().unwrap()
    }
}

impl Service for Nomads {
    fn apply(&mut self, _now: u64, event: Event<'_>) {
        match event {
            Event::Accepted { socket, .. } => self.insert(Connection::default(), socket),
            Event::Received { connection: slot, bytes } => {
                let move_after = self.move_after;
                let connection = self.get_mut(slot).unwrap();
                connection.output.extend_from_slice(bytes);
                connection.received += bytes.len();
                if connection.received >= move_after && !connection.moving {
                    connection.moving = true;
                    self.effects.push(Effect::HandOver { connection: slot });
                } else {
                    self.effects.push(Effect::Flush { connection: slot });
                }
            }
            Event::Flushed { .. } | Event::Probed { .. } => {}
            Event::Lost { connection } => {
                self.get_mut(connection).unwrap().closing = true;
                self.effects.push(Effect::Close { connection });
            }
            Event::Mail { mail: Mail::AllReady, .. } => {}
            Event::Mail { .. } => {
                let (connection, socket) = self.luggage[self.index].lock().unwrap().pop_front().unwrap();
                self.insert(connection, socket);
            }
            Event::Written { .. }
            | Event::SegmentPrepared { .. }
            | Event::SegmentRefused { .. }
            | Event::SegmentRead { .. }
            | Event::BodiesRead { .. } => unreachable!("nothing is kept here"),
            Event::Stop => self.effects.push(Effect::Stopped),
        }
    }

    fn finish_turn(&mut self, _now: u64) -> Turn {
        Turn { more_work: false, next_deadline: None }
    }

    fn take_effects(&mut self, into: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, into);
    }

    fn take_output(&mut self, slot: ConnectionSlot) -> Vec<u8> {
        let connection = self.get_mut(slot).unwrap();
        let output = std::mem::take(&mut connection.output);
        if connection.closing {
            self.remove(slot);
        }
        output
    }

    fn release(&mut self, slot: ConnectionSlot, socket: Socket) -> bool {
        if self.get_mut(slot).is_none_or(|connection| connection.closing) {
            return false;
        }
        let mut connection = self.remove(slot);
        connection.moving = false;
        connection.received = 0;
        *self.moves.lock().unwrap() += 1;
        let to = (self.index + 1) % self.luggage.len();
        self.luggage[to].lock().unwrap().push_back((connection, socket));
        self.effects.push(Effect::Post {
            to,
            lane: Lane::Control,
            mail: Mail::SaslReply { connection: ConnectionId(0), reply: SaslReply::Refused },
        });
        true
    }
}

struct World {
    address: SocketAddr,
    control: ControlPort,
    threads: Vec<ShardThread>,
    moves: Arc<Mutex<usize>>,
}

fn start(shards: usize, move_after: usize, idle: Idle) -> World {
    let Participants { ports, bells, mut control } = participants(shards).unwrap();
    let listening = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 128).unwrap();
    let address = listening.address();
    let mut listeners = Some(vec![listening]);
    let clock = Clock::start();
    let luggage: Luggage = Arc::new((0..shards).map(|_| Mutex::default()).collect());
    let moves = Arc::new(Mutex::new(0));
    let mut starting = Vec::new();
    for (index, port) in ports.into_iter().enumerate().rev() {
        let listeners = if index == 0 { listeners.take().unwrap() } else { Vec::new() };
        let placement = Placement::Unpinned;
        let driver =
            Driver { index, placement, idle, clock, port, bells: bells.clone(), listeners, disk: None };
        let (luggage, moves) = (Arc::clone(&luggage), Arc::clone(&moves));
        let make = move || {
            let (connections, effects) = (Vec::new(), vec![Effect::Ready]);
            Nomads { index, move_after, connections, luggage, effects, moves }
        };
        starting.push(driver.start(move || Ok(make())).unwrap());
    }
    let threads = starting.into_iter().map(|starting: Starting| starting.wait().unwrap()).collect();
    control.wait_until_ready();
    World { address, control, threads, moves }
}

impl World {
    fn stop(mut self) {
        self.control.stop_shards();
        while self.control.stopped_count() < self.control.shards() {
            self.control.wait(Some(PATIENCE));
            self.control.take(|_, _| {});
        }
        self.control.end_shards();
        self.control.flush();
        for thread in self.threads {
            thread.join_within(PATIENCE).unwrap();
        }
    }
}

/// `connections` clients send `rounds` pieces each and read what comes back, with up to `ahead` pieces on their way.
fn check(world: World, connections: usize, rounds: usize, size: usize, ahead: usize) {
    let clients: Vec<_> = (0..connections)
        .map(|client| {
            let mut stream = TcpStream::connect(world.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || {
                let piece = |round: usize| vec![(round + client) as u8; size];
                let mut back = vec![0; size];
                for round in 0..rounds + ahead {
                    if round < rounds {
                        stream.write_all(&piece(round)).unwrap();
                    }
                    if round >= ahead {
                        stream.read_exact(&mut back).unwrap();
                        assert!(back == piece(round - ahead));
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let expected = connections * rounds * size / (1 << 20);
    assert!(*world.moves.lock().unwrap() > expected.min(connections), "connections have moved");
    world.stop();
}

#[test]
fn one_byte_at_a_time_and_a_move_after_each() {
    check(start(2, 1, Idle::Park), 4, 500, 1, 1);
}

#[test]
fn a_steady_flow_over_three_shards() {
    let idle = Idle::Adaptive { spin: Duration::from_micros(20) };
    check(start(3, 10_000, idle), 16, 2000, 1000, 20);
}

#[test]
fn bursts_of_more_than_the_buffers_hold() {
    check(start(2, 300_000, Idle::Park), 8, 300, 60_000, 3);
}
