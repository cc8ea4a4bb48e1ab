//! Who does for a shard what takes long? A thread beside it: makes files, reads them for cleaning and for messages that are not in
//! memory, and deletes them.
//!
//! Invariant: every request but freeing has one answer, in order; the shard is rung for each.

use super::segments::{PART_BYTES, SegmentFiles, read_at};
use crate::doorbell::Doorbell;
use crate::users::fill_random;
use corelane_journal::Spare;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

#[derive(Debug)]
enum Request {
    Prepare { spare: Spare },
    Read { number: u32, offset: u64, buffer: Vec<u8> },
    ReadBodies { number: u32, offset: u64, length: usize, buffer: Vec<u8> },
    Free { numbers: Vec<u32> },
}

/// What became of a request.
#[derive(Debug)]
pub enum Answer {
    /// The file is there, open for writing. The epoch is random.
    Prepared { number: u32, result: io::Result<(File, u64)> },
    /// Of the buffer the first so many bytes.
    Read { number: u32, offset: u64, buffer: Vec<u8>, result: io::Result<usize> },
    /// All of what was asked for.
    BodiesRead { buffer: Vec<u8>, result: io::Result<()> },
    /// They could not all be deleted.
    NotFreed { error: io::Error },
}

/// The shard's end of it. Its thread ends when this is dropped, after what it has been asked for.
#[derive(Debug)]
pub struct Helper {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    /// Those of the last reads.
    buffer: Vec<u8>,
    bodies: Vec<u8>,
}

impl Helper {
    /// Starts the thread, which runs where the calling one may. `bell` is rung for each answer.
    pub fn start(name: &str, mut files: SegmentFiles, bell: Doorbell) -> io::Result<Self> {
        let (requests, incoming) = channel();
        let (outgoing, answers) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut open = Open::default();
            for request in incoming {
                if let Some(answer) = answer(&mut files, &mut open, request) {
                    if outgoing.send(answer).is_err() {
                        return;
                    }
                    bell.ring();
                }
            }
        })?;
        Ok(Helper { requests, answers, buffer: Vec::new(), bodies: Vec::new() })
    }

    pub fn prepare(&mut self, spare: Spare) {
        self.ask(Request::Prepare { spare });
    }

    pub fn read(&mut self, number: u32, offset: u64) {
        let buffer = std::mem::take(&mut self.buffer);
        self.ask(Request::Read { number, offset, buffer });
    }

    pub fn read_bodies(&mut self, number: u32, offset: u64, length: usize) {
        let buffer = std::mem::take(&mut self.bodies);
        self.ask(Request::ReadBodies { number, offset, length, buffer });
    }

    pub fn free(&mut self, numbers: Vec<u32>) {
        self.ask(Request::Free { numbers });
    }

    /// The next answer, if there is one.
    pub fn poll(&mut self) -> Option<Answer> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the shard's helper has ended"),
        }
    }

    /// Gives the buffer of a read back.
    pub fn reuse(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// The same for one with bodies. What was large for once is not kept.
    pub fn reuse_bodies(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= BODIES_KEPT_MAX {
            self.bodies = buffer;
        }
    }

    fn ask(&mut self, request: Request) {
        self.requests.send(request).expect("the helper ends when its shard does");
    }
}

/// Files that were read last: one for cleaning, and some for bodies, the last one first.
#[derive(Debug, Default)]
struct Open {
    reading: Option<(u32, File)>,
    bodies: VecDeque<(u32, File)>,
}

/// Files that stay open for bodies. Of more, the one that was not read for longest is closed.
const BODY_FILES_MAX: usize = 8;

/// Bytes of a buffer for bodies that is kept.
const BODIES_KEPT_MAX: usize = 4 << 20;

fn answer(files: &mut SegmentFiles, open: &mut Open, request: Request) -> Option<Answer> {
    match request {
        Request::Prepare { spare } => {
            let result = files.prepare(spare).and_then(|file| Ok((file, random()?)));
            Some(Answer::Prepared { number: spare.number, result })
        }
        Request::Read { number, offset, mut buffer } => {
            buffer.resize(PART_BYTES, 0);
            let file = open_segment(files, &mut open.reading, number);
            let result = file.and_then(|file| read_at(file, &mut buffer, offset));
            Some(Answer::Read { number, offset, buffer, result })
        }
        Request::ReadBodies { number, offset, length, mut buffer } => {
            buffer.clear();
            buffer.resize(length, 0);
            let file = open.body_file(files, number);
            let result = file.and_then(|file| file.read_exact_at(&mut buffer, offset));
            Some(Answer::BodiesRead { buffer, result })
        }
        Request::Free { numbers } => {
            open.bodies.retain(|(number, _)| !numbers.contains(number));
            open.reading.take_if(|(number, _)| numbers.contains(number));
            files.free(&numbers).err().map(|error| Answer::NotFreed { error })
        }
    }
}

impl Open {
    fn body_file(&mut self, files: &SegmentFiles, number: u32) -> io::Result<&File> {
        match self.bodies.iter().position(|(open, _)| *open == number) {
            Some(0) => {}
            Some(at) => {
                let file = self.bodies.remove(at).expect("it was found there");
                self.bodies.push_front(file);
            }
            None => {
                self.bodies.truncate(BODY_FILES_MAX - 1);
                self.bodies.push_front((number, files.open_to_read(number)?));
            }
        }
        Ok(&self.bodies[0].1)
    }
}

/// Reads of one segment follow each other, so its file stays open.
fn open_segment<'a>(
    files: &SegmentFiles,
    reading: &'a mut Option<(u32, File)>,
    number: u32,
) -> io::Result<&'a File> {
    reading.take_if(|(open, _)| *open != number);
    let (_, file) = match reading.take() {
        Some(open) => reading.insert(open),
        None => reading.insert((number, files.open_to_read(number)?)),
    };
    Ok(file)
}

/// An epoch.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
