//! Who is told something when what was said is synced?

use corelane_engine::{Place, QueueId};
use corelane_journal::Ticket;
use corelane_mailbox::Lane;

use super::Said;
use crate::Shard;
use crate::amqp091::{ChannelFault, ChannelMail, ChannelRef, QueueReply};
use crate::effect::Effect;
use crate::event::ConnectionSlot;
use crate::mail::{Arrived, Handoff, LinkRef, Mail, PublishOutcome, Stored, TransactionKey, Vote};
use crate::management::{Answer, Fault, Status};
use crate::publish::Delivery;
use crate::topology::NotMade;

/// What happens when it is synced.
pub(super) enum Promise {
    /// A producer of a connection here hears that its messages are stored.
    Stored(Stored),
    /// The shard that handed messages off hears what became of them.
    HandoffStored { to: usize, handoff: Handoff },
    /// Another shard gets this.
    Post { to: usize, mail: Mail },
    /// Another shard shows what is gone here.
    Reveal { to: usize, hidden: Vec<Arrived> },
    /// This shard's own vote counts.
    Voted { transaction: TransactionKey, vote: Vote },
    /// The transaction is committed: those with a part in it are told.
    Decided { transaction: TransactionKey, parts: Vec<(usize, u32)> },
    /// This shard has done its part of it.
    Done { transaction: TransactionKey },
    /// The message at this place is shown to consumers.
    Revealed { queue: QueueId, place: Place },
    /// This shard's own answer to a question of management counts.
    Answered { number: u64, answer: Box<Answer> },
    /// A channel of a connection here hears what was done with a queue of this shard.
    Replied { channel: ChannelRef, result: Result<QueueReply, ChannelFault> },
    /// The change of this proposal is done.
    Changed { to: usize, proposal: u32 },
    /// Topics may lead to the subscription.
    Defined { queue: QueueId },
    /// The shard has stopped.
    Stopped,
}

impl Shard {
    /// Tells a producer what became of its message, when what was said since the mark is synced.
    #[inline]
    pub(crate) fn answer_kept(
        &mut self,
        slot: ConnectionSlot,
        link: LinkRef,
        delivery: Delivery,
        outcome: PublishOutcome,
        mark: Ticket,
    ) {
        match self.kept_since(mark) {
            Some(ticket) if outcome == PublishOutcome::Stored => {
                self.promise_answer(slot, link, delivery, ticket);
            }
            Some(_) | None => self.answer(slot, delivery, outcome),
        }
    }

