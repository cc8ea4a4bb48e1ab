//! How does an exchange find the bindings that a message goes by?

use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use super::consistent_hash::{self, Share};
use super::headers::{HeaderIndex, Match};
use super::kind::{HashOn, Kind};
use super::{Arguments, Bound, Destination, HeaderReader, HeaderValue, Refusal};
use crate::TopicTrie;
use crate::slots::Slots;

/// The bindings of one exchange, by its kind.
pub(super) enum Router {
    /// Bindings by key.
    Direct(HashMap<Arc<[u8]>, Vec<u32>, FixedState>),
    /// All that are from the exchange.
    Fanout,
    /// Destinations by pattern.
    Topic(Box<TopicTrie<Destination>>),
    Headers(Box<HeaderIndex>),
    ConsistentHash(Vec<Share>),
}

/// What a message is routed by.
pub(super) struct Routing<'a, H> {
    pub(super) keys: &'a [&'a [u8]],
    pub(super) headers: &'a H,
    pub(super) hash_on: &'a HashOn,
}

impl Router {
    pub(super) fn new(kind: Kind, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        match kind {
            Kind::Direct => Router::Direct(HashMap::with_hasher(hasher)),
            Kind::Fanout => Router::Fanout,
            Kind::Topic => Router::Topic(Box::new(TopicTrie::of_binding_keys(seed))),
            Kind::Headers => Router::Headers(Box::new(HeaderIndex::new(hasher))),
            Kind::ConsistentHash => Router::ConsistentHash(Vec::new()),
        }
    }

    /// Whether a binding may have this key and these arguments.
    pub(super) fn check(&self, key: &[u8], arguments: &Arguments) -> Result<(), Refusal> {
        match self {
            Router::Direct(_) | Router::Fanout | Router::Topic(_) => Ok(()),
            Router::Headers(_) => Match::of(arguments).map(|_| ()),
            Router::ConsistentHash(_) => consistent_hash::weight(key).map(|_| ()),
        }
    }

    /// Takes in a binding that was checked; `name` is its destination's.
    pub(super) fn insert(&mut self, index: u32, bindings: &mut Slots<Bound>, name: &str) {
        let bound = &mut bindings[index];
        let destination = bound.destination;
        bound.router_at = match self {
            Router::Direct(keys) => {
                let with_key = keys.entry(bound.key.clone()).or_default();
                with_key.push(index);
                with_key.len() as u32 - 1
            }
            Router::Fanout => 0,
            Router::Topic(patterns) => {
                patterns.insert(&bound.key, destination);
                0
            }
            Router::Headers(headers) => {
                let how = Match::of(&bound.arguments).expect("it was checked");
                headers.insert(&bound.arguments, how, destination)
            }
            Router::ConsistentHash(shares) => {
                let weight = consistent_hash::weight(&bound.key).expect("it was checked");
                shares.push(Share::new(index, destination, name, weight));
                shares.len() as u32 - 1
            }
        };
    }

    /// Gives up a binding that was taken in, and is no longer among `bindings`.
    pub(super) fn remove(&mut self, bound: &Bound, bindings: &mut Slots<Bound>, work: &mut u64) {
        match self {
            Router::Direct(keys) => {
                let with_key = keys.get_mut(&bound.key).expect("it was taken in");
                if let Some(moved) = take_at(with_key, bound.router_at) {
                    bindings[moved].router_at = bound.router_at;
                }
                if with_key.is_empty() {
                    keys.remove(&bound.key);
                    if keys.len() < keys.capacity() / 8 {
                        keys.shrink_to(keys.len() * 2);
                    }
                }
            }
            Router::Fanout => {}
            Router::Topic(patterns) => {
                let was_there = patterns.remove(&bound.key, &bound.destination);
                assert!(was_there, "it was taken in");
                *work += patterns.take_work();
            }
            Router::Headers(headers) => headers.remove(bound.router_at, work),
            Router::ConsistentHash(shares) => {
                if let Some(moved) = take_at(shares, bound.router_at) {
                    bindings[moved.binding].router_at = bound.router_at;
                }
            }
        }
    }

    /// Names where a message goes, a destination possibly more than once, and counts what that costs.
    pub(super) fn destinations<H: HeaderReader>(
        &mut self,
        routing: &Routing<'_, H>,
        from: &[u32],
        bindings: &Slots<Bound>,
        work: &mut u64,
        mut found: impl FnMut(Destination),
    ) {
        match self {
            Router::Direct(keys) => {
                for with_key in routing.keys.iter().filter_map(|key| keys.get(*key)) {
                    *work += with_key.len() as u64;
                    with_key.iter().for_each(|binding| found(bindings[*binding].destination));
                }
            }
            Router::Fanout => {
                *work += from.len() as u64;
                from.iter().for_each(|binding| found(bindings[*binding].destination));
            }
            Router::Topic(patterns) => {
                for key in routing.keys {
                    patterns.matches(key, |destination| found(*destination));
                }
                *work += patterns.take_work();
            }
            Router::Headers(headers) => headers.matches(routing.headers, work, found),
            Router::ConsistentHash(shares) => {
                *work += shares.len() as u64;
                let value = |value: &HeaderValue<&[u8]>| consistent_hash::draw(shares, value);
                let drawn = match routing.hash_on {
                    HashOn::Key => {
                        value(&HeaderValue::Bytes(routing.keys.first().copied().unwrap_or_default()))
                    }
                    HashOn::Property(property) => {
                        value(&routing.headers.property(*property).unwrap_or(HeaderValue::Void))
                    }
                    HashOn::Header(name) => {
                        // The first one of that name.
                        let (mut drawn, mut is_first) = (None, true);
                        routing.headers.each_header(|known, known_value| {
                            *work += 1;
                            if is_first && *known == **name {
                                is_first = false;
                                drawn = value(&known_value);
                            }
                        });
                        if is_first { value(&HeaderValue::Void) } else { drawn }
                    }
                };
                drawn.into_iter().for_each(found);
            }
        }
    }
}

/// Removes what is at a place of a list. The last one then has that place, if it is another.
pub(super) fn take_at<T: Copy>(list: &mut Vec<T>, at: u32) -> Option<T> {
    list.swap_remove(at as usize);
    if list.len() < list.capacity() / 4 {
        list.shrink_to(list.len() * 2);
    }
    list.get(at as usize).copied()
}
