//! What does a peer's attach lead to? A producer or a consumer on a queue, here or elsewhere, or a refusal with its reason.
//!
//! A queue that lives on another shard is asked for by mail, and the attach is answered when the home has answered. A first
//! consumer makes the connection move to its queue's home instead, where the attach is answered.

use corelane_engine::selector::Filter;
use corelane_engine::{AcquireMode, ConsumerId, ConsumerSpec, Origin, QueueId};
use corelane_mailbox::Lane;
use corelane_protocol::amqp10::{Answer, AttachAnswer, ErrorSpec, LinkId, SessionId};
use corelane_wire::amqp10::{
    Attach, Descriptor, DistributionMode, Map, MapWriter, Role, SenderSettleMode, Source, Symbols,
    TargetArchetype, Value,
};

use crate::Shard;
use crate::attach_topic::{Node, wants_topic};
use crate::connection::{
    Answers, Consumer, ConsumerAt, DynamicNode, Link, PendingConsumer, Producer, QueueAt, Route,
};
use crate::deliver::Owner;
use crate::event::ConnectionSlot;
use crate::limits::REQUEST_CREDIT;
use crate::mail::{ConsumeRequest, LinkRef, Mail, Refusal};
use crate::management;
use crate::producers::ProducerAt;
use crate::protocol::Protocol;
use crate::rights::{Object, Right};
use crate::settle::engine_outcome;
use crate::target::Target;
use crate::vhost;

pub(crate) const OUTCOMES: &[&str] =
    &["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"];

/// AMQP filters registry: `apache.org:selector-filter:string`.
pub(crate) const SELECTOR_FILTER: (&str, u64) = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004);
/// AMQP filters registry: `apache.org:no-local-filter:list`.
pub(crate) const NO_LOCAL_FILTER: (&str, u64) = ("apache.org:no-local-filter:list", 0x0000_468C_0000_0003);

/// Why an attach is refused.
pub(crate) struct Refused {
    condition: &'static str,
    description: String,
}

impl Refused {
    pub(crate) fn new(condition: &'static str, description: impl Into<String>) -> Self {
        Refused { condition, description: description.into() }
    }

    pub(crate) fn invalid_address() -> Self {
        let description = "the address has to be a name: 1 to 1024 bytes without control characters";
        Refused::new("amqp:invalid-field", description)
    }

    pub(crate) fn unsupported_address() -> Self {
        Refused::new(
            "amqp:not-implemented",
            "addresses of this form are not known: use a name, /queues/NAME, /topics/NAME or /exchanges/NAME/KEY",
        )
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Refused::new(
                "amqp:not-found",
                "no such queue, and none of this name is made on first use: auto-create is false, for all or by a rule for the name, or it \
                 is a name that only the broker gives",
            ),
            Refusal::ResourceLimit => Refused::new(
                "amqp:resource-limit-exceeded",
                "the queue's shard has no room for another queue or consumer",
            ),
            Refusal::Filters => Refused::new(
                "amqp:resource-limit-exceeded",
                "the consumers of this queue have too many different selectors, or too large ones; those that are gone do not count",
            ),
            Refusal::Priorities => Refused::new(
                "amqp:resource-limit-exceeded",
                "the consumers of this queue have too many different priorities: 64 are allowed",
            ),
            Refusal::InvalidFilter => Refused::new("amqp:invalid-field", "the selector could not be read"),
            Refusal::Locked => Refused::new(
                "amqp:resource-locked",
                "the subscription is in use: on other terms, or by consumers who have to close first",
            ),
            Refusal::Stolen => {
                Refused::new("amqp:link:stolen", "the subscription's link was attached elsewhere")
            }
            Refusal::Exclusive => {
                Refused::new("amqp:resource-locked", "the queue belongs to another connection")
            }
            Refusal::InUse => Refused::new(
                "amqp:resource-locked",
                "the queue is in use by a consumer that wants to be the only one",
            ),
        }
    }
}

