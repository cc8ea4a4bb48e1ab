//! Which room may use which?
//!
//! Every manifest in the tree belongs to a room of the table below. A room's dependencies of all three kinds (normal, build,
//! dev) on other rooms are among those the table allows; where the table closes the list of foreign crates, normal
//! dependencies are among those too. The runtime's crates stand in the root manifest alone.
//!
//! Left out: what code names inside a crate, which `source` looks at.

use crate::{Finding, Rule};
use std::collections::BTreeMap;
use toml::{Table, Value};

struct Room {
    folder: &'static str,
    package: &'static str,
    /// The rooms it may use.
    rooms: &'static [&'static str],
    /// The only foreign crates it may use, where that list is closed.
    crates: Option<&'static [&'static str]>,
}

const ROOMS: &[Room] = &[
    Room {
        folder: "",
        package: "corelane",
        // The command line is an AMQP client, so it needs the protocol; queue decisions stay behind the shard.
        rooms: &[
            "corelane-journal",
            "corelane-mailbox",
            "corelane-protocol",
            "corelane-shard",
            "corelane-wire",
        ],
        crates: None,
    },
    Room {
        folder: "shards/shard",
        package: "corelane-shard",
        rooms: &[
            "corelane-engine",
            "corelane-journal",
            "corelane-mailbox",
            "corelane-protocol",
            "corelane-wire",
        ],
        crates: None,
    },
    Room { folder: "shards/engine", package: "corelane-engine", rooms: &[], crates: None },
    Room { folder: "shards/protocol", package: "corelane-protocol", rooms: &["corelane-wire"], crates: None },
    Room { folder: "shards/wire", package: "corelane-wire", rooms: &[], crates: Some(&["bytes"]) },
    Room {
        folder: "shards/journal",
        package: "corelane-journal",
        rooms: &[],
        crates: Some(&["bytes", "crc-fast", "rkyv"]),
    },
    Room {
        folder: "shards/mailbox",
        package: "corelane-mailbox",
        rooms: &[],
        crates: Some(&["crossbeam-queue", "crossbeam-utils"]),
    },
    Room {
        folder: "shards/sim",
        package: "corelane-sim",
        rooms: &["corelane-journal", "corelane-shard", "corelane-protocol", "corelane-wire"],
        crates: None,
    },
    Room {
        folder: "bench-harness",
        package: "corelane-bench",
        rooms: &["corelane-protocol", "corelane-wire"],
        crates: None,
    },
    Room {
        folder: "scripts/crash",
        package: "corelane-crash",
        rooms: &["corelane-protocol", "corelane-wire"],
        crates: None,
    },
    Room { folder: "scripts/tidy", package: "corelane-tidy", rooms: &[], crates: None },
];

/// Crates that are a door to the world, or a runtime: nothing below `shards/` has one, not even in its tests.
const WORLD: &[&str] = &[
    "async-io",
    "async-std",
    "futures-lite",
    "glommio",
    "io-uring",
    "libc",
    "mio",
    "nix",
    "rustix",
    "smol",
    "socket2",
    "tokio",
];

/// Crates that one room alone may use, with that room's folder.
const RESERVED: &[(&str, &str)] = &[("glommio", ""), ("io-uring", ""), ("rkyv", "shards/journal")];

/// The findings in all manifests among `texts` (pairs of path and text).
pub fn check(texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut manifests = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path == "Cargo.toml" || path.ends_with("/Cargo.toml"))
    {
        match text.parse::<Table>() {
            Ok(manifest) => manifests.push((path.as_str(), manifest)),
            Err(error) => findings.push(finding(path, Rule::Syntax, error.to_string())),
        }
    }
    let renamed = renamed_by_workspace(&manifests);
    for (path, manifest) in &manifests {
        check_manifest(path, manifest, &renamed, &mut findings);
    }
    findings
}

