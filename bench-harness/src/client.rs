//! How does the generator speak to a broker, whichever protocol? Over a socket that never blocks.
//!
//! A link is what sends to one place or receives from one: a link of AMQP 1.0, a channel of 0-9-1. Setting up may wait and allocate;
//! [`Client::receive`], [`Client::write`] and [`Client::flush`] do neither. Messages that are received unsettled are accepted.
//! Left out: reconnecting, TLS, SCRAM.

pub mod amqp091;
pub mod amqp10;
mod confirms;

use std::io;
use std::time::Duration;

use corelane_protocol::{LinkId, Progress, Token};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::message::Template;
use crate::socket::Socket;
use crate::url::Url;

/// How long the broker may take for an answer that needs nothing but itself.
pub const ANSWER_US_MAX: u64 = 10_000_000;
/// How often it is looked for meanwhile, once it is late: until then we poll, so that how long it takes can be measured.
const ANSWER_POLL: Duration = Duration::from_micros(50);
const ANSWER_PROMPT_US: u64 = 2_000;
/// Largest frame that we take.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// Room for what is written between two sends.
const OUTPUT_BYTES: usize = 256 << 10;

/// What is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// AMQP 1.0
    #[default]
    Amqp10,
    /// AMQP 0-9-1, over channels; queues that are not there are declared, as durable ones
    #[value(name = "0-9-1", alias = "amqp091")]
    Amqp091,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Amqp10 => "amqp10",
            Protocol::Amqp091 => "0-9-1",
        }
    }
}

/// A connection to the broker.
pub enum Client {
    Amqp10(amqp10::Client10),
    Amqp091(amqp091::Client091),
}

/// What was received.
#[derive(Debug)]
pub enum Heard<'a> {
    /// `settled`: it needs no settlement; else it is settled for us.
    Message { link: LinkId, bytes: &'a [u8], settled: bool },
    /// Of a message that we have sent.
    Outcome { link: LinkId, token: Token, accepted: bool },
}

/// What a link that receives is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver<'a> {
    /// The broker sends settled, and hears nothing of what became of messages.
    pub settled: bool,
    /// Credit, or prefetch; 0: no message comes before [`Client::renew`].
    pub window: u32,
    /// Messages stay in the queue.
    pub browses: bool,
    /// Only messages that it is true of.
    pub selector: Option<&'a str>,
}

impl Client {
    /// Connects, logs in and opens the connection.
    pub fn connect(url: &Url, protocol: Protocol, clock: Clock) -> Result<Client, BenchError> {
        Ok(match protocol {
            Protocol::Amqp10 => Client::Amqp10(amqp10::Client10::connect(url, clock)?),
            Protocol::Amqp091 => Client::Amqp091(amqp091::Client091::connect(url, clock)?),
        })
    }

    /// A link that sends to a queue, or to where `queue` is an address of. `settled`: without outcomes.
    pub fn open_sender(&mut self, queue: &str, settled: bool) -> Result<LinkId, BenchError> {
        match self {
            Client::Amqp10(client) => client.attach(queue, amqp10::End::Sender, settled),
            Client::Amqp091(client) => client.open_sender(queue, settled),
        }
    }

    /// A link that receives from a queue.
    pub fn open_receiver(&mut self, queue: &str, receiver: &Receiver<'_>) -> Result<LinkId, BenchError> {
        match self {
            Client::Amqp10(client) => client.open_receiver(queue, receiver),
            Client::Amqp091(client) => client.open_receiver(queue, receiver),
        }
    }

    /// The largest message that a link takes, if the broker says so.
    pub fn message_size_max(&self, link: LinkId) -> Option<u64> {
        match self {
            Client::Amqp10(client) => client.connection.message_size_max(link),
            Client::Amqp091(_) => None,
        }
    }

    /// Whether a message can be written on a link now.
    #[inline]
    pub fn can_send(&self, link: LinkId) -> bool {
        match self {
            Client::Amqp10(client) => client.can_send(link),
            Client::Amqp091(client) => client.can_send(link),
        }
    }

    /// Writes a message, or the part of it that goes now. `token` comes back with its outcome.
    #[inline]
    pub fn write(&mut self, link: LinkId, template: &Template, settled: bool, token: Token) -> Progress {
        match self {
            Client::Amqp10(client) => client.write(link, template, settled, token),
            Client::Amqp091(client) => client.write(link, template, token),
        }
    }

    /// Writes more of it: what is behind its first `written` bytes.
    #[inline]
    pub fn write_more(&mut self, link: LinkId, template: &Template, written: usize) -> Progress {
        match self {
            Client::Amqp10(client) => client.connection.send_more(link, &template.bytes()[written..]),
            Client::Amqp091(_) => Progress::Complete { delivery_id: 0, settled: false },
        }
    }

