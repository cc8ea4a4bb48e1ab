//! What kind of world does a seed make? Queues with their properties, how many clients there are, and how often what happens.
//!
//! Every seed leaves much out and does some things very often: what many features hide together, few may show.

use corelane_shard::{DestinationRule, DispatchRule, OverflowRule, PrefetchRule, RedeliveryRule};

use crate::changing::Reach;
use crate::oracle::Sent;
use crate::random::Random;
use crate::subscribing::{Subscription, TOPICS};
use crate::tables;
use crate::vanishing;

/// A message's group, by its number.
pub(crate) type Group = u8;

pub(crate) const COLORS: [&str; 3] = ["red", "green", "blue"];
pub(crate) const KEYS: usize = 4;

/// Where dead letters go.
const GRAVE: &str = "sim.dead";

/// The longest delay of a message.
pub(crate) const DELAY_MS_MAX: usize = 300;

/// The longest life of a message that does not live for ever.
pub(crate) const TTL_MS_MAX: u32 = 2_000;

/// How often an action happens, beside the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight(pub(crate) Action, pub(crate) usize);

/// What can happen to a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Connect,
    AttachSender,
    AttachReceiver,
    Send,
    Grant,
    Settle,
    Declare,
    Discharge,
    Detach,
    Close,
    Reset,
    Freeze,
    Slow,
    Operate,
    Delay,
    Stall,
    Pass,
    PassLong,
}

/// What a name of a plan stands for.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Queue,
    /// By its number among the topics.
    Topic(usize),
    Subscription(Box<Subscription>),
}

/// A queue: what the broker is told of it, and what the oracle makes of that.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlan {
    pub(crate) name: String,
    pub(crate) kind: NodeKind,
    pub(crate) rule: DestinationRule,
    pub(crate) exclusive: bool,
    pub(crate) priorities: bool,
    pub(crate) prefetch_max: Option<usize>,
    /// The queue where its dead letters go.
    pub(crate) dead_letter: Option<usize>,
    /// Nothing is lost in the queue of its dead letters.
    pub(crate) keeps_dead: bool,
    /// It may be full for these.
    pub(crate) refuses: Reach,
    /// Messages do not become available in the order in which they came.
    pub(crate) reorders: bool,
    /// Deliveries may have a deadline, and no shorter one.
    pub(crate) deadline_us: Option<u64>,
    /// When deliveries had begun, at the latest, that missed it.
    pub(crate) missed: u64,
    /// Some of its consumers take messages without settling them.
    pub(crate) takes_settled: bool,
    /// Some of these do so inside transactions: what was on its way has failed when these are rolled back.
    pub(crate) takes_settled_in: bool,
    /// A later message of a key takes the place of an earlier one.
    pub(crate) replaces: bool,
    /// Consumers acquire nothing.
    pub(crate) shows_all: bool,
    /// An operator may have taken out what was sent before this one.
    pub(crate) removed: usize,
    /// Requests to do so that have not been answered for certain.
    pub(crate) removing: u32,
    /// These may be dropped for others.
    pub(crate) drops: Reach,
    /// These may fail too often, and so often at most.
    pub(crate) exhausts: Reach,
    pub(crate) deliveries_max: Option<u64>,
    /// What may stand for the time to live of which messages.
    pub(crate) expirations: Vec<(Option<u64>, Reach)>,
    /// It never has more than its limits.
    pub(crate) is_bounded: bool,
    /// Changes of its properties that have not been answered for certain.
    pub(crate) changing: u32,
    /// Messages may be moved here that nobody knows of.
    pub(crate) gets_strays: bool,
    /// It may be deleted while it is used, or go when it is not, and come back.
    pub(crate) goes: bool,
    /// How often it has gone.
    pub(crate) gone: usize,
    /// Requests to delete it that have not been answered for certain.
    pub(crate) deleting: u32,
}

