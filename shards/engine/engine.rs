//! What does the engine hold, and how do its queues come and go?
//!
//! All state of one shard's queues and consumers, in slots that refer to each other by index. The rest of the interface is
//! in the modules that answer its questions: `publish`, `pull`, `settle`, `attach`, `manager`, `timeout`, `scan`, `explain`.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::class::{Class, IdleAll};
use crate::consumer::{Consumer, Standing};
use crate::counters::{Cause, EngineCounters};
use crate::entry::EntryRef;
use crate::ids::{ConsumerId, Place, QueueId};
use crate::limits::{LEVELS, Limits};
use crate::list::{Chain, Links, List};
use crate::properties::{DeadLetter, Overflow, QueueProperties, Spent};
use crate::queue::{Extras, Queue};
use crate::selector::{self, Field, Fields, HeaderField};
use crate::slots::{NONE, Slots};
use crate::store::Store;
use crate::timer_wheel::TimerWheel;

/// What the engine needs to know about a message.
pub trait Message {
    /// Bytes, for the limits and depths of queues.
    fn size(&self) -> usize;
    /// AMQP 1.0 `group-id`, `JMSXGroupID`: messages of one group go to one consumer at a time, in order.
    fn group(&self) -> Option<&str>;
    /// A field by name, for filters. The engine itself answers `JMSRedelivered` and `JMSXDeliveryCount`.
    fn field(&self, field: &Field) -> selector::Value<'_>;
    /// Whether its owner wants to know when it comes back: see [`Engine::take_returned`].
    fn is_kept(&self) -> bool {
        false
    }
    /// When it came into its queue. Tells how old the oldest message of a queue is, and nothing else.
    fn enqueued_at(&self) -> u64 {
        0
    }
}

/// The queues and consumers of one shard.
pub struct Engine<M> {
    pub(crate) limits: Limits,
    pub(crate) counters: EngineCounters,
    pub(crate) hasher: FixedState,
    pub(crate) store: Store<M>,
    /// Each in memory of its own, which goes with it: queues are large, and there may once have been many.
    pub(crate) queues: Slots<Box<Queue>>,
    pub(crate) consumers: Slots<Consumer>,
    pub(crate) classes: Slots<Class>,
    /// Classes by queue, filter, origin and mode.
    pub(crate) class_table: HashTable<u32>,
    /// Classes without a consumer, of all queues, the one idle for longest first.
    pub(crate) idle_classes: List<IdleAll>,
    /// Notified consumers, and browsers that have something to read.
    pub(crate) ring: List<Standing>,
    /// Names entries.
    pub(crate) wheel: TimerWheel<u32>,
    /// Queues with scans to do, in turn.
    pub(crate) scanning: List<Scanning>,
    /// Deleted queues with entries to give back.
    pub(crate) graveyard: Vec<u32>,
    pub(crate) spent: Vec<Spent<M>>,
    /// Entries that are back in their places, of messages that are kept.
    pub(crate) returned: Vec<(QueueId, Place)>,
    pub(crate) dead_letters: VecDeque<DeadLetter<M>>,
    /// Queues whose producers were to wait and may go on.
    pub(crate) roomy: VecDeque<QueueId>,
    /// New entries that are larger than all that their queues may hold.
    pub(crate) too_large: Vec<(QueueId, Place)>,
    /// Entries that somebody needs and that are not in memory.
    pub(crate) wanted: Vec<(QueueId, Place)>,
    /// Consumers that were paused before the pull that was requested for them.
    pub(crate) unpulled: VecDeque<ConsumerId>,
    /// The last time that was told.
    pub(crate) now: u64,
    /// An entry whose message was lent out to be changed: its size is not counted in its queue until that is asked for.
    pub(crate) lent: Option<EntryRef>,
    /// Nodes of filters evaluated so far.
    pub(crate) work: u64,
    pub(crate) next_acquisition: u32,
    pub(crate) next_ticket: u64,
    /// Classes that match the entry in hand; kept for its memory.
    pub(crate) matched: Vec<u32>,
}

/// The list of queues with scans to do.
pub(crate) struct Scanning;

