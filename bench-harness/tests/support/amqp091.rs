//! The same broker in AMQP 0-9-1.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use corelane_protocol::SendReadiness;
use corelane_protocol::amqp091::{
    Config, Connection, ErrorSpec, Event, LinkId, Outcome, Outgoing, Progress, Reply, Request, Token,
};
use corelane_wire::amqp091::{PropertyFields, ReplyCode, ShortStr};

use super::Broker;

pub(super) struct Peer {
    stream: TcpStream,
    connection: Connection,
    input: Vec<u8>,
    output: Vec<u8>,
    consumers: Vec<LinkId>,
    is_gone: bool,
}

/// Waits for the header, which says it.
pub(super) fn is_asked_for(stream: &TcpStream) -> bool {
    let mut header = [0; 8];
    loop {
        match stream.peek(&mut header) {
            Ok(8) => return header == *b"AMQP\x00\x00\x09\x01",
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        std::thread::yield_now();
    }
}

impl Peer {
    pub(super) fn new(stream: TcpStream, now: u64) -> Peer {
        let connection = Connection::server(Config::default(), now);
        Peer {
            stream,
            connection,
            input: Vec::new(),
            output: Vec::new(),
            consumers: Vec::new(),
            is_gone: false,
        }
    }

    fn read(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.input.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Ok(_) | Err(_) => {
                self.is_gone = true;
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
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        !self.is_gone
    }
}

impl Broker {
    /// Whether anything happened.
    pub(super) fn turn091(&mut self, now: u64) -> bool {
        let mut peers = std::mem::take(&mut self.peers091);
        let mut busy = false;
        for peer in &mut peers {
            busy |= peer.read();
            self.handle091(now, peer);
        }
        for peer in &mut peers {
            for index in 0..peer.consumers.len() {
                busy |= self.deliver091(peer, index);
            }
        }
        peers.retain_mut(|peer| peer.flush(now));
        self.peers091 = peers;
        busy
    }

    fn handle091(&mut self, now: u64, peer: &mut Peer) {
        let input = std::mem::take(&mut peer.input);
        let mut rest = input.as_slice();
        while let Some(event) = peer.connection.receive(now, &mut rest) {
            self.handle_event091(peer, event);
            let mut scratch = Vec::new();
            while peer.connection.has_parked() {
                if let Some(event) = peer.connection.receive_parked(now, &mut scratch) {
                    self.handle_event091(peer, event);
                }
            }
        }
        peer.input = rest.to_vec();
    }

    fn handle_event091(&mut self, peer: &mut Peer, event: Event<'_>) {
        let connection = &mut peer.connection;
        match event {
            Event::SaslInit { .. } => connection.sasl_outcome(!self.behaviour.refuse_login),
            Event::Opened { .. } => connection.accept_open(),
            Event::Request { session, request } => {
                if self.behaviour.refuse_links {
                    let text = "no queue for you";
                    connection.fail(session, ErrorSpec { reply_code: ReplyCode::AccessRefused, text });
                    return;
                }
                let reply = match request {
                    Request::QueueDeclare(declare) => {
                        Reply::Declared { queue: declare.queue, message_count: 0, consumer_count: 0 }
                    }
                    _ => Reply::Done,
                };
                connection.reply(session, reply);
            }
            Event::Consume { link, .. } => {
                connection.accept_consume(link);
                peer.consumers.push(link);
            }
            Event::Message(message) => {
                self.enqueue(message.payload.bytes().to_vec());
                if !message.settled {
                    let rejected = self.behaviour.reject_every.is_some_and(|n| self.count.is_multiple_of(n));
                    let outcome = if rejected { Outcome::Rejected } else { Outcome::Accepted };
                    connection.settle(message.link, message.delivery_id, outcome);
                }
            }
            Event::Disposition { .. } => while connection.poll_outcome().is_some() {},
            Event::Detached { link } => peer.consumers.retain(|consumer| *consumer != link),
            Event::Closed { .. } => peer.is_gone = true,
            _ => {}
        }
    }

    /// One message, if there is one that is due and the consumer may have it.
    fn deliver091(&mut self, peer: &mut Peer, index: usize) -> bool {
        let link = peer.consumers[index];
        let is_due = self.queue.front().is_some_and(|(due, _)| *due <= Instant::now());
        if !is_due || peer.connection.can_send(link) != SendReadiness::Ready {
            return false;
        }
        let (_, bytes) = self.queue.pop_front().unwrap();
        let outgoing = Outgoing {
            token: Token::default(),
            redelivered: false,
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::EMPTY,
            properties: PropertyFields::new(&[0, 0]),
            body: &[&bytes],
            message_count: 0,
        };
        assert!(matches!(peer.connection.send(link, &outgoing), Progress::Complete { .. }));
        true
    }
}
