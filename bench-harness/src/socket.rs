//! How do bytes get in and out without waiting?
//!
//! A socket that never blocks, with a fixed buffer for what was received and a growing one for what waits to be sent.
//! Nothing is allocated once both have their size.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What one read takes at most, and more than any frame that we let a peer send.
const INBOX_BYTES: usize = 256 << 10;
/// Below this a rest is moved to the front before a read, above it only when it must.
const ROOM_BYTES_MIN: usize = 128 << 10;

/// A connection that never blocks.
pub struct Socket {
    stream: TcpStream,
    inbox: Box<[u8]>,
    /// `inbox[start..end]` is unread.
    start: usize,
    end: usize,
    outbox: Vec<u8>,
    /// `outbox[..sent]` is gone.
    sent: usize,
}

impl Socket {
    /// Connects to the first address that answers.
    pub fn connect(addresses: &[SocketAddr]) -> io::Result<Socket> {
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    let inbox = vec![0; INBOX_BYTES].into_boxed_slice();
                    let outbox = Vec::with_capacity(INBOX_BYTES);
                    return Ok(Socket { stream, inbox, start: 0, end: 0, outbox, sent: 0 });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Reads once. How much came; 0: nothing was there. The peer's end is an error.
    #[inline]
    pub fn fill(&mut self) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.inbox.len() - self.end < ROOM_BYTES_MIN {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.stream.read(&mut self.inbox[self.end..]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.end += count;
                Ok(count)
            }
            Err(error) if is_not_now(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// What was received and not consumed.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    /// The first `count` unread bytes are done with.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "only what was received is consumed");
        self.start += count;
    }

    /// What is to be sent next. Put bytes in only while the socket [is flushed](Self::is_flushed).
    #[inline]
    pub fn outbox(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.is_flushed(), "what is being sent stays as it is");
        &mut self.outbox
    }

    /// Nothing waits to be sent.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Sends what the socket takes. Whether that is all.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.outbox.len() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if is_not_now(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Sends bytes that stay where they are. How many the socket took.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if is_not_now(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::connect(&[listener.local_addr().unwrap()]).unwrap();
        (socket, listener.accept().unwrap().0)
    }

    fn fill(socket: &mut Socket) -> usize {
        loop {
            match socket.fill().unwrap() {
                0 => std::thread::yield_now(),
                count => return count,
            }
        }
    }

    #[test]
    fn a_rest_stays_in_front_of_what_comes_next() {
        let (mut socket, mut peer) = pair();
        assert_eq!(socket.fill().unwrap(), 0);
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|byte| (byte % 251) as u8).collect();
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || {
            peer.write_all(&sent).unwrap();
            peer
        });
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            fill(&mut socket);
            // All but a few bytes, as if a frame were not complete.
            let count = socket.unread().len().saturating_sub(1000).max(1);
            got.extend_from_slice(&socket.unread()[..count]);
            socket.consume(count);
            if bytes.len() - got.len() <= 1000 {
                got.extend_from_slice(socket.unread());
                socket.consume(socket.unread().len());
            }
        }
        assert!(got == bytes);
        drop(writer.join().unwrap());
        let end = loop {
            match socket.fill() {
                Ok(0) => std::thread::yield_now(),
                Ok(count) => panic!("{count} bytes too much"),
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_the_socket_does_not_take_waits() {
        let (mut socket, mut peer) = pair();
        let bytes = vec![7; 16 << 20];
        socket.outbox().extend_from_slice(&bytes);
        assert!(!socket.flush().unwrap() && !socket.is_flushed());
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 16 << 20];
            peer.read_exact(&mut got).unwrap();
            got
        });
        while !socket.flush().unwrap() {
            std::thread::yield_now();
        }
        assert!(socket.is_flushed());
        assert!(reader.join().unwrap() == bytes);
    }

    #[test]
    fn nobody_there_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(Socket::connect(&[address]).is_err());
        assert!(Socket::connect(&[]).is_err());
    }
}
