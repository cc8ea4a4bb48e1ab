//! Does the engine tell what there is?

use corelane_engine::*;

use super::{FILTERS, Model, State};

impl Model {
    /// What the engine tells of the queue is what there is.
    pub(crate) fn look(&mut self) {
        let full = self.note_full();
        assert_eq!(self.engine.is_full(self.queue), full);
        if self.random.chance(2) {
            let room = self.waiting && !full;
            assert_eq!(self.engine.poll_room(), room.then_some(self.queue));
            self.waiting = full;
        }
        let listed = self.engine.entries(self.queue, Place(0));
        let listed = listed.map(|(place, note, view)| {
            let held = match view.state {
                EntryState::Acquired(consumer) => Some(consumer),
                _ => None,
            };
            (
                place,
                note.away().map_or_else(|| note.here().map(|note| note.id), |away| Some(away.0[0].into())),
                held,
            )
        });
        let entries = self.entries.iter().map(|(place, entry)| {
            let held = match entry.state {
                State::Acquired(consumer, ..) => Some(consumer),
                State::Available | State::Held(_) | State::Pending(_) | State::Retired(_) => None,
            };
            (*place, Some(entry.note.id), held)
        });
        assert!(listed.eq(entries));
        let mut free = self.entries.iter().filter(|(_, entry)| matches!(entry.state, State::Available));
        assert_eq!(self.engine.head(self.queue), free.next().map(|(place, _)| *place));
    }

    /// Whether producers are to wait.
    pub(crate) fn note_full(&mut self) -> bool {
        let full = self.properties.overflow == Overflow::Block
            && self.properties.messages_max.is_some_and(|max| self.entries.len() as u64 >= max);
        self.waiting |= full;
        full
    }

    /// For failures.
    pub(crate) fn picture(&self) -> String {
        let mut text = format!("now {} {:?}\n", self.now, self.properties);
        for (place, entry) in &self.entries {
            text += &format!("{place:?} {entry:?}\n");
        }
        for (consumer, want) in &self.wants {
            let filter = want.filter.map(|filter| FILTERS[filter].0);
            text += &format!(
                "{consumer:?} {filter:?} {:?} {:?}\n",
                want.no_local,
                self.engine.explain(*consumer)
            );
        }
        text
    }
}
