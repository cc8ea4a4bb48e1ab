//! What does a peer's attach to a topic lead to? A producer's route, or a subscription with its name and terms.
//!
//! What is looked at, as clients of JMS send it: the source's `durable` and expiry policy, its capabilities `shared` and `global`, its
//! filters, and the link's name, which up to a `|` names what is shared. A peer that attaches without a source looks a durable
//! subscription up, and ends it by closing that link.

use std::fmt::Write;
use std::sync::Arc;

use corelane_mailbox::Lane;
use corelane_protocol::amqp10::{Answer, AttachAnswer, LinkId};
use corelane_wire::amqp10::{
    Attach, DistributionMode, Encode, ExpiryPolicy, Map, MapWriter, Source, Symbols, TerminusDurability,
    Value,
};

use crate::Shard;
use crate::address::{Address, has_wildcards, is_topic_name, is_topic_pattern, percent_decoded};
use crate::attach::{Filters, NO_LOCAL_FILTER, OUTCOMES, Refused, SELECTOR_FILTER};
use crate::connection::{Connection, DynamicNode, Link, Producer, Route, Unsubscriber};
use crate::event::ConnectionSlot;
use crate::fan_out::TopicRoute;
use crate::home::hash_name;
use crate::limits::QUEUE_NAME_BYTES_MAX;
use crate::mail::{ConsumeRequest, LinkRef, Mail, Refusal};
use crate::subscription::{Claim, NoLocal, Terms};
use crate::topology::{Change, Then};
use crate::vhost;

/// What the names of temporary topics begin with.
const TEMPORARY_TOPICS: &str = "corelane.topic.";

/// What the names of subscriptions' queues begin with. No other queue is made of such a name.
pub(crate) const SUBSCRIPTIONS: &str = "corelane.subscription.";

/// What a terminus is to be connected to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Queue(Box<str>),
    Topic(Box<str>),
    Exchange { exchange: Box<str>, key: Box<str> },
}

/// Whether a terminus' capabilities say that it is a topic (AMQP JMS mapping 1.0, §3.1).
pub(crate) fn wants_topic(capabilities: Symbols<'_>) -> bool {
    capabilities.contains("topic") || capabilities.contains("temporary-topic")
}

/// What a producer is told whose topic cannot be published to; the bound is [`corelane_engine::PATTERN_WORDS_MAX`].
const PRODUCER_TOPIC: &str = "a producer's topic is 1 to 128 words with dots between, none of them empty and none a wildcard (*, # or >)";

/// The same for a subscriber.
const SUBSCRIBER_TOPIC: &str = "a topic is 1 to 128 words with dots between, none of them empty; in place of a word may stand *, or # \
                                for any number of words, and at the end > for one or more";

/// What a peer is told that names no container.
const CONTAINER_ID_EMPTY: &str = "the subscription would be this container's, and the open's container-id is empty: set one (a \
                                  client ID), or ask for a shared one with the capability global";

impl Shard {
    /// The node that an address names.
    pub(crate) fn node_of(
        &mut self,
        slot: ConnectionSlot,
        address: &str,
        capabilities: Symbols<'_>,
    ) -> Result<Node, Refused> {
        let vhost = self.connections.get_mut(slot).and_then(|connection| connection.vhost.clone());
        let node = self.node_named(vhost.as_deref().unwrap_or(vhost::DEFAULT), address, capabilities)?;
        match &node {
            Node::Queue(name) if has_wildcards(name) => Err(Refused::new(
                "amqp:not-found",
                format!(
                    "{:?} has wildcards, which no queue's name has; allowed: a topic, as topic://NAME, or a queue's name",
                    vhost::plain(name)
                ),
            )),
            Node::Queue(_) | Node::Topic(_) | Node::Exchange { .. } => Ok(node),
        }
    }

