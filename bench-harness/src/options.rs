//! What does the command line ask for?

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::client::Protocol;
use crate::disk::Syncing;
use crate::message::{BODY_BYTES_MIN, PRODUCERS_MAX};
use crate::operations::Churn;
use crate::pingpong::Connections;
use crate::quantity;
use crate::scene_options::{ChurnOptions, HoldOptions, SceneOptions};
use crate::scenes::Kind;
use crate::schedule::Profile;
use crate::subject::Idle;
use crate::traffic::Settle;
use crate::url::Url;

const EXAMPLES: &str = "\
Examples:
  corelane-bench pingpong --connections 1,2
      Latency of a Corelane broker beside an echo and a relay.
  corelane-bench saturate --size 100,1KiB --rounds 3 --duration 2s
      Throughput, at a first glance.
  corelane-bench durable --depth 1,1000 --queues 1 --within /var/lib/corelane
      Confirmed durable messages, beside the bare disk that /var/lib is on.
  scripts/bench/rabbitmq --within /var/lib/corelane
      The same beside classic and quorum queues of a RabbitMQ that it starts.
  corelane-bench backlog --within /var/lib/corelane --scale 0.01
      A hundredth of the two large backlogs: how fast they are built, read by a restart, and drained.
  corelane-bench open-loop --rate 1000,50000 --arrivals poisson --out charts
      Latency at two rates, with a percentile chart of each.
  corelane-bench fanout --protocol 0-9-1 --url amqp://guest:guest@127.0.0.1:5672 --broker-core 0
      1 to 10 and 1 to 100 over exchanges.
  corelane-bench saturate --url amqp://guest:guest@127.0.0.1:5672 --broker-core 0
      Throughput of a broker that runs already; say which core it is on.";

/// Measures AMQP brokers: how long a message takes, and how many go through in a second.
///
/// Without --url it starts a Corelane broker for each round on a core of its own, and beside it two yardsticks on the same
/// runtime: an echo, which has the two hops of a message, and a relay, which moves bytes as a broker does. What is told
/// is the ratio within each round, so that figures of different machines can be compared.
///
/// Every message is counted. A row where one was lost, doubled, out of order or changed is void. Exit status: 0 if all
/// rows are good, 1 if one is void or nothing could be measured, 2 for a command that is not understood.
#[derive(Clone, Debug, Parser)]
#[command(name = "corelane-bench", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Workload(Box<Workload>),
    /// Several workloads beside other brokers, as one HTML page
    ///
    /// FILE says which workloads, and by which programs the others are started (see scripts/bench/compare.toml and
    /// scripts/bench/peers). In each round echo, ours and each other broker follow one another; who is not measured stands still.
    Compare(CompareOptions),
    /// Which idle policy to run the broker with, for a load at a rate
    ///
    /// The load is measured under each policy; told is which to choose and what it buys, with a percentile chart. One shard.
    Tune(TuneOptions),
}

