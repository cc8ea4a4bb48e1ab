//! How do frames become what a broker or a client decides about, and the other way round?
//!
//! Sans-I/O state machines: bytes and the time go in, events and bytes come out. Nothing here owns a socket, asks
//! for the time or knows what a queue is.

pub mod amqp091;
pub mod amqp10;

mod delivery;
mod ids;
mod limits;
#[cfg(test)]
mod random;
mod serial;
mod timers;
mod unsettled;

pub use delivery::{Disposed, Payload, Progress, SendReadiness};
pub use ids::{LinkId, SessionId, Token};
