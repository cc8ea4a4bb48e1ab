//! `corelane queue`: what queues there are, what is in them, and what an operator does about it.
//!
//! Each command is one request, or several of the same kind, to the broker's management node.

use clap::{Args, Subcommand};
use corelane_wire::amqp10::Value;
use serde_json::{Map, Value as Json};

use super::DONE;
use super::message::{BrokerArgument, timeout_us};
use super::table::{self, Table, bytes, cell, counted, duration, plain};
use crate::client::{Argument, Client, ClientError, Manager, Request};

/// Rows asked for at a time.
const PAGE: u32 = 1000;

/// List, show, make, change, empty and delete the queues of a broker.
///
/// A queue has figures (what is in it, what went through it, how long that took) and properties (see `corelane help
/// destinations`). Commands exit with 1 where the broker says no, and say why.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum QueueCommand {
    /// List queues with their figures
    List(ListArguments),
    /// Show all figures and properties of a queue
    Show(NamedArguments),
    /// Make a queue
    Create(CreateArguments),
    /// Change properties of a queue, above what the configuration file says
    ///
    /// They hold until they are taken back (`NAME=`) or the queue is deleted; without a data directory until the broker ends.
    Set(SetArguments),
    /// Look at the messages of a queue, those included that consumers hold
    Peek(PeekArguments),
    /// Move messages to another queue, or copy them, as they stand
    ///
    /// They keep what is left of their time to live (a dead letter has none) and of the delay that their sender asked for, and say
    /// how often they have died. Their places, and the counts of their deliveries, are new. The broker carries it to its end, although
    /// this command is ended or waits no longer (--timeout); its log says then how many messages there were.
    Move(MoveArguments),
    /// Delete the messages of a queue that no consumer holds: all, or some
    ///
    /// The broker carries it to its end, although this command is ended or waits no longer (--timeout); its log says then how many
    /// messages there were.
    Purge(PurgeArguments),
    /// Delete a queue; the links of its consumers end. What they hold goes to its dead-letter, if it has one; all else in it is gone
    Delete(NamedArguments),
}

const EXAMPLES: &str = "\
Examples:
  corelane queue list                                    all queues
  corelane queue list 'orders.*'                         those whose names fit
  corelane queue show orders --json
  corelane queue create orders --set messages-max=100000 --set overflow=block
  corelane queue set orders prefetch=10
  corelane queue set orders redelivery-delay='{ min = \"1s\", multiplier = 2, max = \"1m\" }'
  corelane queue set orders prefetch=                    as the configuration file has it
  corelane queue peek orders -n 5
  corelane queue move failed orders --selector \"colour = 'red'\"
  corelane queue purge orders                            all of them
  corelane queue purge orders --selector \"attempt > 9\"

