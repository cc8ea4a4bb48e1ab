//! What does the command say, and how does it end?

use std::process::ExitCode;

use clap::Parser;
use corelane_crash::Options;
use corelane_crash::run::Run;

fn main() -> ExitCode {
    let options = Options::parse();
    let within = options.within.clone().unwrap_or_else(std::env::temp_dir);
    let folder = match tempfile::Builder::new().prefix("corelane-crash-").tempdir_in(&within) {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("no folder can be made in {}: {error}", within.display());
            return ExitCode::FAILURE;
        }
    };
    let path = folder.path().to_owned();
    let mut run = Run::new(&options, path.clone());
    let faults = run.go();
    println!("{}", run.summary(&faults));
    if options.keep || !faults.is_empty() {
        let _ = folder.keep();
    }
    if options.keep && faults.is_empty() {
        println!("everything is in {}", path.display());
    }
    if faults.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("FAILED with seed {}; everything is in {}", options.seed, path.display());
    ExitCode::FAILURE
}
