//! What does the shard that serves a request ask of another one, or of itself?
//!
//! A question names all it needs, so whoever answers keeps nothing of it; each is answered at once and costs no more than its
//! bound, save that one about messages that are not in memory waits until they are read. What takes longer is asked in several steps, which is `plan`'s business.

use corelane_engine::{ConsumerId, Ends, Place};
use corelane_journal::{Origin, Ticket};

use super::data::{Data, Pairs};
use super::kinds::Kind;
use super::reply::{Fault, Status};
use super::{Asker, Unread};
use crate::Shard;
use crate::dead_letter_paths::Stop;
use crate::mail::{Answered, Arrived, ConnectionId, LinkRef, Mail, PublishOutcome, Query};
use crate::message::Message;
use crate::publish::Timing;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// The home of the question's queue.
    Home,
    Shard(usize),
    /// Each in turn, until one knows.
    Any,
}

/// One step of a request.
#[derive(Debug)]
pub(crate) enum Question {
    ReadQueue {
        queue: Box<str>,
    },
    Change(Change),
    /// Can it be made, and where would the queue's dead letters go then?
    Try(Change),
    DeleteQueue {
        queue: Box<str>,
    },
    /// Where do dead letters go that arrive there and die again?
    DeadLetter {
        stop: Stop,
    },
    ReadConnection {
        connection: ConnectionId,
    },
    CloseConnection {
        connection: ConnectionId,
    },
    ReadConsumer {
        consumer: ConsumerId,
    },
    ReadShard,
    ReadTopic {
        topic: Box<str>,
    },
    ReadExchange {
        exchange: Box<str>,
    },
    DeleteExchange {
        exchange: Box<str>,
    },
    ReadSubscription {
        queue: Box<str>,
    },
    DeleteSubscription {
        queue: Box<str>,
    },
    List(ListQuestion),
    Peek(PeekQuestion),
    Sweep(SweepQuestion),
    /// Messages are to come: does the queue exist, or can it be made?
    Target {
        queue: Box<str>,
    },
    /// Messages from a queue on another shard; hidden, if they are to leave that.
    Put {
        queue: Box<str>,
        messages: Vec<Moved>,
        hides: bool,
    },
    /// Those that were put elsewhere leave.
    Remove {
        queue: Box<str>,
        places: Vec<Place>,
    },
    /// Those that have left are shown; the others are where they were, and only there.
    Reveal {
        queue: Box<str>,
        shown: Vec<Arrived>,
        dropped: Vec<Arrived>,
    },
    Explain {
        queue: Box<str>,
        count: u32,
    },
    /// What a connection's shard knows of links whose consumers live elsewhere.
    Links {
        links: Vec<LinkRef>,
    },
}

/// A queue is made, or given properties.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) queue: Box<str>,
    pub(crate) kind: ChangeKind,
    pub(crate) properties: Vec<(Box<str>, Data)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Create,
    Update,
}

/// A page of the entities of a kind on one shard.
#[derive(Debug)]
pub(crate) struct ListQuestion {
    pub(crate) kind: Kind,
    /// Positions in the kind's table; none: it has no such attribute.
    pub(crate) columns: Vec<Option<u16>>,
    /// Only what is in this virtual host, whose names are shown as they are there.
    pub(crate) vhost: Box<str>,
    pub(crate) pattern: Option<Box<str>>,
    /// Go on at this index.
    pub(crate) from: u32,
    /// Pass over so many first.
    pub(crate) skip: u64,
    pub(crate) count: u32,
}

/// Messages to be shown.
#[derive(Debug)]
pub(crate) struct PeekQuestion {
    pub(crate) queue: Box<str>,
    pub(crate) from: Place,
    pub(crate) count: u32,
    /// Bytes of each body.
    pub(crate) body_max: u32,
    /// How often it has waited for messages that are not in memory.
    pub(crate) reads: u32,
}

/// A slice of a queue whose messages are to be moved, copied or deleted.
#[derive(Debug)]
pub(crate) struct SweepQuestion {
    pub(crate) queue: Box<str>,
    pub(crate) action: SweepAction,
    pub(crate) selector: Option<Box<str>>,
    /// Just these.
    pub(crate) places: Option<Box<[Place]>>,
    pub(crate) from: Place,
    /// Only what was there by then; none: by now.
    pub(crate) ends: Option<Ends>,
    pub(crate) count: u64,
    /// How often it has waited for messages that are not in memory.
    pub(crate) reads: u32,
}

