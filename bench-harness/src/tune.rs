//! Which setting should a user choose? A described load under each idle policy, and in words what each buys.
//!
//! Advised is the policy that takes the least of the core among those whose latency is nearly the best; void rows advise nothing.
//! Left out: numbers of shards and their placement.

use std::fs;

use clap::Parser;

use crate::chart::{Curve, percentiles};
use crate::error::BenchError;
use crate::options::{Command, Options, TuneOptions, Workload};
use crate::report::{Row, table};
use crate::run::Bench;

/// Policies that are tried.
const POLICIES: [&str; 4] =
    ["--idle park", "--idle adaptive --spin-us 20", "--idle adaptive --spin-us 200", "--idle spin"];
/// A median latency so many times the best one's is nearly as good.
const NEARLY: f64 = 1.15;

/// Measures all, tells which to choose, and draws a chart.
pub fn run(options: &TuneOptions) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for policy in POLICIES {
        let workload = workload(options, policy)?;
        let mut bench = Bench::new(&workload)?;
        for case in workload.cases() {
            rows.extend(bench.rows(&case)?);
        }
    }
    let tried: Vec<(&str, &Row)> = POLICIES.iter().copied().zip(&rows).collect();
    for (policy, row) in &tried {
        println!("{policy}\n{}", table(std::slice::from_ref(*row)));
    }
    println!("{}", advice(&tried));
    let curves: Vec<Curve<'_>> = tried
        .iter()
        .map(|(policy, row)| Curve { name: policy.trim_start_matches("--idle "), latencies: &row.latencies })
        .collect();
    if let Some(svg) = percentiles(&format!("idle policies at {} messages/s", options.rate), &curves) {
        let kept = fs::write(&options.chart, svg);
        kept.map_err(|error| BenchError::Kept { path: options.chart.clone(), error })?;
    }
    Ok(rows)
}

fn workload(options: &TuneOptions, policy: &str) -> Result<Workload, BenchError> {
    let words = format!(
        "corelane-bench open-loop --rate {} --size {} --arrivals poisson --settle batch {policy}",
        options.rate, options.size
    );
    let unclear = |reason: String| BenchError::Plan { path: options.chart.clone(), reason };
    let parsed =
        Options::try_parse_from(words.split_whitespace()).map_err(|error| unclear(error.to_string()))?;
    let Command::Workload(mut workload) = parsed.command else {
        return Err(unclear(format!("{words} is no workload")));
    };
    let common = workload.common_mut();
    common.protocol = options.protocol;
    (common.duration, common.rounds, common.quiet) = (options.duration, options.rounds, options.quiet);
    common.corelane.clone_from(&options.corelane);
    Ok(*workload)
}

/// A policy, its median latency, and the share of the core that it takes.
type Tried<'a> = (&'a str, f64, f64);

fn least<'a>(figure: fn(&Tried<'a>) -> f64, among: &[Tried<'a>]) -> Option<Tried<'a>> {
    among.iter().copied().min_by(|one, other| figure(one).total_cmp(&figure(other)))
}

/// What to choose, and what that buys.
fn advice(tried: &[(&str, &Row)]) -> String {
    let good: Vec<Tried<'_>> = tried
        .iter()
        .filter(|(_, row)| row.void.is_none())
        .filter_map(|(policy, row)| Some((*policy, row.p50_us?, row.broker_busy?)))
        .collect();
    let Some(quickest) = least(|tried| tried.1, &good) else {
        return "No advice: no row is good. Is the machine quiet, with a core for the generator alone?"
            .to_owned();
    };
    let near: Vec<Tried<'_>> = good.iter().copied().filter(|tried| tried.1 <= NEARLY * quickest.1).collect();
    let chosen = least(|tried| tried.2, &near).unwrap_or(quickest);
    let thrifty = least(|tried| tried.2, &good).unwrap_or(chosen);
    let told = |(policy, p50, busy): Tried<'_>| {
        format!("`{policy}` (p50 {p50:.1} us, {:.0} % of its core)", busy * 100.0)
    };
    let mut text = format!("Choose {}.", told(chosen));
    if quickest.0 != chosen.0 {
        text.push_str(&format!(" Quickest is {}, by less than is worth its core.", told(quickest)));
    }
    if thrifty.0 != chosen.0 {
        text.push_str(&format!(
            " Where the core is needed for other things, {}: {:.1} times the latency.",
            told(thrifty),
            thrifty.1 / chosen.1
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thriftiest_of_the_nearly_quickest_is_advised() {
        let row = |p50, busy, void: Option<&str>| Row {
            p50_us: Some(p50),
            broker_busy: Some(busy),
            void: void.map(str::to_owned),
            ..Row::default()
        };
        let check = |rows: [Row; 3], expect: &[&str]| {
            let tried: Vec<(&str, &Row)> = ["park", "adaptive", "spin"].into_iter().zip(&rows).collect();
            let text = advice(&tried);
            for expect in expect {
                assert!(text.contains(expect), "{expect:?} is not in {text:?}");
            }
        };
        let rows = [row(30.0, 0.05, None), row(20.5, 0.3, None), row(20.0, 1.0, None)];
        check(rows, &["Choose `adaptive` (p50 20.5 us, 30 %", "Quickest is `spin`", "`park`", "1.5 times"]);
        let rows = [row(30.0, 0.05, None), row(29.0, 0.3, None), row(10.0, 1.0, Some("late"))];
        check(rows, &["Choose `park`", "Quickest is `adaptive`"]);
        let void = || row(1.0, 0.1, Some("late"));
        check([void(), void(), void()], &["No advice"]);
    }
}