Why does a queue not move? `corelane explain QUEUE` says.";

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only queues whose names have this in them, or fit it: `*` stands for one word, a last `>` for one or more
    pattern: Option<String>,

    /// Dynamic nodes, too, which clients have for answers, and the queues of subscriptions
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(super) struct NamedArguments {
    /// The queue
    name: String,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(super) struct CreateArguments {
    /// The queue
    name: String,

    /// A property of it; may be given several times
    #[arg(long, value_name = "PROPERTY=VALUE", value_parser = assignment)]
    set: Vec<Assignment>,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(super) struct SetArguments {
    /// The queue
    name: String,

    /// What to change; an empty value takes back what was set before
    #[arg(required = true, value_name = "PROPERTY=VALUE", value_parser = assignment)]
    set: Vec<Assignment>,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(super) struct PeekArguments {
    /// The queue
    name: String,

    /// How many messages
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    count: u32,

    /// Begin at this place
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,

    /// So many bytes of each body
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    body: u32,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct WhichMessages {
    /// Only messages that this JMS selector fits
    #[arg(long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Only the message at this place, as `peek` shows it; may be given several times
    #[arg(long, value_name = "PLACE")]
    place: Vec<String>,

    /// At most so many, the first ones
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct MoveArguments {
    /// The queue they are in
    from: String,

    /// The queue they go to
    to: String,

    #[command(flatten)]
    which: WhichMessages,

    /// Copy them: they stay where they are, too
    #[arg(long)]
    copy: bool,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(super) struct PurgeArguments {
    /// The queue
    name: String,

    #[command(flatten)]
    which: WhichMessages,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Print JSON, for programs
    #[arg(long)]
    pub(super) json: bool,

    /// Wait so many seconds for each answer of the broker
    #[arg(long, value_name = "S", value_parser = timeout_us, default_value = "10")]
    timeout: u64,

    #[command(flatten)]
    pub(super) broker: BrokerArgument,
}

impl OutputArguments {
    /// The way to the management node.
    pub(super) fn manager<'a>(&self, client: &'a mut Client) -> Result<Manager<'a>, ClientError> {
        Ok(client.manage()?.waiting(self.timeout))
    }
}

/// A property and its value.
#[derive(Clone, Debug, PartialEq)]
struct Assignment {
    name: String,
    value: Assigned,
}

#[derive(Clone, Debug, PartialEq)]
enum Assigned {
    /// None where it is empty.
    Text(String),
    Table(Map<String, Json>),
}

fn assignment(text: &str) -> Result<Assignment, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok(Assignment { name: name.to_owned(), value: assigned(value)? })
        }
        Some(_) | None => Err("expected PROPERTY=VALUE, as in prefetch=10".to_owned()),
    }
}

/// A value; what begins with a brace is a table, written as in the configuration file, or as `queue show` has it (JSON).
fn assigned(text: &str) -> Result<Assigned, String> {
    if !text.trim_start().starts_with('{') {
        return Ok(Assigned::Text(text.to_owned()));
    }
    let table = serde_json::from_str(text).ok().or_else(|| {
        let line = text.lines().collect::<Vec<_>>().join(" ");
        let mut file: Map<String, Json> = toml::from_str(&format!("table = {line}")).ok()?;
        match file.remove("table")? {
            Json::Object(table) => Some(table),
            _ => None,
        }
    });
    table.map(Assigned::Table).ok_or_else(|| {
        "not a table; write it as in redelivery-delay='{ min = \"1s\", multiplier = 2, max = \"1m\" }'"
            .to_owned()
    })
}

/// Runs one of them.
pub(super) fn run(command: &QueueCommand) -> anyhow::Result<u8> {
    match command {
        QueueCommand::List(arguments) => list(arguments),
        QueueCommand::Show(arguments) => show(arguments),
        QueueCommand::Create(arguments) => create(arguments),
        QueueCommand::Set(arguments) => set(arguments),
        QueueCommand::Peek(arguments) => peek(arguments),
        QueueCommand::Move(arguments) => move_messages(arguments),
        QueueCommand::Purge(arguments) => purge(arguments),
        QueueCommand::Delete(arguments) => delete(arguments),
    }
}

/// Asks one thing of a broker.
pub(super) fn ask(output: &OutputArguments, request: &Request<'_>) -> anyhow::Result<Json> {
    let mut client = Client::connect(&output.broker.url)?;
    let response = output.manager(&mut client)?.ask(request)?;
    client.close()?;
    Ok(response.body)
}

/// All entities of a kind, an object each.
pub(super) fn query(
    manager: &mut Manager<'_>,
    kind: &str,
    names: &[&str],
    pattern: Option<&str>,
) -> anyhow::Result<Vec<Json>> {
    let mut rows = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let mut properties = vec![("entityType", Value::String(kind)), ("count", Value::Uint(PAGE))];
        properties.extend(pattern.map(|pattern| ("pattern", Value::String(pattern))));
        properties.extend(next.as_deref().map(|next| ("from", Value::String(next))));
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let body = vec![("attributeNames", Argument::Texts(names))];
        let response =
            manager.ask(&Request { operation: "QUERY", properties, body, ..Request::default() })?;
        let columns: Vec<&str> = texts(&response.body["attributeNames"]).collect();
        for row in response.body["results"].as_array().into_iter().flatten() {
            let values = row.as_array().into_iter().flatten();
            let pairs = columns.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.clone()));
            rows.push(Json::Object(pairs.collect::<Map<_, _>>()));
        }
        next = response.next;
        if next.is_none() {
            return Ok(rows);
        }
    }
}

