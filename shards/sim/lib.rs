//! How does the broker behave when the world is what a seed makes it?
//!
//! A second driver of the same shards: several of them, clients on simulated sockets, lanes between the shards, and a clock
//! that only the world moves. What the real world leaves open is drawn from the seed: in which order participants act, how
//! many bytes arrive at a time, how much mail is taken from which lane. Equal seeds give equal runs.
//!
//! Invariants: lanes keep the order of one sender, one receiver and one kind; a socket keeps the order of its bytes; nothing
//! else is promised. After every step the engines' `verify` can be asked for.
//!
//! Tests of one situation drive a [`World`] themselves. A [`Simulation`] does everything at once: a `plan` drawn from the seed, a
//! `workload` that follows it, `faults`, an `oracle` that knows what may happen to a message, `checkers` of the shards' own state.

mod backing_up;
mod changing;
mod channel_client;
mod checkers;
mod client;
mod crash_report;
mod crashing;
mod deadlines;
mod dealing;
mod disk;
mod faults;
mod hot_path;
mod managing;
mod moving;
mod noting;
mod operating;
mod operator;
mod oracle;
mod plan;
mod promises;
mod random;
mod rest;
mod restart;
mod simulation;
mod subscribing;
mod tables;
mod transacting;
mod vanishing;
mod workload;
mod world;

pub use channel_client::{ChannelClient, ExchangeKind, table};
pub use client::{Client, Received, ReceiverOptions, SenderOptions};
pub use crash_report::CrashReport;
pub use crashing::{CrashOptions, Crashing, crash_progress};
pub use disk::{Disk, DiskSetup};
pub use hot_path::{Crowd, HotPath};
pub use operator::{Answer, Item, Operator, request};
pub use random::Random;
pub use restart::Restart;
pub use simulation::{Options, Report, Simulation, progress};
pub use subscribing::{PATTERNS, TOPICS};
pub use transacting::transaction_id;
pub use world::{Actor, Setup, World, names_homed_at};
