//! Which questions does a request come to, in which order, and what do their answers make together?
//!
//! One question at a time is on its way for a request. A listing goes from shard to shard and kind to kind until its page is
//! full, and asks the shards of connections for what rows of consumers lack; a sweep goes on from where the slice before ended; an explanation asks the queue's home, then the shards of those
//! consumers whose connections live elsewhere.

use std::fmt;

use corelane_engine::{Ends, Place};
use corelane_wire::amqp10::{Encode, Value};

use super::consumers::LINK_ATTRIBUTES;
use super::data::{Data, Pairs, pairs};
use super::following::Following;
use super::kinds::{self, Kind};
use super::question::{
    Answer, Explained, ListQuestion, Question, RowLink, Rows, SweepAction, SweepQuestion, Swept, Where,
};
use super::reply::{Fault, Reply, Status};
use super::request::{Command, Mark, Query, Sweep};
use crate::limits::{ANSWER_BYTES_MAX, SWEEP_STEPS_MAX};
use crate::mail::{Arrived, LinkRef, PublishOutcome};

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    Ask(usize, Question),
    Done(Reply),
}

/// A request that is being served.
#[derive(Debug)]
pub(crate) enum Plan {
    One,
    /// Shard after shard, from this one.
    Search {
        question: SearchFor,
        shard: usize,
    },
    List(Listing),
    Sweep(Box<Sweeping>),
    Explain(Option<Box<Explaining>>),
    /// A change that may lead dead letters in a circle.
    Follow(Box<Following>),
}

/// What each shard is asked for in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SearchFor {
    Read(crate::mail::ConnectionId),
    Close(crate::mail::ConnectionId),
}

/// Where queues live, for whoever asks.
pub(crate) struct Layout<'a> {
    pub(crate) shards: usize,
    pub(crate) home: &'a dyn Fn(&str) -> usize,
}

/// A page that is being put together.
#[derive(Debug)]
pub(crate) struct Listing {
    kinds: Vec<Kind>,
    names: Vec<Box<str>>,
    vhost: Box<str>,
    pattern: Option<Box<str>>,
    skip: u64,
    count: u32,
    mark: Mark,
    rows: Vec<Data>,
    bytes: usize,
    /// Of which of the rows other shards know more, and of which one has just been asked.
    links: Vec<RowLink>,
    asked: Vec<usize>,
}

/// Messages that are being moved, copied or deleted.
#[derive(Debug)]
pub(crate) struct Sweeping {
    sweep: Sweep,
    from: Place,
    /// How many of the places were asked for.
    asked: usize,
    /// What was there when it began.
    ends: Option<Ends>,
    done: u64,
    phase: SweepPhase,
    /// Where to go on behind the slice that is under way.
    next: Option<Place>,
}

#[derive(Debug)]
enum SweepPhase {
    /// Whether there is a queue to move to.
    Target,
    Slice,
    /// The slice's messages are on their way to the target's home.
    Put {
        places: Vec<Place>,
    },
    /// Those that arrived leave.
    Remove {
        hidden: Vec<Arrived>,
        outcome: PublishOutcome,
    },
    /// Those that have left are shown.
    Reveal {
        outcome: PublishOutcome,
    },
}

/// An explanation that waits for what other shards know.
#[derive(Debug)]
pub(crate) struct Explaining {
    explained: Explained,
    /// The shard that is asked, and for which of the consumers.
    asked: usize,
    consumers: Vec<usize>,
    /// Shards that were asked, or passed over.
    done_below: usize,
}

/// Begins.
pub(crate) fn start(command: Command, layout: &Layout<'_>) -> (Plan, Step) {
    let said = |body| (Plan::One, Step::Done(Reply::new(Status::Ok, body)));
    match command {
        Command::Types(of) => said(Data::Map(kinds::types(of))),
        Command::Attributes(of) => said(Data::Map(kinds::attributes(of))),
        Command::Operations(of) => said(Data::Map(kinds::operations(of))),
        Command::Nodes => said(Data::List(vec![Data::from(super::ADDRESS)])),
        Command::Query(query) => {
            let listing = Listing::new(query);
            let step = listing.step(layout);
            (Plan::List(listing), step)
        }
        Command::Ask(place, question) => start_asking(place, *question, layout),
        Command::Sweep(sweep) => {
            let sweeping = Sweeping::new(sweep);
            let step = sweeping.first(layout);
            (Plan::Sweep(Box::new(sweeping)), step)
        }
        Command::Explain { queue, count } => {
            let home = (layout.home)(&queue);
            (Plan::Explain(None), Step::Ask(home, Question::Explain { queue, count }))
        }
    }
}

