//! `corelane explain`: why does a queue not move? The broker's answer, in sentences.

use std::fmt::Write;

use clap::Args;
use corelane_wire::amqp10::Value;
use serde_json::Value as Json;

use super::DONE;
use super::queue::{OutputArguments, ask};
use super::table::{self, cell, counted, duration, plain};
use crate::client::{Argument, Request};

/// Say why the messages of a queue are, or are not, delivered.
///
/// First what holds for the queue, then for its first message, then for each of its consumers: where it stands, since when
/// and why, and what its filter says about the first message. Consumers whose connections live on another shard are asked
/// about there; one that does not answer is named.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArguments {
    /// The queue
    queue: String,

    /// So many of its consumers
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100)]
    count: u32,

    #[command(flatten)]
    output: OutputArguments,
}

const EXAMPLES: &str = "\
Words:
  available   a consumer could take it          acquired  a consumer holds it and has not settled it
  held        delayed, not available yet        credit    how many messages a client has asked for
  prefetch    how many a queue lets one consumer hold unsettled

Examples:
  corelane explain orders
  corelane explain orders --json | jq -r '.summary'";

/// Asks and prints.
pub(super) fn run(arguments: &ExplainArguments) -> anyhow::Result<u8> {
    let body = vec![("count", Argument::Value(Value::Uint(arguments.count)))];
    let request =
        Request { operation: "EXPLAIN", kind: "queue", name: &arguments.queue, body, ..Request::default() };
    let explained = ask(&arguments.output, &request)?;
    if arguments.output.json {
        table::print_json(&explained)?;
    } else {
        table::print(&in_words(&explained))?;
    }
    Ok(DONE)
}

fn in_words(explained: &Json) -> String {
    let mut text = String::new();
    let number = |key: &str| explained[key].as_u64().unwrap_or_default();
    let _ = writeln!(
        text,
        "Queue {:?} on shard {} has {}: {} available, {} with consumers, {} delayed. It has {}.",
        plain(explained["queue"].as_str().unwrap_or_default()),
        number("shard"),
        counted(number("messages"), "message"),
        number("available"),
        number("acquired"),
        number("held"),
        counted(number("consumer-count"), "consumer"),
    );
    let _ = writeln!(text, "{}", cell(&explained["summary"]));
    if !explained["full"].is_null() {
        let _ = writeln!(text, "{}", cell(&explained["full"]));
    }
    if explained["head"].is_object() {
        text.push('\n');
        text.push_str(&head_words(&explained["head"]));
    }
    let consumers: &[Json] = explained["consumers"].as_array().map_or(&[], Vec::as_slice);
    for consumer in consumers {
        text.push('\n');
        text.push_str(&consumer_words(consumer));
    }
    let left = number("consumer-count").saturating_sub(consumers.len() as u64);
    if left > 0 {
        let _ = writeln!(text, "\n{} more; see them with -n.", counted(left, "consumer"));
    }
    text
}

/// The first available message.
fn head_words(head: &Json) -> String {
    let mut text = format!("The first available message is at place {}", cell(&head["place"]));
    if !head["message-id"].is_null() {
        let _ = write!(text, ", its message-id {}", cell(&head["message-id"]));
    }
    let _ = write!(text, ". It has been in the queue for {}", duration(&head["age-us"]));
    match head["acquired-count"].as_u64() {
        Some(0) | None => {}
        Some(count) => {
            let failed = head["delivery-count"].as_u64().unwrap_or_default();
            let _ = write!(
                text,
                ", was delivered {} and failed {}",
                counted(count, "time"),
                counted(failed, "time")
            );
        }
    }
    text.push('.');
    if let Some(group) = head["group"].as_str() {
        let _ = write!(text, " It is of the group {:?}", plain(group));
        match head["holder"].as_str() {
            Some(holder) => {
                let _ = write!(text, ", which belongs to consumer {}.", plain(holder));
            }
            None => text.push_str(", which belongs to nobody now."),
        }
    }
    if !head["expires-in-us"].is_null() {
        let _ = write!(text, " It expires in {}.", duration(&head["expires-in-us"]));
    }
    text.push('\n');
    text
}

