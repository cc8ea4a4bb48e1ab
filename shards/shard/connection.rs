//! What does a shard know of one connection? Its protocol state, its buffers, and what each link is bound to.
//!
//! All of it is `Send` and refers to nothing in the shard, so that a connection can move: queues are named by shard and id,
//! and the consumers of a connection that may still move are none.
//!
//! Invariants:
//! - while `hold` is set nothing is parsed; what arrives waits in `waiting_input`;
//! - `unanswered` counts the requests and handoffs other shards owe an answer; a connection moves only at 0;
//! - a connection moves at most once, before it has its first consumer or coordinator (`settled_down`).

use std::sync::Arc;

use corelane_engine::{ConsumerId, QueueId};
use corelane_protocol::{LinkId, SessionId};
use corelane_wire::amqp10::{Attach, TargetArchetype};

use crate::amqp091::Channels;
use crate::event::Peer;
use crate::exchange_routes::ExchangeRoutes;
use crate::fan_out::{FanOuts, TopicRoute};
use crate::limits::{BUFFER_KEPT_BYTES_MAX, LEAD_MAX, LEAD_WAIT_US, PRODUCER_CREDIT};
use crate::mail::{ConnectionId, ConsumeRequest, LinkRef};
use crate::parts::Partial;
use crate::protocol::Protocol;
use crate::rights::{NOBODY, Permission, Rights};
use crate::target::Target;
use crate::transaction::Transactions;
use crate::vhost;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    /// The peer's container, and its hash. Empty for a peer that does not name it.
    pub(crate) container: Box<str>,
    pub(crate) container_hash: u64,
    /// The virtual host that it was opened in; none: the default one.
    pub(crate) vhost: Option<Arc<str>>,
    /// Who has logged in; nobody where that was anonymous, or without SASL.
    pub(crate) user: Option<Arc<str>>,
    /// What the user may do; none: everything. And in the virtual host that it was opened in.
    pub(crate) rights: Option<Arc<Rights>>,
    pub(crate) permission: Option<Arc<Permission>>,
    /// The exchange for which that was looked up last, if its channels may publish to it.
    pub(crate) may_publish_to: Option<Box<str>>,
    pub(crate) protocol: Protocol,
    /// Received, not yet parsed: part of a frame, or all that has come while `hold` is set.
    pub(crate) waiting_input: Vec<u8>,
    pub(crate) hold: Option<Hold>,
    /// The driver was told to stop receiving.
    pub(crate) reading_stopped: bool,
    /// Empty buffer to go on writing in while the other one is being sent.
    pub(crate) spare_output: Vec<u8>,
    /// A flush was asked for; until the driver takes the output no other one is.
    pub(crate) flush_requested: bool,
    /// More unsent output than consumers may add to.
    pub(crate) output_blocked: bool,
    /// Bytes the driver has taken and not yet sent.
    pub(crate) sending_bytes: usize,
    /// Links with deliveries in the output, and in the send that is not complete.
    writing_links: Vec<LinkId>,
    sending_links: Vec<LinkId>,
    /// Bytes of messages of which frames are still to come, as the shard counts them.
    pub(crate) assembled: usize,
    /// Consumers on other shards.
    pub(crate) targets: u32,
    /// By how many deliveries queues of this shard are ahead of those of others, since these last had nothing.
    pub(crate) lead: u32,
    /// When a delivery from another shard last came, or began to be waited for.
    pub(crate) remote_at: u64,
    /// Consumers of this shard wait for the others to catch up.
    pub(crate) waits: bool,
    /// On the list of connections to be finished at the end of the turn.
    pub(crate) touched: bool,
    /// Bound links by their protocol index.
    pub(crate) links: Vec<Option<Link>>,
    pub(crate) attachments: u32,
    pub(crate) unanswered: u32,
    /// Since it has, or had, a coordinator's link.
    pub(crate) transactions: Option<Box<Transactions>>,
    /// Of a connection that speaks 0-9-1.
    pub(crate) channels: Channels,
    /// Requests for the management node that are being served.
    pub(crate) requests: u32,
    pub(crate) settled_down: bool,
    /// Deadline of the connection's entry in the shard's timer heap.
    pub(crate) timer_at: Option<u64>,
    /// The last output is on its way; everything that arrives is ignored.
    pub(crate) closing: bool,
}

/// Why received bytes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Credentials are being checked off the shard.
    Credentials,
    /// The connection moves to this shard as soon as nothing is unanswered and its output is sent.
    /// The consumer of this link is made where it arrives.
    Move { to: usize, link: LinkId },
    /// Too many handoffs to this shard are unanswered.
    Lane { to: usize },
    /// Too many messages of this link, which has no credit, are unanswered.
    Answers { link: LinkId },
    /// It publishes, and there is no memory for that, or no room on a disk.
    Alarm,
    /// The peer does not read what we send.
    Output,
    /// This turn has done as much as it may.
    Turn,
}

