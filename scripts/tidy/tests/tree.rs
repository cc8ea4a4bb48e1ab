//! Does the tree keep its own rules?

use std::path::Path;

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let findings = corelane_tidy::check(&root).expect("the tree can be read");
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn the_walk_sees_every_kind_of_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = corelane_tidy::files(&root).expect("the tree can be read");
    for path in
        ["Cargo.toml", "src/main.rs", "shards/engine/lib.rs", "scripts/tidy/tests/tree.rs", "scripts/test"]
    {
        assert!(files.iter().any(|file| file == path), "{path} is missing");
    }
    assert!(!files.iter().any(|file| file.contains("/target/") || file.starts_with("target/")));
}

#[test]
fn what_tools_leave_behind_is_found() {
    let root = std::env::temp_dir().join(format!("corelane-tidy-{}", std::process::id()));
    std::fs::create_dir_all(root.join("shards")).expect("a folder can be made");
    for name in ["shards/oracle.rs.orig", "shards/oracle.rs.rej", "README.md~"] {
        std::fs::write(root.join(name), "").expect("a file can be written");
    }
    let findings = corelane_tidy::check(&root).expect("the tree can be read");
    std::fs::remove_dir_all(&root).expect("the folder is ours");
    assert!(findings.iter().all(|finding| finding.rule == corelane_tidy::Rule::LeftOver), "{findings:?}");
    assert_eq!(findings.len(), 3);
}

#[test]
fn every_scenario_has_its_tests() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let run = std::process::Command::new(script).output().expect("the script can be run");
    let listed = String::from_utf8_lossy(&run.stdout);
    let findings: Vec<&str> = listed
        .lines()
        .filter(|line| line.starts_with("without") || line.contains("is no scenario"))
        .collect();
    assert!(run.status.success(), "{}{}", findings.join("\n"), String::from_utf8_lossy(&run.stderr));
}
