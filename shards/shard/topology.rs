//! Which bindings, topics and exchanges does every shard know of, and how does that change?
//!
//! A message is routed on its producer's shard, so each shard has all bindings: of topics (a pattern, and the queue that gets what
//! matches), and of exchanges of 0-9-1.
//! A change is proposed by the shard it comes from, put in order by the coordinator, told to all shards as a numbered delta, and done
//! when all have taken it. Only then the proposer hears so: whatever is published anywhere after that is routed by it.
//!
//! Invariants:
//! - deltas arrive without gaps: the next is `taken + 1`;
//! - at the coordinator: `taken[shard] ≤ taken[coordinator]`, and a change is answered when every `taken[shard]` has reached it;
//! - changes of one proposer are put in order as it made them, so that the end of a binding is never lost before its beginning: a queue's
//!   home proposes what it is bound to;
//! - a binding may lead to a queue that is gone: its home knows, and its end is on the way.
//!
//! Left out: what bindings are for (`subscription`), and routing by them (`fan_out`).

use std::collections::VecDeque;
use std::sync::Arc;

use corelane_engine::exchanges::{
    self, Applied, Binding, Change as ExchangeChange, Declaration, End, Exchanges, Found, HeaderReader,
    RoutedBy, VhostId,
};
use corelane_engine::{QueueId, TopicTrie};
use corelane_journal::Ticket;
use corelane_mailbox::Lane;
use hashbrown::{HashMap, HashSet};
use slab::Slab;

use crate::Shard;
use crate::amqp091::{ChannelFault, ChannelRef, QueueReply};
use crate::connection::QueueAt;
use crate::effect::Effect;
use crate::limits::{BINDINGS_MAX, EXCHANGES_MAX};
use crate::mail::{LinkRef, Mail, Refusal};
use crate::vhost;

/// The shard that puts changes in order.
pub(crate) const COORDINATOR: usize = 0;

/// The default virtual host, and one that is not there.
const DEFAULT_VHOST: VhostId = VhostId(0);
const NO_VHOST: VhostId = VhostId(u32::MAX);

/// What a shard knows.
pub(crate) struct Topology {
    /// Of topics, in the default virtual host and in others, as far as there are any.
    bindings: TopicTrie<QueueAt>,
    bindings_elsewhere: HashMap<Box<str>, TopicTrie<QueueAt>>,
    hash_seed: u64,
    exchanges: Exchanges<QueueAt>,
    /// Topics that live as long as a link.
    temporary: HashSet<Arc<str>>,
    /// The number of the delta that was taken last.
    taken: u64,
    /// What is to be done when a change of ours is done.
    proposals: Slab<Then>,
    /// Exchanges and bindings, and queues of bindings, that the journal had and that are not there again yet.
    pub(crate) restoring: usize,
    coordination: Option<Coordination>,
}

/// What the coordinator knows besides.
#[derive(Debug)]
struct Coordination {
    /// Bindings and temporary topics.
    count: usize,
    bound: Bound,
    /// By shard.
    taken: Vec<u64>,
    /// Changes that some shard has yet to take.
    waiting: VecDeque<Proposed>,
}

/// A change whose proposer waits for it.
#[derive(Debug)]
struct Proposed {
    number: u64,
    from: usize,
    proposal: u32,
    /// What was said since has to be synced before.
    mark: Ticket,
}

