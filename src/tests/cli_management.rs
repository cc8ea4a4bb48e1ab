//! An operator's commands against a broker, as processes: queues are listed, made, changed, looked into, emptied and explained.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use corelane::client::{Client, Selection};

/// A broker on a port of its own. Killed when dropped.
struct Broker {
    process: Child,
    address: String,
    /// Read no further, but kept open: the broker writes to it.
    _log: BufReader<ChildStderr>,
}

fn corelane() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("corelane"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CORELANE_") {
            command.env_remove(name);
        }
    }
    command
}

impl Broker {
    fn start(shards: &str) -> Broker {
        let mut command = corelane();
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--in-memory",
            "--idle",
            "park",
            "--shards",
            shards,
        ]);
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "the broker ended:\n{seen}");
            seen.push_str(&line);
            if let Some((_, address)) = line.trim().rsplit_once("listening address=") {
                break address.to_owned();
            }
        };
        Broker { process, address, _log: log }
    }

    /// Runs a command against it: exit code, standard output, standard error.
    fn run(&self, line: &[&str]) -> (i32, String, String) {
        let url = format!("amqp://{}", self.address);
        let output = corelane().args(line).args(["--url", &url]).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// Runs a command that does what it is asked to; returns what it prints.
    #[track_caller]
    fn ok(&self, line: &[&str]) -> String {
        let (code, out, error) = self.run(line);
        assert_eq!((code, &*error), (0, ""), "{line:?}: {out}");
        out
    }

    #[track_caller]
    fn fails(&self, line: &[&str], expected: &str) {
        let (code, out, error) = self.run(line);
        assert!(code == 1 && out.is_empty() && error.contains(expected), "{line:?}: {code} {out} {error}");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The words of a line that begins with this one.
fn line_of(text: &str, first: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    text.lines().map(words).find(|words| words.first().is_some_and(|word| word == first)).unwrap_or_default()
}

#[test]
fn an_operators_day() {
    for shards in ["1", "3"] {
        let broker = Broker::start(shards);
        assert_eq!(broker.run(&["queue", "list"]), (0, String::new(), "corelane: no queues\n".to_owned()));
        assert_eq!(
            broker.ok(&[
                "queue",
                "create",
                "orders",
                "--set",
                "messages-max=1000",
                "--set",
                "exclusive=true"
            ]),
            ""
        );
        broker.fails(&["queue", "create", "orders"], "there is a queue \"orders\" already (409)");
        broker.ok(&["send", "orders", "hello", "-n", "5", "--property", "colour=red"]);
        broker.ok(&["send", "orders.eu", "hallo", "-n", "2"]);
        let list = broker.ok(&["queue", "list"]);
        assert_eq!(line_of(&list, "QUEUE")[..2], ["QUEUE", "MESSAGES"]);
        assert_eq!(line_of(&list, "orders")[1], "5");
        assert_eq!(line_of(&list, "orders.eu")[1], "2");
        let only = broker.ok(&["queue", "list", "orders.*"]);
        assert_eq!((line_of(&only, "orders").len(), line_of(&only, "orders.eu")[1].as_str()), (0, "2"));
        let json: serde_json::Value = serde_json::from_str(&broker.ok(&["queue", "list", "--json"])).unwrap();
        assert_eq!((&json[0]["name"], &json[0]["messages-max"]), (&"orders".into(), &1000.into()));

        let shown = broker.ok(&["queue", "show", "orders"]);
        assert_eq!(line_of(&shown, "available"), ["available", "5"]);
        let listed = line_of(&list, "orders");
        assert_eq!(line_of(&shown, "shard").get(1), listed.last(), "{shown}");
        assert_eq!(line_of(&shown, "exclusive"), ["exclusive", "true", "(set", "for", "this", "queue)"]);
        broker.ok(&["queue", "set", "orders", "exclusive=", "prefetch=7"]);
        let json = broker.ok(&["queue", "show", "orders", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["prefetch"], &json["overrides"]["exclusive"]),
            (&7.into(), &serde_json::Value::Null)
        );
        let pinned = &json["pinned-shard"];
        assert_eq!(
            (json["shard"].to_string().as_str(), pinned.is_null()),
            (listed.last().unwrap().as_str(), true)
        );

        let peeked = broker.ok(&["queue", "peek", "orders", "-n", "5"]);
        assert!(
            peeked.starts_with("0: available, ") && peeked.contains("{\"colour\":\"red\"}\n    hello\n"),
            "{peeked}"
        );
        assert_eq!(
            broker.run(&["queue", "peek", "orders", "-n", "2"]).2,
            "corelane: there are more; go on with --from 2\n"
        );
        let one = broker.ok(&["queue", "move", "orders", "done", "--place", "1", "--copy"]);
        assert_eq!(one, "copied 1 message\n");
        let moved =
            broker.ok(&["queue", "move", "orders", "done", "--selector", "colour = 'red'", "-n", "3"]);
        assert_eq!(moved, "moved 3 messages\n");
        assert_eq!(broker.ok(&["queue", "purge", "orders", "--json"]), "{\n  \"count\": 2\n}\n");
        assert_eq!(broker.ok(&["receive", "done", "-n", "4"]), "hello\n".repeat(4));
        assert_eq!(broker.ok(&["queue", "delete", "orders"]), "");
        broker.fails(&["queue", "show", "orders"], "there is no queue \"orders\" (404)");
        broker.fails(&["explain", "orders"], "there is no queue \"orders\" (404)");
        broker.fails(&["queue", "create", "x", "--set", "exclusiv=true"], "did you mean exclusive?");
        broker.fails(&["queue", "set", "orders.eu", "prefetch=many"], "prefetch cannot be \"many\"");
        broker.fails(&["queue", "move", "orders.eu", "done", "--selector", "colour ="], "selector:");
    }
}

#[test]
fn no_command_waits_for_ever() {
    let broker = Broker::start("1");
    broker.ok(&["send", "orders", "hello"]);
    for command in [&["queue", "list"][..], &["explain", "orders"], &["connections"], &["subscriptions"]] {
        let at_once = [command, &["--timeout", "0"]].concat();
        broker.fails(&at_once, "no answer from the management node");
    }
    broker.ok(&["queue", "show", "orders", "--timeout", "60"]);
}

#[test]
fn connections_are_listed_and_closed() {
    let broker = Broker::start("2");
    let url = format!("amqp://{}", broker.address).parse().unwrap();
    let mut client = Client::connect(&url).unwrap();
    let mut receiver = client.receive("orders", &Selection::default()).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&broker.ok(&["connections", "--json"])).unwrap();
    let ours = |row: &&serde_json::Value| row["consumers"] == 1 && row["producers"] == 0;
    let name = rows.as_array().unwrap().iter().find(ours).unwrap()["name"].as_str().unwrap().to_owned();
    let listed = broker.ok(&["connections"]);
    assert!(line_of(&listed, &name)[1].starts_with("corelane-client-"), "{listed}");
    assert_eq!(broker.ok(&["connections", "--close", &name]), "");
    let error = receiver.run(None, |_| Ok::<(), corelane::client::ClientError>(())).unwrap_err().to_string();
    assert!(error.contains("an operator has closed the connection"), "{error}");
    broker.fails(&["connections", "--close", &name], "there is no connection");
}

#[test]
fn subscriptions_are_listed_looked_into_and_ended() {
    for shards in ["1", "3"] {
        let broker = Broker::start(shards);
        let nothing = (0, String::new(), "corelane: no subscriptions\n".to_owned());
        assert_eq!(broker.run(&["subscriptions"]), nothing);
        let url = format!("amqp://{}", broker.address).parse().unwrap();
        let mut client = Client::connect(&url).unwrap();
        let mut receiver = client.receive("topic://news.*", &Selection::default()).unwrap();
        broker.ok(&["send", "topic://news.eu", "hello", "-n", "3"]);
        let json = broker.ok(&["subscriptions", "news", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json[0]["kind"], &json[0]["messages"]), (&"own".into(), &3.into()));
        let name = json[0]["name"].as_str().unwrap().to_owned();
        let listed = broker.ok(&["subscriptions"]);
        let line = line_of(&listed, "news.*");
        assert_eq!((&*line[1], line.last()), ("own", Some(&name)), "{listed}");
        let topics = broker.ok(&["subscriptions", "--topics"]);
        assert_eq!(line_of(&topics, "news.*")[..3], ["news.*", "1", "-"], "{topics}");
        assert_eq!(broker.run(&["queue", "list"]).2, "corelane: no queues\n");
        assert!(broker.ok(&["queue", "list", "--all"]).contains(&name));
        assert!(broker.ok(&["queue", "peek", &name]).contains("\n    hello\n"));
        assert!(broker.ok(&["explain", &name]).contains("1 without credit"));
        assert_eq!(broker.ok(&["queue", "move", &name, "kept", "-n", "1"]), "moved 1 message\n");
        assert_eq!(broker.ok(&["subscriptions", "--delete", &name]), "");
        broker.fails(&["subscriptions", "--delete", &name], "there is no subscription");
        let error = receiver.run(None, |_| Ok::<(), corelane::client::ClientError>(())).unwrap_err();
        assert!(error.to_string().contains("deleted"), "{error}");
    }
}

#[test]
fn explain_reads_like_sentences() {
    let broker = Broker::start("2");
    broker.ok(&["send", "orders", "hello", "-n", "2"]);
    let alone = broker.ok(&["explain", "orders"]);
    assert!(
        alone.contains(" has 2 messages: 2 available, 0 with consumers, 0 delayed. It has 0 consumers.\n"),
        "{alone}"
    );
    assert!(alone.contains("\nNobody consumes this queue.\n"), "{alone}");
    let url = format!("amqp://{}", broker.address).parse().unwrap();
    let mut client = Client::connect(&url).unwrap();
    let selection = Selection { selector: Some("colour = 'blue'".to_owned()), ..Selection::default() };
    let _receiver = client.receive("orders", &selection).unwrap();
    let picky = broker.ok(&["explain", "orders"]);
    let summary = "Nobody takes the first message: of 1 consumer, 1 with a filter that does not match it.";
    assert!(picky.contains(summary), "{picky}");
    assert!(
        picky.contains("As for the first message: its filter does not match the first message."),
        "{picky}"
    );
    assert!(picky.contains("Filter: colour = 'blue'"), "{picky}");
    let json: serde_json::Value = serde_json::from_str(&broker.ok(&["explain", "orders", "--json"])).unwrap();
    assert_eq!(json["summary"], summary);
}

/// A full queue, and those that wait until it has room.
#[test]
fn who_waits_for_room_is_told() {
    let broker = Broker::start("2");
    let full = |name: &str, overflow: &str, count: &str| {
        broker.ok(&["queue", "create", name, "--set", "messages-max=2", "--set", overflow]);
        broker.ok(&["send", name, "x", "-n", count]);
        broker.ok(&["explain", name])
    };
    let refuses = full("strict", "overflow=reject", "2");
    assert!(refuses.contains("\nThe queue is full (messages-max 2); overflow = reject: "), "{refuses}");
    let roomy = full("roomy", "overflow=block", "1");
    assert!(!roomy.contains("full"), "{roomy}");
    let blocks = full("slow", "overflow=block", "2");
    assert!(blocks.contains("overflow = block: 0 producers wait for room.\n"), "{blocks}");
    let url = format!("amqp://{}", broker.address);
    let mut sender = corelane();
    sender.args(["send", "slow", "x", "-n", "9", "--url", &url]).stderr(Stdio::null());
    let mut sender = sender.spawn().unwrap();
    let expected = "The queue is full (messages-max 2); overflow = block: 1 producer waits for room.";
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !broker.ok(&["explain", "slow"]).contains(expected) {
        assert!(std::time::Instant::now() < patience, "{}", broker.ok(&["explain", "slow"]));
    }
    let connections = broker.ok(&["connections"]);
    assert!(
        connections.contains("room in the full queue \"slow\" that link \"send-slow\" sends to"),
        "{connections}"
    );
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// What messages took is the machine's again when they are gone, although nothing else happens.
#[test]
fn memory_is_given_back_when_a_queue_was_emptied() {
    let broker = Broker::start("2");
    let resident = || {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", broker.process.id())).unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    for queue in ["one", "other", "third"] {
        broker.ok(&["send", queue, "-n", "8000", "--size", "10000"]);
    }
    let full = resident();
    assert!(full > 200_000_000, "{full}");
    for queue in ["one", "other", "third"] {
        broker.ok(&["queue", "purge", queue]);
    }
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // Shards keep some buffers for later.
    while resident() > full - 100_000_000 {
        assert!(std::time::Instant::now() < patience, "{full}, then {}", resident());
        std::thread::yield_now();
    }
}

#[test]
fn wrong_arguments_and_unreachable_brokers_are_told() {
    let usage = |line: &[&str]| {
        let output = corelane().args(line).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = usage(&["queue", "set", "orders", "prefetch"]);
    assert!(code == Some(2) && error.contains("expected PROPERTY=VALUE"), "{error}");
    let (code, error) = usage(&["queue", "list", "--url", "amqp://127.0.0.1:1"]);
    assert!(code == Some(1) && error.contains("Is the broker running there?"), "{error}");
    let help = corelane().args(["queue", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for command in ["list", "show", "create", "set", "peek", "move", "purge", "delete"] {
        assert!(!line_of(&help, command).is_empty(), "{command}: {help}");
    }
}
