//! `corelane backup`: a copy of a data directory, while messages flow.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::journal::verify;
use super::{DONE, FAILED};
use crate::backup::Asker;
use crate::control::Signals;
use crate::storage::{BackupError, BackupSource, BackupTarget, Bytes, StorageError};

/// Copy a data directory, while messages flow
///
/// The copy is what a crash at one instant would have left, over all shards: everything that was accepted until then is in it, and
/// `corelane serve --data-dir TARGET` starts from it. If a broker uses the directory it waits with its promises until the writes that
/// are on their way are synced, and goes on; it frees none of its files until everything is copied, so it may need more
/// room meanwhile.
///
/// Whoever may use the directory may make a backup of it: the broker is asked through a socket in it. One backup is made at a time.
/// The copy is read again in the end. The exit code is 1 if there is no backup, or if something in it is damaged (as it is in the
/// directory then).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BackupArguments {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Where the copy is made: an empty directory, or one that is to be made
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  corelane backup corelane-data /mnt/backup/monday
  corelane serve --data-dir /mnt/backup/monday";

pub(super) fn run(arguments: &BackupArguments) -> anyhow::Result<u8> {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    let signals = Signals::listen().context("cannot listen to signals")?;
    let target = BackupTarget::make(&arguments.target, &arguments.directory)?;
    let path = target.path().to_owned();
    match Asker::connect(&arguments.directory).context("cannot ask the broker that uses the directory")? {
        Some(asker) => copy_running(arguments, target, asker, &signals)?,
        None => copy_stopped(arguments, target, &signals)?,
    }
    let mut output = BufWriter::new(io::stdout().lock());
    let found = verify(&path, &mut output)?;
    let damage = if found.damaged > 0 { ", with what is damaged in the directory, too" } else { "" };
    writeln!(
        output,
        "{}: {} queues, {} messages, {}{damage}",
        path.display(),
        found.queues,
        found.messages,
        Bytes(found.bytes)
    )?;
    output.flush()?;
    Ok(if found.damaged == 0 { DONE } else { FAILED })
}

/// With the broker that uses the directory.
fn copy_running(
    arguments: &BackupArguments,
    mut target: BackupTarget,
    mut asker: Asker,
    signals: &Signals,
) -> anyhow::Result<()> {
    let shards = BackupSource::shards(&arguments.directory)?;
    let image = asker.begin(shards)?;
    let source = BackupSource::running(&arguments.directory, image)?;
    target.copy(&source, &mut || match asker.is_there() {
        true => check_signals(signals),
        false => Err(BackupError::Stopped("the broker has stopped meanwhile")),
    })?;
    asker.end().context("the backup is not complete, and is deleted")?;
    Ok(target.complete(&source)?)
}

/// Without a broker.
fn copy_stopped(
    arguments: &BackupArguments,
    mut target: BackupTarget,
    signals: &Signals,
) -> anyhow::Result<()> {
    let source = match BackupSource::stopped(&arguments.directory) {
        Err(StorageError::Locked { process, .. }) => {
            let process = process.map_or(String::new(), |process| format!(" (process {process})"));
            anyhow::bail!(
                "{} is in use by a broker{process} that makes no backups now: it is starting or stopping, or has said in its log \
                 why it makes none",
                arguments.directory.display()
            );
        }
        source => source?,
    };
    target.copy(&source, &mut || check_signals(signals))?;
    Ok(target.complete(&source)?)
}

fn check_signals(signals: &Signals) -> Result<(), BackupError> {
    match signals.take_stop() {
        true => Err(BackupError::Stopped("a signal came")),
        false => Ok(()),
    }
}
