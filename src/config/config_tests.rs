//! Which settings come out of which text, and what is said about a wrong one?

use std::path::{Path, PathBuf};

use corelane_shard::properties::PROPERTIES;
use corelane_shard::{DestinationRule, OverflowRule, PrefetchRule, RedeliveryRule};

use super::*;
use crate::storage::{OnDamage, SyncChoice};

/// The layer of a file with this text.
fn layer(text: &str) -> Result<Layer, FileError> {
    Layer::from_text(Path::new("broker.toml"), text)
}

fn settings(text: &str) -> Result<ServeSettings, SettingsError> {
    ServeSettings::new(layer(text).unwrap())
}

#[test]
fn nothing_given_means_loopback_only_and_the_documented_defaults() {
    let settings = settings("").unwrap();
    let addresses: Vec<String> =
        settings.listeners.iter().map(|listener| listener.address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:5672", "[::1]:5672"]);
    assert_eq!(
        settings.listeners.iter().map(|listener| listener.optional).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(settings.idle, IdlePolicy::Adaptive);
    assert_eq!(settings.limits.frame_size_max, 65_536);
    assert_eq!(settings.limits.idle_timeout_us, Some(60_000_000));
    assert_eq!(settings.limits.transaction_timeout_us, Some(300_000_000));
    assert_eq!(settings.limits.message_size_max, 128 << 20);
    assert_eq!(settings.destinations, Destinations::new(Vec::new(), true));
}

#[test]
fn a_file_can_say_everything() {
    let settings = settings(
        r#"
        listen = ["0.0.0.0:5672", "[::]:5672"]
        shards = 4
        cores = "0-2,7"
        idle = "park"
        spin-us = 50
        in-memory = true
        users = "users.txt"
        allow-anonymous = false
        auto-create = false
        max-frame-size = "4KiB"
        idle-timeout = "never"
        transaction-timeout = 0
        max-message-size = 1048576
        log = "debug,json"

        [destinations."orders.>"]
        consumers-max = 3
        prefetch = "none"
        expiration = "1h30m"
        priorities = true
        sticky-groups = true
        auto-create = true

        [destinations."orders.eu"]
        prefetch = 0
        expiration = "never"
        redelivery-delay = { min = "1s", multiplier = 2, max = "1m" }

        [destinations.plain]
        prefetch = 100
        consumers_max = 1
        overflow = "drop-oldest"
        messages-max = 1000
        "#,
    )
    .unwrap();
    assert_eq!(settings.listeners.len(), 2);
    assert_eq!(settings.shards, Some(4));
    assert_eq!(settings.cores, Some(vec![0, 1, 2, 7]));
    assert_eq!(settings.idle, IdlePolicy::Park);
    assert_eq!(settings.spin_us, 50);
    assert_eq!(settings.access.users, Some(PathBuf::from("users.txt")));
    assert_eq!(settings.limits.frame_size_max, 4096);
    assert_eq!(settings.limits.idle_timeout_us, None);
    assert_eq!(settings.limits.transaction_timeout_us, None);
    assert_eq!(settings.limits.message_size_max, 1 << 20);
    assert_eq!(settings.log, LogSettings { filter: "debug".to_owned(), json: true });
    let expected = [
        DestinationRule {
            pattern: "orders.>".to_owned(),
            consumers_max: Some(3),
            prefetch: Some(PrefetchRule::None),
            expiration_us: Some(5_400_000_000),
            priorities: Some(true),
            sticky_groups: Some(true),
            auto_create: Some(true),
            ..DestinationRule::default()
        },
        DestinationRule {
            pattern: "orders.eu".to_owned(),
            prefetch: Some(PrefetchRule::Inherit),
            expiration_us: Some(0),
            redelivery: Some(RedeliveryRule {
                min_us: 1_000_000,
                multiplier_permille: 2000,
                max_us: 60_000_000,
            }),
            ..DestinationRule::default()
        },
        DestinationRule {
            pattern: "plain".to_owned(),
            prefetch: Some(PrefetchRule::Limit(100)),
            consumers_max: Some(1),
            overflow: Some(OverflowRule::DropOldest),
            messages_max: Some(1000),
            ..DestinationRule::default()
        },
    ];
    assert_eq!(settings.destinations, Destinations::new(expected.to_vec(), false));
}

#[test]
fn a_wrong_file_is_told_with_file_place_reason_and_what_is_allowed() {
    let check = |text: &str, expected: &[&str]| {
        let error = layer(text).expect_err(text).to_string();
        for part in ["broker.toml"].iter().chain(expected) {
            assert!(error.contains(part), "{text:?}\nlacks {part:?}:\n{error}");
        }
    };
    check("shard = 4", &["line 1, column 1", "unknown field `shard`", "`shards`", "`idle-timeout`"]);
    let error = layer("shard = 4").expect_err("an unknown key").to_string();
    assert_eq!(error.matches("idle-timeout").count() + error.matches("idle_timeout").count(), 1, "{error}");
    check("\nshards = 0", &["line 2, column 10", "0 is out of range", "1 to 1024"]);
    check("shards = -1", &["line 1", "-1 is out of range", "1 to 1024"]);
    check("shards = \"four\"", &["line 1", "string \"four\"", "a whole number; allowed: 1 to 1024"]);
    check("idle = \"lazy\"", &["line 1", "unknown variant `lazy`", "`park`, `adaptive`, `spin`"]);
    check("max-frame-size = 100", &["100B is out of range", "512B to 16MiB"]);
    check("max-frame-size = \"64 kilo\"", &["64 kilo", "not a size", "64KiB"]);
    check("idle-timeout = 30", &["line 1", "a duration needs its unit", "30s"]);
    check("idle-timeout = \"1ms\"", &["1ms is out of range", "200ms to 1d", "never"]);
    check("transaction-timeout = \"10ms\"", &["10ms is out of range", "1s to 1d", "never"]);
    check("max-message-size = \"2GiB\"", &["2GiB is out of range", "1KiB to 1GiB"]);
    check("listen = \"5672\"", &["\"5672\" is not an address", "127.0.0.1:5672"]);
    check("listen = []", &["the list is empty"]);
    check("cores = \"3-1\"", &["\"3-1\" is not a core", "0-3,6"]);
    check("cores = [1, 1]", &["core 1 is listed twice"]);
    check("log = \"loud\"", &["\"loud\"", "off, error, warn, info, debug, trace"]);
    let in_a = |line: &str, expected: &[&str]| {
        let place = ["line 2", "destination \"a\""];
        let expected: Vec<&str> = place.iter().chain(expected).copied().collect();
        check(&format!("[destinations.a]\n{line}"), &expected);
    };
    in_a("prefech = 1", &["column 1", "no property \"prefech\"; did you mean prefetch?", "dead-letter"]);
    in_a("prefetch = \"all\"", &["column 12", "\"all\"", "\"none\", 0 (inherited), or a limit"]);
    in_a("prefetch = 70000", &["70000 is out of range", "0 to 65535"]);
    in_a("prefetch = [1]", &["prefetch cannot be a list", "0 to 65535"]);
    in_a("consumers-max = -1", &["-1 is out of range", "1 to 1000000"]);
    in_a("expiration = \"soon\"", &["\"soon\"", "not a duration"]);
    in_a("bytes_max = 1.5", &["bytes-max cannot be 1.5", "1B to"]);
    in_a("redelivery-delay = { min = \"2s\", max = \"1s\" }", &["min (2s) is more than max (1s)"]);
    let twice = "[destinations.a]\ndeliveries-max = 1\ndelivery-max = 2";
    check(twice, &["line 3", "destination \"a\"", "deliveries-max is given twice"]);
    check(
        "[destinations.a]\ntopic = true\nexclusive = true",
        &["line 1", "\"a\"", "topic and exclusive", "allowed"],
    );
    check(
        "[destinations.\"a.>\"]\nexclusive = true\n[destinations.\"*.b\"]\nnon-destructive = true",
        &["line ", "\"a.>\"", "\"*.b\"", "for \"a.b\"", "allowed"],
    );
    check(
        "# two\n[destinations.a]\ndead-letter = \"b\"\n[destinations.b]\ndead-letter = \"a\"",
        &["line 2", "circle: a -> b -> a"],
    );
    check("[destinations]\na = 1", &["line 2", "the properties of \"a\""]);
    check("[destinations.\"a..b\"]", &["empty word"]);
    check("[destinations.\"a.b*\"]", &["line 1", "stands for a whole word"]);
    check("[destinations.\"a.#\"]", &["line 1", "wildcard of subscribers", "\">\""]);
    check("[destinations.\"a.>.b\"]", &["line 1", "stands for all words that follow"]);
    check("[destinations.a]\n[destinations.a]", &["line 2", "duplicate key"]);
    check("shards = 1\nshards = 2", &["line 2", "duplicate key"]);
    check("shards 1", &["line 1"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Layer::from_file(Path::new("/nowhere/broker.toml")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/broker.toml"), "{error}");
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn a_users_file_is_looked_for_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, "users = \"users.txt\"").unwrap();
    let layer = Layer::from_file(&file).unwrap();
    assert_eq!(layer.users, Some(folder.path().join("users.txt")));
}

#[test]
fn what_is_given_above_wins_setting_by_setting() {
    let flags = Layer { shards: Some(2), ..Layer::default() };
    let file = layer("shards = 8\nspin-us = 5\n[destinations.a]\nexclusive = true").unwrap();
    let merged = flags.over(file);
    assert_eq!(merged.shards, Some(2));
    assert_eq!(merged.spin_us, Some(5));
    assert_eq!(merged.destinations.rules.len(), 1);
}

#[test]
fn listening_to_the_network_needs_users_or_a_word() {
    let check = |text: &str, allowed: bool| {
        let result = settings(text);
        assert_eq!(result.is_ok(), allowed, "{text:?}: {result:?}");
        result.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let error = check("listen = \"0.0.0.0:5672\"", false);
    for part in ["0.0.0.0:5672", "corelane user add", "--users FILE", "--allow-anonymous"] {
        assert!(error.contains(part), "lacks {part:?}: {error}");
    }
    check("listen = \"[::]:5672\"", false);
    check("listen = \"192.168.1.4:5672\"", false);
    check("listen = [\"127.0.0.1:1\", \"10.0.0.1:1\"]", false);
    check("listen = \"127.8.8.8:5672\"", true);
    check("listen = \"[::1]:5672\"", true);
    check("listen = \"[::ffff:127.0.0.1]:5672\"", true);
    check("listen = \"0.0.0.0:5672\"\nusers = \"users.txt\"", true);
    check("listen = \"0.0.0.0:5672\"\nallow-anonymous = true", true);
    check("listen = [\"127.0.0.1:5672\", \"127.0.0.1:5672\"]", false);
    check("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]", true);
}

#[test]
fn virtual_hosts_are_declared_by_name() {
    let check = |text: &str, expected: Result<&[&str], &str>| match (settings(text), expected) {
        (Ok(settings), Ok(expected)) => {
            let names: Vec<&str> = settings.vhosts.iter().map(|name| &**name).collect();
            assert_eq!(names, expected, "{text:?}");
        }
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "lacks {part:?}: {error}"),
        (got, expected) => panic!("{text:?}: {got:?}, expected {expected:?}"),
    };
    check("", Ok(&[]));
    check("[vhosts.blue]\n[vhosts.\"a/b\"]\n[vhosts.\"/\"]", Ok(&["a/b", "blue"]));
    check("[vhosts.\"\"]", Err("cannot be a virtual host"));
    check("[vhosts.\"a\\u001fb\"]", Err("no control characters"));
}

#[test]
fn logs() {
    let check = |text: &str, expected: Result<(&str, bool), ()>| {
        let got = parse_log(text).map(|log| (log.filter, log.json)).map_err(|_| ());
        assert_eq!(got, expected.map(|(filter, json)| (filter.to_owned(), json)), "{text:?}");
    };
    check("info", Ok(("info", false)));
    check("json", Ok(("info", true)));
    check("debug,json", Ok(("debug", true)));
    check("warn,corelane_shard=trace", Ok(("warn,corelane_shard=trace", false)));
    check("loud", Err(()));
    check("corelane=loud", Err(()));
    check("a=json", Err(()));
}

#[test]
fn cores() {
    let check = |text: &str, expected: &[usize]| assert_eq!(parse_cores(text).unwrap(), expected, "{text:?}");
    check("0", &[0]);
    check("0-3,6", &[0, 1, 2, 3, 6]);
    check("5, 2", &[5, 2]);
    for text in ["", "a", "1-", "-1", "3-1", "0,0", "1,,2", "9999", "0-1-2"] {
        assert!(parse_cores(text).is_err(), "{text:?}");
    }
}

#[test]
fn where_messages_are_kept_is_one_question() {
    for default in ["", "in-memory = false"] {
        let directory = settings(default).unwrap().storage.unwrap().directory;
        assert_eq!(directory, PathBuf::from("corelane-data"), "{default:?}");
    }
    assert_eq!(settings("in-memory = true").unwrap().storage, None);
    let both = "in-memory = true\ndata-dir = \"data\"";
    assert_eq!(settings(both), Err(SettingsError::OnDiskAndInMemory));
    let kept = settings(
        "data-dir = \"data\"\nsync = \"fdatasync\"\non-damage = \"stop\"\nsegment_size = \"1MiB\"\ndisk-free-min = \"1GiB\"",
    );
    let expected = StorageSettings {
        directory: PathBuf::from("data"),
        segment_bytes: Some(1 << 20),
        disk_free_min: 1 << 30,
        sync: SyncChoice::Fdatasync,
        on_damage: OnDamage::Stop,
    };
    assert_eq!(kept.unwrap().storage, Some(expected));
    // What is said above is the answer, whatever is said below.
    let (memory, disk) = (layer("in-memory = true").unwrap(), layer("data-dir = \"data\"").unwrap());
    let over =
        |above: &Layer, below: &Layer| ServeSettings::new(above.clone().over(below.clone())).unwrap().storage;
    assert_eq!(over(&memory, &disk), None);
    assert!(over(&disk, &memory).is_some());
}

/// The larger message is refused then, and who allows it hears what would help.
#[test]
fn a_message_has_to_fit_into_the_memory_of_a_shard() {
    let of = |text: &str| settings(text).unwrap();
    let small = of("memory = \"512MiB\"");
    assert_eq!((small.message_size_max(3), small.size_warning(3)), (128 << 20, None));
    assert_eq!(small.message_size_max(4), 112 << 20);
    let warning = small.size_warning(4).unwrap();
    for part in [
        "more than 112MiB",
        "max-message-size is 128MiB",
        "each of 4 has 128MiB",
        "--memory 586MiB",
        "--max-message-size 112MiB",
    ] {
        assert!(warning.contains(part), "lacks {part:?}: {warning}");
    }
    assert_eq!(of("memory = \"586MiB\"").size_warning(4), None);
    assert_eq!(of("memory = \"512MiB\"\nmax-message-size = \"112MiB\"").size_warning(4), None);
    assert_eq!(of("memory = \"512MiB\"\nmax-message-size = 1234567").size_warning(4), None);
    assert!(of("memory = \"16MiB\"").message_size_max(1024) > 13 << 10);
}

#[test]
fn a_pin_needs_its_shard() {
    let settings = settings("[destinations.a]\nshard = 3").unwrap();
    assert_eq!(settings.check_pins(4), Ok(()));
    let error = settings.check_pins(2).unwrap_err().to_string();
    assert!(error.contains("line 1: destination \"a\"") && error.contains("0 to 1"), "{error}");
}

/// What the README says of destinations: an example that holds, and the names of all properties, in order.
#[test]
fn the_readme_knows_the_table() {
    let readme = include_str!("../../README.md");
    let section = readme.split("## Destinations").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let example = section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let rules = layer(example).unwrap().destinations.rules;
    assert!(rules.len() > 1);
    assert!(section.contains("`corelane help destinations`"));
    let (_, list) = section.split_once("Properties: ").unwrap();
    let list = list.split(".\n").next().unwrap().replace('\n', " ");
    let listed: Vec<&str> = list.split(", ").map(|name| name.trim_matches('`')).collect();
    let names: Vec<&str> = PROPERTIES.iter().map(|property| property.name).collect();
    assert_eq!(listed, names);
}

#[test]
fn a_rule_for_an_address_or_for_no_name_is_refused() {
    let long = "x".repeat(1025);
    for pattern in ["queue://a", "topic://a", "/queues/a", "/topics/a", "a\\u0001b", &long] {
        let error = layer(&format!("[destinations.\"{pattern}\"]\nprefetch = 1")).unwrap_err().to_string();
        assert!(error.contains("is no name; a name has 1 to 1024 bytes"), "{error}");
        assert!(error.contains("line 1"), "{error}");
    }
    assert!(layer("[destinations.\"a/b://c\"]\nprefetch = 1").is_ok());
}
