//! Does the broker keep its promises whenever it crashes? A few seeds; `corelane-sim --crashes` runs as many as one likes.

use corelane_sim::{CrashOptions, CrashReport, Crashing};

fn run(seed: u64, events: u64, crash_at: Option<u64>) -> CrashReport {
    Crashing::new(CrashOptions { seed, events, shards: None, crash_at, backups: false, operates: false })
        .run()
}

#[test]
fn s39_what_was_promised_is_there_after_crashes_at_any_moment() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30);
    let (mut crashes, mut kept) = (0, 0);
    for seed in 0..seeds {
        let report = run(seed, 3_000, None);
        crashes += report.crashes;
        kept += report.kept;
    }
    assert!(crashes > 2 * seeds && kept > 20 * seeds, "{crashes} crashes, {kept} messages were kept");
}

#[test]
fn s39_what_was_promised_is_there_after_a_crash_at_every_event() {
    for seed in 1000..1002 {
        for crash_at in 0..300 {
            run(seed, 300, Some(crash_at));
        }
    }
}

#[test]
fn a_backup_is_what_a_crash_would_have_left() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let mut backups = 0;
    for seed in 3000..3000 + seeds {
        let options =
            CrashOptions { seed, events: 3_000, shards: None, crash_at: None, backups: true, operates: true };
        backups += Crashing::new(options).run().backups;
    }
    assert!(backups > seeds, "{backups} backups");
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 2000..2003 {
        assert_eq!(run(seed, 1_500, None), run(seed, 1_500, None));
    }
}

/// A dead letter that was not written yet is taken in a transaction that says nothing else.
#[test]
fn a_commit_waits_for_what_was_said_of_what_it_takes() {
    run(228, 3_000, None);
}

/// A full disk keeps a shard from writing that a dead letter has gone to another one, where it is taken and its segment is freed.
#[test]
fn what_was_taken_elsewhere_does_not_come_back_from_a_full_disk() {
    for seed in [231, 261] {
        run(seed, 6_000, None);
    }
}

/// A message is copied to another shard by an operator, a consumer takes it before it leaves, and the copy is dropped.
#[test]
fn what_did_not_move_to_another_shard_after_all_is_not_lost() {
    for seed in [122, 196, 273] {
        let options = CrashOptions {
            seed,
            events: 6_000,
            shards: None,
            crash_at: None,
            backups: false,
            operates: true,
        };
        Crashing::new(options).run();
    }
}

/// Of a transaction that is not synced an operator moves some messages to another shard, which is faster.
#[test]
fn what_is_moved_to_another_shard_is_not_half_of_a_transaction() {
    let (seed, events) = (4059, 3_000);
    let options = CrashOptions { seed, events, shards: None, crash_at: None, backups: false, operates: true };
    Crashing::new(options).run();
}

#[test]
fn what_an_operator_deletes_is_gone_and_what_he_moves_is_in_one_queue_whenever_the_broker_crashes() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let mut all = CrashReport::default();
    for seed in 4000..4000 + seeds {
        let options = CrashOptions {
            seed,
            events: 3_000,
            shards: None,
            crash_at: None,
            backups: false,
            operates: true,
        };
        all.add(&Crashing::new(options).run());
    }
    assert!(all.deleted > seeds / 2 && all.rotten > seeds / 2, "{all:?}");
}
