//! What of a segment that is mostly dead is still needed?
//!
//! The segment is read piece by piece, and what still holds is said again, as it is now; then its file is free. One piece is on its
//! way, or one piece's records in the line, at a time: what else is said is never behind more than that.

use corelane_engine::{Engine, Place, QueueId, Stored};
use corelane_journal::{Position, Record, SegmentReader};
use hashbrown::HashSet;

use super::exchanges::is_of_topology;
use super::overflow::{position_of, transient_queue};
use super::{Durability, Said, Source};
use crate::Shard;
use crate::effect::Effect;
use crate::message::Message;
use crate::participant::Participations;
use crate::queues::Queues;

/// A segment that is being cleaned.
pub(super) struct Cleaning {
    segment: u32,
    reader: SegmentReader,
    offset: u64,
    /// A piece is being read.
    reads: bool,
    /// Everything has been said.
    ended: bool,
    /// Of these it is said how they came back.
    returned: HashSet<(QueueId, Place)>,
}

impl Shard {
    /// Goes on with cleaning, if there is something to clean and nothing of it is on its way.
    pub(super) fn clean_journal(&mut self) {
        let Shard { durability: Some(durability), effects, .. } = self else { return };
        // What is left of the last segment is for what is gone.
        if durability.restoring.is_some()
            || durability.journal.is_failed()
            || durability.journal.is_short()
            || durability.stopped.is_some()
        {
            return;
        }
        if durability.cleaning.is_none() {
            let Some(segment) = durability.journal.next_to_clean() else { return };
            let Some(reader) = durability.journal.reader(segment) else { return };
            durability.cleaning = Some(Cleaning {
                segment,
                reader,
                offset: 0,
                reads: false,
                ended: false,
                returned: HashSet::new(),
            });
        }
        let is_said = durability.line.is_empty();
        let Some(cleaning) = &mut durability.cleaning else { return };
        if cleaning.ended && is_said {
            durability.cleaning = None;
        } else if !cleaning.ended && !cleaning.reads && is_said {
            cleaning.reads = true;
            effects.push(Effect::ReadSegment { number: cleaning.segment, offset: cleaning.offset });
        }
    }

    /// A piece of the segment was read; `None`: that failed, so it stays as it is.
    pub(crate) fn on_segment_read(&mut self, number: u32, offset: u64, result: Result<&[u8], String>) {
        let Shard { durability: Some(durability), engine, queues, participations, effects, .. } = self else {
            return;
        };
        let Some(mut cleaning) = durability.cleaning.take_if(|cleaning| cleaning.segment == number) else {
            return;
        };
        cleaning.reads = false;
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(reason) => {
                cleaning.ended = true;
                durability.cleaning = Some(cleaning);
                durability.journal.leave_uncleaned(number);
                let text = format!(
                    "segment {number} of the journal cannot be read, so it cannot be cleaned: {reason}"
                );
                effects.push(Effect::Warn { text });
                return;
            }
        };
        debug_assert_eq!(cleaning.offset, offset);
        cleaning.offset += bytes.len() as u64;
        let Cleaning { reader, returned, .. } = &mut cleaning;
        let mut each = |position: Position, record: Record<'_>| {
            let again = durability.again(engine, queues, participations, returned, position, record);
            if let Some(again) = again {
                durability.say(again);
            }
        };
        let fed = reader.feed(bytes, &mut each);
        let ends = bytes.is_empty() || !matches!(fed, Ok(corelane_journal::Feed::More));
        if ends {
            let end = reader.finish(&mut each);
            cleaning.ended = true;
            // What cannot be read stays where somebody may look for it.
            if fed.is_ok() && end.is_ok_and(|end| end.damage.is_empty()) {
                durability.say(Said::Cleaned { segment: number });
            } else {
                durability.journal.leave_uncleaned(number);
            }
        }
        durability.cleaning = Some(cleaning);
    }
}

