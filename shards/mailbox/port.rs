//! How does one participant post, take and fall asleep?
//!
//! A turn: [`Port::take`], work and [`Port::post`], [`Port::flush`]; and before sleeping [`Port::prepare_sleep`]. What
//! does not fit into a lane stays in the outbox of that lane, in order, and the lane is marked *room wanted*; the reader
//! that makes room marks the desk of the writer and rings it. An outbox does not bound itself: the owner sends
//! against windows and answers one mail for each it was asked.

use crate::Lane;
use crate::mailboxes::{Desk, LaneState, Mailboxes, ROOM, WORD_BITS};
use crate::sync::{Ordering, fence};
use std::collections::VecDeque;
use std::sync::Arc;

/// One participant's end of all its lanes.
pub struct Port<T> {
    index: usize,
    mailboxes: Arc<Mailboxes<T>>,
    /// By receiver and lane.
    outgoing: Box<[Outgoing<T>]>,
    /// By sender and lane: how many were taken, ever.
    taken: Box<[u64]>,
    /// Lanes with mail that are not yet emptied: bits of senders, by lane and word.
    unread: [Box<[u64]>; Lane::ALL.len()],
    /// Outboxes that are not empty: bits of receivers, by lane and word.
    waiting: [Box<[u64]>; Lane::ALL.len()],
    /// Bits of the participants that are to be rung.
    to_ring: Box<[u64]>,
}

/// What the sender of a lane knows of it.
struct Outgoing<T> {
    posted: u64,
    /// Not above the receiver's count.
    taken_seen: u64,
    outbox: VecDeque<T>,
}

impl<T: Send> Port<T> {
    pub(crate) fn new(index: usize, mailboxes: Arc<Mailboxes<T>>) -> Self {
        let participants = mailboxes.participants();
        let lanes = participants * Lane::ALL.len();
        let words = || vec![0; participants.div_ceil(WORD_BITS)].into_boxed_slice();
        Port {
            index,
            mailboxes,
            outgoing: (0..lanes).map(|_| Outgoing::new()).collect(),
            taken: vec![0; lanes].into_boxed_slice(),
            unread: [words(), words()],
            waiting: [words(), words()],
            to_ring: words(),
        }
    }

    /// Puts mail into the lane to participant `to` (which may be oneself), or behind what waits for room there.
    pub fn post(&mut self, to: usize, lane: Lane, mail: T) {
        let outgoing = &mut self.outgoing[to * Lane::ALL.len() + lane.index()];
        let state = self.mailboxes.lane_of_sender(self.index, to, lane);
        if !outgoing.outbox.is_empty() || !outgoing.has_room(state, self.mailboxes.capacity()) {
            outgoing.outbox.push_back(mail);
            set(&mut self.waiting[lane.index()], to);
            return;
        }
        outgoing.push(state, mail);
        if self.mailboxes.desk(to).mark(self.index, lane.index()) {
            set(&mut self.to_ring, to);
        }
    }

    /// Moves what has waited and now fits, and calls `ring` once for each participant that may be asleep and has
    /// something new to look at. Ends every batch of [`Port::post`] and [`Port::take`].
    pub fn flush(&mut self, mut ring: impl FnMut(usize)) {
        for word in 0..self.to_ring.len() {
            // Every outbox is tried at every flush: that there is room need only have woken us.
            self.desk().claim(word, ROOM);
        }
        for lane in Lane::ALL {
            for word in 0..self.waiting[lane.index()].len() {
                let mut bits = self.waiting[lane.index()][word];
                while let Some(to) = next_bit(word, &mut bits) {
                    self.flush_lane(to, lane);
                }
            }
        }
        for word in 0..self.to_ring.len() {
            let mut bits = std::mem::take(&mut self.to_ring[word]);
            while let Some(to) = next_bit(word, &mut bits) {
                ring(to);
            }
        }
    }

    /// Hands over what others have posted, control before handoffs, at most `per_lane_max` of each lane. True: there
    /// is more.
    pub fn take(&mut self, per_lane_max: usize, mut receive: impl FnMut(usize, Lane, T)) -> bool {
        let mut more = false;
        for lane in Lane::ALL {
            for word in 0..self.to_ring.len() {
                self.unread[lane.index()][word] |= self.desk().claim(word, lane.index());
                let mut bits = self.unread[lane.index()][word];
                while let Some(from) = next_bit(word, &mut bits) {
                    more |= self.take_lane(from, lane, per_lane_max, &mut receive);
                }
            }
        }
        more
    }

    /// Whether [`Port::take`] or [`Port::flush`] would find something new; cheap enough to be asked in a spinning loop.
    pub fn is_marked(&self) -> bool {
        self.desk().is_marked() || self.unread.iter().flatten().any(|&bits| bits != 0)
    }

