//! What does the user want? Commands, their arguments, and what they exit with.
//!
//! Invariants: without a command the command is `serve`; a wrong argument exits with 2 and says what is allowed; a
//! failure exits with 1 and one message that says what failed and what to do; results go to the standard output,
//! everything else to the standard error.
//! Left out: what the commands do (`cli::serve`, `cli::user`, `cli::message`, `cli::queue`, `cli::connections`,
//! `cli::subscriptions`, `cli::explain`, `cli::journal`, `cli::backup`).

mod backup;
mod baseline;
mod connections;
mod exchanges;
mod explain;
mod journal;
mod message;
mod password;
mod queue;
mod serve;
mod subscriptions;
mod table;
mod user;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::control::Signals;

/// The command did what it was asked to.
pub const DONE: u8 = 0;
/// It could not; the message says why.
pub const FAILED: u8 = 1;
/// A wrong argument.
pub const USAGE: u8 = 2;
/// It ran, but not everything came out as asked: messages were not accepted, or did not come in time.
pub const INCOMPLETE: u8 = 3;

/// A message broker for AMQP, one shard for each core.
///
/// Without a command, `corelane` runs the broker: `corelane --shards 2` is `corelane serve --shards 2`.
#[derive(Debug, Parser)]
#[command(name = "corelane", version, arg_required_else_help = false, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArguments>),
    #[command(subcommand)]
    User(user::UserCommand),
    Send(message::SendArguments),
    Receive(message::ReceiveArguments),
    Browse(message::BrowseArguments),
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    Connections(connections::ConnectionsArguments),
    Subscriptions(subscriptions::SubscriptionsArguments),
    Exchanges(exchanges::ExchangesArguments),
    Bindings(exchanges::BindingsArguments),
    Explain(explain::ExplainArguments),
    #[command(subcommand)]
    Journal(journal::JournalCommand),
    Backup(backup::BackupArguments),
    #[command(hide = true)]
    Baseline(baseline::BaselineArguments),
}

const EXAMPLES: &str = "\
Examples:
  corelane                               run a broker for this machine; keeps durable messages in ./corelane-data
  corelane send orders 'a first order'   put a message into the queue `orders`
  corelane browse orders                 look at what is in it
  corelane receive orders                take one message out of it
  corelane queue list                    what queues there are, and what is in them
  corelane subscriptions                 who gets what from topics
  corelane exchanges                     exchanges of AMQP 0-9-1; corelane bindings: where they lead
  corelane explain orders                why its messages are, or are not, delivered
  corelane journal verify corelane-data  whether everything in a data directory can be read
  corelane backup corelane-data TARGET   copy a data directory, while messages flow
  corelane serve --help                  all about running a broker
  corelane help destinations             all properties of queues and topics

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 not all messages were accepted or came in time.";

/// Runs the program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.iter().skip(1).eq(["help", "destinations"]) {
        print!("{}", corelane_shard::properties::help());
        return ExitCode::from(DONE);
    }
    let arguments = with_command(arguments);
    // Before anything that takes its time, the reading of arguments included: a signal that comes while a broker starts asks for the
    // same as later.
    let signals = arguments.get(1).is_some_and(|command| command == "serve").then(Signals::listen);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Help and version come this way, too, with 0.
        Err(error) => error.exit(),
    };
    let result = match cli.command {
        Command::Serve(arguments) => serve::run(*arguments, signals.unwrap_or_else(Signals::listen)),
        Command::User(command) => user::run(command),
        Command::Send(arguments) => message::send(&arguments),
        Command::Receive(arguments) => message::receive(&arguments),
        Command::Browse(arguments) => message::browse(&arguments),
        Command::Queue(command) => queue::run(&command),
        Command::Connections(arguments) => connections::run(&arguments),
        Command::Subscriptions(arguments) => subscriptions::run(&arguments),
        Command::Exchanges(arguments) => exchanges::run(&arguments),
        Command::Bindings(arguments) => exchanges::bindings(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Journal(command) => journal::run(&command),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Baseline(arguments) => baseline::run(&arguments),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("corelane: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

/// The arguments with the command `serve` put in where none is given.
fn with_command(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let first = arguments.get(1).map(|first| first.to_string_lossy().into_owned());
    let is_command = match first.as_deref() {
        Some("-h" | "--help" | "-V" | "--version") => true,
        Some(first) => !first.starts_with('-'),
        None => false,
    };
    if !is_command {
        arguments.insert(1.min(arguments.len()), OsString::from("serve"));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_the_command_when_none_is_given() {
        let check = |line: &str, expected: &str| {
            let arguments = with_command(line.split(' ').map(OsString::from));
            let joined: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
            assert_eq!(joined.join(" "), expected);
        };
        check("corelane", "corelane serve");
        check("corelane --shards 2", "corelane serve --shards 2");
        check("corelane serve --shards 2", "corelane serve --shards 2");
        check("corelane send q", "corelane send q");
        check("corelane --help", "corelane --help");
        check("corelane -V", "corelane -V");
        check("corelane sevre", "corelane sevre");
    }
}