impl SweepQuestion {
    /// Whether the messages themselves are looked at, or written elsewhere.
    pub(crate) fn needs_messages(&self) -> bool {
        self.selector.is_some() || self.action.stores()
    }
}

/// What happens to the messages of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SweepAction {
    Delete,
    Move { to: Box<str> },
    Copy { to: Box<str> },
}

impl SweepAction {
    /// Whether messages are written elsewhere.
    pub(crate) fn stores(&self) -> bool {
        match self {
            SweepAction::Delete => false,
            SweepAction::Move { .. } | SweepAction::Copy { .. } => true,
        }
    }
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) enum Answer {
    Said {
        status: Status,
        body: Data,
    },
    Refused(Fault),
    Rows(Rows),
    Swept(Swept),
    Stored {
        count: usize,
        /// Of the last one.
        outcome: PublishOutcome,
        hidden: Vec<Arrived>,
    },
    /// Of each of the places, whether its message was still there.
    Removed(Vec<bool>),
    /// Where dead letters go, if they are kept.
    LeadsTo(Option<Stop>),
    Explained(Box<Explained>),
    Links(Vec<Pairs>),
}

/// Entities, each a list that is encoded already.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Box<[u8]>>,
    pub(crate) skipped: u64,
    /// There may be more from this index.
    pub(crate) next: Option<u32>,
    /// Rows of which another shard knows more: consumers whose connections live there.
    pub(crate) links: Vec<RowLink>,
}

/// Who knows more of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLink {
    pub(crate) row: usize,
    pub(crate) shard: usize,
    pub(crate) link: LinkRef,
}

/// How far a sweep came.
#[derive(Debug)]
pub(crate) struct Swept {
    /// Messages that are done with.
    pub(crate) count: u64,
    /// Messages for a queue that is not here, still in their places.
    pub(crate) gathered: Vec<Moved>,
    /// What became of the last one in the target.
    pub(crate) outcome: PublishOutcome,
    /// There may be more from this place, of what was there by then.
    pub(crate) next: Option<Place>,
    pub(crate) ends: Ends,
}

/// A message on its way to another queue, as it stood in its own.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) place: Place,
    pub(crate) message: Message,
    pub(crate) timing: Timing,
    /// What the journal knows it by where it is.
    pub(crate) origin: Option<Origin>,
}

/// What a queue's home says when asked why it does not move, or for one consumer.
#[derive(Debug)]
pub(crate) struct Explained {
    /// None: the only consumer is what was asked for.
    pub(crate) queue: Option<Pairs>,
    pub(crate) consumers: Vec<ExplainedConsumer>,
}

#[derive(Debug)]
pub(crate) struct ExplainedConsumer {
    pub(crate) facts: Pairs,
    /// Its connection lives on this shard, which knows more.
    pub(crate) elsewhere: Option<(usize, LinkRef)>,
}

impl Question {
    /// The queue that it is about.
    pub(crate) fn queue(&self) -> Option<&str> {
        match self {
            Question::ReadQueue { queue }
            | Question::DeleteQueue { queue }
            | Question::ReadSubscription { queue }
            | Question::DeleteSubscription { queue }
            | Question::Target { queue }
            | Question::Put { queue, .. }
            | Question::Remove { queue, .. }
            | Question::Reveal { queue, .. }
            | Question::Explain { queue, .. } => Some(queue),
            Question::Change(change) | Question::Try(change) => Some(&change.queue),
            Question::DeadLetter { stop } => Some(stop.name()),
            Question::Peek(question) => Some(&question.queue),
            Question::Sweep(question) => Some(&question.queue),
            Question::ReadConnection { .. }
            | Question::CloseConnection { .. }
            | Question::ReadConsumer { .. }
            | Question::ReadShard
            | Question::ReadTopic { .. }
            | Question::ReadExchange { .. }
            | Question::DeleteExchange { .. }
            | Question::List(_)
            | Question::Links { .. } => None,
        }
    }
}

impl Answer {
    pub(crate) fn ok(pairs: Pairs) -> Answer {
        Answer::Said { status: Status::Ok, body: Data::Map(pairs) }
    }

