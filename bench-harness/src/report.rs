//! How are rows told? As a table for people, as one JSON object a row for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::backlog::Summary;
use crate::options::{BacklogOptions, Case};
use crate::quantity::show_size;
use crate::rounds::{Spread, Verdict};
use crate::sample::Latencies;
use crate::traffic::Settle;

/// One line of a report. Times are microseconds, rates messages a second; what was not measured is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub workload: &'static str,
    /// The broker that it is about.
    pub broker: String,
    pub protocol: &'static str,
    /// Bytes of a body.
    pub size: usize,
    /// Median over the rounds.
    pub rate_per_s: Option<f64>,
    /// Percentiles over all messages of all rounds.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    pub echo_p50_us: Option<f64>,
    pub relay_rate_per_s: Option<f64>,
    /// Why the row is worth nothing.
    pub void: Option<String>,

    pub settle: &'static str,
    pub connections: usize,
    pub producers: usize,
    pub consumers: usize,
    pub window: u32,
    /// Our p50 in echoes of the same round: median and range over the rounds.
    pub ratio_echo: Option<f64>,
    pub ratio_echo_min: Option<f64>,
    pub ratio_echo_max: Option<f64>,
    /// Our p99 in p99s of the echo: median over the rounds.
    pub ratio_echo_p99: Option<f64>,
    /// Our rate in relays of the same round: median and range over the rounds.
    pub ratio_relay: Option<f64>,
    pub ratio_relay_min: Option<f64>,
    pub ratio_relay_max: Option<f64>,
    pub echo_p99_us: Option<f64>,
    /// One message at a time through the relay, and our p50 in those.
    pub relay_p50_us: Option<f64>,
    pub ratio_relay_p50: Option<f64>,
    pub rounds: usize,
    pub rounds_dropped: usize,
    /// Of durable messages: queues that they go to.
    pub queues: u16,
    /// The bare disk: messages a second, and the latency of a write.
    pub disk_rate_per_s: Option<f64>,
    pub disk_p50_us: Option<f64>,
    pub disk_p99_us: Option<f64>,
    /// Our rate in those of the disk of the same round: median and range over the rounds.
    pub ratio_disk: Option<f64>,
    pub ratio_disk_min: Option<f64>,
    pub ratio_disk_max: Option<f64>,
    /// What our p50 is more than an echo and a write together: median over the rounds.
    pub beyond_disk_us: Option<f64>,
    pub syncs_per_message: Option<f64>,
    /// Bytes written for one received.
    pub bytes_per_byte: Option<f64>,
    /// Of another broker: our rate in its rate of the same round, median and range over the rounds.
    pub ratio_peer: Option<f64>,
    pub ratio_peer_min: Option<f64>,
    pub ratio_peer_max: Option<f64>,
    /// Our p50 in its p50.
    pub ratio_peer_p50: Option<f64>,
    pub ratio_peer_p50_min: Option<f64>,
    pub ratio_peer_p50_max: Option<f64>,
    /// Processor time of the broker a message, and the share of its core that it took.
    pub broker_cpu_us: Option<f64>,
    pub broker_busy: Option<f64>,
    /// That processor time in the relay's of the same round.
    pub ratio_relay_cpu: Option<f64>,
    /// Of a backlog: messages, and that they were durable.
    pub messages: Option<u64>,
    pub durable: bool,
    pub saturate_rate_per_s: Option<f64>,
    pub build_rate_per_s: Option<f64>,
    pub drain_rate_per_s: Option<f64>,
    /// These in `saturate` of the same round: median over the rounds.
    pub ratio_saturate_build: Option<f64>,
    pub ratio_saturate_drain: Option<f64>,
    pub restart_s: Option<f64>,
    /// Bytes of the journal in a second of that.
    pub recovery_mb_per_s: Option<f64>,
    pub journal_bytes_per_message: Option<f64>,
    /// The most memory of the broker's process until the stop, and from the restart on.
    pub memory_built_mb: Option<f64>,
    pub memory_drained_mb: Option<f64>,
    /// Receivers of each message, others in company, things held; what churns.
    pub count: u32,
    pub churn: Option<&'static str>,
    /// Of an open loop: what was asked for, in the order of the steps, and how late the generator was.
    pub rates_asked: Vec<f64>,
    pub arrivals: Option<&'static str>,
    pub lag_p50_us: Option<f64>,
    pub lag_p99_us: Option<f64>,
    pub max_us: Option<f64>,
    /// The highest rate that held.
    pub knee_per_s: Option<f64>,
    /// Our rate, and processor time a message, in those of the same load without what the workload adds.
    pub ratio_base: Option<f64>,
    pub ratio_base_min: Option<f64>,
    pub ratio_base_max: Option<f64>,
    pub ratio_base_cpu: Option<f64>,
    /// The broker's memory for each of the things that are held.
    pub bytes_each: Option<f64>,
    /// The broker that `ratio_peer` is in.
    pub peer: Option<String>,
    /// Of durable messages: until the confirm.
    pub confirm_p50_us: Option<f64>,
    pub sent: u64,
    pub confirmed: u64,
    pub delivered: u64,
    pub duplicated: u64,
    pub lost: u64,
    /// For charts.
    #[serde(skip)]
    pub latencies: Latencies,
    #[serde(skip)]
    pub echo_latencies: Latencies,
}

