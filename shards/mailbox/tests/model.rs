//! Every interleaving, and every stale read that the memory model allows, of the doorbell and of the wait for room.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p corelane-mailbox --release --test model`.
#![cfg(loom)]

use corelane_mailbox::{Lane, Mailboxes, Port};
use loom::sync::{Arc, Notify};

/// A look at the desk, and, while there is something to wait for, a sleep that only the doorbell ends.
fn turn(
    port: &mut Port<u32>,
    bells: &[Notify],
    mut done: impl FnMut(&Port<u32>, &[u32]) -> bool,
    received: &mut Vec<u32>,
) {
    port.take(1, |_, _, mail| received.push(mail));
    port.flush(|to| bells[to].notify());
    if !done(port, received) && port.prepare_sleep() {
        bells[port.index()].wait();
        port.awake();
    }
}

fn check(mail: u32, capacity: usize, preemptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let mut ports = Mailboxes::new(2, capacity);
        let bells = Arc::new([Notify::new(), Notify::new()]);
        let (mut reader, mut writer) = (ports.pop().unwrap(), ports.pop().unwrap());
        let thread = loom::thread::spawn({
            let bells = Arc::clone(&bells);
            move || {
                for number in 0..mail {
                    writer.post(1, Lane::Handoff, number);
                    writer.flush(|to| bells[to].notify());
                }
                let mut nothing = Vec::new();
                while writer.has_backlog() {
                    turn(&mut writer, &*bells, |port, _| !port.has_backlog(), &mut nothing);
                }
            }
        });
        let mut received = Vec::new();
        // A lost wake-up is a deadlock, which loom reports.
        while received.len() < mail as usize {
            turn(&mut reader, &*bells, |_, received| received.len() == mail as usize, &mut received);
        }
        thread.join().unwrap();
        assert_eq!(received, (0..mail).collect::<Vec<_>>());
    });
}

#[test]
fn a_sleeping_reader_is_rung() {
    check(1, 2, None);
}

#[test]
fn a_reader_that_falls_asleep_between_two_pieces_of_mail_is_rung() {
    check(2, 2, Some(3));
}

#[test]
fn a_writer_that_waits_for_room_is_rung() {
    check(3, 1, Some(3));
}