impl Chain<Scanning> for Slots<Box<Queue>> {
    fn links(&self, index: u32) -> Links {
        self[index].scans.links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].scans.links
    }
}

impl<M: Message> Engine<M> {
    /// An engine without queues.
    pub fn new(limits: Limits) -> Self {
        let limits = limits.at_least_one();
        Engine {
            limits,
            counters: EngineCounters::default(),
            hasher: FixedState::with_seed(limits.hash_seed),
            store: Store::new(limits.chunks_spare_max),
            queues: Slots::new(),
            consumers: Slots::new(),
            classes: Slots::new(),
            class_table: HashTable::new(),
            idle_classes: List::new(),
            ring: List::new(),
            wheel: TimerWheel::new(0),
            scanning: List::new(),
            graveyard: Vec::new(),
            spent: Vec::new(),
            returned: Vec::new(),
            dead_letters: VecDeque::new(),
            roomy: VecDeque::new(),
            too_large: Vec::new(),
            wanted: Vec::new(),
            unpulled: VecDeque::new(),
            now: 0,
            lent: None,
            work: 0,
            next_acquisition: 1,
            next_ticket: 0,
            matched: Vec::new(),
        }
    }

    /// Makes an empty queue.
    pub fn declare_queue(&mut self, properties: QueueProperties) -> QueueId {
        let index = self.queues.insert(Box::new(Queue::new(properties, self.limits.hash_seed)));
        self.queue_id(index)
    }

    /// Removes a queue with everything in it and its consumers, whose owners it answers in the order they attached.
    /// What consumers held is a dead letter where the queue had some, at once; other messages come out of
    /// [`take_spent`](Self::take_spent) as slices of [`run_slice`](Self::run_slice) get to them.
    pub fn delete_queue(&mut self, _now: u64, queue: QueueId) -> Vec<u64> {
        let Some(queue) = self.resolve_queue(queue) else {
            return Vec::new();
        };
        self.measure_lent();
        if self.queues[queue].properties.dead_letter {
            self.bury_held(queue);
        }
        let consumers: Vec<u32> = self.queues[queue].consumers.iter(&self.consumers).collect();
        let owners = consumers.iter().map(|consumer| self.consumers[*consumer].owner).collect();
        for consumer in consumers {
            self.discard_consumer(consumer);
        }
        let state = &self.queues[queue];
        let plain = [state.plain, state.browse_plain].into_iter().filter(|class| *class != NONE);
        // Without a consumer, every other class is idle.
        let classes: Vec<u32> = state.idle.iter(&self.classes).chain(plain).collect();
        for class in classes {
            self.forget_class(class);
        }
        self.queues[queue].deleted = true;
        self.graveyard.push(queue);
        owners
    }

    /// Changes a queue's properties; consumers are paused, resumed, activated or put on standby accordingly. Times that
    /// are running already stay as they are.
    pub fn set_properties(&mut self, now: u64, queue: QueueId, properties: QueueProperties) {
        let Some(queue) = self.resolve_queue(queue) else {
            return;
        };
        self.now = now;
        self.measure_lent();
        let state = &mut self.queues[queue];
        let before = std::mem::replace(&mut state.properties, properties);
        state.extras = Extras::of(&properties);
        // While it was off, nobody kept the marks.
        if before.overflow != Overflow::DropOldest {
            state.drop_marks = [0; LEVELS];
        }
        if before.sticky_groups && !properties.sticky_groups {
            let groups: Vec<u32> = state.groups.groups.iter().map(|(group, _)| group).collect();
            for group in groups {
                self.refresh_group(queue, group, Cause::GroupFreed);
            }
        }
        if before.dispatch != properties.dispatch {
            self.reorder(queue);
        }
        self.note_room(queue);
        self.review_roles(queue);
        let consumers: Vec<u32> = self.queues[queue].consumers.iter(&self.consumers).collect();
        for consumer in consumers {
            self.review(consumer);
        }
    }