fn start_asking(place: Where, question: Question, layout: &Layout<'_>) -> (Plan, Step) {
    match (place, question) {
        (Where::Any, Question::ReadConnection { connection }) => search(SearchFor::Read(connection), 0),
        (Where::Any, Question::CloseConnection { connection }) => search(SearchFor::Close(connection), 0),
        (Where::Shard(shard), _) if shard >= layout.shards => {
            let why = format!("there is no shard {shard}: there are {}", layout.shards);
            (Plan::One, Step::Done(Fault { status: Status::NotFound, why }.into()))
        }
        (Where::Shard(shard), question @ Question::ReadConsumer { .. }) => {
            (Plan::Explain(None), Step::Ask(shard, question))
        }
        (Where::Shard(shard), question) => (Plan::One, Step::Ask(shard, question)),
        (Where::Home, Question::Change(change)) if change.leads_dead_letters() => {
            let (following, step) = Following::start(change, layout);
            (Plan::Follow(Box::new(following)), step)
        }
        (Where::Home | Where::Any, question) => {
            let home = question.queue().map_or(0, layout.home);
            (Plan::One, Step::Ask(home, question))
        }
    }
}

fn search(question: SearchFor, shard: usize) -> (Plan, Step) {
    (Plan::Search { question, shard }, Step::Ask(shard, question.question()))
}

impl SearchFor {
    fn question(self) -> Question {
        match self {
            SearchFor::Read(connection) => Question::ReadConnection { connection },
            SearchFor::Close(connection) => Question::CloseConnection { connection },
        }
    }
}

impl Plan {
    /// Takes the answer to the question that was on its way.
    pub(crate) fn take(&mut self, answer: Answer, layout: &Layout<'_>) -> Step {
        match (self, answer) {
            (Plan::Search { question, shard }, Answer::Refused(fault)) => {
                *shard += 1;
                if fault.status == Status::NotFound && *shard < layout.shards {
                    return Step::Ask(*shard, question.question());
                }
                Step::Done(fault.into())
            }
            (Plan::Sweep(sweeping), Answer::Refused(fault)) => {
                let why = format!("{}{}", fault.why, sweeping.done_before());
                Step::Done(Fault { why, ..fault }.into())
            }
            (_, Answer::Refused(fault)) => Step::Done(fault.into()),
            (Plan::List(listing), Answer::Rows(rows)) => listing.take(rows, layout),
            (Plan::List(listing), Answer::Links(links)) => {
                listing.merge(links);
                listing.go_on(layout)
            }
            (Plan::Sweep(sweeping), answer) => sweeping.take(answer, layout),
            (Plan::Explain(explaining), Answer::Explained(explained)) => {
                let consumers = Vec::new();
                let started = Explaining { explained: *explained, asked: 0, consumers, done_below: 0 };
                explaining.insert(Box::new(started)).step(layout)
            }
            (Plan::Explain(Some(explaining)), Answer::Links(links)) => {
                explaining.merge(links);
                explaining.step(layout)
            }
            (Plan::Follow(following), Answer::LeadsTo(next)) => following.take(next, layout),
            (_, Answer::Said { status, body }) => Step::Done(Reply::new(status, body)),
            (
                _,
                Answer::Rows(_)
                | Answer::Swept(_)
                | Answer::Stored { .. }
                | Answer::Removed(_)
                | Answer::LeadsTo(_)
                | Answer::Explained(_)
                | Answer::Links(_),
            ) => {
                unreachable!("a shard answers what it was asked")
            }
        }
    }

    /// What is done to messages, if it is that.
    pub(crate) fn sweeping(&self) -> Option<&Sweeping> {
        match self {
            Plan::Sweep(sweeping) => Some(sweeping),
            Plan::One | Plan::Search { .. } | Plan::List(_) | Plan::Explain(_) | Plan::Follow(_) => None,
        }
    }

    /// Whether the answer that comes next has to be acted upon, even if nobody hears of it any more: messages that are moved are in both
    /// queues, and hidden in one.
    pub(crate) fn is_halfway(&self) -> bool {
        self.sweeping().is_some_and(|it| it.is_between() && !matches!(it.phase, SweepPhase::Reveal { .. }))
    }

    /// The queue that nobody else may take messages from before this has ended.
    pub(crate) fn moved_elsewhere(&self, layout: &Layout<'_>) -> Option<&str> {
        let Sweep { queue, action: SweepAction::Move { to }, .. } = &self.sweeping()?.sweep else {
            return None;
        };
        ((layout.home)(queue) != (layout.home)(to)).then_some(queue)
    }