#[derive(Clone, Debug, Args)]
pub struct TuneOptions {
    /// Messages a second, with the gaps of many independent senders
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: u32,
    /// Bytes of a message's body
    #[arg(long, value_name = "BYTES", value_parser = body_size, default_value_t = 100)]
    pub size: usize,
    /// The protocol to speak
    #[arg(long, value_enum, default_value = "amqp10")]
    pub protocol: Protocol,
    /// Measured time of a round
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    pub duration: Duration,
    /// Rounds under each policy
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The program to start as broker [default: `corelane` in the folder of this program]
    #[arg(long, value_name = "PATH")]
    pub corelane: Option<PathBuf>,
    /// The chart that is written
    #[arg(long, value_name = "FILE.svg", default_value = "tune.svg")]
    pub chart: PathBuf,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// What is compared, as TOML
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// The page that is written
    #[arg(long, value_name = "FILE.html", default_value = "comparison.html")]
    pub html: PathBuf,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Workload {
    /// Latency: one message in flight from a producer to a consumer
    ///
    /// A closed loop: the next message is sent when the one before has arrived.
    Pingpong(PingpongOptions),
    /// Throughput: producers and consumers on one queue, as fast as they can
    ///
    /// A closed loop: at most --window messages for each consumer are on their way. Latencies are those in a full window.
    Saturate(SaturateOptions),
    /// Durable messages: how long until one is confirmed, and how many are in a second
    ///
    /// A closed loop: so many are unconfirmed at any time. Nobody receives meanwhile, so all of them are written; afterwards they are
    /// received and counted. Beside the broker stands the bare disk: writes of the same size, synced in the same way, to the same
    /// kind of file. A broker at --url has to keep durable messages by itself.
    Durable(DurableOptions),
    /// A large backlog: how fast it is built, read again by a restart, and drained
    ///
    /// Producers fill one queue with durable messages while nobody receives, each confirmed. Then the broker is stopped, started
    /// again on what it has kept, and emptied by one consumer, which sees whether all are there, once and in order. Without --messages
    /// there are two rows: 10,000,000 messages of 100 bytes, and 30 GB of messages of 1 KiB, which take 33 GB of disk. Rates are told
    /// beside those of `saturate` of the same round: the same size through a broker that keeps nothing.
    ///
    /// A restart is over when the broker opens a connection; its rate is that of the bytes in the journal. Memory is the most that the
    /// kernel has counted of the broker's process until the stop, and from the restart to the end. A broker at --url is filled and
    /// emptied, and not restarted. Who interrupts this finds the folder corelane-bench-* in --within, to be deleted.
    Backlog(BacklogOptions),
    /// Latency at a rate: an open loop, free of coordinated omission
    ///
    /// Each message is due at a time that stands; its latency counts from then, so that a stall is in the figures of all that were due in
    /// it. Beside it stands how late the generator was; a row is void where that is more than a tenth of the latency.
    #[command(mut_arg("rates", |rates| rates.default_values(["1000", "10000"])), mut_arg("counts", |counts| counts.hide(true)))]
    OpenLoop(SceneOptions),
    /// Requests at a rate, through one queue to a server and back through another
    #[command(mut_arg("rates", |rates| rates.default_values(["1000"])), mut_arg("counts", |counts| counts.hide(true)))]
    RpcOpen(SceneOptions),
    /// Each message to many: a topic's subscribers, or queues that are bound to a fanout exchange
    #[command(mut_arg("counts", |counts| counts.default_values(["10", "100"])))]
    Fanout(SceneOptions),
    /// Does a consumer notice many others on its queue?
    ///
    /// Beside it in the same round stands the consumer alone. Others are idle (without credit), interested (they take their share) or
    /// browsing.
    #[command(mut_arg("counts", |counts| counts.default_values(["10000"])))]
    ConsumersFlat(SceneOptions),
    /// Many different equality selectors on one queue, beside a single one; with 0-9-1, a headers exchange
    #[command(mut_arg("counts", |counts| counts.default_values(["10000"])))]
    Selectors(SceneOptions),
    /// Many topic patterns, beside a single one: subscriptions, or bindings of a topic exchange
    #[command(mut_arg("counts", |counts| counts.default_values(["10000"])))]
    Topics(SceneOptions),
    /// A consumer that takes 1 ms a message beside a quick one on the same queue
    #[command(mut_arg("counts", |counts| counts.hide(true)))]
    SlowConsumer(SceneOptions),
    /// Opening and closing connections, sessions or channels, links or consumers, queues
    Churn(ChurnOptions),
    /// Making many queues, and the broker's memory for each while it is empty
    #[command(mut_arg("counts", |counts| counts.default_values(["10000"])))]
    Queues(HoldOptions),
    /// Reading a queue without taking anything out, again and again
    #[command(mut_arg("counts", |counts| counts.default_values(["10000"])))]
    Browse(HoldOptions),
    /// Connections with two sessions or channels each on which nothing happens: memory and processor time
    Idle(HoldOptions),
}

#[derive(Clone, Debug, Args)]
pub struct PingpongOptions {
    /// Bytes of a message's body; repeat it or separate by commas for a row each
    #[arg(long = "size", value_name = "BYTES", value_parser = body_size, value_delimiter = ',', default_values = ["100", "1KiB"])]
    pub sizes: Vec<usize>,
    /// How messages are settled on both sides; repeatable
    #[arg(long = "settle", value_enum, value_delimiter = ',', default_values = ["pre"])]
    pub settle: Vec<Settle>,
    /// Producer and consumer on connections of their own, or both on one; repeatable
    ///
    /// TCP acknowledges a message by a segment of its own if nothing goes back on its connection. So on two connections the
    /// floor is the relay with one message in flight, on one it is the echo.
    #[arg(long, value_name = "1|2", value_delimiter = ',', default_values = ["2"], value_parser = connections)]
    pub connections: Vec<Connections>,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Clone, Debug, Args)]