    /// Reads once and gives each message and outcome to `handle`. How many bytes came.
    #[inline]
    pub fn receive(
        &mut self,
        handle: impl FnMut(Heard<'_>) -> Result<(), BenchError>,
    ) -> Result<usize, BenchError> {
        match self {
            Client::Amqp10(client) => client.hear(handle),
            Client::Amqp091(client) => client.hear(handle),
        }
    }

    /// Lets a link that receives have `window` messages again, if half of them are used up. Whether that was so.
    #[inline]
    pub fn renew(&mut self, link: LinkId, window: u32) -> bool {
        match self {
            Client::Amqp10(client) => client.renew(link, window),
            Client::Amqp091(client) => client.renew(link, window),
        }
    }

    /// Writes what the protocol gathered, settlements too, and sends what the socket takes. Whether that is all.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, BenchError> {
        match self {
            Client::Amqp10(client) => client.flush(),
            Client::Amqp091(client) => client.flush(),
        }
    }

    /// Sends what is written, settlements that gather aside. Whether that is all.
    #[inline]
    pub fn send(&mut self) -> Result<bool, BenchError> {
        match self {
            Client::Amqp10(client) => client.send(),
            Client::Amqp091(client) => client.send(),
        }
    }

    /// Nothing waits for the socket.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Client::Amqp10(client) => client.is_flushed(),
            Client::Amqp091(client) => client.is_flushed(),
        }
    }

    /// Bytes that are written and not given to the socket.
    #[inline]
    pub fn backlog(&mut self) -> usize {
        match self {
            Client::Amqp10(client) => client.connection.output().len(),
            Client::Amqp091(client) => client.connection.output().len(),
        }
    }

    /// Ends a link and waits until the broker has heard it.
    pub fn close_link(&mut self, link: LinkId) -> Result<(), BenchError> {
        match self {
            Client::Amqp10(client) => client.detach(link),
            Client::Amqp091(client) => client.close_channel(link),
        }
    }

    /// As [`open_receiver`](Self::open_receiver), of a queue that is known to be there.
    pub fn open_existing(&mut self, queue: &str, receiver: &Receiver<'_>) -> Result<LinkId, BenchError> {
        match self {
            Client::Amqp10(client) => client.open_receiver(queue, receiver),
            Client::Amqp091(client) => client.open_consumer(queue, receiver),
        }
    }

    /// Begins and ends a session, or opens and closes a channel.
    pub fn churn_session(&mut self) -> Result<(), BenchError> {
        match self {
            Client::Amqp10(client) => {
                let session = client.begin()?;
                client.end(session)
            }
            Client::Amqp091(client) => {
                let channel = client.open_plain()?;
                client.close_channel(channel)
            }
        }
    }

    /// Makes a queue for this connection only, and deletes it.
    pub fn churn_queue(&mut self, name: &str) -> Result<(), BenchError> {
        match self {
            Client::Amqp10(client) => {
                let link = client.open_receiver("", &Receiver::default())?;
                client.detach(link)
            }
            Client::Amqp091(client) => {
                let channel = client.open_plain()?;
                client.declare(channel, name, true)?;
                client.delete(channel, name)?;
                client.close_channel(channel)
            }
        }
    }

    /// Where [`make_queue`](Self::make_queue) asks, if that needs something.
    pub fn open_plain(&mut self) -> Result<Option<LinkId>, BenchError> {
        match self {
            Client::Amqp10(_) => Ok(None),
            Client::Amqp091(client) => client.open_plain().map(Some),
        }
    }

    /// Makes a queue that stays. With 1.0, by attaching to it.
    pub fn make_queue(&mut self, channel: Option<LinkId>, name: &str) -> Result<(), BenchError> {
        match self {
            Client::Amqp10(client) => {
                let link = client.attach(name, amqp10::End::Sender, true)?;
                client.detach(link)
            }
            Client::Amqp091(client) => client.declare(channel.unwrap_or(LinkId(1)), name, false),
        }
    }

    /// Until there are two sessions, or channels.
    pub fn open_two_sessions(&mut self) -> Result<(), BenchError> {
        match self {
            // One came with the connection.
            Client::Amqp10(client) => client.begin().map(drop),
            Client::Amqp091(client) => client.open_plain().and_then(|_| client.open_plain()).map(drop),
        }
    }

    /// Says goodbye and waits for the answers, but not for long: nothing here depends on it.
    pub fn close(self) {
        match self {
            Client::Amqp10(client) => client.close(),
            Client::Amqp091(client) => client.close(),
        }
    }
}

/// Sends what is in `output`, behind what the socket did not take before. Whether that is all.
#[inline]
fn send(socket: &mut Socket, output: &mut Vec<u8>) -> io::Result<bool> {
    let sent = socket.flush()?;
    if !sent || output.is_empty() {
        return Ok(sent);
    }
    std::mem::swap(socket.outbox(), output);
    socket.flush()
}

/// Before one looks again for an answer that has been awaited since `begun_us`.
fn pause(clock: Clock, begun_us: u64) {
    if clock.now_us() - begun_us > ANSWER_PROMPT_US {
        std::thread::sleep(ANSWER_POLL);
    }
}

/// The peer does not want us.
fn is_hang_up(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    kinds.contains(&error.kind())
}

fn broken(peer: &str, error: io::Error) -> BenchError {
    BenchError::Broken { peer: peer.to_owned(), error }
}
