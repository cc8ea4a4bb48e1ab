//! `corelane exchanges` and `corelane bindings`: what leads to which queues, as clients of AMQP 0-9-1 have declared it?

use clap::Args;
use serde_json::Value as Json;

use super::DONE;
use super::queue::{OutputArguments, ask, query};
use super::table::{self, Table, cell};
use crate::client::{Client, Request};

/// List the exchanges of a broker: those that are always there, and those that clients of AMQP 0-9-1 have declared; or delete one.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  corelane exchanges\n  corelane exchanges orders --json\n  corelane exchanges --delete orders"
)]
pub(super) struct ExchangesArguments {
    /// Only those whose name has this in it, or fits it: `*` stands for one word, a last `>` for one or more
    pattern: Option<String>,

    /// Delete the exchange of this name, with all that is bound to it; queues stay
    #[arg(long, value_name = "NAME", conflicts_with = "pattern")]
    delete: Option<String>,

    #[command(flatten)]
    output: OutputArguments,
}

/// List what is bound to the exchanges of a broker: queues, and other exchanges.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  corelane bindings\n  corelane bindings amq.topic --json")]
pub(super) struct BindingsArguments {
    /// Only those whose exchange, or what they lead to, has this in its name, or fits it: `*` stands for one word, a last `>` for one
    /// or more
    pattern: Option<String>,

    #[command(flatten)]
    output: OutputArguments,
}

pub(super) fn run(arguments: &ExchangesArguments) -> anyhow::Result<u8> {
    if let Some(name) = &arguments.delete {
        let request = Request { operation: "DELETE", kind: "exchange", name, ..Request::default() };
        ask(&arguments.output, &request)?;
        return Ok(DONE);
    }
    let columns =
        [("EXCHANGE", "name"), ("TYPE", "exchange-type"), ("DURABLE", "durable"), ("INTERNAL", "internal")];
    list(&arguments.output, "exchange", arguments.pattern.as_deref(), &columns)
}

pub(super) fn bindings(arguments: &BindingsArguments) -> anyhow::Result<u8> {
    let columns = [
        ("FROM", "source"),
        ("KEY", "routing-key"),
        ("TO", "destination"),
        ("KIND", "destination-type"),
        ("DURABLE", "durable"),
    ];
    list(&arguments.output, "binding", arguments.pattern.as_deref(), &columns)
}

fn list(
    output: &OutputArguments,
    kind: &str,
    pattern: Option<&str>,
    columns: &[(&'static str, &str)],
) -> anyhow::Result<u8> {
    let mut client = Client::connect(&output.broker.url)?;
    let mut rows = query(&mut output.manager(&mut client)?, kind, &[], pattern)?;
    client.close()?;
    rows.sort_by_key(|row| columns.iter().map(|(_, name)| row[*name].to_string()).collect::<Vec<_>>());
    if output.json {
        table::print_json(&Json::Array(rows))?;
    } else if rows.is_empty() {
        eprintln!("corelane: no {kind}s{}", if pattern.is_some() { " of such a name" } else { "" });
    } else {
        table::print(&shown(&rows, columns).to_text())?;
    }
    Ok(DONE)
}

fn shown(rows: &[Json], columns: &[(&'static str, &str)]) -> Table {
    let heads: Vec<(&str, bool)> = columns.iter().map(|(head, _)| (*head, false)).collect();
    let mut shown = Table::new(&heads);
    for row in rows {
        shown.row(columns.iter().map(|(_, name)| cell(&row[*name])).collect());
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_row_is_a_line_below_the_names_of_its_columns() {
        let rows = [json!({"source": "news", "routing-key": "eu.#", "destination": "inbox"})];
        let columns = [("FROM", "source"), ("KEY", "routing-key"), ("TO", "destination")];
        let text = shown(&rows, &columns).to_text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["FROM", "KEY", "TO"], ["news", "eu.#", "inbox"]]);
    }
}