pub struct SaturateOptions {
    /// Bytes of a message's body; repeat it or separate by commas for a row each
    #[arg(long = "size", value_name = "BYTES", value_parser = body_size, value_delimiter = ',', default_values = ["100", "1KiB", "16KiB", "1MiB"])]
    pub sizes: Vec<usize>,
    /// How messages are settled on both sides; repeatable
    #[arg(long = "settle", value_enum, value_delimiter = ',', default_values = ["batch"])]
    pub settle: Vec<Settle>,
    /// Connections that send
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=PRODUCERS_MAX as i64))]
    pub producers: u16,
    /// Connections that receive from the same queue
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub consumers: u16,
    /// Credit of a consumer, and messages on their way for each [default: 1 MiB of messages, 16 to 2048 of them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub window: Option<u32>,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Clone, Debug, Args)]
pub struct DurableOptions {
    /// Bytes of a message's body; repeat it or separate by commas for a row each
    #[arg(long = "size", value_name = "BYTES", value_parser = body_size, value_delimiter = ',', default_values = ["1KiB"])]
    pub sizes: Vec<usize>,
    /// Messages that are unconfirmed at any time, in all queues together; repeatable
    #[arg(long = "depth", value_name = "N", value_delimiter = ',', default_values = ["1", "10", "100", "1000"],
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub depths: Vec<u32>,
    /// Queues that messages go to by turns; repeatable
    #[arg(long = "queues", value_name = "N", value_delimiter = ',', default_values = ["1", "100"],
          value_parser = clap::value_parser!(u16).range(1..=PRODUCERS_MAX as i64))]
    pub queues: Vec<u16>,
    /// The folder in which the broker keeps its messages, and the bare disk is measured [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
    /// How what is written is synced [default: the quicker way, as a few writes tell]
    #[arg(long, value_enum)]
    pub sync: Option<Syncing>,
    #[command(flatten)]
    pub common: CommonOptions,
}

/// A broker that is measured beside the one that the rows are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub url: Url,
    pub queue: String,
    /// `None`: the same as to ours.
    pub protocol: Option<Protocol>,
    /// The process group that stands still while others are measured.
    pub group: Option<i32>,
}

#[derive(Clone, Debug, Args)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("1")))]
pub struct BacklogOptions {
    /// Messages of the backlog, instead of the two rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub messages: Option<u64>,
    /// Bytes of such a message's body [default: 100]
    #[arg(long, value_name = "BYTES", value_parser = body_size, requires = "messages")]
    pub size: Option<usize>,
    /// The part of the two rows that is measured
    #[arg(long, value_name = "FRACTION", default_value = "1", value_parser = fraction, conflicts_with = "messages")]
    pub scale: f64,
    /// Connections that send: each has as many messages unconfirmed as the broker gives it credit for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=PRODUCERS_MAX as i64))]
    pub producers: u16,
    /// What messages may take of the broker's memory; it is passed on
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub memory: String,
    /// Messages that are not durable: those that do not fit into memory go to the disk, and there is no restart
    #[arg(long)]
    pub transient: bool,
    /// The folder in which the broker keeps its messages [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
    /// How what is written is synced [default: the quicker way, as a few writes tell]
    #[arg(long, value_enum)]
    pub sync: Option<Syncing>,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Clone, Debug, Args)]
