//! Which consumer gets which message, when, and in what order?
//!
//! The engine of one shard: queues, their entries, the consumers and the consumer manager that wakes them. It is
//! generic over the message, knows no protocol, no clock and no I/O, and is driven by plain calls on [`Engine`]:
//!
//! 1. [`Engine::enqueue`] puts a message into a queue and moves at most one ready consumer to Notified.
//! 2. [`Engine::poll_notified`] names the consumer at the front of the delivery ring.
//! 3. [`Engine::deliver_single_message`] takes one message for it; the consumer goes to the ring's back.
//! 4. [`Engine::settle`] ends a delivery by place and acquisition.
//! 5. [`Engine::set_notify_work_desired`] tells whether a consumer can take messages now, and if not, why.
//!
//! Inside a transaction, [`Publication::pending`] and [`Engine::retire`] take the places of the first and the fourth.
//!
//! Besides, [`Engine::handle_timeout`] is called when [`Engine::next_deadline`] has come, [`Engine::run_slice`] once a turn as
//! long as it answers that there is more, and [`Engine::take_spent`] and [`Engine::take_dead_letter`] give messages back.
//!
//! The rule that holds it all up: *an entry is available and some ready consumer can take it ⇒ a consumer that can take it
//! is Notified.* [`Engine::verify`] checks it literally.
//!
//! A message need not be in memory ([`Stored`]): who needs one that is not waits, and [`Engine::take_wanted`] says which (see `away`).
//!
//! Which queues a message is for is a question of its own: [`TopicTrie`] and [`exchanges`], which know of queues no more than handles.
//!
//! Left out: what a message's bytes mean, durability, which messages make up a transaction, and everything about links and channels.

mod attach;
mod away;
mod browse;
mod class;
mod consumer;
mod counters;
mod dispatch;
mod engine;
mod entry;
pub mod exchanges;
mod explain;
mod filter_index;
mod group;
mod grouping;
mod ids;
mod last_value;
mod limits;
mod list;
mod listing;
mod manager;
mod properties;
mod publish;
mod pull;
mod queue;
mod redelivery;
mod restore;
mod roles;
mod room;
mod scan;
pub mod selector;
mod settle;
mod slots;
mod store;
mod stored;
mod timeout;
mod timer_wheel;
mod topics;
mod transaction;
mod verify;

pub use counters::{
    Cause, ConsumerList, ConsumerView, Depth, EngineCounters, EntryState, EntryView, QueueCounters, Verdict,
};
pub use engine::{Engine, Message};
pub use ids::{Acquisition, ConsumerId, Origin, Place, QueueId};
pub use limits::Limits;
pub use listing::Ends;
pub use properties::{
    AcquireMode, AttachRefusal, ConsumerSpec, DeadLetter, DeadLetterReason, Delivery, Desire, Dispatch,
    EnqueueRefusal, Outcome, Overflow, PauseReason, Prefetch, Publication, Pull, QueueProperties, Settled,
    Spent,
};
pub use redelivery::RedeliveryDelay;
pub use restore::{Outline, Restored};
pub use stored::{Away, Stored};
pub use topics::{PATTERN_WORDS_MAX, TopicTrie, is_pattern_valid};