    fn node_named(&self, vhost: &str, address: &str, capabilities: Symbols<'_>) -> Result<Node, Refused> {
        Ok(match Address::parse(address).within(vhost) {
            Address::Queue(name) => Node::Queue(name.into()),
            Address::Topic(name) => Node::Topic(name.into()),
            Address::Name(name) => {
                let is_queue = capabilities.contains("queue") || capabilities.contains("temporary-queue");
                let is_topic = wants_topic(capabilities) || !is_queue && self.is_topic(&name);
                if is_topic { Node::Topic(name.into()) } else { Node::Queue(name.into()) }
            }
            Address::Exchange { exchange, key } => {
                Node::Exchange { exchange: exchange.into(), key: key.unwrap_or_default().into() }
            }
            Address::Unsupported => return Err(Refused::unsupported_address()),
            Address::Invalid => return Err(Refused::invalid_address()),
        })
    }

    /// Whether a plain name is a topic's.
    pub(crate) fn is_topic(&self, name: &str) -> bool {
        self.is_temporary_topic(name) || self.destinations.is_topic(name)
    }

    pub(crate) fn is_temporary_topic(&self, name: &str) -> bool {
        vhost::plain(name).starts_with(TEMPORARY_TOPICS)
    }

    /// A temporary topic that has ended.
    pub(crate) fn is_topic_gone(&self, topic: &str) -> bool {
        self.is_temporary_topic(topic) && !self.topology.has_temporary(topic)
    }

    fn check_topic(&self, topic: &str) -> Result<(), Refused> {
        if self.is_topic_gone(topic) {
            return Err(Refused::new("amqp:not-found", "this temporary topic does not exist any more"));
        }
        Ok(())
    }

    pub(crate) fn attach_topic_producer(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        topic: &str,
    ) -> Result<(), Refused> {
        if !is_topic_name(topic) {
            return Err(Refused::new("amqp:invalid-field", PRODUCER_TOPIC));
        }
        self.check_topic(topic)?;
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let attachment = connection.link_ref(link).attachment;
        let producer = Producer::on_topic(attachment, topic);
        self.bind(slot, link, Link::Producer(producer));
        self.accept_producer(slot, link, Answer::Same);
        Ok(())
    }

