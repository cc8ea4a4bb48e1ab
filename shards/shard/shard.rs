//! One core's whole state, and the one place where it changes: [`Shard::apply`].
//!
//! A turn of the driver is: apply what has happened, [`finish_turn`](Shard::finish_turn), carry out the effects. Nothing in
//! here blocks, asks for the time or touches a socket, so the same shard runs under the real driver and under a simulated one.
//!
//! Invariants:
//! - a shard is `!Send`: it is built on its thread and stays there;
//! - events and time change it inside `apply` and `finish_turn` alone; `take_output` and `release` hand over what leaves;
//! - a connection that was changed is on the list `touched` until the turn is finished.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use corelane_engine::{Engine, EntryView, Limits, Place, QueueId, Stored};
use corelane_mailbox::Lane;
use corelane_protocol::LinkId;

use crate::amqp091::{Alarms, Purge, Redeclaration};
use crate::buffers::Buffers;
use crate::connection::{Connection, Hold, QueueAt};
use crate::connections::Connections;
use crate::counters::Counters;
use crate::dead_letters::{DeadLetterOnItsWay, DeadLetters};
use crate::defining::{Defining, Definitions};
use crate::deliver::Scratch;
use crate::destinations::Destinations;
use crate::durability::Durability;
use crate::effect::Effect;
use crate::event::{ConnectionSlot, Event, Peer, Socket};
use crate::failure::Failure;
use crate::home::queue_home;
use crate::limits::{
    ARGUMENT_WARNINGS_MAX, CONTRADICTION_WARNINGS_MAX, DROP_WARNINGS_MAX, HIDDEN_WARNINGS_MAX,
    KEPT_WARNINGS_MAX, LOST_WARNINGS_MAX, OUTPUT_BYTES_MAX, TRANSACTION_WARNINGS_MAX, UNHEARD_WARNINGS_MAX,
    UNREADABLE_WARNINGS_MAX,
};
use crate::mail::{Arrived, ConnectionId, Mail};
use crate::management::Management;
use crate::message::Message;
use crate::participant::Participations;
use crate::peers::Peers;
use crate::producers::ProducerAt;
use crate::protocol::{Offers, Protocol};
use crate::queues::Queues;
use crate::statistics::Statistics;
use crate::target::HomeTargets;
use crate::topology::Topology;
use crate::turn::TurnLine;
use crate::warnings::Warnings;

/// Why connections are closed at the end.
pub(crate) const SHUTTING_DOWN: &str = "the broker is shutting down";

/// What a shard is told when it is built.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// This shard: `index < shards`.
    pub index: usize,
    /// How many shards the process has. The control thread is participant number `shards`.
    pub shards: usize,
    /// Tells this run of the process from others; part of the names of dynamic nodes.
    pub boot: u64,
    /// What connections over the loopback interface are offered and held to.
    pub loopback: Offers,
    /// The same for connections from anywhere else.
    pub elsewhere: Offers,
    /// The properties of destinations.
    pub destinations: Destinations,
    /// What is to be there before the shard is ready.
    pub definitions: Option<Arc<Definitions>>,
    /// The virtual hosts besides the default one, the same and in the same order on all shards.
    pub vhosts: Vec<Box<str>>,
    /// Bytes of messages in all queues of this shard. When it is used up, messages are refused.
    pub memory: u64,
    /// How long a transaction may have work and not be discharged; 0: for ever. Then it is rolled back.
    pub transaction_timeout_us: u64,
    /// Bytes that one transaction may write to the journal of this shard: `limits::TRANSACTION_KEPT_BYTES_MAX`, or less.
    pub transaction_kept_bytes_max: u64,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Call `finish_turn` again soon, even if nothing happens.
    pub more_work: bool,
    /// When to call it at the latest, in the time of `now`.
    pub next_deadline: Option<u64>,
}

