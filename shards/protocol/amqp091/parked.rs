//! What has a peer sent on a channel whose caller has yet to answer?
//!
//! Frames wait as they came, and are looked at again when the answer is there. Those behind them on the same channel wait too, so
//! nothing overtakes on a channel; other channels go on.

use corelane_wire::amqp091::{Frame, FrameKind, Method, basic, begin_frame, channel, finish_frame};

use super::channel::{Channel, ChannelState, Mode, Pending};
use super::connection::{Connection, Step};
use super::event::Event;
use super::limits::PARKED_KEPT_MAX;

/// Frames of one channel.
#[derive(Debug, Default)]
pub(super) struct Parked {
    bytes: Vec<u8>,
    /// Those before it are done with.
    start: usize,
}

impl Parked {
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.start < self.bytes.len()
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether the next one begins a message.
    fn is_publish(&self) -> bool {
        let mut frames = &self.bytes[self.start..];
        let frame = Frame::take(&mut frames, u32::MAX).ok().flatten();
        frame.filter(|frame| frame.kind == FrameKind::Method).is_some_and(|frame| {
            matches!(Method::decode(frame.payload), Ok(Method::Basic(basic::Method::Publish(_))))
        })
    }

    /// Whether the peer's close of the channel is among them.
    pub(super) fn has_close(&self) -> bool {
        let mut frames = &self.bytes[self.start..];
        while let Ok(Some(frame)) = Frame::take(&mut frames, u32::MAX) {
            let method = (frame.kind == FrameKind::Method).then(|| Method::decode(frame.payload));
            if let Some(Ok(Method::Channel(channel::Method::Close(_)))) = method {
                return true;
            }
        }
        false
    }

    /// For tests.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn pass(&mut self, size: usize) {
        self.start += size;
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            self.bytes.shrink_to(PARKED_KEPT_MAX);
        }
    }
}

impl Connection {
    /// Whether [`receive_parked`](Self::receive_parked) has frames to look at.
    #[inline]
    pub fn has_parked(&self) -> bool {
        self.resumable.iter().any(|&number| self.is_resumable(number))
    }

    /// Looks at a frame that had to wait for an answer of the caller. To be called while [`has_parked`](Self::has_parked), behind
    /// each answer. What is told borrows from `scratch`, which is overwritten.
    pub fn receive_parked<'a>(&mut self, now: u64, scratch: &'a mut Vec<u8>) -> Option<Event<'a>> {
        assert!(self.disposing.is_none(), "poll_outcome is drained before the next receive");
        self.now = self.now.max(now);
        if let Some(queued) = self.queue.pop_front() {
            return Some(self.release(queued));
        }
        // Those that only wait for confirms stay in line.
        while let Some(&number) = self.resumable.front()
            && !self.channel(number).is_some_and(|it| it.pending.is_none() && it.parked.has_frames())
        {
            self.resumable.pop_front();
        }
        let number = self.resumable.iter().copied().find(|&number| self.is_resumable(number))?;
        let frame_max = self.peer.frame_max;
        let parked = &mut self.channel_mut(number)?.parked;
        let mut waiting = &parked.bytes[parked.start..];
        let before = waiting.len();
        let taken = Frame::take(&mut waiting, frame_max);
        debug_assert!(matches!(taken, Ok(Some(_))), "frames were whole when they were parked");
        let size = before - waiting.len();
        scratch.clear();
        scratch.extend_from_slice(&parked.bytes[parked.start..parked.start + size]);
        let frame = Frame::take(&mut &scratch[..], frame_max).ok().flatten()?;
        let step = self.take_frame(&frame, &mut &[][..]);
        if !matches!(step, Step::Later | Step::Stalled)
            && let Some(channel) = self.channel_mut(number)
            && channel.parked.has_frames()
        {
            channel.parked.pass(size);
            self.parked_size -= size;
        }
        match step {
            Step::Event(event) => Some(event),
            Step::Again | Step::Later | Step::Stalled | Step::Wait => None,
        }
    }

    /// The last [`receive`](Self::receive) has left frames that wait for answers of the caller ([`reply`](Self::reply) and others,
    /// [`settle`](Self::settle)): its input is to be passed again behind these.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Frames that come on this channel have to wait.
    #[inline]
    pub(super) fn has_to_wait(&self, number: u16) -> bool {
        self.channel(number).is_some_and(|channel| channel.pending.is_some() || channel.parked.has_frames())
    }

    pub(super) fn park(&mut self, frame: &Frame<'_>) {
        let Some(channel) = self.channel_mut(frame.channel) else { return };
        let parked = &mut channel.parked;
        let before = parked.bytes.len();
        let start = begin_frame(&mut parked.bytes, frame.kind, frame.channel);
        parked.bytes.extend_from_slice(frame.payload);
        finish_frame(&mut parked.bytes, start);
        self.parked_size += parked.bytes.len() - before;
    }

    pub(super) fn set_pending(&mut self, number: u16, pending: Pending) {
        if let Some(channel) = self.channel_mut(number) {
            debug_assert!(channel.pending.is_none(), "what comes behind a request is parked");
            channel.pending = Some(pending);
        }
    }

    /// The caller answers: what was parked goes on.
    pub(super) fn take_pending(&mut self, number: u16) -> Option<Pending> {
        let channel = self.channel_mut(number)?;
        let pending = channel.pending.take()?;
        if channel.parked.has_frames() && !self.resumable.contains(&number) {
            self.resumable.push_back(number);
        }
        Some(pending)
    }

    fn is_resumable(&self, number: u16) -> bool {
        let unconfirmed_max = self.config.unconfirmed_max;
        self.channel(number).is_some_and(|channel| {
            channel.pending.is_none()
                && channel.parked.has_frames()
                && (channel.may_publish(unconfirmed_max) || !channel.parked.is_publish())
        })
    }
}

impl Channel {
    /// Whether one more message may wait for its confirm.
    #[inline]
    pub(super) fn may_publish(&self, unconfirmed_max: usize) -> bool {
        self.state != ChannelState::Open
            || self.mode != Mode::Confirm
            || self.confirms.has_room(unconfirmed_max)
    }
}