impl Shard {
    pub(crate) fn on_attached(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        session: SessionId,
        attach: &Attach<'_>,
    ) {
        let result = match attach.role {
            Role::Sender => self.attach_producer(now, slot, link, attach),
            Role::Receiver => self.attach_consumer(now, slot, link, session, attach),
        };
        if let Err(refused) = result {
            self.refuse(now, slot, link, &refused);
        }
    }

    /// The node of an address, if the connection's user may send to it, or receive from it. The management node looks at what it is
    /// asked for.
    fn node_for(
        &mut self,
        slot: ConnectionSlot,
        right: Right,
        address: &str,
        capabilities: Symbols<'_>,
    ) -> Result<Node, Refused> {
        let node = self.node_of(slot, address, capabilities)?;
        let (object, name) = match &node {
            Node::Queue(name) if vhost::plain(name) == management::ADDRESS => return Ok(node),
            Node::Queue(name) => (Object::Queue, name),
            Node::Topic(name) => (Object::Topic, name),
            Node::Exchange { exchange, .. } => (Object::Exchange, exchange),
        };
        self.check_right(slot, right, object, name)?;
        Ok(node)
    }

    pub(crate) fn refuse(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, refused: &Refused) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Refused { condition, description } = refused;
        connection.protocol.refuse_attach(link, ErrorSpec { condition, description });
        self.unbind(now, slot, link);
        self.touch(slot);
    }

    fn attach_producer(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        attach: &Attach<'_>,
    ) -> Result<(), Refused> {
        let target = match attach.target {
            Some(TargetArchetype::Target(target)) => target,
            Some(TargetArchetype::Coordinator(_)) => {
                self.attach_coordinator(slot, link, attach);
                return Ok(());
            }
            // AMQP 1.0 §2.6.3: without a terminus there is nothing to attach to.
            None => return Err(Refused::new("amqp:not-found", "the attach has no target")),
        };
        if target.dynamic && wants_topic(target.capabilities) {
            self.attach_temporary_topic(now, slot, link);
            return Ok(());
        }
        let node = target.address.map(|it| self.node_for(slot, Right::Write, it, target.capabilities));
        let node = node.transpose()?;
        if let (Some(Node::Topic(topic)), false) = (&node, target.dynamic) {
            return self.attach_topic_producer(slot, link, topic);
        }
        if let (Some(Node::Exchange { exchange, key }), false) = (&node, target.dynamic) {
            return self.attach_exchange_producer(slot, link, exchange, key);
        }
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let link_ref = connection.link_ref(link);
        let mut producer = Producer::new(link_ref.attachment);
        if target.dynamic {
            let (name, at) = self.make_dynamic(now, slot)?;
            producer.route = Route::Queue(at);
            producer.dynamic = Some(DynamicNode::Queue(at));
            self.bind(slot, link, Link::Producer(producer));
            self.attach_producer_here(slot, link_ref, at.queue);
            self.accept_producer(slot, link, Answer::Other(Some(vhost::plain(&name))));
            return Ok(());
        }
        let Some(Node::Queue(name)) = node else {
            producer.route = Route::Anonymous;
            self.bind(slot, link, Link::Producer(producer));
            self.accept_producer(slot, link, Answer::Same);
            return Ok(());
        };
        if vhost::plain(&name) == management::ADDRESS {
            producer.route = Route::Management;
            producer.window = REQUEST_CREDIT;
            self.bind(slot, link, Link::Producer(producer));
            self.accept_producer(slot, link, Answer::Same);
            return Ok(());
        }
        let home = self.home_of(&name);
        if home == self.index {
            let makes = self.may_configure(slot, &name);
            let queue = self.find_or_make(now, &name, makes)?;
            producer.route = Route::Queue(QueueAt { shard: home, queue });
            self.bind(slot, link, Link::Producer(producer));
            self.attach_producer_here(slot, link_ref, queue);
            self.accept_producer(slot, link, Answer::Same);
        } else {
            self.bind(slot, link, Link::Producer(producer));
            let makes = self.may_configure(slot, &name);
            self.ask(slot, home, Mail::Resolve { link: link_ref, queue: name, makes });
        }
        Ok(())
    }

    pub(crate) fn accept_producer(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        target_address: Answer<Option<&str>>,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let answer = AttachAnswer { target_address, ..AttachAnswer::default() };
        connection.protocol.accept_attach(link, &answer);
        connection.grant_producer(link);
        self.touch(slot);
    }

    pub(crate) fn on_resolve(&mut self, now: u64, from: usize, link: LinkRef, (queue, makes): (&str, bool)) {
        let result = self.find_or_make(now, queue, makes);
        let window = match result {
            Ok(queue) => self.attach_producer_to(queue, ProducerAt { shard: from, link }),
            Err(_) => 0,
        };
        self.post(from, Lane::Control, Mail::Resolved { link, result, window });
    }

    /// The queue of a link is on this shard.
    fn attach_producer_here(&mut self, slot: ConnectionSlot, link: LinkRef, queue: QueueId) {
        let window = self.attach_producer_to(queue, ProducerAt { shard: self.index, link });
        if let Some(producer) = self.connections.get_mut(slot).and_then(|it| it.producer_mut(link.link)) {
            producer.window = window;
        }
    }

    pub(crate) fn on_resolved(
        &mut self,
        now: u64,
        from: usize,
        link: LinkRef,
        (result, window): (Result<QueueId, Refusal>, u32),
    ) {
        let slot = self.answered(link);
        let bound =
            slot.and_then(|slot| Some((slot, self.connections.get_mut(slot)?.producer_mut(link.link)?)));
        let Some((slot, producer)) =
            bound.filter(|(_, producer)| producer.attachment == link.attachment && !producer.detached)
        else {
            // The link or its connection ended meanwhile.
            if let Ok(queue) = result {
                self.post(from, Lane::Control, Mail::ProducerGone { queue, link });
            }
            return;
        };
        match result {
            Ok(queue) => {
                producer.window = window;
                producer.route = Route::Queue(QueueAt { shard: from, queue });
                self.accept_producer(slot, link.link, Answer::Same);
            }
            Err(refusal) => self.refuse(now, slot, link.link, &refusal.into()),
        }
    }

    fn attach_consumer(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        session: SessionId,
        attach: &Attach<'_>,
    ) -> Result<(), Refused> {
        let Some(source) = attach.source else {
            return self.attach_unsubscriber(now, slot, link, attach);
        };
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let mut filters = read_filters(&source, Origin(connection.id.0))?;
        let priority = link_priority(attach)?;
        let browse = is_browser(&source)?;
        let node = match source.address {
            _ if source.dynamic => None,
            Some(address) => Some(self.node_for(slot, Right::Read, address, source.capabilities)?),
            None => return Err(Refused::new("amqp:invalid-field", "the source has no address")),
        };
        // The answers to requests gather in a queue of their own.
        let takes_answers =
            matches!(&node, Some(Node::Queue(queue)) if vhost::plain(queue) == management::ADDRESS);
        let (home, request, dynamic) = if takes_answers {
            let (queue, at) = self.make_dynamic(now, slot)?;
            (at.shard, filters.request(queue, browse, priority), Some(DynamicNode::Queue(at)))
        } else {
            self.request_of(now, slot, attach, &source, node, (&mut filters, browse, priority))?
        };
        let answers = takes_answers.then(|| Box::new(Answers::new(&request.queue, attach)));
        let browse = request.browse;
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let link_ref = connection.link_ref(link);
        let settled_down = connection.settled_down;
        let pending = PendingConsumer { request, filters_in_force: filters.in_force };
        let consumer = Consumer {
            attachment: link_ref.attachment,
            session,
            browse,
            presettled: attach.snd_settle_mode == SenderSettleMode::Settled,
            draining: false,
            default_outcome: source.default_outcome.as_ref().and_then(engine_outcome),
            at: ConsumerAt::Nowhere(Box::new(pending)),
            partial: None,
            unsettled: 0,
            unflushed: [0, 0],
            dynamic,
            transaction: None,
            answers,
            channel: None,
        };
        self.bind(slot, link, Link::Consumer(consumer));
        if home == self.index {
            self.attach_consumer_here(now, slot, link);
        } else if settled_down {
            self.ask_for_consumer(slot, link_ref, home);
        } else {
            self.start_move(slot, link, home);
        }
        Ok(())
    }

    /// What a consumer of this source asks for, of which shard, and the node that is made for it.
    fn request_of(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        attach: &Attach<'_>,
        source: &Source<'_>,
        node: Option<Node>,
        (filters, browse, priority): (&mut Filters, bool, i32),
    ) -> Result<(usize, ConsumeRequest, Option<DynamicNode>), Refused> {
        Ok(match node {
            None if !wants_topic(source.capabilities) => {
                let (queue, at) = self.make_dynamic(now, slot)?;
                (at.shard, filters.request(queue, browse, priority), Some(DynamicNode::Queue(at)))
            }
            Some(Node::Queue(queue)) => {
                let home = self.home_of(&queue);
                let makes = self.may_configure(slot, &queue);
                (home, ConsumeRequest { makes, ..filters.request(queue, browse, priority) }, None)
            }
            Some(Node::Exchange { .. }) => {
                return Err(Refused::new(
                    "amqp:not-implemented",
                    "an exchange has no messages: attach to a queue that is bound to it",
                ));
            }
            Some(Node::Topic(_)) | None => {
                let name = match &node {
                    Some(Node::Topic(name)) => Some(&**name),
                    Some(Node::Queue(_) | Node::Exchange { .. }) | None => None,
                };
                let (topic, dynamic) = self.topic_of_source(now, slot, name)?;
                let made = self.subscription_request(slot, attach, source, topic, filters, priority);
                match made {
                    Ok((home, request)) => (home, request, dynamic),
                    Err(refused) => {
                        dynamic.into_iter().for_each(|node| self.delete_dynamic(now, node));
                        return Err(refused);
                    }
                }
            }
        })
    }

    fn pending(&mut self, slot: ConnectionSlot, link: LinkId) -> Option<&mut PendingConsumer> {
        match &mut self.connections.get_mut(slot)?.consumer_mut(link)?.at {
            ConsumerAt::Nowhere(pending) => Some(pending),
            ConsumerAt::Here(_) | ConsumerAt::Elsewhere(_) => None,
        }
    }

    /// The queue's home is this shard: the consumer is made and its attach answered.
    pub(crate) fn attach_consumer_here(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let owner = Owner::Connection { index: slot.index, link }.pack();
        let Some(pending) = self.pending(slot, link) else { return };
        if let Some(terms) = &pending.request.subscription {
            let (terms, queue) = ((**terms).clone(), pending.request.queue.clone());
            let priority = pending.request.priority;
            self.subscribe_here(now, slot, link, &queue, terms, priority);
            return;
        }
        let (request, spec) = (pending.request.clone(), pending.request.spec(owner));
        let Some(id) = self.connections.get_mut(slot).map(|connection| connection.id) else { return };
        let attached = spec.and_then(|spec| self.attach_to_named(now, id, &request, spec));
        match attached {
            Ok((_, consumer)) => self.accept_consumer(now, slot, link, ConsumerAt::Here(consumer)),
            Err(refusal) => self.refuse_consumer(now, slot, link, refusal),
        }
    }

    fn refuse_consumer(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, refusal: Refusal) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        match connection.protocol {
            Protocol::Amqp10(_) => self.refuse(now, slot, link, &refusal.into()),
            Protocol::Amqp091(_) => self.refuse_channel_consumer(now, slot, link, refusal),
        }
    }

    pub(crate) fn ask_for_consumer(&mut self, slot: ConnectionSlot, link: LinkRef, home: usize) {
        let Some(pending) = self.pending(slot, link.link) else { return };
        let request = Box::new(pending.request.clone());
        self.ask(slot, home, Mail::Consume { link, request });
    }

    pub(crate) fn on_consuming(
        &mut self,
        now: u64,
        from: usize,
        link: LinkRef,
        result: Result<ConsumerId, Refusal>,
    ) {
        self.answered(link);
        let Some((slot, link)) = self.target_link(link) else {
            // The link or its connection ended meanwhile.
            if let Ok(consumer) = result {
                self.post(
                    from,
                    Lane::Control,
                    Mail::CloseConsumer { consumer, was_seen: false, closed: false },
                );
            }
            return;
        };
        match result {
            Ok(consumer) => {
                let at = ConsumerAt::Elsewhere(Box::new(Target::new(from, consumer)));
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.targets += 1;
                }
                self.accept_consumer(now, slot, link, at);
            }
            Err(refusal) => self.refuse_consumer(now, slot, link, refusal),
        }
    }

    pub(crate) fn accept_consumer(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, at: ConsumerAt) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.settled_down = true;
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let ConsumerAt::Nowhere(pending) = std::mem::replace(&mut consumer.at, at) else { return };
        if consumer.channel.is_some() {
            self.accept_channel_consumer(now, slot, link);
            return;
        }
        let dynamic = consumer.dynamic.clone().filter(|_| consumer.answers.is_none());
        let source_address = match &dynamic {
            None => Answer::Same,
            Some(DynamicNode::Queue(_)) => Answer::Other(Some(vhost::plain(&pending.request.queue))),
            Some(DynamicNode::Topic(topic)) => Answer::Other(Some(vhost::plain(topic))),
        };
        let distribution_mode = match consumer.browse {
            // What one subscriber has taken, others have still.
            _ if pending.request.subscription.is_some() => Answer::Same,
            true => Answer::Other(Some(DistributionMode::Copy)),
            false => Answer::Other(Some(DistributionMode::Move)),
        };
        let filter = match &pending.filters_in_force {
            None => Answer::Same,
            Some(encoded) => Answer::Other(Map::decode(encoded).ok().filter(|map| !map.is_empty())),
        };
        let answer = AttachAnswer {
            source_address,
            filter,
            distribution_mode,
            outcomes: Answer::Other(Symbols::new(OUTCOMES)),
            ..AttachAnswer::default()
        };
        // AMQP 1.0 §4.4.3: what the peer's flow has named while the attach waited may have been discharged since.
        let named = connection.protocol.transaction(link);
        let ended = connection.transactions.as_deref().zip(named).is_some_and(|(it, id)| it.has_ended(&id));
        if ended {
            connection.protocol.set_transaction(link, None);
        }
        connection.protocol.accept_attach(link, &answer);
        self.refresh_consumer(now, slot, link);
        self.touch(slot);
        // A flow that came before the answer: nothing else may come that would have it looked at.
        self.parse_waiting(now, slot);
    }

    /// Posts a request that another shard answers; until then the connection does not move.
    pub(crate) fn ask(&mut self, slot: ConnectionSlot, to: usize, mail: Mail) {
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.unanswered += 1;
            self.post(to, Lane::Control, mail);
        }
    }

    pub(crate) fn answered(&mut self, link: LinkRef) -> Option<ConnectionSlot> {
        let Some(slot) = self.slot_of(link.connection) else {
            self.counters.mail_dropped += 1;
            return None;
        };
        let connection = self.connections.get_mut(slot)?;
        connection.unanswered = connection.unanswered.saturating_sub(1);
        Some(slot)
    }

    pub(crate) fn bind(&mut self, slot: ConnectionSlot, link: LinkId, bound: Link) {
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.bind(link, bound);
        }
    }
}