    /// The shard that was asked has not answered in time.
    pub(crate) fn give_up(&mut self, shard: usize, layout: &Layout<'_>) -> Step {
        // A queue can be explained although a shard of its consumers stalls: that may be the explanation.
        if let Plan::Explain(Some(explaining)) = self {
            let silent = format!("shard {shard}, where its connection lives, does not answer");
            let facts = explaining.consumers.iter().map(|_| pairs!["problem" => silent.clone()]).collect();
            explaining.merge(facts);
            return explaining.step(layout);
        }
        if let Plan::List(listing) = self
            && !listing.asked.is_empty()
        {
            listing.merge(Vec::new());
            return listing.go_on(layout);
        }
        let done = self.sweeping().map(Sweeping::done_before).unwrap_or_default();
        let why = format!("shard {shard} did not answer in time{done}");
        Step::Done(Fault { status: Status::Timeout, why }.into())
    }
}

impl Listing {
    fn new(query: Query) -> Listing {
        let Query { kinds, mut names, vhost, pattern, offset, count, from } = query;
        if names.is_empty() {
            for name in kinds.iter().flat_map(|kind| kind.attributes()) {
                if !names.iter().any(|known| **known == *name) {
                    names.push(name.into());
                }
            }
        }
        let mark = from.unwrap_or_default();
        let (rows, links, asked) = (Vec::new(), Vec::new(), Vec::new());
        Listing { kinds, names, vhost, pattern, skip: offset, count, mark, rows, bytes: 0, links, asked }
    }

    fn step(&self, layout: &Layout<'_>) -> Step {
        let Some(&kind) = self.kinds.get(self.mark.kind) else { return Step::Done(self.page(None)) };
        if self.mark.shard >= layout.shards {
            return Step::Done(self.page(None));
        }
        let attributes = kind.attributes();
        let position = |name: &str| attributes.iter().position(|known| *known == name).map(|at| at as u16);
        Step::Ask(
            self.mark.shard,
            Question::List(ListQuestion {
                kind,
                columns: self.names.iter().map(|name| position(name)).collect(),
                vhost: self.vhost.clone(),
                pattern: self.pattern.clone(),
                from: self.mark.index,
                skip: self.skip,
                count: self.count - self.rows.len() as u32,
            }),
        )
    }

    fn take(&mut self, answer: Rows, layout: &Layout<'_>) -> Step {
        let Rows { rows, skipped, next, links } = answer;
        if self.names.iter().any(|name| LINK_ATTRIBUTES.contains(&&**name)) {
            let before = self.rows.len();
            self.links = links.into_iter().map(|link| RowLink { row: before + link.row, ..link }).collect();
        }
        self.skip = self.skip.saturating_sub(skipped);
        self.bytes += rows.iter().map(|row| row.len()).sum::<usize>();
        self.rows.extend(rows.into_iter().map(Data::Encoded));
        match next {
            Some(index) => self.mark.index = index,
            None if self.mark.shard + 1 < layout.shards => {
                self.mark = Mark { shard: self.mark.shard + 1, index: 0, ..self.mark }
            }
            None => self.mark = Mark { kind: self.mark.kind + 1, shard: 0, index: 0 },
        }
        self.go_on(layout)
    }

    fn go_on(&mut self, layout: &Layout<'_>) -> Step {
        if let Some(&RowLink { shard, .. }) = self.links.first() {
            let (asked, left) = self.links.iter().partition(|link| link.shard == shard);
            self.links = left;
            let asked: Vec<RowLink> = asked;
            self.asked = asked.iter().map(|link| link.row).collect();
            return Step::Ask(shard, Question::Links { links: asked.iter().map(|link| link.link).collect() });
        }
        if self.mark.kind >= self.kinds.len() {
            Step::Done(self.page(None))
        } else if self.rows.len() >= self.count as usize || self.bytes >= ANSWER_BYTES_MAX {
            Step::Done(self.page(Some(self.mark)))
        } else {
            self.step(layout)
        }
    }

    /// What the shards of connections say of their links stands for what the queue's shard did not know.
    fn merge(&mut self, links: Vec<Pairs>) {
        for (index, link) in std::mem::take(&mut self.asked).into_iter().zip(links) {
            let Some(Data::Encoded(row)) = self.rows.get(index) else { continue };
            let Ok(Value::List(cells)) = Value::decode(row) else { continue };
            let known =
                |name: &str| link.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
            let cells = cells.iter().flatten().zip(&self.names);
            let cells = cells.map(|(cell, name)| known(name).unwrap_or_else(|| Data::encoded(&cell)));
            let (before, mut merged) = (row.len(), Vec::new());
            Data::List(cells.collect()).encode(&mut merged);
            self.bytes += merged.len().saturating_sub(before);
            self.rows[index] = Data::Encoded(merged.into());
        }
    }

