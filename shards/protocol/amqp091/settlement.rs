//! What became of what we sent on a channel, and who is to hear it?
//!
//! A delivery is recorded until its outcome is told to the caller, in the order of the tags. In a transaction it stays recorded, with
//! its outcome, until the commit; a roll-back takes the outcome away. `sent_within` of a channel counts those.

use corelane_wire::amqp091::{ReplyCode, basic, tx};

use super::channel::{Mode, Pending, PendingKind};
use super::connection::{Connection, Queued, Step};
use super::event::{Event, Outcome, Request};
use super::fault::{self, Fault};
use super::link::LinkEnd;
use crate::delivery::Disposed;
use crate::ids::{LinkId, SessionId, Token};
use crate::unsettled::Position;

/// A sent delivery that is unsettled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) token: Token,
    pub(super) link: u32,
    pub(super) mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The peer has not said anything.
    Unsettled,
    /// What it has said holds when its transaction commits.
    Within(Outcome),
}

/// Outcomes that [`Connection::poll_outcome`] is telling of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disposing {
    channel: u16,
    next: u32,
    last: u32,
    /// Which of the deliveries are meant.
    mark: Mark,
}

impl Connection {
    /// After [`Event::Disposition`]: the next sent delivery that it means, in the order of sending, each only once.
    #[inline]
    pub fn poll_outcome(&mut self) -> Option<Disposed> {
        loop {
            let Disposing { channel: number, next, last, mark } = self.disposing?;
            let sent = self.channel(number).map(|channel| &channel.sent);
            let Some((position, delivery_id, &found)) = sent.and_then(|sent| sent.next_in(next, last)) else {
                self.disposing = None;
                return None;
            };
            if delivery_id == last {
                self.disposing = None;
            } else if let Some(disposing) = &mut self.disposing {
                disposing.next = delivery_id.wrapping_add(1);
            }
            if found.mark != mark {
                continue;
            }
            self.remove_sent(number, position, found);
            let (link, token) = (LinkId(found.link), found.token);
            return Some(Disposed { link, token, delivery_id, settled: true });
        }
    }

    /// A delivery is settled: its link, or all consumers of its channel, may have more.
    #[inline]
    fn remove_sent(&mut self, number: u16, position: Position, sent: Sent) {
        let unsettled_max = self.config.unsettled_max;
        let Some(channel) = self.channels.get_mut(number) else {
            return;
        };
        let had_room = channel.has_room(unsettled_max);
        channel.sent.remove_at(position);
        channel.sent_within -= usize::from(sent.mark != Mark::Unsettled);
        let mut all_wake = !had_room && channel.has_room(unsettled_max);
        let mut one_wakes = false;
        let link = &mut self.links[sent.link as usize];
        if let LinkEnd::Consumer(consumer) = &link.end {
            all_wake |= channel.consumers_unsettled == usize::from(channel.prefetch_all);
            one_wakes = link.unsettled == usize::from(consumer.prefetch);
            channel.consumers_unsettled -= 1;
        }
        link.unsettled -= 1;
        if all_wake {
            self.queue.push_back(Queued::SessionFlow { session: number });
        } else if one_wakes {
            self.queue.push_back(Queued::LinkFlow { link: sent.link });
        }
        self.retire_if_done(sent.link as usize);
    }