/// The patterns of bindings and the temporary topics, to be listed. An index stays the same while its topic is known.
#[derive(Debug, Default)]
struct Bound {
    by_name: HashMap<Arc<str>, usize>,
    topics: Slab<(Arc<str>, Uses)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Uses {
    bindings: u32,
    temporary: bool,
}

/// What follows on a change.
#[derive(Debug)]
pub(crate) enum Then {
    /// The subscription of this queue gets what is published from now on.
    Subscribed(QueueId),
    /// The temporary topic of this producer is there.
    TopicMade(LinkRef),
    /// A channel of shard `to` is told, when what was said here since the mark is synced.
    Answer { mark: Ticket, to: usize, channel: ChannelRef, reply: QueueReply },
    /// What the journal had is there again.
    Restored,
    /// This is as it is defined.
    Defined(Box<str>),
}

/// Why a change is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// There are as many of these as there may be.
    Limit(&'static str),
    /// It would have to be kept, and the disk takes nothing.
    Disk,
    Exchange(exchanges::Refusal),
}

/// What is to be so on all shards.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Bind {
        pattern: Arc<str>,
        queue: QueueAt,
    },
    Unbind {
        pattern: Arc<str>,
        queue: QueueAt,
    },
    MakeTopic(Arc<str>),
    EndTopic(Arc<str>),
    /// Of exchanges, and of what is bound to them. `uid`: what the journal knows the queue by that is bound, if it does.
    Exchanges {
        change: Box<ExchangeChange<QueueAt>>,
        uid: Option<u64>,
    },
}

/// What shards tell each other of it.
#[derive(Debug)]
pub struct TopologyMail(TopologyStep);

#[derive(Debug)]
pub(crate) enum TopologyStep {
    /// To the coordinator. Without a proposal's number nobody waits for the answer.
    Propose { proposal: Option<u32>, change: Change },
    /// From the coordinator to all.
    Delta { number: u64, change: Change },
    /// To the coordinator.
    Taken { number: u64 },
    /// From the coordinator to who has proposed it.
    Done { proposal: u32, result: Result<(), NotMade> },
    /// From the coordinator to the home of a queue that was bound when the broker stopped: is it there?
    Find { name: Box<str>, uid: u64 },
    /// The home's answer.
    FoundBound { uid: u64, queue: Option<QueueId> },
    /// From the coordinator to all, behind the deltas of the exchanges that are defined: the rest of the definitions can be made.
    Define,
}

impl std::fmt::Display for NotMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotMade::Limit(what) => write!(f, "there are as many {what} as there may be"),
            NotMade::Disk => f.write_str("the disk is full or has failed: nothing durable can be made"),
            NotMade::Exchange(refusal) => refusal.fmt(f),
        }
    }
}

impl Bound {
    /// A change was made.
    fn note(&mut self, change: &Change) {
        let name = match change {
            Change::Bind { pattern: name, .. }
            | Change::Unbind { pattern: name, .. }
            | Change::MakeTopic(name)
            | Change::EndTopic(name) => name,
            Change::Exchanges { .. } => return,
        };
        let topics = &mut self.topics;
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None => {
                let index = topics.insert((name.clone(), Uses::default()));
                self.by_name.insert(name.clone(), index);
                index
            }
        };
        let uses = &mut topics[index].1;
        match change {
            Change::Bind { .. } => uses.bindings += 1,
            Change::Unbind { .. } => uses.bindings = uses.bindings.saturating_sub(1),
            Change::MakeTopic(_) => uses.temporary = true,
            Change::EndTopic(_) | Change::Exchanges { .. } => uses.temporary = false,
        }
        if *uses == Uses::default() {
            topics.remove(index);
            self.by_name.remove(name);
        }
    }
}

impl Topology {
    pub(crate) fn new(index: usize, shards: usize, hash_seed: u64, vhosts: &[Box<str>]) -> Self {
        let coordination = Coordination {
            count: 0,
            bound: Bound::default(),
            taken: vec![0; shards],
            waiting: VecDeque::new(),
        };
        let mut exchanges = Exchanges::new(hash_seed);
        // In the same order on all shards, so that they have the same ids.
        for vhost in std::iter::once(vhost::DEFAULT).chain(vhosts.iter().map(|name| &**name)) {
            let added = exchanges.apply(&ExchangeChange::AddVhost(vhost.into()));
            debug_assert!(added.is_ok());
        }
        debug_assert!(exchanges.vhost(vhost::DEFAULT) == Some(DEFAULT_VHOST));
        Topology {
            bindings: TopicTrie::new(hash_seed),
            bindings_elsewhere: HashMap::new(),
            hash_seed,
            exchanges,
            temporary: HashSet::new(),
            taken: 0,
            proposals: Slab::new(),
            restoring: 0,
            coordination: (index == COORDINATOR).then_some(coordination),
        }
    }

