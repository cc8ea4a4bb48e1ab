//! Who does for a shard what takes long? A thread beside it: makes files, reads them for cleaning, and deletes them.
//!
//! Invariant: every request but freeing has one answer, in order; the shard is rung for each.

use super::segments::{PART_BYTES, SegmentFiles, read_at};
use crate::doorbell::Doorbell;
use crate::users::fill_random;
use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

#[derive(Debug)]
enum Request {
    Prepare { number: u32 },
    Read { number: u32, offset: u64, buffer: Vec<u8> },
    Free { numbers: Vec<u32> },
}

/// What became of a request.
#[derive(Debug)]
pub enum Answer {
    /// The file is there, open for writing. The epoch is random.
    Prepared { number: u32, result: io::Result<(File, u64)> },
    /// Of the buffer the first so many bytes.
    Read { number: u32, offset: u64, buffer: Vec<u8>, result: io::Result<usize> },
    /// They could not all be deleted.
    NotFreed { error: io::Error },
}

/// The shard's end of it. Its thread ends when this is dropped, after what it has been asked for.
#[derive(Debug)]
pub struct Helper {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    /// The one of the last read.
    buffer: Vec<u8>,
}

impl Helper {
    /// Starts the thread, which runs where the calling one may. `bell` is rung for each answer.
    pub fn start(name: &str, mut files: SegmentFiles, bell: Doorbell) -> io::Result<Self> {
        let (requests, incoming) = channel();
        let (outgoing, answers) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut reading = None;
            for request in incoming {
                if let Some(answer) = answer(&mut files, &mut reading, request) {
                    if outgoing.send(answer).is_err() {
                        return;
                    }
                    bell.ring();
                }
            }
        })?;
        Ok(Helper { requests, answers, buffer: Vec::new() })
    }

    pub fn prepare(&mut self, number: u32) {
        self.ask(Request::Prepare { number });
    }

    pub fn read(&mut self, number: u32, offset: u64) {
        let buffer = std::mem::take(&mut self.buffer);
        self.ask(Request::Read { number, offset, buffer });
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

    fn ask(&mut self, request: Request) {
        self.requests.send(request).expect("the helper ends when its shard does");
    }
}

fn answer(files: &mut SegmentFiles, reading: &mut Option<(u32, File)>, request: Request) -> Option<Answer> {
    match request {
        Request::Prepare { number } => {
            let result = files.prepare(number).and_then(|file| Ok((file, random()?)));
            Some(Answer::Prepared { number, result })
        }
        Request::Read { number, offset, mut buffer } => {
            buffer.resize(PART_BYTES, 0);
            let result = open(files, reading, number).and_then(|file| read_at(file, &mut buffer, offset));
            Some(Answer::Read { number, offset, buffer, result })
        }
        Request::Free { numbers } => {
            reading.take_if(|(number, _)| numbers.contains(number));
            files.free(&numbers).err().map(|error| Answer::NotFreed { error })
        }
    }
}

/// Reads of one segment follow each other, so its file stays open.
fn open<'a>(files: &SegmentFiles, reading: &'a mut Option<(u32, File)>, number: u32) -> io::Result<&'a File> {
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