fn texts(list: &Json) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str)
}

fn list(arguments: &ListArguments) -> anyhow::Result<u8> {
    const COLUMNS: &[&str] = &[
        "name",
        "kind",
        "shard",
        "messages",
        "bytes",
        "available",
        "acquired",
        "held",
        "consumers",
        "messages-in",
        "deliveries",
        "oldest-age-us",
    ];
    let mut client = Client::connect(&arguments.output.broker.url)?;
    let names = if arguments.output.json { &[] } else { COLUMNS };
    let mut rows =
        query(&mut arguments.output.manager(&mut client)?, "queue", names, arguments.pattern.as_deref())?;
    client.close()?;
    rows.retain(|row| arguments.all || (row["kind"] != "dynamic" && row["kind"] != "subscription"));
    rows.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    if arguments.output.json {
        table::print_json(&Json::Array(rows))?;
        return Ok(DONE);
    }
    let mut shown = Table::new(&[
        ("QUEUE", false),
        ("MESSAGES", true),
        ("BYTES", true),
        ("AVAILABLE", true),
        ("ACQUIRED", true),
        ("HELD", true),
        ("CONSUMERS", true),
        ("IN", true),
        ("OUT", true),
        ("OLDEST", true),
        ("SHARD", true),
    ]);
    for row in &rows {
        shown.row(vec![
            cell(&row["name"]),
            cell(&row["messages"]),
            bytes(&row["bytes"]),
            cell(&row["available"]),
            cell(&row["acquired"]),
            cell(&row["held"]),
            cell(&row["consumers"]),
            cell(&row["messages-in"]),
            cell(&row["deliveries"]),
            duration(&row["oldest-age-us"]),
            cell(&row["shard"]),
        ]);
    }
    if rows.is_empty() {
        eprintln!("corelane: no queues{}", if arguments.pattern.is_some() { " of such a name" } else { "" });
    } else {
        table::print(&shown.to_text())?;
    }
    Ok(DONE)
}

fn show(arguments: &NamedArguments) -> anyhow::Result<u8> {
    let request = Request { operation: "READ", kind: "queue", name: &arguments.name, ..Request::default() };
    show_queue(&arguments.output, &ask(&arguments.output, &request)?)
}

fn create(arguments: &CreateArguments) -> anyhow::Result<u8> {
    let body = assignments(&arguments.set);
    let request =
        Request { operation: "CREATE", kind: "queue", name: &arguments.name, body, ..Request::default() };
    let made = ask(&arguments.output, &request)?;
    if arguments.output.json { show_queue(&arguments.output, &made) } else { Ok(DONE) }
}

fn set(arguments: &SetArguments) -> anyhow::Result<u8> {
    let body = assignments(&arguments.set);
    let request =
        Request { operation: "UPDATE", kind: "queue", name: &arguments.name, body, ..Request::default() };
    let changed = ask(&arguments.output, &request)?;
    if arguments.output.json { show_queue(&arguments.output, &changed) } else { Ok(DONE) }
}

fn assignments(set: &[Assignment]) -> Vec<(&str, Argument<'_>)> {
    set.iter()
        .map(|Assignment { name, value }| {
            let value = match value {
                Assigned::Text(text) if text.is_empty() => Argument::Value(Value::Null),
                Assigned::Text(text) => Argument::Value(Value::String(text)),
                Assigned::Table(table) => Argument::Table(table.clone()),
            };
            (name.as_str(), value)
        })
        .collect()
}