    /// The same, of a message that was stored.
    fn promise_answer(&mut self, slot: ConnectionSlot, link: LinkRef, delivery: Delivery, ticket: Ticket) {
        let Delivery { delivery_id, settled, .. } = delivery;
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.unanswered += 1;
            if let Some(producer) = connection.producer_mut(link.link) {
                producer.unanswered += 1;
            }
        }
        self.promise_stored(ticket, link, delivery_id, settled);
    }

    /// A producer here hears that its message is stored, when the ticket is completed.
    pub(crate) fn promise_stored(&mut self, ticket: Ticket, link: LinkRef, delivery_id: u32, settled: bool) {
        let Some(durability) = &mut self.durability else { return };
        if let Some((last_ticket, Promise::Stored(run))) = durability.promises.back_mut()
            && *last_ticket > durability.begun
            && (run.link, run.settled) == (link, settled)
            && run.last.wrapping_add(1) == delivery_id
        {
            (run.last, *last_ticket) = (delivery_id, ticket);
            return;
        }
        let (first, last) = (delivery_id, delivery_id);
        let (transaction, outcome) = (None, PublishOutcome::Stored);
        let stored = Stored { link, first, last, bytes: 0, settled, transaction, outcome };
        durability.promise(ticket, Promise::Stored(stored));
    }

    /// What became of messages goes back to the shard that handed them off, when what was said since the mark is synced.
    pub(crate) fn answer_handoff_kept(&mut self, mark: Ticket, to: usize, handoff: Handoff) {
        match (self.kept_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => {
                durability.promise(ticket, Promise::HandoffStored { to, handoff });
            }
            (_, _) => self.answer_handoff(to, handoff),
        }
    }

    /// The change of this proposal is done, when what was said since the mark is synced.
    pub(crate) fn answer_change_kept(&mut self, now: u64, mark: Ticket, to: usize, proposal: u32) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => durability.promise(ticket, Promise::Changed { to, proposal }),
            (_, _) => self.answer_change(now, to, Some(proposal), Ok(())),
        }
    }

    /// Puts mail into a lane to another shard, when what was said since the mark is synced.
    pub(crate) fn post_kept(&mut self, mark: Ticket, to: usize, mail: Mail) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => durability.promise(ticket, Promise::Post { to, mail }),
            (_, _) => self.post(to, Lane::Control, mail),
        }
    }

    /// What is hidden on another shard is shown when what was said is synced.
    pub(super) fn reveal_there(&mut self, to: usize, arrived: Arrived) {
        let Some(durability) = &mut self.durability else { return };
        let ticket = durability.journal.said();
        match durability.promises.back_mut() {
            Some((last_ticket, Promise::Reveal { to: other, hidden }))
                if *other == to && *last_ticket > durability.begun =>
            {
                hidden.push(arrived);
                *last_ticket = ticket;
            }
            Some(_) | None => durability.promise(ticket, Promise::Reveal { to, hidden: vec![arrived] }),
        }
    }

    /// A message that nobody sees is shown when what was said is synced.
    pub(crate) fn reveal_kept(&mut self, queue: QueueId, place: Place) {
        if let Some(durability) = &mut self.durability {
            let ticket = durability.journal.said();
            durability.promise(ticket, Promise::Revealed { queue, place });
        }
    }

    /// Takes this shard's own answer to a question of management, when what was said since the mark is synced.
    pub(crate) fn take_answer_kept(&mut self, now: u64, mark: Ticket, number: u64, answer: Answer) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => {
                durability.promise(ticket, Promise::Answered { number, answer: Box::new(answer) });
            }
            (_, _) => self.take_answer(now, number, answer),
        }
    }

    /// Tells a channel of a connection here what was done with a queue of this shard, when what was said since the mark is synced.
    pub(crate) fn answer_channel_kept(
        &mut self,
        now: u64,
        mark: Ticket,
        channel: ChannelRef,
        result: Result<QueueReply, ChannelFault>,
    ) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => {
                durability.promise(ticket, Promise::Replied { channel, result });
            }
            (_, _) => self.on_channel_answer(now, self.index, channel, result),
        }
    }

    /// Lets topics lead to a subscription, when what was said since the mark is synced.
    pub(crate) fn bind_kept(&mut self, now: u64, mark: Ticket, queue: QueueId) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => durability.promise(ticket, Promise::Defined { queue }),
            (_, _) => self.bind_topics(now, queue),
        }
    }

    /// This shard's own vote counts, when what was said since the mark is synced.
    pub(crate) fn vote_kept(&mut self, now: u64, mark: Ticket, transaction: TransactionKey, vote: Vote) {
        match (self.said_since(mark), &mut self.durability) {
            (Some(ticket), Some(durability)) => {
                durability.promise(ticket, Promise::Voted { transaction, vote });
            }
            (_, _) => self.on_voted(now, self.index, transaction, vote),
        }
    }

    /// Says that the shard has stopped, and that all counts are exact; again, when other shards have had something to say meanwhile. True
    /// if that is still to be written.
    pub(crate) fn stop_journal(&mut self, now: u64, first: bool) -> bool {
        let Some(durability) = self.durability.as_mut().filter(|durability| !durability.journal.is_failed())
        else {
            self.effects.extend(first.then_some(Effect::Stopped));
            return false;
        };
        if durability.stopped == Some(durability.journal.said()) {
            return false;
        }
        durability.say(Said::Stopped { time: now });
        let ticket = durability.journal.said();
        durability.stopped = Some(ticket);
        if first {
            durability.promise(ticket, Promise::Stopped);
        }
        true
    }

    /// What was said last cannot be written: the shard has stopped all the same, and its counts are not exact.
    pub(super) fn stop_unwritten(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let is_stop = |(_, promise): &(Ticket, Promise)| matches!(promise, Promise::Stopped);
        if let Some(at) = durability.promises.iter().position(is_stop) {
            durability.promises.remove(at);
            self.effects.push(Effect::Stopped);
        }
    }

    /// The ticket of what was said since, if a producer has to wait for it. What is stored after a write has failed is not durable.
    pub(crate) fn kept_since(&self, mark: Ticket) -> Option<Ticket> {
        self.said_since(mark).filter(|_| !self.has_failed())
    }

    /// After a write has failed producers are refused what is not on the disk, and what waits for the disk to be shown here is shown. Nobody
    /// hears of anything else, as nobody knows whether it is so after the next start. What has gone to another shard stays hidden there
    /// until then: it may be here again, and would be had twice.
    fn break_promises(&mut self, now: u64) -> bool {
        let Some(durability) = &mut self.durability else { return false };
        let promises = std::mem::take(&mut durability.promises);
        let any = !promises.is_empty();
        for (_, promise) in promises {
            match promise {
                Promise::Stored(stored) => {
                    self.on_kept(&Stored { outcome: PublishOutcome::NoDisk, ..stored });
                }
                Promise::HandoffStored { to, mut handoff } => {
                    let stored = handoff.answers.iter_mut().filter(|it| it.outcome == PublishOutcome::Stored);
                    stored.for_each(|answer| answer.outcome = PublishOutcome::NoDisk);
                    self.answer_handoff(to, handoff);
                }
                // There is room for others on their way here. These are not kept, so they are not gone where they were.
                Promise::Post { to, mail: Mail::Forwarded { count, bytes, lost, .. } } => {
                    self.post(to, Lane::Control, Mail::Forwarded { count, bytes, lost, kept: Vec::new() });
                }
                Promise::Revealed { .. } | Promise::Stopped => {
                    self.keep_promise(now, promise);
                }
                Promise::Answered { number, .. } => self.take_answer(now, number, unsynced()),
                Promise::Post { to, mail: Mail::Answered(mut answered) } => {
                    answered.answer = unsynced();
                    self.post(to, Lane::Control, Mail::Answered(answered));
                }
                Promise::Post { to, mail: Mail::Channel(ChannelMail::Answer { channel, .. }) } => {
                    let result = Err(ChannelFault::disk_failed());
                    let mail = Mail::Channel(ChannelMail::Answer { channel, result });
                    self.post(to, Lane::Control, mail);
                }
                Promise::Replied { channel, .. } => {
                    self.on_channel_answer(now, self.index, channel, Err(ChannelFault::disk_failed()));
                }
                Promise::Changed { to, proposal } => {
                    self.answer_change(now, to, Some(proposal), Err(NotMade::Disk));
                }
                Promise::Post { .. }
                | Promise::Reveal { .. }
                | Promise::Voted { .. }
                | Promise::Decided { .. }
                | Promise::Done { .. }
                | Promise::Defined { .. } => {}
            }
        }
        any
    }

    /// Keeps the promises whose time has come. True if there were any.
    pub(super) fn keep_promises(&mut self, now: u64) -> bool {
        if self.has_failed() {
            return self.break_promises(now);
        }
        let mut any = false;
        while let Some(durability) = &mut self.durability
            && let completed = durability.journal.completed()
            && let Some((_, promise)) = durability.promises.pop_front_if(|(ticket, _)| *ticket <= completed)
        {
            any = true;
            self.keep_promise(now, promise);
        }
        any
    }

    fn keep_promise(&mut self, now: u64, promise: Promise) {
        match promise {
            Promise::Stored(stored) => self.on_kept(&stored),
            Promise::HandoffStored { to, handoff } => self.answer_handoff(to, handoff),
            Promise::Post { to, mail } => self.post(to, Lane::Control, mail),
            Promise::Reveal { to, hidden } => self.post(to, Lane::Control, Mail::Reveal(hidden)),
            Promise::Voted { transaction, vote } => self.on_voted(now, self.index, transaction, vote),
            Promise::Decided { transaction, parts } => self.on_decision_kept(now, transaction, &parts),
            Promise::Done { transaction } => self.on_part_done(now, transaction),
            Promise::Revealed { queue, place } => {
                self.engine.commit_pending(now, queue, place);
            }
            Promise::Answered { number, answer } => self.take_answer(now, number, *answer),
            Promise::Replied { channel, result } => {
                self.on_channel_answer(now, self.index, channel, result);
            }
            Promise::Changed { to, proposal } => self.answer_change(now, to, Some(proposal), Ok(())),
            Promise::Defined { queue } => self.bind_topics(now, queue),
            Promise::Stopped => self.effects.push(Effect::Stopped),
        }
    }
}

/// What an operator hears of something that is done, and of which nobody knows whether it will be after the next start.
fn unsynced() -> Answer {
    let why = "it may not outlive the broker, as the journal could not be written: mend the disk and start the broker again";
    Answer::Refused(Fault { status: Status::Unavailable, why: why.to_owned() })
}
