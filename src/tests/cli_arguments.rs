//! What does the command line say to right and wrong arguments, and which of several settings wins?
#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

use assert_cmd::Command;

/// The program, with nothing of ours in its environment.
fn corelane() -> Command {
    let mut command = Command::cargo_bin("corelane").expect("cargo builds the program for its tests");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CORELANE_") {
            command.env_remove(name);
        }
    }
    command.timeout(std::time::Duration::from_secs(60));
    command
}

/// Runs it with these arguments: exit code, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    outcome(corelane().args(arguments))
}

fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn help_teaches_with_examples() {
    let check = |arguments: &[&str], parts: &[&str]| {
        let (code, output, error) = run(arguments);
        assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
        contains(&output, parts);
    };
    check(&["--help"], &["serve", "user", "send", "receive", "browse", "Examples:", "Exit codes:"]);
    check(&["serve", "-h"], &["--listen", "--shards", "--idle", "CORELANE_SHARDS", "Examples:"]);
    check(&["serve", "-h"], &["default: corelane-data", "corelane serve --in-memory"]);
    check(&["serve", "--help"], &["Configuration file:", "[destinations.", "SIGTERM", "prefetch"]);
    check(&["user", "--help"], &["add", "remove", "list", "--password-stdin"]);
    check(&["send", "--help"], &["--size", "--url", "Examples:", "Exits with 3"]);
    check(&["receive", "--help"], &["--timeout", "--selector", "Examples:", "Exits with 3"]);
    check(&["browse", "--help"], &["Examples:"]);
    check(&["--version"], &["corelane "]);
}

#[test]
fn wrong_arguments_exit_with_2_and_say_what_is_allowed() {
    let check = |arguments: &[&str], parts: &[&str]| {
        let (code, output, error) = run(arguments);
        assert_eq!((code, output.as_str()), (2, ""), "{arguments:?}: {error}");
        contains(&error, parts);
    };
    check(&["--shards", "0"], &["'--shards <N>'", "0 is out of range; allowed: 1 to 1024"]);
    check(&["serve", "--shards", "many"], &["not a whole number; allowed: 1 to 1024"]);
    check(&["--listen", "5672"], &["\"5672\" is not an address", "127.0.0.1:5672"]);
    check(&["--cores", "3-1"], &["\"3-1\" is not a core", "0-3,6"]);
    check(&["--idle", "lazy"], &["park, adaptive, spin"]);
    check(&["--max-frame-size", "100"], &["100B is out of range; allowed: 512B to 16MiB"]);
    check(&["--max-frame-size", "64 stone"], &["not a size"]);
    check(&["--idle-timeout", "30"], &["a duration needs its unit"]);
    check(&["--log", "loud"], &["off, error, warn, info, debug, trace"]);
    check(&["--shard", "1"], &["--shard", "--shards"]);
    check(&["sevre"], &["unrecognized subcommand 'sevre'", "serve"]);
    check(&["user", "add", "alice"], &["--users <FILE>"]);
    check(&["send"], &["<ADDRESS>"]);
    check(&["send", "q", "text", "--size", "10"], &["--size"]);
    check(&["send", "q", "--url", "amqps://h"], &["amqps is not spoken yet"]);
    check(&["send", "q", "--priority", "12"], &["0..=9"]);
    check(&["send", "q", "--property", "red"], &["NAME=VALUE"]);
    check(&["receive", "q", "--timeout", "soon"], &["not a duration"]);
}

#[test]
fn a_network_address_without_users_is_refused_with_what_to_do() {
    let check = |arguments: &[&str]| {
        let (code, _, error) = run(arguments);
        assert_eq!(code, 1, "{arguments:?}: {error}");
        contains(
            &error,
            &["refusing to listen on", "corelane user add", "--users FILE", "--allow-anonymous"],
        );
    };
    check(&["serve", "--in-memory", "--listen", "0.0.0.0:0"]);
    check(&["--in-memory", "--listen", "127.0.0.1:0", "--listen", "[::]:0"]);
    check(&["--in-memory", "--listen", "127.0.0.1:0,192.0.2.1:0"]);
    check(&["--in-memory", "--listen", "0.0.0.0:0", "--allow-anonymous=false"]);
}

#[test]
fn a_broken_configuration_is_told_with_file_place_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    let check = |text: &str, parts: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let (code, _, error) = outcome(corelane().args(["--in-memory", "--config"]).arg(&file));
        assert_eq!(code, 1, "{text:?}: {error}");
        contains(&error, &["broker.toml"]);
        contains(&error, parts);
    };
    check("shard = 2", &["line 1", "unknown field `shard`", "`shards`"]);
    check("shards = 0", &["line 1", "0 is out of range; allowed: 1 to 1024"]);
    check(
        "\n[destinations.q]\nprefech = 1",
        &["line 3", "no property \"prefech\"", "did you mean prefetch?"],
    );
    let (code, _, error) = run(&["--in-memory", "--config", "/nowhere/broker.toml"]);
    assert_eq!(code, 1);
    contains(&error, &["/nowhere/broker.toml", "No such file"]);
}

/// Each layer asks for another address that is refused, so the message tells which layer won.
#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "listen = \"192.0.2.1:1003\"").unwrap();
    let check = |flag: bool, variable: bool, expected: &str| {
        let mut command = corelane();
        command.args(["serve", "--in-memory", "--config"]).arg(&file);
        if flag {
            command.args(["--listen", "192.0.2.1:1001"]);
        }
        if variable {
            command.env("CORELANE_LISTEN", "192.0.2.1:1002");
        }
        let (code, _, error) = outcome(&mut command);
        assert_eq!(code, 1);
        contains(&error, &[&format!("refusing to listen on 192.0.2.1:{expected}:")]);
    };
    check(true, true, "1001");
    check(true, false, "1001");
    check(false, true, "1002");
    check(false, false, "1003");
}

#[test]
fn the_configuration_file_may_come_from_the_environment() {
    let (code, _, error) =
        outcome(corelane().arg("--in-memory").env("CORELANE_CONFIG", "/nowhere/broker.toml"));
    assert_eq!(code, 1);
    contains(&error, &["/nowhere/broker.toml"]);
}

#[test]
fn a_users_file_that_is_missing_or_broken_ends_the_start() {
    let (code, _, error) =
        run(&["serve", "--listen", "127.0.0.1:0", "--in-memory", "--users", "/nowhere/users"]);
    assert_eq!(code, 1);
    contains(&error, &["/nowhere/users does not exist", "corelane user add NAME --users /nowhere/users"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "\nalice secret\n").unwrap();
    let mut command = corelane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--in-memory", "--users"]).arg(&file);
    let (code, _, error) = outcome(&mut command);
    assert_eq!(code, 1);
    contains(&error, &["users:2: ", "SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY"]);
}

#[test]
fn a_broker_that_is_not_there_is_told_with_what_to_do() {
    for command in ["send", "receive", "browse"] {
        let (code, _, error) = run(&[command, "orders", "--url", "amqp://127.0.0.1:1"]);
        assert_eq!(code, 1, "{command}");
        contains(&error, &["cannot connect to 127.0.0.1:1", "corelane serve", "--url"]);
    }
}
