//! How much may one turn do?
//!
//! What a message costs depends on the filters of its queue, and they may be costly. So a turn has a budget of work, most of it the
//! engine's: when it is used up, connections wait with what they have sent, and messages from other shards with the mail they came in, in
//! one line. Next turn each of them goes on for its share, and to the end of the line if that was not enough. A message that very many
//! queues of this shard get waits in the same line, in parts, as if another shard had handed it off. So do messages of other shards' own
//! making.
//!
//! - a connection is in line ⟺ its hold is [`Hold::Turn`] (or it was closed meanwhile); a shard is in line ⟺ handoffs of it wait, and in
//!   another place ⟺ messages of its own making do;
//! - a turn does at most its budget, and what one frame, one message or one delivery costs beyond;
//! - the order within a connection, and among the handoffs of a shard, stays. Control mail comes before handoffs anyhow.

use std::collections::VecDeque;

use corelane_engine::Engine;

use crate::Shard;
use crate::connection::Hold;
use crate::event::ConnectionSlot;
use crate::limits::{HANDOFF_BATCH_MAX, TURN_WORK_MAX};
use crate::mail::{ForwardedMessage, Handoff, HandoffMessage};
use crate::message::Message;

/// Who waits for the next turn, and what is left of this one.
#[derive(Debug)]
pub(crate) struct TurnLine {
    line: VecDeque<Waiting>,
    /// By the shard that sent them; from this one come parts of messages that very many queues get.
    handoffs: Vec<VecDeque<Handoff>>,
    /// Of the other shards' own making.
    forwards: Vec<VecDeque<ForwardedMessage>>,
    /// Those of this shard that were stored, to be answered.
    stored: Vec<Handoff>,
    /// Work beside the engine's.
    work: u64,
    /// The work at which those whose turn it is have done what they may.
    work_until: u64,
}

#[derive(Debug)]
enum Waiting {
    Connection(ConnectionSlot),
    Handoffs(usize),
    Forwards(usize),
}

impl TurnLine {
    pub(crate) fn new(shards: usize) -> Self {
        TurnLine {
            line: VecDeque::new(),
            handoffs: (0..shards).map(|_| VecDeque::new()).collect(),
            forwards: (0..shards).map(|_| VecDeque::new()).collect(),
            stored: Vec::new(),
            work: 0,
            work_until: TURN_WORK_MAX,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.stored.is_empty()
    }

    /// Whether those whose turn it is have done what they may.
    pub(crate) fn is_over(&self, engine: &Engine<Message>) -> bool {
        self.work(engine) >= self.work_until
    }

    /// Something was done that the engine does not count.
    pub(crate) fn count_work(&mut self, work: u64) {
        self.work += work;
    }

    pub(crate) fn work(&self, engine: &Engine<Message>) -> u64 {
        engine.work() + self.work
    }

    /// A connection's hold has become [`Hold::Turn`].
    pub(crate) fn join(&mut self, slot: ConnectionSlot) {
        self.line.push_back(Waiting::Connection(slot));
    }

    pub(crate) fn has_handoffs(&self, from: usize) -> bool {
        !self.handoffs[from].is_empty()
    }

    /// A message of this shard waits for a turn of its own.
    pub(crate) fn hand_off(&mut self, here: usize, message: HandoffMessage) {
        if !self.has_handoffs(here) {
            self.line.push_back(Waiting::Handoffs(here));
        }
        match self.handoffs[here].back_mut() {
            Some(last) if last.messages.len() < HANDOFF_BATCH_MAX => last.messages.push(message),
            Some(_) | None => {
                self.handoffs[here].push_back(Handoff { messages: vec![message], ..Handoff::default() })
            }
        }
    }

    /// The next message of a shard's own making that waits.
    pub(crate) fn next_forward(&mut self, from: usize) -> Option<ForwardedMessage> {
        self.forwards[from].pop_front()
    }

    /// A message of this shard was stored: it is answered when all who had their turn have had it.
    pub(crate) fn note_stored(&mut self, handoff: Handoff) {
        self.stored.push(handoff);
    }

    /// What of a shard's first handoff there was no work left for.
    pub(crate) fn put_back(&mut self, from: usize, rest: Handoff) {
        self.handoffs[from].push_front(rest);
    }
}

impl Shard {
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn.is_over(&self.engine)
    }

    /// Messages have come from another shard: they are stored, or wait.
    pub(crate) fn receive_handoff(&mut self, now: u64, from: usize, handoff: Handoff) {
        let waits = !self.turn.handoffs[from].is_empty();
        self.turn.handoffs[from].push_back(handoff);
        if !waits && !self.store_handoffs(now, from) {
            self.turn.line.push_back(Waiting::Handoffs(from));
        }
    }

    /// The same of messages of another shard's own making.
    pub(crate) fn receive_forwards(&mut self, now: u64, from: usize, messages: Vec<ForwardedMessage>) {
        let waits = !self.turn.forwards[from].is_empty();
        self.turn.forwards[from].extend(messages);
        if !waits && !self.store_forwards(now, from) {
            self.turn.line.push_back(Waiting::Forwards(from));
        }
    }

    /// A new turn begins for those who wait for it. What they leave is for what arrives before the next.
    pub(crate) fn resume_line(&mut self, now: u64) {
        let turn_until = self.turn.work(&self.engine) + TURN_WORK_MAX;
        let count = self.turn.line.len();
        for _ in 0..count {
            if self.turn.work(&self.engine) >= turn_until {
                break;
            }
            let Some(waiting) = self.turn.line.pop_front() else { break };
            let share = TURN_WORK_MAX.div_ceil(count as u64);
            self.turn.work_until = turn_until.min(self.turn.work(&self.engine) + share);
            match waiting {
                Waiting::Connection(slot) => {
                    let connection = self.connections.get_mut(slot);
                    if connection.is_some_and(|connection| connection.hold == Some(Hold::Turn)) {
                        self.release_hold(now, slot);
                    }
                }
                Waiting::Handoffs(from) => {
                    if !self.store_handoffs(now, from) {
                        self.turn.line.push_back(waiting);
                    }
                }
                Waiting::Forwards(from) => {
                    if !self.store_forwards(now, from) {
                        self.turn.line.push_back(waiting);
                    }
                }
            }
        }
        self.turn.work_until = turn_until;
        for handoff in std::mem::take(&mut self.turn.stored) {
            self.on_stored(now, self.index, handoff);
        }
    }

    /// Stores what has come of a shard's own making, in order. False: some of it waits.
    fn store_forwards(&mut self, now: u64, from: usize) -> bool {
        if !self.is_turn_over() {
            self.on_forward(now, from);
        }
        self.turn.forwards[from].is_empty()
    }

    /// Stores what has come from a shard, in order. False: some of it waits.
    fn store_handoffs(&mut self, now: u64, from: usize) -> bool {
        while !self.is_turn_over()
            && let Some(handoff) = self.turn.handoffs[from].pop_front()
        {
            self.on_handoff(now, from, handoff);
        }
        self.turn.handoffs[from].is_empty()
    }
}
