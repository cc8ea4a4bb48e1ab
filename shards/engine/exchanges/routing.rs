//! Where does a message go?
//!
//! From exchange to exchange, each of which routes a message once, so that cycles end. An exchange that has no way for it,
//! neither to a queue nor to an exchange, gives it to its alternate exchange, if there is one.

use std::hash::Hash;

use super::kind::HashOn;
use super::router::{Router, Routing};
use super::{Destination, Exchanges, HeaderValue, Property, VhostId};

/// What a message tells of itself.
pub trait HeaderReader {
    /// Visits the headers.
    fn each_header(&self, visit: impl FnMut(&str, HeaderValue<&[u8]>));

    fn property(&self, property: Property) -> Option<HeaderValue<&[u8]>>;

    /// Whether exchanges that delay messages hold it back.
    fn is_delayed(&self) -> bool;
}

/// A message without headers and properties.
impl HeaderReader for () {
    fn each_header(&self, _visit: impl FnMut(&str, HeaderValue<&[u8]>)) {}

    fn property(&self, _property: Property) -> Option<HeaderValue<&[u8]>> {
        None
    }

    fn is_delayed(&self) -> bool {
        false
    }
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found<'a, Q> {
    Queue(Q),
    /// It is held back here, and is to be routed from this exchange when its time has come.
    Delayed(&'a str),
}

/// What was looked at, besides exchanges and bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutedBy {
    /// Until the next change, each message with these keys goes where this one does.
    Keys,
    Message,
}

impl<Q: Copy + Eq + Hash> Exchanges<Q> {
    /// Names where a message that is published to an exchange goes, each once. None: there is no such exchange.
    ///
    /// It has one routing key, or several, as RabbitMQ has it with `CC` and `BCC`: then it goes where any of them leads.
    pub fn route(
        &mut self,
        vhost: VhostId,
        exchange: &str,
        keys: &[&[u8]],
        headers: &impl HeaderReader,
        mut found: impl FnMut(Found<'_, Q>),
    ) -> Option<RoutedBy> {
        let first = self.find(vhost, exchange)?;
        let mut by = RoutedBy::Keys;
        self.round += 1;
        self.pending.clear();
        self.reach(first);
        while let Some(index) = self.pending.pop() {
            let exchange = &mut self.exchanges[index];
            let router = &mut exchange.router;
            if exchange.traits.is_delayed {
                by = RoutedBy::Message;
                if headers.is_delayed() {
                    found(Found::Delayed(&exchange.declaration.name));
                    continue;
                }
            }
            let hash_on = &exchange.traits.hash_on;
            match router {
                Router::Direct(_) | Router::Fanout | Router::Topic(_) => {}
                Router::ConsistentHash(_) if *hash_on == HashOn::Key => {}
                Router::ConsistentHash(_) | Router::Headers(_) => by = RoutedBy::Message,
            }
            let routing = Routing { keys, headers, hash_on };
            let mut reached = std::mem::take(&mut self.reached);
            let push = |destination| reached.push(destination);
            router.destinations(&routing, &exchange.from, &self.bindings, &mut self.work, push);
            if reached.is_empty() {
                self.reach_alternate(index);
            }
            for destination in reached.drain(..) {
                self.work += 1;
                match destination {
                    Destination::Exchange(index) => self.reach(index),
                    Destination::Queue(index) => {
                        let queue = &mut self.queues[index];
                        if std::mem::replace(&mut queue.round, self.round) != self.round {
                            found(Found::Queue(queue.queue));
                        }
                    }
                }
            }
            self.reached = reached;
        }
        Some(by)
    }

    fn reach_alternate(&mut self, index: u32) {
        let exchange = &self.exchanges[index];
        if let Some(alternate) = &exchange.traits.alternate
            && let Some(alternate) = self.find(exchange.declaration.vhost, alternate)
        {
            self.reach(alternate);
        }
    }

    /// The message has come to an exchange.
    fn reach(&mut self, index: u32) {
        self.work += 1;
        let exchange = &mut self.exchanges[index];
        if std::mem::replace(&mut exchange.round, self.round) != self.round {
            self.pending.push(index);
        }
    }
}
