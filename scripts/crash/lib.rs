//! Does the broker keep its promises when it is killed?
//!
//! Real clients load a real broker; it is killed at a random moment, also while it starts, and started again with another number of
//! shards or the same. Then everything in it is looked at and compared with what clients have said and heard.
//!
//! Invariant: what is drawn follows from the seed. When exactly something happens does not, so a seed says how a run was, and may not
//! bring a fault again.

pub mod audit;
pub mod barrier;
pub mod broker;
pub mod client;
pub mod fault;
pub mod ledger;
pub mod message;
pub mod nodes;
pub mod random;
pub mod run;
pub mod worker;

use std::path::PathBuf;

use clap::Parser;

/// Kills a broker under load and audits what it kept.
#[derive(Clone, Debug, Parser)]
#[command(name = "scripts/crash/run", max_term_width = 100)]
pub struct Options {
    /// How often the broker is killed
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub kills: u32,
    /// What is drawn by chance
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Numbers of shards that the broker is started with, by turns
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = ["1", "4"],
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub shards: Vec<u16>,
    /// Keep the data directory also when nothing is wrong
    #[arg(long)]
    pub keep: bool,
    /// The broker to start
    #[arg(long, value_name = "PATH")]
    pub broker: PathBuf,
    /// Where the data directory is made [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
}