pub struct CommonOptions {
    /// The broker to measure [default: a Corelane broker that is started for each round]
    #[arg(long, value_name = "amqp://HOST:PORT/VHOST")]
    pub url: Option<Url>,
    /// The protocol to speak
    #[arg(long, value_enum, default_value = "amqp10")]
    pub protocol: Protocol,
    /// The queue to use; it must be empty and ours alone
    #[arg(long, value_name = "NAME", default_value = "corelane-bench")]
    pub queue: String,
    /// Measured time of a round
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    pub duration: Duration,
    /// Time before that, which is not measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::duration_or_zero)]
    pub warmup: Duration,
    /// Rounds of echo, broker and relay
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// One JSON object a row instead of a table
    #[arg(long)]
    pub json: bool,
    /// What broker and yardsticks do when they have nothing to do
    #[arg(long, value_enum, default_value = "adaptive")]
    pub idle: Idle,
    /// How long they poll before they sleep, under `adaptive`, in microseconds
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub spin_us: u64,
    /// The program to start as broker and yardsticks [default: `corelane` in the folder of this program]
    #[arg(long, value_name = "PATH")]
    pub corelane: Option<PathBuf>,
    /// The core that broker and yardsticks run on [default: the first that this process may use]
    #[arg(long, value_name = "CORE")]
    pub broker_core: Option<usize>,
    /// The core that the generator runs on [default: the first other one]
    #[arg(long, value_name = "CORE")]
    pub generator_core: Option<usize>,
    /// Measure neither echo nor relay; a broker on another machine is never compared with them
    #[arg(long)]
    pub no_yardsticks: bool,
    /// Another broker, measured in the same rounds with a row of its own; repeatable
    ///
    /// It runs already, on the same core (see scripts/bench/rabbitmq). QUEUE is the address of an empty queue there; where a workload
    /// has several there are as many, QUEUE-0 and so on. PROTOCOL is what is spoken to it, if that is another one.
    #[arg(long = "peer", value_name = "NAME,URL,QUEUE[,PROTOCOL]", value_parser = peer)]
    pub peers: Vec<Peer>,
    /// A folder for histograms (.hlog) and percentile charts (.svg), one of each for each row
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// What distinguishes the rows of one command.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Bytes of a body.
    pub size: usize,
    pub settle: Settle,
    pub connections: Connections,
    pub queues: u16,
    /// Of durable messages: how many are unconfirmed.
    pub depth: Option<u32>,
    /// Of a backlog.
    pub messages: Option<u64>,
    /// Receivers, or things that are held.
    pub count: u32,
    /// Of an open loop.
    pub profile: Option<Profile>,
    pub churn: Option<Churn>,
}

impl Case {
    pub fn new(size: usize, settle: Settle) -> Case {
        Case {
            size,
            settle,
            connections: Connections::Two,
            queues: 1,
            depth: None,
            messages: None,
            count: 0,
            profile: None,
            churn: None,
        }
    }
}