fn check_manifest(
    path: &str,
    manifest: &Table,
    renamed: &BTreeMap<String, String>,
    findings: &mut Vec<Finding>,
) {
    let folder = path.strip_suffix("Cargo.toml").unwrap_or(path).trim_end_matches('/');
    let (room_folder, fuzz) = match folder.strip_suffix("/fuzz") {
        Some(room) => (room, true),
        None => (folder, false),
    };
    let Some(room) = ROOMS.iter().find(|room| room.folder == room_folder) else {
        findings.push(finding(path, Rule::Edge, format!("no room stands at {room_folder:?}")));
        return;
    };
    if !fuzz {
        check_names(path, room, manifest, findings);
    }
    for (kind, name) in dependencies(manifest, renamed) {
        let is_room = name == "corelane" || name.starts_with("corelane-");
        let allowed = room.rooms.contains(&name.as_str()) || (fuzz && name == room.package);
        if is_room && !allowed {
            findings.push(finding(path, Rule::Edge, format!("{} must not use {name}", room.package)));
        }
        let closed = room.crates.is_some_and(|crates| !crates.contains(&name.as_str()));
        if !is_room && closed && kind == Kind::Normal && !fuzz {
            findings.push(finding(
                path,
                Rule::Edge,
                format!("{} must not use the crate {name}", room.package),
            ));
        }
        if room.folder.starts_with("shards/") && WORLD.contains(&name.as_str()) {
            findings.push(finding(path, Rule::Edge, format!("{name} is no crate for a room below shards/")));
        }
        if RESERVED.iter().any(|(reserved, home)| *reserved == name && *home != room.folder) {
            findings.push(finding(path, Rule::Edge, format!("{name} belongs to another room")));
        }
    }
}

fn check_names(path: &str, room: &Room, manifest: &Table, findings: &mut Vec<Finding>) {
    let package = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    if package != Some(room.package) {
        findings.push(finding(path, Rule::Edge, format!("the package here is {}", room.package)));
    }
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    if lints != Some(true) {
        findings.push(finding(path, Rule::Lints, "[lints] workspace = true is missing".to_owned()));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Build,
    Dev,
}

const KINDS: &[(&str, Kind)] =
    &[("dependencies", Kind::Normal), ("build-dependencies", Kind::Build), ("dev-dependencies", Kind::Dev)];

/// Every dependency of a manifest, also those of one target only, by the real name of its package.
fn dependencies(manifest: &Table, renamed: &BTreeMap<String, String>) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets.into_iter().flat_map(|targets| targets.values()).filter_map(Value::as_table);
    for (place, table) in std::iter::once(manifest).chain(per_target).enumerate() {
        for (section, kind) in KINDS {
            // What only a model checker's build takes in is a development dependency, wherever it has to stand.
            let kind = if place > 0 { Kind::Dev } else { *kind };
            for (key, value) in table.get(*section).and_then(Value::as_table).into_iter().flatten() {
                found.push((kind, real_name(key, value, renamed)));
            }
        }
    }
    found
}

fn real_name(key: &str, value: &Value, renamed: &BTreeMap<String, String>) -> String {
    let own = value.get("package").and_then(Value::as_str);
    own.or_else(|| renamed.get(key).map(String::as_str)).unwrap_or(key).to_owned()
}

fn renamed_by_workspace(manifests: &[(&str, Table)]) -> BTreeMap<String, String> {
    let root = manifests.iter().find(|(path, _)| *path == "Cargo.toml").map(|(_, manifest)| manifest);
    let workspace =
        root.and_then(|root| root.get("workspace")).and_then(|workspace| workspace.get("dependencies"));
    let mut renamed = BTreeMap::new();
    for (key, value) in workspace.and_then(Value::as_table).into_iter().flatten() {
        if let Some(name) = value.get("package").and_then(Value::as_str) {
            renamed.insert(key.clone(), name.to_owned());
        }
    }
    renamed
}

