//! Why does a queue not move? What each consumer waits for, and why nobody takes the first message, in codes for programs and
//! sentences for operators.

use corelane_engine::{
    Cause, ConsumerId, ConsumerList, ConsumerView, Depth, EntryState, Overflow, PauseReason, Place, QueueId,
    QueueProperties, Verdict,
};
use corelane_wire::amqp10::Property;

use super::consumers::{self, ConsumerFacts, LinkFacts};
use super::data::{Data, Pairs, pairs, size_of_pairs};
use super::question::{Answer, Explained, ExplainedConsumer};
use super::request::place_text;
use super::show::show_property;
use crate::Shard;
use crate::limits::{ANSWER_BYTES_MAX, EXPLAIN_GROUPS_MAX, EXPLAIN_TALLY_MAX};
use crate::mail::LinkRef;

impl Shard {
    /// What a queue's home knows.
    pub(crate) fn explain_queue(&mut self, now: u64, name: &str, count: u32) -> Answer {
        let Some(queue) = self.queues.find(name) else { return self.no_queue(name) };
        let head = self.engine.head(queue);
        let ids: Vec<ConsumerId> = self.engine.consumers(queue).take(EXPLAIN_TALLY_MAX).collect();
        let all = self.queues.get(queue).map_or(0, |node| node.consumers as usize);
        let mut tally = Tally { consumers: ids.len(), all, ..Tally::default() };
        let (mut consumers, mut bytes) = (Vec::new(), 0);
        for id in ids {
            let verdict = head.and_then(|place| self.engine.verdict(id, place));
            let Some(view) = self.engine.explain(id) else { continue };
            tally.count(&view, verdict);
            if consumers.len() < count as usize
                && bytes < ANSWER_BYTES_MAX
                && let Some(facts) = self.consumer_view(id)
            {
                let elsewhere = facts.elsewhere;
                let facts = self.consumer_facts(now, &facts, verdict);
                bytes += size_of_pairs(&facts);
                consumers.push(ExplainedConsumer { facts, elsewhere });
            }
        }
        let depth = self.engine.depth(queue).unwrap_or_default();
        let node = self.queues.get(queue);
        tally.keeps_all = node.is_some_and(|node| node.destination.properties.non_destructive);
        let summary = tally.summary(depth, head.is_some());
        let head = head.and_then(|place| self.head_facts(now, queue, place));
        let waiting = node.map_or(0, |node| node.producers.waiting());
        let counted = self.engine.counted(queue).unwrap_or_default();
        let full = node.and_then(|node| full_words(&node.destination.properties, counted, waiting));
        let queue = pairs![
            "queue" => name.to_owned(),
            "shard" => self.index,
            "messages" => depth.messages,
            "available" => depth.available,
            "acquired" => depth.acquired,
            "held" => depth.held,
            "pending" => depth.pending,
            "retired" => depth.retired,
            "consumer-count" => tally.all,
            "summary" => summary,
            "full" => full,
            "producers-waiting" => waiting,
            "head" => head.map_or(Data::Null, Data::Map),
        ];
        Answer::Explained(Box::new(Explained { queue: Some(queue), consumers }))
    }

    /// What this shard knows of links whose consumers live elsewhere.
    pub(crate) fn explain_links(&mut self, links: &[LinkRef]) -> Vec<Pairs> {
        let explain = |link: &LinkRef| {
            let Some((slot, link)) = self.target_link(*link) else {
                return pairs!["problem" => "its link has just ended"];
            };
            let Some(connection) = self.connections.get_mut(slot) else { return Pairs::new() };
            let mut facts = link_facts(&LinkFacts::of(connection, link));
            if connection.output_blocked {
                facts.extend(pairs![
                    "why" => "its client does not read what it is sent: its connection's output is full"
                ]);
            }
            facts
        };
        links.iter().map(explain).collect()
    }

