//! Which bindings and topics does every shard know of, and how does that change?
//!
//! A message is routed on its producer's shard, so each shard has all bindings (a pattern, and the queue that gets what matches).
//! A change is proposed by the shard it comes from, put in order by the coordinator, told to all shards as a numbered delta, and done
//! when all have taken it. Only then the proposer hears so: whatever is published anywhere after that is routed by it.
//!
//! Invariants:
//! - deltas arrive without gaps: the next is `taken + 1`;
//! - at the coordinator: `taken[shard] ≤ taken[coordinator]`, and a change is answered when every `taken[shard]` has reached it;
//! - changes of one proposer are put in order as it made them, so that the end of a binding is never lost before its beginning;
//! - a binding may lead to a queue that is gone: its home knows, and its end is on the way.
//!
//! Left out: what bindings are for (`subscription`), and routing by them (`fan_out`).

use std::collections::VecDeque;
use std::sync::Arc;

use corelane_engine::{QueueId, TopicTrie};
use corelane_mailbox::Lane;
use hashbrown::{HashMap, HashSet};
use slab::Slab;

use crate::Shard;
use crate::connection::QueueAt;
use crate::limits::BINDINGS_MAX;
use crate::mail::{LinkRef, Mail, Refusal};

/// The shard that puts changes in order.
pub(crate) const COORDINATOR: usize = 0;

/// What a shard knows.
pub(crate) struct Topology {
    bindings: TopicTrie<QueueAt>,
    /// Topics that live as long as a link.
    temporary: HashSet<Arc<str>>,
    /// The number of the delta that was taken last.
    taken: u64,
    /// What is to be done when a change of ours is done.
    proposals: Slab<Then>,
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
    /// Changes that some shard has yet to take: number, proposer, proposal.
    waiting: VecDeque<(u64, usize, u32)>,
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
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    /// The subscription of this queue gets what is published from now on.
    Subscribed(QueueId),
    /// The temporary topic of this producer is there.
    TopicMade(LinkRef),
}

/// What is to be so on all shards.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Bind { pattern: Arc<str>, queue: QueueAt },
    Unbind { pattern: Arc<str>, queue: QueueAt },
    MakeTopic(Arc<str>),
    EndTopic(Arc<str>),
}

/// What shards tell each other of it.
#[derive(Debug)]
pub struct TopologyMail(TopologyStep);

#[derive(Debug)]
enum TopologyStep {
    /// To the coordinator. Without a proposal's number nobody waits for the answer.
    Propose { proposal: Option<u32>, change: Change },
    /// From the coordinator to all.
    Delta { number: u64, change: Change },
    /// To the coordinator.
    Taken { number: u64 },
    /// From the coordinator to who has proposed it.
    Done { proposal: u32, result: Result<(), Refusal> },
}

impl Bound {
    /// A change was made.
    fn note(&mut self, change: &Change) {
        let (Change::Bind { pattern: name, .. }
        | Change::Unbind { pattern: name, .. }
        | Change::MakeTopic(name)
        | Change::EndTopic(name)) = change;
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
            Change::EndTopic(_) => uses.temporary = false,
        }
        if *uses == Uses::default() {
            topics.remove(index);
            self.by_name.remove(name);
        }
    }
}

impl Topology {
    pub(crate) fn new(index: usize, shards: usize, hash_seed: u64) -> Self {
        let coordination = Coordination {
            count: 0,
            bound: Bound::default(),
            taken: vec![0; shards],
            waiting: VecDeque::new(),
        };
        Topology {
            bindings: TopicTrie::new(hash_seed),
            temporary: HashSet::new(),
            taken: 0,
            proposals: Slab::new(),
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
        self.bindings.matches(topic, |at| found(*at));
    }

    /// What has been looked up since this was asked last, in work of a turn.
    pub(crate) fn take_work(&mut self) -> u64 {
        self.bindings.take_work()
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

    /// False: it was so already.
    fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Bind { pattern, queue } => {
                self.bindings.insert(pattern.as_bytes(), *queue);
                true
            }
            Change::Unbind { pattern, queue } => self.bindings.remove(pattern.as_bytes(), queue),
            Change::MakeTopic(topic) => self.temporary.insert(topic.clone()),
            Change::EndTopic(topic) => self.temporary.remove(topic),
        }
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
                self.topology.apply(&change);
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
        }
    }

    fn on_proposed(&mut self, now: u64, from: usize, proposal: Option<u32>, change: Change) {
        let topology = &mut self.topology;
        let Some(coordination) = &mut topology.coordination else { return };
        let begins = matches!(change, Change::Bind { .. } | Change::MakeTopic(_));
        if begins && coordination.count >= BINDINGS_MAX {
            self.answer_change(now, from, proposal, Err(Refusal::ResourceLimit));
            return;
        }
        if !topology.apply(&change) {
            self.answer_change(now, from, proposal, Ok(()));
            return;
        }
        let Some(coordination) = &mut topology.coordination else { return };
        coordination.count = if begins { coordination.count + 1 } else { coordination.count - 1 };
        coordination.bound.note(&change);
        topology.taken += 1;
        let number = topology.taken;
        coordination.taken[COORDINATOR] = number;
        if let Some(proposal) = proposal {
            coordination.waiting.push_back((number, from, proposal));
        }
        for shard in (0..self.shards).filter(|shard| *shard != COORDINATOR) {
            self.post_topology(shard, TopologyStep::Delta { number, change: change.clone() });
        }
        self.follow(now, &change);
        self.conclude_changes(now);
    }

    /// Answers the changes that all shards have taken.
    fn conclude_changes(&mut self, now: u64) {
        while let Some(coordination) = &mut self.topology.coordination
            && let Some(&(number, from, proposal)) = coordination.waiting.front()
            && coordination.taken.iter().all(|taken| *taken >= number)
        {
            coordination.waiting.pop_front();
            self.answer_change(now, from, Some(proposal), Ok(()));
        }
    }

    fn answer_change(&mut self, now: u64, to: usize, proposal: Option<u32>, result: Result<(), Refusal>) {
        let Some(proposal) = proposal else { return };
        if to == self.index {
            self.on_change_done(now, proposal, result);
        } else {
            self.post_topology(to, TopologyStep::Done { proposal, result });
        }
    }

    fn on_change_done(&mut self, now: u64, proposal: u32, result: Result<(), Refusal>) {
        match self.topology.proposals.try_remove(proposal as usize) {
            Some(Then::Subscribed(queue)) => self.on_subscribed(now, queue, result),
            Some(Then::TopicMade(link)) => self.on_topic_made(now, link, result),
            None => {}
        }
    }

    /// What a change means for the queues of this shard.
    fn follow(&mut self, now: u64, change: &Change) {
        match change {
            Change::Bind { .. } | Change::Unbind { .. } | Change::MakeTopic(_) => {}
            Change::EndTopic(topic) => self.end_subscriptions_to(now, topic),
        }
    }

    fn post_topology(&mut self, to: usize, step: TopologyStep) {
        self.post(to, Lane::Control, Mail::Topology(TopologyMail(step)));
    }
}