    /// Changes whenever anything has changed.
    pub(crate) fn version(&self) -> u64 {
        self.taken
    }

    pub(crate) fn has_temporary(&self, topic: &str) -> bool {
        self.temporary.contains(topic)
    }

    /// The queues that get what is published to the topic, each once.
    pub(crate) fn matches(&mut self, topic: &str, mut found: impl FnMut(QueueAt)) {
        let (vhost, plain) = vhost::parts(topic);
        let bindings = match vhost {
            vhost::DEFAULT => Some(&mut self.bindings),
            other => self.bindings_elsewhere.get_mut(other),
        };
        if let Some(bindings) = bindings {
            bindings.matches(plain, |at| found(*at));
        }
    }

    /// What has been looked up since this was asked last, in work of a turn.
    pub(crate) fn take_work(&mut self) -> u64 {
        let elsewhere: u64 = self.bindings_elsewhere.values_mut().map(TopicTrie::take_work).sum();
        self.bindings.take_work() + elsewhere + self.exchanges.take_work()
    }

    /// The queues that get what is published to an exchange with these keys, each once. None: there is no such exchange.
    pub(crate) fn route(
        &mut self,
        exchange: &str,
        keys: &[&[u8]],
        headers: &impl HeaderReader,
        found: impl FnMut(Found<'_, QueueAt>),
    ) -> Option<RoutedBy> {
        let (vhost, exchange) = self.place(exchange);
        self.exchanges.route(vhost, exchange, keys, headers, found)
    }

    /// All of them, to be listed.
    pub(crate) fn exchanges(&self) -> &Exchanges<QueueAt> {
        &self.exchanges
    }

    /// The exchange, if it is there.
    pub(crate) fn check_exists(&self, exchange: &str) -> Result<&Declaration, exchanges::Refusal> {
        let (vhost, exchange) = self.place(exchange);
        self.exchanges.check_exists(vhost, exchange)
    }

    /// The virtual host of this name, as it is kept.
    pub(crate) fn vhost(&self, name: &str) -> Option<&Arc<str>> {
        self.exchanges.vhost_name(self.exchanges.vhost(name)?)
    }

    /// The name of one.
    pub(crate) fn vhost_name(&self, vhost: VhostId) -> &str {
        self.exchanges.vhost_name(vhost).map_or(vhost::DEFAULT, |name| name)
    }

    /// In which virtual host something is, and what it is called there.
    pub(crate) fn place<'a>(&self, name: &'a str) -> (VhostId, &'a str) {
        match vhost::parts(name) {
            (vhost::DEFAULT, name) => (DEFAULT_VHOST, name),
            (vhost, name) => (self.exchanges.vhost(vhost).unwrap_or(NO_VHOST), name),
        }
    }

    /// The same, if clients may publish to it.
    pub(crate) fn check_publish(&self, exchange: &str) -> Result<&Declaration, exchanges::Refusal> {
        let (vhost, exchange) = self.place(exchange);
        self.exchanges.check_publish(vhost, exchange)
    }

    /// Whether a binding that is there outlives a restart.
    pub(crate) fn is_binding_durable(&self, binding: &Binding<QueueAt>) -> bool {
        let is_durable =
            |exchange| self.exchanges.check_exists(binding.vhost, exchange).is_ok_and(|it| it.is_durable);
        is_durable(&binding.source)
            && match &binding.destination {
                End::Queue { is_durable, .. } => *is_durable,
                End::Exchange(exchange) => is_durable(exchange),
            }
    }

