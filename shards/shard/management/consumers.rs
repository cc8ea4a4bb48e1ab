//! What is there to know of a consumer: where it stands in the consumer manager, why, and for whom?

use corelane_engine::{ConsumerId, ConsumerList, ConsumerView, PauseReason};
use corelane_protocol::amqp10::LinkId;

use super::data::{Data, Pairs};
use super::kinds::Kind;
use super::question::{Answer, Explained, ExplainedConsumer};
use super::reply::Fault;
use super::request::{connection_name, place_text};
use crate::Shard;
use crate::connection::Connection;
use crate::deliver::Owner;
use crate::mail::{ConnectionId, LinkRef};
use crate::vhost;

/// A consumer of a queue of this shard.
pub(crate) struct ConsumerFacts {
    pub(crate) id: ConsumerId,
    pub(crate) shard: usize,
    pub(crate) queue_name: Box<str>,
    pub(crate) view: ConsumerView,
    pub(crate) filter: Option<String>,
    pub(crate) connection: Option<ConnectionId>,
    /// What its connection says, if that is here.
    pub(crate) link: Option<LinkFacts>,
    /// Where its connection is, if that is not here.
    pub(crate) elsewhere: Option<(usize, LinkRef)>,
}

/// What a connection's shard knows of a consumer's link.
pub(crate) struct LinkFacts {
    pub(crate) name: Option<Box<str>>,
    pub(crate) credit: u32,
    pub(crate) container: Box<str>,
    pub(crate) user: Option<Box<str>>,
}

/// How an attribute is read.
type Read = fn(&ConsumerFacts) -> Data;

/// The attributes of a consumer, in order. Those of its link are added by its connection's shard, where that is another one.
pub(crate) const ATTRIBUTES: &[(&str, Read)] = &[
    ("name", |facts| name(facts.shard, facts.id).into()),
    ("identity", |facts| name(facts.shard, facts.id).into()),
    ("type", |_| Kind::Consumer.type_name().into()),
    ("queue", |facts| vhost::plain(&facts.queue_name).to_owned().into()),
    ("shard", |facts| facts.shard.into()),
    ("connection", |facts| facts.connection.map(connection_name).into()),
    ("link", |facts| {
        facts.link.as_ref().and_then(|link| link.name.as_ref()).map(|name| name.to_string()).into()
    }),
    ("container-id", |facts| facts.link.as_ref().map(|link| link.container.to_string()).into()),
    ("user", |facts| {
        facts.link.as_ref().and_then(|link| link.user.as_ref()).map(|user| user.to_string()).into()
    }),
    ("list", |facts| list_word(facts.view.list).into()),
    ("reason", |facts| pause_word(&facts.view).into()),
    ("priority", |facts| facts.view.priority.into()),
    ("credit", |facts| facts.link.as_ref().map(|link| link.credit).into()),
    ("unsettled", |facts| facts.view.unsettled_count.into()),
    ("delivered", |facts| facts.view.delivered_count.into()),
    ("wake-ups", |facts| facts.view.wake_count.into()),
    ("refused", |facts| facts.view.refused_count.into()),
    ("cursor", |facts| place_text(facts.view.cursor).into()),
    ("lag", |facts| facts.view.lag.into()),
    ("class", |facts| facts.view.class.into()),
    ("class-consumers", |facts| facts.view.class_consumers.into()),
    ("scanning", |facts| facts.view.scanning.into()),
    ("browser", |facts| matches!(facts.view.list, ConsumerList::NonAcquiring { .. }).into()),
    ("filter", |facts| facts.filter.clone().into()),
];

/// Those that its connection's shard knows.
pub(crate) const LINK_ATTRIBUTES: [&str; 4] = ["link", "credit", "container-id", "user"];

/// A consumer's name: its home and its place there.
pub(crate) fn name(shard: usize, id: ConsumerId) -> String {
    format!("{shard}-{}-{}", id.index, id.generation)
}

pub(crate) fn parse_name(text: &str) -> Option<(usize, ConsumerId)> {
    let mut parts = text.split('-');
    let shard = parts.next()?.parse().ok()?;
    let id = ConsumerId { index: parts.next()?.parse().ok()?, generation: parts.next()?.parse().ok()? };
    parts.next().is_none().then_some((shard, id))
}

