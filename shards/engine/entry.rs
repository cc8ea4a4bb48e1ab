//! What does the engine know about one message in one queue?
//!
//! An entry takes 64 bytes without its message, its links, 8 of them, included (they lie apart: see `store`), and a running timer 20
//! more in the wheel. Its place is not stored: it follows from where the entry lies.

use crate::ids::{ConsumerId, Origin};
use crate::list::Links;
use crate::slots::NONE;
use crate::stored::Stored;
use crate::timer_wheel::TimerId;

/// Names an entry inside the engine: its chunk and its position there. Valid while the entry is not vacant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryRef(pub(crate) u32);

/// What an entry is doing. `Held` until a time (delayed delivery), `Acquired` by a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No entry (any more).
    Vacant,
    Available,
    Held,
    Acquired,
    /// Enqueued inside a transaction that is open: it has its place, but nobody sees it.
    Pending,
    /// Settled by its consumer inside a transaction that is open: it belongs to the transaction.
    Retired,
}

pub(crate) struct Entry<M> {
    /// None: vacant.
    stored: Option<Stored<M>>,
    /// Bytes of the message.
    size: u32,
    /// Two halves, so that the entry is aligned to four bytes.
    origin: [u32; 2],
    /// Microseconds since the epoch, 0 for never: 56 bits last until the year 4253.
    expires_at: [u8; 7],
    /// The state in the three lowest bits, then the flags.
    bits: u8,
    pub(crate) group: u32,
    /// Acquired: the consumer. Retired: the consumer it was. Pending: half of the time until when it is to be held.
    pub(crate) holder: u32,
    /// Acquired: which time. Retired: the consumer's generation. Pending: the other half.
    pub(crate) acquisition: u32,
    pub(crate) timer: Option<TimerId>,
    delivery_count: u16,
    acquired_count: u16,
}

const _: () =
    assert!(size_of::<Entry<Box<()>>>() + size_of::<Links>() <= 64, "also where the message is not here");

const STATE: u8 = 0b111;
const SEEN: u8 = 1 << 3;
const REFUSED: u8 = 1 << 4;
const RETURNED: u8 = 1 << 5;
const KEPT: u8 = 1 << 6;
const KEYED: u8 = 1 << 7;

impl<M> Entry<M> {
    pub(crate) fn vacant() -> Self {
        Entry {
            stored: None,
            size: 0,
            origin: [0; 2],
            expires_at: [0; 7],
            bits: 0,
            group: NONE,
            holder: NONE,
            acquisition: 0,
            timer: None,
            delivery_count: 0,
            acquired_count: 0,
        }
    }

    /// Fills a vacant entry, which is available then; its counts are 0, or were set before.
    #[inline]
    pub(crate) fn fill(&mut self, stored: Stored<M>, size: u32, origin: Origin, expires_at: Option<u64>) {
        debug_assert!(self.state() == State::Vacant && self.stored.is_none() && self.timer.is_none());
        self.stored = Some(stored);
        self.size = size;
        self.origin = [origin.0 as u32, (origin.0 >> 32) as u32];
        let micros = expires_at.map_or(0, |time| time.clamp(1, (1 << 56) - 1)).to_le_bytes();
        self.expires_at.copy_from_slice(&micros[..7]);
        self.bits = State::Available as u8;
        self.group = NONE;
        self.holder = NONE;
        self.acquisition = 0;
    }

    /// Empties the entry and gives its message back.
    pub(crate) fn vacate(&mut self) -> Stored<M> {
        debug_assert!(self.timer.is_none() && self.state() != State::Vacant);
        self.bits = State::Vacant as u8;
        (self.delivery_count, self.acquired_count) = (0, 0);
        self.stored.take().expect("an entry that is not vacant has its message")
    }

    /// Its message, wherever that is.
    pub(crate) fn stored(&self) -> Option<&Stored<M>> {
        self.stored.as_ref()
    }

    pub(crate) fn stored_mut(&mut self) -> Option<&mut Stored<M>> {
        self.stored.as_mut()
    }

    /// Its message, if that is in memory.
    pub(crate) fn message(&self) -> Option<&M> {
        match &self.stored {
            Some(Stored::Here(message)) => Some(message),
            Some(Stored::Away(_)) | None => None,
        }
    }