/// What a row is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub workload: &'static str,
    pub broker: &'a str,
    pub protocol: &'static str,
    pub size: usize,
    pub settle: Settle,
    pub connections: usize,
    pub producers: usize,
    pub consumers: usize,
    pub window: u32,
    pub queues: u16,
}

impl Row {
    pub fn new(subject: &Subject<'_>, verdict: &Verdict) -> Row {
        let percentile = |percentile| verdict.latencies.percentile_us(percentile).map(round);
        let middle = |spread: Option<Spread>| spread.map(|spread| round(spread.median));
        let low = |spread: Option<Spread>| spread.map(|spread| round(spread.min));
        let high = |spread: Option<Spread>| spread.map(|spread| round(spread.max));
        let counts = &verdict.counts;
        Row {
            workload: subject.workload,
            broker: subject.broker.to_owned(),
            protocol: subject.protocol,
            size: subject.size,
            rate_per_s: middle(verdict.rate_per_s),
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            p999_us: percentile(99.9),
            echo_p50_us: verdict.echo_latencies.percentile_us(50.0).map(round),
            relay_rate_per_s: middle(verdict.relay_rate_per_s),
            void: void(verdict),
            max_us: percentile(100.0),
            peer: (subject.broker != OURS).then(|| subject.broker.to_owned()),
            confirm_p50_us: percentile(50.0).filter(|_| subject.workload == "durable"),
            settle: subject.settle.name(),
            connections: subject.connections,
            producers: subject.producers,
            consumers: subject.consumers,
            window: subject.window,
            ratio_echo: middle(verdict.ratio_echo),
            ratio_echo_min: low(verdict.ratio_echo),
            ratio_echo_max: high(verdict.ratio_echo),
            ratio_echo_p99: middle(verdict.ratio_echo_p99),
            ratio_relay: middle(verdict.ratio_relay),
            ratio_relay_min: low(verdict.ratio_relay),
            ratio_relay_max: high(verdict.ratio_relay),
            echo_p99_us: verdict.echo_latencies.percentile_us(99.0).map(round),
            relay_p50_us: verdict.relay_latencies.percentile_us(50.0).map(round),
            ratio_relay_p50: middle(verdict.ratio_relay_latency),
            rounds: verdict.rounds,
            rounds_dropped: verdict.dropped,
            queues: subject.queues,
            disk_rate_per_s: middle(verdict.disk_rate_per_s),
            disk_p50_us: verdict.disk_latencies.percentile_us(50.0).map(round),
            disk_p99_us: verdict.disk_latencies.percentile_us(99.0).map(round),
            ratio_disk: middle(verdict.ratio_disk),
            ratio_disk_min: low(verdict.ratio_disk),
            ratio_disk_max: high(verdict.ratio_disk),
            beyond_disk_us: middle(verdict.beyond_disk_us),
            syncs_per_message: verdict.syncs_per_message.map(|spread| spread.median),
            bytes_per_byte: middle(verdict.bytes_per_byte),
            ratio_peer: middle(verdict.ratio_peer),
            ratio_peer_min: low(verdict.ratio_peer),
            ratio_peer_max: high(verdict.ratio_peer),
            ratio_peer_p50: middle(verdict.ratio_peer_latency),
            ratio_peer_p50_min: low(verdict.ratio_peer_latency),
            ratio_peer_p50_max: high(verdict.ratio_peer_latency),
            broker_cpu_us: middle(verdict.cpu_us),
            broker_busy: middle(verdict.busy),
            ratio_relay_cpu: middle(verdict.ratio_relay_cpu),
            sent: counts.sent,
            confirmed: counts.confirmed,
            delivered: counts.delivered,
            duplicated: counts.duplicated,
            lost: counts.lost,
            ..Row::beside(verdict)
        }
    }