fn finding(path: &str, rule: Rule, what: String) -> Finding {
    Finding { path: path.to_owned(), line: 0, rule, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks one manifest beside an empty root and compares what is said of it with `expect`, a part of each finding.
    fn check_one(path: &str, dependencies: &str, expect: &[&str]) {
        let room = ROOMS.iter().find(|room| path == format!("{}/Cargo.toml", room.folder));
        let name = room.map_or("elsewhere", |room| room.package);
        let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{dependencies}\n");
        let root = "[package]\nname = \"corelane\"\n[lints]\nworkspace = true\n[workspace.dependencies]\n\
                    sockets = { package = \"tokio\", version = \"1\" }\n";
        let texts = vec![("Cargo.toml".to_owned(), root.to_owned()), (path.to_owned(), text)];
        let found: Vec<String> = check(&texts).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found:?} does not say {expect:?}");
        }
    }

    #[test]
    fn the_edges_of_the_house_are_allowed() {
        check_one("shards/protocol/Cargo.toml", "[dependencies]\ncorelane-wire.workspace = true", &[]);
        check_one(
            "shards/wire/Cargo.toml",
            "[dependencies]\nbytes = \"1\"\n[dev-dependencies]\nproptest = \"1\"",
            &[],
        );
        check_one("shards/mailbox/Cargo.toml", "[target.'cfg(loom)'.dependencies]\nloom = \"0.7\"", &[]);
        check_one("bench-harness/Cargo.toml", "[dependencies]\ncorelane-protocol.workspace = true", &[]);
    }

    #[test]
    fn the_engine_knows_no_protocol() {
        check_one(
            "shards/engine/Cargo.toml",
            "[dependencies]\ncorelane-wire.workspace = true",
            &["not use corelane-wire"],
        );
        check_one(
            "shards/engine/Cargo.toml",
            "[dev-dependencies]\ncorelane-protocol = { path = \"../protocol\" }",
            &["not use corelane-protocol"],
        );
    }

    #[test]
    fn the_protocol_knows_no_engine() {
        check_one(
            "shards/protocol/Cargo.toml",
            "[dependencies]\nqueues = { package = \"corelane-engine\", path = \"../engine\" }",
            &["not use corelane-engine"],
        );
    }

    #[test]
    fn wire_mailbox_and_journal_have_closed_lists() {
        check_one("shards/wire/Cargo.toml", "[dependencies]\nserde = \"1\"", &["not use the crate serde"]);
        check_one("shards/mailbox/Cargo.toml", "[dependencies]\nslab = \"0.4\"", &["not use the crate slab"]);
        check_one("shards/journal/Cargo.toml", "[dependencies]\nslab = \"0.4\"", &["not use the crate slab"]);
        check_one("shards/journal/Cargo.toml", "[dependencies]\nrkyv = \"0.8\"", &[]);
    }

    #[test]
    fn the_bench_harness_sees_the_broker_from_outside() {
        let both = "[dependencies]\ncorelane-shard.workspace = true\ncorelane-engine.workspace = true";
        check_one("bench-harness/Cargo.toml", both, &["not use corelane-engine", "not use corelane-shard"]);
    }

    #[test]
    fn no_runtime_below_shards() {
        check_one(
            "shards/shard/Cargo.toml",
            "[dependencies]\nsockets.workspace = true",
            &["tokio is no crate"],
        );
        check_one(
            "shards/shard/Cargo.toml",
            "[dev-dependencies]\nglommio = \"0.9\"",
            &["glommio is no crate", "glommio belongs to another"],
        );
    }

    #[test]
    fn reserved_crates_stay_in_their_room() {
        check_one(
            "bench-harness/Cargo.toml",
            "[dependencies]\nio-uring = \"0.7\"",
            &["io-uring belongs to another"],
        );
        check_one("shards/shard/Cargo.toml", "[dependencies]\nrkyv = \"0.8\"", &["rkyv belongs to another"]);
    }

    #[test]
    fn a_room_is_in_the_table_and_takes_the_lints() {
        check_one("shards/cellar/Cargo.toml", "", &["no room stands at \"shards/cellar\""]);
        let bare =
            vec![("shards/wire/Cargo.toml".to_owned(), "[package]\nname = \"corelane-wires\"".to_owned())];
        let rules: Vec<Rule> = check(&bare).iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [Rule::Edge, Rule::Lints]);
    }

    #[test]
    fn a_fuzz_package_uses_its_room() {
        let good = "[dependencies]\nlibfuzzer-sys = \"0.4\"\ncorelane-wire = { path = \"..\" }";
        check_one("shards/wire/fuzz/Cargo.toml", good, &[]);
        let bad = "[dependencies]\ncorelane-shard = { path = \"../../shard\" }";
        check_one("shards/wire/fuzz/Cargo.toml", bad, &["not use corelane-shard"]);
    }

    #[test]
    fn a_broken_manifest_is_said() {
        let broken = vec![("shards/wire/Cargo.toml".to_owned(), "[package".to_owned())];
        assert_eq!(check(&broken)[0].rule, Rule::Syntax);
    }
}