    /// Whether its message is not in memory.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.stored, Some(Stored::Away(_)))
    }

    /// Bytes of the message, as it was measured last.
    pub(crate) fn size(&self) -> u64 {
        u64::from(self.size)
    }

    pub(crate) fn set_size(&mut self, size: u32) {
        self.size = size;
    }

    /// Whether somebody wants to know when it comes back.
    pub(crate) fn kept(&self) -> bool {
        self.bits & KEPT != 0
    }

    pub(crate) fn set_kept(&mut self) {
        self.bits |= KEPT;
    }

    pub(crate) fn state(&self) -> State {
        match self.bits & STATE {
            0 => State::Vacant,
            1 => State::Available,
            2 => State::Held,
            3 => State::Acquired,
            4 => State::Pending,
            _ => State::Retired,
        }
    }

    /// Neither a consumer nor a transaction has it.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state(), State::Available | State::Held)
    }

    pub(crate) fn set_state(&mut self, state: State) {
        self.bits = self.bits & !STATE | state as u8;
    }

    /// Notes until when a pending entry is to be held.
    pub(crate) fn set_held_until(&mut self, until: Option<u64>) {
        debug_assert!(self.state() == State::Pending);
        let until = until.unwrap_or(0);
        (self.holder, self.acquisition) = (until as u32, (until >> 32) as u32);
    }

    /// Until when a pending entry is to be held.
    pub(crate) fn held_until(&self) -> Option<u64> {
        debug_assert!(self.state() == State::Pending);
        let until = u64::from(self.acquisition) << 32 | u64::from(self.holder);
        (until != 0).then_some(until)
    }

    /// Notes who retired the entry.
    pub(crate) fn set_retired_by(&mut self, consumer: ConsumerId) {
        debug_assert!(self.state() == State::Retired);
        (self.holder, self.acquisition) = (consumer.index, consumer.generation);
    }

    /// Who retired the entry; perhaps it is not there any more.
    pub(crate) fn retired_by(&self) -> ConsumerId {
        debug_assert!(self.state() == State::Retired);
        ConsumerId { index: self.holder, generation: self.acquisition }
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin(u64::from(self.origin[1]) << 32 | u64::from(self.origin[0]))
    }

    pub(crate) fn expires_at(&self) -> Option<u64> {
        let [a, b, c, d, e, f, g] = self.expires_at;
        let micros = u64::from_le_bytes([a, b, c, d, e, f, g, 0]);
        (micros != 0).then_some(micros)
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|time| time <= now)
    }

    /// Whether it has been available before: browsers were told, or have passed it.
    pub(crate) fn seen(&self) -> bool {
        self.bits & SEEN != 0
    }

    pub(crate) fn set_seen(&mut self) {
        self.bits |= SEEN;
    }

    /// Whether a consumer has said that it is undeliverable there.
    pub(crate) fn refused(&self) -> bool {
        self.bits & REFUSED != 0
    }

    pub(crate) fn set_refused(&mut self, refused: bool) {
        self.bits = if refused { self.bits | REFUSED } else { self.bits & !REFUSED };
    }

    /// Whether it stands among its group's returned entries, not in the FIFO's list.
    pub(crate) fn returned(&self) -> bool {
        self.bits & RETURNED != 0
    }

    pub(crate) fn set_returned(&mut self, returned: bool) {
        self.bits = if returned { self.bits | RETURNED } else { self.bits & !RETURNED };
    }

    /// Whether it was published with a last-value key. If its queue's table does not name it, a later one has come.
    pub(crate) fn keyed(&self) -> bool {
        self.bits & KEYED != 0
    }

    /// Whether tables of its queue name it by its place: it is keyed, or refused.
    pub(crate) fn is_noted(&self) -> bool {
        self.bits & (KEYED | REFUSED) != 0
    }

    pub(crate) fn set_keyed(&mut self) {
        self.bits |= KEYED;
    }

    pub(crate) fn delivery_count(&self) -> u32 {
        u32::from(self.delivery_count)
    }

    pub(crate) fn set_counts(&mut self, delivery_count: u32, acquired_count: u32) {
        self.delivery_count = u16::try_from(delivery_count).unwrap_or(u16::MAX);
        self.acquired_count = u16::try_from(acquired_count).unwrap_or(u16::MAX);
    }

    /// Stays at 65,535 when it gets there.
    pub(crate) fn count_failure(&mut self) {
        self.delivery_count = self.delivery_count.saturating_add(1);
    }

    pub(crate) fn acquired_count(&self) -> u32 {
        u32::from(self.acquired_count)
    }

    /// Stays at 65,535 when it gets there.
    pub(crate) fn count_acquisition(&mut self) {
        self.acquired_count = self.acquired_count.saturating_add(1);
    }
}