impl QueuePlan {
    pub(crate) fn address(&self) -> String {
        match &self.kind {
            NodeKind::Queue => self.name.clone(),
            NodeKind::Topic(_) => format!("topic://{}", self.name),
            NodeKind::Subscription(subscription) => subscription.terms().0.to_owned(),
        }
    }

    /// Whether an operator may have taken out the message of this number.
    pub(crate) fn may_remove(&self, number: usize) -> bool {
        self.removing > 0 || number < self.removed
    }

    pub(crate) fn is_queue(&self) -> bool {
        matches!(self.kind, NodeKind::Queue)
    }

    /// The queue of dead letters.
    pub(crate) fn is_grave(&self) -> bool {
        self.name == GRAVE
    }

    /// Whether a message may leave the queue without being consumed or rejected.
    pub(crate) fn may_kill(&self, number: usize, sent: &Sent) -> bool {
        self.drops.covers(number) || self.exhausts.covers(number) || self.may_expire(number, sent)
    }

    /// Whether a message may be gone in the end without anybody having ended it.
    pub(crate) fn may_lose(&self, number: usize, sent: &Sent) -> bool {
        self.may_kill(number, sent) || self.takes_settled
    }
}

/// What a consumer asks for, and what it then may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    KeyIs(i64),
    KeyIsNot(i64),
    ColorIs(&'static str),
    KeyAtLeastAndColor(i64, &'static str),
    KeyOneOf(i64, i64),
    ColorLike,
}

impl Selector {
    fn draw(random: &mut Random) -> Self {
        let key = random.below(KEYS) as i64;
        let color = COLORS[random.below(COLORS.len())];
        match random.below(6) {
            0 => Selector::KeyIs(key),
            1 => Selector::KeyIsNot(key),
            2 => Selector::ColorIs(color),
            3 => Selector::KeyAtLeastAndColor(key, color),
            4 => Selector::KeyOneOf(key, random.below(KEYS) as i64),
            _ => Selector::ColorLike,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Selector::KeyIs(key) => format!("k = {key}"),
            Selector::KeyIsNot(key) => format!("NOT (k = {key})"),
            Selector::ColorIs(color) => format!("color = '{color}'"),
            Selector::KeyAtLeastAndColor(key, color) => format!("k >= {key} AND color = '{color}'"),
            Selector::KeyOneOf(one, other) => format!("k = {one} OR k = {other}"),
            Selector::ColorLike => "color LIKE '%re%' AND missing IS NULL".to_owned(),
        }
    }

    pub(crate) fn matches(self, key: i64, color: &str) -> bool {
        match self {
            Selector::KeyIs(wanted) => key == wanted,
            Selector::KeyIsNot(unwanted) => key != unwanted,
            Selector::ColorIs(wanted) => color == wanted,
            Selector::KeyAtLeastAndColor(least, wanted) => key >= least && color == wanted,
            Selector::KeyOneOf(one, other) => key == one || key == other,
            Selector::ColorLike => color.contains("re"),
        }
    }
}

/// What a seed has drawn.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: usize,
    /// Topics are behind the queues.
    pub(crate) queues: Vec<QueuePlan>,
    pub(crate) topics: usize,
    pub(crate) anonymous: bool,
    /// An operator is at work, too.
    pub(crate) operates: bool,
    /// And deletes queues.
    pub(crate) deletes: bool,
    /// And changes what holds for them.
    pub(crate) changes: bool,
    /// And moves messages.
    pub(crate) moves: bool,
    /// Some receivers settle second.
    pub(crate) seconds: bool,
    pub(crate) peers_max: usize,
    pub(crate) weights: Vec<Weight>,
    /// Of a hundred steps, how many are actions of clients or of the world.
    pub(crate) actions_percent: usize,
    pub(crate) client_window: u32,
    pub(crate) serial_first: u32,
    /// Messages may be large.
    pub(crate) large: bool,
    pub(crate) groups: usize,
    pub(crate) ttl: bool,
    pub(crate) delays: bool,
    pub(crate) selectors: bool,
    pub(crate) browsers: bool,
    pub(crate) presettled: bool,
    pub(crate) no_local: bool,
    /// How far consumers' priorities are apart.
    pub(crate) priorities: usize,
    /// Of ten outcomes, how many accept.
    pub(crate) accepts: usize,
    pub(crate) credit_max: usize,
    /// Messages in all queues, about.
    pub(crate) messages_max: u64,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random, shards: Option<usize>) -> Self {
        let shards = shards.unwrap_or(1 + random.below(4));
        let presettled = random.one_in(4);
        let mut queues = draw_queues(random, presettled);
        let topics = if random.one_in(2) { TOPICS.len() } else { 0 };
        queues.extend(TOPICS.iter().take(topics).enumerate().map(|(n, name)| plan_topic(n, name)));
        let serial_first = [0, 0, 0x7fff_ffe0, 0xffff_ff00][random.below(4)];
        let mut plan = Plan {
            shards,
            queues,
            topics,
            anonymous: random.one_in(3),
            operates: random.one_in(3),
            deletes: false,
            changes: false,
            moves: false,
            seconds: false,
            peers_max: 2 + random.below(6),
            weights: draw_weights(random, shards),
            actions_percent: 5 + random.below(40),
            client_window: [3, 50, 2048][random.below(3)],
            serial_first,
            large: random.one_in(8),
            groups: [0, 0, 2, 5][random.below(4)],
            ttl: random.one_in(3),
            delays: random.one_in(4),
            selectors: random.one_in(2),
            browsers: random.one_in(3),
            presettled,
            no_local: random.one_in(4),
            priorities: [1, 1, 2, 4][random.below(4)],
            accepts: 3 + random.below(8),
            credit_max: [2, 10, 300][random.below(3)],
            messages_max: [20, 100, 100, 400][random.below(4)],
        };
        vanishing::draw(random, &mut plan);
        plan.changes = plan.operates && random.one_in(2);
        plan.moves = plan.operates && random.one_in(2);
        if plan.changes || plan.moves || plan.deletes {
            plan.weights.push(Weight(Action::Operate, 4));
        }
        plan.seconds = random.one_in(3);
        plan.queues.iter_mut().for_each(QueuePlan::begin);
        plan
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len() - self.topics
    }

    pub(crate) fn selector(&self, random: &mut Random) -> Option<Selector> {
        (self.selectors && random.one_in(2)).then(|| Selector::draw(random))
    }

    pub(crate) fn action(&self, random: &mut Random) -> Action {
        let total: usize = self.weights.iter().map(|Weight(_, weight)| weight).sum();
        let mut at = random.below(total);
        for Weight(action, weight) in &self.weights {
            if at < *weight {
                return *action;
            }
            at -= weight;
        }
        Action::Send
    }
}

