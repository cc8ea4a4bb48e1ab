//! How does one AMQP 1.0 connection behave, as server or as client?
//!
//! [`Connection`] holds everything between the bytes of one socket and the decisions of a broker (or a client): protocol
//! headers, SASL, sessions and their windows, links and their credit, deliveries both ways, timeouts.
//!
//! - A peer's fault ends the smallest thing that the specification allows, with its error, and never panics.
//! - What is kept is bounded by what was negotiated, granted or sent: a channel or handle above the maximum, a transfer
//!   above window or credit, is an error before it costs memory.
//! - In the steady state a message of one frame costs no allocation, and a frame no look-up by hash.
//! - Numbers that wrap are compared as serial numbers (§2.8.10).
//!
//! Left out: resuming deliveries (our unsettled maps are empty, §2.6.13), what addresses, filters and outcomes mean, and
//! TLS, which is a stage before this one.
//!
//! How to drive it: give received bytes to [`Connection::receive`] until it returns `None`, act on each event by commands,
//! call [`Connection::finish_turn`], send what is in [`Connection::output`]. Call [`Connection::handle_timeout`] at
//! [`Connection::next_deadline`], then `receive` (with no bytes if there are none) for the events that it caused. A command
//! that answers an `…Init`, `…Response` or `Opened` event lets `receive` go on; the bytes left over must be passed again.

mod attach;
mod config;
mod connection;
mod event;
mod fault;
mod flow;
mod handshake;
mod ids;
mod incoming;
pub mod limits;
mod link;
mod outgoing;
mod sasl;
mod session;
mod settlement;
mod tags;
mod timers;
mod verify;

#[cfg(test)]
mod tests;

pub use config::{Config, Sasl};
pub use connection::Connection;
pub use event::{Answer, AttachAnswer, AttachRequest, DetachCause, ErrorSpec, Event, Message, Outgoing};
pub use ids::{DeliveryTag, ShortBinary, TransactionId};

pub use crate::delivery::{Disposed, Payload, Progress, SendReadiness};
pub use crate::ids::{LinkId, SessionId, Token};
