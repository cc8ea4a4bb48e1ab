//! The engine's interface: see the crate's documentation for how the calls play together.

use std::marker::PhantomData;

use crate::counters::{ConsumerView, Depth, EngineCounters, QueueCounters};
use crate::ids::{Acquisition, ConsumerId, Place, QueueId};
use crate::limits::Limits;
use crate::properties::{
    AttachRefusal, ConsumerSpec, DeadLetter, Desire, EnqueueRefusal, Outcome, Publication, Pull,
    QueueProperties, Settled,
};
use crate::selector;

/// What the engine needs to know about a message.
pub trait Message {
    /// Bytes, for the limits and depths of queues.
    fn size(&self) -> usize;
    /// AMQP 1.0 `group-id`, `JMSXGroupID`: messages of one group go to one consumer at a time, in order.
    fn group(&self) -> Option<&str>;
    /// A field by name, for filters. The engine itself answers `JMSRedelivered` and `JMSXDeliveryCount`.
    fn field(&self, field: &selector::Field) -> selector::Value<'_>;
}

/// The queues and consumers of one shard.
pub struct Engine<M> {
    counters: EngineCounters,
    message: PhantomData<M>,
}

impl<M: Message> Engine<M> {
    pub fn new(_limits: Limits) -> Self {
        Engine { counters: EngineCounters::default(), message: PhantomData }
    }

    /// Makes an empty queue.
    pub fn declare_queue(&mut self, _properties: QueueProperties) -> QueueId {
        QueueId { index: 0, generation: 0 }
    }

    /// Removes a queue with everything in it and its consumers, whose owners it answers in the order they attached.
    /// Its messages come out of [`take_retired`](Self::take_retired), never more at a time than asked for.
    pub fn delete_queue(&mut self, _now: u64, _queue: QueueId) -> Vec<u64> {
        Vec::new()
    }

    /// Changes a queue's properties; consumers are paused, resumed, activated or put on standby accordingly.
    pub fn set_properties(&mut self, _now: u64, _queue: QueueId, _properties: QueueProperties) {}

    /// Removes every entry that nobody holds, and answers how many that were.
    pub fn purge(&mut self, _now: u64, _queue: QueueId) -> u64 {
        0
    }

    /// Puts a message into a queue. If it is available at once, one ready consumer that can take it is notified.
    pub fn enqueue(
        &mut self,
        _now: u64,
        _queue: QueueId,
        publication: Publication<M>,
    ) -> Result<Place, (M, EnqueueRefusal)> {
        Err((publication.message, EnqueueRefusal::QueueGone))
    }

    /// Adds a consumer. It starts as not interested, for lack of credit (or on standby).
    pub fn attach_consumer(
        &mut self,
        _now: u64,
        _queue: QueueId,
        _spec: ConsumerSpec,
    ) -> Result<ConsumerId, AttachRefusal> {
        Err(AttachRefusal::QueueGone)
    }

    /// Removes a consumer. What it holds goes back to its place before anyone else is served; the delivery-count rises for
    /// `oldest_written` only, the oldest unsettled delivery that was written to its socket.
    pub fn close_consumer(&mut self, _now: u64, _consumer: ConsumerId, _oldest_written: Option<Place>) {}

    /// Tells whether a consumer can take messages. A notified consumer that pauses hands its notification on.
    pub fn set_notify_work_desired(&mut self, _now: u64, _consumer: ConsumerId, _desire: Desire) {}

    /// Tells that a flow or get arrived: arms a consumer of a queue with [`Prefetch::None`](crate::Prefetch::None) if nothing
    /// of it is unsettled.
    pub fn flow_received(&mut self, _consumer: ConsumerId) {}

    /// Notifies a ready consumer even if there seems to be nothing for it, so that a pull tells (AMQP 1.0 §2.6.7, drain).
    /// While its class is scanning, the notification comes when the scan has found something or ended.
    pub fn request_pull(&mut self, _now: u64, _consumer: ConsumerId) {}

    /// The operator's hand-over: an active consumer of a queue that limits them goes to the end of the standbys.
    /// What it holds stays with it; the next starts when that is settled.
    pub fn hand_over(&mut self, _now: u64, _consumer: ConsumerId) {}

    /// The consumer at the front of the delivery ring; none: there is no work. It is to be pulled for
    /// ([`deliver_single_message`](Self::deliver_single_message)) or paused.
    pub fn poll_notified(&mut self) -> Option<ConsumerId> {
        None
    }

    /// Takes one message for a consumer.
    pub fn deliver_single_message(&mut self, _now: u64, _consumer: ConsumerId) -> Pull<'_, M> {
        Pull::Nothing
    }

    /// The message of a delivery that has not ended.
    pub fn message(&self, _consumer: ConsumerId, _place: Place, _acquisition: Acquisition) -> Option<&M> {
        None
    }

    /// The message of a delivery that has not ended, to be changed (AMQP 1.0 §3.4.5, message-annotations).
    pub fn message_mut(
        &mut self,
        _consumer: ConsumerId,
        _place: Place,
        _acquisition: Acquisition,
    ) -> Option<&mut M> {
        None
    }

    /// Ends a delivery.
    pub fn settle(
        &mut self,
        _now: u64,
        _consumer: ConsumerId,
        _place: Place,
        _acquisition: Acquisition,
        _outcome: Outcome,
    ) -> Settled {
        Settled::Late
    }

    /// A message that left for good, so that its memory can be used again.
    pub fn take_retired(&mut self) -> Option<M> {
        None
    }

    /// A message that left a queue with `dead_letter` without being consumed.
    pub fn take_dead_letter(&mut self) -> Option<DeadLetter<M>> {
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// Handles what is due, in a bounded slice. True: call again soon, there is more.
    pub fn handle_timeout(&mut self, _now: u64) -> bool {
        false
    }

    /// A bounded slice of scanning for filtered classes and of dismantling deleted queues. True: there is more to do.
    pub fn run_slice(&mut self, _now: u64) -> bool {
        false
    }

    /// Recounts everything and checks the rule literally; panics with what is wrong. For tests and simulation.
    pub fn verify(&self) {}

    pub fn depth(&self, _queue: QueueId) -> Option<Depth> {
        None
    }

    pub fn queue_counters(&self, _queue: QueueId) -> Option<QueueCounters> {
        None
    }

    pub fn counters(&self) -> EngineCounters {
        self.counters
    }

    /// A queue's consumers, in the order they attached.
    pub fn consumers(&self, _queue: QueueId) -> impl Iterator<Item = ConsumerId> {
        std::iter::empty()
    }

    /// Where a consumer stands and why.
    pub fn explain(&self, _consumer: ConsumerId) -> Option<ConsumerView> {
        None
    }
}
