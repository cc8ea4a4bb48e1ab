//! No connection is accepted before every shard has what it had.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use corelane::driver::{
    Clock, Driver, Idle, Participants, Placement, Service, Starting, listen, participants,
};
use corelane_shard::{ConnectionId, ConnectionSlot, Effect, Event, Mail, SaslReply, Socket, Turn};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// Is ready when it gets mail for the second time; tells what happens to it.
struct Late {
    index: usize,
    tell: Sender<(usize, &'static str)>,
    mails: usize,
    effects: Vec<Effect>,
}

impl Service for Late {
    fn apply(&mut self, _now: u64, event: Event<'_>) {
        let what = match event {
            Event::Mail { mail: Mail::AllReady, .. } => "all ready",
            Event::Mail { .. } => {
                self.mails += 1;
                if self.mails == 2 {
                    self.effects.push(Effect::Ready);
                }
                "mail"
            }
            Event::Accepted { socket, .. } => {
                let connection = ConnectionSlot { index: 0, generation: 0 };
                self.effects.push(Effect::Register { connection, socket });
                self.effects.push(Effect::Close { connection });
                "accepted"
            }
            Event::Stop => {
                self.effects.push(Effect::Stopped);
                "stop"
            }
            Event::Lost { .. } => "lost",
            event => panic!("{event:?} was not asked for"),
        };
        self.tell.send((self.index, what)).unwrap();
    }

    fn finish_turn(&mut self, _now: u64) -> Turn {
        Turn { more_work: false, next_deadline: None }
    }

    fn take_effects(&mut self, into: &mut Vec<Effect>) {
        into.append(&mut self.effects);
    }

    fn take_output(&mut self, _connection: ConnectionSlot) -> Vec<u8> {
        Vec::new()
    }

    fn release(&mut self, _connection: ConnectionSlot, _socket: Socket) -> bool {
        false
    }
}

#[test]
fn connections_wait_for_the_last_shard() {
    let Participants { ports, bells, mut control } = participants(2).unwrap();
    let listening = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 16).unwrap();
    let address = listening.address();
    let mut listeners = Some(vec![listening]);
    let (tell, told) = channel();
    let (placement, idle, clock) = (Placement::Unpinned, Idle::Park, Clock::start());
    let mut threads = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let listeners = listeners.take().unwrap_or_default();
        let driver =
            Driver { index, placement, idle, clock, port, bells: bells.clone(), listeners, disk: None };
        let late = Late { index, tell: tell.clone(), mails: 0, effects: Vec::new() };
        threads.push(driver.start(move || Ok(late)).and_then(Starting::wait).unwrap());
    }
    let connection = TcpStream::connect(address).unwrap();
    let mail = || Mail::SaslReply { connection: ConnectionId(0), reply: SaslReply::Refused };
    // Several turns pass on the first shard, and it becomes ready; the second one does not.
    for _ in 0..50 {
        control.post(0, mail());
        control.flush();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (0, "mail"));
        control.take(|_, _| {});
    }
    assert!(!control.is_ready());
    for _ in 0..2 {
        control.post(1, mail());
        control.flush();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (1, "mail"));
    }
    control.wait_until_ready();
    let mut last: Vec<_> = (0..3).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
    last.sort_unstable();
    assert_eq!(last, [(0, "accepted"), (0, "all ready"), (1, "all ready")]);
    drop(connection);
    control.stop_shards();
    while control.stopped_count() < 2 {
        control.wait(Some(PATIENCE));
        control.take(|_, _| {});
    }
    control.end_shards();
    control.flush();
    for thread in threads {
        thread.join_within(PATIENCE).unwrap();
    }
}

#[test]
fn a_shard_that_starts_is_not_waited_for_when_somebody_stops_that() {
    let Participants { ports, bells, .. } = participants(2).unwrap();
    let (tell, _told) = channel();
    let (placement, idle, clock) = (Placement::Unpinned, Idle::Park, Clock::start());
    let (go_on, waits) = channel::<()>();
    let mut waits = Some(waits);
    let mut starting = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let (bells, listeners) = (bells.clone(), Vec::new());
        let driver = Driver { index, placement, idle, clock, port, bells, listeners, disk: None };
        let late = Late { index, tell: tell.clone(), mails: 0, effects: Vec::new() };
        // The first one takes its time to get back what it had.
        let waits = waits.take();
        let make = move || {
            waits.map_or(Ok(()), |waits| waits.recv_timeout(PATIENCE).map_err(std::io::Error::other))?;
            Ok(late)
        };
        starting.push(driver.start(make).unwrap());
    }
    let (second, first) = (starting.pop().unwrap(), starting.pop().unwrap());
    let mut looked = 0;
    let stopped = first.wait_unless(|| {
        looked += 1;
        looked == 2
    });
    assert!(stopped.unwrap().is_none());
    assert!(second.wait_unless(|| false).unwrap().is_some());
    drop(go_on);
}