/// All there is to know of a queue.
fn show_queue(output: &OutputArguments, queue: &Json) -> anyhow::Result<u8> {
    if output.json {
        table::print_json(queue)?;
    } else {
        table::print(&in_groups(queue))?;
    }
    Ok(DONE)
}

/// Figures by what they are about; all else is a property.
const GROUPS: &[(&str, &[&str])] = &[
    ("Queue", &["name", "kind", "shard", "consumers"]),
    (
        "What is in it",
        &["messages", "bytes", "available", "acquired", "held", "pending", "retired", "oldest-age-us"],
    ),
    (
        "What went through it",
        &[
            "messages-in",
            "bytes-in",
            "deliveries",
            "bytes-out",
            "accepted",
            "rejected",
            "returned",
            "expired",
            "exhausted",
            "dropped",
            "replaced",
            "removed",
            "refused",
            "dead-letters-lost",
            "ack-deadlines-missed",
            "wake-ups",
            "wake-ups-per-delivery",
        ],
    ),
    ("How long it took", &["time-in-queue-us", "settle-latency-us"]),
];

/// A line each, under headings.
fn in_groups(queue: &Json) -> String {
    let hidden = |name: &str| matches!(name, "identity" | "type" | "overrides" | "waiting");
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let all = queue.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let properties: Vec<&str> = all.filter(|name| !hidden(name) && !grouped(name)).collect();
    let groups = GROUPS.iter().map(|(title, names)| (*title, *names));
    let mut text = String::new();
    for (title, names) in groups.chain([("Properties", &*properties)]) {
        let mut lines = Table::new(&[("", false), ("", false)]);
        let known: Vec<&&str> = names.iter().filter(|name| !queue[**name].is_null()).collect();
        for name in &known {
            let label = name.strip_suffix("-us").unwrap_or(name);
            lines.row(vec![format!("  {label}"), figure(queue, name)]);
        }
        if !known.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            // The headings of the columns are an empty line.
            text.push_str(&format!("{gap}{title}{}", lines.to_text()));
        }
    }
    text
}

fn figure(queue: &Json, name: &str) -> String {
    let value = &queue[name];
    let text = match (name.strip_suffix("-us"), value) {
        (Some(_), Json::Object(summary)) => times(summary),
        (Some(_), value) => duration(value),
        (None, value) if name.contains("bytes") => bytes(value),
        (None, Json::Number(number)) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or_default())
        }
        (None, value) => cell(value),
    };
    let waits = &queue["waiting"][name];
    if waits.is_object() {
        let value = if waits["value"].is_null() { "none".to_owned() } else { cell(&waits["value"]) };
        return format!("{text}  (waits: {value}, until {})", cell(&waits["until"]));
    }
    match queue["overrides"].get(name) {
        None => text,
        // Flags add up.
        Some(Json::Bool(false)) if *value == Json::Bool(true) => {
            format!(
                "{text}  (a rule of the file sets it; false was set for this queue, and takes nothing back)"
            )
        }
        Some(_) => format!("{text}  (set for this queue)"),
    }
}

fn times(summary: &Map<String, Json>) -> String {
    let at = |key: &str| duration(summary.get(key).unwrap_or(&Json::Null));
    let count = summary.get("count").and_then(Json::as_u64).unwrap_or_default();
    format!("half up to {}, 99 % up to {}, all up to {} (of {count})", at("p50"), at("p99"), at("max"))
}

