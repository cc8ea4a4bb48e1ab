//! The command as a user meets it: rows, errors that say what to do, exit status.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

mod support;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use assert_cmd::Command;

use support::{Behaviour, FakeBroker};

fn bench(arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane-bench"));
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const QUICK: &str = "--duration 100ms --warmup 10ms --rounds 2 --no-yardsticks";

#[test]
fn a_json_row_for_each_size() {
    let broker = FakeBroker::start(Behaviour::default());
    for workload in ["pingpong", "saturate"] {
        let (code, out, progress) =
            bench(&format!("{workload} --url {} --size 100,1KiB --json {QUICK}", broker.address));
        assert_eq!(code, Some(0), "{out}{progress}");
        let rows: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let sizes: Vec<u64> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [100, 1024]);
        for row in rows {
            assert_eq!((&row["workload"], &row["protocol"]), (&workload.into(), &"amqp10".into()));
            assert!(row["void"].is_null() && row["echo_p50_us"].is_null());
            assert!(row["p50_us"].as_f64().unwrap() > 0.0 && row["rate_per_s"].as_f64().unwrap() > 0.0);
        }
        assert!(progress.contains("round 2 of 2: broker"), "{progress}");
    }
}

#[test]
fn a_table_and_no_progress_when_quiet() {
    let broker = FakeBroker::start(Behaviour::default());
    let (code, out, progress) =
        bench(&format!("pingpong --url {} --size 100 --quiet {QUICK}", broker.address));
    assert_eq!(code, Some(0), "{progress}");
    assert!(out.starts_with("size") && out.lines().count() == 2, "{out}");
    assert!(!progress.contains("round"), "{progress}");
}

#[test]
fn a_histogram_and_a_chart_of_each_row_are_kept() {
    let broker = FakeBroker::start(Behaviour::default());
    let folder = std::env::temp_dir().join(format!("corelane-bench-kept-{}", std::process::id()));
    let (_, out, error) = bench(&format!(
        "open-loop --url {} --rate 200 --json --out {} {QUICK}",
        broker.address,
        folder.display()
    ));
    let row: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&row["rates_asked"][0], &row["arrivals"]), (&200.0.into(), &"fixed".into()), "{error}");
    assert!(row["lag_p99_us"].is_number() && row["p99_us"].is_number());
    let kept: Vec<std::path::PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    std::fs::remove_dir_all(&folder).unwrap_or_default();
    let endings: std::collections::BTreeSet<&str> =
        kept.iter().filter_map(|path| path.extension()?.to_str()).collect();
    assert_eq!((kept.len(), endings), (2, ["hlog", "svg"].into()));
}

#[test]
fn a_void_row_is_a_failure() {
    let broker = FakeBroker::start(Behaviour { double_every: Some(5), ..Behaviour::default() });
    let (code, out, _) = bench(&format!("saturate --url {} --size 100 --json {QUICK}", broker.address));
    assert_eq!(code, Some(1));
    let row: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(row["void"].as_str().unwrap().contains("delivered twice"), "{out}");
}

#[test]
fn errors_say_what_to_do() {
    let check = |arguments: &str, expect_code: i32, expect: &[&str]| {
        let (code, out, error) = bench(arguments);
        assert_eq!((code, out.as_str()), (Some(expect_code), ""), "{error}");
        for expect in expect {
            assert!(error.contains(expect), "{error:?} does not say {expect:?}");
        }
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = format!("pingpong --url amqp://{free} --no-yardsticks --quiet");
    check(&away, 1, &["cannot connect", "Is the broker running there?", "--url"]);
    check("pingpong --corelane /nowhere/corelane", 1, &["/nowhere/corelane", "cargo build --release"]);
    check("pingpong --broker-core 1000", 1, &["core 1000", "--broker-core"]);
    check("pingpong --size 1", 2, &["sequence number"]);
    check("", 2, &["pingpong", "saturate"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let hung_up = std::thread::spawn(move || drop(silent.accept()));
    check(&format!("pingpong --url {address} --no-yardsticks"), 1, &["closed the connection", "--protocol"]);
    hung_up.join().unwrap();
}

/// One peer runs and stands still, another one is never ready: an interrupt ends both, and nothing of them stays.
#[test]
fn an_interrupted_comparison_ends_what_it_has_started() {
    let folder = std::env::temp_dir().join(format!("corelane-bench-interrupted-{}", std::process::id()));
    let within = folder.join("within");
    std::fs::create_dir_all(&within).unwrap();
    let peer = |name: &str, says: &str| {
        let pid = folder.join(name);
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; {says}; exec sleep 600", pid.display());
        format!("[[peers]]\nname = {name:?}\nrecipe = [\"sh\", \"-c\", {script:?}]\n")
    };
    let plan = format!(
        "workloads = [\"pingpong\"]\nwithin = {within:?}\n{}{}",
        peer("ready", "echo ready=yes"),
        peer("unready", "true")
    );
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    let mut comparison = std::process::Command::new(env!("CARGO_BIN_EXE_corelane-bench"))
        .arg("compare")
        .arg(folder.join("plan.toml"))
        .spawn()
        .unwrap();
    let mut started = 0;
    let deadline = Instant::now() + PATIENCE;
    while started < 2 {
        assert!(Instant::now() < deadline, "the peers were not started");
        assert!(comparison.try_wait().unwrap().is_none(), "the comparison ended by itself");
        started = ["ready", "unready"].iter().filter(|name| folder.join(name).exists()).count();
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&comparison);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(comparison.wait().unwrap().code(), Some(130));
    for name in ["ready", "unready"] {
        let group = std::fs::read_to_string(folder.join(name)).unwrap().trim().parse().unwrap();
        let group = rustix::process::Pid::from_raw(group).unwrap();
        assert!(rustix::process::test_kill_process_group(group).is_err(), "{name} is left");
    }
    assert_eq!(std::fs::read_dir(&within).unwrap().count(), 0, "folders are left");
    std::fs::remove_dir_all(&folder).unwrap();
}
