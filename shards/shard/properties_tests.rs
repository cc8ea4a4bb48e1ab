//! Which values does the table take, and what does it say of the others?

use super::*;

/// A value as it would be written in a file.
fn value(text: &str) -> PropertyValue {
    match text {
        "true" | "false" => PropertyValue::Bool(text == "true"),
        _ if text.starts_with('{') => {
            let members = text.trim_matches(['{', '}', ' ']).split(", ");
            let member = |member: &str| {
                let (name, text) = member.split_once(": ").expect("a member");
                (name.to_owned(), value(text))
            };
            PropertyValue::Table(members.map(member).collect())
        }
        _ => match (text.parse(), text.parse()) {
            (Ok(number), _) => PropertyValue::Integer(number),
            (Err(_), Ok(number)) => PropertyValue::Float(number),
            (Err(_), Err(_)) => PropertyValue::Text(text.to_owned()),
        },
    }
}

/// Sets `name` to the value written so, and reads it back.
#[track_caller]
fn takes(name: &str, text: &str, expect: &str) {
    let mut rule = DestinationRule::default();
    set(&mut rule, name, &value(text)).unwrap_or_else(|error| panic!("{name} = {text}: {error}"));
    let read = find(name).and_then(|property| property.read(&rule)).expect("it is set");
    let read = match read {
        PropertyValue::Table(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            members.join(", ")
        }
        value => value.to_string(),
    };
    assert_eq!(read, expect, "{name} = {text}");
    let silent = PROPERTIES.iter().filter(|property| property.read(&rule).is_none()).count();
    assert_eq!(silent, PROPERTIES.len() - 1, "nothing else is set");
}

#[track_caller]
fn refuses(name: &str, text: &str, parts: &[&str]) {
    let mut rule = DestinationRule::default();
    let error = set(&mut rule, name, &value(text)).expect_err("it is refused").to_string();
    for part in parts {
        assert!(error.contains(part), "{name} = {text}\nlacks {part:?}: {error}");
    }
    assert_eq!(rule, DestinationRule::default(), "{name} = {text} changes nothing");
}

#[test]
fn values_of_every_kind_are_taken() {
    takes("exclusive", "true", "true");
    takes("auto_create", "false", "false");
    takes("consumers-max", "3", "3");
    takes("active-consumers-max", "3", "3");
    takes("consumers_max", "all", "\"all\"");
    takes("prefetch", "none", "\"none\"");
    takes("prefetch", "0", "0");
    takes("prefetch", "100", "100");
    takes("dispatch", "least-outstanding", "\"least-outstanding\"");
    takes("expiration", "1h30m", "\"90m\"");
    takes("expiration", "0", "\"never\"");
    takes("messages-max", "1000", "1000");
    takes("bytes-max", "64KiB", "65536");
    takes("overflow", "drop-oldest", "\"drop-oldest\"");
    takes("dead-letter", "queue://failed", "\"queue://failed\"");
    takes("dead-letter", "topic://failed", "\"topic://failed\"");
    takes("dead-letter", "none", "\"none\"");
    takes("delivery-max", "5", "5");
    takes("redelivery-delay", "5s", "\"5s\"");
    takes("redelivery-delay", "none", "\"none\"");
    takes(
        "redelivery-delay",
        "{ min: 1s, multiplier: 1.5, max: 1m }",
        "min: \"1s\", multiplier: 1.5, max: \"1m\"",
    );
    takes("ack-deadline", "30s", "\"30s\"");
    takes("last-value-key", "symbol", "\"symbol\"");
    takes("idle-expiry", "10m", "\"10m\"");
    takes("shard", "0", "0");
    takes("topic", "true", "true");
}

