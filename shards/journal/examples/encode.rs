//! What does it cost to say a message? Batches of messages, to count instructions of:
//!
//! ```sh
//! cargo build --release -p corelane-journal --example encode
//! valgrind --tool=callgrind --toggle-collect='*encode_batch*' target/release/examples/encode SIZE BATCH ROUNDS
//! ```
//!
//! The difference between two runs of different length is the messages' alone.

use corelane_journal::{Config, Identity, Journal, Message, Write};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let mut next = |otherwise| numbers.next().unwrap_or(otherwise);
    let (size, batch, rounds) = (next(100), next(100), next(100));
    let mut journal = Journal::new(Config::new(Identity::default(), 1));
    let payload = vec![1; size as usize];
    for round in 0..rounds {
        while let Some(spare) = journal.spare_wanted() {
            journal.handle_spare(spare, u64::from(spare.number));
        }
        let write = encode_batch(&mut journal, &payload, round * batch, batch);
        journal.handle_synced(write);
    }
    println!("{} bytes on the disk", journal.disk_bytes());
}

#[inline(never)]
fn encode_batch(journal: &mut Journal, payload: &[u8], place: u64, count: u64) -> Write {
    let ticket = journal.say();
    let mut batch = journal.begin_batch().expect("nothing is on its way");
    for place in place..place + count {
        let message = Message { uid: 1, place, enqueued_at: place, priority: 4, ..Message::default() };
        batch.message(&message, payload, None);
    }
    batch.finish(ticket).expect("there is something to write")
}
