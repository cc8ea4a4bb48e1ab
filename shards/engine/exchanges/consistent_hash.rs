//! Which one destination of a consistent hash exchange gets a message?
//!
//! Each destination draws a lot for the message, from a hash of both, and the best lot wins. Lots are exponential with the binding's weight
//! as their rate, so each destination gets its weight's part of all messages; one that goes leaves its messages to the others and
//! moves none between them. Lots depend on names only: a message goes the same way on every shard and after a restart.

use super::kind::invalid;
use super::refusal::InvalidArgument;
use super::{Destination, HeaderValue, Refusal};

/// What of a binding the draw needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) binding: u32,
    pub(super) destination: Destination,
    weight: u32,
    /// Of the destination's name.
    hash: u64,
}

/// The weight that a routing key says.
pub(super) fn weight(key: &[u8]) -> Result<u32, Refusal> {
    let weight = std::str::from_utf8(key).ok().and_then(|key| key.parse().ok()).filter(|weight| *weight > 0);
    weight.ok_or(invalid("routing_key", InvalidArgument::NotAWeight))
}

impl Share {
    pub(super) fn new(binding: u32, destination: Destination, name: &str, weight: u32) -> Self {
        let kind = match destination {
            Destination::Queue(_) => 0,
            Destination::Exchange(_) => 1,
        };
        Share { binding, destination, weight, hash: stable_hash(kind, name.as_bytes()) }
    }

    /// The smallest of all wins.
    fn lot(&self, of: u64) -> f64 {
        let even = (mix(self.hash ^ of) >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - even).ln() / f64::from(self.weight)
    }
}

/// The destination of a message with this value. Of equal lots the smaller name hash wins, whatever the order.
pub(super) fn draw<B: AsRef<[u8]>>(shares: &[Share], value: &HeaderValue<B>) -> Option<Destination> {
    let (kind, number, bytes) = value.identity();
    let of = mix(stable_hash(u64::from(kind), bytes) ^ stable_hash(0, &number.to_le_bytes()));
    let lots = shares.iter().map(|share| (share.lot(of), share.hash, share.destination));
    lots.min_by(|(one, hash, _), (other, other_hash, _)| one.total_cmp(other).then(hash.cmp(other_hash)))
        .map(|(_, _, destination)| destination)
}

/// FNV-1a with a last mixing, which makes all bits count. It is the same in all versions of the program.
fn stable_hash(seed: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step))
}

/// The finalizer of SplitMix64.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
