//! Every bound of a shard, and what happens when it is reached.

/// Microseconds until a segment's file is asked for again that could not be made. Until then durable messages are refused.
pub const SEGMENT_RETRY_US: u64 = 1_000_000;

/// Bytes of a batch of the journal from which on it ends, though something further down the line says where what is before it has gone. Then
/// nothing of it is promised before that is written, too. Groups are not divided.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// With a journal, of the memory for messages: what is used beyond this part of it is written to the journal, and leaves memory then.
pub const OVERFLOW_SHARE: u64 = 2;

/// Of the memory for messages: what is read from the journal again takes this part at most. What was read first leaves again.
pub const READ_SHARE: u64 = 4;

/// Entries looked at, and messages and bytes read, in one go, of messages that are not in memory. One that is larger is read by itself.
pub const READ_STEPS_MAX: usize = 1024;
pub const READ_MESSAGES_MAX: usize = 512;
pub const READ_BYTES_MAX: u32 = 1 << 20;

/// Bytes between two messages that are read in one go.
pub const READ_GAP_MAX: u32 = 64 << 10;

/// Queues of which it is known where consumers are when the next piece is to be read. Those of more wait for their next piece.
pub const AHEAD_MAX: usize = 64;

/// Times that a question waits for messages that it would show, before it shows those that it has.
pub const QUESTION_READS_MAX: u32 = 16;

/// Deliveries in one turn. More wait for the next turn, so that received bytes and mail are never kept waiting by a backlog.
pub const TURN_DELIVERIES_MAX: usize = 256;

/// Bytes of deliveries in one turn, checked after each delivery.
pub const TURN_BYTES_MAX: usize = 1 << 20;

/// Nodes of filters, and of the patterns of topics, evaluated in one turn ([`Shard::work`](crate::Shard::work)), checked before each
/// frame, after each message from another shard and after each delivery. Beyond it they wait, in line, for the next turn.
pub const TURN_WORK_MAX: u64 = 1 << 18;

/// What a subscription that gets a message counts for of that.
pub const FAN_OUT_WORK: u64 = 64;

/// Subscriptions of one shard that get a message in one step. The others get it in further ones, of later turns, and what their producers
/// send meanwhile waits behind it.
pub const FAN_OUT_STEP_MAX: usize = 1024;

/// What an outcome that leaves its delivery unsettled counts for of that: a peer can say it of all its deliveries, again and again.
pub const UNSETTLED_OUTCOME_WORK: u64 = 4;

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

/// Queues whose idle time may be over that are looked at, and deleted, in one turn. More follow in the next.
pub const TURN_QUEUES_EXPIRED_MAX: usize = 64;

/// Links that waited for room in a queue and are let go on in one turn. More follow in the next.
pub const TURN_PRODUCERS_RELEASED_MAX: usize = 16;

/// Dead letters sent on their way in one turn. More wait for the next.
pub const TURN_DEAD_LETTERS_MAX: usize = 256;

/// Queues that a message remembers to have died in. Of more it knows the first ones and how many deaths there were.
pub const DEATH_PATH_MAX: usize = 16;

/// Queues and reasons of which a message says how often it has died there of that. Of more the oldest are left out.
pub const DEATH_RECORDS_MAX: usize = 16;

/// Bytes of the routing keys that are said with each of them. Keys that are more are left out.
pub const DEATH_KEYS_BYTES_MAX: usize = 1 << 10;

/// Bytes of the properties of a message that was published in 0-9-1, with the headers that annotations add to them, so that a frame of
/// 128 KiB takes them. What goes beyond is no header.
pub const PROPERTIES_BYTES_MAX: usize = (128 << 10) - 20;

/// Stops on its way at which a message is recognised when it comes back. Of a longer way it is now and then others: in a longer
/// circle it may go round more than once.
pub const DEAD_LETTER_STOPS_KEPT: usize = 16;

/// Queues that the way of dead letters is followed over. A file or a change by which it would be more is refused.
pub const DEAD_LETTER_STOPS_MAX: usize = 64;

