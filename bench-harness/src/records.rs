//! What is kept of a row beside its figures? Its histograms as an .hlog file, and a chart of them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::chart::{Curve, percentiles};
use crate::error::BenchError;
use crate::quantity::show_size;
use crate::report::Row;
use crate::rounds::Verdict;
use crate::sample::Latencies;

/// Writes both into `folder`, if there is one, named after what the row is about.
pub fn keep(folder: Option<&Path>, row: &Row, verdict: &Verdict) -> Result<(), BenchError> {
    let Some(folder) = folder else { return Ok(()) };
    let named = [
        (row.broker.as_str(), &verdict.latencies),
        ("echo", &verdict.echo_latencies),
        ("relay", &verdict.relay_latencies),
        ("disk", &verdict.disk_latencies),
        ("generator-lag", &verdict.lag),
    ];
    let failed = |error: io::Error| BenchError::Kept { path: folder.to_owned(), error };
    fs::create_dir_all(folder).map_err(failed)?;
    let name = name(row);
    let mut log = Vec::new();
    write_log(&mut log, &named).map_err(failed)?;
    fs::write(folder.join(format!("{name}.hlog")), log).map_err(failed)?;
    let curves: Vec<Curve<'_>> = named.iter().map(|(name, latencies)| Curve { name, latencies }).collect();
    match percentiles(&title(row), &curves) {
        Some(svg) => fs::write(folder.join(format!("{name}.svg")), svg).map_err(failed),
        None => Ok(()),
    }
}

/// One interval for each that has anything, in nanoseconds.
fn write_log(out: &mut impl Write, named: &[(&str, &Latencies)]) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("latencies in nanoseconds, a tag for each subject")
        .with_start_time(SystemTime::now())
        .begin_log_with(out, &mut serializer)?;
    for (name, latencies) in named.iter().filter(|(_, latencies)| !latencies.is_empty()) {
        let tag = Tag::new(name);
        log.write_histogram(latencies.histogram(), Duration::ZERO, Duration::ZERO, tag)
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    Ok(())
}

/// Of a file, so of letters that every file system takes.
fn name(row: &Row) -> String {
    let rates: Vec<String> = row.rates_asked.iter().map(|rate| format!("-{rate}")).collect();
    let what = row.churn.map(|churn| format!("-{churn}")).unwrap_or_default();
    let text = format!(
        "{}{what}-{}-{}-{}-{}-w{}-q{}-c{}-n{}{}",
        row.workload,
        row.broker,
        row.protocol,
        row.size,
        row.settle,
        row.window,
        row.queues,
        row.connections,
        row.count,
        rates.concat()
    );
    text.chars().map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' }).collect()
}

fn title(row: &Row) -> String {
    let rates: Vec<String> = row.rates_asked.iter().map(|rate| format!("{rate}/s")).collect();
    format!("{} {} {} {}", row.workload, row.protocol, show_size(row.size), rates.join(", "))
}