pub(crate) fn list_word(list: ConsumerList) -> &'static str {
    match list {
        ConsumerList::NonAcquiring { .. } => "non-acquiring",
        ConsumerList::NotInterested(_) => "not-interested",
        ConsumerList::Interested => "interested",
        ConsumerList::Notified => "notified",
    }
}

/// Whether it holds nothing, and gets the next message on a flow that comes from now on: the queue's `prefetch` is none.
pub(crate) fn awaits_flow(view: &ConsumerView) -> bool {
    view.list == ConsumerList::NotInterested(PauseReason::Prefetch) && view.unsettled_count == 0
}

/// Why it takes nothing; none: it can.
fn pause_word(view: &ConsumerView) -> Option<&'static str> {
    match view.list {
        ConsumerList::NonAcquiring { caught_up: true } => Some("caught-up"),
        ConsumerList::NonAcquiring { caught_up: false }
        | ConsumerList::Interested
        | ConsumerList::Notified => None,
        ConsumerList::NotInterested(reason) => Some(match reason {
            PauseReason::NoCredit => "no-credit",
            PauseReason::Socket => "socket",
            PauseReason::SessionWindow => "session-window",
            PauseReason::FlowStopped => "flow-stopped",
            PauseReason::Lane => "lane",
            PauseReason::Body => "body",
            PauseReason::Turn => "turn",
            PauseReason::Partial => "partial",
            PauseReason::Suspended => "suspended",
            PauseReason::Standby => "standby",
            PauseReason::Prefetch if awaits_flow(view) => "flow",
            PauseReason::Prefetch => "prefetch",
            PauseReason::Refusals => "refusals",
        }),
    }
}

impl LinkFacts {
    pub(crate) fn of(connection: &Connection, link: LinkId) -> LinkFacts {
        LinkFacts {
            name: connection.protocol.link_name(link).map(Into::into),
            credit: connection.protocol.credit(link),
            container: connection.container.clone(),
            user: connection.user.as_deref().map(Into::into),
        }
    }
}

impl Shard {
    pub(crate) fn consumer_view(&mut self, id: ConsumerId) -> Option<ConsumerFacts> {
        let view = self.engine.explain(id)?;
        let queue_name = self.queues.get(view.queue)?.name.clone();
        let (connection, link, elsewhere) = match Owner::unpack(view.owner) {
            Owner::Connection { index, link } => {
                let found = self.connections.at(index);
                let found = found.map(|(_, connection)| (connection.id, LinkFacts::of(connection, link)));
                let (connection, link) = found.unzip();
                (connection, link, None)
            }
            Owner::Target { index } => {
                let target = self.targets.at(index).map(|target| (target.shard, target.link));
                (target.map(|(_, link)| link.connection), None, target)
            }
        };
        Some(ConsumerFacts {
            id,
            shard: self.index,
            queue_name,
            filter: self.engine.filter_text(id),
            view,
            connection,
            link,
            elsewhere,
        })
    }

    /// Where the connection of a consumer is, if that is not here.
    pub(crate) fn consumer_link_elsewhere(&mut self, index: u32) -> Option<(usize, LinkRef)> {
        let id = self.engine.consumer_at(index)?;
        match Owner::unpack(self.engine.owner(id)?) {
            Owner::Connection { .. } => None,
            Owner::Target { index } => self.targets.at(index).map(|target| (target.shard, target.link)),
        }
    }

    pub(crate) fn read_consumer(&mut self, id: ConsumerId) -> Answer {
        match self.consumer_view(id) {
            Some(facts) => {
                let consumer = ExplainedConsumer { facts: all(&facts), elsewhere: facts.elsewhere };
                Answer::Explained(Box::new(Explained { queue: None, consumers: vec![consumer] }))
            }
            None => Answer::Refused(Fault::unknown(Kind::Consumer, &name(self.index, id))),
        }
    }
}

/// All attributes.
pub(crate) fn all(facts: &ConsumerFacts) -> Pairs {
    ATTRIBUTES.iter().map(|(name, read)| ((*name).into(), read(facts))).collect()
}
