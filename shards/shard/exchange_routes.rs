//! Which queues get what is published to an exchange of 0-9-1, by whichever version of AMQP, and what dies there?
//!
//! It is looked up among the bindings that every shard has (`topology`), and goes the way of what is published to topics (`fan_out`).
//! Where the keys alone decide, a producer keeps what was found, for the last few keys that it has used, until anything changes.
//!
//! What an exchange of the type `x-delayed-message` holds back is routed when it is published, and held in its queues until it is due.
//!
//! The default exchange leads to the queue that is called like the key, wherever it is.

use std::sync::Arc;

use corelane_engine::QueueId;
use corelane_engine::exchanges::{Found, HeaderReader, RoutedBy};
use corelane_protocol::amqp10::{Answer, LinkId};

use crate::Shard;
use crate::address::Address;
use crate::amqp091::{BySections, HeldBack, delay_of};
use crate::attach::Refused;
use crate::connection::{Link, Producer, QueueAt, Route};
use crate::event::ConnectionSlot;
use crate::fan_out::{Aim, Routes, TopicRoute, Version};
use crate::limits::EXCHANGE_ROUTES_KEPT;
use crate::mail::PublishOutcome;
use crate::message::Message;
use crate::publish::{Destination, Timing};
use crate::vhost;

/// Where a channel's messages go, for the keys that it has used last.
#[derive(Debug, Default)]
pub(crate) struct ExchangeRoutes {
    kept: Vec<Kept>,
    /// The one that is replaced next.
    next: usize,
}

#[derive(Debug)]
struct Kept {
    exchange: Box<str>,
    key: Box<[u8]>,
    routes: Arc<Routes>,
}

impl ExchangeRoutes {
    /// What was found for this key, if that holds still.
    pub(crate) fn find(&self, version: Version, exchange: &str, key: &[u8]) -> Option<Arc<Routes>> {
        let kept = self.kept.iter().find(|kept| *kept.key == *key && *kept.exchange == *exchange)?;
        (kept.routes.version == version).then(|| kept.routes.clone())
    }

    pub(crate) fn keep(&mut self, exchange: &str, key: &[u8], routes: Arc<Routes>) {
        let is_it = |kept: &&mut Kept| *kept.key == *key && *kept.exchange == *exchange;
        if let Some(kept) = self.kept.iter_mut().find(is_it) {
            kept.routes = routes;
            return;
        }
        let kept = Kept { exchange: exchange.into(), key: key.into(), routes };
        if self.kept.len() < EXCHANGE_ROUTES_KEPT {
            self.kept.push(kept);
            return;
        }
        self.kept[self.next] = kept;
        self.next = (self.next + 1) % EXCHANGE_ROUTES_KEPT;
    }
}

impl Shard {
    /// Where a message goes that is published to an exchange with these keys, and whether the keys alone say so. None: there is no such
    /// exchange.
    pub(crate) fn look_up_exchange(
        &mut self,
        exchange: &str,
        keys: &[&[u8]],
        headers: &impl HeaderReader,
    ) -> Option<(Arc<Routes>, RoutedBy)> {
        let mut found: Vec<QueueAt> = Vec::new();
        let mut delaying: Vec<Box<str>> = Vec::new();
        let vhost = vhost::parts(exchange).0;
        let by = self.topology.route(exchange, keys, headers, |way| match way {
            Found::Queue(at) => found.push(at),
            Found::Delayed(exchange) => delaying.push(vhost::within(vhost, exchange).into()),
        });
        let mut routes = self.routes_to(found, Aim::Exchange);
        if let (false, Some(delay)) = (delaying.is_empty(), delay_of(headers)) {
            routes.is_delayed = true;
            self.add_delayed(&mut routes, &delaying, keys, headers, delay);
        }
        let work = self.topology.take_work();
        self.turn.count_work(work);
        Some((Arc::new(routes), by?))
    }

    /// Adds where a message goes that these exchanges hold back. It is in its queues from now on, so it outlives what they do.
    fn add_delayed(
        &mut self,
        routes: &mut Routes,
        exchanges: &[Box<str>],
        keys: &[&[u8]],
        headers: &impl HeaderReader,
        delay: u64,
    ) {
        let mut found: Vec<QueueAt> = Vec::new();
        for exchange in exchanges {
            self.topology.route(exchange, keys, &HeldBack(headers), |way| match way {
                Found::Queue(at) if !found.contains(&at) => found.push(at),
                Found::Queue(_) | Found::Delayed(_) => {}
            });
        }
        self.add_routes(routes, found, Timing::Delayed(delay));
    }