    /// Announces that this participant goes to sleep and must be rung from now on. False: it must not, there is
    /// something to do. Follow it with [`Port::awake`] when the sleep is over.
    #[must_use]
    pub fn prepare_sleep(&mut self) -> bool {
        assert!(self.to_ring.iter().all(|&bits| bits == 0), "nobody sleeps before it has rung those it must");
        self.unread.iter().flatten().all(|&bits| bits == 0) && self.desk().fall_asleep()
    }

    /// Ends what [`Port::prepare_sleep`] began.
    pub fn awake(&mut self) {
        self.desk().awake();
    }

    /// Whether any mail waits for room.
    pub fn has_backlog(&self) -> bool {
        self.waiting.iter().flatten().any(|&bits| bits != 0)
    }

    pub fn index(&self) -> usize {
        self.index
    }

    pub fn participants(&self) -> usize {
        self.mailboxes.participants()
    }

    fn desk(&self) -> &Desk {
        self.mailboxes.desk(self.index)
    }

    fn flush_lane(&mut self, to: usize, lane: Lane) {
        let outgoing = &mut self.outgoing[to * Lane::ALL.len() + lane.index()];
        let state = self.mailboxes.lane_of_sender(self.index, to, lane);
        let mut pushed = outgoing.push_waiting(state, self.mailboxes.capacity());
        if !outgoing.outbox.is_empty() {
            state.room_wanted.store(true, Ordering::Relaxed);
            // Against the fence in `take_lane`: either we see the room it made, or it sees that we want it.
            fence(Ordering::SeqCst);
            pushed |= outgoing.push_waiting(state, self.mailboxes.capacity());
        }
        if outgoing.outbox.is_empty() {
            clear(&mut self.waiting[lane.index()], to);
        }
        if pushed && self.mailboxes.desk(to).mark(self.index, lane.index()) {
            set(&mut self.to_ring, to);
        }
    }

    fn take_lane(
        &mut self,
        from: usize,
        lane: Lane,
        max: usize,
        receive: &mut impl FnMut(usize, Lane, T),
    ) -> bool {
        let taken = &mut self.taken[from * Lane::ALL.len() + lane.index()];
        let Some(state) = self.mailboxes.lane_of_receiver(from, self.index, lane) else {
            unreachable!("a lane is marked by the one who made it");
        };
        // Only what is completely in is looked at, so that a sender that was stopped half-way is not waited for.
        let posted = state.posted.load(Ordering::Acquire);
        assert!(posted >= *taken);
        let count = (posted - *taken).min(max as u64);
        for _ in 0..count {
            let mail = state.slots.pop().expect("`posted` counts what is in the slots");
            receive(from, lane, mail);
        }
        *taken += count;
        let more = posted > *taken;
        state.taken.store(*taken, Ordering::Release);
        fence(Ordering::SeqCst);
        if count > 0 && state.room_wanted.load(Ordering::Relaxed) {
            state.room_wanted.store(false, Ordering::Relaxed);
            if self.mailboxes.desk(from).mark(self.index, ROOM) {
                set(&mut self.to_ring, from);
            }
        }
        if !more {
            clear(&mut self.unread[lane.index()], from);
        }
        more
    }
}

impl<T> Outgoing<T> {
    fn new() -> Self {
        Outgoing { posted: 0, taken_seen: 0, outbox: VecDeque::new() }
    }

    fn has_room(&mut self, state: &LaneState<T>, capacity: usize) -> bool {
        if self.posted - self.taken_seen < capacity as u64 {
            return true;
        }
        // Acquire: what the receiver did to a slot that it counts as taken is done.
        self.taken_seen = state.taken.load(Ordering::Acquire);
        assert!(self.taken_seen <= self.posted);
        self.posted - self.taken_seen < capacity as u64
    }

    fn push(&mut self, state: &LaneState<T>, mail: T) {
        assert!(state.slots.push(mail).is_ok(), "`taken` counts what has left the slots");
        self.posted += 1;
        state.posted.store(self.posted, Ordering::Release);
    }

    fn push_waiting(&mut self, state: &LaneState<T>, capacity: usize) -> bool {
        let before = self.posted;
        while !self.outbox.is_empty() && self.has_room(state, capacity) {
            if let Some(mail) = self.outbox.pop_front() {
                self.push(state, mail);
            }
        }
        self.posted > before
    }
}

fn set(words: &mut [u64], participant: usize) {
    words[participant / WORD_BITS] |= 1 << (participant % WORD_BITS);
}

fn clear(words: &mut [u64], participant: usize) {
    words[participant / WORD_BITS] &= !(1 << (participant % WORD_BITS));
}

/// Takes the lowest bit out of `bits`, as the participant it stands for.
fn next_bit(word: usize, bits: &mut u64) -> Option<usize> {
    if *bits == 0 {
        return None;
    }
    let bit = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    Some(word * WORD_BITS + bit)
}