fn consumer_words(consumer: &Json) -> String {
    let mut text = format!("Consumer {}", cell(&consumer["name"]));
    let said = [("link", "link"), ("connection", "connection"), ("container-id", "client"), ("user", "user")];
    for (key, label) in said {
        if !consumer[key].is_null() {
            let _ = write!(text, ", {label} {}", cell(&consumer[key]));
        }
    }
    text.push('\n');
    if !consumer["problem"].is_null() {
        let _ = writeln!(text, "    PROBLEM: {}.", cell(&consumer["problem"]));
    }
    let list = consumer["list"].as_str().unwrap_or_default().replace('-', " ");
    let _ = writeln!(
        text,
        "    {} for {}: {}.",
        plain(&list),
        duration(&consumer["since-us"]),
        cell(&consumer["why"])
    );
    if !consumer["head"].is_null() {
        let _ = writeln!(text, "    As for the first message: {}.", cell(&consumer["head"]));
    }
    let _ = writeln!(
        text,
        "    Credit {}, priority {}, {} unsettled, {} delivered; looks next at place {}, with at most {} for it.",
        cell(&consumer["credit"]),
        cell(&consumer["priority"]),
        cell(&consumer["unsettled"]),
        cell(&consumer["delivered"]),
        cell(&consumer["cursor"]),
        counted(consumer["lag"].as_u64().unwrap_or_default(), "message"),
    );
    if let Some(filter) = consumer["filter"].as_str() {
        let scanning =
            if consumer["scanning"] == Json::Bool(true) { " (still looking through the queue)" } else { "" };
        let _ = writeln!(text, "    Filter: {}{scanning}", plain(filter));
    }
    let groups: Vec<String> = consumer["groups"].as_array().into_iter().flatten().map(group_words).collect();
    if !groups.is_empty() {
        let _ = writeln!(text, "    Groups: {}", groups.join(", "));
    }
    text
}

fn group_words(group: &Json) -> String {
    format!("{} ({} unsettled)", cell(&group["name"]), cell(&group["unsettled"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_reads_like_sentences() {
        let explained = json!({
            "queue": "orders", "shard": 1, "messages": 3, "available": 2, "acquired": 1, "held": 0,
            "consumer-count": 2, "summary": "Nobody takes the first message: of 1 consumer, 1 without credit.",
            "head": {"place": "17", "message-id": "id-1", "age-us": 65_000_000, "acquired-count": 2,
                     "delivery-count": 1, "group": "g", "holder": "1-0-0", "expires-in-us": null},
            "consumers": [{
                "name": "1-0-0", "link": "r", "connection": "0-3", "container-id": null, "user": "alice",
                "list": "not-interested", "since-us": 2_100_000, "why": "its client has given no credit",
                "head": "it would take the first message", "credit": 0, "priority": 0, "unsettled": 1,
                "delivered": 4, "cursor": "17", "lag": 2, "filter": "n > 3", "scanning": true,
                "groups": [{"name": "g", "unsettled": 1}], "problem": "shard 0 does not answer"
            }]
        });
        let expected = "\
Queue \"orders\" on shard 1 has 3 messages: 2 available, 1 with consumers, 0 delayed. It has 2 consumers.
Nobody takes the first message: of 1 consumer, 1 without credit.

The first available message is at place 17, its message-id id-1. It has been in the queue for 65.0 s, was delivered 2 times and failed 1 time. It is of the group \"g\", which belongs to consumer 1-0-0.

Consumer 1-0-0, link r, connection 0-3, user alice
    PROBLEM: shard 0 does not answer.
    not interested for 2.1 s: its client has given no credit.
    As for the first message: it would take the first message.
    Credit 0, priority 0, 1 unsettled, 4 delivered; looks next at place 17, with at most 2 messages for it.
    Filter: n > 3 (still looking through the queue)
    Groups: g (1 unsettled)

1 consumer more; see them with -n.
";
        assert_eq!(in_words(&explained), expected);
    }
}
