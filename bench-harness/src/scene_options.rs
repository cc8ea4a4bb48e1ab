//! What does the command line ask of workloads that play a scene, or that open and hold things?

use clap::Args;

use crate::operations::Churn;
use crate::options::{CommonOptions, body_size};
use crate::scenes::{Company, Kind};
use crate::schedule::{Arrivals, Profile};
use crate::traffic::Settle;

/// Of all scenes. What is not asked for with --rate is a closed loop.
#[derive(Clone, Debug, Args)]
pub struct SceneOptions {
    /// Bytes of a message's body; repeat it or separate by commas for a row each
    #[arg(long = "size", value_name = "BYTES", value_parser = body_size, value_delimiter = ',', default_values = ["100"])]
    pub sizes: Vec<usize>,
    /// How messages are settled on both sides; repeatable
    #[arg(long = "settle", value_enum, value_delimiter = ',', default_values = ["pre"])]
    pub settle: Vec<Settle>,
    /// Receivers, others in company, selectors or subscriptions; repeatable
    #[arg(long = "count", value_name = "N", value_delimiter = ',', default_values = ["1"],
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub counts: Vec<u32>,
    /// Messages a second, by a schedule that stands whatever the broker does; repeatable
    #[arg(long = "rate", value_name = "N", value_delimiter = ',', value_parser = rate)]
    pub rates: Vec<f64>,
    /// Rates one after the other within one run, each for its part of the time
    #[arg(long, value_name = "N,N…", value_delimiter = ',', value_parser = rate, conflicts_with = "rates")]
    pub steps: Vec<f64>,
    /// How messages are spaced
    #[arg(long, value_enum, default_value = "fixed")]
    pub arrivals: Arrivals,
    /// Raise the rate until latency or delivery gives way, and tell the highest that holds
    ///
    /// From the first --rate on it is doubled, then bisected. It holds if 99 of 100 messages that were due came within the time, and
    /// their p99 is at most ten times that at the first rate.
    #[arg(long, conflicts_with = "steps")]
    pub find_knee: bool,
    /// Credit of a consumer, and without --rate messages on their way
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub window: u32,
    /// What the others do (consumers-flat)
    #[arg(long, value_enum, default_value = "idle")]
    pub company: Company,
    #[command(flatten)]
    pub common: CommonOptions,
}

impl SceneOptions {
    /// A profile of rates for each row; none: as fast as the window lets it.
    pub fn profiles(&self) -> Vec<Option<Profile>> {
        let arrivals = self.arrivals;
        if !self.steps.is_empty() {
            return vec![Some(Profile { rates: self.steps.clone(), arrivals })];
        }
        if self.rates.is_empty() {
            return vec![None];
        }
        self.rates.iter().map(|rate| Some(Profile { rates: vec![*rate], arrivals })).collect()
    }
}

/// Of churn.
#[derive(Clone, Debug, Args)]
pub struct ChurnOptions {
    /// What is opened and closed; repeatable
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["connections", "sessions", "links", "queues"])]
    pub of: Vec<Churn>,
    #[command(flatten)]
    pub common: CommonOptions,
}

/// Of things that are held.
#[derive(Clone, Debug, Args)]
pub struct HoldOptions {
    /// How many; repeatable
    #[arg(long = "count", value_name = "N", value_delimiter = ',', default_values = ["1000"],
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub counts: Vec<u32>,
    /// Bytes of a message's body (browse)
    #[arg(long, value_name = "BYTES", value_parser = body_size, default_value_t = 100)]
    pub size: usize,
    #[command(flatten)]
    pub common: CommonOptions,
}

/// What a scene is compared with, if that is another one.
pub fn base_of(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Queue | Kind::Rpc | Kind::Fanout(_) | Kind::Slow(false) => None,
        Kind::Company(_, company) => Some(Kind::Company(0, company)),
        Kind::Selectors(_) => Some(Kind::Selectors(1)),
        Kind::Topics(_) => Some(Kind::Topics(1)),
        Kind::Slow(true) => Some(Kind::Slow(false)),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=1e8).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => Err("messages a second, at least 0.1 and at most 100 millions".to_owned()),
    }
}