    /// Whether it makes something that outlives a restart.
    fn begins_durable(&self, change: &Change) -> bool {
        match change {
            Change::Exchanges { change, .. } => match &**change {
                ExchangeChange::Declare(declaration) => declaration.is_durable,
                ExchangeChange::Bind(binding) => self.is_binding_durable(binding),
                ExchangeChange::AddVhost(_)
                | ExchangeChange::RemoveVhost(_)
                | ExchangeChange::Delete { .. }
                | ExchangeChange::Unbind(_)
                | ExchangeChange::RemoveQueue(_) => false,
            },
            Change::Bind { .. } | Change::Unbind { .. } | Change::MakeTopic(_) | Change::EndTopic(_) => false,
        }
    }

    /// Whether there is room for what the change would make.
    fn check_room(&self, change: &Change) -> Result<(), NotMade> {
        let topics = self.coordination.as_ref().map_or(0, |coordination| coordination.count);
        let is_bound_out = topics + self.exchanges.binding_count() >= BINDINGS_MAX;
        let (is_full, what) = match change {
            Change::Bind { .. } | Change::MakeTopic(_) => (is_bound_out, "bindings"),
            Change::Unbind { .. } | Change::EndTopic(_) => (false, ""),
            Change::Exchanges { change, .. } => match &**change {
                ExchangeChange::Bind(_) => (is_bound_out, "bindings"),
                ExchangeChange::Declare(asked) => {
                    let is_full = self.exchanges.exchange_count() >= EXCHANGES_MAX;
                    let is_new = self.exchanges.check_exists(asked.vhost, &asked.name).is_err();
                    (is_full && is_new, "exchanges")
                }
                ExchangeChange::AddVhost(_)
                | ExchangeChange::RemoveVhost(_)
                | ExchangeChange::Delete { .. }
                | ExchangeChange::Unbind(_)
                | ExchangeChange::RemoveQueue(_) => (false, ""),
            },
        };
        if is_full { Err(NotMade::Limit(what)) } else { Ok(()) }
    }

    /// How many bindings have exactly this pattern; none if nothing is known of it. The coordinator knows, as with the two below.
    pub(crate) fn bound_to(&self, pattern: &str) -> Option<u32> {
        let bound = &self.coordination.as_ref()?.bound;
        bound.topics.get(*bound.by_name.get(pattern)?).map(|(_, uses)| uses.bindings)
    }

    /// The pattern or temporary topic at an index.
    pub(crate) fn bound_at(&self, index: usize) -> Option<&str> {
        self.coordination.as_ref()?.bound.topics.get(index).map(|(name, _)| &**name)
    }

    /// Above the indices of all of them; none: this shard is not the coordinator.
    pub(crate) fn bound_index_end(&self) -> Option<usize> {
        self.coordination.as_ref().map(|coordination| coordination.bound.topics.capacity())
    }

    /// The bindings of topics that a pattern is among, and the pattern within its virtual host.
    fn bindings_of<'a>(&mut self, pattern: &'a str) -> (&mut TopicTrie<QueueAt>, &'a str) {
        match vhost::parts(pattern) {
            (vhost::DEFAULT, plain) => (&mut self.bindings, plain),
            (vhost, plain) => {
                let seed = self.hash_seed;
                let made = || TopicTrie::new(seed);
                (self.bindings_elsewhere.entry(vhost.into()).or_insert_with(made), plain)
            }
        }
    }

    /// What is refused has changed nothing. `is_changed` is false: it was so already.
    fn apply(&mut self, change: &Change) -> Result<Applied<QueueAt>, exchanges::Refusal> {
        let is_changed = match change {
            Change::Bind { pattern, queue } => {
                let (bindings, plain) = self.bindings_of(pattern);
                bindings.insert(plain.as_bytes(), *queue);
                true
            }
            Change::Unbind { pattern, queue } => {
                let (bindings, plain) = self.bindings_of(pattern);
                bindings.remove(plain.as_bytes(), queue)
            }
            Change::MakeTopic(topic) => self.temporary.insert(topic.clone()),
            Change::EndTopic(topic) => self.temporary.remove(topic),
            Change::Exchanges { change, .. } => return self.exchanges.apply(change),
        };
        Ok(Applied { is_changed, exchanges: Vec::new(), bindings: Vec::new() })
    }
}