fn draw_weights(random: &mut Random, shards: usize) -> Vec<Weight> {
    let always = [
        (Action::Connect, 2),
        (Action::AttachSender, 3),
        (Action::AttachReceiver, 3),
        (Action::Send, 12),
        (Action::Grant, 8),
        (Action::Settle, 12),
        (Action::Pass, 2),
    ];
    let sometimes = [
        (Action::Declare, 3),
        (Action::Discharge, 2),
        (Action::Detach, 2),
        (Action::Close, 1),
        (Action::Reset, 1),
        (Action::Freeze, 1),
        (Action::Slow, 2),
        (Action::Operate, 1),
        (Action::Delay, 2),
        (Action::Stall, if shards > 1 { 1 } else { 0 }),
        (Action::PassLong, 1),
    ];
    let mut weights: Vec<Weight> =
        always.iter().map(|(action, weight)| Weight(*action, weight * (1 + random.below(3)))).collect();
    for (action, weight) in sometimes {
        weights.push(Weight(action, weight * [0, 1, 1, 4][random.below(4)]));
    }
    weights
}

fn draw_queues(random: &mut Random, presettled: bool) -> Vec<QueuePlan> {
    let count = 1 + random.below(5);
    let mut queues: Vec<QueuePlan> = (0..count).map(|n| draw_queue(random, n, presettled)).collect();
    if random.one_in(2) {
        // One more, for the dead letters of some of the others.
        let mut grave = plain_queue(count, presettled);
        grave.name = GRAVE.to_owned();
        grave.rule.pattern = grave.name.clone();
        for queue in &mut queues {
            if random.one_in(2) {
                queue.rule.dead_letter = Some(grave.name.as_str().into());
                queue.dead_letter = Some(count);
                queue.keeps_dead = !presettled;
            }
        }
        grave.reorders = true;
        queues.push(grave);
    }
    queues
}

