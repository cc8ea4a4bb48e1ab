//! Real threads, real sleeps on a doorbell, tiny lanes: nothing is lost, every lane keeps its order, nobody oversleeps.

use corelane_mailbox::{Lane, Mailboxes, Port};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A missed doorbell shows as a sleep that lasts this long.
const SLEEP_MAX: Duration = Duration::from_secs(20);

struct Mail {
    from: usize,
    number: u32,
}

struct Participant {
    port: Port<Mail>,
    bell: Receiver<()>,
    bells: Vec<Sender<()>>,
    expected: Vec<[u32; 2]>,
    missing: usize,
}

impl Participant {
    /// Sends `count` pieces of mail in each lane to everybody, itself too, and takes in what the others send.
    fn run(mut self, count: u32, burst: u32) {
        let participants = self.port.participants();
        let mut sent = 0;
        while sent < count || self.port.has_backlog() || self.missing > 0 {
            for number in sent..count.min(sent + burst) {
                for to in 0..participants {
                    for lane in [Lane::Handoff, Lane::Control] {
                        self.port.post(to, lane, Mail { from: self.port.index(), number });
                    }
                }
            }
            sent = count.min(sent + burst);
            self.take();
            self.port.flush(|to| {
                // A participant that has finished is not interested any more.
                let _ = self.bells[to].send(());
            });
            if sent == count && (self.missing > 0 || self.port.has_backlog()) && self.port.prepare_sleep() {
                match self.bell.recv_timeout(SLEEP_MAX) {
                    Ok(()) => while self.bell.try_recv().is_ok() {},
                    Err(RecvTimeoutError::Timeout) => {
                        panic!("participant {} was not rung, {} missing", self.port.index(), self.missing)
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        unreachable!("every participant has a sender to itself")
                    }
                }
                self.port.awake();
            }
        }
        assert!(self.expected.iter().flatten().all(|&next| next == count));
    }

    fn take(&mut self) {
        let (expected, missing) = (&mut self.expected, &mut self.missing);
        self.port.take(16, |from, lane, mail| {
            let next = &mut expected[from][usize::from(lane == Lane::Control)];
            assert_eq!((mail.from, mail.number), (from, *next), "lanes keep their order");
            *next += 1;
            *missing -= 1;
        });
    }
}

fn check(participants: usize, capacity: usize, count: u32, burst: u32) {
    let (bells, ears): (Vec<_>, Vec<_>) = (0..participants).map(|_| channel()).unzip();
    let ports = Mailboxes::new(participants, capacity);
    std::thread::scope(|scope| {
        for (port, bell) in ports.into_iter().zip(ears) {
            let participant = Participant {
                port,
                bell,
                bells: bells.clone(),
                expected: vec![[0; 2]; participants],
                missing: participants * 2 * count as usize,
            };
            scope.spawn(move || participant.run(count, burst));
        }
    });
}

#[test]
fn two_participants_with_room_for_one() {
    check(2, 1, 20_000, 3);
}

#[test]
fn two_participants_with_room() {
    check(2, 256, 100_000, 40);
}

#[test]
fn many_participants() {
    check(9, 4, 2_000, 5);
}
