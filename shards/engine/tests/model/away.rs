//! Messages leave memory and come back, as somebody needs them or by chance.

use corelane_engine::*;

use super::{Model, Note, State};

/// Whether it is this message, or where this message is.
pub(crate) fn is_it(stored: &Stored<Note>, note: &Note) -> bool {
    match stored {
        Stored::Here(here) => here == note,
        Stored::Away(away) => *away == place_of(note),
    }
}

fn place_of(note: &Note) -> Away {
    Away([note.id as u32, 0, 0])
}

impl Model {
    pub(crate) fn is_away(&self, place: Place) -> bool {
        matches!(self.engine.message_at(self.queue, place), Some(Stored::Away(_)))
    }

    /// Some of what is in memory goes, some of what is needed comes.
    pub(crate) fn overflow(&mut self) {
        if !self.overflows {
            return;
        }
        while let Some((_, place)) = self.engine.take_wanted() {
            self.reading.push(place);
        }
        for _ in 0..self.random.below(4) {
            self.send_away();
        }
        if self.random.chance(3) && !self.reading.is_empty() {
            let at = self.random.below(self.reading.len());
            let place = self.reading.swap_remove(at);
            self.read(place);
        }
        if self.random.chance(6)
            && let Some(place) = self.any_place()
        {
            self.bring_back(place);
        }
    }

    /// Everything that is needed is read. False: nothing was.
    pub(crate) fn read_all(&mut self) -> bool {
        while let Some((_, place)) = self.engine.take_wanted() {
            self.reading.push(place);
        }
        let wanted = std::mem::take(&mut self.reading);
        wanted.iter().for_each(|place| self.read(*place));
        !wanted.is_empty()
    }

    fn any_place(&mut self) -> Option<Place> {
        let places: Vec<Place> = self.entries.keys().copied().collect();
        self.random.pick(&places).copied()
    }

    fn send_away(&mut self) {
        let Some(place) = self.any_place() else { return };
        let entry = &self.entries[&place];
        let stays = self.is_away(place) || matches!(entry.state, State::Pending(_));
        let gone = self.engine.send_away(self.queue, place, |note| Some(place_of(note)));
        assert_eq!(gone, (!stays).then(|| entry.note.clone()));
        self.engine.verify();
    }

    /// What somebody needs is read, or cannot be.
    fn read(&mut self, place: Place) {
        self.note_full();
        if self.random.chance(12) && self.engine.lose(self.now, self.queue, place) {
            assert!(self.entries.remove(&place).is_some_and(|entry| entry.is_free()));
        }
        self.bring_back(place);
        self.engine.resume_reading(self.now, self.queue);
        self.engine.verify();
    }

    fn bring_back(&mut self, place: Place) {
        let Some(entry) = self.entries.get(&place) else { return };
        let (note, was_away) = (entry.note.clone(), self.is_away(place));
        let back = self.engine.bring_back(self.now, self.queue, place, note);
        assert_eq!(back.is_ok(), was_away);
        self.engine.verify();
    }
}