impl Workload {
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Pingpong(_) => "pingpong",
            Workload::Saturate(_) => "saturate",
            Workload::Durable(_) => "durable",
            Workload::Backlog(_) => "backlog",
            Workload::OpenLoop(_) => "open-loop",
            Workload::RpcOpen(_) => "rpc-open",
            Workload::Fanout(_) => "fanout",
            Workload::ConsumersFlat(_) => "consumers-flat",
            Workload::Selectors(_) => "selectors",
            Workload::Topics(_) => "topics",
            Workload::SlowConsumer(_) => "slow-consumer",
            Workload::Churn(_) => "churn",
            Workload::Queues(_) => "queues",
            Workload::Browse(_) => "browse",
            Workload::Idle(_) => "idle",
        }
    }

    pub fn common(&self) -> &CommonOptions {
        match self {
            Workload::Pingpong(options) => &options.common,
            Workload::Saturate(options) => &options.common,
            Workload::Durable(options) => &options.common,
            Workload::Backlog(options) => &options.common,
            Workload::OpenLoop(options)
            | Workload::RpcOpen(options)
            | Workload::Fanout(options)
            | Workload::ConsumersFlat(options)
            | Workload::Selectors(options)
            | Workload::Topics(options)
            | Workload::SlowConsumer(options) => &options.common,
            Workload::Churn(options) => &options.common,
            Workload::Queues(options) | Workload::Browse(options) | Workload::Idle(options) => {
                &options.common
            }
        }
    }

    /// The scene that it plays, of a case.
    pub fn scene(&self, case: &Case) -> Option<(&SceneOptions, Kind)> {
        match self {
            Workload::OpenLoop(options) => Some((options, Kind::Queue)),
            Workload::RpcOpen(options) => Some((options, Kind::Rpc)),
            Workload::Fanout(options) => Some((options, Kind::Fanout(case.count))),
            Workload::ConsumersFlat(options) => Some((options, Kind::Company(case.count, options.company))),
            Workload::Selectors(options) => Some((options, Kind::Selectors(case.count))),
            Workload::Topics(options) => Some((options, Kind::Topics(case.count))),
            Workload::SlowConsumer(options) => Some((options, Kind::Slow(true))),
            Workload::Pingpong(_)
            | Workload::Saturate(_)
            | Workload::Durable(_)
            | Workload::Backlog(_)
            | Workload::Churn(_)
            | Workload::Queues(_)
            | Workload::Browse(_)
            | Workload::Idle(_) => None,
        }
    }

    /// The same to be changed.
    pub fn common_mut(&mut self) -> &mut CommonOptions {
        match self {
            Workload::Pingpong(options) => &mut options.common,
            Workload::Saturate(options) => &mut options.common,
            Workload::Durable(options) => &mut options.common,
            Workload::Backlog(options) => &mut options.common,
            Workload::OpenLoop(options)
            | Workload::RpcOpen(options)
            | Workload::Fanout(options)
            | Workload::ConsumersFlat(options)
            | Workload::Selectors(options)
            | Workload::Topics(options)
            | Workload::SlowConsumer(options) => &mut options.common,
            Workload::Churn(options) => &mut options.common,
            Workload::Queues(options) | Workload::Browse(options) | Workload::Idle(options) => {
                &mut options.common
            }
        }
    }

    /// What is measured, a row each.
    pub fn cases(&self) -> Vec<Case> {
        let (sizes, settle, connections) = match self {
            Workload::Pingpong(options) => (&options.sizes, &options.settle, options.connections.as_slice()),
            Workload::Saturate(options) => (&options.sizes, &options.settle, [Connections::Two].as_slice()),
            Workload::Durable(options) => return options.cases(),
            Workload::Backlog(options) => return options.cases(),
            Workload::OpenLoop(options)
            | Workload::RpcOpen(options)
            | Workload::Fanout(options)
            | Workload::ConsumersFlat(options)
            | Workload::Selectors(options)
            | Workload::Topics(options)
            | Workload::SlowConsumer(options) => return options.cases(),
            Workload::Churn(options) => {
                let case = |churn| Case { churn: Some(churn), ..Case::new(BODY_BYTES_MIN, Settle::Pre) };
                return options.of.iter().copied().map(case).collect();
            }
            Workload::Queues(options) | Workload::Browse(options) | Workload::Idle(options) => {
                let case = |&count| Case { count, ..Case::new(options.size, Settle::Batch) };
                return options.counts.iter().map(case).collect();
            }
        };
        let mut cases = Vec::new();
        for &connections in connections {
            for &settle in settle {
                let case = |&size| Case { connections, ..Case::new(size, settle) };
                cases.extend(sizes.iter().map(case));
            }
        }
        cases
    }

    /// A consumer's credit, or how many messages are unconfirmed.
    pub fn window(&self, case: &Case) -> u32 {
        match self {
            Workload::Pingpong(_) => PINGPONG_WINDOW,
            Workload::Saturate(options) => options.window.unwrap_or_else(|| default_window(case.size)),
            Workload::Durable(_) => case.depth.unwrap_or(1),
            Workload::Backlog(_) | Workload::Churn(_) | Workload::Queues(_) | Workload::Browse(_) => {
                default_window(case.size)
            }
            Workload::Idle(_) => 1,
            _ => self.scene(case).map_or(1, |(options, _)| options.window),
        }
    }
}

impl SceneOptions {
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &settle in &self.settle {
            for &size in &self.sizes {
                for &count in &self.counts {
                    let case = |profile| Case { count, profile, ..Case::new(size, settle) };
                    cases.extend(self.profiles().into_iter().map(case));
                }
            }
        }
        cases
    }
}