    /// A producer on a topic of its own. Its attach is answered when all shards know of the topic.
    pub(crate) fn attach_temporary_topic(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let topic = self.name_temporary_topic(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        // It stays here until the answer has come.
        connection.unanswered += 1;
        let link_ref = connection.link_ref(link);
        let mut producer = Producer::on_topic(link_ref.attachment, &topic);
        producer.dynamic = Some(DynamicNode::Topic(topic.clone()));
        self.bind(slot, link, Link::Producer(producer));
        self.propose(now, Change::MakeTopic(topic), Some(Then::TopicMade(link_ref)));
    }

    pub(crate) fn on_topic_made(&mut self, now: u64, link: LinkRef, result: Result<(), Refusal>) {
        let Some(slot) = self.answered(link) else { return };
        let Some(producer) = self.connections.get_mut(slot).and_then(|it| it.producer_mut(link.link)) else {
            return;
        };
        if producer.attachment != link.attachment || producer.detached {
            return;
        }
        let name = match &producer.dynamic {
            Some(DynamicNode::Topic(name)) => name.clone(),
            Some(DynamicNode::Queue(_)) | None => return,
        };
        match result {
            Ok(()) => self.accept_producer(slot, link.link, Answer::Other(Some(vhost::plain(&name)))),
            Err(refusal) => self.refuse(now, slot, link.link, &refusal.into()),
        }
    }

    fn name_temporary_topic(&mut self, slot: ConnectionSlot) -> Arc<str> {
        self.dynamic_names += 1;
        let name = format!("{TEMPORARY_TOPICS}{:x}-{}-{:x}", self.boot, self.index, self.dynamic_names);
        self.within(slot, &name).into()
    }

    /// The topic that a subscriber's source names, or one of its own.
    pub(crate) fn topic_of_source(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        name: Option<&str>,
    ) -> Result<(Arc<str>, Option<DynamicNode>), Refused> {
        let Some(name) = name else {
            let topic = self.name_temporary_topic(slot);
            // Its subscription's binding comes behind it.
            self.propose(now, Change::MakeTopic(topic.clone()), None);
            return Ok((topic.clone(), Some(DynamicNode::Topic(topic))));
        };
        if !is_topic_pattern(name) {
            return Err(Refused::new("amqp:invalid-field", SUBSCRIBER_TOPIC));
        }
        self.check_topic(name)?;
        Ok((name.into(), None))
    }

    /// What a subscriber is to be connected to: the shard, the queue's name, and on which terms.
    pub(crate) fn subscription_request(
        &mut self,
        slot: ConnectionSlot,
        attach: &Attach<'_>,
        source: &Source<'_>,
        topic: Arc<str>,
        filters: &mut Filters,
        priority: i32,
    ) -> Result<(usize, ConsumeRequest), Refused> {
        let durable =
            source.durable != TerminusDurability::None || source.expiry_policy == ExpiryPolicy::Never;
        let shared = source.capabilities.contains("shared");
        let Some(connection) = self.connections.get_mut(slot) else {
            return Err(Refused::new("amqp:internal-error", "the connection has ended"));
        };
        let no_local = match filters.no_local.take() {
            Some(_) if durable || shared => {
                named_container(connection)?;
                Some(NoLocal::Container(connection.container_hash))
            }
            own => own.map(NoLocal::Connection),
        };
        let (home, queue) = if durable || shared {
            let is_global = shared && source.capabilities.contains("global");
            let name = if shared { base_of(attach.name).0 } else { attach.name };
            let queue = subscription_name(connection, is_global, durable, name)?;
            (self.home_of(&queue), queue)
        } else {
            (self.index, self.new_name(slot, &format!("{SUBSCRIPTIONS}own.")))
        };
        let terms = Terms { topic, selector: filters.selector.take(), no_local, durable, shared };
        let subscription = Some(Box::new(terms));
        let request = ConsumeRequest { queue, subscription, ..ConsumeRequest::for_subscription(priority) };
        Ok((home, request))
    }

    /// The subscription's home is this shard: the link waits there.
    pub(crate) fn subscribe_here(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        name: &str,
        terms: Terms,
        priority: i32,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        // It waits for its answer where it is, whatever is attached meanwhile, and is served there.
        connection.settled_down = true;
        let connection_id = connection.id;
        let Some(consumer) = connection.consumer_mut(link) else { return };
        let link = LinkRef { connection: connection_id, link, attachment: consumer.attachment };
        let claim = Claim { shard: self.index, link, priority };
        self.subscribe(now, claim, name, terms);
    }

    /// AMQP 1.0 §2.6.3: a peer without a source of its own asks for that of the durable subscription of this name.
    pub(crate) fn attach_unsubscriber(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        attach: &Attach<'_>,
    ) -> Result<(), Refused> {
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let (base, suffix) = base_of(attach.name);
        let is_global = attach.desired_capabilities.contains("global") || suffix.starts_with("global");
        let mut names = vec![subscription_name(connection, is_global, true, base)?];
        if base != attach.name && !is_global {
            names.push(subscription_name(connection, false, true, attach.name)?);
        }
        let attachment = connection.link_ref(link).attachment;
        self.bind(slot, link, Link::Unsubscriber(Unsubscriber { attachment, names, found: false }));
        self.look_up_next(now, slot, link);
        Ok(())
    }

    fn look_up_next(&mut self, now: u64, slot: ConnectionSlot, link: LinkId) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let id = connection.id;
        let Some(Link::Unsubscriber(unsubscriber)) = connection.link_mut(link) else { return };
        let Some(name) = unsubscriber.names.last().cloned() else { return };
        let link_ref = LinkRef { connection: id, link, attachment: unsubscriber.attachment };
        let home = self.home_of(&name);
        if home == self.index {
            let result = self.look_up_subscription(&name);
            self.on_looked_up(now, slot, link, result);
        } else {
            self.ask(slot, home, Mail::LookUpSubscription { link: link_ref, name });
        }
    }

