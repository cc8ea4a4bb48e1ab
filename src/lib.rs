//! What is the process around the shards? Command line, configuration, boot, sockets and the control thread.
//!
//! Invariants: only `boot` and `driver` name the runtime; nothing here decides about queues or reads AMQP frames, save
//! the small client behind `corelane send`, `receive` and `browse`. A module names only those that stand below it:
//!
//! ```text
//! cli > boot > client > control > config > authenticate > driver > backup > storage > users > doorbell, regular_file
//! ```

pub mod authenticate;
pub mod backup;
pub mod boot;
pub mod cli;
pub mod client;
pub mod config;
pub mod control;
pub mod definitions;
pub mod doorbell;
pub mod driver;
pub mod regular_file;
pub mod storage;
pub mod users;
