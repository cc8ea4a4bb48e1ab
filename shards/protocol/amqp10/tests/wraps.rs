//! The records of unsettled deliveries, against a map.

use std::collections::BTreeMap;

use crate::random::Random;
use crate::unsettled::Unsettled;

#[test]
fn unsettled_is_a_map_in_order() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let start = [0, 0x7fff_ff00, 0xffff_ff00][seed as usize % 3];
        let mut next: u64 = start;
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut unsettled = Unsettled::new();
        for step in 0..2000 {
            match random.below(8) {
                0..4 => {
                    next += 1 + if random.below(4) == 0 { random.below(50) } else { 0 };
                    unsettled.push(next as u32, step);
                    model.insert(next, step);
                }
                4..7 => {
                    let id = start + random.below(next - start + 2);
                    assert_eq!(unsettled.find(id as u32).copied(), model.get(&id).copied(), "seed {seed}");
                    assert_eq!(unsettled.remove(id as u32), model.remove(&id), "seed {seed}");
                }
                _ => {
                    let from = start + random.below(next - start + 2);
                    let last = from + random.below(60);
                    let expect = model.range(from..=last).next().map(|(id, value)| (*id as u32, *value));
                    let got = unsettled.next_in(from as u32, last as u32).map(|(_, id, value)| (id, *value));
                    assert_eq!(got, expect, "seed {seed}");
                }
            }
            unsettled.verify();
            assert_eq!(unsettled.count(), model.len());
            assert_eq!(unsettled.first_id(), model.keys().next().map(|id| *id as u32));
        }
        unsettled.retain(|value| value % 2 == 0);
        model.retain(|_, value| *value % 2 == 0);
        unsettled.verify();
        assert!(
            unsettled
                .iter()
                .map(|(id, value)| (id, *value))
                .eq(model.iter().map(|(id, value)| (*id as u32, *value)))
        );
    }
}
