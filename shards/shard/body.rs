//! Whose are a message's bytes? One entry's, or those of all entries that a publication led to.
//!
//! A vector that is an entry's alone comes from the shard's pool and goes back to it. What was published to several queues is one
//! vector for all of them: shards share it, and on each shard its entries share one handle to it, which says what the shard
//! counts for the body. Whoever drops the last handle of a shard gives that back, and whoever drops the last of all has the vector.
//!
//! A shared handle never leaves its shard: what travels is [`Body::Passed`].

use std::sync::Arc;

use crate::buffers::Buffers;

/// The bytes of a message.
#[derive(Debug)]
pub(crate) enum Body {
    /// One entry's.
    Own(Vec<u8>),
    /// Those of entries on several shards, of which this is the only one here, or is on its way here.
    Passed(Arc<Vec<u8>>),
    /// Those of several entries of this shard.
    Shared(Arc<Shared>),
}

impl Default for Body {
    fn default() -> Self {
        Body::Own(Vec::new())
    }
}

/// A shard's handle to bytes that several of its entries have.
#[derive(Debug)]
pub(crate) struct Shared {
    bytes: Arc<Vec<u8>>,
    /// What this shard counts for them.
    counted: u64,
}

impl Body {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Body::Own(bytes) => bytes,
            Body::Passed(bytes) => bytes,
            Body::Shared(shared) => &shared.bytes,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Body::Shared(_))
    }

    /// The vector, if nobody else has it.
    pub(crate) fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Body::Own(bytes) => Some(bytes),
            Body::Passed(bytes) => Arc::into_inner(bytes),
            Body::Shared(shared) => Arc::into_inner(shared).and_then(|shared| Arc::into_inner(shared.bytes)),
        }
    }

    /// The same bytes for another shard, or for someone here whose memory is not the queues'.
    pub(crate) fn copied(&self, buffers: &mut Buffers) -> Body {
        match self {
            Body::Own(bytes) => Body::Own(buffers.copy(bytes)),
            Body::Passed(bytes) => Body::Passed(bytes.clone()),
            Body::Shared(shared) => Body::Passed(shared.bytes.clone()),
        }
    }

    /// Bytes that can travel, and what this shard has to count no more.
    pub(crate) fn taken_out(self) -> (Body, u64) {
        match self {
            Body::Own(_) | Body::Passed(_) => (self, 0),
            Body::Shared(shared) => {
                let bytes = shared.bytes.clone();
                (Body::Passed(bytes), Arc::into_inner(shared).map_or(0, |shared| shared.counted))
            }
        }
    }

    /// Bytes that several shards can have.
    pub(crate) fn passed(self) -> Body {
        match self {
            Body::Own(bytes) => Body::Passed(Arc::new(bytes)),
            Body::Passed(_) | Body::Shared(_) => self,
        }
    }

    /// Bytes that several entries of this shard can have, which counts so much for them.
    pub(crate) fn shared(self, counted: u64) -> Body {
        let bytes = match self {
            Body::Own(bytes) => Arc::new(bytes),
            Body::Passed(bytes) => bytes,
            Body::Shared(_) => return self,
        };
        Body::Shared(Arc::new(Shared { bytes, counted }))
    }

    /// Another handle, if there can be one without a copy.
    pub(crate) fn another(&self) -> Option<Body> {
        match self {
            Body::Own(_) => None,
            Body::Passed(bytes) => Some(Body::Passed(bytes.clone())),
            Body::Shared(shared) => Some(Body::Shared(shared.clone())),
        }
    }

    /// Gives the handle up: what this shard has to count no more, and the vector if nobody else has it.
    pub(crate) fn dissolved(self) -> (u64, Option<Vec<u8>>) {
        match self {
            Body::Own(bytes) => (0, Some(bytes)),
            Body::Passed(bytes) => (0, Arc::into_inner(bytes)),
            Body::Shared(shared) => match Arc::into_inner(shared) {
                Some(Shared { bytes, counted }) => (counted, Arc::into_inner(bytes)),
                None => (0, None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_handle_of_a_shard_gives_back_what_is_counted_and_the_last_of_all_the_vector() {
        let passed = Body::Own(vec![7; 100]).passed();
        let here = passed.another().expect("passed bytes have as many handles as one likes").shared(100);
        let there = passed.shared(100);
        let (first, second) = (here.another().unwrap(), here);
        assert_eq!(first.bytes(), [7; 100]);
        assert_eq!(first.dissolved(), (0, None));
        assert_eq!(second.dissolved(), (100, None));
        let (counted, bytes) = there.dissolved();
        assert_eq!((counted, bytes.map(|bytes| bytes.len())), (100, Some(100)));
    }

    #[test]
    fn what_travels_is_counted_nowhere() {
        let mut buffers = Buffers::new();
        let shared = Body::Own(vec![7; 100]).shared(100);
        assert!(!shared.copied(&mut buffers).is_shared());
        let other = shared.another().unwrap();
        let (travels, freed) = other.taken_out();
        assert_eq!((travels.is_shared(), freed), (false, 0));
        let (travels, freed) = shared.taken_out();
        assert_eq!((travels.is_shared(), freed), (false, 100));
        assert_eq!(travels.bytes(), [7; 100]);
    }
}