/// Warnings of messages dropped because they went round in a circle, of dead letters that could not be stored, of queues whose names
/// have become topics', of queues that contradict themselves, of transactions that took too long, of queues that keep what rules
/// change, and of requests whose clients had gone when they ended, in a period of so long. Others are left out.
pub const DROP_WARNINGS_MAX: u32 = 1;
pub const LOST_WARNINGS_MAX: u32 = 4;
pub const HIDDEN_WARNINGS_MAX: u32 = 16;
pub const CONTRADICTION_WARNINGS_MAX: u32 = 16;
pub const TRANSACTION_WARNINGS_MAX: u32 = 4;
pub const KEPT_WARNINGS_MAX: u32 = 4;
pub const UNREADABLE_WARNINGS_MAX: u32 = 16;
pub const UNHEARD_WARNINGS_MAX: u32 = 4;
pub const ARGUMENT_WARNINGS_MAX: u32 = 16;
pub const WARNINGS_PERIOD_US: u64 = 10_000_000;

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

/// Of its memory for messages, in eighths: what a shard uses when publishers on channels are told to stop, and when they may go on.
pub const ALARM_ON_EIGHTHS: u64 = 7;
pub const ALARM_OFF_EIGHTHS: u64 = 6;

/// Messages and outcomes of one transaction. What goes beyond is refused, and the transaction can only roll back.
pub const TRANSACTION_WORK_MAX: u32 = 1 << 20;

/// What one transaction writes on one shard when it commits, in bytes: durable messages, and annotations of those that go back. A message that
/// goes beyond is refused, and the transaction can only roll back. It is written as a whole, so this bounds what a journal writes at once.
pub const TRANSACTION_KEPT_BYTES_MAX: u64 = 256 << 20;

/// What is counted for each message and outcome of that, beside its own bytes.
pub const TRANSACTION_RECORD_BYTES: u64 = 128;

/// Deliveries that one transaction has acquired and that have no outcome. The link of the last one ends, with
/// `amqp:resource-limit-exceeded`, and the transaction can only roll back.
pub const TRANSACTION_ACQUIRED_MAX: usize = 1 << 16;

/// Bytes of annotations that outcomes of one transaction add to their messages when it commits. What goes beyond is left out, and
/// the transaction can only roll back.
pub const TRANSACTION_ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Message bytes that a shard keeps for reuse. What comes back beyond it goes to the allocator.
pub const POOL_BYTES_MAX: usize = 32 << 20;

/// Places of messages that have left, kept for the next ones, some 150 bytes each. More go back to the allocator.
pub const SHELLS_MAX: usize = 16 << 10;

/// Longest queue name, in bytes. A longer one is refused.
pub const QUEUE_NAME_BYTES_MAX: usize = 1024;

/// Longest container-id of a peer, in bytes. The open of a longer one is answered with a close: `amqp:invalid-field`.
pub const CONTAINER_ID_BYTES_MAX: usize = 1024;

/// Queues of a shard. A further one is not made: `amqp:resource-limit-exceeded`.
pub const QUEUES_MAX: usize = 1 << 20;

/// Exchanges of 0-9-1, in the whole process. Who declares a further one is refused: 406.
pub const EXCHANGES_MAX: usize = 1 << 16;

/// Keys of which a producer on exchanges keeps where they lead. Of a further one it is looked up.
pub const EXCHANGE_ROUTES_KEPT: usize = 8;

/// Bytes of the arguments of an exchange or a binding. With more it is refused: 406.
pub const EXCHANGE_ARGUMENTS_BYTES_MAX: usize = 16 << 10;

/// Bindings of topics to subscriptions, temporary topics, and bindings of exchanges, in the whole process. Who asks for a further one is
/// refused: `amqp:resource-limit-exceeded`, 406.
pub const BINDINGS_MAX: usize = 1 << 20;

/// Bytes of a message's annotations up to which modified outcomes may add to them. What goes beyond is left out, and so is what
/// there is no memory for.
pub const ANNOTATIONS_BYTES_MAX: usize = 64 << 10;

/// Comparisons of names that adding annotations may take: those a message has by those that are added. What would take more is
/// left out.
pub const ANNOTATION_PAIRS_MAX: usize = 1 << 16;

/// Messages of which frames are still to come have this part of the memory for messages besides it, or as much as one of the largest
/// size takes, if that is more. A link that goes beyond is detached: `amqp:resource-limit-exceeded`.
pub const ASSEMBLY_SHARE: u64 = 4;

/// Bytes of a management request. A larger one is answered with 400.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Credit of a link to the management node: so many of its requests are served at a time.
pub const REQUEST_CREDIT: u32 = 16;

