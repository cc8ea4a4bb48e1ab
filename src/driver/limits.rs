//! Every bound of the driver, and what happens when it is reached.

use std::time::Duration;

/// Submissions that fit into the ring. When it is full, what is in it is submitted first.
pub(super) const SUBMISSIONS: u32 = 1024;

/// Completions that fit into the ring. More of them wait in the kernel, and receives that go on and on end and are begun
/// again.
pub(super) const COMPLETIONS: u32 = 4096;

/// Receive buffers of a shard. A receive that finds none is begun again when its turn comes.
pub(super) const RECEIVE_BUFFERS: u16 = 64;

/// Bytes of a receive buffer. More bytes come with further completions.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 32 << 10;

/// Completions applied in one turn. The others wait for the next.
pub(super) const TURN_COMPLETIONS_MAX: usize = 256;

/// Received bytes applied in one turn, checked after each completion. The others wait for the next.
pub(super) const TURN_BYTES_MAX: usize = 1 << 20;

/// Mail taken from each lane in one turn. The rest waits for the next.
pub(super) const TURN_MAILS_MAX: usize = 64;

/// Mail in one lane between two shards where there are few of them. More waits in the sender's outbox.
pub(super) const LANE_MAILS_MAX: usize = 1024;

/// Mail in one lane, however many shards there are: two turns' worth.
pub(super) const LANE_MAILS_MIN: usize = 2 * TURN_MAILS_MAX;

/// Mail of one kind in all lanes to one participant: the others share it, so that memory for lanes grows with the shards and not
/// with their pairs, until each has no more than [`LANE_MAILS_MIN`].
pub(super) const INBOX_MAILS: usize = 16 << 10;

/// How long the last output of a connection that is being closed may take. Then the connection is reset.
pub(super) const CLOSE_FLUSH_US: u64 = 4_000_000;

/// How long a connection that was closed by us, and whose peer was told, is read and ignored until its peer closes it too.
/// Then it is reset. Without this wait, bytes that the peer had already sent would destroy what we told it last.
pub(super) const CLOSE_LINGER_US: u64 = 1_000_000;

/// How long nothing is accepted after the process ran out of descriptors or memory.
pub(super) const ACCEPT_PAUSE_US: u64 = 100_000;

/// How long a shard leaves freed memory to the allocator, at least, and how often it looks after it when nothing happens any more. Then
/// all is given back that can be.
pub(super) const TIDY_PERIOD_US: u64 = 2_000_000;
pub(super) const TIDY_ROUNDS: u32 = 3;

/// The longest sleep, so that a deadline far away needs no arithmetic.
pub(super) const SLEEP_MAX_US: u64 = 60_000_000;

/// Bytes of one write to a file. What is left of a longer one is written when these are; whole blocks, as the file may want them.
pub(super) const WRITE_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 256 << 20 };

/// How long each way of syncing is measured, with how many writes at least and at most.
pub(super) const MEASURE_MAX: Duration = Duration::from_millis(10);
pub(super) const MEASURED_WRITES_MIN: usize = 6;
pub(super) const MEASURED_WRITES_MAX: usize = 200;

/// Bytes of the file that is written meanwhile: room for the writes, a block each.
pub(super) const MEASURE_SEGMENT_BYTES: u32 = 1 << 20;
const _: () = assert!(MEASURED_WRITES_MAX * 4096 < MEASURE_SEGMENT_BYTES as usize - 4096);
