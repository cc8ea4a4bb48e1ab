//! A shard that panics takes the process with it, and says which one it was.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use corelane::driver::{Clock, Driver, Idle, Participants, Placement, Service, Starting, participants};
use corelane_shard::{ConnectionSlot, Effect, Event, Socket, Turn};

/// Set in the process that is to die.
const VICTIM: &str = "CORELANE_TEST_VICTIM";

struct Panics;

impl Service for Panics {
    fn apply(&mut self, _now: u64, _event: Event<'_>) {}

    fn finish_turn(&mut self, _now: u64) -> Turn {
        panic!("an invariant is broken");
    }

    fn take_effects(&mut self, _into: &mut Vec<Effect>) {}

    fn take_output(&mut self, _connection: ConnectionSlot) -> Vec<u8> {
        Vec::new()
    }

    fn release(&mut self, _connection: ConnectionSlot, _socket: Socket) -> bool {
        false
    }
}

#[test]
fn a_panic_on_a_shard_ends_the_process() {
    if std::env::var_os(VICTIM).is_some() {
        die();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_panic_on_a_shard_ends_the_process", "--nocapture"]).env(VICTIM, "1");
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{message}");
    assert!(message.contains("an invariant is broken"), "{message}");
    assert!(message.contains("shard 0 has panicked"), "{message}");
}

fn die() -> ! {
    let Participants { mut ports, bells, control: _control } = participants(1).unwrap();
    let port = ports.remove(0);
    let (placement, idle, clock) = (Placement::Unpinned, Idle::Park, Clock::start());
    let driver = Driver { index: 0, placement, idle, clock, port, bells, listeners: Vec::new(), disk: None };
    let _shard = driver.start(|| Ok(Panics)).and_then(Starting::wait);
    std::thread::sleep(Duration::from_secs(30));
    panic!("the process outlives its shard");
}
