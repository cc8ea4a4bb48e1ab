//! `corelane connections`: who is connected, and away with whom?

use clap::Args;
use serde_json::Value as Json;

use super::DONE;
use super::queue::{OutputArguments, ask, query};
use super::table::{self, Table, bytes, cell, counted, duration};
use crate::client::{Client, Request};

/// List the connections of a broker, or close one.
///
/// A connection keeps its name for its life, also when it moves to another shard.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConnectionsArguments {
    /// Only those whose client's name (container-id) or user has this in it
    pattern: Option<String>,

    /// Close the connection of this name, with amqp:connection:forced
    #[arg(long, value_name = "NAME", conflicts_with = "pattern")]
    close: Option<String>,

    #[command(flatten)]
    output: OutputArguments,
}

const EXAMPLES: &str = "\
Examples:
  corelane connections
  corelane connections worker --json
  corelane connections --close 0-17";

/// Lists them, or closes one.
pub(super) fn run(arguments: &ConnectionsArguments) -> anyhow::Result<u8> {
    if let Some(name) = &arguments.close {
        let request = Request { operation: "DELETE", kind: "connection", name, ..Request::default() };
        ask(&arguments.output, &request)?;
        return Ok(DONE);
    }
    let mut client = Client::connect(&arguments.output.broker.url)?;
    let rows =
        query(&mut arguments.output.manager(&mut client)?, "connection", &[], arguments.pattern.as_deref())?;
    client.close()?;
    if arguments.output.json {
        table::print_json(&Json::Array(rows))?;
        return Ok(DONE);
    }
    let mut shown = Table::new(&[
        ("CONNECTION", false),
        ("CLIENT", false),
        ("USER", false),
        ("FROM", false),
        ("PRODUCERS", true),
        ("CONSUMERS", true),
        ("UNSETTLED", true),
        ("UNSENT", true),
        ("TRANSACTIONS", false),
        ("SHARD", true),
        ("WAITS", false),
    ]);
    for row in &rows {
        shown.row(vec![
            cell(&row["name"]),
            cell(&row["container-id"]),
            cell(&row["user"]),
            cell(&row["peer"]),
            cell(&row["producers"]),
            cell(&row["consumers"]),
            cell(&row["unsettled"]),
            bytes(&row["unsent-bytes"]),
            transactions(row),
            cell(&row["shard"]),
            cell(&row["waits-for"]),
        ]);
    }
    table::print(&shown.to_text())?;
    Ok(DONE)
}

/// How many are open, and what the oldest of them holds.
fn transactions(row: &Json) -> String {
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    let open = number("transactions");
    if open == 0 || row["oldest-transaction-us"].is_null() {
        return if open == 0 { "-".to_owned() } else { open.to_string() };
    }
    let messages = counted(number("oldest-transaction-messages"), "message");
    let outcomes = counted(number("oldest-transaction-outcomes"), "outcome");
    format!("{open}, for {} with {messages}, {outcomes}", duration(&row["oldest-transaction-us"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn transactions_are_told_with_what_the_oldest_holds() {
        let check = |row: Json, expect: &str| assert_eq!(transactions(&row), expect);
        check(json!({}), "-");
        check(json!({"transactions": 0}), "-");
        check(json!({"transactions": 2, "oldest-transaction-us": null}), "2");
        let row = json!({
            "transactions": 2, "oldest-transaction-us": 180_000_000, "oldest-transaction-messages": 1,
            "oldest-transaction-outcomes": 3,
        });
        check(row, "2, for 3 min with 1 message, 3 outcomes");
    }
}
