//! Is a delivery tag in use on this link already?
//!
//! AMQP 1.0 §2.6.12: a tag is unique among the link's unsettled deliveries. Nearly all senders count, so their tags
//! ascend, first by length: a tag above the highest in use is new without looking. Only a link that was seen to do
//! otherwise gets an index by hash, which then holds all its unsettled tags.

use hashbrown::HashTable;

use crate::unsettled::Unsettled;

use super::ids::DeliveryTag;
use super::settlement::Arrived;

#[derive(Debug, Default)]
pub(super) struct Tags {
    /// The highest since the last time that nothing was unsettled.
    highest: Option<Box<DeliveryTag>>,
    index: Option<Box<HashTable<Indexed>>>,
}

#[derive(Debug)]
struct Indexed {
    hash: u64,
    delivery_id: u32,
}

impl Tags {
    /// Notes a tag that is about to be unsettled; `false` if it is in use. `unsettled` are the session's deliveries, of
    /// which `count` belong to `link`.
    #[inline]
    pub(super) fn insert(
        &mut self,
        tag: &[u8],
        delivery_id: u32,
        link: u32,
        count: usize,
        unsettled: &Unsettled<Arrived>,
    ) -> bool {
        if self.index.is_none() {
            match &mut self.highest {
                None => {
                    self.highest = DeliveryTag::new(tag).map(Box::new);
                    return true;
                }
                Some(highest) if count == 0 || above(tag, highest) => {
                    highest.set(tag);
                    return true;
                }
                Some(_) => {}
            }
        }
        self.insert_indexed(tag, delivery_id, link, unsettled)
    }

    fn insert_indexed(
        &mut self,
        tag: &[u8],
        delivery_id: u32,
        link: u32,
        unsettled: &Unsettled<Arrived>,
    ) -> bool {
        let index = self.index.get_or_insert_with(|| {
            let mut index = HashTable::new();
            for (delivery_id, arrived) in unsettled.iter().filter(|(_, arrived)| arrived.link == link) {
                let hash = hash(&arrived.tag);
                index.insert_unique(hash, Indexed { hash, delivery_id }, |indexed| indexed.hash);
            }
            Box::new(index)
        });
        let hash = hash(tag);
        let same = |indexed: &Indexed| {
            indexed.hash == hash
                && unsettled.find(indexed.delivery_id).is_some_and(|arrived| *arrived.tag == *tag)
        };
        if index.find(hash, same).is_some() {
            return false;
        }
        index.insert_unique(hash, Indexed { hash, delivery_id }, |indexed| indexed.hash);
        true
    }

    /// Forgets the tag of a delivery that is settled.
    #[inline]
    pub(super) fn remove(&mut self, tag: &DeliveryTag, delivery_id: u32) {
        if let Some(index) = &mut self.index
            && let Ok(entry) = index.find_entry(hash(tag), |indexed| indexed.delivery_id == delivery_id)
        {
            entry.remove();
        }
    }
}

/// By length, then by bytes: the order of numbers, in decimal as in big-endian digits.
#[inline]
fn above(tag: &[u8], other: &[u8]) -> bool {
    (tag.len(), tag) > (other.len(), other)
}

/// Folds words of eight bytes by multiplication. A peer that seeks collisions slows down its own link, whose unsettled
/// deliveries its credit bounds.
#[inline]
fn hash(tag: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = tag.len() as u64;
    for chunk in tag.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let product = u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(MULTIPLIER);
        hash = (product as u64) ^ ((product >> 64) as u64) ^ MULTIPLIER.rotate_left(23);
    }
    hash
}