    fn page(&self, next: Option<Mark>) -> Reply {
        let names = self.names.iter().map(|name| Data::from(name.to_string())).collect();
        let body = pairs!["attributeNames" => Data::List(names), "results" => Data::List(self.rows.clone())];
        let mut reply = Reply::new(Status::Ok, Data::Map(body));
        reply.properties = pairs!["count" => Data::Int(self.rows.len() as i64)];
        if let Some(mark) = next {
            reply.properties.push(("next".into(), Data::from(mark.to_text())));
        }
        reply
    }
}

/// How far it has come.
impl fmt::Display for Sweeping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sweep { queue, action, .. } = &self.sweep;
        write!(formatter, "{} messages of {:?} ", self.done, crate::vhost::plain(queue))?;
        match action {
            SweepAction::Delete => formatter.write_str("were deleted"),
            SweepAction::Move { to } => write!(formatter, "were moved to {to:?}"),
            SweepAction::Copy { to } => write!(formatter, "were copied to {to:?}"),
        }
    }
}

impl Sweeping {
    fn new(sweep: Sweep) -> Sweeping {
        let phase = if sweep.action == SweepAction::Delete { SweepPhase::Slice } else { SweepPhase::Target };
        Sweeping { sweep, from: Place(0), asked: 0, ends: None, done: 0, phase, next: None }
    }

    fn first(&self, layout: &Layout<'_>) -> Step {
        match self.target() {
            Some(to) => Step::Ask((layout.home)(to), Question::Target { queue: to.into() }),
            None => self.slice(layout),
        }
    }

    /// Whether messages are in two queues, or hidden, until the answer comes.
    pub(crate) fn is_between(&self) -> bool {
        let is_move = matches!(self.sweep.action, SweepAction::Move { .. });
        is_move && !matches!(self.phase, SweepPhase::Target | SweepPhase::Slice)
    }

    fn done_before(&self) -> String {
        match self.done {
            0 => String::new(),
            done => format!("; {done} messages were done with before"),
        }
    }

    fn target(&self) -> Option<&str> {
        match &self.sweep.action {
            SweepAction::Delete => None,
            SweepAction::Move { to } | SweepAction::Copy { to } => Some(to),
        }
    }

    fn slice(&self, layout: &Layout<'_>) -> Step {
        let Sweep { queue, action, selector, places, count } = &self.sweep;
        let places = places.as_ref().map(|places| {
            let until = (self.asked + SWEEP_STEPS_MAX).min(places.len());
            places[self.asked..until].into()
        });
        let question = SweepQuestion {
            queue: queue.clone(),
            action: action.clone(),
            selector: selector.clone(),
            places,
            from: self.from,
            ends: self.ends.clone(),
            count: count - self.done,
            reads: 0,
        };
        Step::Ask((layout.home)(queue), Question::Sweep(question))
    }

    fn take(&mut self, answer: Answer, layout: &Layout<'_>) -> Step {
        match (&mut self.phase, answer) {
            (SweepPhase::Target, Answer::Said { .. }) => {
                self.phase = SweepPhase::Slice;
                self.slice(layout)
            }
            (SweepPhase::Slice, Answer::Swept(swept)) => self.take_slice(swept, layout),
            (SweepPhase::Put { places }, Answer::Stored { count, outcome, hidden }) => {
                let mut places = std::mem::take(places);
                places.truncate(count);
                if matches!(self.sweep.action, SweepAction::Move { .. }) && !places.is_empty() {
                    self.phase = SweepPhase::Remove { hidden, outcome };
                    let queue = self.sweep.queue.clone();
                    return Step::Ask((layout.home)(&queue), Question::Remove { queue, places });
                }
                self.done += places.len() as u64;
                self.go_on(outcome, layout)
            }
            (SweepPhase::Remove { hidden, outcome }, Answer::Removed(removed)) => {
                let (hidden, outcome) = (std::mem::take(hidden), *outcome);
                self.done += removed.iter().filter(|removed| **removed).count() as u64;
                self.phase = SweepPhase::Reveal { outcome };
                let (mut shown, mut dropped) = (Vec::new(), Vec::new());
                for (arrived, removed) in hidden.into_iter().zip(removed) {
                    if removed { shown.push(arrived) } else { dropped.push(arrived) }
                }
                let queue: Box<str> = self.target().unwrap_or_default().into();
                Step::Ask((layout.home)(&queue), Question::Reveal { queue, shown, dropped })
            }
            (SweepPhase::Reveal { outcome }, Answer::Said { .. }) => {
                let outcome = *outcome;
                self.go_on(outcome, layout)
            }
            (_, answer) => unreachable!("a shard answers what it was asked, not {answer:?}"),
        }
    }