fn peek(arguments: &PeekArguments) -> anyhow::Result<u8> {
    let mut body = vec![
        ("count", Argument::Value(Value::Uint(arguments.count))),
        ("body", Argument::Value(Value::Uint(arguments.body))),
    ];
    body.extend(arguments.from.as_deref().map(|from| ("from", Argument::Value(Value::String(from)))));
    let request =
        Request { operation: "PEEK", kind: "queue", name: &arguments.name, body, ..Request::default() };
    let peeked = ask(&arguments.output, &request)?;
    if arguments.output.json {
        table::print_json(&peeked)?;
        return Ok(DONE);
    }
    let mut text = String::new();
    for message in peeked["messages"].as_array().into_iter().flatten() {
        text.push_str(&message_lines(message));
    }
    table::print(&text)?;
    if let Some(next) = peeked["next"].as_str() {
        eprintln!("corelane: there are more; go on with --from {}", plain(next));
    }
    Ok(DONE)
}

fn message_lines(message: &Json) -> String {
    let mut line = format!("{}: {}", cell(&message["place"]), cell(&message["state"]));
    if let Some(holder) = message["holder"].as_str() {
        line.push_str(&format!(" by consumer {}", plain(holder)));
    }
    line.push_str(&format!(", {} old, {}", duration(&message["age-us"]), bytes(&message["size"])));
    let known = [("message-id", "id"), ("group-id", "group"), ("subject", "subject")];
    for (key, label) in known {
        if !message[key].is_null() {
            line.push_str(&format!(", {label} {}", cell(&message[key])));
        }
    }
    let counts = [("delivery-count", "failed"), ("acquired-count", "delivered")];
    for (key, label) in counts {
        if let Some(count) = message[key].as_u64().filter(|count| *count > 0) {
            line.push_str(&format!(", {label} {}", counted(count, "time")));
        }
    }
    if !message["expires-in-us"].is_null() {
        line.push_str(&format!(", expires in {}", duration(&message["expires-in-us"])));
    }
    line.push('\n');
    if message["message-annotations"].as_object().is_some_and(|annotations| !annotations.is_empty()) {
        line.push_str(&format!("    annotations {}\n", cell(&message["message-annotations"])));
    }
    if message["application-properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
        line.push_str(&format!("    {}\n", cell(&message["application-properties"])));
    }
    if !message["body"].is_null() {
        let cut = if message["body-cut"] == Json::Bool(true) { " …" } else { "" };
        line.push_str(&format!("    {}{cut}\n", cell(&message["body"])));
    }
    line
}

fn move_messages(arguments: &MoveArguments) -> anyhow::Result<u8> {
    let operation = if arguments.copy { "COPY" } else { "MOVE" };
    let mut body = vec![("to", Argument::Value(Value::String(&arguments.to)))];
    body.extend(arguments.which.body());
    let request = Request { operation, kind: "queue", name: &arguments.from, body, ..Request::default() };
    report(
        &arguments.output,
        if arguments.copy { "copied" } else { "moved" },
        &ask(&arguments.output, &request)?,
    )
}

impl WhichMessages {
    /// As a request says it; nothing: all of them.
    fn body(&self) -> Vec<(&'static str, Argument<'_>)> {
        let mut body = Vec::new();
        body.extend(self.selector.as_deref().map(|text| ("selector", Argument::Value(Value::String(text)))));
        if !self.place.is_empty() {
            body.push(("ids", Argument::Texts(self.place.clone())));
        }
        body.extend(self.count.map(|count| ("count", Argument::Value(Value::Ulong(count)))));
        body
    }
}

fn purge(arguments: &PurgeArguments) -> anyhow::Result<u8> {
    let request = purge_request(arguments);
    report(&arguments.output, "deleted", &ask(&arguments.output, &request)?)
}

/// PURGE deletes all there is, so whoever says which messages asks for something else.
fn purge_request(arguments: &PurgeArguments) -> Request<'_> {
    let body = arguments.which.body();
    let operation = if body.is_empty() { "PURGE" } else { "DELETE-MESSAGES" };
    Request { operation, kind: "queue", name: &arguments.name, body, ..Request::default() }
}

fn delete(arguments: &NamedArguments) -> anyhow::Result<u8> {
    let request = Request { operation: "DELETE", kind: "queue", name: &arguments.name, ..Request::default() };
    ask(&arguments.output, &request)?;
    Ok(DONE)
}