    /// Attributes of a consumer, with what it has to do with the first message.
    fn consumer_facts(&self, now: u64, facts: &ConsumerFacts, verdict: Option<Verdict>) -> Pairs {
        let mut pairs = consumers::all(facts);
        pairs.retain(|(name, _)| !matches!(&**name, "identity" | "type" | "queue"));
        let groups = self.engine.groups_of(facts.id).take(EXPLAIN_GROUPS_MAX);
        let groups = groups.map(|(name, unsettled, waiting)| {
            Data::Map(pairs!["name" => name.to_owned(), "unsettled" => unsettled, "waiting" => waiting])
        });
        pairs.extend(pairs![
            "since-us" => now.saturating_sub(facts.view.since),
            "why" => why(facts),
            "cause" => cause_words(facts.view.cause),
            "head-verdict" => verdict.map(verdict_word),
            "head" => verdict.map(|verdict| self.verdict_words(verdict)),
            "groups" => Data::List(groups.collect()),
        ]);
        pairs
    }

    fn verdict_words(&self, verdict: Verdict) -> String {
        let name = |id| consumers::name(self.index, id);
        match verdict {
            Verdict::Takes => "it would take the first message".to_owned(),
            Verdict::NotAvailable => {
                "the first message is delayed, held by a consumer, part of a transaction, or waits for the disk"
                    .to_owned()
            }
            Verdict::OwnMessage => "the first message was sent over its own connection (no-local)".to_owned(),
            Verdict::FilteredOut => "its filter does not match the first message".to_owned(),
            Verdict::Refused => "it has said of the first message: undeliverable here".to_owned(),
            Verdict::GroupOf(owner) => {
                format!("the first message's group belongs to consumer {}", name(owner))
            }
            Verdict::BehindInGroup => {
                "another message of the same group comes before, or waits for its next delivery".to_owned()
            }
            Verdict::Seen => "it has seen the first message".to_owned(),
            Verdict::Scanning => "its filter has not looked so far yet".to_owned(),
        }
    }

    fn head_facts(&self, now: u64, queue: QueueId, place: Place) -> Option<Pairs> {
        let (_, stored, view) = self.engine.entries(queue, place).next()?;
        let message = stored.here();
        let holder = match view.state {
            EntryState::Acquired(holder) | EntryState::Retired(holder) => Some(holder),
            _ => view.group_owner,
        };
        Some(pairs![
            "place" => place_text(place),
            "state" => state_word(view.state),
            "age-us" => message.map(|message| now.saturating_sub(message.enqueued_at)),
            "message-id" => message.map_or(Data::Null, |message| show_property(message, Property::MessageId)),
            "group" => message.map_or(Data::Null, |message| show_property(message, Property::GroupId)),
            "holder" => holder.map(|holder| consumers::name(self.index, holder)),
            "delivery-count" => view.delivery_count,
            "acquired-count" => view.acquired_count,
            "expires-in-us" => view.expires_at.map(|at| at.saturating_sub(now)),
        ])
    }
}

fn link_facts(link: &LinkFacts) -> Pairs {
    pairs![
        "link" => link.name.as_ref().map(|name| name.to_string()),
        "credit" => link.credit,
        "container-id" => link.container.to_string(),
        "user" => link.user.as_ref().map(|user| user.to_string()),
    ]
}

pub(crate) fn state_word(state: EntryState) -> &'static str {
    match state {
        EntryState::Available => "available",
        EntryState::BehindInGroup => "behind-in-group",
        EntryState::Held => "held",
        EntryState::Acquired(_) => "acquired",
        EntryState::Pending => "pending",
        EntryState::Retired(_) => "retired",
    }
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Takes => "takes",
        Verdict::NotAvailable => "not-available",
        Verdict::OwnMessage => "own-message",
        Verdict::FilteredOut => "filtered-out",
        Verdict::Refused => "refused",
        Verdict::GroupOf(_) => "group-of-another",
        Verdict::BehindInGroup => "behind-in-group",
        Verdict::Seen => "seen",
        Verdict::Scanning => "scanning",
    }
}