    pub(crate) fn on_look_up_subscription(&mut self, from: usize, link: LinkRef, name: &str) {
        let result = self.look_up_subscription(name).map(Box::new);
        self.post(from, Lane::Control, Mail::SubscriptionLookedUp { link, result });
    }

    pub(crate) fn on_subscription_looked_up(
        &mut self,
        now: u64,
        link: LinkRef,
        result: Result<Box<Terms>, Refusal>,
    ) {
        let Some(slot) = self.answered(link) else { return };
        let bound = self.connections.get_mut(slot).and_then(|connection| connection.link_mut(link.link));
        if let Some(Link::Unsubscriber(unsubscriber)) = bound
            && unsubscriber.attachment == link.attachment
        {
            self.on_looked_up(now, slot, link.link, result.map(|terms| *terms));
        }
    }

    fn on_looked_up(&mut self, now: u64, slot: ConnectionSlot, link: LinkId, result: Result<Terms, Refusal>) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(Link::Unsubscriber(unsubscriber)) = connection.link_mut(link) else { return };
        match result {
            Ok(terms) => {
                unsubscriber.found = true;
                accept_unsubscriber(connection, link, &terms);
                self.touch(slot);
            }
            Err(Refusal::NotFound) if unsubscriber.names.len() > 1 => {
                unsubscriber.names.pop();
                self.look_up_next(now, slot, link);
            }
            Err(Refusal::NotFound) => {
                let refused = Refused::new("amqp:not-found", "there is no durable subscription of this name");
                self.refuse(now, slot, link, &refused);
            }
            Err(refusal) => self.refuse(now, slot, link, &refusal.into()),
        }
    }

    /// The subscription at this name's home is to end, as far as this link has to do with it.
    pub(crate) fn end_subscription_anywhere(&mut self, now: u64, name: &str, link: LinkRef) {
        let home = self.home_of(name);
        if home == self.index {
            self.end_subscription(now, name, link);
        } else {
            let mail = Mail::EndSubscription { name: name.into(), link };
            self.peers.control(&mut self.effects, home, mail);
        }
    }
}

impl Producer {
    fn on_topic(attachment: u32, topic: &str) -> Self {
        let topic = Some(Box::new(TopicRoute::new(topic)));
        Producer { route: Route::Topic, topic, ..Producer::new(attachment) }
    }
}

/// A link's name up to the first `|`, and what stands behind it.
fn base_of(name: &str) -> (&str, &str) {
    name.split_once('|').unwrap_or((name, ""))
}

/// The peer's container, for what belongs to it alone: those that name none are not one.
fn named_container(connection: &Connection) -> Result<&str, Refused> {
    if connection.container.is_empty() {
        return Err(Refused::new("amqp:invalid-field", CONTAINER_ID_EMPTY));
    }
    Ok(&connection.container)
}

/// The name of a subscription's queue: its kind, whose it is, and how it is called there.
fn subscription_name(
    connection: &Connection,
    is_global: bool,
    durable: bool,
    name: &str,
) -> Result<Box<str>, Refused> {
    if name.is_empty() {
        let description =
            "the link's name (up to a |, if it has one) names the subscription, and it is empty";
        return Err(Refused::new("amqp:invalid-field", description));
    }
    let kind = if durable { "durable" } else { "volatile" };
    let mut queue = format!("{SUBSCRIPTIONS}{kind}.");
    if is_global {
        queue.push_str("global");
    } else {
        queue.push_str("container.");
        escape(named_container(connection)?, &mut queue);
    }
    queue.push('/');
    escape(name, &mut queue);
    if queue.len() > QUEUE_NAME_BYTES_MAX {
        let description = "the names of container and link are too long to name a subscription";
        return Err(Refused::new("amqp:invalid-field", description));
    }
    Ok(vhost::within(connection.vhost(), queue).into())
}

