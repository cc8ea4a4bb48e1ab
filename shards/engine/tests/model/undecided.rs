//! What transactions do with their entries, and when.

use corelane_engine::*;

use super::{Entry, Model, State};

impl Model {
    /// A transaction decides about one of its entries: not always about the first.
    pub(crate) fn decide(&mut self) {
        let places = self.undecided();
        let Some(place) = self.random.pick(&places).copied() else {
            return;
        };
        let (now, queue) = (self.now, self.queue);
        match self.entries[&place].state {
            State::Pending(_) if self.random.chance(3) => {
                assert!(self.engine.drop_pending(queue, place));
                self.entries.remove(&place);
            }
            State::Pending(until) => {
                assert!(self.engine.commit_pending(now, queue, place));
                if self.entries[&place].expires_at.is_some_and(|time| time <= now) {
                    self.bury(place);
                } else {
                    let last = self.last_of(self.entries[&place].key);
                    if self.properties.overflow == Overflow::DropOldest {
                        self.make_room(last.filter(|place| self.entries[place].is_free()));
                    }
                    let state = until.filter(|until| *until > now).map_or(State::Available, State::Held);
                    self.entries.get_mut(&place).unwrap().state = state;
                    self.replace(last);
                }
            }
            State::Retired(consumer) if self.random.chance(2) => {
                let outcome = self.any_outcome();
                if self.random.chance(4) {
                    let weight = self.random.below(8) as i64;
                    if let Some(Stored::Here(note)) = self.engine.retired_message_mut(queue, place) {
                        note.weight = weight;
                        self.entries.get_mut(&place).unwrap().note.weight = weight;
                    }
                }
                assert!(self.engine.commit_retired(now, queue, place, outcome));
                self.end(place, consumer, outcome);
            }
            State::Retired(_) => {
                let failed = self.random.chance(2);
                assert!(self.engine.roll_back_retired(now, queue, place, failed));
                self.come_back(place, failed);
            }
            State::Available | State::Held(_) | State::Acquired(..) => unreachable!("it is undecided"),
        }
        assert!(!self.engine.commit_pending(now, queue, place), "once");
        assert!(!self.engine.commit_retired(now, queue, place, Outcome::Accepted), "once");
    }

    pub(crate) fn undecided(&self) -> Vec<Place> {
        let undecided = |entry: &Entry| matches!(entry.state, State::Pending(_) | State::Retired(_));
        self.entries.iter().filter(move |(_, entry)| undecided(entry)).map(|(place, _)| *place).collect()
    }
}