/// Where a consumer stands, as a sentence.
fn why(facts: &ConsumerFacts) -> &'static str {
    match facts.view.list {
        ConsumerList::Notified => "it was told that there is work, and takes its turn",
        ConsumerList::Interested => "it is ready and in line; nobody has told it of work",
        ConsumerList::NonAcquiring { caught_up: true } => {
            "it reads and takes nothing away, and has seen everything"
        }
        ConsumerList::NonAcquiring { caught_up: false } => {
            "it reads and takes nothing away, and goes on when its turn comes"
        }
        ConsumerList::NotInterested(reason) => match reason {
            PauseReason::NoCredit => "its client has given no credit, or has used it up",
            PauseReason::Socket => {
                "its client does not read what it is sent: its connection's output is full"
            }
            PauseReason::SessionWindow => {
                "its session's window is full: the client has not taken what was sent"
            }
            PauseReason::FlowStopped => "its client has stopped the flow",
            PauseReason::Lane => "it waits for another shard, which has to catch up first",
            PauseReason::Body => "a body is being read for it",
            PauseReason::Turn => "consumers of its connection on other shards have their turn first",
            PauseReason::Partial => "a large message is on its way to it in parts",
            PauseReason::Suspended => "it is suspended, or its link is ending",
            PauseReason::Standby => "it stands by: the queue allows no more active consumers",
            PauseReason::Prefetch if consumers::awaits_flow(&facts.view) => {
                "it holds nothing, and as prefetch = none it gets the next message when its client gives credit again"
            }
            PauseReason::Prefetch => "it holds as many unsettled messages as the queue's prefetch allows",
            PauseReason::Refusals => "it has refused so many messages that nobody else took",
        },
    }
}

fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Attached => "it attached",
        Cause::Published => "a message was published",
        Cause::Returned => "a message came back",
        Cause::HoldEnded => "a delay ended",
        Cause::GroupFreed => "a group was freed",
        Cause::BecameReady => "it became ready",
        Cause::Paused => "it paused",
        Cause::Promoted => "it became active",
        Cause::HandedOn => "another consumer could not take what it was told of",
        Cause::MoreWork => "there was more work",
        Cause::FoundByScan => "a scan found a message for its filter",
        Cause::Served => "it was served, and is in line again",
        Cause::Requested => "its client asked",
        Cause::Committed => "a transaction was committed, or what waited for the disk was shown",
        Cause::FoundNothing => "it found nothing to take",
        Cause::GaveWay => "it gave way to a higher priority",
    }
}

