//! How fast is a broker, told so that it can be believed?
//!
//! A generator on one core, the broker on another, and beside the broker two yardsticks that show what the same machine does
//! without one. Workloads drive the broker through the client role of either protocol; every message is counted, and a wrong count
//! voids the figures.
//!
//! Invariants:
//! - what is compared is measured in the same round, by the same generator, with the same sockets;
//! - the generator neither allocates nor waits while it measures;
//! - the broker is seen from outside only: over TCP, and as a process.
//!
//! Left out: several generators at a time.

pub mod backlog;
pub mod chart;
pub mod client;
pub mod clock;
pub mod compare;
pub mod cores;
pub mod disk;
pub mod durable;
pub mod error;
pub mod journal;
pub mod ledger;
pub mod message;
pub mod operations;
pub mod options;
mod page;
pub mod pingpong;
pub mod progress;
pub mod quantity;
mod recipe;
pub mod records;
pub mod report;
pub mod rounds;
pub mod run;
mod run_scenes;
pub mod sample;
pub mod saturate;
pub mod scene;
pub mod scene_options;
pub mod scenes;
pub mod schedule;
pub mod socket;
pub mod subject;
pub mod traffic;
pub mod tune;
pub mod url;
pub mod yardstick;