#[test]
fn a_refusal_names_the_property_the_value_and_what_is_allowed() {
    refuses(
        "prefech",
        "1",
        &["no property \"prefech\"", "did you mean prefetch?", "Properties are exclusive,"],
    );
    refuses("colour", "1", &["no property \"colour\".", "dead-letter"]);
    refuses("exclusive", "1", &["exclusive cannot be 1", "true or false"]);
    refuses("consumers-max", "0.5", &["consumers-max cannot be 0.5", "1 to 1000000"]);
    refuses("prefetch", "70000", &["prefetch: 70000 is out of range", "0 to 65535"]);
    refuses("prefetch", "-1", &["-1 is out of range", "0 to 65535"]);
    refuses("prefetch", "all", &["prefetch cannot be \"all\"", "\"none\", 0 (inherited), or a limit"]);
    refuses("dispatch", "fair", &["dispatch cannot be \"fair\"", "\"round-robin\", \"least-outstanding\""]);
    refuses("expiration", "soon", &["\"soon\": not a duration", "1ms to"]);
    refuses("expiration", "30", &["a duration needs its unit", "30s"]);
    refuses("expiration", "1us", &["1us is out of range", "\"never\""]);
    refuses("bytes-max", "2000TB", &["not a size"]);
    refuses("overflow", "explode", &["\"reject\", \"drop-oldest\", \"block\""]);
    refuses("overflow", "bloc", &["overflow cannot be \"bloc\"", "\"block\""]);
    refuses("overflow", "true", &["overflow cannot be true"]);
    refuses("dead-letter", "a.*", &["dead-letter cannot be \"a.*\"", "a queue's name"]);
    for nowhere in ["/queues/%4", "/queues/a.%2A", "/exchange/a/b", "topic://a.#", "topic://a..b", "queue://"]
    {
        refuses("dead-letter", nowhere, &["dead-letter cannot be", "a queue's name"]);
    }
    for ours in [
        "$management",
        "/queues/%24management",
        "corelane.dynamic.a",
        "queue://corelane.dynamic.a",
        "corelane.subscription.durable.global/a",
        "topic://corelane.dynamic.a",
    ] {
        refuses("dead-letter", ours, &["dead-letter cannot be", "none that only the broker gives"]);
    }
    refuses("deliveries-max", "65536", &["65536 is out of range", "1 to 65535"]);
    refuses("redelivery-delay", "{ min: 2s, max: 1s }", &["min (2s) is more than max (1s)"]);
    refuses("redelivery-delay", "{ min: 2s }", &["needs max"]);
    refuses("redelivery-delay", "{ min: 2s, max: 1m, min: 3s }", &["\"min\" stands twice"]);
    refuses("redelivery-delay", "{ min: 2s, max: 1m, multiplier: 0.5 }", &["0.5", "1 to 100"]);
    refuses("redelivery-delay", "{ least: 2s }", &["no \"least\"", "min, multiplier, max"]);
    refuses("ack-deadline", "1ms", &["1ms is out of range", "10ms to 30d"]);
    refuses("shard", "1024", &["0 to 1023"]);
}

#[test]
fn some_properties_are_not_one_queues_alone() {
    let mut overrides = DestinationRule::default();
    for name in ["shard", "topic", "auto-create"] {
        let error = set_for_queue(&mut overrides, name, &PropertyValue::Bool(true)).expect_err("it is fixed");
        assert!(error.to_string().contains("configuration file"), "{error}");
    }
    set_for_queue(&mut overrides, "exclusive", &PropertyValue::Bool(true)).expect("this one may");
    assert_eq!(overrides.exclusive, Some(true));
}

#[test]
fn the_help_tells_of_every_property_and_of_merging() {
    let help = help();
    for property in PROPERTIES {
        assert!(help.contains(&format!("\n  {}", property.name)), "{}", property.name);
        assert!(help.contains(&property.allowed()), "{}", property.name);
        assert!(property.effect.ends_with('.'), "{} has its sentence", property.name);
    }
    assert!(help.contains("flags add up"));
    for name in
        ["x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-sender", "x-opt-death-path", "x-opt-deaths"]
    {
        assert!(help.contains(name), "{name}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 140), "{help}");
}
