//! How do events reach a shard and its effects the world?
//!
//! A shard runs on a thread of its own, pinned to a core, inside a glommio executor. There one *pump* owns the shard and
//! an io_uring of its own, and turns in a circle: completions and mail become events, the shard is applied to each, its
//! effects become submissions.
//!
//! Invariants:
//! - glommio is named in `executor.rs` alone, io_uring in `ring.rs` and `buffers.rs`; unsafe code is there, in
//!   `socket.rs` and in `memory.rs`;
//! - a descriptor is closed when no operation of the ring refers to it, and a buffer lent to the ring is owned by the
//!   ring until its completion;
//! - a turn is bounded in bytes, completions and mail;
//! - a panic on a shard ends the process.
//!
//! Left out: everything that is decided about connections and queues (the shard does), and the process around the shards
//! (`boot`).

pub mod baseline;
mod buffers;
mod clock;
mod control;
mod disk;
mod executor;
mod idle;
mod limits;
mod listen;
mod measure;
mod memory;
mod probe;
mod pump;
mod ring;
mod service;
mod socket;
mod streams;
mod thread;

pub use clock::Clock;
pub use control::{ControlPort, Letter, Participants, participants};
pub use disk::Disk;
pub use executor::Placement;
pub use idle::Idle;
pub use listen::{Listening, listen};
pub use measure::measure;
pub use probe::{Unusable, probe};
pub use pump::Driver;
pub use service::Service;
pub use thread::{ShardThread, Starting};
