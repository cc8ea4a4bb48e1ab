//! How does whoever wants a backup talk to the broker that uses the data directory?
//!
//! Through a socket in that directory, which is open to its owner alone: whoever may read the directory may make a backup of it, and
//! nobody over a network. In lines:
//!
//! ```text
//! asker   corelane backup 1
//! broker  segment SHARD NUMBER BYTES   for each that belongs to the image
//!         end
//! asker   done                         when everything is copied
//! broker  complete                     nothing was freed until now
//! ```
//!
//! Instead of its lines the broker may say `error` and a text. Both ends take the end of the connection for the end of the backup.
//!
//! Invariants: the control thread is asked to begin, and then told that it is over, once each, whatever the asker does; nobody here is
//! waited for by a shard or by the control thread.
//! Left out: when shards hold (`corelane_shard::Barrier`), what is copied and how (`storage`).

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, fs};

use corelane_shard::{Image, ImageSegment};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::doorbell::Doorbell;
use crate::storage::SOCKET;

/// Connections at a time; more are refused.
const CONNECTIONS_MAX: usize = 4;

/// How long an asker has to say what it wants, and takes for an answer: more than a barrier may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a line at most.
const LINE_BYTES_MAX: u64 = 4096;

const GREETING: &str = "corelane backup 1";
const END: &str = "end";
const DONE: &str = "done";
const COMPLETE: &str = "complete";
const ERROR: &str = "error ";

/// What the control thread is asked for.
#[derive(Debug)]
pub enum Request {
    /// An image of this instant, or the reason why there is none.
    Begin { answer: Sender<Result<Image, String>> },
    /// The backup that was begun is over: everything is copied, or not. The answer: whether nothing was freed until now.
    End { copied: bool, answer: Sender<Result<(), String>> },
}

/// The broker's end.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    requests: Receiver<Request>,
}

impl Door {
    /// Opens it in the data directory, which is this process' alone. `bell` is rung for each request.
    pub fn open(directory: &Path, bell: Doorbell) -> io::Result<Self> {
        let path = directory.join(SOCKET);
        // One that a process has left that was killed.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = listen(&path)?;
        let (ask, requests) = channel();
        thread::Builder::new().name("backups".to_owned()).spawn(move || accept(&listener, &ask, &bell))?;
        Ok(Door { path, requests })
    }

    /// The next request, if there is one.
    pub fn take(&self) -> Option<Request> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // One that stays is replaced by the next start.
        let _ = fs::remove_file(&self.path);
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode of the socket, so that it is nobody else's at any time.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, CONNECTIONS_MAX as i32)?;
    Ok(socket.into())
}

fn accept(listener: &UnixListener, ask: &Sender<Request>, bell: &Doorbell) {
    let mut serving: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "whoever wants a backup cannot be heard for a moment");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        serving.retain(|thread| !thread.is_finished());
        if serving.len() >= CONNECTIONS_MAX {
            let _ = writeln!(stream, "{ERROR}{CONNECTIONS_MAX} others ask for a backup already");
            continue;
        }
        let (ask, bell) = (ask.clone(), bell.clone());
        let thread = thread::Builder::new().name("backup".to_owned()).spawn(move || {
            let server = Server { ask, bell };
            // Whoever has gone needs no answer.
            let _ = server.serve(stream);
        });
        serving.extend(thread.inspect_err(|error| tracing::warn!(%error, "no thread for a backup")));
    }
}

/// One connection of an asker.
struct Server {
    ask: Sender<Request>,
    bell: Doorbell,
}