    /// What only some workloads have.
    fn beside(verdict: &Verdict) -> Row {
        let base = verdict.ratio_base;
        Row {
            lag_p50_us: verdict.lag.percentile_us(50.0).map(round),
            lag_p99_us: verdict.lag.percentile_us(99.0).map(round),
            ratio_base: base.map(|spread| round(spread.median)),
            ratio_base_min: base.map(|spread| round(spread.min)),
            ratio_base_max: base.map(|spread| round(spread.max)),
            ratio_base_cpu: verdict.ratio_base_cpu.map(|spread| round(spread.median)),
            bytes_each: verdict.bytes_each.map(|spread| round(spread.median)),
            latencies: verdict.latencies.clone(),
            echo_latencies: verdict.echo_latencies.clone(),
            ..Row::default()
        }
    }

    pub fn of_backlog(case: &Case, options: &BacklogOptions, summary: &Summary, rounds: usize) -> Row {
        let middle = |spread: Option<Spread>| spread.map(|spread| round(spread.median));
        let mega = |spread: Option<Spread>| spread.map(|spread| round(spread.median / 1e6));
        let counts = &summary.counts;
        Row {
            workload: "backlog",
            broker: OURS.to_owned(),
            protocol: options.common.protocol.name(),
            size: case.size,
            void: counts.fault(),
            settle: case.settle.name(),
            connections: usize::from(options.producers) + 1,
            producers: options.producers.into(),
            consumers: 1,
            queues: case.queues,
            rounds,
            messages: case.messages,
            durable: !options.transient,
            saturate_rate_per_s: middle(summary.saturate_per_s),
            build_rate_per_s: middle(summary.build_per_s),
            drain_rate_per_s: middle(summary.drain_per_s),
            ratio_saturate_build: middle(summary.ratio_build),
            ratio_saturate_drain: middle(summary.ratio_drain),
            restart_s: middle(summary.restart_s),
            recovery_mb_per_s: mega(summary.recovery_bytes_per_s),
            journal_bytes_per_message: middle(summary.journal_bytes_per_message),
            syncs_per_message: summary.syncs_per_message.map(|spread| spread.median),
            memory_built_mb: mega(summary.memory_built),
            memory_drained_mb: mega(summary.memory_drained),
            sent: counts.sent,
            confirmed: counts.confirmed,
            delivered: counts.delivered,
            duplicated: counts.duplicated,
            lost: counts.lost,
            ..Row::default()
        }
    }

    /// One line without its end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a row has string keys and plain values")
    }
}

/// The broker that a row is about, if it is none that was named with `--peer`.
pub const OURS: &str = "corelane";

const NOTHING: &str = "nothing arrived in the measured time";

/// How late the generator may be, in the latencies that it tells.
const LAG_MAX: f64 = 0.1;

/// Why the figures are worth nothing.
fn void(verdict: &Verdict) -> Option<String> {
    if let Some(fault) = verdict.counts.fault() {
        return Some(fault);
    }
    let Some(p99) = verdict.latencies.percentile_us(99.0) else { return Some(NOTHING.to_owned()) };
    let lag = verdict.lag.percentile_us(99.0)?;
    (lag > LAG_MAX * p99)
        .then(|| format!("the generator was late: {lag:.1} us at p99, more than a tenth of {p99:.1} us"))
}

/// The heads of a table's columns, and a row's cells.
type Columns = (fn() -> Vec<String>, fn(&Row) -> Vec<String>);

/// A row a line, the columns that `workload` is about.
pub fn table(rows: &[Row]) -> String {
    // All rows of a command are of one workload.
    let (head, line): Columns = match rows.first().map_or("", |row| row.workload) {
        "pingpong" => (latency_head, latency_line),
        "durable" => (durable_head, durable_line),
        "backlog" => (backlog_head, backlog_line),
        "churn" | "queues" | "browse" | "idle" => (hold_head, hold_line),
        "open-loop" | "rpc-open" | "fanout" | "consumers-flat" | "selectors" | "topics" | "slow-consumer" => {
            (scene_head, scene_line)
        }
        _ => (rate_head, rate_line),
    };
    let mut lines = vec![head()];
    lines.extend(rows.iter().map(line));
    let is_durable = rows.first().is_some_and(|row| row.workload == "durable");
    if !is_durable && rows.iter().any(|row| row.peer.is_some()) {
        let brokers = std::iter::once("broker").chain(rows.iter().map(|row| row.broker.as_str()));
        lines.iter_mut().zip(brokers).for_each(|(line, broker)| line.insert(1, broker.to_owned()));
    }
    let mut text = align(&lines);
    for row in rows.iter().filter(|row| row.peer.is_some() && row.workload != "durable") {
        let _ = writeln!(
            text,
            "{} {} {}: ours has its rate times {}, its p50 times {}",
            row.broker,
            show_size(row.size),
            row.settle,
            show_ratio(row, row.ratio_peer, row.ratio_peer_min, row.ratio_peer_max),
            show_ratio(row, row.ratio_peer_p50, row.ratio_peer_p50_min, row.ratio_peer_p50_max)
        );
    }
    for row in rows {
        if let Some(reason) = &row.void {
            let broker = row.peer.as_ref().map(|peer| format!("{peer} ")).unwrap_or_default();
            let _ = writeln!(text, "void: {broker}{} {}: {reason}", show_size(row.size), row.settle);
        }
    }
    text
}

