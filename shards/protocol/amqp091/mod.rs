//! How does one AMQP 0-9-1 connection behave, as server or as client?
//!
//! [`Connection`] holds everything between the bytes of one socket and the decisions of a broker (or a client): the handshake,
//! channels, consumers and their prefetch, acknowledgements, confirms, content in frames, heartbeats.
//!
//! - A peer's fault ends its channel or the connection, with RabbitMQ's code for it, and never panics.
//! - What is kept is bounded by [`Config`], or by what was sent: see there what happens at each bound.
//! - In the steady state a message whose frames come together costs no allocation; neither does its delivery or acknowledgement.
//! - Names and properties pass through as bytes. That they are well-formed is for whoever looks at them.
//! - What is settled is told once, in the order of the tags.
//!
//! Left out: what exchanges and queues are, what properties mean, and TLS, which is a stage before this one. `§` refers to the
//! specification of 0-9-1; where RabbitMQ differs, it is followed.
//!
//! How to drive it: give received bytes to [`Connection::receive`] until it returns `None`, act on each event by commands,
//! call [`Connection::finish_turn`], send what is in [`Connection::output`]. Call [`Connection::handle_timeout`] at
//! [`Connection::next_deadline`], then `receive` (with no bytes if there are none) for the events that it caused. A command
//! that answers a `SaslInit`, `SaslResponse` or `Opened` event lets `receive` go on; the bytes left over must be passed again.
//! One that answers a `Request`, `Consume` or `Get` lets its channel go on: call [`Connection::receive_parked`] while
//! [`Connection::has_parked`], then, if it [`Connection::is_full`], `receive` with the bytes left over.

mod channel;
mod channels;
mod client;
mod config;
mod confirms;
mod connection;
mod content;
mod event;
mod fault;
mod handshake;
pub mod limits;
mod link;
mod outgoing;
mod parked;
mod requests;
mod settlement;
mod timers;
mod verify;

#[cfg(test)]
mod tests;

pub use config::{Config, Login};
pub use connection::Connection;
pub use event::{
    Delivery, DeliveryKind, Error, ErrorSpec, Event, Head, Message, Outcome, Outgoing, Publication, Reply,
    Request,
};
pub use handshake::PROTOCOL_HEADER;

pub use crate::delivery::{Disposed, Payload, Progress, SendReadiness};
pub use crate::ids::{LinkId, SessionId, Token};