impl Coordination {
    /// A change was made.
    fn note(&mut self, change: &Change) {
        match change {
            Change::Bind { .. } | Change::MakeTopic(_) => self.count += 1,
            Change::Unbind { .. } | Change::EndTopic(_) => self.count -= 1,
            Change::Exchanges { .. } => return,
        }
        self.bound.note(change);
    }
}

impl Shard {
    /// Asks for a change on all shards; `then` follows when it is done, or refused. Without `then` nobody waits for it.
    pub(crate) fn propose(&mut self, now: u64, change: Change, then: Option<Then>) {
        let proposal = then.map(|then| self.topology.proposals.insert(then) as u32);
        if self.index == COORDINATOR {
            self.on_proposed(now, self.index, proposal, change);
        } else {
            self.post_topology(COORDINATOR, TopologyStep::Propose { proposal, change });
        }
    }

    pub(crate) fn on_topology(&mut self, now: u64, from: usize, mail: TopologyMail) {
        match mail.0 {
            TopologyStep::Propose { proposal, change } => self.on_proposed(now, from, proposal, change),
            TopologyStep::Delta { number, change } => {
                assert_eq!(number, self.topology.taken + 1, "a lane keeps its mail in order");
                self.topology.taken = number;
                let applied = self.topology.apply(&change);
                debug_assert!(applied.is_ok(), "what the coordinator has made can be made here");
                let work = self.topology.take_work();
                self.turn.count_work(work);
                self.post_topology(from, TopologyStep::Taken { number });
                self.follow(now, &change);
            }
            TopologyStep::Taken { number } => {
                if let Some(coordination) = &mut self.topology.coordination {
                    coordination.taken[from] = number;
                }
                self.conclude_changes(now);
            }
            TopologyStep::Done { proposal, result } => self.on_change_done(now, proposal, result),
            TopologyStep::Find { name, uid } => {
                let queue = self.find_kept(&name, uid);
                self.post_topology(from, TopologyStep::FoundBound { uid, queue });
            }
            TopologyStep::FoundBound { uid, queue } => {
                let at = queue.map(|queue| QueueAt { shard: from, queue });
                self.on_bound_found(now, uid, at);
            }
            TopologyStep::Define => self.on_define(),
        }
    }

    /// A queue of this shard is gone, and so are its bindings.
    pub(crate) fn unbind_queue(&mut self, now: u64, queue: QueueId) {
        let gone = ExchangeChange::RemoveQueue(QueueAt { shard: self.index, queue });
        self.propose(now, Change::Exchanges { change: Box::new(gone), uid: None }, None);
    }

    /// Asks for the queue of this name and uid, which was bound.
    pub(crate) fn find_bound(&mut self, now: u64, name: &str, uid: u64) {
        let home = self.home_of(name);
        if home == self.index {
            let queue = self.find_kept(name, uid).map(|queue| QueueAt { shard: home, queue });
            self.on_bound_found(now, uid, queue);
        } else {
            self.post_topology(home, TopologyStep::Find { name: name.into(), uid });
        }
    }

