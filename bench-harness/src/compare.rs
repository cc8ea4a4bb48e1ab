//! How does our broker stand beside others? Workloads and others by a file, rounds interleaved, the result as one page.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde::Deserialize;

use crate::cores::Cores;
use crate::disk::Folder;
use crate::error::BenchError;
use crate::options::{Command, CompareOptions, Options, Workload};
use crate::page;
use crate::quantity;
use crate::recipe::{self, Started};
use crate::report::{Row, table};
use crate::run::Bench;

/// The queue that recipes make, and with 1.0 its address where the broker makes it by itself.
const QUEUE: &str = "bench";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Plan {
    title: Option<String>,
    rounds: Option<u32>,
    duration: Option<String>,
    warmup: Option<String>,
    broker_core: Option<usize>,
    generator_core: Option<usize>,
    /// Where brokers keep messages.
    within: Option<PathBuf>,
    corelane: Option<PathBuf>,
    /// Words of a command each: `pingpong --size 100`.
    workloads: Vec<String>,
    #[serde(default)]
    peers: Vec<PeerPlan>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PeerPlan {
    name: String,
    /// The program that starts it, with its arguments; a path that begins with `./` is beside the file.
    recipe: Vec<String>,
}

/// What one workload brought.
pub(crate) struct Part {
    pub(crate) words: String,
    pub(crate) rows: Vec<Row>,
    /// Why there are none.
    pub(crate) failed: Option<String>,
}

/// Everything that the page tells.
pub(crate) struct Comparison {
    pub(crate) title: String,
    pub(crate) parts: Vec<Part>,
    /// Name, version, and what a confirm means there.
    pub(crate) peers: Vec<(String, String, String)>,
    pub(crate) skipped: Vec<(String, String)>,
}

/// Measures all, tells tables, and writes the page.
pub fn run(options: &CompareOptions) -> Result<Vec<Row>, BenchError> {
    let failed = |reason: String| BenchError::Plan { path: options.file.clone(), reason };
    let text = fs::read_to_string(&options.file).map_err(|error| failed(error.to_string()))?;
    let plan: Plan = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let mut workloads = Vec::new();
    for words in &plan.workloads {
        workloads.push((words, workload(&plan, words, options.quiet).map_err(failed)?));
    }
    let folder = options.file.parent().unwrap_or(Path::new("."));
    let (peers, skipped) = start_peers(&plan, folder)?;
    for (name, reason) in &skipped {
        eprintln!("{name} is skipped: {reason}");
    }
    let mut parts = Vec::new();
    for (words, mut workload) in workloads {
        let protocol = workload.common().protocol;
        workload.common_mut().peers = peers.iter().filter_map(|peer| peer.peer(protocol)).collect();
        let part = match measure(&workload) {
            Ok(rows) => Part { words: words.clone(), rows, failed: None },
            Err(error) => Part { words: words.clone(), rows: Vec::new(), failed: Some(error.to_string()) },
        };
        println!("{words}\n{}", part.failed.clone().unwrap_or_else(|| table(&part.rows)));
        parts.push(part);
    }
    let told = |peer: &Started| {
        (peer.name.clone(), peer.said("version").to_owned(), peer.said("confirm").to_owned())
    };
    let title = plan.title.unwrap_or_else(|| "Corelane beside other brokers".to_owned());
    let comparison = Comparison { title, parts, peers: peers.iter().map(told).collect(), skipped };
    let kept = fs::write(&options.html, page::render(&comparison));
    kept.map_err(|error| BenchError::Kept { path: options.html.clone(), error })?;
    if let Some(part) = comparison.parts.iter().find(|part| part.failed.is_some()) {
        let reason = part.failed.clone().unwrap_or_default();
        return Err(failed(format!("{}: {reason}", part.words)));
    }
    Ok(comparison.parts.into_iter().flat_map(|part| part.rows).collect())
}

fn measure(workload: &Workload) -> Result<Vec<Row>, BenchError> {
    let mut bench = Bench::new(workload)?;
    let mut rows = Vec::new();
    for case in workload.cases() {
        rows.extend(bench.rows(&case)?);
    }
    Ok(rows)
}

/// What the words ask for, under the plan's settings; what the words say themselves holds.
fn workload(plan: &Plan, words: &str, quiet: bool) -> Result<Workload, String> {
    let split: Vec<&str> = words.split_whitespace().collect();
    let is_given = |name: &str| split.iter().any(|word| word.split('=').next() == Some(name));
    let options = Options::try_parse_from(std::iter::once("corelane-bench").chain(split.iter().copied()))
        .map_err(|error| format!("in {words:?}: {error}"))?;
    let Command::Workload(mut workload) = options.command else {
        return Err(format!("{words:?} is no workload"));
    };
    match &mut *workload {
        Workload::Durable(durable) if durable.within.is_none() => durable.within.clone_from(&plan.within),
        Workload::Backlog(backlog) if backlog.within.is_none() => backlog.within.clone_from(&plan.within),
        _ => {}
    }
    let common = workload.common_mut();
    let time =
        |text: &Option<String>, or: Duration| text.as_deref().map_or(Ok(or), quantity::duration_or_zero);
    if !is_given("--duration") {
        common.duration = time(&plan.duration, common.duration)?.max(Duration::from_millis(1));
    }
    if !is_given("--warmup") {
        common.warmup = time(&plan.warmup, common.warmup)?;
    }
    if !is_given("--rounds") {
        common.rounds = plan.rounds.unwrap_or(common.rounds).clamp(1, 1000);
    }
    common.broker_core = common.broker_core.or(plan.broker_core);
    common.generator_core = common.generator_core.or(plan.generator_core);
    common.corelane = common.corelane.take().or_else(|| plan.corelane.clone());
    common.queue = QUEUE.to_owned();
    common.quiet |= quiet;
    Ok(*workload)
}

type Skipped = Vec<(String, String)>;

fn start_peers(plan: &Plan, beside: &Path) -> Result<(Vec<Started>, Skipped), BenchError> {
    let cores = Cores::choose(plan.broker_core, plan.generator_core)?;
    recipe::end_with_us().map_err(|error| BenchError::System { doing: "listening to signals", error })?;
    let within = plan.within.clone().unwrap_or_else(std::env::temp_dir);
    let (mut peers, mut skipped) = (Vec::new(), Vec::new());
    for peer in &plan.peers {
        let mut words = peer.recipe.clone();
        if let Some(program) = words.first_mut()
            && program.starts_with("./")
        {
            *program = beside.join(&*program).to_string_lossy().into_owned();
        }
        let folder = Folder::new(&within)?;
        let settings = [
            "--core",
            &cores.broker.to_string(),
            "--within",
            &folder.path().to_string_lossy(),
            "--queue",
            QUEUE,
        ]
        .map(str::to_owned);
        words.extend(settings);
        match Started::start(&peer.name, &words, folder) {
            Ok(started) => peers.push(started),
            Err(reason) => skipped.push((peer.name.clone(), reason)),
        }
    }
    Ok((peers, skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn settings_of_the_file_hold_where_the_words_say_nothing() {
        let plan = plan("rounds = 3\nduration = \"2s\"\nwarmup = \"0\"\nwithin = \"/srv\"\nworkloads = []");
        let options = workload(&plan, "durable --rounds 5 --protocol 0-9-1", true).unwrap();
        let common = options.common();
        assert_eq!(
            (common.rounds, common.duration, common.warmup),
            (5, Duration::from_secs(2), Duration::ZERO)
        );
        let Workload::Durable(durable) = &options else { panic!() };
        assert_eq!(durable.within.as_deref(), Some(Path::new("/srv")));
        assert!(workload(&plan, "weather", true).unwrap_err().contains("weather"));
        assert!(workload(&plan, "compare x.toml", true).is_err());
    }

    #[test]
    fn a_key_that_is_not_known_is_refused() {
        assert!(toml::from_str::<Plan>("workloads = []\nroundz = 3").is_err());
    }
}