/// A shard.
pub struct Shard {
    pub(crate) index: usize,
    pub(crate) shards: usize,
    pub(crate) boot: u64,
    pub(crate) loopback: Offers,
    pub(crate) elsewhere: Offers,
    pub(crate) destinations: Arc<Destinations>,
    /// As they were when the shard began: they say where queues live, which does not change.
    began_with: Arc<Destinations>,
    /// How often they have changed.
    pub(crate) destinations_version: u64,
    pub(crate) memory_max: u64,
    /// Bytes of the messages in queues.
    pub(crate) memory_used: u64,
    /// Bytes of messages of which frames are still to come.
    pub(crate) memory_assembled: u64,
    pub(crate) connections: Connections,
    pub(crate) touched: Vec<ConnectionSlot>,
    timers: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(crate) engine: Engine<Message>,
    pub(crate) queues: Queues,
    pub(crate) topology: Topology,
    /// Queues that want the message in hand; kept for its memory.
    pub(crate) wanting: Vec<QueueId>,
    pub(crate) buffers: Buffers,
    pub(crate) peers: Peers,
    pub(crate) targets: HomeTargets,
    pub(crate) participations: Participations,
    pub(crate) transaction_timeout_us: u64,
    pub(crate) transaction_kept_bytes_max: u64,
    /// When to look whether one of a connection's transactions takes too long: one for each connection that is there, at most.
    pub(crate) transaction_deadlines: BTreeSet<(u64, ConnectionSlot)>,
    /// Links with a consumer elsewhere whose home is to be told something when the turn ends.
    pub(crate) targets_due: Vec<(ConnectionSlot, LinkId)>,
    /// Links with a delivery written in part that can go on.
    pub(crate) continuing: VecDeque<(ConnectionSlot, LinkId)>,
    /// Connections whose consumers here wait for those elsewhere, and until when; the earliest first, about.
    pub(crate) waiting_for_others: VecDeque<(u64, ConnectionSlot)>,
    /// Who waits for the next turn.
    pub(crate) turn: TurnLine,
    /// Connections that wait to move to another shard.
    /// Who asks for owners of queues whose sockets are being looked at: the owner, and the queue's home.
    pub(crate) owners_probed: Vec<(ConnectionSlot, usize, Box<Redeclaration>)>,
    pub(crate) moving: Vec<ConnectionSlot>,
    pub(crate) scratch: Scratch,
    /// Connections that can go on with what waits inside them.
    pub(crate) resuming: Vec<ConnectionSlot>,
    /// Queues that are being emptied for channels.
    pub(crate) purges: VecDeque<Purge>,
    /// Consumers here that take single messages.
    pub(crate) getters: u32,
    pub(crate) alarms: Alarms,
    pub(crate) effects: Vec<Effect>,
    pub(crate) counters: Counters,
    pub(crate) statistics: Statistics,
    pub(crate) management: Management,
    pub(crate) dynamic_names: u64,
    /// Queues that have room again for producers that wait.
    pub(crate) roomy: VecDeque<QueueId>,
    /// A dead letter for whose way there was no room.
    pub(crate) dead_letter_waits: Option<DeadLetterOnItsWay>,
    /// Those behind it.
    pub(crate) dead_letters: DeadLetters,
    /// What is stored now is hidden, and noted here.
    pub(crate) hiding: Option<Vec<Arrived>>,
    /// Of queues whose names have become topics'.
    pub(crate) hidden_warnings: Warnings,
    /// Of dead letters that went round in a circle.
    pub(crate) drop_warnings: Warnings,
    /// Of dead letters that could not be stored.
    pub(crate) lost_warnings: Warnings,
    /// Of queues that contradict themselves since rules were read again.
    pub(crate) contradiction_warnings: Warnings,
    /// Of messages that cannot be read any more.
    pub(crate) unreadable_warnings: Warnings,
    /// Of transactions that took too long.
    pub(crate) transaction_warnings: Warnings,
    /// Of queues that keep what rules change.
    pub(crate) kept_warnings: Warnings,
    /// Of arguments of queues that mean nothing.
    pub(crate) argument_warnings: Warnings,
    /// Of requests that were carried to their end for clients that had gone.
    pub(crate) unheard_warnings: Warnings,
    pub(crate) durability: Option<Box<Durability>>,
    pub(crate) defining: Option<Box<Defining>>,
    ready_said: bool,
    stopping: bool,
    stopped: bool,
    /// Keeps the shard on its thread.
    not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("index", &self.index)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A shard never leaves its thread:
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<corelane_shard::Shard>();
/// ```
///
/// while what shards exchange does:
///
/// ```
/// fn is_send<T: Send>() {}
/// is_send::<corelane_shard::Mail>();
/// ```
pub const SHARDS_STAY: () = ();

impl Shard {
    /// A shard without connections and queues.
    pub fn new(config: ShardConfig) -> Self {
        let destinations = Arc::new(config.destinations);
        Shard {
            index: config.index,
            shards: config.shards,
            boot: config.boot,
            loopback: config.loopback,
            elsewhere: config.elsewhere,
            began_with: Arc::clone(&destinations),
            destinations,
            destinations_version: 0,
            memory_max: config.memory,
            memory_used: 0,
            memory_assembled: 0,
            connections: Connections::new(config.index),
            touched: Vec::new(),
            timers: BinaryHeap::new(),
            engine: Engine::new(Limits { hash_seed: config.boot, ..Limits::default() }),
            queues: Queues::default(),
            topology: Topology::new(config.index, config.shards, config.boot, &config.vhosts),
            wanting: Vec::new(),
            buffers: Buffers::new(),
            peers: Peers::new(config.shards),
            targets: HomeTargets::new(),
            participations: Participations::default(),
            transaction_timeout_us: config.transaction_timeout_us,
            transaction_kept_bytes_max: config.transaction_kept_bytes_max,
            transaction_deadlines: BTreeSet::new(),
            targets_due: Vec::new(),
            continuing: VecDeque::new(),
            waiting_for_others: VecDeque::new(),
            turn: TurnLine::new(config.shards),
            owners_probed: Vec::new(),
            moving: Vec::new(),
            scratch: Scratch::default(),
            resuming: Vec::new(),
            purges: VecDeque::new(),
            getters: 0,
            alarms: Alarms::new(config.shards),
            effects: Vec::new(),
            counters: Counters::default(),
            statistics: Statistics::default(),
            management: Management::default(),
            dynamic_names: 0,
            roomy: VecDeque::new(),
            dead_letter_waits: None,
            dead_letters: DeadLetters::default(),
            hiding: None,
            hidden_warnings: Warnings::new(HIDDEN_WARNINGS_MAX),
            drop_warnings: Warnings::new(DROP_WARNINGS_MAX),
            lost_warnings: Warnings::new(LOST_WARNINGS_MAX),
            contradiction_warnings: Warnings::new(CONTRADICTION_WARNINGS_MAX),
            unreadable_warnings: Warnings::new(UNREADABLE_WARNINGS_MAX),
            transaction_warnings: Warnings::new(TRANSACTION_WARNINGS_MAX),
            kept_warnings: Warnings::new(KEPT_WARNINGS_MAX),
            argument_warnings: Warnings::new(ARGUMENT_WARNINGS_MAX),
            unheard_warnings: Warnings::new(UNHEARD_WARNINGS_MAX),
            durability: None,
            defining: config.definitions.map(|definitions| Box::new(Defining::new(definitions))),
            ready_said: false,
            stopping: false,
            stopped: false,
            not_send: PhantomData,
        }
    }