/// What a link of the protocol is bound to.
#[derive(Debug)]
pub(crate) enum Link {
    Producer(Producer),
    Consumer(Consumer),
    Coordinator(Coordinator),
    Unsubscriber(Unsubscriber),
}

/// A link on which we receive messages.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) attachment: u32,
    pub(crate) route: Route,
    /// Received and not yet answered by the queue's home.
    pub(crate) unanswered: u32,
    /// Answered since credit was last granted.
    pub(crate) answered: u32,
    /// Messages that may be on their way.
    pub(crate) window: u32,
    /// Full queues that it has to wait for, with their names.
    pub(crate) waits_for: Vec<(QueueAt, Box<str>)>,
    /// Messages that came although it was told to wait.
    pub(crate) overshoot: u32,
    /// The last queue of another shard that a message was for by its key.
    pub(crate) last_key: Option<Arc<str>>,
    /// Where those go that a channel publishes to exchanges.
    pub(crate) exchange_routes: Option<Box<ExchangeRoutes>>,
    /// Where they go, if it is a topic, or an exchange of 1.0.
    pub(crate) topic: Option<Box<TopicRoute>>,
    /// Messages that several shards have yet to answer.
    pub(crate) fan_outs: FanOuts,
    pub(crate) dynamic: Option<DynamicNode>,
    /// Its queue was deleted; the link ends when nothing is unanswered.
    pub(crate) target_deleted: bool,
    /// The link has ended; answers are still owed.
    pub(crate) detached: bool,
}

/// A link on which transactions are declared and discharged.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(crate) attachment: u32,
    /// The peer understands rejections.
    pub(crate) rejects: bool,
    /// Requests answered since credit was last granted.
    pub(crate) answered: u32,
}

/// Where the messages of a producer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The home has yet to say which queue it is.
    Resolving,
    Queue(QueueAt),
    Topic,
    /// Each message says so itself.
    Anonymous,
    /// Each message names its exchange, and its key.
    Exchange,
    /// They are requests for the management node.
    Management,
}

/// A node that lives as long as its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DynamicNode {
    Queue(QueueAt),
    Topic(Arc<str>),
}

/// A link by which a peer ends a durable subscription.
#[derive(Debug)]
pub(crate) struct Unsubscriber {
    pub(crate) attachment: u32,
    /// What the subscription may be called; looked for is the last one.
    pub(crate) names: Vec<Box<str>>,
    pub(crate) found: bool,
}

/// A queue, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueAt {
    pub(crate) shard: usize,
    pub(crate) queue: QueueId,
}

/// A link on which we send messages.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) attachment: u32,
    pub(crate) session: SessionId,
    pub(crate) browse: bool,
    /// Deliveries are sent settled.
    pub(crate) presettled: bool,
    /// The peer has asked for a drain that is not done.
    pub(crate) draining: bool,
    pub(crate) default_outcome: Option<corelane_engine::Outcome>,
    pub(crate) at: ConsumerAt,
    /// A delivery of which a part is written.
    pub(crate) partial: Option<Partial>,
    /// Deliveries written and not settled.
    pub(crate) unsettled: u32,
    /// Those of them that are still in the output, and those in a send that is not complete.
    pub(crate) unflushed: [u32; 2],
    pub(crate) dynamic: Option<DynamicNode>,
    /// What is sent from now on is acquired inside this transaction.
    pub(crate) transaction: Option<u32>,
    /// It takes the answers of the management node.
    pub(crate) answers: Option<Box<Answers>>,
    /// Of a consumer on a channel.
    pub(crate) channel: Option<Box<ChannelConsumer>>,
}

/// What a consumer on a channel has beside.
#[derive(Debug)]
pub(crate) struct ChannelConsumer {
    pub(crate) queue: Box<str>,
    /// It takes one message each time that it is asked to.
    pub(crate) gets: bool,
    pub(crate) is_cancelled: bool,
}

/// Where answers of the management node gather, and what requests call that in their reply-to.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) queue: Box<str>,
    /// The link's name, and its target's address.
    pub(crate) names: [Option<Box<str>>; 2],
}

/// What an attach asked for that is not answered yet.
#[derive(Debug)]
pub(crate) struct PendingConsumer {
    pub(crate) request: ConsumeRequest,
    /// The filters to be answered, an encoded map, when they are not all that were asked for.
    pub(crate) filters_in_force: Option<Vec<u8>>,
}