impl Server {
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut output = &stream;
        let mut input = BufReader::new(&stream);
        if read_line(&mut input)?.as_deref() != Some(GREETING) {
            return writeln!(
                output,
                "{ERROR}this broker is of another version: use its own `corelane backup`"
            );
        }
        let image = match self.request(|answer| Request::Begin { answer }) {
            Ok(image) => image,
            Err(reason) => return writeln!(output, "{ERROR}{reason}"),
        };
        let copied = self.wait_for_copy(&stream, &mut input, &image);
        let end = self.request(|answer| Request::End { copied, answer });
        match end {
            Ok(()) => writeln!(output, "{COMPLETE}"),
            Err(reason) => writeln!(output, "{ERROR}{reason}"),
        }
    }

    /// True: the asker has said that everything is copied. False: it has gone.
    fn wait_for_copy(&self, stream: &UnixStream, input: &mut impl BufRead, image: &Image) -> bool {
        let mut output = stream;
        let told = output.write_all(lines_of(image).as_bytes());
        let waits = told.and_then(|()| stream.set_read_timeout(None));
        let said = waits.and_then(|()| read_line(input));
        said.is_ok_and(|said| said.as_deref() == Some(DONE))
    }

    fn request<T>(&self, make: impl FnOnce(Sender<Result<T, String>>) -> Request) -> Result<T, String> {
        let gone = || "the broker has stopped".to_owned();
        let (say, answer) = channel();
        self.ask.send(make(say)).map_err(|_| gone())?;
        self.bell.ring();
        answer.recv().map_err(|_| gone())?
    }
}

fn lines_of(image: &Image) -> String {
    let mut text = String::new();
    for (shard, segments) in image.iter().enumerate() {
        for ImageSegment { number, bytes } in segments {
            let _ = writeln!(text, "segment {shard} {number} {bytes}");
        }
    }
    text + END + "\n"
}

fn segment_of(line: &str) -> Option<(usize, ImageSegment)> {
    let mut words = line.strip_prefix("segment ")?.split(' ');
    let shard = words.next()?.parse().ok()?;
    let number = words.next()?.parse().ok()?;
    let bytes = words.next()?.parse().ok()?;
    words.next().is_none().then_some((shard, ImageSegment { number, bytes }))
}

/// `None`: the other end has gone.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    input.take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.strip_suffix('\n').map(str::to_owned))
}

/// Why a broker gives no backup.
#[derive(Debug)]
pub enum AskError {
    /// It says so.
    Refused(String),
    /// It has gone, or does not answer.
    Gone(io::Error),
    /// It says what makes no sense.
    Unknown(String),
}

/// The end of whoever wants a backup. The broker takes its end for the end of the backup.
#[derive(Debug)]
pub struct Asker {
    stream: BufReader<UnixStream>,
}

