//! Does all that is kept of exchanges and bindings agree? For tests and the simulation.

use std::collections::BTreeMap;
use std::hash::Hash;

use super::router::Router;
use super::{Destination, Exchanges};

impl<Q: Copy + Eq + Hash> Exchanges<Q> {
    /// Recounts everything. Panics where it does not agree.
    pub fn verify(&self) {
        let (mut from, mut to) = (BTreeMap::new(), BTreeMap::new());
        for (index, bound) in self.bindings.iter() {
            let source = &self.exchanges[bound.source];
            assert_eq!(source.from[bound.from_at as usize], index);
            *from.entry(bound.source).or_insert(0) += 1;
            let list = match bound.destination {
                Destination::Queue(queue) => &self.queues[queue].to,
                Destination::Exchange(exchange) => {
                    assert_eq!(self.exchanges[exchange].declaration.vhost, source.declaration.vhost);
                    &self.exchanges[exchange].to
                }
            };
            assert_eq!(list[bound.to_at as usize], index);
            *to.entry(bound.destination).or_insert(0) += 1;
            match &source.router {
                Router::Direct(keys) => assert_eq!(keys[&bound.key][bound.router_at as usize], index),
                Router::ConsistentHash(shares) => {
                    let share = shares[bound.router_at as usize];
                    assert_eq!((share.binding, share.destination), (index, bound.destination));
                }
                Router::Fanout | Router::Topic(_) | Router::Headers(_) => {}
            }
        }
        for (index, exchange) in self.exchanges.iter() {
            assert_eq!(from.remove(&index).unwrap_or(0), exchange.from.len());
            let to = to.remove(&Destination::Exchange(index));
            assert_eq!(to.unwrap_or(0), exchange.to.len());
            assert!(!exchange.is_doomed);
            let kept = match &exchange.router {
                Router::Direct(keys) => {
                    assert!(keys.values().all(|with_key| !with_key.is_empty()));
                    keys.values().map(Vec::len).sum()
                }
                Router::ConsistentHash(shares) => shares.len(),
                Router::Topic(patterns) => {
                    assert_eq!(patterns.is_empty(), exchange.from.is_empty());
                    exchange.from.len()
                }
                Router::Headers(headers) => headers.verify(),
                Router::Fanout => exchange.from.len(),
            };
            assert_eq!(kept, exchange.from.len());
        }
        for (index, queue) in self.queues.iter() {
            assert!(!queue.to.is_empty());
            assert_eq!(to.remove(&Destination::Queue(index)), Some(queue.to.len()));
        }
        assert!(from.is_empty() && to.is_empty() && self.doomed.is_empty());
        let sizes = self.exchanges.iter().map(|(_, exchange)| exchange.size());
        let sizes = sizes.chain(self.queues.iter().map(|(_, queue)| queue.size()));
        assert_eq!(self.size, sizes.chain(self.bindings.iter().map(|(_, bound)| bound.size())).sum());
        assert_eq!(self.exchange_table.len(), self.exchanges.count());
        assert_eq!(self.queue_table.len(), self.queues.count());
        assert_eq!(self.binding_table.len(), self.bindings.count());
    }
}
