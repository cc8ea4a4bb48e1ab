//! Backups: when their instant comes, and what waits for it. That they hold what a crash would have left is shown by `crashes`.

use corelane_shard::BackupRefusal;

use crate::{Stage, name_at};

#[test]
fn nothing_is_written_until_no_shard_writes_and_then_all_go_on() {
    let mut stage = Stage::new(2, 1);
    let links = [0, 1].map(|shard| stage.sender(&name_at(shard, 2)));
    stage.send(&name_at(0, 2), &["before"]);
    stage.world.disks[1].held = true;
    let slow = stage.post(links[1], "slow");
    stage.world.run();
    assert!(stage.world.disks[1].is_writing());
    stage.world.begin_backup().unwrap();
    stage.world.run();
    assert_eq!(stage.world.begin_backup(), Err(BackupRefusal::Busy));
    let quick = stage.post(links[0], "quick");
    stage.world.run();
    assert!(stage.world.take_image().is_none());
    assert_eq!([slow, quick].map(|token| stage.outcome(token)), ["nothing", "nothing"]);
    stage.world.disks[1].held = false;
    stage.world.run();
    assert_eq!([slow, quick].map(|token| stage.outcome(token)), ["accepted", "accepted"]);
    // What was on its way is in it; what came later is not.
    let image = stage.world.take_image().unwrap().unwrap();
    let mut copied = Vec::new();
    for (shard, segments) in image.into_iter().enumerate() {
        let copy = |segment| (shard, segment, stage.world.copy(shard, segment));
        let with_bytes = segments.into_iter().map(copy);
        copied.extend(with_bytes.map(|(shard, segment, bytes)| (shard, segment.number, bytes)));
    }
    let copy = stage.world.restored(stage.world.now, copied);
    let depth = |shard: usize| {
        let queue = copy.shards[shard].queue(&name_at(shard, 2)).unwrap();
        copy.shards[shard].engine().depth(queue).map_or(0, |depth| depth.messages as usize)
    };
    assert_eq!([depth(0), depth(1)], [1, 1]);
    stage.world.end_backup();
    stage.world.run();
    stage.world.begin_backup().unwrap();
    stage.world.run();
    assert!(stage.world.take_image().unwrap().is_ok(), "the next is made");
}

#[test]
fn a_disk_that_has_failed_gives_none_and_holds_nobody_up() {
    let mut stage = Stage::new(2, 1);
    let links = [0, 1].map(|shard| stage.sender(&name_at(shard, 2)));
    stage.world.disks[1].fails_next = true;
    stage.post(links[1], "lost");
    stage.world.run();
    for _ in 0..2 {
        stage.world.begin_backup().unwrap();
        stage.world.run();
        assert_eq!(stage.world.take_image(), Some(Err(BackupRefusal::Failed { shard: 1 })));
        let token = stage.post(links[0], "kept");
        stage.world.run();
        assert_eq!(stage.outcome(token), "accepted");
    }
}

#[test]
fn where_nothing_is_kept_there_is_none() {
    let mut stage = Stage::with(&corelane_sim::Setup::new(2));
    stage.world.begin_backup().unwrap();
    stage.world.run();
    assert_eq!(stage.world.take_image(), Some(Err(BackupRefusal::InMemory)));
}