impl Durability {
    /// What is to be said of a message whose record lies in the segment.
    fn message_again(
        &self,
        engine: &Engine<Message>,
        position: Position,
        message: corelane_journal::Message,
        payload: &[u8],
    ) -> Option<Said> {
        if let Some(source) = self.leaving.at(position) {
            let (message, payload) = (Box::new(message), payload.to_vec());
            return Some(Said::DepartureAgain { source, message, payload });
        }
        let known = transient_queue(message.uid).or_else(|| self.by_uid.get(&message.uid).copied());
        let (queue, place) = (known?, Place(message.place));
        let (there, is_away) = match engine.message_at(queue, place)? {
            // It may be gone again when the next batch begins.
            Stored::Here(there) => (there.position, there.was_read),
            Stored::Away(away) => (Some(position_of(away).0), true),
        };
        (there == Some(position)).then(|| match is_away {
            true => {
                let (message, payload) = (Box::new(message), payload.to_vec());
                Said::AwayAgain { queue, place, message, payload }
            }
            false => Said::MessageAgain { queue, place },
        })
    }

    /// What is to be said of a record that lies in the segment, if it still holds.
    fn again(
        &self,
        engine: &Engine<Message>,
        queues: &Queues,
        participations: &Participations,
        returned: &mut HashSet<(QueueId, Place)>,
        position: Position,
        record: Record<'_>,
    ) -> Option<Said> {
        match record {
            Record::Message(message, payload) => self.message_again(engine, position, message, payload),
            Record::Queue(record) if is_of_topology(record.kind) => {
                let uid = record.uid;
                self.definitions.is_at(uid, position).then_some(Said::Definition { uid })
            }
            Record::Queue(record) => {
                let queue = *self.by_uid.get(&record.uid)?;
                let is_there = queues.kept(queue)?.definition == Some(position);
                let is_closed = queues.closing(queue).is_some();
                is_there.then_some(if is_closed { Said::Closed { queue } } else { Said::Queue { queue } })
            }
            Record::Prepared(_) => {
                let transaction = participations.prepared_at(position)?;
                Some(Said::PreparedAgain { transaction })
            }
            Record::Decided(record) => {
                let (name, participants) = (record.transaction, record.participants);
                let is_there = self.decided.get(&name) == Some(&position);
                is_there.then_some(Said::DecidedAgain { name, participants })
            }
            Record::Removed(record) => Some(Said::Carried(Box::new(Record::Removed(record)))),
            Record::Returned(record) => {
                let queue = self.by_uid.get(&record.uid).copied();
                let place = Place(record.place);
                if let Some(queue) = queue
                    && let source = (Source { queue, place })
                    && let Some(departure) = self.leaving.get(source)
                {
                    // It is said again with its message, or here, if that lies elsewhere.
                    let is_said =
                        departure.death == record.death && departure.position.segment != position.segment;
                    let returned = Box::new(record);
                    return is_said.then_some(Said::Died { source, returned });
                }
                let there = queue.and_then(|queue| match engine.message_at(queue, place)? {
                    Stored::Here(message) => Some((queue, message.position?)),
                    Stored::Away(away) => Some((queue, position_of(away).0)),
                });
                match there {
                    // It is said again itself, with its counts.
                    Some((_, message)) if message.segment == position.segment => None,
                    // As it is now, and once: it may have come back again since, and what is said last holds.
                    Some((queue, _)) => {
                        returned.insert((queue, place)).then_some(Said::ReturnedAgain { queue, place })
                    }
                    None => Some(Said::Carried(Box::new(Record::Returned(record)))),
                }
            }
            Record::QueueDeleted(record) => Some(Said::Carried(Box::new(Record::QueueDeleted(record)))),
            Record::Done(record) => Some(Said::Carried(Box::new(Record::Done(record)))),
            Record::Started(_) | Record::Stopped(_) | Record::Manifest(_) => None,
        }
    }
}