/// What the name of a subscription is made of: the container, unless it is global, and how it is called there. None for one of a
/// link's own, whose name says neither.
pub(crate) fn parts_of_name(queue: &str) -> Option<(Option<String>, String)> {
    let name = vhost::plain(queue).strip_prefix(SUBSCRIPTIONS)?;
    let name = name.strip_prefix("durable.").or_else(|| name.strip_prefix("volatile."))?;
    let (whose, name) = name.split_once('/')?;
    let container = match whose.strip_prefix("container.") {
        Some(container) => Some(percent_decoded(container)?.into_owned()),
        None => None,
    };
    Some((container, percent_decoded(name)?.into_owned()))
}

/// Keeps the parts of a subscription's name apart, and what cannot be shown out of it.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        if matches!(character, '/' | '%') || character.is_control() {
            let mut utf8 = [0; 4];
            for byte in character.encode_utf8(&mut utf8).bytes() {
                // Writing to a string does not fail.
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(character);
        }
    }
}

/// Answers an attach without a source with the subscription's.
fn accept_unsubscriber(connection: &mut Connection, link: LinkId, terms: &Terms) {
    let address = format!("topic://{}", vhost::plain(&terms.topic));
    let mut filters = Vec::new();
    let mut map = MapWriter::new(&mut filters);
    if let Some(selector) = &terms.selector {
        map.symbol("jms-selector", &DescribedFilter(SELECTOR_FILTER.1, Value::String(selector)));
    }
    if terms.no_local.is_some() {
        map.symbol("no-local", &DescribedFilter(NO_LOCAL_FILTER.1, Value::List(Default::default())));
    }
    map.finish();
    let capabilities: &[&str] = if terms.shared { &["topic", "shared"] } else { &["topic"] };
    let source = Source {
        address: Some(&address),
        durable: TerminusDurability::UnsettledState,
        expiry_policy: ExpiryPolicy::Never,
        distribution_mode: Some(DistributionMode::Copy),
        filter: Map::decode(&filters).ok().filter(|map| !map.is_empty()),
        outcomes: Symbols::new(OUTCOMES),
        capabilities: Symbols::new(capabilities),
        ..Source::default()
    };
    connection
        .protocol
        .accept_attach(link, &AttachAnswer { source: Some(source), ..AttachAnswer::default() });
}

struct DescribedFilter<'a>(u64, Value<'a>);

impl Encode for DescribedFilter<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(0);
        self.0.encode(out);
        self.1.encode(out);
    }
}

/// What no-local filters compare of a connection's container.
pub(crate) fn container_hash(container: &str) -> u64 {
    hash_name("", container)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_name_cannot_be_mistaken() {
        for (text, expect) in [("plain.name", "plain.name"), ("a/b%c", "a%2Fb%25c"), ("a\nb", "a%0Ab")] {
            let mut out = String::new();
            escape(text, &mut out);
            assert_eq!(out, expect);
            let parts = parts_of_name(&format!("{SUBSCRIPTIONS}durable.container.{out}/{out}"));
            assert_eq!(parts, Some((Some(text.to_owned()), text.to_owned())));
        }
        assert_eq!(parts_of_name(&format!("{SUBSCRIPTIONS}volatile.global/x")), Some((None, "x".to_owned())));
        assert_eq!(parts_of_name(&format!("{SUBSCRIPTIONS}own.1-0-1")), None);
    }

    #[test]
    fn a_link_is_called_as_its_subscription_up_to_a_bar() {
        assert_eq!(base_of("news"), ("news", ""));
        assert_eq!(base_of("news|2"), ("news", "2"));
        assert_eq!(base_of("news|global|x"), ("news", "global|x"));
    }
    #[test]
    fn a_producer_is_told_the_bound_of_its_topic() {
        let words = corelane_engine::PATTERN_WORDS_MAX.to_string();
        assert!(PRODUCER_TOPIC.contains(&words) && SUBSCRIBER_TOPIC.contains(&words));
    }
}
