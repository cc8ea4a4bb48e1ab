//! What does the command say, and how does it end?

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use corelane_bench::compare;
use corelane_bench::error::BenchError;
use corelane_bench::options::{Command, Options, Workload};
use corelane_bench::report::{Row, table};
use corelane_bench::run::Bench;
use corelane_bench::tune;

fn main() -> ExitCode {
    let options = Options::parse();
    let rows = match &options.command {
        Command::Workload(workload) => measure(workload),
        Command::Compare(options) => compare::run(options),
        Command::Tune(options) => tune::run(options),
    };
    match rows {
        Ok(rows) if rows.iter().all(|row| row.void.is_none()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("corelane-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A JSON row is told as soon as it is measured, a table when all are.
fn measure(workload: &Workload) -> Result<Vec<Row>, BenchError> {
    let mut bench = Bench::new(workload)?;
    let mut rows = Vec::new();
    for case in workload.cases() {
        for row in bench.rows(&case)? {
            if workload.common().json {
                tell(&format!("{}\n", row.json()));
            }
            rows.push(row);
        }
    }
    if !workload.common().json {
        tell(&table(&rows));
    }
    Ok(rows)
}

/// A reader that has gone is no reason to stop.
fn tell(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