    fn on_proposed(&mut self, now: u64, from: usize, proposal: Option<u32>, change: Change) {
        if self.topology.coordination.is_none() {
            return;
        }
        let is_refused = match self.topology.check_room(&change) {
            Ok(()) if self.takes_nothing() && self.topology.begins_durable(&change) => Err(NotMade::Disk),
            room => room,
        };
        let begun = self.said();
        let applied = is_refused.and_then(|()| self.topology.apply(&change).map_err(NotMade::Exchange));
        let work = self.topology.take_work();
        self.turn.count_work(work);
        let applied = match applied {
            Ok(applied) => applied,
            Err(reason) => {
                self.answer_change(now, from, proposal, Err(reason));
                return;
            }
        };
        if applied.is_changed {
            self.spread(now, &change, &applied);
        }
        // What was so already may have yet to be taken, or synced.
        let mark = if applied.is_changed { begun } else { Ticket(0) };
        let number = self.topology.taken;
        if let (Some(proposal), Some(coordination)) = (proposal, &mut self.topology.coordination) {
            coordination.waiting.push_back(Proposed { number, from, proposal, mark });
        }
        self.conclude_changes(now);
    }

    /// A change was made here: it is the next one for all shards.
    fn spread(&mut self, now: u64, change: &Change, applied: &Applied<QueueAt>) {
        self.topology.taken += 1;
        let number = self.topology.taken;
        if let Some(coordination) = &mut self.topology.coordination {
            coordination.note(change);
            coordination.taken[COORDINATOR] = number;
        }
        if let Change::Exchanges { change, uid } = change {
            self.keep_change(change, *uid, applied);
        }
        for shard in (0..self.shards).filter(|shard| *shard != COORDINATOR) {
            self.post_topology(shard, TopologyStep::Delta { number, change: change.clone() });
        }
        self.follow(now, change);
    }

    /// Answers the changes that all shards have taken.
    fn conclude_changes(&mut self, now: u64) {
        while let Some(coordination) = &mut self.topology.coordination
            && let Some(&Proposed { number, from, proposal, mark }) = coordination.waiting.front()
            && coordination.taken.iter().all(|taken| *taken >= number)
        {
            coordination.waiting.pop_front();
            self.answer_change_kept(now, mark, from, proposal);
        }
    }

    /// The change of this proposal is refused, or done.
    pub(crate) fn answer_change(
        &mut self,
        now: u64,
        to: usize,
        proposal: Option<u32>,
        result: Result<(), NotMade>,
    ) {
        let Some(proposal) = proposal else { return };
        if to == self.index {
            self.on_change_done(now, proposal, result);
        } else {
            self.post_topology(to, TopologyStep::Done { proposal, result });
        }
    }

    fn on_change_done(&mut self, now: u64, proposal: u32, result: Result<(), NotMade>) {
        match self.topology.proposals.try_remove(proposal as usize) {
            Some(Then::Subscribed(queue)) => {
                self.on_subscribed(now, queue, result.map_err(|_| Refusal::ResourceLimit));
            }
            Some(Then::TopicMade(link)) => {
                self.on_topic_made(now, link, result.map_err(|_| Refusal::ResourceLimit));
            }
            Some(Then::Answer { mark, to, channel, reply }) => {
                let result = result.map(|()| reply).map_err(|reason| ChannelFault::of_change(&reason));
                self.answer_channel(now, mark, to, channel, result);
            }
            Some(Then::Defined(what)) => {
                self.on_defined(&what, result.err().map(|reason| reason.to_string()));
            }
            Some(Then::Restored) => {
                self.topology.restoring -= 1;
                if let Err(reason) = result {
                    let text = format!("an exchange or a binding of the journal is left out: {reason}");
                    self.effects.push(Effect::Warn { text });
                }
            }
            None => {}
        }
    }

    /// What a change means for the queues of this shard.
    fn follow(&mut self, now: u64, change: &Change) {
        match change {
            Change::Bind { .. } | Change::Unbind { .. } | Change::MakeTopic(_) | Change::Exchanges { .. } => {
            }
            Change::EndTopic(topic) => self.end_subscriptions_to(now, topic),
        }
    }

    pub(crate) fn post_topology(&mut self, to: usize, step: TopologyStep) {
        self.post(to, Lane::Control, Mail::Topology(TopologyMail(step)));
    }
}