/// Where the consumer of a link is.
#[derive(Debug)]
pub(crate) enum ConsumerAt {
    /// Not yet: the connection moves first, or the queue's home has yet to answer.
    Nowhere(Box<PendingConsumer>),
    Here(ConsumerId),
    Elsewhere(Box<Target>),
}

impl Link {
    pub(crate) fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        match self {
            Link::Consumer(consumer) => Some(consumer),
            Link::Producer(_) | Link::Coordinator(_) | Link::Unsubscriber(_) => None,
        }
    }
}

impl Answers {
    pub(crate) fn new(queue: &str, attach: &Attach<'_>) -> Answers {
        let target = match attach.target {
            Some(TargetArchetype::Target(target)) => target.address,
            Some(TargetArchetype::Coordinator(_)) | None => None,
        };
        Answers { queue: queue.into(), names: [Some(attach.name.into()), target.map(Into::into)] }
    }
}

impl Consumer {
    /// Its deliveries are settled by the peer, and counted until they are.
    pub(crate) fn is_counted(&self) -> bool {
        !self.browse && !self.presettled
    }

    /// The peer may have seen some of the deliveries that are unsettled: then the oldest is one of them.
    pub(crate) fn was_seen(&self) -> bool {
        self.unsettled > self.unflushed[0] + self.unflushed[1]
    }
}

/// Whom a message comes from.
pub(crate) struct Sender {
    pub(crate) link: LinkRef,
    /// Who has logged in.
    pub(crate) user: Option<Arc<str>>,
}

