//! Which messages must stay together, and in order?
//!
//! A group's available entries stand in its FIFO, by place. While the group belongs to nobody only the first of them is takeable;
//! the others wait behind it, so no pull ever meets them. A consumer that takes the first claims the group, and as long as it
//! holds an unsettled message of the group, or has retired one in a transaction that is open (with sticky groups: as long as it
//! lives), the FIFO is its own: it looks there for what is first, nobody else does. Freed, the group shows its first entry to
//! everybody again; but if its owner is gone and something that it retired may still come back, nobody gets any of it until then.
//!
//! So within a group the order is strict: an entry is taken only after those before it that are available, whatever the filters
//! say. An entry that no filter matches holds its group back until it is taken, expires or is removed, and one whose delivery failed
//! holds back what stands behind it while it waits for the next (`delayed`). What waits because its sender wants it so does not.
//!
//! - owner = none ⟹ unsettled = 0, and the first entry is takeable (`shown`) if retired = 0 and none before it is delayed, else none is;
//! - owner ≠ none ⟹ none of its entries is takeable;
//! - the FIFO is `line` (in order of arrival) merged with `returned` (what came back behind a later one).

use std::collections::BTreeSet;

use hashbrown::HashTable;

use crate::entry::EntryRef;
use crate::ids::Place;
use crate::list::{Chain, Links, List};
use crate::slots::{NONE, Slots};
use crate::store::Store;

/// The available entries of a group in order of arrival.
pub(crate) struct InLine;
/// The groups of one owner.
pub(crate) struct OwnedBy;
/// Sticky groups without an entry.
pub(crate) struct Resting;

pub(crate) struct Groups {
    pub(crate) groups: Slots<Group>,
    table: HashTable<u32>,
    /// Sticky ones without an entry, the one idle for longest first.
    pub(crate) resting: List<Resting>,
}

pub(crate) struct Group {
    name: Box<str>,
    hash: u64,
    pub(crate) owner: u32,
    /// Held by the owner.
    pub(crate) unsettled: u32,
    /// Retired by the owner, or by the one before, which is gone.
    pub(crate) retired: u32,
    line: List<InLine>,
    returned: BTreeSet<Place>,
    /// Held since their delivery failed: what stands behind them waits.
    delayed: BTreeSet<Place>,
    /// The entry that is takeable.
    pub(crate) shown: Option<EntryRef>,
    /// The place under which the group stands in its owner's `owned_heads`.
    pub(crate) promised: Option<Place>,
    /// Entries of the group in the queue, whatever their state.
    pub(crate) entries: u64,
    pub(crate) owned_links: Links,
    pub(crate) resting_links: Links,
    pub(crate) rests: bool,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Groups { groups: Slots::new(), table: HashTable::new(), resting: List::new() }
    }

    /// The group of this name, made when it is new.
    pub(crate) fn intern(&mut self, name: &str, hash: u64) -> u32 {
        let groups = &self.groups;
        if let Some(index) = self.table.find(hash, |index| &*groups[*index].name == name) {
            return *index;
        }
        let index = self.groups.insert(Group {
            name: name.into(),
            hash,
            owner: NONE,
            unsettled: 0,
            retired: 0,
            line: List::new(),
            returned: BTreeSet::new(),
            delayed: BTreeSet::new(),
            shown: None,
            promised: None,
            entries: 0,
            owned_links: Links::UNLINKED,
            resting_links: Links::UNLINKED,
            rests: false,
        });
        let groups = &self.groups;
        self.table.insert_unique(hash, index, |index| groups[*index].hash);
        index
    }

    /// Forgets a group that has no entries and no owner.
    pub(crate) fn remove(&mut self, index: u32) {
        let group = self.groups.remove(index);
        assert!(group.owner == NONE && group.entries == 0 && group.is_empty() && !group.rests);
        assert!(group.delayed.is_empty(), "what waits is an entry");
        match self.table.find_entry(group.hash, |candidate| *candidate == index) {
            Ok(found) => {
                found.remove();
            }
            Err(_) => unreachable!("a group is in the table for life"),
        }
    }
}

impl Group {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.returned.is_empty()
    }

    /// Count of those in the FIFO.
    pub(crate) fn waiting(&self) -> u64 {
        u64::from(self.line.count()) + self.returned.len() as u64
    }

    /// The entry before all others.
    pub(crate) fn first<M>(&self, store: &Store<M>) -> Option<Place> {
        let line = self.line.first().map(|index| store.place(EntryRef(index)));
        let returned = self.returned.first().copied();
        match (line, returned) {
            (Some(line), Some(returned)) => Some(line.min(returned)),
            (line, returned) => line.or(returned),
        }
    }

    /// The entry that is to be taken next: the first, if none before it waits for its next delivery.
    pub(crate) fn next<M>(&self, store: &Store<M>) -> Option<Place> {
        self.first(store).filter(|place| self.delayed.first().is_none_or(|delayed| place < delayed))
    }

    /// One whose delivery failed waits for the next one. Whether it does.
    pub(crate) fn delay(&mut self, place: Place, waits: bool) {
        if waits {
            self.delayed.insert(place);
        } else {
            self.delayed.remove(&place);
        }
    }

    /// Those that wait for their next delivery.
    pub(crate) fn delayed(&self) -> &BTreeSet<Place> {
        &self.delayed
    }

    /// Whether an available entry is in nobody's reach: another comes first, or may come back from a transaction.
    pub(crate) fn holds_back<M>(&self, store: &Store<M>, place: Place) -> bool {
        self.next(store) != Some(place) || self.owner == NONE && self.retired > 0
    }

    /// Joins the FIFO, at its place.
    pub(crate) fn join<M>(&mut self, store: &mut Store<M>, entry: EntryRef) {
        let place = store.place(entry);
        let behind = self.line.last().is_none_or(|last| store.place(EntryRef(last)) < place);
        if behind {
            self.line.push_back(store, entry.0);
        } else {
            self.returned.insert(place);
            store.entry_mut(entry).set_returned(true);
        }
    }

    pub(crate) fn leave<M>(&mut self, store: &mut Store<M>, entry: EntryRef) {
        if store.entry(entry).returned() {
            store.entry_mut(entry).set_returned(false);
            assert!(self.returned.remove(&store.place(entry)));
        } else {
            self.line.remove(store, entry.0);
        }
    }

    /// Everything in the FIFO, in no particular order.
    pub(crate) fn places<M>(&self, store: &Store<M>) -> Vec<Place> {
        let line = self.line.iter(store).map(|index| store.place(EntryRef(index)));
        line.chain(self.returned.iter().copied()).collect()
    }
}

impl<M> Chain<InLine> for Store<M> {
    fn links(&self, index: u32) -> Links {
        self.links_of(EntryRef(index))
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        self.links_of_mut(EntryRef(index))
    }
}

impl Chain<OwnedBy> for Slots<Group> {
    fn links(&self, index: u32) -> Links {
        self[index].owned_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].owned_links
    }
}

impl Chain<Resting> for Slots<Group> {
    fn links(&self, index: u32) -> Links {
        self[index].resting_links
    }

    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self[index].resting_links
    }
}