    /// Something happened at `now` (µs since the Unix epoch, never going back).
    pub fn apply(&mut self, now: u64, event: Event<'_>) {
        match event {
            Event::Accepted { socket, peer } => self.on_accepted(now, socket, peer),
            Event::Received { connection, bytes } => self.on_received(now, connection, bytes),
            Event::Flushed { connection, buffer } => self.on_flushed(now, connection, buffer),
            Event::Lost { connection } => self.close(now, connection),
            Event::Probed { connection } => self.on_probed(now, connection),
            Event::Mail { from, mail } => self.on_mail(now, from, mail),
            Event::Written { write, result } => self.on_written(now, write, result),
            Event::SegmentPrepared { number, epoch } => self.on_segment_prepared(number, epoch),
            Event::SegmentRefused { number: _, reason } => self.on_segment_refused(now, reason),
            Event::SegmentRead { number, offset, result } => self.on_segment_read(number, offset, result),
            Event::BodiesRead { result } => self.on_bodies_read(now, result),
            Event::Stop => self.on_stop(now),
        }
    }

    /// Ends a turn: timers, bounded deliveries, gathered settlements and mail; asks for the flushes that are due.
    pub fn finish_turn(&mut self, now: u64) -> Turn {
        self.resume_line(now);
        self.run_resumed(now);
        let mut more_work = self.run_timers(now);
        more_work |= self.engine.run_slice(now);
        more_work |= self.run_dead_letters(now);
        more_work |= self.review_queues(now);
        more_work |= self.release_producers();
        more_work |= self.run_management(now);
        more_work |= self.run_purges(now);
        self.run_definitions(now);
        more_work |= self.run_deliveries(now);
        more_work |= self.engine.drop_too_large(now);
        more_work |= self.run_journal(now);
        self.answer_unpulled(now);
        self.lend_all(now);
        self.review_alarm();
        self.finish_touched(now);
        self.peers.post_batches(&mut self.effects);
        self.try_moves();
        more_work |= self.say_what_left();
        if !self.ready_said && self.is_restored() && self.defining.is_none() {
            self.ready_said = true;
            self.effects.push(Effect::Ready);
        }
        if self.stopping && self.connections.is_empty() && !self.management.is_between() {
            let first = !std::mem::replace(&mut self.stopped, true);
            more_work |= self.stop_journal(now, first);
        }
        more_work |= !self.turn.is_empty() || !self.resuming.is_empty();
        Turn { more_work, next_deadline: self.next_deadline() }
    }