    fn take_slice(&mut self, swept: Swept, layout: &Layout<'_>) -> Step {
        let Swept { count, gathered, outcome, next, ends } = swept;
        self.ends = Some(ends);
        self.done += count;
        self.next = next;
        let Some(to) = self.target().map(Box::<str>::from).filter(|_| !gathered.is_empty()) else {
            return self.go_on(outcome, layout);
        };
        let places = gathered.iter().map(|moved| moved.place).collect();
        self.phase = SweepPhase::Put { places };
        let hides = matches!(self.sweep.action, SweepAction::Move { .. });
        Step::Ask((layout.home)(&to), Question::Put { queue: to, messages: gathered, hides })
    }

    fn go_on(&mut self, outcome: PublishOutcome, layout: &Layout<'_>) -> Step {
        self.phase = SweepPhase::Slice;
        if let Some(why) = why_not_moved(outcome) {
            let why = format!("{why}; {} messages were done with before", self.done);
            return Step::Done(Fault { status: Status::Conflict, why }.into());
        }
        let more = match &self.sweep.places {
            Some(places) => {
                self.asked = match self.next {
                    // The slice had to end before it.
                    Some(next) => places.partition_point(|place| *place < next),
                    None => (self.asked + SWEEP_STEPS_MAX).min(places.len()),
                };
                self.asked < places.len()
            }
            None => self.next.is_some(),
        };
        if more && self.done < self.sweep.count {
            self.from = self.next.unwrap_or(self.from);
            return self.slice(layout);
        }
        Step::Done(Reply::new(Status::Ok, Data::Map(pairs!["count" => self.done])))
    }
}

/// What an operator is told of a message that the target did not take.
fn why_not_moved(outcome: PublishOutcome) -> Option<&'static str> {
    match outcome {
        PublishOutcome::Stored => None,
        PublishOutcome::Full => Some("the target is full (messages-max, bytes-max)"),
        PublishOutcome::NoRoom => Some(
            "the broker's memory for messages is full (--memory), or the target's shard has no room for more entries",
        ),
        PublishOutcome::NoDisk => Some("the target is kept on disk, which is full or has failed"),
        PublishOutcome::NoQueue
        | PublishOutcome::NoSubscription
        | PublishOutcome::NoAddress
        | PublishOutcome::Malformed
        | PublishOutcome::NoTransaction
        | PublishOutcome::TransactionTimedOut
        | PublishOutcome::TransactionFull
        | PublishOutcome::NotTransactional
        | PublishOutcome::Denied => Some("the target is gone"),
    }
}

impl Explaining {
    /// Asks the next shard that knows more of some consumer.
    fn step(&mut self, layout: &Layout<'_>) -> Step {
        for shard in self.done_below..layout.shards {
            let on_shard = |index: &usize| {
                self.explained.consumers[*index].elsewhere.is_some_and(|(home, _)| home == shard)
            };
            let consumers: Vec<usize> = (0..self.explained.consumers.len()).filter(on_shard).collect();
            if !consumers.is_empty() {
                let link = |index: &usize| self.explained.consumers[*index].elsewhere.map(|(_, link)| link);
                let links: Vec<LinkRef> = consumers.iter().filter_map(link).collect();
                (self.asked, self.done_below, self.consumers) = (shard, shard + 1, consumers);
                return Step::Ask(shard, Question::Links { links });
            }
        }
        let Explained { queue, consumers } =
            std::mem::replace(&mut self.explained, Explained { queue: None, consumers: Vec::new() });
        let mut consumers = consumers.into_iter().map(|consumer| consumer.facts);
        let body = match queue {
            Some(mut body) => {
                body.push(("consumers".into(), Data::List(consumers.map(Data::Map).collect())));
                body
            }
            None => consumers.next().unwrap_or_default(),
        };
        Step::Done(Reply::new(Status::Ok, Data::Map(body)))
    }

    /// What the connection's shard says is added, and stands for what the home did not know.
    fn merge(&mut self, links: Vec<Pairs>) {
        for (index, link) in std::mem::take(&mut self.consumers).into_iter().zip(links) {
            let facts = &mut self.explained.consumers[index].facts;
            for (key, value) in link {
                facts.retain(|(known, _)| *known != key);
                facts.push((key, value));
            }
        }
    }
}