impl Producer {
    pub(crate) fn new(attachment: u32) -> Self {
        let route = Route::Resolving;
        Producer {
            attachment,
            route,
            unanswered: 0,
            answered: 0,
            window: PRODUCER_CREDIT,
            waits_for: Vec::new(),
            overshoot: 0,
            last_key: None,
            exchange_routes: None,
            topic: None,
            fan_outs: FanOuts::default(),
            dynamic: None,
            target_deleted: false,
            detached: false,
        }
    }
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, peer: Peer, protocol: Protocol) -> Self {
        Connection {
            id,
            peer,
            container: Box::default(),
            vhost: None,
            rights: None,
            permission: None,
            may_publish_to: None,
            container_hash: 0,
            user: None,
            protocol,
            waiting_input: Vec::new(),
            hold: None,
            reading_stopped: false,
            spare_output: Vec::new(),
            flush_requested: false,
            output_blocked: false,
            sending_bytes: 0,
            writing_links: Vec::new(),
            sending_links: Vec::new(),
            assembled: 0,
            targets: 0,
            lead: 0,
            remote_at: 0,
            waits: false,
            touched: false,
            links: Vec::new(),
            attachments: 0,
            unanswered: 0,
            transactions: None,
            channels: Channels::default(),
            requests: 0,
            settled_down: false,
            timer_at: None,
            closing: false,
        }
    }

    /// The output is on its way, and with it the deliveries in it.
    pub(crate) fn note_sending(&mut self) {
        std::mem::swap(&mut self.writing_links, &mut self.sending_links);
        for &link in &self.sending_links {
            if let Some(Some(Link::Consumer(consumer))) = self.links.get_mut(link.0 as usize) {
                consumer.unflushed[1] += std::mem::take(&mut consumer.unflushed[0]);
            }
        }
    }

    /// The send is complete.
    pub(crate) fn note_flushed(&mut self) {
        for link in self.sending_links.drain(..) {
            if let Some(Some(Link::Consumer(consumer))) = self.links.get_mut(link.0 as usize) {
                consumer.unflushed[1] = 0;
            }
        }
    }

    /// An unsettled delivery of this link was written to the output.
    #[inline]
    pub(crate) fn note_written(&mut self, link: LinkId) {
        if let Some(Some(Link::Consumer(consumer))) = self.links.get_mut(link.0 as usize) {
            consumer.unsettled += 1;
            consumer.unflushed[0] += 1;
            if consumer.unflushed[0] == 1 {
                self.writing_links.push(link);
            }
        }
    }

    /// Bytes that the peer has not taken yet.
    pub(crate) fn unsent_bytes(&mut self) -> usize {
        self.sending_bytes + self.protocol.output().len()
    }

    /// Whether consumers of this shard are so far ahead of those on others that they have to wait.
    pub(crate) fn is_ahead(&self, now: u64) -> bool {
        self.targets > 0 && self.lead >= LEAD_MAX && now < self.remote_at + LEAD_WAIT_US
    }

    /// Gives up large buffers that are empty.
    pub(crate) fn trim(&mut self) {
        for buffer in [self.protocol.output(), &mut self.spare_output, &mut self.waiting_input] {
            if buffer.is_empty() && buffer.capacity() > BUFFER_KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
    }

    pub(crate) fn bind(&mut self, link: LinkId, bound: Link) {
        let index = link.0 as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.links[index] = Some(bound);
    }

    pub(crate) fn unbind(&mut self, link: LinkId) -> Option<Link> {
        self.links.get_mut(link.0 as usize)?.take()
    }

    pub(crate) fn link_mut(&mut self, link: LinkId) -> Option<&mut Link> {
        self.links.get_mut(link.0 as usize)?.as_mut()
    }

    /// The channel that publishes on this link, if it is one of 0-9-1.
    pub(crate) fn session_of(&self, publisher: LinkId) -> Option<SessionId> {
        match &self.protocol {
            Protocol::Amqp091(protocol) => protocol.session_of(publisher),
            Protocol::Amqp10(_) => None,
        }
    }

    pub(crate) fn producer_mut(&mut self, link: LinkId) -> Option<&mut Producer> {
        match self.link_mut(link)? {
            Link::Producer(producer) => Some(producer),
            Link::Consumer(_) | Link::Coordinator(_) | Link::Unsubscriber(_) => None,
        }
    }

    /// Who sends by this link, and with what.
    #[inline(always)]
    pub(crate) fn sender(&mut self, link: LinkId) -> Option<(Sender, &Producer)> {
        let (id, user) = (self.id, self.user.clone());
        let producer = self.producer_mut(link)?;
        let link = LinkRef { connection: id, link, attachment: producer.attachment };
        Some((Sender { link, user }, producer))
    }

    /// Grants a producer as much credit as its window leaves.
    pub(crate) fn grant_producer(&mut self, link: LinkId) {
        let Some(producer) = self.producer_mut(link) else { return };
        producer.answered = 0;
        if producer.waits_for.is_empty() && !producer.detached && !producer.target_deleted {
            let credit = producer.window.saturating_sub(producer.unanswered);
            self.protocol.grant_credit(link, credit, false);
        }
    }

    /// Publishers on channels go on, if none of them has to wait any more.
    pub(crate) fn tell_unblocked(&mut self) {
        let waits = |link: &Link| matches!(link, Link::Producer(producer) if !producer.waits_for.is_empty());
        if let Protocol::Amqp091(protocol) = &mut self.protocol
            && !self.links.iter().flatten().any(waits)
        {
            protocol.set_blocked(None);
        }
    }

    pub(crate) fn consumer_mut(&mut self, link: LinkId) -> Option<&mut Consumer> {
        self.link_mut(link)?.consumer_mut()
    }

    pub(crate) fn coordinator_mut(&mut self, link: LinkId) -> Option<&mut Coordinator> {
        match self.link_mut(link)? {
            Link::Coordinator(coordinator) => Some(coordinator),
            Link::Producer(_) | Link::Consumer(_) | Link::Unsubscriber(_) => None,
        }
    }

    /// The queue where answers gather that are to go to this name, if one of its links is meant by it.
    pub(crate) fn vhost(&self) -> &str {
        self.vhost.as_deref().unwrap_or(vhost::DEFAULT)
    }

    /// Its names are names of this virtual host from now on. An error says that its user may not do anything there.
    pub(crate) fn enter(&mut self, vhost: Arc<str>) -> Result<(), String> {
        if let Some(rights) = &self.rights {
            let Some(permission) = rights.permissions.get(&*vhost) else {
                let user = self.user.as_deref().unwrap_or(NOBODY);
                return Err(format!("access to vhost '{vhost}' refused for user '{user}'"));
            };
            self.permission = Some(permission.clone());
        }
        self.vhost = (*vhost != *vhost::DEFAULT).then_some(vhost);
        Ok(())
    }

    pub(crate) fn answers_at(&self, reply_to: &str) -> Option<&str> {
        let mut answers = self.links.iter().flatten().filter_map(|link| match link {
            Link::Consumer(consumer) => consumer.answers.as_deref(),
            Link::Producer(_) | Link::Coordinator(_) | Link::Unsubscriber(_) => None,
        });
        let meant = answers.find(|answers| answers.names.iter().flatten().any(|name| **name == *reply_to));
        meant.map(|answers| &*answers.queue)
    }

    /// A new attachment's number and the name other shards know the link by.
    pub(crate) fn link_ref(&mut self, link: LinkId) -> LinkRef {
        self.attachments = self.attachments.wrapping_add(1);
        LinkRef { connection: self.id, link, attachment: self.attachments }
    }
}