    /// The peer's ack, nack or reject.
    #[inline]
    pub(super) fn handle_outcome<'a>(
        &mut self,
        number: u16,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
    ) -> Result<Step<'a>, Fault> {
        let Some(channel) = self.channel_mut(number) else { return Ok(Step::Again) };
        let Some(oldest) = channel.sent.first_id() else {
            return if tag == 0 && multiple {
                Ok(Step::Again)
            } else {
                Err(fault::unknown_delivery_tag(tag))
            };
        };
        let newest = (channel.delivery_tag_next - 1) as u32;
        let (first, last) = if tag == 0 && multiple {
            (oldest, newest)
        } else {
            // Tags are told from each other by their low half, since all that are unsettled lie within 2^31.
            let behind = channel.delivery_tag_next.checked_sub(tag).filter(|&behind| behind > 0);
            let span = u64::from(newest.wrapping_sub(oldest));
            let known = tag > 0 && behind.is_some_and(|behind| behind <= span + 1);
            let found = channel.sent.find(tag as u32).filter(|sent| known && sent.mark == Mark::Unsettled);
            if found.is_none() {
                return Err(fault::unknown_delivery_tag(tag));
            }
            (if multiple { oldest } else { tag as u32 }, tag as u32)
        };
        if channel.mode == Mode::Transaction {
            channel.mark_within(first, last, outcome);
            return Ok(Step::Again);
        }
        self.disposing = Some(Disposing { channel: number, next: first, last, mark: Mark::Unsettled });
        let session = SessionId(number.into());
        Ok(Step::Event(Event::Disposition { session, outcome, transaction: false }))
    }

    pub(super) fn handle_recover<'a>(
        &mut self,
        number: u16,
        requeue: bool,
        answer: bool,
    ) -> Result<Step<'a>, Fault> {
        if !requeue {
            return Err(Fault::new(ReplyCode::NotImplemented, "requeue=false"));
        }
        if answer {
            self.write(number, &basic::RecoverOk {});
        }
        let Some(channel) = self.channel(number) else { return Ok(Step::Again) };
        if channel.sent.count() == channel.sent_within {
            return Ok(Step::Again);
        }
        self.dispose_all(number, Mark::Unsettled);
        let session = SessionId(number.into());
        Ok(Step::Event(Event::Disposition { session, outcome: Outcome::Released, transaction: false }))
    }

    /// Tells of the transaction's outcomes, then asks the caller to commit.
    pub(super) fn commit<'a>(&mut self, number: u16) -> Step<'a> {
        let Some(channel) = self.channels.get(number) else { return Step::Again };
        if channel.sent_within > 0 {
            let session = number;
            let queue = &mut self.queue;
            for outcome in [Outcome::Accepted, Outcome::Rejected, Outcome::Released] {
                if channel.sent.iter().any(|(_, sent)| sent.mark == Mark::Within(outcome)) {
                    queue.push_back(Queued::Committing { session, outcome });
                }
            }
            return Step::Later;
        }
        self.ask(number, tx::Commit::ID, false, Request::TxCommit)
    }

    /// Takes the transaction's outcomes back, then asks the caller to do so with its messages.
    pub(super) fn roll_back<'a>(&mut self, number: u16) -> Step<'a> {
        if let Some(channel) = self.channel_mut(number)
            && std::mem::take(&mut channel.sent_within) > 0
        {
            channel.sent.iter_mut().for_each(|sent| sent.mark = Mark::Unsettled);
        }
        self.ask(number, tx::Rollback::ID, false, Request::TxRollback)
    }

    /// Lets `poll_outcome` tell of all deliveries with this mark.
    pub(super) fn dispose_all(&mut self, number: u16, mark: Mark) {
        let Some(channel) = self.channel(number) else { return };
        let Some(next) = channel.sent.first_id() else { return };
        let last = (channel.delivery_tag_next - 1) as u32;
        self.disposing = Some(Disposing { channel: number, next, last, mark });
    }

    /// Asks the caller, and lets the channel wait for it.
    pub(super) fn ask<'a>(
        &mut self,
        number: u16,
        method: corelane_wire::amqp091::MethodId,
        no_wait: bool,
        request: Request<'a>,
    ) -> Step<'a> {
        self.set_pending(number, Pending { method, no_wait, kind: PendingKind::Request });
        Step::Event(Event::Request { session: SessionId(number.into()), request })
    }
}

impl super::channel::Channel {
    fn mark_within(&mut self, first: u32, last: u32, outcome: Outcome) {
        let mut next = first;
        while let Some((_, id, found)) = self.sent.next_in(next, last) {
            if found.mark == Mark::Unsettled
                && let Some((_, sent)) = self.sent.find_mut(id)
            {
                sent.mark = Mark::Within(outcome);
                self.sent_within += 1;
            }
            if id == last {
                return;
            }
            next = id.wrapping_add(1);
        }
    }
}