impl ConsumeRequest {
    pub(crate) fn spec(&self, owner: u64) -> Result<ConsumerSpec, Refusal> {
        let filter = match &self.filter {
            Some(text) => Some(Filter::parse(text).map_err(|_| Refusal::InvalidFilter)?),
            None => None,
        };
        let mode = if self.browse { AcquireMode::Browse } else { AcquireMode::Acquire };
        Ok(ConsumerSpec { filter, no_local: self.no_local, mode, priority: self.priority, owner })
    }
}

/// What a source's filters ask for.
#[derive(Default)]
pub(crate) struct Filters {
    pub(crate) selector: Option<Box<str>>,
    pub(crate) no_local: Option<Origin>,
    /// The filters we know, encoded, if the peer also asked for others (§3.5.3: those are left out of the answer).
    in_force: Option<Vec<u8>>,
}

impl Filters {
    /// What a source asks for that is a queue.
    fn request(&mut self, queue: Box<str>, browse: bool, priority: i32) -> ConsumeRequest {
        ConsumeRequest {
            queue,
            filter: self.selector.take(),
            no_local: self.no_local.take(),
            browse,
            priority,
            subscription: None,
            makes: true,
            channel: None,
        }
    }
}

fn read_filters(source: &Source<'_>, origin: Origin) -> Result<Filters, Refused> {
    let mut filters = Filters::default();
    let Some(map) = source.filter else { return Ok(filters) };
    let mut known = Vec::new();
    for pair in map {
        let malformed = || Refused::new("amqp:decode-error", "the source's filters could not be read");
        let (name, value) = pair.map_err(|_| malformed())?;
        let Value::Described(described) = value else { continue };
        let is = |(symbol, code): (&str, u64)| match described.descriptor() {
            Ok(Descriptor::Code(found)) => found == code,
            Ok(Descriptor::Symbol(found)) => found == symbol,
            Ok(Descriptor::Other(_)) | Err(_) => false,
        };
        if is(SELECTOR_FILTER) {
            let text = described.value().ok().and_then(|value| value.as_str());
            let text =
                text.ok_or_else(|| Refused::new("amqp:invalid-field", "the selector is not a string"))?;
            // JMS 2.0 §3.8.1: an empty selector is none.
            if !text.trim_ascii().is_empty() {
                if let Err(error) = Filter::parse(text) {
                    return Err(Refused::new("amqp:invalid-field", format!("selector: {error}")));
                }
                filters.selector = Some(text.into());
            }
        } else if is(NO_LOCAL_FILTER) {
            filters.no_local = Some(origin);
        } else {
            continue;
        }
        known.push((name, value));
    }
    if known.len() < map.len() {
        let mut encoded = Vec::new();
        let mut writer = MapWriter::new(&mut encoded);
        for (name, value) in &known {
            writer.pair(name, value);
        }
        writer.finish();
        filters.in_force = Some(encoded);
    }
    Ok(filters)
}

