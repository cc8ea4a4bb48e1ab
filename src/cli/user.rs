//! `corelane user`: who is in the users file.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::password::read_password;
use super::{DONE, FAILED};
use crate::users::{self, Verifier, prepare_name, prepare_password};

/// Add, remove and list the users of a file.
///
/// The file holds a verifier for each user (SCRAM-SHA-256), from which nobody can read a password. A broker that runs
/// with the file sees a change within seconds.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum UserCommand {
    /// Add a user, or give a new password to one
    Add(AddArguments),
    /// Remove a user
    Remove(RemoveArguments),
    /// List the users' names
    List(ListArguments),
}

const EXAMPLES: &str = "\
Examples:
  corelane user add alice --users /etc/corelane/users
      Asks for the password; makes the file if there is none.
  printf %s \"$PASSWORD\" | corelane user add alice --password-stdin --users /etc/corelane/users
  corelane user list --users /etc/corelane/users";

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// The user's name
    name: String,

    #[command(flatten)]
    file: FileArgument,

    /// Read the password from the standard input, up to its first line's end
    #[arg(long)]
    password_stdin: bool,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// The user's name
    name: String,

    #[command(flatten)]
    file: FileArgument,
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    file: FileArgument,
}

#[derive(Debug, Args)]
struct FileArgument {
    /// The users file
    #[arg(long, value_name = "FILE", env = "CORELANE_USERS")]
    users: PathBuf,
}

/// Carries out a command on a users file.
pub(super) fn run(command: UserCommand) -> anyhow::Result<u8> {
    match command {
        UserCommand::Add(arguments) => add(&arguments),
        UserCommand::Remove(arguments) => remove(&arguments),
        UserCommand::List(arguments) => list(&arguments),
    }
}

fn add(arguments: &AddArguments) -> anyhow::Result<u8> {
    let name = prepare_name(&arguments.name)?;
    let password = prepare_password(&read_password(&name, arguments.password_stdin)?)?;
    let verifier = Verifier::with_random_salt(&password, users::ITERATIONS)?;
    let mut known = false;
    users::update(&arguments.file.users, |users| {
        known = users.insert(name.clone(), verifier);
        true
    })?;
    println!("{} {name}", if known { "changed" } else { "added" });
    Ok(DONE)
}

fn remove(arguments: &RemoveArguments) -> anyhow::Result<u8> {
    let name = prepare_name(&arguments.name)?;
    let mut known = false;
    users::update(&arguments.file.users, |users| {
        known = users.remove(&name);
        known
    })?;
    if !known {
        eprintln!(
            "corelane: there is no user {name:?} in {0}; `corelane user list --users {0}` lists them",
            arguments.file.users.display()
        );
        return Ok(FAILED);
    }
    println!("removed {name}");
    Ok(DONE)
}

fn list(arguments: &ListArguments) -> anyhow::Result<u8> {
    let (users, _) = users::load(&arguments.file.users)?;
    for name in users.names() {
        println!("{name}");
    }
    Ok(DONE)
}