/// How many consumers stand how to the first message.
#[derive(Default)]
struct Tally {
    /// How many were looked at, and how many there are.
    consumers: usize,
    all: usize,
    /// The queue is non-destructive.
    keeps_all: bool,
    /// They take it when their turn comes.
    taking: usize,
    browsers: usize,
    /// They would take it, but for a pause: by reason.
    paused: Vec<(&'static str, usize)>,
    /// It is not for them: by verdict.
    unfit: Vec<(&'static str, usize)>,
}

impl Tally {
    fn count(&mut self, view: &ConsumerView, verdict: Option<Verdict>) {
        let raise = |counts: &mut Vec<(&'static str, usize)>, words| match counts
            .iter_mut()
            .find(|(known, _)| *known == words)
        {
            Some((_, count)) => *count += 1,
            None => counts.push((words, 1)),
        };
        match (view.list, verdict) {
            (ConsumerList::NonAcquiring { .. }, _) => self.browsers += 1,
            (_, Some(verdict)) if verdict != Verdict::Takes && verdict != Verdict::NotAvailable => {
                raise(&mut self.unfit, unfit_words(verdict));
            }
            (ConsumerList::NotInterested(_), _) if consumers::awaits_flow(view) => {
                raise(&mut self.paused, "waiting for its client to give credit again (prefetch = none)");
            }
            (ConsumerList::NotInterested(reason), _) => raise(&mut self.paused, paused_words(reason)),
            (ConsumerList::Interested | ConsumerList::Notified, _) => self.taking += 1,
        }
    }

    /// Why nobody takes the first message, or that somebody does.
    fn summary(&self, depth: Depth, has_head: bool) -> String {
        let Depth { messages, acquired, held, pending, retired, .. } = depth;
        if messages == 0 {
            return "The queue is empty.".to_owned();
        }
        if !has_head {
            return format!(
                "No message is available: of {messages}, {acquired} are with consumers that have not settled them, \
                 {held} are delayed, {} are part of open transactions, or wait for the disk or for the end of a move.",
                pending + retired
            );
        }
        if self.consumers == 0 {
            return "Nobody consumes this queue.".to_owned();
        }
        if self.taking > 0 {
            return format!("{} will take the first message.", consumers_words(self.taking));
        }
        let browsing = (self.browsers > 0).then_some(("only read", self.browsers));
        let parts: Vec<String> = self
            .paused
            .iter()
            .chain(&self.unfit)
            .copied()
            .chain(browsing)
            .map(|(words, count)| format!("{count} {words}"))
            .collect();
        let whose = match self.all.saturating_sub(self.consumers) {
            0 => consumers_words(self.consumers),
            left => format!("the first {} ({left} more were not looked at)", consumers_words(self.consumers)),
        };
        let parts = parts.join(", ");
        if self.keeps_all {
            return format!(
                "The queue is non-destructive, so messages stay when they are read: of {whose}, {parts}."
            );
        }
        format!("Nobody takes the first message: of {whose}, {parts}.")
    }
}

/// What becomes of messages that find the queue at its bounds; none: there is room, or no bound.
fn full_words(properties: &QueueProperties, (messages, bytes): (u64, u64), waiting: usize) -> Option<String> {
    let bounds =
        [("messages-max", properties.messages_max, messages), ("bytes-max", properties.bytes_max, bytes)];
    let reached = bounds
        .into_iter()
        .find_map(|(name, max, count)| max.filter(|max| count >= *max).map(|max| (name, max)));
    let producers = |waiting| match waiting {
        1 => "1 producer waits for room".to_owned(),
        waiting => format!("{waiting} producers wait for room"),
    };
    let Some((name, max)) = reached else {
        // Those that are let go on one after the other.
        return (waiting > 0).then(|| format!("The queue has room again, and {}.", producers(waiting)));
    };
    let what = match properties.overflow {
        Overflow::Reject => "overflow = reject: what is sent is refused".to_owned(),
        Overflow::DropOldest => {
            "overflow = drop-oldest: what is sent takes the place of the oldest".to_owned()
        }
        Overflow::Block => format!("overflow = block: {}", producers(waiting)),
    };
    Some(format!("The queue is full ({name} {max}); {what}."))
}

fn consumers_words(count: usize) -> String {
    if count == 1 { "1 consumer".to_owned() } else { format!("{count} consumers") }
}

fn unfit_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Takes | Verdict::NotAvailable => "may take it",
        Verdict::OwnMessage => "sent it (no-local)",
        Verdict::FilteredOut => "with a filter that does not match it",
        Verdict::Refused => "refused it",
        Verdict::GroupOf(_) => "may not: its group belongs to another",
        Verdict::BehindInGroup => "may not: another of its group comes before",
        Verdict::Seen => "past it",
        Verdict::Scanning => "still looking for it",
    }
}

fn paused_words(reason: PauseReason) -> &'static str {
    match reason {
        PauseReason::NoCredit => "without credit",
        PauseReason::Socket => "whose client does not read",
        PauseReason::SessionWindow => "with a full session window",
        PauseReason::FlowStopped => "with its flow stopped",
        PauseReason::Lane => "waiting for another shard",
        PauseReason::Body => "waiting for a body",
        PauseReason::Turn => "letting others of its connection go first",
        PauseReason::Partial => "taking a large message in parts",
        PauseReason::Suspended => "suspended",
        PauseReason::Standby => "standing by",
        PauseReason::Prefetch => "at the queue's prefetch",
        PauseReason::Refusals => "with too many refusals",
    }
}
