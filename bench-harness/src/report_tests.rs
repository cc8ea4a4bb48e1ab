//! Shape of tables and of JSON rows.

use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::journal::JournalUse;
use crate::rounds::Round;
use crate::sample::{Counts, Latencies, Sample};

fn sample(latency_us: u64, count: u64) -> Sample {
    let counts = Counts { sent: count, delivered: count, ..Counts::default() };
    let mut sample = Sample { count, elapsed: Duration::from_secs(1), counts, ..Sample::default() };
    sample.latencies.record(latency_us * 1000);
    sample
}

fn row(workload: &'static str, round: Round) -> Row {
    let (protocol, settle) = ("amqp10", Settle::Batch);
    let (size, connections) = (1024, 2);
    let subject = Subject {
        workload,
        broker: OURS,
        protocol,
        size,
        settle,
        connections,
        producers: 1,
        consumers: 1,
        window: 50,
        queues: 1,
    };
    Row::new(&subject, &Verdict::of(&[round]))
}

fn round_of(ours: Sample) -> Round {
    let (echo, relay, relay_latency) = (sample(10, 5), sample(1, 2_000_000), sample(11, 5));
    let (echo, relay, relay_latency) = (Some(echo), Some(relay), Some(relay_latency));
    Round { ours, echo, relay, relay_latency, ..Round::default() }
}

#[test]
fn a_json_row_has_the_keys_that_programs_read() {
    let json: Value = serde_json::from_str(&row("pingpong", round_of(sample(12, 1_000_000))).json()).unwrap();
    assert_eq!(json["workload"], "pingpong");
    assert_eq!(json["protocol"], "amqp10");
    assert_eq!(json["size"], 1024);
    assert_eq!(json["rate_per_s"], 1e6);
    assert_eq!(json["relay_rate_per_s"], 2e6);
    assert_eq!(json["settle"], "batch");
    assert!(json["void"].is_null());
    let near = |key: &str, expect: f64| {
        let got = json[key].as_f64().unwrap();
        assert!((got - expect).abs() <= expect * 2e-3, "{key} is {got}");
    };
    near("p50_us", 12.0);
    near("p99_us", 12.0);
    near("p999_us", 12.0);
    near("echo_p50_us", 10.0);
    near("ratio_echo", 1.2);
    near("ratio_relay", 0.5);
    for count in ["sent", "confirmed", "delivered", "duplicated", "lost", "rounds", "rounds_dropped"] {
        assert!(json[count].is_u64(), "{count}");
    }
}

#[test]
fn what_was_not_measured_is_null() {
    let row = row("saturate", Round { ours: sample(12, 100), ..Round::default() });
    let json: Value = serde_json::from_str(&row.json()).unwrap();
    for key in ["echo_p50_us", "relay_rate_per_s", "ratio_echo", "ratio_relay", "broker_busy"] {
        assert!(json.as_object().unwrap().contains_key(key) && json[key].is_null(), "{key}");
    }
}

#[test]
fn a_fault_voids_the_row() {
    let mut ours = sample(12, 100);
    ours.counts.lost = 3;
    let row = row("pingpong", round_of(ours));
    assert_eq!(row.void.as_deref(), Some("of 100 messages sent: 3 lost"));
    let text = table(std::slice::from_ref(&row));
    assert!(text.contains("void: 1 KiB batch: of 100 messages sent: 3 lost"), "{text}");
    assert!(!text.contains("1.20"), "no ratio of a void row: {text}");
}

#[test]
fn a_row_without_messages_is_void() {
    let row = row("pingpong", round_of(Sample::default()));
    assert_eq!(row.void.as_deref(), Some(NOTHING));
}

#[test]
fn tables() {
    let latency = table(&[row("pingpong", round_of(sample(12, 1_000_000)))]);
    let expect = "\
size   settle  connections  p50 us   p99  p99.9  echo p50  echo p99     p50 in echoes  p99 in echoes  p50 in relays  rounds
1 KiB  batch             2    12.0  12.0   12.0      10.0      10.0  1.20 (1.20-1.20)           1.20           1.09       1
";
    assert_eq!(latency, expect);
    let mut round = round_of(sample(1200, 1_234_567));
    round.ours.cpu = Some(Duration::from_millis(990));
    round.relay.as_mut().unwrap().cpu = Some(Duration::from_millis(800));
    let rate = table(&[row("saturate", round)]);
    let expect = "\
size   settle  window  messages/s   MB/s    relay/s         in relays  us/message  in relays  busy  p50 us   p99  rounds
1 KiB  batch       50   1,234,567  1,264  2,000,000  0.62 (0.62-0.62)        0.80       2.00  99 %    1200  1200       1
";
    assert_eq!(rate, expect);
}

#[test]
fn dropped_rounds_are_told() {
    let mut row = row("pingpong", round_of(sample(12, 1)));
    (row.rounds, row.rounds_dropped) = (7, 2);
    assert!(table(&[row]).contains("5 of 7, 2 disturbed"));
}

#[test]
fn durable_messages_stand_beside_the_disk() {
    let journal = JournalUse { writes: 10, bytes: 81_920, messages: 100, message_bytes: 40_960 };
    let round = Round { disk: Some(sample(100, 400)), journal: Some(journal), ..round_of(sample(130, 100)) };
    let row = row("durable", round);
    let json: Value = serde_json::from_str(&row.json()).unwrap();
    assert_eq!((&json["queues"], &json["window"]), (&1.into(), &50.into()));
    assert_eq!((&json["syncs_per_message"], &json["bytes_per_byte"]), (&0.1.into(), &2.0.into()));
    assert_eq!((&json["disk_rate_per_s"], &json["ratio_disk"]), (&400.0.into(), &0.25.into()));
    let text = table(&[row]);
    assert!(text.starts_with("size   broker    queues  depth  confirms/s  ours in it  disk/s"), "{text}");
    assert!(text.contains("0.25 (0.25-0.25)") && text.contains("0.1000"), "{text}");
}

#[test]
fn a_generator_that_was_late_voids_its_row() {
    let check = |lag_us: u64, expect: bool| {
        let mut late = sample(1000, 1);
        let mut lag = Latencies::default();
        lag.record(lag_us * 1000);
        late.lag = Some(lag);
        let row = row("open-loop", round_of(late));
        assert_eq!(row.void.is_some_and(|why| why.contains("was late")), expect, "{lag_us} us");
        assert!(row.lag_p99_us.is_some());
    };
    check(90, false);
    check(200, true);
}

#[test]
fn what_a_workload_adds_is_told_beside_the_load_without_it() {
    let base = Some(sample(10, 4000));
    let row = row("consumers-flat", Round { base, ..round_of(sample(10, 1000)) });
    assert_eq!((row.ratio_base, row.ratio_relay), (Some(0.25), Some(0.001)));
    assert!(table(&[row]).contains("0.25 (0.25-0.25)"));
}