fn latency_head() -> Vec<String> {
    let names = ["size", "settle", "connections", "p50 us", "p99", "p99.9", "echo p50", "echo p99"];
    heads(&names, &["p50 in echoes", "p99 in echoes", "p50 in relays", "rounds"])
}

fn latency_line(row: &Row) -> Vec<String> {
    let mut cells = vec![show_size(row.size), row.settle.to_owned(), row.connections.to_string()];
    cells.extend([row.p50_us, row.p99_us, row.p999_us, row.echo_p50_us, row.echo_p99_us].map(show_us));
    cells.push(show_ratio(row, row.ratio_echo, row.ratio_echo_min, row.ratio_echo_max));
    cells.push(show_ratio(row, row.ratio_echo_p99, None, None));
    cells.push(show_ratio(row, row.ratio_relay_p50, None, None));
    cells.push(show_rounds(row));
    cells
}

fn rate_head() -> Vec<String> {
    let names = ["size", "settle", "window", "messages/s", "MB/s", "relay/s"];
    heads(&names, &["in relays", "us/message", "in relays", "busy", "p50 us", "p99", "rounds"])
}

fn rate_line(row: &Row) -> Vec<String> {
    let mb_per_s = row.rate_per_s.map(|rate| rate * row.size as f64 / 1e6);
    vec![
        show_size(row.size),
        row.settle.to_owned(),
        row.window.to_string(),
        show_count(row.rate_per_s),
        show_count(mb_per_s),
        show_count(row.relay_rate_per_s),
        show_ratio(row, row.ratio_relay, row.ratio_relay_min, row.ratio_relay_max),
        show_us(row.broker_cpu_us),
        show_ratio(row, row.ratio_relay_cpu, None, None),
        row.broker_busy.map_or(NONE.to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
        show_us(row.p50_us),
        show_us(row.p99_us),
        show_rounds(row),
    ]
}

fn scene_head() -> Vec<String> {
    let names =
        ["size", "settle", "count", "asked/s", "delivered/s", "p50 us", "p99", "p99.9", "max", "lag p99"];
    heads(
        &names,
        &["rate in base", "CPU in base", "us/message", "busy", "echo p50", "p50 in echoes", "rounds"],
    )
}

fn scene_line(row: &Row) -> Vec<String> {
    let asked: Vec<String> = row.rates_asked.iter().map(|rate| show_count(Some(*rate))).collect();
    let mut cells = vec![show_size(row.size), row.settle.to_owned(), row.count.to_string()];
    cells.push(if asked.is_empty() { NONE.to_owned() } else { asked.join("-") });
    cells.push(show_count(row.rate_per_s));
    cells.extend([row.p50_us, row.p99_us, row.p999_us, row.max_us, row.lag_p99_us].map(show_us));
    cells.push(show_ratio(row, row.ratio_base, row.ratio_base_min, row.ratio_base_max));
    cells.push(show_ratio(row, row.ratio_base_cpu, None, None));
    cells.push(show_us(row.broker_cpu_us));
    cells.push(row.broker_busy.map_or(NONE.to_owned(), |busy| format!("{:.0} %", busy * 100.0)));
    cells.push(show_us(row.echo_p50_us));
    cells.push(show_ratio(row, row.ratio_echo, row.ratio_echo_min, row.ratio_echo_max));
    cells.push(show_rounds(row));
    cells
}

fn hold_head() -> Vec<String> {
    heads(&["what", "count", "per s", "p50 us", "p99", "max"], &["bytes each", "busy", "echo p50", "rounds"])
}

fn hold_line(row: &Row) -> Vec<String> {
    let mut cells = vec![row.churn.unwrap_or(row.workload).to_owned(), row.count.to_string()];
    cells.push(show_count(row.rate_per_s));
    cells.extend([row.p50_us, row.p99_us, row.max_us].map(show_us));
    cells.push(show_count(row.bytes_each));
    cells.push(row.broker_busy.map_or(NONE.to_owned(), |busy| format!("{:.1} %", busy * 100.0)));
    cells.push(show_us(row.echo_p50_us));
    cells.push(show_rounds(row));
    cells
}

fn durable_head() -> Vec<String> {
    let names =
        ["size", "broker", "queues", "depth", "confirms/s", "ours in it", "disk/s", "in disks", "p50 us"];
    heads(
        &names,
        &["p99", "disk p50", "disk p99", "beyond us", "syncs/message", "bytes/byte", "busy", "rounds"],
    )
}

fn durable_line(row: &Row) -> Vec<String> {
    vec![
        show_size(row.size),
        row.broker.clone(),
        row.queues.to_string(),
        row.window.to_string(),
        show_count(row.rate_per_s),
        show_ratio(row, row.ratio_peer, row.ratio_peer_min, row.ratio_peer_max),
        show_count(row.disk_rate_per_s),
        show_ratio(row, row.ratio_disk, row.ratio_disk_min, row.ratio_disk_max),
        show_us(row.p50_us),
        show_us(row.p99_us),
        show_us(row.disk_p50_us),
        show_us(row.disk_p99_us),
        row.beyond_disk_us.map_or(NONE.to_owned(), |us| format!("{us:.1}")),
        row.syncs_per_message.map_or(NONE.to_owned(), |syncs| format!("{syncs:.4}")),
        row.bytes_per_byte.map_or(NONE.to_owned(), |bytes| format!("{bytes:.2}")),
        row.broker_busy.map_or(NONE.to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
        show_rounds(row),
    ]
}

fn backlog_head() -> Vec<String> {
    let names = [
        "size",
        "messages",
        "producers",
        "saturate/s",
        "built/s",
        "in saturates",
        "drained/s",
        "in saturates",
    ];
    heads(&names, &["restart s", "MB/s", "journal B/message", "peak MB built", "drained", "rounds"])
}

fn backlog_line(row: &Row) -> Vec<String> {
    vec![
        show_size(row.size),
        row.messages.map_or(NONE.to_owned(), |messages| messages.to_string()),
        row.producers.to_string(),
        show_count(row.saturate_rate_per_s),
        show_count(row.build_rate_per_s),
        show_ratio(row, row.ratio_saturate_build, None, None),
        show_count(row.drain_rate_per_s),
        show_ratio(row, row.ratio_saturate_drain, None, None),
        row.restart_s.map_or(NONE.to_owned(), |seconds| format!("{seconds:.2}")),
        show_count(row.recovery_mb_per_s),
        row.journal_bytes_per_message.map_or(NONE.to_owned(), |bytes| format!("{bytes:.1}")),
        show_count(row.memory_built_mb),
        show_count(row.memory_drained_mb),
        show_rounds(row),
    ]
}

const NONE: &str = "-";

fn heads(first: &[&str], rest: &[&str]) -> Vec<String> {
    first.iter().chain(rest).map(|name| (*name).to_owned()).collect()
}

pub(crate) fn show_us(us: Option<f64>) -> String {
    match us {
        None => NONE.to_owned(),
        Some(us) if us < 10.0 => format!("{us:.2}"),
        Some(us) if us < 1000.0 => format!("{us:.1}"),
        Some(us) => format!("{us:.0}"),
    }
}

/// With thin groups of three.
pub(crate) fn show_count(count: Option<f64>) -> String {
    let Some(count) = count else { return NONE.to_owned() };
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn show_ratio(row: &Row, median: Option<f64>, min: Option<f64>, max: Option<f64>) -> String {
    match (&row.void, median, min.zip(max)) {
        (Some(_), _, _) => "void".to_owned(),
        (None, None, _) => NONE.to_owned(),
        (None, Some(median), None) => show_factor(median),
        (None, Some(median), Some((min, max))) => {
            format!("{} ({}-{})", show_factor(median), show_factor(min), show_factor(max))
        }
    }
}

/// Small ones with as many digits that say something.
pub(crate) fn show_factor(factor: f64) -> String {
    if factor < 0.1 { format!("{factor:.4}") } else { format!("{factor:.2}") }
}

fn show_rounds(row: &Row) -> String {
    match row.rounds_dropped {
        0 => row.rounds.to_string(),
        dropped => format!("{} of {}, {dropped} disturbed", row.rounds - dropped, row.rounds),
    }
}

/// Columns to the right, but the first two.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut shown = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column > 0 { "  " } else { "" };
            let _ = if column < 2 {
                write!(shown, "{gap}{cell:<width$}")
            } else {
                write!(shown, "{gap}{cell:>width$}")
            };
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
    text
}

/// Three decimals: nanoseconds of a time in microseconds.
fn round(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