impl DurableOptions {
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &size in &self.sizes {
            for &queues in &self.queues {
                let case = |&depth| Case { queues, depth: Some(depth), ..Case::new(size, Settle::Batch) };
                cases.extend(self.depths.iter().map(case));
            }
        }
        cases
    }

    /// Where messages are kept.
    pub fn folder(&self) -> PathBuf {
        self.within.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// The two backlogs: messages, and bytes of each.
const BACKLOGS: [(u64, usize); 2] = [(10_000_000, 100), (29_296_875, 1024)];

impl BacklogOptions {
    fn cases(&self) -> Vec<Case> {
        let case = |(messages, size): (u64, usize)| Case {
            messages: Some(messages),
            ..Case::new(size, Settle::Batch)
        };
        match self.messages {
            Some(messages) => vec![case((messages, self.size.unwrap_or(BACKLOGS[0].1)))],
            None => {
                let scaled = |messages: u64| ((messages as f64 * self.scale) as u64).max(1);
                BACKLOGS.iter().map(|(messages, size)| case((scaled(*messages), *size))).collect()
            }
        }
    }

    /// Where messages are kept.
    pub fn folder(&self) -> PathBuf {
        self.within.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// Credit that one message in flight never uses up, and that is seldom renewed.
const PINGPONG_WINDOW: u32 = 1000;

fn default_window(size: usize) -> u32 {
    ((1 << 20) / size.max(1)).clamp(16, 2048) as u32
}

fn connections(text: &str) -> Result<Connections, String> {
    match text {
        "1" => Ok(Connections::One),
        "2" => Ok(Connections::Two),
        _ => Err("1 or 2".to_owned()),
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    let parts: Vec<&str> = text.splitn(4, ',').collect();
    let (name, url, queue, protocol) = match parts[..] {
        [name, url, queue] => (name, url, queue, None),
        [name, url, queue, protocol] => (name, url, queue, Some(Protocol::from_str(protocol, true)?)),
        _ => {
            return Err(
                "a name, the broker's URL and a queue's address: rabbitmq,amqp://HOST:PORT,/amq/queue/q"
                    .to_owned(),
            );
        }
    };
    let (name, queue) = (name.to_owned(), queue.to_owned());
    Ok(Peer { name, url: url.parse()?, queue, protocol, group: None })
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(fraction) if fraction > 0.0 && fraction <= 1.0 => Ok(fraction),
        Ok(_) | Err(_) => Err("more than 0, and 1 at most".to_owned()),
    }
}

pub fn body_size(text: &str) -> Result<usize, String> {
    let size = quantity::size(text)?;
    if size < BODY_BYTES_MIN {
        return Err(format!(
            "at least {BODY_BYTES_MIN}: the body carries a sequence number and the time of sending"
        ));
    }
    if size > 1 << 30 {
        return Err("at most 1024 MiB".to_owned());
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Workload, clap::Error> {
        let words = std::iter::once("corelane-bench").chain(line.split_whitespace());
        Options::try_parse_from(words).map(|options| match options.command {
            Command::Workload(workload) => *workload,
            Command::Compare(_) | Command::Tune(_) => panic!("{line} is no workload"),
        })
    }

    fn cases(workload: &Workload) -> Vec<(usize, Settle)> {
        workload.cases().iter().map(|case| (case.size, case.settle)).collect()
    }

    #[test]
    fn pingpong_on_one_connection_and_on_two() {
        let cases = parse("pingpong --size 16 --connections 1,2").unwrap().cases();
        let connections: Vec<Connections> = cases.iter().map(|case| case.connections).collect();
        assert_eq!(connections, [Connections::One, Connections::Two]);
    }

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn defaults() {
        let pingpong = parse("pingpong").unwrap();
        assert_eq!(cases(&pingpong), [(100, Settle::Pre), (1024, Settle::Pre)]);
        assert!(pingpong.cases().iter().all(|case| case.connections == Connections::Two));
        let common = pingpong.common();
        assert_eq!((common.duration, common.warmup), (Duration::from_secs(5), Duration::from_secs(1)));
        assert_eq!((common.rounds, common.idle, common.spin_us), (7, Idle::Adaptive, 20));
        assert_eq!((common.protocol, common.json, &common.url), (Protocol::Amqp10, false, &None));
        let saturate = parse("saturate").unwrap();
        let windows: Vec<u32> = saturate.cases().iter().map(|case| saturate.window(case)).collect();
        assert_eq!(windows, [2048, 1024, 64, 16]);
        let durable = parse("durable").unwrap();
        let rows: Vec<(u16, u32)> =
            durable.cases().iter().map(|case| (case.queues, durable.window(case))).collect();
        let depths = [1, 10, 100, 1000];
        assert_eq!(rows[..4], depths.map(|depth| (1, depth)));
        assert_eq!(rows[4..], depths.map(|depth| (100, depth)));
    }

    #[test]
    fn a_peer_is_named_with_its_queue() {
        let line = "durable --peer classic,amqp://a:b@h:1,/amq/queue/q --peer other,h:2,q";
        let workload = parse(line).unwrap();
        let told: Vec<_> = workload
            .common()
            .peers
            .iter()
            .map(|peer| (peer.name.as_str(), peer.url.port, peer.queue.as_str()))
            .collect();
        assert_eq!(told, [("classic", 1, "/amq/queue/q"), ("other", 2, "q")]);
    }

    #[test]
    fn a_backlog_is_the_two_large_ones_or_another() {
        let check = |line: &str, expect: &[(u64, usize)]| {
            let backlog = parse(line).unwrap();
            let cases = backlog.cases();
            let rows: Vec<_> = cases.iter().map(|case| (case.messages.unwrap(), case.size)).collect();
            assert_eq!(rows, expect, "{line}");
            assert_eq!(backlog.common().rounds, 1, "{line}");
        };
        check("backlog", &[(10_000_000, 100), (29_296_875, 1024)]);
        check("backlog --scale 0.001", &[(10_000, 100), (29_296, 1024)]);
        check("backlog --messages 5", &[(5, 100)]);
        check("backlog --messages 5 --size 1MiB", &[(5, 1 << 20)]);
        assert_eq!(parse("backlog --rounds 3").unwrap().common().rounds, 3);
        assert_eq!(parse("saturate").unwrap().common().rounds, 7);
    }

    #[test]
    fn an_open_loop_has_a_row_for_each_rate() {
        let check = |line: &str, expect: &[&[f64]]| {
            let cases = parse(line).unwrap().cases();
            let rates: Vec<_> =
                cases.iter().map(|case| case.profile.as_ref().unwrap().rates.clone()).collect();
            assert_eq!(rates, expect, "{line}");
        };
        check("open-loop", &[&[1000.0], &[10_000.0]]);
        check("open-loop --rate 5,0.5", &[&[5.0], &[0.5]]);
        check("open-loop --steps 1,2", &[&[1.0, 2.0]]);
        check("rpc-open", &[&[1000.0]]);
        let fanout = parse("fanout").unwrap().cases();
        let counts: Vec<_> = fanout.iter().map(|case| (case.count, case.profile.is_none())).collect();
        assert_eq!(counts, [(10, true), (100, true)]);
    }

    #[test]
    fn everything_given() {
        let line = "saturate --url amqp://a:b@h:1 --protocol amqp10 --size 16 --size 1MiB --duration 2s --warmup 0 \
                    --rounds 3 --producers 2 --consumers 4 --window 50 --settle pre,batch --json --idle spin --quiet";
        let Workload::Saturate(options) = parse(line).unwrap() else { panic!() };
        assert_eq!((options.producers, options.consumers, options.window), (2, 4, Some(50)));
        assert_eq!(options.common.url.as_ref().map(|url| url.port), Some(1));
        assert_eq!((options.common.warmup, options.common.rounds), (Duration::ZERO, 3));
        assert!(options.common.json && options.common.quiet);
        let (pre, batch) = (Settle::Pre, Settle::Batch);
        assert_eq!(
            cases(&Workload::Saturate(options)),
            [(16, pre), (1 << 20, pre), (16, batch), (1 << 20, batch)]
        );
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_reason() {
        let check = |line: &str, expect: &str| {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expect), "{line}: {error}");
        };
        check("pingpong --size 15", "sequence number");
        check("pingpong --size many", "100, 16KiB, 1MiB");
        check("pingpong --duration 0", "5s, 500ms");
        check("pingpong --rounds 0", "1..=1000");
        check("pingpong --url amqps://h", "amqp://");
        check("pingpong --url http://h", "amqp://HOST:PORT");
        check("pingpong --protocol mqtt", "amqp10");
        check("pingpong --connections 3", "1 or 2");
        check("pingpong --producers 2", "unexpected argument");
        check("saturate --window 0", "1..");
        check("saturate --producers 257", "1..=256");
        check("durable --depth 0", "1..");
        check("durable --queues 257", "1..=256");
        check("durable --sync never", "write-through");
        check("durable --peer a,amqp://h:1", "a queue's address");
        check("durable --peer a,h:x,q", "a port from 1");
        check("backlog --scale 0", "more than 0");
        check("backlog --scale 2", "1 at most");
        check("backlog --size 100", "--messages");
        check("backlog --messages 1 --scale 0.5", "cannot be used with");
        check("weather", "unrecognized subcommand");
        check("open-loop --rate 0", "at least 0.1");
        check("open-loop --rate 5 --steps 1,2", "cannot be used with");
        check("fanout --count 0", "1..");
    }
}
