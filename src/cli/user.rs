//! `corelane user`: who is in the users file.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::password::read_password;
use super::{DONE, FAILED};
use crate::authenticate::ANONYMOUS_USER;
use crate::users::{self, Grants, Tag, Verifier, prepare_name, prepare_password};

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
    /// List the users' names, and what they may do
    List(ListArguments),
    /// Say what a user may do in a virtual host
    Permit(PermitArguments),
    /// Say what a user is besides, instead of what was said before
    Tag(TagArguments),
}

const EXAMPLES: &str = "\
Examples:
  corelane user add alice --users /etc/corelane/users
      Asks for the password; makes the file if there is none.
  printf %s \"$PASSWORD\" | corelane user add alice --password-stdin --users /etc/corelane/users
  corelane user permit alice --write '^orders$' --read '.*' --users /etc/corelane/users
      Lets alice publish to orders and take messages of all queues in \"/\".
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

/// As long as no user of the file has permissions or tags, all may do everything, in all virtual hosts. From the first ones on each
/// user may do what it is permitted; who has none is let into no virtual host. It counts from a user's next login on.
#[derive(Debug, Args)]
pub(super) struct PermitArguments {
    /// The user's name; `anonymous` for who does not say one
    name: String,

    #[command(flatten)]
    file: FileArgument,

    /// The virtual host
    #[arg(long, default_value = "/")]
    vhost: String,

    /// Names of queues and exchanges that it may declare and delete, as a regular expression; an empty one: none
    #[arg(long, value_name = "RE", default_value = "")]
    configure: String,

    /// Those of exchanges and queues that it may publish to, and bind
    #[arg(long, value_name = "RE", default_value = "")]
    write: String,

    /// Those of queues that it may take messages from, and of exchanges that it may bind to
    #[arg(long, value_name = "RE", default_value = "")]
    read: String,

    /// Take back what it was permitted there: it may not even connect
    #[arg(long, conflicts_with_all = ["configure", "write", "read"])]
    nothing: bool,
}

#[derive(Debug, Args)]
pub(super) struct TagArguments {
    /// The user's name
    name: String,

    #[command(flatten)]
    file: FileArgument,

    /// What it is; none: nothing
    tags: Vec<Tag>,
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
        UserCommand::Permit(arguments) => permit(arguments),
        UserCommand::Tag(arguments) => tag(arguments),
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
        let grants = users.grants(name).cloned().unwrap_or_default();
        for tag in &grants.tags {
            println!("    {}", tag.word());
        }
        for (vhost, [configure, write, read]) in grants.permissions() {
            println!("    {vhost:?}: configure {configure:?}, write {write:?}, read {read:?}");
        }
    }
    Ok(DONE)
}

fn permit(arguments: PermitArguments) -> anyhow::Result<u8> {
    let PermitArguments { name, file, vhost, configure, write, read, nothing } = arguments;
    change_grants(&name, &file, |grants| {
        if nothing {
            grants.forbid(&vhost);
            return Ok(());
        }
        grants.permit(&vhost, [configure, write, read])
    })
}

fn tag(TagArguments { name, file, tags }: TagArguments) -> anyhow::Result<u8> {
    change_grants(&name, &file, |grants| {
        grants.tags = tags.into_iter().collect();
        Ok(())
    })
}

/// Changes what a user may do, who has to be in the file.
fn change_grants(
    name: &str,
    file: &FileArgument,
    change: impl FnOnce(&mut Grants) -> Result<(), String>,
) -> anyhow::Result<u8> {
    let name = prepare_name(name)?;
    let mut result = Err(format!("there is no user {name:?} in {}", file.users.display()));
    users::update(&file.users, |users| {
        if users.verifier(&name).is_some() || name == ANONYMOUS_USER {
            result = users.change_grants(&name, change);
        }
        result.is_ok()
    })?;
    match result {
        Ok(()) => {
            println!("changed {name}");
            Ok(DONE)
        }
        Err(why) => {
            eprintln!("corelane: {why}");
            Ok(FAILED)
        }
    }
}