    /// Moves the effects out, in order, into an empty vector.
    pub fn take_effects(&mut self, into: &mut Vec<Effect>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.effects, into);
    }

    /// The output that waits on a connection. After [`Effect::Close`] it is the last: the shard forgets the connection.
    pub fn take_output(&mut self, slot: ConnectionSlot) -> Vec<u8> {
        let Some(connection) = self.connections.get_mut(slot) else { return Vec::new() };
        let fresh = std::mem::take(&mut connection.spare_output);
        let output = std::mem::replace(connection.protocol.output(), fresh);
        connection.flush_requested = false;
        connection.sending_bytes += output.len();
        connection.note_sending();
        if connection.closing {
            self.connections.remove(slot);
        }
        output
    }

    /// Figures since the shard began.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine<Message> {
        &self.engine
    }

    /// The queue of this name, if this shard is its home and it exists.
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.queues.find(name)
    }

    /// The queues whose home is this shard, with their names.
    pub fn queues(&self) -> impl Iterator<Item = (&str, QueueId)> {
        (0..self.queues.index_end()).filter_map(|index| {
            let (queue, node) = self.queues.at(index)?;
            Some((node.name.as_ref(), queue))
        })
    }

    /// What is in a queue, in order: the bytes of each message, if they can be read. `on_disk` has those that are not in memory: in a
    /// segment, from where to where.
    pub fn messages<'a>(
        &'a self,
        queue: QueueId,
        on_disk: impl Fn(u32, Range<usize>) -> &'a [u8],
    ) -> impl Iterator<Item = (Option<&'a [u8]>, EntryView)> {
        self.engine.entries(queue, Place(0)).map(move |(_, stored, view)| match stored {
            Stored::Here(message) => (Some(message.bytes()), view),
            Stored::Away(away) => (self.bytes_of_away(away, &on_disk), view),
        })
    }

    /// Dead letters that have yet to be sent on their way, with the names of the queues in which they died.
    pub fn dead_letters<'a>(
        &'a self,
        on_disk: impl Fn(u32, Range<usize>) -> &'a [u8],
    ) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        self.dead_letters.iter().filter_map(move |letter| {
            let (name, _) = self.queues.last_will(letter.queue)?;
            let bytes = match (&letter.message, self.letter_away(letter)) {
                (Stored::Here(message), _) => Some(message.bytes()),
                (Stored::Away(_), away) => self.bytes_of_away(away?, &on_disk),
            };
            Some((name, bytes))
        })
    }

    /// Queues whose home is this shard.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Transactions that have work on queues of this shard, and are not decided.
    pub fn participation_count(&self) -> usize {
        self.participations.len()
    }

    /// What a turn is bounded by ([`TURN_WORK_MAX`](crate::limits::TURN_WORK_MAX)), since the shard began.
    pub fn work(&self) -> u64 {
        self.turn.work(&self.engine)
    }

    /// Connections of which it will be looked whether a transaction has taken too long.
    pub fn watched_count(&self) -> usize {
        self.transaction_deadlines.len()
    }

    /// Bytes of memory that messages are counted with.
    pub fn memory_used(&self) -> u64 {
        self.memory_used
    }

    /// Bytes of a connection that were received and not parsed.
    pub fn unread_bytes(&mut self, slot: ConnectionSlot) -> usize {
        self.connections.get_mut(slot).map_or(0, |connection| connection.waiting_input.len())
    }

    /// Connections that are not closed.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    fn on_accepted(&mut self, now: u64, socket: Socket, peer: Peer) {
        let offers = if peer.loopback { &self.loopback } else { &self.elsewhere };
        let protocol = Protocol::new(offers, now);
        let slot = self.connections.insert_new(peer, protocol);
        self.effects.push(Effect::Register { connection: slot, socket });
        if self.stopping {
            self.close(now, slot);
        } else {
            self.touch(slot);
        }
    }

    fn on_flushed(&mut self, now: u64, slot: ConnectionSlot, mut buffer: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.sending_bytes = 0;
        connection.note_flushed();
        buffer.clear();
        connection.spare_output = buffer;
        if connection.output_blocked && connection.unsent_bytes() < OUTPUT_BYTES_MAX / 2 {
            connection.output_blocked = false;
            self.refresh_consumers(now, slot);
        }
        self.advance(now, slot);
    }

    /// What may have become possible on a connection after an answer, a flush or a change of its hold.
    pub(crate) fn advance(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        match connection.hold {
            None
            | Some(Hold::Credentials | Hold::Move { .. } | Hold::Turn | Hold::Answers { .. } | Hold::Alarm) =>
                {}
            Some(Hold::Lane { to }) => {
                if self.peers.has_room(to) {
                    self.release_hold(now, slot);
                }
            }
            Some(Hold::Output) => {
                if !connection.output_blocked {
                    self.release_hold(now, slot);
                }
            }
        }
    }

    /// Parses what waited, and reads on.
    pub(crate) fn release_hold(&mut self, now: u64, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.hold = None;
        self.parse_waiting(now, slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let takes_input = connection.hold.is_none() && !connection.protocol.is_full();
        if takes_input && connection.reading_stopped && !connection.closing {
            connection.reading_stopped = false;
            connection.protocol.set_reading(now, true);
            self.effects.push(Effect::Reading { connection: slot, on: true });
        }
    }

    /// Puts the connection on the list of those whose protocol state may have something to write.
    pub(crate) fn touch(&mut self, slot: ConnectionSlot) {
        if let Some(connection) = self.connections.get_mut(slot)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(slot);
        }
    }

    fn finish_touched(&mut self, now: u64) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            connection.touched = false;
            connection.protocol.finish_turn(now);
            // What was written may have been an answer that others of its channel wait for.
            if connection.protocol.has_parked() && connection.hold.is_none() && !connection.closing {
                self.resuming.push(slot);
            }
            // A peer that publishes and does not read its settlements is stopped here too.
            connection.output_blocked |= connection.unsent_bytes() > OUTPUT_BYTES_MAX;
            request_flush(&mut self.effects, slot, connection);
            if let Some(deadline) = connection.protocol.next_deadline()
                && connection.timer_at.is_none_or(|at| deadline < at)
            {
                connection.timer_at = Some(deadline);
                self.timers.push(Reverse((deadline, slot.index, slot.generation)));
            }
        }
        debug_assert!(self.touched.is_empty());
        self.touched = touched;
    }

    /// Idle time-outs and heartbeats, the engine's timers, stalled consumer targets.
    fn run_timers(&mut self, now: u64) -> bool {
        while let Some(&Reverse((deadline, index, generation))) = self.timers.peek() {
            if deadline > now {
                break;
            }
            self.timers.pop();
            let slot = ConnectionSlot { index, generation };
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            if connection.timer_at != Some(deadline) {
                continue;
            }
            connection.timer_at = None;
            connection.protocol.handle_timeout(now);
            connection.trim();
            self.touch(slot);
            self.give_events(now, slot);
        }
        self.recall_from_stalled(now);
        self.end_waits(now);
        self.end_questions(now);
        self.end_slow_transactions(now);
        let more_queues = self.expire_idle_queues(now);
        let is_due = self.engine.next_deadline().is_some_and(|at| at <= now);
        is_due && self.engine.handle_timeout(now) || more_queues
    }

    fn next_deadline(&self) -> Option<u64> {
        let connections = self.timers.peek().map(|Reverse((deadline, ..))| *deadline);
        let targets = self.targets.next_deadline();
        let waits = self.waiting_for_others.front().map(|(deadline, _)| *deadline);
        let idle = self.queues.next_deadline();
        let questions = self.management.next_deadline();
        let transactions = self.transaction_deadlines.first().map(|(deadline, _)| *deadline);
        let segment = self.next_segment_deadline();
        [connections, targets, waits, idle, questions, transactions, segment, self.engine.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn on_stop(&mut self, now: u64) {
        self.stopping = true;
        for slot in self.connections.slots() {
            self.close_forced(now, slot, SHUTTING_DOWN);
        }
    }

    /// Closes a connection with `amqp:connection:forced`, and says why.
    pub(crate) fn close_forced(&mut self, now: u64, slot: ConnectionSlot, description: &str) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.protocol.close_forced(description);
        self.close(now, slot);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    fn on_mail(&mut self, now: u64, from: usize, mail: Mail) {
        match mail {
            Mail::Adopt(adopted) => self.on_adopt(now, *adopted),
            // For the control thread; no shard is sent one.
            Mail::SaslStep { .. } => {}
            Mail::SaslReply { connection, reply } => self.on_sasl_reply(now, connection, reply),
            Mail::Resolve { link, queue, makes } => self.on_resolve(now, from, link, (&queue, makes)),
            Mail::Resolved { link, result, window } => self.on_resolved(now, from, link, (result, window)),
            Mail::Handoff(handoff) => self.receive_handoff(now, from, handoff),
            Mail::Stored(handoff) => self.on_stored(now, from, handoff),
            Mail::Consume { link, request } => self.on_consume(now, from, link, &request),
            Mail::Consuming { link, result } => self.on_consuming(now, from, link, result),
            Mail::Lend { consumer, loan } => self.on_lend(now, consumer, loan),
            Mail::Deliver(deliveries) => self.on_deliver(now, deliveries),
            Mail::CaughtUp { link } => self.on_caught_up(now, link),
            Mail::Lent { link, epoch, posted } => self.on_lent(now, link, epoch, posted),
            Mail::Settle(settlements) => self.on_settle(now, from, settlements),
            Mail::CloseConsumer { consumer, was_seen, closed } => {
                self.on_close_consumer(now, consumer, was_seen, closed)
            }
            Mail::ConsumerGone { link, ending } => self.on_consumer_gone(link, ending),
            Mail::ConsumerCancelled { consumer } => self.on_consumer_cancelled(now, consumer),
            Mail::Channel(mail) => self.on_channel_mail(now, from, mail),
            Mail::Renew(renewals) => {
                for renewal in renewals {
                    self.renew_here(now, renewal);
                }
            }
            Mail::Wait { link, queue, name } => self.on_wait(QueueAt { shard: from, queue }, name, link),
            Mail::GoOn { link, queue, window } => {
                self.on_go_on(QueueAt { shard: from, queue }, link, window);
            }
            Mail::TargetDeleted { link } => self.on_target_deleted(link),
            Mail::ProducerGone { queue, link } => self.on_producer_gone(now, queue, link),
            Mail::ProducerMoved { queue, attached, link } => {
                self.on_producer_moved(queue, attached, ProducerAt { shard: from, link });
            }
            Mail::Topology(mail) => self.on_topology(now, from, mail),
            Mail::LookUpSubscription { link, name } => self.on_look_up_subscription(from, link, &name),
            Mail::SubscriptionLookedUp { link, result } => self.on_subscription_looked_up(now, link, result),
            Mail::EndSubscription { name, link } => self.end_subscription(now, &name, link),
            Mail::AllReady => self.on_all_ready(),
            Mail::Destinations(destinations) => self.on_destinations(destinations),
            Mail::Backup(mail) => self.on_backup(from, mail),
            Mail::Forward(messages) => self.receive_forwards(now, from, messages),
            Mail::Forwarded { count, bytes, lost, kept } => {
                self.peers.forwards_answered(from, count, bytes);
                self.forwards_kept(from, kept);
                for letter in lost {
                    self.note_lost(now, &letter);
                }
            }
            Mail::Reveal(hidden) => self.reveal(now, &hidden),
            Mail::GoneSinceStart => self.reveal_restored(now, from),
            Mail::DeleteQueue { queue } => self.delete_queue(now, queue),
            Mail::Retired { transaction, count, late } => {
                let failure = (late > 0).then_some(Failure::Late);
                self.work_answered(now, from, transaction, count, failure);
            }
            Mail::Prepare { transaction, settlements, name } => {
                self.on_prepare(now, from, transaction, settlements, name);
            }
            Mail::Voted { transaction, vote } => self.on_voted(now, from, transaction, vote),
            Mail::Decide(decision) => self.on_decide(now, from, decision),
            Mail::Decided { transaction } => self.on_part_done(now, transaction),
            Mail::Query(query) => self.on_query(now, from, *query),
            Mail::MoveEnded { request, queue } => self.on_move_ended((from, request), &queue),
            Mail::Answered(answered) => self.on_answered(now, from, *answered),
        }
    }

    /// Bytes of messages that queues may hold.
    /// Bytes of the largest message that is taken.
    pub(crate) fn message_size_max(&self) -> u64 {
        self.loopback.amqp10.max_message_size.max(self.elsewhere.amqp10.max_message_size)
    }

    pub(crate) fn memory_max(&self) -> u64 {
        self.memory_max
    }

    /// Puts mail into a lane to another participant.
    pub(crate) fn post(&mut self, to: usize, lane: Lane, mail: Mail) {
        debug_assert_ne!(to, self.index);
        self.effects.push(Effect::Post { to, lane, mail });
    }

    /// The shard that the queue of this name lives on.
    pub(crate) fn home_of(&self, queue: &str) -> usize {
        queue_home(&self.began_with, queue, self.shards)
    }

    /// The connection of this identity, if it is here.
    pub(crate) fn slot_of(&self, id: ConnectionId) -> Option<ConnectionSlot> {
        self.connections.slot_of(id)
    }
}

/// Asks for a flush if there is output and none was asked for.
pub(crate) fn request_flush(effects: &mut Vec<Effect>, slot: ConnectionSlot, connection: &mut Connection) {
    if !connection.flush_requested && !connection.protocol.output().is_empty() {
        connection.flush_requested = true;
        effects.push(Effect::Flush { connection: slot });
    }
}