    /// What was said since this mark is synced before it is answered. Of kept messages that go to another shard that is everything: synced
    /// there and not here, they would be there after a crash without the others of their transaction.
    pub(crate) fn waits_since(&self, mark: Ticket) -> Ticket {
        match self {
            Answer::Swept(swept) if swept.gathered.iter().any(|moved| moved.origin.is_some()) => Ticket(0),
            _ => mark,
        }
    }
}

impl From<Result<Answer, Fault>> for Answer {
    fn from(result: Result<Answer, Fault>) -> Self {
        result.unwrap_or_else(Answer::Refused)
    }
}

impl Shard {
    /// There is no queue of this name; it may be a topic's.
    pub(crate) fn no_queue(&self, name: &str) -> Answer {
        let Fault { status, mut why } = Fault::unknown(Kind::Queue, name);
        if self.is_topic(name) {
            why.push_str(": it is a topic; its messages are in the queues of its subscriptions (corelane subscriptions)");
        }
        Answer::Refused(Fault { status, why })
    }

    pub(crate) fn on_query(&mut self, now: u64, from: usize, query: Query) {
        let Query { request, number, mut question } = query;
        if self.waits_for_bodies(&mut question) {
            let query = Query { request, number, question };
            self.management.reading.push(Unread::Elsewhere { from, query });
            return;
        }
        let mark = self.said();
        let answer = self.answer_question(now, (from, request), question);
        let mark = answer.waits_since(mark);
        self.post_kept(mark, from, Mail::Answered(Box::new(Answered { request, number, answer })));
    }

    /// Whether a question has to wait until messages that it is about are read.
    pub(crate) fn waits_for_bodies(&mut self, question: &mut Question) -> bool {
        let missing = match question {
            Question::Peek(question) => {
                let queue = self.queues.find(&question.queue);
                queue.and_then(|queue| {
                    self.first_away(queue, question.from, question.count as usize, &mut question.reads)
                })
            }
            Question::Sweep(question) if question.action.stores() && self.has_to_write_first() => {
                return true;
            }
            Question::Put { .. } if self.has_to_write_first() => return true,
            Question::Sweep(question) => self.missing_of(question),
            _ => None,
        };
        if let Some((queue, place)) = missing {
            self.want_body(queue, place);
        }
        missing.is_some()
    }

    /// Answers what this shard is asked, by another one or by itself.
    pub(crate) fn answer_question(&mut self, now: u64, asker: Asker, question: Question) -> Answer {
        match question {
            Question::ReadQueue { queue } => self.read_queue(now, &queue),
            Question::Change(change) => self.change_queue(now, &change).into(),
            Question::Try(change) => self.try_change(&change).into(),
            Question::DeleteQueue { queue } => self.delete_named_queue(now, &queue),
            Question::DeadLetter { stop } => Answer::LeadsTo(self.next_stop(&stop)),
            Question::ReadConnection { connection } => self.read_connection(now, connection),
            Question::CloseConnection { connection } => self.close_by_operator(now, connection),
            Question::ReadConsumer { consumer } => self.read_consumer(consumer),
            Question::ReadShard => self.read_shard(),
            Question::ReadTopic { topic } => self.read_topic(&topic),
            Question::ReadExchange { exchange } => self.read_exchange(&exchange).into(),
            Question::DeleteExchange { exchange } => self.delete_named_exchange(now, &exchange).into(),
            Question::ReadSubscription { queue } => self.read_subscription(now, &queue),
            Question::DeleteSubscription { queue } => self.delete_subscription(now, &queue),
            Question::List(question) => Answer::Rows(self.list(now, &question)),
            Question::Peek(question) => self.peek(now, &question),
            Question::Sweep(question) => self.sweep(now, asker, &question),
            Question::Target { queue } => self.check_target(&queue),
            Question::Put { queue, messages, hides } => self.put(now, &queue, messages, hides),
            Question::Remove { queue, places } => self.remove_messages(now, &queue, &places),
            Question::Reveal { shown, dropped, .. } => self.end_put(now, &shown, &dropped),
            Question::Explain { queue, count } => self.explain_queue(now, &queue, count),
            Question::Links { links } => Answer::Links(self.explain_links(&links)),
        }
    }
}
