//! `corelane subscriptions`: who gets what from topics, and how much waits for them?

use clap::Args;
use serde_json::Value as Json;

use super::DONE;
use super::queue::{OutputArguments, ask, query};
use super::table::{self, Table, bytes, cell, duration};
use crate::client::{Client, Request};

/// List the subscriptions of a broker's topics, or end one.
///
/// A subscription is a queue that gets what is published to its topic. By its name the commands `queue peek`, `queue move`, `queue
/// purge`, `queue show`, `queue set` and `explain` work on it, too. Topics themselves are not made: they are there by rules
/// (`topic = true`) and while they have subscriptions.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SubscriptionsArguments {
    /// Only those whose topic or name has this in it, or fits it: `*` stands for one word, a last `>` for one or more
    pattern: Option<String>,

    /// List topics instead, with how many subscriptions each has
    #[arg(long)]
    topics: bool,

    /// End the subscription of this name, with all messages that wait for it; the links of its consumers end
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pattern", "topics"])]
    delete: Option<String>,

    #[command(flatten)]
    output: OutputArguments,
}

const EXAMPLES: &str = "\
Examples:
  corelane subscriptions
  corelane subscriptions news --json
  corelane subscriptions --topics
  corelane subscriptions --delete corelane.subscription.durable.container.app/inbox";

/// Lists them, or ends one.
pub(super) fn run(arguments: &SubscriptionsArguments) -> anyhow::Result<u8> {
    if let Some(name) = &arguments.delete {
        let request = Request { operation: "DELETE", kind: "subscription", name, ..Request::default() };
        ask(&arguments.output, &request)?;
        return Ok(DONE);
    }
    let kind = if arguments.topics { "topic" } else { "subscription" };
    let mut client = Client::connect(&arguments.output.broker.url)?;
    let mut rows =
        query(&mut arguments.output.manager(&mut client)?, kind, &[], arguments.pattern.as_deref())?;
    client.close()?;
    let order = |row: &Json| (row["topic"].to_string(), row["name"].to_string());
    rows.sort_by_key(order);
    if arguments.output.json {
        table::print_json(&Json::Array(rows))?;
    } else if rows.is_empty() {
        eprintln!("corelane: no {kind}s{}", if arguments.pattern.is_some() { " of such a name" } else { "" });
    } else {
        let shown = if arguments.topics { topics_table(&rows) } else { subscriptions_table(&rows) };
        table::print(&shown.to_text())?;
    }
    Ok(DONE)
}

fn subscriptions_table(rows: &[Json]) -> Table {
    let mut shown = Table::new(&[
        ("TOPIC", false),
        ("KIND", false),
        ("CLIENT", false),
        ("SUBSCRIPTION", false),
        ("MESSAGES", true),
        ("BYTES", true),
        ("CONSUMERS", true),
        ("IN", true),
        ("OUT", true),
        ("OLDEST", true),
        ("SHARD", true),
        ("NAME", false),
    ]);
    for row in rows {
        shown.row(vec![
            cell(&row["topic"]),
            cell(&row["kind"]),
            cell(&row["container-id"]),
            cell(&row["subscription"]),
            cell(&row["messages"]),
            bytes(&row["bytes"]),
            cell(&row["consumers"]),
            cell(&row["messages-in"]),
            cell(&row["deliveries"]),
            duration(&row["oldest-age-us"]),
            cell(&row["shard"]),
            cell(&row["name"]),
        ]);
    }
    shown
}

fn topics_table(rows: &[Json]) -> Table {
    let mut shown =
        Table::new(&[("TOPIC", false), ("SUBSCRIPTIONS", true), ("RECEIVERS", true), ("BECAUSE", false)]);
    for row in rows {
        let is = |key: &str| row[key] == Json::Bool(true);
        let because = match (is("temporary"), is("by-rule")) {
            (true, _) => "it is temporary",
            (false, true) => "a rule says so",
            (false, false) => "it has subscriptions",
        };
        shown.row(vec![
            cell(&row["name"]),
            cell(&row["subscriptions"]),
            cell(&row["receivers"]),
            because.to_owned(),
        ]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topics_say_why_they_are_there() {
        let row = |name, by_rule, temporary, receivers: Option<u32>| json!({"name": name, "subscriptions": 1, "receivers": receivers, "by-rule": by_rule, "temporary": temporary});
        let rows = [
            row("news.eu", true, false, Some(3)),
            row("a.*", false, false, None),
            row("t", false, true, Some(1)),
        ];
        let expected = "\
TOPIC    SUBSCRIPTIONS  RECEIVERS  BECAUSE
news.eu              1          3  a rule says so
a.*                  1          -  it has subscriptions
t                    1          1  it is temporary
";
        assert_eq!(topics_table(&rows).to_text(), expected);
    }
}