    /// What all that was done so far has cost in filters: operators, identifiers and literals of those that were evaluated to
    /// find out for whom messages are. One message costs up to twice [`Limits::filter_nodes_max`]; who has more to do than
    /// one message bounds it by asking here.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether [`Self::take_spent`], [`Self::take_returned`] or [`Self::take_dead_letter`] has something.
    #[inline]
    pub fn has_left(&self) -> bool {
        !self.spent.is_empty() || !self.returned.is_empty() || !self.dead_letters.is_empty()
    }

    /// A message that left for good, so that its memory can be used again.
    pub fn take_spent(&mut self) -> Option<Spent<M>> {
        self.spent.pop()
    }

    /// Where a message that is kept came back, with other counts than before.
    pub fn take_returned(&mut self) -> Option<(QueueId, Place)> {
        self.returned.pop()
    }

    /// A message that left a queue with `dead_letter` without being consumed.
    pub fn take_dead_letter(&mut self) -> Option<DeadLetter<M>> {
        self.dead_letters.pop_front()
    }

    /// Gives one chunk of a deleted queue back. False: there is nothing to do.
    pub(crate) fn dismantle(&mut self) -> bool {
        let Some(&queue) = self.graveyard.last() else {
            return false;
        };
        let id = self.queue_id(queue);
        let state = &mut self.queues[queue];
        for tree in &mut state.entries.trees {
            let wheel = &mut self.wheel;
            let forget = |entry: &mut crate::entry::Entry<M>| {
                if let Some(timer) = entry.timer.take() {
                    wheel.cancel(timer);
                }
            };
            let spent = &mut self.spent;
            let part = |place, message| spent.push(Spent { message, at: Some((id, place)) });
            if self.store.dismantle(tree, forget, part) {
                return true;
            }
        }
        self.graveyard.pop();
        self.queues.remove(queue);
        true
    }

    pub(crate) fn resolve_queue(&self, id: QueueId) -> Option<u32> {
        let known = self.queues.resolves(id.index, id.generation) && !self.queues[id.index].deleted;
        known.then_some(id.index)
    }

    pub(crate) fn resolve_consumer(&self, id: ConsumerId) -> Option<u32> {
        self.consumers.resolves(id.index, id.generation).then_some(id.index)
    }

    pub(crate) fn queue_id(&self, index: u32) -> QueueId {
        QueueId { index, generation: self.queues.generation(index) }
    }

    pub(crate) fn consumer_id(&self, index: u32) -> ConsumerId {
        ConsumerId { index, generation: self.consumers.generation(index) }
    }

    /// The entry at a place, if it is still there.
    pub(crate) fn find(&self, queue: u32, place: Place) -> Option<EntryRef> {
        self.queues[queue].entries.find(&self.store, place)
    }

    /// Whether the entry at a place is there and in reach of consumers.
    pub(crate) fn find_takeable(&self, queue: u32, place: Place) -> Option<EntryRef> {
        self.find(queue, place).filter(|entry| self.store.is_takeable(*entry))
    }

    pub(crate) fn hash_of(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }
}

/// Reads a message's fields, with those that the engine knows better.
pub(crate) struct Reader<'a, M> {
    message: &'a M,
    delivery_count: u32,
}

impl<'a, M: Message> Reader<'a, M> {
    /// None: the message is not in memory.
    pub(crate) fn new(store: &'a Store<M>, entry: EntryRef) -> Option<Self> {
        let entry = store.entry(entry);
        Some(Reader { message: entry.message()?, delivery_count: entry.delivery_count() })
    }
}

impl<M: Message> Fields for Reader<'_, M> {
    fn field(&self, field: &Field) -> selector::Value<'_> {
        match field {
            // As clients read it from the header's delivery-count. JMS 2.0 §3.5.11: set only if the count below is 2 or more.
            Field::Header(HeaderField::Redelivered) => selector::Value::Bool(self.delivery_count > 0),
            // JMS 2.0 §3.5.11: the first delivery has the count 1.
            Field::Header(HeaderField::DeliveryCount) => {
                selector::Value::Int(i64::from(self.delivery_count) + 1)
            }
            Field::Header(_) | Field::Property(_) => self.message.field(field),
        }
    }
}