    /// A producer of 1.0 on an exchange.
    pub(crate) fn attach_exchange_producer(
        &mut self,
        slot: ConnectionSlot,
        link: LinkId,
        exchange: &str,
        key: &str,
    ) -> Result<(), Refused> {
        self.topology
            .check_publish(exchange)
            .map_err(|refusal| Refused::new("amqp:not-found", refusal.to_string()))?;
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let attachment = connection.link_ref(link).attachment;
        let topic = Some(Box::new(TopicRoute::to_exchange(exchange, key)));
        let producer = Producer { route: Route::Topic, topic, ..Producer::new(attachment) };
        self.bind(slot, link, Link::Producer(producer));
        self.accept_producer(slot, link, Answer::Same);
        Ok(())
    }

    /// Where a message of 1.0 goes whose `to` is an exchange. It says then which one that was.
    pub(crate) fn destination_through(
        &mut self,
        exchange: &str,
        key: &str,
        message: &mut Message,
    ) -> Destination {
        if self.topology.check_publish(exchange).is_err() {
            return Destination::Nowhere(PublishOutcome::NoQueue);
        }
        message.readdress(vhost::plain(exchange), Some(key));
        match self.look_up_exchange(exchange, &[key.as_bytes()], &BySections(message)) {
            Some((routes, _)) => Destination::Topic(routes),
            None => Destination::Nowhere(PublishOutcome::NoQueue),
        }
    }

    /// A dead letter goes through an exchange, by the keys that it has.
    pub(crate) fn route_to_exchange(
        &mut self,
        now: u64,
        exchange: &str,
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        let name = died_in.and_then(|queue| Some(self.queues.last_will(queue)?.0)).unwrap_or_default();
        let keys: Vec<Box<[u8]>> = message.route(vhost::plain(name)).1.into_iter().map(Into::into).collect();
        let (vhost, exchange_name) = vhost::parts(exchange);
        if exchange_name.is_empty() {
            return self.route_to_keys(now, (vhost, &keys), died_in, message);
        }
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        match self.look_up_exchange(exchange, &keys, &BySections(&message)) {
            Some((routes, _)) => self.route_by(now, &routes, died_in, message),
            None => {
                self.dissolve(message);
                PublishOutcome::NoQueue
            }
        }
    }

    /// Each key is the name of a queue, which gets it if it is there.
    fn route_to_keys(
        &mut self,
        now: u64,
        (vhost, keys): (&str, &[Box<[u8]>]),
        died_in: Option<QueueId>,
        message: Message,
    ) -> PublishOutcome {
        let names = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
        let names = names.filter(|name| matches!(Address::parse(name), Address::Name(_)));
        let names: Vec<_> = names.map(|name| vhost::within(vhost, name)).collect();
        let [others @ .., last] = &*names else {
            self.dissolve(message);
            return PublishOutcome::NoSubscription;
        };
        if others.is_empty() {
            return self.route_to_existing(now, last, died_in, message);
        }
        let message = message.passed();
        let mut outcome = PublishOutcome::Stored;
        for name in others {
            let Some(another) = message.another() else { break };
            outcome = outcome.and(self.route_to_existing(now, name, died_in, another));
        }
        outcome.and(self.route_to_existing(now, last, died_in, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_keys_are_kept() {
        let mut routes = ExchangeRoutes::default();
        let found = Arc::new(Routes::none());
        for n in 0..3 * EXCHANGE_ROUTES_KEPT {
            routes.keep("e", &n.to_be_bytes(), found.clone());
            routes.keep("e", &n.to_be_bytes(), found.clone());
        }
        assert_eq!(routes.kept.len(), EXCHANGE_ROUTES_KEPT);
        assert_eq!(Arc::strong_count(&found), 1 + EXCHANGE_ROUTES_KEPT);
        let last = (3 * EXCHANGE_ROUTES_KEPT - 1).to_be_bytes();
        assert!(routes.kept.iter().any(|kept| *kept.key == last));
    }
}