fn report(output: &OutputArguments, done: &str, answer: &Json) -> anyhow::Result<u8> {
    if output.json {
        table::print_json(answer)?;
        return Ok(DONE);
    }
    let count = answer["count"].as_u64().unwrap_or_default();
    table::print(&format!("{done} {}\n", counted(count, "message")))?;
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        purge: PurgeArguments,
    }

    #[test]
    fn purging_some_messages_asks_for_no_more() {
        let cases: [(&[&str], &str, &[&str]); 4] = [
            (&[], "PURGE", &[]),
            (&["--selector", "n = 3"], "DELETE-MESSAGES", &["selector"]),
            (&["-n", "2"], "DELETE-MESSAGES", &["count"]),
            (&["--place", "5", "--count", "2"], "DELETE-MESSAGES", &["ids", "count"]),
        ];
        for (words, operation, keys) in cases {
            let line = ["purge", "orders"].iter().chain(words);
            let line = <Line as clap::Parser>::try_parse_from(line).unwrap();
            let request = purge_request(&line.purge);
            let given: Vec<&str> = request.body.iter().map(|(key, _)| *key).collect();
            assert_eq!((request.operation, request.name, &*given), (operation, "orders", keys), "{words:?}");
        }
    }

    #[test]
    fn a_table_is_written_as_in_the_file_or_as_it_is_shown() {
        let table = json!({"min": "1s", "multiplier": 2, "max": "1m"});
        for text in [
            "d={ min = \"1s\", multiplier = 2, max = \"1m\" }",
            "d={min='1s',\nmultiplier=2,max='1m'}",
            "d={\"min\": \"1s\", \"multiplier\": 2, \"max\": \"1m\"}",
        ] {
            let Assignment { name, value } = assignment(text).unwrap();
            assert_eq!(
                (&*name, &value),
                ("d", &Assigned::Table(table.as_object().unwrap().clone())),
                "{text}"
            );
        }
        assert!(assignment("d={min=1s}").unwrap_err().contains("as in redelivery-delay="));
        assert_eq!(assignment("d=5s").unwrap().value, Assigned::Text("5s".to_owned()));
    }

    #[test]
    fn what_there_is_to_know_of_a_queue_is_grouped() {
        let queue = json!({
            "name": "orders", "identity": "orders", "type": "org.corelane.queue", "kind": "queue", "shard": 1,
            "consumers": 2, "messages": 3, "bytes": 2048, "available": 3, "oldest-age-us": 1500,
            "messages-in": 12, "deliveries": 9, "wake-ups": 6, "wake-ups-per-delivery": 6.0 / 9.0,
            "time-in-queue-us": {"count": 9, "p50": 120, "p99": 900, "max": 1000}, "settle-latency-us": null,
            "prefetch": 10, "exclusive": null, "overflow": "block", "overrides": {"prefetch": 10, "last-value-key": "k", "sticky-groups": false}, "sticky-groups": true,
            "last-value-key": "none", "waiting": {"last-value-key": {"value": "k", "until": "the queue is empty"}},
        });
        let expected = "\
Queue
  name       orders
  kind       queue
  shard      1
  consumers  2

What is in it
  messages    3
  bytes       2.0 KiB
  available   3
  oldest-age  1.5 ms

What went through it
  messages-in            12
  deliveries             9
  wake-ups               6
  wake-ups-per-delivery  0.67

How long it took
  time-in-queue  half up to 120 us, 99 % up to 900 us, all up to 1.0 ms (of 9)

Properties
  last-value-key  none  (waits: k, until the queue is empty)
  overflow        block
  prefetch        10  (set for this queue)
  sticky-groups   true  (a rule of the file sets it; false was set for this queue, and takes nothing back)
";
        assert_eq!(in_groups(&queue), expected);
    }
}