fn plan_topic(number: usize, name: &str) -> QueuePlan {
    QueuePlan { name: name.to_owned(), kind: NodeKind::Topic(number), ..plain_queue(number, false) }
}

pub(crate) fn plain_queue(number: usize, presettled: bool) -> QueuePlan {
    let name = format!("sim.{number}");
    let mut queue = QueuePlan {
        rule: DestinationRule { pattern: name.clone(), ..DestinationRule::default() },
        name,
        kind: NodeKind::Queue,
        exclusive: false,
        priorities: false,
        prefetch_max: None,
        dead_letter: None,
        keeps_dead: false,
        refuses: Reach::NONE,
        reorders: false,
        deadline_us: None,
        missed: 0,
        takes_settled: presettled,
        takes_settled_in: false,
        replaces: false,
        shows_all: false,
        removed: 0,
        removing: 0,
        drops: Reach::NONE,
        exhausts: Reach::NONE,
        deliveries_max: None,
        expirations: Vec::new(),
        is_bounded: true,
        changing: 0,
        gets_strays: false,
        goes: false,
        gone: 0,
        deleting: 0,
    };
    queue.begin();
    queue
}

fn draw_queue(random: &mut Random, number: usize, presettled: bool) -> QueuePlan {
    let mut queue = plain_queue(number, presettled);
    if random.one_in(4) {
        queue.rule.exclusive = Some(true);
        queue.exclusive = true;
    } else if random.one_in(6) {
        queue.rule.consumers_max = Some(2);
    }
    if random.one_in(4) {
        queue.rule.priorities = Some(true);
        queue.priorities = true;
    }
    match random.below(6) {
        0 => queue.rule.prefetch = Some(PrefetchRule::None),
        1 => queue.rule.prefetch = Some(PrefetchRule::Limit(1 + random.below(5) as u32)),
        _ => {}
    }
    if random.one_in(4) {
        queue.rule.sticky_groups = Some(true);
    }
    if random.one_in(6) {
        queue.rule.expiration_us = Some([0, 100_000][random.below(2)]);
    }
    if random.one_in(4) {
        queue.rule.dispatch = Some(DispatchRule::LeastOutstanding);
    }
    draw_limits(random, &mut queue);
    tables::draw(random, &mut queue);
    queue
}

/// How much there is room for, how often a message may fail, and how long it may be held.
fn draw_limits(random: &mut Random, queue: &mut QueuePlan) {
    if random.one_in(4) {
        if random.one_in(3) {
            queue.rule.bytes_max = Some(500 + random.below(5000) as u64);
        } else {
            queue.rule.messages_max = Some(1 + random.below(30) as u64);
        }
        queue.rule.overflow = Some(match random.below(3) {
            0 => OverflowRule::Reject,
            1 => OverflowRule::DropOldest,
            _ => OverflowRule::Block,
        });
    }
    if random.one_in(5) {
        queue.rule.deliveries_max = Some(1 + random.below(4) as u64);
    }
    if random.one_in(5) {
        let min_us = 1000 * (1 + random.below(100) as u64);
        queue.rule.redelivery =
            Some(RedeliveryRule { min_us, multiplier_permille: 2000, max_us: 4 * min_us });
    }
    if random.one_in(6) {
        queue.rule.ack_deadline_us = Some(1000 * (20 + random.below(500) as u64));
    }
}