/// Requests of one connection that are served at a time. A further one, over another link, is rejected:
/// `amqp:resource-limit-exceeded`.
pub const REQUESTS_MAX: u32 = 64;

/// The same for all connections of a shard.
pub const REQUESTS_SHARD_MAX: usize = 4096;

/// Bytes of answers that wait to be read in the queue of a reply-to, above which requests are rejected:
/// `amqp:resource-limit-exceeded`. Known where the queue is on the request's shard.
pub const ANSWERS_UNREAD_BYTES_MAX: u64 = 16 << 20;

/// The same, above which a queue takes no answer, wherever it was asked for: it is dropped, and counted. What was asked for before
/// requests are rejected has room.
pub const ANSWERS_KEPT_BYTES_MAX: u64 = 2 * ANSWERS_UNREAD_BYTES_MAX;

/// Bytes of memory of a shard, above what messages may take, for answers of management alone. When they are used, too, requests are
/// rejected: `amqp:resource-limit-exceeded`.
pub const ANSWERS_MEMORY_MAX: u64 = 32 << 20;

/// Questions that a shard asks itself and answers in one turn. More wait for the next.
pub const QUESTIONS_PER_TURN_MAX: usize = 4;

/// How long another shard may take to answer a question of management. Then the request is answered with 504, which names the shard.
pub const QUESTION_TIMEOUT_US: u64 = 5_000_000;

/// Entities that a QUERY answers, if it does not say how many, and at most. More are had by its `next`.
pub const QUERY_ROWS: u32 = 1000;
pub const QUERY_ROWS_MAX: u32 = 10_000;

/// Attributes that a request may name or set. More are answered with 400.
pub const QUERY_NAMES_MAX: usize = 256;

/// Entities looked at, and shown, for one question. More are asked for.
pub const LIST_STEPS_MAX: u32 = 4096;
pub const LIST_ROWS_MAX: usize = 256;

/// Bytes of entities or messages in an answer, above which it says where to go on.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Messages that a PEEK shows, if it does not say how many, and at most.
pub const PEEK_MESSAGES: u32 = 20;
pub const PEEK_MESSAGES_MAX: u32 = 1000;

/// Bytes of a body that a PEEK shows, if it does not say how many, and at most. What is longer is cut.
pub const PEEK_BODY_BYTES: u32 = 256;
pub const PEEK_BODY_BYTES_MAX: u32 = 64 << 10;

/// Bytes of a message's application properties, and of each of its properties, that a PEEK shows; larger ones are left out.
pub const PEEK_PROPERTIES_BYTES_MAX: usize = 4 << 10;

/// Messages looked at for one question of a request that moves, copies or deletes them, and bytes of those that are copied. More
/// are asked for.
pub const SWEEP_STEPS_MAX: usize = 256;
pub const SWEEP_BYTES_MAX: usize = 1 << 20;

/// Messages that a request may name one by one. More are answered with 400.
pub const SWEEP_IDS_MAX: usize = 1000;

/// Consumers that an EXPLAIN shows, if it does not say how many, and at most.
pub const EXPLAIN_CONSUMERS: u32 = 100;
pub const EXPLAIN_CONSUMERS_MAX: u32 = 1000;

/// Consumers that an EXPLAIN looks at to say why nobody takes the first message. It says how many more there are.
pub const EXPLAIN_TALLY_MAX: usize = 4096;

/// Groups that an EXPLAIN shows of each consumer.
pub const EXPLAIN_GROUPS_MAX: usize = 20;

/// Queues of a shard for which times are kept in histograms (27 KiB each). Further ones do without until one is idle.
pub const HISTOGRAMS_MAX: usize = 512;

/// A queue in which nothing was delivered or settled for so long leaves its histograms to one that has none.
pub const HISTOGRAM_IDLE_US: u64 = 60_000_000;

/// Queues that are looked at for that, for one delivery.
pub const HISTOGRAM_SEARCH_MAX: usize = 4;

/// Messages of a channel that may be unanswered. Then no more of its connection is read, until half of them are answered.
pub const PUBLISHED_UNANSWERED_MAX: u32 = 8192;

/// Entries of a queue that are looked at in a turn to be removed, when it is emptied for a channel.
pub const PURGE_STEPS_MAX: usize = 4096;

/// What a compiled pattern of a permission may take. A larger one is refused where permissions are read.
pub const PERMISSION_BYTES_MAX: usize = 256 << 10;
