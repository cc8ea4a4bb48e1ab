//! Every bound of a shard, and what happens when it is reached.

/// Deliveries in one turn. More wait for the next turn, so that received bytes and mail are never kept waiting by a backlog.
pub const TURN_DELIVERIES_MAX: usize = 256;

/// Bytes of deliveries in one turn, checked after each delivery.
pub const TURN_BYTES_MAX: usize = 1 << 20;

/// Nodes of filters evaluated in one turn ([`Engine::work`](corelane_engine::Engine::work)), checked before each frame,
/// after each message from another shard and after each delivery. Beyond it they wait, in line, for the next turn.
pub const TURN_WORK_MAX: u64 = 1 << 18;

/// Unsent output of a connection above which its consumers pause (reason: socket).
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Unsent output of a connection above which its input is not read. Deliveries stop before, so that a consumer that is slow to
/// read gets its settlements through; beyond it is what the peer's own frames bring forth.
pub const OUTPUT_HOLD_BYTES: usize = 2 * OUTPUT_BYTES_MAX;

/// Capacity of a buffer that a connection keeps while it is idle. A larger one is given up when its heartbeat is due.
pub const BUFFER_KEPT_BYTES_MAX: usize = 2 << 10;

/// Unread input of a connection that waits (for credentials, a move, a lane, room in its output) above which its socket is not read.
pub const INPUT_WAITING_BYTES_MAX: usize = 64 << 10;

/// Messages on their way to one shard without an answer. Beyond it the publishing connections are not read further.
pub const HANDOFF_WINDOW: usize = 4096;

/// Bytes of such messages, the same.
pub const HANDOFF_WINDOW_BYTES: u64 = 16 << 20;

/// Messages of the broker's own making on their way to one shard without an answer. Beyond it those that make them wait: dead letters
/// stay where they died, moves pause.
pub const FORWARD_WINDOW: usize = 1024;

/// Bytes of such messages, the same.
pub const FORWARD_WINDOW_BYTES: u64 = 8 << 20;

/// Queues looked at in one turn when properties were changed. More follow in the next.
pub const TURN_QUEUES_REVIEWED_MAX: usize = 256;

/// Links that waited for room in a queue and are let go on in one turn. More follow in the next.
pub const TURN_PRODUCERS_RELEASED_MAX: usize = 16;

/// Dead letters sent on their way in one turn. More wait for the next.
pub const TURN_DEAD_LETTERS_MAX: usize = 256;

/// Queues that a message remembers to have died in. Of more it knows the first ones and how many deaths there were. So many deaths
/// without a consumer's rejection between them are taken for a circle.
pub const DEATH_PATH_MAX: usize = 16;

/// Messages in one handoff mail.
pub const HANDOFF_BATCH_MAX: usize = 64;

/// Deliveries lent to a consumer on another shard that have not been written to its session.
pub const TARGET_MESSAGES_MAX: u32 = 256;

/// Deliveries from queues of this shard by which a connection's consumers may be ahead of those on other shards, while these are
/// being served.
pub const LEAD_MAX: u32 = 256;

/// How long consumers of this shard that are so far ahead wait for a delivery from another one. Then that one is taken to have
/// nothing.
pub const LEAD_WAIT_US: u64 = 50_000;

/// Bytes of deliveries posted to one such consumer and not acknowledged, above which its home posts no more.
pub const TARGET_BYTES_MAX: usize = 1 << 20;

/// A shard that has not acknowledged deliveries of a consumer target for so long is taken to be stalled: what it has not
/// acknowledged goes back to the queue. A delivery older than half of it is returned instead of written.
pub const RECALL_TIMEOUT_US: u64 = 1_000_000;

/// How much longer such a shard is waited for, so that one that was late itself can take its mail first.
pub const RECALL_GRACE_US: u64 = 50_000;

/// Link credit a producer is granted, but where a queue that makes its producers wait allows less; renewed when half of it was stored.
pub const PRODUCER_CREDIT: u32 = 1000;

/// Link credit that the link of a transaction coordinator is granted; renewed when half of it was answered.
pub const COORDINATOR_CREDIT: u32 = 64;

/// Largest message on such a link. A larger one ends the link: `amqp:link:message-size-exceeded`.
pub const COORDINATOR_MESSAGE_BYTES_MAX: u64 = 4096;

/// Transactions of a connection that are not ended. A further declare is rejected: `amqp:resource-limit-exceeded`.
pub const TRANSACTIONS_MAX: usize = 256;

/// Messages and outcomes of one transaction. What goes beyond is refused, and the transaction can only roll back.
pub const TRANSACTION_WORK_MAX: u32 = 1 << 20;

/// Message bytes that a shard keeps for reuse. What comes back beyond it goes to the allocator.
pub const POOL_BYTES_MAX: usize = 32 << 20;

/// Longest queue name, in bytes. A longer one is refused.
pub const QUEUE_NAME_BYTES_MAX: usize = 1024;

/// Queues of a shard. A further one is not made: `amqp:resource-limit-exceeded`.
pub const QUEUES_MAX: usize = 1 << 20;

/// Bindings of topics to subscriptions, and temporary topics, in the whole process. Who asks for a further one is refused:
/// `amqp:resource-limit-exceeded`.
pub const BINDINGS_MAX: usize = 1 << 20;

/// Bytes that annotations of modified outcomes may add to a message. What goes beyond is left out.
pub const ANNOTATIONS_BYTES_MAX: usize = 64 << 10;

/// Comparisons of names that adding annotations may take: those a message has by those that are added. What would take more is
/// left out.
pub const ANNOTATION_PAIRS_MAX: usize = 1 << 16;

/// Messages of which frames are still to come have this part of the memory for messages besides it. A link that goes beyond is
/// detached: `amqp:resource-limit-exceeded`.
pub const ASSEMBLY_SHARE: u64 = 4;