/// AMQP 1.0 §3.5.7: messages are moved to the consumer, or copied. Taking a mode we do not know for either would be a guess
/// about whether messages may be lost to others.
fn is_browser(source: &Source<'_>) -> Result<bool, Refused> {
    match source.distribution_mode {
        None | Some(DistributionMode::Move) => Ok(false),
        Some(DistributionMode::Copy) => Ok(true),
        Some(DistributionMode::Other(mode)) => {
            let description = format!("the distribution mode {mode:?} is unknown; allowed: move, copy");
            Err(Refused::new("amqp:invalid-field", description))
        }
    }
}

/// The `priority` among a link's properties; 0 where there is none.
fn link_priority(attach: &Attach<'_>) -> Result<i32, Refused> {
    let Some(properties) = attach.properties else { return Ok(0) };
    let refused =
        || Refused::new("amqp:invalid-field", "the link property priority has to be a 32-bit integer");
    let priority = match properties.find("priority").map_err(|_| refused())? {
        None | Some(Value::Null) => 0,
        Some(Value::Byte(value)) => i64::from(value),
        Some(Value::Ubyte(value)) => i64::from(value),
        Some(Value::Short(value)) => i64::from(value),
        Some(Value::Ushort(value)) => i64::from(value),
        Some(Value::Int(value)) => i64::from(value),
        Some(Value::Uint(value)) => i64::from(value),
        Some(Value::Long(value)) => value,
        Some(_) => return Err(refused()),
    };
    i32::try_from(priority).map_err(|_| refused())
}
