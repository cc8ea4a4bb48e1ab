//! How does a filtered class learn what was in the queue before it?
//!
//! In slices, over takeable entries only. Fresh classes sweep together from the queue's head, so that a thousand of them
//! cost one pass with a look-up in the filter index for each entry. A class whose candidates ran low after it was full goes on
//! alone, from where it was. The two take turns.

use crate::class::ScanState;
use crate::counters::Cause;
use crate::engine::{Engine, Message};
use crate::ids::Place;

impl<M: Message> Engine<M> {
    /// A bounded slice of scanning for filtered classes and of dismantling deleted queues. True: there is more to do.
    pub fn run_slice(&mut self, now: u64) -> bool {
        self.now = now;
        if let Some(queue) = self.scanning.first() {
            self.scanning.move_to_back(&mut self.queues, queue);
            self.scan_slice(queue);
        }
        if self.spent.is_empty() {
            self.dismantle();
        }
        !self.scanning.is_empty() || !self.graveyard.is_empty()
    }

    /// Changes how far a class knows its queue.
    pub(crate) fn set_scan(&mut self, class: u32, scan: ScanState) {
        let before = std::mem::replace(&mut self.classes[class].scan, scan);
        let queue = self.classes[class].queue;
        let scans = &mut self.queues[queue].scans;
        match before {
            ScanState::Complete | ScanState::Resting(_) => {}
            ScanState::Alone(_) => scans.alone.remove(&mut self.classes, class),
            ScanState::Waiting => scans.waiting.remove(&mut self.classes, class),
            ScanState::Sweeping => scans.sweeping.remove(&mut self.classes, class),
        }
        match scan {
            ScanState::Complete | ScanState::Resting(_) => {}
            ScanState::Alone(_) => scans.alone.push_back(&mut self.classes, class),
            ScanState::Waiting => scans.waiting.push_back(&mut self.classes, class),
            ScanState::Sweeping => scans.sweeping.push_back(&mut self.classes, class),
        }
        self.list_scans(queue);
    }

    /// Puts a queue on the list of those with scans to do, or takes it off.
    pub(crate) fn list_scans(&mut self, queue: u32) {
        let scans = &mut self.queues[queue].scans;
        let wanted = !scans.is_idle() && !scans.waits;
        if std::mem::replace(&mut scans.listed, wanted) != wanted {
            match wanted {
                true => self.scanning.push_back(&mut self.queues, queue),
                false => self.scanning.remove(&mut self.queues, queue),
            }
        }
    }

    /// Lets a class that was full scan on, when its candidates run low and somebody waits for them.
    pub(crate) fn resume_scan(&mut self, class: u32) {
        let state = &self.classes[class];
        let ScanState::Resting(place) = state.scan else {
            return;
        };
        if self.queues[state.queue].entries.takeable == 0 {
            self.set_scan(class, ScanState::Complete);
        } else if state.candidates.len() <= self.limits.candidates_max / 2
            && state.interested + state.notified > 0
        {
            self.set_scan(class, ScanState::Alone(place));
        }
    }

    /// Looks at up to `scan_slice_max` entries of a queue, for one class or for all that sweep.
    pub(crate) fn scan_slice(&mut self, queue: u32) {
        let scans = &mut self.queues[queue].scans;
        let sweep = !scans.sweeping.is_empty() || !scans.waiting.is_empty();
        let alone = scans.alone.first();
        scans.sweep_next = !scans.sweep_next;
        match alone {
            Some(class) if !sweep || !scans.sweep_next => self.scan_alone(queue, class),
            Some(_) | None if sweep => self.sweep(queue),
            Some(_) | None => {}
        }
    }

    /// Entries that one slice looks at, when each costs so many nodes of filters.
    fn slice_max(&self, nodes: usize) -> usize {
        (self.limits.scan_nodes_max / nodes.max(1)).clamp(1, self.limits.scan_slice_max)
    }

    fn scan_alone(&mut self, queue: u32, class: u32) {
        for _ in 0..self.slice_max(self.classes[class].node_count()) {
            let ScanState::Alone(from) = self.classes[class].scan else {
                return;
            };
            let Some(entry) = self.queues[queue].entries.first_takeable(&self.store, from) else {
                self.set_scan(class, ScanState::Complete);
                return;
            };
            if self.classes[class].candidates.len() >= self.limits.candidates_max {
                self.set_scan(class, ScanState::Resting(from));
                self.keep_going(class);
                return;
            }
            if self.store.entry(entry).is_away() {
                return self.await_scan(queue, entry);
            }
            self.counters.scanned += 1;
            self.work += self.classes[class].node_count() as u64;
            let place = self.store.place(entry);
            self.classes[class].scan = ScanState::Alone(place.next());
            if self.matches(class, entry)
                && !self.classes[class].parked.contains(&place)
                && self.offer(class, place)
            {
                self.notify_work(entry, &[class], Cause::FoundByScan);
            }
        }
        self.queues[queue].scans.alone.move_to_back(&mut self.classes, class);
    }

    fn sweep(&mut self, queue: u32) {
        if self.queues[queue].scans.sweeping.is_empty() {
            self.queues[queue].scans.front = Place::FIRST;
            while let Some(class) = self.queues[queue].scans.waiting.first() {
                self.set_scan(class, ScanState::Sweeping);
            }
        }
        let mut matched = Vec::new();
        for _ in 0..self.slice_max(self.queues[queue].matching.node_count) {
            let front = self.queues[queue].scans.front;
            let Some(entry) = self.queues[queue].entries.first_takeable(&self.store, front) else {
                while let Some(class) = self.queues[queue].scans.sweeping.first() {
                    self.set_scan(class, ScanState::Complete);
                }
                return;
            };
            if self.store.entry(entry).is_away() {
                return self.await_scan(queue, entry);
            }
            self.counters.scanned += 1;
            let place = self.store.place(entry);
            self.queues[queue].scans.front = place.next();
            self.match_acquiring(entry, &mut matched);
            matched.retain(|class| {
                self.classes[*class].scan == ScanState::Sweeping && self.offer(*class, place)
            });
            if !matched.is_empty() {
                self.notify_work(entry, &matched, Cause::FoundByScan);
            }
            if self.queues[queue].scans.sweeping.is_empty() {
                return;
            }
        }
    }
}
