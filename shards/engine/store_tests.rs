//! Does the tree of chunks find what an ordered map finds?

use std::collections::BTreeMap;

use super::*;
use crate::ids::Origin;

fn append(store: &mut Store<u64>, tree: &mut Tree) -> EntryRef {
    let sequence = tree.next;
    let entry = store.append(tree, 0, 0).unwrap();
    store.entry_mut(entry).fill(Stored::Here(sequence), 0, Origin(sequence << 40), None);
    entry
}

#[test]
fn a_random_life_agrees_with_an_ordered_map() {
    for seed in 1..60_u64 {
        let (mut store, mut tree, mut random) = (Store::new(2), Tree::new(0), seed);
        let mut model: BTreeMap<u64, (EntryRef, bool)> = BTreeMap::new();
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..3000 {
            let nth = (!model.is_empty()).then(|| *model.keys().nth(next() as usize % model.len()).unwrap());
            match (next() % 8, nth) {
                (0..=3, _) | (_, None) => {
                    if next() % 40 == 0 {
                        // Long stretches whose entries are gone.
                        tree.next += next() % 100_000 * 64;
                    }
                    let sequence = tree.next;
                    let entry = append(&mut store, &mut tree);
                    model.insert(sequence, (entry, false));
                }
                (4 | 5, Some(key)) => {
                    let (entry, takeable) = model[&key];
                    match takeable {
                        true => store.clear_takeable(&mut tree, entry),
                        false => store.set_takeable(&mut tree, entry),
                    };
                    model.insert(key, (entry, !takeable));
                }
                (_, Some(key)) => {
                    let (entry, takeable) = model.remove(&key).unwrap();
                    if takeable {
                        store.clear_takeable(&mut tree, entry);
                    }
                    assert_eq!(store.entry(entry).origin(), Origin(key << 40));
                    assert_eq!(store.remove(&mut tree, entry), Stored::Here(key));
                }
            }
            let from = next() % (tree.next + 100);
            let found = store.first_takeable(&tree, from).map(|entry| store.place(entry).sequence());
            assert_eq!(found, model.range(from..).find(|(_, (_, takeable))| *takeable).map(|(key, _)| *key));
            let found = store.first_live(&tree, from).map(|entry| store.place(entry).sequence());
            assert_eq!(found, model.range(from..).next().map(|(key, _)| *key));
            assert_eq!(store.find(&tree, from), model.get(&from).map(|(entry, _)| *entry));
        }
        assert_eq!(store.verify(&tree, 0, 0).len(), model.len());
        let mut retired = Vec::new();
        while store.dismantle(&mut tree, |_| (), |_, message| retired.extend(message.here())) {}
        assert_eq!(retired, model.keys().copied().collect::<Vec<_>>());
        assert_eq!((store.count(), store.chunk_count()), (0, 0));
        assert_eq!(store.nodes.len(), store.nodes_free.len());
    }
}

/// s16: one entry stuck at the head for ever.
#[test]
fn a_stuck_entry_pins_its_own_chunk_only() {
    let (mut store, mut tree) = (Store::new(4), Tree::new(0));
    append(&mut store, &mut tree);
    for _ in 0..1_000_000 {
        let entry = append(&mut store, &mut tree);
        store.remove(&mut tree, entry);
    }
    assert_eq!(store.chunk_count(), 2);
    assert!(store.chunks.len() <= 3 && store.nodes.len() <= 8);
    assert_eq!(store.first_live(&tree, 1), None);
    assert_eq!(store.first_live(&tree, 0).map(|entry| store.place(entry)), Some(Place::FIRST));
}

#[test]
fn an_empty_tree_has_no_chunk() {
    let (mut store, mut tree) = (Store::new(4), Tree::new(0));
    for count in [1, 64, 65, 200] {
        let entries: Vec<EntryRef> = (0..count).map(|_| append(&mut store, &mut tree)).collect();
        for entry in entries.into_iter().rev() {
            store.remove(&mut tree, entry);
            store.verify(&tree, 0, 0);
        }
        assert_eq!((store.chunk_count(), tree.root, tree.tail), (0, NONE, NONE));
    }
}