impl Asker {
    /// To the broker that uses this directory. `None`: nobody listens.
    pub fn connect(directory: &Path) -> io::Result<Option<Self>> {
        match UnixStream::connect(directory.join(SOCKET)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(Some(Asker { stream: BufReader::new(stream) }))
            }
            Err(error) => match error.kind() {
                // The last one: the path is too long for a socket.
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidInput => {
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    /// The image of this instant, for so many shards.
    pub fn begin(&mut self, shards: usize) -> Result<Image, AskError> {
        self.say(GREETING)?;
        let mut image = vec![Vec::new(); shards];
        loop {
            let line = self.hear()?;
            if line == END {
                return Ok(image);
            }
            let segment = segment_of(&line).filter(|(shard, _)| *shard < shards);
            let (shard, segment) = segment.ok_or(AskError::Unknown(line))?;
            image[shard].push(segment);
        }
    }

    /// Whether the broker has neither gone nor said anything.
    pub fn is_there(&self) -> bool {
        let stream = self.stream.get_ref();
        let looked = stream.set_nonblocking(true).and_then(|()| {
            let mut byte = [0];
            let read = { stream }.read(&mut byte);
            stream.set_nonblocking(false).and(read)
        });
        looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Everything is copied: was it there until now?
    pub fn end(mut self) -> Result<(), AskError> {
        self.say(DONE)?;
        let line = self.hear()?;
        if line == COMPLETE { Ok(()) } else { Err(AskError::Unknown(line)) }
    }

    fn say(&mut self, line: &str) -> Result<(), AskError> {
        writeln!(self.stream.get_mut(), "{line}").map_err(AskError::Gone)
    }

    fn hear(&mut self) -> Result<String, AskError> {
        let line = read_line(&mut self.stream).map_err(AskError::Gone)?;
        let line = line.ok_or_else(|| AskError::Gone(io::ErrorKind::UnexpectedEof.into()))?;
        match line.strip_prefix(ERROR) {
            Some(reason) => Err(AskError::Refused(reason.to_owned())),
            None => Ok(line),
        }
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Refused(reason) => write!(formatter, "{reason}"),
            AskError::Gone(error) if error.kind() == io::ErrorKind::WouldBlock => {
                write!(formatter, "the broker does not answer")
            }
            AskError::Gone(_) => write!(formatter, "the broker has stopped meanwhile"),
            AskError::Unknown(line) => {
                write!(
                    formatter,
                    "the broker has answered {line:?}: use the `corelane backup` of its version"
                )
            }
        }
    }
}

impl std::error::Error for AskError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Serves so many requests as `answer` says.
    fn serve(door: &Door, bell: &Doorbell, count: usize, mut answer: impl FnMut(Request)) {
        for _ in 0..count {
            let request = loop {
                match door.take() {
                    Some(request) => break request,
                    None => assert!(bell.wait(Some(PATIENCE)), "nobody asks"),
                }
            };
            answer(request);
        }
    }

    fn image() -> Image {
        vec![
            vec![ImageSegment { number: 3, bytes: 4096 }, ImageSegment { number: 7, bytes: 1 << 20 }],
            vec![],
        ]
    }

    #[test]
    fn an_image_is_given_and_its_end_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let bell = Doorbell::new().unwrap();
        assert!(Asker::connect(folder.path()).unwrap().is_none());
        // What a process that was killed leaves.
        drop(UnixListener::bind(folder.path().join(SOCKET)).unwrap());
        assert!(Asker::connect(folder.path()).unwrap().is_none());
        let door = Door::open(folder.path(), bell.clone()).unwrap();
        let mode = fs::metadata(folder.path().join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let path = folder.path().to_owned();
        let asker = thread::spawn(move || {
            let mut asker = Asker::connect(&path).unwrap().unwrap();
            let image = asker.begin(2).unwrap();
            assert!(asker.is_there());
            asker.end().unwrap();
            // The next goes away in the middle.
            let mut asker = Asker::connect(&path).unwrap().unwrap();
            asker.begin(2).unwrap();
            drop(asker);
            let mut asker = Asker::connect(&path).unwrap().unwrap();
            (image, asker.begin(2).unwrap_err().to_string())
        });
        let mut heard = Vec::new();
        serve(&door, &bell, 5, |request| match request {
            Request::Begin { answer } if heard.len() == 4 => {
                heard.push("begin");
                answer.send(Err("no".to_owned())).unwrap();
            }
            Request::Begin { answer } => {
                heard.push("begin");
                answer.send(Ok(image())).unwrap();
            }
            Request::End { copied, answer } => {
                heard.push(if copied { "copied" } else { "gone" });
                answer.send(Ok(())).unwrap();
            }
        });
        assert_eq!(heard, ["begin", "copied", "begin", "gone", "begin"]);
        assert_eq!(asker.join().unwrap(), (image(), "no".to_owned()));
        drop(door);
        assert!(!folder.path().join(SOCKET).exists());
    }

    #[test]
    fn an_asker_notices_that_the_broker_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let listener = listen(&folder.path().join(SOCKET)).unwrap();
        let mut asker = Asker::connect(folder.path()).unwrap().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(lines_of(&image()).as_bytes()).unwrap();
        assert_eq!(asker.begin(2).unwrap(), image());
        assert!(asker.is_there());
        drop((stream, listener));
        assert!(!asker.is_there());
        assert_eq!(asker.end().unwrap_err().to_string(), "the broker has stopped meanwhile");
    }
}
